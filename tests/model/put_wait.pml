/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Semaphores: weft_i_signal_put and weft_i_signal_take of src/base/share/signal.h with the waits of
 * src/symm/signals.c.  Ranks in a ring: each has a thread that puts S signals to the next rank and
 * one that takes S from the rank before.  A put or a take whose deadline passes has done nothing and
 * is tried again.  The data a signal announces is one value per signal.
 *
 * Checked: the n-th signal taken is the n-th put, none lost, none twice, and its data is there; a
 * deadline that passes leaves the semaphore as it was; every wait ends, also if a rank dies.
 *
 * Variants that must fail:
 *   STORE_PUT       put stores 1 without looking for 0
 *   STORE_TAKE      take looks for 1, and stores 0 in a second step, as two takers may do at once
 *   LATE_TIMEOUT    a deadline that passes after the exchange is reported as a timeout
 *
 * The atomic operations it stands for (scripts/check-atomics compares them with the code):
 *   @ src/base/share/signal.h weft_i_signal_put compare_exchange_strong release,relaxed -> weft_i_signal_take
 *   @ src/base/share/signal.h weft_i_signal_take compare_exchange_strong acquire,relaxed -> weft_i_signal_put
 */
#ifndef N
#define N 2
#endif
#ifndef S
#define S 3
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

bit box[N];      /* of the rank before, at this one */
byte data[N];    /* number of the last signal put into it */
byte taken[N];   /* how many were taken from it */
byte begun[N];   /* takes that have begun: a rank may wait for signals on several threads */
bool dead[N];
byte deaths, timeouts;

/* How many faults there are is chosen first: where none is left, a wait that only a fault could end
 * is seen as one that never ends. */
inline choose_faults()
{
    select(deaths : 0 .. DEATHS);
    select(timeouts : 0 .. TIMEOUTS)
}

#define TO ((me + 1) % N)
#define FROM ((me + N - 1) % N)
#define EXPIRE atomic { timeouts > 0 -> timeouts-- }

proctype putter(byte me)
{
    byte puts;
    do
#ifdef STORE_PUT
    :: d_step { puts < S && !dead[me] -> puts++; data[TO] = puts; box[TO] = 1 }
#else
    :: d_step { puts < S && !dead[me] && box[TO] == 0 -> puts++; data[TO] = puts; box[TO] = 1 }
#endif
#ifdef LATE_TIMEOUT /* has put, and puts again */
    :: d_step { puts < S && !dead[me] && box[TO] == 0 && timeouts > 0 -> timeouts--; data[TO] = puts + 1; box[TO] = 1 }
#endif
    :: EXPIRE
    :: box[TO] == 1 && dead[TO] -> break
    :: atomic { deaths > 0 -> deaths--; dead[me] = true }
    :: puts == S || dead[me] -> break
    od
}

proctype taker(byte me)
{
    do
    :: d_step { begun[me] < S && !dead[me] -> begun[me]++ };
        if
#ifdef STORE_TAKE
        :: box[me] == 1 && !dead[me] ->
            d_step { taken[me]++; assert(data[me] == taken[me]) };
            box[me] = 0
#else
        :: d_step { box[me] == 1 && !dead[me] -> box[me] = 0; taken[me]++; assert(data[me] == taken[me]) }
#endif
        :: atomic { timeouts > 0 -> timeouts--; begun[me]-- }
        :: dead[me] || (dead[FROM] && box[me] == 0) -> break
        fi
    :: begun[me] == S || dead[me] -> break
    od
}

init
{
    byte i;
    atomic {
        choose_faults();
        for (i : 0 .. N - 1) { run putter(i); run taker(i); if :: i == 0 -> run taker(i) :: else fi }
    }
    (_nr_pr == 1);
    if
    :: dead[0] || dead[1] || dead[N - 1]
    :: else -> for (i : 0 .. N - 1) { assert(taken[i] == S && box[i] == 0) }
    fi
}

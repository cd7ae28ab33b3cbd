/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meeting: src/base/share/signal.h and signal.c, function by function.  N ranks meet E times.  Deadlines
 * pass up to TIMEOUTS times in all, at any step of any rank, and the rank tries again; one rank may
 * die at any step (DEATHS); the last rank may call something else in the first meeting (ODD).
 * Operations take two meetings; a rank that gives up in the second starts anew.
 *
 * Memory is sequentially consistent but for the one store that the code does not order by itself:
 * LOOKING, stored before the words of the others are read, may stay in a store buffer meanwhile.  The
 * barrier on all cores empties it, in one step.  Arrivals are ordered after it by their release.
 *
 * Checked:
 *   a rank leaves epoch e with success only while every other is in its call of e, or has left e, or
 *     died in it (so never with the arrival of a call that has returned);
 *   a meeting ends alike for all: success for all, or a mismatch for all, or for none;
 *   ranks that succeed together are in the same meeting of their operation;
 *   nobody is more than one meeting ahead;
 *   every wait ends (no state without a next step), also if a rank dies.  In operations of one
 *     meeting (E=1) that holds even if those who learn of the death stay (LEAVES=0).
 *
 * Variants that must fail:
 *   NO_BARRIER      gives up without the barrier on all cores
 *   NO_BAR          looks who has passed, but bars nobody
 *   IGNORE_PASSED   bars, but does not care who has passed
 *   STORE_PASS      passes by a store, not a compare-and-exchange
 *   NO_RESTART      who was barred goes on looking where it was
 *   LOST_AHEAD      asks about the lives of those only that were not seen yet (3 ranks, LEAVES=0)
 *   AT_ONCE         a mismatch is returned when it is seen, before all have arrived
 *   NO_ANEW         a rank in a later meeting waits for one that has started anew
 *
 * The atomic operations it stands for (scripts/check-atomics compares them with the code):
 *   @ src/base/share/signal.c word_of load acquire -> arrive
 *   @ src/base/share/signal.c say_looking store relaxed -> give_up
 *   @ src/base/share/signal.c say_looking signal_fence seq_cst -> -
 *   @ src/base/share/signal.c decide compare_exchange_strong acq_rel,acquire -> weft_i_signal_bar
 *   @ src/base/share/signal.c arrive store release -> word_of
 *   @ src/base/share/signal.c called_else load relaxed -> -
 *   @ src/base/share/signal.c weft_i_signal_bar load acquire -> decide
 *   @ src/base/share/signal.c weft_i_signal_bar compare_exchange_weak acq_rel,acquire -> decide
 *   @ src/base/share/signal.c give_up store relaxed -> -
 *   @ src/base/share/signal.c give_up store release -> word_of
 *   @ src/base/share/signal.c give_up store release -> weft_i_signal_bar
 *   @ src/base/share/signal.c mismatch_again load relaxed -> -
 *   @ src/base/share/signal.c weft_i_signal_come load relaxed -> -
 *   @ src/base/share/signal.c weft_i_signal_come load relaxed -> -
 *   @ src/base/share/signal.c weft_i_signal_come load relaxed -> -
 */
#ifndef N
#define N 2
#endif
#ifndef E
#define E 2
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef LEAVES
#define LEAVES 1 /* a rank that learns of a death leaves, which others learn as they learn a death */
#endif
#ifndef ODD
#define ODD 1
#endif

/* An arrival: epoch and digest: of a first meeting, of a later one, of another call. */
#define FIRST 0
#define LATER 1
#define OTHER 2
#define WORD(epoch, digest) ((epoch) * 3 + (digest))
#define EPOCH(w) ((w) / 3)
#define DIGEST(w) ((w) % 3)
byte word[N];

/* A pass word: epoch and step. */
#define LOOKING 1
#define BARRED 2
#define PASSED 3
#define MISMATCHED 4
#define PASS(epoch, step) ((epoch) * 5 + (step))
byte pass[N];
bool buffered[N]; /* LOOKING at the rank's epoch is in its store buffer */
byte at[N];       /* that epoch */

bool dead[N];
byte deaths, timeouts;
bool odd; /* the last rank calls something else in epoch 1 */

/* What the model knows and the ranks do not. */
byte inside[N];     /* the epoch of the call a rank is in; 0: in none */
byte left[N];       /* the last epoch a rank has left with success */
byte result[E + 1]; /* of an epoch: 0 none yet, 1 success in a first meeting, 2 in a later one, 3 mismatch */

/* How a word looks to a rank that has arrived at epoch e with digest d. */
#define UNLIKE(w) (EPOCH(w) == e && (DIGEST(w) == LATER) != (d == LATER))
#define DIFFERENT(w) (EPOCH(w) == e && DIGEST(w) != d && !UNLIKE(w))
#define THERE(w) (EPOCH(w) > e || (EPOCH(w) == e && DIGEST(w) == d))
#ifdef NO_ANEW
#define ANEW(w) false
#define ABSENT(w) (EPOCH(w) < e || UNLIKE(w))
#else
#define ANEW(w) (UNLIKE(w) && d == LATER)
#define ABSENT(w) (EPOCH(w) < e || UNLIKE(w) && d != LATER)
#endif
#define WENT_ON(p) ((p) / 5 > e || (p) == PASS(e, PASSED))

/* The words are read round from our own. */
#define AT(turn) ((me + (turn)) % N)

/* A rank may die before any step that others can see, and while it waits. */
#define OR_DIE :: atomic { deaths > 0 -> deaths--; dead[me] = true }; goto gone
#define MAYBE_DIE if :: true OR_DIE fi

/* How many faults there are is chosen first: where none is left, a wait that only a fault could end
 * is seen as one that never ends. */
inline choose_faults()
{
    select(deaths : 0 .. DEATHS);
    select(timeouts : 0 .. TIMEOUTS)
}

/* say_looking, and look_anew before it: LOOKING goes into the store buffer. */
inline look_anew()
{
    d_step { next = 0; at[me] = e; buffered[me] = true }
}

inline empty_own_buffer()
{
    if :: buffered[me] -> pass[me] = PASS(e, LOOKING); buffered[me] = false :: else fi
}

inline store_pass(step)
{
    d_step { buffered[me] = false; pass[me] = PASS(e, step) }
}

inline barrier_everywhere()
{
    d_step {
        r = 0;
        do
        :: r < N ->
           if :: buffered[r] -> pass[r] = PASS(at[r], LOOKING); buffered[r] = false :: else fi;
           r++
        :: else -> break
        od;
        r = 0
    }
}

/* The exchange in decide; a read-modify-write comes after the stores before it. */
inline pass_on()
{
    d_step {
        empty_own_buffer();
#ifdef STORE_PASS
        passed = true
#else
        passed = (pass[me] == PASS(e, LOOKING))
#endif
        ;
        if
        :: passed && !different -> pass[me] = PASS(e, PASSED)
        :: passed && different -> pass[me] = PASS(e, MISMATCHED)
        :: else
        fi
    }
}

/* The exchange in weft_i_signal_bar. */
inline bar()
{
    d_step {
        if
        :: r != me && pass[r] == PASS(e, LOOKING) ->
#ifndef NO_BAR
            pass[r] = PASS(e, BARRED)
#else
            skip
#endif
        :: r != me && WENT_ON(pass[r]) -> passed = true; different = false
        :: r != me && pass[r] == PASS(e, MISMATCHED) -> passed = true; different = true
        :: else
        fi;
        r++
    }
}

inline check_left()
{
    d_step {
        lost = false;
        r = 0;
        do
        :: r < N -> assert(left[r] >= e || inside[r] == e); assert(left[r] <= e + 1); r++
        :: else -> break
        od;
        assert(result[e] == 0 || result[e] == 1 + (d == LATER));
        result[e] = 1 + (d == LATER);
        left[me] = e;
        inside[me] = 0;
        later = !later;
        r = 0; next = 0; passed = false
    }
}

#ifdef LOST_AHEAD
#define LOST(q) ((q + N - me) % N >= next && ABSENT(word[q]) && dead[q])
#else
#define LOST(q) (ABSENT(word[q]) && dead[q])
#endif
#if N == 2
#define SOMEBODY_LOST (LOST(0) || LOST(1))
#elif N == 3
#define SOMEBODY_LOST (LOST(0) || LOST(1) || LOST(2))
#else
#define SOMEBODY_LOST (LOST(0) || LOST(1) || LOST(2) || LOST(3))
#endif

active proctype write_back() /* of any store buffer, at any time */
{
end:
    do
    :: d_step { buffered[0] -> pass[0] = PASS(at[0], LOOKING); buffered[0] = false }
    :: d_step { buffered[1] -> pass[1] = PASS(at[1], LOOKING); buffered[1] = false }
#if N > 2
    :: d_step { buffered[2] -> pass[2] = PASS(at[2], LOOKING); buffered[2] = false }
#endif
#if N > 3
    :: d_step { buffered[3] -> pass[3] = PASS(at[3], LOOKING); buffered[3] = false }
#endif
    od
}

proctype rank(byte me)
{
    byte e, d, next, r, before;
    bool passed, lost, different, later;

call:
    if
    :: left[me] == E -> goto gone
    :: else ->
        atomic {
            before = word[me];
            e = EPOCH(before) + 1;
            if
            :: odd && me == N - 1 && e == 1 -> d = OTHER
            :: later -> d = LATER
            :: else -> d = FIRST
            fi;
            inside[me] = e;
            assert(e == left[me] + 1)
        }
    fi;
    MAYBE_DIE;
    look_anew();
    MAYBE_DIE;
    d_step { empty_own_buffer(); word[me] = WORD(e, d) }; /* arrive */

    do /* all_here, nobody_lost */
    :: d_step { next < N && THERE(word[AT(next)]) -> next++ }
#ifdef AT_ONCE
    :: next < N && DIFFERENT(word[AT(next)]) -> goto mismatch
#endif
    :: d_step { next < N && DIFFERENT(word[AT(next)]) -> different = true; next++ }
    :: next < N && ANEW(word[AT(next)]) -> goto give_up
    :: atomic { next < N && ABSENT(word[AT(next)]) && timeouts > 0 -> timeouts-- }; goto give_up
    :: next < N && SOMEBODY_LOST -> lost = true; goto give_up
    :: next == N ->
        pass_on();
        if
        :: passed -> goto decided
        :: else -> /* barred */
            different = false;
#ifdef NO_RESTART
            store_pass(LOOKING)
#else
            look_anew()
#endif
        fi
    OR_DIE
    od;

give_up:
    MAYBE_DIE;
    store_pass(BARRED);
    MAYBE_DIE;
    word[me] = before;
#ifndef NO_BARRIER
    barrier_everywhere();
#endif
    MAYBE_DIE;
    atomic { passed = false; different = false };
    do
    :: r < N -> bar()
    :: r == N -> r = 0; break
    od;
    if
#ifndef IGNORE_PASSED
    :: passed ->
        MAYBE_DIE;
        if :: different -> store_pass(MISMATCHED) :: else -> store_pass(PASSED) fi;
        MAYBE_DIE;
        word[me] = WORD(e, d);
        goto decided
#endif
    :: else
    fi;
    atomic { assert(result[e] == 0); inside[me] = 0; next = 0; different = false; later = false };
    if :: lost -> dead[me] = LEAVES; goto gone :: else -> goto call fi;

decided:
    if
    :: different -> goto mismatch
    :: else -> check_left(); goto call
    fi;

mismatch: /* for ever; our words stay */
    atomic { assert(result[e] == 0 || result[e] == 3); result[e] = 3 };
gone:
    atomic { e = 0; d = 0; next = 0; r = 0; before = 0; passed = false; lost = false; different = false; later = false }
}

init
{
    byte i;
    atomic {
        choose_faults();
        if :: ODD -> odd = true :: odd = false fi;
        for (i : 0 .. N - 1) { run rank(i) }
        i = 0
    }
}

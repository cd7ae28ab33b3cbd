/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meeting of a group that spans two hosts: src/fabric/group/hosts_meet.c and the messages of hosts.c, above
 * base/share/signal.c, whose part on one host barrier.pml shows.  Ranks 0 to SPLIT - 1 are on host 0, the
 * others on host 1.  Each host has a copy of the words of all; those of ranks elsewhere are written there
 * by messages, which the first living rank of that host takes (its other ranks see the same board).
 *
 * A rank that arrives stores its word and sends ARRIVE.  One that gives up takes its word back, bars who
 * looks on its own host, and sends BAR, which does the same on the other host on its behalf and answers
 * whether somebody had gone on there: then the meeting has succeeded, and it arrives once more.  When the
 * rank that takes messages dies, what it has not taken is lost: the others repeat it to the next one.
 *
 * Memory is sequentially consistent here.  One rank may die at any step (DEATHS); deadlines pass up to
 * TIMEOUTS times, at any step of any rank, and the rank tries again.
 *
 * Checked:
 *   a rank leaves epoch e with success only while every other is in its call of e, or has left e, or
 *     died in it: never with the arrival of a call that has returned;
 *   nobody gives up an epoch that somebody who lives has left with success;
 *   who leaves an epoch with success has what all have shown in it;
 *   every wait ends (no state without a next step), also if a rank dies.
 *
 * Variants that must fail:
 *   NO_FAR_BAR     gives up without asking the other host
 *   IGNORE_ANSWER  asks, but does not care
 *   KEEP_COPY      BAR does not take the copy of the word back
 *   BAR_FIRST      BAR bars before it takes the copy back
 *   NO_ORDER       messages overtake each other
 *   NO_REPEAT      what a dead rank had not taken is not said again
 *   NO_COMPLETE    who learns of a success from others does not wait for words that it lacks
 */
#ifndef N
#define N 2
#endif
#ifndef SPLIT
#define SPLIT 1
#endif
#ifndef E
#define E 2
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define HOST(r)  ((r) >= SPLIT)
#define FIRST(h) ((h) * SPLIT)             /* of the ranks of a host */
#define PAST(h)  ((h) -> N : SPLIT)        /* behind its last */
#define COPY(h, r) copy[(h) * N + (r)]
byte copy[2 * N]; /* the epoch at which a rank has arrived, as a host knows it */
#define NOTE(h, r) note[(h) * N + (r)]
byte note[2 * N]; /* the last epoch of which the host has what the rank shows; a BAR leaves it */

#define LOOKING 1
#define BARRED 2
#define PASSED 3
#define PASS(epoch, step) ((epoch) * 4 + (step))
byte pass[N];

mtype = { arrive, bar };
/* From a rank to the other host: of whom, epoch, number of the BAR.  Others of its host tell its word by it. */
chan to[N] = [4] of { mtype, byte, byte, byte };
chan answer[N] = [4] of { byte, bool }; /* to its BAR of that number: has somebody gone on? */
bool again[N];  /* the other host has another rank that takes messages */
bool asks[N];   /* waits for the answer to its BAR ... */
byte serial[N]; /* ... of this number */
bool helps[2];  /* somebody on the other host lacks words of this one */

bool dead[N];
byte deaths, timeouts;

/* What the model knows and the ranks do not. */
byte inside[N], left[N];

#define LIVES_ON(r) (left[r] >= e && !dead[r])
#define LOST_TO_BOTH(r) (dead[r] && COPY(0, r) < e && COPY(1, r) < e)
#if N == 2
#define HOST_GONE(h) (dead[h])
#define ALL(h) (COPY(h, 0) >= e && COPY(h, 1) >= e)
#define LOST(h) (COPY(h, 0) < e && dead[0] || COPY(h, 1) < e && dead[1])
#define LOST_TO_ALL (LOST_TO_BOTH(0) || LOST_TO_BOTH(1))
#define NOTES(h) (NOTE(h, 0) >= e && NOTE(h, 1) >= e)
#define SOMEBODY_LEFT (LIVES_ON(0) || LIVES_ON(1))
#else
#if SPLIT == 1
#define HOST_GONE(h) ((h) -> dead[1] && dead[2] : dead[0])
#else
#define HOST_GONE(h) ((h) -> dead[2] : dead[0] && dead[1])
#endif
#define ALL(h) (COPY(h, 0) >= e && COPY(h, 1) >= e && COPY(h, 2) >= e)
#define LOST(h) \
    (COPY(h, 0) < e && dead[0] || COPY(h, 1) < e && dead[1] || COPY(h, 2) < e && dead[2])
#define LOST_TO_ALL (LOST_TO_BOTH(0) || LOST_TO_BOTH(1) || LOST_TO_BOTH(2))
#define NOTES(h) (NOTE(h, 0) >= e && NOTE(h, 1) >= e && NOTE(h, 2) >= e)
#define SOMEBODY_LEFT (LIVES_ON(0) || LIVES_ON(1) || LIVES_ON(2))
#endif

#define MINE HOST(me)
#define OTHER (1 - HOST(me))

/* How many faults there are is chosen first: where none is left, a wait that only a fault could end
 * is seen as one that never ends. */
inline choose_faults()
{
    select(deaths : 0 .. DEATHS);
    select(timeouts : 0 .. TIMEOUTS)
}

/* The rank is gone: what was on its way to it is lost, if it was the one that takes messages. */
inline go()
{
    dead[me] = true;
    r = 0;
    do
    :: r < N ->
       if
       :: HOST(r) != MINE && (me == FIRST(MINE) || dead[FIRST(MINE)]) ->
           do :: nempty(to[r]) -> to[r]?_, _, _, _ :: empty(to[r]) -> break od;
           again[r] = true
       :: else
       fi;
       r++
    :: else -> break
    od
}

#define OR_DIE :: atomic { deaths > 0 -> deaths-- }; lost = true; goto gone
#define MAYBE_DIE if :: true OR_DIE fi

inline say(from, kind, whose, epoch)
{
    if :: to[from]!kind(whose, epoch, serial[from]) :: HOST_GONE(1 - HOST(from)) fi
}

/* Members here that look at epoch `at` are barred; has one gone on? */
inline bar_here(host, at, but)
{
    d_step {
        k = FIRST(host);
        do
        :: k < PAST(host) ->
           if
           :: k == but
           :: k != but && pass[k] == PASS(at, LOOKING) -> pass[k] = PASS(at, BARRED)
           :: k != but && (pass[k] / 4 > at || pass[k] == PASS(at, PASSED)) -> found = true
           :: else
           fi;
           k++
        :: else -> break
        od;
        k = 0
    }
}

#ifdef NO_ORDER
#define NEXT(kind) to[from]??kind(who, e, number)
#else
#define NEXT(kind) to[from]?kind(who, e, number)
#endif

/* What a host does with the messages of rank `from`, whichever of its ranks takes them; and what the host
 * of that rank repeats. */
proctype driver(byte from)
{
    byte e, who, k, number;
    bool found;
end:
    do
    :: HOST_GONE(1 - HOST(from)) -> break
    :: atomic { NEXT(arrive) ->
            if
            :: COPY(1 - HOST(from), who) < e ->
                COPY(1 - HOST(from), who) = e;
                NOTE(1 - HOST(from), who) = e
            :: else
            fi;
            who = 0; e = 0; number = 0 }
    :: atomic { NEXT(bar) ->
#ifdef BAR_FIRST
            bar_here(1 - HOST(from), e, N)
#elif defined(KEEP_COPY)
            skip
#else
            COPY(1 - HOST(from), who) = e - 1
#endif
        };
        atomic {
#ifdef BAR_FIRST
            COPY(1 - HOST(from), who) = e - 1;
#else
            bar_here(1 - HOST(from), e, N);
#endif
            if :: nfull(answer[who]) -> answer[who]!number, found :: full(answer[who]) fi;
            found = false; who = 0; e = 0; number = 0
        }
#ifndef NO_REPEAT
    :: atomic { again[from] && len(to[from]) < 3 ->
        again[from] = false;
        if
        :: !dead[from] ->
            to[from]!arrive(from, COPY(HOST(from), from), 0);
            if :: asks[from] -> to[from]!bar(from, inside[from], serial[from]) :: else fi
        :: else
        fi }
#endif
    :: atomic { helps[HOST(from)] && from == FIRST(HOST(from)) && len(to[from]) < 3 ->
        helps[HOST(from)] = false;
        k = FIRST(HOST(from));
        do
        :: k < PAST(HOST(from)) -> to[from]!arrive(k, COPY(HOST(from), k), 0); k++
        :: else -> break
        od;
        k = 0 }
    od
}

proctype rank(byte me)
{
    byte e, r, k, number;
    bool found, lost;

call:
    atomic {
        if
        :: left[me] == E -> goto done
        :: else -> e = left[me] + 1; inside[me] = e
        fi;
        MAYBE_DIE
    };
    d_step { pass[me] = PASS(e, LOOKING); COPY(MINE, me) = e; NOTE(MINE, me) = e };
    MAYBE_DIE;
    say(me, arrive, me, e);
    do
    :: ALL(MINE) ->
        d_step {
            found = pass[me] == PASS(e, LOOKING);
            if :: found -> pass[me] = PASS(e, PASSED) :: else -> pass[me] = PASS(e, LOOKING) fi
        };
        if :: found -> goto through :: else fi /* else barred: looks anew */
    :: atomic { !ALL(MINE) && timeouts > 0 -> timeouts-- }; goto give_up
    :: LOST(MINE) -> lost = true; goto give_up
    OR_DIE
    od;

give_up:
    MAYBE_DIE;
    d_step { pass[me] = PASS(e, BARRED); COPY(MINE, me) = e - 1; found = false };
    MAYBE_DIE;
    bar_here(MINE, e, me);
#ifndef NO_FAR_BAR
    if
    :: !found ->
        MAYBE_DIE;
        d_step { serial[me]++; asks[me] = true };
        say(me, bar, me, e);
        do
        :: atomic { answer[me]?number, found ->
            if :: number == serial[me] -> break :: else -> found = false fi }
        :: atomic { HOST_GONE(OTHER) && empty(answer[me]) -> found = false; break }
        OR_DIE
        od;
        atomic { asks[me] = false; number = 0 }
    :: else
    fi;
#endif
#ifdef IGNORE_ANSWER
    found = false;
#endif
    if
    :: found ->
        MAYBE_DIE;
        d_step { pass[me] = PASS(e, PASSED); COPY(MINE, me) = e };
        MAYBE_DIE;
        say(me, arrive, me, e);
        goto through
    :: else
    fi;
    atomic { assert(!SOMEBODY_LEFT); inside[me] = 0; found = false };
    if :: lost -> goto gone :: else -> goto call fi;

through:
#ifndef NO_COMPLETE
    helps[OTHER] = !ALL(MINE);
    if
    :: ALL(MINE)
    :: !ALL(MINE) && (HOST_GONE(OTHER) || LOST_TO_ALL) -> lost = true; goto gone /* the group ends */
    OR_DIE
    fi;
#endif
    atomic {
        helps[OTHER] = false;
        assert(NOTES(MINE));
        for (r : 0 .. N - 1) { assert(left[r] >= e || inside[r] == e); assert(left[r] <= e + 1) }
        left[me] = e; inside[me] = 0; found = false; lost = false; r = 0
    }
    goto call;

gone:
    atomic { go() };
done:
    atomic { e = 0; r = 0; k = 0; number = 0; found = false; lost = false }
}

init
{
    byte i;
    atomic {
        choose_faults();
        for (i : 0 .. N - 1) { run rank(i); run driver(i) }
        i = 0
    }
}

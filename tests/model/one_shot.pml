/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-shot all-reduce of ordinary memory (`fold_shown` in src/coll/host/reduce.c, and src/coll/lane/lane.h): each rank copies its input to its own stage, all meet
 * once, each reads the stages of all.  Two stages by turns, so one meeting per call is enough: a
 * stage is overwritten two calls later, after a meeting at which all had read it.
 *
 * The caller overwrites its input the moment its call returns (input[me] changes to the next value).
 * Values are tagged by the call; a bounce buffer is written in two steps (torn, then whole).  A call whose
 * deadline passes is tried again with the same input.
 *
 * Checked: a rank reads from every other exactly the input of this call, never of the one before or
 * after; every wait ends, also if a rank dies.
 *
 * Variants that must fail:
 *   ONE_STAGE   one stage instead of two
 *   NO_SYNC     no meeting
 *   DIRECT      the inputs themselves are read, with the one meeting (what two_shot.pml mends)
 */
#ifndef N
#define N 2
#endif
#ifndef E
#define E 4
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#include "meet.inc"

#define TORN 255
#ifdef ONE_STAGE
#define TURN 0
#else
#define TURN (e % 2)
#endif
typedef stages { byte at[2] };
stages stage[N];
byte input[N];

proctype rank(byte me)
{
    byte e, r;
    for (e : 1 .. E) {
        input[me] = e; /* the caller writes its next input */
again:
        MAYBE_DIE;
        stage[me].at[TURN] = TORN;
        stage[me].at[TURN] = input[me];
        MAYBE_DIE;
        ARRIVE;
#ifndef NO_SYNC
        AWAIT(again, gone);
#endif
        for (r : 0 .. N - 1) {
#ifdef DIRECT
            assert(input[r] == e)
#else
            assert(stage[r].at[TURN] == e)
#endif
        }
    }
gone:
    atomic { e = 0; r = 0 }
}

init { atomic { byte i; choose_faults(); for (i : 0 .. N - 1) { run rank(i) } } }

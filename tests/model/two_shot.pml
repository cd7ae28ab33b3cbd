/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-shot all-reduce of symmetric memory, without a copy (src/coll/host/reduce.c): all meet (entry), each rank reduces its
 * slice of all inputs and writes the result to that slice of all outputs, all meet again (exit).
 * With IN_PLACE 1 the outputs are the inputs.
 *
 * Slice r of rank q holds the call's number while it is an input and CALLS + number once reduced;
 * the caller rewrites its whole input, and may read its whole output, the moment its call returns.
 * A call whose deadline passes at entry is tried again.  At exit it cannot be undone, since outputs
 * are written: the rank ends the group (weft_i_lane_sync), and everybody's wait ends.
 *
 * Checked: each rank reads exactly the inputs of this call and leaves with all slices of exactly
 * this call, and nobody writes into an output of the next call; every wait ends, also if a rank dies.
 *
 * Variants that must fail: NO_ENTRY, NO_EXIT (that meeting is left out).
 */
#ifndef N
#define N 2
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
#ifndef IN_PLACE
#define IN_PLACE 1
#endif
#include "meet.inc"

#define DONE 100
typedef slices { byte part[N] };
slices input[N], result[N];

#if IN_PLACE
#define OUT(q) input[q]
#else
#define OUT(q) result[q]
#endif

proctype rank(byte me)
{
    byte e, call, q;
    e = 0;
    for (call : 1 .. E) {
        for (q : 0 .. N - 1) { input[me].part[q] = call }
        MAYBE_DIE;
        e++;
entry:  skip;
#ifndef NO_ENTRY
        ARRIVE;
        AWAIT(entry, gone);
#endif
        for (q : 0 .. N - 1) { assert(input[q].part[me] == call) }
        for (q : 0 .. N - 1) {
            MAYBE_DIE;
            atomic {
                assert(!IN_PLACE || input[q].part[me] == call);
                OUT(q).part[me] = DONE + call
            }
        }
        MAYBE_DIE;
        e++;
#ifndef NO_EXIT
        ARRIVE;
        AWAIT(end_group, gone);
#endif
        for (q : 0 .. N - 1) { assert(OUT(me).part[q] == DONE + call) }
    }
    goto gone;
end_group:
    ended = true;
gone:
    atomic { e = 0; call = 0; q = 0 }
}

init { atomic { byte i; choose_faults(); for (i : 0 .. N - 1) { run rank(i) } } }

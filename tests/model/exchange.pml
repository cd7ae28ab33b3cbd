/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchange of notes on a group's board: exchange_on_board of src/fabric/group/exchange.c.  Each rank has
 * two notes, by parity of the epoch; it writes one, meets, and reads those of all.  A rank whose
 * deadline passes tries again, with a new note, at the same epoch.  A note is written in two steps
 * (first as torn, then whole), because it is longer than a word.
 *
 * Checked: what a rank reads in epoch e is what each rank wrote for epoch e in its last try, whole;
 * every wait ends, also if a rank dies.
 *
 * Variants that must fail:
 *   ONE_NOTE        one note instead of two by turns
 *   TURN_PER_TRY    turns counted by attempts instead of epochs
 */
#ifndef N
#define N 2
#endif
#ifndef E
#define E 4
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#include "meet.inc"

#define TORN 255
#define VALUE(epoch, try) ((epoch) * 8 + (try))
#ifdef ONE_NOTE
#define TURN 0
#elif defined(TURN_PER_TRY)
#define TURN ((e + try) % 2)
#else
#define TURN (e % 2)
#endif

typedef notes { byte at[2] };
notes note[N];
byte wrote[N]; /* what the model knows: the value of a rank's last try at its last epoch */
byte before[N]; /* and at the epoch before */

proctype rank(byte me)
{
    byte e, try, r, t;
    for (e : 1 .. E) {
        atomic { before[me] = wrote[me]; try = 0 }
again:
        MAYBE_DIE;
        note[me].at[TURN] = TORN;
        atomic { note[me].at[TURN] = VALUE(e, try); wrote[me] = VALUE(e, try) };
        MAYBE_DIE;
        ARRIVE;
        AWAIT(next_try, gone);
        for (r : 0 .. N - 1) {
            atomic {
#ifdef TURN_PER_TRY
                t = (e + wrote[r] % 8) % 2;
                if :: wrote[r] / 8 != e -> t = (e + before[r] % 8) % 2 :: else fi;
#else
                t = TURN;
#endif
                assert(note[r].at[t] == wrote[r] || note[r].at[t] == before[r]);
                assert(note[r].at[t] / 8 == e)
            }
        }
    }
    goto gone;
next_try:
    try++;
    goto again;
gone:
    atomic { e = 0; try = 0; r = 0; t = 0 }
}

init { atomic { byte i; choose_faults(); for (i : 0 .. N - 1) { run rank(i) } } }

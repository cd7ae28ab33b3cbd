/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rendezvous: weft_i_registration_new of src/symm/registration.c, with meetings as barrier.pml shows them to
 * be.  A rank may fail in each of its own steps (FAILURES in all), its deadline may pass in each
 * wait, and one rank may die at any step.
 *   1. all show whether they can take part; one that cannot makes it an error for all;
 *   2. rank 0 makes the pads and offers them, or the news that it could not;
 *   3. each fetches the pads and every other rank's block;
 *   4. all show how that went; one failure is everybody's.
 * Offers are withdrawn when a rank leaves.
 *
 * Checked: if one rank succeeds, every rank that returns succeeds; every wait ends, without a deadline
 * unless a rank has returned: one that has failed does not come to later steps, and whoever waits for
 * it there waits until the deadline (GONE).
 *
 * Variants that must fail:
 *   NO_END          step 4 is left out
 *   SILENT_FAILURE  rank 0 does not offer the news that it could not make the pads
 *   EARLY_WITHDRAW  a rank withdraws its block before step 4
 */
#ifndef N
#define N 2
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef FAILURES
#define FAILURES 1
#endif
#include "meet.inc"

mtype = { none, good, bad };
mtype shown[N], outcome[N]; /* in step 1, in step 4 */
mtype pads = none;       /* what rank 0 offers */
mtype block[N];          /* what each offers */
byte failures = FAILURES;
bool returned[N];
mtype result[N];         /* good or bad, once a rank has returned */

#define MAY_FAIL(into) \
    if :: into = good :: atomic { failures > 0 -> failures--; into = bad } fi

/* Somebody who will not come any more: dead, or returned. */
#define GONE(r) (dead[r] || returned[r])

inline fetch(r, what)
{
    if
    :: what == good -> MAY_FAIL(mine)
    :: what == bad -> mine = bad
    :: atomic { what == none && timeouts > 0 -> timeouts--; mine = bad }
    :: what == none && GONE(r) -> mine = bad
    OR_DIE
    fi
}

/* A meeting, in which those who returned are missed until the deadline passes. */
#if N == 2
#define SOMEBODY_GONE (GONE(0) && met[0] < e || GONE(1) && met[1] < e)
#else
#define SOMEBODY_GONE (GONE(0) && met[0] < e || GONE(1) && met[1] < e || GONE(2) && met[2] < e)
#endif
#define MEET                                                                              \
    met[me] = e;                                                                          \
    if                                                                                    \
    :: atomic { ALL(e) -> if :: through < e -> through = e :: else fi }                     \
    :: atomic { through < e && timeouts > 0 -> timeouts--; met[me] = e - 1 }; goto failed  \
    :: atomic { through < e && SOMEBODY_GONE -> met[me] = e - 1 }; goto failed             \
    OR_DIE                                                                                \
    fi

proctype rank(byte me)
{
    byte e, r;
    mtype mine;
    e = 1;
    MAY_FAIL(mine);
    if :: mine == good -> block[me] = good :: else fi;
    shown[me] = mine;
    MAYBE_DIE;
    MEET;
    for (r : 0 .. N - 1) { if :: shown[r] == bad -> goto failed :: else fi }

    if
    :: me == 0 ->
        MAY_FAIL(mine);
        MAYBE_DIE;
#ifdef SILENT_FAILURE
        if :: mine == good -> pads = good :: else fi
#else
        pads = mine
#endif
    :: else -> fetch(0, pads)
    fi;
    for (r : 0 .. N - 1) {
        if
        :: r != me && mine == good -> fetch(r, block[r])
        :: else
        fi
    }
#ifdef EARLY_WITHDRAW
    block[me] = none;
#endif
    e = 2;
#ifndef NO_END
    /* A second array in the code: two notes by turns, exchange.pml. */
    outcome[me] = mine;
    MAYBE_DIE;
    MEET;
    for (r : 0 .. N - 1) { if :: outcome[r] == bad -> mine = bad :: else fi }
#endif
    if :: mine == bad -> goto failed :: else fi;

    d_step {
        result[me] = good;
        r = 0;
        do :: r < N -> assert(result[r] != bad); r++ :: else -> break od;
        if :: me == 0 -> pads = none :: else fi;
        block[me] = none
    }
    goto gone;

failed:
    atomic {
        result[me] = bad;
        returned[me] = true;
        r = 0;
        do :: r < N -> assert(result[r] != good); r++ :: else -> break od;
        if :: me == 0 -> pads = none :: else fi;
        block[me] = none
    }
gone:
    atomic { e = 0; r = 0; mine = 0 }
}

init { atomic { byte i; choose_faults(); for (i : 0 .. N - 1) { shown[i] = none; block[i] = none; run rank(i) } } }

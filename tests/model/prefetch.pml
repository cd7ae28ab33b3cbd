/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Early copies: src/coll/lane/prefetch.c.  A rank that waits for all to enter copies from one that is there;
 * that one may take its arrival back, change its data and come again, as often as TRIES allows,
 * until all have entered.  The spot tells where the data lies and the number of the try; it is
 * written word by word.
 *
 * Checked: a copy that counts is of the data of the try that succeeded.
 *
 * Variants that must fail:
 *   NO_COMPARE      every early copy counts
 *   NO_ATTEMPT      tries have no number: the same place means the same data
 */
#ifndef N
#define N 2
#endif
#ifndef TRIES
#define TRIES 3
#endif

byte memory[2];         /* the giver's data in two places: the try it belongs to */
byte place, attempt;    /* its spot */
bool arrived;           /* its word, with the right digest */
bool waiting;           /* the taker has arrived */
bool third;             /* the last rank has come */
bool passed;            /* all have entered: no arrival is taken back any more */
byte tries;

/* Goes on when all are there, as one step: barrier.pml shows that it is for all or for none. */
inline pass()
{
    atomic { arrived && waiting && third && !passed -> passed = true }
}

proctype giver()
{
    do
    :: tries < TRIES && !passed ->
        tries++;
        memory[0] = tries;           /* the caller's data, in either of two places ... */
        memory[1] = tries;
        if :: place = 0 :: place = 1 fi; /* ... then the spot, word by word ... */
        attempt = tries;
        arrived = true;              /* ... then the arrival */
        if
        :: passed -> break
        :: atomic { !passed && tries < TRIES -> arrived = false } /* its time has passed */
        fi
    :: passed -> break
    :: tries == TRIES && arrived -> (passed); break
    od
}

proctype taker()
{
    byte saw_place, saw_attempt, copy;
    bool took;
    waiting = true;
    if
    :: arrived ->
        saw_place = place;
        saw_attempt = attempt;
        if
        :: arrived ->
            copy = memory[saw_place];
            took = true
        :: else -> skip
        fi
    :: true -> skip
    fi;
    do
    :: pass()
    :: passed -> break
    od;
    if
#ifdef NO_COMPARE
    :: took ->
#else
#ifdef NO_ATTEMPT
    :: took && saw_place == place ->
#else
    :: took && saw_place == place && saw_attempt == attempt ->
#endif
#endif
        assert(copy == tries)
    :: else -> skip
    fi
}

init
{
    atomic { run giver(); run taker() };
    third = true
}

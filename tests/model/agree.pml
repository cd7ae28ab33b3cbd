/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement: src/fabric/group/group_agree.c on one host.  Ranks agree R times.  A rank may die between
 * any two of its steps; others see that sooner or later, each at its own time, and for good.
 *
 * Checked: all that learn the outcome of a round learn the same flags and the same set of lost
 * ranks; nobody's words of a round are overwritten while somebody may still read them; every round
 * ends for all who live.
 *
 * Variants that must fail:
 *   NO_DECISION     everybody takes what it saw itself
 *   DECIDE_FIRST    the words are written after they were made to count
 *   NO_WAIT         a round is decided without those who live and have not come
 */
#ifndef N
#define N 3
#endif
#ifndef R
#define R 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

byte come[N];      /* vote.round */
bool flag[N * 2];  /* vote.flags: one bit, by parity of the round */
bool word[N * 2];  /* vote.decided */
byte gone[N * 2];  /* vote.lost: a bit for each rank */
byte decided;      /* board.agreed: the round ... */
byte by;           /* ... and who decided it */
bool dead[N];
byte deaths;
bool known[R + 1]; /* the outcome of a round, once somebody has learnt it */
bool outcome[R + 1];
byte without[R + 1];

#define AT(rank, round) ((rank) * 2 + (round) % 2)
#define MORTAL if :: atomic { deaths > 0 -> deaths--; dead[me] = true } -> goto end :: skip fi

proctype member(byte me)
{
    byte round = 1, rank, seen, whose;
    bool all, mine;
    do
    :: round > R -> break
    :: else ->
        if :: mine = true :: mine = false fi;
        flag[AT(me, round)] = mine;
        MORTAL;
        come[me] = round;
        MORTAL;
#ifndef NO_WAIT
        /* Waits for each in turn; what was true of one stays true. */
        rank = 0;
        do
        :: rank < N && (decided >= round || come[rank] >= round || dead[rank]) -> rank++
        :: rank >= N -> break
        od;
#endif
        if
        :: decided >= round
        :: else ->
            rank = 0; all = true; seen = 0;
            do
            :: rank < N ->
                atomic {
                    if :: come[rank] >= round -> all = all && flag[AT(rank, round)] :: else fi;
                    if :: dead[rank] -> seen = seen | (1 << rank) :: else fi; /* seen in time ... */
                    rank++
                }
            :: atomic { /* ... or not, if it had come */
                rank < N && come[rank] >= round -> all = all && flag[AT(rank, round)]; rank++
                }
            :: rank >= N -> break
            od;
#ifdef NO_DECISION
            assert(!known[round] || (outcome[round] == all && without[round] == seen));
            known[round] = true; outcome[round] = all; without[round] = seen;
#endif
#ifdef DECIDE_FIRST
            atomic { if :: decided == round - 1 -> decided = round; by = me :: else fi };
            MORTAL;
#endif
            word[AT(me, round)] = all;
            MORTAL;
            gone[AT(me, round)] = seen;
            MORTAL;
            atomic { if :: decided == round - 1 -> decided = round; by = me :: else fi }
        fi;
        MORTAL;
        atomic { assert(decided == round); whose = by };
#ifndef NO_DECISION
        all = word[AT(whose, round)];
        seen = gone[AT(whose, round)];
        atomic {
            assert(!known[round] || (outcome[round] == all && without[round] == seen));
            known[round] = true; outcome[round] = all; without[round] = seen
        };
#endif
        MORTAL;
        round++
    od;
end:
    skip
}

init {
    byte i;
    atomic {
        select(deaths : 0 .. DEATHS);
        for (i : 0 .. N - 1) { run member(i) }
    }
}

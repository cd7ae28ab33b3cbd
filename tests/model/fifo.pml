/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flows: src/coll/lane/fifo.c.  Rank 0 writes K chunks in each of E operations through a bounce buffer with room
 * for R of them, all others read; with ALL every rank writes its own, AHEAD chunks before those that it
 * reads of all others, as in an all_gather.  Operations begin with an entry of all and end with a sync of all,
 * both taken as one step here (barrier.pml has them in full); what other operations show before
 * their entry goes over the same stage.  One rank may die at any step.
 *
 * Checked: a reader sees each chunk whole from the beginning of its copy to the end; every wait
 * ends, also if a rank dies.
 *
 * Variants that must fail:
 *   EARLY_COUNT     the writer counts a chunk before it is there
 *   NO_ROOM         the writer does not wait until the chunk it overwrites was taken
 *   NO_ENTRY_NUMBER counts start anew in each operation, without the number of its entry
 *   NO_SYNC         nobody waits for the others at the end
 *   ALL AHEAD=2     where R is 2: all wait for the room that they would free next
 *
 * The atomic operations it stands for (scripts/check-atomics compares them with the code):
 *   @ src/coll/lane/fifo.c has_come_to load acquire -> weft_i_fifo_put
 *   @ src/coll/lane/fifo.c weft_i_fifo_put store release -> has_come_to
 *   @ src/coll/lane/fifo.c weft_i_fifo_drain store release -> has_come_to
 */
#ifndef N
#define N 2
#endif
#ifndef E
#define E 2
#endif
#ifndef K
#define K 3
#endif
#ifndef R
#define R 2
#endif
#ifndef AHEAD
#define AHEAD 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define TORN 255
#define CHUNK(e, k) ((e) * K + (k) + 1)
#ifdef NO_ENTRY_NUMBER
#define COUNT(e, k) (k)
#else
#define COUNT(e, k) ((e) * (K + 1) + (k))
#endif

#ifdef ALL
#define WRITES(r) true
#else
#define WRITES(r) ((r) == 0)
#endif
#define PLACE(r, k) stage[(r) * R + (k) % R]

byte stage[N * R]; /* of each writer: which chunk lies there; TORN while it is written */
byte flowed[N];    /* counts of the writers */
byte taken[N];     /* counts of the readers */
byte met[N];    /* entries and syncs that a rank has come to */
bool dead[N], gone[N];
byte deaths;

#define LOST(r) (dead[r] || gone[r])
#define MAYBE_DIE if :: true :: atomic { deaths > 0 -> deaths--; dead[me] = true }; goto end fi

/* Entry or sync: all come, or one is lost. */
inline meet()
{
    met[me]++;
    other = 0;
    do
    :: other == N -> break
    :: other < N && met[other] >= met[me] -> other++
    :: other < N && met[other] < met[me] && LOST(other) -> goto end
    od
}

inline write_chunk(c)
{
    if
    :: c < R -> skip
    :: else ->
        other = 0;
        do
        :: other == N -> break
        :: other == me -> other++
#ifdef NO_ROOM
        :: other < N && other != me -> other++
#else
        :: other < N && other != me && taken[other] >= COUNT(e, c - R + 1) -> other++
        :: other < N && other != me && taken[other] < COUNT(e, c - R + 1) && LOST(other) -> goto end
#endif
        od
    fi;
#ifdef EARLY_COUNT
    flowed[me] = COUNT(e, c + 1);
#endif
    PLACE(me, c) = TORN;
    MAYBE_DIE;
    PLACE(me, c) = CHUNK(e, c);
#ifndef EARLY_COUNT
    flowed[me] = COUNT(e, c + 1);
#endif
    MAYBE_DIE
}

inline read_chunk(from)
{
    if
    :: flowed[from] >= COUNT(e, k + 1)
    :: flowed[from] < COUNT(e, k + 1) && LOST(from) -> goto end
    fi;
    assert(PLACE(from, k) == CHUNK(e, k)); /* the copy begins ... */
    MAYBE_DIE;
    assert(PLACE(from, k) == CHUNK(e, k)) /* ... and ends */
}

/* One step of a rank that writes and reads. */
inline exchange()
{
    do
    :: ahead < K && ahead <= k + AHEAD -> write_chunk(ahead); ahead++
    :: else -> break
    od;
    writer = 0;
    do
    :: writer == N -> break
    :: writer == me -> writer++
    :: writer < N && writer != me -> read_chunk(writer); writer++
    od;
    taken[me] = COUNT(e, k + 1)
}

proctype rank(byte me)
{
    byte e, k, other;
#ifdef ALL
    byte ahead, writer;
#endif
    do
    :: e == E -> break
    :: e < E ->
        if :: WRITES(me) -> PLACE(me, 0) = TORN :: else fi; /* shown for this entry */
        meet();
#ifdef NO_ENTRY_NUMBER
        flowed[me] = 0;
        taken[me] = 0;
#endif
        k = 0;
#ifdef ALL
        ahead = 0;
#endif
        do
        :: k == K -> break
        :: k < K ->
#ifdef ALL
            exchange();
#else
            if
            :: me == 0 -> write_chunk(k)
            :: me != 0 -> read_chunk(0); taken[me] = COUNT(e, k + 1)
            fi;
#endif
            k++
        od;
#ifndef NO_SYNC
        meet();
#endif
        e++
    od;
end:
    gone[me] = true
}

init
{
    byte i;
    atomic {
        select(deaths : 0 .. DEATHS);
        for (i : 0 .. N - 1) { run rank(i) }
    }
}

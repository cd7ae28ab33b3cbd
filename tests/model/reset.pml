/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Barriers of kernels on devices, which may give up, and the reset that makes the pads usable again
 * (src/backends/cuda/kernels/meet.h, weft_symm_reset).
 *
 * A kernel arrives in everybody's pad and waits for arrivals in its own.  One that gives up poisons
 * all pads, one after the other; a kernel that finds poison ends.  Then every rank waits for its own
 * kernels, meets the others on the host, clears its own pad, and meets them once more.  After that
 * a barrier must succeed on all ranks, and nobody may pass it before all have come.
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

byte arrival[N * N]; /* [receiver * N + source]: the epoch */
byte epoch[N];       /* counted by the rank itself */
bit poison[N];
byte timeouts = TIMEOUTS;
byte first_meeting, second_meeting; /* on the host: how many have come */
bit came[N];                        /* what the model knows: to the barrier after the reset */

inline kernel(may_fail)
{
    failed = 0;
    r = 0;
    if
    :: poison[me] -> failed = 1
    :: else ->
        do
        :: r < N -> arrival[r * N + me] = epoch[me] + 1; r++
        :: else -> break
        od;
        r = 0;
        do
        :: r < N && arrival[me * N + r] > epoch[me] -> r++
        :: r < N && arrival[me * N + r] <= epoch[me] && poison[me] -> failed = 1; break
        :: atomic { may_fail && r < N && arrival[me * N + r] <= epoch[me] && timeouts > 0 -> timeouts-- };
            failed = 1;
            r = 0;
            do
            :: r < N -> poison[r] = 1; r++
            :: else -> break
            od;
            break
        :: r == N -> epoch[me]++; break
        od
    fi
}

proctype rank(byte me)
{
    byte r, e;
    bit failed;
    for (e : 1 .. E) {
        kernel(1);
        if
        :: failed -> break
        :: else -> skip
        fi
    }
    skip;
#ifndef NO_FIRST_MEETING
    first_meeting++;
    first_meeting == N;
#endif
    d_step { r = 0; do :: r < N -> arrival[me * N + r] = 0; r++ :: else -> break od }
#ifndef KEEP_EPOCH
    epoch[me] = 0;
#endif
#ifndef KEEP_POISON
    poison[me] = 0;
#endif
#ifndef NO_SECOND_MEETING
    second_meeting++;
    second_meeting == N;
#endif
    came[me] = 1;
    kernel(0);
    assert(!failed);
    d_step { r = 0; do :: r < N -> assert(came[r]); r++ :: else -> break od }
}

init
{
    atomic { byte i; for (i : 0 .. N - 1) { run rank(i) } }
}

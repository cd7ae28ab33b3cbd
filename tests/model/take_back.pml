/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simpler meeting protocol that weft does not use, and why: barrier.pml without pass words.  A
 * rank whose deadline passes restores its old word, makes every core pass a full barrier (here: nothing, spin
 * is sequentially consistent), looks again, and arrives again if all the others are there.  All
 * ranks read all words twice before they go on.
 *
 * It fails: two ranks that give up at once see each other missing although a third has gone on, or
 * one goes on with the arrival that the other is about to take back.  Ranks that may give up at any
 * time cannot agree by loads and stores alone.
 */
#ifndef N
#define N 2
#endif
#define E 2

byte word[N];   /* the epoch a rank has arrived at */
byte passed[N]; /* what the model knows: the last epoch a rank has left with success */
byte timeouts = 2;

proctype rank(byte me)
{
    byte e, next, r;
    for (e : 1 .. E) {
again:  word[me] = e;
        next = 0;
        do
        :: next < 2 * N && word[next % N] >= e -> next++
        :: next < 2 * N && word[next % N] < e && next >= N -> next = next - N
        :: atomic { next < 2 * N && word[next % N] < e && timeouts > 0 -> timeouts-- }; goto take_back
        :: next == 2 * N -> break
        od;
        goto success;

take_back:
        word[me] = e - 1;
        r = 0;
        do
        :: r < N && (r == me || word[r] >= e) -> r++
        :: r < N && r != me && word[r] < e -> goto timeout_
        :: r == N -> break
        od;
        word[me] = e;
success:
        passed[me] = e;
        goto done;
timeout_: skip;
        d_step { r = 0; do :: r < N -> assert(passed[r] < e); r++ :: else -> break od }
        goto again;
done:   skip
    }
}

init
{
    atomic { byte i; for (i : 0 .. N - 1) { run rank(i) } }
}

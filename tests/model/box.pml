/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A box: the sheets and offers of src/coll/lane/p2p_ring.h.  One rank sends M messages through a ring of S
 * sheets, the other takes them; every fourth message is an offer, of which the receiver copies two
 * parts.  The sender may give an offer up at any time and then changes its memory; between processes
 * (FORCE) also while a part is being copied.
 *
 * Checked: messages are taken in order, each whole and as it was sent; no sheet is written before
 * it was taken; a message that was withdrawn is never counted as received; between threads nobody
 * reads memory that was withdrawn; both ranks end.
 *
 * Variants that must fail:
 *   NO_TAKEN     the sender does not look at what was taken
 *   EARLY_SHOW   a sheet is shown before it is filled
 *   EARLY_TAKE   a sheet is counted as taken before it is read
 *   STORE_DONE   the receiver stores DONE without looking whether the offer still stands
 *   NO_CLAIM     the receiver reads offered memory without changing its state
 *
 * The atomic operations it stands for (scripts/check-atomics compares them with the code):
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_taken load acquire -> weft_i_ring_take
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_show store release -> weft_i_ring_look
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_rts store relaxed -> -
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_is_done load acquire -> weft_i_ring_give_back
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_withdraw compare_exchange_strong acquire,acquire -> weft_i_ring_give_back
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_withdraw compare_exchange_strong acquire,acquire -> weft_i_ring_give_back
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_look load acquire -> weft_i_ring_show
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_take store release -> weft_i_ring_taken
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_claim compare_exchange_strong relaxed,relaxed -> -
 *   @ src/coll/lane/p2p_ring.h weft_i_ring_give_back compare_exchange_strong release,relaxed -> weft_i_ring_is_done
 */
#ifndef M
#define M 5
#endif
#define S 2 /* sheets */

mtype = { NONE, OFFERED, TAKING, DONE, WITHDRAWN };

byte number[S]; /* of the sheet that lies there; 0: none yet */
byte text[S];
byte taken;
mtype offer = NONE;
byte memory;    /* of the sender; 0: changed since it was offered */
byte received;  /* messages */
bool gone;      /* the sender has given up: the group is lost */

#define OFFER(m) ((m) % 4 == 0)

proctype sender()
{
    byte m = 1;
    do
    :: m <= M && !gone ->
#ifndef NO_TAKEN
        (m - 1 - taken < S);
#endif
#ifdef EARLY_SHOW
        number[m % S] = m;
        text[m % S] = m;
#else
        text[m % S] = m;
        if
        :: OFFER(m) -> memory = m; offer = OFFERED
        :: else
        fi;
        number[m % S] = m;
#endif
        if
        :: OFFER(m) ->
            if
            :: offer == DONE -> memory = 0; offer = NONE
            :: d_step { offer == OFFERED -> offer = WITHDRAWN }; gone = true; memory = 0
#ifdef FORCE
            :: d_step { offer == TAKING -> offer = WITHDRAWN }; gone = true; memory = 0
#endif
            fi
        :: else
        fi;
        m++
    :: m > M || gone -> break
    od
}

/* Copies half of the offered memory; `whole` stays true if it was as it was sent. */
inline copy_part(last)
{
#ifdef NO_CLAIM
    if
    :: offer == OFFERED
    :: offer == WITHDRAWN -> lost = true
    fi;
#else
    if
    :: d_step { offer == OFFERED -> offer = TAKING }
    :: offer == WITHDRAWN -> lost = true
    fi;
#endif
    if
    :: lost
    :: else ->
        whole = whole && memory == n;
#ifndef FORCE
        assert(memory == n); /* read after it was withdrawn */
#endif
#ifdef STORE_DONE
        offer = (last -> DONE : OFFERED)
#else
        if
#ifdef NO_CLAIM
        :: d_step { offer == OFFERED -> offer = (last -> DONE : OFFERED) }
#else
        :: d_step { offer == TAKING -> offer = (last -> DONE : OFFERED) }
#endif
        :: offer == WITHDRAWN -> lost = true
        fi
#endif
    fi
}

proctype receiver()
{
    byte n = 1;
    bool whole, lost;
    do
    :: n <= M && !lost ->
        if
        :: number[n % S] == n
        :: gone && number[n % S] != n -> break
        fi;
#ifdef EARLY_TAKE
        taken = n;
#endif
        assert(text[n % S] == n);
        taken = n;
        if
        :: OFFER(n) ->
            whole = true;
            copy_part(false);
            if :: !lost -> copy_part(true) :: else fi;
            if :: !lost -> assert(whole); received = n :: else fi
        :: else -> received = n
        fi;
        n++
    :: n > M || lost -> break
    od
}

init
{
    atomic { run sender(); run receiver() };
    (_nr_pr == 1);
    assert(gone || received == M)
}

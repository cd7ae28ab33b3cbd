/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping and ringing: sleep_until_rung, set_bell, weft_i_wait_ring_by and weft_i_wait_wake of src/base/share/wait.h and
 * wait.c.  A sleeper sets its bell to whom it waits for first, passes a full fence, looks again, sets
 * it anew if that is somebody else by now, and sleeps in the kernel unless the bell was cleared; a
 * ringer stores its value, passes a full fence, looks whether the bell names it, clears it and wakes.
 * The sleeper waits for RINGERS values, one from each ringer.  (weft_i_wait_ring, which rings
 * whomever the bell names, rings whenever this does.)
 *
 * Memory is that of x86: every rank has a store buffer, one store deep, that is written back at any
 * time, and before a fence, a system call, or its next store.  (Arm may also delay loads; there the
 * same fences forbid the same outcomes: it is the store-buffering shape.)  The kernel compares the
 * bell and goes to sleep in one step.  A slice of sleep that ends is a wake-up for nothing.
 *
 * Checked: nobody sleeps for ever, and with SLICES 0 nobody even needs the end of a slice; with
 * slices, a ringer may die between clearing the bell and waking.
 *
 * Variants that must fail: NO_RINGER_FENCE, NO_SLEEPER_FENCE, and with two ringers SET_ONCE, a bell
 * that is not set anew (all with SLICES 0).
 *
 * The atomic operations it stands for (scripts/check-atomics compares them with the code):
 *   @ src/base/share/signal.c fence_for_bells thread_fence seq_cst -> set_bell
 *   @ src/base/share/wait.c set_bell store relaxed -> -
 *   @ src/base/share/wait.c set_bell thread_fence seq_cst -> fence_for_bells
 *   @ src/base/share/wait.c sleep_until_rung store relaxed -> -
 *   @ src/base/share/wait.h weft_i_wait_ring load relaxed -> -
 *   @ src/base/share/wait.h weft_i_wait_ring_by load relaxed -> -
 *   @ src/base/share/wait.c weft_i_wait_wake store relaxed -> -
 */
#ifndef N
#define N 3
#endif
#define RINGERS (N - 1)
#ifndef SLICES
#define SLICES 0
#endif

/* Memory, and one pending store of each: the sleeper's to its bell, a ringer's to its value or to
 * the bell. */
byte bell; /* 0, or 1 + the ringer that is waited for first */
bit value[RINGERS];
bool asleep;

bool s_pending; byte s_store;                /* the sleeper's store to the bell */
bool v_pending[RINGERS], b_pending[RINGERS]; /* a ringer's store of 1 to its value, of 0 to the bell */
byte living = RINGERS;

active proctype write_back() /* of any store buffer, at any time */
{
    byte i;
end:
    do
    :: d_step { s_pending -> bell = s_store; s_pending = false }
    :: d_step { v_pending[0] -> value[0] = 1; v_pending[0] = false }
    :: d_step { b_pending[0] -> bell = 0; b_pending[0] = false }
#if RINGERS > 1
    :: d_step { v_pending[1] -> value[1] = 1; v_pending[1] = false }
    :: d_step { b_pending[1] -> bell = 0; b_pending[1] = false }
#endif
    od
}

#if RINGERS > 1
#define READY (value[0] && value[1])
#define FIRST (value[0] -> 2 : 1)
#else
#define READY (value[0])
#define FIRST 1
#endif

active proctype sleeper()
{
    byte awaited;
    do
    :: READY -> break
    :: else ->
again:
        !s_pending;
        awaited = FIRST;
        s_store = awaited; s_pending = true; /* the bell is set, soon */
#ifndef NO_SLEEPER_FENCE
        !s_pending;
#endif
        if
        :: READY
#ifndef SET_ONCE
        :: !READY && FIRST != awaited -> goto again
        :: !READY && FIRST == awaited ->
#else
        :: else ->
#endif
            /* futex_wait: a system call does not wait for the store buffer by itself, but reads the
             * bell behind the same core's own store. */
            if
            :: d_step { (s_pending && s_store == awaited) || (!s_pending && bell == awaited) -> asleep = true }
            :: !s_pending && bell != awaited
            fi;
            if
            :: !asleep
#if SLICES
            :: asleep = false
#endif
            fi
        fi;
        !s_pending;
        s_store = 0; s_pending = true
    od
}

proctype ringer(byte me)
{
    v_pending[me] = true;
#ifndef NO_RINGER_FENCE
    !v_pending[me];
#endif
    if
    :: bell == 1 + me ->
        b_pending[me] = true;
        if
        :: !b_pending[me]; asleep = false /* futex_wake passes a full fence first */
#if SLICES
        :: living > 1 -> living-- /* dies here */
#endif
        fi
    :: else
    fi
}

init { atomic { byte i; for (i : 0 .. RINGERS - 1) { run ringer(i) } } }

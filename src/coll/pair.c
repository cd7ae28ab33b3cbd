/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point to point: a send or receive under way is a letter.  Letters move piece by piece whenever
 * somebody of this rank pushes them on, all of them, in order per peer and direction: whoever waits
 * for one, and the helper thread of the group's queue as long as posted ones are under way.  So no
 * rank has to wait for its sends before it does something else, and a letter whose handle was
 * dropped arrives all the same.
 */
#include "coll/pair.h"

#include "base/os.h"
#include "base/status.h"

#include <stdio.h>

static bool comes_before(const weft_i_letter *earlier, const weft_i_letter *later)
{
    return earlier->coll->kind == later->coll->kind && earlier->coll->root == later->coll->root;
}

static void ring(const weft_i_lane *lane, int rank)
{
    if (lane->mode != WEFT_I_WAIT_SPIN)
        atomic_thread_fence(
            memory_order_seq_cst); /* pairs with the fence of a sleeper in base/wait.c */
    weft_i_wait_ring(&weft_i_lane_head_of(lane, rank)->letter_bell);
}

/*
 * Ends a letter: takes it out of the list, under the lock.  The list's reference to its owner goes
 * before others can see that it is over, so that who waited for it may take down the group at once;
 * unless it is the last one, which is dropped where that can do no harm.  The owner's destruction
 * waits for the lock (work.c), and nothing may touch a letter without owner after this.
 */
static void end(weft_i_lane *lane, weft_i_letter *letter, weft_status status)
{
    weft_i_letter **at = &lane->letters;
    while (*at != letter)
        at = &(*at)->next;
    *at = letter->next;
    if (status < 0 && letter->begun) /* the pair's bytes are out of step */
        weft_i_group_spoil(letter->coll->group,
                           weft_status_scope(status) < WEFT_SCOPE_GROUP ? WEFT_OK : status);
    if (letter->owner && !weft_i_object_drop_shared(letter->owner)) {
        letter->next = lane->orphans;
        lane->orphans = letter;
    }
    /* Pairs with the acquire in weft_i_letter_status. */
    atomic_store_explicit(&letter->status, status, memory_order_release);
    ring(lane, lane->me); /* another thread of ours may sleep for it */
}

/* Moves pieces of a send; WEFT_IN_PROGRESS or WEFT_OK. */
static weft_status push_send(weft_i_letter *letter, bool *moved)
{
    weft_i_coll *coll = letter->coll;
    weft_i_box *box = weft_i_lane_box(coll->lane, coll->lane->me, coll->root);
    uint64_t sent = atomic_load_explicit(&box->sent, memory_order_relaxed); /* our own */
    /* Pairs with push_receive. */
    while (sent - atomic_load_explicit(&box->taken, memory_order_acquire) < 2) {
        size_t bytes = weft_i_coll_min(coll->in_bytes - letter->done, WEFT_I_PIECE);
        box->head[sent & 1].bytes = coll->in_bytes;
        box->head[sent & 1].digest = coll->digest;
        weft_i_coll_put(box->data[sent & 1], coll->in + letter->done, bytes);
        atomic_store_explicit(&box->sent, ++sent,
                              memory_order_release); /* pairs with push_receive */
        letter->done += bytes;
        letter->begun = *moved = true;
        if (letter->done == coll->in_bytes)
            return WEFT_OK;
    }
    return WEFT_IN_PROGRESS;
}

static weft_status refuse(weft_i_letter *letter, size_t bytes)
{
    const weft_i_coll *coll = letter->coll;
    snprintf(letter->message, sizeof letter->message,
             "recv in group \"%s\": rank %d sends %zu bytes, rank %d expects %zu bytes of %s%s",
             coll->group->name, coll->root, bytes, coll->lane->me, coll->out_bytes,
             weft_dtype_name(coll->dtype), bytes == coll->out_bytes ? "; the dtypes differ" : "");
    letter->begun = true; /* the message stays where it is: nothing can follow it */
    /* Pairs with the acquire in `fail_lost`. */
    atomic_store_explicit(&weft_i_lane_box(coll->lane, coll->root, coll->lane->me)->refused,
                          coll->out_bytes + 1, memory_order_release);
    return WEFT_ERR_MISMATCH;
}

/* Moves pieces of a receive; WEFT_IN_PROGRESS, or how it ended. */
static weft_status push_receive(weft_i_letter *letter, bool *moved)
{
    weft_i_coll *coll = letter->coll;
    weft_i_box *box = weft_i_lane_box(coll->lane, coll->root, coll->lane->me);
    uint64_t taken = atomic_load_explicit(&box->taken, memory_order_relaxed); /* our own */
    /* Pairs with push_send. */
    while (atomic_load_explicit(&box->sent, memory_order_acquire) > taken) {
        if (box->head[taken & 1].bytes != coll->out_bytes ||
            box->head[taken & 1].digest != coll->digest)
            return refuse(letter, box->head[taken & 1].bytes);
        size_t bytes = weft_i_coll_min(coll->out_bytes - letter->done, WEFT_I_PIECE);
        weft_i_coll_put(coll->out + letter->done, box->data[taken & 1], bytes);
        atomic_store_explicit(&box->taken, ++taken,
                              memory_order_release); /* pairs with push_send */
        letter->done += bytes;
        letter->begun = *moved = true;
        if (letter->done == coll->out_bytes)
            return WEFT_OK;
    }
    return WEFT_IN_PROGRESS;
}

/* Is it the oldest one of its peer and direction? */
static bool is_next(const weft_i_lane *lane, const weft_i_letter *letter)
{
    for (const weft_i_letter *other = lane->letters; other != letter; other = other->next)
        if (comes_before(other, letter))
            return false;
    return true;
}

/* Pushes one letter, under the lock. */
static void push_one(weft_i_lane *lane, weft_i_letter *letter)
{
    bool moved = false;
    int peer = letter->coll->root;
    weft_status status = letter->coll->kind == WEFT_I_SEND ? push_send(letter, &moved)
                                                           : push_receive(letter, &moved);
    if (status != WEFT_IN_PROGRESS)
        end(lane, letter, status);
    if (moved)
        ring(lane, peer);
}

bool weft_i_pair_push(weft_i_lane *lane)
{
    pthread_mutex_lock(&lane->letters_lock);
    for (weft_i_letter *letter = lane->letters, *next; letter; letter = next) {
        next = letter->next;
        if (is_next(lane, letter))
            push_one(lane, letter);
    }
    bool left = lane->letters != NULL;
    pthread_mutex_unlock(&lane->letters_lock);
    return left;
}

void weft_i_pair_sweep(weft_i_lane *lane)
{
    pthread_mutex_lock(&lane->letters_lock);
    weft_i_letter *orphans = lane->orphans;
    lane->orphans = NULL;
    pthread_mutex_unlock(&lane->letters_lock);
    for (weft_i_letter *next; orphans; orphans = next) {
        next = orphans->next;
        weft_i_object_drop(orphans->owner);
    }
}

void weft_i_pair_post(weft_i_letter *letter)
{
    weft_i_lane *lane = letter->coll->lane;
    weft_i_object_hold(letter->owner);
    letter->next = NULL;
    atomic_init(&letter->status, WEFT_IN_PROGRESS);
    pthread_mutex_lock(&lane->letters_lock);
    weft_i_letter **at = &lane->letters;
    while (*at)
        at = &(*at)->next;
    *at = letter;
    pthread_mutex_unlock(&lane->letters_lock);
    weft_i_pair_push(lane);
    weft_i_pair_sweep(lane);
}

bool weft_i_pair_is_left_alone(weft_i_lane *lane)
{
    pthread_mutex_lock(&lane->letters_lock);
    bool alone = lane->letters && !lane->letter_waiters;
    pthread_mutex_unlock(&lane->letters_lock);
    return alone;
}

static void fail(weft_i_lane *lane, weft_i_letter *letter)
{
    snprintf(letter->message, sizeof letter->message, "%s", weft_last_error());
    end(lane, letter, weft_last_status());
}

void weft_i_pair_fail(weft_i_letter *letter)
{
    weft_i_lane *lane = letter->coll->lane;
    pthread_mutex_lock(&lane->letters_lock);
    if (weft_i_letter_status(letter) == WEFT_IN_PROGRESS)
        fail(lane, letter);
    pthread_mutex_unlock(&lane->letters_lock);
}

weft_status weft_i_pair_outcome(const weft_i_letter *letter)
{
    weft_status status = weft_i_letter_status(letter);
    return status < 0 ? weft_i_fail(status, "%s", letter->message) : status;
}

static weft_status fail_timeout(const weft_i_letter *letter, int64_t timeout_ms)
{
    const weft_i_coll *coll = letter->coll;
    char who[640];
    weft_i_world_describe(coll->group->world, coll->group->members[coll->root], who, sizeof who);
    return weft_i_fail(WEFT_ERR_TIMEOUT,
                       "rank %d of %d in group \"%s\", %s of %zu bytes: waited %lld ms for %s",
                       coll->group->rank, coll->group->size, coll->group->name, coll->call.op,
                       coll->in_bytes + coll->out_bytes, (long long)timeout_ms, who);
}

/* Must this posted letter end now?  Under the lock; the error is the thread's last. */
static bool is_hopeless(weft_i_letter *letter)
{
    const weft_i_coll *coll = letter->coll;
    if (weft_i_group_fate(coll->group, coll->root) < 0 &&
        weft_i_group_lost(&coll->call, coll->root) < 0)
        return true;
    /* Relaxed: ours is the last reference, so nobody can take another one. */
    if (atomic_load_explicit(&letter->owner->references, memory_order_relaxed) > 1)
        return false;
    if (!letter->deadline)
        letter->deadline = weft_i_os_deadline(coll->limit_ms);
    return WEFT_OS->clock_ns() >= letter->deadline && fail_timeout(letter, coll->limit_ms) < 0;
}

void weft_i_pair_sort_out(weft_i_lane *lane)
{
    pthread_mutex_lock(&lane->letters_lock);
    for (weft_i_letter *letter = lane->letters, *next; letter; letter = next) {
        next = letter->next;
        if (!letter->owner || !is_hopeless(letter))
            continue;
        if (is_next(lane, letter)) /* the peer may have sent it before it left: look again */
            push_one(lane, letter);
        if (weft_i_letter_status(letter) == WEFT_IN_PROGRESS)
            fail(lane, letter);
    }
    pthread_mutex_unlock(&lane->letters_lock);
}

static bool is_over(void *arg)
{
    weft_i_letter *letter = arg;
    if (weft_i_letter_status(letter) != WEFT_IN_PROGRESS)
        return true;
    weft_i_pair_push(letter->coll->lane);
    return weft_i_letter_status(letter) != WEFT_IN_PROGRESS;
}

/* Without a message: the letter may have come just before. */
static weft_status peer_fate(void *arg)
{
    const weft_i_coll *coll = ((const weft_i_letter *)arg)->coll;
    return weft_i_group_fate(coll->group, coll->root);
}

static weft_status fail_lost(const weft_i_letter *letter)
{
    const weft_i_coll *coll = letter->coll;
    weft_status status = weft_i_group_lost(&coll->call, coll->root);
    /* Pairs with the release in `refuse`. */
    uint64_t refused = status == WEFT_ERR_MISMATCH && coll->kind == WEFT_I_SEND
                           ? atomic_load_explicit(
                                 &weft_i_lane_box(coll->lane, coll->lane->me, coll->root)->refused,
                                 memory_order_acquire)
                           : 0;
    if (!refused)
        return status;
    return weft_i_fail(status,
                       "send in group \"%s\": rank %d sends %zu bytes of %s, rank %d expects %llu "
                       "bytes, or another dtype",
                       coll->group->name, coll->lane->me, coll->in_bytes,
                       weft_dtype_name(coll->dtype), coll->root, (unsigned long long)refused - 1);
}

/* While somebody waits, and so pushes, the helper need not. */
static void count_waiter(weft_i_lane *lane, int change)
{
    pthread_mutex_lock(&lane->letters_lock);
    lane->letter_waiters += change;
    pthread_mutex_unlock(&lane->letters_lock);
}

weft_status weft_i_pair_wait(weft_i_letter *letter, int64_t timeout_ms)
{
    weft_i_lane *lane = letter->coll->lane;
    weft_i_wait wait = {.ready = is_over,
                        .lost = peer_fate,
                        .arg = letter,
                        .bell = &weft_i_lane_head_of(lane, lane->me)->letter_bell,
                        .deadline = weft_i_os_deadline(timeout_ms),
                        .mode = lane->mode};
    count_waiter(lane, 1);
    weft_status status = weft_i_wait_for(&wait);
    count_waiter(lane, -1);
    weft_i_pair_sweep(lane);
    if (status == WEFT_ERR_TIMEOUT)
        return fail_timeout(letter, timeout_ms);
    if (status < 0 && fail_lost(letter) < 0)
        weft_i_pair_fail(letter);
    return WEFT_OK;
}

/* Sends or receives and waits for it. */
static weft_status carry(weft_i_coll *coll)
{
    WEFT_TRY(weft_i_group_check_revoked(&coll->call));
    weft_i_letter letter = {.coll = coll};
    weft_i_pair_post(&letter);
    if (weft_i_letter_status(&letter) == WEFT_IN_PROGRESS &&
        weft_i_pair_wait(&letter, coll->limit_ms) < 0)
        weft_i_pair_fail(&letter);
    return weft_i_pair_outcome(&letter);
}

weft_status weft_i_coll_send(weft_i_coll *coll)
{
    return carry(coll);
}

weft_status weft_i_coll_recv(weft_i_coll *coll)
{
    return carry(coll);
}

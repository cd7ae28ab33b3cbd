/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point to point: a send or receive under way is a letter.  Letters move piece by piece whenever
 * somebody of this rank pushes them on, all of them, in order per peer and direction; so two ranks
 * that first send and then receive do not wait for each other as long as both wait for something.
 */
#include "coll/pair.h"

#include "base/os.h"
#include "base/status.h"

static bool comes_before(const weft_i_letter *earlier, const weft_i_letter *later)
{
    return earlier->coll->kind == later->coll->kind && earlier->coll->root == later->coll->root;
}

static void ring(const weft_i_lane *lane, int rank)
{
    if (lane->mode != WEFT_I_WAIT_SPIN)
        atomic_thread_fence(
            memory_order_seq_cst); /* pairs with the fence of a sleeper in base/wait.c */
    weft_i_wait_ring(&weft_i_lane_head_of(lane, rank)->bell);
}

static void push_send(weft_i_letter *letter)
{
    weft_i_coll *coll = letter->coll;
    weft_i_box *box = weft_i_lane_box(coll->lane, coll->lane->me, coll->root);
    uint64_t sent = atomic_load_explicit(&box->sent, memory_order_relaxed); /* our own */
    while (letter->status == WEFT_IN_PROGRESS &&
           sent - atomic_load_explicit(&box->taken, memory_order_acquire) <
               2) { /* pairs with push_receive */
        size_t bytes = weft_i_coll_min(coll->in_bytes - letter->done, WEFT_I_PIECE);
        box->head[sent & 1].bytes = coll->in_bytes;
        box->head[sent & 1].digest = coll->digest;
        weft_i_coll_put(box->data[sent & 1], coll->in + letter->done, bytes);
        atomic_store_explicit(&box->sent, ++sent,
                              memory_order_release); /* pairs with push_receive */
        letter->done += bytes;
        letter->begun = true;
        if (letter->done == coll->in_bytes)
            letter->status = WEFT_OK;
    }
    ring(coll->lane, coll->root);
}

static weft_status refuse(const weft_i_coll *coll, size_t bytes)
{
    weft_i_group_spoil(coll->group);
    return weft_i_fail(
        WEFT_ERR_MISMATCH,
        "recv in group \"%s\": rank %d sends %zu bytes, rank %d expects %zu bytes of %s",
        coll->group->name, coll->root, bytes, coll->lane->me, coll->out_bytes,
        weft_dtype_name(coll->dtype));
}

static void push_receive(weft_i_letter *letter)
{
    weft_i_coll *coll = letter->coll;
    weft_i_box *box = weft_i_lane_box(coll->lane, coll->root, coll->lane->me);
    uint64_t taken = atomic_load_explicit(&box->taken, memory_order_relaxed); /* our own */
    while (letter->status == WEFT_IN_PROGRESS &&
           atomic_load_explicit(&box->sent, memory_order_acquire) >
               taken) { /* pairs with push_send */
        if (box->head[taken & 1].bytes != coll->out_bytes ||
            box->head[taken & 1].digest != coll->digest) {
            letter->status = refuse(coll, box->head[taken & 1].bytes);
            return;
        }
        size_t bytes = weft_i_coll_min(coll->out_bytes - letter->done, WEFT_I_PIECE);
        weft_i_coll_put(coll->out + letter->done, box->data[taken & 1], bytes);
        atomic_store_explicit(&box->taken, ++taken,
                              memory_order_release); /* pairs with push_send */
        letter->done += bytes;
        letter->begun = true;
        if (letter->done == coll->out_bytes)
            letter->status = WEFT_OK;
    }
    ring(coll->lane, coll->root);
}

void weft_i_pair_push(weft_i_lane *lane)
{
    pthread_mutex_lock(&lane->letters_lock);
    for (weft_i_letter *letter = lane->letters; letter; letter = letter->next) {
        bool first = letter->status == WEFT_IN_PROGRESS;
        for (const weft_i_letter *other = lane->letters; first && other != letter;
             other = other->next)
            first = other->status != WEFT_IN_PROGRESS || !comes_before(other, letter);
        if (first)
            (letter->coll->kind == WEFT_I_SEND ? push_send : push_receive)(letter);
    }
    pthread_mutex_unlock(&lane->letters_lock);
}

void weft_i_pair_post(weft_i_letter *letter)
{
    weft_i_lane *lane = letter->coll->lane;
    letter->status = WEFT_IN_PROGRESS;
    pthread_mutex_lock(&lane->letters_lock);
    weft_i_letter **at = &lane->letters;
    while (*at)
        at = &(*at)->next;
    letter->next = NULL;
    *at = letter;
    pthread_mutex_unlock(&lane->letters_lock);
    weft_i_pair_push(lane);
}

void weft_i_pair_forget(weft_i_letter *letter)
{
    weft_i_lane *lane = letter->coll->lane;
    pthread_mutex_lock(&lane->letters_lock);
    weft_i_letter **at = &lane->letters;
    while (*at && *at != letter)
        at = &(*at)->next;
    if (*at)
        *at = letter->next;
    pthread_mutex_unlock(&lane->letters_lock);
}

static bool arrived(void *arg)
{
    weft_i_letter *letter = arg;
    weft_i_pair_push(letter->coll->lane);
    return letter->status != WEFT_IN_PROGRESS;
}

static weft_status peer_lost(void *arg)
{
    const weft_i_letter *letter = arg;
    return weft_i_group_lost(&letter->coll->call, letter->coll->root);
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

weft_status weft_i_pair_wait(weft_i_letter *letter, int64_t timeout_ms)
{
    const weft_i_lane *lane = letter->coll->lane;
    weft_i_wait wait = {.ready = arrived,
                        .lost = peer_lost,
                        .arg = letter,
                        .bell = &weft_i_lane_head_of(lane, lane->me)->bell,
                        .deadline = weft_i_os_deadline(timeout_ms),
                        .mode = lane->mode};
    weft_status status = weft_i_wait_for(&wait);
    return status == WEFT_ERR_TIMEOUT ? fail_timeout(letter, timeout_ms) : status;
}

/* Sends or receives and waits for it; a letter that broke off in its middle leaves the pair
 * unusable. */
static weft_status carry(weft_i_coll *coll)
{
    weft_i_letter letter = {.coll = coll};
    weft_i_pair_post(&letter);
    weft_status status = letter.status;
    if (status == WEFT_IN_PROGRESS)
        status = weft_i_pair_wait(&letter, coll->limit_ms);
    if (status == WEFT_OK)
        status = letter.status;
    weft_i_pair_forget(&letter);
    if (status < 0 && letter.begun)
        weft_i_group_spoil(coll->group);
    return status;
}

weft_status weft_i_coll_send(weft_i_coll *coll)
{
    return carry(coll);
}

weft_status weft_i_coll_recv(weft_i_coll *coll)
{
    return carry(coll);
}

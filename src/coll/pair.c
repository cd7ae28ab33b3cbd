/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lives of letters.  Letters move whenever somebody of this rank pushes them on, all of them:
 * whoever waits for one, and the helper thread of the group's queue as long as posted ones are
 * under way.  So no rank has to wait for its sends before it does something else, and a letter
 * whose handle was dropped arrives all the same.  One lock guards all letters of a lane; a message
 * that is there, or finds room, costs taking it once.
 */
#include "coll/pair.h"
#include "coll/carrier.h"

#include "base/os.h"
#include "base/status.h"

#include <stdio.h>

/* ---- mail ---- */

weft_i_mail *weft_i_mail_new(int size)
{
    weft_i_mail *mail = WEFT_OS->alloc(sizeof *mail + (size_t)size * sizeof mail->pairs[0]);
    if (!mail)
        return NULL;
    mail->room = weft_i_box_room(size);
    mail->last_any = &mail->any;
    for (int rank = 0; rank < size; rank++) {
        weft_i_pair *pair = &mail->pairs[rank];
        pair->rank = rank;
        pair->last_send = &pair->sends;
        pair->last_receive = &pair->receives;
        pair->last_kept = &pair->kept;
    }
    return mail;
}

void weft_i_mail_open(weft_i_lane *lane)
{
    for (int rank = 0; rank < lane->size; rank++) {
        lane->mail->pairs[rank].outbox = weft_i_lane_box(lane, lane->me, rank);
        lane->mail->pairs[rank].inbox = weft_i_lane_box(lane, rank, lane->me);
    }
}

void weft_i_mail_free(weft_i_mail *mail, int size)
{
    for (int rank = 0; mail && rank < size; rank++)
        for (weft_i_kept *kept = mail->pairs[rank].kept, *next; kept; kept = next) {
            next = kept->next;
            WEFT_OS->free(kept);
        }
    WEFT_OS->free(mail);
}

static bool try_lock(void *lane)
{
    return weft_i_mail_try(lane);
}

void weft_i_mail_lock_slowly(weft_i_lane *lane)
{
    weft_i_wait_until(try_lock, lane, WEFT_I_NEVER); /* whoever has it is a thread of ours */
}

static void count_under_way(weft_i_mail *mail, int change)
{
    /* Relaxed: written under the lock only. */
    int count = atomic_load_explicit(&mail->under_way, memory_order_relaxed);
    atomic_store_explicit(&mail->under_way, count + change, memory_order_relaxed);
}

static int under_way(const weft_i_mail *mail)
{
    return atomic_load_explicit(&mail->under_way, memory_order_relaxed); /* a hint */
}

void weft_i_letter_ring(const weft_i_lane *lane, int rank)
{
    if (lane->mode != WEFT_I_WAIT_SPIN)
        atomic_thread_fence(
            memory_order_seq_cst); /* pairs with the fence of a sleeper in base/wait.c */
    weft_i_wait_ring(&weft_i_lane_head_of(lane, rank)->letter_bell);
}

/* ---- the end of a letter ---- */

/*
 * The reference to the owner goes before others can see that the letters are over, so that who
 * waited for them may take down the group at once; unless it is the last one, which is dropped
 * where that can do no harm.  The owner's destruction waits for the lock (work.c).
 */
static void end_bundle(weft_i_mail *mail, weft_i_bundle *bundle)
{
    if (bundle->owner && !weft_i_object_drop_shared(bundle->owner)) {
        /* Relaxed: under the lock. */
        bundle->next = atomic_load_explicit(&mail->orphans, memory_order_relaxed);
        atomic_store_explicit(&mail->orphans, bundle, memory_order_relaxed);
    }
}

void weft_i_letter_end(weft_i_letter *letter, weft_status status)
{
    weft_i_lane *lane = letter->lane;
    if (status < 0 && letter->begun) /* the pair's bytes are out of step */
        weft_i_group_spoil(letter->group,
                           weft_status_scope(status) < WEFT_SCOPE_GROUP ? WEFT_OK : status);
    count_under_way(lane->mail, -1);
    if (--letter->bundle->left == 0)
        end_bundle(lane->mail, letter->bundle);
    /* Pairs with the acquire in weft_i_letter_status. */
    atomic_store_explicit(&letter->status, status, memory_order_release);
    weft_i_letter_ring(lane, lane->me); /* another thread of ours may sleep for it */
}

static void note_failure(weft_i_letter *letter)
{
    enum { TEXT = 512 };
    letter->message = WEFT_OS->alloc(TEXT);
    if (letter->message)
        snprintf(letter->message, TEXT, "%s", weft_last_error());
}

void weft_i_letter_end_failed(weft_i_letter *letter)
{
    note_failure(letter);
    weft_i_letter_end(letter, weft_last_status());
}

/* Takes a letter that is under way out of its list.  False: it has arrived after all. */
static bool take_out(weft_i_letter *letter)
{
    weft_i_lane *lane = letter->lane;
    weft_i_mail *mail = lane->mail;
    int rank = letter->source >= 0 ? letter->source : letter->peer;
    weft_i_pair *pair = rank >= 0 ? &mail->pairs[rank] : NULL;
    if (letter->offered)
        return weft_i_pair_withdraw(lane, pair, letter);
    if (letter->kind == WEFT_I_SEND) {
        weft_i_letter_remove(&pair->sends, &pair->last_send, letter);
    } else if (letter->source >= 0) {
        pair->taking = NULL;
        pair->broken = true;
    } else if (pair) {
        weft_i_letter_remove(&pair->receives, &pair->last_receive, letter);
    } else {
        weft_i_letter_remove(&mail->any, &mail->last_any, letter);
    }
    return true;
}

/* The thread's last error ends a letter that is under way. */
static void fail(weft_i_letter *letter)
{
    if (take_out(letter))
        weft_i_letter_end_failed(letter);
    else
        weft_i_letter_end(letter, WEFT_OK);
}

/* ---- letters as calls ---- */

weft_i_coll weft_i_letter_call(const weft_i_letter *letter)
{
    bool send = letter->kind == WEFT_I_SEND;
    size_t item = weft_dtype_size(letter->dtype);
    const char *op = weft_i_coll_name(letter->kind);
    return (weft_i_coll){.ask = {.op = op,
                                 .kind = letter->kind,
                                 .rank = letter->group->rank,
                                 .size = letter->group->size,
                                 .dtype = letter->dtype,
                                 .root = letter->peer,
                                 .in = send ? letter->data : NULL,
                                 .out = send ? NULL : letter->data,
                                 .item = item,
                                 .count = letter->bytes / item,
                                 .in_bytes = send ? letter->bytes : 0,
                                 .out_bytes = send ? 0 : letter->bytes,
                                 .limit_ms = letter->limit_ms},
                         .call = {letter->group, op, -1},
                         .group = letter->group,
                         .in_tensor = send ? letter->tensor : NULL,
                         .out_tensor = send ? NULL : letter->tensor,
                         .digest = letter->digest};
}

void weft_i_letter_carry(weft_i_letter *letter)
{
    weft_i_coll coll = weft_i_letter_call(letter);
    weft_status status = weft_i_carrier_run(&coll);
    if (status < 0)
        note_failure(letter);
    letter->source = letter->peer;
    /* Pairs with the acquire in weft_i_letter_status. */
    atomic_store_explicit(&letter->status, status, memory_order_release);
}

/* ---- pushing ---- */

static void push_peer(weft_i_lane *lane, weft_i_pair *pair)
{
    weft_i_pair_send(lane, pair);
    weft_i_pair_receive(lane, pair);
    if (pair->rank == lane->me)
        weft_i_pair_send(lane, pair); /* we have just read what we sent */
}

static bool has_letters(const weft_i_pair *pair)
{
    return pair->sends || pair->offer_count || pair->receives || pair->taking || pair->keeping;
}

static void mark_busy(weft_i_mail *mail, weft_i_pair *pair)
{
    if (pair->busy || !has_letters(pair))
        return;
    pair->busy = true;
    pair->next_busy = mail->busy;
    mail->busy = pair;
}

/* Receives from whoever comes first: begins with another rank each time, so that all get their
 * turn. */
static void push_any(weft_i_lane *lane)
{
    weft_i_mail *mail = lane->mail;
    int first = mail->turn;
    for (int i = 0; mail->any && i < lane->size; i++) {
        weft_i_pair *pair = &mail->pairs[(first + i) % lane->size];
        weft_i_letter *waiting = mail->any;
        weft_i_pair_receive(lane, pair);
        mark_busy(mail, pair);
        if (mail->any != waiting)
            mail->turn = (pair->rank + 1) % lane->size;
    }
}

static void push_all(weft_i_lane *lane)
{
    weft_i_mail *mail = lane->mail;
    for (weft_i_pair **at = &mail->busy, *pair; (pair = *at);) {
        push_peer(lane, pair);
        pair->busy = has_letters(pair);
        if (pair->busy)
            at = &pair->next_busy;
        else
            *at = pair->next_busy;
    }
    if (mail->any)
        push_any(lane);
}

bool weft_i_mail_push(weft_i_lane *lane)
{
    weft_i_mail_lock(lane);
    push_all(lane);
    bool left = under_way(lane->mail) > 0;
    weft_i_mail_unlock(lane);
    return left;
}

void weft_i_mail_sweep(weft_i_lane *lane)
{
    weft_i_mail *mail = lane->mail;
    /* Relaxed: a hint; whoever made an orphan sweeps after it. */
    if (!atomic_load_explicit(&mail->orphans, memory_order_relaxed))
        return;
    weft_i_mail_lock(lane);
    weft_i_bundle *orphans = atomic_load_explicit(&mail->orphans, memory_order_relaxed);
    atomic_store_explicit(&mail->orphans, NULL, memory_order_relaxed);
    weft_i_mail_unlock(lane);
    for (weft_i_bundle *next; orphans; orphans = next) {
        next = orphans->next;
        weft_i_object_drop(orphans->owner);
    }
}

/* ---- posting ---- */

static void post_any(weft_i_lane *lane, weft_i_letter *letter)
{
    weft_i_mail *mail = lane->mail;
    for (int i = 0; i < lane->size; i++) {
        weft_i_pair *pair = &mail->pairs[(mail->turn + i) % lane->size];
        if (pair->kept && weft_i_pair_take_kept(lane, pair, letter)) {
            mail->turn = (pair->rank + 1) % lane->size;
            return;
        }
    }
    weft_i_letter_append(&mail->last_any, letter);
    push_any(lane);
}

/* Under the lock: puts a letter where it belongs and moves it as far as it goes. */
static void post(weft_i_letter *letter)
{
    weft_i_lane *lane = letter->lane;
    weft_i_mail *mail = lane->mail;
    letter->order = mail->posted++;
    /* Relaxed: nobody else knows the letter yet. */
    atomic_store_explicit(&letter->status, WEFT_IN_PROGRESS, memory_order_relaxed);
    count_under_way(mail, 1);
    if (letter->peer == WEFT_ANY) {
        post_any(lane, letter);
        return;
    }
    weft_i_pair *pair = &mail->pairs[letter->peer];
    if (letter->kind == WEFT_I_SEND) {
        weft_i_letter_append(&pair->last_send, letter);
        weft_i_pair_send(lane, pair);
    } else if (!pair->kept || !weft_i_pair_take_kept(lane, pair, letter)) {
        weft_i_letter_append(&pair->last_receive, letter);
        weft_i_pair_receive(lane, pair);
    }
    mark_busy(mail, pair);
}

static void post_bundle(weft_i_bundle *bundle)
{
    weft_i_lane *lane = bundle->letters->lane;
    bundle->left = bundle->count;
    weft_i_mail_lock(lane);
    for (int i = 0; i < bundle->count; i++) {
        bundle->letters[i].bundle = bundle;
        post(&bundle->letters[i]);
    }
    weft_i_mail_unlock(lane);
}

void weft_i_bundle_post(weft_i_bundle *bundle)
{
    weft_i_lane *lane = bundle->letters->lane;
    weft_i_object_hold(bundle->owner);
    post_bundle(bundle);
    weft_i_mail_sweep(lane);
}

/* ---- letters that nobody waits for ---- */

bool weft_i_mail_is_left_alone(const weft_i_lane *lane)
{
    /* Relaxed: a hint; the helper looks again. */
    return under_way(lane->mail) > 0 &&
           !atomic_load_explicit(&lane->mail->waiters, memory_order_relaxed);
}

static weft_status fail_timeout(const weft_i_letter *letter, int64_t timeout_ms)
{
    const weft_group *group = letter->group;
    char who[640] = "any other rank";
    if (letter->peer != WEFT_ANY)
        weft_i_world_describe(group->world, group->members[letter->peer], who, sizeof who);
    return weft_i_fail(WEFT_ERR_TIMEOUT,
                       "rank %d of %d in group \"%s\", %s of %zu bytes, tag %d: waited %lld ms for "
                       "%s",
                       group->rank, group->size, group->name, weft_i_coll_name(letter->kind),
                       letter->bytes, letter->tag, (long long)timeout_ms, who);
}

/* Can the letter still arrive?  Without a message: it may have come just before its peer was lost.
 * A receive from any rank ends when one of them dies, or when all have left. */
static weft_status letter_fate(const weft_i_letter *letter, int *culprit)
{
    const weft_group *group = letter->group;
    int left = 0;
    *culprit = letter->peer;
    if (letter->peer != WEFT_ANY)
        return weft_i_group_fate(group, letter->peer);
    for (int rank = 0; rank < group->size; rank++) {
        weft_status fate = rank == group->rank ? WEFT_OK : weft_i_group_fate(group, rank);
        *culprit = fate < 0 ? rank : *culprit;
        if (fate < 0 && fate != WEFT_ERR_PEER_LEFT)
            return fate;
        left += fate < 0;
    }
    return left && left == group->size - 1 ? WEFT_ERR_PEER_LEFT : WEFT_OK;
}

/* The receiver may have said why it ended the group. */
static weft_status sender_lost(const weft_i_letter *letter, weft_status status)
{
    const weft_i_box *box = letter->lane->mail->pairs[letter->peer].outbox;
    /* Pairs with the release in `refuse`. */
    uint64_t refused =
        status == WEFT_ERR_MISMATCH ? atomic_load_explicit(&box->refused, memory_order_acquire) : 0;
    if (!refused)
        return status;
    return weft_i_fail(status,
                       "send in group \"%s\": rank %d sends %zu bytes of %s, rank %d expects %llu "
                       "bytes, or another dtype",
                       letter->group->name, letter->group->rank, letter->bytes,
                       weft_dtype_name(letter->dtype), letter->peer,
                       (unsigned long long)refused - 1);
}

/* WEFT_OK while the letter can still arrive; otherwise with a message. */
static weft_status letter_lost(const weft_i_letter *letter)
{
    int culprit;
    weft_i_call call = {letter->group, weft_i_coll_name(letter->kind), -1};
    if (letter_fate(letter, &culprit) == WEFT_OK)
        return WEFT_OK;
    weft_status status = weft_i_group_lost(&call, culprit);
    return status < 0 && letter->kind == WEFT_I_SEND ? sender_lost(letter, status) : status;
}

/* Must this posted letter end now?  Under the lock; the error is the thread's last. */
static bool is_hopeless(weft_i_letter *letter)
{
    if (letter_lost(letter) < 0)
        return true;
    /* Relaxed: ours is the last reference, so nobody can take another one. */
    if (atomic_load_explicit(&letter->bundle->owner->references, memory_order_relaxed) > 1)
        return false;
    if (!letter->deadline)
        letter->deadline = weft_i_os_deadline(letter->limit_ms);
    return WEFT_OS->clock_ns() >= letter->deadline && fail_timeout(letter, letter->limit_ms) < 0;
}

static bool sort_out_one(weft_i_letter *letter, bool now)
{
    if (!letter || !letter->bundle->owner || (now && !letter->doomed) || !is_hopeless(letter))
        return false;
    letter->doomed = true;
    if (now)
        fail(letter);
    return true;
}

static bool sort_out_list(weft_i_letter *letter, bool now)
{
    bool found = false;
    for (weft_i_letter *next; letter; letter = next) {
        next = letter->next;
        found |= sort_out_one(letter, now);
    }
    return found;
}

static bool sort_out_all(weft_i_lane *lane, bool now)
{
    bool found = sort_out_list(lane->mail->any, now);
    for (weft_i_pair *pair = lane->mail->busy; pair; pair = pair->next_busy) {
        found |= sort_out_one(pair->taking, now);
        for (int i = 0; i < WEFT_I_BOX_OFFERS; i++)
            found |= sort_out_one(pair->offers[i], now);
        found |= sort_out_list(pair->sends, now);
        found |= sort_out_list(pair->receives, now);
    }
    return found;
}

/* The peer may have sent its part before it left: look again before a hopeless letter ends. */
void weft_i_mail_sort_out(weft_i_lane *lane)
{
    weft_i_errors before; /* messages are the letters', not this thread's */
    weft_i_errors_save(&before);
    weft_i_mail_lock(lane);
    if (sort_out_all(lane, false)) {
        push_all(lane);
        sort_out_all(lane, true);
    }
    weft_i_mail_unlock(lane);
    weft_i_errors_restore(&before);
}

/* ---- waiting ---- */

weft_status weft_i_bundle_status(const weft_i_bundle *bundle)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < bundle->count; i++) {
        weft_status one = weft_i_letter_status(&bundle->letters[i]);
        if (one == WEFT_IN_PROGRESS)
            return one;
        status = status < 0 ? status : one;
    }
    return status;
}

const weft_i_letter *weft_i_bundle_failed(const weft_i_bundle *bundle)
{
    for (int i = 0; i < bundle->count; i++)
        if (weft_i_letter_status(&bundle->letters[i]) < 0)
            return &bundle->letters[i];
    return NULL;
}

weft_status weft_i_bundle_outcome(const weft_i_bundle *bundle)
{
    weft_status status = weft_i_bundle_status(bundle);
    if (status == WEFT_OK || status == WEFT_IN_PROGRESS)
        return status;
    const weft_i_letter *letter = weft_i_bundle_failed(bundle);
    return weft_i_fail(status, "%s", letter->message ? letter->message : weft_strerror(status));
}

static weft_i_letter *first_under_way(const weft_i_bundle *bundle)
{
    for (int i = 0; i < bundle->count; i++)
        if (weft_i_letter_status(&bundle->letters[i]) == WEFT_IN_PROGRESS)
            return &bundle->letters[i];
    return NULL;
}

/* May a push do anything?  Looks without the lock where a lone receive waits for its sheet. */
static bool stirs(const weft_i_letter *letter)
{
    const weft_i_mail *mail = letter->lane->mail;
    if (letter->kind != WEFT_I_RECV || letter->peer == WEFT_ANY || under_way(mail) != 1)
        return true;
    uint32_t digest;
    const weft_i_pair *pair = &mail->pairs[letter->peer];
    return weft_i_box_look(pair->inbox, weft_i_pair_taken(pair), &digest) != NULL;
}

static bool are_over(void *arg)
{
    const weft_i_bundle *bundle = arg;
    const weft_i_letter *letter = first_under_way(bundle);
    if (!letter)
        return true;
    if (!stirs(letter))
        return false;
    weft_i_mail_push(letter->lane);
    return !first_under_way(bundle);
}

typedef struct outlook {
    weft_i_bundle *bundle;
    weft_i_letter *lost;
} outlook;

static bool outlook_over(void *arg)
{
    return are_over(((outlook *)arg)->bundle);
}

static weft_status outlook_lost(void *arg)
{
    outlook *on = arg;
    const weft_i_bundle *bundle = on->bundle;
    int culprit;
    for (int i = 0; i < bundle->count; i++) {
        on->lost = &bundle->letters[i];
        if (weft_i_letter_status(on->lost) == WEFT_IN_PROGRESS)
            WEFT_TRY(letter_fate(on->lost, &culprit));
    }
    return WEFT_OK;
}

/* The thread's last error ends the letter, unless it is over. */
static void fail_late(weft_i_lane *lane, weft_i_letter *letter)
{
    weft_i_mail_lock(lane);
    if (weft_i_letter_status(letter) == WEFT_IN_PROGRESS)
        fail(letter);
    weft_i_mail_unlock(lane);
}

/* The same with what became of its peer. */
static void fail_lost(weft_i_lane *lane, weft_i_letter *letter)
{
    weft_i_mail_lock(lane);
    if (weft_i_letter_status(letter) == WEFT_IN_PROGRESS && letter_lost(letter) < 0)
        fail(letter);
    weft_i_mail_unlock(lane);
}

/* Waits for one thing after the other: all letters over, one lost, time up. */
static weft_status wait_on(weft_i_bundle *bundle, int64_t deadline)
{
    weft_i_lane *lane = bundle->letters->lane;
    outlook on = {.bundle = bundle};
    weft_i_wait wait = {.ready = outlook_over,
                        .lost = outlook_lost,
                        .arg = &on,
                        .bell = &weft_i_lane_head_of(lane, lane->me)->letter_bell,
                        .deadline = deadline,
                        .mode = lane->mode};
    weft_status status = WEFT_OK;
    do {
        status = weft_i_wait_for(&wait);
        if (status < 0 && status != WEFT_ERR_TIMEOUT)
            fail_lost(lane, on.lost);
    } while (status != WEFT_ERR_TIMEOUT && first_under_way(bundle));
    return status == WEFT_ERR_TIMEOUT ? status : WEFT_OK;
}

/* Looks for a moment without pausing: a message that comes now is a hop away. */
static bool come_at_once(weft_i_bundle *bundle)
{
    enum { LOOKS = 200 };
    int looks = bundle->letters->lane->mode == WEFT_I_WAIT_SPIN ? LOOKS : 1;
    for (int i = 0; i < looks; i++)
        if (are_over(bundle))
            return true;
    return false;
}

weft_status weft_i_bundle_wait(weft_i_bundle *bundle, int64_t timeout_ms)
{
    weft_i_lane *lane = bundle->letters->lane;
    weft_status status = WEFT_OK;
    if (!come_at_once(bundle)) {
        /* Relaxed: while somebody waits, and so pushes, the helper need not. */
        atomic_fetch_add_explicit(&lane->mail->waiters, 1, memory_order_relaxed);
        status = wait_on(bundle, weft_i_os_deadline(timeout_ms));
        atomic_fetch_sub_explicit(&lane->mail->waiters, 1, memory_order_relaxed);
    }
    weft_i_mail_sweep(lane);
    const weft_i_letter *letter = status < 0 ? first_under_way(bundle) : NULL;
    return letter ? fail_timeout(letter, timeout_ms) : WEFT_OK;
}

weft_status weft_i_bundle_carry(weft_i_bundle *bundle)
{
    post_bundle(bundle);
    if (weft_i_bundle_status(bundle) == WEFT_IN_PROGRESS &&
        weft_i_bundle_wait(bundle, bundle->letters->limit_ms) < 0)
        for (int i = 0; i < bundle->count; i++)
            fail_late(bundle->letters[i].lane, &bundle->letters[i]);
    weft_status status = weft_i_bundle_outcome(bundle);
    for (int i = 0; i < bundle->count; i++)
        WEFT_OS->free(bundle->letters[i].message);
    return status;
}

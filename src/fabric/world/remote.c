/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's wire: opening it, messages in and out, and its end; see remote.h.  What drives it is in
 * remote_drive.c. */
#include "remote_wire.h"

#include "base/machine/net.h"
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/status.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

enum { LEAVING_MS = 2000, FLUSH_MS = 200 };

const weft_i_transport *(*weft_i_remote_engine)(void);

static weft_i_remote_take *world_takes[WEFT_I_HEAD_KINDS]; /* set before main */
static weft_i_remote_take *groups_take;
static void (*groups_forget)(void *groups);
static void (*on_suspicion)(weft_i_world *world, int rank, weft_status why, const char *text);

void weft_i_remote_on(weft_i_head_kind kind, weft_i_remote_take *take)
{
    WEFT_ASSERT(kind < WEFT_I_HEAD_KINDS && (!world_takes[kind] || world_takes[kind] == take));
    world_takes[kind] = take;
}

void weft_i_remote_on_groups(weft_i_remote_take *take, void (*forget)(void *groups))
{
    groups_take = take;
    groups_forget = forget;
}

void weft_i_remote_on_fault(void (*suspect)(weft_i_world *world, int rank, weft_status why,
                                            const char *text))
{
    on_suspicion = suspect;
}

/* ---- receiving ---- */

/* Told once: whoever can send one can send many. */
static void drop_stray(weft_i_remote *remote, uint32_t from, const char *why)
{
    if (!remote->strays++)
        weft_i_log(WEFT_LOG_WARN,
                   "a message that claims to be of rank %u was dropped: %s; more of them are only "
                   "counted",
                   from, why);
}

static void deliver(weft_i_remote *remote, int from, const weft_i_head *head, const void *data,
                    size_t bytes)
{
    WEFT_ASSERT(remote->pairs[from]);
    weft_i_remote_take *take = head->group ? groups_take : world_takes[head->kind];
    if (head->kind == WEFT_I_HEAD_HELLO)
        remote->pairs[from]->proven = true;
    else if (take)
        take(remote->world, from, head, data, bytes);
}

static void break_pair(weft_i_remote *remote, int from, const char *why)
{
    weft_i_log(WEFT_LOG_WARN, "messages of rank %d are not taken any more: %s", from, why);
    weft_i_remote_cut(remote, from);
    if (on_suspicion)
        on_suspicion(remote->world, from, WEFT_ERR_PROTOCOL, why);
}

/* It is the pair's next, or waits for its turn. */
static void take_in_turn(weft_i_remote *remote, int from, const weft_i_head *head, const void *data,
                         size_t bytes)
{
    weft_i_order *order = &remote->pairs[from]->order;
    switch (weft_i_order_take(order, head, data, bytes)) {
    case WEFT_I_ORDER_NOW:
        deliver(remote, from, head, data, bytes);
        for (weft_i_order_kept *kept; (kept = weft_i_order_next(order));) {
            deliver(remote, from, &kept->head, kept->data, kept->bytes);
            WEFT_OS->free(kept);
        }
        break;
    case WEFT_I_ORDER_EARLY:
        break;
    case WEFT_I_ORDER_AGAIN:
        drop_stray(remote, head->source, "its number has been there before");
        break;
    case WEFT_I_ORDER_FAR:
        break_pair(remote, from, "a gap of more than 64 of them");
        break;
    case WEFT_I_ORDER_NO_MEMORY:
        break_pair(remote, from, "no memory to keep them in order");
    }
}

static weft_status pair_with(weft_i_remote *remote, int rank, weft_i_pair **out)
{
    WEFT_ASSERT(rank >= 0 && rank < remote->world->size && rank != remote->world->rank);
    *out = remote->pairs[rank];
    if (*out)
        return WEFT_OK;
    weft_i_pair_facts facts = {
        .job = remote->world->key, .rank = remote->world->rank, .other = rank};
    memcpy(facts.secret, remote->secret, sizeof facts.secret);
    memcpy(facts.nonce, remote->nonce, sizeof facts.nonce);
    memcpy(facts.other_nonce, remote->known[rank].nonce, sizeof facts.other_nonce);
    weft_status status = weft_i_pair_new(&facts, &remote->pairs[rank]);
    weft_i_keyed_forget(&facts, sizeof facts);
    *out = remote->pairs[rank];
    return status;
}

static void on_message(void *arg, const void *raw, const void *data, size_t bytes)
{
    weft_i_remote *remote = arg;
    weft_i_head_reader reader = {remote->world->rank, remote->world->size, remote->segment};
    weft_i_head head = {.source = UINT32_MAX};
    weft_i_pair *pair = NULL;
    weft_i_errors before;
    weft_i_head_fault fault = weft_i_head_read(raw, bytes, &reader, &head);
    if (fault != WEFT_I_HEAD_GOOD) {
        drop_stray(remote, head.source, weft_i_head_fault_text(fault));
        return;
    }
    int from = (int)head.source;
    weft_i_errors_save(&before); /* what others send is no error of the caller's */
    if (!remote->started || !remote->known[from].there || pair_with(remote, from, &pair) < 0)
        drop_stray(remote, head.source, "that rank is not on another host");
    else if (head.kind == WEFT_I_HEAD_HELLO
                 ? head.number || !weft_i_pair_is_hello(pair, data, bytes)
                 : !weft_i_head_is_from(&head, pair->cookie_in))
        drop_stray(remote, head.source, "it does not prove that it knows the job's secret");
    else if (!pair->cut)
        take_in_turn(remote, from, &head, data, bytes);
    weft_i_errors_restore(&before);
}

static void on_fault(void *arg, int rank, weft_status why, const char *text)
{
    weft_i_remote *remote = arg;
    weft_i_pair *pair = remote->pairs[rank];
    if (!pair || pair->left)
        return;
    pair->faulty = true;
    weft_i_log(WEFT_LOG_INFO, "rank %d cannot be reached any more: %s", rank, text);
    if (on_suspicion)
        on_suspicion(remote->world, rank, why, text);
}

/* ---- sending ---- */

typedef struct letter {
    weft_i_sent sent;
    weft_i_remote *remote;
    unsigned char data[];
} letter;

static void on_letter(weft_i_sent *sent, weft_status status)
{
    WEFT_ASSERT(((letter *)(void *)sent)->remote->under_way > 0);
    letter *mine = (letter *)(void *)sent;
    (void)status; /* a fault tells */
    mine->remote->under_way--;
    WEFT_OS->free(mine);
}

static weft_status post(weft_i_remote *remote, weft_i_pair *pair, int to, weft_i_head *head,
                        const void *data, size_t bytes, weft_i_sent *sent)
{
    WEFT_ASSERT(head->kind > WEFT_I_HEAD_NONE && head->kind < WEFT_I_HEAD_KINDS);
    head->source = (uint32_t)remote->world->rank;
    head->number = pair->number;
    head->cookie = head->kind == WEFT_I_HEAD_HELLO ? 0 : pair->cookie_out;
    weft_status status = remote->table->send(remote->wire, to, head, data, bytes, sent);
    pair->number += status >= 0; /* else it has not gone out, and the next one has its number */
    pair->faulty |= status == WEFT_ERR_UNREACHABLE; /* which will be told */
    return status;
}

static weft_status post_copy(weft_i_remote *remote, weft_i_pair *pair, int to, weft_i_head *head,
                             const void *data, size_t bytes)
{
    letter *mine = WEFT_OS->alloc(sizeof *mine + bytes);
    if (!mine)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a message of %zu bytes to rank %d",
                           bytes, to);
    mine->sent.done = on_letter;
    mine->remote = remote;
    if (bytes)
        memcpy(mine->data, data, bytes);
    remote->under_way++;
    weft_status status = post(remote, pair, to, head, mine->data, bytes, &mine->sent);
    if (status != WEFT_IN_PROGRESS) {
        remote->under_way--;
        WEFT_OS->free(mine);
    }
    return status < 0 ? status : WEFT_OK;
}

/* The pair, after its HELLO. */
static weft_status open_pair(weft_i_remote *remote, int to, weft_i_pair **out)
{
    if (!remote->started || to < 0 || to >= remote->world->size || !remote->known[to].there)
        return weft_i_fail(WEFT_ERR_UNREACHABLE, "there is no connection to rank %d", to);
    if (remote->shut)
        return weft_i_fail(
            WEFT_ERR_STATE,
            "rank %d cannot be reached: the program has closed descriptors that weft "
            "has messages to other hosts by",
            to);
    WEFT_TRY(pair_with(remote, to, out));
    weft_i_pair *pair = *out;
    if (pair->cut || pair->left || pair->faulty)
        return weft_i_fail(WEFT_ERR_UNREACHABLE, "the connection to rank %d has ended", to);
    if (pair->written)
        return WEFT_OK;
    weft_i_head hello = {.kind = WEFT_I_HEAD_HELLO};
    WEFT_TRY(post_copy(remote, pair, to, &hello, pair->proof_out, sizeof pair->proof_out));
    pair->written = true;
    return WEFT_OK;
}

weft_status weft_i_remote_tell(weft_i_remote *remote, int to, const weft_i_head *head,
                               const void *data, size_t bytes)
{
    WEFT_ASSERT(bytes <= remote->segment);
    weft_i_pair *pair = NULL;
    weft_i_head whole = *head;
    weft_i_remote_enter(remote);
    weft_status status = open_pair(remote, to, &pair);
    if (status == WEFT_OK)
        status = post_copy(remote, pair, to, &whole, data, bytes);
    weft_i_remote_give(remote);
    return status;
}

weft_status weft_i_remote_send(weft_i_remote *remote, int to, const weft_i_head *head,
                               const void *data, size_t bytes, weft_i_sent *sent)
{
    weft_i_pair *pair = NULL;
    weft_i_head whole = *head;
    weft_i_remote_enter(remote);
    weft_status status = open_pair(remote, to, &pair);
    if (status == WEFT_OK)
        status = post(remote, pair, to, &whole, data, bytes, sent);
    weft_i_remote_give(remote);
    return status;
}

weft_status weft_i_remote_expect(weft_i_remote *remote, int from, uint64_t tag, void *to,
                                 size_t bytes, weft_i_sent *sent)
{
    weft_i_pair *pair = NULL;
    weft_i_remote_enter(remote);
    weft_status status = open_pair(remote, from, &pair);
    if (status == WEFT_OK)
        status = remote->table->expect(remote->wire, from, tag, to, bytes, sent);
    weft_i_remote_give(remote);
    return status;
}

weft_status weft_i_remote_stream(weft_i_remote *remote, int to, uint64_t tag, const void *from,
                                 size_t bytes, weft_i_sent *sent)
{
    weft_i_pair *pair = NULL;
    weft_i_remote_enter(remote);
    weft_status status = open_pair(remote, to, &pair);
    if (status == WEFT_OK)
        status = remote->table->stream(remote->wire, to, tag, from, bytes, sent);
    weft_i_remote_give(remote);
    return status;
}

/* From the cookie, which no stranger knows.  Both ranks know both. */
uint64_t weft_i_remote_tag(weft_i_remote *remote, int rank, bool outward, uint64_t group,
                           uint64_t number)
{
    weft_i_pair *pair = NULL;
    weft_i_remote_enter(remote);
    weft_status status = pair_with(remote, rank, &pair);
    uint64_t seed = status < 0 ? 0 : outward ? pair->cookie_out : pair->cookie_in;
    weft_i_remote_give(remote);
    weft_i_key key = weft_i_key_of((weft_i_key){{seed, group}}, &number, sizeof number);
    return key.word[0];
}

void weft_i_remote_cut(weft_i_remote *remote, int rank)
{
    weft_i_remote_enter(remote);
    weft_i_pair *pair = remote->pairs[rank];
    if (pair && !pair->cut && remote->started) {
        pair->cut = true;
        remote->table->drop(remote->wire, rank);
    }
    weft_i_remote_give(remote);
}

bool weft_i_remote_reaches(weft_i_remote *remote, int rank)
{
    weft_i_remote_enter(remote);
    const weft_i_pair *pair = remote->pairs[rank];
    bool reaches = remote->started && remote->known[rank].there &&
                   !(pair && (pair->cut || pair->left || pair->faulty));
    weft_i_remote_give(remote);
    return reaches;
}

size_t weft_i_remote_segment(const weft_i_remote *remote)
{
    return remote->segment;
}

const weft_i_transport *weft_i_remote_table(const weft_i_remote *remote)
{
    return remote->table;
}

void *weft_i_remote_wire(const weft_i_remote *remote)
{
    return remote->wire;
}

const uint8_t *weft_i_remote_secret(const weft_i_remote *remote)
{
    return remote->secret;
}

void **weft_i_remote_groups(weft_i_remote *remote)
{
    return &remote->groups;
}

uint64_t weft_i_remote_strays(weft_i_remote *remote)
{
    weft_i_remote_enter(remote);
    uint64_t count = remote->strays + (remote->wire ? remote->table->strays(remote->wire) : 0);
    weft_i_remote_give(remote);
    return count;
}

/* ---- beginning ---- */

bool weft_i_remote_is_wanted(void)
{
    return weft_i_remote_engine && strcasecmp(weft_i_env_text(WEFT_I_ENV_UCX), "off") != 0;
}

/* What only ranks of this job know: its token, or what the meeting has told them alone. */
static void find_secret(weft_i_remote *remote)
{
    const char *token = weft_i_env_text(WEFT_I_ENV_TOKEN);
    if (weft_i_keyed_parse(token, remote->secret))
        return;
    memset(remote->secret, 0, sizeof remote->secret);
    memcpy(remote->secret, &remote->world->key, sizeof remote->world->key);
}

static weft_status allocate(weft_i_world *world, weft_i_remote **out)
{
    size_t ranks = (size_t)world->size;
    weft_i_remote *remote = WEFT_OS->alloc(sizeof *remote);
    if (remote) {
        remote->known = WEFT_OS->alloc(ranks * sizeof *remote->known);
        remote->pairs = WEFT_OS->alloc(ranks * sizeof *remote->pairs);
    }
    if (!remote || !remote->known || !remote->pairs) {
        WEFT_OS->free(remote ? remote->known : NULL);
        WEFT_OS->free(remote ? remote->pairs : NULL);
        WEFT_OS->free(remote);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for messages to %d ranks", world->size);
    }
    remote->world = world;
    remote->door = -1;
    weft_i_remote_make_lock(remote);
    *out = remote;
    return WEFT_OK;
}

static weft_status open_wire(weft_i_remote *remote)
{
    weft_i_transport_facts facts;
    char interfaces[WEFT_I_NET_LIST];
    WEFT_TRY(weft_i_net_interfaces(interfaces));
    weft_i_transport_opts opts = {.rank = remote->world->rank,
                                  .ranks = remote->world->size,
                                  .interface = *interfaces ? interfaces : NULL, /* read by open */
                                  .on_message = on_message,
                                  .on_fault = on_fault,
                                  .arg = remote};
    WEFT_TRY(remote->table->open(&opts, &remote->wire));
    remote->table->facts(remote->wire, &facts);
    remote->segment = facts.segment;
    remote->door = remote->table->door(remote->wire);
    return WEFT_OK;
}

static weft_status open_all(weft_i_remote *remote, weft_i_remote_card *mine)
{
    char reason[192] = "no library for it is known";
    remote->table = weft_i_remote_engine ? weft_i_remote_engine() : NULL;
    if (!remote->table || remote->table->probe(reason, sizeof reason) <= 0)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s", reason);
    WEFT_TRY(weft_i_keyed_load());
    if (WEFT_OS->random_bytes(remote->nonce, sizeof remote->nonce) < 0)
        return weft_i_fail_errno(errno, "no random bytes");
    WEFT_TRY(open_wire(remote));
    memcpy(mine->nonce, remote->nonce, sizeof mine->nonce);
    mine->bytes = remote->table->address(remote->wire, mine->address, sizeof mine->address);
    return mine->bytes <= sizeof mine->address
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_LIMIT, "an address of %zu bytes", mine->bytes);
}

weft_status weft_i_remote_open(weft_i_world *world, weft_i_remote **out, weft_i_remote_card *mine)
{
    weft_i_remote *remote = NULL;
    WEFT_TRY(allocate(world, &remote));
    weft_status status = open_all(remote, mine);
    if (status < 0)
        weft_i_remote_drop(remote);
    else
        *out = remote;
    return status;
}

weft_status weft_i_remote_know(weft_i_remote *remote, int rank, const weft_i_remote_card *theirs)
{
    WEFT_ASSERT(!remote->started && rank != remote->world->rank);
    WEFT_TRY(remote->table->connect(remote->wire, rank, theirs->address, theirs->bytes));
    memcpy(remote->known[rank].nonce, theirs->nonce, sizeof theirs->nonce);
    remote->known[rank].there = true;
    return WEFT_OK;
}

weft_status weft_i_remote_start(weft_i_remote *remote)
{
    weft_i_remote_enter(remote);
    WEFT_ASSERT(!remote->started);
    find_secret(remote);
    remote->started = true;
    weft_i_remote_give(remote);
    return weft_i_remote_start_thread(remote);
}

/* ---- the end ---- */

/* What a rank says when it leaves; with LEFT_FOR_GOOD come the ranks of whose death it knows, as one of them may
 * be why it leaves. */
enum { LEAVING, LEFT_FOR_GOOD, ANSWER };
enum { DEAD_TOLD = 256 };

/* What is heard first of a rank elsewhere stands. */
static void mark_gone(weft_i_world *world, int rank, weft_i_fate fate)
{
    int alive = WEFT_I_ALIVE;
    if (world->peers[rank].rank_record)
        return; /* its process tells */
    /* Relaxed: nothing hangs on it. */
    atomic_compare_exchange_strong_explicit(&world->peers[rank].gone, &alive, (int)fate,
                                            memory_order_relaxed, memory_order_relaxed);
}

static size_t list_dead(const weft_i_world *world, uint32_t dead[DEAD_TOLD])
{
    size_t count = 0;
    for (int rank = 0; rank < world->size && count < DEAD_TOLD; rank++)
        if (rank != world->rank && weft_i_world_fate(world, rank) == WEFT_ERR_PEER_DEAD)
            dead[count++] = (uint32_t)rank;
    return count;
}

static void mark_dead(weft_i_world *world, const char *data, size_t bytes)
{
    for (size_t at = 0; at + sizeof(uint32_t) <= bytes; at += sizeof(uint32_t)) {
        uint32_t rank;
        memcpy(&rank, data + at, sizeof rank);
        if (rank < (uint32_t)world->size && (int)rank != world->rank)
            mark_gone(world, (int)rank, WEFT_I_DEAD);
    }
}

static void take_left(weft_i_world *world, int from, const weft_i_head *head, const void *data,
                      size_t bytes)
{
    weft_i_remote *remote = world->remote;
    weft_i_pair *pair = remote->pairs[from];
    weft_i_head answer = {.kind = WEFT_I_HEAD_LEFT, .word = {ANSWER}};
    if (head->word[0] == LEAVING)
        weft_i_remote_tell(remote, from, &answer, NULL, 0);
    pair->answered |= head->word[0] == ANSWER;
    if (head->word[0] != LEFT_FOR_GOOD)
        return;
    pair->left = true;
    mark_dead(world, data, bytes);
    mark_gone(world, from, WEFT_I_LEFT);
}

static bool is_settled(const weft_i_remote *remote, int rank)
{
    const weft_i_pair *pair = remote->pairs[rank];
    return !pair || !pair->written || pair->answered || pair->left || pair->cut || pair->faulty ||
           weft_i_world_fate(remote->world, rank) < 0;
}

static bool all_settled(void *arg)
{
    weft_i_remote *remote = arg;
    bool all = true;
    weft_i_remote_enter(remote);
    for (int rank = 0; rank < remote->world->size && all; rank++)
        all = is_settled(remote, rank);
    weft_i_remote_give(remote);
    return all;
}

static bool nothing_under_way(void *arg)
{
    weft_i_remote *remote = arg;
    weft_i_remote_enter(remote);
    bool none = !remote->under_way;
    weft_i_remote_give(remote);
    return none;
}

static void wait_for(weft_i_remote *remote, bool (*ready)(void *arg), int64_t limit_ms)
{
    weft_i_wait wait = {.ready = ready,
                        .arg = remote,
                        .wheel = &remote->wheel,
                        .deadline = weft_i_os_deadline(limit_ms),
                        .mode = WEFT_I_WAIT_YIELD};
    weft_i_wait_for(&wait);
}

static void tell_all_leaving(weft_i_remote *remote, uint32_t what)
{
    uint32_t dead[DEAD_TOLD];
    size_t count = what == LEFT_FOR_GOOD ? list_dead(remote->world, dead) : 0;
    weft_i_head head = {.kind = WEFT_I_HEAD_LEFT, .word = {what}};
    weft_i_remote_enter(remote);
    for (int rank = 0; rank < remote->world->size; rank++) {
        const weft_i_pair *pair = remote->pairs[rank];
        if (pair && pair->written && !pair->left && !pair->cut && !pair->faulty &&
            weft_i_world_fate(remote->world, rank) == WEFT_OK)
            weft_i_remote_tell(remote, rank, &head, dead, count * sizeof *dead);
    }
    weft_i_remote_give(remote);
}

typedef struct flushing {
    weft_i_sent sent;
    weft_i_remote *remote;
} flushing;

static void on_flushed(weft_i_sent *sent, weft_status status)
{
    WEFT_ASSERT(((flushing *)(void *)sent)->remote->under_way > 0);
    flushing *mine = (flushing *)(void *)sent;
    (void)status;
    mine->remote->under_way--;
    WEFT_OS->free(mine);
}

/* What is in the library's buffers would be lost when the wire is closed. */
static void flush_all(weft_i_remote *remote)
{
    weft_i_remote_enter(remote);
    for (int rank = 0; rank < remote->world->size; rank++) {
        const weft_i_pair *pair = remote->pairs[rank];
        if (!pair || !pair->written || pair->cut || pair->faulty)
            continue;
        flushing *mine = WEFT_OS->alloc(sizeof *mine);
        if (!mine)
            continue;
        mine->sent.done = on_flushed;
        mine->remote = remote;
        remote->under_way++;
        if (remote->table->flush(remote->wire, rank, &mine->sent) != WEFT_IN_PROGRESS)
            on_flushed(&mine->sent, WEFT_OK);
    }
    weft_i_remote_give(remote);
    wait_for(remote, nothing_under_way, FLUSH_MS);
}

/* A wire whose descriptors are gone is left as it is. */
static void close_wire(weft_i_remote *remote)
{
    weft_i_remote_enter(remote);
    remote->started = false;
    if (remote->wire && !weft_i_remote_is_shut(remote))
        remote->table->close(remote->wire);
    remote->wire = NULL;
    weft_i_remote_give(remote);
}

/*
 * First everybody is asked whether what was sent has been taken: whoever hears that this rank has left
 * must not miss an arrival that another rank takes for it.
 */
void weft_i_remote_leave(weft_i_remote *remote)
{
    weft_i_errors before;
    if (!remote || !remote->started)
        return;
    weft_i_errors_save(&before);
    if (!weft_i_remote_is_shut(remote)) {
        tell_all_leaving(remote, LEAVING);
        wait_for(remote, all_settled, LEAVING_MS);
        tell_all_leaving(remote, LEFT_FOR_GOOD);
        flush_all(remote);
    }
    weft_i_remote_stop_thread(remote);
    close_wire(remote);
    weft_i_errors_restore(&before);
}

void weft_i_remote_drop(weft_i_remote *remote)
{
    if (!remote || remote->world->generation != weft_i_os_generation())
        return; /* a forked child: all of it is the parent's */
    if (remote->started)
        weft_i_remote_stop_thread(remote);
    close_wire(remote);
    WEFT_ASSERT(!remote->has_thread && !remote->wire);
    for (int rank = 0; rank < remote->world->size; rank++)
        weft_i_pair_free(remote->pairs[rank]);
    if (groups_forget)
        groups_forget(remote->groups);
    weft_i_keyed_forget(remote->secret, sizeof remote->secret);
    pthread_mutex_destroy(&remote->lock);
    WEFT_OS->free(remote->known);
    WEFT_OS->free(remote->pairs);
    WEFT_OS->free(remote);
}

__attribute__((constructor)) static void take_leaving(void)
{
    weft_i_remote_on(WEFT_I_HEAD_LEFT, take_left);
}

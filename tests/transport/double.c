/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A wire has a lock of its own, as that of UCX has, and two lists: what it has yet to do, and what has
 * come.  One more lock guards the lists of what has come, into which other ranks put theirs.  Time is
 * counted in calls of progress.
 */
#include "double.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/wire.h"
#include "transport/piece.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MAGIC = 0x4c424f44, ADDRESS_BYTES = 12, KEY_BYTES = 24, LATE = 24, MAPS = 8 };

/* What has come. */
typedef struct packet {
    struct packet *next;
    uint64_t due;
    unsigned char head[WEFT_I_HEAD_BYTES];
    bool piece;
    size_t bytes;
    unsigned char data[];
} packet;

typedef enum act_kind { SEND, STREAM, PUT, GET, FLUSH } act_kind;

/* What is yet to do. */
typedef struct act {
    struct act *next;
    act_kind kind;
    int peer;
    uint64_t due;
    weft_i_sent *sent;
    char *near, *far;
    size_t bytes;
} act;

typedef struct peer {
    bool known, faulty;
    unsigned drops;
} peer;

typedef struct wire {
    weft_i_transport_opts opts;
    pthread_mutex_t lock;
    bool inside;
    uint64_t dice, now, strays;
    act *acts;
    weft_i_expected expected;
    packet *come; /* with the net's lock */
    peer peers[DOUBLE_RANKS];
} wire;

typedef struct far {
    int peer;
    unsigned drops; /* how often it had been dropped by then */
    char *base;
    size_t bytes;
} far;

static struct {
    pthread_mutex_t lock; /* of wires[] and of what has come */
    pthread_mutex_t far;  /* of bytes in mapped memory: transfers come one after another */
    uint64_t seed;
    wire *wires[DOUBLE_RANKS];
    atomic_bool lost[DOUBLE_RANKS]; /* relaxed: it takes effect sooner or later */
    atomic_bool silent;
    struct {
        _Atomic(char *) base; /* release in map, acquire in reach; NULL: free */
        size_t bytes;
    } maps[DOUBLE_RANKS][MAPS];
} net = {.lock = PTHREAD_MUTEX_INITIALIZER, .far = PTHREAD_MUTEX_INITIALIZER};

static uint64_t roll(wire *of)
{
    of->dice ^= of->dice << 13;
    of->dice ^= of->dice >> 7;
    of->dice ^= of->dice << 17;
    return of->dice;
}

static uint64_t soon(wire *of)
{
    return of->now + roll(of) % LATE;
}

void double_start(uint64_t seed)
{
    net.seed = seed * 2654435761u + 88172645463325252u;
    for (int i = 0; i < DOUBLE_RANKS; i++)
        atomic_store_explicit(&net.lost[i], false, memory_order_relaxed);
    atomic_store_explicit(&net.silent, false, memory_order_relaxed);
}

void double_lose(int rank, bool silent)
{
    atomic_store_explicit(&net.silent, silent, memory_order_relaxed);
    atomic_store_explicit(&net.lost[rank], true, memory_order_relaxed);
}

static bool is_lost(int rank)
{
    return atomic_load_explicit(&net.lost[rank], memory_order_relaxed);
}

static int probe(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "threads of one process");
    return 1;
}

static weft_status open_wire(const weft_i_transport_opts *opts, void **out)
{
    if (opts->ranks > DOUBLE_RANKS || opts->rank < 0 || opts->rank >= opts->ranks)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d of %d", opts->rank, opts->ranks);
    wire *mine = WEFT_OS->alloc(sizeof *mine);
    if (!mine)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a wire");
    mine->opts = *opts;
    mine->dice = net.seed + (uint64_t)opts->rank * 977 + 1;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mine->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    pthread_mutex_lock(&net.lock);
    net.wires[opts->rank] = mine;
    pthread_mutex_unlock(&net.lock);
    *out = mine;
    return WEFT_OK;
}

static size_t address(void *of, void *out, size_t bytes)
{
    wire *mine = of;
    if (bytes < ADDRESS_BYTES)
        return ADDRESS_BYTES;
    weft_i_wire_writer to = weft_i_wire_write(out, bytes);
    weft_i_wire_put_u32(&to, MAGIC);
    weft_i_wire_put_u64(&to, (uint64_t)mine->opts.rank);
    return ADDRESS_BYTES;
}

static weft_status check_rank(const wire *mine, int rank)
{
    return rank < 0 || rank >= mine->opts.ranks || rank == mine->opts.rank
               ? weft_i_fail(WEFT_ERR_INVALID_ARG, "there is no peer %d", rank)
               : WEFT_OK;
}

static weft_status connect_peer(void *of, int rank, const void *shown, size_t bytes)
{
    wire *mine = of;
    WEFT_TRY(check_rank(mine, rank));
    weft_i_wire_reader from = weft_i_wire_read(shown, bytes);
    bool ours = weft_i_wire_get_u32(&from) == MAGIC;
    ours &= weft_i_wire_get_u64(&from) == (uint64_t)rank;
    if (!ours || !weft_i_wire_done(&from))
        return weft_i_fail(WEFT_ERR_PROTOCOL, "that is no address of rank %d", rank);
    pthread_mutex_lock(&mine->lock);
    bool known = mine->peers[rank].known;
    mine->peers[rank].known = true;
    pthread_mutex_unlock(&mine->lock);
    return known ? weft_i_fail(WEFT_ERR_EXISTS, "rank %d is connected", rank) : WEFT_OK;
}

/* With the lock. */
static weft_status check_peer(const wire *mine, int rank)
{
    WEFT_TRY(check_rank(mine, rank));
    if (!mine->peers[rank].known || mine->peers[rank].faulty)
        return weft_i_fail(WEFT_ERR_UNREACHABLE, "rank %d cannot be reached", rank);
    return WEFT_OK;
}

static weft_status add(wire *mine, act_kind kind, int rank, weft_i_sent *sent, act **out)
{
    *out = NULL;
    WEFT_TRY(check_peer(mine, rank));
    if (roll(mine) % 64 == 0)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "the double refuses");
    act *made = WEFT_OS->alloc(sizeof *made);
    if (!made)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for an act");
    sent->peer = rank;
    *made = (act){.kind = kind, .peer = rank, .sent = sent, .due = soon(mine)};
    act **at = &mine->acts;
    while (*at)
        at = &(*at)->next;
    *at = made;
    *out = made;
    return WEFT_IN_PROGRESS;
}

/* Hands it to a rank, at whose wire it is due some time later. */
static void deliver(wire *mine, int rank, const void *head, bool piece, const void *data,
                    size_t bytes)
{
    packet *made = WEFT_OS->alloc(sizeof *made + bytes);
    if (!made)
        return; /* lost, as others are */
    memcpy(made->head, head, piece ? WEFT_I_PIECE_HEAD_BYTES : WEFT_I_HEAD_BYTES);
    made->piece = piece;
    made->bytes = bytes;
    if (bytes)
        memcpy(made->data, data, bytes);
    pthread_mutex_lock(&net.lock);
    wire *there = net.wires[rank];
    if (there && !is_lost(rank)) {
        made->due = roll(mine) % LATE; /* from when it is seen there */
        packet **at = &there->come;
        while (*at)
            at = &(*at)->next;
        *at = made;
        made = NULL;
    }
    pthread_mutex_unlock(&net.lock);
    WEFT_OS->free(made);
}

static weft_status send_message(void *of, int rank, const weft_i_head *head, const void *data,
                                size_t bytes, weft_i_sent *sent)
{
    wire *mine = of;
    act *made;
    if (bytes > WEFT_I_PIECE_BYTES)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a message of %zu bytes", bytes);
    pthread_mutex_lock(&mine->lock);
    weft_status status = check_peer(mine, rank);
    if (status == WEFT_OK && roll(mine) % 2) { /* at once */
        weft_i_head_write(head, sent->head);
        deliver(mine, rank, sent->head, false, data, bytes);
    } else if (status == WEFT_OK) {
        status = add(mine, SEND, rank, sent, &made);
        if (made) {
            weft_i_head_write(head, sent->head);
            made->near = (char *)(uintptr_t)data;
            made->bytes = bytes;
        }
    }
    pthread_mutex_unlock(&mine->lock);
    return status;
}

static weft_status expect(void *of, int rank, uint64_t tag, void *to, size_t bytes,
                          weft_i_sent *sent)
{
    wire *mine = of;
    WEFT_TRY(check_rank(mine, rank));
    pthread_mutex_lock(&mine->lock);
    weft_status status = weft_i_expected_add(&mine->expected, rank, tag, to, bytes, sent);
    pthread_mutex_unlock(&mine->lock);
    return status == WEFT_OK ? WEFT_IN_PROGRESS : status;
}

static weft_status stream(void *of, int rank, uint64_t tag, const void *from, size_t bytes,
                          weft_i_sent *sent)
{
    wire *mine = of;
    act *made;
    pthread_mutex_lock(&mine->lock);
    weft_status status = add(mine, STREAM, rank, sent, &made);
    if (made) {
        sent->tag = tag;
        sent->memory = (char *)(uintptr_t)from;
        sent->bytes = bytes;
        sent->at = 0;
    }
    pthread_mutex_unlock(&mine->lock);
    return status;
}

static weft_status map(void *of, void *base, size_t bytes, void *key, size_t *key_bytes,
                       void **mapped)
{
    wire *mine = of;
    *mapped = NULL;
    if (*key_bytes < KEY_BYTES)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a key has %d bytes", KEY_BYTES);
    for (int i = 0; base && bytes && i < MAPS; i++) {
        if (atomic_load_explicit(&net.maps[mine->opts.rank][i].base, memory_order_relaxed))
            continue; /* only this rank writes its own */
        net.maps[mine->opts.rank][i].bytes = bytes;
        /* Pairs with the acquire in reach. */
        atomic_store_explicit(&net.maps[mine->opts.rank][i].base, base, memory_order_release);
        weft_i_wire_writer to = weft_i_wire_write(key, *key_bytes);
        weft_i_wire_put_u32(&to, MAGIC);
        weft_i_wire_put_u32(&to, (uint32_t)i);
        weft_i_wire_put_u64(&to, (uint64_t)mine->opts.rank);
        weft_i_wire_put_u64(&to, bytes);
        *key_bytes = KEY_BYTES;
        *mapped = &net.maps[mine->opts.rank][i];
        return WEFT_OK;
    }
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "this cannot be mapped");
}

static void unmap(void *of, void *mapped)
{
    (void)of;
    if (mapped)
        atomic_store_explicit((_Atomic(char *) *)mapped, NULL, memory_order_relaxed);
}

static weft_status reach(void *of, int rank, const void *key, size_t key_bytes, void **out)
{
    wire *mine = of;
    *out = NULL;
    WEFT_TRY(check_rank(mine, rank));
    weft_i_wire_reader from = weft_i_wire_read(key, key_bytes);
    bool ours = weft_i_wire_get_u32(&from) == MAGIC;
    uint32_t index = weft_i_wire_get_u32(&from);
    ours &= weft_i_wire_get_u64(&from) == (uint64_t)rank;
    uint64_t bytes = weft_i_wire_get_u64(&from);
    if (!ours || !weft_i_wire_done(&from) || index >= MAPS)
        return weft_i_fail(WEFT_ERR_PROTOCOL, "that is no key of rank %d", rank);
    char *base = atomic_load_explicit(&net.maps[rank][index].base, memory_order_acquire);
    if (!base || net.maps[rank][index].bytes != bytes)
        return weft_i_fail(WEFT_ERR_PROTOCOL, "rank %d has not mapped that", rank);
    far *made = WEFT_OS->alloc(sizeof *made);
    if (!made)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a key");
    pthread_mutex_lock(&mine->lock);
    *made = (far){.peer = rank, .drops = mine->peers[rank].drops, .base = base, .bytes = bytes};
    pthread_mutex_unlock(&mine->lock);
    *out = made;
    return WEFT_OK;
}

static void leave(void *of, void *mine)
{
    (void)of;
    WEFT_OS->free(mine);
}

static weft_status move(wire *mine, act_kind kind, far *there, size_t at, char *here, size_t bytes,
                        weft_i_sent *sent)
{
    act *made;
    if (at > there->bytes || bytes > there->bytes - at)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%zu bytes at %zu are outside", bytes, at);
    pthread_mutex_lock(&mine->lock);
    weft_status status = WEFT_ERR_UNREACHABLE;
    if (there->drops != mine->peers[there->peer].drops)
        made = NULL, weft_i_fail(status, "rank %d was dropped", there->peer);
    else
        status = add(mine, kind, there->peer, sent, &made);
    if (made) {
        made->near = here;
        made->far = there->base + at;
        made->bytes = bytes;
    }
    pthread_mutex_unlock(&mine->lock);
    return status;
}

static weft_status put(void *of, void *there, size_t at, const void *from, size_t bytes,
                       weft_i_sent *sent)
{
    return move(of, PUT, there, at, (char *)(uintptr_t)from, bytes, sent);
}

static weft_status get(void *of, void *there, size_t at, void *to, size_t bytes, weft_i_sent *sent)
{
    return move(of, GET, there, at, to, bytes, sent);
}

static weft_status flush(void *of, int rank, weft_i_sent *sent)
{
    wire *mine = of;
    act *made;
    pthread_mutex_lock(&mine->lock);
    weft_status status = add(mine, FLUSH, rank, sent, &made);
    for (act *at = mine->acts; made && at; at = at->next)
        if (at->kind == PUT && at->peer == rank && at->due >= made->due)
            made->due = at->due + 1;
    pthread_mutex_unlock(&mine->lock);
    return status;
}

static void copy_far(void *to, const void *from, size_t bytes)
{
    pthread_mutex_lock(&net.far);
    memcpy(to, from, bytes);
    pthread_mutex_unlock(&net.far);
}

/* True: it is over. */
static bool perform(wire *mine, act *now)
{
    weft_i_sent *sent = now->sent;
    unsigned char head[WEFT_I_PIECE_HEAD_BYTES];
    switch (now->kind) {
    case SEND:
        deliver(mine, now->peer, sent->head, false, now->near, now->bytes);
        return true;
    case STREAM: {
        weft_i_stream_piece piece = weft_i_piece_cut(sent, mine->opts.rank);
        weft_i_piece_write(&piece, head);
        deliver(mine, now->peer, head, true, sent->memory + piece.at, piece.bytes);
        return sent->at == sent->bytes;
    }
    case PUT:
        copy_far(now->far, now->near, now->bytes);
        return true;
    case GET:
        copy_far(now->near, now->far, now->bytes);
        return true;
    default:
        return true;
    }
}

/* What is due; to a rank that is lost nothing gets through. */
static int perform_all(wire *mine)
{
    int moved = 0;
    for (act **at = &mine->acts; *at;) {
        act *now = *at;
        bool lost = is_lost(now->peer);
        if (lost || now->due > mine->now || (moved++, !perform(mine, now))) {
            at = &now->next;
            continue;
        }
        *at = now->next;
        weft_i_sent *sent = now->sent;
        WEFT_OS->free(now);
        weft_i_sent_end(sent, WEFT_OK);
        at = &mine->acts; /* whoever was told may have added some */
    }
    return moved;
}

static packet *take(wire *mine)
{
    pthread_mutex_lock(&net.lock);
    packet **at = &mine->come, *found;
    for (; (found = *at) && found->due; at = &found->next)
        found->due--;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&net.lock);
    return found;
}

static void hear(wire *mine, const packet *come)
{
    weft_i_stream_piece piece;
    weft_i_sent *over = NULL;
    if (!come->piece) {
        mine->opts.on_message(mine->opts.arg, come->head, come->data, come->bytes);
        return;
    }
    weft_i_piece_turn turn = WEFT_I_PIECE_STRAY;
    if (weft_i_piece_read(come->head, come->bytes, mine->opts.rank, mine->opts.ranks, &piece))
        turn = weft_i_expected_take(&mine->expected, &piece, come->data, &over);
    mine->strays += turn == WEFT_I_PIECE_STRAY;
    if (turn == WEFT_I_PIECE_LAST)
        weft_i_sent_end(over, over->status);
}

static int hear_all(wire *mine)
{
    int moved = 0;
    for (packet *come; moved < 16 && (come = take(mine)); moved++) {
        hear(mine, come);
        WEFT_OS->free(come);
    }
    return moved;
}

static void tell(wire *mine)
{
    bool silent = atomic_load_explicit(&net.silent, memory_order_relaxed);
    for (int rank = 0; rank < mine->opts.ranks; rank++)
        if (mine->peers[rank].known && !mine->peers[rank].faulty && is_lost(rank) && !silent) {
            mine->peers[rank].faulty = true;
            mine->opts.on_fault(mine->opts.arg, rank, WEFT_ERR_UNREACHABLE, "the double lost it");
        }
}

static int progress(void *of)
{
    wire *mine = of;
    int moved = 0;
    if (pthread_mutex_trylock(&mine->lock))
        return 0;
    if (!mine->inside) {
        mine->inside = true;
        mine->now++;
        moved = perform_all(mine) + hear_all(mine);
        tell(mine);
        mine->inside = false;
    }
    pthread_mutex_unlock(&mine->lock);
    return moved;
}

static void drop(void *of, int rank)
{
    wire *mine = of;
    weft_i_sent *sent;
    pthread_mutex_lock(&mine->lock);
    mine->peers[rank] = (peer){.drops = mine->peers[rank].drops + 1};
    for (act **at = &mine->acts; *at;) {
        act *now = *at;
        if (now->peer != rank) {
            at = &now->next;
            continue;
        }
        *at = now->next;
        sent = now->sent;
        WEFT_OS->free(now);
        weft_i_sent_end(sent, WEFT_ERR_CANCELLED);
        at = &mine->acts;
    }
    while ((sent = weft_i_expected_remove(&mine->expected, rank)))
        weft_i_sent_end(sent, WEFT_ERR_CANCELLED);
    pthread_mutex_unlock(&mine->lock);
}

static int door(void *of)
{
    (void)of;
    return -1;
}

static bool arm(void *of)
{
    (void)of;
    return false;
}

static void facts(void *of, weft_i_transport_facts *out)
{
    (void)of;
    *out = (weft_i_transport_facts){.segment = WEFT_I_PIECE_BYTES};
}

static uint64_t strays(void *of)
{
    wire *mine = of;
    pthread_mutex_lock(&mine->lock);
    uint64_t count = mine->strays;
    pthread_mutex_unlock(&mine->lock);
    return count;
}

static void close_wire(void *of)
{
    wire *mine = of;
    for (int rank = 0; rank < mine->opts.ranks; rank++)
        drop(mine, rank);
    pthread_mutex_lock(&net.lock);
    net.wires[mine->opts.rank] = NULL;
    packet *come = mine->come;
    pthread_mutex_unlock(&net.lock);
    for (packet *next; come; come = next) {
        next = come->next;
        WEFT_OS->free(come);
    }
    pthread_mutex_destroy(&mine->lock);
    WEFT_OS->free(mine);
}

const weft_i_transport double_transport = {
    .name = "double",
    .probe = probe,
    .open = open_wire,
    .address = address,
    .connect = connect_peer,
    .send = send_message,
    .expect = expect,
    .stream = stream,
    .map = map,
    .unmap = unmap,
    .reach = reach,
    .leave = leave,
    .put = put,
    .get = get,
    .flush = flush,
    .drop = drop,
    .progress = progress,
    .door = door,
    .arm = arm,
    .facts = facts,
    .strays = strays,
    .close = close_wire,
};

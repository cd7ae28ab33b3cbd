/* SPDX-License-Identifier: Apache-2.0 */
/* Moves between hosts, and the lane that has them; see ferry.h. */
#include "coll/lane/ferry.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/lane/list.h"
#include "fabric/world/remote.h"

#include <stdio.h>
#include <string.h>

/* The words of a DATA message. */
enum {
    WORD_TRY, /* how often the sender has tried to enter, with the call that the piece belongs to */
    WORD_TAKEN, /* pieces that the sender has taken */
    WORD_LEFT,  /* bytes of its move, with this piece; 0: a message without a piece */
    WORD_SERIAL /* of the piece, from this sender */
};

struct weft_i_ferry_piece {
    weft_i_ferry_piece *next;
    uint32_t attempt, left;
    size_t bytes;
    char data[];
};

static weft_i_ferry *ferry_of(const weft_group *group)
{
    const weft_i_lane *lane = group->lane;
    return lane ? lane->ferry : NULL;
}

/* ---- what comes ---- */

static void break_off(weft_i_ferry *ferry, int from, weft_status why)
{
    if (ferry->broken)
        return;
    ferry->broken = why;
    ferry->breaker = from;
}

/* Only what the sender waits for makes a message of its own. */
static void note_taken(weft_i_ferry *ferry, int from)
{
    weft_i_ferry_partner *p = &ferry->partner[from];
    p->taken++;
    if (p->taken - p->told < WEFT_I_FERRY_WINDOW / 2)
        return;
    const uint32_t word[WEFT_I_HEAD_WORDS] = {[WORD_TAKEN] = p->taken};
    if (weft_i_hosts_tell(ferry->group, from, WEFT_I_HEAD_DATA, word, NULL, 0) >= 0)
        p->told = p->taken;
}

/* The first unfinished move that receives from the member. */
static weft_i_ferry_move *awaited(weft_i_ferry *ferry, int from)
{
    for (int i = 0; i < ferry->count; i++)
        if (ferry->running[i].member == from && !ferry->running[i].sends &&
            ferry->running[i].at < ferry->running[i].bytes)
            return &ferry->running[i];
    return NULL;
}

/* Copies a piece to where it belongs, if it is the one that is due.  One of a try to enter that its
 * sender has given up is dropped. */
static void place(weft_i_ferry *ferry, int from, weft_i_ferry_move *move, uint32_t attempt,
                  uint32_t left, const void *data, size_t bytes)
{
    size_t rest = move->bytes - move->at;
    uint32_t due = ferry->partner[from].attempt;
    if ((int32_t)(attempt - due) < 0) {
        note_taken(ferry, from);
        return;
    }
    if (attempt != due || left != (uint32_t)rest ||
        bytes != weft_i_coll_min(rest, WEFT_I_FERRY_PIECE)) {
        break_off(ferry, from, WEFT_ERR_PROTOCOL);
        return;
    }
    memcpy(move->data + move->at, data, bytes);
    move->at += bytes;
    note_taken(ferry, from);
}

static void keep(weft_i_ferry *ferry, int from, const weft_i_head *head, const void *data,
                 size_t bytes)
{
    weft_i_ferry_partner *p = &ferry->partner[from];
    weft_i_ferry_piece *piece = WEFT_OS->alloc(sizeof *piece + bytes);
    if (!piece) {
        break_off(ferry, from, WEFT_ERR_NO_MEMORY);
        return;
    }
    *piece = (weft_i_ferry_piece){NULL, head->word[WORD_TRY], head->word[WORD_LEFT], bytes};
    memcpy(piece->data, data, bytes);
    if (p->last)
        p->last->next = piece;
    else
        p->first = piece;
    p->last = piece;
}

static int kept(const weft_i_ferry_partner *p)
{
    int n = 0;
    for (const weft_i_ferry_piece *piece = p->first; piece; piece = piece->next)
        n++;
    return n;
}

/* In whichever thread drives the transport, under its lock. */
static bool take_data(weft_group *group, int from, const weft_i_head *head, const void *data,
                      size_t bytes)
{
    weft_i_ferry *ferry = ferry_of(group);
    if (!ferry)
        return false; /* there is no lane yet */
    weft_i_ferry_partner *p = &ferry->partner[from];
    uint32_t acked = head->word[WORD_TAKEN];
    if ((int32_t)(acked - p->acked) > 0 && (int32_t)(p->sent - acked) >= 0)
        p->acked = acked;
    if (!head->word[WORD_LEFT])
        return true;
    weft_i_ferry_move *move = p->first ? NULL : awaited(ferry, from);
    if (!bytes || head->word[WORD_SERIAL] != p->taken + (uint32_t)kept(p) ||
        kept(p) >= WEFT_I_FERRY_WINDOW)
        break_off(ferry, from, WEFT_ERR_PROTOCOL);
    else if (move)
        place(ferry, from, move, head->word[WORD_TRY], head->word[WORD_LEFT], data, bytes);
    else
        keep(ferry, from, head, data, bytes);
    return true;
}

__attribute__((constructor)) static void take_messages(void)
{
    weft_i_hosts_on(WEFT_I_HEAD_DATA, take_data);
}

/* ---- moving ---- */

static bool is_over(const weft_i_ferry_move *move)
{
    return move->at == move->bytes;
}

static void take_kept(weft_i_ferry *ferry, weft_i_ferry_move *move)
{
    weft_i_ferry_partner *p = &ferry->partner[move->member];
    while (p->first && !is_over(move) && !ferry->broken) {
        weft_i_ferry_piece *piece = p->first;
        p->first = piece->next;
        if (!p->first)
            p->last = NULL;
        place(ferry, move->member, move, piece->attempt, piece->left, piece->data, piece->bytes);
        WEFT_OS->free(piece);
    }
}

/* A member that cannot be reached is left to whoever looks at its fate. */
static void send_more(weft_i_ferry *ferry, weft_i_ferry_move *move)
{
    weft_i_ferry_partner *p = &ferry->partner[move->member];
    while (!is_over(move) && p->sent - p->acked < WEFT_I_FERRY_WINDOW) {
        size_t rest = move->bytes - move->at, bytes = weft_i_coll_min(rest, WEFT_I_FERRY_PIECE);
        const uint32_t word[WEFT_I_HEAD_WORDS] = {[WORD_TRY] = ferry->attempts,
                                                  [WORD_TAKEN] = p->taken,
                                                  [WORD_LEFT] = (uint32_t)rest,
                                                  [WORD_SERIAL] = p->sent};
        if (weft_i_hosts_tell(ferry->group, move->member, WEFT_I_HEAD_DATA, word,
                              move->data + move->at, bytes) < 0)
            return;
        p->told = p->taken;
        p->sent++;
        move->at += bytes;
    }
}

/* Moves what can be moved; true if all is over. */
static bool advance(weft_i_ferry *ferry)
{
    bool over = true;
    ferry->turn++;
    for (int i = 0; i < ferry->count; i++) {
        weft_i_ferry_move *move = &ferry->running[i];
        uint32_t *turn = move->sends ? &ferry->partner[move->member].out_turn
                                     : &ferry->partner[move->member].in_turn;
        if (is_over(move))
            continue;
        if (*turn != ferry->turn) { /* else one before it is not over */
            if (move->sends)
                send_more(ferry, move);
            else
                take_kept(ferry, move);
        }
        if (!is_over(move)) {
            *turn = ferry->turn;
            over = false;
        }
    }
    return over;
}

static bool are_over(void *arg)
{
    weft_i_ferry *ferry = arg;
    weft_i_remote *remote = ferry->group->world->remote;
    weft_i_remote_enter(remote);
    bool over = advance(ferry) || ferry->broken;
    weft_i_remote_give(remote);
    return over;
}

/* Is a move with the member unfinished? */
static bool is_owed(void *arg, int member)
{
    weft_i_ferry *ferry = arg;
    weft_i_remote *remote = ferry->group->world->remote;
    bool owed = false;
    weft_i_remote_enter(remote);
    for (int i = 0; i < ferry->count && !owed; i++)
        owed = ferry->running[i].member == member && !is_over(&ferry->running[i]);
    weft_i_remote_give(remote);
    return owed;
}

static weft_status fail_broken(const weft_i_coll *coll)
{
    const weft_i_ferry *ferry = coll->lane->ferry;
    const char *why = ferry->broken == WEFT_ERR_NO_MEMORY ? "there is no memory to keep what came"
                                                          : "what came does not belong to the call";
    weft_i_group_concerns(coll->group);
    return weft_i_fail(ferry->broken, "%s in group \"%s\": data of rank %d: %s", coll->ask.op,
                       coll->group->name, ferry->breaker, why);
}

/* Errors of the group end it for all: the others are in the middle of the operation. */
static weft_status run_to_end(weft_i_coll *coll)
{
    weft_i_ferry *ferry = coll->lane->ferry;
    weft_status status =
        weft_i_hosts_wait_for_owed(&coll->label, are_over, is_owed, ferry, coll->ask.limit_ms);
    if (status >= 0 && ferry->broken)
        status = fail_broken(coll);
    return status;
}

void weft_i_ferry_send_early(weft_i_coll *coll, int count)
{
    weft_i_ferry *ferry = coll->lane->ferry;
    weft_i_remote_enter(coll->group->world->remote);
    ferry->turn++;
    for (int i = 0; i < count; i++) {
        weft_i_ferry_move *move = &ferry->moves[i];
        weft_i_ferry_partner *p = &ferry->partner[move->member];
        if (move->sends && p->out_turn != ferry->turn)
            send_more(ferry, move);
        if (move->sends && !is_over(move))
            p->out_turn = ferry->turn;
    }
    weft_i_remote_give(coll->group->world->remote);
}

weft_status weft_i_ferry_run(weft_i_coll *coll, int count)
{
    weft_i_ferry *ferry = coll->lane->ferry;
    weft_i_remote *remote = coll->group->world->remote;
    if (!count)
        return WEFT_OK;
    for (int i = 0; i < count; i++)
        WEFT_ASSERT(ferry->moves[i].bytes <= UINT32_MAX);
    weft_i_remote_enter(remote);
    ferry->running = ferry->moves;
    ferry->count = count;
    bool over = advance(ferry);
    weft_i_remote_give(remote);
    weft_status status = over && !ferry->broken ? WEFT_OK : run_to_end(coll);
    weft_i_remote_enter(remote);
    ferry->running = NULL;
    ferry->count = 0;
    weft_i_remote_give(remote);
    if (status < 0)
        weft_i_group_spoil(coll->group, status);
    return status;
}

/* ---- the lane ---- */

weft_status weft_i_ferry_make_room(weft_i_coll *coll, int which, size_t bytes)
{
    weft_i_ferry *ferry = coll->lane->ferry;
    if (ferry->room_bytes[which] >= bytes)
        return WEFT_OK;
    char *room = WEFT_OS->alloc(bytes);
    if (!room)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s in group \"%s\": no memory for %zu bytes",
                           coll->ask.op, coll->group->name, bytes);
    WEFT_OS->free(ferry->room[which]);
    ferry->room[which] = room;
    ferry->room_bytes[which] = bytes;
    return WEFT_OK;
}

void weft_i_ferry_fold(weft_i_coll *coll, int outputs, size_t count)
{
    weft_i_lane *lane = coll->lane;
    weft_i_ferry *ferry = lane->ferry;
    ferry->order.dtype = coll->ask.dtype;
    ferry->order.op = (weft_i_fold_op)coll->ask.reduction;
    for (int i = 0; i < lane->size; i++) {
        ferry->sources[i] = lane->sources[ferry->ranks[i]];
        ferry->factors[i] = lane->factors[ferry->ranks[i]];
    }
    if (count)
        weft_i_fold_hosts_run(&ferry->order, lane->targets, outputs, ferry->sources, count,
                              ferry->factors);
}

static void drop_kept(weft_i_ferry *ferry)
{
    for (int rank = 0; rank < ferry->group->size; rank++)
        for (weft_i_ferry_piece *piece = ferry->partner[rank].first, *next; piece; piece = next) {
            next = piece->next;
            WEFT_OS->free(piece);
        }
}

void weft_i_ferry_free(weft_i_ferry *ferry)
{
    if (!ferry)
        return;
    if (ferry->partner)
        drop_kept(ferry);
    for (int i = 0; i < 2; i++)
        WEFT_OS->free(ferry->room[i]);
    weft_i_object_drop(ferry->list);
    WEFT_OS->free(ferry->partner);
    WEFT_OS->free(ferry->moves);
    WEFT_OS->free(ferry->firsts);
    WEFT_OS->free(ferry->ranks);
    WEFT_OS->free(ferry->sources);
    WEFT_OS->free(ferry->factors);
    WEFT_OS->free(ferry->notes);
    WEFT_OS->free(ferry);
}

/* Which inputs come from which host, in the order of the sum. */
static void find_order(weft_i_ferry *ferry)
{
    const weft_i_hosts *hosts = ferry->group->hosts;
    int n = 0;
    for (int h = 0; h < hosts->count; h++) {
        ferry->firsts[h] = n;
        for (int i = 0; i < hosts->host[h].count; i++)
            ferry->ranks[n++] = hosts->host[h].members[i];
    }
    ferry->firsts[hosts->count] = n;
    ferry->order = (weft_i_fold_hosts){.hosts = hosts->count, .firsts = ferry->firsts};
}

static weft_i_ferry *ferry_new(weft_group *group)
{
    size_t size = (size_t)group->size, hosts = (size_t)group->hosts->count;
    weft_i_ferry *ferry = WEFT_OS->alloc(sizeof *ferry);
    if (!ferry)
        return NULL;
    memset(ferry, 0, sizeof *ferry);
    ferry->group = group;
    ferry->room_moves = (int)(2 * size + hosts);
    ferry->partner = WEFT_OS->alloc(size * sizeof *ferry->partner);
    ferry->moves = WEFT_OS->alloc((size_t)ferry->room_moves * sizeof *ferry->moves);
    ferry->firsts = WEFT_OS->alloc((hosts + 1) * sizeof *ferry->firsts);
    ferry->ranks = WEFT_OS->alloc(size * sizeof *ferry->ranks);
    ferry->sources = WEFT_OS->alloc(size * sizeof *ferry->sources);
    ferry->factors = WEFT_OS->alloc(size * sizeof *ferry->factors);
    ferry->notes = WEFT_OS->alloc(size * WEFT_I_LANE_NOTE_BYTES);
    ferry->list = weft_i_list_new((size_t)group->hosts->near->size);
    if (ferry->partner)
        memset(ferry->partner, 0, size * sizeof *ferry->partner);
    if (ferry->partner && ferry->moves && ferry->firsts && ferry->ranks && ferry->sources &&
        ferry->factors && ferry->notes && ferry->list)
        return ferry;
    weft_i_ferry_free(ferry);
    return NULL;
}

weft_status weft_i_ferry_open(weft_group *group)
{
    weft_i_tune_load();
    weft_i_lane *lane = weft_i_lane_allocate(group);
    if (!lane)
        return weft_last_status();
    lane->ferry = ferry_new(group);
    if (!lane->ferry) {
        weft_i_object_drop(lane);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the lane of %d ranks", group->size);
    }
    find_order(lane->ferry);
    lane->heads = (char *)&lane->ferry->head;
    lane->entry = lane->steps = weft_i_hosts_point(group, WEFT_I_HOSTS_LANE, false);
    lane->entered = &group->calls.entries;
    weft_i_lane_make_stays(lane);
    weft_i_remote_enter(group->world->remote);
    group->lane = lane; /* under the lock, for take_data */
    weft_i_remote_give(group->world->remote);
    weft_i_hosts_again(group);
    return WEFT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives in a group that spans hosts.  Members of this host use the rings of the lane that
 * they have together.  Towards a member elsewhere a ring has two halves: the sender's, in its memory, and
 * the receiver's, which messages make equal to it.  A slot goes out as a LETTER, with its piece; what the
 * receiver has taken comes back.  So matching, tags, and what is kept are those of one host, and nobody
 * keeps more of a slow rank's messages than a ring holds.
 */
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/wire.h"
#include "coll/p2p/p2p.h"
#include "fabric/group/hosts.h"

#include <string.h>

enum {
    TELL_SLOTS = 8,       /* that were taken, until the sender is told */
    PIECE_HEAD_BYTES = 12 /* before a piece: bytes of the message, and where in the room it lies */
};

struct weft_i_p2p_far {
    weft_group *group;
    int member;
    _Atomic uint32_t
        shown;     /* slots that have gone out; relaxed: written under the lock of requests, and
                               what has been taken is compared with it */
    uint32_t told; /* slots that the sender knows to be taken */
    size_t untold; /* bytes in those that it does not know of */
};

/* ---- who is where ---- */

_Atomic uint32_t *weft_i_p2p_bell(const weft_i_lane *lane, int rank)
{
    const weft_i_hosts *hosts = lane->p2p->hosts;
    if (!hosts)
        return &weft_i_lane_head_of(lane, rank)->p2p_bell;
    return hosts->away[rank]
               ? NULL
               : &weft_i_lane_head_of(hosts->near->lane, hosts->index_of[rank])->p2p_bell;
}

const weft_i_wheel *weft_i_p2p_wheel(const weft_i_lane *lane)
{
    const weft_i_hosts *hosts = lane->p2p->hosts;
    return hosts ? weft_i_remote_wheel(hosts->group->world->remote) : NULL;
}

void weft_i_p2p_drive(const weft_i_lane *lane)
{
    weft_i_remote_drive(lane->p2p->hosts->group->world->remote);
}

/* ---- sending ---- */

/* False: there is no memory for it now. */
static bool send_slot(weft_i_p2p_peer *pair, uint32_t before)
{
    unsigned char data[PIECE_HEAD_BYTES + WEFT_I_RING_ROOM_MAX / 4];
    weft_i_p2p_far *far = pair->far;
    const weft_i_ring_slot *slot = weft_i_ring_slot_at(pair->out_ring, before);
    bool is_short = slot->kind == WEFT_I_RING_SLOT_SHORT;
    /* Relaxed: we have written it. */
    uint64_t number = atomic_load_explicit(&slot->number, memory_order_relaxed);
    uint32_t word[WEFT_I_HEAD_WORDS] = {before, (uint32_t)(number >> 32), (uint32_t)slot->tag,
                                        slot->kind};
    size_t bytes = slot->length;
    weft_i_wire_writer to = weft_i_wire_write(data, sizeof data);
    if (is_short) {
        weft_i_wire_put_bytes(&to, slot->text, bytes);
    } else {
        weft_i_wire_put_u64(&to, slot->piece.bytes);
        weft_i_wire_put_u32(&to, slot->piece.at);
        weft_i_wire_put_bytes(&to, pair->out_ring->room + slot->piece.at, slot->piece.length);
    }
    /* A member that cannot be reached is lost, which is found out elsewhere. */
    return weft_i_hosts_tell(far->group, far->member, WEFT_I_HEAD_LETTER, word, data, to.at) !=
           WEFT_ERR_NO_MEMORY;
}

bool weft_i_p2p_is_behind(const weft_i_p2p_peer *pair)
{
    return pair->far && atomic_load_explicit(&pair->far->shown, memory_order_relaxed) != pair->sent;
}

void weft_i_p2p_send_slots(weft_i_p2p_peer *pair)
{
    weft_i_p2p_far *far = pair->far;
    weft_i_errors before; /* nobody's call fails by it */
    weft_i_errors_save(&before);
    uint32_t shown = atomic_load_explicit(&far->shown, memory_order_relaxed);
    while (shown != pair->sent) {
        /* First: the answer may come before the call returns. */
        atomic_store_explicit(&far->shown, shown + 1, memory_order_relaxed);
        if (!send_slot(pair, shown)) {
            atomic_store_explicit(&far->shown, shown, memory_order_relaxed);
            break;
        }
        shown++;
    }
    weft_i_errors_restore(&before);
}

/* ---- receiving ---- */

static void tell_number(const weft_i_p2p_far *far, weft_i_head_kind kind, uint64_t number)
{
    uint32_t word[WEFT_I_HEAD_WORDS] = {(uint32_t)number, (uint32_t)(number >> 32)};
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_hosts_tell(far->group, far->member, kind, word, NULL, 0);
    weft_i_errors_restore(&before);
}

void weft_i_p2p_tell_taken(const weft_i_lane *lane, weft_i_p2p_peer *pair)
{
    weft_i_p2p_far *far = pair->far;
    uint32_t taken = weft_i_p2p_taken(pair);
    if (taken - far->told < TELL_SLOTS && far->untold < lane->p2p->room / 4)
        return;
    tell_number(far, WEFT_I_HEAD_LETTERS, taken);
    far->told = taken;
    far->untold = 0;
}

void weft_i_p2p_count_piece(weft_i_p2p_peer *pair, size_t bytes)
{
    if (pair->far)
        pair->far->untold += bytes;
}

void weft_i_p2p_tell_refused(const weft_i_p2p_peer *pair, uint64_t wanted)
{
    if (pair->far)
        tell_number(pair->far, WEFT_I_HEAD_REFUSED, wanted);
}

/* What has come from a member is written into our half of its ring: the writer of that is whoever has the
 * remote's lock. */
static bool put_slot(weft_i_p2p_peer *pair, size_t room, const weft_i_head *head, const void *data,
                     size_t bytes)
{
    weft_i_ring *ring = pair->in_ring;
    uint32_t number = head->word[0];
    weft_i_ring_slot *slot = weft_i_ring_slot_at(ring, number);
    weft_i_wire_reader from = weft_i_wire_read(data, bytes);
    weft_i_ring_slot_kind kind = (weft_i_ring_slot_kind)head->word[3];
    if (number - weft_i_ring_taken(ring) >= WEFT_I_RING_SLOTS)
        return false;
    if (kind == WEFT_I_RING_SLOT_SHORT) {
        if (bytes > WEFT_I_RING_SHORT)
            return false;
        slot->length = (uint16_t)bytes;
        if (bytes)
            memcpy(slot->text, data, bytes);
    } else {
        uint64_t whole = weft_i_wire_get_u64(&from);
        uint32_t at = weft_i_wire_get_u32(&from);
        size_t length = weft_i_wire_left(&from);
        bool fits = kind == WEFT_I_RING_SLOT_FIRST || kind == WEFT_I_RING_SLOT_NEXT;
        if (!fits || from.bad || !length || length > whole || at > room || length > room - at)
            return false;
        weft_i_wire_get_bytes(&from, ring->room + at, length);
        slot->piece = (weft_i_ring_piece){.bytes = whole, .at = at, .length = (uint32_t)length};
    }
    slot->tag = (int32_t)head->word[2];
    slot->kind = (uint16_t)kind;
    weft_i_ring_show(ring, number, head->word[1]);
    return true;
}

static void ring_here(const weft_i_hosts *hosts)
{
    /* Pairs with the fence in set_bell. */
    atomic_thread_fence(memory_order_seq_cst);
    weft_i_wait_ring(&weft_i_lane_head_of(hosts->near->lane, hosts->index)->p2p_bell);
}

static bool take_letter(weft_group *group, int from, const weft_i_head *head, const void *data,
                        size_t bytes)
{
    weft_i_p2p *p2p = group->hosts->letters;
    if (!p2p)
        return false;
    if (!p2p->pairs[from].far)
        return true;
    if (!put_slot(&p2p->pairs[from], p2p->room, head, data, bytes))
        weft_i_group_spoil(group, WEFT_ERR_PROTOCOL);
    ring_here(group->hosts);
    return true;
}

/* How many slots the receiver has taken: never more than were sent. */
static bool take_letters(weft_group *group, int from, const weft_i_head *head, const void *data,
                         size_t bytes)
{
    weft_i_p2p *p2p = group->hosts->letters;
    (void)data;
    (void)bytes;
    if (!p2p || !p2p->pairs[from].far)
        return true;
    weft_i_p2p_peer *pair = &p2p->pairs[from];
    uint32_t before = weft_i_ring_taken(pair->out_ring);
    uint32_t shown = atomic_load_explicit(&pair->far->shown, memory_order_relaxed);
    if (head->word[0] - before <= shown - before)
        weft_i_ring_take(pair->out_ring, head->word[0]);
    ring_here(group->hosts);
    return true;
}

static bool take_refused(weft_group *group, int from, const weft_i_head *head, const void *data,
                         size_t bytes)
{
    weft_i_p2p *p2p = group->hosts->letters;
    (void)data;
    (void)bytes;
    if (p2p && p2p->pairs[from].far)
        /* Pairs with the acquire in `sender_lost`. */
        atomic_store_explicit(&p2p->pairs[from].out_ring->refused,
                              (uint64_t)head->word[1] << 32 | head->word[0], memory_order_release);
    return true;
}

/* ---- its beginning and end ---- */

static weft_status open_far(weft_group *group, weft_i_p2p_peer *pair, size_t room)
{
    size_t bytes = sizeof(weft_i_ring) + room;
    bytes += (WEFT_I_LINE - bytes % WEFT_I_LINE) % WEFT_I_LINE;
    size_t head = sizeof(weft_i_p2p_far) + WEFT_I_LINE;
    char *memory = WEFT_OS->alloc(head + 2 * bytes);
    if (!memory)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for messages to rank %d", pair->rank);
    char *first = memory + sizeof(weft_i_p2p_far);
    first += (WEFT_I_LINE - (uintptr_t)first % WEFT_I_LINE) % WEFT_I_LINE;
    pair->far = (weft_i_p2p_far *)(void *)memory;
    pair->far->group = group;
    pair->far->member = pair->rank;
    pair->out_ring = (weft_i_ring *)(void *)first;
    pair->in_ring = (weft_i_ring *)(void *)(first + bytes);
    return WEFT_OK;
}

weft_status weft_i_p2p_open_hosts(weft_i_lane *lane, weft_group *group)
{
    weft_i_p2p *p2p = lane->p2p;
    weft_i_hosts *hosts = group->hosts;
    weft_i_lane *near = hosts->near->lane;
    if (p2p->hosts)
        return WEFT_OK;
    p2p->room = near->p2p->room;
    for (int rank = 0; rank < lane->size; rank++) {
        weft_i_p2p_peer *pair = &p2p->pairs[rank];
        if (hosts->away[rank] && !pair->far)
            WEFT_TRY(open_far(group, pair, p2p->room));
        if (hosts->away[rank])
            continue;
        pair->out_ring = weft_i_lane_ring(near, hosts->index, hosts->index_of[rank]);
        pair->in_ring = weft_i_lane_ring(near, hosts->index_of[rank], hosts->index);
    }
    weft_i_remote_enter(group->world->remote);
    p2p->hosts = hosts;
    hosts->letters = p2p;
    weft_i_remote_give(group->world->remote);
    weft_i_hosts_again(group);
    return WEFT_OK;
}

void weft_i_p2p_close_hosts(weft_i_p2p *p2p, int size)
{
    weft_i_hosts *hosts = p2p->hosts;
    if (hosts && hosts->group->world->generation == weft_i_os_generation()) {
        weft_i_remote_enter(hosts->group->world->remote);
        hosts->letters = NULL;
        weft_i_remote_give(hosts->group->world->remote);
    }
    for (int rank = 0; rank < size; rank++)
        WEFT_OS->free(p2p->pairs[rank].far);
}

__attribute__((constructor)) static void take_letters_of_hosts(void)
{
    weft_i_hosts_on(WEFT_I_HEAD_LETTER, take_letter);
    weft_i_hosts_on(WEFT_I_HEAD_LETTERS, take_letters);
    weft_i_hosts_on(WEFT_I_HEAD_REFUSED, take_refused);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rendezvous.  Four steps, none of which leaves a member waiting for one that failed:
 *   1. all show what they bring (and whether they can take part); differences are an error on all,
 * with a table;
 *   2. the first member, of each host, makes the pads, zeroed, and offers them;
 *   3. each maps the pads and every other member's block, if they are on one host;
 *   4. all show how that went; one failure is that of all, and everything is undone.
 */
#include "symm/registration.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "fabric/group/exchange.h"
#include "symm/remote.h"

#include <stdio.h>
#include <string.h>

/* What a member brings to a rendezvous. */
typedef struct entry {
    weft_i_key key;
    uint64_t bytes, pad_bytes, offset;
    int32_t status;
    uint32_t serial; /* the number this member would give the registration; the highest is taken */
    char backend[12];
    weft_i_card card; /* of its device, where the host does not reach the block */
} entry;

weft_i_registration *weft_i_registration_hold(weft_i_registration *registration)
{
    WEFT_ASSERT(atomic_load_explicit(&registration->references, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&registration->references, 1, memory_order_relaxed);
    return registration;
}

void weft_i_registration_drop(weft_i_registration *registration)
{
    if (!registration ||
        atomic_fetch_sub_explicit(&registration->references, 1, memory_order_acq_rel) != 1)
        return;
    weft_i_far_close(registration->far); /* first: it looks at the rest */
    if (registration->joined)
        registration->memory->part(registration->joined);
    for (int rank = 0; rank < registration->size; rank++)
        weft_i_segment_drop(registration->blocks[rank]);
    weft_i_segment_drop(registration->pads.segment);
    WEFT_OS->free(registration->blocks);
    WEFT_OS->free(registration);
}

void weft_i_registration_drop_all(weft_i_registration *first)
{
    while (first) {
        weft_i_registration *next = first->next;
        weft_i_registration_drop(first);
        first = next;
    }
}

weft_i_registration *weft_i_registration_find(const weft_i_block *block, const weft_group *group)
{
    /* Pairs with the release of whoever put it there. */
    weft_i_registration *registration =
        atomic_load_explicit(&block->registrations, memory_order_acquire);
    while (registration && !weft_i_key_equal(registration->group, group->key))
        registration = registration->next;
    return registration;
}

weft_i_registration *weft_i_registration_of(weft_i_block *block, const weft_group *group)
{
    weft_i_registration *registration = weft_i_registration_find(block, group);
    return registration ? weft_i_registration_hold(registration) : NULL;
}

static weft_i_registration *allocate(const weft_group *group)
{
    weft_i_registration *registration = WEFT_OS->alloc(sizeof *registration);
    weft_i_segment **blocks = WEFT_OS->alloc((size_t)group->size * sizeof *blocks);
    if (!registration || !blocks) {
        WEFT_OS->free(registration);
        WEFT_OS->free(blocks);
        return weft_i_null(WEFT_ERR_NO_MEMORY,
                           "rendezvous: no memory for the addresses of %d ranks", group->size);
    }
    atomic_init(&registration->references, 1);
    registration->group = group->key;
    registration->size = group->size;
    registration->blocks = blocks;
    return registration;
}

/* Room for what the others show; NULL members only if memory ran out. */
typedef struct tables {
    entry *entries;
    int32_t *results;
    weft_i_registration *registration;
    weft_i_card *cards; /* these of devices alone */
    weft_i_key *keys;
} tables;

static bool make_tables(const weft_group *group, const weft_i_block *block, tables *out)
{
    size_t size = (size_t)group->size;
    bool joins = block->backend->device_memory;
    out->entries = WEFT_OS->alloc(size * sizeof *out->entries);
    out->results = WEFT_OS->alloc(size * sizeof *out->results);
    out->cards = joins ? WEFT_OS->alloc(size * sizeof *out->cards) : NULL;
    out->keys = joins ? WEFT_OS->alloc(size * sizeof *out->keys) : NULL;
    bool there = out->entries && out->results && (!joins || (out->cards && out->keys));
    out->registration = there ? allocate(group) : NULL;
    return out->registration != NULL;
}

static void free_tables(const tables *room)
{
    WEFT_OS->free(room->entries);
    WEFT_OS->free(room->results);
    WEFT_OS->free(room->cards);
    WEFT_OS->free(room->keys);
}

/* ---- step 1: what everybody brings ---- */

static bool same(const entry *a, const entry *b)
{
    return a->bytes == b->bytes && a->pad_bytes == b->pad_bytes && a->offset == b->offset &&
           !strncmp(a->backend, b->backend, sizeof a->backend);
}

static weft_status fail_table(const weft_group *group, const entry *entries, const char *headline,
                              weft_status status)
{
    char table[1600] = "";
    weft_i_text text = {table, sizeof table, 0};
    for (int rank = 0; rank < group->size && text.used + 120 < sizeof table; rank++) {
        const entry *e = &entries[rank];
        weft_i_text_put(&text, "%s rank %d: ", rank ? ";" : "", rank);
        if (e->status < 0)
            weft_i_text_put(&text, "%s", weft_strerror((weft_status)e->status));
        else
            weft_i_text_put(&text, "%llu bytes at offset %llu, pad of %llu, backend %.11s",
                            (unsigned long long)e->bytes, (unsigned long long)e->offset,
                            (unsigned long long)e->pad_bytes, e->backend);
    }
    weft_i_group_concerns(group);
    return weft_i_fail(status, "rendezvous in group \"%s\": %s.%s", group->name, headline, table);
}

static weft_status compare(const weft_group *group, const entry *entries)
{
    for (int rank = 0; rank < group->size; rank++)
        if (entries[rank].status < 0) {
            if (rank == group->rank)
                return (weft_status)entries[rank].status; /* its own message is the best one */
            return fail_table(group, entries, "a rank cannot take part",
                              (weft_status)entries[rank].status);
        }
    for (int rank = 1; rank < group->size; rank++)
        if (!same(&entries[0], &entries[rank]))
            return fail_table(group, entries, "the ranks bring different memory",
                              WEFT_ERR_MISMATCH);
    if (entries[0].pad_bytes / 4 / (unsigned)group->size == 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "rendezvous: a signal pad of %llu bytes has no channel for %d ranks; "
                           "see weft_symm_set_signal_pad_size",
                           (unsigned long long)entries[0].pad_bytes, group->size);
    return WEFT_OK;
}

/* ---- steps 2 and 3: pads and mappings ---- */

/* If any member is lost nobody will have the memory, and the owner may have stopped offering it. */
static weft_status lost(void *arg)
{
    const weft_i_label *label = arg;
    for (int rank = 0; rank < label->group->size; rank++)
        if (weft_i_group_fate(label->group, rank) < 0)
            return weft_i_group_lost(label, rank);
    return WEFT_OK;
}

static size_t round_up(size_t bytes)
{
    return (bytes + WEFT_I_LINE - 1) / WEFT_I_LINE * WEFT_I_LINE;
}

static void lay_out(weft_i_pads *pads, size_t pad_bytes, int size)
{
    pads->pad_bytes = pad_bytes;
    pads->channels = (int)(pad_bytes / 4 / (size_t)size);
    pads->words_at = WEFT_I_LINE;
    pads->passes_at = pads->words_at + round_up((size_t)pads->channels * sizeof(uint64_t));
    pads->pad_at = pads->passes_at + round_up((size_t)pads->channels * sizeof(uint64_t));
    pads->stride = pads->pad_at + round_up(pad_bytes);
}

static weft_i_circle circle_of(weft_group *group, weft_device device, int64_t deadline)
{
    return (weft_i_circle){.name = group->name,
                           .rank = group->rank,
                           .size = group->size,
                           .device = device,
                           .limit_ms = weft_i_os_ms_until(deadline),
                           .deadline = deadline,
                           .exchange = weft_i_circle_exchange,
                           .group = group};
}

static weft_status fetch(weft_group *group, const weft_i_block *block, int rank, weft_i_key key,
                         size_t bytes, int64_t deadline, weft_i_segment **out)
{
    weft_i_circle circle = circle_of(group, block->device, deadline);
    const weft_i_memory *memory = block->backend->memory;
    return weft_i_circle_fetched(&circle, rank,
                                 memory->import(&circle, rank, &key, sizeof key, bytes, out));
}

/* Who makes the pads of this host.  Without peers there is no first member but ourselves. */
static int pads_maker(const weft_group *group)
{
    return group->world->fake ? group->rank
           : group->hosts     ? group->hosts->host[group->hosts->mine].members[0]
                              : 0;
}

static bool makes_pads(const weft_group *group)
{
    return group->rank == pads_maker(group);
}

static weft_status make_pads(weft_group *group, weft_i_key key, weft_i_pads *pads)
{
    size_t bytes = pads->stride * (size_t)group->size;
    weft_status status =
        weft_i_segment_new(bytes, group->world->sharing, "signal pads", &pads->segment);
    weft_status offered = weft_i_fdpass_publish(group->world->fdpass, key, pads->segment, status);
    return status < 0 ? status : offered;
}

static weft_status map_all(weft_group *group, const weft_i_block *block, const entry *entries,
                           int64_t deadline, weft_i_registration *registration)
{
    for (int rank = 0; rank < group->size; rank++) {
        if (rank == group->rank)
            registration->blocks[rank] = weft_i_segment_hold(block->segment);
        else if (group->hosts && group->hosts->away[rank])
            WEFT_TRY(weft_i_far_block(entries[rank].bytes, &registration->blocks[rank]));
        else
            WEFT_TRY(fetch(group, block, rank, entries[rank].key, entries[rank].bytes, deadline,
                           &registration->blocks[rank]));
    }
    return WEFT_OK;
}

/* The same for memory that the host does not reach: its backend has pads of its own. */
static weft_status join(weft_group *group, const weft_i_block *block, const tables *room,
                        int64_t deadline, weft_i_registration *registration)
{
    weft_i_circle circle = circle_of(group, block->device, deadline);
    registration->memory = block->backend->device_memory;
    registration->blocks[group->rank] = weft_i_segment_hold(block->segment);
    weft_i_joining with = {.cards = room->cards,
                           .keys = room->keys,
                           .bytes = block->bytes,
                           .pad_bytes = registration->pads.pad_bytes,
                           .channels = registration->pads.channels,
                           .blocks = registration->blocks};
    return registration->memory->join(&circle, &with, &registration->joined);
}

static weft_status open_registration(weft_group *group, const weft_i_block *block,
                                     const tables *room, weft_i_key pads_key, int64_t deadline,
                                     weft_i_registration *registration)
{
    const entry *entries = room->entries;
    weft_i_pads *pads = &registration->pads;
    lay_out(pads, entries[0].pad_bytes, group->size);
    if (block->backend->device_memory)
        return join(group, block, room, deadline, registration);
    if (makes_pads(group))
        WEFT_TRY(make_pads(group, pads_key, pads));
    else
        WEFT_TRY(fetch(group, block, pads_maker(group), pads_key,
                       pads->stride * (size_t)group->size, deadline, &pads->segment));
    WEFT_TRY(map_all(group, block, entries, deadline, registration));
    return group->hosts ? weft_i_far_open(group, registration->serial, pads,
                                          registration->blocks[group->rank], &registration->far)
                        : WEFT_OK;
}

/* ---- step 4: how it went ---- */

/* Nobody has the memory, because of `rank`; or of whom it waited for in vain. */
static weft_status fail_for(const weft_group *group, int rank, weft_status why)
{
    char whom[512] = "";
    weft_i_text text = {whom, sizeof whom, 0};
    /* Relaxed: for the message only. */
    uint32_t fetches =
        why == WEFT_ERR_TIMEOUT && group->board && !group->world->fake
            ? atomic_load_explicit(&group->board->row[rank].fetches, memory_order_relaxed)
            : 0;
    if (fetches && fetches <= (uint32_t)group->size) {
        weft_i_text_put(&text, ", waiting for ");
        weft_i_world_put(group->world, group->members[fetches - 1], &text);
    }
    weft_i_group_concerns(group);
    return weft_i_fail(why,
                       "rendezvous in group \"%s\": rank %d failed (%s%s); nobody has the memory",
                       group->name, rank, weft_strerror(why), whom);
}

static weft_status agree(weft_group *group, weft_status mine, int64_t deadline, int32_t *all)
{
    int32_t shown = mine;
    weft_i_errors reason;
    if (mine < 0)
        weft_i_errors_save(&reason);
    weft_status status = weft_i_group_exchange_later(group, "rendezvous end", &shown, sizeof shown,
                                                     all, weft_i_os_ms_until(deadline));
    if (mine < 0) { /* the cause is ours and already told */
        weft_i_errors_restore(&reason);
        return mine;
    }
    WEFT_TRY(status);
    for (int rank = 0; rank < group->size; rank++)
        if (all[rank] <= WEFT_ERR_PEER_DEAD) { /* it saw somebody lost: so do we */
            weft_i_label label = {group, "rendezvous", -1};
            WEFT_TRY(lost(&label));
        }
    for (int rank = 0; rank < group->size; rank++)
        if (all[rank] < 0)
            return fail_for(group, rank, (weft_status)all[rank]);
    return WEFT_OK;
}

/* Members may have counted differently: one may have given a rendezvous up that another never saw.
 */
static uint32_t highest_serial(const weft_group *group, const entry *entries)
{
    uint32_t highest = 0;
    for (int rank = 0; rank < group->size; rank++)
        highest = entries[rank].serial > highest ? entries[rank].serial : highest;
    return highest;
}

/* May members with these devices meet? */
static weft_status compare_cards(weft_group *group, const weft_i_block *block, const tables *room,
                                 int64_t deadline)
{
    weft_i_circle circle = circle_of(group, block->device, deadline);
    if (!block->backend->device_memory)
        return WEFT_OK;
    for (int rank = 0; rank < group->size; rank++) {
        room->cards[rank] = room->entries[rank].card;
        room->keys[rank] = room->entries[rank].key;
    }
    return block->backend->device_memory->compare(&circle, room->cards);
}

static weft_status pair_up(weft_i_block *block, weft_group *group, const entry *mine,
                           const tables *room)
{
    entry *entries = room->entries;
    weft_i_registration *registration = room->registration;
    int64_t deadline =
        weft_i_os_deadline(weft_i_group_limit(group, WEFT_DEFAULT)); /* one for all the steps */
    WEFT_TRY(weft_i_group_exchange(group, "rendezvous", mine, sizeof *mine, entries, WEFT_DEFAULT));
    registration->serial = group->rest.registrations = highest_serial(group, entries);
    WEFT_TRY(compare(group, entries));
    WEFT_TRY(compare_cards(group, block, room, deadline));
    weft_i_key pads_key = weft_i_key_of(group->key, &entries[0].key, sizeof entries[0].key);
    weft_status status = open_registration(group, block, room, pads_key, deadline, registration);
    status = agree(group, status, deadline, room->results);
    if (registration->joined)
        registration->memory->settle(registration->joined);
    else if (makes_pads(group))
        weft_i_fdpass_withdraw(group->world->fdpass, pads_key);
    return status;
}

static weft_status entry_of(const weft_group *group, const weft_i_block *block, size_t offset,
                            entry *out)
{
    entry mine = {.serial = group->rest.registrations + 1,
                  .key = block->segment->key,
                  .bytes = block->bytes,
                  .pad_bytes = block->pad_bytes,
                  .offset = offset};
    snprintf(mine.backend, sizeof mine.backend, "%s", block->backend->name);
    *out = mine;
    return block->backend->device_memory
               ? block->backend->device_memory->show(block->segment, &out->card)
               : WEFT_OK;
}

/* Tells the others that this rank cannot take part, and why; needs no memory. */
static weft_status decline(weft_group *group, weft_status why)
{
    entry mine = {.status = why}; /* no number: nothing will bear it */
    weft_i_group_show(group, "rendezvous", &mine, sizeof mine);
    return why;
}

weft_status weft_i_registration_new(weft_i_block *block, size_t offset, weft_group *group,
                                    weft_status can, weft_i_registration **out)
{
    weft_i_fdpass *fdpass = group->world->fdpass;
    tables room = {0};
    entry mine = {0};
    if (can == WEFT_OK && !make_tables(group, block, &room))
        can = weft_i_fail(WEFT_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", group->size);
    if (can == WEFT_OK)
        can = entry_of(group, block, offset, &mine);
    if (can == WEFT_OK)
        can = weft_i_block_publish(block, fdpass);
    weft_status status = can;
    if (can < 0) {
        decline(group, can);
    } else {
        status = pair_up(block, group, &mine, &room);
        weft_i_block_withdraw(block, fdpass);
    }
    free_tables(&room);
    if (group->board && (status == WEFT_ERR_PEER_DEAD || status == WEFT_ERR_PEER_LEFT)) {
        /* The others may be in a later step, and wait for us: end that, and name who is lost. */
        weft_i_label label = {group, "rendezvous", -1};
        weft_i_group_spoil(group, status);
        status = weft_i_group_check_revoked(&label);
    }
    if (status == WEFT_OK)
        *out = room.registration;
    else
        weft_i_registration_drop(room.registration);
    return status;
}

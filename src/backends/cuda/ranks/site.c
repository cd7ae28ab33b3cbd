/* SPDX-License-Identifier: Apache-2.0 */
/* Sites: pads of all members in device memory, and the team that meets there; see site.h. */
#include "site.h"

#include "backends/cuda/device/capture.h"
#include "base/os/os.h"
#include "pads.h"
#include "tensor/object/stream.h"

#include <stdio.h>
#include <string.h>

/* Kernels that meet, which come first among all. */
enum {
    MEETING_KERNELS = 0
#define KERNEL(name_, threads_, type_, body_) +1
#include "backends/cuda/kernels/kernels.def"
#undef KERNEL
};

/* What a member shows when a group's site are opened. */
typedef struct entry {
    weft_i_key key; /* of its pads */
    weft_i_card card;
    int32_t status;
    uint16_t resident[MEETING_KERNELS];
} entry;

struct weft_i_cuda_site {
    weft_i_cuda_pads pads;
    weft_i_key group;
    int rank;
    weft_i_cuda_site *next; /* of the process */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static weft_i_cuda_site *first;

static weft_status open_device(weft_device device, weft_i_cuda_device **out)
{
    weft_stream *stream = weft_i_stream_current(device); /* opens it, or says why it cannot */
    if (!stream)
        return weft_last_status();
    WEFT_TRY(weft_i_cuda_refuse_capture(stream->own, "the first collective of a group"));
    return weft_i_cuda_open(weft_i_device_index(device), out);
}

static void show(const weft_i_cuda_device *device, weft_status status, entry *out)
{
    *out = (entry){.status = status};
    if (status == WEFT_OK)
        out->status = weft_i_key_new(&out->key);
    if (out->status < 0)
        return;
    weft_i_cuda_card(device, &out->card);
    for (int k = 0; k < MEETING_KERNELS; k++)
        out->resident[k] =
            (uint16_t)(device->resident[k] < UINT16_MAX ? device->resident[k] : UINT16_MAX);
}

/* The same on all members. */
static weft_status compare(const weft_i_circle *circle, const entry *all, weft_i_card *cards,
                           weft_i_key *keys)
{
    for (int rank = 0; rank < circle->size; rank++) {
        if (all[rank].status < 0)
            return rank == circle->rank
                       ? (weft_status)all[rank].status
                       : weft_i_fail((weft_status)all[rank].status,
                                     "group \"%s\": rank %d cannot use its device (%s)",
                                     circle->name, rank,
                                     weft_strerror((weft_status)all[rank].status));
        cards[rank] = all[rank].card;
        keys[rank] = all[rank].key;
    }
    return weft_i_cuda_compare(circle, cards);
}

static void take_least(weft_i_cuda_team *team, const entry *all)
{
    for (int rank = 0; rank < team->group.size; rank++)
        for (int k = 0; k < MEETING_KERNELS; k++)
            if (all[rank].resident[k] < team->resident[k])
                team->resident[k] = all[rank].resident[k];
}

/* Room for what all members show. */
typedef struct tables {
    entry *all;
    weft_i_card *cards;
    weft_i_key *keys;
} tables;

static weft_status meet(const weft_i_circle *circle, weft_i_cuda_device *device,
                        const weft_i_cuda_sizes *sizes, const entry *mine, const tables *room,
                        weft_i_cuda_site *site)
{
    WEFT_TRY(circle->exchange(circle, mine, sizeof *mine, room->all));
    WEFT_TRY(compare(circle, room->all, room->cards, room->keys));
    weft_status status =
        weft_i_cuda_pads_open(circle, device, room->keys, room->cards, sizes, &site->pads);
    if (status == WEFT_OK)
        take_least(&site->pads.team, room->all);
    status = weft_i_circle_agree(circle, status, "has no memory for collectives", room->all);
    weft_i_cuda_pads_settle(&site->pads);
    return status;
}

static void enlist(const weft_i_circle *circle, weft_i_cuda_site *site)
{
    site->group = weft_i_circle_key(circle);
    site->rank = circle->rank;
    pthread_mutex_lock(&lock);
    site->next = first;
    first = site;
    pthread_mutex_unlock(&lock);
}

static void end(weft_i_cuda_site *site)
{
    weft_i_cuda_pads_close(&site->pads);
    WEFT_OS->free(site);
}

/* The same on all members, so that nobody waits for descriptors that no other host can send. */
static weft_status check_near(const weft_i_circle *circle)
{
    return weft_i_circle_is_local(circle)
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_UNSUPPORTED,
                             "group \"%s\" spans hosts, and kernels of one do not reach memory of "
                             "another",
                             circle->name);
}

weft_status weft_i_cuda_site_open(const weft_i_circle *circle, const weft_i_cuda_sizes *sizes,
                                  weft_i_cuda_site **out)
{
    weft_i_cuda_device *device = NULL;
    size_t size = (size_t)circle->size;
    WEFT_TRY(check_near(circle));
    weft_i_cuda_site *site = WEFT_OS->alloc(sizeof *site);
    tables room = {WEFT_OS->alloc(size * sizeof *room.all),
                   WEFT_OS->alloc(size * sizeof *room.cards),
                   WEFT_OS->alloc(size * sizeof *room.keys)};
    entry mine;
    weft_status status = open_device(circle->device, &device);
    bool there = site && room.all && room.cards && room.keys;
    if (!there)
        status =
            weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the site of %d ranks", circle->size);
    show(device, status, &mine);
    if (there) {
        *site = (weft_i_cuda_site){0};
        status = meet(circle, device, sizes, &mine, &room, site);
    } else {
        weft_i_circle_decline(circle, &mine, sizeof mine);
    }
    WEFT_OS->free(room.all);
    WEFT_OS->free(room.cards);
    WEFT_OS->free(room.keys);
    if (status == WEFT_OK)
        enlist(circle, *out = site);
    else if (site)
        end(site);
    return status;
}

void weft_i_cuda_site_close(weft_i_cuda_site *site)
{
    pthread_mutex_lock(&lock);
    weft_i_cuda_site **at = &first;
    while (*at != site)
        at = &(*at)->next;
    *at = site->next;
    pthread_mutex_unlock(&lock);
    end(site);
}

weft_i_cuda_team *weft_i_cuda_site_team(weft_i_cuda_site *site)
{
    return &site->pads.team;
}

/* One of this rank's after `last`; NULL: there is none.  The rank itself closes them, so it stays. */
static weft_i_cuda_site *next_of(const weft_i_cuda_site *last, weft_i_key group, int rank)
{
    pthread_mutex_lock(&lock);
    weft_i_cuda_site *found = last ? last->next : first;
    while (found && !(weft_i_key_equal(found->group, group) && found->rank == rank))
        found = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

weft_status weft_i_cuda_site_await_all(weft_i_key group, int rank, int64_t limit_ms)
{
    for (weft_i_cuda_site *c = next_of(NULL, group, rank); c; c = next_of(c, group, rank))
        WEFT_TRY(weft_i_cuda_team_await(&c->pads.team, limit_ms));
    return WEFT_OK;
}

weft_status weft_i_cuda_site_reset_all(weft_i_key group, int rank)
{
    for (weft_i_cuda_site *c = next_of(NULL, group, rank); c; c = next_of(c, group, rank))
        WEFT_TRY(weft_i_cuda_pads_reset(&c->pads));
    return WEFT_OK;
}

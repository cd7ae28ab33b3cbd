/* SPDX-License-Identifier: Apache-2.0 */
/* How members of a circle get hold of each other's memory. */
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/exchange.h"
#include "fabric/group/hosts.h"
#include "fabric/group/quarrel.h"
#include "symm/backend.h"

#include <string.h>

/* If any member is lost nobody will have the memory, and the owner may have stopped offering it. */
static weft_status lost(void *arg)
{
    const weft_i_circle *circle = arg;
    weft_i_label label = {circle->group, "rendezvous", -1};
    if (label.group->hosts)
        weft_i_hosts_look(label.group, -1);
    for (int rank = 0; rank < circle->size; rank++)
        if (weft_i_group_fate(label.group, rank) < 0)
            return weft_i_group_lost(&label, rank);
    return weft_i_quarrel_helps_in_vain(label.group)
               ? weft_i_fail(WEFT_ERR_TIMEOUT, "rendezvous: nobody needs the lane any more")
               : WEFT_OK;
}

/* Those who wait for us meanwhile are to name the one whom we wait for; see exchange.c. */
static void tell_fetching(const weft_group *group, int rank)
{
    if (group->board && !group->world->fake)
        atomic_store_explicit(&group->board->row[group->rank].fetches, (uint32_t)(rank + 1),
                              memory_order_relaxed); /* for messages only */
}

weft_status weft_i_circle_lost(const weft_i_circle *circle)
{
    return lost((void *)(uintptr_t)circle);
}

weft_i_fdpass_order weft_i_circle_order(const weft_i_circle *circle, int rank, weft_i_key key,
                                        size_t bytes)
{
    const weft_group *group = circle->group;
    tell_fetching(group, rank);
    return (weft_i_fdpass_order){.own = group->world->fdpass,
                                 .peer = group->world->peers[group->members[rank]].fdpass,
                                 .key = key,
                                 .bytes = bytes,
                                 .deadline = circle->deadline,
                                 .lost = lost,
                                 .arg = (void *)(uintptr_t)circle};
}

weft_status weft_i_circle_fetch(const weft_i_circle *circle, int rank, const void *key,
                                size_t key_bytes, size_t bytes, weft_i_segment **out)
{
    weft_i_key at;
    WEFT_ASSERT(key_bytes == sizeof at);
    memcpy(&at, key, sizeof at);
    weft_i_fdpass_order order = weft_i_circle_order(circle, rank, at, bytes);
    return weft_i_fdpass_fetch(&order, out);
}

weft_status weft_i_circle_fetched(const weft_i_circle *circle, int rank, weft_status status)
{
    const weft_group *group = circle->group;
    char who[512];
    if (status == WEFT_OK)
        tell_fetching(group, -1);
    if (status != WEFT_ERR_TIMEOUT)
        return status;
    weft_i_world_describe(group->world, group->members[rank], who, sizeof who);
    return weft_i_fail(status, "rendezvous in group \"%s\": no answer from %s", group->name, who);
}

static const char opening[] = "opening a carrier";

weft_status weft_i_circle_exchange(const weft_i_circle *circle, const void *mine, size_t bytes,
                                   void *all)
{
    return weft_i_group_exchange(circle->group, circle->what ? circle->what : opening, mine, bytes,
                                 all, circle->limit_ms);
}

weft_status weft_i_circle_exchange_later(const weft_i_circle *circle, const void *mine,
                                         size_t bytes, void *all)
{
    return weft_i_group_exchange_later(circle->group, circle->what, mine, bytes, all,
                                       weft_i_os_ms_until(circle->deadline));
}

void weft_i_circle_decline(const weft_i_circle *circle, const void *mine, size_t bytes)
{
    weft_i_group_show(circle->group, circle->what ? circle->what : opening, mine, bytes);
}

weft_status weft_i_circle_agree(const weft_i_circle *circle, weft_status mine, const char *how,
                                void *room)
{
    int32_t shown = mine, *all = room;
    weft_i_errors reason;
    weft_i_errors_save(&reason);
    weft_status status = circle->exchange(circle, &shown, sizeof shown, all);
    if (mine < 0) {
        weft_i_errors_restore(&reason);
        return mine;
    }
    WEFT_TRY(status);
    for (int rank = 0; rank < circle->size; rank++)
        if (all[rank] < 0)
            return weft_i_fail((weft_status)all[rank], "group \"%s\": rank %d %s (%s)",
                               circle->name, rank, how, weft_strerror((weft_status)all[rank]));
    return WEFT_OK;
}

weft_status weft_i_circle_of_world(weft_device device, const char *what, weft_i_circle *out)
{
    weft_group *world = weft_i_world_group();
    if (!world)
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: this is done by all ranks of the world, and this process has no "
                           "world, or several; call weft_init first",
                           what);
    WEFT_TRY(weft_i_group_usable(world));
    int64_t limit = weft_i_group_limit(world, WEFT_DEFAULT);
    *out = (weft_i_circle){.name = world->name,
                           .what = what,
                           .rank = world->rank,
                           .size = world->size,
                           .device = device,
                           .limit_ms = limit,
                           .deadline = weft_i_os_deadline(limit),
                           .exchange = weft_i_circle_exchange,
                           .group = world};
    return WEFT_OK;
}

bool weft_i_circle_is_served(const weft_i_circle *circle, unsigned sharing)
{
    const weft_group *group = circle->group;
    return sharing >> group->world->sharing & 1;
}

weft_i_key weft_i_circle_key(const weft_i_circle *circle)
{
    const weft_group *group = circle->group;
    return group->key;
}

weft_i_fdpass *weft_i_circle_server(const weft_i_circle *circle)
{
    const weft_group *group = circle->group;
    return group->world->fdpass;
}

bool weft_i_circle_is_fake(const weft_i_circle *circle)
{
    const weft_group *group = circle->group;
    return group->world->fake;
}

bool weft_i_circle_is_local(const weft_i_circle *circle)
{
    const weft_group *group = circle->group;
    return group->local;
}

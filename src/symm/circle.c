/* SPDX-License-Identifier: Apache-2.0 */
/* How members of a circle get hold of each other's memory. */
#include "fabric/group.h"
#include "symm/backend.h"

/* If any member is lost nobody will have the memory, and the owner may have stopped offering it. */
static weft_status lost(void *arg)
{
    const weft_i_label *call = arg;
    for (int rank = 0; rank < call->group->size; rank++)
        if (weft_i_group_fate(call->group, rank) < 0)
            return weft_i_group_lost(call, rank);
    return WEFT_OK;
}

weft_i_fdpass_order weft_i_circle_order(const weft_i_circle *circle, weft_i_label *label, int rank,
                                        weft_i_key key, size_t bytes)
{
    const weft_group *group = circle->group;
    return (weft_i_fdpass_order){.own = group->world->fdpass,
                                 .peer = group->world->peers[group->members[rank]].fdpass,
                                 .key = key,
                                 .bytes = bytes,
                                 .deadline = weft_i_os_deadline(circle->limit_ms),
                                 .lost = lost,
                                 .arg = label};
}

weft_i_fdpass *weft_i_circle_server(const weft_i_circle *circle)
{
    const weft_group *group = circle->group;
    return group->world->fdpass;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The groups of one rank by name and by tag.  It hangs off the rank's world, so thread ranks of one
 * process have one each.  Entries are weak: a group enters when it is made and goes with its last
 * reference.  Only tagged groups, which may be found again anywhere in the program, are held, by
 * the world group, until that goes.
 */
#ifndef WEFT_FABRIC_REGISTRY_H
#define WEFT_FABRIC_REGISTRY_H

#include "base/os/assert.h"
#include "base/share/segment.h"
#include "fabric/world/own_groups.h"
#include "weft/group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* World ranks as a caller names them: through a parent's members, or (NULL) directly; a list, or
 * (NULL) consecutive ones from `first` on. */
typedef struct weft_i_rank_view {
    const int *members, *ranks;
    int first, count;
} weft_i_rank_view;

static inline int weft_i_rank_view_at(const weft_i_rank_view *view, int i)
{
    WEFT_ASSERT(i >= 0 && i < view->count);
    int rank = view->ranks ? view->ranks[i] : view->first + i;
    return view->members ? view->members[rank] : rank;
}

/* A place for a group that is about to be made, and its name if it has one already.
 * WEFT_ERR_EXISTS: the name is taken. */
weft_status weft_i_registry_enter(weft_i_registry *registry, weft_group *group);

/* The group is made: it gets its final name and tag and can be found from now on. */
void weft_i_registry_publish(weft_i_registry *registry, weft_group *group, const char *name,
                             const char *tag);

/* The group is going.  Harmless if it never entered. */
void weft_i_registry_leave(weft_i_registry *registry, weft_group *group);

/* Lets go of the tagged groups: the world group is going. */
void weft_i_registry_let_go(weft_i_registry *registry);

/* The group of this name: WEFT_ERR_NOT_FOUND if there never was one, WEFT_ERR_STATE if it is
 * destroyed or gone; with a message. */
weft_status weft_i_registry_resolve(weft_i_registry *registry, const char *name, weft_group **out);

/* The oldest group with this stored tag ("": those made without one) and set of world ranks, or
 * NULL. */
weft_group *weft_i_registry_find(weft_i_registry *registry, const char *tag,
                                 const weft_i_rank_view *ranks);

/* A live group made for a mesh with these world ranks in this order, or NULL. */
weft_group *weft_i_registry_find_for_mesh(weft_i_registry *registry, const int *ranks, int count);

/* The group shall serve no other mesh. */
void weft_i_registry_retire(weft_i_registry *registry, weft_group *group);

/* Marks a group and those made from it, and theirs, as destroyed. */
void weft_i_registry_doom(weft_i_registry *registry, weft_group *group);

/* The key of a destroyed group whose members on other hosts have not been told yet; false: none is
 * left. */
bool weft_i_registry_next_doomed(weft_i_registry *registry, weft_i_key *out);

/* Number of groups that can be found. */
int weft_i_registry_live(weft_i_registry *registry);

/* A hash of text that is equal on all ranks and runs. */
uint64_t weft_i_registry_hash(const char *text);

#endif

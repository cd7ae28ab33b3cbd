/* SPDX-License-Identifier: Apache-2.0 */
/* Names and tags of a rank's groups; see registry.h. */
#include "fabric/group/registry.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/group.h"

#include <stdio.h>
#include <string.h>

uint64_t weft_i_registry_hash(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* Whether lookups see the group; the lock is held. */
static bool is_live(const weft_group *group)
{
    return group->listing.published && !weft_i_group_is_destroyed(group);
}

static bool is_taken(const weft_i_registry *registry, const char *name)
{
    for (size_t i = 0; i < registry->count; i++)
        if ((registry->group[i]->listing.named || registry->group[i]->listing.published) &&
            !weft_i_group_is_destroyed(registry->group[i]) &&
            !strcmp(registry->group[i]->name, name))
            return true;
    return false;
}

static weft_status enter(weft_i_registry *registry, weft_group *group)
{
    if (group->listing.named && is_taken(registry, group->name))
        return weft_i_fail(WEFT_ERR_EXISTS, "a group named \"%s\" exists on this rank",
                           group->name);
    if (registry->count == registry->room) {
        size_t room = registry->room ? 2 * registry->room : 8;
        weft_group **wider = WEFT_OS->resize(registry->group, room * sizeof(weft_group *));
        if (!wider)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to register group \"%s\"",
                               group->name);
        registry->group = wider;
        registry->room = room;
    }
    WEFT_ASSERT(registry->count < registry->room);
    registry->group[registry->count++] = group;
    return WEFT_OK;
}

weft_status weft_i_registry_enter(weft_i_registry *registry, weft_group *group)
{
    pthread_mutex_lock(&registry->lock);
    weft_status status = enter(registry, group);
    pthread_mutex_unlock(&registry->lock);
    return status;
}

void weft_i_registry_publish(weft_i_registry *registry, weft_group *group, const char *name,
                             const char *tag)
{
    pthread_mutex_lock(&registry->lock);
    WEFT_ASSERT(!group->listing.published);
    snprintf(group->name, sizeof group->name, "%s", name);
    snprintf(group->listing.tag, sizeof group->listing.tag, "%s", tag);
    group->listing.published = true;
    pthread_mutex_unlock(&registry->lock);
}

static void remember_gone(weft_i_registry *registry, const weft_group *group)
{
    if (group->listing.published)
        registry->gone[registry->gone_count++ % WEFT_I_NAMES_GONE] =
            weft_i_registry_hash(group->name);
}

void weft_i_registry_leave(weft_i_registry *registry, weft_group *group)
{
    pthread_mutex_lock(&registry->lock);
    size_t kept = 0;
    for (size_t i = 0; i < registry->count; i++)
        if (registry->group[i] != group)
            registry->group[kept++] = registry->group[i];
    WEFT_ASSERT(kept + 1 >= registry->count);
    if (kept < registry->count)
        remember_gone(registry, group);
    registry->count = kept;
    if (registry->root == group)
        registry->root = NULL;
    pthread_mutex_unlock(&registry->lock);
}

/* Takes over the world's reference to one tagged group. */
static weft_group *take_held(weft_i_registry *registry)
{
    weft_group *found = NULL;
    pthread_mutex_lock(&registry->lock);
    for (size_t i = 0; i < registry->count && !found; i++)
        if (registry->group[i]->listing.held_by_world) {
            found = registry->group[i];
            found->listing.held_by_world = false;
        }
    pthread_mutex_unlock(&registry->lock);
    return found;
}

void weft_i_registry_let_go(weft_i_registry *registry)
{
    for (weft_group *group; (group = take_held(registry));)
        weft_i_object_drop(group);
}

static bool is_gone(const weft_i_registry *registry, const char *name)
{
    uint64_t hash = weft_i_registry_hash(name);
    size_t known =
        registry->gone_count < WEFT_I_NAMES_GONE ? registry->gone_count : WEFT_I_NAMES_GONE;
    for (size_t i = 0; i < known; i++)
        if (registry->gone[i] == hash)
            return true;
    for (size_t i = 0; i < registry->count; i++)
        if (registry->group[i]->listing.published && !strcmp(registry->group[i]->name, name))
            return true;
    return false;
}

weft_status weft_i_registry_resolve(weft_i_registry *registry, const char *name, weft_group **out)
{
    weft_group *found = NULL;
    pthread_mutex_lock(&registry->lock);
    for (size_t i = 0; i < registry->count && !found; i++)
        if (is_live(registry->group[i]) && !strcmp(registry->group[i]->name, name))
            found = registry->group[i];
    bool gone = !found && is_gone(registry, name);
    pthread_mutex_unlock(&registry->lock);
    if (gone)
        return weft_i_fail(WEFT_ERR_STATE, "the group named \"%s\" is already destroyed", name);
    if (!found)
        return weft_i_miss(WEFT_ERR_NOT_FOUND,
                           "could not resolve the group name \"%s\": this rank never was in a "
                           "group of that name",
                           name);
    *out = found;
    return WEFT_OK;
}

static bool has_tag(const weft_group *group, const char *tag)
{
    return *tag ? !strcmp(group->listing.tag, tag) : group->listing.untagged;
}

static bool has_ranks(const weft_group *group, const weft_i_rank_view *ranks)
{
    if (group->size != ranks->count)
        return false;
    for (int i = 0; i < ranks->count; i++)
        if (weft_group_rank_of(group, weft_i_rank_view_at(ranks, i)) < 0)
            return false;
    return true;
}

weft_group *weft_i_registry_find(weft_i_registry *registry, const char *tag,
                                 const weft_i_rank_view *ranks)
{
    weft_group *found = NULL;
    pthread_mutex_lock(&registry->lock);
    for (size_t i = 0; i < registry->count && !found; i++) {
        weft_group *group = registry->group[i];
        if (is_live(group) && !weft_i_lineage_recalled(&group->lineage) && has_tag(group, tag) &&
            has_ranks(group, ranks))
            found = group;
    }
    pthread_mutex_unlock(&registry->lock);
    return found;
}

weft_group *weft_i_registry_find_for_mesh(weft_i_registry *registry, const int *ranks, int count)
{
    weft_group *found = NULL;
    pthread_mutex_lock(&registry->lock);
    for (size_t i = 0; i < registry->count && !found; i++) {
        weft_group *group = registry->group[i];
        if (is_live(group) && group->listing.for_mesh && group->size == count &&
            !memcmp(group->members, ranks, (size_t)count * sizeof *ranks))
            found = group;
    }
    pthread_mutex_unlock(&registry->lock);
    return found;
}

void weft_i_registry_retire(weft_i_registry *registry, weft_group *group)
{
    pthread_mutex_lock(&registry->lock);
    group->listing.for_mesh = false;
    pthread_mutex_unlock(&registry->lock);
}

/* A parent enters before its children, so one pass finds them all. */
void weft_i_registry_doom(weft_i_registry *registry, weft_group *group)
{
    pthread_mutex_lock(&registry->lock);
    weft_i_group_mark_destroyed(group);
    for (size_t i = 0; i < registry->count; i++)
        for (size_t k = 0; k < i; k++)
            if (weft_i_group_is_destroyed(registry->group[k]) &&
                registry->group[i]->listing.published &&
                weft_i_key_equal(registry->group[i]->listing.parent_key, registry->group[k]->key))
                weft_i_group_mark_destroyed(registry->group[i]);
    pthread_mutex_unlock(&registry->lock);
}

bool weft_i_registry_next_doomed(weft_i_registry *registry, weft_i_key *out)
{
    bool found = false;
    pthread_mutex_lock(&registry->lock);
    for (size_t i = 0; i < registry->count && !found; i++) {
        weft_group *group = registry->group[i];
        if (!weft_i_group_is_destroyed(group) || group->listing.told || group->board ||
            group->size == 1)
            continue;
        group->listing.told = found = true;
        *out = group->key;
    }
    pthread_mutex_unlock(&registry->lock);
    return found;
}

int weft_i_registry_live(weft_i_registry *registry)
{
    int live = 0;
    pthread_mutex_lock(&registry->lock);
    for (size_t i = 0; i < registry->count; i++)
        live += is_live(registry->group[i]);
    pthread_mutex_unlock(&registry->lock);
    return live;
}

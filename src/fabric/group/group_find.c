/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding groups by name and by tag.  A group has one stored tag: "user:<tag>" if it was given one,
 * else "ptd:<name>", and then, unless it came from a split, it is also found under the empty tag.
 */
#include "fabric/group/group.h"

#include "base/report/status.h"
#include "fabric/group/rank_list.h"

#include <stdio.h>
#include <string.h>

weft_status weft_i_group_store_tag(const char *tag, char out[WEFT_I_GROUP_TAG])
{
    *out = 0;
    if (!tag || !*tag)
        return WEFT_OK;
    bool stored = !strncmp(tag, "user:", 5) || !strncmp(tag, "ptd:", 4);
    const char *bare = stored ? strchr(tag, ':') + 1 : tag;
    if (strlen(bare) >= WEFT_I_GROUP_NAME)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a tag has at most %d characters",
                           WEFT_I_GROUP_NAME - 1);
    snprintf(out, WEFT_I_GROUP_TAG, "%s%s", stored ? "" : "user:", tag);
    return WEFT_OK;
}

weft_group *weft_group_world(weft_group *any)
{
    if (weft_i_group_usable(any) < 0)
        return NULL;
    weft_group *root = any->world->registry.root;
    return root ? root : weft_i_null(WEFT_ERR_STATE, "the world group was released");
}

int weft_group_count(weft_group *any)
{
    return any && any->world ? weft_i_registry_live(&any->world->registry) : 0;
}

weft_group *weft_group_named(weft_group *any, const char *name)
{
    weft_group *found = NULL;
    if (weft_i_group_usable(any) < 0)
        return NULL;
    if (!name)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_group_named: the name is NULL");
    return weft_i_registry_resolve(&any->world->registry, name, &found) < 0 ? NULL : found;
}

static weft_status check_list(const char *what, const int *ranks, int count)
{
    return ranks && count > 0
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the list of ranks is empty", what);
}

weft_group *weft_group_find(weft_group *any, const char *tag, const int *ranks, int count)
{
    char stored[WEFT_I_GROUP_TAG];
    if (weft_i_group_usable(any) < 0 || check_list("weft_group_find", ranks, count) < 0 ||
        weft_i_group_store_tag(tag, stored) < 0)
        return NULL;
    weft_i_rank_view view = {NULL, ranks, 0, count};
    return weft_i_registry_find(&any->world->registry, stored, &view);
}

/* Start of the block of `stride` ranks that this rank is in. */
static const int *own_block(const weft_group *any, const int *ranks, int count, int stride)
{
    for (int i = 0; i < count; i++)
        if (ranks[i] == any->world->rank)
            return ranks + i / stride * stride;
    char text[200];
    weft_i_rank_list_text(ranks, count, text, sizeof text);
    return weft_i_null(WEFT_ERR_INVALID_ARG,
                       "weft_group_find_or_new: rankset doesn't include the current node: rank %d "
                       "is not in %s",
                       any->world->rank, text);
}

weft_group *weft_group_find_or_new(weft_group *any, const char *tag, const int *ranks, int count,
                                   int stride)
{
    if (weft_i_group_usable(any) < 0 || check_list("weft_group_find_or_new", ranks, count) < 0)
        return NULL;
    if (stride < 1 || count % stride)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "weft_group_find_or_new: %d ranks are no multiple of a stride of %d",
                           count, stride);
    char stored[WEFT_I_GROUP_TAG], text[200];
    const int *block = own_block(any, ranks, count, stride);
    if (!block || weft_i_group_store_tag(tag, stored) < 0)
        return NULL;
    weft_i_rank_view view = {NULL, block, 0, stride};
    weft_group *found = weft_i_registry_find(&any->world->registry, stored, &view);
    if (found)
        return found;
    weft_i_rank_list_text(block, stride, text, sizeof text);
    if (!*stored)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "Cannot automatically create PG with empty tag: there is none of ranks "
                           "%s yet",
                           text);
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.tag = tag;
    opts.sorted = 1;
    return weft_group_new_with(weft_group_world(any), block, stride, &opts);
}

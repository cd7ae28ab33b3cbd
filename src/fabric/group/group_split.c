/* SPDX-License-Identifier: Apache-2.0 */
/* Several groups at once: by color, in blocks, and by lists of ranks. */
#include "fabric/group/exchange.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

#include <stdlib.h>

typedef struct choice {
    int color, key, rank;
    int failure; /* a status: this rank cannot take part */
} choice;

static int by_key_then_rank(const void *left, const void *right)
{
    const choice *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank - b->rank;
}

/* The ranks of our color in order; returns how many, or a status. */
static int choose(const weft_group *parent, int color, choice *all, int *ranks)
{
    int count = 0;
    for (int rank = 0; rank < parent->size; rank++) {
        if (all[rank].failure < 0)
            return weft_i_fail((weft_status)all[rank].failure,
                               "group_split of \"%s\": rank %d could not take part (%s)",
                               parent->name, rank, weft_strerror((weft_status)all[rank].failure));
        all[rank].rank = rank; /* a fake group sees its own choice in every place */
        if (all[rank].color == color)
            all[count++] = all[rank];
    }
    qsort(all, (size_t)count, sizeof *all, by_key_then_rank);
    for (int i = 0; i < count; i++)
        ranks[i] = all[i].rank;
    return count;
}

weft_group *weft_group_split(weft_group *parent, int color, int key)
{
    if (weft_i_group_usable(parent) < 0)
        return NULL;
    weft_i_making how = {WEFT_GROUP_OPTS_INIT, .unlisted = true, .limit_ms = WEFT_DEFAULT};
    choice mine = {color, key, parent->rank, 0};
    choice *all = WEFT_OS->alloc((size_t)parent->size * sizeof *all);
    int *ranks = WEFT_OS->alloc((size_t)parent->size * sizeof *ranks);
    weft_group *group = NULL;
    if (!all || !ranks) {
        mine.failure = weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_group_split: no memory for %d ranks",
                                   parent->size);
        weft_i_group_show(parent, "group_split", &mine, sizeof mine);
    } else if (weft_i_group_exchange(parent, "group_split", &mine, sizeof mine, all,
                                     WEFT_DEFAULT) == WEFT_OK) {
        int count = choose(parent, color, all, ranks);
        if (color >= 0 && count > 0)
            group = weft_i_group_make(parent, ranks, count, &how);
    }
    WEFT_OS->free(all);
    WEFT_OS->free(ranks);
    return group;
}

/* ---- blocks and lists ---- */

weft_group *weft_group_new_blocks(weft_group *parent, int block, const weft_group_opts *opts)
{
    if (weft_i_group_usable(parent) < 0)
        return NULL;
    if (block < 1)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "blocks of %d ranks: a block has at least one",
                           block);
    if (block > parent->size)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "blocks of %d ranks: group \"%s\" has only %d",
                           block, parent->name, parent->size);
    if (parent->size % block)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "blocks of %d ranks: the %d ranks of group \"%s\" are no multiple of it",
                           block, parent->size, parent->name);
    weft_i_making how = {.first = parent->rank / block * block, .limit_ms = WEFT_DEFAULT};
    WEFT_ASSERT(how.first + block <= parent->size);
    if (weft_i_group_copy_opts(opts, &how.opts) < 0)
        return NULL;
    return weft_i_group_make(parent, NULL, block, &how);
}

/* Each list alone, then that no rank is in two. */
static weft_status check_lists(const char *what, const weft_group *parent,
                               const weft_rank_list *lists, int count)
{
    if (!lists || count < 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: no lists of ranks", what);
    for (int i = 0; i < count; i++) {
        if (!lists[i].ranks || lists[i].count < 1)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: list %d is empty", what, i);
        WEFT_TRY(weft_i_group_check_ranks(parent, lists[i].ranks, lists[i].count));
    }
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            for (int m = 0; m < lists[i].count; m++)
                for (int n = 0; n < lists[k].count; n++)
                    if (lists[i].ranks[m] == lists[k].ranks[n])
                        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                                           "%s: rank %d is in lists %d and %d", what,
                                           lists[i].ranks[m], k, i);
    return WEFT_OK;
}

/* The list this rank is in, or NULL. */
static const weft_rank_list *own_list(const weft_group *parent, const weft_rank_list *lists,
                                      int count)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < lists[i].count; k++)
            if (lists[i].ranks[k] == parent->rank)
                return &lists[i];
    return NULL;
}

weft_group *weft_group_new_lists(weft_group *parent, const weft_rank_list *lists, int count,
                                 const weft_group_opts *opts)
{
    if (weft_i_group_usable(parent) < 0 || check_lists("new_lists", parent, lists, count) < 0)
        return NULL;
    const weft_rank_list *mine = own_list(parent, lists, count);
    return mine ? weft_group_new_with(parent, mine->ranks, mine->count, opts) : NULL;
}

static uint64_t hash_lists(const weft_rank_list *lists, int count)
{
    weft_i_key key = {{0, 0}};
    for (int i = 0; i < count; i++) {
        key = weft_i_key_of(key, &lists[i].count, sizeof lists[i].count);
        key = weft_i_key_of(key, lists[i].ranks, (size_t)lists[i].count * sizeof *lists[i].ranks);
    }
    return key.word[0];
}

/* Everybody must split the same way; whoever cannot has shown why. */
typedef struct split_plan {
    uint64_t lists;
    int failure;
} split_plan;

static weft_status agree_on_lists(weft_group *parent, uint64_t lists)
{
    split_plan mine = {.lists = lists};
    split_plan *all = WEFT_OS->alloc((size_t)parent->size * sizeof *all);
    if (!all) {
        mine.failure = weft_i_fail(WEFT_ERR_NO_MEMORY,
                                   "weft_group_split_lists: no memory for %d "
                                   "ranks",
                                   parent->size);
        weft_i_group_show(parent, "split_lists", &mine, sizeof mine);
        return WEFT_ERR_NO_MEMORY;
    }
    weft_status status =
        weft_i_group_exchange(parent, "split_lists", &mine, sizeof mine, all, WEFT_DEFAULT);
    for (int rank = 0; rank < parent->size && status == WEFT_OK; rank++)
        if (all[rank].failure < 0)
            status = weft_i_fail((weft_status)all[rank].failure,
                                 "weft_group_split_lists of \"%s\": rank %d could not take part "
                                 "(%s)",
                                 parent->name, rank, weft_strerror((weft_status)all[rank].failure));
        else if (all[rank].lists != all[0].lists)
            status = weft_i_fail(WEFT_ERR_MISMATCH,
                                 "weft_group_split_lists of \"%s\": ranks 0 and %d gave different "
                                 "lists",
                                 parent->name, rank);
    WEFT_OS->free(all);
    return status;
}

weft_group *weft_group_split_lists(weft_group *parent, const weft_rank_list *lists, int count,
                                   const weft_group_opts *opts)
{
    weft_i_making how = {.unlisted = true, .limit_ms = WEFT_DEFAULT};
    if (weft_i_group_usable(parent) < 0 || weft_i_group_copy_opts(opts, &how.opts) < 0 ||
        check_lists("split_lists", parent, lists, count) < 0 ||
        agree_on_lists(parent, hash_lists(lists, count)) < 0)
        return NULL;
    const weft_rank_list *mine = own_list(parent, lists, count);
    return mine ? weft_i_group_make(parent, mine->ranks, mine->count, &how) : NULL;
}

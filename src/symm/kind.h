/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of operations and what is known about each of them; kinds.def has the rows. */
#ifndef WEFT_SYMM_KIND_H
#define WEFT_SYMM_KIND_H

#include "base/os/assert.h"
#include "base/report/record.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum weft_i_coll_kind {
#define COLL(name_, text_, record_, as_, facts_) WEFT_I_##name_,
#include "symm/kinds.def"
#undef COLL
    WEFT_I_COLL_KINDS
} weft_i_coll_kind;

typedef enum weft_i_fact {
    WEFT_I_REDUCES = 1 << 0,      /* it has a reduction */
    WEFT_I_FROM_ROOT = 1 << 1,    /* only the root gives */
    WEFT_I_TO_ROOT = 1 << 2,      /* only the root takes */
    WEFT_I_HAS_PARTS = 1 << 3,    /* the input is one part for each rank */
    WEFT_I_PLACES_PARTS = 1 << 4, /* the output is one part from each rank */
    WEFT_I_PULLS = 1 << 5,        /* a rank copies its own part, and may prefetch others' */
    WEFT_I_IS_LIST = 1 << 6,      /* operands are lists of tensors */
    WEFT_I_PER_RANK = 1 << 7,     /* operands are a tensor for each rank */
    WEFT_I_IS_OBJECT = 1 << 8,    /* operands are byte strings */
    WEFT_I_SYMMETRIC = 1 << 9,    /* works on symmetric memory only */
    /* On devices: */
    WEFT_I_STAGED = 1 << 10, /* kernels move its parts over a stage of the group */
    WEFT_I_ITEMS_STAGED =
        1 << 11,             /* or do so for each pair of operands, as the kind of its result */
    WEFT_I_LIBRARY = 1 << 12 /* a library such as NCCL can carry it */
} weft_i_fact;

typedef struct weft_i_kind_row {
    const char *name;
    weft_i_record_name record;
    weft_i_coll_kind as;
    uint32_t facts;
} weft_i_kind_row;

extern const weft_i_kind_row weft_i_kinds[WEFT_I_COLL_KINDS];

static inline bool weft_i_kind_is(weft_i_coll_kind kind, uint32_t facts)
{
    WEFT_ASSERT(kind < WEFT_I_COLL_KINDS);
    return weft_i_kinds[kind].facts & facts;
}

static inline const char *weft_i_coll_name(weft_i_coll_kind kind)
{
    WEFT_ASSERT(kind < WEFT_I_COLL_KINDS);
    return weft_i_kinds[kind].name;
}

static inline const weft_i_record_name *weft_i_coll_record_name(weft_i_coll_kind kind)
{
    WEFT_ASSERT(kind < WEFT_I_COLL_KINDS);
    return &weft_i_kinds[kind].record;
}

/* The kind with this name; -1: there is none. */
int weft_i_kind_named(const char *name);

/* The kind that a list of such calls makes; -1: they cannot be one operation. */
int weft_i_kind_list_of(weft_i_coll_kind kind);

#endif

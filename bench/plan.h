/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is measured: the operations, and the buffers each needs for a size.  Shared by `weft bench`
 * and by the programs of its peers, so that all measure the same thing; C and C++.
 *
 * The size of a case is the larger buffer of one rank, as in nccl-tests: the vector of an
 * all_reduce, reduce, broadcast or send_recv, the gathered output, the input that is scattered, one
 * rank's send buffer of an all_to_all.
 */
#ifndef WEFT_BENCH_PLAN_H
#define WEFT_BENCH_PLAN_H

#include <weft/coll.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum plan_op {
    PLAN_ALL_REDUCE,
    PLAN_ALL_GATHER,
    PLAN_REDUCE_SCATTER,
    PLAN_ALL_TO_ALL,
    PLAN_BROADCAST,
    PLAN_REDUCE,
    PLAN_GATHER,
    PLAN_SCATTER,
    PLAN_SEND_RECV, /* round a ring: each rank sends to the next and receives from the last */
    PLAN_BARRIER,
    PLAN_OPS
} plan_op;

static inline const char *plan_op_name(int op)
{
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "broadcast",  "reduce",     "gather",         "scatter",
                                        "send_recv",  "barrier"};
    return op >= 0 && op < PLAN_OPS ? names[op] : "?";
}

/* -1 if there is none of that name. */
static inline int plan_op_find(const char *name)
{
    for (int op = 0; op < PLAN_OPS; op++)
        if (!strcmp(plan_op_name(op), name))
            return op;
    return -1;
}

/* Has it a reduction?  Has it a root (which rotates from call to call)?  Is a buffer cut into parts
 * of the ranks? */
static inline int plan_op_reduces(int op)
{
    return op == PLAN_ALL_REDUCE || op == PLAN_REDUCE_SCATTER || op == PLAN_REDUCE;
}

static inline int plan_op_rooted(int op)
{
    return op == PLAN_BROADCAST || op == PLAN_REDUCE || op == PLAN_GATHER || op == PLAN_SCATTER;
}

static inline int plan_op_parted(int op)
{
    return op == PLAN_ALL_GATHER || op == PLAN_REDUCE_SCATTER || op == PLAN_ALL_TO_ALL ||
           op == PLAN_GATHER || op == PLAN_SCATTER;
}

/* Can the output be the input?  A broadcast always is in place; others have parts. */
static inline int plan_op_in_place(int op)
{
    return op == PLAN_ALL_REDUCE || op == PLAN_REDUCE;
}

static inline size_t plan_dtype_size(int dtype)
{
    switch (dtype) {
#define DTYPE(name_, text_, type_, kind_) \
    case WEFT_##name_:                    \
        return sizeof(type_);
#include <weft/dtype.def>
#undef DTYPE
    default:
        return 0;
    }
}

typedef struct plan_case {
    int32_t op, dtype, reduction, ranks;
    int32_t in_place; /* out is in */
    int32_t spare;
    uint64_t bytes;               /* the size; rounded up to whole elements, and to whole parts */
    uint64_t count;               /* its elements */
    uint64_t part;                /* bytes of a rank's part; all of it if there are no parts */
    uint64_t in_bytes, out_bytes; /* of one rank */
} plan_case;

static inline plan_case plan_case_of(int op, int dtype, int reduction, int ranks, uint64_t bytes)
{
    plan_case c;
    memset(&c, 0, sizeof c);
    uint64_t unit = plan_dtype_size(dtype), pieces = plan_op_parted(op) ? (uint64_t)ranks : 1;
    uint64_t each = (bytes / unit + pieces - 1) / pieces;
    if (!each)
        each = 1;
    c.op = op;
    c.dtype = dtype;
    c.reduction = reduction;
    c.ranks = ranks;
    c.part = each * unit;
    c.bytes = c.part * pieces;
    c.in_bytes = op == PLAN_ALL_GATHER || op == PLAN_GATHER ? c.part : c.bytes;
    c.out_bytes = op == PLAN_REDUCE_SCATTER || op == PLAN_SCATTER ? c.part : c.bytes;
    if (op == PLAN_BARRIER)
        c.part = c.bytes = c.in_bytes = c.out_bytes = 0;
    c.in_place = op == PLAN_BROADCAST;
    c.count = c.bytes / unit;
    return c;
}

/* Bytes on the busiest wire per byte of the size: nccl-tests' bus bandwidth is this times size /
 * time. */
static inline double plan_bus_factor(int op, int ranks)
{
    double share = (double)(ranks - 1) / ranks;
    switch (op) {
    case PLAN_ALL_REDUCE:
        return 2 * share;
    case PLAN_ALL_GATHER:
    case PLAN_REDUCE_SCATTER:
    case PLAN_ALL_TO_ALL:
    case PLAN_GATHER:
    case PLAN_SCATTER:
        return share;
    default:
        return 1;
    }
}

#endif

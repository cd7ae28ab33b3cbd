/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any collective as a value, so that tests can make them up, vary them, and run them by the
 * thousand.
 */
#ifndef WEFT_TESTS_COLL_ACTS_H
#define WEFT_TESTS_COLL_ACTS_H

#include "coll_values.h"

typedef enum act_kind {
    ACT_ALL_REDUCE,
    ACT_REDUCE,
    ACT_BROADCAST,
    ACT_ALL_GATHER,
    ACT_GATHER,
    ACT_SCATTER,
    ACT_REDUCE_SCATTER,
    ACT_ALL_TO_ALL,
    ACT_UNEVEN,
    ACT_BARRIER,
    ACT_KINDS
} act_kind;

typedef struct act {
    act_kind kind;
    weft_dtype dtype;
    weft_reduction reduction;
    int root;
    int64_t count; /* of one part */
    bool posted;
    int64_t odd; /* uneven: rows this rank sends rank 0 too many */
    uint64_t seed;
} act;

/* The operands of one rank, made in the current scope. */
typedef struct act_operands {
    weft_tensor *in, *out; /* NULL: none */
    int64_t in_count, out_count;
    int64_t in_splits[VALUES_RANKS], out_splits[VALUES_RANKS];
} act_operands;

static inline bool act_folds(act_kind kind)
{
    return kind == ACT_ALL_REDUCE || kind == ACT_REDUCE || kind == ACT_REDUCE_SCATTER;
}

static inline bool act_has_root(act_kind kind)
{
    return kind == ACT_REDUCE || kind == ACT_BROADCAST || kind == ACT_GATHER || kind == ACT_SCATTER;
}

/* Small operands of these go one way: who gives goes on, who takes waits for the giver alone. */
__attribute__((unused)) static bool act_needs(const act *a, int size, int rank, int other)
{
    static const char *const names[] = {[ACT_REDUCE] = "reduce",
                                        [ACT_BROADCAST] = "broadcast",
                                        [ACT_GATHER] = "gather",
                                        [ACT_SCATTER] = "scatter"};
    size_t bytes = (size_t)a->count * weft_dtype_size(a->dtype);
    if (a->kind == ACT_SCATTER)
        bytes *= (size_t)size;
    if (!act_has_root(a->kind) ||
        !strcmp(weft_tune_choice(names[a->kind], size, bytes), "rendezvous"))
        return true;
    bool to_root = a->kind == ACT_REDUCE || a->kind == ACT_GATHER;
    return to_root ? rank == a->root : other == a->root;
}

/* As the library's messages tell a call. */
__attribute__((unused)) static const char *act_text(const act *a, char *out, size_t bytes)
{
    static const char *const names[] = {
        [ACT_ALL_REDUCE] = "all_reduce", [ACT_REDUCE] = "reduce",
        [ACT_BROADCAST] = "broadcast",   [ACT_ALL_GATHER] = "all_gather",
        [ACT_GATHER] = "gather",         [ACT_SCATTER] = "scatter",
        [ACT_ALL_TO_ALL] = "all_to_all", [ACT_REDUCE_SCATTER] = "reduce_scatter",
    };
    char fold[32] = "", root[32] = "";
    if (act_folds(a->kind))
        snprintf(fold, sizeof fold, ", %s", weft_reduction_name(a->reduction));
    if (act_has_root(a->kind))
        snprintf(root, sizeof root, ", root %d", a->root);
    if (a->kind == ACT_BARRIER)
        snprintf(out, bytes, "barrier");
    else if (a->kind == ACT_UNEVEN)
        snprintf(out, bytes, "all_to_all of %s by splits", weft_dtype_name(a->dtype));
    else
        snprintf(out, bytes, "%s of %lld %s%s%s", names[a->kind], (long long)a->count,
                 weft_dtype_name(a->dtype), fold, root);
    return out;
}

/* Rows that rank `from` sends rank `to`. */
static inline int64_t act_rows(const act *a, int from, int to)
{
    return a->count + (from + to) % 3;
}

static inline act_operands act_prepare(const act *a, int rank, int size)
{
    act_operands o = {.in_count = a->count, .out_count = a->count};
    bool root = rank == a->root;
    int64_t all = a->count * size;
    if (a->kind == ACT_ALL_GATHER || (a->kind == ACT_GATHER && root) || a->kind == ACT_ALL_TO_ALL)
        o.out_count = all;
    if (a->kind == ACT_REDUCE_SCATTER || (a->kind == ACT_SCATTER && root) ||
        a->kind == ACT_ALL_TO_ALL)
        o.in_count = all;
    if ((a->kind == ACT_REDUCE || a->kind == ACT_GATHER) && !root)
        o.out_count = -1;
    if ((a->kind == ACT_SCATTER && !root) || a->kind == ACT_BARRIER)
        o.in_count = -1;
    if (a->kind == ACT_BARRIER)
        o.out_count = -1;
    if (a->kind == ACT_UNEVEN) {
        o.in_count = o.out_count = 0;
        for (int peer = 0; peer < size; peer++) {
            o.in_splits[peer] = act_rows(a, rank, peer) + (peer == 0 ? a->odd : 0);
            o.out_splits[peer] = act_rows(a, peer, rank);
            o.in_count += o.in_splits[peer];
            o.out_count += o.out_splits[peer];
        }
    }
    if (o.out_count >= 0) {
        CHECK(o.out = weft_empty(a->dtype, WEFT_CPU, WEFT_SHAPE(o.out_count)));
        if (o.out_count)
            memset(weft_tensor_data(o.out), 0xee, weft_tensor_bytes(o.out));
    }
    if (o.in_count >= 0) {
        o.in = a->kind == ACT_BROADCAST ? o.out
                                        : weft_empty(a->dtype, WEFT_CPU, WEFT_SHAPE(o.in_count));
        CHECK(o.in);
        values_put(a->dtype, VALUES_WHOLE, a->seed, rank, 0, (size_t)o.in_count,
                   weft_tensor_data(o.in));
    }
    return o;
}

#define ACT_START(name_, ...) \
    ((work = weft_##name_##_start(__VA_ARGS__)) ? WEFT_OK : weft_last_status())
#define ACT_EITHER(name_, ...) \
    (a->posted ? ACT_START(name_, __VA_ARGS__) : weft_##name_##_into(__VA_ARGS__))

/* Starts a posted act (then *posted is set), or runs it. */
static inline weft_status act_begin(const act *a, act_operands *o, weft_group *group,
                                    weft_work **posted)
{
    weft_status status = WEFT_OK;
    weft_work *work = NULL;
    switch (a->kind) {
    case ACT_ALL_REDUCE:
        status = ACT_EITHER(all_reduce, o->out, o->in, a->reduction, group);
        break;
    case ACT_REDUCE:
        status = ACT_EITHER(reduce, o->out, o->in, a->reduction, a->root, group);
        break;
    case ACT_BROADCAST:
        status = a->posted ? ACT_START(broadcast, o->out, a->root, group)
                           : weft_broadcast_in_place(o->out, a->root, group);
        break;
    case ACT_ALL_GATHER:
        status = ACT_EITHER(all_gather, o->out, o->in, group);
        break;
    case ACT_GATHER:
        status = ACT_EITHER(gather, o->out, o->in, a->root, group);
        break;
    case ACT_SCATTER:
        status = ACT_EITHER(scatter, o->out, o->in, a->root, group);
        break;
    case ACT_REDUCE_SCATTER:
        status = ACT_EITHER(reduce_scatter, o->out, o->in, a->reduction, group);
        break;
    case ACT_ALL_TO_ALL:
        status = ACT_EITHER(all_to_all, o->out, o->in, NULL, NULL, group);
        break;
    case ACT_UNEVEN:
        status = ACT_EITHER(all_to_all, o->out, o->in, o->out_splits, o->in_splits, group);
        break;
    default:
        status = ACT_START(barrier, group);
    }
    *posted = work;
    return status;
}

static inline weft_status act_run(const act *a, act_operands *o, weft_group *group)
{
    weft_work *work = NULL;
    weft_status status = act_begin(a, o, group, &work);
    if (!work)
        return status;
    status = weft_work_wait(work, WEFT_DEFAULT);
    weft_release(work);
    return status;
}

/* The first element of the output that is wrong, or -1. */
static inline int64_t act_check(const act *a, const act_operands *o, int rank, int size)
{
    const char *out = o->out ? weft_tensor_data(o->out) : NULL;
    size_t part = (size_t)a->count, mine = (size_t)rank * part, item = weft_dtype_size(a->dtype);
    int64_t wrong = -1;
    if (!out)
        return -1;
    if (act_folds(a->kind))
        return values_check_fold(a->dtype, a->reduction, VALUES_WHOLE, a->seed, size,
                                 a->kind == ACT_REDUCE_SCATTER ? mine : 0, part, NULL, out);
    if (a->kind == ACT_BROADCAST || a->kind == ACT_SCATTER)
        return values_check(a->dtype, VALUES_WHOLE, a->seed, a->root,
                            a->kind == ACT_SCATTER ? mine : 0, part, out);
    size_t at = 0;
    for (int from = 0; from < size && wrong < 0; from++) {
        size_t first = a->kind == ACT_ALL_TO_ALL ? mine : 0, count = part;
        if (a->kind == ACT_UNEVEN) {
            count = (size_t)act_rows(a, from, rank);
            for (int to = 0; to < rank; to++)
                first += (size_t)act_rows(a, from, to);
        }
        wrong = values_check(a->dtype, VALUES_WHOLE, a->seed, from, first, count, out + at * item);
        at += count;
    }
    return wrong;
}

/* Is the input what the rank brought?  Not for broadcasts that have begun. */
static inline bool act_input_is_intact(const act *a, const act_operands *o, int rank)
{
    return !o->in || values_check(a->dtype, VALUES_WHOLE, a->seed, rank, 0, (size_t)o->in_count,
                                  weft_tensor_data(o->in)) < 0;
}

/* One act from beginning to end; its result must be right. */
__attribute__((unused)) static void act_perform(const act *a, int rank, int size, weft_group *group)
{
    weft_scope_open();
    act_operands o = act_prepare(a, rank, size);
    CHECK_OK(act_run(a, &o, group));
    CHECK_INT(act_check(a, &o, rank, size), -1);
    weft_scope_close();
}

#endif

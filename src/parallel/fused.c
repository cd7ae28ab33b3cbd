/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions of fused operations: rows of the registry, called with plain data. */
#include "weft/fused.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/group.h"
#include "parallel/fused.h"
#include "tensor/object/eye.h"
#include "tune/tune.h"

#define GROUP_ARG(group_) WEFT_I_GROUP_ARG(group_, weft_group_name(group_), (group_)->size)

static _Thread_local weft_fused_way wish;

void weft_fused_use(weft_fused_way way)
{
    wish = way;
}

weft_fused_way weft_i_fused_wish(void)
{
    return wish;
}

/* A wish for multicast, which this group may not have, goes by size too. */
bool weft_i_fused_pays(bool gathers, weft_device device, int64_t bytes)
{
    weft_i_coll_kind kind = gathers ? WEFT_I_ALL_GATHER_MATMUL : WEFT_I_MATMUL_REDUCE_SCATTER;
    if (wish == WEFT_FUSED_PIPELINE || wish == WEFT_FUSED_PAIR)
        return wish == WEFT_FUSED_PIPELINE;
    size_t from = weft_i_device_is_host(device) ? weft_i_tune_same(WEFT_I_TUNE_FUSED, kind)
                                                : weft_i_tune_same(WEFT_I_TUNE_FUSED_CUDA, kind);
    return (uint64_t)bytes >= from;
}

/* NULL comes from an earlier failure, whose error stays; without one it is the caller's mistake. */
static weft_status check(const char *op, const char *which, const void *pointer)
{
    if (pointer)
        return WEFT_OK;
    return weft_last_status() < 0
               ? weft_last_status()
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the %s is NULL", op, which);
}

/* ---- gathers ---- */

/* Lists of up to so many tensors need no memory of their own. */
enum { FEW = 8 };

/* Calls a row and hands out its results: the products, then the gathered tensor. */
static weft_status call_row(const weft_i_op *op, weft_i_arg *args, weft_tensor **a,
                            weft_tensor **out)
{
    size_t count = args[0].count;
    weft_tensor *few[FEW], **results = few;
    if (count > FEW)
        results = WEFT_OS->alloc(count * sizeof *results);
    if (!results)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu results", op->name, count);
    weft_status status = weft_i_op_apply_list(op, results, args);
    if (status >= 0) {
        for (size_t i = 0; i < count - 1; i++)
            out[i] = results[i];
        if (a)
            *a = results[count - 1];
    }
    if (results != few)
        WEFT_OS->free(results);
    return status;
}

static weft_status check_gather(const char *op, const void *shard, const void *b, int count,
                                const void *out, const weft_group *group)
{
    if (count < 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %d right-hand sides; at least one", op,
                           count);
    WEFT_TRY(check(op, "shard", shard));
    WEFT_TRY(check(op, "list of right-hand sides", b));
    WEFT_TRY(check(op, "room for results", out));
    return check(op, "group", group);
}

weft_status weft_all_gather_matmul(weft_tensor **a, weft_tensor **out, weft_tensor *a_shard,
                                   weft_tensor *const *b, int count, int dim, weft_group *group)
{
    WEFT_TRY(check_gather("all_gather_matmul", a_shard, b, count, out, group));
    size_t all = (size_t)count + 1;
    weft_tensor *few[FEW], **list = few;
    if (all > FEW)
        list = WEFT_OS->alloc(all * sizeof *list);
    if (!list)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "all_gather_matmul: no memory for %d tensors",
                           count);
    for (int i = 0; i < count; i++)
        list[i] = b[i];
    list[count] = a_shard;
    weft_i_arg args[] = {WEFT_I_TENSORS_ARG(list, all), WEFT_I_INTEGER_ARG(dim),
                         WEFT_I_INTEGER_ARG(a != NULL), GROUP_ARG(group)};
    weft_status status = call_row(&weft_i_op_all_gather_matmul, args, a, out);
    if (list != few)
        WEFT_OS->free(list);
    return status;
}

/* The lists of a scaled call, in one piece of memory. */
typedef struct lists {
    weft_tensor **x, **scales, **biases, **results;
    int64_t *dtypes;
} lists;

static weft_status make_lists(lists *l, size_t count)
{
    size_t all = count + 1;
    *l = (lists){.x = WEFT_OS->alloc(4 * all * sizeof *l->x),
                 .dtypes = WEFT_OS->alloc(all * sizeof *l->dtypes)};
    if (!l->x || !l->dtypes) {
        WEFT_OS->free(l->x);
        WEFT_OS->free(l->dtypes);
        return weft_i_fail(WEFT_ERR_NO_MEMORY,
                           "all_gather_scaled_matmul: no memory for %zu tensors", all);
    }
    l->scales = l->x + all;
    l->biases = l->scales + all;
    l->results = l->biases + all;
    return WEFT_OK;
}

weft_status weft_all_gather_scaled_matmul(weft_tensor **a, weft_tensor **out, weft_tensor *a_shard,
                                          weft_tensor *a_scale, const weft_scaled *b, int count,
                                          int dim, weft_group *group)
{
    lists l;
    size_t n = (size_t)count;
    WEFT_TRY(check_gather("all_gather_scaled_matmul", a_shard, b, count, out, group));
    WEFT_TRY(make_lists(&l, n));
    l.x[n] = a_shard;
    l.scales[n] = a_scale;
    for (size_t i = 0; i < n; i++) {
        l.x[i] = b[i].b;
        l.scales[i] = b[i].scale;
        l.biases[i] = b[i].bias;
        l.results[i] = b[i].result_scale;
        l.dtypes[i] = b[i].dtype;
    }
    weft_i_arg args[] = {WEFT_I_TENSORS_ARG(l.x, n + 1),   WEFT_I_TENSORS_ARG(l.scales, n + 1),
                         WEFT_I_TENSORS_ARG(l.biases, n),  WEFT_I_TENSORS_ARG(l.results, n),
                         WEFT_I_INTEGERS_ARG(l.dtypes, n), WEFT_I_INTEGER_ARG(dim),
                         WEFT_I_INTEGER_ARG(a != NULL),    GROUP_ARG(group)};
    weft_status status = call_row(&weft_i_op_all_gather_scaled_matmul, args, a, out);
    WEFT_OS->free(l.x);
    WEFT_OS->free(l.dtypes);
    return status;
}

/* ---- scatters ---- */

weft_tensor *weft_matmul_reduce_scatter(weft_tensor *a, weft_tensor *b, weft_reduction op, int dim,
                                        weft_group *group)
{
    if (check("matmul_reduce_scatter", "group", group) < 0)
        return NULL;
    return WEFT_I_APPLY(matmul_reduce_scatter, WEFT_I_TENSOR_ARG(a), WEFT_I_TENSOR_ARG(b),
                        WEFT_I_INTEGER_ARG(op), WEFT_I_INTEGER_ARG(dim), GROUP_ARG(group));
}

weft_tensor *weft_scaled_matmul_reduce_scatter(weft_tensor *a, weft_tensor *a_scale,
                                               const weft_scaled *b, weft_reduction op, int dim,
                                               weft_group *group)
{
    if (check("scaled_matmul_reduce_scatter", "right-hand side", b) < 0 ||
        check("scaled_matmul_reduce_scatter", "group", group) < 0)
        return NULL;
    const weft_tensor *right = weft_i_see(b->b);
    int64_t dtype = b->dtype == -1 && right ? (int64_t)right->dtype : b->dtype;
    return WEFT_I_APPLY(scaled_matmul_reduce_scatter, WEFT_I_TENSOR_ARG(a), WEFT_I_TENSOR_ARG(b->b),
                        WEFT_I_TENSOR_ARG(a_scale), WEFT_I_TENSOR_ARG(b->scale),
                        WEFT_I_OPTIONAL_ARG(b->bias), WEFT_I_OPTIONAL_ARG(b->result_scale),
                        WEFT_I_INTEGER_ARG(dtype), WEFT_I_INTEGER_ARG(op), WEFT_I_INTEGER_ARG(dim),
                        GROUP_ARG(group));
}

/* ---- layouts ---- */

static weft_tensor *restride(weft_tensor *x, int dim)
{
    weft_tensor *moved = x ? weft_movedim(x, dim, 0) : NULL;
    weft_tensor *packed = moved ? weft_contiguous(moved) : NULL;
    weft_tensor *out = packed ? weft_movedim(packed, 0, dim) : NULL;
    weft_release(moved);
    weft_release(packed);
    return out;
}

weft_tensor *weft_restride_shard(weft_tensor *a_shard, int dim)
{
    return check(__func__, "tensor", a_shard) < 0 ? NULL : restride(a_shard, dim);
}

weft_tensor *weft_restride_for_scatter(weft_tensor *a, int dim)
{
    return check(__func__, "tensor", a) < 0 ? NULL : restride(a, dim);
}

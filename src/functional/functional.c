/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functional collectives' public functions.  Each turns its arguments into plain data and calls
 * a row of the registry (ops.def), where modes and meta tensors meet it like any other operation.
 */
#include "weft/functional.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "functional/functional.h"
#include "tensor/object/eye.h"
#include "weft/op.h"
#include "weft/view.h"

#include <string.h>

#define GROUP_ARG(group_)   WEFT_I_GROUP_ARG(group_, weft_group_name(group_), (group_)->size)
#define REDUCTION_ARGS(op_) WEFT_I_INTEGER_ARG(op_), WEFT_I_NUMBER_ARG(weft_i_request_premul())

static bool is_null(const char *what, const char *which, const void *pointer)
{
    return !pointer && weft_i_missing("%s: the %s is NULL", what, which) < 0;
}

#define CHECK_GROUP(group_, failed_)              \
    do {                                          \
        if (is_null(__func__, "group", (group_))) \
            return failed_;                       \
    } while (0)

/* ---- one tensor ---- */

weft_tensor *weft_all_reduce(weft_tensor *x, weft_reduction op, weft_group *group)
{
    CHECK_GROUP(group, NULL);
    return WEFT_I_APPLY(all_reduce, WEFT_I_TENSOR_ARG(x), REDUCTION_ARGS(op), GROUP_ARG(group));
}

weft_tensor *weft_all_gather_tensor(weft_tensor *x, int dim, weft_group *group)
{
    CHECK_GROUP(group, NULL);
    return WEFT_I_APPLY(all_gather_into_tensor, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim),
                        GROUP_ARG(group));
}

weft_tensor *weft_reduce_scatter_tensor(weft_tensor *x, weft_reduction op, int dim,
                                        weft_group *group)
{
    CHECK_GROUP(group, NULL);
    return WEFT_I_APPLY(reduce_scatter_tensor, WEFT_I_TENSOR_ARG(x), REDUCTION_ARGS(op),
                        WEFT_I_INTEGER_ARG(dim), GROUP_ARG(group));
}

weft_tensor *weft_all_to_all_single(weft_tensor *x, const int64_t *out_splits,
                                    const int64_t *in_splits, weft_group *group)
{
    CHECK_GROUP(group, NULL);
    return WEFT_I_APPLY(all_to_all_single, WEFT_I_TENSOR_ARG(x),
                        WEFT_I_INTEGERS_ARG(out_splits, out_splits ? group->size : 0),
                        WEFT_I_INTEGERS_ARG(in_splits, in_splits ? group->size : 0),
                        GROUP_ARG(group));
}

weft_tensor *weft_broadcast(weft_tensor *x, int src, weft_group *group)
{
    CHECK_GROUP(group, NULL);
    return WEFT_I_APPLY(broadcast, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(src), GROUP_ARG(group));
}

weft_tensor *weft_wait_tensor(weft_tensor *x)
{
    return WEFT_I_APPLY(wait_tensor, WEFT_I_TENSOR_ARG(x));
}

weft_tensor *weft_all_reduce_(weft_tensor *x, weft_reduction op, weft_group *group)
{
    CHECK_GROUP(group, NULL);
    return WEFT_I_APPLY(all_reduce_, WEFT_I_TENSOR_ARG(x), REDUCTION_ARGS(op), GROUP_ARG(group));
}

weft_tensor *weft_broadcast_(weft_tensor *x, int src, weft_group *group)
{
    CHECK_GROUP(group, NULL);
    return WEFT_I_APPLY(broadcast_, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(src),
                        GROUP_ARG(group));
}

weft_tensor *weft_all_gather_into_tensor_out(weft_tensor *out, weft_tensor *x, int dim,
                                             weft_group *group)
{
    CHECK_GROUP(group, NULL);
    return WEFT_I_APPLY(all_gather_into_tensor_out, WEFT_I_TENSOR_ARG(out), WEFT_I_TENSOR_ARG(x),
                        WEFT_I_INTEGER_ARG(dim), GROUP_ARG(group));
}

weft_tensor *weft_reduce_scatter_tensor_out(weft_tensor *out, weft_tensor *x, weft_reduction op,
                                            int dim, weft_group *group)
{
    CHECK_GROUP(group, NULL);
    return WEFT_I_APPLY(reduce_scatter_tensor_out, WEFT_I_TENSOR_ARG(out), WEFT_I_TENSOR_ARG(x),
                        REDUCTION_ARGS(op), WEFT_I_INTEGER_ARG(dim), GROUP_ARG(group));
}

/* ---- permute ---- */

/* Counts how often each rank receives; all must once. */
static weft_status check_permutation(const int *src_dst, const weft_group *group, int64_t *times)
{
    for (int rank = 0; rank < group->size; rank++) {
        int to = src_dst[rank];
        if (to < 0 || to >= group->size)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "permute_tensor: rank %d sends to rank %d, which must be in [0, %d)",
                               rank, to, group->size);
        if (times[to]++)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "permute_tensor: no permutation: two ranks send to rank %d", to);
    }
    return WEFT_OK;
}

/* All rows of `x` to one rank, and as many from one rank.  The result has the shape of `x` without
 * another step that could fail, single elements excepted. */
static weft_tensor *exchange(weft_tensor *x, const int *src_dst, weft_group *group, int64_t *splits)
{
    int64_t *out_splits = splits, *in_splits = splits + group->size;
    int me =
        group->rank < 0 ? 0 : group->rank; /* a stand-in's result has one shape for all ranks */
    weft_tensor *rows = x->ndim ? x : weft_view(x, WEFT_SHAPE(1));
    if (!rows)
        return NULL;
    for (int rank = 0; rank < group->size; rank++) {
        out_splits[rank] = src_dst[rank] == me ? rows->dim[0] : 0;
        in_splits[rank] = src_dst[me] == rank ? rows->dim[0] : 0;
    }
    weft_tensor *moved = weft_all_to_all_single(rows, out_splits, in_splits, group);
    if (x->ndim)
        return moved;
    weft_tensor *single = moved ? weft_view(moved, WEFT_SCALAR) : NULL;
    weft_release(rows);
    weft_release(moved);
    return single;
}

weft_tensor *weft_permute_tensor(weft_tensor *x, const int *src_dst, weft_group *group)
{
    x = weft_i_see(x);
    if (is_null(__func__, "tensor", x) || is_null(__func__, "group", group) ||
        is_null(__func__, "permutation", src_dst))
        return NULL;
    size_t size = (size_t)group->size;
    int64_t *splits = WEFT_OS->alloc(2 * size * sizeof *splits);
    if (!splits)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "permute_tensor: no memory for %zu ranks", size);
    weft_tensor *result =
        check_permutation(src_dst, group, splits) < 0 ? NULL : exchange(x, src_dst, group, splits);
    WEFT_OS->free(splits);
    return result;
}

/* ---- lists ---- */

static weft_status check_list(const char *what, const void *out, const void *in, int count)
{
    if (count < 1 || !out || !in)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a list of %d tensors from %p to %p", what,
                           count, in, out);
    return WEFT_OK;
}

weft_status weft_wait_tensors(weft_tensor **out, weft_tensor *const *in, int count)
{
    weft_status first = WEFT_OK;
    weft_i_errors told;
    WEFT_TRY(check_list(__func__, out, in, count));
    for (int i = 0; i < count; i++)
        if (is_null(__func__, "tensor", in[i]))
            return weft_last_status();
    for (int i = 0; i < count; i++) {
        out[i] = weft_wait_tensor(in[i]);
        if (out[i] || first < 0)
            continue;
        first = weft_last_status();
        weft_i_errors_save(&told);
    }
    if (first < 0) {
        memset(out, 0, (size_t)count * sizeof *out);
        weft_i_errors_restore(&told);
    }
    return first;
}

#define LIST_ARG(in_, count_) WEFT_I_TENSORS_ARG(in_, (size_t)(count_))
#define CALL_LIST(op_, out_, ...) \
    weft_i_op_apply_list(&weft_i_op_##op_, out_, (weft_i_arg[]){__VA_ARGS__})

weft_status weft_all_reduce_coalesced(weft_tensor **out, weft_tensor *const *in, int count,
                                      weft_reduction op, weft_group *group)
{
    CHECK_GROUP(group, weft_last_status());
    WEFT_TRY(check_list(__func__, out, in, count));
    return CALL_LIST(all_reduce_coalesced, out, LIST_ARG(in, count), REDUCTION_ARGS(op),
                     GROUP_ARG(group));
}

weft_status weft_all_gather_into_tensor_coalesced(weft_tensor **out, weft_tensor *const *in,
                                                  int count, weft_group *group)
{
    CHECK_GROUP(group, weft_last_status());
    WEFT_TRY(check_list(__func__, out, in, count));
    return CALL_LIST(all_gather_into_tensor_coalesced, out, LIST_ARG(in, count), GROUP_ARG(group));
}

weft_status weft_reduce_scatter_tensor_coalesced(weft_tensor **out, weft_tensor *const *in,
                                                 int count, weft_reduction op, const int *dims,
                                                 weft_group *group)
{
    CHECK_GROUP(group, weft_last_status());
    WEFT_TRY(check_list(__func__, out, in, count));
    int64_t *wide = WEFT_OS->alloc((size_t)count * sizeof *wide);
    if (!wide)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d tensors", __func__, count);
    for (int i = 0; i < count; i++)
        wide[i] = dims ? dims[i] : 0;
    weft_status status =
        CALL_LIST(reduce_scatter_tensor_coalesced, out, LIST_ARG(in, count), REDUCTION_ARGS(op),
                  WEFT_I_INTEGERS_ARG(wide, count), GROUP_ARG(group));
    WEFT_OS->free(wide);
    return status;
}

weft_status weft_all_reduce_coalesced_(weft_tensor *const *x, int count, weft_reduction op,
                                       weft_group *group)
{
    CHECK_GROUP(group, weft_last_status());
    WEFT_TRY(check_list(__func__, x, x, count));
    weft_tensor **same = WEFT_OS->alloc((size_t)count * sizeof *same);
    if (!same)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d tensors", __func__, count);
    weft_status status = CALL_LIST(all_reduce_coalesced_, same, LIST_ARG(x, count),
                                   REDUCTION_ARGS(op), GROUP_ARG(group));
    WEFT_OS->free(same);
    return status;
}

/* Shapes as plain numbers: how many dimensions, then their sizes. */
static size_t write_shapes(const weft_shape *shapes, int count, int64_t *out)
{
    size_t used = 0;
    for (int i = 0; shapes && i < count; i++) {
        out[used++] = shapes[i].ndim;
        for (int dim = 0; dim < shapes[i].ndim && dim < WEFT_MAX_DIMS; dim++)
            out[used++] = shapes[i].dim[dim];
    }
    return used;
}

weft_status weft_all_to_all(weft_tensor **out, weft_tensor *const *in, const weft_shape *shapes,
                            weft_group *group)
{
    CHECK_GROUP(group, weft_last_status());
    WEFT_TRY(check_list(__func__, out, in, group->size));
    size_t room = (size_t)group->size * (WEFT_MAX_DIMS + 1);
    int64_t *numbers = WEFT_OS->alloc(room * sizeof *numbers);
    if (!numbers)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d shapes", __func__,
                           group->size);
    size_t used = write_shapes(shapes, group->size, numbers);
    weft_status status = CALL_LIST(all_to_all, out, LIST_ARG(in, group->size),
                                   WEFT_I_INTEGERS_ARG(numbers, used), GROUP_ARG(group));
    WEFT_OS->free(numbers);
    return status;
}

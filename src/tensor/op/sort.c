/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sort and topk: rows along a dimension.  Elements become keys whose order as unsigned integers is
 * theirs, NaN the largest; elements that are equal stay in their order.
 */
#include "base/os/os.h"
#include "kernels/number/convert.h"
#include "kernels/number/math.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

#include <string.h>

enum { X, DIM, SORT_DESCENDING, TOPK_COUNT = SORT_DESCENDING, TOPK_LARGEST };

/* Both results, values and indices, have the shape of x but for `count` along the dimension. */
static weft_status take_shape(weft_i_op_call *call, int64_t count)
{
    const weft_tensor *x = call->args[X].tensor;
    int dim = weft_i_dim_wrap(call->op->name, call->args[DIM].integer, x->ndim ? x->ndim : 1);
    if (dim < 0)
        return weft_last_status();
    int64_t size = x->ndim ? x->dim[dim] : 1;
    if (count > size || count < -1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %lld of %lld elements along dimension %d",
                           call->op->name, (long long)count, (long long)size, dim);
    call->result.dtype = call->which ? WEFT_I64 : x->dtype;
    call->result.shape = weft_i_tensor_shape(x);
    if (count >= 0 && x->ndim)
        call->result.shape.dim[dim] = count;
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

weft_status weft_i_sort_shape(weft_i_op_call *call)
{
    return take_shape(call, -1);
}

weft_status weft_i_topk_shape(weft_i_op_call *call)
{
    int64_t count = call->args[TOPK_COUNT].integer;
    return take_shape(call, count < 0 ? INT64_MAX : count);
}

typedef struct item {
    uint64_t key;
    int64_t at;
} item;

static uint64_t key_of(weft_dtype dtype, const char *x)
{
    const uint64_t sign = (uint64_t)1 << 63;
    if (weft_i_dtype_is_float(dtype)) {
        double value;
        weft_i_convert(WEFT_F64, &value, dtype, x, 1);
        uint64_t bits = weft_i_f64_bits(value + 0.0); /* -0 is 0 */
        return value != value ? UINT64_MAX : bits & sign ? ~bits : bits | sign;
    }
    if (dtype == WEFT_U64) {
        uint64_t value;
        memcpy(&value, x, sizeof value);
        return value;
    }
    int64_t value;
    weft_i_convert(WEFT_I64, &value, dtype, x, 1);
    return (uint64_t)value ^ sign;
}

static bool is_before(const item *a, const item *b)
{
    return a->key < b->key || (a->key == b->key && a->at < b->at);
}

/* Merges runs of 1, 2, 4 ... items, from one array to the other; returns where they are at last. */
static item *merge_all(item *from, item *to, size_t n)
{
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t start = 0; start < n; start += 2 * run) {
            size_t middle = start + run < n ? start + run : n;
            size_t end = start + 2 * run < n ? start + 2 * run : n;
            size_t a = start, b = middle;
            for (size_t i = start; i < end; i++)
                to[i] = a < middle && (b == end || is_before(&from[a], &from[b])) ? from[a++]
                                                                                  : from[b++];
        }
        item *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* Lets `x` sink from place `at` in a heap of `n` whose top is the last in order. */
static void sink(item *heap, size_t n, size_t at, item x)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(&heap[child], &heap[child + 1]))
            child++;
        if (is_before(&heap[child], &x))
            break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

/* Builds a heap of the first `count`, then lets the others in that come before its last. */
static void keep_first(item *heap, size_t count, const item *rest, size_t n)
{
    for (size_t i = count / 2; i-- > 0;)
        sink(heap, count, i, heap[i]);
    for (size_t i = 0; i < n; i++)
        if (is_before(&rest[i], &heap[0]))
            sink(heap, count, 0, rest[i]);
}

struct rows {
    const weft_tensor *x;
    int64_t n, count, step[3]; /* steps of values, indices and x along the dimension */
    bool descending;
    item *items; /* two arrays of n */
};

static void do_row(const struct rows *rows, char *values, char *indices, const char *from)
{
    size_t n = (size_t)rows->n, count = (size_t)rows->count;
    size_t size = weft_i_dtype_size(rows->x->dtype);
    for (size_t i = 0; i < n; i++) {
        uint64_t key = key_of(rows->x->dtype, from + (int64_t)i * rows->step[2]);
        rows->items[i] = (item){rows->descending ? ~key : key, (int64_t)i};
    }
    if (count && count < n)
        keep_first(rows->items, count, rows->items + count, n - count);
    const item *sorted = merge_all(rows->items, rows->items + n, count);
    for (size_t i = 0; i < count; i++) {
        memcpy(values + (int64_t)i * rows->step[0], from + sorted[i].at * rows->step[2], size);
        memcpy(indices + (int64_t)i * rows->step[1], &sorted[i].at, sizeof sorted[i].at);
    }
}

static void each_row(void *state, size_t n, char *const *data, const int64_t *stride)
{
    for (size_t i = 0; i < n; i++)
        do_row(state, data[0] + (int64_t)i * stride[0], data[1] + (int64_t)i * stride[1],
               data[2] + (int64_t)i * stride[2]);
}

/* A loop over the rows: the dimension taken out of all three tensors. */
static weft_i_loop loop_over_rows(const weft_i_op_call *call, struct rows *rows)
{
    const weft_tensor *all[] = {call->outs[0], call->outs[1], call->args[X].tensor};
    int dim = rows->x->ndim
                  ? weft_i_dim_wrap(call->op->name, call->args[DIM].integer, rows->x->ndim)
                  : -1;
    weft_i_loop loop = {.ndim = dim < 0 ? 0 : rows->x->ndim};
    for (int k = 0; k < 3; k++) {
        weft_tensor row = *all[k];
        rows->step[k] = dim < 0 ? 0 : weft_i_tensor_step(&row, dim);
        if (dim >= 0)
            row.dim[dim] = 1;
        if (k == 0)
            loop = weft_i_loop_over(&row);
        else
            weft_i_loop_add(&loop, &row);
    }
    return loop;
}

static weft_status run(weft_i_op_call *call, int64_t count, bool descending)
{
    struct rows rows = {.x = call->args[X].tensor, .descending = descending};
    weft_i_loop loop = loop_over_rows(call, &rows);
    int dim =
        rows.x->ndim ? weft_i_dim_wrap(call->op->name, call->args[DIM].integer, rows.x->ndim) : 0;
    rows.n = rows.x->ndim ? rows.x->dim[dim] : 1;
    rows.count = count < 0 ? rows.n : count;
    if (call->outs[0]->numel == 0)
        return WEFT_OK;
    rows.items = WEFT_OS->alloc(2 * (size_t)rows.n * sizeof *rows.items);
    if (!rows.items)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for a row of %lld elements",
                           call->op->name, (long long)rows.n);
    weft_i_loop_each(loop, each_row, &rows);
    WEFT_OS->free(rows.items);
    return WEFT_OK;
}

weft_status weft_i_sort_run(weft_i_op_call *call)
{
    return run(call, -1, call->args[SORT_DESCENDING].integer != 0);
}

weft_status weft_i_topk_run(weft_i_op_call *call)
{
    return run(call, call->args[TOPK_COUNT].integer, call->args[TOPK_LARGEST].integer != 0);
}

weft_status weft_sort(weft_tensor *x, int dim, bool descending, weft_tensor *out[2])
{
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "sort: the results are NULL");
    return weft_i_op_apply_list(&weft_i_op_sort, out,
                                (weft_i_arg[]){WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim),
                                               WEFT_I_INTEGER_ARG(descending)});
}

weft_status weft_topk(weft_tensor *x, int64_t count, int dim, bool largest, weft_tensor *out[2])
{
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "topk: the results are NULL");
    return weft_i_op_apply_list(&weft_i_op_topk, out,
                                (weft_i_arg[]){WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim),
                                               WEFT_I_INTEGER_ARG(count),
                                               WEFT_I_INTEGER_ARG(largest)});
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: the rows mm and bmm, and what is put together from them and views. */
#include "kernels/product/matmul.h"

#include "base/team/team.h"
#include "kernels/blas/blas.h"
#include "kernels/product/matmul_bf16.h"
#include "tensor/object/eye.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "tensor/op/promote.h"
#include "weft/op.h"
#include "weft/view.h"

#include <stdatomic.h>
#include <string.h>

/* Both rows: [batch,] m, k and k, n. */
static weft_status product_shape(weft_i_op_call *call, int ndim)
{
    const weft_tensor *a = call->args[0].tensor, *b = call->args[1].tensor;
    weft_i_result *result = &call->result;
    char text_a[WEFT_I_SHAPE_TEXT], text_b[WEFT_I_SHAPE_TEXT];
    bool fits = a->ndim == ndim && b->ndim == ndim && a->dim[ndim - 1] == b->dim[ndim - 2] &&
                (ndim == 2 || a->dim[0] == b->dim[0]);
    if (!fits)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: shapes %s and %s do not multiply",
                           call->op->name, weft_i_shape_text(weft_i_tensor_shape(a), text_a),
                           weft_i_shape_text(weft_i_tensor_shape(b), text_b));
    if (a->dtype != b->dtype || a->dtype == WEFT_BOOL)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: of %s and %s; both must be the same and not bool",
                           call->op->name, weft_dtype_name(a->dtype), weft_dtype_name(b->dtype));
    result->dtype = a->dtype;
    result->shape = weft_i_tensor_shape(a);
    result->shape.dim[ndim - 1] = b->dim[ndim - 1];
    WEFT_TRY(weft_i_shape_check(call->op->name, result->dtype, result->shape, NULL));
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

weft_status weft_i_mm_shape(weft_i_op_call *call)
{
    return product_shape(call, 2);
}

weft_status weft_i_bmm_shape(weft_i_op_call *call)
{
    return product_shape(call, 3);
}

/* The last two dimensions of x as a matrix, entry `batch` of the one before. */
static weft_i_matrix matrix(const weft_tensor *x, int64_t batch)
{
    int rows = x->ndim - 2, columns = x->ndim - 1;
    int64_t skip = x->ndim == 3 ? batch * x->stride[0] : 0;
    char *data = weft_i_tensor_numel(x)
                     ? weft_i_tensor_data(x) + skip * (int64_t)weft_dtype_size(x->dtype)
                     : NULL;
    return (weft_i_matrix){x->dtype,          data, x->dim[rows], x->dim[columns], x->stride[rows],
                           x->stride[columns]};
}

static weft_status multiply(const weft_i_op_call *call, int64_t batch)
{
    weft_i_matrix a = matrix(call->args[0].tensor, batch), b = matrix(call->args[1].tensor, batch);
    weft_i_matrix out = matrix(call->out, batch);
    return weft_i_matmul(&out, &a, &b);
}

struct batches {
    const weft_i_op_call *call;
    int64_t count, parts;
    atomic_bool failed; /* relaxed: read when the turn is over */
};

static void multiply_part(void *state, int64_t part)
{
    struct batches *b = state;
    int64_t end = weft_i_team_bound(b->count, b->parts, part + 1);
    for (int64_t i = weft_i_team_bound(b->count, b->parts, part); i < end; i++)
        if (multiply(b->call, i) < 0)
            atomic_store_explicit(&b->failed, true, memory_order_relaxed);
}

/* So many products or more are divided among the threads; fewer are cut, each by itself. */
enum { MANY_BATCHES = 8, PER_BYTE = 4 /* multiplications that take as long as a byte */ };

static int64_t parts_of(const weft_i_op_call *call, int64_t batches)
{
    const weft_tensor *a = call->args[0].tensor;
    double work = (double)call->out->numel * (double)a->dim[a->ndim - 1] / PER_BYTE;
    int64_t parts = weft_i_team_parts(work < 0x1p60 ? (int64_t)work : (int64_t)1 << 60);
    return batches < MANY_BATCHES ? 1 : parts < batches ? parts : batches;
}

weft_status weft_i_matmul_run(weft_i_op_call *call)
{
    struct batches all = {.call = call, .count = call->out->ndim == 3 ? call->out->dim[0] : 1};
    all.parts = parts_of(call, all.count);
    if (all.parts > 1) {
        weft_i_team_run(all.parts, multiply_part, &all);
        if (!atomic_load_explicit(&all.failed, memory_order_relaxed))
            return WEFT_OK;
    } /* what had no memory is told by the calling thread, if it has none either */
    for (int64_t i = 0; i < all.count; i++)
        WEFT_TRY(multiply(call, i));
    return WEFT_OK;
}

#define T(x_) WEFT_I_TENSOR_ARG(x_)

weft_tensor *weft_mm(weft_tensor *a, weft_tensor *b)
{
    return WEFT_I_APPLY(mm, T(a), T(b));
}

weft_status weft_mm_into(weft_tensor *out, weft_tensor *a, weft_tensor *b)
{
    return WEFT_I_APPLY_INTO(mm, out, T(a), T(b));
}

weft_tensor *weft_bmm(weft_tensor *a, weft_tensor *b)
{
    return WEFT_I_APPLY(bmm, T(a), T(b));
}

weft_status weft_bmm_into(weft_tensor *out, weft_tensor *a, weft_tensor *b)
{
    return WEFT_I_APPLY_INTO(bmm, out, T(a), T(b));
}

/* x [..., k] b [k, n] as one product of two matrices: reshape -> mm -> reshape. */
static weft_tensor *fold_and_multiply(weft_tensor *x, weft_tensor *b)
{
    weft_shape shape = weft_i_tensor_shape(x);
    int64_t rows = 1;
    for (int i = 0; i < x->ndim - 1; i++)
        rows *= x->dim[i];
    weft_tensor *flat = weft_reshape(x, WEFT_SHAPE(rows, x->dim[x->ndim - 1]));
    weft_tensor *product = weft_mm(flat, b);
    shape.dim[shape.ndim - 1] = b->dim[1];
    weft_tensor *out = weft_view(product, shape);
    weft_release(flat);
    weft_release(product);
    return out;
}

/* x broadcast to the leading sizes of `batch`, as [product of them, rows, columns]. */
static weft_tensor *spread(weft_tensor *x, weft_shape batch)
{
    weft_shape shape = batch;
    shape.dim[shape.ndim++] = x->dim[x->ndim - 2];
    shape.dim[shape.ndim++] = x->dim[x->ndim - 1];
    weft_tensor *wide = weft_expand(x, shape);
    weft_tensor *out = weft_reshape(
        wide, WEFT_SHAPE(weft_i_shape_numel(batch), x->dim[x->ndim - 2], x->dim[x->ndim - 1]));
    weft_release(wide);
    return out;
}

static weft_tensor *multiply_batches(weft_tensor *a, weft_tensor *b)
{
    weft_shape shape_a = weft_i_tensor_shape(a), shape_b = weft_i_tensor_shape(b), shape;
    shape_a.ndim -= 2;
    shape_b.ndim -= 2;
    if (weft_i_shape_broadcast("matmul", shape_a, shape_b, &shape) < 0)
        return NULL;
    weft_tensor *x = spread(a, shape), *y = spread(b, shape), *product = weft_bmm(x, y);
    shape.dim[shape.ndim++] = a->dim[a->ndim - 2];
    shape.dim[shape.ndim++] = b->dim[b->ndim - 1];
    weft_tensor *out = weft_view(product, shape);
    weft_release(x);
    weft_release(y);
    weft_release(product);
    return out;
}

static weft_tensor *squeeze_and_release(weft_tensor *x, int dim)
{
    weft_tensor *out = x ? weft_squeeze(x, dim) : NULL;
    weft_release(x);
    return out;
}

weft_tensor *weft_matmul(weft_tensor *a, weft_tensor *b)
{
    if (!(a = weft_i_see(a)) || !(b = weft_i_see(b)))
        return weft_mm(a, b);
    if (a->ndim == 0 || b->ndim == 0)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "matmul: a 0-d tensor is not a matrix; use weft_mul");
    /* A vector is a matrix of one row (left) or one column (right), which goes again at the end. */
    if (a->ndim == 1) {
        weft_tensor *row = weft_unsqueeze(a, 0), *product = row ? weft_matmul(row, b) : NULL;
        weft_release(row);
        return squeeze_and_release(product, b->ndim == 1 ? 0 : -2);
    }
    if (b->ndim == 1) {
        weft_tensor *column = weft_unsqueeze(b, 1),
                    *product = column ? weft_matmul(a, column) : NULL;
        weft_release(column);
        return squeeze_and_release(product, -1);
    }
    if (a->ndim == 2 && b->ndim == 2)
        return weft_mm(a, b);
    return b->ndim == 2 ? fold_and_multiply(a, b) : multiply_batches(a, b);
}

weft_status weft_matmul_describe(weft_matmul_info *out)
{
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the result is NULL", __func__);
    const weft_i_blas *blas = weft_i_blas_get();
    *out = (weft_matmul_info){.library = blas ? blas->name : "",
                              .config = blas ? blas->config : "",
                              .core = blas ? blas->core : "",
                              .small_floats = blas ? "as f32, a panel of rows at a time" : "as f32",
                              .bf16 = weft_i_matmul_bf16_way(),
                              .product_rate = blas ? blas->speed.product : 0,
                              .vector_rate = blas ? blas->speed.vector : 0,
                              .slow = !blas || blas->slow};
    return WEFT_OK;
}

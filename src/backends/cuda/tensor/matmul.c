/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products on CUDA devices.  Floats go to cuBLASLt, with sums in f32 (f64 for f64); floats
 * of 8 bits as they are where it can do that, else by way of bf16, which holds them exactly.
 * Integers, and what cuBLASLt cannot do, are multiplied by a kernel of weft's.
 */
#include "backends/cuda/device/launch.h"
#include "blas.h"
#include "columns.h"
#include "table.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

#include "matmul.h"

/* What a part has beside a product of its own; see device.h. */
typedef struct extra {
    const weft_tensor *c;
    double factor;
} extra;

static weft_tensor *new_like(const weft_tensor *x, weft_dtype dtype)
{
    return weft_keep(
        weft_i_tensor_new(dtype, weft_i_tensor_device(x), weft_i_tensor_shape(x), NULL));
}

/* The last two dimensions by rows, as cuBLASLt sees them by columns: `turned` if they are not. */
static bool view_of(const weft_tensor *x, weft_i_cuda_matrix *out)
{
    int64_t rows = x->dim[x->ndim - 2], columns = x->dim[x->ndim - 1];
    int64_t row = x->stride[x->ndim - 2], column = x->stride[x->ndim - 1];
    int64_t least_row = columns > 1 ? columns : 1, least_column = rows > 1 ? rows : 1;
    *out = (weft_i_cuda_matrix){
        .data = weft_i_cuda_data(x), .dtype = x->dtype, .step = x->ndim == 3 ? x->stride[0] : 0};
    row = rows > 1 ? row : least_row;
    column = columns > 1 ? column : least_column;
    if ((columns == 1 || column == 1) && row >= least_row) {
        out->ld = row;
        return true;
    }
    out->turned = true;
    out->ld = column;
    return (rows == 1 || row == 1) && column >= least_column;
}

/* x where cuBLASLt can read it, as `dtype`: itself, or a packed copy; with a reference. */
static weft_tensor *operand(weft_tensor *x, weft_dtype dtype, weft_i_cuda_matrix *out)
{
    weft_tensor *held =
        x->dtype == dtype && view_of(x, out) ? weft_i_object_hold(x) : weft_i_cuda_packed(x, dtype);
    if (held)
        view_of(held, out);
    return held;
}

/* cuBLASLt's a is our b: it computes the transposed product by columns. */
static weft_i_cuda_product product_of(const weft_tensor *out, const weft_tensor *a,
                                      const weft_i_cuda_matrix *left,
                                      const weft_i_cuda_matrix *right, const weft_i_cuda_matrix *to)
{
    return (weft_i_cuda_product){.a = *right,
                                 .b = *left,
                                 .d = *to,
                                 .m = out->dim[out->ndim - 1],
                                 .n = out->dim[out->ndim - 2],
                                 .k = a->dim[a->ndim - 1],
                                 .batches = out->ndim == 3 ? out->dim[0] : 1};
}

/* Products of floats of 8 bits: the inner dimension first in both, everything a multiple of 16. */
static bool fits_f8(const weft_i_cuda_stream *stream, const weft_i_cuda_product *p)
{
    const weft_i_cuda_matrix *all[] = {&p->a, &p->b};
    bool fits = stream->device->major >= 9 && p->a.turned && !p->b.turned && p->batches == 1 &&
                (p->a.dtype == WEFT_F8E4M3 || p->b.dtype == WEFT_F8E4M3) && p->m % 16 == 0 &&
                p->n % 16 == 0 && p->k % 16 == 0;
    for (int i = 0; i < 2; i++)
        fits = fits && (uintptr_t)all[i]->data % 16 == 0 && all[i]->ld % 16 == 0;
    return fits;
}

/* NULL: it is a product of its own. */
static void make_part(weft_i_cuda_product *p, const extra *part)
{
    if (!part)
        return;
    p->shared = true;
    p->c = weft_i_cuda_data(part->c);
    p->factor = part->factor;
}

/* By cuBLASLt, into `out`, which it can write.  WEFT_ERR_UNSUPPORTED without a message: it cannot.
 */
static weft_status by_blas(weft_i_cuda_stream *stream, weft_tensor *out, weft_tensor *a,
                           weft_tensor *b, weft_dtype dtype, const extra *part)
{
    weft_i_cuda_matrix left, right, to;
    weft_tensor *x = operand(a, dtype, &left), *y = x ? operand(b, dtype, &right) : NULL;
    weft_status status = y ? WEFT_ERR_UNSUPPORTED : weft_last_status();
    if (y && view_of(out, &to) && !to.turned) {
        weft_i_cuda_product p = product_of(out, a, &left, &right, &to);
        bool small = weft_dtype_size(dtype) == 1;
        make_part(&p, part);
        if (!small || fits_f8(stream, &p))
            status = weft_i_cuda_blas_run(weft_i_tensor_device(out), stream, &p);
    }
    weft_i_object_drop(x);
    weft_i_object_drop(y);
    return status;
}

/* By a kernel of ours: any strides, any dtype; sums in the order of the inner dimension. */
static weft_status by_kernel(weft_i_cuda_stream *stream, const weft_tensor *out,
                             const weft_tensor *a, const weft_tensor *b)
{
    const weft_tensor *all[] = {out, a, b};
    weft_k_multiply c = {.out = weft_i_cuda_data(out),
                         .a = weft_i_cuda_data(a),
                         .b = weft_i_cuda_data(b),
                         .batches = out->ndim == 3 ? (uint64_t)out->dim[0] : 1,
                         .rows = (uint64_t)out->dim[out->ndim - 2],
                         .columns = (uint64_t)out->dim[out->ndim - 1],
                         .inner = (uint64_t)a->dim[a->ndim - 1],
                         .dtype = (int32_t)out->dtype};
    int64_t *strides[] = {c.out_stride, c.a_stride, c.b_stride};
    for (int i = 0; i < 3; i++) {
        int64_t size = (int64_t)weft_dtype_size(all[i]->dtype);
        int last = all[i]->ndim - 1;
        strides[i][0] = last == 2 ? all[i]->stride[0] * size : 0;
        strides[i][1] = all[i]->stride[last - 1] * size;
        strides[i][2] = all[i]->stride[last] * size;
    }
    return weft_i_cuda_launch_threads(stream, WEFT_I_CUDA_multiply, c.batches * c.rows * c.columns,
                                      &c);
}

/* Into a packed tensor of `dtype`, which is then copied. */
static weft_status by_way_of(weft_i_cuda_stream *stream, weft_tensor *out, weft_tensor *a,
                             weft_tensor *b, weft_dtype inputs, weft_dtype dtype)
{
    weft_tensor *apart = new_like(out, dtype);
    weft_status status = apart ? by_blas(stream, apart, a, b, inputs, NULL) : weft_last_status();
    if (status >= 0)
        status = weft_i_tensor_copy(out, apart);
    weft_i_object_drop(apart);
    return status;
}

static weft_status multiply(weft_i_cuda_stream *stream, weft_tensor *out, weft_tensor *a,
                            weft_tensor *b)
{
    weft_i_cuda_matrix to;
    weft_dtype dtype = out->dtype;
    if (!weft_i_dtype_is_float(dtype) || a->dim[a->ndim - 1] == 0)
        return WEFT_ERR_UNSUPPORTED;
    if (weft_dtype_size(dtype) == 1) {
        weft_status status = by_way_of(stream, out, a, b, dtype, WEFT_F32);
        return status == WEFT_ERR_UNSUPPORTED ? by_way_of(stream, out, a, b, WEFT_BF16, WEFT_F32)
                                              : status;
    }
    if (view_of(out, &to) && !to.turned)
        return by_blas(stream, out, a, b, dtype, NULL);
    return by_way_of(stream, out, a, b, dtype, dtype);
}

weft_status weft_i_cuda_matmul_run(weft_i_op_call *call)
{
    weft_tensor *a = call->args[0].tensor, *b = call->args[1].tensor;
    weft_i_cuda_stream *stream;
    if (call->out->numel == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_status status = multiply(stream, call->out, a, b);
    return status == WEFT_ERR_UNSUPPORTED ? by_kernel(stream, call->out, a, b) : status;
}

/* ---- with scales ---- */

static weft_status check_scale(const char *name, const weft_tensor *scale, int64_t many)
{
    char text[WEFT_I_SHAPE_TEXT];
    if (scale->dtype == WEFT_F32 && scale->packed && (scale->numel == 1 || scale->numel == many))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "scaled product: the scale of %s is %s %s; it must be packed f32, one or "
                       "%lld of them",
                       name, weft_dtype_name(scale->dtype),
                       weft_i_shape_text(weft_i_tensor_shape(scale), text), (long long)many);
}

static weft_status check_scaled(const weft_tensor *out, const weft_tensor *a, const weft_tensor *b,
                                const weft_tensor *scale_a, const weft_tensor *scale_b)
{
    bool fits = out->ndim == 2 && a->ndim == 2 && b->ndim == 2 && a->dim[1] == b->dim[0] &&
                out->dim[0] == a->dim[0] && out->dim[1] == b->dim[1];
    bool types = weft_dtype_size(a->dtype) == 1 && weft_i_dtype_is_float(a->dtype) &&
                 weft_dtype_size(b->dtype) == 1 && weft_i_dtype_is_float(b->dtype) &&
                 (out->dtype == WEFT_F32 || out->dtype == WEFT_BF16 || out->dtype == WEFT_F16);
    if (!fits || !types || !out->packed)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "scaled product: %s [m, k] and %s [k, n] of 8 bits into packed %s; the "
                           "result is f32, bf16 or f16",
                           weft_dtype_name(a->dtype), weft_dtype_name(b->dtype),
                           weft_dtype_name(out->dtype));
    WEFT_TRY(check_scale("a", scale_a, a->dim[0]));
    return check_scale("b", scale_b, b->dim[1]);
}

static weft_status scaled_by_blas(weft_i_cuda_stream *stream, weft_tensor *out, weft_tensor *a,
                                  weft_tensor *b, weft_tensor *scale_a, weft_tensor *scale_b,
                                  const extra *part)
{
    weft_i_cuda_matrix left, right, to;
    if (!view_of(a, &left) || !view_of(b, &right) || !view_of(out, &to))
        return WEFT_ERR_UNSUPPORTED;
    left.scale = (const float *)(const void *)weft_i_tensor_data(scale_a);
    left.scales = scale_a->numel > 1;
    right.scale = (const float *)(const void *)weft_i_tensor_data(scale_b);
    right.scales = scale_b->numel > 1;
    weft_i_cuda_product p = product_of(out, a, &left, &right, &to);
    make_part(&p, part);
    bool alike = left.scales == right.scales; /* the library takes either, not one of each */
    return alike && fits_f8(stream, &p)
               ? weft_i_cuda_blas_run(weft_i_tensor_device(out), stream, &p)
               : WEFT_ERR_UNSUPPORTED;
}

/* The plain product in f32, then row and column by their scales. */
static weft_status scaled_by_steps(weft_i_cuda_stream *stream, weft_tensor *out, weft_tensor *a,
                                   weft_tensor *b, weft_tensor *scale_a, weft_tensor *scale_b)
{
    weft_tensor *wide = new_like(out, WEFT_F32);
    weft_status status = wide ? by_blas(stream, wide, a, b, WEFT_BF16, NULL) : weft_last_status();
    if (status == WEFT_ERR_UNSUPPORTED)
        status = weft_i_fail(status, "scaled product: there is no cuBLASLt for it");
    weft_tensor rows = *scale_a, columns = *scale_b; /* [m, 1] and [1, n] */
    rows.ndim = columns.ndim = 2;
    rows.dim[0] = rows.numel, rows.dim[1] = 1, rows.stride[0] = rows.stride[1] = 1;
    columns.dim[0] = 1, columns.dim[1] = columns.numel, columns.stride[1] = 1;
    columns.stride[0] = columns.numel;
    weft_i_tensor_measure(&rows);
    weft_i_tensor_measure(&columns);
    if (status >= 0)
        status = weft_mul_into(wide, wide, &rows);
    if (status >= 0)
        status = weft_mul_into(wide, wide, &columns);
    if (status >= 0)
        status = weft_i_tensor_copy(out, wide);
    weft_i_object_drop(wide);
    return status;
}

weft_status weft_i_cuda_multiply_scaled(weft_tensor *out, weft_tensor *a, weft_tensor *b,
                                        weft_tensor *scale_a, weft_tensor *scale_b)
{
    weft_tensor *const all[] = {a, b, scale_a, scale_b};
    weft_i_cuda_stream *stream;
    WEFT_TRY(check_scaled(out, a, b, scale_a, scale_b));
    for (int i = 0; i < 4; i++)
        WEFT_TRY(weft_i_tensor_check_fits("scaled product", all[i]));
    WEFT_TRY(weft_i_storage_ready(out->storage, true));
    WEFT_TRY(weft_i_cuda_current(weft_i_tensor_device(out), &stream));
    if (out->numel == 0)
        return WEFT_OK;
    weft_status status = scaled_by_blas(stream, out, a, b, scale_a, scale_b, NULL);
    if (status == WEFT_ERR_UNSUPPORTED)
        status = scaled_by_steps(stream, out, a, b, scale_a, scale_b);
    if (status >= 0)
        weft_i_tensor_bump(out);
    return status;
}

weft_status weft_i_cuda_multiply_part(weft_tensor *out, weft_tensor *a, weft_tensor *b,
                                      weft_tensor *scale_a, weft_tensor *scale_b,
                                      const weft_tensor *c, double factor)
{
    extra part = {c, factor};
    weft_i_cuda_stream *stream;
    bool fits = weft_i_dtype_is_float(out->dtype) && weft_dtype_size(out->dtype) > 1 &&
                out->packed && out->numel && a->dim[1];
    fits = fits && (!c || (c->packed && c->dtype == out->dtype &&
                           weft_i_shape_equal(weft_i_tensor_shape(c), weft_i_tensor_shape(out))));
    if (!fits || (scale_a && (!scale_a->packed || !scale_b->packed)))
        return WEFT_ERR_UNSUPPORTED;
    if (scale_a)
        WEFT_TRY(check_scaled(out, a, b, scale_a, scale_b));
    WEFT_TRY(weft_i_cuda_current(weft_i_tensor_device(out), &stream));
    return scale_a ? scaled_by_blas(stream, out, a, b, scale_a, scale_b, &part)
                   : by_blas(stream, out, a, b, out->dtype, &part);
}

/* The scaled product in f32, then what else was asked for; rounded once, to the result. */
static weft_status scaled_with_extras(weft_i_op_call *call, weft_tensor *scale_a,
                                      weft_tensor *scale_b)
{
    const weft_i_arg *bias = &call->args[4], *last = &call->args[5];
    weft_tensor *wide = new_like(call->out, WEFT_F32);
    weft_status status = wide ? weft_i_cuda_multiply_scaled(wide, call->args[0].tensor,
                                                            call->args[1].tensor, scale_a, scale_b)
                              : weft_last_status();
    if (status >= 0 && bias->kind == WEFT_I_ARG_TENSOR)
        status = weft_add_into(wide, wide, bias->tensor);
    if (status >= 0 && last->kind == WEFT_I_ARG_TENSOR)
        status = weft_mul_into(wide, wide, last->tensor);
    if (status >= 0)
        status = weft_i_tensor_copy(call->out, wide);
    weft_i_object_drop(wide);
    return status;
}

weft_status weft_i_cuda_scaled_mm_run(weft_i_op_call *call)
{
    weft_tensor *scale_a = weft_keep(weft_contiguous(call->args[2].tensor));
    weft_tensor *scale_b = scale_a ? weft_keep(weft_contiguous(call->args[3].tensor)) : NULL;
    bool plain = call->args[4].kind == WEFT_I_ARG_NONE && call->args[5].kind == WEFT_I_ARG_NONE &&
                 call->out->packed && weft_dtype_size(call->out->dtype) > 1;
    weft_status status = !scale_b ? weft_last_status()
                         : plain
                             ? weft_i_cuda_multiply_scaled(call->out, call->args[0].tensor,
                                                           call->args[1].tensor, scale_a, scale_b)
                             : scaled_with_extras(call, scale_a, scale_b);
    weft_release(scale_a);
    weft_release(scale_b);
    return status;
}

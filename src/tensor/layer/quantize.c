/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of 8 and 4 bits: encoding, decoding, and products with them.  The dtype of the codes, i8 or
 * u8, says their bits, and the scales' shape the length of a block.
 */
#include "weft/quantize.h"

#include "base/os/os.h"
#include "kernels/number/convert.h"
#include "kernels/product/matmul.h"
#include "kernels/rows/coded.h"
#include "tensor/object/eye.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <string.h>

enum { X, BITS, BLOCK };                   /* of quantize */
enum { CODES, SCALES, DTYPE };             /* of dequantize */
enum { OF_CODES = 1, OF_SCALES, OF_BIAS }; /* of quantized_linear */
enum { SLAB = 256 };                       /* rows of a weight that are floats at a time */

/* ---- rules ---- */

static weft_status check_block(const char *what, int64_t bits, int64_t block, int64_t columns)
{
    if ((bits == 8 || bits == 4) && block > 0 && block % WEFT_I_CODED_GROUP == 0 &&
        columns % block == 0)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: %lld bits, blocks of %lld, rows of %lld; codes have 8 or 4 bits, and "
                       "blocks are multiples of 32 that divide the rows",
                       what, (long long)bits, (long long)block, (long long)columns);
}

weft_status weft_i_quantize_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor;
    int64_t bits = call->args[BITS].integer, block = call->args[BLOCK].integer;
    weft_i_result *result = &call->result;
    if (x->ndim != 2 || !weft_i_dtype_is_float(x->dtype))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "quantize: %s of %d dimensions; it takes floats [rows, columns]",
                           weft_dtype_name(x->dtype), x->ndim);
    WEFT_TRY(check_block("quantize", bits, block, x->dim[1]));
    result->dtype = call->which ? WEFT_F32 : bits == 8 ? WEFT_I8 : WEFT_U8;
    result->shape = WEFT_SHAPE(x->dim[0], call->which ? x->dim[1] / block
                                                      : weft_i_coded_bytes((int)bits, x->dim[1]));
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

/* The matrix that codes and scales are, without its memory. */
static weft_status describe(const char *what, const weft_tensor *codes, const weft_tensor *scales,
                            weft_i_coded *out)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    bool fits = (codes->dtype == WEFT_I8 || codes->dtype == WEFT_U8) && scales->dtype == WEFT_F32 &&
                codes->ndim == 2 && scales->ndim == 2 && codes->dim[0] == scales->dim[0];
    int bits = codes->dtype == WEFT_I8 ? 8 : 4;
    int64_t columns = fits ? codes->dim[1] * (8 / bits) : 0, blocks = fits ? scales->dim[1] : 0;
    if (!fits || (blocks ? columns % blocks : columns) != 0)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG, "%s: codes %s %s and scales %s %s do not come from weft_quantize",
            what, weft_dtype_name(codes->dtype), weft_i_shape_text(weft_i_tensor_shape(codes), a),
            weft_dtype_name(scales->dtype), weft_i_shape_text(weft_i_tensor_shape(scales), b));
    *out = (weft_i_coded){.rows = codes->dim[0], .columns = columns, .bits = bits};
    out->block = blocks ? columns / blocks : WEFT_I_CODED_GROUP;
    return check_block(what, bits, out->block, columns);
}

weft_status weft_i_dequantize_shape(weft_i_op_call *call)
{
    weft_i_coded matrix;
    int64_t dtype = call->args[DTYPE].integer;
    WEFT_TRY(describe("dequantize", call->args[CODES].tensor, call->args[SCALES].tensor, &matrix));
    if (dtype < 0 || dtype >= WEFT_DTYPE_COUNT || !weft_i_dtype_is_float((weft_dtype)dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "dequantize: to dtype %lld; it gives floats",
                           (long long)dtype);
    call->result.dtype = (weft_dtype)dtype;
    call->result.shape = WEFT_SHAPE(matrix.rows, matrix.columns);
    WEFT_TRY(weft_i_shape_check("dequantize", (weft_dtype)dtype, call->result.shape, NULL));
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

static bool is_input(weft_dtype dtype)
{
    return dtype == WEFT_F32 || dtype == WEFT_BF16 || dtype == WEFT_F16;
}

static weft_status check_linear(const weft_tensor *x, const weft_tensor *bias,
                                const weft_i_coded *matrix)
{
    char text[WEFT_I_SHAPE_TEXT];
    if (x->ndim < 1 || x->dim[x->ndim - 1] != matrix->columns)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG, "quantized_linear: x has shape %s, the weight has %lld columns",
            weft_i_shape_text(weft_i_tensor_shape(x), text), (long long)matrix->columns);
    if (bias && (bias->ndim != 1 || bias->dim[0] != matrix->rows))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "quantized_linear: the bias has shape %s, the weight has %lld rows",
                           weft_i_shape_text(weft_i_tensor_shape(bias), text),
                           (long long)matrix->rows);
    if (is_input(x->dtype) && (!bias || bias->dtype == x->dtype))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_TYPE,
                       "quantized_linear: x is %s%s%s; it is a float of 32 or 16 bits, and a bias "
                       "as x",
                       weft_dtype_name(x->dtype), bias ? ", the bias " : "",
                       bias ? weft_dtype_name(bias->dtype) : "");
}

weft_status weft_i_quantized_linear_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor;
    const weft_i_arg *bias = &call->args[OF_BIAS];
    weft_i_result *result = &call->result;
    weft_i_coded matrix;
    WEFT_TRY(describe("quantized_linear", call->args[OF_CODES].tensor, call->args[OF_SCALES].tensor,
                      &matrix));
    WEFT_TRY(check_linear(x, bias->kind == WEFT_I_ARG_TENSOR ? bias->tensor : NULL, &matrix));
    result->dtype = x->dtype;
    result->shape = weft_i_tensor_shape(x);
    result->shape.dim[x->ndim - 1] = matrix.rows;
    WEFT_TRY(weft_i_shape_check(call->op->name, result->dtype, result->shape, NULL));
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

/* ---- runs on the CPU ---- */

/* The tensor row-major and of that dtype: itself, or a copy, in either case a reference. */
static weft_tensor *packed(weft_tensor *x, weft_dtype dtype)
{
    if (x->dtype == dtype && weft_i_tensor_is_contiguous(x))
        return weft_i_object_hold(x);
    weft_tensor *copy = weft_keep(weft_i_tensor_new(dtype, WEFT_CPU, weft_i_tensor_shape(x), NULL));
    if (copy)
        weft_i_copy_tensor(copy, x);
    return copy;
}

weft_status weft_i_quantize_run(weft_i_op_call *call)
{
    const weft_tensor *given = call->args[X].tensor;
    int bits = (int)call->args[BITS].integer;
    int64_t rows = given->dim[0], columns = given->dim[1], block = call->args[BLOCK].integer;
    if (!weft_i_tensor_numel(given))
        return WEFT_OK;
    weft_tensor *x = packed(call->args[X].tensor, WEFT_F32);
    if (!x)
        return weft_last_status();
    const float *from = (const float *)(const void *)weft_i_tensor_data(x);
    uint8_t *codes = (uint8_t *)weft_i_tensor_data(call->outs[0]);
    float *scales = (float *)(void *)weft_i_tensor_data(call->outs[1]);
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < rows && status >= 0; i++)
        if (!weft_i_coded_encode(codes + i * weft_i_coded_bytes(bits, columns),
                                 scales + i * (columns / block), from + i * columns, columns, block,
                                 bits))
            status = weft_i_fail(WEFT_ERR_NUMERIC, "quantize: row %lld has an infinity or NaN",
                                 (long long)i);
    weft_i_object_drop(x);
    return status;
}

/* The matrix with its memory; the two tensors are the caller's. */
static weft_status open_matrix(const char *what, weft_tensor *codes, weft_tensor *scales,
                               weft_i_coded *out, weft_tensor *held[2])
{
    WEFT_TRY(describe(what, codes, scales, out));
    held[0] = packed(codes, codes->dtype);
    held[1] = held[0] ? packed(scales, WEFT_F32) : NULL;
    if (!held[1])
        return weft_last_status();
    out->codes = (const uint8_t *)weft_i_tensor_data(held[0]);
    out->scales = (const float *)(const void *)weft_i_tensor_data(held[1]);
    return WEFT_OK;
}

weft_status weft_i_dequantize_run(weft_i_op_call *call)
{
    weft_tensor *held[2] = {NULL, NULL}, *out = NULL;
    weft_i_coded matrix;
    if (!weft_i_tensor_numel(call->out))
        return WEFT_OK;
    weft_status status = open_matrix("dequantize", call->args[CODES].tensor,
                                     call->args[SCALES].tensor, &matrix, held);
    if (status >= 0 && !(out = weft_keep(weft_i_tensor_new(WEFT_F32, WEFT_CPU,
                                                           weft_i_tensor_shape(call->out), NULL))))
        status = weft_last_status();
    if (status >= 0) {
        weft_i_coded_decode((float *)(void *)weft_i_tensor_data(out), &matrix, 0, matrix.rows);
        weft_i_copy_tensor(call->out, out);
    }
    weft_i_object_drop(out);
    weft_i_object_drop(held[0]);
    weft_i_object_drop(held[1]);
    return status;
}

/* Many rows of x: some rows of the weight at a time become floats. */
static weft_status multiply_many(float *out, const float *x, int64_t rows,
                                 const weft_i_coded *matrix)
{
    int64_t columns = matrix->columns, slab = matrix->rows < SLAB ? matrix->rows : SLAB;
    float *weight = WEFT_OS->alloc((size_t)(slab * columns) * sizeof *weight);
    weft_status status = WEFT_OK;
    if (!weight)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "quantized_linear: no memory for %lld floats",
                           (long long)(slab * columns));
    for (int64_t from = 0; from < matrix->rows && status >= 0; from += slab) {
        int64_t to = from + slab < matrix->rows ? from + slab : matrix->rows;
        weft_i_coded_decode(weight, matrix, from, to);
        weft_i_matrix y = {WEFT_F32, (char *)(out + from), rows, to - from, matrix->rows, 1},
                      a = {WEFT_F32, (char *)(uintptr_t)x, rows, columns, columns, 1},
                      b = {WEFT_F32, (char *)weight, columns, to - from, 1, columns};
        status = weft_i_matmul(&y, &a, &b);
    }
    WEFT_OS->free(weight);
    return status;
}

static void add_bias(float *out, int64_t rows, int64_t columns, const weft_tensor *bias)
{
    for (int64_t k = 0; k < columns; k++) {
        float value;
        weft_i_convert(WEFT_F32, &value, bias->dtype,
                       weft_i_tensor_data(bias) +
                           k * bias->stride[0] * (int64_t)weft_dtype_size(bias->dtype),
                       1);
        for (int64_t i = 0; i < rows; i++)
            out[i * columns + k] += value;
    }
}

static weft_status run_linear(weft_i_op_call *call, const weft_tensor *x, weft_tensor *sums,
                              const weft_i_coded *matrix)
{
    const weft_i_arg *bias = &call->args[OF_BIAS];
    float *out = (float *)(void *)weft_i_tensor_data(sums);
    int64_t rows = weft_i_tensor_numel(sums) / matrix->rows;
    if (!matrix->columns)
        memset(out, 0, (size_t)(rows * matrix->rows) * sizeof *out);
    else if (rows <= WEFT_I_CODED_FEW_ROWS)
        weft_i_coded_multiply(out, (const float *)(const void *)weft_i_tensor_data(x), rows,
                              matrix);
    else
        WEFT_TRY(
            multiply_many(out, (const float *)(const void *)weft_i_tensor_data(x), rows, matrix));
    if (bias->kind == WEFT_I_ARG_TENSOR)
        add_bias(out, rows, matrix->rows, bias->tensor);
    if (sums != call->out)
        weft_i_copy_tensor(call->out, sums);
    return WEFT_OK;
}

weft_status weft_i_quantized_linear_run(weft_i_op_call *call)
{
    weft_tensor *held[2] = {NULL, NULL}, *out = call->out, *x = NULL, *sums = NULL;
    weft_i_coded matrix;
    if (!weft_i_tensor_numel(out))
        return WEFT_OK;
    weft_status status = open_matrix("quantized_linear", call->args[OF_CODES].tensor,
                                     call->args[OF_SCALES].tensor, &matrix, held);
    if (status >= 0 && !(x = packed(call->args[X].tensor, WEFT_F32)))
        status = weft_last_status();
    if (status >= 0) {
        bool direct = out->dtype == WEFT_F32 && weft_i_tensor_is_contiguous(out);
        sums =
            direct
                ? weft_i_object_hold(out)
                : weft_keep(weft_i_tensor_new(WEFT_F32, WEFT_CPU, weft_i_tensor_shape(out), NULL));
        status = sums ? run_linear(call, x, sums, &matrix) : weft_last_status();
    }
    weft_i_object_drop(sums);
    weft_i_object_drop(x);
    weft_i_object_drop(held[0]);
    weft_i_object_drop(held[1]);
    return status;
}

/* ---- the functions; devices without a kernel put them together ---- */

/* The thread's view of the first operand, if its device has no kernel of the row. */
static bool is_missing(const weft_i_op *op, weft_tensor *x)
{
    weft_device device = x ? weft_tensor_device(x) : WEFT_CPU;
    int kind = weft_i_device_kind(device);
    return device != WEFT_META && kind > 0 && kind < WEFT_I_DEVICE_KINDS && !op->run[kind];
}

weft_status weft_quantize(weft_tensor *x, int bits, int64_t block, weft_tensor *out[2])
{
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(bits), WEFT_I_INTEGER_ARG(block)};
    if (!out)
        return weft_i_missing("weft_quantize: out is NULL");
    return weft_i_op_apply_list(&weft_i_op_quantize, out, args);
}

/* Two codes of a byte: the quotient by 16 towards zero, and what is left, each of which takes its
 * place in a group. */
static weft_tensor *unpack(weft_tensor *codes)
{
    int64_t rows = weft_tensor_size(codes, 0), bytes = weft_tensor_size(codes, 1);
    weft_tensor *both = weft_view(codes, WEFT_SHAPE(rows, bytes / 16, 1, 16)),
                *wide = weft_to_dtype(both, WEFT_F32),
                *high = weft_to_dtype(weft_to_dtype(weft_mul_scalar(wide, 1.0 / 16), WEFT_I32),
                                      WEFT_F32),
                *low = weft_sub(wide, weft_mul_scalar(high, 16));
    weft_tensor *pair[] = {low, high};
    return weft_add_scalar(weft_cat(pair, 2, 2), -8);
}

static weft_tensor *decode_there(weft_tensor *codes, weft_tensor *scales, weft_dtype dtype)
{
    weft_i_coded matrix;
    if (!codes || !scales || describe("dequantize", codes, scales, &matrix) < 0)
        return NULL;
    weft_tensor *plain = weft_contiguous(codes),
                *wide = matrix.bits == 4 ? unpack(plain) : weft_to_dtype(plain, WEFT_F32),
                *blocks = weft_reshape(
                    wide, WEFT_SHAPE(matrix.rows, matrix.columns / matrix.block, matrix.block)),
                *scaled = weft_mul(blocks, weft_unsqueeze(scales, -1));
    return weft_to_dtype(weft_reshape(scaled, WEFT_SHAPE(matrix.rows, matrix.columns)), dtype);
}

weft_tensor *weft_dequantize(weft_tensor *codes, weft_tensor *scales, weft_dtype dtype)
{
    if (is_missing(&weft_i_op_dequantize, codes))
        return decode_there(weft_i_see(codes), weft_i_see(scales), dtype);
    return WEFT_I_APPLY(dequantize, WEFT_I_TENSOR_ARG(codes), WEFT_I_TENSOR_ARG(scales),
                        WEFT_I_INTEGER_ARG(dtype));
}

weft_tensor *weft_quantized_linear(weft_tensor *x, weft_tensor *codes, weft_tensor *scales,
                                   weft_tensor *bias)
{
    if (is_missing(&weft_i_op_quantized_linear, codes) && x)
        return weft_linear(x, weft_dequantize(codes, scales, weft_tensor_dtype(x)), bias);
    return WEFT_I_APPLY(quantized_linear, WEFT_I_TENSOR_ARG(x), WEFT_I_TENSOR_ARG(codes),
                        WEFT_I_TENSOR_ARG(scales), WEFT_I_OPTIONAL_ARG(bias));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear_cross_entropy: the loss of the logits x weight^T, which are never there as a whole.  A chunk
 * of rows at a time becomes logits, their gradients in the same place, and the gradients of x and
 * weight, if those are wanted.  Sums are f32 (f64 of f64), the loss is summed in f64.
 */
#include "base/os/os.h"
#include "base/team/team.h"
#include "kernels/number/convert.h"
#include "kernels/number/math.h"
#include "kernels/product/matmul.h"
#include "kernels/product/matmul_add.h"
#include "kernels/vector/vector.h"
#include "kernels/walk/copy.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"

#include <math.h>
#include <string.h>

enum { X, WEIGHT, LABELS, IGNORE, SMOOTHING, Z, X_GRAD, WEIGHT_GRAD };
enum { LEAST_ROWS = 16, MOST_ROWS = 512 };

/* ---- shapes ---- */

static weft_status check(const weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor, *weight = call->args[WEIGHT].tensor,
                      *labels = call->args[LABELS].tensor;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT], c[WEFT_I_SHAPE_TEXT];
    weft_shape rows = weft_i_tensor_shape(x);
    rows.ndim -= rows.ndim > 0;
    if (x->ndim < 1 || weight->ndim != 2 || weight->dim[1] != x->dim[x->ndim - 1] ||
        weight->dim[0] < 1 || !weft_i_shape_equal(rows, weft_i_tensor_shape(labels)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "linear_cross_entropy: x %s, weight %s, labels %s; they are [..., "
                           "width], [classes, width] and [...]",
                           weft_i_shape_text(weft_i_tensor_shape(x), a),
                           weft_i_shape_text(weft_i_tensor_shape(weight), b),
                           weft_i_shape_text(weft_i_tensor_shape(labels), c));
    if (!weft_i_dtype_is_float(x->dtype) || weight->dtype != x->dtype ||
        weft_i_dtype_class(labels->dtype) != 1)
        return weft_i_fail(WEFT_ERR_TYPE,
                           "linear_cross_entropy: x is %s, the weight %s, the labels %s; x and "
                           "weight are one float, labels integers",
                           weft_dtype_name(x->dtype), weft_dtype_name(weight->dtype),
                           weft_dtype_name(labels->dtype));
    double smoothing = call->args[SMOOTHING].number;
    if (!(smoothing >= 0 && smoothing <= 1) || !isfinite(call->args[Z].number))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "linear_cross_entropy: smoothing %g, z-loss %g; smoothing is in [0, 1]",
                           smoothing, call->args[Z].number);
    return WEFT_OK;
}

weft_status weft_i_linear_loss_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor, *of = call->args[call->which == 2].tensor;
    weft_i_result *result = &call->result;
    WEFT_TRY(check(call));
    result->compute = x->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    result->dtype = call->which ? x->dtype : result->compute;
    result->shape = call->which ? weft_i_tensor_shape(of) : (weft_shape){0, {0}};
    result->absent = call->which && !call->args[X_GRAD + call->which - 1].integer;
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

/* ---- labels ---- */

static weft_status refuse_label(const weft_tensor *labels, int64_t at, int64_t label,
                                int64_t classes, int64_t ignore)
{
    char text[WEFT_I_SHAPE_TEXT];
    weft_shape row = weft_i_tensor_shape(labels);
    int64_t rest = at;
    for (int d = row.ndim - 1; d >= 0; d--) {
        int64_t size = row.dim[d];
        row.dim[d] = rest % size;
        rest /= size;
    }
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "linear_cross_entropy: the label of row %s is %lld; there are %lld classes, "
                       "numbered from 0, and rows of label %lld are left out",
                       weft_i_shape_text(row, text), (long long)label, (long long)classes,
                       (long long)ignore);
}

/* How many rows count; or a negative status. */
static int64_t count_rows(const weft_i_op_call *call, const int64_t *label, int64_t rows)
{
    int64_t classes = call->args[WEIGHT].tensor->dim[0], ignore = call->args[IGNORE].integer;
    int64_t counted = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (label[i] == ignore)
            continue;
        if (label[i] < 0 || label[i] >= classes)
            return refuse_label(call->args[LABELS].tensor, i, label[i], classes, ignore);
        counted++;
    }
    return counted;
}

/* ---- the work ---- */

struct work {
    const weft_i_op_call *call;
    weft_dtype compute;
    int64_t rows, width, classes, chunk, counted, ignore;
    weft_tensor *x, *weight, *labels;           /* packed, of the compute type; labels i64; held */
    weft_tensor *logits, *x_grad, *weight_grad; /* of a chunk, a chunk, all; held; or NULL */
    double *losses;                             /* of the rows of a chunk */
    int64_t first, count, parts;                /* the chunk at work */
};

static weft_tensor *packed(weft_tensor *x, weft_dtype dtype)
{
    if (x->packed && x->dtype == dtype)
        return weft_i_object_hold(x);
    weft_tensor *copy = weft_keep(weft_i_tensor_new(dtype, WEFT_CPU, weft_i_tensor_shape(x), NULL));
    if (copy)
        weft_i_copy_tensor(copy, x);
    return copy;
}

static weft_tensor *room(weft_dtype dtype, int64_t rows, int64_t columns)
{
    return weft_keep(weft_i_tensor_new(dtype, WEFT_CPU, WEFT_SHAPE(rows, columns), NULL));
}

/* Each chunk reads the weight twice and its gradient, and writes that: few rows a chunk, and memory is what
 * the products wait for.  With half of its width in rows the logits take half of what the weight takes. */
static int64_t chunk_of(const struct work *w)
{
    int64_t rows = w->width / 2;
    rows = rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
    int64_t chunks = (w->rows + rows - 1) / rows;
    return chunks ? (w->rows + chunks - 1) / chunks : 0;
}

static bool make_work(struct work *w)
{
    const weft_i_op_call *call = w->call;
    bool made = (w->x = packed(call->args[X].tensor, w->compute)) &&
                (w->weight = packed(call->args[WEIGHT].tensor, w->compute)) &&
                (w->labels = packed(call->args[LABELS].tensor, WEFT_I64)) &&
                (w->logits = room(w->compute, w->chunk, w->classes));
    if (made && call->outs[1])
        made = (w->x_grad = room(w->compute, w->chunk, w->width)) != NULL;
    if (made && call->outs[2] && call->outs[2]->dtype == w->compute)
        w->weight_grad = weft_i_object_hold(call->outs[2]);
    else if (made && call->outs[2])
        made = (w->weight_grad = room(w->compute, w->classes, w->width)) != NULL;
    if (made && w->weight_grad && w->weight_grad->end)
        memset(weft_i_tensor_data(w->weight_grad), 0, w->weight_grad->end);
    w->losses = made ? WEFT_OS->alloc(((size_t)w->chunk + 1) * sizeof *w->losses) : NULL;
    if (made && !w->losses)
        weft_i_fail(WEFT_ERR_NO_MEMORY, "linear_cross_entropy: no memory for %lld rows",
                    (long long)w->chunk);
    return made && w->losses;
}

static void drop_work(const struct work *w)
{
    weft_tensor *all[] = {w->x, w->weight, w->labels, w->logits, w->x_grad, w->weight_grad};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        weft_i_object_drop(all[i]);
    WEFT_OS->free(w->losses);
}

#define ROW_LOOPS(type_)                                                           \
    static double total_##type_(const type_ *row, int64_t n)                       \
    {                                                                              \
        double sum = 0;                                                            \
        for (int64_t i = 0; i < n; i++)                                            \
            sum += (double)row[i];                                                 \
        return sum;                                                                \
    }                                                                              \
    static void slope_##type_(type_ *row, int64_t n, double factor_, double less_) \
    {                                                                              \
        type_ factor = (type_)factor_, less = (type_)less_;                        \
        WEFT_I_VECTOR_LOOP                                                         \
        for (int64_t i = 0; i < n; i++)                                            \
            row[i] = row[i] * factor - less;                                       \
    }
ROW_LOOPS(float)
ROW_LOOPS(double)

static double element(const struct work *w, const void *row, int64_t i)
{
    return w->compute == WEFT_F64 ? ((const double *)row)[i] : (double)((const float *)row)[i];
}

/* From logits to the gradients of the loss with respect to them; returns the row's loss. */
static double loss_of_row(const struct work *w, void *row, int64_t label)
{
    const weft_i_attend_loops *loops = weft_i_vector()->attend[w->compute];
    double smoothing = w->call->args[SMOOTHING].number, z = w->call->args[Z].number;
    int64_t n = w->classes;
    double hit = element(w, row, label), all = 0;
    if (smoothing > 0)
        all = w->compute == WEFT_F64 ? total_double(row, n) : total_float(row, n);
    double most = loops->largest(row, (size_t)n), sum = loops->grow(row, (size_t)n, most);
    double lse = most + weft_i_log_f64(sum), share = 1 / (double)w->counted;
    double factor = (1 + 2 * z * lse) / sum * share, less = smoothing / (double)n * share;
    if (w->compute == WEFT_F64) {
        slope_double(row, n, factor, less);
        ((double *)row)[label] -= (1 - smoothing) * share;
    } else {
        slope_float(row, n, factor, less);
        ((float *)row)[label] -= (float)((1 - smoothing) * share);
    }
    return lse - (1 - smoothing) * hit - smoothing / (double)n * all + z * lse * lse;
}

static void take_rows(void *argument, int64_t part)
{
    const struct work *w = argument;
    size_t wide = (size_t)w->classes * weft_i_dtype_size(w->compute);
    const int64_t *label = (const int64_t *)(const void *)weft_i_tensor_data(w->labels) + w->first;
    for (int64_t i = weft_i_team_bound(w->count, w->parts, part),
                 end = weft_i_team_bound(w->count, w->parts, part + 1);
         i < end; i++) {
        char *row = weft_i_tensor_data(w->logits) + (size_t)i * wide;
        w->losses[i] = 0;
        if (label[i] == w->ignore)
            memset(row, 0, wide);
        else
            w->losses[i] = loss_of_row(w, row, label[i]);
    }
}

static weft_i_matrix matrix_of(const struct work *w, const weft_tensor *x, int64_t first,
                               int64_t rows, int64_t columns)
{
    int64_t size = (int64_t)weft_i_dtype_size(w->compute);
    return (weft_i_matrix){
        w->compute, weft_i_tensor_data(x) + first * columns * size, rows, columns, columns, 1};
}

/* The gradients of x and weight from those of the chunk's logits. */
static weft_status go_back(const struct work *w, const weft_i_matrix *logits,
                           const weft_i_matrix *x, const weft_i_matrix *weight)
{
    weft_i_matrix turned = weft_i_matrix_transposed(logits);
    if (w->x_grad) {
        weft_i_matrix grad = matrix_of(w, w->x_grad, 0, w->count, w->width);
        weft_tensor *out = w->call->outs[1];
        int64_t size = (int64_t)weft_i_dtype_size(out->dtype);
        WEFT_TRY(weft_i_matmul(&grad, logits, weight));
        weft_i_store_run(out->dtype, weft_i_tensor_data(out) + w->first * w->width * size, size,
                         w->compute, grad.data, (size_t)(w->count * w->width));
    }
    if (w->weight_grad) {
        weft_i_matrix grad = matrix_of(w, w->weight_grad, 0, w->classes, w->width);
        weft_i_matmul_add(&grad, &turned, x);
    }
    return WEFT_OK;
}

static weft_status run_chunk(struct work *w, double *total)
{
    weft_i_matrix x = matrix_of(w, w->x, w->first, w->count, w->width);
    weft_i_matrix weight = matrix_of(w, w->weight, 0, w->classes, w->width);
    weft_i_matrix logits = matrix_of(w, w->logits, 0, w->count, w->classes);
    weft_i_matrix turned = weft_i_matrix_transposed(&weight);
    WEFT_TRY(weft_i_matmul(&logits, &x, &turned));
    w->parts =
        weft_i_team_parts(3 * w->count * w->classes * (int64_t)weft_i_dtype_size(w->compute));
    w->parts = w->parts < w->count ? w->parts : w->count;
    if (w->parts > 1)
        weft_i_team_run(w->parts, take_rows, w);
    else
        take_rows(w, 0);
    for (int64_t i = 0; i < w->count; i++)
        *total += w->losses[i];
    return go_back(w, &logits, &x, &weight);
}

static weft_status run_all(struct work *w, double *loss)
{
    double total = 0;
    const int64_t *label = (const int64_t *)(const void *)weft_i_tensor_data(w->labels);
    int64_t counted = count_rows(w->call, label, w->rows);
    if (counted < 0)
        return (weft_status)counted;
    w->counted = counted ? counted : 1;
    for (w->first = 0; w->first < w->rows; w->first += w->chunk) {
        int64_t left = w->rows - w->first;
        w->count = left < w->chunk ? left : w->chunk;
        WEFT_TRY(run_chunk(w, &total));
    }
    *loss = total / (double)w->counted;
    return WEFT_OK;
}

weft_status weft_i_linear_loss_run(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor, *weight = call->args[WEIGHT].tensor;
    struct work w = {.call = call,
                     .compute = x->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32,
                     .rows = call->args[LABELS].tensor->numel,
                     .width = weight->dim[1],
                     .classes = weight->dim[0],
                     .ignore = call->args[IGNORE].integer};
    double loss = 0;
    w.chunk = chunk_of(&w);
    weft_status status = make_work(&w) ? run_all(&w, &loss) : weft_last_status();
    if (status >= 0)
        weft_i_convert(call->outs[0]->dtype, weft_i_tensor_data(call->outs[0]), WEFT_F64, &loss, 1);
    if (status >= 0 && w.weight_grad && w.weight_grad != call->outs[2])
        weft_i_copy_tensor(call->outs[2], w.weight_grad);
    drop_work(&w);
    return status;
}

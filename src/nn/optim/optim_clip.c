/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The norm of all gradients, and its limit.  The squares of a gradient are summed by the row of
 * weft_sum in f64, a piece at a time, so that the copy in f64 stays small.  Pieces are whole
 * subtrees of the order of sums (kernels/vector/reduce.h) and are joined as it joins them: the bits
 * are those of one sum over the whole gradient.
 */
#include "base/os/os.h"
#include "nn/optim/optim.h"
#include "tensor/object/eye.h"
#include "weft/coll.h"
#include "weft/op.h"
#include "weft/view.h"

#include <math.h>
#include <stdlib.h>

#define WHAT "weft_clip_grad_norm"

enum { PIECE = 1 << 20 /* elements: a block of sums times a power of 2 */, LEVELS = 64 };

typedef struct piece {
    weft_tensor *sum; /* [1], kept; NULL when it was read */
    double square;
    int param;
} piece;

typedef struct clip {
    const weft_named *params;
    int count;
    const double *share;       /* of each parameter: 1 / how many ranks have a copy; NULL: 1 */
    weft_group *const *groups; /* over whose ranks the squares are added up, one after the other */
    int group_count;
    piece *pieces;
    size_t used;
    double square; /* of the norm */
    int first;     /* the parameter whose part of it is not finite, or -1 */
} clip;

static const char *label_of(const clip *c, int i, char out[WEFT_I_OPTIM_LABEL])
{
    return weft_i_optim_label(c->params[i].name, i, out);
}

/* -- what is given -- */

static weft_status check_gradient(const clip *c, int i)
{
    char label[WEFT_I_OPTIM_LABEL];
    weft_tensor *x = c->params[i].tensor;
    label_of(c, i, label);
    if (!x)
        return weft_i_missing(WHAT ": parameter %s is NULL", label);
    WEFT_TRY(weft_i_tensor_check_live(WHAT, x));
    const weft_tensor *grad = weft_grad(x);
    if (!grad)
        return WEFT_OK;
    if (!weft_i_dtype_is_float(grad->dtype) || weft_i_tensor_device(grad) == WEFT_META)
        return weft_i_fail(WEFT_ERR_TYPE, WHAT ": the gradient of parameter %s is %s", label,
                           weft_i_dtype_is_float(grad->dtype) ? "on meta and has no values"
                                                              : "no float");
    if (grad->storage->read_only || weft_i_tensor_overlaps_itself(grad))
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG,
            WHAT ": the gradient of parameter %s cannot be scaled in place: %s", label,
            grad->storage->read_only ? "it is read-only (imported that way)"
                                     : "several of its elements share memory (an expanded view?)");
    weft_status status = weft_i_storage_ready(grad->storage, true);
    return status < 0 ? weft_i_explain(status, WHAT ": the gradient of parameter %s", label)
                      : WEFT_OK;
}

/* Where a gradient begins, to find two that are one. */
typedef struct start {
    const weft_storage *storage;
    int64_t offset; /* in bytes */
    int param;
} start;

static int by_place(const void *a_, const void *b_)
{
    const start *a = a_, *b = b_;
    uintptr_t x = (uintptr_t)a->storage, y = (uintptr_t)b->storage;
    if (x != y)
        return x < y ? -1 : 1;
    return a->offset != b->offset ? (a->offset < b->offset ? -1 : 1) : a->param - b->param;
}

static weft_status check_places(const clip *c, start *starts)
{
    char a[WEFT_I_OPTIM_LABEL], b[WEFT_I_OPTIM_LABEL];
    size_t n = 0;
    for (int i = 0; i < c->count; i++) {
        const weft_tensor *grad = weft_grad(c->params[i].tensor);
        if (grad && grad->numel)
            starts[n++] =
                (start){grad->storage, grad->offset * (int64_t)weft_i_dtype_size(grad->dtype), i};
    }
    qsort(starts, n, sizeof *starts, by_place);
    for (size_t i = 1; i < n; i++)
        if (starts[i].storage == starts[i - 1].storage && starts[i].offset == starts[i - 1].offset)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               WHAT ": parameters %s and %s have the same gradient, which would be "
                                    "counted and scaled twice",
                               label_of(c, starts[i - 1].param, a),
                               label_of(c, starts[i].param, b));
    return WEFT_OK;
}

static weft_status check_all(const clip *c)
{
    for (int i = 0; i < c->count; i++)
        WEFT_TRY(check_gradient(c, i));
    start *starts = WEFT_OS->alloc((size_t)(c->count + 1) * sizeof *starts);
    if (!starts)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, WHAT ": no memory to look at %d gradients",
                           c->count);
    weft_status status = check_places(c, starts);
    WEFT_OS->free(starts);
    return status;
}

/* -- the sum of squares -- */

static weft_tensor *sum_of_squares(weft_tensor *row, int64_t from, int64_t length)
{
    if (weft_scope_open() < 0)
        return NULL;
    weft_tensor *x = weft_to_dtype(weft_narrow(row, 0, from, length), WEFT_F64);
    weft_tensor *sum = weft_keep(weft_sum(weft_mul(x, x), NULL, 0, false));
    weft_scope_close();
    return sum;
}

static weft_status add_pieces(clip *c, int param, weft_tensor *grad)
{
    weft_tensor *row = weft_reshape(grad, WEFT_SHAPE(grad->numel));
    for (int64_t at = 0; at < grad->numel; at += PIECE) {
        int64_t left = grad->numel - at;
        weft_tensor *sum = sum_of_squares(row, at, left < PIECE ? left : PIECE);
        if (!sum)
            return weft_last_status();
        c->pieces[c->used++] = (piece){.sum = sum, .param = param};
    }
    return WEFT_OK;
}

static weft_status start_pieces(clip *c)
{
    char label[WEFT_I_OPTIM_LABEL];
    for (int i = 0; i < c->count; i++) {
        weft_tensor *grad = weft_grad(c->params[i].tensor);
        if (!grad)
            continue;
        WEFT_TRY(weft_scope_open());
        weft_status status = add_pieces(c, i, grad);
        weft_scope_close();
        if (status < 0)
            return weft_i_explain(status, WHAT ": the gradient of parameter %s",
                                  label_of(c, i, label));
    }
    return WEFT_OK;
}

/* All that are where piece `first` is, in one read. */
static weft_status read_pieces(clip *c, size_t first, weft_tensor **row)
{
    weft_device device = weft_tensor_device(c->pieces[first].sum);
    size_t n = 0;
    for (size_t i = first; i < c->used; i++)
        if (c->pieces[i].sum && weft_tensor_device(c->pieces[i].sum) == device)
            row[n++] = c->pieces[i].sum;
    weft_tensor *values = weft_to(weft_stack(row, n, 0), WEFT_F64, WEFT_CPU);
    if (!values)
        return weft_last_status();
    n = 0;
    for (size_t i = first; i < c->used; i++) {
        piece *p = &c->pieces[i];
        if (!p->sum || weft_tensor_device(p->sum) != device)
            continue;
        p->square = weft_item(values, (int64_t)n++);
        weft_release(p->sum);
        p->sum = NULL;
    }
    return WEFT_OK;
}

/* The order of sums, over whole pieces: pairwise as they come, the rest from the end. */
static double join(const piece *pieces, size_t n)
{
    double level[LEVELS];
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        level[depth++] = pieces[i].square;
        for (size_t bits = i + 1; !(bits & 1); bits >>= 1, depth--)
            level[depth - 2] += level[depth - 1];
    }
    for (; depth > 1; depth--)
        level[depth - 2] += level[depth - 1];
    return depth ? level[0] : 0;
}

static void add_up(clip *c)
{
    for (size_t i = 0, n; i < c->used; i += n) {
        for (n = 1; i + n < c->used && c->pieces[i + n].param == c->pieces[i].param;)
            n++;
        double square = join(&c->pieces[i], n);
        if (!isfinite(square) && c->first < 0)
            c->first = c->pieces[i].param;
        c->square += c->share ? square * c->share[c->pieces[i].param] : square;
    }
}

static weft_status measure_with(clip *c, weft_tensor **row)
{
    WEFT_TRY(start_pieces(c));
    for (size_t i = 0; i < c->used; i++)
        if (c->pieces[i].sum)
            WEFT_TRY(read_pieces(c, i, row));
    add_up(c);
    return WEFT_OK;
}

static size_t count_pieces(const clip *c)
{
    size_t n = 0;
    for (int i = 0; i < c->count; i++) {
        const weft_tensor *grad = weft_grad(c->params[i].tensor);
        if (grad)
            n += (size_t)((grad->numel + PIECE - 1) / PIECE);
    }
    return n;
}

static weft_status measure(clip *c)
{
    size_t n = count_pieces(c) + 1;
    c->pieces = WEFT_OS->alloc(n * (sizeof *c->pieces + sizeof(weft_tensor *)));
    if (!c->pieces)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, WHAT ": no memory for %zu sums", n);
    weft_status status = measure_with(c, (weft_tensor **)(c->pieces + n));
    for (size_t i = 0; i < c->used; i++)
        weft_release(c->pieces[i].sum);
    WEFT_OS->free(c->pieces);
    return status;
}

/* -- with other ranks -- */

/* `value` becomes the reduction of all ranks' values. */
static weft_status reduce(double *value, weft_reduction op, weft_group *group)
{
    weft_tensor *x = weft_tensor_from(WEFT_F64, WEFT_SHAPE(1), value);
    WEFT_TRY(x ? weft_all_reduce_into(x, x, op, group) : weft_last_status());
    *value = weft_item(x, 0);
    return WEFT_OK;
}

static weft_status refuse(const char *of, double norm)
{
    return weft_i_fail(WEFT_ERR_NUMERIC,
                       WHAT ": the norm is %g: the gradient of %s has an infinity or NaN, or "
                            "squares beyond f64; no gradient was changed",
                       norm, of);
}

/* Sums that are not finite on their own name their parameter; finite ones may add up to infinity. */
static weft_status refuse_own(const clip *c, double norm)
{
    char label[WEFT_I_OPTIM_LABEL], of[WEFT_I_OPTIM_LABEL + 16];
    if (c->first < 0)
        return refuse("all parameters together", norm);
    snprintf(of, sizeof of, "parameter %s", label_of(c, c->first, label));
    return refuse(of, norm);
}

/* As messages count ranks: of the group, or of the world if there are several groups. */
static int own_rank(const clip *c)
{
    return c->group_count == 1 ? weft_rank(c->groups[0])
                               : weft_rank(weft_group_world(c->groups[0]));
}

/* All ranks have the same sum and come here together: they agree on the first parameter, and of
 * those ranks that say the same on the first. */
static weft_status refuse_together(const clip *c, double norm)
{
    char label[WEFT_I_OPTIM_LABEL], of[WEFT_I_OPTIM_LABEL + 48];
    double ranks = weft_size(weft_group_world(c->groups[0])), none = 1e15,
           code = c->first < 0 ? none : c->first * ranks + own_rank(c);
    for (int i = 0; i < c->group_count; i++)
        WEFT_TRY(reduce(&code, WEFT_MIN, c->groups[i]));
    if (!(code < none))
        return refuse("all parameters together", norm);
    int first = (int)(code / ranks);
    snprintf(of, sizeof of, "parameter %s on rank %d",
             weft_i_optim_label(first < c->count ? c->params[first].name : "", first, label),
             (int)(code - first * ranks));
    return refuse(of, norm);
}

static weft_status scale_all(const clip *c, double factor)
{
    char label[WEFT_I_OPTIM_LABEL];
    for (int i = 0; i < c->count; i++) {
        weft_tensor *grad = weft_grad(c->params[i].tensor);
        weft_status status = grad ? weft_mul_scalar_into(grad, grad, factor) : WEFT_OK;
        if (status < 0)
            return weft_i_explain(status, WHAT ": the gradient of parameter %s",
                                  label_of(c, i, label));
    }
    return WEFT_OK;
}

static weft_status run(clip *c, double limit, double *out)
{
    WEFT_TRY(measure(c));
    for (int i = 0; i < c->group_count; i++)
        WEFT_TRY(reduce(&c->square, WEFT_SUM, c->groups[i]));
    double norm = sqrt(c->square);
    if (out)
        *out = norm;
    if (!isfinite(norm))
        return c->group_count ? refuse_together(c, norm) : refuse_own(c, norm);
    return norm > limit ? scale_all(c, limit / norm) : WEFT_OK;
}

static weft_status clip_all(clip *c, double limit, double *norm)
{
    WEFT_TRY(weft_i_not_captured(WHAT));
    if (c->count < 0 || (c->count && !c->params))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, WHAT ": a list of %d parameters",
                           c->params ? c->count : 0);
    if (!(limit > 0))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, WHAT ": a limit of %g; it is above 0", limit);
    WEFT_TRY(check_all(c));
    weft_status status = weft_scope_open();
    if (status < 0)
        return status;
    WEFT_NO_GRAD
    {
        status = run(c, limit, norm);
    }
    weft_scope_close();
    return status;
}

weft_status weft_clip_grad_norm(const weft_named *params, int count, double limit,
                                weft_group *group, double *norm)
{
    clip c = {.params = params, .count = count, .first = -1, .groups = &group};
    c.group_count = group != NULL;
    return clip_all(&c, limit, norm);
}

weft_status weft_i_clip_shared(const weft_named *params, const double *share, int count,
                               double limit, weft_group *const *groups, int group_count,
                               double *norm)
{
    clip c = {.params = params, .count = count, .first = -1, .share = share};
    c.groups = groups;
    c.group_count = group_count;
    return clip_all(&c, limit, norm);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A product and reduce_scatter as one.  Each rank multiplies what the others are to get first, in
 * cyclic order from its successor on, and its own part last.  A partial product goes to a slot of
 * its own in the workspace of the rank that is to have it, and a word says so.  With all of them
 * there the rank reduces its slots, in rank order.
 *
 * On the CPU the product is written straight into the other's slot.  On a device it is written here,
 * and copied there by the second stream while the first goes on multiplying.
 *
 * The scattered dimension goes to the front, so that a part is a block of rows; along the last
 * dimension it is a block of columns of b.
 */
#include "base/status.h"
#include "functional/functional.h"
#include "parallel/pipe.h"
#include "tensor/ops.h"
#include "weft/functional.h"

/* One run.  Its tensors belong to a scope of its own. */
typedef struct scatter_run {
    const weft_i_scattering *s;
    weft_i_op_call *call;
    weft_group *group;
    weft_i_pipe pipe;
    weft_tensor *a, *scale; /* with the scattered dimension in front; by columns: as matrices */
    int64_t rows, columns;  /* of a part */
    int pieces;             /* in which a part is multiplied and copied */
    size_t slot;            /* bytes */
    weft_tensor *stage;     /* [ranks, rows, columns] on a device: products on their way */
} scatter_run;

/* ---- one part ---- */

/* Rows of a part as a matrix: a view where the layout allows it. */
static weft_tensor *rows_of(const scatter_run *run, weft_tensor *x, int rank)
{
    if (!x || run->s->last)
        return x;
    int64_t each = x->dim[0] / run->s->ranks;
    weft_tensor *part = weft_narrow(x, 0, rank * each, each);
    return part ? weft_reshape(part, weft_i_pipe_matrix(part)) : NULL;
}

static weft_tensor *columns_of(const scatter_run *run, weft_tensor *x, int dim, int rank)
{
    bool all = !run->s->last || !x || x->dim[dim] == 1;
    return all ? x : weft_narrow(x, dim, rank * run->columns, run->columns);
}

/* A piece of the product that `rank` is to have, into the piece `out`. */
static weft_status multiply(scatter_run *run, int rank, weft_tensor *out, int piece)
{
    const weft_i_scattering *s = run->s;
    weft_tensor *scale = run->scale;
    if (s->by_rows)
        scale = weft_i_pipe_piece(rows_of(run, run->scale, rank), run->pieces, piece);
    weft_i_scales scales = s->scales;
    if (s->scale && weft_i_tensor_numel(scales.b) > 1)
        scales.b = columns_of(run, scales.b, 1, rank);
    if (scales.bias)
        scales.bias = columns_of(run, scales.bias, 0, rank);
    if (s->scale && (!scales.b || (s->scales.bias && !scales.bias)))
        return weft_last_status();
    weft_tensor *a = weft_i_pipe_piece(rows_of(run, run->a, rank), run->pieces, piece);
    return weft_i_pipe_product(&run->pipe, rank, out, a, columns_of(run, s->b, 1, rank), scale,
                               &scales);
}

/* The slot of `from` in the workspace of `at`. */
static weft_tensor *slot_of(scatter_run *run, int at, int from)
{
    return weft_i_pipe_slot(&run->pipe, at, (size_t)from * run->slot, run->rows, run->columns,
                            run->s->dtype);
}

/* ---- the pipeline ---- */

static weft_status send_part(scatter_run *run, int rank)
{
    weft_i_pipe *pipe = &run->pipe;
    weft_tensor *there = slot_of(run, rank, pipe->me);
    weft_tensor *here = run->stage ? weft_select(run->stage, 0, rank) : there;
    for (int piece = 0; piece < run->pieces; piece++) {
        weft_tensor *rows = weft_i_pipe_piece(here, run->pieces, piece);
        WEFT_TRY(multiply(run, rank, rows, piece));
        WEFT_TRY(weft_i_pipe_fork(pipe));
        WEFT_TRY(weft_i_pipe_aside(pipe));
        if (run->stage && piece == 0)
            WEFT_TRY(weft_i_pipe_hear(pipe, rank, WEFT_I_WORD_FREE));
        if (run->stage)
            WEFT_TRY(
                weft_i_pipe_move(pipe, rank, weft_i_pipe_piece(there, run->pieces, piece), rows));
        if (piece == run->pieces - 1)
            WEFT_TRY(weft_i_pipe_tell(pipe, rank, WEFT_I_WORD_READY));
        WEFT_TRY(weft_i_pipe_back(pipe));
    }
    return WEFT_OK;
}

static weft_status multiply_own(scatter_run *run)
{
    int me = run->pipe.me;
    weft_tensor *own = slot_of(run, me, me);
    for (int piece = 0; piece < run->pieces; piece++)
        WEFT_TRY(multiply(run, me, weft_i_pipe_piece(own, run->pieces, piece), piece));
    return WEFT_OK;
}

/* All slots, as they lie behind each other. */
static weft_tensor *all_slots(scatter_run *run, weft_shape part)
{
    weft_tensor *rows =
        weft_i_pipe_slot(&run->pipe, run->pipe.me, 0, run->s->ranks,
                         (int64_t)(run->slot / weft_dtype_size(run->s->dtype)), run->s->dtype);
    weft_shape all = {.ndim = part.ndim + 1, .dim = {run->s->ranks}};
    for (int i = 0; i < part.ndim; i++)
        all.dim[i + 1] = part.dim[i];
    return rows ? weft_view(rows, all) : NULL;
}

static weft_status reduce(scatter_run *run)
{
    weft_tensor *out = run->call->out;
    if (run->s->last)
        out = weft_view(out, weft_i_pipe_matrix(out));
    else
        out = weft_movedim(out, run->s->dim, 0);
    return out ? weft_i_pipe_reduce(out, all_slots(run, weft_i_tensor_shape(out)),
                                    run->s->reduction)
               : weft_last_status();
}

static weft_status pump(scatter_run *run)
{
    weft_i_pipe *pipe = &run->pipe;
    run->pieces = weft_i_pipe_pieces(pipe, run->rows);
    /* On a device the meeting was one of hosts.  The rank whose workspace it is knows by the order
     * of its stream that it and all others have read what an earlier operation left there. */
    if (!weft_i_device_is_host(pipe->device))
        WEFT_TRY(weft_i_pipe_tell_all(pipe, WEFT_I_WORD_FREE));
    for (int step = 1; step < pipe->size; step++)
        WEFT_TRY(send_part(run, (pipe->me + step) % pipe->size));
    WEFT_TRY(multiply_own(run));
    WEFT_TRY(weft_i_pipe_hear_all(pipe, WEFT_I_WORD_READY));
    return reduce(run);
}

/* All memory is there before the others are met, but for copies of parts that lie badly. */
static weft_status prepare(scatter_run *run)
{
    const weft_i_scattering *s = run->s;
    const weft_tensor *out = run->call->out;
    weft_device device = weft_i_tensor_device(out);
    run->columns = out->dim[out->ndim - 1];
    run->rows = weft_i_tensor_numel(out) / run->columns;
    run->slot = weft_i_pipe_bytes(out);
    run->a = s->last ? weft_reshape(s->a, weft_i_pipe_matrix(s->a)) : weft_movedim(s->a, s->dim, 0);
    run->scale = s->scale;
    if (s->by_rows)
        run->scale = s->last ? weft_reshape(s->scale, weft_i_pipe_matrix(s->scale))
                             : weft_movedim(s->scale, s->dim, 0);
    if (!run->a || (s->scale && !run->scale))
        return weft_last_status();
    if (weft_i_device_is_host(device))
        return WEFT_OK;
    run->stage =
        weft_i_tensor_new(s->dtype, device, WEFT_SHAPE(s->ranks, run->rows, run->columns), NULL);
    return run->stage ? WEFT_OK : weft_last_status();
}

static weft_i_coll_kind kind_of(const weft_i_scattering *s)
{
    return s->scale ? WEFT_I_SCALED_MATMUL_REDUCE_SCATTER : WEFT_I_MATMUL_REDUCE_SCATTER;
}

/* ---- one after the other ---- */

static weft_tensor *whole_product(scatter_run *run)
{
    const weft_i_scattering *s = run->s;
    weft_tensor *a = weft_i_pipe_flat(s->a);
    weft_tensor *scale = s->by_rows ? weft_i_pipe_flat(s->scale) : s->scale;
    weft_tensor *product = s->scale ? weft_scaled_mm(a, s->b, scale, s->scales.b, s->scales.bias,
                                                     s->scales.result, s->dtype)
                                    : weft_mm(a, s->b);
    weft_shape shape = weft_i_tensor_shape(s->a);
    shape.dim[shape.ndim - 1] = s->b->dim[1];
    return product && shape.ndim != 2 ? weft_view(product, shape) : product;
}

/* Ends with the call, as the pipeline does.  Along dimension 0 there is nothing to put in order, and
 * it is a plain collective, which makes no object that somebody could wait for. */
static weft_status scatter_all(const scatter_run *run, weft_tensor *product)
{
    const weft_i_scattering *s = run->s;
    weft_tensor *out = run->call->out;
    if (!product)
        return weft_last_status();
    if (s->dim == 0)
        return weft_reduce_scatter_into(out, product, s->reduction, run->group);
    out = weft_reduce_scatter_tensor_out(out, product, s->reduction, s->dim, run->group);
    return out && weft_wait_tensor(out) ? WEFT_OK : weft_last_status();
}

static weft_status run_pair(scatter_run *run)
{
    const weft_i_scattering *s = run->s;
    uint64_t number = weft_i_pipe_note(run->group, kind_of(s), weft_i_pipe_bytes(run->call->out),
                                       WEFT_I_WAY_PAIR);
    weft_status status = scatter_all(run, whole_product(run));
    weft_i_record_end(weft_i_group_record(run->group), number, status);
    return status;
}

/* ---- the choice ---- */

static weft_status run_pipeline(scatter_run *run)
{
    WEFT_TRY(prepare(run));
    weft_i_pipe_entry entry = {.op = run->s->op,
                               .kind = kind_of(run->s),
                               .group = run->group,
                               .operand = run->call->out,
                               .reduction = run->s->reduction,
                               .dim = run->s->dim,
                               .way = WEFT_I_WAY_PIPELINED,
                               .scaling = !run->s->scale    ? WEFT_I_UNSCALED
                                          : run->s->by_rows ? WEFT_I_ROWS_REPLICATED
                                                            : WEFT_I_TENSOR_WISE,
                               .bytes = (size_t)run->s->ranks * run->slot};
    WEFT_TRY(weft_i_pipe_open(&run->pipe, &entry));
    return run->pipe.apart ? run_pair(run) : weft_i_pipe_close(&run->pipe, pump(run));
}

static weft_status run_scatter(weft_i_op_call *call)
{
    weft_i_scattering s;
    WEFT_TRY(weft_i_scattering_read(call, &s));
    scatter_run run = {.s = &s, .call = call, .group = weft_i_functional_group(call)};
    if (!run.group)
        return weft_last_status();
    int64_t bytes = s.ranks * (int64_t)weft_i_pipe_bytes(call->out);
    bool pipes = bytes && s.a->ndim < WEFT_MAX_DIMS &&
                 weft_i_fused_pays(false, weft_i_tensor_device(s.a), bytes) &&
                 weft_i_pipe_can(run.group, weft_i_tensor_device(s.a));
    WEFT_TRY(weft_scope_open());
    weft_status status = pipes ? run_pipeline(&run) : run_pair(&run);
    weft_scope_close();
    return status;
}

weft_status weft_i_matmul_reduce_scatter_run(weft_i_op_call *call)
{
    return run_scatter(call);
}

weft_status weft_i_scaled_matmul_reduce_scatter_run(weft_i_op_call *call)
{
    return run_scatter(call);
}

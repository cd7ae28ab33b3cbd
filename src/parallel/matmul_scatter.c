/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A product and reduce_scatter as one.  Each rank multiplies what the others are to get first, in
 * cyclic order from its successor on, and its own part last.  A partial product goes to a slot of
 * its own in the memory of the rank that is to have it, and a word says so.  With all of them there
 * the rank reduces its slots, in rank order.  Of two processes on one device each waits for the
 * other's partial product before its own, which then adds the two, so that nothing is read again.
 *
 * On the CPU, and on a device that all ranks share, a product is written straight into the other's
 * slot.  On devices of their own it is written here, and copied there by the second stream while the
 * first goes on multiplying.  Products that go straight are on the second stream themselves: the own
 * one, which waits for those of the others, does not keep them waiting.
 *
 * On a device slots are used by turns, so that a rank may begin the next operation while another
 * still reads what the last one brought.  A rank that writes to a slot holds it by a word, which the reader
 * takes when it has read; to hold it again waits for that.
 *
 * The scattered dimension goes to the front, so that a part is a block of rows; along the last
 * dimension it is a block of columns of b.
 */
#include "base/report/status.h"
#include "coll/calls/run.h"
#include "functional/functional.h"
#include "parallel/pipe.h"
#include "tensor/op/ops.h"
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
    int turn;               /* which of two sets of slots; on the CPU there is one */
    bool there;             /* on a device */
    weft_tensor *stage;     /* [ranks, rows, columns] on a device: products on their way; or NULL */
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

/* A piece of the product that `rank` is to have, into the piece `out`; `added` (or NULL) comes to
 * it. */
static weft_status multiply(scatter_run *run, int rank, weft_tensor *out, int piece,
                            const weft_tensor *added)
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
    weft_tensor *b = columns_of(run, s->b, 1, rank);
    if (!added)
        return weft_i_pipe_product(&run->pipe, rank, out, a, b, scale, &scales);
    double factor = s->reduction == WEFT_AVG ? 1.0 / s->ranks : 1;
    return weft_i_pipe_product_add(&run->pipe, rank, out, a, b, scale, &scales, added, factor);
}

/* The byte where the slot of `from` begins.  Each turn has a half of the memory, also where operations
 * differ in size. */
static size_t slot_at(const scatter_run *run, int from)
{
    size_t half = run->turn ? weft_i_pipe_half(&run->pipe) : 0;
    return half + (size_t)from * run->slot;
}

/* The slot of `from` in the memory of `at`. */
static weft_tensor *slot_of(scatter_run *run, int at, int from)
{
    return weft_i_pipe_slot(&run->pipe, at, slot_at(run, from), run->rows, run->columns,
                            run->s->dtype);
}

/* ---- the pipeline ---- */

static weft_i_word held(const scatter_run *run)
{
    return run->turn ? WEFT_I_WORD_HELD_NEXT : WEFT_I_WORD_HELD;
}

/* Multiplied here, and copied there by the second stream. */
static weft_status send_copy(scatter_run *run, int rank)
{
    weft_i_pipe *pipe = &run->pipe;
    weft_tensor *there = slot_of(run, rank, pipe->me), *here = weft_select(run->stage, 0, rank);
    for (int piece = 0; piece < run->pieces; piece++) {
        weft_tensor *rows = weft_i_pipe_piece(here, run->pieces, piece);
        WEFT_TRY(multiply(run, rank, rows, piece, NULL));
        WEFT_TRY(weft_i_pipe_fork(pipe));
        WEFT_TRY(weft_i_pipe_aside(pipe));
        if (piece == 0)
            WEFT_TRY(weft_i_pipe_tell(pipe, rank, held(run)));
        WEFT_TRY(weft_i_pipe_move(pipe, rank, weft_i_pipe_piece(there, run->pieces, piece), rows));
        if (piece == run->pieces - 1)
            WEFT_TRY(weft_i_pipe_tell(pipe, rank, WEFT_I_WORD_READY));
        WEFT_TRY(weft_i_pipe_back(pipe));
    }
    return WEFT_OK;
}

/* Multiplied into the other's slot. */
static weft_status send_straight(scatter_run *run, int rank)
{
    weft_i_pipe *pipe = &run->pipe;
    weft_tensor *there = slot_of(run, rank, pipe->me);
    WEFT_TRY(weft_i_pipe_aside(pipe));
    if (run->there)
        WEFT_TRY(weft_i_pipe_tell(pipe, rank, held(run)));
    for (int piece = 0; piece < run->pieces; piece++)
        WEFT_TRY(multiply(run, rank, weft_i_pipe_piece(there, run->pieces, piece), piece, NULL));
    WEFT_TRY(weft_i_pipe_tell(pipe, rank, WEFT_I_WORD_READY));
    return weft_i_pipe_back(pipe);
}

static weft_status multiply_own(scatter_run *run)
{
    int me = run->pipe.me;
    weft_tensor *own = slot_of(run, me, me);
    for (int piece = 0; piece < run->pieces; piece++)
        WEFT_TRY(multiply(run, me, weft_i_pipe_piece(own, run->pieces, piece), piece, NULL));
    return WEFT_OK;
}

/* The result with the scattered dimension in front. */
static weft_tensor *out_in_front(const scatter_run *run)
{
    weft_tensor *out = run->call->out;
    return run->s->last ? out : weft_movedim(out, run->s->dim, 0);
}

/*
 * May the own product add the other rank's to itself?  A third one's would have to be added before;
 * and a device of its own would have nothing to do until the other's is there.  In threads of one
 * process the first such product, which comes behind a wait for the other rank, may load code; that
 * waits for the device, and the other rank for it.
 */
static bool may_add(const scatter_run *run)
{
    bool threads = run->group->world->sharing == WEFT_I_BETWEEN_THREADS;
    return run->pipe.near && !threads && run->s->ranks == 2 && !run->s->scales.bias &&
           !run->s->scales.result;
}

/* The own product onto the other rank's, which is there, as the result.  WEFT_ERR_UNSUPPORTED without
 * a message: it takes two steps. */
static weft_status multiply_onto(scatter_run *run)
{
    int me = run->pipe.me;
    weft_tensor *out = out_in_front(run), *theirs = slot_of(run, me, 1 - me);
    if (!out || !theirs)
        return weft_last_status();
    if (!weft_i_tensor_is_contiguous(out))
        return WEFT_ERR_UNSUPPORTED;
    out = weft_view(out, WEFT_SHAPE(run->rows, run->columns));
    for (int piece = 0; piece < run->pieces; piece++) {
        weft_tensor *added = weft_i_pipe_piece(theirs, run->pieces, piece);
        if (!added)
            return weft_last_status();
        WEFT_TRY(multiply(run, me, weft_i_pipe_piece(out, run->pieces, piece), piece, added));
    }
    return WEFT_OK;
}

/* All slots, as they lie behind each other. */
static weft_tensor *all_slots(scatter_run *run, weft_shape part)
{
    weft_tensor *rows =
        weft_i_pipe_slot(&run->pipe, run->pipe.me, slot_at(run, 0), run->s->ranks,
                         (int64_t)(run->slot / weft_dtype_size(run->s->dtype)), run->s->dtype);
    weft_shape all = {.ndim = part.ndim + 1, .dim = {run->s->ranks}};
    for (int i = 0; i < part.ndim; i++)
        all.dim[i + 1] = part.dim[i];
    return rows ? weft_view(rows, all) : NULL;
}

static weft_status reduce(scatter_run *run)
{
    weft_tensor *out = out_in_front(run);
    if (out && run->s->last)
        out = weft_view(out, weft_i_pipe_matrix(out));
    return out ? weft_i_pipe_reduce(out, all_slots(run, weft_i_tensor_shape(out)),
                                    run->s->reduction)
               : weft_last_status();
}

static weft_status finish_reducing(scatter_run *run)
{
    WEFT_TRY(multiply_own(run));
    WEFT_TRY(weft_i_pipe_hear_all(&run->pipe, WEFT_I_WORD_READY));
    return reduce(run);
}

static weft_status finish_adding(scatter_run *run)
{
    WEFT_TRY(weft_i_pipe_hear_all(&run->pipe, WEFT_I_WORD_READY));
    weft_status status = multiply_onto(run);
    if (status != WEFT_ERR_UNSUPPORTED)
        return status;
    WEFT_TRY(multiply_own(run));
    return reduce(run);
}

static weft_status pump(scatter_run *run)
{
    weft_i_pipe *pipe = &run->pipe;
    run->pieces = weft_i_pipe_pieces(pipe, run->rows);
    if (run->there)
        run->turn = (int)(weft_i_symm_scratch_turn(run->group, WEFT_I_SLOTS) & 1);
    for (int step = 1; step < pipe->size; step++)
        WEFT_TRY((run->stage ? send_copy : send_straight)(run, (pipe->me + step) % pipe->size));
    WEFT_TRY(may_add(run) ? finish_adding(run) : finish_reducing(run));
    return run->there ? weft_i_pipe_hear_all(pipe, held(run)) : WEFT_OK;
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
    run->there = !weft_i_device_is_host(device);
    if (!run->there || weft_i_symm_scratch_near(run->group, WEFT_I_SLOTS, device))
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
    size_t bytes = (size_t)run->s->ranks * run->slot;
    if (run->there)
        bytes = weft_i_pipe_twice(bytes);
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
                               .memory = run->there ? WEFT_I_SLOTS : WEFT_I_WORKSPACE,
                               .bytes = bytes};
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

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    weft_i_kind_run(WEFT_I_MATMUL_REDUCE_SCATTER, weft_i_coll_barrier);
    weft_i_kind_run(WEFT_I_SCALED_MATMUL_REDUCE_SCATTER, weft_i_coll_barrier);
}

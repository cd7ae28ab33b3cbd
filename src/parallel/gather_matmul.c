/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_gather and products as one.  Each rank puts its shard where the others see it, says so, and
 * multiplies it; then it takes the others' in cyclic order, each as soon as its word is set.  The own
 * shard is copied for the others by the second stream of a device while it is multiplied; that of
 * another rank is copied while the one before it is multiplied.  On the CPU, and on a device that all
 * ranks share, a shard is multiplied where it lies, unless the gathered tensor is wanted.
 *
 * On a device the places for shards are used by turns, so that a rank may begin the next operation
 * while another still reads its shard of the last one.  A rank that writes there holds the place by a word to
 * each reader, which takes it when it has read; to hold it again waits for that.  A shard that lies in
 * symmetric memory is read there, and the call ends when all have read it: it is the user's.
 *
 * The dimension that is gathered goes to the front, so that a shard is a block of rows: rows [q
 * rows, (q + 1) rows) of everything belong to rank q.  Along the dimension that the products sum
 * over, a shard meets a block of rows of b instead, and the ranks' products are added up in rank
 * order.
 */
#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/calls/run.h"
#include "functional/functional.h"
#include "parallel/pipe.h"
#include "symm/registration.h"
#include "tensor/op/ops.h"
#include "weft/functional.h"
#include "weft/symm_coll.h"

/* One run.  Its tensors belong to a scope of its own. */
typedef struct gather_run {
    const weft_i_gathering *g;
    weft_i_op_call *call;
    weft_group *group;
    weft_i_pipe pipe;
    int64_t rows, inner; /* of a shard as a matrix */
    int pieces;          /* in which a shard is copied and multiplied */
    size_t scale_at;     /* byte of the slot where its scales begin */
    weft_symm *in_place; /* the shard's own memory is where the others read; NULL: a slot is */
    uint64_t place[2];   /* of it: serial and offset */
    bool turns;          /* slots are used by turns, and held by words */
    int turn;            /* which of the two */
    weft_tensor *shard;  /* with the gathered dimension in front */
    weft_tensor *whole;  /* [ranks * rows, inner], where the others' shards land; NULL: nowhere */
    weft_tensor *scale;  /* of rows: [ranks * rows, 1]; of all: as it is; NULL: none, or there */
    weft_tensor *own_scale; /* sharded ones: [rows, 1] where they were given, not in `scale` */
    weft_tensor **stack; /* along the last dimension: [ranks, rows, n] of each product; else NULL */
} gather_run;

/* ---- views ---- */

/* x itself if the dimension is there already. */
static weft_tensor *in_front(const gather_run *run, weft_tensor *x)
{
    return run->g->last || run->g->dim == 0 ? x : weft_movedim(x, run->g->dim, 0);
}

/* x, contiguous once the dimension is in front, as a matrix. */
static weft_tensor *as_matrix(const gather_run *run, weft_tensor *x)
{
    weft_tensor *moved = in_front(run, x);
    return moved && moved->ndim != 2 ? weft_view(moved, weft_i_pipe_matrix(moved)) : moved;
}

static weft_tensor *block(weft_tensor *x, int rank, int64_t rows)
{
    return x ? weft_narrow(x, 0, rank * rows, rows) : NULL;
}

/* The gathered tensor along the last dimension: columns of one rank. */
static weft_tensor *columns_of(const gather_run *run, int rank)
{
    weft_tensor *matrix = as_matrix(run, run->call->outs[run->g->count]);
    return weft_narrow(matrix, 1, rank * run->inner, run->inner);
}

/* The byte where this turn's slot begins: each turn has a half of the memory, also where operations
 * differ in size. */
static size_t slot_at(const gather_run *run)
{
    return run->turn ? weft_i_pipe_half(&run->pipe) : 0;
}

/* Where others, or this rank, read the shard of `rank`. */
static weft_tensor *source(gather_run *run, int rank)
{
    if (!run->in_place)
        return weft_i_pipe_slot(&run->pipe, rank, slot_at(run), run->rows, run->inner,
                                run->g->shard->dtype);
    return as_matrix(run, weft_symm_tensor(run->in_place, rank));
}

static weft_tensor *source_scale(gather_run *run, int rank)
{
    return weft_i_pipe_slot(&run->pipe, rank, slot_at(run) + run->scale_at, run->rows, 1, WEFT_F32);
}

/* ---- products ---- */

static weft_tensor *target(const gather_run *run, int i, int rank)
{
    if (run->stack)
        return weft_select(run->stack[i], 0, rank);
    return block(as_matrix(run, run->call->outs[i]), rank, run->rows);
}

static weft_tensor *scale_of(gather_run *run, int rank)
{
    bool rows = run->g->scaling != WEFT_I_TENSOR_WISE;
    if (run->own_scale && rank == run->group->rank)
        return run->own_scale;
    if (run->own_scale && !run->scale)
        return source_scale(run, rank);
    return run->scale && rows ? block(run->scale, rank, run->rows) : run->scale;
}

static weft_i_scales scales_of(const weft_i_gathering *g, int i)
{
    return g->scaling ? (weft_i_scales){g->b_scale[i], g->bias[i], g->result_scale[i]}
                      : (weft_i_scales){0};
}

/* A piece of the shard of `rank`, here or there, times everything. */
static weft_status multiply(gather_run *run, int rank, weft_tensor *shard, int piece)
{
    const weft_i_gathering *g = run->g;
    weft_tensor *scale = scale_of(run, rank), *rows = weft_i_pipe_piece(shard, run->pieces, piece);
    if (scale && g->scaling != WEFT_I_TENSOR_WISE)
        scale = weft_i_pipe_piece(scale, run->pieces, piece);
    for (int i = 0; i < g->count; i++) {
        weft_tensor *b = g->last ? block(g->b[i], rank, run->inner) : g->b[i];
        weft_i_scales scales = scales_of(g, i);
        weft_tensor *out = weft_i_pipe_piece(target(run, i, rank), run->pieces, piece);
        WEFT_TRY(weft_i_pipe_product(&run->pipe, rank, out, rows, b, scale, &scales));
    }
    return WEFT_OK;
}

static weft_status multiply_all(gather_run *run, int rank, weft_tensor *shard)
{
    for (int piece = 0; piece < run->pieces; piece++)
        WEFT_TRY(multiply(run, rank, shard, piece));
    return WEFT_OK;
}

/* ---- the pipeline ---- */

static weft_i_word held(const gather_run *run)
{
    return run->turn ? WEFT_I_WORD_HELD_NEXT : WEFT_I_WORD_HELD;
}

/* What `rank` has shown has been read. */
static weft_status let_go(gather_run *run, int rank)
{
    return run->turns ? weft_i_pipe_hear(&run->pipe, rank, held(run))
                      : weft_i_pipe_tell(&run->pipe, rank, WEFT_I_WORD_READ);
}

/* This rank's shard, and its scales, where the others read them. */
static weft_status show(gather_run *run)
{
    int me = run->pipe.me;
    bool scales = run->g->scaling == WEFT_I_ROWS_SHARDED;
    if (run->turns)
        WEFT_TRY(weft_i_pipe_tell_all(&run->pipe, held(run)));
    if (!run->in_place) {
        weft_tensor *slot = source(run, me);
        slot = slot ? weft_view(slot, weft_i_tensor_shape(run->shard)) : NULL;
        WEFT_TRY(weft_i_pipe_move(&run->pipe, me, slot, run->shard));
    }
    if (scales)
        WEFT_TRY(weft_i_pipe_copy(source_scale(run, me), scale_of(run, me)));
    return weft_i_pipe_tell_all(&run->pipe, WEFT_I_WORD_READY);
}

/* Copies a piece of what has come from `rank` to where it is wanted, and with the first whatever
 * comes once. */
static weft_status land(gather_run *run, int rank, weft_tensor *from, int piece)
{
    weft_tensor *to = run->whole ? block(run->whole, rank, run->rows) : NULL;
    if (run->whole)
        WEFT_TRY(weft_i_pipe_move(&run->pipe, rank, weft_i_pipe_piece(to, run->pieces, piece),
                                  weft_i_pipe_piece(from, run->pieces, piece)));
    if (piece)
        return WEFT_OK;
    if (run->g->scaling == WEFT_I_ROWS_SHARDED && run->scale)
        WEFT_TRY(weft_i_pipe_copy(scale_of(run, rank), source_scale(run, rank)));
    return run->g->last && run->g->keep ? weft_i_pipe_copy(columns_of(run, rank), from) : WEFT_OK;
}

static weft_status take(gather_run *run, int rank)
{
    weft_i_pipe *pipe = &run->pipe;
    weft_tensor *from = source(run, rank);
    if (!from)
        return weft_last_status();
    weft_tensor *here = run->whole ? block(run->whole, rank, run->rows) : from;
    for (int piece = 0; piece < run->pieces; piece++) {
        WEFT_TRY(weft_i_pipe_aside(pipe));
        if (piece == 0)
            WEFT_TRY(weft_i_pipe_hear(pipe, rank, WEFT_I_WORD_READY));
        WEFT_TRY(land(run, rank, from, piece));
        if (run->whole && piece == run->pieces - 1)
            WEFT_TRY(let_go(run, rank));
        WEFT_TRY(weft_i_pipe_back(pipe));
        WEFT_TRY(weft_i_pipe_join(pipe));
        WEFT_TRY(multiply(run, rank, here, piece));
    }
    return run->whole ? WEFT_OK : let_go(run, rank);
}

/* This rank's own shard in the gathered tensor, which nobody has waited for. */
static weft_status keep_own(gather_run *run)
{
    weft_tensor *own = source(run, run->pipe.me);
    if (!run->g->keep || !own)
        return own ? WEFT_OK : weft_last_status();
    return weft_i_pipe_copy(run->g->last ? columns_of(run, run->pipe.me)
                                         : block(run->whole, run->pipe.me, run->rows),
                            own);
}

static weft_status add_up(gather_run *run)
{
    for (int i = 0; run->stack && i < run->g->count; i++)
        WEFT_TRY(weft_i_pipe_reduce(as_matrix(run, run->call->outs[i]), run->stack[i], WEFT_SUM));
    return WEFT_OK;
}

/* A shard that lies as its product reads it is multiplied there, while it is copied for the others;
 * any other is multiplied where it was copied to. */
static weft_status begin_with_own(gather_run *run)
{
    weft_i_pipe *pipe = &run->pipe;
    bool beside = pipe->side && weft_i_tensor_is_contiguous(run->shard);
    if (beside)
        WEFT_TRY(weft_i_pipe_aside(pipe));
    WEFT_TRY(show(run));
    if (beside)
        WEFT_TRY(weft_i_pipe_back(pipe));
    else
        WEFT_TRY(weft_i_pipe_fork(pipe)); /* copies come behind the words of this rank */
    return multiply_all(run, pipe->me,
                        beside ? weft_i_pipe_flat(run->shard) : source(run, pipe->me));
}

static weft_status pump(gather_run *run)
{
    weft_i_pipe *pipe = &run->pipe;
    run->pieces = weft_i_pipe_pieces(pipe, run->rows);
    if (run->turns)
        run->turn = (int)(weft_i_symm_scratch_turn(run->group, WEFT_I_SHARDS) & 1);
    WEFT_TRY(begin_with_own(run));
    for (int step = 1; step < pipe->size; step++)
        WEFT_TRY(take(run, (pipe->me + step) % pipe->size));
    WEFT_TRY(weft_i_pipe_aside(pipe));
    WEFT_TRY(keep_own(run));
    if (!run->turns)
        WEFT_TRY(weft_i_pipe_hear_all(pipe, WEFT_I_WORD_READ));
    WEFT_TRY(weft_i_pipe_back(pipe));
    return add_up(run);
}

/* ---- before it begins ---- */

/* A shard that lies in symmetric memory of the group as the others would read it stays there. */
static weft_status find_place(gather_run *run)
{
    weft_tensor *shard = run->g->shard;
    const weft_i_lease *lease = weft_i_block_lease_of(shard);
    weft_i_registration *met = lease ? weft_i_registration_find(lease->block, run->group) : NULL;
    if (!met || !weft_i_tensor_is_contiguous(run->shard))
        return WEFT_OK;
    run->in_place = weft_symm_rendezvous(shard, run->group);
    if (!run->in_place)
        return weft_last_status();
    run->place[0] = met->serial;
    run->place[1] = run->in_place->offset;
    return WEFT_OK;
}

static weft_status measure(gather_run *run)
{
    const weft_i_gathering *g = run->g;
    run->inner = g->shard->dim[g->shard->ndim - 1];
    run->rows = weft_i_tensor_numel(g->shard) / run->inner;
    run->scale_at = weft_i_pipe_round(weft_i_pipe_bytes(g->shard));
    run->shard = in_front(run, g->shard);
    return run->shard ? WEFT_OK : weft_last_status();
}

static weft_status make_stacks(gather_run *run)
{
    const weft_i_gathering *g = run->g;
    run->stack = WEFT_OS->alloc((size_t)g->count * sizeof *run->stack);
    if (!run->stack)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d products", g->op, g->count);
    for (int i = 0; i < g->count; i++)
        if (!(run->stack[i] =
                  weft_i_tensor_new(g->b[i]->dtype, weft_i_tensor_device(g->shard),
                                    WEFT_SHAPE(g->ranks, run->rows, g->b[i]->dim[1]), NULL)))
            return weft_last_status();
    return WEFT_OK;
}

/* [ranks * rows, 1], in the order of the rows; of all: as it is. */
static weft_tensor *make_scale(gather_run *run)
{
    const weft_i_gathering *g = run->g;
    int64_t all = g->ranks * run->rows;
    if (g->scaling == WEFT_I_TENSOR_WISE)
        return g->scale;
    if (g->scaling == WEFT_I_ROWS_REPLICATED)
        return weft_reshape(in_front(run, g->scale), WEFT_SHAPE(all, 1));
    return weft_i_tensor_new(WEFT_F32, weft_i_tensor_device(g->shard), WEFT_SHAPE(all, 1), NULL);
}

static weft_status prepare_scale(gather_run *run, bool straight)
{
    const weft_i_gathering *g = run->g;
    if (g->scaling == WEFT_I_ROWS_SHARDED) {
        weft_tensor *given = in_front(run, g->scale);
        run->own_scale = given ? weft_reshape(given, WEFT_SHAPE(run->rows, 1)) : NULL;
        if (!run->own_scale)
            return weft_last_status();
        if (straight)
            return WEFT_OK;
    }
    run->scale = g->scaling ? make_scale(run) : NULL;
    return run->scale || !g->scaling ? WEFT_OK : weft_last_status();
}

/* Are others' shards multiplied where they lie?  Where all are on one device, as far as is known:
 * the first operation of a group finds out. */
static bool is_straight(const gather_run *run, weft_device device)
{
    return run->turns && (run->g->last || !run->g->keep) &&
           weft_i_symm_scratch_near(run->group, WEFT_I_SHARDS, device);
}

/* All memory is there before the others are met. */
static weft_status prepare(gather_run *run)
{
    const weft_i_gathering *g = run->g;
    weft_device device = weft_i_tensor_device(g->shard);
    bool straight = is_straight(run, device);
    bool apart = !weft_i_device_is_host(device) && (g->last || !g->keep) && !straight;
    if (g->keep && !g->last)
        run->whole = as_matrix(run, run->call->outs[run->g->count]);
    else if (apart)
        run->whole = weft_i_tensor_new(g->shard->dtype, device,
                                       WEFT_SHAPE(g->ranks * run->rows, run->inner), NULL);
    if (!run->whole && (apart || (g->keep && !g->last)))
        return weft_last_status();
    WEFT_TRY(prepare_scale(run, straight));
    return g->last ? make_stacks(run) : WEFT_OK;
}

static weft_i_coll_kind kind_of(const weft_i_gathering *g)
{
    return g->scaling ? WEFT_I_ALL_GATHER_SCALED_MATMUL : WEFT_I_ALL_GATHER_MATMUL;
}

static weft_i_pipe_entry entry_of(const gather_run *run, int way)
{
    const weft_i_gathering *g = run->g;
    bool scales = g->scaling == WEFT_I_ROWS_SHARDED;
    size_t bytes = run->scale_at + (scales ? (size_t)run->rows * sizeof(float) : 0);
    return (weft_i_pipe_entry){.op = g->op,
                               .kind = kind_of(g),
                               .group = run->group,
                               .operand = g->shard,
                               .dim = g->dim,
                               .way = run->in_place ? WEFT_I_WAY_ZERO_COPY : way,
                               .scaling = g->scaling,
                               .memory = run->turns ? WEFT_I_SHARDS : WEFT_I_WORKSPACE,
                               .bytes = run->turns ? weft_i_pipe_twice(bytes) : bytes,
                               .place = {run->place[0], run->place[1]}};
}

/* ---- by multicast ---- */

/* The workspace as the gathered tensor: everybody's shard is stored to all of them. */
static weft_status pump_multicast(gather_run *run)
{
    const weft_i_gathering *g = run->g;
    weft_tensor *scratch = weft_i_symm_scratch_now(run->group, WEFT_I_WORKSPACE, run->pipe.device);
    int64_t bytes = g->ranks * (int64_t)weft_i_pipe_bytes(g->shard);
    weft_shape shape = weft_i_tensor_shape(g->shard);
    shape.dim[0] *= g->ranks;
    weft_tensor *all =
        weft_view(weft_view_dtype(weft_narrow(scratch, 0, 0, bytes), g->shard->dtype), shape);
    if (!all)
        return weft_last_status();
    run->pieces = weft_i_pipe_pieces(&run->pipe, run->rows);
    WEFT_TRY(weft_symm_multimem_all_gather_out(all, g->shard, run->group));
    for (int step = 0; step < g->ranks; step++) {
        int rank = (run->pipe.me + step) % g->ranks;
        WEFT_TRY(multiply_all(run, rank, block(as_matrix(run, all), rank, run->rows)));
    }
    return WEFT_OK;
}

/* ---- one after the other ---- */

/* Everybody's `from` in `all`, where the products may read it.  Where nothing has to be put in order
 * that is a plain collective, which makes no object that somebody could wait for. */
static weft_status gather_all(const gather_run *run, weft_tensor *all, weft_tensor *from)
{
    int at = run->g->last ? run->g->dim : 0;
    if (!all || !from)
        return weft_last_status();
    if (at == 0 && weft_i_tensor_is_contiguous(from))
        WEFT_TRY(weft_all_gather_into(all, from, run->group));
    else if (!weft_all_gather_into_tensor_out(all, from, at, run->group))
        return weft_last_status();
    return weft_i_storage_ready(all->storage, false);
}

/* The gathered tensor with the dimension in front, and the same of sharded scales. */
static weft_status gather_pair(gather_run *run)
{
    const weft_i_gathering *g = run->g;
    weft_tensor *shard = in_front(run, g->shard), *scale = g->scale;
    if (!shard)
        return weft_last_status();
    weft_shape shape = weft_i_tensor_shape(shard);
    shape.dim[g->last ? g->dim : 0] *= g->ranks;
    run->shard =
        g->keep ? in_front(run, run->call->outs[run->g->count])
                : weft_i_tensor_new(g->shard->dtype, weft_i_tensor_device(g->shard), shape, NULL);
    WEFT_TRY(gather_all(run, run->shard, shard));
    if (g->scaling > WEFT_I_TENSOR_WISE)
        scale = in_front(run, g->scale);
    if (g->scaling == WEFT_I_ROWS_SHARDED)
        scale = weft_wait_tensor(weft_all_gather_tensor(scale, 0, run->group));
    run->scale = scale;
    return !g->scaling || scale ? WEFT_OK : weft_last_status();
}

static weft_status multiply_pairs(gather_run *run)
{
    const weft_i_gathering *g = run->g;
    WEFT_TRY(gather_pair(run));
    weft_tensor *a = weft_i_pipe_flat(run->shard), *scale = run->scale;
    if (g->scaling > WEFT_I_TENSOR_WISE)
        scale = weft_i_pipe_flat(scale);
    for (int i = 0; i < g->count; i++) {
        weft_i_scales scales = scales_of(g, i);
        weft_tensor *out = as_matrix(run, run->call->outs[i]);
        WEFT_TRY(weft_i_pipe_multiply(out, a, g->b[i], scale, &scales));
    }
    return WEFT_OK;
}

static weft_status run_pair(gather_run *run)
{
    uint64_t number = weft_i_pipe_note(run->group, kind_of(run->g),
                                       weft_i_pipe_bytes(run->g->shard), WEFT_I_WAY_PAIR);
    weft_status status = multiply_pairs(run);
    weft_i_record_end(weft_i_group_record(run->group), number, status);
    return status;
}

/* ---- the choice ---- */

static weft_status run_pipeline(gather_run *run)
{
    WEFT_TRY(measure(run));
    WEFT_TRY(find_place(run));
    run->turns = !run->in_place && !weft_i_device_is_host(weft_i_tensor_device(run->g->shard));
    WEFT_TRY(prepare(run));
    weft_i_pipe_entry entry = entry_of(run, WEFT_I_WAY_PIPELINED);
    WEFT_TRY(weft_i_pipe_open(&run->pipe, &entry));
    return run->pipe.apart ? run_pair(run) : weft_i_pipe_close(&run->pipe, pump(run));
}

static weft_status run_multicast(gather_run *run)
{
    WEFT_TRY(measure(run));
    WEFT_TRY(prepare(run));
    weft_i_pipe_entry entry = entry_of(run, WEFT_I_WAY_MULTICAST);
    entry.bytes = (size_t)run->g->ranks * weft_i_pipe_bytes(run->g->shard);
    WEFT_TRY(weft_i_pipe_open(&run->pipe, &entry));
    return run->pipe.apart ? run_pair(run) : weft_i_pipe_close(&run->pipe, pump_multicast(run));
}

static bool suits_multicast(const weft_i_gathering *g)
{
    return !g->scaling && !g->last && g->dim == 0 && !g->keep &&
           weft_i_tensor_is_contiguous(g->shard);
}

/* The CPU emulates it; of a device the workspace tells, for all ranks alike. */
static bool has_multicast(const gather_run *run)
{
    weft_device device = weft_i_tensor_device(run->g->shard);
    if (weft_i_device_is_host(device))
        return true;
    size_t bytes = (size_t)run->g->ranks * weft_i_pipe_bytes(run->g->shard);
    weft_symm_info info = {0};
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_symm *mem = weft_keep(weft_symm_workspace(run->group, device, bytes));
    bool has = mem && weft_symm_describe(mem, &info) == WEFT_OK && info.multicast_ptr;
    weft_release(mem);
    weft_i_errors_restore(&before); /* there are other ways */
    return has;
}

static weft_status run_best(gather_run *run)
{
    weft_fused_way wish = weft_i_fused_wish();
    int64_t bytes = run->g->ranks * (int64_t)weft_i_pipe_bytes(run->g->shard);
    bool multicast = wish == WEFT_FUSED_MULTICAST && suits_multicast(run->g);
    bool pays = weft_i_fused_pays(true, weft_i_tensor_device(run->g->shard), bytes);
    if (!bytes || !(multicast || pays) ||
        !weft_i_pipe_can(run->group, weft_i_tensor_device(run->g->shard)))
        return run_pair(run);
    if (multicast && has_multicast(run))
        return run_multicast(run);
    return pays ? run_pipeline(run) : run_pair(run);
}

static weft_status run_gather(weft_i_op_call *call)
{
    weft_i_gathering g;
    WEFT_TRY(weft_i_gathering_read(call, &g));
    gather_run run = {.g = &g, .call = call, .group = weft_i_functional_group(call)};
    if (!run.group)
        return weft_last_status();
    WEFT_TRY(weft_scope_open());
    weft_status status = run_best(&run);
    weft_scope_close();
    WEFT_OS->free(run.stack);
    return status;
}

weft_status weft_i_all_gather_matmul_run(weft_i_op_call *call)
{
    return run_gather(call);
}

weft_status weft_i_all_gather_scaled_matmul_run(weft_i_op_call *call)
{
    return run_gather(call);
}

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    weft_i_kind_run(WEFT_I_ALL_GATHER_MATMUL, weft_i_coll_barrier);
    weft_i_kind_run(WEFT_I_ALL_GATHER_SCALED_MATMUL, weft_i_coll_barrier);
}

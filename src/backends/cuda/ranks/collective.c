/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of a team: which kernel, how many blocks, what it is told.  Everything that decides
 * how ranks meet (kernel, blocks, threads, digest) follows from what is equal on all ranks; only
 * addresses may differ.
 */
#include "team.h"

#include "base/os/assert.h"
#include "base/share/dtype.h"
#include "base/share/signal.h"
#include "kernels/fold/fold.h"
#include "staged.h"

/* The compiled sums, by dtype and ranks: any, 2, 4, 8. */
#define SUMS(way_, dtype_)                                                       \
    {                                                                            \
        WEFT_I_CUDA_##way_##_##dtype_##_0, WEFT_I_CUDA_##way_##_##dtype_##_2,    \
            WEFT_I_CUDA_##way_##_##dtype_##_4, WEFT_I_CUDA_##way_##_##dtype_##_8 \
    }
#define ROW(way_)                                              \
    {                                                          \
        WEFT_I_CUDA_##way_,                                    \
        {                                                      \
            SUMS(way_, f32), SUMS(way_, bf16), SUMS(way_, f16) \
        }                                                      \
    }
#define ALWAYS(name_)                                                                      \
    {                                                                                      \
        WEFT_I_CUDA_##name_, WEFT_I_CUDA_##name_, WEFT_I_CUDA_##name_, WEFT_I_CUDA_##name_ \
    }
enum { PACKETS, ONE_SHOT, TWO_SHOT, REDUCE_SCATTER, STAGED, STAGED_TWO };
static const struct {
    int any, sums[3][4];
} table[] = {
    [PACKETS] = ROW(packets),
    [ONE_SHOT] = ROW(one_shot),
    [TWO_SHOT] = ROW(two_shot),
    [REDUCE_SCATTER] = ROW(reduce_scatter),
    [STAGED] = {WEFT_I_CUDA_staged, {ALWAYS(staged_f32), ALWAYS(staged_bf16), ALWAYS(staged_f16)}},
    [STAGED_TWO] = {WEFT_I_CUDA_staged_two,
                    {ALWAYS(staged_two_f32), ALWAYS(staged_two_bf16), ALWAYS(staged_two_f16)}}};

/* For operands that are aligned. */
static weft_i_cuda_kernel kernel_for(int row, weft_dtype dtype, int op, int ranks)
{
    int column = dtype == WEFT_F32 ? 0 : dtype == WEFT_BF16 ? 1 : dtype == WEFT_F16 ? 2 : -1;
    bool sums = op == WEFT_I_FOLD_SUM || op == WEFT_I_FOLD_AVG;
    if (column < 0 || !sums || ranks < 2)
        return (weft_i_cuda_kernel)table[row].any;
    int of = ranks == 2 ? 1 : ranks == 4 ? 2 : ranks == 8 ? 3 : 0;
    return (weft_i_cuda_kernel)table[row].sums[column][of];
}

/*
 * Blocks that surely fit the device at once: block b waits for the blocks b of other ranks, so all
 * of all ranks must be resident; twice, because the next kernel of a stream comes early.
 */
static int blocks_for(const weft_i_cuda_team *team, int resident, uint64_t units, int threads,
                      int wanted)
{
    int most = resident / (2 * team->sharing);
    most = most < (int)team->group.lines ? most : (int)team->group.lines;
    uint64_t pay = (units + (uint64_t)threads - 1) / (uint64_t)threads;
    int blocks = wanted > 0 ? wanted : pay < 1 ? 1 : pay > 4096 ? 4096 : (int)pay;
    return blocks < most ? blocks : most < 1 ? 1 : most;
}

static bool is_aligned(const void *a, const void *b, uint64_t c)
{
    return (((uintptr_t)a | (uintptr_t)b | c) & 15) == 0;
}

/* Blocks that wait for other ranks' must all be resident: with too many ranks none are. */
static weft_status check_room(const weft_i_cuda_team *team)
{
    return team->group.size > 1 && team->resident[WEFT_I_CUDA_one_shot] < 2 * team->sharing
               ? weft_i_fail(WEFT_ERR_UNSUPPORTED, "%d ranks do not fit on cuda:%d at once",
                             team->sharing, team->device->ordinal)
               : WEFT_OK;
}

static weft_status check_sum(const weft_i_cuda_team *team, const weft_i_cuda_sum *sum)
{
    if (!weft_i_dtype_valid(sum->dtype) || sum->op < 0 || sum->op >= WEFT_I_FOLD_OPS ||
        !weft_i_fold_find(sum->dtype, (weft_i_fold_op)sum->op))
        return weft_i_fail(WEFT_ERR_TYPE, "reduction %d has no meaning for dtype %s", sum->op,
                           weft_dtype_name(sum->dtype));
    if (sum->count > PTRDIFF_MAX / 8)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%zu elements", sum->count);
    return check_room(team);
}

static uint64_t limit_of(int64_t limit_ms)
{
    return limit_ms < 0 ? 0 : (uint64_t)limit_ms * 1000000 + 1;
}

/* The first word of a signature. */
static uint64_t sealed(uint32_t digest, const weft_i_cuda_signature *signature)
{
    return WEFT_K_SIGNATURE_SEAL(signature->what, signature->count) << 32 | digest;
}

static uint32_t digest_of(uint32_t first, const weft_i_cuda_signature *signature, weft_dtype dtype,
                          int op, uint64_t count)
{
    uint32_t digest = weft_i_digest(first, (uint64_t)dtype << 32 | (uint32_t)op);
    digest = weft_i_digest(digest, count);
    digest = weft_i_digest(digest, signature->count);
    return weft_i_digest(digest, signature->what);
}

weft_k_call weft_i_cuda_call_of(const weft_i_cuda_team *team, const weft_i_request *request)
{
    weft_i_cuda_signature signature = weft_i_cuda_signature_of(request);
    uint32_t digest = weft_i_digest(digest_of(0x400, &signature, request->dtype, 0, request->count),
                                    request->digest);
    return (weft_k_call){
        .group = team->group,
        .limit_ns = limit_of(request->limit_ms),
        .digest = digest,
        .signature = {sealed(digest, &signature), signature.what, signature.count},
        .dtype = (int32_t)request->dtype,
        .op = (int)request->reduction,
        .factor = request->factor,
    };
}

int weft_i_cuda_blocks_for(const weft_i_cuda_team *team, weft_i_cuda_kernel kernel, uint64_t units,
                           int threads)
{
    return blocks_for(team, team->resident[kernel], units, threads, 0);
}

static inline void fill_call(const weft_i_cuda_team *team, const weft_i_cuda_sum *sum, int row,
                             weft_k_call *out)
{
    uint32_t digest =
        digest_of((uint32_t)row + 0x100, &sum->signature, sum->dtype, sum->op, sum->count);
    digest = weft_i_digest(weft_i_digest(digest, sum->rows), sum->place);
    *out = (weft_k_call){
        .group = team->group,
        .limit_ns = limit_of(sum->limit_ms),
        .digest = digest,
        .signature = {sealed(digest, &sum->signature), sum->signature.what, sum->signature.count},
        .parts = 1,
        .fills = 1,
        .dtype = (int32_t)sum->dtype,
        .op = sum->op,
        .factor = sum->factor,
        .count = sum->count,
        .in = sum->in,
        .out = sum->out,
        .from = sum->from.base,
        .from_step = sum->from.step,
        .to = sum->to.base,
        .to_step = sum->to.step,
    };
}

/* From so many units on packets go in blocks of 512 threads where there are such: below, 256 are
 * faster.  Measured on an H200 (docs/gpu.md). */
enum { WIDE_UNITS = 4096 };

/* How many blocks of how many threads, and the kernel for aligned operands. */
typedef struct grid {
    weft_i_cuda_kernel fast;
    int threads, blocks;
} grid;

/* Alignment may differ between ranks, the grid must not: it is one that suits the general kernel as
 * well. */
static inline grid plan(const weft_i_cuda_team *team, const weft_i_cuda_sum *sum, int row,
                        uint64_t units)
{
    weft_i_cuda_kernel fast = kernel_for(row, sum->dtype, sum->op, team->group.size);
    int most = row == PACKETS && units < WIDE_UNITS ? WEFT_K_THREADS_HALF : WEFT_K_THREADS;
    int threads = team->device->kernel_threads[fast];
    if (threads > most)
        threads = most;
    if (sum->threads > 0 && sum->threads < threads)
        threads = sum->threads;
    int resident = team->resident[fast], other = team->resident[table[row].any];
    return (grid){
        fast, threads,
        blocks_for(team, resident < other ? resident : other, units, threads, sum->blocks)};
}

/* How a part is dealt out to the places of `blocks` blocks; see kernels/staged.h. */
static void lay_out_stage(const weft_i_cuda_team *team, int blocks, weft_k_call *call)
{
    uint64_t bytes = call->count * weft_i_dtype_size((weft_dtype)call->dtype);
    call->place = team->group.stage_bytes / team->group.lines / 16 * 16;
    call->room = call->place / (uint64_t)call->parts / 16 * 16;
    call->each = ((bytes + (uint64_t)blocks - 1) / (uint64_t)blocks + 15) / 16 * 16;
    call->each = call->each < call->room ? call->each : call->room;
}

/*
 * On an urgent stream, which is to run beside others, packets go in blocks of one warp: wide ones
 * wait until a matrix product has left a whole multiprocessor.  The grid and the places of units are
 * the same, so ranks need not agree on it.  Narrow waits count the time in 32 bits.
 */
static bool is_narrow(const weft_i_cuda_team *team, const weft_i_cuda_stream *stream,
                      const weft_i_cuda_sum *sum)
{
    enum { HOUR_MS = 3600 * 1000 };
    bool types = sum->dtype == WEFT_F32 || sum->dtype == WEFT_BF16 || sum->dtype == WEFT_F16;
    return team->narrow && weft_i_cuda_stream_is_urgent(stream) && types &&
           sum->op == WEFT_I_FOLD_SUM && team->group.size > 1 && sum->limit_ms <= HOUR_MS;
}

/* By pairs of units where operands consist of them, and by lots of pairs where these are all whole;
 * see kernels/narrow.h. */
static weft_i_cuda_kernel narrow_kernel(const weft_i_cuda_team *team, const weft_i_cuda_sum *sum,
                                        int width)
{
    enum { PAIR = 16, LOT = 2 * PAIR };
#define NARROW(dtype_)                                                    \
    {                                                                     \
        WEFT_I_CUDA_narrow_##dtype_, WEFT_I_CUDA_pairs_##dtype_##_0,      \
            WEFT_I_CUDA_pairs_##dtype_##_2, WEFT_I_CUDA_lots_##dtype_##_2 \
    }
    static const int kernels[3][4] = {NARROW(f32), NARROW(bf16), NARROW(f16)};
#undef NARROW
    int row = sum->dtype == WEFT_F32 ? 0 : sum->dtype == WEFT_BF16 ? 1 : 2;
    size_t bytes = sum->count * weft_i_dtype_size(sum->dtype);
    size_t lot = LOT * (size_t)team->device->kernel_threads[WEFT_I_CUDA_lots_f32_2];
    int way = 0;
    if (width % 2 == 0 && is_aligned(sum->in, sum->out, bytes))
        way = team->group.size > 2 ? 1 : bytes % lot || (size_t)width * 8 % lot ? 2 : 3;
    return (weft_i_cuda_kernel)kernels[row][way];
}

static weft_status launch_sum(const weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                              const weft_i_cuda_sum *sum, int row, weft_k_call *call, bool aligned,
                              uint64_t units)
{
    grid g = plan(team, sum, row, units);
    if (row == STAGED || row == STAGED_TWO)
        lay_out_stage(team, g.blocks, call);
    return weft_i_cuda_launch(stream, aligned ? g.fast : (weft_i_cuda_kernel)table[row].any,
                              g.blocks, g.threads, call, !sum->late);
}

/* False: the packets of a block do not fit its part of the pad.  Mostly one round is enough. */
static bool plan_packets(const weft_i_cuda_team *team, const weft_i_cuda_sum *sum, size_t bytes,
                         grid *out)
{
    uint64_t units = (bytes + 7) / 8;
    *out = plan(team, sum, PACKETS, units);
    uint64_t round = (uint64_t)out->blocks * (uint64_t)out->threads;
    uint64_t rounds = units <= round ? 1 : (units + round - 1) / round;
    return rounds * (uint64_t)out->threads <= team->group.packet_units;
}

/* Narrow packets have blocks of their own kernel, which do the work of the threads of the grid. */
static void make_narrow(const weft_i_cuda_team *team, const weft_i_cuda_sum *sum, weft_k_call *call,
                        grid *g)
{
    WEFT_ASSERT(g->threads <= (team->group.size == 2 ? WEFT_K_THREADS : WEFT_K_THREADS_HALF));
    call->width = (uint32_t)g->threads; /* a row of which fits the block's shared memory */
    g->fast = narrow_kernel(team, sum, g->threads);
    g->threads = team->device->kernel_threads[g->fast];
}

static weft_status launch_packets(const weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                  const weft_i_cuda_sum *sum, grid g)
{
    weft_k_call call;
    WEFT_TRY(check_room(team));
    if (!sum->in || !sum->out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "packets need an operand and a place for the result");
    fill_call(team, sum, PACKETS, &call);
    if (is_narrow(team, stream, sum))
        make_narrow(team, sum, &call, &g);
    return weft_i_cuda_launch(stream, g.fast, g.blocks, g.threads, &call, !sum->late);
}

static bool fit_packets(const weft_i_cuda_team *team, const weft_i_cuda_sum *sum, grid *out)
{
    return sum->op != WEFT_I_FOLD_PREMUL_SUM &&
           plan_packets(team, sum, sum->count * weft_i_dtype_size(sum->dtype), out);
}

weft_status weft_i_cuda_packets(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                const weft_i_cuda_sum *sum, bool *fit)
{
    grid g;
    weft_i_cuda_front *front;
    *fit = fit_packets(team, sum, &g);
    if (!*fit)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_team_meet(team, stream, &front));
    return weft_i_cuda_team_leave(front, stream, launch_packets(team, stream, sum, g));
}

static weft_status reduce_by_packets(const weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                     const weft_i_cuda_sum *sum, size_t bytes)
{
    grid g;
    if (sum->op == WEFT_I_FOLD_PREMUL_SUM)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "packets carry no factors");
    return fit_packets(team, sum, &g)
               ? launch_packets(team, stream, sum, g)
               : weft_i_fail(WEFT_ERR_LIMIT, "%zu bytes are too many for packets", bytes);
}

static weft_status all_reduce(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                              const weft_i_cuda_sum *sum)
{
    WEFT_TRY(check_sum(team, sum));
    size_t bytes = sum->count * weft_i_dtype_size(sum->dtype);
    weft_i_cuda_way way = sum->way;
    weft_k_call call;
    /* Without data there are no packets to wait for, and a rank that runs ahead would write over
     * those of the call before; so such a call meets. */
    if (way == WEFT_I_CUDA_PACKETS && bytes == 0)
        way = WEFT_I_CUDA_ONE_SHOT;
    if (way == WEFT_I_CUDA_PACKETS)
        return reduce_by_packets(team, stream, sum, bytes);
    if (way == WEFT_I_CUDA_ONE_SHOT) {
        int row = sum->from.base ? ONE_SHOT : STAGED;
        fill_call(team, sum, row, &call);
        if (bytes && (!sum->out || (row == STAGED && !sum->in)))
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "one-shot needs an operand and a place for the result");
        return launch_sum(team, stream, sum, row, &call,
                          is_aligned(sum->from.base, sum->out, sum->from.step), (bytes + 15) / 16);
    }
    if (!sum->from.base || !sum->to.base)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "two-shot needs symmetric operands");
    fill_call(team, sum, TWO_SHOT, &call);
    bool aligned = is_aligned(sum->from.base, sum->to.base, sum->from.step | sum->to.step);
    return launch_sum(team, stream, sum, TWO_SHOT, &call, aligned,
                      (bytes + 15) / 16 / (uint64_t)team->group.size + 1);
}

weft_status weft_i_cuda_all_reduce(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                   const weft_i_cuda_sum *sum)
{
    weft_i_cuda_front *front;
    WEFT_TRY(weft_i_cuda_team_meet(team, stream, &front));
    return weft_i_cuda_team_leave(front, stream, all_reduce(team, stream, sum));
}

static weft_status reduce_scatter(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                  const weft_i_cuda_sum *sum)
{
    WEFT_TRY(check_sum(team, sum));
    size_t bytes = sum->count * weft_i_dtype_size(sum->dtype), rows = sum->rows ? sum->rows : 1;
    if (!sum->from.base || (bytes && !sum->out) || bytes % rows)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "reduce_scatter needs a symmetric operand, a place "
                           "for the result and rows of one length");
    weft_k_call call;
    fill_call(team, sum, REDUCE_SCATTER, &call);
    call.rows = rows;
    call.pitch = sum->pitch;
    call.from = sum->from.base + (size_t)team->group.rank * (bytes / rows);
    bool aligned = is_aligned(call.from, sum->out, sum->from.step) &&
                   (rows == 1 || ((bytes / rows | sum->pitch) & 15) == 0);
    return launch_sum(team, stream, sum, REDUCE_SCATTER, &call, aligned, (bytes + 15) / 16);
}

weft_status weft_i_cuda_reduce_scatter(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                       const weft_i_cuda_sum *sum)
{
    weft_i_cuda_front *front;
    WEFT_TRY(weft_i_cuda_team_meet(team, stream, &front));
    return weft_i_cuda_team_leave(front, stream, reduce_scatter(team, stream, sum));
}

/*
 * Blocks that wait keep their processors, and with them the work of other ranks on the same device,
 * which may be what they wait for: a matrix product took twice as long.  So before a long passage
 * one block waits for all ranks, and the others start when it has ended.
 */
static bool meets_first(const weft_i_cuda_team *team, const weft_i_cuda_passage *p)
{
    return p->count * weft_i_dtype_size(p->dtype) * (size_t)p->parts >= team->meets_first_from;
}

/* A passage of nothing, with the signature of the call: ranks that call something else are found
 * here. */
static weft_status meet_first(const weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                              const weft_k_call *call)
{
    weft_k_call empty = *call;
    empty.count = 0;
    empty.op = WEFT_I_FOLD_SUM;
    empty.fills = empty.peers = 0;
    lay_out_stage(team, 1, &empty);
    return weft_i_cuda_launch(stream, WEFT_I_CUDA_staged_move, 1,
                              team->device->kernel_threads[WEFT_I_CUDA_staged_move], &empty, true);
}

/* The grid does not depend on alignment, which may differ between ranks. */
static weft_status launch_passage(const weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                  const weft_i_cuda_passage *p, weft_k_call *call)
{
    uint64_t units = (p->count * weft_i_dtype_size(p->dtype) + 15) / 16;
    bool late = meets_first(team, p);
    if (late)
        WEFT_TRY(meet_first(team, stream, call));
    if (p->op < 0) {
        int threads = team->device->kernel_threads[WEFT_I_CUDA_staged_move];
        int blocks =
            blocks_for(team, team->resident[WEFT_I_CUDA_staged_move], units, threads, p->blocks);
        lay_out_stage(team, blocks, call);
        return weft_i_cuda_launch(stream, WEFT_I_CUDA_staged_move, blocks, threads, call, !late);
    }
    weft_i_cuda_sum sum = {.dtype = p->dtype, .op = p->op, .blocks = p->blocks, .late = late};
    return launch_sum(team, stream, &sum, p->two_shot ? STAGED_TWO : STAGED, call,
                      is_aligned(p->out, NULL, 0), units);
}

static weft_status pass(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                        const weft_i_cuda_passage *p)
{
    if (p->op >= 0)
        WEFT_TRY(
            check_sum(team, &(weft_i_cuda_sum){.dtype = p->dtype, .op = p->op, .count = p->count}));
    uint32_t digest =
        digest_of(0x300 + (uint32_t)p->two_shot, &p->signature, p->dtype, p->op, p->count);
    weft_k_call call = {
        .group = team->group,
        .limit_ns = limit_of(p->limit_ms),
        .digest = digest,
        .signature = {sealed(digest, &p->signature), p->signature.what, p->signature.count},
        .dtype = (int32_t)p->dtype,
        .op = p->op < 0 ? WEFT_I_FOLD_SUM : p->op,
        .factor = p->factor,
        .count = p->count,
        .in = p->in,
        .in_step = p->in_step,
        .out = p->out,
        .to_step = p->out_step,
        .parts = p->parts,
        .fills = p->fills,
        .takes = p->takes,
        .first = p->first,
        .peers = p->peers,
    };
    return launch_passage(team, stream, p, &call);
}

weft_status weft_i_cuda_pass(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                             const weft_i_cuda_passage *p)
{
    weft_i_cuda_front *front;
    WEFT_TRY(weft_i_cuda_team_meet(team, stream, &front));
    return weft_i_cuda_team_leave(front, stream, pass(team, stream, p));
}

/* The parts of `peers` peers from `first` on; see weft_k_run_move. */
static weft_status launch_move(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                               const weft_i_cuda_move *move, uint32_t kind, weft_k_call *call)
{
    call->group = team->group;
    call->limit_ns = limit_of(move->limit_ms);
    uint32_t digest = digest_of(kind + 0x200, &move->signature, WEFT_U8, 0, move->bytes);
    call->digest = weft_i_digest(weft_i_digest(digest, (uint64_t)move->root), move->place);
    call->signature[0] = sealed(call->digest, &move->signature);
    call->signature[1] = move->signature.what;
    call->signature[2] = move->signature.count;
    call->count = move->bytes;
    int threads = team->device->kernel_threads[WEFT_I_CUDA_move];
    int blocks = blocks_for(team, team->resident[WEFT_I_CUDA_move], (move->bytes + 15) / 16,
                            threads, move->blocks);
    weft_i_cuda_front *front;
    WEFT_TRY(weft_i_cuda_team_meet(team, stream, &front));
    return weft_i_cuda_team_leave(
        front, stream, weft_i_cuda_launch(stream, WEFT_I_CUDA_move, blocks, threads, call, true));
}

static weft_status check_move(weft_i_cuda_team *team, const weft_i_cuda_move *move)
{
    WEFT_TRY(weft_i_cuda_team_check(team));
    bool push = move->in && move->to.base, pull = move->from.base && move->out;
    if (move->bytes && !push && !pull)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "one side of a move must be symmetric memory");
    if (move->root < 0 || move->root >= team->group.size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "root %d; there are ranks 0 to %d", move->root,
                           team->group.size - 1);
    return WEFT_OK;
}

weft_status weft_i_cuda_all_gather(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                   const weft_i_cuda_move *move)
{
    WEFT_TRY(check_move(team, move));
    int rank = team->group.rank;
    weft_k_call call = {.first = rank, .peers = team->group.size};
    if (move->from.base) { /* pull */
        call.from = move->from.base;
        call.from_step = move->from.step;
        call.to = move->out;
        call.to_step = move->bytes;
    } else {
        call.from = move->in;
        call.to = move->to.base + (size_t)rank * move->bytes;
        call.to_step = move->to.step;
    }
    return launch_move(team, stream, move, 0, &call);
}

weft_status weft_i_cuda_all_to_all(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                   const weft_i_cuda_move *move)
{
    WEFT_TRY(check_move(team, move));
    size_t own = (size_t)team->group.rank * move->bytes;
    weft_k_call call = {.first = team->group.rank, .peers = team->group.size};
    if (move->from.base) { /* pull */
        call.from = move->from.base + own;
        call.from_step = move->from.step;
        call.to = move->out;
        call.to_step = move->bytes;
    } else {
        call.from = move->in;
        call.from_step = move->bytes;
        call.to = move->to.base + own;
        call.to_step = move->to.step;
    }
    return launch_move(team, stream, move, 1, &call);
}

weft_status weft_i_cuda_broadcast(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                  const weft_i_cuda_move *move)
{
    WEFT_TRY(check_move(team, move));
    bool is_root = team->group.rank == move->root;
    weft_k_call call = {.first = move->root, .peers = 1};
    if (move->from.base) { /* pull */
        call.from = move->from.base;
        call.from_step = move->from.step;
        call.to = move->out;
        call.peers =
            !(is_root && move->out == move->from.base + (size_t)move->root * move->from.step);
    } else {
        call.from = move->in;
        call.to = move->to.base;
        call.to_step = move->to.step;
        call.peers = is_root ? team->group.size : 0;
    }
    return launch_move(team, stream, move, 2, &call);
}

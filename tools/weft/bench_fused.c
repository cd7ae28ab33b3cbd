/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft bench fused`: all_gather in front of a product and reduce_scatter behind one, beside the
 * product alone, which is the floor, and beside the two calls one after the other.
 *
 *     product    the whole product alone, on all ranks at the same time: they share what they share
 *     fused      the fused operation as it chooses its way
 *     in place   the same with a shard in symmetric memory, which is not copied first
 *     pipelined  the pipeline, also where it does not choose it
 *     pair       the collective and the product by calls of their own
 *
 * All take turns from a common start, so that whatever slows the machine slows them all.  Of a turn
 * the slowest rank counts, and it is compared with the product and the pair of the same turn: the
 * clock of a GPU drifts by more from second to second than the ways differ.  Medians are printed.  On
 * a GPU a turn is up to 8 calls (--iters) and one wait for the stream; there are 41 turns, on the CPU
 * 11, or fewer (--repeats).
 */
#include "bench.h"
#include "bench_options.h"

#include <weft/weft.h>

#include <stdio.h>
#include <string.h>

enum { TURNS = 11, TURNS_THERE = 41, TURNS_MOST = 41, CALLS = 8, PATIENCE_MS = 60000, CORNER = 16 };
typedef enum what { PRODUCT, FUSED, IN_PLACE, PIPELINED, PAIR, WHATS } what;
typedef enum side { GATHER, SCATTER, SIDES } side;
enum { ROWS = SIDES * WHATS };

/* What is multiplied: floats as they are, or floats of 8 bits with one scale or one for each row. */
typedef struct form {
    weft_dtype dtype;
    bool by_rows;
    const char *name;
} form;

static const form forms[] = {{WEFT_F32, false, "f32"},
                             {WEFT_BF16, false, "bf16"},
                             {WEFT_F8E4M3, false, "f8e4m3"},
                             {WEFT_F8E4M3, true, "f8e4m3, scales of rows"}};
enum { FORMS = sizeof forms / sizeof *forms };

/* One run of all ranks.  `sample` of the board: by side, what and turn. */
typedef struct fused {
    bench_board *board;
    const form *form;
    bench_shape shape;
    weft_device device;
    int ranks, turns, calls; /* calls of a turn */
    bool threads;
} fused;

typedef struct rank_state {
    const fused *bench;
    weft_group *world;
    weft_tensor *shard, *shared, *whole, *b; /* shared: the shard, in symmetric memory */
    weft_tensor *shard_scale, *whole_scale;  /* NULL: unscaled */
    weft_scaled right;
} rank_state;

/* ---- what is timed ---- */

static weft_tensor *product(const rank_state *r, weft_tensor *a, weft_tensor *scale)
{
    return scale ? weft_scaled_mm(a, r->b, scale, r->right.scale, NULL, NULL, WEFT_BF16)
                 : weft_mm(a, r->b);
}

static weft_tensor *gather_pair(const rank_state *r)
{
    weft_tensor *all = weft_all_gather_tensor(r->shard, 0, r->world), *scale = r->shard_scale;
    if (r->bench->form->by_rows)
        scale = weft_all_gather_tensor(scale, 0, r->world);
    return all && (scale || !r->shard_scale) ? product(r, all, scale) : NULL;
}

static weft_tensor *gather(const rank_state *r, what which)
{
    weft_tensor *out = NULL, *shard = which == IN_PLACE ? r->shared : r->shard;
    if (which == PRODUCT)
        return product(r, r->whole, r->whole_scale);
    if (which == PAIR)
        return gather_pair(r);
    weft_status status = r->shard_scale
                             ? weft_all_gather_scaled_matmul(NULL, &out, shard, r->shard_scale,
                                                             &r->right, 1, 0, r->world)
                             : weft_all_gather_matmul(NULL, &out, shard, &r->b, 1, 0, r->world);
    return status < 0 ? NULL : out;
}

static weft_tensor *scatter(const rank_state *r, what which)
{
    if (which == PRODUCT)
        return product(r, r->whole, r->whole_scale);
    if (which == PAIR) {
        weft_tensor *all = product(r, r->whole, r->whole_scale);
        return all ? weft_wait_tensor(weft_reduce_scatter_tensor(all, WEFT_SUM, 0, r->world))
                   : NULL;
    }
    if (!r->whole_scale)
        return weft_matmul_reduce_scatter(r->whole, r->b, WEFT_SUM, 0, r->world);
    return weft_scaled_matmul_reduce_scatter(r->whole, r->whole_scale, &r->right, WEFT_SUM, 0,
                                             r->world);
}

static weft_tensor *call_once(const rank_state *r, side end, what which)
{
    weft_fused_use(which == PIPELINED ? WEFT_FUSED_PIPELINE : WEFT_FUSED_CHOOSE);
    weft_tensor *out = end == GATHER ? gather(r, which) : scatter(r, which);
    weft_fused_use(WEFT_FUSED_CHOOSE);
    return out;
}

static weft_status settle(const rank_state *r)
{
    return weft_stream_sync(weft_stream_current(r->bench->device), PATIENCE_MS);
}

/* ---- a rank ---- */

/* Milliseconds of a call, or -1. */
static double time_turn(const rank_state *r, side end, what which)
{
    int calls = r->bench->calls;
    if (settle(r) < 0 || weft_group_barrier(r->world, WEFT_DEFAULT) < 0)
        return -1;
    int64_t start = bench_ns();
    for (int i = 0; i < calls; i++) {
        if (weft_scope_open() < 0)
            return -1;
        weft_tensor *out = call_once(r, end, which);
        weft_scope_close();
        if (!out)
            return -1;
    }
    if (settle(r) < 0)
        return -1;
    return (double)(bench_ns() - start) * 1e-6 / calls;
}

/* The first and the last rows, on the host. */
static weft_tensor *corner(weft_tensor *x, bool last)
{
    int64_t all = weft_tensor_size(x, 0), rows = all < CORNER ? all : CORNER;
    weft_tensor *part = weft_narrow(x, 0, last ? all - rows : 0, rows);
    return part ? weft_to(weft_contiguous(part), WEFT_F32, WEFT_CPU) : NULL;
}

/* What is fast and wrong is worth nothing. */
static bool is_right(const rank_state *r, side end, what which)
{
    weft_tensor *expected = call_once(r, end, PAIR), *out = call_once(r, end, which);
    bool right = expected && out;
    for (int last = 0; last < 2 && right; last++) {
        weft_tensor *x = corner(out, last), *y = corner(expected, last);
        right = x && y && weft_allclose(x, y, 2e-2, 1e-2, false);
    }
    if (!right && weft_last_status() >= 0)
        fprintf(stderr, "weft bench fused: rank %d: wrong results\n", weft_rank(r->world));
    return right;
}

static weft_tensor *random_matrix(const fused *bench, int64_t rows, int64_t columns)
{
    weft_tensor *x = weft_rand(WEFT_F32, bench->device, WEFT_SHAPE(rows, columns));
    return x ? weft_to_dtype(x, bench->form->dtype) : NULL;
}

static weft_tensor *scale_of(const fused *bench, int64_t rows, int64_t columns)
{
    weft_shape each = WEFT_SHAPE(rows, columns), one = WEFT_SCALAR;
    return weft_full(WEFT_F32, bench->device, bench->form->by_rows ? each : one, 0.5);
}

static bool make_scales(rank_state *r)
{
    const fused *bench = r->bench;
    r->shard_scale = scale_of(bench, bench->shape.m / bench->ranks, 1);
    r->whole_scale = scale_of(bench, bench->shape.m, 1);
    r->right =
        (weft_scaled){.b = r->b, .scale = scale_of(bench, 1, bench->shape.n), .dtype = WEFT_BF16};
    return r->shard_scale && r->whole_scale && r->right.scale;
}

static bool make_operands(rank_state *r)
{
    const fused *bench = r->bench;
    const bench_shape *s = &bench->shape;
    bool scaled = bench->form->dtype == WEFT_F8E4M3;
    weft_symm_allow_overlap(true); /* where there are fewer GPUs than ranks */
    r->shard = random_matrix(bench, s->m / bench->ranks, s->k);
    r->whole = random_matrix(bench, s->m, s->k);
    /* The layout that products of 8 bits want: the inner dimension last in memory. */
    r->b = scaled ? random_matrix(bench, s->n, s->k) : random_matrix(bench, s->k, s->n);
    if (scaled && r->b)
        r->b = weft_transpose(r->b, 0, 1);
    if (!r->shard || !r->whole || !r->b)
        return false;
    r->shared = weft_symm_empty(bench->form->dtype, bench->device, weft_tensor_shape(r->shard));
    if (!r->shared || !weft_symm_rendezvous(r->shared, r->world) ||
        weft_copy(r->shared, r->shard) < 0)
        return false;
    return !scaled || make_scales(r);
}

/* A scatter has no shard that could lie anywhere. */
static bool is_timed(side end, what which)
{
    return end == GATHER || which != IN_PLACE;
}

/* Row i of the table, once; the turn before the first is only checked. */
static bool take_turn(rank_state *r, int turn, int i)
{
    side end = (side)(i / WHATS);
    what which = (what)(i % WHATS);
    if (!is_timed(end, which))
        return true;
    if (turn < 0 && which != PRODUCT && which != PAIR && !is_right(r, end, which))
        return false;
    double ms = time_turn(r, end, which);
    if (turn >= 0)
        r->bench->board->sample[weft_rank(r->world)][i * TURNS_MOST + turn] = ms;
    return ms >= 0;
}

/* The order of a turn, the same on all ranks.  A GPU that has just worked hard is slower, so each way
 * comes after others in other turns. */
static void shuffle(int turn, int *order, int count)
{
    uint64_t state = (uint64_t)turn * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0 && turn >= 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int j = (int)((state >> 33) % (uint64_t)(i + 1)), at_i = order[i];
        order[i] = order[j];
        order[j] = at_i;
    }
}

static bool take_turns(rank_state *r)
{
    int order[ROWS];
    for (int turn = -1; turn < r->bench->turns; turn++) { /* the first makes what later ones find */
        shuffle(turn, order, ROWS);
        for (int place = 0; place < ROWS; place++)
            if (!take_turn(r, turn, order[place]))
                return false;
    }
    return true;
}

static int be_rank(const fused *bench)
{
    rank_state r = {.bench = bench, .world = weft_init(NULL)};
    bool done = r.world && make_operands(&r) && take_turns(&r);
    if (!done) {
        fprintf(stderr, "weft bench fused: %s\n", weft_last_error());
        /* Relaxed: the parent reads it when the rank has ended. */
        atomic_store_explicit(&bench->board->failed, 1, memory_order_relaxed);
    }
    int finished = weft_finish(r.world);
    return done ? finished : 1;
}

static int process_body(int rank, void *arg)
{
    (void)rank;
    return be_rank(arg);
}

static int thread_body(void *arg)
{
    return be_rank(arg);
}

/* ---- what is printed ---- */

/* Of one turn, the slowest rank. */
static double slowest(const fused *bench, int row, int turn)
{
    double worst = 0;
    for (int rank = 0; rank < bench->ranks; rank++) {
        double ms = bench->board->sample[rank][row * TURNS_MOST + turn];
        worst = ms > worst ? ms : worst;
    }
    return worst;
}

/* The median of a row, over that of `other` of the same turn if that is a row. */
static double median(const fused *bench, int other, int row)
{
    double all[TURNS_MOST];
    for (int turn = 0; turn < bench->turns; turn++)
        all[turn] = other < 0 ? slowest(bench, row, turn)
                              : slowest(bench, other, turn) / slowest(bench, row, turn);
    return bench_quantile(all, bench->turns, 0.5);
}

static void print_row(bench_style *style, fused *bench, side end, what which)
{
    static const char *const names[] = {"product", "fused", "in place", "pipelined", "pair"};
    static const char *const sides[] = {"gather", "scatter"};
    char name[96];
    int row = end * WHATS + which;
    double ms = median(bench, -1, row), floor = median(bench, -1, end * WHATS + PRODUCT);
    if (style->is_json) {
        snprintf(name, sizeof name, "%s %lldx%lldx%lld %s, %s", sides[end],
                 (long long)bench->shape.m, (long long)bench->shape.n, (long long)bench->shape.k,
                 bench->form->name, names[which]);
        bench_row(style, name, bench->ranks, "ms", ms, which == PRODUCT ? 0 : floor);
        return;
    }
    printf("  %-8s %-10s %12.4f ms %8.1f %%", sides[end], names[which], ms,
           100 * median(bench, end * WHATS + PRODUCT, row));
    printf(which == PRODUCT ? "\n" : " %8.1f %%\n", 100 * median(bench, end * WHATS + PAIR, row));
    fflush(stdout);
}

static void print_rows(bench_style *style, fused *bench)
{
    if (!style->is_json) {
        char device[16];
        printf("%lld x %lld x %lld %s, %d ranks as %s, %s\n", (long long)bench->shape.m,
               (long long)bench->shape.n, (long long)bench->shape.k, bench->form->name,
               bench->ranks, bench->threads ? "threads" : "processes",
               weft_device_name(bench->device, device));
        printf("  %-8s %-10s %15s %10s %10s\n", "", "", "a call", "of product", "of pair");
    }
    for (int i = 0; i < ROWS; i++)
        if (is_timed((side)(i / WHATS), (what)(i % WHATS)))
            print_row(style, bench, (side)(i / WHATS), (what)(i % WHATS));
}

static int measure(bench_style *style, fused *bench)
{
    if (bench->shape.m % bench->ranks) {
        fprintf(stderr, "weft bench fused: %d ranks do not divide %lld rows\n", bench->ranks,
                (long long)bench->shape.m);
        return 1;
    }
    bench->board = bench_board_new();
    if (!bench->board)
        return 1;
    fflush(stdout);
    int failed = bench->threads ? weft_spawn(bench->ranks, thread_body, bench)
                                : bench_ranks(bench->ranks, process_body, bench);
    /* Pairs with the relaxed store of a rank, which has ended since. */
    failed |= atomic_load_explicit(&bench->board->failed, memory_order_relaxed);
    if (!failed)
        print_rows(style, bench);
    bench_board_free(bench->board);
    return failed;
}

/* ---- what is asked for ---- */

/* Without a word about dtypes: those that count there. */
static bool is_wanted(const bench_options *options, weft_dtype dtype)
{
    if (options->typed)
        return dtype == (weft_dtype)options->dtype;
    return options->device ? dtype != WEFT_F32 : weft_dtype_size(dtype) > 1;
}

static int measure_shape(bench_style *style, const bench_options *options, bench_shape shape)
{
    int failed = 0, most = options->device ? 2 : 4;
    int turns = bench_turns(style, options->device ? TURNS_THERE : TURNS);
    int calls = !options->device ? 1 : options->iters < CALLS ? options->iters : CALLS;
    for (int ranks = options->ranks ? options->ranks : 2; ranks <= most || ranks == options->ranks;
         ranks = options->ranks ? most + ranks : 2 * ranks)
        for (int i = 0; i < FORMS; i++)
            if (is_wanted(options, forms[i].dtype)) {
                fused bench = {.form = &forms[i],
                               .shape = shape,
                               .device = options->device ? WEFT_CUDA(0) : WEFT_CPU,
                               .ranks = ranks,
                               .turns = turns,
                               .calls = calls,
                               .threads = !strcmp(options->backend, "threads")};
                failed |= measure(style, &bench);
            }
    return failed;
}

int bench_fused(bench_style *style)
{
    static const bench_shape usual = {1024, 512, 1024}, large = {4096, 8192, 8192};
    const bench_options *options = style->options;
    int failed = 0;
    for (int i = 0; i < options->shapes; i++)
        failed |= measure_shape(style, options, options->shape[i]);
    if (!options->shapes)
        failed = measure_shape(style, options, options->device ? large : usual);
    if (failed)
        fprintf(stderr, "weft bench fused: a rank failed\n");
    return failed;
}

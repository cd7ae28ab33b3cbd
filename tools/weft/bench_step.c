/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of `weft bench compile` that train: a step of the GPT of bench_gpt.h, compiled and
 * plainly, beside its bare matrix products, and beside these with the bytes of its optimizer; a tensor-parallel network of two layers, forward and
 * backward, and a step of the tensor-parallel GPT of bench_shard.h, on one rank and on two.
 */
#include "bench_step.h"

#include "bench_gpt.h"
#include "bench_shard.h"

#include <math.h>
#include <stdio.h>

enum { TURNS = 15, WIDTH = 512, HIDDEN = 4 * WIDTH, ROWS = 256 };
enum { PLAIN, COMPILED, WAYS };
static const double UNDISTURBED = 0.1; /* the lowest tenth of the turns counts */

/* -- the GPT -- */

/* What takes turns: whatever slows the machine slows all of it. */
typedef struct gpt_turns {
    bench_gpt ways[WAYS];
    bench_product products[BENCH_GPT_PRODUCTS];
    bench_moved moved;
    double ms[WAYS + 2][TURNS]; /* of both ways, the products, the bytes */
} gpt_turns;

static int take_one(gpt_turns *t, int what)
{
    return what < WAYS    ? bench_gpt_step(&t->ways[what])
           : what == WAYS ? bench_gpt_multiply(t->products)
                          : bench_gpt_move(&t->moved);
}

static int take_turns(gpt_turns *t, int turns)
{
    for (int turn = -1; turn < turns; turn++) /* the first compiles */
        for (int what = 0; what < WAYS + 2; what++) {
            int64_t start = bench_own_ns();
            if (take_one(t, what) < 0)
                return -1;
            if (turn >= 0)
                t->ms[what][turn] = (double)(bench_own_ns() - start) * 1e-6;
        }
    return 0;
}

int bench_step_gpt(bench_style *style)
{
    gpt_turns t;
    int turns = bench_turns(style, TURNS);
    weft_seed(1);
    if (bench_gpt_make(&t.ways[PLAIN]) < 0 || bench_gpt_make(&t.ways[COMPILED]) < 0 ||
        bench_gpt_compile(&t.ways[COMPILED]) < 0 || bench_gpt_make_products(t.products) < 0 ||
        bench_gpt_make_moved(&t.ways[PLAIN], &t.moved) < 0 || take_turns(&t, turns) < 0)
        return 1;
    double fast = bench_quantile(t.ms[COMPILED], turns, UNDISTURBED);
    double plain = bench_quantile(t.ms[PLAIN], turns, UNDISTURBED);
    double floor = bench_quantile(t.ms[WAYS], turns, UNDISTURBED);
    double bytes = bench_quantile(t.ms[WAYS + 1], turns, UNDISTURBED);
    bench_row(style, "GPT step beside its products, c", 1, "ms", fast, floor);
    bench_row(style, "  eager", 1, "ms", plain, floor);
    bench_row(style, "GPT step, products and bytes, c", 1, "ms", fast, floor + bytes);
    bench_row(style, "  eager", 1, "ms", plain, floor + bytes);
    return 0;
}

/* -- tensor parallel -- */

/* What a rank is given: how many turns, and where to note them. */
typedef struct course {
    bench_board *board;
    int turns;
} course;

typedef struct mlp {
    weft_module *up, *down;
    weft_group *world;
    weft_tensor *x;
    weft_compiled *fast;
} mlp;

static weft_status loss_of(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    const mlp *m = user;
    (void)ins, (void)outs;
    weft_tensor *part = weft_module_call(m->down, weft_gelu(weft_module_call(m->up, in[0])));
    weft_tensor *y = weft_all_reduce(part, WEFT_SUM, m->world);
    out[0] = weft_mean(weft_mul(y, y), NULL, 0, false);
    return WEFT_OK;
}

static int make_mlp(mlp *m)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    int n = weft_size(m->world);
    if (n < 1)
        return -1;
    opts.backend = "c";
    opts.fullgraph = opts.agree = true;
    weft_seed(7);
    m->x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, WIDTH)); /* the same everywhere */
    m->up = weft_nn_linear_plain(WIDTH, HIDDEN / n);
    m->down = weft_nn_linear_plain(HIDDEN / n, WIDTH);
    m->fast = weft_compile(loss_of, m, &opts);
    return m->x && m->down && m->fast ? 0 : -1;
}

/* Milliseconds of forward and backward, from a common start; -1 if they fail. */
static double time_once(mlp *m, int way)
{
    weft_tensor *loss = NULL;
    if (weft_scope_open() < 0 || weft_group_barrier(m->world, WEFT_DEFAULT) < 0)
        return -1;
    int64_t start = bench_ns();
    weft_status status = way == COMPILED ? weft_compiled_call(m->fast, &m->x, 1, &loss, 1)
                                         : loss_of(&m->x, 1, &loss, 1, m);
    int failed = status < 0 || !loss || weft_backward(loss) < 0;
    double ms = (double)(bench_ns() - start) * 1e-6;
    weft_scope_close();
    return failed ? -1 : ms;
}

static int mlp_body(int rank, void *arg)
{
    const course *c = arg;
    mlp m = {.world = weft_init(NULL)};
    int failed = make_mlp(&m) < 0;
    for (int turn = -1; turn < c->turns && !failed; turn++)
        for (int way = 0; way < WAYS && !failed; way++) {
            double ms = time_once(&m, way);
            failed = ms < 0;
            if (turn >= 0)
                c->board->sample[rank][way * TURNS + turn] = ms;
        }
    if (failed)
        fprintf(stderr, "weft bench compile: %s\n", weft_last_error());
    weft_release(m.fast);
    return weft_finish(m.world) < 0 || failed;
}

/* The slowest rank's best turns, of both ways. */
static int measure(course *c, int (*body)(int rank, void *arg), int ranks, double *ms)
{
    if (bench_ranks(ranks, body, c))
        return -1;
    for (int way = 0; way < WAYS; way++) {
        ms[way] = 0;
        for (int rank = 0; rank < ranks; rank++) {
            double own =
                bench_quantile(c->board->sample[rank] + way * TURNS, c->turns, UNDISTURBED);
            ms[way] = own > ms[way] ? own : ms[way];
        }
    }
    return 0;
}

/* -- the GPT, tensor parallel -- */

/* Where a rank leaves the last loss of each way, behind its turns. */
enum { LOSSES = WAYS * TURNS };

static double time_step(bench_shard *s, double *loss)
{
    if (weft_group_barrier(s->world, WEFT_DEFAULT) < 0)
        return -1;
    int64_t start = bench_ns();
    return bench_shard_step(s, loss) < 0 ? -1 : (double)(bench_ns() - start) * 1e-6;
}

static int gpt_body(int rank, void *arg)
{
    const course *c = arg;
    double *own = c->board->sample[rank];
    weft_group *world = weft_init(NULL);
    bench_shard ways[WAYS] = {{.world = world}, {.world = world}};
    int failed = bench_shard_make(&ways[PLAIN]) < 0 || bench_shard_make(&ways[COMPILED]) < 0 ||
                 bench_shard_compile(&ways[COMPILED]) < 0;
    for (int turn = -1; turn < c->turns && !failed; turn++)
        for (int way = 0; way < WAYS && !failed; way++) {
            double ms = time_step(&ways[way], &own[LOSSES + way]);
            failed = ms < 0;
            if (turn >= 0)
                own[way * TURNS + turn] = ms;
        }
    if (failed)
        fprintf(stderr, "weft bench compile: %s\n", weft_last_error());
    weft_release(ways[COMPILED].fast);
    return weft_finish(world) < 0 || failed;
}

/* A step that computes something else would be no comparison: both ways have the same loss on all
 * ranks, which is about `*loss`, the loss of one rank; 0: not known yet. */
static int check_losses(const bench_board *board, int ranks, double *loss)
{
    double first = board->sample[0][LOSSES];
    for (int rank = 0; rank < ranks; rank++)
        for (int way = 0; way < WAYS; way++)
            if (board->sample[rank][LOSSES + way] != first || !(first > 0)) {
                fprintf(stderr, "weft bench compile: rank %d, %s: the loss is %.9g, not %.9g\n",
                        rank, way == COMPILED ? "compiled" : "eager",
                        board->sample[rank][LOSSES + way], first);
                return -1;
            }
    if (*loss > 0 && fabs(*loss - first) > 1e-3 * *loss) {
        fprintf(stderr, "weft bench compile: the loss of %d ranks is %.9g, of one %.9g\n", ranks,
                first, *loss);
        return -1;
    }
    *loss = first;
    return 0;
}

/* -- both -- */

static int print_parallel(bench_style *style, const char *name, course *c,
                          int (*body)(int rank, void *arg))
{
    double ms[2][WAYS], loss = 0;
    for (int ranks = 1; ranks <= 2; ranks++)
        if (measure(c, body, ranks, ms[ranks - 1]) < 0 ||
            (body == gpt_body && check_losses(c->board, ranks, &loss) < 0))
            return 1;
    bench_row(style, name, 2, "ms", ms[1][COMPILED], ms[0][COMPILED]);
    bench_row(style, "  eager", 2, "ms", ms[1][PLAIN], ms[0][PLAIN]);
    return 0;
}

int bench_step_parallel(bench_style *style)
{
    course c = {bench_board_new(), bench_turns(style, TURNS)};
    int failed = !c.board ||
                 print_parallel(style, "parallel layers beside 1 rank, c", &c, mlp_body) ||
                 print_parallel(style, "parallel GPT beside 1 rank, c", &c, gpt_body);
    if (c.board)
        bench_board_free(c.board);
    return failed;
}

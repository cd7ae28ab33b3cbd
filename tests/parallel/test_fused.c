/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/fused.c, parallel/fused_grad.c, parallel/fused_rule.c, parallel/gather_matmul.c,
 * parallel/matmul_scatter.c, parallel/pipe.c, parallel/ops.c */
/*
 * Fused operations on the CPU: AsyncTPTest of the reference under its own names, then what it does
 * not ask for: gradients, captures, all shapes and dtypes, bad input, ranks that disagree or die.
 */
#define FUSED_DEVICE WEFT_CPU
#define FUSED_ROWS   512 /* the reference's 4096 take a CPU too long */
#define FUSED_INNER  1024
#define FUSED_TEST   SIZES_TEST
#define FUSED_LEFT() /* the harness looks after processes, descriptors and memory */
#include "fused_jobs.h"
#include "leaf.h"

#include "fault.h"

#include <math.h>

/* ---- AsyncTPTest: what a GPU cannot do, or does not need ---- */

SIZES_TEST(test_multimem_all_gather_matmul)
{
    weft_group *world = begin(rank);
    weft_tensor *shard = uniform(WEFT_BF16, WEFT_SHAPE(256 / size, 128));
    weft_tensor *b = uniform(WEFT_BF16, WEFT_SHAPE(128, 64)), *out[2] = {NULL};
    weft_fused_use(WEFT_FUSED_MULTICAST);
    CHECK_OK(weft_all_gather_matmul(NULL, &out[0], shard, &b, 1, 0, world));
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_MULTICAST);
    weft_fused_use(WEFT_FUSED_PAIR);
    CHECK_OK(weft_all_gather_matmul(NULL, &out[1], shard, &b, 1, 0, world));
    CHECK(is_close(out[0], out[1]) && same_layout(out[0], out[1]));
    /* A way that cannot be gone is not: A is wanted here. */
    weft_tensor *a = NULL;
    weft_fused_use(WEFT_FUSED_MULTICAST);
    CHECK_OK(weft_all_gather_matmul(&a, &out[1], shard, &b, 1, 0, world));
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_PAIR);
    CHECK(a && is_close(out[0], out[1]));
    leave(world);
}

TEST(test_optimal_layout)
{
    weft_tensor *t = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 64, 32, 16));
    for (int dim = 0; dim < 3; dim++) {
        weft_tensor *x = weft_restride_shard(t, dim), *y = weft_restride_for_scatter(t, dim);
        CHECK(weft_tensor_is_contiguous(weft_movedim(x, dim, 0)));
        CHECK(weft_tensor_is_contiguous(weft_movedim(y, dim, 0)));
        CHECK(weft_equal(x, t) && weft_equal(y, t));
    }
    CHECK(weft_restride_shard(t, 0)->storage == t->storage); /* lies so already */
    CHECK(!weft_restride_shard(t, 4) && weft_last_status() == WEFT_ERR_INVALID_ARG);
}

/* ---- gradients ---- */

/* A weight that is different everywhere, so that no gradient is right by accident. */
static weft_tensor *weighed(weft_tensor *x)
{
    weft_tensor *w = weft_sin(weft_arange(WEFT_F64, WEFT_CPU, 0, (double)weft_tensor_numel(x), 1));
    return total(weft_mul(weft_reshape(x, WEFT_SHAPE(-1)), w));
}

typedef struct grad_job {
    weft_group *world;
    int dim;
    bool keep, average;
} grad_job;

static weft_tensor *gather_loss(const grad_job *job, weft_tensor *shard, weft_tensor *const *b)
{
    weft_tensor *a = NULL, *out[2] = {NULL};
    if (weft_all_gather_matmul(job->keep ? &a : NULL, out, shard, b, 2, job->dim, job->world) < 0)
        return NULL;
    weft_tensor *loss = weft_add(weighed(out[0]), weighed(weft_mul(out[1], out[1])));
    return job->keep ? weft_add(loss, weighed(weft_mul(a, a))) : loss;
}

static weft_tensor *scatter_loss(const grad_job *job, weft_tensor *a, weft_tensor *const *b)
{
    weft_tensor *out = weft_matmul_reduce_scatter(a, b[0], job->average ? WEFT_AVG : WEFT_SUM,
                                                  job->dim, job->world);
    return weighed(weft_mul(out, out));
}

typedef weft_tensor *loss_of(const grad_job *job, weft_tensor *x, weft_tensor *const *b);

/* The sum of all ranks' losses, as a number. */
static double sum_of_losses(loss_of *loss, const grad_job *job, weft_tensor *x,
                            weft_tensor *const *b)
{
    weft_tensor *sum = NULL;
    WEFT_NO_GRAD
    {
        sum = weft_all_reduce(loss(job, x, b), WEFT_SUM, job->world);
    }
    return weft_item(sum, 0);
}

/* Every element of `x` of every rank in turn: the gradient against a difference. */
static void check_differences(loss_of *loss, const grad_job *job, weft_tensor *x,
                              weft_tensor *const *b, weft_tensor *of)
{
    const double step = 1e-5;
    weft_tensor *flat = weft_reshape(weft_detach(of), WEFT_SHAPE(-1));
    weft_tensor *grad = weft_reshape(weft_grad(of), WEFT_SHAPE(-1));
    int me = weft_rank(job->world);
    for (int owner = 0; owner < weft_size(job->world); owner++)
        for (int64_t i = 0; i < weft_tensor_numel(flat); i += 5) {
            double sums[2], before = weft_item(flat, i);
            for (int k = 0; k < 2; k++) {
                if (me == owner)
                    CHECK_OK(weft_fill(weft_select(flat, 0, i), before + (k ? step : -step)));
                sums[k] = sum_of_losses(loss, job, x, b);
            }
            if (me == owner) {
                CHECK_OK(weft_fill(weft_select(flat, 0, i), before));
                double slope = (sums[1] - sums[0]) / (2 * step), exact = weft_item(grad, i);
                if (fabs(slope - exact) > 1e-6 + 1e-5 * fabs(slope))
                    FAIL("element %d: %.9g, but the slope is %.9g", (int)i, exact, slope);
            }
        }
}

static weft_tensor *wide(weft_shape shape)
{
    return leaf(weft_rand(WEFT_F64, WEFT_CPU, shape));
}

static void check_gradients(loss_of *loss, const grad_job *job, weft_tensor *x,
                            weft_tensor *const *b, int count)
{
    CHECK_OK(weft_backward(loss(job, x, b)));
    check_differences(loss, job, x, b, x);
    for (int i = 0; i < count; i++)
        check_differences(loss, job, x, b, b[i]);
}

RANKS_TEST(test_fused_gather_gradients, 2)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 3; dim++)
        for (int keep = 0; keep < 2; keep++) {
            grad_job job = {world, dim, keep, false};
            weft_shape whole = WEFT_SHAPE(4, 4, 4);
            weft_tensor *x = wide(shard_of(whole, dim, size));
            weft_tensor *b[] = {wide(WEFT_SHAPE(4, 2)), wide(WEFT_SHAPE(4, 3))};
            check_gradients(gather_loss, &job, x, b, 2);
        }
    leave(world);
}

RANKS_TEST(test_fused_scatter_gradients, 2)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 3; dim++)
        for (int average = 0; average < 2; average++) {
            grad_job job = {world, dim, false, average};
            weft_tensor *x = wide(WEFT_SHAPE(4, 4, 3)), *b = wide(WEFT_SHAPE(3, 4));
            check_gradients(scatter_loss, &job, x, &b, 1);
        }
    leave(world);
}

/* One of two operands needs a gradient; the other rule is a plain gather. */
RANKS_TEST(test_fused_gradients_of_one, 2)
{
    weft_group *world = begin(rank);
    for (int which = 0; which < 2; which++) {
        weft_tensor *x = weft_rand(WEFT_F64, WEFT_CPU, WEFT_SHAPE(4, 3));
        weft_tensor *b = weft_rand(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3, 2)), *out = NULL;
        leaf(which ? b : x);
        grad_job job = {world, 0, false, false};
        CHECK_OK(weft_backward(scatter_loss(&job, x, &b)));
        CHECK(!weft_grad(which ? x : b) && weft_grad(which ? b : x));
        CHECK_OK(weft_all_gather_matmul(NULL, &out, x, &b, 1, 0, world));
        CHECK_OK(weft_backward(weighed(out)));
        CHECK(!weft_grad(which ? x : b));
        weft_set_grad(which ? b : x, NULL);
    }
    leave(world);
}

/* Scaled products are refused where gradients are recorded. */
RANKS_TEST(test_fused_scaled_has_no_gradient, 2)
{
    weft_group *world = begin(rank);
    weft_tensor *a = uniform(WEFT_F8E4M3, WEFT_SHAPE(4, 16)), *out = NULL,
                *scale = leaf(full_of(WEFT_SCALAR, 1));
    weft_scaled b = {.b = uniform(WEFT_F8E4M3, WEFT_SHAPE(16, 16)),
                     .scale = full_of(WEFT_SCALAR, 1),
                     .dtype = WEFT_F32};
    CHECK(!weft_scaled_matmul_reduce_scatter(a, scale, &b, WEFT_SUM, 0, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "8 bits");
    weft_clear_error();
    CHECK_STATUS(weft_all_gather_scaled_matmul(NULL, &out, a, scale, &b, 1, 0, world),
                 WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "8 bits");
    CHECK(!out);
    leave(world);
}

/* ---- captured ---- */

typedef struct mlp_job {
    weft_group *world;
    bool fused, whole; /* whole: what was gathered is a second result */
} mlp_job;

/* A tensor-parallel MLP: gather, product, activation, product, scatter. */
static weft_status mlp(weft_tensor *const *in, __attribute__((unused)) int ins, weft_tensor **out,
                       __attribute__((unused)) int outs, void *user)
{
    const mlp_job *job = user;
    weft_tensor *y = NULL, **whole = job->whole ? &out[1] : NULL;
    if (job->fused) {
        WEFT_TRY(weft_all_gather_matmul(whole, &y, in[0], &in[1], 1, 0, job->world));
        out[0] = weft_matmul_reduce_scatter(weft_gelu(y), in[2], WEFT_SUM, 0, job->world);
    } else {
        weft_tensor *gathered = weft_all_gather_tensor(in[0], 0, job->world);
        if (whole)
            *whole = gathered;
        y = weft_matmul(gathered, in[1]);
        out[0] =
            weft_reduce_scatter_tensor(weft_matmul(weft_gelu(y), in[2]), WEFT_SUM, 0, job->world);
    }
    return out[0] ? WEFT_OK : weft_last_status();
}

/* Output and gradients of one step. */
static void step(weft_tensor *in[3], weft_tensor *result[4], weft_compiled *compiled, mlp_job *job)
{
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_set_grad(in[i], NULL));
    CHECK_OK(compiled ? weft_compiled_call(compiled, in, 3, result, 1)
                      : mlp(in, 3, result, 1, job));
    CHECK_OK(weft_backward(total(weft_mul(result[0], result[0]))));
    for (int i = 0; i < 3; i++)
        result[1 + i] = weft_clone(weft_grad(in[i]));
}

static void make_mlp(weft_tensor *in[3], int size)
{
    in[0] = leaf(uniform(WEFT_F32, WEFT_SHAPE(16 / size, 32)));
    in[1] = leaf(uniform(WEFT_F32, WEFT_SHAPE(32, 24)));
    in[2] = leaf(uniform(WEFT_F32, WEFT_SHAPE(24, 32)));
}

/* Forward and backward, fused and not, eager and captured: the same within the tolerance. */
RANKS_TEST(test_fused_mlp, 2)
{
    static const char *const backends[] = {"eager", "aot_eager"};
    weft_group *world = begin(rank);
    mlp_job fused = {.world = world, .fused = true}, plain = {.world = world};
    weft_tensor *in[3], *expected[4], *got[4];
    make_mlp(in, size);
    step(in, expected, NULL, &plain);
    step(in, got, NULL, &fused);
    for (int k = 0; k < 4; k++)
        CHECK(weft_allclose(got[k], expected[k], 1e-4, 1e-4, false));
    for (int i = 0; i < 2; i++) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        opts.backend = backends[i];
        opts.fullgraph = true;
        weft_compiled *compiled = weft_compile(mlp, &fused, &opts);
        for (int times = 0; times < 2; times++) {
            step(in, got, compiled, NULL);
            for (int k = 0; k < 4; k++)
                CHECK(weft_allclose(got[k], expected[k], 1e-4, 1e-4, false));
        }
    }
    leave(world);
}

/* The graph has the fused rows, and three runs of it give what the plain product gives, and what was
 * gathered bit for bit. */
SIZES_TEST(test_fused_all_gather_matmul_native_graph_capture)
{
    weft_group *world = begin(rank);
    mlp_job job = {world, true, true}, plain = {.world = world, .whole = true};
    weft_tensor *in[3], *out[2] = {NULL}, *expected[2] = {NULL};
    char text[4096];
    make_mlp(in, size);
    for (int i = 0; i < 3; i++)
        in[i] = weft_detach(in[i]);
    weft_graph *graph = weft_graph_capture("mlp", mlp, &job, in, 3, 2);
    CHECK(graph && weft_graph_text(graph, text, sizeof text) > 0);
    CHECK_CONTAINS(text, "all_gather_matmul");
    CHECK_CONTAINS(text, "matmul_reduce_scatter");
    CHECK_OK(mlp(in, 3, expected, 2, &plain));
    int before = calls_of(world, "ag_matmul");
    for (int times = 0; times < 3; times++) {
        CHECK_OK(weft_graph_run(graph, in, 3, out, 2));
        CHECK(is_close(out[0], expected[0]) && weft_equal(out[1], expected[1]));
        CHECK(same_layout(out[0], expected[0]) && same_layout(out[1], expected[1]));
        for (int i = 0; i < 2; i++)
            CHECK_OK(weft_fill(out[i], 0));
        CHECK_INT(calls_of(world, "ag_matmul"), before + times + 1); /* with the way of each */
        CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_PIPELINED);
        CHECK_INT(way_of(world, "matmul_rs"), WEFT_I_WAY_PIPELINED);
    }
    leave(world);
}

/* As a graph, three times. */
static void check_reduce_captured(weft_group *world, weft_tensor *a, weft_tensor *b,
                                  weft_tensor *plain)
{
    weft_tensor *in[] = {a, b}, *out = NULL;
    weft_graph *graph = weft_graph_capture("reduce", average_rows, world, in, 2, 1);
    if (!graph)
        FAIL("%s", weft_last_error());
    for (int times = 0; times < 3; times++) {
        CHECK_OK(weft_graph_run(graph, in, 2, &out, 1));
        CHECK(same_layout(out, plain) && weft_allclose(out, plain, 1e-2, 1e-2, false));
        CHECK_OK(weft_fill(out, 0));
    }
}

/* ---- scaled operations captured ---- */

typedef struct scaled_job {
    weft_group *world;
    scale_mode mode;
} scaled_job;

/* in: a, its scale, b, its scale.  A gather, a scatter, and what is gathered. */
static weft_status scaled_both(weft_tensor *const *in, __attribute__((unused)) int ins,
                               weft_tensor **out, __attribute__((unused)) int outs, void *user)
{
    const scaled_job *job = user;
    weft_scaled b = {.b = in[2], .scale = in[3], .dtype = WEFT_F32};
    WEFT_TRY(weft_all_gather_scaled_matmul(&out[1], &out[0], in[0], in[1], &b, 1, 0, job->world));
    /* One scale for each row of what is scattered: of what was gathered, if all ranks have them. */
    weft_tensor *scale = job->mode == ROWS_SHARDED
                             ? weft_wait_tensor(weft_all_gather_tensor(in[1], 0, job->world))
                             : in[1];
    out[2] = weft_scaled_matmul_reduce_scatter(out[1], scale, &b, WEFT_AVG, 0, job->world);
    return out[2] ? WEFT_OK : weft_last_status();
}

/* The graph has their rows, with the shapes, strides and dtypes that they have eagerly, and gives
 * what they give; so do compiled functions. */
static void check_scaled_captured(weft_group *world, scale_mode mode)
{
    scaled_job job = {world, mode};
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    int size = weft_size(world);
    weft_shape whole = WEFT_SHAPE(4 * size, 16);
    bool rows = mode != TENSOR_WISE;
    weft_tensor *in[] = {uniform(WEFT_F8E4M3, shard_of(whole, 0, size)),
                         scale_for(whole, 0, size, mode),
                         column_major(uniform(WEFT_F8E4M3, WEFT_SHAPE(16, 16))),
                         full_of(rows ? WEFT_SHAPE(1, 16) : WEFT_SCALAR, 0.1)};
    weft_tensor *eager[3] = {NULL}, *got[3] = {NULL};
    char text[4096];
    CHECK_OK(scaled_both(in, 4, eager, 3, &job));
    weft_graph *graph = weft_graph_capture("scaled", scaled_both, &job, in, 4, 3);
    if (!graph)
        FAIL("%s", weft_last_error());
    CHECK(weft_graph_text(graph, text, sizeof text) < (int)sizeof text);
    CHECK_CONTAINS(text, "all_gather_scaled_matmul");
    CHECK_CONTAINS(text, "scaled_matmul_reduce_scatter");
    opts.backend = "aot_eager";
    opts.fullgraph = true;
    weft_compiled *compiled = weft_compile(scaled_both, &job, &opts);
    for (int times = 0; times < 4; times++) {
        CHECK_OK(times % 2 ? weft_compiled_call(compiled, in, 4, got, 3)
                           : weft_graph_run(graph, in, 4, got, 3));
        CHECK_INT(way_of(world, "ag_scaled_mm"), WEFT_I_WAY_PIPELINED);
        for (int i = 0; i < 3; i++)
            CHECK(same_layout(got[i], eager[i]) && is_close(got[i], eager[i]));
    }
}

RANKS_TEST(test_fused_scaled_captured, 2)
{
    weft_group *world = begin(rank);
    for (int mode = 0; mode < SCALE_MODES; mode++)
        check_scaled_captured(world, (scale_mode)mode);
    leave(world);
}

/* ---- all dtypes, odd sizes, layouts, nothing at all ---- */

static weft_tensor *some(weft_dtype dtype, weft_shape shape)
{
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, shape);
    return weft_to_dtype(weft_to_dtype(weft_mul_scalar(x, 5), WEFT_I8), dtype);
}

static void check_both(weft_group *world, weft_tensor *a, weft_tensor *b, int dim,
                       weft_reduction op)
{
    weft_tensor *all = weft_all_gather_tensor(a, dim, world), *out = NULL, *whole = NULL;
    bool last = dim == weft_tensor_ndim(a) - 1;
    weft_tensor *many[8];
    for (int i = 0; i < weft_size(world); i++)
        many[i] = b;
    weft_tensor *right = last ? weft_cat(many, (size_t)weft_size(world), 0) : b;
    CHECK_OK(weft_all_gather_matmul(&whole, &out, a, &right, 1, dim, world));
    CHECK(weft_equal(whole, all) && weft_equal(out, weft_matmul(all, right)));
    CHECK_OK(weft_all_gather_matmul(NULL, &out, a, &right, 1, dim, world));
    CHECK(weft_equal(out, weft_matmul(all, right)));
    weft_tensor *wide_b = weft_cat(many, (size_t)weft_size(world), 1);
    weft_tensor *left = last ? a : all;
    weft_tensor *part = weft_matmul_reduce_scatter(left, wide_b, op, dim, world);
    CHECK(part &&
          weft_equal(part, weft_reduce_scatter_tensor(weft_matmul(left, wide_b), op, dim, world)));
}

RANKS_TEST(test_fused_dtypes, 3)
{
    const weft_dtype dtypes[] = {WEFT_F64, WEFT_F32, WEFT_F16, WEFT_BF16, WEFT_I32, WEFT_U8};
    weft_group *world = begin(rank);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int dim = 0; dim < 3; dim++)
            check_both(world, some(dtypes[i], WEFT_SHAPE(3, 1, 5)),
                       some(dtypes[i], WEFT_SHAPE(5, 7)), dim, i % 2 ? WEFT_SUM : WEFT_AVG);
    leave(world);
}

RANKS_TEST(test_fused_layouts, 2)
{
    weft_group *world = begin(rank);
    weft_tensor *a = some(WEFT_F32, WEFT_SHAPE(5, 4, 6)), *b = some(WEFT_F32, WEFT_SHAPE(5, 3));
    for (int dim = 0; dim < 3; dim++) {
        check_both(world, weft_movedim(a, 0, 2), b, dim, WEFT_SUM);
        check_both(world, weft_restride_shard(weft_movedim(a, 0, 2), dim), column_major(b), dim,
                   WEFT_SUM);
        check_both(world, weft_expand(some(WEFT_F32, WEFT_SHAPE(1, 1, 5)), WEFT_SHAPE(2, 3, 5)), b,
                   dim, WEFT_AVG);
    }
    check_both(world, some(WEFT_F32, WEFT_SHAPE(4, 5)), b, 0, WEFT_SUM); /* 2-d */
    check_both(world, some(WEFT_F32, WEFT_SHAPE(4, 5)), b, 1, WEFT_SUM);
    check_both(world, some(WEFT_F32, WEFT_SHAPE(0, 5)), b, 0, WEFT_SUM); /* nothing */
    check_both(world, some(WEFT_F32, WEFT_SHAPE(2, 0)), some(WEFT_F32, WEFT_SHAPE(0, 3)), 0,
               WEFT_SUM);
    leave(world);
}

/* In place in symmetric memory, at an offset and with the gathered dimension in front. */
RANKS_TEST(test_fused_in_place, 3)
{
    weft_group *world = begin(rank);
    weft_tensor *block = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64));
    CHECK(weft_symm_rendezvous(block, world));
    CHECK_OK(weft_copy(block, some(WEFT_F32, WEFT_SHAPE(64))));
    weft_tensor *shard =
        weft_movedim(weft_view(weft_narrow(block, 0, 16, 30), WEFT_SHAPE(3, 2, 5)), 0, 1);
    check_both(world, shard, some(WEFT_F32, WEFT_SHAPE(5, 4)), 1, WEFT_SUM);
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_ZERO_COPY);
    check_both(world, shard, some(WEFT_F32, WEFT_SHAPE(5, 4)), 0, WEFT_SUM); /* lies otherwise */
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_PIPELINED);
    leave(world);
}

/* Right-hand sides may have other widths on other ranks. */
RANKS_TEST(test_fused_uneven_rights, 2)
{
    weft_group *world = begin(rank);
    weft_tensor *a = some(WEFT_F32, WEFT_SHAPE(3, 5)), *b = some(WEFT_F32, WEFT_SHAPE(5, 2 + rank));
    weft_tensor *out = NULL;
    CHECK_OK(weft_all_gather_matmul(NULL, &out, a, &b, 1, 0, world));
    CHECK(weft_equal(out, weft_mm(weft_all_gather_tensor(a, 0, world), b)));
    leave(world);
}

/* Ranks lay out their shards as they like: what differs is not told to the others. */
RANKS_TEST(test_fused_uneven_layouts, 3)
{
    weft_group *world = begin(rank);
    weft_tensor *x = some(WEFT_F32, WEFT_SHAPE(6, 6)), *b = some(WEFT_F32, WEFT_SHAPE(6, 6));
    weft_tensor *wide = weft_narrow(some(WEFT_F32, WEFT_SHAPE(6, 9)), 1, 2, 6);
    weft_tensor *a = rank == 0 ? x : rank == 1 ? column_major(x) : wide;
    for (int dim = 0; dim < 2; dim++)
        check_both(world, a, rank == 1 ? b : column_major(b), dim, WEFT_SUM);
    leave(world);
}

/* bias and result scale, in both scaled operations, against the formula. */
RANKS_TEST(test_fused_scaled_extras, 2)
{
    weft_group *world = begin(rank);
    weft_tensor *a = some(WEFT_F8E4M3, WEFT_SHAPE(4, 8)), *scale = full_of(WEFT_SCALAR, 0.5), *out;
    weft_scaled b = {.b = some(WEFT_F8E4M3, WEFT_SHAPE(8, 4)),
                     .scale = weft_view(weft_arange(WEFT_F32, WEFT_CPU, 1, 5, 1), WEFT_SHAPE(1, 4)),
                     .bias = weft_arange(WEFT_BF16, WEFT_CPU, 0, 4, 1),
                     .result_scale = full_of(WEFT_SHAPE(1), 2),
                     .dtype = WEFT_F32};
    weft_tensor *right = weft_mul(weft_to_dtype(b.b, WEFT_F32), b.scale);
    weft_tensor *left = weft_mul_scalar(weft_to_dtype(a, WEFT_F32), 0.5);
    weft_tensor *bias = weft_to_dtype(b.bias, WEFT_F32);
    CHECK_OK(weft_all_gather_scaled_matmul(NULL, &out, a, scale, &b, 1, 0, world));
    weft_tensor *product = weft_mm(weft_all_gather_tensor(left, 0, world), right);
    CHECK(is_close(out, weft_mul_scalar(weft_add(product, bias), 2)));
    for (int dim = 0; dim < 2; dim++) {
        out = weft_scaled_matmul_reduce_scatter(a, scale, &b, WEFT_SUM, dim, world);
        product = weft_mul_scalar(weft_add(weft_mm(left, right), bias), 2);
        CHECK(is_close(out, weft_reduce_scatter_tensor(product, WEFT_SUM, dim, world)));
    }
    leave(world);
}

/* ---- groups without peers ---- */

TEST(test_fused_meta_and_fake)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(1, 4);
    weft_group *world = weft_fake_init(&opts);
    weft_tensor *a = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 8)), *out = NULL, *whole = NULL;
    weft_tensor *b = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 4));
    CHECK_OK(weft_all_gather_matmul(&whole, &out, a, &b, 1, 0, world));
    CHECK(out->dim[0] == 8 && out->dim[1] == 4 && whole->dim[0] == 8);
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_PAIR);
    out = weft_matmul_reduce_scatter(weft_contiguous(whole), b, WEFT_SUM, 0, world);
    CHECK(out && out->dim[0] == 2 && out->dim[1] == 4);
    weft_tensor *meta = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(3, 2, 8));
    b = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(8, 5));
    CHECK_OK(weft_all_gather_matmul(&whole, &out, meta, &b, 1, 1, world));
    CHECK(out->dim[0] == 3 && out->dim[1] == 8 && out->dim[2] == 5);
    CHECK(out->stride[1] == 15 && out->stride[0] == 5 && whole->stride[1] == 24);
    b = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(8, 6));
    CHECK(!weft_matmul_reduce_scatter(meta, b, WEFT_SUM, 2, world));
    CHECK_CONTAINS(weft_last_error(), "do not divide");
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* One rank alone: there is nobody to gather from. */
RANKS_TEST(test_fused_alone, 1)
{
    weft_group *world = begin(rank);
    check_both(world, some(WEFT_F32, WEFT_SHAPE(2, 3, 5)), some(WEFT_F32, WEFT_SHAPE(5, 4)), 1,
               WEFT_AVG);
    leave(world);
}

/* ---- bad input ---- */

#define BAD(call_, status_, text_)                         \
    do {                                                   \
        weft_clear_error();                                \
        CHECK((call_) && weft_last_status() == (status_)); \
        CHECK_CONTAINS(weft_last_error(), text_);          \
    } while (0)

static weft_tensor *of(weft_dtype dtype, weft_shape shape)
{
    return weft_zeros(dtype, WEFT_CPU, shape);
}

static void check_bad_plain(weft_group *world)
{
    weft_tensor *a = of(WEFT_F32, WEFT_SHAPE(4, 6)), *b = of(WEFT_F32, WEFT_SHAPE(6, 4)), *out;
    weft_tensor *odd = of(WEFT_F32, WEFT_SHAPE(5, 4)), *other = of(WEFT_F64, WEFT_SHAPE(6, 4));
    weft_tensor *flat = of(WEFT_F32, WEFT_SHAPE(6)), *bits = of(WEFT_BOOL, WEFT_SHAPE(4, 6));
    weft_tensor *none = NULL;
#define GATHER(a_, b_, count_, dim_) \
    (weft_all_gather_matmul(NULL, &out, a_, b_, count_, dim_, world) < 0)
#define SCATTER(a_, b_, op_, dim_) (!weft_matmul_reduce_scatter(a_, b_, op_, dim_, world))
    BAD(GATHER(a, &b, 0, 0), WEFT_ERR_INVALID_ARG, "at least one");
    BAD(GATHER(a, NULL, 1, 0), WEFT_ERR_INVALID_ARG, "right-hand sides is NULL");
    BAD(GATHER(NULL, &b, 1, 0), WEFT_ERR_INVALID_ARG, "shard is NULL");
    BAD(GATHER(a, &none, 1, 0), WEFT_ERR_INVALID_ARG, "NULL");
    BAD(GATHER(a, &odd, 1, 0), WEFT_ERR_INVALID_ARG, "has shape [6, n]");
    BAD(GATHER(a, &b, 1, 1), WEFT_ERR_INVALID_ARG, "has shape [12, n]");
    BAD(GATHER(a, &b, 1, 2), WEFT_ERR_INVALID_ARG, "dim");
    BAD(GATHER(a, &other, 1, 0), WEFT_ERR_TYPE, "both must be the same");
    BAD(GATHER(flat, &b, 1, 0), WEFT_ERR_INVALID_ARG, "at least 2 dimensions");
    BAD(GATHER(bits, &b, 1, 0), WEFT_ERR_TYPE, "not be bool");
    BAD(SCATTER(a, b, WEFT_MAX, 0), WEFT_ERR_INVALID_ARG, "sum or avg");
    BAD(SCATTER(a, b, WEFT_SUM, 3), WEFT_ERR_INVALID_ARG, "dim");
    BAD(SCATTER(odd, of(WEFT_F32, WEFT_SHAPE(4, 4)), WEFT_SUM, 0), WEFT_ERR_INVALID_ARG,
        "do not divide");
    BAD(SCATTER(a, odd, WEFT_SUM, 0), WEFT_ERR_INVALID_ARG, "has shape [6, n]");
    BAD(SCATTER(a, other, WEFT_SUM, 0), WEFT_ERR_TYPE, "both must be the same");
    BAD(!weft_matmul_reduce_scatter(a, b, WEFT_SUM, 0, NULL), WEFT_ERR_INVALID_ARG,
        "group is NULL");
}

static void check_bad_scaled(weft_group *world)
{
    weft_tensor *a = of(WEFT_F8E4M3, WEFT_SHAPE(4, 16)), *one = full_of(WEFT_SCALAR, 1), *out;
    weft_tensor *b = of(WEFT_F8E4M3, WEFT_SHAPE(16, 8)), *rows = full_of(WEFT_SHAPE(3, 1), 1);
    weft_tensor *wide_a = of(WEFT_F32, WEFT_SHAPE(4, 16)), *doubles = of(WEFT_F64, WEFT_SHAPE(1));
#define SCALED(a_, scale_, dim_, ...)                                                            \
    (weft_all_gather_scaled_matmul(NULL, &out, a_, scale_, &(weft_scaled){__VA_ARGS__}, 1, dim_, \
                                   world) < 0)
    BAD(SCALED(a, one, 1, b, one, NULL, NULL, -1), WEFT_ERR_INVALID_ARG, "has shape [32, n]");
    BAD(SCALED(a, one, 1, of(WEFT_F8E4M3, WEFT_SHAPE(32, 8)), one, NULL, NULL, -1),
        WEFT_ERR_UNSUPPORTED, "sums over");
    BAD(SCALED(a, rows, 0, b, one, NULL, NULL, -1), WEFT_ERR_INVALID_ARG, "one for each row");
    BAD(SCALED(a, doubles, 0, b, one, NULL, NULL, -1), WEFT_ERR_TYPE, "must be f32");
    BAD(SCALED(a, NULL, 0, b, one, NULL, NULL, -1), WEFT_ERR_INVALID_ARG, "NULL");
    BAD(SCALED(a, one, 0, b, rows, NULL, NULL, -1), WEFT_ERR_INVALID_ARG, "[1, n]");
    BAD(SCALED(a, one, 0, b, one, rows, NULL, -1), WEFT_ERR_INVALID_ARG, "a bias");
    BAD(SCALED(a, one, 0, b, one, NULL, rows, -1), WEFT_ERR_INVALID_ARG, "scale of a result");
    BAD(SCALED(a, one, 0, b, one, NULL, NULL, WEFT_I32), WEFT_ERR_TYPE, "a result is");
    BAD(SCALED(a, one, 0, b, one, NULL, NULL, 1000), WEFT_ERR_TYPE, "a result is");
    BAD(SCALED(wide_a, one, 0, b, one, NULL, NULL, -1), WEFT_ERR_TYPE, "8 bits");
    BAD(!weft_scaled_matmul_reduce_scatter(a, rows, &(weft_scaled){b, one, NULL, NULL, -1},
                                           WEFT_SUM, 0, world),
        WEFT_ERR_INVALID_ARG, "one for each row");
    BAD(!weft_scaled_matmul_reduce_scatter(a, one, NULL, WEFT_SUM, 0, world), WEFT_ERR_INVALID_ARG,
        "NULL");
}

/* Nothing of a refused call reaches the others: they do not even come. */
RANKS_TEST(test_fused_bad_input, 2)
{
    weft_group *world = begin(rank);
    if (rank == 0) {
        check_bad_plain(world);
        check_bad_scaled(world);
    }
    check_both(world, some(WEFT_F32, WEFT_SHAPE(2, 5)), some(WEFT_F32, WEFT_SHAPE(5, 4)), 0,
               WEFT_SUM);
    leave(world);
}

/* ---- ranks that have no memory; those that die: fused_jobs.h ---- */

/* Rank 1 cannot have its n-th allocation.  It fails, and nobody hangs or is told a wrong result;
 * the group is lost, and the next one works. */
RANKS_TEST(test_fused_shortage, 2)
{
    if (harness_in_threads)
        SKIP("faults are the process's");
    weft_group *world = begin(rank);
    weft_tensor *a = some(WEFT_F32, WEFT_SHAPE(8, 8)), *b = some(WEFT_F32, WEFT_SHAPE(8, 8));
    bool fired = true;
    for (int n = 1; fired && n < 200; n++) {
        CHECK_OK(weft_scope_open());
        weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, NULL);
        CHECK_OK(both(group, a, b));
        CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT)); /* nobody is in the middle of it */
        if (rank == 1)
            fault_arm(n);
        weft_status status = both(group, a, b);
        fired = rank == 1 && fault_disarm();
        CHECK(rank == 0 || !fired == (status >= 0));
        if (status < 0) /* so that who has not begun need not wait for the limit */
            weft_group_revoke(group);
        weft_clear_error();
        weft_tensor *told = weft_full(WEFT_I32, WEFT_CPU, WEFT_SCALAR, fired);
        fired = weft_item(weft_all_reduce(told, WEFT_MAX, world), 0) != 0;
        CHECK(fired || status >= 0);
        CHECK_OK(weft_scope_close());
    }
    CHECK(!fired);
    leave(world);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* refusals and deaths are meant here */
    return harness_main(argc, argv);
}

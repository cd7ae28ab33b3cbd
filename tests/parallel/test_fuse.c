/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/fuse.c, parallel/fuse_match.c */
/*
 * The pass that fuses products and collectives: MicroPipelineTPTest of the reference under its own
 * names, on fake groups and with real ranks: the rewritten graph gives what the captured one gives.
 * Then compiled functions, and why other collectives are left alone.
 */
#include "device.h"
#include "functional_jobs.h"
#include "harness_cache.h"

#include "graph/pass/passes.h"
#include "parallel/fuse.h"

enum { TEXT = 1 << 14 };
#define PURE (WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE)

typedef struct job {
    weft_group *group, *other;
    int dim;
    bool keep, rows, floats;
    weft_module *net;
} job;

#define FUNCTION(name_)                                                               \
    static weft_status name_(weft_tensor *const *in, __attribute__((unused)) int ins, \
                             weft_tensor **out, __attribute__((unused)) int outs, void *user)

static weft_group *fake(int size)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, size);
    weft_group *world = weft_fake_init(&opts);
    CHECK(world);
    return world;
}

static void end(weft_group *world)
{
    weft_clear_error();
    CHECK(!weft_finish(world));
}

#ifdef WEFT_TEST_ON_CUDA
enum { DEVICE_FORKS = 1 };
#else
enum { DEVICE_FORKS = 0 };
#endif

/* A test that runs on a fake world, with processes and with threads, under one name.  On CUDA not on
 * a fake one: whoever has used a device cannot fork ranks that do. */
#define PASS_TEST(name_, ranks_)                                             \
    static void name_(weft_group *world);                                    \
    static void name_##_alone(void)                                          \
    {                                                                        \
        weft_group *world = fake(ranks_);                                    \
        name_(world);                                                        \
        end(world);                                                          \
    }                                                                        \
    static void name_##_together(int rank, __attribute__((unused)) int size) \
    {                                                                        \
        weft_group *world = join(30000);                                     \
        weft_seed(7 + (uint64_t)rank);                                       \
        name_(world);                                                        \
        leave(world);                                                        \
    }                                                                        \
    __attribute__((constructor)) static void harness_register_##name_(void)  \
    {                                                                        \
        static harness_test tests[2] = {{.name = #name_,                     \
                                         .body = name_##_alone,              \
                                         .run = harness_run_alone,           \
                                         .backend = "fake",                  \
                                         .ranks = (ranks_)},                 \
                                        {.name = #name_,                     \
                                         .ranks = (ranks_),                  \
                                         .ranks_body = name_##_together,     \
                                         .label = HARNESS_LABEL,             \
                                         .hosts = HARNESS_HOSTS,             \
                                         .run = harness_run_ranks}};         \
        for (int i = DEVICE_FORKS; i < 2; i++) {                             \
            *harness_last = &tests[i];                                       \
            harness_last = &tests[i].next;                                   \
        }                                                                    \
    }                                                                        \
    static void name_(weft_group *world)

static weft_tensor *some(weft_dtype dtype, weft_shape shape)
{
    weft_tensor *x = weft_to_dtype(weft_rand(WEFT_F32, WEFT_CPU, shape), dtype);
    return weft_to(x, dtype, DEVICE);
}

/* The captured graph as the pass gets it, and what the pass makes of it. */
static weft_graph *captured(weft_graph_function function, job *j, weft_tensor *const *in, int ins,
                            int outs)
{
    weft_graph *graph = weft_graph_capture("fn", function, j, in, ins, outs);
    graph = graph ? weft_i_graph_pass_run(graph, PURE) : NULL;
    if (!graph)
        FAIL("%s", weft_last_error());
    return graph;
}

static weft_graph *fused(weft_graph *graph, char *text)
{
    weft_graph *after = weft_i_fuse(graph);
    if (!after)
        FAIL("%s", weft_last_error());
    CHECK(weft_graph_text(after, text, TEXT) < TEXT);
    return after;
}

/* Runs both: equal values, and the strides that the function has eagerly. */
static void check_same(weft_graph *a, weft_graph *b, weft_tensor *const *in, int ins, int outs)
{
    weft_tensor *x[4] = {NULL}, *y[4] = {NULL};
    CHECK_OK(weft_graph_run(a, in, ins, x, outs));
    CHECK_OK(weft_graph_run(b, in, ins, y, outs));
    for (int i = 0; i < outs; i++) {
        CHECK(weft_i_shape_equal(weft_i_tensor_shape(x[i]), weft_i_tensor_shape(y[i])));
        CHECK_INT(x[i]->dtype, y[i]->dtype);
        for (int d = 0; d < x[i]->ndim; d++)
            CHECK(x[i]->dim[d] < 2 || x[i]->stride[d] == y[i]->stride[d]);
        CHECK(weft_allclose(weft_to_dtype(x[i], WEFT_F32), weft_to_dtype(y[i], WEFT_F32), 1e-2,
                            1e-4, true));
    }
}

/* ---- finding ---- */

static weft_tensor *gather_bytes(weft_tensor *x, int dim, weft_group *group)
{
    weft_tensor *bytes = weft_all_gather_tensor(weft_view_dtype(x, WEFT_U8), dim, group);
    return weft_view_dtype(weft_wait_tensor(bytes), weft_tensor_dtype(x));
}

FUNCTION(gathers)
{
    const job *j = user;
    out[0] = weft_all_gather_tensor(in[0], 0, j->group);
    out[1] = weft_all_gather_tensor(in[0], 1, j->group);
    out[2] = gather_bytes(in[1], 0, j->group);
    out[3] = gather_bytes(in[1], 1, j->group);
    return out[3] ? WEFT_OK : weft_last_status();
}

PASS_TEST(test_find_all_gather_patterns, 2)
{
    job j = {.group = world};
    weft_tensor *in[] = {some(WEFT_F32, WEFT_SHAPE(64, 32)), some(WEFT_F8E4M3, WEFT_SHAPE(64, 32))};
    weft_graph *graph = captured(gathers, &j, in, 2, 4);
    weft_i_fuse_match found[64];
    CHECK_INT(weft_i_fuse_find_gathers(graph, found), 4);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(found[i].dim, i % 2);
        CHECK(!strcmp(found[i].group->group.name, weft_group_name(j.group)));
        CHECK_INT(found[i].operand, graph->inputs[i / 2].value);
        CHECK_INT(found[i].result, graph->outputs[i]);
    }
    CHECK_INT(weft_i_fuse_find_scatters(graph, found), 0);
}

FUNCTION(scatters)
{
    const job *j = user;
    out[0] = weft_reduce_scatter_tensor(in[0], WEFT_SUM, 0, j->group);
    out[1] = weft_reduce_scatter_tensor(in[0], WEFT_AVG, 1, j->group);
    return out[1] ? WEFT_OK : weft_last_status();
}

PASS_TEST(test_find_reduce_scatter_patterns, 2)
{
    job j = {.group = world};
    weft_tensor *in[] = {some(WEFT_F32, WEFT_SHAPE(64, 32))};
    weft_graph *graph = captured(scatters, &j, in, 1, 2);
    weft_i_fuse_match found[64];
    CHECK_INT(weft_i_fuse_find_scatters(graph, found), 2);
    CHECK(found[0].op == WEFT_SUM && found[1].op == WEFT_AVG);
    CHECK(found[0].dim == 0 && found[1].dim == 1);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(found[i].operand, graph->inputs[0].value);
        CHECK_INT(found[i].result, graph->outputs[i]);
    }
}

FUNCTION(exposed)
{
    const job *j = user;
    weft_tensor *turned = weft_transpose(in[0], 0, 1);
    out[0] = weft_mm(in[0], turned);
    weft_tensor *b = weft_all_gather_tensor(in[0], 0, j->group);
    out[1] = weft_mm(b, turned);
    weft_tensor *d = weft_reduce_scatter_tensor(b, WEFT_SUM, 0, j->group);
    out[2] = weft_all_gather_tensor(d, 0, j->group);
    return out[2] ? WEFT_OK : weft_last_status();
}

PASS_TEST(test_get_unexposed_collectives, 2)
{
    job j = {.group = world};
    weft_tensor *in[] = {some(WEFT_F32, WEFT_SHAPE(64, 32))};
    weft_graph *graph = captured(exposed, &j, in, 1, 3);
    weft_i_fuse_match gathered[64], scattered[64];
    bool hidden[64];
    CHECK_INT(weft_i_fuse_find_gathers(graph, gathered), 2);
    CHECK_INT(weft_i_fuse_find_scatters(graph, scattered), 1);
    CHECK_OK(weft_i_fuse_find_hidden(graph, hidden));
    CHECK(hidden[gathered[0].node] && hidden[scattered[0].node] && !hidden[gathered[1].node]);
    char text[TEXT];
    weft_graph *after = fused(graph, text); /* what hides already is not cut */
    CHECK(after == graph);
    CHECK_CONTAINS(after->notes, "hides behind a product");
}

/* ---- gathers ---- */

FUNCTION(gather_matmul)
{
    const job *j = user;
    weft_tensor *a = weft_all_gather_tensor(in[0], j->dim, j->group);
    out[0] = weft_matmul(a, in[1]);
    out[1] = weft_matmul(a, in[2]);
    out[2] = j->keep ? a : weft_neg(in[1]);
    return out[2] ? WEFT_OK : weft_last_status();
}

static void check_gather(weft_group *group, int ndim, int dim, bool keep)
{
    char text[TEXT];
    job j = {.group = group, .dim = dim, .keep = keep};
    weft_shape shape = ndim == 2 ? WEFT_SHAPE(64, 32) : WEFT_SHAPE(2, 64, 32);
    bool last = dim == ndim - 1;
    int64_t inner = 32 * (last ? weft_size(group) : 1);
    weft_tensor *in[] = {some(WEFT_F32, shape), some(WEFT_F32, WEFT_SHAPE(inner, 16)),
                         some(WEFT_F32, WEFT_SHAPE(inner, 8))};
    weft_graph *graph = captured(gather_matmul, &j, in, 3, 3), *after = fused(graph, text);
    CHECK(!!strstr(text, "all_gather_matmul") == !last);
    CHECK(!!strstr(text, "all_gather_into_tensor") == last);
    if (last)
        CHECK_CONTAINS(after->notes, "not fused");
    else
        CHECK_CONTAINS(text, keep ? "keep=true" : "keep=false");
    check_same(graph, after, in, 3, 3);
}

static void check_gathers(weft_group *group)
{
    for (int ndim = 2; ndim <= 3; ndim++)
        for (int dim = 0; dim < ndim; dim++)
            for (int keep = 0; keep < 2; keep++)
                check_gather(group, ndim, dim, keep);
}

PASS_TEST(test_fuse_all_gather_matmul, 2)
{
    check_gathers(world);
}

/* As users do it whose library gathers no 8-bit floats: as bytes.  Or the floats themselves. */
FUNCTION(gather_scaled)
{
    const job *j = user;
    weft_tensor *a = j->floats ? weft_all_gather_tensor(in[0], j->dim, j->group)
                               : gather_bytes(in[0], j->dim, j->group);
    if (j->keep)
        out[1] = a;
    weft_tensor *flat = weft_reshape(a, WEFT_SHAPE(-1, 32 * (j->dim == a->ndim - 1 ? 2 : 1)));
    weft_tensor *product = weft_scaled_mm(flat, in[1], in[2], in[2], NULL, NULL, WEFT_BF16);
    weft_shape shape = weft_i_tensor_shape(a);
    shape.dim[shape.ndim - 1] = 16;
    out[0] = product ? weft_view(product, shape) : NULL;
    return out[0] ? WEFT_OK : weft_last_status();
}

static void check_scaled_gather(job *j, int ndim)
{
    char text[TEXT];
    bool last = j->dim == ndim - 1;
    weft_shape shape = ndim == 2 ? WEFT_SHAPE(64, 32) : WEFT_SHAPE(2, 64, 32);
    weft_tensor *in[] = {some(WEFT_F8E4M3, shape),
                         some(WEFT_F8E4M3, WEFT_SHAPE(last ? 64 : 32, 16)),
                         weft_full(WEFT_F32, DEVICE, WEFT_SCALAR, 0.1)};
    weft_graph *graph = captured(gather_scaled, j, in, 3, 1 + j->keep), *after = fused(graph, text);
    CHECK(!!strstr(text, "all_gather_scaled_matmul") == !last);
    CHECK(!!strstr(text, "all_gather_into_tensor") == last);
    if (!last)
        CHECK_CONTAINS(text, j->keep ? "keep=true" : "keep=false");
    check_same(graph, after, in, 3, 1 + j->keep);
}

PASS_TEST(test_fuse_all_gather_scaled_matmul, 2)
{
    job j = {.group = world};
    for (int k = 0; k < 4; k++)
        for (int ndim = 2; ndim <= 3; ndim++)
            for (j.dim = 0; j.dim < ndim; j.dim++) {
                j.keep = k & 1;
                j.floats = k & 2;
                check_scaled_gather(&j, ndim);
            }
}

/* ---- scatters ---- */

FUNCTION(matmul_scatter)
{
    const job *j = user;
    weft_tensor *product = weft_matmul(in[0], in[1]);
    out[0] = weft_reduce_scatter_tensor(product, WEFT_AVG, j->dim, j->group);
    return out[0] ? WEFT_OK : weft_last_status();
}

static void check_scatters(weft_group *group)
{
    char text[TEXT];
    job j = {.group = group};
    for (int ndim = 2; ndim <= 3; ndim++)
        for (j.dim = 0; j.dim < ndim; j.dim++) {
            weft_shape shape = ndim == 2 ? WEFT_SHAPE(64, 32) : WEFT_SHAPE(2, 64, 32);
            weft_tensor *in[] = {some(WEFT_F32, shape), some(WEFT_F32, WEFT_SHAPE(32, 16))};
            weft_graph *graph = captured(matmul_scatter, &j, in, 2, 1), *after = fused(graph, text);
            CHECK_CONTAINS(text, "matmul_reduce_scatter");
            CHECK(!strstr(text, "reduce_scatter_tensor"));
            check_same(graph, after, in, 2, 1);
        }
}

PASS_TEST(test_fuse_matmul_reduce_scatter, 2)
{
    check_scatters(world);
}

/* Row-wise scales, whose reciprocals are taken after the reshape. */
FUNCTION(scaled_scatter)
{
    const job *j = user;
    weft_tensor *a = in[0], *flat = weft_reshape(a, WEFT_SHAPE(-1, 32));
    weft_tensor *scale = in[2];
    if (j->rows)
        scale = weft_scalar_div(1, weft_reshape(in[2], WEFT_SHAPE(-1, 1)));
    weft_tensor *product = weft_scaled_mm(flat, in[1], scale, in[3], NULL, NULL, WEFT_BF16);
    weft_shape shape = weft_i_tensor_shape(a);
    shape.dim[shape.ndim - 1] = in[1]->dim[1];
    out[0] = weft_reduce_scatter_tensor(product ? weft_view(product, shape) : NULL,
                                        j->rows ? WEFT_SUM : WEFT_AVG, j->dim, j->group);
    return out[0] ? WEFT_OK : weft_last_status();
}

static void check_scaled_scatter(job *j, weft_tensor *const *in, bool expected)
{
    char text[TEXT];
    weft_graph *graph = captured(scaled_scatter, j, in, 4, 1), *after = fused(graph, text);
    CHECK(!!strstr(text, "scaled_matmul_reduce_scatter") == expected);
    CHECK(!!strstr(text, "reduce_scatter_tensor") != expected);
    check_same(graph, after, in, 4, 1);
}

PASS_TEST(test_fuse_scaled_matmul_reduce_scatter, 2)
{
    job j = {.group = world};
    weft_tensor *one = weft_full(WEFT_F32, DEVICE, WEFT_SCALAR, 0.1);
    weft_tensor *in[] = {some(WEFT_F8E4M3, WEFT_SHAPE(2, 64, 32)),
                         some(WEFT_F8E4M3, WEFT_SHAPE(32, 16)), one, one};
    for (j.dim = 0; j.dim < 3; j.dim++)
        check_scaled_scatter(&j, in, j.dim < 2);
}

PASS_TEST(test_fuse_scaled_matmul_reduce_scatter_rowwise_scales_reshape_mm_reshape, 2)
{
    job j = {.group = world, .rows = true};
    weft_tensor *in[] = {some(WEFT_F8E4M3, WEFT_SHAPE(2, 16, 32)),
                         some(WEFT_F8E4M3, WEFT_SHAPE(32, 64)),
                         weft_add_scalar(some(WEFT_F32, WEFT_SHAPE(2, 16, 1)), 1),
                         some(WEFT_F32, WEFT_SHAPE(1, 64))};
    for (j.dim = 0; j.dim < 2; j.dim++)
        check_scaled_scatter(&j, in, true);
}

/* ---- whole layers ---- */

/* A sequence-parallel MLP: column-wise, then row-wise. */
FUNCTION(mlp)
{
    const job *j = user;
    weft_tensor *a = weft_all_gather_tensor(in[0], j->dim, j->group);
    weft_tensor *y = weft_relu(weft_matmul(a, in[1]));
    out[0] = weft_reduce_scatter_tensor(weft_matmul(y, in[2]), WEFT_SUM, j->dim, j->group);
    return out[0] ? WEFT_OK : weft_last_status();
}

static void check_mlp(weft_group *group)
{
    char text[TEXT];
    job j = {.group = group};
    for (j.dim = 0; j.dim < 2; j.dim++) {
        weft_tensor *in[] = {some(WEFT_F32, j.dim ? WEFT_SHAPE(2, 8, 10) : WEFT_SHAPE(8, 10)),
                             some(WEFT_F32, WEFT_SHAPE(10, 16)),
                             some(WEFT_F32, WEFT_SHAPE(16, 10))};
        weft_graph *graph = captured(mlp, &j, in, 3, 1), *after = fused(graph, text);
        CHECK_CONTAINS(text, "all_gather_matmul");
        CHECK_CONTAINS(text, "matmul_reduce_scatter");
        CHECK(!strstr(text, "all_gather_into_tensor") && !strstr(text, "reduce_scatter_tensor"));
        check_same(graph, after, in, 3, 1);
    }
}

FUNCTION(planned)
{
    const job *j = user;
    out[0] = weft_module_call(j->net, in[0]);
    return out[0] ? WEFT_OK : weft_last_status();
}

/* The same from a plan: what weft_parallelize makes of the layers is fused as it stands, and gives what
 * the collectives and the products give by themselves. */
static void check_plan(weft_group *group)
{
    char text[TEXT];
    static const weft_plan plan[] = {
        {"0", WEFT_PLAN_COLUMN, WEFT_FLOW_SEQUENCE, WEFT_FLOW_USUAL},
        {"2", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_SEQUENCE},
    };
    weft_mesh *mesh = weft_mesh_init(group, DEVICE, WEFT_SHAPE(weft_size(group)), "model");
    job j = {.group = group, .dim = 1};
    j.net = weft_nn_sequential(weft_nn_linear_plain(10, 16), weft_nn_op(weft_relu),
                               weft_nn_linear_plain(16, 10));
    CHECK_OK(weft_module_to(j.net, DEVICE));
    CHECK_OK(weft_parallelize(j.net, mesh, plan, 2, NULL));
    weft_tensor *in[] = {some(WEFT_F32, WEFT_SHAPE(2, 8, 10)),
                         weft_transpose(weft_detach(weft_module_param(j.net, "0.weight")), 0, 1),
                         weft_transpose(weft_detach(weft_module_param(j.net, "2.weight")), 0, 1)};
    weft_tensor *ours = NULL, *right = NULL;
    weft_graph *graph = captured(planned, &j, in, 1, 1);
    CHECK(weft_graph_text(graph, text, TEXT) < TEXT);
    CHECK_CONTAINS(text, "all_gather_matmul");
    CHECK_CONTAINS(text, "matmul_reduce_scatter");
    CHECK(!strstr(text, "all_gather_into_tensor") && !strstr(text, "reduce_scatter_tensor"));
    CHECK_OK(weft_graph_run(graph, in, 1, &ours, 1));
    CHECK_OK(mlp(in, 3, &right, 1, &j));
    weft_tensor *apart = weft_max(weft_abs(weft_sub(ours, weft_detach(right))), NULL, 0, false);
    CHECK(weft_item(apart, 0) < 1e-5);
}

PASS_TEST(test_dtensor_seq_par, 2)
{
    check_mlp(world);
    check_plan(world);
}

/* Gathers and scatters of another group, which no product touches, stay. */
FUNCTION(two_groups)
{
    const job *j = user;
    weft_tensor *y = weft_matmul(weft_all_gather_tensor(in[0], 0, j->group), in[1]);
    weft_tensor *wide = weft_all_gather_tensor(y, 0, j->other);
    wide = weft_div(wide, weft_sum(wide, NULL, 0, false));
    y = weft_matmul(weft_reduce_scatter_tensor(wide, WEFT_SUM, 0, j->other), in[2]);
    out[0] = weft_reduce_scatter_tensor(y, WEFT_SUM, 0, j->group);
    return out[0] ? WEFT_OK : weft_last_status();
}

PASS_TEST(test_extra_collectives, 4)
{
    char text[TEXT];
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "tp,other");
    job j = {.group = group_named_by(world, weft_ranks_mesh_dim(mesh, 0)),
             .other = group_named_by(world, weft_ranks_mesh_dim(mesh, 1))};
    weft_tensor *in[] = {some(WEFT_F32, WEFT_SHAPE(8, 10)), some(WEFT_F32, WEFT_SHAPE(10, 7)),
                         some(WEFT_F32, WEFT_SHAPE(7, 10))};
    weft_graph *graph = captured(two_groups, &j, in, 3, 1), *after = fused(graph, text);
    CHECK_CONTAINS(text, "all_gather_matmul");
    CHECK_CONTAINS(text, "matmul_reduce_scatter");
    weft_i_fuse_match found[64];
    CHECK_INT(weft_i_fuse_find_gathers(after, found), 1);
    CHECK(!strcmp(found[0].group->group.name, weft_group_name(j.other)));
    CHECK_INT(weft_i_fuse_find_scatters(after, found), 1);
    CHECK(!strcmp(found[0].group->group.name, weft_group_name(j.other)));
    check_same(graph, after, in, 3, 1);
}

/* ---- compiled ---- */

/* Output and gradients of a step. */
static void step(weft_compiled *compiled, job *j, weft_tensor *in[3], weft_tensor *result[4])
{
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_set_grad(in[i], NULL));
    CHECK_OK(compiled ? weft_compiled_call(compiled, in, 3, result, 1) : mlp(in, 3, result, 1, j));
    CHECK_OK(weft_backward(weft_sum(weft_mul(result[0], result[0]), NULL, 0, false)));
    for (int i = 0; i < 3; i++)
        result[1 + i] = weft_clone(weft_grad(in[i]));
}

/* Forward and backward of a compiled MLP, with and without the pass, against the eager one. */
RANKS_TEST(test_fuse_compiled, 2)
{
    weft_group *world = join(30000);
    job j = {.group = world};
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    weft_tensor *in[3], *eager[4], *got[4];
    char text[TEXT];
    weft_seed(3 + (uint64_t)rank);
    const weft_shape shapes[] = {WEFT_SHAPE(8, 10), WEFT_SHAPE(10, 16), WEFT_SHAPE(16, 10)};
    for (int i = 0; i < 3; i++) {
        in[i] = some(WEFT_F32, shapes[i]);
        CHECK_OK(weft_require_grad(in[i], true));
    }
    step(NULL, &j, in, eager);
    opts.backend = "c";
    opts.fullgraph = true;
    for (int on = 0; on < 2; on++) {
        weft_fused_rewrite(on);
        weft_compiled *compiled = weft_compile(mlp, &j, &opts);
        for (int times = 0; times < 2; times++) {
            step(compiled, &j, in, got);
            for (int k = 0; k < 4; k++)
                CHECK(weft_allclose(got[k], eager[k], 1e-4, 1e-4, false));
        }
        CHECK(weft_compiled_details(compiled, text, TEXT) < TEXT);
        CHECK(!!strstr(text, "  fused: %") == on);
    }
    weft_fused_rewrite(false);
    leave(world);
}

#ifdef WEFT_TEST_ON_CUDA
/* A compiled function with fused operations as one device graph, by pairs and by pipelines. */
RANKS_TEST(test_fuse_compiled_replayed, 2)
{
    weft_group *world = join(30000);
    weft_stream *stream = weft_stream_current(DEVICE);
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    job j = {.group = world};
    weft_seed(3 + (uint64_t)rank);
    weft_tensor *in[] = {some(WEFT_F32, WEFT_SHAPE(8, 10)), some(WEFT_F32, WEFT_SHAPE(10, 16)),
                         some(WEFT_F32, WEFT_SHAPE(16, 10))};
    opts.backend = "c";
    opts.fullgraph = true;
    weft_fused_rewrite(true);
    for (int way = WEFT_FUSED_PAIR; way <= WEFT_FUSED_PIPELINE; way++) {
        weft_tensor *expected = NULL, *out = NULL;
        weft_fused_use((weft_fused_way)way);
        weft_compiled *compiled = weft_compile(mlp, &j, &opts);
        CHECK_OK(weft_compiled_call(compiled, in, 3, &expected, 1)); /* makes what captures need */
        CHECK_OK(weft_stream_sync(stream, 20000));
        CHECK_OK(weft_capture_begin(stream));
        weft_status status = weft_compiled_call(compiled, in, 3, &out, 1);
        weft_replay *noted = weft_capture_end(stream);
        CHECK_OK(status);
        if (!noted)
            FAIL("%s", weft_last_error());
        for (int times = 0; times < 3; times++) {
            CHECK_OK(weft_fill(out, 0));
            CHECK_OK(weft_replay_run(noted));
            CHECK(weft_allclose(out, expected, 1e-5, 1e-5, false));
        }
        weft_release(noted);
    }
    weft_fused_use(WEFT_FUSED_CHOOSE);
    weft_fused_rewrite(false);
    leave(world);
}
#endif

/* ---- what is left alone ---- */

FUNCTION(awkward)
{
    const job *j = user;
    weft_tensor *a = weft_all_gather_tensor(in[0], 0, j->group);
    out[0] = weft_mm(weft_transpose(in[0], 0, 1), weft_narrow(a, 0, 0, 8)); /* on the right */
    weft_tensor *b = weft_all_gather_tensor(in[0], 0, j->group);
    out[1] = weft_mm(b, weft_narrow(b, 0, 0, 8)); /* by what comes from it */
    weft_tensor *product = weft_mm(in[0], in[0]);
    out[2] = weft_reduce_scatter_tensor(product, WEFT_SUM, 0, j->group);
    out[3] = weft_neg(product); /* the product has another use */
    return out[3] ? WEFT_OK : weft_last_status();
}

PASS_TEST(test_fuse_says_why_not, 2)
{
    char text[TEXT];
    job j = {.group = world};
    weft_tensor *in[] = {some(WEFT_F32, WEFT_SHAPE(8, 8))};
    weft_graph *graph = captured(awkward, &j, in, 1, 4), *after = fused(graph, text);
    CHECK(after == graph && !strstr(text, "matmul_reduce"));
    CHECK_CONTAINS(after->notes, "nothing multiplies its result from the right");
    CHECK_CONTAINS(after->notes, "needs what is computed from it");
    CHECK_CONTAINS(after->notes, "no product that is used here alone");
}

/* Every other reason, each from a function of its own; j->dim says which. */
typedef enum reason {
    FLAT,
    TWO_KINDS,
    TWO_SCALES,
    SUMS_SCALED,
    SUMS_KEPT,
    SUMS_SHORT,
    GATHERED,
    LARGEST,
    OTHER_COLUMNS,
    SCALED_COLUMNS,
    REASONS
} reason;

static const char *const reasons[REASONS] = {
    [FLAT] = "all_gather_into_tensor: it has less than 2 dimensions",
    [TWO_KINDS] = "its products are of two kinds",
    [TWO_SCALES] = "its products scale it differently",
    [SUMS_SCALED] = "the product sums over the gathered dimension, and has scales",
    [SUMS_KEPT] = "the product sums over the gathered dimension, and others use the result",
    [SUMS_SHORT] = "the product sums over the gathered dimension, which is short",
    [GATHERED] = "reduce_scatter_tensor: its product is fused with a gather",
    [LARGEST] = "only sum and avg are fused",
    [OTHER_COLUMNS] = "its product is viewed with other columns",
    [SCALED_COLUMNS] = "it scatters columns of a product that has scales"};

static weft_tensor *scaled(weft_tensor *a, weft_tensor *b, weft_tensor *scale)
{
    return weft_scaled_mm(a, b, scale, scale, NULL, NULL, WEFT_BF16);
}

/* in: f32 [8, 8]; f8 [16, 16]; f8 [32, 16]; two scales. */
static void gather_for(const job *j, weft_tensor *const *in, weft_tensor **out)
{
    bool sums = j->dim >= SUMS_SCALED, wide = j->dim <= SUMS_SCALED;
    weft_tensor *from = j->dim == FLAT ? weft_view(in[0], WEFT_SHAPE(64)) : in[wide ? 1 : 0];
    weft_tensor *a = weft_all_gather_tensor(from, sums, j->group);
    weft_tensor *tall = weft_cat((weft_tensor *[]){in[0], in[0]}, 2, 0);
    out[1] = j->dim == SUMS_KEPT ? a : weft_neg(in[0]);
    if (j->dim == FLAT)
        out[0] = weft_mm(weft_view(a, WEFT_SHAPE(16, 8)), in[0]);
    else if (j->dim == SUMS_SCALED)
        out[0] = scaled(a, in[2], in[3]);
    else
        out[0] = sums ? weft_mm(a, tall) : scaled(a, in[1], in[3]);
    if (j->dim == TWO_KINDS)
        out[1] = weft_mm(a, in[1]);
    else if (j->dim == TWO_SCALES)
        out[1] = scaled(a, in[1], in[4]);
}

static void scatter_for(const job *j, weft_tensor *const *in, weft_tensor **out)
{
    bool columns = j->dim == SCALED_COLUMNS;
    weft_tensor *a = j->dim == GATHERED ? weft_all_gather_tensor(in[0], 0, j->group) : in[0];
    weft_tensor *product = columns ? scaled(in[1], in[1], in[3]) : weft_mm(a, in[0]);
    if (j->dim == OTHER_COLUMNS)
        product = weft_view(product, WEFT_SHAPE(4, 16));
    out[0] = weft_reduce_scatter_tensor(product, j->dim == LARGEST ? WEFT_MAX : WEFT_SUM, columns,
                                        j->group);
    out[1] = weft_neg(in[0]);
}

FUNCTION(refused)
{
    const job *j = user;
    if (j->dim < GATHERED)
        gather_for(j, in, out);
    else
        scatter_for(j, in, out);
    return out[0] && out[1] ? WEFT_OK : weft_last_status();
}

PASS_TEST(test_fuse_says_every_why, 2)
{
    char text[TEXT];
    job j = {.group = world};
    weft_tensor *in[] = {some(WEFT_F32, WEFT_SHAPE(8, 8)), some(WEFT_F8E4M3, WEFT_SHAPE(16, 16)),
                         some(WEFT_F8E4M3, WEFT_SHAPE(32, 16)),
                         weft_full(WEFT_F32, DEVICE, WEFT_SCALAR, 0.1),
                         weft_full(WEFT_F32, DEVICE, WEFT_SCALAR, 0.2)};
    for (j.dim = 0; j.dim < REASONS; j.dim++) {
        weft_graph *graph = captured(refused, &j, in, 5, 2), *after = fused(graph, text);
        CHECK_CONTAINS(after->notes, reasons[j.dim]);
        CHECK((after == graph) == (j.dim != GATHERED)); /* whose gather is fused */
        check_same(graph, after, in, 5, 2);
    }
}

int main(int argc, char **argv)
{
    device_install();
    harness_cache_share();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}

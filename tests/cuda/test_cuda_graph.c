/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/emit/emit_kernel.c, graph/emit/emit_outline.c, graph/emit/emit_element.c,
 * graph/emit/emit_columns.c, graph/emit/emit_row.c, backends/cuda/device/code.c,
 * backends/cuda/device/nvrtc.c, backends/cuda/device/launch.c */
/*
 * Compiled graphs on CUDA devices give the bits of the eager kernels.  On the software driver, whose
 * NVRTC is the C compiler, or on a GPU with WEFT_TEST_CUDA=real.  Without either the sources of all
 * functions here go through the real NVRTC, if there is one.
 */
#include "cuda/op_scene.h"
#include "graph_both.h"
#include "harness_cache.h"

#include "backends/cuda/device/nvrtc.h"
#include "graph/emit/emit.h"
#include "tensor/object/stream.h"
#include "weft/weft.h"

#include <math.h>

enum { INPUTS = 5, OUTPUTS = 4 };

/* ---- functions ---- */

FUNCTION(broadcast)
{
    weft_tensor *x = weft_add(in[0], weft_select(in[1], 0, 1)); /* a row to all rows */
    x = weft_mul(x, weft_unsqueeze(weft_select(in[1], 1, 2), 1));
    out[0] = weft_sub(weft_exp(weft_neg(x)), in[0]);
    out[1] = weft_neg(weft_transpose(weft_add(x, in[0]), 0, 1));
    return WEFT_OK;
}

FUNCTION(angles)
{
    out[0] = weft_mul(weft_sin(weft_mul_scalar(in[0], 1e4)), weft_cos(weft_mul_scalar(in[0], 3)));
    return WEFT_OK;
}

FUNCTION(choices)
{
    weft_tensor *less = weft_lt(in[0], in[1]);
    weft_tensor *zero = weft_full(in[0]->dtype, GPU, weft_tensor_shape(in[0]), -INFINITY);
    out[0] = weft_where(weft_logical_not(less), weft_pow_scalar(in[0], 2), zero);
    out[1] = weft_to_dtype(less, WEFT_I32);
    out[2] = weft_add_scalar(weft_mul(out[1], out[1]), 7);
    out[3] = weft_maximum(weft_to_dtype(in[0], WEFT_F64), weft_to_dtype(in[1], WEFT_F64));
    return WEFT_OK;
}

FUNCTION(counts)
{
    weft_tensor *whole = weft_to_dtype(weft_lt(in[0], in[1]), WEFT_I32);
    int last = 1;
    out[0] = weft_sum(weft_mul_scalar(whole, 3), &last, 1, true);
    out[1] = weft_sub(weft_max(weft_neg(whole), &last, 1, true), out[0]);
    return WEFT_OK;
}

FUNCTION(with_product)
{
    weft_tensor *a = weft_relu(weft_add_scalar(in[0], 1));
    weft_tensor *b = weft_matmul(weft_transpose(a, 0, 1), in[1]);
    out[0] = weft_softmax(weft_mul_scalar(weft_gelu(b), 0.5), -1);
    out[1] = weft_sum(weft_mul(b, b), (int[]){0}, 1, false);
    return WEFT_OK;
}

FUNCTION(layers)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < 3; i++) {
        x = weft_matmul(weft_gelu(weft_add_scalar(x, 1)), in[1]);
        x = weft_softmax(weft_mul_scalar(x, 0.5), -1);
    }
    out[0] = weft_sum(x, (int[]){1}, 1, false);
    return WEFT_OK;
}

typedef struct scenario {
    const char *name;
    weft_graph_function function;
    weft_dtype dtype;
    int64_t rows, length;
    int outs, fused; /* at least */
} scenario;

static const scenario scenarios[] = {
    {"chain f32", chain, WEFT_F32, 7, 65, 1, 1},
    {"chain f32 by four", chain, WEFT_F32, 4, 64, 1, 1},
    {"chain f64", chain, WEFT_F64, 4, 33, 1, 1},
    {"chain bf16", chain, WEFT_BF16, 4, 64, 1, 1},
    {"chain f16", chain, WEFT_F16, 3, 21, 1, 1},
    {"broadcast", broadcast, WEFT_F32, 6, 9, 2, 1},
    {"broadcast by four", broadcast, WEFT_F32, 8, 8, 2, 1},
    {"angles", angles, WEFT_F32, 5, 7, 1, 1},
    {"angles f64", angles, WEFT_F64, 5, 8, 1, 1},
    {"choices", choices, WEFT_F32, 3, 11, 4, 1},
    {"choices f64", choices, WEFT_F64, 3, 12, 4, 1},
    {"by hand 1", by_hand, WEFT_F32, 3, 1, 2, 1},
    {"by hand 5", by_hand, WEFT_F64, 37, 5, 2, 1},
    {"by hand 513", by_hand, WEFT_F32, 3, 513, 2, 1},
    {"by hand bf16", by_hand, WEFT_BF16, 3, 1500, 2, 1},
    {"block 5", block, WEFT_F32, 3, 5, 2, 1},
    {"block 513", block, WEFT_F64, 2, 513, 2, 1},
    {"block 1500", block, WEFT_F32, 2, 1500, 2, 1},
    {"block bf16", block, WEFT_BF16, 2, 24, 2, 1},
    {"counts", counts, WEFT_F32, 5, 20, 2, 1},
    {"product", with_product, WEFT_F32, 16, 24, 2, 2},
    {"layers", layers, WEFT_F32, 64, 64, 1, 4},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

static void make_inputs(const scenario *s, weft_tensor **in)
{
    weft_dtype weight = s->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    weft_seed(3);
    for (int i = 0; i < 2; i++)
        in[i] =
            weft_to(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(s->rows, s->length)), s->dtype, GPU);
    for (int i = 2; i < 4; i++)
        in[i] = weft_to(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(s->length)), weight, GPU);
}

static weft_compiled *compiled[SCENARIOS];

/* Makes the rows of all scenarios, and compiles them together. */
static void compile_all(void)
{
    weft_tensor *in[INPUTS], *out[OUTPUTS];
    weft_i_emit_hold(true);
    for (int i = 0; i < SCENARIOS; i++) {
        compiled[i] = compile(scenarios[i].function, NULL);
        make_inputs(&scenarios[i], in);
        CHECK_STATUS(weft_compiled_call(compiled[i], in, 4, out, scenarios[i].outs),
                     WEFT_ERR_STATE);
        weft_clear_error();
    }
    weft_i_emit_hold(false);
    CHECK(weft_i_emit_build());
}

static void check_scenario(int i)
{
    const scenario *s = &scenarios[i];
    weft_tensor *in[INPUTS], *plain[OUTPUTS], *fast[OUTPUTS];
    make_inputs(s, in);
    CHECK_OK(s->function(in, 4, plain, s->outs, NULL));
    for (int round = 0; round < 2; round++) {
        CHECK_OK(weft_compiled_call(compiled[i], in, 4, fast, s->outs));
        for (int k = 0; k < s->outs; k++)
            check_bits(s->name, plain[k], fast[k]);
    }
    CHECK(weft_compiled_details(compiled[i], text, sizeof text) < TEXT);
    if (count_of(" = fused_") < s->fused)
        FAIL("%s: %d functions of its graph, not %d:\n%s", s->name, count_of(" = fused_"), s->fused,
             text);
}

TEST(test_cuda_graph_bits_are_eager)
{
    begin();
    compile_all();
    for (int i = 0; i < SCENARIOS; i++)
        check_scenario(i);
    CHECK(!strstr(text, "not compiled"));
    CHECK_CONTAINS(text, "values in an arena of "); /* of the last: layers */
    if (strstr(text, "arena of 0 bytes"))
        FAIL("%s", strstr(text, "plan:"));
    end();
}

/* ---- gradients ---- */

FUNCTION(loss)
{
    weft_tensor *h = weft_gelu(weft_add(weft_matmul(in[0], in[1]), in[2]));
    h = weft_layer_norm(h, 1, in[3], in[4], 1e-5);
    out[0] = weft_mean(weft_mul(weft_softmax(h, -1), h), NULL, 0, false);
    return WEFT_OK;
}

TEST(test_cuda_graph_gradients_are_eager)
{
    begin();
    weft_tensor *grads[2][5];
    weft_compiled *fast = compile(loss, NULL);
    for (int way = 0; way < 2; way++) {
        static const int64_t sizes[5][2] = {{6, 10}, {10, 8}, {8, 0}, {8, 0}, {8, 0}};
        weft_tensor *in[5], *out;
        weft_seed(21);
        for (int i = 0; i < 5; i++) {
            weft_shape shape =
                sizes[i][1] ? WEFT_SHAPE(sizes[i][0], sizes[i][1]) : WEFT_SHAPE(sizes[i][0]);
            in[i] = weft_to(weft_randn(WEFT_F32, WEFT_CPU, shape), WEFT_F32, GPU);
            CHECK_OK(weft_require_grad(in[i], true));
        }
        CHECK_OK(way ? weft_compiled_call(fast, in, 5, &out, 1) : loss(in, 5, &out, 1, NULL));
        CHECK_OK(weft_backward(out));
        for (int i = 0; i < 5; i++)
            grads[way][i] = weft_grad(in[i]);
    }
    for (int i = 0; i < 5; i++)
        check_bits("gradient", grads[0][i], grads[1][i]);
    CHECK(weft_compiled_details(fast, text, sizeof text) < TEXT);
    CHECK(count_of(" = fused_") >= 2); /* forward and backward */
    end();
}

FUNCTION(soft_loss)
{
    weft_tensor *a = weft_softmax(weft_mul_scalar(in[0], 0.5), -1);
    weft_tensor *b = weft_log_softmax(weft_mul(in[0], in[0]), -1);
    out[0] = weft_sum(weft_mul(a, b), NULL, 0, false);
    return WEFT_OK;
}

/* The backward of softmax reads two rows; it belongs to a group with what is around it. */
TEST(test_cuda_graph_softmax_gradients)
{
    static const struct {
        weft_dtype dtype;
        int64_t rows, length;
    } cases[] = {{WEFT_F32, 3, 5}, {WEFT_F32, 2, 1500}, {WEFT_F64, 2, 513}, {WEFT_BF16, 3, 24}};
    begin();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        weft_tensor *grads[2], *out;
        weft_compiled *fast = compile(soft_loss, NULL);
        for (int way = 0; way < 2; way++) {
            weft_seed(5);
            weft_tensor *x =
                weft_to(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(cases[k].rows, cases[k].length)),
                        cases[k].dtype, GPU);
            CHECK_OK(weft_require_grad(x, true));
            CHECK_OK(way ? weft_compiled_call(fast, &x, 1, &out, 1)
                         : soft_loss(&x, 1, &out, 1, NULL));
            CHECK_OK(weft_backward(out));
            grads[way] = weft_grad(x);
        }
        check_bits("gradient", grads[0], grads[1]);
        CHECK(weft_compiled_details(fast, text, sizeof text) < TEXT);
        const char *back = strstr(text, "backward: run");
        CHECK(back && strstr(back, " = fused_"));
        CHECK(!strstr(back, "= softmax_grad") && !strstr(back, "= log_softmax_grad"));
        weft_release(fast);
    }
    end();
}

/* ---- the cache and what goes wrong ---- */

typedef struct scaled {
    double by;
} scaled;

FUNCTION(scale)
{
    const scaled *s = user;
    out[0] = weft_add_scalar(weft_mul_scalar(in[0], s->by), 0.5);
    return WEFT_OK;
}

/* Runs a function that nobody has compiled before; how many fused rows it has. */
static int check_scaled(double by)
{
    scaled *s = &(scaled){by};
    weft_tensor *x = weft_to(weft_arange(WEFT_F32, WEFT_CPU, 0, 12, 1), WEFT_F32, GPU);
    weft_tensor *plain, *fast;
    weft_compiled *function = compile(scale, s);
    CHECK_OK(scale(&x, 1, &plain, 1, s));
    CHECK_OK(weft_compiled_call(function, &x, 1, &fast, 1));
    check_bits("scaled", plain, fast);
    CHECK(weft_compiled_details(function, text, sizeof text) < TEXT);
    return count_of(" = fused_");
}

static void cut(const char *path)
{
    if (strstr(path, ".cubin"))
        CHECK_INT(truncate(path, 100), 0);
}

TEST(test_cuda_graph_code_is_cached)
{
    if (scene_is_real())
        SKIP("a driver that counts is wanted");
    begin();
    harness_cache_each(harness_cache_remove);
    CHECK_INT(check_scaled(2), 1);
    CHECK_INT(check_scaled(2), 1); /* the row is there */
    CHECK_INT(model.nvrtc_compiles, 1);
    CHECK_INT(harness_cache_each(NULL), 1);
    end();
    begin(); /* the device was closed: its modules are gone, the file is not */
    CHECK_INT(check_scaled(2), 1);
    CHECK_INT(model.nvrtc_compiles, 0);
    end();
    begin();
    harness_cache_each(cut);
    CHECK_INT(check_scaled(2), 1);
    CHECK_INT(model.nvrtc_compiles, 1);
    CHECK_INT(harness_cache_each(NULL), 1);
    end();
}

TEST(test_cuda_graph_without_compiler)
{
    if (scene_is_real())
        SKIP("a driver with faults is wanted");
    begin();
    weft_compiler_info info;
    CHECK_OK(weft_compiler_describe(&info));
    CHECK_CONTAINS(info.cuda, "NVRTC 13.0");
    model.no_nvrtc = 1;
    CHECK_INT(check_scaled(3), 0);
    CHECK_CONTAINS(text, "not compiled: none: there is no libnvrtc.so");
    CHECK_OK(weft_compiler_describe(&info));
    CHECK_CONTAINS(info.cuda, "none: there is no libnvrtc.so");
    model.no_nvrtc = 0;
    model.nvrtc_version = 118;
    CHECK_INT(check_scaled(4), 0);
    CHECK_CONTAINS(text, "NVRTC 11.8 is too old");
    model.nvrtc_version = 0;
    model.nvrtc_fails = 6;
    CHECK_INT(check_scaled(5), 0);
    CHECK_CONTAINS(text, "as the test wishes");
    model.nvrtc_fails = 0;
    model.fail = "cuModuleLoadData";
    model.fail_at = 1;
    model.fail_with = 2;
    CHECK_INT(check_scaled(6), 0);
    CHECK_CONTAINS(text, "loading compiled functions");
    model.fail = NULL;
    CHECK_INT(check_scaled(7), 1);
    end();
}

/* ---- the real compiler ---- */

#ifndef WEFT_NVRTC_LIBRARY
#define WEFT_NVRTC_LIBRARY "libnvrtc.so"
#endif

static void *find_nvrtc(const char *name)
{
    void *found = weft_i_os_linux.dlopen(name);
    return !found && !strncmp(name, "libnvrtc", 8) ? weft_i_os_linux.dlopen(WEFT_NVRTC_LIBRARY)
                                                   : found;
}

/* What the software driver's compiler took, the real one takes: it needs no GPU. */
static void compile_for_real(const char *source)
{
    weft_i_os table = weft_i_os_linux;
    const weft_i_os *before = weft_i_os_now;
    weft_i_nvrtc_job job = {.source = source,
                            .title = "fused.cu",
                            .what = "the functions here",
                            .major = 9,
                            .minor = 0,
                            .deadline = WEFT_I_NEVER};
    void *code = NULL;
    size_t bytes = 0;
    table.dlopen = find_nvrtc;
    weft_i_os_now = &table;
    weft_status status = weft_i_nvrtc_compile(&job, &code, &bytes);
    WEFT_OS->free(code);
    weft_i_os_now = before;
    if (status < 0)
        FAIL("%s", weft_last_error());
    CHECK(bytes > 1000);
}

TEST(test_cuda_graph_real_nvrtc)
{
    if (scene_is_real())
        SKIP("all tests here go through it");
    if (!find_nvrtc("libnvrtc.so"))
        SKIP("there is no libnvrtc.so");
    begin();
    harness_cache_each(harness_cache_remove);
    compile_all();
    compile_for_real(model_nvrtc_source());
    end();
}

/* ---- captured launches ---- */

TEST(test_cuda_graph_is_captured)
{
    begin();
    scaled s = {1.25};
    weft_tensor *x = weft_to(weft_arange(WEFT_F32, WEFT_CPU, 0, 12, 1), WEFT_F32, GPU), *y, *plain;
    weft_compiled *function = compile(scale, &s);
    CHECK_OK(weft_compiled_call(function, &x, 1, &y, 1));
    weft_stream *stream = weft_stream_current(GPU);
    CHECK_OK(weft_capture_begin(stream));
    CHECK_OK(weft_compiled_call(function, &x, 1, &y, 1));
    weft_replay *replay = weft_capture_end(stream);
    CHECK(replay != NULL);
    CHECK_OK(weft_fill(x, 4));
    CHECK_OK(weft_replay_run(replay));
    CHECK_OK(scale(&x, 1, &plain, 1, &s));
    check_bits("replayed", plain, y);
    end();
}

/* ---- opaque hooks ---- */

static weft_status count_positive(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held;
    int *count = user;
    if (weft_item(weft_sum(*grad, NULL, 0, false), 0) > 0)
        ++*count;
    *grad = weft_mul_scalar(*grad, *count);
    return WEFT_OK;
}

/* It sees the gradient on the GPU, and a stream that captures has no place for it. */
TEST(test_cuda_graph_opaque_hook)
{
    begin();
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = true;
    weft_compiled *back = weft_compile_backward(&opts);
    weft_tensor *x = weft_to(weft_arange(WEFT_F32, WEFT_CPU, 1, 13, 1), WEFT_F32, GPU), *loss;
    int count = 0;
    CHECK_OK(weft_require_grad(x, true));
    for (int i = 0; i < 4; i++) {
        weft_tensor *y = weft_mul(weft_exp(weft_neg(x)), x);
        CHECK(weft_hook_opaque(y, weft_tensor_hook(y, count_positive, &count, WEFT_HOLD())) > 0);
        loss = weft_sum(weft_sin(y), NULL, 0, false);
        weft_stream *stream = weft_stream_current(GPU);
        if (i < 3) {
            CHECK_OK(weft_compiled_backward(back, &loss, 1, NULL));
            CHECK_INT(count, i + 1);
            continue;
        }
        CHECK_OK(weft_capture_begin(stream));
        CHECK_STATUS(weft_compiled_backward(back, &loss, 1, NULL), WEFT_ERR_UNSUPPORTED);
        CHECK_CONTAINS(weft_last_error(), "cannot be captured by a stream");
        weft_release(weft_capture_end(stream));
        weft_clear_error();
        CHECK_INT(count, 3);
    }
    weft_release(back);
    end();
}

/* ---- modules ---- */

FUNCTION(module_loss)
{
    (void)ins;
    weft_tensor *y = weft_module_call(user, in[0]);
    out[0] = weft_mean(weft_mul(y, y), NULL, 0, false);
    return WEFT_OK;
}

/* A module that was made on the CPU runs on the device, compiled and plainly, with its gradients, and
 * comes back as it is then. */
TEST(test_cuda_graph_module_moves)
{
    begin();
    weft_seed(3);
    weft_module *net = weft_nn_sequential(weft_nn_linear(8, 12), weft_nn_op(weft_gelu),
                                          weft_nn_layer_norm(12), weft_nn_linear(12, 4));
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6, 8));
    weft_tensor *weight = weft_module_param(net, "0.weight");
    weft_tensor *before = weft_clone(weft_detach(weight)), *plain, *fast;
    CHECK_OK(module_loss(&x, 1, &plain, 1, net));
    CHECK_OK(weft_backward(plain));
    weft_tensor *slope = weft_clone(weft_grad(weight));
    CHECK_OK(weft_module_to(net, GPU));
    CHECK(weft_module_param(net, "0.weight") == weight);
    CHECK_INT(weft_tensor_device(weight), GPU);
    check_bits("weight", weft_to(weft_detach(weight), WEFT_F32, WEFT_CPU), before);
    check_bits("gradient", weft_to(weft_grad(weight), WEFT_F32, WEFT_CPU), slope);
    x = weft_to(x, WEFT_F32, GPU);
    CHECK_OK(weft_set_grad(weight, NULL));
    CHECK_OK(module_loss(&x, 1, &plain, 1, net));
    CHECK_OK(weft_backward(plain));
    slope = weft_clone(weft_grad(weight));
    CHECK_OK(weft_set_grad(weight, NULL));
    weft_compiled *step = compile(module_loss, net);
    CHECK_OK(weft_compiled_call(step, &x, 1, &fast, 1));
    check_bits("loss", weft_detach(fast), weft_detach(plain));
    CHECK_OK(weft_backward(fast));
    check_bits("gradient", weft_grad(weight), slope);
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_copy(weight, weft_mul_scalar(weight, 2)));
    }
    CHECK_OK(weft_module_to(net, WEFT_CPU));
    check_bits("weight", weft_detach(weight), weft_mul_scalar(before, 2));
    weft_release(step);
    end();
}

int main(int argc, char **argv)
{
    setenv("WEFT_CC_TIMEOUT", "300000", 0);
    harness_cache_open();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sample call for every row of the registry that needs no group.  The tests of dispatch, of
 * gradients and of CUDA columns walk them.
 */
#ifndef WEFT_TESTS_OP_SAMPLES_H
#define WEFT_TESTS_OP_SAMPLES_H

#include "harness.h"

#include "tensor/op/op.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

enum { SAMPLE_TENSORS = 7 };

/* Letters of the inputs: what make_input builds. */
typedef struct sample {
    const char *op;
    const char *inputs; /* f [2,3] f32; h its bf16; t transposed [2,3]; i [2,3] i64 of 0 1; j its
                           first column; l its f64; e f as f8e4m3; E m as f8e4m3; b [2,3] bool; w [3]; m [3,4]; c [2,3,4]; d [2,4,3]; z 0-d
                           f32; I i32 [3]; L list of f and t;
                           x [3,32] f32, its codes of 8 bits k and of 4 bits K, their scales s */
    weft_i_arg rest[8];
} sample;

static const int64_t sizes_6[] = {6}, sizes_23[] = {2, 3}, sizes_32[] = {3, 2},
                     sizes_423[] = {4, 2, 3}, turn[] = {1, 0}, strides_23[] = {4, 1},
                     window[] = {1, 2}, dim_0[] = {0}, dim_01[] = {0, 1}, sizes_3[] = {3},
                     step_2[] = {2}, sizes_2[] = {2}, dim_1[] = {1}, dim_02[] = {0, 2},
                     turn_3[] = {2, 0, 1};
#define I(x_)      WEFT_I_INTEGER_ARG(x_)
#define N(x_)      WEFT_I_NUMBER_ARG(x_)
#define IS(x_, n_) WEFT_I_INTEGERS_ARG(x_, n_)

static const sample samples[] = {
    {"empty", "", {I(WEFT_F16), I(0), IS(sizes_23, 2)}},
    {"empty_strided", "", {I(WEFT_I8), I(0), IS(sizes_23, 2), IS(strides_23, 2)}},
    {"full", "", {I(WEFT_BF16), I(0), IS(sizes_23, 2), N(3)}},
    {"arange", "", {I(WEFT_F32), I(0), N(0), N(7), N(2)}},
    {"view", "f", {IS(sizes_6, 1)}},
    {"view_dtype", "f", {I(WEFT_U8)}},
    {"view_dtype", "f", {I(WEFT_F32)}},
    {"permute", "t", {IS(turn, 2)}},
    {"permute", "c", {IS(turn_3, 3)}},
    {"expand", "f", {IS(sizes_423, 3)}},
    {"slice", "t", {I(1), I(0), I(3), I(2)}},
    {"select", "t", {I(-1), I(1)}},
    {"as_strided", "f", {IS(sizes_32, 2), IS(window, 2), I(0)}},
    {"as_strided", "f", {IS(sizes_2, 1), IS(step_2, 1), I(1)}},
    {"detach", "t", {{0}}},
    {"data", "t", {{0}}},
    {"version", "t", {{0}}},
    {"set_version", "t", {N(3)}},
    {"fill", "t", {N(3)}},
    {"copy", "tw", {{0}}},
    {"set", "ft", {{0}}},
    {"resize_storage", "f", {I(100)}},
    {"clone", "t", {{0}}},
    {"contiguous", "t", {{0}}},
    {"to", "t", {I(WEFT_BF16), I(0)}},
    {"cat", "L", {I(1)}},
    {"uniform", "t", {N(0), N(1)}},
    {"normal", "t", {N(0), N(1)}},
    {"integers", "i", {I(0), I(9)}},
    {"neg", "t", {{0}}},
    {"abs", "i", {{0}}},
    {"abs", "t", {{0}}},
    {"relu", "f", {{0}}},
    {"sin", "i", {{0}}},
    {"sin", "f", {{0}}},
    {"cos", "f", {{0}}},
    {"exp", "h", {{0}}},
    {"log", "f", {{0}}},
    {"tanh", "t", {{0}}},
    {"erf", "h", {{0}}},
    {"sqrt", "f", {{0}}},
    {"rsqrt", "f", {{0}}},
    {"sigmoid", "t", {{0}}},
    {"silu", "h", {{0}}},
    {"silu", "f", {{0}}},
    {"gelu", "h", {{0}}},
    {"gelu_tanh", "f", {{0}}},
    {"gelu_grad", "ft", {{0}}},
    {"gelu_tanh_grad", "hf", {{0}}},
    {"silu_grad", "ft", {{0}}},
    {"add", "tw", {{0}}},
    {"add", "h", {N(1)}},
    {"add", "i", {N(0.5)}},
    {"sub", "iw", {{0}}},
    {"sub", "wf", {{0}}},
    {"mul", "tt", {{0}}},
    {"mul", "hz", {{0}}},
    {"div", "ii", {{0}}},
    {"div", "tw", {{0}}},
    {"div", "f", {N(3)}},
    {"pow", "fi", {{0}}},
    {"pow", "tw", {{0}}},
    {"pow", "f", {N(2.5)}},
    {"pow", "f", {N(2)}},
    {"maximum", "bI", {{0}}},
    {"maximum", "tw", {{0}}},
    {"maximum", "f", {N(1.1)}},
    {"minimum", "ht", {{0}}},
    {"minimum", "wf", {{0}}},
    {"eq", "it", {{0}}},
    {"ne", "f", {N(2)}},
    {"lt", "hh", {{0}}},
    {"le", "ti", {{0}}},
    {"gt", "bb", {{0}}},
    {"ge", "tt", {{0}}},
    {"logical_not", "f", {{0}}},
    {"logical_and", "fb", {{0}}},
    {"logical_or", "ib", {{0}}},
    {"logical_xor", "bb", {{0}}},
    {"where", "bfh", {{0}}},
    {"where", "bt", {N(0)}},
    {"where", "bwt", {{0}}},
    {"sum", "t", {IS(dim_0, 1), I(0)}},
    {"sum", "h", {IS(NULL, 0), I(1)}},
    {"sum", "c", {IS(dim_02, 2), I(0)}},
    {"mean", "h", {IS(dim_01, 2), I(0)}},
    {"prod", "i", {IS(dim_0, 1), I(1)}},
    {"prod", "t", {IS(dim_1, 1), I(0)}},
    {"prod", "c", {IS(dim_02, 2), I(1)}},
    {"prod", "w", {IS(NULL, 0), I(0)}},
    {"max", "t", {IS(dim_0, 1), I(1)}},
    {"max", "c", {IS(dim_02, 2), I(0)}},
    {"min", "b", {IS(NULL, 0), I(0)}},
    {"min", "t", {IS(NULL, 0), I(0)}},
    {"any", "f", {IS(dim_0, 1), I(0)}},
    {"all", "b", {IS(dim_0, 1), I(0)}},
    {"argmax", "t", {IS(dim_0, 1), I(0)}},
    {"argmin", "h", {IS(NULL, 0), I(0)}},
    {"mm", "fm", {{0}}},
    {"bmm", "cd", {{0}}},
    {"linear", "ft", {{0}}},
    {"quantize", "x", {I(8), I(32)}},
    {"quantize", "x", {I(4), I(32)}},
    {"dequantize", "ks", {I(WEFT_F32)}},
    {"dequantize", "Ks", {I(WEFT_BF16)}},
    {"quantized_linear", "xks", {{0}}},
    {"quantized_linear", "xKs", {{0}}},
    {"scaled_mm", "eEzz", {{0}, {0}, I(WEFT_BF16)}},
    {"attention", "ccc", {{0}, N(0), {0}, I(1), N(0.5), N(0)}},
    {"attention_grad",
     "clclccc", /* lse_grad, f64, is the second */
     {{0}, N(0), {0}, I(1), N(0.5), N(0), I(0)}},
    {"linear_cross_entropy", "mmI", {I(-100), N(0.1), N(0.01), I(0), I(0)}},
    {"softmax", "t", {I(0)}},
    {"log_softmax", "h", {I(-1)}},
    {"softmax_grad", "ft", {I(0)}},
    {"log_softmax_grad", "tf", {I(-1)}},
    {"layer_norm", "c", {I(2), {0}, {0}, N(1e-3)}},
    {"layer_norm", "fww", {N(1e-5)}}, /* dims: inserted by call_sample */
    {"embedding", "mI", {{0}}},
    {"layer_norm_grad", "ftw", {N(1e-5), I(1)}}, /* dims: inserted by call_sample */
    {"embedding_grad", "mI", {I(5)}},
    {"take_along", "fi", {I(1)}},
    {"take_along", "fj", {{0}}}, /* dim: inserted by call_sample */
    {"scatter_add", "tit", {I(0)}},
    {"scatter_add", "tjt", {{0}}},
    {"sort", "t", {I(1), I(1)}},
    {"topk", "t", {I(0), I(1), I(0)}},
    {"topk", "c", {I(-1), I(2), I(1)}},
    {"cumsum", "t", {I(1), I(0)}},
    {"cumsum", "i", {I(0), I(1)}},
    {"index_copy_", "fIt", {{0}}}, /* dim: inserted by call_sample */
    {"view_scatter", "tw", {IS(sizes_3, 1), IS(step_2, 1), I(1)}},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static weft_tensor *make_input(char letter)
{
    weft_tensor *f =
        weft_add_scalar(weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 6, 1), WEFT_SHAPE(2, 3)), 0.5);
    switch (letter) {
    case 'f':
        return f;
    case 'h':
        return weft_to_dtype(f, WEFT_BF16);
    case 't':
        return weft_transpose(weft_contiguous(weft_transpose(f, 0, 1)), 0, 1);
    case 'i':
        return weft_to_dtype(weft_gt_scalar(f, 2), WEFT_I64);
    case 'j':
        return weft_narrow(weft_to_dtype(weft_gt_scalar(f, 2), WEFT_I64), 1, 0, 1);
    case 'b':
        return weft_gt_scalar(f, 2);
    case 'l':
        return weft_to_dtype(f, WEFT_F64);
    case 'e':
        return weft_to_dtype(f, WEFT_F8E4M3);
    case 'E':
        return weft_to_dtype(make_input('m'), WEFT_F8E4M3);
    case 'w':
        return weft_arange(WEFT_F32, WEFT_CPU, 1, 4, 1);
    case 'I':
        return weft_arange(WEFT_I32, WEFT_CPU, 0, 3, 1);
    case 'x':
        return weft_view(weft_arange(WEFT_F32, WEFT_CPU, -40, 56, 1), WEFT_SHAPE(3, 32));
    case 'k':
        return weft_to_dtype(make_input('x'), WEFT_I8);
    case 'K':
        return weft_to_dtype(weft_add_scalar(weft_narrow(make_input('x'), 1, 0, 16), 50), WEFT_U8);
    case 's':
        return weft_view(weft_arange(WEFT_F32, WEFT_CPU, 1, 4, 1), WEFT_SHAPE(3, 1));
    case 'm':
        return weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 12, 1), WEFT_SHAPE(3, 4));
    case 'c':
        return weft_view(weft_arange(WEFT_F64, WEFT_CPU, 0, 24, 1), WEFT_SHAPE(2, 3, 4));
    case 'd':
        return weft_view(weft_arange(WEFT_F64, WEFT_CPU, 0, 24, 1), WEFT_SHAPE(2, 4, 3));
    default:
        return weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, 2);
    }
}

/* The inputs of a sample, on the CPU, or on another device with equal layouts. */
typedef struct inputs {
    int count;
    weft_tensor *at[SAMPLE_TENSORS], *list[2];
} inputs;

static weft_tensor *on(weft_tensor *x, weft_device device)
{
    if (device == WEFT_CPU)
        return x;
    weft_tensor *there = weft_empty_strided(x->dtype, device, weft_i_tensor_shape(x), x->stride);
    if (device != WEFT_META && there)
        CHECK_OK(weft_copy(there, x));
    return weft_i_untouched(there);
}

__attribute__((unused)) static inputs make_inputs(const sample *s, weft_device device)
{
    inputs in = {0};
    if (*s->inputs == 'L') {
        in.list[0] = on(make_input('f'), device);
        in.list[1] = on(make_input('t'), device);
    } else {
        for (const char *letter = s->inputs; *letter; letter++)
            in.at[in.count++] = on(make_input(*letter), device);
    }
    return in;
}

/* The arguments of a call of the sample's row, from the inputs and the rest of the sample. */
static void fill_args(const sample *s, const inputs *in, weft_device device,
                      weft_i_arg args[WEFT_I_OP_ARGS])
{
    const weft_i_op *op = weft_i_op_find(s->op);
    int n = 0, rest = 0, total = weft_i_op_param_count(op);
    if (in->list[0])
        args[n++] = WEFT_I_TENSORS_ARG(in->list, 2);
    for (int i = 0; i < in->count; i++) {
        args[n++] = WEFT_I_TENSOR_ARG(in->at[i]);
        if (op->kinds[n] == 'i' && i + 1 < in->count)
            args[n++] = I(1);
    }
    while (n < total)
        args[n++] = s->rest[rest++];
    for (int i = 0; i < total; i++)
        if (op->kinds[i] == 'v')
            args[i] = I(device);
}

__attribute__((unused)) static weft_tensor *call_sample(const sample *s, const inputs *in,
                                                        weft_device device)
{
    const weft_i_op *op = weft_i_op_find(s->op);
    weft_i_arg args[WEFT_I_OP_ARGS] = {{0}};
    weft_tensor *outs[4] = {NULL};
    fill_args(s, in, device, args);
    if (op->results > 1)
        return weft_i_op_apply_list(op, outs, args) < 0 ? NULL : outs[0];
    return weft_i_op_apply(op, NULL, args);
}

#endif

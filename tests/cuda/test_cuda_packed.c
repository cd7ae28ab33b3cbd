/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/tensor/pointwise.c, backends/cuda/kernels/packed.h */
/*
 * Element-wise operations on operands that lie packed and aligned (kernels/packed.h): the bits of
 * the CPU for every operation, at sizes that end inside a vector, a block and a chunk of blocks, and
 * at places that just miss an alignment.  On the software driver, or on a GPU with
 * WEFT_TEST_CUDA=real.
 */
#include "cuda/op_scene.h"

#include "kernels/vector/pointwise.h"
#include "tensor/op/ops.h"

static const weft_dtype floats[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
enum { FLOATS = sizeof floats / sizeof *floats };

/* Every kind of value: NaN, infinities, zeros of both signs, large and small ones. */
static weft_tensor *values(weft_dtype dtype, int64_t n, int seed)
{
    static const double specials[] = {0.0, -0.0, 1,  -1,   INFINITY, -INFINITY, NAN,      0.5,
                                      17,  -17,  20, 1e-6, -1e-6,    88.8,      0x1p-149, -13.5};
    enum { SPECIALS = sizeof specials / sizeof *specials };
    weft_tensor *wide = weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(n));
    double *at = (double *)(void *)weft_i_tensor_data(wide);
    for (int64_t i = 0; i < n; i++) {
        uint64_t mixed = (uint64_t)(i + seed) * 0x9e3779b97f4a7c15u;
        at[i] = i % 40 == seed ? specials[mixed >> 60 & (SPECIALS - 1)]
                               : (double)(int64_t)mixed * 0x1p-63 * 6;
    }
    return weft_to_dtype(wide, dtype);
}

static weft_tensor *apply(const weft_i_op *op, weft_tensor *a, weft_tensor *b)
{
    weft_i_arg args[3] = {WEFT_I_TENSOR_ARG(a), WEFT_I_TENSOR_ARG(b)};
    return weft_i_op_apply(op, NULL, args);
}

static void check_operation(const weft_i_op *op, weft_dtype dtype, int64_t n)
{
    char what[96];
    weft_tensor *a = values(dtype, n, 3), *b = values(dtype, n, 11);
    weft_tensor *u = there(a), *v = there(b);
    double slack = scene.real && !strcmp(op->name, "pow") ? dtype == WEFT_F32 ? 1e-6 : 1e-2 : 0;
    snprintf(what, sizeof what, "%s of %lld %s", op->name, (long long)n, weft_dtype_name(dtype));
    check_near(what, apply(op, u, v), apply(op, a, b), slack);
}

TEST(test_cuda_packed_every_operation)
{
    static const int64_t sizes[] = {1, 8, 23, 200};
    begin();
    for (weft_i_op_table *table = weft_i_op_tables(); table; table = table->next)
        for (size_t i = 0; i < table->count; i++) {
            const weft_i_op *op = table->rows[i];
            if (op->run[0] != weft_i_pointwise_run || !strcmp(op->name, "where"))
                continue;
            for (int k = 0; k < FLOATS * 4; k++) {
                CHECK_OK(weft_scope_open());
                check_operation(op, floats[k % FLOATS], sizes[k / FLOATS]);
                CHECK_OK(weft_scope_close());
            }
        }
    end();
}

/* Numbers, operands that are the result, and places that are not aligned; what lies around a result
 * stays as it is. */
TEST(test_cuda_packed_operands)
{
    enum { N = 333 };
    begin();
    for (int d = 0; d < FLOATS; d++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *a = values(floats[d], N, 1), *b = values(floats[d], N, 2);
        weft_tensor *u = there(a), *v = there(b);
        check_same("a number behind", weft_mul_scalar(u, 3), weft_mul_scalar(a, 3));
        check_same("a number ahead", weft_scalar_sub(2, u), weft_scalar_sub(2, a));
        for (int from = 0; from <= 8; from++) {
            weft_tensor *x = weft_slice(a, 0, from, N - 8 + from, 1);
            weft_tensor *y = weft_slice(u, 0, from, N - 8 + from, 1);
            weft_tensor *here = weft_zeros(floats[d], WEFT_CPU, WEFT_SHAPE(N));
            weft_tensor *far = weft_zeros(floats[d], GPU, WEFT_SHAPE(N));
            int64_t to = from % 3 * 8;
            CHECK_OK(weft_add_into(weft_slice(here, 0, to % 9, to % 9 + N - 8, 1), x,
                                   weft_slice(b, 0, 0, N - 8, 1)));
            CHECK_OK(weft_add_into(weft_slice(far, 0, to % 9, to % 9 + N - 8, 1), y,
                                   weft_slice(v, 0, 0, N - 8, 1)));
            check_same("places", far, here);
        }
        CHECK_OK(weft_add_into(u, u, v));
        CHECK_OK(weft_add_into(a, a, b));
        check_same("in place", u, a);
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* Bytes of truth other than 1 are true too. */
static weft_tensor *truth(int64_t n, int64_t gap)
{
    weft_tensor *bytes = weft_zeros(WEFT_BOOL, WEFT_CPU, WEFT_SHAPE(n + gap));
    uint8_t *at = (uint8_t *)weft_i_tensor_data(bytes);
    static const uint8_t some[] = {0, 1, 0, 0x80, 0xff, 0, 0, 2};
    for (int64_t i = 0; i < n + gap; i++)
        at[i] = some[(uint64_t)i * 0x9e3779b97f4a7c15u >> 61];
    return bytes;
}

TEST(test_cuda_packed_where)
{
    static const int64_t sizes[] = {1, 8, 23, 200, 1000};
    begin();
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++)
        for (int k = 0; k < 10; k++) {
            weft_dtype dtype = (weft_dtype)d;
            int64_t n = sizes[k / 2], gap = k % 2; /* a gap: truth is not aligned */
            CHECK_OK(weft_scope_open());
            weft_tensor *a = bumpy(dtype, n, false), *b = bumpy(dtype, n + 1, false);
            b = weft_clone(weft_slice(b, 0, 1, n + 1, 1));
            weft_tensor *m = truth(n, gap), *w = weft_slice(there(m), 0, gap, n + gap, 1);
            m = weft_slice(m, 0, gap, n + gap, 1);
            weft_tensor *u = there(a), *v = there(b);
            check_same("where", weft_where(w, u, v), weft_where(m, a, b));
            CHECK_OK(weft_scope_close());
        }
    end();
}

/* The table of gelu has every bf16, whichever way its value is found: all 65536 are compared. */
TEST(test_cuda_packed_gelu_table)
{
    enum { ALL = 65536, REST = 5 };
    weft_i_cuda_stream *stream;
    begin_with(16);
    weft_tensor *x = weft_zeros(WEFT_U16, WEFT_CPU, WEFT_SHAPE(ALL + REST));
    for (int i = 0; i < ALL + REST; i++)
        ((uint16_t *)(void *)weft_i_tensor_data(x))[i] = (uint16_t)i;
    x = weft_view_dtype(x, WEFT_BF16);
    weft_tensor *u = there(x), *far = weft_zeros(WEFT_BF16, GPU, WEFT_SHAPE(ALL + REST));
    CHECK_OK(weft_i_cuda_current(GPU, &stream));
    weft_k_packed c = {.bytes = 2 * (ALL + REST),
                       .to = weft_i_cuda_data(far),
                       .from = {weft_i_cuda_data(u)},
                       .op = WEFT_I_POINTWISE_gelu,
                       .inputs = 1};
    CHECK_OK(weft_i_cuda_launch_blocks(stream, WEFT_I_CUDA_gelu_bf16, 3, &c));
    check_same("gelu by its table", far, weft_gelu(x));
    check_same("gelu by arithmetic", weft_gelu(u), weft_gelu(x));
    end();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/tensor/normalize.c, backends/cuda/kernels/held.h,
 * backends/cuda/kernels/turn.h */
/*
 * Rows that a block holds in its registers (kernels/held.h) and copies that turn (kernels/turn.h),
 * bit by bit as the CPU's.  On the software driver a block has up to 64 threads here, which hold 8
 * units; on a GPU (WEFT_TEST_CUDA=real) it has 256 and holds rows of 16384 elements.
 */
#include "cuda/op_scene.h"

static const weft_dtype held[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
enum { HELD = sizeof held / sizeof *held };

/* The way that is tested must be taken: a block that holds no row would leave it to another. */
static void check_held(weft_i_cuda_kernel kernel, int64_t length)
{
    weft_i_cuda_stream *stream;
    CHECK_OK(weft_i_cuda_current(GPU, &stream));
    uint32_t span = 1;
    while (span * WEFT_K_BLOCK < length)
        span *= 2;
    CHECK(weft_i_cuda_held_rows(stream, kernel, span) > 0);
}

/* Lengths with a part of a unit, an odd number of units, whole or not, and one row alone. */
static const int64_t lengths[] = {2, 14, 16, 18, 510, 512, 514, 1400, 1536, 2562, 4096};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static weft_tensor *rows_of(weft_dtype dtype, int64_t rows, int64_t length)
{
    return weft_view(bumpy(dtype, rows * length, false), WEFT_SHAPE(rows, length));
}

TEST(test_cuda_held_softmax)
{
    begin_with(64);
    for (int i = 0; i < HELD * LENGTHS; i++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = rows_of(held[i % HELD], 5, lengths[i / HELD]), *u = there(x);
        check_held(WEFT_I_CUDA_softmax_f32, lengths[i / HELD]);
        check_same("softmax", weft_softmax(u, 1), weft_softmax(x, 1));
        check_same("log_softmax", weft_log_softmax(u, 1), weft_log_softmax(x, 1));
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* Rows with NaN, with infinities of both signs, of infinities alone, and of one number. */
TEST(test_cuda_held_softmax_of_what_is_not_finite)
{
    begin_with(64);
    for (int d = 0; d < HELD; d++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6, 1100), -2);
        float *at = (float *)(void *)weft_i_tensor_data(x);
        at[700] = NAN;
        at[1100 + 3] = INFINITY;
        at[2200 + 1099] = -INFINITY;
        for (int i = 0; i < 1100; i++)
            at[3300 + i] = -INFINITY;
        at[4400 + 512] = 80;
        x = weft_to_dtype(x, held[d]);
        weft_tensor *u = there(x);
        check_same("softmax", weft_softmax(u, 1), weft_softmax(x, 1));
        check_same("log_softmax", weft_log_softmax(u, 1), weft_log_softmax(x, 1));
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* Which sign the largest has, where it is zero, shows in a logarithm that is zero. */
TEST(test_cuda_held_softmax_of_zeros)
{
    begin_with(64);
    for (int d = 0; d < HELD; d++)
        for (int k = 0; k < 4; k++) {
            CHECK_OK(weft_scope_open());
            weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 1024), -INFINITY);
            float *at = (float *)(void *)weft_i_tensor_data(x);
            at[5] = k & 1 ? -0.0f : 0.0f;
            at[1024 + 7] = -0.0f;
            at[1024 + 40 + 16 * k] = 0.0f;
            x = weft_to_dtype(x, held[d]);
            check_same("softmax", weft_softmax(there(x), 1), weft_softmax(x, 1));
            check_same("log_softmax", weft_log_softmax(there(x), 1), weft_log_softmax(x, 1));
            CHECK_OK(weft_scope_close());
        }
    end();
}

TEST(test_cuda_held_layer_norm)
{
    begin_with(64);
    for (int i = 0; i < HELD * LENGTHS; i++) {
        CHECK_OK(weft_scope_open());
        int64_t n = lengths[i / HELD];
        weft_tensor *x = rows_of(held[i % HELD], 5, n), *u = there(x);
        weft_tensor *w = bumpy(WEFT_F32, n, false), *b = bumpy(held[i % HELD], n, false);
        check_held(WEFT_I_CUDA_layer_f32, n);
        check_same("layer_norm", weft_layer_norm(u, 1, NULL, NULL, 1e-5),
                   weft_layer_norm(x, 1, NULL, NULL, 1e-5));
        check_same("layer_norm, weight", weft_layer_norm(u, 1, there(w), NULL, 1e-5),
                   weft_layer_norm(x, 1, w, NULL, 1e-5));
        check_same("layer_norm, both", weft_layer_norm(u, 1, there(w), there(b), 1e-5),
                   weft_layer_norm(x, 1, w, b, 1e-5));
        weft_tensor *odd = bumpy(WEFT_F32, n + 1, false); /* pairs of it are not aligned */
        check_same("layer_norm, odd weight",
                   weft_layer_norm(u, 1, weft_slice(there(odd), 0, 1, n + 1, 1), NULL, 1e-5),
                   weft_layer_norm(x, 1, weft_slice(odd, 0, 1, n + 1, 1), NULL, 1e-5));
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* Also sums of several nodes, and rows with gaps between them. */
TEST(test_cuda_held_sums)
{
    static const int last = 1, both[] = {0, 1};
    begin_with(64);
    for (int i = 0; i < HELD * LENGTHS; i++) {
        CHECK_OK(weft_scope_open());
        int64_t n = lengths[i / HELD];
        weft_tensor *x = rows_of(held[i % HELD], 5, n), *u = there(x);
        check_held(WEFT_I_CUDA_sums_f32, n);
        check_same("sum", weft_sum(u, &last, 1, false), weft_sum(x, &last, 1, false));
        check_same("mean", weft_mean(u, &last, 1, true), weft_mean(x, &last, 1, true));
        check_same("sum of all", weft_sum(u, both, 2, false), weft_sum(x, both, 2, false));
        weft_tensor *part = weft_slice(x, 1, 0, n / 2 / 2 * 2, 1);
        check_same("sum of parts", weft_sum(there(part), &last, 1, false),
                   weft_sum(part, &last, 1, false));
        CHECK_OK(weft_scope_close());
    }
    weft_tensor *many = rows_of(WEFT_BF16, 3, 40000);
    check_same("sum of nodes", weft_sum(there(many), &last, 1, false),
               weft_sum(many, &last, 1, false));
    end();
}

/* A sum of negative zeros is zero: lanes begin with 0. */
TEST(test_cuda_held_sums_of_negative_zeros)
{
    static const int last = 1;
    begin_with(64);
    for (int d = 0; d < HELD; d++) {
        weft_tensor *x = weft_full(held[d], WEFT_CPU, WEFT_SHAPE(2, 1030), -0.0);
        weft_tensor *sum = weft_sum(there(x), &last, 1, false);
        check_same("sum", sum, weft_sum(x, &last, 1, false));
    }
    end();
}

/* -- copies that turn -- */

static void check_turn(weft_tensor *x, int a, int b)
{
    weft_tensor *u = there(x);
    check_same("a turned copy", weft_contiguous(weft_transpose(u, a, b)),
               weft_contiguous(weft_transpose(x, a, b)));
    weft_tensor *back = weft_empty_like(weft_contiguous(weft_transpose(u, a, b)));
    CHECK_OK(weft_copy(back, weft_transpose(u, a, b)));
    CHECK_OK(weft_copy(u, weft_transpose(back, a, b)));
    check_same("turned twice", u, x);
}

TEST(test_cuda_held_turns)
{
    static const weft_dtype dtypes[] = {WEFT_U8, WEFT_BF16, WEFT_F32, WEFT_F64, WEFT_I64};
    begin_with(7);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        CHECK_OK(weft_scope_open());
        check_turn(rows_of(dtypes[d], 16, 16), 0, 1);
        check_turn(rows_of(dtypes[d], 64, 64), 0, 1);
        check_turn(rows_of(dtypes[d], 65, 131), 0, 1);
        check_turn(rows_of(dtypes[d], 15, 200), 0, 1); /* too narrow for tiles */
        weft_tensor *x = weft_view(bumpy(dtypes[d], 3 * 40 * 70, false), WEFT_SHAPE(3, 40, 70));
        check_turn(x, 1, 2);
        check_turn(weft_view(x, WEFT_SHAPE(40, 3, 70)), 0, 2);
        check_turn(weft_slice(x, 2, 3, 60, 1), 1, 2);
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* Whole tiles, of which rows begin at multiples of 16 bytes, or just not. */
TEST(test_cuda_held_turns_of_whole_tiles)
{
    static const weft_dtype dtypes[] = {WEFT_BF16, WEFT_F32, WEFT_I16};
    begin_with(48);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        CHECK_OK(weft_scope_open());
        check_turn(rows_of(dtypes[d], 64, 192), 0, 1);
        check_turn(rows_of(dtypes[d], 192, 64), 0, 1);
        weft_tensor *x = weft_view(bumpy(dtypes[d], 2 * 64 * 140, false), WEFT_SHAPE(2, 64, 140));
        check_turn(weft_slice(x, 2, 8, 136, 1), 1, 2);
        check_turn(weft_slice(x, 2, 1, 129, 1), 1, 2);
        check_turn(weft_slice(weft_view(x, WEFT_SHAPE(64, 2, 140)), 2, 0, 128, 1), 0, 2);
        CHECK_OK(weft_scope_close());
    }
    end();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

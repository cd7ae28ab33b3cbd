/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/print.c */
#include "harness.h"

#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

static const char *text(weft_tensor *x)
{
    static char out[8192];
    int n = weft_tensor_text(x, out, sizeof out);
    return n < 0 ? weft_last_error() : out;
}

static void check_text(weft_tensor *x, const char *expected)
{
    if (strcmp(text(x), expected))
        FAIL("\n%s\nnot\n%s", text(x), expected);
}

TEST(test_print_matrices)
{
    check_text(weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 6, 1), WEFT_SHAPE(2, 3)),
               "tensor([[0., 1., 2.],\n        [3., 4., 5.]], dtype=f32)");
    check_text(weft_transpose(
                   weft_view(weft_arange(WEFT_I64, WEFT_CPU, 8, 12, 1), WEFT_SHAPE(2, 2)), 0, 1),
               "tensor([[ 8, 10],\n        [ 9, 11]], dtype=i64)");
    check_text(weft_view(weft_arange(WEFT_U8, WEFT_CPU, 0, 4, 1), WEFT_SHAPE(2, 1, 2)),
               "tensor([[[0, 1]],\n\n        [[2, 3]]], dtype=u8)");
}

TEST(test_print_numbers)
{
    float values[] = {0.5f, -12.25f, NAN, INFINITY};
    check_text(weft_tensor_from(WEFT_F32, WEFT_SHAPE(4), values),
               "tensor([  0.5000, -12.2500,      nan,      inf], dtype=f32)");
    check_text(weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(1), 1e10),
               "tensor([1.0000e+10], dtype=f64)");
    check_text(weft_full(WEFT_BF16, WEFT_CPU, WEFT_SCALAR, 3), "tensor(3., dtype=bf16)");
    check_text(weft_gt_scalar(weft_arange(WEFT_F32, WEFT_CPU, 0, 2, 1), 0),
               "tensor([false,  true], dtype=bool)");
    check_text(weft_full(WEFT_U64, WEFT_CPU, WEFT_SHAPE(1), 0x1p63),
               "tensor([9223372036854775808], dtype=u64)");
}

/* All elements decide how numbers look, not only those of the first row or the first of all. */
TEST(test_print_looks_at_all)
{
    double values[] = {1, 2, 3, 4.5, 1e9, 6};
    check_text(weft_tensor_from(WEFT_F64, WEFT_SHAPE(2), values + 2),
               "tensor([3.0000, 4.5000], dtype=f64)");
    check_text(weft_tensor_from(WEFT_F64, WEFT_SHAPE(2, 2), values),
               "tensor([[1.0000, 2.0000],\n        [3.0000, 4.5000]], dtype=f64)");
    check_text(weft_tensor_from(WEFT_F64, WEFT_SHAPE(2, 1, 2), values),
               "tensor([[[1.0000, 2.0000]],\n\n        [[3.0000, 4.5000]]], dtype=f64)");
    check_text(weft_slice(weft_tensor_from(WEFT_F64, WEFT_SHAPE(6), values), 0, 0, 6, 4),
               "tensor([1.0000e+00, 1.0000e+09], dtype=f64)");
    check_text(weft_slice(weft_tensor_from(WEFT_F64, WEFT_SHAPE(6), values), 0, 1, 6, 4),
               "tensor([2., 6.], dtype=f64)"); /* what lies between does not count */
}

TEST(test_print_empty_and_meta)
{
    check_text(weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0, 3)),
               "tensor([], shape=[0, 3], dtype=f32)");
    check_text(weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(2, 3)),
               "tensor(..., device=meta, shape=[2, 3], dtype=f32)");
}

TEST(test_print_cuts_long_tensors)
{
    check_text(weft_arange(WEFT_I32, WEFT_CPU, 0, 2000, 1),
               "tensor([   0,    1,    2, ..., 1997, 1998, 1999], dtype=i32)");
    weft_tensor *x = weft_view(weft_arange(WEFT_I32, WEFT_CPU, 0, 2000, 1), WEFT_SHAPE(1000, 2));
    check_text(x, "tensor([[   0,    1],\n        [   2,    3],\n        [   4,    5],\n        "
                  "...,\n        [1994, 1995],\n"
                  "        [1996, 1997],\n        [1998, 1999]], dtype=i32)");
}

TEST(test_print_buffers_and_files)
{
    char small[8], whole[64];
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_INT(weft_tensor_text(x, small, sizeof small), strlen("tensor([1., 1.], dtype=f32)"));
    CHECK(!strcmp(small, "tensor("));
    CHECK_INT(weft_tensor_text(x, NULL, 0), 27);
    FILE *file = fmemopen(whole, sizeof whole, "w");
    CHECK_OK(weft_print(x, file));
    fclose(file);
    CHECK(!strcmp(whole, "tensor([1., 1.], dtype=f32)\n"));
    CHECK(weft_print(NULL, stdout) < 0 && weft_print(x, NULL) < 0);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

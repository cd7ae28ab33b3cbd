/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/index.c, tensor/layer/embedding.c */
/* take_along, scatter_add, view_scatter and embedding_grad against plain loops. */
#include "harness.h"
#include "memory_count.h"

#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

static weft_tensor *numbers(weft_dtype dtype, weft_shape shape)
{
    weft_tensor *x = weft_arange(dtype, WEFT_CPU, 1, 1 + (double)weft_i_shape_numel(shape), 1);
    return weft_view(x, shape);
}

TEST(test_gather_takes_elements)
{
    weft_tensor *x = weft_transpose(numbers(WEFT_BF16, WEFT_SHAPE(4, 3)), 0, 1); /* [3, 4] */
    int32_t places[] = {2, 0, 3, 3, 1, 1};
    weft_tensor *index = weft_tensor_from(WEFT_I32, WEFT_SHAPE(2, 3), places);
    weft_tensor *y = weft_take_along(x, 1, index),
                *z = weft_take_along(x, -2, weft_minimum_scalar(index, 2));
    CHECK(y && z && weft_tensor_dtype(y) == WEFT_BF16 && weft_tensor_size(y, 1) == 3);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) {
            int place = places[i * 3 + j];
            CHECK(weft_item(y, i * 3 + j) == weft_item(x, i * 4 + place));
            CHECK(weft_item(z, i * 3 + j) == weft_item(x, (place < 2 ? place : 2) * 4 + j));
        }
    CHECK(!weft_take_along(x, 0, index)); /* 3 is no row */
    CHECK_CONTAINS(weft_last_error(), "take_along: index 3 at 2; the dimension has 3 elements");
    CHECK(!weft_take_along(x, 2, index) && !weft_take_along(x, 1, x));
    CHECK(!weft_take_along(x, 0, weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1, 5))));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_INT(
        weft_tensor_numel(weft_take_along(x, 0, weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(0, 2)))),
        0);
}

TEST(test_gather_scatter_add)
{
    static const weft_dtype dtypes[] = {WEFT_F64, WEFT_F32, WEFT_F16, WEFT_I32, WEFT_U8};
    int64_t places[] = {1, 1, 1, 0, 1, 2, 2, 1, 0};
    for (int k = 0; k < 5; k++) {
        weft_tensor *x = numbers(dtypes[k], WEFT_SHAPE(3, 4)), *before = weft_clone(x);
        weft_tensor *source = weft_transpose(numbers(dtypes[k], WEFT_SHAPE(3, 3)), 0, 1);
        weft_tensor *index = weft_tensor_from(WEFT_I64, WEFT_SHAPE(3, 3), places);
        weft_tensor *y = weft_scatter_add(x, 0, index, source);
        double expected[12];
        for (int i = 0; i < 12; i++)
            expected[i] = i + 1;
        for (int i = 0; i < 9; i++)
            expected[places[i] * 4 + i % 3] += weft_item(source, i);
        CHECK(y && weft_tensor_dtype(y) == dtypes[k] && weft_equal(x, before));
        for (int i = 0; i < 12; i++)
            CHECK(weft_item(y, i) == expected[i]);
        CHECK_OK(weft_fill(weft_slice(index, 0, 2, 3, 1), 3));
        CHECK(!weft_scatter_add(x, 0, index, source) && weft_equal(x, before));
        CHECK(!weft_scatter_add(x, 0, index, weft_slice(source, 0, 0, 2, 1)));
        weft_clear_error();
    }
    /* 2048 times 1 to 2048 in f16, where 2048 + 1 is 2048: rounded once it is 4096 */
    weft_tensor *one = weft_full(WEFT_F16, WEFT_CPU, WEFT_SHAPE(1), 2048);
    weft_tensor *sum = weft_scatter_add(one, 0, weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2048)),
                                        weft_ones(WEFT_F16, WEFT_CPU, WEFT_SHAPE(2048)));
    CHECK(weft_item(sum, 0) == 4096);
}

TEST(test_gather_view_scatter)
{
    weft_tensor *x = weft_transpose(numbers(WEFT_F32, WEFT_SHAPE(4, 3)), 0, 1); /* [3, 4] */
    weft_tensor *source = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), -1);
    /* column 2: what weft_select(y, 1, 2) would be */
    weft_tensor *y = weft_view_scatter(x, source, WEFT_SHAPE(3), (int64_t[]){4}, 2);
    CHECK(y && weft_tensor_is_contiguous(y) && weft_equal(weft_select(y, 1, 2), source));
    for (int i = 0; i < 12; i++)
        CHECK(weft_item(y, i) == (i % 4 == 2 ? -1 : weft_item(x, i)));
    CHECK(weft_item(x, 2) != -1);
    CHECK(!weft_view_scatter(x, source, WEFT_SHAPE(3), (int64_t[]){5}, 2));
    CHECK(!weft_view_scatter(x, source, WEFT_SHAPE(3), (int64_t[]){1}, -1));
    CHECK(!weft_view_scatter(x, source, WEFT_SHAPE(3), (int64_t[]){1}, INT64_MAX));
    CHECK(!weft_view_scatter(x, source, WEFT_SHAPE(3), (int64_t[]){0}, 0));
    CHECK(!weft_view_scatter(x, source, WEFT_SHAPE(2), (int64_t[]){1}, 0));
    CHECK(!weft_view_scatter(x, source, WEFT_SHAPE(3), NULL, 0));
    CHECK(!weft_view_scatter(x, weft_to_dtype(source, WEFT_F64), WEFT_SHAPE(3), (int64_t[]){4}, 2));
    weft_clear_error();
}

TEST(test_gather_embedding_grad)
{
    weft_seed(4);
    for (int k = 0; k < 2; k++) {
        weft_dtype dtype = k ? WEFT_BF16 : WEFT_F32;
        weft_tensor *indices = weft_randint(WEFT_I32, WEFT_CPU, WEFT_SHAPE(20, 10), 0, 7);
        weft_tensor *grad = weft_randint(dtype, WEFT_CPU, WEFT_SHAPE(20, 10, 33), -3, 4);
        weft_tensor *y = weft_embedding_grad(grad, indices, 8);
        double expected[8 * 33] = {0};
        for (int i = 0; i < 200; i++)
            for (int j = 0; j < 33; j++)
                expected[weft_item_int(indices, i) * 33 + j] += weft_item(grad, i * 33 + j);
        for (int i = 0; i < 8 * 33; i++)
            CHECK(weft_item(y, i) == expected[i]);
        CHECK(!weft_embedding_grad(grad, indices, 3) && !weft_embedding_grad(indices, grad, 8));
        CHECK(!weft_embedding_grad(grad, indices, -1));
        weft_clear_error();
    }
}

/* An operation that fails while it runs drops its result at once, though the scope stays open. */
TEST(test_gather_refused_keeps_nothing)
{
    weft_tensor *x = numbers(WEFT_F32, WEFT_SHAPE(3, 4));
    weft_tensor *index = weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 4), 3); /* is no row */
    for (int i = 0; i < 11; i++) {
        if (i == 1) /* what is made once is made */
            count_begin();
        CHECK(!weft_take_along(x, 0, index));
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
        weft_clear_error();
    }
    CHECK_INT(count_end(), 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/access.c, tensor/op/cat.c, tensor/layer/embedding.c, tensor/op/index.c,
 * tensor/layer/linear.c, tensor/op/make.c, tensor/op/reshape.c, tensor/layer/scaled.c,
 * tensor/op/view.c */
/* The edges of operations on tensors: beside each call that is refused, word by word, one that is
 * just allowed, and its elements. */
#include "memory_count.h"
#include "refusals.h"

#include "base/report/status.h"
#include "tensor/object/tensor.h"

#include <math.h>

static weft_tensor *counting(weft_dtype dtype, weft_shape shape)
{
    int64_t numel = 1;
    for (int i = 0; i < shape.ndim; i++)
        numel *= shape.dim[i];
    return weft_view(weft_arange(dtype, WEFT_CPU, 0, (double)numel, 1), shape);
}

/* The elements, in order, are these numbers. */
static void holds(weft_tensor *x, int count, const double *wanted)
{
    if (!x)
        FAIL("%s", weft_last_error());
    weft_tensor *wide = weft_contiguous(weft_to_dtype(x, WEFT_F64));
    CHECK_INT(weft_tensor_numel(wide), count);
    const double *data = weft_tensor_data(wide);
    for (int i = 0; i < count; i++)
        if (data[i] != wanted[i])
            FAIL("element %d is %.17g, not %.17g", i, data[i], wanted[i]);
}

#define HOLDS(x_, ...)                                                 \
    do {                                                               \
        const double wanted_[] = {__VA_ARGS__};                        \
        holds((x_), (int)(sizeof wanted_ / sizeof *wanted_), wanted_); \
    } while (0)

/* ---- gather ---- */

TEST(test_edges_gather)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *scalar = weft_full(WEFT_F32, WEFT_CPU, (weft_shape){0}, 7);
    weft_tensor *zero = weft_full(WEFT_I64, WEFT_CPU, (weft_shape){0}, 0);
    HOLDS(weft_take_along(scalar, 0, zero), 7);
    HOLDS(weft_take_along(scalar, -1, zero), 7);
    NO(weft_take_along(scalar, 1, zero), WEFT_ERR_INVALID_ARG,
       "take_along: no dimension 1 in a tensor of 1 dimensions");
    NO(weft_take_along(scalar, -2, zero), WEFT_ERR_INVALID_ARG,
       "take_along: no dimension -2 in a tensor of 1 dimensions");
    weft_tensor *five = weft_full(WEFT_F32, WEFT_CPU, (weft_shape){0}, 5),
                *one = weft_full(WEFT_I64, WEFT_CPU, (weft_shape){0}, 1);
    HOLDS(weft_scatter_add(scalar, 0, zero, five), 12);
    CHECK(!weft_scatter_add(scalar, 0, one, five) && !weft_take_along(scalar, 0, one));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_tensor *x = counting(WEFT_F32, WEFT_SHAPE(2, 3));
    int64_t last[] = {2, 0}, behind[] = {3, 0}, before[] = {-1, 0};
    HOLDS(weft_take_along(x, 1, weft_tensor_from(WEFT_I64, WEFT_SHAPE(2, 1), last)), 2, 3);
    CHECK(!weft_take_along(x, 1, weft_tensor_from(WEFT_I64, WEFT_SHAPE(2, 1), behind)));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK(!weft_take_along(x, 1, weft_tensor_from(WEFT_I64, WEFT_SHAPE(2, 1), before)));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    NO(weft_take_along(x, 0, x), WEFT_ERR_TYPE, "take_along: the index is f32, not integers");
    NO(weft_scatter_add(x, 0, x, x), WEFT_ERR_TYPE, "scatter_add: the index is f32, not integers");
    weft_tensor *rows = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(3, 3));
    NO(weft_scatter_add(x, 1, rows, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 3))),
       WEFT_ERR_INVALID_ARG, "scatter_add: an index of shape [3, 3] for a tensor of shape [2, 3]");
    CHECK_OK(weft_scope_close());
}

TEST(test_edges_view_scatter)
{
    static const int64_t rows[] = {3, 1}, twice[] = {0, 1}, negative[] = {-3, 1}, two[] = {2};
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6));
    weft_tensor *four = weft_add_scalar(counting(WEFT_F32, WEFT_SHAPE(2, 2)), 1);
    weft_tensor *three = weft_add_scalar(counting(WEFT_F32, WEFT_SHAPE(3)), 1);
    HOLDS(weft_view_scatter(x, four, WEFT_SHAPE(2, 2), rows, 0), 1, 2, 0, 3, 4, 0);
    HOLDS(weft_view_scatter(x, four, WEFT_SHAPE(2, 2), rows, 1), 0, 1, 2, 0, 3, 4);
    NO(weft_view_scatter(x, four, WEFT_SHAPE(2, 2), rows, 2), WEFT_ERR_INVALID_ARG,
       "view_scatter: offset 2 and 5 elements do not fit 6 elements");
    NO(weft_view_scatter(x, four, WEFT_SHAPE(2, 2), rows, -1), WEFT_ERR_INVALID_ARG,
       "view_scatter: offset -1 and 5 elements do not fit 6 elements");
    HOLDS(weft_view_scatter(x, three, WEFT_SHAPE(3), two, 1), 0, 1, 0, 2, 0, 3);
    NO(weft_view_scatter(x, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(7)), WEFT_SHAPE(7),
                         (const int64_t[]){1}, 0),
       WEFT_ERR_INVALID_ARG, "view_scatter: offset 0 and 7 elements do not fit 6 elements");
    NO(weft_view_scatter(x, four, WEFT_SHAPE(2, 2), NULL, 0), WEFT_ERR_INVALID_ARG,
       "view_scatter: 0 strides for 2 dimensions");
    NO(weft_view_scatter(x, four, WEFT_SHAPE(2, 2), negative, 0), WEFT_ERR_INVALID_ARG,
       "view_scatter: stride -3 of dimension 0 is negative");
    NO(weft_view_scatter(x, four, WEFT_SHAPE(2, 2), twice, 0), WEFT_ERR_INVALID_ARG,
       "view_scatter: several elements of the region share memory");
    NO(weft_view_scatter(x, weft_to_dtype(four, WEFT_F64), WEFT_SHAPE(2, 2), rows, 0),
       WEFT_ERR_TYPE, "view_scatter: f64 is to replace elements of f32");
    NO(weft_view_scatter(x, three, WEFT_SHAPE(2, 2), rows, 0), WEFT_ERR_INVALID_ARG,
       "view_scatter: a source of shape [3] for a region of shape [2, 2]");
    NO(weft_view_scatter(x, four, ((weft_shape){.ndim = 9}), rows, 0), WEFT_ERR_INVALID_ARG,
       "view_scatter: a tensor has 0 to 8 dimensions");
    weft_tensor *nothing = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0));
    HOLDS(weft_view_scatter(x, nothing, WEFT_SHAPE(0), two, 99), 0, 0, 0, 0, 0, 0);
    CHECK_OK(weft_scope_close());
}

/* ---- embedding ---- */

TEST(test_edges_embedding)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *table = counting(WEFT_F32, WEFT_SHAPE(3, 2));
    int64_t ends[] = {2, 0}, behind[] = {0, 3}, before[] = {-1, 0};
    HOLDS(weft_embedding(table, weft_tensor_from(WEFT_I64, WEFT_SHAPE(2), ends)), 4, 5, 0, 1);
    NO(weft_embedding(table, weft_tensor_from(WEFT_I64, WEFT_SHAPE(2), behind)),
       WEFT_ERR_INVALID_ARG, "embedding: index 3 at 1; the weight has 3 rows");
    NO(weft_embedding(table, weft_tensor_from(WEFT_I64, WEFT_SHAPE(2), before)),
       WEFT_ERR_INVALID_ARG, "embedding: index -1 at 0; the weight has 3 rows");
    weft_tensor *one = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1));
    NO(weft_embedding(weft_flatten(table, 0, -1), one), WEFT_ERR_INVALID_ARG,
       "embedding: the weight has 1 dimensions, not 2");
    NO(weft_embedding(counting(WEFT_F32, WEFT_SHAPE(1, 3, 2)), one), WEFT_ERR_INVALID_ARG,
       "embedding: the weight has 3 dimensions, not 2");
    NO(weft_embedding(table, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1))), WEFT_ERR_TYPE,
       "embedding: the indices are f32, not integers");
    HOLDS(weft_embedding(table, weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1, 1, 1, 1, 1, 1, 1))), 0,
          1);
    NO(weft_embedding(table, weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1, 1, 1, 1, 1, 1, 1, 1))),
       WEFT_ERR_INVALID_ARG, "embedding: the result would have 9 dimensions");
    CHECK_OK(weft_scope_close());
}

/* Sums are in f64 for f64, else in f32, and rounded once. */
TEST(test_edges_embedding_grad)
{
    CHECK_OK(weft_scope_open());
    int64_t same[] = {1, 1, 1};
    weft_tensor *index = weft_tensor_from(WEFT_I64, WEFT_SHAPE(3), same);
    double fine[] = {1, 0x1p-40, 0x1p-40};
    weft_tensor *grad = weft_tensor_from(WEFT_F64, WEFT_SHAPE(3, 1), fine);
    HOLDS(weft_embedding_grad(grad, index, 2), 0, 1 + 0x1p-39);
    HOLDS(weft_embedding_grad(weft_to_dtype(grad, WEFT_F32), index, 2), 0, 1);
    double coarse[] = {2048, 1, 1};
    grad = weft_to_dtype(weft_tensor_from(WEFT_F64, WEFT_SHAPE(3, 1), coarse), WEFT_F16);
    HOLDS(weft_embedding_grad(grad, index, 2), 0, 2050);
    weft_tensor *f32 = weft_to_dtype(grad, WEFT_F32);
    HOLDS(weft_embedding_grad(f32, index, 3), 0, 2050, 0);
    NO(weft_embedding_grad(f32, index, 1), WEFT_ERR_INVALID_ARG,
       "embedding: index 1 at 0; the weight has 1 rows");
    NO(weft_embedding_grad(weft_to_dtype(f32, WEFT_I32), index, 2), WEFT_ERR_INVALID_ARG,
       "embedding_grad: a i32 gradient of 2 dimensions for i64 indices of 1");
    NO(weft_embedding_grad(f32, weft_to_dtype(index, WEFT_F32), 2), WEFT_ERR_INVALID_ARG,
       "embedding_grad: a f32 gradient of 2 dimensions for f32 indices of 1");
    NO(weft_embedding_grad(weft_flatten(f32, 0, -1), index, 2), WEFT_ERR_INVALID_ARG,
       "embedding_grad: a f32 gradient of 1 dimensions for i64 indices of 1");
    NO(weft_embedding_grad(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 1)), index, 2),
       WEFT_ERR_INVALID_ARG, "embedding_grad: a f32 gradient of 2 dimensions for i64 indices of 1");
    NO(weft_embedding_grad(f32, index, -1), WEFT_ERR_INVALID_ARG,
       "embedding_grad: shape [-1, 1] has a negative size");
    CHECK_OK(weft_scope_close());
}

/* A gradient that is released keeps nothing, though the scope in which it was made stays open. */
TEST(test_edges_embedding_grad_keeps_nothing)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *index = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(3)),
                *grad = weft_ones(WEFT_F16, WEFT_CPU, WEFT_SHAPE(3, 5));
    for (int i = 0; i < 11; i++) {
        if (i == 1) /* what is made once is made */
            count_begin();
        weft_tensor *sums = weft_embedding_grad(grad, index, 2);
        CHECK(sums && weft_item(sums, 4) == 3);
        weft_release(sums);
    }
    CHECK_INT(count_end(), 0);
    CHECK_OK(weft_scope_close());
}

/* ---- cat and stack ---- */

TEST(test_edges_cat)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *a = counting(WEFT_F32, WEFT_SHAPE(2, 1)),
                *b = counting(WEFT_F32, WEFT_SHAPE(2, 2));
    weft_tensor *c = weft_mul_scalar(b, 10), *three[] = {a, b, c}, *rows[] = {b, c, b};
    HOLDS(weft_cat(three, 3, 1), 0, 0, 1, 0, 10, 1, 2, 3, 20, 30);
    HOLDS(weft_cat(three, 3, -1), 0, 0, 1, 0, 10, 1, 2, 3, 20, 30);
    HOLDS(weft_cat(rows, 3, 0), 0, 1, 2, 3, 0, 10, 20, 30, 0, 1, 2, 3);
    HOLDS(weft_cat(three, 1, 0), 0, 1);
    NO(weft_cat(three, 3, 0), WEFT_ERR_INVALID_ARG,
       "cat: shapes [2, 1] and [2, 2] differ outside dimension 0");
    weft_tensor *tall[] = {b, counting(WEFT_F32, WEFT_SHAPE(3, 2))};
    NO(weft_cat(tall, 2, 1), WEFT_ERR_INVALID_ARG,
       "cat: shapes [2, 2] and [3, 2] differ outside dimension 1");
    weft_tensor *flat[] = {b, counting(WEFT_F32, WEFT_SHAPE(2))};
    NO(weft_cat(flat, 2, 0), WEFT_ERR_INVALID_ARG,
       "cat: shapes [2, 2] and [2] differ outside dimension 0");
    NO(weft_cat(three, 3, 2), WEFT_ERR_INVALID_ARG,
       "cat: no dimension 2 in a tensor of 2 dimensions");
    NO(weft_cat(three, 0, 0), WEFT_ERR_INVALID_ARG, "cat: no tensors");
    NO(weft_cat(NULL, 3, 0), WEFT_ERR_INVALID_ARG, "cat: no tensors");
    weft_tensor *half = weft_empty(WEFT_I8, WEFT_META, WEFT_SHAPE((int64_t)1 << 62));
    weft_tensor *vast[] = {half, half}, *mixed[] = {a, weft_to_dtype(b, WEFT_F64)};
    NO(weft_cat(vast, 2, 0), WEFT_ERR_INVALID_ARG, "cat: the result is too large");
    weft_tensor *part = weft_empty(WEFT_F64, WEFT_META, WEFT_SHAPE((int64_t)1 << 59)),
                *parts[] = {part, part};
    CHECK(!weft_cat(parts, 2, 0)); /* as a number of bytes */
    CHECK(weft_last_status() == WEFT_ERR_INVALID_ARG && !strncmp(weft_last_error(), "cat: ", 5));
    weft_clear_error();
    CHECK_INT(weft_tensor_dtype(weft_cat(mixed, 2, 1)), WEFT_F64);
    HOLDS(weft_stack(rows, 1, 0), 0, 1, 2, 3);
    HOLDS(weft_stack(rows, 2, 1), 0, 1, 0, 10, 2, 3, 20, 30);
    HOLDS(weft_stack(rows, 2, -1), 0, 0, 1, 10, 2, 20, 3, 30);
    NO(weft_stack(rows, 0, 0), WEFT_ERR_INVALID_ARG, "stack: no tensors");
    NO(weft_stack(NULL, 1, 0), WEFT_ERR_INVALID_ARG, "stack: no tensors");
    NO(weft_stack(rows, 2, 3), WEFT_ERR_INVALID_ARG,
       "unsqueeze: no dimension 3 in a tensor of 3 dimensions");
    CHECK_OK(weft_scope_close());
}

/* ---- making ---- */

TEST(test_edges_make)
{
    CHECK_OK(weft_scope_open());
    static const int64_t strides[] = {1, 2};
    weft_tensor *x = weft_empty_strided(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3), strides);
    CHECK(x && weft_tensor_stride(x, 0) == 1 && weft_tensor_stride(x, 1) == 2);
    CHECK(weft_empty_strided(WEFT_F32, WEFT_CPU, (weft_shape){0}, NULL));
    NO(weft_empty_strided(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3), NULL), WEFT_ERR_INVALID_ARG,
       "empty_strided: 0 strides for 2 dimensions");
    NO(weft_empty_strided(WEFT_F32, WEFT_CPU, ((weft_shape){.ndim = 9}), strides),
       WEFT_ERR_INVALID_ARG, "empty_strided: a tensor has 0 to 8 dimensions");
    NO(weft_empty_strided((weft_dtype)99, WEFT_CPU, WEFT_SHAPE(2, 3), strides), WEFT_ERR_TYPE,
       "empty_strided: 99 is not a dtype");
    HOLDS(weft_arange(WEFT_F32, WEFT_CPU, 3, 0, -1.5), 3, 1.5);
    CHECK_INT(weft_tensor_numel(weft_arange(WEFT_F32, WEFT_CPU, 3, 3, 1)), 0);
    CHECK_INT(weft_tensor_numel(weft_arange(WEFT_F32, WEFT_CPU, 3, 0, 1)), 0);
    CHECK_INT(weft_tensor_numel(weft_arange(WEFT_I8, WEFT_META, 0, 0x1p53, 1)), INT64_C(1) << 53);
    NO(weft_arange(WEFT_I8, WEFT_META, 0, 0x1p54, 1), WEFT_ERR_INVALID_ARG,
       "arange: from 0 to 1.80144e+16 by 1 has no end");
    NO(weft_arange(WEFT_F32, WEFT_CPU, 0, INFINITY, 1), WEFT_ERR_INVALID_ARG,
       "arange: from 0 to inf by 1 has no end");
    NO(weft_arange(WEFT_F32, WEFT_CPU, 0, -INFINITY, 1), WEFT_ERR_INVALID_ARG,
       "arange: from 0 to -inf by 1 has no end");
    NO(weft_arange(WEFT_F32, WEFT_CPU, 0, 1, NAN), WEFT_ERR_INVALID_ARG,
       "arange: from 0 to 1 by nan has no end");
    CHECK_OK(weft_scope_close());
}

/* ---- views ---- */

TEST(test_edges_reshape)
{
    CHECK_OK(weft_scope_open());
    /* A size of 1 steps over what lies behind it, as far as that steps evenly. */
    weft_tensor *turned = weft_transpose(counting(WEFT_F32, WEFT_SHAPE(2, 3)), 0, 1);
    weft_tensor *slim = weft_view(turned, WEFT_SHAPE(1, 3, 1, 2, 1));
    static const int64_t steps[] = {3, 1, 6, 3, 3};
    HOLDS(slim, 0, 3, 1, 4, 2, 5);
    for (int i = 0; i < 5; i++)
        CHECK_INT(weft_tensor_stride(slim, i), steps[i]);
    static const int64_t odd[] = {3, 77, 1};
    weft_tensor *x = counting(WEFT_F32, WEFT_SHAPE(2, 3));
    /* the stride of a size of 1 is no obstacle */
    weft_tensor *thin = weft_as_strided(x, WEFT_SHAPE(2, 1, 3), odd, 0);
    HOLDS(weft_view(thin, WEFT_SHAPE(6)), 0, 1, 2, 3, 4, 5);
    HOLDS(weft_view(weft_transpose(x, 0, 1), WEFT_SHAPE(3, 1, 2)), 0, 3, 1, 4, 2, 5);
    CHECK(!weft_view(weft_transpose(x, 0, 1), WEFT_SHAPE(6)));
    weft_clear_error();
    HOLDS(weft_reshape(weft_transpose(x, 0, 1), WEFT_SHAPE(6)), 0, 3, 1, 4, 2, 5);
    NO(weft_view(x, ((weft_shape){.ndim = 9})), WEFT_ERR_INVALID_ARG,
       "view: a tensor has 0 to 8 dimensions");
    NO(weft_view(x, ((weft_shape){.ndim = -1})), WEFT_ERR_INVALID_ARG,
       "view: a tensor has 0 to 8 dimensions");
    NO(weft_flatten(x, 1, 0), WEFT_ERR_INVALID_ARG, "flatten: dimension 1 lies after 0");
    HOLDS(weft_flatten(x, 1, 1), 0, 1, 2, 3, 4, 5);
    CHECK_INT(weft_tensor_ndim(weft_flatten(x, 1, 1)), 2);
    NO(weft_flatten(x, 2, 0), WEFT_ERR_INVALID_ARG,
       "flatten: no dimension 2 in a tensor of 2 dimensions");
    NO(weft_flatten(x, 0, 2), WEFT_ERR_INVALID_ARG,
       "flatten: no dimension 2 in a tensor of 2 dimensions");
    weft_tensor *eight = weft_view(x, WEFT_SHAPE(1, 1, 1, 1, 1, 1, 2, 3));
    NO(weft_unsqueeze(eight, 0), WEFT_ERR_INVALID_ARG,
       "unsqueeze: a tensor has at most 8 dimensions");
    CHECK_INT(weft_tensor_ndim(weft_unsqueeze(weft_squeeze(eight, 0), 7)), 8);
    NO(weft_permute(x, NULL), WEFT_ERR_INVALID_ARG, "permute: the dimensions are NULL");
    NO(weft_movedim(NULL, 0, 1), WEFT_ERR_INVALID_ARG, "detach: a tensor argument is NULL");
    NO(weft_movedim(x, 2, 0), WEFT_ERR_INVALID_ARG,
       "movedim: no dimension 2 in a tensor of 2 dimensions");
    NO(weft_movedim(x, 0, -3), WEFT_ERR_INVALID_ARG,
       "movedim: no dimension -3 in a tensor of 2 dimensions");
    HOLDS(weft_movedim(x, 1, 0), 0, 3, 1, 4, 2, 5);
    CHECK_OK(weft_scope_close());
}

TEST(test_edges_narrow)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = counting(WEFT_F32, WEFT_SHAPE(2, 3));
    HOLDS(weft_narrow(x, 1, 1, 2), 1, 2, 4, 5);
    HOLDS(weft_narrow(x, 1, -3, 3), 0, 1, 2, 3, 4, 5);
    CHECK_INT(weft_tensor_numel(weft_narrow(x, 1, 3, 0)), 0);
    NO(weft_narrow(x, 1, 4, 0), WEFT_ERR_INVALID_ARG,
       "narrow: 0 elements from 4 of dimension 1, which has 3");
    NO(weft_narrow(x, 1, -4, 1), WEFT_ERR_INVALID_ARG,
       "narrow: 1 elements from -4 of dimension 1, which has 3");
    NO(weft_narrow(x, 1, 1, 3), WEFT_ERR_INVALID_ARG,
       "narrow: 3 elements from 1 of dimension 1, which has 3");
    NO(weft_narrow(x, 1, 0, -1), WEFT_ERR_INVALID_ARG,
       "narrow: -1 elements from 0 of dimension 1, which has 3");
    CHECK_OK(weft_scope_close());
}

TEST(test_edges_split)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = counting(WEFT_F32, WEFT_SHAPE(2, 3)), *out[4];
    size_t count = 4;
    BAD(weft_split(NULL, 1, 0, out, &count), WEFT_ERR_INVALID_ARG, "split: the tensor is NULL");
    BAD(weft_split(x, 1, 2, out, &count), WEFT_ERR_INVALID_ARG,
        "split: no dimension 2 in a tensor of 2 dimensions");
    BAD(weft_split(x, 0, 1, out, &count), WEFT_ERR_INVALID_ARG, "split: 0; it must be at least 1");
    BAD(weft_chunk(x, 0, 1, out, &count), WEFT_ERR_INVALID_ARG, "chunk: 0; it must be at least 1");
    BAD(weft_chunk(x, 1, -3, out, &count), WEFT_ERR_INVALID_ARG,
        "chunk: no dimension -3 in a tensor of 2 dimensions");
    count = 2;
    BAD(weft_split(x, 1, 1, out, &count), WEFT_ERR_INVALID_ARG, "split: 3 pieces, but room for 2");
    BAD(weft_split(x, 1, 1, NULL, &count), WEFT_ERR_INVALID_ARG, "split: 3 pieces, but room for 2");
    BAD(weft_split(x, 1, 1, out, NULL), WEFT_ERR_INVALID_ARG, "split: 3 pieces, but room for 0");
    CHECK_OK(weft_split(x, 2, 1, out, &count)); /* just enough */
    CHECK_INT(count, 2);
    HOLDS(out[0], 0, 1, 3, 4);
    HOLDS(out[1], 2, 5);
    count = 4;
    CHECK_OK(weft_chunk(x, 2, 1, out, &count));
    CHECK_INT(count, 2);
    HOLDS(out[1], 2, 5);
    count = 4;
    CHECK_OK(weft_chunk(weft_narrow(x, 1, 0, 0), 3, 1, out, &count));
    CHECK_INT(count, 3);
    CHECK_OK(weft_scope_close());
}

/* ---- reductions and normalisation ---- */

TEST(test_edges_reduce)
{
    CHECK_OK(weft_scope_open());
    static const int first[] = {0}, last[] = {-1}, second[] = {1}, both[] = {0, 1},
                     twice[] = {1, -1}, before[] = {-2};
    weft_tensor *scalar = weft_full(WEFT_F32, WEFT_CPU, (weft_shape){0}, 7);
    weft_tensor *x = counting(WEFT_F32, WEFT_SHAPE(2, 3));
    weft_tensor *none = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 0));
    HOLDS(weft_sum(scalar, first, 1, false), 7);
    HOLDS(weft_sum(scalar, last, 1, true), 7);
    HOLDS(weft_sum(scalar, NULL, 0, false), 7);
    NO(weft_sum(scalar, second, 1, false), WEFT_ERR_INVALID_ARG,
       "sum: no dimension 1 in a tensor of 0 dimensions");
    NO(weft_sum(scalar, before, 1, false), WEFT_ERR_INVALID_ARG,
       "sum: no dimension -2 in a tensor of 0 dimensions");
    HOLDS(weft_sum(x, both, 2, false), 15);
    HOLDS(weft_sum(x, NULL, 0, true), 15);
    HOLDS(weft_max(x, last, 1, false), 2, 5);
    NO(weft_sum(x, twice, 2, false), WEFT_ERR_INVALID_ARG, "sum: dimension 1 is named twice");
    NO(weft_max(x, twice, 2, false), WEFT_ERR_INVALID_ARG, "max: dimension 1 is named twice");
    HOLDS(weft_sum(none, last, 1, false), 0, 0);
    HOLDS(weft_prod(none, NULL, 0, false), 1);
    NO(weft_max(none, last, 1, false), WEFT_ERR_INVALID_ARG,
       "max: no elements along dimension 1 of shape [2, 0], and no identity");
    NO(weft_min(none, NULL, 0, false), WEFT_ERR_INVALID_ARG,
       "min: no elements along dimension 1 of shape [2, 0], and no identity");
    NO(weft_argmax(none, 1, false), WEFT_ERR_INVALID_ARG,
       "argmax: no elements along dimension 1 of shape [2, 0], and no identity");
    CHECK_INT(weft_tensor_numel(weft_max(none, first, 1, false)), 0); /* two of nothing */
    CHECK_INT(weft_tensor_ndim(weft_max(none, first, 1, true)), 2);
    NO(weft_mean(weft_to_dtype(x, WEFT_I32), NULL, 0, false), WEFT_ERR_TYPE,
       "mean: of i32; convert it to a float with weft_to_dtype");
    CHECK_OK(weft_scope_close());
}

TEST(test_edges_normalize)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_to_dtype(counting(WEFT_F32, WEFT_SHAPE(3, 2)), WEFT_F32);
    weft_tensor *turned = weft_transpose(x, 0, 1);
    CHECK(weft_equal(weft_softmax(turned, 0), weft_transpose(weft_softmax(x, 1), 0, 1)));
    CHECK(weft_equal(weft_softmax(turned, 1), weft_softmax(weft_contiguous(turned), 1)));
    HOLDS(weft_softmax(weft_full(WEFT_F32, WEFT_CPU, (weft_shape){0}, 3), 0), 1);
    HOLDS(weft_log_softmax(weft_full(WEFT_F32, WEFT_CPU, (weft_shape){0}, 3), -1), 0);
    NO(weft_softmax(x, 2), WEFT_ERR_INVALID_ARG,
       "softmax: no dimension 2 in a tensor of 2 dimensions");
    weft_tensor *pair = weft_tensor_from(WEFT_F64, WEFT_SHAPE(2), (const double[]){-1, 1});
    HOLDS(weft_layer_norm(pair, 1, NULL, NULL, 0), -1, 1);
    HOLDS(weft_layer_norm(weft_view(pair, WEFT_SHAPE(1, 2)), 2, NULL, NULL, 0), -1, 1);
    NO(weft_layer_norm(pair, 2, NULL, NULL, 0), WEFT_ERR_INVALID_ARG,
       "layer_norm: the last 2 of 1 dimensions");
    NO(weft_layer_norm(pair, 0, NULL, NULL, 0), WEFT_ERR_INVALID_ARG,
       "layer_norm: the last 0 of 1 dimensions");
    NO(weft_layer_norm(pair, 1, x, NULL, 0), WEFT_ERR_INVALID_ARG,
       "layer_norm: weight is f32 [3, 2]; it must be a float of shape [2]");
    NO(weft_layer_norm(pair, 1, pair, weft_to_dtype(pair, WEFT_I32), 0), WEFT_ERR_INVALID_ARG,
       "layer_norm: bias is i32 [2]; it must be a float of shape [2]");
    HOLDS(weft_layer_norm(pair, 1, pair, pair, 0), 0, 2);
    CHECK_OK(weft_scope_close());
}

/* ---- in place ---- */

/* What is no tensor is refused, and NULL passes the first error on. */
TEST(test_edges_no_tensor)
{
    CHECK_OK(weft_scope_open());
    weft_stream *stream = weft_stream_new(WEFT_CPU, false);
    weft_tensor *other = (weft_tensor *)(void *)stream, *x = counting(WEFT_F32, WEFT_SHAPE(2));
    NO(weft_add(x, other), WEFT_ERR_TYPE, "add: an argument is not a tensor");
    NO(weft_neg(other), WEFT_ERR_TYPE, "neg: an argument is not a tensor");
    for (int told = 0; told < 2; told++) {
        static weft_tensor *(*const takes_a_dim[])(weft_tensor *, int) = {weft_squeeze,
                                                                          weft_unsqueeze};
        for (int i = 0; i < 5; i++) {
            weft_clear_error();
            if (told)
                CHECK_INT(weft_i_fail(WEFT_ERR_IO, "earlier"), WEFT_ERR_IO);
            CHECK(!(i < 2    ? takes_a_dim[i](NULL, 0)
                    : i == 2 ? weft_flatten(NULL, 0, 0)
                    : i == 3 ? weft_reshape(NULL, WEFT_SHAPE(2))
                             : weft_transpose(NULL, 0, 1)));
            CHECK_INT(weft_last_status(), told ? WEFT_ERR_IO : WEFT_ERR_INVALID_ARG);
        }
    }
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

/* Without memory nothing meets; nor without elements. */
TEST(test_edges_ranges)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *a = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(4)),
                *b = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(4)),
                *x = counting(WEFT_F32, WEFT_SHAPE(8));
    CHECK(!weft_i_tensor_ranges_meet(a, b) && !weft_i_tensor_ranges_meet(a, x));
    CHECK(weft_i_tensor_ranges_meet(a, weft_view(a, WEFT_SHAPE(2, 2))));
    weft_tensor *low = weft_slice(x, 0, 0, 4, 1), *high = weft_slice(x, 0, 4, 8, 1),
                *both = weft_slice(x, 0, 3, 5, 1), *none = weft_slice(x, 0, 4, 4, 1);
    CHECK(!weft_i_tensor_ranges_meet(low, high) && !weft_i_tensor_ranges_meet(high, low));
    CHECK(weft_i_tensor_ranges_meet(low, both) && weft_i_tensor_ranges_meet(both, high));
    CHECK(!weft_i_tensor_ranges_meet(both, none) && !weft_i_tensor_ranges_meet(none, x));
    CHECK(weft_tensor_dtype(NULL) == (weft_dtype)-1);
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

/* Memory that is not there meets no other, however large it would be. */
TEST(test_edges_ranges_of_nothing)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_ones(WEFT_U8, WEFT_CPU, WEFT_SHAPE(4)),
                *vast = weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE((int64_t)1 << 60));
    CHECK(x && vast);
    CHECK(!weft_i_tensor_ranges_meet(x, vast) && !weft_i_tensor_ranges_meet(vast, x));
    CHECK(weft_i_tensor_ranges_meet(x, x) && weft_i_tensor_ranges_meet(vast, vast));
    CHECK_OK(weft_scope_close());
}

/* The result of tensors that lie alike lies as they do; a dimension of one element has no say. */
TEST(test_edges_strides_of_results)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6));
    weft_tensor *a = weft_as_strided(x, WEFT_SHAPE(3, 1, 2), (int64_t[]){1, 6, 3}, 0),
                *b = weft_as_strided(x, WEFT_SHAPE(3, 1, 2), (int64_t[]){1, 1, 3}, 0),
                *c = weft_as_strided(x, WEFT_SHAPE(3, 1, 2), (int64_t[]){2, 2, 1}, 0);
    weft_tensor *alike = weft_add(a, b), *other = weft_add(a, c);
    CHECK(alike && other);
    CHECK(weft_tensor_stride(alike, 0) == 1 && weft_tensor_stride(alike, 2) == 3);
    CHECK(weft_tensor_stride(other, 0) == 2 && weft_tensor_stride(other, 2) == 1);
    CHECK_OK(weft_scope_close());
}

/* Products that no memory can hold are refused by their own name. */
TEST(test_edges_vast_products)
{
    CHECK_OK(weft_scope_open());
    int64_t much = (int64_t)1 << 40;
    weft_tensor *column = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(much, 1)),
                *row = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(1, much));
    CHECK(column && row && !weft_mm(column, row));
    CHECK(!strncmp(weft_last_error(), "mm: ", 4));
    weft_clear_error();
    CHECK(weft_mm(row, column));
    weft_tensor *one = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(1)),
                *tall = weft_empty(WEFT_F8E4M3, WEFT_META, WEFT_SHAPE(much, 1)),
                *wide = weft_empty(WEFT_F8E4M3, WEFT_META, WEFT_SHAPE(1, much));
    CHECK(tall && wide && !weft_scaled_mm(tall, wide, one, one, NULL, NULL, WEFT_F32));
    CHECK(!strncmp(weft_last_error(), "scaled_mm: ", 11));
    weft_clear_error();
    CHECK(weft_scaled_mm(wide, tall, one, one, NULL, NULL, WEFT_F32));
    CHECK_OK(weft_scope_close());
}

/* On meta, where there are no addresses, storages and offsets decide. */
TEST(test_edges_same_views)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(8)),
                *y = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(8));
    weft_tensor *low = weft_slice(x, 0, 0, 4, 1), *high = weft_slice(x, 0, 4, 8, 1);
    CHECK(weft_i_tensor_same_view(x, x) && !weft_i_tensor_same_view(x, y));
    CHECK(!weft_i_tensor_same_view(low, high) && weft_i_tensor_same_view(high, high));
    CHECK_OK(weft_scope_close());
}

/* A size of 1 in front has no say in the strides of a view. */
TEST(test_edges_view_behind_one)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x =
        weft_as_strided(counting(WEFT_F32, WEFT_SHAPE(8)), WEFT_SHAPE(1, 4), (int64_t[]){5, 2}, 0);
    weft_tensor *y = weft_view(x, WEFT_SHAPE(4)), *z = weft_view(x, WEFT_SHAPE(2, 2));
    CHECK(y && weft_tensor_stride(y, 0) == 2);
    CHECK(z && weft_tensor_stride(z, 0) == 4 && weft_tensor_stride(z, 1) == 2);
    HOLDS(y, 0, 2, 4, 6);
    x = weft_as_strided(counting(WEFT_F32, WEFT_SHAPE(8)), WEFT_SHAPE(2, 1, 2),
                        (int64_t[]){4, 9, 2}, 0); /* nor has one between others */
    y = weft_view(x, WEFT_SHAPE(4));
    CHECK(y && weft_tensor_stride(y, 0) == 2);
    HOLDS(y, 0, 2, 4, 6);
    CHECK_OK(weft_scope_close());
}

/* A scale of one element serves all rows, whatever lies behind it. */
TEST(test_edges_single_scale)
{
    CHECK_OK(weft_scope_open());
    float scales[] = {2, 9, 9, 9};
    weft_tensor *all = weft_tensor_from(WEFT_F32, WEFT_SHAPE(4, 1), scales),
                *one = weft_slice(all, 0, 0, 1, 1);
    weft_tensor *a = weft_full(WEFT_F8E4M3, WEFT_CPU, WEFT_SHAPE(16, 16), 1),
                *b = weft_transpose(weft_full(WEFT_F8E4M3, WEFT_CPU, WEFT_SHAPE(16, 16), 1), 0, 1);
    weft_tensor *y = weft_scaled_mm(a, b, one, one, NULL, NULL, WEFT_F32);
    if (!y)
        FAIL("%s", weft_last_error());
    for (int i = 0; i < 256; i++)
        CHECK(weft_item(y, i) == 16 * 4);
    CHECK_OK(weft_scope_close());
}

/* A shape that no tensor of doubles can have is refused, also where all operands have it. */
TEST(test_edges_vast_results)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *fits = weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE((int64_t)1 << 59)),
                *vast = weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE((int64_t)1 << 61));
    CHECK(fits && vast && weft_add(fits, fits));
    CHECK(!weft_add(vast, vast) && weft_last_status() == WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_tensor *none = weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE(3, 0, 5));
    weft_tensor *sum = weft_add(none, none);
    CHECK(sum && weft_tensor_numel(sum) == 0 && weft_tensor_stride(sum, 1) == 5);
    CHECK_OK(weft_scope_close());
}

/* A result that is written into a tensor counts as a write, and one into a part of an argument does
 * not read what it has written. */
TEST(test_edges_into)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = counting(WEFT_F32, WEFT_SHAPE(6)),
                *y = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6), 1);
    int64_t before = weft_tensor_version(x);
    CHECK_OK(weft_add_into(x, x, y));
    HOLDS(x, 1, 2, 3, 4, 5, 6);
    CHECK_INT(weft_tensor_version(x), before + 1);
    weft_tensor *to = weft_slice(x, 0, 1, 6, 1), *from = weft_slice(x, 0, 0, 5, 1);
    weft_status status = weft_add_into(to, from, from);
    if (status == WEFT_OK)
        HOLDS(x, 1, 2, 4, 6, 8, 10);
    else
        HOLDS(x, 1, 2, 3, 4, 5, 6); /* refused: nothing has happened */
    weft_clear_error();
    weft_tensor *beside = weft_slice(x, 0, 3, 6, 1), *low = weft_slice(x, 0, 0, 3, 1);
    weft_tensor *sums = weft_add(low, beside);
    CHECK_OK(weft_add_into(beside, low, beside));
    CHECK(weft_equal(beside, sums));
    CHECK_OK(weft_scope_close());
}

/* ---- comparing and printing ---- */

/* More elements than one block, in another order of memory, and a difference anywhere. */
TEST(test_edges_compare)
{
    enum { ROWS = 3, COLUMNS = 700 };
    CHECK_OK(weft_scope_open());
    for (int kind = 0; kind < 3; kind++) {
        weft_dtype dtype = kind == 0 ? WEFT_F32 : kind == 1 ? WEFT_I32 : WEFT_I64;
        weft_tensor *a = counting(dtype, WEFT_SHAPE(ROWS, COLUMNS));
        weft_tensor *wide = weft_contiguous(weft_transpose(a, 0, 1));
        weft_tensor *b = weft_transpose(wide, 0, 1),
                    *every = counting(dtype, WEFT_SHAPE(ROWS, 2, COLUMNS));
        CHECK(weft_equal(a, b) && weft_equal(b, a) && weft_allclose(a, b, 0, 0, false));
        CHECK(weft_equal(weft_flatten(a, 0, 1), weft_flatten(b, 0, 1)));
        weft_tensor *spread =
            weft_slice(weft_view(every, WEFT_SHAPE(ROWS * COLUMNS, 2)), 1, 0, 1, 1);
        weft_tensor *half = weft_view(weft_arange(dtype, WEFT_CPU, 0, 2 * ROWS * COLUMNS, 2),
                                      WEFT_SHAPE(ROWS * COLUMNS, 1));
        CHECK(weft_equal(spread, half) && weft_equal(half, spread));
        static const int64_t places[] = {0, 255, 256, 257, ROWS * COLUMNS - 1};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            weft_tensor *other = weft_clone(half);
            CHECK_OK(weft_fill(weft_slice(other, 0, places[i], places[i] + 1, 1), -1));
            CHECK(!weft_equal(spread, other) && !weft_equal(other, spread));
            CHECK(!weft_allclose(spread, other, 0, 0.5, false));
        }
    }
    CHECK_OK(weft_scope_close());
}

/* Only what is shown decides how wide the numbers are. */
TEST(test_edges_print)
{
    char text[400];
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1001));
    CHECK_OK(weft_fill(weft_slice(x, 0, 500, 501, 1), 123456));
    weft_tensor_text(x, text, sizeof text);
    CHECK(!strcmp(text, "tensor([0, 0, 0, ..., 0, 0, 0], dtype=i32)"));
    CHECK_OK(weft_fill(weft_slice(x, 0, 2, 3, 1), -12));
    weft_tensor_text(x, text, sizeof text);
    CHECK(!strcmp(text, "tensor([  0,   0, -12, ...,   0,   0,   0], dtype=i32)"));
    weft_tensor_text(weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(2, 501)), text, sizeof text);
    CHECK_CONTAINS(text, "tensor([[0, 0, 0, ..., 0, 0, 0],\n        [0, 0, 0, ..., 0, 0, 0]]");
    weft_tensor_text(weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(6, 167)), text, sizeof text);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    CHECK_INT(lines, 5); /* six rows are shown whole */
    CHECK(!strstr(text, "...,\n"));
    weft_tensor_text(weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(7, 143)), text, sizeof text);
    CHECK_CONTAINS(text, "...,\n"); /* and seven are not */
    static const double least[] = {1e-4}, below[] = {0x1p-14};
    weft_tensor_text(weft_tensor_from(WEFT_F64, WEFT_SHAPE(1), least), text, sizeof text);
    CHECK_CONTAINS(text, "tensor([0.0001]");
    weft_tensor_text(weft_tensor_from(WEFT_F64, WEFT_SHAPE(1), below), text, sizeof text);
    CHECK_CONTAINS(text, "tensor([6.1035e-05]");
    CHECK_OK(weft_scope_close());
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/tensor.c, tensor/op/cat.c, tensor/op/compare.c, tensor/op/make.c */
#include "harness.h"

#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

#include <pthread.h>

TEST(test_tensor_empty_and_fill)
{
    weft_tensor *x = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3));
    CHECK(x);
    CHECK_INT(weft_tensor_numel(x), 6);
    CHECK_INT(weft_tensor_stride(x, 0), 3);
    CHECK_INT(weft_tensor_size(x, -1), 3);
    CHECK_INT((uintptr_t)weft_tensor_data(x) % 64, 0);
    CHECK_OK(weft_fill(x, 3.0));
    for (int i = 0; i < 6; i++)
        CHECK(weft_item(x, i) == 3.0);
    CHECK_INT(weft_tensor_version(x), 1);
    CHECK_INT(weft_tensor_version(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SCALAR)), 0);
}

TEST(test_tensor_shape_macros)
{
    weft_shape s = WEFT_SHAPE(1, 2, 3, 4, 5, 6, 7, 8);
    CHECK_INT(s.ndim, 8);
    for (int i = 0; i < 8; i++)
        CHECK_INT(s.dim[i], i + 1);
    CHECK_INT(WEFT_SHAPE(7).ndim, 1);
    CHECK_INT(WEFT_SHAPE(2, 3, 4).dim[2], 4);
    CHECK_INT(WEFT_SCALAR.ndim, 0);
    CHECK_INT(weft_tensor_numel(weft_empty(WEFT_U8, WEFT_CPU, WEFT_SCALAR)), 1);
}

TEST(test_tensor_bad_shapes)
{
    CHECK(!weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, -1)));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(INT64_MAX, 2)));
    CHECK_CONTAINS(weft_last_error(), "more bytes than can be counted");
    /* An empty dimension does not hide an overflow of the strides. */
    CHECK(!weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(0, INT64_MAX, 2)));
    CHECK(!weft_empty((weft_dtype)99, WEFT_CPU, WEFT_SHAPE(2)));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    CHECK(!weft_empty(WEFT_F32, WEFT_CPU, ((weft_shape){9, {0}})));
    CHECK(!weft_empty(WEFT_F32, WEFT_CUDA(999), WEFT_SHAPE(2))); /* there may be a GPU */
    CHECK(weft_last_status() == WEFT_ERR_UNSUPPORTED || weft_last_status() == WEFT_ERR_NOT_FOUND);
    CHECK_CONTAINS(weft_last_error(), "cuda:999");
    CHECK(!weft_empty_strided(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2), (int64_t[]){-1, 1}));
    weft_clear_error();
}

TEST(test_tensor_null_passes_through)
{
    weft_clear_error();
    CHECK(!weft_contiguous(weft_transpose(NULL, 0, 1)));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_tensor *bad = weft_empty((weft_dtype)99, WEFT_CPU, WEFT_SHAPE(2));
    char first[256];
    snprintf(first, sizeof first, "%s", weft_last_error());
    CHECK(!weft_view(weft_clone(weft_select(bad, 0, 0)), WEFT_SHAPE(1)));
    CHECK_STATUS(weft_fill(bad, 1), WEFT_ERR_TYPE);
    CHECK(isnan(weft_item(bad, 0)));
    CHECK(!strcmp(first, weft_last_error()));
    weft_clear_error();
}

TEST(test_tensor_from_and_wrap)
{
    int32_t values[] = {1, -2, 3, 4, 5, 6};
    weft_tensor *x = weft_tensor_from(WEFT_I32, WEFT_SHAPE(3, 2), values);
    weft_tensor *y = weft_tensor_wrap(WEFT_I32, WEFT_CPU, WEFT_SHAPE(2, 3), values, NULL, NULL);
    values[1] = 20;
    CHECK_INT(weft_item_int(x, 1), -2);
    CHECK_INT(weft_item_int(y, 1), 20);
    CHECK_OK(weft_fill(y, 7));
    CHECK_INT(values[5], 7);
    CHECK_STATUS(weft_storage_resize(weft_tensor_storage(y), 4), WEFT_ERR_STATE);
    CHECK(!weft_tensor_wrap(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1), (char *)values + 1, NULL, NULL));
    weft_clear_error();
}

TEST(test_tensor_meta)
{
    weft_tensor *x = weft_zeros(WEFT_BF16, WEFT_META, WEFT_SHAPE(1000000, 1000000));
    CHECK(x);
    CHECK_INT(weft_storage_bytes(weft_tensor_storage(x)), 2000000000000);
    CHECK(!weft_tensor_data(x));
    CHECK(isnan(weft_item(x, 0)));
    CHECK_CONTAINS(weft_last_error(), "meta");
    weft_clear_error();
}

TEST(test_tensor_arange)
{
    weft_tensor *x = weft_arange(WEFT_I64, WEFT_CPU, 5, -6, -3);
    CHECK_INT(weft_tensor_numel(x), 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(weft_item_int(x, i), 5 - 3 * i);
    CHECK_INT(weft_tensor_numel(weft_arange(WEFT_F32, WEFT_CPU, 0, 1, 0.25)), 4);
    CHECK_INT(weft_tensor_numel(weft_arange(WEFT_F32, WEFT_CPU, 3, 3, 1)), 0);
    CHECK(!weft_arange(WEFT_F32, WEFT_CPU, 0, 1, 0));
    weft_clear_error();
}

TEST(test_tensor_copy_converts_and_broadcasts)
{
    float row[] = {1.5f, -2.5f, 300.0f};
    weft_tensor *from = weft_tensor_from(WEFT_F32, WEFT_SHAPE(3), row);
    weft_tensor *to = weft_zeros(WEFT_I8, WEFT_CPU, WEFT_SHAPE(2, 3));
    CHECK_OK(weft_copy(to, from));
    for (int i = 0; i < 2; i++) {
        CHECK_INT(weft_item_int(to, 3 * i), 1);
        CHECK_INT(weft_item_int(to, 3 * i + 1), -2);
        CHECK_INT(weft_item_int(to, 3 * i + 2), 127); /* saturates */
    }
    CHECK_STATUS(weft_copy(from, to), WEFT_ERR_INVALID_ARG);
    weft_tensor *t = weft_transpose(weft_arange(WEFT_F32, WEFT_CPU, 0, 3, 1), 0, 0);
    CHECK_OK(weft_copy(weft_transpose(to, 0, 1), weft_unsqueeze(t, 1)));
    for (int i = 0; i < 6; i++)
        CHECK_INT(weft_item_int(to, i), i % 3);
    weft_clear_error();
}

TEST(test_tensor_copy_overlapping)
{
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 1000, 1);
    CHECK_OK(weft_copy(weft_narrow(x, 0, 1, 999), weft_narrow(x, 0, 0, 999)));
    CHECK(weft_item(x, 0) == 0);
    for (int i = 1; i < 1000; i++)
        CHECK(weft_item(x, i) == i - 1);
    weft_tensor *m = weft_view(weft_arange(WEFT_I16, WEFT_CPU, 0, 9, 1), WEFT_SHAPE(3, 3));
    CHECK_OK(weft_copy(m, weft_transpose(m, 0, 1)));
    for (int i = 0; i < 9; i++)
        CHECK_INT(weft_item_int(m, i), i % 3 * 3 + i / 3);
}

/* Which tensors are packed: rows behind each other, whatever the strides of sizes of 1 are. */
TEST(test_tensor_packed)
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3));
    CHECK(x->packed && weft_view(x, WEFT_SHAPE(6))->packed && weft_select(x, 0, 1)->packed);
    CHECK(weft_as_strided(x, WEFT_SHAPE(1, 6), (int64_t[]){77, 1}, 0)->packed);
    CHECK(!weft_transpose(x, 0, 1)->packed && !weft_slice(x, 1, 0, 2, 1)->packed);
    CHECK(weft_slice(x, 1, 0, 0, 1)->packed); /* no elements */
}

/* Two tensors of one storage meet where their bytes do, whichever comes first. */
TEST(test_tensor_ranges_meet)
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(12));
    weft_tensor *middle = weft_slice(x, 0, 4, 8, 1);
    for (int at = 0; at <= 8; at++) {
        weft_tensor *other = weft_slice(x, 0, at, at + 4, 1);
        CHECK_INT(weft_i_tensor_ranges_meet(middle, other), at > 0 && at < 8);
        CHECK_INT(weft_i_tensor_ranges_meet(other, middle), at > 0 && at < 8);
    }
    CHECK(!weft_i_tensor_ranges_meet(middle, weft_slice(x, 0, 5, 5, 1)));
}

TEST(test_tensor_clone_keeps_dense_strides)
{
    weft_tensor *x = weft_transpose(weft_arange(WEFT_F32, WEFT_CPU, 0, 6, 1), 0, 0);
    weft_tensor *t = weft_transpose(weft_view(x, WEFT_SHAPE(2, 3)), 0, 1);
    weft_tensor *clone = weft_clone(t), *packed = weft_contiguous(t);
    CHECK_INT(weft_tensor_stride(clone, 0), 1);
    CHECK_INT(weft_tensor_stride(packed, 0), 2);
    for (int i = 0; i < 6; i++)
        CHECK(weft_item(clone, i) == i % 2 * 3 + i / 2 &&
              weft_item(packed, i) == weft_item(clone, i));
    CHECK(weft_tensor_data(clone) != weft_tensor_data(t));
    /* gaps: row-major */
    CHECK_INT(weft_tensor_stride(weft_clone(weft_slice(x, 0, 0, 6, 2)), 0), 1);
    /* contiguous of contiguous is an alias, yet a handle of its own */
    weft_tensor *alias = weft_contiguous(x);
    CHECK(alias != x && weft_tensor_storage(alias) == weft_tensor_storage(x));
}

TEST(test_tensor_write_to_expanded_is_refused)
{
    weft_tensor *x =
        weft_expand(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 3)), WEFT_SHAPE(4, 3));
    CHECK_STATUS(weft_fill(x, 1), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "share memory");
    weft_clear_error();
}

TEST(test_tensor_cat_and_stack)
{
    weft_tensor *a = weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 4, 1), WEFT_SHAPE(2, 2));
    weft_tensor *b = weft_transpose(a, 0, 1);
    weft_tensor *list[] = {a, b, a};
    double rows[] = {0, 1, 2, 3, 0, 2, 1, 3, 0, 1, 2, 3},
           columns[] = {0, 1, 0, 2, 0, 1, 2, 3, 1, 3, 2, 3};
    weft_tensor *r = weft_cat(list, 3, 0), *c = weft_cat(list, 3, -1), *s = weft_stack(list, 3, 1);
    CHECK(r && c && s);
    CHECK_INT(weft_tensor_size(r, 0), 6);
    CHECK_INT(weft_tensor_size(c, 1), 6);
    CHECK_INT(weft_tensor_size(s, 1), 3);
    for (int i = 0; i < 12; i++) {
        CHECK(weft_item(r, i) == rows[i]);
        CHECK(weft_item(c, i) == columns[i]);
        CHECK(weft_item(s, i) == columns[i]); /* stacking on dim 1 interleaves the same way */
    }
    weft_tensor *mixed[] = {a, weft_ones(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1, 2))};
    CHECK_INT(weft_tensor_dtype(weft_cat(mixed, 2, 0)), WEFT_F32);
    CHECK(!weft_cat(mixed, 2, 1));
    CHECK(!weft_cat(NULL, 0, 0));
    weft_clear_error();
}

/* Scopes, generators and errors belong to threads; the registry and the kernels are shared. */
static void *work(void *result)
{
    weft_seed(99);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(50, 40));
    for (int i = 0; i < 20; i++)
        x = weft_tanh(weft_add(x, weft_transpose(weft_contiguous(weft_transpose(x, 0, 1)), 0, 1)));
    *(double *)result = weft_item(weft_sum(x, NULL, 0, false), 0);
    return NULL;
}

/* Equal elements are equal in whatever order they lie, and one that differs is found wherever it
 * is. */
TEST(test_tensor_equal_in_any_layout)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_I64, WEFT_U8, WEFT_BF16};
    for (int t = 0; t < 4; t++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *flat = weft_arange(WEFT_I64, WEFT_CPU, 0, 1500, 1);
        weft_tensor *x = weft_to_dtype(weft_view(flat, WEFT_SHAPE(30, 50)), types[t]);
        weft_tensor *turned = weft_transpose(weft_contiguous(weft_transpose(x, 0, 1)), 0, 1);
        weft_tensor *every = weft_select(weft_stack((weft_tensor *[]){x, x}, 2, 2), 2, 1);
        CHECK(weft_equal(x, turned) && weft_equal(turned, x) && weft_equal(every, turned));
        CHECK(weft_allclose(x, turned, 0, 0, false) && weft_allclose(turned, every, 0, 0, false));
        static const int64_t places[] = {0, 1, 49, 50, 255, 256, 257, 511, 512, 1023, 1024, 1499};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            weft_tensor *other = weft_transpose(weft_contiguous(weft_transpose(x, 0, 1)), 0, 1);
            weft_tensor *one =
                weft_select(weft_select(other, 0, places[i] / 50), 0, places[i] % 50);
            weft_fill(one, weft_item(one, 0) == 3 ? 4 : 3);
            CHECK(!weft_equal(x, other) && !weft_equal(other, x));
            CHECK(!weft_allclose(x, other, 0, 0, false));
        }
        CHECK_OK(weft_scope_close());
    }
}

TEST(test_tensor_threads_are_independent)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    double results[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, &results[i]));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK(results[i] == results[0] && results[i] != 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/view.c, tensor/op/reshape.c */
/* Views against a model that holds every element in a plain list, moved by index arithmetic only.
 */
#include "harness.h"

#include "tensor/object/tensor.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

enum { MOST = 4096 };

/* The elements in row-major order of the shape. */
typedef struct model {
    int ndim;
    int64_t dim[8], value[MOST];
} model;

static int64_t count_of(const model *m)
{
    int64_t n = 1;
    for (int i = 0; i < m->ndim; i++)
        n *= m->dim[i];
    return n;
}

static void split_index(const model *m, int64_t flat, int64_t *index)
{
    for (int i = m->ndim - 1; i >= 0; i--) {
        index[i] = flat % m->dim[i];
        flat /= m->dim[i];
    }
}

static int64_t at(const model *m, const int64_t *index)
{
    int64_t flat = 0;
    for (int i = 0; i < m->ndim; i++)
        flat = flat * m->dim[i] + index[i];
    return m->value[flat];
}

static void check_same(const weft_tensor *x, const model *m, const char *what)
{
    if (!x)
        FAIL("%s: %s", what, weft_last_error());
    if (weft_tensor_ndim(x) != m->ndim)
        FAIL("%s: %d dimensions, not %d", what, weft_tensor_ndim(x), m->ndim);
    for (int i = 0; i < m->ndim; i++)
        if (weft_tensor_size(x, i) != m->dim[i])
            FAIL("%s: size %lld of dimension %d, not %lld", what, (long long)weft_tensor_size(x, i),
                 i, (long long)m->dim[i]);
    for (int64_t i = 0; i < count_of(m); i++)
        if (weft_item_int(x, i) != m->value[i])
            FAIL("%s: element %lld is %lld, not %lld", what, (long long)i,
                 (long long)weft_item_int(x, i), (long long)m->value[i]);
}

static unsigned state;

static int64_t pick(int64_t n) /* 0 ... n - 1 */
{
    state = state * 1664525u + 1013904223u;
    return (int64_t)(state >> 8) % n;
}

static weft_tensor *random_permute(weft_tensor *x, model *m)
{
    model old = *m;
    int dims[8];
    for (int i = 0; i < m->ndim; i++)
        dims[i] = i;
    for (int i = m->ndim - 1; i > 0; i--) {
        int j = (int)pick(i + 1), swap = dims[i];
        dims[i] = dims[j];
        dims[j] = swap;
    }
    for (int i = 0; i < m->ndim; i++)
        m->dim[i] = old.dim[dims[i]];
    for (int64_t flat = 0; flat < count_of(m); flat++) {
        int64_t index[8], from[8];
        split_index(m, flat, index);
        for (int i = 0; i < m->ndim; i++)
            from[dims[i]] = index[i];
        m->value[flat] = at(&old, from);
    }
    return weft_permute(x, dims);
}

static weft_tensor *random_slice(weft_tensor *x, model *m)
{
    if (!m->ndim)
        return weft_detach(x);
    model old = *m;
    int dim = (int)pick(m->ndim);
    int64_t start = pick(old.dim[dim] + 1), end = pick(old.dim[dim] + 3), step = 1 + pick(3),
            length = 0;
    for (int64_t i = start; i < end && i < old.dim[dim]; i += step)
        length++;
    if (length == 0)
        return weft_detach(x);
    m->dim[dim] = length;
    for (int64_t flat = 0; flat < count_of(m); flat++) {
        int64_t index[8];
        split_index(m, flat, index);
        index[dim] = start + index[dim] * step;
        m->value[flat] = at(&old, index);
    }
    return weft_slice(x, dim - (int)pick(2) * m->ndim, start, end, step);
}

static weft_tensor *random_select(weft_tensor *x, model *m)
{
    if (!m->ndim)
        return weft_detach(x);
    model old = *m;
    int dim = (int)pick(m->ndim);
    int64_t chosen = pick(old.dim[dim]);
    m->ndim--;
    for (int i = dim; i < m->ndim; i++)
        m->dim[i] = old.dim[i + 1];
    for (int64_t flat = 0; flat < count_of(m); flat++) {
        int64_t index[8], from[8];
        split_index(m, flat, index);
        for (int i = 0; i < old.ndim; i++)
            from[i] = i == dim ? chosen : index[i - (i > dim)];
        m->value[flat] = at(&old, from);
    }
    return weft_select(x, dim, chosen - pick(2) * old.dim[dim]);
}

static weft_tensor *random_expand(weft_tensor *x, model *m)
{
    model old = *m;
    weft_shape shape = {m->ndim, {0}};
    int extra = m->ndim < 6 && count_of(m) < 500 ? (int)pick(2) : 0;
    shape.ndim += extra;
    for (int i = 0; i < shape.ndim; i++) {
        int64_t size = i < extra ? 2 : old.dim[i - extra];
        shape.dim[i] = i >= extra && size == 1 && count_of(&old) < 500 ? 3 : size;
    }
    m->ndim = shape.ndim;
    for (int i = 0; i < m->ndim; i++)
        m->dim[i] = shape.dim[i];
    for (int64_t flat = 0; flat < count_of(m); flat++) {
        int64_t index[8], from[8];
        split_index(m, flat, index);
        for (int i = 0; i < old.ndim; i++)
            from[i] = old.dim[i] == 1 ? 0 : index[i + extra];
        m->value[flat] = at(&old, from);
    }
    return weft_expand(x, shape);
}

/* Any factorisation of the element count, as a reshape: the order of elements does not change. */
static weft_tensor *random_reshape(weft_tensor *x, model *m)
{
    int64_t left = count_of(m);
    weft_shape shape = {0, {0}};
    while (left > 1 && shape.ndim < 5) {
        int64_t factor = 1;
        for (int tries = 0; tries < 8 && (factor == 1 || left % factor); tries++)
            factor = 1 + pick(6);
        factor = left % factor ? 1 : factor;
        shape.dim[shape.ndim++] = factor;
        left /= factor;
    }
    shape.dim[shape.ndim++] = left;
    m->ndim = shape.ndim;
    for (int i = 0; i < m->ndim; i++)
        m->dim[i] = shape.dim[i];
    if (pick(2))
        shape.dim[pick(shape.ndim)] = -1;
    return weft_reshape(x, shape);
}

static weft_tensor *random_ones(weft_tensor *x, model *m)
{
    int dim = m->ndim < 7 ? (int)pick(m->ndim + 1) : 0;
    if (m->ndim == 7)
        return weft_detach(x);
    for (int i = m->ndim; i > dim; i--)
        m->dim[i] = m->dim[i - 1];
    m->dim[dim] = 1;
    m->ndim++;
    return weft_unsqueeze(x, dim);
}

TEST(test_view_chains_match_a_model)
{
    static weft_tensor *(*const steps[])(weft_tensor *, model *) = {
        random_permute, random_slice, random_select, random_expand, random_reshape, random_ones};
    static const char *const names[] = {"permute", "slice",   "select",
                                        "expand",  "reshape", "unsqueeze"};
    static model m;
    for (unsigned seed = 0; seed < 400; seed++) {
        state = seed;
        CHECK_OK(weft_scope_open());
        m = (model){.ndim = 4, .dim = {2 + pick(3), 1 + pick(4), 2 + pick(5), 1 + pick(6)}};
        for (int64_t i = 0; i < count_of(&m); i++)
            m.value[i] = i;
        weft_tensor *x = weft_view(weft_arange(WEFT_I32, WEFT_CPU, 0, (double)count_of(&m), 1),
                                   WEFT_SHAPE(m.dim[0], m.dim[1], m.dim[2], m.dim[3]));
        for (int step = 0; step < 6; step++) {
            int which = (int)pick(6);
            x = steps[which](x, &m);
            check_same(x, &m, names[which]);
        }
        check_same(weft_contiguous(x), &m, "contiguous");
        check_same(weft_clone(x), &m, "clone");
        CHECK_OK(weft_scope_close());
    }
}

static weft_tensor *cube(void)
{
    return weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 24, 1), WEFT_SHAPE(2, 3, 4));
}

TEST(test_view_shares_memory_and_strides)
{
    weft_tensor *x = cube(), *t = weft_transpose(x, 0, 2);
    CHECK(weft_tensor_storage(t) == weft_tensor_storage(x));
    CHECK(weft_tensor_stride(t, 0) == 1 && weft_tensor_stride(t, 2) == 12);
    CHECK(!weft_tensor_is_contiguous(t));
    CHECK_OK(weft_fill(weft_select(t, 0, 3), 100));
    CHECK(weft_item(x, 3) == 100 && weft_item(x, 23) == 100 && weft_item(x, 22) == 22);
}

TEST(test_view_movedim_transpose_squeeze)
{
    weft_tensor *x = cube(), *m = weft_movedim(x, 0, -1);
    CHECK(weft_tensor_size(m, 0) == 3 && weft_tensor_size(m, 1) == 4 &&
          weft_tensor_size(m, 2) == 2);
    CHECK(weft_item(m, 1) == 12);
    weft_tensor *u = weft_unsqueeze(x, -1);
    CHECK(weft_tensor_ndim(u) == 4 && weft_tensor_ndim(weft_squeeze(u, 3)) == 3);
    CHECK_INT(weft_tensor_ndim(weft_squeeze(u, 0)), 4); /* size 2: stays */
    CHECK_INT(weft_tensor_ndim(weft_flatten(x, 1, 2)), 2);
    CHECK_INT(weft_tensor_ndim(weft_flatten(x, 1, 1)), weft_tensor_ndim(x)); /* one: as it is */
    CHECK_INT(weft_tensor_size(weft_flatten(weft_transpose(x, 0, 1), 0, -1), 0), 24);
    CHECK_INT(weft_tensor_size(weft_flatten(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SCALAR), 0, 0), 0),
              1);
}

TEST(test_view_needs_fitting_strides)
{
    weft_tensor *t = weft_transpose(cube(), 1, 2);
    CHECK(!weft_view(t, WEFT_SHAPE(24)));
    CHECK_CONTAINS(weft_last_error(), "weft_reshape");
    CHECK(weft_view(t, WEFT_SHAPE(1, 2, 4, 3, 1)));
    CHECK(weft_view(t, WEFT_SHAPE(2, 2, 2, 3)));
    weft_tensor *flat = weft_reshape(t, WEFT_SHAPE(-1));
    CHECK(flat && weft_item(flat, 1) == 4);
    CHECK(weft_tensor_storage(weft_reshape(cube(), WEFT_SHAPE(6, 4))));
    weft_tensor *most = weft_reshape(t, WEFT_SHAPE(1, 1, 3, 2, 1, 1, 4, 1)); /* of dimensions */
    CHECK(most && weft_item(most, 1) == 4);
    CHECK(!weft_view(cube(), WEFT_SHAPE(5, -1)));
    CHECK(!weft_view(cube(), WEFT_SHAPE(-1, -1)));
    CHECK(!weft_reshape(cube(), WEFT_SHAPE(25)));
    CHECK_CONTAINS(weft_last_error(), "24 elements");
    weft_clear_error();
}

TEST(test_view_split_and_chunk)
{
    weft_tensor *x = weft_arange(WEFT_I64, WEFT_CPU, 0, 10, 1), *out[8];
    size_t count = 8;
    CHECK_OK(weft_split(x, 4, 0, out, &count));
    CHECK_INT(count, 3);
    CHECK(weft_tensor_numel(out[2]) == 2 && weft_item_int(out[2], 1) == 9);
    count = 8;
    CHECK_OK(weft_chunk(x, 4, -1, out, &count)); /* pieces of 3: 3 3 3 1 */
    CHECK_INT(count, 4);
    CHECK_INT(weft_tensor_numel(out[3]), 1);
    count = 2;
    CHECK_STATUS(weft_split(x, 4, 0, out, &count), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_split(x, 0, 0, out, &count), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

TEST(test_view_as_strided)
{
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 10, 1);
    weft_tensor *windows = weft_as_strided(x, WEFT_SHAPE(4, 3), (int64_t[]){2, 1}, 1);
    CHECK(weft_item(windows, 3 * 3 + 2) == 9);
    CHECK(!weft_as_strided(x, WEFT_SHAPE(4, 3), (int64_t[]){2, 1}, 2));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK(!weft_as_strided(x, WEFT_SHAPE(2), (int64_t[]){INT64_MAX}, 1));
    CHECK(!weft_as_strided(x, WEFT_SHAPE(2), (int64_t[]){1}, INT64_MAX));
    CHECK(!weft_as_strided(x, WEFT_SHAPE(2), (int64_t[]){-1}, 5));
    CHECK_STATUS(weft_fill(windows, 0), WEFT_ERR_INVALID_ARG); /* rows overlap */
    /* As other views it needs no memory before its use. */
    CHECK_OK(weft_storage_resize(weft_tensor_storage(x), 0));
    weft_tensor *later = weft_as_strided(x, WEFT_SHAPE(2, 2), (int64_t[]){2, 1}, 0);
    CHECK(later && isnan(weft_item(later, 0)));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    weft_clear_error();
    CHECK_OK(weft_storage_resize(weft_tensor_storage(x), 40));
    CHECK_OK(weft_fill(x, 3));
    CHECK(weft_item(later, 3) == 3);
    weft_clear_error();
}

TEST(test_view_of_bytes)
{
    float values[] = {1, -2};
    weft_tensor *x = weft_tensor_from(WEFT_F32, WEFT_SHAPE(2), values);
    weft_tensor *bytes = weft_view_dtype(x, WEFT_U8);
    CHECK_INT(weft_tensor_size(bytes, 0), 8);
    CHECK_INT(weft_item_int(bytes, 3), 0x3f);
    CHECK_INT(weft_item_int(bytes, 7), 0xc0);
    CHECK(weft_equal(weft_view_dtype(bytes, WEFT_F32), x));
    CHECK_INT(weft_item_int(weft_view_dtype(x, WEFT_I32), 0), 0x3f800000);
    CHECK(!weft_view_dtype(weft_slice(bytes, 0, 1, 5, 1), WEFT_F32)); /* misaligned */
    CHECK(!weft_view_dtype(weft_slice(bytes, 0, 0, 8, 2), WEFT_U16));
    weft_clear_error();
    weft_tensor *turned = weft_transpose(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3)), 0, 1),
                *scalar = weft_full(WEFT_F32, WEFT_CPU, (weft_shape){0}, 1);
    weft_tensor *wrong[] = {turned, scalar};
    for (int i = 0; i < 2; i++) {
        CHECK(!weft_view_dtype(wrong[i], WEFT_U16));
        CHECK_CONTAINS(weft_last_error(), "view_dtype: the last dimension must be contiguous");
        weft_clear_error();
    }
}

/* What need not be computed is not: packed tensors in other shapes take the short way, also with all
 * dimensions that there can be; others do not. */
TEST(test_view_takes_the_short_way)
{
    weft_tensor *x = cube();
    int64_t most[WEFT_MAX_DIMS] = {2, 1, 3, 1, 1, 4, 1, 1}, inferred[] = {2, -1}, less[] = {2, 3},
            same[] = {2, 3, 4}, vast[] = {INT64_MAX, 3};
    static const struct {
        int count;
        bool quick;
    } cases[] = {{WEFT_MAX_DIMS, true}, {2, false}, {2, false}, {3, false}, {2, false}};
    int64_t *const sizes[] = {most, inferred, less, same, vast};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_i_arg args[] = {WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGERS_ARG(sizes[i], cases[i].count)};
        weft_i_op_call call = {.op = &weft_i_op_view, .args = args};
        if (weft_i_view_quick(&call) != cases[i].quick)
            FAIL("case %zu", i);
        CHECK(!cases[i].quick == !call.out);
        for (int dim = 0; call.out && dim < cases[i].count; dim++)
            CHECK_INT(weft_tensor_size(call.out, dim), sizes[i][dim]);
    }
}

TEST(test_view_bad_arguments)
{
    weft_tensor *x = cube();
    CHECK(!weft_select(x, 0, 2) && !weft_select(x, 3, 0) && !weft_transpose(x, 0, 3));
    CHECK(!weft_narrow(x, 2, 3, 2) && !weft_narrow(x, 0, 0, -1) && !weft_slice(x, 0, 0, 2, 0));
    CHECK(!weft_permute(x, (int[]){0, 1, 1}) && !weft_permute(x, NULL));
    CHECK(!weft_expand(x, WEFT_SHAPE(3, 3, 4)) && !weft_expand(x, WEFT_SHAPE(3, 4)));
    CHECK(!weft_flatten(x, 2, 1) && !weft_unsqueeze(x, 4));
    weft_tensor *deep = weft_view(x, WEFT_SHAPE(1, 1, 1, 1, 1, 2, 3, 4));
    CHECK(deep && !weft_unsqueeze(deep, 0));
    CHECK(weft_tensor_numel(weft_slice(x, 0, 5, -9, 1)) == 0);
    CHECK_INT(weft_tensor_size(weft_slice(x, 2, -2, INT64_MAX, 1), 2), 2);
    weft_clear_error();
}

/* A view of no elements has the strides of its own sizes, though all sizes but the first agree. */
TEST(test_view_of_nothing_strides)
{
    weft_tensor *none = weft_narrow(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 8)), 1, 0, 0);
    CHECK(none && weft_tensor_stride(none, 0) == 8);
    weft_tensor *same = weft_view(none, WEFT_SHAPE(4, 0)),
                *other = weft_view(none, WEFT_SHAPE(3, 0));
    CHECK(same && weft_tensor_stride(same, 0) == 8);
    CHECK(other && weft_tensor_size(other, 0) == 3);
    CHECK_INT(weft_tensor_stride(other, 0), 1);
    CHECK_INT(weft_tensor_stride(other, 1), 1);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

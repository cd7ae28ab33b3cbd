/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/tensor.c, tensor/op/reshape.c, tensor/op/view.c */
/* Shapes, strides and views, every small case of them: what is accepted, where it lies, and what an
 * index one too far gives. */
#include "harness.h"

#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

#include <stdint.h>

/* The tensor 0 ... 23 as [2, 3, 4]. */
static weft_tensor *cube(void)
{
    return weft_view(weft_arange(WEFT_I32, WEFT_CPU, 0, 24, 1), WEFT_SHAPE(2, 3, 4));
}

static void refused(const weft_tensor *x, weft_status status, const char *word)
{
    CHECK(!x);
    CHECK_INT(weft_last_status(), status);
    CHECK_CONTAINS(weft_last_error(), word);
    weft_clear_error();
}

static int64_t wrapped(int64_t at, int64_t size)
{
    return at < 0 ? at + size : at;
}

/* Element i, j, k of x, at most. */
static int64_t item(const weft_tensor *x, int64_t i, int64_t j, int64_t k)
{
    int64_t flat = 0, index[3] = {i, j, k};
    for (int d = 0; d < weft_tensor_ndim(x); d++)
        flat = flat * weft_tensor_size(x, d) + index[d];
    return weft_item_int(x, flat);
}

#define EACH_PART                                                                               \
    for (int dim = -4; dim < 4; dim++)                                                          \
        for (int64_t size = dim >= -3 && dim < 3 ? weft_tensor_size(x, dim < 0 ? dim + 3 : dim) \
                                                 : 2,                                           \
                     once = 1;                                                                  \
             once; once = 0)

TEST(test_layout_null)
{
    size_t room = 4;
    weft_tensor *out[4];
    weft_clear_error();
#define NULL_GIVES_NULL(call_)                               \
    do {                                                     \
        CHECK(!(call_));                                     \
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG); \
        weft_clear_error();                                  \
    } while (0)
    NULL_GIVES_NULL(weft_reshape(NULL, WEFT_SHAPE(1)));
    NULL_GIVES_NULL(weft_flatten(NULL, 0, -1));
    NULL_GIVES_NULL(weft_squeeze(NULL, 0));
    NULL_GIVES_NULL(weft_unsqueeze(NULL, 0));
    NULL_GIVES_NULL(weft_permute(NULL, (int[]){0}));
    NULL_GIVES_NULL(weft_transpose(NULL, 0, 0));
    NULL_GIVES_NULL(weft_movedim(NULL, 0, 0));
    NULL_GIVES_NULL(weft_narrow(NULL, 0, 0, 1));
    NULL_GIVES_NULL(weft_view(NULL, WEFT_SHAPE(1)));
    NULL_GIVES_NULL(weft_slice(NULL, 0, 0, 1, 1));
    NULL_GIVES_NULL(weft_select(NULL, 0, 0));
    NULL_GIVES_NULL(weft_expand(NULL, WEFT_SHAPE(1)));
    CHECK_STATUS(weft_split(NULL, 1, 0, out, &room), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_chunk(NULL, 1, 0, out, &room), WEFT_ERR_INVALID_ARG);
    CHECK_INT(room, 4);
    weft_clear_error();
}

TEST(test_layout_narrow)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = cube();
    EACH_PART for (int64_t start = -6; start <= 6; start++) for (int64_t length = -1; length <= 6;
                                                                 length++)
    {
        weft_tensor *part = weft_narrow(x, dim, start, length);
        int64_t from = wrapped(start, size);
        bool right = dim >= -3 && dim < 3 && from >= 0 && from <= size && length >= 0 &&
                     from + length <= size;
        if (!right) {
            refused(part, WEFT_ERR_INVALID_ARG, "narrow");
            continue;
        }
        int at = (int)wrapped(dim, 3);
        CHECK(part && weft_tensor_ndim(part) == 3);
        CHECK_INT(weft_tensor_size(part, at), length);
        int64_t first[3] = {0, 0, 0};
        first[at] = from;
        if (length)
            CHECK_INT(weft_item_int(part, 0), first[0] * 12 + first[1] * 4 + first[2]);
        CHECK(weft_tensor_storage(part) == weft_tensor_storage(x));
    }
    CHECK_OK(weft_scope_close());
}

TEST(test_layout_slice_and_select)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = cube();
    EACH_PART for (int64_t start = -6; start <= 6; start++)
    {
        bool there = dim >= -3 && dim < 3;
        weft_tensor *one = weft_select(x, dim, start);
        if (!there || start < -size || start >= size)
            refused(one, WEFT_ERR_INVALID_ARG, "select");
        else {
            int at = (int)wrapped(dim, 3);
            int64_t strides[3] = {12, 4, 1};
            CHECK(one && weft_tensor_ndim(one) == 2);
            CHECK_INT(weft_item_int(one, 0), wrapped(start, size) * strides[at]);
            CHECK_INT(weft_tensor_size(one, 0), weft_tensor_size(x, at == 0 ? 1 : 0));
            CHECK_INT(weft_tensor_size(one, 1), weft_tensor_size(x, at == 2 ? 1 : 2));
            CHECK_INT(weft_tensor_stride(one, 0), at == 0 ? 4 : 12);
            CHECK_INT(weft_tensor_stride(one, 1), at == 2 ? 4 : 1);
        }
        for (int64_t end = -6; end <= 6; end++)
            for (int64_t step = 0; step <= 3; step++) {
                weft_tensor *part = weft_slice(x, dim, start, end, step);
                if (!there || step < 1) {
                    refused(part, WEFT_ERR_INVALID_ARG, "slice");
                    continue;
                }
                int at = (int)wrapped(dim, 3);
                int64_t from = wrapped(start, size), to = wrapped(end, size), length = 0;
                from = from < 0 ? 0 : from > size ? size : from;
                to = to < 0 ? 0 : to > size ? size : to;
                for (int64_t i = from; i < to; i += step)
                    length++;
                int64_t strides[3] = {12, 4, 1};
                CHECK(part);
                CHECK_INT(weft_tensor_size(part, at), length);
                CHECK_INT(weft_tensor_offset(part), length ? from * strides[at] : 0);
                CHECK_INT(weft_tensor_stride(part, at), strides[at] * (length > 1 ? step : 1));
            }
    }
    CHECK_OK(weft_scope_close());
}

TEST(test_layout_orders)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = cube();
    int64_t size[3] = {2, 3, 4};
    for (int a = -4; a < 4; a++)
        for (int b = -4; b < 4; b++) {
            bool right = a >= -3 && a < 3 && b >= -3 && b < 3;
            weft_tensor *t = weft_transpose(x, a, b), *keep = t;
            if (!right)
                refused(t, WEFT_ERR_INVALID_ARG, "transpose");
            weft_tensor *m = weft_movedim(x, a, b);
            if (!right) {
                refused(m, WEFT_ERR_INVALID_ARG, "movedim");
                continue;
            }
            int from = (int)wrapped(a, 3), to = (int)wrapped(b, 3), order[3] = {0, 1, 2}, n = 0;
            order[from] = to;
            order[to] = from;
            int moved[3], left[2];
            for (int i = 0; i < 3; i++)
                if (i != from)
                    left[n++] = i;
            for (int i = 0, k = 0; i < 3; i++)
                moved[i] = i == to ? from : left[k++];
            for (int i = 0; i < 3; i++) {
                CHECK_INT(weft_tensor_size(keep, i), size[order[i]]);
                CHECK_INT(weft_tensor_size(m, i), size[moved[i]]);
            }
            int64_t index[3], back[3];
            for (index[0] = 0; index[0] < 2; index[0]++)
                for (index[1] = 0; index[1] < 3; index[1]++)
                    for (index[2] = 0; index[2] < 4; index[2]++) {
                        int64_t value = index[0] * 12 + index[1] * 4 + index[2];
                        for (int i = 0; i < 3; i++)
                            back[i] = index[order[i]];
                        CHECK_INT(item(keep, back[0], back[1], back[2]), value);
                        for (int i = 0; i < 3; i++)
                            back[i] = index[moved[i]];
                        CHECK_INT(item(m, back[0], back[1], back[2]), value);
                    }
        }
    int zero_dims[1] = {0};
    weft_tensor *scalar = weft_reshape(weft_arange(WEFT_I32, WEFT_CPU, 7, 8, 1), (weft_shape){0});
    CHECK(scalar && weft_permute(scalar, NULL) && weft_permute(scalar, zero_dims));
    refused(weft_permute(x, NULL), WEFT_ERR_INVALID_ARG, "NULL");
    refused(weft_permute(x, (int[]){0, 1, 3}), WEFT_ERR_INVALID_ARG, "permute");
    refused(weft_permute(x, (int[]){2, 1, -1}), WEFT_ERR_INVALID_ARG, "twice");
    CHECK_OK(weft_scope_close());
}

TEST(test_layout_flatten_and_ones)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = cube(), *turned = weft_transpose(x, 0, 2);
    for (int a = -4; a < 4; a++)
        for (int b = -4; b < 4; b++)
            for (int way = 0; way < 2; way++) {
                weft_tensor *from = way ? turned : x, *flat = weft_flatten(from, a, b);
                int first = (int)wrapped(a, 3), last = (int)wrapped(b, 3);
                if (a < -3 || a > 2 || b < -3 || b > 2 || first > last) {
                    refused(flat, WEFT_ERR_INVALID_ARG, "flatten");
                    continue;
                }
                CHECK(flat && weft_tensor_ndim(flat) == 3 - (last - first));
                int64_t product = 1;
                for (int i = first; i <= last; i++)
                    product *= weft_tensor_size(from, i);
                CHECK_INT(weft_tensor_size(flat, first), product);
                for (int i = 0; i < first; i++)
                    CHECK_INT(weft_tensor_size(flat, i), weft_tensor_size(from, i));
                for (int i = last + 1; i < 3; i++)
                    CHECK_INT(weft_tensor_size(flat, i - (last - first)),
                              weft_tensor_size(from, i));
                for (int64_t i = 0; i < 24; i++)
                    CHECK_INT(weft_item_int(flat, i), weft_item_int(from, i));
            }
    for (int dim = -5; dim < 5; dim++) {
        weft_tensor *more = weft_unsqueeze(x, dim);
        if (dim < -4 || dim > 3) {
            refused(more, WEFT_ERR_INVALID_ARG, "unsqueeze");
            continue;
        }
        int at = (int)wrapped(dim, 4);
        CHECK(more && weft_tensor_ndim(more) == 4 && weft_tensor_size(more, at) == 1);
        for (int i = 0, k = 0; i < 4; i++)
            if (i != at)
                CHECK_INT(weft_tensor_size(more, i), weft_tensor_size(x, k++));
        for (int squeezed = -5; squeezed < 5; squeezed++) {
            weft_tensor *less = weft_squeeze(more, squeezed);
            if (squeezed < -4 || squeezed > 3)
                refused(less, WEFT_ERR_INVALID_ARG, "squeeze");
            else
                CHECK_INT(weft_tensor_ndim(less), (int)wrapped(squeezed, 4) == at ? 3 : 4);
        }
    }
    weft_tensor *scalar = weft_reshape(weft_arange(WEFT_I32, WEFT_CPU, 7, 8, 1), (weft_shape){0});
    weft_tensor *flat = weft_flatten(scalar, 0, -1);
    CHECK(flat && weft_tensor_ndim(flat) == 1 && weft_item_int(flat, 0) == 7);
    weft_shape deep = {WEFT_MAX_DIMS, {1, 1, 1, 1, 1, 2, 3, 4}};
    refused(weft_unsqueeze(weft_view(x, deep), 0), WEFT_ERR_INVALID_ARG, "at most");
    deep.ndim = WEFT_MAX_DIMS + 1;
    refused(weft_reshape(x, deep), WEFT_ERR_INVALID_ARG, "");
    deep.ndim = -1;
    refused(weft_reshape(x, deep), WEFT_ERR_INVALID_ARG, "");
    refused(weft_view(x, deep), WEFT_ERR_INVALID_ARG, "dimensions");
    deep.ndim = WEFT_MAX_DIMS + 1;
    refused(weft_view(x, deep), WEFT_ERR_INVALID_ARG, "dimensions");
    refused(weft_expand(x, deep), WEFT_ERR_INVALID_ARG, "dimensions");
    CHECK_OK(weft_scope_close());
}

TEST(test_layout_split_and_chunk)
{
    CHECK_OK(weft_scope_open());
    for (int64_t length = 0; length <= 7; length++) {
        weft_tensor *x = weft_arange(WEFT_I32, WEFT_CPU, 0, (double)length, 1), *out[10];
        for (int64_t number = -1; number <= 9; number++)
            for (size_t room = 0; room <= 10; room++)
                for (int chunks = 0; chunks < 2; chunks++) {
                    size_t count = room;
                    weft_status status = chunks ? weft_chunk(x, number, 0, out, &count)
                                                : weft_split(x, number, -1, out, &count);
                    if (number < 1) {
                        CHECK_INT(status, WEFT_ERR_INVALID_ARG);
                        continue;
                    }
                    int64_t size = chunks ? (length + number - 1) / number : number;
                    int64_t pieces = !length ? (chunks ? number : 1) : (length + size - 1) / size;
                    if ((int64_t)room < pieces) {
                        CHECK_INT(status, WEFT_ERR_INVALID_ARG);
                        CHECK_INT(count, room);
                        weft_clear_error();
                        continue;
                    }
                    CHECK_OK(status);
                    CHECK_INT(count, pieces);
                    for (int64_t i = 0, at = 0; i < pieces; i++, at += size) {
                        int64_t here = length - at < size ? length - at : size;
                        CHECK_INT(weft_tensor_numel(out[i]), here);
                        if (here)
                            CHECK_INT(weft_item_int(out[i], 0), at);
                    }
                }
        size_t count = 9;
        for (int dim = -2; dim <= 1; dim += 3) {
            CHECK_STATUS(weft_split(x, 1, dim, out, &count), WEFT_ERR_INVALID_ARG);
            CHECK_CONTAINS(weft_last_error(), "no dimension");
            CHECK_STATUS(weft_chunk(x, 1, dim, out, &count), WEFT_ERR_INVALID_ARG);
            CHECK_CONTAINS(weft_last_error(), "no dimension");
            weft_clear_error();
        }
        CHECK_STATUS(weft_split(x, 1, 0, NULL, &count), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_split(x, 1, 0, out, NULL), WEFT_ERR_INVALID_ARG);
        weft_clear_error();
    }
    CHECK_OK(weft_scope_close());
}

TEST(test_layout_expand)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_view(weft_arange(WEFT_I32, WEFT_CPU, 0, 3, 1), WEFT_SHAPE(1, 3));
    for (int ndim = 0; ndim <= 3; ndim++)
        for (int64_t a = -2; a <= 4; a++)
            for (int64_t b = -2; b <= 4; b++)
                for (int64_t c = -2; c <= 4; c++) {
                    weft_shape shape = {ndim, {a, b, c}};
                    int extra = ndim - 2;
                    bool right = extra >= 0;
                    if (right && extra == 1)
                        right = a >= 0;
                    int64_t one = extra == 1 ? b : a, three = extra == 1 ? c : b;
                    right = right && one >= -1 && (three == 3 || three == -1);
                    weft_tensor *wide = weft_expand(x, shape);
                    if (!right) {
                        refused(wide, WEFT_ERR_INVALID_ARG, "expand");
                        continue;
                    }
                    CHECK(wide);
                    CHECK_INT(weft_tensor_size(wide, ndim - 1), 3);
                    CHECK_INT(weft_tensor_stride(wide, ndim - 1), 1);
                    CHECK_INT(weft_tensor_size(wide, ndim - 2), one < 0 ? 1 : one);
                    if (one > 1)
                        CHECK_INT(weft_tensor_stride(wide, ndim - 2), 0);
                    if (extra)
                        CHECK(weft_tensor_size(wide, 0) == a && weft_tensor_stride(wide, 0) == 0);
                }
    CHECK_OK(weft_scope_close());
}

/* view: every shape of up to three dimensions over several layouts.  What view refuses reshape
 * copies, and the elements are the same. */
TEST(test_layout_view)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *flat = weft_arange(WEFT_I32, WEFT_CPU, 0, 48, 1);
    weft_tensor *of[] = {
        weft_view(weft_narrow(flat, 0, 0, 12), WEFT_SHAPE(3, 4)),
        weft_transpose(weft_view(weft_narrow(flat, 0, 0, 12), WEFT_SHAPE(3, 4)), 0, 1),
        weft_slice(weft_narrow(flat, 0, 1, 24), 0, 0, 24, 2),
        weft_slice(weft_view(weft_narrow(flat, 0, 0, 24), WEFT_SHAPE(3, 8)), 1, 0, 4, 1),
        weft_unsqueeze(weft_slice(flat, 0, 0, 48, 4), 1)};
    for (size_t t = 0; t < sizeof of / sizeof *of; t++)
        for (int ndim = 0; ndim <= 3; ndim++)
            for (int64_t a = -2; a <= 12; a++)
                for (int64_t b = -2; b <= (ndim > 1 ? 12 : -2); b++)
                    for (int64_t c = -1; c <= (ndim > 2 ? 12 : -1); c++) {
                        weft_shape shape = {ndim, {a, b, c}};
                        int64_t known = 1, open = 0, bad = 0;
                        for (int i = 0; i < ndim; i++) {
                            open += shape.dim[i] == -1;
                            bad += shape.dim[i] < -1;
                            known *= shape.dim[i] == -1 ? 1 : shape.dim[i];
                        }
                        bool right =
                            !bad && open < 2 && (open ? known > 0 && 12 % known == 0 : known == 12);
                        CHECK_OK(weft_scope_open());
                        weft_tensor *seen = weft_view(of[t], shape),
                                    *made = weft_reshape(of[t], shape);
                        if (!right) {
                            CHECK(!seen && !made);
                            CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
                        } else {
                            CHECK(made && weft_tensor_numel(made) == 12);
                            for (int i = 0; i < ndim; i++)
                                CHECK_INT(weft_tensor_size(made, i),
                                          shape.dim[i] == -1 ? 12 / known : shape.dim[i]);
                            for (int64_t i = 0; i < 12; i++) {
                                CHECK_INT(weft_item_int(made, i), weft_item_int(of[t], i));
                                if (seen)
                                    CHECK_INT(weft_item_int(seen, i), weft_item_int(of[t], i));
                            }
                            /* it copies only where it must */
                            CHECK((weft_tensor_storage(made) == weft_tensor_storage(of[t])) ==
                                  !!seen);
                            if (t == 0 || t == 2 || t == 4)
                                CHECK(seen);
                        }
                        weft_clear_error();
                        CHECK_OK(weft_scope_close());
                    }
    CHECK_OK(weft_scope_close());
}

TEST(test_layout_view_dtype)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *bytes = weft_view_dtype(weft_arange(WEFT_I32, WEFT_CPU, 0, 12, 1), WEFT_U8);
    CHECK_INT(weft_tensor_size(bytes, 0), 48);
    weft_tensor *table = weft_view(bytes, WEFT_SHAPE(6, 8));
    for (int64_t row = 0; row < 3; row++)
        for (int64_t start = 0; start < 8; start++)
            for (int64_t length = 1; start + length <= 8; length++) {
                weft_tensor *part = weft_narrow(weft_narrow(table, 0, row, 3), 1, start, length);
                weft_tensor *wide = weft_view_dtype(part, WEFT_I32);
                bool right = start % 4 == 0 && length % 4 == 0;
                if (!right) {
                    refused(wide, WEFT_ERR_INVALID_ARG, "view_dtype");
                    continue;
                }
                CHECK_INT(weft_tensor_size(wide, 1), length / 4);
                CHECK_INT(weft_tensor_stride(wide, 0), 2);
                CHECK_INT(weft_tensor_stride(wide, 1), 1);
                CHECK_INT(weft_item_int(wide, 0), row * 2 + start / 4);
                weft_tensor *again = weft_view_dtype(wide, WEFT_U8);
                CHECK_INT(weft_tensor_offset(again), weft_tensor_offset(part));
                CHECK_INT(weft_tensor_size(again, 1), length);
                CHECK_INT(weft_tensor_stride(again, 0), 8);
            }
    refused(weft_view_dtype(weft_slice(bytes, 0, 0, 48, 2), WEFT_I32), WEFT_ERR_INVALID_ARG,
            "view");
    refused(weft_view_dtype(weft_select(weft_view_dtype(bytes, WEFT_I32), 0, 0), WEFT_U8),
            WEFT_ERR_INVALID_ARG, "view_dtype");
    refused(weft_view_dtype(weft_select(bytes, 0, 0), WEFT_I32), WEFT_ERR_INVALID_ARG, "view");
    CHECK(weft_view_dtype(weft_select(bytes, 0, 0), WEFT_I8));
    refused(weft_view_dtype(bytes, (weft_dtype)99), WEFT_ERR_TYPE, "99");
    weft_tensor *odd = weft_view(weft_narrow(bytes, 0, 0, 36), WEFT_SHAPE(6, 6));
    refused(weft_view_dtype(weft_narrow(odd, 1, 0, 4), WEFT_I32), WEFT_ERR_INVALID_ARG, "strides");
    CHECK_OK(weft_scope_close());
}

/* ---- what is known of a layout, against counting ---- */

TEST(test_layout_facts)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *flat = weft_arange(WEFT_I32, WEFT_CPU, 0, 64, 1);
    for (int64_t a = 0; a <= 3; a++)
        for (int64_t b = 1; b <= 3; b++)
            for (int64_t sa = 0; sa <= 5; sa++)
                for (int64_t sb = 0; sb <= 5; sb++) {
                    int64_t strides[] = {sa, sb};
                    weft_tensor *x = weft_as_strided(flat, WEFT_SHAPE(a, b), strides, 7);
                    bool seen[64] = {false}, twice = false;
                    int64_t last = -1, first = 99;
                    for (int64_t i = 0; i < a; i++)
                        for (int64_t j = 0; j < b; j++) {
                            int64_t at = i * sa + j * sb;
                            twice |= seen[at];
                            seen[at] = true;
                            last = at > last ? at : last;
                            first = at < first ? at : first;
                            CHECK_INT(weft_item_int(x, i * b + j), 7 + at);
                        }
                    bool dense = !twice && last + 1 == a * b, packed = true;
                    for (int64_t i = 0; i < a; i++)
                        for (int64_t j = 0; j < b; j++)
                            packed &= i * sa + j * sb == i * b + j;
                    CHECK_INT(weft_i_tensor_is_dense(x), dense);
                    if (weft_tensor_is_contiguous(x) != packed)
                        FAIL("[%d, %d] by %d, %d: contiguous %d", (int)a, (int)b, (int)sa, (int)sb,
                             weft_tensor_is_contiguous(x));
                    if (twice) /* it may also be said of some that merely interleave */
                        CHECK(weft_i_tensor_overlaps_itself(x));
                    if (dense || !a)
                        CHECK(!weft_i_tensor_overlaps_itself(x));
                    size_t begin, end;
                    weft_i_tensor_range(x, &begin, &end);
                    CHECK_INT(begin, 7 * 4);
                    CHECK_INT(end, a ? (size_t)(7 + last + 1) * 4 : begin);
                }
    CHECK_OK(weft_scope_close());
}

TEST(test_layout_ranges_meet)
{
    CHECK_OK(weft_scope_open());
    int32_t memory[16] = {0};
    for (int64_t base = 0; base < 3; base++) {
        weft_tensor *all = weft_tensor_wrap(WEFT_I32, WEFT_CPU, WEFT_SHAPE(8), memory, NULL, NULL);
        weft_tensor *other =
            weft_tensor_wrap(WEFT_I32, WEFT_CPU, WEFT_SHAPE(8), memory + base, NULL, NULL);
        CHECK(all && other);
        for (int64_t a = 0; a < 8; a++)
            for (int64_t m = 0; a + m <= 8; m++)
                for (int64_t b = 0; b < 8; b++)
                    for (int64_t n = 0; b + n <= 8; n++) {
                        CHECK_OK(weft_scope_open());
                        weft_tensor *x = weft_narrow(all, 0, a, m),
                                    *y = weft_narrow(other, 0, b, n);
                        bool meet = m && n && a < base + b + n && base + b < a + m;
                        CHECK_INT(weft_i_tensor_ranges_meet(x, y), meet);
                        CHECK_INT(weft_i_tensor_ranges_meet(y, x), meet);
                        if (m && n)
                            CHECK_INT(weft_i_tensor_same_view(x, y), a == base + b && m == n);
                        CHECK_OK(weft_scope_close());
                    }
    }
    weft_tensor *x = cube();
    CHECK(!weft_i_tensor_same_view(x, weft_transpose(x, 1, 2)));
    CHECK(!weft_i_tensor_same_view(x, weft_view_dtype(x, WEFT_F32)));
    int64_t strides[] = {1, 3};
    weft_tensor *square = weft_view(weft_arange(WEFT_I32, WEFT_CPU, 0, 9, 1), WEFT_SHAPE(3, 3));
    CHECK(!weft_i_tensor_same_view(square, weft_transpose(square, 0, 1)));
    CHECK(weft_i_tensor_same_view(weft_transpose(square, 0, 1),
                                  weft_as_strided(square, WEFT_SHAPE(3, 3), strides, 0)));
    CHECK_OK(weft_scope_close());
}

TEST(test_layout_dim_wrap)
{
    for (int ndim = 0; ndim <= 8; ndim++)
        for (int64_t dim = -10; dim <= 10; dim++) {
            bool right = dim >= -ndim && dim < ndim;
            CHECK_INT(weft_i_dim_wrap("f", dim, ndim), right ? wrapped(dim, ndim) : -1);
        }
    weft_clear_error();
}

/* ---- what cannot be counted ---- */

TEST(test_layout_extents)
{
    int64_t huge = INT64_MAX;
    CHECK_OK(weft_scope_open());
    refused(weft_empty(WEFT_I32, WEFT_META, WEFT_SHAPE(huge / 4 + 1)), WEFT_ERR_INVALID_ARG,
            "more");
    CHECK(weft_empty(WEFT_I32, WEFT_META, WEFT_SHAPE(huge / 4)));
    CHECK(weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE(huge)));
    refused(weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE(huge, 2)), WEFT_ERR_INVALID_ARG, "more");
    refused(weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE(huge, 0, 2)), WEFT_ERR_INVALID_ARG, "more");
    refused(weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE(2, -1)), WEFT_ERR_INVALID_ARG, "negative");
    weft_shape shape = {WEFT_MAX_DIMS + 1, {1}};
    refused(weft_empty(WEFT_U8, WEFT_META, shape), WEFT_ERR_INVALID_ARG, "dimensions");
    shape.ndim = -1;
    refused(weft_empty(WEFT_U8, WEFT_META, shape), WEFT_ERR_INVALID_ARG, "dimensions");
    refused(weft_empty((weft_dtype)77, WEFT_META, WEFT_SHAPE(1)), WEFT_ERR_TYPE, "77");
    int64_t strides[] = {huge / 2, 1}, down[] = {-1, 1}, wide[] = {huge, huge};
    CHECK(weft_empty_strided(WEFT_U8, WEFT_META, WEFT_SHAPE(3, 1), strides));
    refused(weft_empty_strided(WEFT_U8, WEFT_META, WEFT_SHAPE(4, 1), strides), WEFT_ERR_INVALID_ARG,
            "more");
    refused(weft_empty_strided(WEFT_U8, WEFT_META, WEFT_SHAPE(3, 3), strides), WEFT_ERR_INVALID_ARG,
            "more");
    refused(weft_empty_strided(WEFT_U8, WEFT_META, WEFT_SHAPE(1, 1), down), WEFT_ERR_INVALID_ARG,
            "stride -1 of dimension 0");
    CHECK(weft_empty_strided(WEFT_U8, WEFT_META, WEFT_SHAPE(1, 1), wide));
    CHECK(weft_empty_strided(WEFT_U8, WEFT_META, WEFT_SHAPE(0, 1), wide));
    /* as_strided: to the last element of the storage, and not one further */
    weft_tensor *x = weft_arange(WEFT_I32, WEFT_CPU, 0, 10, 1);
    int64_t two[] = {2}, none[] = {0};
    CHECK(weft_as_strided(x, WEFT_SHAPE(5), two, 1));
    refused(weft_as_strided(x, WEFT_SHAPE(5), two, 2), WEFT_ERR_STATE, "do not fit");
    refused(weft_as_strided(x, WEFT_SHAPE(6), two, 0), WEFT_ERR_STATE, "do not fit");
    refused(weft_as_strided(x, WEFT_SHAPE(1), none, 10), WEFT_ERR_STATE, "do not fit");
    refused(weft_as_strided(x, WEFT_SHAPE(1), none, huge), WEFT_ERR_STATE, "do not fit");
    refused(weft_as_strided(x, WEFT_SHAPE(1), none, -1), WEFT_ERR_INVALID_ARG, "offset");
    CHECK(weft_as_strided(x, WEFT_SHAPE(0), two, 100));
    refused(weft_as_strided(x, WEFT_SHAPE(1), NULL, 0), WEFT_ERR_INVALID_ARG, "NULL");
    CHECK(weft_as_strided(x, (weft_shape){0}, NULL, 9));
    CHECK_OK(weft_scope_close());
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* refusals are the point here */
    return harness_main(argc, argv);
}

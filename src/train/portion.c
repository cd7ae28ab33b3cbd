/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of tensors; see portion.h. */
#include "train/portion.h"

#include "base/report/status.h"
#include "base/report/text.h"
#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

#include <stdlib.h>
#include <string.h>

enum { STRIPES_MOST = 1024 }; /* of a file: nobody needs more, and each meets each */

weft_i_portion weft_i_portion_of(const char *name, const weft_tensor *x, int owner, int item)
{
    weft_shard_place place;
    weft_shard_place_of(x, &place);
    bool striped = place.stripes > 1;
    weft_i_portion out = {.name = name,
                          .dtype = x->dtype,
                          .shape = weft_i_tensor_shape(x),
                          .full = place.full,
                          .stripe_dim = striped ? place.stripe_dim : 0,
                          .stripes = striped ? place.stripes : 1,
                          .owner = owner,
                          .item = item};
    memcpy(out.offset, place.offset, sizeof out.offset);
    return out;
}

/* The stripes along a dimension. */
static int stripes_of(const weft_i_portion *p, int dim)
{
    return dim == p->stripe_dim ? p->stripes : 1;
}

weft_status weft_i_portion_check(const weft_i_portion *p)
{
    bool fine = p->full.ndim == p->shape.ndim && p->full.ndim <= WEFT_MAX_DIMS && p->stripes >= 1 &&
                p->stripe_dim >= 0 && (p->stripes == 1 || p->stripe_dim < p->full.ndim);
    for (int i = 0; fine && i < p->full.ndim; i++) {
        int n = stripes_of(p, i);
        int64_t full = p->full.dim[i] / n, own = p->shape.dim[i] / n;
        fine = p->full.dim[i] % n == 0 && p->shape.dim[i] % n == 0 && p->offset[i] >= 0 &&
               full >= own && own >= 0 && p->offset[i] <= full - own;
    }
    if (!fine)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "the part of \"%.100s\" does not lie in the whole",
                           p->name);
    return weft_i_shape_check("a part", p->dtype, p->full, NULL);
}

uint64_t weft_i_portion_elements(const weft_i_portion *p)
{
    return (uint64_t)weft_i_shape_numel(p->shape);
}

uint64_t weft_i_portion_bytes(const weft_i_portion *p)
{
    return weft_i_portion_elements(p) * weft_dtype_size(p->dtype);
}

/* ---- order ---- */

static int compare_numbers(const int64_t *a, const int64_t *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_places(const weft_i_portion *a, const weft_i_portion *b)
{
    int64_t x[] = {a->full.ndim, a->shape.ndim, a->dtype, a->stripes, a->stripe_dim},
            y[] = {b->full.ndim, b->shape.ndim, b->dtype, b->stripes, b->stripe_dim};
    int order = compare_numbers(a->offset, b->offset, WEFT_MAX_DIMS);
    order = order ? order : compare_numbers(x, y, 5);
    order = order ? order : compare_numbers(a->shape.dim, b->shape.dim, a->shape.ndim);
    return order ? order : compare_numbers(a->full.dim, b->full.dim, a->full.ndim);
}

static int compare(const void *left, const void *right)
{
    const weft_i_portion *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    order = order ? order : compare_places(a, b);
    return order ? order : a->owner != b->owner ? a->owner - b->owner : a->item - b->item;
}

void weft_i_portion_sort(weft_i_portion *list, int count)
{
    if (count > 0)
        qsort(list, (size_t)count, sizeof *list, compare);
}

bool weft_i_portion_same(const weft_i_portion *a, const weft_i_portion *b)
{
    return !strcmp(a->name, b->name) && !compare_places(a, b);
}

int weft_i_portion_group(const weft_i_portion *list, int count)
{
    int n = count > 0;
    while (n < count && !strcmp(list[0].name, list[n].name))
        n++;
    return n;
}

/* ---- boxes: a portion without stripes, or one stripe ---- */

typedef struct box {
    int64_t at[WEFT_MAX_DIMS], size[WEFT_MAX_DIMS]; /* in the whole */
    int64_t from[WEFT_MAX_DIMS];                    /* where it begins in the portion */
} box;

static box box_of(const weft_i_portion *p, int stripe)
{
    box out = {{0}, {0}, {0}};
    for (int i = 0; i < p->full.ndim; i++) {
        int n = stripes_of(p, i), s = n > 1 ? stripe : 0;
        out.size[i] = p->shape.dim[i] / n;
        out.at[i] = p->offset[i] + s * (p->full.dim[i] / n);
        out.from[i] = s * out.size[i];
    }
    return out;
}

/* What two boxes have in common, `from` counted in both; false if that is nothing. */
static bool meet(int ndim, const box *a, const box *b, box *out, int64_t *from_b)
{
    for (int i = 0; i < ndim; i++) {
        int64_t low = a->at[i] > b->at[i] ? a->at[i] : b->at[i];
        int64_t a_end = a->at[i] + a->size[i], b_end = b->at[i] + b->size[i];
        int64_t high = a_end < b_end ? a_end : b_end;
        if (low >= high)
            return false;
        out->at[i] = low;
        out->size[i] = high - low;
        out->from[i] = a->from[i] + low - a->at[i];
        from_b[i] = b->from[i] + low - b->at[i];
    }
    return true;
}

static bool overlap(const weft_i_portion *a, const weft_i_portion *b)
{
    int64_t from[WEFT_MAX_DIMS];
    box common;
    for (int i = 0; i < a->stripes; i++)
        for (int k = 0; k < b->stripes; k++) {
            box x = box_of(a, i), y = box_of(b, k);
            if (meet(a->full.ndim, &x, &y, &common, from))
                return true;
        }
    return false;
}

/* ---- the whole ---- */

static weft_status check_alike(const weft_i_portion *a, const weft_i_portion *b)
{
    char x[WEFT_I_SHAPE_TEXT], y[WEFT_I_SHAPE_TEXT];
    if (a->dtype == b->dtype && weft_i_shape_equal(a->full, b->full))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "\"%.100s\" is %s %s in one place (%d) and %s %s in another (%d)", a->name,
                       weft_dtype_name(a->dtype), weft_i_shape_text(a->full, x), a->owner,
                       weft_dtype_name(b->dtype), weft_i_shape_text(b->full, y), b->owner);
}

weft_status weft_i_portion_check_whole(const weft_i_portion *list, int count)
{
    char text[WEFT_I_SHAPE_TEXT];
    uint64_t have = 0, want = (uint64_t)weft_i_shape_numel(list[0].full);
    for (int i = 0; i < count; i++) {
        WEFT_TRY(check_alike(&list[0], &list[i]));
        have += weft_i_portion_elements(&list[i]);
        for (int k = 0; k < i; k++)
            if (overlap(&list[k], &list[i]))
                return weft_i_fail(WEFT_ERR_INVALID_ARG,
                                   "two parts of \"%.100s\" overlap (%d and %d)", list[0].name,
                                   list[k].owner, list[i].owner);
    }
    if (have == want)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "the parts of \"%.100s\" have %llu elements, and the whole %s has %llu",
                       list[0].name, (unsigned long long)have,
                       weft_i_shape_text(list[0].full, text), (unsigned long long)want);
}

/* ---- copying ---- */

static weft_tensor *cut(weft_tensor *x, int ndim, const int64_t *from, const int64_t *size)
{
    for (int i = 0; i < ndim && x; i++)
        if (from[i] || size[i] != weft_tensor_size(x, i))
            x = weft_narrow(x, i, from[i], size[i]);
    return x;
}

static weft_status copy_common(weft_tensor *to, const weft_i_portion *a, weft_tensor *from,
                               const weft_i_portion *b, int stripe_a, int stripe_b)
{
    int64_t from_b[WEFT_MAX_DIMS];
    box x = box_of(a, stripe_a), y = box_of(b, stripe_b), common;
    if (!meet(a->full.ndim, &x, &y, &common, from_b))
        return WEFT_OK;
    weft_tensor *target = cut(to, a->full.ndim, common.from, common.size);
    weft_tensor *source = cut(from, a->full.ndim, from_b, common.size);
    return target && source ? weft_copy(target, source) : weft_last_status();
}

weft_status weft_i_portion_copy(weft_tensor *to, const weft_i_portion *a, weft_tensor *from,
                                const weft_i_portion *b)
{
    weft_status status = weft_scope_open();
    bool opened = status >= 0;
    for (int i = 0; i < a->stripes && status >= 0; i++)
        for (int k = 0; k < b->stripes && status >= 0; k++)
            status = copy_common(to, a, from, b, i, k);
    if (opened)
        weft_scope_close();
    return status;
}

/* ---- as text ---- */

static void write_numbers(weft_i_text *t, const char *word, const int64_t *numbers, int count)
{
    weft_i_text_put(t, "%s", word);
    for (int i = 0; i < count; i++)
        weft_i_text_put(t, "%s%lld", i ? "," : "", (long long)numbers[i]);
}

void weft_i_portion_write(const weft_i_portion *p, char out[WEFT_I_PORTION_TEXT])
{
    weft_i_text t = {out, WEFT_I_PORTION_TEXT, 0};
    int64_t stripes[] = {p->stripe_dim, p->stripes};
    if (weft_i_shape_equal(p->shape, p->full)) {
        weft_i_text_put(&t, "whole");
        return;
    }
    write_numbers(&t, "of ", p->full.dim, p->full.ndim);
    write_numbers(&t, " at ", p->offset, p->full.ndim);
    if (p->stripes > 1)
        write_numbers(&t, " in ", stripes, 2);
}

static bool read_word(const char **at, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*at, word, n))
        return false;
    *at += n;
    return true;
}

static bool read_numbers(const char **at, int64_t *out, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t value = 0;
        if ((i && !read_word(at, ",")) || **at < '0' || **at > '9')
            return false;
        for (; **at >= '0' && **at <= '9'; (*at)++)
            if (__builtin_mul_overflow(value, 10, &value) ||
                __builtin_add_overflow(value, **at - '0', &value))
                return false;
        out[i] = value;
    }
    return true;
}

bool weft_i_portion_read(weft_i_portion *p, const char *text, const char **end)
{
    int64_t stripes[] = {0, 1};
    p->full = p->shape;
    memset(p->offset, 0, sizeof p->offset);
    p->stripe_dim = 0;
    p->stripes = 1;
    *end = text;
    if (read_word(end, "whole"))
        return true;
    if (!p->shape.ndim || !read_word(end, "of ") ||
        !read_numbers(end, p->full.dim, p->shape.ndim) || !read_word(end, " at ") ||
        !read_numbers(end, p->offset, p->shape.ndim))
        return false;
    if (read_word(end, " in ") &&
        (!read_numbers(end, stripes, 2) || stripes[0] > WEFT_MAX_DIMS || stripes[1] > STRIPES_MOST))
        return false;
    p->stripe_dim = (int)stripes[0];
    p->stripes = (int)stripes[1];
    return true;
}

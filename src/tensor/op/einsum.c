/* SPDX-License-Identifier: Apache-2.0 */
/* einsum: sums of products by the letters of dimensions, as matrix products of two operands at a
 * time, from left to right. */
#include "tensor/object/eye.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <string.h>

enum { LETTERS = 128, OPERANDS = 16, KEPT = (OPERANDS + 2) * WEFT_MAX_DIMS + 1 };

/* A tensor and the letters of its dimensions, each once. */
typedef struct part {
    weft_tensor *x;
    char letters[WEFT_MAX_DIMS + 1];
} part;

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Reads letters up to `end` or the end of the text; false: something else, or too many. */
static bool read_letters(const char **at, char end, char out[WEFT_MAX_DIMS + 1])
{
    int n = 0;
    for (; **at && **at != end && **at != '-'; ++*at) {
        if (**at == ' ')
            continue;
        if (!is_letter(**at) || n == WEFT_MAX_DIMS)
            return false;
        out[n++] = **at;
    }
    out[n] = 0;
    return true;
}

/* Without "->": the letters that stand once in all operands, in the order of the alphabet. */
static void implied(const part *parts, size_t count, char out[WEFT_MAX_DIMS + 1])
{
    int seen[LETTERS] = {0}, n = 0;
    for (size_t i = 0; i < count; i++)
        for (const char *l = parts[i].letters; *l; l++)
            seen[(unsigned char)*l]++;
    for (int l = 0; l < LETTERS; l++)
        if (seen[l] == 1 && n < WEFT_MAX_DIMS)
            out[n++] = (char)l;
    out[n] = 0;
}

static weft_status read_equation(const char *equation, part *parts, size_t count,
                                 char out[WEFT_MAX_DIMS + 1])
{
    const char *at = equation;
    bool good = true;
    for (size_t i = 0; good && i < count; i++) {
        good = read_letters(&at, ',', parts[i].letters) && (i + 1 == count || *at == ',');
        at += good && *at == ',' && i + 1 < count;
    }
    if (good && at[0] == '-' && at[1] == '>') {
        at += 2;
        good = read_letters(&at, 0, out) && !*at;
    } else if (good) {
        good = !*at;
        implied(parts, count, out);
    }
    for (const char *l = out; good && *l; l++) {
        bool found = false;
        for (size_t i = 0; i < count; i++)
            found |= strchr(parts[i].letters, *l) != NULL;
        good = found && !strchr(l + 1, *l);
    }
    return good ? WEFT_OK
                : weft_i_fail(WEFT_ERR_INVALID_ARG,
                              "einsum: \"%s\" is no equation of %zu operands; \"ij,jk->ik\" is one "
                              "of two.  Letters of the result stand in operands, each once",
                              equation, count);
}

/* One size a letter, in all operands. */
static weft_status check_sizes(const part *parts, size_t count)
{
    int64_t size[LETTERS];
    bool known[LETTERS] = {false};
    for (size_t i = 0; i < count; i++) {
        const weft_tensor *x = parts[i].x;
        if ((int)strlen(parts[i].letters) != x->ndim)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "einsum: operand %zu has %d dimensions, not the letters \"%s\"", i,
                               x->ndim, parts[i].letters);
        for (int d = 0; d < x->ndim; d++) {
            int l = parts[i].letters[d];
            if (known[l] && size[l] != x->dim[d])
                return weft_i_fail(WEFT_ERR_INVALID_ARG,
                                   "einsum: \"%c\" is %lld, and %lld in operand %zu", l,
                                   (long long)size[l], (long long)x->dim[d], i);
            known[l] = true;
            size[l] = x->dim[d];
        }
    }
    return WEFT_OK;
}

/* A letter that stands twice means the diagonal: the other letters' elements are multiplied by 0. */
static weft_status take_diagonals(part *p)
{
    for (int i = 0; p->letters[i]; i++) {
        const char *again = strchr(p->letters + i + 1, p->letters[i]);
        if (!again)
            continue;
        int k = (int)(again - p->letters);
        weft_tensor *x = weft_i_see(p->x);
        weft_shape shape = {x->ndim, {1, 1, 1, 1, 1, 1, 1, 1}};
        int64_t n = x->dim[i];
        weft_tensor *number = weft_arange(WEFT_I64, weft_i_tensor_device(x), 0, (double)n, 1);
        weft_shape one = shape, other = shape;
        one.dim[i] = n;
        other.dim[k] = n;
        weft_tensor *same = weft_eq(weft_view(number, one), weft_view(number, other));
        weft_tensor *kept = WEFT_I_APPLY(where, WEFT_I_TENSOR_ARG(same), WEFT_I_TENSOR_ARG(p->x),
                                         WEFT_I_NUMBER_ARG(0));
        weft_tensor *sum = weft_sum(kept, &k, 1, false);
        p->x = sum ? weft_to_dtype(sum, x->dtype) : NULL;
        if (!p->x)
            return weft_last_status();
        memmove(p->letters + k, p->letters + k + 1, strlen(p->letters + k));
        i--;
    }
    return WEFT_OK;
}

/* Sums over the letters that nobody else has. */
static weft_status sum_rest(part *p, const char *kept)
{
    int dims[WEFT_MAX_DIMS], count = 0, n = 0;
    weft_dtype dtype = weft_tensor_dtype(p->x);
    for (int i = 0; p->letters[i]; i++) {
        if (strchr(kept, p->letters[i]))
            p->letters[n++] = p->letters[i];
        else
            dims[count++] = i;
    }
    p->letters[n] = 0;
    if (count) /* sums of integers are i64 */
        p->x = weft_to_dtype(weft_sum(p->x, dims, count, false), dtype);
    return p->x ? WEFT_OK : weft_last_status();
}

/* The dimensions of p in the order of `letters`. */
static weft_tensor *ordered(const part *p, const char *letters)
{
    int dims[WEFT_MAX_DIMS], n = 0;
    for (const char *l = letters; *l; l++)
        dims[n++] = (int)(strchr(p->letters, *l) - p->letters);
    return n ? weft_permute(p->x, dims) : p->x;
}

/* The letters of a that b has too (or has not) and that are kept (or not); the product of their sizes. */
static int64_t choose(const part *a, const part *b, const char *kept, bool in_b, bool stay,
                      char out[WEFT_MAX_DIMS + 1])
{
    const weft_tensor *x = weft_i_see(a->x);
    int64_t size = 1;
    int n = 0;
    for (int i = 0; a->letters[i]; i++)
        if ((strchr(b->letters, a->letters[i]) != NULL) == in_b &&
            (strchr(kept, a->letters[i]) != NULL) == stay) {
            out[n++] = a->letters[i];
            size *= x->dim[i];
        }
    out[n] = 0;
    return size;
}

static weft_tensor *as_batches(const part *p, const char *first, const char *second,
                               const char *third, weft_shape shape)
{
    char all[3 * WEFT_MAX_DIMS + 1];
    strcpy(all, first);
    strcat(all, second);
    strcat(all, third);
    return weft_reshape(ordered(p, all), shape);
}

/* a gets the product of a and b. */
static weft_status multiply(part *a, part *b, const char *kept)
{
    char batch[WEFT_MAX_DIMS + 1], left[WEFT_MAX_DIMS + 1], sum[WEFT_MAX_DIMS + 1],
        right[WEFT_MAX_DIMS + 1];
    char for_a[KEPT], for_b[KEPT];
    strcat(strcpy(for_a, kept), b->letters);
    strcat(strcpy(for_b, kept), a->letters);
    WEFT_TRY(sum_rest(a, for_a));
    WEFT_TRY(sum_rest(b, for_b));
    int64_t batches = choose(a, b, kept, true, true, batch);
    int64_t rows = choose(a, b, kept, false, true, left);
    int64_t depth = choose(a, b, kept, true, false, sum);
    int64_t columns = choose(b, a, kept, false, true, right);
    if (strlen(batch) + strlen(left) + strlen(right) > WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "einsum: a product on the way would have more than %d dimensions",
                           WEFT_MAX_DIMS);
    const weft_tensor *x = weft_i_see(a->x), *y = weft_i_see(b->x);
    weft_shape shape = {0, {0}};
    const char *groups[] = {batch, left, right};
    for (int g = 0; g < 3; g++)
        for (const char *l = groups[g]; *l; l++) {
            const part *from = g < 2 ? a : b;
            shape.dim[shape.ndim++] =
                (g < 2 ? x : y)->dim[strchr(from->letters, *l) - from->letters];
        }
    weft_tensor *product =
        weft_bmm(as_batches(a, batch, left, sum, WEFT_SHAPE(batches, rows, depth)),
                 as_batches(b, batch, sum, right, WEFT_SHAPE(batches, depth, columns)));
    a->x = weft_view(product, shape);
    strcat(strcat(strcpy(a->letters, batch), left), right);
    return a->x ? WEFT_OK : weft_last_status();
}

static weft_tensor *contract(part *parts, size_t count, const char *out)
{
    char kept[KEPT];
    for (size_t i = 0; i < count; i++)
        if (take_diagonals(&parts[i]) < 0)
            return NULL;
    for (size_t i = 1; i < count; i++) {
        strcpy(kept, out);
        for (size_t k = i + 1; k < count; k++)
            strcat(kept, parts[k].letters);
        if (multiply(&parts[0], &parts[i], kept) < 0)
            return NULL;
    }
    if (sum_rest(&parts[0], out) < 0)
        return NULL;
    return weft_contiguous(ordered(&parts[0], out));
}

weft_tensor *weft_einsum(const char *equation, weft_tensor *const *operands, size_t count)
{
    part parts[OPERANDS];
    char out[WEFT_MAX_DIMS + 1];
    if (!equation || !operands || count < 1 || count > OPERANDS)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "einsum: an equation and 1 to %d operands; %zu are given", OPERANDS,
                           count);
    for (size_t i = 0; i < count; i++) {
        weft_tensor *x = operands[i] ? weft_i_see(operands[i]) : weft_detach(NULL);
        if (!x || weft_i_tensor_check_live("einsum", x) < 0)
            return NULL;
        parts[i].x = x;
    }
    if (read_equation(equation, parts, count, out) < 0 || check_sizes(parts, count) < 0)
        return NULL;
    for (size_t i = 0; i < count; i++)
        parts[i].x = operands[i];
    return contract(parts, count, out);
}

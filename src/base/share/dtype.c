/* SPDX-License-Identifier: Apache-2.0 */
/* Names, sizes and kinds of the element types, and the rule by which two of them meet. */
#include "base/share/dtype.h"

#include "base/report/status.h"

static const struct {
    const char *name;
    size_t size;
    weft_i_dtype_kind kind;
} table[WEFT_DTYPE_COUNT] = {
#define DTYPE(name_, text_, type_, kind_) {text_, sizeof(type_), WEFT_I_KIND_##kind_},
#include "weft/dtype.def"
#undef DTYPE
};

bool weft_i_dtype_valid(weft_dtype dtype)
{
    return (unsigned)dtype < WEFT_DTYPE_COUNT;
}

const char *weft_dtype_name(weft_dtype dtype)
{
    return weft_i_dtype_valid(dtype) ? table[dtype].name : "unknown dtype";
}

size_t weft_dtype_size(weft_dtype dtype)
{
    return weft_i_dtype_valid(dtype) ? table[dtype].size : 0;
}

weft_i_dtype_kind weft_i_dtype_kind_of(weft_dtype dtype)
{
    return table[dtype].kind;
}

/* Two different floats meet in the wider one; two of equal width in the smallest that holds both
 * exactly. */
static weft_dtype promote_floats(weft_dtype a, weft_dtype b)
{
    size_t size_a = table[a].size, size_b = table[b].size;
    if (size_a != size_b)
        return size_a > size_b ? a : b;
    return size_a == 1 ? WEFT_F16 : WEFT_F32;
}

static weft_dtype signed_of_size(size_t size)
{
    return size == 1 ? WEFT_I8 : size == 2 ? WEFT_I16 : size == 4 ? WEFT_I32 : WEFT_I64;
}

/* Both are integers and differ.  False if no integer holds the values of both. */
static bool promote_integers(weft_dtype a, weft_dtype b, weft_dtype *out)
{
    size_t size_a = table[a].size, size_b = table[b].size;
    if (table[a].kind == table[b].kind) {
        *out = size_a > size_b ? a : b;
        return true;
    }
    size_t size_signed = table[a].kind == WEFT_I_KIND_SIGNED ? size_a : size_b;
    size_t size_unsigned = table[a].kind == WEFT_I_KIND_SIGNED ? size_b : size_a;
    if (size_unsigned == 8)
        return false;
    *out = signed_of_size(size_signed > size_unsigned ? size_signed : 2 * size_unsigned);
    return true;
}

weft_status weft_dtype_promote(weft_dtype a, weft_dtype b, weft_dtype *out)
{
    if (!weft_i_dtype_valid(a) || !weft_i_dtype_valid(b) || !out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_dtype_promote: %d and %d are not both dtypes", a, b);
    if (a == b || b == WEFT_BOOL)
        *out = a;
    else if (a == WEFT_BOOL)
        *out = b;
    else if (weft_i_dtype_is_float(a) && weft_i_dtype_is_float(b))
        *out = promote_floats(a, b);
    else if (weft_i_dtype_is_float(a) || weft_i_dtype_is_float(b))
        *out = weft_i_dtype_is_float(a) ? a : b;
    else if (!promote_integers(a, b, out))
        return weft_i_fail(WEFT_ERR_TYPE,
                           "no dtype holds both %s and %s; convert one of them with weft_to",
                           table[a].name, table[b].name);
    return WEFT_OK;
}

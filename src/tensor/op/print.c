/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors as text, in the manner of PyTorch: tensor([[1., 2.], [3., 4.]], dtype=f32).  Every number
 * has the same width; long dimensions show their first and last three entries.
 */
#include "kernels/number/convert.h"
#include "tensor/object/eye.h"
#include "tensor/op/loops.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum {
    EDGE = 3,
    WHOLE = 1000
}; /* tensors of more than WHOLE elements are cut to EDGE at each end */

/* Where the text goes: a buffer, counting what does not fit, or a file. */
struct sink {
    char *out;
    size_t room, used;
    FILE *file;
};

struct format {
    const weft_tensor *x;
    bool cut; /* leave the middle out */
    int width, digits;
    bool exponent;
};

__attribute__((format(printf, 2, 3))) static void put(struct sink *sink, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (sink->file) {
        vfprintf(sink->file, format, args);
    } else {
        size_t room = sink->used < sink->room ? sink->room - sink->used : 0;
        int n = vsnprintf(room ? sink->out + sink->used : NULL, room, format, args);
        sink->used += n > 0 ? (size_t)n : 0;
    }
    va_end(args);
}

static const char *at(const weft_tensor *x, int64_t offset)
{
    return weft_i_tensor_data(x) + offset * (int64_t)weft_dtype_size(x->dtype);
}

static double real(const weft_tensor *x, int64_t offset)
{
    double value;
    weft_i_convert(WEFT_F64, &value, x->dtype, at(x, offset), 1);
    return value;
}

static int number_text(const struct format *format, int64_t offset, char text[64])
{
    const weft_tensor *x = format->x;
    uint64_t whole;
    if (x->dtype == WEFT_BOOL)
        return snprintf(text, 64, "%s", *at(x, offset) ? "true" : "false");
    if (!weft_i_dtype_is_float(x->dtype)) {
        bool is_unsigned = x->dtype == WEFT_U64;
        weft_i_convert(is_unsigned ? WEFT_U64 : WEFT_I64, &whole, x->dtype, at(x, offset), 1);
        return is_unsigned ? snprintf(text, 64, "%llu", (unsigned long long)whole)
                           : snprintf(text, 64, "%lld", (long long)whole);
    }
    double value = real(x, offset);
    if (!isfinite(value))
        return snprintf(text, 64, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    if (format->exponent)
        return snprintf(text, 64, "%.4e", value);
    return format->digits ? snprintf(text, 64, "%.*f", format->digits, value)
                          : snprintf(text, 64, "%.0f.", value);
}

/* Calls `each` for all elements that are shown. */
static void visit(struct format *format, int dim, int64_t offset,
                  void (*each)(struct format *, int64_t offset))
{
    const weft_tensor *x = format->x;
    if (dim == x->ndim) {
        each(format, offset);
        return;
    }
    for (int64_t i = 0; i < x->dim[dim]; i++) {
        if (format->cut && i == EDGE && x->dim[dim] > 2 * EDGE)
            i = x->dim[dim] - EDGE;
        visit(format, dim + 1, offset + i * x->stride[dim], each);
    }
}

/* Fractions want four digits; very large or small numbers an exponent. */
static void look(struct format *format, int64_t offset)
{
    double value = real(format->x, offset), magnitude = fabs(value);
    if (!isfinite(value) || value == 0)
        return;
    if (value != floor(value))
        format->digits = 4;
    if (magnitude >= 1e8 || magnitude < 1e-4)
        format->exponent = true;
}

static void measure(struct format *format, int64_t offset)
{
    char text[64];
    int width = number_text(format, offset, text);
    format->width = width > format->width ? width : format->width;
}

static void indent(struct sink *sink, const struct format *format, int dim)
{
    for (int lines = format->x->ndim - dim - 1; lines > 0; lines--)
        put(sink, "\n");
    put(sink, "%*s", format->x->ndim == dim + 1 ? 0 : dim + 8, "");
}

static void put_part(struct sink *sink, const struct format *format, int dim, int64_t offset)
{
    const weft_tensor *x = format->x;
    char text[64];
    if (dim == x->ndim) {
        number_text(format, offset, text);
        put(sink, "%*s", x->ndim ? format->width : 0, text);
        return;
    }
    put(sink, "[");
    for (int64_t i = 0; i < x->dim[dim]; i++) {
        if (i) {
            put(sink, dim == x->ndim - 1 ? ", " : ",");
            indent(sink, format, dim);
        }
        if (format->cut && i == EDGE && x->dim[dim] > 2 * EDGE) {
            put(sink, dim == x->ndim - 1 ? "..., " : "...,");
            indent(sink, format, dim);
            i = x->dim[dim] - EDGE;
        }
        put_part(sink, format, dim + 1, offset + i * x->stride[dim]);
    }
    put(sink, "]");
}

/* `here` has the elements where the host can read them. */
static void put_tensor(struct sink *sink, const weft_tensor *x, const weft_tensor *here)
{
    char text[WEFT_I_SHAPE_TEXT], device[16];
    weft_device where = weft_i_tensor_device(x);
    struct format format = {.x = here, .cut = weft_i_tensor_numel(x) > WHOLE};
    put(sink, "tensor(");
    if (where == WEFT_META) {
        put(sink, "..., device=%s, shape=%s", weft_device_name(where, device),
            weft_i_shape_text(weft_i_tensor_shape(x), text));
    } else if (weft_i_tensor_numel(x) == 0) {
        put(sink, "[], shape=%s", weft_i_shape_text(weft_i_tensor_shape(x), text));
    } else {
        if (weft_i_dtype_is_float(x->dtype))
            visit(&format, 0, 0, look);
        visit(&format, 0, 0, measure);
        put_part(sink, &format, 0, 0);
    }
    if (where != WEFT_META && !weft_i_device_is_host(where))
        put(sink, ", device=%s", weft_device_name(where, device));
    put(sink, ", dtype=%s)", weft_dtype_name(x->dtype));
}

/* Checks, and brings the elements to the host: `*here` is the caller's to drop. */
static weft_status check(const char *what, const weft_tensor *x, weft_tensor **here)
{
    *here = NULL;
    x = weft_i_see(x);
    if (!x)
        return weft_i_missing("%s: the tensor is NULL", what);
    WEFT_TRY(weft_i_tensor_check_fits(what, x));
    if (weft_i_tensor_device(x) != WEFT_META && !(*here = weft_i_tensor_here(what, x)))
        return weft_last_status();
    return WEFT_OK;
}

weft_status weft_print(const weft_tensor *x, FILE *file)
{
    weft_tensor *here;
    if (!file)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_print: the file is NULL");
    WEFT_TRY(check("weft_print", x, &here));
    struct sink sink = {.file = file};
    put_tensor(&sink, x, here);
    put(&sink, "\n");
    weft_i_object_drop(here);
    return ferror(file) ? weft_i_fail(WEFT_ERR_IO, "weft_print: the file refuses to be written")
                        : WEFT_OK;
}

int weft_tensor_text(const weft_tensor *x, char *out, size_t bytes)
{
    struct sink sink = {.out = out, .room = bytes};
    weft_tensor *here;
    if (bytes && !out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_tensor_text: %zu bytes at NULL", bytes);
    WEFT_TRY(check("weft_tensor_text", x, &here));
    if (bytes)
        out[0] = 0;
    put_tensor(&sink, x, here);
    weft_i_object_drop(here);
    return (int)sink.used;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Strided copies that convert, in blocks that stay in the first cache; and fills. */
#include "kernels/walk/copy.h"

#include "kernels/number/convert.h"

#include <string.h>

enum { BLOCK = 512 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

const void *weft_i_load_run(weft_dtype to, void *buffer, weft_dtype from, const char *in,
                            int64_t stride, size_t n)
{
    size_t size = weft_dtype_size(from);
    uint64_t packed[BLOCK];
    if (stride == (int64_t)size) {
        if (to == from)
            return in;
        weft_i_convert(to, buffer, from, in, n);
        return buffer;
    }
    if (to == from) {
        weft_i_copy_elements(size, n, buffer, (int64_t)size, in, stride);
        return buffer;
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = least(n - i, BLOCK);
        weft_i_copy_elements(size, count, (char *)packed, (int64_t)size, in + (int64_t)i * stride,
                             stride);
        weft_i_convert(to, (char *)buffer + i * weft_dtype_size(to), from, packed, count);
    }
    return buffer;
}

void weft_i_store_run(weft_dtype to, char *out, int64_t stride, weft_dtype from, const void *in,
                      size_t n)
{
    size_t size = weft_dtype_size(to);
    uint64_t packed[BLOCK];
    if (stride == (int64_t)size) {
        weft_i_convert(to, out, from, in, n);
        return;
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = least(n - i, BLOCK);
        weft_i_convert(to, packed, from, (const char *)in + i * weft_dtype_size(from), count);
        weft_i_copy_elements(size, count, out + (int64_t)i * stride, stride, (const char *)packed,
                             (int64_t)size);
    }
}

struct copy {
    weft_dtype to, from;
};

static void copy_run(void *state, size_t n, char *const *data, const int64_t *stride)
{
    const struct copy *copy = state;
    uint64_t buffer[BLOCK];
    if (copy->to == copy->from) {
        weft_i_copy_elements(weft_dtype_size(copy->to), n, data[0], stride[0], data[1], stride[1]);
        return;
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = least(n - i, BLOCK);
        const void *in = weft_i_load_run(copy->from, buffer, copy->from,
                                         data[1] + (int64_t)i * stride[1], stride[1], count);
        weft_i_store_run(copy->to, data[0] + (int64_t)i * stride[0], stride[0], copy->from, in,
                         count);
    }
}

void weft_i_copy(const weft_i_loop *loop, weft_dtype to, weft_dtype from)
{
    struct copy copy = {to, from};
    weft_i_loop_share(*loop, (int64_t)(weft_i_dtype_size(to) + weft_i_dtype_size(from)), copy_run,
                      &copy);
}

struct fill {
    size_t size;
    const void *value;
};

/* Doubles the filled part, so that any element size is filled at the speed of memcpy. */
static void fill_packed(char *out, size_t bytes, size_t size, const void *value)
{
    memcpy(out, value, size);
    for (size_t done = size; done < bytes;) {
        size_t more = least(least(done, 4096), bytes - done);
        memcpy(out + done, out, more);
        done += more;
    }
}

static void fill_run(void *state, size_t n, char *const *data, const int64_t *stride)
{
    const struct fill *fill = state;
    if (stride[0] == (int64_t)fill->size)
        fill_packed(data[0], n * fill->size, fill->size, fill->value);
    else
        weft_i_copy_elements(fill->size, n, data[0], stride[0], fill->value, 0);
}

void weft_i_fill(const weft_i_loop *loop, weft_dtype dtype, const void *value)
{
    struct fill fill = {weft_dtype_size(dtype), value};
    weft_i_loop_share(*loop, (int64_t)fill.size, fill_run, &fill);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of strided elements, converted on their way. */
#include "backends/cuda/device/stream.h"
#include "pointwise.h"

/* Dimensions that lie behind each other in both operands become one. */
static weft_k_copy joined(const weft_k_copy *copy)
{
    weft_k_copy out = *copy;
    out.ndim = 0;
    for (int d = 0; d < copy->ndim; d++) {
        int last = out.ndim - 1;
        if (copy->dim[d] == 1)
            continue;
        if (last >= 0 && out.to_stride[last] == copy->to_stride[d] * (int64_t)copy->dim[d] &&
            out.from_stride[last] == copy->from_stride[d] * (int64_t)copy->dim[d]) {
            out.dim[last] *= copy->dim[d];
            out.to_stride[last] = copy->to_stride[d];
            out.from_stride[last] = copy->from_stride[d];
            continue;
        }
        out.dim[out.ndim] = copy->dim[d];
        out.to_stride[out.ndim] = copy->to_stride[d];
        out.from_stride[out.ndim++] = copy->from_stride[d];
    }
    return out;
}

static bool is_plain(const weft_k_copy *copy)
{
    return copy->to_dtype == copy->from_dtype &&
           (copy->ndim == 0 || (copy->ndim == 1 && copy->to_stride[0] == copy->size &&
                                copy->from_stride[0] == copy->size));
}

weft_status weft_i_cuda_convert(weft_i_cuda_stream *stream, const weft_k_copy *copy)
{
    weft_k_copy c = joined(copy);
    c.count = 1;
    for (int d = 0; d < c.ndim; d++)
        c.count *= c.dim[d];
    if (c.count == 0)
        return WEFT_OK;
    if (is_plain(&c))
        return weft_i_cuda_copy(stream, c.to, c.from, c.count * (size_t)c.size);
    weft_i_loop loop = {.ndim = c.ndim, .operands = 2, .data = {c.to, (char *)(uintptr_t)c.from}};
    for (int d = 0; d < c.ndim; d++) {
        loop.dim[d] = (int64_t)c.dim[d];
        loop.stride[0][d] = c.to_stride[d];
        loop.stride[1][d] = c.from_stride[d];
    }
    return weft_i_cuda_copy_loop(stream, loop, (weft_dtype)c.to_dtype, (weft_dtype)c.from_dtype);
}

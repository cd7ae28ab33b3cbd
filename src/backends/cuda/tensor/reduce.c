/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions on CUDA devices. */
#include "backends/cuda/device/launch.h"
#include "columns.h"
#include "tensor/op/ops.h"

_Static_assert(WEFT_I_REDUCE_SUM == 0 && WEFT_I_REDUCE_PROD == 1 && WEFT_I_REDUCE_MAX == 2 &&
                   WEFT_I_REDUCE_MIN == 3,
               "as in kernels/order.h");

/* Dimensions whose elements lie one after the other become one; `other` (or NULL) has to agree. */
static int join(int n, uint64_t *dim, int64_t *stride, int64_t *other)
{
    int at = 0;
    for (int d = 1; d < n; d++) {
        int64_t size = (int64_t)dim[d];
        if (stride[at] == stride[d] * size && (!other || other[at] == other[d] * size)) {
            dim[at] *= dim[d];
        } else {
            dim[++at] = dim[d];
        }
        stride[at] = stride[d];
        if (other)
            other[at] = other[d];
    }
    if (n == 0) {
        dim[0] = 1;
        stride[0] = 0;
        if (other)
            other[0] = 0;
    }
    return n ? at + 1 : 1;
}

static uint64_t product(int n, const uint64_t *dim)
{
    uint64_t all = 1;
    for (int d = 0; d < n; d++)
        all *= dim[d];
    return all;
}

/* Neighbouring results are neighbours in memory, and the elements of one result are not. */
static bool columns_pay(const weft_k_reduce *c, int64_t size)
{
    return c->kept_in[c->kept - 1] == size && c->kept_dim[c->kept - 1] > 1 &&
           c->reduced_in[c->reduced - 1] != size;
}

static weft_k_reduce parameter_of(const weft_i_reduce *what)
{
    bool truth = what->taken == WEFT_BOOL;
    weft_k_reduce c = {.from = what->from,
                       .to = what->to,
                       .which = what->which,
                       .mean = what->mean,
                       .in = (int32_t)what->in,
                       .out = (int32_t)what->out,
                       .truth = truth,
                       .biggest_unsigned = truth || what->compute == WEFT_U64,
                       .compute = WEFT_I64};
    if (what->compute == WEFT_F32 || what->compute == WEFT_F64)
        c.compute = (int32_t)what->compute;
    for (int d = 0; d < what->kept; d++) {
        c.kept_dim[d] = (uint64_t)what->kept_dim[d];
        c.kept_in[d] = what->kept_in[d];
        c.kept_out[d] = what->kept_out[d];
    }
    for (int d = 0; d < what->reduced; d++) {
        c.reduced_dim[d] = (uint64_t)what->reduced_dim[d];
        c.reduced_in[d] = what->reduced_in[d];
    }
    c.kept = join(what->kept, c.kept_dim, c.kept_in, c.kept_out);
    c.reduced = join(what->reduced, c.reduced_dim, c.reduced_in, NULL);
    c.results = product(c.kept, c.kept_dim);
    c.count = product(c.reduced, c.reduced_dim);
    return c;
}

uint32_t weft_i_cuda_row_span(uint64_t elements, bool columns)
{
    uint64_t blocks = (elements + WEFT_K_BLOCK - 1) / WEFT_K_BLOCK;
    uint32_t span = 1;
    while (!columns && span < WEFT_K_UNITS && span < blocks)
        span *= 2;
    return span;
}

/* Up to 8 packed operands of a sum, each in units of 16 bytes: what ranks add up. */
static bool few_pay(const weft_k_reduce *c)
{
    int64_t size = (int64_t)weft_dtype_size((weft_dtype)c->in);
    bool types = c->in == c->out && c->compute == WEFT_F32 &&
                 (c->in == WEFT_F32 || c->in == WEFT_BF16 || c->in == WEFT_F16);
    bool packed = c->kept == 1 && c->reduced == 1 && c->kept_in[0] == size &&
                  c->kept_out[0] == size && c->results * (uint64_t)size % 16 == 0;
    bool even = ((uintptr_t)c->from | (uintptr_t)c->to | (uintptr_t)c->reduced_in[0]) % 16 == 0;
    return types && packed && even && c->which == WEFT_I_REDUCE_SUM && c->count >= 2 &&
           c->count <= 8;
}

static weft_status run_few(weft_i_cuda_stream *stream, const weft_k_reduce *c)
{
    uint64_t units = c->results * weft_dtype_size((weft_dtype)c->in) / 16;
    if (c->count == 2) /* two units a thread */
        return weft_i_cuda_launch_threads(stream, WEFT_I_CUDA_few_2, (units + 1) / 2, c);
    return weft_i_cuda_launch_threads(stream, c->count <= 4 ? WEFT_I_CUDA_few_4 : WEFT_I_CUDA_few_8,
                                      units, c);
}

/* Sums of neighbours in memory, two at a time (kernels/held.h); false: these are not. */
static bool held_by(const weft_i_cuda_stream *stream, const weft_k_reduce *c,
                    weft_i_cuda_kernel *out, uint64_t *per)
{
    int64_t size = (int64_t)weft_dtype_size((weft_dtype)c->in), pair = 2 * size;
    if (c->in != WEFT_F32 && c->in != WEFT_BF16 && c->in != WEFT_F16)
        return false;
    *out = c->in == WEFT_F32    ? WEFT_I_CUDA_sums_f32
           : c->in == WEFT_BF16 ? WEFT_I_CUDA_sums_bf16
                                : WEFT_I_CUDA_sums_f16;
    *per = weft_i_cuda_held_rows(stream, *out, c->span);
    bool even = c->reduced == 1 && c->reduced_in[0] == size && c->count % 2 == 0 &&
                (uintptr_t)c->from % (uintptr_t)pair == 0;
    for (int d = 0; d < c->kept; d++)
        even = even && (c->kept_in[d] % pair == 0 || c->kept_dim[d] == 1);
    return *per && even && c->which == WEFT_I_REDUCE_SUM && c->compute == WEFT_F32 && c->count;
}

/* Sums over the rows of a packed matrix, 16 bytes at a time (kernels/column_sums.h); false: these
 * are not. */
static bool columns_by(const weft_k_reduce *c, weft_i_cuda_kernel *out, uint64_t *per)
{
    int64_t size = (int64_t)weft_dtype_size((weft_dtype)c->in), together = 16 / size;
    if (c->in != WEFT_F32 && c->in != WEFT_BF16 && c->in != WEFT_F16)
        return false;
    *out = c->in == WEFT_F32    ? WEFT_I_CUDA_columns_f32
           : c->in == WEFT_BF16 ? WEFT_I_CUDA_columns_bf16
                                : WEFT_I_CUDA_columns_f16;
    *per = (uint64_t)(WEFT_K_ACROSS * together);
    bool packed = c->kept == 1 && c->reduced == 1 && c->kept_in[0] == size &&
                  c->results % (uint64_t)together == 0;
    bool even = ((uintptr_t)c->from | (uintptr_t)c->reduced_in[0]) % 16 == 0;
    return packed && even && c->which == WEFT_I_REDUCE_SUM && c->compute == WEFT_F32 && c->count;
}

/* The kernel, and how many results a task of it makes. */
static weft_i_cuda_kernel kernel_of(const weft_i_cuda_stream *stream, const weft_k_reduce *c,
                                    bool index, uint64_t *per)
{
    static const weft_i_cuda_kernel kernels[2][3] = {
        {WEFT_I_CUDA_reduce_f32, WEFT_I_CUDA_reduce_f64, WEFT_I_CUDA_reduce_i64},
        {WEFT_I_CUDA_index_f32, WEFT_I_CUDA_index_f64, WEFT_I_CUDA_index_i64}};
    weft_i_cuda_kernel better;
    if (!index && (c->columns ? columns_by(c, &better, per) : held_by(stream, c, &better, per)))
        return better;
    *per = WEFT_K_UNITS / c->span;
    return kernels[index][c->compute == WEFT_F32 ? 0 : c->compute == WEFT_F64 ? 1 : 2];
}

static weft_status run(weft_i_op_call *call, bool index)
{
    weft_i_cuda_stream *stream;
    weft_i_reduce what = weft_i_reduce_describe(call);
    weft_k_reduce c = parameter_of(&what);
    if (c.results == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    if (!index && few_pay(&c))
        return run_few(stream, &c);
    c.columns = columns_pay(&c, (int64_t)weft_dtype_size(what.in));
    c.span = weft_i_cuda_row_span(c.count, c.columns);
    uint64_t blocks = (c.count + WEFT_K_BLOCK - 1) / WEFT_K_BLOCK, per;
    c.node_count = blocks ? (blocks + c.span - 1) / c.span : 1;
    weft_tensor *room = NULL;
    if (c.node_count > 1) {
        uint64_t nodes = c.results * c.node_count;
        room = weft_i_cuda_room(weft_i_tensor_device(call->out), nodes * (index ? 16 : 8));
        if (!room)
            return weft_last_status();
        c.nodes = (uint64_t *)(void *)weft_i_tensor_data(room);
        c.places = index ? c.nodes + nodes : NULL;
    }
    weft_i_cuda_kernel kernel = kernel_of(stream, &c, index, &per);
    uint64_t tasks = (c.results + per - 1) / per * c.node_count;
    weft_status status = weft_i_cuda_launch_blocks(stream, kernel, tasks, &c);
    if (status >= 0 && room)
        status = weft_i_cuda_launch_blocks(stream, WEFT_I_CUDA_reduce_nodes, c.results, &c);
    weft_i_object_drop(room);
    return status;
}

weft_status weft_i_cuda_reduce_row_run(weft_i_op_call *call)
{
    return run(call, false);
}

weft_status weft_i_cuda_reduce_index_run(weft_i_op_call *call)
{
    return run(call, true);
}

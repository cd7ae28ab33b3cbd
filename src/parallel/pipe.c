/* SPDX-License-Identifier: Apache-2.0 */
/* Entering and leaving a pipe, its signals and what it computes; see pipe.h. */
#include "parallel/pipe.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"
#include "coll/calls/work.h"
#include "coll/device/carrier.h"
#include "coll/lane/request.h"
#include "kernels/fold/fold.h"
#include "symm/backend.h"
#include "symm/reach.h"
#include "symm/registration.h"
#include "tensor/op/ops.h"

enum { CHUNKS_MOST = 64 };

bool weft_i_pipe_can(const weft_group *group, weft_device device)
{
    if (weft_i_reach_of_group(group, weft_i_device_kind(device)) != WEFT_I_REACH_LANE ||
        group->size < 2 || group->world->fake)
        return false;
    weft_i_errors before;
    weft_i_errors_save(&before);
    const weft_i_backend *backend = weft_i_backend_for(device);
    weft_i_errors_restore(&before); /* a device without one is no error: there are other ways */
    return backend && backend->sharing >> group->world->sharing & 1;
}

/* ---- in and out ---- */

/* All ranks come, with the same call, or nobody begins. */
static weft_status agree(const weft_i_pipe_entry *entry)
{
    weft_i_coll coll;
    WEFT_TRY(weft_i_request_begin(&coll, entry->kind, entry->group));
    coll.in_tensor = (weft_tensor *)(uintptr_t)entry->operand; /* to be told of; not touched */
    coll.ask.dtype = entry->operand->dtype;
    coll.ask.reduction = entry->reduction;
    coll.ask.root = entry->dim;
    WEFT_TRY(weft_i_request_accept(&coll, weft_i_pipe_bytes(entry->operand)));
    coll.digest = weft_i_digest(coll.digest, (uint64_t)entry->way);
    coll.digest = weft_i_digest(coll.digest, (uint64_t)entry->scaling);
    coll.digest = weft_i_digest(coll.digest, entry->bytes);
    for (int i = 0; i < 2; i++)
        coll.digest = weft_i_digest(coll.digest, entry->place[i]);
    for (int i = 0; i < entry->operand->ndim; i++)
        coll.digest = weft_i_digest(coll.digest, (uint64_t)entry->operand->dim[i]);
    return weft_i_work_now(&coll);
}

/* The streams, and their order behind whoever used the memory last. */
static weft_status open_streams(weft_i_pipe *pipe, weft_i_scratch memory)
{
    if (weft_i_device_is_host(pipe->device))
        return WEFT_OK;
    const weft_tensor *scratch = weft_i_symm_scratch_now(pipe->group, memory, pipe->device);
    weft_stream *main = weft_i_stream_current(pipe->device);
    weft_stream *side = main ? weft_i_stream_beside(pipe->device) : NULL;
    if (!side)
        return weft_last_status();
    pipe->main = weft_i_object_hold(main);
    pipe->side = weft_i_object_hold(side);
    WEFT_TRY(weft_i_storage_ready(scratch->storage, true));
    return weft_i_pipe_fork(pipe);
}

uint64_t weft_i_pipe_note(const weft_group *group, weft_i_coll_kind kind, size_t bytes, int way)
{
    static const char *const names[WEFT_I_COLL_KINDS] = {
        [WEFT_I_ALL_GATHER_MATMUL] = "ag_matmul",
        [WEFT_I_ALL_GATHER_SCALED_MATMUL] = "ag_scaled_mm",
        [WEFT_I_MATMUL_REDUCE_SCATTER] = "matmul_rs",
        [WEFT_I_SCALED_MATMUL_REDUCE_SCATTER] = "scaled_mm_rs"};
    WEFT_ASSERT(kind < WEFT_I_COLL_KINDS && names[kind]);
    return weft_i_record_begin(weft_i_group_record(group), names[kind], group->id, bytes, -1, way);
}

/* Ranks that may not share their GPU have no carrier there, and none of its memory in common. */
static weft_status find_apart(weft_i_pipe *pipe)
{
    weft_i_carrier *carrier = NULL;
    if (weft_i_device_is_host(pipe->device))
        return WEFT_OK;
    WEFT_TRY(weft_i_carrier_find(pipe->group, pipe->device, &carrier));
    pipe->apart = !carrier;
    return WEFT_OK;
}

weft_status weft_i_pipe_open(weft_i_pipe *pipe, const weft_i_pipe_entry *entry)
{
    *pipe = (weft_i_pipe){.group = entry->group,
                          .me = entry->group->rank,
                          .size = entry->group->size,
                          .device = weft_i_tensor_device(entry->operand)};
    WEFT_TRY(agree(entry));
    WEFT_TRY(find_apart(pipe));
    if (pipe->apart)
        return WEFT_OK;
    pipe->mem =
        weft_keep(weft_i_symm_scratch(entry->group, entry->memory, pipe->device, entry->bytes));
    if (!pipe->mem)
        return weft_last_status(); /* on all ranks */
    pipe->near = weft_i_symm_is_near(pipe->mem);
    pipe->number =
        weft_i_pipe_note(entry->group, entry->kind, weft_i_pipe_bytes(entry->operand), entry->way);
    weft_status status = open_streams(pipe, entry->memory);
    return status < 0 ? weft_i_pipe_close(pipe, status) : WEFT_OK;
}

weft_status weft_i_pipe_close(weft_i_pipe *pipe, weft_status status)
{
    weft_i_errors reason;
    weft_i_errors_save(&reason);
    weft_status joined = weft_i_pipe_back(pipe);
    if (joined >= 0)
        joined =
            weft_i_pipe_join(pipe); /* also after a failure: memory goes with the first stream */
    if (status >= 0)
        status = joined;
    else
        weft_i_errors_restore(&reason);
    if (status < 0) /* the others are in the middle of it: there is no trying again */
        weft_i_group_spoil(pipe->group, status);
    weft_i_record_end(weft_i_group_record(pipe->group), pipe->number, status);
    weft_i_object_drop(pipe->main);
    weft_i_object_drop(pipe->side);
    weft_release(pipe->mem);
    return status;
}

/* ---- streams ---- */

weft_status weft_i_pipe_aside(weft_i_pipe *pipe)
{
    return pipe->side ? weft_stream_use(pipe->side) : WEFT_OK;
}

weft_status weft_i_pipe_back(weft_i_pipe *pipe)
{
    return pipe->main ? weft_stream_use(pipe->main) : WEFT_OK;
}

weft_status weft_i_pipe_join(weft_i_pipe *pipe)
{
    return pipe->side ? weft_i_stream_after(pipe->main, pipe->side, true) : WEFT_OK;
}

weft_status weft_i_pipe_fork(weft_i_pipe *pipe)
{
    return pipe->side ? weft_i_stream_after(pipe->side, pipe->main, true) : WEFT_OK;
}

/* ---- signals ---- */

/* The last channels: users of the workspace begin with the first. */
static int channel_of(const weft_i_pipe *pipe, weft_i_word word)
{
    return pipe->mem->registration->pads.channels - 1 - (int)word;
}

weft_status weft_i_pipe_tell(weft_i_pipe *pipe, int rank, weft_i_word word)
{
    return weft_symm_put_signal(pipe->mem, rank, channel_of(pipe, word), WEFT_DEFAULT);
}

weft_status weft_i_pipe_hear(weft_i_pipe *pipe, int rank, weft_i_word word)
{
    return weft_symm_wait_signal(pipe->mem, rank, channel_of(pipe, word), WEFT_DEFAULT);
}

weft_status weft_i_pipe_tell_all(weft_i_pipe *pipe, weft_i_word word)
{
    for (int step = 1; step < pipe->size; step++)
        WEFT_TRY(weft_i_pipe_tell(pipe, (pipe->me + step) % pipe->size, word));
    return WEFT_OK;
}

weft_status weft_i_pipe_hear_all(weft_i_pipe *pipe, weft_i_word word)
{
    for (int step = 1; step < pipe->size; step++)
        WEFT_TRY(weft_i_pipe_hear(pipe, (pipe->me + step) % pipe->size, word));
    return WEFT_OK;
}

/* ---- memory and computation ---- */

int weft_i_pipe_pieces(const weft_i_pipe *pipe, int64_t rows)
{
    enum { ROWS_LEAST = 512 };
    int64_t wanted = weft_i_env_number_or_default(WEFT_I_ENV_FUSED_CHUNKS) / pipe->size;
    if (weft_i_device_is_host(pipe->device))
        return 1;
    wanted = wanted * ROWS_LEAST > rows ? rows / ROWS_LEAST : wanted;
    return wanted < 1 ? 1 : wanted > CHUNKS_MOST ? CHUNKS_MOST : (int)wanted;
}

weft_tensor *weft_i_pipe_piece(weft_tensor *x, int pieces, int i)
{
    if (!x || pieces == 1)
        return x;
    int64_t each = (x->dim[0] + pieces - 1) / pieces, first = each * i;
    return weft_narrow(x, 0, first, i == pieces - 1 ? x->dim[0] - first : each);
}

size_t weft_i_pipe_half(const weft_i_pipe *pipe)
{
    return (size_t)pipe->mem->shape.dim[0] / 512 * 256;
}

weft_tensor *weft_i_pipe_slot(weft_i_pipe *pipe, int rank, size_t at, int64_t rows, int64_t columns,
                              weft_dtype dtype)
{
    return weft_symm_buffer(pipe->mem, rank, WEFT_SHAPE(rows, columns), dtype,
                            (int64_t)(at / weft_dtype_size(dtype)));
}

weft_status weft_i_pipe_copy(weft_tensor *to, weft_tensor *from)
{
    if (!to || !from)
        return weft_last_status();
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(to), WEFT_I_TENSOR_ARG(from)};
    weft_i_op_call call = {.op = &weft_i_op_copy, .args = args, .out = to};
    return weft_i_op_run(&call);
}

weft_status weft_i_pipe_move(weft_i_pipe *pipe, int rank, weft_tensor *to, weft_tensor *from)
{
    weft_i_record *record = weft_i_group_record(pipe->group);
    size_t bytes = from ? weft_i_pipe_bytes(from) : 0;
    uint64_t number = weft_i_record_begin(record, "chunk_copy", pipe->group->id, bytes, rank, -1);
    weft_status status = weft_i_pipe_copy(to, from);
    weft_i_record_end(record, number, status);
    return status;
}

weft_status weft_i_pipe_multiply(weft_tensor *out, weft_tensor *a, weft_tensor *b,
                                 weft_tensor *scale, const weft_i_scales *scales)
{
    if (!out || !a || !b || (scales->b && !scale))
        return weft_last_status();
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(a),
                         WEFT_I_TENSOR_ARG(b),
                         WEFT_I_TENSOR_ARG(scale),
                         WEFT_I_TENSOR_ARG(scales->b),
                         WEFT_I_OPTIONAL_ARG(scales->bias),
                         WEFT_I_OPTIONAL_ARG(scales->result),
                         WEFT_I_INTEGER_ARG(out->dtype)};
    weft_i_op_call call = {
        .op = scales->b ? &weft_i_op_scaled_mm : &weft_i_op_mm, .args = args, .out = out};
    return weft_i_op_run(&call);
}

/* By the device's own function for parts.  WEFT_ERR_UNSUPPORTED without a message: it has none, or not
 * of these operands. */
static weft_status multiply_part(const weft_i_pipe *pipe, weft_tensor *out, weft_tensor *a,
                                 weft_tensor *b, weft_tensor *scale, const weft_i_scales *scales,
                                 const weft_tensor *added, double factor)
{
    const weft_i_device *device = weft_i_device_find(pipe->device);
    if (!out || !a || !b || (scales->b && !scale))
        return weft_last_status();
    if (!device || !device->multiply_part || scales->bias || scales->result)
        return WEFT_ERR_UNSUPPORTED;
    return device->multiply_part(out, a, b, scales->b ? scale : NULL, scales->b, added, factor);
}

weft_status weft_i_pipe_product(weft_i_pipe *pipe, int rank, weft_tensor *out, weft_tensor *a,
                                weft_tensor *b, weft_tensor *scale, const weft_i_scales *scales)
{
    weft_i_record *record = weft_i_group_record(pipe->group);
    size_t bytes = out ? weft_i_pipe_bytes(out) : 0;
    uint64_t number = weft_i_record_begin(record, "chunk", pipe->group->id, bytes, rank, -1);
    weft_status status = WEFT_ERR_UNSUPPORTED;
    if (pipe->near)
        status = multiply_part(pipe, out, a, b, scale, scales, NULL, 1);
    if (status == WEFT_ERR_UNSUPPORTED)
        status = weft_i_pipe_multiply(out, a, b, scale, scales);
    weft_i_record_end(record, number, status);
    return status;
}

weft_status weft_i_pipe_product_add(weft_i_pipe *pipe, int rank, weft_tensor *out, weft_tensor *a,
                                    weft_tensor *b, weft_tensor *scale, const weft_i_scales *scales,
                                    const weft_tensor *added, double factor)
{
    weft_i_record *record = weft_i_group_record(pipe->group);
    size_t bytes = out ? weft_i_pipe_bytes(out) : 0;
    uint64_t number = weft_i_record_begin(record, "chunk", pipe->group->id, bytes, rank, -1);
    weft_status status = multiply_part(pipe, out, a, b, scale, scales, added, factor);
    weft_i_record_end(record, number, status);
    return status;
}

static weft_status reduce_there(weft_tensor *out, weft_tensor *stack, weft_reduction op)
{
    static const int64_t first[] = {0};
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(stack), WEFT_I_INTEGERS_ARG(first, 1),
                         WEFT_I_INTEGER_ARG(0)};
    return weft_i_op_into(op == WEFT_AVG ? &weft_i_op_mean : &weft_i_op_sum, out, args);
}

/* By the fold of the collectives, into the first entry if `out` is not contiguous. */
static weft_status reduce_here(weft_tensor *out, weft_tensor *stack, weft_reduction op)
{
    weft_i_fold fold = weft_i_fold_find(stack->dtype, (weft_i_fold_op)op);
    size_t count = (size_t)stack->dim[0], each = (size_t)weft_i_tensor_numel(out);
    char *data = weft_i_tensor_data(stack);
    const void **from = WEFT_OS->alloc(count * sizeof *from);
    if (!from)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to reduce %zu parts", count);
    for (size_t i = 0; i < count; i++)
        from[i] = data + i * each * weft_dtype_size(stack->dtype);
    bool direct = weft_i_tensor_is_contiguous(out);
    void *to = direct ? weft_i_tensor_data(out) : data;
    fold(&to, 1, from, (int)count, each, NULL);
    WEFT_OS->free(from);
    if (direct)
        return WEFT_OK;
    weft_tensor *reduced = weft_select(stack, 0, 0);
    weft_status status = weft_i_pipe_copy(out, reduced);
    weft_release(reduced);
    return status;
}

weft_status weft_i_pipe_reduce(weft_tensor *out, weft_tensor *stack, weft_reduction op)
{
    if (!out || !stack)
        return weft_last_status();
    return weft_i_device_is_host(weft_i_tensor_device(out)) ? reduce_here(out, stack, op)
                                                            : reduce_there(out, stack, op);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that a capture does not enter; see opaque.h. */
#include "grad/opaque.h"

#include "base/os/os.h"
#include "grad/ops.h"
#include "tensor/object/stream.h"
#include "tensor/op/ops.h"
#include "weft/grad.h"
#include "weft/view.h"

#include <stdio.h>
#include <string.h>

void *weft_i_opaque_new(size_t bytes, void (*destroy)(weft_i_object *),
                        weft_i_opaque_function *call, const char *name)
{
    weft_i_opaque *made = weft_i_object_new_unscoped(WEFT_I_OPAQUE, bytes, destroy);
    if (!made)
        return NULL;
    made->call = call;
    snprintf(made->name, sizeof made->name, "%s", name);
    return made;
}

/* ---- the row ---- */

/* A result lies as what it may take the place of. */
weft_status weft_i_opaque_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensors[call->which];
    weft_i_result_like(&call->result, x);
    call->result.device = weft_i_tensor_device(x);
    return WEFT_OK;
}

weft_status weft_i_opaque_run(weft_i_op_call *call)
{
    return call->fake ? WEFT_OK
                      : weft_i_fail(WEFT_ERR_INTERNAL, "opaque: only programs run this row");
}

/* Nobody may write to what the function gives: nobody knows who else has it. */
weft_status weft_i_opaque_write(weft_i_opaque *opaque, weft_tensor **x, size_t count,
                                weft_tensor *const *held, size_t held_count)
{
    weft_tensor **out = WEFT_OS->alloc((count + 1) * sizeof *out);
    if (!out)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "opaque: no memory for %zu tensors", count);
    weft_i_arg args[] = {WEFT_I_TENSORS_ARG(x, count), WEFT_I_TENSORS_ARG(held, held_count),
                         WEFT_I_GROUP_ARG(opaque, opaque->name, 1)};
    weft_status status = weft_i_op_apply_list(&weft_i_op_opaque, out, args);
    for (size_t i = 0; i < count && status >= 0; i++) {
        x[i] = out[i];
        x[i]->storage->read_only = true;
    }
    WEFT_OS->free(out);
    return status;
}

/* ---- running ---- */

static uint64_t state_of(weft_tensor *const *x, size_t count)
{
    uint64_t state = 0;
    for (size_t i = 0; i < count; i++) {
        /* Relaxed: a thread's own writes, as everywhere with versions. */
        uint64_t version =
            (uint64_t)atomic_load_explicit(&x[i]->version->count, memory_order_relaxed);
        state = state * 31 + version;
        state = state * 31 + x[i]->storage->bytes;
    }
    return state;
}

weft_i_opaque_mark weft_i_opaque_mark_of(weft_tensor *const *x, size_t count,
                                         weft_tensor *const *held, size_t held_count)
{
    return (weft_i_opaque_mark){state_of(x, count), state_of(held, held_count)};
}

weft_status weft_i_opaque_check(weft_i_opaque_mark before, weft_i_opaque_mark after)
{
    if (before.seen == after.seen && before.held == after.held)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_STATE,
                       "an opaque hook wrote to %s in place, or resized it; a compiled backward "
                       "cannot see that, so it must put another tensor in the place of a gradient, "
                       "and count in memory of its own",
                       before.seen != after.seen ? "what it was given" : "a tensor that it holds");
}

/* The caller's own handle on what the function left.  Anybody may have that: only a tensor which
 * nobody else knows changes hands. */
static weft_tensor *own(weft_tensor *x)
{
    /* Acquire: whoever let go of the tensor is seen to have done so. */
    if (!x->head.scope && atomic_load_explicit(&x->head.references, memory_order_acquire) == 1) {
        weft_i_scope_adopt(x);
        return x;
    }
    weft_tensor *alias = weft_detach(x);
    weft_i_object_drop(x);
    return alias;
}

static weft_status take(weft_tensor **out, size_t count)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < count; i++)
        if (!(out[i] = own(out[i])))
            status = weft_last_status();
    for (size_t i = 0; i < count && status < 0; i++) {
        weft_release(out[i]);
        out[i] = NULL;
    }
    return status;
}

/* A replay would not call it. */
static weft_status check_streams(const weft_i_opaque *opaque, weft_tensor *const *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        weft_device device = weft_i_tensor_device(x[i]);
        const weft_stream *stream =
            device == WEFT_CPU || device == WEFT_META ? NULL : weft_i_stream_current(device);
        if (stream && stream->captures)
            return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                               "a %s is opaque: it cannot be captured by a stream, whose replay "
                               "would not call it",
                               opaque->name);
    }
    return WEFT_OK;
}

weft_status weft_i_opaque_run_now(const weft_i_opaque *opaque, weft_tensor *const *x, size_t count,
                                  weft_tensor *const *held, size_t held_count, weft_tensor **out)
{
    WEFT_TRY(check_streams(opaque, x, count));
    WEFT_TRY(weft_scope_open());
    weft_i_opaque_mark before = weft_i_opaque_mark_of(x, count, held, held_count);
    memcpy(out, x, count * sizeof *out);
    weft_status status = opaque->call(opaque, out, held);
    if (status >= 0)
        status = weft_i_opaque_check(before, weft_i_opaque_mark_of(x, count, held, held_count));
    for (size_t i = 0; i < count && status >= 0; i++)
        weft_i_object_hold(out[i]);
    weft_scope_close();
    if (status >= 0)
        return take(out, count);
    memset(out, 0, count * sizeof *out);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The list identity: one node that sees the gradients of several tensors at once. */
#include "base/os/os.h"
#include "grad/node.h"
#include "grad/ops.h"
#include "tensor/object/eye.h"

#include <string.h>

weft_status weft_i_pass_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensors[call->which];
    call->result.dtype = x->dtype;
    call->result.shape = weft_i_tensor_shape(x);
    call->result.offset = x->offset;
    memcpy(call->result.stride, x->stride, sizeof x->stride);
    return WEFT_OK;
}

weft_status weft_i_pass_run(weft_i_op_call *call)
{
    return weft_i_fail(WEFT_ERR_INTERNAL, "%s: views do not run", call->op->name);
}

static weft_status is_any_required(weft_tensor *const *in, size_t count, bool *any)
{
    *any = false;
    for (size_t i = 0; weft_i_grad_mode == WEFT_GRAD_RECORDING && i < count; i++) {
        weft_i_edge edge;
        weft_tensor *x = weft_i_see(in[i]);
        if (!x)
            return weft_last_status();
        WEFT_TRY(weft_i_history_edge(x, &edge));
        *any |= edge.to != NULL;
    }
    return WEFT_OK;
}

static weft_i_node *node_of(weft_tensor *const *out, size_t count)
{
    int output;
    weft_i_node *node = NULL;
    for (size_t i = 0; i < count && !node; i++)
        node = weft_i_history_node(out[i], &output);
    return node;
}

weft_status weft_i_pass(weft_tensor **out, weft_tensor *const *in, size_t count,
                        weft_i_node_hook hook, weft_i_hook_identity *identity, void *user,
                        void (*done)(void *user), bool *made)
{
    WEFT_TRY(is_any_required(in, count, made));
    if (!*made) {
        memcpy(out, in, count * sizeof *out);
        return WEFT_OK;
    }
    weft_i_hook *own = weft_i_hook_new("pass", NULL, user, (weft_held){0}, NULL);
    if (!own)
        return weft_last_status();
    weft_i_arg args[] = {WEFT_I_TENSORS_ARG(in, count)};
    weft_status status = weft_i_op_apply_list(&weft_i_op_pass, out, args);
    if (status < 0) {
        weft_i_hook_free(own);
        return status;
    }
    for (size_t i = 0; i < count; i++) /* a write would make its history anew, past the node */
        out[i]->passed = true;
    if (weft_i_eye_open)
        weft_i_eye_open->hooked = true;
    own->identity = identity;
    own->on_all = hook;
    own->done = done;
    weft_i_hook_append(&node_of(out, count)->hooks, own);
    return WEFT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry and the one path every operation takes.  All checks come before the first side
 * effect: an argument is written, or its version counted, only by a call whose arguments passed
 * every check.
 */
#include "tensor/op.h"

#include "tensor/loops.h"

#include <string.h>

static weft_i_op_table *tables;
static _Thread_local weft_i_mode *innermost;

/* "x:t dim:i" has the kinds "ti". */
static void read_kinds(weft_i_op *op)
{
    int count = 0;
    for (const char *at = op->params; (at = strchr(at, ':')) && count < WEFT_I_OP_ARGS; at++)
        op->kinds[count++] = at[1];
}

void weft_i_op_add_table(weft_i_op_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        read_kinds(table->rows[i]);
    table->next = tables;
    tables = table;
}

weft_i_op_table *weft_i_op_tables(void)
{
    return tables;
}

weft_i_op *weft_i_op_find(const char *name)
{
    for (weft_i_op_table *table = tables; table; table = table->next)
        for (size_t i = 0; i < table->count; i++)
            if (!strcmp(table->rows[i]->name, name))
                return table->rows[i];
    return NULL;
}

void weft_i_mode_push(weft_i_mode *mode)
{
    mode->outer = innermost;
    innermost = mode;
}

void weft_i_mode_pop(weft_i_mode *mode)
{
    innermost = mode->outer;
}

int weft_i_op_param_count(const weft_i_op *op)
{
    return (int)strlen(op->kinds);
}

const char *weft_i_op_param_name(const weft_i_op *op, int i, int *length)
{
    const char *at = op->params;
    while (i-- > 0)
        at = strchr(at, ' ') + 1;
    *length = (int)strcspn(at, ":");
    return at;
}

/* Kinds of arguments that a parameter of each letter takes. */
static bool kind_fits(char letter, weft_i_arg_kind kind)
{
    switch (letter) {
    case 't':
    case 'w':
    case 'r':
        return kind == WEFT_I_ARG_TENSOR;
    case 'o':
        return kind == WEFT_I_ARG_TENSOR || kind == WEFT_I_ARG_NONE;
    case 's':
        return kind == WEFT_I_ARG_TENSOR || kind == WEFT_I_ARG_NUMBER;
    case 'l':
    case 'm':
        return kind == WEFT_I_ARG_TENSORS;
    case 'g':
        return kind == WEFT_I_ARG_GROUP;
    case 'n':
        return kind == WEFT_I_ARG_NUMBER;
    case 'I':
        return kind == WEFT_I_ARG_INTEGERS;
    default:
        return kind == WEFT_I_ARG_INTEGER;
    }
}

/* Walks the tensors of a call, lists included; `position` starts at zeros. */
struct position {
    int arg;
    size_t in_list;
};

static bool next_tensor(const weft_i_op_call *call, int count, struct position *at,
                        weft_tensor **out)
{
    for (; at->arg < count; at->arg++, at->in_list = 0) {
        const weft_i_arg *arg = &call->args[at->arg];
        if (arg->kind == WEFT_I_ARG_TENSORS && at->in_list < arg->count) {
            *out = arg->tensors[at->in_list++];
            return true;
        }
        if (arg->kind == WEFT_I_ARG_TENSOR) {
            *out = arg->tensor;
            at->arg++;
            return true;
        }
    }
    return false;
}

/* NULL comes from an earlier failure, whose error stays; without one it is the caller's mistake. */
static weft_status check_present(const weft_i_op_call *call, int count)
{
    weft_tensor *x;
    for (struct position at = {0, 0}; next_tensor(call, count, &at, &x);) {
        if (x && x->head.kind != WEFT_I_TENSOR)
            return weft_i_fail(WEFT_ERR_TYPE, "%s: an argument is not a tensor", call->op->name);
        if (!x)
            return weft_last_status() < 0
                       ? weft_last_status()
                       : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a tensor argument is NULL",
                                     call->op->name);
    }
    return WEFT_OK;
}

static weft_status check_tensors(weft_i_op_call *call, int count)
{
    weft_tensor *x, *first = NULL;
    char a[16], b[16];
    for (struct position at = {0, 0}; next_tensor(call, count, &at, &x);) {
        if (!first)
            first = x;
        if (weft_i_tensor_device(x) != weft_i_tensor_device(first))
            return weft_i_fail(WEFT_ERR_TYPE,
                               "%s: arguments on %s and %s; all must be on one device",
                               call->op->name, weft_device_name(weft_i_tensor_device(first), a),
                               weft_device_name(weft_i_tensor_device(x), b));
        if (!(call->op->flags & (WEFT_I_OP_VIEW | WEFT_I_OP_LAYOUT)))
            WEFT_TRY(weft_i_tensor_check_fits(call->op->name, x));
    }
    if (first)
        call->result.device = weft_i_tensor_device(first);
    return WEFT_OK;
}

static weft_status check_writable(const weft_i_op_call *call, const weft_tensor *x)
{
    char text[WEFT_I_SHAPE_TEXT];
    if (x->storage->read_only)
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: the tensor of shape %s is read-only (imported that way)",
                           call->op->name, weft_i_shape_text(weft_i_tensor_shape(x), text));
    if (call->op->flags & WEFT_I_OP_LAYOUT)
        return WEFT_OK;
    if (weft_i_tensor_overlaps_itself(x))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: several elements of the written tensor of shape %s share memory "
                           "(an expanded view?); "
                           "write to a clone",
                           call->op->name, weft_i_shape_text(weft_i_tensor_shape(x), text));
    return weft_i_storage_ready(x->storage, true);
}

/* The argument that the row changes and returns, if there is one. */
static weft_tensor *changed(const weft_i_op_call *call)
{
    char kind = call->op->kinds[0];
    return kind == 'w' || kind == 'r' ? call->args[0].tensor
           : kind == 'm'              ? call->args[0].tensors[0]
                                      : NULL;
}

/* The tensors that are written in place; returns how many. */
static size_t written(const weft_i_op_call *call, weft_tensor *const **out)
{
    const weft_i_arg *first = &call->args[0];
    char kind = call->op->kinds[0];
    *out = kind == 'm' ? first->tensors : &first->tensor;
    return kind == 'm' ? first->count : kind == 'w';
}

static weft_status check_list(const weft_i_op_call *call)
{
    if (call->op->flags & WEFT_I_OP_LIST && (call->args[0].count == 0 || !call->outs))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a list of tensors has at least one",
                           call->op->name);
    return WEFT_OK;
}

static weft_status check_arguments(weft_i_op_call *call, int count)
{
    for (int i = 0; i < count; i++)
        if (!kind_fits(call->op->kinds[i], call->args[i].kind)) {
            int length;
            const char *name = weft_i_op_param_name(call->op, i, &length);
            return weft_i_fail(WEFT_ERR_TYPE, "%s: argument %.*s has the wrong kind",
                               call->op->name, length, name);
        }
    WEFT_TRY(check_list(call));
    WEFT_TRY(check_present(call, count));
    WEFT_TRY(check_tensors(call, count));
    weft_tensor *const *targets;
    size_t n = written(call, &targets);
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(check_writable(call, targets[i]));
    return WEFT_OK;
}

/* A result may go into a target of another dtype as long as no class is lost: float -> integer ->
 * bool is refused. */
static weft_status check_into(const weft_i_op_call *call)
{
    const weft_tensor *into = call->into;
    const weft_i_result *result = &call->result;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT], device[16];
    if (call->op->flags & (WEFT_I_OP_VIEW | WEFT_I_OP_LAYOUT | WEFT_I_OP_LIST) || changed(call))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: has no result that could be written",
                           call->op->name);
    if (weft_i_tensor_device(into) != result->device)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the target is on %s, the arguments are not",
                           call->op->name, weft_device_name(weft_i_tensor_device(into), device));
    if (!weft_i_shape_equal(weft_i_tensor_shape(into), result->shape))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the result has shape %s, the target %s",
                           call->op->name, weft_i_shape_text(result->shape, a),
                           weft_i_shape_text(weft_i_tensor_shape(into), b));
    if (weft_i_dtype_class(result->dtype) > weft_i_dtype_class(into->dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "%s: a result of %s cannot be written to a tensor of %s",
                           call->op->name, weft_dtype_name(result->dtype),
                           weft_dtype_name(into->dtype));
    WEFT_TRY(weft_i_tensor_check_fits(call->op->name, into));
    return check_writable(call, into);
}

/* Whether writing `into` while reading the arguments could read what was already written. */
static bool is_hazard(const weft_i_op_call *call, int count)
{
    bool elementwise = (call->op->flags & WEFT_I_OP_ELEMENTWISE) == WEFT_I_OP_ELEMENTWISE;
    weft_tensor *x;
    for (struct position at = {0, 0}; next_tensor(call, count, &at, &x);)
        if (weft_i_tensor_ranges_meet(x, call->into) &&
            !(elementwise && weft_i_tensor_same_view(x, call->into)))
            return true;
    return false;
}

static weft_tensor *new_result(const weft_i_op_call *call)
{
    const weft_i_result *result = &call->result;
    if (!(call->op->flags & WEFT_I_OP_VIEW))
        return weft_i_tensor_new(result->dtype, result->device, result->shape, result->stride);
    weft_tensor *base = call->args[0].tensor;
    return weft_i_tensor_new_view(base->storage, result->fresh_version ? NULL : base->version,
                                  result->dtype, result->shape, result->stride, result->offset);
}

static weft_status run(weft_i_op_call *call)
{
    weft_device device = weft_i_tensor_device(call->out);
    bool layout = call->op->flags & WEFT_I_OP_LAYOUT;
    if (call->op->flags & WEFT_I_OP_VIEW || (device == WEFT_META && !layout))
        return WEFT_OK;
    int kind = layout ? weft_i_device_kind(WEFT_CPU) : weft_i_device_kind(device);
    char name[16];
    if (kind < 0 || kind >= WEFT_I_DEVICE_KINDS || !call->op->run[kind])
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s: does not run on %s in this build",
                           call->op->name, weft_device_name(device, name));
    return call->op->run[kind](call);
}

/* Runs into a fresh tensor and copies that, for targets the run function cannot write or that
 * overlap arguments. */
static weft_status run_and_copy(weft_i_op_call *call)
{
    if (!(call->out = new_result(call)))
        return weft_last_status();
    weft_status status = run(call);
    if (status >= 0)
        status = weft_i_storage_ready(call->out->storage, false);
    if (status >= 0 && weft_i_tensor_device(call->into) == WEFT_CPU)
        weft_i_copy_tensor(call->into, call->out);
    weft_release(call->out);
    call->out = call->into;
    return status;
}

static weft_status run_into(weft_i_op_call *call, int count)
{
    WEFT_TRY(check_into(call));
    bool direct = call->op->flags & WEFT_I_OP_STRIDED && call->into->dtype == call->result.dtype &&
                  !is_hazard(call, count);
    call->out = call->into;
    WEFT_TRY(direct ? run(call) : run_and_copy(call));
    weft_i_tensor_bump(call->into);
    return WEFT_OK;
}

static weft_status run_change(weft_i_op_call *call)
{
    weft_tensor *const *targets;
    size_t n = written(call, &targets);
    call->out = changed(call);
    WEFT_TRY(run(call));
    for (size_t i = 0; i < n; i++)
        weft_i_tensor_bump(targets[i]);
    for (size_t i = 0; call->outs && i < n; i++)
        call->outs[i] = targets[i];
    return WEFT_OK;
}

static void release_list(weft_tensor **outs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        weft_release(outs[i]);
        outs[i] = NULL;
    }
}

/* All of the results, or none of them. */
static weft_status run_list(weft_i_op_call *call)
{
    size_t count = call->args[0].count, made = 0;
    weft_status status = WEFT_OK;
    for (; made < count && status >= 0; made++) {
        call->which = made;
        status = call->op->shape(call);
        if (status >= 0 && !(call->outs[made] = new_result(call)))
            status = weft_last_status();
        if (status < 0)
            break;
    }
    call->out = call->outs[0];
    if (status >= 0)
        status = run(call);
    if (status < 0)
        release_list(call->outs, made);
    return status;
}

/* The shape rule of every result. */
static weft_status find_shapes(weft_i_op_call *call)
{
    size_t count = call->op->flags & WEFT_I_OP_LIST ? call->args[0].count : 1;
    for (call->which = 0; call->which < count; call->which++)
        WEFT_TRY(call->op->shape(call));
    return WEFT_OK;
}

static weft_status run_new(weft_i_op_call *call)
{
    if (!(call->out = new_result(call)))
        return weft_last_status();
    weft_status status = run(call);
    if (status < 0)
        weft_release(call->out);
    return status;
}

static weft_status dispatch(weft_i_op_call *call)
{
    int count = weft_i_op_param_count(call->op);
    WEFT_TRY(check_arguments(call, count));
    WEFT_TRY(find_shapes(call));
    if (call->into)
        return run_into(call, count);
    if (changed(call))
        return run_change(call);
    return call->op->flags & WEFT_I_OP_LIST ? run_list(call) : run_new(call);
}

static weft_tensor *apply(const weft_i_op *op, weft_tensor *into, weft_tensor **outs,
                          const weft_i_arg *args)
{
    weft_i_op_call call = {.op = op, .into = into, .outs = outs};
    memcpy(call.args, args, (size_t)weft_i_op_param_count(op) * sizeof *args);
    weft_i_mode *mode = innermost;
    if (!mode)
        return dispatch(&call) < 0 ? NULL : call.out;
    innermost = mode->outer;
    weft_tensor *out = mode->handle(mode, &call);
    innermost = mode;
    return out;
}

weft_tensor *weft_i_op_apply(const weft_i_op *op, weft_tensor *into, const weft_i_arg *args)
{
    return apply(op, into, NULL, args);
}

weft_tensor *weft_i_op_pass_on(const weft_i_op_call *call)
{
    return apply(call->op, call->into, call->outs, call->args);
}

static weft_status outcome(const weft_i_op *op, const weft_tensor *out)
{
    if (out)
        return WEFT_OK;
    return weft_last_status() < 0
               ? weft_last_status()
               : weft_i_fail(WEFT_ERR_INTERNAL, "%s failed without an error", op->name);
}

weft_status weft_i_op_apply_list(const weft_i_op *op, weft_tensor **outs, const weft_i_arg *args)
{
    return outcome(op, apply(op, NULL, outs, args));
}

weft_status weft_i_op_act(const weft_i_op *op, const weft_i_arg *args)
{
    return outcome(op, weft_i_op_apply(op, NULL, args));
}

weft_status weft_i_op_into(const weft_i_op *op, weft_tensor *into, const weft_i_arg *args)
{
    if (!into)
        return weft_last_status() < 0
                   ? weft_last_status()
                   : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the target is NULL", op->name);
    return outcome(op, weft_i_op_apply(op, into, args));
}

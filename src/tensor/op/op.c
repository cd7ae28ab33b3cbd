/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry and the one path every operation takes.  All checks come before the first side
 * effect: an argument is written, or its version counted, only by a call whose arguments passed
 * every check.
 */
#include "tensor/op/op.h"

#include "base/os/assert.h"
#include "tensor/object/eye.h"
#include "tensor/object/fake.h"
#include "tensor/op/autocast.h"
#include "tensor/op/ops.h"

#include <string.h>

/* The newest table.  Tables are added by one thread at a time, before there are others or under the
 * lock of grad/custom.c.  Release, pairs with the acquire in weft_i_op_tables: whoever finds a table
 * sees its rows. */
static _Atomic(weft_i_op_table *) tables;
static _Thread_local weft_i_mode *innermost;
static weft_i_recorder *recorder; /* set before there is more than one thread */

/* Kinds of arguments that a parameter of each letter takes, as bits. */
static unsigned char kinds_of(char letter)
{
    enum { TENSOR = 1 << WEFT_I_ARG_TENSOR, NUMBER = 1 << WEFT_I_ARG_NUMBER };
    switch (letter) {
    case 't':
    case 'y':
    case 'w':
    case 'r':
        return TENSOR;
    case 'o':
        return TENSOR | 1 << WEFT_I_ARG_NONE;
    case 's':
        return TENSOR | NUMBER;
    case 'l':
    case 'L':
    case 'm':
        return 1 << WEFT_I_ARG_TENSORS;
    case 'g':
        return 1 << WEFT_I_ARG_GROUP;
    case 'n':
        return NUMBER;
    case 'I':
        return 1 << WEFT_I_ARG_INTEGERS;
    default:
        return 1 << WEFT_I_ARG_INTEGER;
    }
}

/* "x:t dim:i" has the kinds "ti". */
static void read_kinds(weft_i_op *op)
{
    op->arity = 0;
    for (const char *at = op->params; (at = strchr(at, ':')) && op->arity < WEFT_I_OP_ARGS; at++) {
        op->takes[op->arity] = kinds_of(at[1]);
        op->kinds[op->arity++] = at[1];
    }
    op->changes = op->kinds[0] && strchr("wmr", op->kinds[0]) ? op->kinds[0] : 0;
}

void weft_i_op_add_table(weft_i_op_table *table)
{
    WEFT_ASSERT(table->rows && !table->next);
    for (size_t i = 0; i < table->count; i++)
        read_kinds(table->rows[i]);
    table->next = weft_i_op_tables();
    atomic_store_explicit(&tables, table, memory_order_release);
}

void weft_i_op_add_column(int kind, const weft_i_op_column *rows, size_t count)
{
    WEFT_ASSERT(kind >= 0 && kind < WEFT_I_DEVICE_KINDS);
    for (size_t i = 0; i < count; i++)
        rows[i].op->run[kind] = rows[i].run;
}

weft_i_op_table *weft_i_op_tables(void)
{
    return atomic_load_explicit(&tables, memory_order_acquire);
}

weft_i_op *weft_i_op_find(const char *name)
{
    for (weft_i_op_table *table = weft_i_op_tables(); table; table = table->next)
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
    WEFT_ASSERT(innermost == mode); /* they nest */
    innermost = mode->outer;
}

void weft_i_mode_remove(weft_i_mode *mode)
{
    weft_i_mode **at = &innermost;
    while (*at != mode) {
        WEFT_ASSERT(*at);
        at = &(*at)->outer;
    }
    *at = mode->outer;
}

const char *weft_i_op_param_name(const weft_i_op *op, int i, int *length)
{
    WEFT_ASSERT(i >= 0 && i < op->arity);
    const char *at = op->params;
    while (i-- > 0)
        at = strchr(at, ' ') + 1;
    *length = (int)strcspn(at, ":");
    return at;
}

/* Walks the tensors of a call, lists included but for what is absent; `position` starts at zeros.
 */
struct position {
    int arg;
    size_t in_list;
};

static inline bool next_tensor(const weft_i_op_call *call, struct position *at, weft_tensor **out)
{
    for (; at->arg < call->op->arity; at->arg++, at->in_list = 0) {
        const weft_i_arg *arg = &call->args[at->arg];
        while (arg->kind == WEFT_I_ARG_TENSORS && at->in_list < arg->count)
            if ((*out = arg->tensors[at->in_list++]) || call->op->kinds[at->arg] != 'L')
                return true;
        if (arg->kind == WEFT_I_ARG_TENSOR) {
            *out = arg->tensor;
            at->arg++;
            return true;
        }
    }
    return false;
}

/* NULL comes from an earlier failure, whose error stays; without one it is the caller's mistake. */
static weft_status refuse_tensor(const weft_i_op_call *call, const weft_tensor *x)
{
    if (x)
        return weft_i_tensor_check_live(call->op->name, x);
    return weft_i_missing("%s: a tensor argument is NULL", call->op->name);
}

static weft_status refuse_kind(const weft_i_op_call *call, int i)
{
    int length;
    const char *name = weft_i_op_param_name(call->op, i, &length);
    return weft_i_fail(WEFT_ERR_TYPE, "%s: argument %.*s has the wrong kind", call->op->name,
                       length, name);
}

static weft_status check_list(const weft_i_op_call *call, int i, bool *known)
{
    const weft_i_arg *arg = &call->args[i];
    for (size_t k = 0; k < arg->count; k++) {
        const weft_tensor *x = arg->tensors[k];
        if (!x && call->op->kinds[i] == 'L')
            continue;
        if (!x || x->head.kind != WEFT_I_TENSOR)
            return refuse_tensor(call, x);
        *known |= weft_i_tensor_is_known(x);
    }
    return WEFT_OK;
}

/* What holds before anybody looks at the arguments, modes included.  *known: the recorder has to do
 * with one of the tensors. */
static weft_status check_kinds(const weft_i_op_call *call, bool *known)
{
    const weft_i_op *op = call->op;
    for (int i = 0; i < op->arity; i++) {
        const weft_i_arg *arg = &call->args[i];
        if (!(op->takes[i] >> arg->kind & 1))
            return refuse_kind(call, i);
        if (arg->kind == WEFT_I_ARG_TENSOR) {
            if (!arg->tensor || arg->tensor->head.kind != WEFT_I_TENSOR)
                return refuse_tensor(call, arg->tensor);
            *known |= weft_i_tensor_is_known(arg->tensor);
        } else if (arg->kind == WEFT_I_ARG_TENSORS) {
            WEFT_TRY(check_list(call, i, known));
        }
    }
    if (op->flags & WEFT_I_OP_LIST && (call->args[0].count == 0 || !call->outs))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a list of tensors has at least one",
                           op->name);
    return WEFT_OK;
}

static weft_status refuse_devices(const weft_i_op_call *call, weft_device first, weft_device other)
{
    char a[16], b[16];
    return weft_i_fail(WEFT_ERR_TYPE, "%s: arguments on %s and %s; all must be on one device",
                       call->op->name, weft_device_name(first, a), weft_device_name(other, b));
}

/* Fakes have no memory to wait for, but their sizes must do. */
static weft_status check_usable(const weft_i_op_call *call, const weft_tensor *x)
{
    return call->fake ? weft_i_tensor_fits(call->op->name, x)
                      : weft_i_tensor_check_fits(call->op->name, x);
}

/* Meta has no elements that could go anywhere; rows about layouts move none. */
static bool may_mix(const weft_i_op_call *call, weft_device other)
{
    bool meta = other == WEFT_META || call->result.device == WEFT_META;
    return call->op->flags & WEFT_I_OP_MIXED && (!meta || call->op->flags & WEFT_I_OP_LAYOUT);
}

static weft_status check_tensors(weft_i_op_call *call)
{
    weft_tensor *x;
    bool first = true, reads = !(call->op->flags & (WEFT_I_OP_VIEW | WEFT_I_OP_LAYOUT));
    for (struct position at = {0, 0}; next_tensor(call, &at, &x); first = false) {
        weft_device device = weft_i_tensor_device(x);
        if (first)
            call->result.device = device;
        else if (device != call->result.device && !may_mix(call, device))
            return refuse_devices(call, call->result.device, device);
        if (reads)
            WEFT_TRY(check_usable(call, x));
    }
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
    return call->fake ? WEFT_OK : weft_i_storage_ready(x->storage, true);
}

/* The argument that the row changes and returns, if there is one. */
static weft_tensor *changed(const weft_i_op_call *call)
{
    char kind = call->op->changes;
    return !kind ? NULL : kind == 'm' ? call->args[0].tensors[0] : call->args[0].tensor;
}

size_t weft_i_op_written(const weft_i_op_call *call, weft_tensor *const **out)
{
    const weft_i_arg *first = &call->args[0];
    char kind = call->op->changes;
    *out = kind == 'm' ? first->tensors : &first->tensor;
    return kind == 'm' ? first->count : kind == 'w';
}

static weft_status check_arguments(weft_i_op_call *call)
{
    WEFT_TRY(check_tensors(call));
    weft_tensor *const *targets;
    size_t n = weft_i_op_written(call, &targets);
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(check_writable(call, targets[i]));
    return WEFT_OK;
}

size_t weft_i_op_result_count(const weft_i_op_call *call)
{
    return call->op->flags & WEFT_I_OP_LIST ? call->args[0].count
           : call->op->results > 1          ? (size_t)call->op->results
                                            : 1;
}

static bool has_several(const weft_i_op *op)
{
    return op->flags & WEFT_I_OP_LIST || op->results > 1;
}

/* A result may go into a target of another dtype as long as no class is lost: float -> integer ->
 * bool is refused. */
static weft_status check_into(const weft_i_op_call *call)
{
    const weft_tensor *into = call->into;
    const weft_i_result *result = &call->result;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT], device[16];
    if (call->op->flags & (WEFT_I_OP_VIEW | WEFT_I_OP_LAYOUT) || has_several(call->op) ||
        changed(call))
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
    WEFT_TRY(check_usable(call, into));
    return check_writable(call, into);
}

/* Whether writing `into` while reading the arguments could read what was already written. */
static bool is_hazard(const weft_i_op_call *call)
{
    bool elementwise = (call->op->flags & WEFT_I_OP_ELEMENTWISE) == WEFT_I_OP_ELEMENTWISE;
    weft_tensor *x;
    for (struct position at = {0, 0}; next_tensor(call, &at, &x);)
        if (weft_i_tensor_ranges_meet(x, call->into) &&
            !(elementwise && weft_i_tensor_same_view(x, call->into)))
            return true;
    return false;
}

static weft_tensor *new_tensor(const weft_i_op_call *call)
{
    const weft_i_result *result = &call->result;
    if ((call->op->flags & WEFT_I_OP_WITHIN) == WEFT_I_OP_WITHIN)
        return weft_i_tensor_new_within(call->args[0].tensor, result->fresh_version, &result->shape,
                                        result->stride, result->offset);
    if (!(call->op->flags & WEFT_I_OP_VIEW) && call->fake)
        return weft_i_fake_new(call->fake, result->dtype, result->device, result->shape,
                               result->stride);
    if (!(call->op->flags & WEFT_I_OP_VIEW))
        return weft_i_tensor_new(result->dtype, result->device, result->shape, result->stride);
    weft_tensor *base = call->op->flags & WEFT_I_OP_LIST ? call->args[0].tensors[call->which]
                                                         : call->args[0].tensor;
    return weft_i_tensor_new_view(base->storage, result->fresh_version ? NULL : base->version,
                                  result->dtype, result->shape, result->stride, result->offset);
}

/* Gradients pass views, but for those that are there to stop them. */
static weft_tensor *new_result(const weft_i_op_call *call)
{
    weft_tensor *out = new_tensor(call);
    bool view = call->op->flags & WEFT_I_OP_VIEW && !call->result.fresh_version;
    if (view && out && call->op != &weft_i_op_detach)
        weft_i_tensor_link(out, call->op->flags & WEFT_I_OP_LIST
                                    ? call->args[0].tensors[call->which]
                                    : call->args[0].tensor);
    return out;
}

/* Of rows that may mix devices: the one that is not the CPU runs them. */
static weft_device device_of(const weft_i_op_call *call)
{
    weft_device device = weft_i_tensor_device(call->out);
    weft_tensor *x;
    if (call->op->flags & WEFT_I_OP_MIXED)
        for (struct position at = {0, 0}; device == WEFT_CPU && next_tensor(call, &at, &x);)
            device = weft_i_tensor_device(x);
    return device;
}

weft_status weft_i_op_run(weft_i_op_call *call)
{
    weft_device device = device_of(call);
    bool layout = call->op->flags & WEFT_I_OP_LAYOUT;
    if (call->op->flags & WEFT_I_OP_VIEW || (device == WEFT_META && !layout))
        return WEFT_OK;
    int kind = layout ? WEFT_I_KIND_CPU : weft_i_device_kind(device);
    char name[16];
    if (kind < 0 || kind >= WEFT_I_DEVICE_KINDS || !call->op->run[kind])
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s: does not run on %s in this build",
                           call->op->name, weft_device_name(device, name));
    return call->fake && !layout ? WEFT_OK : call->op->run[kind](call);
}

/* Runs into a fresh tensor and copies that, for targets the run function cannot write or that
 * overlap arguments. */
static weft_status run_and_copy(weft_i_op_call *call)
{
    if (!(call->out = new_result(call)))
        return weft_last_status();
    weft_status status = weft_i_op_run(call);
    if (status >= 0)
        status = weft_i_storage_ready(call->out->storage, false);
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(call->into), WEFT_I_TENSOR_ARG(call->out)};
    weft_i_op_call copy = {.op = &weft_i_op_copy, .args = args, .out = call->into};
    if (status >= 0)
        status = weft_i_op_run(&copy);
    weft_release(call->out);
    call->out = call->into;
    return status;
}

/* Whether the target lies as a new result would: then every run function can write it, but for
 * those that are under way when they return. */
static bool lies_alike(const weft_i_op_call *call)
{
    const weft_i_result *result = &call->result;
    for (int i = 0; i < result->shape.ndim; i++)
        if (call->into->stride[i] != result->stride[i])
            return false;
    return !strchr(call->op->kinds, 'g');
}

static weft_status run_into(weft_i_op_call *call)
{
    WEFT_TRY(check_into(call));
    bool direct = (call->op->flags & WEFT_I_OP_STRIDED || lies_alike(call)) &&
                  call->into->dtype == call->result.dtype && !is_hazard(call);
    direct |= call->fake != 0; /* nothing moves */
    call->out = call->into;
    WEFT_TRY(direct ? weft_i_op_run(call) : run_and_copy(call));
    weft_i_tensor_bump(call->into);
    return WEFT_OK;
}

static weft_status run_change(weft_i_op_call *call)
{
    weft_tensor *const *targets;
    size_t n = weft_i_op_written(call, &targets);
    call->out = changed(call);
    WEFT_TRY(weft_i_op_run(call));
    for (size_t i = 0; i < n; i++)
        weft_i_tensor_bump(targets[i]);
    for (size_t i = 0; call->outs && i < n; i++)
        call->outs[i] = targets[i];
    return WEFT_OK;
}

static void release_results(weft_tensor **outs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        weft_release(outs[i]);
        outs[i] = NULL;
    }
}

static weft_status find_shape(weft_i_op_call *call, size_t which)
{
    call->which = which;
    call->result.absent = false;
    return call->op->shape(call);
}

/* All of the results, or none of them. */
static weft_status run_several(weft_i_op_call *call)
{
    size_t count = weft_i_op_result_count(call), made = 0;
    weft_status status = WEFT_OK;
    for (; made < count; made++) {
        if ((status = find_shape(call, made)) < 0)
            break;
        call->outs[made] = call->result.absent ? NULL : new_result(call);
        if (!call->outs[made] && !call->result.absent) {
            status = weft_last_status();
            break;
        }
    }
    if (status >= 0) {
        call->out = call->outs[0];
        status = weft_i_op_run(call);
    }
    if (status < 0)
        release_results(call->outs, made);
    return status;
}

static weft_status run_new(weft_i_op_call *call)
{
    if (!(call->out = new_result(call)))
        return weft_last_status();
    weft_status status = weft_i_op_run(call);
    if (status < 0)
        weft_release(call->out);
    return status;
}

static weft_status dispatch(weft_i_op_call *call)
{
    if (call->op->quick && !call->fake && call->op->quick(call))
        return call->out ? WEFT_OK : weft_last_status();
    call->result.device = WEFT_CPU;
    call->result.compute = WEFT_F64;
    call->result.offset = 0;
    call->result.fresh_version = false;
    WEFT_TRY(check_arguments(call));
    if (has_several(call->op) && !call->into && !changed(call))
        return run_several(call); /* which finds the shapes, one after the other */
    for (size_t i = 0, count = weft_i_op_result_count(call); i < count; i++)
        WEFT_TRY(find_shape(call, i));
    if (call->into)
        return run_into(call);
    return changed(call) ? run_change(call) : run_new(call);
}

void weft_i_op_set_recorder(weft_i_recorder *function)
{
    recorder = function;
}

static weft_tensor *below(weft_i_op_call *call)
{
    weft_i_mode *mode = innermost;
    if (!mode)
        return dispatch(call) < 0 ? NULL : call->out;
    innermost = mode->outer;
    weft_tensor *out = mode->handle(mode, call);
    innermost = mode;
    return out;
}

/* What the caller says of a call; the rest is still to be found. */
static weft_i_op_call again(const weft_i_op_call *call)
{
    weft_i_op_call copy;
    copy.op = call->op;
    copy.args = call->args;
    copy.into = call->into;
    copy.outs = call->outs;
    copy.out = NULL;
    copy.fake = call->fake;
    return copy;
}

weft_tensor *weft_i_op_below(const weft_i_op_call *call)
{
    weft_i_op_call copy = again(call);
    return below(&copy);
}

weft_tensor *weft_i_op_seen(const weft_i_op_call *call)
{
    weft_i_op_call copy = again(call);
    bool known = call->into && weft_i_tensor_is_known(call->into);
    if (check_kinds(&copy, &known) < 0)
        return NULL;
    return known && recorder ? recorder(&copy) : below(&copy);
}

static inline weft_tensor *apply_as_given(const weft_i_op *op, weft_tensor *into,
                                          weft_tensor **outs, const weft_i_arg *args)
{
    weft_i_op_call call;
    call.op = op;
    call.args = args;
    call.into = into;
    call.outs = outs;
    call.out = NULL;
    call.fake = 0;
    bool known = into && weft_i_tensor_is_known(into);
    if (check_kinds(&call, &known) < 0)
        return NULL;
    weft_i_eye *eye = weft_i_eye_open;
    if (__builtin_expect(eye != NULL, 0))
        return eye->apply(eye, &call);
    return known && recorder ? recorder(&call) : below(&call);
}

WEFT_I_COLD static weft_tensor *apply_converted(const weft_i_op *op, weft_tensor *into,
                                                weft_tensor **outs, const weft_i_arg *args)
{
    if (!weft_i_autocast) /* the block is another thread's */
        return apply_as_given(op, into, outs, args);
    weft_i_autocast_casts casts;
    args = weft_i_autocast_begin(op, args, &casts);
    weft_tensor *out = args ? apply_as_given(op, into, outs, args) : NULL;
    weft_i_autocast_end(&casts);
    return out;
}

static weft_tensor *apply(const weft_i_op *op, weft_tensor *into, weft_tensor **outs,
                          const weft_i_arg *args)
{
    if (__builtin_expect(weft_i_autocast_may_be(), 0))
        return apply_converted(op, into, outs, args);
    return apply_as_given(op, into, outs, args);
}

weft_tensor *weft_i_op_apply(const weft_i_op *op, weft_tensor *into, const weft_i_arg *args)
{
    return apply(op, into, NULL, args);
}

weft_tensor *weft_i_op_pass_on(const weft_i_op_call *call)
{
    weft_i_op_call copy = again(call);
    bool known = false;
    return check_kinds(&copy, &known) < 0 ? NULL : below(&copy);
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
        return weft_i_missing("%s: the target is NULL", op->name);
    WEFT_TRY(weft_i_tensor_check_live(op->name, into));
    return outcome(op, weft_i_op_apply(op, into, args));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder: above the modes, so that what it records is what the user called.  It gets only
 * calls with a tensor it knows.  All that can fail is done before the call is made, where the call
 * writes a tensor of the caller; else right after it, when the results' shapes are known.
 */
#include "grad/engine.h"
#include "grad/node.h"

#include "base/os/os.h"
#include "tensor/op/autocast.h"

#include <string.h>

_Thread_local weft_grad_mode weft_i_grad_mode = WEFT_GRAD_RECORDING;

enum { FEW = WEFT_I_OP_ARGS + 16 };

/* One call on its way. */
struct recording {
    const weft_i_op_call *call;
    const weft_i_gradient *rule;
    weft_i_edge few[FEW], *edges; /* borrowed targets */
    int count;                    /* of edges: arguments, then the tensors of the list */
    weft_tensor *const *targets;  /* written by the call */
    size_t target_count;
    weft_tensor *into[1];
    weft_tensor *before; /* argument 0 as it was, if it is written and needed; held */
    weft_i_node *node;
    weft_i_node *spare_one, **spare; /* for targets that are views */
};

static bool is_float(weft_dtype dtype)
{
    return weft_i_dtype_kind_of(dtype) == WEFT_I_KIND_FLOAT;
}

/* ---- who needs a gradient ---- */

static weft_status find_edge(struct recording *r, int at, weft_tensor *x, bool *any)
{
    if (x && weft_i_tensor_is_known(x) && is_float(x->dtype))
        WEFT_TRY(weft_i_history_edge(x, &r->edges[at]));
    *any |= r->edges[at].to != NULL;
    return WEFT_OK;
}

static weft_status find_edges(struct recording *r, bool *any)
{
    const weft_i_op_call *call = r->call;
    size_t items = 0;
    for (int i = 0; i < call->op->arity; i++)
        items += call->args[i].kind == WEFT_I_ARG_TENSORS ? call->args[i].count : 0;
    r->count = call->op->arity + (int)items;
    r->edges = r->few;
    if (r->count > FEW && !(r->edges = WEFT_OS->alloc((size_t)r->count * sizeof *r->edges)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory to record %zu tensors",
                           call->op->name, items);
    memset(r->edges, 0, (size_t)r->count * sizeof *r->edges);
    for (int i = 0, at = call->op->arity; i < call->op->arity; i++) {
        const weft_i_arg *arg = &call->args[i];
        if (arg->kind == WEFT_I_ARG_TENSOR)
            WEFT_TRY(find_edge(r, i, arg->tensor, any));
        for (size_t k = 0; arg->kind == WEFT_I_ARG_TENSORS && k < arg->count; k++)
            WEFT_TRY(find_edge(r, at++, arg->tensors[k], any));
    }
    return WEFT_OK;
}

static void find_targets(struct recording *r)
{
    r->target_count = weft_i_op_written(r->call, &r->targets);
    if (r->call->into) {
        r->into[0] = r->call->into;
        r->targets = r->into;
        r->target_count = 1;
    }
}

/* ---- checks ---- */

static weft_status check_rule(const struct recording *r)
{
    const weft_i_op_call *call = r->call;
    if (!r->rule || r->rule->why)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s: an argument requires gradients, but this operation has none: %s; "
                           "detach the argument (weft_detach), or use WEFT_NO_GRAD",
                           call->op->name, r->rule ? r->rule->why : "no rule is known for it");
    return r->rule->refuse ? r->rule->refuse(call) : WEFT_OK;
}

static weft_status check_targets(const struct recording *r)
{
    for (size_t i = 0; i < r->target_count; i++) {
        WEFT_TRY(weft_i_history_check_write(r->call->op->name, r->targets[i]));
        if (!is_float(r->targets[i]->dtype))
            return weft_i_fail(WEFT_ERR_TYPE,
                               "%s: a result that requires gradients cannot be written to a "
                               "tensor of %s",
                               r->call->op->name, weft_dtype_name(r->targets[i]->dtype));
    }
    return WEFT_OK;
}

/* ---- what is saved ---- */

static bool is_saved(const struct recording *r, int i)
{
    unsigned save = r->rule->save;
    bool other = save & WEFT_I_SAVE_OTHER && i < 2 && r->edges[1 - i].to;
    return other || (save >> i & 1);
}

static bool is_target(const struct recording *r, const weft_tensor *x)
{
    for (size_t i = 0; i < r->target_count; i++)
        if (r->targets[i] == x)
            return true;
    return false;
}

/* A tensor that the call writes is saved as a copy of what it was; there is only one such. */
static weft_tensor *to_save(const struct recording *r, weft_tensor *x)
{
    return r->before && is_target(r, x) ? r->before : x;
}

static weft_status copy_before(struct recording *r)
{
    const weft_i_op_call *call = r->call;
    for (int i = 0; r->target_count == 1 && !r->before && i < call->op->arity; i++)
        if (call->args[i].kind == WEFT_I_ARG_TENSOR && is_saved(r, i) &&
            is_target(r, call->args[i].tensor)) {
            weft_i_grad_mode = WEFT_GRAD_OFF;
            r->before = weft_keep(weft_clone(call->args[i].tensor));
            weft_i_grad_mode = WEFT_GRAD_RECORDING;
            if (!r->before)
                return weft_last_status();
        }
    return WEFT_OK;
}

static void count_argument(const struct recording *r, int i, weft_i_node_plan *plan)
{
    const weft_i_arg *arg = &r->call->args[i];
    bool list = arg->kind == WEFT_I_ARG_TENSORS;
    weft_tensor *const *at = list ? arg->tensors : &arg->tensor;
    for (size_t k = 0; k < (list ? arg->count : 1); k++) {
        plan->slots += at[k] != NULL;
        plan->dims += at[k] ? at[k]->ndim : 0;
    }
}

static bool is_tensor(const weft_i_arg *arg)
{
    return arg->kind == WEFT_I_ARG_TENSOR || arg->kind == WEFT_I_ARG_TENSORS;
}

static void save_argument(const struct recording *r, int i, int at)
{
    const weft_i_arg *arg = &r->call->args[i];
    if (arg->kind == WEFT_I_ARG_TENSOR)
        weft_i_node_save(r->node, i, to_save(r, arg->tensor), true);
    for (size_t k = 0; arg->kind == WEFT_I_ARG_TENSORS && k < arg->count; k++)
        if (arg->tensors[k])
            weft_i_node_save(r->node, at + (int)k, to_save(r, arg->tensors[k]), true);
}

/* The node, with its edges and the saved arguments.  `results`: NULL entries are not there. */
static weft_status make_node(struct recording *r, weft_tensor *const *results, size_t count)
{
    const weft_i_op_call *call = r->call;
    bool saves_results = r->rule->save & WEFT_I_SAVE_RESULT;
    weft_i_node_plan plan = {.call = call, .edges = r->edges, .count = r->count};
    plan.outputs = (int)count;
    for (size_t k = 0; k < count; k++) {
        plan.dims += results[k] ? results[k]->ndim * (saves_results ? 2 : 1) : 0;
        plan.slots += saves_results && results[k];
    }
    for (int i = 0; i < call->op->arity; i++)
        if (is_tensor(&call->args[i]) && is_saved(r, i))
            count_argument(r, i, &plan);
    if (!(r->node = weft_i_node_new(&plan)))
        return weft_last_status();
    for (size_t k = 0; k < count; k++)
        weft_i_node_output(r->node, results[k]);
    for (int i = 0; i < call->op->arity; i++)
        if (is_tensor(&call->args[i]) && is_saved(r, i))
            save_argument(r, i, call->op->arity);
    return WEFT_OK;
}

static void save_results(const struct recording *r, weft_tensor *const *results, size_t count)
{
    for (size_t k = 0; r->rule->save & WEFT_I_SAVE_RESULT && k < count; k++)
        if (results[k])
            weft_i_node_save(r->node, -1 - (int)k, results[k], false);
}

/* ---- the call ---- */

/* What the operation itself calls is not recorded. */
static weft_tensor *call_unrecorded(const weft_i_op_call *call)
{
    weft_i_grad_mode = WEFT_GRAD_OFF;
    weft_tensor *out = weft_i_op_below(call);
    weft_i_grad_mode = WEFT_GRAD_RECORDING;
    return out;
}

static weft_status prepare_writes(struct recording *r)
{
    r->spare = &r->spare_one;
    if (r->target_count > 1 && !(r->spare = WEFT_OS->alloc(r->target_count * sizeof *r->spare)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory to record it", r->call->op->name);
    for (size_t i = 0; i < r->target_count; i++)
        WEFT_TRY(weft_i_history_prepare(r->targets[i], (int)i, &r->spare[i]));
    return WEFT_OK;
}

/* The targets take over the new history. */
static weft_tensor *write_recorded(struct recording *r)
{
    if (copy_before(r) < 0 || make_node(r, r->targets, r->target_count) < 0 ||
        prepare_writes(r) < 0)
        return NULL;
    weft_tensor *out = call_unrecorded(r->call);
    if (!out)
        return NULL;
    save_results(r, r->targets, r->target_count);
    for (size_t i = 0; i < r->target_count; i++) {
        weft_i_history_written(r->targets[i], r->node, (int)i, r->spare[i]);
        r->spare[i] = NULL;
    }
    return out;
}

/* A list of views: each result has what its own tensor has. */
static bool is_constant(const struct recording *r, size_t k)
{
    enum { LIST_OF_VIEWS = WEFT_I_OP_LIST | WEFT_I_OP_VIEW };
    return (r->call->op->flags & LIST_OF_VIEWS) == LIST_OF_VIEWS &&
           !r->edges[r->call->op->arity + (int)k].to;
}

static weft_status attach(struct recording *r, weft_tensor *const *results, size_t count)
{
    WEFT_TRY(make_node(r, results, count));
    save_results(r, results, count);
    if (count == 1 && results[0] && !results[0]->grad && is_float(results[0]->dtype) &&
        !is_constant(r, 0)) { /* the common case: a fresh result takes over the reference */
        results[0]->grad = &r->node->head;
        r->node = NULL;
        return WEFT_OK;
    }
    for (size_t k = 0; k < count; k++)
        if (results[k] && is_float(results[k]->dtype) && !is_constant(r, k))
            WEFT_TRY(weft_i_history_set(results[k], r->node, (int)k));
    return WEFT_OK;
}

static weft_tensor *make_recorded(struct recording *r)
{
    weft_tensor *out = call_unrecorded(r->call);
    if (!out)
        return NULL;
    size_t count = weft_i_op_result_count(r->call);
    bool several = r->call->outs != NULL;
    weft_tensor **results = several ? r->call->outs : &out;
    if (attach(r, results, several ? count : 1) >= 0)
        return out;
    for (size_t k = 0; k < (several ? count : 1); k++) {
        weft_release(results[k]);
        results[k] = NULL;
    }
    return NULL;
}

/* Nothing that it is computed from needs a gradient: a target that had a history has none now. */
static weft_tensor *write_constant(struct recording *r)
{
    for (size_t i = 0; i < r->target_count; i++)
        if (weft_i_history_check_write(r->call->op->name, r->targets[i]) < 0)
            return NULL;
    if (prepare_writes(r) < 0)
        return NULL;
    weft_tensor *out = weft_i_op_below(r->call);
    for (size_t i = 0; out && i < r->target_count; i++) {
        weft_i_history_written(r->targets[i], NULL, 0, r->spare[i]);
        r->spare[i] = NULL;
    }
    return out;
}

static bool is_any_target_known(const struct recording *r)
{
    for (size_t i = 0; i < r->target_count; i++)
        if (weft_i_tensor_is_known(r->targets[i]))
            return true;
    return false;
}

static void finish(struct recording *r)
{
    weft_i_object_drop(r->node);
    for (size_t i = 0; r->spare && i < r->target_count; i++)
        weft_i_object_drop(r->spare[i]);
    if (r->spare && r->spare != &r->spare_one)
        WEFT_OS->free(r->spare);
    weft_release(r->before);
    if (r->edges && r->edges != r->few)
        WEFT_OS->free(r->edges);
}

static weft_tensor *record_call(struct recording *r)
{
    bool any = false, constant = r->rule && r->rule->why && !r->rule->refused;
    find_targets(r);
    if (constant && !r->target_count)
        return weft_i_op_below(r->call);
    if (!constant && find_edges(r, &any) < 0)
        return NULL;
    if (!any)
        return is_any_target_known(r) ? write_constant(r) : weft_i_op_below(r->call);
    if (check_rule(r) < 0 || check_targets(r) < 0)
        return NULL;
    return r->target_count ? write_recorded(r) : make_recorded(r);
}

static weft_tensor *record(const weft_i_op_call *call)
{
    if (weft_i_grad_mode != WEFT_GRAD_RECORDING)
        return weft_i_op_below(call);
    struct recording r;
    r.call = call;
    r.rule = call->op->gradient;
    r.edges = NULL;
    r.before = NULL;
    r.node = r.spare_one = NULL;
    r.spare = NULL;
    weft_tensor *out = record_call(&r);
    finish(&r);
    return out;
}

static bool is_recording(void)
{
    return weft_i_grad_mode == WEFT_GRAD_RECORDING;
}

__attribute__((constructor)) static void set_recorder(void)
{
    weft_i_autocast_set_recording(is_recording);
    weft_i_rules_give();
    weft_i_op_set_recorder(record);
}

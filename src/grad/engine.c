/* SPDX-License-Identifier: Apache-2.0 */
/* One backward; see engine.h. */
#include "grad/engine.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "grad/ops.h"
#include "tensor/object/eye.h"
#include "tensor/op/autocast.h"

#include <string.h>

static _Thread_local weft_i_backward_pass *running;

bool weft_i_engine_runs(void)
{
    return running != NULL;
}

weft_i_backward_pass *weft_i_engine_now(void)
{
    return running;
}

/* ---- counting ---- */

static weft_i_node *node_of(const weft_i_task *task)
{
    return weft_i_is_node(task->target) ? (weft_i_node *)task->target : NULL;
}

static weft_status expect(weft_i_backward_pass *run, const weft_i_edge *edge, weft_i_task **stack)
{
    size_t before = run->task_count;
    weft_i_task *task = weft_i_task_of(run, edge->to);
    if (!task)
        return weft_last_status();
    task->pending++;
    if (run->task_count != before) {
        weft_i_node *node = node_of(task);
        task->order = node ? node->sequence : 0;
        task->next = *stack;
        *stack = task;
    }
    return WEFT_OK;
}

/* Finds all that can be reached, and how many gradients each will get. */
static weft_status count_all(weft_i_backward_pass *run, const weft_i_edge *roots, size_t count)
{
    weft_i_task *stack = NULL;
    for (size_t i = 0; i < count; i++)
        WEFT_TRY(expect(run, &roots[i], &stack));
    while (stack) {
        weft_i_task *task = stack;
        weft_i_node *node = node_of(task);
        stack = task->next;
        task->next = run->tasks;
        run->tasks = task;
        size_t width = node ? (size_t)(node->edges + node->outputs) : 0;
        run->widest = width > run->widest ? width : run->widest;
        for (int i = 0; node && i < node->edges; i++)
            if (node->edge[i].to)
                WEFT_TRY(expect(run, &node->edge[i], &stack));
    }
    run->heap = WEFT_OS->alloc((run->task_count + 1) * sizeof *run->heap);
    run->room = WEFT_OS->alloc((run->widest + 1) * sizeof *run->room);
    return run->heap && run->room
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_NO_MEMORY, "backward: no memory for %zu nodes",
                             run->task_count);
}

/* A task with its own order; what it depends on has a lower one. */
static void find_needed(weft_i_task *task)
{
    const weft_i_node *node = node_of(task);
    for (int i = 0; node && !task->runs && i < node->edges; i++)
        if (node->edge[i].to)
            task->runs = (*weft_i_task_field(node->edge[i].to))->needed;
    task->needed |= task->runs;
}

/* Takes the tasks in the order of their nodes, oldest first: the heap gives the newest first, and
 * its array has room behind for what was taken out. */
static void choose(weft_i_backward_pass *run)
{
    for (size_t i = 0; i < run->input_count; i++) {
        weft_i_edge *input = &run->inputs[i];
        weft_i_task *task = input->to ? weft_i_task_if(run, input->to) : NULL;
        if (task)
            task->needed = true;
    }
    for (weft_i_task *task = run->tasks; task; task = task->next)
        weft_i_heap_push(run, task);
    for (size_t left = run->heap_count; left > 0; left--) {
        weft_i_task *newest = weft_i_heap_pop(run);
        run->heap[left - 1] = newest;
    }
    for (size_t i = 0; i < run->task_count; i++)
        find_needed(run->heap[i]);
}

static void need_all(weft_i_backward_pass *run)
{
    for (weft_i_task *task = run->tasks; task; task = task->next)
        task->needed = task->runs = true;
}

/* ---- gradients on their way ---- */

/* The sum of two; the first may be one that we made. */
static weft_status sum(weft_i_backward_pass *run, weft_i_task *task, weft_tensor **at,
                       weft_tensor *g)
{
    if (task->own && at == &task->only && !run->create)
        return weft_add_into(*at, *at, g);
    weft_tensor *both = weft_add(*at, g);
    if (!both)
        return weft_last_status();
    weft_i_object_hold(both);
    weft_i_object_drop(*at);
    *at = both;
    task->own = at == &task->only;
    return WEFT_OK;
}

/* Leaves run before nodes, in the order in which their gradients were complete. */
static void make_ready(weft_i_backward_pass *run, weft_i_task *task)
{
    if (!node_of(task))
        task->order = UINT64_MAX - run->arrivals++;
    weft_i_heap_push(run, task);
}

/*
 * In the backward of a function that is captured every gradient of an input is handed out as it
 * comes: the input may get others from outside, and sums depend on their order.  That goes for
 * leaves, and for the node that lies before the stand-in of a tensor which was computed.
 */
static weft_tensor *handed_out_to(const weft_i_backward_pass *run, const weft_i_task *task)
{
    const weft_i_node *node = node_of(task);
    if (!run->frame || (node && (node->hooks || node->edges != 2 || !node->edge[1].to ||
                                 weft_i_is_node(node->edge[1].to))))
        return NULL;
    weft_tensor *leaf = (weft_tensor *)(node ? node->edge[1].to : task->target);
    const weft_i_history *history = weft_i_history_if(leaf);
    return (node && node->op != &weft_i_op_pass) || history->hooks || history->accumulated ? NULL
                                                                                           : leaf;
}

/* One of the gradients of a task has come; NULL: there is none from there. */
static weft_status arrive(weft_i_backward_pass *run, const weft_i_edge *edge, weft_tensor *g)
{
    weft_i_task *task = *weft_i_task_field(edge->to);
    weft_tensor **at = &task->g[edge->output];
    if (!task->needed)
        return WEFT_OK;
    weft_tensor *leaf = g && run->frame ? handed_out_to(run, task) : NULL;
    if (leaf)
        WEFT_TRY(weft_i_accumulate(leaf, g, false));
    else if (g && *at)
        WEFT_TRY(sum(run, task, at, g));
    else if (g)
        *at = weft_i_object_hold(g);
    WEFT_ASSERT(task->pending > 0);
    if (--task->pending == 0)
        make_ready(run, task);
    return WEFT_OK;
}

static bool fits(const weft_tensor *g, const weft_i_edge *edge)
{
    if (weft_i_is_node(edge->to)) {
        const weft_i_meta *to = &((const weft_i_node *)edge->to)->output[edge->output];
        return g->dtype == to->dtype && g->ndim == to->ndim &&
               !memcmp(g->dim, to->sizes, (size_t)g->ndim * sizeof *g->dim);
    }
    const weft_tensor *to = (const weft_tensor *)edge->to;
    return g->dtype == to->dtype && g->ndim == to->ndim &&
           !memcmp(g->dim, to->dim, (size_t)g->ndim * sizeof *g->dim);
}

static weft_status send_on(weft_i_backward_pass *run, const weft_i_edge *edge, weft_tensor *g)
{
    weft_i_layout layout;
    if (g && !fits(g, edge)) {
        weft_i_edge_layout(edge, &layout);
        if (!(g = weft_i_fit(g, &layout)))
            return weft_last_status();
    }
    return arrive(run, edge, g);
}

/* ---- one node ---- */

/* A gradient that a hook put in the place of another. */
static void replace(weft_tensor **at, weft_tensor *by)
{
    if (*at == by)
        return;
    weft_i_object_hold(by);
    weft_i_object_drop(*at);
    *at = by;
}

static weft_status run_tensor_hooks(weft_i_task *task, const weft_i_hook *hooks, int output)
{
    weft_tensor *g = task->g[output];
    if (!g || !hooks)
        return WEFT_OK;
    weft_status status = weft_i_hook_run(hooks, output, &g);
    if (status >= 0)
        replace(&task->g[output], g);
    return status;
}

static void keep_retained(const weft_i_task *task, const weft_i_node *node)
{
    for (weft_i_retained *at = node->retained; at; at = at->next)
        if (task->g[at->output])
            replace(&at->grad, task->g[at->output]);
}

static void capture(weft_i_backward_pass *run, const weft_i_task *task)
{
    for (size_t i = 0; i < run->input_count; i++)
        if (run->inputs[i].to == task->target && task->g[run->inputs[i].output])
            replace(&run->captured[i], task->g[run->inputs[i].output]);
}

/* On copies: what hooks of the whole node leave is held like what others leave. */
static weft_status run_node_hooks(weft_i_backward_pass *run, weft_i_task *task,
                                  const weft_i_node *node)
{
    weft_tensor **g = run->room;
    if (!node->hooks)
        return WEFT_OK;
    memcpy(g, task->g, (size_t)node->outputs * sizeof *g);
    WEFT_TRY(weft_i_hook_run_all(node->hooks, g, (size_t)node->outputs));
    for (int k = 0; k < node->outputs; k++)
        replace(&task->g[k], g[k]);
    return WEFT_OK;
}

static weft_status refuse_second(const weft_i_node *node)
{
    return weft_i_fail(WEFT_ERR_STATE,
                       "backward of %s: what it saved was let go of by an earlier backward through "
                       "it; set retain_graph there to walk a graph again",
                       node->op->name);
}

/* Puts what was saved where the rule finds it. */
static weft_status unpack(weft_i_backward_pass *run, weft_i_node *node, weft_tensor **results)
{
    if (node->slots && node->released)
        return refuse_second(node);
    for (int i = 0; i < node->slots; i++) {
        const weft_i_saved *slot = &node->slot[i];
        weft_tensor *x = weft_i_saved_get(node, slot, run->create);
        if (!x)
            return weft_last_status();
        WEFT_ASSERT(slot->place >= -node->outputs);
        if (slot->place < 0)
            results[-1 - slot->place] = x;
        else if (slot->place < node->op->arity)
            node->arg[slot->place].tensor = x;
        else
            node->item[slot->place - node->op->arity] = x;
    }
    return WEFT_OK;
}

/* Tensors of the scope that closes; nobody is to find them later. */
static void pack(weft_i_node *node)
{
    for (int i = 0; i < node->slots; i++) {
        int place = node->slot[i].place;
        if (place >= 0 && place < node->op->arity)
            node->arg[place].tensor = NULL;
        else if (place >= 0)
            node->item[place - node->op->arity] = NULL;
    }
}

static weft_status run_rule(weft_i_backward_pass *run, weft_i_task *task, weft_i_node *node)
{
    weft_tensor **grads = run->room, **results = grads + node->edges;
    WEFT_ASSERT((size_t)(node->edges + node->outputs) <= run->widest);
    memset(grads, 0, (size_t)(node->edges + node->outputs) * sizeof *grads);
    weft_i_back c = {.op = node->op,
                     .arg = node->arg,
                     .g = task->g,
                     .y = results,
                     .grad = grads,
                     .list = grads + node->op->arity,
                     .node = node};
    weft_status status = unpack(run, node, results);
    if (status >= 0 && (status = node->op->gradient->back(&c)) < 0)
        weft_i_explain(status, "backward of %s", node->op->name);
    pack(node);
    return status;
}

/* In a backward inside of another, the outer one may have uses of the leaf that nobody counts here;
 * and what is recorded reads it once more. */
weft_status weft_i_back_spent(const weft_i_back *c, int argument)
{
    const weft_i_edge *edge = &c->node->edge[argument];
    if (!edge->to || weft_i_is_node(edge->to) || running->outer || running->create ||
        weft_i_eye_open)
        return WEFT_OK;
    const weft_i_history *leaf = weft_i_history_if((weft_tensor *)edge->to);
    return leaf->spent && leaf->task->pending == 1 ? leaf->spent(leaf->spent_user) : WEFT_OK;
}

static bool has_gradient(const weft_i_task *task, const weft_i_node *node)
{
    for (int k = 0; k < node->outputs; k++)
        if (task->g[k])
            return true;
    return false;
}

static weft_status send_on_all(weft_i_backward_pass *run, const weft_i_node *node,
                               weft_tensor *const *grads)
{
    for (int i = 0; i < node->edges; i++)
        if (node->edge[i].to)
            WEFT_TRY(send_on(run, &node->edge[i], grads ? grads[i] : NULL));
    return WEFT_OK;
}

static weft_status run_node(weft_i_backward_pass *run, weft_i_task *task, weft_i_node *node)
{
    for (int k = 0; k < node->outputs; k++)
        WEFT_TRY(run_tensor_hooks(task, node->hooks, k));
    keep_retained(task, node);
    capture(run, task);
    if (!task->runs)
        return WEFT_OK;
    if (!has_gradient(task, node))
        return send_on_all(run, node, NULL);
    WEFT_TRY(run_node_hooks(run, task, node));
    WEFT_TRY(run_rule(run, task, node));
    if (!run->retain)
        weft_i_node_release(node);
    if (node->op->gradient->hands_out)
        return WEFT_OK;
    return send_on_all(run, node, run->room);
}

/* Lets go of the gradients that were used: their memory is the next node's. */
static void drop_gradients(weft_i_task *task, int outputs)
{
    for (int k = 0; k < outputs; k++) {
        weft_i_object_drop(task->g[k]);
        task->g[k] = NULL;
    }
}

static weft_status run_in_scope(weft_i_backward_pass *run, weft_i_task *task, weft_i_node *node)
{
    WEFT_TRY(weft_scope_open());
    weft_status status = run_node(run, task, node);
    weft_scope_close();
    return status;
}

/* Its hooks' scope is closed before the gradient is added: it may be taken over then. */
static weft_status run_leaf(weft_i_backward_pass *run, weft_i_task *task, weft_tensor *leaf)
{
    const weft_i_hook *hooks = weft_i_history_if(leaf)->hooks;
    if (hooks) {
        WEFT_TRY(weft_scope_open());
        weft_status status = run_tensor_hooks(task, hooks, 0);
        weft_scope_close();
        WEFT_TRY(status);
    }
    capture(run, task);
    return task->g[0] && !run->chosen ? weft_i_accumulate(leaf, task->g[0], run->create) : WEFT_OK;
}

static weft_status run_task(weft_i_backward_pass *run, weft_i_task *task)
{
    weft_i_node *node = node_of(task);
    weft_status status =
        node ? run_in_scope(run, task, node) : run_leaf(run, task, (weft_tensor *)task->target);
    drop_gradients(task, node ? node->outputs : 1);
    return status;
}

weft_status weft_i_engine_hand_out(const weft_i_node *node, int at, weft_tensor *g, bool ours)
{
    weft_i_backward_pass *run = running;
    const weft_i_edge *edge = &node->edge[at];
    weft_status status = edge->to ? send_on(run, edge, g) : WEFT_OK;
    if (ours)
        weft_release(g); /* a leaf may take it over then */
    while (status >= 0 && run->heap_count && !node_of(run->heap[0]))
        status = run_task(run, weft_i_heap_pop(run));
    return status;
}

/* ---- a whole run ---- */

static weft_status run_callbacks(weft_i_backward_pass *run)
{
    weft_status status = WEFT_OK;
    while (run->finally && status >= 0) {
        weft_i_hook *hook = run->finally;
        run->finally = hook->next;
        if ((status = weft_scope_open()) >= 0) {
            status = hook->hook(NULL, hook->held, hook->user);
            weft_scope_close();
        }
        weft_i_hook_free(hook);
    }
    return status;
}

static weft_status run_all(weft_i_backward_pass *run, const weft_i_edge *roots,
                           weft_tensor *const *seeds, size_t count)
{
    WEFT_TRY(count_all(run, roots, count));
    if (run->chosen)
        choose(run);
    else
        need_all(run);
    run->heap_count = 0;
    for (size_t i = 0; i < count; i++)
        WEFT_TRY(send_on(run, &roots[i], seeds[i]));
    for (weft_i_task *task; (task = weft_i_heap_pop(run));)
        WEFT_TRY(run_task(run, task));
    return run_callbacks(run);
}

static weft_grad_mode begin(weft_i_backward_pass *run)
{
    weft_grad_mode mode = weft_i_grad_mode;
    run->outer = running;
    running = run;
    run->autocast = weft_i_autocast;
    weft_i_autocast = 0; /* gradients have the dtypes of the forward */
    weft_i_grad_mode = run->create ? WEFT_GRAD_RECORDING : WEFT_GRAD_OFF;
    return mode;
}

static void end(weft_i_backward_pass *run, weft_grad_mode mode)
{
    WEFT_ASSERT(running == run);
    weft_i_grad_mode = mode;
    weft_i_autocast = run->autocast;
    running = run->outer;
    weft_i_task_end_all(run);
    weft_i_hook_free_all(&run->finally);
    WEFT_OS->free(run->room);
    run->room = NULL;
}

weft_status weft_i_engine_run(weft_i_backward_pass *run, const weft_i_edge *roots,
                              weft_tensor *const *seeds, size_t count)
{
    weft_grad_mode mode = begin(run);
    weft_status status = run_all(run, roots, seeds, count);
    end(run, mode);
    return status;
}

weft_status weft_i_engine_run_by(weft_i_backward_pass *run, weft_status (*body)(void *user),
                                 void *user)
{
    weft_grad_mode mode = begin(run);
    weft_status status = body(user);
    if (status >= 0)
        status = run_callbacks(run);
    end(run, mode);
    return status;
}

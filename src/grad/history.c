/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known about a tensor: which node made it, whether it is a leaf that requires gradients,
 * and what that means for views.  A write to a view is a write to its base: the base gets a node
 * that puts the two together, and all views of it make their history anew from the base's when they
 * are used next.
 */
#include "grad/node.h"

#include <string.h>

static void destroy(weft_i_object *object)
{
    weft_i_history *history = (weft_i_history *)object;
    weft_i_hook_free_all(&history->hooks);
    weft_i_hook_free_all(&history->accumulated);
    weft_i_object_drop(history->retained);
    weft_i_object_drop(history->grad);
    weft_i_object_drop(history->node);
    weft_i_object_free(object);
}

weft_i_history *weft_i_history_of(weft_tensor *x)
{
    weft_i_history *history = weft_i_history_if(x);
    if (history)
        return history;
    history = weft_i_object_new_unscoped(WEFT_I_HISTORY, sizeof *history, destroy);
    if (!history)
        return NULL;
    history->node = (weft_i_node *)x->grad; /* the reference goes over */
    x->grad = &history->head;
    return history;
}

void weft_i_leaf_on_spent(weft_tensor *leaf, weft_status (*spent)(void *user), void *user)
{
    weft_i_history *history = weft_i_history_if(leaf);
    history->spent = spent;
    history->spent_user = user;
}

weft_i_node *weft_i_history_node(const weft_tensor *x, int *output)
{
    const weft_i_history *history = weft_i_history_if(x);
    *output = history ? history->output : 0;
    return history ? history->node : (weft_i_node *)x->grad;
}

bool weft_i_is_required_leaf(const weft_tensor *x)
{
    const weft_i_history *history = weft_i_history_if(x);
    return history && history->required && !history->node;
}

/* The gradient that is retained belongs to the value that the tensor has now. */
static void move_retained(weft_i_history *history, weft_i_node *to, int output)
{
    weft_i_retained *mine = history->retained, **at;
    if (!mine)
        return;
    for (at = history->node ? &history->node->retained : NULL; at && *at && *at != mine;)
        at = &(*at)->next;
    bool held = at && *at == mine;
    if (held)
        *at = mine->next;
    mine->next = NULL;
    if (to) {
        mine->output = output;
        mine->next = to->retained;
        to->retained = held ? mine : weft_i_object_hold(mine);
    } else if (held) {
        weft_i_object_drop(mine);
    }
}

weft_status weft_i_history_set(weft_tensor *x, weft_i_node *node, int output)
{
    weft_i_history *history = weft_i_history_if(x);
    if (!history && node && output && !(history = weft_i_history_of(x)))
        return weft_last_status();
    weft_i_object_hold(node);
    if (!history) {
        weft_i_object *old = x->grad;
        x->grad = node ? &node->head : NULL;
        weft_i_object_drop(old);
        return WEFT_OK;
    }
    move_retained(history, node, output);
    weft_i_node *old = history->node;
    history->node = node;
    history->output = output;
    weft_i_object_drop(old);
    return WEFT_OK;
}

/* ---- views ---- */

/* Its base was written since, by something that has a gradient. */
static bool is_stale(const weft_tensor *x)
{
    int output;
    return x->base && weft_i_history_node(x->base, &output) && weft_i_tensor_version(x) != x->seen;
}

static weft_status refuse_view(const weft_tensor *x, const char *why)
{
    char text[WEFT_I_SHAPE_TEXT];
    return weft_i_fail(WEFT_ERR_STATE,
                       "the gradient of a view of shape %s, whose base was written in place, is "
                       "not known: %s; take the view after the write",
                       weft_i_shape_text(weft_i_tensor_shape(x), text), why);
}

/* A write that was not recorded left the base the node it had, which is older than the view's. */
static bool is_base_newer(const weft_tensor *x)
{
    int output;
    const weft_i_node *own = weft_i_history_node(x, &output);
    const weft_i_node *base = weft_i_history_node(x->base, &output);
    return !own || base->sequence > own->sequence;
}

/* The history of the same view of the base as it is now. */
static weft_status remake(weft_tensor *x)
{
    int output;
    if (x->passed && is_base_newer(x))
        return refuse_view(x, "it is an input or a result of a module with backward hooks, which "
                              "would not run");
    if (x->passed) {
        x->seen = weft_tensor_version(x);
        return WEFT_OK;
    }
    if (x->storage != x->base->storage)
        return refuse_view(x, "one of them was given another storage (weft_set)");
    if (x->dtype != x->base->dtype)
        return refuse_view(x, "it has another dtype");
    weft_grad_mode mode = weft_i_grad_mode;
    weft_i_grad_mode = WEFT_GRAD_RECORDING;
    weft_tensor *now = weft_as_strided(x->base, weft_i_tensor_shape(x), x->stride, x->offset);
    weft_i_grad_mode = mode;
    if (!now)
        return weft_last_status();
    weft_status status = weft_i_history_set(x, weft_i_history_node(now, &output), 0);
    weft_release(now);
    x->seen = weft_i_tensor_version(x);
    return status;
}

weft_status weft_i_history_edge(weft_tensor *x, weft_i_edge *out)
{
    out->to = NULL;
    out->output = 0;
    if (is_stale(x))
        WEFT_TRY(remake(x));
    if (!x->grad)
        return WEFT_OK;
    weft_i_node *node = weft_i_history_node(x, &out->output);
    if (node)
        out->to = &node->head;
    else if (weft_i_is_required_leaf(x))
        out->to = &x->head;
    return WEFT_OK;
}

/* ---- writes ---- */

weft_status weft_i_history_check_write(const char *what, weft_tensor *x)
{
    char text[WEFT_I_SHAPE_TEXT];
    bool view = !weft_i_is_required_leaf(x);
    if (x->passed)
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: the tensor of shape %s is an input or a result of a module with "
                           "backward hooks, and cannot be written in place while operations are "
                           "recorded: the hooks would not run; write to a clone",
                           what, weft_i_shape_text(weft_i_tensor_shape(x), text));
    if (view && !(x->base && weft_i_is_required_leaf(x->base)))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_STATE,
                       "%s: the tensor of shape %s is %s that requires gradients, and cannot be "
                       "written in place while operations are recorded; use WEFT_NO_GRAD, or "
                       "write to a clone",
                       what, weft_i_shape_text(weft_i_tensor_shape(x), text),
                       view ? "a view of a leaf" : "a leaf");
}

/* The row of nodes on bases: `x` with the region of the storage replaced by `source`. */
static weft_status view_write_back(weft_i_back *c);
static const weft_i_gradient view_write_gradient = {.back = view_write_back};
static const weft_i_op view_write = {.name = "view_write",
                                     .params = "x:t source:t shape:I strides:I offset:i",
                                     .arity = 5,
                                     .kinds = "ttIIi",
                                     .gradient = &view_write_gradient};

weft_status weft_i_history_prepare(weft_tensor *x, int output, weft_i_node **spare)
{
    *spare = NULL;
    if (!x->base)
        return !output || weft_i_history_of(x) ? WEFT_OK : weft_last_status();
    if (x->dtype != x->base->dtype || x->storage != x->base->storage)
        return refuse_view(x, "they differ in dtype or storage");
    weft_i_edge edge[5] = {{0}};
    WEFT_TRY(weft_i_history_edge(x->base, &edge[0]));
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(x->base), WEFT_I_TENSOR_ARG(x),
                         WEFT_I_INTEGERS_ARG(x->dim, x->ndim),
                         WEFT_I_INTEGERS_ARG(x->stride, x->ndim), WEFT_I_INTEGER_ARG(x->offset)};
    weft_i_op_call call = {.op = &view_write, .args = args};
    weft_i_node_plan plan = {
        .call = &call, .edges = edge, .count = 5, .outputs = 1, .dims = x->base->ndim};
    if (!(*spare = weft_i_node_new(&plan)))
        return weft_last_status();
    weft_i_node_output(*spare, x->base);
    return WEFT_OK;
}

void weft_i_history_written(weft_tensor *x, weft_i_node *node, int output, weft_i_node *spare)
{
    if (!spare) {
        weft_i_node_untie(node, x);
        weft_i_history_set(x, node, output);
        return;
    }
    if (node)
        weft_i_edge_hold(&spare->edge[1], &node->head, output);
    if (node && node->sequence >= spare->sequence)
        spare->sequence = weft_i_node_next();
    weft_i_node_untie(spare, x->base);
    weft_i_history_set(x->base, spare, 0);
    weft_i_object_drop(spare);
    weft_i_history_set(x, NULL, 0);
    x->seen = -1; /* its history is to be made from the base's */
}

/* g with the sizes and strides of `like`, from element 0 of its own memory. */
static weft_tensor *in_layout(weft_tensor *g, const weft_i_layout *like, bool fresh)
{
    bool same = !fresh;
    for (int i = 0; same && i < like->shape.ndim; i++)
        same = g->dim[i] == 1 || g->stride[i] == like->stride[i];
    if (same)
        return g;
    weft_tensor *copy = weft_empty_strided(like->dtype, like->device, like->shape, like->stride);
    return copy && weft_copy(copy, g) >= 0 ? copy : NULL;
}

static weft_tensor *region_of(weft_tensor *x, const weft_i_back *c, const weft_i_layout *like)
{
    weft_shape shape = {(int)ARG(2)->count, {0}};
    memcpy(shape.dim, ARG(2)->integers, ARG(2)->count * sizeof *shape.dim);
    return x ? weft_as_strided(x, shape, ARG(3)->integers,
                               x->offset + ARG(4)->integer - like->offset)
             : NULL;
}

static weft_status view_write_back(weft_i_back *c)
{
    weft_i_layout like;
    weft_i_back_result_layout(c, 0, &like);
    if (NEEDS(1) && !(c->grad[1] = region_of(in_layout(c->g[0], &like, false), c, &like)))
        return weft_last_status();
    if (!NEEDS(0))
        return WEFT_OK;
    c->grad[0] = in_layout(c->g[0], &like, true);
    weft_tensor *region = region_of(c->grad[0], c, &like);
    return region ? weft_fill(region, 0) : weft_last_status();
}

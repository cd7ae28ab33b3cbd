/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a pure graph: what its inputs have become.  Their storages get another size and their
 * content, unless they are freed; then inputs take over other storages (set); then the counters are
 * put right.
 */
#include "graph/pass/pure.h"

#include "tensor/op/ops.h"

/*
 * The change of an input can be part of the graph if no gradient can see it: none is required, it
 * was hidden from the counter, or all of it happened where gradients are not recorded.  A copy may
 * be recorded as well; another storage or size cannot.
 */
static weft_status check_class(const weft_i_pure *p, int input, const char *what)
{
    const weft_i_graph_input *in = &p->old->inputs[input];
    const weft_i_count *count = &p->counts[p->old->values[in->value].counter];
    bool hidden = count->base == WEFT_I_COUNT_VALUE || (count->hidden && count->more == 0);
    if (!(in->flags & WEFT_I_INPUT_GRAD) || hidden || !p->loud[input])
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                       "input \"%s\" requires a gradient and its storage %s where gradients are "
                       "recorded; do it with recording off or with its version preserved",
                       in->name, what);
}

/* A view of the input's own storage with the layout of an old value on it; the input itself if it
 * has that layout. */
static weft_tensor *own_view(weft_i_pure *p, const weft_i_content *c, int value)
{
    for (int i = 0; i < p->old->input_count; i++) {
        const weft_i_graph_value *in = &p->old->values[p->old->inputs[i].value];
        if (in->storage == p->old->values[value].storage &&
            weft_i_pure_same_layout(in, &p->old->values[value]))
            return p->inputs[i];
    }
    return weft_i_pure_view(p, p->inputs[c->input], 0, value);
}

/* Whether the value has every element that any value reaches: then no other has to be copied. */
static bool is_cover(const weft_i_pure *p, const weft_i_content *c, int value)
{
    const weft_i_graph_value *v = &p->old->values[value];
    return v->offset == c->begin && weft_i_shape_numel(v->shape) == c->end - c->begin;
}

static weft_status write_back(weft_i_pure *p, weft_i_content *c)
{
    int only = -1;
    for (int i = 0; i < c->written_count; i++)
        only = is_cover(p, c, c->written[i]) ? i : only;
    for (int i = 0; i < c->written_count; i++) {
        int value = c->written[i];
        if (only >= 0 && only != i)
            continue;
        weft_tensor *content = weft_i_pure_read(p, value);
        weft_tensor *target = content ? own_view(p, c, value) : NULL;
        if (!target || !WEFT_I_PURE(p, copy, WEFT_I_TENSOR_ARG(target), WEFT_I_TENSOR_ARG(content)))
            return weft_last_status();
    }
    return WEFT_OK;
}

/* The size and content of an input's storage. */
static weft_status end_content(weft_i_pure *p, weft_i_content *c)
{
    weft_tensor *x = p->inputs[c->input];
    if (c->bytes != c->first_bytes) {
        WEFT_TRY(check_class(p, c->input, "is resized"));
        if (!WEFT_I_PURE(p, resize_storage, WEFT_I_TENSOR_ARG(x),
                         WEFT_I_INTEGER_ARG((int64_t)c->bytes)))
            return weft_last_status();
    }
    return c->bytes ? write_back(p, c) : WEFT_OK;
}

/* What an input that was given another storage takes over; NULL: it was not. */
static weft_status find_source(weft_i_pure *p, int input, weft_tensor **source)
{
    int in = p->old->inputs[input].value, last = p->latest[in];
    *source = NULL;
    if (p->old->values[last].storage == p->old->values[in].storage &&
        weft_i_pure_same_layout(&p->old->values[last], &p->old->values[in]))
        return WEFT_OK;
    weft_i_content *was = weft_i_pure_content(p, in), *now = weft_i_pure_content(p, last);
    if (was->shrunk_before_set)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "input \"%s\" is resized and then given another storage; only the "
                           "reverse can be captured",
                           p->old->inputs[input].name);
    WEFT_TRY(check_class(p, input, "is replaced"));
    *source = now->input >= 0 ? weft_i_pure_view(p, p->inputs[now->input], 0, last)
                              : weft_i_pure_read(p, last);
    return *source ? WEFT_OK : weft_last_status();
}

/* All sources are found before the first input leaves its storage. */
static weft_status end_sets(weft_i_pure *p)
{
    weft_tensor **sources =
        weft_i_graph_alloc(p->trace.graph, (size_t)p->old->input_count * sizeof *sources);
    if (!sources)
        return weft_last_status();
    for (int i = 0; i < p->old->input_count; i++)
        WEFT_TRY(find_source(p, i, &sources[i]));
    for (int i = 0; i < p->old->input_count; i++) {
        weft_tensor *x = p->inputs[i];
        if (sources[i] && !WEFT_I_PURE(p, set, WEFT_I_TENSOR_ARG(x), WEFT_I_TENSOR_ARG(sources[i])))
            return weft_last_status();
    }
    return WEFT_OK;
}

/* What a counter of the new graph has counted, and what it should have. */
static weft_status end_version(weft_i_pure *p, weft_tensor *x, const weft_i_count *count)
{
    int64_t now = atomic_load_explicit(&x->version->count, memory_order_relaxed);
    weft_i_arg to;
    if (count->base == WEFT_I_COUNT_NUMBER) {
        if (count->input < 0 && now == count->more)
            return WEFT_OK;
        to = WEFT_I_NUMBER_ARG((double)count->more);
    } else {
        if (count->base == WEFT_I_COUNT_ENTRY && now == count->more) /* it starts at 0 there */
            return WEFT_OK;
        weft_tensor *value = weft_i_pure_count(p, count);
        if (!value)
            return weft_last_status();
        to = WEFT_I_TENSOR_ARG(value);
    }
    return WEFT_I_PURE(p, set_version, WEFT_I_TENSOR_ARG(x), to) ? WEFT_OK : weft_last_status();
}

/* Storages first: an input that leaves its own has no say in it any more. */
static weft_status end_inputs(weft_i_pure *p)
{
    for (int i = 0; i < p->old->storages; i++)
        if (p->contents[i].input >= 0 && !p->contents[i].alone)
            WEFT_TRY(end_content(p, &p->contents[i]));
    WEFT_TRY(end_sets(p));
    for (int i = 0; i < p->old->counters; i++)
        if (p->counts[i].input >= 0)
            WEFT_TRY(end_version(p, p->inputs[p->counts[i].input], &p->counts[i]));
    return WEFT_OK;
}

/* A tensor that was given this storage brought its own counter. */
static bool is_stranger(weft_i_pure *p, int value)
{
    const weft_i_content *c = weft_i_pure_content(p, value);
    return p->old->values[value].counter != p->old->values[c->first].counter;
}

/* The input that has the counter and, in the end, the storage of the value; -1: none. */
static int moved_input(const weft_i_pure *p, const weft_i_graph_value *value)
{
    for (int i = 0; i < p->old->input_count; i++) {
        const weft_i_graph_value *last = &p->old->values[p->latest[p->old->inputs[i].value]];
        if (last->counter == value->counter && last->storage == value->storage)
            return i;
    }
    return -1;
}

/* `x` as a tensor with the counter of the old value, which is not that of its storage. */
static weft_tensor *with_counter(weft_i_pure *p, int value, weft_tensor *x)
{
    int input = p->counts[p->old->values[value].counter].input;
    if (input < 0 || moved_input(p, &p->old->values[value]) >= 0)
        return WEFT_I_PURE(p, data, WEFT_I_TENSOR_ARG(x));
    weft_tensor *y = WEFT_I_PURE(p, detach, WEFT_I_TENSOR_ARG(p->inputs[input]));
    return y ? WEFT_I_PURE(p, set, WEFT_I_TENSOR_ARG(y), WEFT_I_TENSOR_ARG(x)) : NULL;
}

/* An output is the input itself, a view of an input's storage, which may be written yet, or a
 * tensor of the graph. */
static weft_tensor *own_output(weft_i_pure *p, int value)
{
    weft_i_content *c = weft_i_pure_content(p, value);
    int root = p->roots[value];
    if (root < p->old->input_count)
        return p->inputs[root]; /* input i is value i */
    weft_tensor *x = c->input >= 0 && !c->alone && c->epoch
                         ? weft_i_pure_view(p, p->inputs[c->input], 0, value)
                         : weft_i_pure_read(p, value);
    return x && is_stranger(p, value) ? with_counter(p, value, x) : x;
}

/* The version of one that the graph made; and views of inputs on the storages that those were given
 * in the end. */
static weft_status end_output(weft_i_pure *p, int value, weft_tensor **x)
{
    const weft_i_count *count = &p->counts[p->old->values[value].counter];
    if (count->input < 0)
        return end_version(p, *x, count);
    int input = p->roots[value] >= p->old->input_count && is_stranger(p, value)
                    ? moved_input(p, &p->old->values[value])
                    : -1;
    if (input >= 0)
        *x = weft_i_pure_view(p, p->inputs[input], 0, value);
    return *x ? WEFT_OK : weft_last_status();
}

/* Output i is an input, or an output before it, that was another tensor. */
static bool is_taken(const weft_i_pure *p, weft_tensor *const *outs, size_t i)
{
    int root = p->roots[p->old->outputs[i]];
    for (size_t k = 0; k < i; k++)
        if (outs[k] == outs[i] && p->roots[p->old->outputs[k]] != root)
            return true;
    for (int k = 0; k < p->old->input_count; k++)
        if (p->inputs[k] == outs[i] && root != k)
            return true;
    return false;
}

weft_status weft_i_pure_finish(weft_i_pure *p, int *outputs)
{
    size_t count = (size_t)p->old->output_count;
    weft_tensor **outs = weft_i_graph_alloc(p->trace.graph, count * sizeof *outs);
    if (!outs)
        return weft_last_status();
    for (size_t i = 0; i < count; i++) {
        outs[i] = own_output(p, p->old->outputs[i]);
        if (outs[i] && is_taken(p, outs, i))
            outs[i] = WEFT_I_PURE(p, detach, WEFT_I_TENSOR_ARG(outs[i]));
        if (!outs[i])
            return weft_last_status();
    }
    WEFT_TRY(end_inputs(p));
    for (size_t i = 0; i < count; i++)
        if (end_output(p, p->old->outputs[i], &outs[i]) < 0)
            return weft_last_status();
    for (size_t i = 0; i < count; i++) /* a version may have come behind it */
        outputs[i] = (int)outs[i]->node;
    return WEFT_OK;
}

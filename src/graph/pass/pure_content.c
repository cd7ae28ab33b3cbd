/* SPDX-License-Identifier: Apache-2.0 */
/* What the storages of a graph hold while it is made pure; see pure.h. */
#include "graph/pass/pure.h"

#include "base/os/os.h"
#include "tensor/op/ops.h"

#include <string.h>

weft_tensor *weft_i_pure_call(weft_i_pure *p, const weft_i_op *op, const weft_i_arg *args)
{
    weft_i_op_call call = {.op = op, .args = args};
    return weft_i_trace_call(&p->trace, &call);
}

weft_i_content *weft_i_pure_content(weft_i_pure *p, int value)
{
    return &p->contents[p->old->values[value].storage];
}

bool weft_i_pure_same_layout(const weft_i_graph_value *a, const weft_i_graph_value *b)
{
    if (a->dtype != b->dtype || a->offset != b->offset || !weft_i_shape_equal(a->shape, b->shape))
        return false;
    for (int i = 0; i < a->shape.ndim; i++)
        if (a->shape.dim[i] != 1 && a->stride[i] != b->stride[i])
            return false;
    return true;
}

weft_tensor *weft_i_pure_view(weft_i_pure *p, weft_tensor *x, int64_t begin, int value)
{
    const weft_i_graph_value *v = &p->old->values[value];
    int64_t offset = weft_i_shape_numel(v->shape) ? v->offset - begin : 0;
    return WEFT_I_PURE(p, as_strided, WEFT_I_TENSOR_ARG(x),
                       WEFT_I_INTEGERS_ARG(v->shape.dim, v->shape.ndim),
                       WEFT_I_INTEGERS_ARG(v->stride, v->shape.ndim), WEFT_I_INTEGER_ARG(offset));
}

static weft_tensor *row_of(weft_i_pure *p, weft_tensor *x, int64_t offset, int64_t count)
{
    return WEFT_I_PURE(p, as_strided, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGERS_ARG(&count, 1),
                       WEFT_I_INTEGERS_ARG(&(int64_t){1}, 1), WEFT_I_INTEGER_ARG(offset));
}

/* Whether the value is that row itself. */
static bool is_row(const weft_i_pure *p, const weft_i_content *c, int value)
{
    const weft_i_graph_value *v = &p->old->values[value];
    return v->shape.ndim == 1 && v->stride[0] == 1 && v->offset == c->begin &&
           v->shape.dim[0] == c->end - c->begin;
}

/* The elements of the storage in one row. */
static weft_tensor *flatten(weft_i_pure *p, weft_i_content *c)
{
    const weft_i_graph_value *first = &p->old->values[c->first];
    int64_t count = c->end - c->begin;
    if (c->flat)
        return c->flat;
    if (c->undefined)
        c->flat = WEFT_I_PURE(p, empty, WEFT_I_INTEGER_ARG(first->dtype),
                              WEFT_I_INTEGER_ARG(first->device), WEFT_I_INTEGERS_ARG(&count, 1));
    else if (c->whole && c->layout >= 0 && is_row(p, c, c->layout))
        c->flat = c->whole;
    else if (!c->whole && is_row(p, c, c->first))
        c->flat = p->fakes[c->first];
    else if (c->whole)
        c->flat = row_of(p, c->whole, c->whole->offset, count);
    else {
        weft_tensor *x = p->fakes[c->first];
        c->flat = row_of(p, x, x->offset - first->offset + c->begin, count);
    }
    return c->flat;
}

weft_tensor *weft_i_pure_read(weft_i_pure *p, int value)
{
    weft_i_content *c = weft_i_pure_content(p, value);
    if (p->fakes[value] && (c->alone || p->epochs[value] == c->epoch))
        return p->fakes[value];
    if (c->whole && c->layout >= 0 &&
        weft_i_pure_same_layout(&p->old->values[c->layout], &p->old->values[value])) {
        p->epochs[value] = c->epoch;
        return p->fakes[value] = c->whole;
    }
    if (c->whole && c->layout < 0 && is_row(p, c, value)) {
        p->epochs[value] = c->epoch;
        return p->fakes[value] = c->whole;
    }
    weft_tensor *flat = c->whole && !c->undefined ? c->whole : flatten(p, c);
    p->fakes[value] = flat ? weft_i_pure_view(p, flat, c->begin - flat->offset, value) : NULL;
    p->epochs[value] = c->epoch;
    return p->fakes[value];
}

/* Whether the value reaches all elements that anybody does, without gaps, and the new tensor lies
 * as it does. */
static bool covers(const weft_i_pure *p, const weft_i_content *c, int value, const weft_tensor *x)
{
    const weft_i_graph_value *v = &p->old->values[value];
    weft_i_graph_value other = weft_i_graph_value_of(x);
    other.offset = v->offset;
    return weft_i_tensor_is_dense(x) && v->offset == c->begin && x->offset == 0 &&
           x->numel == c->end - c->begin && weft_i_pure_same_layout(v, &other);
}

static weft_status note_written(weft_i_pure *p, weft_i_content *c, int value)
{
    for (int i = 0; i < c->written_count; i++)
        if (weft_i_pure_same_layout(&p->old->values[c->written[i]], &p->old->values[value]))
            return WEFT_OK;
    size_t bytes = ((size_t)c->written_count + 1) * sizeof *c->written;
    int *more = WEFT_OS->resize(c->written, bytes);
    if (!more)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    c->written = more;
    c->written[c->written_count++] = value;
    return WEFT_OK;
}

weft_status weft_i_pure_write(weft_i_pure *p, int value, int result, weft_tensor *content)
{
    weft_i_content *c = weft_i_pure_content(p, value);
    const weft_i_graph_value *v = &p->old->values[value];
    if (!content)
        return weft_last_status();
    if (content->numel == 0) { /* nothing is written */
        p->fakes[result] = p->fakes[value];
        p->epochs[result] = p->epochs[value];
        return WEFT_OK;
    }
    WEFT_TRY(note_written(p, c, value));
    if (covers(p, c, value, content)) {
        c->whole = content;
        c->layout = value;
        c->flat = NULL;
        c->undefined = false;
        p->fakes[result] = content;
        p->epochs[result] = ++c->epoch;
        return WEFT_OK;
    }
    weft_tensor *flat = flatten(p, c);
    if (!flat)
        return weft_last_status();
    flat = WEFT_I_PURE(p, view_scatter, WEFT_I_TENSOR_ARG(flat), WEFT_I_TENSOR_ARG(content),
                       WEFT_I_INTEGERS_ARG(v->shape.dim, v->shape.ndim),
                       WEFT_I_INTEGERS_ARG(v->stride, v->shape.ndim),
                       WEFT_I_INTEGER_ARG(v->offset - c->begin));
    if (!flat)
        return weft_last_status();
    c->flat = c->whole = flat;
    c->layout = -1;
    c->undefined = false;
    c->epoch++;
    return WEFT_OK;
}

weft_status weft_i_pure_resize(weft_i_pure *p, int value, size_t bytes)
{
    weft_i_content *c = weft_i_pure_content(p, value);
    if (bytes == c->bytes)
        return WEFT_OK;
    if (bytes && c->bytes)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "the storage of input \"%s\" goes from %zu to %zu bytes; a resize that "
                           "is captured must start or end at 0",
                           p->old->inputs[c->input].name, c->bytes, bytes);
    c->bytes = bytes;
    c->undefined = true; /* freed, or grown from nothing */
    c->flat = c->whole = NULL;
    c->written_count = 0;
    c->epoch++;
    return WEFT_OK;
}

weft_tensor *weft_i_pure_count(weft_i_pure *p, const weft_i_count *count)
{
    if (count->base == WEFT_I_COUNT_NUMBER)
        return WEFT_I_PURE(p, full, WEFT_I_INTEGER_ARG(WEFT_I64), WEFT_I_INTEGER_ARG(WEFT_CPU),
                           WEFT_I_INTEGERS_ARG(NULL, 0), WEFT_I_NUMBER_ARG((double)count->more));
    weft_tensor *base = count->base == WEFT_I_COUNT_ENTRY ? count->at_entry : count->value;
    return count->more == 0 ? base
                            : WEFT_I_PURE(p, add, WEFT_I_TENSOR_ARG(base),
                                          WEFT_I_NUMBER_ARG((double)count->more));
}

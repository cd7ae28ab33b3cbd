/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elements of a kernel.  What a row needs twice is computed twice: nothing is kept but what
 * sums give, and a function of the same arguments has the same bits.  Names: v3 is what member 3
 * makes, x5 an element of operand 5, which lies at p5; `known` has what sums of the row gave.
 */
#include "graph/emit/emit_kernel.h"

#include "base/share/dtype.h"
#include "kernels/vector/normalize.h"

#include <string.h>

#define put weft_i_text_put

/* ---- what is needed ---- */

void weft_i_emit_need_nothing(weft_i_emit_writing *w)
{
    memset(w->members, 0, sizeof w->members);
    memset(w->operands, 0, sizeof w->operands);
}

void weft_i_emit_need_member(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    int value, seen = 0;
    if (w->members[weft_i_emit_number(w, m)])
        return;
    w->members[weft_i_emit_number(w, m)] = true;
    if (m->kind == WEFT_I_EMIT_REDUCE)
        return; /* known */
    for (size_t at = 0; weft_i_graph_node_next(weft_i_emit_node(w, m), &at, &value); seen++)
        if (m->kind != WEFT_I_EMIT_LAYER || seen == 0) /* weight and bias are read as they are */
            weft_i_emit_need(w, value, m->wide);
}

void weft_i_emit_need(weft_i_emit_writing *w, int value, bool wide)
{
    const weft_i_emit_member *m = weft_i_emit_member_of(w->o, value);
    if (m)
        weft_i_emit_need_member(w, m);
    else
        w->operands[weft_i_emit_operand_of(w->o, value, wide, false)] = true;
}

/* ---- expressions ---- */

static void put_softmax(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    int k = weft_i_emit_number(w, m);
    bool logarithm = weft_i_emit_node(w, m)->op->kernel == WEFT_I_NORMALIZE_LOG_SOFTMAX;
    put(w->s, logarithm ? "(" : "weft_i_exp_%s(", weft_dtype_name(m->compute));
    weft_i_emit_put_as(w, weft_i_emit_node(w, m)->terms[0].value, true, m->compute);
    put(w->s, " - known->largest%d) %s known->sum%d", k, logarithm ? "-" : "*", k);
}

static void put_softmax_grad(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    const weft_i_graph_node *node = weft_i_emit_node(w, m);
    bool logarithm = node->op->kernel == WEFT_I_NORMALIZE_LOG_SOFTMAX;
    int k = weft_i_emit_number(w, m);
    put(w->s, logarithm ? "" : "(");
    weft_i_emit_put_as(w, node->terms[0].value, true, m->compute);
    if (logarithm)
        put(w->s, " - weft_i_exp_%s(", weft_dtype_name(m->compute));
    else
        put(w->s, " - known->sum%d) * ", k);
    weft_i_emit_put_as(w, node->terms[1].value, true, m->compute);
    if (logarithm)
        put(w->s, ") * known->sum%d", k);
}

/* An argument of layer_norm that is read as it is; -1: there is none. */
static int address_of(const weft_i_emit_writing *w, const weft_i_graph_term *term)
{
    for (int i = 0; term->kind == WEFT_I_ARG_TENSOR && i < w->o->ins; i++)
        if (w->o->in[i] == term->value)
            return i;
    return -1;
}

static void put_layer(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    const weft_i_graph_node *node = weft_i_emit_node(w, m);
    int k = weft_i_emit_number(w, m), weight = address_of(w, &node->terms[2]),
        bias = address_of(w, &node->terms[3]);
    const char *type = weft_i_emit_stored(m->compute);
    put(w->s, "((");
    weft_i_emit_put_as(w, node->terms[0].value, true, m->compute);
    put(w->s, " - known->mean%d) - known->rest%d) * known->factor%d", k, k, k);
    if (weight >= 0)
        put(w->s, " * ((const %s *)(const void *)c.at[%d])[i]", type, weight);
    if (bias >= 0)
        put(w->s, " + ((const %s *)(const void *)c.at[%d])[i]", type, bias);
}

static void put_member(weft_i_emit_writing *w, const weft_i_emit_member *m, const char *indent)
{
    put(w->s, "%sconst %s v%d = ", indent, weft_i_emit_variable(m->dtype),
        weft_i_emit_number(w, m));
    switch (m->kind) {
    case WEFT_I_EMIT_REDUCE:
        put(w->s, "known->v%d", weft_i_emit_number(w, m));
        break;
    case WEFT_I_EMIT_SOFTMAX:
    case WEFT_I_EMIT_SOFTMAX_GRAD:
    case WEFT_I_EMIT_LAYER:
        weft_i_emit_open_round(w, m->dtype);
        (m->kind == WEFT_I_EMIT_LAYER     ? put_layer
         : m->kind == WEFT_I_EMIT_SOFTMAX ? put_softmax
                                          : put_softmax_grad)(w, m);
        weft_i_emit_close_round(w, m->dtype);
        break;
    default:
        weft_i_emit_put_expression(w, m);
    }
    put(w->s, ";\n");
}

/* ---- loads and stores ---- */

void weft_i_emit_put_row_values(weft_i_emit_writing *w, const char *indent)
{
    for (int k = 0; k < w->o->operand_count; k++)
        if (w->operands[k] && !w->o->operands[k].wide)
            weft_i_emit_put_load(w, k, indent);
    for (int i = 0; i < w->o->count; i++)
        if (w->members[i] && !w->o->members[i].wide)
            put_member(w, &w->o->members[i], indent);
}

void weft_i_emit_put_elements(weft_i_emit_writing *w, const char *indent)
{
    for (int k = 0; k < w->o->operand_count; k++)
        if (w->operands[k] && w->o->operands[k].wide)
            weft_i_emit_put_load(w, k, indent);
    for (int i = 0; i < w->o->count; i++)
        if (w->members[i] && w->o->members[i].wide)
            put_member(w, &w->o->members[i], indent);
}

void weft_i_emit_put_result(weft_i_emit_writing *w, const weft_i_emit_member *m, const char *to)
{
    put(w->s, "%s = ", to);
    weft_i_emit_put_stored(w, m);
}

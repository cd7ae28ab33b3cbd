/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elements of a kernel.  What a row needs twice is computed twice: nothing is kept but what
 * sums give, and a function of the same arguments has the same bits.  Names: v3 is what member 3
 * makes, x5 an element of operand 5, which lies at p5; `known` has what sums of the row gave.
 */
#include "graph/emit_kernel.h"

#include "base/dtype.h"
#include "kernels/convert.h"
#include "kernels/normalize.h"
#include "kernels/pointwise.h"
#include "tensor/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define put weft_i_text_put

const char *weft_i_emit_stored(weft_dtype dtype)
{
    static const char *const types[] = {
        [WEFT_F64] = "double",    [WEFT_F32] = "float",    [WEFT_F16] = "uint16_t",
        [WEFT_BF16] = "uint16_t", [WEFT_I8] = "int8_t",    [WEFT_I16] = "int16_t",
        [WEFT_I32] = "int32_t",   [WEFT_I64] = "int64_t",  [WEFT_U8] = "uint8_t",
        [WEFT_U16] = "uint16_t",  [WEFT_U32] = "uint32_t", [WEFT_U64] = "uint64_t",
        [WEFT_BOOL] = "uint8_t"};
    _Static_assert(sizeof types / sizeof *types == WEFT_DTYPE_COUNT, "a type for each dtype");
    return types[dtype];
}

static bool is_small(weft_dtype dtype)
{
    return weft_i_dtype_is_small_float(dtype);
}

const char *weft_i_emit_variable(weft_dtype dtype)
{
    return is_small(dtype) ? "float" : weft_i_emit_stored(dtype);
}

int weft_i_emit_number(const weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    return (int)(m - w->o->members);
}

const weft_i_graph_node *weft_i_emit_node(const weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    return &w->o->graph->nodes[m->node];
}

static weft_dtype dtype_of(const weft_i_emit_writing *w, int value)
{
    return w->o->graph->values[value].dtype;
}

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

static void put_float(weft_i_emit_writing *w, double x, bool narrow)
{
    union {
        float f;
        uint32_t bits;
    } small = {(float)x};
    union {
        double f;
        uint64_t bits;
    } large = {x};
    if (isfinite(x))
        put(w->s, narrow ? "%af" : "%a", x);
    else if (narrow)
        put(w->s, "weft_k_float(0x%08xu)", (unsigned)small.bits);
    else
        put(w->s, "weft_k_double(0x%016llxull)", (unsigned long long)large.bits);
}

/* The number as the dtype has it. */
static void put_number(weft_i_emit_writing *w, weft_dtype dtype, double number)
{
    union {
        uint64_t bits;
        double d;
        int64_t i;
    } as = {0};
    weft_dtype shown = weft_i_dtype_is_float(dtype) ? WEFT_F64
                       : dtype == WEFT_U64          ? dtype
                                                    : WEFT_I64;
    uint64_t element = 0;
    weft_i_convert(dtype, &element, WEFT_F64, &number, 1);
    weft_i_convert(shown, &as, dtype, &element, 1);
    if (shown == WEFT_F64)
        put_float(w, as.d, dtype != WEFT_F64);
    else if (shown == WEFT_U64)
        put(w->s, "%lluull", (unsigned long long)as.bits);
    else if (as.i == INT64_MIN)
        put(w->s, "((int64_t)0x8000000000000000ull)");
    else
        put(w->s, "((%s)%lldll)", weft_i_emit_variable(dtype), (long long)as.i);
}

static void put_value(weft_i_emit_writing *w, int value, bool wide)
{
    const weft_i_emit_member *from = weft_i_emit_member_of(w->o, value);
    if (from)
        put(w->s, "v%d", weft_i_emit_number(w, from));
    else
        put(w->s, "x%d", weft_i_emit_operand_of(w->o, value, wide, false));
}

static void open_round(weft_i_emit_writing *w, weft_dtype dtype)
{
    if (is_small(dtype))
        put(w->s, "round_%s(", weft_dtype_name(dtype));
}

static void close_round(weft_i_emit_writing *w, weft_dtype dtype)
{
    if (is_small(dtype))
        put(w->s, ")");
}

void weft_i_emit_put_as(weft_i_emit_writing *w, int value, bool wide, weft_dtype to)
{
    weft_dtype from = dtype_of(w, value);
    bool round = is_small(to) && from != to;
    if (round)
        open_round(w, to);
    if (to == WEFT_BOOL && from != WEFT_BOOL) {
        put(w->s, "(uint8_t)(");
        put_value(w, value, wide);
        put(w->s, " != 0)");
    } else {
        if (strcmp(weft_i_emit_variable(to), weft_i_emit_variable(from)))
            put(w->s, "(%s)", weft_i_emit_variable(to));
        put_value(w, value, wide);
    }
    if (round)
        close_round(w, to);
}

static void put_term(weft_i_emit_writing *w, const weft_i_emit_member *m, int i, weft_dtype to)
{
    const weft_i_graph_term *term = &weft_i_emit_node(w, m)->terms[i];
    if (term->kind == WEFT_I_ARG_NUMBER)
        put_number(w, to, term->number);
    else
        weft_i_emit_put_as(w, term->value, m->wide, to);
}

static void put_pointwise(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    const weft_i_op *op = weft_i_emit_node(w, m)->op;
    if (op->shape == weft_i_where_shape) {
        put_term(w, m, 0, WEFT_BOOL);
        put(w->s, " ? ");
        put_term(w, m, 1, m->dtype);
        put(w->s, " : ");
        put_term(w, m, 2, m->dtype);
        return;
    }
    bool angle = op->kernel == WEFT_I_POINTWISE_sin || op->kernel == WEFT_I_POINTWISE_cos;
    bool round = m->dtype != m->compute;
    if (round)
        open_round(w, m->dtype);
    put(w->s, "%s%s_%s(", op->name, angle ? "_any" : "", weft_dtype_name(m->compute));
    for (int i = 0; i < op->arity; i++) {
        put(w->s, i ? ", " : "");
        put_term(w, m, i, m->compute);
    }
    put(w->s, ")");
    if (round)
        close_round(w, m->dtype);
}

static void put_softmax(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    int k = weft_i_emit_number(w, m);
    bool logarithm = weft_i_emit_node(w, m)->op->kernel == WEFT_I_NORMALIZE_LOG_SOFTMAX;
    put(w->s, logarithm ? "(" : "weft_i_exp_%s(", weft_dtype_name(m->compute));
    weft_i_emit_put_as(w, weft_i_emit_node(w, m)->terms[0].value, true, m->compute);
    put(w->s, " - known->largest%d) %s known->sum%d", k, logarithm ? "-" : "*", k);
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
    case WEFT_I_EMIT_POINTWISE:
        put_pointwise(w, m);
        break;
    case WEFT_I_EMIT_CONSTANT:
        put_number(w, m->dtype, weft_i_emit_node(w, m)->terms[3].number);
        break;
    case WEFT_I_EMIT_REDUCE:
        put(w->s, "known->v%d", weft_i_emit_number(w, m));
        break;
    case WEFT_I_EMIT_SOFTMAX:
    case WEFT_I_EMIT_LAYER:
        open_round(w, m->dtype);
        (m->kind == WEFT_I_EMIT_LAYER ? put_layer : put_softmax)(w, m);
        close_round(w, m->dtype);
        break;
    default:
        weft_i_emit_put_as(w, weft_i_emit_node(w, m)->terms[0].value, m->wide, m->dtype);
    }
    put(w->s, ";\n");
}

/* ---- loads and stores ---- */

static void put_load(weft_i_emit_writing *w, int k, const char *indent)
{
    const weft_i_emit_operand *operand = &w->o->operands[k];
    weft_dtype dtype = dtype_of(w, operand->value);
    put(w->s, "%sconst %s x%d = ", indent, weft_i_emit_variable(dtype), k);
    if (is_small(dtype))
        put(w->s, "weft_k_half(%d, ", dtype == WEFT_BF16);
    if (!operand->wide || operand->inner == 0)
        put(w->s, "p%d[0]", k);
    else if (w->width > 1)
        put(w->s, "four%d.at[j]", k);
    else if (operand->inner == 1)
        put(w->s, "p%d[i]", k);
    else
        put(w->s, "p%d[i * %lld]", k, (long long)operand->inner);
    put(w->s, is_small(dtype) ? ");\n" : ";\n");
}

void weft_i_emit_put_row_values(weft_i_emit_writing *w, const char *indent)
{
    for (int k = 0; k < w->o->operand_count; k++)
        if (w->operands[k] && !w->o->operands[k].wide)
            put_load(w, k, indent);
    for (int i = 0; i < w->o->count; i++)
        if (w->members[i] && !w->o->members[i].wide)
            put_member(w, &w->o->members[i], indent);
}

void weft_i_emit_put_elements(weft_i_emit_writing *w, const char *indent)
{
    for (int k = 0; k < w->o->operand_count; k++)
        if (w->operands[k] && w->o->operands[k].wide)
            put_load(w, k, indent);
    for (int i = 0; i < w->o->count; i++)
        if (w->members[i] && w->o->members[i].wide)
            put_member(w, &w->o->members[i], indent);
}

void weft_i_emit_put_result(weft_i_emit_writing *w, const weft_i_emit_member *m, const char *to)
{
    char name[8];
    snprintf(name, sizeof name, "%s", weft_dtype_name(m->dtype));
    for (char *c = name; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    if (is_small(m->dtype))
        put(w->s, "%s = (uint16_t)weft_k_narrow(WEFT_K_%s, v%d);\n", to, name,
            weft_i_emit_number(w, m));
    else
        put(w->s, "%s = v%d;\n", to, weft_i_emit_number(w, m));
}

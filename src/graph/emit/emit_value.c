/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/emit/emit_value.h"

#include "base/os/assert.h"
#include "base/share/dtype.h"
#include "kernels/number/convert.h"
#include "kernels/vector/pointwise.h"
#include "tensor/op/ops.h"

#include <math.h>
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

weft_dtype weft_i_emit_dtype(const weft_i_emit_writing *w, int value)
{
    return w->o->graph->values[value].dtype;
}

bool weft_i_emit_is_angle(const weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    int kernel = weft_i_emit_node(w, m)->op->kernel;
    return m->kind == WEFT_I_EMIT_POINTWISE &&
           (kernel == WEFT_I_POINTWISE_sin || kernel == WEFT_I_POINTWISE_cos);
}

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
        put(w->s, "float_bits(0x%08xu)", (unsigned)small.bits);
    else
        put(w->s, "double_bits(0x%016llxull)", (unsigned long long)large.bits);
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

/* The element of a value, in a variable. */
static void put_value(weft_i_emit_writing *w, int value, bool wide)
{
    const weft_i_emit_member *from = weft_i_emit_member_of(w->o, value);
    int k = from ? -1 : weft_i_emit_operand_of(w->o, value, wide, false);
    WEFT_ASSERT(from || k >= 0); /* the outline has all that is read */
    put(w->s, from ? "v%d" : "x%d", from ? weft_i_emit_number(w, from) : k);
}

void weft_i_emit_open_round(weft_i_emit_writing *w, weft_dtype dtype)
{
    if (is_small(dtype))
        put(w->s, "round_%s(", weft_dtype_name(dtype));
}

void weft_i_emit_close_round(weft_i_emit_writing *w, weft_dtype dtype)
{
    if (is_small(dtype))
        put(w->s, ")");
}

void weft_i_emit_put_as(weft_i_emit_writing *w, int value, bool wide, weft_dtype to)
{
    weft_dtype from = weft_i_emit_dtype(w, value);
    bool round = is_small(to) && from != to;
    if (round)
        weft_i_emit_open_round(w, to);
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
        weft_i_emit_close_round(w, to);
}

void weft_i_emit_put_term(weft_i_emit_writing *w, const weft_i_emit_member *m, int i, weft_dtype to)
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
        weft_i_emit_put_term(w, m, 0, WEFT_BOOL);
        put(w->s, " ? ");
        weft_i_emit_put_term(w, m, 1, m->dtype);
        put(w->s, " : ");
        weft_i_emit_put_term(w, m, 2, m->dtype);
        return;
    }
    bool round = m->dtype != m->compute;
    if (round)
        weft_i_emit_open_round(w, m->dtype);
    put(w->s, "%s%s_%s(", op->name, w->any && weft_i_emit_is_angle(w, m) ? "_any" : "",
        weft_dtype_name(m->compute));
    for (int i = 0; i < op->arity; i++) {
        put(w->s, i ? ", " : "");
        weft_i_emit_put_term(w, m, i, m->compute);
    }
    put(w->s, ")");
    if (round)
        weft_i_emit_close_round(w, m->dtype);
}

void weft_i_emit_put_expression(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    if (m->kind == WEFT_I_EMIT_POINTWISE)
        put_pointwise(w, m);
    else if (m->kind == WEFT_I_EMIT_CONSTANT)
        put_number(w, m->dtype, weft_i_emit_node(w, m)->terms[3].number);
    else
        weft_i_emit_put_as(w, weft_i_emit_node(w, m)->terms[0].value, m->wide, m->dtype);
}

void weft_i_emit_put_load(weft_i_emit_writing *w, int k, const char *indent)
{
    const weft_i_emit_operand *operand = &w->o->operands[k];
    weft_dtype dtype = weft_i_emit_dtype(w, operand->value);
    put(w->s, "%sconst %s x%d = ", indent, weft_i_emit_variable(dtype), k);
    if (is_small(dtype))
        put(w->s, "widen_%s(", weft_dtype_name(dtype));
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

void weft_i_emit_put_stored(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    int i = weft_i_emit_number(w, m);
    WEFT_ASSERT(i >= 0 && i < w->o->count);
    if (is_small(m->dtype))
        put(w->s, "narrow_%s(v%d);\n", weft_dtype_name(m->dtype), i);
    else
        put(w->s, "v%d;\n", i);
}

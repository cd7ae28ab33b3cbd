/* SPDX-License-Identifier: Apache-2.0 */
/* What the emitter can take: by row, dtype and layout. */
#include "graph/emit/emit.h"

#include "kernels/vector/normalize.h"
#include "kernels/vector/pointwise.h"
#include "tensor/object/device.h"
#include "tensor/op/ops.h"

#include <math.h>

int64_t weft_i_emit_numel(const weft_shape *shape)
{
    int64_t numel = 1;
    for (int i = 0; i < shape->ndim; i++)
        numel *= shape->dim[i];
    return numel;
}

static bool is_small(weft_dtype dtype)
{
    return dtype == WEFT_F16 || dtype == WEFT_BF16;
}

/* A type that C computes with, or one that is computed in f32. */
static bool is_known(weft_dtype dtype)
{
    return is_small(dtype) || (weft_i_pointwise_compute(dtype) == dtype || dtype == WEFT_BOOL);
}

/* Whether a cast does what weft_i_convert does. */
static bool converts(weft_dtype to, weft_dtype from)
{
    if (to == from || to == WEFT_BOOL)
        return true;
    if (is_small(to))
        return from == WEFT_F32 || is_small(from);
    return weft_i_dtype_is_float(to) || !weft_i_dtype_is_float(from);
}

static weft_dtype dtype_of(const weft_graph *graph, const weft_i_graph_term *term)
{
    return graph->values[term->value].dtype;
}

static bool is_compare(const weft_i_op *op)
{
    return op->shape == weft_i_compare_shape;
}

/* The dtype of the tensors, if they have one and the numbers do not change it. */
static bool one_dtype(const weft_graph *graph, const weft_i_graph_node *node, weft_dtype *out)
{
    bool found = false;
    for (int i = 0; i < node->op->arity; i++) {
        const weft_i_graph_term *term = &node->terms[i];
        if (term->kind != WEFT_I_ARG_TENSOR)
            continue;
        if (found && dtype_of(graph, term) != *out)
            return false;
        *out = dtype_of(graph, term);
        found = true;
    }
    for (int i = 0; found && i < node->op->arity; i++)
        if (node->terms[i].kind == WEFT_I_ARG_NUMBER && !weft_i_dtype_is_float(*out) &&
            (*out == WEFT_BOOL || node->terms[i].number != floor(node->terms[i].number)))
            return false;
    return found;
}

weft_dtype weft_i_emit_compute(const weft_graph *graph, const weft_i_graph_node *node)
{
    weft_dtype dtype = graph->values[node->first].dtype;
    if (node->op->run[0] == weft_i_reduce_row_run)
        dtype = dtype_of(graph, &node->terms[0]);
    else if (is_compare(node->op))
        one_dtype(graph, node, &dtype);
    else if (node->op->shape == weft_i_logical_shape)
        return WEFT_BOOL;
    else if (node->op->shape == weft_i_where_shape)
        return dtype;
    if (node->op->run[0] == weft_i_reduce_row_run && !weft_i_dtype_is_float(dtype))
        return dtype == WEFT_U64 && node->op->kernel >= WEFT_I_REDUCE_MAX ? WEFT_U64 : WEFT_I64;
    return weft_i_pointwise_compute(dtype);
}

static weft_i_emit_kind pointwise(const weft_graph *graph, const weft_i_graph_node *node,
                                  const char **why)
{
    weft_dtype made = graph->values[node->first].dtype, compute, one;
    bool floats_only = node->op->kernel == WEFT_I_POINTWISE_pow;
    if (is_compare(node->op) && !one_dtype(graph, node, &one)) {
        *why = "it compares different dtypes";
        return WEFT_I_EMIT_NOT;
    }
    compute = weft_i_emit_compute(graph, node);
    if (node->op->shape == weft_i_arithmetic_shape &&
        (made == WEFT_BOOL || (floats_only && !weft_i_dtype_is_float(made)))) {
        *why = "it is arithmetic with bool, or a power of integers";
        return WEFT_I_EMIT_NOT;
    }
    for (int i = 0; i < node->op->arity; i++)
        if (node->terms[i].kind == WEFT_I_ARG_TENSOR &&
            !converts(compute, dtype_of(graph, &node->terms[i]))) {
            *why = "an operand is converted in a way that no cast is";
            return WEFT_I_EMIT_NOT;
        }
    return WEFT_I_EMIT_POINTWISE;
}

/* Sums of floats, in the order of reduce.h. */
static bool is_column_sum(const weft_graph *graph, const weft_i_graph_node *node)
{
    weft_dtype compute = weft_i_emit_compute(graph, node);
    return (node->op->kernel & 0xff) == WEFT_I_REDUCE_SUM &&
           (compute == WEFT_F32 || compute == WEFT_F64);
}

/* Whether the row dimensions are those that are kept. */
static bool keeps_last(const weft_graph *graph, const weft_i_graph_node *node)
{
    const weft_shape *shape = &graph->values[node->terms[0].value].shape;
    const weft_i_graph_term *dims = &node->terms[1];
    for (size_t i = 0; i < dims->count; i++)
        if (dims->integers[i] == -1 || dims->integers[i] == shape->ndim - 1)
            return false;
    return dims->count && shape->ndim;
}

int weft_i_emit_row_dims(const weft_graph *graph, const weft_i_graph_node *node)
{
    const weft_shape *shape = &graph->values[node->terms[0].value].shape;
    const weft_i_graph_term *dims = &node->terms[1];
    unsigned gone = 0;
    if (node->op->run[0] == weft_i_layer_norm_run)
        return (int)dims->integer;
    if (node->op->run[0] == weft_i_softmax_grad_run)
        dims = &node->terms[2];
    if (node->op->run[0] == weft_i_softmax_run || node->op->run[0] == weft_i_softmax_grad_run)
        return shape->ndim && (dims->integer == -1 || dims->integer == shape->ndim - 1);
    if (!dims->count || !shape->ndim)
        return shape->ndim;
    for (size_t i = 0; i < dims->count; i++)
        gone |= 1u << (dims->integers[i] < 0 ? dims->integers[i] + shape->ndim : dims->integers[i]);
    int count = (int)dims->count;
    if (gone == (1u << count) - 1 && count < shape->ndim && is_column_sum(graph, node))
        return shape->ndim - count;
    return gone == ((1u << count) - 1) << (shape->ndim - count) ? count : 0;
}

static int64_t row_length(const weft_graph *graph, const weft_i_graph_node *node)
{
    const weft_shape *shape = &graph->values[node->terms[0].value].shape;
    int64_t length = 1;
    for (int i = shape->ndim - weft_i_emit_row_dims(graph, node); i < shape->ndim; i++)
        length *= shape->dim[i];
    return length;
}

static weft_i_emit_kind reduction(const weft_graph *graph, const weft_i_graph_node *node,
                                  const char **why)
{
    weft_dtype dtype = dtype_of(graph, &node->terms[0]);
    if (node->op->shape == weft_i_truth_shape || dtype == WEFT_BOOL) {
        *why = "it reduces truth";
        return WEFT_I_EMIT_NOT;
    }
    if (!weft_i_emit_row_dims(graph, node)) {
        *why = "it reduces dimensions that are not the last";
        return WEFT_I_EMIT_NOT;
    }
    bool there = graph->values[node->first].device != WEFT_CPU;
    if (there && row_length(graph, node) > WEFT_I_EMIT_ROW) {
        *why = "its rows are longer than what one block of threads sums; its row spreads each over "
               "the device";
        return WEFT_I_EMIT_NOT;
    }
    if (there && keeps_last(graph, node)) {
        *why = "kernels of a GPU do not carry sums from row to row";
        return WEFT_I_EMIT_NOT;
    }
    return keeps_last(graph, node) ? WEFT_I_EMIT_COLUMNS : WEFT_I_EMIT_REDUCE;
}

/* layer_norm needs weight and bias as they are. */
static weft_i_emit_kind normalisation(const weft_graph *graph, const weft_i_graph_node *node,
                                      const char **why)
{
    bool layer = node->op->run[0] == weft_i_layer_norm_run;
    if (!weft_i_emit_row_dims(graph, node)) {
        *why = "it normalises a dimension that is not the last";
        return WEFT_I_EMIT_NOT;
    }
    for (int i = 2; layer && i <= 3; i++) {
        if (node->terms[i].kind != WEFT_I_ARG_TENSOR)
            continue;
        const weft_i_graph_value *value = &graph->values[node->terms[i].value];
        int64_t step = 1;
        bool packed = value->dtype == weft_i_emit_compute(graph, node);
        for (int d = value->shape.ndim - 1; d >= 0; step *= value->shape.dim[d--])
            packed &= value->shape.dim[d] == 1 || value->stride[d] == step;
        if (!packed) {
            *why = "weight or bias is not packed or of another dtype";
            return WEFT_I_EMIT_NOT;
        }
    }
    if (node->op->run[0] == weft_i_softmax_grad_run)
        return WEFT_I_EMIT_SOFTMAX_GRAD;
    return layer ? WEFT_I_EMIT_LAYER : WEFT_I_EMIT_SOFTMAX;
}

static weft_i_emit_kind copying(const weft_graph *graph, const weft_i_graph_node *node,
                                const char **why)
{
    weft_dtype to = graph->values[node->first].dtype, from = dtype_of(graph, &node->terms[0]);
    bool cast = converts(to, from);
    *why = cast ? NULL : "it converts in a way that no cast does";
    return cast ? WEFT_I_EMIT_COPY : WEFT_I_EMIT_NOT;
}

static bool has_compiler(weft_device device)
{
    const weft_i_device *table = weft_i_device_find(device);
    return device == WEFT_CPU || (table && table->code);
}

/* What holds for every value that a function reads or makes. */
static bool is_plain(const weft_graph *graph, const weft_i_graph_node *node, const char **why)
{
    int value;
    for (int k = 0; k < node->count; k++) {
        const weft_i_graph_value *made = &graph->values[node->first + k];
        *why = !has_compiler(made->device)            ? "nothing is compiled for its device"
               : !is_known(made->dtype)               ? "of its dtype"
               : weft_i_emit_numel(&made->shape) == 0 ? "it has no elements"
                                                      : NULL;
        if (*why)
            return false;
    }
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
        const weft_i_graph_value *read = &graph->values[value];
        *why = read->device != graph->values[node->first].device ? "an operand is on another device"
               : !is_known(read->dtype)                          ? "of an operand's dtype"
               : weft_i_emit_numel(&read->shape) == 0            ? "an operand has no elements"
                                                                 : NULL;
        if (*why)
            return false;
    }
    return true;
}

/* Of rows that no loop over elements or rows can be made of. */
static const char *why_a_row(const weft_i_op *op)
{
    if (op == &weft_i_op_layer_norm_grad)
        return "its results have two shapes; its row walks its operands once for all of them";
    if (op == &weft_i_op_embedding_grad)
        return "only its indices say where it adds to, and its row has no operand to compute first";
    if (op == &weft_i_op_mm || op == &weft_i_op_bmm || op == &weft_i_op_linear)
        return "a product, which the matrix library computes";
    if (op == &weft_i_op_attention || op == &weft_i_op_attention_grad ||
        op == &weft_i_op_linear_cross_entropy)
        return "it is one loop over blocks already";
    return "it is not computed element by element, nor along rows";
}

weft_i_emit_kind weft_i_emit_kind_of(const weft_graph *graph, const weft_i_graph_node *node,
                                     const char **why)
{
    weft_status (*run)(weft_i_op_call *) = node->op->run[0];
    *why = why_a_row(node->op);
    if (node->into >= 0 || node->count != 1 || node->op->changes)
        return WEFT_I_EMIT_NOT;
    bool known = run == weft_i_pointwise_run || run == weft_i_reduce_row_run ||
                 run == weft_i_softmax_run || run == weft_i_softmax_grad_run ||
                 run == weft_i_layer_norm_run || run == weft_i_full_run || run == weft_i_clone_run;
    if (!known || !is_plain(graph, node, why))
        return WEFT_I_EMIT_NOT;
    if (run == weft_i_pointwise_run)
        return pointwise(graph, node, why);
    if (run == weft_i_reduce_row_run)
        return reduction(graph, node, why);
    if (run == weft_i_clone_run)
        return copying(graph, node, why);
    return run == weft_i_full_run ? WEFT_I_EMIT_CONSTANT : normalisation(graph, node, why);
}

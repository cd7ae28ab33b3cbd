/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs as text.
 *
 *     graph "step" {
 *       %0 = input "x" f32[4]
 *       %1 = all_reduce %0 op=sum factor=1 group="0"/2
 *       %2 = wait_tensor %1
 *       output %2
 *     }
 *
 * A line of a node is its results, its row, its tensors in the order of the parameters, and the
 * other arguments by name.  What follows from the rest is not printed; parse.c finds it again.
 */
#include "base/report/text.h"
#include "base/share/dtype.h"
#include "graph/ir/graph.h"
#include "weft/coll.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With every byte that is not plain as \xHH. */
static void put_string(weft_i_text *s, const char *text)
{
    weft_i_text_put(s, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
            weft_i_text_put(s, "\\x%02x", c);
        else
            weft_i_text_put(s, "%c", c);
    }
    weft_i_text_put(s, "\"");
}

/* The shortest text that reads as the same number. */
static void put_number(weft_i_text *s, double number)
{
    char text[40];
    if (isnan(number)) {
        weft_i_text_put(s, "nan");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    weft_i_text_put(s, "%s", text);
}

static void put_integers(weft_i_text *s, const int64_t *at, size_t count)
{
    weft_i_text_put(s, "[");
    for (size_t i = 0; i < count; i++)
        weft_i_text_put(s, "%s%lld", i ? ", " : "", (long long)at[i]);
    weft_i_text_put(s, "]");
}

static void put_device(weft_i_text *s, weft_device device)
{
    char name[16];
    weft_i_text_put(s, "%s", weft_device_name(device, name));
}

/* "f32[2, 3]", with "@meta" behind it if it is not on the CPU. */
static void put_type(weft_i_text *s, const weft_i_graph_value *value)
{
    weft_i_text_put(s, "%s", weft_dtype_name(value->dtype));
    put_integers(s, value->shape.dim, (size_t)value->shape.ndim);
    if (value->device != WEFT_CPU) {
        weft_i_text_put(s, "@");
        put_device(s, value->device);
    }
}

static void put_value(weft_i_text *s, int value)
{
    if (value < 0)
        weft_i_text_put(s, "none");
    else
        weft_i_text_put(s, "%%%d", value);
}

static bool is_positional(char letter)
{
    return strchr("tywroslLm", letter) != NULL;
}

static void put_positional(weft_i_text *s, const weft_i_graph_term *term)
{
    weft_i_text_put(s, " ");
    if (term->kind == WEFT_I_ARG_NUMBER)
        put_number(s, term->number);
    else if (term->kind != WEFT_I_ARG_TENSORS)
        put_value(s, term->kind == WEFT_I_ARG_TENSOR ? term->value : -1);
    else {
        weft_i_text_put(s, "[");
        for (size_t i = 0; i < term->count; i++) {
            weft_i_text_put(s, "%s", i ? ", " : "");
            put_value(s, term->values[i]);
        }
        weft_i_text_put(s, "]");
    }
}

/* Integers by what they mean. */
static void put_integer(weft_i_text *s, char letter, int64_t integer)
{
    if (letter == 'b' && (integer == 0 || integer == 1))
        weft_i_text_put(s, integer ? "true" : "false");
    else if (letter == 'd' && integer >= 0 && integer < WEFT_DTYPE_COUNT)
        weft_i_text_put(s, "%s", weft_dtype_name((weft_dtype)integer));
    else if (letter == 'v')
        put_device(s, (weft_device)integer);
    else if (letter == 'p' && integer >= 0 && integer < WEFT_REDUCTIONS)
        weft_i_text_put(s, "%s", weft_reduction_name((weft_reduction)integer));
    else
        weft_i_text_put(s, "%lld", (long long)integer);
}

static void put_named(weft_i_text *s, const weft_i_op *op, int i, const weft_i_graph_term *term)
{
    int length;
    const char *name = weft_i_op_param_name(op, i, &length);
    weft_i_text_put(s, " %.*s=", length, name);
    if (term->kind == WEFT_I_ARG_NUMBER)
        put_number(s, term->number);
    else if (term->kind == WEFT_I_ARG_INTEGERS)
        put_integers(s, term->integers, term->count);
    else if (term->kind == WEFT_I_ARG_INTEGER)
        put_integer(s, op->kinds[i], term->integer);
    else {
        put_string(s, term->group.name);
        weft_i_text_put(s, "/%zu", term->count);
    }
}

static void put_node(weft_i_text *s, const weft_graph *graph, const weft_i_graph_node *node)
{
    weft_i_text_put(s, "  ");
    for (int k = 0; k < node->count; k++) {
        weft_i_text_put(s, "%s", k ? ", " : "");
        if (graph->values[node->first + k].absent)
            weft_i_text_put(s, "_");
        else
            put_value(s, node->first + k);
    }
    weft_i_text_put(s, " = %s", node->op->name);
    for (int i = 0; i < node->op->arity; i++)
        if (is_positional(node->op->kinds[i]))
            put_positional(s, &node->terms[i]);
    for (int i = 0; i < node->op->arity; i++)
        if (!is_positional(node->op->kinds[i]))
            put_named(s, node->op, i, &node->terms[i]);
    if (node->into >= 0)
        weft_i_text_put(s, " into=%%%d", node->into);
    weft_i_text_put(s, "%s\n", node->quiet ? " quiet" : "");
}

/* The first input before `i` with the same storage or counter; -1: none. */
static int first_with(const weft_graph *graph, int i, bool counter)
{
    const weft_i_graph_value *value = &graph->values[graph->inputs[i].value];
    for (int k = 0; k < i; k++) {
        const weft_i_graph_value *other = &graph->values[graph->inputs[k].value];
        if (counter ? other->counter == value->counter : other->storage == value->storage)
            return graph->inputs[k].value;
    }
    return -1;
}

static void put_input(weft_i_text *s, const weft_graph *graph, int i)
{
    const weft_i_graph_input *input = &graph->inputs[i];
    const weft_i_graph_value *value = &graph->values[input->value];
    weft_tensor layout = {.dtype = value->dtype, .ndim = value->shape.ndim};
    memcpy(layout.dim, value->shape.dim, sizeof layout.dim);
    memcpy(layout.stride, value->stride, sizeof layout.stride);
    layout.offset = value->offset;
    weft_i_tensor_measure(&layout);
    int64_t row_major[WEFT_MAX_DIMS];
    weft_i_shape_strides(value->shape, row_major);
    int base = first_with(graph, i, false), counted = first_with(graph, i, true);
    weft_i_text_put(s, "  %%%d = input ", input->value);
    put_string(s, input->name);
    weft_i_text_put(s, " ");
    put_type(s, value);
    if (memcmp(row_major, value->stride, (size_t)value->shape.ndim * sizeof *row_major)) {
        weft_i_text_put(s, " strides=");
        put_integers(s, value->stride, (size_t)value->shape.ndim);
    }
    if (value->offset)
        weft_i_text_put(s, " offset=%lld", (long long)value->offset);
    if (base >= 0)
        weft_i_text_put(s, " storage=%%%d", base);
    else if (value->bytes != layout.end)
        weft_i_text_put(s, " bytes=%zu", value->bytes);
    if (counted != base)
        weft_i_text_put(s, counted < 0 ? " counter=own" : " counter=%%%d", counted);
    weft_i_text_put(s, "%s%s%s\n", input->flags & WEFT_I_INPUT_GRAD ? " grad" : "",
                    input->flags & WEFT_I_INPUT_PARAMETER ? " parameter" : "",
                    input->flags & WEFT_I_INPUT_FREE ? " free" : "");
}

static void put_constant(weft_i_text *s, const weft_graph *graph,
                         const weft_i_graph_constant *constant)
{
    const weft_i_graph_value *value = &graph->values[constant->value];
    const weft_tensor *x = constant->tensor;
    const unsigned char *bytes = (const unsigned char *)weft_i_tensor_data(x);
    weft_i_text_put(s, "  %%%d = constant ", constant->value);
    put_type(s, value);
    weft_i_text_put(s, " 0x");
    for (size_t i = 0; i < (size_t)x->numel * weft_dtype_size(x->dtype); i++)
        weft_i_text_put(s, "%02x", bytes[i]);
    weft_i_text_put(s, "\n");
}

/* Arguments are the inputs that were not found elsewhere, in their order, or else are listed. */
static void put_arguments(weft_i_text *s, const weft_graph *graph)
{
    int next = 0;
    bool plain = true;
    for (int i = 0; i < graph->input_count; i++)
        if (!(graph->inputs[i].flags & WEFT_I_INPUT_FREE))
            plain &= next < graph->argument_count && graph->arguments[next++] == i;
    if (plain && next == graph->argument_count)
        return;
    weft_i_text_put(s, "  arguments");
    for (int i = 0; i < graph->argument_count; i++)
        weft_i_text_put(s, "%s %%%d", i ? "," : "", graph->inputs[graph->arguments[i]].value);
    weft_i_text_put(s, "\n");
}

static void put_graph(weft_i_text *s, const weft_graph *graph)
{
    weft_i_text_put(s, "graph ");
    put_string(s, graph->name);
    weft_i_text_put(s, " {\n");
    for (int i = 0; i < graph->input_count; i++)
        put_input(s, graph, i);
    put_arguments(s, graph);
    for (int i = 0; i < graph->constant_count; i++)
        put_constant(s, graph, &graph->constants[i]);
    for (int i = 0; i < graph->node_count; i++)
        put_node(s, graph, &graph->nodes[i]);
    weft_i_text_put(s, "  output");
    for (int i = 0; i < graph->output_count; i++) {
        weft_i_text_put(s, i ? ", " : " ");
        put_value(s, graph->outputs[i]);
    }
    weft_i_text_put(s, "\n}\n");
}

int weft_graph_text(const weft_graph *graph, char *out, size_t bytes)
{
    weft_i_text s = {.out = out, .room = bytes};
    if (!graph)
        return weft_i_missing("weft_graph_text: the graph is NULL");
    if (bytes && !out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_graph_text: %zu bytes at NULL", bytes);
    if (bytes)
        out[0] = 0;
    put_graph(&s, graph);
    return (int)s.used;
}

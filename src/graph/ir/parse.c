/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a graph's text (text.c).  Every line is called on fakes as it is read, so that what comes
 * out is a graph whose calls passed the rows' own checks; their errors get the line's number.
 */
#include "base/os/os.h"
#include "base/share/dtype.h"
#include "graph/ir/lexer.h"
#include "graph/ir/trace.h"
#include "tensor/op/ops.h"
#include "weft/coll.h"

#include <stdio.h>
#include <string.h>

typedef struct parser {
    weft_i_lexer lexer;
    weft_i_trace trace;
    /* Of each value: a fake that is it and nothing later, and the first value that is the same
     * tensor; stale: that tensor has another storage now. */
    struct entry {
        weft_tensor *x;
        int root;
        bool stale;
    } * values;
    int count, room;
    bool nodes; /* a node was read: no inputs or constants any more */
} parser;

/* An error that a row or the memory decided, with the line in front. */
static void explain(parser *p)
{
    if (p->lexer.status >= 0)
        p->lexer.status = weft_i_explain(weft_last_status(), "graph text, line %d", p->lexer.line);
}

static void *room_for(parser *p, size_t bytes)
{
    void *at = weft_i_graph_alloc(p->trace.graph, bytes);
    if (!at)
        explain(p);
    return at;
}

static void add_entry(parser *p, weft_tensor *x, int root)
{
    if (p->count == p->room) {
        int room = p->room ? 2 * p->room : 64;
        struct entry *more = WEFT_OS->resize(p->values, (size_t)room * sizeof *more);
        if (!more) {
            weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d values", room);
            explain(p);
            return;
        }
        p->values = more;
        p->room = room;
    }
    p->values[p->count] = (struct entry){.x = x, .root = root < 0 ? p->count : root};
    p->count++;
}

/* The fake of "%7", or NULL for "none" and on errors. */
static weft_tensor *read_value(parser *p, int *number)
{
    int value = weft_i_lexer_value(&p->lexer);
    *number = value;
    if (value < 0 || p->lexer.status < 0)
        return NULL;
    if (value >= p->count || !p->values[value].x)
        weft_i_lexer_fail(&p->lexer, "%%%d is not known here", value);
    else if (p->values[value].stale)
        weft_i_lexer_fail(&p->lexer, "%%%d was given another storage before", value);
    return p->lexer.status < 0 ? NULL : p->values[value].x;
}

/* ---- arguments ---- */

static int64_t read_dtype(parser *p)
{
    char word[WEFT_I_WORD];
    weft_i_lexer_word(&p->lexer, word);
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++)
        if (!strcmp(weft_dtype_name((weft_dtype)i), word))
            return i;
    weft_i_lexer_fail(&p->lexer, "\"%s\" is not a dtype", word);
    return 0;
}

static weft_device read_device(parser *p)
{
    char word[WEFT_I_WORD], rest;
    int index;
    weft_i_lexer_word(&p->lexer, word);
    if (!strcmp(word, "cpu"))
        return WEFT_CPU;
    if (!strcmp(word, "meta"))
        return WEFT_META;
    if (sscanf(word, "cuda:%d%c", &index, &rest) == 1 && index >= 0 && index < 0x10000)
        return WEFT_CUDA(index);
    weft_i_lexer_fail(&p->lexer, "\"%s\" is not a device", word);
    return WEFT_CPU;
}

static int64_t read_reduction(parser *p)
{
    char word[WEFT_I_WORD];
    weft_i_lexer_word(&p->lexer, word);
    for (int i = 0; i < WEFT_REDUCTIONS; i++)
        if (!strcmp(weft_reduction_name((weft_reduction)i), word))
            return i;
    weft_i_lexer_fail(&p->lexer, "\"%s\" is not a reduction", word);
    return 0;
}

static int64_t read_integer(parser *p, char letter)
{
    switch (letter) {
    case 'b':
        return weft_i_lexer_take(&p->lexer, "true")    ? 1
               : weft_i_lexer_take(&p->lexer, "false") ? 0
                                                       : weft_i_lexer_integer(&p->lexer);
    case 'd':
        return read_dtype(p);
    case 'v':
        return read_device(p);
    case 'p':
        return read_reduction(p);
    default:
        return weft_i_lexer_integer(&p->lexer);
    }
}

static weft_i_arg read_integers(parser *p)
{
    int64_t *read = NULL, *kept = NULL;
    size_t count = weft_i_lexer_integers(&p->lexer, &read);
    if (p->lexer.status >= 0 && (kept = room_for(p, count * sizeof *kept)) && count)
        memcpy(kept, read, count * sizeof *kept);
    WEFT_OS->free(read);
    return WEFT_I_INTEGERS_ARG(kept, p->lexer.status < 0 ? 0 : count);
}

static weft_i_arg read_group(parser *p)
{
    char word[WEFT_I_WORD];
    weft_i_lexer_string(&p->lexer, word);
    weft_i_lexer_expect(&p->lexer, "/");
    int64_t size = weft_i_lexer_integer(&p->lexer);
    if (size < 1 || size > INT32_MAX)
        weft_i_lexer_fail(&p->lexer, "a group of %lld ranks", (long long)size);
    char *name = p->lexer.status < 0 ? NULL : room_for(p, strlen(word) + 1);
    if (name)
        strcpy(name, word);
    return WEFT_I_GROUP_ARG(NULL, name ? name : "", size);
}

static weft_i_arg read_named(parser *p, char letter)
{
    switch (letter) {
    case 'n':
        return WEFT_I_NUMBER_ARG(weft_i_lexer_number(&p->lexer));
    case 'I':
        return read_integers(p);
    case 'g':
        return read_group(p);
    default:
        return WEFT_I_INTEGER_ARG(read_integer(p, letter));
    }
}

/* "[%1, none]" */
static weft_i_arg read_list(parser *p)
{
    weft_tensor **list = NULL;
    size_t count = 0, most = 0;
    int number;
    weft_i_lexer_expect(&p->lexer, "[");
    for (const char *at = p->lexer.at; *at && *at != ']' && *at != '\n'; at++)
        most += *at == ',';
    if (p->lexer.status >= 0)
        list = room_for(p, (most + 1) * sizeof *list);
    while (p->lexer.status >= 0 && !weft_i_lexer_take(&p->lexer, "]")) {
        if (count)
            weft_i_lexer_expect(&p->lexer, ",");
        if (count > most)
            weft_i_lexer_fail(&p->lexer, "a list does not end");
        else
            list[count++] = read_value(p, &number);
    }
    return WEFT_I_TENSORS_ARG(list, p->lexer.status < 0 ? 0 : count);
}

static weft_i_arg read_positional(parser *p, char letter)
{
    int number;
    weft_i_lexer_skip(&p->lexer);
    if (strchr("lLm", letter))
        return read_list(p);
    if (letter == 's' && *p->lexer.at != '%')
        return WEFT_I_NUMBER_ARG(weft_i_lexer_number(&p->lexer));
    weft_tensor *x = read_value(p, &number);
    return WEFT_I_OPTIONAL_ARG(x);
}

/* ---- nodes ---- */

typedef struct reading {
    const weft_i_op *op;
    weft_i_arg args[WEFT_I_OP_ARGS];
    bool given[WEFT_I_OP_ARGS];
    weft_tensor *into;
    int into_value;
    bool quiet;
    int *results; /* numbers as they stand there; -1: absent */
    int count;
} reading;

static bool is_positional(char letter)
{
    return strchr("tywroslLm", letter) != NULL;
}

static int param_called(const weft_i_op *op, const char *word)
{
    for (int i = 0; i < op->arity; i++) {
        int length;
        const char *name = weft_i_op_param_name(op, i, &length);
        if (!is_positional(op->kinds[i]) && strlen(word) == (size_t)length &&
            !strncmp(name, word, (size_t)length))
            return i;
    }
    return -1;
}

static void read_named_args(parser *p, reading *r)
{
    char word[WEFT_I_WORD];
    while (!weft_i_lexer_is_end(&p->lexer)) {
        weft_i_lexer_word(&p->lexer, word);
        if (p->lexer.status < 0)
            return;
        if (!strcmp(word, "quiet")) {
            r->quiet = true;
            continue;
        }
        weft_i_lexer_expect(&p->lexer, "=");
        if (!strcmp(word, "into")) {
            r->into = read_value(p, &r->into_value);
            continue;
        }
        int i = param_called(r->op, word);
        if (i < 0 || r->given[i])
            weft_i_lexer_fail(&p->lexer, "%s: argument %s is %s", r->op->name, word,
                              i < 0 ? "none of its own" : "given twice");
        else {
            r->args[i] = read_named(p, r->op->kinds[i]);
            r->given[i] = true;
        }
    }
}

/* Rows take for granted that an argument which is no optional one is there. */
static void read_operand(parser *p, reading *r, int i)
{
    int length;
    const char *name = weft_i_op_param_name(r->op, i, &length);
    r->args[i] = read_positional(p, r->op->kinds[i]);
    r->given[i] = true;
    if (p->lexer.status >= 0 && strchr("tywr", r->op->kinds[i]) && !r->args[i].tensor)
        weft_i_lexer_fail(&p->lexer, "%s: argument %.*s has the wrong kind: none, not a tensor",
                          r->op->name, length, name);
}

static void read_args(parser *p, reading *r)
{
    for (int i = 0; i < r->op->arity; i++)
        if (is_positional(r->op->kinds[i]))
            read_operand(p, r, i);
    read_named_args(p, r);
    for (int i = 0; i < r->op->arity; i++)
        if (!r->given[i]) {
            int length;
            const char *name = weft_i_op_param_name(r->op, i, &length);
            weft_i_lexer_fail(&p->lexer, "%s: argument %.*s is missing", r->op->name, length, name);
        }
}

/* Result k has the number that comes next. */
static void check_result(parser *p, const reading *r, int k)
{
    int number = r->results[k], next = p->trace.graph->value_count - r->count + k;
    if (number >= 0 && number != next)
        weft_i_lexer_fail(&p->lexer, "%%%d is made where %%%d comes next", number, next);
    if ((number < 0) != p->trace.graph->values[next].absent)
        weft_i_lexer_fail(&p->lexer, "%s: result %d is %s", r->op->name, k,
                          number < 0 ? "made, not _" : "not made, so it is _");
}

/* All values that are this tensor lose their storage to another. */
static void make_stale(parser *p, int root)
{
    for (int i = 0; i < p->count; i++)
        p->values[i].stale |= p->values[i].root == root;
}

/* A tensor that was changed: the value it was keeps its fake, the new one gets another. */
static void add_changed(parser *p, const reading *r, weft_tensor *x, int was)
{
    int value = (int)x->node;
    if (r->op == &weft_i_op_set)
        make_stale(p, p->values[was].root);
    weft_tensor *alias = weft_i_tensor_new_view(x->storage, x->version, x->dtype,
                                                weft_i_tensor_shape(x), x->stride, x->offset);
    x->node = was;
    if (!alias) {
        explain(p);
        return;
    }
    alias->node = value;
    add_entry(p, alias, p->values[was].root);
}

static void add_results(parser *p, const reading *r, weft_tensor *const *outs)
{
    const weft_i_graph_node *node = &p->trace.graph->nodes[p->trace.graph->node_count - 1];
    for (int k = 0; k < r->count && p->lexer.status >= 0; k++) {
        int was = weft_i_graph_node_same(node, k);
        check_result(p, r, k);
        if (p->lexer.status < 0)
            return;
        if (was >= 0)
            add_changed(p, r, outs[k], was);
        else
            add_entry(p, outs[k], -1);
    }
}

/* Calls the row and takes in what it gives. */
static void call_row(parser *p, reading *r)
{
    const weft_i_op *op = r->op;
    int count = op->flags & WEFT_I_OP_LIST ? (int)r->args[0].count
                : op->results > 1          ? op->results
                                           : 1;
    if (count != r->count) {
        weft_i_lexer_fail(&p->lexer, "%s: gives %d results, not %d", op->name, count, r->count);
        return;
    }
    weft_tensor *one, **outs = room_for(p, (size_t)count * sizeof *outs);
    weft_i_op_call call = {.op = op, .args = r->args, .into = r->into};
    if (!outs)
        return;
    if (op->flags & WEFT_I_OP_LIST || op->results > 1)
        call.outs = outs;
    weft_tensor *out = weft_i_trace_call(&p->trace, &call);
    if (!out) {
        explain(p);
        return;
    }
    one = out;
    p->trace.graph->nodes[p->trace.graph->node_count - 1].quiet = r->quiet;
    add_results(p, r, call.outs ? outs : &one);
}

static void read_node(parser *p, const char *name, int *results, int count)
{
    reading r = {.op = weft_i_op_find(name), .results = results, .count = count, .into_value = -1};
    if (!r.op) {
        weft_i_lexer_fail(&p->lexer, "there is no operation \"%s\"", name);
        return;
    }
    p->nodes = true;
    read_args(p, &r);
    if (p->lexer.status >= 0)
        call_row(p, &r);
}

/* ---- inputs and constants ---- */

/* "f32[2, 3]@meta" */
static void read_type(parser *p, weft_i_graph_value *value)
{
    value->dtype = (weft_dtype)read_dtype(p);
    weft_i_arg sizes = read_integers(p);
    if (sizes.count > WEFT_MAX_DIMS) {
        weft_i_lexer_fail(&p->lexer, "a tensor has at most %d dimensions", WEFT_MAX_DIMS);
        return;
    }
    value->shape.ndim = (int)sizes.count;
    if (sizes.count && p->lexer.status >= 0)
        memcpy(value->shape.dim, sizes.integers, sizes.count * sizeof(int64_t));
    value->device = weft_i_lexer_take(&p->lexer, "@") ? read_device(p) : WEFT_CPU;
    if (p->lexer.status >= 0 && weft_i_shape_check("type", value->dtype, value->shape, NULL) < 0)
        explain(p);
    if (p->lexer.status >= 0)
        weft_i_shape_strides(value->shape, value->stride);
}

static void read_strides(parser *p, weft_i_graph_value *value)
{
    weft_i_arg strides = read_integers(p);
    if (p->lexer.status >= 0 && strides.count != (size_t)value->shape.ndim)
        weft_i_lexer_fail(&p->lexer, "%zu strides for %d dimensions", strides.count,
                          value->shape.ndim);
    if (p->lexer.status >= 0 && strides.count)
        memcpy(value->stride, strides.integers, strides.count * sizeof(int64_t));
}

typedef struct sharing {
    weft_tensor *base, *counted;
    bool own, sized;
} sharing;

static void read_size(parser *p, weft_i_graph_value *value, sharing *with)
{
    int64_t bytes = weft_i_lexer_integer(&p->lexer);
    if (bytes < 0)
        weft_i_lexer_fail(&p->lexer, "a storage of %lld bytes", (long long)bytes);
    value->bytes = (size_t)bytes;
    with->sized = true;
}

static void read_attribute(parser *p, const char *word, weft_i_graph_value *value,
                           weft_i_graph_input *input, sharing *with)
{
    int number;
    bool flag = !strcmp(word, "grad") || !strcmp(word, "parameter") || !strcmp(word, "free");
    if (!flag)
        weft_i_lexer_expect(&p->lexer, "=");
    if (!strcmp(word, "grad"))
        input->flags |= WEFT_I_INPUT_GRAD;
    else if (!strcmp(word, "parameter"))
        input->flags |= WEFT_I_INPUT_PARAMETER;
    else if (!strcmp(word, "free"))
        input->flags |= WEFT_I_INPUT_FREE;
    else if (!strcmp(word, "strides"))
        read_strides(p, value);
    else if (!strcmp(word, "offset"))
        value->offset = weft_i_lexer_integer(&p->lexer);
    else if (!strcmp(word, "bytes"))
        read_size(p, value, with);
    else if (!strcmp(word, "storage"))
        with->base = read_value(p, &number);
    else if (!strcmp(word, "counter")) {
        with->own = weft_i_lexer_take(&p->lexer, "own");
        with->counted = with->own ? NULL : read_value(p, &number);
    } else
        weft_i_lexer_fail(&p->lexer, "an input has no \"%s\"", word);
}

/* As many bytes as the elements need, unless the text said it. */
static void measure(parser *p, weft_i_graph_value *value)
{
    weft_tensor layout = {.dtype = value->dtype, .ndim = value->shape.ndim};
    if (p->lexer.status < 0)
        return;
    if (value->offset < 0 || value->offset > INT64_MAX / 64 ||
        weft_i_shape_check("input", value->dtype, value->shape, value->stride) < 0) {
        weft_i_lexer_fail(&p->lexer, "this layout is not possible");
        return;
    }
    memcpy(layout.dim, value->shape.dim, sizeof layout.dim);
    memcpy(layout.stride, value->stride, sizeof layout.stride);
    weft_i_tensor_measure(&layout);
    value->bytes =
        layout.end ? layout.end + (size_t)value->offset * weft_dtype_size(value->dtype) : 0;
}

static void read_input(parser *p)
{
    char name[WEFT_I_WORD], word[WEFT_I_WORD];
    weft_i_graph_value value = {.node = -1};
    weft_i_graph_input input = {.name = name};
    sharing with = {0};
    weft_i_lexer_string(&p->lexer, name);
    read_type(p, &value);
    while (!weft_i_lexer_is_end(&p->lexer)) {
        weft_i_lexer_word(&p->lexer, word);
        if (p->lexer.status >= 0)
            read_attribute(p, word, &value, &input, &with);
    }
    size_t said = value.bytes;
    measure(p, &value);
    if (with.sized)
        value.bytes = said;
    if (p->lexer.status < 0)
        return;
    if (with.base && !with.counted && !with.own)
        with.counted = with.base;
    weft_tensor *x = weft_i_trace_input(&p->trace, &value, with.base, with.counted, &input);
    if (x)
        add_entry(p, x, -1);
    else
        explain(p);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The bytes of a constant, two digits each. */
static void read_bytes(parser *p, unsigned char *out, size_t count)
{
    for (size_t i = 0; i < count; i++, p->lexer.at += 2)
        out[i] = (unsigned char)(hex_digit(p->lexer.at[0]) * 16 + hex_digit(p->lexer.at[1]));
}

static void read_constant(parser *p)
{
    weft_i_graph_value value = {.node = -1};
    read_type(p, &value);
    weft_i_lexer_skip(&p->lexer);
    if (p->lexer.status < 0)
        return;
    if (strncmp(p->lexer.at, "0x", 2) != 0) {
        weft_i_lexer_fail(&p->lexer, "expected the bytes of a constant, 0x and digits");
        return;
    }
    p->lexer.at += 2;
    size_t digits = strspn(p->lexer.at, "0123456789abcdef");
    size_t bytes = (size_t)weft_i_shape_numel(value.shape) * weft_dtype_size(value.dtype);
    if (digits % 2 || digits / 2 != bytes || value.device != WEFT_CPU) {
        weft_i_lexer_fail(&p->lexer,
                          "a constant of %zu bytes on the CPU has as many digits twice, "
                          "not %zu",
                          bytes, digits);
        return;
    }
    weft_tensor *tensor = weft_i_tensor_new(value.dtype, WEFT_CPU, value.shape, NULL);
    if (tensor)
        read_bytes(p, (unsigned char *)weft_i_tensor_data(tensor), bytes);
    weft_tensor *x = tensor ? weft_i_trace_constant(&p->trace, tensor) : NULL;
    if (x)
        add_entry(p, x, -1);
    else
        explain(p);
}

/* ---- lines ---- */

/* "%1, _ ="; returns how many, in memory of the graph. */
static int read_results(parser *p, int **out)
{
    size_t most = 1;
    for (const char *at = p->lexer.at; *at && *at != '=' && *at != '\n'; at++)
        most += *at == ',';
    int *results = room_for(p, most * sizeof *results);
    size_t count = 0;
    do {
        if (p->lexer.status < 0 || count == most)
            break;
        results[count++] = weft_i_lexer_take(&p->lexer, "_") ? -1 : weft_i_lexer_value(&p->lexer);
    } while (weft_i_lexer_take(&p->lexer, ","));
    weft_i_lexer_expect(&p->lexer, "=");
    *out = results;
    return (int)count;
}

static void read_statement(parser *p)
{
    int *results = NULL, count = read_results(p, &results);
    char word[WEFT_I_WORD];
    weft_i_lexer_word(&p->lexer, word);
    if (p->lexer.status < 0)
        return;
    bool input = !strcmp(word, "input"), constant = !strcmp(word, "constant");
    if (!input && !constant) {
        read_node(p, word, results, count);
        return;
    }
    if (p->nodes || (input && p->trace.graph->constant_count))
        weft_i_lexer_fail(&p->lexer, "inputs come first, then constants, then operations");
    else if (count != 1 || results[0] != p->count)
        weft_i_lexer_fail(&p->lexer, "this is %%%d", p->count);
    else if (input)
        read_input(p);
    else
        read_constant(p);
}

/* "%1, %2" up to the end of the line: values as numbers, in memory of the graph. */
static int read_values(parser *p, int **out)
{
    size_t most = 1, count = 0;
    for (const char *at = p->lexer.at; *at && *at != '\n'; at++)
        most += *at == ',';
    *out = room_for(p, most * sizeof **out);
    while (!weft_i_lexer_is_end(&p->lexer) && count < most) {
        int number;
        if (count)
            weft_i_lexer_expect(&p->lexer, ",");
        if (!read_value(p, &number))
            weft_i_lexer_fail(&p->lexer, "expected a value");
        else
            (*out)[count++] = number;
    }
    return (int)count;
}

static void set_arguments(parser *p, const int *values, int count)
{
    weft_graph *graph = p->trace.graph;
    int *inputs = p->lexer.status < 0 ? NULL : room_for(p, (size_t)count * sizeof *inputs);
    for (int i = 0; inputs && i < count; i++) {
        inputs[i] = values[i];
        if (values[i] >= graph->input_count)
            weft_i_lexer_fail(&p->lexer, "%%%d is no input", values[i]);
    }
    if (p->lexer.status >= 0 && weft_i_graph_set_arguments(graph, inputs, count) < 0)
        explain(p);
}

/* Those inputs that were not found elsewhere. */
static void set_plain_arguments(parser *p)
{
    weft_graph *graph = p->trace.graph;
    int *inputs = room_for(p, (size_t)graph->input_count * sizeof *inputs), count = 0;
    for (int i = 0; inputs && i < graph->input_count; i++)
        if (!(graph->inputs[i].flags & WEFT_I_INPUT_FREE))
            inputs[count++] = i;
    if (inputs)
        set_arguments(p, inputs, count);
}

/* Returns the outputs' count, or -1. */
static int read_body(parser *p, int **outputs)
{
    int *values = NULL;
    bool listed = false;
    for (;;) {
        weft_i_lexer_end_line(&p->lexer);
        if (p->lexer.status < 0)
            return -1;
        if (weft_i_lexer_take(&p->lexer, "output"))
            break;
        if (weft_i_lexer_take(&p->lexer, "arguments")) {
            int count = read_values(p, &values);
            set_arguments(p, values, count);
            listed = true;
        } else
            read_statement(p);
        if (p->lexer.status >= 0 && !*p->lexer.at)
            weft_i_lexer_fail(&p->lexer, "the graph has no output line");
    }
    int count = read_values(p, outputs);
    weft_i_lexer_end_line(&p->lexer);
    weft_i_lexer_expect(&p->lexer, "}");
    weft_i_lexer_end_line(&p->lexer);
    if (p->lexer.status >= 0 && *p->lexer.at)
        weft_i_lexer_fail(&p->lexer, "something stands behind the graph");
    if (p->lexer.status >= 0 && !listed)
        set_plain_arguments(p);
    return p->lexer.status < 0 ? -1 : count;
}

static weft_graph *read_graph(parser *p)
{
    char name[WEFT_I_WORD];
    int *outputs = NULL;
    while (*p->lexer.at == '\n' || *p->lexer.at == '#')
        weft_i_lexer_end_line(&p->lexer);
    weft_i_lexer_expect(&p->lexer, "graph");
    weft_i_lexer_string(&p->lexer, name);
    weft_i_lexer_expect(&p->lexer, "{");
    if (p->lexer.status < 0 || weft_i_trace_begin(&p->trace, name) < 0)
        return NULL;
    int count = read_body(p, &outputs);
    weft_graph *graph = count < 0 ? NULL : weft_i_trace_end(&p->trace, outputs, count);
    if (p->trace.graph)
        weft_i_trace_abandon(&p->trace);
    return graph;
}

weft_graph *weft_graph_parse(const char *text)
{
    parser p = {.lexer = {.at = text, .line = 1}};
    if ((!text && weft_i_missing("weft_graph_parse: the text is NULL") < 0) ||
        weft_scope_open() < 0)
        return NULL;
    weft_graph *graph = weft_keep(read_graph(&p));
    weft_scope_close();
    WEFT_OS->free(p.values);
    return graph ? weft_i_object_scope(graph) : NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as data: making room, holding, and what is asked of a node; see graph.h. */
#include "graph/ir/graph.h"

#include "base/os/assert.h"
#include "base/os/os.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096, ALIGNMENT = 16 };

struct weft_i_graph_chunk {
    weft_i_graph_chunk *next;
    size_t used, room;
    _Alignas(ALIGNMENT) char bytes[];
};

static void destroy(weft_i_object *object)
{
    weft_graph *graph = (weft_graph *)object;
    for (int i = 0; i < graph->constant_count; i++)
        weft_i_object_drop(graph->constants[i].tensor);
    for (int i = 0; i < graph->input_count; i++)
        weft_i_object_drop(graph->inputs[i].tensor);
    for (int i = 0; i < graph->held_count; i++)
        weft_i_object_drop(graph->held[i]);
    for (weft_i_graph_chunk *chunk = graph->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        WEFT_OS->free(chunk);
    }
    WEFT_OS->free(graph->values);
    WEFT_OS->free(graph->nodes);
    WEFT_OS->free(graph->inputs);
    WEFT_OS->free(graph->constants);
    WEFT_OS->free(graph->held);
    weft_i_object_free(object);
}

weft_graph *weft_i_graph_new(const char *name)
{
    weft_graph *graph = weft_i_object_new(WEFT_I_GRAPH, sizeof *graph, destroy);
    if (graph && !(graph->name = weft_i_graph_string(graph, name))) {
        weft_release(graph);
        return NULL;
    }
    return graph;
}

static void *no_memory(size_t bytes)
{
    return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of a graph", bytes);
}

void *weft_i_graph_alloc(weft_graph *graph, size_t bytes)
{
    size_t need = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    weft_i_graph_chunk *chunk = graph->chunks;
    if (!chunk || chunk->room - chunk->used < need) {
        size_t room = need > CHUNK ? need : CHUNK;
        if (bytes > SIZE_MAX / 2 || !(chunk = WEFT_OS->alloc(sizeof *chunk + room)))
            return no_memory(bytes);
        chunk->room = room;
        chunk->next = graph->chunks;
        graph->chunks = chunk;
    }
    WEFT_ASSERT(chunk->room - chunk->used >= need);
    void *at = chunk->bytes + chunk->used;
    chunk->used += need;
    return at;
}

void *weft_i_graph_copy(weft_graph *graph, const void *bytes, size_t count)
{
    void *copy = weft_i_graph_alloc(graph, count);
    if (copy && count)
        memcpy(copy, bytes, count);
    return copy;
}

const char *weft_i_graph_string(weft_graph *graph, const char *text)
{
    return weft_i_graph_copy(graph, text, strlen(text) + 1);
}

weft_status weft_i_graph_add_notes(weft_graph *graph, const char *more)
{
    const char *was = graph->notes ? graph->notes : "";
    size_t length = strlen(was);
    char *notes = weft_i_graph_alloc(graph, length + strlen(more) + 1);
    if (!notes)
        return weft_last_status();
    memcpy(notes, was, length);
    strcpy(notes + length, more);
    graph->notes = notes;
    return WEFT_OK;
}

weft_status weft_i_graph_write_notes(weft_graph *graph,
                                     void (*put)(weft_i_text *s, const void *about),
                                     const void *about)
{
    weft_i_text s = {NULL, 0, 0};
    put(&s, about);
    s.room = s.used + 1;
    s.used = 0;
    if (!(s.out = weft_i_graph_alloc(graph, s.room)))
        return weft_last_status();
    put(&s, about);
    graph->notes = s.out;
    return WEFT_OK;
}

typedef struct renumbering {
    const char *notes;
    int (*number_of)(const void *about, int value);
    const void *about;
} renumbering;

static void put_renumbered(weft_i_text *s, const void *about)
{
    const renumbering *r = about;
    char *end;
    for (const char *at = r->notes, *next; *at; at = next) {
        next = at + 1 + strcspn(at + 1, "%");
        bool value = *at == '%' && at[1] >= '0' && at[1] <= '9';
        int number = value ? r->number_of(r->about, (int)strtol(at + 1, &end, 10)) : -1;
        if (value)
            weft_i_text_put(s, number < 0 ? "(no longer there)" : "%%%d", number);
        at = value ? end : at;
        weft_i_text_put(s, "%.*s", (int)(next - at), at);
    }
}

weft_status weft_i_graph_renumber_notes(weft_graph *graph,
                                        int (*number_of)(const void *about, int value),
                                        const void *about)
{
    renumbering r = {graph->notes, number_of, about};
    return r.notes ? weft_i_graph_write_notes(graph, put_renumbered, &r) : WEFT_OK;
}

/* Room for one more of `size` bytes behind `count` of them. */
static weft_status grow(void *array, int count, int *room, size_t size)
{
    WEFT_ASSERT(count >= 0 && count <= *room);
    void **at = array;
    if (count < *room)
        return WEFT_OK;
    int more = *room ? *room * 2 : 16;
    void *bigger = WEFT_OS->resize(*at, (size_t)more * size);
    if (!bigger) {
        no_memory((size_t)more * size);
        return WEFT_ERR_NO_MEMORY;
    }
    *at = bigger;
    *room = more;
    return WEFT_OK;
}

int weft_i_graph_add_value(weft_graph *graph, const weft_i_graph_value *value)
{
    if (grow(&graph->values, graph->value_count, &graph->value_room, sizeof *value) < 0)
        return -1;
    graph->values[graph->value_count] = *value;
    return graph->value_count++;
}

int weft_i_graph_add_node(weft_graph *graph, const weft_i_graph_node *node)
{
    if (grow(&graph->nodes, graph->node_count, &graph->node_room, sizeof *node) < 0)
        return -1;
    WEFT_ASSERT(node->op);
    graph->nodes[graph->node_count] = *node;
    return graph->node_count++;
}

int weft_i_graph_add_input(weft_graph *graph, const weft_i_graph_input *input)
{
    const char *name = weft_i_graph_string(graph, input->name);
    if (!name || grow(&graph->inputs, graph->input_count, &graph->input_room, sizeof *input) < 0)
        return -1;
    graph->inputs[graph->input_count] = *input;
    graph->inputs[graph->input_count].name = name;
    weft_i_object_hold(input->tensor);
    return graph->input_count++;
}

int weft_i_graph_add_constant(weft_graph *graph, weft_tensor *tensor, int value)
{
    if (grow(&graph->constants, graph->constant_count, &graph->constant_room,
             sizeof *graph->constants) < 0)
        return -1;
    WEFT_ASSERT(value >= 0 && value < graph->value_count && graph->values[value].node < 0);
    graph->constants[graph->constant_count] =
        (weft_i_graph_constant){weft_i_object_hold(tensor), value};
    return graph->constant_count++;
}

weft_status weft_i_graph_hold(weft_graph *graph, void *group)
{
    for (int i = 0; i < graph->held_count; i++)
        if (graph->held[i] == group)
            return WEFT_OK;
    WEFT_TRY(grow(&graph->held, graph->held_count, &graph->held_room, sizeof *graph->held));
    graph->held[graph->held_count++] = weft_i_object_hold(group);
    return WEFT_OK;
}

weft_status weft_i_graph_set_outputs(weft_graph *graph, const int *values, int count)
{
    int *copy = weft_i_graph_copy(graph, values, (size_t)count * sizeof *values);
    if (!copy)
        return weft_last_status();
    graph->outputs = copy;
    graph->output_count = count;
    return WEFT_OK;
}

weft_status weft_i_graph_set_arguments(weft_graph *graph, const int *inputs, int count)
{
    int *copy = weft_i_graph_copy(graph, inputs, (size_t)count * sizeof *inputs);
    if (!copy)
        return weft_last_status();
    graph->arguments = copy;
    graph->argument_count = count;
    return WEFT_OK;
}

bool weft_i_graph_node_next(const weft_i_graph_node *node, size_t *at, int *value)
{
    size_t seen = 0;
    for (int i = 0; i < node->op->arity; i++) {
        const weft_i_graph_term *term = &node->terms[i];
        size_t count = term->kind == WEFT_I_ARG_TENSOR    ? 1
                       : term->kind == WEFT_I_ARG_TENSORS ? term->count
                                                          : 0;
        for (size_t k = 0; k < count; k++) {
            if (seen++ < *at)
                continue;
            ++*at;
            *value = term->kind == WEFT_I_ARG_TENSOR ? term->value : term->values[k];
            if (*value >= 0)
                return true;
        }
    }
    if (node->into < 0 || *at > seen)
        return false;
    *at = seen + 1;
    *value = node->into;
    return true;
}

int weft_i_graph_node_same(const weft_i_graph_node *node, int k)
{
    if (node->into >= 0)
        return node->into;
    if (!node->op->changes)
        return -1;
    return node->op->changes == 'm' ? node->terms[0].values[k] : node->terms[0].value;
}

bool weft_i_graph_node_is_draw(const weft_i_graph_node *node)
{
    return node->op->flags & WEFT_I_OP_RANDOM && (node->op->changes || node->op->arity == 0);
}

bool weft_i_graph_node_has_effect(const weft_i_graph_node *node)
{
    return node->op->flags & WEFT_I_OP_EFFECT || weft_i_graph_node_is_draw(node);
}

const weft_i_graph_term *weft_i_graph_node_group(const weft_i_graph_node *node)
{
    if (node->op->flags & WEFT_I_OP_LAYOUT) /* what it has is an object's name */
        return NULL;
    for (int i = 0; i < node->op->arity; i++)
        if (node->terms[i].kind == WEFT_I_ARG_GROUP)
            return &node->terms[i];
    return NULL;
}

bool weft_i_graph_node_is_collective(const weft_i_graph_node *node)
{
    return weft_i_graph_node_group(node) != NULL;
}

int weft_i_graph_node_symmetric(const weft_i_graph_node *node, int from)
{
    for (int i = from; i < node->op->arity; i++)
        if (node->op->kinds[i] == 'y')
            return i;
    return -1;
}

bool weft_i_graph_node_is_posted(const weft_i_graph_node *node)
{
    return weft_i_graph_node_is_collective(node) && weft_i_graph_node_symmetric(node, 0) < 0 &&
           !(node->op->flags & WEFT_I_OP_PLACED);
}

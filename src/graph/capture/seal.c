/* SPDX-License-Identifier: Apache-2.0 */
/* See seal.h. */
#include "graph/capture/seal.h"

#include "base/os/os.h"
#include "tensor/object/device.h"

#include <string.h>

static uint64_t mixed(uint64_t seal, uint64_t more)
{
    seal = (seal ^ more) * 0x9e3779b97f4a7c15u;
    return seal ^ seal >> 32;
}

static uint64_t mixed_bytes(uint64_t seal, const void *at, size_t bytes)
{
    const unsigned char *from = at;
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), from += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        seal = mixed(seal, word);
    }
    for (; bytes; bytes--)
        seal = mixed(seal, *from++);
    return seal;
}

/* Groups count by their names: an opaque hook is another object in each capture. */
static uint64_t seal_term(uint64_t seal, const weft_i_graph_term *term)
{
    seal = mixed(seal, (uint64_t)term->kind << 32 | term->count);
    switch (term->kind) {
    case WEFT_I_ARG_TENSOR:
        return mixed(seal, (uint64_t)term->value);
    case WEFT_I_ARG_TENSORS:
        return mixed_bytes(seal, term->values, term->count * sizeof *term->values);
    case WEFT_I_ARG_NUMBER:
        return mixed_bytes(seal, &term->number, sizeof term->number);
    case WEFT_I_ARG_INTEGER:
        return mixed(seal, (uint64_t)term->integer);
    case WEFT_I_ARG_INTEGERS:
        return mixed_bytes(seal, term->integers, term->count * sizeof *term->integers);
    case WEFT_I_ARG_GROUP:
        return mixed_bytes(seal, term->group.name, strlen(term->group.name));
    case WEFT_I_ARG_NONE:
        return seal;
    }
    return seal;
}

static uint64_t seal_node(const weft_i_graph_node *node)
{
    uint64_t seal = mixed((uint64_t)(uintptr_t)node->op, (uint64_t)node->into << 1 | node->quiet);
    for (int i = 0; i < node->op->arity; i++)
        seal = seal_term(seal, &node->terms[i]);
    return seal;
}

static uint64_t seal_rest(const weft_graph *graph, const int *outputs, int outs)
{
    uint64_t seal = (uint64_t)outs;
    for (int i = 0; i < graph->input_count; i++)
        if (graph->inputs[i].flags & WEFT_I_INPUT_FREE)
            seal = mixed(seal, (uint64_t)(uintptr_t)graph->inputs[i].tensor);
    for (int i = 0; i < graph->constant_count; i++) {
        const weft_tensor *x = graph->constants[i].tensor;
        const char *data = x->storage->data;
        if (data && weft_i_device_is_host(x->storage->device) && x->packed)
            seal = mixed_bytes(seal, data + x->offset * (int64_t)weft_i_dtype_size(x->dtype),
                               (size_t)x->numel * weft_i_dtype_size(x->dtype));
    }
    for (int i = 0; i < outs; i++)
        seal = mixed(seal, (uint64_t)outputs[i]);
    return seal;
}

weft_status weft_i_seal_make(const weft_graph *graph, int nodes, const int *outputs, int outs,
                             weft_i_seal *seal)
{
    seal->count = nodes;
    if (!(seal->calls = WEFT_OS->alloc(((size_t)nodes + 1) * sizeof *seal->calls)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the seal of %d calls", nodes);
    for (int i = 0; i < nodes; i++)
        seal->calls[i] = seal_node(&graph->nodes[i]);
    seal->rest = seal_rest(graph, outputs, outs);
    return WEFT_OK;
}

void weft_i_seal_clear(weft_i_seal *seal)
{
    WEFT_OS->free(seal->calls);
    *seal = (weft_i_seal){0};
}

bool weft_i_seal_equal(const weft_i_seal *a, const weft_i_seal *b, int *call)
{
    int both = a->count < b->count ? a->count : b->count;
    for (*call = 0; *call < both; ++*call)
        if (a->calls[*call] != b->calls[*call])
            return false;
    if (a->count != b->count)
        return false;
    *call = -1;
    return a->rest == b->rest;
}

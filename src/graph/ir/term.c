/* SPDX-License-Identifier: Apache-2.0 */
/* Terms of nodes as arguments of calls. */
#include "graph/ir/graph.h"

#include "base/report/status.h"

typedef weft_tensor *(*value_of)(void *self, int value);

static weft_status read_list(weft_graph *graph, const weft_i_graph_term *term, value_of find,
                             void *self, weft_i_arg *arg)
{
    weft_tensor **list = weft_i_graph_alloc(graph, term->count * sizeof *list);
    if (!list)
        return weft_last_status();
    for (size_t i = 0; i < term->count; i++)
        if (term->values[i] >= 0 && !(list[i] = find(self, term->values[i])))
            return weft_last_status();
    arg->tensors = list;
    return WEFT_OK;
}

weft_status weft_i_graph_read_term(weft_graph *graph, const weft_i_graph_term *term, value_of find,
                                   void *self, weft_i_arg *arg)
{
    *arg = (weft_i_arg){.kind = term->kind, .count = term->count};
    switch (term->kind) {
    case WEFT_I_ARG_TENSOR:
        arg->tensor = find(self, term->value);
        return arg->tensor ? WEFT_OK : weft_last_status();
    case WEFT_I_ARG_TENSORS:
        return read_list(graph, term, find, self, arg);
    case WEFT_I_ARG_NUMBER:
        arg->number = term->number;
        break;
    case WEFT_I_ARG_INTEGER:
        arg->integer = term->integer;
        break;
    case WEFT_I_ARG_INTEGERS:
        arg->integers = term->integers;
        break;
    case WEFT_I_ARG_GROUP:
        arg->group.name = term->group.name;
        arg->group.handle = term->group.handle;
        break;
    case WEFT_I_ARG_NONE:
        break;
    }
    return WEFT_OK;
}

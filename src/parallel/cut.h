/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A module that a plan has changed: which of its parameters are cut, what its values are, and which
 * gradients are added up over the ranks.
 */
#ifndef WEFT_PARALLEL_CUT_H
#define WEFT_PARALLEL_CUT_H

#include "nn/module.h"
#include "weft/parallel.h"

/* A hook that adds up the gradients of a parameter that all ranks have, of parts of a sequence. */
typedef struct weft_i_summed {
    char key[WEFT_I_NAME_PART];
    weft_tensor *param; /* held */
    int64_t hook;
} weft_i_summed;

typedef struct weft_i_cut_layer {
    weft_i_object head;
    weft_group *group; /* held */
    weft_plan_style style;
    weft_flow in, out;
    int sequence;    /* the dimension of values that is cut with WEFT_FLOW_SEQUENCE */
    uint64_t pieces; /* bit i: the parameter that is entry i is cut */
    bool stages;     /* a pipeline's: what is below, other ranks have not at all */
    int summed, room;
    weft_i_summed *sum;
    char layer[WEFT_NAME_MAX];
} weft_i_cut_layer;

static inline weft_i_cut_layer *weft_i_cut_of(const weft_module *module)
{
    return (weft_i_cut_layer *)module->part[WEFT_I_PART_CUT];
}

/* Gives the module the part, and the functions and hooks that go with its style. */
weft_status weft_i_cut_apply(weft_module *module, weft_i_cut_layer *cut);
weft_i_cut_layer *weft_i_cut_new(weft_group *group, const char *layer);

/* `param` takes the place of the module's parameter of that name: if a plan adds up the gradients of
 * one, it does so with those of the other. */
weft_status weft_i_cut_replace(weft_module *module, const char *key, weft_tensor *param);

#endif

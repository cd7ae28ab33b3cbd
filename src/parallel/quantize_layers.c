/* SPDX-License-Identifier: Apache-2.0 */
/* weft_quantize_module: all linear layers are found and encoded first, and then changed. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "nn/layer.h"
#include "parallel/cut.h"
#include "tensor/object/eye.h"
#include "weft/op.h"
#include "weft/quantize.h"
#include "weft/view.h"

#include <stdio.h>
#include <string.h>

#define WHAT "weft_quantize_module"

/* A linear layer, and what its weight becomes. */
typedef struct coding {
    weft_module *layer;
    weft_tensor *made[2];
} coding;

typedef struct codings {
    coding *at;
    int count, room, bits;
    int64_t block;
} codings;

static weft_status check_layer(const weft_module *layer, const char *name)
{
    const weft_i_cut_layer *cut = weft_i_cut_of(layer);
    if (weft_i_linear_is_coded(layer))
        return weft_i_fail(WEFT_ERR_EXISTS, WHAT ": layer \"%s\" has codes already", name);
    if (cut && (cut->in == WEFT_FLOW_SEQUENCE || cut->out == WEFT_FLOW_SEQUENCE))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           WHAT ": layer \"%s\" takes or gives parts of a sequence", name);
    return WEFT_OK;
}

static weft_status add_layer(codings *c, weft_module *layer, const char *name)
{
    for (int i = 0; i < c->count; i++)
        if (c->at[i].layer == layer)
            return WEFT_OK;
    WEFT_TRY(check_layer(layer, name));
    if (c->count == c->room) {
        int room = c->room ? 2 * c->room : 16;
        coding *at = WEFT_OS->resize(c->at, (size_t)room * sizeof *at);
        if (!at)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, WHAT ": no memory for %d layers", room);
        c->at = at;
        c->room = room;
    }
    coding *now = &c->at[c->count++];
    *now = (coding){.layer = layer};
    weft_tensor *weight = weft_to(weft_detach(layer->entries[0].tensor),
                                  weft_tensor_dtype(layer->entries[0].tensor), WEFT_CPU);
    weft_status status =
        weight ? weft_quantize(weight, c->bits, c->block, now->made) : weft_last_status();
    weft_device device = weft_tensor_device(layer->entries[0].tensor);
    for (int i = 0; i < 2 && status >= 0; i++)
        if (!(now->made[i] = weft_to(now->made[i], weft_tensor_dtype(now->made[i]), device)))
            status = weft_last_status();
    return status < 0 ? weft_i_explain(status, WHAT ": layer \"%s\"", name) : WEFT_OK;
}

/* The layers of the module and all below it. */
static weft_status find_layers(codings *c, weft_module *module, const char *name)
{
    if (module->part[WEFT_I_PART_UNIT] || module->part[WEFT_I_PART_REPLICA])
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, WHAT ": the module \"%s\" is %s", name,
                           module->part[WEFT_I_PART_UNIT] ? "sharded" : "replicated");
    if (!strcmp(module->kind, "linear"))
        return add_layer(c, module, name);
    for (int i = 0; i < module->count; i++) {
        char deeper[2 * WEFT_NAME_MAX];
        if (module->entries[i].kind != WEFT_I_ENTRY_CHILD)
            continue;
        int n = snprintf(deeper, sizeof deeper, "%s%s%s", name, *name ? "." : "",
                         module->entries[i].name);
        if (n < 0 || n >= WEFT_NAME_MAX)
            return weft_i_fail(WEFT_ERR_LIMIT, WHAT ": names below \"%s\" are too long", name);
        WEFT_TRY(find_layers(c, module->entries[i].child, deeper));
    }
    return WEFT_OK;
}

/* What can fail, the room for one more entry, is had for all layers first. */
static weft_status change_layers(const codings *c)
{
    for (int i = 0; i < c->count; i++)
        WEFT_TRY(weft_i_module_reserve(c->at[i].layer));
    for (int i = 0; i < c->count; i++)
        WEFT_TRY(weft_i_linear_encode(c->at[i].layer, c->at[i].made[0], c->at[i].made[1]));
    return WEFT_OK;
}

weft_status weft_quantize_module(weft_module *module, int bits, int64_t block)
{
    codings c = {.bits = bits, .block = block};
    WEFT_TRY(weft_i_module_check(WHAT, module));
    WEFT_TRY(weft_i_not_captured(WHAT));
    WEFT_TRY(weft_scope_open());
    weft_status status = find_layers(&c, module, "");
    if (status >= 0 && !c.count)
        status = weft_i_fail(WEFT_ERR_NOT_FOUND, WHAT ": there is no linear layer");
    if (status >= 0)
        status = change_layers(&c);
    WEFT_OS->free(c.at);
    weft_scope_close();
    return status;
}

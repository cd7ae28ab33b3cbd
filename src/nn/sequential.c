/* SPDX-License-Identifier: Apache-2.0 */
/* Modules one after the other. */
#include "nn/layer.h"

#include "weft/nn.h"

#include <stdio.h>

/* What stands between two modules goes as soon as the second has run; a graph keeps what it needs.
 */
static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    weft_i_object_hold(x);
    for (int i = 0; i < self->count && x; i++) {
        weft_tensor *next = self->entries[i].kind == WEFT_I_ENTRY_CHILD
                                ? weft_i_module_call_held(self->entries[i].child, x)
                                : weft_i_object_hold(x);
        weft_i_object_drop(x);
        x = next;
    }
    weft_i_scope_adopt(x);
    return x;
}

weft_module *weft_nn_sequential_of(weft_module *const *modules, int count)
{
    if (count < 0 || (count && !modules))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_nn_sequential: no modules");
    for (int i = 0; i < count; i++)
        if (weft_i_module_check("weft_nn_sequential", modules[i]) < 0)
            return NULL;
    weft_module *module = weft_i_module_new_kind("sequential", forward, NULL);
    weft_status status = module ? WEFT_OK : weft_last_status();
    for (int i = 0; i < count && status >= 0; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        status = weft_module_add(module, name, modules[i]);
    }
    return weft_i_layer_made(module, status);
}

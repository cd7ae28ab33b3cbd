/* SPDX-License-Identifier: Apache-2.0 */
/* Whether backward exchanges gradients: for all replicated and sharded modules of a tree. */
#include "base/report/status.h"
#include "parallel/replicate.h"
#include "parallel/unit.h"
#include "weft/parallel.h"

static void set(weft_module *module, bool on)
{
    if (module->part[WEFT_I_PART_REPLICA])
        weft_i_replica_sync(module->part[WEFT_I_PART_REPLICA], on);
    if (weft_i_unit_of(module))
        weft_i_unit_of(module)->sync = on;
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind == WEFT_I_ENTRY_CHILD)
            set(module->entries[i].child, on);
}

weft_status weft_gradient_sync(weft_module *module, bool on)
{
    WEFT_TRY(weft_i_module_check("weft_gradient_sync", module));
    set(module, on);
    return WEFT_OK;
}

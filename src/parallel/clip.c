/* SPDX-License-Identifier: Apache-2.0 */
/* The norm of the gradients of a module that is cut over a mesh: what several ranks have counts once. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "nn/optim/optim.h"
#include "parallel/accord.h"
#include "parallel/cut.h"
#include "parallel/unit.h"

#define WHAT "weft_clip_grads"

/* Into how many parts a parameter is cut; 0: it is not below this module.  `ranks` are those of the
 * unit around, `stages` those of a pipeline. */
static int parts_of(const weft_module *module, const weft_tensor *x, int ranks, int stages)
{
    const weft_i_unit *unit = weft_i_unit_of(module);
    const weft_i_cut_layer *cut = weft_i_cut_of(module);
    ranks = unit ? unit->ranks : ranks;
    stages *= cut && cut->stages ? weft_size(cut->group) : 1;
    for (int i = 0; i < module->count; i++) {
        const weft_i_entry *entry = &module->entries[i];
        int parts = 0;
        if (entry->kind == WEFT_I_ENTRY_CHILD)
            parts = parts_of(entry->child, x, ranks, stages);
        else if (entry->tensor == x)
            parts = stages * ranks *
                    (cut && i < 64 && cut->pieces >> i & 1 ? weft_size(cut->group) : 1);
        if (parts)
            return parts;
    }
    return 0;
}

static weft_status clip(weft_module *module, double limit, weft_mesh *mesh, double *norm,
                        const weft_named *list, int count, double *share)
{
    weft_group *groups[WEFT_MAX_DIMS];
    int ndim = weft_mesh_ndim(mesh), all = 1;
    for (int i = 0; i < ndim; i++) {
        groups[i] = weft_mesh_group(mesh, i);
        if (!groups[i])
            return weft_last_status();
        all *= weft_size(groups[i]);
    }
    for (int i = 0; i < count; i++) {
        int parts = parts_of(module, list[i].tensor, 1, 1);
        if (parts < 1 || all % parts)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               WHAT ": parameter \"%s\" is cut into %d parts, and the mesh has %d "
                                    "ranks; it has the dimensions of all that cut the module",
                               list[i].name, parts, all);
        share[i] = (double)parts / all;
    }
    return weft_i_clip_shared(list, share, count, limit, groups, ndim, norm);
}

weft_status weft_clip_grads(weft_module *module, double limit, weft_mesh *mesh, double *norm)
{
    int count;
    WEFT_TRY(weft_i_module_check(WHAT, module));
    if (!mesh)
        return weft_i_missing(WHAT ": the mesh is NULL");
    weft_named *list = weft_i_list_params(WHAT, module, false, &count);
    double *share = list ? WEFT_OS->alloc((size_t)(count + 1) * sizeof *share) : NULL;
    weft_status status = share  ? clip(module, limit, mesh, norm, list, count, share)
                         : list ? weft_i_fail(WEFT_ERR_NO_MEMORY, WHAT ": no memory")
                                : weft_last_status();
    WEFT_OS->free(share);
    WEFT_OS->free(list);
    return status;
}

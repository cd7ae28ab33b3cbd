/* SPDX-License-Identifier: Apache-2.0 */
/* A group's scratch memory: one symmetric block of bytes that grows on demand and lives as long as
 * the group. */
#include "base/status.h"
#include "symm/block.h"
#include "weft/symm.h"

weft_symm *weft_symm_workspace(weft_group *group, size_t bytes)
{
    if (weft_i_group_usable(group) < 0)
        return NULL;
    weft_tensor *scratch = group->workspace;
    if (!scratch || (size_t)scratch->dim[0] < bytes) {
        weft_tensor *larger = weft_keep(weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(bytes)));
        weft_symm *mem = weft_symm_rendezvous(larger, group);
        if (!mem) {
            weft_release(larger);
            return NULL;
        }
        weft_i_object_drop(group->workspace);
        group->workspace = larger;
        return mem;
    }
    return weft_symm_rendezvous(scratch, group);
}

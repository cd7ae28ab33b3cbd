/* SPDX-License-Identifier: Apache-2.0 */
/* A group's scratch memory: one symmetric block of bytes that grows on demand and lives as long as
 * the group. */
#include "base/status.h"
#include "symm/block.h"
#include "weft/symm.h"

weft_symm *weft_symm_workspace(weft_group *group, weft_device device, size_t bytes)
{
    char name[16];
    if (weft_i_group_usable(group) < 0)
        return NULL;
    if (!weft_i_device_find(device))
        return weft_i_null(WEFT_ERR_UNSUPPORTED, "weft_symm_workspace: there is no device %s",
                           weft_device_name(device, name));
    void **place = &group->workspace[weft_i_device_kind(device)];
    weft_tensor *scratch = *place;
    if (!scratch || (size_t)scratch->dim[0] < bytes || weft_i_tensor_device(scratch) != device) {
        weft_tensor *larger = weft_keep(weft_symm_empty(WEFT_U8, device, WEFT_SHAPE(bytes)));
        weft_symm *mem = weft_symm_rendezvous(larger, group);
        if (!mem) {
            weft_release(larger);
            return NULL;
        }
        weft_i_object_drop(*place);
        *place = larger;
        return mem;
    }
    return weft_symm_rendezvous(scratch, group);
}

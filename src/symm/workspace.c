/* SPDX-License-Identifier: Apache-2.0 */
/* A group's scratch memory: symmetric blocks of bytes that grow on demand and live as long as the
 * group. */
#include "symm/workspace.h"
#include "base/status.h"
#include "symm/backend.h"
#include "symm/block.h"
#include "symm/registration.h"

static weft_symm *find(const char *op, weft_group *group, void **places, weft_device device,
                       size_t bytes)
{
    char name[16];
    if (!weft_i_device_find(device))
        return weft_i_null(WEFT_ERR_UNSUPPORTED, "%s: there is no device %s", op,
                           weft_device_name(device, name));
    void **place = &places[weft_i_device_kind(device)];
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

weft_symm *weft_symm_workspace(weft_group *group, weft_device device, size_t bytes)
{
    if (weft_i_group_usable(group) < 0)
        return NULL;
    return find("weft_symm_workspace", group, group->workspace, device, bytes);
}

weft_symm *weft_i_symm_scratch(weft_group *group, weft_i_scratch which, weft_device device,
                               size_t bytes)
{
    if (which == WEFT_I_WORKSPACE)
        return weft_symm_workspace(group, device, bytes);
    return find("the slots of a group", group,
                which == WEFT_I_SHARDS ? group->shards : group->slots, device, bytes);
}

static bool is_near(const weft_i_registration *met)
{
    return met && met->memory && met->memory->is_near && met->memory->is_near(met->joined);
}

bool weft_i_symm_is_near(const weft_symm *mem)
{
    return is_near(mem->registration);
}

const weft_tensor *weft_i_symm_scratch_now(const weft_group *group, weft_i_scratch which,
                                           weft_device device)
{
    void *const *places = which == WEFT_I_WORKSPACE ? group->workspace
                          : which == WEFT_I_SHARDS  ? group->shards
                                                    : group->slots;
    return places[weft_i_device_kind(device)];
}

bool weft_i_symm_scratch_near(const weft_group *group, weft_i_scratch which, weft_device device)
{
    const weft_tensor *scratch = weft_i_symm_scratch_now(group, which, device);
    const weft_i_lease *lease = scratch ? weft_i_block_lease_of(scratch) : NULL;
    return lease && is_near(weft_i_registration_find(lease->block, group));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A group's scratch memory: symmetric blocks of bytes that grow on demand and live as long as the
 * group. */
#include "symm/workspace.h"
#include "base/os/assert.h"
#include "base/report/status.h"
#include "symm/backend.h"
#include "symm/block.h"
#include "symm/registration.h"

/* A group's part for this floor. */
typedef struct scratch {
    weft_i_object object;
    weft_tensor *of[WEFT_I_SCRATCHES][WEFT_I_DEVICE_KINDS];
    uint32_t turns[WEFT_I_SCRATCHES];
} scratch;

static void destroy(weft_i_object *object)
{
    scratch *all = (scratch *)object;
    for (int which = 0; which < WEFT_I_SCRATCHES; which++)
        for (int kind = 0; kind < WEFT_I_DEVICE_KINDS; kind++)
            weft_i_object_drop(all->of[which][kind]);
    weft_i_object_free(object);
}

/* Made at the first use; NULL: there is no memory. */
static scratch *part_of(weft_group *group)
{
    void **part = &group->floor[WEFT_I_FLOOR_SCRATCH];
    if (!*part)
        *part = weft_i_object_new_unscoped(WEFT_I_GROUP_PART, sizeof(scratch), destroy);
    return *part;
}

/* Another one in the place of what is too small or elsewhere.  A member that cannot tells the others. */
static weft_symm *replace(weft_tensor **place, weft_group *group, weft_device device, size_t bytes)
{
    weft_tensor *larger =
        place ? weft_keep(weft_symm_empty(WEFT_U8, device, WEFT_SHAPE(bytes))) : NULL;
    weft_symm *mem = weft_symm_rendezvous(larger, group);
    if (!mem) {
        weft_release(larger);
        return NULL;
    }
    weft_i_object_drop(*place);
    *place = larger;
    return mem;
}

static weft_symm *find(const char *op, weft_group *group, weft_i_scratch which, weft_device device,
                       size_t bytes)
{
    char name[16];
    if (!weft_i_device_find(device))
        return weft_i_null(WEFT_ERR_UNSUPPORTED, "%s: there is no device %s", op,
                           weft_device_name(device, name));
    scratch *part = part_of(group);
    weft_tensor **place = part ? &part->of[which][weft_i_device_kind(device)] : NULL;
    weft_tensor *now = place ? *place : NULL;
    bool fits = now && (size_t)now->dim[0] >= bytes && weft_i_tensor_device(now) == device;
    return fits ? weft_symm_rendezvous(now, group) : replace(place, group, device, bytes);
}

weft_symm *weft_symm_workspace(weft_group *group, weft_device device, size_t bytes)
{
    if (weft_i_group_usable(group) < 0)
        return NULL;
    return find("weft_symm_workspace", group, WEFT_I_WORKSPACE, device, bytes);
}

weft_symm *weft_i_symm_scratch(weft_group *group, weft_i_scratch which, weft_device device,
                               size_t bytes)
{
    if (which == WEFT_I_WORKSPACE)
        return weft_symm_workspace(group, device, bytes);
    return find("the slots of a group", group, which, device, bytes);
}

uint32_t weft_i_symm_scratch_turn(weft_group *group, weft_i_scratch which)
{
    scratch *part = group->floor[WEFT_I_FLOOR_SCRATCH];
    WEFT_ASSERT(part);
    return part->turns[which]++;
}

static bool is_near(const weft_i_registration *met)
{
    return met && met->memory && met->memory->is_near && met->memory->is_near(met->joined);
}

bool weft_i_symm_is_near(const weft_symm *mem)
{
    return is_near(mem->registration);
}

weft_tensor *weft_i_symm_scratch_now(const weft_group *group, weft_i_scratch which,
                                     weft_device device)
{
    const scratch *part = group->floor[WEFT_I_FLOOR_SCRATCH];
    return part ? part->of[which][weft_i_device_kind(device)] : NULL;
}

bool weft_i_symm_scratch_near(const weft_group *group, weft_i_scratch which, weft_device device)
{
    const weft_tensor *now = weft_i_symm_scratch_now(group, which, device);
    const weft_i_lease *lease = now ? weft_i_block_lease_of(now) : NULL;
    return lease && is_near(weft_i_registration_find(lease->block, group));
}

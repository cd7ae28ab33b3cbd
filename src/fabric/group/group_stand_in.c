/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins: the name and the size of a group without its world, for operations on meta tensors. */
#include "base/report/status.h"
#include "fabric/group/group.h"

#include <stdio.h>
#include <string.h>

static void destroy(weft_i_object *object)
{
    weft_i_object_free(object);
}

weft_group *weft_group_stand_in(const char *name, int size)
{
    if (!name || !*name || strlen(name) >= sizeof((weft_group *)NULL)->name || size < 1)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "a stand-in has a name of 1 to %zu characters and at least one rank",
                           sizeof((weft_group *)NULL)->name - 1);
    weft_group *group = weft_i_object_new(WEFT_I_GROUP, sizeof *group, destroy);
    if (!group)
        return NULL;
    group->rank = -1;
    group->size = size;
    group->timeout_ms = WEFT_FOREVER;
    snprintf(group->name, sizeof group->name, "%s", name);
    return group;
}

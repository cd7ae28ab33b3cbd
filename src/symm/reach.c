/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches groups that span hosts; see reach.h. */
#include "symm/reach.h"

#include "base/report/status.h"
#include "symm/backend.h"

weft_i_group_reach weft_i_reach_between_hosts(const weft_group *group, int device_kind)
{
    if (group->hosts)
        return WEFT_I_REACH_HOSTS;
    return weft_i_backend_reaches_hosts(device_kind, group->world->sharing) ? WEFT_I_REACH_CARRIER
                                                                            : WEFT_I_REACH_NONE;
}

weft_status weft_i_reach_refuse(const char *op, const weft_group *group, const char *what)
{
    char why[400];
    weft_i_backend_tell_hosts(why, sizeof why);
    return weft_i_fail(WEFT_ERR_UNREACHABLE,
                       "%s: group \"%s\" spans hosts, and no backend %s between them (%s)", op,
                       group->name, what, why);
}

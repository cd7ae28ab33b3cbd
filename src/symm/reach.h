/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reaches the members of a group: the one question to ask before they meet.  Those of one host
 * share memory.  For others the tables of the backends say (backend.h).
 */
#ifndef WEFT_SYMM_REACH_H
#define WEFT_SYMM_REACH_H

#include "fabric/group/group.h"

typedef enum weft_i_group_reach {
    WEFT_I_REACH_NONE,
    WEFT_I_REACH_CARRIER, /* a backend carries collectives between them; they share no memory */
    WEFT_I_REACH_HOSTS, /* messages go between their hosts: all collectives, and no shared memory */
    WEFT_I_REACH_LANE   /* they share memory: the lane, and symmetric memory */
} weft_i_group_reach;

/* For operands of that kind of device; or of any. */
enum { WEFT_I_ANY_DEVICE = -1 };

weft_i_group_reach weft_i_reach_between_hosts(const weft_group *group, int device_kind);

static inline weft_i_group_reach weft_i_reach_of_group(const weft_group *group, int device_kind)
{
    return __builtin_expect(group->local, 1) ? WEFT_I_REACH_LANE
                                             : weft_i_reach_between_hosts(group, device_kind);
}

/* WEFT_ERR_UNREACHABLE: the group spans hosts, and no backend of the list does that between them,
 * as "carries it" or "shares memory". */
weft_status weft_i_reach_refuse(const char *op, const weft_group *group, const char *what);

#endif

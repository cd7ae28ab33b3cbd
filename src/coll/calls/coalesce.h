/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting calls from the inside; see weft/coalesce.h and coalesce.c. */
#ifndef WEFT_COLL_COALESCE_H
#define WEFT_COLL_COALESCE_H

#include "coll/lane/call.h"

/* Collects a call, or what was wrong with it. */
weft_status weft_i_coalesce_add(const weft_i_coll *coll, weft_status filled);

/* Refuses a call that cannot be collected: posted forms. */
weft_status weft_i_coalesce_refuse(const weft_i_coll *coll, weft_status filled);

bool weft_i_coalesce_is_mine(const weft_group *group);

/* Does the calling thread collect the calls of this group?  NULL (a refused call): no. */
static inline bool weft_i_coalesce_is_open(const weft_group *group)
{
    return group && group->floor[WEFT_I_FLOOR_COALESCE] && weft_i_coalesce_is_mine(group);
}

#endif

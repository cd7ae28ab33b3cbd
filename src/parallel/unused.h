/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that got no gradient, named on all ranks. */
#ifndef WEFT_PARALLEL_UNUSED_H
#define WEFT_PARALLEL_UNUSED_H

#include "weft/group.h"

#include <stdbool.h>

typedef const char *weft_i_name_of(const void *list, int i);

/*
 * All ranks know that one of `count` parameters is missing somewhere, and come here.  Returns
 * WEFT_ERR_STATE with the first of them and the ranks of the group on which it got no gradient;
 * `where` ends the sentence about the ranks.
 */
weft_status weft_i_refuse_unused(const char *what, weft_group *group, int count, const bool *has,
                                 weft_i_name_of *name_of, const void *list, const char *where);

#endif

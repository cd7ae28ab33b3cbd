/* SPDX-License-Identifier: Apache-2.0 */
/* The gather of graphs: every rank puts its part into the output of every rank.  By multicast where the
 * memory has it, else rank by rank; a graph does not ask which. */
#ifndef WEFT_SYMM_COLL_GATHER_H
#define WEFT_SYMM_COLL_GATHER_H

#include "weft/coll.h"

#include <stdbool.h>

/* Is it symmetric memory which every rank reaches, the same on all ranks? */
bool weft_i_symm_gather_reaches(const weft_tensor *out);

/* `out` is such; it has met in the group afterwards.  On a device the call is enqueued. */
weft_status weft_i_symm_gather_out(weft_tensor *out, weft_tensor *x, weft_group *group);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Persistent blocks: kept under an id until they are forgotten, or their rank ends. */
#ifndef WEFT_SYMM_PERSISTENT_H
#define WEFT_SYMM_PERSISTENT_H

#include "symm/block.h"

/* Ids with this bit are the library's own: users cannot take them. */
#define WEFT_I_PERSISTENT_OWN ((uint64_t)1 << 63)

/* The block of `id`, held for the caller; made at its first use, and then `made` is set.  The id
 * belongs to the calling rank. */
weft_status weft_i_persistent_block(uint64_t id, weft_device device, size_t bytes,
                                    weft_group *group, weft_i_block **out, bool *made);

/* Forgets an id of the calling rank; false if there is none. */
bool weft_i_persistent_forget(uint64_t id);

#endif

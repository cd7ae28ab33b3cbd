/* SPDX-License-Identifier: Apache-2.0 */
/* What other files of this floor ask of replicated modules. */
#ifndef WEFT_PARALLEL_REPLICATE_H
#define WEFT_PARALLEL_REPLICATE_H

#include "nn/module.h"

/* Whether backwards from now on exchange gradients. */
void weft_i_replica_sync(weft_i_object *replica, bool on);

/* WEFT_ERR_EXISTS, without a message, and the name of the first module at or below this one that has
 * the part; `path` is the name of the module itself. */
weft_status weft_i_module_find_part(const weft_module *module, weft_i_module_part part,
                                    const char *path, char *found, size_t room);

#endif

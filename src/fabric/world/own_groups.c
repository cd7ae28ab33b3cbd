/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of one rank: begin and end of the table; see own_groups.h. */
#include "fabric/world/own_groups.h"

#include "base/os/assert.h"
#include "base/os/os.h"

void weft_i_registry_init(weft_i_registry *registry)
{
    pthread_mutex_init(&registry->lock, NULL);
}

void weft_i_registry_free(weft_i_registry *registry)
{
    WEFT_ASSERT(!registry->count && !registry->root);
    pthread_mutex_destroy(&registry->lock);
    WEFT_OS->free(registry->group);
}

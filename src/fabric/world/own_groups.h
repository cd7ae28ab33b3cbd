/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of one rank, as its world holds them; what is done with them is in fabric/group/registry.h. */
#ifndef WEFT_FABRIC_OWN_GROUPS_H
#define WEFT_FABRIC_OWN_GROUPS_H

#include "weft/group.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* How many names of groups that are gone are remembered, so that they are told from names that
 * never were. */
enum { WEFT_I_NAMES_GONE = 256 };

typedef struct weft_i_registry {
    pthread_mutex_t lock; /* guards all of it, and the groups' names and places here */
    weft_group *root;     /* the world group; NULL once it is gone */
    weft_group **group;   /* oldest first */
    size_t count, room;
    uint64_t gone[WEFT_I_NAMES_GONE]; /* hashes of names, the oldest overwritten first */
    size_t gone_count;
} weft_i_registry;

void weft_i_registry_init(weft_i_registry *registry);
void weft_i_registry_free(weft_i_registry *registry);

#endif

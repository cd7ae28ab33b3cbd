/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an idle rank learns that a member of a group is gone or the group has ended.  Calls see that
 * by themselves, in shared memory, where nothing can be polled; so the first descriptor that is
 * asked for starts one thread in the rank, which looks every two milliseconds for all its groups.
 */
#ifndef WEFT_FABRIC_GROUP_EVENT_H
#define WEFT_FABRIC_GROUP_EVENT_H

#include "weft/group.h"

typedef struct weft_i_event weft_i_event;
typedef struct weft_i_sentinel weft_i_sentinel;
struct weft_i_world;

/* Closes the group's descriptor, if it has one. */
void weft_i_event_close(weft_group *group);

/* Ends the thread and closes all descriptors: the rank leaves its job. */
void weft_i_sentinel_stop(struct weft_i_world *world);

#endif

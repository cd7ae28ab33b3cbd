/* SPDX-License-Identifier: Apache-2.0 */
/* What a member of a group that spans hosts says to the boards of the other hosts (hosts.h). */
#ifndef WEFT_FABRIC_HOSTS_NEWS_H
#define WEFT_FABRIC_HOSTS_NEWS_H

#include "fabric/group/group.h"

/* The members on other hosts get to know it. */
void weft_i_hosts_tell_end(const weft_group *group, weft_status why, bool recalled);
void weft_i_hosts_tell_left(const weft_group *group);
void weft_i_hosts_tell_stuck(const weft_group *group, uint64_t where, const char *call);

#endif

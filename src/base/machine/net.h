/* SPDX-License-Identifier: Apache-2.0 */
/* The network interfaces of this host that weft uses, which WEFT_NET chooses. */
#ifndef WEFT_BASE_NET_H
#define WEFT_BASE_NET_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { WEFT_I_NET_TEXT = 64, WEFT_I_NET_ADDRESSES = 16, WEFT_I_NET_LIST = 256 };

/* Does a setting take an interface?  "eth,ib0": names that begin so; "=eth0": that one; "^docker,lo":
 * all but these.  An empty one takes all. */
bool weft_i_net_takes(const char *setting, const char *interface);

/* Numeric addresses at which other hosts may reach this one, those of the loopback interface last;
 * how many.  INVALID_ARG: WEFT_NET names no interface of this host that has one. */
int weft_i_net_addresses(char out[WEFT_I_NET_ADDRESSES][WEFT_I_NET_TEXT]);

/* The interfaces that WEFT_NET takes, "eth0,eth1"; empty if it is not set. */
weft_status weft_i_net_interfaces(char out[WEFT_I_NET_LIST]);

#endif

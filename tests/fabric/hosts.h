/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of one machine that are ranks of several hosts: WEFT_HOST_ID says which, and a store
 * on a port of this machine is where they meet.  Each sets its own environment before weft_init.
 */
#ifndef WEFT_TESTS_HOSTS_H
#define WEFT_TESTS_HOSTS_H

#include "free_port.h"

#include "weft/store.h"

#include <stdio.h>
#include <stdlib.h>

static const char hosts_token[] =
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static inline void hosts_set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* This process is `rank` of `size`, on hosts of `per_host` ranks each.  The token is not set.  What goes
 * between the hosts goes by the store, unless hosts_use_ucx was called before. */
static inline void hosts_pretend(int rank, int size, int per_host, int port)
{
    char host[16];
    unsetenv("WEFT_JOB_FD");
    unsetenv("GROUP_RANK");
    hosts_set_number("RANK", rank);
    hosts_set_number("WORLD_SIZE", size);
    hosts_set_number("LOCAL_RANK", rank % per_host);
    hosts_set_number("LOCAL_WORLD_SIZE", per_host);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    hosts_set_number("MASTER_PORT", port);
    snprintf(host, sizeof host, "host%d", rank / per_host);
    setenv("WEFT_HOST_ID", host, 1);
    setenv("WEFT_UCX", "off", 0);
}

/* What goes between the hosts is to go by UCX, over the loopback interface. */
static inline void hosts_use_ucx(void)
{
    setenv("WEFT_UCX", "auto", 1);
    setenv("UCX_NET_DEVICES", "lo", 0);
    setenv("UCX_TLS", "tcp", 0);
}

static inline weft_group *hosts_join(int rank, int size, int per_host, int port)
{
    hosts_pretend(rank, size, per_host, port);
    setenv("WEFT_TOKEN", hosts_token, 1);
    return weft_init(NULL);
}

#endif

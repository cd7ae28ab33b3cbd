/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of the ranks: ours, with the variables that tell a rank who it is, and the
 * caller's own. */
#ifndef WEFT_LAUNCH_LAUNCH_ENV_H
#define WEFT_LAUNCH_LAUNCH_ENV_H

#include "weft/status.h"

#include <stddef.h>

enum { WEFT_I_LAUNCH_ENV_OWN = 12, WEFT_I_LAUNCH_ADDRESS = 128, WEFT_I_LAUNCH_TOKEN = 65 };

/* Where the ranks of this host stand in a job on several. */
typedef struct weft_i_seating {
    int host, hosts, first, world;      /* `first`: the world rank of the first rank here */
    char master[WEFT_I_LAUNCH_ADDRESS]; /* as all hosts reach the first */
    int master_port, store_port;        /* for the program; for weft */
    char token[WEFT_I_LAUNCH_TOKEN];
} weft_i_seating;

typedef struct weft_i_launch_env {
    char **list; /* as execve takes it */
    char own[WEFT_I_LAUNCH_ENV_OWN][192];
    int first; /* world rank of local rank 0 */
} weft_i_launch_env;

/* `extra` (NAME=VALUE, NULL at the end, or NULL) replaces variables of the same name, also ours.
 */
weft_status weft_i_launch_env_make(weft_i_launch_env *env, const weft_i_seating *place, int ranks,
                                   int job_fd, int restarts, const char *const *extra);
/* Makes the list that of local rank `rank`. */
void weft_i_launch_env_set_rank(weft_i_launch_env *env, int rank);
void weft_i_launch_env_free(weft_i_launch_env *env);

#endif

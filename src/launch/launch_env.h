/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of the ranks: ours, with the variables that tell a rank who it is, and the
 * caller's own. */
#ifndef WEFT_LAUNCH_LAUNCH_ENV_H
#define WEFT_LAUNCH_LAUNCH_ENV_H

#include "weft/status.h"

#include <stddef.h>

enum { WEFT_I_LAUNCH_ENV_OWN = 9 };

typedef struct weft_i_launch_env {
    char **list; /* as execve takes it */
    char own[WEFT_I_LAUNCH_ENV_OWN][48];
} weft_i_launch_env;

/* `extra` (NAME=VALUE, NULL at the end, or NULL) replaces variables of the same name, also ours. */
weft_status weft_i_launch_env_make(weft_i_launch_env *env, int ranks, int job_fd, int port,
                                   int restarts, const char *const *extra);
/* Makes the list that of `rank`. */
void weft_i_launch_env_set_rank(weft_i_launch_env *env, int rank);
void weft_i_launch_env_free(weft_i_launch_env *env);

#endif

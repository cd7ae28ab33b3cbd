/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of the ranks.  One list serves all of them: only the text of RANK and LOCAL_RANK
 * changes between two starts, because exec copies it.
 */
#include "launch/launch_env.h"

#include "base/os.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static size_t count_of(const char *const *list)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

static size_t name_length(const char *entry)
{
    return strcspn(entry, "=");
}

/* Adds an entry, or puts it in the place of one with the same name among the first `count`. */
static size_t put(char **list, size_t count, const char *entry)
{
    size_t length = name_length(entry), at = 0;
    while (at < count && (name_length(list[at]) != length || strncmp(list[at], entry, length) != 0))
        at++;
    list[at] = (char *)entry;
    return at == count ? count + 1 : count;
}

weft_status weft_i_launch_env_make(weft_i_launch_env *env, int ranks, int job_fd, int port,
                                   int restarts, const char *const *extra)
{
    size_t inherited = count_of((const char *const *)environ);
    size_t total = inherited + WEFT_I_LAUNCH_ENV_OWN + count_of(extra) + 1, count = 0;
    for (size_t i = 0; extra && extra[i]; i++)
        if (extra[i][0] == '=' || !strchr(extra[i], '='))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: \"%s\" is not NAME=VALUE", extra[i]);
    env->list = WEFT_OS->alloc(total * sizeof *env->list);
    if (!env->list)
        return weft_i_fail(WEFT_ERR_NO_MEMORY,
                           "launch: no memory for the environment of the ranks");
    for (; count < inherited; count++)
        env->list[count] = environ[count];
    weft_i_launch_env_set_rank(env, 0);
    snprintf(env->own[2], sizeof env->own[2], "WORLD_SIZE=%d", ranks);
    snprintf(env->own[3], sizeof env->own[3], "LOCAL_WORLD_SIZE=%d", ranks);
    snprintf(env->own[4], sizeof env->own[4], "GROUP_RANK=0");
    snprintf(env->own[5], sizeof env->own[5], "MASTER_ADDR=127.0.0.1");
    snprintf(env->own[6], sizeof env->own[6], "MASTER_PORT=%d", port);
    snprintf(env->own[7], sizeof env->own[7], "WEFT_JOB_FD=%d", job_fd);
    snprintf(env->own[8], sizeof env->own[8], "WEFT_RESTART_COUNT=%d", restarts);
    for (int i = 0; i < WEFT_I_LAUNCH_ENV_OWN; i++)
        count = put(env->list, count, env->own[i]);
    for (size_t i = 0; extra && extra[i]; i++)
        count = put(env->list, count, extra[i]);
    env->list[count] = NULL;
    return WEFT_OK;
}

void weft_i_launch_env_set_rank(weft_i_launch_env *env, int rank)
{
    snprintf(env->own[0], sizeof env->own[0], "RANK=%d", rank);
    snprintf(env->own[1], sizeof env->own[1], "LOCAL_RANK=%d", rank);
}

void weft_i_launch_env_free(weft_i_launch_env *env)
{
    WEFT_OS->free(env->list);
    env->list = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of the ranks.  One list serves all of them: only the text of RANK and LOCAL_RANK
 * changes between two starts, because exec copies it.
 */
#include "launch/launch_env.h"

#include "base/os/os.h"
#include "base/report/status.h"

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

/* The variables that are the same for all ranks here; how many. */
static int set_own(weft_i_launch_env *env, const weft_i_seating *at, int ranks, int job_fd,
                   int restarts)
{
    enum { WIDTH = sizeof env->own[0] };
    int count = 2; /* behind RANK and LOCAL_RANK */
    snprintf(env->own[count++], WIDTH, "WORLD_SIZE=%d", at->world);
    snprintf(env->own[count++], WIDTH, "LOCAL_WORLD_SIZE=%d", ranks);
    snprintf(env->own[count++], WIDTH, "GROUP_RANK=%d", at->host);
    snprintf(env->own[count++], WIDTH, "GROUP_WORLD_SIZE=%d", at->hosts);
    snprintf(env->own[count++], WIDTH, "MASTER_ADDR=%s", at->master);
    snprintf(env->own[count++], WIDTH, "MASTER_PORT=%d", at->master_port);
    snprintf(env->own[count++], WIDTH, "WEFT_JOB_FD=%d", job_fd);
    snprintf(env->own[count++], WIDTH, "WEFT_RESTART_COUNT=%d", restarts);
    if (at->world == ranks)
        return count;
    bool six = strchr(at->master, ':');
    snprintf(env->own[count++], WIDTH, "WEFT_STORE_ADDR=%s%s%s:%d", six ? "[" : "", at->master,
             six ? "]" : "", at->store_port);
    snprintf(env->own[count++], WIDTH, "WEFT_TOKEN=%s", at->token);
    return count;
}

weft_status weft_i_launch_env_make(weft_i_launch_env *env, const weft_i_seating *place, int ranks,
                                   int job_fd, int restarts, const char *const *extra)
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
    env->first = place->first;
    weft_i_launch_env_set_rank(env, 0);
    int own = set_own(env, place, ranks, job_fd, restarts);
    for (int i = 0; i < own; i++)
        count = put(env->list, count, env->own[i]);
    for (size_t i = 0; extra && extra[i]; i++)
        count = put(env->list, count, extra[i]);
    env->list[count] = NULL;
    return WEFT_OK;
}

void weft_i_launch_env_set_rank(weft_i_launch_env *env, int rank)
{
    snprintf(env->own[0], sizeof env->own[0], "RANK=%d", env->first + rank);
    snprintf(env->own[1], sizeof env->own[1], "LOCAL_RANK=%d", rank);
}

void weft_i_launch_env_free(weft_i_launch_env *env)
{
    WEFT_OS->free(env->list);
    env->list = NULL;
}

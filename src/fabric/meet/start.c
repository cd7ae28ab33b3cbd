/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment says about this rank.  Programs start unchanged under `weft run`, torchrun,
 * mpirun (Open MPI and MPICH), srun and other PMIx launchers; each has its own words for rank and
 * size.  The first row that fits is taken; weft run and torchrun set the same names and come first,
 * because they may run inside a Slurm step.
 */
#include "fabric/meet/meet.h"
#include "fabric/meet/slurm.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"
#include "base/report/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct launcher {
    const char *name;
    const char *rank, *size;
    const char *local_rank, *local_size;
    const char *job[4]; /* variables that together name the job */
} launcher;

static const launcher launchers[] = {
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL, NULL}},
    {"MPICH",
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     {"PMI_KVSNAME", "PMI_ID_BASE", NULL, NULL}},
    {"PMIx",
     "PMIX_RANK",
     "PMIX_SIZE",
     "PMIX_LOCAL_RANK",
     "PMIX_LOCAL_SIZE",
     {"PMIX_NAMESPACE", NULL, NULL, NULL}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     "SLURM_NTASKS_PER_NODE",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", NULL}},
};

/* Reads a whole number; WEFT_ERR_NOT_FOUND without a message if the variable is unset or empty. */
static weft_status read_int(const char *name, int *out)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return WEFT_ERR_NOT_FOUND;
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || value < 0 || value > INT32_MAX)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s=\"%s\" is not a whole number", name, text);
    *out = (int)value;
    return WEFT_OK;
}

static bool name_job(const launcher *from, char *out, size_t bytes)
{
    weft_i_text name = {out, bytes, 0};
    bool named = false;
    weft_i_text_put(&name, "%s", from->name);
    for (int i = 0; i < 4 && from->job[i]; i++) {
        const char *text = getenv(from->job[i]);
        if (text)
            weft_i_text_put(&name, "/%s", text);
        named |= text != NULL;
    }
    if (!named) /* launchers start the ranks of a host from one process */
        weft_i_text_put(&name, "/started by %d", weft_i_os_parent());
    return named;
}

static weft_status check(const launcher *from, const weft_i_start *start)
{
    if (start->size < 1 || start->rank >= start->size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_init (%s): %s=%d does not fit %s=%d; ranks count from 0",
                           start->launcher, from->rank, start->rank, from->size, start->size);
    return WEFT_OK;
}

/* Slurm has its own notation, and says where a step is, but neither an address nor a port. */
static void read_slurm(weft_i_start *out)
{
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE"), *list = getenv("SLURM_STEP_NODELIST");
    int node = -1;
    tasks = tasks ? tasks : getenv("SLURM_TASKS_PER_NODE");
    list = list ? list : getenv("SLURM_NODELIST");
    /* SLURM_NTASKS_PER_NODE is what was asked for, not what this node got. */
    if (read_int("SLURM_NODEID", &node) == WEFT_OK && weft_i_slurm_tasks(tasks, node) > 0)
        out->local_size = weft_i_slurm_tasks(tasks, node);
    if (!weft_i_slurm_first_host(list, out->master, sizeof out->master))
        out->master[0] = 0;
    out->master_port = weft_i_slurm_port(job ? job : "", step ? step : "");
}

static weft_status read_from(const launcher *from, weft_i_start *out)
{
    weft_status status = read_int(from->rank, &out->rank);
    if (status < 0)
        return status;
    status = read_int(from->size, &out->size);
    if (status == WEFT_ERR_NOT_FOUND)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s is set but %s is not: both are needed to meet",
                           from->rank, from->size);
    if (status < 0)
        return status;
    out->launcher = from->name;
    if (read_int(from->local_rank, &out->local_rank) < 0)
        out->local_rank = -1;
    if (read_int(from->local_size, &out->local_size) < 0)
        out->local_size = -1;
    if (!strcmp(from->name, "Slurm"))
        read_slurm(out);
    out->by_parent = !name_job(from, out->job, sizeof out->job);
    if (from == launchers && !getenv("TORCHELASTIC_RUN_ID")) {
        out->launcher = "started by hand"; /* torchrun's names, but not by torchrun */
        out->by_hand = true;
    }
    return check(from, out);
}

weft_status weft_i_start_read(weft_i_start *out)
{
    int64_t fd = -1;
    WEFT_TRY(weft_i_env_number(WEFT_I_ENV_JOB_FD, &fd));
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        *out = (weft_i_start){.local_rank = -1, .local_size = -1, .job_fd = -1};
        weft_status status = read_from(&launchers[i], out);
        if (status == WEFT_ERR_NOT_FOUND)
            continue;
        if (status == WEFT_OK && i == 0 && fd >= 0) {
            out->launcher = "weft run";
            out->by_hand = out->by_parent = false;
            out->job_fd = (int)fd;
            if (read_int("GROUP_WORLD_SIZE", &out->hosts) < 0)
                out->hosts = 0;
        }
        return status;
    }
    *out = (weft_i_start){.size = 1, .local_size = 1, .job_fd = -1};
    return WEFT_OK;
}

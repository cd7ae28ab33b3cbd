/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/start.c */
/* What the environment says about a rank, launcher by launcher. */
#include "harness.h"

#include "fabric/meet/meet.h"

#include <weft/weft.h>

typedef struct words {
    const char *name, *rank, *size, *local_rank, *local_size, *job;
} words;

static const words launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_ess_base_jobid"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_KVSNAME"},
    {"PMIx", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
     "SLURM_STEP_ID"}};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static void forget(void)
{
    static const char *const more[] = {
        "MASTER_ADDR", "MASTER_PORT",  "TORCHELASTIC_RESTART_COUNT", "PMIX_NAMESPACE",
        "PMI_ID_BASE", "SLURM_JOB_ID", "SLURM_RESTART_COUNT",        "WEFT_JOB_FD"};
    for (int i = 0; i < LAUNCHERS; i++) {
        unsetenv(launchers[i].rank);
        unsetenv(launchers[i].size);
        unsetenv(launchers[i].local_rank);
        unsetenv(launchers[i].local_size);
        unsetenv(launchers[i].job);
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        unsetenv(more[i]);
    weft_clear_error();
}

TEST(test_start_alone)
{
    weft_i_start start;
    forget();
    CHECK_OK(weft_i_start_read(&start));
    CHECK(!start.launcher && start.rank == 0 && start.size == 1);
    CHECK(start.local_rank == 0 && start.local_size == 1 && start.job_fd == -1);
    setenv("WEFT_JOB_FD", "7", 1); /* without a rank it means nothing */
    CHECK_OK(weft_i_start_read(&start));
    CHECK(!start.launcher && start.job_fd == -1);
    forget();
}

TEST(test_start_launchers)
{
    for (int i = 0; i < LAUNCHERS; i++) {
        weft_i_start start;
        forget();
        setenv(launchers[i].rank, "2", 1);
        CHECK_STATUS(weft_i_start_read(&start), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), launchers[i].size);
        setenv(launchers[i].size, "3", 1);
        CHECK_OK(weft_i_start_read(&start));
        /* Torchrun's variables without the name of its run are somebody's own. */
        CHECK(!strcmp(start.launcher, i ? launchers[i].name : "started by hand"));
        CHECK(start.rank == 2 && start.size == 3 && start.by_parent);
        CHECK(start.local_rank == -1 && start.local_size == -1 && start.job_fd == -1);
        CHECK_CONTAINS(start.job, launchers[i].name);
        CHECK_CONTAINS(start.job, "/started by "); /* nothing else tells jobs apart */
        setenv(launchers[i].job, "job 17", 1);
        setenv(launchers[i].local_rank, "0", 1);
        setenv(launchers[i].local_size, "2", 1);
        CHECK_OK(weft_i_start_read(&start));
        CHECK(start.local_rank == 0 && start.local_size == 2);
        CHECK_CONTAINS(start.job, "/job 17");
        CHECK(!strstr(start.job, "started by"));
        for (int other = i + 1; other < LAUNCHERS; other++) { /* the nearest one counts */
            setenv(launchers[other].rank, "0", 1);
            setenv(launchers[other].size, "9", 1);
        }
        CHECK_OK(weft_i_start_read(&start));
        CHECK(!strcmp(start.launcher, launchers[i].name) && start.rank == 2 && start.size == 3);
        setenv("WEFT_JOB_FD", "7", 1);
        CHECK_OK(weft_i_start_read(&start));
        CHECK_INT(start.job_fd, i ? -1 : 7);
        CHECK(!strcmp(start.launcher, i ? launchers[i].name : "weft run"));
    }
    forget();
}

TEST(test_start_numbers)
{
    static const struct {
        const char *rank, *size, *words; /* of the message; NULL: they are right */
    } cases[] = {{"0", "1", NULL},
                 {"1", "1", "RANK=1 does not fit WORLD_SIZE=1"},
                 {"0", "0", "RANK=0 does not fit WORLD_SIZE=0"},
                 {"-1", "3", "-1"},
                 {"1", "-3", "-3"},
                 {"1x", "3", "1x"},
                 {"1", "3.5", "3.5"},
                 {"2147483646", "2147483647", NULL},
                 {"2147483648", "3", "2147483648"},
                 {"0", "2147483648", "2147483648"},
                 {"99999999999999999999", "3", "99999999999999999999"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_i_start start;
        forget();
        setenv("RANK", cases[i].rank, 1);
        setenv("WORLD_SIZE", cases[i].size, 1);
        weft_status status = weft_i_start_read(&start);
        if ((status == WEFT_OK) != !cases[i].words)
            FAIL("rank %s of %s: %d", cases[i].rank, cases[i].size, status);
        if (!cases[i].words)
            continue;
        CHECK_INT(status, WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), cases[i].words);
    }
    forget();
    setenv("RANK", "", 1); /* empty is unset */
    weft_i_start start;
    CHECK_OK(weft_i_start_read(&start));
    CHECK(!start.launcher);
    forget();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/slurm.c */
/* A step of Slurm as its variables tell it, and what start.c makes of them. */
#include "harness.h"

#include "fabric/meet/meet.h"
#include "fabric/meet/slurm.h"

#include <stdlib.h>

static void check_first(const char *list, const char *wanted)
{
    char host[64];
    CHECK(weft_i_slurm_first_host(list, host, sizeof host));
    CHECK(!strcmp(host, wanted));
}

TEST(test_slurm_first_host)
{
    char host[8];
    check_first("login", "login");
    check_first("a,b,c", "a");
    check_first("node[003-005,9],x", "node003");
    check_first("rack[2-4]n[07,12-15].example", "rack2n07.example");
    CHECK(!weft_i_slurm_first_host("", host, sizeof host));
    CHECK(!weft_i_slurm_first_host(NULL, host, sizeof host));
    CHECK(!weft_i_slurm_first_host("n[1-2", host, sizeof host));
    CHECK(!weft_i_slurm_first_host("n[]", host, sizeof host));
    CHECK(!weft_i_slurm_first_host("much-too-long", host, sizeof host));
}

TEST(test_slurm_tasks)
{
    CHECK_INT(weft_i_slurm_tasks("4(x2),3", 0), 4);
    CHECK_INT(weft_i_slurm_tasks("4(x2),3", 1), 4);
    CHECK_INT(weft_i_slurm_tasks("4(x2),3", 2), 3);
    CHECK_INT(weft_i_slurm_tasks("4(x2),3", 3), -1);
    CHECK_INT(weft_i_slurm_tasks("7", 0), 7);
    static const char *const wrong[] = {"",  "x",  "4(x",  "4(x0)",      "4(y2)",
                                        "0", "-4", "4,,3", "99999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_INT(weft_i_slurm_tasks(wrong[i], 1), -1);
    CHECK_INT(weft_i_slurm_tasks(NULL, 0), -1);
}

TEST(test_slurm_port)
{
    int port = weft_i_slurm_port("4711", "0");
    CHECK(port >= 15000 && port < 30000);
    CHECK_INT(weft_i_slurm_port("4711", "0"), port);
    CHECK(weft_i_slurm_port("4711", "1") != port);
}

static void clear(void)
{
    static const char *const names[] = {
        "RANK",     "WORLD_SIZE", "MASTER_ADDR",           "MASTER_PORT",         "WEFT_JOB_FD",
        "PMI_RANK", "PMIX_RANK",  "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

TEST(test_slurm_start)
{
    weft_i_start start;
    clear();
    setenv("SLURM_PROCID", "9", 1);
    setenv("SLURM_NTASKS", "11", 1);
    setenv("SLURM_LOCALID", "1", 1);
    setenv("SLURM_NODEID", "2", 1);
    setenv("SLURM_NNODES", "3", 1);
    setenv("SLURM_JOB_ID", "4711", 1);
    setenv("SLURM_STEP_ID", "2", 1);
    setenv("SLURM_STEP_NODELIST", "node[003-005]", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "4(x2),3", 1);
    setenv("SLURM_NTASKS_PER_NODE", "4", 1); /* what was asked for */
    CHECK_OK(weft_i_start_read(&start));
    CHECK(!strcmp(start.launcher, "Slurm"));
    CHECK_INT(start.rank, 9);
    CHECK_INT(start.size, 11);
    CHECK_INT(start.local_rank, 1);
    CHECK_INT(start.local_size, 3);
    CHECK(!strcmp(start.master, "node003"));
    CHECK_INT(start.master_port, weft_i_slurm_port("4711", "2"));
    /* Without lists there is no master, and what was asked for counts. */
    unsetenv("SLURM_STEP_NODELIST");
    unsetenv("SLURM_STEP_TASKS_PER_NODE");
    CHECK_OK(weft_i_start_read(&start));
    CHECK_INT(start.local_size, 4);
    CHECK(!*start.master);
    setenv("SLURM_NODELIST", "a,b", 1);
    CHECK_OK(weft_i_start_read(&start));
    CHECK(!strcmp(start.master, "a"));
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

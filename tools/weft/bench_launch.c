/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole job of 4 ranks by `weft run`: start, meet, one barrier, exit.  The floor is the least a
 * system can do: fork 4 processes that exit at once, and wait for them.  Starting 4 empty programs
 * is shown beside it.
 */
#include "bench.h"

#include <weft/weft.h>

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, TURNS = 25 };

int bench_launch_rank(void)
{
    weft_group *world = weft_init(NULL);
    weft_group_barrier(world, WEFT_DEFAULT);
    return weft_finish(world);
}

/* Forks RANKS children, each of which runs `program` (NULL: exits at once), and waits for them. */
static double fork_ms(const char *program)
{
    int64_t start = bench_ns();
    for (int i = 0; i < RANKS; i++)
        if (fork() == 0) {
            if (program)
                execl(program, program, (char *)NULL);
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    return (double)(bench_ns() - start) * 1e-6;
}

static double run_ms(const char *self)
{
    const char *argv[] = {self, "run", "-n", "4", self, "bench", "--launched-rank", NULL};
    int64_t start = bench_ns();
    pid_t child = fork();
    int status = 1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* whoever ends the benchmark ends this too */
        execv(self, (char *const *)argv);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status ? -1 : (double)(bench_ns() - start) * 1e-6;
}

int bench_launch(bench_style *style)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return 1;
    self[n] = 0;
    double run[TURNS], bare[TURNS], empty[TURNS];
    for (int turn = 0; turn < TURNS; turn++) {
        bare[turn] = fork_ms(NULL);
        empty[turn] = fork_ms("/bin/true");
        run[turn] = run_ms(self);
        if (run[turn] < 0) {
            fprintf(stderr, "weft bench launch: weft run failed\n");
            return 1;
        }
    }
    double floor = bench_quantile(bare, TURNS, 0.5);
    bench_row(style, "weft run: start to exit", RANKS, "ms", bench_quantile(run, TURNS, 0.5),
              floor);
    bench_row(style, "4 empty programs", RANKS, "ms", bench_quantile(empty, TURNS, 0.5), floor);
    return 0;
}

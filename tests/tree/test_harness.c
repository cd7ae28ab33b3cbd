/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tests/harness.c, tests/harness_ranks.c */
/* The harness itself: tests that must fail are run by this program in a second copy of itself, and
 * its lines checked. */
#include "harness_ranks.h"
#include "sanitized.h"

#include <weft/weft.h>

RANKS_TEST(test_harness_passes, 3)
{
    CHECK(rank >= 0 && rank < 3);
    CHECK_INT(size, 3);
}

/* What follows must fail, or die: run only by name, by test_harness_judges. */

RANKS_TEST(demo_fails, 3)
{
    if (rank == 1)
        FAIL("because of\n%d", 42);
}

RANKS_TEST(demo_crashes, 2)
{
    if (rank == 1)
        raise(SIGKILL);
}

RANKS_TEST(demo_dies, 2)
{
    if (rank == 1) {
        harness_rank_dies();
        raise(SIGKILL);
    }
}

RANKS_TEST(demo_hangs, 2)
{
    while (rank == 0)
        usleep(1000);
}

RANKS_TEST(demo_hangs_after_another, 2)
{
    if (rank == 1)
        FAIL("the cause");
    while (harness_in_threads)
        usleep(1000);
}

/* The harness is told to end, as at the limit of the program. */
RANKS_TEST(demo_waits_in_vain, 2)
{
    weft_group *world = weft_init(NULL);
    CHECK_OK(weft_group_barrier(world, 60000));
    if (rank == 1)
        kill(getppid(), SIGTERM);
    while (true)
        usleep(1000);
}

/* Its marks would never come. */
RANKS_TEST(demo_awaits_the_failed, 3)
{
    if (rank == 1)
        FAIL("the cause");
    harness_mark();
    harness_await_marks(3);
}

RANKS_TEST(demo_leaks_descriptor, 2)
{
    if (rank == 1)
        CHECK(dup(0) > 2);
}

RANKS_TEST(demo_leaks_process, 1)
{
    pid_t harness = getppid(), child = fork();
    if (child == 0) {
        setsid(); /* out of the rank's process group: only the harness can notice it */
        close(1); /* who reads what the harness writes finds the end */
        while (kill(harness, 0) == 0)
            usleep(1000);
        _exit(0);
    }
    CHECK(child > 0);
}

/* As who kills a rank does: it is at its end when the rank has gone. */
RANKS_TEST(demo_leaves_one_that_ends, 1)
{
    pid_t child = fork();
    if (child == 0) {
        setsid();
        close(1);
        usleep(50000);
        _exit(0);
    }
    CHECK(child > 0);
}

/* As a sanitizer does that has something to report. */
RANKS_TEST(demo_exits, 2)
{
    harness_ranks[rank].outcome = HARNESS_PASS;
    _exit(rank ? 66 : 0);
}

/* A lock that was forgotten. */
RANKS_TEST(demo_unlocks, 2)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    if (rank == 1)
        pthread_mutex_unlock(&mutex);
}

RANKS_TEST(demo_skips, 2)
{
    SKIP("no such machine");
}

TEST(test_harness_judges)
{
    static const struct {
        const char *arguments, *expected;
    } cases[] =
    { {"demo_fails", "demo_fails shm 3 fail: rank 1: "},
      {"demo_fails", "because of 42\n"},
      {"demo_crashes",
       "demo_crashes shm 2 fail: rank 1 ended early; first to fail: rank 1, signal 9\n"},
      {"demo_dies", "demo_dies shm 2 pass\n"},
      {"demo_hangs", "demo_hangs shm 2 fail: took longer than HARNESS_TIMEOUT"},
      {"--backend threads demo_hangs_after_another",
       "demo_hangs_after_another threads 2 fail: took longer than HARNESS_TIMEOUT, after rank 1: "},
      {"demo_waits_in_vain", "demo_waits_in_vain shm 2 fail: was told to end; "},
      {"demo_waits_in_vain 2>&1", "weft: rank 0 is running"},
      {"demo_waits_in_vain 2>&1", "barrier"},
      {"--backend threads demo_waits_in_vain",
       "demo_waits_in_vain threads 2 fail: was told to end; "},
#if !SANITIZED_THREAD /* it reports that the handler reads what it may not */
      {"--backend threads demo_waits_in_vain 2>&1", "rank 0: group_barrier"},
#endif
      {"--backend threads demo_awaits_the_failed",
       "demo_awaits_the_failed threads 3 fail: rank 1: "},
      {"--backend threads demo_awaits_the_failed", "the cause"},
      {"demo_leaks_descriptor", "demo_leaks_descriptor shm 2 fail: rank 1: descriptor "},
      {"demo_leaks_process", "demo_leaks_process shm 1 fail: processes were left running\n"},
      {"demo_leaves_one_that_ends", "demo_leaves_one_that_ends shm 1 pass\n"},
      {"demo_exits", "demo_exits shm 2 fail: ended with status 66 after its ranks had passed"},
#if defined __GLIBC__ && !SANITIZED_THREAD /* see harness_locks.h */
      {"demo_unlocks",
       "demo_unlocks shm 2 fail: rank 1 ended early; first to fail: rank 1, signal 6\n"},
#endif
      {"demo_skips", "demo_skips shm 2 skip: no such machine\n"},
    };
    char command[512], text[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(
            command, sizeof command,
            "WEFT_KILL_GRACE=%d WEFT_TEST_BACKENDS= %s /proc/%d/exe 2>/dev/null --backend shm %s",
            strstr(cases[i].arguments, "demo_waits") ? 20000 : 200,
            strstr(cases[i].arguments, "demo_hangs") ? "HARNESS_TIMEOUT=1" : "", getpid(),
            cases[i].arguments);
        FILE *pipe = popen(command, "r");
        CHECK(pipe);
        text[fread(text, 1, sizeof text - 1, pipe)] = 0;
        int status = pclose(pipe);
        CHECK_CONTAINS(text, cases[i].expected);
        CHECK_INT(WEXITSTATUS(status), strstr(text, " fail: ") != NULL);
    }
    while (waitpid(-1, NULL, 0) > 0) /* the process that one of them has left behind */
        ;
}

int main(int argc, char **argv)
{
    char *own[] = {argv[0], "test_harness_passes", "test_harness_judges", NULL};
    return argc > 1 ? harness_main(argc, argv) : harness_main(3, own);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/spawn.c */
/* weft_spawn: ranks that end by pthread_exit, and threads that cannot be started. */
#include "base/os/os.h"
#include "fault.h"
#include "harness.h"
#include "weft/weft.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { HOUR_MS = 3600 * 1000 };

/* Relaxed, all of them: numbers that are read after the threads are joined. */
static atomic_int arrivals, refused;

/* The first that comes ends its thread; the others would wait for it for an hour. */
static int exit_before_init(void *arg)
{
    (void)arg;
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.meet_timeout_ms = HOUR_MS;
    if (atomic_fetch_add_explicit(&arrivals, 1, memory_order_relaxed) == 0)
        pthread_exit(NULL);
    weft_group *world = weft_init(&opts);
    if (!world && strstr(weft_last_error(), "left the job"))
        atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
    return weft_finish(world);
}

TEST(test_spawn_exit_before_init)
{
    int result = weft_spawn(3, exit_before_init, NULL);
    /* A rank that was refused before another had begun names that one as missing, too. */
    CHECK(result == -WEFT_ERR_PEER_LEFT || result == -WEFT_ERR_MISSING);
    CHECK_INT(atomic_load_explicit(&refused, memory_order_relaxed), 2);
}

/* Keeps the world, so that no scope ends it with the thread. */
static int exit_in_job(void *arg)
{
    weft_group *world = weft_keep(weft_init(NULL));
    weft_group_set_timeout(world, HOUR_MS);
    weft_group **kept = arg;
    if (weft_rank(world) == 1) {
        *kept = world;
        pthread_exit(NULL);
    }
    weft_status status = weft_group_barrier(world, WEFT_DEFAULT);
    weft_finish(world);
    weft_release(world);
    return -status;
}

TEST(test_spawn_exit_in_job)
{
    weft_group *kept = NULL;
    CHECK_INT(weft_spawn(2, exit_in_job, &kept), -WEFT_ERR_PEER_LEFT);
    weft_release(kept);
}

/* A persistent allocation belongs to the rank, and ends with it. */
static int allocate_and_exit(void *arg)
{
    weft_shape shape = WEFT_SHAPE(*(int *)arg);
    int64_t stride = 1;
    weft_group *world = weft_init(NULL);
    if (!weft_symm_empty_strided_p2p(shape, &stride, WEFT_F32, WEFT_CPU, world, 77))
        return -weft_last_status();
    weft_finish(world);
    pthread_exit(NULL);
}

TEST(test_spawn_exit_frees_persistent)
{
    for (int count = 4; count < 40; count++)
        CHECK_INT(weft_spawn(1, allocate_and_exit, &count), 0);
}

static weft_i_os few_threads;

static int no_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    (void)thread, (void)body, (void)argument;
    return EAGAIN;
}

static int return_0(void *arg)
{
    (void)arg;
    return 0;
}

/* Runs a job that cannot start, with standard error in `file`. */
static int spawn_without_threads(FILE *file)
{
    int usual = dup(2);
    few_threads = weft_i_os_linux;
    few_threads.thread_create = no_thread;
    dup2(fileno(file), 2);
    weft_i_os_now = &few_threads;
    int result = weft_spawn(2, return_0, NULL);
    weft_i_os_now = &weft_i_os_linux;
    dup2(usual, 2);
    close(usual);
    return result;
}

/* A program that returns what weft_spawn returned says why it failed. */
TEST(test_spawn_logs_why_it_failed)
{
    char line[512] = "";
    FILE *file = tmpfile();
    CHECK(file);
    int result = spawn_without_threads(file);
    rewind(file);
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = 0;
    CHECK_INT(result, WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "weft_spawn: cannot start thread 0 of 2");
    CHECK_CONTAINS(line, "weft_spawn: cannot start thread 0 of 2");
    CHECK_CONTAINS(line, "(WEFT_ERR_LIMIT)");
}

static int count_runs(void *runs)
{
    atomic_fetch_add_explicit((atomic_int *)runs, 1, memory_order_relaxed);
    return 0;
}

/* Whatever cannot be had: all ranks have run, or none and there is an error. */
TEST(test_spawn_without_means)
{
    int n = 1, failed = 0;
    for (bool fired = true; fired; n++) {
        atomic_int runs = 0;
        weft_clear_error();
        fault_arm(n);
        int result = weft_spawn(1, count_runs, &runs);
        fired = fault_disarm();
        CHECK(result == 0 || (fired && result < 0 && weft_last_error()[0]));
        CHECK_INT(runs, result == 0);
        failed += result != 0;
    }
    CHECK(failed >= 3 && n < 100);
    CHECK(weft_spawn(0, count_runs, NULL) < 0 && weft_spawn(-1, count_runs, NULL) < 0);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

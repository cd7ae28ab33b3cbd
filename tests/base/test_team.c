/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/team/team.c base/machine/threads.c base/machine/control_group.c */
#include "harness.h"

#include "base/machine/control_group.h"
#include "base/machine/threads.h"
#include "base/os/os.h"
#include "base/team/team.h"

#include <weft/weft.h>

#include <dirent.h>
#include <errno.h>
#include <sys/wait.h>

enum { PARTS = 300 };

/* How often each part was run; plain, because a part is run by one thread, and seen when all are done. */
typedef struct tally {
    int runs[PARTS];
    int64_t sum; /* of the caller, between two turns */
} tally;

static void count_part(void *argument, int64_t part)
{
    tally *t = argument;
    t->runs[part]++;
}

static void run_and_check(tally *t, int parts, int times)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < times; i++) {
        weft_i_team_run(parts, count_part, t);
        t->sum += t->runs[parts - 1];
    }
    for (int part = 0; part < PARTS; part++)
        CHECK_INT(t->runs[part], part < parts ? times : 0);
    CHECK_INT(t->sum, (int64_t)times * (times + 1) / 2);
}

TEST(test_team_runs_every_part_once)
{
    static const int threads[] = {1, 2, 3, 16}, parts[] = {1, 2, 3, 5, 16, 17, 64, PARTS};
    static tally t;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        weft_i_team_use(threads[i]);
        CHECK_INT(weft_i_team_threads(), threads[i]);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            run_and_check(&t, parts[k], 200);
    }
    weft_i_team_use(0);
    weft_i_team_rest();
}

/* Threads that have gone to sleep come back. */
TEST(test_team_wakes)
{
    static tally t;
    weft_i_team_use(4);
    for (int i = 0; i < 20; i++) {
        run_and_check(&t, 7 + i, 3);
        WEFT_OS->sleep_ns(2000000);
    }
    weft_i_team_use(0);
    weft_i_team_rest();
}

static void count_inside(void *argument, int64_t part)
{
    tally *all = argument;
    CHECK_INT(weft_i_team_threads(), 1);
    weft_i_team_run(PARTS, count_part, &all[part]);
}

TEST(test_team_inside_of_a_part)
{
    enum { OUTER = 24 };
    tally *all = calloc(OUTER, sizeof *all);
    CHECK(all);
    weft_i_team_use(3);
    weft_i_team_run(OUTER, count_inside, all);
    for (int i = 0; i < OUTER * PARTS; i++)
        CHECK_INT(all[i / PARTS].runs[i % PARTS], 1);
    CHECK_INT(weft_i_team_threads(), 3);
    weft_i_team_use(0);
    weft_i_team_rest();
    free(all);
}

static void *run_beside(void *argument)
{
    for (int i = 0; i < 300; i++)
        weft_i_team_run(PARTS, count_part, argument);
    return NULL;
}

/* One of them has the team at a time, the others work alone. */
TEST(test_team_of_several_threads)
{
    enum { THREADS = 3 };
    static tally t[THREADS];
    pthread_t threads[THREADS];
    weft_i_team_use(2);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, run_beside, &t[i]));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS * PARTS; i++)
        CHECK_INT(t[i / PARTS].runs[i % PARTS], 300);
    weft_i_team_use(0);
    weft_i_team_rest();
}

static int count_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *at; (at = readdir(tasks));)
        count += at->d_name[0] != '.';
    closedir(tasks);
    return count;
}

TEST(test_team_ends)
{
    static tally t;
    weft_i_team_use(0);
    weft_i_team_rest();
    int before = count_threads();
    weft_i_team_use(5);
    run_and_check(&t, 9, 2);
    CHECK_INT(count_threads(), before + 4);
    weft_i_team_use(3); /* another number: they start again */
    run_and_check(&t, 9, 2);
    /* A joined thread may be listed for a moment still. */
    for (int i = 0; i < 5000 && count_threads() > before + 2; i++)
        WEFT_OS->sleep_ns(1000000);
    CHECK_INT(count_threads(), before + 2);
    CHECK_INT(weft_finish(NULL), 0);
    for (int i = 0; i < 5000 && count_threads() > before; i++)
        WEFT_OS->sleep_ns(1000000);
    CHECK_INT(count_threads(), before);
    weft_i_team_use(0);
}

/* ---- ranks ---- */

static int rank_of_threads(void *unused)
{
    tally *t = calloc(1, sizeof *t);
    weft_group *world = weft_init(NULL);
    int failed = !t || !world || weft_group_barrier(world, 60000) < 0;
    weft_i_team_use(3);
    for (int i = 0; i < 100 && !failed; i++)
        weft_i_team_run(PARTS, count_part, t);
    for (int part = 0; part < PARTS && !failed; part++)
        failed = t->runs[part] != 100;
    (void)unused;
    free(t);
    return weft_finish(world) || failed;
}

TEST(test_team_of_each_rank)
{
    CHECK_INT(weft_spawn(3, rank_of_threads, NULL), 0);
}

static int rank_of_alone(void *argument)
{
    int *threads = argument;
    weft_group *world = weft_init(NULL);
    if (world && weft_rank(world) == 0)
        *threads = weft_i_team_threads();
    return weft_finish(world);
}

TEST(test_team_divides_cores)
{
    int threads = 0, cores = weft_i_os_cores();
    unsetenv("OMP_NUM_THREADS");
    CHECK_INT(weft_spawn(cores + 1, rank_of_alone, &threads), 0);
    CHECK_INT(threads, 1);
    setenv("WEFT_THREADS", "5", 1);
    CHECK_INT(weft_spawn(2, rank_of_alone, &threads), 0);
    unsetenv("WEFT_THREADS");
    CHECK_INT(threads, 5);
}

/* ---- forks ---- */

TEST(test_team_after_fork)
{
    static tally t;
    weft_i_team_use(4);
    run_and_check(&t, 50, 3);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) { /* none of the four is here, and no others are made */
        memset(&t, 0, sizeof t);
        for (int i = 0; i < 5; i++)
            weft_i_team_run(50, count_part, &t);
        bool right = weft_i_team_threads() == 1;
        for (int part = 0; part < 50; part++)
            right &= t.runs[part] == 5;
        weft_i_team_rest();
        _exit(right ? 0 : 1);
    }
    int status = 0;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    run_and_check(&t, 50, 3); /* and the parent's are where they were */
    weft_i_team_use(0);
    weft_i_team_rest();
}

/* ---- no threads to be had ---- */

static weft_i_os table;
static int threads_left;

static int refuse_threads(pthread_t *thread, void *(*body)(void *), void *argument)
{
    return threads_left-- > 0 ? weft_i_os_linux.thread_create(thread, body, argument) : EAGAIN;
}

TEST(test_team_without_threads)
{
    static tally t;
    table = weft_i_os_linux;
    table.thread_create = refuse_threads;
    for (threads_left = 0; threads_left < 3;) {
        int had = threads_left;
        weft_i_team_rest();
        weft_i_team_use(4);
        weft_i_os_now = &table;
        run_and_check(&t, 20, 3);
        int threads = weft_i_team_threads();
        weft_i_os_now = &weft_i_os_linux;
        CHECK_INT(threads, 1);
        threads_left = had + 1;
    }
    weft_i_team_use(0);
    weft_i_team_rest();
}

TEST(test_team_alone_under_a_table)
{
    table = weft_i_os_linux;
    weft_i_os_now = &table;
    int threads = weft_i_team_threads();
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(threads, 1);
}

/* ---- how many, and why ---- */

static const char *group_text, *quota_text;

static int open_made_up(const char *path, int flags, mode_t mode)
{
    (void)flags, (void)mode;
    if (!strcmp(path, "/proc/self/cgroup"))
        return 1000;
    if (!strcmp(path, "/sys/fs/cgroup/job/cpu.max") ||
        !strcmp(path, "/sys/fs/cgroup/cpu/old/cpu.cfs_quota_us"))
        return 1001;
    if (!strcmp(path, "/sys/fs/cgroup/cpu/old/cpu.cfs_period_us"))
        return 1002;
    errno = ENOENT;
    return -1;
}

static bool told; /* the file was read to its end */

static ssize_t read_made_up(int fd, void *bytes, size_t count)
{
    const char *text = fd == 1000 ? group_text : fd == 1001 ? quota_text : "100000\n";
    size_t length = told ? 0 : strlen(text);
    CHECK(length <= count);
    memcpy(bytes, text, length);
    told = !told;
    return (ssize_t)length;
}

static int close_made_up(int fd)
{
    (void)fd;
    told = false;
    return 0;
}

static int64_t quota_of(const char *group, const char *quota)
{
    table = weft_i_os_linux;
    table.open = open_made_up;
    table.read = read_made_up;
    table.close = close_made_up;
    group_text = group;
    quota_text = quota;
    weft_i_os_now = &table;
    int64_t cores = weft_i_control_group_cores();
    weft_i_os_now = &weft_i_os_linux;
    return cores;
}

TEST(test_threads_of_a_control_group)
{
    CHECK_INT(quota_of("0::/job/7\n", "150000 100000\n"), 1500);
    CHECK_INT(quota_of("0::/job\n", "max 100000\n"), 0);
    CHECK_INT(quota_of("0::/job\n", "400000 100000\n"), 4000);
    CHECK_INT(quota_of("0::/job\n", "400000 0\n"), 0);
    CHECK_INT(quota_of("3:cpu,cpuacct:/old\n", "250000\n"), 2500);
    CHECK_INT(quota_of("3:cpuacct,cpu:/old\n", "-1\n"), 0);
    CHECK_INT(quota_of("3:cpuset:/old\n", "250000\n"), 0);
    CHECK_INT(quota_of("0::/elsewhere\n", "250000 100000\n"), 0);
}

TEST(test_threads_are_decided)
{
    char why[128];
    int cores = weft_i_os_cores();
    unsetenv("WEFT_THREADS");
    unsetenv("OMP_NUM_THREADS");
    int mine = weft_i_threads_decide(1, 1, why, sizeof why);
    CHECK(mine >= 1 && mine <= (cores < WEFT_I_THREADS_MOST ? cores : WEFT_I_THREADS_MOST));
    CHECK_INT(weft_i_threads_decide(cores + 1, cores + 1, why, sizeof why), 1);
    CHECK_CONTAINS(why, "rank");
    setenv("OMP_NUM_THREADS", "7,2", 1);
    CHECK_INT(weft_i_threads_decide(4, 4, why, sizeof why), 7);
    CHECK(!strcmp(why, "OMP_NUM_THREADS"));
    setenv("WEFT_THREADS", "3", 1);
    CHECK_INT(weft_i_threads_decide(4, 4, why, sizeof why), 3);
    CHECK(!strcmp(why, "WEFT_THREADS"));
    setenv("WEFT_THREADS", "100000", 1);
    CHECK_INT(weft_i_threads_decide(1, 1, NULL, 0), WEFT_I_THREADS_MOST);
    unsetenv("WEFT_THREADS");
    setenv("OMP_NUM_THREADS", "many", 1); /* not ours to complain of */
    CHECK_INT(weft_i_threads_decide(1, 1, NULL, 0), mine);
    unsetenv("OMP_NUM_THREADS");
}

/* ---- cuts ---- */

TEST(test_team_cuts)
{
    CHECK_INT(weft_i_team_parts(0), 1);
    CHECK_INT(weft_i_team_parts(WEFT_I_TEAM_LEAST - 1), 1);
    CHECK(weft_i_team_parts(WEFT_I_TEAM_LEAST) > 1);
    CHECK_INT(weft_i_team_parts(INT64_MAX), WEFT_I_TEAM_MOST);
    for (int64_t n = 0; n < 70; n++)
        for (int64_t parts = 1; parts < 9; parts++) {
            CHECK_INT(weft_i_team_bound(n, parts, 0), 0);
            CHECK_INT(weft_i_team_bound(n, parts, parts), n);
            CHECK_INT(weft_i_team_bound_at(n, 8, parts, parts), n);
            for (int64_t part = 0; part < parts; part++) {
                int64_t size =
                    weft_i_team_bound(n, parts, part + 1) - weft_i_team_bound(n, parts, part);
                CHECK(size == n / parts || size == n / parts + 1);
                int64_t at = weft_i_team_bound_at(n, 8, parts, part);
                CHECK(at % 8 == 0 || at == n);
                CHECK(at <= weft_i_team_bound_at(n, 8, parts, part + 1));
            }
        }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

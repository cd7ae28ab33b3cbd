/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/watch.c, fabric/world/world.c */
/*
 * What can be told of a rank (fabric/world/watch.c, world.c): every state of its record as a fate, as a
 * status and as words; and the watch thread by itself.
 */
#include "harness.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/world/world.h"

#include <weft/status.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static weft_i_segment *page;
static weft_i_rank_record *mine;

static void open_record(void)
{
    CHECK_OK(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, &page));
    mine = weft_i_job_rank(weft_i_job_of(page), 0);
    weft_i_record_init(&mine->record);
}

static void close_record(void)
{
    weft_i_segment_drop(page);
    page = NULL;
}

static const char *words(void)
{
    static char out[1024];
    weft_i_text text = {out, sizeof out, 0};
    out[0] = 0;
    weft_i_watch_describe(mine, &text);
    return out;
}

static void says(const char *want)
{
    const char *said = words();
    if (strcmp(said, want))
        FAIL("says \"%s\", not \"%s\"", said, want);
}

static void begins(const char *want)
{
    const char *said = words();
    if (strncmp(said, want, strlen(want)))
        FAIL("says \"%s\", not \"%s...\"", said, want);
}

/* ---- fates ---- */

TEST(test_watch_fate)
{
    static const struct {
        uint32_t word, exit, state;
        weft_i_fate fate;
    } cases[] = {{0, 0, WEFT_I_RANK_AWAITED, WEFT_I_ALIVE},
                 {0, 0, WEFT_I_RANK_ENTERING, WEFT_I_ALIVE},
                 {7, 0, WEFT_I_RANK_HERE, WEFT_I_ALIVE},
                 {7 | FUTEX_OWNER_DIED, 0, WEFT_I_RANK_HERE, WEFT_I_DEAD},
                 {7 | FUTEX_WAITERS, 0, WEFT_I_RANK_HERE, WEFT_I_ALIVE},
                 {7, WEFT_I_EXIT_SEEN, WEFT_I_RANK_HERE, WEFT_I_DEAD},
                 {0, WEFT_I_EXIT_SEEN, WEFT_I_RANK_AWAITED, WEFT_I_DEAD},
                 {0, WEFT_I_EXIT_SEEN, WEFT_I_RANK_LEFT, WEFT_I_LEFT},
                 {FUTEX_OWNER_DIED, 0, WEFT_I_RANK_LEFT, WEFT_I_LEFT},
                 {0, 0, WEFT_I_RANK_FAILED, WEFT_I_LEFT},
                 {0, WEFT_I_EXIT_SEEN | 9, WEFT_I_RANK_FAILED, WEFT_I_LEFT}};
    open_record();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mine->life.word = cases[i].word;
        mine->life.exit = cases[i].exit;
        mine->life.state = cases[i].state;
        if (weft_i_watch_fate(mine) != cases[i].fate)
            FAIL("case %zu: %d, not %d", i, weft_i_watch_fate(mine), cases[i].fate);
    }
    close_record();
}

TEST(test_watch_words_of_states)
{
    open_record();
    mine->address.process = 4321; /* not told before the rank is here */
    says("never called weft_init");
    mine->life.state = WEFT_I_RANK_ENTERING;
    says("is entering the job");
    mine->life.state = WEFT_I_RANK_LEFT;
    says("left the job, process 4321");
    mine->life.exit = WEFT_I_EXIT_SEEN | SIGKILL;
    says("left the job, process 4321"); /* in order, however its process ended */
    mine->life.state = WEFT_I_RANK_FAILED;
    mine->address.process = 0;
    says("could not enter the job: its weft_init failed");
    mine->life.state = WEFT_I_RANK_HERE;
    begins("killed by signal 9 (");
    weft_i_job_note_exit(weft_i_job_of(page), 0, 3 << 8);
    says("its process exited with status 3");
    mine->life.exit = 0;
    mine->life.word = FUTEX_OWNER_DIED | 5;
    says("died, or exited without weft_finish");
    mine->life.state = WEFT_I_RANK_AWAITED;
    says("died, or exited without weft_finish");
    mine->life.word = 5;
    mine->life.state = WEFT_I_RANK_HERE;
    says("alive");
    close_record();
}

/* A clock that the test sets. */
static int64_t now_ns;

static int64_t hand_clock(void)
{
    return now_ns;
}

/* Silence begins after half a second, not with it. */
TEST(test_watch_words_of_the_living)
{
    static weft_i_os table;
    open_record();
    table = weft_i_os_linux;
    table.clock_ns = hand_clock;
    weft_i_os_now = &table;
    mine->life.state = WEFT_I_RANK_HERE;
    mine->heart.beat_ns = now_ns = 1000000000;
    says("alive");
    now_ns += 500000000;
    says("alive");
    now_ns += 1000000;
    says("silent for 0.5 s: stopped or starved of processor time");
    now_ns += 1500000000;
    says("silent for 2.0 s: stopped or starved of processor time");
    mine->heart.beat_ns = 0; /* none yet */
    says("alive");
    weft_i_os_now = &weft_i_os_linux;
    close_record();
}

/* By the state that the system gives, not by silence. */
TEST(test_watch_words_of_the_stopped)
{
    open_record();
    mine->life.state = WEFT_I_RANK_HERE;
    CHECK(!weft_i_watch_is_stopped(mine));
    int child = fork();
    if (child == 0)
        for (;;)
            pause();
    mine->address.process = child;
    bool before = weft_i_watch_is_stopped(mine);
    kill(child, SIGSTOP);
    int status;
    waitpid(child, &status, WUNTRACED);
    bool after = weft_i_watch_is_stopped(mine);
    char want[96], said[256];
    snprintf(want, sizeof want, "stopped by a signal (no sign of life for 0.0 s), process %d",
             child);
    snprintf(said, sizeof said, "%s", words());
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    CHECK(!before);
    CHECK(after);
    if (strcmp(said, want))
        FAIL("\"%s\"", said);
    CHECK(!weft_i_watch_is_stopped(mine));
    close_record();
}

/* One operation, and a step of it. */
TEST(test_watch_last_operation_but_one)
{
    open_record();
    mine->life.state = WEFT_I_RANK_HERE;
    weft_i_record_end(&mine->record, weft_i_record_begin(&mine->record, "first", 1, 0, -1, -1), 0);
    weft_i_record_end(&mine->record, weft_i_record_begin(&mine->record, "cma", 1, 0, -1, -1), 0);
    begins("alive; its last operation: first #1");
    close_record();
    open_record(); /* nothing but a step */
    mine->life.state = WEFT_I_RANK_HERE;
    weft_i_record_end(&mine->record, weft_i_record_begin(&mine->record, "cma", 1, 0, -1, -1), 0);
    begins("alive; its last operation: cma #1");
    close_record();
}

/* The operation a rank is in counts, though newer ones are finished; else the newest. */
TEST(test_watch_last_operation)
{
    open_record();
    mine->life.state = WEFT_I_RANK_HERE;
    says("alive");
    weft_i_record_end(&mine->record, weft_i_record_begin(&mine->record, "first", 1, 0, -1, -1), 0);
    begins("alive; its last operation: first #1");
    weft_i_record_end(&mine->record, weft_i_record_begin(&mine->record, "second", 1, 0, -1, -1), 0);
    begins("alive; its last operation: second #2");
    uint64_t step = weft_i_record_begin(&mine->record, "cma", 1, 0, -1, -1);
    begins("alive; its last operation: cma #3"); /* the rank hangs in it */
    weft_i_record_end(&mine->record, step, 0);
    begins("alive; its last operation: second #2"); /* of which it was a step */
    uint64_t outer = weft_i_record_begin(&mine->record, "outer", 1, 0, -1, -1);
    for (int i = 0; i < 7; i++)
        weft_i_record_end(&mine->record, weft_i_record_begin(&mine->record, "part", 1, 0, -1, -1),
                          0);
    begins("alive; its last operation: outer #4");
    CHECK_CONTAINS(words(), "not finished");
    weft_i_record_end(&mine->record, weft_i_record_begin(&mine->record, "part", 1, 0, -1, -1), 0);
    begins("alive; its last operation: part #12"); /* too far back */
    uint64_t inner = weft_i_record_begin(&mine->record, "inner", 1, 0, -1, -1);
    weft_i_record_begin(&mine->record, "innermost", 1, 0, -1, -1);
    begins("alive; its last operation: innermost #14"); /* of several the newest */
    weft_i_record_end(&mine->record, inner, 0);
    weft_i_record_end(&mine->record, outer, 0);
    close_record();
}

/* ---- the thread ---- */

static int64_t now_ms(void)
{
    return WEFT_OS->clock_ns() / 1000000;
}

static int next_descriptor(void)
{
    int fd = dup(1);
    close(fd);
    return fd;
}

static uint64_t woken_with;

static ssize_t note_write(int fd, const void *bytes, size_t count)
{
    if (count == sizeof woken_with)
        memcpy(&woken_with, bytes, count);
    return weft_i_os_linux.write(fd, bytes, count);
}

/* An eventfd to which 0 is written wakes nobody, and the thread would end with its next beat. */
TEST(test_watch_is_woken)
{
    static weft_i_os table;
    weft_i_fdpass *fdpass = NULL;
    weft_i_watch *watch = NULL;
    table = weft_i_os_linux;
    table.write = note_write;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    open_record();
    CHECK_OK(weft_i_watch_start(mine, fdpass, &watch));
    weft_i_os_now = &table;
    weft_i_watch_stop(watch);
    weft_i_os_now = &weft_i_os_linux;
    CHECK(woken_with > 0);
    close_record();
    weft_i_fdpass_drop(fdpass);
}

TEST(test_watch_thread)
{
    weft_i_fdpass *fdpass = NULL;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    int64_t soonest = INT64_MAX;
    for (int i = 0; i < 8; i++) {
        weft_i_watch *watch = NULL;
        open_record();
        int unused = next_descriptor();
        CHECK_OK(weft_i_watch_start(mine, fdpass, &watch));
        uint32_t holder = mine->life.word;
        CHECK(holder && holder != (uint32_t)weft_i_os_thread()); /* the thread, and it holds it */
        CHECK(mine->heart.beats >= 1 && mine->heart.beat_ns > 0);
        int64_t began = now_ms();
        for (int ms = 0; i == 0 && ms < 20000 && mine->heart.beats < 4; ms++)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        if (i == 0) { /* three beats of 100 ms have come, one after the other */
            CHECK(mine->heart.beats >= 4);
            CHECK(now_ms() - began >= 150);
            CHECK(mine->record.coarse != 0);
        }
        began = now_ms();
        weft_i_watch_stop(watch);
        soonest = now_ms() - began < soonest ? now_ms() - began : soonest;
        CHECK_INT(mine->life.word, 0); /* let go, not marked */
        CHECK_INT(next_descriptor(), unused);
        close_record();
    }
    CHECK(soonest < 60); /* it is woken, and does not wait for its next beat */
    weft_i_watch_stop(NULL);
    weft_i_fdpass_drop(fdpass);
}

/* A program may run without standard input: then 0 is a descriptor like any other. */
TEST(test_watch_descriptor_0)
{
    weft_i_fdpass *fdpass = NULL;
    weft_i_watch *watch = NULL;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    open_record();
    int input = dup(0);
    close(0);
    weft_status status = weft_i_watch_start(mine, fdpass, &watch);
    bool taken = fcntl(0, F_GETFD) >= 0;
    if (status == WEFT_OK)
        weft_i_watch_stop(watch);
    bool given_back = fcntl(0, F_GETFD) < 0;
    dup2(input, 0);
    close(input);
    CHECK_OK(status);
    CHECK(taken && given_back);
    close_record();
    weft_i_fdpass_drop(fdpass);
}

/* A kernel, or a sandbox, without robust futexes: deaths could not be told, so nothing starts. */
static int start_without_robust_futexes(weft_i_fdpass *fdpass)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_robust_list, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    weft_i_watch *watch = NULL;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 77;
    int unused = next_descriptor();
    if (weft_i_watch_start(mine, fdpass, &watch) != WEFT_ERR_UNSUPPORTED || watch)
        return 1;
    if (!strstr(weft_last_error(), "refuses robust futexes (set_robust_list)"))
        return 2;
    return mine->life.word ? 3 : next_descriptor() != unused ? 4 : 0;
}

TEST(test_watch_without_robust_futexes)
{
    weft_i_fdpass *fdpass = NULL;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    open_record();
    int child = fork(), status = 0;
    if (child == 0)
        _exit(start_without_robust_futexes(fdpass));
    waitpid(child, &status, 0);
    close_record();
    weft_i_fdpass_drop(fdpass);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("system calls cannot be filtered here");
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

/* ---- the world's words ---- */

enum { WORLD = 5 };

static weft_i_world *open_world(void)
{
    weft_i_world *world = NULL;
    open_record();
    CHECK_OK(weft_i_world_new(1, WORLD, &world));
    mine->life.state = WEFT_I_RANK_HERE;
    world->peers[0].rank_record = mine;
    for (int rank = 1; rank < WORLD; rank++)
        snprintf(world->peers[rank].host, sizeof world->peers[rank].host, "host%d", rank);
    world->peers[2].gone = WEFT_I_LEFT;
    world->peers[3].gone = WEFT_I_DEAD;
    memset(world->peers[4].host, 'h', 64);
    return world;
}

static void close_world(weft_i_world *world)
{
    weft_i_world_drop(world);
    close_record();
}

TEST(test_watch_world_words)
{
    static const char *const told[] = {
        "rank 0 (alive)", "rank 1 (on host host1)", "rank 2 (on host host2: left the job)",
        "rank 3 (on host host3: died, or exited without weft_finish)",
        "rank 4 (on host hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh)"};
    weft_i_world *world = open_world();
    char out[1024], all[1024] = "", want[1024] = "";
    weft_i_text list = {all, sizeof all, 0};
    for (int rank = 0; rank < WORLD; rank++) {
        weft_i_world_describe(world, rank, out, sizeof out);
        if (strcmp(out, told[rank]))
            FAIL("\"%s\", not \"%s\"", out, told[rank]);
        weft_i_world_list(world, rank, &list);
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%s", rank ? ", " : "",
                 told[rank]);
    }
    if (strcmp(all, want))
        FAIL("\"%s\", not \"%s\"", all, want);
    close_world(world);
}

TEST(test_watch_world_fates)
{
    weft_i_world *world = open_world();
    CHECK_INT(weft_i_world_fate(world, 0), WEFT_OK);
    CHECK_INT(weft_i_world_fate(world, 1), WEFT_OK);
    CHECK_INT(weft_i_world_fate(world, 2), WEFT_ERR_PEER_LEFT);
    CHECK_INT(weft_i_world_fate(world, 3), WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    CHECK_INT(weft_i_world_lost(world, 0, "op"), WEFT_OK);
    CHECK(!*weft_last_error());
    CHECK_INT(weft_i_world_lost(world, 2, "op"), WEFT_ERR_PEER_LEFT);
    CHECK(!strcmp(weft_last_error(), "op: rank 2 (on host host2: left the job) will not come"));
    CHECK_INT(weft_last_status(), WEFT_ERR_PEER_LEFT);
    mine->life.word = FUTEX_OWNER_DIED;
    CHECK_INT(weft_i_world_lost(world, 0, "op"), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "op: rank 0 (died, or exited without weft_finish");
    close_world(world);
}

TEST(test_watch_world_is_usable)
{
    weft_i_world *world = open_world();
    CHECK_OK(weft_i_world_usable(world));
    CHECK_STATUS(weft_i_world_usable(NULL), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "it is a stand-in");
    world->generation++;
    CHECK_STATUS(weft_i_world_usable(world), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "this process was forked from rank 1");
    world->generation--;
    world->finished = true;
    CHECK_STATUS(weft_i_world_usable(world), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "weft_finish was called");
    close_world(world);
}

/* Settings that a world takes over. */
TEST(test_watch_world_settings)
{
    weft_i_world *world = open_world();
    CHECK(world->rank == 1 && world->size == WORLD && world->references == 1);
    CHECK_INT(world->timeout_ms, 600000);
    CHECK_INT(world->warn_ns, 30000000000);
    int64_t begin = 0;
    CHECK(!weft_i_world_is_late(world, &begin, 5));
    CHECK(!weft_i_world_is_late(world, &begin, 4 + world->warn_ns));
    CHECK(weft_i_world_is_late(world, &begin, 5 + world->warn_ns));
    CHECK(!weft_i_world_is_late(world, &begin, 6 + 3 * world->warn_ns)); /* told once */
    close_world(world);
    setenv("WEFT_WARN_AFTER", "forever", 1);
    world = open_world();
    unsetenv("WEFT_WARN_AFTER");
    CHECK(world->warn_ns == WEFT_I_NEVER);
    close_world(world);
}

/* The cores of all ranks of the host, counted once each. */
TEST(test_watch_world_counts_cores)
{
    weft_i_world *world = open_world();
    weft_i_segment *others = NULL;
    CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &others));
    world->local_size = 3;
    weft_i_world_count_cores(world);
    CHECK_INT(world->cores, 0);
    mine->address.cores[0] = 5;
    world->peers[2].rank_record = weft_i_job_rank(weft_i_job_of(others), 0);
    world->peers[2].rank_record->address.cores[0] = 4;
    world->peers[4].rank_record = weft_i_job_rank(weft_i_job_of(others), 1);
    world->peers[4].rank_record->address.cores[WEFT_I_OS_CORE_WORDS - 1] = 1ull << 63 | 2;
    weft_i_world_count_cores(world);
    CHECK_INT(world->cores, 4);
    CHECK_INT(world->mode, weft_i_wait_mode_for(3, 4));
    for (int rank = 2; rank < WORLD; rank++)
        world->peers[rank].rank_record = NULL;
    weft_i_segment_drop(others);
    close_world(world);
}

/* A place that is not there, and one that another has. */
TEST(test_watch_world_enters)
{
    weft_i_world *world = open_world();
    weft_i_segment *job = NULL;
    CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &job));
    CHECK_STATUS(weft_i_world_enter(world, job, NULL, -1), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "local rank -1 is outside the job page's 2 ranks");
    CHECK_STATUS(weft_i_world_enter(world, job, NULL, 2), WEFT_ERR_INVALID_ARG);
    weft_i_rank_record *slot = weft_i_job_rank(weft_i_job_of(job), 1);
    for (uint32_t state = WEFT_I_RANK_HERE; state <= WEFT_I_RANK_FAILED; state++) {
        slot->life.state = state;
        CHECK_STATUS(weft_i_world_enter(world, job, NULL, 1), WEFT_ERR_STATE);
        CHECK_CONTAINS(weft_last_error(), "rank 1 has already met in this job");
        weft_i_world_tell_failed(slot); /* not ours to tell of */
        CHECK_INT(slot->life.state, state);
    }
    slot->life.state = WEFT_I_RANK_AWAITED;
    weft_i_world_tell_failed(slot);
    CHECK_INT(slot->life.state, WEFT_I_RANK_FAILED);
    CHECK(!world->mine && !world->job && !world->fdpass);
    weft_i_segment_drop(job);
    close_world(world);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

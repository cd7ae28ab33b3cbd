/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/job_look.c, fabric/world/job_find.c, fabric/world/job.c,
 * base/report/os_look.c */
/*
 * Jobs looked at from outside.  The one who looks is a rank that hangs on purpose: it looks until
 * the others show that they wait for it, so nothing here depends on how fast the machine is.
 */
#include "crew.h"
#include "fault.h"
#include "memory_count.h"

#include "base/report/os_look.h"
#include "base/report/status.h"
#include "fabric/group/group.h"
#include "fabric/world/spawn.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>

static void rest(void)
{
    usleep(2000);
}

/* Looks until rank `index` is in an operation called `name`, the group's `turn`-th (0: any); NULL
 * after 20 s.  To be released. */
static weft_job *look_until(int process, int index, const char *name, uint64_t turn,
                            weft_job_rank *out)
{
    for (int i = 0; i < 10000; i++) {
        weft_job *job = weft_job_open(process);
        if (!job || weft_job_describe_rank(job, index, out) < 0)
            return NULL;
        if (!strcmp(out->now.name, name) && (!turn || out->now.turn == turn))
            return job;
        weft_release(job);
        rest();
    }
    return NULL;
}

static weft_job *look_until_state(int process, int index, weft_job_state state, weft_job_rank *out)
{
    for (int i = 0; i < 10000; i++) {
        weft_job *job = weft_job_open(process);
        if (!job || weft_job_describe_rank(job, index, out) < 0)
            return NULL;
        if (out->state == state)
            return job;
        weft_release(job);
        rest();
    }
    return NULL;
}

static bool misses_only(const weft_job *job, int index, int missing)
{
    int who[8] = {-1};
    return weft_job_missing(job, index, who, 8) == 1 && who[0] == missing;
}

/* ---- who has not come ---- */

RANKS_TEST(test_job_hang, 3)
{
    weft_group *world = weft_init(NULL);
    CHECK(world);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100));
    for (int i = 0; i < 4; i++)
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, world));
    if (rank == 2) {
        weft_job_rank other;
        for (int peer = 0; peer < 2; peer++) {
            weft_job *job = look_until(getpid(), peer, "all_reduce", 5, &other);
            CHECK(job);
            CHECK_INT(other.rank, peer);
            CHECK_INT(other.state, WEFT_JOB_ALIVE);
            CHECK_INT(other.now.bytes, 400);
            CHECK(!strcmp(other.now.group, "0") && other.now.peer == -1);
            CHECK(!strcmp(other.last.name, "all_reduce") && other.last.turn == 4);
            CHECK(other.begun >= 5 && other.recent >= 5 && other.recent_calls <= other.recent);
            CHECK(other.recent_bytes >= 5 * 400);
            /* The other one may not have come either, but this one has not for sure. */
            int missing[3], count = weft_job_missing(job, peer, missing, 3);
            CHECK(count >= 1 && missing[count - 1] == 2);
            weft_job_rank mine;
            weft_job_info info;
            CHECK_OK(weft_job_describe_rank(job, 2, &mine));
            CHECK(!*mine.now.name && mine.last.turn == 4 && mine.process == getpid());
            CHECK_INT(weft_job_missing(job, 2, NULL, 0), 0);
            CHECK_OK(weft_job_describe(job, &info));
            CHECK_INT(info.ranks, 3);
            CHECK_INT(info.threads, harness_in_threads);
            CHECK(!strcmp(info.program, "test_job"));
            weft_release(job);
        }
        CHECK(look_until(getpid(), 0, "all_reduce", 5, &other));
    }
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, world));
    CHECK_INT(weft_finish(world), 0);
}

/* The list of who is missing has room for a last rank that begins a new byte. */
RANKS_TEST(test_job_hang_9, 9)
{
    weft_group *world = weft_init(NULL);
    CHECK(world);
    if (rank == 8) {
        weft_job_rank other;
        for (int peer = 0; peer < 8; peer++) {
            int who[9], count = 0;
            weft_job *job = look_until(getpid(), peer, "group_barrier", 0, &other);
            CHECK(job);
            count = weft_job_missing(job, peer, who, 9);
            CHECK(count >= 1 && who[count - 1] == 8 && who[0] != peer);
            weft_release(job);
        }
        weft_job *job = look_until(getpid(), 0, "group_barrier", 0, &other);
        for (int peer = 0; peer < 8; peer++)
            CHECK(job && misses_only(job, peer, 8));
        weft_release(job);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_INT(weft_finish(world), 0);
}

/* Only members of a group are missing in it; a message has one who is. */
RANKS_TEST(test_job_hang_in_group, 4)
{
    weft_group *world = weft_init(NULL);
    int odd[] = {3, 1};
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100));
    weft_group *group = rank % 2 ? weft_group_new(world, odd, 2, "the odd ones") : NULL;
    weft_job_rank other;
    if (rank == 1) { /* rank 0 of that group */
        weft_job *job = look_until(getpid(), 3, "lane", 0, &other);
        CHECK(job && misses_only(job, 3, 1));
        CHECK(!strcmp(other.now.group, "the odd ones"));
        CHECK(!strcmp(other.now.part_of, "all_reduce")); /* its first one */
        weft_release(job);
    }
    if (group)
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, group));
    if (rank == 1) {
        weft_job *job = look_until(getpid(), 3, "recv", 0, &other);
        CHECK(job && misses_only(job, 3, 1));
        CHECK(!strcmp(other.now.group, "the odd ones"));
        CHECK_INT(other.now.peer, 1);
        weft_release(job);
        CHECK_OK(weft_send(x, 0, group));
        CHECK_OK(weft_recv(x, 0, group));
    } else if (rank == 3) {
        CHECK_OK(weft_recv(x, 1, group));
        /* The first of the group is awaited: nobody who has no rank there. */
        weft_job *job = look_until(getpid(), 1, "recv", 0, &other);
        CHECK(job && misses_only(job, 1, 3));
        CHECK_INT(other.now.peer, 0);
        weft_release(job);
        CHECK_OK(weft_send(x, 1, group));
    }
    weft_release(group);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_INT(weft_finish(world), 0);
}

/* A group that one of its members does not make. */
RANKS_TEST(test_job_hang_group_new, 2)
{
    weft_group *world = weft_init(NULL);
    int both[] = {0, 1};
    weft_job_rank other;
    for (int who = 0; who < 2; who++) {
        if (rank == who) {
            bool seen = false; /* the other one may still be making the last group */
            for (int i = 0; i < 10000 && !seen; i++) {
                weft_job *job = look_until(getpid(), 1 - who, "group_new", 0, &other);
                seen = job && misses_only(job, 1 - who, who);
                weft_release(job);
            }
            CHECK(seen);
        }
        CHECK(weft_group_new(world, both, 2, NULL));
    }
    CHECK_INT(weft_finish(world), 0);
}

/* ---- ranks that are stopped, dead or gone ---- */

static int fated_crew(int rank, void *arg)
{
    const int *fate = arg;
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10));
    CREW(world && weft_all_reduce_into(x, x, WEFT_MAX, world) == WEFT_OK, "%s", weft_last_error());
    crew->pid[rank] = getpid();
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    weft_job_rank seen;
    weft_job *job = NULL;
    if (rank == 1 && *fate == WEFT_JOB_STOPPED)
        raise(SIGSTOP);
    else if (rank == 1 && *fate == WEFT_JOB_DEAD)
        raise(SIGKILL);
    else if (rank == 1)
        weft_finish(world);
    if (rank == 0)
        CREW(job = look_until_state(getpid(), 1, (weft_job_state)*fate, &seen), "never seen so");
    if (rank == 2 && *fate == WEFT_JOB_STOPPED)
        CREW(weft_all_reduce_into(x, x, WEFT_MAX, world) == WEFT_OK, "%s", weft_last_error());
    if (rank == 0) {
        CREW(seen.process == crew->pid[1] && seen.rank == 1, "process %d", seen.process);
        CREW(!strcmp(seen.last.name, "group_barrier"), "%s", seen.last.name);
        weft_release(job);
    }
    if (rank == 0 && *fate == WEFT_JOB_STOPPED) {
        CREW(job = look_until(getpid(), 2, "all_reduce", 2, &seen), "rank 2 never came");
        int missing[3] = {-1, -1, -1};
        CREW(weft_job_missing(job, 2, missing, 3) == 2 && missing[0] == 0 && missing[1] == 1,
             "ranks %d and %d", missing[0], missing[1]);
        weft_release(job);
        kill(crew->pid[1], SIGCONT);
    }
    if (rank != 2 && *fate == WEFT_JOB_STOPPED)
        CREW(weft_all_reduce_into(x, x, WEFT_MAX, world) == WEFT_OK, "%s", weft_last_error());
    if (rank == 0)
        crew->go = 1;
    while (rank == 2 && !crew->go) /* so that nobody leaves before it is seen */
        rest();
    weft_finish(world);
    crew->rank[rank].done = 1;
    return 0;
}

static void run_fate(weft_job_state fate)
{
    if (getenv("WEFT_TEST_BACKENDS") && !strstr(getenv("WEFT_TEST_BACKENDS"), "shm"))
        SKIP("process ranks, which this build does not test");
    int arg = (int)fate;
    crew_run(weft_job_state_name(fate), 3, fated_crew, &arg, fate == WEFT_JOB_DEAD ? 1 : -1);
}

TEST(test_job_stopped)
{
    run_fate(WEFT_JOB_STOPPED);
}

TEST(test_job_dead)
{
    run_fate(WEFT_JOB_DEAD);
}

TEST(test_job_left)
{
    run_fate(WEFT_JOB_LEFT);
}

/* Without a launcher of ours the first rank makes the page; the others keep it too, so that the job
 * is found when that one has died. */
static int stranger_crew(int rank, void *arg)
{
    const char *name = arg;
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.rank = rank;
    opts.world_size = 2;
    opts.store = rank ? weft_store_unix_connect(name, 30000) : weft_store_unix_serve(name);
    CREW(opts.store, "%s", weft_last_error());
    weft_group *world = weft_init(&opts);
    CREW(world, "%s", weft_last_error());
    weft_job *job = weft_job_open(getpid());
    weft_job_info info = {0};
    weft_job_rank first;
    CREW(weft_job_describe(job, &info) == WEFT_OK && info.ranks == 2, "%s", weft_last_error());
    CREW(weft_job_describe_rank(job, 0, &first) == WEFT_OK, "%s", weft_last_error());
    CREW(info.process == first.process && !info.threads, "process %d", info.process);
    crew->rank[rank].done = 1;
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    if (rank == 0)
        raise(SIGKILL);
    weft_release(job);
    CREW(job = look_until_state(getpid(), 0, WEFT_JOB_DEAD, &first), "%s", weft_last_error());
    weft_release(job);
    weft_finish(world);
    return 0;
}

TEST(test_job_of_another_launcher)
{
    if (getenv("WEFT_TEST_BACKENDS") && !strstr(getenv("WEFT_TEST_BACKENDS"), "shm"))
        SKIP("process ranks, which this build does not test");
    char name[64];
    snprintf(name, sizeof name, "weft-test-job-%d", getpid());
    crew_run("store", 2, stranger_crew, name, 0);
}

/* ---- no job, bad jobs, bad calls ---- */

static int nothing(void *unused)
{
    (void)unused;
    return 0;
}

static weft_group *kept;

static int keeps(void *unused)
{
    (void)unused;
    kept = weft_keep(weft_init(NULL));
    return !kept || weft_finish(kept);
}

/* ---- whose result counts ---- */

enum { SPAWNED = 3 };

typedef struct ends {
    int order[SPAWNED], result[SPAWNED]; /* who ends after whom, with what; all by place */
} ends;

/* Returns when the rank before it has ended for all to see. */
static int end_in_turn(void *arg)
{
    const ends *how = arg;
    const weft_i_seat *seat = weft_i_spawn_seat();
    int place = 0;
    if (weft_i_status_rank() != seat->rank)
        return 99; /* its messages would bear no rank, or another */
    while (how->order[place] != seat->rank)
        place++;
    if (place) {
        weft_i_rank_record *before =
            weft_i_job_rank(weft_i_job_of(seat->job), how->order[place - 1]);
        while (atomic_load_explicit(&before->life.state, memory_order_acquire) != WEFT_I_RANK_LEFT)
            WEFT_OS->yield();
    }
    return how->result[place];
}

/* The first that fails by itself; else the first that reports another's end.  Negated codes, which a
 * main function returns, count alike. */
TEST(test_job_spawn_result)
{
    static const struct {
        int result[SPAWNED], counts;
    } cases[] = {
        {{0, 0, 0}, 0},
        {{0, 0, 12}, 12},
        {{0, 11, 12}, 11},
        {{10, 11, 12}, 10},
        {{WEFT_ERR_PEER_DEAD, 11, 12}, 11},
        {{-WEFT_ERR_PEER_LEFT, WEFT_ERR_REVOKED, 12}, 12},
        {{10, -WEFT_ERR_PEER_DEAD, WEFT_ERR_LIMIT}, 10},
        {{WEFT_ERR_REVOKED, WEFT_ERR_PEER_LEFT, 0}, WEFT_ERR_REVOKED},
        {{-WEFT_ERR_PEER_LEFT, WEFT_ERR_PEER_DEAD, WEFT_ERR_REVOKED}, -WEFT_ERR_PEER_LEFT}};
    static const int orders[][SPAWNED] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
            ends how;
            memcpy(how.order, orders[k], sizeof how.order);
            memcpy(how.result, cases[i].result, sizeof how.result);
            int result = weft_spawn(SPAWNED, end_in_turn, &how);
            if (result != cases[i].counts)
                FAIL("case %zu, order %zu: %d, not %d", i, k, result, cases[i].counts);
        }
}

TEST(test_job_none)
{
    weft_clear_error();
    CHECK(!weft_job_open(getpid()));
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    CHECK_CONTAINS(weft_last_error(), "is not in a job");
    weft_job_info none;
    CHECK_STATUS(weft_job_describe(NULL, &none), WEFT_ERR_NOT_FOUND); /* why it is NULL */
    weft_clear_error();
    CHECK_STATUS(weft_job_describe(NULL, &none), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_spawn(2, nothing, NULL), 0);
    CHECK(!weft_job_open(getpid())); /* not any more */
    CHECK_INT(weft_spawn(1, keeps, NULL), 0);
    CHECK(!weft_job_open(getpid())); /* whatever is left of it */
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    weft_release(kept);
    pid_t child = fork();
    if (!child)
        _exit(0);
    waitpid(child, NULL, 0);
    CHECK(!weft_job_open(child) && !weft_job_open(-1) && !weft_job_open(0));
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    weft_clear_error();
    if (!access("/proc/1/fd/.", R_OK) && weft_i_os_process_user(1) >= 0) {
        CHECK(!weft_job_open(1)); /* a process like any other */
        CHECK_CONTAINS(weft_last_error(), "process 1 is not in a job");
    }
    CHECK_STATUS(weft_job_list(NULL, 1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_job_list(NULL, -1), WEFT_ERR_INVALID_ARG);
    CHECK(weft_job_list(NULL, 0) >= 0); /* others may run some */
    weft_clear_error();
    CHECK_STATUS(weft_job_describe(NULL, NULL), WEFT_ERR_INVALID_ARG);
    CHECK(!strcmp(weft_job_state_name((weft_job_state)77), "unknown"));
}

static int open_own(const char *path, int flags, mode_t mode)
{
    char own[32];
    int length = snprintf(own, sizeof own, "/proc/%d/fd/", getpid());
    if (!strncmp(path, "/proc/", 6) && strstr(path, "/fd/") && strncmp(path, own, (size_t)length))
        return errno = EACCES, -1;
    return weft_i_os_linux.open(path, flags, mode);
}

/* Filled before there are threads: the one that waits for them calls by a table, too. */
static weft_i_os own_only;

static int look_at_own(void *unused)
{
    (void)unused;
    weft_group *world = weft_init(NULL);
    weft_job *job = weft_job_open(getpid());
    weft_job_info info;
    weft_job_rank rank;
    int failed = !job || weft_job_describe(job, NULL) != WEFT_ERR_INVALID_ARG ||
                 weft_job_describe_rank(job, 1, &rank) != WEFT_ERR_INVALID_ARG ||
                 weft_job_describe_rank(job, -1, &rank) != WEFT_ERR_INVALID_ARG ||
                 weft_job_missing(job, 1, NULL, 0) != WEFT_ERR_INVALID_ARG ||
                 weft_job_missing(job, 0, NULL, 1) != WEFT_ERR_INVALID_ARG;
    /* It is in the list once, also with two descriptors of its page. */
    int again = fcntl(world->world->job->fd, F_DUPFD_CLOEXEC, 50);
    weft_job *all[256];
    int count = weft_job_list(all, 256), own = 0;
    for (int i = 0; i < count && i < 256; i++)
        own += weft_job_describe(all[i], &info) == WEFT_OK && info.process == getpid();
    /* And if nobody else lets us look, it is the only one. */
    weft_i_os_now = &own_only;
    int alone = weft_job_list(NULL, 0);
    weft_i_os_now = &weft_i_os_linux;
    weft_clear_error();
    close(again);
    return failed || again < 0 || count < 1 || own != 1 || alone != 1;
}

TEST(test_job_list)
{
    weft_scope_open();
    own_only = weft_i_os_linux;
    own_only.open = open_own;
    CHECK_INT(weft_spawn(1, look_at_own, NULL), 0);
    weft_scope_close();
}

/* Pages that are damaged, or of another weft: a list goes on without them. */
TEST(test_job_damaged)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &page));
    weft_job *job = weft_job_open(getpid());
    weft_job_rank rank;
    CHECK_OK(weft_job_describe_rank(job, 1, &rank));
    CHECK(rank.state == WEFT_JOB_AWAITED && rank.rank == 1 && !rank.process);
    weft_release(job);
    weft_i_job_of(page)->ranks = 3;
    CHECK(!weft_job_open(getpid()) && weft_last_status() == WEFT_ERR_PROTOCOL);
    CHECK(weft_job_list(NULL, 0) >= 0);
    weft_i_job_of(page)->ranks = 2;
    weft_i_job_of(page)->layout = 1;
    CHECK(!weft_job_open(getpid()) && weft_last_status() == WEFT_ERR_VERSION);
    CHECK(weft_job_list(NULL, 0) >= 0);
    weft_i_job_of(page)->layout = WEFT_I_JOB_LAYOUT;
    /* A rank whose slot holds anything at all is shown somehow. */
    weft_i_rank_record *slot = weft_i_job_rank(weft_i_job_of(page), 0);
    memset(&slot->address, 0xff, sizeof slot->address);
    memset(&slot->groups, 0xff, sizeof slot->groups);
    memset(&slot->record, 0xff, sizeof slot->record);
    slot->life.state = WEFT_I_RANK_HERE;
    job = weft_job_open(getpid());
    CHECK_OK(weft_job_describe_rank(job, 0, &rank));
    weft_release(job);
    weft_i_segment_drop(page);
}

/* Threads of a rank that join groups at the same time have an entry each. */
typedef struct joining {
    weft_i_rank_record *mine;
    pthread_barrier_t *meet;
    uint32_t id;
} joining;

enum { JOINS = 15, CROWD = 1 << 20 }; /* a long list takes a while to fill in */

static void *join_and_quit(void *arg)
{
    const joining *j = arg;
    static const int members[CROWD];
    for (int i = 0; i < JOINS; i++) {
        pthread_barrier_wait(j->meet);
        weft_i_job_join(j->mine, j->id, "one", members, CROWD);
        pthread_barrier_wait(j->meet); /* looked at */
        pthread_barrier_wait(j->meet);
        weft_i_job_quit(j->mine, j->id);
    }
    return NULL;
}

static int entries_of(weft_i_rank_record *mine, uint32_t id)
{
    int count = 0;
    for (int i = 0; i < WEFT_I_JOB_GROUPS; i++)
        count += mine->groups[i].id == id;
    return count;
}

TEST(test_job_joined_at_once)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, &page));
    weft_i_rank_record *mine = weft_i_job_rank(weft_i_job_of(page), 0);
    pthread_barrier_t meet;
    pthread_t threads[2];
    int missing = 0;
    CHECK(!pthread_barrier_init(&meet, NULL, 3));
    joining both[2] = {{mine, &meet, 77}, {mine, &meet, 99}};
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, join_and_quit, &both[i]));
    for (int i = 0; i < JOINS; i++) {
        pthread_barrier_wait(&meet);
        pthread_barrier_wait(&meet);
        missing += entries_of(mine, 77) != 1 || entries_of(mine, 99) != 1;
        pthread_barrier_wait(&meet);
    }
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_join(threads[i], NULL));
    pthread_barrier_destroy(&meet);
    CHECK_INT(missing, 0);
    CHECK_INT(entries_of(mine, 0), WEFT_I_JOB_GROUPS);
    weft_i_segment_drop(page);
}

/* A rank whose weft_init fails early says so in the page: in its own slot, if the page has one, and
 * if nobody is there yet. */
TEST(test_job_failed_early)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &page));
    const weft_i_job *head = weft_i_job_of(page);
    weft_i_job forged = *head;
    size_t slot = head->slot_bytes, past = head->slots_at + slot * WEFT_I_JOB_MAX_RANKS;
    off_t state = (off_t)(past + offsetof(weft_i_rank_record, life.state));
    uint32_t seen = 0;
    weft_i_job_note_failed(page->fd, 1);
    weft_i_job_note_failed(page->fd, -1);
    weft_i_job_note_failed(page->fd, 2);
    CHECK_INT(weft_i_job_rank(weft_i_job_of(page), 0)->life.state, WEFT_I_RANK_AWAITED);
    CHECK_INT(weft_i_job_rank(weft_i_job_of(page), 1)->life.state, WEFT_I_RANK_FAILED);
    weft_i_job_rank(weft_i_job_of(page), 0)->life.state = WEFT_I_RANK_HERE;
    weft_i_job_note_failed(page->fd, 0); /* another process has the place */
    CHECK_INT(weft_i_job_rank(weft_i_job_of(page), 0)->life.state, WEFT_I_RANK_HERE);
    weft_i_segment_drop(page);
    /* A page that says it has more ranks than there can be. */
    int fd = memfd_create("forged", MFD_CLOEXEC);
    forged.ranks = WEFT_I_JOB_MAX_RANKS + 1;
    CHECK(fd >= 0 && !ftruncate(fd, (off_t)(past + slot)));
    CHECK(pwrite(fd, &forged, sizeof forged, 0) == (ssize_t)sizeof forged);
    weft_i_job_note_failed(fd, WEFT_I_JOB_MAX_RANKS);
    CHECK(pread(fd, &seen, sizeof seen, state) == (ssize_t)sizeof seen);
    CHECK_INT(seen, WEFT_I_RANK_AWAITED);
    close(fd);
}

static void *no_memory(size_t bytes)
{
    (void)bytes;
    return NULL;
}

/* Whatever fails while looking is told, and nothing is left behind. */
TEST(test_job_shortage)
{
    weft_i_segment *page = NULL;
    unsigned char before[1024], after[1024];
    CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &page));
    harness_descriptors(before, NULL);
    int failures = 0;
    for (int nth = 1;; nth++) {
        weft_clear_error();
        fault_arm(nth);
        weft_job *job = weft_job_open(getpid());
        bool failed = fault_disarm();
        CHECK(job || weft_last_status() < 0);
        failures += !job;
        weft_release(job);
        CHECK_INT(harness_descriptors(after, before), -1);
        if (!failed)
            break;
    }
    CHECK(failures > 3);
    weft_i_os table = weft_i_os_linux;
    table.alloc = no_memory;
    weft_i_os_now = &table;
    weft_status status = weft_job_list(NULL, 0); /* it might be one that is not counted */
    weft_i_os_now = &weft_i_os_linux;
    CHECK_STATUS(status, WEFT_ERR_NO_MEMORY);
    weft_i_segment_drop(page);
    weft_clear_error();
}

static int pages_left;

static int open_some(const char *path, int flags, mode_t mode)
{
    if (strncmp(path, "/proc/", 6) || !strstr(path, "/fd/") || pages_left-- > 0)
        return weft_i_os_linux.open(path, flags, mode);
    errno = EMFILE;
    return -1;
}

/* A list that cannot be completed is none: what it had found by then is given back. */
TEST(test_job_list_that_fails)
{
    weft_i_segment *pages[2] = {NULL};
    weft_job *found[8];
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &pages[i]));
    for (int i = 0; i < 6; i++) {
        if (i == 1) /* what is made once is made */
            count_begin();
        weft_i_os table = *weft_i_os_now;
        table.open = open_some;
        table.mmap = weft_i_os_linux.mmap;
        table.munmap = weft_i_os_linux.munmap;
        const weft_i_os *before = weft_i_os_now;
        weft_i_os_now = &table;
        pages_left = 1;
        int count = weft_job_list(found, 8);
        weft_i_os_now = before;
        CHECK_INT(count, WEFT_ERR_LIMIT);
    }
    CHECK_INT(count_end(), 0);
    for (int i = 0; i < 2; i++)
        weft_i_segment_drop(pages[i]);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

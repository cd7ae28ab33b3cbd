/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/watch.c, fabric/group/exchange.c, fabric/group/group_shrink.c,
 * fabric/meet/leave.c */
/*
 * Ranks that die, stop or leave.  Whoever waits for them is told at once and by name, nobody is
 * declared dead who lives, nothing is left behind, and the survivors go on with a smaller group.  At which
 * steps ranks die follows from HARNESS_SEED; with WEFT_TEST_ALL=1 they die at every one.
 */
#include "crew.h"
#include "doom.h"
#include "standing.h"
#include "values_seed.h"

#include "base/os/os.h"
#include "base/report/os_look.h"
#include "base/report/status.h"

#include <dirent.h>
#include <sys/resource.h>

enum {
    SOON_MS = 8000, /* far less than the limit of 30 s, far more than a loaded machine needs */
    SPARSER = VALUES_SANITIZED ? 5 : 1,
    WAITS_ONE_OF = VALUES_SANITIZED ? 4 : 1,
    BARRIERS = VALUES_SANITIZED ? 8 : 30
};

typedef struct plot {
    int size, victim;
    int step; /* of the victim's calls to the system; 0: it dies by `op` */
    int op;
} plot;

/* What the survivors are doing when the victim dies without doing it. */
enum { MEET, BARRIER, GROUP_BARRIER, RENDEZVOUS, GROUP_NEW, SPLIT, WAIT_SIGNAL, PUT_SIGNAL, OPS };
static const char *const op_names[] = {"meeting",   "barrier", "group barrier", "rendezvous",
                                       "group_new", "split",   "wait_signal",   "put_signal"};

static weft_symm *share(weft_group *group, int64_t count)
{
    return weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count)), group);
}

/* The error must be the victim's death, told by name and soon. */
static int check_death(const plot *p, int rank, long long began)
{
    char name[32];
    long long ms = (harness_now() - began) / 1000000;
    snprintf(name, sizeof name, "rank %d (", p->victim);
    CREW(weft_last_status() == WEFT_ERR_PEER_DEAD, "%s: %s", weft_status_name(weft_last_status()),
         weft_last_error());
    CREW(strstr(weft_last_error(), name), "does not name the victim %d: %s", p->victim,
         weft_last_error());
    CREW(ms < SOON_MS, "took %lld ms: %s", ms, weft_last_error());
    return 0;
}

/* The survivors make a group without the victim and use it. */
static int check_shrink(const plot *p, int rank, weft_group *world)
{
    int ranks[CREW_MAX], count = 0;
    for (int i = 0; i < p->size; i++)
        if (i != p->victim)
            ranks[count++] = i;
    weft_group *rest = weft_group_new(world, ranks, count, "rest");
    CREW(rest, "%s", weft_last_error());
    CREW(weft_size(rest) == p->size - 1, "size %d", weft_size(rest));
    weft_symm *mem = share(rest, 100);
    CREW(mem, "%s", weft_last_error());
    CREW(weft_symm_barrier(mem, 0, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    CREW(weft_group_barrier(rest, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    return 0;
}

/* ---- dead at every step ---- */

/* A bit of everything; 0, or a negative status. */
static int live(weft_group *world, int rank, int size, int victim)
{
    weft_symm *mem = share(world, 20000);
    if (!mem)
        return weft_last_status();
    for (int i = 0; i < 3; i++)
        WEFT_TRY(weft_symm_barrier(mem, i, WEFT_DEFAULT));
    weft_group *half = weft_group_split(world, rank % 2, 0);
    if (!half)
        return weft_last_status();
    WEFT_TRY(weft_group_barrier(half, WEFT_DEFAULT));
    for (int peer = 0; peer < size; peer++) /* each survivor depends on the victim alone */
        if (peer != rank && (peer == victim || rank == victim)) {
            WEFT_TRY(weft_symm_put_signal(mem, peer, 0, WEFT_DEFAULT));
            WEFT_TRY(weft_symm_wait_signal(mem, peer, 0, WEFT_DEFAULT));
        }
    int backwards[CREW_MAX];
    for (int i = 0; i < size; i++)
        backwards[i] = size - 1 - i;
    weft_group *again = weft_group_new(world, backwards, size, NULL);
    if (!again)
        return weft_last_status();
    weft_symm *small = share(again, 10);
    return small ? (int)weft_symm_barrier(small, 0, WEFT_DEFAULT) : (int)weft_last_status();
}

static int doomed_crew(int rank, void *arg)
{
    const plot *p = arg;
    long long began = harness_now();
    if (rank == p->victim)
        doom_arm(p->step);
    weft_group *world = weft_init(NULL);
    int status = world ? live(world, rank, p->size, p->victim) : (int)weft_last_status();
    if (rank == p->victim) { /* outlived its steps, if the survivors let it */
        CREW(world && status == 0, "%s", weft_last_error());
        weft_finish(world);
        crew->rank[rank].steps = atomic_load(&doom_steps);
        crew->rank[rank].done = 1;
        return 0;
    }
    if (status < 0 && check_death(p, rank, began))
        return 1;
    if (world && p->size > 2 && check_shrink(p, rank, world))
        return 1;
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

/* Every `stride`-th step of the victim's life, or fewer beside a sanitizer, until it outlives them. */
static void kill_at_steps(int size, int victim, int stride)
{
    char what[64];
    bool outlived = false;
    stride = getenv("WEFT_TEST_ALL") ? 1 : stride * SPARSER;
    for (int step = values_first((uint64_t)(size * CREW_MAX + victim), stride); !outlived;
         step += stride) {
        plot p = {size, victim, step, 0};
        snprintf(what, sizeof what, "rank %d dead at step %d", victim, step);
        crew_run(what, size, doomed_crew, &p, victim);
        outlived = crew->rank[victim].done;
        CHECK(step < 5000);
    }
}

TEST(test_fault_steps_2)
{
    kill_at_steps(2, 0, 3);
    kill_at_steps(2, 1, 3);
}

TEST(test_fault_steps_3)
{
    kill_at_steps(3, 1, 3);
}

TEST(test_fault_steps_4)
{
    kill_at_steps(4, 0, 7);
    kill_at_steps(4, 2, 7);
    kill_at_steps(4, 3, 7);
}

TEST(test_fault_steps_8)
{
    kill_at_steps(8, 0, 29);
    kill_at_steps(8, 4, 29);
    kill_at_steps(8, 7, 29);
}

/* ---- dead while the others wait ---- */

static weft_status do_op(const plot *p, weft_group *world, weft_symm *mem, int rank)
{
    int all[CREW_MAX];
    for (int i = 0; i < p->size; i++)
        all[i] = (p->victim + i) % p->size;
    switch (p->op) {
    case BARRIER:
        return weft_symm_barrier(mem, 1, WEFT_DEFAULT);
    case GROUP_BARRIER:
        return weft_group_barrier(world, WEFT_DEFAULT);
    case RENDEZVOUS:
        return share(world, 8) ? WEFT_OK : weft_last_status();
    case GROUP_NEW:
        return weft_group_new(world, all, p->size, NULL) ? WEFT_OK : weft_last_status();
    case SPLIT:
        return weft_group_split(world, 0, rank) ? WEFT_OK : weft_last_status();
    case WAIT_SIGNAL:
        return weft_symm_wait_signal(mem, p->victim, 0, WEFT_DEFAULT);
    default:
        WEFT_TRY(weft_symm_put_signal(mem, p->victim, 0, WEFT_DEFAULT));
        return weft_symm_put_signal(mem, p->victim, 0, WEFT_DEFAULT);
    }
}

/* Are all others asleep in their meeting, as far as can be seen from outside? */
static bool others_meet(const plot *p)
{
    for (int peer = 0; peer < p->size; peer++)
        if (peer != p->victim &&
            (!crew->pid[peer] || weft_i_os_process_state(crew->pid[peer]) != 'S'))
            return false;
    return true;
}

/* Are all others in the operation of the plot? */
static bool others_wait(const plot *p, const weft_group *world)
{
    static const char *const records[] = {
        "",          "barrier",     "group_barrier", "rendezvous",
        "group_new", "group_split", "wait_signal",   "put_signal"};
    for (int peer = 0; peer < p->size; peer++)
        if (peer != p->victim && !standing_await(world, peer, records[p->op], true))
            return false;
    return true;
}

static int waiting_crew(int rank, void *arg)
{
    const plot *p = arg;
    if (p->op == MEET && rank == p->victim) {
        bool meet = others_meet(p); /* seen once: they wake now and then */
        for (int ms = 0; ms < 20000 && !meet; ms++) {
            crew_rest(1);
            meet = others_meet(p);
        }
        CREW(meet, "the others do not wait in their meeting");
        kill(getpid(), SIGKILL);
    }
    crew->pid[rank] = getpid();
    long long began = harness_now();
    weft_group *world = weft_init(NULL);
    if (p->op == MEET) {
        CREW(!world, "met without rank %d", p->victim);
        crew->rank[rank].done = 1;
        return check_death(p, rank, began);
    }
    CREW(world, "%s", weft_last_error());
    weft_symm *mem = share(world, 16);
    CREW(mem && weft_symm_barrier(mem, 0, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    if (rank == p->victim) {
        CREW(others_wait(p, world), "the others do not wait in %s", op_names[p->op]);
        kill(getpid(), SIGKILL);
    }
    standing_mark(world);
    began = harness_now();
    weft_status status = do_op(p, world, mem, rank);
    CREW(status < 0, "%s succeeded without rank %d", op_names[p->op], p->victim);
    if (check_death(p, rank, began))
        return 1;
    if (check_shrink(p, rank, world))
        return 1;
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_fault_waits)
{
    static const int sizes[] = {2, 4, 8};
    for (int i = 0; i < 3; i++)
        for (int op = MEET; op < OPS; op++)
            for (int which = 0; which < 3; which++) {
                int size = sizes[i], victim = which == 0 ? 0 : which == 1 ? size / 2 : size - 1;
                plot p = {size, victim, 0, op};
                if (values_takes((uint64_t)(i * 100 + op * 10 + which), WAITS_ONE_OF))
                    crew_run(op_names[op], size, waiting_crew, &p, victim);
            }
}

/* Killed by somebody else, at any moment of many barriers. */
static int barrier_crew(int rank, void *arg)
{
    const plot *p = arg;
    weft_group *world = weft_init(NULL);
    weft_symm *mem = world ? share(world, 16) : NULL;
    CREW(mem, "%s", weft_last_error());
    crew->pid[rank] = getpid();
    weft_status status = weft_symm_barrier(mem, 0, WEFT_DEFAULT);
    long long began = harness_now();
    for (int i = 0; status == WEFT_OK; i++) {
        began = harness_now();
        status = i % 2 ? weft_symm_barrier(mem, 0, WEFT_DEFAULT)
                       : weft_group_barrier(world, WEFT_DEFAULT);
        if (i == p->step && rank != p->victim)
            kill(crew->pid[p->victim], SIGKILL);
    }
    if (check_death(p, rank, began) || check_shrink(p, rank, world))
        return 1;
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_fault_barriers)
{
    for (int i = 0; i < BARRIERS; i++) {
        plot p = {2 + i % 3, i % (2 + i % 3), i * 7, 0};
        crew_run("killed among barriers", p.size, barrier_crew, &p, p.victim);
    }
}

/* ---- stopped ---- */

static int stopped_crew(int rank, void *arg)
{
    const plot *p = arg;
    char name[32];
    snprintf(name, sizeof name, "rank %d (", p->victim);
    weft_group *world = weft_init(NULL);
    weft_symm *mem = world ? share(world, 16) : NULL;
    CREW(mem, "%s", weft_last_error());
    crew->pid[rank] = getpid();
    int boss = (p->victim + 1) % p->size;
    CREW(weft_symm_barrier(mem, 7, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    if (rank == p->victim) {
        raise(SIGSTOP);
    } else { /* a wait in every way of waiting */
        while (weft_i_os_process_state(crew->pid[p->victim]) != 'T')
            crew_rest(1);
        crew_rest(250); /* some heartbeats long */
        CREW(weft_symm_barrier(mem, 7, 100) == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
        CREW(strstr(weft_last_error(), name), "%s", weft_last_error());
        CREW(strstr(weft_last_error(), "stopped by a signal"), "%s", weft_last_error());
        CREW(strstr(weft_last_error(), "its last operation: barrier"), "%s", weft_last_error());
        CREW(weft_symm_wait_signal(mem, p->victim, 0, 50) == WEFT_ERR_TIMEOUT, "%s",
             weft_last_error());
        CREW(strstr(weft_last_error(), "stopped by a signal"), "%s", weft_last_error());
        CREW(weft_group_barrier(world, 50) == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
        weft_group_set_timeout(world, 100);
        CREW(!share(world, 4) && weft_last_status() == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
        int all[CREW_MAX];
        for (int i = 0; i < p->size; i++)
            all[i] = (p->victim + i) % p->size;
        CREW(!weft_group_new(world, all, p->size, NULL), "made without rank %d", p->victim);
        CREW(weft_last_status() == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
        weft_group_set_timeout(world, 20000);
        crew->go++;
        while (rank == boss && crew->go < p->size - 1)
            crew_rest(1);
        if (rank == boss)
            kill(crew->pid[p->victim], SIGCONT);
    }
    CREW(weft_symm_barrier(mem, 7, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    CREW(share(world, 4), "%s", weft_last_error());
    int all[CREW_MAX];
    for (int i = 0; i < p->size; i++)
        all[i] = (p->victim + i) % p->size;
    CREW(weft_group_new(world, all, p->size, NULL), "%s", weft_last_error());
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_fault_stopped)
{
    for (int victim = 0; victim < 3; victim++) {
        plot p = {3, victim, 0, 0};
        crew_run("stopped", 3, stopped_crew, &p, -1);
    }
}

/* ---- without its descriptors ---- */

static double processor_ms(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-3;
}

/* Do all other threads of this process sleep? */
static bool others_sleep(void)
{
    DIR *tasks = opendir("/proc/self/task");
    bool asleep = tasks != NULL;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[300], line[256] = "";
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == (int)gettid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        const char *name_end = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        asleep &= !name_end || name_end[2] == 'S'; /* a thread that has ended is at rest */
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return asleep;
}

/* UCX's own thread aborts the process if its epoll is closed while it handles an event; asleep it
 * does not notice.  So everybody sleeps before the descriptors go, and ranks go one by one: what one
 * closes wakes the others. */
static int wait_for_quiet(int rank, int turn)
{
    for (int quiet = 0, tries = 0; crew->go < turn || quiet < 20; tries++) {
        quiet = crew->go >= turn && others_sleep() ? quiet + 1 : 0;
        CREW(tries < 20000, "the threads of this process do not come to rest");
        crew_rest(2);
    }
    return 0;
}

/* The program closes everything above 2, as those do that want to become daemons.  What remains of
 * weft rests, and weft_finish ends. */
static int closed_crew(int rank, void *arg)
{
    const plot *p = arg;
    if (p->step) { /* on several hosts, so that rank 0 serves a store over TCP */
        char host[16];
        snprintf(host, sizeof host, "host%d", rank);
        setenv("WEFT_HOST_ID", host, 1);
        unsetenv("WEFT_JOB_FD");
    }
    weft_group *world = weft_init(NULL);
    CREW(world, "%s", weft_last_error());
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    crew->go++; /* when all have counted nobody needs an answer any more */
    if (wait_for_quiet(rank, p->size + rank))
        return 1;
    close_range(3, ~0u, 0);
    crew->go++;
    double before = processor_ms();
    crew_rest(300);
    double used = processor_ms() - before;
    CREW(used < 100, "%.0f ms of processor time in 300 ms of rest", used);
    weft_clear_error();
    long long began = harness_now();
    weft_finish(world); /* it may complain, it must not wait */
    long long took = (harness_now() - began) / 1000000;
    CREW(took < 15000, "weft_finish took %lld ms", took);
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_fault_closed)
{
    for (int hosts = 0; hosts < 2; hosts++) {
        plot p = {2, -1, hosts, 0};
        crew_run("descriptors closed", p.size, closed_crew, &p, -1);
    }
}

/* ---- the end of the watch ---- */

static weft_i_os ending_table;
static atomic_int ending_writes; /* of eight bytes, as an eventfd wants them; relaxed: counts */
static bool ending_unwoken;

static ssize_t ending_write(int fd, const void *bytes, size_t count)
{
    if (count == sizeof(uint64_t))
        atomic_fetch_add_explicit(&ending_writes, 1, memory_order_relaxed);
    return weft_i_os_linux.write(fd, bytes, count);
}

static void ending_join(pthread_t thread)
{
    ending_unwoken |= !atomic_load_explicit(&ending_writes, memory_order_relaxed);
    weft_i_os_linux.thread_join(thread);
}

/* weft_finish wakes the watch: it does not wait for its next beat. */
RANKS_TEST(test_fault_finish_wakes_the_watch, 1)
{
    if (harness_in_threads)
        SKIP("ranks that are threads have no watch");
    weft_group *world = weft_init(NULL);
    CHECK(world);
    ending_table = weft_i_os_linux;
    ending_table.write = ending_write;
    ending_table.thread_join = ending_join;
    weft_i_os_now = &ending_table;
    CHECK(!weft_finish(world));
    weft_i_os_now = &weft_i_os_linux;
    CHECK(!ending_unwoken);
    (void)rank, (void)size;
}

/* ---- left ---- */

RANKS_TEST(test_fault_left, 4)
{
    weft_group *world = weft_init(NULL);
    weft_symm *mem = world ? share(world, 4) : NULL;
    CHECK(mem);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    if (rank == 2) {
        CHECK(!weft_finish(world));
        CHECK_STATUS(weft_group_barrier(world, 10), WEFT_ERR_STATE);
        CHECK_STATUS(weft_symm_barrier(mem, 0, 10), WEFT_ERR_STATE);
        return;
    }
    long long began = harness_now();
    CHECK_STATUS(weft_symm_barrier(mem, 0, WEFT_DEFAULT), WEFT_ERR_PEER_LEFT);
    CHECK_CONTAINS(weft_last_error(), "rank 2 (left the job");
    CHECK_STATUS(weft_symm_wait_signal(mem, 2, 0, WEFT_DEFAULT), WEFT_ERR_PEER_LEFT);
    CHECK_STATUS(weft_group_barrier(world, WEFT_DEFAULT), WEFT_ERR_PEER_LEFT);
    CHECK(!share(world, 4));
    CHECK_INT(weft_last_status(), WEFT_ERR_PEER_LEFT);
    int rest[] = {0, 1, 3};
    weft_group *smaller = weft_group_new(world, rest, 3, NULL);
    CHECK(smaller);
    CHECK_OK(weft_group_barrier(smaller, WEFT_DEFAULT));
    CHECK((harness_now() - began) / 1000000 < SOON_MS);
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* Returns without weft_finish: a process has died by the others' lights, a thread has left. */
RANKS_TEST(test_fault_returned, 3)
{
    weft_group *world = weft_init(NULL);
    weft_symm *mem = world ? share(world, 4) : NULL;
    CHECK(mem);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    bool threads = weft_i_spawn_seat() != NULL;
    if (rank == 0) {
        if (threads)
            return;
        harness_rank_dies();
        _exit(0);
    }
    CHECK_STATUS(weft_symm_barrier(mem, 0, WEFT_DEFAULT),
                 threads ? WEFT_ERR_PEER_LEFT : WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 0 (");
    int rest[] = {1, 2}; /* both have seen it before one of them leaves too */
    CHECK_OK(weft_group_barrier(weft_group_new(world, rest, 2, NULL), WEFT_DEFAULT));
    weft_clear_error();
    CHECK(!weft_finish(world));
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}

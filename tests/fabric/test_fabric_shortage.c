/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/meet.c, fabric/group/group_new.c, symm/registration.c */
/*
 * Memory, descriptors and threads that run out, at the n-th call to the system for every n, in one
 * rank of a job.  That rank gets an error that says what ran out; the others are told at once; all
 * can try again; nothing leaks.
 */
#include "crew.h"
#include "fault.h"
#include "values_seed.h"

#include <fcntl.h>
#include <sys/resource.h>

enum { SOON_MS = 8000, TRIES = 3 };

typedef struct shortage {
    int size, victim;
    int nth;
    int stage;
} shortage;

enum { INIT, MEMORY, GROUPS, MESHES, STAGES };

/* Does the status say that something ran out, or was refused by the system? */
static bool is_shortage(weft_status status)
{
    return status == WEFT_ERR_NO_MEMORY || status == WEFT_ERR_NO_SPACE ||
           status == WEFT_ERR_LIMIT || status == WEFT_ERR_IO || status == WEFT_ERR_ADDR_IN_USE;
}

/* Mappings of memory files of ours. */
static int count_mappings(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:weft") != NULL;
    if (maps)
        fclose(maps);
    return count;
}

/* One try at what the bounce buffer is about.  0 or a status. */
static int use_memory(weft_group *world)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3000));
    int status = weft_symm_rendezvous(x, world) ? 0 : (int)weft_last_status();
    if (status == 0 && !weft_symm_workspace(world, WEFT_CPU, 5000))
        status = weft_last_status();
    return status;
}

static int use_groups(weft_group *world, int size)
{
    int backwards[CREW_MAX];
    for (int i = 0; i < size; i++)
        backwards[i] = size - 1 - i;
    int status = weft_group_new(world, backwards, size, NULL) ? 0 : (int)weft_last_status();
    if (status == 0 && !weft_group_split(world, 0, -weft_rank(world)))
        status = weft_last_status();
    return status;
}

/* A tag, a mesh with new groups, slices of it. */
static int use_meshes(weft_group *world, int size)
{
    int backwards[CREW_MAX];
    for (int i = 0; i < size; i++)
        backwards[i] = size - 1 - i;
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.tag = "tag";
    if (!weft_group_new_with(world, backwards, size, &opts))
        return weft_last_status();
    weft_mesh *mesh = weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(1, size), backwards, "a,b");
    if (!mesh)
        return weft_last_status();
    weft_expansion x = {0};
    weft_ranks what = weft_ranks_mesh_dim(mesh, 1);
    /* Local, so a failure is this rank's alone, and the next try succeeds. */
    if (!weft_mesh_slice(mesh, "b,a") && !weft_mesh_slice(mesh, "b,a"))
        return weft_last_status();
    if (weft_ranks_expand(world, what, "", &x) < 0 && weft_ranks_expand(world, what, "", &x) < 0)
        return weft_last_status();
    weft_expansion_clear(&x);
    return 0;
}

static void note_fault(int rank)
{
    crew->rank[rank].steps = fault_disarm();
    snprintf(crew->note, sizeof crew->note, "%s", fault_name ? fault_name : "nothing");
}

/* After an error of the victim all meet (the group's barrier is not in doubt) and try again. */
static int try_lane(const shortage *s, int rank, weft_group *world)
{
    int status = -1;
    for (int i = 0; i < TRIES && status < 0; i++) {
        weft_scope_open();
        if (rank == s->victim && i == 0)
            fault_arm(s->nth);
        long long began = harness_now();
        status = s->stage == MEMORY   ? use_memory(world)
                 : s->stage == GROUPS ? use_groups(world, s->size)
                                      : use_meshes(world, s->size);
        long long ms = (harness_now() - began) / 1000000;
        if (rank == s->victim && i == 0)
            note_fault(rank);
        weft_scope_close();
        CREW(ms < SOON_MS, "try %d took %lld ms: %s", i, ms, weft_last_error());
        if (status < 0)
            CREW(is_shortage((weft_status)status), "try %d: %s: %s", i,
                 weft_status_name((weft_status)status), weft_last_error());
        CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "after try %d: %s", i,
             weft_last_error());
    }
    CREW(status == 0, "never succeeded: %s", weft_last_error());
    return 0;
}

static int short_crew(int rank, void *arg)
{
    const shortage *s = arg;
    unsigned char before[1024], after[1024];
    harness_descriptors(before, NULL);
    int mapped = count_mappings();
    if (s->stage == INIT && rank == s->victim)
        fault_arm(s->nth);
    long long began = harness_now();
    weft_group *world = weft_init(NULL);
    long long ms = (harness_now() - began) / 1000000;
    weft_status status = weft_last_status();
    if (s->stage == INIT && rank == s->victim)
        note_fault(rank);
    CREW(ms < SOON_MS, "weft_init took %lld ms: %s", ms, weft_last_error());
    if (!world && rank == s->victim)
        CREW(is_shortage(status), "%s: %s", weft_status_name(status), weft_last_error());
    if (!world && rank != s->victim) {
        CREW(status == WEFT_ERR_PEER_LEFT, "%s: %s", weft_status_name(status), weft_last_error());
        CREW(s->stage == INIT, "%s", weft_last_error());
    }
    if (world && s->stage != INIT && try_lane(s, rank, world))
        return 1;
    weft_clear_error();
    weft_finish(world);
    weft_release(world);
    CREW(count_mappings() <= mapped, "%d mappings are left", count_mappings() - mapped);
    CREW(harness_descriptors(after, before) < 0, "descriptor %d is left open",
         harness_descriptors(after, before));
    crew->rank[rank].done = 1;
    return 0;
}

/* Beside a sanitizer at every third call, of which HARNESS_SEED says the first. */
static void run_short_at_every_call(int stage, int size, int victim)
{
    static const char *const names[] = {"weft_init", "memory", "groups", "meshes"};
    char what[80];
    bool fired = true;
    int stride = VALUES_SANITIZED && !getenv("WEFT_TEST_ALL") ? 3 : 1;
    for (int nth = values_first((uint64_t)(stage * 64 + size * 8 + victim), stride); fired;
         nth += stride) {
        shortage s = {size, victim, nth, stage};
        snprintf(what, sizeof what, "%s, call %d of rank %d fails", names[stage], nth, victim);
        crew_run(what, size, short_crew, &s, -1);
        fired = crew->rank[victim].steps;
        CHECK(nth < 1000);
    }
}

TEST(test_shortage_init)
{
    run_short_at_every_call(INIT, 2, 0);
    run_short_at_every_call(INIT, 3, 1);
}

TEST(test_shortage_meshes)
{
    run_short_at_every_call(MESHES, 2, 0);
    run_short_at_every_call(MESHES, 2, 1);
}

TEST(test_shortage_memory)
{
    run_short_at_every_call(MEMORY, 2, 0);
    run_short_at_every_call(MEMORY, 2, 1);
    run_short_at_every_call(MEMORY, 3, 1);
}

TEST(test_shortage_groups)
{
    run_short_at_every_call(GROUPS, 2, 0);
    run_short_at_every_call(GROUPS, 2, 1);
    run_short_at_every_call(GROUPS, 3, 1);
}

/* ---- real limits ---- */

static int count_open(void)
{
    unsigned char open[1024];
    int count = 0;
    harness_descriptors(open, NULL);
    for (int fd = 0; fd < 1024; fd++)
        count += open[fd];
    return count;
}

/* Descriptors run out at every point of the way in rank 1; then there are enough and it works. */
static int few_descriptors_crew(int rank, void *arg)
{
    (void)arg;
    weft_group *world = weft_init(NULL);
    CREW(world, "%s", weft_last_error());
    struct rlimit usual;
    getrlimit(RLIMIT_NOFILE, &usual);
    for (int spare = 0; spare < 8; spare++) {
        int failed = 0;
        weft_scope_open();
        if (rank == 1) {
            struct rlimit few = {(rlim_t)(count_open() + spare), usual.rlim_max};
            setrlimit(RLIMIT_NOFILE, &few);
        }
        long long began = harness_now();
        weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100));
        if (!x)
            CREW(weft_last_status() == WEFT_ERR_LIMIT, "%s", weft_last_error());
        weft_status none = weft_last_status();
        if (rank == 1 && !x) { /* takes part without memory, so that the others are told */
            setrlimit(RLIMIT_NOFILE, &usual);
            x = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100));
            failed = none;
        }
        weft_symm *mem = weft_symm_rendezvous(x, world);
        setrlimit(RLIMIT_NOFILE, &usual);
        CREW(harness_now() - began < SOON_MS * 1000000LL, "spare %d: %s", spare, weft_last_error());
        if (!mem && !failed)
            CREW(weft_last_status() == WEFT_ERR_LIMIT || weft_last_status() == WEFT_ERR_TYPE,
                 "spare %d: %s", spare, weft_last_error());
        CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "spare %d: %s", spare,
             weft_last_error());
        weft_scope_close();
    }
    CREW(weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100)), world), "%s",
         weft_last_error());
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_shortage_descriptors)
{
    crew_run("few descriptors", 3, few_descriptors_crew, NULL, -1);
}

/* An owner without a single free descriptor cannot fetch, but still hands out its memory: so the
 * error is its own, and everybody's at once. */
static int no_descriptors_crew(int rank, void *arg)
{
    (void)arg;
    weft_group *world = weft_init(NULL);
    CREW(world, "%s", weft_last_error());
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100));
    struct rlimit usual, few;
    getrlimit(RLIMIT_NOFILE, &usual);
    few = (struct rlimit){64, usual.rlim_max};
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK && x, "%s", weft_last_error());
    int taken[64], count = 0;
    if (rank == 1) {
        setrlimit(RLIMIT_NOFILE, &few);
        while (count < 64 && (taken[count] = dup(0)) >= 0)
            count++;
        CREW(count < 64 && errno == EMFILE, "%d descriptors", count);
    }
    long long began = harness_now();
    weft_symm *mem = weft_symm_rendezvous(x, world);
    while (count > 0)
        close(taken[--count]);
    setrlimit(RLIMIT_NOFILE, &usual);
    CREW(!mem && weft_last_status() == WEFT_ERR_LIMIT, "%s", weft_last_error());
    CREW(harness_now() - began < SOON_MS * 1000000LL, "%s", weft_last_error());
    mem = weft_symm_rendezvous(x, world);
    CREW(mem, "%s", weft_last_error());
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_shortage_no_descriptors)
{
    crew_run("no descriptors", 3, no_descriptors_crew, NULL, -1);
}

/* ---- a system without the usual files ---- */

static weft_i_os bare_table;
static atomic_int bare_refused; /* relaxed: a count */

/* Neither /proc nor /sys nor /dev/shm; nothing can be written anywhere. */
static int bare_open(const char *path, int flags, mode_t mode)
{
    static const char *const none[] = {"/proc", "/sys", "/dev/shm"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (!strncmp(path, none[i], strlen(none[i]))) {
            atomic_fetch_add_explicit(&bare_refused, 1, memory_order_relaxed);
            errno = ENOENT;
            return -1;
        }
    if (flags & (O_WRONLY | O_RDWR | O_CREAT)) {
        errno = EROFS;
        return -1;
    }
    return weft_i_os_linux.open(path, flags, mode);
}

static int bare_mkdir(const char *path, mode_t mode)
{
    (void)path, (void)mode;
    errno = EROFS;
    return -1;
}

RANKS_TEST(test_shortage_of_files, 3)
{
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    bare_table = weft_i_os_linux;
    bare_table.open = bare_open;
    bare_table.mkdir = bare_mkdir;
    weft_i_os_now = &bare_table;
    weft_group *world = weft_init(NULL);
    if (!world)
        FAIL("weft_init: %s", weft_last_error());
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(50000), rank + 1);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 0) == size * (size + 1) / 2 && weft_item(x, 49999) == weft_item(x, 0));
    CHECK(!use_memory(world) && !use_groups(world, size));
    CHECK(!weft_finish(world));
    weft_i_os_now = &weft_i_os_linux;
    CHECK(atomic_load_explicit(&bare_refused, memory_order_relaxed));
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}

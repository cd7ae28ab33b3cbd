/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/meet.c, fabric/meet/meet_store.c, fabric/meet/start.c */
/*
 * Meeting: by the variables of each launcher, through each kind of store, on several "hosts" of one
 * machine, and everything that can go wrong before there is a world.
 */
#include "crew.h"
#include "doom.h"
#include "fault.h"
#include "hosts.h"

#include "fabric/meet/meet.h"

#include <weft/version.h>

#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static char run_name[64]; /* differs from that of every other run of this program */

/* The ranks here are not to see what launched them. */
static void forget_launcher(void)
{
    static const char *const names[] = {"RANK",        "WORLD_SIZE",      "LOCAL_RANK",
                                        "GROUP_RANK",  "MASTER_ADDR",     "MASTER_PORT",
                                        "WEFT_JOB_FD", "LOCAL_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static weft_symm *share(weft_group *group)
{
    return weft_symm_rendezvous(weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(8)), group);
}

/* The world works: memory, barriers, groups. */
static int use(int rank, weft_group *world, int as, int size)
{
    CREW(world, "%s", weft_last_error());
    weft_scope_open();
    CREW(weft_rank(world) == as && weft_size(world) == size, "rank %d of %d", weft_rank(world),
         weft_size(world));
    weft_symm *mem = share(world);
    CREW(mem, "%s", weft_last_error());
    *(int *)weft_symm_buffer_ptr(mem, as) = 100 + as;
    CREW(weft_symm_barrier(mem, 0, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    for (int peer = 0; peer < size; peer++)
        CREW(*(int *)weft_symm_buffer_ptr(mem, peer) == 100 + peer, "of rank %d", peer);
    weft_group *all = weft_group_split(world, 0, -as);
    CREW(all && weft_rank(all) == size - 1 - as, "%s", weft_last_error());
    CREW(weft_group_barrier(all, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    CREW(weft_last_status() == WEFT_OK, "%s", weft_last_error());
    CREW(!weft_finish(world), "%s", weft_last_error());
    weft_scope_close();
    return 0;
}

/* Descriptors this rank may have opened are given back. */
static int leave(int rank, weft_group *world, const unsigned char *before)
{
    unsigned char after[1024];
    weft_release(world);
    int left = harness_descriptors(after, before);
    CREW(left < 0, "descriptor %d is left open", left);
    crew->rank[rank].done = 1;
    return 0;
}

/* ---- launchers ---- */

typedef struct words {
    const char *name, *rank, *size, *local_rank, *local_size, *job;
} words;

static const words launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_KVSNAME"},
    {"PMIx", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
     "SLURM_JOB_ID"},
};

static void pretend(const words *from, int rank, int size, const char *job)
{
    forget_launcher();
    hosts_set_number(from->rank, rank);
    hosts_set_number(from->size, size);
    hosts_set_number(from->local_rank, rank);
    hosts_set_number(from->local_size, size);
    setenv(from->job, job, 1);
}

static int launched_crew(int rank, void *arg)
{
    const words *from = arg;
    unsigned char before[1024];
    harness_descriptors(before, NULL);
    pretend(from, rank, 3, run_name);
    weft_group *world = weft_init(NULL);
    return use(rank, world, rank, 3) || leave(rank, world, before);
}

TEST(test_meet_launchers)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        crew_run(launchers[i].name, 3, launched_crew, (void *)(uintptr_t)&launchers[i], -1);
}

/* Ranks 0 and 2 are one job, 1 and 3 another. */
/* ---- another user on the names of the meeting ---- */

typedef struct squat {
    const char *what;
    int names;      /* how many are taken, from the first on */
    bool listening; /* or only bound */
    bool token;     /* the job has one, which the squatter cannot know */
    bool in_vain;   /* the ranks meet */
} squat;

static bool take_name(const char *name, bool listening)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path + 1, name, strlen(name));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 &&
           !bind(fd, (struct sockaddr *)&at,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) &&
           (!listening || !listen(fd, 8));
}

/* Rank 2 of the crew is no rank of the job: it works the names out and takes them as nobody. */
static int squatter(const squat *s)
{
    enum { rank = 2 };
    weft_i_start start = {0};
    char names[WEFT_I_MEET_NAMES][WEFT_I_MEET_NAME];
    unsetenv("WEFT_TOKEN");
    pretend(&launchers[0], 0, 2, run_name);
    CREW(weft_i_start_read(&start) == WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < s->names; i++)
        weft_i_meet_local_name(&start, i, names[i]);
    CREW(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534), "not nobody");
    for (int i = 0; i < s->names; i++)
        CREW(take_name(names[i], s->listening), "cannot take name %d", i);
    crew->go = 1;
    while (crew->given_up < 2)
        crew_rest(1);
    crew->rank[rank].done = 1;
    return 0;
}

static int squat_crew(int rank, void *arg)
{
    const squat *s = arg;
    if (rank == 2)
        return squatter(s);
    while (!crew->go)
        crew_rest(1);
    if (s->token)
        setenv("WEFT_TOKEN", hosts_token, 1);
    pretend(&launchers[0], rank, 2, run_name);
    int64_t begin = weft_i_os_linux.clock_ns();
    weft_group *world = weft_init(&(weft_init_opts){.size = sizeof(weft_init_opts),
                                                    .meet_timeout_ms = s->in_vain ? 20000 : 600});
    int64_t took = (weft_i_os_linux.clock_ns() - begin) / 1000000;
    crew->given_up++;
    if (s->in_vain) {
        CREW(world && weft_size(world) == 2, "%s", weft_last_error());
        CREW(took < 10000, "met after %lld ms", (long long)took);
        CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    } else {
        CREW(!world, "met on a name of another user");
        CREW(rank || weft_last_status() == WEFT_ERR_ADDR_IN_USE, "%s", weft_last_error());
        CREW(rank ||
                 (strstr(weft_last_error(), "65534") && strstr(weft_last_error(), "WEFT_TOKEN")),
             "%s", weft_last_error());
    }
    weft_clear_error();
    weft_finish(world);
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_meet_squatted)
{
    static const squat squats[] = {
        {"the first name", 1, true, false, true},
        {"the first name, bound only", 1, false, false, true},
        {"all names but the last", WEFT_I_MEET_NAMES - 1, true, false, true},
        {"all names, but there is a token", WEFT_I_MEET_NAMES, true, true, true},
        {"all names", WEFT_I_MEET_NAMES, true, false, false},
    };
    if (geteuid() != 0)
        SKIP("only root can become another user");
    for (size_t i = 0; i < sizeof squats / sizeof *squats; i++)
        crew_run(squats[i].what, 3, squat_crew, (void *)(uintptr_t)&squats[i], -1);
}

static int two_jobs_crew(int rank, void *arg)
{
    char job[96];
    unsigned char before[1024];
    (void)arg;
    harness_descriptors(before, NULL);
    snprintf(job, sizeof job, "%s-%d", run_name, rank % 2);
    pretend(&launchers[1], rank / 2, 2, job);
    weft_group *world = weft_init(NULL);
    return use(rank, world, rank / 2, 2) || leave(rank, world, before);
}

TEST(test_meet_two_jobs)
{
    crew_run("two jobs", 4, two_jobs_crew, NULL, -1);
}

/* Jobs one after another in the same processes under the same name. */
static int consecutive_crew(int rank, void *arg)
{
    unsigned char before[1024];
    (void)arg;
    harness_descriptors(before, NULL);
    pretend(&launchers[0], rank, 2, run_name);
    weft_group *world = NULL;
    for (int i = 0; i < 5; i++) {
        weft_release(world);
        weft_clear_error();
        world = weft_init(NULL);
        if (use(rank, world, rank, 2))
            return 1;
    }
    return leave(rank, world, before);
}

TEST(test_meet_consecutive)
{
    crew_run("consecutive jobs", 2, consecutive_crew, NULL, -1);
}

TEST(test_meet_alone)
{
    weft_group *world = weft_init(NULL);
    CHECK(world);
    CHECK(weft_rank(world) == 0 && weft_size(world) == 1 && weft_local_size(world) == 1);
    weft_symm *mem = share(world);
    CHECK(mem);
    CHECK_OK(weft_symm_barrier(mem, 0, 0));
    CHECK_OK(weft_symm_put_signal(mem, 0, 0, 0));
    CHECK_OK(weft_symm_wait_signal(mem, 0, 0, 0));
    CHECK(!weft_finish(world));
    weft_release(mem);
    weft_release(world);
}

/* ---- stores ---- */

typedef struct store_kind {
    const char *name;
    int port;
} store_kind;

static weft_store *open_store(const store_kind *kind, int rank, int size)
{
    char path[128];
    snprintf(path, sizeof path, "/tmp/weft-test-%s", run_name);
    if (!strcmp(kind->name, "file"))
        return weft_store_file(path, size);
    if (!strcmp(kind->name, "unix"))
        return rank == 0 ? weft_store_unix_serve(run_name)
                         : weft_store_unix_connect(run_name, 10000);
    if (rank == 0) {
        weft_store *store = weft_store_tcp_serve(NULL, 0, hosts_token);
        crew->go = weft_store_port(store);
        return store;
    }
    while (!crew->go)
        crew_rest(1);
    return weft_store_tcp_connect(NULL, crew->go, hosts_token, 10000);
}

static int store_crew(int rank, void *arg)
{
    unsigned char before[1024];
    harness_descriptors(before, NULL);
    forget_launcher();
    weft_store *store = open_store(arg, rank, 3);
    CREW(store, "%s", weft_last_error());
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.store = store;
    opts.rank = rank;
    opts.world_size = 3;
    opts.timeout_ms = 12345;
    weft_group *world = weft_init(&opts);
    CREW(!world || weft_group_timeout(world) == 12345, "%lld",
         (long long)weft_group_timeout(world));
    if (use(rank, world, rank, 3))
        return 1;
    weft_release(world);
    /* The store is still the caller's. */
    CREW(weft_store_add(store, "done", 1, NULL) == WEFT_OK, "%s", weft_last_error());
    while (rank == 0) {
        int64_t done = 0;
        CREW(weft_store_add(store, "done", 0, &done) == WEFT_OK, "%s", weft_last_error());
        if (done == 3)
            break;
        crew_rest(1);
    }
    weft_release(store);
    return leave(rank, NULL, before);
}

TEST(test_meet_stores)
{
    static const store_kind kinds[] = {{"unix", 0}, {"file", 0}, {"tcp", 0}};
    for (int i = 0; i < 3; i++)
        crew_run(kinds[i].name, 3, store_crew, (void *)(uintptr_t)&kinds[i], -1);
}

/* ---- two hosts on one machine ---- */

static void pretend_hosts(int rank, int size, int port, bool with_token)
{
    forget_launcher();
    hosts_pretend(rank, size, 2, port);
    if (with_token)
        setenv("WEFT_TOKEN", hosts_token, 1);
}

/* Without UCX there is no way for data between hosts: every collective says so, before it does anything. */
static int refuse_collectives(int rank, weft_group *world)
{
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), rank),
                *all = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16), rank);
    int next = (rank + 1) % 4;
    const weft_status refused[] = {weft_all_reduce_into(x, x, WEFT_SUM, world),
                                   weft_reduce_into(x, x, WEFT_SUM, 0, world),
                                   weft_broadcast_in_place(x, 0, world),
                                   weft_all_gather_into(all, x, world),
                                   weft_gather_into(all, x, rank, world),
                                   weft_scatter_into(x, all, rank, world),
                                   weft_reduce_scatter_into(x, all, WEFT_SUM, world),
                                   weft_all_to_all_into(all, all, NULL, NULL, world),
                                   weft_send(x, next, world),
                                   weft_recv(x, next, world),
                                   weft_all_reduce_list_into(&x, &x, 1, WEFT_SUM, world)};
    for (int i = 0; i < (int)(sizeof refused / sizeof *refused); i++)
        CREW(refused[i] == WEFT_ERR_UNREACHABLE, "collective %d gives %d", i, (int)refused[i]);
    weft_clear_error();
    CREW(!weft_all_reduce_start(x, x, WEFT_SUM, world), "it was posted");
    CREW(weft_last_status() == WEFT_ERR_UNREACHABLE, "%s", weft_last_error());
    CREW(strstr(weft_last_error(), "all_reduce: group \"0\" spans hosts"), "%s", weft_last_error());
    weft_clear_error();
    CREW(!weft_wait_tensor(weft_all_reduce(x, WEFT_SUM, world)), "a functional one went through");
    CREW(weft_last_status() == WEFT_ERR_UNREACHABLE, "%s", weft_last_error());
    weft_clear_error();
    CREW(weft_item(x, 3) == rank && weft_item(all, 15) == rank, "an operand has changed");
    CREW(weft_monitored_barrier(world, 20000, true) == WEFT_OK, "%s", weft_last_error());
    return 0;
}

static int hosts_crew(int rank, void *arg)
{
    unsigned char before[1024];
    harness_descriptors(before, NULL);
    pretend_hosts(rank, 4, *(int *)arg, true);
    setenv("WEFT_UCX", "off", 1);
    weft_group *world = weft_init(NULL);
    CREW(world, "%s", weft_last_error());
    CREW(weft_local_size(world) == 2 && weft_local_rank(world) == rank % 2, "local %d of %d",
         weft_local_rank(world), weft_local_size(world));
    weft_scope_open();
    int lower[] = {0, 1}, upper[] = {2, 3}, across[] = {1, 2};
    weft_group *host = weft_group_new(world, rank < 2 ? lower : upper, 2, NULL);
    CREW(host, "%s", weft_last_error());
    weft_symm *mem = share(host);
    CREW(mem && weft_symm_barrier(mem, 0, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < 5; i++)
        CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    weft_group *odd = weft_group_split(world, rank % 2, 0);
    CREW(odd && weft_size(odd) == 2 && weft_rank(odd) == rank / 2, "%s", weft_last_error());
    CREW(weft_group_barrier(odd, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < 3; i++) {
        weft_group *bridge = weft_group_new(world, across, 2, NULL);
        CREW((bridge != NULL) == (rank == 1 || rank == 2), "%s", weft_last_error());
        CREW(!bridge || weft_group_barrier(bridge, WEFT_DEFAULT) == WEFT_OK, "%s",
             weft_last_error());
    }
    CREW(weft_last_status() == WEFT_OK, "an error was left: %s", weft_last_error());
    /* A late rank: the others give up, try again, and all pass together. */
    while (rank == 3 && crew->given_up < 3)
        crew_rest(1);
    if (rank != 3)
        CREW(weft_group_barrier(world, 60) == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
    crew->given_up++;
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    CREW(!share(world) && weft_last_status() == WEFT_ERR_UNREACHABLE, "%s", weft_last_error());
    CREW(strstr(weft_last_error(), "spans hosts"), "%s", weft_last_error());
    if (refuse_collectives(rank, world))
        return 1;
    /* Different calls are told to all; revoking ends the waits of all. */
    weft_group *doomed = weft_group_split(world, 0, 0);
    CREW(doomed, "%s", weft_last_error());
    weft_status status = rank == 2 ? (weft_group_split(doomed, 0, 0), weft_last_status())
                                   : weft_group_barrier(doomed, WEFT_DEFAULT);
    CREW(status == WEFT_ERR_MISMATCH, "%s", weft_last_error());
    doomed = weft_group_split(world, 0, 0);
    CREW(doomed, "%s", weft_last_error());
    if (rank == 0) {
        crew_rest(50);
        CREW(weft_group_revoke(doomed) == WEFT_OK, "%s", weft_last_error());
    } else {
        status = weft_group_barrier(doomed, WEFT_DEFAULT);
        CREW(status == WEFT_ERR_REVOKED, "%s", weft_last_error());
    }
    weft_clear_error();
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    CREW(!weft_finish(world), "%s", weft_last_error());
    weft_scope_close();
    return leave(rank, world, before);
}

TEST(test_meet_hosts)
{
    int port = free_port();
    if (!port)
        SKIP("no port is free here");
    crew_run("two hosts", 4, hosts_crew, &port, -1);
}

static int no_token_crew(int rank, void *arg)
{
    pretend_hosts(rank, 4, *(int *)arg, false);
    CREW(!weft_init(NULL), "met without a token");
    CREW(weft_last_status() == WEFT_ERR_AUTH, "%s", weft_last_error());
    CREW(strstr(weft_last_error(), "WEFT_TOKEN"), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_meet_no_token)
{
    int port = free_port();
    crew_run("no token", 2, no_token_crew, &port, -1);
}

/* ---- who is missing ---- */

typedef struct absence {
    int size;
    bool by_store;
    int limit_ms;
} absence;

/* Has the machine kept one of the two that come from the other until the limit had passed? */
static bool missed_each_other(int rank, const char *message)
{
    return strstr(message, rank ? "rank 0 (never" : "rank 2 (never") ||
           strstr(message, "never came: 1, 2, 3") || strstr(message, "rank 0 never came");
}

/* Ranks 1 and 3 of four never come. */
static int missing_crew(int rank, void *arg)
{
    const absence *a = arg;
    if (a->by_store)
        pretend(&launchers[2], rank, a->size, run_name);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.meet_timeout_ms = a->limit_ms;
    crew->rank[rank].done = 1;
    while (rank % 2 && crew->given_up < 2)
        crew_rest(1);
    if (rank % 2)
        return 0;
    crew->go++;
    while (crew->go < 2) /* so that the two do meet, however busy the machine is */
        crew_rest(1);
    long long began = harness_now();
    CREW(!weft_init(&opts), "met without the others");
    long long ms = (harness_now() - began) / 1000000;
    CREW(weft_last_status() == WEFT_ERR_MISSING, "%s", weft_last_error());
    crew->given_up++;
    CREW(ms >= 250 && ms < 20000, "%lld ms", ms);
    crew->rank[rank].steps = missed_each_other(rank, weft_last_error());
    if (crew->rank[rank].steps)
        return 0;
    bool all = strstr(weft_last_error(), "these never came: 1, 3") != NULL;
    /* Rank 0 may leave first, and its store may be too late on a busy machine. */
    bool cut = (rank && strstr(weft_last_error(), "rank 1 had not come when")) ||
               strstr(weft_last_error(), "1 (perhaps more: the store of rank 0 did not answer)");
    CREW(!a->by_store || all || cut, "%s", weft_last_error());
    CREW(a->by_store || (strstr(weft_last_error(), "rank 1 (never called weft_init)") &&
                         strstr(weft_last_error(), "rank 3 (never called weft_init)")),
         "%s", weft_last_error());
    CREW(!strstr(weft_last_error(), "rank 2 (never"), "%s", weft_last_error());
    return 0;
}

/* On a slow machine again, with a longer limit. */
static void miss(const char *what, bool by_store)
{
    absence a = {4, by_store, 600};
    crew_run(what, 4, missing_crew, &a, -1);
    while (crew->rank[0].steps || crew->rank[2].steps) {
        a.limit_ms *= 3;
        CHECK(a.limit_ms < 20000);
        crew_run(what, 4, missing_crew, &a, -1);
    }
}

TEST(test_meet_missing)
{
    miss("missing, page", false);
    miss("missing, store", true);
}

/* Rank 0, who would serve the store, never comes. */
static int no_server_crew(int rank, void *arg)
{
    (void)arg;
    pretend(&launchers[3], rank + 1, 3, run_name);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.meet_timeout_ms = 200;
    CREW(!weft_init(&opts) && weft_last_status() == WEFT_ERR_MISSING, "%s", weft_last_error());
    CREW(strstr(weft_last_error(), "rank 0 never came"), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_meet_no_server)
{
    crew_run("no rank 0", 2, no_server_crew, NULL, -1);
}

/* ---- wrong papers ---- */

static int wrong_size_crew(int rank, void *arg)
{
    (void)arg;
    setenv("WORLD_SIZE", "5", 1);
    CREW(!weft_init(NULL) && weft_last_status() == WEFT_ERR_MISMATCH, "%s", weft_last_error());
    CREW(strstr(weft_last_error(), "WORLD_SIZE is 5 but weft run started 2"), "%s",
         weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

static int wrong_page_crew(int rank, void *arg)
{
    static const struct {
        const char *value;
        weft_status expected;
    } cases[] = {{"pear", WEFT_ERR_INVALID_ARG},
                 {"999", WEFT_ERR_STATE},
                 {"0", WEFT_ERR_STATE},
                 {"9 9", WEFT_ERR_INVALID_ARG},
                 {"12x", WEFT_ERR_INVALID_ARG}};
    int which = *(int *)arg;
    if (which == 5) { /* a sealed file that is no job page */
        int fd = memfd_create("stranger", MFD_ALLOW_SEALING);
        CREW(fd >= 0 && !ftruncate(fd, 8192) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), "memfd");
        hosts_set_number("WEFT_JOB_FD", fd);
        CREW(!weft_init(NULL) && weft_last_status() == WEFT_ERR_PROTOCOL, "%s", weft_last_error());
    } else {
        setenv("WEFT_JOB_FD", cases[which].value, 1);
        weft_group *world = weft_init(NULL);
        CREW(!world && weft_last_status() == cases[which].expected, "%s: %s", cases[which].value,
             weft_last_error());
    }
    crew->rank[rank].done = 1;
    return 0;
}

static int wrong_words_crew(int rank, void *arg)
{
    (void)arg;
    forget_launcher();
    setenv("RANK", "0", 1);
    CREW(!weft_init(NULL) && weft_last_status() == WEFT_ERR_INVALID_ARG, "%s", weft_last_error());
    setenv("WORLD_SIZE", "many", 1);
    CREW(!weft_init(NULL) && weft_last_status() == WEFT_ERR_INVALID_ARG, "%s", weft_last_error());
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", "2", 1);
    CREW(!weft_init(NULL) && weft_last_status() == WEFT_ERR_INVALID_ARG, "%s", weft_last_error());
    forget_launcher();
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.store = weft_store_local();
    CREW(!weft_init(&opts) && weft_last_status() == WEFT_ERR_INVALID_ARG, "%s", weft_last_error());
    opts.world_size = 1;
    opts.rank = 1;
    CREW(!weft_init(&opts) && weft_last_status() == WEFT_ERR_INVALID_ARG, "%s", weft_last_error());
    opts.rank = 0;
    opts.timeout_ms = -9;
    CREW(!weft_init(&opts) && weft_last_status() == WEFT_ERR_INVALID_ARG, "%s", weft_last_error());
    opts.timeout_ms = 0;
    opts.meet_timeout_ms = -9;
    CREW(!weft_init(&opts) && weft_last_status() == WEFT_ERR_INVALID_ARG, "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_meet_wrong_papers)
{
    crew_run("wrong WORLD_SIZE", 2, wrong_size_crew, NULL, -1);
    for (int which = 0; which <= 5; which++)
        crew_run("wrong WEFT_JOB_FD", 1, wrong_page_crew, &which, -1);
    crew_run("wrong variables", 1, wrong_words_crew, NULL, -1);
}

/* Rank 1 shows a card like rank 0's, but of another version. */
static int version_crew(int rank, void *arg)
{
    (void)arg;
    forget_launcher();
    store_kind kind = {"unix", 0};
    weft_store *store = open_store(&kind, rank, 2);
    CREW(store, "%s", weft_last_error());
    if (rank == 1) {
        weft_store_value card = {0};
        CREW(weft_store_get(store, "meet/0", 10000, &card) == WEFT_OK, "%s", weft_last_error());
        char *version = memmem(card.data, card.bytes, WEFT_VERSION, strlen(WEFT_VERSION));
        CREW(version, "no version in the card");
        version[0] = '9';
        CREW(weft_store_set(store, "meet/1", card.data, card.bytes) == WEFT_OK, "%s",
             weft_last_error());
        weft_store_value_clear(&card);
        while (!crew->go)
            crew_rest(1);
    } else {
        weft_init_opts opts = WEFT_INIT_OPTS;
        opts.store = store;
        opts.world_size = 2;
        CREW(!weft_init(&opts) && weft_last_status() == WEFT_ERR_VERSION, "%s", weft_last_error());
        CREW(strstr(weft_last_error(), "rank 1 runs weft 9"), "%s", weft_last_error());
        CREW(strstr(weft_last_error(), "rank 0 runs weft " WEFT_VERSION), "%s", weft_last_error());
        crew->go = 1;
    }
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_meet_version)
{
    crew_run("versions", 2, version_crew, NULL, -1);
}

/* ---- trouble on the way, through a store ---- */

typedef struct trouble {
    int victim, nth;
    bool dies;
} trouble;

static int troubled_crew(int rank, void *arg)
{
    const trouble *t = arg;
    pretend(&launchers[1], rank, 3, run_name);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.meet_timeout_ms = 800;
    if (rank == t->victim && t->dies)
        doom_arm(t->nth);
    else if (rank == t->victim)
        fault_arm(t->nth);
    long long began = harness_now();
    weft_group *world = weft_init(&opts);
    weft_status status = weft_last_status();
    long long ms = (harness_now() - began) / 1000000;
    if (rank == t->victim && !t->dies)
        crew->rank[rank].steps = fault_disarm();
    CREW(ms < 20000, "took %lld ms: %s", ms, weft_last_error());
    if (!world && rank != t->victim)
        CREW(status == WEFT_ERR_PEER_DEAD || status == WEFT_ERR_PEER_LEFT ||
                 status == WEFT_ERR_MISSING || status == WEFT_ERR_UNREACHABLE,
             "%s: %s", weft_status_name(status), weft_last_error());
    if (!world && rank == t->victim)
        CREW(status < 0 && status != WEFT_ERR_INTERNAL && *weft_last_error(), "%s",
             weft_status_name(status));
    weft_clear_error();
    weft_finish(world);
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_meet_short)
{
    bool fired = true;
    for (int nth = 1; fired && nth < 200; nth += 2) {
        trouble t = {1 + nth / 2 % 2, nth, false};
        crew_run("something runs out", 3, troubled_crew, &t, -1);
        fired = crew->rank[t.victim].steps;
    }
}

TEST(test_meet_deaths)
{
    bool outlived = false;
    for (int nth = 2; !outlived && nth < 400; nth += 7) {
        trouble t = {1 + nth % 2, nth, true};
        crew_run("a rank dies", 3, troubled_crew, &t, t.victim);
        outlived = crew->rank[t.victim].done;
    }
}

static weft_i_os gone_table;

/* Behind the store, on its way to the page of the job: the others know its address by then, and wait
 * there. */
static int gone_connect(int fd, const struct sockaddr *to, socklen_t length)
{
    const struct sockaddr_un *name = (const struct sockaddr_un *)(const void *)to;
    if (to->sa_family == AF_UNIX && strncmp(name->sun_path + 1, "weft-meet-", 10) != 0)
        kill(getpid(), SIGKILL);
    return weft_i_os_linux.connect(fd, to, length);
}

static int gone_crew(int rank, void *arg)
{
    (void)arg;
    pretend(&launchers[1], rank, 3, run_name);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.meet_timeout_ms = 30000;
    if (rank == 2) {
        gone_table = weft_i_os_linux;
        gone_table.connect = gone_connect;
        weft_i_os_now = &gone_table;
    }
    long long began = harness_now();
    CREW(!weft_init(&opts), "it came back");
    long long ms = (harness_now() - began) / 1000000;
    CREW(ms < 15000, "took %lld ms: %s", ms, weft_last_error()); /* not until the limit */
    /* Or of the other one, which has heard of it and left. */
    weft_status status = weft_last_status();
    CREW(strstr(weft_last_error(), "rank 2") || status == WEFT_ERR_UNREACHABLE ||
             status == WEFT_ERR_PEER_LEFT,
         "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

/* One that dies before it is on the page: only the store, and its closed server, tell. */
TEST(test_meet_gone_on_its_way)
{
    crew_run("gone on its way", 3, gone_crew, NULL, 2);
}

/* ---- a launcher that is there ---- */

TEST(test_meet_mpirun)
{
    char command[512], self[256];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || system("command -v mpirun >/dev/null 2>&1"))
        SKIP("mpirun is not installed");
    self[n] = 0;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    if (system("mpirun -n 2 true >/dev/null 2>&1"))
        SKIP("mpirun does not run here");
    snprintf(command, sizeof command, "mpirun -n 3 %s --rank 3 >/dev/null", self);
    CHECK_INT(system(command), 0);
}

/* What a rank started by mpirun does. */
static int be_rank(int size)
{
    weft_group *world = weft_init(NULL);
    weft_symm *mem = world ? share(world) : NULL;
    if (!mem || weft_size(world) != size || weft_symm_barrier(mem, 0, WEFT_DEFAULT) < 0) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    return weft_finish(world);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--rank"))
        return be_rank(atoi(argv[2]));
    snprintf(run_name, sizeof run_name, "run-%d-%lld", getpid(), harness_now());
    return harness_main(argc, argv);
}

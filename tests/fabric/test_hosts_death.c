/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/remote.c, fabric/world/lifeline.c, fabric/world/lifeline_hosts.c, fabric/world/lifeline_news.c, fabric/group/group_shrink.c, fabric/group/group_agree_hosts.c */
/*
 * Ranks of several hosts that are killed: at every step of their lives, and while others wait for them.
 * Whoever lives learns who died, soon, and goes on without the dead in a group of those who are left.
 * At which steps ranks die and in what the others stand follows from HARNESS_SEED; WEFT_TEST_ALL=1 takes
 * more steps, and every operation.
 */
#include "crew.h"
#include "hosts.h"
#include "hosts_life.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "doom.h"
#include "fabric/group/hosts.h"
#include "fabric/world/lifeline_parts.h"
#include "fabric/world/remote.h"
#include "values_seed.h"

enum { LIMIT_MS = 60000, SOON_MS = 30000 };

typedef struct scene {
    int port, size, per_host;
    unsigned dying; /* a bit for each rank */
    int step;       /* of the victim's calls to the system */
    int act;        /* in which the others are; see acts */
} scene;

#define OK(call_) CREW((call_) == WEFT_OK, "%s", weft_last_error())

static bool is_there(char *reason, size_t bytes)
{
    hosts_use_ucx();
    return weft_i_remote_engine()->probe(reason, bytes) > 0;
}

#define NEED_UCX()                              \
    do {                                        \
        char reason_[192];                      \
        if (!is_there(reason_, sizeof reason_)) \
            SKIP("%s", reason_);                \
    } while (0)

static weft_group *join(int rank, const scene *s)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    setenv("WEFT_MEET_TIMEOUT", s->step ? "8000" : "60000", 1);
    weft_group *world = hosts_join(rank, s->size, s->per_host, s->port);
    if (world)
        weft_group_set_timeout(world, LIMIT_MS);
    return world;
}

static bool dies(const scene *s, int rank)
{
    return s->dying >> rank & 1;
}

/* Is a rank of the dead in the message, and none of the living? */
static int check_told(const scene *s, int rank, weft_status status)
{
    bool named = false;
    CREW(status == WEFT_ERR_PEER_DEAD, "%s: %s", weft_status_name(status), weft_last_error());
    for (int i = 0; i < s->size; i++) {
        char name[32];
        snprintf(name, sizeof name, "rank %d (", i);
        bool there = strstr(weft_last_error(), name) != NULL;
        named |= there && dies(s, i);
        CREW(!there || dies(s, i), "rank %d is blamed: %s", i, weft_last_error());
    }
    CREW(named, "none of the dead is named: %s", weft_last_error());
    return 0;
}

/* Those who live make a group of their own and use it; it spans as many hosts as are left. */
static int check_rest(int rank, weft_group *world, int most)
{
    double sum = 0;
    weft_clear_error();
    weft_group *rest = weft_group_shrink(world);
    CREW(rest, "%s", weft_last_error());
    int size = weft_size(rest);
    CREW(size <= most, "%d of at most %d", size, most);
    for (int i = 0; i < 3; i++)
        OK(life_add_up(rest, &sum));
    CREW(sum == size, "the sum of %d ranks is %g", size, sum);
    OK(weft_group_barrier(rest, WEFT_DEFAULT));
    uint64_t flags = UINT64_C(1) << 40 | 1u << rank;
    OK(weft_group_agree(rest, &flags, WEFT_DEFAULT));
    CREW(flags == (UINT64_C(1) << 40) || size == 1, "%llx", (unsigned long long)flags);
    return 0;
}

/* ---- at every step ---- */

static int doomed(int rank, void *arg)
{
    const scene *s = arg;
    int64_t began = WEFT_OS->clock_ns();
    if (dies(s, rank))
        doom_arm(s->step);
    weft_group *world = join(rank, s);
    weft_status status = world ? life_live(world, rank, s->size) : weft_last_status();
    if (dies(s, rank)) { /* it has outlived its steps, if the others let it */
        CREW(world && status == WEFT_OK, "%s", weft_last_error());
        weft_finish(world);
        crew->rank[rank].steps = atomic_load(&doom_steps);
        crew->rank[rank].done = 1;
        return 0;
    }
    int64_t ms = (WEFT_OS->clock_ns() - began) / 1000000;
    CREW(ms < LIMIT_MS, "took %lld ms: %s", (long long)ms, weft_last_error());
    /* Whoever notices ends what the others wait in, for one who has noticed and does not come. */
    if (world && status < 0 && status != WEFT_ERR_REVOKED && check_told(s, rank, status))
        return 1;
    if (world && status < 0)
        OK(weft_group_revoke(world));
    if (world && check_rest(rank, world, s->size))
        return 1;
    weft_clear_error();
    weft_finish(world);
    crew->rank[rank].done = 1;
    return 0;
}

/* From some step between `first` and the next of that stride on. */
static void kill_at_steps(int size, int per_host, int victim, int first, int stride)
{
    char what[64];
    bool outlived = false;
    first += values_first((uint64_t)(size * CREW_MAX + victim), stride) - 1;
    for (int step = first; !outlived; step += stride) {
        scene s = {free_port(), size, per_host, 1u << victim, step, 0};
        if (!s.port)
            SKIP("no port is free here");
        snprintf(what, sizeof what, "rank %d of %d dead at step %d", victim, size, step);
        crew_run(what, size, doomed, &s, victim);
        outlived = crew->rank[victim].done;
        CHECK(step < 20000);
    }
}

static int stride(int usual)
{
    const char *text = getenv("HOSTS_DEATH_STRIDE"); /* 1: every one, by hand */
    if (text)
        return atoi(text);
    return getenv("WEFT_TEST_ALL") ? usual / 2 : VALUES_SANITIZED ? usual * 3 : usual;
}

TEST(test_hosts_death_steps)
{
    NEED_UCX();
    kill_at_steps(4, 2, 1, 80, stride(140));
    kill_at_steps(4, 2, 2, 90, stride(140));
    kill_at_steps(3, 1, 1, 100, stride(140));
}

/* Rank 0 serves the store too. */
TEST(test_hosts_death_steps_of_the_server)
{
    NEED_UCX();
    kill_at_steps(4, 2, 0, 300, stride(200));
}

/* ---- while others wait ---- */

enum { BARRIER, SUM, PASS, GROUP_NEW, ACTS };
static const char *const act_names[] = {"barrier", "all_reduce", "send", "group_new"};

static weft_status act(weft_group *world, int rank, int which)
{
    double sum;
    int all[CREW_MAX], size = weft_size(world);
    for (int i = 0; i < size; i++)
        all[i] = i;
    switch (which) {
    case BARRIER:
        return weft_group_barrier(world, WEFT_DEFAULT);
    case SUM:
        return life_add_up(world, &sum);
    case PASS:
        return life_pass_round(world, rank, size);
    default:
        return weft_group_new(world, all, size, NULL) ? WEFT_OK : weft_last_status();
    }
}

static int waiting(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join(rank, s);
    double sum;
    CREW(world, "%s", weft_last_error());
    OK(life_add_up(world, &sum));
    OK(life_pass_round(world, rank, s->size));
    crew->pid[rank] = getpid();
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    crew->go++;
    if (dies(s, rank)) {
        while (crew->go < s->size)
            crew_rest(1);
        crew_rest(20); /* by now the others wait */
        long long none = 0;
        atomic_compare_exchange_strong(&crew->when, &none, WEFT_OS->clock_ns());
        for (int other = 0; other < s->size; other++)
            if (dies(s, other) && other != rank)
                kill(crew->pid[other], SIGKILL);
        raise(SIGKILL);
    }
    weft_status status = act(world, rank, s->act);
    int64_t told = (WEFT_OS->clock_ns() - atomic_load(&crew->when)) / 1000;
    if (s->act == PASS && status == WEFT_OK) /* it has had no neighbour among the dead */
        told = 0;
    else if (check_told(s, rank, status))
        return 1;
    CREW(told / 1000 < SOON_MS, "told after %lld us", (long long)told);
    crew->rank[rank].slowest_ms = told; /* us */
    if (check_rest(rank, world, s->size - __builtin_popcount(s->dying)))
        return 1;
    weft_clear_error();
    weft_finish(world);
    crew->rank[rank].done = 1;
    return 0;
}

static int by_size(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return x < y ? -1 : x > y;
}

static void kill_waited_for(const char *what, int size, int per_host, unsigned dying, int rounds)
{
    int acts = getenv("WEFT_TEST_ALL") ? ACTS : VALUES_SANITIZED ? 1 : 2;
    int begin = values_first(dying * CREW_MAX + (uint64_t)size, ACTS);
    for (int i = 0; i < acts; i++) {
        long long told[64 * CREW_MAX];
        int count = 0, which = (begin + i) % ACTS;
        for (int round = 0; round < rounds; round++) {
            scene s = {free_port(), size, per_host, dying, 0, which};
            if (!s.port)
                SKIP("no port is free here");
            crew_run_without(what, size, waiting, &s, dying);
            for (int rank = 0; rank < size; rank++)
                if (crew->rank[rank].slowest_ms)
                    told[count++] = crew->rank[rank].slowest_ms;
        }
        qsort(told, (size_t)count, sizeof *told, by_size);
        printf("# %s in %s: told after %.1f ms (median of %d), at most %.1f\n", what,
               act_names[which], (double)told[count / 2] / 1000, count,
               (double)told[count - 1] / 1000);
    }
}

static int rounds(void)
{
    const char *text = getenv("HOSTS_DEATH_ROUNDS");
    int wanted = text ? atoi(text) : 1;
    return wanted < 64 ? wanted : 64;
}

TEST(test_hosts_death_of_a_rank)
{
    NEED_UCX();
    kill_waited_for("rank 3 of 2 + 2 killed", 4, 2, 1u << 3, rounds());
    kill_waited_for("rank 2 of 2 + 2, a guard, killed", 4, 2, 1u << 2, rounds());
}

TEST(test_hosts_death_of_the_server)
{
    NEED_UCX();
    kill_waited_for("rank 0 of 2 + 2, which serves the store, killed", 4, 2, 1u << 0, rounds());
}

TEST(test_hosts_death_of_a_host)
{
    NEED_UCX();
    kill_waited_for("the second of 3 hosts killed", 6, 2, 3u << 2, rounds());
    kill_waited_for("the first of 3 hosts, which serves the store, killed", 6, 2, 3u, rounds());
    kill_waited_for("the other one of 2 hosts killed", 2, 1, 1u << 1, rounds());
}

/* ---- by whom ---- */

/* Has the rank gone so, before long?  Nobody drives but the thread that does where nobody waits. */
static bool is_gone(const weft_i_world *world, int rank, weft_status how)
{
    int64_t end = weft_i_os_deadline(SOON_MS);
    while (weft_i_world_fate(world, rank) != how && WEFT_OS->clock_ns() < end)
        crew_rest(1);
    return weft_i_world_fate(world, rank) == how;
}

/* Rank 2 takes 1 and 3 for dead, has a lifeline that cannot tell it, and leaves. */
static int leaving(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *group = join(rank, s);
    double sum;
    CREW(group, "%s", weft_last_error());
    OK(life_add_up(group, &sum)); /* rank 2 has written to rank 0 */
    OK(weft_group_barrier(group, WEFT_DEFAULT));
    weft_i_world *world = group->world;
    if (rank == 2) {
        pthread_mutex_lock(&world->lifeline->lock);
        atomic_store(&world->peers[1].gone, WEFT_I_DEAD);
        atomic_store(&world->peers[3].gone, WEFT_I_DEAD);
        weft_i_remote_leave(world->remote);
    }
    if (rank == 0) {
        for (int dead = 1; dead < s->size; dead += 2)
            CREW(is_gone(world, dead, WEFT_ERR_PEER_DEAD), "rank %d is not known to be dead", dead);
        CREW(is_gone(world, 2, WEFT_ERR_PEER_LEFT), "rank 2 is not known to have left");
        crew->go++;
    }
    while (!crew->go)
        crew_rest(1);
    if (rank == 2)
        pthread_mutex_unlock(&world->lifeline->lock);
    crew->rank[rank].done = 1;
    return 0;
}

/* Else those who hear of its leaving first would blame it. */
TEST(test_hosts_death_is_told_by_who_leaves)
{
    NEED_UCX();
    scene s = {free_port(), 4, 1, 0, 0, 0};
    if (!s.port)
        SKIP("no port is free here");
    crew_run("a rank that leaves tells of two deaths", s.size, leaving, &s, -1);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}

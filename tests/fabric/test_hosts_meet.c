/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/hosts.c, fabric/group/hosts_meet.c, fabric/group/hosts_open.c, fabric/meet/meet_wires.c, fabric/world/pair.c, fabric/world/remote.c, fabric/world/remote_drive.c */
/*
 * Groups that span hosts, with UCX between them: processes of one machine that WEFT_HOST_ID makes ranks
 * of several hosts.  How they meet, give up, quarrel, leave and end.
 */
#include "crew.h"
#include "hosts.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/hosts.h"

#include <signal.h>

enum { LIMIT_MS = 60000, SOON_MS = 300 };

typedef struct scene {
    int port, size, per_host;
    int dying; /* -1: nobody */
} scene;

static weft_group *join(int rank, const scene *s)
{
    hosts_use_ucx();
    setenv("WEFT_DEBUG", "NONE", 1);
    weft_group *world = hosts_join(rank, s->size, s->per_host, s->port);
    if (world)
        weft_group_set_timeout(world, LIMIT_MS);
    return world;
}

#define OK(call_) CREW((call_) == WEFT_OK, "%s", weft_last_error())

/* Runs a crew with UCX between its hosts; the test is skipped where there is none. */
#define RUN(what_, size_, per_host_, dying_, body_)                      \
    do {                                                                 \
        char reason_[192];                                               \
        scene scene_ = {free_port(), size_, per_host_, dying_};          \
        hosts_use_ucx();                                                 \
        if (!scene_.port)                                                \
            SKIP("no port is free here");                                \
        if (weft_i_remote_engine()->probe(reason_, sizeof reason_) <= 0) \
            SKIP("%s", reason_);                                         \
        crew_run(what_, size_, body_, &scene_, dying_);                  \
    } while (0)

static int leave(int rank, weft_group *world)
{
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

/* All show their rank and a number. */
static weft_status exchange(weft_group *group, int number, int64_t limit_ms)
{
    int mine[2] = {group->rank, number}, all[CREW_MAX][2];
    weft_status status = weft_i_group_exchange(group, "test", mine, sizeof mine, all, limit_ms);
    for (int rank = 0; status == WEFT_OK && rank < group->size; rank++)
        if (all[rank][0] != rank || all[rank][1] != number)
            return weft_i_fail(WEFT_ERR_INTERNAL, "rank %d showed %d, %d at %d", rank, all[rank][0],
                               all[rank][1], number);
    return status;
}

/* ---- a right program ---- */

static int right(int rank, void *arg)
{
    const scene *s = arg;
    int hosts = (s->size + s->per_host - 1) / s->per_host;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    CREW(world->hosts && !world->local, "no hosts: %s", world->world->remote_why);
    CREW(world->hosts->count == hosts && world->hosts->mine == rank / s->per_host, "hosts");
    CREW(world->hosts->near->size == world->world->local_size, "near");
    for (int i = 0; i < 50; i++)
        OK(weft_group_barrier(world, WEFT_DEFAULT));
    for (int i = 0; i < 50; i++)
        OK(exchange(world, i, WEFT_DEFAULT));
    CREW(!world->world->store || weft_i_remote_strays(world->world->remote) == 0, "strays");
    weft_group *split = weft_group_split(world, rank % 2, -rank);
    CREW(split, "%s", weft_last_error());
    CREW(weft_size(split) == (s->size + 1 - rank % 2) / 2, "%d", weft_size(split));
    for (int i = 0; i < 10; i++)
        OK(exchange(split, i, WEFT_DEFAULT));
    int ranks[CREW_MAX], count = 0;
    for (int i = s->size - 1; i > 0; i--)
        ranks[count++] = i;
    for (int times = 0; times < 3 && rank > 0; times++) {
        weft_group *most = weft_group_new(world, ranks, count, NULL);
        CREW(most, "%s", weft_last_error());
        OK(exchange(most, times, WEFT_DEFAULT));
        OK(weft_group_barrier(most, WEFT_DEFAULT));
        OK(weft_group_destroy(most));
        weft_release(most);
    }
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    return leave(rank, world);
}

TEST(test_hosts_meet_right)
{
    RUN("2 hosts of 1", 2, 1, -1, right);
    RUN("2 hosts of 2", 4, 2, -1, right);
    RUN("3 and 1", 4, 3, -1, right);
    RUN("3 hosts of 2", 6, 2, -1, right);
}

/* ---- giving up ---- */

static int late(int rank, void *arg)
{
    const scene *s = arg;
    int slow = s->size - 1;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == slow) {
        while (crew->go < slow)
            crew_rest(1);
    } else {
        char who[32];
        snprintf(who, sizeof who, "rank %d (", slow);
        CREW(weft_group_barrier(world, SOON_MS) == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
        CREW(strstr(weft_last_error(), who), "%s", weft_last_error());
        crew->go++;
    }
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    OK(exchange(world, 7, WEFT_DEFAULT));
    return leave(rank, world);
}

TEST(test_hosts_meet_late)
{
    RUN("2 hosts of 1", 2, 1, -1, late);
    RUN("2 hosts of 2", 4, 2, -1, late);
}

/* Limits that pass at any moment: a meeting succeeds for all or for none, so all count the same ones. */
static int hasty(int rank, void *arg)
{
    const scene *s = arg;
    enum { ROUNDS = 150 };
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    unsigned dice = (unsigned)rank * 2654435761u + 12345;
    int given_up = 0;
    for (int i = 0; i < ROUNDS; i++) {
        weft_status status;
        do {
            dice = dice * 1664525u + 1013904223u;
            bool patient = given_up > 20 * ROUNDS;
            if (dice >> 28 == 0)
                crew_rest(1);
            status = exchange(world, i, patient ? WEFT_DEFAULT : (int)(dice >> 24 & 3));
            given_up += status == WEFT_ERR_TIMEOUT;
        } while (status == WEFT_ERR_TIMEOUT);
        OK(status);
    }
    crew->rank[rank].steps = given_up;
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    return leave(rank, world);
}

TEST(test_hosts_meet_hasty)
{
    RUN("2 hosts of 1", 2, 1, -1, hasty);
    RUN("2 hosts of 2", 4, 2, -1, hasty);
    RUN("3 hosts of 1", 3, 1, -1, hasty);
}

/* ---- ends ---- */

static int quarrel(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_status status;
    if (rank == s->size - 1) {
        status = exchange(world, 1, WEFT_DEFAULT);
    } else {
        status = weft_group_barrier(world, WEFT_DEFAULT);
    }
    CREW(status == WEFT_ERR_MISMATCH, "%d: %s", (int)status, weft_last_error());
    CREW(strstr(weft_last_error(), "calls test") &&
             strstr(weft_last_error(), "calls group_barrier"),
         "%s", weft_last_error());
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_ERR_MISMATCH, "%s", weft_last_error());
    return leave(rank, world);
}

TEST(test_hosts_meet_quarrel)
{
    RUN("2 hosts of 1", 2, 1, -1, quarrel);
    RUN("2 hosts of 2", 4, 2, -1, quarrel);
}

static int ended(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    int ranks[CREW_MAX];
    for (int i = 0; i < s->size; i++)
        ranks[i] = i;
    weft_group *all = weft_group_new(world, ranks, s->size, NULL);
    CREW(all, "%s", weft_last_error());
    if (rank == s->size - 1)
        OK(weft_group_revoke(all));
    else
        CREW(weft_group_barrier(all, WEFT_DEFAULT) == WEFT_ERR_REVOKED, "%s", weft_last_error());
    CREW(weft_group_barrier(all, WEFT_DEFAULT) == WEFT_ERR_REVOKED, "%s", weft_last_error());
    weft_group *gone = weft_group_new(world, ranks, s->size, NULL);
    CREW(gone, "%s", weft_last_error());
    if (rank == s->size - 1)
        OK(weft_group_destroy(gone));
    else
        CREW(weft_group_barrier(gone, WEFT_DEFAULT) == WEFT_ERR_PEER_LEFT, "%s", weft_last_error());
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    return leave(rank, world);
}

TEST(test_hosts_meet_revoke)
{
    RUN("2 hosts of 1", 2, 1, -1, ended);
    RUN("2 hosts of 2", 4, 2, -1, ended);
}

static int death(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == s->dying)
        raise(SIGKILL);
    weft_status status;
    int rounds = 0;
    do
        status = exchange(world, rounds++, WEFT_DEFAULT);
    while (status == WEFT_OK && rounds < 10);
    CREW(status == WEFT_ERR_PEER_DEAD, "%d: %s", (int)status, weft_last_error());
    char who[32];
    snprintf(who, sizeof who, "rank %d (", s->dying);
    CREW(strstr(weft_last_error(), who), "%s", weft_last_error());
    crew->go++;
    while (rank == 0 && crew->go < s->size - 1) /* it serves the store */
        crew_rest(1);
    return leave(rank, world);
}

TEST(test_hosts_meet_death)
{
    RUN("2 hosts of 1", 2, 1, 1, death);
    RUN("2 hosts of 2, the last", 4, 2, 3, death);
    RUN("2 hosts of 2, the second", 4, 2, 1, death);
    RUN("3 hosts of 2", 6, 2, 2, death);
}

/* Killed in the middle of many meetings: those who live all count the same ones. */
static int dying(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    weft_status status = WEFT_OK;
    crew->pid[rank] = getpid();
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    int64_t end = WEFT_OS->clock_ns() + 20 * 1000 * 1000;
    while ((status = exchange(world, crew->rank[rank].steps, WEFT_DEFAULT)) == WEFT_OK) {
        crew->rank[rank].steps++;
        if (rank == (s->dying + 1) % s->size && WEFT_OS->clock_ns() > end)
            kill(crew->pid[s->dying], SIGKILL);
    }
    CREW(status == WEFT_ERR_PEER_DEAD, "%d: %s", (int)status, weft_last_error());
    crew->go++;
    while (crew->go < s->size - 1)
        crew_rest(1);
    for (int other = 0; other < s->size; other++)
        CREW(other == s->dying || crew->rank[other].steps == crew->rank[rank].steps,
             "%d meetings here, %d on rank %d", crew->rank[rank].steps, crew->rank[other].steps,
             other);
    return leave(rank, world);
}

TEST(test_hosts_meet_dying)
{
    for (int round = 0; round < 3; round++) {
        RUN("2 hosts of 2", 4, 2, 3, dying);
        RUN("3 hosts of 2", 6, 2, 1 + 2 * (round % 2), dying);
    }
}

/* Comes to the meeting that all others name "test", on this host alone: what it tells the others is lost. */
static weft_i_point come_here(weft_group *group, weft_i_meeting *meeting)
{
    weft_i_point point = weft_i_hosts_point(group, WEFT_I_HOSTS_BOARD, false);
    uint32_t digest = weft_i_digest(1, sizeof(int[2]));
    for (const char *c = "test"; *c; c++)
        digest = weft_i_digest(digest, (unsigned char)*c);
    /* Our own word. */
    uint32_t epoch = weft_i_arrival_epoch(atomic_load_explicit(
                         &group->board->row[group->rank].arrival, memory_order_relaxed)) +
                     1;
    int *note = (int *)group->board->row[group->rank].note[epoch & 1];
    note[0] = group->rank;
    note[1] = 0;
    weft_i_signal_come(&point, digest, meeting);
    return point;
}

/* Joins.  One comes to the first exchange where it lives, and nowhere else, goes on from it or not, and dies. */
static weft_group *join_with_the_dying(int rank, const scene *s, bool goes_on)
{
    weft_group *world = join(rank, s);
    if (!world || weft_group_barrier(world, WEFT_DEFAULT) < 0)
        return NULL;
    if (rank != s->dying)
        return world;
    weft_i_meeting meeting = {.culprit = -1};
    weft_i_point point = come_here(world, &meeting);
    if (goes_on && weft_i_signal_await(&point, LIMIT_MS, &meeting) < 0)
        return NULL;
    raise(SIGKILL);
    return NULL;
}

/* Who leaves is not waited for, and cannot tell what was shown on its host. */
static int leave_with_all(int rank, const scene *s, weft_group *world)
{
    crew->go++;
    while (crew->go < s->size - 1)
        crew_rest(1);
    return leave(rank, world);
}

/* Those who saw it come must not wait for those who gave up. */
static int overtaken(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join_with_the_dying(rank, s, false);
    CREW(world, "%s", weft_last_error());
    while (rank / s->per_host == s->dying / s->per_host && crew->go < s->size - s->per_host)
        crew_rest(1); /* comes when they have given up */
    weft_status status = exchange(world, 0, WEFT_DEFAULT);
    CREW(status == WEFT_ERR_PEER_DEAD, "%d: %s", (int)status, weft_last_error());
    CREW(strstr(weft_last_error(), "rank 3 ("), "%s", weft_last_error());
    return leave_with_all(rank, s, world);
}

TEST(test_hosts_meet_overtaken)
{
    RUN("2 hosts of 2", 4, 2, 3, overtaken);
    RUN("3 hosts of 2", 6, 2, 3, overtaken);
}

/* The first one that has gone on is dead: the others learn from its host what it had shown. */
static int gone_on(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join_with_the_dying(rank, s, true);
    CREW(world, "%s", weft_last_error());
    OK(exchange(world, 0, WEFT_DEFAULT));
    weft_status status = exchange(world, 1, WEFT_DEFAULT);
    CREW(status == WEFT_ERR_PEER_DEAD, "%d: %s", (int)status, weft_last_error());
    return leave_with_all(rank, s, world);
}

TEST(test_hosts_meet_gone_on)
{
    RUN("2 hosts of 2", 4, 2, 2, gone_on);
    RUN("3 hosts of 2", 6, 2, 2, gone_on);
}

/* All have seen it come: who is late is waited for, although it is dead by then. */
static int patient(int rank, void *arg)
{
    enum { LATE_MS = 100 };
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    /* Our own word. */
    uint32_t epoch = weft_i_arrival_epoch(
        atomic_load_explicit(&world->board->row[rank].arrival, memory_order_relaxed));
    if (rank == s->dying) {
        weft_i_meeting meeting = {.culprit = -1};
        weft_i_point point = come_here(world, &meeting);
        world->hosts->shown[WEFT_I_HOSTS_BOARD][meeting.epoch & 1] = sizeof(int[2]);
        weft_i_hosts_send_arrival(&point, &meeting);
        while (crew->go < s->size - 1)
            crew_rest(1);
        raise(SIGKILL);
    }
    while (!weft_i_hosts_has_come(world, WEFT_I_HOSTS_BOARD, s->dying, epoch + 1))
        crew_rest(1);
    crew->go++;
    if (rank == s->size - 1) {
        while (weft_i_world_fate(world->world, s->dying) != WEFT_ERR_PEER_DEAD)
            crew_rest(1);
        crew_rest(LATE_MS); /* the others wait, and know of the death too */
    }
    OK(exchange(world, 0, WEFT_DEFAULT));
    CREW(exchange(world, 1, WEFT_DEFAULT) == WEFT_ERR_PEER_DEAD, "%s", weft_last_error());
    crew->given_up++;
    while (crew->given_up < s->size - 1)
        crew_rest(1);
    return leave(rank, world);
}

TEST(test_hosts_meet_patient)
{
    RUN("2 hosts of 2", 4, 2, 1, patient);
    RUN("3 hosts of 2", 6, 2, 2, patient);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

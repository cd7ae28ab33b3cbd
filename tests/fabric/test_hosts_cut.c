/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/lifeline_hosts.c, fabric/world/lifeline_link.c, fabric/world/lifeline_news.c */
/*
 * Two hosts in network namespaces, and what becomes of the cable between them: taken down, silent in one
 * direction, or only broken for a moment.  Both sides name the other host and its ranks in time, go on alone,
 * and end.
 */
#include "crew.h"
#include "hosts.h"
#include "net.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/hosts.h"

enum { SILENCE_MS = 1000, PATIENT_MS = 5000, LIMIT_MS = 60000, SOON_MS = 20000, SHORT_MS = 300 };
enum { TAKEN_DOWN, ONE_WAY, FOR_A_MOMENT };

typedef struct scene {
    int way, sizes[NET_HOSTS];
} scene;

#define OK(call_) CREW((call_) == WEFT_OK, "%s", weft_last_error())

static weft_group *join(int host, int index, int rank, int size, const scene *s)
{
    char text[32];
    setenv("WEFT_DEBUG", "NONE", 0);
    hosts_set_number("WEFT_SILENCE", s->way == FOR_A_MOMENT ? PATIENT_MS : SILENCE_MS);
    hosts_use_ucx();
    snprintf(text, sizeof text, "cable%d", host);
    setenv("UCX_NET_DEVICES", text, 1);
    hosts_pretend(rank, size, 1, 29500);
    hosts_set_number("LOCAL_RANK", index);
    hosts_set_number("LOCAL_WORLD_SIZE", s->sizes[host]);
    snprintf(text, sizeof text, "host%d", host);
    setenv("WEFT_HOST_ID", text, 1);
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    setenv("WEFT_TOKEN", hosts_token, 1);
    weft_group *world = weft_init(NULL);
    if (world)
        weft_group_set_timeout(world, LIMIT_MS);
    return world;
}

/* By the first rank of host 0. */
static int cut(const scene *s)
{
    switch (s->way) {
    case TAKEN_DOWN:
        return net_do("ip link set cable0 down");
    case ONE_WAY: /* what is sent goes to nobody; what comes is heard */
        return net_do("ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 nud permanent dev "
                      "cable0");
    default:
        return net_do("ip link set cable0 down && sleep 0.%d && ip link set cable0 up", SHORT_MS);
    }
}

/* "host1: rank 2-3, silent for 1.0 s".  Where only one direction is cut, the other side may have found
 * out first, and its word still gets through: "host1: has taken this host for dead (ranks 0-1, ...". */
static int check_told(const scene *s, int host, int rank, weft_status status)
{
    char name[64], ranks[64], taken[96];
    int other = !host, first = other ? s->sizes[0] : 0, last = first + s->sizes[other] - 1;
    if (s->way == ONE_WAY && status == WEFT_ERR_PEER_LEFT)
        return 0; /* a neighbour that was told first, and was left out */
    CREW(status == WEFT_ERR_PEER_DEAD, "%s: %s", weft_status_name(status), weft_last_error());
    snprintf(name, sizeof name, "(on host host%d: rank", other);
    if (last > first)
        snprintf(ranks, sizeof ranks, "ranks %d-%d, silent for ", first, last);
    else
        snprintf(ranks, sizeof ranks, "rank %d, silent for ", first);
    snprintf(taken, sizeof taken, "(on host host%d: has taken this host for dead", other);
    bool theirs = s->way == ONE_WAY && strstr(weft_last_error(), taken);
    CREW(theirs || (strstr(weft_last_error(), name) && strstr(weft_last_error(), ranks)), "%s",
         weft_last_error());
    return 0;
}

static int finish_in_time(weft_group *world, int rank)
{
    int64_t began = WEFT_OS->clock_ns();
    weft_clear_error();
    weft_finish(world);
    int64_t finish_ms = (WEFT_OS->clock_ns() - began) / 1000000;
    CREW(finish_ms < SOON_MS, "weft_finish took %lld ms", (long long)finish_ms);
    crew->rank[rank].done = 1;
    return 0;
}

static int part(int host, int index, int rank, int size, void *arg)
{
    const scene *s = arg;
    weft_group *world = join(host, index, rank, size, s);
    CREW(world, "%s", weft_last_error());
    CREW(world->hosts && world->world->lifeline, "%s", world->world->remote_why);
    for (int i = 0; i < 20; i++)
        OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0) {
        crew->when = WEFT_OS->clock_ns();
        CREW(!cut(s), "cannot cut the cable");
    }
    weft_status status = WEFT_OK;
    int64_t end = weft_i_os_deadline(4 * SILENCE_MS);
    uint64_t go_on = 1;
    while (status == WEFT_OK && go_on && (s->way != FOR_A_MOMENT || WEFT_OS->clock_ns() < end))
        status = weft_group_barrier(world, s->way == FOR_A_MOMENT ? SOON_MS : WEFT_DEFAULT);
    int64_t told_ms = (WEFT_OS->clock_ns() - crew->when) / 1000000;
    if (s->way == FOR_A_MOMENT) {
        CREW(status == WEFT_OK || status == WEFT_ERR_PEER_LEFT, "%s", weft_last_error());
        weft_clear_error();
        weft_finish(world);
        crew->rank[rank].done = 1;
        return 0;
    }
    if (check_told(s, host, rank, status))
        return 1;
    CREW(told_ms < SOON_MS, "told after %lld ms", (long long)told_ms);
    crew->rank[rank].slowest_ms = told_ms;
    weft_clear_error();
    weft_group *rest = weft_group_shrink(world);
    /* The side that is heard may have decided for both. */
    if (!rest && s->way == ONE_WAY && strstr(weft_last_error(), "went on without it"))
        return finish_in_time(world, rank);
    CREW(rest, "%s", weft_last_error());
    CREW(weft_size(rest) == s->sizes[host], "%d left", weft_size(rest));
    OK(weft_group_barrier(rest, WEFT_DEFAULT));
    return finish_in_time(world, rank);
}

static void run(const char *what, int way, int first, int second)
{
    char reason[192];
    scene s = {way, {first, second}};
    hosts_use_ucx();
    if (weft_i_remote_engine()->probe(reason, sizeof reason) <= 0)
        SKIP("%s", reason);
    net_run(what, s.sizes, part, &s);
    long long least = LIMIT_MS, most = 0;
    for (int rank = 0; rank < first + second; rank++) {
        least = crew->rank[rank].slowest_ms < least ? crew->rank[rank].slowest_ms : least;
        most = crew->rank[rank].slowest_ms > most ? crew->rank[rank].slowest_ms : most;
    }
    if (way != FOR_A_MOMENT)
        printf("# %s, %d + %d ranks, WEFT_SILENCE %d: told after %lld to %lld ms\n", what, first,
               second, SILENCE_MS, least, most);
}

TEST(test_hosts_cut_down)
{
    run("the cable taken down", TAKEN_DOWN, 1, 1);
    run("the cable taken down", TAKEN_DOWN, 2, 2);
}

TEST(test_hosts_cut_one_way)
{
    run("silence in one direction", ONE_WAY, 1, 1);
    run("silence in one direction", ONE_WAY, 2, 1);
}

/* What is lost for less than WEFT_SILENCE is sent again, and nobody is taken for dead. */
TEST(test_hosts_cut_for_a_moment)
{
    run("the cable taken down for a moment", FOR_A_MOMENT, 2, 2);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

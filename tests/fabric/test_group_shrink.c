/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_shrink.c */
/*
 * Going on without the dead: ranks killed before, during and after a shrink, on one host and on
 * two; and groups, tags and meshes between hosts, where there is no board and everything goes
 * through the store.
 */
#include "crew.h"
#include "hosts.h"

static void die(void)
{
    kill(getpid(), SIGKILL);
}

/* The group has exactly these world ranks and works. */
static int check_members(int rank, weft_group *group, const int *ranks, int count)
{
    CREW(group, "%s", weft_last_error());
    CREW(weft_size(group) == count, "%d members", weft_size(group));
    for (int i = 0; i < count; i++)
        CREW(weft_group_world_rank(group, i) == ranks[i], "member %d is %d", i,
             weft_group_world_rank(group, i));
    CREW(weft_group_barrier(group, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    return 0;
}

static int done(int rank, weft_group *world)
{
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

/* The victim dies in a collective; the others see it and shrink, twice. */
static int killed_crew(int rank, void *arg)
{
    int victim = *(int *)arg, rest[3], count = 0;
    for (int i = 0; i < 4; i++)
        if (i != victim)
            rest[count++] = i;
    weft_group *world = weft_init(NULL);
    CREW(world, "%s", weft_last_error());
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1000));
    CREW(weft_all_reduce_into(x, x, WEFT_SUM, world) == WEFT_OK, "%s", weft_last_error());
    if (rank == victim)
        die();
    weft_status status = weft_all_reduce_into(x, x, WEFT_SUM, world);
    CREW(status == WEFT_ERR_PEER_DEAD, "%s", weft_last_error());
    weft_group *group = weft_group_shrink(world);
    if (check_members(rank, group, rest, 3))
        return 1;
    x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1000));
    CREW(weft_all_reduce_into(x, x, WEFT_SUM, group) == WEFT_OK, "%s", weft_last_error());
    CREW(weft_item(x, 999) == 3, "sum %g", weft_item(x, 999));
    CREW(!strcmp(weft_group_description(group), "shrunk"), "%s", weft_group_description(group));
    weft_group_revoke(group);
    return check_members(rank, weft_group_shrink(group), rest, 3) || done(rank, world);
}

TEST(test_shrink_killed)
{
    for (int victim = 0; victim < 4; victim++)
        crew_run("killed", 4, killed_crew, &victim, victim);
}

/* The victim dies while the others are shrinking, at any moment; they agree with or without it. */
static int dying_crew(int rank, void *arg)
{
    int delay_us = *(int *)arg;
    weft_group *world = weft_init(NULL);
    CREW(world, "%s", weft_last_error());
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    if (rank == 1) {
        struct timespec rest = {0, delay_us * 1000L};
        nanosleep(&rest, NULL);
        if (delay_us % 2)
            weft_group_shrink(world);
        die();
    }
    weft_group *group = weft_group_shrink(world);
    CREW(group, "%s", weft_last_error());
    while (weft_size(group) == 4) { /* it was still there */
        while (weft_group_barrier(group, 20) == WEFT_ERR_TIMEOUT)
            continue;
        CREW(weft_last_status() == WEFT_ERR_PEER_DEAD, "%s", weft_last_error());
        group = weft_group_shrink(group);
        CREW(group, "%s", weft_last_error());
    }
    int rest[] = {0, 2, 3};
    return check_members(rank, group, rest, 3) || done(rank, world);
}

TEST(test_shrink_dying)
{
    static const int delays[] = {0, 1, 150, 201, 400, 801, 1600, 3001};
    for (size_t i = 0; i < sizeof delays / sizeof *delays; i++)
        crew_run("dying", 4, dying_crew, (void *)(uintptr_t)&delays[i], 1);
}

/* ---- two hosts on one machine ---- */

/* Calls to which nobody else comes end at their limit and name all who are missing, and nobody
 * else.  A call has only moments beyond its limit to ask the store for them.  On a machine so busy
 * that the store's server gets no core meanwhile, the message says that; `named` is false then. */
static int wait_alone(int rank, weft_group *group, bool *named)
{
    CREW(weft_limit_open(200) == WEFT_OK, "limit");
    CREW(!weft_group_shrink(group), "made alone");
    CREW(weft_last_status() == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
    CREW(weft_group_barrier(group, WEFT_DEFAULT) == WEFT_ERR_TIMEOUT, "barrier");
    const char *text = weft_last_error();
    *named = strstr(text, "rank 0 (") && strstr(text, "rank 2 (");
    CREW(*named || strstr(text, "rank 0, which serves the store, does not answer"), "%s", text);
    CREW(!strstr(text, "rank 3"), "%s", text);
    CREW(weft_limit_close() == WEFT_OK, "limit");
    return 0;
}

static int hosts_killed_crew(int rank, void *arg)
{
    enum { TRIES = 20 };
    int rest[] = {0, 1, 2};
    weft_group *world = hosts_join(rank, 4, 2, *(int *)arg);
    CREW(world, "%s", weft_last_error());
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    if (rank == 3)
        die();
    weft_group *group = weft_group_shrink(world); /* rank 2 alone can see it */
    if (check_members(rank, group, rest, 3) ||
        check_members(rank, weft_group_shrink(group), rest, 3))
        return 1;
    bool named = rank != 1;
    for (int i = 0; i < TRIES && !named; i++)
        if (wait_alone(rank, group, &named))
            return 1;
    CREW(named, "not in %d tries: %s", TRIES, weft_last_error());
    crew->go += rank == 1;
    while (!crew->go) /* who had left would not be waited for */
        crew_rest(1);
    return done(rank, world);
}

TEST(test_shrink_hosts)
{
    int port = free_port();
    if (!port)
        SKIP("no port is free here");
    crew_run("hosts", 4, hosts_killed_crew, &port, 3);
}

static int hosts_groups_crew(int rank, void *arg)
{
    int down[] = {rank % 2, rank % 2 + 2}, all[] = {0, 1, 2, 3};
    weft_group *world = hosts_join(rank, 4, 2, *(int *)arg);
    CREW(world, "%s", weft_last_error());
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.tag = "t";
    weft_group *tagged = weft_group_new_with(world, down, 2, &opts);
    CREW(tagged && weft_group_find_or_new(world, "t", down, 2, 2) == tagged, "%s",
         weft_last_error());
    if (check_members(rank, tagged, down, 2))
        return 1;
    opts.tag = NULL;
    opts.name = rank == 3 ? "b" : "a";
    CREW(!weft_group_new_with(world, NULL, 0, &opts), "made of two names");
    CREW(weft_last_status() == WEFT_ERR_MISMATCH, "%s", weft_last_error());
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "dp,tp");
    CREW(mesh, "%s", weft_last_error());
    if (check_members(rank, weft_mesh_group(mesh, 0), down, 2) ||
        check_members(rank, weft_mesh_group(mesh, 1), all + rank / 2 * 2, 2))
        return 1;
    weft_mesh *again = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "x,y");
    CREW(again && weft_mesh_group(again, 0) == weft_mesh_group(mesh, 0), "%s", weft_last_error());
    CREW(!weft_mesh_init(world, WEFT_CPU, rank ? WEFT_SHAPE(2, 2) : WEFT_SHAPE(4), NULL), "differ");
    CREW(weft_last_status() == WEFT_ERR_MISMATCH, "%s", weft_last_error());
    weft_group *flat = weft_mesh_group(weft_mesh_flatten(mesh, NULL), 0);
    CREW(flat == world, "%s", weft_last_error());
    weft_rank_list lists[] = {{all, 3}, {all + 3, 1}};
    weft_group *part = weft_group_split_lists(world, lists, 2, NULL);
    if (check_members(rank, part, rank < 3 ? all : all + 3, rank < 3 ? 3 : 1))
        return 1;
    if (rank == 0) /* those who wait for it are told */
        CREW(weft_group_destroy(part) == WEFT_OK, "%s", weft_last_error());
    else if (rank < 3)
        CREW(weft_group_barrier(part, WEFT_DEFAULT) == WEFT_ERR_PEER_LEFT, "%s", weft_last_error());
    return done(rank, world);
}

TEST(test_shrink_hosts_groups)
{
    int port = free_port();
    if (!port)
        SKIP("no port is free here");
    crew_run("groups between hosts", 4, hosts_groups_crew, &port, -1);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

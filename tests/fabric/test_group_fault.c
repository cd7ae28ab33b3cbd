/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_new.c, fabric/group/group_split.c, fabric/group/registry.c,
 * fabric/mesh/mesh_new.c */
/*
 * Groups, meshes and ranks of a fake world that is short of memory: whichever allocation fails, the
 * call gives nothing and says so, the same call works afterwards, and what was there is as it was.
 */
#include "fault.h"
#include "harness.h"

#include "base/report/status.h"

#include <weft/weft.h>

enum { ME = 3, WORLD = 8 };

static weft_group *world;
static weft_mesh *mesh, *rows, *columns; /* 2 x 4 of the world, and its slices */
static const int some[] = {1, 3, 5}, line[] = {0, 1, 2, 3};
static weft_expansion expansion;

static weft_status of(const void *object)
{
    return object ? WEFT_OK : weft_last_status();
}

static weft_status wrong(bool is)
{
    if (is)
        FAIL("a wrong result");
    return WEFT_OK;
}

static weft_status listed(void)
{
    weft_group *g = weft_group_new(world, some, 3, NULL);
    WEFT_TRY(of(g));
    return wrong(weft_size(g) != 3 || weft_rank(g) != 1 || weft_group_world_rank(g, 2) != 5);
}

static weft_status tagged(void)
{
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.tag = "t";
    opts.description = "of three";
    opts.timeout_ms = 77;
    opts.sorted = 1;
    weft_group *g = weft_group_new_with(world, some, 3, &opts);
    WEFT_TRY(of(g));
    return wrong(strcmp(weft_group_tag(g), "t") || strcmp(weft_group_description(g), "of three") ||
                 weft_group_timeout(g) != 77);
}

static weft_status blocks(void)
{
    weft_group *g = weft_group_new_blocks(world, 4, NULL);
    WEFT_TRY(of(g));
    return wrong(weft_size(g) != 4 || weft_rank(g) != 3);
}

static weft_status lists(void)
{
    weft_rank_list all[] = {{some, 3}, {line, 1}};
    weft_group *g = weft_group_new_lists(world, all, 2, NULL);
    WEFT_TRY(of(g));
    return wrong(weft_size(g) != 3);
}

static weft_status split(void)
{
    weft_group *g = weft_group_split(world, 0, 0);
    WEFT_TRY(of(g));
    return wrong(weft_group_world_rank(g, weft_rank(g)) != ME);
}

static weft_status split_lists(void)
{
    weft_rank_list all[] = {{some, 3}, {line, 1}};
    weft_group *g = weft_group_split_lists(world, all, 2, NULL);
    WEFT_TRY(of(g));
    return wrong(weft_size(g) != 3);
}

static weft_status found_or_made(void)
{
    weft_group *g = weft_group_find_or_new(world, "u", some, 3, 3);
    WEFT_TRY(of(g));
    return wrong(weft_size(g) != 3);
}

static weft_status stand_in(void)
{
    weft_group *g = weft_group_stand_in("model", 5);
    WEFT_TRY(of(g));
    return wrong(weft_size(g) != 5 || strcmp(weft_group_name(g), "model"));
}

static weft_status expand_rows(void)
{
    weft_rank_list all[] = {{line, 4}, {(const int[]){4, 5, 6, 7}, 4}};
    WEFT_TRY(weft_ranks_expand(world, weft_ranks_rows(all, 2), NULL, &expansion));
    weft_expansion_clear(&expansion);
    return WEFT_OK;
}

static weft_status expand_mesh(void)
{
    WEFT_TRY(weft_ranks_expand(world, weft_ranks_mesh_dim(mesh, 1), NULL, &expansion));
    weft_expansion_clear(&expansion);
    return WEFT_OK;
}

static weft_status expand_group(void)
{
    WEFT_TRY(weft_ranks_expand(world, weft_ranks_group(world), NULL, &expansion));
    weft_expansion_clear(&expansion);
    return WEFT_OK;
}

static weft_status new_mesh(void)
{
    weft_mesh *m = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2, 2), "x,y,z");
    WEFT_TRY(of(m));
    int at[3];
    fault_disarm(); /* looking at it is not part of the call */
    CHECK_OK(weft_mesh_coordinate(m, at));
    return wrong(at[0] || at[1] != 1 || at[2] != 1 || weft_size(weft_mesh_group(m, 2)) != 2);
}

static weft_status chosen_mesh(void)
{
    weft_mesh *m = weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(3), some, NULL);
    WEFT_TRY(of(m));
    return wrong(weft_mesh_rank(m) != ME || weft_mesh_size(m, 0) != 3);
}

static weft_status mesh_of_groups(void)
{
    weft_mesh *m = weft_mesh_from_groups(&world, 1, WEFT_CPU, WEFT_SHAPE(8), NULL, NULL);
    WEFT_TRY(of(m));
    return wrong(weft_mesh_size(m, 0) != WORLD);
}

static weft_status slice(void)
{
    weft_mesh *m = weft_mesh_slice(mesh, "b");
    WEFT_TRY(of(m));
    return wrong(weft_mesh_size(m, 0) != 4 || weft_mesh_ranks(m)[3] != 3);
}

static weft_status flatten(void)
{
    weft_mesh *m = weft_mesh_flatten(mesh, "all");
    WEFT_TRY(of(m));
    return wrong(weft_mesh_size(m, 0) != WORLD);
}

static weft_status unflatten(void)
{
    weft_mesh *m = weft_mesh_unflatten(mesh, 1, WEFT_SHAPE(2, 2), "p,q");
    WEFT_TRY(of(m));
    return wrong(weft_mesh_ndim(m) != 3 || weft_mesh_size(m, 2) != 2);
}

static weft_status concatenate(void)
{
    weft_mesh *both[] = {rows, columns}, *m = weft_mesh_concatenate(both, 2);
    WEFT_TRY(of(m));
    return wrong(weft_mesh_ndim(m) != 2);
}

static weft_status event(void)
{
    int fd;
    return weft_group_event_fd(world, &fd);
}

static weft_status barrier(void)
{
    return weft_group_barrier(world, 100);
}

static const struct {
    const char *name;
    weft_status (*act)(void);
    int least; /* allocations that may fail */
} acts[] = {{"group", listed, 3},
            {"tagged group", tagged, 3},
            {"blocks", blocks, 3},
            {"lists", lists, 3},
            {"split", split, 3},
            {"split lists", split_lists, 3},
            {"find or new", found_or_made, 3},
            {"stand-in", stand_in, 1},
            {"expand rows", expand_rows, 1},
            {"expand a mesh", expand_mesh, 1},
            {"expand a group", expand_group, 1},
            {"mesh", new_mesh, 6},
            {"chosen mesh", chosen_mesh, 5},
            {"mesh of groups", mesh_of_groups, 4},
            {"slice", slice, 2},
            {"flatten", flatten, 2},
            {"unflatten", unflatten, 3},
            {"concatenate", concatenate, 2},
            {"event", event, 0},
            {"barrier", barrier, 0}};

static void open_world(void)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(ME, WORLD);
    CHECK_OK(weft_scope_open());
    world = weft_fake_init(&opts);
    mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a,b");
    rows = weft_mesh_slice(mesh, "a");
    columns = weft_mesh_slice(mesh, "b");
    CHECK(world && mesh && rows && columns);
}

/* How many allocations the act makes: all of them have failed once. */
static int walk(size_t i)
{
    for (int n = 1; n < 200; n++) {
        open_world();
        int groups = weft_group_count(world);
        CHECK_OK(weft_scope_open());
        fault_arm(n);
        weft_status status = acts[i].act();
        bool fired = fault_disarm();
        if (!fired)
            CHECK_OK(status);
        if (status < 0 && (status != weft_last_status() || !weft_last_error()[0] ||
                           (status != WEFT_ERR_NO_MEMORY && status != WEFT_ERR_LIMIT &&
                            status != WEFT_ERR_NO_SPACE && status != WEFT_ERR_IO)))
            FAIL("%s, call %d (%s): %d, \"%s\"", acts[i].name, n, fault_name, status,
                 weft_last_error());
        weft_clear_error();
        CHECK_OK(weft_scope_close());
        if (status < 0) {
            CHECK_INT(weft_group_count(world), groups); /* nothing was left behind */
            status = acts[i].act();
            if (status < 0)
                FAIL("%s does not work after call %d (%s) failed: %s", acts[i].name, n, fault_name,
                     weft_last_error());
        }
        CHECK_OK(weft_scope_close());
        if (!fired)
            return n - 1;
    }
    FAIL("%s never succeeds", acts[i].name);
    return 0;
}

TEST(test_group_fault_every_allocation)
{
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        int made = walk(i);
        if (made < acts[i].least)
            FAIL("%s: only %d calls were made to fail", acts[i].name, made);
    }
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

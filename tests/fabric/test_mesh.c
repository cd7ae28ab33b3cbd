/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/mesh/mesh.c, fabric/mesh/mesh_new.c, fabric/mesh/mesh_slice.c,
 * fabric/mesh/mesh_text.c */
/* Device meshes: making, asking, slicing, flattening, joining, meshes that differ, every error. */
#include "fault.h"
#include "jobs.h"

#include "fabric/group/hosts.h"

#include <weft/weft.h>

static const int all[] = {0, 1, 2, 3};

static weft_mesh *square(weft_group *world)
{
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "dp,tp");
    if (!mesh)
        FAIL("mesh: %s", weft_last_error());
    return mesh;
}

/* The group has exactly these world ranks, and works. */
static void check_group(weft_group *group, int a, int b)
{
    CHECK(group && weft_size(group) == 2);
    CHECK_INT(weft_group_world_rank(group, 0), a);
    CHECK_INT(weft_group_world_rank(group, 1), b);
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
}

static void check_text(const weft_mesh *mesh, const char *expected)
{
    char text[200];
    int length = weft_mesh_text(mesh, text, sizeof text);
    if (strcmp(text, expected) || length != (int)strlen(expected))
        FAIL("\"%s\", expected \"%s\"", text, expected);
}

static void check_null(const void *made, weft_status status, const char *words)
{
    CHECK(!made);
    CHECK_STATUS(weft_last_status(), status);
    CHECK_CONTAINS(weft_last_error(), words);
    weft_clear_error();
}

RANKS_TEST(test_mesh_square, 4)
{
    weft_group *world = join(0);
    weft_mesh *mesh = square(world);
    int at[2];
    CHECK_INT(weft_mesh_ndim(mesh), 2);
    CHECK_INT(weft_mesh_size(mesh, 0), 2);
    CHECK_INT(weft_mesh_size(mesh, WEFT_MESH_ONLY), 4);
    CHECK(weft_mesh_shape(mesh).ndim == 2 && weft_mesh_shape(mesh).dim[1] == 2);
    CHECK(!memcmp(weft_mesh_ranks(mesh), all, sizeof all));
    CHECK(weft_mesh_device(mesh) == WEFT_CPU);
    CHECK(!strcmp(weft_mesh_dim_name(mesh, 1), "tp"));
    CHECK_INT(weft_mesh_dim(mesh, "tp"), 1);
    CHECK_INT(weft_mesh_rank(mesh), rank);
    CHECK(weft_mesh_contains(mesh));
    CHECK_OK(weft_mesh_coordinate(mesh, at));
    CHECK(at[0] == rank / 2 && at[1] == rank % 2);
    CHECK_INT(weft_mesh_local_rank(mesh, 0), rank / 2);
    check_group(weft_mesh_group(mesh, 0), rank % 2, rank % 2 + 2);
    check_group(weft_mesh_group_named(mesh, "tp"), rank / 2 * 2, rank / 2 * 2 + 1);
    CHECK(!strcmp(weft_group_description(weft_mesh_group(mesh, 0)), "mesh_dp"));
    check_text(mesh, "mesh of 2 x 2 on cpu (dp, tp): [[0, 1], [2, 3]]");
    finish(world);
}

/* Groups are made once: the world serves a dimension that is the world, and the groups of a mesh
 * serve the next one as long as all members have them. */
RANKS_TEST(test_mesh_reuses, 4)
{
    weft_group *world = join(0);
    weft_mesh *line = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(4), NULL);
    CHECK(line && weft_mesh_group(line, WEFT_MESH_ONLY) == world);
    CHECK_INT(weft_group_count(world), 1);
    int back[] = {3, 2, 1, 0};
    weft_mesh *turned = weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(4), back, NULL);
    CHECK(turned && weft_mesh_group(turned, 0) != world); /* another order is another group */
    CHECK_INT(weft_mesh_local_rank(turned, 0), 3 - rank);
    CHECK_INT(weft_group_count(world), 2);
    weft_mesh *mesh = square(world);
    CHECK_INT(weft_group_count(world), 4);
    weft_mesh *again = weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2, 2), all, NULL);
    CHECK(again && weft_mesh_group(again, 0) == weft_mesh_group(mesh, 0));
    CHECK(weft_mesh_group(again, 1) == weft_mesh_group(mesh, 1));
    CHECK_INT(weft_group_count(world), 4);
    CHECK(!weft_mesh_equal(mesh, again)); /* its names differ */
    CHECK(weft_mesh_equal(mesh, square(world)));
    CHECK(weft_mesh_hash(mesh) == weft_mesh_hash(square(world)));
    /* Rank 1 has let go of its groups, so those that were with it are made anew. */
    weft_scope_open();
    weft_mesh *other = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(1, 2, 2), NULL);
    CHECK(other && weft_mesh_group(other, 1) == weft_mesh_group(mesh, 0));
    CHECK(weft_size(weft_mesh_group(other, 0)) == 1);
    CHECK_OK(weft_group_barrier(weft_mesh_group(other, 2), WEFT_DEFAULT));
    weft_scope_close();
    if (rank == 1)
        CHECK_OK(weft_group_destroy(weft_mesh_group(mesh, 0)));
    weft_mesh *third = square(world);
    CHECK((weft_mesh_group(third, 0) == weft_mesh_group(mesh, 0)) == (rank % 2 == 0));
    check_group(weft_mesh_group(third, 0), rank % 2, rank % 2 + 2);
    finish(world);
}

RANKS_TEST(test_mesh_outside, 4)
{
    weft_group *world = join(0);
    int some[] = {3, 1}, at[1];
    weft_mesh *mesh = weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2), some, "x");
    CHECK(mesh);
    CHECK(weft_mesh_contains(mesh) == (rank == 1 || rank == 3));
    check_text(mesh, "mesh of 2 on cpu (x): [3, 1]");
    if (weft_mesh_contains(mesh)) {
        CHECK_INT(weft_mesh_local_rank(mesh, 0), rank == 1);
        check_group(weft_mesh_group(mesh, 0), 3, 1);
    } else {
        CHECK_STATUS(weft_mesh_coordinate(mesh, at), WEFT_ERR_STATE);
        CHECK_INT(weft_mesh_local_rank(mesh, 0), -1);
        check_null(weft_mesh_group(mesh, 0), WEFT_ERR_STATE, "is not in the mesh");
        check_null(weft_group_of(world, weft_ranks_mesh(mesh), ""), WEFT_ERR_STATE, "is not in");
    }
    CHECK(weft_mesh_slice(mesh, "x"));
    finish(world);
}

RANKS_TEST(test_mesh_slices, 4)
{
    weft_group *world = join(0);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 1, 2), "a,b,c");
    CHECK(mesh);
    weft_mesh *c = weft_mesh_slice(mesh, "c"), *ab = weft_mesh_slice(mesh, "a,b");
    CHECK(c && ab && weft_mesh_ndim(ab) == 2);
    CHECK_INT(weft_mesh_ranks(c)[1], rank / 2 * 2 + 1);
    CHECK_INT(weft_mesh_ranks(ab)[1], rank % 2 + 2);
    CHECK(weft_mesh_group(c, WEFT_MESH_ONLY) == weft_mesh_group(mesh, 2));
    CHECK_INT(weft_mesh_local_rank(c, WEFT_MESH_ONLY), rank % 2);
    CHECK(weft_mesh_equal(weft_mesh_slice(mesh, "a,b,c"), mesh));
    weft_mesh *turned = weft_mesh_slice(mesh, "c,a"); /* any order */
    CHECK(turned && weft_mesh_ranks(turned)[1] == 2 && weft_mesh_local_rank(turned, 0) == rank % 2);
    weft_mesh *parts[] = {c, ab};
    weft_mesh *joined = weft_mesh_concatenate(parts, 2);
    CHECK(joined && weft_mesh_ndim(joined) == 3);
    check_text(joined, "mesh of 2 x 2 x 1 on cpu (c, a, b): [[[0], [2]], [[1], [3]]]");
    CHECK(weft_mesh_group(joined, 1) == weft_mesh_group(mesh, 0));
    check_null(weft_mesh_slice(mesh, "a,d"), WEFT_ERR_NOT_FOUND, "no dimension \"d\"");
    check_null(weft_mesh_slice(mesh, "a,a"), WEFT_ERR_INVALID_ARG, "overlap");
    check_null(weft_mesh_slice(mesh, "a,"), WEFT_ERR_INVALID_ARG, "1 to 31 characters");
    check_null(weft_mesh_slice(mesh, NULL), WEFT_ERR_INVALID_ARG, "NULL");
    weft_mesh *overlapping[] = {c, turned}, *strangers[] = {c, square(world)};
    check_null(weft_mesh_concatenate(overlapping, 2), WEFT_ERR_INVALID_ARG, "overlap");
    check_null(weft_mesh_concatenate(strangers, 2), WEFT_ERR_INVALID_ARG, "not slices of one");
    check_null(weft_mesh_concatenate(parts, 0), WEFT_ERR_INVALID_ARG, "no meshes");
    weft_mesh *nameless = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(4), NULL);
    check_null(weft_mesh_slice(nameless, "a"), WEFT_ERR_STATE, "without names");
    finish(world);
}

RANKS_TEST(test_mesh_flatten, 4)
{
    weft_group *world = join(0);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 1, 2), "a,b,c");
    weft_mesh *flat = weft_mesh_flatten(weft_mesh_slice(mesh, "b,c"), NULL);
    CHECK(flat);
    CHECK(!strcmp(weft_mesh_dim_name(flat, 0), "b_c"));
    check_group(weft_mesh_group(flat, 0), rank / 2 * 2, rank / 2 * 2 + 1);
    int groups = weft_group_count(world);
    weft_mesh *again = weft_mesh_flatten(weft_mesh_slice(mesh, "b,c"), "b_c");
    CHECK(again && weft_mesh_group(again, 0) == weft_mesh_group(flat, 0));
    CHECK_INT(weft_group_count(world), groups);
    CHECK(weft_mesh_group_named(mesh, "b_c") == weft_mesh_group(flat, 0));
    CHECK(weft_mesh_equal(weft_mesh_slice(mesh, "b_c"), flat));
    weft_mesh *both = weft_mesh_slice(mesh, "a,b_c");
    CHECK(both && !memcmp(weft_mesh_ranks(both), all, sizeof all));
    weft_mesh *whole = weft_mesh_flatten(mesh, "world");
    CHECK(whole && weft_mesh_group(whole, 0) == world);
    weft_mesh *own = weft_mesh_flatten(weft_mesh_slice(mesh, "a"), "a");
    CHECK(own && weft_mesh_group(own, 0) == weft_mesh_group(mesh, 0));
    check_null(weft_mesh_flatten(mesh, "a"), WEFT_ERR_EXISTS, "has a dimension \"a\" already");
    check_null(weft_mesh_flatten(mesh, "b_c"), WEFT_ERR_EXISTS, "another flattened part");
    check_null(weft_mesh_flatten(mesh, "x,y"), WEFT_ERR_INVALID_ARG, "cannot be");
    check_null(weft_mesh_slice(mesh, "c,b_c"), WEFT_ERR_INVALID_ARG, "overlap");
    weft_mesh *nameless = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), NULL);
    check_null(weft_mesh_flatten(nameless, NULL), WEFT_ERR_INVALID_ARG, "needs one");
    finish(world);
}

RANKS_TEST(test_mesh_unflatten, 4)
{
    weft_group *world = join(0);
    weft_mesh *line = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(4), "x");
    weft_mesh *mesh = weft_mesh_unflatten(line, 0, WEFT_SHAPE(2, 2), "a,b");
    CHECK(mesh);
    check_text(mesh, "mesh of 2 x 2 on cpu (a, b): [[0, 1], [2, 3]]");
    check_group(weft_mesh_group_named(mesh, "a"), rank % 2, rank % 2 + 2);
    check_group(weft_mesh_group_named(mesh, "b"), rank / 2 * 2, rank / 2 * 2 + 1);
    CHECK_INT(weft_mesh_local_rank(mesh, 1), rank % 2);
    weft_mesh *deep = weft_mesh_unflatten(mesh, 1, WEFT_SHAPE(1, 2), "c,d");
    CHECK(deep && weft_mesh_ndim(deep) == 3);
    CHECK(weft_mesh_group_named(deep, "d") == weft_mesh_group(mesh, 1));
    check_null(weft_mesh_unflatten(line, 1, WEFT_SHAPE(2, 2), "a,b"), WEFT_ERR_INVALID_ARG,
               "dimension 1");
    check_null(weft_mesh_unflatten(line, 0, WEFT_SHAPE(2, 3), "a,b"), WEFT_ERR_INVALID_ARG,
               "product of the sizes must be 4");
    check_null(weft_mesh_unflatten(line, 0, WEFT_SHAPE(2, 2), "a"), WEFT_ERR_INVALID_ARG,
               "1 names for 2");
    check_null(weft_mesh_unflatten(line, 0, WEFT_SHAPE(2, 2), NULL), WEFT_ERR_INVALID_ARG,
               "if and only if");
    check_null(weft_mesh_unflatten(mesh, 0, WEFT_SHAPE(1, 2), "b,e"), WEFT_ERR_INVALID_ARG,
               "twice");
    /* Flattened across a dimension between, and cut elsewhere. */
    weft_mesh *columns = weft_mesh_flatten(weft_mesh_slice(square(world), "tp,dp"), "col");
    CHECK(columns);
    check_text(columns, "mesh of 4 on cpu (col): [0, 2, 1, 3]");
    weft_mesh *cut = weft_mesh_unflatten(columns, 0, WEFT_SHAPE(2, 2), "u,v");
    CHECK(cut);
    check_group(weft_mesh_group_named(cut, "v"), rank % 2, rank % 2 + 2);
    finish(world);
}

/* What was flattened against the order of the ranks is cut as it was put together, or not at all.
 */
RANKS_TEST(test_mesh_unflatten_across, 6)
{
    weft_group *world = join(0);
    weft_mesh *grid = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(3, 2), "a,b");
    weft_mesh *flat = weft_mesh_flatten(weft_mesh_slice(grid, "b,a"), "all");
    CHECK(flat);
    check_text(flat, "mesh of 6 on cpu (all): [0, 2, 4, 1, 3, 5]");
    int count = weft_group_count(world);
    check_null(weft_mesh_unflatten(flat, 0, WEFT_SHAPE(3, 2), "u,v"), WEFT_ERR_UNSUPPORTED,
               "\"all\" was flattened from others and cannot be cut across them");
    CHECK_INT(weft_group_count(world), count); /* nothing was made */
    weft_mesh *cut = weft_mesh_unflatten(flat, 0, WEFT_SHAPE(2, 3), "u,v");
    CHECK(cut);
    check_text(cut, "mesh of 2 x 3 on cpu (u, v): [[0, 2, 4], [1, 3, 5]]");
    check_group(weft_mesh_group_named(cut, "u"), rank / 2 * 2, rank / 2 * 2 + 1);
    CHECK_OK(weft_group_barrier(weft_mesh_group_named(cut, "v"), WEFT_DEFAULT));
    finish(world);
}

/* Releases the group: nothing else keeps it, not even a mesh that was not made. */
static void check_last(weft_group *world, weft_group *group)
{
    char name[WEFT_TAG_BYTES + 64];
    snprintf(name, sizeof name, "%s", weft_group_name(group));
    CHECK(weft_group_named(world, name) == group);
    weft_release(group);
    check_null(weft_group_named(world, name), WEFT_ERR_STATE, "already destroyed");
}

RANKS_TEST(test_mesh_from_groups, 4)
{
    weft_group *world = join(0);
    weft_mesh *mesh = square(world);
    weft_group *groups[] = {weft_mesh_group(mesh, 0), weft_mesh_group(mesh, 1)};
    int count = weft_group_count(world);
    weft_mesh *one = weft_mesh_from_groups(groups, 1, WEFT_CPU, WEFT_SCALAR, NULL, NULL);
    CHECK(one && weft_mesh_ndim(one) == 1 && weft_mesh_group(one, 0) == groups[0]);
    CHECK_INT(weft_mesh_ranks(one)[1], rank % 2 + 2);
    weft_mesh *two = weft_mesh_from_groups(groups, 2, WEFT_CPU, WEFT_SHAPE(2, 2), all, "dp,tp");
    CHECK(two && weft_mesh_equal(two, mesh) && weft_mesh_group(two, 1) == groups[1]);
    CHECK_INT(weft_group_count(world), count);
    int wrong[] = {0, 1, 3, 2}, shifted[] = {1, 0};
    check_null(weft_mesh_from_groups(groups, 1, WEFT_CPU, WEFT_SHAPE(2), shifted, NULL),
               WEFT_ERR_INVALID_ARG, rank < 2 ? "line along dimension 0" : "not in the mesh");
    check_null(weft_mesh_from_groups(groups, 2, WEFT_CPU, WEFT_SHAPE(2, 2), NULL, "dp,tp"),
               WEFT_ERR_INVALID_ARG, "needs ranks and names");
    check_null(weft_mesh_from_groups(groups, 2, WEFT_CPU, WEFT_SHAPE(2, 2), all, NULL),
               WEFT_ERR_INVALID_ARG, "needs ranks and names");
    check_null(weft_mesh_from_groups(groups, 2, WEFT_CPU, WEFT_SHAPE(4), all, "x"),
               WEFT_ERR_INVALID_ARG, "2 groups for a mesh of 1");
    check_null(weft_mesh_from_groups(groups, 0, WEFT_CPU, WEFT_SHAPE(4), all, "x"),
               WEFT_ERR_INVALID_ARG, "1 to 8 groups");
    check_null(weft_mesh_from_groups(groups, 2, WEFT_CPU, WEFT_SHAPE(2, 2), wrong, "dp,tp"),
               WEFT_ERR_INVALID_ARG, "line along dimension");
    finish(world);
}

/* A rank without memory for its mesh says so, and the others name it. */
RANKS_TEST(test_mesh_without_memory_on_one_rank, 2)
{
    weft_group *world = join(0);
    CHECK_INT(weft_size(world), size);
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    if (rank == 1)
        fault_arm(1);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2), "x");
    if (rank == 1)
        CHECK(fault_disarm());
    check_null(mesh, WEFT_ERR_NO_MEMORY,
               rank ? "no memory for a mesh of 2 ranks"
                    : "mesh: rank 1 of group \"0\" could not take part (");
    CHECK(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2), "x")); /* the group goes on */
    finish(world);
}

/* Whatever one rank lacks: all have the mesh, also those that share no line with it, or none. */
RANKS_TEST(test_mesh_without_memory_on_one_of_four, 4)
{
    weft_group *world = join(0);
    CHECK_INT(weft_size(world), size);
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    int none = 0;
    for (int n = 1;; n++) {
        if (rank == 3)
            fault_arm(n);
        weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), NULL);
        bool fired = rank == 3 ? fault_disarm() : true;
        uint64_t flags = (mesh ? 1 : 2) | (fired ? 4 : 0);
        CHECK(mesh || weft_last_status() < 0);
        weft_clear_error();
        CHECK_OK(weft_group_agree(world, &flags, WEFT_DEFAULT));
        CHECK(flags & 3);
        none += flags & 2 ? 1 : 0;
        weft_release(mesh);
        if (!(flags & 4))
            break;
        CHECK(n < 300);
    }
    CHECK(none > 5);
    finish(world);
}

/* The ranks of a line compare what they gave. */
RANKS_TEST(test_mesh_from_groups_mismatch, 2)
{
    weft_group *world = join(0);
    CHECK_INT(weft_size(world), size);
    check_null(weft_mesh_from_groups(&world, 1, WEFT_CPU, WEFT_SHAPE(2), all, rank ? "x" : "y"),
               WEFT_ERR_MISMATCH, "different meshes: rank 0 the mesh of 2 on cpu (y)");
    check_null(
        weft_mesh_from_groups(&world, 1, rank ? WEFT_CPU : WEFT_META, WEFT_SCALAR, NULL, NULL),
        WEFT_ERR_MISMATCH, "rank 1 the mesh of 2 on cpu: [0, 1]");
    weft_group *line = weft_group_new(world, all, 2, NULL), *twice[] = {line, line};
    CHECK(line);
    check_null(weft_mesh_from_groups(twice, 2, WEFT_CPU, WEFT_SHAPE(2, 1), all, "x,y"),
               WEFT_ERR_INVALID_ARG, "line along dimension 1");
    check_last(world, line);
    CHECK(weft_mesh_from_groups(&world, 1, WEFT_CPU, WEFT_SCALAR, NULL, NULL)); /* it lives */
    finish(world);
}

/* Ranks that give different meshes, in shape, ranks, names or device: all learn it, none hangs. */
RANKS_TEST(test_mesh_mismatch, 4)
{
    weft_group *world = join(0);
    int swapped[] = {0, 1, 3, 2};
    for (int what = 0; what < 4; what++) {
        bool odd = rank == what;
        weft_shape shape = odd && what == 0 ? WEFT_SHAPE(4, 1) : WEFT_SHAPE(2, 2);
        const int *ranks = odd && what == 1 ? swapped : all;
        const char *names = odd && what == 2 ? "tp,dp" : "dp,tp";
        weft_device device = odd && what == 3 ? WEFT_META : WEFT_CPU;
        weft_group *group = weft_group_split(world, 0, 0);
        CHECK(group);
        check_null(weft_mesh_new(group, device, shape, ranks, names), WEFT_ERR_MISMATCH,
                   "different meshes");
        CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT)); /* the group lives */
        check_last(world, group);
    }
    weft_group *group = weft_group_split(world, 0, 0);
    weft_mesh *mesh = rank ? weft_mesh_init(group, WEFT_CPU, WEFT_SHAPE(4), NULL) : NULL;
    if (rank == 0) /* one rank calls something else */
        CHECK_STATUS(weft_group_barrier(group, WEFT_DEFAULT), WEFT_ERR_MISMATCH);
    else
        check_null(mesh, WEFT_ERR_MISMATCH, "calls group_barrier");
    finish(world);
}

RANKS_TEST(test_mesh_arguments, 4)
{
    weft_group *world = join(0);
    int twice[] = {0, 1, 2, 1}, high[] = {0, 4};
    check_null(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(3, 2), NULL), WEFT_ERR_INVALID_ARG,
               "more entries than the 4 ranks");
    check_null(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 0), NULL), WEFT_ERR_INVALID_ARG,
               "dimension 1 of a mesh is 0");
    check_null(weft_mesh_init(world, WEFT_CPU, WEFT_SCALAR, NULL), WEFT_ERR_INVALID_ARG,
               "1 to 8 dimensions");
    check_null(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "a"), WEFT_ERR_INVALID_ARG,
               "1 names for 2 dimensions");
    check_null(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "a,b,c"), WEFT_ERR_INVALID_ARG,
               "3 names for 2 dimensions");
    check_null(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "a,a"), WEFT_ERR_INVALID_ARG,
               "different names");
    check_null(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), ""), WEFT_ERR_INVALID_ARG,
               "1 to 31 characters");
    check_null(weft_mesh_init(world, WEFT_CUDA(1), WEFT_SHAPE(4), NULL), WEFT_ERR_INVALID_ARG,
               "without an index");
    check_null(weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(4), twice, NULL), WEFT_ERR_INVALID_ARG,
               "rank 1 is twice");
    check_null(weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2), high, NULL), WEFT_ERR_INVALID_ARG,
               "rank 4 of a mesh is not in");
    check_null(weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2), NULL, NULL), WEFT_ERR_INVALID_ARG,
               "NULL");
    check_null(weft_mesh_init(NULL, WEFT_CPU, WEFT_SHAPE(2), NULL), WEFT_ERR_INVALID_ARG, "NULL");
    weft_mesh *mesh = square(world);
    check_null(weft_mesh_group(mesh, WEFT_MESH_ONLY), WEFT_ERR_INVALID_ARG, "say which");
    check_null(weft_mesh_group(mesh, 2), WEFT_ERR_INVALID_ARG, "[0, 2)");
    check_null(weft_mesh_group_named(mesh, "pp"), WEFT_ERR_NOT_FOUND,
               "\"pp\" in the mesh of 2 x 2");
    CHECK_INT(weft_mesh_local_rank(mesh, WEFT_MESH_ONLY), -1);
    CHECK_INT(weft_mesh_size(mesh, 7), -1);
    CHECK_INT(weft_mesh_ndim(NULL), -1);
    CHECK(!weft_mesh_equal(mesh, NULL) && weft_mesh_equal(NULL, NULL));
    weft_clear_error();
    check_null(weft_mesh_slice(NULL, "a"), WEFT_ERR_INVALID_ARG, "mesh is NULL");
    finish(world);
}

/* ---- limits ---- */

static const char eight[] = "a,b,c,d,e,f,g,h";

/* Two entries in that many dimensions; only the first is longer than one. */
static weft_shape deep(int ndim)
{
    weft_shape shape = {.ndim = ndim};
    for (int dim = 0; dim < WEFT_MAX_DIMS; dim++)
        shape.dim[dim] = dim ? 1 : 2;
    return shape;
}

RANKS_TEST(test_mesh_of_eight_dims, 2)
{
    weft_group *world = join(0), *groups[WEFT_MAX_DIMS + 1] = {0};
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, deep(WEFT_MAX_DIMS), eight);
    CHECK(mesh && weft_mesh_ndim(mesh) == WEFT_MAX_DIMS && weft_mesh_rank(mesh) == rank);
    for (int dim = 0; dim < WEFT_MAX_DIMS; dim++) {
        groups[dim] = weft_mesh_group(mesh, dim);
        CHECK_INT(weft_size(groups[dim]), dim ? 1 : size);
        CHECK_INT(weft_mesh_dim_name(mesh, dim)[0], 'a' + dim);
    }
    weft_mesh *again =
        weft_mesh_from_groups(groups, WEFT_MAX_DIMS, WEFT_CPU, deep(WEFT_MAX_DIMS), all, eight);
    CHECK(again && weft_mesh_equal(again, mesh) && weft_mesh_group(again, 7) == groups[7]);
    check_null(weft_mesh_from_groups(groups, 9, WEFT_CPU, deep(8), all, eight),
               WEFT_ERR_INVALID_ARG, "1 to 8 groups, not 9");
    check_null(weft_mesh_from_groups(NULL, 8, WEFT_CPU, deep(8), all, eight), WEFT_ERR_INVALID_ARG,
               "1 to 8 groups, not 0");
    check_null(weft_mesh_init(world, WEFT_CPU, deep(9), NULL), WEFT_ERR_INVALID_ARG,
               "1 to 8 dimensions, not 9");
    check_null(weft_mesh_unflatten(mesh, 7, WEFT_SHAPE(1, 1), "x,y"), WEFT_ERR_INVALID_ARG,
               "2 dimensions in place of one of 8");
    weft_mesh *other = weft_mesh_unflatten(mesh, 7, WEFT_SHAPE(1), "z"); /* one for one */
    CHECK(other && weft_mesh_ndim(other) == 8 && !strcmp(weft_mesh_dim_name(other, 7), "z"));
    weft_mesh *seven = weft_mesh_slice(mesh, "a,b,c,d,e,f,g");
    other = weft_mesh_unflatten(seven, 0, WEFT_SHAPE(1, 2), "x,y");
    CHECK(other && weft_mesh_ndim(other) == 8);
    check_text(other, "mesh of 1 x 2 x 1 x 1 x 1 x 1 x 1 x 1 on cpu (x, y, b, c, d, e, f, g): "
                      "[[[[[[[[0]]]]]], [[[[[[1]]]]]]]]");
    CHECK(weft_mesh_group_named(other, "y") == groups[0]);
    CHECK(weft_mesh_flatten(weft_mesh_slice(mesh, "g,h"), NULL));
    check_null(weft_mesh_slice(mesh, "a,b,c,d,e,f,g,h,g_h"), WEFT_ERR_INVALID_ARG,
               "at most 8 dimensions");
    finish(world);
}

/* The longest line there is, whole. */
RANKS_TEST(test_mesh_longest_names, 2)
{
    char names[8 * 32 + 1] = "", text[600], printed[600] = "";
    for (int dim = 0; dim < 8; dim++)
        snprintf(names + 32 * dim, 33, "%c23456789012345678901234567890%d,", 'a' + dim, dim);
    names[8 * 32 - 1] = 0; /* the last comma */
    weft_group *world = join(0);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, deep(8), names);
    CHECK(mesh && weft_mesh_rank(mesh) == rank && weft_size(world) == size);
    CHECK_INT(strlen(weft_mesh_dim_name(mesh, 7)), 31);
    int length = weft_mesh_text(mesh, text, sizeof text);
    CHECK(length > 8 * 32 && length < (int)sizeof text - 1);
    FILE *file = fmemopen(printed, sizeof printed, "w");
    CHECK(file);
    CHECK_OK(weft_mesh_print(mesh, file));
    fclose(file);
    CHECK(!strncmp(printed, text, (size_t)length) && !strcmp(printed + length, "\n"));
    finish(world);
}

RANKS_TEST(test_mesh_names, 2)
{
    static const char longest[] = "abcdefghijklmnopqrstuvwxyz01234",
                      longer[] = /* 31, 32 */
                      "abcdefghijklmnopqrstuvwxyz012345";
    weft_group *world = join(0), *one[] = {world, NULL};
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2), longest);
    CHECK(mesh && weft_mesh_dim(mesh, longest) == 0);
    check_null(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2), longer), WEFT_ERR_INVALID_ARG,
               "1 to 31 characters, not 32");
    check_null(weft_mesh_flatten(mesh, longer), WEFT_ERR_INVALID_ARG, "cannot be");
    check_null(weft_mesh_flatten(mesh, ""), WEFT_ERR_INVALID_ARG, "cannot be");
    weft_mesh *pair = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 1), "p,q");
    weft_mesh *flat = weft_mesh_flatten(pair, longest);
    CHECK(flat && !strcmp(weft_mesh_dim_name(flat, 0), longest));
    CHECK(weft_mesh_group_named(pair, longest) == world);
    CHECK(!*weft_mesh_dim_name(pair, -1) && !*weft_mesh_dim_name(pair, 2));
    CHECK(!*weft_mesh_dim_name(NULL, 0));
    CHECK_INT(weft_mesh_dim(pair, NULL), -1);
    CHECK_STATUS(weft_last_status(), WEFT_ERR_NOT_FOUND);
    CHECK_INT(weft_mesh_dim(pair, ""), -1);
    CHECK_CONTAINS(weft_last_error(), "no dimension \"\" in the mesh of 2 x 1");
    weft_clear_error();
    CHECK_INT(weft_mesh_dim(NULL, "p"), -1);
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    check_null(weft_mesh_group_named(pair, NULL), WEFT_ERR_NOT_FOUND, "no dimension");
    weft_mesh *row = weft_mesh_slice(pair, "q"); /* what the whole was flattened to is not its */
    check_null(weft_mesh_group_named(row, longest), WEFT_ERR_NOT_FOUND, longest);
    check_null(weft_mesh_slice(row, longest), WEFT_ERR_NOT_FOUND, longest);
    /* One group needs nothing else, and only the first of the list is looked at. */
    weft_mesh *line = weft_mesh_from_groups(one, 1, WEFT_META, WEFT_SCALAR, NULL, NULL);
    CHECK(line && weft_mesh_device(line) == WEFT_META && !*weft_mesh_dim_name(line, 0));
    weft_mesh *cards = weft_mesh_init(world, WEFT_CUDA(0), WEFT_SHAPE(2), "x");
    CHECK(cards && weft_mesh_device(cards) == WEFT_CUDA(weft_local_rank(world)));
    check_text(cards, "mesh of 2 on cuda (x): [0, 1]");
    check_null(weft_mesh_unflatten(pair, -1, WEFT_SHAPE(2), "x"), WEFT_ERR_INVALID_ARG, "[0, 2)");
    check_null(weft_mesh_unflatten(pair, 2, WEFT_SHAPE(2), "x"), WEFT_ERR_INVALID_ARG, "[0, 2)");
    check_null(weft_mesh_unflatten(pair, 0, WEFT_SHAPE(0, 2), "x,y"), WEFT_ERR_INVALID_ARG,
               "must be 2");
    check_null(weft_mesh_unflatten(pair, 0, WEFT_SCALAR, "x"), WEFT_ERR_INVALID_ARG,
               "0 dimensions in place of one of 2");
    CHECK_STATUS(weft_mesh_coordinate(pair, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_mesh_coordinate(NULL, (int[1]){0}), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_mesh *twice[] = {pair, flat}, *none[] = {NULL, pair};
    check_null(weft_mesh_concatenate(twice, 2), WEFT_ERR_INVALID_ARG, "it has 2 entries in all");
    check_null(weft_mesh_concatenate(none, 2), WEFT_ERR_INVALID_ARG, "mesh is NULL");
    finish(world);
}

/* Meshes that differ in one thing are not equal, hash differently and read differently. */
RANKS_TEST(test_mesh_each_differs, 4)
{
    enum { KINDS = 9 };
    static const int turned[] = {0, 1, 3, 2};
    weft_group *world = join(0);
    (void)rank;
    weft_mesh *kind[KINDS] = {
        weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2, 2), all, "dp,tp"),
        weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2, 2), all, "dp,tq"),
        weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2, 2), all, "dq,tp"),
        weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2, 2), all, NULL),
        weft_mesh_new(world, WEFT_META, WEFT_SHAPE(2, 2), all, "dp,tp"),
        weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2, 2), turned, "dp,tp"),
        weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(1, 4), all, "dp,tp"),
        weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(1, 2), all, "dp,tp"),
        weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(4), all, "dp"),
    };
    for (int i = 0; i < KINDS; i++) {
        char text[100], part[100];
        CHECK(kind[i]);
        int length = weft_mesh_text(kind[i], text, sizeof text);
        CHECK_INT(weft_mesh_text(kind[i], NULL, 0), length);
        for (size_t bytes = 1; bytes < sizeof part; bytes++) { /* what does not fit is cut off */
            memset(part, '#', sizeof part);
            CHECK_INT(weft_mesh_text(kind[i], part, bytes), length);
            CHECK(!strncmp(part, text, bytes - 1) && memchr(part, 0, bytes));
            CHECK(bytes + 1 >= sizeof part || part[bytes] == '#');
        }
        for (int k = 0; k < KINDS; k++) {
            CHECK(weft_mesh_equal(kind[i], kind[k]) == (i == k));
            CHECK((weft_mesh_hash(kind[i]) == weft_mesh_hash(kind[k])) == (i == k));
            weft_mesh_text(kind[k], part, sizeof part);
            CHECK(!strcmp(text, part) == (i == k));
        }
    }
    CHECK(!weft_mesh_equal(NULL, kind[0]) && !weft_mesh_hash(NULL));
    finish(world);
}

RANKS_TEST(test_mesh_current, 4)
{
    weft_group *world = join(0);
    check_null(weft_mesh_current(), WEFT_ERR_STATE, "entered no mesh");
    CHECK_STATUS(weft_mesh_leave(), WEFT_ERR_STATE);
    weft_mesh *mesh = square(world), *slice = weft_mesh_slice(mesh, "tp");
    CHECK_OK(weft_mesh_enter(mesh));
    CHECK_OK(weft_mesh_enter(slice));
    CHECK(weft_mesh_current() == slice);
    weft_release(slice); /* entering holds it */
    CHECK_INT(weft_mesh_size(weft_mesh_current(), 0), 2);
    CHECK_OK(weft_mesh_leave());
    CHECK(weft_mesh_current() == mesh);
    for (int i = 1; i < WEFT_MAX_MESHES; i++)
        CHECK_OK(weft_mesh_enter(mesh));
    CHECK_STATUS(weft_mesh_enter(mesh), WEFT_ERR_LIMIT);
    for (int i = 0; i < WEFT_MAX_MESHES; i++)
        CHECK_OK(weft_mesh_leave());
    check_null(weft_mesh_current(), WEFT_ERR_STATE, "entered no mesh");
    finish(world);
}

/* ---- hosts x ranks ---- */

/* What is put at `i` by a rank of the world, and its sum over ranks first, first + step, ... */
static int64_t value_of(int rank, int64_t i)
{
    return (rank + 1) * (i % 1000 + 7);
}

static void check_sums(const weft_tensor *x, int first, int step, int count, int64_t from)
{
    const int64_t *data = weft_tensor_data((weft_tensor *)(uintptr_t)x); /* only read */
    for (int64_t i = 0; i < weft_tensor_numel(x); i++) {
        int64_t sum = 0;
        for (int k = 0; k < count; k++)
            sum += value_of(first + k * step, from + i);
        if (data[i] != sum)
            FAIL("element %lld is %lld, expected %lld", (long long)i, (long long)data[i],
                 (long long)sum);
    }
}

static weft_tensor *filled(int rank, int64_t count)
{
    weft_tensor *x = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x);
    for (int64_t i = 0; i < count; i++)
        ((int64_t *)weft_tensor_data(x))[i] = value_of(rank, i);
    return x;
}

static weft_tensor *room(int64_t count)
{
    weft_tensor *x = weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(count), -1);
    CHECK(x);
    return x;
}

/* Sums along a row, which is a host, and along a column, which has a rank of each; both at once; and the sum of all
 * by reduce_scatter along the row, all_reduce along the column and all_gather along the row. */
static void sum_both_ways(weft_mesh *mesh, int rank, int hosts, int ranks, int64_t count)
{
    weft_group *row = weft_mesh_group_named(mesh, "rank"),
               *column = weft_mesh_group_named(mesh, "host");
    int host = rank / ranks, index = rank % ranks;
    weft_scope_open();
    weft_tensor *in = filled(rank, count * ranks), *part = room(count);
    weft_tensor *along = room(count * ranks), *across = room(count * ranks);
    CHECK_OK(weft_all_reduce_into(along, in, WEFT_SUM, row));
    check_sums(along, host * ranks, 1, ranks, 0);
    CHECK_OK(weft_all_reduce_into(across, in, WEFT_SUM, column));
    check_sums(across, index, ranks, hosts, 0);
    weft_work *first = weft_all_reduce_start(across, in, WEFT_MAX, column);
    weft_work *second = weft_all_reduce_start(along, in, WEFT_MAX, row);
    CHECK_OK(weft_work_wait(second, WEFT_DEFAULT));
    CHECK_OK(weft_work_wait(first, WEFT_DEFAULT));
    check_sums(along, host * ranks + ranks - 1, 1, 1, 0);
    check_sums(across, (hosts - 1) * ranks + index, 1, 1, 0);
    CHECK_OK(weft_reduce_scatter_into(part, in, WEFT_SUM, row));
    check_sums(part, host * ranks, 1, ranks, index * count);
    CHECK_OK(weft_all_reduce_into(part, part, WEFT_SUM, column));
    CHECK_OK(weft_all_gather_into(along, part, row));
    check_sums(along, 0, 1, hosts * ranks, 0);
    weft_scope_close();
}

static void check_hosts(int rank, int hosts, int ranks)
{
    weft_group *world = join(0);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(hosts, ranks), "host,rank");
    CHECK(mesh);
    weft_group *row = weft_mesh_group_named(mesh, "rank"),
               *column = weft_mesh_group_named(mesh, "host");
    CHECK(row && !row->hosts);
    CHECK(column && column->hosts && column->hosts->count == hosts && column->hosts->rails == 1);
    for (int64_t count = 1; count <= 100000; count *= 46)
        sum_both_ways(mesh, rank, hosts, ranks, count);
    finish(world);
}

HOSTS_TEST(test_mesh_hosts_by_ranks, 4, "2+2")
{
    check_hosts(rank, 2, 2);
}

HOSTS_TEST(test_mesh_hosts_by_ranks_of_6, 6, "2+2+2")
{
    check_hosts(rank, 3, 2);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

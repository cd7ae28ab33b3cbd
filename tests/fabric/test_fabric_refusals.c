/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_new.c, fabric/group/group_split.c, fabric/group/group_find.c,
 * fabric/group/group_event.c, fabric/mesh/mesh.c, fabric/mesh/mesh_new.c, fabric/mesh/mesh_slice.c,
 * fabric/mesh/mesh_text.c, fabric/mesh/ranks.c, fabric/world/limit.c, store/store.c, symm/block.c,
 * symm/pool.c */
/*
 * What is refused, and what is said then: every argument of groups, meshes, ranks, limits, stores
 * and symmetric memory that can be wrong, one at a time, in a fake world of eight.  The messages are
 * read in full, so that no number or name in them is wrong.
 */
#include "refusals.h"
#include "symm_info.h"

static const char long_name[] = "0123456789012345678901234567890123456789012345678901234567890123";

/* ---- groups ---- */

TEST(test_refusals_group_new)
{
    weft_group *world = open_world();
    static const int some[] = {1, 3, 5}, twice[] = {1, 3, 1}, far[] = {1, 8}, low[] = {-1, 3};
    NO(weft_group_new(NULL, some, 3, NULL), WEFT_ERR_INVALID_ARG, "the group is NULL");
    NO(weft_group_new(world, some, -1, NULL), WEFT_ERR_INVALID_ARG,
       "a group of \"0\" has 1 to 8 ranks, not -1");
    NO(weft_group_new(world, some, 9, NULL), WEFT_ERR_INVALID_ARG,
       "a group of \"0\" has 1 to 8 ranks, not 9");
    NO(weft_group_new(world, twice, 3, NULL), WEFT_ERR_INVALID_ARG, "rank 1 is named twice");
    NO(weft_group_new(world, far, 2, NULL), WEFT_ERR_INVALID_ARG,
       "rank 8 is outside group \"0\" of 8 ranks");
    NO(weft_group_new(world, low, 2, NULL), WEFT_ERR_INVALID_ARG,
       "rank -1 is outside group \"0\" of 8 ranks");
    NO(weft_group_new(world, some, 3, "0"), WEFT_ERR_INVALID_ARG,
       "\"0\" cannot be a group's name: \"0\" is the world's, and names with '/' are derived");
    NO(weft_group_new(world, some, 3, "a/b"), WEFT_ERR_INVALID_ARG,
       "\"a/b\" cannot be a group's name: \"0\" is the world's, and names with '/' are derived");
    NO(weft_group_new(world, some, 3, long_name), WEFT_ERR_INVALID_ARG,
       "a group's name has at most 63 characters");
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.tag = "ptd:x";
    NO(weft_group_new_with(world, some, 3, &opts), WEFT_ERR_INVALID_ARG,
       "\"ptd:x\" cannot be a group's tag: \"ptd:\" marks groups without one");
    opts.tag = long_name;
    NO(weft_group_new_with(world, some, 3, &opts), WEFT_ERR_INVALID_ARG,
       "a tag has at most 63 characters");
    opts.tag = NULL;
    opts.description = long_name;
    NO(weft_group_new_with(world, some, 3, &opts), WEFT_ERR_INVALID_ARG,
       "a group's description has at most 63 characters");
    opts.description = NULL;
    opts.timeout_ms = -2;
    NO(weft_group_new_with(world, some, 3, &opts), WEFT_ERR_INVALID_ARG,
       "a group's limit is a positive number of ms, WEFT_FOREVER, or 0 for its parent's, not -2");
    opts.timeout_ms = 0;
    opts.size = 1;
    NO(weft_group_new_with(world, some, 3, &opts), WEFT_ERR_INVALID_ARG,
       "a group (start from WEFT_GROUP_OPTS_INIT): options with a size of 1; set it to that of the "
       "struct");
    close_world();
}

TEST(test_refusals_group_lists)
{
    weft_group *world = open_world();
    static const int some[] = {1, 3, 5}, twice[] = {1, 3, 1};
    weft_rank_list lists[] = {{some, 3}, {twice, 2}}, empty[] = {{some, 0}}, none[] = {{NULL, 2}};
    NO(weft_group_new_blocks(world, 0, NULL), WEFT_ERR_INVALID_ARG,
       "blocks of 0 ranks: a block has at least one");
    NO(weft_group_new_blocks(world, 3, NULL), WEFT_ERR_INVALID_ARG,
       "blocks of 3 ranks: the 8 ranks of group \"0\" are no multiple of it");
    NO(weft_group_new_blocks(world, -1, NULL), WEFT_ERR_INVALID_ARG,
       "blocks of -1 ranks: a block has at least one");
    NO(weft_group_new_lists(world, NULL, 1, NULL), WEFT_ERR_INVALID_ARG,
       "new_lists: no lists of ranks");
    NO(weft_group_new_lists(world, lists, 0, NULL), WEFT_ERR_INVALID_ARG,
       "new_lists: no lists of ranks");
    NO(weft_group_new_lists(world, lists, 2, NULL), WEFT_ERR_INVALID_ARG,
       "new_lists: rank 1 is in lists 0 and 1");
    NO(weft_group_new_lists(world, empty, 1, NULL), WEFT_ERR_INVALID_ARG,
       "new_lists: list 0 is empty");
    NO(weft_group_new_lists(world, none, 1, NULL), WEFT_ERR_INVALID_ARG,
       "new_lists: list 0 is empty");
    NO(weft_group_split_lists(world, NULL, 1, NULL), WEFT_ERR_INVALID_ARG,
       "split_lists: no lists of ranks");
    NO(weft_group_split_lists(world, lists, -1, NULL), WEFT_ERR_INVALID_ARG,
       "split_lists: no lists of ranks");
    NO(weft_group_split_lists(world, lists, 2, NULL), WEFT_ERR_INVALID_ARG,
       "split_lists: rank 1 is in lists 0 and 1");
    NO(weft_group_split(NULL, 0, 0), WEFT_ERR_INVALID_ARG, "the group is NULL");
    close_world();
}

TEST(test_refusals_group_stand_in)
{
    open_world();
    static const int some[] = {1, 3, 5};
    NO(weft_group_stand_in(NULL, 2), WEFT_ERR_INVALID_ARG,
       "a stand-in has a name of 1 to 63 characters and at least one rank");
    NO(weft_group_stand_in("", 2), WEFT_ERR_INVALID_ARG,
       "a stand-in has a name of 1 to 63 characters and at least one rank");
    NO(weft_group_stand_in(long_name, 2), WEFT_ERR_INVALID_ARG,
       "a stand-in has a name of 1 to 63 characters and at least one rank");
    NO(weft_group_stand_in("one", 0), WEFT_ERR_INVALID_ARG,
       "a stand-in has a name of 1 to 63 characters and at least one rank");
    weft_group *stand_in = weft_group_stand_in("model", 4);
    BAD(weft_group_barrier(stand_in, 5), WEFT_ERR_STATE,
        "the group has a name and a size but no members: it is a stand-in, good for meta tensors "
        "only");
    NO(weft_group_new(stand_in, some, 2, NULL), WEFT_ERR_STATE,
       "the group has a name and a size but no members: it is a stand-in, good for meta tensors "
       "only");
    close_world();
}

TEST(test_refusals_group_calls)
{
    weft_group *world = open_world();
    int fd = 0;
    BAD(weft_group_set_timeout(world, 0), WEFT_ERR_INVALID_ARG,
        "a time limit is a positive number of ms or WEFT_FOREVER, not 0");
    BAD(weft_group_set_timeout(world, -2), WEFT_ERR_INVALID_ARG,
        "a time limit is a positive number of ms or WEFT_FOREVER, not -2");
    BAD(weft_group_set_timeout(NULL, 5), WEFT_ERR_INVALID_ARG, "the group is NULL");
    BAD(weft_group_barrier(NULL, 5), WEFT_ERR_INVALID_ARG, "the group is NULL");
    BAD(weft_group_barrier(world, -3), WEFT_ERR_INVALID_ARG,
        "weft_group_barrier: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not -3");
    BAD(weft_group_revoke(NULL), WEFT_ERR_INVALID_ARG, "the group is NULL");
    BAD(weft_group_agree(world, NULL, 5), WEFT_ERR_INVALID_ARG, "weft_group_agree: no flags");
    BAD(weft_group_event_fd(world, NULL), WEFT_ERR_INVALID_ARG,
        "weft_group_event_fd: no place for the descriptor");
    BAD(weft_group_event_fd(NULL, &fd), WEFT_ERR_INVALID_ARG, "the group is NULL");
    NO(weft_group_shrink(NULL), WEFT_ERR_INVALID_ARG, "the group is NULL");
    NO(weft_group_world(NULL), WEFT_ERR_INVALID_ARG, "the group is NULL");
    close_world();
}

TEST(test_refusals_group_names)
{
    weft_group *world = open_world();
    static const int some[] = {1, 3, 5};
    NO(weft_group_named(world, NULL), WEFT_ERR_INVALID_ARG, "weft_group_named: the name is NULL");
    NO(weft_group_named(world, "nobody"), WEFT_ERR_NOT_FOUND,
       "could not resolve the group name \"nobody\": this rank never was in a group of that name");
    NO(weft_group_find(world, NULL, some, 0), WEFT_ERR_INVALID_ARG,
       "weft_group_find: the list of ranks is empty");

    NO(weft_group_find(world, NULL, NULL, 3), WEFT_ERR_INVALID_ARG,
       "weft_group_find: the list of ranks is empty");

    NO(weft_group_find(world, long_name, some, 3), WEFT_ERR_INVALID_ARG,
       "a tag has at most 63 characters");
    NO(weft_group_find_or_new(world, "t", some, 3, 2), WEFT_ERR_INVALID_ARG,
       "weft_group_find_or_new: 3 ranks are no multiple of a stride of 2");
    NO(weft_group_find_or_new(world, "t", some, 3, 0), WEFT_ERR_INVALID_ARG,
       "weft_group_find_or_new: 3 ranks are no multiple of a stride of 0");
    NO(weft_group_find_or_new(world, "", some, 3, 3), WEFT_ERR_INVALID_ARG,
       "Cannot automatically create PG with empty tag: there is none of ranks 1,3,5 yet");
    weft_group *named = weft_group_new(world, some, 3, "named");
    CHECK(named);
    NO(weft_group_new(world, some, 3, "named"), WEFT_ERR_EXISTS,
       "a group named \"named\" exists on this rank");
    CHECK_OK(weft_group_destroy(named));
    NO(weft_group_named(world, "named"), WEFT_ERR_STATE,
       "the group named \"named\" is already destroyed");
    BAD(weft_group_barrier(named, 5), WEFT_ERR_STATE, "group \"named\" is already destroyed");
    close_world();
}

TEST(test_refusals_after_finish)
{
    weft_group *world = open_world();
    CHECK_INT(weft_finish(world), 0);
    BAD(weft_group_barrier(world, 5), WEFT_ERR_STATE,
        "this rank has left its job (weft_finish was called)");

    NO(weft_group_split(world, 0, 0), WEFT_ERR_STATE,
       "this rank has left its job (weft_finish was called)");
    close_world();
}

TEST(test_refusals_mute_world)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(ME, WORLD);
    opts.error_on_collective = true;
    CHECK_OK(weft_scope_open());
    weft_group *world = weft_fake_init(&opts);
    BAD(weft_group_barrier(world, 5), WEFT_ERR_STATE,
        "group_barrier in fake group \"0\": collectives are errors here (error_on_collective)");
    opts.rank = 8;
    NO(weft_fake_init(&opts), WEFT_ERR_INVALID_ARG, "weft_fake_init: there is no rank 8 of 8");
    opts.rank = -1;
    NO(weft_fake_init(&opts), WEFT_ERR_INVALID_ARG, "weft_fake_init: there is no rank -1 of 8");
    opts.rank = 0;
    opts.world_size = 0;
    NO(weft_fake_init(&opts), WEFT_ERR_INVALID_ARG, "weft_fake_init: there is no rank 0 of 0");

    close_world();
}

TEST(test_refusals_limit)
{
    CHECK_OK(weft_scope_open());
    BAD(weft_limit_open(0), WEFT_ERR_INVALID_ARG,
        "weft_limit_open: a limit is a positive number of ms or WEFT_FOREVER, not 0");
    BAD(weft_limit_open(-2), WEFT_ERR_INVALID_ARG,
        "weft_limit_open: a limit is a positive number of ms or WEFT_FOREVER, not -2");
    BAD(weft_limit_close(), WEFT_ERR_STATE, "weft_limit_close: no limit is open in this thread");
    int depth = 0;
    while (depth < 10000 && weft_limit_open(5 + depth) == WEFT_OK)
        depth++;
    CHECK_INT(depth, 32);
    CHECK_INT(weft_limit_now(), 5 + 31);
    refused_call = "one limit more";
    refuse(true, WEFT_ERR_LIMIT, "weft_limit_open: 32 limits are open in this thread");
    for (; depth > 0; depth--)
        CHECK_OK(weft_limit_close());
    BAD(weft_limit_close(), WEFT_ERR_STATE, "weft_limit_close: no limit is open in this thread");
    CHECK_OK(weft_scope_close());
}

/* ---- meshes ---- */

TEST(test_refusals_mesh_init)
{
    weft_group *world = open_world();
    static const int eight[] = {0, 1, 2, 3, 4, 5, 6, 7}, twice[] = {0, 1, 1, 3}, far[] = {0, 8};
    NO(weft_mesh_init(NULL, WEFT_CPU, WEFT_SHAPE(8), NULL), WEFT_ERR_INVALID_ARG,
       "the group is NULL");
    NO(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(3, 3), NULL), WEFT_ERR_INVALID_ARG,
       "a mesh cannot have more entries than the 8 ranks of group \"0\"");

    NO(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(0, 2), NULL), WEFT_ERR_INVALID_ARG,
       "dimension 0 of a mesh is 0");
    NO(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(-8, -1), NULL), WEFT_ERR_INVALID_ARG,
       "dimension 0 of a mesh is -8");
    NO(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a"), WEFT_ERR_INVALID_ARG,
       "1 names for 2 dimensions of a mesh: \"a\"");
    NO(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a,a"), WEFT_ERR_INVALID_ARG,
       "dimensions of a mesh have different names, not \"a\" twice");
    NO(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a,"), WEFT_ERR_INVALID_ARG,
       "a mesh dimension's name has 1 to 31 characters, not 0 (\"\")");
    NO(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a,b,c"), WEFT_ERR_INVALID_ARG,
       "3 names for 2 dimensions of a mesh: \"a,b,c\"");
    NO(weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), long_name), WEFT_ERR_INVALID_ARG,
       "a mesh dimension's name has 1 to 31 characters, not 64 "
       "(\"0123456789012345678901234567890123456789012345678901234567890123\")");
    NO(weft_mesh_init(world, (weft_device)1, WEFT_SHAPE(8), NULL), WEFT_ERR_INVALID_ARG,
       "a mesh is of a kind of device, without an index, not cpu:1");
    NO(weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(4), NULL, NULL), WEFT_ERR_INVALID_ARG,
       "weft_mesh_new: the ranks are NULL");
    NO(weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(4), twice, NULL), WEFT_ERR_INVALID_ARG,
       "rank 1 is twice in a mesh");
    NO(weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2), far, NULL), WEFT_ERR_INVALID_ARG,
       "rank 8 of a mesh is not in group \"0\"");
    NO(weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(3, 3), eight, NULL), WEFT_ERR_INVALID_ARG,
       "a mesh cannot have more entries than the 8 ranks of group \"0\"");
    close_world();
}

TEST(test_refusals_mesh_groups)
{
    weft_group *world = open_world();
    static const int eight[] = {0, 1, 2, 3, 4, 5, 6, 7};
    weft_group *none = NULL, *two[] = {world, world};
    NO(weft_mesh_from_groups(NULL, 1, WEFT_CPU, WEFT_SHAPE(8), eight, NULL), WEFT_ERR_INVALID_ARG,
       "a mesh is made from 1 to 8 groups, not 0");
    NO(weft_mesh_from_groups(&world, 0, WEFT_CPU, WEFT_SHAPE(8), eight, NULL), WEFT_ERR_INVALID_ARG,
       "a mesh is made from 1 to 8 groups, not 0");
    NO(weft_mesh_from_groups(&world, 9, WEFT_CPU, WEFT_SHAPE(8), eight, NULL), WEFT_ERR_INVALID_ARG,
       "a mesh is made from 1 to 8 groups, not 9");
    NO(weft_mesh_from_groups(&none, 1, WEFT_CPU, WEFT_SHAPE(8), eight, NULL), WEFT_ERR_INVALID_ARG,
       "the group is NULL");
    NO(weft_mesh_from_groups(two, 2, WEFT_CPU, WEFT_SHAPE(2, 4), eight, "a,b"),
       WEFT_ERR_INVALID_ARG, "group \"0\" is not this rank's line along dimension 0 of the mesh");
    NO(weft_mesh_from_groups(two, 2, WEFT_CPU, WEFT_SHAPE(2, 4), NULL, "a,b"), WEFT_ERR_INVALID_ARG,
       "a mesh from 2 groups needs ranks and names of its dimensions");
    NO(weft_mesh_from_groups(two, 2, WEFT_CPU, WEFT_SHAPE(2, 4), eight, NULL), WEFT_ERR_INVALID_ARG,
       "a mesh from 2 groups needs ranks and names of its dimensions");
    NO(weft_mesh_from_groups(two, 2, WEFT_CPU, WEFT_SHAPE(8), eight, "a"), WEFT_ERR_INVALID_ARG,
       "2 groups for a mesh of 1 dimensions");
    close_world();
}

TEST(test_refusals_mesh_asked)
{
    weft_group *world = open_world();
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a,b");
    weft_mesh *plain = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(8), NULL);
    CHECK(mesh && plain);
    BAD(weft_mesh_size(mesh, 2), WEFT_ERR_INVALID_ARG, "dimension 2 of a mesh must be in [0, 2)");
    BAD(weft_mesh_size(mesh, -2), WEFT_ERR_INVALID_ARG, "dimension -2 of a mesh must be in [0, 2)");
    BAD(weft_mesh_dim(mesh, "c"), WEFT_ERR_NOT_FOUND,
        "there is no dimension \"c\" in the mesh of 2 x 4 on cpu (a, b): [[0, 1, 2, 3], [4, 5, 6, "
        "7]]");
    BAD(weft_mesh_dim(mesh, NULL), WEFT_ERR_NOT_FOUND,
        "there is no dimension \"\" in the mesh of 2 x 4 on cpu (a, b): [[0, 1, 2, 3], [4, 5, 6, "
        "7]]");
    BAD(weft_mesh_dim(plain, "a"), WEFT_ERR_NOT_FOUND,
        "there is no dimension \"a\" in the mesh of 8 on cpu: [0, 1, 2, 3, 4, 5, 6, 7]");
    BAD(weft_mesh_coordinate(mesh, NULL), WEFT_ERR_INVALID_ARG,
        "weft_mesh_coordinate: nowhere to write to");
    BAD(weft_mesh_coordinate(NULL, NULL), WEFT_ERR_INVALID_ARG, "the mesh is NULL");
    BAD(weft_mesh_local_rank(mesh, WEFT_MESH_ONLY), WEFT_ERR_INVALID_ARG,
        "the mesh has 2 dimensions: say which one is meant");
    BAD(weft_mesh_local_rank(mesh, 2), WEFT_ERR_INVALID_ARG,
        "dimension 2 of a mesh must be in [0, 2)");
    NO(weft_mesh_group(mesh, WEFT_MESH_ONLY), WEFT_ERR_INVALID_ARG,
       "the mesh has 2 dimensions: say which one is meant");
    NO(weft_mesh_group(mesh, 2), WEFT_ERR_INVALID_ARG, "dimension 2 of a mesh must be in [0, 2)");
    NO(weft_mesh_group(NULL, 0), WEFT_ERR_INVALID_ARG, "the mesh is NULL");
    NO(weft_mesh_group_named(mesh, "c"), WEFT_ERR_NOT_FOUND,
       "there is no dimension \"c\" in the mesh of 2 x 4 on cpu (a, b): [[0, 1, 2, 3], [4, 5, 6, "
       "7]]");
    NO(weft_mesh_group_named(mesh, NULL), WEFT_ERR_NOT_FOUND,
       "there is no dimension \"\" in the mesh of 2 x 4 on cpu (a, b): [[0, 1, 2, 3], [4, 5, 6, "
       "7]]");
    BAD(weft_mesh_print(mesh, NULL), WEFT_ERR_INVALID_ARG, "weft_mesh_print: the file is NULL");
    BAD(weft_mesh_text(mesh, NULL, 5), WEFT_ERR_INVALID_ARG, "weft_mesh_text: 5 bytes at NULL");
    close_world();
}

TEST(test_refusals_mesh_slice)
{
    weft_group *world = open_world();
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a,b");
    weft_mesh *plain = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(8), NULL);
    CHECK(mesh && plain);
    NO(weft_mesh_slice(mesh, NULL), WEFT_ERR_INVALID_ARG, "weft_mesh_slice: the names are NULL");
    NO(weft_mesh_slice(mesh, "c"), WEFT_ERR_NOT_FOUND,
       "there is no dimension \"c\" in the mesh of 2 x 4 on cpu (a, b): [[0, 1, 2, 3], [4, 5, 6, "
       "7]]");
    NO(weft_mesh_slice(mesh, "a,a"), WEFT_ERR_INVALID_ARG,
       "two dimensions overlap: \"a\" is there twice");

    NO(weft_mesh_slice(plain, "a"), WEFT_ERR_STATE,
       "weft_mesh_slice: the mesh was made without names of its dimensions");
    NO(weft_mesh_slice(NULL, "a"), WEFT_ERR_INVALID_ARG, "the mesh is NULL");
    NO(weft_mesh_concatenate(NULL, 1), WEFT_ERR_INVALID_ARG, "weft_mesh_concatenate: no meshes");
    NO(weft_mesh_concatenate(&mesh, 0), WEFT_ERR_INVALID_ARG, "weft_mesh_concatenate: no meshes");
    weft_mesh *a = weft_mesh_slice(mesh, "a"), *b = weft_mesh_slice(mesh, "b");
    weft_mesh *doubled[] = {a, a}, *mixed[] = {a, plain}, *with_null[] = {a, NULL};
    NO(weft_mesh_concatenate(doubled, 2), WEFT_ERR_INVALID_ARG,
       "two dimensions overlap: \"a\" is there twice");
    NO(weft_mesh_concatenate(mixed, 2), WEFT_ERR_INVALID_ARG,
       "weft_mesh_concatenate: meshes 0 and 1 are not slices of one mesh");
    NO(weft_mesh_concatenate(with_null, 2), WEFT_ERR_INVALID_ARG, "the mesh is NULL");
    CHECK(b);
    close_world();
}

TEST(test_refusals_mesh_flatten)
{
    weft_group *world = open_world();
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a,b");
    weft_mesh *plain = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(8), NULL);
    CHECK(mesh && plain);
    NO(weft_mesh_flatten(NULL, "x"), WEFT_ERR_INVALID_ARG, "the mesh is NULL");
    NO(weft_mesh_flatten(mesh, "a,b"), WEFT_ERR_INVALID_ARG,
       "\"a,b\" cannot be a mesh dimension's name: it has 1 to 31 characters, without commas");
    NO(weft_mesh_flatten(mesh, long_name), WEFT_ERR_INVALID_ARG,
       "\"0123456789012345678901234567890123456789012345678901234567890123\" cannot be a mesh "
       "dimension's name: it has 1 to 31 characters, without commas");
    weft_mesh *bare = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), NULL);
    NO(weft_mesh_flatten(bare, NULL), WEFT_ERR_INVALID_ARG,
       "weft_mesh_flatten: a mesh without names needs one");
    CHECK(weft_mesh_flatten(mesh, "all"));
    NO(weft_mesh_flatten(weft_mesh_slice(mesh, "a"), "all"), WEFT_ERR_EXISTS,
       "weft_mesh_flatten: \"all\" is already the name of another flattened part of the mesh");
    NO(weft_mesh_unflatten(mesh, 2, WEFT_SHAPE(2, 2), "x,y"), WEFT_ERR_INVALID_ARG,
       "weft_mesh_unflatten: dimension 2 must be in [0, 2)");
    NO(weft_mesh_unflatten(mesh, 1, WEFT_SHAPE(2, 3), "x,y"), WEFT_ERR_INVALID_ARG,
       "weft_mesh_unflatten: the product of the sizes must be 4, the size of dimension 1");
    NO(weft_mesh_unflatten(mesh, 1, WEFT_SHAPE(2, 2), NULL), WEFT_ERR_INVALID_ARG,
       "weft_mesh_unflatten: the dimensions need names if and only if the mesh has them");
    NO(weft_mesh_unflatten(mesh, 1, WEFT_SHAPE(2, 2), "x"), WEFT_ERR_INVALID_ARG,
       "1 names for 2 dimensions of a mesh: \"x\"");
    NO(weft_mesh_unflatten(mesh, 1, WEFT_SHAPE(2, 2), "a,y"), WEFT_ERR_INVALID_ARG,
       "two dimensions overlap: \"a\" is there twice");
    NO(weft_mesh_unflatten(plain, 0, WEFT_SHAPE(2, 4), "x,y"), WEFT_ERR_INVALID_ARG,
       "weft_mesh_unflatten: the dimensions need names if and only if the mesh has them");
    close_world();
}

TEST(test_refusals_mesh_depth)
{
    weft_group *world = open_world();
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(8), NULL);
    BAD(weft_mesh_enter(NULL), WEFT_ERR_INVALID_ARG, "the mesh is NULL");
    BAD(weft_mesh_leave(), WEFT_ERR_STATE, "weft_mesh_leave: this thread has entered no mesh");
    NO(weft_mesh_current(), WEFT_ERR_STATE, "weft_mesh_current: this thread has entered no mesh");
    int depth = 0;
    while (depth < 1000 && weft_mesh_enter(mesh) == WEFT_OK)
        depth++;
    CHECK_INT(depth, 16);
    refused_call = "one mesh more";
    refuse(true, WEFT_ERR_LIMIT, "weft_mesh_enter: this thread is in 16 meshes");
    CHECK(weft_mesh_current() == mesh || weft_mesh_equal(weft_mesh_current(), mesh));
    for (; depth > 0; depth--)
        CHECK_OK(weft_mesh_leave());
    BAD(weft_mesh_leave(), WEFT_ERR_STATE, "weft_mesh_leave: this thread has entered no mesh");
    close_world();
}

/* ---- ranks ---- */

TEST(test_refusals_ranks)
{
    weft_group *world = open_world();
    static const int some[] = {1, 3, 5}, others[] = {0, 2};
    weft_rank_list rows[] = {{some, 3}, {others, 2}}, hole[] = {{some, 3}, {others, 0}},
                   without[] = {{others, 2}, {some + 2, 1}};
    weft_expansion out;
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a,b");
    BAD(weft_ranks_expand(world, (weft_ranks){0}, NULL, &out), WEFT_ERR_INVALID_ARG,
        "these ranks name nothing: make them with one of the weft_ranks_ functions");
    BAD(weft_ranks_expand(world, weft_ranks_rows(rows, 0), NULL, &out), WEFT_ERR_INVALID_ARG,
        "the list of rows of ranks is empty");
    BAD(weft_ranks_expand(world, weft_ranks_rows(NULL, 1), NULL, &out), WEFT_ERR_INVALID_ARG,
        "the list of rows of ranks is empty");
    BAD(weft_ranks_expand(world, weft_ranks_rows(hole, 2), NULL, &out), WEFT_ERR_INVALID_ARG,
        "row 1 of ranks is empty");
    BAD(weft_ranks_expand(world, weft_ranks_rows(rows, 2), NULL, &out), WEFT_ERR_INVALID_ARG,
        "group sizes must be identical: row 0 has 3 ranks, row 1 has 2");
    BAD(weft_ranks_expand(world, weft_ranks_list(some, 0), NULL, &out), WEFT_ERR_INVALID_ARG,
        "the list of ranks is empty");
    BAD(weft_ranks_expand(world, weft_ranks_list(NULL, 2), NULL, &out), WEFT_ERR_INVALID_ARG,
        "the list of ranks is empty");
    BAD(weft_ranks_expand(world, weft_ranks_list(some, 3), NULL, NULL), WEFT_ERR_INVALID_ARG,
        "weft_ranks_expand: nowhere to expand to");
    BAD(weft_ranks_expand(world, weft_ranks_mesh(mesh), NULL, &out), WEFT_ERR_INVALID_ARG,
        "Only 1D mesh is a group: this one has 2 dimensions; name one of them, or flatten it");
    BAD(weft_ranks_expand(world, weft_ranks_mesh(NULL), NULL, &out), WEFT_ERR_INVALID_ARG,
        "the mesh is NULL");
    BAD(weft_ranks_expand(world, weft_ranks_mesh_dim(mesh, 2), NULL, &out), WEFT_ERR_INVALID_ARG,
        "dimension 2 of a mesh must be in [0, 2)");
    BAD(weft_ranks_expand(world, weft_ranks_group(NULL), NULL, &out), WEFT_ERR_INVALID_ARG,
        "the group is NULL");
    BAD(weft_ranks_expand(world, weft_ranks_group(weft_group_stand_in("s", 4)), NULL, &out),
        WEFT_ERR_STATE, "weft_ranks_expand: group \"s\" is a stand-in, whose ranks are not known");
    BAD(weft_ranks_expand(world, weft_ranks_name("nobody"), NULL, &out), WEFT_ERR_NOT_FOUND,
        "could not resolve the group name \"nobody\": this rank never was in a group of that name");
    BAD(weft_ranks_expand(world, weft_ranks_name(NULL), NULL, &out), WEFT_ERR_INVALID_ARG,
        "weft_group_named: the name is NULL");
    NO(weft_group_of(world, weft_ranks_rows(without, 1), NULL), WEFT_ERR_INVALID_ARG,
       "rank 3 is in none of the 1 rows of ranks");
    NO(weft_group_of(world, weft_ranks_list(some, 3), NULL), WEFT_ERR_NOT_FOUND,
       "rank 3 is in no group of ranks 1,3,5 with no tag; a list names a group, it does not make "
       "one");
    NO(weft_group_of(world, weft_ranks_list(some, 3), "t"), WEFT_ERR_NOT_FOUND,
       "rank 3 is in no group of ranks 1,3,5 with tag t; a list names a group, it does not make "
       "one");
    NO(weft_group_of(world, weft_ranks_list(others, 2), NULL), WEFT_ERR_NOT_FOUND,
       "rank 3 is in no group of ranks 0,2 with no tag; a list names a group, it does not make "
       "one");
    NO(weft_group_of(world, weft_ranks_mesh(mesh), NULL), WEFT_ERR_INVALID_ARG,
       "Only 1D mesh is a group: this one has 2 dimensions; name one of them, or flatten it");
    NO(weft_group_of(NULL, weft_ranks_list(some, 3), NULL), WEFT_ERR_INVALID_ARG,
       "the group is NULL");
    close_world();
}

/* ---- jobs ---- */

TEST(test_refusals_job)
{
    weft_job_info info;
    weft_job_rank rank;
    int missing[4];
    CHECK_OK(weft_scope_open());
    BAD(weft_job_list(NULL, 2), WEFT_ERR_INVALID_ARG, "weft_job_list: no room for the result");
    BAD(weft_job_list(NULL, -1), WEFT_ERR_INVALID_ARG, "weft_job_list: no room for the result");
    BAD(weft_job_describe(NULL, &info), WEFT_ERR_INVALID_ARG,
        "weft_job_describe: the job is NULL, or not one");
    BAD(weft_job_describe_rank(NULL, 0, &rank), WEFT_ERR_INVALID_ARG,
        "weft_job_describe_rank: the job is NULL, or not one");
    BAD(weft_job_missing(NULL, 0, missing, 4), WEFT_ERR_INVALID_ARG,
        "weft_job_missing: the job is NULL, or not one");
    CHECK_OK(weft_scope_close());
}

/* ---- stores ---- */

TEST(test_refusals_store_keys)
{
    CHECK_OK(weft_scope_open());
    weft_store *s = weft_store_local();
    static char huge[8200];
    memset(huge, 'k', sizeof huge - 1);
    const char *keys[] = {"a", "b"}, *holes[] = {"a", NULL};
    weft_store_value value = {0};
    bool truth;
    BAD(weft_store_set(NULL, "k", "v", 1), WEFT_ERR_INVALID_ARG, "weft_store_set: store is NULL");
    BAD(weft_store_set(s, NULL, "v", 1), WEFT_ERR_INVALID_ARG, "weft_store_set: key is NULL");
    BAD(weft_store_set(s, "", "v", 1), WEFT_ERR_INVALID_ARG,
        "weft_store_set: a key has 1 to 8192 bytes, not none");
    BAD(weft_store_set(s, huge, "v", 1), WEFT_ERR_LIMIT,
        "weft_store_set: a key has 1 to 8192 bytes, not more");
    BAD(weft_store_set(s, "k", NULL, 1), WEFT_ERR_INVALID_ARG,
        "weft_store_set: data is NULL but has 1 bytes");
    BAD(weft_store_get(s, "k", WEFT_STORE_NOW, &value), WEFT_ERR_NOT_FOUND,
        "store local: get(\"k\"): no such key");
    BAD(weft_store_get(s, "k", 1, &value), WEFT_ERR_TIMEOUT,
        "store local: get(\"k\"): the deadline passed and not all of the keys were set");
    BAD(weft_store_get(s, "k", -7, &value), WEFT_ERR_INVALID_ARG,
        "weft_store_get: a timeout of -7 ms");
    BAD(weft_store_get(s, "k", 1, NULL), WEFT_ERR_INVALID_ARG, "weft_store_get: out is NULL");
    BAD(weft_store_check(s, 2, NULL, &truth), WEFT_ERR_INVALID_ARG,
        "weft_store_check: keys is NULL");
    BAD(weft_store_check(s, 2, holes, &truth), WEFT_ERR_INVALID_ARG,
        "weft_store_check: key is NULL");
    BAD(weft_store_check(s, 2, keys, NULL), WEFT_ERR_INVALID_ARG, "weft_store_check: out is NULL");
    BAD(weft_store_check(s, 70000, keys, &truth), WEFT_ERR_LIMIT,
        "weft_store_check: 70000 keys in one call; the limit is 65536");
    BAD(weft_store_wait(s, 2, keys, 1), WEFT_ERR_TIMEOUT,
        "store local: wait(\"a\", \"b\"): the deadline passed and not all of the keys were set");
    BAD(weft_store_wait(s, 2, NULL, 1), WEFT_ERR_INVALID_ARG, "weft_store_wait: keys is NULL");
    BAD(weft_store_num_keys(s, NULL), WEFT_ERR_INVALID_ARG, "weft_store_num_keys: out is NULL");
    BAD(weft_store_multi_get(s, 2, keys, 1, NULL), WEFT_ERR_INVALID_ARG,
        "weft_store_multi_get: out is NULL");
    BAD(weft_store_multi_set(s, 2, keys, NULL, NULL), WEFT_ERR_INVALID_ARG,
        "weft_store_multi_set: data is NULL");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_store_queue)
{
    CHECK_OK(weft_scope_open());
    weft_store *s = weft_store_local();
    weft_store_value value = {0};
    int64_t total;
    size_t count;
    BAD(weft_store_queue_pop(s, "q", WEFT_STORE_NOW, &value), WEFT_ERR_EMPTY,
        "store local: queue_pop(\"q\"): nothing queued");
    BAD(weft_store_queue_pop(s, "q", 1, &value), WEFT_ERR_TIMEOUT,
        "store local: queue_pop(\"q\"): the deadline passed and nothing was pushed");
    BAD(weft_store_queue_len(s, "q", NULL), WEFT_ERR_INVALID_ARG,
        "weft_store_queue_len: out is NULL");
    CHECK_OK(weft_store_set(s, "text", "x", 1));
    BAD(weft_store_add(s, "text", 1, &total), WEFT_ERR_TYPE,
        "store local: add(\"text\"): the key holds something that is not a number");
    BAD(weft_store_queue_push(s, "text", "v", 1), WEFT_ERR_TYPE,
        "store local: queue_push(\"text\"): the key holds a value, not a queue");
    CHECK_OK(weft_store_queue_push(s, "queue", "v", 1));
    BAD(weft_store_get(s, "queue", 1, &value), WEFT_ERR_TYPE,
        "store local: get(\"queue\"): the key holds a queue, not a value");
    BAD(weft_store_append(s, "queue", "v", 1), WEFT_ERR_TYPE,
        "store local: append(\"queue\"): the key holds a queue, not a value");
    BAD(weft_store_queue_len(s, "text", &count), WEFT_ERR_TYPE,
        "store local: queue_len(\"text\"): the key holds a value, not a queue");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_store_prefix)
{
    CHECK_OK(weft_scope_open());
    weft_store *s = weft_store_local();
    static char huge[8200];
    memset(huge, 'k', sizeof huge - 1);
    BAD(weft_store_set_timeout(NULL, 1), WEFT_ERR_INVALID_ARG,
        "weft_store_set_timeout: store is NULL");
    NO(weft_store_clone(NULL), WEFT_ERR_INVALID_ARG, "weft_store_clone: store is NULL");
    NO(weft_store_prefix(NULL, s), WEFT_ERR_INVALID_ARG, "weft_store_prefix: prefix is NULL");

    NO(weft_store_prefix(huge, s), WEFT_ERR_LIMIT, "weft_store_prefix: prefix is too long");
    NO(weft_store_prefix("p", NULL), WEFT_ERR_INVALID_ARG, "weft_store_prefix: store is NULL");
    huge[8190] = 0;
    BAD(weft_store_set(weft_store_prefix("pp", s), huge, "v", 1), WEFT_ERR_LIMIT,
        "store \"pp/\" of local: set: prefix and key are over 8,192 bytes together");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_store_served)
{
    CHECK_OK(weft_scope_open());
    NO(weft_store_file(NULL, 1), WEFT_ERR_INVALID_ARG, "weft_store_file: path is empty");
    NO(weft_store_file("", 1), WEFT_ERR_INVALID_ARG, "weft_store_file: path is empty");
    NO(weft_store_file("/nowhere/at/all", 1), WEFT_ERR_IO,
       "store file /nowhere/at/all: open: No such file or directory");
    NO(weft_store_file("/dev/null", 1), WEFT_ERR_INVALID_ARG,
       "store file /dev/null: it is not a regular file");
    NO(weft_store_file("x", -1), WEFT_ERR_INVALID_ARG, "weft_store_file: -1 workers");
    NO(weft_store_tcp_serve(NULL, 70000, long_name), WEFT_ERR_INVALID_ARG,
       "store at 127.0.0.1: port 70000 is not in 0..65535");
    NO(weft_store_tcp_serve("0.0.0.0", 0, long_name), WEFT_ERR_INVALID_ARG,
       "store at 0.0.0.0: a wildcard address would offer the store on every network; name the one "
       "address that the ranks use");
    NO(weft_store_tcp_serve(NULL, 0, "short"), WEFT_ERR_INVALID_ARG,
       "a store over TCP needs the job's token of 64 hexadecimal digits, as argument or in "
       "WEFT_TOKEN; the argument has 5 characters");
    NO(weft_store_tcp_serve(NULL, 0, NULL), WEFT_ERR_INVALID_ARG,
       "a store over TCP needs the job's token of 64 hexadecimal digits, as argument or in "
       "WEFT_TOKEN; WEFT_TOKEN has 0 characters");
    NO(weft_store_tcp_connect(NULL, 0, NULL, 5), WEFT_ERR_INVALID_ARG,
       "weft_store_tcp_connect: port 0 is for servers");
    NO(weft_store_tcp_connect(NULL, -1, NULL, 5), WEFT_ERR_INVALID_ARG,
       "store at 127.0.0.1: port -1 is not in 0..65535");
    NO(weft_store_tcp_connect(NULL, 5, "short", 5), WEFT_ERR_INVALID_ARG,
       "a store over TCP needs the job's token of 64 hexadecimal digits, as argument or in "
       "WEFT_TOKEN; the argument has 5 characters");
    NO(weft_store_unix_serve(NULL), WEFT_ERR_INVALID_ARG,
       "store on a Unix socket: a name has 1 to 107 characters");
    NO(weft_store_unix_serve(""), WEFT_ERR_INVALID_ARG,
       "store on a Unix socket: a name has 1 to 107 characters");
    NO(weft_store_unix_connect(NULL, 5), WEFT_ERR_INVALID_ARG,
       "store on a Unix socket: a name has 1 to 107 characters");
    NO(weft_store_unix_connect("x", -5), WEFT_ERR_INVALID_ARG,
       "weft_store_unix_connect: a timeout of -5 ms");
    NO(weft_store_unix_connect("nobody-is-here", 5), WEFT_ERR_UNREACHABLE,
       "store unix @nobody-is-here: cannot be reached before the deadline: connect: Connection "
       "refused");
    CHECK_OK(weft_scope_close());
}

/* ---- symmetric memory ---- */

TEST(test_refusals_symm_made)
{
    open_world();
    static const int64_t gaps[] = {5, 1}, overlap[] = {0, 1};
    BAD(weft_symm_set_signal_pad_size(63), WEFT_ERR_INVALID_ARG,
        "a signal pad has 64 bytes to 1 GiB, a multiple of 8, not 63");
    BAD(weft_symm_set_signal_pad_size(68), WEFT_ERR_INVALID_ARG,
        "a signal pad has 64 bytes to 1 GiB, a multiple of 8, not 68");
    BAD(weft_symm_set_signal_pad_size(((size_t)1 << 30) + 8), WEFT_ERR_INVALID_ARG,
        "a signal pad has 64 bytes to 1 GiB, a multiple of 8, not 1073741832");
    NO(weft_symm_empty_strided_p2p(WEFT_SHAPE(2, 4), gaps, WEFT_U8, WEFT_CPU, NULL, 0),
       WEFT_ERR_INVALID_ARG,
       "weft_symm_empty: the strides of shape [2, 4] leave gaps or overlap; symmetric memory wants "
       "a dense layout");
    NO(weft_symm_empty_strided_p2p(WEFT_SHAPE(2, 4), overlap, WEFT_U8, WEFT_CPU, NULL, 0),
       WEFT_ERR_INVALID_ARG,
       "weft_symm_empty: the strides of shape [2, 4] leave gaps or overlap; symmetric memory wants "
       "a dense layout");
    NO(weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(-1)), WEFT_ERR_INVALID_ARG,
       "weft_symm_empty: shape [-1] has a negative size");
    NO(weft_symm_empty((weft_dtype)99, WEFT_CPU, WEFT_SHAPE(1)), WEFT_ERR_TYPE,
       "weft_symm_empty: 99 is not a dtype");
    weft_tensor *kept =
        weft_symm_empty_strided_p2p(WEFT_SHAPE(10), NULL, WEFT_U8, WEFT_CPU, NULL, 41);
    NO(weft_symm_empty_strided_p2p(WEFT_SHAPE(10), NULL, WEFT_U8, WEFT_CPU, NULL, 41),
       WEFT_ERR_STATE, "persistent allocation 41 is still in use: release its tensors first");
    NO(weft_symm_empty_strided_p2p(WEFT_SHAPE(11), NULL, WEFT_U8, WEFT_CPU, NULL, 41),
       WEFT_ERR_INVALID_ARG, "persistent allocation 41 has 10 bytes; asked for 11");
    weft_release(kept);
    CHECK_OK(weft_symm_forget(41));
    BAD(weft_symm_forget(41), WEFT_ERR_NOT_FOUND, "there is no persistent allocation 41");
    NO(weft_symm_pool_new(WEFT_CPU, SIZE_MAX), WEFT_ERR_INVALID_ARG,
       "weft_symm_pool_new: 18446744073709551615 bytes make no pool");
    weft_symm_pool *pool = weft_symm_pool_new(WEFT_CPU, 256);
    NO(weft_symm_pool_empty(NULL, WEFT_U8, WEFT_SHAPE(1)), WEFT_ERR_INVALID_ARG,
       "the pool is NULL");
    NO(weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(20, 5)), WEFT_ERR_NO_SPACE,
       "no gap of 400 bytes for f32 of shape [20, 5] in a pool of 256 bytes");
    close_world();
}

TEST(test_refusals_symm_buffer)
{
    weft_group *world = open_world();
    weft_tensor *plain = weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(16));
    NO(weft_symm_rendezvous(plain, world), WEFT_ERR_TYPE,
       "rendezvous: the tensor is not symmetric memory; make it with weft_symm_empty");
    NO(weft_symm_rendezvous(NULL, world), WEFT_ERR_INVALID_ARG, "rendezvous: the tensor is NULL");
    weft_tensor *x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(17));
    NO(weft_symm_rendezvous(x, NULL), WEFT_ERR_INVALID_ARG,
       "rendezvous: no group was given and the memory has no default group");
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    NO(weft_symm_buffer(NULL, 0, WEFT_SHAPE(1), WEFT_U8, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: the handle is NULL");
    NO(weft_symm_buffer(mem, 8, WEFT_SHAPE(1), WEFT_U8, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: invalid peer: rank 8 must be in [0, 8)");
    NO(weft_symm_buffer(mem, -1, WEFT_SHAPE(1), WEFT_U8, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: invalid peer: rank -1 must be in [0, 8)");
    NO(weft_symm_buffer(mem, ME, WEFT_SHAPE(1), WEFT_U8, -1), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: the offset -1 must be non-negative");
    NO(weft_symm_buffer(mem, ME, WEFT_SHAPE(18), WEFT_U8, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: shape [18] at offset 0 (1 bytes each) exceeds the 17 bytes there are");
    NO(weft_symm_buffer(mem, ME, WEFT_SHAPE(2), WEFT_I64, 1), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: shape [2] at offset 1 (8 bytes each) exceeds the 17 bytes there are");
    NO(weft_symm_buffer(mem, ME, WEFT_SHAPE(1), (weft_dtype)99, 0), WEFT_ERR_TYPE,
       "weft_symm_buffer: 99 is not a dtype");
    NO(weft_symm_signal_pad(mem, ME, WEFT_SHAPE(100000), WEFT_U32, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_signal_pad: shape [100000] at offset 0 (4 bytes each) exceeds the 9216 bytes "
       "there are");
    NO(weft_symm_remote_tensor(mem, ME, WEFT_SHAPE(3), WEFT_I64), WEFT_ERR_INVALID_ARG,
       "weft_symm_remote_tensor: shape [3] at offset 0 (8 bytes each) exceeds the 17 bytes there "
       "are");
    weft_symm *part = weft_symm_rendezvous(weft_narrow(x, 0, 1, 8), world);
    NO(weft_symm_remote_tensor(part, ME, WEFT_SHAPE(1), WEFT_I64), WEFT_ERR_INVALID_ARG,
       "weft_symm_remote_tensor: byte 1, where the tensor begins, is no place for elements of i64");
    NO(weft_symm_tensor(NULL, 0), WEFT_ERR_INVALID_ARG, "weft_symm_tensor: the handle is NULL");
    NO(weft_symm_tensor(mem, 8), WEFT_ERR_INVALID_ARG,
       "weft_symm_tensor: invalid peer: rank 8 must be in [0, 8)");
    CHECK_INT(symm_info(part).offset, 1);
    BAD(weft_symm_describe(NULL, NULL), WEFT_ERR_INVALID_ARG,
        "weft_symm_describe: the handle is NULL");
    BAD(weft_symm_describe(part, NULL), WEFT_ERR_INVALID_ARG,
        "weft_symm_describe: the result is NULL");
    close_world();
}

TEST(test_refusals_symm_signal)
{
    weft_group *world = open_world();
    weft_tensor *x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(17));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    BAD(weft_symm_barrier(NULL, 0, 5), WEFT_ERR_INVALID_ARG,
        "weft_symm_barrier: the handle is NULL");
    BAD(weft_symm_barrier(mem, -1, 5), WEFT_ERR_INVALID_ARG,
        "weft_symm_barrier: channel -1 exceeds the maximum supported channel: must be in [0, 288) "
        "for a pad of 9216 bytes and 8 ranks");
    BAD(weft_symm_barrier(mem, 100000, 5), WEFT_ERR_INVALID_ARG,
        "weft_symm_barrier: channel 100000 exceeds the maximum supported channel: must be in [0, "
        "288) for a pad of 9216 bytes and 8 ranks");
    BAD(weft_symm_barrier(mem, 0, -3), WEFT_ERR_INVALID_ARG,
        "weft_symm_barrier: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not -3");
    BAD(weft_symm_put_signal(mem, 8, 0, 5), WEFT_ERR_INVALID_ARG,
        "weft_symm_put_signal: rank 8 must be in [0, 8)");
    BAD(weft_symm_put_signal(NULL, 0, 0, 5), WEFT_ERR_INVALID_ARG,
        "weft_symm_put_signal: the handle is NULL");
    BAD(weft_symm_wait_signal(mem, -1, 0, 5), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: rank -1 must be in [0, 8)");
    BAD(weft_symm_wait_signal(mem, 0, -1, 5), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: channel -1 exceeds the maximum supported channel: must be in [0, "
        "288) for a pad of 9216 bytes and 8 ranks");
    close_world();
}

TEST(test_refusals_symm_backend)
{
    weft_group *world = open_world();
    weft_connectivity links;
    CHECK(weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(17))); /* fixes the backend */
    BAD(weft_symm_set_backend(WEFT_CPU, "nothing"), WEFT_ERR_NOT_FOUND,
        "\"nothing\" is not a backend of this build that makes memory on cpu");
    BAD(weft_symm_set_backend(WEFT_CPU, "threads"), WEFT_ERR_STATE,
        "this thread has already allocated symmetric memory with backend shm");
    BAD(weft_symm_detect_connectivity(world, WEFT_CPU, "string", &links), WEFT_ERR_NOT_FOUND,
        "there is no detector of connection \"string\" for cpu");
    NO(weft_symm_workspace(NULL, WEFT_CPU, 5), WEFT_ERR_INVALID_ARG, "the group is NULL");
    close_world();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

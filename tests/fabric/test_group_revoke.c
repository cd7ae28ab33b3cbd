/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_end.c, fabric/group/group_shrink.c, fabric/world/lineage.c */
/*
 * Revoking a group ends all that was made from it, and all that is being made from it, on every
 * rank and within milliseconds; what others made is left alone, and shrinking gathers all who live.
 */
#include "jobs.h"

enum { LIMIT_MS = 60000, SOON_MS = 30000 }; /* far apart: a rank that waits for its limit is seen */

typedef enum making { NEW, BLOCKS, LISTS, SPLIT, SPLIT_LISTS, MESH, TAGGED, MAKINGS } making;

static weft_status status_of(const void *made)
{
    return made ? WEFT_OK : weft_last_status();
}

/* All but the last rank make a group that the last one belongs to as well. */
static weft_status make(making how, weft_group *world, int size)
{
    int all[8];
    for (int i = 0; i < size; i++)
        all[i] = i;
    weft_rank_list list = {all, size};
    weft_group_opts tagged = WEFT_GROUP_OPTS_INIT;
    tagged.tag = "tagged";
    switch (how) {
    case NEW:
        return status_of(weft_group_new(world, all, size, NULL));
    case BLOCKS:
        return status_of(weft_group_new_blocks(world, size, NULL));
    case LISTS:
        return status_of(weft_group_new_lists(world, &list, 1, NULL));
    case SPLIT:
        return status_of(weft_group_split(world, 0, 0));
    case SPLIT_LISTS:
        return status_of(weft_group_split_lists(world, &list, 1, NULL));
    case MESH:
        return status_of(weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(size), all, NULL));
    default:
        return status_of(weft_group_new_with(world, all, size, &tagged));
    }
}

/* The ranks that live go on together. */
static weft_group *go_on(weft_group *old, int size)
{
    weft_group *group = weft_group_shrink(old);
    if (!group)
        FAIL("weft_group_shrink: %s", weft_last_error());
    CHECK_INT(weft_size(group), size);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    CHECK(weft_item(x, 2) == size);
    return group;
}

static void run_makings(int rank, int size, making how)
{
    weft_group *world = join(LIMIT_MS);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == size - 1) {
        harness_await_marks(size - 1); /* the others are about to wait for us */
        rest_us(2000);
        CHECK_OK(weft_group_revoke(world));
    } else {
        harness_mark();
        long long began = harness_now();
        CHECK_STATUS(make(how, world, size), WEFT_ERR_REVOKED);
        CHECK_CONTAINS(weft_last_error(), "revoked");
        CHECK((harness_now() - began) / 1000000 < SOON_MS);
    }
    CHECK_STATUS(make(how, world, size), WEFT_ERR_REVOKED); /* at once */
    weft_clear_error();
    weft_group *group = go_on(world, size);
    CHECK_OK(make(how, group, size)); /* and from there all can be made */
    finish(world);
}

#define MAKING_TEST(name_, how_)       \
    RANKS_TEST(test_revoke_##name_, 3) \
    {                                  \
        run_makings(rank, size, how_); \
    }

MAKING_TEST(new, NEW)
MAKING_TEST(new_blocks, BLOCKS)
MAKING_TEST(new_lists, LISTS)
MAKING_TEST(split, SPLIT)
MAKING_TEST(split_lists, SPLIT_LISTS)
MAKING_TEST(mesh, MESH)
MAKING_TEST(tagged, TAGGED)

/* Of world > child > grandchild the child is revoked: those who wait in the grandchild are told,
 * the world works on. */
RANKS_TEST(test_revoke_lineage, 3)
{
    static const int all[] = {0, 1, 2};
    weft_group *world = join(LIMIT_MS);
    weft_group *child = weft_group_new(world, all, 3, "child");
    weft_group *grandchild = weft_group_new(child, all, 3, "grandchild");
    weft_group *sibling = weft_group_new(world, all, 3, "sibling");
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, grandchild));
    if (rank == 2) {
        harness_await_marks(2);
        rest_us(2000);
        CHECK_OK(weft_group_revoke(child));
    } else {
        harness_mark();
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, grandchild), WEFT_ERR_REVOKED);
        CHECK_CONTAINS(weft_last_error(), "rank 2 of group \"child\"");
        CHECK_CONTAINS(weft_last_error(), "grandchild");
    }
    CHECK_STATUS(weft_send(x, (rank + 1) % 3, grandchild), WEFT_ERR_REVOKED);
    CHECK_STATUS(weft_group_barrier(grandchild, WEFT_DEFAULT), WEFT_ERR_REVOKED);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, sibling));
    /* The shrunk child takes its place: revoking the world ends it too, revoking the child again
     * does not. */
    weft_group *again = go_on(child, 3);
    CHECK_OK(weft_group_revoke(child));
    CHECK_OK(weft_group_barrier(again, WEFT_DEFAULT));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_group_revoke(world));
    CHECK_STATUS(weft_group_barrier(again, WEFT_DEFAULT), WEFT_ERR_REVOKED);
    CHECK_STATUS(weft_group_barrier(sibling, WEFT_DEFAULT), WEFT_ERR_REVOKED);
    weft_clear_error();
    go_on(world, 3);
    finish(world);
}

/* One rank still makes a group of the very ranks that the others shrink to. */
RANKS_TEST(test_revoke_new_and_shrink, 3)
{
    static const int all[] = {0, 1, 2};
    weft_group *world = join(LIMIT_MS);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0) {
        harness_mark();
        CHECK(!weft_group_new(world, all, 3, NULL));
        CHECK_INT(weft_last_status(), WEFT_ERR_REVOKED);
        weft_clear_error();
    } else {
        harness_await_marks(1);
        CHECK_OK(weft_group_revoke(world));
    }
    go_on(world, 3);
    finish(world);
}

/* A collective that broke off ends its own group only: groups of those who live work on. */
RANKS_TEST(test_revoke_is_not_breaking_off, 3)
{
    static const int two[] = {0, 1};
    weft_group *world = join(LIMIT_MS);
    weft_group *pair = weft_group_new(world, two, 2, NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    if (rank < 2) {
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_PEER_LEFT);
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, pair));
        CHECK(weft_group_new(world, two, 2, NULL));
    }
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

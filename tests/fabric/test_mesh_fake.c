/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/mesh/mesh.c, fabric/mesh/mesh_new.c, fabric/mesh/mesh_slice.c */
/* Meshes of a fake world of eight: every rank sees what counting says. */
#include "fault.h"
#include "fence.h"
#include "group_by_hand.h"
#include "harness.h"
#include "memory_count.h"

#include <weft/weft.h>

enum { WORLD = 8 };

static weft_mesh *mesh_of(int me, weft_shape shape, const char *names)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(me, WORLD);
    weft_group *world = weft_fake_init(&opts);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, shape, names);
    if (!mesh)
        FAIL("%s", weft_last_error());
    return mesh;
}

static void expect_ranks(const weft_mesh *mesh, int count, const int *ranks)
{
    CHECK(mesh && weft_mesh_size(mesh, WEFT_MESH_ONLY) == count);
    for (int i = 0; i < count; i++)
        CHECK_INT(weft_mesh_ranks(mesh)[i], ranks[i]);
}

static void expect_group(weft_group *group, int count, const int *ranks, int me)
{
    CHECK(group && weft_size(group) == count);
    for (int i = 0; i < count; i++)
        CHECK_INT(weft_group_rank_of(group, ranks[i]), i);
    CHECK_INT(weft_group_rank_of(group, me), weft_rank(group));
}

TEST(test_mesh_fake_of_eight)
{
    for (int me = 0; me < WORLD; me++) {
        CHECK_OK(weft_scope_open());
        weft_mesh *mesh = mesh_of(me, WEFT_SHAPE(2, 2, 2), "a,b,c");
        int at[3], where[] = {me / 4, me / 2 % 2, me % 2}, step[] = {4, 2, 1};
        CHECK_OK(weft_mesh_coordinate(mesh, at));
        static const char *const names[] = {"a", "b", "c"};
        for (int dim = 0; dim < 3; dim++) {
            int line[2] = {me - where[dim] * step[dim], me + (1 - where[dim]) * step[dim]};
            CHECK_INT(at[dim], where[dim]);
            CHECK_INT(weft_mesh_local_rank(mesh, dim), where[dim]);
            CHECK(weft_mesh_dim(mesh, names[dim]) == dim);
            CHECK(!strcmp(weft_mesh_dim_name(mesh, dim), names[dim]));
            expect_group(weft_mesh_group(mesh, dim), 2, line, me);
            weft_mesh *slice = weft_mesh_slice(mesh, names[dim]);
            expect_ranks(slice, 2, line);
            CHECK_INT(weft_mesh_ndim(slice), 1);
            for (int other = dim + 1; other < 3; other++) {
                char both[8];
                snprintf(both, sizeof both, "%s,%s", names[dim], names[other]);
                int base = me - where[dim] * step[dim] - where[other] * step[other];
                int square[] = {base, base + step[other], base + step[dim],
                                base + step[dim] + step[other]};
                weft_mesh *part = weft_mesh_slice(mesh, both);
                expect_ranks(part, 4, square);
                weft_mesh *flat = weft_mesh_flatten(part, NULL);
                expect_ranks(flat, 4, square);
                CHECK_INT(weft_mesh_ndim(flat), 1);
                CHECK_INT(weft_mesh_local_rank(flat, 0), 2 * where[dim] + where[other]);
                expect_group(weft_mesh_group(flat, 0), 4, square, me);
                char joined[8];
                snprintf(joined, sizeof joined, "%s_%s", names[dim], names[other]);
                CHECK(!strcmp(weft_mesh_dim_name(flat, 0), joined));
            }
        }
        int all[WORLD] = {0, 1, 2, 3, 4, 5, 6, 7};
        expect_ranks(mesh, WORLD, all);
        expect_ranks(weft_mesh_flatten(mesh, "world"), WORLD, all);
        char text[200];
        CHECK(weft_mesh_text(mesh, text, sizeof text) > 0);
        CHECK(!strcmp(text,
                      "mesh of 2 x 2 x 2 on cpu (a, b, c): [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]"));
        CHECK_OK(weft_scope_close());
    }
    weft_clear_error();
}

TEST(test_mesh_fake_unflattened)
{
    for (int me = 0; me < WORLD; me++) {
        CHECK_OK(weft_scope_open());
        weft_mesh *line = mesh_of(me, WEFT_SHAPE(8), "all");
        weft_mesh *grid = weft_mesh_unflatten(line, 0, WEFT_SHAPE(4, 2), "r,c");
        int all[WORLD] = {0, 1, 2, 3, 4, 5, 6, 7}, at[2];
        expect_ranks(grid, WORLD, all);
        CHECK_OK(weft_mesh_coordinate(grid, at));
        CHECK(at[0] == me / 2 && at[1] == me % 2);
        int column[] = {me % 2, me % 2 + 2, me % 2 + 4, me % 2 + 6};
        expect_group(weft_mesh_group(grid, 0), 4, column, me);
        expect_group(weft_mesh_group_named(grid, "c"), 2, (int[]){me & ~1, me | 1}, me);
        weft_clear_error();
        CHECK(!weft_mesh_unflatten(line, 0, WEFT_SHAPE(4, 3), "x,y"));
        CHECK(!weft_mesh_unflatten(line, 1, WEFT_SHAPE(4, 2), "x,y"));
        CHECK(!weft_mesh_unflatten(line, 0, WEFT_SHAPE(4, 2), "x"));
        CHECK(!weft_mesh_slice(line, "nobody") && !weft_mesh_slice(line, NULL));
        CHECK(!weft_mesh_slice(NULL, "all"));
        weft_mesh *same = mesh_of(me, WEFT_SHAPE(8), "all"),
                  *other = mesh_of(me, WEFT_SHAPE(8), "b");
        CHECK(weft_mesh_equal(line, same) && weft_mesh_hash(line) == weft_mesh_hash(same));
        CHECK(!weft_mesh_equal(line, other) && !weft_mesh_equal(line, grid));
        weft_clear_error();
        CHECK_OK(weft_scope_close());
    }
}

/* Groups of two jobs make no mesh, whichever of them is the odd one. */
TEST(test_mesh_fake_of_two_jobs)
{
    CHECK_OK(weft_scope_open());
    static const int zero[] = {0};
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 1);
    weft_group *a = weft_fake_init(&opts), *b = weft_fake_init(&opts);
    weft_group *lists[][3] = {{a, b, b}, {a, a, b}, {a, b, a}};
    static const char *const words[] = {"groups 0 and 1 are", "groups 0 and 2 are",
                                        "groups 0 and 1 are"};
    CHECK(a && b && a != b);
    for (int i = 0; i < 3; i++) {
        CHECK(!weft_mesh_from_groups(lists[i], 3, WEFT_CPU, WEFT_SHAPE(1, 1, 1), zero, "x,y,z"));
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), words[i]);
        weft_clear_error();
    }
    weft_group *same[] = {a, a, a};
    CHECK(weft_mesh_from_groups(same, 3, WEFT_CPU, WEFT_SHAPE(1, 1, 1), zero, "x,y,z"));
    CHECK_OK(weft_scope_close());
}

/* Groups of lines without a name are described by their dimension. */
TEST(test_mesh_fake_descriptions)
{
    CHECK_OK(weft_scope_open());
    weft_mesh *plain = mesh_of(3, WEFT_SHAPE(2, 4), NULL),
              *named = mesh_of(3, WEFT_SHAPE(4, 2), "a,b");
    CHECK(!strcmp(weft_group_description(weft_mesh_group(plain, 0)), "mesh_dim_0"));
    CHECK(!strcmp(weft_group_description(weft_mesh_group(plain, 1)), "mesh_dim_1"));
    CHECK(!strcmp(weft_group_description(weft_mesh_group(named, 1)), "mesh_b"));
    CHECK_OK(weft_scope_close());
}

/* A mesh that is refused keeps nothing until the scope ends. */
TEST(test_mesh_fake_refused_keeps_nothing)
{
    CHECK_OK(weft_scope_open());
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 12);
    weft_mesh *mesh = weft_mesh_init(weft_fake_init(&opts), WEFT_CPU, WEFT_SHAPE(3, 2, 2), "a,b,c");
    weft_mesh *flat = weft_mesh_flatten(weft_mesh_slice(mesh, "a,c"), "ac");
    CHECK(flat && weft_mesh_size(flat, WEFT_MESH_ONLY) == 6);
    CHECK(!weft_mesh_unflatten(flat, 0, WEFT_SHAPE(2, 3), "x,y")); /* the message takes memory */
    CHECK_CONTAINS(weft_last_error(), "cannot be cut across them");
    count_begin();
    for (int i = 0; i < 10; i++)
        CHECK(!weft_mesh_unflatten(flat, 0, WEFT_SHAPE(2, 3), "x,y"));
    CHECK_INT(count_end(), 0);
    weft_mesh *parts = weft_mesh_unflatten(flat, 0, WEFT_SHAPE(3, 2), "x,y");
    CHECK(parts && weft_mesh_ndim(parts) == 2);
    /* Products are those of the numbers, not of what is left of them. */
    static const weft_shape wrong[] = {
        {3, {6, 6, 6}}, {2, {6, 0}}, {2, {7, 1}}, {2, {-6, -1}}, {1, {5}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!weft_mesh_unflatten(flat, 0, wrong[i], i == 0 ? "x,y,z" : i < 4 ? "x,y" : "x"));
        CHECK_CONTAINS(weft_last_error(),
                       "the product of the sizes must be 6, the size of dimension 0");
    }
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

/* 223 ranks in parts whose product is 223 + 2573 * 2^40: whatever is left of it in how many bits. */
TEST(test_mesh_fake_vast_parts)
{
    CHECK_OK(weft_scope_open());
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 223);
    weft_mesh *line = weft_mesh_init(weft_fake_init(&opts), WEFT_CPU, WEFT_SHAPE(223), "all");
    CHECK(line);
    CHECK(!weft_mesh_unflatten(line, 0, WEFT_SHAPE(149, 107, 103, 89, 219, 183, 161, 3),
                               "a,b,c,d,e,f,g,h"));
    CHECK_CONTAINS(weft_last_error(), "the product of the sizes must be 223");
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

/* ---- without memory ---- */

static weft_mesh *make_one(weft_group *world, int which)
{
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "a,b");
    if (which == 1)
        return weft_mesh_unflatten(mesh, 1, WEFT_SHAPE(2, 2), "c,d");
    if (which == 2)
        return weft_mesh_flatten(mesh, "flat");
    if (which == 4) {
        weft_group *groups[] = {world};
        return weft_mesh_from_groups(groups, 1, WEFT_CPU, WEFT_SHAPE(WORLD), NULL, "all");
    }
    return which == 3 ? weft_mesh_slice(mesh, "b") : mesh;
}

/* A mesh is whole, with the groups of all its lines, or not there, with a reason. */
TEST(test_mesh_fake_without_memory)
{
    static const int dims[] = {2, 3, 1, 1, 1};
    for (int which = 0; which < 5; which++) {
        int n = 1, failed = 0;
        for (bool fired = true; fired; n++) {
            CHECK_OK(weft_scope_open());
            weft_fake_opts opts = WEFT_FAKE_OPTS(5, WORLD);
            weft_group *world = weft_fake_init(&opts);
            CHECK(world);
            weft_clear_error();
            fault_arm(n);
            weft_mesh *mesh = make_one(world, which);
            fired = fault_disarm();
            failed += !mesh;
            CHECK(mesh || (fired && weft_last_status() < 0 && weft_last_error()[0]));
            weft_clear_error();
            if (mesh)
                CHECK_INT(weft_mesh_ndim(mesh), dims[which]);
            for (int dim = 0; mesh && dim < dims[which]; dim++)
                if (!weft_mesh_group(mesh, dim))
                    FAIL("call %d of %d: no group along %d: %s", n, which, dim, weft_last_error());
            weft_clear_error();
            CHECK_OK(weft_scope_close());
        }
        CHECK(failed > 5 && n < 400);
    }
}

/* Ranks, lines, steps and notes are read as far as they go. */
TEST(test_mesh_fake_fenced)
{
    static const int dims[] = {2, 3, 1, 1, 1};
    for (int which = 0; which < 5; which++) {
        CHECK_OK(weft_scope_open());
        weft_fake_opts opts = WEFT_FAKE_OPTS(5, WORLD);
        fence_on();
        weft_group *world = weft_fake_init(&opts);
        CHECK_INT(weft_group_rank_of(world, -1), -1);
        weft_mesh *mesh = make_one(world, which);
        fence_off();
        if (!mesh)
            FAIL("%d: %s", which, weft_last_error());
        CHECK_INT(weft_mesh_ndim(mesh), dims[which]);
        for (int dim = 0; dim < dims[which]; dim++) {
            weft_group *group = weft_mesh_group(mesh, dim);
            CHECK(group && weft_group_rank_of(group, -1) == -1);
            CHECK_INT(weft_group_rank_of(group, WORLD), -1);
            CHECK_INT(weft_group_world_rank(group, weft_size(group)), -1);
        }
        CHECK_OK(weft_scope_close());
    }
}

/* One name more than there are dimensions, of which there cannot be more. */
TEST(test_mesh_fake_names_for_eight)
{
    CHECK_OK(weft_scope_open());
    weft_fake_opts opts = WEFT_FAKE_OPTS(5, WORLD);
    weft_group *world = weft_fake_init(&opts);
    weft_shape shape = {8, {1, 1, 1, 1, 1, 1, 1, WORLD}};
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, shape, "a,b,c,d,e,f,g,h");
    CHECK(mesh && weft_mesh_dim(mesh, "h") == 7);
    CHECK(weft_mesh_dim(mesh, "i") == -1 && weft_last_status() == WEFT_ERR_NOT_FOUND);
    CHECK(!weft_mesh_init(world, WEFT_CPU, shape, "a,b,c,d,e,f,g,h,i"));
    CHECK(!strcmp(weft_last_error(), "9 names for 8 dimensions of a mesh: \"a,b,c,d,e,f,g,h,i\""));
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

/* A stand-in, which has no world to go with, goes by itself. */
TEST(test_mesh_fake_stand_ins_go)
{
    weft_release(weft_group_stand_in("dp", 3)); /* what is made once is made */
    count_begin();
    for (int i = 0; i < 3; i++)
        weft_release(weft_group_stand_in("dp", 3));
    CHECK_INT(count_end(), 0);
}

/* A rank that cannot compare shows that to the others, who wait for what it gave. */
TEST(test_mesh_cannot_compare)
{
    int shown = 0;
    for (int n = 1; n < 60 && !shown; n++) {
        hand_open();
        hand.group->timeout_ms = 1;
        hand.world->registry.root = hand.above;
        fault_arm(n);
        weft_mesh *mesh =
            weft_mesh_from_groups(&hand.group, 1, WEFT_CPU, WEFT_SHAPE(HAND_SIZE), NULL, "all");
        bool fired = fault_disarm();
        CHECK(!mesh && fired);
        if (!strcmp(weft_last_error(), "no memory to compare a mesh among 4 ranks")) {
            CHECK_INT(weft_last_status(), WEFT_ERR_NO_MEMORY);
            CHECK(!strcmp(hand.row[HAND_ME].op, "mesh_from"));
            CHECK_INT(hand.group->sequence, 1);
            shown++;
        }
        hand.world->registry.root = NULL;
        hand_close();
    }
    CHECK_INT(shown, 1);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/mesh/ranks.c, fabric/group/rank_list.c */
/* Namings of groups: what each expands to, which group it means, and every error. */
#include "fault.h"
#include "jobs.h"

#include "fabric/group/rank_list.h"

#include <weft/weft.h>

/* Expands and compares with what is expected. */
static void check_expand(weft_group *any, weft_ranks what, const char *tag, const char *expected,
                         const int *ranks, int count, int size)
{
    weft_expansion x;
    if (weft_ranks_expand(any, what, tag, &x) < 0)
        FAIL("expand: %s", weft_last_error());
    bool same = !strcmp(x.tag, expected) && x.count == count && x.size == size;
    for (int i = 0; same && i < count; i++)
        same = x.ranks[i] == ranks[i];
    if (!same)
        FAIL("tag \"%s\", %d ranks from %d, size %d", x.tag, x.count, x.ranks[0], x.size);
    weft_expansion_clear(&x);
    CHECK(!x.ranks);
}

static void check_refused(weft_group *any, weft_ranks what, weft_status status, const char *words)
{
    weft_expansion x;
    weft_clear_error();
    CHECK_STATUS(weft_ranks_expand(any, what, "", &x), status);
    CHECK_CONTAINS(weft_last_error(), words);
    CHECK(!x.ranks);
    weft_clear_error();
    CHECK(!weft_group_of(any, what, ""));
    CHECK_STATUS(weft_last_status(), status);
    CHECK_CONTAINS(weft_last_error(), words);
}

static const int all[] = {0, 1, 2, 3};

RANKS_TEST(test_expand_1d_rank_list, 4)
{
    weft_group *world = join(0);
    check_expand(world, weft_ranks_list(all, 4), "", "", all, 4, 4);
    check_expand(NULL, weft_ranks_list(all, 4), "bla", "bla", all, 4, 4);
    check_expand(NULL, weft_ranks_list(all + 3, 1), NULL, "", all + 3, 1, 1);
    check_refused(world, weft_ranks_list(all, 0), WEFT_ERR_INVALID_ARG, "empty");
    check_refused(world, weft_ranks_list(NULL, 4), WEFT_ERR_INVALID_ARG, "empty");
    finish(world);
}

RANKS_TEST(test_expand_2d_rank_list, 4)
{
    weft_group *world = join(0);
    weft_rank_list rows[] = {{all, 2}, {all + 2, 2}}, ragged[] = {{all, 1}, {all + 1, 3}};
    weft_rank_list hole[] = {{all, 2}, {all, 0}};
    check_expand(world, weft_ranks_rows(rows, 2), "", "", all, 4, 2);
    check_expand(world, weft_ranks_rows(rows, 2), "blu", "blu", all, 4, 2);
    check_refused(world, weft_ranks_rows(ragged, 2), WEFT_ERR_INVALID_ARG,
                  "group sizes must be identical");
    weft_rank_list lone[] = {{all, 1}, {all + 2, 1}, {all + 1, 1}}, null[] = {{NULL, 2}, {all, 2}};
    check_expand(NULL, weft_ranks_rows(lone, 3), "", "", (const int[]){0, 2, 1}, 3, 1);
    check_refused(world, weft_ranks_rows(hole, 2), WEFT_ERR_INVALID_ARG, "row 1 of ranks is empty");
    check_refused(world, weft_ranks_rows(null, 2), WEFT_ERR_INVALID_ARG, "row 0");
    check_refused(world, weft_ranks_rows(NULL, 2), WEFT_ERR_INVALID_ARG, "rows of ranks is empty");
    check_refused(world, weft_ranks_rows(rows, 0), WEFT_ERR_INVALID_ARG, "empty");
    finish(world);
}

/* Without memory for the list it says how long the list is, and gives nothing out. */
TEST(test_expand_without_memory)
{
    weft_rank_list rows[] = {{all, 1}, {all + 1, 1}, {all + 2, 1}};
    weft_ranks what[] = {weft_ranks_list(all + 3, 1), weft_ranks_rows(rows, 3)};
    const char *words[] = {"no memory for a list of 1 ranks", "no memory for a list of 3 ranks"};
    for (int i = 0; i < 2; i++) {
        weft_expansion x = {.count = 7};
        fault_arm(1);
        weft_status status = weft_ranks_expand(NULL, what[i], "", &x);
        CHECK(fault_disarm());
        CHECK_STATUS(status, WEFT_ERR_NO_MEMORY);
        CHECK(!strcmp(weft_last_error(), words[i]));
        CHECK(!x.ranks && !x.count && !x.size);
    }
}

RANKS_TEST(test_expand_process_group, 4)
{
    weft_group *world = join(0);
    check_expand(NULL, weft_ranks_group(world), "", weft_group_tag(world), all, 4, 4);
    check_expand(NULL, weft_ranks_group(world), "bla", "bla", all, 4, 4);
    weft_group *half = weft_group_new_blocks(world, 2, NULL);
    CHECK(half);
    check_expand(world, weft_ranks_group(half), "", weft_group_tag(half), weft_group_ranks(half), 2,
                 2);
    weft_group *mine = NULL;
    for (int i = 0; i < 4; i++) { /* every rank makes all of them, and gets its own */
        weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
        opts.tag = "my_pg";
        weft_group *made = weft_group_new_with(world, &i, 1, &opts);
        CHECK((made != NULL) == (i == rank));
        mine = made ? made : mine;
    }
    check_expand(world, weft_ranks_group(mine), "", "my_pg", &rank, 1, 1);
    check_expand(world, weft_ranks_group(mine), "bla", "bla", &rank, 1, 1);
    check_refused(world, weft_ranks_group(NULL), WEFT_ERR_INVALID_ARG, "group is NULL");
    weft_expansion x = {.count = 7};
    CHECK_STATUS(weft_ranks_expand(NULL, weft_ranks_group(weft_group_stand_in("s", 2)), "", &x),
                 WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "stand-in, whose ranks are not known");
    CHECK(!x.ranks && !x.count);
    char tag[WEFT_TAG_BYTES + 1];
    memset(tag, 't', sizeof tag);
    tag[WEFT_TAG_BYTES] = 0; /* one too long */
    CHECK_STATUS(weft_ranks_expand(NULL, weft_ranks_group(world), tag, &x), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "at most 63 characters");
    tag[WEFT_TAG_BYTES - 1] = 0;
    check_expand(NULL, weft_ranks_group(world), tag, tag, all, 4, 4);
    CHECK_STATUS(weft_ranks_expand(NULL, weft_ranks_group(world), "", NULL), WEFT_ERR_INVALID_ARG);
    weft_expansion_clear(NULL);
    finish(world);
}

RANKS_TEST(test_expand_device_mesh, 4)
{
    weft_group *world = join(0);
    for (int i = 0; i < 2; i++) {
        weft_mesh *mesh = weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(4), all, NULL);
        if (!mesh)
            FAIL("%s", weft_last_error());
        weft_group *group = weft_mesh_group(mesh, 0);
        check_expand(world, weft_ranks_mesh(mesh), "", weft_group_tag(group), all, 4, 4);
        CHECK(weft_group_of(world, weft_ranks_mesh(mesh), "") == group);
    }
    finish(world);
}

/* A rank outside a mesh is in no group of it. */
RANKS_TEST(test_expand_device_mesh_outside, 2)
{
    weft_group *world = join(0);
    weft_mesh *mesh = weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(1), all + 1, "x");
    CHECK(mesh && weft_size(world) == size);
    if (rank == 0) {
        check_refused(world, weft_ranks_mesh(mesh), WEFT_ERR_STATE, "rank 0 is not in the mesh");
        check_refused(world, weft_ranks_mesh_dim(mesh, 0), WEFT_ERR_STATE, "is not in the mesh");
    } else {
        check_expand(world, weft_ranks_mesh_dim(mesh, 0), "t", "t", all + 1, 1, 1);
    }
    finish(world);
}

RANKS_TEST(test_expand_device_mesh_tuple, 4)
{
    weft_group *world = join(0);
    weft_mesh *mesh = weft_mesh_new(world, WEFT_CPU, WEFT_SHAPE(2, 2), all, NULL);
    if (!mesh)
        FAIL("%s", weft_last_error());
    check_refused(world, weft_ranks_mesh(mesh), WEFT_ERR_INVALID_ARG, "Only 1D mesh");
    int down[] = {rank % 2, rank % 2 + 2}, across[] = {rank / 2 * 2, rank / 2 * 2 + 1};
    weft_group *groups[] = {weft_mesh_group(mesh, 0), weft_mesh_group(mesh, 1)};
    check_expand(NULL, weft_ranks_mesh_dim(mesh, 0), "", weft_group_tag(groups[0]), down, 2, 2);
    check_expand(NULL, weft_ranks_mesh_dim(mesh, 1), "", weft_group_tag(groups[1]), across, 2, 2);
    CHECK(weft_group_of(NULL, weft_ranks_mesh_dim(mesh, 1), "") == groups[1]);
    check_refused(world, weft_ranks_mesh_dim(mesh, 2), WEFT_ERR_INVALID_ARG, "must be in [0, 2)");
    check_refused(world, weft_ranks_mesh_dim(mesh, -1), WEFT_ERR_INVALID_ARG, "say which");
    check_refused(world, weft_ranks_mesh(NULL), WEFT_ERR_INVALID_ARG, "mesh is NULL");
    check_refused(world, weft_ranks_mesh_dim(NULL, 0), WEFT_ERR_INVALID_ARG, "mesh is NULL");
    finish(world);
}

/* Which group a naming means; lists find, they do not make. */
RANKS_TEST(test_ranks_resolve, 4)
{
    weft_group *world = join(0);
    weft_rank_list rows[] = {{all, 2}, {all + 2, 2}}, upper[] = {{all + 2, 2}};
    CHECK(weft_group_of(world, weft_ranks_list(all, 4), "") == world);
    CHECK(weft_group_of(NULL, weft_ranks_group(world), "other") == world);
    check_refused(world, (weft_ranks){.kind = WEFT_RANKS_NONE}, WEFT_ERR_INVALID_ARG,
                  "name nothing");
    CHECK(!weft_group_of(world, weft_ranks_rows(rows, 2), ""));
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    CHECK_CONTAINS(weft_last_error(), rank < 2 ? "0-1" : "2-3");
    CHECK(!weft_group_of(world, weft_ranks_list(all, 4), "blu"));
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    CHECK_CONTAINS(weft_last_error(), "tag blu");
    weft_group *half = weft_group_new_blocks(world, 2, NULL);
    CHECK(half && weft_group_of(world, weft_ranks_rows(rows, 2), "") == half);
    weft_clear_error();
    weft_group *found = weft_group_of(world, weft_ranks_rows(upper, 1), "");
    CHECK(found == (rank < 2 ? NULL : half));
    CHECK_INT(weft_last_status(), rank < 2 ? WEFT_ERR_INVALID_ARG : WEFT_OK);
    weft_ranks named = weft_ranks_name(weft_group_name(half));
    CHECK(weft_group_of(world, named, "") == half);
    check_expand(world, named, "", weft_group_tag(half), weft_group_ranks(half), 2, 2);
    check_refused(world, weft_ranks_name("no such"), WEFT_ERR_NOT_FOUND, "could not resolve");
    CHECK_OK(weft_group_destroy(half));
    check_refused(world, weft_ranks_name(rank < 2 ? "0/0-1" : "0/2-3"), WEFT_ERR_STATE,
                  "already destroyed");
    check_refused(NULL, weft_ranks_name("0"), WEFT_ERR_INVALID_ARG, "group is NULL");
    weft_clear_error();
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, weft_group_of(world, weft_ranks_name("0"), "")));
    CHECK_INT(weft_item(x, 0), 4);
    weft_group *missing = weft_group_of(world, weft_ranks_name("no such"), "");
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, missing), WEFT_ERR_NOT_FOUND);
    finish(world);
}

/* A list as text: whole if it leaves four bytes, else cut behind the last piece that does. */
TEST(test_ranks_list_text)
{
    static const int ranks[] = {0, 1, 2, 3, 7, 9, 10, 20}, back[] = {3, 2, 2, 3};
    static const struct {
        size_t bytes;
        const char *text;
    } cases[] = {{40, "0-3,7,9-10,20"},
                 {18, "0-3,7,9-10,20"},
                 {17, "0-3,7,9-10..."},
                 {15, "0-3,7,9-10..."},
                 {14, "0-3,7..."},
                 {10, "0-3,7..."},
                 {9, "0-3..."},
                 {8, "0-3..."},
                 {7, "..."},
                 {4, "..."}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[48];
        memset(out, 'x', sizeof out);
        weft_i_rank_list_text(ranks, 8, out, cases[i].bytes);
        if (strcmp(out, cases[i].text))
            FAIL("in %zu bytes: \"%s\", not \"%s\"", cases[i].bytes, out, cases[i].text);
        for (size_t k = cases[i].bytes; k < sizeof out; k++)
            CHECK(out[k] == 'x');
    }
    char text[16];
    weft_i_rank_list_text(back, 4, text, sizeof text); /* in the order given */
    CHECK(!strcmp(text, "3,2,2-3"));
    weft_i_rank_list_text(back, 0, text, sizeof text);
    CHECK(!*text);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/coll.c, coll/lane/request.c, coll/lane/choose.c */
/* What collectives refuse, one argument at a time, in their plain and their posted form: with which
 * status, and before anything has happened.  And the thresholds between their algorithms. */
#include "fault.h"
#include "jobs.h"
#include "tune_text.h"

#include <stdint.h>
#include <weft/weft.h>

enum { OPS = 8, SIZE = 2 };
enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, ALL_TO_ALL };
static const char *const names[OPS] = {"all_reduce", "reduce",  "broadcast",      "all_gather",
                                       "gather",     "scatter", "reduce_scatter", "all_to_all"};
/* elements of input and output where a part has 4, on both of 2 ranks */
static const int64_t in_count[OPS] = {4, 4, 4, 4, 4, 8, 8, 8};
static const int64_t out_count[OPS] = {4, 4, 4, 8, 8, 4, 4, 8};

typedef struct args {
    int op, root;
    weft_reduction reduction;
    weft_tensor *in, *out;
    weft_group *group;
} args;

static weft_status run(const args *a)
{
    switch (a->op) {
    case ALL_REDUCE:
        return weft_all_reduce_into(a->out, a->in, a->reduction, a->group);
    case REDUCE:
        return weft_reduce_into(a->out, a->in, a->reduction, a->root, a->group);
    case BROADCAST:
        return weft_broadcast_in_place(a->in, a->root, a->group);
    case ALL_GATHER:
        return weft_all_gather_into(a->out, a->in, a->group);
    case GATHER:
        return weft_gather_into(a->out, a->in, a->root, a->group);
    case SCATTER:
        return weft_scatter_into(a->out, a->in, a->root, a->group);
    case REDUCE_SCATTER:
        return weft_reduce_scatter_into(a->out, a->in, a->reduction, a->group);
    default:
        return weft_all_to_all_into(a->out, a->in, NULL, NULL, a->group);
    }
}

static weft_work *start(const args *a)
{
    switch (a->op) {
    case ALL_REDUCE:
        return weft_all_reduce_start(a->out, a->in, a->reduction, a->group);
    case REDUCE:
        return weft_reduce_start(a->out, a->in, a->reduction, a->root, a->group);
    case BROADCAST:
        return weft_broadcast_start(a->in, a->root, a->group);
    case ALL_GATHER:
        return weft_all_gather_start(a->out, a->in, a->group);
    case GATHER:
        return weft_gather_start(a->out, a->in, a->root, a->group);
    case SCATTER:
        return weft_scatter_start(a->out, a->in, a->root, a->group);
    case REDUCE_SCATTER:
        return weft_reduce_scatter_start(a->out, a->in, a->reduction, a->group);
    default:
        return weft_all_to_all_start(a->out, a->in, NULL, NULL, a->group);
    }
}

static bool rooted(int op)
{
    return op == REDUCE || op == BROADCAST || op == GATHER || op == SCATTER;
}

static bool reduces(int op)
{
    return op == ALL_REDUCE || op == REDUCE || op == REDUCE_SCATTER;
}

static weft_tensor *floats(int64_t count, double value)
{
    return weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count), value);
}

/* Both forms refuse it with this status and name the operation. */
static void refused(const args *a, weft_status status, const char *word)
{
    weft_clear_error();
    weft_status got = run(a);
    if (got != status)
        FAIL("%s, %s: %d, not %d: %s", names[a->op], word, got, status, weft_last_error());
    CHECK_CONTAINS(weft_last_error(), word);
    weft_clear_error();
    CHECK(!start(a));
    CHECK_INT(weft_last_status(), status);
    CHECK_CONTAINS(weft_last_error(), word);
    weft_clear_error();
}

static args good(int op, weft_group *world)
{
    return (args){.op = op,
                  .root = weft_rank(world),
                  .reduction = WEFT_SUM,
                  .in = floats(in_count[op], 1),
                  .out = floats(out_count[op], -7),
                  .group = world};
}

static void refuse_inputs(int op, args sound)
{
    args b = sound;
    b.group = NULL;
    refused(&b, WEFT_ERR_INVALID_ARG, "group is NULL");
    b = sound;
    b.in = NULL;
    refused(&b, WEFT_ERR_INVALID_ARG, "input is NULL");
    b.in = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(in_count[op]));
    refused(&b, WEFT_ERR_UNSUPPORTED, "is on meta, where tensors have no elements");
    b.in = weft_slice(floats(2 * in_count[op], 1), 0, 0, 2 * in_count[op], 2);
    refused(&b, WEFT_ERR_INVALID_ARG, "not contiguous");
    b.in = floats(in_count[op], 1);
    CHECK_OK(weft_storage_resize(weft_tensor_storage(b.in), 1));
    refused(&b, WEFT_ERR_STATE, names[op]);
}

static void refuse_outputs(int op, args sound)
{
    args b = sound;
    b.out = NULL;
    refused(&b, WEFT_ERR_INVALID_ARG, "output is NULL");
    b.out = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(out_count[op]));
    refused(&b, WEFT_ERR_UNSUPPORTED, "is on meta, where tensors have no elements");
    b.out = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(out_count[op]), 0);
    refused(&b, WEFT_ERR_TYPE, "the input is f32, the output i32");
    for (int64_t wrong = -1; wrong <= 1; wrong += 2) {
        b = sound;
        b.out = floats(out_count[op] + wrong, 0);
        refused(&b, WEFT_ERR_INVALID_ARG, "elements");
        b = sound;
        b.in = floats(in_count[op] + wrong, 0);
        refused(&b, WEFT_ERR_INVALID_ARG, "elements");
    }
}

static void refuse_reductions(args b)
{
    b.reduction = (weft_reduction)WEFT_REDUCTIONS;
    refused(&b, WEFT_ERR_INVALID_ARG, "is not a reduction");
    b.reduction = (weft_reduction)-1;
    refused(&b, WEFT_ERR_INVALID_ARG, "is not a reduction");
    b.reduction = WEFT_BAND;
    refused(&b, WEFT_ERR_TYPE, "band has no meaning for f32");
}

RANKS_TEST(test_coll_args_refused, SIZE)
{
    weft_group *world = join(0);
    for (int op = 0; op < OPS; op++) {
        CHECK_OK(weft_scope_open());
        args a = good(op, world);
        refuse_inputs(op, a);
        if (op != BROADCAST)
            refuse_outputs(op, a);
        for (int root = -1; rooted(op) && root <= SIZE; root += SIZE + 1) {
            args b = a;
            b.root = root;
            refused(&b, WEFT_ERR_INVALID_ARG, "must be in [0, 2)");
        }
        if (reduces(op))
            refuse_reductions(a);
        for (int64_t i = 0; i < out_count[op]; i++)
            CHECK(weft_item(a.out, i) == -7 && weft_item(a.in, 0) == 1);
        CHECK_OK(weft_scope_close());
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* nothing of all that has left a mark */
    for (int op = 0; op < OPS; op++) {
        args a = good(op, world);
        a.root = 1;
        CHECK_OK(run(&a));
    }
    CHECK(!weft_finish(world));
}

/* In place is where this rank's part belongs; every other overlap is refused, the nearest
 * neighbours are not. */
RANKS_TEST(test_coll_args_overlap, SIZE)
{
    weft_group *world = join(0);
    for (int op = 0; op < OPS; op++)
        for (int64_t at = 0; at <= 16 && op != BROADCAST; at++) {
            CHECK_OK(weft_scope_open());
            weft_tensor *all = floats(32, 1);
            args a = good(op, world);
            a.root = 0;
            if (rooted(op) && rank != 0)
                a.in = floats(in_count[op], 1), a.out = floats(out_count[op], 1);
            else {
                a.in = weft_narrow(all, 0, 8, in_count[op]);
                a.out = weft_narrow(all, 0, at, out_count[op]);
            }
            int64_t in_end = 8 + in_count[op], out_end = at + out_count[op];
            bool apart = at >= in_end || out_end <= 8;
            int64_t mine = 4 * rank;
            bool same = op == ALL_REDUCE || op == REDUCE        ? at == 8
                        : op == ALL_GATHER || op == GATHER      ? 8 == at + mine
                        : op == SCATTER || op == REDUCE_SCATTER ? 8 + mine == at
                                                                : false;
            bool asked = !rooted(op) || rank == 0;
            /* Ranks whose part lies elsewhere would refuse what others accept: agree on those. */
            bool others = op == ALL_GATHER || op == REDUCE_SCATTER;
            bool theirs = !others || apart;
            if (asked && !apart && !same)
                refused(&a, WEFT_ERR_INVALID_ARG,
                        op == ALL_TO_ALL && at == 8 ? "out of place" : "overlap");
            else if (!asked ? (at >= in_end || out_end <= 8 ||
                               (op == REDUCE || op == GATHER || op == SCATTER ? at == 8 : false))
                            : theirs)
                CHECK_OK(run(&a));
            CHECK_OK(weft_scope_close());
        }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_args_splits, SIZE)
{
    weft_group *world = join(0);
    weft_tensor *in = floats(6, 1), *out = floats(6, -7);
    static const int64_t right[] = {2, 4}, low[] = {2, 3}, high[] = {2, 5}, minus[] = {7, -1},
                         both[] = {3, 3};
    weft_clear_error();
    CHECK_STATUS(weft_all_to_all_into(out, in, both, NULL, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "both splits or neither");
    CHECK_STATUS(weft_all_to_all_into(out, in, NULL, both, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "both splits or neither");
    const int64_t *bad[] = {low, high, minus};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(weft_all_to_all_into(out, in, both, bad[i], world), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "input splits");
        CHECK_STATUS(weft_all_to_all_into(out, in, bad[i], both, world), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "output splits");
    }
    weft_tensor *rows = weft_view(in, WEFT_SHAPE(3, 2));
    static const int64_t three[] = {1, 2};
    CHECK_STATUS(weft_all_to_all_into(out, rows, right, three, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "a row of the input has 8 bytes, one of the output 4");
    CHECK(weft_item(out, 0) == -7);
    CHECK_OK(weft_all_to_all_into(out, in, both, both, world));
    CHECK(weft_item(out, 0) == 1 && weft_item(out, 5) == 1);
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* Lists: what is wrong with one tensor is wrong with the list, and outputs may touch nothing of the
 * others. */
RANKS_TEST(test_coll_args_lists, SIZE)
{
    weft_group *world = join(0);
    weft_tensor *all = floats(32, 1);
    for (int64_t at = 0; at <= 24; at++)
        for (int which = 0; which < 4; which++) {
            CHECK_OK(weft_scope_open());
            weft_tensor *in[] = {weft_narrow(all, 0, 8, 4), floats(4, 1)};
            weft_tensor *out[] = {weft_narrow(all, 0, 16, 4), floats(4, 1)};
            weft_tensor *moved = weft_narrow(all, 0, at, 4);
            bool on_in = at < 12 && at + 4 > 8, on_out = at < 20 && at + 4 > 16;
            bool clash = false;
            if (which == 0) { /* the second input */
                in[1] = moved;
                clash = on_out;
            } else if (which == 1) { /* the second output */
                out[1] = moved;
                clash = on_in || on_out;
            } else if (which == 2) { /* both, in place */
                in[1] = out[1] = moved;
                clash = on_in || on_out;
            } else /* the order does not matter */
                in[1] = in[0], in[0] = floats(4, 1), out[0] = moved, out[1] = floats(4, 1),
                clash = on_in;
            weft_clear_error();
            weft_status status = weft_all_reduce_list_into(out, in, 2, WEFT_SUM, world);
            CHECK_INT(status, clash ? WEFT_ERR_INVALID_ARG : WEFT_OK);
            if (clash)
                CHECK_CONTAINS(weft_last_error(), "overlaps an operand of another tensor");
            CHECK_OK(weft_scope_close());
        }
    weft_tensor *in[] = {floats(4, 1), floats(4, 1)}, *out[] = {floats(4, 0), floats(4, 0)};
    weft_clear_error();
    CHECK_STATUS(weft_all_reduce_list_into(out, in, -1, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_all_reduce_list_into(NULL, in, 2, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_all_reduce_list_into(out, NULL, 2, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_all_reduce_list_into(NULL, NULL, 0, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_list_into(out, in, 2, WEFT_SUM, world));
    CHECK(weft_item(out[1], 3) == 2);
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* A rank without memory refuses its call, whatever the allocation; ranks of their own, so that
 * nobody waits. */
RANKS_TEST(test_coll_args_without_memory, 1)
{
    (void)rank, (void)size;
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    weft_group *world = join(0);
    weft_tensor *in[] = {floats(4, 1), floats(400, 2)}, *out[] = {floats(4, 0), floats(400, 0)};
    int failures = 0;
    for (int n = 1; n < 30; n++) {
        weft_fill(out[0], -7);
        weft_fill(out[1], -7);
        weft_clear_error();
        fault_arm(n);
        weft_status status = weft_all_reduce_list_into(out, in, 2, WEFT_SUM, world);
        bool fired = fault_disarm();
        if (status < 0) {
            failures++;
            CHECK(status == WEFT_ERR_NO_MEMORY || strcmp(fault_name, "alloc"));
            CHECK(weft_item(out[0], 0) == -7 && weft_item(out[1], 399) == -7);
            continue;
        }
        CHECK(weft_item(out[0], 0) == 1 && weft_item(out[1], 399) == 2);
        if (!fired)
            break;
    }
    CHECK(failures >= 2);
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* ---- thresholds ---- */

static void expect_choice(const char *op, int ranks, size_t bytes, const char *name)
{
    const char *choice = weft_tune_choice(op, ranks, bytes);
    if (!choice || strcmp(choice, name))
        FAIL("%s of %zu bytes with %d ranks: %s, not %s", op, bytes, ranks, choice, name);
}

TEST(test_coll_args_names_of_reductions)
{
    CHECK(!strcmp(weft_reduction_name(WEFT_SUM), "sum"));
    CHECK(!strcmp(weft_reduction_name((weft_reduction)(WEFT_REDUCTIONS - 1)), "premul_sum"));
    CHECK(!strcmp(weft_reduction_name((weft_reduction)WEFT_REDUCTIONS), "unknown"));
    CHECK(!strcmp(weft_reduction_name((weft_reduction)-1), "unknown"));
}

TEST(test_coll_args_choice)
{
    static const int columns[] = {1, 2, 3, 4, 5, 8, 9, 100}, column[] = {0, 0, 1, 1, 2, 2, 3, 3};
    for (int i = 0; i < 8; i++)
        CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, "all_gather", columns[i],
                               2000 + 1000 * (size_t)column[i]));
    for (int i = 0; i < 8; i++) {
        size_t staged = 2000 + 1000 * (size_t)column[i];
        CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "all_gather", columns[i]), staged);
        CHECK_INT(weft_tune_get(WEFT_TUNE_ZERO_COPY, "all_gather", columns[i]), staged);
        expect_choice("all_gather", columns[i], 0, "inline");
        expect_choice("all_gather", columns[i], WEFT_TUNE_INLINE, "inline");
        expect_choice("all_gather", columns[i], WEFT_TUNE_INLINE + 1, "eager");
        expect_choice("all_gather", columns[i], staged, "eager");
        expect_choice("all_gather", columns[i], staged + 1, "rendezvous");
    }
    for (int op = 0; op < OPS; op++)
        expect_choice(names[op], 2, 1, "inline");
    expect_choice("barrier", 2, 0, "inline");
    CHECK(!weft_tune_choice("no such op", 2, 1));
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    CHECK(!weft_tune_choice(NULL, 2, 1) && !weft_tune_choice("all_gather", 0, 1));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, "all_gather", 2, 64 << 10));
    CHECK_STATUS(weft_tune_set(WEFT_TUNE_EAGER, "all_gather", 2, (64 << 10) + 1),
                 WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "all_gather", 2), 64 << 10);
    CHECK_STATUS(weft_tune_set(WEFT_TUNE_EAGER, "all_gather", 0, 1), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, "all_gather", 2, SIZE_MAX)); /* never */
    CHECK(weft_tune_get(WEFT_TUNE_CMA, "all_gather", 2) == SIZE_MAX);
    weft_clear_error();
}

TEST(test_coll_args_files)
{
    struct {
        const char *text;
        bool right;
        size_t staged, direct, single;
    } cases[] = {{"broadcast 2 700\n", true, 700, 700, 900},
                 {"broadcast 2 700 800\n", true, 700, 800, 900},
                 {"broadcast 2 700 800 1234567", true, 700, 800, 1234567},
                 {"# all\n\n \t\n broadcast 2 700 # mine\n", true, 700, 700, 900},
                 {"broadcast 2 700\nbroadcast 2 750\n", true, 750, 750, 900},
                 {"broadcast 2 700 800 1234567 5\n", false, 0, 0, 0},
                 {"broadcast 2 700 800 x\n", false, 0, 0, 0},
                 {"broadcast 2\n", false, 0, 0, 0},
                 {"broadcast 0 700\n", false, 0, 0, 0},
                 {"broadcast 2 65537\n", false, 0, 0, 0},
                 {"broadcast 2 700 65537\n", false, 0, 0, 0},
                 {"broadcast 2 700\nbroadcats 2 700\n", false, 0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, "broadcast", 2, 650));
        CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, "broadcast", 2, 900));
        weft_status status = tune_load_text(cases[i].text);
        if ((status == WEFT_OK) != cases[i].right)
            FAIL("\"%s\" gives %d", cases[i].text, status);
        CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "broadcast", 2),
                  cases[i].right ? cases[i].staged : 650);
        CHECK_INT(weft_tune_get(WEFT_TUNE_ZERO_COPY, "broadcast", 2),
                  cases[i].right ? cases[i].direct : 650);
        CHECK_INT(weft_tune_get(WEFT_TUNE_CMA, "broadcast", 2),
                  cases[i].right ? cases[i].single : 900);
        if (!cases[i].right)
            CHECK_INT(status, WEFT_ERR_INVALID_ARG);
    }
    char longest[300];
    memset(longest, ' ', sizeof longest);
    memcpy(longest, "broadcast 2 700", 15);
    longest[255] = 0;
    CHECK_OK(tune_load_text(longest));
    longest[255] = ' ';
    longest[256] = 0;
    CHECK_STATUS(tune_load_text(longest), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), ":1: the line is too long");
    CHECK_STATUS(tune_load_text("#\n\nnonsense\n"), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), ":3: wants");
    CHECK_STATUS(weft_tune_load("/tmp"), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

/* A file of thresholds is read whole, with room for its end, or not at all. */
static size_t room; /* of what was allocated last */

static void *noting_alloc(size_t bytes)
{
    room = bytes;
    return weft_i_os_linux.alloc(bytes);
}

static ssize_t noting_read(int fd, void *bytes, size_t count)
{
    CHECK(count < room);
    return weft_i_os_linux.read(fd, bytes, count);
}

TEST(test_coll_args_file_of_64_kib)
{
    enum { MOST = 64 << 10 };
    static const char line[] = "broadcast 2 700";
    static char text[MOST + 2];
    weft_i_os table = weft_i_os_linux;
    table.alloc = noting_alloc;
    table.read = noting_read;
    weft_i_os_now = &table;
    for (size_t i = 0; i < MOST + 1; i++)
        text[i] = i % 64 ? '#' : '\n';
    memcpy(text + MOST - 15, line, 15); /* its last digit would be cut off */
    text[MOST - 16] = '\n';
    CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, "broadcast", 2, 650));
    text[MOST] = '1';
    CHECK_STATUS(tune_load_text(text), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "has more than 65536 bytes");
    CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "broadcast", 2), 650);
    text[MOST] = 0;
    CHECK_OK(tune_load_text(text));
    CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "broadcast", 2), 700);
    weft_i_os_now = &weft_i_os_linux;
    char path[] = "/tmp/weft-tune-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "broadcast 2 80\0000\n", 18) == 18);
    close(fd);
    weft_status status = weft_tune_load(path);
    unlink(path);
    CHECK_INT(status, WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "is no text: byte 14 is zero");
    CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "broadcast", 2), 700);
    weft_clear_error();
}

/* Roots are ranks of the group; the message helps who gave one of the world. */
RANKS_TEST(test_coll_args_root_of_the_world, 4)
{
    static const int ranks[] = {3, 1};
    weft_group *world = join(20000);
    weft_group *group = rank % 2 ? weft_group_new(world, ranks, 2, "odd") : NULL;
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10), rank);
    if (group) {
        CHECK_STATUS(weft_broadcast_in_place(x, 3, group), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "rank 3 of the world is rank 0 of it");
        CHECK_STATUS(weft_broadcast_in_place(x, 2, group), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "rank 2 of the world is no member");
        CHECK_STATUS(weft_broadcast_in_place(x, weft_group_rank_of(group, 0), group),
                     WEFT_ERR_INVALID_ARG);
        CHECK_OK(weft_broadcast_in_place(x, weft_group_rank_of(group, 3), group));
        CHECK(weft_item(x, 9) == 3);
        CHECK_INT(weft_group_world_rank(group, 1), 1);
    }
    (void)size;
    finish(world);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* refusals are the point here */
    return harness_main(argc, argv);
}

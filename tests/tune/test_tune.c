/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tune/tune.c, tune/tune_file.c */
/* The table of decisions by size: what it says of itself, who can set what, files, and that ranks
 * with different values find out. */
#include "jobs.h"
#include "tune_text.h"

#include <stdint.h>
#include <weft/weft.h>

static weft_tune_decision row_of(const char *name, const char *op, int ranks)
{
    weft_tune_decision d;
    for (int i = 0; i < weft_tune_decision_count(); i++) {
        CHECK_OK(weft_tune_decision_describe(i, ranks, &d));
        if (!strcmp(d.name, name) && !strcmp(d.op, op))
            return d;
    }
    FAIL("no decision %s of %s", name, op);
}

TEST(test_tune_every_row)
{
    int count = weft_tune_decision_count(), last = -1;
    weft_tune_decision d;
    CHECK(count > 40);
    for (int i = 0; i < count; i++)
        for (int ranks = 2; ranks <= 16; ranks *= 2) {
            CHECK_OK(weft_tune_decision_describe(i, ranks, &d));
            CHECK(*d.name && *d.op && *d.meaning && *d.unit && *d.measured && !d.variable);
            CHECK((int)d.which == last || (int)d.which == last + 1); /* none is left out */
            last = (int)d.which;
            CHECK_INT(d.source, WEFT_TUNE_COMPILED);
            CHECK(weft_tune_get(d.which, d.op, ranks) == d.value);
        }
    for (int i = 0; i < count; i++) {
        CHECK_OK(weft_tune_decision_describe(i, 8, &d));
        weft_status status = weft_tune_set(d.which, d.op, 8, d.value);
        CHECK_INT(status, d.can_be_set ? WEFT_OK : WEFT_ERR_INVALID_ARG);
    }
    CHECK_INT(last, WEFT_TUNE_CUDA_MEET_FIRST);
    CHECK_STATUS(weft_tune_decision_describe(count, 2, &d), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_tune_decision_describe(-1, 2, &d), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_tune_decision_describe(0, 0, &d), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_tune_decision_describe(0, 2, NULL), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

TEST(test_tune_sources)
{
    CHECK_INT(row_of("one_shot", "all_reduce", 4).source, WEFT_TUNE_COMPILED);
    CHECK_OK(tune_load_text("all_reduce 4 one_shot 5000 # ours\n* * push 777\n"));
    weft_tune_decision d = row_of("one_shot", "all_reduce", 4);
    CHECK(d.source == WEFT_TUNE_FILE && d.value == 5000);
    CHECK_INT(row_of("one_shot", "all_reduce", 2).source, WEFT_TUNE_COMPILED);
    for (int ranks = 1; ranks < 40; ranks += 3) {
        d = row_of("push", "*", ranks);
        CHECK(d.source == WEFT_TUNE_FILE && d.value == 777 && d.any_ranks);
    }
    CHECK_OK(weft_tune_set(WEFT_TUNE_ONE_SHOT, "all_reduce", 3, 6000));
    d = row_of("one_shot", "all_reduce", 4);
    CHECK(d.source == WEFT_TUNE_PROGRAM && d.value == 6000);
    setenv("WEFT_ONE_SHOT", "7K", 1);
    d = row_of("one_shot", "all_reduce", 4);
    CHECK(d.source == WEFT_TUNE_VARIABLE && d.value == 7168 &&
          !strcmp(d.variable, "WEFT_ONE_SHOT"));
    CHECK_INT(weft_tune_get(WEFT_TUNE_ONE_SHOT, "all_reduce", 4), 7168);
    setenv("WEFT_ONE_SHOT", "auto", 1);
    CHECK_INT(row_of("one_shot", "all_reduce", 4).source, WEFT_TUNE_PROGRAM);
    setenv("WEFT_CMA", "off", 1);
    d = row_of("cma", "gather", 2);
    CHECK(d.source == WEFT_TUNE_VARIABLE && d.value == SIZE_MAX);
    setenv("WEFT_NCCL", "always", 1);
    d = row_of("nccl", "gather", 2);
    CHECK(d.source == WEFT_TUNE_VARIABLE && d.value == 0);
}

/* Every decision that can be set can stand in a file, by its name. */
TEST(test_tune_file_of_all)
{
    char line[200];
    weft_tune_decision d;
    for (int i = 0; i < weft_tune_decision_count(); i++) {
        CHECK_OK(weft_tune_decision_describe(i, 2, &d));
        bool up_to = d.sense == WEFT_TUNE_UP_TO;
        snprintf(line, sizeof line, "%s %s %s 1234\n", d.op, d.any_ranks ? "*" : "2", d.name);
        CHECK_INT(tune_load_text(line), d.can_be_set ? WEFT_OK : WEFT_ERR_INVALID_ARG);
        if (d.can_be_set)
            CHECK_INT(weft_tune_get(d.which, d.op, 2), 1234);
        else
            CHECK_CONTAINS(weft_last_error(), "cannot be set");
        snprintf(line, sizeof line, "%s 2 %s %s\n", d.op, d.name, up_to ? "never" : "always");
        if (d.can_be_set) {
            CHECK_OK(tune_load_text(line));
            CHECK_INT(weft_tune_get(d.which, d.op, 2), 0);
        }
    }
    weft_clear_error();
}

TEST(test_tune_file_refused)
{
    static const char *const cases[][2] = {
        {"all_reduce 2 one_shoot 5\n", "wants"},
        {"all_reduce 2 one_shot\n", "wants"},
        {"all_reduce 2 one_shot 5 6\n", "wants"},
        {"all_reduce 2 one_shot -5\n", "wants"},
        {"all_reduce 2 one_shot 99999999999999999999999\n", "wants"},
        {"all_reduce * one_shot 5\n", "wants"},
        {"all_reduce 99999999999 one_shot 5\n", "wants"},
        {"broadcast 2 one_shot 5\n",
         "one_shot is decided for \"all_reduce\", not for \"broadcast\""},
        {"all_reduce * push 5\n", "push is decided for \"*\", not for \"all_reduce\""},
        {"broadcast 2 fused 5\n", "fused is not decided for \"broadcast\""},
        {"barrier 2 eager 5\n", "eager is not decided for \"barrier\""},
        {"all_redcue 2 eager 5\n", "\"all_redcue\" is not a collective"},
        {"all_reduce 2 eager 65537\n", "eager is at most 65536 bytes"},
        {"* * fifo_up_to 5\n", "fifo_up_to cannot be set"}};
    CHECK_OK(weft_tune_set(WEFT_TUNE_PUSH, "*", 2, 6));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text, "* * push 5\n%s", cases[i][0]);
        CHECK_STATUS(tune_load_text(text), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), ":2: ");
        CHECK_CONTAINS(weft_last_error(), cases[i][1]);
        CHECK_INT(weft_tune_get(WEFT_TUNE_PUSH, "*", 2), 6); /* not the first line either */
    }
    weft_clear_error();
}

static weft_tensor *shared(int64_t count, double value, weft_group *world)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x && weft_symm_rendezvous(x, world));
    weft_fill(x, value);
    return x;
}

/* Both ways of the decisions inside an algorithm give the same result. */
RANKS_TEST(test_tune_both_ways, 3)
{
    enum { COUNT = 30000 };
    weft_group *world = join(0);
    weft_tensor *in = shared(COUNT, rank + 1, world), *sum = shared(COUNT, 0, world);
    weft_tensor *out = shared(3 * COUNT, 0, world);
    for (int way = 0; way < 4; way++) {
        CHECK_OK(weft_tune_set(WEFT_TUNE_PUSH, "*", size, way & 1 ? 0 : SIZE_MAX));
        CHECK_OK(weft_tune_set(WEFT_TUNE_FOLD_WHOLE, "all_reduce", size, way & 2 ? SIZE_MAX : 0));
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* threads share the table */
        weft_fill(out, -1);
        weft_fill(sum, -1);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        CHECK_OK(weft_all_gather_into(out, in, world));
        CHECK_OK(weft_all_reduce_into(sum, in, WEFT_SUM, world));
        for (int64_t i = 0; i < 3; i++)
            CHECK(weft_item(out, i * COUNT) == (double)i + 1 &&
                  weft_item(out, (i + 1) * COUNT - 1) == (double)i + 1);
        CHECK(weft_item(sum, 0) == 6 && weft_item(sum, COUNT - 1) == 6);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    }
    CHECK(!weft_finish(world));
}

/* Ranks that would go different ways inside an algorithm would wait, or miss each other's data. */
RANKS_TEST(test_tune_ranks_differ, 2)
{
    (void)size;
    if (weft_i_spawn_seat())
        SKIP("ranks that are threads share their thresholds");
    weft_group *world = join(0);
    weft_tensor *in = shared(30000, 1, world), *out = shared(60000, 0, world);
    if (rank)
        CHECK_OK(weft_tune_set(WEFT_TUNE_PUSH, "*", 2, 5));
    CHECK_STATUS(weft_all_gather_into(out, in, world), WEFT_ERR_MISMATCH);
    weft_clear_error();
    weft_finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

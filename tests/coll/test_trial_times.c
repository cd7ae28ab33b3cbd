/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/trial.c, coll/lane/locations.c */
/* How trials count what calls took, and what they conclude, without ranks. */
#include "harness.h"
#include "harness_cache.h"

#include "base/os/os.h"
#include "coll/lane/lane.h"
#include "coll/lane/trial.h"
#include "coll/lane/trial_file.h"

#include <weft/weft.h>

#include <stdatomic.h>
#include <unistd.h>

enum { RANKS = 2, FULL = WEFT_I_TRIAL_RUNS };

static weft_i_os stopped;

/* ---- the mean ---- */

static int64_t clock_now;

static int64_t stopped_clock(void)
{
    return clock_now;
}

static void stop_clock(void)
{
    stopped = weft_i_os_linux;
    stopped.clock_ns = stopped_clock;
    weft_i_os_now = &stopped;
}

/* Ends a call that took so long; its mean then. */
static uint32_t mean_after(weft_i_coll *coll, int64_t took)
{
    coll->trial_began = clock_now;
    clock_now += took;
    weft_i_trial_end(coll);
    return coll->trial->mean[coll->trial_way];
}

/* Cold calls count whole, later ones by a quarter, and none for more than twice the mean. */
TEST(test_trial_mean)
{
    weft_i_lane lane = {.me = 1, .size = RANKS};
    weft_i_trial trial = {{0, 0}, {0, 0}, {0, 0}, 0, 0};
    weft_i_coll coll = {.lane = &lane, .trial = &trial};
    stop_clock();
    clock_now = 1000000;
    CHECK_INT(mean_after(&coll, 5000), 5000);
    CHECK_INT(mean_after(&coll, 1000), 1000);
    CHECK_INT(mean_after(&coll, 1100), 1100);
    CHECK_INT(trial.runs[0], 3);
    CHECK_INT(mean_after(&coll, 2200), 1375); /* just twice */
    CHECK_INT(trial.runs[0], FULL);
    trial.mean[0] = 1000;
    CHECK_INT(mean_after(&coll, 2400), 1250); /* more than twice counts as twice */
    trial.mean[0] = 1000;
    CHECK_INT(mean_after(&coll, 1000000000), 1250);
    CHECK_INT(trial.runs[0], FULL);
    CHECK_INT(mean_after(&coll, 850), 1150);
    CHECK_INT(trial.runs[0], FULL); /* and no more */
    trial.mean[0] = 1200;
    CHECK_INT(mean_after(&coll, 600), 1050); /* just half */
    trial.mean[0] = 1200;
    CHECK_INT(mean_after(&coll, 599), 599);
    trial.mean[0] = 1150;
    CHECK_INT(trial.mean[1], 0);
    CHECK_INT(trial.runs[1], 0); /* the other way has not been tried */
    coll.trial_way = true;
    CHECK_INT(mean_after(&coll, 0), 1); /* a clock that has not moved */
    CHECK_INT(mean_after(&coll, INT64_C(5000000000)), INT32_MAX);
    CHECK_INT(trial.mean[0], 1150);
    trial.runs[0] = trial.runs[1] = 0;
    for (int root = 0; root < 4; root++) /* its first call touches new pages */
        mean_after(&coll, 650000);
    CHECK_INT(mean_after(&coll, 100000), 100000); /* and no cold call counts any more */
    weft_i_os_now = &weft_i_os_linux;
}

/* Roots of a gather that take turns each touch new pages once: nothing is timed before all have. */
TEST(test_trial_rotating_roots)
{
    weft_i_lane lane = {.me = 1, .size = 5};
    weft_i_trial trial = {{0, 0}, {0, 0}, {0, 0}, 0, 0};
    weft_i_coll coll = {.lane = &lane, .trial = &trial, .ask.kind = WEFT_I_GATHER};
    stop_clock();
    for (int root = 0; root < lane.size; root++) {
        CHECK_INT(mean_after(&coll, 650000), 0);
        CHECK_INT(trial.runs[0], 0);
    }
    for (int run = 1; run <= FULL; run++) {
        CHECK_INT(mean_after(&coll, 1000), 1000);
        CHECK_INT(trial.runs[0], run);
    }
    CHECK_INT(weft_i_trial_times(&coll).of[0], 1002);
    trial = (weft_i_trial){{800, 900}, {FULL, FULL}, {1, 1}, 0, 0}; /* of an earlier job */
    coll.ask.kind = WEFT_I_GATHER_PARTS;
    for (int root = 0; root < lane.size; root++)
        CHECK_INT(mean_after(&coll, 650000), 800);
    CHECK_INT(mean_after(&coll, 1000), 850); /* a longer one counts by a quarter */
    trial = (weft_i_trial){{0, 0}, {0, 0}, {0, 0}, 0, 0};
    coll.ask.kind = WEFT_I_ALL_GATHER; /* all touch their pages at the first call */
    CHECK_INT(mean_after(&coll, 5000), 5000);
    CHECK_INT(trial.runs[0], 1);
    lane.size = 300; /* more than the count can hold */
    coll.ask.kind = WEFT_I_GATHER;
    trial = (weft_i_trial){{0, 0}, {0, 0}, {0, 0}, 0, 0};
    for (int root = 0; root < UINT8_MAX; root++)
        CHECK_INT(mean_after(&coll, 7000), 0);
    CHECK_INT(mean_after(&coll, 7000), 7000);
    CHECK_INT(trial.runs[0], 1);
    weft_i_os_now = &weft_i_os_linux;
}

/* Runs that the second way has after calls that took so long; the first takes 1000. */
static int runs_after(weft_i_trial *trial, const int64_t *took, int calls)
{
    weft_i_lane lane = {.me = 1, .size = RANKS};
    weft_i_coll coll = {.lane = &lane, .trial = trial, .trial_way = true};
    *trial = (weft_i_trial){{1000, 0}, {FULL, 0}, {0, 0}, 0, 0};
    for (int i = 0; i < calls; i++)
        mean_after(&coll, took[i]);
    CHECK_INT(trial->mean[0], 1000);
    CHECK_INT(trial->kept[0], 0);
    return trial->runs[1];
}

/* A way that is not clearly faster than the other is not called often to find that out. */
TEST(test_trial_beaten)
{
    weft_i_trial trial;
    stop_clock();
    CHECK_INT(runs_after(&trial, (int64_t[]){2001}, 1), 1); /* new pages may have done that */
    CHECK_INT(trial.kept[1], 0);
    CHECK_INT(runs_after(&trial, (int64_t[]){2002}, 1), FULL); /* but not that */
    CHECK_INT(trial.mean[1], 2002);
    CHECK_INT(trial.kept[1], 1); /* to be checked soon, by one call */
    CHECK_INT(runs_after(&trial, (int64_t[]){2002, 500}, 2), FULL);
    CHECK_INT(trial.mean[1], 500);
    CHECK_INT(trial.kept[1], 0);
    CHECK_INT(runs_after(&trial, (int64_t[]){2000, 800}, 2), FULL);
    CHECK_INT(trial.kept[1], 1);
    CHECK_INT(runs_after(&trial, (int64_t[]){2000, 799}, 2), 2); /* a quarter: perhaps */
    CHECK_INT(runs_after(&trial, (int64_t[]){10, 799}, 2), 2);
    CHECK_INT(runs_after(&trial, (int64_t[]){2000, 799, 803}, 3), FULL);
    CHECK_INT(trial.mean[1], 803);
    CHECK_INT(trial.kept[1], 1);
    CHECK_INT(runs_after(&trial, (int64_t[]){2000, 700, 700, 700}, 4), FULL);
    CHECK_INT(trial.kept[1], 0); /* timed in full */
    weft_i_lane lane = {.me = 1, .size = RANKS};
    weft_i_coll coll = {.lane = &lane, .trial = &trial, .trial_way = true};
    trial =
        (weft_i_trial){{1000, 0}, {FULL - 1, 0}, {0, 0}, 0, 0}; /* the other is not known itself */
    mean_after(&coll, 9000);
    mean_after(&coll, 9000);
    CHECK_INT(trial.runs[1], 2);
    weft_i_os_now = &weft_i_os_linux;
}

/* A job that has read {800, 900} and knows nothing itself. */
static weft_i_trial as_read(void)
{
    return (weft_i_trial){
        {800, 900}, {FULL, FULL}, {WEFT_I_TRIAL_COLD, WEFT_I_TRIAL_COLD}, WEFT_I_TRIAL_NONE, 0};
}

/* An earlier job's times stay for one call that takes longer, which may be cold.  Later ones count
 * as ever, and the other way need not be checked. */
TEST(test_trial_earlier_times)
{
    weft_i_lane lane = {.me = 1, .size = RANKS};
    weft_i_trial trial = as_read();
    weft_i_coll coll = {.lane = &lane, .trial = &trial};
    stop_clock();
    clock_now = 1000000;
    CHECK_INT(weft_i_trial_times(&coll).of[0] & 1, 1);
    CHECK_INT(mean_after(&coll, 800), 800);
    CHECK_INT(weft_i_trial_times(&coll).of[0] & 1, 1);
    CHECK_INT(weft_i_trial_times(&coll).of[1] & 1, 1);
    CHECK_INT(mean_after(&coll, 5000), 1000); /* counts as twice 800 */
    CHECK_INT(weft_i_trial_times(&coll).of[0], 1002);
    CHECK_INT(weft_i_trial_times(&coll).of[1], 902);
    CHECK_INT(mean_after(&coll, 1400), 1100);
    trial.mean[0] = 1;
    CHECK_INT(weft_i_trial_times(&coll).of[0], 2); /* known */
    trial.runs[0]--;
    CHECK_INT(weft_i_trial_times(&coll).of[0], 0);
    weft_i_os_now = &weft_i_os_linux;
}

/* A call that takes less counts at once.  Less than half says that the machine was busy, and that
 * the other way is to be checked soon. */
TEST(test_trial_own_times)
{
    weft_i_lane lane = {.me = 1, .size = RANKS};
    weft_i_trial trial = as_read();
    weft_i_coll coll = {.lane = &lane, .trial = &trial};
    stop_clock();
    CHECK_INT(mean_after(&coll, 400), 400);
    CHECK_INT(weft_i_trial_times(&coll).of[0], 402);
    CHECK_INT(weft_i_trial_times(&coll).of[1], 902);
    trial = as_read();
    CHECK_INT(mean_after(&coll, 399), 399);
    CHECK_INT(weft_i_trial_times(&coll).of[0], 400);
    CHECK_INT(weft_i_trial_times(&coll).of[1], 903);
    trial = as_read();
    coll.trial_by_table = true; /* that the table is wrong is checked in every job */
    CHECK_INT(mean_after(&coll, 700), 700);
    CHECK_INT(weft_i_trial_times(&coll).of[0], 702);
    CHECK_INT(weft_i_trial_times(&coll).of[1], 903);
    coll.trial_way = true;
    CHECK_INT(mean_after(&coll, 1000), 900);
    CHECK_INT(weft_i_trial_times(&coll).of[1], 903);
    CHECK_INT(mean_after(&coll, 100), 100);
    CHECK_INT(weft_i_trial_times(&coll).of[1], 102);
    weft_i_os_now = &weft_i_os_linux;
}

/* ---- choosing, without ranks ---- */

/* A lane of two ranks in private memory; rank 0 or 1 is us. */
typedef struct bare {
    weft_i_lane lane;
    weft_i_lane_head heads[RANKS];
    weft_i_trial trial;
    weft_i_coll coll;
} bare;

static bare *bare_new(int me, uint32_t staged, uint32_t cma)
{
    bare *it =
        aligned_alloc(WEFT_I_LINE, (sizeof *it + WEFT_I_LINE - 1) / WEFT_I_LINE * WEFT_I_LINE);
    CHECK(it);
    memset(it, 0, sizeof *it);
    it->lane.me = me;
    it->lane.size = RANKS;
    it->lane.epoch = 17;
    it->lane.heads = (char *)it->heads;
    it->lane.head_stride = sizeof it->heads[0];
    it->trial = (weft_i_trial){{staged, cma}, {staged ? FULL : 0, cma ? FULL : 0}, {0, 0}, 0, 0};
    it->coll.lane = &it->lane;
    it->coll.trial = &it->trial;
    it->coll.ask.kind = WEFT_I_ALL_GATHER;
    it->coll.cma_from = 1 << 20;
    return it;
}

/* Calls by powers of two have a place each, the largest one together. */
TEST(test_trial_places)
{
    enum { FROM = WEFT_I_TRIAL_FROM, LAST = WEFT_I_TRIAL_SIZES - 1 };
    static const struct {
        size_t bytes;
        int class;
    } cases[] = {{FROM, 0},
                 {2 * FROM - 1, 0},
                 {2 * FROM, 1},
                 {16 * FROM, 4},
                 {((size_t)FROM << LAST) - 1, LAST - 1},
                 {(size_t)FROM << LAST, LAST},
                 {(size_t)FROM << (LAST + 1), LAST},
                 {(size_t)FROM << (LAST + 3), LAST}};
    bare *it = bare_new(1, 0, 0);
    it->lane.remembers = true;
    stop_clock();
    clock_now = 4711;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_i_trial_begin(&it->coll, cases[i].bytes);
        CHECK(it->coll.trial == &it->lane.trials[WEFT_I_ALL_GATHER][cases[i].class]);
        CHECK_INT(it->coll.trial_by_table, cases[i].bytes >= 1 << 20);
        CHECK_INT(it->coll.trial_began, 4711);
    }
    it->coll.ask.kind = WEFT_I_ALL_GATHER_LIST; /* other forms of a kind are timed with it */
    weft_i_trial_begin(&it->coll, FROM);
    CHECK(it->coll.trial == &it->lane.trials[WEFT_I_ALL_GATHER][0]);
    it->coll.ask.kind = WEFT_I_ALL_REDUCE;
    weft_i_trial_begin(&it->coll, FROM);
    CHECK(it->coll.trial == &it->lane.trials[WEFT_I_ALL_REDUCE][0]);
    it->coll.ask.kind = WEFT_I_ALL_TO_ALL;
    weft_i_trial_begin(&it->coll, FROM);
    CHECK(it->coll.trial == &it->lane.trials[WEFT_I_ALL_TO_ALL][0]);
    weft_i_os_now = &weft_i_os_linux;
    free(it);
}

static bool expects(bool by_table, uint32_t staged, uint32_t cma, uint32_t attempt)
{
    bare *it = bare_new(0, staged, cma);
    it->coll.trial_by_table = by_table;
    bool is_cma = weft_i_trial_expects_cma(&it->coll, attempt);
    free(it);
    return is_cma;
}

/* The table's way first, then the other; then the other only if it is faster by more than a
 * quarter.  Times are even numbers. */
TEST(test_trial_choice)
{
    CHECK(!expects(false, 0, 0, 1) && expects(true, 0, 0, 1));
    CHECK(!expects(false, 0, 10, 1) && expects(true, 10, 0, 1)); /* the table's is not known */
    CHECK(expects(false, 10, 0, 1) && !expects(true, 0, 10, 1));
    CHECK(!expects(false, 0, 10, 128) && expects(false, 10, 0, 128)); /* nothing to try again */
    CHECK(!expects(false, 1249, 999, 1) && expects(false, 1251, 999, 1));
    CHECK(expects(true, 999, 1249, 1) && !expects(true, 999, 1251, 1));
    CHECK(!expects(false, 1000, 2000, 127) && expects(false, 1000, 2000, 128));
    CHECK(!expects(false, 1000, 2000, 129) && expects(false, 1000, 2000, 256));
    CHECK(!expects(false, 1000, 2000, 16) && !expects(false, 1000, 2000, 64));
    CHECK(expects(true, 2000, 1000, 127) && !expects(true, 2000, 1000, 128));
}

/* What only an earlier job has timed is tried again sooner; what this one has, not. */
TEST(test_trial_choice_of_kept)
{
    bare *it = bare_new(0, 1000, 2000);
    it->trial.kept[1] = 1;
    CHECK(!weft_i_trial_expects_cma(&it->coll, 15) && weft_i_trial_expects_cma(&it->coll, 16));
    CHECK(!weft_i_trial_expects_cma(&it->coll, 17) && weft_i_trial_expects_cma(&it->coll, 32));
    it->trial.kept[0] = 1;
    it->trial.kept[1] = 0;
    CHECK(!weft_i_trial_expects_cma(&it->coll, 16) && weft_i_trial_expects_cma(&it->coll, 128));
    free(it);
}

/* Of the times that ranks show the worst counts, way by way; what one does not know nobody does. */
static bool agrees(weft_i_times first, weft_i_times second, uint32_t attempt)
{
    bool found[RANKS];
    for (int me = 0; me < RANKS; me++) {
        bare *it = bare_new(me, 0, 0);
        for (int rank = 0; rank < RANKS; rank++) {
            weft_i_location *shown =
                (weft_i_location *)(void *)it->heads[rank].entry[17 % WEFT_I_TURNS].payload;
            shown->times = rank ? second : first;
            shown->attempt = rank ? 5 : attempt; /* rank 0's counts */
        }
        found[me] = weft_i_trial_is_cma(&it->coll);
        free(it);
    }
    CHECK_INT(found[0], found[1]);
    return found[0];
}

TEST(test_trial_agreement)
{
    const weft_i_times none = {{0, 0}}, quick = {{2000, 1000}}, slower = {{1200, 1000}};
    CHECK(!agrees(none, none, 1) && !agrees(quick, none, 1) && !agrees(none, quick, 1));
    CHECK(agrees(quick, quick, 1) && agrees(quick, slower, 1) && agrees(slower, quick, 1));
    CHECK(!agrees(slower, slower, 1));
    CHECK(!agrees(quick, (weft_i_times){{1000, 1700}}, 1)); /* 2000 against 1700 */
    CHECK(!agrees((weft_i_times){{1000, 1700}}, quick, 1));
    CHECK(agrees(quick, (weft_i_times){{10, 0}}, 1)); /* the other is not known to all: tried */
    CHECK(!agrees(quick, (weft_i_times){{0, 10}}, 1));
    CHECK(!agrees(quick, quick, 128) && agrees(quick, quick, 16));
    CHECK(!agrees(quick, (weft_i_times){{1001, 1000}}, 16)); /* kept by one rank: tried soon */
    CHECK(!agrees((weft_i_times){{1001, 1000}}, quick, 16));
    CHECK(agrees(quick, (weft_i_times){{1000, 1001}}, 16)); /* the faster one is not */
    const weft_i_times staged = {{1000, 2000}}, half = {{1000, 0}}, other_half = {{0, 1000}};
    CHECK(!agrees(staged, staged, 16) && agrees(staged, (weft_i_times){{1000, 1001}}, 16));
    CHECK(agrees(staged, half, 1) && agrees(half, half, 128) && !agrees(other_half, quick, 128));
    CHECK(!agrees(none, none, 128));
}

/* What all have agreed on is what a rank expects, whatever its own times say. */
TEST(test_trial_expects_what_was_agreed)
{
    for (int cma = 0; cma < 2; cma++) {
        bare *it = bare_new(0, cma ? 1000 : 2000, cma ? 2000 : 1000);
        CHECK(weft_i_trial_expects_cma(&it->coll, 1) == !cma);
        for (int rank = 0; rank < RANKS; rank++) {
            weft_i_location *shown =
                (weft_i_location *)(void *)it->heads[rank].entry[17 % WEFT_I_TURNS].payload;
            shown->times = (weft_i_times){{cma ? 9000 : 2000, cma ? 3000 : 9000}};
            shown->attempt = 128; /* when the other way has its turn */
        }
        CHECK_INT(weft_i_trial_is_cma(&it->coll), !cma);
        CHECK_INT(weft_i_trial_expects_cma(&it->coll, 1), cma);
        CHECK_INT(weft_i_trial_expects_cma(&it->coll, 128), !cma);
        it->trial.runs[cma]--; /* while a way is being tried, that is known to all */
        CHECK_INT(weft_i_trial_expects_cma(&it->coll, 1), cma);
        it->trial.runs[cma]++;
        it->trial.runs[!cma]--;
        CHECK_INT(weft_i_trial_expects_cma(&it->coll, 128), !cma);
        free(it);
    }
}

static int rows_kept(void)
{
    weft_i_trials kept;
    memset(kept, 0, sizeof kept);
    return weft_i_trial_file_read(RANKS, kept);
}

/* Rank 0 keeps the times when both ways are known, and not before. */
TEST(test_trial_keeping)
{
    setenv("WEFT_LEARN", "1", 1);
    for (int round = 0; round < 2 * RANKS; round++) {
        int me = round % RANKS, first = round / RANKS; /* which way is tried first */
        harness_cache_each(harness_cache_remove);
        bare *it = bare_new(me, 0, 0);
        it->coll.trial = &it->lane.trials[WEFT_I_REDUCE][1];
        for (int run = 0; run < 2 * FULL; run++) {
            CHECK_INT(harness_cache_each(NULL), 0); /* not even a file without rows */
            it->coll.trial_way = first ^ (run >= FULL);
            it->coll.trial_began = weft_i_os_linux.clock_ns() - (run < FULL ? 2000000000 : 0);
            weft_i_trial_end(&it->coll);
        }
        CHECK_INT(rows_kept(), me == 0);
        harness_cache_each(harness_cache_remove);
        weft_i_trial_end(&it->coll); /* no news */
        CHECK_INT(harness_cache_each(NULL), 0);
        free(it);
    }
    unsetenv("WEFT_LEARN");
}

/* What an earlier job has kept is kept anew when both ways are known again and the other one leads,
 * and not otherwise: to write it takes longer than many calls. */
TEST(test_trial_keeping_news)
{
    setenv("WEFT_LEARN", "1", 1);
    stop_clock();
    for (int round = 0; round < 2 * RANKS; round++) {
        int me = round % RANKS, first = round / RANKS;
        harness_cache_each(harness_cache_remove);
        bare *it = bare_new(me, 0, 0);
        weft_i_trial *trial = it->coll.trial = &it->lane.trials[WEFT_I_REDUCE][1];
        *trial = as_read();
        it->coll.trial_way = it->coll.trial_by_table = first;
        mean_after(&it->coll, first ? 850 : 700);
        CHECK_INT(trial->kept[0] + trial->kept[1], 0);
        CHECK_INT(harness_cache_each(NULL), 0); /* 800 and 850, or 700 and 900, are no news */
        *trial = as_read();
        trial->mean[first] = 2000;
        mean_after(&it->coll, 300);
        CHECK(it->lane.learned);
        it->coll.trial_way = !first;
        mean_after(&it->coll, 1000);
        CHECK_INT(harness_cache_each(NULL), 0); /* the other is not known yet */
        mean_after(&it->coll, 1000);
        CHECK_INT(rows_kept(), me == 0);
        CHECK(!it->lane.learned);
        free(it);
    }
    weft_i_os_now = &weft_i_os_linux;
    unsetenv("WEFT_LEARN");
}

/* A lane has learned something when the other way leads. */
TEST(test_trial_learned)
{
    bare *it = bare_new(1, 1000, 1100);
    stop_clock();
    it->coll.trial_way = true;
    CHECK_INT(mean_after(&it->coll, 1060), 1090);
    CHECK(!it->lane.learned);
    CHECK_INT(mean_after(&it->coll, 730), 1000); /* as fast is not faster */
    CHECK(!it->lane.learned);
    CHECK_INT(mean_after(&it->coll, 900), 975);
    CHECK(it->lane.learned);
    CHECK_INT(mean_after(&it->coll, 975), 975);
    CHECK(it->lane.learned); /* and stays so */
    it->lane.learned = false;
    CHECK_INT(mean_after(&it->coll, 1375), 1075);
    CHECK(it->lane.learned);
    weft_i_os_now = &weft_i_os_linux;
    free(it);
}

/* A lane reads it once, at its first large call. */
TEST(test_trial_file_at_first_use)
{
    weft_i_trials out;
    memset(out, 0, sizeof out);
    out[WEFT_I_ALL_REDUCE][0] = (weft_i_trial){{7, 5}, {FULL, FULL}, {0, 0}, 0, 0};
    CHECK(weft_i_trial_file_write(RANKS, out));
    setenv("WEFT_LEARN", "1", 1);
    bare *it = bare_new(0, 0, 0);
    it->coll.ask.kind = WEFT_I_ALL_REDUCE;
    weft_i_trial_begin(&it->coll, WEFT_I_TRIAL_FROM);
    CHECK(it->lane.remembers && it->coll.trial->mean[0] == 7);
    it->coll.trial->mean[0] = 8;
    weft_i_trial_begin(&it->coll, WEFT_I_TRIAL_FROM);
    CHECK_INT(it->coll.trial->mean[0], 8);
    unsetenv("WEFT_LEARN");
    free(it);
}

int main(int argc, char **argv)
{
    return harness_cache_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Timing large calls to find the faster way; see trial.h. */
#include "coll/lane/trial.h"

#include "base/os/os.h"
#include "coll/lane/locations.h"

enum {
    COLD = WEFT_I_TRIAL_COLD,
    RUNS = WEFT_I_TRIAL_RUNS,
    MARGIN = 4,  /* a quarter is what times differ by without a reason */
    AGAIN = 128, /* calls after which the slower way is tried again */
    SOON = 8     /* the same if one or two calls have timed it, or a job on a busy machine */
};

/* The class of a size: its power of two, from the least on. */
static int size_class(size_t transfer)
{
    int class = 63 - __builtin_clzll(transfer / WEFT_I_TRIAL_FROM);
    return class < WEFT_I_TRIAL_SIZES ? class : WEFT_I_TRIAL_SIZES - 1;
}

void weft_i_trial_begin(weft_i_coll *coll, size_t transfer)
{
    weft_i_lane *lane = coll->lane;
    if (!lane->remembers)
        weft_i_trial_remember(lane->size, lane->trials);
    lane->remembers = true;
    coll->trial = &lane->trials[weft_i_kinds[coll->ask.kind].as][size_class(transfer)];
    coll->trial_by_table = transfer >= coll->cma_from;
    coll->trial_began = WEFT_OS->clock_ns();
}

/* Nanoseconds, the last bit of which says that they need to be checked soon; 0: not known. */
static uint32_t known(const weft_i_trial *trial, int way)
{
    uint32_t even = (trial->mean[way] | 1) + 1;
    return trial->runs[way] < RUNS ? 0 : trial->kept[way] ? even | 1 : even;
}

weft_i_times weft_i_trial_times(const weft_i_coll *coll)
{
    return (weft_i_times){{known(coll->trial, 0), known(coll->trial, 1)}};
}

/* 1 is CMA.  A way whose time is not known is tried first, the table's own before the other.  The
 * other must be clearly faster. */
static bool prefers_cma(bool by_table, weft_i_times times)
{
    uint32_t tables = times.of[by_table], others = times.of[!by_table];
    if (!tables)
        return by_table;
    return !others || others + others / MARGIN < tables ? !by_table : by_table;
}

/* `cma` is taken as a rule: whether it is at this attempt. */
static bool by_turn(bool cma, uint32_t attempt, weft_i_times times)
{
    if (!times.of[0] || !times.of[1])
        return cma;
    return attempt % (times.of[!cma] & 1 ? SOON : AGAIN) ? cma : !cma;
}

/* What all have agreed on is what they will agree on again.  A rank's own times may say something
 * else, and what it copies before the entry would be copied twice. */
bool weft_i_trial_expects_cma(const weft_i_coll *coll, uint32_t attempt)
{
    weft_i_times times = weft_i_trial_times(coll);
    bool cma = coll->trial->agreed && times.of[0] && times.of[1]
                   ? coll->trial->agreed == WEFT_I_TRIAL_CMA
                   : prefers_cma(coll->trial_by_table, times);
    return by_turn(cma, attempt, times);
}

/* A call takes as long as on the rank where it takes longest. */
bool weft_i_trial_is_cma(const weft_i_coll *coll)
{
    weft_i_times worst = {{0, 0}};
    bool unknown[2] = {false, false}, kept[2] = {false, false};
    for (int rank = 0; rank < coll->lane->size; rank++) {
        weft_i_times theirs = weft_i_coll_location(coll, rank)->times;
        for (int way = 0; way < 2; way++) {
            unknown[way] |= !theirs.of[way];
            kept[way] |= theirs.of[way] & 1;
            if (theirs.of[way] > worst.of[way])
                worst.of[way] = theirs.of[way];
        }
    }
    for (int way = 0; way < 2; way++)
        worst.of[way] = unknown[way] ? 0 : worst.of[way] | kept[way];
    bool cma = prefers_cma(coll->trial_by_table, worst);
    coll->trial->agreed = cma ? WEFT_I_TRIAL_CMA : WEFT_I_TRIAL_STAGED;
    return by_turn(cma, weft_i_coll_location(coll, 0)->attempt, worst);
}

/* Kept once both ways are known, because most programs end without an end of their lanes. */
static void keep_if(const weft_i_coll *coll, bool both)
{
    if (!both)
        return;
    coll->lane->learned = false;
    if (coll->lane->me == 0)
        weft_i_trial_keep(coll->lane->size, coll->lane->trials);
}

/*
 * The other way is known and this one will not be taken: it would have to be clearly faster.  The
 * first call may have touched new pages, so that one has to be twice as slow.  Calls of the slower
 * way are what a trial costs; a way that looks faster costs nothing and is timed in full.
 */
static bool is_beaten(const weft_i_trial *trial, int way)
{
    uint32_t mine = trial->mean[way], other = trial->mean[!way];
    if (trial->runs[!way] < RUNS)
        return false;
    return trial->runs[way] < COLD ? mine / 2 > other : mine + mine / MARGIN >= other;
}

/*
 * The first call of every root of a gather touches the pages of its output.  If roots take turns, so
 * many calls are slow, and all of them go the way of the table.  The other way would be timed on warm
 * pages and seem faster.
 */
static bool is_first_of_root(const weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    uint8_t most = (uint8_t)weft_i_coll_min((size_t)lane->size, UINT8_MAX);
    if (!weft_i_kind_is(weft_i_kinds[coll->ask.kind].as, WEFT_I_TO_ROOT) ||
        coll->trial->roots == most)
        return false;
    coll->trial->roots++;
    return true;
}

/*
 * The mean of the last few calls, without the cold ones; one that was kept off its core counts as
 * twice the mean.  One that takes less than half of the mean replaces it: those before it touched
 * new pages, as the first call of every root does.  Not the least: ranks that come one by one copy
 * undisturbed by each other, and that is not how long a call takes.
 */
static uint32_t mean_with(const weft_i_trial *trial, int way, int64_t took)
{
    int64_t mean = trial->mean[way];
    if (trial->runs[way] <= COLD || 2 * took < mean)
        return (uint32_t)took;
    took = took > 2 * mean ? 2 * mean : took;
    return (uint32_t)(mean + (took - mean) / 4);
}

/*
 * An earlier job's mean gives way to the first call that takes less.  If that takes less than half,
 * the machine was busy then, and the other way has to be checked too; so it has where that job left
 * the way of the table.  Calls that take longer count once those are over that may have touched new
 * pages.  The file is written only if the other way leads now: that takes longer than many calls.
 */
static void end_kept(weft_i_coll *coll, int way, int64_t took)
{
    weft_i_trial *trial = coll->trial;
    uint32_t mean = trial->mean[way];
    bool before = trial->mean[1] < trial->mean[0];
    trial->kept[way] = took < mean ? 0 : trial->kept[way] - 1;
    if (trial->kept[way])
        return;
    trial->mean[way] = took < mean ? (uint32_t)took : mean_with(trial, way, took);
    if (2 * took >= mean && way == coll->trial_by_table)
        trial->kept[!way] = 0;
    coll->lane->learned |= before != (trial->mean[1] < trial->mean[0]);
    keep_if(coll, !trial->kept[!way] && coll->lane->learned);
}

void weft_i_trial_end(weft_i_coll *coll)
{
    weft_i_trial *trial = coll->trial;
    int way = coll->trial_way;
    int64_t took = WEFT_OS->clock_ns() - coll->trial_began;
    took = took < 1 ? 1 : took > INT32_MAX ? INT32_MAX : took;
    if (is_first_of_root(coll))
        return;
    if (trial->kept[way]) {
        end_kept(coll, way, took);
        return;
    }
    bool before = trial->mean[1] < trial->mean[0];
    trial->mean[way] = mean_with(trial, way, took);
    if (trial->runs[way] == RUNS) {
        /* Of two that are near each other now one leads, now the other. */
        coll->lane->learned |= before != (trial->mean[1] < trial->mean[0]);
        return;
    }
    trial->runs[way]++;
    if (trial->runs[way] < RUNS && is_beaten(trial, way)) {
        trial->runs[way] = RUNS;
        trial->kept[way] = 1; /* so few calls are soon checked by another one */
    }
    keep_if(coll, trial->runs[way] == RUNS && trial->runs[!way] == RUNS);
}

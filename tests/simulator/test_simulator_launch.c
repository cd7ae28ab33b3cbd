/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: launch/launch.c, launch/attempt.c, launch/cause.c */
/*
 * The launcher on simulated processes: it starts one to five ranks, which meet through the
 * inherited page, pass a barrier and write a line; troubles are ranks that fail, die, are stopped,
 * do not hear SIGTERM, a signal to the launcher, and the death of the launcher itself.  Checked are
 * the result, who is said to have failed first, that a job ends by its limit, and that no rank,
 * zombie, descriptor or byte is left.
 */
#include "simulator/seeds.h"

#include "base/os/os.h"
#include "tensor/object/scope.h"
#include "weft/launch.h"
#include "weft/weft.h"

#include <signal.h>

enum { RANKS = 5, LIMIT_MS = 3000, GRACE_MS = 400, RANK_MS = 1000, SLACK_MS = 150, CODE = 7 };

typedef enum trouble {
    NONE,
    FAILS,
    DIES,
    STOPS,
    DEAF,
    INTERRUPTED,
    LAUNCHER_DIES,
    NO_PROGRAM,
    TROUBLES
} trouble;
static const char *const trouble_names[] = {
    "no trouble", "a rank fails",   "a rank dies",       "a rank stops",
    "deaf ranks", "a signal comes", "the launcher dies", "there is no program"};

static struct {
    sim_os_plan plan;
    trouble trouble;
    int ranks, culprit;
    int64_t when;
    sim_program program;
    unsigned long long ok, failed, timed_out, interrupted, lines;
} now;

/* ---- ranks ---- */

static void say_line(int rank)
{
    char text[40];
    int n = snprintf(text, sizeof text, "rank %d was here\n", rank);
    if (WEFT_OS->write(1, text, (size_t)n) != n)
        weft_i_sim_complain("rank %d cannot write a line", rank);
}

static int rank_main(void *arg)
{
    (void)arg;
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = RANK_MS;
    opts.meet_timeout_ms = RANK_MS;
    int64_t began = weft_i_sim_now();
    weft_group *world = weft_init(&opts);
    int64_t took = weft_i_sim_now() - began;
    if (took > (RANK_MS + SLACK_MS) * INT64_C(1000000) && now.trouble != STOPS)
        weft_i_sim_complain("weft_init took %.1f ms", (double)took * 1e-6);
    if (!world && now.trouble == NONE)
        weft_i_sim_complain("weft_init fails: %s", weft_last_error());
    if (!world)
        return 40;
    int rank = weft_rank(world);
    if (now.trouble == FAILS && rank == now.culprit)
        return CODE;
    weft_status status = weft_group_barrier(world, WEFT_DEFAULT);
    if (status < 0 && now.trouble == NONE)
        weft_i_sim_complain("rank %d: the barrier fails: %s", rank, weft_last_error());
    say_line(rank);
    if (now.trouble == DEAF || now.trouble == INTERRUPTED) /* until it is told to go */
        for (int i = 0; i < 100; i++)
            WEFT_OS->sleep_ns(100000000);
    return weft_finish(world);
}

static const sim_program *find(const char *name)
{
    return strcmp(name, "rank") ? NULL : &now.program;
}

/* ---- the launcher ---- */

static void check_end(int result, const weft_launch_end *end)
{
    bool named = end->first_rank == now.culprit;
    switch (now.trouble) {
    case NONE:
        if (result || end->first_rank != -1)
            weft_i_sim_complain("a right job ends with %d, rank %d", result, end->first_rank);
        break;
    case FAILS:
        if (result != CODE || !named || end->exit_code != CODE)
            weft_i_sim_complain("rank %d failed with %d; the launcher says rank %d, %d",
                                now.culprit, CODE, end->first_rank, result);
        break;
    case DIES:
        if (sim_os_status(2 + now.culprit) == SIGKILL && (result != 128 + SIGKILL || !named))
            weft_i_sim_complain("rank %d was killed; the launcher says rank %d, %d", now.culprit,
                                end->first_rank, result);
        break;
    case DEAF:
        if (result != WEFT_LAUNCH_TIMED_OUT || !end->timed_out)
            weft_i_sim_complain("a job that goes on past its limit ends with %d", result);
        break;
    case INTERRUPTED:
        if (end->interrupted != SIGTERM && !end->timed_out)
            weft_i_sim_complain("an interrupted job ends with %d, signal %d", result,
                                end->interrupted);
        break;
    case NO_PROGRAM:
        if (result != WEFT_ERR_NOT_FOUND)
            weft_i_sim_complain("without a program the result is %d", result);
        break;
    default:
        break;
    }
}

static int launcher_main(void *arg)
{
    (void)arg;
    weft_launch_end end = {0};
    char *const argv[] = {(char[]){"rank"}, NULL}, *const none[] = {(char[]){"nothing"}, NULL};
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = now.ranks;
    opts.argv = now.trouble == NO_PROGRAM ? none : argv;
    opts.timeout_ms = LIMIT_MS;
    opts.flags = WEFT_LAUNCH_SIGNALS;
    opts.end = &end;
    int64_t began = weft_i_sim_now();
    int result = weft_launch(&opts);
    int64_t took = weft_i_sim_now() - began;
    if (took > (LIMIT_MS + 3 * GRACE_MS + SLACK_MS) * INT64_C(1000000))
        weft_i_sim_complain("the job took %.1f ms, its limit is %d", (double)took * 1e-6, LIMIT_MS);
    check_end(result, &end);
    for (int i = 0; i < now.ranks && now.trouble != NO_PROGRAM; i++)
        if (sim_os_status(2 + i) < 0)
            weft_i_sim_complain("rank %d is left", i);
    now.ok += result == 0;
    now.failed += result > 0 && !end.timed_out;
    now.timed_out += end.timed_out != 0;
    now.interrupted += end.interrupted != 0;
    weft_i_scope_abandon(true);
    sim_os_holding held = sim_os_holding_of(sim_os_self());
    if (held.descriptors || held.bytes)
        weft_i_sim_complain("the launcher leaves %d descriptors (%s) and %zu bytes",
                            held.descriptors, held.example, held.bytes);
    return 0;
}

/* Sends the signal from outside, or wakes who was stopped. */
static int other_main(void *arg)
{
    (void)arg;
    WEFT_OS->sleep_ns(now.when);
    if (now.trouble == INTERRUPTED)
        sim_os_signal(0, SIGTERM);
    return 0;
}

/* ---- a run ---- */

static void make_scene(uint64_t seed)
{
    static const uint32_t every[] = {10, 40, 150, 400};
    memset(&now, 0, sizeof now);
    seeds_dice = seed * 2 + 1;
    now.ranks = 1 + (int)seeds_roll(RANKS);
    now.trouble = (trouble)seeds_roll(TROUBLES);
    now.culprit = (int)seeds_roll((uint64_t)now.ranks);
    now.when = (int64_t)seeds_roll(500000000);
    now.program = (sim_program){.main = rank_main, .deaf = now.trouble == DEAF};
    now.plan.turns = (weft_i_sim_plan){.seed = seed * UINT64_C(0x9e3779b97f4a7c15),
                                       .every = every[seeds_roll(4)],
                                       .horizon_ns = INT64_C(60000000000),
                                       .points = 20000000};
    now.plan.find = find;
    uint64_t point = 1 + seeds_roll(seeds_roll(2) ? 100 : 1500);
    /* Process 0 is the launcher, 1 sends the signal, the ranks follow. */
    weft_i_sim_fault *fault =
        &now.plan.turns.fault[now.trouble == LAUNCHER_DIES ? 0 : 2 + now.culprit];
    if (now.trouble == DIES || now.trouble == LAUNCHER_DIES)
        fault->death_at = point;
    if (now.trouble == STOPS) {
        fault->delay_at = point;
        fault->delay_ns = (int64_t)seeds_roll(6000) * 1000000;
    }
}

/* Every line of a rank that wrote one is shown whole, behind its prefix. */
static void check_console(seeds_half *out)
{
    const char *shown = sim_os_console();
    for (int rank = 0; rank < now.ranks && now.trouble == NONE; rank++) {
        char line[64];
        snprintf(line, sizeof line, "[%d] rank %d was here\n", rank, rank);
        now.lines += strstr(shown, line) != NULL;
        if (!strstr(shown, line))
            seeds_fail(out, "the line of rank %d is not shown: \"%.400s\"", rank, shown);
    }
    if (now.trouble == FAILS && now.ranks > 1) {
        char text[64];
        snprintf(text, sizeof text, "rank %d of %d failed first", now.culprit, now.ranks);
        if (!strstr(shown, text))
            seeds_fail(out, "the report does not name rank %d: \"%.400s\"", now.culprit, shown);
    }
}

static void run_scene(uint64_t seed, seeds_half *out)
{
    weft_i_sim_result result;
    make_scene(seed);
    sim_os_begin(&now.plan);
    sim_os_start(&(sim_program){.main = launcher_main, .env = {"WEFT_KILL_GRACE=400"}});
    sim_os_start(&(sim_program){.main = other_main});
    sim_os_join();
    sim_os_end(&result);
    seeds_close(&result, out);
    check_console(out);
    out->tally[0] += now.ok;
    out->tally[1] += now.failed;
    out->tally[2] += now.timed_out;
    out->tally[3] += now.interrupted;
    out->tally[4] += now.lines;
    if (seeds_verbose)
        fprintf(stderr, "%sseed %llu: %d ranks, %s (rank %d): %llu points, %llu turns, %.3f ms\n",
                sim_os_console(), (unsigned long long)seed, now.ranks, trouble_names[now.trouble],
                now.culprit, (unsigned long long)result.points, (unsigned long long)result.turns,
                (double)result.now_ns * 1e-6);
}

static const seeds_scene scene = {
    .name = "launch",
    .run = run_scene,
    .count = 750,
    .tallies = {"good jobs", "failed", "timed out", "interrupted", "lines"}};

TEST(test_simulator_launch_seeds)
{
    seeds_hold(&scene);
}

TEST(test_simulator_launch_repeats)
{
    for (uint64_t seed = 1; seed <= 10; seed++)
        seeds_repeat(&scene, seed);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a scene with many seeds, half of them on each of two cores.
 *
 *     WEFT_SIM_SEED=n      this one alone, with its story
 *     WEFT_SIM_TRACE=1     and every system call of it
 *     WEFT_SIM_SEEDS=n     so many, from WEFT_SIM_FIRST or 1 on
 *     WEFT_SIM_GO_ON=1     also after a failure, each of which is told
 *
 * Together with the name of a test as the program's argument.
 */
#ifndef WEFT_TESTS_SIMULATOR_SEEDS_H
#define WEFT_TESTS_SIMULATOR_SEEDS_H

#include "harness.h"
#include "simulator/os.h"

#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEEDS_TALLIES = 12, SEEDS_FAILURE = 1600 };

/* What a half has seen; shared with the process that waits for it. */
typedef struct seeds_half {
    unsigned long long seed; /* under way: should the process crash, it is the one */
    unsigned long long done, turns, points, hash;
    unsigned long long tally[SEEDS_TALLIES]; /* the scene's own */
    char failure[SEEDS_FAILURE];
} seeds_half;

/* A scene: runs one seed, adds to the tallies, and says what was wrong. */
typedef struct seeds_scene {
    const char *name;
    void (*run)(uint64_t seed, seeds_half *out);
    uint64_t count;                     /* seeds of a plain run */
    const char *tallies[SEEDS_TALLIES]; /* what they count; each must have happened */
} seeds_scene;

static bool seeds_verbose;
static const char *seeds_wanted; /* only a failure with these words counts; NULL: every one */

#if defined(__SANITIZE_ADDRESS__)
#define SEEDS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define SEEDS_SANITIZED 1
#endif
#endif
#ifndef SEEDS_SANITIZED
#define SEEDS_SANITIZED 0
#endif

static uint64_t seeds_number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

__attribute__((format(printf, 2, 3))) static void seeds_fail(seeds_half *half, const char *format,
                                                             ...)
{
    va_list args;
    va_start(args, format);
    if (!half->failure[0])
        vsnprintf(half->failure, sizeof half->failure, format, args);
    va_end(args);
}

/* Hand-overs are cheapest on one core: the n-th, counted round, of ours. */
static void seeds_stay_on_core(int n)
{
    cpu_set_t mine, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof mine, &mine))
        return;
    n %= CPU_COUNT(&mine);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &mine) && n-- == 0)
            CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void seeds_run_half(const seeds_scene *scene, uint64_t first, uint64_t end, uint64_t stride,
                           seeds_half *out)
{
    for (uint64_t seed = first; seed < end && !out->failure[0]; seed += stride) {
        out->seed = seed;
        scene->run(seed, out);
        out->done++;
        if (out->failure[0] && getenv("WEFT_SIM_GO_ON")) {
            fprintf(stderr, "WEFT_SIM_SEED=%llu: %s\n", out->seed, out->failure);
            out->failure[0] = 0;
        }
        if (seeds_wanted && !strstr(out->failure, seeds_wanted))
            out->failure[0] = 0;
    }
}

static int seeds_await(pid_t child, seeds_half *half)
{
    int status = -1;
    waitpid(child, &status, 0);
    if (status && !half->failure[0])
        snprintf(half->failure, sizeof half->failure, "its process ended with wait status %d",
                 status);
    return status;
}

/* Both halves are children, so that a crash is a failure with a seed. */
static seeds_half *seeds_run(const seeds_scene *scene, uint64_t first, uint64_t end, int halves)
{
    seeds_half *half =
        mmap(NULL, 2 * sizeof *half, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(half != MAP_FAILED);
    pid_t child[2] = {0};
    fflush(NULL);
    for (int i = 0; i < halves; i++)
        if ((child[i] = fork()) == 0) {
            seeds_stay_on_core(i);
            seeds_run_half(scene, first + (uint64_t)i, end, (uint64_t)halves, &half[i]);
            fflush(NULL);
            _exit(0);
        }
    for (int i = 0; i < halves; i++)
        if (child[i] > 0)
            seeds_await(child[i], &half[i]);
    return half;
}

static uint64_t seeds_count(const seeds_scene *scene)
{
    uint64_t plain = SEEDS_SANITIZED ? scene->count / 5 + 1 : scene->count;
    return seeds_number("WEFT_SIM_SEEDS", getenv("WEFT_TEST_ALL") ? 30 * plain : plain);
}

/* The scene with its seeds, or the one that is asked for; fails with the first that does. */
__attribute__((unused)) static void seeds_hold(const seeds_scene *scene)
{
    uint64_t first = seeds_number("WEFT_SIM_FIRST", 1), count = seeds_count(scene);
    seeds_verbose = getenv("WEFT_SIM_SEED") != NULL;
    sim_trace = seeds_verbose && getenv("WEFT_SIM_TRACE");
    if (seeds_verbose) {
        first = seeds_number("WEFT_SIM_SEED", 1);
        count = 1;
    }
    seeds_half *half = seeds_run(scene, first, first + count, seeds_verbose ? 1 : 2);
    seeds_half sum = half[0], other = half[1];
    munmap(half, 2 * sizeof *half);
    for (int i = 0; i < SEEDS_TALLIES; i++)
        sum.tally[i] += other.tally[i];
    fprintf(stderr, "%s: %llu seeds, %llu turns, %llu points", scene->name, sum.done + other.done,
            sum.turns + other.turns, sum.points + other.points);
    for (int i = 0; i < SEEDS_TALLIES && scene->tallies[i]; i++)
        fprintf(stderr, ", %llu %s", sum.tally[i], scene->tallies[i]);
    fputc('\n', stderr);
    const seeds_half *bad = sum.failure[0] ? &sum : &other;
    if (bad->failure[0])
        FAIL("WEFT_SIM_SEED=%llu: %s", bad->seed, bad->failure);
    for (int i = 0; i < SEEDS_TALLIES && scene->tallies[i] && count >= 100 && !SEEDS_SANITIZED; i++)
        if (!sum.tally[i])
            FAIL("in none of the seeds there were %s", scene->tallies[i]);
}

/* The planted bug `number` must show within `most` seeds, and by these words. */
__attribute__((unused)) static void seeds_find(const seeds_scene *scene, int number, uint64_t most,
                                               const char *words)
{
    if (SEEDS_SANITIZED)
        SKIP("planted bugs are looked for without a sanitizer, which makes seeds slow");
    if (SIM_PLANTS_LOST[0])
        FAIL("simulator/plants.cmake does not find the text it replaces for%s", SIM_PLANTS_LOST);
    sim_plant = number;
    seeds_wanted = words;
    seeds_half *half = seeds_run(scene, 1, 1 + most, 2);
    seeds_wanted = NULL;
    sim_plant = 0;
    seeds_half both[2] = {half[0], half[1]};
    munmap(half, 2 * sizeof *half);
    const seeds_half *found =
        both[0].failure[0] && (!both[1].failure[0] || both[0].seed < both[1].seed) ? &both[0]
                                                                                   : &both[1];
    if (!found->failure[0])
        FAIL("%llu seeds do not find bug %d, which is planted", (unsigned long long)most, number);
    fprintf(stderr, "%s, bug %d: seed %llu: %.300s\n", scene->name, number, found->seed,
            found->failure);
}

/* The same seed gives the same run. */
__attribute__((unused)) static void seeds_repeat(const seeds_scene *scene, uint64_t seed)
{
    seeds_half *a = seeds_run(scene, seed, seed + 1, 1), *b = seeds_run(scene, seed, seed + 1, 1);
    unsigned long long first = a->hash, second = b->hash, turns = a->turns;
    munmap(a, 2 * sizeof *a);
    munmap(b, 2 * sizeof *b);
    CHECK(turns > 0 && first == second);
}

/* Numbers for a scene; the simulator has its own. */
static uint64_t seeds_dice;
static uint64_t seeds_roll(uint64_t bound)
{
    seeds_dice += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = seeds_dice;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return bound ? (x ^ x >> 31) % bound : 0;
}

/* Notes what every run has: its turns, and what the simulator itself complained of. */
static void seeds_close(const weft_i_sim_result *result, seeds_half *out)
{
    out->turns += result->turns;
    out->points += result->points;
    out->hash = out->hash * 31 + result->hash;
    if (result->hangs)
        seeds_fail(out, "hangs: %s", result->state);
    if (result->complaint[0])
        seeds_fail(out, "%s", result->complaint);
}

#endif

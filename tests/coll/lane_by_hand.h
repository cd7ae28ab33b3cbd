/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane of a group by hand: this rank runs its part of an algorithm alone.  The others are memory:
 * they have come to the entry and to every sync, their fifos are full and empty enough, and each
 * byte of their bounce buffers, inputs and outputs tells where it lies.  So what this rank reads,
 * and from where, shows in its output, and every fold and every read of another process is written
 * down as a line of text.
 */
#ifndef WEFT_TESTS_LANE_BY_HAND_H
#define WEFT_TESTS_LANE_BY_HAND_H

#include "group_by_hand.h"

#include "coll/host/algorithms.h"
#include "coll/lane/cma.h"
#include "coll/lane/enter.h"
#include "tune/tune.h"

#include <errno.h>
#include <stddef.h>

enum {
    LANE_EPOCH = 40,
    LANE_ROOM = WEFT_I_RINGS_AT, /* bounce buffers of a rank */
    LANE_BYTES = 5 << 18,        /* most of an operand */
    LANE_GUARD = 256,            /* behind it: nobody writes there */
    LANE_PROCESS = 7000          /* of rank 0; the others follow */
};

typedef struct lane_scene {
    int me, size;
    weft_group *group;
    weft_i_lane lane;
    weft_i_lane_head *heads;
    weft_i_segment segments[HAND_SIZE], *blocks[HAND_SIZE];
    weft_i_registration registration;
    const void *sources[HAND_SIZE];
    void *targets[HAND_SIZE];
    double factors[HAND_SIZE];
    weft_i_location prefetched[HAND_SIZE];
    weft_i_sample samples[HAND_SIZE];
    char *in[HAND_SIZE], *out[HAND_SIZE]; /* by rank */
    weft_i_coll coll;
    weft_i_os os;
} lane_scene;

static lane_scene scene;
static char lane_log[1 << 16]; /* what was done, a line each */
static size_t lane_logged;

/* The log as a test expects it, line by line. */
static char lane_wanted[sizeof lane_log];
static size_t lane_wanted_used;

static inline void lane_want_nothing(void)
{
    lane_wanted_used = 0;
    lane_wanted[0] = 0;
}

__attribute__((format(printf, 1, 2))) static inline void lane_want(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(lane_wanted + lane_wanted_used, sizeof lane_wanted - lane_wanted_used, format,
                      args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < sizeof lane_wanted - lane_wanted_used);
    lane_wanted_used += (size_t)n;
}

/* The bytes of a place from `at` on, which no other place has at the same offset. */
enum lane_where { LANE_IN, LANE_OUT, LANE_BOUNCE };

static const char *lane_bytes(enum lane_where place, int rank, size_t at)
{
    enum { APART = 4099 };
    static char all[LANE_BYTES + LANE_GUARD + 3 * HAND_SIZE * APART];
    for (size_t i = 0; !all[0] && i < sizeof all; i++) {
        uint64_t mixed = (i + 2) * 0x9e3779b97f4a7c15u;
        uint64_t filled = i + 1 == sizeof all; /* the first byte is the last, and not 0 */
        all[sizeof all - 1 - i] = (char)((mixed >> 29 ^ mixed >> 47) | filled);
    }
    return all + (size_t)(place * HAND_SIZE + rank) * APART + at;
}

__attribute__((format(printf, 1, 2))) static void lane_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(lane_log + lane_logged, sizeof lane_log - lane_logged, format, args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < sizeof lane_log - lane_logged);
    lane_logged += (size_t)n;
}

/* "in1+64", "bounce3+0": where a pointer points. */
static const char *lane_place(const void *pointer, char text[32])
{
    const char *p = pointer;
    snprintf(text, 32, "nowhere");
    for (int rank = 0; rank < scene.size; rank++) {
        const char *places[] = {scene.in[rank], scene.out[rank], scene.segments[rank].base};
        static const char *const names[] = {"in", "out", "bounce"};
        for (int i = 0; i < 3; i++)
            if (p >= places[i] && p < places[i] + (i < 2 ? LANE_BYTES : LANE_ROOM))
                snprintf(text, 32, "%s%d+%zu", names[i], rank, (size_t)(p - places[i]));
    }
    return text;
}

/* A fold that adds bytes, and tells what it was given; `2:` is the number of syncs before it. */
static void lane_fold(void *const *out, int outputs, const void *const *in, int inputs,
                      size_t count, const double *factors)
{
    char text[32];
    (void)factors;
    lane_note("%u: %zu of", scene.lane.syncs, count);
    for (int i = 0; i < inputs; i++)
        lane_note(" %s", lane_place(in[i], text));
    lane_note(" to");
    for (int i = 0; i < outputs; i++)
        lane_note(" %s", lane_place(out[i], text));
    lane_note("\n");
    for (size_t at = 0; at < count * scene.coll.ask.item; at++) {
        unsigned sum = 0;
        for (int i = 0; i < inputs; i++)
            sum += ((const unsigned char *)in[i])[at];
        for (int i = 0; i < outputs; i++)
            ((unsigned char *)out[i])[at] = (unsigned char)sum;
    }
}

static int lane_unreadable; /* a process that has died */

static ssize_t lane_read_process(int process, void *to, uint64_t from, size_t bytes)
{
    char text[2][32];
    if (process == lane_unreadable) {
        errno = ESRCH;
        return -1;
    }
    lane_note("%u: read %zu of process %d, %s to %s\n", scene.lane.syncs, bytes, process,
              lane_place((const void *)(uintptr_t)from, text[0]), lane_place(to, text[1]));
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return (ssize_t)bytes;
}

static void *lane_memory(size_t bytes)
{
    void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    CHECK(memory);
    return memset(memory, 0, (bytes + 4095) / 4096 * 4096);
}

static void lane_open_points(weft_i_lane *lane)
{
    weft_i_point point = {.me = lane->me,
                          .size = lane->size,
                          .bells = lane->heads + offsetof(weft_i_lane_head, bell),
                          .stride = lane->head_stride};
    lane->entry = lane->steps = point;
    lane->entry.words = lane->heads + offsetof(weft_i_lane_head, entry);
    lane->entry.passes = lane->heads + offsetof(weft_i_lane_head, entry_pass);
    lane->entry.turn_stride = sizeof(weft_i_lane_entry);
    lane->entry.turns = WEFT_I_TURNS;
    lane->steps.words = lane->heads + offsetof(weft_i_lane_head, step);
    lane->steps.passes = lane->heads + offsetof(weft_i_lane_head, step_pass);
}

static void lane_open(int size, weft_i_cma_way cma, weft_i_wait_mode mode)
{
    static const int two[] = {4, 1};
    hand_open();
    memset(&scene, 0, sizeof scene);
    scene.me = HAND_ME;
    scene.size = size;
    scene.group = size == HAND_SIZE ? hand.group : hand_group(size, two, "two");
    scene.heads = lane_memory((size_t)size * sizeof *scene.heads);
    for (int rank = 0; rank < size; rank++) {
        scene.segments[rank].base = lane_memory(LANE_ROOM);
        scene.segments[rank].bytes = LANE_ROOM;
        scene.blocks[rank] = &scene.segments[rank];
        scene.in[rank] = lane_memory(LANE_BYTES + LANE_GUARD);
        scene.out[rank] = lane_memory(LANE_BYTES + LANE_GUARD);
        scene.samples[rank].process = LANE_PROCESS + rank;
    }
    scene.registration = (weft_i_registration){.size = size, .blocks = scene.blocks};
    scene.lane = (weft_i_lane){.me = HAND_ME,
                               .size = size,
                               .cma = cma,
                               .mode = mode,
                               .registration = &scene.registration,
                               .heads = (char *)scene.heads,
                               .head_stride = sizeof *scene.heads,
                               .entered = &scene.group->calls.entries,
                               .sources = scene.sources,
                               .targets = scene.targets,
                               .factors = scene.factors,
                               .prefetched = scene.prefetched,
                               .samples = scene.samples};
    lane_open_points(&scene.lane);
    scene.os = weft_i_os_linux;
    scene.os.read_process = lane_read_process;
    weft_i_os_now = &scene.os;
}

static void lane_close(void)
{
    weft_i_os_now = &weft_i_os_linux;
    free(scene.heads);
    for (int rank = 0; rank < scene.size; rank++) {
        free(scene.segments[rank].base);
        free(scene.in[rank]);
        free(scene.out[rank]);
    }
    hand_close();
}

/* The others have come to everything: to the entry with this call, to all syncs of it, and have
 * filled and drained all that they could. */
static void lane_others_come(void)
{
    uint32_t epoch = scene.lane.epoch + 1;
    for (int rank = 0; rank < scene.size; rank++) {
        weft_i_lane_head *head = &scene.heads[rank];
        weft_i_location where = {.in_address = (uintptr_t)scene.in[rank],
                                 .out_address = (uintptr_t)scene.out[rank]};
        if (rank == scene.me)
            continue;
        memcpy(head->entry[epoch % WEFT_I_TURNS].payload, &where, sizeof where);
        head->entry[epoch % WEFT_I_TURNS].arrival =
            (uint64_t)epoch << 32 | (weft_i_digest(scene.lane.chain, scene.coll.digest) & ~1u);
        head->step = (uint64_t)1000 << 32;
        head->syncs = 1000;
        head->filled = head->drained = (uint64_t)(epoch + 1) << 32;
    }
}

/* A call of `count` elements of `item` bytes, with fresh memory everywhere. */
static weft_i_coll *lane_call(weft_i_coll_kind kind, size_t count, size_t item, int root)
{
    uint32_t facts = weft_i_kinds[kind].facts;
    size_t all = (size_t)scene.size * count * item;
    weft_i_coll *coll = &scene.coll;
    for (int rank = 0; rank < scene.size; rank++) {
        memcpy(scene.in[rank], lane_bytes(LANE_IN, rank, 0), LANE_BYTES + LANE_GUARD);
        memcpy(scene.out[rank], lane_bytes(LANE_OUT, rank, 0), LANE_BYTES + LANE_GUARD);
        memcpy(scene.segments[rank].base, lane_bytes(LANE_BOUNCE, rank, 0), LANE_ROOM);
    }
    memset(scene.heads, 0, (size_t)scene.size * sizeof *scene.heads);
    scene.lane.epoch = scene.lane.settled = LANE_EPOCH;
    scene.lane.syncs = 0;
    weft_i_coll_empty(coll);
    coll->ask = (weft_i_request){.kind = kind,
                                 .op = weft_i_coll_name(kind),
                                 .count = count,
                                 .item = item,
                                 .root = root,
                                 .in = scene.in[scene.me],
                                 .out = scene.out[scene.me],
                                 .in_bytes = facts & WEFT_I_HAS_PARTS ? all : count * item,
                                 .out_bytes = facts & WEFT_I_PLACES_PARTS ? all : count * item,
                                 .limit_ms = 20000};
    CHECK(coll->ask.in_bytes <= LANE_BYTES && coll->ask.out_bytes <= LANE_BYTES);
    coll->group = scene.group;
    coll->label = (weft_i_label){scene.group, coll->ask.op, -1};
    coll->lane = &scene.lane;
    coll->digest = 100;
    coll->fold = lane_fold;
    coll->algorithm = WEFT_I_ALGO_RENDEZVOUS;
    coll->cma_from = SIZE_MAX;
    coll->cma_fixed = true;
    coll->lane->fold_whole_up_to = weft_i_tune_same(WEFT_I_TUNE_FOLD_WHOLE, kind);
    coll->lane->push_from = weft_i_tune_same(WEFT_I_TUNE_PUSH, kind);
    lane_logged = 0;
    lane_log[0] = 0;
    weft_i_enter_note(coll);
    lane_others_come();
    return coll;
}

/* Every rank shows its input at the entry, though it could be fetched. */
__attribute__((unused)) static void lane_shown(void)
{
    scene.coll.shown_up_to = SIZE_MAX;
    for (int rank = 0; rank < scene.size; rank++)
        ((weft_i_location *)(void *)scene.heads[rank]
             .entry[(LANE_EPOCH + 1) % WEFT_I_TURNS]
             .payload)
            ->shown = 1;
}

/* What lies in `memory` is what a place of `rank` has from `at` on. */
static void lane_expect(const char *memory, enum lane_where place, int rank, size_t at,
                        size_t bytes)
{
    char text[32];
    const char *wanted = lane_bytes(place, rank, at);
    for (size_t i = 0; memcmp(memory, wanted, bytes) && i < bytes; i++)
        if (memory[i] != wanted[i])
            FAIL("byte %zu of %zu at %s is not byte %zu of place %d of rank %d", i, bytes,
                 lane_place(memory, text), at + i, place, rank);
}

/* Nothing behind the first `at` bytes of our output was written. */
__attribute__((unused)) static void lane_untouched(size_t at)
{
    lane_expect(scene.out[scene.me] + at, LANE_OUT, scene.me, at, LANE_BYTES + LANE_GUARD - at);
}

/* Our bounce buffers are what the test has made of `model`, which this gives it to begin with. */
static char lane_model[LANE_ROOM];

__attribute__((unused)) static char *lane_new_model(void)
{
    return memcpy(lane_model, lane_bytes(LANE_BOUNCE, scene.me, 0), LANE_ROOM);
}

__attribute__((unused)) static void lane_as_model(void)
{
    const char *bounce = scene.segments[scene.me].base;
    for (size_t i = 0; memcmp(bounce, lane_model, LANE_ROOM) && i < LANE_ROOM; i++)
        if (bounce[i] != lane_model[i])
            FAIL("byte %zu of our bounce buffers is not as it should be", i);
}

/* Nobody else's memory was written; of outputs only if that is asked. */
__attribute__((unused)) static void lane_others_untouched(bool outputs)
{
    for (int rank = 0; rank < scene.size; rank++) {
        if (rank == scene.me)
            continue;
        lane_expect(scene.in[rank], LANE_IN, rank, 0, LANE_BYTES + LANE_GUARD);
        lane_expect(scene.segments[rank].base, LANE_BOUNCE, rank, 0, LANE_ROOM);
        if (outputs)
            lane_expect(scene.out[rank], LANE_OUT, rank, 0, LANE_BYTES + LANE_GUARD);
    }
}

/* The last rank does not come to sync `n` of the call that follows, or (0) not to its entry, and
 * nobody waits for long. */
__attribute__((unused)) static void lane_break(unsigned n)
{
    weft_i_lane_head *last = &scene.heads[scene.size - 1 == scene.me ? 0 : scene.size - 1];
    enum { SYNC_DIGEST = 0x73796e62 }; /* what a sync shows */
    if (n)
        last->step = (uint64_t)(n - 1) << 32 | SYNC_DIGEST;
    else
        last->entry[(LANE_EPOCH + 1) % WEFT_I_TURNS].arrival = 0;
    scene.coll.ask.limit_ms = 1;
}

/* Rank `rank` has died, and its memory cannot be read. */
__attribute__((unused)) static void lane_kill(int rank)
{
    lane_unreadable = LANE_PROCESS + rank;
    hand_kill(hand_members[rank]);
}

__attribute__((unused)) static void lane_revive(void)
{
    hand_revive(hand_members[lane_unreadable - LANE_PROCESS]);
    lane_unreadable = 0;
    scene.group->board->revoked = 0;
    scene.group->board->failure = 0;
    weft_clear_error();
}

/* It was told so, there.  In its middle the group has ended, as it shall not have for the next. */
__attribute__((unused)) static void lane_broken(weft_status status, unsigned n)
{
    CHECK_INT(status, WEFT_ERR_TIMEOUT);
    CHECK_INT(scene.lane.syncs, n);
    CHECK(weft_i_group_has_ended(scene.group) == (scene.lane.epoch > LANE_EPOCH));
    scene.group->board->revoked = 0;
    weft_clear_error();
}

/* All that was done, in this order. */
__attribute__((unused)) static void lane_done(unsigned syncs, const char *log)
{
    if (strcmp(lane_log, log))
        FAIL("\"%s\", not \"%s\"", lane_log, log);
    CHECK_INT(scene.lane.syncs, syncs);
    CHECK_INT(scene.lane.epoch, LANE_EPOCH + 1);
}

#endif

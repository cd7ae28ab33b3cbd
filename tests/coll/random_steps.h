/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a random program as one rank takes them.  Each returns WEFT_OK or how its call
 * failed; a result that is wrong fails the rank (CHECK).
 */
#ifndef WEFT_TESTS_RANDOM_STEPS_H
#define WEFT_TESTS_RANDOM_STEPS_H

#include "leaf.h"
#include "random_program.h"

#include <weft/functional.h>
#include <weft/monitor.h>
#include <weft/object.h>

enum { PLAYER_GROUPS = 3, PLAYER_POSTED = 4 };

typedef struct player_posted {
    weft_work *work;
    act a;
    act_operands operands;
    int rank, size; /* in its group */
} player_posted;

typedef struct player {
    const program *program;
    program_page *page;
    int rank; /* of the world */
    int chapter, step;
    weft_group *world, *base; /* base: of the chapter */
    weft_group *groups[PLAYER_GROUPS];
    player_posted posted[PLAYER_POSTED];
    char why[1200]; /* of the last error */
} player;

static uint64_t player_draw(const player *who, int what)
{
    return program_draw(who->program, who->chapter, who->step, what);
}

static weft_status player_failed(player *who)
{
    weft_status status = weft_last_status();
    snprintf(who->why, sizeof who->why, "%s", weft_last_error());
    if (status == WEFT_OK)
        FAIL("a call failed and left no error");
    return status;
}

#define PLAYER_TRY(call_)              \
    do {                               \
        if ((call_) < 0)               \
            return player_failed(who); \
    } while (0)
#define PLAYER_NEED(object_)           \
    do {                               \
        if (!(object_))                \
            return player_failed(who); \
    } while (0)

/* ---- posted work ---- */

static weft_status player_settle(player *who, player_posted *slot)
{
    if (!slot->work)
        return WEFT_OK;
    weft_status status = weft_work_wait(slot->work, WEFT_DEFAULT);
    if (status < 0)
        status = player_failed(who);
    else if (act_check(&slot->a, &slot->operands, slot->rank, slot->size) >= 0)
        FAIL("posted kind %d of %lld gave a wrong result", (int)slot->a.kind,
             (long long)slot->a.count);
    weft_release(slot->work);
    weft_release(slot->operands.in == slot->operands.out ? NULL : slot->operands.in);
    weft_release(slot->operands.out);
    slot->work = NULL;
    return status;
}

static weft_status player_settle_all(player *who)
{
    weft_status first = WEFT_OK;
    char why[sizeof who->why] = "";
    for (int i = 0; i < PLAYER_POSTED; i++) {
        weft_status status = player_settle(who, &who->posted[i]);
        if (first == WEFT_OK && status < 0) {
            first = status;
            memcpy(why, who->why, sizeof why);
        }
    }
    if (first < 0)
        memcpy(who->why, why, sizeof why);
    return first;
}

/* ---- steps ---- */

static weft_status player_collective(player *who, weft_group *group)
{
    const program *p = who->program;
    int rank = weft_rank(group), size = weft_size(group);
    const fault *f = program_mismatch(p, who->chapter, who->step);
    player_posted now = {.rank = rank, .size = size},
                  *slot = &who->posted[who->step % PLAYER_POSTED];
    now.a = f && f->victim == who->rank ? program_other_act(p, f, who->step, size)
                                        : program_act(p, who->chapter, who->step, size);
    PLAYER_TRY(player_settle(who, slot));
    now.operands = act_prepare(&now.a, rank, size);
    PLAYER_TRY(act_begin(&now.a, &now.operands, group, &now.work));
    if (now.work) {
        weft_keep(now.work);
        weft_keep(now.operands.out);
        if (now.operands.in != now.operands.out)
            weft_keep(now.operands.in);
        *slot = now;
    } else if (act_check(&now.a, &now.operands, rank, size) >= 0) {
        FAIL("kind %d of %lld gave a wrong result", (int)now.a.kind, (long long)now.a.count);
    }
    return WEFT_OK;
}

static weft_status player_ring(player *who, weft_group *group)
{
    int rank = weft_rank(group), size = weft_size(group);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int64_t count = (int64_t)(player_draw(who, 20) % 30000);
    weft_tensor *x = weft_empty(WEFT_U16, WEFT_CPU, WEFT_SHAPE(count)),
                *y = weft_empty(WEFT_U16, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x && y);
    values_put(WEFT_U16, VALUES_ANY, player_draw(who, 21), rank, 0, (size_t)count,
               weft_tensor_data(x));
    weft_work *sending = NULL;
    if (size == 1 || player_draw(who, 22) % 2) {
        PLAYER_TRY(weft_send_recv(y, last, x, next, group));
    } else {
        PLAYER_NEED(sending = weft_send_start(x, next, group));
        PLAYER_TRY(weft_recv(y, last, group));
        PLAYER_TRY(weft_work_wait(sending, WEFT_DEFAULT));
    }
    CHECK_INT(values_check(WEFT_U16, VALUES_ANY, player_draw(who, 21), last, 0, (size_t)count,
                           weft_tensor_data(y)),
              -1);
    return WEFT_OK;
}

/* Everybody reads its neighbour's block, then writes the other one's and signals it. */
static weft_status player_symmetric(player *who, weft_group *group)
{
    int rank = weft_rank(group), size = weft_size(group);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int64_t count = 1 + (int64_t)(player_draw(who, 30) % 5000);
    size_t n = (size_t)count;
    uint64_t first = player_draw(who, 31), second = player_draw(who, 32);
    weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x);
    values_put(WEFT_I32, VALUES_ANY, first, rank, 0, n, weft_tensor_data(x));
    weft_symm *mem = weft_symm_rendezvous(x, group);
    PLAYER_NEED(mem);
    PLAYER_TRY(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    CHECK_INT(
        values_check(WEFT_I32, VALUES_ANY, first, next, 0, n, weft_symm_buffer_ptr(mem, next)), -1);
    PLAYER_TRY(weft_symm_barrier(mem, 1, WEFT_DEFAULT));
    values_put(WEFT_I32, VALUES_ANY, second, rank, 0, n, weft_symm_buffer_ptr(mem, next));
    PLAYER_TRY(weft_symm_put_signal(mem, next, 2, WEFT_DEFAULT));
    PLAYER_TRY(weft_symm_wait_signal(mem, last, 2, WEFT_DEFAULT));
    CHECK_INT(values_check(WEFT_I32, VALUES_ANY, second, last, 0, n, weft_tensor_data(x)), -1);
    PLAYER_TRY(weft_symm_barrier(mem, 0, WEFT_DEFAULT)); /* nobody frees what is written to */
    PLAYER_TRY(weft_all_reduce_into(x, x, WEFT_SUM, group));
    return WEFT_OK;
}

/* The string that a rank brings; its length too follows from the step. */
static size_t player_string(const player *who, int rank, char *out, size_t room)
{
    size_t length = (size_t)(player_draw(who, 40 + rank) % room);
    values_put(WEFT_U8, VALUES_ANY, player_draw(who, 60), rank, 0, length, out);
    return length;
}

static void player_check_string(const player *who, weft_bytes got, int rank, size_t room)
{
    static VALUES_LOCAL char expected[100000];
    size_t length = player_string(who, rank, expected, room);
    if (got.length != length || (length && memcmp(got.data, expected, length) != 0))
        FAIL("the string of rank %d, of %zu bytes, came as %zu others", rank, length, got.length);
}

static weft_status player_objects(player *who, weft_group *group)
{
    static VALUES_LOCAL char mine[100000];
    int rank = weft_rank(group), size = weft_size(group);
    size_t room = player_draw(who, 61) % 8 ? 300 : sizeof mine;
    int root = (int)(player_draw(who, 62) % (unsigned)size), what = (int)(player_draw(who, 63) % 3);
    weft_bytes given = {mine, player_string(who, rank, mine, room)};
    weft_blobs *got = what == 0   ? weft_all_gather_object(given, group)
                      : what == 1 ? weft_gather_object(given, root, group)
                                  : weft_broadcast_object(rank == root ? &given : NULL,
                                                          rank == root, root, group);
    PLAYER_NEED(got);
    int expected = what == 0 ? size : what == 1 ? (rank == root ? size : 0) : 1;
    CHECK_INT(weft_blobs_count(got), expected);
    for (int i = 0; i < expected; i++)
        player_check_string(who, weft_blobs_get(got, i), what == 2 ? root : i, room);
    return WEFT_OK;
}

static weft_status player_functional(player *who, weft_group *group)
{
    int rank = weft_rank(group), size = weft_size(group);
    int64_t count = 1 + (int64_t)(player_draw(who, 70) % 3000);
    uint64_t seed = player_draw(who, 71);
    int root = (int)(player_draw(who, 72) % (unsigned)size);
    weft_tensor *x = weft_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x);
    values_put(WEFT_I32, VALUES_ANY, seed, rank, 0, (size_t)count, weft_tensor_data(x));
    bool gathers = player_draw(who, 73) % 2;
    weft_tensor *y = gathers ? weft_all_gather_tensor(x, 0, group) : weft_broadcast(x, root, group);
    PLAYER_NEED(y);
    PLAYER_NEED(y = weft_wait_tensor(y));
    const char *data = weft_tensor_data(y);
    PLAYER_NEED(data);
    for (int i = 0; i < (gathers ? size : 1); i++)
        CHECK_INT(values_check(WEFT_I32, VALUES_ANY, seed, gathers ? i : root, 0, (size_t)count,
                               data + (size_t)i * (size_t)count * 4),
                  -1);
    return WEFT_OK;
}

/* The gradient of a sum over ranks, weighed by each rank's number + 1, is the sum of the weights. */
static weft_status player_gradient(player *who, weft_group *group)
{
    int rank = weft_rank(group), size = weft_size(group);
    int64_t count = 1 + (int64_t)(player_draw(who, 80) % 2000);
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count)));
    weft_tensor *sum = weft_all_reduce(x, WEFT_SUM, group), *loss = NULL, *grad = NULL;
    PLAYER_NEED(sum);
    PLAYER_NEED(loss = weft_mul_scalar(sum, rank + 1));
    PLAYER_NEED(loss = total(loss));
    PLAYER_TRY(weft_backward(loss));
    PLAYER_NEED(grad = weft_grad(x));
    PLAYER_NEED(grad = weft_wait_tensor(grad));
    const float *values = weft_tensor_data(grad);
    PLAYER_NEED(values);
    for (int64_t i = 0; i < count; i++)
        CHECK_INT(values[i], size * (size + 1) / 2);
    return WEFT_OK;
}

/* ---- groups ---- */

/* Members of a group that a step makes: a random order, and how many of it. */
static int player_members(const player *who, int order[PROGRAM_RANKS])
{
    int size = weft_size(who->base), count = 1 + (int)(player_draw(who, 90) % (unsigned)size);
    for (int i = 0; i < size; i++) {
        int j = (int)(player_draw(who, 91 + i) % (unsigned)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    return count;
}

static weft_status player_new(player *who, bool splits)
{
    weft_group **slot = &who->groups[player_draw(who, 110) % PLAYER_GROUPS];
    int order[PROGRAM_RANKS], rank = weft_rank(who->base), count = player_members(who, order);
    bool in = splits;
    for (int i = 0; i < count; i++)
        in |= order[i] == rank;
    weft_status status = player_settle_all(who);
    weft_release(*slot);
    *slot = NULL;
    if (status < 0 || !in)
        return status;
    int color = (int)(player_draw(who, 111 + rank) % 3) - 1;
    *slot = splits ? weft_group_split(who->base, color, rank)
                   : weft_group_new(who->base, order, count, NULL);
    if (!*slot && splits && color < 0 && weft_last_status() == WEFT_OK)
        return WEFT_OK;
    PLAYER_NEED(*slot);
    weft_keep(*slot);
    return WEFT_OK;
}

static void player_drop_groups(player *who)
{
    for (int i = 0; i < PLAYER_GROUPS; i++) {
        weft_release(who->groups[i]);
        who->groups[i] = NULL;
    }
}

/* The group of the step; NULL: this rank has no part in it.  Mismatches are among all. */
static weft_group *player_group(const player *who)
{
    unsigned pick = (unsigned)(player_draw(who, 2) % 8);
    if (pick >= PLAYER_GROUPS || program_mismatch(who->program, who->chapter, who->step))
        return who->base;
    return who->groups[pick];
}

static weft_status player_take_kind(player *who, step_kind kind)
{
    weft_group *group = player_group(who);
    if (kind == STEP_NEW || kind == STEP_SPLIT)
        return player_new(who, kind == STEP_SPLIT);
    if (!group)
        return WEFT_OK;
    switch (kind) {
    case STEP_COLLECTIVE:
        return player_collective(who, group);
    case STEP_MONITORED:
        PLAYER_TRY(weft_monitored_barrier(group, WEFT_DEFAULT, player_draw(who, 3) % 2));
        return WEFT_OK;
    case STEP_RING:
        return player_ring(who, group);
    case STEP_SYMMETRIC:
        return player_symmetric(who, group);
    case STEP_OBJECTS:
        return player_objects(who, group);
    case STEP_FUNCTIONAL:
        return player_functional(who, group);
    default:
        return player_gradient(who, group);
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/choose.c, coll/calls/run.c, base/report/record.c */
/* The flight record of collectives: name, bytes and end of each, and the way it took, which depends
 * on its size, its memory and the thresholds alone. */
#include "jobs.h"

#include "base/report/record.h"
#include "fabric/group/group.h"

#include <stdint.h>
#include <weft/weft.h>

enum { OPS = 8, RANKS = 3, STAGED = 4096 };
enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, ALL_TO_ALL };
static const char *const names[OPS] = {"all_reduce", "reduce",  "broadcast",      "all_gather",
                                       "gather",     "scatter", "reduce_scatter", "all_to_all"};
/* parts of the input and of the output */
static const int64_t ins[OPS] = {1, 1, 1, 1, 1, RANKS, RANKS, RANKS};
static const int64_t outs[OPS] = {1, 1, 1, RANKS, RANKS, 1, 1, RANKS};

static weft_tensor *floats(int64_t count, double value, bool symmetric, weft_group *world)
{
    weft_tensor *x = symmetric ? weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count))
                               : weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x);
    weft_fill(x, value);
    if (symmetric)
        CHECK(weft_symm_rendezvous(x, world));
    return x;
}

static weft_status run(int op, weft_tensor *out, weft_tensor *in, weft_group *world)
{
    switch (op) {
    case ALL_REDUCE:
        return weft_all_reduce_into(out, in, WEFT_SUM, world);
    case REDUCE:
        return weft_reduce_into(out, in, WEFT_SUM, 1, world);
    case BROADCAST:
        return weft_broadcast_in_place(in, 1, world);
    case ALL_GATHER:
        return weft_all_gather_into(out, in, world);
    case GATHER:
        return weft_gather_into(out, in, 1, world);
    case SCATTER:
        return weft_scatter_into(out, in, 1, world);
    case REDUCE_SCATTER:
        return weft_reduce_scatter_into(out, in, WEFT_SUM, world);
    default:
        return weft_all_to_all_into(out, in, NULL, NULL, world);
    }
}

/* The newest entry of that name. */
static weft_i_record_entry newest(weft_group *world, const char *name)
{
    weft_i_record_entry entries[8];
    size_t count = weft_i_record_newest(weft_i_group_record(world), entries, 8);
    for (size_t i = 0; i < count; i++)
        if (!strncmp(entries[i].name, name, sizeof entries[i].name - 1))
            return entries[i];
    FAIL("%s is not in the record", name);
}

/* What it must be; `single`: the kernel copies between processes from one byte on. */
static int way_of(int op, size_t whole, bool reachable, bool single)
{
    if (whole <= WEFT_TUNE_INLINE)
        return WEFT_I_WAY_INLINE;
    if (whole <= STAGED)
        return WEFT_I_WAY_EAGER;
    if (reachable)
        return WEFT_I_WAY_ZERO_COPY;
    return single && op != REDUCE ? WEFT_I_WAY_CMA : WEFT_I_WAY_PIPELINED;
}

static void check_one(int op, int64_t count, bool symmetric, bool single, int rank,
                      weft_group *world)
{
    static _Thread_local bool denied; /* the kernel lets nobody look into others */
    weft_tensor *in = floats(count * ins[op], rank + 1, symmetric, world);
    weft_tensor *out = floats(count * outs[op], -7, symmetric, world);
    uint64_t before = atomic_load_explicit(&weft_i_group_record(world)->head, memory_order_relaxed);
    CHECK_OK(run(op, out, in, world));
    weft_i_record_entry entry = newest(world, names[op]);
    size_t whole = (size_t)(count * ins[op]) * 4, part = (size_t)count * 4;
    int wanted = way_of(op, whole, symmetric || weft_i_spawn_seat(), single);
    denied |= wanted == WEFT_I_WAY_CMA && entry.channel == WEFT_I_WAY_PIPELINED;
    if (denied && wanted == WEFT_I_WAY_CMA)
        wanted = WEFT_I_WAY_PIPELINED;
    if (entry.channel != wanted)
        FAIL("%s of %zu bytes, symmetric %d, single %d: %s, not %s", names[op], whole, symmetric,
             single, weft_i_record_way_name(entry.channel), weft_i_record_way_name(wanted));
    CHECK(entry.number > before && entry.finished && entry.status == WEFT_OK);
    CHECK(entry.peer == -1 && entry.group == world->id);
    CHECK_INT(entry.bytes, op == SCATTER && rank != 1 ? part : whole);
    double sum = RANKS * (RANKS + 1) / 2.0;
    weft_tensor *result = op == BROADCAST ? in : out;
    bool has = (op != REDUCE && op != GATHER) || rank == 1;
    for (int64_t i = 0; has && i < weft_tensor_numel(result); i += count) {
        double value = op == ALL_REDUCE || op == REDUCE || op == REDUCE_SCATTER ? sum
                       : op == BROADCAST || op == SCATTER                       ? 2
                                                          : (double)(i / count + 1);
        CHECK(weft_item(result, i) == value && weft_item(result, i + count - 1) == value);
    }
}

RANKS_TEST(test_way_of_every_size, RANKS)
{
    (void)size;
    weft_group *world = join(0);
    static const int64_t counts[] = {1, 52, 53, 158, 159, 341, 342, 1024, 1025, 30000};
    for (int op = 0; op < OPS; op++) {
        uint32_t turn = 0;
        CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, names[op], RANKS, STAGED));
        for (int single = 0; single < 2; single++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int symmetric = 0; symmetric < 2; symmetric++) {
                    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, names[op], RANKS, single ? 1 : SIZE_MAX));
                    CHECK_OK(weft_scope_open());
                    check_one(op, counts[c], symmetric, single, rank, world);
                    uint32_t now = newest(world, names[op]).turn;
                    CHECK(!turn || now == turn + 1); /* as all members count it */
                    turn = now;
                    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
                    CHECK_OK(weft_scope_close());
                }
    }
    CHECK(!weft_finish(world));
}

/* A part so long that no rank copies its own before the others have come. */
RANKS_TEST(test_way_of_a_long_own_part, RANKS)
{
    (void)size;
    static const int moved[] = {ALL_GATHER, GATHER, SCATTER, ALL_TO_ALL};
    weft_group *world = join(0);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_scope_open());
        CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, names[moved[i]], RANKS, STAGED));
        CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, names[moved[i]], RANKS, SIZE_MAX));
        check_one(moved[i], (1 << 20) + 1000, false, false, rank, world);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        CHECK_OK(weft_scope_close());
    }
    CHECK(!weft_finish(world));
}

/* Whatever is asked first, the file that WEFT_TUNE names has been read. */
RANKS_TEST(test_way_asked_first, 1)
{
    char path[] = "/tmp/weft-way-XXXXXX";
    static const char text[] = "all_reduce 2 4096 4096 65536\n";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    close(fd);
    setenv("WEFT_TUNE", path, 1);
    const char *below = weft_tune_choice("all_reduce", 2, 4096);
    unlink(path);
    CHECK(below && !strcmp(below, "eager"));
    CHECK(!strcmp(weft_tune_choice("all_reduce", 2, 4097), "rendezvous"));
    CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "all_reduce", 2), 4096);
}

/* Other operations tell their peer or channel. */
RANKS_TEST(test_way_others, 2)
{
    (void)size;
    weft_group *world = join(0);
    weft_tensor *x = floats(4, 1, true, world);
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK_OK(weft_symm_barrier(mem, 3, WEFT_DEFAULT));
    weft_i_record_entry entry = newest(world, "barrier");
    CHECK(entry.channel == 3 && entry.peer == -1 && entry.bytes == 0 && entry.finished);
    CHECK_OK(weft_symm_put_signal(mem, 1 - rank, 2, WEFT_DEFAULT));
    entry = newest(world, "put_signal");
    CHECK(entry.channel == 2 && entry.peer == 1 - rank && entry.bytes == 0 && entry.finished);
    CHECK_OK(weft_symm_wait_signal(mem, 1 - rank, 2, WEFT_DEFAULT));
    entry = newest(world, "wait_signal");
    CHECK(entry.channel == 2 && entry.peer == 1 - rank && entry.bytes == 0);
    CHECK(entry.status == WEFT_OK);
    if (rank == 0)
        CHECK_OK(weft_send(x, 1, world));
    else
        CHECK_OK(weft_recv(x, 0, world));
    entry = newest(world, rank ? "recv" : "send");
    CHECK(entry.peer == 1 - rank && entry.bytes == 16 && entry.finished);
    CHECK_OK(weft_monitored_barrier(world, WEFT_DEFAULT, true));
    entry = newest(world, "monitor_barrier");
    CHECK(entry.peer == -1 && entry.channel == -1 && entry.bytes == 0 && entry.finished);
    CHECK(entry.group == world->id);
    CHECK_STATUS(weft_symm_wait_signal(mem, 1 - rank, 1, 5), WEFT_ERR_TIMEOUT);
    entry = newest(world, "wait_signal");
    CHECK(entry.channel == 1 && entry.status == WEFT_ERR_TIMEOUT && entry.finished);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(!weft_finish(world));
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/host/splits.c, symm_coll/vdev.c, parts/parts.c, parts/object.c */
/*
 * Tables of splits lie in memory that other processes can write to.  Here they change after a rank
 * has checked them and before it uses them, at the worst moment: it must use what it checked.
 */
#include "jobs.h"
#include "wire.h"

#include "base/os/os.h"
#include "coll/lane/lane.h"
#include "fabric/group/group.h"

#include <sys/mman.h>

enum {
    RANKS = 2,
    PART = 80000,   /* floats: several pieces */
    GUARD = 100000, /* floats behind the output, which nobody may touch */
    WORD = sizeof(float)
};

/* ---- the liar ---- */

static const weft_i_lane *lane; /* of the group that is lied to */
static bool lied;
static int64_t *in_memory[RANKS]; /* tables that lie in symmetric memory instead */
static int turn;                  /* so far, on all ranks: each has made a mark for each */
static uint32_t old;              /* the lane's last entry before the call */

/* When all ranks have read the tables that are shown, every number in them becomes larger, also in
 * the one of the rank itself. */
static void lie(void)
{
    if (lied)
        return;
    lied = true;
    harness_mark();
    for (int rank = 0; rank < lane->size; rank++)
        harness_await(rank, turn + 1);
    for (int rank = 0; rank < lane->size; rank++) {
        for (int i = 0; in_memory[rank] && i < lane->size; i++)
            in_memory[rank][i] += in_memory[rank][i] / 4;
        uint64_t *row = weft_i_lane_shown_splits(lane, rank, lane->epoch);
        for (int i = 0; i < 2 * lane->size; i++)
            row[i] += row[i] / 4;
    }
}

static void stretch(float *at)
{
    lied = false;
    wire_stretch((char *)at, 0, lie);
}

/* ---- operands ---- */

static size_t room_bytes(void)
{
    return (size_t)(RANKS * PART + GUARD) * WORD;
}

static float *room(void)
{
    float *data =
        mmap(NULL, room_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    memset(data, 0xee, room_bytes());
    return data;
}

static weft_tensor *wrap(float *data, int64_t count)
{
    return weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count), data, NULL, NULL);
}

static float value(int from, int to, int64_t i)
{
    return (float)(from * 2000000 + to * 1000000 + (int)i);
}

static void fill(weft_tensor *x, int rank)
{
    float *data = weft_tensor_data(x);
    for (int to = 0; to < RANKS; to++)
        for (int64_t i = 0; i < PART; i++)
            data[to * PART + i] = value(rank, to, i);
}

/* `parts` parts have come, from rank `from` on, and nothing lies behind them. */
static void check_parts(const float *out, int from, int parts, int rank)
{
    for (int part = 0; part < parts; part++)
        for (int64_t i = 0; i < PART; i++)
            if (out[part * PART + i] != value(from + part, rank, i))
                FAIL("element %lld of rank %d's part is %g", (long long)i, from + part,
                     (double)out[part * PART + i]);
    const unsigned char *behind = (const unsigned char *)(out + parts * PART);
    for (size_t i = 0; i < (size_t)GUARD * WORD; i++)
        if (behind[i] != 0xee)
            FAIL("byte %zu behind the output was written", i);
}

static weft_group *begin(const char *cma)
{
    if (harness_in_threads)
        SKIP("a page belongs to all threads");
    setenv("WEFT_CMA", cma, 1);
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world)); /* makes the lane */
    lane = world->lane;
    return world;
}

static void run_all_to_all(weft_tensor *in, int rank, weft_group *world)
{
    static const int64_t splits[RANKS] = {PART, PART};
    float *out = room();
    fill(in, rank);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    stretch(out);
    CHECK_OK(weft_all_to_all_into(wrap(out, RANKS * PART), in, splits, splits, world));
    CHECK(lied);
    check_parts(out, 0, RANKS, rank);
}

RANKS_TEST(test_splits_change_in_a_pipeline, RANKS)
{
    weft_group *world = begin("off");
    (void)size;
    run_all_to_all(wrap(room(), RANKS * PART), rank, world);
    finish(world);
}

/* Where ranks reach each other's inputs. */
RANKS_TEST(test_splits_change_in_a_pull, RANKS)
{
    weft_group *world = begin("off");
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4 * RANKS * PART));
    CHECK(weft_symm_rendezvous(x, world));
    (void)size;
    run_all_to_all(weft_narrow(x, 0, 0, RANKS * PART), rank, world);
    finish(world);
}

RANKS_TEST(test_splits_change_in_a_list, RANKS)
{
    weft_group *world = begin("off");
    float *in = room(), *out = room();
    weft_tensor *ins[RANKS], *outs[RANKS];
    for (int i = 0; i < RANKS; i++) {
        ins[i] = wrap(in + i * PART, PART);
        outs[i] = wrap(out + i * PART, PART);
    }
    (void)size;
    fill(wrap(in, RANKS * PART), rank);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    stretch(out);
    CHECK_OK(weft_all_to_all_list_into(outs, ins, world));
    CHECK(lied);
    check_parts(out, 0, RANKS, rank);
    finish(world);
}

/* Where a part begins in the stream of the root is told by the table. */
RANKS_TEST(test_splits_change_in_a_scatter, RANKS)
{
    weft_group *world = begin("off");
    float *in = room(), *out = room();
    weft_tensor *ins[RANKS];
    for (int i = 0; i < RANKS; i++)
        ins[i] = wrap(in + i * PART, PART);
    (void)size;
    fill(wrap(in, RANKS * PART), rank);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0) /* the root is done with its own part before the other's comes */
        harness_mark();
    else
        stretch(out);
    CHECK_OK(weft_scatter_parts_into(wrap(out, PART), rank == 0 ? ins : NULL, 0, world));
    CHECK(lied == (rank == 1));
    check_parts(out, 0, 1, rank);
    finish(world);
}

/* ---- tables in symmetric memory ---- */

RANKS_TEST(test_splits_change_in_a_vdev, RANKS)
{
    weft_group *world = begin("off");
    weft_tensor *in = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4 * RANKS * PART));
    weft_tensor *splits = weft_symm_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(RANKS));
    weft_tensor *table = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, RANKS));
    float *out = room();
    CHECK(weft_symm_rendezvous(in, world));
    weft_symm *mem = weft_symm_rendezvous(splits, world);
    CHECK(mem);
    weft_fill(splits, PART);
    fill(in, rank);
    for (int peer = 0; peer < size; peer++)
        in_memory[peer] =
            weft_tensor_data(weft_symm_buffer(mem, peer, WEFT_SHAPE(RANKS), WEFT_I64, 0));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    stretch(out);
    CHECK_OK(weft_symm_all_to_all_vdev(wrap(out, RANKS * PART), table, in, splits, world));
    CHECK(lied);
    check_parts(out, 0, RANKS, rank);
    for (int peer = 0; peer < size; peer++)
        CHECK(weft_item_int(table, peer) == PART &&
              weft_item_int(table, size + peer) == peer * PART);
    finish(world);
}

/* ---- byte strings ---- */

static weft_i_os lying_table;

/* Memory for the result is asked for after the entry. */
static void *lying_alloc(size_t bytes)
{
    if (lane->epoch != old)
        lie();
    return weft_i_os_linux.alloc(bytes);
}

static void check_strings(const weft_blobs *all, int count, size_t bytes)
{
    CHECK_INT(weft_blobs_count(all), count);
    for (int i = 0; i < count; i++) {
        weft_bytes got = weft_blobs_get(all, i);
        CHECK_INT(got.length, bytes);
        for (size_t k = 0; k < got.length; k++)
            CHECK_INT(((const unsigned char *)got.data)[k], 7);
    }
}

/* How long they are is told by the table, too: the room that is made is what is filled. */
RANKS_TEST(test_splits_change_among_objects, RANKS)
{
    enum { BYTES = 5000 };
    static char mine[BYTES];
    weft_group *world = begin("off");
    memset(mine, 7, sizeof mine);
    weft_bytes one = {mine, BYTES}, two[RANKS] = {one, one};
    lying_table = weft_i_os_linux;
    lying_table.alloc = lying_alloc;
    (void)size;
    for (int what = 0; what < 3; what++) {
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        lied = false;
        old = lane->epoch;
        weft_i_os_now = &lying_table;
        weft_blobs *got =
            what == 0   ? weft_all_gather_object(one, world)
            : what == 1 ? weft_scatter_object(rank ? NULL : two, 0, world)
                        : weft_broadcast_object(rank ? NULL : two, rank ? 0 : RANKS, 0, world);
        weft_i_os_now = &weft_i_os_linux;
        if (!got)
            FAIL("case %d: %s", what, weft_last_error());
        CHECK(lied);
        turn++;
        check_strings(got, what == 1 ? 1 : RANKS, BYTES);
    }
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

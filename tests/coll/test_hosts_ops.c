/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/hosts/hosts.c, coll/hosts/hosts_enter.c, coll/hosts/hosts_list.c, coll/hosts/hosts_move.c,
 * coll/hosts/hosts_near.c, coll/hosts/hosts_reduce.c, coll/hosts/hosts_scatter.c, coll/lane/ferry.c */
/*
 * Every collective of ranks on several hosts: all dtypes and reductions, counts on both sides of every
 * border, operands at odd addresses.  Results have the bits of the order by definition, so they are the
 * same on all ranks.  A run takes a sample that follows from HARNESS_SEED; WEFT_TEST_ALL=1 takes all.
 */
#include "coll_acts.h"
#include "harness_ranks.h"

#include "base/os/os.h"

#include <weft/object.h>
#include <weft/parts.h>
#include <weft/weft.h>

#include <signal.h>
#include <unistd.h>

enum {
    ONE_OF = VALUES_SANITIZED ? 16 : 5, /* reductions that a run takes */
    MOVES = VALUES_SANITIZED ? 40 : 120,
    ALL_MOVES = 3000
};

/* Elements whose sums depend on the order; integers of any bits. */
static void put(weft_dtype dtype, uint64_t seed, int rank, size_t first, size_t count, char *out)
{
    size_t item = weft_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t random = values_random(seed * 64 + (uint64_t)rank, first + i);
        if (weft_i_dtype_is_float(dtype))
            reference_store_float(dtype, out + i * item, (double)((int)(random % 401) - 200) / 7);
        else if (dtype == WEFT_BOOL)
            out[i] = (char)(random & 1);
        else
            memcpy(out + i * item, &random, item);
    }
}

/* `count` elements of a new tensor, not its first. */
static weft_tensor *room(weft_dtype dtype, int64_t count)
{
    weft_tensor *all = weft_empty(dtype, WEFT_CPU, WEFT_SHAPE(count + 1));
    CHECK(all);
    memset(weft_tensor_data(all), 0xee, weft_tensor_bytes(all));
    weft_tensor *x = weft_narrow(all, 0, 1, count);
    CHECK(x);
    return x;
}

static weft_tensor *filled(weft_dtype dtype, uint64_t seed, int rank, int64_t count)
{
    weft_tensor *x = room(dtype, count);
    put(dtype, seed, rank, 0, (size_t)count, weft_tensor_data(x));
    return x;
}

static double factor_of(int rank)
{
    return 0.5 + rank * 0.75;
}

/* Is `out` the reduction of elements `first`... of all ranks? */
static void check_sum(const char *what, weft_dtype dtype, int op, uint64_t seed, int size,
                      size_t first, size_t count, const void *out)
{
    size_t item = weft_dtype_size(dtype);
    double factors[VALUES_RANKS];
    char *memory = malloc((count + 1) * item * (size_t)(size + 1));
    const void *in[VALUES_RANKS];
    CHECK(memory);
    for (int rank = 0; rank < size; rank++) {
        char *at = memory + (size_t)(rank + 1) * (count + 1) * item;
        put(dtype, seed, rank, first, count, at);
        in[rank] = at;
        factors[rank] = factor_of(rank);
    }
    fold_reference_hosts(dtype, (weft_i_fold_op)op, memory, in, harness_host_sizes, harness_hosts,
                         count, factors);
    for (size_t i = 0; i < count; i++)
        if (memcmp(memory + i * item, (const char *)out + i * item, item))
            FAIL("%s of %zu %s, %s: element %zu is wrong", what, count, weft_dtype_name(dtype),
                 weft_reduction_name((weft_reduction)op), i);
    free(memory);
}

static void reduce_all_ways(weft_group *world, int rank, int size, weft_dtype dtype,
                            weft_reduction op, int64_t count, uint64_t seed)
{
    int root = (int)(seed % (uint64_t)size);
    weft_scope_open();
    weft_set_premul(factor_of(rank));
    weft_tensor *in = filled(dtype, seed, rank, count), *out = room(dtype, count);
    CHECK_OK(weft_all_reduce_into(out, in, op, world));
    check_sum("all_reduce", dtype, op, seed, size, 0, (size_t)count, weft_tensor_data(out));
    weft_tensor *sum = rank == root ? room(dtype, count) : NULL;
    CHECK_OK(weft_reduce_into(sum, in, op, root, world));
    if (sum)
        check_sum("reduce", dtype, op, seed, size, 0, (size_t)count, weft_tensor_data(sum));
    weft_tensor *all = filled(dtype, seed + 1, rank, count * size), *part = room(dtype, count);
    CHECK_OK(weft_reduce_scatter_into(part, all, op, world));
    check_sum("reduce_scatter", dtype, op, seed + 1, size, (size_t)(rank * count), (size_t)count,
              weft_tensor_data(part));
    CHECK_OK(weft_all_reduce_into(in, in, op, world)); /* in place */
    check_sum("all_reduce in place", dtype, op, seed, size, 0, (size_t)count, weft_tensor_data(in));
    weft_scope_close();
}

/* Each layout of hosts takes another sample; large operands a quarter as often as small ones. */
static bool takes(uint64_t seed, int i)
{
    uint64_t layout = 0;
    for (int host = 0; host < harness_hosts; host++)
        layout = layout * 16 + (uint64_t)harness_host_sizes[host];
    return values_takes(layout << 20 | seed << 4 | (uint64_t)i, ONE_OF) &&
           (i < 5 || values_random(seed, layout + (uint64_t)i) % 4 == 0);
}

static void check_reductions(int rank, int size)
{
    static const int64_t counts[] = {0, 1, 5, 13, 65, 1023, 9001};
    weft_group *world = weft_init(NULL);
    CHECK(world);
    uint64_t seed = 1;
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (int op = 0; op < WEFT_REDUCTIONS; op++, seed += 2)
            for (int i = 0; i < 7 && values_has_meaning((weft_dtype)dtype, (weft_reduction)op); i++)
                if (takes(seed, i))
                    reduce_all_ways(world, rank, size, (weft_dtype)dtype, (weft_reduction)op,
                                    counts[i], seed);
    CHECK_OK(weft_finish(world));
}

HOSTS_TEST(test_hosts_ops_reductions_of_2, 2, "1+1")
{
    check_reductions(rank, size);
}

HOSTS_TEST(test_hosts_ops_reductions_of_3_on_3, 3, "1+1+1")
{
    check_reductions(rank, size);
}

HOSTS_TEST(test_hosts_ops_reductions_of_3, 3, "1+2")
{
    check_reductions(rank, size);
}

HOSTS_TEST(test_hosts_ops_reductions_of_4, 4, "2+2")
{
    check_reductions(rank, size);
}

HOSTS_TEST(test_hosts_ops_reductions_of_4_uneven, 4, "3+1")
{
    check_reductions(rank, size);
}

HOSTS_TEST(test_hosts_ops_reductions_of_4_on_3, 4, "1+2+1")
{
    check_reductions(rank, size);
}

/* Five hosts: the first two are a pair. */
HOSTS_TEST(test_hosts_ops_reductions_of_5_on_5, 5, "1+1+1+1+1")
{
    if (!getenv("WEFT_TEST_ALL"))
        SKIP("takes long: WEFT_TEST_ALL=1, as make test-all");
    check_reductions(rank, size);
}

HOSTS_TEST(test_hosts_ops_reductions_of_8, 8, "3+3+2")
{
    if (!getenv("WEFT_TEST_ALL"))
        SKIP("takes long: WEFT_TEST_ALL=1, as make test-all");
    check_reductions(rank, size);
}

HOSTS_TEST(test_hosts_ops_reductions_of_8_on_2, 8, "4+4")
{
    if (!getenv("WEFT_TEST_ALL"))
        SKIP("takes long: WEFT_TEST_ALL=1, as make test-all");
    check_reductions(rank, size);
}

/* More than one piece, and more than a window of them. */
static void check_large(int rank, int size)
{
    weft_group *world = weft_init(NULL);
    CHECK(world);
    reduce_all_ways(world, rank, size, WEFT_F32, WEFT_SUM, 700001, 3);
    reduce_all_ways(world, rank, size, WEFT_F8E4M3, WEFT_AVG, 1200003, 5);
    reduce_all_ways(world, rank, size, WEFT_F64, WEFT_PREMUL_SUM, 200003, 7);
    static const act_kind kinds[] = {ACT_BROADCAST, ACT_ALL_GATHER, ACT_GATHER,
                                     ACT_SCATTER,   ACT_ALL_TO_ALL, ACT_UNEVEN};
    for (int i = 0; i < 6; i++) {
        act a = {.kind = kinds[i],
                 .dtype = WEFT_I32,
                 .count = 400001,
                 .root = i % size,
                 .posted = i & 1,
                 .seed = (uint64_t)i};
        act_perform(&a, rank, size, world);
    }
    CHECK_OK(weft_finish(world));
}

HOSTS_TEST(test_hosts_ops_large, 3, "2+1")
{
    check_large(rank, size);
}

HOSTS_TEST(test_hosts_ops_large_of_4, 4, "2+2")
{
    check_large(rank, size);
}

/* Anything after anything, plain and posted. */
static void check_moves(int rank, int size)
{
    static const int64_t counts[] = {0, 1, 3, 12, 100, 3000, 40000};
    const uint64_t moves = getenv("WEFT_TEST_ALL") ? ALL_MOVES : MOVES;
    weft_group *world = weft_init(NULL);
    CHECK(world);
    for (uint64_t n = 0; n < moves; n++) {
        uint64_t random = values_random(values_seed(), n * VALUES_RANKS + (uint64_t)size);
        act a = {.kind = (act_kind)(random % ACT_KINDS),
                 .dtype = (weft_dtype)(random >> 8 & 0xff) % WEFT_DTYPE_COUNT,
                 .reduction = WEFT_SUM,
                 .root = (int)(random >> 16 & 0xff) % size,
                 .count = counts[(random >> 24 & 0xff) % 7],
                 .posted = random >> 32 & 1,
                 .seed = random};
        act_perform(&a, rank, size, world);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_finish(world));
}

HOSTS_TEST(test_hosts_ops_moves_of_2, 2, "1+1")
{
    check_moves(rank, size);
}

HOSTS_TEST(test_hosts_ops_moves_of_3, 3, "2+1")
{
    check_moves(rank, size);
}

HOSTS_TEST(test_hosts_ops_moves_of_4, 4, "2+2")
{
    check_moves(rank, size);
}

HOSTS_TEST(test_hosts_ops_moves_of_4_uneven, 4, "1+3")
{
    check_moves(rank, size);
}

HOSTS_TEST(test_hosts_ops_moves_of_4_on_3, 4, "1+1+2")
{
    check_moves(rank, size);
}

HOSTS_TEST(test_hosts_ops_moves_of_8, 8, "4+4")
{
    if (!getenv("WEFT_TEST_ALL"))
        SKIP("takes long: WEFT_TEST_ALL=1, as make test-all");
    check_moves(rank, size);
}

/* ---- lists ---- */

enum { TENSORS = 7 };

static const struct {
    weft_dtype dtype;
    int64_t count;
} listed[TENSORS] = {{WEFT_F32, 10},  {WEFT_F32, 0},      {WEFT_F32, 33},  {WEFT_BF16, 7},
                     {WEFT_F16, 501}, {WEFT_F32, 100003}, {WEFT_F8E5M2, 1}};

static void check_lists(int rank, int size)
{
    weft_group *world = weft_init(NULL);
    weft_tensor *in[TENSORS], *out[TENSORS], *all[TENSORS], *wide[TENSORS];
    CHECK(world);
    for (int i = 0; i < TENSORS; i++) {
        weft_dtype dtype = listed[i].dtype;
        in[i] = filled(dtype, (uint64_t)i, rank, listed[i].count);
        all[i] = filled(dtype, (uint64_t)i + 50, rank, listed[i].count * size);
        out[i] = room(dtype, listed[i].count);
        wide[i] = room(dtype, listed[i].count * size);
    }
    CHECK_OK(weft_all_reduce_list_into(out, in, TENSORS, WEFT_SUM, world));
    for (int i = 0; i < TENSORS; i++)
        check_sum("all_reduce_list", listed[i].dtype, WEFT_SUM, (uint64_t)i, size, 0,
                  (size_t)listed[i].count, weft_tensor_data(out[i]));
    CHECK_OK(weft_reduce_scatter_list_into(out, all, TENSORS, WEFT_AVG, world));
    for (int i = 0; i < TENSORS; i++)
        check_sum("reduce_scatter_list", listed[i].dtype, WEFT_AVG, (uint64_t)i + 50, size,
                  (size_t)(rank * listed[i].count), (size_t)listed[i].count,
                  weft_tensor_data(out[i]));
    CHECK_OK(weft_all_gather_list_into(wide, in, TENSORS, world));
    for (int i = 0; i < TENSORS; i++)
        for (int from = 0; from < size; from++) {
            size_t bytes = weft_tensor_bytes(in[i]);
            char *expected = malloc(bytes + 1);
            CHECK(expected);
            put(listed[i].dtype, (uint64_t)i, from, 0, (size_t)listed[i].count, expected);
            CHECK(
                !memcmp((char *)weft_tensor_data(wide[i]) + (size_t)from * bytes, expected, bytes));
            free(expected);
        }
    CHECK_OK(weft_finish(world));
}

HOSTS_TEST(test_hosts_ops_lists, 3, "2+1")
{
    check_lists(rank, size);
}

HOSTS_TEST(test_hosts_ops_lists_of_4, 4, "2+2")
{
    check_lists(rank, size);
}

/* ---- parts, objects ---- */

static int64_t part_count(int rank)
{
    return rank == 1 ? 0 : 1000 * rank + 3;
}

HOSTS_TEST(test_hosts_ops_parts, 4, "2+2")
{
    weft_group *world = weft_init(NULL);
    weft_tensor *parts[4], *given[4];
    CHECK(world);
    for (int i = 0; i < size; i++) {
        parts[i] = room(WEFT_F32, part_count(i));
        given[i] = filled(WEFT_F32, (uint64_t)i, rank, part_count(i));
    }
    weft_tensor *mine = filled(WEFT_F32, 9, rank, part_count(rank));
    weft_tensor *out = room(WEFT_F32, part_count(rank));
    CHECK_OK(weft_all_gather_parts_into(parts, mine, world));
    for (int i = 0; i < size; i++) {
        weft_tensor *expected = filled(WEFT_F32, 9, i, part_count(i));
        CHECK(!memcmp(weft_tensor_data(parts[i]), weft_tensor_data(expected),
                      weft_tensor_bytes(expected)));
    }
    CHECK_OK(weft_reduce_scatter_parts_into(out, given, WEFT_SUM, world));
    check_sum("reduce_scatter_parts", WEFT_F32, WEFT_SUM, (uint64_t)rank, size, 0,
              (size_t)part_count(rank), weft_tensor_data(out));
    CHECK_OK(weft_scatter_parts_into(out, rank == 2 ? given : NULL, 2, world));
    weft_tensor *expected = filled(WEFT_F32, (uint64_t)rank, 2, part_count(rank));
    CHECK(!memcmp(weft_tensor_data(out), weft_tensor_data(expected), weft_tensor_bytes(expected)));
    CHECK_OK(weft_gather_parts_into(rank == 3 ? parts : NULL, mine, 3, world));
    CHECK_OK(weft_finish(world));
}

/* Short strings, and some of many pieces. */
HOSTS_TEST(test_hosts_ops_objects, 3, "2+1")
{
    weft_group *world = weft_init(NULL);
    static char text[3 << 20];
    CHECK(world);
    memset(text, 'a' + rank, sizeof text);
    for (size_t length = 1; length <= sizeof text; length *= 100) {
        weft_blobs *all = weft_all_gather_object((weft_bytes){text, length + (size_t)rank}, world);
        CHECK(all && weft_blobs_count(all) == size);
        for (int i = 0; i < size; i++) {
            weft_bytes one = weft_blobs_get(all, i);
            CHECK_INT(one.length, length + (size_t)i);
            CHECK_INT(values_check_byte(one.data, one.length, (unsigned char)('a' + i)), -1);
        }
    }
    weft_bytes list[3] = {{"one", 3}, {"", 0}, {text, sizeof text}};
    weft_blobs *told = weft_broadcast_object(rank == 1 ? list : NULL, 3, 1, world);
    CHECK(told && weft_blobs_count(told) == 3);
    CHECK_INT(weft_blobs_get(told, 2).length, sizeof text);
    CHECK_INT(((const char *)weft_blobs_get(told, 2).data)[5], 'b');
    weft_blobs *share = weft_scatter_object(rank == 2 ? list : NULL, 2, world);
    CHECK(share && weft_blobs_count(share) == 1);
    CHECK_INT(weft_blobs_get(share, 0).length, list[rank].length);
    CHECK_OK(weft_finish(world));
}

/* ---- differences ---- */

HOSTS_TEST(test_hosts_ops_mismatch, 3, "2+1")
{
    weft_group *world = weft_init(NULL);
    CHECK(world);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rank == 2 ? 7 : 100));
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "all_reduce of 7 f32");
    CHECK_CONTAINS(weft_last_error(), "all_reduce of 100 f32");
    CHECK(weft_all_reduce_into(x, x, WEFT_SUM, world) < 0);
    weft_finish(world);
}

HOSTS_TEST(test_hosts_ops_splits_differ, 3, "2+1")
{
    weft_group *world = weft_init(NULL);
    CHECK(world);
    const int64_t in_splits[] = {1, 1, 1}, out_splits[] = {1, 1, rank == 1 ? 2 : 1};
    weft_tensor *in = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    weft_tensor *out = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rank == 1 ? 4 : 3));
    CHECK_STATUS(weft_all_to_all_into(out, in, out_splits, in_splits, world), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "rank 2 sends rank 1 4 bytes, which expects 8");
    weft_finish(world);
}

/* A rank that comes late: a try that times out has no effect, and the next one succeeds. */
HOSTS_TEST(test_hosts_ops_late, 3, "2+1")
{
    weft_group *world = weft_init(NULL);
    CHECK(world);
    weft_tensor *x = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(5000), rank + 1);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_INT(weft_item(x, 17), 6);
    if (rank == 0) {
        harness_await_marks(2);
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    } else {
        weft_status status;
        CHECK_OK(weft_limit_open(150));
        status = weft_all_reduce_into(x, x, WEFT_SUM, world);
        CHECK_OK(weft_limit_close());
        CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 0");
        CHECK_INT(weft_item(x, 17), 6);
        harness_mark();
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    }
    CHECK_INT(weft_item(x, 4999), 18);
    CHECK_OK(weft_finish(world));
}

static void *wake_later(void *arg)
{
    WEFT_OS->sleep_ns(300 * 1000 * 1000);
    kill(*(pid_t *)arg, SIGCONT);
    return NULL;
}

/*
 * Rank 1, which only gives, is through and leaves before rank 0 has sent on what both gave: rank 0 is
 * stopped meanwhile.  That concerns nobody.
 */
HOSTS_TEST(test_hosts_ops_leave_early, 3, "2+1")
{
    enum { COUNT = 700000 };
    weft_group *world = weft_init(NULL);
    CHECK(world);
    weft_tensor *pid = weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1), getpid());
    weft_tensor *pids = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(size));
    CHECK_OK(weft_all_gather_into(pids, pid, world));
    weft_tensor *in = filled(WEFT_F32, 3, rank, COUNT);
    weft_tensor *out = rank == 2 ? room(WEFT_F32, COUNT) : NULL;
    pid_t sender = (pid_t)weft_item(pids, 0);
    CHECK_OK(weft_reduce_into(out, in, WEFT_SUM, 2, world));
    pthread_t waker;
    if (rank == 1)
        CHECK(!kill(sender, SIGSTOP) && !pthread_create(&waker, NULL, wake_later, &sender));
    if (rank == 2)
        check_sum("reduce", WEFT_F32, WEFT_SUM, 3, size, 0, COUNT, weft_tensor_data(out));
    CHECK_OK(weft_finish(world));
    if (rank == 1)
        pthread_join(waker, NULL);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/call.h, coll/host/move.c, coll/host/reduce.c */
/*
 * Counts beyond 2^31.  The arithmetic of slices always; the operations between threads with 2^31 +
 * 6 elements that are nearly all alike, where 6 GiB of memory are free; with random elements and
 * between processes, with WEFT_TEST_ALL=1, where 10 GiB are.
 */
#include "coll/lane/call.h"
#include "coll_values.h"
#include "harness_ranks.h"

static const size_t large[] = {0,
                               1,
                               255,
                               4096,
                               (UINT64_C(1) << 31) - 1,
                               UINT64_C(1) << 31,
                               (UINT64_C(1) << 31) + 5,
                               (UINT64_C(1) << 32) - 1,
                               UINT64_C(1) << 32,
                               (UINT64_C(1) << 32) + 3,
                               UINT64_C(1) << 40};

/* Slices follow one another without gap, cover everything, and start on lines of their own. */
TEST(test_large_slices)
{
    for (size_t n = 0; n < sizeof large / sizeof *large; n++)
        for (int parts = 1; parts <= 64; parts++)
            for (size_t item = 1; item <= 8; item *= 2) {
                size_t at = 0;
                for (int part = 0; part < parts; part++) {
                    weft_i_span span = weft_i_coll_slice(large[n], parts, part, item);
                    CHECK(span.first == at);
                    CHECK(span.first * item % WEFT_I_LINE == 0 || span.count == 0);
                    CHECK(span.count <= large[n] / (size_t)parts + WEFT_I_LINE / item);
                    at += span.count;
                }
                CHECK(at == large[n]);
            }
}

/* Messages tell counts beyond 2^32 apart. */
TEST(test_large_digests)
{
    for (size_t n = 0; n < sizeof large / sizeof *large; n++)
        for (size_t m = 0; m < n; m++)
            CHECK((weft_i_digest(7, large[n]) & ~1u) != (weft_i_digest(7, large[m]) & ~1u));
}

/* ---- the operations ---- */

enum { FREE_GIB = 10, FREE_GIB_SPARSE = 6 };
static const int64_t COUNT = (INT64_C(1) << 31) + 5;

static long long free_bytes(void)
{
    long long kib = 0;
    char line[128];
    FILE *info = fopen("/proc/meminfo", "r");
    while (info && fgets(line, sizeof line, info))
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1)
            break;
    if (info)
        fclose(info);
    return kib * 1024;
}

static weft_group *join_with(int gib)
{
    if (free_bytes() < gib * 1024LL * 1024 * 1024)
        SKIP("less than %d GiB of memory are free", gib);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = 120000;
    weft_group *world = weft_init(&opts);
    CHECK(world);
    return world;
}

static weft_group *join(void)
{
    if (!getenv("WEFT_TEST_ALL"))
        SKIP("needs 8 GiB and half a minute; WEFT_TEST_ALL=1 runs it");
    return join_with(FREE_GIB);
}

static weft_tensor *bytes_of(int64_t count, weft_group *symmetric)
{
    weft_tensor *x = symmetric ? weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(count))
                               : weft_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(count));
    if (!x)
        FAIL("no memory for %lld bytes: %s", (long long)count, weft_last_error());
    if (symmetric)
        CHECK(weft_symm_rendezvous(x, symmetric));
    return x;
}

static void fill(weft_tensor *x, int rank)
{
    values_put(WEFT_U8, VALUES_ANY, 1, rank, 0, (size_t)weft_tensor_numel(x), weft_tensor_data(x));
}

static void run_all_reduce(int rank, int size, bool symmetric)
{
    weft_group *world = join();
    weft_tensor *x = bytes_of(COUNT, symmetric ? world : NULL);
    fill(x, rank);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_BXOR, world));
    CHECK_INT(values_check_fold(WEFT_U8, WEFT_BXOR, VALUES_ANY, 1, size, 0, (size_t)COUNT, NULL,
                                weft_tensor_data(x)),
              -1);
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_large_all_reduce, 2)
{
    run_all_reduce(rank, size, false);
}

RANKS_TEST(test_large_all_reduce_symmetric, 2)
{
    run_all_reduce(rank, size, true);
}

RANKS_TEST(test_large_broadcast, 2)
{
    weft_group *world = join();
    weft_tensor *x = bytes_of(COUNT, NULL);
    fill(x, rank);
    CHECK_OK(weft_broadcast_in_place(x, 1, world));
    CHECK_INT(values_check(WEFT_U8, VALUES_ANY, 1, 1, 0, (size_t)COUNT, weft_tensor_data(x)), -1);
    CHECK(!weft_finish(world));
}

/* In place, so that the whole has 2 * (2^30 + 3) elements. */
RANKS_TEST(test_large_all_gather, 2)
{
    weft_group *world = join();
    int64_t part = (INT64_C(1) << 30) + 3;
    weft_tensor *all = bytes_of(part * size, NULL);
    fill(weft_narrow(all, 0, rank * part, part), rank);
    CHECK_OK(weft_all_gather_into(all, weft_narrow(all, 0, rank * part, part), world));
    for (int peer = 0; peer < size; peer++)
        CHECK_INT(values_check(WEFT_U8, VALUES_ANY, 1, peer, 0, (size_t)part,
                               (char *)weft_tensor_data(all) + peer * part),
                  -1);
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_large_all_to_all, 2)
{
    weft_group *world = join();
    int64_t part = (INT64_C(1) << 30) + 3;
    weft_tensor *in = bytes_of(part * size, NULL), *out = bytes_of(part * size, NULL);
    fill(in, rank);
    CHECK_OK(weft_all_to_all_into(out, in, NULL, NULL, world));
    for (int peer = 0; peer < size; peer++)
        CHECK_INT(values_check(WEFT_U8, VALUES_ANY, 1, peer, (size_t)(rank * part), (size_t)part,
                               (char *)weft_tensor_data(out) + peer * part),
                  -1);
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_large_send, 2)
{
    weft_group *world = join();
    weft_tensor *x = bytes_of(COUNT, NULL);
    fill(x, rank);
    CHECK_OK(rank ? weft_recv(x, 0, world) : weft_send(x, 1, world));
    CHECK_INT(values_check(WEFT_U8, VALUES_ANY, 1, 0, 0, (size_t)COUNT, weft_tensor_data(x)), -1);
    CHECK(!weft_finish(world));
}

/* ---- once in every run, between threads: elements that are alike but for some ---- */

enum { SPOTS = 600 };

/* Where elements differ: at the bounds of 30 and 31 bits, and here and there. */
static int64_t spot(int i)
{
    static const int64_t bounds[] = {0,
                                     1,
                                     63,
                                     64,
                                     (INT64_C(1) << 30) - 1,
                                     INT64_C(1) << 30,
                                     (INT64_C(1) << 30) + 2,
                                     (INT64_C(1) << 30) + 3,
                                     (INT64_C(1) << 31) - 1,
                                     INT64_C(1) << 31,
                                     (INT64_C(1) << 31) + 1,
                                     (INT64_C(1) << 31) + 5};
    const int count = sizeof bounds / sizeof *bounds;
    return i < count ? bounds[i] : (i - count) * (INT64_C(1) << 31) / (SPOTS - count) + 17;
}

static unsigned char at_spot(int rank, int64_t place)
{
    return (unsigned char)values_random((uint64_t)rank + 7, (uint64_t)place);
}

/* Fills [first, first + count) with `rest`, but for the rank's spots. */
static void fill_sparse(unsigned char *data, int64_t first, int64_t count, int rank, int rest)
{
    memset(data + first, rest, (size_t)count);
    for (int i = 0; i < SPOTS; i++)
        if (spot(i) >= first && spot(i) - first < count)
            data[spot(i)] = at_spot(rank, spot(i));
}

/* Are these the elements of `rank`, or with `other` >= 0 of both by XOR?  They are alike after. */
static void check_sparse(unsigned char *data, int64_t first, int64_t count, int rank, int other,
                         int rest)
{
    for (int i = 0; i < SPOTS; i++) {
        int64_t place = spot(i);
        if (place < first || place - first >= count)
            continue;
        unsigned wanted = at_spot(rank, place) ^ (other < 0 ? 0u : at_spot(other, place));
        if (data[place] != wanted)
            FAIL("element %lld is %d, not %u", (long long)place, data[place], wanted);
    }
    for (int i = 0; i < SPOTS; i++)
        if (spot(i) >= first && spot(i) - first < count)
            data[spot(i)] = (unsigned char)rest;
    CHECK(data[first] == rest);
    CHECK(!memcmp(data + first, data + first + 1, (size_t)count - 1));
}

RANKS_TEST(test_large_counts, 2)
{
    if (!harness_in_threads && !getenv("WEFT_TEST_ALL"))
        SKIP("runs between threads; WEFT_TEST_ALL=1 runs it between processes");
    weft_group *world = join_with(FREE_GIB_SPARSE);
    int64_t part = (INT64_C(1) << 30) + 3, all = part * size;
    weft_tensor *x = bytes_of(all, NULL);
    unsigned char *data = weft_tensor_data(x);
    fill_sparse(data, 0, all, rank, 1 + rank);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_BXOR, world));
    check_sparse(data, 0, all, 0, 1, 3);
    if (rank == 1)
        fill_sparse(data, 0, all, rank, 9);
    CHECK_OK(weft_broadcast_in_place(x, 1, world));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* before anybody changes what it checks */
    check_sparse(data, 0, all, 1, -1, 9);
    fill_sparse(data, rank * part, part, rank, 5 + rank);
    CHECK_OK(weft_all_gather_into(x, weft_narrow(x, 0, rank * part, part), world));
    for (int peer = 0; peer < size; peer++)
        check_sparse(data, peer * part, part, peer, -1, 5 + peer);
    if (rank == 0)
        fill_sparse(data, 0, all, rank, 11);
    CHECK_OK(rank ? weft_recv(x, 0, world) : weft_send(x, 1, world));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    check_sparse(data, 0, all, 0, -1, 11);
    CHECK(!weft_finish(world));
}

int main(int argc, char **argv)
{
    setenv("HARNESS_TIMEOUT", "600", 0);
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts beyond 2^31.  The arithmetic of slices always; the operations themselves, with 2^31 + 5
 * elements, with WEFT_TEST_ALL=1 on machines with 10 GiB of free memory.
 */
#include "coll/call.h"
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

enum { FREE_GIB = 10 };
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

static weft_group *join(void)
{
    if (!getenv("WEFT_TEST_ALL"))
        SKIP("needs 8 GiB and half a minute; WEFT_TEST_ALL=1 runs it");
    if (free_bytes() < FREE_GIB * 1024LL * 1024 * 1024)
        SKIP("less than %d GiB of memory are free", (int)FREE_GIB);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = 120000;
    weft_group *world = weft_init(&opts);
    CHECK(world);
    return world;
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
    CHECK_OK(weft_broadcast_into(x, 1, world));
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

int main(int argc, char **argv)
{
    setenv("HARNESS_TIMEOUT", "600", 0);
    return harness_main(argc, argv);
}

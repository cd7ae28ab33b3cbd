/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/pool.c, symm/persistent.c */
/* Pools and persistent blocks of symmetric memory against plain models, and every argument that is
 * one too far. */
#include "fault.h"
#include "jobs.h"
#include "symm_info.h"

#include <weft/weft.h>

/* ---- a pool: first fit, gaps merge, a release never fails ---- */

enum { UNIT = 128, UNITS = 40 };

/* Bytes from one tensor of a byte to the next. */
static size_t unit_of(weft_symm_pool *pool)
{
    weft_tensor *a = weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(1));
    weft_tensor *b = weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(1));
    CHECK(a && b);
    size_t unit = (size_t)((char *)weft_tensor_data(b) - (char *)weft_tensor_data(a));
    weft_release(a);
    weft_release(b);
    return unit;
}

RANKS_TEST(test_pool_model, 1)
{
    (void)rank, (void)size;
    weft_symm_pool *pool = weft_symm_pool_new(WEFT_CPU, UNITS * UNIT);
    CHECK(pool);
    weft_tensor *first = weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(1));
    char *base = weft_tensor_data(first);
    weft_release(first);
    size_t unit = unit_of(pool), units = UNITS * UNIT / unit, made = 0;
    CHECK(unit >= 64 && unit <= UNIT);
    bool taken[UNITS * 4] = {false};
    struct {
        weft_tensor *tensor;
        size_t at, count;
    } held[UNITS * 4];
    size_t n = 0;
    uint64_t state = 7;
    for (int step = 0; step < 3000; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t dice = (size_t)(state >> 33);
        if (dice % 5 < 3) {
            int64_t bytes = (int64_t)(dice / 5 % (6 * unit));
            size_t count = bytes ? ((size_t)bytes + unit - 1) / unit : 1, at = 0, run = 0;
            for (at = 0; at < units && run < count; at++)
                run = taken[at] ? 0 : run + 1;
            weft_tensor *x = weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(bytes));
            if (run < count) {
                CHECK(!x);
                CHECK_INT(weft_last_status(), WEFT_ERR_NO_SPACE);
                weft_clear_error();
                continue;
            }
            at -= count;
            CHECK(x);
            char *data = bytes ? weft_tensor_data(x) : base + at * unit;
            CHECK_INT(data - base, at * unit); /* the first gap that has room */
            for (int64_t i = 0; i < bytes; i++)
                CHECK_INT(data[i], 0);
            memset(data, 0x5a, (size_t)bytes);
            memset(taken + at, 1, count);
            held[n].tensor = x;
            held[n].at = at;
            held[n++].count = count;
            made++;
        } else if (n) {
            size_t which = dice / 5 % n;
            weft_release(held[which].tensor);
            memset(taken + held[which].at, 0, held[which].count);
            held[which] = held[--n];
        }
    }
    CHECK(made > 500);
    while (n)
        weft_release(held[--n].tensor);
    weft_tensor *all = weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(UNITS * UNIT));
    CHECK(all && weft_tensor_data(all) == base); /* all gaps are one again */
    CHECK(!weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(0)));
    weft_release(all);
    weft_release(pool);
    weft_clear_error();
}

RANKS_TEST(test_pool_refused, 1)
{
    (void)rank, (void)size;
    CHECK(!weft_symm_pool_new(WEFT_CPU, (size_t)INT64_MAX - WEFT_I_LINE + 1));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(
        !weft_symm_pool_new(WEFT_CPU, (size_t)INT64_MAX - WEFT_I_LINE)); /* a size, but too much */
    CHECK_INT(weft_last_status(), WEFT_ERR_NO_SPACE);
    CHECK(!weft_symm_pool_new(WEFT_META, 100));
    weft_clear_error();
    CHECK(!weft_symm_pool_empty(NULL, WEFT_U8, WEFT_SHAPE(1)));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_symm_pool *pool = weft_symm_pool_new(WEFT_CPU, 1);
    CHECK(pool);
    CHECK(!weft_symm_pool_empty(pool, (weft_dtype)99, WEFT_SHAPE(1)));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    CHECK(!weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(-1)));
    CHECK(!weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(INT64_MAX / 2)));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(1))); /* rounded up to a whole line */
    weft_clear_error();
}

/* ---- persistent blocks ---- */

RANKS_TEST(test_pool_persistent_ids, 2)
{
    (void)rank, (void)size;
    weft_tensor *x[4];
    void *data[4];
    for (uint64_t id = 1; id <= 4; id++) {
        x[id - 1] = weft_symm_empty_strided_p2p(WEFT_SHAPE((int64_t)id * 100), NULL, WEFT_U8,
                                                WEFT_CPU, NULL, id);
        CHECK(x[id - 1]);
        data[id - 1] = weft_tensor_data(x[id - 1]);
        for (uint64_t other = 1; other < id; other++)
            CHECK(data[other - 1] != data[id - 1]);
    }
    for (uint64_t id = 1; id <= 4; id++) {
        CHECK(!weft_symm_empty_strided_p2p(WEFT_SHAPE((int64_t)id * 100), NULL, WEFT_U8, WEFT_CPU,
                                           NULL, id));
        CHECK_INT(weft_last_status(), WEFT_ERR_STATE); /* still in use */
        weft_release(x[id - 1]);
        CHECK(!weft_symm_empty_strided_p2p(WEFT_SHAPE((int64_t)id * 100 + 1), NULL, WEFT_U8,
                                           WEFT_CPU, NULL, id));
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG); /* of another size */
        x[id - 1] = weft_symm_empty_strided_p2p(WEFT_SHAPE((int64_t)id * 100), NULL, WEFT_U8,
                                                WEFT_CPU, NULL, id);
        CHECK(x[id - 1] && weft_tensor_data(x[id - 1]) == data[id - 1]);
    }
    CHECK_OK(weft_symm_forget(2));
    CHECK_STATUS(weft_symm_forget(2), WEFT_ERR_NOT_FOUND);
    CHECK_CONTAINS(weft_last_error(), "2");
    CHECK_STATUS(weft_symm_forget(5), WEFT_ERR_NOT_FOUND);
    weft_release(x[0]);
    x[0] = weft_symm_empty_strided_p2p(WEFT_SHAPE(100), NULL, WEFT_U8, WEFT_CPU, NULL, 1);
    CHECK(x[0] && weft_tensor_data(x[0]) == data[0]); /* the others are remembered */
    weft_tensor *fresh =
        weft_symm_empty_strided_p2p(WEFT_SHAPE(7), NULL, WEFT_U8, WEFT_CPU, NULL, 2);
    CHECK(fresh && weft_tensor_data(fresh) != data[1]); /* its old memory is still in use */
    CHECK_OK(weft_symm_forget(1));
    CHECK_OK(weft_symm_forget(2));
    CHECK_OK(weft_symm_forget(3));
    CHECK_OK(weft_symm_forget(4));
    weft_clear_error();
}

/* A call that fails leaves no id behind, and one that is there stays as it was. */
TEST(test_pool_persistent_without_memory)
{
    const uint64_t id = 77;
    int failed = 0;
    for (int n = 1; n < 40; n++) {
        fault_arm(n);
        weft_tensor *x =
            weft_symm_empty_strided_p2p(WEFT_SHAPE(100), NULL, WEFT_U8, WEFT_CPU, NULL, id);
        bool fired = fault_disarm();
        if (x) {
            CHECK(!fired && failed >= 3);
            weft_release(x);
            break;
        }
        failed++;
        CHECK(fired && weft_last_status() < 0);
        CHECK_STATUS(weft_symm_forget(id), WEFT_ERR_NOT_FOUND);
        /* of another size, so that an entry that had stayed would be in the way */
        weft_release(
            weft_symm_empty_strided_p2p(WEFT_SHAPE(50 + n), NULL, WEFT_U8, WEFT_CPU, NULL, id));
        CHECK_OK(weft_symm_forget(id));
    }
    weft_tensor *again = NULL;
    void *data = NULL;
    for (int n = 1; n < 40 && !again; n++) { /* with the id known, it is the same memory */
        again = weft_symm_empty_strided_p2p(WEFT_SHAPE(100), NULL, WEFT_U8, WEFT_CPU, NULL, id);
        CHECK(again && (!data || data == weft_tensor_data(again)));
        data = weft_tensor_data(again);
        weft_release(again);
        fault_arm(n);
        again = weft_symm_empty_strided_p2p(WEFT_SHAPE(100), NULL, WEFT_U8, WEFT_CPU, NULL, id);
        CHECK_INT(fault_disarm(), !again);
    }
    CHECK(again);
    weft_release(again);
    CHECK_OK(weft_symm_forget(id));
    weft_clear_error();
}

/* ---- bounds ---- */

static const weft_dtype bound_types[] = {WEFT_U8, WEFT_I16, WEFT_I32, WEFT_I64};

/* One buffer of a peer: there if it lies within the 24 bytes, an error otherwise. */
static void check_buffer(weft_symm *mem, int peer, weft_dtype type, int64_t offset, int64_t count)
{
    int64_t item = (int64_t)weft_dtype_size(type);
    char *base = weft_symm_buffer_ptr(mem, peer);
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_symm_buffer(mem, peer, WEFT_SHAPE(count), type, offset);
    bool right = offset >= 0 && count >= 0 && (offset + count) * item <= 24;
    CHECK_INT(x != NULL, right);
    if (x && count)
        CHECK((char *)weft_tensor_data(x) == base + offset * item);
    if (!right)
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    if (offset == 0) { /* from where the tensor begins */
        x = weft_symm_remote_tensor(mem, peer, WEFT_SHAPE(count), type);
        right = count >= 0 && count * item <= 20 && 4 % item == 0;
        CHECK_INT(x != NULL, right);
        if (x && count)
            CHECK((char *)weft_tensor_data(x) == base + 4);
    }
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

static void check_pad(weft_symm *mem, weft_dtype type)
{
    int64_t pad = (int64_t)symm_info(mem).pad_bytes, item = (int64_t)weft_dtype_size(type);
    int64_t most = pad / item;
    for (int64_t less = -1; less <= 1; less++) {
        weft_tensor *x = weft_symm_signal_pad(mem, 0, WEFT_SHAPE(most - less), type, 0);
        CHECK_INT(x != NULL, less >= 0);
        x = weft_symm_signal_pad(mem, 0, WEFT_SCALAR, type, most - less); /* all behind */
        CHECK_INT(x != NULL, less >= 0);
        if (x)
            CHECK_INT(weft_tensor_numel(x), less);
        x = weft_symm_signal_pad(mem, 0, WEFT_SHAPE(1), type, most - less);
        CHECK_INT(x != NULL, less == 1);
        if (x)
            CHECK((char *)weft_tensor_data(x) ==
                  (char *)weft_symm_signal_pad_ptr(mem, 0) + pad - item);
    }
}

static void check_handle(weft_symm *mem, weft_group *world, int rank, int size)
{
    CHECK(!weft_symm_buffer(mem, 0, WEFT_SHAPE(1), (weft_dtype)99, 0));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    CHECK(!weft_symm_remote_tensor(mem, 0, WEFT_SHAPE(1), (weft_dtype)99));
    CHECK(!weft_symm_buffer(NULL, 0, WEFT_SHAPE(1), WEFT_U8, 0));
    CHECK(!weft_symm_tensor(NULL, 0) && !weft_symm_buffer_ptr(NULL, 0));
    CHECK(symm_info(mem).rank == rank && symm_info(mem).size == size);
    CHECK(symm_info(mem).bytes == 24 && symm_info(mem).offset == 4);
    CHECK(symm_info(mem).group == world && symm_info(mem).channels > 0);
    weft_clear_error();
    weft_symm_info info = {.channels = 77};
    CHECK_STATUS(weft_symm_describe(NULL, &info), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_describe(mem, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_INT(info.channels, 77);
}

RANKS_TEST(test_pool_handle_bounds, 2)
{
    weft_group *world = join(0);
    weft_tensor *all = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(24));
    int peer = (rank + 1) % size;
    CHECK(all && weft_symm_is(all) && !weft_symm_is(weft_empty_like(all)) && !weft_symm_is(NULL));
    weft_tensor *part = weft_narrow(all, 0, 4, 12);
    weft_symm *mem = weft_symm_rendezvous(part, world);
    CHECK(mem && weft_symm_is(part));
    for (int t = 0; t < 4; t++) {
        for (int64_t offset = -1; offset <= 25; offset++)
            for (int64_t count = -1; count <= 25; count++)
                check_buffer(mem, peer, bound_types[t], offset, count);
        check_pad(mem, bound_types[t]);
    }
    check_handle(mem, world, rank, size);
    weft_tensor *theirs = weft_symm_tensor(mem, peer);
    CHECK(theirs && weft_tensor_numel(theirs) == 12 && weft_tensor_dtype(theirs) == WEFT_U8);
    CHECK((char *)weft_tensor_data(theirs) == (char *)weft_symm_buffer_ptr(mem, peer) + 4);
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* A tensor over the own block is symmetric memory, whichever call gave it; one over a peer's is not. */
RANKS_TEST(test_pool_own_buffer, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    weft_symm *mem = weft_symm_rendezvous(weft_narrow(x, 0, 4, 8), world);
    weft_tensor *own[] = {weft_symm_buffer(mem, rank, WEFT_SHAPE(8), WEFT_F32, 4),
                          weft_symm_remote_tensor(mem, rank, WEFT_SHAPE(8), WEFT_F32),
                          weft_symm_tensor(mem, rank)};
    CHECK(!weft_symm_is(weft_symm_tensor(mem, 1 - rank)));
    CHECK(!weft_symm_is(weft_symm_signal_pad(mem, rank, WEFT_SCALAR, WEFT_U32, 0)));
    weft_release(mem);
    for (int i = 0; i < 3; i++) {
        CHECK(weft_symm_is(own[i]));
        CHECK(weft_tensor_data(own[i]) == (char *)weft_tensor_data(x) + 16);
        CHECK_OK(weft_fill(x, rank + 1));
        weft_tensor *sum = weft_symm_one_shot_all_reduce(own[i], WEFT_SUM, world);
        CHECK(sum && weft_item(sum, 0) == 3 && weft_item(sum, 7) == 3);
        CHECK(weft_symm_rendezvous(own[i], world) != NULL);
    }
    weft_release(x); /* the block stays as long as a tensor over it */
    CHECK(weft_item(own[0], 7) == rank + 1);
    CHECK(!weft_finish(world));
}

/* Words are written where they should be, and nowhere else. */
RANKS_TEST(test_pool_words, 1)
{
    (void)rank, (void)size;
    enum { WORDS = 6 };
    weft_tensor *x = weft_symm_empty(WEFT_U32, WEFT_CPU, WEFT_SHAPE(WORDS));
    static const int64_t values[] = {-1, 0, 1, UINT32_MAX, (int64_t)UINT32_MAX + 1};
    for (int64_t offset = -1; offset <= WORDS + 1; offset++)
        for (int64_t count = -1; count <= WORDS + 1; count++)
            for (int v = 0; v < 5; v++) {
                weft_fill(x, 77);
                bool right = offset >= 0 && count >= 1 && offset + count <= WORDS && v > 0 && v < 4;
                weft_status status = weft_symm_memset32(x, offset, values[v], count);
                CHECK_INT(status, right ? WEFT_OK : WEFT_ERR_INVALID_ARG);
                for (int64_t i = 0; i < WORDS; i++)
                    CHECK_INT(weft_item_int(x, i),
                              right && i >= offset && i < offset + count ? values[v] : 77);
                if (count != 1)
                    continue;
                weft_fill(x, 77);
                status = weft_symm_stream_write_value32(x, offset, values[v]);
                CHECK_INT(status, right ? WEFT_OK : WEFT_ERR_INVALID_ARG);
                for (int64_t i = 0; i < WORDS; i++)
                    CHECK_INT(weft_item_int(x, i), right && i == offset ? values[v] : 77);
            }
    weft_clear_error();
    CHECK_STATUS(weft_symm_memset32(x, 5, 1, 2), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "offset 5 and count 2 exceeded the numel of the tensor, 6");
    weft_clear_error();
    CHECK_STATUS(weft_symm_memset32(NULL, 0, 1, 1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_memset32(weft_empty(WEFT_U32, WEFT_META, WEFT_SHAPE(4)), 0, 1, 1),
                 WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_symm_memset32(weft_slice(x, 0, 0, WORDS, 2), 0, 1, 1), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_symm_memset32(weft_view_dtype(x, WEFT_I32), 0, 1, 1), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_symm_memset32(weft_view(x, WEFT_SHAPE(2, 3)), 0, 1, 1), WEFT_ERR_TYPE);
    weft_tensor *freed = weft_empty(WEFT_U32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_OK(weft_storage_resize(weft_tensor_storage(freed), 0));
    CHECK_STATUS(weft_symm_memset32(freed, 0, 1, 1), WEFT_ERR_STATE); /* nothing to write to */
    CHECK_STATUS(weft_symm_stream_write_value32(freed, 3, 1), WEFT_ERR_STATE);
    int64_t version = weft_tensor_version(x);
    CHECK_OK(weft_symm_memset32(x, 0, 1, 1));
    CHECK_OK(weft_symm_stream_write_value32(x, 0, 1));
    CHECK_INT(weft_tensor_version(x), version + 2);
    weft_clear_error();
}

RANKS_TEST(test_pool_backends, 1)
{
    (void)rank, (void)size;
    weft_backend_info info;
    int count = weft_backend_count(), usable = 0;
    CHECK(count >= 3);
    for (int i = 0; i < count; i++) {
        CHECK_OK(weft_backend_describe(i, &info));
        CHECK(info.name && info.device && info.usable == (info.score > 0));
        bool on_device = !strcmp(info.name, "cuda") || !strncmp(info.name, "nv", 2) ||
                         !strcmp(info.name, "nccl");
        CHECK(!strcmp(info.device, on_device ? "cuda" : "cpu"));
        usable += info.usable;
        for (int other = 0; other < i; other++) {
            weft_backend_info before;
            CHECK_OK(weft_backend_describe(other, &before));
            CHECK(strcmp(before.name, info.name));
        }
    }
    CHECK(usable >= 2);
    CHECK_STATUS(weft_backend_describe(-1, &info), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_backend_describe(count, &info), WEFT_ERR_INVALID_ARG);
    char words[64];
    snprintf(words, sizeof words, "backends 0 to %d, not %d", count - 1, count);
    CHECK_CONTAINS(weft_last_error(), words);
    CHECK_STATUS(weft_backend_describe(0, NULL), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK(!weft_symm_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(3)));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "no backend of this build makes symmetric memory on meta");
    weft_clear_error();
}

/* Without memory nothing is made and nothing stays behind. */
RANKS_TEST(test_pool_without_memory, 1)
{
    (void)rank, (void)size;
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    for (int n = 1; n < 60; n++) {
        fault_arm(n);
        weft_symm_pool *pool = weft_symm_pool_new(WEFT_CPU, 4096);
        CHECK(pool || weft_last_status() < 0); /* why is known here, not only when it is used */
        weft_tensor *x = weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(10));
        weft_tensor *kept =
            x ? weft_symm_empty_strided_p2p(WEFT_SHAPE(10), NULL, WEFT_U8, WEFT_CPU, NULL, 9)
              : NULL;
        bool fired = fault_disarm();
        if (!fired) {
            CHECK(kept && n > 3);
            CHECK_OK(weft_symm_forget(9));
            return;
        }
        if (!kept)
            CHECK(weft_last_status() < 0);
        weft_release(kept);
        weft_symm_forget(9); /* it may be known already when there is no memory for its tensor */
        CHECK_STATUS(weft_symm_forget(9), WEFT_ERR_NOT_FOUND);
        if (pool && !x) { /* the whole pool is free */
            x = weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(4096));
            CHECK(x);
        }
        weft_clear_error();
    }
    FAIL("it never succeeds");
}

/* Gaps that do not touch are not joined, however large both are together. */
RANKS_TEST(test_pool_gaps_apart, 1)
{
    (void)rank, (void)size;
    weft_symm_pool *pool = weft_symm_pool_new(WEFT_CPU, 3 * WEFT_I_LINE);
    weft_tensor *x[3];
    for (int i = 0; i < 3; i++)
        CHECK((x[i] = weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(WEFT_I_LINE))));
    weft_release(x[0]);
    weft_release(x[2]);
    CHECK(!weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(2 * WEFT_I_LINE)));
    CHECK_INT(weft_last_status(), WEFT_ERR_NO_SPACE);
    weft_clear_error();
    weft_release(x[1]);
    CHECK(weft_symm_pool_empty(pool, WEFT_U8, WEFT_SHAPE(3 * WEFT_I_LINE)));
}

/* As many gaps as tensors, each larger than those before it: there is room for all of them, and one
 * that is taken whole leaves the others alone. */
RANKS_TEST(test_pool_many_gaps, 1)
{
    (void)rank, (void)size;
    enum { GAPS = 20, LINES = GAPS * (GAPS + 1) };
    weft_symm_pool *pool = weft_symm_pool_new(WEFT_CPU, LINES * WEFT_I_LINE);
    void *place[GAPS];
    for (int i = 0; i < GAPS; i++) { /* a gap, and what keeps it from the next */
        weft_shape shape = WEFT_SHAPE((i + 1) * WEFT_I_LINE);
        weft_tensor *gone = weft_symm_pool_empty(pool, WEFT_U8, shape);
        CHECK(gone && weft_symm_pool_empty(pool, WEFT_U8, shape));
        place[i] = weft_tensor_data(gone);
        weft_release(gone);
    }
    for (int i = GAPS; i-- > 0;) {
        weft_shape shape = WEFT_SHAPE((i + 1) * WEFT_I_LINE);
        weft_tensor *x = weft_symm_pool_empty(pool, WEFT_U8, shape);
        CHECK(x && weft_tensor_data(x) == place[i]);
        CHECK(!weft_symm_pool_empty(pool, WEFT_U8, shape));
        CHECK_INT(weft_last_status(), WEFT_ERR_NO_SPACE);
        weft_clear_error();
    }
}

/* ---- what persistent blocks of ranks that are threads leave ---- */

enum { ODD = (1 << 20) + 12288 }; /* bytes, as nothing else has */
static atomic_int mapped;         /* how often; relaxed: read when the ranks are gone */

static void *map_counted(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    void *memory = weft_i_os_linux.mmap(at, bytes, protection, flags, file, offset);
    if (memory != MAP_FAILED && bytes == ODD)
        atomic_fetch_add_explicit(&mapped, 1, memory_order_relaxed);
    return memory;
}

static int unmap_counted(void *memory, size_t bytes)
{
    if (bytes == ODD)
        atomic_fetch_sub_explicit(&mapped, 1, memory_order_relaxed);
    return weft_i_os_linux.munmap(memory, bytes);
}

static int make_persistent(void *arg)
{
    (void)arg;
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_symm_empty_strided_p2p(WEFT_SHAPE(ODD), NULL, WEFT_U8, WEFT_CPU, NULL, 7);
    int most = atomic_load_explicit(&mapped, memory_order_relaxed);
    weft_release(x);
    return weft_finish(world) || !x || most < 1;
}

/* Nobody can ask for them again once their rank has ended, so they end with it. */
TEST(test_pool_persistent_ends_with_its_rank)
{
    static weft_i_os table;
    table = weft_i_os_linux;
    table.mmap = map_counted;
    table.munmap = unmap_counted;
    weft_i_os_now = &table;
    CHECK_INT(weft_spawn(2, make_persistent, NULL), 0);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(atomic_load_explicit(&mapped, memory_order_relaxed), 0);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* refusals are the point here */
    return harness_main(argc, argv);
}

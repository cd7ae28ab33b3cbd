/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/nvshmem/block.c, backends/nvshmem/library.c, backends/nvshmem/remote.c,
 * backends/nvshmem/start.c, backends/nvshmem/attempt.c, backends/nvshmem/symm.c,
 * backends/nvshmem/nvshmem.c, backends/cuda/ranks/scattered.c */
/*
 * Backend nvshmem, ranks as processes: on the stand-in of tests/nvshmem, or with the library and a
 * GPU where WEFT_TEST_NVSHMEM=real (scripts/gpu-check).  The tests of rows and tiles have the bodies
 * that backend cuda's have.  The names of the reference are in test_nvshmem_symm.c and
 * test_symm_coll.c, which backend cuda runs too.
 */
#define HARNESS_LABEL nvshmem_label
static const char *nvshmem_label(const char *backend);
#include "cuda/move_scene.h"

#include "backends/nvshmem/block.h"
#include "backends/nvshmem/library.h"
#include "backends/nvshmem/start.h"
#include "cuda/model.h"
#include "nvshmem/model.h"
#include "symm/backend.h"

#define GPU SCENE_GPU

static bool is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_NVSHMEM");
    return wanted && !strcmp(wanted, "real");
}

static const char *nvshmem_label(const char *backend)
{
    (void)backend;
    return is_real() ? "nvshmem" : "softnvshmem";
}

/* The world of a scene uses the backend from its first allocation on. */
static weft_group *begin(int64_t timeout_ms)
{
    weft_group *world = join(timeout_ms);
    weft_status status = weft_symm_set_backend(GPU, "nvshmem");
    if (status < 0)
        FAIL("weft_symm_set_backend: %s", weft_last_error());
    return world;
}

/* Ways in which peers are reached. */
enum { STRIDED, SCATTERED, WITHOUT_POINTERS };
static void want(int way)
{
    if (is_real() && way != STRIDED)
        SKIP("how peers are mapped is NVSHMEM's choice");
    nvshmem_model.scattered = way == SCATTERED;
    nvshmem_model.no_pointers = way == WITHOUT_POINTERS;
}

static weft_symm *make(weft_group *group, int64_t count)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(count));
    weft_symm *mem = x ? weft_symm_rendezvous(x, group) : NULL;
    if (!mem)
        FAIL("%s", weft_last_error());
    return mem;
}

#define BARRIER(mem_, channel_)                                        \
    do {                                                               \
        CHECK_OK(weft_symm_barrier((mem_), (channel_), WEFT_DEFAULT)); \
        CHECK_OK(scene_sync());                                        \
    } while (0)

static bool all_equal(weft_tensor *x, double value)
{
    weft_tensor *here = scene_here(x);
    for (int64_t i = 0; i < weft_tensor_numel(here); i++)
        if (weft_item(here, i) != value)
            return false;
    return true;
}

/* ---- memory and groups ---- */

RANKS_TEST(test_nvshmem_backend, 2)
{
    weft_group *world = join(0);
    CHECK_INT(strcmp(weft_symm_backend(GPU), "cuda"), 0); /* never by itself */
    CHECK_OK(weft_symm_set_backend(GPU, "nvshmem"));
    CHECK_INT(strcmp(weft_symm_backend(GPU), "nvshmem"), 0);
    CHECK(weft_symm_empty(WEFT_U8, GPU, WEFT_SHAPE(1)));
    CHECK_OK(weft_symm_set_backend(GPU, "nvshmem"));
    CHECK_STATUS(weft_symm_set_backend(GPU, "cuda"), WEFT_ERR_STATE);
    CHECK_STATUS(weft_symm_set_backend(WEFT_CPU, "nvshmem"), WEFT_ERR_NOT_FOUND);
    if (!is_real()) /* it was started once, and made one id to meet by */
        CHECK_INT(nvshmem_calls("nvshmemx_get_uniqueid"), rank == 0);
    finish(world);
}

static void signal_pad(int rank, int size)
{
    weft_group *world = begin(0);
    weft_symm *mem = make(world, 1);
    size_t pad_bytes = symm_info(mem).pad_bytes;
    int peer = (rank + 1) % size;
    CHECK(weft_tensor_data(weft_symm_signal_pad(mem, rank, WEFT_SCALAR, WEFT_U32, 0)) ==
          weft_symm_signal_pad_ptr(mem, rank));
    weft_tensor *pad = weft_symm_signal_pad(mem, peer, WEFT_SCALAR, WEFT_U32, 0);
    CHECK_INT(weft_tensor_numel(pad), pad_bytes / 4);
    CHECK(all_equal(pad, 0)); /* though NVSHMEM's memory is full of rubbish when it is new */
    pad = weft_symm_signal_pad(mem, peer, WEFT_SHAPE(8, 8), WEFT_U64, 0);
    CHECK(weft_tensor_dtype(pad) == WEFT_U64 && weft_tensor_numel(pad) == 64);
    weft_tensor *fresh = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(1));
    mem = weft_symm_rendezvous(fresh, world);
    pad = weft_symm_signal_pad(mem, rank, WEFT_SCALAR, WEFT_U32, 0);
    CHECK_OK(weft_fill(pad, 42));
    CHECK_OK(weft_fill(fresh, 0));
    BARRIER(mem, 0);
    CHECK(all_equal(pad, 42)); /* neither the buffer nor the barrier's own words */
    CHECK_OK(weft_fill(pad, 0));
    BARRIER(mem, 0);
    finish(world);
}

RANKS_TEST(test_nvshmem_signal_pad, 2)
{
    signal_pad(rank, size);
}

static void subgroup(int rank)
{
    weft_group *world = begin(0);
    int odd[] = {0, 3}, even[] = {2, 1}; /* no arithmetic progression, and out of order */
    weft_group *half = weft_group_new(world, rank % 3 ? even : odd, 2, NULL);
    CHECK(half);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    weft_symm *wide = weft_symm_rendezvous(x, world), *narrow = weft_symm_rendezvous(x, half);
    if (!wide || !narrow)
        FAIL("%s", weft_last_error());
    CHECK_INT(symm_info(wide).size, 4);
    CHECK_INT(symm_info(narrow).size, 2);
    CHECK_OK(weft_fill(x, rank));
    BARRIER(wide, 0);
    int next = (rank + 1) % 4, beside = 1 - weft_rank(half);
    int whom = rank % 3 ? 3 - rank : 3 - rank;
    CHECK(all_equal(weft_symm_buffer(wide, next, WEFT_SHAPE(64), WEFT_F32, 0), next));
    CHECK(all_equal(weft_symm_buffer(narrow, beside, WEFT_SHAPE(64), WEFT_F32, 0), whom));
    BARRIER(narrow, 0);
    BARRIER(wide, 1);
    finish(world);
}

RANKS_TEST(test_nvshmem_subgroup, 4)
{
    subgroup(rank);
}

/* ---- rows and tiles ---- */

static weft_group *begin_scene(int64_t timeout_ms)
{
    return begin(timeout_ms);
}

RANKS_TEST(test_symm_vdev_4, 4)
{
    scene_begin = begin_scene;
    scene_vdev(rank, size);
}

RANKS_TEST(test_symm_vdev_refused, 3)
{
    scene_begin = begin_scene;
    scene_vdev_refused(rank, size);
}

RANKS_TEST(test_symm_tile_reduce, 4)
{
    scene_begin = begin_scene;
    scene_tile_reduce(rank, size);
}

RANKS_TEST(test_symm_multi_root_tile_reduce, 4)
{
    scene_begin = begin_scene;
    scene_multi_root(rank, size);
}

/* The same where the memory of peers is mapped at no stride. */
RANKS_TEST(test_nvshmem_scattered_rows, 3)
{
    want(SCATTERED);
    scene_begin = begin_scene;
    scene_vdev(rank, size);
}

RANKS_TEST(test_nvshmem_scattered_tiles, 4)
{
    want(SCATTERED);
    scene_begin = begin_scene;
    scene_tile_reduce(rank, size);
}

RANKS_TEST(test_nvshmem_scattered_signals, 3)
{
    want(SCATTERED);
    signal_pad(rank, size);
}

/* The operand of a sum, `shift` elements into symmetric memory, and what a plain collective makes of
 * it, which goes through the carrier's stage. */
typedef struct summed {
    weft_tensor *all, *x, *expected;
} summed;

static summed sum_of(weft_dtype dtype, weft_reduction op, int64_t shift, int64_t count,
                     weft_group *world)
{
    summed s = {.all = weft_symm_empty(dtype, GPU, WEFT_SHAPE(count + 2 * shift))};
    CHECK(s.all);
    CHECK_OK(weft_fill(s.all, 3));
    s.x = weft_narrow(s.all, 0, shift, count);
    int first = 1 + weft_rank(world);
    weft_tensor *values =
        weft_to(weft_arange(WEFT_F32, WEFT_CPU, first, (double)(first + count), 1), dtype, GPU);
    CHECK_OK(weft_copy(s.x, values));
    s.expected = scene_here(weft_all_reduce(values, op, world));
    return s;
}

/* All ways to the same bits; what lies around the operand stays. */
static void sum_everywhere(weft_dtype dtype, weft_reduction op, int64_t shift, weft_group *world)
{
    enum { COUNT = 96 };
    summed s = sum_of(dtype, op, shift, COUNT, world);
    weft_tensor *in = weft_clone(s.x), *out = weft_empty_like(in);
    CHECK(weft_equal(scene_here(weft_symm_one_shot_all_reduce(s.x, op, world)), s.expected));
    CHECK(weft_equal(scene_here(s.x), scene_here(in))); /* the operand is as it was */
    CHECK_OK(weft_symm_two_shot_all_reduce_out(out, s.x, op, world));
    CHECK(weft_equal(scene_here(out), s.expected));
    for (int split = 0; split < 2; split++) {
        weft_tensor *rows = split ? weft_view(s.x, WEFT_SHAPE(2, COUNT / 2)) : s.x;
        weft_tensor *sum = split ? weft_view(s.expected, WEFT_SHAPE(2, COUNT / 2)) : s.expected;
        int64_t each = weft_tensor_size(rows, split) / weft_size(world);
        weft_shape shape = split ? WEFT_SHAPE(2, each) : WEFT_SHAPE(each);
        weft_tensor *part = weft_empty(dtype, GPU, shape);
        CHECK_OK(weft_symm_reduce_scatter_out(part, rows, split, op, world));
        sum = weft_contiguous(weft_narrow(sum, split, weft_rank(world) * each, each));
        CHECK(weft_equal(scene_here(part), sum));
    }
    CHECK_OK(weft_symm_two_shot_all_reduce(s.x, op, world));
    CHECK(weft_equal(scene_here(s.x), s.expected));
    CHECK_OK(weft_fill(s.x, 0));
    CHECK(
        weft_equal(scene_here(weft_symm_one_shot_all_reduce_copy(s.x, in, op, world)), s.expected));
    CHECK(weft_equal(scene_here(s.x), scene_here(in))); /* which was copied there */
    if (shift)
        CHECK(all_equal(weft_narrow(s.all, 0, 0, shift), 3) &&
              all_equal(weft_narrow(s.all, 0, shift + COUNT, shift), 3));
}

RANKS_TEST(test_nvshmem_scattered_sums, 3)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64, WEFT_I32};
    static const weft_reduction ops[] = {WEFT_SUM, WEFT_AVG, WEFT_PRODUCT, WEFT_MAX};
    want(SCATTERED);
    weft_group *world = begin(30000);
    for (int d = 0; d < 5; d++)
        for (int o = 0; o < 4; o++)
            for (int64_t shift = 0; shift <= 16; shift += 8) {
                CHECK_OK(weft_scope_open());
                sum_everywhere(dtypes[d], ops[o], shift, world);
                CHECK_OK(weft_scope_close());
            }
    finish(world);
}

/* Ranks whose operands lie at different offsets: all are told, as where memory has a stride. */
RANKS_TEST(test_nvshmem_scattered_mismatch, 3)
{
    want(SCATTERED);
    weft_group *world = begin(30000);
    weft_tensor *all = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    CHECK(weft_symm_rendezvous(all, world));
    weft_tensor *x = weft_narrow(all, 0, rank == 1 ? 16 : 0, 16);
    weft_tensor *sum = weft_symm_one_shot_all_reduce(x, WEFT_SUM, world);
    weft_status status = sum ? scene_sync() : weft_last_status();
    CHECK_INT(status, WEFT_ERR_MISMATCH);
    finish(world);
}

/* What needs a stride of its own is refused, not silently empty. */
RANKS_TEST(test_nvshmem_scattered_multimem, 2)
{
    want(SCATTERED);
    weft_group *world = begin(30000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    CHECK_OK(weft_fill(x, rank + 1));
    CHECK_STATUS(weft_symm_multimem_all_reduce(x, WEFT_SUM, world), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "multicast");
    CHECK(all_equal(x, rank + 1));
    finish(world);
}

RANKS_TEST(test_nvshmem_sums, 2)
{
    weft_group *world = begin(30000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    CHECK_OK(weft_fill(x, rank + 1));
    weft_tensor *sum = weft_symm_one_shot_all_reduce(x, WEFT_SUM, world);
    CHECK(sum && all_equal(sum, 3));
    finish(world);
}

/* ---- one-sided ---- */

RANKS_TEST(test_symm_put_get, 3)
{
    scene_begin = begin_scene;
    scene_put_get(rank, size, true);
}

RANKS_TEST(test_nvshmem_scattered_put_get, 3)
{
    want(SCATTERED);
    scene_begin = begin_scene;
    scene_put_get(rank, size, true);
}

RANKS_TEST(test_nvshmem_remote_put_get, 3)
{
    want(WITHOUT_POINTERS);
    scene_begin = begin_scene;
    scene_put_get(rank, size, true);
    CHECK(nvshmem_calls("nvshmemx_signal_wait_until_on_stream") > 0);
}

/*
 * Groups without addresses need no team of NVSHMEM: any list of ranks meets, in any order, on its
 * own words, and barriers of two groups and of two channels are under way at once on two streams.
 */
RANKS_TEST(test_nvshmem_remote_groups, 4)
{
    want(WITHOUT_POINTERS);
    weft_group *world = begin(30000);
    int outer[] = {3, 0}, inner[] = {2, 0, 1}; /* rank 0 is in both */
    weft_group *pair = rank % 3 == 0 ? weft_group_new(world, outer, 2, "outer") : NULL;
    weft_group *three = rank < 3 ? weft_group_new(world, inner, 3, "inner") : NULL;
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(8));
    weft_symm *wide = weft_symm_rendezvous(x, world);
    weft_symm *in_pair = pair ? weft_symm_rendezvous(x, pair) : NULL;
    weft_symm *in_three = three ? weft_symm_rendezvous(x, three) : NULL;
    if (!wide || !in_pair != !pair || !in_three != !three)
        FAIL("%s", weft_last_error());
    weft_stream *one = weft_keep(weft_stream_current(GPU)), *other = weft_stream_new(GPU, false);
    for (int turn = 0; turn < 3; turn++) {
        /* Rank 0's streams wait for different ranks, and come to each other's channels crosswise. */
        CHECK_OK(weft_stream_use(one));
        if (in_pair)
            CHECK_OK(weft_symm_barrier(in_pair, 0, WEFT_DEFAULT));
        CHECK_OK(weft_symm_barrier(wide, 0, WEFT_DEFAULT));
        CHECK_OK(weft_stream_use(other));
        if (in_three)
            CHECK_OK(weft_symm_barrier(in_three, 0, WEFT_DEFAULT));
        CHECK_OK(weft_symm_barrier(wide, 1, WEFT_DEFAULT));
    }
    CHECK_OK(scene_sync());
    CHECK_OK(weft_stream_use(one));
    CHECK_OK(weft_fill(x, rank));
    BARRIER(wide, 0);
    weft_tensor *got = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(8));
    if (in_pair) { /* ranks are those of the group: 0 is rank 3 of the world */
        CHECK_OK(weft_symm_get(got, in_pair, 1 - weft_rank(pair), 0));
        CHECK(all_equal(got, 3 - rank));
    }
    if (in_three) {
        CHECK_OK(weft_symm_get(got, in_three, 0, 0));
        CHECK(all_equal(got, 2));
    }
    BARRIER(wide, 1);
    weft_release(one);
    finish(world);
}

/* What needs addresses is refused, not silently empty. */
RANKS_TEST(test_nvshmem_remote_refuses, 2)
{
    want(WITHOUT_POINTERS);
    weft_group *world = begin(30000);
    weft_symm *mem = make(world, 64);
    CHECK(weft_symm_tensor(mem, rank));
    CHECK(!weft_symm_tensor(mem, 1 - rank));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "has no address");
    CHECK(!weft_symm_signal_pad(mem, 1 - rank, WEFT_SCALAR, WEFT_U32, 0));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    CHECK(!weft_symm_one_shot_all_reduce(x, WEFT_SUM, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    BARRIER(mem, 0);
    finish(world);
}

/* A rank dies while a call of NVSHMEM on another's stream waits for it. */
RANKS_TEST(test_nvshmem_remote_kill, 3)
{
    want(WITHOUT_POINTERS);
    weft_group *world = begin(30000);
    weft_symm *mem = make(world, 16);
    BARRIER(mem, 0);
    if (rank == 2) {
        harness_rank_dies();
        CHECK(harness_await(0, 1) && harness_await(1, 1));
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(weft_symm_barrier(mem, 0, 30000));
    harness_mark();
    long long began = harness_now();
    CHECK_STATUS(scene_sync(), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    CHECK(harness_now() - began < 10 * 1000000000LL);
    CHECK_STATUS(weft_symm_barrier(mem, 0, WEFT_DEFAULT), WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

RANKS_TEST(test_nvshmem_kill, 3)
{
    if (is_real())
        SKIP("NVSHMEM says nothing of ranks that die, nor MPS of those that share its GPU");
    weft_group *world = begin(30000);
    weft_symm *mem = make(world, 16);
    BARRIER(mem, 0);
    if (rank == 2) {
        harness_rank_dies();
        CHECK(harness_await(0, 1) && harness_await(1, 1));
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(weft_symm_barrier(mem, 0, 30000));
    harness_mark();
    CHECK_STATUS(scene_sync(), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    weft_clear_error();
    /* Memory can no longer be made by all; the survivors are told so, in time. */
    CHECK(!weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(4)));
    CHECK_INT(weft_last_status(), WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

/* ---- memory ---- */

/* Memory that streams may use is let go of a little later. */
static void await_released(int count)
{
    for (int ms = 0; ms < 10000 && weft_i_nvshmem_live(true) < count; ms++)
        rest_us(1000);
    CHECK_INT(weft_i_nvshmem_live(true), count);
}

/* Blocks go when all ranks have let go of them and meet; never when a tensor goes. */
RANKS_TEST(test_nvshmem_frees, 3)
{
    weft_group *world = begin(30000);
    weft_tensor *a = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(1000));
    weft_tensor *b = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(1000));
    CHECK(a && b && all_equal(a, 0) && all_equal(b, 0));
    CHECK_INT(weft_i_nvshmem_live(false), 2);
    if (rank != 1)
        weft_release(a);
    weft_release(b);
    await_released(rank == 1 ? 1 : 2);
    weft_tensor *c = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(1000)); /* b goes, a stays */
    CHECK(c && all_equal(c, 0));
    CHECK_INT(weft_i_nvshmem_live(false), 2);
    int frees = is_real() ? 1 : nvshmem_calls("nvshmem_free");
    CHECK_INT(frees, 1);
    if (rank == 1) {
        CHECK(all_equal(a, 0)); /* it is not anybody else's */
        weft_release(a);
    }
    weft_release(c);
    await_released(2);
    CHECK_INT(is_real() ? 1 : nvshmem_calls("nvshmem_free"), 1); /* releasing frees nothing */
    CHECK_OK(weft_symm_set_backend(GPU, "nvshmem"));             /* collective: now it does */
    CHECK_INT(weft_i_nvshmem_live(false), 0);
    CHECK_INT(is_real() ? 3 : nvshmem_calls("nvshmem_free"), 3);
    finish(world);
}

RANKS_TEST(test_nvshmem_mismatch, 2)
{
    weft_group *world = begin(30000);
    CHECK(!weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64 + rank)));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "rank 0 wants 256 bytes");
    weft_clear_error();
    weft_tensor *a = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    weft_tensor *b = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    CHECK(a && b);
    CHECK(!weft_symm_rendezvous(rank ? a : b, world)); /* of two allocations */
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "one allocation");
    weft_clear_error();
    CHECK(weft_symm_rendezvous(a, world));
    finish(world);
}

RANKS_TEST(test_nvshmem_groups_of_a_block, 2)
{
    weft_group *world = begin(30000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    for (int i = 0; i <= WEFT_I_NVSHMEM_SLOTS; i++) {
        weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, NULL);
        weft_symm *mem = weft_symm_rendezvous(x, group);
        if (i < WEFT_I_NVSHMEM_SLOTS) {
            CHECK(mem);
            BARRIER(mem, 0);
        } else {
            CHECK(!mem);
            CHECK_INT(weft_last_status(), WEFT_ERR_LIMIT);
        }
    }
    finish(world);
}

RANKS_TEST(test_nvshmem_full, 2)
{
    if (is_real())
        SKIP("fills no GPU");
    weft_group *world = begin(30000);
    CHECK(!weft_symm_empty(WEFT_U8, GPU, WEFT_SHAPE(100 << 20)));
    CHECK_INT(weft_last_status(), WEFT_ERR_NO_MEMORY);
    CHECK_CONTAINS(weft_last_error(), "NVSHMEM_SYMMETRIC_SIZE");
    weft_clear_error();
    BARRIER(make(world, 4), 0); /* the backend goes on */
    finish(world);
}

/* ---- faults ---- */

/* A rank runs out of host memory at any place of an allocation: nobody hangs, and the next works. */
RANKS_TEST(test_nvshmem_no_memory, 2)
{
    if (is_real())
        SKIP("faults need the stand-in");
    weft_group *world = begin(3000);
    for (int n = 1; n <= 8; n++) {
        weft_scope_open();
        nvshmem_model.no_alloc = rank == 1 ? n : 0;
        weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
        bool fired = nvshmem_model.no_alloc == 0;
        nvshmem_model.no_alloc = 0;
        if (rank == 1 && fired)
            CHECK(!x && weft_last_status() == WEFT_ERR_NO_MEMORY);
        else if (rank == 1)
            CHECK(x);
        weft_clear_error();
        CHECK_OK(weft_group_barrier(world, 20000)); /* who waited for a rank that failed is back */
        weft_tensor *y = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(128));
        if (!y)
            FAIL("after allocation %d failed: %s", n, weft_last_error());
        weft_scope_close();
    }
    finish(world);
}

static void refused(const char *because)
{
    CHECK(weft_last_status() == WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), because);
    weft_clear_error();
}

/* One rank has it not, or another version: nobody starts, all are told, and all go on with cuda. */
RANKS_TEST(test_nvshmem_missing, 2)
{
    if (is_real())
        SKIP("the library is there");
    weft_group *world = join(30000);
    nvshmem_model.no_library = rank == 1;
    CHECK_STATUS(weft_symm_set_backend(GPU, "nvshmem"), WEFT_ERR_UNSUPPORTED);
    refused(rank ? "there is no libnvshmem_host.so.3" : "rank 1 cannot");
    nvshmem_model.no_library = 0;
    weft_i_nvshmem_unload();
    nvshmem_model.lacks = rank == 0 ? "nvshmemx_putmem_signal_on_stream" : NULL;
    CHECK_STATUS(weft_symm_set_backend(GPU, "nvshmem"), WEFT_ERR_UNSUPPORTED);
    refused(rank ? "rank 0 cannot" : "lacks nvshmemx_putmem_signal_on_stream");
    nvshmem_model.lacks = NULL;
    for (int major = 2; major <= 4; major += 2) { /* older and newer */
        weft_i_nvshmem_unload();
        nvshmem_model.major = major;
        CHECK_STATUS(weft_symm_set_backend(GPU, "nvshmem"), WEFT_ERR_UNSUPPORTED);
        refused(major == 2 ? "is NVSHMEM 2.8.0; weft knows the calls of version 3"
                           : "is NVSHMEM 4.8.0; weft knows the calls of version 3");
    }
    weft_i_nvshmem_unload();
    nvshmem_model.major = 0;
    CHECK_INT(nvshmem_calls("nvshmemx_hostlib_init_attr"), 0);
    CHECK_INT(strcmp(weft_symm_backend(GPU), "cuda"), 0);
    weft_symm *mem = make(world, 4);
    BARRIER(mem, 0);
    finish(world);
}

RANKS_TEST(test_nvshmem_versions_differ, 2)
{
    if (is_real())
        SKIP("one library");
    weft_group *world = join(30000);
    nvshmem_model.minor = 4 + rank;
    CHECK_STATUS(weft_symm_set_backend(GPU, "nvshmem"), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "rank 0 has version 3.4, rank 1 3.5");
    finish(world);
}

RANKS_TEST(test_nvshmem_start_fails, 2)
{
    if (is_real())
        SKIP("it starts");
    weft_group *world = join(30000);
    nvshmem_model.no_start = 7;
    CHECK_STATUS(weft_symm_set_backend(GPU, "nvshmem"), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "fails with 7");
    finish(world);
}

/* A peer that never comes, inside calls that wait for ever: both ranks are back in time. */
static void hang_in(const char *function, int rank)
{
    if (is_real())
        SKIP("the library waits for ever");
    weft_group *world = join(700);
    bool late = !strcmp(function, "nvshmem_malloc");
    nvshmem_model.hang = rank == 1 ? function : NULL;
    long long start = harness_now();
    weft_status status = weft_symm_set_backend(GPU, "nvshmem");
    CHECK_INT(status, late ? WEFT_OK : WEFT_ERR_TIMEOUT);
    if (late) {
        start = harness_now();
        CHECK(!weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(4)));
        CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
    }
    CHECK_CONTAINS(weft_last_error(), "one of them has not come");
    CHECK(harness_now() - start < 20 * 1000000000LL);
    CHECK(weft_symm_set_backend(GPU, "nvshmem") < 0 ||
          !weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(4)));
    CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT); /* the same from now on, at once */
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

RANKS_TEST(test_nvshmem_start_hangs, 2)
{
    hang_in("nvshmemx_hostlib_init_attr", rank);
}

RANKS_TEST(test_nvshmem_malloc_hangs, 2)
{
    hang_in("nvshmem_malloc", rank);
}

/* One that does not even call: the usual error, which names it. */
RANKS_TEST(test_nvshmem_absent, 2)
{
    weft_group *world = join(500);
    if (rank == 0) {
        CHECK_STATUS(weft_symm_set_backend(GPU, "nvshmem"), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 1");
        harness_mark();
    } else {
        CHECK(harness_await(0, 1));
    }
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

RANKS_TEST(test_nvshmem_states, 1)
{
    CHECK_STATUS(weft_symm_set_backend(GPU, "nvshmem"), WEFT_ERR_STATE); /* there is no world */
    CHECK_CONTAINS(weft_last_error(), "weft_init");
    weft_clear_error();
    weft_group *world = join(0);
    CHECK_STATUS(weft_symm_set_backend(GPU, "nvshmem"), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "2 ranks or more");
    setenv("WEFT_SYMM_BACKEND", "nvshmem", 1);
    CHECK(!weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(4)));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "weft_symm_set_backend");
    unsetenv("WEFT_SYMM_BACKEND");
    finish(world);
}

static int spawned(void *arg)
{
    (void)arg;
    weft_group *world = weft_init(NULL);
    int refusal = world && weft_symm_set_backend(GPU, "nvshmem") < 0 ? 0 : 1;
    weft_clear_error();
    weft_finish(world);
    return refusal;
}

TEST(test_nvshmem_threads)
{
    CHECK_INT(weft_spawn(2, spawned, NULL), 0); /* one rank in a process: refused */
    weft_clear_error();
}

static void check_variable(const char *name, const char *value)
{
    CHECK(getenv(name) && !strcmp(getenv(name), value));
}

TEST(test_nvshmem_variables)
{
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_IB_HCA", "mlx5_1", 1);
    setenv("NCCL_IB_GID_INDEX", "3", 1);
    setenv("NVSHMEM_IB_GID_INDEX", "5", 1); /* what is set stays */
    weft_i_nvshmem_map_variables();
    check_variable("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo");
    check_variable("NVSHMEM_HCA_LIST", "mlx5_1");
    check_variable("NVSHMEM_ENABLE_NIC_PE_MAPPING", "1");
    check_variable("NVSHMEM_IB_GID_INDEX", "5");
    unsetenv("NVSHMEM_ENABLE_NIC_PE_MAPPING");
    weft_i_nvshmem_map_variables(); /* a list that is set by itself asks for no mapping */
    CHECK(!getenv("NVSHMEM_ENABLE_NIC_PE_MAPPING"));
}

TEST(test_nvshmem_info)
{
    for (int i = 0; i < weft_backend_count(); i++) {
        weft_backend_info info;
        CHECK_OK(weft_backend_describe(i, &info));
        if (!strcmp(info.name, "nvshmem")) {
            CHECK(info.usable);
            CHECK_CONTAINS(info.reason, "NVSHMEM 3.");
            CHECK_CONTAINS(info.reason, "weft_symm_set_backend");
            return;
        }
    }
    FAIL("there is no backend nvshmem");
}

int main(int argc, char **argv)
{
    if (!is_real()) {
        model_install();
        nvshmem_install();
    }
    setenv("WEFT_TEST_BACKENDS", "shm", 1); /* one rank in a process */
    weft_symm_allow_overlap(true);
    return harness_main(argc, argv);
}

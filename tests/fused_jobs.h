/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AsyncTPTest of the reference, on the device that a program defines as FUSED_DEVICE: each fused
 * operation against the collective and the product one after the other, which are weft's own plain
 * operations and its fallback alike.  The program also says how many ranks a test has (FUSED_TEST)
 * and how large the large products are (FUSED_ROWS, FUSED_INNER), and checks that
 * nothing of the device is left when all is over (FUSED_LEFT).
 */
#ifndef WEFT_TESTS_FUSED_JOBS_H
#define WEFT_TESTS_FUSED_JOBS_H

#include "doom.h"
#include "functional_jobs.h"
#include "sanitized.h"
#include "way_of.h"

#include "fabric/group/group.h"

enum { FUSED_RIGHTS = 3 };

/* ---- what the tests share ---- */

static weft_tensor *here(weft_tensor *x)
{
    return x ? weft_to(x, weft_tensor_dtype(x), WEFT_CPU) : NULL;
}

static bool same_layout(weft_tensor *a, weft_tensor *b)
{
    bool same = a && b && a->ndim == b->ndim && a->dtype == b->dtype;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->dim[i] == b->dim[i] && (a->dim[i] < 2 || a->stride[i] == b->stride[i]);
    return same;
}

/* The reference's tolerances, by dtype. */
static bool is_close(weft_tensor *a, weft_tensor *b)
{
    if (!a || !b)
        return false;
    double relative = a->dtype == WEFT_BF16            ? 1.6e-2
                      : weft_dtype_size(a->dtype) == 1 ? 0.13
                                                       : 1.3e-6;
    weft_tensor *x = weft_to_dtype(here(a), WEFT_F32), *y = weft_to_dtype(here(b), WEFT_F32);
    return weft_allclose(x, y, relative, 1e-5, false);
}

static weft_tensor *uniform(weft_dtype dtype, weft_shape shape)
{
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, shape);
    return weft_to(weft_to_dtype(x, dtype), dtype, FUSED_DEVICE);
}

static weft_tensor *full_of(weft_shape shape, double value)
{
    return weft_full(WEFT_F32, FUSED_DEVICE, shape, value);
}

static weft_tensor *column_major(weft_tensor *x)
{
    return weft_transpose(weft_contiguous(weft_transpose(x, 0, 1)), 0, 1);
}

static weft_group *begin(int rank)
{
    weft_group *world = join(30000);
    weft_fused_use(WEFT_FUSED_PIPELINE); /* small operands too */
    weft_seed(42 + (uint64_t)rank);
    return world;
}

/* How many operations of that name the flight record still has. */
static int calls_of(weft_group *group, const char *name)
{
    weft_i_record_entry entries[256];
    size_t count = weft_i_record_newest(weft_i_group_record(group), entries, 256);
    int calls = 0;
    for (size_t i = 0; i < count; i++)
        calls += !strcmp(entries[i].name, name);
    return calls;
}

/* The ranks whose chunks were multiplied, the last `count` of them, oldest first.  A chunk may have
 * been multiplied in several pieces, one after the other. */
static void chunk_order(weft_group *group, int count, int *ranks)
{
    weft_i_record_entry entries[256];
    size_t n = weft_i_record_newest(weft_i_group_record(group), entries, 256);
    int newer = -1;
    for (size_t i = 0; i < n && count; i++)
        if (!strcmp(entries[i].name, "chunk") && entries[i].peer != newer)
            ranks[--count] = newer = entries[i].peer;
    CHECK_INT(count, 0);
}

/* ---- all_gather_matmul ---- */

/* In a lost group kernels give up at once, and copies that are enqueued behind them do not: what they
 * leave in its workspace counts for nothing, but ThreadSanitizer cannot know.  It also takes long for
 * each element, and sees no more in many of them. */
#if SANITIZED_THREAD
enum { FUSED_STRICT = 1, FUSED_MIDDLE = 16 };
#else
enum { FUSED_STRICT = 0, FUSED_MIDDLE = 64 };
#endif

static weft_shape shard_of(weft_shape whole, int dim, int size)
{
    whole.dim[dim] /= size;
    return whole;
}

static void check_gather(weft_group *world, int dim)
{
    int size = weft_size(world);
    weft_tensor *shard = uniform(WEFT_F32, shard_of(WEFT_SHAPE(8, FUSED_MIDDLE, 32), dim, size));
    weft_tensor *b[FUSED_RIGHTS], *a[2] = {NULL}, *out[2][FUSED_RIGHTS] = {{NULL}};
    for (int i = 0; i < FUSED_RIGHTS; i++)
        b[i] = uniform(WEFT_F32, WEFT_SHAPE(32, 16));
    for (int i = 0; i < 2; i++) {
        weft_fused_use(i ? WEFT_FUSED_PAIR : WEFT_FUSED_PIPELINE);
        CHECK_OK(weft_all_gather_matmul(&a[i], out[i], shard, b, FUSED_RIGHTS, dim, world));
        CHECK_INT(way_of(world, "ag_matmul"), i ? WEFT_I_WAY_PAIR : WEFT_I_WAY_PIPELINED);
    }
    weft_fused_use(WEFT_FUSED_PIPELINE);
    weft_tensor *plain = weft_all_gather_tensor(shard, dim, world);
    CHECK(weft_equal(here(a[0]), here(plain)) && weft_equal(here(a[1]), here(plain)));
    CHECK(same_layout(a[0], a[1]));
    CHECK(weft_tensor_is_contiguous(dim == 2 ? a[0] : weft_movedim(a[0], dim, 0)));
    for (int i = 0; i < FUSED_RIGHTS; i++) {
        CHECK(is_close(out[0][i], weft_matmul(plain, b[i])) && is_close(out[1][i], out[0][i]));
        CHECK(same_layout(out[0][i], out[1][i]));
        CHECK(weft_tensor_is_contiguous(dim == 2 ? out[0][i] : weft_movedim(out[0][i], dim, 0)));
    }
}

FUSED_TEST(test_fused_all_gather_matmul)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 3; dim++)
        check_gather(world, dim);
    leave(world);
}

/* Symmetric input is used in place; chunks are taken from the own one on, in cyclic order. */
static void check_native(weft_group *world, bool symmetric, bool rows)
{
    const int64_t m = FUSED_ROWS, k = FUSED_ROWS / 4;
    int size = weft_size(world), me = weft_rank(world), order[8] = {0};
    weft_shape shape = WEFT_SHAPE(m / size, k);
    weft_tensor *shard = symmetric ? weft_symm_empty(WEFT_BF16, FUSED_DEVICE, shape)
                                   : weft_empty(WEFT_BF16, FUSED_DEVICE, shape);
    if (symmetric)
        CHECK(weft_symm_rendezvous(shard, world));
    CHECK_OK(weft_copy(shard, uniform(WEFT_BF16, shape)));
    weft_tensor *b = uniform(WEFT_BF16, WEFT_SHAPE(k, k)), *a = NULL, *out = NULL;
    b = rows ? b : column_major(b);
    CHECK_OK(weft_all_gather_matmul(&a, &out, shard, &b, 1, 0, world));
    CHECK_INT(way_of(world, "ag_matmul"), symmetric ? WEFT_I_WAY_ZERO_COPY : WEFT_I_WAY_PIPELINED);
    chunk_order(world, size, order);
    for (int i = 0; i < size; i++)
        CHECK_INT(order[i], (me + i) % size);
    weft_tensor *plain = weft_all_gather_tensor(shard, 0, world);
    CHECK(weft_equal(here(a), here(plain)));
    CHECK(is_close(out, weft_mm(plain, b)));
}

FUSED_TEST(test_fused_all_gather_matmul_native)
{
    weft_group *world = begin(rank);
    for (int i = 0; i < 4; i++)
        check_native(world, i & 1, i & 2);
    leave(world);
}

/* ---- scaled ---- */

typedef enum scale_mode { TENSOR_WISE, ROWS_REPLICATED, ROWS_SHARDED, SCALE_MODES } scale_mode;

static weft_tensor *scale_for(weft_shape shape, int dim, int size, scale_mode mode)
{
    shape.dim[shape.ndim - 1] = 1;
    if (mode == TENSOR_WISE)
        return full_of(WEFT_SCALAR, 0.1);
    return full_of(mode == ROWS_SHARDED ? shard_of(shape, dim, size) : shape, 0.1);
}

static void check_scaled_gather(weft_group *world, int dim, scale_mode mode)
{
    const int dtypes[] = {-1, WEFT_BF16, WEFT_F32};
    int size = weft_size(world);
    weft_shape whole = WEFT_SHAPE(8, FUSED_MIDDLE, 32);
    weft_tensor *shard = uniform(WEFT_F8E4M3, shard_of(whole, dim, size));
    weft_tensor *scale = scale_for(whole, dim, size, mode);
    weft_scaled right[FUSED_RIGHTS];
    weft_tensor *a[2] = {NULL}, *out[2][FUSED_RIGHTS] = {{NULL}};
    for (int i = 0; i < FUSED_RIGHTS; i++)
        right[i] = (weft_scaled){
            .b = column_major(uniform(WEFT_F8E4M3, WEFT_SHAPE(32, 16))),
            .scale = full_of(mode == TENSOR_WISE ? WEFT_SCALAR : WEFT_SHAPE(1, 16), 0.1),
            .dtype = mode == TENSOR_WISE ? dtypes[i] : (int)WEFT_BF16};
    for (int i = 0; i < 2; i++) {
        weft_fused_use(i ? WEFT_FUSED_PAIR : WEFT_FUSED_PIPELINE);
        CHECK_OK(weft_all_gather_scaled_matmul(&a[i], out[i], shard, scale, right, FUSED_RIGHTS,
                                               dim, world));
        CHECK_INT(way_of(world, "ag_scaled_mm"), i ? WEFT_I_WAY_PAIR : WEFT_I_WAY_PIPELINED);
    }
    weft_fused_use(WEFT_FUSED_PIPELINE);
    CHECK(same_layout(a[0], a[1]) && is_close(a[0], a[1]));
    weft_tensor *plain = weft_to_dtype(here(weft_all_gather_tensor(shard, dim, world)), WEFT_F32);
    for (int i = 0; i < FUSED_RIGHTS; i++) {
        CHECK(same_layout(out[0][i], out[1][i]) && is_close(out[0][i], out[1][i]));
        weft_tensor *b = weft_to_dtype(here(right[i].b), WEFT_F32);
        weft_tensor *exact = weft_mul_scalar(weft_matmul(plain, b), 0.1 * 0.1);
        CHECK(is_close(out[0][i], weft_to_dtype(exact, out[0][i]->dtype)));
    }
}

FUSED_TEST(test_fused_all_gather_scaled_matmul)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 2; dim++)
        for (int mode = 0; mode < SCALE_MODES; mode++)
            check_scaled_gather(world, dim, (scale_mode)mode);
    leave(world);
}

static void check_scaled_scatter(weft_group *world, int dim, bool rows)
{
    weft_tensor *a = uniform(WEFT_F8E4M3, WEFT_SHAPE(8, FUSED_MIDDLE, 32)), *out[2];
    weft_scaled right = {.b = column_major(uniform(WEFT_F8E4M3, WEFT_SHAPE(32, 16))),
                         .scale = full_of(rows ? WEFT_SHAPE(1, 16) : WEFT_SCALAR, 0.1),
                         .dtype = WEFT_BF16};
    weft_tensor *scale = full_of(rows ? WEFT_SHAPE(8, FUSED_MIDDLE, 1) : WEFT_SCALAR, 0.1);
    for (int i = 0; i < 2; i++) {
        weft_fused_use(i ? WEFT_FUSED_PAIR : WEFT_FUSED_PIPELINE);
        out[i] = weft_scaled_matmul_reduce_scatter(a, scale, &right, WEFT_AVG, dim, world);
        CHECK_INT(way_of(world, "scaled_mm_rs"), i ? WEFT_I_WAY_PAIR : WEFT_I_WAY_PIPELINED);
    }
    weft_fused_use(WEFT_FUSED_PIPELINE);
    weft_shape shape = shard_of(WEFT_SHAPE(8, FUSED_MIDDLE, 16), dim, weft_size(world));
    CHECK(out[0] && weft_i_shape_equal(weft_i_tensor_shape(out[0]), shape));
    CHECK(same_layout(out[0], out[1]) && is_close(out[0], out[1]));
    CHECK_INT(out[0]->dtype, WEFT_BF16);
}

FUSED_TEST(test_fused_scaled_matmul_reduce_scatter)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 3; dim++)
        for (int rows = 0; rows < 2; rows++)
            check_scaled_scatter(world, dim, rows);
    leave(world);
}

/* ---- matmul_reduce_scatter ---- */

static void check_scatter(weft_group *world, int dim)
{
    weft_tensor *a = uniform(WEFT_F32, WEFT_SHAPE(8, FUSED_MIDDLE, FUSED_INNER)), *out[2];
    weft_tensor *b = uniform(WEFT_F32, WEFT_SHAPE(FUSED_INNER, 16));
    for (int i = 0; i < 2; i++) {
        weft_fused_use(i ? WEFT_FUSED_PAIR : WEFT_FUSED_PIPELINE);
        out[i] = weft_matmul_reduce_scatter(a, b, WEFT_AVG, dim, world);
        CHECK_INT(way_of(world, "matmul_rs"), i ? WEFT_I_WAY_PAIR : WEFT_I_WAY_PIPELINED);
    }
    weft_fused_use(WEFT_FUSED_PIPELINE);
    weft_tensor *plain = weft_reduce_scatter_tensor(weft_matmul(a, b), WEFT_AVG, dim, world);
    CHECK(is_close(out[0], plain) && is_close(out[1], plain));
    CHECK(same_layout(out[0], plain) && same_layout(out[1], plain));
}

FUSED_TEST(test_fused_matmul_reduce_scatter)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 3; dim++)
        check_scatter(world, dim);
    leave(world);
}

/* in: a and b.  What the next test runs as it is, and captured. */
static weft_status average_rows(weft_tensor *const *in, __attribute__((unused)) int ins,
                                weft_tensor **out, __attribute__((unused)) int outs, void *user)
{
    out[0] = weft_matmul_reduce_scatter(in[0], in[1], WEFT_AVG, 0, user);
    return out[0] ? WEFT_OK : weft_last_status();
}

/* The same captured and run again and again, as the program's device does it: three times what the
 * plain operations give, with their layout, into results that were zeroed before. */
static void check_reduce_captured(weft_group *world, weft_tensor *a, weft_tensor *b,
                                  weft_tensor *plain);

/* Sums of small floats are taken in f32 and rounded once. */
FUSED_TEST(test_fused_matmul_reduce_scatter_bfloat16_custom_reduce)
{
    weft_group *world = begin(rank);
    weft_tensor *a = uniform(WEFT_BF16, WEFT_SHAPE(64, FUSED_INNER));
    weft_tensor *b = uniform(WEFT_BF16, WEFT_SHAPE(FUSED_INNER, 32));
    weft_tensor *out = NULL, *in[] = {a, b};
    CHECK_OK(average_rows(in, 2, &out, 1, world));
    weft_tensor *plain = weft_reduce_scatter_tensor(weft_mm(a, b), WEFT_AVG, 0, world);
    CHECK(same_layout(out, plain));
    CHECK(weft_allclose(here(out), here(plain), 1e-2, 1e-2, false));
    check_reduce_captured(world, a, b, plain);
    leave(world);
}

/* ---- the choice ---- */

/* Small operands go as a pair, large ones in chunks, but for products in front of a scatter on the
 * CPU; who wishes for a way gets it. */
FUSED_TEST(test_fused_choice)
{
    weft_group *world = begin(rank);
    for (int large = 0; large < 2; large++)
        for (int wish = WEFT_FUSED_CHOOSE;
             wish <= (large ? WEFT_FUSED_CHOOSE : WEFT_FUSED_PIPELINE); wish++) {
            bool pair = wish == WEFT_FUSED_PAIR || (wish == WEFT_FUSED_CHOOSE && !large);
            int way = pair ? WEFT_I_WAY_PAIR : WEFT_I_WAY_PIPELINED;
            int64_t rows = large ? 8192 : 64, inner = large ? 256 : 8; /* 8 MiB, and 2 KiB */
            weft_tensor *shard = uniform(WEFT_F32, WEFT_SHAPE(rows / size, inner)), *out = NULL;
            weft_tensor *b = uniform(WEFT_F32, WEFT_SHAPE(inner, 1)), *wide;
            CHECK_OK(weft_scope_open());
            weft_fused_use((weft_fused_way)wish);
            CHECK_OK(weft_all_gather_matmul(NULL, &out, shard, &b, 1, 0, world));
            CHECK_INT(way_of(world, "ag_matmul"), way);
            CHECK(is_close(out, weft_mm(weft_all_gather_tensor(shard, 0, world), b)));
            wide = uniform(WEFT_F32, WEFT_SHAPE(1, inner));
            weft_tensor *plain = weft_reduce_scatter_tensor(weft_mm(out, wide), WEFT_SUM, 0, world);
            out = weft_matmul_reduce_scatter(out, wide, WEFT_SUM, 0, world);
            /* Whatever the way, it ends with the call.  Relaxed: this thread's own claims. */
            CHECK(out && !atomic_load_explicit(&out->storage->claims, memory_order_relaxed));
            CHECK(is_close(out, plain));
            bool here = FUSED_DEVICE == WEFT_CPU && wish == WEFT_FUSED_CHOOSE;
            CHECK_INT(way_of(world, "matmul_rs"), here ? WEFT_I_WAY_PAIR : way);
            CHECK_OK(weft_scope_close());
        }
    leave(world);
}

/* ---- ranks that disagree ---- */

typedef enum disagreement {
    OTHER_ROWS,
    OTHER_OPERATION,
    OTHER_REDUCTION,
    OTHER_WAY,
    OTHER_WIDTH,
    OTHER_DTYPE,
    OTHER_DIM,          /* of the same shape */
    OTHER_PLACE,        /* in symmetric memory that the others could read, and not */
    OTHER_SCALES,       /* one for all, and one for each row that the ranks have already */
    OTHER_SCALE_SHARDS, /* one for all, and one for each row of the shard */
    OTHER_SCATTER_SCALES,
    DISAGREEMENTS
} disagreement;

static weft_status part_of(weft_tensor *part)
{
    return part ? WEFT_OK : weft_last_status();
}

static weft_status disagree_scaled(weft_group *group, disagreement how, bool odd)
{
    int64_t size = weft_size(group), rows = how == OTHER_SCALE_SHARDS ? 4 : 4 * size;
    bool scatters = how == OTHER_SCATTER_SCALES;
    weft_tensor *a = uniform(WEFT_F8E4M3, WEFT_SHAPE(scatters ? 4 * size : 4, 16)), *out;
    weft_tensor *scale = full_of(odd ? WEFT_SHAPE(rows, 1) : WEFT_SCALAR, 0.1);
    weft_scaled b = {.b = column_major(uniform(WEFT_F8E4M3, WEFT_SHAPE(16, 16))),
                     .scale = full_of(odd ? WEFT_SHAPE(1, 16) : WEFT_SCALAR, 0.1),
                     .dtype = WEFT_BF16};
    if (scatters)
        return part_of(weft_scaled_matmul_reduce_scatter(a, scale, &b, WEFT_SUM, 0, group));
    return weft_all_gather_scaled_matmul(NULL, &out, a, scale, &b, 1, 0, group);
}

/* Operands whose elements are as many, and lie elsewhere or in another order. */
static weft_status disagree_placed(weft_group *group, disagreement how, bool odd)
{
    weft_tensor *a = uniform(WEFT_F32, WEFT_SHAPE(4, 4, 8)), *out = NULL;
    weft_tensor *b = uniform(WEFT_F32, WEFT_SHAPE(8, 4));
    weft_tensor *shared = weft_symm_empty(WEFT_F32, FUSED_DEVICE, WEFT_SHAPE(4, 4, 8));
    if (!weft_symm_rendezvous(shared, group))
        return weft_last_status();
    if (how == OTHER_PLACE && !odd)
        a = shared;
    return weft_all_gather_matmul(NULL, &out, a, &b, 1, how == OTHER_DIM && odd, group);
}

static weft_status disagree(weft_group *group, disagreement how, bool odd)
{
    if (how >= OTHER_SCALES)
        return disagree_scaled(group, how, odd);
    if (how >= OTHER_DIM)
        return disagree_placed(group, how, odd);
    weft_dtype dtype = how == OTHER_DTYPE && odd ? WEFT_F64 : WEFT_F32;
    int64_t rows = 4 * weft_size(group) / (how == OTHER_ROWS && odd ? 2 : 1);
    weft_tensor *a = uniform(dtype, WEFT_SHAPE(rows, 8)), *out = NULL;
    weft_tensor *b = uniform(dtype, WEFT_SHAPE(8, how == OTHER_WIDTH && odd ? 12 : 4));
    if (how == OTHER_WAY && odd)
        weft_fused_use(WEFT_FUSED_PAIR);
    bool scatters = how == OTHER_REDUCTION || how == OTHER_WIDTH || (how == OTHER_OPERATION && odd);
    weft_reduction op = how == OTHER_REDUCTION && odd ? WEFT_AVG : WEFT_SUM;
    weft_status status = scatters ? part_of(weft_matmul_reduce_scatter(a, b, op, 0, group))
                                  : weft_all_gather_matmul(NULL, &out, a, &b, 1, 0, group);
    weft_fused_use(WEFT_FUSED_PIPELINE);
    return status;
}

/* An error on all ranks, before anything moves; the group is lost, and the next one works. */
RANKS_TEST(test_fused_mismatch, 4)
{
    weft_group *world = begin(rank);
    for (int how = 0; how < DISAGREEMENTS; how++) {
        weft_group *group = weft_group_new(world, (int[]){0, 1, 2, 3}, size, NULL);
        CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
        weft_status status = disagree(group, (disagreement)how, rank == 1);
        if (status != WEFT_ERR_MISMATCH)
            FAIL("disagreement %d: %d, %s", how, status, weft_last_error());
        CHECK_CONTAINS(weft_last_error(), how == OTHER_WAY && rank == 1 ? "all_gather" : "matmul");
        weft_clear_error();
    }
    check_gather(world, 0);
    leave(world);
}

/* Two groups of the same ranks, and not all mean the same: there is nobody to compare with, so the
 * limit ends it, with the name of one who did not come. */
RANKS_TEST(test_fused_other_group, 2)
{
    weft_group *world = join(1000);
    weft_fused_use(WEFT_FUSED_PIPELINE);
    weft_group *groups[2];
    for (int i = 0; i < 2; i++)
        groups[i] = weft_group_new(world, (int[]){0, 1}, 2, NULL);
    weft_tensor *a = uniform(WEFT_F32, WEFT_SHAPE(4, 8)), *b = uniform(WEFT_F32, WEFT_SHAPE(8, 4));
    weft_tensor *out = NULL;
    CHECK_OK(weft_group_barrier(world, 30000));
    CHECK_STATUS(weft_all_gather_matmul(NULL, &out, a, &b, 1, 0, groups[rank]), WEFT_ERR_TIMEOUT);
    CHECK(!out);
    CHECK_CONTAINS(weft_last_error(), rank ? "rank 0" : "rank 1");
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, 30000));
    finish(world);
}

/* ---- ranks that die ---- */

static weft_status both(weft_group *group, weft_tensor *a, weft_tensor *b)
{
    weft_tensor *out = NULL;
    WEFT_TRY(weft_all_gather_matmul(NULL, &out, a, &b, 1, 0, group));
    return weft_matmul_reduce_scatter(out, b, WEFT_SUM, 0, group) ? WEFT_OK : weft_last_status();
}

/* The same, and what was only enqueued has ended. */
static weft_status both_done(weft_group *group, weft_tensor *a, weft_tensor *b)
{
    weft_status status = weft_scope_open();
    if (status >= 0)
        status = both(group, a, b);
    weft_status ended = weft_stream_sync(weft_stream_current(FUSED_DEVICE), 30000);
    weft_scope_close();
    return status < 0 ? status : ended;
}

/* Rank 1 dies `quarter` quarters into its steps; as a thread it leaves instead. */
static void be_lost(weft_group *world, weft_tensor *a, weft_tensor *b, int steps, int quarter)
{
    if (harness_in_threads) {
        weft_clear_error();
        CHECK(!weft_finish(world));
        return;
    }
    harness_rank_dies();
    doom_arm(1 + steps * quarter / 4);
    both_done(world, a, b);
    FAIL("rank 1 was to die within %d steps", 1 + steps * quarter / 4);
}

/* The steps of this process in one run of both operations. */
static int steps_of(weft_group *world, weft_tensor *a, weft_tensor *b)
{
    const weft_i_os *before = weft_i_os_now;
    if (!harness_in_threads)
        doom_arm(1 << 30);
    int begun = atomic_load_explicit(&doom_steps, memory_order_relaxed);
    CHECK_OK(both_done(world, a, b));
    weft_i_os_now = before;
    return atomic_load_explicit(&doom_steps, memory_order_relaxed) - begun;
}

/* The others are told, at once and by name; and go on without it, with a group of their own whose
 * results are right. */
static void go_on(weft_group *world, weft_tensor *a, weft_tensor *b)
{
    weft_status lost = harness_in_threads ? WEFT_ERR_PEER_LEFT : WEFT_ERR_PEER_DEAD;
    long long began = harness_now();
    weft_status status = WEFT_OK;
    for (int i = 0; i < 100 && status >= 0; i++)
        status = both_done(world, a, b);
    CHECK(status == lost || status == WEFT_ERR_REVOKED);
    CHECK_CONTAINS(weft_last_error(), "rank 1");
    CHECK(harness_now() - began < 15 * 1000000000LL); /* not the limit's 30 s */
    weft_clear_error();
    weft_group *rest = weft_group_shrink(world);
    CHECK(rest && weft_size(rest) == weft_size(world) - 1);
    for (int i = 0; i < 3; i++) {
        weft_tensor *out = NULL;
        CHECK_OK(weft_all_gather_matmul(NULL, &out, a, &b, 1, 0, rest));
        CHECK_INT(way_of(rest, "ag_matmul"), WEFT_I_WAY_PIPELINED);
        weft_tensor *all = weft_all_gather_tensor(a, 0, rest);
        CHECK(is_close(out, weft_mm(all, b)));
        out = weft_matmul_reduce_scatter(all, b, WEFT_SUM, 0, rest);
        CHECK(is_close(out, weft_reduce_scatter_tensor(weft_mm(all, b), WEFT_SUM, 0, rest)));
    }
    CHECK_OK(weft_group_barrier(rest, WEFT_DEFAULT));
}

static void check_death(int rank, int quarter)
{
    if (FUSED_STRICT && harness_in_threads && FUSED_DEVICE != WEFT_CPU)
        SKIP("copies of a lost group go on beside each other");
    CHECK_OK(weft_scope_open());
    weft_group *world = begin(rank);
    weft_tensor *a = uniform(WEFT_F32, WEFT_SHAPE(4, 12)),
                *b = uniform(WEFT_F32, WEFT_SHAPE(12, 12));
    CHECK_OK(both_done(world, a, b));
    int steps = steps_of(world, a, b);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 1) {
        be_lost(world, a, b, steps, quarter);
        return;
    }
    go_on(world, a, b);
    finish(world);
    CHECK_OK(weft_scope_close());
    FUSED_LEFT();
}

RANKS_TEST(test_fused_death_early, 3)
{
    check_death(rank, 0);
}

RANKS_TEST(test_fused_death_in_the_middle, 4)
{
    check_death(rank, 2);
}

RANKS_TEST(test_fused_death_late, 3)
{
    check_death(rank, 3);
}

#endif

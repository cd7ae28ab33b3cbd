/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/ranks/collective.c, backends/cuda/ranks/direct.c,
 * backends/cuda/ranks/symmetric.c, backends/cuda/ranks/team.c, backends/cuda/kernels/reduce.h,
 * backends/cuda/kernels/order.h */
/*
 * Collectives of CUDA teams: kernels that ranks on threads run on one device, beside the fold by
 * definition, bit by bit.  On the software driver, or on a GPU with WEFT_TEST_CUDA=real.
 */
#include "cuda/team_scene.h"
#include "fold_reference.h"

#include "base/share/dtype.h"
#include "kernels/fold/fold.h"

enum { BYTES = 1 << 20 };

/* The values of a rank: all bit patterns of a dtype come up, NaN and infinities too. */
static uint64_t noise(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

static void fill(weft_dtype dtype, int rank, uint64_t seed, size_t count, char *out)
{
    size_t size = weft_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = noise(seed * 1000003 + (uint64_t)rank * 7919 + i);
        if (dtype == WEFT_F32 && i % 5 != 0) /* near each other, so that sums are no plain copies */
            bits = (bits & 0x807fffff) | 0x3f800000;
        if (dtype == WEFT_BF16 && i % 5 != 0)
            bits = (bits & 0x807f) | 0x3f80;
        if (dtype == WEFT_F16 && i % 5 != 0)
            bits = (bits & 0x83ff) | 0x3c00;
        if (dtype == WEFT_BOOL)
            bits &= 1;
        memcpy(out + i * size, &bits, size);
    }
}

typedef struct scene_sum {
    weft_i_cuda_way way;
    weft_dtype dtype;
    weft_i_fold_op op;
    size_t count, offset; /* offset: of the operands, in bytes */
    bool staged, in_place, scatter;
    size_t rows;
    uint64_t seed;
} scene_sum;

static const char *way_name(const scene_sum *s)
{
    static const char *const names[] = {"auto", "packets", "one-shot", "two-shot"};
    return s->scatter ? "reduce_scatter" : s->staged ? "staged" : names[s->way];
}

static double factor_of(int rank)
{
    return 0.5 + 0.25 * rank;
}

/* What rank `of` should have: the whole, or its part by rows. */
static void expect(const scene_sum *s, int of, char *out)
{
    int ranks = scene.ranks;
    size_t size = weft_dtype_size(s->dtype), whole = s->count * (s->scatter ? (size_t)ranks : 1);
    char *in[SCENE_MOST], *all = malloc(whole * size + 1);
    double factors[SCENE_MOST];
    for (int r = 0; r < ranks; r++) {
        in[r] = malloc(whole * size + 1);
        fill(s->dtype, r, s->seed, whole, in[r]);
        factors[r] = factor_of(r);
    }
    void *outs[] = {all};
    fold_reference(s->dtype, s->op, outs, 1, (const void *const *)in, ranks, whole, factors);
    size_t rows = s->rows ? s->rows : 1, row = s->count / rows * size;
    for (size_t k = 0; k < rows && s->count; k++)
        memcpy(out + k * row,
               s->scatter ? all + k * row * (size_t)ranks + (size_t)of * row : all + k * row, row);
    for (int r = 0; r < ranks; r++)
        free(in[r]);
    free(all);
}

static weft_status post(int rank, const scene_sum *s, char *out, weft_i_cu_ptr plain)
{
    scene_rank *me = &scene.rank[rank];
    size_t size = weft_dtype_size(s->dtype);
    weft_i_cuda_sum sum = {
        .dtype = s->dtype,
        .op = s->op,
        .factor = factor_of(rank),
        .count = s->count,
        .way = s->way,
        .limit_ms = 20000,
    };
    if (s->staged || s->way == WEFT_I_CUDA_PACKETS)
        sum.in = (const char *)(uintptr_t)plain + s->offset;
    else
        sum.from = scene_reach(s->offset);
    sum.out = out;
    if (s->way == WEFT_I_CUDA_TWO_SHOT)
        sum.to = scene_reach(s->in_place ? s->offset : BYTES / 2 + s->offset);
    if (!s->scatter)
        return weft_i_cuda_all_reduce(&me->team, me->stream, &sum);
    sum.rows = s->rows;
    sum.pitch = s->rows ? s->count / s->rows * size * (size_t)scene.ranks : 0;
    return weft_i_cuda_reduce_scatter(&me->team, me->stream, &sum);
}

/* One collective: operands up, kernel, result down, compare.  Poisons the result first. */
static void sum_body(int rank, void *arg)
{
    const scene_sum *s = arg;
    scene_rank *me = &scene.rank[rank];
    size_t size = weft_dtype_size(s->dtype), bytes = s->count * size;
    size_t whole = bytes * (s->scatter ? (size_t)scene.ranks : 1);
    char *host = malloc(whole + 1), *got = malloc(bytes + 17), *want = malloc(bytes + 1);
    weft_i_cu_ptr plain = 0;
    RANK_OK(weft_i_cuda_alloc(me->stream, whole + s->offset + 16, &plain));
    fill(s->dtype, rank, s->seed, s->scatter ? s->count * (size_t)scene.ranks : s->count, host);
    bool local = s->staged || s->way == WEFT_I_CUDA_PACKETS;
    char *operand = local ? (char *)(uintptr_t)plain + s->offset : me->data + s->offset;
    RANK_OK(weft_i_cuda_copy(me->stream, operand, host, whole));
    char *out = s->in_place ? operand : me->data + BYTES / 2 + s->offset;
    memset(got, 0x77, bytes + 17);
    if (!s->in_place)
        RANK_OK(weft_i_cuda_copy(me->stream, out, got, bytes + 16));
    scene_meet();
    RANK_OK(post(rank, s, out, plain));
    RANK_OK(weft_i_cuda_read(me->stream, got, out, bytes + (s->in_place ? 0 : 16)));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    expect(s, rank, want);
    for (size_t i = 0; i < bytes; i++)
        RANK(got[i] == want[i],
             "%s of %zu %s, op %d, offset %zu, rows %zu: byte %zu is %02x, not %02x", way_name(s),
             s->count, weft_dtype_name(s->dtype), s->op, s->offset, s->rows, i,
             (unsigned char)got[i], (unsigned char)want[i]);
    for (size_t i = bytes; !s->in_place && i < bytes + 16; i++)
        RANK(got[i] == 0x77, "%s of %zu %s wrote beyond its end", way_name(s), s->count,
             weft_dtype_name(s->dtype));
    RANK_OK(weft_i_cuda_free(me->stream, plain, whole + s->offset + 16, NULL));
    free(host);
    free(got);
    free(want);
}

static uint64_t seeds;

static void run_sum(scene_sum s)
{
    s.seed = ++seeds;
    scene_run(sum_body, &s);
}

static const weft_i_cuda_sizes small_sizes = {8, 4, 512, 4096, 0, false};

static void by_packets(weft_dtype dtype, weft_i_fold_op op, size_t count, size_t offset)
{
    if (op != WEFT_I_FOLD_PREMUL_SUM)
        run_sum((scene_sum){.way = WEFT_I_CUDA_PACKETS,
                            .dtype = dtype,
                            .op = op,
                            .count = count < 300 ? count : 300,
                            .offset = offset});
}

enum { WAYS = 4 };

/* Way 0 to WAYS - 1: those that fold in the peers' memory. */
static void by_way(int way, weft_dtype dtype, weft_i_fold_op op, size_t count, size_t offset)
{
    scene_sum sum = {.way = way == 2 ? WEFT_I_CUDA_TWO_SHOT : WEFT_I_CUDA_ONE_SHOT,
                     .dtype = dtype,
                     .op = op,
                     .count = way == 3 ? count / 8 : count,
                     .offset = offset,
                     .staged = way == 1,
                     .scatter = way == 3};
    run_sum(sum);
}

static void each_way(weft_dtype dtype, weft_i_fold_op op, size_t count, size_t offset)
{
    by_packets(dtype, op, count, offset);
    for (int way = 0; way < WAYS; way++)
        by_way(way, dtype, op, count, offset);
}

/* The compiled sums, for the numbers of ranks that have their own and for others. */
static void compiled_sums(int ranks)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    scene_open(ranks, BYTES, &small_sizes);
    for (int d = 0; d < 3; d++) {
        each_way(dtypes[d], WEFT_I_FOLD_SUM, 5003, 0);
        each_way(dtypes[d], WEFT_I_FOLD_AVG, 64, 0);
        each_way(dtypes[d], WEFT_I_FOLD_SUM, 1000, weft_dtype_size(dtypes[d])); /* not aligned */
    }
    scene_close();
}

TEST(test_cuda_sums_2)
{
    compiled_sums(2);
}

TEST(test_cuda_sums_3)
{
    compiled_sums(3);
}

TEST(test_cuda_sums_4)
{
    compiled_sums(4);
}

TEST(test_cuda_sums_8)
{
    compiled_sums(8);
}

/* Packets in blocks of one warp: all ranks, or some of them beside wide ones; also operands that are
 * cut or not aligned, and an average, which goes in wide blocks. */
static void narrow(int threads, const size_t *counts, int sizes)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    static const unsigned masks[] = {0xff, 1, 2};
    scene.threads = threads;
    for (int i = 0; i < 9; i++) {
        scene_open(2 + i % 3, BYTES, &small_sizes);
        CHECK(scene.rank[0].team.narrow); /* unless WEFT_CUDA_NARROW says otherwise */
        scene_hurry(masks[i / 3]);
        for (int k = 0; k < 3 * sizes; k++) {
            weft_dtype dtype = dtypes[k % 3];
            by_packets(dtype, WEFT_I_FOLD_SUM, counts[k / 3], 0);
            by_packets(dtype, WEFT_I_FOLD_SUM, counts[k / 3], weft_dtype_size(dtype));
        }
        by_packets(WEFT_F32, WEFT_I_FOLD_AVG, 300, 0);
        scene_close();
    }
    scene.threads = 0;
}

TEST(test_cuda_narrow)
{
    narrow(4, (size_t[]){1, 2, 3, 8, 33, 296, 300}, 7);
}

/* As wide as on a device: a warp goes through the work of 256 threads, by lots, which are whole in
 * the second part.  Two sizes: the model makes a thread of each that a wide rank has. */
TEST(test_cuda_narrow_lots)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    narrow(256, (size_t[]){33, 300}, 2);
    scene.threads = 256;
    for (unsigned ranks = 1; ranks < 4; ranks++) {
        scene_open(2, BYTES, &small_sizes);
        scene_hurry(ranks);
        for (int k = 0; k < 6; k++)
            run_sum((scene_sum){.way = WEFT_I_CUDA_PACKETS,
                                .dtype = dtypes[k % 3],
                                .count = (k < 3 ? 1024 : 3072) / weft_dtype_size(dtypes[k % 3]),
                                .in_place = k % 2 == 0});
        scene_close();
    }
    scene.threads = 0;
}

/* Every pair of dtype and operation, by the general kernels: as packets, and in one of the ways that
 * share another fold, by turns. */
TEST(test_cuda_every_fold)
{
    int turn = 0;
    scene_open(3, BYTES, &small_sizes);
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (int op = 0; op < WEFT_I_FOLD_OPS; op++)
            if (weft_i_fold_find((weft_dtype)dtype, (weft_i_fold_op)op)) {
                by_packets((weft_dtype)dtype, (weft_i_fold_op)op, 41, 8);
                by_way(turn++ % WAYS, (weft_dtype)dtype, (weft_i_fold_op)op, 152, 8);
            }
    scene_close();
}

TEST(test_cuda_counts)
{
    static const size_t counts[] = {0, 1, 3, 8, 17, 33, 128, 1023};
    scene_open(2, BYTES, &small_sizes);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        each_way(WEFT_BF16, WEFT_I_FOLD_SUM, counts[i], 0);
        each_way(WEFT_U8, WEFT_I_FOLD_MAX, counts[i], 1);
    }
    scene_close();
}

TEST(test_cuda_in_place)
{
    scene_open(2, BYTES, &small_sizes);
    run_sum(
        (scene_sum){.way = WEFT_I_CUDA_PACKETS, .dtype = WEFT_F32, .count = 500, .in_place = true});
    run_sum((scene_sum){
        .way = WEFT_I_CUDA_TWO_SHOT, .dtype = WEFT_F32, .count = 5000, .in_place = true});
    run_sum((scene_sum){.way = WEFT_I_CUDA_TWO_SHOT,
                        .dtype = WEFT_I16,
                        .op = WEFT_I_FOLD_PRODUCT,
                        .count = 777,
                        .in_place = true});
    run_sum((scene_sum){.way = WEFT_I_CUDA_ONE_SHOT,
                        .staged = true,
                        .dtype = WEFT_BF16,
                        .count = 9000,
                        .in_place = true});
    scene_close();
}

TEST(test_cuda_one_rank)
{
    scene_open(1, BYTES, &small_sizes);
    each_way(WEFT_F32, WEFT_I_FOLD_SUM, 500, 0);
    each_way(WEFT_BF16, WEFT_I_FOLD_PREMUL_SUM, 500, 0);
    for (int i = 0; i < 10; i++) { /* random bits: some are NaN, which nothing may change */
        by_packets(WEFT_F32, WEFT_I_FOLD_SUM, 300, 0);
        by_packets(WEFT_F16, WEFT_I_FOLD_AVG, 300, 0);
    }
    scene_close();
}

TEST(test_cuda_scatter_rows)
{
    scene_open(4, BYTES, &small_sizes);
    run_sum((scene_sum){.scatter = true, .dtype = WEFT_BF16, .count = 7 * 64, .rows = 7});
    run_sum((scene_sum){.scatter = true, .dtype = WEFT_BF16, .count = 9 * 13, .rows = 9});
    run_sum((scene_sum){
        .scatter = true, .dtype = WEFT_F64, .op = WEFT_I_FOLD_MIN, .count = 5 * 3, .rows = 5});
    scene_close();
}

/* ---- moves ---- */

typedef struct scene_move {
    enum { GATHER, TO_ALL, CAST } kind;
    bool pull;
    size_t bytes, offset;
    uint64_t seed;
} scene_move;

static unsigned char byte_of(const scene_move *m, int rank, size_t i)
{
    return (unsigned char)noise(m->seed * 31 + (uint64_t)rank * 1009 + i);
}

static void move_body(int rank, void *arg)
{
    const scene_move *m = arg;
    scene_rank *me = &scene.rank[rank];
    size_t ranks = (size_t)scene.ranks, root = ranks - 1;
    size_t in_bytes = m->kind == TO_ALL ? ranks * m->bytes : m->bytes;
    size_t out_bytes = m->kind == CAST ? m->bytes : ranks * m->bytes, half = BYTES / 2;
    unsigned char *host = malloc(in_bytes + 1), *got = malloc(out_bytes + 16);
    for (size_t i = 0; i < in_bytes; i++)
        host[i] = byte_of(m, rank, i);
    memset(got, 0x77, out_bytes + 16);
    char *in = me->data + m->offset, *out = me->data + half + m->offset;
    RANK_OK(weft_i_cuda_copy(me->stream, in, host, in_bytes));
    RANK_OK(weft_i_cuda_copy(me->stream, out, got, out_bytes + 16));
    weft_i_cuda_move move = {.bytes = m->bytes, .limit_ms = 20000};
    if (m->kind == CAST)
        move.root = (int)root;
    if (m->pull) {
        move.from = scene_reach(m->offset);
        move.out = out;
    } else {
        move.in = in;
        move.to = scene_reach(half + m->offset);
    }
    weft_status (*const calls[])(weft_i_cuda_team *, weft_i_cuda_stream *,
                                 const weft_i_cuda_move *) = {
        weft_i_cuda_all_gather, weft_i_cuda_all_to_all, weft_i_cuda_broadcast};
    RANK_OK(calls[m->kind](&me->team, me->stream, &move));
    RANK_OK(weft_i_cuda_read(me->stream, got, out, out_bytes + 16));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    for (size_t i = 0; i < out_bytes; i++) {
        int from = m->kind == CAST ? (int)root : (int)(i / m->bytes);
        size_t at = m->kind == TO_ALL ? (size_t)rank * m->bytes + i % m->bytes : i % m->bytes;
        RANK(got[i] == byte_of(m, from, at),
             "kind %d, pull %d, %zu bytes at %zu: byte %zu is wrong", (int)m->kind, m->pull,
             m->bytes, m->offset, i);
    }
    for (size_t i = out_bytes; i < out_bytes + 16; i++)
        RANK(got[i] == 0x77, "kind %d wrote beyond its end", (int)m->kind);
    free(host);
    free(got);
}

TEST(test_cuda_moves)
{
    static const size_t sizes[] = {0, 15, 16, 4001};
    scene_open(4, BYTES, &small_sizes);
    for (int kind = GATHER; kind <= CAST; kind++)
        for (int pull = 0; pull < 2; pull++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                for (size_t offset = 0; offset < 8; offset += 5) {
                    scene_move m = {
                        .pull = pull, .bytes = sizes[i], .offset = offset, .seed = ++seeds};
                    m.kind = kind;
                    scene_run(move_body, &m);
                }
    scene_close();
}

/* Calls of different grids and kinds behind each other, without a sync: epochs, turns and halves.
 */
static void mixed_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    int ranks = scene.ranks, rounds = *(int *)arg;
    float *in = NULL, *out = NULL;
    void *memory;
    RANK_OK(weft_i_cuda_pinned(scene.device, 8192 * sizeof *in, &memory));
    in = memory;
    RANK_OK(weft_i_cuda_pinned(scene.device, 8192 * sizeof *out, &memory));
    out = memory;
    weft_i_cu_ptr a = 0, b = 0;
    RANK_OK(weft_i_cuda_alloc(me->stream, 32768, &a));
    RANK_OK(weft_i_cuda_alloc(me->stream, 32768, &b));
    for (int i = 0; i < 8192; i++)
        in[i] = 1;
    char *x = (char *)(uintptr_t)a, *y = (char *)(uintptr_t)b;
    RANK_OK(weft_i_cuda_copy(me->stream, x, in, 32768));
    scene_meet(); /* no rank's kernel waits while another asks for memory */
    float scale = 1;
    for (int k = 0; k < rounds; k++) {
        size_t count = (size_t)(1 + noise((uint64_t)k) % 500);
        int way = (int)(noise((uint64_t)k + 99) % 3);
        weft_i_cuda_sum sum = {.dtype = WEFT_F32,
                               .op = WEFT_I_FOLD_SUM,
                               .count = count,
                               .limit_ms = 20000,
                               .in = x,
                               .out = y};
        sum.way = way == 0 ? WEFT_I_CUDA_PACKETS : WEFT_I_CUDA_ONE_SHOT;
        if (way == 2)
            sum.count = 3000 + count;
        RANK_OK(weft_i_cuda_all_reduce(&me->team, me->stream, &sum));
        if (k % 200 == 199) /* threads that share a context must not fill its queues */
            RANK_OK(weft_i_cuda_stream_sync(me->stream, WEFT_FOREVER));
        if (k % 7 == 3)
            RANK_OK(weft_i_cuda_barrier(&me->team, me->stream, k % 4, 20000));
    }
    weft_i_cuda_sum last = {.dtype = WEFT_F32, .count = 8192, .limit_ms = 20000, .in = x, .out = y};
    last.way = WEFT_I_CUDA_ONE_SHOT;
    RANK_OK(weft_i_cuda_all_reduce(&me->team, me->stream, &last));
    RANK_OK(weft_i_cuda_read(me->stream, out, y, 32768));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    for (int i = 0; i < 8192; i++)
        RANK(out[i] == scale * (float)ranks, "element %d is %g, not %d", i, (double)out[i], ranks);
    RANK_OK(weft_i_cuda_free(me->stream, a, 32768, NULL));
    RANK_OK(weft_i_cuda_free(me->stream, b, 32768, NULL));
    weft_i_cuda_unpin(in);
    weft_i_cuda_unpin(out);
}

TEST(test_cuda_mixed_calls)
{
    int rounds = scene_is_real() ? 20000 : 60;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        scene_open(ranks, BYTES, &small_sizes);
        scene_run(mixed_body, &rounds);
        scene_close();
    }
}

/* Weighted sums behind each other: nobody takes the factor of a rank that is a call ahead. */
static void factors_body(int rank, void *arg)
{
    enum { ROUNDS = 12 };
    scene_rank *me = &scene.rank[rank];
    void *memory;
    (void)arg;
    RANK_OK(weft_i_cuda_pinned(scene.device, 4096, &memory));
    float *one = memory, got[ROUNDS];
    *one = 1;
    RANK_OK(weft_i_cuda_copy(me->stream, me->data, one, 4));
    scene_meet();
    for (int k = 0; k < ROUNDS; k++) {
        weft_i_cuda_sum sum = {.dtype = WEFT_F32,
                               .op = WEFT_I_FOLD_PREMUL_SUM,
                               .factor = (k + 1) * (rank + 1),
                               .count = 1,
                               .in = me->data,
                               .out = me->data + 1024 + 4 * k,
                               .way = WEFT_I_CUDA_ONE_SHOT,
                               .limit_ms = 20000};
        RANK_OK(weft_i_cuda_all_reduce(&me->team, me->stream, &sum));
    }
    RANK_OK(weft_i_cuda_read(me->stream, got, me->data + 1024, sizeof got));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    int weights = scene.ranks * (scene.ranks + 1) / 2;
    for (int k = 0; k < ROUNDS; k++)
        RANK(got[k] == (float)((k + 1) * weights), "sum %d is %g", k, (double)got[k]);
    weft_i_cuda_unpin(memory);
}

TEST(test_cuda_factors)
{
    for (int i = 0; i < 3; i++) {
        scene_open(4, BYTES, &small_sizes);
        scene_run(factors_body, NULL);
        scene_close();
    }
}

/* A captured sequence is replayed: nothing in it comes from the host. */
static void replay_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_stream raw = weft_i_cuda_stream_raw(me->stream);
    weft_i_cu_graph graph;
    weft_i_cu_graph_exec replay;
    (void)arg;
    uint32_t *host;
    void *memory;
    RANK_OK(weft_i_cuda_use(scene.device));
    RANK_OK(weft_i_cuda_pinned(scene.device, 4096, &memory));
    host = memory;
    for (int i = 0; i < 1024; i++)
        host[i] = 1;
    char *x = me->data, *y = me->data + BYTES / 2;
    RANK_OK(weft_i_cuda_copy(me->stream, x, host, 4096));
    RANK_OK(weft_i_cuda_stream_sync(me->stream, WEFT_FOREVER));
    scene_meet();
    RANK(cu->cuStreamBeginCapture(raw, WEFT_I_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0, "capture");
    weft_i_cuda_sum sum = {.dtype = WEFT_U32,
                           .op = WEFT_I_FOLD_SUM,
                           .count = 1024,
                           .limit_ms = 20000,
                           .in = x,
                           .out = x,
                           .way = WEFT_I_CUDA_ONE_SHOT};
    RANK_OK(weft_i_cuda_all_reduce(&me->team, me->stream, &sum)); /* staged, in place: doubles */
    sum.way = WEFT_I_CUDA_PACKETS;
    sum.count = 128;
    sum.out = y;
    RANK_OK(weft_i_cuda_all_reduce(&me->team, me->stream, &sum));
    RANK(cu->cuStreamEndCapture(raw, &graph) == 0, "end of capture");
    RANK(cu->cuGraphInstantiateWithFlags(&replay, graph, 0) == 0, "graph");
    for (int k = 0; k < 10; k++)
        RANK(cu->cuGraphLaunch(replay, raw) == 0, "replay %d", k);
    uint32_t got[128];
    RANK_OK(weft_i_cuda_read(me->stream, got, x, sizeof got));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    uint32_t want = 1;
    for (int k = 0; k < 10; k++)
        want *= (uint32_t)scene.ranks;
    for (int i = 0; i < 128; i++)
        RANK(got[i] == want, "element %d is %u, not %u", i, got[i], want);
    RANK_OK(weft_i_cuda_read(me->stream, got, y, sizeof got));
    for (int i = 0; i < 128; i++)
        RANK(got[i] == want * (uint32_t)scene.ranks, "element %d of the second is %u", i, got[i]);
    cu->cuGraphExecDestroy(replay);
    cu->cuGraphDestroy(graph);
    weft_i_cuda_unpin(host);
}

TEST(test_cuda_replay)
{
    scene_open(2, BYTES, &small_sizes);
    scene_run(replay_body, NULL);
    scene_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

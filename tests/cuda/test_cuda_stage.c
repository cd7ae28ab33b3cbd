/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/ranks/staged.c, backends/cuda/kernels/staged.h */
/*
 * Collectives of ordinary operands through the stage: every kind, in many rounds and in one, at any
 * alignment, beside the fold by definition.  On the software driver, or on a GPU with
 * WEFT_TEST_CUDA=real.
 */
#include "cuda/team_scene.h"
#include "fold_reference.h"

#include "backends/cuda/ranks/staged.h"
#include "kernels/fold/fold.h"

enum { BYTES = 1 << 18 };

/* Stages of few bytes, so that operands take many rounds. */
static const weft_i_cuda_sizes small_sizes = {
    .lines = 4, .channels = 4, .packet_units = 64, .stage_bytes = 4096};

typedef struct passing {
    weft_i_coll_kind kind;
    weft_dtype dtype;
    weft_reduction op;
    size_t count, offset;
    int root;
    bool in_place;
    size_t packets_up_to, one_shot_up_to;
    uint64_t seed;
} passing;

static bool is(const passing *p, uint32_t facts)
{
    return weft_i_kind_is(p->kind, facts);
}

/* Parts of a rank's input and output, as the kind has them; 0: that rank has none. */
static size_t in_parts(const passing *p, int rank)
{
    if (is(p, WEFT_I_FROM_ROOT) && rank != p->root)
        return 0;
    return is(p, WEFT_I_HAS_PARTS) ? (size_t)scene.ranks : 1;
}

static size_t out_parts(const passing *p, int rank)
{
    if (is(p, WEFT_I_TO_ROOT) && rank != p->root)
        return 0;
    return is(p, WEFT_I_PLACES_PARTS) ? (size_t)scene.ranks : 1;
}

/* Small whole numbers: every dtype holds them and their sums, or wraps alike. */
static void fill(const passing *p, int rank, size_t count, char *out)
{
    size_t size = weft_dtype_size(p->dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = p->seed * 31 + (uint64_t)rank * 7 + i * 3;
        if (p->dtype == WEFT_F32) {
            float x = (float)(bits % 1000) / 7;
            uint32_t word;
            memcpy(&word, &x, sizeof word);
            bits = word;
        } else if (p->dtype == WEFT_BF16) {
            bits = 0x3f80 | (bits & 0x7f);
        }
        memcpy(out + i * size, &bits, size);
    }
}

/* What part `part` of the result of `rank` should be. */
static void expect(const passing *p, int rank, size_t part, char *out)
{
    size_t bytes = p->count * weft_dtype_size(p->dtype), ranks = (size_t)scene.ranks;
    char *in[SCENE_MOST];
    double factors[SCENE_MOST];
    for (int r = 0; r < scene.ranks; r++) {
        in[r] = malloc(ranks * bytes + 1);
        fill(p, r, in_parts(p, r) * p->count, in[r]);
        factors[r] = 1 + r;
    }
    size_t mine = is(p, WEFT_I_HAS_PARTS) ? (size_t)rank * bytes : 0;
    if (is(p, WEFT_I_REDUCES)) {
        const void *from[SCENE_MOST];
        for (int r = 0; r < scene.ranks; r++)
            from[r] = in[r] + mine;
        void *outs[] = {out};
        fold_reference(p->dtype, (weft_i_fold_op)p->op, outs, 1, from, scene.ranks, p->count,
                       factors);
    } else if (bytes) {
        int from = is(p, WEFT_I_FROM_ROOT) ? p->root : (int)part;
        memcpy(out, in[from] + mine, bytes);
    }
    for (int r = 0; r < scene.ranks; r++)
        free(in[r]);
}

static weft_status post(const passing *p, int rank, char *in, char *out)
{
    scene_rank *me = &scene.rank[rank];
    weft_i_request request = {.op = weft_i_coll_name(p->kind),
                              .kind = p->kind,
                              .rank = rank,
                              .size = scene.ranks,
                              .root = p->root,
                              .reduction = p->op,
                              .factor = 1 + rank,
                              .dtype = p->dtype,
                              .in = in_parts(p, rank) ? in : NULL,
                              .out = out_parts(p, rank) ? out : NULL,
                              .count = p->count,
                              .packets_up_to = p->packets_up_to,
                              .one_shot_up_to = p->one_shot_up_to,
                              .limit_ms = 20000};
    return weft_i_cuda_stage(&me->team, me->stream, &request);
}

/* Where the result lies if it shares memory with the operand. */
static char *in_place(const passing *p, int rank, char *in, size_t bytes)
{
    if (is(p, WEFT_I_PLACES_PARTS))
        return in - (size_t)rank * bytes;
    return is(p, WEFT_I_HAS_PARTS) ? in + (size_t)rank * bytes : in;
}

static void compare(const passing *p, int rank, const char *got)
{
    size_t bytes = p->count * weft_dtype_size(p->dtype);
    char *want = malloc(bytes + 1);
    for (size_t part = 0; part < out_parts(p, rank); part++) {
        expect(p, rank, part, want);
        for (size_t i = 0; i < bytes; i++)
            RANK(got[part * bytes + i] == want[i],
                 "%s of %zu %s, op %d, root %d, offset %zu: byte %zu of part %zu is %02x, not %02x",
                 weft_i_coll_name(p->kind), p->count, weft_dtype_name(p->dtype), p->op, p->root,
                 p->offset, i, part, (unsigned char)got[part * bytes + i], (unsigned char)want[i]);
    }
    free(want);
}

static void pass_body(int rank, void *arg)
{
    const passing *p = arg;
    scene_rank *me = &scene.rank[rank];
    size_t bytes = p->count * weft_dtype_size(p->dtype), ranks = (size_t)scene.ranks;
    size_t out_bytes = out_parts(p, rank) * bytes;
    char *host = malloc(ranks * bytes + 1), *got = malloc(ranks * bytes + 16);
    char *in = me->data + p->offset + ranks * bytes / 16 * 16;
    char *out = p->in_place ? in_place(p, rank, in, bytes) : me->data + BYTES / 2 + p->offset;
    memset(got, 0x77, ranks * bytes + 16);
    RANK_OK(
        weft_i_cuda_copy(me->stream, me->data + BYTES / 2 + p->offset, got, ranks * bytes + 16));
    fill(p, rank, in_parts(p, rank) * p->count, host);
    RANK_OK(weft_i_cuda_copy(me->stream, in, host, in_parts(p, rank) * bytes));
    RANK_OK(weft_i_cuda_stream_sync(me->stream, WEFT_FOREVER));
    RANK_OK(post(p, rank, in, out));
    RANK_OK(weft_i_cuda_read(me->stream, got, out, out_bytes + (p->in_place ? 0 : 16)));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    bool untouched = is(p, WEFT_I_FROM_ROOT) && !is(p, WEFT_I_HAS_PARTS) && rank == p->root;
    if (!untouched) /* the root of a broadcast has it */
        compare(p, rank, got);
    for (size_t i = untouched ? 0 : out_bytes; !p->in_place && i < out_bytes + 16; i++)
        RANK(got[i] == 0x77, "%s wrote where nothing belongs, at %zu", weft_i_coll_name(p->kind),
             i);
    free(host);
    free(got);
}

static void run_pass(passing p)
{
    static uint64_t seeds;
    p.seed = ++seeds;
    scene_run(pass_body, &p);
}

static const weft_i_coll_kind kinds[] = {WEFT_I_ALL_REDUCE,     WEFT_I_REDUCE,    WEFT_I_BROADCAST,
                                         WEFT_I_ALL_GATHER,     WEFT_I_GATHER,    WEFT_I_SCATTER,
                                         WEFT_I_REDUCE_SCATTER, WEFT_I_ALL_TO_ALL};
enum { KINDS = sizeof kinds / sizeof *kinds };

TEST(test_cuda_stage_kinds)
{
    static const size_t counts[] = {0, 1, 37, 1500};
    scene_open(3, BYTES, &small_sizes);
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 4; i++) {
            run_pass((passing){.kind = kinds[k],
                               .dtype = WEFT_F32,
                               .count = counts[i],
                               .root = i % 3,
                               .one_shot_up_to = SIZE_MAX});
            run_pass((passing){.kind = kinds[k],
                               .dtype = WEFT_U8,
                               .op = WEFT_MAX,
                               .count = counts[i],
                               .root = 2,
                               .offset = 3,
                               .one_shot_up_to = SIZE_MAX});
        }
    scene_close();
}

TEST(test_cuda_stage_in_place)
{
    scene_open(2, BYTES, &small_sizes);
    for (int k = 0; k < KINDS; k++)
        if (kinds[k] != WEFT_I_ALL_TO_ALL)
            for (int offset = 0; offset < 8; offset += 4)
                run_pass((passing){.kind = kinds[k],
                                   .dtype = WEFT_F32,
                                   .count = 1500,
                                   .root = 1,
                                   .offset = (size_t)offset,
                                   .in_place = true,
                                   .one_shot_up_to = offset ? 0 : SIZE_MAX});
    scene_close();
}

/* all_reduce by slices, for every way of folding. */
TEST(test_cuda_stage_two_shot)
{
    static const size_t counts[] = {0, 1, 5, 64, 3001};
    for (int ranks = 2; ranks <= 5; ranks += 3) {
        scene_open(ranks, BYTES, &small_sizes);
        for (int i = 0; i < 5; i++) {
            passing p = {.kind = WEFT_I_ALL_REDUCE, .dtype = WEFT_F32, .count = counts[i]};
            run_pass(p);
            p.dtype = WEFT_BF16;
            p.op = WEFT_AVG;
            run_pass(p);
            p.op = WEFT_PREMUL_SUM;
            run_pass(p);
            p.dtype = WEFT_I32;
            p.op = WEFT_PRODUCT;
            p.offset = 4;
            run_pass(p);
        }
        scene_close();
    }
}

/* Calls of every kind and way behind each other, no rank waiting for the others in between: what
 * one still reads the next must not fill. */
static void mixed_body(int rank, void *arg)
{
    enum { CALLS = 24, COUNT = 700 };
    scene_rank *me = &scene.rank[rank];
    (void)arg;
    float *host = malloc(COUNT * sizeof *host), got[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = 1;
    char *x = me->data, *y = me->data + BYTES / 2;
    RANK_OK(weft_i_cuda_copy(me->stream, x, host, COUNT * sizeof *host));
    RANK_OK(weft_i_cuda_stream_sync(me->stream, WEFT_FOREVER));
    for (int k = 0; k < CALLS; k++) {
        passing p = {.kind = k % 5 == 4 ? WEFT_I_ALL_GATHER : WEFT_I_ALL_REDUCE,
                     .dtype = WEFT_F32,
                     .count = k % 3 == 2 ? 0 : (size_t)(20 + 29 * k),
                     .packets_up_to = k % 2 ? 400 : 0,
                     .one_shot_up_to = k % 4 < 2 ? SIZE_MAX : 0};
        p.count = p.kind == WEFT_I_ALL_GATHER ? 100 : p.count;
        RANK_OK(post(&p, rank, x, y));
    }
    passing last = {.kind = WEFT_I_ALL_REDUCE, .dtype = WEFT_F32, .count = COUNT};
    RANK_OK(post(&last, rank, x, y));
    RANK_OK(weft_i_cuda_read(me->stream, got, y, sizeof got));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    for (int i = 0; i < COUNT; i++)
        RANK(got[i] == (float)scene.ranks, "element %d is %g", i, (double)got[i]);
    free(host);
}

TEST(test_cuda_stage_mixed)
{
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        scene_open(ranks, BYTES, &small_sizes);
        scene_run(mixed_body, NULL);
        scene_close();
    }
}

/* ---- ranks that call different things ---- */

typedef struct quarrel {
    passing call[2];
    const char *told[2];
} quarrel;

static void quarrel_body(int rank, void *arg)
{
    const quarrel *q = arg;
    scene_rank *me = &scene.rank[rank];
    RANK_OK(post(&q->call[rank], rank, me->data, me->data + BYTES / 2));
    RANK(weft_i_cuda_stream_sync(me->stream, 20000) == WEFT_ERR_MISMATCH, "%s", weft_last_error());
    RANK(weft_i_cuda_team_check(&me->team) == WEFT_ERR_MISMATCH, "%s", weft_last_error());
    char mine[120], theirs[120];
    snprintf(mine, sizeof mine, "this rank called %s", q->told[rank]);
    snprintf(theirs, sizeof theirs, "rank %d %s", 1 - rank, q->told[1 - rank]);
    RANK(strstr(weft_last_error(), mine), "%s, not: %s", mine, weft_last_error());
    RANK(strstr(weft_last_error(), theirs), "%s, not: %s", theirs, weft_last_error());
    RANK_OK(scene_reset(rank));
    RANK_OK(post(&q->call[0], rank, me->data, me->data + BYTES / 2));
    RANK_OK(weft_i_cuda_stream_sync(me->stream, 20000));
    RANK_OK(weft_i_cuda_team_check(&me->team));
}

TEST(test_cuda_stage_mismatch)
{
    const passing sum = {.kind = WEFT_I_ALL_REDUCE, .dtype = WEFT_F32, .count = 40};
    passing packets = sum, dtype = sum, count = sum, op = sum, kind = sum, cast = sum, root;
    packets.packets_up_to = 4096;
    dtype.dtype = WEFT_BF16;
    count.count = 41;
    op.op = WEFT_MAX;
    kind.kind = WEFT_I_ALL_GATHER;
    cast.kind = WEFT_I_BROADCAST;
    root = cast;
    root.root = 1;
    quarrel quarrels[] = {
        {{sum, dtype}, {"all_reduce of 40 f32, sum", "all_reduce of 40 bf16, sum"}},
        {{count, sum}, {"all_reduce of 41 f32, sum", "all_reduce of 40 f32, sum"}},
        {{packets, op}, {"all_reduce of 40 f32, sum", "all_reduce of 40 f32, max"}},
        {{packets, kind}, {"all_reduce of 40 f32, sum", "all_gather of 40 f32"}},
        {{cast, root}, {"broadcast of 40 f32, root 0", "broadcast of 40 f32, root 1"}},
    };
    scene_open(2, BYTES, &small_sizes);
    for (size_t i = 0; i < sizeof quarrels / sizeof *quarrels; i++)
        scene_run(quarrel_body, &quarrels[i]);
    scene_close();
}

/* ---- passages that meet first ---- */

static void set_meets_first(int ranks, size_t from)
{
    for (int r = 0; r < ranks; r++)
        scene.rank[r].team.meets_first_from = from;
}

/* Long ones wait with one block, and only then take the device: one kernel more on each rank. */
TEST(test_cuda_stage_meets_first)
{
    enum { RANKS = 3, COUNT = 100, FROM = 4 * COUNT * RANKS };
    scene_open(RANKS, BYTES, &small_sizes);
    CHECK_INT(scene.rank[0].team.meets_first_from, 8 << 20);
    set_meets_first(RANKS, FROM);
    for (int k = 0; k < KINDS; k++)
        for (int less = 0; less < 2; less++) {
            passing p = {.kind = kinds[k], .dtype = WEFT_F32, .count = COUNT, .root = 2};
            p.count = is(&p, WEFT_I_HAS_PARTS) ? COUNT : COUNT * RANKS;
            p.count -= (size_t)less;
            int before = scene.real ? 0 : model_calls("cuLaunchKernelEx");
            run_pass(p);
            if (!scene.real)
                CHECK_INT(model_calls("cuLaunchKernelEx") - before, less ? RANKS : 2 * RANKS);
            p.op = WEFT_PREMUL_SUM;
            if (is(&p, WEFT_I_REDUCES))
                run_pass(p);
        }
    scene_close();
}

/* Ranks of which only one meets first do not wait for each other: they are told both calls. */
TEST(test_cuda_stage_meets_first_mismatch)
{
    const passing longer = {.kind = WEFT_I_ALL_GATHER, .dtype = WEFT_F32, .count = 41};
    passing shorter = longer;
    shorter.count = 40;
    quarrel quarrels[] = {
        {{longer, shorter}, {"all_gather of 41 f32", "all_gather of 40 f32"}},
        {{shorter, longer}, {"all_gather of 40 f32", "all_gather of 41 f32"}},
    };
    scene_open(2, BYTES, &small_sizes);
    set_meets_first(2, 4 * 41);
    for (size_t i = 0; i < sizeof quarrels / sizeof *quarrels; i++)
        scene_run(quarrel_body, &quarrels[i]);
    scene_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

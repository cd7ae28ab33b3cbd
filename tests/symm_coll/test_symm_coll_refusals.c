/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm_coll/reduce.c, symm_coll/gather.c, symm_coll/tile.c, symm_coll/vdev.c,
 * symm_coll/reach.c, symm_coll/row.c */
/* What operations on symmetric memory refuse, plainly and while they are captured, and what they say
 * then; see refusals.h. */
#include "refusals.h"
#include "tensor/object/tensor.h"

enum { CASES = 23 };

static weft_group *w;
static int number;
static char said[512];
static weft_status got;

static weft_tensor *blank(int64_t rows, int64_t columns)
{
    return weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rows, columns));
}

static weft_status of(const void *result)
{
    return result ? WEFT_OK : weft_last_status();
}

/* So many elements, all in one place. */
static weft_tensor *long_one(weft_tensor *x, int64_t count)
{
    return weft_expand(weft_view(weft_sum(x, NULL, 0, false), WEFT_SHAPE(1)), WEFT_SHAPE(count));
}

/* ---- captured ---- */

static weft_status act(weft_tensor *x)
{
    weft_work *work = NULL;
    weft_tensor *out = blank(8, 8);
    switch (number) {
    case 0:
        return of(weft_symm_one_shot_all_reduce(x, WEFT_SUM, NULL));
    case 1:
        return weft_symm_one_shot_all_reduce_out(NULL, x, WEFT_SUM, w);
    case 2:
        return weft_symm_one_shot_all_reduce_out(out, x, WEFT_SUM, NULL);
    case 3:
        return weft_symm_two_shot_all_reduce(NULL, WEFT_SUM, w);
    case 4:
        return weft_symm_two_shot_all_reduce(out, WEFT_SUM, NULL);
    case 5:
        return weft_symm_reduce_scatter_out(NULL, x, false, WEFT_SUM, w);
    case 6:
        return weft_symm_reduce_scatter_out(blank(1, 8), x, false, WEFT_SUM, NULL);
    case 7:
        return of(weft_symm_low_contention_all_gather(x, NULL, &work));
    case 8:
        return of(weft_symm_low_contention_all_gather(x, w, NULL));
    case 9:
        return weft_symm_multimem_all_gather_out(NULL, x, w);
    case 10:
        return weft_symm_multimem_all_gather_out(blank(64, 8), x, NULL);
    case 11:
        return weft_symm_multimem_all_gather_out(out, x, w);
    case 12:
        return of(weft_symm_one_shot_all_reduce(x, (weft_reduction)WEFT_REDUCTIONS, w));
    case 13:
        return of(weft_symm_one_shot_all_reduce(x, (weft_reduction)-1, w));
    case 14:
        return of(weft_symm_one_shot_all_reduce(x, WEFT_BAND, w));
    case 15:
        return weft_symm_reduce_scatter_out(blank(1, 8), x, false, WEFT_BAND, w);
    case 16:
        return of(weft_symm_one_shot_all_reduce_copy(x, NULL, WEFT_SUM, w));
    case 17:
        return weft_symm_one_shot_all_reduce_copy_out(NULL, x, out, WEFT_SUM, w);
    case 18:
        return weft_symm_reduce_scatter_out(out, weft_narrow(x, 0, 0, 7), false, WEFT_SUM, w);
    case 19:
        return weft_symm_reduce_scatter_out(out, weft_narrow(x, 1, 0, 7), true, WEFT_SUM, w);
    case 20:
        return weft_symm_reduce_scatter_out(out, weft_sum(x, NULL, 0, false), true, WEFT_SUM, w);
    case 21:
        return of(weft_symm_low_contention_all_gather(long_one(x, (int64_t)1 << 60), w, &work));
    default:
        return of(weft_symm_low_contention_all_gather(long_one(x, (int64_t)1 << 58), w, &work));
    }
}

static weft_status captured(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                            void *user)
{
    (void)ins, (void)outs, (void)user;
    got = act(in[0]);
    snprintf(said, sizeof said, "%s", weft_last_error());
    out[0] = in[0];
    return got;
}

TEST(test_refusals_symm_captured)
{
    static const struct {
        weft_status status;
        const char *text;
    } told[CASES] = {
        {WEFT_ERR_INVALID_ARG, "one_shot_all_reduce: the group is NULL"},
        {WEFT_ERR_INVALID_ARG, "one_shot_all_reduce: the output is NULL"},
        {WEFT_ERR_INVALID_ARG, "one_shot_all_reduce: the group is NULL"},
        {WEFT_ERR_INVALID_ARG, "two_shot_all_reduce: the output is NULL"},
        {WEFT_ERR_INVALID_ARG, "two_shot_all_reduce: the group is NULL"},
        {WEFT_ERR_INVALID_ARG, "reduce_scatter_out: the output is NULL"},
        {WEFT_ERR_INVALID_ARG, "reduce_scatter_out: the group is NULL"},
        {WEFT_ERR_INVALID_ARG, "low_contention_all_gather: the group is NULL"},
        {WEFT_ERR_INVALID_ARG, "low_contention_all_gather: the place of the work is NULL"},
        {WEFT_ERR_INVALID_ARG, "multimem_all_gather_out: the output is NULL"},
        {WEFT_ERR_INVALID_ARG, "multimem_all_gather_out: the group is NULL"},
        {WEFT_ERR_INVALID_ARG,
         "low_contention_all_gather_out: expected out f32[64, 8], not f32[8, 8]"},
        {WEFT_ERR_INVALID_ARG, "one_shot_all_reduce: 9 is not a reduction"},
        {WEFT_ERR_INVALID_ARG, "one_shot_all_reduce: 4294967295 is not a reduction"},
        {WEFT_ERR_TYPE, "one_shot_all_reduce: reduction band has no meaning for f32"},
        {WEFT_ERR_TYPE, "symm_reduce_scatter: reduction band has no meaning for f32"},
        {WEFT_ERR_INVALID_ARG, "one_shot_all_reduce_copy: a tensor argument is NULL"},
        {WEFT_ERR_INVALID_ARG, "one_shot_all_reduce_copy: the output is NULL"},
        {WEFT_ERR_INVALID_ARG,
         "symm_reduce_scatter: dimension 0 of 2 has no parts for each of 8 ranks"},
        {WEFT_ERR_INVALID_ARG,
         "symm_reduce_scatter: dimension 1 of 2 has no parts for each of 8 ranks"},
        {WEFT_ERR_INVALID_ARG,
         "symm_reduce_scatter: dimension -1 of 0 has no parts for each of 8 ranks"},
        {WEFT_ERR_INVALID_ARG, "low_contention_all_gather: 8 ranks are none or too many"},
        {WEFT_ERR_INVALID_ARG,
         "low_contention_all_gather: a tensor of shape [2305843009213693952] of f32 has more bytes "
         "than can be counted"}};
    w = open_world();
    weft_tensor *x = blank(8, 8);
    for (number = 0; number < CASES; number++) {
        weft_graph *graph = weft_graph_capture("f", captured, NULL, &x, 1, 1);
        if (graph || got != told[number].status || weft_last_status() != got)
            FAIL("case %d gives %d: %s", number, got, said);
        if (strcmp(said, told[number].text))
            FAIL("case %d says \"%s\", not \"%s\"", number, said, told[number].text);
        weft_clear_error();
    }
    close_world();
}

static weft_status scatters(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                            void *user)
{
    (void)ins, (void)outs, (void)user;
    int64_t part = 8 / weft_size(w);
    weft_tensor *rows = blank(part, 16), *columns = blank(8, 2 * part);
    CHECK_OK(weft_symm_reduce_scatter_out(rows, in[0], false, WEFT_SUM, w));
    CHECK_OK(weft_symm_reduce_scatter_out(columns, in[0], true, WEFT_SUM, w));
    weft_work *work = NULL;
    weft_tensor *rows_of_all = weft_symm_low_contention_all_gather(in[0], w, &work);
    CHECK(rows_of_all && work && weft_tensor_ndim(rows_of_all) == 2);
    CHECK_INT(weft_tensor_size(rows_of_all, 0), 8 * weft_size(w));
    weft_tensor *sums =
        weft_symm_low_contention_all_gather(weft_sum(in[0], NULL, 0, false), w, &work);
    CHECK(sums && weft_tensor_ndim(sums) == 1 && weft_tensor_numel(sums) == weft_size(w));
    out[0] = columns;
    return WEFT_OK;
}

/* Parts of the first dimension, or of the last, for eight ranks and for one. */
TEST(test_refusals_symm_captured_fine)
{
    for (int ranks = 1; ranks <= WORLD; ranks += WORLD - 1) {
        weft_fake_opts opts = WEFT_FAKE_OPTS(0, ranks);
        CHECK_OK(weft_scope_open());
        CHECK(w = weft_fake_init(&opts));
        weft_tensor *in = blank(8, 16);
        if (!weft_graph_capture("f", scatters, NULL, &in, 1, 1))
            FAIL("%s", weft_last_error());
        close_world();
    }
}

TEST(test_refusals_symm_plain)
{
    w = open_world();
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8)),
                *all = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64, 8)),
                *splits = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 8));
    weft_work *work = NULL;
    CHECK(weft_symm_rendezvous(x, w) && weft_symm_rendezvous(all, w));
    NO(weft_symm_low_contention_all_gather(x, NULL, &work), WEFT_ERR_INVALID_ARG,
       "low_contention_all_gather: the group is NULL");
    NO(weft_symm_low_contention_all_gather(NULL, w, &work), WEFT_ERR_INVALID_ARG,
       "low_contention_all_gather: the input is NULL");
    NO(weft_symm_low_contention_reduce_scatter(x, WEFT_SUM, NULL, &work), WEFT_ERR_INVALID_ARG,
       "low_contention_reduce_scatter: the group is NULL");
    NO(weft_symm_low_contention_reduce_scatter(NULL, WEFT_SUM, w, &work), WEFT_ERR_INVALID_ARG,
       "low_contention_reduce_scatter: the input is NULL");
    BAD(weft_symm_multimem_all_gather_out(all, NULL, w), WEFT_ERR_INVALID_ARG,
        "multimem_all_gather_out: the input is NULL");
    BAD(weft_symm_multimem_all_gather_out(NULL, x, w), WEFT_ERR_INVALID_ARG,
        "multimem_all_gather_out: the output is NULL");
    BAD(weft_symm_multimem_all_gather_out(all, x, NULL), WEFT_ERR_INVALID_ARG,
        "multimem_all_gather_out: the group is NULL");
    BAD(weft_symm_multimem_all_gather_out(all, weft_narrow(all, 0, 0, 8), w), WEFT_ERR_INVALID_ARG,
        "multimem_all_gather_out: input and output overlap without being the same");
    BAD(weft_symm_multimem_all_gather_out(all, weft_narrow(all, 0, 23, 8), w), WEFT_ERR_INVALID_ARG,
        "multimem_all_gather_out: input and output overlap without being the same");
    BAD(weft_symm_two_shot_all_reduce(NULL, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "two_shot_all_reduce: the input is NULL");
    BAD(weft_symm_two_shot_all_reduce(x, WEFT_SUM, NULL), WEFT_ERR_INVALID_ARG,
        "two_shot_all_reduce: the group is NULL");
    BAD(weft_symm_reduce_scatter_out(weft_narrow(all, 0, 0, 8), all, false, WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: input and output overlap without being the same");
    BAD(weft_symm_reduce_scatter_out(NULL, all, false, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the output is NULL");
    BAD(weft_symm_tile_reduce(NULL, x, WEFT_SUM, ME, w), WEFT_ERR_INVALID_ARG,
        "tile_reduce: the output tile is NULL");
    BAD(weft_symm_tile_reduce(blank(8, 8), NULL, WEFT_SUM, ME, w), WEFT_ERR_INVALID_ARG,
        "tile_reduce: the input tile is NULL");
    BAD(weft_symm_all_to_all_vdev(x, x, splits, splits, NULL), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: the group is NULL");
    BAD(weft_symm_all_to_all_vdev(NULL, x, splits, splits, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: the output is NULL");
    close_world();
}

/* ---- every check of the operations on symmetric memory ---- */

static weft_tensor *x, *all, *wide, *scalar, *counts, *more, *both, *long_in, *longs, *table,
    *large_table, *plain_counts, *meta, *tiles[2], *mixed[2];
static const int roots[] = {ME, ME + 1}, turned[] = {ME + 1, ME}, same[] = {ME, ME};

static weft_tensor *half(int64_t rows, int64_t columns)
{
    return weft_zeros(WEFT_F16, WEFT_CPU, WEFT_SHAPE(rows, columns));
}

static weft_tensor *symm(weft_dtype dtype, weft_shape shape)
{
    weft_tensor *made = weft_symm_empty(dtype, WEFT_CPU, shape);
    CHECK(made);
    return made;
}

static void open_operands(void)
{
    w = open_world();
    x = symm(WEFT_F32, WEFT_SHAPE(8, 8));
    all = symm(WEFT_F32, WEFT_SHAPE(64, 8));
    wide = symm(WEFT_F32, WEFT_SHAPE(8, 32));
    scalar = symm(WEFT_F32, WEFT_SCALAR);
    counts = symm(WEFT_I64, WEFT_SHAPE(8));
    more = symm(WEFT_I64, WEFT_SHAPE(16));
    both = symm(WEFT_I64, WEFT_SHAPE(2, 8));
    long_in = symm(WEFT_I64, WEFT_SHAPE(8, 8));
    longs = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(8, 8));
    table = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 8));
    large_table = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 16));
    plain_counts = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(8));
    meta = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(8, 8));
    tiles[0] = mixed[0] = x;
    tiles[1] = weft_narrow(all, 0, 8, 8);
    mixed[1] = symm(WEFT_I32, WEFT_SHAPE(8, 8));
}

/* What is allowed comes as far as the backend, which says so. */
#define FINE(call_, op_) \
    BAD(call_, WEFT_ERR_UNSUPPORTED, op_ ": backend fake has no operations on symmetric memory")

TEST(test_refusals_symm_one_shot)
{
    open_operands();
    BAD(weft_symm_one_shot_all_reduce_out(blank(8, 8), blank(8, 8), WEFT_SUM, w), WEFT_ERR_TYPE,
        "one_shot_all_reduce: the input is not symmetric memory; make it with weft_symm_empty");
    BAD(weft_symm_one_shot_all_reduce_out(blank(8, 7), x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce: expected out shape [8, 8], not [8, 7]");
    BAD(weft_symm_one_shot_all_reduce_out(half(8, 8), x, WEFT_SUM, w), WEFT_ERR_TYPE,
        "one_shot_all_reduce: the input is f32, the output f16");
    BAD(weft_symm_one_shot_all_reduce_out(x, x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce: the output overlaps the symmetric input, which other ranks read");
    BAD(weft_symm_one_shot_all_reduce_out(weft_narrow(all, 0, 0, 8), weft_narrow(all, 0, 7, 8),
                                          WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce: the output overlaps the symmetric input, which other ranks read");
    BAD(weft_symm_one_shot_all_reduce_out(weft_narrow(all, 0, 8, 8), weft_narrow(all, 0, 1, 8),
                                          WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce: the output overlaps the symmetric input, which other ranks read");
    BAD(weft_symm_one_shot_all_reduce_out(blank(8, 8), x, WEFT_BAND, w), WEFT_ERR_TYPE,
        "one_shot_all_reduce: reduction band has no meaning for f32");
    BAD(weft_symm_one_shot_all_reduce_out(blank(8, 8), x, (weft_reduction)77, w),
        WEFT_ERR_INVALID_ARG, "one_shot_all_reduce: 77 is not a reduction");
    BAD(weft_symm_one_shot_all_reduce_out(blank(8, 8), NULL, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce: the input is NULL");
    close_world();
}

TEST(test_refusals_symm_one_shot_copy)
{
    open_operands();
    BAD(weft_symm_multimem_one_shot_reduce_out(blank(8, 8), x, WEFT_SUM, 8, w),
        WEFT_ERR_INVALID_ARG,
        "multimem_one_shot_reduce_out: rank 8 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_symm_multimem_one_shot_reduce_out(blank(8, 8), x, WEFT_SUM, -1, w),
        WEFT_ERR_INVALID_ARG,
        "multimem_one_shot_reduce_out: rank -1 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_symm_multimem_one_shot_reduce_out(NULL, x, WEFT_SUM, ME, w), WEFT_ERR_INVALID_ARG,
        "multimem_one_shot_reduce_out: the output is NULL");
    BAD(weft_symm_multimem_one_shot_reduce_out(blank(8, 7), x, WEFT_SUM, ME, w),
        WEFT_ERR_INVALID_ARG,
        "multimem_one_shot_reduce_out: expected out shape [8, 8], not [8, 7]");
    BAD(weft_symm_multimem_one_shot_reduce_out(weft_narrow(all, 0, 0, 8), weft_narrow(all, 0, 7, 8),
                                               WEFT_SUM, ME, w),
        WEFT_ERR_INVALID_ARG,
        "multimem_one_shot_reduce_out: input and output overlap without being the same");
    BAD(weft_symm_multimem_one_shot_reduce_out(NULL, x, WEFT_BAND, ME + 1, w), WEFT_ERR_TYPE,
        "multimem_one_shot_reduce_out: reduction band has no meaning for f32");
    BAD(weft_symm_one_shot_all_reduce_copy_out(blank(8, 8), NULL, blank(8, 8), WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG, "one_shot_all_reduce_copy: the symmetric buffer is NULL");
    BAD(weft_symm_one_shot_all_reduce_copy_out(blank(8, 8), x, NULL, WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG, "one_shot_all_reduce_copy: the input is NULL");
    BAD(weft_symm_one_shot_all_reduce_copy_out(NULL, x, blank(8, 8), WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG, "one_shot_all_reduce_copy: the output is NULL");
    BAD(weft_symm_one_shot_all_reduce_copy_out(blank(8, 7), x, blank(8, 8), WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG, "one_shot_all_reduce_copy: expected out shape [8, 8], not [8, 7]");
    BAD(weft_symm_one_shot_all_reduce_copy_out(blank(8, 8), blank(8, 8), blank(8, 8), WEFT_SUM, w),
        WEFT_ERR_TYPE,
        "one_shot_all_reduce_copy: the buffer is not symmetric memory; make it with "
        "weft_symm_empty");
    BAD(weft_symm_one_shot_all_reduce_copy_out(blank(9, 8), x, blank(9, 8), WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce_copy: the local input of 288 bytes exceeds the buffer of 256");
    BAD(weft_symm_one_shot_all_reduce_copy_out(half(8, 8), x, half(8, 8), WEFT_SUM, w),
        WEFT_ERR_TYPE, "one_shot_all_reduce_copy: the buffer is f32, the local input f16");
    BAD(weft_symm_one_shot_all_reduce_copy_out(blank(8, 8), x, blank(8, 8), WEFT_BAND, w),
        WEFT_ERR_TYPE, "one_shot_all_reduce_copy: reduction band has no meaning for f32");
    BAD(weft_symm_one_shot_all_reduce_copy_out(blank(8, 8), weft_narrow(all, 0, 0, 8),
                                               weft_narrow(all, 0, 7, 8), WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG, "one_shot_all_reduce_copy: the local input overlaps the buffer");
    BAD(weft_symm_one_shot_all_reduce_copy_out(weft_narrow(all, 0, 4, 8), weft_narrow(all, 0, 0, 8),
                                               blank(8, 8), WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce_copy: the output overlaps the symmetric input, which other ranks "
        "read");
    BAD(weft_symm_one_shot_all_reduce_copy_out(weft_narrow(all, 0, 4, 8), x,
                                               weft_narrow(all, 0, 0, 8), WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce_copy: input and output overlap without being the same");
    BAD(weft_symm_one_shot_all_reduce_copy_out(blank(8, 8), x, blank(8, 8), WEFT_SUM, NULL),
        WEFT_ERR_INVALID_ARG, "one_shot_all_reduce_copy: the group is NULL");
    close_world();
}

TEST(test_refusals_symm_one_shot_fine)
{
    open_operands();
    FINE(weft_symm_one_shot_all_reduce_out(weft_narrow(all, 0, 8, 8), weft_narrow(all, 0, 0, 8),
                                           WEFT_SUM, w),
         "one_shot_all_reduce");
    FINE(weft_symm_one_shot_all_reduce_out(weft_narrow(all, 0, 0, 8), weft_narrow(all, 0, 8, 8),
                                           WEFT_SUM, w),
         "one_shot_all_reduce");
    FINE(weft_symm_one_shot_all_reduce_copy_out(blank(8, 8), x, x, WEFT_SUM, w),
         "one_shot_all_reduce_copy");
    FINE(weft_symm_one_shot_all_reduce_copy_out(blank(2, 8), x, blank(2, 8), WEFT_SUM, w),
         "one_shot_all_reduce_copy");
    FINE(weft_symm_one_shot_all_reduce_copy_out(blank(8, 8), x, blank(8, 8), WEFT_SUM, w),
         "one_shot_all_reduce_copy");
    FINE(weft_symm_multimem_one_shot_reduce_out(x, x, WEFT_SUM, ME, w),
         "multimem_one_shot_reduce_out");
    FINE(weft_symm_multimem_one_shot_reduce_out(NULL, x, WEFT_SUM, 0, w),
         "multimem_one_shot_reduce_out");
    FINE(weft_symm_multimem_one_shot_reduce_out(NULL, x, WEFT_SUM, 7, w),
         "multimem_one_shot_reduce_out");
    close_world();
}

TEST(test_refusals_symm_two_shot)
{
    open_operands();
    BAD(weft_symm_two_shot_all_reduce(blank(8, 8), WEFT_SUM, w), WEFT_ERR_TYPE,
        "two_shot_all_reduce: the input is not symmetric memory; make it with weft_symm_empty");
    BAD(weft_symm_two_shot_all_reduce(x, WEFT_BAND, w), WEFT_ERR_TYPE,
        "two_shot_all_reduce: reduction band has no meaning for f32");
    BAD(weft_symm_multimem_all_reduce(blank(8, 8), WEFT_SUM, w), WEFT_ERR_TYPE,
        "multimem_all_reduce: the input is not symmetric memory; make it with weft_symm_empty");
    BAD(weft_symm_two_shot_all_reduce_out(NULL, x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "two_shot_all_reduce_out: the output is NULL");
    BAD(weft_symm_two_shot_all_reduce_out(blank(8, 8), blank(8, 8), WEFT_SUM, w), WEFT_ERR_TYPE,
        "two_shot_all_reduce_out: the input is not symmetric memory; make it with weft_symm_empty");
    BAD(weft_symm_two_shot_all_reduce_out(blank(8, 7), x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "two_shot_all_reduce_out: expected out shape [8, 8], not [8, 7]");
    BAD(weft_symm_two_shot_all_reduce_out(blank(8, 8), x, WEFT_BAND, w), WEFT_ERR_TYPE,
        "two_shot_all_reduce_out: reduction band has no meaning for f32");
    BAD(weft_symm_two_shot_all_reduce_out(weft_narrow(all, 0, 0, 8), weft_narrow(all, 0, 7, 8),
                                          WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "two_shot_all_reduce_out: input and output overlap without being the same");
    BAD(weft_symm_two_shot_all_reduce_out(blank(8, 8), x, WEFT_SUM, NULL), WEFT_ERR_INVALID_ARG,
        "two_shot_all_reduce_out: the group is NULL");
    close_world();
}

TEST(test_refusals_symm_two_shot_fine)
{
    open_operands();
    FINE(weft_symm_multimem_all_reduce(x, WEFT_SUM, w), "multimem_all_reduce");
    FINE(weft_symm_two_shot_all_reduce_out(x, x, WEFT_SUM, w), "two_shot_all_reduce_out");
    close_world();
}

TEST(test_refusals_symm_scatter_gather)
{
    open_operands();
    BAD(weft_symm_reduce_scatter_out(blank(1, 8), blank(8, 8), false, WEFT_SUM, w), WEFT_ERR_TYPE,
        "reduce_scatter_out: the input is not symmetric memory; make it with weft_symm_empty");
    BAD(weft_symm_reduce_scatter_out(blank(1, 8), x, false, WEFT_BAND, w), WEFT_ERR_TYPE,
        "reduce_scatter_out: reduction band has no meaning for f32");
    BAD(weft_symm_reduce_scatter_out(blank(2, 8), x, false, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the input has 64 elements; for 8 ranks with 16 each it must have 128");
    BAD(weft_symm_reduce_scatter_out(blank(8, 1), x, true, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the last dimension, 8 elements, must be divisible by 8 ranks times "
        "vectors of 4 elements");
    BAD(weft_symm_reduce_scatter_out(blank(8, 4), wide, true, WEFT_BAND, w), WEFT_ERR_TYPE,
        "reduce_scatter_out: reduction band has no meaning for f32");
    BAD(weft_symm_reduce_scatter_out(blank(4, 8), wide, true, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: expected out shape [8, 4], not [4, 8]");
    BAD(weft_symm_reduce_scatter_out(NULL, wide, true, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the output is NULL");
    BAD(weft_symm_reduce_scatter_out(scalar, scalar, true, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: a tensor without dimensions has no last one to split");
    BAD(weft_symm_reduce_scatter_out(
            blank(1, 7), weft_narrow(weft_view(x, WEFT_SHAPE(64)), 0, 0, 56), false, WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the input, 56 elements, must be divisible by 8 ranks times vectors of "
        "4 elements");
    BAD(weft_symm_reduce_scatter_out(
            blank(1, 1), weft_narrow(weft_view(x, WEFT_SHAPE(64)), 0, 2, 8), false, WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the input, 8 elements, must be divisible by 8 ranks times vectors of "
        "2 elements");
    BAD(weft_symm_reduce_scatter_out(
            blank(1, 1), weft_narrow(weft_view(x, WEFT_SHAPE(64)), 0, 4, 9), false, WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the input, 9 elements, must be divisible by 8 ranks times vectors of "
        "1 elements");
    BAD(weft_symm_reduce_scatter_out(
            weft_view(weft_narrow(weft_view(wide, WEFT_SHAPE(256)), 0, 0, 32), WEFT_SHAPE(8, 4)),
            wide, true, WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the output overlaps the symmetric input, which other ranks read");
    BAD(weft_symm_multimem_all_gather_out(blank(64, 8), x, w), WEFT_ERR_TYPE,
        "multimem_all_gather_out: the output is not symmetric memory; make it with "
        "weft_symm_empty");
    BAD(weft_symm_multimem_all_gather_out(all, blank(8, 7), w), WEFT_ERR_INVALID_ARG,
        "multimem_all_gather_out: expected out shape [64, 7], not [64, 8]");
    BAD(weft_symm_multimem_all_gather_out(all, half(8, 8), w), WEFT_ERR_TYPE,
        "multimem_all_gather_out: the input is f16, the output f32");
    BAD(weft_symm_multimem_all_gather_out(weft_view(all, WEFT_SHAPE(512)), scalar, w),
        WEFT_ERR_INVALID_ARG, "multimem_all_gather_out: expected out shape [8], not [512]");
    close_world();
}

TEST(test_refusals_symm_scatter_gather_fine)
{
    open_operands();
    FINE(weft_symm_reduce_scatter_out(
             blank(1, 1), weft_narrow(weft_view(x, WEFT_SHAPE(64)), 0, 1, 8), false, WEFT_SUM, w),
         "reduce_scatter_out");
    FINE(weft_symm_reduce_scatter_out(weft_narrow(all, 0, 8 * ME, 8), all, false, WEFT_SUM, w),
         "reduce_scatter_out");
    FINE(weft_symm_reduce_scatter_out(blank(8, 4), wide, true, WEFT_SUM, w), "reduce_scatter_out");
    FINE(weft_symm_multimem_all_gather_out(all, weft_narrow(all, 0, 8 * ME, 8), w),
         "multimem_all_gather_out");
    FINE(weft_symm_multimem_all_gather_out(weft_narrow(weft_view(all, WEFT_SHAPE(512)), 0, 0, 8),
                                           scalar, w),
         "multimem_all_gather_out");
    close_world();
}

TEST(test_refusals_symm_tiles)
{
    open_operands();
    BAD(weft_symm_tile_reduce(blank(8, 8), weft_view(x, WEFT_SHAPE(64)), WEFT_SUM, ME, w),
        WEFT_ERR_INVALID_ARG, "tile_reduce: the input tile has 1 dimensions, not 2");
    BAD(weft_symm_tile_reduce(blank(8, 8), blank(8, 8), WEFT_SUM, ME, w), WEFT_ERR_TYPE,
        "tile_reduce: the input tile is not symmetric memory; make it with weft_symm_empty");
    BAD(weft_symm_tile_reduce(blank(8, 8), meta, WEFT_SUM, ME, w), WEFT_ERR_UNSUPPORTED,
        "tile_reduce: the input tile is on meta");
    BAD(weft_symm_tile_reduce(meta, x, WEFT_SUM, ME, w), WEFT_ERR_UNSUPPORTED,
        "tile_reduce: the output tile is on meta");
    BAD(weft_symm_tile_reduce(weft_view(blank(8, 8), WEFT_SHAPE(64)), x, WEFT_SUM, ME, w),
        WEFT_ERR_INVALID_ARG, "tile_reduce: the output tile has 1 dimensions, not 2");
    BAD(weft_symm_tile_reduce(blank(8, 7), x, WEFT_SUM, ME, w), WEFT_ERR_INVALID_ARG,
        "tile_reduce: expected out shape [8, 8], not [8, 7]");
    BAD(weft_symm_tile_reduce(half(8, 8), x, WEFT_SUM, ME, w), WEFT_ERR_TYPE,
        "tile_reduce: the input is f32, the output f16");
    BAD(weft_symm_tile_reduce(blank(8, 8), x, WEFT_SUM, 8, w), WEFT_ERR_INVALID_ARG,
        "tile_reduce: rank 8 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_symm_tile_reduce(blank(8, 8), x, WEFT_SUM, -1, w), WEFT_ERR_INVALID_ARG,
        "tile_reduce: rank -1 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_symm_tile_reduce(blank(8, 8), x, WEFT_BAND, ME, w), WEFT_ERR_TYPE,
        "tile_reduce: reduction band has no meaning for f32");
    BAD(weft_symm_tile_reduce(weft_expand(blank(1, 8), WEFT_SHAPE(8, 8)), x, WEFT_SUM, ME, w),
        WEFT_ERR_INVALID_ARG, "tile_reduce: the output overlaps itself");
    BAD(weft_symm_tile_reduce(weft_narrow(all, 0, 4, 8), weft_narrow(all, 0, 0, 8), WEFT_SUM, ME,
                              w),
        WEFT_ERR_INVALID_ARG, "tile_reduce: the output tile does not lie apart from input tile 0");
    BAD(weft_symm_tile_reduce(blank(8, 8), x, WEFT_SUM, ME, NULL), WEFT_ERR_INVALID_ARG,
        "tile_reduce: the group is NULL");
    BAD(weft_symm_multi_root_tile_reduce(blank(8, 8), tiles, same, 2, WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG, "multi_root_tile_reduce: rank 3 is the root of tiles 0 and 1");
    BAD(weft_symm_multi_root_tile_reduce(blank(8, 8), mixed, roots, 2, WEFT_SUM, w), WEFT_ERR_TYPE,
        "multi_root_tile_reduce: tiles of f32 and i32");
    BAD(weft_symm_multi_root_tile_reduce(tiles[1], tiles, roots, 2, WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "multi_root_tile_reduce: the output tile does not lie apart from input tile 1");
    BAD(weft_symm_multi_root_tile_reduce(tiles[0], tiles, turned, 2, WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG,
        "multi_root_tile_reduce: the output tile does not lie apart from input tile 0");
    CHECK_STATUS(weft_symm_multi_root_tile_reduce(blank(8, 8), tiles, roots, -1, WEFT_SUM, w),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "multi_root_tile_reduce: -1 tiles at 0x");
    CHECK_STATUS(weft_symm_multi_root_tile_reduce(blank(8, 8), NULL, roots, 2, WEFT_SUM, w),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "multi_root_tile_reduce: 2 tiles at (nil) and 0x");
    CHECK_STATUS(weft_symm_multi_root_tile_reduce(blank(8, 8), tiles, NULL, 2, WEFT_SUM, w),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), " and (nil)");
    weft_clear_error();
    close_world();
}

TEST(test_refusals_symm_tiles_fine)
{
    open_operands();
    FINE(weft_symm_tile_reduce(x, x, WEFT_SUM, ME, w), "tile_reduce");
    FINE(weft_symm_tile_reduce(NULL, x, WEFT_SUM, ME + 1, w), "tile_reduce");
    FINE(weft_symm_multi_root_tile_reduce(tiles[0], tiles, roots, 2, WEFT_SUM, w),
         "multi_root_tile_reduce");
    FINE(weft_symm_multi_root_tile_reduce(NULL, NULL, NULL, 0, WEFT_SUM, w),
         "multi_root_tile_reduce");
    close_world();
}

TEST(test_refusals_symm_vdev)
{
    open_operands();
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), table, blank(8, 8), counts, w), WEFT_ERR_TYPE,
        "all_to_all_vdev: the input is not symmetric memory; make it with weft_symm_empty");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), table, x, plain_counts, w), WEFT_ERR_TYPE,
        "all_to_all_vdev: the table of splits is not symmetric memory; make it with "
        "weft_symm_empty");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), table, x, NULL, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: the table of splits is NULL");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), NULL, x, counts, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: the table of output splits is NULL");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), table, x, x, w), WEFT_ERR_TYPE,
        "all_to_all_vdev: the table of splits must be i64, not f32");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), blank(2, 8), x, counts, w), WEFT_ERR_TYPE,
        "all_to_all_vdev: the table of output splits must be i64, not f32");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), table, x, weft_narrow(counts, 0, 0, 7), w),
        WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: the table of splits has shape [7], which does not fit 8 ranks and the "
        "splits of the input");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), table, x, more, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: the table of splits has shape [16], which does not fit 8 ranks and the "
        "splits of the input");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), weft_narrow(table, 0, 0, 1), x, counts, w),
        WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: the table of output splits has shape [1, 8], which does not fit 8 ranks "
        "and the splits of the input");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), weft_view(table, WEFT_SHAPE(16)), x, counts, w),
        WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: the table of output splits has shape [16], which does not fit 8 ranks "
        "and the splits of the input");
    table->storage->read_only = true;
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), table, x, counts, w), WEFT_ERR_STATE,
        "all_to_all_vdev: the output is read-only memory");
    table->storage->read_only = false;
    BAD(weft_symm_all_to_all_vdev(blank(8, 7), table, x, counts, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: a row of the input has 32 bytes, one of the output 28");
    BAD(weft_symm_all_to_all_vdev(half(8, 8), table, x, counts, w), WEFT_ERR_TYPE,
        "all_to_all_vdev: the input is f32, the output f16");
    BAD(weft_symm_all_to_all_vdev(blank(8, 8), table, x, counts, NULL), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: the group is NULL");
    close_world();
}

TEST(test_refusals_symm_vdev_2d)
{
    open_operands();
    BAD(weft_symm_all_to_all_vdev(x, table, x, counts, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev: two of the operands overlap");
    BAD(weft_symm_all_to_all_vdev_2d(blank(8, 8), table, x, counts, 0, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev_2d: the alignment must be 1 or more, not 0");
    BAD(weft_symm_all_to_all_vdev_2d(blank(8, 8), table, x, more, 1, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev_2d: the table of output splits has shape [2, 8], which does not fit 8 "
        "ranks and the splits of the input");
    BAD(weft_symm_all_to_all_vdev_2d(blank(8, 8), table, x, weft_narrow(more, 0, 0, 12), 1, w),
        WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev_2d: the table of splits has shape [12], which does not fit 8 ranks");
    BAD(weft_symm_all_to_all_vdev_2d(blank(8, 8), table, x, weft_narrow(more, 0, 0, 0), 1, w),
        WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev_2d: the table of splits has shape [0], which does not fit 8 ranks");
    BAD(weft_symm_all_to_all_vdev_2d(blank(8, 8), table, x, both, 1, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev_2d: the table of splits has shape [2, 8], which does not fit 8 ranks");
    BAD(weft_symm_all_to_all_vdev_2d_offset(blank(8, 8), table, x, counts, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev_2d_offset: the table of splits has shape [8], which does not fit 8 ranks");
    BAD(weft_symm_all_to_all_vdev_2d_offset(blank(8, 8), both, x, both, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev_2d_offset: two of the operands overlap");
    BAD(weft_symm_all_to_all_vdev_2d_offset(weft_narrow(all, 0, 0, 8), table,
                                            weft_narrow(all, 0, 7, 8), both, w),
        WEFT_ERR_INVALID_ARG, "all_to_all_vdev_2d_offset: two of the operands overlap");
    BAD(weft_symm_all_to_all_vdev_2d(blank(8, 8), large_table, x, counts, 1, w),
        WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev_2d: the table of output splits has shape [2, 16], which does not fit 8 "
        "ranks and the splits of the input");
    BAD(weft_symm_all_to_all_vdev(longs, weft_narrow(longs, 0, 0, 2), long_in, counts, w),
        WEFT_ERR_INVALID_ARG, "all_to_all_vdev: two of the operands overlap");
    BAD(weft_symm_all_to_all_vdev(weft_view(counts, WEFT_SHAPE(1, 8)), table, long_in, counts, w),
        WEFT_ERR_INVALID_ARG, "all_to_all_vdev: two of the operands overlap");
    BAD(weft_symm_all_to_all_vdev(longs, weft_narrow(long_in, 0, 6, 2), long_in, counts, w),
        WEFT_ERR_INVALID_ARG, "all_to_all_vdev: two of the operands overlap");
    close_world();
}

TEST(test_refusals_symm_vdev_fine)
{
    open_operands();
    FINE(weft_symm_all_to_all_vdev(weft_narrow(all, 0, 8, 8), table, weft_narrow(all, 0, 0, 8),
                                   counts, w),
         "all_to_all_vdev");
    FINE(weft_symm_all_to_all_vdev_2d(blank(8, 8), table, x, counts, 1, w), "all_to_all_vdev_2d");
    FINE(weft_symm_all_to_all_vdev_2d(blank(8, 8), large_table, x, more, 1, w),
         "all_to_all_vdev_2d");
    FINE(weft_symm_all_to_all_vdev_2d_offset(blank(8, 8), table, x, both, w),
         "all_to_all_vdev_2d_offset");
    FINE(weft_symm_all_to_all_vdev(longs, table, long_in, counts, w), "all_to_all_vdev");
    close_world();
}

/* In place at the root, also if that is rank 0. */
TEST(test_refusals_symm_first_root)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, WORLD);
    CHECK_OK(weft_scope_open());
    weft_group *first = weft_fake_init(&opts);
    weft_tensor *in = symm(WEFT_F32, WEFT_SHAPE(8, 8));
    FINE(weft_symm_multimem_one_shot_reduce_out(in, in, WEFT_SUM, 0, first),
         "multimem_one_shot_reduce_out");
    close_world();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What operations on symmetric memory refuse, plainly and while they are captured, and what they say
 * then; see refusals.h. */
#include "refusals.h"

enum { CASES = 18 };

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
    default:
        return weft_symm_one_shot_all_reduce_copy_out(NULL, x, out, WEFT_SUM, w);
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
        {WEFT_ERR_INVALID_ARG, "one_shot_all_reduce_copy: the output is NULL"}};
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

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

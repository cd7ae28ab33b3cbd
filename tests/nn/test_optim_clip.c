/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/optim/optim_clip.c */
/* The norm of all gradients and its limit, in one rank and over the ranks of shards. */
#include "fault.h"
#include "jobs.h"
#include "leaf.h"

#include "tensor/object/tensor.h"

#include <math.h>

/* A parameter whose gradient is x. */
static weft_tensor *param_of(weft_tensor *x)
{
    weft_tensor *p = leaf(weft_zeros_like(x));
    CHECK_OK(weft_set_grad(p, x));
    return p;
}

/* Elements 1, 2, ... n times `factor`. */
static weft_tensor *ramp(weft_dtype dtype, int64_t n, double factor)
{
    return weft_mul_scalar(weft_arange(dtype, WEFT_CPU, 1, (double)n + 1, 1), factor);
}

/* Whole numbers: every order of sums gives the same bits, and so does a plain loop. */
static void check_plain(weft_dtype dtype, double limit)
{
    enum { A = 6, B = 5 };
    weft_scope_open();
    weft_tensor *a = weft_view(ramp(dtype, A, 1), WEFT_SHAPE(2, 3)), *b = ramp(dtype, B, -2);
    weft_named list[] = {{"a", param_of(a)},
                         {"none", leaf(weft_ones(dtype, WEFT_CPU, WEFT_SHAPE(2)))},
                         {"b", param_of(b)}};
    double square = 0, norm = -1;
    for (int i = 0; i < A; i++)
        square += (i + 1) * (i + 1);
    for (int i = 0; i < B; i++)
        square += 4 * (i + 1) * (i + 1);
    CHECK_OK(weft_clip_grad_norm(list, 3, limit, NULL, &norm));
    CHECK(norm == sqrt(square));
    double factor = norm > limit ? limit / norm : 1;
    for (int i = 0; i < A; i++) {
        double wanted = dtype == WEFT_F64 ? factor * (i + 1) : (float)(i + 1) * (float)factor;
        CHECK_NEAR(weft_item(weft_grad(list[0].tensor), i), wanted,
                   dtype == WEFT_BF16 ? wanted / 256 : 0);
    }
    CHECK((weft_item(weft_grad(list[2].tensor), 1) == -4) == (factor == 1));
    CHECK(!weft_grad(list[1].tensor));
    CHECK(weft_item(a, 5) == weft_item(weft_grad(list[0].tensor), 5)); /* in place */
    weft_scope_close();
}

TEST(test_clip_plain)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16};
    for (int i = 0; i < 3; i++) {
        check_plain(dtypes[i], 3);
        check_plain(dtypes[i], 1000);
        check_plain(dtypes[i], INFINITY);
    }
    CHECK_OK(weft_clip_grad_norm(NULL, 0, 1, NULL, NULL)); /* nothing to do */
}

/* Gradients of more than a piece, whole and turned: the bits of one sum in f64 over all of each. */
TEST(test_clip_long)
{
    static const int64_t lengths[] = {1, 511, 1 << 20, (1 << 20) + 1, 3 << 20, (7 << 19) + 77};
    enum { COUNT = sizeof lengths / sizeof *lengths };
    weft_scope_open();
    weft_named list[COUNT];
    double square = 0, norm = -1, far = 0;
    weft_seed(5);
    for (int i = 0; i < COUNT; i++) {
        weft_scope_open();
        weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(lengths[i]));
        if (lengths[i] % 3 == 0)
            x = weft_transpose(weft_view(x, WEFT_SHAPE(3, lengths[i] / 3)), 0, 1);
        weft_tensor *wide = weft_to_dtype(x, WEFT_F64);
        square += weft_item(weft_sum(weft_mul(wide, wide), NULL, 0, false), 0);
        list[i] = (weft_named){"", weft_keep(param_of(x))};
        weft_scope_close();
    }
    CHECK_OK(weft_clip_grad_norm(list, COUNT, 2, NULL, &norm));
    CHECK(norm == sqrt(square) && norm > 1000);
    CHECK_OK(weft_clip_grad_norm(list, COUNT, INFINITY, NULL, &far));
    CHECK_NEAR(far, 2, 1e-6);
    for (int i = 0; i < COUNT; i++)
        weft_release(list[i].tensor);
    weft_scope_close();
}

/* ---- what is refused ---- */

static void check_refused(weft_named *list, int count, double limit, weft_status status,
                          const char *text)
{
    weft_clear_error();
    CHECK_INT(weft_clip_grad_norm(list, count, limit, NULL, NULL), status);
    CHECK_CONTAINS(weft_last_error(), text);
    weft_clear_error();
}

TEST(test_clip_refused)
{
    weft_scope_open();
    weft_tensor *x = ramp(WEFT_F32, 3, 1), *p = param_of(x);
    weft_named list[] = {{"p", p}, {"q", p}};
    check_refused(list, 2, 1, WEFT_ERR_INVALID_ARG,
                  "parameters \"p\" and \"q\" have the same gradient");
    list[1].tensor = param_of(x);
    check_refused(list, 2, 1, WEFT_ERR_INVALID_ARG, "have the same gradient");
    list[1].tensor = NULL;
    check_refused(list, 2, 1, WEFT_ERR_INVALID_ARG, "parameter \"q\" is NULL");
    list[1].tensor =
        param_of(weft_expand(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1)), WEFT_SHAPE(4)));
    check_refused(list, 2, 1, WEFT_ERR_INVALID_ARG,
                  "the gradient of parameter \"q\" cannot be scaled in place: several");
    list[1].tensor = param_of(weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(4)));
    check_refused(list, 2, 1, WEFT_ERR_TYPE, "parameter \"q\" is on meta");
    weft_tensor *freed = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    list[1].tensor = param_of(freed);
    CHECK_OK(weft_resize_storage(freed, 0));
    check_refused(list, 2, 1, WEFT_ERR_STATE, "the gradient of parameter \"q\"");
    check_refused(list, 1, 0, WEFT_ERR_INVALID_ARG, "a limit of 0");
    check_refused(list, 1, -1, WEFT_ERR_INVALID_ARG, "a limit of -1");
    check_refused(list, 1, NAN, WEFT_ERR_INVALID_ARG, "a limit of nan");
    check_refused(list, -1, 1, WEFT_ERR_INVALID_ARG, "a list of -1");
    check_refused(NULL, 2, 1, WEFT_ERR_INVALID_ARG, "a list of 0");
    CHECK(weft_item(x, 2) == 3);
    weft_scope_close();
}

static void check_numeric(weft_dtype dtype, double bad)
{
    weft_scope_open();
    weft_tensor *fine = ramp(dtype, 3, 10), *x = ramp(dtype, 4, 1);
    weft_named list[] = {
        {"fine", param_of(fine)}, {"bad", param_of(x)}, {"later", param_of(weft_clone(x))}};
    CHECK_OK(weft_fill(weft_narrow(x, 0, 2, 1), bad));
    CHECK_OK(weft_fill(weft_grad(list[2].tensor), bad));
    double norm = 0;
    CHECK_STATUS(weft_clip_grad_norm(list, 3, 1, NULL, &norm), WEFT_ERR_NUMERIC);
    CHECK_CONTAINS(weft_last_error(), "the gradient of parameter \"bad\" has an infinity or NaN");
    CHECK(!isfinite(norm) && weft_item(fine, 2) == 30 && weft_item(x, 3) == 4);
    weft_clear_error();
    weft_scope_close();
}

TEST(test_clip_not_finite)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
    for (int i = 0; i < 4; i++) {
        check_numeric(dtypes[i], NAN);
        check_numeric(dtypes[i], INFINITY);
        check_numeric(dtypes[i], -INFINITY);
    }
    check_numeric(WEFT_F64, 1e200);
    weft_scope_open();
    double norm = 0;
    weft_named large = {"large", param_of(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), 3e38))};
    CHECK_OK(weft_clip_grad_norm(&large, 1, 1, NULL, &norm)); /* f32 squares fit into f64 */
    CHECK_NEAR(norm, 3e38 * sqrt(3), 1e32);
    CHECK_NEAR(weft_item(weft_grad(large.tensor), 1), 1 / sqrt(3), 1e-6);
    weft_scope_close();
}

/* Whatever allocation fails, no gradient has changed, and a later try succeeds. */
TEST(test_clip_without_memory)
{
    weft_scope_open();
    weft_tensor *x = ramp(WEFT_F32, 3, 1), *y = ramp(WEFT_F32, 3 << 19, 1e-6);
    weft_named list[] = {{"x", param_of(x)}, {"y", param_of(y)}};
    double norm = 0;
    int failed = 0;
    for (int n = 1;; n++, failed++) {
        fault_arm(n);
        weft_status status = weft_clip_grad_norm(list, 2, 1, NULL, &norm);
        if (!fault_disarm())
            break;
        CHECK(status == WEFT_OK || status == WEFT_ERR_NO_MEMORY);
        if (status == WEFT_OK) /* weft went on without */
            CHECK_OK(weft_copy(x, ramp(WEFT_F32, 3, 1)));
        CHECK(weft_item(x, 0) == 1 && weft_item(x, 2) == 3);
        weft_clear_error();
    }
    CHECK(failed >= 2 && weft_item(x, 0) < 1);
    weft_scope_close();
}

static weft_status clip_in_capture(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                                   void *user)
{
    (void)ins, (void)outs;
    out[0] = weft_neg(in[0]);
    return weft_clip_grad_norm(user, 1, 1, NULL, NULL);
}

TEST(test_clip_is_not_captured)
{
    weft_scope_open();
    weft_tensor *x = ramp(WEFT_F32, 3, 1);
    weft_named p = {"p", param_of(x)};
    CHECK(!weft_graph_capture("f", clip_in_capture, &p, &x, 1, 1));
    CHECK_CONTAINS(weft_last_error(), "weft_clip_grad_norm: cannot be captured");
    weft_clear_error();
    weft_scope_close();
}

/* ---- shards ---- */

/* The part of this rank of 0 ... 8 * ranks - 1. */
static weft_tensor *shard(int rank)
{
    return weft_arange(WEFT_F32, WEFT_CPU, 8 * rank, 8 * rank + 8, 1);
}

static void check_same_bits(double value, weft_group *world)
{
    weft_tensor *mine = weft_tensor_from(WEFT_F64, WEFT_SHAPE(1), &value);
    weft_tensor *all = weft_all_gather_tensor(mine, 0, world);
    for (int i = 0; i < weft_size(world); i++)
        CHECK(weft_item(all, i) == value);
}

/* As clipping the whole in one rank. */
RANKS_TEST(test_clip_shards, 4)
{
    weft_group *world = join(20000);
    weft_scope_open();
    double whole_norm, norm;
    weft_tensor *mine = shard(rank), *all = weft_arange(WEFT_F32, WEFT_CPU, 0, 8 * size, 1);
    weft_named part = {"w", param_of(mine)}, whole = {"w", param_of(all)};
    CHECK_OK(weft_clip_grad_norm(&whole, 1, 5, NULL, &whole_norm));
    CHECK_OK(weft_clip_grad_norm(&part, 1, 5, world, &norm));
    CHECK(norm == whole_norm && norm > 5);
    CHECK(weft_equal(mine, weft_narrow(all, 0, 8 * rank, 8)));
    /* Random ones: each rank's own sum has other bits, the norm has the same everywhere. */
    weft_seed(100 + (uint64_t)rank);
    weft_named odd = {"odd", param_of(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(777)))};
    CHECK_OK(weft_clip_grad_norm(&odd, 1, 1, world, &norm));
    check_same_bits(norm, world);
    CHECK_OK(weft_clip_grad_norm(NULL, 0, 1, world, &norm)); /* all without a gradient */
    CHECK(norm == 0);
    weft_scope_close();
    finish(world);
}

/* Ranks 1 and 2 have a bad gradient: all hear of the first parameter, and none has changed. */
RANKS_TEST(test_clip_shards_not_finite, 3)
{
    weft_group *world = join(20000);
    weft_scope_open();
    double norm = 0;
    weft_tensor *a = shard(rank), *b = shard(rank);
    weft_named list[] = {{"a", param_of(a)}, {"b", param_of(b)}};
    if (rank == 1)
        CHECK_OK(weft_fill(weft_narrow(b, 0, 3, 1), NAN));
    if (rank == 2)
        CHECK_OK(weft_fill(weft_narrow(b, 0, 3, 1), INFINITY));
    CHECK_STATUS(weft_clip_grad_norm(list, 2, 1, world, &norm), WEFT_ERR_NUMERIC);
    CHECK_CONTAINS(weft_last_error(), "the gradient of parameter \"b\" on rank 1 has an infinity");
    CHECK(isnan(norm) && weft_item(a, 7) == 8 * rank + 7);
    weft_clear_error();
    CHECK_OK(weft_fill(b, 1));
    CHECK_OK(weft_clip_grad_norm(list, 2, 1, world, &norm)); /* the group goes on */
    check_same_bits(norm, world);
    weft_scope_close();
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/rule_coll.c, grad/rule_coll_list.c, functional/traced.c */
/*
 * Gradients through functional collectives: the reference tests under their own names, every rule
 * against differences of the sum of all ranks' losses, what is refused, and what does not wait.
 */
#include "functional_jobs.h"
#include "leaf.h"
#include "sanitized.h"

#include "functional/ops.h"
#include "grad/rule.h"

/* ---- TestGradCollectives ---- */

RANKS_TEST(test_all_reduce, 2)
{
    weft_group *world = join(30000);
    weft_seed(17 + (uint64_t)rank);
    weft_tensor *x = leaf(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))),
                *y = leaf(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)));
    weft_tensor *out = weft_all_reduce(x, WEFT_SUM, world);
    CHECK(weft_requires_grad(out) && !weft_is_leaf(out));
    CHECK_OK(weft_backward(total(weft_add(out, y))));
    CHECK_ALL(weft_grad(x), WEFT_SHAPE(4), 2);
    CHECK_ALL(weft_grad(y), WEFT_SHAPE(4), 1);
    leave(world);
}

/* The detached form: the result is a constant, as in older versions of the reference. */
RANKS_TEST(test_all_reduce_detached, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))),
                *y = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)));
    weft_tensor *out = weft_all_reduce(weft_detach(x), WEFT_MAX, world), *same = NULL;
    CHECK(!weft_requires_grad(out));
    WEFT_NO_GRAD
    {
        same = weft_all_reduce(x, WEFT_PRODUCT, world);
    }
    CHECK(same && !weft_requires_grad(same));
    CHECK_OK(weft_backward(total(weft_add(weft_add(out, same), y))));
    CHECK(!weft_grad(x));
    CHECK_ALL(weft_grad(y), WEFT_SHAPE(4), 1);
    leave(world);
}

/* ---- TestFunctionalAutograd ---- */

RANKS_TEST(test_all_to_all_single, 2)
{
    weft_group *world = join(30000);
    weft_tensor *t = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2)));
    const int64_t splits[] = {1, 1};
    weft_tensor *out =
        weft_add_scalar(weft_all_to_all_single(weft_mul_scalar(t, 2), splits, splits, world), 0);
    CHECK(weft_requires_grad(out) && !weft_is_leaf(out));
    CHECK_ALL(weft_detach(out), WEFT_SHAPE(2, 2), 2);
    CHECK_OK(weft_backward(total(out)));
    CHECK_ALL(weft_grad(t), WEFT_SHAPE(2, 2), 2);
    leave(world);
}

/* With and without a step between the collective and the sum, whose gradient is one number spread
 * over the whole shape. */
static void check_gather(weft_group *world, int dim, bool bare)
{
    weft_tensor *t = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 3, 3)));
    weft_shape shape = WEFT_SHAPE(3, 3, 3);
    shape.dim[dim] *= 2;
    weft_tensor *out = weft_all_gather_tensor(weft_mul_scalar(t, 1), dim, world);
    out = bare ? out : weft_mul_scalar(out, 1);
    CHECK(weft_requires_grad(out));
    CHECK_ALL(weft_detach(out), shape, 1);
    CHECK_OK(weft_backward(total(out)));
    CHECK_ALL(weft_grad(t), WEFT_SHAPE(3, 3, 3), 2);
}

RANKS_TEST(test_all_gather_tensor, 2)
{
    weft_group *world = join(30000);
    for (int dim = 0; dim < 3; dim++) {
        check_gather(world, dim, false);
        check_gather(world, dim, true);
    }
    leave(world);
}

static void check_scatter(weft_group *world, int dim, bool bare)
{
    weft_shape shape = dim ? WEFT_SHAPE(3, 6) : WEFT_SHAPE(6, 3);
    weft_tensor *t = leaf(weft_ones(WEFT_F32, WEFT_CPU, shape));
    weft_tensor *out = weft_reduce_scatter_tensor(weft_mul_scalar(t, 1), WEFT_SUM, dim, world);
    out = bare ? out : weft_mul_scalar(out, 1);
    CHECK(weft_requires_grad(out));
    CHECK_ALL(weft_detach(out), WEFT_SHAPE(3, 3), 2);
    CHECK_OK(weft_backward(total(out)));
    CHECK_ALL(weft_grad(t), shape, 1);
}

RANKS_TEST(test_reduce_scatter_tensor, 2)
{
    weft_group *world = join(30000);
    for (int dim = 0; dim < 2; dim++) {
        check_scatter(world, dim, false);
        check_scatter(world, dim, true);
    }
    leave(world);
}

/* ---- every rule against differences ---- */

struct job {
    weft_group *world;
    int rank, size;
    weft_tensor *(*body)(weft_tensor *x, const struct job *job);
};

static weft_tensor *join_all(weft_tensor *const *parts, size_t count)
{
    weft_tensor *flat[4];
    for (size_t i = 0; i < count; i++)
        flat[i] = weft_reshape(parts[i], WEFT_SHAPE(-1));
    return weft_cat(flat, count, 0);
}

static weft_tensor *sum_all(weft_tensor *x, const struct job *job)
{
    return weft_all_reduce(x, WEFT_SUM, job->world);
}

static weft_tensor *average_all(weft_tensor *x, const struct job *job)
{
    return weft_all_reduce(weft_transpose(x, 0, 1), WEFT_AVG, job->world);
}

static weft_tensor *premul_all(weft_tensor *x, const struct job *job)
{
    weft_set_premul(0.5 + job->rank);
    weft_tensor *y = weft_all_reduce(x, WEFT_PREMUL_SUM, job->world);
    weft_set_premul(1); /* the rule has the factor of the call */
    return y;
}

static weft_tensor *in_place(weft_tensor *x, const struct job *job)
{
    return weft_all_reduce_(weft_mul_scalar(x, 2), WEFT_AVG, job->world);
}

/* A part of a tensor, in place: the rest keeps its gradient. */
static weft_tensor *view_in_place(weft_tensor *x, const struct job *job)
{
    weft_tensor *y = weft_mul_scalar(x, 2);
    return weft_all_reduce_(weft_narrow(y, 0, 0, 2), WEFT_SUM, job->world) ? y : NULL;
}

/* One of the tensors needs no gradient. */
static weft_tensor *several(weft_tensor *x, const struct job *job)
{
    weft_tensor *plain = weft_ones(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3));
    weft_tensor *in[] = {weft_select(x, 1, 0), plain, weft_transpose(x, 0, 1)}, *out[3];
    weft_status status = weft_all_reduce_coalesced(out, in, 3, WEFT_AVG, job->world);
    return status < 0 ? NULL : join_all(out, 3);
}

/* Nobody uses one of the results. */
static weft_tensor *several_in_place(weft_tensor *x, const struct job *job)
{
    weft_tensor *y[] = {weft_mul_scalar(x, 2), weft_sin(x), weft_cos(x)};
    weft_set_premul(1.5 - job->rank);
    weft_status status = weft_all_reduce_coalesced_(y, 3, WEFT_PREMUL_SUM, job->world);
    weft_set_premul(1);
    if (status < 0 || !weft_wait_tensor(y[2]))
        return NULL;
    return join_all(y, 2);
}

static weft_tensor *gather_rows(weft_tensor *x, const struct job *job)
{
    return weft_all_gather_tensor(x, 0, job->world);
}

static weft_tensor *gather_columns(weft_tensor *x, const struct job *job)
{
    return weft_all_gather_tensor(x, -1, job->world);
}

static weft_tensor *gather_single(weft_tensor *x, const struct job *job)
{
    return weft_all_gather_tensor(total(x), 0, job->world);
}

/* What was there before is gone, the other half stays. */
static weft_tensor *gather_out(weft_tensor *x, const struct job *job)
{
    weft_tensor *both[] = {x, x, x};
    weft_tensor *y = weft_cat(both, (size_t)job->size, 0);
    weft_tensor *half = weft_narrow(y, 1, 0, 1);
    return weft_all_gather_into_tensor_out(half, weft_narrow(x, 1, 1, 1), 0, job->world) ? y : NULL;
}

static weft_tensor *gather_several(weft_tensor *x, const struct job *job)
{
    weft_tensor *in[] = {x, total(x), weft_transpose(x, 0, 1)}, *out[3];
    weft_status status = weft_all_gather_into_tensor_coalesced(out, in, 3, job->world);
    return status < 0 ? NULL : join_all(out, 3);
}

static weft_tensor *scatter_rows(weft_tensor *x, const struct job *job)
{
    return weft_reduce_scatter_tensor(x, WEFT_SUM, 0, job->world);
}

static weft_tensor *scatter_columns(weft_tensor *x, const struct job *job)
{
    return weft_reduce_scatter_tensor(weft_transpose(x, 0, 1), WEFT_AVG, -1, job->world);
}

static weft_tensor *scatter_premul(weft_tensor *x, const struct job *job)
{
    weft_set_premul(0.5 + job->rank);
    weft_tensor *y = weft_reduce_scatter_tensor(x, WEFT_PREMUL_SUM, 0, job->world);
    weft_set_premul(1);
    return y;
}

static weft_tensor *scatter_out(weft_tensor *x, const struct job *job)
{
    weft_tensor *y = weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(1, 2));
    return weft_reduce_scatter_tensor_out(y, x, WEFT_AVG, 0, job->world);
}

static weft_tensor *scatter_several(weft_tensor *x, const struct job *job)
{
    weft_tensor *in[] = {x, weft_transpose(x, 0, 1)}, *out[2], *more[2];
    weft_tensor *rows[] = {x, weft_mul(x, x)};
    if (weft_reduce_scatter_tensor_coalesced(out, in, 2, WEFT_AVG, (int[]){0, 1}, job->world) < 0 ||
        weft_reduce_scatter_tensor_coalesced(more, rows, 2, WEFT_SUM, (int[]){0, -2}, job->world) <
            0)
        return NULL;
    weft_tensor *all[] = {out[0], out[1], more[0], more[1]};
    return join_all(all, 4);
}

static weft_tensor *exchange(weft_tensor *x, const struct job *job)
{
    return weft_all_to_all_single(x, NULL, NULL, job->world);
}

/* How many rows rank r sends to rank q, and gets from it. */
static int64_t rows_between(int r, int q)
{
    return (r + q) % 2 + (r == q ? 0 : 1);
}

static weft_tensor *twice(weft_tensor *x)
{
    weft_tensor *both[] = {x, weft_cos(x)};
    return weft_cat(both, 2, 0);
}

static weft_tensor *exchange_uneven(weft_tensor *x, const struct job *job)
{
    int64_t splits[8], rows = 0;
    for (int q = 0; q < job->size; q++)
        rows += splits[q] = rows_between(job->rank, q);
    return weft_all_to_all_single(weft_narrow(twice(x), 0, 0, rows), splits, splits, job->world);
}

static weft_tensor *exchange_list(weft_tensor *x, const struct job *job)
{
    weft_tensor *in[4], *out[4];
    weft_shape shapes[4];
    for (int q = 0; q < job->size; q++) {
        weft_tensor *from = q ? twice(x) : weft_ones(WEFT_F64, WEFT_CPU, WEFT_SHAPE(4, 2));
        in[q] = weft_narrow(from, 0, q, rows_between(job->rank, q));
        in[q] = q == 1 ? weft_transpose(in[q], 0, 1) : in[q]; /* rank 1 gets columns */
        int64_t rows = rows_between(job->rank, q);
        shapes[q] = job->rank == 1 ? WEFT_SHAPE(2, rows) : WEFT_SHAPE(rows, 2);
    }
    weft_status status = weft_all_to_all(out, in, shapes, job->world);
    return status < 0 ? NULL : join_all(out, (size_t)job->size);
}

static weft_tensor *from_one(weft_tensor *x, const struct job *job)
{
    return weft_broadcast(x, 1, job->world);
}

static weft_tensor *from_one_in_place(weft_tensor *x, const struct job *job)
{
    return weft_broadcast_(weft_mul(x, x), 0, job->world);
}

static weft_tensor *permuted(weft_tensor *x, const struct job *job)
{
    int to[8];
    for (int r = 0; r < job->size; r++)
        to[r] = (r + 1) % job->size;
    weft_tensor *both[] = {weft_permute_tensor(x, to, job->world),
                           weft_permute_tensor(total(x), to, job->world)};
    return join_all(both, 2);
}

static weft_tensor *waited(weft_tensor *x, const struct job *job)
{
    weft_tensor *y = weft_all_reduce(x, WEFT_SUM, job->world);
    return weft_wait_tensor(y) == y ? y : NULL;
}

/* Two collectives of two ways that meet again: ranks walk them in one order. */
static weft_tensor *branches(weft_tensor *x, const struct job *job)
{
    weft_tensor *a = weft_all_gather_tensor(weft_sin(x), 0, job->world);
    weft_tensor *b = weft_all_reduce(weft_mul(x, x), WEFT_SUM, job->world);
    return weft_add(weft_reduce_scatter_tensor(a, WEFT_AVG, 0, job->world), b);
}

/* The shard and both right-hand sides need gradients, and what was gathered is used too. */
static weft_tensor *gather_products(weft_tensor *x, const struct job *job)
{
    weft_tensor *b[] = {weft_narrow(weft_sin(x), 0, 0, 2), weft_transpose(weft_cos(x), 0, 1)};
    weft_tensor *out[3];
    weft_status status = weft_all_gather_matmul(&out[2], out, x, b, 2, 0, job->world);
    return status < 0 ? NULL : join_all(out, 3);
}

/* Along the dimension that the product sums over; nobody wants what was gathered. */
static weft_tensor *gather_columns_product(weft_tensor *x, const struct job *job)
{
    weft_tensor *b = twice(x), *out; /* a row for each column of everybody's */
    return weft_all_gather_matmul(NULL, &out, x, &b, 1, -1, job->world) < 0 ? NULL : out;
}

static weft_tensor *product_scatter(weft_tensor *x, const struct job *job)
{
    weft_tensor *b = weft_narrow(weft_sin(x), 0, 0, 2);
    return weft_matmul_reduce_scatter(x, b, WEFT_AVG, 0, job->world);
}

static weft_tensor *product_scatter_columns(weft_tensor *x, const struct job *job)
{
    return weft_matmul_reduce_scatter(x, weft_transpose(weft_cos(x), 0, 1), WEFT_SUM, -1,
                                      job->world);
}

static const struct {
    const char *row;
    weft_tensor *(*body)(weft_tensor *x, const struct job *job);
} bodies[] = {
    {"all_reduce", sum_all},
    {"all_reduce", average_all},
    {"all_reduce", premul_all},
    {"all_reduce_", in_place},
    {"all_reduce_", view_in_place},
    {"all_reduce_coalesced", several},
    {"all_reduce_coalesced_", several_in_place},
    {"all_gather_into_tensor", gather_rows},
    {"all_gather_into_tensor", gather_columns},
    {"all_gather_into_tensor", gather_single},
    {"all_gather_into_tensor_out", gather_out},
    {"all_gather_into_tensor_coalesced", gather_several},
    {"reduce_scatter_tensor", scatter_rows},
    {"reduce_scatter_tensor", scatter_columns},
    {"reduce_scatter_tensor", scatter_premul},
    {"reduce_scatter_tensor_out", scatter_out},
    {"reduce_scatter_tensor_coalesced", scatter_several},
    {"all_to_all_single", exchange},
    {"all_to_all_single", exchange_uneven},
    {"all_to_all", exchange_list},
    {"broadcast", from_one},
    {"broadcast_", from_one_in_place},
    {"all_to_all_single", permuted},
    {"wait_tensor", waited},
    {"all_reduce", branches},
    {"all_gather_matmul", gather_products},
    {"all_gather_matmul", gather_columns_product},
    {"matmul_reduce_scatter", product_scatter},
    {"matmul_reduce_scatter", product_scatter_columns},
};
enum { BODIES = sizeof bodies / sizeof *bodies };

/* Rows for groups that are no collectives of tensors that differ by rank: test_parallelize and
 * test_layers compare their gradients. */
static bool is_elsewhere(const char *row)
{
    return !strcmp(row, "flow") || !strcmp(row, "recompute");
}

TEST(test_functional_grad_every_row_is_checked)
{
    for (weft_i_op_table *table = weft_i_op_tables(); table; table = table->next)
        for (size_t i = 0; i < table->count; i++) {
            const weft_i_op *op = table->rows[i];
            bool found = !strchr(op->kinds, 'g') || (op->gradient && op->gradient->why) ||
                         is_elsewhere(op->name);
            for (int k = 0; k < BODIES && !found; k++)
                found = !strcmp(bodies[k].row, op->name);
            if (!found)
                FAIL("%s has no body here", op->name);
        }
    for (int k = 0; k < BODIES; k++)
        CHECK(weft_i_op_find(bodies[k].row)); /* none of a floor that was not linked */
}

/* Not linear, different on every rank and element. */
static weft_tensor *loss_of(weft_tensor *y, int rank)
{
    weft_tensor *flat = weft_reshape(y, WEFT_SHAPE(-1));
    if (!flat)
        return NULL;
    weft_tensor *weights =
        weft_arange(WEFT_F64, WEFT_CPU, 1, (double)weft_tensor_numel(flat) + 1, 1);
    weights = weft_cos(weft_mul_scalar(weights, 0.7 + rank));
    return total(weft_mul(weft_sin(flat), weights));
}

/*
 * The sum of all ranks' losses as a function of all ranks' inputs, [size, ...], the same on all
 * ranks.  Each uses its own; the average in front adds up what they find, and the one behind lets
 * every rank's seed reach every rank: so that all of them have the gradient of the sum.  Its value
 * is the sum, its gradient that of the rank's own loss.
 */
static weft_tensor *sum_of_losses(weft_tensor *const *all, void *user)
{
    const struct job *job = user;
    weft_tensor *x = weft_select(weft_all_reduce(all[0], WEFT_AVG, job->world), 0, job->rank);
    weft_tensor *y = job->body(x, job);
    weft_tensor *loss = y ? loss_of(y, job->rank) : NULL;
    if (!loss)
        return NULL;
    weft_tensor *own = weft_mul_scalar(loss, job->size);
    weft_tensor *sum = weft_all_reduce(weft_detach(loss), WEFT_SUM, job->world);
    weft_tensor *shown = weft_add(own, weft_detach(weft_sub(sum, own)));
    return weft_all_reduce(shown, WEFT_AVG, job->world);
}

enum { SANITIZED = SANITIZED_ADDRESS || SANITIZED_THREAD };

/* Sanitizers take ten times as long: there each body runs with two ranks or with three. */
static void check_bodies(int rank, int size)
{
    weft_group *world = join(30000);
    weft_gradcheck_opts opts = WEFT_GRADCHECK_OPTS;
    opts.second = size == 2 || !SANITIZED;
    for (int k = SANITIZED ? size % 2 : 0; k < BODIES; k += SANITIZED ? 2 : 1) {
        struct job job = {world, rank, size, bodies[k].body};
        CHECK_OK(weft_scope_open());
        weft_tensor *all = weft_view(weft_arange(WEFT_F64, WEFT_CPU, 0, size * size * 2, 1),
                                     WEFT_SHAPE(size, size, 2));
        all = leaf(weft_clone(weft_mul_scalar(all, 0.17)));
        if (weft_gradcheck(sum_of_losses, &job, &all, 1, &opts) < 0)
            FAIL("%d, %s: %s", k, bodies[k].row, weft_last_error());
        CHECK_OK(weft_scope_close());
    }
    leave(world);
}

RANKS_TEST(test_functional_gradcheck_of_two, 2)
{
    check_bodies(rank, size);
}

RANKS_TEST(test_functional_gradcheck_of_three, 3)
{
    check_bodies(rank, size);
}

/* A rule that forgets the other ranks is found. */
static weft_status forgetful(weft_i_back *c)
{
    c->grad[0] = c->g[0];
    return WEFT_OK;
}

RANKS_TEST(test_functional_gradcheck_finds_a_planted_rule, 2)
{
    static const weft_i_gradient planted = {.back = forgetful};
    static const weft_i_gradient *rule;
    weft_group *world = join(30000);
    weft_i_op *row = weft_i_op_find("all_to_all_single");
    if (rank == 0 || !harness_in_threads) /* one registry for all threads */
        rule = row->gradient, row->gradient = &planted;
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    struct job job = {world, rank, size, exchange};
    weft_tensor *all = leaf(weft_rand(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2, 4, 2)));
    CHECK_STATUS(weft_gradcheck(sum_of_losses, &job, &all, 1, NULL), WEFT_ERR_NUMERIC);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0 || !harness_in_threads)
        row->gradient = rule;
    leave(world);
}

/* ---- refused at forward time ---- */

RANKS_TEST(test_functional_grad_refuses_reductions, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))), *y = weft_mul_scalar(x, 1);
    weft_tensor *out[1], *target = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK(!weft_all_reduce(x, WEFT_MAX, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "reduction max has no gradient");
    CHECK_CONTAINS(weft_last_error(), "weft_detach");
    weft_clear_error();
    CHECK(!weft_all_reduce_(y, WEFT_PRODUCT, world));
    CHECK(!weft_reduce_scatter_tensor(x, WEFT_MIN, 0, world));
    CHECK(!weft_reduce_scatter_tensor_out(target, x, WEFT_MIN, 0, world));
    CHECK_STATUS(weft_all_reduce_coalesced(out, &x, 1, WEFT_MAX, world), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_all_reduce_coalesced_(&y, 1, WEFT_MAX, world), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_reduce_scatter_tensor_coalesced(out, &x, 1, WEFT_MAX, NULL, world),
                 WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    CHECK_INT(weft_unwaited(world), 0); /* nothing was sent */
    weft_tensor *whole = weft_ones(WEFT_I64, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_ALL(weft_all_reduce(whole, WEFT_MAX, world), WEFT_SHAPE(4), 1);
    leave(world);
}

/* ---- waiting ---- */

/* Rank 1 does not enter backward until rank 0 has left it: rank 0's gradient is under way. */
RANKS_TEST(test_functional_grad_is_not_waited_for, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)));
    weft_tensor *loss = total(weft_all_reduce(x, WEFT_SUM, world));
    CHECK_INT(weft_unwaited(world), 0);
    if (rank == 1)
        CHECK(harness_await(0, 1));
    CHECK_OK(weft_backward(loss));
    CHECK_INT(weft_unwaited(world), 1);
    if (rank == 0)
        harness_mark();
    CHECK_ALL(weft_grad(x), WEFT_SHAPE(4), 2);
    CHECK_INT(weft_unwaited(world), 0);
    leave(world);
}

/* A view on the way does not wait either. */
RANKS_TEST(test_functional_grad_through_views_is_not_waited_for, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3)));
    weft_tensor *turned = weft_transpose(x, 0, 1);
    weft_tensor *loss = total(weft_all_gather_tensor(turned, 0, world));
    if (rank == 1)
        CHECK(harness_await(0, 1));
    weft_tensor *grad = NULL;
    CHECK_OK(weft_gradients(&grad, &x, 1, &loss, 1, NULL));
    CHECK_INT(weft_unwaited(world), 1);
    if (rank == 0)
        harness_mark();
    CHECK_ALL(grad, WEFT_SHAPE(2, 3), 2);
    leave(world);
}

/* ---- meta ---- */

TEST(test_functional_grad_on_meta)
{
    weft_group *two = weft_group_stand_in("two", 2);
    weft_tensor *x = leaf(weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(4, 2)));
    weft_tensor *y[] = {weft_all_reduce(x, WEFT_SUM, two), weft_all_gather_tensor(x, 1, two),
                        weft_reduce_scatter_tensor(x, WEFT_AVG, 0, two),
                        weft_all_to_all_single(x, NULL, NULL, two), weft_broadcast(x, 0, two)};
    for (size_t i = 0; i < sizeof y / sizeof *y; i++) {
        weft_tensor *loss = y[i] ? total(y[i]) : NULL, *grad = NULL;
        if (!loss || weft_gradients(&grad, &x, 1, &loss, 1, NULL) < 0)
            FAIL("%zu: %s", i, weft_last_error());
        CHECK(weft_i_shape_equal(weft_tensor_shape(grad), WEFT_SHAPE(4, 2)));
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

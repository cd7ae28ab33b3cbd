/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/grad.c, grad/backward.c, grad/engine.c, grad/node.c, grad/history.c, grad/recorder.c,
 * grad/accumulate.c */
/*
 * Recording and backward: values, what is saved, writes in place, views, chosen inputs, second
 * derivatives, and the end of graphs.
 */
#include "harness.h"
#include "leaf.h"

#include "base/os/os.h"
#include "tensor/op/ops.h"
#include "weft/grad.h"
#include "weft/op.h"
#include "weft/view.h"

#include <pthread.h>

static weft_tensor *ones(int n)
{
    return weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(n));
}

static void check_all(weft_tensor *x, double value, double tolerance)
{
    CHECK(x != NULL);
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        CHECK_NEAR(weft_item(x, i), value, tolerance);
}

TEST(test_leaf_gets_gradient)
{
    weft_tensor *x = leaf(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 0.5)), *y = weft_sin(x);
    CHECK(weft_requires_grad(x) && weft_is_leaf(x));
    CHECK(weft_requires_grad(y) && !weft_is_leaf(y));
    CHECK(weft_grad(x) == NULL);
    CHECK_OK(weft_backward(total(y)));
    check_all(weft_grad(x), cos(0.5), 1e-6);
    CHECK(!weft_requires_grad(weft_grad(x)));
    CHECK(weft_grad(y) == NULL); /* not asked for */
}

TEST(test_plain_tensors_record_nothing)
{
    weft_tensor *x = ones(4), *y = weft_view(weft_sin(x), WEFT_SHAPE(2, 2));
    CHECK(!weft_requires_grad(y) && weft_is_leaf(y) && y->grad == NULL);
    CHECK_STATUS(weft_backward(total(y)), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "requires no gradients");
    weft_tensor *whole = weft_arange(WEFT_I64, WEFT_CPU, 0, 4, 1);
    CHECK_STATUS(weft_require_grad(whole, true), WEFT_ERR_TYPE);
}

/* Several paths to one leaf are summed, broadcast arguments and dtypes fitted. */
TEST(test_gradient_fits_its_leaf)
{
    weft_tensor *w = leaf(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), 2));
    weft_tensor *x = leaf(weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(4, 3), 5));
    weft_tensor *b = leaf(weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(4, 1), 1));
    CHECK_OK(weft_backward(total(weft_add(weft_mul(x, w), weft_mul(b, w)))));
    CHECK(weft_tensor_dtype(weft_grad(w)) == WEFT_F32 && weft_tensor_ndim(weft_grad(w)) == 1);
    check_all(weft_grad(w), 4 * 5 + 4 * 1, 1e-6);
    CHECK(weft_tensor_dtype(weft_grad(x)) == WEFT_F64);
    check_all(weft_grad(x), 2, 0);
    CHECK(weft_tensor_dtype(weft_grad(b)) == WEFT_BF16);
    check_all(weft_grad(b), 6, 0);
}

/* Absent: taken over or copied; present: added to in place, the same tensor. */
TEST(test_accumulation_keeps_the_tensor)
{
    weft_tensor *x = leaf(ones(4));
    CHECK_OK(weft_backward(total(weft_sin(x))));
    weft_tensor *first = weft_grad(x);
    CHECK_OK(weft_backward(total(weft_sin(x))));
    CHECK(weft_grad(x) == first);
    check_all(first, 2 * cos(1), 1e-6);
    CHECK_INT(weft_tensor_version(first), 1);
    CHECK_OK(weft_set_grad(x, NULL));
    CHECK(weft_grad(x) == NULL);
    CHECK_STATUS(weft_set_grad(x, ones(3)), WEFT_ERR_INVALID_ARG);
    weft_tensor *own = ones(4);
    CHECK_OK(weft_set_grad(x, own));
    CHECK(weft_tensor_data(weft_grad(x)) == weft_tensor_data(own));
    CHECK_STATUS(weft_set_grad(weft_sin(x), ones(4)), WEFT_ERR_STATE);
}

/* add hands one gradient to both: neither may see what is added to the other. */
TEST(test_gradients_do_not_share_memory)
{
    weft_tensor *a = leaf(ones(4)), *b = leaf(ones(4)), *seed = ones(4);
    weft_tensor *y = weft_add(a, b);
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.seeds = &seed;
    CHECK_OK(weft_backward_all(&y, 1, &opts));
    CHECK(weft_tensor_data(weft_grad(a)) != weft_tensor_data(weft_grad(b)));
    CHECK(weft_tensor_data(weft_grad(a)) != weft_tensor_data(seed));
    CHECK_OK(weft_backward(total(weft_mul_scalar(a, 3))));
    check_all(weft_grad(a), 4, 0);
    check_all(weft_grad(b), 1, 0);
    check_all(seed, 1, 0);
}

/* What nobody else has is taken over: no copy, no second allocation. */
TEST(test_gradient_is_taken_over)
{
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1000)));
    CHECK_OK(weft_backward(total(weft_sin(x))));
    CHECK_INT(weft_tensor_version(weft_grad(x)), 0); /* a copy would be, too */
    CHECK_INT(atomic_load(&weft_grad(x)->head.references), 1);
    CHECK_INT(atomic_load(&weft_grad(x)->storage->head.references), 1);
}

TEST(test_modes)
{
    weft_tensor *x = leaf(ones(4)), *y = NULL, *z = NULL;
    WEFT_NO_GRAD
    {
        y = weft_sin(x);
        WEFT_ENABLE_GRAD
        {
            z = weft_sin(x);
        }
        CHECK(weft_grad_mode_now() == WEFT_GRAD_OFF);
    }
    CHECK(weft_grad_mode_now() == WEFT_GRAD_RECORDING);
    CHECK(!weft_requires_grad(y) && weft_requires_grad(z));
    CHECK(!weft_requires_grad(weft_detach(z)));
    WEFT_INFERENCE
    {
        WEFT_ENABLE_GRAD
        {
            CHECK(!weft_requires_grad(weft_sin(x)));
        }
        CHECK(weft_grad_mode_now() == WEFT_GRAD_INFERENCE);
        CHECK_STATUS(weft_backward(total(z)), WEFT_ERR_STATE);
        CHECK_STATUS(weft_require_grad(ones(3), true), WEFT_ERR_STATE);
    }
    CHECK(weft_grad_mode_now() == WEFT_GRAD_RECORDING);
    CHECK_OK(weft_require_grad(x, false));
    CHECK(!weft_requires_grad(weft_sin(x)));
    CHECK_STATUS(weft_require_grad(z, false), WEFT_ERR_STATE);
}

static weft_tensor *leave_early(weft_tensor *x)
{
    WEFT_NO_GRAD
    {
        return weft_sin(x);
    }
    return NULL;
}

TEST(test_return_out_of_a_mode)
{
    weft_tensor *x = leaf(ones(4));
    CHECK(!weft_requires_grad(leave_early(x)));
    CHECK(weft_grad_mode_now() == WEFT_GRAD_RECORDING);
}

/* ---- what is saved ---- */

TEST(test_second_backward_is_refused)
{
    weft_tensor *x = leaf(ones(4)), *loss = total(weft_sin(x));
    CHECK_OK(weft_backward(loss));
    CHECK_STATUS(weft_backward(loss), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "backward of sin");
    CHECK_CONTAINS(weft_last_error(), "retain_graph");
    check_all(weft_grad(x), cos(1), 1e-6); /* nothing was added */
    weft_tensor *again = total(weft_sin(x));
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.retain_graph = true;
    CHECK_OK(weft_backward_all(&again, 1, &opts));
    CHECK_OK(weft_backward(again));
    check_all(weft_grad(x), 3 * cos(1), 1e-6);
}

TEST(test_changed_saved_tensor_is_refused)
{
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2)));
    weft_tensor *y = weft_add_scalar(x, 1), *loss = total(weft_sin(y));
    CHECK_OK(weft_fill(y, 3));
    CHECK_OK(weft_fill(y, 4));
    CHECK_STATUS(weft_backward(loss), WEFT_ERR_STATE);
    const char *parts[] = {
        "modified in place", "f32", "[2, 2]", "result 0 of add", "is at version 2",
        "expected version 0"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CHECK_CONTAINS(weft_last_error(), parts[i]);
    CHECK(weft_grad(x) == NULL);
    /* a result that its own rule needs */
    weft_tensor *e = weft_exp(x);
    loss = total(e);
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_fill(e, 1));
    }
    CHECK_STATUS(weft_backward(loss), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "result 0 of exp");
}

static weft_status overwrite(void *argument)
{
    weft_tensor **pair = argument;
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        status = weft_copy(pair[0], pair[1]);
    }
    return status;
}

/* A hidden write is read by backward: test_unsafe_preserve_version_counter2 of the reference. */
TEST(test_hidden_write_is_read)
{
    weft_tensor *w = leaf(ones(4)), *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 2.5);
    weft_tensor *r = weft_sin(w), *pair[] = {w, x};
    CHECK_OK(weft_tensor_preserve_version(&w, 1, overwrite, pair));
    CHECK_OK(weft_backward(total(r)));
    check_all(r, sin(1), 1e-6);
    check_all(weft_grad(w), cos(2.5), 1e-6);
}

/* Counters as values: rows that a program can contain. */
TEST(test_version_rows)
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(3)), *version;
    CHECK_OK(weft_fill(x, 1));
    CHECK_OK(weft_fill(x, 2));
    version = WEFT_I_APPLY(version, WEFT_I_TENSOR_ARG(x));
    CHECK_INT(weft_item_int(version, 0), 2);
    CHECK_OK(weft_fill(x, 3));
    CHECK_OK(WEFT_I_ACT(set_version, WEFT_I_TENSOR_ARG(x), WEFT_I_TENSOR_ARG(version)));
    CHECK_INT(weft_tensor_version(x), 2);
    CHECK_INT(weft_item_int(version, 0), 2); /* a value, not the counter */
    CHECK_STATUS(WEFT_I_ACT(set_version, WEFT_I_TENSOR_ARG(x), WEFT_I_NUMBER_ARG(-1)),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(WEFT_I_ACT(set_version, WEFT_I_TENSOR_ARG(x), WEFT_I_TENSOR_ARG(ones(1))),
                 WEFT_ERR_TYPE);
    CHECK_INT(weft_tensor_version(x), 2);
}

/* A leaf is saved by reference: freed, and given another storage, before backward reads it. */
TEST(test_storage_of_a_saved_leaf)
{
    weft_tensor *w = leaf(ones(4)), *loss = total(weft_sin(w));
    CHECK_OK(weft_storage_resize(weft_tensor_storage(w), 0));
    CHECK_STATUS(weft_backward(loss), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "backward of sin");
    CHECK_CONTAINS(weft_last_error(), "freed or resized");
    CHECK(weft_grad(w) == NULL);
    weft_tensor *source = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 2);
    int64_t version = weft_tensor_version(w);
    CHECK_STATUS(weft_set(w, source),
                 WEFT_ERR_UNSUPPORTED); /* recorded, it would have no gradient */
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_set(w, source));
    }
    CHECK_OK(weft_tensor_set_version(&w, &version, 1));
    CHECK_OK(weft_backward(loss));
    check_all(weft_grad(w), cos(2), 1e-6);
}

/* ---- writes in place ---- */

TEST(test_leaf_is_not_written_in_place)
{
    weft_tensor *x = leaf(ones(4)), *part = weft_slice(x, 0, 0, 2, 1);
    CHECK_STATUS(weft_fill(x, 2), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "a leaf that requires gradients");
    CHECK_STATUS(weft_add_into(x, x, ones(4)), WEFT_ERR_STATE);
    check_all(x, 1, 0);
    CHECK_INT(weft_tensor_version(x), 0);
    (void)part;
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_fill(x, 2));
    }
    check_all(x, 2, 0);
    CHECK_INT(weft_tensor_version(x), 1);
}

TEST(test_view_of_leaf_is_not_written)
{
    weft_tensor *x = leaf(ones(4)), *view = weft_view(x, WEFT_SHAPE(2, 2));
    CHECK_STATUS(weft_fill(view, 2), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "a view of a leaf");
    check_all(x, 1, 0);
}

/* y = 2x; y *= x; the factor's old value is saved. */
TEST(test_in_place_history)
{
    weft_tensor *x = leaf(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), 3));
    weft_tensor *y = weft_mul_scalar(x, 2);
    CHECK_OK(weft_mul_into(y, y, x));
    check_all(y, 18, 0);
    CHECK(weft_requires_grad(y) && !weft_is_leaf(y));
    CHECK_OK(weft_backward(total(y)));
    check_all(weft_grad(x), 12, 1e-6); /* 2 x^2 */
}

/* A plain tensor becomes part of the graph by being written. */
TEST(test_target_takes_over_history)
{
    weft_tensor *x = leaf(ones(3)), *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_mul_scalar_into(out, x, 5));
    CHECK_OK(weft_backward(total(out)));
    check_all(weft_grad(x), 5, 0);
    weft_tensor *y = weft_sin(x);
    CHECK_OK(weft_add_into(y, ones(3), ones(3))); /* and stops being one */
    CHECK(!weft_requires_grad(y));
    weft_tensor *whole = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_STATUS(weft_copy(whole, weft_sin(x)), WEFT_ERR_TYPE);
}

/* ---- views ---- */

/* Rows of a plain buffer are written one by one. */
TEST(test_write_to_views_of_a_buffer)
{
    weft_tensor *x = leaf(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), 2));
    weft_tensor *buffer = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3));
    weft_tensor *flat = weft_view(buffer, WEFT_SHAPE(6));
    for (int i = 0; i < 2; i++) {
        weft_tensor *row =
            weft_view(weft_as_strided(buffer, WEFT_SHAPE(3), (int64_t[]){1}, 3 * i), WEFT_SHAPE(3));
        CHECK_OK(weft_copy(row, weft_mul_scalar(x, i + 1)));
        CHECK(weft_requires_grad(row));
    }
    CHECK(weft_requires_grad(buffer) && !weft_is_leaf(buffer));
    CHECK(weft_requires_grad(flat)); /* made before, from what the buffer is now */
    CHECK_OK(weft_backward(total(weft_mul(flat, flat))));
    check_all(weft_grad(x), 2 * 2 + 2 * 2 * 4, 1e-5); /* d/dx (x^2 + 4 x^2) */
}

/* A view made before the base was written reads, and has the gradient of, the new value. */
TEST(test_view_follows_its_base)
{
    weft_tensor *x = leaf(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 3));
    weft_tensor *y = weft_mul_scalar(x, 1), *view = weft_view(y, WEFT_SHAPE(2, 2));
    CHECK_OK(weft_mul_into(y, y, x));
    CHECK_OK(weft_backward(total(view)));
    check_all(weft_grad(x), 6, 1e-6);
}

TEST(test_expanded_view_follows_its_base)
{
    weft_tensor *x = leaf(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 2), 3));
    weft_tensor *y = weft_mul_scalar(x, 1), *view = weft_expand(y, WEFT_SHAPE(5, 2));
    CHECK_OK(weft_mul_into(y, y, x));
    CHECK_OK(weft_backward(total(view)));
    check_all(weft_grad(x), 5 * 6, 1e-5);
}

/* Windows that overlap, of a base that is not packed. */
TEST(test_strided_windows)
{
    weft_tensor *x = leaf(weft_ones(WEFT_F64, WEFT_CPU, WEFT_SHAPE(6)));
    weft_tensor *windows =
        weft_as_strided(weft_mul_scalar(x, 2), WEFT_SHAPE(3, 4), (int64_t[]){1, 1}, 0);
    CHECK_OK(weft_backward(total(windows)));
    const double times[] = {1, 2, 3, 3, 2, 1};
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(weft_item(weft_grad(x), i), 2 * times[i], 0);
    weft_tensor *strided = weft_empty_strided(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2, 3),
                                              (int64_t[]){1, 2});                   /* transposed */
    weft_tensor *part = weft_as_strided(strided, WEFT_SHAPE(2), (int64_t[]){1}, 2); /* column 1 */
    CHECK_OK(weft_fill(strided, 0));
    CHECK_OK(weft_set_grad(x, NULL));
    CHECK_OK(
        weft_copy(part, weft_as_strided(weft_mul_scalar(x, 3), WEFT_SHAPE(2), (int64_t[]){3}, 1)));
    CHECK_OK(weft_backward(total(weft_mul(strided, strided))));
    const double some[] = {0, 18, 0, 0, 18, 0};
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(weft_item(weft_grad(x), i), some[i], 0);
}

TEST(test_view_without_gradient)
{
    weft_tensor *x = leaf(ones(4)), *y = weft_sin(x), *view = NULL;
    WEFT_NO_GRAD
    {
        view = weft_view(y, WEFT_SHAPE(2, 2));
    }
    CHECK(!weft_requires_grad(view)); /* as it was made */
    weft_tensor *plain = ones(4), *early = weft_view(plain, WEFT_SHAPE(4, 1));
    CHECK_OK(weft_require_grad(plain, true));
    CHECK(!weft_requires_grad(early));
    weft_tensor *own = weft_view(ones(4), WEFT_SHAPE(2, 2)); /* a leaf that is a view */
    CHECK_OK(weft_require_grad(own, true));
    CHECK_OK(weft_backward(total(weft_sin(own))));
    check_all(weft_grad(own), cos(1), 1e-6);
}

/* ---- chosen inputs, second derivatives ---- */

TEST(test_chosen_inputs)
{
    weft_tensor *a = leaf(ones(3)), *b = leaf(ones(3)), *c = leaf(ones(3));
    weft_tensor *middle = weft_mul(a, b), *loss = total(weft_mul_scalar(middle, 3));
    weft_tensor *inputs[] = {middle, b, c}, *out[3] = {a, a, a};
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.retain_graph = true;
    CHECK_STATUS(weft_gradients(out, inputs, 3, &loss, 1, &opts), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "input 2");
    CHECK(out[0] == a); /* nothing was handed out */
    opts.allow_unused = true;
    CHECK_OK(weft_gradients(out, inputs, 3, &loss, 1, &opts));
    check_all(out[0], 3, 0);
    check_all(out[1], 3, 0);
    CHECK(out[2] == NULL);
    CHECK(weft_grad(a) == NULL && weft_grad(b) == NULL);
    /* what is chosen once is handed out twice, if asked for */
    weft_tensor *twice[] = {a, a};
    CHECK_OK(weft_gradients(out, twice, 2, &loss, 1, NULL));
    CHECK(out[0] != out[1]);
    check_all(out[1], 3, 0);
}

/* sin, its derivatives by differentiating backward: cos, -sin, -cos. */
TEST(test_higher_derivatives)
{
    weft_tensor *x = leaf(weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(4), 0.7)), *y = weft_sin(x);
    const double expected[] = {cos(0.7), -sin(0.7), -cos(0.7)};
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.create_graph = true;
    for (int i = 0; i < 3; i++) {
        weft_tensor *loss = total(y);
        CHECK_OK(weft_gradients(&y, &x, 1, &loss, 1, &opts));
        check_all(y, expected[i], 1e-12);
    }
}

/* A saved result brings its history back. */
TEST(test_second_derivative_through_a_result)
{
    weft_tensor *x = leaf(weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2), 0.3));
    weft_tensor *loss = total(weft_exp(weft_mul_scalar(x, 2))), *g;
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.create_graph = true;
    CHECK_OK(weft_gradients(&g, &x, 1, &loss, 1, &opts));
    check_all(g, 2 * exp(0.6), 1e-12);
    loss = total(g);
    CHECK_OK(weft_backward(loss));
    check_all(weft_grad(x), 4 * exp(0.6), 1e-12);
}

TEST(test_create_graph_accumulates_out_of_place)
{
    weft_tensor *x = leaf(weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2), 0.3));
    weft_tensor *loss = total(weft_sin(x));
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.create_graph = true;
    CHECK_OK(weft_backward_all(&loss, 1, &opts));
    weft_tensor *first = weft_keep(weft_detach(weft_grad(x)));
    CHECK(weft_requires_grad(weft_grad(x)));
    CHECK_OK(weft_backward_all(&loss, 1, &opts));
    check_all(first, cos(0.3), 1e-12);
    check_all(weft_grad(x), 2 * cos(0.3), 1e-12);
    weft_release(first);
    CHECK_OK(weft_set_grad(x, NULL)); /* or it would hold the graph, and that x */
}

/* On meta tensors all of it runs but the arithmetic. */
TEST(test_backward_on_meta)
{
    weft_tensor *w = leaf(weft_zeros(WEFT_BF16, WEFT_META, WEFT_SHAPE(3, 1)));
    weft_tensor *y = weft_mul(weft_sin(w), weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(2, 1, 4)));
    CHECK_OK(weft_mul_into(y, y, w));
    CHECK_OK(weft_backward(total(y)));
    weft_tensor *g = weft_grad(w);
    CHECK(weft_tensor_device(g) == WEFT_META && weft_tensor_dtype(g) == WEFT_BF16);
    CHECK_INT(weft_tensor_ndim(g), 2);
    CHECK_INT(weft_tensor_size(g, 0), 3);
}

/* A second leaf of other strides gets a gradient of its own strides. */
TEST(test_gradient_has_the_strides_of_its_leaf)
{
    weft_tensor *w = weft_empty_strided(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4), (int64_t[]){1, 3});
    CHECK_OK(weft_fill(w, 2));
    CHECK_OK(weft_backward(total(weft_sin(leaf(w)))));
    check_all(weft_grad(w), cos(2), 1e-6);
    CHECK_INT(weft_tensor_stride(weft_grad(w), 0), 1);
    CHECK_INT(weft_tensor_stride(weft_grad(w), 1), 3);
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4)));
    CHECK_OK(weft_backward(total(weft_mul(x, weft_detach(w))))); /* comes as w is */
    check_all(weft_grad(x), 2, 0);
    CHECK(weft_tensor_is_contiguous(weft_grad(x)));
}

/* ---- misuse ---- */

TEST(test_outputs_need_seeds)
{
    weft_tensor *x = leaf(ones(4)), *y = weft_sin(x), *wrong = ones(3);
    CHECK_STATUS(weft_backward(y), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "give a seed");
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.seeds = &wrong;
    CHECK_STATUS(weft_backward_all(&y, 1, &opts), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_backward_all(NULL, 0, NULL), WEFT_ERR_INVALID_ARG);
    CHECK(weft_grad(x) == NULL);
}

/* ---- the end of graphs ---- */

/* The stack has less than 3 bytes for each node, so that a recursion overflows it. */
enum { LONG = 100 * 1000, STACK = 256 << 10 };

struct plan {
    int nodes;
    bool back; /* backward goes through them before they die */
};

static void *chain(void *argument)
{
    const struct plan *plan = argument;
    weft_tensor *x = ones(1), *y = weft_keep(weft_mul_scalar(leaf(x), 1));
    for (int i = 0; i < plan->nodes; i++) {
        weft_tensor *next = weft_keep(weft_add_scalar(y, 1));
        weft_release(y);
        y = next;
    }
    weft_tensor *loss = total(y);
    weft_status status = plan->back ? weft_backward(loss) : WEFT_OK;
    weft_release(loss);
    weft_release(y);
    weft_tensor *grad = weft_grad(x);
    bool as_told = plan->back ? grad && weft_item(grad, 0) == 1 : !grad;
    return status >= 0 && as_told ? argument : NULL;
}

static void run_chain(struct plan plan)
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *result = NULL;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    CHECK_INT(pthread_create(&thread, &attributes, chain, &plan), 0);
    pthread_join(thread, &result);
    pthread_attr_destroy(&attributes);
    CHECK(result == &plan);
}

TEST(test_long_chain_dies_without_recursion)
{
    run_chain((struct plan){LONG, false});
    run_chain((struct plan){LONG, true});
}

static int live; /* tensors with memory of ours */

static void count_down(void *argument)
{
    (void)argument;
    live--;
}

static weft_tensor *counted(float *memory)
{
    live++;
    return weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), memory, count_down, NULL);
}

/* Values that are written after a graph has saved them must not hold that graph, and it them. */
TEST(test_graphs_that_write_what_they_saved_die)
{
    float memory[3][4] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}};
    CHECK_OK(weft_scope_open());
    weft_tensor *w = leaf(counted(memory[0])), *state = counted(memory[1]);
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_copy(state, weft_mul(w, state))); /* saves state, then writes it */
    weft_tensor *buffer = counted(memory[2]), *view = weft_view(buffer, WEFT_SHAPE(2, 2));
    weft_tensor *y = weft_mul(weft_view(w, WEFT_SHAPE(2, 2)), view);
    CHECK_OK(weft_copy(view, y));
    CHECK(weft_requires_grad(state) && weft_requires_grad(buffer));
    CHECK_OK(weft_require_grad(w, false)); /* a leaf, and edges lead to it */
    CHECK_OK(weft_copy(w, weft_add(w, state)));
    CHECK_INT(live, 3);
    CHECK_OK(weft_scope_close());
    CHECK_INT(live, 0);
}

/* Nor must gradients that the user sets: those of each other, its own, a view, one with a history.
 */
TEST(test_set_gradients_make_no_cycles)
{
    float memory[2][4] = {{1, 1, 1, 1}, {2, 2, 2, 2}};
    CHECK_OK(weft_scope_open());
    weft_tensor *x = leaf(counted(memory[0])), *y = counted(memory[1]);
    CHECK_OK(weft_set_grad(x, y));
    CHECK_OK(weft_set_grad(y, x));
    CHECK_OK(weft_copy(y, weft_sin(x)));
    CHECK_OK(weft_set_grad(x, y));
    CHECK(!weft_requires_grad(weft_grad(x)));
    CHECK_OK(weft_set_grad(x, weft_view(x, WEFT_SHAPE(4))));
    CHECK_INT(live, 2);
    CHECK_OK(weft_scope_close());
    CHECK_INT(live, 0);
}

/* A graph lives as long as one of its results, though the scope of the rest has closed. */
TEST(test_graph_belongs_to_its_results)
{
    float memory[4] = {1, 1, 1, 1};
    CHECK_OK(weft_scope_open());
    weft_tensor *w = counted(memory), *loss = weft_keep(total(weft_sin(weft_mul(leaf(w), w))));
    CHECK_OK(weft_scope_close());
    CHECK_INT(live, 1);
    CHECK_OK(weft_backward(loss));
    weft_release(loss);
    CHECK_INT(live, 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

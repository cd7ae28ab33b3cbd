/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/shelf.c, tensor/object/tensor.c */
/* Tensors that are used after they were released: calls refuse them as long as their blocks lie on
 * the shelf, where they lie while so many others are made.  AddressSanitizer has no shelf and sees
 * such uses itself. */
#include "harness.h"
#include "tensor/object/shelf.h"
#include "weft/weft.h"

#define CHECK_REFUSED(call_)                                    \
    do {                                                        \
        weft_clear_error();                                     \
        (void)(call_);                                          \
        CHECK_INT(weft_last_status(), WEFT_ERR_STATE);          \
        CHECK_CONTAINS(weft_last_error(), "that was released"); \
    } while (0)

static void skip_without_shelf(void)
{
    if (!WEFT_I_HAS_SHELF)
        SKIP("AddressSanitizer reports the use");
}

/* `y` was made before x was released: a new tensor would get the block of x. */
static void check_refused(weft_tensor *x, weft_tensor *y, weft_group *world)
{
    CHECK_REFUSED(weft_add_scalar(x, 1));
    CHECK_REFUSED(weft_add(y, x));
    CHECK_REFUSED(weft_add_into(x, y, y));
    CHECK_REFUSED(weft_fill(x, 1));
    CHECK_REFUSED(weft_narrow(x, 0, 0, 1));
    CHECK_REFUSED(weft_cat((weft_tensor *[]){y, x}, 2, 0));
    CHECK_REFUSED(weft_item(x, 0));
    CHECK_REFUSED(weft_tensor_data(x));
    CHECK_REFUSED(weft_tensor_shape(x));
    CHECK_REFUSED(weft_all_reduce(x, WEFT_SUM, world));
    CHECK_REFUSED(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_REFUSED(weft_all_reduce_into(y, x, WEFT_SUM, world));
    CHECK_REFUSED(weft_broadcast_in_place(x, 0, world));
    CHECK_REFUSED(weft_all_reduce_start(x, x, WEFT_SUM, world));
    CHECK_REFUSED(weft_send_start(x, 0, world));
}

/* The first tensor of a storage lies in the storage's block, as the memory of a small one does;
 * views lie in blocks of their own. */
TEST(test_released_refused)
{
    skip_without_shelf();
    weft_group *world = weft_init(NULL);
    weft_tensor *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    for (int64_t count = 4; count <= 100000; count += 99996) {
        weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
        weft_tensor *view = weft_narrow(x, 0, 1, 3);
        weft_release(x);
        CHECK(weft_item(x, 0) == 1 && weft_item(view, 2) == 1); /* the view holds it */
        weft_release(view);
        check_refused(view, y, world);
        check_refused(x, y, world);
    }
    weft_clear_error();
    CHECK_INT(weft_finish(world), 0);
}

TEST(test_released_by_a_scope)
{
    skip_without_shelf();
    weft_group *world = weft_init(NULL);
    weft_tensor *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_OK(weft_scope_close());
    check_refused(x, y, world);
    weft_clear_error();
    CHECK_INT(weft_finish(world), 0);
}

/* Others of its kind are made and released meanwhile: none of them becomes the one that was
 * released. */
static void check_rests(weft_tensor *(*make)(weft_tensor *of), weft_tensor *of)
{
    weft_tensor *x = make(of);
    weft_release(x);
    for (int i = 0; i < 24; i++) {
        weft_tensor *other = make(of);
        CHECK(other != x);
        CHECK_REFUSED(weft_add_scalar(x, 0));
        weft_release(other);
        CHECK_REFUSED(weft_add(of, x));
    }
}

static weft_tensor *make_small(weft_tensor *of)
{
    (void)of;
    return weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
}

static weft_tensor *make_full(weft_tensor *of)
{
    (void)of;
    return weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64));
}

static weft_tensor *make_large(weft_tensor *of)
{
    (void)of;
    return weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1000));
}

static weft_tensor *make_sum(weft_tensor *of)
{
    return weft_add(of, of);
}

TEST(test_released_rests)
{
    skip_without_shelf();
    weft_tensor *of = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    for (int round = 0; round < 3; round++) {
        weft_scope_open();
        check_rests(make_small, of);
        check_rests(make_full, of);
        check_rests(make_large, of);
        check_rests(make_sum, of);
        check_rests(weft_detach, of);
        weft_scope_close();
    }
    weft_clear_error();
}

/* The second release does nothing: no block is given out twice. */
TEST(test_released_twice)
{
    skip_without_shelf();
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), *view = weft_detach(x);
    weft_tensor *const released[] = {view, x};
    for (int i = 0; i < 2; i++) {
        weft_release(released[i]);
        weft_clear_error();
        weft_release(released[i]);
        CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
        CHECK_CONTAINS(weft_last_error(), "weft_release: the object was released before");
        weft_clear_error();
        CHECK(!weft_keep(released[i]));
        CHECK_CONTAINS(weft_last_error(), "weft_keep: the object was released before");
    }
    weft_tensor *a = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 1);
    weft_tensor *b = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 2);
    weft_tensor *c = weft_detach(a), *d = weft_detach(b);
    CHECK(a != b && c != d);
    CHECK(weft_item(a, 0) == 1 && weft_item(b, 0) == 2 && weft_item(c, 0) == 1);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

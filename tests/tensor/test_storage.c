/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/storage.c, tensor/op/copy.c */
#include "harness.h"

#include "base/os/os.h"

#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

static int released;

static void count_release(void *argument)
{
    released += argument == &released;
}

TEST(test_storage_resize_to_zero_and_back)
{
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 20, 1);
    weft_tensor *view = weft_select(weft_view(x, WEFT_SHAPE(4, 5)), 0, 1);
    weft_storage *storage = weft_tensor_storage(x);
    CHECK_INT(weft_storage_bytes(storage), 80);
    CHECK_OK(weft_storage_resize(storage, 0));
    CHECK_INT(weft_storage_bytes(storage), 0);
    CHECK(!weft_storage_data(storage));
    CHECK(weft_storage_bytes(weft_tensor_storage(view)) == 0); /* the view sees it */
    CHECK_INT(weft_tensor_size(x, 0), 20);                     /* sizes and versions stay */
    CHECK_INT(weft_tensor_version(x), 0);
    CHECK_OK(weft_storage_resize(storage, 80));
    CHECK_OK(weft_fill(x, 2));
    CHECK(weft_item(view, 4) == 2);
    CHECK_INT(weft_tensor_version(view), 1);
}

TEST(test_storage_resize_keeps_the_first_bytes)
{
    weft_tensor *x = weft_arange(WEFT_I32, WEFT_CPU, 0, 8, 1);
    CHECK_OK(weft_storage_resize(weft_tensor_storage(x), 16));
    CHECK(isnan(weft_item(x, 0)));
    weft_tensor *first = weft_slice(x, 0, 0, 4, 1);
    for (int i = 0; i < 4; i++)
        CHECK_INT(weft_item_int(first, i), i);
    CHECK_OK(weft_resize_storage(x, 64));
    for (int i = 0; i < 4; i++)
        CHECK_INT(weft_item_int(x, i), i);
    CHECK_STATUS(weft_resize_storage(x, -1), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

/* Every kind of use of a freed tensor is an error that says what is missing; none touches memory.
 */
TEST(test_storage_freed_tensors_are_refused)
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 5)),
                *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 5));
    CHECK_OK(weft_resize_storage(x, 76)); /* one element short */
    CHECK(!weft_add(y, x));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "[4, 5]");
    CHECK_CONTAINS(weft_last_error(), "80 bytes");
    CHECK_CONTAINS(weft_last_error(), "76");
    CHECK_OK(weft_resize_storage(x, 0));
    CHECK(!weft_tensor_data(x));
    CHECK_STATUS(weft_copy(x, y), WEFT_ERR_STATE);
    CHECK_STATUS(weft_copy(y, x), WEFT_ERR_STATE);
    CHECK_STATUS(weft_fill(x, 1), WEFT_ERR_STATE);
    CHECK_STATUS(weft_add_into(x, y, y), WEFT_ERR_STATE);
    CHECK(!weft_sum(x, NULL, 0, false) && !weft_clone(x) && !weft_softmax(x, 0) &&
          !weft_mm(x, weft_transpose(y, 0, 1)));
    CHECK(!weft_equal(x, y));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK(weft_print(x, stderr) < 0);
    CHECK_INT(weft_tensor_version(x), 0); /* refused writes do not count */
    CHECK_INT(weft_tensor_version(y), 0);
    /* Views of a freed tensor may be made; they come to life with it. */
    weft_tensor *view = weft_transpose(x, 0, 1);
    CHECK(view);
    CHECK_OK(weft_resize_storage(x, 80));
    CHECK_OK(weft_fill(view, 3));
    CHECK(weft_item(x, 19) == 3);
    weft_clear_error();
}

TEST(test_storage_empty_tensors_need_no_memory)
{
    weft_tensor *x = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0, 5));
    CHECK_INT(weft_storage_bytes(weft_tensor_storage(x)), 0);
    CHECK_OK(weft_fill(x, 1));
    CHECK(weft_add(x, x) && weft_clone(x));
    CHECK(weft_item(weft_sum(x, NULL, 0, false), 0) == 0);
}

TEST(test_storage_meta_counts_bytes)
{
    weft_tensor *x = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(10));
    CHECK_OK(weft_resize_storage(x, 0));
    CHECK_INT(weft_storage_bytes(weft_tensor_storage(x)), 0);
    CHECK(!weft_add(x, x)); /* meta tensors fail as real ones would */
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_OK(weft_resize_storage(x, 40));
    CHECK(weft_add(x, x));
    weft_clear_error();
}

TEST(test_storage_external_memory)
{
    static float memory[6] = {1, 2, 3, 4, 5, 6};
    released = 0;
    CHECK_OK(weft_scope_open());
    weft_tensor *x =
        weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6), memory, count_release, &released);
    weft_tensor *kept = weft_keep(weft_slice(x, 0, 3, 6, 1));
    CHECK_STATUS(weft_storage_resize(weft_tensor_storage(x), 0), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "external");
    CHECK_OK(weft_storage_resize(NULL, 0) < 0 ? WEFT_OK : WEFT_ERR_INTERNAL);
    CHECK_OK(weft_scope_close());
    CHECK_INT(released, 0); /* a view still holds it */
    CHECK(weft_item(kept, 0) == 4);
    weft_release(kept);
    CHECK_INT(released, 1);
    weft_clear_error();
}

TEST(test_storage_version_counters)
{
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    CHECK_INT(weft_tensor_version(x), 0);
    CHECK_OK(weft_fill(x, 1));
    CHECK_OK(weft_fill(x, 2));
    CHECK_INT(weft_tensor_version(x), 2);
    weft_tensor *view = weft_narrow(x, 0, 0, 4), *detached = weft_detach(x), *data = weft_data(x);
    CHECK_INT(weft_tensor_version(view), 2);
    CHECK_OK(weft_add_scalar_into(view, view, 1));
    CHECK_INT(weft_tensor_version(x), 3);
    CHECK_OK(weft_fill(detached, 5));
    CHECK_INT(weft_tensor_version(x), 4);
    CHECK_INT(weft_tensor_version(data), 0); /* a counter of its own ... */
    CHECK_OK(weft_fill(data, 7));
    CHECK_INT(weft_tensor_version(x), 4); /* ... that x does not see, though it sees the elements */
    CHECK(weft_item(x, 9) == 7);
    CHECK_INT(weft_tensor_version(weft_clone(x)), 0);
    CHECK_INT(weft_tensor_version(weft_add(x, x)), 0);
}

TEST(test_storage_unsafe_set_version)
{
    weft_tensor *a = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)),
                *b = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    weft_tensor *list[] = {a, b};
    CHECK_OK(weft_tensor_set_version(list, (int64_t[]){3, 1}, 2));
    CHECK(weft_tensor_version(a) == 3 && weft_tensor_version(b) == 1);
    CHECK_STATUS(weft_tensor_set_version(list, (int64_t[]){9, -1}, 2), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_tensor_version(a), 3); /* all or nothing */
    weft_tensor *holed[] = {a, NULL};
    weft_clear_error();
    CHECK_STATUS(weft_tensor_set_version(holed, (int64_t[]){9, 9}, 2), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_tensor_version(a), 3);
    weft_clear_error();
}

static weft_status write_and_fail(void *argument)
{
    weft_tensor *x = argument;
    if (weft_fill(x, 1) < 0 || weft_fill(x, 2) < 0)
        return WEFT_ERR_INTERNAL;
    return WEFT_ERR_CANCELLED;
}

static weft_status write_two(void *argument)
{
    weft_tensor *const *list = argument;
    WEFT_TRY(weft_fill(list[0], 1));
    return weft_fill(list[1], 2);
}

/* A version that cannot be put back, because its count has run over, is an error wherever it stands
 * in the list; the others are put back. */
TEST(test_storage_preserve_version_run_over)
{
    for (int bad = 0; bad < 2; bad++) {
        weft_tensor *list[] = {weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)),
                               weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3))};
        atomic_store_explicit(&list[bad]->version->count, -5, memory_order_relaxed);
        weft_clear_error();
        CHECK_STATUS(weft_tensor_preserve_version(list, 2, write_two, list), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "version -5 is negative");
        CHECK_INT(weft_tensor_version(list[!bad]), 0);
        CHECK(weft_item(list[0], 1) == 1 && weft_item(list[1], 2) == 2);
    }
    weft_clear_error();
}

TEST(test_storage_unsafe_preserve_version)
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_OK(weft_fill(x, 5));
    CHECK_STATUS(weft_tensor_preserve_version(&x, 1, write_and_fail, x), WEFT_ERR_CANCELLED);
    CHECK_INT(weft_tensor_version(x), 1);
    CHECK(weft_item(x, 0) == 2);
    weft_tensor *list[] = {x, NULL}; /* refused before the body runs */
    CHECK_OK(weft_fill(x, 5));
    weft_clear_error();
    CHECK_STATUS(weft_tensor_preserve_version(list, 2, write_and_fail, x), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_tensor_preserve_version(list, 1, NULL, x), WEFT_ERR_INVALID_ARG);
    CHECK(weft_item(x, 0) == 5 && weft_tensor_version(x) == 2);
    weft_clear_error();
}

TEST(test_storage_set_takes_over)
{
    weft_tensor *u = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10, 20));
    weft_tensor *s = weft_arange(WEFT_F32, WEFT_CPU, 0, 100, 1);
    weft_tensor *list[] = {weft_view(s, WEFT_SHAPE(5, 20)), weft_view(s, WEFT_SHAPE(5, 20))};
    weft_tensor *gathered = weft_cat(list, 2, 0);
    CHECK_OK(weft_resize_storage(u, 0));
    CHECK_OK(weft_set(u, gathered));
    CHECK_INT(weft_tensor_version(u), 1);
    CHECK(weft_tensor_storage(u) == weft_tensor_storage(gathered));
    CHECK(weft_item(u, 199) == 99);
    CHECK_OK(weft_resize_storage(u, 0)); /* frees what was gathered */
    CHECK_INT(weft_storage_bytes(weft_tensor_storage(gathered)), 0);
    CHECK_STATUS(weft_set(u, weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2))), WEFT_ERR_TYPE);
    weft_clear_error();
}

/* To change what a tensor is made of writes no element, so an expanded view may be changed. */
TEST(test_storage_set_of_an_expanded_view)
{
    weft_tensor *wide =
        weft_expand(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 3)), WEFT_SHAPE(2, 3));
    weft_tensor *source = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_OK(weft_set(wide, source));
    CHECK(weft_tensor_storage(wide) == weft_tensor_storage(source) && weft_item(wide, 3) == 1);
}

/* The life of an unsharded parameter: freed, refilled unseen, used, freed. */
struct refill {
    weft_tensor *u, *s;
};

static weft_status refill(void *argument)
{
    struct refill *r = argument;
    weft_tensor *list[] = {r->s, r->s};
    return weft_copy(r->u, weft_cat(list, 2, 0));
}

/* A tensor's counter is part of the storage it was made with; it outlives it if it must, and views
 * go on sharing it. */
TEST(test_storage_set_keeps_the_counter)
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), *view = weft_detach(x);
    weft_tensor *big = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4096)), *first = weft_data(x);
    CHECK_OK(weft_fill(view, 1));
    CHECK_INT(weft_tensor_version(x), 1);
    CHECK_OK(weft_set(x, big)); /* counts as a write */
    CHECK_INT(weft_tensor_version(view), 2);
    CHECK_INT(weft_tensor_version(first), 0);
    CHECK_OK(weft_set(x, first)); /* back where its counter is from */
    CHECK_INT(weft_tensor_version(view), 3);
    CHECK_OK(weft_set(x, big));
    weft_release(view);
    weft_release(first); /* now x alone has the counter, and nobody the storage */
    CHECK_OK(weft_fill(x, 2));
    CHECK_INT(weft_tensor_version(x), 5);
    CHECK_INT(weft_tensor_version(big), 0);
    weft_release(x);
    CHECK(weft_item(big, 4095) == 2);
}

/* A tensor lies in the block of the storage it was made with, and either may go first. */
TEST(test_storage_and_tensor_go_in_any_order)
{
    float start[4] = {1, 2, 3, 4};
    for (int few = 0; few < 2; few++) {
        weft_tensor *x = few ? weft_tensor_from(WEFT_F32, WEFT_SHAPE(4), start)
                             : weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4096), 3);
        weft_tensor *view = weft_slice(x, 0, 2, 4, 1), *folded = weft_view(x, WEFT_SHAPE(-1, 2));
        weft_release(x);
        CHECK_OK(weft_fill(view, 7)); /* x is a view's base, and the storage's memory is there */
        CHECK(weft_item(folded, 3) == 7 && weft_tensor_version(folded) == 1);
        weft_release(view);
        CHECK(weft_item(folded, 2) == 7);
        weft_release(folded);
        weft_tensor *y = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
        CHECK_OK(weft_set(y, few ? weft_tensor_from(WEFT_F32, WEFT_SHAPE(4), start)
                                 : weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4096), 3)));
        CHECK(weft_item(y, 2) == 3); /* the storage it was made with is gone, its block is not */
        weft_release(y);
    }
}

TEST(test_storage_unsharded_parameter)
{
    struct refill r = {weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10, 20)),
                       weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5, 20))};
    for (int step = 0; step < 4; step++) {
        CHECK_OK(weft_resize_storage(r.u, 800));
        CHECK_OK(weft_tensor_preserve_version(&r.u, 1, refill, &r));
        CHECK(weft_equal(weft_narrow(r.u, 0, 5, 5), r.s));
        CHECK_OK(weft_resize_storage(r.u, 0));
        CHECK_INT(weft_tensor_version(r.u), 0);
    }
}

TEST(test_storage_device_names)
{
    char name[16];
    CHECK(!strcmp(weft_device_name(WEFT_CPU, name), "cpu"));
    CHECK(!strcmp(weft_device_name(WEFT_META, name), "meta"));
    CHECK(!strcmp(weft_device_name(WEFT_CUDA(3), name), "cuda:3"));
    CHECK(!strcmp(weft_device_name(-7, name), "unknown"));
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
/* ---- memory that begins where the storage ends ---- */

static char tight_room[1 << 16] __attribute__((aligned(64)));
static size_t tight_used;
static void *tight_freed[16];
static int tight_frees;

static void *tight_alloc(size_t bytes)
{
    void *at = tight_room + tight_used;
    tight_used += (bytes + 15) / 16 * 16;
    return memset(at, 0, bytes);
}

static void *tight_alloc_aligned(size_t alignment, size_t bytes)
{
    tight_used = (tight_used + alignment - 1) / alignment * alignment;
    return tight_alloc(bytes);
}

static void tight_free(void *memory)
{
    if (memory && tight_frees < 16)
        tight_freed[tight_frees++] = memory;
}

/* Data of their own are freed, also where data within the storage's block would lie. */
TEST(test_storage_frees_its_neighbour)
{
    weft_i_os table = weft_i_os_linux;
    table.alloc = tight_alloc;
    table.alloc_aligned = tight_alloc_aligned;
    table.free = tight_free;
    weft_i_os_now = &table;
    weft_storage *storage = weft_i_storage_new(WEFT_CPU, 4000);
    void *data = storage ? storage->data : NULL;
    bool next = storage && (char *)data - (char *)(storage + 1) < 64;
    weft_i_object_drop(storage);
    weft_i_os_now = &weft_i_os_linux;
    int freed = 0;
    for (int i = 0; i < tight_frees; i++)
        freed += tight_freed[i] == data;
    CHECK(data && next);
    CHECK_INT(freed, 1);
}

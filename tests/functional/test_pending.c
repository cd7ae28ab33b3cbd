/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: functional/pending.c */
/*
 * Results that are under way: what waits for them and what does not, inputs that are written too
 * early, other threads, failures, and results that nobody waits for.
 */
#include "coll_values.h"
#include "functional_jobs.h"

#include "base/os/os.h"
#include "functional/ops.h"

#include <weft/dlpack.h>

#include <pthread.h>
#include <stdatomic.h>

enum { LARGE = 50000 }; /* elements: enough to be claimed, not copied, and to wake the helper */

static void rest_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* ---- the count goes 0, 1, 0 ---- */

SIZES_TEST(test_pending_count)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_INT(weft_unwaited(world), 0);
    weft_tensor *y = weft_all_reduce(x, WEFT_SUM, world);
    CHECK_INT(weft_unwaited(world), 1);
    CHECK(weft_wait_tensor(y) == y);
    CHECK_INT(weft_unwaited(world), 0);
    CHECK(weft_wait_tensor(y) == y); /* again: nothing to do */
    CHECK(weft_wait_tensor(x) == x);
    weft_tensor *z = weft_all_reduce(weft_all_reduce(x, WEFT_SUM, world), WEFT_SUM, world);
    CHECK_INT(weft_unwaited(world), 1); /* an operand was waited for */
    CHECK_ALL(z, WEFT_SHAPE(3), size * size);
    leave(world);
}

/* Several at once; what is awaited already is fine, and a list may be its own result. */
SIZES_TEST(test_wait_tensors)
{
    enum { COUNT = 5 };
    weft_group *world = join(30000);
    weft_tensor *list[COUNT], *out[COUNT];
    for (int i = 0; i < COUNT; i++)
        list[i] = weft_all_reduce(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), i), WEFT_SUM, world);
    CHECK(weft_wait_tensor(list[1]));
    CHECK_INT(weft_unwaited(world), COUNT - 1);
    CHECK_OK(weft_wait_tensors(out, list, COUNT));
    CHECK_INT(weft_unwaited(world), 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK(out[i] == list[i]);
        CHECK_ALL(out[i], WEFT_SHAPE(3), size * i);
    }
    CHECK_OK(weft_wait_tensors(list, list, COUNT));
    CHECK(list[4] == out[4]);
    out[0] = weft_all_reduce(list[0], WEFT_SUM, world);
    CHECK_STATUS(weft_wait_tensors(NULL, out, 1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_wait_tensors(list, NULL, 1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_wait_tensors(list, out, 0), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_wait_tensors(list, (weft_tensor *[]){out[0], NULL}, 2), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_unwaited(world), 1); /* nothing was waited for */
    weft_clear_error();
    CHECK(list[0] && weft_wait_tensor(out[0]));
    leave(world);
}

/* ---- what waits ---- */

enum { CONSUMERS = 19 };

/* Uses `y` in one way; false if what it finds is wrong.  `y` is `value` everywhere. */
static bool consume(int way, weft_tensor *y, double value, weft_group *world)
{
    weft_tensor *other = weft_zeros_like(y), *list[1] = {y}, *out[1];
    char text[4096];
    float *data;
    switch (way) {
    case 0:
        return weft_item(y, 5) == value;
    case 1:
        return (data = weft_tensor_data(y)) && data[weft_tensor_numel(y) - 1] == value;
    case 2:
        return weft_tensor_text(y, text, sizeof text) > 0 && strchr(text, '0' + (int)value);
    case 3: {
        weft_dlpack *description = weft_dlpack_export(y);
        bool right = description && *(float *)description->tensor.data == value;
        if (description)
            description->deleter(description);
        return right;
    }
    case 4:
        return !weft_equal(y, other) && weft_last_status() == WEFT_OK;
    case 5:
        return weft_item(weft_add_scalar(y, 1), 7) == value + 1;
    case 6:
        return weft_copy(other, y) == WEFT_OK && weft_item(other, 3) == value;
    case 7:
        return weft_fill(y, 3) == WEFT_OK && weft_item(y, 0) == 3;
    case 8:
        return weft_add_into(y, y, y) == WEFT_OK && weft_item(y, 0) == 2 * value;
    case 9:
        return weft_all_reduce_into(other, y, WEFT_MAX, world) == WEFT_OK &&
               weft_item(other, 0) == value;
    case 10:
        return weft_all_reduce_into(y, y, WEFT_MAX, world) == WEFT_OK && weft_item(y, 0) == value;
    case 11:
        return weft_item(weft_all_gather_tensor(y, 0, world), 1) == value;
    case 12:
        return weft_item(weft_all_reduce_(y, WEFT_MAX, world), 1) == value;
    case 13:
        return weft_all_reduce_coalesced(out, list, 1, WEFT_MAX, world) == WEFT_OK &&
               weft_item(out[0], 0) == value;
    case 14:
        return weft_storage_resize(weft_tensor_storage(y), weft_tensor_bytes(y) / 2) == WEFT_OK;
    case 15:
        return (data = weft_storage_data(weft_tensor_storage(y))) && data[2] == value;
    case 16:
        return weft_item(weft_to_dtype(y, WEFT_F64), 2) == value;
    case 17:
        return weft_item(
                   weft_mm(weft_view(y, WEFT_SHAPE(2, -1)),
                           weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(weft_tensor_numel(y) / 2, 1))),
                   0) > 0;
    default:
        return weft_item_int(y, 1) == (int64_t)value;
    }
}

SIZES_TEST(test_pending_uses_wait)
{
    weft_group *world = join(30000);
    for (int way = 0; way < CONSUMERS; way++)
        for (int large = 0; large < 2; large++) {
            CHECK_OK(weft_scope_open());
            weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(large ? LARGE : 16), 2);
            weft_tensor *y = weft_all_reduce(x, WEFT_SUM, world);
            CHECK_INT(weft_unwaited(world), 1);
            weft_clear_error();
            if (!consume(way, y, 2 * size, world))
                FAIL("use %d of a%s result: %s", way, large ? " large" : "", weft_last_error());
            CHECK_INT(weft_unwaited(world), 0);
            CHECK_ALL(x, weft_tensor_shape(x), 2);
            CHECK_OK(weft_scope_close());
        }
    leave(world);
}

/* ---- what does not ---- */

SIZES_TEST(test_pending_views_do_not_wait)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 6));
    weft_tensor *y = weft_all_reduce(x, WEFT_SUM, world);
    weft_tensor *chunks[2], *t = weft_transpose(y, 0, 1);
    size_t count = 2;
    CHECK_INT(weft_tensor_size(y, 1), 6);
    CHECK_INT(weft_tensor_stride(y, 0), 6);
    CHECK(weft_tensor_is_contiguous(y) && weft_tensor_dtype(y) == WEFT_F32);
    CHECK_INT(weft_tensor_bytes(y), 96);
    CHECK(weft_tensor_storage(y) == weft_tensor_storage(t));
    CHECK_INT(weft_storage_bytes(weft_tensor_storage(y)), 96);
    CHECK(weft_view(y, WEFT_SHAPE(24)) && weft_reshape(y, WEFT_SHAPE(2, 12)) && weft_detach(y));
    CHECK(weft_slice(y, 0, 1, 3, 1) && weft_select(y, 0, 1) && weft_expand(y, WEFT_SHAPE(2, 4, 6)));
    CHECK(weft_contiguous(y) && weft_to_dtype(y, WEFT_F32)); /* nothing to convert: aliases */
    CHECK_OK(weft_chunk(y, 2, 0, chunks, &count));
    weft_tensor *bits = weft_view_dtype(y, WEFT_U8);
    CHECK(bits && weft_tensor_size(bits, 1) == 24);
    CHECK_INT(weft_tensor_version(y), 0);
    CHECK_INT(weft_unwaited(world), 1);
    float wanted = (float)size; /* through the view, and then it is waited for */
    CHECK(!memcmp(weft_tensor_data(bits), &wanted, sizeof wanted));
    CHECK_INT(weft_unwaited(world), 0);
    CHECK_ALL(t, WEFT_SHAPE(6, 4), size);
    leave(world);
}

/* The view holds the result; nothing is left when it goes (the sanitizer looks). */
RANKS_TEST(test_pending_view_outlives_result, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(LARGE));
    for (int round = 0; round < 10; round++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *y = weft_all_reduce(x, WEFT_SUM, world);
        weft_tensor *bits = weft_view_dtype(y, WEFT_I32);
        weft_release(y);
        CHECK(weft_item(weft_view_dtype(bits, WEFT_F32), LARGE - 1) == size);
        CHECK_OK(weft_scope_close());
    }
    leave(world);
}

/* ---- inputs may be written after the call ---- */

static void check_inputs(weft_group *world, int rank, int size, int64_t n)
{
    double sum = size * (size - 1) / 2.0;
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(n * size), rank), *out[2], *list[2];
    weft_tensor *reduced = weft_all_reduce(x, WEFT_SUM, world);
    CHECK_OK(weft_fill(x, rank + 10));
    weft_tensor *gathered = weft_all_gather_tensor(x, 0, world);
    float *data = weft_tensor_data(x); /* a pointer asked for after the call waits, too */
    for (int64_t i = 0; i < n * size; i++)
        data[i] = (float)(rank + 20);
    weft_tensor *scattered = weft_reduce_scatter_tensor(x, WEFT_SUM, 0, world);
    CHECK_OK(weft_copy(x, weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, rank + 30)));
    weft_tensor *exchanged = weft_all_to_all_single(x, NULL, NULL, world);
    CHECK_OK(weft_add_scalar_into(x, x, 10));
    weft_tensor *cast = weft_broadcast(x, size - 1, world);
    CHECK_OK(weft_fill(x, rank + 50));
    list[0] = list[1] = x;
    CHECK_OK(weft_all_reduce_coalesced(out, list, 2, WEFT_SUM, world));
    CHECK_OK(weft_resize_storage(x, 0));
    CHECK(all_are(reduced, sum));
    CHECK(all_are(scattered, sum + 20 * size));
    CHECK(all_are(cast, size + 39));
    CHECK(all_are(out[0], sum + 50 * size) && all_are(out[1], sum + 50 * size));
    for (int i = 0; i < size; i++) {
        CHECK(all_are(weft_narrow(gathered, 0, n * size * i, n * size), i + 10));
        CHECK(all_are(weft_narrow(exchanged, 0, n * i, n), i + 30));
    }
}

SIZES_TEST(test_pending_inputs_may_be_written)
{
    weft_group *world = join(30000);
    check_inputs(world, rank, size, 3);
    check_inputs(world, rank, size, 6000);
    leave(world);
}

/* all_reduce of a small input, alone or as a list. */
static weft_tensor *start_small(bool list, weft_tensor *x, weft_group *world)
{
    weft_tensor *out[1] = {NULL};
    if (!list)
        return weft_all_reduce(x, WEFT_SUM, world);
    return weft_all_reduce_coalesced(out, &x, 1, WEFT_SUM, world) < 0 ? NULL : out[0];
}

/* A small input has been copied: writing it does not wait for the others, who wait for that here.
 */
/* A result that goes into a tensor of the caller's is copied there when it has come, not before. */
RANKS_TEST(test_pending_into, 2)
{
    enum { MANY = 40000 };
    weft_group *world = join(20000);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(MANY), rank + 1);
    weft_tensor *into = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(MANY));
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(WEFT_SUM), WEFT_I_NUMBER_ARG(0),
                         WEFT_I_GROUP_ARG(world, weft_group_name(world), size)};
    CHECK(weft_all_reduce(x, WEFT_SUM, world)); /* makes the lane */
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank)
        rest_us(50000);
    CHECK_OK(weft_i_op_into(&weft_i_op_all_reduce, into, args));
    CHECK(weft_item(into, 0) == 3 && weft_item(into, MANY - 1) == 3);
    finish(world);
}

RANKS_TEST(test_pending_small_inputs_are_free, 2)
{
    weft_group *world = join(30000);
    weft_tensor *first = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK(weft_wait_tensor(weft_all_reduce(first, WEFT_SUM, world))); /* where they all meet */
    for (int which = 0; which < 2; which++) {
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 3);
        if (rank == 1)
            CHECK(harness_await(0, which + 1));
        weft_tensor *y = start_small(which == 1, x, world);
        if (!y)
            FAIL("way %d: %s", which, weft_last_error());
        CHECK_OK(weft_fill(x, 50));
        if (rank == 0)
            harness_mark();
        if (!all_are(y, 6))
            FAIL("way %d gives %g: %s", which, weft_item(y, 0), weft_last_error());
        CHECK(all_are(x, 50));
    }
    leave(world);
}

/* Reading an input, and using it again, does not wait. */
RANKS_TEST(test_pending_inputs_may_be_read, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(LARGE)), *y[20];
    CHECK(weft_wait_tensor(weft_all_reduce(x, WEFT_SUM, world)));
    if (rank == 1) { /* rank 0 cannot be through before we come */
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    }
    for (int i = 0; i < 20; i++)
        y[i] = weft_all_reduce(x, i % 2 ? WEFT_MAX : WEFT_SUM, world);
    CHECK(weft_item(x, 7) == 1 && weft_item(weft_add(x, x), 3) == 2);
    CHECK_INT(weft_unwaited(world), 20);
    if (rank == 0)
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    for (int i = 0; i < 20; i++)
        CHECK_ALL(y[i], WEFT_SHAPE(LARGE), i % 2 ? 1 : size);
    leave(world);
}

/* ---- other threads ---- */

typedef struct reader {
    pthread_t thread;
    weft_tensor *y;
    double seen;
} reader;

static void *read_it(void *arg)
{
    reader *r = arg;
    r->seen = weft_item(r->y, LARGE - 1);
    return NULL;
}

SIZES_TEST(test_pending_in_other_threads)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(LARGE), rank);
    for (int round = 0; round < 5; round++) {
        CHECK_OK(weft_scope_open());
        reader readers[3];
        weft_tensor *y = weft_all_reduce(x, WEFT_MAX, world);
        for (int i = 0; i < 3; i++) {
            readers[i].y = y;
            CHECK(!pthread_create(&readers[i].thread, NULL, read_it, &readers[i]));
        }
        double seen = weft_item(y, 0);
        for (int i = 0; i < 3; i++)
            pthread_join(readers[i].thread, NULL);
        CHECK(seen == size - 1);
        for (int i = 0; i < 3; i++)
            CHECK(readers[i].seen == seen);
        CHECK_INT(weft_unwaited(world), 0);
        CHECK_OK(weft_scope_close());
    }
    leave(world);
}

/* ---- failures ---- */

RANKS_TEST(test_pending_failure_is_told, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4 + rank)), *out[2];
    CHECK_OK(weft_all_reduce_coalesced(out, (weft_tensor *[]){x, x}, 2, WEFT_SUM, world));
    CHECK(weft_last_status() == WEFT_OK); /* it is under way */
    CHECK(!weft_add(out[1], out[1]));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "all_reduce");
    weft_clear_error();
    CHECK(!weft_tensor_data(out[1]) && weft_last_status() == WEFT_ERR_MISMATCH); /* still */
    CHECK_INT(weft_fill(out[1], 0), WEFT_ERR_MISMATCH);
    CHECK(!weft_wait_tensor(out[1])); /* from now on whoever uses it knows */
    CHECK_OK(weft_fill(out[1], 0));
    CHECK(weft_item(out[1], 2) == 0);
    CHECK(isnan(weft_item(out[0], 0))); /* the other one was not acknowledged */
    weft_clear_error();
    CHECK_OK(weft_fill(x, 5)); /* nothing happened to the input */
    CHECK(weft_item(x, 0) == 5 && weft_last_status() == WEFT_OK);
    CHECK(!weft_wait_tensor(out[0]));
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* All are waited for, and the first failure is told. */
RANKS_TEST(test_wait_tensors_failure, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *uneven = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4 + rank)), *list[4], *out[4];
    list[0] = weft_all_reduce(x, WEFT_SUM, world);
    CHECK_OK(
        weft_all_reduce_coalesced(&list[1], (weft_tensor *[]){uneven, uneven}, 2, WEFT_SUM, world));
    list[3] = weft_all_reduce(x, WEFT_MAX, world);
    CHECK_STATUS(weft_wait_tensors(out, list, 4), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "all_reduce");
    CHECK(!out[0] && !out[1] && !out[2] && !out[3]);
    weft_clear_error();
    CHECK_INT(weft_unwaited(world), 0);
    CHECK_ALL(list[0], WEFT_SHAPE(4), size);
    CHECK_ALL(list[3], WEFT_SHAPE(4), 1);
    CHECK_OK(weft_fill(list[1], 0)); /* this failure has been told */
    CHECK_OK(weft_fill(list[2], 0));
    CHECK(!weft_finish(world));
}

/* ---- nobody waits ---- */

static weft_i_os listening;
static pthread_mutex_t heard_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next two */
static int heard;
static char heard_text[512];

static ssize_t listen_to_log(int fd, const void *bytes, size_t count)
{
    if (fd != 2 || !memmem(bytes, count, "nobody waited", 13))
        return weft_i_os_linux.write(fd, bytes, count);
    pthread_mutex_lock(&heard_lock);
    if (heard++ == 0)
        snprintf(heard_text, sizeof heard_text, "%.*s", (int)count, (const char *)bytes);
    pthread_mutex_unlock(&heard_lock);
    return (ssize_t)count;
}

/* How many warnings came; of all ranks, where they share a process. */
static int warnings(char text[512])
{
    pthread_mutex_lock(&heard_lock);
    int count = heard;
    memcpy(text, heard_text, sizeof heard_text);
    pthread_mutex_unlock(&heard_lock);
    return count;
}

static void wait_until_none_is_left(weft_group *world)
{
    for (int i = 0; i < 5000 && weft_unwaited(world); i++)
        rest_ms(1);
    CHECK_INT(weft_unwaited(world), 0);
}

RANKS_TEST(test_pending_dropped, 2)
{
    int listeners = harness_in_threads ? size : 1;
    char text[512];
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(7, LARGE / 7)), *out[2];
    weft_release(weft_all_reduce(x, WEFT_SUM, world));
    weft_release(x); /* the operation still reads it */
    wait_until_none_is_left(world);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_INT(warnings(text), listeners);
    CHECK_CONTAINS(text, "all_reduce in group \"0\" (operation ");
    CHECK_CONTAINS(text, "f32[7, 7142]");
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_OK(weft_all_reduce_coalesced(out, (weft_tensor *[]){x, x}, 2, WEFT_SUM, world));
    weft_release(out[0]);
    CHECK_ALL(out[1], WEFT_SHAPE(4), size);
    wait_until_none_is_left(world);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_INT(warnings(text), 2 * listeners);
    leave(world);
}

/* The ranks leave with results that nobody waited for: no rank hangs or crashes, nothing is left.
 */
SIZES_TEST(test_pending_exit)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(LARGE));
    CHECK(weft_wait_tensor(weft_all_reduce(x, WEFT_SUM, world)));
    weft_tensor *y = weft_all_reduce(x, WEFT_SUM, world);
    CHECK(y && weft_all_gather_tensor(x, 0, world));
    CHECK(!weft_finish(world)); /* what was posted ends first */
    CHECK_ALL(y, WEFT_SHAPE(LARGE), size);
    weft_keep(world);
    CHECK_OK(weft_scope_close());
    CHECK_OK(weft_scope_open());
    wait_until_none_is_left(world);
    weft_release(world);
    rest_ms(20); /* the helper lets go of the group */
}

int main(int argc, char **argv)
{
    values_choose_seed();
    listening = weft_i_os_linux;
    listening.write = listen_to_log;
    weft_i_os_now = &listening;
    return harness_main(argc, argv);
}

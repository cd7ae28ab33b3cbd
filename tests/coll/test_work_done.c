/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/work_done.c */
/* Work that is told of when it ends, once and however it ends, and messages that are cancelled. */
#include "coll_acts.h"
#include "jobs.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct end {
    atomic_int told;
    atomic_int status;
    weft_work *work; /* asked when it is told, if there is one */
    char error[256];
} end;

static void note_end(void *argument, weft_status status)
{
    end *e = argument;
    if (e->work && status < 0)
        snprintf(e->error, sizeof e->error, "%s", weft_work_error(e->work));
    atomic_store(&e->status, status);
    atomic_fetch_add(&e->told, 1); /* release, pairs with the load in `await` */
}

static void await(end *e, int times)
{
    for (int i = 0; i < 600000 && atomic_load(&e->told) < times; i++)
        rest_us(100);
    CHECK_INT(atomic_load(&e->told), times);
}

/* By whoever runs it: the helper, a thread that waits for it, or one that waits for a later work. */
RANKS_TEST(test_work_done_collectives, 3)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10));
    weft_tensor *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100000));
    end ends[4] = {0};
    weft_work *works[4];
    for (int i = 0; i < 4; i++) {
        weft_tensor *z = i % 2 ? y : x;
        CHECK(works[i] = weft_all_reduce_start(z, z, WEFT_MAX, world));
        CHECK_OK(weft_work_on_done(works[i], note_end, &ends[i]));
    }
    CHECK_OK(weft_work_wait(works[3], WEFT_DEFAULT));
    for (int i = 0; i < 4; i++) {
        await(&ends[i], 1);
        CHECK_INT(atomic_load(&ends[i].status), WEFT_OK);
    }
    CHECK_STATUS(weft_work_on_done(works[0], note_end, &ends[0]), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "has such a function");
    weft_clear_error();
    weft_work *over = weft_all_reduce_start(x, x, WEFT_SUM, world);
    CHECK_OK(weft_work_wait(over, WEFT_DEFAULT));
    end at_once = {0};
    CHECK_OK(weft_work_on_done(over, note_end, &at_once)); /* in this very call */
    CHECK_INT(atomic_load(&at_once.told), 1);
    CHECK(weft_item(x, 9) == 3);
    CHECK_INT(atomic_load(&ends[0].told), 1);
    finish(world);
}

/* Nobody waits, and the handle is gone: the end is told all the same. */
RANKS_TEST(test_work_done_dropped, 2)
{
    weft_group *world = join(30000);
    end ends[3] = {0};
    for (int round = 1; round <= 5; round++) {
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(30000), rank);
        weft_tensor *y = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(30000));
        weft_tensor *z = weft_clone(x); /* what is sent stays as it is until it has arrived */
        weft_work *works[] = {weft_recv_start(y, 1 - rank, world),
                              weft_send_start(x, 1 - rank, world),
                              weft_all_reduce_start(z, z, WEFT_MAX, world)};
        for (int i = 0; i < 3; i++) {
            CHECK(works[i]);
            CHECK_OK(weft_work_on_done(works[i], note_end, &ends[i]));
        }
        CHECK_OK(weft_work_wait(works[1], WEFT_DEFAULT));
        for (int i = 0; i < 3; i++)
            weft_release(works[i]);
        for (int i = 0; i < 3; i++)
            await(&ends[i], round);
        CHECK(weft_item(z, 29999) == 1 && weft_item(y, 29999) == 1 - rank);
    }
    finish(world);
}

RANKS_TEST(test_work_done_errors, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10 + rank));
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    end e = {.work = weft_all_reduce_start(x, x, WEFT_SUM, world)};
    CHECK(e.work);
    CHECK_OK(weft_work_on_done(e.work, note_end, &e));
    CHECK_STATUS(weft_work_wait(e.work, WEFT_DEFAULT), WEFT_ERR_MISMATCH);
    await(&e, 1);
    CHECK_INT(atomic_load(&e.status), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(e.error, "all_reduce of 11");
    weft_clear_error();
    CHECK_STATUS(weft_work_on_done(NULL, note_end, &e), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_work_on_done(e.work, NULL, &e), WEFT_ERR_INVALID_ARG);
    finish(world);
}

RANKS_TEST(test_work_done_empty, 1)
{
    weft_group *world = join(30000);
    end ends[2] = {0};
    CHECK_OK(weft_work_on_done(weft_batch_start(NULL, 0), note_end, &ends[0]));
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_work_on_done(weft_send_start(x, WEFT_NOBODY, world), note_end, &ends[1]));
    for (int i = 0; i < 2; i++) {
        CHECK_INT(atomic_load(&ends[i].told), 1);
        CHECK_INT(atomic_load(&ends[i].status), WEFT_OK);
    }
    finish(world);
}

/* ---- cancelled ---- */

RANKS_TEST(test_work_cancel, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(7));
    weft_tensor *y = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(7));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0) {
        int sources[] = {1, WEFT_ANY, 0};
        for (int i = 0; i < 3; i++) {
            end e = {.work = weft_recv_tag_start(y, sources[i], 5, world)};
            CHECK(e.work);
            CHECK_OK(weft_work_on_done(e.work, note_end, &e));
            CHECK_OK(weft_work_cancel(e.work));
            CHECK_INT(atomic_load(&e.told), 1);
            CHECK_INT(weft_work_status(e.work), WEFT_ERR_CANCELLED);
            CHECK_CONTAINS(e.error, "recv of 28 bytes, tag 5");
            CHECK_OK(weft_work_cancel(e.work)); /* over is over */
            CHECK_STATUS(weft_work_wait(e.work, 0), WEFT_ERR_CANCELLED);
            weft_clear_error();
        }
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    /* The group works on, and the message goes to the receive that is left. */
    if (rank == 0)
        CHECK_OK(weft_recv_tag(y, 1, 5, world));
    else
        CHECK_OK(weft_send_tag(x, 0, 5, world));
    CHECK(rank || weft_item(y, 6) == 1);
    weft_work *sum = weft_all_reduce_start(x, x, WEFT_SUM, world);
    weft_status status = weft_work_cancel(sum);
    CHECK(status == WEFT_OK || status == WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    CHECK_OK(weft_work_wait(sum, WEFT_DEFAULT));
    CHECK_STATUS(weft_work_cancel(NULL), WEFT_ERR_INVALID_ARG);
    finish(world);
}

/* A message that has come is received, not cancelled. */
RANKS_TEST(test_work_cancel_late, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100), 4 + rank);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 1)
        CHECK_OK(weft_send(x, 0, world));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0) {
        weft_work *work = weft_recv_start(x, 1, world);
        CHECK_OK(weft_work_cancel(work));
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        CHECK(weft_item(x, 99) == 5);
    }
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

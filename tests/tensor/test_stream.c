/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/stream.c */
/* Streams of the CPU, which are always done, and what all streams refuse.  Those of devices:
 * test_device, test_cuda_tensor. */
#include "harness.h"

#include "tensor/object/stream.h"
#include "weft/weft.h"

TEST(test_stream_of_the_cpu)
{
    weft_scope_open();
    weft_stream *current = weft_stream_current(WEFT_CPU);
    CHECK(current && current == weft_stream_current(WEFT_CPU));
    CHECK(weft_stream_device(current) == WEFT_CPU && !weft_stream_native(current));
    weft_stream *own = weft_stream_new(WEFT_CPU, true), *over = weft_stream_wrap(WEFT_CPU, &own);
    CHECK(own && over && own != current);
    CHECK_OK(weft_stream_use(own));
    CHECK(weft_stream_current(WEFT_CPU) == current); /* there is one order, that of the calls */
    CHECK_OK(weft_stream_sync(own, 0));
    CHECK_OK(weft_stream_sync(current, WEFT_FOREVER));
    CHECK_OK(weft_stream_test(over));
    CHECK_OK(weft_stream_after(own, current));
    weft_stream elsewhere = {.own = &own}; /* of a device; there is no order with one of the CPU */
    CHECK_OK(weft_i_stream_after(own, &elsewhere, true));
    CHECK_OK(weft_i_stream_after(&elsewhere, own, true));
    CHECK_OK(weft_i_stream_after(&elsewhere, &elsewhere, true));
    weft_event *event = weft_event_record(own);
    CHECK(event);
    CHECK_OK(weft_event_test(event));
    CHECK_OK(weft_event_sync(event, 0));
    CHECK_OK(weft_stream_after_event(current, event));
    weft_release(weft_keep(current)); /* is everybody's, and stays */
    CHECK_OK(weft_stream_test(current));
    weft_scope_close();
}

TEST(test_stream_capture_of_the_cpu)
{
    weft_scope_open();
    weft_stream *own = weft_stream_new(WEFT_CPU, false);
    CHECK_STATUS(weft_capture_begin(own), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "cpu runs at once");
    CHECK(!weft_capture_end(own));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    weft_clear_error();
    weft_scope_close();
}

TEST(test_stream_refuses)
{
    weft_scope_open();
    CHECK(!weft_stream_new(WEFT_META, false) && weft_last_status() == WEFT_ERR_UNSUPPORTED);
    CHECK(!weft_stream_current(WEFT_META));
    CHECK(!weft_stream_new((weft_device)(7 << 16), false));
    CHECK(!weft_stream_wrap((weft_device)-1, NULL));
    weft_clear_error();
    CHECK_STATUS(weft_stream_use(NULL), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "the stream is NULL");
    weft_clear_error();
    CHECK_STATUS(weft_event_test(NULL), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_replay_run(NULL), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_STATUS(weft_stream_sync((weft_stream *)(void *)x, 0), WEFT_ERR_TYPE);
    weft_clear_error();
    CHECK(!weft_stream_wrap(WEFT_META, NULL));
    CHECK_STATUS(weft_stream_after(weft_stream_current(WEFT_CPU), NULL), WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

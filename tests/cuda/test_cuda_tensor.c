/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/device/copy.c, backends/cuda/device/capture.c, backends/cuda/tensor/move.c,
 * tensor/object/stream.c, tensor/object/touch.c */
/*
 * Tensors on CUDA devices: memory, copies of every kind, streams, capture, DLPack, errors.  On the
 * software driver, or on a GPU with WEFT_TEST_CUDA=real, where tests that need faults are skipped.
 */
#include "cuda/team_scene.h"

#include "backends/cuda/tensor/table.h"
#include "weft/weft.h"

#include <sys/wait.h>
#include <unistd.h>

#define GPU WEFT_CUDA(0)

static void begin(void)
{
    scene_driver();
    weft_scope_open();
}

static void end(void)
{
    scene_end_scope();
}

static void only_software(void)
{
    if (scene_is_real())
        SKIP("a driver with faults is wanted");
}

static weft_tensor *counted(weft_dtype dtype, weft_shape shape)
{
    int64_t numel = 1;
    for (int i = 0; i < shape.ndim; i++)
        numel *= shape.dim[i];
    return weft_view(weft_to_dtype(weft_arange(WEFT_F32, WEFT_CPU, 0, (double)numel, 1), dtype),
                     shape);
}

static void check_same(const char *what, weft_tensor *a, weft_tensor *b)
{
    if (!a || !b || !weft_equal(a, b))
        FAIL("%s: %s", what, weft_last_error());
}

TEST(test_cuda_tensor_there_and_back)
{
    begin();
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        weft_tensor *x = counted((weft_dtype)dtype, WEFT_SHAPE(3, 5));
        weft_tensor *y = weft_to(x, (weft_dtype)dtype, GPU);
        CHECK(y && weft_tensor_device(y) == GPU);
        weft_tensor *z = weft_to(weft_clone(y), (weft_dtype)dtype, WEFT_CPU);
        CHECK(z && weft_tensor_device(z) == WEFT_CPU);
        check_same(weft_dtype_name((weft_dtype)dtype), x, z);
        check_same(weft_dtype_name((weft_dtype)dtype), x, y);
    }
    weft_tensor *none = weft_to(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0, 3)), WEFT_F32, GPU);
    CHECK(none && weft_tensor_numel(weft_to(none, WEFT_F32, WEFT_CPU)) == 0);
    end();
}

/* Every layout and dtype on both sides, with broadcasting: as the CPU does it. */
TEST(test_cuda_tensor_copies)
{
    begin();
    weft_tensor *x = counted(WEFT_F32, WEFT_SHAPE(4, 6)), *turned = weft_transpose(x, 0, 1);
    weft_tensor *there = weft_to(x, WEFT_F32, GPU);
    check_same("transposed", turned, weft_contiguous(weft_transpose(there, 0, 1)));
    check_same("strided to device", turned, weft_to(turned, WEFT_F32, GPU));
    check_same("strided to host", turned, weft_to(weft_transpose(there, 0, 1), WEFT_F32, WEFT_CPU));
    check_same("converted", weft_to_dtype(x, WEFT_BF16), weft_to_dtype(there, WEFT_BF16));
    check_same("smaller to device", weft_to_dtype(x, WEFT_F16), weft_to(x, WEFT_F16, GPU));
    check_same("larger to host", weft_to_dtype(x, WEFT_F64), weft_to(there, WEFT_F64, WEFT_CPU));
    weft_tensor *wide = weft_empty(WEFT_F64, GPU, WEFT_SHAPE(6, 8));
    CHECK_OK(weft_fill(wide, -1));
    CHECK_OK(weft_copy(weft_slice(wide, 1, 0, 8, 2), weft_transpose(there, 0, 1)));
    CHECK_OK(weft_copy(weft_slice(wide, 1, 1, 8, 2), weft_slice(turned, 0, 0, 1, 1)));
    weft_tensor *wanted = weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(6, 8), -1);
    CHECK_OK(weft_copy(weft_slice(wanted, 1, 0, 8, 2), turned));
    CHECK_OK(weft_copy(weft_slice(wanted, 1, 1, 8, 2), weft_slice(turned, 0, 0, 1, 1)));
    check_same("sliced and broadcast", wanted, wide);
    CHECK_OK(weft_copy(weft_slice(wide, 0, 1, 6, 1), weft_slice(wide, 0, 0, 5, 1)));
    CHECK_OK(weft_copy(weft_slice(wanted, 0, 1, 6, 1), weft_slice(wanted, 0, 0, 5, 1)));
    check_same("overlapping", wanted, wide);
    weft_tensor *host = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4, 12));
    CHECK_OK(weft_copy(weft_slice(host, 1, 0, 12, 2), there));
    CHECK(weft_item(host, 2) == 1 && weft_item(host, 3) == 0 && weft_item(host, 46) == 23);
    end();
}

TEST(test_cuda_tensor_fill)
{
    begin();
    static const double values[] = {0, -1, 3, 65};
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            weft_tensor *x = weft_full((weft_dtype)dtype, GPU, WEFT_SHAPE(3, 4), values[v]);
            weft_tensor *y = weft_full((weft_dtype)dtype, WEFT_CPU, WEFT_SHAPE(3, 4), values[v]);
            check_same("full", y, x);
            CHECK_OK(weft_fill(weft_slice(x, 1, 1, 4, 2), values[(v + 1) % 4]));
            CHECK_OK(weft_fill(weft_slice(y, 1, 1, 4, 2), values[(v + 1) % 4]));
            check_same("fill of a slice", y, x);
        }
    end();
}

TEST(test_cuda_tensor_questions)
{
    begin();
    weft_tensor *x = weft_to(counted(WEFT_I64, WEFT_SHAPE(2, 3)), WEFT_I64, GPU);
    CHECK(weft_item_int(x, 4) == 4 && weft_item(weft_transpose(x, 0, 1), 1) == 3);
    char text[256];
    CHECK(weft_tensor_text(x, text, sizeof text) > 0);
    CHECK_CONTAINS(text, "[3, 4, 5]], device=cuda:0, dtype=i64)");
    CHECK(!weft_matmul(x, x)); /* shapes are checked as ever */
    CHECK_OK(weft_resize_storage(x, 8 * 8));
    CHECK(weft_item_int(x, 5) == 5);
    CHECK_OK(weft_resize_storage(x, 0));
    CHECK(isnan(weft_item(x, 0)) && weft_last_status() == WEFT_ERR_STATE);
    end();
}

/* Memory goes back to its stream's list, and comes from there again. */
TEST(test_cuda_tensor_memory_is_cached)
{
    begin();
    weft_tensor *x = weft_keep(weft_empty(WEFT_F32, GPU, WEFT_SHAPE(1000)));
    void *at = weft_tensor_data(x);
    weft_release(x);
    int calls = scene.real ? 0 : model_calls("cuMemAllocAsync");
    x = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(1000));
    CHECK(weft_tensor_data(x) == at);
    if (!scene.real)
        CHECK_INT(model_calls("cuMemAllocAsync"), calls);
    end();
}

TEST(test_cuda_tensor_out_of_memory)
{
    only_software();
    begin();
    model.capacity = 1 << 20;
    CHECK(!weft_empty(WEFT_U8, GPU, WEFT_SHAPE(1 << 21)));
    CHECK_INT(weft_last_status(), WEFT_ERR_NO_MEMORY);
    CHECK_CONTAINS(weft_last_error(), "cuda:0");
    weft_tensor *x = weft_keep(weft_empty(WEFT_U8, GPU, WEFT_SHAPE(600 << 10)));
    CHECK(x);
    weft_release(x); /* what is cached makes room for another size */
    CHECK(weft_empty(WEFT_U8, GPU, WEFT_SHAPE(900 << 10)));
    end();
}

TEST(test_cuda_tensor_no_such_device)
{
    begin();
    CHECK(!weft_empty(WEFT_F32, WEFT_CUDA(15), WEFT_SHAPE(2)));
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    CHECK_CONTAINS(weft_last_error(), "cuda:15 cannot be used: there is no cuda:15");
    CHECK(!weft_empty(WEFT_F32, WEFT_CUDA(16), WEFT_SHAPE(2)));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    end();
}

TEST(test_cuda_tensor_two_devices)
{
    only_software();
    begin();
    weft_tensor *x = counted(WEFT_F32, WEFT_SHAPE(3, 4)), *a = weft_to(x, WEFT_F32, GPU);
    weft_tensor *b = weft_to(weft_transpose(a, 0, 1), WEFT_F16, WEFT_CUDA(1));
    CHECK(b && weft_tensor_device(b) == WEFT_CUDA(1));
    check_same("between devices", weft_to_dtype(weft_transpose(x, 0, 1), WEFT_F16), b);
    CHECK_STATUS(weft_copy(a, weft_transpose(b, 0, 1)), WEFT_OK);
    check_same("and back", x, a);
    end();
}

/* ---- streams ---- */

/* A stream of the test stops at a gate until the host opens it. */
static uint64_t *gate_of(weft_stream *stream)
{
    void *gate;
    CHECK_OK(weft_i_cuda_pinned(scene.device, 64, &gate));
    CHECK_INT(weft_i_cuda_driver()->cuStreamWaitValue64(weft_stream_native(stream),
                                                        (weft_i_cu_ptr)(uintptr_t)gate, 1, 0),
              0);
    return gate;
}

static void open_gate(uint64_t *gate)
{
    /* Release: pairs with the driver's look at the word. */
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

TEST(test_cuda_tensor_streams)
{
    begin();
    weft_stream *first = weft_keep(weft_stream_current(GPU)), *second = weft_stream_new(GPU, true);
    CHECK(second && weft_stream_device(second) == GPU && weft_stream_native(second));
    weft_tensor *x = weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(64)), *y = weft_empty_like(x);
    CHECK_OK(weft_fill(y, 0));
    CHECK_OK(weft_stream_sync(first, 20000));
    uint64_t *gate = gate_of(first);
    CHECK_OK(weft_fill(x, 7)); /* behind the gate */
    weft_event *event = weft_event_record(first);
    CHECK_STATUS(weft_stream_test(first), WEFT_IN_PROGRESS);
    CHECK_STATUS(weft_event_test(event), WEFT_IN_PROGRESS);
    CHECK_STATUS(weft_event_sync(event, 10), WEFT_ERR_TIMEOUT);
    CHECK_STATUS(weft_stream_sync(first, 10), WEFT_ERR_TIMEOUT);
    weft_clear_error();
    CHECK_OK(weft_stream_use(second));
    CHECK(weft_stream_current(GPU) == second);
    weft_tensor *free_of_it = weft_full(WEFT_F32, GPU, WEFT_SHAPE(4), 3);
    CHECK(weft_item(free_of_it, 0) == 3); /* the second stream runs beside the first */
    CHECK_OK(weft_copy(y, x));            /* waits for it, not the host */
    CHECK_STATUS(weft_stream_test(second), WEFT_IN_PROGRESS);
    open_gate(gate);
    CHECK(weft_item(y, 63) == 7);
    CHECK_OK(weft_event_sync(event, 20000));
    CHECK_OK(weft_stream_after_event(second, event));
    CHECK_OK(weft_stream_after(second, first));
    CHECK_OK(weft_stream_sync(second, 20000));
    CHECK_STATUS(weft_stream_after(weft_stream_current(WEFT_CPU), second), WEFT_ERR_UNSUPPORTED);
    CHECK_OK(weft_stream_after(second, weft_stream_current(WEFT_CPU)));
    weft_i_cuda_unpin(gate);
    weft_release(first);
    end();
}

/* The thread's own stream may be come back to: it lives though another took its place. */
TEST(test_cuda_tensor_stream_comes_back)
{
    begin();
    weft_stream *home = weft_stream_current(GPU), *other = weft_stream_new(GPU, false);
    for (int round = 0; round < 3; round++) {
        CHECK_OK(weft_stream_use(other));
        weft_release(
            weft_stream_new(GPU, false)); /* would get the block of a stream that is gone */
        CHECK_OK(weft_fill(weft_empty(WEFT_F32, GPU, WEFT_SHAPE(4)), 1));
        CHECK_OK(weft_stream_use(home));
        CHECK(weft_stream_current(GPU) == home && weft_stream_device(home) == GPU);
        CHECK_OK(weft_fill(weft_empty(WEFT_F32, GPU, WEFT_SHAPE(4)), 1));
        CHECK_OK(weft_stream_sync(home, 20000));
    }
    end();
}

/* Memory that another stream still reads is not given to the next. */
TEST(test_cuda_tensor_free_waits_for_readers)
{
    begin();
    weft_stream *first = weft_keep(weft_stream_current(GPU)), *second = weft_stream_new(GPU, false);
    weft_tensor *x = weft_keep(weft_full(WEFT_F32, GPU, WEFT_SHAPE(64), 5));
    weft_tensor *y = weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(64));
    CHECK_OK(weft_stream_use(second));
    uint64_t *gate = gate_of(second);
    CHECK_OK(weft_copy(y, x)); /* reads x behind the gate */
    weft_release(x);
    CHECK_OK(weft_stream_use(first));
    weft_tensor *z = weft_full(WEFT_F32, GPU, WEFT_SHAPE(64), 9); /* the same memory */
    CHECK_STATUS(weft_stream_test(first), WEFT_IN_PROGRESS);
    open_gate(gate);
    CHECK(weft_item(y, 0) == 5 && weft_item(z, 0) == 9);
    weft_i_cuda_unpin(gate);
    weft_release(first);
    end();
}

TEST(test_cuda_tensor_foreign_stream)
{
    begin();
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_stream raw = NULL;
    CHECK_INT(cu->cuStreamCreateWithPriority(&raw, WEFT_I_CU_STREAM_NON_BLOCKING, 0), 0);
    weft_scope_open();
    weft_stream *theirs = weft_stream_wrap(GPU, raw);
    CHECK(theirs && weft_stream_native(theirs) == raw);
    CHECK_OK(weft_stream_use(theirs));
    weft_tensor *x = weft_full(WEFT_F32, GPU, WEFT_SHAPE(4), 3);
    CHECK(weft_item(x, 2) == 3);
    weft_scope_close();
    weft_i_stream_forget();
    CHECK_INT(cu->cuStreamSynchronize(raw), 0); /* it is still theirs */
    CHECK_INT(cu->cuStreamDestroy(raw), 0);
    end();
}

/* A stream of another device is refused before anything runs on it; an old driver cannot tell. */
TEST(test_cuda_tensor_stream_of_another_device)
{
    begin();
    if (scene.real)
        SKIP("the software driver has two devices");
    weft_stream *own = weft_stream_new(GPU, false), *other = weft_stream_new(WEFT_CUDA(1), false);
    CHECK(own && other);
    int live = model_live();
    CHECK(!weft_stream_wrap(GPU, weft_stream_native(other)));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "a stream of cuda:1 cannot be wrapped as one of cuda:0");
    weft_clear_error();
    CHECK_INT(model_live(), live);
    CHECK(weft_stream_wrap(WEFT_CUDA(1), weft_stream_native(other)));
    CHECK(weft_stream_wrap(GPU, weft_stream_native(own)));
    model.fail = "cuStreamGetCtx";
    model.fail_at = 2;
    model.fail_with = WEFT_I_CUDA_ERROR_INVALID_VALUE;
    CHECK(weft_stream_wrap(GPU, weft_stream_native(own)));
    CHECK(!weft_stream_wrap(GPU, weft_stream_native(own)));
    CHECK_CONTAINS(weft_last_error(), "whose stream is to be wrapped for cuda:0");
    weft_clear_error();
    model.fail_at = 1; /* a green context's stream: the driver does not say */
    model.fail_with = WEFT_I_CUDA_ERROR_NOT_SUPPORTED;
    CHECK(weft_stream_wrap(GPU, weft_stream_native(own)));
    model.fail = NULL;
    end();
}

/* ---- capture ---- */

TEST(test_cuda_tensor_replay)
{
    begin();
    weft_stream *stream = weft_stream_current(GPU);
    weft_tensor *x = weft_full(WEFT_F32, GPU, WEFT_SHAPE(8), 1);
    weft_tensor *out = weft_zeros(WEFT_F64, GPU, WEFT_SHAPE(8));
    CHECK_OK(weft_capture_begin(stream));
    weft_scope_open();
    weft_tensor *half = weft_to_dtype(x, WEFT_BF16); /* has memory of the replay */
    CHECK(half);
    CHECK_OK(weft_copy(out, half));
    CHECK(isnan(weft_item(out, 0)) && weft_last_status() == WEFT_ERR_STATE);
    CHECK_STATUS(weft_stream_sync(stream, 10), WEFT_ERR_STATE);
    CHECK_STATUS(weft_capture_begin(stream), WEFT_ERR_STATE);
    void *at = weft_tensor_data(half);
    weft_scope_close();
    weft_clear_error();
    weft_replay *replay = weft_keep(weft_capture_end(stream));
    if (!replay)
        FAIL("%s", weft_last_error());
    CHECK(weft_item(out, 0) == 0); /* nothing has run */
    weft_tensor *other = weft_full(WEFT_BF16, GPU, WEFT_SHAPE(8), 4);
    CHECK(weft_tensor_data(other) != at); /* the replay keeps its memory */
    for (int i = 2; i < 5; i++) {
        CHECK_OK(weft_fill(x, i));
        CHECK_OK(weft_replay_run(replay));
        CHECK(weft_item(out, 7) == i);
    }
    CHECK(weft_item(other, 0) == 4);
    /* On another stream, and given up while it runs. */
    weft_stream *second = weft_stream_new(GPU, false);
    CHECK_OK(weft_fill(x, 9));
    CHECK_OK(weft_stream_use(second));
    CHECK_OK(weft_replay_run(replay));
    weft_release(replay);
    CHECK(weft_item(out, 3) == 9);
    end();
}

/* What a capture made outlives its replay, and memory from elsewhere is not taken unseen. */
TEST(test_cuda_tensor_capture_memory)
{
    begin();
    weft_stream *stream = weft_keep(weft_stream_current(GPU));
    weft_tensor *x = weft_full(WEFT_F32, GPU, WEFT_SHAPE(8), 6);
    weft_stream *second = weft_stream_new(GPU, false);
    CHECK_OK(weft_stream_use(second));
    CHECK_OK(weft_capture_begin(second));
    CHECK(!weft_clone(x)); /* was never used on this stream */
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "before the capture begins");
    weft_clear_error();
    weft_replay *replay = weft_keep(weft_capture_end(second));
    CHECK(replay);
    weft_release(replay);
    CHECK(weft_item(x, 0) == 6); /* now it was */
    CHECK_OK(weft_capture_begin(second));
    weft_tensor *y = weft_clone(x);
    CHECK(y);
    replay = weft_keep(weft_capture_end(second));
    CHECK(replay);
    CHECK_OK(weft_replay_run(replay));
    weft_release(replay);
    CHECK(weft_item(y, 7) == 6); /* its memory lives on */
    CHECK(!weft_capture_end(second) && weft_last_status() == WEFT_ERR_STATE);
    weft_release(stream);
    end();
}

TEST(test_cuda_tensor_capture_faults)
{
    static const char *const calls[] = {"cuStreamBeginCapture", "cuStreamEndCapture",
                                        "cuGraphInstantiateWithFlags", "cuMemAllocAsync"};
    only_software();
    begin();
    weft_stream *stream = weft_stream_current(GPU);
    weft_tensor *x = weft_full(WEFT_F32, GPU, WEFT_SHAPE(8), 6);
    for (int i = 0; i < 4; i++) {
        model.fail = calls[i];
        model.fail_at = 1;
        model.fail_with = 2;
        weft_status begun = weft_capture_begin(stream);
        weft_tensor *y = begun < 0 ? NULL : weft_clone(x);
        CHECK(i == 0 || i == 3 ? !y : y != NULL);
        weft_replay *replay = weft_capture_end(stream);
        CHECK(!replay == (i < 3));
        model.fail_at = 0;
        weft_clear_error();
        CHECK(weft_item(weft_clone(x), 7) == 6); /* and all goes on */
    }
    end();
}

/* A driver that does not end a capture keeps its streams in it: others take their place, behind what
 * they were given before. */
TEST(test_cuda_tensor_capture_that_does_not_end)
{
    only_software();
    begin();
    weft_stream *first = weft_keep(weft_stream_current(GPU)), *second = weft_stream_new(GPU, true);
    weft_tensor *x = weft_full(WEFT_F32, GPU, WEFT_SHAPE(8), 6);
    CHECK_OK(weft_stream_sync(first, 20000));
    for (int joined = 0; joined < 2; joined++) {
        void *native = weft_stream_native(first);
        weft_tensor *y = weft_mul_scalar(x, 2);
        CHECK_OK(weft_capture_begin(first));
        if (joined)
            CHECK_OK(weft_stream_after(second, first));
        model.fail = "cuStreamEndCapture";
        model.fail_at = 1;
        model.fail_with = 2;
        CHECK(!weft_capture_end(first));
        CHECK_CONTAINS(weft_last_error(), "the capture of a stream of cuda:0");
        weft_clear_error();
        model.fail_at = 0;
        CHECK(weft_stream_native(first) != native);
        CHECK(weft_item(weft_add(y, x), 7) == 18);
        CHECK_OK(weft_stream_use(second));
        CHECK(weft_item(weft_clone(x), 7) == 6);
        CHECK_OK(weft_stream_use(first));
        CHECK_OK(weft_capture_begin(first)); /* and again */
        weft_replay *replay = weft_capture_end(first);
        CHECK(replay);
        weft_release(replay);
    }
    weft_release(first);
    end();
}

/* ---- DLPack, memory of others ---- */

TEST(test_cuda_tensor_dlpack)
{
    begin();
    weft_tensor *x = weft_to(counted(WEFT_F32, WEFT_SHAPE(3, 4)), WEFT_F32, GPU);
    weft_dlpack_versioned *out = weft_dlpack_export_versioned(weft_transpose(x, 0, 1));
    CHECK(out && out->tensor.device_type == WEFT_DLPACK_CUDA && out->tensor.device_id == 0);
    weft_tensor *y = weft_dlpack_import_versioned(out);
    CHECK(y && weft_tensor_device(y) == GPU && weft_tensor_data(y) == weft_tensor_data(x));
    check_same("dlpack", weft_transpose(x, 0, 1), y);
    float host[4] = {0};
    int64_t shape[] = {4};
    weft_dlpack wrong = {{host, WEFT_DLPACK_CUDA, 0, 1, 2, 32, 1, shape, NULL, 0}, NULL, NULL};
    CHECK(!weft_dlpack_import(&wrong));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "not memory of cuda:0");
    CHECK(!weft_tensor_wrap(WEFT_F32, GPU, WEFT_SHAPE(4), host, NULL, NULL));
    weft_clear_error();
    weft_tensor *z =
        weft_tensor_wrap(WEFT_F32, GPU, WEFT_SHAPE(6), weft_tensor_data(x), NULL, NULL);
    CHECK(z && weft_item(z, 5) == 5);
    end();
}

/* ---- errors ---- */

TEST(test_cuda_tensor_sticky_error)
{
    only_software();
    begin();
    weft_tensor *x = weft_full(WEFT_F32, GPU, WEFT_SHAPE(8), 1), *y = weft_empty_like(x);
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 20000));
    model.broken = WEFT_I_CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK_STATUS(weft_copy(y, x), WEFT_ERR_DEVICE);
    CHECK(isnan(weft_item(x, 0)) && weft_last_status() == WEFT_ERR_DEVICE);
    CHECK(!weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(1 << 20)));
    CHECK_INT(weft_last_status(), WEFT_ERR_DEVICE);
    CHECK_CONTAINS(weft_last_error(), "can use the device no more");
    CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), 10), WEFT_ERR_DEVICE);
    weft_clear_error();
    CHECK(weft_item(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)), 0) == 1); /* the CPU goes on */
    model.broken = 0;
    end();
}

/* A child of a process that has used CUDA is told so, and may end in peace. */
TEST(test_cuda_tensor_after_fork)
{
    begin();
    weft_tensor *x = weft_keep(weft_full(WEFT_F32, GPU, WEFT_SHAPE(8), 1));
    weft_stream *stream = weft_stream_new(GPU, false);
    weft_event *event = weft_event_record(stream);
    CHECK(event);
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bool told = isnan(weft_item(x, 0)) && weft_last_status() == WEFT_ERR_STATE &&
                    strstr(weft_last_error(), "forked") && weft_fill(x, 2) == WEFT_ERR_STATE &&
                    !weft_empty(WEFT_F32, GPU, WEFT_SHAPE(2)) &&
                    weft_stream_sync(stream, 10) == WEFT_ERR_STATE &&
                    weft_event_test(event) == WEFT_ERR_STATE;
        weft_release(x);
        weft_scope_close();
        weft_i_stream_forget();
        _exit(told ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK(weft_item(x, 7) == 1);
    weft_release(x);
    end();
}

/* Every call of the driver fails once: a status, nothing left, and the next try succeeds. */
TEST(test_cuda_tensor_each_fault)
{
    static const char *const calls[] = {
        "cuStreamCreateWithPriority", "cuMemAllocAsync", "cuMemcpyAsync",    "cuStreamSynchronize",
        "cuMemsetD32Async",           "cuMemsetD8Async", "cuLaunchKernelEx", "cuStreamIsCapturing"};
    only_software();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int at = 1; at <= 3; at++) {
            begin();
            model.fail = calls[i];
            model.fail_at = at;
            model.fail_with = WEFT_I_CUDA_ERROR_INVALID_VALUE;
            weft_tensor *x = weft_full(WEFT_F32, GPU, WEFT_SHAPE(8), 2);
            weft_tensor *y = weft_full(WEFT_BF16, GPU, WEFT_SHAPE(8), 2);
            double got = weft_item(weft_to(weft_to_dtype(x, WEFT_F16), WEFT_F32, WEFT_CPU), 3);
            if (model.fail_at == 0 && (x && y && got == 2))
                FAIL("%s fails at %d, and nobody notices", calls[i], at);
            model.fail_at = 0;
            weft_clear_error();
            x = weft_full(WEFT_F32, GPU, WEFT_SHAPE(8), 2);
            CHECK(weft_item(x, 3) == 2);
            end();
        }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

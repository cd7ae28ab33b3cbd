/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/device/driver.c, backends/cuda/device/device.c,
 * backends/cuda/device/stream.c, backends/cuda/device/span.c, backends/cuda/device/memory.c,
 * backends/cuda/device/copy.c, backends/cuda/device/retire.c, backends/cuda/device/range.c */
/*
 * The CUDA driver's loading, devices, streams, marks, memory and copies.  On the software driver,
 * or on a GPU with WEFT_TEST_CUDA=real, where the tests that need a driver with faults are skipped.
 * Loading happens once in a process, so tests of loading fork.
 */
#include "cuda/team_scene.h"

#include "backends/cuda/tensor/pointwise.h"
#include "kernels/number/convert.h"

#include <sys/wait.h>
#include <unistd.h>

static void only_software(void)
{
    if (scene_is_real())
        SKIP("a driver with faults is wanted");
}

/* Runs a check in a child that has not loaded anything; its complaint comes back. */
static void in_child(const char *(*check)(void))
{
    int pipe_fds[2], status = 0;
    char text[512] = "";
    only_software();
    CHECK(pipe(pipe_fds) == 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        model_install();
        const char *complaint = check();
        if (complaint && write(pipe_fds[1], complaint, strlen(complaint)) < 0)
            _exit(2);
        _exit(complaint != NULL);
    }
    close(pipe_fds[1]);
    ssize_t n = read(pipe_fds[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    close(pipe_fds[0]);
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL("status %d: %s", status, text);
}

/* What opening a device says, if it is not `status` with `part` in the message. */
static const char *opening_says(weft_status status, const char *part)
{
    static char text[512];
    weft_i_cuda_device *device = NULL;
    weft_status got = weft_i_cuda_open(0, &device);
    if (got == status && (status == WEFT_OK) == (device != NULL) &&
        (!part || strstr(weft_last_error(), part)))
        return NULL;
    snprintf(text, sizeof text, "open gives %d: %s", got, weft_last_error());
    return text;
}

static const char *no_library(void)
{
    model.no_library = 1;
    return opening_says(WEFT_ERR_UNSUPPORTED, "no libcuda.so.1");
}

static const char *old_driver(void)
{
    model.version = 11080;
    return opening_says(WEFT_ERR_UNSUPPORTED, "CUDA 11.8; 12.0 is the oldest");
}

static const char *lacks_function(void)
{
    model.lacks = "cuLaunchKernelEx";
    return opening_says(WEFT_ERR_UNSUPPORTED, "lacks cuLaunchKernelEx of CUDA 11.6");
}

static const char *lacks_optional(void)
{
    model.lacks = "cuFuncLoad";
    return opening_says(WEFT_OK, NULL);
}

static const char *no_device(void)
{
    model.devices = -1;
    return opening_says(WEFT_ERR_UNSUPPORTED, "finds no CUDA device");
}

static const char *old_device(void)
{
    model.capability = 75;
    return opening_says(WEFT_ERR_UNSUPPORTED, "compute capability 7.5");
}

/* A failure is no verdict for ever: the second try succeeds, and nothing was left by the first. */
static const char *each_fault(void)
{
    static const char *const calls[] = {"cuDeviceGetCount",
                                        "cuDeviceGet",
                                        "cuDeviceGetAttribute",
                                        "cuDeviceGetName",
                                        "cuDeviceGetUuid",
                                        "cuDeviceTotalMem",
                                        "cuDevicePrimaryCtxRetain",
                                        "cuCtxSetCurrent",
                                        "cuCtxGetStreamPriorityRange",
                                        "cuMemGetAllocationGranularity",
                                        "cuDeviceGetDefaultMemPool",
                                        "cuMemPoolSetAttribute",
                                        "cuModuleLoadData",
                                        "cuModuleGetFunction",
                                        "cuFuncLoad",
                                        "cuOccupancyMaxActiveBlocksPerMultiprocessor"};
    static char text[256];
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        weft_i_cuda_device *device = NULL;
        model.fail = calls[i];
        model.fail_at = 1;
        model.fail_with = 2;
        weft_status status = weft_i_cuda_open(0, &device);
        snprintf(text, sizeof text, "%s: %d, %s, %d left", calls[i], status, weft_last_error(),
                 model_live());
        if (status != WEFT_ERR_NO_MEMORY || device || model_live() != 0 ||
            !strstr(weft_last_error(), "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"))
            return text;
    }
    return opening_says(WEFT_OK, NULL);
}

/* A child of a process that has started CUDA cannot use it, and is told so. */
static const char *after_fork(void)
{
    const char *complaint = opening_says(WEFT_OK, NULL);
    if (complaint)
        return complaint;
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(opening_says(WEFT_ERR_STATE, "before this process was forked") != NULL);
    waitpid(child, &status, 0);
    return status == 0 ? NULL : "the child was not told";
}

/* Asking what there is starts nothing, so that a fork may follow. */
static const char *probe_first(void)
{
    const weft_i_cuda *cu;
    if (weft_i_cuda_load(&cu) != WEFT_OK || model_calls("cuInit") != 0)
        return "loading starts the driver";
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(opening_says(WEFT_OK, NULL) != NULL);
    waitpid(child, &status, 0);
    return status == 0 ? NULL : "the child cannot open a device";
}

TEST(test_cuda_no_library)
{
    in_child(no_library);
}

TEST(test_cuda_old_driver)
{
    in_child(old_driver);
}

TEST(test_cuda_lacks_function)
{
    in_child(lacks_function);
}

TEST(test_cuda_lacks_optional)
{
    in_child(lacks_optional);
}

TEST(test_cuda_no_device)
{
    in_child(no_device);
}

TEST(test_cuda_old_device)
{
    in_child(old_device);
}

TEST(test_cuda_each_fault)
{
    in_child(each_fault);
}

TEST(test_cuda_after_fork)
{
    in_child(after_fork);
}

TEST(test_cuda_probe_then_fork)
{
    in_child(probe_first);
}

TEST(test_cuda_device_numbers)
{
    weft_i_cuda_device *device, *again;
    int count = 0;
    scene_driver();
    CHECK_OK(weft_i_cuda_count(&count));
    CHECK(count >= 1);
    CHECK_OK(weft_i_cuda_open(0, &device));
    CHECK_OK(weft_i_cuda_open(0, &again));
    CHECK(device == again);
    CHECK_STATUS(weft_i_cuda_open(count, &again), WEFT_ERR_NOT_FOUND);
    CHECK(again == NULL);
    CHECK_STATUS(weft_i_cuda_open(-1, &again), WEFT_ERR_NOT_FOUND);
    for (int k = 0; k < WEFT_I_CUDA_KERNELS; k++)
        if (device->resident[k] < 1 || !device->kernels[k])
            FAIL("%s does not fit", weft_i_cuda_kernel_name((weft_i_cuda_kernel)k));
}

/* ---- streams and marks ---- */

TEST(test_cuda_marks)
{
    weft_i_cuda_stream *a, *b;
    weft_i_cuda_mark mark = {NULL};
    scene_driver();
    CHECK_STATUS(weft_i_cuda_reached(&mark), WEFT_OK); /* nothing was marked yet */
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &a));
    CHECK_OK(weft_i_cuda_stream_new(scene.device, true, &b));
    weft_i_cu_ptr x = 0;
    void *gate;
    CHECK_OK(weft_i_cuda_alloc(a, 4096, &x));
    CHECK_OK(weft_i_cuda_pinned(scene.device, 64, &gate));
    const weft_i_cuda *cu = weft_i_cuda_driver();
    /* Stream a stops at the gate; so b, behind a's mark, stops too. */
    CHECK_INT(
        cu->cuStreamWaitValue64(weft_i_cuda_stream_raw(a), (weft_i_cu_ptr)(uintptr_t)gate, 1, 0),
        0);
    uint32_t first = 11, seen = 0;
    memcpy((char *)gate + 16, &first, 4); /* a copy from plain memory might wait for the stream */
    CHECK_OK(weft_i_cuda_copy(a, (void *)(uintptr_t)x, (char *)gate + 16, 4));
    CHECK_OK(weft_i_cuda_mark_set(&mark, a));
    CHECK_STATUS(weft_i_cuda_reached(&mark), WEFT_IN_PROGRESS);
    CHECK_OK(weft_i_cuda_after(b, &mark));
    CHECK_OK(weft_i_cuda_copy(b, (char *)gate + 32, (void *)(uintptr_t)x, 4));
    CHECK_STATUS(weft_i_cuda_stream_sync(b, 20), WEFT_ERR_TIMEOUT);
    __atomic_store_n((uint64_t *)gate, 1, __ATOMIC_RELEASE);
    CHECK_OK(weft_i_cuda_stream_sync(b, 20000));
    CHECK_STATUS(weft_i_cuda_reached(&mark), WEFT_OK);
    memcpy(&seen, (char *)gate + 32, 4);
    CHECK_INT(seen, 11);
    CHECK_OK(weft_i_cuda_free(a, x, 4096, b));
    weft_i_cuda_mark_release(&mark);
    weft_i_cuda_unpin(gate);
    CHECK_OK(weft_i_cuda_stream_release(a));
    CHECK_OK(weft_i_cuda_stream_release(b));
}

/* What a stream that waits has freed makes no other stream wait that gets it next. */
TEST(test_cuda_pool_orders_nothing)
{
    enum { BYTES = 8 << 20 };
    weft_i_cuda_stream *a, *b;
    weft_i_cu_ptr x = 0, y = 0;
    void *gate;
    scene_driver();
    const weft_i_cuda *cu = weft_i_cuda_driver();
    if (!scene.real) { /* its streams free at once */
        CHECK_INT(model_pool_orders(), 0);
        return;
    }
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &a));
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &b));
    CHECK_OK(weft_i_cuda_pinned(scene.device, 64, &gate));
    weft_i_cu_stream raw_a = weft_i_cuda_stream_raw(a), raw_b = weft_i_cuda_stream_raw(b);
    CHECK_INT(cu->cuMemAllocAsync(&x, BYTES, raw_a), 0);
    CHECK_INT(cu->cuStreamWaitValue64(raw_a, (weft_i_cu_ptr)(uintptr_t)gate, 1, 0), 0);
    CHECK_INT(cu->cuMemFreeAsync(x, raw_a), 0);
    CHECK_INT(cu->cuMemAllocAsync(&y, BYTES, raw_b), 0);
    CHECK_INT(cu->cuMemsetD8Async(y, 7, 64, raw_b), 0);
    CHECK_OK(weft_i_cuda_stream_sync(b, 20000));
    __atomic_store_n((uint64_t *)gate, 1, __ATOMIC_RELEASE);
    CHECK_INT(cu->cuMemFreeAsync(y, raw_b), 0);
    CHECK_OK(weft_i_cuda_stream_sync(b, 20000));
    CHECK_OK(weft_i_cuda_stream_release(a));
    CHECK_OK(weft_i_cuda_stream_release(b));
    weft_i_cuda_unpin(gate);
}

TEST(test_cuda_wrapped_stream)
{
    weft_i_cuda_stream *ours, *theirs;
    scene_driver();
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &ours));
    CHECK_OK(weft_i_cuda_stream_wrap(scene.device, weft_i_cuda_stream_raw(ours), &theirs));
    CHECK_OK(weft_i_cuda_stream_release(theirs)); /* leaves the stream itself alone */
    CHECK_OK(weft_i_cuda_stream_sync(ours, WEFT_FOREVER));
    CHECK_OK(weft_i_cuda_stream_release(ours));
}

/* ---- memory ---- */

TEST(test_cuda_lists)
{
    weft_i_cuda_stream *a, *b;
    weft_i_cu_ptr x, y, z;
    scene_driver();
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &a));
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &b));
    CHECK_OK(weft_i_cuda_alloc(a, 0, &x));
    CHECK(x == 0);
    CHECK_OK(weft_i_cuda_alloc(a, 1000, &x));
    CHECK_INT(weft_i_cuda_cached(a), 0);
    CHECK_OK(weft_i_cuda_free(a, x, 1000, NULL));
    CHECK_INT(weft_i_cuda_cached(a), 1024);
    CHECK_OK(weft_i_cuda_alloc(a, 1010, &y)); /* of the same size class: the same memory */
    CHECK(x == y);
    CHECK_OK(weft_i_cuda_free(a, y, 1010, NULL));
    CHECK_OK(weft_i_cuda_alloc(b, 1000, &z)); /* another stream has its own */
    CHECK(z != x);
    CHECK_OK(weft_i_cuda_free(b, z, 1000, NULL));
    CHECK_STATUS(weft_i_cuda_alloc(a, SIZE_MAX, &x), WEFT_ERR_NO_MEMORY);
    CHECK_OK(weft_i_cuda_trim(scene.device));
    CHECK_INT(weft_i_cuda_cached(a) + weft_i_cuda_cached(b), 0);
    CHECK_OK(weft_i_cuda_stream_release(a));
    CHECK_OK(weft_i_cuda_stream_release(b));
}

/* Classes waste at most an eighth and hold what was asked for. */
TEST(test_cuda_size_classes)
{
    weft_i_cuda_stream *a;
    scene_driver();
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &a));
    size_t sizes[] = {1,    511,  512,  513,  4095, 4096,    4097,         4608,
                      4609, 8191, 8192, 8193, 9217, 1 << 20, (1 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        weft_i_cu_ptr x;
        CHECK_OK(weft_i_cuda_alloc(a, sizes[i], &x));
        CHECK_OK(weft_i_cuda_free(a, x, sizes[i], NULL));
        size_t cached = weft_i_cuda_cached(a);
        if (cached < sizes[i] || (sizes[i] >= 4096 && cached > sizes[i] + sizes[i] / 8 + 1) ||
            (sizes[i] < 4096 && cached > sizes[i] + 511))
            FAIL("%zu bytes take %zu", sizes[i], cached);
        CHECK_OK(weft_i_cuda_trim(scene.device));
    }
    CHECK_OK(weft_i_cuda_stream_release(a));
}

/* What is on lists is given back before memory counts as out. */
TEST(test_cuda_out_of_memory)
{
    only_software();
    weft_i_cuda_stream *a, *b;
    weft_i_cu_ptr x, y;
    scene_driver();
    model.capacity = 1 << 20;
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &a));
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &b));
    CHECK_OK(weft_i_cuda_alloc(a, 700 << 10, &x));
    CHECK_OK(weft_i_cuda_free(a, x, 700 << 10, NULL));
    CHECK_OK(weft_i_cuda_alloc(b, 800 << 10, &y));
    CHECK_INT(weft_i_cuda_cached(a), 0);
    CHECK_STATUS(weft_i_cuda_alloc(a, 700 << 10, &x), WEFT_ERR_NO_MEMORY);
    CHECK_CONTAINS(weft_last_error(), "716800 bytes on cuda:0: CUDA_ERROR_OUT_OF_MEMORY");
    CHECK_OK(weft_i_cuda_free(b, y, 800 << 10, NULL));
    CHECK_OK(weft_i_cuda_stream_release(a));
    CHECK_OK(weft_i_cuda_stream_release(b));
}

/* A device that has failed says so, call after call. */
TEST(test_cuda_sticky)
{
    only_software();
    weft_i_cuda_stream *a;
    scene_driver();
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &a));
    model.broken = 700;
    CHECK_STATUS(weft_i_cuda_stream_sync(a, WEFT_FOREVER), WEFT_ERR_DEVICE);
    CHECK_CONTAINS(weft_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access");
    CHECK_INT(weft_status_scope(WEFT_ERR_DEVICE), WEFT_SCOPE_GROUP);
    CHECK_STATUS(weft_i_cuda_stream_sync(a, 10), WEFT_ERR_DEVICE);
    model.broken = 0;
    CHECK_OK(weft_i_cuda_stream_release(a));
}

/* Blocks travel as descriptors, and lie at one stride. */
TEST(test_cuda_export)
{
    weft_i_cu_handle made, imported;
    weft_i_cuda_span span;
    weft_i_cuda_stream *stream;
    size_t bytes = 5000;
    int fd = -1;
    uint32_t value = 99, seen = 0;
    scene_driver();
    CHECK_OK(weft_i_cuda_block_new(scene.device, &bytes, &made));
    CHECK(bytes >= 5000 && bytes % scene.device->granularity == 0);
    CHECK_OK(weft_i_cuda_block_export(made, &fd));
    CHECK_OK(weft_i_cuda_block_import(scene.device, fd, &imported));
    close(fd);
    CHECK_OK(weft_i_cuda_span_new(scene.device, 2, bytes, &span));
    CHECK_OK(weft_i_cuda_span_map(&span, 0, made));
    CHECK_OK(weft_i_cuda_span_map(&span, 1, imported));
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &stream));
    CHECK_OK(weft_i_cuda_copy(stream, weft_i_cuda_span_of(&span, 0) + 4000, &value, 4));
    CHECK_OK(weft_i_cuda_stream_sync(stream, WEFT_FOREVER));
    CHECK_OK(weft_i_cuda_read(stream, &seen, weft_i_cuda_span_of(&span, 1) + 4000, 4));
    CHECK_INT(seen, 99);
    CHECK_OK(weft_i_cuda_stream_release(stream));
    weft_i_cuda_span_release(&span);
    weft_i_cuda_block_release(made);
    weft_i_cuda_block_release(imported);
    CHECK_STATUS(weft_i_cuda_span_new(scene.device, 65, bytes, &span), WEFT_ERR_LIMIT);
}

/* ---- strided and converting copies ---- */

static uint64_t noise(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    return x ^ x >> 29;
}

/* Every pair of dtypes, as the CPU converts them; finite numbers, whose bits are decided. */
TEST(test_cuda_convert)
{
    enum { COUNT = 64 };
    weft_i_cuda_stream *stream;
    scene_driver();
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &stream));
    weft_i_cu_ptr from, to;
    CHECK_OK(weft_i_cuda_alloc(stream, COUNT * 8, &from));
    CHECK_OK(weft_i_cuda_alloc(stream, COUNT * 8, &to));
    for (int a = 0; a < WEFT_DTYPE_COUNT; a++)
        for (int b = 0; b < WEFT_DTYPE_COUNT; b++) {
            double numbers[COUNT];
            char in[COUNT * 8], want[COUNT * 8], got[COUNT * 8];
            for (int i = 0; i < COUNT; i++)
                numbers[i] =
                    (double)(int64_t)noise((uint64_t)(i + a * 1000)) * (i % 3 ? 1e-17 : 1e-14);
            weft_i_convert((weft_dtype)a, in, WEFT_F64, numbers, COUNT);
            weft_i_convert((weft_dtype)b, want, (weft_dtype)a, in, COUNT);
            size_t a_size = weft_dtype_size((weft_dtype)a), b_size = weft_dtype_size((weft_dtype)b);
            CHECK_OK(weft_i_cuda_copy(stream, (void *)(uintptr_t)from, in, COUNT * a_size));
            weft_k_copy copy = {.to = (char *)(uintptr_t)to,
                                .from = (const char *)(uintptr_t)from,
                                .ndim = 1,
                                .to_dtype = b,
                                .from_dtype = a,
                                .size = (int)b_size};
            copy.dim[0] = COUNT;
            copy.to_stride[0] = (int64_t)b_size;
            copy.from_stride[0] = (int64_t)a_size;
            CHECK_OK(weft_i_cuda_convert(stream, &copy));
            CHECK_OK(weft_i_cuda_read(stream, got, (void *)(uintptr_t)to, COUNT * b_size));
            for (size_t i = 0; i < COUNT * b_size; i++)
                if (got[i] != want[i])
                    FAIL("%s to %s: element %zu, %.17g, differs", weft_dtype_name((weft_dtype)a),
                         weft_dtype_name((weft_dtype)b), i / b_size, numbers[i / b_size]);
        }
    CHECK_OK(weft_i_cuda_free(stream, from, COUNT * 8, NULL));
    CHECK_OK(weft_i_cuda_free(stream, to, COUNT * 8, NULL));
    CHECK_OK(weft_i_cuda_stream_release(stream));
}

TEST(test_cuda_strided)
{
    weft_i_cuda_stream *stream;
    uint16_t in[6 * 10], got[6 * 10];
    scene_driver();
    CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &stream));
    weft_i_cu_ptr from, to;
    CHECK_OK(weft_i_cuda_alloc(stream, sizeof in, &from));
    CHECK_OK(weft_i_cuda_alloc(stream, sizeof in, &to));
    for (int i = 0; i < 60; i++)
        in[i] = (uint16_t)i;
    CHECK_OK(weft_i_cuda_copy(stream, (void *)(uintptr_t)from, in, sizeof in));
    /* 6 x 10 turned to 10 x 6, one row of the source repeated, one walked backwards */
    weft_k_copy copy = {.to = (char *)(uintptr_t)to,
                        .from = (const char *)(uintptr_t)from,
                        .ndim = 2,
                        .to_dtype = WEFT_U16,
                        .from_dtype = WEFT_U16,
                        .size = 2,
                        .dim = {10, 6},
                        .to_stride = {12, 2},
                        .from_stride = {2, 20}};
    CHECK_OK(weft_i_cuda_convert(stream, &copy));
    CHECK_OK(weft_i_cuda_read(stream, got, (void *)(uintptr_t)to, sizeof got));
    for (int i = 0; i < 60; i++)
        CHECK_INT(got[i], in[i % 6 * 10 + i / 6]);
    copy = (weft_k_copy){.to = (char *)(uintptr_t)to,
                         .from = (const char *)(uintptr_t)from + 118,
                         .ndim = 2,
                         .to_dtype = WEFT_U16,
                         .from_dtype = WEFT_U16,
                         .size = 2,
                         .dim = {2, 30},
                         .to_stride = {60, 2},
                         .from_stride = {0, -2}};
    CHECK_OK(weft_i_cuda_convert(stream, &copy));
    CHECK_OK(weft_i_cuda_read(stream, got, (void *)(uintptr_t)to, sizeof got));
    for (int i = 0; i < 60; i++)
        CHECK_INT(got[i], 59 - i % 30);
    copy.dim[0] = 0; /* nothing to do */
    CHECK_OK(weft_i_cuda_convert(stream, &copy));
    CHECK_OK(weft_i_cuda_free(stream, from, sizeof in, NULL));
    CHECK_OK(weft_i_cuda_free(stream, to, sizeof in, NULL));
    CHECK_OK(weft_i_cuda_stream_release(stream));
}

/* All is given back. */
TEST(test_cuda_nothing_left)
{
    only_software();
    scene_driver();
    weft_i_cuda_close_all();
    CHECK_INT(model_live(), 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

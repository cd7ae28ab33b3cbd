/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA devices: the primary context, which code on the CUDA runtime shares, the loaded kernels, the
 * streams and marks, and the memory that comes from them.  Its table has the entries that every
 * kind of device will fill for tensors.
 *
 * All calls but those that read memory to the host are enqueued on a stream and return at once.
 */
#ifndef WEFT_CUDA_DEVICE_H
#define WEFT_CUDA_DEVICE_H

#include "backends/cuda/kernels/layout.h"
#include "backends/cuda/kernels/tensor_layout.h"
#include "driver.h"

#include <pthread.h>
#include <stdatomic.h>

/* Numbers of the kernels in `kernels` of a device. */
typedef enum weft_i_cuda_kernel {
#define KERNEL(name_, threads_, type_, body_) WEFT_I_CUDA_##name_,
#include "backends/cuda/kernels/kernels.def"
#include "backends/cuda/kernels/tensor.def"
#undef KERNEL
    WEFT_I_CUDA_KERNELS
} weft_i_cuda_kernel;

/* The programs they are compiled as: signals and collectives, and tensor operations. */
enum { WEFT_I_CUDA_IMAGE_KERNELS, WEFT_I_CUDA_IMAGE_TENSOR, WEFT_I_CUDA_IMAGES };

enum { WEFT_I_CUDA_DEVICES = 16 }; /* of a process, at most */

struct weft_i_cuda_stream;
struct weft_i_cuda_blas;

typedef struct weft_i_cuda_device {
    int ordinal, major, minor, multiprocessors, threads_most;
    weft_i_cu_device handle;
    weft_i_cu_ctx ctx;
    weft_i_cu_module modules[WEFT_I_CUDA_IMAGES];
    weft_i_cu_function kernels[WEFT_I_CUDA_KERNELS];
    int resident[WEFT_I_CUDA_KERNELS]; /* blocks of the kernel that fit the device at once */
    int kernel_threads[WEFT_I_CUDA_KERNELS];
    int high_priority;
    size_t granularity; /* of memory that is mapped */
    bool pools, mappings, multicast, mps;
    size_t bytes;
    weft_i_cu_uuid uuid;
    char name[96];
    pthread_mutex_t lock;               /* guards the lists */
    struct weft_i_cuda_stream *streams; /* all that were made and not released */
    struct weft_i_cuda_stream *service; /* of the device itself, never captured; NULL: not yet */
    struct weft_i_cuda_stream *spare;   /* for words to pads of lost ranks; NULL: not yet */
    struct weft_i_cuda_replay *replays; /* all that have memory */
    weft_k_fault *fault;           /* host memory: an index out of range that a kernel has met */
    atomic_uint_least64_t tickets; /* of launches that may note one; relaxed, a count only */
    _Atomic(struct weft_i_cuda_blas *) blas; /* NULL: no matrix product yet; see blas.c */
    atomic_bool captured;                    /* there has been a capture */
} weft_i_cuda_device;

/*
 * Opens device `ordinal` of this process, once; stays open until the process ends.  The first call
 * starts the driver.  WEFT_ERR_UNSUPPORTED, WEFT_ERR_NOT_FOUND, WEFT_ERR_STATE after a fork.
 */
weft_status weft_i_cuda_open(int ordinal, weft_i_cuda_device **out);

/* How many devices there are; starts the driver. */
weft_status weft_i_cuda_count(int *out);

/* Makes the device's context this thread's, unless it is.  Costs a compare. */
weft_status weft_i_cuda_use(const weft_i_cuda_device *device);

/* Is it?  In a process that has not forked since. */
extern _Thread_local weft_i_cu_ctx weft_i_cuda_used;
static inline bool weft_i_cuda_is_used(const weft_i_cuda_device *device)
{
    return weft_i_cuda_used == device->ctx;
}

/* The device of that number if it is open; NULL: it is not. */
weft_i_cuda_device *weft_i_cuda_opened(int ordinal);

/* Something to be done before a device is closed, by files above this one. */
void weft_i_cuda_at_close(void (*close)(weft_i_cuda_device *device));

/* Releases everything that open devices hold; no stream may be left.  For tests. */
void weft_i_cuda_close_all(void);

/* WEFT_ERR_INVALID_ARG, once, if a kernel has met an index that was out of range; asked whenever
 * the host has waited for the device. */
weft_status weft_i_cuda_check_fault(weft_i_cuda_device *device);

/* ---- streams and marks ---- */

typedef struct weft_i_cuda_stream weft_i_cuda_stream;

/* A stream that does not wait for the NULL stream; `urgent`: of the highest priority. */
weft_status weft_i_cuda_stream_new(weft_i_cuda_device *device, bool urgent,
                                   weft_i_cuda_stream **out);
/* Over a stream of others, which stays theirs. */
weft_status weft_i_cuda_stream_wrap(weft_i_cuda_device *device, weft_i_cu_stream raw,
                                    weft_i_cuda_stream **out);
weft_i_cu_stream weft_i_cuda_stream_raw(const weft_i_cuda_stream *stream);
bool weft_i_cuda_stream_is_urgent(const weft_i_cuda_stream *stream);
weft_i_cuda_device *weft_i_cuda_stream_device(const weft_i_cuda_stream *stream);

/* Waits for all that was enqueued.  WEFT_ERR_TIMEOUT after `timeout_ms` (WEFT_FOREVER: never). */
weft_status weft_i_cuda_stream_sync(weft_i_cuda_stream *stream, int64_t timeout_ms);

/* Asked after each wait for a stream: has what ran there failed?  Functions of files above this one,
 * set by their constructors. */
void weft_i_cuda_after_sync(weft_status (*check)(const weft_i_cuda_stream *stream));
/* What it says; and the device's own faults. */
weft_status weft_i_cuda_stream_check(weft_i_cuda_stream *stream);

/* Waits, gives the stream's memory back and forgets it. */
weft_status weft_i_cuda_stream_release(weft_i_cuda_stream *stream);

/* Forgets it without waiting: what it was given still runs. */
void weft_i_cuda_stream_drop(weft_i_cuda_stream *stream);

/* What `stream` is given from now on waits for what `other` was given before. */
weft_status weft_i_cuda_order(weft_i_cuda_stream *stream, weft_i_cuda_stream *other);

/* A mark stands for all that was enqueued on a stream before it. */
typedef struct weft_i_cuda_mark {
    weft_i_cu_event event; /* NULL: made at first use */
} weft_i_cuda_mark;

weft_status weft_i_cuda_mark_set(weft_i_cuda_mark *mark, weft_i_cuda_stream *stream);
/* What is enqueued from now on waits for the mark. */
weft_status weft_i_cuda_after(weft_i_cuda_stream *stream, const weft_i_cuda_mark *mark);
/* WEFT_OK, WEFT_IN_PROGRESS, or an error. */
weft_status weft_i_cuda_reached(const weft_i_cuda_mark *mark);
/* Waits for it.  WEFT_ERR_TIMEOUT after `timeout_ms` (WEFT_FOREVER: never). */
weft_status weft_i_cuda_mark_sync(const weft_i_cuda_mark *mark, int64_t timeout_ms);
void weft_i_cuda_mark_release(weft_i_cuda_mark *mark);

/* ---- memory ---- */

/*
 * Memory that work enqueued on `stream` may use from now on.  Free puts it on the stream's own
 * list, from where the next allocation of that size takes it: what is enqueued later comes after
 * what is enqueued now.  0 bytes give 0.
 */
weft_status weft_i_cuda_alloc(weft_i_cuda_stream *stream, size_t bytes, weft_i_cu_ptr *out);

/* `stream` is the one it was allocated on; `other` (NULL: none) has used it too and is waited for.
 */
weft_status weft_i_cuda_free(weft_i_cuda_stream *stream, weft_i_cu_ptr memory, size_t bytes,
                             weft_i_cuda_stream *other);

/* Gives the free memory of all streams of the device back to the driver. */
weft_status weft_i_cuda_trim(weft_i_cuda_device *device);

/* Bytes that the stream's list holds. */
size_t weft_i_cuda_cached(weft_i_cuda_stream *stream);

/* Host memory that the device reaches, at one address for both. */
weft_status weft_i_cuda_pinned(weft_i_cuda_device *device, size_t bytes, void **out);
void weft_i_cuda_unpin(void *memory);

/* ---- copies and launches ---- */

/* Any direction: host and device memory have different addresses. */
weft_status weft_i_cuda_copy(weft_i_cuda_stream *stream, void *to, const void *from, size_t bytes);

/* Device memory to plain host memory; returns when it is there. */
weft_status weft_i_cuda_read(weft_i_cuda_stream *stream, void *to, const void *from, size_t bytes);

/*
 * Enqueues a kernel with its one parameter.  `early`: it may become resident before the kernel
 * ahead of it has ended (kernels that begin with weft_k_begin).
 */
weft_status weft_i_cuda_launch(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel, int blocks,
                               int threads, const void *parameter, bool early);

/* The kernels' code for the device: the embedded binary, or, where there is none for so old a
 * device, what NVRTC makes of the embedded text; then `release` is to be freed when it is loaded. */
weft_status weft_i_cuda_image(const weft_i_cuda_device *device, int image, const void **out,
                              void **release);

/* The embedded binary, NULL if weft was built without nvcc; and what NVRTC makes of the text. */
const void *weft_i_cuda_embedded(int image);
weft_status weft_i_cuda_compile(int image, int major, int minor, void **out);
/* Another option for NVRTC, NULL: none.  For tests. */
extern const char *weft_i_cuda_compile_option;

const char *weft_i_cuda_kernel_name(weft_i_cuda_kernel kernel);

#endif

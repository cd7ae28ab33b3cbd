/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symmetric memory: every rank of a group allocates an equally large buffer, and after one
 * rendezvous each can load, store and signal in the memory of all the others.
 *
 *     weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1024));
 *     weft_symm *mem = weft_symm_rendezvous(x, world);
 *     weft_symm_barrier(mem, 0, WEFT_DEFAULT);
 *     weft_tensor *theirs = weft_symm_tensor(mem, peer);
 *
 * Allocation and release are local; only the rendezvous is collective.  A signal pad belongs to one
 * (block, group) pair, so groups never hear each other's signals.  Every wait has a limit, and ends
 * at once when a rank it waits for dies.
 */
#ifndef WEFT_SYMM_H
#define WEFT_SYMM_H

#include "weft/group.h"
#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_symm weft_symm;

/* ---- allocation: local, zeroed, reserved in full ---- */

WEFT_API weft_tensor *weft_symm_empty(weft_dtype dtype, weft_device device, weft_shape shape);

/*
 * As above with given strides of a dense layout, a default group for rendezvous (NULL: none), and
 * an id (0: none) that makes the allocation persistent: asking again for a known id gives the same
 * memory and its earlier rendezvous, once all tensors of the previous call are released.
 * WEFT_ERR_STATE while one lives, WEFT_ERR_INVALID_ARG for a different size.  Ids from 2^63 on are
 * the library's own (WEFT_ERR_INVALID_ARG): compiled functions keep their buffers under them.
 */
WEFT_API weft_tensor *weft_symm_empty_strided_p2p(weft_shape shape, const int64_t *strides,
                                                  weft_dtype dtype, weft_device device,
                                                  weft_group *group, uint64_t alloc_id);

/* Forgets a persistent id: its memory is freed with its last tensor and handle.
 * WEFT_ERR_NOT_FOUND if there is no such id. */
WEFT_API weft_status weft_symm_forget(uint64_t alloc_id);

/* Does the tensor lie in symmetric memory of this rank? */
WEFT_API bool weft_symm_is(const weft_tensor *tensor);

/* Bytes of the signal pads of blocks allocated from now on; the same on all ranks, checked at
 * rendezvous. */
WEFT_API size_t weft_symm_signal_pad_size(void);
WEFT_API weft_status weft_symm_set_signal_pad_size(size_t bytes);

/* ---- rendezvous ---- */

/*
 * Maps the blocks of all ranks that hold `tensor` (or any view of it).  Collective over the group;
 * NULL takes the block's default group.  The second time for the same block and group it is local.
 * NULL and an error with a table of all ranks if sizes, offsets or pads differ; WEFT_ERR_TYPE for
 * ordinary memory.  It succeeds for all or for none: when a rank cannot take part (also because its
 * tensor is NULL after an error) all others get that rank's status.
 */
WEFT_API weft_symm *weft_symm_rendezvous(weft_tensor *tensor, weft_group *group);

/* What a handle is about. */
typedef struct weft_symm_info {
    weft_group *group;       /* borrowed */
    int rank, size;          /* of the group */
    size_t bytes;            /* of the block, as asked for */
    size_t offset;           /* of the tensor in the block, in bytes */
    size_t pad_bytes;        /* of a signal pad */
    int channels;            /* channels 0 to this less one can be used */
    bool emulates_multicast; /* on the CPU: multicast operations write to each rank in turn */
    void *multicast_ptr;     /* of the tensor: for kernels of the device; NULL: there is none */
    const char *why_no_multicast; /* then the reason, as long as the handle lives; else NULL */
} weft_symm_info;

WEFT_API weft_status weft_symm_describe(const weft_symm *mem, weft_symm_info *out);

/* Address of a rank's block, or of its signal pad, in this process; NULL outside the group. */
WEFT_API void *weft_symm_buffer_ptr(const weft_symm *mem, int rank);
WEFT_API void *weft_symm_signal_pad_ptr(const weft_symm *mem, int rank);

/* ---- tensors over the memory of a rank; they keep it mapped ---- */

/* At `offset` elements from the start of the block, contiguous. */
WEFT_API weft_tensor *weft_symm_buffer(weft_symm *mem, int rank, weft_shape shape, weft_dtype dtype,
                                       int64_t offset);

/* At the tensor's own offset: what `rank` sees as its tensor, if that was contiguous and of this
 * shape. */
WEFT_API weft_tensor *weft_symm_remote_tensor(weft_symm *mem, int rank, weft_shape shape,
                                              weft_dtype dtype);

/* The tensor of the rendezvous, as `rank` sees it: same dtype, shape and strides. */
WEFT_API weft_tensor *weft_symm_tensor(weft_symm *mem, int rank);

/* The signal pad: uint32 words by default (shape of 0 dimensions means all of it). */
WEFT_API weft_tensor *weft_symm_signal_pad(weft_symm *mem, int rank, weft_shape shape,
                                           weft_dtype dtype, int64_t offset);

/* ---- signals ---- */

/*
 * Returns when all ranks have called it on this channel.  After it, all see what each rank wrote
 * before it.  On WEFT_ERR_TIMEOUT no rank has passed because of this call, and the channel can be
 * used again at once.
 *
 * On a device this barrier and the two signals below are enqueued on the current stream and return
 * at once; a kernel waits there.  If it gives up, at its limit or because a rank is gone, the next
 * call on the memory fails, and so does waiting for the stream; see weft_symm_reset.  Such a barrier
 * may succeed on one rank and fail on another, which learns of it at its next operation.
 */
WEFT_API weft_status weft_symm_barrier(weft_symm *mem, int channel, int64_t timeout_ms);

/*
 * Makes memory usable again after a signal or collective has failed on a device.  When a kernel
 * gives up there, everything that any rank does on the memory fails until this is called.  All ranks
 * of the handle's group call it.  It waits for what this rank has enqueued on the memory, meets the
 * other ranks on the host and clears the signal pads, so that signals which nobody has taken are
 * lost.  After that, collectives of the group on such devices work again too.  On the CPU a failed
 * call leaves nothing behind, so this is only a barrier.
 */
WEFT_API weft_status weft_symm_reset(weft_symm *mem, int64_t timeout_ms);

/* Puts one signal for `rank` into its semaphore on the channel.  Waits until the last one has been
 * taken.  On an error nothing is put. */
WEFT_API weft_status weft_symm_put_signal(weft_symm *mem, int rank, int channel,
                                          int64_t timeout_ms);

/* Waits for the signal of `rank` and takes it.  On an error nothing is taken. */
WEFT_API weft_status weft_symm_wait_signal(weft_symm *mem, int rank, int channel,
                                           int64_t timeout_ms);

/* Writes `value` to `count` words of a flat uint32 tensor from `offset` on. */
WEFT_API weft_status weft_symm_memset32(weft_tensor *tensor, int64_t offset, int64_t value,
                                        int64_t count);

/* Writes one word so that whoever sees it (acquire) sees all that this thread wrote before. */
WEFT_API weft_status weft_symm_stream_write_value32(weft_tensor *tensor, int64_t offset,
                                                    int64_t value);

/* ---- what the machine offers ---- */

/*
 * Lets ranks share a GPU: kernels of a rank wait for those of the others, so all of them must fit
 * the device at once, and without MPS they take turns of milliseconds.  All ranks of a rendezvous
 * must allow it, or it is WEFT_ERR_UNSUPPORTED.  For the process; WEFT_ALLOW_OVERLAP=1 is the same.
 */
WEFT_API void weft_symm_allow_overlap(bool allow);
WEFT_API bool weft_symm_allows_overlap(void);

/* Does the device have hardware multicast?  On the CPU false, never an error. */
WEFT_API bool weft_symm_has_multicast(weft_device device);

/* The backend for symmetric memory of a device: "shm", "threads", "cuda", "nvshmem"; NULL if there
 * is none (meta). */
WEFT_API const char *weft_symm_backend(weft_device device);

/*
 * Chooses it for this thread.  WEFT_ERR_NOT_FOUND for an unknown name, WEFT_ERR_STATE after the
 * first allocation with another.  "nvshmem" is started by this: a call of all ranks of the world,
 * after weft_init, and so are allocations from then on (docs/nvshmem.md).  WEFT_ERR_UNSUPPORTED on
 * all if one rank cannot.
 */
WEFT_API weft_status weft_symm_set_backend(weft_device device, const char *name);

/* Which ranks reach which: a matrix of link counts, 0 on the diagonal. */
typedef struct weft_connectivity {
    weft_device device;
    char connection[16];
    int size;
    int *links; /* size * size, row by row; free with weft_symm_free_connectivity */
} weft_connectivity;

/*
 * On the CPU, connection "shm" counts 1 where two ranks of the group share memory.  Of CUDA devices,
 * "nvlink" counts the links between those that this process sees; switches are taken to be
 * connected.  If NVML does not answer, there is a warning, and the links known so far.
 * WEFT_ERR_NOT_FOUND for a connection without a detector, WEFT_ERR_UNSUPPORTED for hardware that is
 * not here.
 */
WEFT_API weft_status weft_symm_detect_connectivity(weft_group *group, weft_device device,
                                                   const char *connection, weft_connectivity *out);
WEFT_API void weft_symm_free_connectivity(weft_connectivity *connectivity);

/* ---- scratch and pools ---- */

/* The group's scratch block on a device, grown to at least `bytes`.  There is one for each kind of
 * device.  Collective whenever it grows; all ranks ask for the same. */
WEFT_API weft_symm *weft_symm_workspace(weft_group *group, weft_device device, size_t bytes);

typedef struct weft_symm_pool weft_symm_pool;

/*
 * One block from which many small tensors are cut.  If all ranks cut the same tensors in the same
 * order they lie at the same offsets, and one rendezvous (of any of them) serves all.  They share
 * one signal pad: use a channel for each.
 */
WEFT_API weft_symm_pool *weft_symm_pool_new(weft_device device, size_t bytes);

/* A tensor from the pool, zeroed; WEFT_ERR_NO_SPACE if no gap is large enough.  It keeps the pool's
 * block alive. */
WEFT_API weft_tensor *weft_symm_pool_empty(weft_symm_pool *pool, weft_dtype dtype,
                                           weft_shape shape);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symmetric memory.  Every rank of a group allocates a buffer of the same size.  After one
 * rendezvous, each rank can load, store and signal in the memory of all the others.
 *
 *     weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1024));
 *     weft_symm *mem = weft_symm_rendezvous(x, world);
 *     weft_symm_barrier(mem, 0, WEFT_DEFAULT);
 *     weft_tensor *theirs = weft_symm_tensor(mem, peer);
 *
 * Allocation and release are local; only the rendezvous is collective.  Each pair of a block and a
 * group has its own signal pad, so signals of different groups never mix.  Every wait has a limit,
 * and ends at once when a rank that it waits for dies.
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
 * The same with given strides of a dense layout, a default group for the rendezvous (or NULL), and
 * an id.  An id other than 0 makes the allocation persistent: a later call with the same id returns
 * the same memory with its earlier rendezvous, once all tensors of the previous call have been
 * released.  WEFT_ERR_STATE if one of them still exists, WEFT_ERR_INVALID_ARG if the size differs.
 * Ids of 2^63 and above are reserved for the library (WEFT_ERR_INVALID_ARG): compiled functions
 * keep their buffers under them.
 */
WEFT_API weft_tensor *weft_symm_empty_strided_p2p(weft_shape shape, const int64_t *strides,
                                                  weft_dtype dtype, weft_device device,
                                                  weft_group *group, uint64_t alloc_id);

/* Forgets a persistent id.  Its memory is freed with its last tensor and handle.
 * WEFT_ERR_NOT_FOUND if there is no such id. */
WEFT_API weft_status weft_symm_forget(uint64_t alloc_id);

/* Whether the tensor is in symmetric memory of this rank. */
WEFT_API bool weft_symm_is(const weft_tensor *tensor);

/* The size in bytes of the signal pads of blocks that are allocated from now on.  It must be the
 * same on all ranks; the rendezvous checks this. */
WEFT_API size_t weft_symm_signal_pad_size(void);
WEFT_API weft_status weft_symm_set_signal_pad_size(size_t bytes);

/* ---- rendezvous ---- */

/*
 * Maps the blocks of all ranks that hold `tensor` or any view of it.  Collective over the group; if
 * `group` is NULL, over the block's default group.  A second call for the same block and group is
 * local.  If sizes, offsets or pads differ, returns NULL, and the error shows a table of all ranks.
 * WEFT_ERR_TYPE for ordinary memory.  The rendezvous succeeds on all ranks or on none: if a rank
 * cannot take part, for example because its tensor is NULL after an error, all others get that
 * rank's status.
 */
WEFT_API weft_symm *weft_symm_rendezvous(weft_tensor *tensor, weft_group *group);

/* What a handle refers to. */
typedef struct weft_symm_info {
    weft_group *group;            /* borrowed */
    int rank, size;               /* of the group */
    size_t bytes;                 /* of the block, as requested */
    size_t offset;                /* of the tensor in the block, in bytes */
    size_t pad_bytes;             /* of a signal pad */
    int channels;                 /* channels 0 to channels - 1 can be used */
    bool emulates_multicast;      /* CPU: multicast operations write to each rank in turn */
    void *multicast_ptr;          /* of the tensor, for device kernels; NULL if there is none */
    const char *why_no_multicast; /* why there is none, or NULL; lives as long as the handle */
} weft_symm_info;

WEFT_API weft_status weft_symm_describe(const weft_symm *mem, weft_symm_info *out);

/* Returns the address of a rank's block, or of its signal pad, in this process.  NULL if the rank
 * is not in the group, or on another host (WEFT_ERR_UNSUPPORTED): weft_symm_put, weft_symm_get and
 * signals reach that.  The same holds for the tensors below. */
WEFT_API void *weft_symm_buffer_ptr(const weft_symm *mem, int rank);
WEFT_API void *weft_symm_signal_pad_ptr(const weft_symm *mem, int rank);

/* ---- tensors over the memory of a rank; they keep it mapped ---- */

/* A contiguous tensor `offset` elements from the start of the block.  If `rank` is the caller's, it
 * is symmetric memory, as what weft_symm_empty made. */
WEFT_API weft_tensor *weft_symm_buffer(weft_symm *mem, int rank, weft_shape shape, weft_dtype dtype,
                                       int64_t offset);

/* A tensor at the offset of the handle's tensor.  If that is contiguous and has this shape, this is
 * the tensor of `rank`. */
WEFT_API weft_tensor *weft_symm_remote_tensor(weft_symm *mem, int rank, weft_shape shape,
                                              weft_dtype dtype);

/* The tensor of `rank` that corresponds to the one given to the rendezvous: same dtype, shape and
 * strides. */
WEFT_API weft_tensor *weft_symm_tensor(weft_symm *mem, int rank);

/* The signal pad of `rank`, usually as uint32 words.  A shape of 0 dimensions means all of it. */
WEFT_API weft_tensor *weft_symm_signal_pad(weft_symm *mem, int rank, weft_shape shape,
                                           weft_dtype dtype, int64_t offset);

/* ---- signals ---- */

/*
 * Returns when all ranks have called it on this channel.  After that, every rank sees what each
 * rank wrote before its call.  If it returns WEFT_ERR_TIMEOUT, no rank has passed because of this
 * call, and the channel can be used again at once.
 *
 * On a device, this barrier and the two signals below are enqueued on the current stream and return
 * at once.  A kernel does the waiting.  If it gives up, because of its limit or because a rank is
 * gone, the next call on the memory fails, and so does waiting for the stream; see weft_symm_reset.
 * Such a barrier may succeed on one rank and fail on another, which learns of the failure at its
 * next operation.
 */
WEFT_API weft_status weft_symm_barrier(weft_symm *mem, int channel, int64_t timeout_ms);

/*
 * Makes memory usable again after a signal or collective has failed on a device.  When a kernel
 * gives up there, every operation of any rank on the memory fails until this is called.  All ranks
 * of the handle's group call it.  It waits for what this rank has enqueued on the memory, meets the
 * other ranks on the host and clears the signal pads; signals that were not taken are lost.
 * After that, collectives of the group on such devices work again too.  On the CPU a failed call
 * leaves nothing behind, so this is only a barrier.
 */
WEFT_API weft_status weft_symm_reset(weft_symm *mem, int64_t timeout_ms);

/* Sends one signal to `rank` on the channel.  Waits until the previous one has been taken.  If the
 * call fails, no signal is sent. */
WEFT_API weft_status weft_symm_put_signal(weft_symm *mem, int rank, int channel,
                                          int64_t timeout_ms);

/* Waits for a signal from `rank` and takes it.  If the call fails, no signal is taken. */
WEFT_API weft_status weft_symm_wait_signal(weft_symm *mem, int rank, int channel,
                                           int64_t timeout_ms);

/* Writes `value` to `count` words of a flat uint32 tensor, starting at `offset`. */
WEFT_API weft_status weft_symm_memset32(weft_tensor *tensor, int64_t offset, int64_t value,
                                        int64_t count);

/* Writes one word with release order: a rank that reads it with acquire order sees everything that
 * this thread wrote before. */
WEFT_API weft_status weft_symm_stream_write_value32(weft_tensor *tensor, int64_t offset,
                                                    int64_t value);

/* ---- what the machine offers ---- */

/*
 * Allows ranks to share a GPU.  Kernels of a rank wait for those of the others, so all of them must
 * fit on the device at once.  Without MPS the ranks take turns of milliseconds.  All ranks of a
 * rendezvous must allow it; otherwise it fails with WEFT_ERR_UNSUPPORTED.  The setting is for the
 * whole process.  WEFT_ALLOW_OVERLAP=1 does the same.
 */
WEFT_API void weft_symm_allow_overlap(bool allow);
WEFT_API bool weft_symm_allows_overlap(void);

/* Whether the device has hardware multicast, which is untested on hardware: see symm_coll.h.  False on
 * the CPU, never an error. */
WEFT_API bool weft_symm_has_multicast(weft_device device);

/* Returns the backend for symmetric memory on a device: "shm", "threads", "cuda" or "nvshmem".
 * NULL if there is none (meta). */
WEFT_API const char *weft_symm_backend(weft_device device);

/*
 * Chooses that backend for this thread.  WEFT_ERR_NOT_FOUND for an unknown name, WEFT_ERR_STATE
 * after the first allocation with another backend.  Choosing "nvshmem" starts it: all ranks of the
 * world make this call together, after weft_init, and from then on allocations are collective too
 * (docs/nvshmem.md).  If one rank cannot start it, all get WEFT_ERR_UNSUPPORTED.
 */
WEFT_API weft_status weft_symm_set_backend(weft_device device, const char *name);

/* The connections between ranks: a matrix of link counts, with 0 on the diagonal. */
typedef struct weft_connectivity {
    weft_device device;
    char connection[16];
    int size;
    int *links; /* size * size, row by row; free with weft_symm_free_connectivity */
} weft_connectivity;

/*
 * On the CPU, connection "shm" counts 1 where two ranks of the group share memory.  For CUDA
 * devices, "nvlink" counts the links between the devices that this process sees; links to a switch
 * count as connected.  If NVML does not answer, the function warns and returns the links known so
 * far.  WEFT_ERR_NOT_FOUND for a connection without a detector, WEFT_ERR_UNSUPPORTED for hardware
 * that is not present.
 */
WEFT_API weft_status weft_symm_detect_connectivity(weft_group *group, weft_device device,
                                                   const char *connection, weft_connectivity *out);
WEFT_API void weft_symm_free_connectivity(weft_connectivity *connectivity);

/* ---- scratch and pools ---- */

/* Returns the group's scratch block on a device, grown to at least `bytes`.  There is one for each
 * kind of device.  Collective whenever it grows; all ranks must ask for the same size. */
WEFT_API weft_symm *weft_symm_workspace(weft_group *group, weft_device device, size_t bytes);

typedef struct weft_symm_pool weft_symm_pool;

/*
 * A block from which many small tensors are cut.  If all ranks cut the same tensors in the same
 * order, the tensors have the same offsets, and one rendezvous, of any of them, serves all.  They
 * share one signal pad, so use a different channel for each.
 */
WEFT_API weft_symm_pool *weft_symm_pool_new(weft_device device, size_t bytes);

/*
 * From now on what operations of this thread make on the pool's device lies in the pool: results,
 * gradients, copies.  Not with NULL.  A tensor that is made again after its release comes back to
 * its address, so that a training step has the same ones each time.  A pool of 0 bytes grows by blocks.
 * What does not fit a pool that does not grow, and what is captured into a weft_replay, lies in plain
 * memory, and the log says so once.
 */
WEFT_API weft_status weft_symm_pool_use(weft_symm_pool *pool);

/*
 * Rendezvous of all blocks that the pool has now; collective.  From then on plain collectives of its
 * tensors in this group take the way of symmetric memory.  WEFT_ERR_MISMATCH on all ranks, with a table,
 * if they have not taken the same tensors in the same order.  A block that comes later is plain memory to
 * collectives until the next call.
 */
WEFT_API weft_status weft_symm_pool_meet(weft_symm_pool *pool, weft_group *group);

typedef struct weft_symm_pool_info {
    weft_device device;
    size_t blocks, bytes; /* of them all */
    size_t used, most;    /* now, and the most there ever were */
    size_t gaps, largest_gap;
    uint64_t takes; /* tensors ever cut */
} weft_symm_pool_info;

WEFT_API weft_status weft_symm_pool_describe(weft_symm_pool *pool, weft_symm_pool_info *out);

/* Cuts a zeroed tensor from the pool.  WEFT_ERR_NO_SPACE if no gap is large enough.  The tensor
 * keeps the pool's block alive. */
WEFT_API weft_tensor *weft_symm_pool_empty(weft_symm_pool *pool, weft_dtype dtype,
                                           weft_shape shape);

#ifdef __cplusplus
}
#endif

#endif

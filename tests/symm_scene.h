/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenes of symmetric memory that are the same on every device: test_symm.c has them on the CPU,
 * test_cuda_symm.c on GPUs.  Signals of a GPU are enqueued, so a scene waits for the stream where
 * their end counts; on the CPU that waits for nothing.
 */
#ifndef TESTS_SYMM_SCENE_H
#define TESTS_SYMM_SCENE_H

#include "symm_info.h"

#include "symm/registration.h"
#include <weft/weft.h>

static inline bool all_equal(weft_tensor *x, double value)
{
    weft_tensor *here = x ? weft_to(x, weft_tensor_dtype(x), WEFT_CPU) : NULL;
    if (!here)
        return false;
    weft_tensor *flat = weft_view(weft_contiguous(here), WEFT_SHAPE(weft_tensor_numel(here)));
    for (int64_t i = 0; i < weft_tensor_numel(flat); i++)
        if (weft_item(flat, i) != value)
            return false;
    return true;
}

/* A barrier that is over when this returns. */
static inline void scene_barrier(weft_symm *mem)
{
    weft_device device = weft_tensor_device(weft_symm_tensor(mem, symm_info(mem).rank));
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    CHECK_OK(weft_stream_sync(weft_stream_current(device), 20000));
}

/* Pads of every dtype and shape, which do not overlap the buffer; and their bounds. */
static inline void scene_signal_pad(weft_group *world, weft_device device, int rank, int size)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, device, WEFT_SHAPE(1));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    size_t pad_bytes = symm_info(mem).pad_bytes;
    int peer = (rank + 1) % size;
    if (!weft_symm_signal_pad_ptr(mem, peer)) { /* it is on another host */
        weft_clear_error();
        peer = rank;
    }
    CHECK(weft_tensor_data(weft_symm_signal_pad(mem, rank, WEFT_SCALAR, WEFT_U32, 0)) ==
          weft_symm_signal_pad_ptr(mem, rank));
    weft_tensor *pad = weft_symm_signal_pad(mem, peer, WEFT_SCALAR, WEFT_U32, 0);
    CHECK_INT(weft_tensor_dtype(pad), WEFT_U32);
    CHECK_INT(weft_tensor_device(pad), device);
    CHECK_INT(weft_tensor_numel(pad), pad_bytes / 4);
    pad = weft_symm_signal_pad(mem, peer, WEFT_SHAPE(8, 8), WEFT_U32, 0);
    CHECK(weft_tensor_dtype(pad) == WEFT_U32 && weft_tensor_numel(pad) == 64 &&
          weft_tensor_ndim(pad) == 2);
    pad = weft_symm_signal_pad(mem, peer, WEFT_SCALAR, WEFT_U64, 0);
    CHECK(weft_tensor_dtype(pad) == WEFT_U64 && weft_tensor_numel(pad) == (int64_t)pad_bytes / 8);
    pad = weft_symm_signal_pad(mem, peer, WEFT_SHAPE(8, 8), WEFT_U64, 0);
    CHECK(weft_tensor_dtype(pad) == WEFT_U64 && weft_tensor_numel(pad) == 64);

    weft_tensor *fresh = weft_symm_empty(WEFT_F32, device, WEFT_SHAPE(1));
    mem = weft_symm_rendezvous(fresh, world);
    pad = weft_symm_signal_pad(mem, rank, WEFT_SCALAR, WEFT_U32, 0);
    CHECK_OK(weft_fill(pad, 42));
    CHECK_OK(weft_fill(fresh, 0));
    CHECK(all_equal(pad, 42));
    scene_barrier(mem);
    CHECK(all_equal(pad, 42)); /* nor do the barrier's own words */
    CHECK_OK(weft_fill(pad, 0));

    CHECK(!weft_symm_signal_pad(mem, peer, WEFT_SHAPE(pad_bytes / 4 + 1), WEFT_U32, 0));
    CHECK_CONTAINS(weft_last_error(), "exceeds");
    CHECK(!weft_symm_signal_pad(mem, peer, WEFT_SHAPE(1), WEFT_U32, -1));
    CHECK_CONTAINS(weft_last_error(), "non-negative");
    CHECK(!weft_symm_signal_pad(mem, size, WEFT_SCALAR, WEFT_U32, 0));
    CHECK_CONTAINS(weft_last_error(), "must be in [0");
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
}

/* The first floats of a rank's memory: that itself, or a copy if it is on another host. */
static inline weft_tensor *scene_peer(weft_symm *mem, int peer, int64_t count)
{
    weft_tensor *copy = NULL;
    if (weft_symm_buffer_ptr(mem, peer))
        return weft_symm_buffer(mem, peer, WEFT_SHAPE(count), WEFT_F32, 0);
    weft_clear_error();
    copy = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
    CHECK_OK(weft_symm_get(copy, mem, peer, 0));
    return copy;
}

/* Writes a value to all of them. */
static inline void scene_write(weft_symm *mem, int peer, int64_t count, double value)
{
    if (weft_symm_buffer_ptr(mem, peer)) {
        CHECK_OK(weft_fill(weft_symm_buffer(mem, peer, WEFT_SHAPE(count), WEFT_F32, 0), value));
        return;
    }
    weft_clear_error();
    CHECK_OK(weft_symm_put(mem, peer, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count), value), 0));
}

/* The reference's check of a handle, with every signal taken (it leaves those of ranks above 1). */
static inline void verify_symmetric_memory(weft_symm *mem, int rank, int size)
{
    CHECK_INT(symm_info(mem).size, size);
    size_t count = symm_info(mem).bytes / 4;
    weft_tensor *first = scene_peer(mem, 0, (int64_t)count);
    CHECK(first);
    CHECK_INT(weft_tensor_offset(first), 0);
    CHECK_INT(weft_storage_bytes(weft_tensor_storage(first)), symm_info(mem).bytes);
    if (rank == 0) {
        for (int peer = 1; peer < size; peer++)
            CHECK_OK(weft_symm_wait_signal(mem, peer, 0, WEFT_DEFAULT));
        CHECK(all_equal(first, 42));
    } else {
        if (rank == 1)
            scene_write(mem, 0, (int64_t)count, 42);
        CHECK_OK(weft_symm_put_signal(mem, 0, 0, WEFT_DEFAULT));
    }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    if (rank == 1)
        scene_write(mem, 0, (int64_t)count, 43);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    if (rank == 0)
        CHECK(all_equal(first, 43));
    scene_barrier(mem);
}

static inline void scene_strided(weft_group *world, weft_device device, int rank, int size)
{
    static const int64_t strides[] = {64, 1}, gaps[] = {128, 1};
    CHECK(!weft_symm_rendezvous(weft_empty(WEFT_F32, device, WEFT_SHAPE(64, 64)), NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    weft_tensor *x =
        weft_symm_empty_strided_p2p(WEFT_SHAPE(64, 64), strides, WEFT_F32, device, world, 0);
    CHECK(all_equal(x, 0));
    weft_symm *mem = weft_symm_rendezvous(x, NULL);
    CHECK(mem);
    weft_release(x); /* the handle keeps the memory */
    verify_symmetric_memory(mem, rank, size);
    CHECK(!weft_symm_empty_strided_p2p(WEFT_SHAPE(64, 64), gaps, WEFT_F32, device, world, 0));
    CHECK_CONTAINS(weft_last_error(), "dense");
}

/* An id is local: it need not be the same on all ranks. */
static inline void scene_persistent(weft_group *world, weft_device device, int rank, int size)
{
    static const int64_t strides[] = {64, 1};
    weft_shape square = WEFT_SHAPE(64, 64), other = WEFT_SHAPE(64, 65);
    uint64_t id = 42 + (uint64_t)rank * 1000;
    weft_tensor *x = weft_symm_empty_strided_p2p(square, strides, WEFT_F32, device, world, id);
    CHECK(x);
    void *data = weft_tensor_data(x);
    CHECK(!weft_symm_empty_strided_p2p(square, strides, WEFT_F32, device, world, id));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    weft_release(x);
    CHECK(!weft_symm_empty_strided_p2p(other, NULL, WEFT_F32, device, world, id));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    x = weft_symm_empty_strided_p2p(square, strides, WEFT_F32, device, world, id);
    CHECK(x && weft_tensor_data(x) == data);
    weft_symm *mem = weft_symm_rendezvous(x, NULL);
    CHECK(mem);
    weft_release(x);
    verify_symmetric_memory(mem, rank, size);
    x = weft_symm_empty_strided_p2p(WEFT_SHAPE(4096), NULL, WEFT_F32, device, world, id);
    weft_symm *again = weft_symm_rendezvous(x, NULL); /* cached: one rank may do it alone */
    CHECK(again && again->registration == mem->registration);
    weft_release(x);
    CHECK_OK(weft_symm_forget(id));
    CHECK_STATUS(weft_symm_forget(id), WEFT_ERR_NOT_FOUND);
}

static inline void scene_memset32(weft_device device)
{
    weft_tensor *x = weft_symm_empty(WEFT_U32, device, WEFT_SHAPE(64));
    weft_tensor *floats = weft_symm_empty(WEFT_F32, device, WEFT_SHAPE(64));
    CHECK_OK(weft_symm_memset32(x, 32, 1, 16));
    for (int i = 0; i < 64; i++)
        CHECK_INT(weft_item(x, i), i >= 32 && i < 48);
    CHECK(weft_symm_memset32(weft_view(x, WEFT_SHAPE(8, 8)), 0, 1, 1) < 0);
    CHECK_CONTAINS(weft_last_error(), "flat, contiguous uint32");
    CHECK(weft_symm_memset32(floats, 0, 1, 1) < 0);
    CHECK_CONTAINS(weft_last_error(), "flat, contiguous uint32");
    CHECK(weft_symm_memset32(x, -1, 1, 1) < 0);
    CHECK_CONTAINS(weft_last_error(), "greater than or equal to 0");
    CHECK(weft_symm_memset32(x, 0, (int64_t)1 << 32, 1) < 0);
    CHECK_CONTAINS(weft_last_error(), "uint32 range");
    for (int count = -1; count < 1; count++) {
        CHECK(weft_symm_memset32(x, 0, 1, count) < 0);
        CHECK_CONTAINS(weft_last_error(), "positive integer");
    }
    CHECK(weft_symm_memset32(x, 64, 1, 1) < 0);
    CHECK_CONTAINS(weft_last_error(), "exceeded the numel");
    CHECK(weft_symm_memset32(x, 0, 1, 65) < 0);
    CHECK_CONTAINS(weft_last_error(), "exceeded the numel");
    weft_clear_error();
    int64_t before = weft_tensor_version(x); /* a refused call writes nothing */
    CHECK_OK(weft_symm_memset32(x, 0, 3, 64));
    CHECK_INT(weft_tensor_version(x), before + 1);
    CHECK_OK(weft_symm_memset32(x, 63, 4, 1));
    CHECK_INT(weft_tensor_version(x), before + 2);
    CHECK(weft_item(x, 0) == 3 && weft_item(x, 62) == 3 && weft_item(x, 63) == 4);
}

static inline void scene_write_value32(weft_device device)
{
    weft_tensor *x = weft_symm_empty(WEFT_U32, device, WEFT_SHAPE(4));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_symm_stream_write_value32(x, i, 1));
        CHECK_INT(weft_tensor_version(x), i + 1);
        for (int j = 0; j < 4; j++)
            CHECK_INT(weft_item(x, j), j <= i);
    }
    CHECK(weft_symm_stream_write_value32(x, -1, 1) < 0);
    CHECK(weft_symm_stream_write_value32(x, 4, 1) < 0);
    CHECK(weft_symm_stream_write_value32(x, 0, (int64_t)1 << 32) < 0);
    weft_clear_error();
}

#endif

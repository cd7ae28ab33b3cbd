/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals between members of whom some have no address of the others' memory: by calls of NVSHMEM on
 * a stream.  Words are counters of 64 bits in the receiver's slot, one for each (channel, source),
 * for barriers and for signals.  A put adds 1; the n-th wait waits for n.
 *
 * NVSHMEM's own wait ends only when its word has come.  So a thread looks after waits under way: at
 * a deadline, or when a member is lost, it lifts this rank's own words, which lets them through, and
 * notes why.  Nothing works on the memory then until all ranks have reset it.
 */
#ifndef WEFT_NVSHMEM_REMOTE_H
#define WEFT_NVSHMEM_REMOTE_H

#include "backends/cuda/device/device.h"
#include "symm/backend.h"

typedef struct weft_i_nvshmem_remote weft_i_nvshmem_remote;

/* `words` is this rank's part, zeroed; `pes` the numbers of all members. */
weft_status weft_i_nvshmem_remote_open(const weft_i_circle *circle, weft_i_cuda_device *device,
                                       char *words, int channels, const int *pes,
                                       weft_i_nvshmem_remote **out);
void weft_i_nvshmem_remote_close(weft_i_nvshmem_remote *remote);

weft_status weft_i_nvshmem_remote_signal(weft_i_nvshmem_remote *remote, weft_i_cuda_stream *stream,
                                         weft_i_signal_kind kind, int rank, int channel,
                                         int64_t limit_ms);

/* Why nothing works, or WEFT_OK. */
weft_status weft_i_nvshmem_remote_check(weft_i_nvshmem_remote *remote);

/* The word that a put with data is to count up.  Memory is symmetric: the address is this rank's,
 * the PE says whose word it is. */
uint64_t *weft_i_nvshmem_remote_word(const weft_i_nvshmem_remote *remote, int channel);

/* This rank's part of a reset, between two meetings. */
weft_status weft_i_nvshmem_remote_await(weft_i_nvshmem_remote *remote, int64_t limit_ms);
weft_status weft_i_nvshmem_remote_reset(weft_i_nvshmem_remote *remote);

#endif

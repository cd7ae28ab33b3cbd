/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of ordinary tensors, through the stage of a team. */
#ifndef WEFT_CUDA_STAGED_H
#define WEFT_CUDA_STAGED_H

#include "symm/backend.h"
#include "team.h"

/* Enqueues a collective of a kind that is WEFT_I_STAGED, with one pair of operands of equal parts. */
weft_status weft_i_cuda_stage(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                              const weft_i_request *request);

weft_i_cuda_signature weft_i_cuda_signature_of(const weft_i_request *request);

/* The same on symmetric memory, and which kinds have such a way. */
bool weft_i_cuda_is_symmetric(weft_i_coll_kind kind);
weft_status weft_i_cuda_symmetric(weft_i_cuda_team *team, const weft_i_request *request);

/* Plain collectives of symmetric operands, and whether a request is one. */
bool weft_i_cuda_is_direct(const weft_i_request *request);
weft_status weft_i_cuda_direct(weft_i_cuda_team *team, const weft_i_request *request);

/* Of a signature: the operand that others reach is symmetric memory. */
#define WEFT_I_CUDA_SIGNATURE_DIRECT ((uint64_t)1 << 24)

/* The two of them whose sizes or strides are particular (vdev.c, tile.c). */
weft_status weft_i_cuda_vdev(weft_i_cuda_team *team, const weft_i_request *request);
weft_status weft_i_cuda_tile(weft_i_cuda_team *team, const weft_i_request *request);
/* Reduces `t`; no rank's tile has more than `most` elements, and all ranks name the same number. */
weft_status weft_i_cuda_tile_launch(const weft_i_cuda_team *team, const weft_i_request *request,
                                    const weft_k_tile *t, uint64_t most);

/* Sums in memory that is not mapped at one stride (scattered.c); `reach` has a table. */
weft_status weft_i_cuda_scattered(weft_i_cuda_team *team, const weft_i_request *request,
                                  const weft_i_cuda_reach *reach);

/* By multicast (multimem.c); `reach` is that of the operand which lies there. */
weft_status weft_i_cuda_multimem(weft_i_cuda_team *team, const weft_i_request *request,
                                 weft_i_cuda_reach reach);

/* For those: a call without its operands, with a digest of all that the ranks agreed on; and how
 * many blocks may meet. */
weft_k_call weft_i_cuda_call_of(const weft_i_cuda_team *team, const weft_i_request *request);
int weft_i_cuda_blocks_for(const weft_i_cuda_team *team, weft_i_cuda_kernel kernel, uint64_t units,
                           int threads);

/* "all_reduce of 4 f32, sum"; returns `out`. */
char *weft_i_cuda_signature_text(weft_i_cuda_signature signature, char *out, size_t bytes);

#endif

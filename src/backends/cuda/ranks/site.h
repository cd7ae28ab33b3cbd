/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A site: where a group meets on its CUDA devices for collectives.  Pads of all members with packets
 * and stage, mapped at one stride, and the team that meets there.
 *
 * A carrier opens one for its group and runs collectives on its team:
 *
 *     weft_i_cuda_site_open(circle, NULL, &site);
 *     weft_i_cuda_all_reduce(weft_i_cuda_site_team(site), stream, &sum);
 *     weft_i_cuda_site_close(site);
 *
 * The team's record, verdict and poison words are watched: a member that dies or leaves ends the
 * waits of its kernels (symm/sentry.h), and a thread that waits for a stream that carried them is told.
 */
#ifndef WEFT_CUDA_SITE_H
#define WEFT_CUDA_SITE_H

#include "symm/backend.h"
#include "team.h"

typedef struct weft_i_cuda_site weft_i_cuda_site;

/*
 * Collective over the circle, on devices of this kind; sizes NULL: the usual ones.  Whoever cannot is
 * told to all, and nobody has it.  WEFT_ERR_UNSUPPORTED with the reason where members run on one
 * device and did not all allow that, or do not reach each other's memory.  Refused while a stream
 * of this thread is being captured.
 */
weft_status weft_i_cuda_site_open(const weft_i_circle *circle, const weft_i_cuda_sizes *sizes,
                                  weft_i_cuda_site **out);

/* Its memory goes when what was enqueued before has run; does not wait for that. */
void weft_i_cuda_site_close(weft_i_cuda_site *site);

/* For weft_i_cuda_all_reduce and the others; its `resident` is the least of all members. */
weft_i_cuda_team *weft_i_cuda_site_team(weft_i_cuda_site *site);

/* This rank's part of resetting all that its group has open; the group's key and rank name it.
 * Asked by weft_symm_reset, between two meetings of all members.  `await` waits for what this rank
 * has enqueued there. */
weft_status weft_i_cuda_site_await_all(weft_i_key group, int rank, int64_t limit_ms);
weft_status weft_i_cuda_site_reset_all(weft_i_key group, int rank);

/* Byte `offset` of everybody's block of a rendezvous, whichever backend made it: what kernels are
 * given for operands in symmetric memory. */
weft_status weft_i_cuda_reach_of(const weft_i_counterparts *of, weft_i_cuda_reach *out);
uint64_t weft_i_cuda_place_of(const weft_i_counterparts *of);

#endif

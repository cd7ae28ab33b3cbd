/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commons: memory of a group on its CUDA devices, a block of each member, mapped on all of them at
 * one stride.  Pads lie in commons, so that a team can meet there: those of a registration, and
 * those of the group's collectives, with packets and stage.
 *
 * A carrier opens one for its group and runs collectives on its team:
 *
 *     weft_i_cuda_commons_open(circle, NULL, &commons);
 *     weft_i_cuda_all_reduce(weft_i_cuda_commons_team(commons), stream, &sum);
 *     weft_i_cuda_commons_close(commons);
 *
 * The team's record, verdict and poison words are watched: a member that dies or leaves ends the
 * waits of its kernels (symm/sentry.h), and who waits for a stream that carried them is told.
 */
#ifndef WEFT_CUDA_COMMONS_H
#define WEFT_CUDA_COMMONS_H

#include "symm/registration.h"
#include "team.h"

typedef struct weft_i_cuda_commons weft_i_cuda_commons;

/*
 * Collective over the circle, on devices of this kind; sizes NULL: the usual ones.  Who cannot is
 * told to all, and nobody has it.  WEFT_ERR_UNSUPPORTED with the reason where members run on one
 * device and did not all allow that, or do not reach each other's memory.  Refused while a stream
 * of this thread is being captured.
 */
weft_status weft_i_cuda_commons_open(const weft_i_circle *circle, const weft_i_cuda_sizes *sizes,
                                     weft_i_cuda_commons **out);

/* Its memory goes when what was enqueued before has run; does not wait for that. */
void weft_i_cuda_commons_close(weft_i_cuda_commons *commons);

/* For weft_i_cuda_all_reduce and the others; its `resident` is the least of all members. */
weft_i_cuda_team *weft_i_cuda_commons_team(weft_i_cuda_commons *commons);

/* Makes it usable again after a failure.  Collective over the circle that it was opened with, which
 * must be there still; all work of this rank on it has been waited for. */
weft_status weft_i_cuda_commons_reset(weft_i_cuda_commons *commons, const weft_i_circle *circle);

/* Byte `offset` of everybody's block of a registration on CUDA devices: what kernels are given for
 * operands in symmetric memory. */
weft_i_cuda_reach weft_i_cuda_reach_of(const weft_i_registration *registration, size_t offset);

#endif

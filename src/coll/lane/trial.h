/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials: does the kernel copy large ordinary operands faster (CMA), or weft through the bounce
 * buffers?  That depends on the processor, the kernel and the pages of the memory, by a factor of
 * two either way, and no table knows them.  So a lane times its first large calls of every kind and
 * size: four of the way that the table says, then four of the other, but only one or two if that
 * turns out not to be faster.  From then on it takes what is clearly faster.  Now and then it tries
 * the other again.  The trial of a gather begins when every rank may have been its root once, and
 * has touched its output.  What a lane has learned is kept for later jobs (trial_file.h), where it
 * decides until they have times of their own: the machine may have been busy when it was learned.
 * Where ranks share cores the table decides: a call then takes as long as others keep the core.
 *
 * Each rank shows its own times beside its arrival.  All ranks conclude from what all have shown,
 * so they agree even if one of them has lost count.
 */
#ifndef WEFT_COLL_TRIAL_H
#define WEFT_COLL_TRIAL_H

#include "coll/lane/call.h"

/* Does a call that moves `transfer` bytes from one rank to another take part? */
static inline bool weft_i_trial_takes(const weft_i_coll *coll, size_t transfer)
{
    /* A factor lies where the times would. */
    return transfer >= WEFT_I_TRIAL_FROM && transfer != SIZE_MAX &&
           coll->lane->cma == WEFT_I_CMA_KERNEL && coll->lane->mode == WEFT_I_WAIT_SPIN &&
           coll->cma_from != SIZE_MAX && !coll->cma_fixed && coll->ask.reduction != WEFT_PREMUL_SUM;
}

/* Begins to time it: sets coll->trial. */
void weft_i_trial_begin(weft_i_coll *coll, size_t transfer);

/* Before the entry: what this rank knows, to be shown, and which way it expects. */
weft_i_times weft_i_trial_times(const weft_i_coll *coll);
bool weft_i_trial_expects_cma(const weft_i_coll *coll, uint32_t attempt);

/* After the entry: which way it is. */
bool weft_i_trial_is_cma(const weft_i_coll *coll);

/* A call that went by CMA or through the bounce buffers has ended well. */
void weft_i_trial_end(weft_i_coll *coll);

#endif

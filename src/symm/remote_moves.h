/* SPDX-License-Identifier: Apache-2.0 */
/* Puts, gets and signals to members on other hosts; see remote.h. */
#ifndef WEFT_SYMM_REMOTE_MOVES_H
#define WEFT_SYMM_REMOTE_MOVES_H

#include "symm/registration.h"
#include "symm/remote.h"

/* Is the member on another host? */
static inline bool weft_i_far_is(const weft_symm *mem, int rank)
{
    return mem->registration->far && mem->group->hosts->away[rank];
}

/* WEFT_ERR_UNSUPPORTED: `what` of that member has no address here, and why. */
weft_status weft_i_far_refuse(const weft_symm *mem, int rank, const char *what);

/* Checked bytes of this rank to or from byte `at` of the member's block.  With `signals`, of at most
 * WEFT_I_FAR_PIECE, the label's channel is signalled with them.  A put returns when `from` may be
 * written again. */
weft_status weft_i_far_put(const weft_i_label *label, const weft_symm *mem, int rank, size_t at,
                           const char *from, size_t bytes, bool signals, int64_t limit_ms);
weft_status weft_i_far_fetch(const weft_i_label *label, const weft_symm *mem, int rank, size_t at,
                             char *to, size_t bytes, int64_t limit_ms);

/* Tells the member that its word was filled, or that this rank's was emptied.  WEFT_ERR_NO_MEMORY: it
 * does not know. */
weft_status weft_i_far_tell_signal(const weft_symm *mem, int rank, int channel);
weft_status weft_i_far_tell_taken(const weft_symm *mem, int rank, int channel);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's scratch memory.  Beside the workspace, which its users may have too, there are the slots
 * in which partial products meet (parallel/matmul_scatter.c) and the shards that members show to
 * each other (parallel/gather_matmul.c).  A member may still be at an earlier operation in these, so
 * nobody else's words or bytes may lie there.
 */
#ifndef WEFT_SYMM_WORKSPACE_H
#define WEFT_SYMM_WORKSPACE_H

#include "weft/symm.h"

typedef enum weft_i_scratch {
    WEFT_I_WORKSPACE,
    WEFT_I_SLOTS,
    WEFT_I_SHARDS,
    WEFT_I_SCRATCHES
} weft_i_scratch;

/* As weft_symm_workspace: all members call it, with as many bytes. */
weft_symm *weft_i_symm_scratch(weft_group *group, weft_i_scratch which, weft_device device,
                               size_t bytes);
/* What this member has of it so far; NULL: nothing. */
weft_tensor *weft_i_symm_scratch_now(const weft_group *group, weft_i_scratch which,
                                     weft_device device);

/* How often it was taken before, which this counts; equal on all members.  There must be some. */
uint32_t weft_i_symm_scratch_turn(weft_group *group, weft_i_scratch which);

/* Is everybody's memory on one device? */
bool weft_i_symm_is_near(const weft_symm *mem);
/* Is what the members have so far on one device?  Asks nobody. */
bool weft_i_symm_scratch_near(const weft_group *group, weft_i_scratch which, weft_device device);

#endif

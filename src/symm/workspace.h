/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scratch memory of a group that is not its users': the slots in which partial products meet
 * (parallel/matmul_scatter.c).  A member may write to another's while that one is still at an earlier
 * operation, so nobody else's words or bytes may lie there.
 */
#ifndef WEFT_SYMM_WORKSPACE_H
#define WEFT_SYMM_WORKSPACE_H

#include "weft/symm.h"

/* As weft_symm_workspace: all members call it, with as many bytes. */
weft_symm *weft_i_symm_slots(weft_group *group, weft_device device, size_t bytes);

/* Is everybody's memory on one device? */
bool weft_i_symm_is_near(const weft_symm *mem);
/* Are the slots that the members have so far on one device?  Asks nobody. */
bool weft_i_symm_slots_near(const weft_group *group, weft_device device);

#endif

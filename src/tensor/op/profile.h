/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles of a thread (weft/profile.h).  A profile is a mode (op.h), so it sees every call of a row that no
 * other row makes; code that runs a row's work without a call of the row notes it by itself:
 *
 *     int64_t began = weft_i_profile_begin(device);
 *     ...
 *     weft_i_profile_end(op, device, bytes, began);
 */
#ifndef WEFT_TENSOR_PROFILE_H
#define WEFT_TENSOR_PROFILE_H

#include "tensor/op/op.h"
#include "weft/profile.h"

/* The thread's innermost profile; NULL: none is open. */
extern _Thread_local weft_profile *weft_i_profile_now;

/* A moment, -1 if no profile is open: then the end does nothing. */
int64_t weft_i_profile_begin(weft_device device);
void weft_i_profile_end(const weft_i_op *op, weft_device device, uint64_t bytes, int64_t began);

#endif

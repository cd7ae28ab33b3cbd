/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's windows under symmetric memory: entries of the backend's table. */
#ifndef WEFT_NCCL_SYMM_H
#define WEFT_NCCL_SYMM_H

#include "symm/backend.h"

extern const weft_i_device_memory weft_i_nccl_device_memory;

weft_status weft_i_nccl_publish(weft_i_fdpass *fdpass, weft_i_segment *block);

#endif

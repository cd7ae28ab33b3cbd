/* SPDX-License-Identifier: Apache-2.0 */
/* NVSHMEM under symmetric memory: the table of symm/backend.h. */
#ifndef WEFT_NVSHMEM_SYMM_H
#define WEFT_NVSHMEM_SYMM_H

#include "symm/backend.h"

extern const weft_i_device_memory weft_i_nvshmem_device_memory;

#endif

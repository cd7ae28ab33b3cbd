/* SPDX-License-Identifier: Apache-2.0 */
/* Backend ucx moves messages between hosts.  It makes no memory, and carries no collectives. */
#include "ucx.h"

#include "symm/backend.h"
#include "wire.h"

extern const weft_i_backend weft_i_backend_ucx;
const weft_i_backend weft_i_backend_ucx = {
    .name = "ucx",
    .sharing = WEFT_I_SERVES_PROCESSES,
    .probe = weft_i_ucx_probe,
    .transport = &weft_i_ucx_transport,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks of a team. */
#ifndef WEFT_CUDA_P2P_H
#define WEFT_CUDA_P2P_H

#include "symm/backend.h"
#include "team.h"

/* Enqueues all messages of a request at once; see kernels/p2p.h. */
weft_status weft_i_cuda_exchange(weft_i_cuda_team *team, const weft_i_request *request);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Filling and running one send or receive (p2p_call.c). */
#ifndef WEFT_COLL_P2P_CALL_H
#define WEFT_COLL_P2P_CALL_H

#include "coll/p2p/p2p.h"

/* Fills a request of this thread's limit.  Tag, device and tensor are still to be set. */
void weft_i_p2p_request_fill(weft_i_p2p_request *request, weft_group *group, weft_i_coll_kind kind,
                             weft_dtype dtype, int peer, char *data, size_t bytes);

/* Sends or receives as one call of the user's, after a look at the peer. */
weft_status weft_i_p2p_exchange(weft_i_p2p_request *request);

#endif

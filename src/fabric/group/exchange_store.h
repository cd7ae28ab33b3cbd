/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How members on several hosts exchange notes, through the store.  An exchange goes in rounds.  In a
 * round every member leaves an entry.  A member that has read all entries asks the store to decide
 * the round "yes"; one that gives up asks for "no"; the store takes the first.  So a round succeeds
 * for all or for none, and after a "no" all members go on to the next one.
 */
#ifndef WEFT_FABRIC_EXCHANGE_STORE_H
#define WEFT_FABRIC_EXCHANGE_STORE_H

#include "fabric/group/group.h"

/* One exchange; as weft_i_group_exchange. */
weft_status weft_i_exchange_store(const weft_i_label *label, weft_group *group, uint32_t digest,
                                  const void *mine, size_t bytes, char *all, int64_t timeout_ms);

/*
 * Ends all exchanges under a group's key, now and later: world rank `rank` revoked it
 * (WEFT_ERR_REVOKED) or could not take part (why).  The second takes the rank's own word back.
 */
weft_status weft_i_exchange_store_end(weft_store *store, weft_i_key key, int rank, weft_status why);
void weft_i_exchange_store_allow(weft_store *store, weft_i_key key, int rank);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of ranks as text. */
#ifndef WEFT_FABRIC_RANK_LIST_H
#define WEFT_FABRIC_RANK_LIST_H

#include <stddef.h>

/* "0-3,7" for 0 1 2 3 7, in the given order; cut with "..." if it does not fit. */
void weft_i_rank_list_text(const int *ranks, int count, char *out, size_t bytes);

#endif

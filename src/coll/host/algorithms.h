/* SPDX-License-Identifier: Apache-2.0 */
/* The algorithms on the lane: each runs a checked call to its end. */
#ifndef WEFT_COLL_ALGORITHMS_H
#define WEFT_COLL_ALGORITHMS_H

#include "coll/lane/call.h"

/* reduce.c */
weft_i_runner weft_i_coll_all_reduce, weft_i_coll_reduce, weft_i_coll_reduce_scatter;
/* move.c: parts that only go from rank to rank, by the facts of the kind. */
weft_i_runner weft_i_coll_move, weft_i_coll_all_to_all;
/* splits.c */
weft_i_runner weft_i_coll_all_to_all_splits;
/* This rank's row of the tables, before the entry; and after it whether all rows agree. */
void weft_i_splits_write(weft_i_coll *coll);
weft_status weft_i_splits_check(const weft_i_coll *coll, size_t *largest);

#endif

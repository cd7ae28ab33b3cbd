/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a checked call: by the carrier of its device, or by the algorithm of its kind.  Floors
 * above bring the algorithms of their kinds with them.
 */
#ifndef WEFT_COLL_RUN_H
#define WEFT_COLL_RUN_H

#include "coll/lane/call.h"

/* Runs a checked call to its end in the calling thread. */
weft_status weft_i_coll_run(weft_i_coll *coll);

/* The algorithm of a call that only has to be agreed on. */
weft_i_runner weft_i_coll_barrier;

/*
 * From now on calls of this kind are run so.  By a constructor, in the file that has the public
 * function of the kind: from a static library that is linked as soon as somebody can make such a
 * call, while an object with nothing but a constructor is dropped.
 */
void weft_i_kind_run(weft_i_coll_kind kind, weft_i_runner *runner);

/* How they are run; NULL: nobody has said. */
weft_i_runner *weft_i_kind_runner(weft_i_coll_kind kind);

#endif

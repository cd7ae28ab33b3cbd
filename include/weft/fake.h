/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake group: one process or thread pretends to be a rank of a world of any size.  There are no
 * peers, nothing is communicated, and every operation is complete at once; arguments are checked as
 * in a real group.  For tracing, sizing, and tests of programs.
 */
#ifndef WEFT_FAKE_H
#define WEFT_FAKE_H

#include "weft/group.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Start from WEFT_FAKE_OPTS(rank, world_size). */
typedef struct weft_fake_opts {
    size_t size; /* of this struct */
    int rank, world_size;
    bool error_on_collective; /* every collective is WEFT_ERR_STATE, to prove that code has none;
                                 sends and receives are not */
    weft_store *store;        /* may be NULL; a fake or any other store, which is held, not used */
} weft_fake_opts;

/* weft_fake_opts opts = WEFT_FAKE_OPTS(0, 1000); */
#define WEFT_FAKE_OPTS(rank_, world_size_)                                     \
    {                                                                          \
        sizeof(weft_fake_opts), (rank_), (world_size_), false, (weft_store *)0 \
    }

/*
 * The world group of a rank that has no peers.  Local.  NULL opts: rank 0 of 1.  Groups made of it
 * are fake as well.  What operations do to their operands is in docs/fake.md: a rank sees its own
 * data wherever another rank's would be.  Ended by weft_finish.  WEFT_ERR_INVALID_ARG,
 * WEFT_ERR_NO_MEMORY.
 */
WEFT_API weft_group *weft_fake_init(const weft_fake_opts *opts);

/* Is this a fake group? */
WEFT_API bool weft_fake_is(const weft_group *group);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake group: one process or thread acts as a rank of a world of any size.  There are no peers,
 * nothing is communicated, and every operation completes at once.  Arguments are checked as in a
 * real group.  Useful for tracing, for estimating sizes, and for testing programs.
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
    bool error_on_collective; /* every collective fails with WEFT_ERR_STATE, to prove that the
                                 program makes none; sends and receives work */
    weft_store *store;        /* may be NULL; any store, also a fake one; held but not used */
} weft_fake_opts;

/* weft_fake_opts opts = WEFT_FAKE_OPTS(0, 1000); */
#define WEFT_FAKE_OPTS(rank_, world_size_)                                                \
    {                                                                                     \
        sizeof(weft_fake_opts), (rank_), (world_size_), false, WEFT_CAST(weft_store *, 0) \
    }

/*
 * Returns the world group of a rank that has no peers.  Local.  If `opts` is NULL, it is rank 0 of
 * 1.  Groups made from it are fake as well.  docs/fake.md says what operations do to their
 * operands: a rank sees its own data wherever another rank's would be.  End it with weft_finish.
 * WEFT_ERR_INVALID_ARG, WEFT_ERR_NO_MEMORY.
 */
WEFT_API weft_group *weft_fake_init(const weft_fake_opts *opts);

/* Whether this is a fake group. */
WEFT_API bool weft_fake_is(const weft_group *group);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor: what this machine can do at best.  Bare prototypes of every collective over one shared
 * mapping, which take every liberty a library cannot: symmetric buffers only, no checks, no
 * deadlines, no deaths.  Several per operation; the quickest at a size is the floor there.
 */
#ifndef WEFT_TOOLS_BENCH_FLOOR_H
#define WEFT_TOOLS_BENCH_FLOOR_H

#include "bench/meter.h"
#include "bench_fold.h"

/* The mapping; made before the ranks are. */
typedef struct bench_floor {
    unsigned char *base;
    size_t bytes, stride; /* of all, of one rank's area */
    size_t out_at;        /* of the output in an area */
    int ranks, crowded;   /* crowded: ranks share cores, so waits give way */
} bench_floor;

/* One rank's hold on it. */
typedef struct bench_floor_rank {
    const bench_floor *floor;
    int rank;
    int prototype; /* of the operation: 0 to bench_floor_count less one */
    uint64_t turn; /* calls so far; the same on all ranks */
    plan_case what;
    bench_fold fold;
    const struct bench_prototype *found; /* the prototype's row */
} bench_floor_rank;

/* Maps areas for buffers of these sizes; 0, or -1 if there is no memory. */
int bench_floor_open(bench_floor *floor, int ranks, uint64_t in_bytes, uint64_t out_bytes,
                     int crowded);
void bench_floor_close(bench_floor *floor);

int bench_floor_count(int op);
const char *bench_floor_name(int op, int prototype);

/* Is the prototype worth trying for this case?  0 for all if there is no floor: other dtypes, other
 * reductions. */
int bench_floor_fits(const plan_case *what, int prototype);

meter_contender bench_floor_contender(bench_floor_rank *rank);

#endif

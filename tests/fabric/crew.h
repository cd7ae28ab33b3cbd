/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crews: small jobs of process ranks that a test launches by the dozen.  Every rank reports in
 * shared memory; a crew passes if no rank that was to live has complained, nobody is left running
 * and no descriptor stays open.
 *
 *     crew_run(4, body, &arg);    body(rank, arg): CREW(x == 3, "x is %d", x)
 */
#ifndef WEFT_TESTS_CREW_H
#define WEFT_TESTS_CREW_H

#include "harness_ranks.h"

#include <weft/weft.h>

enum { CREW_MAX = 16 };

typedef struct crew_rank {
    char complaint[1400];
    long long slowest_ms; /* call that ended with an error */
    int done;             /* the body returned */
    int steps;
} crew_rank;

typedef struct crew_page {
    crew_rank rank[CREW_MAX];
    _Atomic int given_up; /* counts those whose deadline has passed */
    _Atomic int go;       /* for crews that want to wait for each other without weft */
    _Atomic int pid[CREW_MAX];
    _Atomic long long when; /* ns: what the crew is about has happened */
    char note[64];          /* shown with a complaint */
} crew_page;

static crew_page *crew;

/* Complains and leaves the function. */
#define CREW(condition_, ...)                                                                 \
    do {                                                                                      \
        if (!(condition_)) {                                                                  \
            char *out_ = crew->rank[rank].complaint;                                          \
            int n_ = snprintf(out_, 400, "line %d, %s: ", __LINE__, #condition_);             \
            snprintf(out_ + n_, sizeof crew->rank[rank].complaint - (size_t)n_, __VA_ARGS__); \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)

__attribute__((unused)) static void crew_rest(int ms)
{
    struct timespec duration = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&duration, NULL);
}

/* Launches the crew and fails the test, in the name of `what`, for the first complaint.  `dying`: a
 * bit for each rank that is not to come back. */
static void crew_run_without(const char *what, int size, int (*body)(int rank, void *arg),
                             void *arg, unsigned dying)
{
    unsigned char before[1024], after[1024];
    if (!crew) {
        setenv("WEFT_KILL_GRACE", "120000", 0); /* survivors of a death are given their time */
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        crew = mmap(NULL, sizeof *crew, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    CHECK(crew != MAP_FAILED && size <= CREW_MAX);
    memset(crew, 0, sizeof *crew);
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    weft_launch_end end = {.first_rank = -1};
    opts.ranks = size;
    opts.body = body;
    opts.arg = arg;
    opts.end = &end;
    opts.flags = WEFT_LAUNCH_QUIET | WEFT_LAUNCH_NO_CAPTURE;
    opts.timeout_ms = 150000;
    harness_descriptors(before, NULL);
    int result = weft_launch(&opts);
    if (result < 0)
        FAIL("%s: %s", what, weft_last_error());
    for (int rank = 0; rank < size; rank++)
        if (crew->rank[rank].complaint[0])
            printf("# rank %d: %s\n", rank, crew->rank[rank].complaint);
    for (int rank = 0; rank < size; rank++)
        if (crew->rank[rank].complaint[0])
            FAIL("%s (%s): rank %d of %d: %s", what, crew->note, rank, size,
                 crew->rank[rank].complaint);
    for (int rank = 0; rank < size; rank++)
        if (!crew->rank[rank].done && !(dying >> rank & 1))
            FAIL("%s: rank %d of %d did not come back (first to fail: rank %d, signal %d, exit %d)",
                 what, rank, size, end.first_rank, end.signal, end.exit_code);
    if (end.timed_out)
        FAIL("%s: took longer than 150 s", what);
    int status;
    CHECK(waitpid(-1, &status, WNOHANG) < 0); /* no child, no orphan */
    CHECK_INT(harness_descriptors(after, before), -1);
}

/* `victim`: the one rank that dies; -1: none. */
__attribute__((unused)) static void crew_run(const char *what, int size,
                                             int (*body)(int rank, void *arg), void *arg,
                                             int victim)
{
    crew_run_without(what, size, body, arg, victim < 0 ? 0 : 1u << victim);
}

#endif

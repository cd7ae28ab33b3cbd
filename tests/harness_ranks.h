/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests with several ranks.  The body runs once in each rank, with `rank` and `size` in sight, on
 * each backend: "shm", ranks as forked processes, and "threads", ranks as threads of one forked
 * process.
 *
 *     RANKS_TEST(test_ring, 4) { CHECK(rank < size); }
 *
 * CHECK fails only the rank it is in and leaves its body; the others see that rank leave.  A rank
 * that is meant to die says harness_rank_dies() first.  The test fails if a rank crashes, if
 * processes, descriptors or (AddressSanitizer) memory are left behind, or if it takes longer than
 * HARNESS_TIMEOUT seconds (60), or the harness gets SIGTERM, as from tests/run at the program's
 * limit: then every rank's last operation is printed and all are killed.
 * A third backend is "ucx": ranks as processes that take themselves for ranks of several hosts, which
 * meet through a store and send each other messages over the loopback interface.  It runs the tests of
 * programs that are built with the word HOSTS (cmake/WeftTest.cmake), on two hosts, and those of
 * HOSTS_TEST, on theirs, and nowhere else; and HOSTS_TOO_TESTs.  WEFT_TEST_HOSTS spreads the former: "even", "uneven" (one
 * rank is alone on the second host), "2+1+1"; without it HARNESS_SEED takes one of the first two.
 *
 *     HOSTS_TEST(test_ring, 4, "3+1") { CHECK(rank < size); }
 *
 * `--backend shm|threads|ucx` or WEFT_TEST_BACKENDS (words) selects backends.  A program whose tests
 * are about another kind of memory defines HARNESS_LABEL before it includes this: a function that
 * gives the name that its results bear.
 */
#ifndef WEFT_TESTS_HARNESS_RANKS_H
#define WEFT_TESTS_HARNESS_RANKS_H

#include "harness.h"

#include "fabric/world/spawn.h"
#include <weft/launch.h>
#include <weft/scope.h>
#include <weft/spawn.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#ifndef HARNESS_LABEL
#define HARNESS_LABEL NULL
#endif
#ifndef HARNESS_HOSTS /* by the word HOSTS */
#define HARNESS_HOSTS NULL
#endif

enum { HARNESS_RANKS_MAX = 64, HARNESS_NOTHING = 3 /* said nothing: it crashed, or still runs */ };

/* What a rank passes back, in memory shared with the harness. */
typedef struct harness_rank {
    int outcome;
    int dies;
    atomic_int marks;  /* see harness_mark */
    atomic_int failed; /* relaxed: nothing else is read for it, see harness_await_marks */
    long long when;    /* ns, to tell causes from consequences */
    char reason[1024];
} harness_rank;

extern harness_rank *harness_ranks; /* one for each rank of the test that runs */
extern const harness_test *harness_current;
extern _Thread_local int harness_this_rank;
extern int harness_in_threads; /* 1: ranks share a process, so that none can die alone */

/* The hosts of the test that runs, and how many ranks are on each; 0: one, in truth. */
enum { HARNESS_HOSTS_MAX = 8 };
extern int harness_hosts, harness_host_sizes[HARNESS_HOSTS_MAX];

/* Leak check at the end of a rank; only there with AddressSanitizer. */
__attribute__((weak)) int __lsan_do_recoverable_leak_check(void);

#define RANKS_TEST(name_, ranks_)                                                           \
    static void name_(int rank, int size);                                                  \
    HARNESS_REGISTER(name_, .ranks = (ranks_), .ranks_body = name_, .label = HARNESS_LABEL, \
                     .hosts = HARNESS_HOSTS, .run = harness_run_ranks)                      \
    static void name_(__attribute__((unused)) int rank, __attribute__((unused)) int size)
/* Runs on several hosts too, in a program without the word; but not with memory of devices, which
 * hosts do not share. */
#ifdef WEFT_TEST_ON_CUDA
#define HOSTS_TOO_TEST RANKS_TEST
#else
#define HOSTS_TOO_TEST(name_, ranks_)                                                       \
    static void name_(int rank, int size);                                                  \
    HARNESS_REGISTER(name_, .ranks = (ranks_), .ranks_body = name_, .label = HARNESS_LABEL, \
                     .hosts = "", .run = harness_run_ranks)                                 \
    static void name_(__attribute__((unused)) int rank, __attribute__((unused)) int size)
#endif
#define HOSTS_TEST(name_, ranks_, sizes_)                                              \
    static void name_(int rank, int size);                                             \
    HARNESS_REGISTER(name_, .ranks = (ranks_), .ranks_body = name_, .hosts = (sizes_), \
                     .only_hosts = 1, .run = harness_run_ranks)                        \
    static void name_(__attribute__((unused)) int rank, __attribute__((unused)) int size)

int harness_run_ranks(const harness_test *test);

/* From here on this rank may die without failing the test. */
void harness_rank_dies(void);

/* Tells all that this rank has come to the point that some wait for, and counts such points; also
 * for what a rank forks.  Who has counted the mark sees what was written before it. */
void harness_mark(void);
int harness_marks_of(int rank);
int harness_marks(void);

/* Waits until that rank has made so many marks; false if it has not within 20 s. */
bool harness_await(int rank, int marks);

/* Waits until all ranks together have made so many marks.  One that has failed makes none any more:
 * then this rank fails too, instead of hiding that behind a time-out. */
void harness_await_marks(int marks);

/* ns */
long long harness_now(void);

/* Marks the open descriptors in `open`; returns the first one that is not in `before`, -1 if there
 * is none. */
int harness_descriptors(unsigned char open[1024], const unsigned char *before);

#endif

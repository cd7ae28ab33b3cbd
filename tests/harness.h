/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test harness.  A test is a function; each prints one line "<name> <backend> <ranks>
 * pass|fail|skip[: reason]".
 *
 *     TEST(test_something) { CHECK(1 + 1 == 2); }
 *     int main(int argc, char **argv) { return harness_main(argc, argv); }
 *
 * Arguments of the program select tests by name; none runs all.  Tests with several ranks:
 * harness_ranks.h.
 */
#ifndef WEFT_TESTS_HARNESS_H
#define WEFT_TESTS_HARNESS_H

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct harness_test {
    const char *name;
    void (*body)(void);
    struct harness_test *next;
    int ranks;           /* 0: 1, without a backend */
    const char *backend; /* of a test of one rank; NULL: none */
    void (*ranks_body)(int rank, int size);
    const char *(*label)(const char *backend); /* the name that its results bear; NULL: backend */
    const char *hosts; /* "3+1": its ranks on hosts of these sizes; "": on two; NULL: on one only */
    int only_hosts;    /* 1: it runs there only */
    int (*run)(const struct harness_test *); /* runs and reports it; returns how often it failed */
} harness_test;

/* In harness.c, which is compiled once for all programs of a build. */
extern harness_test *harness_first, **harness_last;
extern _Thread_local jmp_buf harness_out;
extern _Thread_local char harness_reason[1024];
extern const char *harness_backend; /* --backend: the only one to run; NULL: all */

enum { HARNESS_PASS, HARNESS_FAIL, HARNESS_SKIP };

#define HARNESS_REGISTER(name_, ...)                                        \
    __attribute__((constructor)) static void harness_register_##name_(void) \
    {                                                                       \
        static harness_test test = {.name = #name_, __VA_ARGS__};           \
        *harness_last = &test;                                              \
        harness_last = &test.next;                                          \
    }
#define TEST(name_)                                                  \
    static void name_(void);                                         \
    HARNESS_REGISTER(name_, .body = name_, .run = harness_run_alone) \
    static void name_(void)

/* A test of one rank that makes itself a fake world of `ranks_`. */
#define FAKE_TEST(name_, ranks_)                                                        \
    static void name_(void);                                                            \
    HARNESS_REGISTER(name_, .body = name_, .run = harness_run_alone, .backend = "fake", \
                     .ranks = (ranks_))                                                 \
    static void name_(void)

/* Runs one body and reports how it ended. */
int harness_run_alone(const harness_test *test);

/* Leaves the body with a reason; CHECK and its kin end here. */
__attribute__((noreturn, format(printf, 3, 4))) void harness_fail(const char *file, int line,
                                                                  const char *format, ...);

#define FAIL(...) harness_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition_)                     \
    do {                                      \
        if (!(condition_))                    \
            FAIL("%s is false", #condition_); \
    } while (0)
#define CHECK_OK(call_)                                              \
    do {                                                             \
        int status_ = (int)(call_);                                  \
        if (status_ < 0)                                             \
            FAIL("%s: %s (%d)", #call_, weft_last_error(), status_); \
    } while (0)
#define CHECK_STATUS(call_, expected_)                                               \
    do {                                                                             \
        int status_ = (int)(call_);                                                  \
        if (status_ != (int)(expected_))                                             \
            FAIL("%s gives %d, not %s; last error: %s", #call_, status_, #expected_, \
                 weft_last_error());                                                 \
    } while (0)
#define CHECK_INT(actual_, expected_)                                     \
    do {                                                                  \
        long long a_ = (long long)(actual_), e_ = (long long)(expected_); \
        if (a_ != e_)                                                     \
            FAIL("%s is %lld, not %lld", #actual_, a_, e_);               \
    } while (0)
#define CHECK_NEAR(actual_, expected_, tolerance_)               \
    do {                                                         \
        double a_ = (double)(actual_), e_ = (double)(expected_); \
        if (!(fabs(a_ - e_) <= (double)(tolerance_)))            \
            FAIL("%s is %.17g, not %.17g", #actual_, a_, e_);    \
    } while (0)
#define CHECK_CONTAINS(text_, part_)                 \
    do {                                             \
        const char *t_ = (text_), *p_ = (part_);     \
        if (!strstr(t_, p_))                         \
            FAIL("\"%s\" is not in \"%s\"", p_, t_); \
    } while (0)
#define SKIP(...)                                                     \
    do {                                                              \
        snprintf(harness_reason, sizeof harness_reason, __VA_ARGS__); \
        longjmp(harness_out, HARNESS_SKIP);                           \
    } while (0)

/* Prints the line of a test; returns 1 if it failed. */
int harness_report(const char *name, const char *backend, int ranks, int outcome,
                   const char *reason);

int harness_main(int argc, char **argv);

#endif

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

#include "harness_locks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct harness_test {
    const char *name;
    void (*body)(void);
    struct harness_test *next;
    int ranks;           /* 0: 1, without a backend */
    const char *backend; /* of a test of one rank; NULL: none */
    void (*ranks_body)(int rank, int size);
    int (*run)(const struct harness_test *); /* runs and reports it; returns how often it failed */
} harness_test;

static harness_test *harness_first, **harness_last = &harness_first;
static _Thread_local jmp_buf harness_out;
static _Thread_local char harness_reason[1024];
static const char *harness_backend; /* --backend: the only one to run; NULL: all */

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

__attribute__((unused)) static int harness_run_alone(const harness_test *test);

/* Leaves the body with a reason; CHECK and its kin end here. */
__attribute__((unused, noreturn, format(printf, 3, 4))) static void harness_fail(const char *file,
                                                                                 int line,
                                                                                 const char *format,
                                                                                 ...)
{
    int n = snprintf(harness_reason, sizeof harness_reason, "%s:%d: ", file, line);
    va_list args;
    va_start(args, format);
    vsnprintf(harness_reason + n, sizeof harness_reason - (size_t)n, format, args);
    va_end(args);
    longjmp(harness_out, HARNESS_FAIL);
}

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
static int harness_report(const char *name, const char *backend, int ranks, int outcome,
                          const char *reason)
{
    static const char *const words[] = {"pass", "fail", "skip"};
    printf("%s %s %d %s%s", name, backend, ranks, words[outcome], outcome ? ": " : "");
    for (const char *c = reason; outcome && *c; c++)
        putchar(*c == '\n' ? ' ' : *c); /* one line a test, whatever the reason */
    putchar('\n');
    fflush(stdout);
    return outcome == HARNESS_FAIL;
}

/* Runs one body and returns how it ended; longjmp from CHECK lands here. */
__attribute__((unused)) static int harness_run_alone(const harness_test *test)
{
    harness_reason[0] = 0;
    int outcome = setjmp(harness_out);
    if (outcome == HARNESS_PASS)
        test->body();
    return harness_report(test->name, test->backend ? test->backend : "-",
                          test->ranks ? test->ranks : 1, outcome, harness_reason);
}

/* Takes the options out of the arguments; what is left are names of tests. */
static int harness_read_options(int argc, char **argv)
{
    int names = 1;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--backend") && i + 1 < argc)
            harness_backend = argv[++i];
        else
            argv[names++] = argv[i];
    }
    return names;
}

static int harness_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name))
            return 1;
    return argc < 2;
}

__attribute__((unused)) static int harness_main(int argc, char **argv)
{
    int failures = 0;
    argc = harness_read_options(argc, argv);
    setenv("WEFT_LEARN", "0", 0); /* no test depends on what an earlier one measured */
    for (harness_test *test = harness_first; test; test = test->next)
        if (harness_wanted(test->name, argc, argv))
            failures += test->run(test);
    return failures != 0;
}

#endif

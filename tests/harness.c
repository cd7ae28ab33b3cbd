/* SPDX-License-Identifier: Apache-2.0 */
/* What every test program has of the harness; see harness.h. */
#include "harness.h"

#include "harness_locks.h"
#include "sanitized.h"

#if SANITIZED_THREAD
/* Tests without ranks leave the threads of products behind in the process that ranks are forked from. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

#if SANITIZED_ADDRESS
/* UCX 1.13 forgets 56 bytes of each endpoint that was closed by force. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libucs.so\n";
}

__attribute__((visibility("default"))) const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}
#endif

harness_test *harness_first, **harness_last = &harness_first;
_Thread_local jmp_buf harness_out;
_Thread_local char harness_reason[1024];
const char *harness_backend;

void harness_fail(const char *file, int line, const char *format, ...)
{
    int n = snprintf(harness_reason, sizeof harness_reason, "%s:%d: ", file, line);
    va_list args;
    va_start(args, format);
    vsnprintf(harness_reason + n, sizeof harness_reason - (size_t)n, format, args);
    va_end(args);
    longjmp(harness_out, HARNESS_FAIL);
}

int harness_report(const char *name, const char *backend, int ranks, int outcome,
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

/* longjmp from CHECK lands here. */
int harness_run_alone(const harness_test *test)
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

int harness_main(int argc, char **argv)
{
    int failures = 0;
    argc = harness_read_options(argc, argv);
    setenv("WEFT_LEARN", "0", 0); /* no test depends on what an earlier one measured */
    for (harness_test *test = harness_first; test; test = test->next)
        if (harness_wanted(test->name, argc, argv))
            failures += test->run(test);
    return failures != 0;
}

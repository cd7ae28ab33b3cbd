/* SPDX-License-Identifier: Apache-2.0 */
/* How a fuzzer dies: it says first at which input it was, whatever ends it, and large requests fail
 * instead of ending it.  A program includes this once, and calls fuzz_prepare. */
#ifndef FUZZ_DEATH_H
#define FUZZ_DEATH_H

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>

static void (*fuzz_tell)(void);

static void fuzz_on_signal(int number)
{
    fuzz_tell();
    signal(number, SIG_DFL);
    raise(number == SIGALRM ? SIGABRT : number);
}

__attribute__((used, visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=512:detect_leaks=1";
}

__attribute__((used, visibility("default"))) const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    return "print_stacktrace=1:abort_on_error=1";
}

__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void fuzz_prepare(void (*tell)(void))
{
    static const int deadly[] = {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    fuzz_tell = tell;
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(tell);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        signal(deadly[i], fuzz_on_signal);
    if (!__sanitizer_set_death_callback) { /* its shadow needs more */
        struct rlimit limit = {4LL << 30, 4LL << 30};
        setrlimit(RLIMIT_AS, &limit);
    }
    setenv("WEFT_DEBUG", "NONE", 1);
}

#endif

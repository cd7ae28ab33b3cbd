/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every test program looks at each mutex that is given back: one that nobody has taken is a lock
 * that somebody forgot, which glibc lets pass.  It ends the program.  ThreadSanitizer does this by
 * itself; other C libraries keep no such word.
 */
#ifndef WEFT_TESTS_HARNESS_LOCKS_H
#define WEFT_TESTS_HARNESS_LOCKS_H

#include "sanitized.h"

#include <pthread.h> /* says which C library it is */

#if defined __GLIBC__ && !SANITIZED_THREAD
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

/* Stands before the C library's, for the test and, as everybody sees it, for the library it tests. */
__attribute__((visibility("default"))) int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static const char words[] = "a mutex is unlocked that nobody has locked\n";
    static int (*original)(pthread_mutex_t *);
    /* Every thread that looks it up finds the same. */
    int (*real)(pthread_mutex_t *) = __atomic_load_n(&original, __ATOMIC_RELAXED);
    if (!real) {
        *(void **)(void *)&real = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
        __atomic_store_n(&original, real, __ATOMIC_RELAXED);
    }
    if (!__atomic_load_n(&mutex->__data.__lock, __ATOMIC_RELAXED)) {
        if (write(2, words, sizeof words - 1) < 0)
            _exit(70);
        abort();
    }
    return real(mutex);
}
#endif

#endif

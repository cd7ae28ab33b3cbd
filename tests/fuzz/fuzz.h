/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target is one function, the one libFuzzer calls.  The same file also links with replay.c
 * into a test that runs the stored inputs and a number of random changes to them, so that every
 * compiler's build tests it.
 */
#ifndef WEFT_TESTS_FUZZ_H
#define WEFT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* A broken promise ends the program: that is how libFuzzer learns of it. */
#define PROMISE(condition_)                                                           \
    do {                                                                              \
        if (!(condition_)) {                                                          \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition_); \
            abort();                                                                  \
        }                                                                             \
    } while (0)

#endif

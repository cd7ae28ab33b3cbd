/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks with a fence behind them, of bytes that are all ones: a loop that goes one element too far
 * reads a number below 0, no rank and no key.  AddressSanitizer sees such a read too, but only
 * there.
 */
#ifndef WEFT_TESTS_FENCE_H
#define WEFT_TESTS_FENCE_H

#include "base/os/os.h"

#include <string.h>

static void *fence_alloc(size_t bytes)
{
    char *memory = weft_i_os_linux.alloc(bytes + 512);
    if (memory)
        memset(memory + bytes, 0xff, 512);
    return memory;
}

static void fence_on(void)
{
    static weft_i_os table;
    table = weft_i_os_linux;
    table.alloc = fence_alloc;
    weft_i_os_now = &table;
}

static void fence_off(void)
{
    weft_i_os_now = &weft_i_os_linux;
}

#endif

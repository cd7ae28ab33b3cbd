/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of options begin with their size, so that programs built with another version work. */
#ifndef WEFT_BASE_OPTS_H
#define WEFT_BASE_OPTS_H

#include "base/report/status.h"

#include <stddef.h>
#include <string.h>

/*
 * Copies what the caller's struct and ours have in common.  The size of a struct is a multiple of
 * its alignment in every version: any other would cut a field in half.
 */
static inline weft_status weft_i_opts_copy(void *to, size_t bytes, const void *given,
                                           const char *what)
{
    size_t size;
    if (!given)
        return WEFT_OK;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size % sizeof size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: options with a size of %zu; set it to that of the struct", what,
                           size);
    memcpy(to, given, size < bytes ? size : bytes);
    return WEFT_OK;
}

#endif

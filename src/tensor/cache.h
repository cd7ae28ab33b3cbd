/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache: memory of large tensors.  Each is a mapping of its own on huge pages, because the
 * allocator's heap hands out memory that was touched page by page before.  Mappings that are given
 * back are kept for the next tensor of the same size: the kernel clears new ones, which takes as
 * long as a collective.  Few are kept, and none that is very large.
 */
#ifndef WEFT_TENSOR_CACHE_H
#define WEFT_TENSOR_CACHE_H

#include "base/pages.h"

/* AddressSanitizer watches what it has allocated itself. */
#if defined(__SANITIZE_ADDRESS__)
#define WEFT_I_HAS_SHELF 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_I_HAS_SHELF 0
#endif
#endif
#ifndef WEFT_I_HAS_SHELF
#define WEFT_I_HAS_SHELF 1
#endif

static inline bool weft_i_cache_has(size_t bytes)
{
    return WEFT_I_HAS_SHELF && bytes >= WEFT_I_HUGE_PAGE;
}

/* Not zeroed; NULL if there is no memory. */
void *weft_i_cache_take(size_t bytes);
void weft_i_cache_give(void *memory, size_t bytes);

/* Returns what is kept to the system; how many bytes that were. */
size_t weft_i_cache_clear(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache: memory of tensors of 128 KiB or more.  Each is a mapping of its own, from 2 MiB on of
 * huge pages, because the allocator's heap hands out memory that was touched page by page before.
 * Mappings that are given back are kept for the next tensor of the same size: the kernel clears new
 * ones, which takes longer than most operations on them.  64 MiB are kept of those below 2 MiB, 64
 * MiB of those up to 32 MiB, 512 MiB of larger ones, whose pages the kernel may take when it is short of
 * memory; more of each once a step has been seen to need them again.  WEFT_TENSOR_CACHE bounds each.  All go before a
 * tensor is refused.
 */
#ifndef WEFT_TENSOR_CACHE_H
#define WEFT_TENSOR_CACHE_H

#include "base/machine/pages.h"
#include "tensor/object/shelf.h"

/* From here on the C library maps aligned memory anew at each request, too. */
enum { WEFT_I_CACHE_FROM = 128 << 10 };

static inline bool weft_i_cache_has(size_t bytes)
{
    return WEFT_I_HAS_SHELF && bytes >= WEFT_I_CACHE_FROM;
}

/* Not zeroed; NULL if there is no memory. */
void *weft_i_cache_take(size_t bytes);
void weft_i_cache_give(void *memory, size_t bytes);

/* Returns what is kept to the system, how many bytes that were; the setting is read anew. */
size_t weft_i_cache_clear(void);

#endif

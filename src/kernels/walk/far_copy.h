/* SPDX-License-Identifier: Apache-2.0 */
/* Copies past the caches (far.h), from anywhere to anywhere. */
#ifndef WEFT_KERNELS_FAR_COPY_H
#define WEFT_KERNELS_FAR_COPY_H

#include "kernels/walk/far.h"

#if defined(__x86_64__)
/* Lines of which only a part is written are written plainly.  weft_i_far_end ends such copies. */
static inline void weft_i_far_copy(void *to, const void *from, size_t bytes)
{
    typedef weft_i_far_vector anywhere __attribute__((aligned(1)));
    char *into = to;
    const char *out_of = from;
    size_t head = (size_t) - (uintptr_t)to % WEFT_I_FAR_LINE;
    head = head < bytes ? head : bytes;
    size_t end = head + (bytes - head) / WEFT_I_FAR_LINE * WEFT_I_FAR_LINE;
    memcpy(into, out_of, head);
    for (size_t i = head; i < end; i += sizeof(weft_i_far_vector))
        WEFT_I_FAR_STORE((weft_i_far_vector *)(void *)(into + i),
                         *(const anywhere *)(const void *)(out_of + i));
    memcpy(into + end, out_of + end, bytes - end);
}
#else
static inline void weft_i_far_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif

#endif

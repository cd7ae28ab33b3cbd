/* SPDX-License-Identifier: Apache-2.0 */
/* Where hot functions begin and end.  See place.h. */
#include "base/place.h"

#include <stdint.h>

/* The bounds of the section, by the linker. */
extern const char __start_weft_hot[] __attribute__((visibility("hidden")));
extern const char __stop_weft_hot[] __attribute__((visibility("hidden")));

/* Numbers, not pointers: those into two objects may not be compared, and compilers know. */
static inline uintptr_t first(void)
{
    return (uintptr_t)__start_weft_hot;
}

static inline uintptr_t past(void)
{
    return (uintptr_t)__stop_weft_hot;
}

WEFT_I_HOT void weft_i_place_fetch(void)
{
    enum { LINE = 64 };
    for (uintptr_t at = first(); at < past(); at += LINE)
        __builtin_prefetch((const void *)at);
}

bool weft_i_place_is_hot(const void *code)
{
    return (uintptr_t)code >= first() && (uintptr_t)code < past();
}

size_t weft_i_place_size(void)
{
    return past() - first();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Where hot functions begin and end.  See place.h. */
#include "base/place.h"

#include <stdint.h>

/* The bounds of the section, by the linker. */
extern const char __start_weft_hot[] __attribute__((visibility("hidden")));
extern const char __stop_weft_hot[] __attribute__((visibility("hidden")));

WEFT_I_HOT void weft_i_place_fetch(void)
{
    enum { LINE = 64 };
    /* Numbers, not pointers: those into two objects may not be compared, and compilers know. */
    uintptr_t past = (uintptr_t)__stop_weft_hot;
    for (uintptr_t at = (uintptr_t)__start_weft_hot; at < past; at += LINE)
        __builtin_prefetch((const void *)at);
}

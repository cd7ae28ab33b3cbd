/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where functions lie in the program.  After a large transfer nothing of weft is in the caches any
 * more, and the next call pays for every line and every page that it touches.  So the functions that
 * a collective on a device runs through lie side by side, and can be fetched together; and what only
 * an error runs lies elsewhere.
 */
#ifndef WEFT_BASE_PLACE_H
#define WEFT_BASE_PLACE_H

#include <stdint.h>

/* On the way to a device's carrier, and back. */
#define WEFT_I_HOT __attribute__((hot, section("weft_hot")))

/* The fast path (coll/device/fast.h), until a library has the call, and the way back from there.  Each lies
 * in a section of its own, and is fetched alone. */
#define WEFT_I_FAST __attribute__((hot, section("weft_fast")))
#define WEFT_I_BACK __attribute__((hot, section("weft_back")))

/* Not on the way; compilers also move apart what leads to it. */
#define WEFT_I_COLD __attribute__((cold, noinline))

/* Used, but not on the way: not to be put in line there. */
#define WEFT_I_APART __attribute__((noinline))

/* The bounds of a section, by the linker. */
#define WEFT_I_BOUNDS(section_)                                                   \
    extern const char __start_##section_[] __attribute__((visibility("hidden"))); \
    extern const char __stop_##section_[] __attribute__((visibility("hidden")))
WEFT_I_BOUNDS(weft_hot);
WEFT_I_BOUNDS(weft_fast);
WEFT_I_BOUNDS(weft_back);

/* Asks for a section at once: that takes as long as a few lines one after the other.  In line: what
 * asks must be there itself.  Numbers, not pointers: those into two objects may not be compared, and
 * compilers know. */
static inline void weft_i_place_fetch(const char *from, const char *to)
{
    for (uintptr_t at = (uintptr_t)from; at < (uintptr_t)to; at += 64)
        __builtin_prefetch((const void *)at);
}

#define WEFT_I_FETCH(section_) weft_i_place_fetch(__start_##section_, __stop_##section_)

#endif

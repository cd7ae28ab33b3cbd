/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where functions lie in the program.  After a large transfer nothing of weft is in the caches any
 * more, and the next call pays for every line and every page that it touches.  So the functions that
 * a collective on a device runs through lie side by side, and can be fetched together; and what only
 * an error runs lies elsewhere.
 */
#ifndef WEFT_BASE_PLACE_H
#define WEFT_BASE_PLACE_H

/* On the way to a device's carrier, and back. */
#define WEFT_I_HOT __attribute__((hot, section("weft_hot")))

/* Not on the way; compilers also move apart what leads to it. */
#define WEFT_I_COLD __attribute__((cold, noinline))

/* Used, but not on the way: not to be put in line there. */
#define WEFT_I_APART __attribute__((noinline))

/* Asks for all hot functions at once: that takes as long as a few lines one after the other. */
void weft_i_place_fetch(void);

#endif

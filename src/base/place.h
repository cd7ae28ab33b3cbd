/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where functions lie in the program.  After a large transfer nothing of weft is in the caches any
 * more, and the next call pays for every line and every page that it touches.  So the functions that
 * every collective runs through lie side by side, and what only an error runs lies elsewhere, also
 * inside of functions: compilers move whatever leads to a cold function out of the way.
 */
#ifndef WEFT_BASE_PLACE_H
#define WEFT_BASE_PLACE_H

#define WEFT_I_HOT  __attribute__((hot))
#define WEFT_I_COLD __attribute__((cold))

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for the parts of a turn: as many places as there are threads at most, had before the turn, of which a
 * part takes one and gives it back.
 */
#ifndef WEFT_BASE_BERTHS_H
#define WEFT_BASE_BERTHS_H

#include "base/machine/threads.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct weft_i_berths {
    char *memory;
    size_t each; /* bytes of a place; whole lines */
    int places;
    atomic_flag taken[WEFT_I_THREADS_MOST];
} weft_i_berths;

/* `shared`: parts will ask, else the caller alone.  False if there is no memory; no error is set. */
bool weft_i_berths_open(weft_i_berths *berths, size_t bytes, bool shared);
void weft_i_berths_close(weft_i_berths *berths);

/* A place that nobody has; there is one. */
void *weft_i_berths_take(weft_i_berths *berths);
void weft_i_berths_give(weft_i_berths *berths, void *place);

#endif

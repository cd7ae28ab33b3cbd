/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second filling of the table of src/transport, within one process: every rank is a thread.  What it
 * moves is late, in another order, and sometimes refused, by a seed; ranks may be lost.  Data are read
 * when they leave, not when they are handed over, so a caller that reuses them too soon is found out.
 */
#ifndef WEFT_TESTS_TRANSPORT_DOUBLE_H
#define WEFT_TESTS_TRANSPORT_DOUBLE_H

#include "transport/transport.h"

enum { DOUBLE_RANKS = 16 };

/* For all wires that are opened from now on; those before are closed. */
void double_start(uint64_t seed);

/* A rank is gone: nothing reaches it, and who writes to it is told, unless `silent`. */
void double_lose(int rank, bool silent);

extern const weft_i_transport double_transport;

#endif

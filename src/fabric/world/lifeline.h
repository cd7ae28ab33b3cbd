/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lifelines: how ranks learn which ranks on other hosts live.
 *
 * Each host has a guard, its first rank that lives and is not stopped.  Guards keep connections to each
 * other, to the hosts 1, 2, 4, ... further on in a ring of those that live, so that news reaches all hosts
 * in log2(hosts) hops; the other ranks of a host keep one to their guard.  A guard watches the processes of
 * its own host (job page and descriptors of processes) and tells of those that have died, left, or are
 * stopped.  A host is dead for all when nothing at all comes back from it for WEFT_SILENCE, though it is
 * asked: its kernel answers for processes that are stopped, so those are told of and never taken for
 * dead.  A connection that ends, or a fault of the transport, is only a suspicion.
 *
 * All of it is done by one thread of the rank, which never waits for anything but its sockets, and never
 * for the library that carries messages.
 */
#ifndef WEFT_FABRIC_LIFELINE_H
#define WEFT_FABRIC_LIFELINE_H

#include "base/report/text.h"
#include "base/share/keyed.h"
#include "fabric/world/world.h"

typedef struct weft_i_lifeline weft_i_lifeline;

enum { WEFT_I_LIFELINE_ADDRESS = 64 };

/* Begins to listen where this rank reaches the store of the meeting from; `address` is for the others.
 * WEFT_ERR_UNSUPPORTED: that is no store over TCP. */
weft_status weft_i_lifeline_open(weft_i_world *world, weft_store *store, weft_i_lifeline **out,
                                 char address[WEFT_I_LIFELINE_ADDRESS]);
/* Where another rank listens. */
void weft_i_lifeline_know(weft_i_lifeline *life, int rank, const char *address);
/* All are known: starts the thread.  `secret` is of the job. */
weft_status weft_i_lifeline_start(weft_i_lifeline *life, const uint8_t secret[WEFT_I_KEYED_BYTES]);

/* The transport cannot reach a rank any more: its host is asked at once. */
void weft_i_lifeline_suspect(weft_i_lifeline *life);

/* What is told of a rank on another host: ": died, ...".  False: nothing. */
bool weft_i_lifeline_put(weft_i_lifeline *life, int rank, weft_i_text *out);
/* Is it known to be stopped, or not to answer though its host does? */
bool weft_i_lifeline_is_stopped(weft_i_lifeline *life, int rank);

/* Tells that this rank has left, and ends the thread. */
void weft_i_lifeline_leave(weft_i_lifeline *life);
void weft_i_lifeline_drop(weft_i_lifeline *life);

#endif

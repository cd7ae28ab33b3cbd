/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank has of the ranks on other hosts: a wire (transport/transport.h), and a pair with each of
 * them.  All ranks of a world have one, or none has (meet/meet_wires.c).
 *
 * A pair begins with a HELLO that proves by a keyed hash that its sender knows the job's secret.  Every
 * message after it carries the pair's cookie, 64 bits of such a hash, other ones in each direction.
 * What fails is dropped and counted, and told once.  Messages of a pair are taken in their order.
 *
 * A thread that waits drives: a wait that may end by a message turns the wire (weft_i_wheel).  Where nobody
 * waits, or all sleep, a thread of the rank does.  What a message does is done inside, in whichever
 * thread that is: it never waits, but it may send.  What it shares with callers is atomic, or guarded by
 * weft_i_remote_enter.
 */
#ifndef WEFT_FABRIC_REMOTE_H
#define WEFT_FABRIC_REMOTE_H

#include "base/share/keyed.h"
#include "base/share/segment.h"
#include "base/share/wait.h"
#include "fabric/world/world.h"
#include "transport/transport.h"

typedef struct weft_i_remote weft_i_remote;

/* The library that carries messages here, NULL: none.  The floor that knows the backends brings it, from a
 * constructor. */
extern const weft_i_transport *(*weft_i_remote_engine)(void);

/* May this rank have a wire?  What it needs may still be missing. */
bool weft_i_remote_is_wanted(void);

/* ---- its beginning and end ---- */

/* How a rank shows where its wire is. */
typedef struct weft_i_remote_card {
    unsigned char nonce[16];
    unsigned char address[WEFT_I_TRANSPORT_ADDRESS_BYTES];
    size_t bytes;
} weft_i_remote_card;

/* Opens a wire that belongs to the world from now on, though nothing is sent before
 * weft_i_remote_start. */
weft_status weft_i_remote_open(weft_i_world *world, weft_i_remote **out, weft_i_remote_card *mine);

/* Every rank on another host has shown its card. */
weft_status weft_i_remote_know(weft_i_remote *remote, int rank, const weft_i_remote_card *theirs);
weft_status weft_i_remote_start(weft_i_remote *remote);

/* Tells all whom this rank has written to that it leaves, and waits until they know, or for a moment. */
void weft_i_remote_leave(weft_i_remote *remote);
/* Closes the wire. */
void weft_i_remote_drop(weft_i_remote *remote);

/* ---- sending ---- */

/* The kind, the group's tag and the words of a head are the sender's. */

/* To a rank of the world on another host.  At most a segment of data, which is copied. */
weft_status weft_i_remote_tell(weft_i_remote *remote, int to, const weft_i_head *head,
                               const void *data, size_t bytes);
/* The same from memory that stays until `sent` is done, as those of the table. */
weft_status weft_i_remote_send(weft_i_remote *remote, int to, const weft_i_head *head,
                               const void *data, size_t bytes, weft_i_sent *sent);
/* Data of any size into memory that waits for it: the receiver expects before the sender streams. */
weft_status weft_i_remote_expect(weft_i_remote *remote, int from, uint64_t tag, void *to,
                                 size_t bytes, weft_i_sent *sent);
weft_status weft_i_remote_stream(weft_i_remote *remote, int to, uint64_t tag, const void *from,
                                 size_t bytes, weft_i_sent *sent);
/* The same on both ranks, and no stranger can guess it: of stream `number` of a group between this rank
 * and `rank`, in one direction. */
uint64_t weft_i_remote_tag(weft_i_remote *remote, int rank, bool outward, uint64_t group,
                           uint64_t number);
/* By force: what is under way with the rank ends, and nothing is sent to it any more. */
void weft_i_remote_cut(weft_i_remote *remote, int rank);

/* Can it still be written to? */
bool weft_i_remote_reaches(weft_i_remote *remote, int rank);

/* The most data of a message. */
size_t weft_i_remote_segment(const weft_i_remote *remote);
/* For put and get of memory, see symm/remote. */
const weft_i_transport *weft_i_remote_table(const weft_i_remote *remote);
void *weft_i_remote_wire(const weft_i_remote *remote);

/* ---- receiving ---- */

/* What takes messages of a kind that are the world's own business (group 0).  From a constructor. */
typedef void weft_i_remote_take(weft_i_world *world, int from, const weft_i_head *head,
                                const void *data, size_t bytes);
void weft_i_remote_on(weft_i_head_kind kind, weft_i_remote_take *take);
/* What takes all others, and looks for their group (group/hosts.c). */
void weft_i_remote_on_groups(weft_i_remote_take *take, void (*forget)(void *groups));
/* The transport says that it cannot reach a rank any more: a suspicion. */
void weft_i_remote_on_fault(void (*suspect)(weft_i_world *world, int rank, weft_status why,
                                            const char *text));

/* What only ranks of this job know; from weft_i_remote_start on. */
const uint8_t *weft_i_remote_secret(const weft_i_remote *remote);

/* What the groups of this rank keep here. */
void **weft_i_remote_groups(weft_i_remote *remote);

/* ---- driving ---- */

/* Nobody else is inside meanwhile; may be nested. */
void weft_i_remote_enter(weft_i_remote *remote);
void weft_i_remote_give(weft_i_remote *remote);

/* Moves the wire; how much has happened, 0 also if another thread is at it. */
int weft_i_remote_drive(weft_i_remote *remote);
/* The same for waits. */
const weft_i_wheel *weft_i_remote_wheel(const weft_i_remote *remote);

/* How many messages were dropped, for they proved nothing or made no sense. */
uint64_t weft_i_remote_strays(weft_i_remote *remote);

#endif

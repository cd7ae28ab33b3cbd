/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point to point: one rank sends, another receives.  A receive gets the oldest message of its
 * source that has its tag.  If several receives fit a message, the one posted first gets it.
 * Sender and receiver must agree on count and dtype.  If they do not, the receiver gets
 * WEFT_ERR_MISMATCH, and so does the sender if it is still waiting.  The group is then lost.
 *
 * A send of up to 32 KiB does not wait for its receiver, as long as no more than 32 KiB are on
 * their way to the same rank.  A larger send does.  Calls block for the group's time limit at most.
 * A `_start` function posts the same operation and returns work to wait for (weft/work.h).  To send
 * to itself, a rank must use the posted forms.  Ranks are ranks of the group.
 *
 * Tensors may be on a device.  The call is then enqueued on the current stream, messages between
 * two ranks are received in the order in which they were sent, and WEFT_ANY is WEFT_ERR_UNSUPPORTED
 * (docs/cuda.md).
 *
 * The first operation of a group, of whatever kind, waits until every rank has begun its first.
 */
#ifndef WEFT_P2P_H
#define WEFT_P2P_H

#include "weft/group.h"
#include "weft/tensor.h"
#include "weft/work.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFT_ANY = -1,   /* as the source of a receive: any rank; all get their turn */
    WEFT_NOBODY = -2 /* as a peer: nothing is sent or received */
};

/* Blocks until `x` may be changed again (send), or has been received (recv). */
WEFT_API weft_status weft_send(weft_tensor *x, int to, weft_group *group);
WEFT_API weft_status weft_recv(weft_tensor *x, int from, weft_group *group);
WEFT_API weft_work *weft_send_start(weft_tensor *x, int to, weft_group *group);
WEFT_API weft_work *weft_recv_start(weft_tensor *x, int from, weft_group *group);

/* The same with a tag, which is not negative.  The forms without a tag use tag 0. */
WEFT_API weft_status weft_send_tag(weft_tensor *x, int to, int tag, weft_group *group);
WEFT_API weft_status weft_recv_tag(weft_tensor *x, int from, int tag, weft_group *group);
WEFT_API weft_work *weft_send_tag_start(weft_tensor *x, int to, int tag, weft_group *group);
WEFT_API weft_work *weft_recv_tag_start(weft_tensor *x, int from, int tag, weft_group *group);

/*
 * Receives from the rank that sends first with this tag, and stores that rank in `out_source`.
 * WEFT_ERR_PEER_DEAD if any rank of the group dies meanwhile, because it may have been the sender.
 */
WEFT_API weft_status weft_recv_any(weft_tensor *x, int tag, weft_group *group, int *out_source);

/* Sends and receives at the same time, so that a ring in which every rank does so cannot deadlock.
 * Blocks until both are done.  `in` and `out` must not overlap. */
WEFT_API weft_status weft_send_recv(weft_tensor *out, int from, weft_tensor *in, int to,
                                    weft_group *group);

typedef enum weft_p2p_kind { WEFT_P2P_SEND, WEFT_P2P_RECV } weft_p2p_kind;

typedef struct weft_p2p_op {
    weft_p2p_kind kind;
    weft_tensor *x;
    int peer, tag;
    weft_group *group; /* the same in all of a batch */
} weft_p2p_op;

/*
 * Posts sends and receives together, in this order, as one work.  The work is done when all of them
 * are done, and it has failed if one of them has.  If an op is invalid (WEFT_ERR_INVALID_ARG: an
 * unknown kind, a group other than the first op's, a rank outside the group), returns NULL and
 * posts nothing.  A batch of zero ops is done at once; `ops` may then be NULL.
 */
WEFT_API weft_work *weft_batch_start(const weft_p2p_op *ops, int count);

/* Returns the rank whose message was received, by the work of a single receive or by op `op` of a
 * batch.  Returns -1 until that is known, and for a send. */
WEFT_API int weft_work_source(const weft_work *work);
WEFT_API int weft_batch_source(const weft_work *work, int op);

#ifdef __cplusplus
}
#endif

#endif

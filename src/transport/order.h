/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of the messages from one rank to another.  Every message has a number, one more than the
 * one before.  A transport may deliver a later one first: the receiver keeps it until its turn.  It
 * keeps at most WEFT_I_ORDER_KEPT of a pair, so a sender that leaves a gap cannot fill its memory.
 */
#ifndef WEFT_TRANSPORT_ORDER_H
#define WEFT_TRANSPORT_ORDER_H

#include "transport/head.h"

enum { WEFT_I_ORDER_KEPT = 64 };

/* A message that came early. */
typedef struct weft_i_order_kept {
    weft_i_head head;
    size_t bytes;
    unsigned char data[];
} weft_i_order_kept;

/* What came from one peer.  All zero at first: its first message has number 0. */
typedef struct weft_i_order {
    uint32_t next; /* the number whose turn it is; wraps */
    int count;
    weft_i_order_kept *kept[WEFT_I_ORDER_KEPT]; /* by number */
} weft_i_order;

typedef enum weft_i_order_turn {
    WEFT_I_ORDER_NOW,      /* it is its turn: handle it, then ask weft_i_order_next */
    WEFT_I_ORDER_EARLY,    /* kept */
    WEFT_I_ORDER_AGAIN,    /* was there before: drop it */
    WEFT_I_ORDER_FAR,      /* beyond what is kept: the pair is broken */
    WEFT_I_ORDER_NO_MEMORY /* it cannot be kept: the pair is broken */
} weft_i_order_turn;

weft_i_order_turn weft_i_order_take(weft_i_order *order, const weft_i_head *head, const void *data,
                                    size_t bytes);

/* A kept message whose turn has come, for WEFT_OS->free; NULL: none. */
weft_i_order_kept *weft_i_order_next(weft_i_order *order);

/* Frees what is kept. */
void weft_i_order_clear(weft_i_order *order);

#endif

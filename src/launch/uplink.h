/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the launcher of one host (`weft run --join`) hangs on the launcher that started it on another:
 * orders come down, output and ends of ranks go up.  If the other goes away, or is silent for too
 * long, no rank may stay.
 */
#ifndef WEFT_LAUNCH_UPLINK_H
#define WEFT_LAUNCH_UPLINK_H

#include "base/os/os.h"
#include "launch/frame.h"

struct weft_i_attempt;

typedef struct weft_i_uplink {
    int down; /* where orders come from */
    weft_i_frame_in in;
    weft_i_frame_out out;
    int64_t heard, silence_ns; /* when something came; WEFT_I_NEVER: it may be silent for ever */
    bool lost, paused;         /* it is gone; it has stopped us, and itself */
    bool asks_input;           /* the next piece of input has not been asked for yet */
} weft_i_uplink;

void weft_i_uplink_open(weft_i_uplink *uplink, int down, int up);
void weft_i_uplink_close(weft_i_uplink *uplink);

/* At most 2 entries; _due: when it wants to be called although nothing came. */
size_t weft_i_uplink_poll(const weft_i_uplink *uplink, struct pollfd *fds);
int64_t weft_i_uplink_due(const weft_i_uplink *uplink);

/* Reads and writes; false once the other side is gone.  Frames are then to be had by
 * weft_i_frame_next. */
bool weft_i_uplink_move(weft_i_uplink *uplink, const struct pollfd *fds, size_t count);

/* While ranks run: acts on what poll said and on the orders. */
void weft_i_uplink_take(struct weft_i_attempt *attempt, const struct pollfd *fds, size_t count);

/* Tells that a rank has ended; that the ranks cannot be started or watched; that none is left. */
void weft_i_uplink_tell_end(struct weft_i_attempt *attempt, int rank);
void weft_i_uplink_tell_failed(weft_i_uplink *uplink, weft_status status, const char *why);
void weft_i_uplink_tell_over(weft_i_uplink *uplink);

/* Answers a ping with our clock. */
void weft_i_uplink_answer(weft_i_uplink *uplink, const weft_i_frame *ping);

#endif

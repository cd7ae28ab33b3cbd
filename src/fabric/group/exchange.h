/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways in which the ranks of a group meet: barriers, and exchanges of notes. */
#ifndef WEFT_FABRIC_EXCHANGE_H
#define WEFT_FABRIC_EXCHANGE_H

#include "fabric/group/group.h"

/* "rank 1 of 4 in group "0", barrier on channel 2"; also says that the next error is about it. */
void weft_i_label_text(const weft_i_label *label, char *out, size_t bytes);

/* The second half of weft_i_group_meet, after weft_i_group_check_revoked and weft_i_signal_come;
 * `stay` (quarrel.h) says where that is, NULL: in a place of its own. */
struct weft_i_stay;
weft_status weft_i_group_keep_vigil(const weft_i_label *label, weft_i_point *point,
                                    const struct weft_i_stay *stay, int64_t timeout_ms,
                                    weft_i_meeting *meeting);

static inline weft_status weft_i_group_await(const weft_i_label *label, weft_i_point *point,
                                             const struct weft_i_stay *stay, int64_t timeout_ms,
                                             weft_i_meeting *meeting)
{
    weft_status status = weft_i_signal_look(point, meeting);
    if (status != WEFT_IN_PROGRESS)
        return status;
    return weft_i_group_keep_vigil(label, point, stay, timeout_ms, meeting); /* a longer wait */
}

/*
 * weft_i_signal_meet with a message for every failure but WEFT_ERR_MISMATCH, which the caller can
 * tell better, or by weft_i_group_mismatch; `meeting` names the culprit.
 */
static inline weft_status weft_i_group_meet(const weft_i_label *label, weft_i_point *point,
                                            uint32_t digest, int64_t timeout_ms,
                                            weft_i_meeting *meeting)
{
    meeting->culprit = -1;
    WEFT_TRY(weft_i_group_check_revoked(label));
    if (label->group->world->fake)
        return weft_i_group_check_mute(label);
    WEFT_TRY(weft_i_signal_come(point, digest, meeting));
    return weft_i_group_await(label, point, NULL, timeout_ms, meeting);
}

weft_status weft_i_group_mismatch(const weft_i_label *label, const weft_i_meeting *meeting);

/* For who meets on the board by itself (fabric/group/monitor.c): tells which operation this rank comes
 * with; makes the lane because another rank needs it, which only all together can; and tells both
 * calls after a mismatch there. */
void weft_i_group_show_op(weft_group *group, const char *op);
weft_status weft_i_group_help_make_lane(weft_group *group, int64_t deadline);

/* While a group is made: helps to make the lane of the group that it is made from, for as long as
 * one of its members needs that, which may give up and come here.  WEFT_ERR_TIMEOUT: the deadline
 * has passed. */
weft_status weft_i_group_help_above(weft_group *group, int64_t deadline);
weft_status weft_i_group_fail_quarrel(const weft_i_label *label, const weft_i_meeting *meeting);

/* weft_i_signal_settle with a message for every failure. */
weft_status weft_i_group_settle(const weft_i_label *label, weft_i_point *point,
                                const struct weft_i_stay *stay, uint32_t epoch, int64_t timeout_ms);

/*
 * All members show each other `bytes` (at most WEFT_I_NOTE_BYTES); `all` receives them in rank
 * order.  Collective. Members that exchange something else, by name or size, all get
 * WEFT_ERR_MISMATCH.  The second is for an operation's exchanges after its first: a rank that gives
 * the operation up in between may try it again, and those who wait here for it are told (see
 * base/share/signal.h).
 */
weft_status weft_i_group_exchange(weft_group *group, const char *what, const void *mine,
                                  size_t bytes, void *all, int64_t timeout_ms);
weft_status weft_i_group_exchange_later(weft_group *group, const char *what, const void *mine,
                                        size_t bytes, void *all, int64_t timeout_ms);

/*
 * Takes part in an exchange without reading the others' notes: how a rank that cannot go on tells
 * them so.  Keeps the thread's last error, which is the reason.
 */
void weft_i_group_show(weft_group *group, const char *what, const void *mine, size_t bytes);

#endif

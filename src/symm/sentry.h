/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sentry: what looks out for lost members while kernels wait for them, since a kernel sees only
 * memory.  One thread of the process looks at all posts, every millisecond while device work is
 * recent, else every 50.  A member that has died is told at once; one that has left, or a group
 * that was revoked, when a kernel has waited for it for a while.  The thread ends when there is
 * nothing to look at.
 */
#ifndef WEFT_SYMM_SENTRY_H
#define WEFT_SYMM_SENTRY_H

#include "symm/backend.h"

#include <stdatomic.h>

typedef struct weft_i_post weft_i_post;
struct weft_i_world;

/* Who is told.  All are called by the sentry's thread, and never after weft_i_post_close. */
typedef struct weft_i_post_duty {
    void (*condemn)(void *arg, weft_status status, int rank); /* `rank` will not come */
    bool (*is_waiting)(void *arg); /* does a kernel wait for long already? */
    void *arg;
    /*
     * How many calls a member must have enqueued (weft_i_post_show) for all that waits here to end,
     * as of the last is_waiting.  One that has left after so many is not missed: its part is done, or
     * its device does it.  NULL: whoever has left is missed.
     */
    uint64_t (*needs)(void *arg);
    /*
     * Does what waits here wait for that member?  Another one may leave as soon as its own part is
     * done, and is not to be blamed for who is late.  NULL: not known, so whoever has left is missed.
     */
    bool (*awaits)(void *arg, int rank);
} weft_i_post_duty;

/* For a member of the circle's group; does not hold the group, and may outlive it. */
weft_status weft_i_post_open(const weft_i_circle *circle, const weft_i_post_duty *duty,
                             weft_i_post **out);
void weft_i_post_close(weft_i_post *post);

/* Work that may wait for members is about to be enqueued. */
void weft_i_post_note_work(weft_i_post *post);

/* This member has enqueued so many calls that need all members.  One duty of a group counts them. */
void weft_i_post_show(weft_i_post *post, uint64_t enqueued);

/*
 * What a rank does for its peers before it leaves its world: called by weft_finish, within a bound,
 * while they take it for one that is here.  Registered from a constructor.  The second says which
 * posts are of that world.
 */
void weft_i_post_before_leaving(void (*farewell)(const struct weft_i_world *world));
bool weft_i_post_is_of(const weft_i_post *post, const struct weft_i_world *world);
/* Are they of one group? */
bool weft_i_post_is_beside(const weft_i_post *post, const weft_i_post *other);

/* What was told is forgotten: it is told again if it is still so. */
void weft_i_post_renew(weft_i_post *post);

/*
 * Something to be tried every millisecond until it says that it is done, by the same thread.  One
 * errand for the process, which can be asked for again at any time.  WEFT_OK: it will be run.
 */
weft_status weft_i_sentry_run(bool (*errand)(void));

/* Both calls, if the group has ended because its members called different things; else NULL. */
const char *weft_i_post_quarrel(const weft_i_post *post);

/* "rank 0 of 2 in group "0"", and what is known of a member: for messages. */
void weft_i_post_text(const weft_i_post *post, char *out, size_t bytes);
void weft_i_post_describe(const weft_i_post *post, int rank, char *out, size_t bytes);

#endif

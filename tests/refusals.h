/* SPDX-License-Identifier: Apache-2.0 */
/* For tables of calls that are refused: the status, and every word of the message. */
#ifndef WEFT_TESTS_REFUSALS_H
#define WEFT_TESTS_REFUSALS_H

#include "harness.h"

#include <weft/weft.h>

enum { ME = 3, WORLD = 8 };

static const char *refused_call;

static void refuse(bool refused, weft_status status, const char *message)
{
    if (!refused)
        FAIL("%s is not refused", refused_call);
    if (weft_last_status() != status)
        FAIL("%s gives %d, not %d: %s", refused_call, weft_last_status(), status,
             weft_last_error());
    if (strcmp(weft_last_error(), message) != 0)
        FAIL("%s says \"%s\", not \"%s\"", refused_call, weft_last_error(), message);
    weft_clear_error();
}

/* A call that gives NULL, and one that gives a negative number. */
#define NO(call_, status_, message_) \
    (refused_call = #call_, refuse((call_) == NULL, (status_), (message_)))
#define BAD(call_, status_, message_) \
    (refused_call = #call_, refuse((call_) < 0, (status_), (message_)))

/* One whose value says nothing. */
#define ERR(call_, status_, message_) \
    (refused_call = #call_, (void)(call_), refuse(true, (status_), (message_)))

/* A fake world, whose checks are those of a real one; in a scope of its own. */
__attribute__((unused)) static weft_group *open_world(void)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(ME, WORLD);
    CHECK_OK(weft_scope_open());
    weft_group *world = weft_fake_init(&opts);
    CHECK(world);
    return world;
}

__attribute__((unused)) static void close_world(void)
{
    CHECK_INT(weft_last_status(), WEFT_OK);
    CHECK_OK(weft_scope_close());
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on several hosts compare their clocks, so that `weft trace merge` can put their traces on one:
 * each asks the server of the store what time it is, some times.  The answer of the quickest round trip
 * counts, since it was given within that trip.
 */
#include "fabric/meet/meet.h"

#include "base/os/os.h"
#include "base/report/clock_note.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/os_look.h"
#include "base/report/status.h"
#include "store/store.h"

enum { TRIPS = 8, MOMENT_MS = 500 };

static weft_status ask(weft_store *store, weft_i_clock_point *out)
{
    int64_t theirs = 0, before = WEFT_OS->clock_ns();
    WEFT_TRY(weft_i_store_clock(store, &theirs, &out->of));
    int64_t half = (WEFT_OS->clock_ns() - before) / 2;
    out->at_ns = before + half;
    out->ahead_ns = theirs - out->at_ns;
    out->within_ns = half + 1;
    return WEFT_OK;
}

static weft_status compare(weft_store *store, weft_i_clock_point *out)
{
    weft_i_clock_point next;
    WEFT_TRY(ask(store, out));
    for (int trip = 1; trip < TRIPS; trip++) {
        WEFT_TRY(ask(store, &next));
        if (next.of != out->of || next.within_ns < out->within_ns) /* another server: begin anew */
            *out = next;
    }
    return WEFT_OK;
}

void weft_i_meet_clock(weft_i_world *world)
{
    weft_i_errors before;
    weft_i_clock_point point;
    if (!world->store || !world->mine || world->local_size == world->size ||
        !*weft_i_env_text(WEFT_I_ENV_TRACE))
        return;
    weft_i_errors_save(&before);
    int64_t until = weft_i_store_until(weft_i_os_deadline(MOMENT_MS));
    if (compare(world->store, &point) == WEFT_OK) {
        weft_i_clock_note_put(&world->mine->record.clock, &point);
        weft_i_clock_note_put(weft_i_clock_note_own(), &point);
    } else {
        weft_i_log(WEFT_LOG_INFO, "the clocks of the job's hosts were not compared: %s",
                   weft_last_error());
    }
    weft_i_store_until(until);
    weft_i_errors_restore(&before);
}

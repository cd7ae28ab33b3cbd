/* SPDX-License-Identifier: Apache-2.0 */
#include "base/report/clock_note.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/json.h"
#include "base/report/os_look.h"

#include <inttypes.h>
#include <stdio.h>

static weft_i_clock_note own;

weft_i_clock_note *weft_i_clock_note_own(void)
{
    return &own;
}

void weft_i_clock_note_put(weft_i_clock_note *note, const weft_i_clock_point *point)
{
    WEFT_ASSERT(point->of);
    /* Relaxed: nobody else writes. */
    int which = atomic_load_explicit(&note->point[0].of, memory_order_relaxed) != 0;
    /* Emptied first, as slots of the record are: what is being rewritten counts as nothing.  Pairs with
     * the acquires in weft_i_clock_note_get. */
    atomic_store_explicit(&note->point[which].of, 0, memory_order_release);
    atomic_store_explicit(&note->point[which].at_ns, point->at_ns, memory_order_release);
    atomic_store_explicit(&note->point[which].ahead_ns, point->ahead_ns, memory_order_release);
    atomic_store_explicit(&note->point[which].within_ns, point->within_ns, memory_order_release);
    atomic_store_explicit(&note->point[which].of, point->of, memory_order_release);
}

int weft_i_clock_note_get(const weft_i_clock_note *note,
                          weft_i_clock_point out[WEFT_I_CLOCK_POINTS])
{
    int count = 0;
    for (int i = 0; i < WEFT_I_CLOCK_POINTS; i++) {
        /* Acquire: pairs with the releases in weft_i_clock_note_put; whoever sees a word of a new point
         * sees afterwards that `of` was emptied before it. */
        weft_i_clock_point *to = &out[count];
        to->of = atomic_load_explicit(&note->point[i].of, memory_order_acquire);
        to->at_ns = atomic_load_explicit(&note->point[i].at_ns, memory_order_acquire);
        to->ahead_ns = atomic_load_explicit(&note->point[i].ahead_ns, memory_order_acquire);
        to->within_ns = atomic_load_explicit(&note->point[i].within_ns, memory_order_acquire);
        count += to->of && atomic_load_explicit(&note->point[i].of, memory_order_acquire) == to->of;
    }
    return count;
}

void weft_i_clock_note_write(weft_i_json *json, const weft_i_clock_note *note)
{
    weft_i_clock_point point[WEFT_I_CLOCK_POINTS];
    char host[65], of[20];
    int count = weft_i_clock_note_get(note, point);
    weft_i_os_host_id(host);
    weft_i_json_text(json, "host", host);
    weft_i_json_integer(json, "wall_minus_monotonic_ns", weft_i_os_wall_ns() - WEFT_OS->clock_ns());
    weft_i_json_open(json, "compared", '[');
    for (int i = 0; i < count; i++) {
        snprintf(of, sizeof of, "%016" PRIx64, point[i].of);
        weft_i_json_open(json, NULL, '{');
        weft_i_json_text(json, "with", of);
        weft_i_json_integer(json, "at_ns", point[i].at_ns);
        weft_i_json_integer(json, "ahead_ns", point[i].ahead_ns);
        weft_i_json_integer(json, "within_ns", point[i].within_ns);
        weft_i_json_close(json);
    }
    weft_i_json_close(json);
}

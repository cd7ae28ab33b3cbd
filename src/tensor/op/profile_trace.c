/* SPDX-License-Identifier: Apache-2.0 */
/* See profile_trace.h. */
#include "tensor/op/profile_trace.h"

#include "base/os/file.h"
#include "base/os/os.h"
#include "base/report/clock_note.h"
#include "base/report/expand_path.h"
#include "base/report/file_open.h"
#include "base/report/json.h"
#include "tensor/object/device.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static char *copy_of(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = WEFT_OS->alloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

int weft_i_profile_rows_add(weft_i_profile_rows *rows, const weft_i_op *op, weft_device device)
{
    if (rows->count == rows->room) {
        int room = rows->room ? 2 * rows->room : 64;
        weft_i_profile_entry *more = WEFT_OS->resize(rows->at, (size_t)room * sizeof *more);
        if (!more)
            return -1;
        rows->at = more;
        rows->room = room;
    }
    char *name = copy_of(op->name), *about = copy_of(op->about ? op->about : "");
    if (!name || !about) {
        WEFT_OS->free(name);
        WEFT_OS->free(about);
        return -1;
    }
    rows->at[rows->count] =
        (weft_i_profile_entry){.op = op, .row = {.name = name, .about = about, .device = device}};
    return rows->count++;
}

void weft_i_profile_rows_clear(weft_i_profile_rows *rows)
{
    for (int i = 0; i < rows->count; i++) {
        WEFT_OS->free((void *)rows->at[i].row.name);
        WEFT_OS->free((void *)rows->at[i].row.about);
    }
    WEFT_OS->free(rows->at);
    *rows = (weft_i_profile_rows){0};
}

bool weft_i_profile_events_add(weft_i_profile_events *events, weft_i_profile_event event)
{
    if (events->count == events->room) {
        size_t room = events->room ? 2 * events->room : 1024;
        weft_i_profile_event *more = WEFT_OS->resize(events->at, room * sizeof *more);
        if (!more)
            return false;
        events->at = more;
        events->room = room;
    }
    events->at[events->count++] = event;
    return true;
}

/* ---- the file ---- */

enum { HOST_LANE = 100, DEVICE_LANE = 101 }; /* behind those of the flight record */

static int rank_now(void)
{
    const char *rank = getenv("RANK"); /* a launcher's */
    return rank ? atoi(rank) : 0;
}

char *weft_i_profile_path(const char *pattern)
{
    char path[1024];
    if (!weft_i_os_expand_path(pattern, rank_now(), weft_i_os_process(), path, sizeof path))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_profile_open: the path \"%s\" is too long",
                           pattern);
    char *copy = copy_of(path);
    return copy ? copy : weft_i_null(WEFT_ERR_NO_MEMORY, "weft_profile_open: no memory for a path");
}

static void write_span(weft_i_json *json, const weft_profile_row *row,
                       const weft_i_profile_event *event, int lane, int64_t end)
{
    weft_i_json_open(json, NULL, '{');
    weft_i_json_text(json, "name", row->name);
    weft_i_json_text(json, "cat", "operation");
    weft_i_json_text(json, "ph", "X");
    weft_i_json_integer(json, "pid", rank_now());
    weft_i_json_integer(json, "tid", lane);
    weft_i_json_micros(json, "ts", event->began);
    weft_i_json_micros(json, "dur", end - event->began);
    weft_i_json_open(json, "args", '{');
    weft_i_json_unsigned(json, "bytes", event->bytes);
    if (row->about[0])
        weft_i_json_text(json, "about", row->about);
    weft_i_json_close(json);
    weft_i_json_close(json);
}

static void write_lane(weft_i_json *json, int lane, const char *name)
{
    weft_i_json_open(json, NULL, '{');
    weft_i_json_text(json, "name", "thread_name");
    weft_i_json_text(json, "ph", "M");
    weft_i_json_integer(json, "pid", rank_now());
    weft_i_json_integer(json, "tid", lane);
    weft_i_json_open(json, "args", '{');
    weft_i_json_text(json, "name", name);
    weft_i_json_close(json);
    weft_i_json_close(json);
}

static void write_events(weft_i_json *json, const weft_i_profile_rows *rows,
                         const weft_i_profile_events *events)
{
    write_lane(json, HOST_LANE, "operations");
    write_lane(json, DEVICE_LANE, "operations on devices");
    for (size_t i = 0; i < events->count; i++) {
        const weft_i_profile_event *event = &events->at[i];
        const weft_profile_row *row = &rows->at[event->row].row;
        write_span(json, row, event, HOST_LANE, event->returned);
        if (!weft_i_device_is_host(row->device) && event->done > event->returned)
            write_span(json, row, event, DEVICE_LANE, event->done);
    }
}

weft_status weft_i_profile_write(const char *path, const weft_i_profile_rows *rows,
                                 const weft_i_profile_events *events)
{
    weft_i_json json;
    int fd;
    WEFT_TRY(weft_i_file_open(path, false, 0644, &fd));
    weft_i_json_begin(&json, fd, 2); /* an event a line */
    weft_i_json_open(&json, NULL, '{');
    weft_i_json_text(&json, "displayTimeUnit", "ns");
    weft_i_json_open(&json, "otherData", '{');
    weft_i_clock_note_write(&json, weft_i_clock_note_own());
    weft_i_json_integer(&json, "rank", rank_now());
    weft_i_json_integer(&json, "dropped", (int64_t)events->dropped);
    weft_i_json_close(&json);
    weft_i_json_open(&json, "traceEvents", '[');
    write_events(&json, rows, events);
    weft_i_json_close(&json);
    weft_i_json_close(&json);
    weft_status status = weft_i_json_finish(&json);
    WEFT_OS->close(fd);
    return status;
}

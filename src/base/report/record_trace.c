/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flight record as Chrome trace JSON.  Operations that overlap (several threads, or one inside
 * another) go to different lanes, because a viewer draws each lane as one thread.  otherData says
 * which host's clock the times are of, for `weft trace merge`.
 */
#include "base/os/file.h"
#include "base/os/os.h"
#include "base/report/clock_note.h"
#include "base/report/expand_path.h"
#include "base/report/file_open.h"
#include "base/report/json.h"
#include "base/report/log.h"
#include "base/report/record.h"
#include "base/report/status.h"
#include "weft/dtype.h"

#include <stdio.h>
#include <string.h>

enum { LANES = 32 };

/* trace.json -> trace.%r.json, unless the pattern tells ranks apart by itself. */
static bool path_of(const char *pattern, int rank, int process, char *out, size_t bytes)
{
    char told_apart[1024];
    if (strstr(pattern, "%r") || strstr(pattern, "%p"))
        return weft_i_os_expand_path(pattern, rank, process, out, bytes);
    const char *slash = strrchr(pattern, '/'), *name = slash ? slash + 1 : pattern,
               *dot = strrchr(name, '.');
    size_t stem = dot && dot > name ? (size_t)(dot - pattern) : strlen(pattern);
    int n =
        snprintf(told_apart, sizeof told_apart, "%.*s.%%r%s", (int)stem, pattern, pattern + stem);
    return n >= 0 && (size_t)n < sizeof told_apart &&
           weft_i_os_expand_path(told_apart, rank, process, out, bytes);
}

/* Entries come newest first and nearly ordered: by begin, oldest first. */
static void sort(weft_i_record_entry *entries, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        weft_i_record_entry swap = entries[i];
        entries[i] = entries[count - 1 - i];
        entries[count - 1 - i] = swap;
    }
    for (size_t i = 1; i < count; i++) {
        weft_i_record_entry entry = entries[i];
        size_t at = i;
        for (; at && entries[at - 1].begin > entry.begin; at--)
            entries[at] = entries[at - 1];
        entries[at] = entry;
    }
}

static int lane_of(int64_t free_from[LANES], int64_t begin, int64_t end)
{
    int lane = 0;
    while (lane < LANES - 1 && free_from[lane] > begin)
        lane++;
    free_from[lane] = end;
    return lane;
}

static void write_detail(weft_i_json *json, const weft_i_record_trace *trace,
                         const weft_i_record_clock *clock, const weft_i_record_entry *entry)
{
    weft_i_record_detail detail;
    char name[64];
    if (trace->group_name && trace->group_name(trace->arg, entry->group, name, sizeof name))
        weft_i_json_text(json, "group_name", name);
    if (!weft_i_record_noted(trace->record, entry->number, &detail))
        return;
    if (detail.dtype >= 0) {
        weft_i_json_text(json, "dtype", weft_dtype_name((weft_dtype)detail.dtype));
        weft_i_json_integer(json, "count", (int64_t)detail.count);
    }
    if (*detail.reduction)
        weft_i_json_text(json, "reduction", detail.reduction);
    if (detail.posted)
        weft_i_json_micros(json, "posted", weft_i_record_clock_ns(clock, detail.posted));
    weft_i_json_integer(json, "thread", detail.thread);
}

static void write_entry(weft_i_json *json, const weft_i_record_trace *trace,
                        const weft_i_record_clock *clock, int64_t free_from[LANES],
                        const weft_i_record_entry *entry)
{
    int64_t begin = weft_i_record_clock_ns(clock, entry->begin);
    int64_t end = entry->finished ? weft_i_record_clock_ns(clock, entry->end) : clock->now_ns;
    end = end > begin ? end : begin;
    weft_i_json_open(json, NULL, '{');
    bool step = weft_i_record_is_step(entry); /* of the library's own, within a call */
    weft_i_json_text(json, "name", step ? entry->name : weft_i_record_operation(entry->name));
    weft_i_json_text(json, "cat", step ? "weft,step" : "weft");
    weft_i_json_text(json, "ph", "X");
    weft_i_json_integer(json, "pid", trace->rank);
    weft_i_json_integer(json, "tid", lane_of(free_from, begin, end));
    weft_i_json_micros(json, "ts", begin);
    weft_i_json_micros(json, "dur", end - begin);
    weft_i_json_open(json, "args", '{');
    weft_i_json_integer(json, "number", (int64_t)entry->number);
    weft_i_json_integer(json, "bytes", (int64_t)entry->bytes);
    weft_i_json_integer(json, "group", entry->group);
    if (entry->turn)
        weft_i_json_integer(json, "operation", entry->turn);
    if (entry->on_device)
        weft_i_json_bool(json, "on_device", true);
    if (weft_i_record_way_name(entry->channel))
        weft_i_json_text(json, "way", weft_i_record_way_name(entry->channel));
    else if (entry->channel >= 0)
        weft_i_json_integer(json, "channel", entry->channel);
    if (entry->peer >= 0)
        weft_i_json_integer(json, "peer", entry->peer);
    weft_i_json_text(json, "status",
                     entry->finished ? weft_status_name((weft_status)entry->status)
                                     : "not finished");
    write_detail(json, trace, clock, entry);
    weft_i_json_close(json);
    weft_i_json_close(json);
}

/* Metadata of the rank: its name and its place in the viewer's list. */
static void open_metadata(weft_i_json *json, const char *what, int rank)
{
    weft_i_json_open(json, NULL, '{');
    weft_i_json_text(json, "name", what);
    weft_i_json_text(json, "ph", "M");
    weft_i_json_integer(json, "pid", rank);
    weft_i_json_open(json, "args", '{');
}

static void close_metadata(weft_i_json *json)
{
    weft_i_json_close(json);
    weft_i_json_close(json);
}

static void write_metadata(weft_i_json *json, int rank)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d", rank);
    open_metadata(json, "process_name", rank);
    weft_i_json_text(json, "name", name);
    close_metadata(json);
    open_metadata(json, "process_sort_index", rank);
    weft_i_json_integer(json, "sort_index", rank);
    close_metadata(json);
}

/* Operations that are not in the trace any more: the record keeps the last ones. */
static uint64_t dropped(const weft_i_record *record)
{
    /* Relaxed: a count; its owner may go on counting. */
    uint64_t begun = atomic_load_explicit(&record->head, memory_order_relaxed);
    return begun > WEFT_I_RECORD_ENTRIES ? begun - WEFT_I_RECORD_ENTRIES : 0;
}

static weft_status write_all(const weft_i_record_trace *trace, const weft_i_record_entry *entries,
                             size_t count, int fd)
{
    weft_i_json json;
    int64_t free_from[LANES] = {0};
    weft_i_record_clock clock = weft_i_record_clock_of(trace->record);
    weft_i_json_begin(&json, fd, 2); /* an event a line */
    weft_i_json_open(&json, NULL, '{');
    weft_i_json_text(&json, "displayTimeUnit", "ns");
    weft_i_json_open(&json, "otherData", '{');
    weft_i_clock_note_write(&json, &trace->record->clock);
    weft_i_json_integer(&json, "rank", trace->rank);
    weft_i_json_integer(&json, "dropped", (int64_t)dropped(trace->record));
    weft_i_json_close(&json);
    weft_i_json_open(&json, "traceEvents", '[');
    write_metadata(&json, trace->rank);
    for (size_t i = 0; i < count; i++)
        write_entry(&json, trace, &clock, free_from, &entries[i]);
    weft_i_json_close(&json);
    weft_i_json_close(&json);
    return weft_i_json_finish(&json);
}

weft_status weft_i_record_write_trace(const weft_i_record *record, int rank, const char *path)
{
    return weft_i_record_trace_write(&(weft_i_record_trace){.record = record, .rank = rank}, path);
}

weft_status weft_i_record_trace_write(const weft_i_record_trace *trace, const char *path)
{
    char expanded[1024];
    int rank = trace->rank;
    if (!path_of(path, rank, trace->process, expanded, sizeof expanded))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "trace: the path \"%s\" is too long", path);
    weft_i_record_entry *entries = WEFT_OS->alloc(WEFT_I_RECORD_ENTRIES * sizeof *entries);
    if (!entries)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "trace: no memory for the entries of rank %d", rank);
    size_t count = weft_i_record_newest(trace->record, entries, WEFT_I_RECORD_ENTRIES);
    sort(entries, count);
    int fd = -1;
    weft_status status = weft_i_file_open(expanded, false, 0644, &fd);
    if (status < 0) {
        weft_i_explain(status, "trace");
    } else {
        status = write_all(trace, entries, count, fd);
        WEFT_OS->close(fd);
        if (status < 0)
            weft_i_explain(status, "trace: %s", expanded);
    }
    WEFT_OS->free(entries);
    if (status >= 0 && dropped(trace->record))
        weft_i_log(WEFT_LOG_WARN,
                   "%s has the last %d operations of rank %d; %llu before them are lost", expanded,
                   WEFT_I_RECORD_ENTRIES, rank, (unsigned long long)dropped(trace->record));
    return status;
}

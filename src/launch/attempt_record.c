/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of an attempt are doing, or did last: told, and written as traces. */
#include "base/report/status.h"
#include "base/report/text.h"
#include "launch/attempt.h"
#include "launch/fleet.h"

#include <string.h>

static const char *state_of(const weft_i_attempt *attempt, int rank)
{
    return attempt->endings[rank].order      ? "has ended"
           : attempt->children[rank].process ? "is running"
                                             : "was not started yet";
}

/* Of the first ranks with what they do last; of the rest how many are in which state: nobody reads a
 * thousand lines, and the time is up. */
void weft_i_attempt_tell_states(weft_i_attempt *attempt)
{
    enum { TOLD = 64 };
    int ranks = attempt->opts->ranks, first = attempt->place.first, ended = 0, running = 0;
    if (attempt->fleet) {
        weft_i_fleet_ask_states(attempt->fleet);
        return;
    }
    for (int rank = 0; rank < ranks && rank < TOLD; rank++) {
        weft_i_lines_say(&attempt->lines, "weft: rank %d %s", first + rank,
                         state_of(attempt, rank));
        weft_i_attempt_tell_record(attempt, rank, NULL, 1);
    }
    for (int rank = TOLD; rank < ranks; rank++) {
        ended += attempt->endings[rank].order != 0;
        running += !attempt->endings[rank].order && attempt->children[rank].process;
    }
    if (ranks > TOLD)
        weft_i_lines_say(
            &attempt->lines,
            "weft: of ranks %d-%d %d have ended, %d are running, %d were not started yet",
            first + TOLD, first + ranks - 1, ended, running, ranks - TOLD - ended - running);
}

/* Moves the `count` entries to be told to the front; how many there are.  The rank is in those that
 * have not finished, so they come before finished parts of theirs, which are newer. */
static size_t choose_entries(weft_i_record_entry *entries, size_t found, size_t count)
{
    size_t kept = 0, open = 0;
    for (size_t i = 0; i < found; i++)
        open += !entries[i].finished;
    size_t finished = open < count ? count - open : 0;
    for (size_t i = 0; i < found && kept < count; i++) {
        if (weft_i_record_is_step(&entries[i]) || (entries[i].finished && !finished))
            continue;
        finished -= entries[i].finished;
        entries[kept++] = entries[i];
    }
    return kept;
}

bool weft_i_attempt_record_text(weft_i_attempt *attempt, int rank, size_t count, char *out,
                                size_t bytes)
{
    enum { LOOKED_AT = 24 };
    weft_i_record_entry entries[LOOKED_AT];
    weft_i_text text = {out, bytes, 0};
    char line[256];
    const weft_i_record *record = &weft_i_job_rank(weft_i_job_of(attempt->job), rank)->record;
    size_t kept = choose_entries(entries, weft_i_record_newest(record, entries, LOOKED_AT), count);
    *out = 0;
    while (kept--) /* oldest first, as they happened */
        weft_i_text_put(&text, "weft:   | %s\n",
                        weft_i_record_text(record, &entries[kept], line, sizeof line));
    return *out;
}

bool weft_i_attempt_tell_record(weft_i_attempt *attempt, int rank, const char *title, size_t count)
{
    char text[4096], *state = NULL;
    bool any = attempt->fleet ? weft_i_fleet_record_text(attempt->fleet, rank, text, sizeof text)
                              : weft_i_attempt_record_text(attempt, rank, count, text, sizeof text);
    if (any && title)
        weft_i_lines_say(&attempt->lines, "%s", title);
    for (char *line = strtok_r(text, "\n", &state); any && line;
         line = strtok_r(NULL, "\n", &state))
        weft_i_lines_say(&attempt->lines, "%s", line);
    return any;
}

/* The ranks' own setting, which may be given to them alone. */
static const char *trace_path(const weft_i_attempt *attempt)
{
    const char *path = "";
    for (char *const *entry = attempt->env.list; *entry; entry++)
        if (!strncmp(*entry, "WEFT_TRACE=", 11))
            path = *entry + 11;
    return path;
}

void weft_i_attempt_write_traces(weft_i_attempt *attempt)
{
    if (attempt->fleet) /* each host has written those of its ranks */
        return;
    const char *path = trace_path(attempt);
    for (int rank = 0; *path && rank < attempt->opts->ranks; rank++) {
        const weft_i_rank_record *record = weft_i_job_rank(weft_i_job_of(attempt->job), rank);
        weft_i_errors before;
        if (!attempt->endings[rank].deserted)
            continue;
        weft_i_errors_save(&before);
        if (weft_i_job_write_trace(record, attempt->place.first + rank, path) < 0)
            weft_i_lines_say(&attempt->lines, "weft: no trace of rank %d: %s", rank,
                             weft_last_error());
        weft_i_errors_restore(&before);
    }
}

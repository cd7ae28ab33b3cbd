/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft trace merge`: puts the Chrome traces of several ranks into one file, on one clock.  Events
 * are copied as they are; only the time stamps of other hosts are moved (trace_clock.c).  Reads any Chrome trace: an object with traceEvents, or a bare
 * array of events.
 */
#include "trace.h"
#include "command.h"
#include "json.h"

#include <weft/weft.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a file and finds its events; 0 and a message if it is no trace. */
static int open_trace(trace *t, const char *path)
{
    t->path = path;
    t->text = json_read_file(path, &t->bytes);
    if (!t->text) {
        fprintf(stderr, "weft trace: %s: %s\n", path, strerror(errno));
        return 0;
    }
    json_cursor whole, events;
    int valid = json_value((json_cursor){t->text, t->text + t->bytes}, &whole);
    events = whole;
    if (valid && *whole.at == '{') {
        valid = json_member(whole, "traceEvents", &events) == 1;
        trace_read_clock(t, whole);
    }
    valid = valid && json_enter(&events, '[');
    if (!valid)
        fprintf(stderr, "weft trace: %s is not a Chrome trace\n", path);
    t->events = events;
    return valid;
}

/* Microseconds with decimals as ns; exact where a double would not be. */
int64_t trace_ns(json_cursor value)
{
    int negative = value.at < value.end && *value.at == '-', decimals = -1;
    int64_t ns = 0;
    for (const char *p = value.at + negative; p < value.end && decimals < 3; p++) {
        if (*p == '.' && decimals < 0)
            decimals = 0;
        else if (*p >= '0' && *p <= '9' && ns < INT64_MAX / 100000) {
            ns = ns * 10 + (*p - '0');
            decimals += decimals >= 0;
        } else
            break;
    }
    for (decimals = decimals < 0 ? 0 : decimals; decimals < 3; decimals++)
        ns *= 10;
    return negative ? -ns : ns;
}

static void write_moved(FILE *out, json_cursor event, json_cursor stamp, int64_t ns)
{
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    fwrite(event.at, 1, (size_t)(stamp.at - event.at), out);
    fprintf(out, "%s%" PRIu64 ".%03u", ns < 0 ? "-" : "", size / 1000, (unsigned)(size % 1000));
    fwrite(stamp.end, 1, (size_t)(event.end - stamp.end), out);
}

/* Copies the events of one trace; how many there were before it in `count`. */
static void write_events(FILE *out, const trace *t, size_t *count)
{
    json_cursor events = t->events, event, none, stamp;
    while (json_next(&events, &none, &event)) {
        fputs((*count)++ ? ",\n" : "\n", out);
        if (t->moves && json_member(event, "ts", &stamp) == 1 && *stamp.at != '"')
            write_moved(out, event, stamp, trace_moved(t, trace_ns(stamp)));
        else
            fwrite(event.at, 1, (size_t)(event.end - event.at), out);
    }
}

static int write_merged(const char *path, const trace *traces, int count)
{
    size_t events = 0;
    FILE *out = path ? fopen(path, "wb") : stdout;
    if (!out) {
        fprintf(stderr, "weft trace: %s: %s\n", path, strerror(errno));
        return 1;
    }
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", out);
    for (int i = 0; i < count; i++)
        write_events(out, &traces[i], &events);
    fputs("\n]}\n", out);
    int failed = ferror(out) | (path ? fclose(out) : fflush(out));
    if (failed)
        fprintf(stderr, "weft trace: writing %s: %s\n", path ? path : "standard output",
                strerror(errno));
    return failed != 0;
}

/* Opens all, on one clock, and hands them to `use`. */
static int with_traces(char **paths, int count, int (*use)(const char *, const trace *, int),
                       const char *output)
{
    trace *traces = calloc((size_t)count, sizeof *traces);
    int failed = !traces;
    for (int i = 0; i < count && !failed; i++)
        failed = !open_trace(&traces[i], paths[i]);
    if (!failed) {
        trace_align(traces, count);
        failed = use(output, traces, count);
    }
    for (int i = 0; traces && i < count; i++)
        free(traces[i].text);
    free(traces);
    return failed;
}

static const char *what_word(int index, const char **text)
{
    static const char *const names[] = {"merge", "summary", "overlap", "html"};
    static const char *const texts[] = {
        "puts the traces into one, to standard output or FILE",
        "prints, for every operation, calls, bytes, total time, median, 99th percentile and the "
        "longest call, and for whom the longest calls waited",
        "prints how much of what each rank posted ran beside its operations on tensors: of traces "
        "of "
        "WEFT_TRACE and of profiles (weft_profile_opts.trace)",
        "writes FILE, a page with a time line for each rank and arrows to ranks that waited; it "
        "needs "
        "nothing but a browser"};
    *text = index < 4 ? texts[index] : NULL;
    return index < 4 ? names[index] : NULL;
}

static int set_output(void *into, const char *text, long number)
{
    (void)number;
    *(const char **)into = text;
    return *text != 0;
}

static const command_option options[] = {
    {'o', "output", "FILE", 0, 0, "the name of a file", "with merge and html: write there", 0,
     set_output},
    {0},
};

static int do_what(char **words, const char *output)
{
    static int (*const does[])(const char *, const trace *, int) = {write_merged, trace_summarize,
                                                                    trace_overlap, trace_page};
    const char *name, *text;
    int count = 0, what = 0;
    while ((name = what_word(what, &text)) && words[0] && strcmp(words[0], name) != 0)
        what++;
    if (!words[0] || !name)
        return command_wrong(&weft_command_trace, "what first: merge, summary, overlap or html?");
    if ((does[what] == trace_summarize || does[what] == trace_overlap) && output)
        return command_wrong(&weft_command_trace, "-o is for merge and html; the others print");
    if (does[what] == trace_page && !output)
        return command_wrong(&weft_command_trace, "html needs -o FILE");
    while (words[1 + count])
        count++;
    if (!count)
        return command_wrong(&weft_command_trace,
                             "which traces?  WEFT_TRACE makes ranks write them");
    return with_traces(words + 1, count, does[what], output);
}

static int run(int argc, char **argv)
{
    const char *output = NULL;
    char **words = calloc((size_t)argc + 1, sizeof *words);
    int status = words ? command_read(&weft_command_trace, argc, argv, &output, words, NULL) : 1;
    if (status == COMMAND_GOES_ON)
        status = do_what(words, output);
    free(words);
    return status;
}

const subcommand weft_command_trace = {
    .name = "trace",
    .text = "merges the traces of ranks, sums them up, or draws them: weft trace html -o page.html "
            "*.json",
    .usage = "merge [-o FILE] trace.json...\nsummary trace.json...\noverlap trace.json...\nhtml -o "
             "FILE trace.json...",
    .about =
        "Takes the Chrome traces of several ranks (WEFT_TRACE), which Perfetto and "
        "chrome://tracing open.  Ranks of one host share its monotonic clock; those of other "
        "hosts are moved to the clock of the first file: the ranks of a job on several hosts "
        "compare "
        "their clocks with each other, and the traces say how they stood.  Where they do not, the "
        "wall clocks of the hosts have to do.",
    .options = options,
    .word = what_word,
    .words = "What it does",
    .run = run,
};

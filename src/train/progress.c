/* SPDX-License-Identifier: Apache-2.0 */
/* A line about a training run, on a terminal and elsewhere, and a file of its steps. */
#include "weft/progress.h"

#include "base/os/file.h"
#include "base/os/os.h"
#include "base/report/file_open.h"
#include "base/report/opts.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "tensor/object/scope.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { LINE = 256, BAR = 24, TERMINAL_MS = 100, ELSEWHERE_MS = 10000 };

struct weft_progress {
    weft_i_object head;
    weft_progress_opts opts;
    FILE *file; /* borrowed; NULL: nothing is printed */
    bool terminal;
    int csv; /* -1: none */
    int64_t steps, step;
    double loss;
    int64_t last_ns;  /* when the last step was over; 0: none counts */
    double step_ns;   /* of a step, averaged: recent ones count more */
    int64_t timed;    /* steps in that */
    int64_t shown_ns; /* when a line was printed; 0: never */
    bool any, ended;
    bool dirty;   /* the line on the terminal is not ended */
    size_t width; /* of what stands there */
};

static void destroy(weft_i_object *object)
{
    weft_progress *p = (weft_progress *)object;
    if (p->csv >= 0)
        WEFT_OS->close(p->csv);
    weft_i_object_free(object);
}

/* ---- making ---- */

static weft_status open_csv(weft_progress *p)
{
    static const char head[] = "step,loss,seconds,tokens_per_second\n";
    struct stat about;
    WEFT_TRY(weft_i_file_open(p->opts.csv, true, 0644, &p->csv));
    if (WEFT_OS->fstat(p->csv, &about))
        return weft_i_fail_errno(errno, "looking at %s", p->opts.csv);
    if (!about.st_size && !weft_i_file_write_all(p->csv, head, sizeof head - 1))
        return weft_i_fail_errno(errno, "writing %s", p->opts.csv);
    return WEFT_OK;
}

static weft_status prepare(weft_progress *p, FILE *file, int64_t steps,
                           const weft_progress_opts *given)
{
    weft_progress_opts opts = WEFT_PROGRESS_OPTS_INIT;
    p->csv = -1;
    WEFT_TRY(weft_i_opts_copy(&opts, sizeof opts, given, "weft_progress_new"));
    if (steps < 1 || !(opts.tokens >= 0) || !(opts.flops >= 0) || !(opts.peak >= 0) ||
        opts.interval_ms < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_progress_new: %lld steps of %g tokens and %g operations, of %g a "
                           "second, a line in %lld ms",
                           (long long)steps, opts.tokens, opts.flops, opts.peak,
                           (long long)opts.interval_ms);
    p->opts = opts;
    p->file = file;
    p->steps = steps;
    p->terminal = file && weft_i_os_is_terminal(fileno(file));
    if (!p->opts.interval_ms)
        p->opts.interval_ms = p->terminal ? TERMINAL_MS : ELSEWHERE_MS;
    weft_status status = opts.csv ? open_csv(p) : WEFT_OK;
    p->opts.csv = NULL; /* the caller's; it is open now */
    return status;
}

weft_progress *weft_progress_new(FILE *file, int64_t steps, const weft_progress_opts *opts)
{
    weft_progress *p = weft_i_object_new(WEFT_I_PROGRESS, sizeof *p, destroy);
    if (!p)
        return NULL;
    if (prepare(p, file, steps, opts) >= 0)
        return p;
    weft_release(p);
    return NULL;
}

static weft_status check(const char *what, const weft_progress *p)
{
    if (!p)
        return weft_i_missing("%s: the progress is NULL", what);
    return p->head.kind == WEFT_I_PROGRESS
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_TYPE, "%s: this is no progress, or one that was released",
                             what);
}

/* ---- text ---- */

/* 51234 -> "51.2k": three digits. */
static void put_rate(weft_i_text *t, double rate, const char *unit)
{
    static const char sizes[] = " kMGTPE";
    int size = 0;
    while (rate >= 999.5 && size < 6) {
        rate /= 1000;
        size++;
    }
    weft_i_text_put(t, "  %.*f", rate < 9.995 ? 2 : rate < 99.95 ? 1 : 0, rate);
    if (size)
        weft_i_text_put(t, "%c", sizes[size]);
    weft_i_text_put(t, " %s/s", unit);
}

static void put_time(weft_i_text *t, double seconds)
{
    long long s = seconds < 1e12 ? (long long)(seconds + 0.5) : 0;
    if (s >= 3600)
        weft_i_text_put(t, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        weft_i_text_put(t, "%lld:%02lld", s / 60, s % 60);
}

static void put_line(const weft_progress *p, weft_i_text *t)
{
    char steps[24];
    int digits = snprintf(steps, sizeof steps, "%lld", (long long)p->steps);
    weft_i_text_put(t, "step %*lld/%s", digits, p->any ? (long long)p->step + 1 : 0LL, steps);
    if (p->any)
        weft_i_text_put(t, "  loss %.4f", p->loss);
    if (!p->timed)
        return;
    double seconds = p->step_ns / 1e9;
    if (seconds <= 0)
        return;
    put_rate(t, (p->opts.tokens > 0 ? p->opts.tokens : 1) / seconds,
             p->opts.tokens > 0 ? "tokens" : "steps");
    if (p->opts.flops > 0 && p->opts.peak > 0)
        weft_i_text_put(t, "  MFU %.1f%%", 100 * p->opts.flops / seconds / p->opts.peak);
    if (p->step + 1 < p->steps) {
        weft_i_text_put(t, "  left ");
        put_time(t, seconds * (double)(p->steps - p->step - 1));
    }
}

const char *weft_progress_text(const weft_progress *progress, char *out, size_t bytes)
{
    if (!out || !bytes)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_progress_text: no room");
    out[0] = 0;
    weft_i_text t = {out, bytes, 0};
    if (check("weft_progress_text", progress) >= 0)
        put_line(progress, &t);
    return out;
}

/* ---- printing ---- */

static weft_status refuse(const weft_progress *p)
{
    (void)p;
    return weft_i_fail_errno(errno ? errno : EIO, "printing the progress");
}

static void put_bar(const weft_progress *p, weft_i_text *t)
{
    double part = p->any ? (double)(p->step + 1) / (double)p->steps : 0;
    int full = (int)(part * BAR);
    full = full > BAR ? BAR : full;
    weft_i_text_put(t, "[");
    for (int i = 0; i < BAR; i++)
        weft_i_text_put(t, "%c", i < full ? '=' : i == full ? '>' : ' ');
    weft_i_text_put(t, "] ");
}

/* On a terminal over the line before, of which nothing stays. */
static weft_status show(weft_progress *p, int64_t now)
{
    char line[LINE];
    weft_i_text t = {line, sizeof line, 0};
    if (p->terminal)
        put_bar(p, &t);
    put_line(p, &t);
    size_t width = strlen(line), blanks = p->width > width ? p->width - width : 0;
    errno = 0;
    if (p->terminal)
        fprintf(p->file, "\r%s%*s", line, (int)blanks, "");
    else
        fprintf(p->file, "%s\n", line);
    p->width = width;
    p->dirty = p->terminal;
    p->shown_ns = now;
    return fflush(p->file) ? refuse(p) : WEFT_OK;
}

static weft_status note(weft_progress *p, int64_t step, double loss, double ns)
{
    char line[LINE];
    double rate = ns > 0 ? p->opts.tokens * 1e9 / ns : 0;
    int n =
        snprintf(line, sizeof line, "%lld,%.9g,%.6f,%.1f\n", (long long)step, loss, ns / 1e9, rate);
    if (!weft_i_file_write_all(p->csv, line, (size_t)n))
        return weft_i_fail_errno(errno, "weft_progress_step: writing the steps");
    return WEFT_OK;
}

/* The mean of the first steps; then the last twenty count most. */
static void time_step(weft_progress *p, double ns)
{
    p->timed++;
    double share = p->timed < 20 ? 1.0 / (double)p->timed : 0.05;
    p->step_ns += share * (ns - p->step_ns);
}

weft_status weft_progress_step(weft_progress *progress, int64_t step, double loss)
{
    WEFT_TRY(check("weft_progress_step", progress));
    weft_progress *p = progress;
    if (step < 0 || step == INT64_MAX || p->ended)
        return weft_i_fail(p->ended ? WEFT_ERR_STATE : WEFT_ERR_INVALID_ARG,
                           "weft_progress_step: step %lld%s", (long long)step,
                           p->ended ? " after the end" : "");
    int64_t now = WEFT_OS->clock_ns();
    double ns = p->last_ns ? (double)(now - p->last_ns) : 0;
    bool first = !p->any, due = now - p->shown_ns >= p->opts.interval_ms * 1000000;
    if (p->last_ns)
        time_step(p, ns);
    p->last_ns = now;
    p->step = step;
    p->loss = loss;
    p->any = true;
    weft_status status = p->csv >= 0 ? note(p, step, loss, ns) : WEFT_OK;
    if (p->file && (first || due)) {
        weft_status shown = show(p, now);
        status = status < 0 ? status : shown;
    }
    return status;
}

weft_status weft_progress_pause(weft_progress *progress)
{
    WEFT_TRY(check("weft_progress_pause", progress));
    progress->last_ns = 0;
    return WEFT_OK;
}

weft_status weft_progress_end(weft_progress *progress)
{
    WEFT_TRY(check("weft_progress_end", progress));
    weft_progress *p = progress;
    if (p->ended)
        return WEFT_OK;
    p->ended = true;
    weft_status status = WEFT_OK;
    if (p->file && p->any)
        status = show(p, WEFT_OS->clock_ns());
    if (p->dirty && status >= 0) {
        fprintf(p->file, "\n");
        status = fflush(p->file) ? refuse(p) : WEFT_OK;
    }
    if (p->csv >= 0) {
        if (WEFT_OS->close(p->csv) && status >= 0)
            status = weft_i_fail_errno(errno, "weft_progress_end: closing the file of steps");
        p->csv = -1;
    }
    return status;
}

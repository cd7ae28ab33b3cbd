/* SPDX-License-Identifier: Apache-2.0 */
/* How `weft top` draws a job on a terminal, or as plain text. */
#include "top.h"

#include <stdlib.h>
#include <string.h>

#define BOLD  "\033[1m"
#define TURNS "\033[7m"
#define RED   "\033[31m"
#define FAINT "\033[2m"
#define PLAIN "\033[0m"

enum { HEAD = 4, FOOT = 2, LINE = 512 };

/* ---- pieces of text ---- */

void top_bytes(double bytes, char *out, size_t room)
{
    static const char units[] = " kMGTP";
    int unit = 0;
    for (; bytes >= 999.5 && unit < 5; unit++)
        bytes /= 1000;
    if (unit)
        snprintf(out, room, "%.*f %cB", bytes < 10, bytes, units[unit]);
    else
        snprintf(out, room, "%.0f B", bytes);
}

void top_operation(const weft_job_op *op, char *out, size_t room)
{
    if (!*op->name) {
        snprintf(out, room, "-");
        return;
    }
    char with[32] = "";
    if (op->peer >= 0)
        snprintf(with, sizeof with, " with %d", op->peer);
    snprintf(out, room, "%s #%llu%s%s%s", op->name,
             (unsigned long long)(op->turn ? op->turn : op->number), with,
             strcmp(op->group, "0") ? " of " : "", strcmp(op->group, "0") ? op->group : "");
}

/* "2, 3 and 4 more for 1.2 s" */
static void wait_text(const top_rank *rank, char *out, size_t room)
{
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < rank->waits && i < 3; i++)
        used +=
            (size_t)snprintf(out + used, room - used, "%s%d", i ? ", " : "", rank->waits_for[i]);
    if (rank->waits > 3)
        used += (size_t)snprintf(out + used, room - used, " and %d more", rank->waits - 3);
    if (rank->waits)
        snprintf(out + used, room - used, " for %.1f s", (double)top_wait_ns(rank) * 1e-9);
    else
        snprintf(out, room, "-");
}

const char *top_order_name(top_order order)
{
    static const char *const names[] = {"rank",    "time waited",   "bytes/s",
                                        "calls/s", "share of time", "memory"};
    return names[order];
}

/* ---- order ---- */

static double weight(const top_rank *rank, top_order order)
{
    switch (order) {
    case TOP_BY_WAIT:
        return (double)top_wait_ns(rank);
    case TOP_BY_BYTES:
        return rank->bytes;
    case TOP_BY_CALLS:
        return rank->calls;
    case TOP_BY_SHARE:
        return rank->share;
    case TOP_BY_MEMORY:
        return (double)rank->resident;
    default:
        return -rank->is.rank;
    }
}

/* The heaviest first; among equals the order stays. */
void top_sort(const top_job *job, top_order order, int *places)
{
    for (int i = 0; i < job->info.ranks; i++) {
        int at = i;
        double mine = weight(&job->rank[i], order);
        for (; at > 0 && weight(&job->rank[places[at - 1]], order) < mine; at--)
            places[at] = places[at - 1];
        places[at] = i;
    }
}

/* ---- lines ---- */

/* A line, cut at the width of the terminal; letters of UTF-8 do not occur. */
static void put_line(FILE *out, const top_view *view, const char *style, const char *text)
{
    int width = (int)strlen(text);
    if (view->escapes && width > view->columns)
        width = view->columns;
    if (view->escapes)
        fprintf(out, "%s%.*s" PLAIN "\033[K\n", style, width, text);
    else
        fprintf(out, "%.*s\n", width, text);
}

static void put_head(FILE *out, const top_job *job, const top_view *view)
{
    char line[LINE], rate[24];
    double bytes = 0, share = 0;
    int waiting = 0, alive = 0;
    for (int i = 0; i < job->info.ranks; i++) {
        const top_rank *rank = &job->rank[i];
        bytes += rank->bytes;
        share += rank->share;
        waiting += rank->waits > 0;
        alive += rank->is.state == WEFT_JOB_ALIVE;
    }
    top_bytes(bytes, rate, sizeof rate);
    snprintf(line, sizeof line, "weft top: %s, job of process %d on %s, %d %s%s",
             *job->info.program ? job->info.program : "?", job->info.process, job->host,
             job->info.ranks, job->info.threads ? "thread rank" : "rank",
             job->info.ranks == 1 ? "" : "s");
    put_line(out, view, BOLD, line);
    snprintf(line, sizeof line, "%d alive, %d waiting; %s/s; %.0f %% of the time in communication",
             alive, waiting, rate, 100 * share / (job->info.ranks ? job->info.ranks : 1));
    put_line(out, view, "", line);
    put_line(out, view, "", "");
    put_line(out, view, TURNS,
             " rank  process state   in comm  calls/s  bytes/s   memory waits for          now");
}

static void put_rank(FILE *out, const top_view *view, const top_rank *rank)
{
    char line[LINE], rate[24], memory[24], now[80], waits[64];
    top_bytes(rank->bytes, rate, sizeof rate);
    top_bytes((double)rank->resident, memory, sizeof memory);
    top_operation(&rank->is.now, now, sizeof now);
    wait_text(rank, waits, sizeof waits);
    snprintf(line, sizeof line, "%c%4d %8d %-7s %5.0f %% %8.0f %8s %8s %-18s %s",
             view->selected == rank->is.rank && view->escapes ? '>' : ' ', rank->is.rank,
             rank->is.process, weft_job_state_name(rank->is.state), 100 * rank->share, rank->calls,
             rate, memory, waits, now);
    int wrong = rank->is.state == WEFT_JOB_DEAD || rank->is.state == WEFT_JOB_FAILED ||
                rank->is.state == WEFT_JOB_STOPPED || rank->is.state == WEFT_JOB_SILENT;
    put_line(out, view, wrong ? RED : rank->is.state == WEFT_JOB_LEFT ? FAINT : "", line);
}

static const top_rank *selected(const top_job *job, const top_view *view)
{
    for (int i = 0; i < job->info.ranks; i++)
        if (job->rank[i].is.rank == view->selected)
            return &job->rank[i];
    return &job->rank[0];
}

static void put_op(FILE *out, const top_view *view, const char *what, const weft_job_op *op)
{
    char line[LINE], text[100], bytes[24];
    top_operation(op, text, sizeof text);
    top_bytes((double)op->bytes, bytes, sizeof bytes);
    if (*op->name)
        snprintf(line, sizeof line, "%-10s %s, %s, begun %.1f s ago%s%s%s", what, text, bytes,
                 (double)op->begun_ns * 1e-9, *op->part_of ? ", part of " : "", op->part_of,
                 op->on_device ? ", on its device" : "");
    else
        snprintf(line, sizeof line, "%-10s -", what);
    put_line(out, view, "", line);
}

/* Everything about one rank, and why it waits: what those do that it waits for. */
static void put_alone(FILE *out, const top_job *job, const top_view *view)
{
    const top_rank *rank = selected(job, view);
    char line[LINE], waits[64];
    snprintf(line, sizeof line, "rank %d, process %d, %s, last sign of life %.1f s ago",
             rank->is.rank, rank->is.process, weft_job_state_name(rank->is.state),
             (double)rank->is.silent_ns * 1e-9);
    put_line(out, view, "", "");
    put_line(out, view, BOLD, line);
    put_op(out, view, "now", &rank->is.now);
    put_op(out, view, "before", &rank->is.last);
    wait_text(rank, waits, sizeof waits);
    snprintf(line, sizeof line, "waits for  %s", waits);
    put_line(out, view, "", line);
    for (int i = 0; i < rank->waits && i < 8; i++)
        for (int k = 0; k < job->info.ranks; k++)
            if (job->rank[k].is.rank == rank->waits_for[i]) {
                snprintf(line, sizeof line, "  rank %d is %s", rank->waits_for[i],
                         weft_job_state_name(job->rank[k].is.state));
                put_line(out, view, "", line);
                put_op(out, view, "    now", &job->rank[k].is.now);
                put_op(out, view, "    before", &job->rank[k].is.last);
            }
}

void top_draw(FILE *out, const top_job *job, const top_view *view)
{
    int *places = calloc((size_t)job->info.ranks + 1, sizeof *places);
    if (!places)
        return;
    if (view->escapes)
        fputs("\033[H", out);
    put_head(out, job, view);
    top_sort(job, view->order, places);
    int room = view->escapes && !view->alone ? view->rows - HEAD - FOOT : job->info.ranks;
    for (int i = 0; i < job->info.ranks && i < room; i++)
        if (!view->alone || job->rank[places[i]].is.rank == view->selected)
            put_rank(out, view, &job->rank[places[i]]);
    if (view->alone)
        put_alone(out, job, view);
    free(places);
    if (!view->escapes)
        return;
    char line[LINE];
    snprintf(line, sizeof line,
             "by %s.  s: other order  j k: choose  Enter: one rank or all  q: end",
             top_order_name(view->order));
    fputs("\033[K\n", out);
    put_line(out, view, FAINT, line);
    fputs("\033[J", out);
}

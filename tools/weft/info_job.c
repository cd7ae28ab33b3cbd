/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft info --job`: the running jobs of this user, one a line; or, of the job that was named, what
 * each rank is doing and, where some wait, which ranks have not come.  Everything is read once, by
 * weft_job_list or weft_job_open, so that the sentences fit the table above them.
 */
#include "info_job.h"
#include "json.h"

#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOBS = 256, NAMES = 96 };

/* ---- pieces of text ---- */

static const char *seconds(int64_t ns, char out[24])
{
    snprintf(out, 24, "%.1f s", (double)ns * 1e-9);
    return out;
}

/* "all_reduce #17 of group "0"", or "recv #3, with rank 1 of group "0"". */
static const char *op_text(const weft_job_op *op, char *out, size_t bytes)
{
    int n = snprintf(out, bytes, "%s #%llu", op->name,
                     (unsigned long long)(op->turn ? op->turn : op->number));
    if (op->peer >= 0)
        n += snprintf(out + n, bytes - (size_t)n, ", with rank %d", op->peer);
    n += snprintf(out + n, bytes - (size_t)n, " of group \"%s\"", *op->group ? op->group : "?");
    if (op->on_device)
        n += snprintf(out + n, bytes - (size_t)n, " on its device");
    if (op->channel >= 0)
        n += snprintf(out + n, bytes - (size_t)n, ", channel %d", op->channel);
    if (*op->part_of)
        snprintf(out + n, bytes - (size_t)n, " (part of %s)", op->part_of);
    return out;
}

/* "rank 2", "ranks 0, 1 and 3"; cut after NAMES ranks. */
static void print_ranks(const weft_job *job, const int *index, int count)
{
    weft_job_rank rank;
    printf(count == 1 ? "rank" : "ranks");
    for (int i = 0; i < count && i < NAMES; i++) {
        if (weft_job_describe_rank(job, index[i], &rank) < 0)
            return;
        printf("%s %d", i == 0 ? "" : i + 1 < count ? "," : " and", rank.rank);
    }
    if (count > NAMES)
        printf(" and %d more", count - NAMES);
}

/* ---- one job as text ---- */

static void print_rank(const weft_job_rank *rank)
{
    char now[160] = "-", last[160] = "-", since[24] = "-", process[16] = "-";
    if (rank->process)
        snprintf(process, sizeof process, "%d", rank->process);
    if (*rank->now.name) {
        op_text(&rank->now, now, sizeof now);
        seconds(rank->now.begun_ns, since);
    }
    if (*rank->last.name)
        op_text(&rank->last, last, sizeof last);
    printf("%5d %9s  %-8s %-38s %10s %10llu  %s", rank->rank, process,
           weft_job_state_name(rank->state), now, since, (unsigned long long)rank->now.bytes, last);
    if (*rank->last.name && rank->last.status < 0)
        printf(", %s", weft_status_name((weft_status)rank->last.status));
    putchar('\n');
}

static int same_op(const weft_job_op *a, const weft_job_op *b)
{
    return !strcmp(a->name, b->name) && !strcmp(a->group, b->group) && a->turn == b->turn &&
           a->on_device == b->on_device && a->channel == b->channel && a->peer == b->peer &&
           (a->turn || a->peer < 0);
}

/* The ranks in the same operation as rank `index`, which is the first of them; 0 if it is not. */
static int companions(const weft_job *job, int index, int ranks, const weft_job_op *op,
                      int out[NAMES])
{
    int count = 0;
    weft_job_rank other;
    for (int i = 0; i < ranks; i++) {
        if (weft_job_describe_rank(job, i, &other) < 0 || (i != index && !same_op(&other.now, op)))
            continue;
        if (i < index)
            return 0;
        if (count < NAMES)
            out[count] = i;
        count++;
    }
    return count;
}

/* "is stopped, and in no operation; the last was ..., begun 3.0 s ago" */
static void print_whereabouts(const weft_job_rank *rank)
{
    char text[160], ago[24];
    printf("  rank %d ", rank->rank);
    if (rank->state == WEFT_JOB_AWAITED) {
        printf("has not finished weft_init\n");
        return;
    }
    printf("(process %d) is %s", rank->process, weft_job_state_name(rank->state));
    if (rank->state == WEFT_JOB_STOPPED || rank->state == WEFT_JOB_SILENT)
        printf(" for %s", seconds(rank->silent_ns, ago));
    if (*rank->now.name)
        printf(", in %s since %s", op_text(&rank->now, text, sizeof text),
               seconds(rank->now.begun_ns, ago));
    else if (*rank->last.name)
        printf(", in no operation; its last was %s, begun %s ago",
               op_text(&rank->last, text, sizeof text), seconds(rank->last.begun_ns, ago));
    else
        printf(", and has begun no operation");
    putchar('\n');
}

static void print_missing(const weft_job *job, const weft_job_rank *rank, const int *waiting,
                          int waiting_count, const int *missing, int count)
{
    char text[160], since[24];
    weft_job_rank other;
    putchar('\n');
    if (rank->now.peer >= 0) {
        print_ranks(job, waiting, waiting_count);
        printf(" has been in %s since %s", op_text(&rank->now, text, sizeof text),
               seconds(rank->now.begun_ns, since));
    } else {
        print_ranks(job, missing, count);
        printf(" %s not entered %s, where ", count == 1 ? "has" : "have",
               op_text(&rank->now, text, sizeof text));
        print_ranks(job, waiting, waiting_count);
        printf(" wait%s since %s", waiting_count == 1 ? "s" : "",
               seconds(rank->now.begun_ns, since));
    }
    putchar('\n');
    for (int i = 0; i < count && i < NAMES; i++)
        if (weft_job_describe_rank(job, missing[i], &other) == WEFT_OK)
            print_whereabouts(&other);
}

/* Once for each operation in which somebody waits. */
static void print_waits(const weft_job *job, int ranks)
{
    weft_job_rank rank;
    int waiting[NAMES], missing[NAMES];
    for (int i = 0; i < ranks; i++) {
        int count = weft_job_missing(job, i, missing, NAMES);
        if (count < 1 || weft_job_describe_rank(job, i, &rank) < 0 || rank.state == WEFT_JOB_DEAD)
            continue;
        int together = companions(job, i, ranks, &rank.now, waiting);
        if (together)
            print_missing(job, &rank, waiting, together, missing, count);
    }
}

static void print_job(const weft_job *job)
{
    weft_job_info info;
    weft_job_rank rank;
    if (weft_job_describe(job, &info) < 0)
        return;
    printf("job of process %d: %s, %d %s%s\n\n", info.process,
           *info.program ? info.program : "an unknown program", info.ranks,
           info.threads ? "thread rank" : "rank", info.ranks == 1 ? "" : "s");
    printf("%5s %9s  %-8s %-38s %10s %10s  %s\n", "rank", "process", "state", "in operation",
           "since", "bytes", "last finished");
    for (int i = 0; i < info.ranks && weft_job_describe_rank(job, i, &rank) == WEFT_OK; i++)
        print_rank(&rank);
    print_waits(job, info.ranks);
}

/* ---- the list ---- */

static void print_line(const weft_job *job)
{
    weft_job_info info;
    weft_job_rank rank;
    int counts[WEFT_JOB_DEAD + 1] = {0}, busy = 0;
    if (weft_job_describe(job, &info) < 0)
        return;
    for (int i = 0; i < info.ranks && weft_job_describe_rank(job, i, &rank) == WEFT_OK; i++) {
        counts[rank.state]++;
        busy += *rank.now.name != 0;
    }
    printf("%9d %6d  %-24s", info.process, info.ranks, *info.program ? info.program : "?");
    const char *comma = "";
    for (int state = 0; state <= WEFT_JOB_DEAD; state++)
        if (counts[state]) {
            printf("%s%d %s", comma, counts[state], weft_job_state_name((weft_job_state)state));
            comma = ", ";
        }
    if (busy)
        printf("; %d in an operation", busy);
    putchar('\n');
}

static void print_list(weft_job *const *jobs, int count)
{
    if (!count) {
        printf("no job of this user runs on this machine\n");
        return;
    }
    printf("%9s %6s  %-24s%s\n", "process", "ranks", "program", "ranks by state");
    for (int i = 0; i < count; i++)
        print_line(jobs[i]);
    printf("\n`weft info --job PROCESS` tells what each rank is doing.\n");
}

/* ---- as JSON ---- */

static void json_op(weft_i_json *j, const char *key, const weft_job_op *op)
{
    if (!*op->name) {
        weft_i_json_text(j, key, NULL);
        return;
    }
    weft_i_json_open(j, key, '{');
    weft_i_json_text(j, "name", op->name);
    weft_i_json_text(j, "part_of", *op->part_of ? op->part_of : NULL);
    weft_i_json_text(j, "group", *op->group ? op->group : NULL);
    weft_i_json_integer(j, "number", (int64_t)op->number);
    weft_i_json_integer(j, "turn", (int64_t)op->turn);
    weft_i_json_bool(j, "on_device", op->on_device);
    weft_i_json_integer(j, "bytes", (int64_t)op->bytes);
    weft_i_json_integer(j, "begun_ms_ago", op->begun_ns / 1000000);
    weft_i_json_integer(j, "peer", op->peer);
    weft_i_json_integer(j, "channel", op->channel);
    weft_i_json_text(j, "status", weft_status_name((weft_status)op->status));
    weft_i_json_close(j);
}

static void json_missing(weft_i_json *j, const weft_job *job, int index, int ranks)
{
    weft_job_rank other;
    int *missing = calloc((size_t)ranks, sizeof *missing);
    int count = missing ? weft_job_missing(job, index, missing, ranks) : 0;
    weft_i_json_open(j, "waits_for", '[');
    for (int i = 0; i < count; i++)
        if (weft_job_describe_rank(job, missing[i], &other) == WEFT_OK)
            weft_i_json_integer(j, NULL, other.rank);
    weft_i_json_close(j);
    free(missing);
}

static void json_job(weft_i_json *j, const weft_job *job)
{
    weft_job_info info;
    weft_job_rank rank;
    if (weft_job_describe(job, &info) < 0)
        return;
    weft_i_json_open(j, NULL, '{');
    weft_i_json_integer(j, "process", info.process);
    weft_i_json_text(j, "program", *info.program ? info.program : NULL);
    weft_i_json_bool(j, "threads", info.threads);
    weft_i_json_open(j, "ranks", '[');
    for (int i = 0; i < info.ranks && weft_job_describe_rank(job, i, &rank) == WEFT_OK; i++) {
        weft_i_json_open(j, NULL, '{');
        weft_i_json_integer(j, "rank", rank.rank);
        weft_i_json_integer(j, "process", rank.process);
        weft_i_json_text(j, "state", weft_job_state_name(rank.state));
        weft_i_json_integer(j, "silent_ms", rank.silent_ns / 1000000);
        json_op(j, "now", &rank.now);
        json_op(j, "last", &rank.last);
        json_missing(j, job, i, info.ranks);
        weft_i_json_close(j);
    }
    weft_i_json_close(j);
    weft_i_json_close(j);
}

static int json_jobs(weft_job *const *jobs, int count)
{
    weft_i_json j;
    weft_i_json_begin(&j, STDOUT_FILENO, WEFT_I_JSON_DEPTH);
    weft_i_json_open(&j, NULL, '{');
    weft_i_json_open(&j, "jobs", '[');
    for (int i = 0; i < count; i++)
        json_job(&j, jobs[i]);
    weft_i_json_close(&j);
    weft_i_json_close(&j);
    return json_finish(&j);
}

/* ---- choosing ---- */

/* The jobs meant by `which`: a process, a program, or NULL for all.  How many; -1: none. */
static int find(const char *which, weft_job **jobs)
{
    char *end = NULL;
    long process = which ? strtol(which, &end, 10) : 0;
    if (which && *which && !*end) {
        jobs[0] = weft_job_open(process > 0 && process < 1L << 30 ? (int)process : 0);
        if (!jobs[0])
            fprintf(stderr, "weft info: %s\n", weft_last_error());
        return jobs[0] ? 1 : -1;
    }
    int found = weft_job_list(jobs, JOBS), count = 0;
    if (found < 0)
        fprintf(stderr, "weft info: %s\n", weft_last_error());
    for (int i = 0; i < found && i < JOBS; i++) {
        weft_job_info info;
        if (weft_job_describe(jobs[i], &info) == WEFT_OK &&
            (!which || !strcmp(which, info.program)))
            jobs[count++] = jobs[i];
    }
    if (found >= 0 && which && !count)
        fprintf(stderr, "weft info: no job of this user runs a program \"%s\"\n", which);
    return found < 0 || (which && !count) ? -1 : count;
}

int weft_info_job(const char *which, int json)
{
    static weft_job *jobs[JOBS];
    int count = find(which, jobs);
    if (count < 0)
        return 1;
    if (json)
        return json_jobs(jobs, count);
    if (!which)
        print_list(jobs, count);
    for (int i = 0; which && i < count; i++)
        print_job(jobs[i]);
    return fflush(stdout) != 0 || ferror(stdout);
}

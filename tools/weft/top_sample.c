/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at a job many times in an interval.  How much of its time a rank spends in communication is
 * how often it was found there: times in the flight record are those of heartbeats, a tenth of a
 * second apart, so lengths of single operations would not do.
 */
#include "top.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 50 };

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t resident_of(int process)
{
    char path[64];
    unsigned long long pages = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", process);
    FILE *file = process ? fopen(path, "r") : NULL;
    if (file && fscanf(file, "%llu %llu", &pages, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void note_waits(const weft_job *seen, int index, int ranks, top_rank *rank)
{
    int *missing = calloc((size_t)ranks, sizeof *missing);
    rank->waits = missing ? weft_job_missing(seen, index, missing, ranks) : 0;
    if (rank->waits < 0)
        rank->waits = 0;
    for (int i = 0; i < rank->waits && i < 8; i++) {
        weft_job_rank other;
        rank->waits_for[i] =
            weft_job_describe_rank(seen, missing[i], &other) == WEFT_OK ? other.rank : missing[i];
    }
    free(missing);
}

/* One look at every rank; the first of an interval says where the counts begin. */
static int look(top_job *job, int process)
{
    weft_job_info info;
    weft_scope_open();
    weft_job *seen = weft_job_open(process);
    int good = seen && weft_job_describe(seen, &info) == WEFT_OK &&
               (!job->rank || info.ranks == job->info.ranks);
    if (good && !job->rank) {
        job->rank = calloc((size_t)info.ranks, sizeof *job->rank);
        good = job->rank != NULL;
    }
    for (int i = 0; good && i < info.ranks; i++) {
        top_rank *rank = &job->rank[i];
        good = weft_job_describe_rank(seen, i, &rank->is) == WEFT_OK;
        if (!rank->looks++)
            rank->begun = rank->is.begun;
        rank->busy += *rank->is.now.name != 0;
        note_waits(seen, i, info.ranks, rank);
    }
    if (good)
        job->info = info;
    weft_scope_close();
    return good;
}

/* Counts of the interval as rates. */
static void finish(top_job *job)
{
    double seconds = (double)(job->to_ns - job->from_ns) * 1e-9;
    for (int i = 0; i < job->info.ranks; i++) {
        top_rank *rank = &job->rank[i];
        double begun = (double)(rank->is.begun - rank->begun) / (seconds > 0 ? seconds : 1);
        double looked = rank->is.recent ? rank->is.recent : 1;
        rank->calls = begun * rank->is.recent_calls / looked;
        rank->bytes = begun * (double)rank->is.recent_bytes / looked;
        rank->share = rank->looks ? (double)rank->busy / rank->looks : 0;
        rank->resident = resident_of(rank->is.process);
    }
}

int top_watch(top_job *job, int process, int64_t interval_ms, int (*pause)(void *, int64_t ms),
              void *argument)
{
    memset(job, 0, sizeof *job);
    if (gethostname(job->host, sizeof job->host - 1) < 0)
        strcpy(job->host, "?");
    job->from_ns = now_ns();
    do {
        if (!look(job, process))
            return 0;
        job->to_ns = now_ns();
    } while (job->to_ns - job->from_ns < interval_ms * 1000000 && pause(argument, LOOK_MS));
    finish(job);
    return 1;
}

void top_free(top_job *job)
{
    free(job->rank);
    job->rank = NULL;
}

int64_t top_wait_ns(const top_rank *rank)
{
    return rank->waits ? rank->is.now.begun_ns : 0;
}

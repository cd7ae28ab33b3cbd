/* SPDX-License-Identifier: Apache-2.0 */
/* weft_spawn: one job segment and one descriptor server in plain memory, one thread per rank. */
#include "fabric/world/spawn.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "base/team/team.h"
#include "weft/spawn.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct thread_rank {
    weft_i_seat place;
    int (*fn)(void *arg);
    void *arg;
    int result;
    int order; /* of its end among the ranks, from 1 */
    atomic_int *ends;
    pthread_t thread;
} thread_rank;

static _Thread_local weft_i_seat *my_place;

const weft_i_seat *weft_i_spawn_seat(void)
{
    return my_place;
}

void weft_i_spawn_at_end(void (*clear)(const void *place))
{
    WEFT_ASSERT(my_place && (!my_place->at_end || my_place->at_end == clear));
    my_place->at_end = clear;
}

/* Whoever still waits for this rank must learn that it will not come; pairs with the acquire in
 * weft_i_watch_fate. */
static void mark_left(const weft_i_seat *place)
{
    weft_i_rank_record *rank_record = weft_i_job_rank(weft_i_job_of(place->job), place->rank);
    /* Our own word: FAILED tells more. */
    if (atomic_load_explicit(&rank_record->life.state, memory_order_relaxed) != WEFT_I_RANK_FAILED)
        atomic_store_explicit(&rank_record->life.state, WEFT_I_RANK_LEFT, memory_order_release);
}

static void end_rank(void *arg)
{
    thread_rank *rank = arg;
    /* Before others learn that we are gone.  Relaxed: read after the threads are joined. */
    rank->order = 1 + atomic_fetch_add_explicit(rank->ends, 1, memory_order_relaxed);
    mark_left(&rank->place);
    if (rank->place.at_end)
        rank->place.at_end(&rank->place);
    my_place = NULL;
    weft_i_team_leave();
}

static void *rank_body(void *arg)
{
    thread_rank *rank = arg;
    my_place = &rank->place;
    weft_i_status_set_rank(rank->place.rank);
    weft_i_team_own();
    weft_i_team_share(rank->place.size, rank->place.size);
    pthread_cleanup_push(end_rank, rank); /* the function may end its thread by pthread_exit */
    rank->result = rank->fn(rank->arg);
    pthread_cleanup_pop(true);
    return NULL;
}

static weft_status start_and_join(thread_rank *ranks, int count)
{
    int started = 0, error = 0;
    while (started < count && !error) {
        error = WEFT_OS->thread_create(&ranks[started].thread, rank_body, &ranks[started]);
        started += !error;
    }
    for (int rank = started; rank < count; rank++)
        mark_left(&ranks[rank].place);
    for (int rank = 0; rank < started; rank++)
        WEFT_OS->thread_join(ranks[rank].thread);
    return error ? weft_i_fail_errno(error, "weft_spawn: cannot start thread %d of %d", started,
                                     count)
                 : WEFT_OK;
}

/* Ranks may return the negative or the negated status. */
static bool follows(int result)
{
    return weft_i_status_follows((weft_status)(result > 0 ? -result : result));
}

/* The first to fail, as `weft run` names it: whoever only reports another's end counts last. */
static int first_result(const thread_rank *ranks, int count)
{
    int first = -1;
    for (int rank = 0; rank < count; rank++) {
        if (!ranks[rank].result)
            continue;
        bool later = first >= 0 && follows(ranks[rank].result) > follows(ranks[first].result);
        bool alike = first >= 0 && follows(ranks[rank].result) == follows(ranks[first].result);
        if (!later && (!alike || ranks[rank].order < ranks[first].order))
            first = rank;
    }
    if (first < 0)
        return 0;
    int result = ranks[first].result;
    weft_status status = (weft_status)(result > 0 ? -result : result);
    if (weft_i_status_known(status))
        weft_i_log(WEFT_LOG_WARN, "rank %d of %d failed first: it returned %d (%s)", first, count,
                   result, weft_status_name(status));
    else /* a number of the program's own */
        weft_i_log(WEFT_LOG_WARN, "rank %d of %d failed first: it returned %d", first, count,
                   result);
    return result;
}

/* A job of one call of weft_spawn; *result is what its ranks returned. */
static weft_status run_job(int count, int (*fn)(void *arg), void *arg, int *result)
{
    weft_i_segment *job = NULL;
    weft_i_fdpass *fdpass = NULL;
    WEFT_TRY(weft_i_job_new(count, WEFT_I_BETWEEN_THREADS, &job));
    weft_status status = weft_i_fdpass_open(WEFT_I_BETWEEN_THREADS, &fdpass);
    thread_rank *ranks = status < 0 ? NULL : WEFT_OS->alloc((size_t)count * sizeof *ranks);
    if (status == WEFT_OK && !ranks)
        status = weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_spawn: no memory for %d ranks", count);
    atomic_int ends = 0;
    for (int rank = 0; status == WEFT_OK && rank < count; rank++)
        ranks[rank] = (thread_rank){
            .place = {job, fdpass, rank, count, NULL}, .fn = fn, .arg = arg, .ends = &ends};
    if (status == WEFT_OK)
        status = start_and_join(ranks, count);
    if (status == WEFT_OK)
        *result = first_result(ranks, count);
    WEFT_OS->free(ranks);
    weft_i_fdpass_drop(fdpass);
    weft_i_job_close(job);
    weft_i_segment_drop(job);
    return status;
}

int weft_spawn(int count, int (*fn)(void *arg), void *arg)
{
    int result = 0;
    weft_status status = fn ? run_job(count, fn, arg, &result)
                            : weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_spawn: the function is NULL");
    if (status == WEFT_OK)
        return result;
    /* A program that returns this number alone would leave in silence. */
    weft_i_log(WEFT_LOG_WARN, "%s (%s)", weft_last_error(), weft_status_name(status));
    return (int)status;
}

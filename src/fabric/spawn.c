/* SPDX-License-Identifier: Apache-2.0 */
/* weft_spawn: one job segment and one descriptor server in plain memory, one thread per rank. */
#include "fabric/spawn.h"

#include "base/os.h"
#include "base/status.h"
#include "weft/spawn.h"

#include <pthread.h>

typedef struct thread_rank {
    weft_i_seat place;
    int (*fn)(void *arg);
    void *arg;
    int result;
    pthread_t thread;
} thread_rank;

static _Thread_local weft_i_seat *my_place;

const weft_i_seat *weft_i_spawn_seat(void)
{
    return my_place;
}

void weft_i_spawn_at_end(void (*clear)(const void *place))
{
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

static void *rank_body(void *arg)
{
    thread_rank *rank = arg;
    my_place = &rank->place;
    weft_i_status_set_rank(rank->place.rank);
    rank->result = rank->fn(rank->arg);
    mark_left(&rank->place);
    if (rank->place.at_end)
        rank->place.at_end(&rank->place);
    my_place = NULL;
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

static int first_result(const thread_rank *ranks, int count)
{
    for (int rank = 0; rank < count; rank++)
        if (ranks[rank].result)
            return ranks[rank].result;
    return 0;
}

int weft_spawn(int count, int (*fn)(void *arg), void *arg)
{
    if (!fn)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_spawn: the function is NULL");
    weft_i_segment *job = NULL;
    weft_i_fdpass *fdpass = NULL;
    WEFT_TRY(weft_i_job_new(count, WEFT_I_BETWEEN_THREADS, &job));
    weft_status status = weft_i_fdpass_open(WEFT_I_BETWEEN_THREADS, &fdpass);
    thread_rank *ranks = status < 0 ? NULL : WEFT_OS->alloc((size_t)count * sizeof *ranks);
    if (status == WEFT_OK && !ranks)
        status = weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_spawn: no memory for %d ranks", count);
    int result = status;
    if (status == WEFT_OK) {
        for (int rank = 0; rank < count; rank++)
            ranks[rank] =
                (thread_rank){.place = {job, fdpass, rank, count, NULL}, .fn = fn, .arg = arg};
        status = start_and_join(ranks, count);
        result = status < 0 ? (int)status : first_result(ranks, count);
    }
    WEFT_OS->free(ranks);
    weft_i_fdpass_drop(fdpass);
    weft_i_job_close(job);
    weft_i_segment_drop(job);
    return result;
}

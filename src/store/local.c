/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store inside one process: a map, a mutex, and a condition variable per waiting thread. Clones
 * share the data; it goes with the last of them.
 */
#include "store/map.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"

#include <pthread.h>
#include <string.h>

typedef struct shared {
    atomic_int references; /* relaxed up, acq_rel down: the last one sees what the others did */
    pthread_mutex_t lock;  /* the map */
    weft_i_store_map map;
} shared;

typedef struct local {
    weft_store store;
    shared *data;
} local;

/* A waiting thread, on its own stack. */
typedef struct sleeper {
    weft_i_store_waiter waiter; /* first: the map hands us back a pointer to it */
    bool woken;
    pthread_cond_t turn;
} sleeper;

static void wake_sleepers(shared *data)
{
    weft_i_store_waiter *waiter;
    while ((waiter = weft_i_store_map_ready(&data->map))) {
        sleeper *woken = (sleeper *)waiter;
        woken->woken = true;
        pthread_cond_signal(&woken->turn);
    }
}

/* Copies the values out of the map while it is locked. */
static weft_status take_copy(weft_i_store_answer *answer)
{
    size_t total = 1;
    for (size_t i = 0; i < answer->values; i++)
        total += answer->value[i].bytes;
    char *at = answer->memory = WEFT_OS->alloc(total);
    if (!at)
        return WEFT_ERR_NO_MEMORY;
    for (size_t i = 0; i < answer->values; i++) {
        memcpy(at, answer->value[i].data, answer->value[i].bytes);
        answer->value[i].data = at;
        at += answer->value[i].bytes;
    }
    return WEFT_OK;
}

static weft_status finish(shared *data, const weft_i_store_request *request,
                          weft_i_store_answer *answer, weft_i_store_outcome *outcome)
{
    weft_status status = take_copy(answer);
    if (outcome->taken && status < 0)
        weft_i_store_map_put_back(&data->map, request->key[0], outcome->taken);
    else
        weft_i_store_map_drop(outcome->taken);
    return status;
}

/* Until woken; false when the deadline passed first. */
static bool sleep_until(shared *data, sleeper *self, int64_t deadline)
{
    struct timespec end = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    self->woken = false;
    while (!self->woken)
        if (deadline == WEFT_I_NEVER)
            pthread_cond_wait(&self->turn, &data->lock);
        else if (WEFT_OS->clock_ns() >= deadline)
            return false;
        else
            pthread_cond_timedwait(&self->turn, &data->lock, &end);
    return true;
}

static weft_status perform_locked(shared *data, const weft_i_store_request *request,
                                  int64_t deadline, sleeper *self, weft_i_store_answer *answer)
{
    for (;;) {
        weft_i_store_outcome outcome;
        weft_i_store_map_apply(&data->map, request, &self->waiter, answer, &outcome);
        if (!outcome.blocked) {
            weft_status status = finish(data, request, answer, &outcome);
            wake_sleepers(data);
            return status;
        }
        if (!sleep_until(data, self, deadline)) {
            weft_i_store_map_unhang(&data->map, &self->waiter);
            answer->status = WEFT_ERR_TIMEOUT;
            return WEFT_OK;
        }
    }
}

static weft_status perform(weft_store *store, const weft_i_store_request *request, int64_t deadline,
                           weft_i_store_answer *answer)
{
    shared *data = ((local *)store)->data;
    sleeper self = {.woken = false};
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&self.turn, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_lock(&data->lock);
    weft_status status = perform_locked(data, request, deadline, &self, answer);
    pthread_mutex_unlock(&data->lock);
    pthread_cond_destroy(&self.turn);
    if (status == WEFT_OK)
        return WEFT_OK;
    weft_i_store_answer_clear(answer);
    return weft_i_fail(status, "store local: %s: no memory for the answer",
                       weft_i_store_op_name(request->op));
}

static void drop(shared *data, bool forked)
{
    if (!data || atomic_fetch_sub_explicit(&data->references, 1, memory_order_acq_rel) != 1)
        return;
    if (forked)
        return; /* another thread may have been changing the map when fork copied it */
    weft_i_store_map_close(&data->map);
    pthread_mutex_destroy(&data->lock);
    WEFT_OS->free(data);
}

static void close_local(weft_store *store, bool forked)
{
    drop(((local *)store)->data, forked);
}

static weft_store *copy_of(weft_store *store);

static const weft_i_store_kind kind = {.perform = perform, .clone = copy_of, .close = close_local};

static weft_store *copy_of(weft_store *store)
{
    local *copy = weft_i_store_new(&kind, sizeof *copy, "local");
    if (!copy)
        return NULL;
    copy->data = ((local *)store)->data;
    atomic_fetch_add_explicit(&copy->data->references, 1, memory_order_relaxed);
    return &copy->store;
}

weft_store *weft_store_local(void)
{
    shared *data = WEFT_OS->alloc(sizeof *data);
    size_t limit = (size_t)weft_i_env_number_or_default(WEFT_I_ENV_STORE_MEMORY);
    if (!data || weft_i_store_map_open(&data->map, limit) < 0) {
        WEFT_OS->free(data);
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_store_local: no memory for a store");
    }
    pthread_mutex_init(&data->lock, NULL);
    atomic_init(&data->references, 1);
    local *store = weft_i_store_new(&kind, sizeof *store, "local");
    if (!store) {
        drop(data, false);
        return NULL;
    }
    store->data = data;
    return &store->store;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Making, using and ending communicators; see comm.h. */
#include "comm.h"

#include "backends/cuda/device/stream.h"
#include "backends/cuda/ranks/pads.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "base/share/wait.h"
#include "tensor/object/stream.h"
#include "window.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOSE_MS = 5000 };

/* What a member shows of itself. */
typedef struct entry {
    int32_t status, version;
    uint32_t always;  /* its WEFT_NCCL */
    uint32_t tuned;   /* a digest of its thresholds */
    uint32_t host_id; /* 1: NCCL_HOSTID sets this rank apart from others of its host */
    weft_i_card card;
    weft_i_key have; /* the token of the communicator it has already; 0: none */
} entry;

/* What the first member shows then: NCCL listens for the ranks from now on. */
typedef struct invitation {
    int32_t status;
    weft_i_key token;
    weft_i_nccl_id id;
} invitation;

/* Room for what all members show. */
typedef union shown {
    entry entry;
    invitation invitation;
    int32_t status;
} shown;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list and the references */
static weft_i_nccl_comm *first;

static weft_i_key key_of(const weft_i_circle *circle, weft_i_nccl_use use)
{
    weft_i_key group = weft_i_circle_key(circle);
    return use == WEFT_I_NCCL_WINDOWS ? weft_i_key_of(group, "windows", 7) : group;
}

static weft_i_nccl_comm *find(const weft_i_circle *circle, weft_i_nccl_use use)
{
    weft_i_key group = key_of(circle, use);
    pthread_mutex_lock(&lock);
    weft_i_nccl_comm *found = first;
    /* Acquire pairs with the release in condemn; nobody goes on with one that has a verdict. */
    while (found && !(weft_i_key_equal(found->group, group) && found->rank == circle->rank &&
                      found->device->ordinal == weft_i_device_index(circle->device) &&
                      atomic_load_explicit(&found->fate, memory_order_acquire) == WEFT_OK))
        found = found->next;
    if (found)
        found->references++;
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- what members show ---- */

static weft_status open_device(weft_device device, weft_i_cuda_device **out)
{
    weft_stream *stream = weft_i_stream_current(device); /* opens it, or says why it cannot */
    if (!stream)
        return weft_last_status();
    WEFT_TRY(weft_i_cuda_open(weft_i_device_index(device), out));
    return weft_i_cuda_use(*out);
}

static weft_status fill(const weft_i_circle *circle, weft_i_cuda_device **device, entry *mine)
{
    const weft_i_nccl *nccl;
    if (weft_i_circle_is_fake(circle))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "NCCL cannot serve a world without peers");
    WEFT_TRY(weft_i_nccl_load(&nccl));
    WEFT_TRY(open_device(circle->device, device));
    weft_i_cuda_card(*device, &mine->card);
    mine->version = nccl->version;
    mine->always = weft_i_nccl_is_always();
    mine->tuned = circle->tuned;
    mine->host_id = getenv("NCCL_HOSTID") != NULL;
    return WEFT_OK;
}

static weft_status invite(invitation *out)
{
    WEFT_TRY(weft_i_key_new(&out->token));
    return weft_i_nccl_fail(weft_i_nccl_library()->ncclGetUniqueId(&out->id), NULL,
                            "an id for the ranks to meet");
}

static weft_status compare_pair(const weft_i_circle *circle, const entry *all, int a, int b)
{
    char one[32], other[32];
    if (all[a].version / 100 != all[b].version / 100)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "group \"%s\": rank %d has NCCL %s, rank %d %s, and they do not meet",
                           circle->name, a,
                           weft_i_nccl_version_text(all[a].version, one, sizeof one), b,
                           weft_i_nccl_version_text(all[b].version, other, sizeof other));
    if (all[a].always != all[b].always)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "group \"%s\": WEFT_NCCL is \"always\" on rank %d, but not on rank %d",
                           circle->name, all[a].always ? a : b, all[a].always ? b : a);
    if (all[a].tuned != all[b].tuned)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "group \"%s\": ranks %d and %d have different thresholds for NCCL "
                           "(WEFT_TUNE, weft_tune_set), and would not choose alike",
                           circle->name, a, b);
    if (!(all[a].host_id && all[b].host_id) &&
        !memcmp(all[a].card.uuid, all[b].card.uuid, sizeof all[a].card.uuid))
        return weft_i_fail(
            WEFT_ERR_UNSUPPORTED,
            "group \"%s\": ranks %d and %d are on one GPU, which NCCL refuses unless "
            "each has an NCCL_HOSTID of its own",
            circle->name, a, b);
    return WEFT_OK;
}

/* The same on all members. */
static weft_status compare(const weft_i_circle *circle, const entry *all)
{
    for (int rank = 0; rank < circle->size; rank++)
        if (all[rank].status < 0)
            return rank == circle->rank
                       ? (weft_status)all[rank].status
                       : weft_i_fail((weft_status)all[rank].status,
                                     "group \"%s\": rank %d cannot use NCCL (%s)", circle->name,
                                     rank, weft_strerror((weft_status)all[rank].status));
    for (int b = 1; b < circle->size; b++)
        for (int a = 0; a < b; a++)
            WEFT_TRY(compare_pair(circle, all, a, b));
    return WEFT_OK;
}

/* Do all have one and the same already? */
static bool have_all(const weft_i_circle *circle, const entry *all)
{
    static const weft_i_key none;
    for (int rank = 0; rank < circle->size; rank++)
        if (!weft_i_key_equal(all[rank].have, all[0].have))
            return false;
    return !weft_i_key_equal(all[0].have, none);
}

/* ---- making ---- */

typedef struct making {
    const weft_i_circle *circle;
    weft_i_nccl_raw raw;
    weft_i_nccl_result result;
} making;

static bool is_made(void *arg)
{
    making *m = arg;
    weft_i_nccl_result asked = weft_i_nccl_library()->ncclCommGetAsyncError(m->raw, &m->result);
    m->result = asked == WEFT_I_ncclSuccess ? m->result : asked;
    return m->result != WEFT_I_ncclInProgress;
}

static weft_status lost(void *arg)
{
    const making *m = arg;
    return weft_i_circle_lost(m->circle);
}

static weft_status meet(const weft_i_circle *circle, const weft_i_nccl_id *id,
                        weft_i_nccl_comm *comm)
{
    const weft_i_nccl *nccl = weft_i_nccl_library();
    const int undef = WEFT_I_NCCL_UNDEF;
    weft_i_nccl_config config = {sizeof config,
                                 WEFT_I_NCCL_MAGIC,
                                 WEFT_I_NCCL_OLDEST,
                                 0,
                                 undef,
                                 undef,
                                 undef,
                                 NULL,
                                 undef,
                                 undef,
                                 NULL,
                                 undef,
                                 undef,
                                 undef,
                                 undef,
                                 undef,
                                 undef};
    making m = {circle, NULL, WEFT_I_ncclInProgress};
    weft_i_nccl_result result =
        nccl->ncclCommInitRankConfig(&m.raw, circle->size, *id, circle->rank, &config);
    if (!weft_i_nccl_is_fine(result))
        return weft_i_nccl_fail(result, NULL, "group \"%s\": a communicator of %d ranks",
                                circle->name, circle->size);
    weft_i_wait wait = {.ready = is_made,
                        .lost = lost,
                        .arg = &m,
                        .deadline = circle->deadline,
                        .mode = WEFT_I_WAIT_SLEEP};
    weft_status status = weft_i_wait_for(&wait);
    comm->raw = m.raw;
    if (status == WEFT_ERR_TIMEOUT)
        return weft_i_fail(status,
                           "group \"%s\": NCCL has not made a communicator of %d ranks within %lld "
                           "ms; a rank does not come, or cannot be reached",
                           circle->name, circle->size, (long long)circle->limit_ms);
    WEFT_TRY(status);
    return weft_i_nccl_fail(m.result, NULL, "group \"%s\": a communicator of %d ranks",
                            circle->name, circle->size);
}

static weft_i_nccl_comm *allocate(const weft_i_circle *circle, weft_i_cuda_device *device,
                                  weft_i_nccl_use use, weft_i_key token)
{
    weft_i_nccl_comm *comm = WEFT_OS->alloc(sizeof *comm);
    if (!comm)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks",
                           circle->size);
    *comm = (weft_i_nccl_comm){.device = device,
                               .rank = circle->rank,
                               .size = circle->size,
                               .mode = weft_i_wait_mode_for(2 * circle->size, weft_i_os_cores()),
                               .has_windows = use == WEFT_I_NCCL_WINDOWS,
                               .group = key_of(circle, use),
                               .token = token,
                               .references = 1,
                               .due = INT64_MAX,
                               .marked_due = INT64_MAX,
                               .lost = -1};
    return comm;
}

static void enlist(weft_i_nccl_comm *comm);

static void discard(weft_i_nccl_comm *comm)
{
    weft_i_nccl_raw raw = comm->raw;
    comm->raw = NULL;
    if (raw)
        weft_i_nccl_abort(comm, raw);
    weft_i_post_close(comm->post);
    weft_i_cuda_mark_release(&comm->mark);
    WEFT_OS->free(comm);
}

static weft_status make(const weft_i_circle *circle, weft_i_cuda_device *device,
                        weft_i_nccl_use use, const invitation *from, weft_i_nccl_comm **out)
{
    *out = allocate(circle, device, use, from->token);
    if (!*out)
        return weft_last_status();
    WEFT_TRY(meet(circle, &from->id, *out));
    return weft_i_nccl_watch(circle, *out);
}

/* A new one: the first member invites, all meet, all agree. */
static weft_status make_all(const weft_i_circle *circle, weft_i_cuda_device *device,
                            weft_i_nccl_use use, shown *all, weft_i_nccl_comm **out)
{
    invitation mine = {0}, *from = &all->invitation;
    weft_i_nccl_comm *made = NULL;
    if (circle->rank == 0)
        mine.status = invite(&mine);
    WEFT_TRY(circle->exchange(circle, &mine, sizeof mine, from));
    if (from->status < 0)
        return circle->rank == 0
                   ? (weft_status)from->status
                   : weft_i_fail((weft_status)from->status,
                                 "group \"%s\": rank 0 cannot invite the others (%s)", circle->name,
                                 weft_strerror((weft_status)from->status));
    weft_status status = make(circle, device, use, from, &made);
    status = weft_i_circle_agree(circle, status, "has no communicator", all);
    if (status == WEFT_OK)
        enlist(*out = made);
    else if (made)
        discard(made);
    return status;
}

/* `old`, which is held, if all have it; else a new one. */
static weft_status open_with(const weft_i_circle *circle, weft_i_cuda_device *device,
                             weft_i_nccl_use use, const entry *mine, shown *all,
                             weft_i_nccl_comm *old, weft_i_nccl_comm **out)
{
    WEFT_TRY(circle->exchange(circle, mine, sizeof *mine, all));
    WEFT_TRY(compare(circle, &all->entry));
    if (!have_all(circle, &all->entry))
        return make_all(circle, device, use, all, out);
    *out = old;
    return WEFT_OK;
}

weft_status weft_i_nccl_comm_open(const weft_i_circle *circle, weft_i_nccl_use use,
                                  weft_i_nccl_comm **out)
{
    weft_i_cuda_device *device = NULL;
    entry mine = {0};
    shown *all = WEFT_OS->alloc((size_t)circle->size * sizeof *all);
    weft_i_nccl_comm *old = find(circle, use);
    *out = NULL;
    mine.status =
        all ? fill(circle, &device, &mine)
            : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for what %d ranks show", circle->size);
    mine.have = old ? old->token : mine.have;
    weft_status status = (weft_status)mine.status;
    if (all)
        status = open_with(circle, device, use, &mine, all, old, out);
    else
        weft_i_circle_decline(circle, &mine, sizeof mine);
    WEFT_OS->free(all);
    if (old && *out != old)
        weft_i_nccl_comm_close(old);
    return status;
}

/* ---- the list ---- */

static void end_all(void);

static void enlist(weft_i_nccl_comm *comm)
{
    static bool registered;
    pthread_mutex_lock(&lock);
    comm->next = first;
    first = comm;
    if (!registered)
        registered = weft_i_os_at_exit(end_all); /* after NCCL was loaded, so before its own end */
    pthread_mutex_unlock(&lock);
}

uint64_t weft_i_nccl_given(void)
{
    uint64_t given = 0;
    pthread_mutex_lock(&lock);
    for (weft_i_nccl_comm *comm = first; comm; comm = comm->next) {
        weft_i_latch_take(&comm->lock);
        given += comm->given;
        weft_i_latch_give(&comm->lock);
    }
    pthread_mutex_unlock(&lock);
    return given;
}

/* The next of those that carried work on the stream, of whose verdict nobody was told yet; held.
 * `last` was the one before, NULL for the first. */
static weft_i_nccl_comm *next_on(const weft_i_cuda_stream *stream, const weft_i_nccl_comm *last)
{
    uint64_t bit = (uint64_t)1 << stream->number % 64;
    pthread_mutex_lock(&lock);
    weft_i_nccl_comm *found = last ? last->next : first;
    while (found && !(atomic_load_explicit(&found->streams, memory_order_relaxed) & bit &&
                      found->device == stream->device &&
                      !atomic_load_explicit(&found->told, memory_order_relaxed)))
        found = found->next;
    if (found)
        found->references++;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Asked by whoever has waited for a stream. */
static weft_status check_stream(const weft_i_cuda_stream *stream)
{
    weft_status status = WEFT_OK;
    weft_i_nccl_comm *comm = next_on(stream, NULL);
    while (comm && status == WEFT_OK) {
        status = weft_i_nccl_comm_ask(comm);
        weft_i_nccl_comm *next = next_on(stream, comm);
        weft_i_nccl_comm_close(comm);
        comm = next;
    }
    if (comm)
        weft_i_nccl_comm_close(comm);
    return status;
}

__attribute__((constructor)) static void register_check(void)
{
    weft_i_cuda_after_sync(check_stream);
}

/* ---- the end ---- */

/* Is nothing under way any more?  Also if it was aborted. */
static bool is_over(void *arg)
{
    weft_i_nccl_comm *comm = arg;
    weft_i_nccl_result result = WEFT_I_ncclInProgress;
    weft_i_latch_take(&comm->lock);
    if (comm->raw)
        weft_i_nccl_library()->ncclCommGetAsyncError(comm->raw, &result);
    comm->finalized = comm->raw && result == WEFT_I_ncclSuccess;
    bool over = !comm->raw || result != WEFT_I_ncclInProgress;
    weft_i_latch_give(&comm->lock);
    return over;
}

/* Lets what is under way come to its end: a peer may still need what this rank sends. */
static void finalize(weft_i_nccl_comm *comm, int64_t deadline)
{
    weft_i_nccl_result result = WEFT_I_ncclInvalidUsage;
    weft_i_latch_take(&comm->lock);
    if (comm->raw && !comm->finalized)
        result = weft_i_nccl_library()->ncclCommFinalize(comm->raw);
    weft_i_latch_give(&comm->lock);
    if (weft_i_nccl_is_fine(result))
        weft_i_wait_until(is_over, comm, deadline);
}

/* Finalizing says that NCCL's kernels have ended.  What they sent may still be on its way, by
 * threads of NCCL's that only a destruction waits for. */
static void end_by(weft_i_nccl_comm *comm, int64_t deadline)
{
    finalize(comm, deadline);
    weft_i_latch_take(&comm->lock);
    weft_i_nccl_raw raw = comm->finalized ? comm->raw : NULL;
    comm->raw = raw ? NULL : comm->raw;
    weft_i_latch_give(&comm->lock);
    if (raw)
        weft_i_nccl_destroy(comm, raw, deadline);
}

static void end(weft_i_nccl_comm *comm)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    if (weft_i_cuda_use(comm->device) == WEFT_OK)
        end_by(comm, weft_i_os_deadline(CLOSE_MS));
    else
        comm->raw = NULL; /* in a forked child it is not ours */
    weft_i_errors_restore(&before);
}

/* The next of the world's that carries collectives; held, as next_on. */
static weft_i_nccl_comm *next_of(const struct weft_i_world *world, const weft_i_nccl_comm *last)
{
    pthread_mutex_lock(&lock);
    weft_i_nccl_comm *found = last ? last->next : first;
    while (found && (found->has_windows || !weft_i_post_is_of(found->post, world)))
        found = found->next;
    if (found)
        found->references++;
    pthread_mutex_unlock(&lock);
    return found;
}

/* The rank leaves, and its process may end by _exit: what its peers wait for goes out first. */
static void see_off(const struct weft_i_world *world)
{
    int64_t deadline = weft_i_os_deadline(CLOSE_MS);
    weft_i_errors before;
    weft_i_errors_save(&before);
    for (weft_i_nccl_comm *comm = next_of(world, NULL); comm;) {
        if (weft_i_cuda_use(comm->device) == WEFT_OK)
            end_by(comm, deadline);
        weft_i_nccl_comm *next = next_of(world, comm);
        weft_i_nccl_comm_close(comm);
        comm = next;
    }
    weft_i_errors_restore(&before);
}

__attribute__((constructor)) static void register_farewell(void)
{
    weft_i_post_before_leaving(see_off);
}

/* When the process exits with groups that nobody has released: a peer may still need what this rank
 * sends. */
static void end_all(void)
{
    pthread_mutex_lock(&lock);
    weft_i_nccl_comm *all = first;
    first = NULL;
    pthread_mutex_unlock(&lock);
    for (weft_i_nccl_comm *comm = all; comm; comm = comm->next) {
        weft_i_post_close(comm->post);
        if (comm->raw && !comm->has_windows)
            end(comm);
        comm->raw = NULL; /* one that did not end goes with the process */
    }
}

void weft_i_nccl_comm_hold(weft_i_nccl_comm *comm)
{
    pthread_mutex_lock(&lock);
    comm->references++;
    pthread_mutex_unlock(&lock);
}

void weft_i_nccl_comm_close(weft_i_nccl_comm *comm)
{
    pthread_mutex_lock(&lock);
    bool gone = --comm->references == 0;
    weft_i_nccl_comm **at = &first;
    while (gone && *at && *at != comm)
        at = &(*at)->next;
    if (gone && *at)
        *at = comm->next;
    pthread_mutex_unlock(&lock);
    if (!gone)
        return;
    weft_i_post_close(comm->post); /* from here on nobody condemns it */
    comm->post = NULL;
    if (comm->doomed)
        weft_i_nccl_abort(comm, comm->doomed);
    weft_i_nccl_window_end_all(comm);
    if (comm->raw)
        end(comm);
    discard(comm);
}

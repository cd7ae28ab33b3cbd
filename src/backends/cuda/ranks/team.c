/* SPDX-License-Identifier: Apache-2.0 */
/* Teams: where things lie in a pad, what a failed kernel left behind, reset, and signals. */
#include "team.h"

#include "backends/cuda/device/retire.h"
#include "backends/cuda/device/stream.h"
#include "base/os/os.h"
#include "base/os/place.h"
#include "base/report/env.h"
#include "base/share/signal.h"
#include "staged.h"
#include "symm/sentry.h"
#include "tune/tune.h"

#include <stdio.h>
#include <string.h>

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static void fill_sizes(int ranks, const weft_i_cuda_sizes *sizes, weft_k_group *group)
{
    static const weft_i_cuda_sizes usual = {64, 32, 1024, 4 << 20, 0, false};
    const weft_i_cuda_sizes none = {0, 0, 0, 0, 0, false};
    const weft_i_cuda_sizes *given = sizes ? sizes : &none;
    group->size = ranks;
    group->lines = given->lines ? given->lines : usual.lines;
    group->channels = given->channels ? given->channels : usual.channels;
    group->packet_units = given->packet_units ? given->packet_units : usual.packet_units;
    group->stage_bytes = round_up(given->stage_bytes ? given->stage_bytes : usual.stage_bytes, 16);
}

/* Lanes from each source: 8 MiB of slots for up to 64 ranks. */
static uint64_t lanes_for(int ranks)
{
    enum { ALL = 64, MOST = 32 };
    int lanes = ALL / ranks;
    return lanes < 1 ? 1 : lanes > MOST ? MOST : (uint64_t)lanes;
}

size_t weft_i_cuda_team_layout(int ranks, const weft_i_cuda_sizes *sizes, weft_k_group *group)
{
    fill_sizes(ranks, sizes, group);
    size_t line = round_up(WEFT_K_WORDS + WEFT_K_ARRIVAL * (size_t)ranks, WEFT_K_LINE);
    group->channels_at = WEFT_K_LINE + group->lines * line;
    group->semaphores_at = group->channels_at + group->channels * line;
    size_t semaphores = 4 * (size_t)group->channels * (size_t)ranks;
    if (sizes && sizes->semaphore_bytes > semaphores)
        semaphores = sizes->semaphore_bytes;
    group->p2p_lanes = sizes && sizes->p2p ? lanes_for(ranks) : 0;
    group->p2p_channels_at = round_up(group->semaphores_at + semaphores, WEFT_K_LINE);
    size_t channels = (size_t)ranks * group->p2p_lanes;
    group->packets_at = group->p2p_channels_at + channels * WEFT_K_P2P_CHANNEL;
    group->stage_at =
        group->packets_at + 2 * (size_t)group->lines * (size_t)ranks * group->packet_units * 16;
    group->p2p_slots_at = group->stage_at + 2 * group->stage_bytes;
    return group->p2p_slots_at + channels * WEFT_K_P2P_SLOTS * WEFT_K_P2P_PIECE;
}

/* ---- records ---- */

/*
 * Host memory that kernels write to.  It is never given back while the device is open: unpinning
 * waits for kernels, and they may wait for a rank that is here.
 */
typedef struct room {
    weft_k_record record; /* first: see team_close */
    uint64_t verdict[WEFT_K_LINE / sizeof(uint64_t)];
    weft_i_cuda_device *device;
    struct room *next;
} room;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static room *free_rooms;
static weft_i_cuda_team *teams; /* that are open */

static room *take_room(const weft_i_cuda_device *device)
{
    pthread_mutex_lock(&lock);
    room **at = &free_rooms;
    while (*at && (*at)->device != device)
        at = &(*at)->next;
    room *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

static void give_room(void *memory)
{
    room *old = memory;
    pthread_mutex_lock(&lock);
    old->next = free_rooms;
    free_rooms = old;
    pthread_mutex_unlock(&lock);
}

static weft_status make_room(weft_i_cuda_device *device, room **out)
{
    void *host;
    *out = take_room(device);
    if (!*out) {
        WEFT_TRY(weft_i_cuda_pinned(device, sizeof **out, &host));
        *out = host;
        (*out)->device = device;
    }
    memset(&(*out)->record, 0, sizeof(*out)->record);
    (*out)->verdict[0] = 0;
    return WEFT_OK;
}

static void drop_rooms(weft_i_cuda_device *device)
{
    for (room *old = take_room(device); old; old = take_room(device))
        weft_i_cuda_unpin(old);
}

/* ---- opening and closing ---- */

weft_status weft_i_cuda_team_open(weft_i_cuda_device *device, int rank, int ranks, char *pads,
                                  size_t stride, int sharing, const weft_i_cuda_sizes *sizes,
                                  weft_i_cuda_team *out)
{
    size_t meets_first_from = weft_i_tune_same(WEFT_I_TUNE_CUDA_MEET_FIRST, WEFT_I_BARRIER);
    *out = (weft_i_cuda_team){.device = device,
                              .sharing = sharing,
                              .meets_first_from = sharing > 1 ? meets_first_from : SIZE_MAX,
                              .narrow = weft_i_env_number_or_default(WEFT_I_ENV_CUDA_NARROW) != 0};
    if (ranks < 1 || ranks > WEFT_K_RANKS_MOST || rank < 0 || rank >= ranks)
        return weft_i_fail(WEFT_ERR_LIMIT, "rank %d of a team of %d; %d are the most", rank, ranks,
                           WEFT_K_RANKS_MOST);
    size_t bytes = weft_i_cuda_team_layout(ranks, sizes, &out->group);
    if (bytes > stride)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "pads of %zu bytes in blocks of %zu", bytes,
                           stride);
    out->pad_bytes = out->group.stage_at;
    memcpy(out->resident, device->resident, sizeof out->resident);
    room *host;
    weft_i_cu_ptr there = 0;
    WEFT_TRY(make_room(device, &host));
    weft_i_cu_result result = weft_i_cuda_driver()->cuMemHostGetDevicePointer(&there, host, 0);
    if (result != WEFT_I_CUDA_SUCCESS) {
        give_room(host);
        return weft_i_cuda_fail(result, "host memory that cuda:%d reaches", device->ordinal);
    }
    out->record = &host->record;
    out->verdict = host->verdict;
    out->group.record = (weft_k_record *)(uintptr_t)there;
    out->group.verdict = (uint64_t *)(uintptr_t)(there + offsetof(room, verdict));
    out->group.pads = pads;
    out->group.stride = stride;
    out->group.rank = rank;
    out->group.near = sharing == ranks; /* all meet at the scope of one device */
    pthread_mutex_lock(&lock);
    out->next = teams;
    teams = out;
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

void weft_i_cuda_team_close(weft_i_cuda_team *team)
{
    if (!team->record)
        return;
    pthread_mutex_lock(&lock);
    weft_i_cuda_team **at = &teams;
    while (*at != team)
        at = &(*at)->next;
    *at = team->next;
    pthread_mutex_unlock(&lock);
    weft_i_cuda_retire(give_room, team->record); /* kernels under way may still write there */
    *team = (weft_i_cuda_team){0};
}

void weft_i_cuda_team_attend(weft_i_cuda_team *team, struct weft_i_post *post)
{
    pthread_mutex_lock(&lock);
    team->post = post;
    pthread_mutex_unlock(&lock);
}

/* ---- what a failed kernel left behind ---- */

/* "barrier on channel 3" */
static void tell_operation(const weft_k_record *record, char *out, size_t bytes)
{
    static const char *const names[] = {"a collective", "barrier", "put_signal", "wait_signal"};
    if (record->what == WEFT_K_COLLECTIVE)
        snprintf(out, bytes, "meeting %u of the collectives", (unsigned)record->epoch);
    else if (record->what == WEFT_K_MESSAGE)
        weft_i_cuda_signature_text(
            (weft_i_cuda_signature){record->my_signature[1], record->my_signature[2]}, out, bytes);
    else
        snprintf(out, bytes, "%s on channel %u", names[record->what & 3],
                 (unsigned)record->channel);
}

/* "rank 0 of 2 in group "0", barrier on channel 3 of cuda:0" */
static void tell_call(const weft_i_cuda_team *team, char *out, size_t bytes)
{
    char who[128] = "", operation[96];
    if (team->post)
        weft_i_post_text(team->post, who, sizeof who);
    else
        snprintf(who, sizeof who, "rank %d of %d", team->group.rank, team->group.size);
    tell_operation(team->record, operation, sizeof operation);
    snprintf(out, bytes, "%s, %s of cuda:%d", who, operation, team->device->ordinal);
}

/* "rank 1", and where somebody looks out for it, what is known of it. */
static void tell_rank(const weft_i_cuda_team *team, int rank, char *out, size_t bytes)
{
    if (team->post)
        weft_i_post_describe(team->post, rank, out, bytes);
    else
        snprintf(out, bytes, "rank %d", rank);
}

#define RESET "nothing works on this memory until all ranks call weft_symm_reset"

/* "..., send of 3 f32 to rank 1, tag 0 of cuda:0: rank 1 called recv of 4 f32 from rank 0, tag 0" */
static weft_status tell_messages(const weft_i_cuda_team *team, const char *call)
{
    const weft_k_record *record = team->record;
    char theirs[96];
    if (!record->their_signature[1])
        return weft_i_fail(WEFT_ERR_MISMATCH,
                           "%s: rank %d found that the two ends of a message differ; " RESET, call,
                           (int)record->peer);
    weft_i_cuda_signature signature = {record->their_signature[1], record->their_signature[2]};
    return weft_i_fail(WEFT_ERR_MISMATCH,
                       "%s: the two ends of a message differ: rank %d called %s (on a device "
                       "messages between two ranks are taken in their order); " RESET,
                       call, (int)record->peer,
                       weft_i_cuda_signature_text(signature, theirs, sizeof theirs));
}

/* "this rank called A, rank 1 B" */
static weft_status tell_mismatch(const weft_i_cuda_team *team, const char *call)
{
    const weft_k_record *record = team->record;
    char mine[96], theirs[96];
    weft_i_cuda_signature my_signature = {record->my_signature[1], record->my_signature[2]};
    weft_i_cuda_signature their_signature = {record->their_signature[1],
                                             record->their_signature[2]};
    bool same =
        my_signature.what == their_signature.what && my_signature.count == their_signature.count;
    weft_i_cuda_signature_text(my_signature, mine, sizeof mine);
    weft_i_cuda_signature_text(their_signature, theirs, sizeof theirs);
    int lost = (int)((uint32_t)record->theirs & 0xffff) - 1; /* of poison: see WEFT_K_POISON */
    if (record->why == WEFT_K_POISONED && same && lost != team->group.rank)
        return weft_i_fail(WEFT_ERR_MISMATCH,
                           "%s: ranks called different things: this rank and rank %d called %s, "
                           "another rank something else; " RESET,
                           call, (int)record->peer, mine);
    return weft_i_fail(
        WEFT_ERR_MISMATCH,
        "%s: ranks called different things: this rank called %s, rank %d %s%s; " RESET, call, mine,
        (int)record->peer, theirs, same ? " of another place in symmetric memory" : "");
}

/* The group has ended before the rank came. */
static weft_status tell_end(const weft_i_cuda_team *team, const char *call, weft_status why,
                            const char *who)
{
    const char *quarrel =
        why == WEFT_ERR_MISMATCH && team->post ? weft_i_post_quarrel(team->post) : NULL;
    return quarrel ? weft_i_fail(why, "%s: %s; the group has ended", call, quarrel)
                   : weft_i_fail(why, "%s: %s will not come; waited %.1f ms", call, who,
                                 (double)team->record->waited_ns / 1e6);
}

static weft_status tell_poison(const weft_i_cuda_team *team, const char *call)
{
    uint32_t word = (uint32_t)team->record->theirs; /* see WEFT_K_POISON */
    int peer = (int)team->record->peer;
    char who[512];
    tell_rank(team, (int)(word & 0xffff) - 1, who, sizeof who);
    switch (word >> 24) {
    case WEFT_K_TIMEOUT:
        return weft_i_fail(WEFT_ERR_TIMEOUT, "%s: rank %d gave up waiting for %s; " RESET, call,
                           peer, who);
    case WEFT_K_MISMATCH:
        if (team->record->what == WEFT_K_COLLECTIVE && team->record->my_signature[1])
            return tell_mismatch(team, call);
        if (team->record->what == WEFT_K_MESSAGE)
            return tell_messages(team, call);
        return weft_i_fail(WEFT_ERR_MISMATCH,
                           "%s: rank %d found that %s had called something else; " RESET, call,
                           peer, who);
    default:
        if ((weft_status) - (int)(word >> 16 & 0xff) == WEFT_ERR_MISMATCH)
            return tell_end(team, call, WEFT_ERR_MISMATCH, who);
        return weft_i_fail((weft_status) - (int)(word >> 16 & 0xff),
                           "%s: %s will not come, as rank %d found", call, who, peer);
    }
}

static weft_status tell(const weft_i_cuda_team *team, uint64_t why)
{
    const weft_k_record *record = team->record;
    char call[320], who[512];
    double ms = (double)record->waited_ns / 1e6;
    tell_call(team, call, sizeof call);
    tell_rank(team, (int)record->peer, who, sizeof who);
    switch (why) {
    case WEFT_K_TIMEOUT:
        return weft_i_fail(WEFT_ERR_TIMEOUT, "%s: waited %.1f ms for %s; " RESET, call, ms, who);
    case WEFT_K_MISMATCH:
        if (record->what == WEFT_K_COLLECTIVE && record->my_signature[1])
            return tell_mismatch(team, call);
        if (record->what == WEFT_K_MESSAGE)
            return tell_messages(team, call);
        return weft_i_fail(WEFT_ERR_MISMATCH,
                           "%s: rank %d called something else (digest %08x, ours is %08x); " RESET,
                           call, (int)record->peer, (unsigned)record->theirs,
                           (unsigned)record->mine);
    case WEFT_K_POISONED:
        return tell_poison(team, call);
    default:
        return tell_end(team, call, (weft_status)(int32_t)record->theirs, who);
    }
}

/* Told once; the team goes on. */
static weft_status tell_refusal(const weft_i_cuda_team *team, uint64_t what)
{
    weft_k_record *record = team->record;
    weft_i_coll_kind kind = (weft_i_coll_kind)(record->refused_kind & 0xff);
    const char *op = kind < WEFT_I_COLL_KINDS ? weft_i_coll_name(kind) : "a collective";
    int rank = (int)record->refused_rank;
    long long rows = (long long)record->refused_rows;
    __atomic_store_n(&record->refused, 0, __ATOMIC_RELAXED); /* a later kernel may note another */
    if (what == WEFT_K_SENT)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the splits of rank %d are negative, or exceed the %lld rows of its "
                           "input (met by a kernel that was enqueued earlier on cuda:%d)",
                           op, rank, rows, team->device->ordinal);
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: what rank %d receives exceeds the %lld rows of its output (met by a "
                       "kernel that was enqueued earlier on cuda:%d)",
                       op, rank, rows, team->device->ordinal);
}

WEFT_I_COLD static weft_status tell_news(weft_i_cuda_team *team, uint64_t why, uint64_t refused)
{
    if (!why)
        return tell_refusal(team, refused);
    atomic_store_explicit(&team->told, true, memory_order_relaxed);
    return team->broken = tell(team, why);
}

static inline weft_status check(weft_i_cuda_team *team)
{
    /* Pairs with the releases in weft_k_give_up and weft_k_refuse: whoever sees one sees the rest. */
    uint64_t why = __atomic_load_n(&team->record->why, __ATOMIC_ACQUIRE);
    uint64_t refused = __atomic_load_n(&team->record->refused, __ATOMIC_ACQUIRE);
    return __builtin_expect(why || refused, 0) ? tell_news(team, why, refused) : WEFT_OK;
}

weft_status weft_i_cuda_team_check(weft_i_cuda_team *team)
{
    return check(team);
}

/* Is there something that nobody was told of? */
static bool has_news(const weft_i_cuda_team *team)
{
    const weft_k_record *record = team->record;
    /* Pairs with the releases in weft_k_give_up and weft_k_refuse. */
    if (__atomic_load_n(&record->why, __ATOMIC_ACQUIRE) != WEFT_K_FINE)
        return !atomic_load_explicit(&team->told, memory_order_relaxed);
    return __atomic_load_n(&record->refused, __ATOMIC_ACQUIRE);
}

/* The first team from `team` on that has news from the stream. */
static weft_i_cuda_team *find_news(weft_i_cuda_team *team, const weft_i_cuda_stream *stream)
{
    uint64_t bit = (uint64_t)1 << stream->number % 64;
    while (team && !(atomic_load_explicit(&team->streams, memory_order_relaxed) & bit &&
                     team->device == stream->device && has_news(team)))
        team = team->next;
    return team;
}

/* A loss that concerns the group has also ended what its other teams, of other memory, waited for:
 * whoever goes on with another group is not to hear of it again. */
static void hush_others(const weft_i_cuda_team *failed, const weft_i_cuda_stream *stream)
{
    weft_i_cuda_team *team = teams;
    bool all = failed->post && weft_status_scope(failed->broken) >= WEFT_SCOPE_GROUP;
    while (all && (team = find_news(team, stream))) {
        /* Relaxed: has_news was first. */
        if (team->post && weft_i_post_is_beside(team->post, failed->post) &&
            __atomic_load_n(&team->record->why, __ATOMIC_RELAXED) != WEFT_K_FINE)
            atomic_store_explicit(&team->told, true, memory_order_relaxed);
        team = team->next;
    }
}

/* Whoever has waited for a stream is told once of what failed there; calls on the team are told again
 * and again. */
static weft_status check_stream(const weft_i_cuda_stream *stream)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&lock);
    weft_i_cuda_team *failed = find_news(teams, stream);
    if (failed) { /* under the lock: its owner may close it */
        status = weft_i_cuda_team_check(failed);
        hush_others(failed, stream);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

__attribute__((constructor)) static void register_checks(void)
{
    weft_i_cuda_after_sync(check_stream);
    weft_i_cuda_at_close(drop_rooms);
}

weft_status weft_i_cuda_team_enter(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                   weft_i_cuda_turn turn, int channel, int rank,
                                   weft_i_cuda_front **out)
{
    *out = NULL;
    WEFT_TRY(check(team));
    uint64_t bit = (uint64_t)1 << stream->number % 64;
    /* Relaxed: whoever waits for the stream has enqueued there, or has been told by whoever did. */
    if (!(atomic_load_explicit(&team->streams, memory_order_relaxed) & bit))
        atomic_fetch_or_explicit(&team->streams, bit, memory_order_relaxed);
    if (team->post)
        weft_i_post_note_work(team->post);
    if (turn == WEFT_I_CUDA_ALONE || !team->meetings)
        return WEFT_OK;
    if (turn == WEFT_I_CUDA_MEETS)
        return weft_i_cuda_queue_enter(team->meetings, stream, 0, out);
    uint64_t word = (uint64_t)channel * (uint64_t)team->group.size + (uint64_t)rank;
    return weft_i_cuda_queue_enter(team->words, stream, 2 * word + (turn == WEFT_I_CUDA_WAITS),
                                   out);
}

weft_status weft_i_cuda_team_leave(weft_i_cuda_front *front, weft_i_cuda_stream *stream,
                                   weft_status status)
{
    weft_status left = front ? weft_i_cuda_queue_leave(front, stream) : WEFT_OK;
    return status < 0 ? status : left;
}

void weft_i_cuda_team_condemn(weft_i_cuda_team *team, weft_status status, int rank)
{
    /* Relaxed: the word is all there is to see.  Pairs with the load in weft_k_look_around. */
    __atomic_store_n(team->verdict, (uint64_t)(uint32_t)status << 32 | (uint32_t)(rank + 1),
                     __ATOMIC_RELAXED);
}

int weft_i_cuda_team_waits_for(const weft_i_cuda_team *team)
{
    /* Relaxed: only shown.  Pairs with the stores in weft_k_look_around and weft_k_waited. */
    return (int)__atomic_load_n(&team->record->waiting, __ATOMIC_RELAXED) - 1;
}

/* The first stream from number `from` on that carried work of the team gets a mark; -1: none. */
static int mark_next(const weft_i_cuda_team *team, int from, weft_i_cuda_mark *mark)
{
    uint64_t streams = atomic_load_explicit(&team->streams, memory_order_relaxed);
    weft_i_cuda_device *device = team->device;
    const weft_i_cuda_stream *found = NULL;
    pthread_mutex_lock(&device->lock);
    for (weft_i_cuda_stream *s = device->streams; s; s = s->next)
        if ((int)s->number >= from && streams >> s->number % 64 & 1 &&
            !weft_i_cuda_is_captured(s) && (!found || s->number < found->number))
            found = s;
    int number =
        found && weft_i_cuda_mark_set(mark, (weft_i_cuda_stream *)(uintptr_t)found) == WEFT_OK
            ? (int)found->number
            : -1;
    pthread_mutex_unlock(&device->lock);
    return number;
}

weft_status weft_i_cuda_team_await(weft_i_cuda_team *team, int64_t limit_ms)
{
    weft_i_cuda_mark mark = {NULL};
    weft_status status = weft_i_cuda_use(team->device);
    int64_t deadline = weft_i_os_deadline(limit_ms);
    for (int at = 0; status == WEFT_OK && (at = mark_next(team, at, &mark)) >= 0; at++)
        status =
            weft_i_cuda_mark_sync(&mark, limit_ms < 0 ? limit_ms : weft_i_os_ms_until(deadline));
    weft_i_cuda_mark_release(&mark);
    return status;
}

/* Number n of the teams of a world; NULL: it has fewer.  Its rank closes them, which leaves now. */
static weft_i_cuda_team *team_of(const struct weft_i_world *world, int n)
{
    pthread_mutex_lock(&lock);
    weft_i_cuda_team *found = teams;
    while (found && (!found->post || !weft_i_post_is_of(found->post, world) || n-- > 0))
        found = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

/*
 * A rank that leaves sees off what it has enqueued: its process may end next, and kernels of others
 * wait for its own.  Those end at the limits of their operations; where these have none, after a
 * while nobody counts on this rank.
 */
static void see_off(const struct weft_i_world *world)
{
    enum { WHILE_MS = 10000 };
    weft_i_errors before;
    int64_t deadline = weft_i_os_deadline(WHILE_MS);
    weft_i_errors_save(&before);
    weft_i_cuda_team *team = weft_i_cuda_check_process() < 0 ? NULL : team_of(world, 0);
    for (int n = 1; team; team = team_of(world, n++))
        weft_i_cuda_team_await(team, weft_i_os_ms_until(deadline)); /* what failed was told */
    weft_i_errors_restore(&before);
}

__attribute__((constructor)) static void register_farewell(void)
{
    weft_i_post_before_leaving(see_off);
}

/* Word by word: the sentry may look at `waiting` meanwhile.  Relaxed: no kernel runs.  Pairs with the
 * load in weft_i_cuda_team_waits_for. */
static void clear_record(weft_k_record *record)
{
    uint64_t *words = (uint64_t *)record;
    for (size_t i = 0; i < sizeof *record / sizeof *words; i++)
        __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
}

weft_status weft_i_cuda_team_reset(weft_i_cuda_team *team, weft_i_cuda_stream *stream)
{
    WEFT_TRY(weft_i_cuda_use(team->device));
    char *pad = weft_i_cuda_team_pad(team, team->group.rank);
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemsetD8Async((weft_i_cu_ptr)(uintptr_t)pad, 0,
                                                        team->pad_bytes,
                                                        weft_i_cuda_stream_raw(stream)),
                  "resetting signals on cuda:%d", team->device->ordinal);
    WEFT_TRY(weft_i_cuda_stream_sync(stream, WEFT_FOREVER));
    clear_record(team->record);
    __atomic_store_n(team->verdict, 0, __ATOMIC_RELAXED); /* no kernel runs */
    team->broken = WEFT_OK;
    atomic_store_explicit(&team->told, false, memory_order_relaxed); /* no kernel runs */
    return WEFT_OK;
}

static weft_status check_channel(const weft_i_cuda_team *team, int channel, int rank)
{
    if (channel < 0 || (uint32_t)channel >= team->group.channels)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "channel %d; there are 0 to %u", channel,
                           team->group.channels - 1);
    if (rank < 0 || rank >= team->group.size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d; there are 0 to %d", rank,
                           team->group.size - 1);
    return WEFT_OK;
}

static weft_status launch_signal(const weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                 weft_i_cuda_kernel kernel, int rank, int channel, int64_t limit_ms)
{
    weft_k_call call = {
        .group = team->group,
        .limit_ns = limit_ms < 0 ? 0 : (uint64_t)limit_ms * 1000000 + 1,
        .digest = weft_i_digest((uint32_t)kernel + 1, (uint64_t)channel),
        .peer = rank,
        .channel = (uint32_t)channel,
    };
    return weft_i_cuda_launch(stream, kernel, 1, team->device->kernel_threads[kernel], &call, true);
}

static weft_status signal_call(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                               weft_i_cuda_kernel kernel, weft_i_cuda_turn turn, int rank,
                               int channel, int64_t limit_ms)
{
    weft_i_cuda_front *front;
    WEFT_TRY(check(team));
    WEFT_TRY(check_channel(team, channel, rank));
    WEFT_TRY(weft_i_cuda_team_enter(team, stream, turn, channel, rank, &front));
    return weft_i_cuda_team_leave(front, stream,
                                  launch_signal(team, stream, kernel, rank, channel, limit_ms));
}

weft_status weft_i_cuda_barrier(weft_i_cuda_team *team, weft_i_cuda_stream *stream, int channel,
                                int64_t limit_ms)
{
    return signal_call(team, stream, WEFT_I_CUDA_barrier, WEFT_I_CUDA_MEETS, 0, channel, limit_ms);
}

weft_status weft_i_cuda_put_signal(weft_i_cuda_team *team, weft_i_cuda_stream *stream, int rank,
                                   int channel, int64_t limit_ms)
{
    return signal_call(team, stream, WEFT_I_CUDA_put_signal, WEFT_I_CUDA_PUTS, rank, channel,
                       limit_ms);
}

weft_status weft_i_cuda_wait_signal(weft_i_cuda_team *team, weft_i_cuda_stream *stream, int rank,
                                    int channel, int64_t limit_ms)
{
    return signal_call(team, stream, WEFT_I_CUDA_wait_signal, WEFT_I_CUDA_WAITS, rank, channel,
                       limit_ms);
}

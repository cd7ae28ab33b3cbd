/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_init and weft_finish.  There are four ways to stand in a job: as a thread of weft_spawn,
 * with a job page inherited from `weft run`, with a store (the caller's, or one found through the
 * variables of a launcher, also those of `weft run --hosts`), or alone.  All end the same way: the rank has a slot in a job
 * page, and the world's first exchange has told it that all ranks are there.
 */
#include "fabric/meet/meet.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/opts.h"
#include "base/report/os_look.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "base/team/team.h"
#include "fabric/group/exchange.h"
#include "fabric/group/hosts.h"
#include "fabric/world/news.h"
#include "fabric/world/spawn.h"
#include "store/client.h"
#include "store/server.h"
#include "store/store.h"
#include "weft/version.h"

#include <stdio.h>
#include <string.h>

enum { SLICE_MS = 100, FEW_BYTES = 4 << 20 };

/* All ranks of a job page are local: their addresses are in their slots. */
static void adopt_slots(weft_i_world *world)
{
    char host[65];
    weft_i_os_host_id(host);
    weft_i_job *job = weft_i_job_of(world->job);
    world->key = job->key;
    for (int rank = 0; rank < world->size; rank++) {
        world->peers[rank].rank_record = weft_i_job_rank(job, rank);
        snprintf(world->peers[rank].host, sizeof world->peers[rank].host, "%s", host);
    }
}

static weft_status enter_as_thread(const weft_i_seat *place, weft_i_world **out)
{
    weft_i_world *world = NULL;
    weft_status status = weft_i_world_new(place->rank, place->size, &world);
    if (status < 0) {
        weft_i_world_tell_failed(weft_i_job_rank(weft_i_job_of(place->job), place->rank));
        return status;
    }
    world->sharing = WEFT_I_BETWEEN_THREADS;
    status = weft_i_world_enter(world, place->job, place->fdpass, place->rank);
    if (status < 0) {
        weft_i_world_drop(world);
        return status;
    }
    adopt_slots(world);
    *out = world;
    return WEFT_OK;
}

/* Opens a descriptor server and enters the page; the page is the world's afterwards. */
static weft_status enter_page(weft_i_world *world, weft_i_segment *page, int local_rank)
{
    weft_i_fdpass *fdpass = NULL;
    world->sharing = WEFT_I_BETWEEN_PROCESSES;
    WEFT_TRY(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    weft_status status = weft_i_world_enter(world, page, fdpass, local_rank);
    weft_i_fdpass_drop(fdpass);
    if (status == WEFT_OK)
        adopt_slots(world);
    return status;
}

/*
 * The descriptor of the job page is ours once: later its number may be that of something else.
 * Relaxed: whoever loses has nothing to read.
 */
static atomic_bool page_taken;

static weft_status take_page(const weft_i_start *start)
{
    if (start->job_fd < 0 || !atomic_exchange_explicit(&page_taken, true, memory_order_relaxed))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_STATE,
                       "weft_init was called twice: this process has already entered its job");
}

/* Are ranks of `weft run` on other hosts as well?  Its page is of those here. */
static bool has_hosts(const weft_i_start *start)
{
    return start->job_fd >= 0 && start->hosts > 1 && start->local_size < start->size &&
           start->local_rank >= 0 && start->local_rank < start->local_size;
}

static weft_status map_inherited(const weft_i_start *start, weft_i_segment **out)
{
    int64_t bytes = weft_i_os_sealed_bytes(start->job_fd);
    if (bytes < 0)
        return weft_i_fail(WEFT_ERR_STATE,
                           "WEFT_JOB_FD=%d is not an open job page: weft_init was called twice, or "
                           "this program was "
                           "started by a rank instead of by weft run",
                           start->job_fd);
    /* Of the flight records of others, most of the page, hardly one is ever read.  With hundreds of
     * ranks entering them all into the tables of each takes longer than everything else. */
    weft_i_key none = {{0, 0}};
    WEFT_TRY(bytes > FEW_BYTES
                 ? weft_i_segment_map_sparsely(start->job_fd, (size_t)bytes, none, out)
                 : weft_i_segment_map(start->job_fd, (size_t)bytes, none, out));
    int ranks = 0, wanted = has_hosts(start) ? start->local_size : start->size;
    weft_status status = weft_i_job_check(*out, &ranks);
    if (status == WEFT_OK && ranks != wanted)
        status = weft_i_fail(WEFT_ERR_MISMATCH, "%s is %d but weft run started %d ranks",
                             has_hosts(start) ? "LOCAL_WORLD_SIZE" : "WORLD_SIZE", wanted, ranks);
    if (status < 0)
        weft_i_segment_drop(*out);
    return status;
}

static weft_status enter_inherited(const weft_i_start *start, weft_i_world *world)
{
    weft_i_segment *page = NULL;
    WEFT_TRY(map_inherited(start, &page));
    weft_i_job_keep_open(page, start->job_fd);
    weft_status status = enter_page(world, page, start->rank);
    weft_i_segment_drop(page);
    return status;
}

static weft_status enter_alone(weft_i_world *world)
{
    weft_i_segment *page = NULL;
    WEFT_TRY(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, &page));
    weft_status status = enter_page(world, page, 0);
    weft_i_segment_drop(page);
    return status;
}

static weft_status enter_by_store(const weft_i_start *start, weft_i_world *world, weft_store *given,
                                  int64_t deadline)
{
    weft_store *store = given;
    if (given && weft_i_store_is_fake(given))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_init: ranks cannot meet through a fake store; a group without "
                           "peers is made by weft_fake_init");
    if (!given)
        WEFT_TRY(weft_i_meet_find_store(start, deadline, &store));
    world->sharing = WEFT_I_BETWEEN_PROCESSES;
    world->own_store = !given;
    world->store =
        given ? weft_i_object_hold(given) : weft_keep(store); /* dropped with the world */
    return weft_i_meet_by_store(start, world, store, deadline);
}

/* Ranks on several hosts meet through a store; those of one share the page of their launcher. */
static weft_status enter_among_hosts(weft_i_start *start, weft_i_world *world, int64_t deadline)
{
    weft_i_segment *page = NULL;
    WEFT_TRY(map_inherited(start, &page));
    weft_i_job_keep_open(page, start->job_fd);
    start->page = page;
    weft_status status = enter_by_store(start, world, NULL, deadline);
    start->page = NULL;
    weft_i_segment_drop(page);
    return status;
}

/* The page is mapped, or never will be; then the others must not wait for us. */
static void close_inherited(const weft_i_start *start, weft_status status)
{
    if (start->job_fd < 0 || weft_i_os_sealed_bytes(start->job_fd) < 0)
        return;
    if (status < 0)
        weft_i_job_note_failed(start->job_fd, has_hosts(start) ? start->local_rank : start->rank);
    WEFT_OS->close(start->job_fd);
}

static weft_status enter_as_process(const weft_init_opts *opts, int64_t deadline,
                                    weft_i_world **out)
{
    weft_i_start start = {.launcher = "weft_init", .job_fd = -1};
    if (opts->store) {
        start.rank = opts->rank;
        start.size = opts->world_size;
        if (start.size < 1 || start.rank < 0 || start.rank >= start.size)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "weft_init: with a store, rank (%d) and world_size (%d) are needed",
                               start.rank, start.size);
    } else {
        WEFT_TRY(weft_i_start_read(&start));
        WEFT_TRY(take_page(&start));
    }
    weft_i_status_set_process_rank(start.rank);
    weft_status status = weft_i_world_new(start.rank, start.size, out);
    if (status == WEFT_OK && opts->store)
        status = enter_by_store(&start, *out, opts->store, deadline);
    else if (status == WEFT_OK && has_hosts(&start))
        status = enter_among_hosts(&start, *out, deadline);
    else if (status == WEFT_OK && start.job_fd >= 0)
        status = enter_inherited(&start, *out);
    else if (status == WEFT_OK && start.size == 1)
        status = enter_alone(*out);
    else if (status == WEFT_OK)
        status = enter_by_store(&start, *out, NULL, deadline);
    if (!opts->store)
        close_inherited(&start, status);
    if (status < 0) {
        weft_i_world_drop(*out);
        *out = NULL;
    }
    return status;
}

/* Everybody is here and has shown an address: learn where their servers are, and that they speak our
 * version. */
static weft_status read_addresses(weft_group *group)
{
    weft_i_world *world = group->world;
    for (int rank = 0; rank < world->size; rank++) {
        weft_i_peer *peer = &world->peers[rank];
        if (!peer->rank_record)
            continue;
        char version[sizeof peer->rank_record->address.version]; /* a copy, that what is told is
                                                                  * what differs
                                                                  */
        snprintf(version, sizeof version, "%.19s", peer->rank_record->address.version);
        if (strcmp(version, WEFT_VERSION))
            return weft_i_fail(WEFT_ERR_VERSION,
                               "weft_init: rank %d runs weft %s, rank %d runs weft %s", rank,
                               version, world->rank, WEFT_VERSION);
        snprintf(peer->fdpass, sizeof peer->fdpass, "%.63s", peer->rank_record->address.fdpass);
    }
    weft_i_world_count_cores(world);
    return WEFT_OK;
}

/* A rank has left: because it could not enter, or because it gave up waiting for others.  Then
 * those are the news. */
static weft_status name_missing(const weft_i_world *world)
{
    char names[512] = "";
    weft_i_text text = {names, sizeof names, 0};
    for (int rank = 0; rank < world->size && text.used + 48 < sizeof names; rank++) {
        const weft_i_rank_record *rank_record = world->peers[rank].rank_record;
        /* Pairs with the rank's releases, see job.h. */
        uint32_t state = rank_record
                             ? atomic_load_explicit(&rank_record->life.state, memory_order_acquire)
                             : WEFT_I_RANK_HERE;
        if (state == WEFT_I_RANK_FAILED)
            return WEFT_ERR_PEER_LEFT;
        if (state == WEFT_I_RANK_AWAITED)
            weft_i_text_put(&text, "%srank %d (never called weft_init)", text.used ? ", " : "",
                            rank);
    }
    return text.used ? weft_i_explain(WEFT_ERR_MISSING, "weft_init: waited for %s", names)
                     : WEFT_ERR_PEER_LEFT;
}

/* One exchange, in slices where a rank may fail in a way that only the store or its closed server
 * can tell. */
static weft_status gather(weft_group *group, int64_t deadline)
{
    weft_i_world *world = group->world;
    bool sliced = world->store && group->board;
    weft_status status;
    int64_t left;
    do {
        left = deadline == WEFT_I_NEVER ? INT64_MAX : (deadline - WEFT_OS->clock_ns()) / 1000000;
        left = left > 0 ? left : 0;
        int64_t slice = sliced && left > SLICE_MS ? SLICE_MS : left;
        status = weft_i_group_exchange(group, "init", NULL, 0, NULL,
                                       slice == INT64_MAX ? WEFT_FOREVER : slice);
        weft_status news =
            status == WEFT_ERR_TIMEOUT && sliced ? weft_i_meet_check(world) : WEFT_OK;
        /* Rank 0 takes the store along when all are here: then the board says so. */
        if (news < 0 && news != WEFT_ERR_UNREACHABLE && news != WEFT_ERR_TIMEOUT)
            return news;
    } while (status == WEFT_ERR_TIMEOUT && left > SLICE_MS && sliced);
    if (status == WEFT_ERR_PEER_LEFT)
        return name_missing(world);
    if (status == WEFT_ERR_TIMEOUT)
        return weft_i_explain(WEFT_ERR_MISSING, "weft_init");
    return status < 0 ? status : read_addresses(group);
}

/* When all ranks share a host the store has done its work; its server, and its name, may go. */
static void leave_store(weft_group *group)
{
    if (!group->local)
        return;
    weft_i_object_drop(group->world->store);
    group->world->store = NULL;
    weft_i_store_server_drop(group->world->standby, false);
    group->world->standby = NULL;
    group->world->told = false;
}

static weft_status check_limits(const weft_init_opts *opts)
{
    WEFT_TRY(weft_i_group_check_limit("weft_init: meet_timeout_ms", opts->meet_timeout_ms));
    return weft_i_group_check_limit("weft_init: timeout_ms", opts->timeout_ms);
}

/* The meeting has failed, and the reason is in the store: whoever serves that stays a moment, so that
 * the others hear of it and not only of a server that is gone. */
static void part(weft_group *group, int64_t deadline)
{
    weft_i_world *world = group->world;
    if (world->store && weft_i_store_client_serves(world->store)) {
        weft_i_errors reason;
        weft_i_errors_save(&reason);
        weft_i_world_leave(world);
        weft_i_meet_see_others_off(world->store, deadline);
        weft_i_errors_restore(&reason);
    }
    weft_release(group);
}

static weft_group *join(const weft_init_opts *opts, int64_t deadline)
{
    const weft_i_seat *place = weft_i_spawn_seat();
    weft_i_world *world = NULL;
    if ((place ? enter_as_thread(place, &world) : enter_as_process(opts, deadline, &world)) < 0)
        return NULL;
    if (opts->timeout_ms && opts->timeout_ms != WEFT_DEFAULT)
        world->timeout_ms = opts->timeout_ms;
    weft_group *group = weft_i_group_of_world(world);
    if (!group)
        return NULL;
    if (gather(group, deadline) < 0) {
        part(group, deadline);
        return NULL;
    }
    if (world->remote && weft_i_hosts_open_world(group, deadline) < 0) {
        part(group, deadline);
        return NULL;
    }
    weft_i_meet_clock(world);
    leave_store(group);
    return group;
}

/* What weft_init has failed of is its last error; before it come steps that were tried again. */
static void keep_last_error(void)
{
    weft_i_errors errors;
    weft_i_errors_save(&errors);
    errors.first = errors.last;
    memcpy(errors.first_text, errors.last_text, sizeof errors.first_text);
    weft_i_errors_restore(&errors);
}

/* Has the log told why this thread's last weft_init failed?  Then weft_finish need not. */
static _Thread_local bool refusal_told;

/* A program may end without another call, so this is the place; what concerns more than the call is
 * in the log already. */
static void tell_refusal(void)
{
    weft_status status = weft_last_status();
    if (weft_status_scope(status) < WEFT_SCOPE_GROUP)
        weft_i_log(WEFT_LOG_WARN, "%s (%s)", weft_last_error(), weft_status_name(status));
    refusal_told = true;
}

enum { LOOKS = 4 };
static void (*looks_at_settings[LOOKS])(void); /* of higher floors; the rest are NULL */

void weft_i_meet_then(void (*look)(void))
{
    int count = 0;
    while (count < LOOKS && looks_at_settings[count])
        count++;
    WEFT_ASSERT(count < LOOKS);
    looks_at_settings[count] = look;
}

static void tell_of_world(const weft_group *group)
{
    if (group->rank == 0)
        weft_i_env_tell();
    weft_i_log(WEFT_LOG_INFO, "world of %d ranks, %d on this host, %s, %s", group->size,
               group->world->local_size,
               group->world->mode == WEFT_I_WAIT_SPIN ? "a core each" : "sharing cores",
               group->world->sharing == WEFT_I_BETWEEN_THREADS ? "backend threads" : "backend shm");
    for (int i = 0; i < LOOKS && looks_at_settings[i]; i++)
        looks_at_settings[i]();
}

static weft_group *init(const weft_init_opts *given)
{
    weft_init_opts opts = {.size = sizeof opts};
    weft_clear_error();
    if (weft_i_opts_copy(&opts, sizeof opts, given, "weft_init (start from WEFT_INIT_OPTS)") < 0 ||
        check_limits(&opts) < 0 || weft_i_env_check() < 0)
        return NULL;
    weft_i_env_note();
    int64_t limit = opts.meet_timeout_ms == WEFT_DEFAULT ? 0 : opts.meet_timeout_ms;
    if (!limit && weft_i_env_number(WEFT_I_ENV_MEET_TIMEOUT, &limit) < 0)
        return NULL;
    int64_t deadline = weft_i_os_deadline(limit);
    /* The store's own limit is far longer than a meeting's. */
    int64_t before = weft_i_store_until(weft_i_store_late(deadline));
    weft_group *group = join(&opts, deadline);
    weft_i_store_until(before);
    if (!group) {
        keep_last_error();
        return NULL;
    }
    weft_clear_error(); /* waiting in slices left traces */
    tell_of_world(group);
    return group;
}

weft_group *weft_init(const weft_init_opts *given)
{
    weft_group *group = init(given);
    refusal_told = false;
    if (!group)
        tell_refusal();
    return group;
}

/* A trace that cannot be written is no failure of the job. */
static void write_trace(const weft_group *world)
{
    weft_i_errors before;
    const char *path = weft_i_env_text(WEFT_I_ENV_TRACE);
    if (!*path || !world->world->mine)
        return;
    weft_i_errors_save(&before);
    weft_i_meet_clock(world->world); /* clocks drift apart */
    if (weft_i_job_write_trace(world->world->mine, world->world->rank, path) < 0)
        weft_i_log(WEFT_LOG_WARN, "%s", weft_last_error());
    weft_i_errors_restore(&before);
}

static bool none_under_way(void *world)
{
    /* Pairs with the release in work.c: what they wrote is written. */
    return atomic_load_explicit(&((weft_i_world *)world)->under_way, memory_order_acquire) == 0;
}

/* Posted collectives need this rank until they are over; each has a limit of its own. */
static void see_posted_off(weft_i_world *world)
{
    weft_i_wait wait = {
        .ready = none_under_way, .arg = world, .deadline = WEFT_I_NEVER, .mode = WEFT_I_WAIT_SLEEP};
    if (!none_under_way(world))
        weft_i_wait_for(&wait);
}

/* Nothing is lost: they are completed all the same, and those that fail count. */
static void tell_unwaited(weft_i_world *world)
{
    int left = atomic_load_explicit(&world->unwaited, memory_order_relaxed);
    if (left > 0)
        weft_i_log(WEFT_LOG_INFO,
                   "finished while nobody had waited for the results of %d operation%s", left,
                   left == 1 ? "" : "s");
}

/* The thread's own first error; without one, a group that another thread of the rank has lost. */
static weft_status first_error(const weft_group *world, char text[WEFT_I_MESSAGE_BYTES])
{
    const char *mine = NULL;
    weft_status first = weft_i_first_error(&mine);
    snprintf(text, WEFT_I_MESSAGE_BYTES, "%s", mine);
    return first < 0 || !world || !world->world ? first
                                                : weft_i_losses_first(&world->world->losses, text);
}

int weft_finish(weft_group *world)
{
    if (world && weft_i_world_usable(world->world) == WEFT_OK) {
        weft_i_env_tell_late();
        tell_unwaited(world->world);
        see_posted_off(world->world);
        weft_i_world_say_farewell(world->world);
        write_trace(world);
        weft_i_world_leave(world->world);
        weft_i_news_see_off(world->world);
    }
    weft_i_team_rest();
    char text[WEFT_I_MESSAGE_BYTES];
    weft_status first = first_error(world, text);
    bool told = weft_status_scope(first) == WEFT_SCOPE_GROUP || (!world && refusal_told);
    if (first < 0 && told) /* its message is in the log already */
        weft_i_log(WEFT_LOG_WARN, "finished after an error (%s)", weft_status_name(first));
    else if (first < 0)
        weft_i_log(WEFT_LOG_WARN, "finished after an error: %s (%s)", text,
                   weft_status_name(first));
    return -(int)first;
}

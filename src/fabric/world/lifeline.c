/* SPDX-License-Identifier: Apache-2.0 */
/* Lifelines: their beginning, their thread, and their end; see lifeline.h. */
#include "lifeline_parts.h"

#include "base/machine/nofork.h"
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"
#include "store/client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SILENCE_LEAST_MS = 400, BEATS = 4, FAREWELL_MS = 200, BATCH = 16 };
enum { UNWATCHED = -1, UNSEEN = -2 }; /* instead of a descriptor of a process */

/* ---- what is kept ---- */

static void number_hosts(weft_i_lifeline *life, int *first_of)
{
    const weft_i_peer *peers = life->world->peers;
    for (int rank = 0; rank < life->self.ranks; rank++) {
        int host = 0;
        while (host < life->hosts && strcmp(peers[first_of[host]].host, peers[rank].host))
            host++;
        if (host == life->hosts)
            first_of[life->hosts++] = rank;
        life->rank[rank].host = host;
    }
    life->mine = life->rank[life->self.rank].host;
}

static void list_members(weft_i_lifeline *life)
{
    int *list = life->numbers;
    for (int host = 0; host < life->hosts; host++) {
        life->host[host] = (weft_i_life_host){.members = list, .contact = -1, .link.rank = -1};
        for (int rank = 0; rank < life->self.ranks; rank++)
            if (life->rank[rank].host == host) {
                *list++ = rank;
                life->host[host].count++;
            }
    }
    WEFT_ASSERT(list == life->numbers + life->self.ranks);
}

static void free_all(weft_i_lifeline *life)
{
    WEFT_ASSERT(!life->has_thread);
    for (int rank = 0; life->rank && rank < life->self.ranks; rank++)
        WEFT_OS->free(life->rank[rank].told);
    WEFT_OS->free(life->rank);
    WEFT_OS->free(life->host);
    WEFT_OS->free(life->numbers);
    WEFT_OS->free(life->in);
    WEFT_OS->free(life->process);
    WEFT_OS->free(life->polled);
    weft_i_keyed_forget(&life->self, sizeof life->self);
    pthread_mutex_destroy(&life->lock);
    WEFT_OS->free(life);
}

/* Who may dial us: the ranks of this host, and a guard of each other one. */
static weft_status allocate(weft_i_world *world, weft_i_lifeline **out)
{
    size_t ranks = (size_t)world->size;
    weft_i_lifeline *life = WEFT_OS->alloc(sizeof *life);
    if (!life)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for lifelines");
    pthread_mutex_init(&life->lock, NULL);
    life->world = world;
    life->self.rank = world->rank;
    life->self.ranks = world->size;
    life->listener = life->wake = -1;
    life->rank = WEFT_OS->alloc(ranks * sizeof *life->rank);
    life->numbers = WEFT_OS->alloc(ranks * sizeof *life->numbers);
    life->process = WEFT_OS->alloc(ranks * sizeof *life->process);
    if (life->rank && life->numbers && life->process) {
        for (size_t rank = 0; rank < ranks; rank++)
            life->process[rank] = UNWATCHED;
        number_hosts(life, life->numbers);
        life->in_most = life->hosts + world->local_size + WEFT_I_LIFE_STRANGERS;
        life->host = WEFT_OS->alloc((size_t)life->hosts * sizeof *life->host);
        life->in = WEFT_OS->alloc((size_t)life->in_most * sizeof *life->in);
        life->polled = WEFT_OS->alloc((2 + ranks + (size_t)life->hosts + (size_t)life->in_most) *
                                      sizeof *life->polled);
    }
    *out = life;
    if (life->host && life->in && life->polled) {
        list_members(life);
        return WEFT_OK;
    }
    free_all(life);
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for lifelines to %d ranks", world->size);
}

/* ---- its beginning ---- */

static weft_status listen_at(weft_i_lifeline *life, weft_store *store,
                             char address[WEFT_I_LIFELINE_ADDRESS])
{
    weft_i_store_addresses here = {.count = 1};
    weft_i_store_address bound;
    char text[WEFT_I_STORE_ADDRESS_TEXT];
    if (!weft_i_store_client_is(store) || !weft_i_store_client_here(store, &here.list[0]))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "the ranks have not met through a store over TCP, so that it is not "
                           "known which network is between them");
    life->listener = weft_i_store_address_listen(&here, &bound);
    if (life->listener < 0)
        return weft_last_status();
    weft_i_store_address_text(&bound, text);
    snprintf(address, WEFT_I_LIFELINE_ADDRESS, "%.*s", WEFT_I_LIFELINE_ADDRESS - 1, text);
    life->wake = WEFT_OS->eventfd(0);
    return life->wake < 0 ? weft_i_fail_errno(errno, "cannot make an eventfd for lifelines")
                          : WEFT_OK;
}

weft_status weft_i_lifeline_open(weft_i_world *world, weft_store *store, weft_i_lifeline **out,
                                 char address[WEFT_I_LIFELINE_ADDRESS])
{
    weft_i_lifeline *life = NULL;
    *address = 0;
    WEFT_TRY(allocate(world, &life));
    weft_status status = listen_at(life, store, address);
    if (status < 0)
        weft_i_lifeline_drop(life);
    else
        *out = life;
    return status;
}

void weft_i_lifeline_know(weft_i_lifeline *life, int rank, const char *address)
{
    WEFT_ASSERT(rank >= 0 && rank < life->self.ranks && !life->has_thread);
    snprintf(life->rank[rank].address, sizeof life->rank[rank].address, "%s", address);
}

/* ---- the thread ---- */

/* Whose end has to wake us: the processes of this host, if we are its guard. */
static void watch_processes(weft_i_lifeline *life)
{
    const weft_i_life_host *here = &life->host[life->mine];
    for (int i = 0; i < here->count; i++) {
        int rank = here->members[i];
        bool wanted = life->guards && rank != life->self.rank && weft_i_life_lives(life, rank);
        const weft_i_rank_record *record = life->world->peers[rank].rank_record;
        if (wanted && life->process[rank] == UNWATCHED) {
            int process = WEFT_I_READ_ONCE(record->address.process);
            life->process[rank] = process > 0 ? WEFT_OS->pidfd_open(process) : -1;
            if (life->process[rank] < 0)
                life->process[rank] = UNSEEN;
        } else if (!wanted && life->process[rank] >= 0) {
            WEFT_OS->close(life->process[rank]);
            life->process[rank] = UNWATCHED;
        }
    }
}

/* A number of another space of processes: who has ended is somebody else. */
static void take_ends(weft_i_lifeline *life, const struct pollfd *ended, nfds_t count)
{
    const weft_i_life_host *here = &life->host[life->mine];
    for (nfds_t at = 0; at < count; at++)
        for (int i = 0; ended[at].revents && i < here->count; i++) {
            int rank = here->members[i];
            const weft_i_rank_record *record = life->world->peers[rank].rank_record;
            if (life->process[rank] != ended[at].fd || weft_i_watch_fate(record) != WEFT_I_ALIVE)
                continue;
            WEFT_OS->close(life->process[rank]);
            life->process[rank] = UNSEEN;
        }
}

/* Without a descriptor of a process we look more often. */
static bool sees_all(const weft_i_lifeline *life)
{
    const weft_i_life_host *here = &life->host[life->mine];
    for (int i = 0; life->guards && i < here->count; i++) {
        int rank = here->members[i];
        if (rank != life->self.rank && life->process[rank] < 0 && weft_i_life_lives(life, rank))
            return false;
    }
    return true;
}

/* A place for one who comes: a free one, or that of the stranger who has said nothing for longest. */
static weft_i_life_link *find_place(weft_i_lifeline *life)
{
    weft_i_life_link *oldest = NULL, *free_one = NULL;
    int strangers = 0;
    for (int i = 0; i < life->in_most; i++) {
        weft_i_life_link *link = &life->in[i];
        if (link->stage == WEFT_I_LIFE_CLOSED) {
            free_one = link;
        } else if (link->stage != WEFT_I_LIFE_OPEN) {
            strangers++;
            if (!oldest || link->since < oldest->since)
                oldest = link;
        }
    }
    if (free_one && strangers < WEFT_I_LIFE_STRANGERS)
        return free_one;
    if (oldest)
        weft_i_life_close(oldest);
    return oldest;
}

static void accept_some(weft_i_lifeline *life)
{
    for (int i = 0; i < BATCH; i++) {
        int fd = WEFT_OS->accept(life->listener, false);
        if (fd < 0)
            return;
        weft_i_life_link *place = find_place(life);
        if (place)
            weft_i_life_accept(place, &life->self, fd);
        else
            WEFT_OS->close(fd);
    }
}

/* A rank has one connection to us: the newest. */
static void replace_older(weft_i_lifeline *life, const weft_i_life_link *link)
{
    for (int i = 0; i < life->in_most; i++)
        if (&life->in[i] != link && life->in[i].stage == WEFT_I_LIFE_OPEN &&
            life->in[i].rank == link->rank)
            weft_i_life_close(&life->in[i]);
}

static void take_said(weft_i_lifeline *life, weft_i_life_link *link, weft_i_life_stage before,
                      const weft_i_life_said *said)
{
    if (before != WEFT_I_LIFE_OPEN && link->stage == WEFT_I_LIFE_OPEN) {
        replace_older(life, link);
        weft_i_life_tell_all(life, link);
    }
    if (said->kind == WEFT_I_LIFE_PING)
        weft_i_life_say_number(link, WEFT_I_LIFE_PONG, said->number);
    else if (said->kind == WEFT_I_LIFE_NEWS)
        weft_i_life_learn(life, &said->news, link);
}

static void guest_moves(weft_i_lifeline *life, weft_i_life_link *link, short revents)
{
    weft_i_life_end end = weft_i_life_move(link, &life->self, revents);
    weft_i_life_said said;
    weft_i_life_stage before = link->stage;
    int got;
    while ((got = weft_i_life_next(link, &life->self, &said)) > 0) {
        take_said(life, link, before, &said);
        before = link->stage;
    }
    if (got < 0 || end != WEFT_I_LIFE_GOES_ON)
        weft_i_life_close(link);
}

static void add(weft_i_lifeline *life, nfds_t *count, int fd, short events)
{
    WEFT_ASSERT(*count < (nfds_t)(2 + life->self.ranks + life->hosts + life->in_most));
    life->polled[(*count)++] = (struct pollfd){.fd = fd, .events = events};
}

static nfds_t list_sockets(weft_i_lifeline *life)
{
    nfds_t count = 0;
    add(life, &count, life->wake, POLLIN);
    add(life, &count, life->listener, POLLIN);
    for (int i = 0; i < life->hosts + life->in_most; i++) {
        const weft_i_life_link *link =
            i < life->hosts ? &life->host[i].link : &life->in[i - life->hosts];
        bool open = link->stage != WEFT_I_LIFE_CLOSED;
        add(life, &count, open ? link->line.fd : -1, open ? weft_i_life_events(link) : 0);
    }
    const weft_i_life_host *here = &life->host[life->mine];
    for (int i = 0; i < here->count; i++)
        if (life->process[here->members[i]] >= 0)
            add(life, &count, life->process[here->members[i]], POLLIN);
    return count;
}

static void move_all(weft_i_lifeline *life, nfds_t listed)
{
    const struct pollfd *polled = life->polled;
    int64_t now = WEFT_OS->clock_ns();
    uint64_t count;
    if (polled[0].revents && WEFT_OS->read(life->wake, &count, sizeof count) < 0 && errno != EAGAIN)
        WEFT_OS->sleep_ns(WEFT_I_LIFE_HASTE_MS * 1000000LL); /* the program has closed it */
    for (int i = 0; i < life->hosts; i++)
        if (polled[2 + i].revents && life->host[i].link.stage != WEFT_I_LIFE_CLOSED)
            weft_i_life_host_moves(life, &life->host[i], polled[2 + i].revents, now);
    for (int i = 0; i < life->in_most; i++)
        if (polled[2 + life->hosts + i].revents && life->in[i].stage != WEFT_I_LIFE_CLOSED)
            guest_moves(life, &life->in[i], polled[2 + life->hosts + i].revents);
    if (polled[1].revents)
        accept_some(life);
    nfds_t sockets = (nfds_t)(2 + life->hosts + life->in_most);
    WEFT_ASSERT(listed >= sockets);
    take_ends(life, polled + sockets, listed - sockets);
}

static void ask_all_now(weft_i_lifeline *life)
{
    if (!atomic_exchange_explicit(&life->urgent, false, memory_order_relaxed))
        return;
    for (int i = 0; i < life->hosts; i++)
        life->host[i].beat_at = 0;
}

/* Who may still read what we have said is given a moment. */
static void say_farewell(weft_i_lifeline *life)
{
    weft_i_life_news left = {.rank = life->self.rank, .fate = WEFT_I_LEFT, .text = "left the job"};
    int64_t end = weft_i_os_deadline(FAREWELL_MS);
    bool unsent = true;
    weft_i_life_learn(life, &left, NULL);
    while (unsent && WEFT_OS->clock_ns() < end) {
        unsent = false;
        for (int i = 0; i < life->hosts + life->in_most; i++) {
            weft_i_life_link *link =
                i < life->hosts ? &life->host[i].link : &life->in[i - life->hosts];
            if (link->stage == WEFT_I_LIFE_OPEN && weft_i_store_link_flush(&link->line) == WEFT_OK)
                unsent |= weft_i_store_link_unsent(&link->line) > 0;
        }
        if (unsent)
            WEFT_OS->sleep_ns(1000000);
    }
}

static void *keep_lines(void *arg)
{
    weft_i_lifeline *life = arg;
    weft_i_errors nothing; /* this thread fails for nobody */
    weft_i_errors_save(&nothing);
    while (!atomic_load_explicit(&life->stop, memory_order_acquire)) {
        int guard = weft_i_life_look(life);
        ask_all_now(life);
        int wait = weft_i_life_tend(life, guard, WEFT_OS->clock_ns());
        watch_processes(life);
        if (!sees_all(life) && wait > WEFT_I_LIFE_HASTE_MS)
            wait = WEFT_I_LIFE_HASTE_MS;
        nfds_t count = list_sockets(life);
        if (WEFT_OS->poll(life->polled, count, wait) > 0)
            move_all(life, count);
        weft_i_errors_restore(&nothing);
    }
    say_farewell(life);
    return NULL;
}

weft_status weft_i_lifeline_start(weft_i_lifeline *life, const uint8_t secret[WEFT_I_KEYED_BYTES])
{
    WEFT_ASSERT(!life->has_thread && life->listener >= 0);
    int64_t silence = weft_i_env_number_or_default(WEFT_I_ENV_SILENCE);
    silence = silence < SILENCE_LEAST_MS ? SILENCE_LEAST_MS : silence;
    silence = silence > INT32_MAX ? INT32_MAX : silence;
    life->silence_ns = silence * 1000000;
    life->beat_ns = life->silence_ns / BEATS;
    weft_i_life_self_set(&life->self, secret, life->world->key, life->world->rank,
                         life->world->size, (int)silence);
    int error = WEFT_OS->thread_create(&life->thread, keep_lines, life);
    if (error)
        return weft_i_fail_errno(error, "cannot start a thread for lifelines");
    life->has_thread = true;
    return WEFT_OK;
}

/* ---- for the others of this rank ---- */

static void wake(weft_i_lifeline *life)
{
    uint64_t one = 1;
    ssize_t ignored = WEFT_OS->write(life->wake, &one, sizeof one);
    (void)ignored; /* without it the thread looks after a tick */
}

void weft_i_lifeline_suspect(weft_i_lifeline *life)
{
    if (!life)
        return;
    atomic_store_explicit(&life->urgent, true, memory_order_relaxed);
    wake(life);
}

bool weft_i_lifeline_put(weft_i_lifeline *life, int rank, weft_i_text *out)
{
    if (!life)
        return false;
    pthread_mutex_lock(&life->lock);
    const weft_i_life_news *told = life->rank[rank].told;
    bool says = told && (told->fate != WEFT_I_ALIVE || told->stopped);
    bool mute = !says && life->rank[rank].mute;
    if (says)
        weft_i_text_put(out, ": %s", told->text);
    if (mute)
        weft_i_text_put(out, ": does not answer, though its host does: stopped, or starved of "
                             "processor time");
    pthread_mutex_unlock(&life->lock);
    return says || mute;
}

bool weft_i_lifeline_is_stopped(weft_i_lifeline *life, int rank)
{
    return life && weft_i_life_is_stopped(life, rank);
}

/* ---- its end ---- */

void weft_i_lifeline_leave(weft_i_lifeline *life)
{
    if (!life || !life->has_thread)
        return;
    /* Pairs with the acquire in keep_lines. */
    atomic_store_explicit(&life->stop, true, memory_order_release);
    wake(life);
    WEFT_OS->thread_join(life->thread);
    life->has_thread = false;
}

void weft_i_lifeline_drop(weft_i_lifeline *life)
{
    if (!life || life->world->generation != weft_i_os_generation())
        return; /* a forked child: all of it is the parent's */
    weft_i_lifeline_leave(life);
    for (int i = 0; i < life->hosts; i++)
        weft_i_life_close(&life->host[i].link);
    for (int i = 0; i < life->in_most; i++)
        weft_i_life_close(&life->in[i]);
    for (int rank = 0; rank < life->self.ranks; rank++)
        if (life->process[rank] >= 0)
            WEFT_OS->close(life->process[rank]);
    if (life->listener >= 0)
        weft_i_nofork_close(life->listener);
    if (life->wake >= 0)
        WEFT_OS->close(life->wake);
    free_all(life);
}

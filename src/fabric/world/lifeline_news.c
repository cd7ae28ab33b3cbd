/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of the lives of ranks, and how it spreads; see lifeline.h. */
#include "lifeline_parts.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "store/client.h"

#include <stdio.h>
#include <string.h>

enum { BEATS_MISSED_NS = 500 * 1000 * 1000 };

static int known_fate(const weft_i_lifeline *life, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < life->self.ranks);
    const weft_i_life_news *told = life->rank[rank].told;
    return told ? told->fate : WEFT_I_ALIVE;
}

/* Of ranks elsewhere also what others tell us: pairs, and the store. */
bool weft_i_life_lives(const weft_i_lifeline *life, int rank)
{
    const weft_i_peer *peer = &life->world->peers[rank];
    return known_fate(life, rank) == WEFT_I_ALIVE &&
           (peer->rank_record
                ? weft_i_watch_fate(peer->rank_record) == WEFT_I_ALIVE
                : atomic_load_explicit(&peer->gone, memory_order_relaxed) == WEFT_I_ALIVE);
}

bool weft_i_life_is_stopped(weft_i_lifeline *life, int rank)
{
    pthread_mutex_lock(&life->lock);
    const weft_i_life_news *told = life->rank[rank].told;
    bool stopped = life->rank[rank].mute || (told && told->fate == WEFT_I_ALIVE && told->stopped);
    pthread_mutex_unlock(&life->lock);
    return stopped;
}

void weft_i_life_set_mute(weft_i_lifeline *life, int rank, bool mute)
{
    pthread_mutex_lock(&life->lock);
    life->rank[rank].mute = mute;
    pthread_mutex_unlock(&life->lock);
}

/* True: it was new. */
static bool note(weft_i_lifeline *life, const weft_i_life_news *news)
{
    WEFT_ASSERT(news->rank >= 0 && news->rank < life->self.ranks);
    weft_i_life_rank *rank = &life->rank[news->rank];
    bool fresh = false;
    pthread_mutex_lock(&life->lock);
    if (!rank->told)
        rank->told = WEFT_OS->alloc(sizeof *rank->told); /* without memory it is told of again */
    if (rank->told && rank->told->fate == WEFT_I_ALIVE)
        fresh = news->fate != WEFT_I_ALIVE || news->serial > rank->told->serial;
    if (fresh)
        *rank->told = *news;
    pthread_mutex_unlock(&life->lock);
    return fresh;
}

/* Relaxed: nothing hangs on it.  What was heard first stands. */
static void mark_gone(weft_i_lifeline *life, const weft_i_life_news *news)
{
    weft_i_peer *peer = &life->world->peers[news->rank];
    int alive = WEFT_I_ALIVE;
    if (news->fate == WEFT_I_ALIVE || peer->rank_record)
        return;
    atomic_compare_exchange_strong_explicit(&peer->gone, &alive, news->fate, memory_order_relaxed,
                                            memory_order_relaxed);
    weft_i_log(WEFT_LOG_INFO, "rank %d on host %.40s: %s", news->rank, peer->host, news->text);
    /* Relaxed: if another one serves it by now, that one is not doubted for long. */
    if (news->fate == WEFT_I_DEAD && weft_i_store_client_is(life->world->store) &&
        atomic_load_explicit(&life->world->server, memory_order_relaxed) == news->rank)
        weft_i_store_client_doubt(life->world->store);
}

static bool is_here(const weft_i_lifeline *life, int rank)
{
    return life->rank[rank].host == life->mine;
}

static void spread(weft_i_lifeline *life, const weft_i_life_news *news,
                   const weft_i_life_link *from, bool only_here)
{
    for (int i = 0; i < life->hosts + life->in_most; i++) {
        weft_i_life_link *link = i < life->hosts ? &life->host[i].link : &life->in[i - life->hosts];
        if (link != from && link->stage == WEFT_I_LIFE_OPEN &&
            (link->rank != news->rank || news->fate == WEFT_I_DEAD) &&
            (!only_here || is_here(life, link->rank)))
            weft_i_life_say_news(link, news);
    }
}

/* The others have given this host up: they do not come back to its groups. */
static void be_outcast(weft_i_lifeline *life, const weft_i_life_news *news,
                       const weft_i_life_link *from)
{
    if (life->outcast)
        return;
    life->outcast = true;
    weft_i_log(WEFT_LOG_WARN, "the other hosts have taken this one for dead (%s)", news->text);
    spread(life, news, from, true);
    for (int rank = 0; rank < life->self.ranks; rank++) {
        weft_i_life_news lost = {.rank = rank, .fate = WEFT_I_DEAD};
        snprintf(lost.text, sizeof lost.text, "has taken this host for dead (%.120s)", news->text);
        if (is_here(life, rank) || !weft_i_life_lives(life, rank) || !note(life, &lost))
            continue;
        mark_gone(life, &lost);
        spread(life, &lost, from, true);
    }
}

void weft_i_life_learn(weft_i_lifeline *life, const weft_i_life_news *news,
                       const weft_i_life_link *from)
{
    /* Of this host others know nothing that we do not know better, but that they have given it up. */
    bool stranger = from && from->rank >= 0 && !is_here(life, from->rank);
    if (news->rank == life->self.rank && from) {
        if (news->fate == WEFT_I_DEAD)
            be_outcast(life, news, from);
        return;
    }
    if ((stranger && is_here(life, news->rank)) || !note(life, news))
        return;
    mark_gone(life, news);
    spread(life, news, from, life->outcast);
}

void weft_i_life_tell_all(weft_i_lifeline *life, weft_i_life_link *link)
{
    for (int rank = 0; rank < life->self.ranks; rank++) {
        const weft_i_life_news *told = life->rank[rank].told;
        if (told && (told->fate != WEFT_I_ALIVE || told->serial) &&
            (!life->outcast || is_here(life, link->rank)))
            weft_i_life_say_news(link, told);
    }
}

void weft_i_life_mark_dead(weft_i_lifeline *life, int rank, const char *text)
{
    weft_i_life_news news = {.rank = rank, .fate = WEFT_I_DEAD};
    snprintf(news.text, sizeof news.text, "%s", text);
    weft_i_life_learn(life, &news, NULL);
}

/* ---- this host ---- */

/* Stopped by a signal?  The system is asked only about those whose heart has not beaten for a while. */
static bool seems_stopped(const weft_i_rank_record *record)
{
    int64_t beat = atomic_load_explicit(&record->heart.beat_ns, memory_order_relaxed);
    return beat && WEFT_OS->clock_ns() - beat > BEATS_MISSED_NS && weft_i_watch_is_stopped(record);
}

static void look_at(weft_i_lifeline *life, int rank)
{
    const weft_i_rank_record *record = life->world->peers[rank].rank_record;
    const weft_i_life_news *told = life->rank[rank].told;
    uint64_t beats = atomic_load_explicit(&record->heart.beats, memory_order_relaxed);
    weft_i_life_news news = {.rank = rank, .fate = weft_i_watch_fate(record)};
    news.stopped = news.fate == WEFT_I_ALIVE && seems_stopped(record);
    /* Later ones count more, and that it is stopped counts more than that it was not. */
    news.serial = beats * 2 + news.stopped;
    bool same = told ? told->fate == news.fate && told->stopped == news.stopped
                     : news.fate == WEFT_I_ALIVE && !news.stopped;
    if (same || known_fate(life, rank) != WEFT_I_ALIVE)
        return;
    weft_i_text text = {news.text, sizeof news.text, 0};
    weft_i_watch_describe(record, &text);
    weft_i_life_learn(life, &news, NULL);
}

/* What pairs and the store have told of ranks elsewhere is news to others too. */
static void look_elsewhere(weft_i_lifeline *life)
{
    for (int rank = 0; rank < life->self.ranks; rank++) {
        const weft_i_peer *peer = &life->world->peers[rank];
        int gone = atomic_load_explicit(&peer->gone, memory_order_relaxed);
        if (peer->rank_record || gone == WEFT_I_ALIVE || known_fate(life, rank) != WEFT_I_ALIVE)
            continue;
        weft_i_life_news news = {.rank = rank, .fate = gone};
        snprintf(news.text, sizeof news.text, "%s",
                 gone == WEFT_I_LEFT ? "left the job" : "died, or exited without weft_finish");
        weft_i_life_learn(life, &news, NULL);
    }
}

int weft_i_life_look(weft_i_lifeline *life)
{
    const weft_i_life_host *here = &life->host[life->mine];
    int guard = -1;
    if (life->guards && !life->outcast)
        look_elsewhere(life);
    for (int i = 0; i < here->count; i++) {
        int rank = here->members[i];
        if (rank != life->self.rank)
            look_at(life, rank);
        bool fit = rank == life->self.rank ||
                   (weft_i_life_lives(life, rank) && !weft_i_life_is_stopped(life, rank));
        if (fit && guard < 0)
            guard = rank;
    }
    return guard;
}

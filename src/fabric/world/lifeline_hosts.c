/* SPDX-License-Identifier: Apache-2.0 */
/* The connections that a rank dials: whom it asks, and when it takes a host for dead; see lifeline.h. */
#include "lifeline_parts.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "fabric/world/news.h"
#include "store/store.h"

#include <string.h>

enum {
    AGAIN_NS = 5 * 1000 * 1000,  /* between two attempts to connect */
    MUTE_NS = 500 * 1000 * 1000, /* until who does not answer is told of, at most */
    QUESTIONS = 64,              /* to one that does not answer: its kernel has to keep them */
    /* Then only its kernel is asked, by the kernel, each second. */
    KERNEL_NS = 2500 * 1000 * 1000LL,
    STORE_MS = 100
};

static bool lives_there(const weft_i_lifeline *life, const weft_i_life_host *host)
{
    for (int i = 0; i < host->count; i++)
        if (weft_i_life_lives(life, host->members[i]))
            return true;
    return false;
}

/* How long one is waited for that does not answer: others are asked well before its host is silent. */
static int64_t mute_ns(const weft_i_lifeline *life)
{
    int64_t part = life->silence_ns / 4;
    return part < MUTE_NS ? part : MUTE_NS;
}

/* ---- whom to ask ---- */

/* The first that may answer.  If all that live there are mute they are asked in turn. */
static int choose_contact(weft_i_lifeline *life, const weft_i_life_host *host)
{
    int fallback = -1, next = -1;
    for (int i = 0; i < host->count; i++) {
        int rank = host->members[i];
        if (!weft_i_life_lives(life, rank) || life->rank[rank].refused)
            continue;
        if (!weft_i_life_is_stopped(life, rank))
            return rank;
        if (fallback < 0)
            fallback = rank;
        if (next < 0 && rank > host->contact)
            next = rank;
    }
    return next >= 0 ? next : fallback;
}

static void hang_up(weft_i_life_host *host, int64_t now)
{
    weft_i_life_close(&host->link);
    host->asked = 0;
    host->questions = 0;
    host->dial_at = now;
}

/* Nobody listens in its place: it is gone.  The others there know how; if none of them answers, the store
 * may know that it has left in order. */
static void take_refusal(weft_i_lifeline *life, weft_i_life_host *host, int64_t now)
{
    hang_up(host, now);
    if (host->contact >= 0)
        life->rank[host->contact].refused = true;
    int other = choose_contact(life, host);
    if (host == &life->host[life->mine] || (other >= 0 && !weft_i_life_is_stopped(life, other)))
        return;
    weft_i_errors before;
    weft_i_errors_save(&before);
    int64_t until = weft_i_store_until(weft_i_os_deadline(STORE_MS));
    weft_i_news_hear(life->world);
    weft_i_store_until(until);
    weft_i_errors_restore(&before);
    for (int i = 0; i < host->count; i++)
        if (life->rank[host->members[i]].refused && weft_i_life_lives(life, host->members[i]))
            weft_i_life_mark_dead(life, host->members[i], "died, or exited without weft_finish");
}

static void end_link(weft_i_lifeline *life, weft_i_life_host *host, weft_i_life_end how,
                     int64_t now)
{
    bool was_open = host->link.stage == WEFT_I_LIFE_OPEN;
    if (how == WEFT_I_LIFE_REFUSED) {
        host->heard = now; /* its kernel has answered */
        take_refusal(life, host, now);
        return;
    }
    hang_up(host, now);
    host->dial_at = was_open ? now : now + AGAIN_NS;
}

static void dial(weft_i_lifeline *life, weft_i_life_host *host, int rank, int64_t now)
{
    host->contact = rank;
    weft_i_life_end end =
        rank < 0 ? WEFT_I_LIFE_BROKE
                 : weft_i_life_dial(&host->link, &life->self, rank, life->rank[rank].address);
    if (end != WEFT_I_LIFE_GOES_ON)
        end_link(life, host, end, now);
}

/* ---- asking ---- */

static void ask(weft_i_life_host *host, int64_t now)
{
    if (!host->asked)
        host->asked = now;
    host->questions++;
    weft_i_life_say_number(&host->link, WEFT_I_LIFE_PING, ++host->number);
}

/* Its kernel answers and it does not: perhaps another one there does. */
static void take_silence(weft_i_lifeline *life, weft_i_life_host *host, int64_t now)
{
    int mute = host->contact;
    weft_i_life_set_mute(life, mute, true);
    int other = choose_contact(life, host);
    if (other == mute || other < 0)
        return;
    hang_up(host, now);
    dial(life, host, other, now);
}

static void beat(weft_i_lifeline *life, weft_i_life_host *host, int64_t now)
{
    bool settled;
    int64_t quiet = weft_i_life_quiet_ns(&host->link, &settled);
    host->beat_at = now + life->beat_ns;
    if (quiet >= 0 && now - quiet > host->heard)
        host->heard = now - quiet;
    if (host->asked && settled && now - host->asked > mute_ns(life)) {
        take_silence(life, host, now);
        if (host->link.stage != WEFT_I_LIFE_OPEN)
            return;
    }
    if (host->questions < QUESTIONS)
        ask(host, now);
}

static void take_answer(weft_i_lifeline *life, weft_i_life_host *host, int64_t now)
{
    host->asked = 0;
    host->questions = 0;
    host->heard = now;
    for (int i = 0; i < host->count; i++) /* of the others it tells */
        if (life->rank[host->members[i]].mute)
            weft_i_life_set_mute(life, host->members[i], false);
}

void weft_i_life_host_moves(weft_i_lifeline *life, weft_i_life_host *host, short revents,
                            int64_t now)
{
    weft_i_life_stage before = host->link.stage;
    weft_i_life_end end = weft_i_life_move(&host->link, &life->self, revents);
    weft_i_life_said said;
    int got = 0;
    if (before == WEFT_I_LIFE_CONNECTING && end == WEFT_I_LIFE_GOES_ON)
        host->heard = now;
    /* What was said before the end counts. */
    while (host->link.stage != WEFT_I_LIFE_CLOSED && host->link.stage != WEFT_I_LIFE_CONNECTING &&
           (got = weft_i_life_next(&host->link, &life->self, &said)) > 0) {
        host->heard = now;
        if (said.kind == WEFT_I_LIFE_WELCOME) {
            ask(host, now);
            weft_i_life_tell_all(life, &host->link);
        } else if (said.kind == WEFT_I_LIFE_PING) {
            weft_i_life_say_number(&host->link, WEFT_I_LIFE_PONG, said.number);
        } else if (said.kind == WEFT_I_LIFE_PONG) {
            take_answer(life, host, now);
        } else if (said.kind == WEFT_I_LIFE_NEWS) {
            weft_i_life_learn(life, &said.news, &host->link);
        }
    }
    if (got < 0) /* another one has its port, or a stranger speaks in between */
        end = host->link.stage == WEFT_I_LIFE_GREETING ? WEFT_I_LIFE_REFUSED : WEFT_I_LIFE_BROKE;
    if (end != WEFT_I_LIFE_GOES_ON)
        end_link(life, host, end, now);
}

/* ---- judging ---- */

/* "4-7, 9": the ranks of a host that live. */
static void put_ranks(const weft_i_lifeline *life, const weft_i_life_host *host, weft_i_text *out)
{
    for (int i = 0, last; i < host->count; i = last + 1) {
        last = i;
        if (!weft_i_life_lives(life, host->members[i]))
            continue;
        while (last + 1 < host->count && host->members[last + 1] == host->members[last] + 1 &&
               weft_i_life_lives(life, host->members[last + 1]))
            last++;
        weft_i_text_put(out, "%s%d", out->used ? ", " : "", host->members[i]);
        if (last > i)
            weft_i_text_put(out, "-%d", host->members[last]);
    }
}

static void take_host_for_dead(weft_i_lifeline *life, weft_i_life_host *host, int64_t now)
{
    char ranks[100] = "", why[WEFT_I_LIFE_TEXT];
    weft_i_text list = {ranks, sizeof ranks, 0}, text = {why, sizeof why, 0};
    put_ranks(life, host, &list);
    weft_i_text_put(&text, "rank%s %s, silent for %.1f s", strpbrk(ranks, "-,") ? "s" : "", ranks,
                    (double)(now - host->heard) * 1e-9);
    weft_i_log(WEFT_LOG_WARN, "host %.40s: %s", life->world->peers[host->members[0]].host, why);
    hang_up(host, now);
    for (int i = 0; i < host->count; i++)
        if (weft_i_life_lives(life, host->members[i]))
            weft_i_life_mark_dead(life, host->members[i], why);
}

static bool is_silent(const weft_i_lifeline *life, const weft_i_life_host *host, int64_t now)
{
    int64_t limit = life->silence_ns;
    if (host->questions >= QUESTIONS && limit < KERNEL_NS)
        limit = KERNEL_NS;
    return now - host->heard >= limit;
}

/* An attempt that takes long is another one's business. */
static bool takes_long(const weft_i_lifeline *life, const weft_i_life_link *link, int64_t now)
{
    return (link->stage == WEFT_I_LIFE_CONNECTING && now - link->since > life->beat_ns) ||
           (link->stage == WEFT_I_LIFE_GREETING && now - link->since > mute_ns(life));
}

/* How long until it wants to be looked at again. */
static int tend_host(weft_i_lifeline *life, weft_i_life_host *host, int64_t now)
{
    if (!host->heard)
        host->heard = now;
    if (takes_long(life, &host->link, now)) {
        if (host->link.stage == WEFT_I_LIFE_GREETING) /* its kernel has taken the connection */
            weft_i_life_set_mute(life, host->contact, true);
        hang_up(host, now);
    }
    if (host->link.stage == WEFT_I_LIFE_OPEN && now >= host->beat_at)
        beat(life, host, now);
    if (host->link.stage == WEFT_I_LIFE_CLOSED && now >= host->dial_at)
        dial(life, host, choose_contact(life, host), now);
    if (lives_there(life, host) && is_silent(life, host, now))
        take_host_for_dead(life, host, now);
    if (host->link.stage == WEFT_I_LIFE_OPEN)
        return (int)(life->beat_ns / 1000000);
    if (host->link.stage != WEFT_I_LIFE_CLOSED)
        return WEFT_I_LIFE_HASTE_MS;
    return now >= host->dial_at ? 0 : 1 + (int)((host->dial_at - now) / 1000000);
}

static int tend_hosts(weft_i_lifeline *life, int64_t now)
{
    int wait = WEFT_I_LIFE_TICK_MS, living = 0, step = 1;
    for (int ahead = 0; ahead < life->hosts; ahead++)
        living += ahead && lives_there(life, &life->host[(life->mine + ahead) % life->hosts]);
    /* 1, 2, 4, ... further on among those that live, this one counted as the first. */
    for (int ahead = 1, place = 0; ahead < life->hosts && step <= living; ahead++) {
        weft_i_life_host *host = &life->host[(life->mine + ahead) % life->hosts];
        if (!lives_there(life, host)) {
            weft_i_life_close(&host->link);
            continue;
        }
        if (++place != step)
            continue;
        step *= 2;
        int within = tend_host(life, host, now);
        wait = within < wait ? within : wait;
    }
    return wait;
}

/* The one connection of a rank that is no guard. */
static int tend_guard(weft_i_lifeline *life, int guard, int64_t now)
{
    weft_i_life_host *here = &life->host[life->mine];
    if (here->link.stage != WEFT_I_LIFE_CLOSED && here->link.rank != guard)
        hang_up(here, now);
    if (takes_long(life, &here->link, now))
        hang_up(here, now);
    if (here->link.stage == WEFT_I_LIFE_CLOSED && now >= here->dial_at)
        dial(life, here, guard, now);
    return here->link.stage == WEFT_I_LIFE_OPEN ? WEFT_I_LIFE_TICK_MS : WEFT_I_LIFE_HASTE_MS;
}

/* Were we stopped, or without a core, for long?  Then it is not the others who were silent. */
static void forgive(weft_i_lifeline *life, int64_t now)
{
    int64_t away = life->round_at ? now - life->round_at : 0;
    life->round_at = now;
    for (int i = 0; away > life->silence_ns / 2 && i < life->hosts; i++)
        if (life->host[i].heard) {
            life->host[i].heard += away;
            if (life->host[i].asked)
                life->host[i].asked += away;
        }
}

int weft_i_life_tend(weft_i_lifeline *life, int guard, int64_t now)
{
    bool guards = guard == life->self.rank;
    forgive(life, now);
    if (guards && !life->guards)
        for (int i = 0; i < life->hosts; i++)
            life->host[i].heard = now;
    if (guards != life->guards)
        weft_i_life_close(&life->host[life->mine].link);
    life->guards = guards;
    if (life->outcast)
        return WEFT_I_LIFE_TICK_MS;
    if (guards)
        return tend_hosts(life, now);
    return guard < 0 ? WEFT_I_LIFE_TICK_MS : tend_guard(life, guard, now);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages for groups that span hosts: whose they are, and what they do to the board of this host.  All
 * takers run under the remote's lock, so this rank is one writer whichever thread that is.
 */
#include "fabric/group/hosts.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "fabric/group/quarrel.h"
#include "fabric/world/lifeline.h"
#include "fabric/world/news.h"
#include "store/store.h"

#include <string.h>

enum { KEPT_MOST = 64, GONE_MOST = 128, ALL_PLACES = 0xff };

/* A message for a group that this rank has not made yet, or that its floor does not take yet. */
typedef struct kept {
    struct kept *next;
    int from;
    size_t bytes;
    weft_i_head head;
    unsigned char data[];
} kept;

/* A group that this rank has left: who gives up there may still ask whether we had gone on. */
typedef struct gone {
    uint64_t tag, pass[WEFT_I_HOSTS_PLACES];
} gone;

/* What a rank has of all its groups; with the remote, under its lock. */
typedef struct groups {
    weft_i_hosts *first;
    kept *kept;
    gone gone[GONE_MOST];
    unsigned gone_count;
    int64_t heard_at; /* news of the store */
} groups;

static weft_i_hosts_take *takes[WEFT_I_HEAD_KINDS]; /* set before main */
static bool by_floors[WEFT_I_HEAD_KINDS];           /* their takers may say: not yet */

void weft_i_hosts_on(weft_i_head_kind kind, weft_i_hosts_take *take)
{
    WEFT_ASSERT(kind < WEFT_I_HEAD_KINDS && !takes[kind]);
    takes[kind] = take;
    by_floors[kind] = true;
}

static groups *groups_of(const weft_i_world *world)
{
    void **place = weft_i_remote_groups(world->remote);
    if (!*place)
        *place = WEFT_OS->alloc(sizeof(groups));
    return *place;
}

static void forget_all(void *groups_of_a_rank)
{
    groups *all = groups_of_a_rank;
    for (kept *one = all ? all->kept : NULL, *next; one; one = next) {
        next = one->next;
        WEFT_OS->free(one);
    }
    WEFT_OS->free(all);
}

weft_i_hosts *weft_i_hosts_find(weft_i_world *world, uint64_t tag)
{
    const groups *all = groups_of(world);
    weft_i_hosts *found = all ? all->first : NULL;
    while (found && found->tag != tag)
        found = found->next;
    return found;
}

/* ---- sending ---- */

weft_status weft_i_hosts_tell(const weft_group *group, int member, weft_i_head_kind kind,
                              const uint32_t word[WEFT_I_HEAD_WORDS], const void *data,
                              size_t bytes)
{
    WEFT_ASSERT(member >= 0 && member < group->size && group->hosts->away[member]);
    weft_i_head head = {.kind = kind, .group = group->hosts->tag};
    memcpy(head.word, word, sizeof head.word);
    return weft_i_remote_tell(group->world->remote, group->members[member], &head, data, bytes);
}

weft_status weft_i_hosts_send(const weft_group *group, int member, weft_i_head_kind kind,
                              const uint32_t word[WEFT_I_HEAD_WORDS], const void *data,
                              size_t bytes, weft_i_sent *sent)
{
    WEFT_ASSERT(member >= 0 && member < group->size && group->hosts->away[member]);
    weft_i_head head = {.kind = kind, .group = group->hosts->tag};
    memcpy(head.word, word, sizeof head.word);
    return weft_i_remote_send(group->world->remote, group->members[member], &head, data, bytes,
                              sent);
}

static bool is_reached(const weft_group *group, int member)
{
    int rank = group->members[member];
    return weft_i_world_fate(group->world, rank) == WEFT_OK &&
           (!group->hosts->away[member] || weft_i_remote_reaches(group->world->remote, rank));
}

static bool is_there(const weft_group *group, int member)
{
    /* Pairs with the release in take_left. */
    return is_reached(group, member) &&
           !atomic_load_explicit(&group->board->row[member].left, memory_order_acquire);
}

/* The next one behind a partner that is gone.  Who has left the group still answers, if nobody else does. */
int weft_i_hosts_partner(const weft_i_hosts *hosts, int host)
{
    WEFT_ASSERT(host >= 0 && host < hosts->count && host != hosts->mine);
    const weft_i_host *there = &hosts->host[host];
    int first = hosts->index_of[hosts->route[host]];
    for (int i = 0; i < there->count; i++)
        if (is_there(hosts->group, there->members[(first + i) % there->count]))
            return there->members[(first + i) % there->count];
    for (int i = 0; i < there->count; i++)
        if (is_reached(hosts->group, there->members[i]))
            return there->members[i];
    return -1;
}

/* Who takes what this rank says to a host; whoever is new there is told what has been said before. */
int weft_i_hosts_meet_partner(weft_i_hosts *hosts, int host)
{
    int partner = weft_i_hosts_partner(hosts, host);
    if (partner < 0 || partner == hosts->route[host])
        return partner;
    hosts->route[host] = partner;
    for (int place = 0; place < WEFT_I_HOSTS_PLACES; place++)
        weft_i_hosts_repeat(hosts->group, partner, (weft_i_hosts_place)place, hosts->group->rank);
    weft_i_hosts_pads_repeat(hosts, partner);
    return partner;
}

/* One message to each other host.  What cannot be sent any more is the death of a rank, which is told. */
static void tell_hosts(const weft_group *group, weft_i_head_kind kind,
                       const uint32_t word[WEFT_I_HEAD_WORDS], const void *data, size_t bytes)
{
    weft_i_hosts *hosts = group->hosts;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_remote_enter(group->world->remote);
    for (int host = 0; host < hosts->count; host++) {
        int partner = host == hosts->mine ? -1 : weft_i_hosts_meet_partner(hosts, host);
        if (partner >= 0)
            weft_i_hosts_tell(group, partner, kind, word, data, bytes);
    }
    weft_i_remote_give(group->world->remote);
    weft_i_errors_restore(&before);
}

void weft_i_hosts_tell_end(const weft_group *group, weft_status why, bool recalled)
{
    const weft_i_board *board = group->board;
    uint32_t word[WEFT_I_HEAD_WORDS] = {recalled, (uint32_t)why};
    const char *text = why == WEFT_ERR_MISMATCH ? weft_i_quarrel_on(board) : NULL;
    tell_hosts(group, WEFT_I_HEAD_REVOKE, word, text,
               text ? strnlen(text, sizeof board->quarrel_text) : 0);
}

void weft_i_hosts_tell_left(const weft_group *group)
{
    uint32_t word[WEFT_I_HEAD_WORDS] = {0};
    tell_hosts(group, WEFT_I_HEAD_LEFT, word, NULL, 0);
}

void weft_i_hosts_tell_stuck(const weft_group *group, uint64_t where, const char *call)
{
    uint32_t word[WEFT_I_HEAD_WORDS] = {(uint32_t)(where >> 32), (uint32_t)where};
    tell_hosts(group, WEFT_I_HEAD_STUCK, word, call, strlen(call));
}

void weft_i_hosts_ask_all(const weft_group *group, weft_i_hosts_place place, int member)
{
    uint32_t word[WEFT_I_HEAD_WORDS] = {place, 1 + (uint32_t)member};
    tell_hosts(group, WEFT_I_HEAD_ASK, word, NULL, 0);
}

void weft_i_hosts_refuse(weft_i_world *world, weft_i_key key, int member_world_rank, int rank,
                         weft_status why)
{
    weft_i_head head = {.kind = WEFT_I_HEAD_REVOKE,
                        .group = weft_i_hosts_tag(key),
                        .word = {0, (uint32_t)why, (uint32_t)rank}};
    weft_i_remote_tell(world->remote, member_world_rank, &head, NULL, 0);
}

/* ---- what is known of members elsewhere ---- */

_Atomic uint64_t *weft_i_hosts_word(const weft_group *group, weft_i_hosts_place place, int member)
{
    WEFT_ASSERT(member >= 0 && member < group->size && place < WEFT_I_HOSTS_PLACES);
    weft_i_board_row *row = &group->board->row[member];
    return place == WEFT_I_HOSTS_LANE ? &row->lane_arrival : &row->arrival;
}

bool weft_i_hosts_has_come(const weft_group *group, weft_i_hosts_place place, int member,
                           uint32_t epoch)
{
    /* Pairs with the release in take_arrive, and in arrive. */
    uint64_t word =
        atomic_load_explicit(weft_i_hosts_word(group, place, member), memory_order_acquire);
    return weft_i_arrived(word, epoch);
}

static unsigned char *note_at(const weft_group *group, weft_i_hosts_place place, int member,
                              uint32_t epoch)
{
    weft_i_board_row *row = &group->board->row[member];
    return place == WEFT_I_HOSTS_LANE ? row->lane_note[epoch & 1] : row->note[epoch & 1];
}

static size_t note_room(weft_i_hosts_place place)
{
    return place == WEFT_I_HOSTS_LANE ? WEFT_I_LANE_NOTE_BYTES : WEFT_I_NOTE_BYTES;
}

static size_t op_bytes(weft_i_hosts_place place)
{
    return place == WEFT_I_HOSTS_LANE ? 0 : WEFT_I_HOSTS_OP_BYTES;
}

static void ring_here(const weft_group *group)
{
    const weft_i_hosts *hosts = group->hosts;
    const weft_i_host *here = &hosts->host[hosts->mine];
    /* Pairs with the fence in set_bell. */
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < here->count; i++) {
        weft_i_wait_ring(&group->board->row[here->members[i]].bell);
        weft_i_wait_ring(&group->board->row[here->members[i]].lane_bell);
    }
}

/* Of whom a message speaks: its sender, or, if it says so, a member of the sender's host. */
static int subject_of(const weft_group *group, int from, uint32_t said)
{
    int member = said ? (int)said - 1 : from;
    bool fits = member >= 0 && member < group->size && group->hosts->away[member];
    return fits ? member : -1;
}

/* The note of one parity, and on the board the operation's name before it. */
static bool put_note(const weft_group *group, weft_i_hosts_place place, int member, uint32_t epoch,
                     const void *data, size_t bytes)
{
    const unsigned char *at = data;
    size_t op = op_bytes(place);
    weft_i_board_row *row = &group->board->row[member];
    if (bytes < op || bytes - op > note_room(place))
        return false;
    if (op) {
        memcpy(row->op, at, op);
        row->op[op - 1] = 0;
    }
    memcpy(note_at(group, place, member, epoch), at + op, bytes - op);
    return true;
}

static bool place_of(const weft_i_head *head, weft_i_hosts_place *out)
{
    *out = (weft_i_hosts_place)(head->word[0] & ((1 << WEFT_I_HOSTS_WORD_BITS) - 1));
    return *out < WEFT_I_HOSTS_PLACES;
}

static bool take_arrive(weft_group *group, int from, const weft_i_head *head, const void *data,
                        size_t bytes)
{
    weft_i_hosts_place place;
    int member = subject_of(group, from, head->word[0] >> WEFT_I_HOSTS_WORD_BITS);
    if (!place_of(head, &place) || member < 0)
        return true;
    _Atomic uint64_t *word = weft_i_hosts_word(group, place, member);
    uint32_t epoch = head->word[1];
    /* Our own copy.  What is said again may have been overtaken. */
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
    if ((int32_t)(weft_i_arrival_epoch(now) - epoch) > 0 ||
        !put_note(group, place, member, epoch, data, bytes))
        return true;
    /* Pairs with the acquire in word_of. */
    atomic_store_explicit(word, (uint64_t)epoch << 32 | head->word[2], memory_order_release);
    ring_here(group);
    return true;
}

/* The note of the meeting before, for a board that has missed it. */
static bool take_note(weft_group *group, int from, const weft_i_head *head, const void *data,
                      size_t bytes)
{
    weft_i_hosts_place place;
    int member = subject_of(group, from, head->word[0] >> WEFT_I_HOSTS_WORD_BITS);
    if (place_of(head, &place) && member >= 0) {
        uint64_t now =
            atomic_load_explicit(weft_i_hosts_word(group, place, member), memory_order_relaxed);
        if ((int32_t)(weft_i_arrival_epoch(now) - head->word[1]) < 0)
            put_note(group, place, member, head->word[1], data, bytes);
    }
    return true;
}

static weft_status status_in(uint32_t word)
{
    int32_t status = (int32_t)word;
    return status < 0 && status > -256 ? (weft_status)status : WEFT_OK;
}

static void hear_quarrel(weft_i_board *board, const void *text, size_t bytes)
{
    uint32_t nobody = 0;
    /* As in weft_i_quarrel_say: the first one writes. */
    if (!bytes || bytes >= sizeof board->quarrel_text ||
        !atomic_compare_exchange_strong_explicit(&board->quarrel, &nobody, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    memcpy(board->quarrel_text, text, bytes);
    board->quarrel_text[bytes] = 0;
    /* Pairs with the acquire in weft_i_quarrel_on. */
    atomic_store_explicit(&board->quarrel, 2, memory_order_release);
}

static bool take_revoke(weft_group *group, int from, const weft_i_head *head, const void *data,
                        size_t bytes)
{
    uint32_t nobody = 0;
    weft_i_board *board = group->board;
    if (status_in(head->word[1]) == WEFT_ERR_MISMATCH)
        hear_quarrel(board, data, bytes);
    if (head->word
            [0]) /* pairs with the acquire in weft_i_board_is_recalled; the first one counts */
        atomic_compare_exchange_strong_explicit(&board->recalled, &nobody, 1 + (uint32_t)from,
                                                memory_order_release, memory_order_relaxed);
    weft_i_group_end_here(group, from, status_in(head->word[1]));
    return true;
}

static bool take_left(weft_group *group, int from, const weft_i_head *head, const void *data,
                      size_t bytes)
{
    (void)head;
    (void)data;
    (void)bytes;
    /* Pairs with the acquire in `has_left` of exchange.c. */
    atomic_store_explicit(&group->board->row[from].left, 1, memory_order_release);
    ring_here(group);
    return true;
}

static bool take_stuck(weft_group *group, int from, const weft_i_head *head, const void *data,
                       size_t bytes)
{
    char call[WEFT_I_LABEL_BYTES] = "";
    if (bytes)
        memcpy(call, data, bytes < sizeof call ? bytes : sizeof call - 1);
    weft_i_quarrel_copy(&group->board->row[from].stuck,
                        (uint64_t)head->word[0] << 32 | head->word[1], call);
    return true;
}

/* ---- giving up ---- */

void weft_i_hosts_answer_bar(weft_i_world *world, int to, const weft_i_head *asked,
                             weft_status found, int who)
{
    weft_i_head answer = {
        .kind = WEFT_I_HEAD_BARRED,
        .group = asked->group,
        .word = {asked->word[0], asked->word[1], (uint32_t)found, (uint32_t)(who + 1)}};
    weft_i_remote_tell(world->remote, to, &answer, NULL, 0);
}

static bool take_bar(weft_group *group, int from, const weft_i_head *head, const void *data,
                     size_t bytes)
{
    weft_i_hosts_place place;
    int who = -1;
    (void)data;
    (void)bytes;
    if (!place_of(head, &place) || !group->hosts->away[from])
        return true;
    weft_i_point point = weft_i_hosts_point(group, place, false);
    weft_i_board_row *row = &group->board->row[from];
    /* Pairs with the acquire in word_of, as the arrival that it restores. */
    atomic_store_explicit(weft_i_hosts_word(group, place, from),
                          (uint64_t)head->word[2] << 32 | head->word[3], memory_order_release);
    /* Relaxed: see weft_i_vigil_saw_give_up. */
    atomic_store_explicit(place == WEFT_I_HOSTS_LANE ? &row->lane_gave_up : &row->gave_up,
                          weft_i_stamp(WEFT_OS->clock_ns(), 0), memory_order_relaxed);
    weft_i_os_barrier_everywhere();
    weft_status found = weft_i_signal_bar(&point, head->word[1], 0, -1, &who);
    weft_i_hosts_answer_bar(group->world, group->members[from], head, found, who);
    return true;
}

/* ---- saying it again ---- */

static void send_shown(const weft_group *group, int to, weft_i_head_kind kind,
                       weft_i_hosts_place place, int member, uint64_t arrival, uint32_t epoch)
{
    unsigned char data[WEFT_I_HOSTS_OP_BYTES + WEFT_I_NOTE_BYTES];
    size_t op = op_bytes(place), room = note_room(place);
    uint32_t said = member == group->rank ? 0 : 1 + (uint32_t)member;
    uint32_t word[WEFT_I_HEAD_WORDS] = {(uint32_t)place | said << WEFT_I_HOSTS_WORD_BITS, epoch,
                                        weft_i_arrival_digest(arrival)};
    memcpy(data, group->board->row[member].op, op);
    memcpy(data + op, note_at(group, place, member, epoch), room);
    weft_i_hosts_tell(group, to, kind, word, data, op + room);
}

void weft_i_hosts_repeat(const weft_group *group, int to, weft_i_hosts_place place, int member)
{
    /* Pairs with the release in arrive: its notes are there. */
    uint64_t arrival =
        atomic_load_explicit(weft_i_hosts_word(group, place, member), memory_order_acquire);
    uint32_t epoch = weft_i_arrival_epoch(arrival);
    if (!epoch)
        return;
    if (epoch > 1)
        send_shown(group, to, WEFT_I_HEAD_NOTE, place, member, arrival, epoch - 1);
    send_shown(group, to, WEFT_I_HEAD_ARRIVE, place, member, arrival, epoch);
}

/* Words: a place, or all; 1 + the member of whom is asked, 0: the one who is asked, and then the
 * asker is its partner from now on. */
static bool take_ask(weft_group *group, int from, const weft_i_head *head, const void *data,
                     size_t bytes)
{
    weft_i_hosts *hosts = group->hosts;
    int member = head->word[1] ? (int)head->word[1] - 1 : group->rank;
    (void)data;
    (void)bytes;
    if (!hosts->away[from] || member < 0 || member >= group->size)
        return true;
    if (!head->word[1])
        hosts->route[hosts->host_of[from]] = from;
    for (int place = 0; place < WEFT_I_HOSTS_PLACES; place++)
        if (head->word[0] == ALL_PLACES || head->word[0] == (uint32_t)place)
            weft_i_hosts_repeat(group, from, (weft_i_hosts_place)place, member);
    if (head->word[0] == ALL_PLACES && member == group->rank)
        weft_i_hosts_pads_repeat(hosts, from);
    return true;
}

static void ask(const weft_group *group, int of, int whom)
{
    uint32_t word[WEFT_I_HEAD_WORDS] = {ALL_PLACES, of < 0 ? 0 : 1 + (uint32_t)of};
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_hosts_tell(group, whom, WEFT_I_HEAD_ASK, word, NULL, 0);
    weft_i_errors_restore(&before);
}

/* Who on this host writes the copy of a member elsewhere. */
static int server_of(const weft_group *group, int member)
{
    const weft_i_hosts *hosts = group->hosts;
    const weft_i_host *here = &hosts->host[hosts->mine];
    int first = hosts->index_of[member] % here->count;
    for (int i = 0; i < here->count; i++)
        if (is_there(group, here->members[(first + i) % here->count]))
            return here->members[(first + i) % here->count];
    return -1;
}

/* If the one who wrote its copy here is gone, and it is on us to do that now, the member says again what
 * it has said. */
static void take_over(const weft_group *group, int member)
{
    const weft_i_hosts *hosts = group->hosts;
    const weft_i_host *here = &hosts->host[hosts->mine];
    bool ours = hosts->away[member] &&
                here->members[hosts->index_of[member] % here->count] != group->rank &&
                server_of(group, member) == group->rank;
    if (ours && weft_i_world_fate(group->world, group->members[member]) == WEFT_OK)
        ask(group, -1, member);
}

/* Where there are no lifelines the store tells of deaths. */
static void hear_news(weft_i_world *world, groups *all, int64_t now)
{
    enum { LIMIT_MS = 100, LATER_NS = 1000 * 1000 * 1000 };
    all->heard_at = now;
    int64_t before = weft_i_store_until(weft_i_os_deadline(LIMIT_MS));
    if (weft_i_news_hear(world) < 0)
        all->heard_at = now + LATER_NS;
    weft_i_store_until(before);
}

void weft_i_hosts_hear(weft_i_world *world)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    groups *all = groups_of(world);
    int64_t now = WEFT_OS->clock_ns();
    if (all && now >= all->heard_at)
        hear_news(world, all, now);
    weft_i_errors_restore(&before);
}

void weft_i_hosts_look(const weft_group *group, int missing)
{
    enum { CARE_NS = 10 * 1000 * 1000, HEAR_NS = 30 * 1000 * 1000 };
    weft_i_world *world = group->world;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_remote_enter(world->remote);
    groups *all = groups_of(world);
    int64_t now = WEFT_OS->clock_ns();
    bool care = now - group->hosts->cared_at >= CARE_NS;
    if (care) {
        group->hosts->cared_at = now;
        if (missing >= 0)
            take_over(group, missing);
    }
    weft_i_remote_give(world->remote);
    if (all && care && !world->lifeline && now - all->heard_at >= HEAR_NS)
        hear_news(world, all, now);
    weft_i_errors_restore(&before);
}

/* ---- whose a message is ---- */

static void keep(groups *all, int from, const weft_i_head *head, const void *data, size_t bytes)
{
    int count = 0;
    kept **at = &all->kept;
    for (; *at; at = &(*at)->next)
        count += (*at)->from == from;
    kept *one = count < KEPT_MOST ? WEFT_OS->alloc(sizeof *one + bytes) : NULL;
    if (!one) {
        weft_i_log(WEFT_LOG_WARN,
                   "a message of rank %d for a group that this rank has not made was dropped: %s",
                   from, count < KEPT_MOST ? "no memory" : "64 of them wait already");
        return;
    }
    *one = (kept){.from = from, .bytes = bytes, .head = *head};
    if (bytes)
        memcpy(one->data, data, bytes);
    *at = one;
}

static bool has_kept(const groups *all, int from, uint64_t tag)
{
    for (const kept *one = all->kept; one; one = one->next)
        if (one->from == from && one->head.group == tag)
            return true;
    return false;
}

static const gone *find_gone(const groups *all, uint64_t tag)
{
    unsigned count = all->gone_count < GONE_MOST ? all->gone_count : GONE_MOST;
    for (unsigned i = 1; i <= count; i++) {
        const gone *one = &all->gone[(all->gone_count - i) % GONE_MOST];
        if (one->tag == tag)
            return one;
    }
    return NULL;
}

/* Takes back what `from` has shown of this meeting, and has not been taken yet. */
static void unkeep(groups *all, int from, const weft_i_head *bar)
{
    for (kept **at = &all->kept; *at;) {
        kept *one = *at;
        bool same = one->from == from && one->head.group == bar->group &&
                    one->head.kind == WEFT_I_HEAD_ARRIVE &&
                    (one->head.word[0] & 0xff) == (bar->word[0] & 0xff) &&
                    one->head.word[1] == bar->word[1];
        if (!same) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        WEFT_OS->free(one);
    }
}

/* For a group that this rank has left, or has not made yet. */
static void take_for_none(weft_i_world *world, groups *all, int from, const weft_i_head *head,
                          const void *data, size_t bytes)
{
    weft_i_hosts_place place;
    const gone *left = find_gone(all, head->group);
    if (head->kind == WEFT_I_HEAD_BAR && place_of(head, &place)) {
        bool went = left && weft_i_signal_has_gone_on(left->pass[place], head->word[1]);
        unkeep(all, from, head);
        weft_i_hosts_answer_bar(world, from, head, went ? WEFT_OK : WEFT_IN_PROGRESS, -1);
    } else if (head->kind == WEFT_I_HEAD_POINT_BAR) {
        weft_i_hosts_answer_bar(world, from, head, WEFT_IN_PROGRESS, -1);
    } else if (!left && head->kind != WEFT_I_HEAD_BARRED && head->kind != WEFT_I_HEAD_ASK &&
               head->kind != WEFT_I_HEAD_STUCK) {
        keep(all, from, head, data, bytes);
    }
}

static void take_for(weft_i_hosts *hosts, groups *all, int from, const weft_i_head *head,
                     const void *data, size_t bytes)
{
    WEFT_ASSERT(from >= 0 && from < hosts->group->world->size);
    weft_i_hosts_take *take = takes[head->kind];
    int member = hosts->member_of[from];
    if (member < 0)
        return;
    bool waits = by_floors[head->kind] && has_kept(all, from, head->group);
    if (waits || (take && !take(hosts->group, member, head, data, bytes)))
        keep(all, from, head, data, bytes);
}

static void take_message(weft_i_world *world, int from, const weft_i_head *head, const void *data,
                         size_t bytes)
{
    groups *all = groups_of(world);
    weft_i_hosts *hosts = all ? weft_i_hosts_find(world, head->group) : NULL;
    if (hosts)
        take_for(hosts, all, from, head, data, bytes);
    else if (all)
        take_for_none(world, all, from, head, data, bytes);
}

/* Those of one group, in their order; what is still not taken is kept again. */
static void deliver_kept(weft_i_hosts *hosts, groups *all)
{
    kept *mine = NULL, **last = &mine;
    for (kept **at = &all->kept; *at;) {
        kept *one = *at;
        if (one->head.group != hosts->tag) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        one->next = NULL;
        *last = one;
        last = &one->next;
    }
    for (kept *one = mine, *next; one; one = next) {
        next = one->next;
        take_for(hosts, all, one->from, &one->head, one->data, one->bytes);
        WEFT_OS->free(one);
    }
}

void weft_i_hosts_again(const weft_group *group)
{
    weft_i_remote_enter(group->world->remote);
    groups *all = groups_of(group->world);
    if (all)
        deliver_kept(group->hosts, all);
    weft_i_remote_give(group->world->remote);
}

void weft_i_hosts_join(weft_i_hosts *hosts)
{
    WEFT_ASSERT(hosts->group->board);
    weft_i_world *world = hosts->group->world;
    weft_i_remote_enter(world->remote);
    groups *all = groups_of(world);
    if (all) {
        for (unsigned i = 0; i < GONE_MOST; i++) /* an earlier try to make it */
            if (all->gone[i].tag == hosts->tag)
                all->gone[i].tag = 0;
        hosts->next = all->first;
        all->first = hosts;
        deliver_kept(hosts, all);
    }
    weft_i_remote_give(world->remote);
}

void weft_i_hosts_leave(weft_i_hosts *hosts)
{
    const weft_group *group = hosts->group;
    weft_i_remote_enter(group->world->remote);
    groups *all = groups_of(group->world);
    weft_i_hosts **at = all ? &all->first : NULL;
    while (at && *at && *at != hosts)
        at = &(*at)->next;
    if (at && *at) {
        const weft_i_board_row *row = &group->board->row[group->rank];
        *at = hosts->next;
        /* Relaxed: our own words. */
        all->gone[all->gone_count++ % GONE_MOST] =
            (gone){hosts->tag,
                   {atomic_load_explicit(&row->pass, memory_order_relaxed),
                    atomic_load_explicit(&row->lane_pass, memory_order_relaxed)}};
    }
    weft_i_remote_give(group->world->remote);
}

/* A rank that cannot be written to any more may have died: its host is asked. */
static void suspect(weft_i_world *world, int rank, weft_status why, const char *text)
{
    (void)rank;
    (void)why;
    (void)text;
    weft_i_lifeline_suspect(world->lifeline);
}

static const struct {
    weft_i_head_kind kind;
    weft_i_hosts_take *take;
} own_takes[] = {
    {WEFT_I_HEAD_ARRIVE, take_arrive}, {WEFT_I_HEAD_NOTE, take_note},
    {WEFT_I_HEAD_BAR, take_bar},       {WEFT_I_HEAD_BARRED, weft_i_hosts_take_barred},
    {WEFT_I_HEAD_REVOKE, take_revoke}, {WEFT_I_HEAD_LEFT, take_left},
    {WEFT_I_HEAD_STUCK, take_stuck},   {WEFT_I_HEAD_ASK, take_ask},
};

__attribute__((constructor)) static void take_messages(void)
{
    for (size_t i = 0; i < sizeof own_takes / sizeof *own_takes; i++)
        takes[own_takes[i].kind] = own_takes[i].take;
    weft_i_remote_on_groups(take_message, forget_all);
    weft_i_remote_on_fault(suspect);
}

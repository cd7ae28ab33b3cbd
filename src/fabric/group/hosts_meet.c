/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings of a group that spans hosts: arriving, waiting, giving up.  See hosts.h and base/share/signal.h. */
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "fabric/group/hosts.h"
#include "fabric/group/hosts_pads.h"
#include "fabric/group/quarrel.h"

#include <string.h>

/* For the other hosts' answers to a BAR.  Beyond it nobody can know whether a stopped host had gone on. */
enum { BAR_MS = 2000, COMPLETE_MS = 5000, SERIAL_MASK = 0xffffff };
enum { NOBODY = -1, ANSWERED = -2, UNASKED = -3 };

weft_i_point weft_i_hosts_point(const weft_group *group, weft_i_hosts_place place, bool later)
{
    WEFT_ASSERT(place < WEFT_I_HOSTS_PLACES);
    weft_i_board_row *row = group->board->row;
    bool lane = place == WEFT_I_HOSTS_LANE;
    return (weft_i_point){.me = group->rank,
                          .size = group->size,
                          .words = lane ? (char *)&row->lane_arrival : (char *)&row->arrival,
                          .passes = lane ? (char *)&row->lane_pass : (char *)&row->pass,
                          .bells = lane ? (char *)&row->lane_bell : (char *)&row->bell,
                          .gave_up = lane ? (char *)&row->lane_gave_up : (char *)&row->gave_up,
                          .stride = sizeof *row,
                          .later = later,
                          .far = &group->hosts->far[place].far,
                          .mode = group->world->mode};
}

static const weft_i_hosts_far *far_of(const weft_i_point *point)
{
    return (const weft_i_hosts_far *)(const void *)point->far;
}

/* ---- arriving ---- */

void weft_i_hosts_send_arrival(const weft_i_point *point, const weft_i_meeting *meeting)
{
    const weft_i_hosts_far *far = far_of(point);
    weft_i_hosts *hosts = far->hosts;
    const weft_group *group = hosts->group;
    unsigned char data[WEFT_I_HOSTS_OP_BYTES + WEFT_I_NOTE_BYTES];
    size_t op = far->place == WEFT_I_HOSTS_LANE ? 0 : WEFT_I_HOSTS_OP_BYTES;
    size_t bytes = hosts->shown[far->place][meeting->epoch & 1];
    uint32_t word[WEFT_I_HEAD_WORDS] = {far->place, meeting->epoch, meeting->digest};
    weft_i_errors before;
    memcpy(data, group->board->row[group->rank].op, op);
    memcpy(data + op, weft_i_hosts_note(group, far->place, group->rank, meeting->epoch), bytes);
    weft_i_errors_save(&before);
    weft_i_remote_enter(group->world->remote);
    for (int host = 0; host < hosts->count; host++) {
        int partner = host == hosts->mine ? NOBODY : weft_i_hosts_meet_partner(hosts, host);
        if (partner >= 0 && weft_i_hosts_tell(group, partner, WEFT_I_HEAD_ARRIVE, word, data,
                                              op + bytes) == WEFT_ERR_NO_MEMORY)
            weft_i_group_spoil(group, WEFT_ERR_NO_MEMORY); /* else the others would wait for ever */
    }
    weft_i_remote_give(group->world->remote);
    weft_i_errors_restore(&before);
}

weft_status weft_i_hosts_come(weft_group *group, weft_i_point *point, uint32_t digest,
                              const void *note, size_t bytes, weft_i_meeting *meeting)
{
    const weft_i_hosts_far *far = far_of(point);
    weft_i_board_row *row = &group->board->row[group->rank];
    _Atomic uint64_t *word = weft_i_hosts_word(group, far->place, group->rank);
    /* Our own word. */
    uint32_t epoch = weft_i_arrival_epoch(atomic_load_explicit(word, memory_order_relaxed)) + 1;
    bool lane = far->place == WEFT_I_HOSTS_LANE;
    size_t room = lane ? WEFT_I_LANE_NOTE_BYTES : WEFT_I_NOTE_BYTES;
    if (bytes > room)
        return weft_i_fail(WEFT_ERR_INTERNAL, "a note of %zu bytes", bytes);
    if (bytes)
        memcpy(lane ? row->lane_note[epoch & 1] : row->note[epoch & 1], note, bytes);
    group->hosts->shown[far->place][epoch & 1] = bytes;
    meeting->culprit = -1;
    WEFT_TRY(weft_i_signal_come(point, digest, meeting));
    weft_i_hosts_send_arrival(point, meeting);
    return WEFT_OK;
}

/* ---- giving up ---- */

typedef struct barring {
    const weft_i_hosts_far *far;
    weft_i_hosts_bar *bar;
} barring;

/* Asks a host, or another member there once the one who was asked is gone. */
static void ask_host(const barring *b, int host)
{
    weft_i_hosts *hosts = b->far->hosts;
    weft_i_hosts_bar *bar = b->bar;
    int partner = weft_i_hosts_meet_partner(hosts, host);
    if (bar->asked[host] == ANSWERED || bar->asked[host] == partner)
        return;
    uint32_t word[WEFT_I_HEAD_WORDS] = {
        (uint32_t)b->far->place | (bar->serial & SERIAL_MASK) << WEFT_I_HOSTS_WORD_BITS, bar->epoch,
        (uint32_t)(bar->before >> 32), (uint32_t)bar->before};
    bool on_pads = b->far->place == WEFT_I_HOSTS_PADS;
    unsigned char pads[WEFT_I_HOSTS_PADS_BYTES];
    if (on_pads)
        weft_i_hosts_pads_name(b->far, pads);
    bar->asked[host] = partner;
    if (partner >= 0 &&
        weft_i_hosts_tell(hosts->group, partner, on_pads ? WEFT_I_HEAD_POINT_BAR : WEFT_I_HEAD_BAR,
                          word, on_pads ? pads : NULL, on_pads ? sizeof pads : 0) < 0)
        bar->asked[host] = UNASKED; /* once more at the next look */
}

/* Has every host answered in which anybody lives? */
static bool all_answered(void *arg)
{
    const barring *b = arg;
    const weft_i_hosts *hosts = b->far->hosts;
    bool all = true;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_hosts_look(hosts->group, -1);
    weft_i_remote_enter(hosts->group->world->remote);
    for (int host = 0; host < hosts->count; host++) {
        if (host == hosts->mine)
            continue;
        ask_host(b, host);
        all &= b->bar->asked[host] == ANSWERED || b->bar->asked[host] == NOBODY;
    }
    weft_i_remote_give(hosts->group->world->remote);
    weft_i_errors_restore(&before);
    return all;
}

bool weft_i_hosts_take_barred(weft_group *group, int from, const weft_i_head *head,
                              const void *data, size_t bytes)
{
    weft_i_hosts *hosts = group->hosts;
    uint32_t place = head->word[0] & ((1 << WEFT_I_HOSTS_WORD_BITS) - 1);
    (void)data;
    (void)bytes;
    if (place >= WEFT_I_HOSTS_ALL_PLACES)
        return true;
    weft_i_hosts_bar *bar = &hosts->bar[place];
    if (head->word[0] >> WEFT_I_HOSTS_WORD_BITS != (bar->serial & SERIAL_MASK) ||
        head->word[1] != bar->epoch || bar->asked[hosts->host_of[from]] == ANSWERED)
        return true;
    bar->asked[hosts->host_of[from]] = ANSWERED;
    weft_status found = (int32_t)head->word[2] == WEFT_OK             ? WEFT_OK
                        : (int32_t)head->word[2] == WEFT_ERR_MISMATCH ? WEFT_ERR_MISMATCH
                                                                      : WEFT_IN_PROGRESS;
    if (found == WEFT_IN_PROGRESS)
        return true;
    bar->found = found;
    bar->who =
        head->word[3] && head->word[3] <= (uint32_t)group->size ? (int)head->word[3] - 1 : from;
    return true;
}

static void begin_bar(const weft_i_hosts_far *far, weft_i_hosts_bar *bar,
                      const weft_i_meeting *meeting)
{
    WEFT_ASSERT(far->place < WEFT_I_HOSTS_ALL_PLACES);
    weft_i_remote *remote = far->hosts->group->world->remote;
    weft_i_remote_enter(remote);
    bar->serial++;
    bar->epoch = meeting->epoch;
    bar->before = meeting->before;
    bar->found = WEFT_IN_PROGRESS;
    bar->who = -1;
    for (int host = 0; host < far->hosts->count; host++)
        bar->asked[host] = UNASKED;
    weft_i_remote_give(remote);
}

weft_status weft_i_hosts_bar_all(const weft_i_point *point, weft_i_meeting *meeting)
{
    const weft_i_hosts_far *far = far_of(point);
    const weft_group *group = far->hosts->group;
    barring b = {far, &far->hosts->bar[far->place]};
    begin_bar(far, b.bar, meeting);
    weft_i_wait wait = {.ready = all_answered,
                        .arg = &b,
                        .wheel = point->far->wheel,
                        .deadline = weft_i_os_deadline(BAR_MS),
                        .mode = WEFT_I_WAIT_YIELD};
    weft_status status = weft_i_wait_for(&wait);
    weft_i_remote_enter(group->world->remote);
    weft_status found = b.bar->found;
    int who = b.bar->who;
    b.bar->serial++; /* what is answered later is of no interest */
    weft_i_remote_give(group->world->remote);
    if (found != WEFT_IN_PROGRESS && meeting->culprit < 0)
        meeting->culprit = who;
    if (found == WEFT_IN_PROGRESS && status < 0) {
        weft_i_log(WEFT_LOG_INFO,
                   "group \"%s\": a host has not answered whether a meeting took place",
                   group->name);
        weft_i_group_spoil(group, WEFT_ERR_TIMEOUT);
    }
    return found;
}

/* ---- waiting ---- */

typedef struct completing {
    const weft_group *group;
    weft_i_hosts_place place;
    uint32_t epoch;
    int64_t asked_at;
} completing;

static int first_missing(const completing *c)
{
    for (int member = 0; member < c->group->size; member++) {
        /* Pairs with the release in take_arrive. */
        uint64_t word = atomic_load_explicit(weft_i_hosts_word(c->group, c->place, member),
                                             memory_order_acquire);
        if (!weft_i_arrived(word, c->epoch))
            return member;
    }
    return -1;
}

static bool is_complete(void *arg)
{
    completing *c = arg;
    int missing = first_missing(c);
    if (missing < 0)
        return true;
    enum { AGAIN_NS = 20 * 1000 * 1000 };
    int64_t now = WEFT_OS->clock_ns();
    if (now - c->asked_at > AGAIN_NS) {
        c->asked_at = now;
        weft_i_hosts_ask_all(c->group, c->place, missing);
    }
    return false;
}

/*
 * The meeting has succeeded.  Who learned that from others may lack the word of a member that died while it
 * told the hosts: the host has it on which somebody has gone on, be that one alive or not.
 */
static weft_status complete(const weft_i_label *label, const weft_i_point *point,
                            const weft_i_meeting *meeting)
{
    completing c = {label->group, far_of(point)->place, meeting->epoch, 0};
    weft_i_errors before;
    if (first_missing(&c) < 0)
        return WEFT_OK;
    weft_i_wait wait = {.ready = is_complete,
                        .arg = &c,
                        .wheel = point->far->wheel,
                        .deadline = weft_i_os_deadline(COMPLETE_MS),
                        .mode = WEFT_I_WAIT_YIELD};
    weft_i_errors_save(&before);
    weft_status status = weft_i_wait_for(&wait);
    weft_i_errors_restore(&before);
    if (status == WEFT_OK)
        return WEFT_OK;
    weft_i_group_spoil(label->group, WEFT_ERR_PEER_DEAD);
    return weft_i_fail(WEFT_ERR_PEER_DEAD,
                       "%s: rank %d has gone before all hosts knew what it had shown", label->op,
                       first_missing(&c));
}

weft_status weft_i_hosts_await(const weft_i_label *label, weft_i_point *point,
                               const struct weft_i_stay *stay, int64_t timeout_ms,
                               weft_i_meeting *meeting)
{
    weft_status status = weft_i_group_keep_vigil(label, point, stay, timeout_ms, meeting);
    return status == WEFT_OK ? complete(label, point, meeting) : status;
}

weft_status weft_i_exchange_hosts(const weft_i_label *label, weft_group *group, uint32_t digest,
                                  bool later, const void *mine, size_t bytes, char *all,
                                  int64_t timeout_ms)
{
    static const weft_i_stay on_board = {.place = WEFT_I_ON_BOARD};
    weft_i_point point = weft_i_hosts_point(group, WEFT_I_HOSTS_BOARD, later);
    weft_i_meeting meeting = {.culprit = -1};
    WEFT_TRY(weft_i_group_check_revoked(label));
    WEFT_TRY(weft_i_hosts_settle(label, WEFT_I_HOSTS_PUT_TO_ALL, timeout_ms));
    weft_i_group_show_op(group, label->op);
    weft_status status = weft_i_hosts_come(group, &point, digest, mine, bytes, &meeting);
    if (status == WEFT_OK)
        status = weft_i_hosts_await(label, &point, &on_board, timeout_ms, &meeting);
    if (status == WEFT_ERR_MISMATCH && !weft_i_group_is_made(group))
        return weft_i_group_fail_quarrel(label, &meeting);
    for (int rank = 0; status == WEFT_OK && all && rank < group->size; rank++)
        memcpy(all + (size_t)rank * bytes,
               weft_i_hosts_note(group, WEFT_I_HOSTS_BOARD, rank, meeting.epoch), bytes);
    return status;
}

/* ---- any other wait ---- */

typedef struct waiting {
    const weft_i_label *label;
    bool (*ready)(void *arg);
    bool (*owed)(void *arg, int member); /* NULL: `whom` alone is waited for */
    void *arg;
    int whom;
} waiting;

static bool is_ready(void *arg)
{
    const waiting *w = arg;
    return w->ready(w->arg);
}

/* Is the member gone, and missed?  One that left when it was through is not. */
static bool is_lost(const waiting *w, int rank)
{
    const weft_group *group = w->label->group;
    if (rank == group->rank)
        return false;
    weft_status fate = weft_i_group_fate(group, rank);
    return fate < 0 && (fate != WEFT_ERR_PEER_LEFT || !w->owed || w->owed(w->arg, rank));
}

static weft_status lost_member(void *arg)
{
    const waiting *w = arg;
    weft_i_hosts_look(w->label->group, w->whom);
    int first = w->owed ? 0 : w->whom, end = w->owed ? w->label->group->size : w->whom + 1;
    for (int rank = first; rank < end; rank++)
        if (is_lost(w, rank))
            return weft_i_group_lost(w->label, rank);
    return WEFT_OK;
}

static weft_status wait_for(waiting *w, int64_t timeout_ms)
{
    const weft_group *group = w->label->group;
    WEFT_ASSERT(w->owed || (w->whom >= 0 && w->whom < group->size));
    weft_i_wait wait = {.ready = is_ready,
                        .lost = lost_member,
                        .arg = w,
                        .wheel = weft_i_remote_wheel(group->world->remote),
                        .deadline = weft_i_os_deadline(timeout_ms),
                        .peers = w->owed ? group->size : 1,
                        .mode = group->world->mode};
    weft_status status = weft_i_wait_for(&wait);
    if (status != WEFT_ERR_TIMEOUT)
        return status;
    char what[160], who[512] = "its members";
    weft_i_label_text(w->label, what, sizeof what);
    if (w->whom >= 0)
        weft_i_world_describe(group->world, group->members[w->whom], who, sizeof who);
    return weft_i_fail(status, "%s: waited %lld ms for %s", what, (long long)timeout_ms, who);
}

weft_status weft_i_hosts_wait(const weft_i_label *label, bool (*ready)(void *arg), void *arg,
                              int whom, int64_t timeout_ms)
{
    waiting w = {label, ready, NULL, arg, whom};
    return wait_for(&w, timeout_ms);
}

weft_status weft_i_hosts_wait_for_owed(const weft_i_label *label, bool (*ready)(void *arg),
                                       bool (*owed)(void *arg, int member), void *arg,
                                       int64_t timeout_ms)
{
    waiting w = {label, ready, owed, arg, -1};
    return wait_for(&w, timeout_ms);
}

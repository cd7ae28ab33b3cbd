/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings on pads of symmetric memory in a group that spans hosts; see hosts_pads.h and hosts_meet.c. */
#include "fabric/group/hosts_pads.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/wire.h"

#include <string.h>

/* The words of a POINT. */
enum { WORD_CHANNEL, WORD_EPOCH, WORD_DIGEST, WORD_SERIAL };

/* Between the end of a group and that of its memory, of which either may come first.  Taken before the
 * remote's lock. */
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;

/* ---- which there are ---- */

static weft_i_hosts_put *make_puts(const weft_group *group)
{
    return group->hosts->puts ? group->hosts->puts
                              : WEFT_OS->alloc((size_t)group->size * sizeof *group->hosts->puts);
}

weft_status weft_i_hosts_pads_join(weft_group *group, weft_i_hosts_pads *pads)
{
    WEFT_ASSERT(!pads->hosts && pads->channels > 0);
    weft_i_hosts *hosts = group->hosts;
    weft_i_hosts_put *puts = make_puts(group);
    if (!puts)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for what is put to %d ranks",
                           group->size);
    pthread_mutex_lock(&ending);
    weft_i_remote_enter(group->world->remote);
    hosts->puts = puts;
    pads->hosts = hosts;
    pads->generation = group->world->generation;
    pads->next = hosts->pads;
    hosts->pads = pads;
    weft_i_remote_give(group->world->remote);
    pthread_mutex_unlock(&ending);
    weft_i_hosts_again(group);
    return WEFT_OK;
}

static void unlink_pads(const weft_i_hosts_pads *pads)
{
    weft_i_remote *remote = pads->hosts->group->world->remote;
    weft_i_hosts_pads **at = &pads->hosts->pads;
    weft_i_remote_enter(remote);
    while (*at && *at != pads)
        at = &(*at)->next;
    if (*at)
        *at = pads->next;
    weft_i_remote_give(remote);
}

void weft_i_hosts_pads_leave(weft_i_hosts_pads *pads)
{
    if (pads->generation != weft_i_os_generation())
        return; /* a forked child: the group is the parent's */
    pthread_mutex_lock(&ending);
    if (pads->hosts)
        unlink_pads(pads);
    pads->hosts = NULL;
    pthread_mutex_unlock(&ending);
}

void weft_i_hosts_pads_forget(weft_i_hosts *hosts)
{
    if (hosts->group->world->generation != weft_i_os_generation())
        return;
    pthread_mutex_lock(&ending);
    for (weft_i_hosts_pads *pads = hosts->pads; pads; pads = pads->next)
        pads->hosts = NULL;
    pthread_mutex_unlock(&ending);
}

weft_i_hosts_pads *weft_i_hosts_pads_find(const weft_group *group, uint32_t serial)
{
    weft_i_hosts_pads *pads = group->hosts->pads;
    while (pads && pads->serial != serial)
        pads = pads->next;
    return pads;
}

weft_i_point weft_i_hosts_pads_point(const weft_i_hosts_pads *pads, int channel)
{
    WEFT_ASSERT(channel >= 0 && channel < pads->channels);
    weft_i_point point = pads->first;
    point.words += (size_t)channel * sizeof(uint64_t);
    point.passes += (size_t)channel * sizeof(uint64_t);
    point.tag = (uint32_t)channel;
    return point;
}

/* ---- arriving ---- */

static const weft_i_hosts_far *far_of(const weft_i_point *point)
{
    return (const weft_i_hosts_far *)(const void *)point->far;
}

static weft_status tell_arrival(const weft_group *group, int to, uint32_t serial, uint32_t channel,
                                uint32_t epoch, uint32_t digest)
{
    const uint32_t word[WEFT_I_HEAD_WORDS] = {[WORD_CHANNEL] = channel,
                                              [WORD_EPOCH] = epoch,
                                              [WORD_DIGEST] = digest,
                                              [WORD_SERIAL] = serial};
    return weft_i_hosts_tell(group, to, WEFT_I_HEAD_POINT, word, NULL, 0);
}

static void send_arrival(const weft_i_point *point, const weft_i_meeting *meeting)
{
    const weft_i_hosts_far *far = far_of(point);
    weft_i_hosts *hosts = far->hosts;
    const weft_group *group = hosts->group;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_remote_enter(group->world->remote);
    for (int host = 0; host < hosts->count; host++) {
        int partner = host == hosts->mine ? -1 : weft_i_hosts_meet_partner(hosts, host);
        if (partner >= 0 && tell_arrival(group, partner, far->serial, far->channel, meeting->epoch,
                                         meeting->digest) == WEFT_ERR_NO_MEMORY)
            weft_i_group_spoil(group, WEFT_ERR_NO_MEMORY); /* else the others would wait for ever */
    }
    weft_i_remote_give(group->world->remote);
    weft_i_errors_restore(&before);
}

void weft_i_hosts_pads_repeat(const weft_i_hosts *hosts, int to)
{
    for (const weft_i_hosts_pads *pads = hosts->pads; pads; pads = pads->next)
        for (int channel = 0; channel < pads->channels; channel++) {
            weft_i_point point = weft_i_hosts_pads_point(pads, channel);
            /* Relaxed: our own word. */
            uint64_t arrival = atomic_load_explicit(weft_i_point_word(&point, hosts->group->rank),
                                                    memory_order_relaxed);
            if (weft_i_arrival_epoch(arrival))
                tell_arrival(hosts->group, to, pads->serial, (uint32_t)channel,
                             weft_i_arrival_epoch(arrival), weft_i_arrival_digest(arrival));
        }
}

/* ---- what others say ---- */

static void ring_here(const weft_i_hosts *hosts, const weft_i_point *point)
{
    const weft_i_host *here = &hosts->host[hosts->mine];
    /* Pairs with the fence in set_bell. */
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < here->count; i++)
        weft_i_wait_ring(weft_i_point_bell(point, here->members[i]));
}

static bool point_of(const weft_group *group, int from, uint32_t serial, uint32_t channel,
                     weft_i_point *out)
{
    const weft_i_hosts_pads *pads = weft_i_hosts_pads_find(group, serial);
    if (!pads || channel >= (uint32_t)pads->channels || !group->hosts->away[from])
        return false;
    *out = weft_i_hosts_pads_point(pads, (int)channel);
    return true;
}

static bool take_point(weft_group *group, int from, const weft_i_head *head, const void *data,
                       size_t bytes)
{
    weft_i_point point;
    uint32_t epoch = head->word[WORD_EPOCH];
    (void)data;
    (void)bytes;
    if (!point_of(group, from, head->word[WORD_SERIAL], head->word[WORD_CHANNEL], &point))
        return true; /* this rank has let go of it */
    _Atomic uint64_t *word = weft_i_point_word(&point, from);
    /* Our own copy.  What is said again may have been overtaken. */
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
    if ((int32_t)(weft_i_arrival_epoch(now) - epoch) > 0)
        return true;
    /* Pairs with the acquire in word_of. */
    atomic_store_explicit(word, (uint64_t)epoch << 32 | head->word[WORD_DIGEST],
                          memory_order_release);
    ring_here(group->hosts, &point);
    return true;
}

void weft_i_hosts_pads_name(const weft_i_hosts_far *far, unsigned char out[WEFT_I_HOSTS_PADS_BYTES])
{
    weft_i_wire_writer to = weft_i_wire_write(out, WEFT_I_HOSTS_PADS_BYTES);
    weft_i_wire_put_u32(&to, far->serial);
    weft_i_wire_put_u32(&to, far->channel);
    WEFT_ASSERT(to.at == WEFT_I_HOSTS_PADS_BYTES);
}

/* As take_bar of hosts.c. */
static bool take_bar(weft_group *group, int from, const weft_i_head *head, const void *data,
                     size_t bytes)
{
    int who = -1;
    weft_i_point point;
    weft_i_wire_reader name = weft_i_wire_read(data, bytes);
    uint32_t serial = weft_i_wire_get_u32(&name), channel = weft_i_wire_get_u32(&name);
    weft_status found = WEFT_IN_PROGRESS; /* who has let go of the memory is not asked any more */
    if (weft_i_wire_done(&name) && point_of(group, from, serial, channel, &point)) {
        /* Pairs with the acquire in word_of, as the arrival that it restores. */
        atomic_store_explicit(weft_i_point_word(&point, from),
                              (uint64_t)head->word[2] << 32 | head->word[3], memory_order_release);
        /* Relaxed: see weft_i_vigil_saw_give_up. */
        atomic_store_explicit(weft_i_point_gave_up(&point, from),
                              weft_i_stamp(WEFT_OS->clock_ns(), point.tag), memory_order_relaxed);
        weft_i_os_barrier_everywhere();
        found = weft_i_signal_bar(&point, head->word[1], 0, -1, &who);
    }
    weft_i_hosts_answer_bar(group->world, group->members[from], head, found, who);
    return true;
}

/* ---- meeting ---- */

static weft_status bar_all(const weft_i_point *point, weft_i_meeting *meeting)
{
    weft_i_hosts *hosts = far_of(point)->hosts;
    pthread_mutex_lock(&hosts->barring);
    weft_status found = weft_i_hosts_bar_all(point, meeting);
    pthread_mutex_unlock(&hosts->barring);
    return found;
}

weft_status weft_i_hosts_pads_meet(const weft_i_label *label, const weft_i_hosts_pads *pads,
                                   uint32_t digest, int64_t timeout_ms, weft_i_meeting *meeting)
{
    const weft_group *group = label->group;
    weft_i_hosts_far far = {.far = group->hosts->far[WEFT_I_HOSTS_BOARD].far,
                            .hosts = group->hosts,
                            .place = WEFT_I_HOSTS_PADS,
                            .serial = pads->serial,
                            .channel = (uint32_t)label->channel};
    weft_i_point point = weft_i_hosts_pads_point(pads, label->channel);
    far.far.told = send_arrival;
    far.far.bar = bar_all;
    point.far = &far.far;
    meeting->culprit = -1;
    WEFT_TRY(weft_i_group_check_revoked(label));
    if (weft_i_hosts_is_unsettled(group->hosts)) {
        int64_t deadline = weft_i_os_deadline(timeout_ms);
        WEFT_TRY(weft_i_hosts_settle(label, WEFT_I_HOSTS_PUT_TO_ALL, timeout_ms));
        timeout_ms = weft_i_os_ms_until(deadline);
    }
    WEFT_TRY(weft_i_signal_come(&point, digest, meeting));
    send_arrival(&point, meeting);
    weft_status status = weft_i_group_keep_vigil(label, &point, NULL, timeout_ms, meeting);
    /* Whoever drove has written what others have put here. */
    weft_i_remote_enter(group->world->remote);
    weft_i_remote_give(group->world->remote);
    return status;
}

__attribute__((constructor)) static void take_messages(void)
{
    weft_i_hosts_on(WEFT_I_HEAD_POINT, take_point);
    weft_i_hosts_on(WEFT_I_HEAD_POINT_BAR, take_bar);
}

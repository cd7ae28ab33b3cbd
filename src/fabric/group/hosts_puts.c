/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of what was put into memory of members on other hosts; see hosts_pads.h. */
#include "fabric/group/hosts_pads.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

/* The words of an APPLIED. */
enum { WORD_COUNT, WORD_ASKS };

bool weft_i_hosts_put_has_room(const weft_i_hosts *hosts, int member)
{
    const weft_i_hosts_put *put = &hosts->puts[member];
    return put->sent - put->applied < WEFT_I_HOSTS_PUTS;
}

void weft_i_hosts_put_sent(weft_i_hosts *hosts, int member, bool has_data, bool asks)
{
    weft_i_hosts_put *put = &hosts->puts[member];
    if (put->sent == put->applied)
        atomic_fetch_add_explicit(&hosts->unsettled, 1, memory_order_relaxed);
    put->sent++;
    if (has_data)
        put->data = put->sent;
    if (asks)
        put->asked = put->sent;
}

void weft_i_hosts_put_applied(weft_i_hosts *hosts, int member, uint32_t count)
{
    weft_i_hosts_put *put = &hosts->puts[member];
    /* Never more than were sent, nor fewer than before. */
    if (count - put->applied > put->sent - put->applied || count == put->applied)
        return;
    put->applied = count;
    if (put->sent == put->applied)
        atomic_fetch_sub_explicit(&hosts->unsettled, 1, memory_order_relaxed);
}

uint32_t weft_i_hosts_put_tell(weft_i_hosts *hosts, int member)
{
    hosts->puts[member].told = hosts->puts[member].came;
    return hosts->puts[member].came;
}

static void tell(weft_i_hosts *hosts, int member, bool asks)
{
    uint32_t before = hosts->puts[member].told;
    const uint32_t word[WEFT_I_HEAD_WORDS] = {
        [WORD_COUNT] = weft_i_hosts_put_tell(hosts, member), [WORD_ASKS] = asks};
    weft_i_errors errors;
    weft_i_errors_save(&errors);
    if (weft_i_hosts_tell(hosts->group, member, WEFT_I_HEAD_APPLIED, word, NULL, 0) < 0)
        hosts->puts[member].told = before; /* whoever waits for it asks again */
    weft_i_errors_restore(&errors);
}

void weft_i_hosts_put_came(weft_i_hosts *hosts, int member, bool at_once)
{
    weft_i_hosts_put *put = &hosts->puts[member];
    put->came++;
    if (at_once || put->came - put->told >= WEFT_I_HOSTS_PUTS / 2)
        tell(hosts, member, false);
}

static bool take_applied(weft_group *group, int from, const weft_i_head *head, const void *data,
                         size_t bytes)
{
    weft_i_hosts *hosts = group->hosts;
    (void)data;
    (void)bytes;
    if (!hosts->puts || !hosts->away[from])
        return true;
    weft_i_hosts_put_applied(hosts, from, head->word[WORD_COUNT]);
    if (head->word[WORD_ASKS])
        tell(hosts, from, false);
    return true;
}

/* ---- settling ---- */

typedef struct settling {
    weft_i_hosts *hosts;
    int but;  /* as in weft_i_hosts_settle */
    int whom; /* whose answer is waited for; -1: nobody's */
    int64_t asked_at;
} settling;

static bool has_applied(const weft_i_hosts_put *put, bool only_data)
{
    WEFT_ASSERT((int32_t)(put->sent - put->applied) >= 0);
    return only_data ? (int32_t)(put->data - put->applied) <= 0 : put->sent == put->applied;
}

/* The first member with such unapplied pieces, which is not lost. */
static int first_unsettled(weft_i_hosts *hosts, int but)
{
    const weft_group *group = hosts->group;
    for (int member = 0; member < group->size; member++) {
        const weft_i_hosts_put *put = &hosts->puts[member];
        if (member == but || has_applied(put, but != WEFT_I_HOSTS_PUT_TO_ALL))
            continue;
        if (weft_i_world_fate(group->world, group->members[member]) == WEFT_OK)
            return member;
        weft_i_hosts_put_applied(hosts, member, put->sent);
    }
    return -1;
}

/* One that asks again after a while: an answer for which there was no memory has not come. */
static bool is_settled(void *arg)
{
    enum { AGAIN_NS = 1000 * 1000 * 1000 };
    settling *s = arg;
    weft_i_remote *remote = s->hosts->group->world->remote;
    weft_i_remote_enter(remote);
    weft_i_hosts_put *put = &s->hosts->puts[s->whom];
    bool settled = has_applied(put, s->but != WEFT_I_HOSTS_PUT_TO_ALL);
    int64_t now = settled ? 0 : WEFT_OS->clock_ns();
    if (!settled && (put->asked != put->sent || now - s->asked_at > AGAIN_NS)) {
        put->asked = put->sent;
        s->asked_at = now;
        tell(s->hosts, s->whom, true);
    }
    weft_i_remote_give(remote);
    return settled;
}

weft_status weft_i_hosts_settle_slowly(const weft_i_label *label, int but, int64_t timeout_ms)
{
    weft_i_hosts *hosts = label->group->hosts;
    WEFT_ASSERT(hosts->puts);
    weft_i_remote *remote = label->group->world->remote;
    int64_t deadline = weft_i_os_deadline(timeout_ms);
    for (;;) {
        weft_i_remote_enter(remote);
        settling s = {hosts, but, first_unsettled(hosts, but), WEFT_OS->clock_ns()};
        weft_i_remote_give(remote);
        if (s.whom < 0)
            return WEFT_OK;
        weft_status status =
            weft_i_hosts_wait(label, is_settled, &s, s.whom, weft_i_os_ms_until(deadline));
        if (status < 0 && status != WEFT_ERR_PEER_DEAD && status != WEFT_ERR_PEER_LEFT)
            return status;
        if (status < 0 &&
            weft_i_world_fate(label->group->world, label->group->members[s.whom]) == WEFT_OK)
            return status; /* another one's, or it has left the group alone */
    }
}

__attribute__((constructor)) static void take_messages(void)
{
    weft_i_hosts_on(WEFT_I_HEAD_APPLIED, take_applied);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules; see schedule.h. */
#include "coll/hosts/schedule.h"

#include "base/os/assert.h"
#include "kernels/fold/fold_hosts.h"

/* Hosts in pairs at the start: the first of a pair stands for both. */
typedef struct pairing {
    int extra; /* pairs */
    int whole; /* that are left: a power of two */
} pairing;

static pairing pair_up(int hosts)
{
    int whole = weft_i_fold_whole(hosts);
    return (pairing){hosts - whole, whole};
}

/* The host that stands at `place` of those that are left. */
static int host_at(const pairing *p, int place)
{
    return place < p->extra ? 2 * place : place + p->extra;
}

/* Where a host stands, or its pair does. */
static int place_of(const pairing *p, int host)
{
    return host < 2 * p->extra ? host / 2 : host - p->extra;
}

static bool is_second(const pairing *p, int host)
{
    return host < 2 * p->extra && host % 2;
}

int weft_i_schedule_all_reduce(int hosts, int me, weft_i_step steps[WEFT_I_STEPS])
{
    WEFT_ASSERT(hosts > 0 && me >= 0 && me < hosts);
    pairing p = pair_up(hosts);
    int n = 0, place = place_of(&p, me);
    if (is_second(&p, me)) {
        steps[n++] = (weft_i_step){WEFT_I_STEP_GIVE, me - 1, false};
        steps[n++] = (weft_i_step){WEFT_I_STEP_TAKE, me - 1, false};
        return n;
    }
    if (me < 2 * p.extra)
        steps[n++] = (weft_i_step){WEFT_I_STEP_JOIN, me + 1, true};
    for (int apart = 1; apart < p.whole; apart *= 2)
        steps[n++] = (weft_i_step){WEFT_I_STEP_SWAP, host_at(&p, place ^ apart), !(place & apart)};
    if (me < 2 * p.extra)
        steps[n++] = (weft_i_step){WEFT_I_STEP_GIVE, me + 1, false};
    return n;
}

/*
 * The same tree, but of every two places only one goes on: the one whose subtree has the root's
 * place, or else the first.
 */
int weft_i_schedule_reduce(int hosts, int me, int root, weft_i_step steps[WEFT_I_STEPS])
{
    WEFT_ASSERT(hosts > 0 && me >= 0 && me < hosts && root >= 0 && root < hosts);
    pairing p = pair_up(hosts);
    int n = 0, place = place_of(&p, me), goal = place_of(&p, root);
    bool swapped = is_second(&p, root) && place == goal; /* then the second stands for the pair */
    int stands = swapped ? root : host_at(&p, place);
    if (me != stands) {
        steps[n++] = (weft_i_step){WEFT_I_STEP_GIVE, stands, false};
        return n;
    }
    if (me < 2 * p.extra)
        steps[n++] = (weft_i_step){WEFT_I_STEP_JOIN, me ^ 1, !(me & 1)};
    for (int apart = 1; apart < p.whole; apart *= 2) {
        int mine = place / apart, other = mine ^ 1; /* subtrees */
        int to_goal = goal / apart;
        bool goes_on = mine == to_goal || (other != to_goal && !(mine & 1));
        int low = place % apart, peer_low = other == to_goal ? goal % apart : 0;
        WEFT_ASSERT(low == (mine == to_goal ? goal % apart : 0));
        (void)low;
        int peer_place = other * apart + peer_low;
        int peer = peer_place == goal && is_second(&p, root) ? root : host_at(&p, peer_place);
        steps[n++] =
            (weft_i_step){goes_on ? WEFT_I_STEP_JOIN : WEFT_I_STEP_GIVE, peer, !(mine & 1)};
        if (!goes_on)
            break;
    }
    return n;
}

int weft_i_schedule_broadcast(int hosts, int me, int root, weft_i_step steps[WEFT_I_STEPS])
{
    WEFT_ASSERT(hosts > 0 && me >= 0 && me < hosts && root >= 0 && root < hosts);
    int place = (me - root + hosts) % hosts, n = 0, apart = 1;
    while (apart < hosts && !(place & apart))
        apart *= 2;
    if (place)
        steps[n++] = (weft_i_step){WEFT_I_STEP_TAKE, (me - apart + hosts) % hosts, false};
    for (apart /= 2; apart > 0; apart /= 2) /* the largest subtree first */
        if (place + apart < hosts)
            steps[n++] = (weft_i_step){WEFT_I_STEP_GIVE, (me + apart) % hosts, false};
    return n;
}

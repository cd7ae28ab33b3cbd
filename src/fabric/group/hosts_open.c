/* SPDX-License-Identifier: Apache-2.0 */
/* Making the part of a group that spans hosts: who is where, the members of this host, their board. */
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/hosts.h"

#include <string.h>

/* ---- who is where ---- */

static bool same_host(const weft_group *group, int a, int b)
{
    const weft_i_peer *peers = group->world->peers;
    return !strcmp(peers[group->members[a]].host, peers[group->members[b]].host);
}

/* Numbers the hosts in the order of their first members. */
static void find_hosts(weft_i_hosts *hosts, int *first_of)
{
    const weft_group *group = hosts->group;
    for (int member = 0; member < group->size; member++) {
        int host = 0;
        while (host < hosts->count && !same_host(group, first_of[host], member))
            host++;
        if (host == hosts->count)
            first_of[hosts->count++] = member;
        hosts->host_of[member] = host;
        hosts->index_of[member] = hosts->host[host].count++;
    }
}

/* The lists of members, one behind the other. */
static void list_members(weft_i_hosts *hosts, int *list)
{
    const weft_group *group = hosts->group;
    hosts->rails = group->size;
    for (int host = 0; host < hosts->count; host++) {
        int *members = list;
        for (int member = 0; member < group->size; member++)
            if (hosts->host_of[member] == host)
                *list++ = member;
        hosts->host[host].members = members;
        if (hosts->host[host].count < hosts->rails)
            hosts->rails = hosts->host[host].count;
    }
    hosts->mine = hosts->host_of[group->rank];
    hosts->index = hosts->index_of[group->rank];
    WEFT_ASSERT(hosts->host[hosts->mine].members[hosts->index] == group->rank);
    for (int host = 0; host < hosts->count; host++)
        hosts->route[host] = hosts->host[host].members[hosts->index % hosts->host[host].count];
    for (int rank = 0; rank < group->world->size; rank++)
        hosts->member_of[rank] = -1;
    for (int member = 0; member < group->size; member++) {
        hosts->member_of[group->members[member]] = member;
        hosts->away[member] = hosts->host_of[member] != hosts->mine;
    }
}

static weft_status no_memory(const weft_group *group)
{
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a group of %d ranks on several hosts",
                       group->size);
}

/* One block of numbers for all its tables. */
static weft_status make_tables(weft_i_hosts *hosts)
{
    size_t size = (size_t)hosts->group->size, world = (size_t)hosts->group->world->size;
    size_t tables = 4 + WEFT_I_HOSTS_ALL_PLACES; /* of `size` numbers */
    hosts->numbers = WEFT_OS->alloc((tables * size + world) * sizeof *hosts->numbers);
    hosts->host = WEFT_OS->alloc(size * sizeof *hosts->host);
    hosts->away = WEFT_OS->alloc(size);
    if (!hosts->numbers || !hosts->host || !hosts->away)
        return no_memory(hosts->group);
    int *at = hosts->numbers;
    hosts->host_of = at;
    hosts->index_of = at + size;
    hosts->route = at + 2 * size;
    for (int place = 0; place < WEFT_I_HOSTS_ALL_PLACES; place++)
        hosts->bar[place].asked = at + (4 + (size_t)place) * size;
    hosts->member_of = at + tables * size;
    find_hosts(hosts, hosts->route); /* which is filled afterwards */
    list_members(hosts, at + 3 * size);
    return WEFT_OK;
}

static weft_status make(weft_group *group, weft_i_hosts **out)
{
    weft_i_hosts *hosts = WEFT_OS->alloc(sizeof *hosts);
    if (!hosts)
        return no_memory(group);
    hosts->group = group;
    hosts->tag = weft_i_hosts_tag(group->key);
    pthread_mutex_init(&hosts->barring, NULL);
    weft_status status = make_tables(hosts);
    if (status < 0) {
        weft_i_hosts_free(hosts);
        return status;
    }
    for (int place = 0; place < WEFT_I_HOSTS_PLACES; place++)
        hosts->far[place] =
            (weft_i_hosts_far){.far = {.away = hosts->away,
                                       .told = weft_i_hosts_send_arrival,
                                       .bar = weft_i_hosts_bar_all,
                                       .wheel = weft_i_remote_wheel(group->world->remote),
                                       .alone = hosts->host[hosts->mine].count == 1},
                               .hosts = hosts,
                               .place = (weft_i_hosts_place)place};
    *out = hosts;
    return WEFT_OK;
}

void weft_i_hosts_end(weft_i_hosts *hosts)
{
    if (hosts && hosts->group->world->generation == weft_i_os_generation() && hosts->group->board)
        weft_i_hosts_leave(hosts);
}

/* The last reference to the group is gone, or it could not be made. */
void weft_i_hosts_free(weft_i_hosts *hosts)
{
    if (!hosts)
        return;
    weft_i_hosts_end(hosts);
    weft_i_hosts_pads_forget(hosts);
    weft_release(hosts->near);
    WEFT_OS->free(hosts->numbers);
    WEFT_OS->free(hosts->host);
    WEFT_OS->free(hosts->away);
    WEFT_OS->free(hosts->puts);
    pthread_mutex_destroy(&hosts->barring);
    WEFT_OS->free(hosts);
}

/* ---- the members of this host ---- */

static weft_status make_near(weft_i_hosts *hosts, weft_group *parent, int64_t deadline)
{
    weft_group *group = hosts->group;
    const weft_i_host *here = &hosts->host[hosts->mine];
    int *ranks = WEFT_OS->alloc((size_t)here->count * sizeof *ranks);
    if (!ranks)
        return no_memory(group);
    for (int i = 0; i < here->count; i++)
        ranks[i] = weft_group_rank_of(parent, group->members[here->members[i]]);
    weft_i_making how = {.opts = WEFT_GROUP_OPTS_INIT,
                         .unlisted = true,
                         .shrinks = group->birth && !group->birth->from, /* as the whole does */
                         .near_of = group,
                         .limit_ms = weft_i_os_ms_until(deadline)};
    how.opts.timeout_ms = group->timeout_ms;
    hosts->near = weft_i_group_make(parent, ranks, here->count, &how);
    if (hosts->near)
        weft_keep(hosts->near);
    WEFT_ASSERT(!hosts->near || hosts->near->size == here->count);
    WEFT_OS->free(ranks);
    return hosts->near ? WEFT_OK : weft_last_status();
}

static weft_status lost_here(void *arg)
{
    weft_i_label label = {arg, "group_new", -1};
    for (int rank = 0; rank < label.group->size; rank++)
        if (weft_i_group_fate(label.group, rank) < 0)
            return weft_i_group_lost(&label, rank);
    return WEFT_OK;
}

/* The first member here makes the board for all of them. */
static weft_status get_board(weft_group *group, weft_group *near, weft_i_key key, int64_t deadline)
{
    const weft_i_world *world = group->world;
    size_t bytes = weft_i_board_bytes(group->size);
    if (near->rank == 0) {
        weft_status status = weft_i_segment_new(bytes, world->sharing, "a group's board",
                                                &group->rest.board_segment);
        if (status == WEFT_OK) {
            weft_i_board *board = (weft_i_board *)(void *)group->rest.board_segment->base;
            board->ranks = (uint32_t)group->size;
            board->key = group->key;
        }
        weft_status offered =
            weft_i_fdpass_publish(world->fdpass, key, group->rest.board_segment, status);
        return status < 0 ? status : offered;
    }
    weft_i_fdpass_order order = {.own = world->fdpass,
                                 .peer = world->peers[near->members[0]].fdpass,
                                 .key = key,
                                 .bytes = bytes,
                                 .deadline = deadline,
                                 .lost = lost_here,
                                 .arg = near};
    weft_status status = weft_i_fdpass_fetch(&order, &group->rest.board_segment);
    return status == WEFT_ERR_TIMEOUT
               ? weft_i_fail(status,
                             "group_new \"%s\": rank %d of the world did not hand out its board",
                             group->name, near->members[0])
               : status;
}

/* All here have the board, or none. */
static weft_status share_board(weft_group *group, weft_group *near, int64_t deadline)
{
    static const char copies[] = "copies";
    weft_i_key key = weft_i_key_of(near->key, copies, sizeof copies);
    int can = get_board(group, near, key, deadline);
    int *all = WEFT_OS->alloc((size_t)near->size * sizeof *all);
    weft_status status = can;
    if (!all) {
        can = WEFT_ERR_NO_MEMORY;
        weft_i_group_show(near, "group_new", &can, sizeof can);
        status = no_memory(group);
    } else if (can < 0) {
        weft_i_group_show(near, "group_new", &can, sizeof can);
    } else {
        status = weft_i_group_exchange(near, "group_new", &can, sizeof can, all,
                                       weft_i_os_ms_until(deadline));
    }
    for (int rank = 0; status == WEFT_OK && rank < near->size; rank++)
        if (all[rank] < 0)
            status = weft_i_fail((weft_status)all[rank],
                                 "group_new \"%s\": rank %d of the world could not take part (%s)",
                                 group->name, near->members[rank],
                                 weft_strerror((weft_status)all[rank]));
    if (near->rank == 0)
        weft_i_fdpass_withdraw(group->world->fdpass, key);
    WEFT_OS->free(all);
    return status;
}

/* Those who came before an earlier try of ours had failed say again what they have shown. */
static void ask_all(const weft_group *group)
{
    const weft_i_hosts *hosts = group->hosts;
    int here = hosts->host[hosts->mine].count;
    uint32_t word[WEFT_I_HEAD_WORDS] = {0xff};
    weft_i_errors before;
    weft_i_errors_save(&before);
    for (int member = 0; member < group->size; member++)
        if (hosts->away[member] && hosts->index_of[member] % here == hosts->index)
            weft_i_hosts_tell(group, member, WEFT_I_HEAD_ASK, word, NULL, 0);
    weft_i_errors_restore(&before);
}

static weft_status make_lane(weft_group *near, int64_t deadline)
{
    int64_t outer = weft_i_limit_swap(weft_i_os_ms_until(deadline));
    weft_status status = weft_i_lanes_table->make(near);
    weft_i_limit_swap(outer);
    return status;
}

weft_status weft_i_hosts_open(weft_group *group, weft_group *parent, bool again, int64_t deadline)
{
    WEFT_ASSERT(!group->hosts && !group->board);
    weft_i_hosts *hosts = NULL;
    WEFT_TRY(make(group, &hosts));
    weft_status status = make_near(hosts, parent, deadline);
    if (status == WEFT_OK)
        status = share_board(group, hosts->near, deadline);
    /* Sends and receives need it, which do not wait for those who have no part in them. */
    if (status == WEFT_OK && weft_i_lanes_table)
        status = make_lane(hosts->near, deadline);
    if (status < 0) {
        weft_i_hosts_free(hosts);
        return status;
    }
    group->board = (weft_i_board *)(void *)group->rest.board_segment->base;
    group->hosts = hosts;
    weft_i_hosts_join(hosts);
    if (again)
        ask_all(group);
    return WEFT_OK;
}

weft_status weft_i_hosts_open_world(weft_group *world, int64_t deadline)
{
    WEFT_TRY(weft_i_hosts_open(world, world, false, deadline));
    return weft_i_group_exchange(world, "init", NULL, 0, NULL, weft_i_os_ms_until(deadline));
}

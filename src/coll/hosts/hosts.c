/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm runs a kind of call between hosts; see hosts.h. */
#include "coll/hosts/hosts.h"

#include "base/report/status.h"
#include "coll/lane/enter.h"

/* Those of this floor, and what floors above add before anybody calls. */
static weft_i_runner *runners[WEFT_I_COLL_KINDS] = {
    [WEFT_I_BARRIER] = weft_i_hosts_barrier,
    [WEFT_I_ALL_REDUCE] = weft_i_hosts_all_reduce,
    [WEFT_I_REDUCE] = weft_i_hosts_reduce,
    [WEFT_I_BROADCAST] = weft_i_hosts_broadcast,
    [WEFT_I_ALL_GATHER] = weft_i_hosts_gather_all,
    [WEFT_I_GATHER] = weft_i_hosts_gather,
    [WEFT_I_SCATTER] = weft_i_hosts_scatter,
    [WEFT_I_REDUCE_SCATTER] = weft_i_hosts_reduce_scatter,
    [WEFT_I_ALL_TO_ALL] = weft_i_hosts_all_to_all,
    [WEFT_I_ALL_TO_ALL_ND] = weft_i_hosts_all_to_all,
    [WEFT_I_ALL_REDUCE_LIST] = weft_i_hosts_list_all_reduce,
    [WEFT_I_ALL_GATHER_LIST] = weft_i_hosts_list_all_gather,
    [WEFT_I_REDUCE_SCATTER_LIST] = weft_i_hosts_list_reduce_scatter,
    [WEFT_I_ALL_TO_ALL_LIST] = weft_i_hosts_all_to_all,
};

void weft_i_hosts_kind_run(weft_i_coll_kind kind, weft_i_runner *runner)
{
    WEFT_ASSERT(kind < WEFT_I_COLL_KINDS && !runners[kind]);
    runners[kind] = runner;
}

weft_status weft_i_hosts_run(weft_i_coll *coll, weft_i_runner *run, weft_i_runner *usual)
{
    /* What stands on streams (parts/gatherv.h) is the same between hosts. */
    bool streams = weft_i_kind_is(coll->ask.kind, WEFT_I_PER_RANK | WEFT_I_IS_OBJECT);
    weft_i_runner *runner = streams ? usual : runners[coll->ask.kind];
    if (!runner)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s: group \"%s\" spans hosts, and this is done inside a host only",
                           coll->ask.op, coll->group->name);
    weft_i_enter_note(coll);
    WEFT_TRY(weft_i_lane_of(coll->group, coll->ask.op, true, &coll->lane));
    coll->lane->ferry->run = run;
    return runner(coll);
}

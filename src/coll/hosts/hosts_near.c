/* SPDX-License-Identifier: Apache-2.0 */
/* Steps inside a host: calls of the group of its members; see hosts.h. */
#include "coll/hosts/hosts.h"

#include "base/report/status.h"
#include "coll/lane/list.h"
#include "coll/lane/request.h"

/* A call of bytes of the members here, under the name of the whole call and in its line of the record. */
static void begin(const weft_i_coll *coll, weft_i_coll_kind kind, weft_i_coll *out)
{
    weft_group *near = coll->group->hosts->near;
    weft_i_coll_empty(out);
    out->ask.op = coll->ask.op;
    out->ask.kind = kind;
    out->ask.dtype = WEFT_U8;
    out->ask.device = WEFT_CPU;
    out->ask.rank = near->rank;
    out->ask.size = near->size;
    out->ask.limit_ms = coll->ask.limit_ms;
    out->group = near;
    out->number = coll->number;
    out->label = (weft_i_label){near, coll->ask.op, -1};
}

/* The members here are in the middle of the whole group's operation, so a failure ends that.  If it
 * has ended already, it says why. */
static weft_status run(const weft_i_coll *coll, weft_i_coll *call)
{
    weft_status status = coll->lane->ferry->run(call);
    if (status >= 0)
        return status;
    if (weft_i_group_has_ended(coll->group))
        WEFT_TRY(weft_i_group_check_revoked(&coll->label));
    weft_i_group_spoil(coll->group, status);
    return status;
}

void weft_i_hosts_near_begin(const weft_i_coll *coll)
{
    weft_i_list *list = coll->lane->ferry->list;
    list->count = (size_t)coll->group->hosts->near->size;
    for (size_t i = 0; i < list->count; i++)
        list->items[i] = (weft_i_list_item){.item = 1};
}

void weft_i_hosts_near_give(const weft_i_coll *coll, int index, const void *data, size_t bytes)
{
    weft_i_list_item *item = &coll->lane->ferry->list->items[index];
    item->in = (char *)(uintptr_t)data; /* only read */
    item->bytes = bytes;
}

void weft_i_hosts_near_take(const weft_i_coll *coll, int index, void *data, size_t bytes)
{
    weft_i_list_item *item = &coll->lane->ferry->list->items[index];
    item->out = data;
    item->out_bytes = bytes;
}

weft_status weft_i_hosts_near_exchange(weft_i_coll *coll)
{
    weft_i_coll call;
    if (coll->group->hosts->near->size == 1)
        return WEFT_OK;
    begin(coll, WEFT_I_ALL_TO_ALL_LIST, &call);
    call.list = coll->lane->ferry->list;
    WEFT_TRY(weft_i_request_accept(&call, 0));
    return run(coll, &call);
}

weft_status weft_i_hosts_near_gather(weft_i_coll *coll, const void *in, char *out, size_t bytes)
{
    weft_i_coll call;
    begin(coll, WEFT_I_ALL_GATHER, &call);
    call.ask.in = (char *)(uintptr_t)in; /* only read */
    call.ask.out = out;
    call.ask.in_bytes = bytes;
    call.ask.out_bytes = bytes * (size_t)call.ask.size;
    WEFT_TRY(weft_i_request_accept(&call, bytes));
    return run(coll, &call);
}

weft_status weft_i_hosts_near_broadcast(weft_i_coll *coll, int root, char *data, size_t bytes)
{
    weft_i_coll call;
    if (coll->group->hosts->near->size == 1 || !bytes)
        return WEFT_OK;
    begin(coll, WEFT_I_BROADCAST, &call);
    call.ask.root = root;
    call.ask.in = call.ask.out = data;
    call.ask.in_bytes = call.ask.out_bytes = bytes;
    WEFT_TRY(weft_i_request_accept(&call, bytes));
    return run(coll, &call);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives through host memory: for operands of a device that no backend carries.  Inputs are copied
 * to the host, the call runs on the copies, and outputs are copied back.  Slow, but right for every
 * kind; the log says so once for each kind of collective.
 */
#include "base/report/log.h"
#include "base/report/status.h"
#include "coll/device/carrier.h"
#include "coll/lane/list.h"
#include "tensor/op/loops.h"

/* A tensor like `x` in host memory, with its elements; NULL for NULL.  Outputs have them too:
 * what a call leaves alone must be there when it is copied back. */
static weft_status bring(weft_tensor *x, weft_tensor **out)
{
    *out = NULL;
    if (!x)
        return WEFT_OK;
    *out = weft_keep(weft_i_tensor_new(x->dtype, WEFT_CPU, weft_i_tensor_shape(x), NULL));
    return *out ? weft_i_tensor_copy(*out, x) : weft_last_status();
}

static weft_status take_back(weft_tensor *x, weft_tensor *here)
{
    return x && here ? weft_i_tensor_copy(x, here) : WEFT_OK;
}

/* Of an item: its own tensor's, or that of a row inside the tensor of the whole call. */
static char *place_of(const weft_tensor *own, const char *there, const char *whole_there,
                      char *whole_here)
{
    if (own)
        return weft_i_tensor_data(own);
    return there && whole_here ? whole_here + (there - whole_there) : NULL;
}

static weft_status bring_list(const weft_i_coll *coll, weft_i_coll *call)
{
    const weft_i_list *list = coll->list;
    weft_i_list *here = call->list = weft_i_list_new(list->count);
    if (!here)
        return weft_last_status();
    here->bytes = list->bytes;
    for (size_t i = 0; i < list->count; i++) {
        const weft_i_list_item *from = &list->items[i];
        weft_i_list_item *to = &here->items[here->count++];
        *to = *from;
        to->in_tensor = to->out_tensor = NULL;
        WEFT_TRY(bring(from->in ? from->in_tensor : NULL, &to->in_tensor));
        WEFT_TRY(bring(from->out ? from->out_tensor : NULL, &to->out_tensor));
        to->in = place_of(to->in_tensor, from->in, coll->ask.in, call->ask.in);
        to->out = place_of(to->out_tensor, from->out, coll->ask.out, call->ask.out);
    }
    return WEFT_OK;
}

static weft_status take_list_back(const weft_i_list *list, const weft_i_list *here)
{
    for (size_t i = 0; i < list->count; i++)
        WEFT_TRY(take_back(list->items[i].out_tensor, here->items[i].out_tensor));
    return WEFT_OK;
}

/* The call on host memory.  What it holds is dropped by the caller, also if this fails. */
static weft_status bring_all(const weft_i_coll *coll, weft_i_coll *here)
{
    weft_i_coll_copy(here, coll);
    here->in_tensor = here->out_tensor = NULL;
    here->list = NULL;
    here->own_done = false;
    here->ask.device = WEFT_CPU;
    WEFT_TRY(bring(coll->ask.in ? coll->in_tensor : NULL, &here->in_tensor));
    WEFT_TRY(bring(coll->ask.out ? coll->out_tensor : NULL, &here->out_tensor));
    here->ask.in = here->in_tensor ? weft_i_tensor_data(here->in_tensor) : NULL;
    here->ask.out = here->out_tensor ? weft_i_tensor_data(here->out_tensor) : NULL;
    return coll->list ? bring_list(coll, here) : WEFT_OK;
}

static void say_so(const weft_i_coll *coll)
{
    static atomic_uint_least64_t said; /* bits of kinds; relaxed: it only saves words */
    uint64_t bit = UINT64_C(1) << (coll->ask.kind & 63);
    char name[16];
    if (!(atomic_fetch_or_explicit(&said, bit, memory_order_relaxed) & bit))
        weft_i_log(WEFT_LOG_INFO, "%s: operands on %s go through host memory", coll->ask.op,
                   weft_device_name(coll->ask.device, name));
}

weft_status weft_i_through_host(weft_i_coll *coll, weft_status (*run)(weft_i_coll *coll))
{
    weft_i_coll here;
    say_so(coll);
    weft_status status = bring_all(coll, &here);
    if (status >= 0)
        status = run(&here);
    coll->lane = here.lane;
    coll->number = here.number;
    if (status >= 0 && coll->list)
        status = take_list_back(coll->list, here.list);
    if (status >= 0)
        status = take_back(coll->ask.out ? coll->out_tensor : NULL, here.out_tensor);
    weft_i_object_drop(here.in_tensor);
    weft_i_object_drop(here.out_tensor);
    weft_i_object_drop(here.list);
    return status;
}

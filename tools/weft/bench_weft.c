/* SPDX-License-Identifier: Apache-2.0 */
/* weft under the meter; see bench_weft.h. */
#include "bench_weft.h"

#include <stdlib.h>

/* Memory as a program has it that knows nothing of weft. */
static weft_tensor *wrap(weft_dtype dtype, weft_shape shape, uint64_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    weft_tensor *x = memory ? weft_tensor_wrap(dtype, WEFT_CPU, shape, memory, free, memory) : NULL;
    if (!x)
        free(memory);
    return x;
}

static weft_tensor *make(bench_weft *me, uint64_t bytes)
{
    weft_shape shape = WEFT_SHAPE(bytes / plan_dtype_size(me->what.dtype));
    weft_dtype dtype = (weft_dtype)me->what.dtype;
    if (!me->symm)
        return me->malloced ? wrap(dtype, shape, bytes) : weft_empty(dtype, WEFT_CPU, shape);
    weft_tensor *x = weft_symm_empty(dtype, WEFT_CPU, shape);
    return weft_symm_rendezvous(x, me->world) ? x : NULL;
}

static int prepare(void *self, const plan_case *what, void **in, void **out)
{
    bench_weft *me = self;
    me->what = *what;
    weft_scope_open();
    if (what->op == PLAN_BARRIER)
        return 0;
    me->in = make(me, what->in_bytes);
    me->out = what->in_place || me->in_place ? me->in : make(me, what->out_bytes);
    *in = weft_tensor_data(me->in);
    *out = weft_tensor_data(me->out);
    weft_set_premul(pattern_factor());
    return !*in || !*out;
}

static void finish(void *self)
{
    bench_weft *me = self;
    me->in = me->out = NULL;
    weft_scope_close();
}

static weft_status wait_for(weft_work *work)
{
    weft_status status = weft_work_wait(work, WEFT_DEFAULT);
    weft_release(work);
    return status;
}

/* Round the ring. */
static weft_status post_ring(bench_weft *me)
{
    int next = (me->rank + 1) % me->ranks, last = (me->rank + me->ranks - 1) % me->ranks;
    weft_work *sent = weft_send_start(me->in, next, me->world);
    weft_status status = wait_for(weft_recv_start(me->out, last, me->world));
    weft_status also = wait_for(sent);
    return status < 0 ? status : also;
}

weft_status bench_weft_call(const plan_case *what, weft_tensor *in, weft_tensor *out, int root,
                            weft_group *world)
{
    weft_reduction op = (weft_reduction)what->reduction;
    int rank = weft_rank(world), ranks = weft_size(world);
    switch (what->op) {
    case PLAN_ALL_REDUCE:
        return weft_all_reduce_into(out, in, op, world);
    case PLAN_ALL_GATHER:
        return weft_all_gather_into(out, in, world);
    case PLAN_REDUCE_SCATTER:
        return weft_reduce_scatter_into(out, in, op, world);
    case PLAN_ALL_TO_ALL:
        return weft_all_to_all_into(out, in, NULL, NULL, world);
    case PLAN_BROADCAST:
        return weft_broadcast_in_place(in, root, world);
    case PLAN_REDUCE:
        return weft_reduce_into(out, in, op, root, world);
    case PLAN_GATHER:
        return weft_gather_into(out, in, root, world);
    case PLAN_SCATTER:
        return weft_scatter_into(out, in, root, world);
    case PLAN_SEND_RECV: /* round the ring */
        return weft_send_recv(out, (rank + ranks - 1) % ranks, in, (rank + 1) % ranks, world);
    default:
        return weft_group_barrier(world, WEFT_DEFAULT);
    }
}

static weft_status call_posted(bench_weft *me, int root)
{
    weft_reduction op = (weft_reduction)me->what.reduction;
    switch (me->what.op) {
    case PLAN_ALL_REDUCE:
        return wait_for(weft_all_reduce_start(me->out, me->in, op, me->world));
    case PLAN_ALL_GATHER:
        return wait_for(weft_all_gather_start(me->out, me->in, me->world));
    case PLAN_REDUCE_SCATTER:
        return wait_for(weft_reduce_scatter_start(me->out, me->in, op, me->world));
    case PLAN_ALL_TO_ALL:
        return wait_for(weft_all_to_all_start(me->out, me->in, NULL, NULL, me->world));
    case PLAN_BROADCAST:
        return wait_for(weft_broadcast_start(me->in, root, me->world));
    case PLAN_REDUCE:
        return wait_for(weft_reduce_start(me->out, me->in, op, root, me->world));
    case PLAN_GATHER:
        return wait_for(weft_gather_start(me->out, me->in, root, me->world));
    case PLAN_SCATTER:
        return wait_for(weft_scatter_start(me->out, me->in, root, me->world));
    case PLAN_SEND_RECV:
        return post_ring(me);
    default:
        return wait_for(weft_barrier_start(me->world));
    }
}

static int call(void *self, void *in, void *out, int root)
{
    bench_weft *me = self;
    (void)in;
    (void)out;
    weft_status status = me->async ? call_posted(me, root)
                                   : bench_weft_call(&me->what, me->in, me->out, root, me->world);
    return status < 0;
}

meter_contender bench_weft_contender(bench_weft *rank)
{
    meter_contender who = {rank, prepare, call, finish};
    return who;
}

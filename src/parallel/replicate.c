/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a module on every rank, whose gradients are averaged while backward goes on.
 *
 * A hook behind each parameter's gradient counts its bucket down; complete buckets are posted in
 * their order, the same on all ranks, each as one all_reduce of the gradients where they lie.  When
 * backward has done all else, the rest is posted with zeros for what is missing, and all is waited
 * for.  Behind the last bucket goes a row of ones, one for each parameter that has a gradient: its
 * mean says on all ranks whether one was missing anywhere.
 */
#include "parallel/replicate.h"

#include "base/os/os.h"
#include "base/report/opts.h"
#include "grad/engine.h"
#include "nn/module.h"
#include "parallel/accord.h"
#include "parallel/unused.h"
#include "tensor/object/eye.h"
#include "weft/coll.h"
#include "weft/functional.h"
#include "weft/op.h"
#include "weft/parallel.h"

#include <stdio.h>
#include <string.h>

#define WHAT "weft_replicate"

enum { BUCKET_BYTES = 4 << 20 };

typedef struct replica replica;

typedef struct member {
    replica *of;
    weft_tensor *param; /* held */
    int64_t hook;
    int bucket;
    bool arrived; /* in this backward */
    bool filled;  /* its gradient is zeros that nobody computed */
    char name[WEFT_NAME_MAX];
} member;

/* Members order[first] to order[first + count - 1]. */
typedef struct bucket {
    int first, count, missing;
    weft_work *work; /* kept; NULL: not posted */
} bucket;

struct replica {
    weft_i_object head;
    weft_module *module; /* whose part this is */
    weft_group *group;   /* held */
    size_t bucket_bytes;
    bool unused, sync;
    bool armed;   /* a backward is under way, at whose end `finish` runs */
    bool ordered; /* the buckets follow the order of a backward */
    int count, buckets, posted, arrivals;
    member *members;
    int *order;   /* members by bucket */
    int *arrival; /* members as their gradients came */
    bucket *bucket;
    weft_tensor *ones; /* kept: one number for each member */
};

static void drain(replica *r)
{
    for (int i = 0; i < r->buckets; i++) {
        if (r->bucket[i].work)
            weft_work_wait(r->bucket[i].work, WEFT_DEFAULT);
        weft_release(r->bucket[i].work);
        r->bucket[i].work = NULL;
    }
}

static void destroy(weft_i_object *object)
{
    replica *r = (replica *)object;
    drain(r);
    for (int i = 0; i < r->count; i++) {
        if (r->members[i].hook > 0)
            weft_unhook(r->members[i].param, r->members[i].hook);
        weft_i_object_drop(r->members[i].param);
    }
    WEFT_OS->free(r->members);
    WEFT_OS->free(r->order);
    WEFT_OS->free(r->bucket);
    weft_i_object_drop(r->ones);
    weft_i_object_drop(r->group);
    weft_i_object_free(object);
}

/* ---- buckets ---- */

/* Cuts `order` into buckets: each is full, or ends where the dtype or device changes. */
static void cut_buckets(replica *r)
{
    size_t bytes = 0;
    r->buckets = 0;
    for (int i = 0; i < r->count; i++) {
        member *m = &r->members[r->order[i]];
        bucket *last = r->buckets ? &r->bucket[r->buckets - 1] : NULL;
        if (!last || bytes >= r->bucket_bytes) {
            last = &r->bucket[r->buckets++];
            *last = (bucket){.first = i};
            bytes = 0;
        }
        last->count++;
        bytes += weft_tensor_bytes(m->param);
        m->bucket = r->buckets - 1;
    }
}

static void begin(replica *r)
{
    r->posted = r->arrivals = 0;
    for (int i = 0; i < r->count; i++)
        r->members[i].arrived = r->members[i].filled = false;
    for (int i = 0; i < r->buckets; i++)
        r->bucket[i].missing = r->bucket[i].count;
}

static weft_status post_with(replica *r, bucket *b, weft_tensor **list)
{
    int n = 0;
    for (int i = 0; i < b->count; i++)
        list[n++] = weft_grad(r->members[r->order[b->first + i]].param);
    if (b == &r->bucket[r->buckets - 1])
        list[n++] = r->ones;
    weft_work *work = weft_all_reduce_list_start(list, list, n, WEFT_AVG, r->group);
    if (!work)
        return weft_i_explain(weft_last_status(), WHAT ": the gradients of \"%s\" and others",
                              r->members[r->order[b->first]].name);
    b->work = weft_keep(work);
    return WEFT_OK;
}

static weft_status post(replica *r, bucket *b)
{
    weft_tensor **list = WEFT_OS->alloc((size_t)(b->count + 1) * sizeof *list);
    weft_status status = list ? weft_scope_open() : WEFT_ERR_NO_MEMORY;
    if (!list)
        weft_i_fail(status, WHAT ": no memory for %d gradients", b->count);
    if (status >= 0) {
        status = post_with(r, b, list);
        weft_scope_close();
    }
    WEFT_OS->free(list);
    return status;
}

static weft_status post_complete(replica *r)
{
    while (r->posted < r->buckets && r->bucket[r->posted].missing == 0)
        WEFT_TRY(post(r, &r->bucket[r->posted++]));
    return WEFT_OK;
}

/* ---- the end of a backward ---- */

/* The row of ones, before the last bucket goes: what has no gradient gets zeros, and a zero there. */
static weft_status fill_missing(replica *r)
{
    for (int i = 0; i < r->count; i++) {
        member *m = &r->members[i];
        if (!m->arrived && !weft_grad(m->param)) {
            weft_tensor *zeros = weft_zeros_like(m->param);
            WEFT_TRY(zeros ? weft_set_grad(m->param, zeros) : weft_last_status());
            WEFT_TRY(weft_fill(weft_narrow(r->ones, 0, i, 1), 0));
            m->filled = true;
        }
        if (!m->arrived)
            r->bucket[m->bucket].missing--;
    }
    return WEFT_OK;
}

static weft_status wait_all(replica *r)
{
    weft_status first = WEFT_OK;
    for (int i = 0; i < r->buckets; i++) {
        weft_work *work = r->bucket[i].work;
        weft_status status = work && first >= 0 ? weft_work_wait(work, WEFT_DEFAULT) : WEFT_OK;
        weft_release(work);
        r->bucket[i].work = NULL;
        if (first >= 0 && status < 0)
            first = status;
    }
    return first;
}

static const char *name_of(const void *members, int i)
{
    return ((const member *)members)[i].name;
}

/* All ranks know now whether a parameter had no gradient somewhere. */
static weft_status look_at_missing(replica *r)
{
    bool missing = false;
    weft_tensor *shares = weft_to(r->ones, WEFT_F32, WEFT_CPU);
    WEFT_TRY(shares ? WEFT_OK : weft_last_status());
    for (int i = 0; i < r->count; i++) {
        double share = weft_item(shares, i);
        missing |= share < 1;
        if (share == 0 && r->members[i].filled)
            WEFT_TRY(weft_set_grad(r->members[i].param, NULL));
    }
    if (!missing || r->unused)
        return WEFT_OK;
    bool *has = WEFT_OS->alloc((size_t)r->count + 1);
    if (!has) /* the others are told by this rank's end of the exchange */
        return weft_i_fail(WEFT_ERR_NO_MEMORY, WHAT ": no memory for %d names", r->count);
    for (int i = 0; i < r->count; i++)
        has[i] = !r->members[i].filled;
    weft_status status =
        weft_i_refuse_unused(WHAT, r->group, r->count, has, name_of, r->members, "");
    WEFT_OS->free(has);
    return status;
}

/* Rank 0's order becomes everybody's. */
static weft_status follow_order(replica *r)
{
    weft_tensor *x = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(r->count));
    int64_t *at = x ? weft_tensor_data(x) : NULL;
    if (!at)
        return weft_last_status();
    for (int i = 0, n = r->arrivals; i < r->count; i++) {
        member *m = &r->members[r->order[i]];
        if (!m->arrived)
            r->arrival[n++] = (int)(m - r->members);
    }
    for (int i = 0; i < r->count; i++)
        at[i] = r->arrival[i];
    WEFT_TRY(weft_broadcast_in_place(x, 0, r->group));
    for (int i = 0; i < r->count; i++)
        if (at[i] < 0 || at[i] >= r->count)
            return weft_i_fail(WEFT_ERR_PROTOCOL, WHAT ": rank 0 has an order of its own");
    for (int i = 0; i < r->count; i++)
        r->order[i] = (int)at[i];
    cut_buckets(r);
    r->ordered = true;
    return WEFT_OK;
}

static weft_status finish_now(replica *r)
{
    WEFT_TRY(fill_missing(r));
    WEFT_TRY(post_complete(r));
    WEFT_TRY(wait_all(r));
    WEFT_TRY(look_at_missing(r));
    return r->ordered || r->buckets < 1 ? WEFT_OK : follow_order(r);
}

static weft_status finish(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    replica *r = user;
    (void)grad, (void)held;
    r->armed = false;
    weft_status status = finish_now(r);
    if (status < 0)
        drain(r);
    return status;
}

/* ---- hooks ---- */

static weft_status arm(replica *r)
{
    if (r->armed)
        return WEFT_OK;
    begin(r);
    WEFT_TRY(weft_fill(r->ones, 1));
    WEFT_TRY(weft_i_backward_finally(finish, r));
    r->armed = true;
    return WEFT_OK;
}

/* A compiled backward has these as nodes, which its own passes put together and move. */
static weft_status average(const member *m, weft_tensor **grad)
{
    *grad = weft_all_reduce(*grad, WEFT_AVG, m->of->group);
    return *grad ? WEFT_OK : weft_last_status();
}

static weft_status arrived(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    member *m = user;
    replica *r = m->of;
    (void)held;
    if (!r->sync)
        return WEFT_OK;
    if (weft_i_eye_open)
        return average(m, grad);
    WEFT_TRY(arm(r));
    if (m->arrived)
        return weft_i_fail(WEFT_ERR_STATE,
                           WHAT
                           ": parameter \"%s\" got a second gradient in one backward, when the "
                           "first was on its way to the other ranks; a module that computes "
                           "parts of its backward again must not share it between them",
                           m->name);
    m->arrived = true;
    r->arrival[r->arrivals++] = (int)(m - r->members);
    r->bucket[m->bucket].missing--;
    return post_complete(r);
}

/* A backward that failed left its buckets: the next forward begins anew. */
static weft_status before_forward(weft_hook_event *event)
{
    replica *r = event->user;
    if (!weft_i_eye_open && r->armed && !weft_i_engine_runs()) {
        drain(r);
        r->armed = false;
    }
    return WEFT_OK;
}

/* ---- making ---- */

static weft_status check_param(const weft_named *named)
{
    if (!weft_tensor_is_contiguous(named->tensor))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "parameter \"%s\" is not contiguous; weft_contiguous makes one that is",
                           named->name);
    return WEFT_OK;
}

weft_status weft_i_module_find_part(const weft_module *module, weft_i_module_part part,
                                    const char *path, char *found, size_t room)
{
    char name[WEFT_NAME_MAX];
    if (module->part[part]) {
        snprintf(found, room, "%s", path);
        return WEFT_ERR_EXISTS;
    }
    for (int i = 0; i < module->count; i++) {
        const weft_i_entry *entry = &module->entries[i];
        if (entry->kind != WEFT_I_ENTRY_CHILD)
            continue;
        snprintf(name, sizeof name, "%s%s%s", path, *path ? "." : "", entry->name);
        WEFT_TRY(weft_i_module_find_part(entry->child, part, name, found, room));
    }
    return WEFT_OK;
}

static weft_status check(weft_module *module)
{
    char at[WEFT_NAME_MAX];
    if (weft_i_module_find_part(module, WEFT_I_PART_REPLICA, "", at, sizeof at) < 0)
        return weft_i_fail(WEFT_ERR_EXISTS, "the module%s%s%s is replicated already",
                           *at ? " \"" : "", at, *at ? "\"" : "");
    if (weft_i_module_find_part(module, WEFT_I_PART_UNIT, "", at, sizeof at) < 0)
        return weft_i_fail(WEFT_ERR_EXISTS,
                           "the module%s%s%s is sharded: give weft_shard a mesh of two dimensions, "
                           "copies and shards",
                           *at ? " \"" : "", at, *at ? "\"" : "");
    return WEFT_OK;
}

/* Room for all parameters that train; `list` has `count`. */
static weft_status take_members(replica *r, const weft_named *list, int count)
{
    size_t room = (size_t)(count ? count : 1);
    r->members = WEFT_OS->alloc(room * sizeof *r->members);
    r->order = WEFT_OS->alloc(2 * room * sizeof *r->order);
    r->bucket = WEFT_OS->alloc(room * sizeof *r->bucket);
    if (!r->members || !r->order || !r->bucket)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d parameters", count);
    r->arrival = r->order + room;
    memset(r->members, 0, room * sizeof *r->members);
    for (int i = 0; i < count; i++) {
        if (!weft_requires_grad(list[i].tensor))
            continue;
        WEFT_TRY(check_param(&list[i]));
        member *m = &r->members[r->count++];
        m->of = r;
        m->param = weft_i_object_hold(list[i].tensor);
        memcpy(m->name, list[i].name, sizeof m->name);
    }
    for (int i = 0; i < r->count; i++) /* the last is used last, so its gradient comes first */
        r->order[i] = r->count - 1 - i;
    cut_buckets(r);
    weft_device device = r->count ? weft_tensor_device(r->members[0].param) : WEFT_CPU;
    r->ones = weft_keep(weft_ones(WEFT_F32, device, WEFT_SHAPE(r->count ? r->count : 1)));
    return r->ones ? WEFT_OK : weft_last_status();
}

static weft_status fill_members(replica *r)
{
    int count;
    weft_named *list = weft_i_list_params(WHAT, r->module, false, &count);
    weft_status status = list ? take_members(r, list, count) : weft_last_status();
    WEFT_OS->free(list);
    return status;
}

static weft_status add_hooks(replica *r)
{
    for (int i = 0; i < r->count; i++) {
        member *m = &r->members[i];
        m->hook = weft_accumulated_hook(m->param, arrived, m, WEFT_HOLD());
        if (m->hook < 0)
            return (weft_status)m->hook;
    }
    int64_t hook = weft_module_hook_add(r->module, WEFT_HOOK_FORWARD_PRE, WEFT_HOOK_PREPEND,
                                        before_forward, r, WEFT_HOLD());
    return hook < 0 ? (weft_status)hook : WEFT_OK;
}

static weft_status prepare(weft_module *module, const weft_replicate_opts *opts, replica **out)
{
    WEFT_TRY(check(module));
    replica *r = *out = weft_i_object_new_unscoped(WEFT_I_REPLICA, sizeof *r, destroy);
    if (!r)
        return weft_last_status();
    r->module = module;
    r->sync = true;
    r->unused = opts->unused;
    r->bucket_bytes = opts->bucket_bytes ? opts->bucket_bytes : BUCKET_BYTES;
    WEFT_TRY(fill_members(r));
    return WEFT_OK;
}

static weft_status meet(weft_module *module, weft_group *group, const weft_replicate_opts *opts,
                        weft_status found)
{
    int count;
    weft_i_deed deed = {0};
    bool copies = opts->start == WEFT_START_COPY;
    weft_named *list = weft_i_list_params(WHAT, module, true, &count);
    if (found >= 0)
        found = list ? weft_i_deed_add_list(&deed, list, count, !copies) : weft_last_status();
    weft_status status = weft_i_accord(group, WHAT, found, &deed);
    if (status >= 0 && copies)
        status = weft_i_start_list(list, count, group);
    weft_i_deed_clear(&deed);
    WEFT_OS->free(list);
    return status;
}

static weft_status replicate(weft_module *module, weft_group *group,
                             const weft_replicate_opts *opts, replica **out)
{
    weft_status found = prepare(module, opts, out);
    WEFT_TRY(meet(module, group, opts, found));
    (*out)->group = weft_i_object_hold(group);
    return add_hooks(*out);
}

weft_status weft_replicate(weft_module *module, weft_group *group, const weft_replicate_opts *given)
{
    weft_replicate_opts opts = WEFT_REPLICATE_OPTS_INIT;
    replica *r = NULL;
    WEFT_TRY(weft_i_module_check(WHAT, module));
    WEFT_TRY(weft_i_not_captured(WHAT));
    WEFT_TRY(weft_i_opts_copy(&opts, sizeof opts, given, WHAT));
    if (!group)
        return weft_i_missing(WHAT ": the group is NULL");
    if (opts.start != WEFT_START_COPY && opts.start != WEFT_START_CHECK)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, WHAT ": there is no such start");
    WEFT_TRY(weft_scope_open());
    weft_status status = replicate(module, group, &opts, &r);
    weft_scope_close();
    if (status < 0)
        weft_i_object_drop(r);
    else
        module->part[WEFT_I_PART_REPLICA] = (weft_i_object *)r;
    return status;
}

void weft_i_replica_sync(weft_i_object *object, bool on)
{
    ((replica *)object)->sync = on;
}

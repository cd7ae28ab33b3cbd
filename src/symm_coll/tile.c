/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduction of tiles: 2-d pieces of larger tensors, with any strides.  Each root folds its tile
 * straight from the memory of all ranks, line by line; all ranks are in both meetings.
 */
#include "weft/symm_coll.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/calls/run.h"
#include "coll/calls/work.h"
#include "coll/hosts/hosts.h"
#include "coll/lane/enter.h"
#include "coll/lane/request.h"
#include "symm_coll/reach.h"

/* A 2-d layout, in bytes. */
typedef struct layout {
    size_t length[2], stride[2];
} layout;

typedef struct tile {
    weft_i_reach reach;
    layout in;
} tile;

/* The plan of a call. */
typedef struct tiles {
    const tile *mine; /* the tile of which this rank is root; NULL: none */
    layout out;
    const tile *all;
    const int *roots;
    int count;
    size_t most; /* elements of the largest */
} tiles;

static layout layout_of(const weft_tensor *x)
{
    layout l;
    for (int d = 0; d < 2; d++) {
        l.length[d] = (size_t)x->dim[d];
        l.stride[d] = (size_t)x->stride[d] * weft_dtype_size(x->dtype);
    }
    return l;
}

/* The dimension along which elements follow each other in input and output; -1: none. */
static int dense_dim(const layout *in, const layout *out, size_t item)
{
    for (int d = 1; d >= 0; d--)
        if (in->length[d] == 1 || (in->stride[d] == item && out->stride[d] == item))
            return d;
    return -1;
}

static void fold_tile(weft_i_coll *coll, const tile *t, const layout *out)
{
    const layout *in = &t->in;
    int dense = dense_dim(in, out, coll->ask.item);
    int inner = dense < 0 ? 1 : dense, outer = !inner;
    size_t run = dense < 0 ? 1 : in->length[inner]; /* elements folded at once */
    for (size_t i = 0; i < in->length[outer]; i++)
        for (size_t j = 0; j < in->length[inner]; j += run) {
            weft_i_reach_aim(coll, &t->reach, i * in->stride[outer] + j * in->stride[inner]);
            weft_i_coll_fold_to(
                coll, coll->ask.out + i * out->stride[outer] + j * out->stride[inner], run);
        }
}

static weft_status run_tiles(weft_i_coll *coll)
{
    const tiles *plan = coll->plan;
    WEFT_TRY(weft_i_enter(coll));
    if (plan->mine)
        fold_tile(coll, plan->mine, &plan->out);
    return weft_i_coll_sync(coll);
}

/* ---- between hosts: tile by tile, packed ---- */

static char *element_of(char *base, const layout *l, size_t i, size_t j)
{
    return base + i * l->stride[0] + j * l->stride[1];
}

static void pack(const weft_i_coll *coll, const tile *t, char *packed)
{
    char *in = weft_i_reach_of(&t->reach, coll->ask.rank, 0);
    for (size_t i = 0; i < t->in.length[0]; i++)
        for (size_t j = 0; j < t->in.length[1]; j++, packed += coll->ask.item)
            memcpy(packed, element_of(in, &t->in, i, j), coll->ask.item);
}

static void unpack(const weft_i_coll *coll, const layout *out, const char *packed)
{
    for (size_t i = 0; i < out->length[0]; i++)
        for (size_t j = 0; j < out->length[1]; j++, packed += coll->ask.item)
            memcpy(element_of(coll->ask.out, out, i, j), packed, coll->ask.item);
}

static weft_status run_tiles_of_hosts(weft_i_coll *coll)
{
    const tiles *plan = coll->plan;
    size_t bytes = plan->most * coll->ask.item;
    WEFT_TRY(weft_i_ferry_make_room(coll, 0, weft_i_hosts_sum_room(coll)));
    WEFT_TRY(weft_i_ferry_make_room(coll, 1, 2 * bytes));
    WEFT_TRY(weft_i_hosts_enter(coll, NULL, 0));
    char *in = coll->lane->ferry->room[1];
    for (int i = 0; i < plan->count; i++) {
        const tile *t = &plan->all[i];
        weft_i_hosts_sum sum = {.in = in,
                                .out = in + bytes,
                                .count = t->in.length[0] * t->in.length[1],
                                .dtype = coll->ask.dtype,
                                .op = (weft_i_fold_op)coll->ask.reduction,
                                .root = plan->roots[i]};
        pack(coll, t, in);
        WEFT_TRY(weft_i_hosts_fold(coll, &sum));
        if (t == plan->mine)
            unpack(coll, &plan->out, sum.out);
    }
    return WEFT_OK;
}

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    weft_i_hosts_kind_run(WEFT_I_TILE_REDUCE, run_tiles_of_hosts);
    weft_i_hosts_kind_run(WEFT_I_MULTI_ROOT_TILE_REDUCE, run_tiles_of_hosts);
    weft_i_kind_run(WEFT_I_TILE_REDUCE, run_tiles);
    weft_i_kind_run(WEFT_I_MULTI_ROOT_TILE_REDUCE, run_tiles);
}

/* ---- filling ---- */

static weft_status check_tile(const char *op, const char *which, const weft_tensor *x)
{
    if (!x)
        return weft_i_missing("%s: the %s is NULL", op, which);
    if (weft_i_tensor_device(x) == WEFT_META)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s: the %s is on meta", op, which);
    if (x->ndim != 2)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the %s has %d dimensions, not 2", op, which,
                           x->ndim);
    return weft_i_tensor_check_fits(op, x);
}

/* All tiles of a rank are on one device. */
static weft_status check_device(const char *op, const weft_tensor *x, const weft_tensor *first)
{
    weft_device a = weft_i_tensor_device(first), b = weft_i_tensor_device(x);
    char there[16], here[16];
    return a == b ? WEFT_OK
                  : weft_i_fail(WEFT_ERR_TYPE, "%s: tiles on %s and %s", op,
                                weft_device_name(a, there), weft_device_name(b, here));
}

static weft_status check_in(const weft_i_coll *coll, const weft_tensor *in,
                            const weft_tensor *first)
{
    WEFT_TRY(check_tile(coll->ask.op, "input tile", in));
    WEFT_TRY(weft_i_reach_check(coll->ask.op, "input tile", in));
    if (in->dtype != first->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: tiles of %s and %s", coll->ask.op,
                           weft_dtype_name(first->dtype), weft_dtype_name(in->dtype));
    return check_device(coll->ask.op, in, first);
}

static weft_status check_out(const weft_i_coll *coll, const weft_tensor *out, const weft_tensor *in)
{
    const char *op = coll->ask.op;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    WEFT_TRY(check_tile(op, "output tile", out));
    WEFT_TRY(check_device(op, out, in));
    if (out->dtype != in->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the input is %s, the output %s", op,
                           weft_dtype_name(in->dtype), weft_dtype_name(out->dtype));
    if (!weft_i_shape_equal(weft_i_tensor_shape(out), weft_i_tensor_shape(in)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: expected out shape %s, not %s", op,
                           weft_i_shape_text(weft_i_tensor_shape(in), a),
                           weft_i_shape_text(weft_i_tensor_shape(out), b));
    if (out->storage->read_only)
        return weft_i_fail(WEFT_ERR_STATE, "%s: the output is read-only memory", op);
    if (weft_i_tensor_overlaps_itself(out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the output overlaps itself", op);
    return weft_i_storage_ready(out->storage, true);
}

/* Checks what tile i is about, given the tiles before it; `mine` becomes i if this rank is its
 * root. */
static weft_status check_one(weft_i_coll *coll, weft_tensor *out, weft_tensor *const *in,
                             const int *roots, int i, int *mine)
{
    const char *op = coll->ask.op;
    WEFT_TRY(check_in(coll, in[i], in[0]));
    WEFT_TRY(weft_i_request_check_root(op, coll->group, roots[i]));
    for (int before = 0; before < i; before++)
        if (roots[before] == roots[i])
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: rank %d is the root of tiles %d and %d",
                               op, roots[i], before, i);
    if (roots[i] != coll->group->rank)
        return WEFT_OK;
    *mine = i;
    return check_out(coll, out, in[i]);
}

static weft_status fill(weft_i_coll *coll, tiles *plan, weft_tensor *out, weft_tensor *const *in,
                        const int *roots, int count, weft_reduction op, int *mine)
{
    *mine = -1;
    for (int i = 0; i < count; i++)
        WEFT_TRY(check_one(coll, out, in, roots, i, mine));
    for (int i = 0; *mine >= 0 && i < count; i++)
        if (weft_i_tensor_ranges_meet(out, in[i]) &&
            !(i == *mine && weft_i_tensor_same_view(out, in[i])))
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: the output tile does not lie apart from input tile %d",
                               coll->ask.op, i);
    coll->ask.dtype = count ? in[0]->dtype : WEFT_U8;
    coll->ask.device = count ? weft_i_tensor_device(in[0]) : WEFT_CPU;
    coll->ask.root = count == 1 ? roots[0] : 0;
    WEFT_TRY(weft_i_request_reduction(coll, op));
    if (*mine >= 0) {
        coll->ask.out = weft_i_tensor_data(out);
        plan->out = layout_of(out);
    }
    size_t item = weft_dtype_size(coll->ask.dtype);
    return weft_i_request_accept(coll, count ? (size_t)weft_i_tensor_numel(in[0]) * item : 0);
}

/* Opens all reaches and adds what the ranks must agree on besides. */
static weft_status open_tiles(weft_i_coll *coll, tile *all, weft_tensor *const *in,
                              const int *roots, int count)
{
    for (int i = 0; i < count; i++) {
        coll->digest = weft_i_digest(coll->digest, (uint64_t)roots[i]);
        for (int d = 0; d < 2; d++) {
            coll->digest = weft_i_digest(coll->digest, (uint64_t)in[i]->dim[d]);
            coll->digest = weft_i_digest(coll->digest, (uint64_t)in[i]->stride[d]);
        }
    }
    for (int i = 0; i < count; i++) {
        all[i].in = layout_of(in[i]);
        WEFT_TRY(weft_i_reach_open(coll, in[i], &all[i].reach));
    }
    return WEFT_OK;
}

/* The same as plain data, for a device. */
static weft_i_tiles describe(const tiles *plan, weft_tensor *const *in, int count)
{
    weft_i_tiles t = {.most = 0};
    for (int i = 0; i < count; i++) {
        size_t numel = (size_t)weft_i_tensor_numel(in[i]);
        t.most = numel > t.most ? numel : t.most;
    }
    if (!plan->mine)
        return t;
    const weft_i_registration *registration = plan->mine->reach.registration;
    t.mine = (weft_i_counterparts){registration->memory, registration->joined, registration->serial,
                                   plan->mine->reach.offset};
    for (int d = 0; d < 2; d++) {
        t.length[d] = plan->mine->in.length[d];
        t.in_stride[d] = plan->mine->in.stride[d];
        t.out_stride[d] = plan->out.stride[d];
    }
    return t;
}

static weft_status reduce(weft_i_coll_kind kind, weft_tensor *out, weft_tensor *const *in,
                          const int *roots, int count, weft_reduction op, weft_group *group)
{
    weft_i_coll coll;
    tiles plan = {0};
    int mine;
    WEFT_TRY(weft_i_request_begin(&coll, kind, group));
    WEFT_TRY(fill(&coll, &plan, out, in, roots, count, op, &mine));
    tile one = {0}, *all = count > 1 ? WEFT_OS->alloc((size_t)count * sizeof *all) : &one;
    if (!all)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d tiles", coll.ask.op, count);
    weft_status status = open_tiles(&coll, all, in, roots, count);
    if (status == WEFT_OK) {
        plan.mine = mine < 0 ? NULL : &all[mine];
        plan.all = all;
        plan.roots = roots;
        plan.count = count;
        coll.plan = &plan;
        coll.reach = count ? &all[0].reach : NULL;
        weft_i_tiles described = describe(&plan, in, count);
        plan.most = described.most;
        coll.ask.tiles = &described;
        status = weft_i_work_now(&coll);
    }
    for (int i = 0; i < count; i++)
        weft_i_reach_close(&all[i].reach);
    if (all != &one)
        WEFT_OS->free(all);
    return status;
}

weft_status weft_symm_tile_reduce(weft_tensor *out_tile, weft_tensor *in_tile, weft_reduction op,
                                  int root, weft_group *group)
{
    return reduce(WEFT_I_TILE_REDUCE, out_tile, &in_tile, &root, 1, op, group);
}

weft_status weft_symm_multi_root_tile_reduce(weft_tensor *out_tile, weft_tensor *const *in_tiles,
                                             const int *roots, int count, weft_reduction op,
                                             weft_group *group)
{
    if (count < 0 || (count && (!in_tiles || !roots)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "multi_root_tile_reduce: %d tiles at %p and %p",
                           count, (const void *)in_tiles, (const void *)roots);
    return reduce(WEFT_I_MULTI_ROOT_TILE_REDUCE, out_tile, in_tiles, roots, count, op, group);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives' public functions: each checks its arguments and fills a call; the plain form
 * runs it, the `_start` form posts it.  All checks come before the first side effect, so a refused
 * call leaves everything as it was.
 */
#include "coll/calls/coll.h"
#include "coll/calls/coalesce.h"
#include "coll/calls/traced.h"
#include "coll/calls/work.h"
#include "coll/device/fast.h"
#include "coll/lane/list.h"
#include "coll/lane/request.h"
#include "symm/facts.h"

#include "base/os/assert.h"
#include "base/os/place.h"
#include "base/report/status.h"

const char *weft_reduction_name(weft_reduction reduction)
{
    static const char *const names[] = {"sum",  "avg", "product", "min",       "max",
                                        "band", "bor", "bxor",    "premul_sum"};
    _Static_assert(sizeof names / sizeof *names == WEFT_REDUCTIONS, "a name for each reduction");
    return (unsigned)reduction < WEFT_REDUCTIONS ? names[reduction] : "unknown";
}

/* ---- filling calls ---- */

/* The larger operand has a part for each rank; in place only where the parts are the same. */
static weft_status check_parts(const weft_i_coll *coll, uint32_t facts)
{
    size_t in = coll->ask.in_bytes, out = coll->ask.out_bytes, rank = (size_t)coll->ask.rank;
    if (facts & WEFT_I_PLACES_PARTS) {
        WEFT_TRY(weft_i_request_check_counts(coll, out, in, "output"));
        return weft_i_request_check_overlap(coll, 0, rank * in);
    }
    WEFT_TRY(weft_i_request_check_counts(coll, in, out, "input"));
    return weft_i_request_check_overlap(coll, rank * out, 0);
}

/* In line, so that the facts of a kind are constants: that saves 8 of 180 ns of a small call. */
#define IN_LINE __attribute__((always_inline)) static inline

/* After the operands, of which a rank may have one only. */
IN_LINE weft_status finish(weft_i_coll *coll, uint32_t facts, bool both, weft_reduction op,
                           int root)
{
    bool parts = facts & (WEFT_I_HAS_PARTS | WEFT_I_PLACES_PARTS);
    if (both && parts)
        WEFT_TRY(check_parts(coll, facts));
    else if (both && coll->ask.in_bytes != coll->ask.out_bytes)
        return weft_i_request_fail_unequal(coll->ask.op, coll->in_tensor, coll->out_tensor);
    else if (both)
        WEFT_TRY(weft_i_request_check_overlap(coll, 0, 0));
    if (facts & WEFT_I_REDUCES)
        WEFT_TRY(weft_i_request_reduction(coll, op));
    coll->ask.root = root;
    return weft_i_request_accept(coll, facts & WEFT_I_HAS_PARTS ? coll->ask.out_bytes
                                                                : coll->ask.in_bytes);
}

IN_LINE weft_status fill(weft_i_coll *coll, weft_i_coll_kind kind, uint32_t facts, weft_tensor *out,
                         weft_tensor *in, weft_reduction op, int root, weft_group *group)
{
    __builtin_prefetch(in); /* it is looked at later */
    WEFT_TRY(weft_i_request_begin(coll, kind, group));
    if (facts & (WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT))
        WEFT_TRY(weft_i_request_check_root(coll->ask.op, group, root));
    bool gives = !(facts & WEFT_I_FROM_ROOT) || group->rank == root;
    bool takes = !(facts & WEFT_I_TO_ROOT) || group->rank == root;
    if (gives)
        WEFT_TRY(weft_i_request_input(coll, in));
    if (takes)
        WEFT_TRY(weft_i_request_output(coll, out));
    coll->in_tensor = in;
    coll->out_tensor = out;
    return finish(coll, facts, gives && takes, op, root);
}

weft_status weft_i_request_finish(weft_i_coll *coll, weft_reduction op, int root)
{
    uint32_t facts = weft_i_kinds[coll->ask.kind].facts;
    if (facts & (WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT))
        WEFT_TRY(weft_i_request_check_root(coll->ask.op, coll->group, root));
    return finish(coll, facts, true, op, root);
}

weft_status weft_i_request_plain(weft_i_coll *coll, weft_i_coll_kind kind, weft_tensor *out,
                                 weft_tensor *in, weft_reduction op, int root, weft_group *group)
{
    WEFT_ASSERT(weft_i_kinds[kind].as == kind && kind != WEFT_I_BROADCAST &&
                kind != WEFT_I_ALL_TO_ALL);
    return fill(coll, kind, weft_i_kinds[kind].facts, out, in, op, root, group);
}

weft_status weft_i_request_broadcast(weft_i_coll *coll, weft_tensor *out, weft_tensor *in, int root,
                                     weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, WEFT_I_BROADCAST, group));
    WEFT_TRY(weft_i_request_check_root("broadcast", group, root));
    WEFT_TRY(weft_i_request_input(coll, in));
    WEFT_TRY(weft_i_request_output(coll, out));
    coll->ask.root = root;
    return weft_i_request_accept(coll, coll->ask.in_bytes);
}

static weft_status check_splits(const weft_group *group, const int64_t *splits,
                                const weft_tensor *x, const char *which)
{
    int64_t rows = x->ndim ? x->dim[0] : 1, sum = 0;
    for (int rank = 0; rank < group->size; rank++) {
        if (splits[rank] < 0 || splits[rank] > rows - sum)
            return weft_i_fail(
                WEFT_ERR_INVALID_ARG,
                "all_to_all: the %s splits do not add up: %lld for rank %d, %lld rows "
                "left",
                which, (long long)splits[rank], rank, (long long)(rows - sum));
        sum += splits[rank];
    }
    if (sum != rows)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "all_to_all: the %s splits add up to %lld rows of %lld", which,
                           (long long)sum, (long long)rows);
    return WEFT_OK;
}

static weft_status fill_uneven(weft_i_coll *coll, const int64_t *out_splits,
                               const int64_t *in_splits)
{
    WEFT_TRY(check_splits(coll->group, in_splits, coll->in_tensor, "input"));
    WEFT_TRY(check_splits(coll->group, out_splits, coll->out_tensor, "output"));
    coll->ask.row = weft_i_request_row_bytes(coll->in_tensor);
    if (coll->ask.row != weft_i_request_row_bytes(coll->out_tensor))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "all_to_all: a row of the input has %zu bytes, one of the output %zu",
                           coll->ask.row, weft_i_request_row_bytes(coll->out_tensor));
    coll->ask.in_splits = in_splits;
    coll->ask.out_splits = out_splits;
    coll->ask.root =
        1; /* told apart from equal parts by the digest; counts may differ between ranks */
    return weft_i_request_accept(coll, 0);
}

weft_status weft_i_request_all_to_all(weft_i_coll *coll, weft_tensor *out, weft_tensor *in,
                                      const int64_t *out_splits, const int64_t *in_splits,
                                      weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, WEFT_I_ALL_TO_ALL, group));
    WEFT_TRY(weft_i_request_input(coll, in));
    WEFT_TRY(weft_i_request_output(coll, out));
    if (coll->ask.in_bytes && coll->ask.in == coll->ask.out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "all_to_all: works only out of place");
    WEFT_TRY(weft_i_request_check_overlap(coll, 0, coll->ask.in_bytes + coll->ask.out_bytes));
    if (in_splits && out_splits)
        return fill_uneven(coll, out_splits, in_splits);
    if (in_splits || out_splits)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "all_to_all: give both splits or neither");
    if (coll->ask.in_bytes != coll->ask.out_bytes)
        return weft_i_request_fail_unequal(coll->ask.op, coll->in_tensor, coll->out_tensor);
    /* Parts are whole elements, whose sizes are powers of two. */
    int shift = __builtin_ctzll(weft_i_dtype_size(coll->ask.dtype));
    size_t part = (coll->ask.in_bytes >> shift) / (size_t)group->size << shift;
    if (coll->ask.in_bytes != part * (size_t)group->size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "all_to_all: the input has %lld elements, which %d ranks cannot share "
                           "equally; give splits",
                           (long long)in->numel, group->size);
    return weft_i_request_accept(coll, part);
}

static weft_status fill_barrier(weft_i_coll *coll, weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, WEFT_I_BARRIER, group));
    coll->ask.dtype = WEFT_U8;
    return weft_i_request_accept(coll, 0);
}

/* ---- lists: each pair of tensors is filled and checked as a call of its own ---- */

static weft_status open_list(weft_i_coll *coll, weft_i_coll_kind kind, weft_tensor *const *out,
                             weft_tensor *const *in, int count, weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, kind, group));
    if (count < 0 || (count && (!in || !out)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a list of %d tensors at %p and %p",
                           coll->ask.op, count, (const void *)in, (const void *)out);
    coll->list = weft_i_list_new((size_t)count);
    return coll->list ? WEFT_OK : weft_last_status();
}

weft_status weft_i_request_list(weft_i_coll *coll, weft_i_coll_kind kind, weft_tensor *const *out,
                                weft_tensor *const *in, int count, weft_reduction op,
                                weft_group *group)
{
    WEFT_TRY(open_list(coll, kind, out, in, count, group));
    coll->ask.reduction = op;
    for (int i = 0; i < count; i++) {
        weft_i_coll one;
        WEFT_TRY(weft_i_request_plain(&one, weft_i_kinds[kind].as, out[i], in[i], op, 0, group));
        WEFT_TRY(weft_i_list_add(coll, &one));
    }
    return weft_i_list_accept(coll);
}

weft_status weft_i_request_all_to_all_list(weft_i_coll *coll, weft_tensor *const *out,
                                           weft_tensor *const *in, weft_group *group)
{
    WEFT_TRY(open_list(coll, WEFT_I_ALL_TO_ALL_LIST, out, in, group ? group->size : 0, group));
    for (int rank = 0; rank < group->size; rank++) {
        weft_i_coll one;
        WEFT_TRY(weft_i_request_begin(&one, WEFT_I_ALL_TO_ALL_LIST, group));
        WEFT_TRY(weft_i_request_input(&one, in[rank]));
        WEFT_TRY(weft_i_request_output(&one, out[rank]));
        WEFT_TRY(weft_i_request_check_overlap(&one, 0, one.ask.in_bytes + one.ask.out_bytes));
        if (in[rank]->dtype != in[0]->dtype)
            return weft_i_fail(WEFT_ERR_TYPE, "all_to_all_list: %s for rank 0, %s for rank %d",
                               weft_dtype_name(in[0]->dtype), weft_dtype_name(in[rank]->dtype),
                               rank);
        WEFT_TRY(weft_i_request_accept(&one, one.ask.in_bytes));
        WEFT_TRY(weft_i_list_add(coll, &one));
    }
    WEFT_TRY(weft_i_list_check_overlap(coll->list, coll->ask.op));
    coll->ask.dtype = in[0]->dtype;
    coll->ask.in_bytes = coll->list->bytes;
    return weft_i_request_accept(coll, 0); /* counts may differ between ranks */
}

const weft_i_traced_forms *weft_i_traced;

/* ---- public: the plain and the posted form of each ---- */

WEFT_I_HOT static weft_status run(weft_i_coll *coll, weft_status filled)
{
    if (weft_i_coalesce_is_open(coll->group))
        return weft_i_coalesce_add(coll, filled);
    return filled < 0 ? filled : weft_i_work_now(coll);
}

static weft_work *post(weft_i_coll *coll, weft_status filled)
{
    if (weft_i_coalesce_is_open(coll->group))
        filled = weft_i_coalesce_refuse(coll, filled);
    return filled < 0 ? NULL : weft_i_work_enqueue(coll, NULL);
}

#define INTO_FORM(name_, parameters_, run_) \
    weft_status name_ parameters_           \
    {                                       \
        weft_i_coll coll;                   \
        return run_;                        \
    }
#define START_FORM(name_, parameters_, fill_) \
    weft_work *name_ parameters_              \
    {                                         \
        weft_i_coll coll;                     \
        return post(&coll, fill_);            \
    }
#define BOTH_FORMS(into_, start_, parameters_, fill_) \
    INTO_FORM(into_, parameters_, run(&coll, fill_))  \
    START_FORM(start_, parameters_, fill_)
/* With what stands for the plain form while the thread captures. */
#define CAPTURED_FORMS(into_, start_, parameters_, fill_, captured_)                              \
    INTO_FORM(into_, parameters_, weft_i_eye_open ? weft_i_traced->captured_ : run(&coll, fill_)) \
    START_FORM(start_, parameters_, fill_)
/* With the fast path before it, where the group has one: fast.h.  Pairs with the release of
 * note_library in carrier.c. */
#define FAST_FORMS(into_, start_, name_, parameters_, out_, in_, kind_, op_, root_, fill_, \
                   captured_)                                                              \
    WEFT_I_HOT weft_status into_ parameters_                                               \
    {                                                                                      \
        weft_i_call_lines *fast =                                                          \
            group ? atomic_load_explicit(&group->fast, memory_order_acquire) : NULL;       \
        if (fast) {                                                                        \
            weft_i_plain ask = {                                                           \
                .op = #name_, .kind = WEFT_I_##kind_, .reduction = op_, .root = root_};    \
            weft_status status = weft_i_fast_try(fast, &ask, out_, in_, group);            \
            if (status != WEFT_ERR_UNSUPPORTED)                                            \
                return status;                                                             \
        }                                                                                  \
        weft_i_coll coll;                                                                  \
        return weft_i_eye_open ? weft_i_traced->captured_ : run(&coll, fill_);             \
    }                                                                                      \
    START_FORM(start_, parameters_, fill_)

#define FILL(kind_, op_, root_) \
    fill(&coll, WEFT_I_##kind_, FACTS_##kind_, out, in, op_, root_, group)

FAST_FORMS(weft_all_reduce_into, weft_all_reduce_start, all_reduce,
           (weft_tensor * out, weft_tensor *in, weft_reduction op, weft_group *group), out, in,
           ALL_REDUCE, op, 0, FILL(ALL_REDUCE, op, 0), all_reduce(out, in, op, group))
BOTH_FORMS(weft_reduce_into, weft_reduce_start,
           (weft_tensor * out, weft_tensor *in, weft_reduction op, int root, weft_group *group),
           FILL(REDUCE, op, root))
FAST_FORMS(weft_broadcast_in_place, weft_broadcast_start, broadcast,
           (weft_tensor * x, int root, weft_group *group), x, x, BROADCAST, WEFT_SUM, root,
           weft_i_request_broadcast(&coll, x, x, root, group), broadcast(x, root, group))
FAST_FORMS(weft_all_gather_into, weft_all_gather_start, all_gather,
           (weft_tensor * out, weft_tensor *in, weft_group *group), out, in, ALL_GATHER, WEFT_SUM,
           0, FILL(ALL_GATHER, WEFT_SUM, 0), all_gather(out, in, group))
BOTH_FORMS(weft_gather_into, weft_gather_start,
           (weft_tensor * out, weft_tensor *in, int root, weft_group *group),
           FILL(GATHER, WEFT_SUM, root))
BOTH_FORMS(weft_scatter_into, weft_scatter_start,
           (weft_tensor * out, weft_tensor *in, int root, weft_group *group),
           FILL(SCATTER, WEFT_SUM, root))
FAST_FORMS(weft_reduce_scatter_into, weft_reduce_scatter_start, reduce_scatter,
           (weft_tensor * out, weft_tensor *in, weft_reduction op, weft_group *group), out, in,
           REDUCE_SCATTER, op, 0, FILL(REDUCE_SCATTER, op, 0), reduce_scatter(out, in, op, group))
CAPTURED_FORMS(weft_all_to_all_into, weft_all_to_all_start,
               (weft_tensor * out, weft_tensor *in, const int64_t *out_splits,
                const int64_t *in_splits, weft_group *group),
               weft_i_request_all_to_all(&coll, out, in, out_splits, in_splits, group),
               all_to_all(out, in, out_splits, in_splits, group))

/* As CAPTURED_FORMS; the list is ours until the work holds it. */
#define LIST_FORMS(into_, start_, parameters_, fill_, captured_) \
    weft_status into_ parameters_                                \
    {                                                            \
        if (weft_i_eye_open)                                     \
            return weft_i_traced->captured_;                     \
        weft_i_coll coll = {0};                                  \
        weft_status status = run(&coll, fill_);                  \
        weft_i_object_drop(coll.list);                           \
        return status;                                           \
    }                                                            \
    weft_work *start_ parameters_                                \
    {                                                            \
        weft_i_coll coll = {0};                                  \
        weft_work *work = post(&coll, fill_);                    \
        weft_i_object_drop(coll.list);                           \
        return work;                                             \
    }

LIST_FORMS(weft_all_reduce_list_into, weft_all_reduce_list_start,
           (weft_tensor *const *out, weft_tensor *const *in, int count, weft_reduction op,
            weft_group *group),
           weft_i_request_list(&coll, WEFT_I_ALL_REDUCE_LIST, out, in, count, op, group),
           list(WEFT_I_ALL_REDUCE_LIST, out, in, count, op, group))
LIST_FORMS(weft_all_gather_list_into, weft_all_gather_list_start,
           (weft_tensor *const *out, weft_tensor *const *in, int count, weft_group *group),
           weft_i_request_list(&coll, WEFT_I_ALL_GATHER_LIST, out, in, count, WEFT_SUM, group),
           list(WEFT_I_ALL_GATHER_LIST, out, in, count, WEFT_SUM, group))
LIST_FORMS(weft_reduce_scatter_list_into, weft_reduce_scatter_list_start,
           (weft_tensor *const *out, weft_tensor *const *in, int count, weft_reduction op,
            weft_group *group),
           weft_i_request_list(&coll, WEFT_I_REDUCE_SCATTER_LIST, out, in, count, op, group),
           list(WEFT_I_REDUCE_SCATTER_LIST, out, in, count, op, group))
LIST_FORMS(weft_all_to_all_list_into, weft_all_to_all_list_start,
           (weft_tensor *const *out, weft_tensor *const *in, weft_group *group),
           weft_i_request_all_to_all_list(&coll, out, in, group), all_to_all_list(out, in, group))

weft_work *weft_barrier_start(weft_group *group)
{
    weft_i_coll coll;
    return post(&coll, fill_barrier(&coll, group));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives' public functions: each checks its arguments and fills a call; the plain form
 * runs it, the `_start` form posts it.  All checks come before the first side effect, so a refused
 * call leaves everything as it was.
 */
#include "coll/work.h"

#include "base/os.h"
#include "base/status.h"

#include <limits.h>

static _Thread_local double premul = 1;

void weft_set_premul(double factor)
{
    premul = factor;
}

const char *weft_reduction_name(weft_reduction reduction)
{
    static const char *const names[] = {"sum",  "avg", "product", "min",       "max",
                                        "band", "bor", "bxor",    "premul_sum"};
    return (unsigned)reduction < WEFT_REDUCTIONS ? names[reduction] : "unknown";
}

/* ---- checks ---- */

static weft_status check_group(const char *op, weft_group *group)
{
    if (!group)
        return weft_last_status() < 0
                   ? weft_last_status()
                   : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the group is NULL", op);
    WEFT_TRY(weft_i_world_usable(group->world));
    if (!group->local)
        return weft_i_fail(WEFT_ERR_UNREACHABLE,
                           "%s: group \"%s\" spans hosts, and this build has no transport between "
                           "hosts",
                           op, group->name);
    /* Pairs with the release of whoever revoked it. */
    uint32_t revoked = atomic_load_explicit(&group->board->revoked, memory_order_acquire);
    if (revoked)
        return weft_i_fail(WEFT_ERR_REVOKED, "%s: rank %u revoked group \"%s\"", op, revoked - 1,
                           group->name);
    return WEFT_OK;
}

static weft_status check_operand(const char *op, const char *which, const weft_tensor *tensor)
{
    if (!tensor)
        return weft_last_status() < 0
                   ? weft_last_status()
                   : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the %s is NULL", op, which);
    char text[WEFT_I_SHAPE_TEXT];
    if (weft_i_tensor_device(tensor) != WEFT_CPU)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s: the %s is not on the CPU", op, which);
    if (!weft_i_tensor_is_contiguous(tensor))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the %s, of shape %s, is not contiguous", op,
                           which, weft_i_shape_text(weft_i_tensor_shape(tensor), text));
    /* Contiguous, so its end is easily found; the general check has the message. */
    size_t end =
        (size_t)(tensor->offset + weft_i_tensor_numel(tensor)) * weft_dtype_size(tensor->dtype);
    return end <= tensor->storage->bytes ? WEFT_OK : weft_i_tensor_check_fits(op, tensor);
}

static weft_status check_output(const char *op, const weft_tensor *tensor)
{
    WEFT_TRY(check_operand(op, "output", tensor));
    if (tensor->storage->read_only)
        return weft_i_fail(WEFT_ERR_STATE, "%s: the output is read-only memory", op);
    return WEFT_OK;
}

static weft_status check_root(const char *op, const weft_group *group, int root)
{
    if (root < 0 || root >= group->size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: rank %d must be in [0, %d)", op, root,
                           group->size);
    return WEFT_OK;
}

static weft_status set_input(weft_i_coll *coll, weft_tensor *in)
{
    WEFT_TRY(check_operand(coll->call.op, "input", in));
    coll->in_tensor = in;
    coll->in = weft_i_tensor_data(in);
    coll->in_bytes = (size_t)weft_i_tensor_numel(in) * weft_dtype_size(in->dtype);
    coll->dtype = in->dtype;
    return WEFT_OK;
}

static weft_status set_output(weft_i_coll *coll, weft_tensor *out)
{
    WEFT_TRY(check_output(coll->call.op, out));
    coll->out_tensor = out;
    coll->out = weft_i_tensor_data(out);
    coll->out_bytes = (size_t)weft_i_tensor_numel(out) * weft_dtype_size(out->dtype);
    if (coll->in_tensor && out->dtype != coll->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the input is %s, the output %s", coll->call.op,
                           weft_dtype_name(coll->dtype), weft_dtype_name(out->dtype));
    coll->dtype = out->dtype;
    return WEFT_OK;
}

/* Input and output may be the same bytes, or (`part`) one a part of the other at this rank's place;
 * nothing else. */
static weft_status check_overlap(const weft_i_coll *coll, size_t in_at, size_t out_at)
{
    const char *in = coll->in, *out = coll->out;
    if (!coll->in_bytes || !coll->out_bytes || in + coll->in_bytes <= out ||
        out + coll->out_bytes <= in || in + in_at == out + out_at)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: input and output overlap without being the same",
                       coll->call.op);
}

static weft_status check_counts(const weft_i_coll *coll, size_t larger, size_t smaller,
                                const char *which)
{
    size_t size = (size_t)coll->group->size;
    if (smaller > SIZE_MAX / size || larger != smaller * size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the %s has %zu bytes, which must be divisible among %zu ranks of "
                           "%zu bytes each",
                           coll->call.op, which, larger, size, smaller);
    return WEFT_OK;
}

static weft_status set_reduction(weft_i_coll *coll, weft_reduction op)
{
    if ((unsigned)op >= WEFT_REDUCTIONS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %d is not a reduction", coll->call.op,
                           (int)op);
    coll->reduction = op;
    coll->factor = premul;
    coll->fold = weft_i_fold_find(coll->dtype, (weft_i_fold_op)op);
    if (!coll->fold)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: reduction %s has no meaning for %s", coll->call.op,
                           weft_reduction_name(op), weft_dtype_name(coll->dtype));
    return WEFT_OK;
}

static weft_status begin(weft_i_coll *coll, weft_i_coll_kind kind, weft_group *group)
{
    *coll =
        (weft_i_coll){.kind = kind, .group = group, .call = {group, weft_i_coll_name(kind), -1}};
    WEFT_TRY(check_group(coll->call.op, group));
    coll->limit_ms = group->timeout_ms;
    return WEFT_OK;
}

/* The last step of every filling: the size of a part, and the digest of what the ranks must agree
 * on. */
static weft_status seal(weft_i_coll *coll, size_t part_bytes)
{
    coll->item = weft_dtype_size(coll->dtype);
    coll->count =
        part_bytes >> __builtin_ctzll(coll->item); /* sizes of elements are powers of two */
    uint64_t what = (uint64_t)coll->kind | (uint64_t)coll->dtype << 8 |
                    (uint64_t)coll->reduction << 16 | (uint64_t)(uint32_t)coll->root << 32;
    coll->digest = weft_i_digest(weft_i_digest(1, what), coll->count);
    return WEFT_OK;
}

/* ---- filling calls ---- */

static weft_status fill_all_reduce(weft_i_coll *coll, weft_tensor *out, weft_tensor *in,
                                   weft_reduction op, weft_group *group)
{
    WEFT_TRY(begin(coll, WEFT_I_ALL_REDUCE, group));
    WEFT_TRY(set_input(coll, in));
    WEFT_TRY(set_output(coll, out));
    if (coll->in_bytes != coll->out_bytes)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "all_reduce: the input has %zu bytes, the output %zu", coll->in_bytes,
                           coll->out_bytes);
    WEFT_TRY(check_overlap(coll, 0, 0));
    WEFT_TRY(set_reduction(coll, op));
    return seal(coll, coll->in_bytes);
}

static weft_status fill_reduce(weft_i_coll *coll, weft_tensor *out, weft_tensor *in,
                               weft_reduction op, int root, weft_group *group)
{
    WEFT_TRY(begin(coll, WEFT_I_REDUCE, group));
    WEFT_TRY(check_root("reduce", group, root));
    WEFT_TRY(set_input(coll, in));
    if (group->rank == root) {
        WEFT_TRY(set_output(coll, out));
        if (coll->in_bytes != coll->out_bytes)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "reduce: the input has %zu bytes, the output %zu", coll->in_bytes,
                               coll->out_bytes);
        WEFT_TRY(check_overlap(coll, 0, 0));
    }
    WEFT_TRY(set_reduction(coll, op));
    coll->root = root;
    return seal(coll, coll->in_bytes);
}

static weft_status fill_broadcast(weft_i_coll *coll, weft_tensor *x, int root, weft_group *group)
{
    WEFT_TRY(begin(coll, WEFT_I_BROADCAST, group));
    WEFT_TRY(check_root("broadcast", group, root));
    WEFT_TRY(set_input(coll, x));
    WEFT_TRY(set_output(coll, x));
    coll->root = root;
    return seal(coll, coll->in_bytes);
}

static weft_status fill_all_gather(weft_i_coll *coll, weft_tensor *out, weft_tensor *in,
                                   weft_group *group)
{
    WEFT_TRY(begin(coll, WEFT_I_ALL_GATHER, group));
    WEFT_TRY(set_input(coll, in));
    WEFT_TRY(set_output(coll, out));
    WEFT_TRY(check_counts(coll, coll->out_bytes, coll->in_bytes, "output"));
    WEFT_TRY(check_overlap(coll, 0, (size_t)group->rank * coll->in_bytes));
    return seal(coll, coll->in_bytes);
}

static weft_status fill_gather(weft_i_coll *coll, weft_tensor *out, weft_tensor *in, int root,
                               weft_group *group)
{
    WEFT_TRY(begin(coll, WEFT_I_GATHER, group));
    WEFT_TRY(check_root("gather", group, root));
    WEFT_TRY(set_input(coll, in));
    if (group->rank == root) {
        WEFT_TRY(set_output(coll, out));
        WEFT_TRY(check_counts(coll, coll->out_bytes, coll->in_bytes, "output"));
        WEFT_TRY(check_overlap(coll, 0, (size_t)group->rank * coll->in_bytes));
    }
    coll->root = root;
    return seal(coll, coll->in_bytes);
}

static weft_status fill_scatter(weft_i_coll *coll, weft_tensor *out, weft_tensor *in, int root,
                                weft_group *group)
{
    WEFT_TRY(begin(coll, WEFT_I_SCATTER, group));
    WEFT_TRY(check_root("scatter", group, root));
    if (group->rank == root)
        WEFT_TRY(set_input(coll, in));
    WEFT_TRY(set_output(coll, out));
    if (group->rank == root) {
        WEFT_TRY(check_counts(coll, coll->in_bytes, coll->out_bytes, "input"));
        WEFT_TRY(check_overlap(coll, (size_t)group->rank * coll->out_bytes, 0));
    }
    coll->root = root;
    return seal(coll, coll->out_bytes);
}

static weft_status fill_reduce_scatter(weft_i_coll *coll, weft_tensor *out, weft_tensor *in,
                                       weft_reduction op, weft_group *group)
{
    WEFT_TRY(begin(coll, WEFT_I_REDUCE_SCATTER, group));
    WEFT_TRY(set_input(coll, in));
    WEFT_TRY(set_output(coll, out));
    WEFT_TRY(check_counts(coll, coll->in_bytes, coll->out_bytes, "input"));
    WEFT_TRY(check_overlap(coll, (size_t)group->rank * coll->out_bytes, 0));
    WEFT_TRY(set_reduction(coll, op));
    return seal(coll, coll->out_bytes);
}

/* Bytes of one row: elements of dim 0; of a 1-d tensor an element. */
static size_t row_bytes(const weft_tensor *x)
{
    size_t bytes = weft_dtype_size(x->dtype);
    for (int dim = 1; dim < x->ndim; dim++)
        bytes *= (size_t)x->dim[dim];
    return bytes;
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
    coll->row = row_bytes(coll->in_tensor);
    if (coll->row != row_bytes(coll->out_tensor))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "all_to_all: a row of the input has %zu bytes, one of the output %zu",
                           coll->row, row_bytes(coll->out_tensor));
    coll->in_splits = in_splits;
    coll->out_splits = out_splits;
    coll->root = 1; /* told apart from equal parts by the digest; counts may differ between ranks */
    return seal(coll, 0);
}

static weft_status fill_all_to_all(weft_i_coll *coll, weft_tensor *out, weft_tensor *in,
                                   const int64_t *out_splits, const int64_t *in_splits,
                                   weft_group *group)
{
    WEFT_TRY(begin(coll, WEFT_I_ALL_TO_ALL, group));
    WEFT_TRY(set_input(coll, in));
    WEFT_TRY(set_output(coll, out));
    if (coll->in_bytes && coll->in == coll->out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "all_to_all: works only out of place");
    WEFT_TRY(check_overlap(coll, 0, coll->in_bytes + coll->out_bytes));
    if (in_splits && out_splits)
        return fill_uneven(coll, out_splits, in_splits);
    if (in_splits || out_splits)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "all_to_all: give both splits or neither");
    if (coll->in_bytes != coll->out_bytes)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "all_to_all: the input has %zu bytes, the output %zu", coll->in_bytes,
                           coll->out_bytes);
    size_t part = coll->in_bytes / (size_t)group->size;
    WEFT_TRY(check_counts(coll, coll->in_bytes, part, "input"));
    return seal(coll, part);
}

static weft_status fill_pair(weft_i_coll *coll, weft_i_coll_kind kind, weft_tensor *x, int peer,
                             weft_group *group)
{
    WEFT_TRY(begin(coll, kind, group));
    WEFT_TRY(check_root(coll->call.op, group, peer));
    if (peer == group->rank)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: rank %d cannot exchange with itself",
                           coll->call.op, peer);
    WEFT_TRY(kind == WEFT_I_SEND ? set_input(coll, x) : set_output(coll, x));
    WEFT_TRY(seal(coll, coll->in_bytes + coll->out_bytes));
    coll->digest = weft_i_digest(weft_i_digest(1, (uint64_t)coll->dtype),
                                 coll->count); /* the same at both ends */
    coll->root = peer;
    return WEFT_OK;
}

static weft_status fill_barrier(weft_i_coll *coll, weft_group *group)
{
    WEFT_TRY(begin(coll, WEFT_I_BARRIER, group));
    coll->dtype = WEFT_U8;
    return seal(coll, 0);
}

/* ---- public: the plain and the posted form of each ---- */

static weft_status run(weft_i_coll *coll, weft_status filled)
{
    return filled < 0 ? filled : weft_i_work_now(coll);
}

static weft_work *post(weft_i_coll *coll, weft_status filled)
{
    return filled < 0 ? NULL : weft_i_work_post(coll);
}

#define BOTH_FORMS(name_, parameters_, fill_)   \
    weft_status weft_##name_##_into parameters_ \
    {                                           \
        weft_i_coll coll;                       \
        return run(&coll, fill_);               \
    }                                           \
    weft_work *weft_##name_##_start parameters_ \
    {                                           \
        weft_i_coll coll;                       \
        return post(&coll, fill_);              \
    }

BOTH_FORMS(all_reduce, (weft_tensor * out, weft_tensor *in, weft_reduction op, weft_group *group),
           fill_all_reduce(&coll, out, in, op, group))
BOTH_FORMS(reduce,
           (weft_tensor * out, weft_tensor *in, weft_reduction op, int root, weft_group *group),
           fill_reduce(&coll, out, in, op, root, group))
BOTH_FORMS(broadcast, (weft_tensor * x, int root, weft_group *group),
           fill_broadcast(&coll, x, root, group))
BOTH_FORMS(all_gather, (weft_tensor * out, weft_tensor *in, weft_group *group),
           fill_all_gather(&coll, out, in, group))
BOTH_FORMS(gather, (weft_tensor * out, weft_tensor *in, int root, weft_group *group),
           fill_gather(&coll, out, in, root, group))
BOTH_FORMS(scatter, (weft_tensor * out, weft_tensor *in, int root, weft_group *group),
           fill_scatter(&coll, out, in, root, group))
BOTH_FORMS(reduce_scatter,
           (weft_tensor * out, weft_tensor *in, weft_reduction op, weft_group *group),
           fill_reduce_scatter(&coll, out, in, op, group))
BOTH_FORMS(all_to_all,
           (weft_tensor * out, weft_tensor *in, const int64_t *out_splits, const int64_t *in_splits,
            weft_group *group),
           fill_all_to_all(&coll, out, in, out_splits, in_splits, group))

weft_status weft_send(weft_tensor *x, int to, weft_group *group)
{
    weft_i_coll coll;
    return run(&coll, fill_pair(&coll, WEFT_I_SEND, x, to, group));
}

weft_status weft_recv(weft_tensor *x, int from, weft_group *group)
{
    weft_i_coll coll;
    return run(&coll, fill_pair(&coll, WEFT_I_RECV, x, from, group));
}

weft_work *weft_send_start(weft_tensor *x, int to, weft_group *group)
{
    weft_i_coll coll;
    return post(&coll, fill_pair(&coll, WEFT_I_SEND, x, to, group));
}

weft_work *weft_recv_start(weft_tensor *x, int from, weft_group *group)
{
    weft_i_coll coll;
    return post(&coll, fill_pair(&coll, WEFT_I_RECV, x, from, group));
}

weft_work *weft_barrier_start(weft_group *group)
{
    weft_i_coll coll;
    return post(&coll, fill_barrier(&coll, group));
}

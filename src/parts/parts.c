/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives with a tensor per rank.  A call holds a list with one item for each rank; each rank
 * shows its inputs as one stream and tells in its table what it gives and what it expects, so that
 * all find the same difference.
 */
#include "coll/calls/coalesce.h"
#include "coll/calls/run.h"
#include "coll/calls/traced.h"
#include "coll/calls/work.h"
#include "coll/lane/ferry.h"
#include "coll/lane/list.h"
#include "coll/lane/request.h"
#include "fabric/group/quarrel.h"
#include "parts/gatherv.h"

#include "base/report/status.h"
#include "weft/parts.h"

#include <stdio.h>

/* ---- filling ---- */

/* What the caller gave: a list, or one tensor that is this rank's part; or neither. */
typedef struct side {
    weft_tensor *const *list;
    weft_tensor *one;
    bool given;
} side;

static bool has_part(const side *s, const weft_group *group, int rank)
{
    return s->given && (s->list || rank == group->rank);
}

static weft_tensor *part_of(const side *s, int rank)
{
    return s->list ? s->list[rank] : s->one;
}

static weft_status fill_part(weft_i_coll *part, const weft_i_coll *coll, const side *out,
                             const side *in, int rank)
{
    WEFT_TRY(weft_i_request_begin(part, coll->ask.kind, coll->group));
    if (has_part(in, coll->group, rank))
        WEFT_TRY(weft_i_request_input(part, part_of(in, rank)));
    if (has_part(out, coll->group, rank))
        WEFT_TRY(weft_i_request_output(part, part_of(out, rank)));
    if (part->in_tensor && part->out_tensor && part->ask.in_bytes != part->ask.out_bytes)
        return weft_i_request_fail_unequal(part->ask.op, part->in_tensor, part->out_tensor);
    WEFT_TRY(weft_i_request_check_overlap(part, 0, 0));
    return weft_i_request_accept(part, part->ask.in_bytes);
}

static weft_status add_part(weft_i_coll *coll, const side *out, const side *in, int rank,
                            bool *first)
{
    weft_i_coll part;
    WEFT_TRY(fill_part(&part, coll, out, in, rank));
    bool any = part.in_tensor || part.out_tensor;
    if (any && !*first && part.ask.dtype != coll->ask.dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the part of rank %d is %s, those before it %s",
                           coll->ask.op, rank, weft_dtype_name(part.ask.dtype),
                           weft_dtype_name(coll->ask.dtype));
    if (any) {
        coll->ask.dtype = part.ask.dtype;
        *first = false;
    }
    coll->ask.in_bytes += part.ask.in_bytes;
    coll->ask.out_bytes += part.ask.out_bytes;
    return weft_i_list_add(coll, &part);
}

/* After `begin`: the list of all parts. */
static weft_status fill_parts(weft_i_coll *coll, const side *out, const side *in)
{
    bool first = true;
    coll->list = weft_i_list_new((size_t)coll->group->size);
    if (!coll->list)
        return weft_last_status();
    for (int rank = 0; rank < coll->group->size; rank++)
        WEFT_TRY(add_part(coll, out, in, rank, &first));
    return weft_i_list_check_overlap(coll->list, coll->ask.op);
}

static weft_status check_list(const weft_i_coll *coll, const void *list, const char *which)
{
    return list ? WEFT_OK
                : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: rank %d gives no list of %ss",
                              coll->ask.op, coll->group->rank, which);
}

/* A list that the root gives, and nobody else. */
static weft_status check_root_list(const weft_i_coll *coll, const void *list, const char *which)
{
    if (coll->group->rank == coll->ask.root)
        return check_list(coll, list, which);
    return list ? weft_i_fail(WEFT_ERR_INVALID_ARG,
                              "%s: only the root, rank %d, gives a list of %ss; on rank %d it must "
                              "be NULL",
                              coll->ask.op, coll->ask.root, which, coll->group->rank)
                : WEFT_OK;
}

static weft_status fill_all_gather(weft_i_coll *coll, weft_tensor *const *out, weft_tensor *in,
                                   weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, WEFT_I_ALL_GATHER_PARTS, group));
    WEFT_TRY(check_list(coll, out, "output"));
    WEFT_TRY(fill_parts(coll, &(side){out, NULL, true}, &(side){NULL, in, true}));
    return weft_i_request_accept(coll, 0);
}

static weft_status fill_gather(weft_i_coll *coll, weft_tensor *const *out, weft_tensor *in,
                               int root, weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, WEFT_I_GATHER_PARTS, group));
    WEFT_TRY(weft_i_request_check_root(coll->ask.op, group, root));
    coll->ask.root = root;
    WEFT_TRY(check_root_list(coll, out, "output"));
    WEFT_TRY(fill_parts(coll, &(side){out, NULL, out != NULL}, &(side){NULL, in, true}));
    return weft_i_request_accept(coll, 0);
}

static weft_status fill_scatter(weft_i_coll *coll, weft_tensor *out, weft_tensor *const *in,
                                int root, weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, WEFT_I_SCATTER_PARTS, group));
    WEFT_TRY(weft_i_request_check_root(coll->ask.op, group, root));
    coll->ask.root = root;
    WEFT_TRY(check_root_list(coll, in, "input"));
    WEFT_TRY(fill_parts(coll, &(side){NULL, out, true}, &(side){in, NULL, in != NULL}));
    return weft_i_request_accept(coll, 0);
}

static weft_status fill_reduce_scatter(weft_i_coll *coll, weft_tensor *out, weft_tensor *const *in,
                                       weft_reduction op, weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, WEFT_I_REDUCE_SCATTER_PARTS, group));
    WEFT_TRY(check_list(coll, in, "input"));
    WEFT_TRY(fill_parts(coll, &(side){NULL, out, true}, &(side){in, NULL, true}));
    WEFT_TRY(weft_i_request_reduction(coll, op));
    return weft_i_request_accept(coll, 0);
}

/* ---- what the ranks tell each other: a row of bytes given by part, then bytes expected ---- */

static void write_row(const weft_i_coll *coll)
{
    weft_i_lane *lane = coll->lane;
    uint64_t *row = weft_i_lane_splits(lane, lane->me);
    for (int rank = 0; rank < lane->size; rank++) {
        row[rank] = coll->list->items[rank].bytes;
        row[lane->size + rank] = coll->list->items[rank].out_bytes;
    }
    weft_i_lane_show_splits(lane);
}

static size_t gives(const weft_i_coll *coll, int rank, int part)
{
    return weft_i_lane_splits(coll->lane, rank)[part];
}

static size_t expects(const weft_i_coll *coll, int rank, int part)
{
    return weft_i_lane_splits(coll->lane, rank)[coll->lane->size + part];
}

static bool is_gather(const weft_i_coll *coll)
{
    return coll->ask.kind == WEFT_I_ALL_GATHER_PARTS || coll->ask.kind == WEFT_I_GATHER_PARTS;
}

/* All compare the same numbers in the same order, and so tell of the same pair. */
static weft_status compare(const weft_i_coll *coll, int giver, size_t given, int taker,
                           size_t expected, int part)
{
    if (given == expected)
        return WEFT_OK;
    const char *dtype = weft_dtype_name(coll->ask.dtype);
    char text[160];
    snprintf(text, sizeof text,
             "part %d: rank %d calls it with %zu %s, but rank %d calls it with %zu %s there", part,
             giver, given / coll->ask.item, dtype, taker, expected / coll->ask.item, dtype);
    weft_i_quarrel_say(coll->group, text); /* who is not as far yet learns it too */
    weft_i_group_spoil(coll->group, WEFT_ERR_MISMATCH);
    weft_i_group_concerns(coll->group);
    return weft_i_fail(WEFT_ERR_MISMATCH, "%s in group \"%s\", %s", coll->ask.op, coll->group->name,
                       text);
}

static weft_status check_rows(const weft_i_coll *coll)
{
    int size = coll->lane->size, root = coll->ask.root;
    for (int part = 0; part < size; part++)
        for (int rank = 0; rank < size; rank++) {
            if (coll->ask.kind == WEFT_I_ALL_GATHER_PARTS ||
                (coll->ask.kind == WEFT_I_GATHER_PARTS && rank == root))
                WEFT_TRY(compare(coll, part, gives(coll, part, part), rank,
                                 expects(coll, rank, part), part));
            if (coll->ask.kind == WEFT_I_SCATTER_PARTS && rank == part)
                WEFT_TRY(compare(coll, root, gives(coll, root, part), rank,
                                 expects(coll, rank, part), part));
            if (coll->ask.kind == WEFT_I_REDUCE_SCATTER_PARTS)
                WEFT_TRY(
                    compare(coll, 0, gives(coll, 0, part), rank, gives(coll, rank, part), part));
        }
    return WEFT_OK;
}

static size_t longest_stream(const weft_i_coll *coll)
{
    size_t longest = 0;
    for (int part = 0; part < coll->lane->size; part++) {
        size_t bytes = gives(coll, is_gather(coll) ? part : coll->ask.root, part);
        longest = !is_gather(coll) ? longest + bytes : bytes > longest ? bytes : longest;
    }
    return longest;
}

/* ---- moving ---- */

static weft_i_run part_run(const weft_i_coll *coll, size_t index)
{
    const weft_i_list_item *item = &coll->list->items[index];
    return (weft_i_run){item->in, item->bytes};
}

static void take_all(weft_i_coll *coll, const weft_i_piece *piece)
{
    const weft_i_lane *lane = coll->lane;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        const weft_i_list_item *item = &coll->list->items[rank];
        if (item->out_bytes > piece->from)
            memcpy(item->out + piece->from, weft_i_piece_of(piece, rank),
                   weft_i_coll_min(item->out_bytes, piece->to) - piece->from);
    }
}

/* Which bytes of the piece belong to my part, and where they go in it. */
typedef struct overlap {
    size_t in_piece, in_part, bytes;
} overlap;

static overlap my_share(const weft_i_coll *coll, const weft_i_piece *piece)
{
    size_t begin = 0;
    for (int part = 0; part < coll->lane->me; part++)
        begin += gives(coll, coll->ask.root, part);
    size_t end = begin + coll->list->items[coll->lane->me].out_bytes;
    size_t from = begin > piece->from ? begin : piece->from;
    size_t to = weft_i_coll_min(end, piece->to);
    return from < to ? (overlap){from - piece->from, from - begin, to - from} : (overlap){0, 0, 0};
}

static void take_mine(weft_i_coll *coll, const weft_i_piece *piece)
{
    overlap share = my_share(coll, piece);
    if (share.bytes)
        memcpy(coll->list->items[coll->lane->me].out + share.in_part,
               weft_i_piece_of(piece, coll->ask.root) + share.in_piece, share.bytes);
}

static void fold_mine(weft_i_coll *coll, const weft_i_piece *piece)
{
    weft_i_lane *lane = coll->lane;
    overlap share = my_share(coll, piece);
    if (!share.bytes)
        return;
    for (int rank = 0; rank < lane->size; rank++)
        lane->sources[rank] = weft_i_piece_of(piece, rank) + share.in_piece;
    char *out = coll->list->items[lane->me].out + share.in_part;
    size_t count = share.bytes / coll->ask.item;
    if (!lane->ferry) {
        weft_i_coll_fold_to(coll, out, count);
        return;
    }
    lane->targets[0] = out;
    weft_i_ferry_fold(coll, 1, count);
}

static weft_status run_parts(weft_i_coll *coll)
{
    weft_i_gatherv stream = {.run = part_run, .runs = coll->list->count};
    write_row(coll);
    WEFT_TRY(weft_i_gatherv_enter(coll, &stream));
    weft_i_lane_read_splits(coll->lane);
    WEFT_TRY(check_rows(coll));
    return weft_i_gatherv_take(coll, &stream, longest_stream(coll),
                               is_gather(coll)                          ? take_all
                               : coll->ask.kind == WEFT_I_SCATTER_PARTS ? take_mine
                                                                        : fold_mine);
}

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    weft_i_kind_run(WEFT_I_ALL_GATHER_PARTS, run_parts);
    weft_i_kind_run(WEFT_I_GATHER_PARTS, run_parts);
    weft_i_kind_run(WEFT_I_SCATTER_PARTS, run_parts);
    weft_i_kind_run(WEFT_I_REDUCE_SCATTER_PARTS, run_parts);
}

/* ---- public: the plain and the posted form of each ---- */

static weft_status run(weft_i_coll *coll, weft_status filled)
{
    if (weft_i_coalesce_is_open(coll->group))
        filled = weft_i_coalesce_add(coll, filled); /* refuses it */
    weft_status status = filled < 0 ? filled : weft_i_work_now(coll);
    weft_i_object_drop(coll->list);
    return status;
}

static weft_work *post(weft_i_coll *coll, weft_status filled)
{
    if (weft_i_coalesce_is_open(coll->group))
        filled = weft_i_coalesce_add(coll, filled); /* refuses it */
    weft_work *work = filled < 0 ? NULL : weft_i_work_enqueue(coll, NULL);
    weft_i_object_drop(coll->list); /* the work holds it */
    return work;
}

#define INTO_FORM(name_, parameters_, run_) \
    weft_status name_ parameters_           \
    {                                       \
        weft_i_coll coll = {0};             \
        return run_;                        \
    }
#define START_FORM(name_, parameters_, fill_) \
    weft_work *name_ parameters_              \
    {                                         \
        weft_i_coll coll = {0};               \
        return post(&coll, fill_);            \
    }
#define BOTH_FORMS(into_, start_, parameters_, fill_) \
    INTO_FORM(into_, parameters_, run(&coll, fill_))  \
    START_FORM(start_, parameters_, fill_)
/* With what stands for the plain form while the thread captures. */
#define CAPTURED_FORMS(into_, start_, parameters_, fill_, captured_)                              \
    INTO_FORM(into_, parameters_, weft_i_eye_open ? weft_i_traced->captured_ : run(&coll, fill_)) \
    START_FORM(start_, parameters_, fill_)

CAPTURED_FORMS(weft_all_gather_parts_into, weft_all_gather_parts_start,
               (weft_tensor *const *out, weft_tensor *in, weft_group *group),
               fill_all_gather(&coll, out, in, group), all_gather_parts(out, in, group))
BOTH_FORMS(weft_gather_parts_into, weft_gather_parts_start,
           (weft_tensor *const *out, weft_tensor *in, int root, weft_group *group),
           fill_gather(&coll, out, in, root, group))
BOTH_FORMS(weft_scatter_parts_into, weft_scatter_parts_start,
           (weft_tensor * out, weft_tensor *const *in, int root, weft_group *group),
           fill_scatter(&coll, out, in, root, group))
CAPTURED_FORMS(weft_reduce_scatter_parts_into, weft_reduce_scatter_parts_start,
               (weft_tensor * out, weft_tensor *const *in, weft_reduction op, weft_group *group),
               fill_reduce_scatter(&coll, out, in, op, group),
               reduce_scatter_parts(out, in, op, group))

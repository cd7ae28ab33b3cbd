/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_to_all with sizes in symmetric memory.  After the entry every rank copies the tables of splits of all
 * ranks, once, so all know the whole exchange and judge it alike, and what a rank has checked is
 * what it uses even if a rank writes to a table meanwhile; then each pulls what is meant for it
 * and writes where that came to lie.  One walk over "what comes to a rank, in the order of its
 * output" serves the check of all ranks, the table and the copies.
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

/* What a rank shows at the entry. */
typedef struct rows {
    int64_t in, out;
} rows;

/* The plan of a call: what all ranks have shown, in private memory. */
typedef struct tables {
    size_t length; /* numbers in a table of splits, offsets included */
    int64_t *splits;
    rows *rows;
    char *given, *taken; /* between hosts: what goes to each rank, and comes from each, packed */
} tables;

static const rows *rows_of(const weft_i_coll *coll, int rank)
{
    return &((const tables *)coll->plan)->rows[rank];
}

static const int64_t *splits_of(const weft_i_coll *coll, int rank)
{
    const tables *all = coll->plan;
    return all->splits + (size_t)rank * all->length;
}

/* A call has two reaches: that of the input, and that of its table of splits. */
static void read_tables(const weft_i_coll *coll, rows mine)
{
    const tables *all = coll->plan;
    for (int rank = 0; rank < coll->lane->size; rank++) {
        memcpy(all->splits + (size_t)rank * all->length, weft_i_reach_of(&coll->reach[1], rank, 0),
               all->length * sizeof *all->splits);
        memcpy(&all->rows[rank],
               rank == coll->lane->me ? (const void *)&mine : weft_i_lane_payload(coll->lane, rank),
               sizeof mine);
    }
}

/* On a device its kernel reads the tables. */
static weft_status make_tables(const weft_i_coll *coll, const weft_i_vdev *ex, tables *out)
{
    size_t size = (size_t)coll->group->size;
    if (!weft_i_device_is_host(coll->ask.device))
        return WEFT_OK;
    out->length = size * (size_t)ex->experts * (ex->by_expert ? 2 : 1);
    out->splits = WEFT_OS->alloc(size * (out->length * sizeof *out->splits + sizeof *out->rows));
    if (!out->splits)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for the tables of %d ranks",
                           coll->ask.op, coll->group->size);
    out->rows = (rows *)(void *)(out->splits + size * out->length);
    return WEFT_OK;
}

/* Entries of a table: one for each expert of each rank. */
static int entries_of(const weft_i_coll *coll, const weft_i_vdev *ex)
{
    return coll->lane->size * ex->experts;
}

/* The entry for expert `expert` of rank `rank`, in a table by experts or by ranks. */
static int entry_at(const weft_i_coll *coll, const weft_i_vdev *ex, bool by_expert, int rank,
                    int expert)
{
    return by_expert ? expert * coll->lane->size + rank : rank * ex->experts + expert;
}

/* ---- the check, the same on all ranks ---- */

/* Do the parts that a rank sends lie in its input? */
static weft_status check_sent(const weft_i_coll *coll, const weft_i_vdev *ex, int rank)
{
    const int64_t *splits = splits_of(coll, rank);
    int64_t room = rows_of(coll, rank)->in, at = 0;
    int entries = entries_of(coll, ex);
    for (int i = 0; i < entries; i++) {
        int64_t from = ex->by_expert && splits[i] ? splits[entries + i] : at;
        if (splits[i] < 0 || from < 0 || from > room || splits[i] > room - from)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: rank %d sends %lld rows from row %lld on (entry %d of its "
                               "splits), but its input has %lld rows",
                               coll->ask.op, rank, (long long)splits[i], (long long)from, i,
                               (long long)room);
        if (!ex->by_expert)
            at += splits[i];
    }
    return WEFT_OK;
}

/* The row after an expert that lies in [start, end), or INT64_MAX. */
static int64_t align_up(int64_t start, int64_t end, int64_t align)
{
    int64_t units = (end - start) / align + ((end - start) % align != 0);
    if (!units)
        units = 1;
    return units > (INT64_MAX - start) / align ? INT64_MAX : start + units * align;
}

/* Lays out what comes to `rank`: false if its output is too small.  Writes the table if there is
 * one. */
static bool lay_out(const weft_i_coll *coll, const weft_i_vdev *ex, int rank, int64_t *table)
{
    int64_t room = rows_of(coll, rank)->out, at = 0;
    int majors = ex->by_expert ? coll->lane->size : ex->experts;
    int minors = ex->by_expert ? ex->experts : coll->lane->size;
    for (int major = 0, i = 0; major < majors; major++) {
        int64_t start = at;
        for (int minor = 0; minor < minors; minor++, i++) {
            int source = ex->by_expert ? major : minor, expert = ex->by_expert ? minor : major;
            int64_t split =
                splits_of(coll, source)[entry_at(coll, ex, ex->by_expert, rank, expert)];
            if (split && (at > room || split > room - at))
                return false;
            if (table) {
                table[i] = split;
                table[entries_of(coll, ex) + i] = at;
            }
            at += split;
        }
        if (ex->align)
            at = align_up(start, at, ex->align);
    }
    return true;
}

static weft_status check(const weft_i_coll *coll, const weft_i_vdev *ex)
{
    for (int rank = 0; rank < coll->lane->size; rank++)
        WEFT_TRY(check_sent(coll, ex, rank));
    for (int rank = 0; rank < coll->lane->size; rank++)
        if (!lay_out(coll, ex, rank, NULL))
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: what rank %d receives exceeds the %lld rows of its output",
                               coll->ask.op, rank, (long long)rows_of(coll, rank)->out);
    return WEFT_OK;
}

/* ---- pulling ---- */

/* All that `source` sends to this rank. */
static void pull_from(const weft_i_coll *coll, const weft_i_vdev *ex, int source)
{
    const int64_t *splits = splits_of(coll, source);
    int me = coll->lane->me, entries = entries_of(coll, ex);
    int64_t at = 0; /* in an input by ranks: what lies before our part */
    for (int i = 0; !ex->by_expert && i < me * ex->experts; i++)
        at += splits[i];
    for (int expert = 0; expert < ex->experts; expert++) {
        int sent = entry_at(coll, ex, ex->by_expert, me, expert);
        int taken = entry_at(coll, ex, !ex->by_expert, source, expert);
        int64_t from = ex->by_expert ? splits[entries + sent] : at;
        if (splits[sent])
            weft_i_coll_put(coll->ask.out + (size_t)ex->table[entries + taken] * coll->ask.row,
                            weft_i_reach_of(&coll->reach[0], source, (size_t)from * coll->ask.row),
                            (size_t)splits[sent] * coll->ask.row);
        at += splits[sent];
    }
}

static weft_status run_vdev(weft_i_coll *coll)
{
    const weft_i_vdev *ex = coll->ask.vdev;
    rows mine = {ex->in_rows, ex->out_rows};
    WEFT_TRY(weft_i_enter_with(coll, WEFT_I_FOR_ALL, &mine, sizeof mine));
    read_tables(coll, mine);
    weft_status status = check(coll, ex);
    if (status == WEFT_OK) {
        lay_out(coll, ex, coll->lane->me, ex->table);
        for (int i = 0; i < coll->lane->size; i++)
            pull_from(coll, ex, (coll->lane->me + i) % coll->lane->size);
    }
    /* Also after a refusal: the others may still read our splits and our input. */
    weft_status synced = weft_i_coll_sync(coll);
    return status < 0 ? status : synced;
}

/* ---- between hosts: packed by ranks, exchanged, and put where they belong ---- */

/* Rows that `source` sends to `rank`. */
static size_t rows_between(const weft_i_coll *coll, int source, int rank)
{
    const weft_i_vdev *ex = coll->ask.vdev;
    size_t sum = 0;
    for (int expert = 0; expert < ex->experts; expert++)
        sum += (size_t)splits_of(coll, source)[entry_at(coll, ex, ex->by_expert, rank, expert)];
    return sum;
}

static size_t bytes_before(const weft_i_coll *coll, int rank, bool given)
{
    size_t sum = 0;
    for (int i = 0; i < rank; i++)
        sum +=
            given ? rows_between(coll, coll->lane->me, i) : rows_between(coll, i, coll->lane->me);
    return sum * coll->ask.row;
}

static weft_i_list_item *packed_part(weft_i_coll *coll, int rank, weft_i_list_item *p)
{
    const tables *all = coll->plan;
    p->bytes = rows_between(coll, coll->lane->me, rank) * coll->ask.row;
    p->out_bytes = rows_between(coll, rank, coll->lane->me) * coll->ask.row;
    p->in = p->bytes ? all->given + bytes_before(coll, rank, true) : NULL;
    p->out = p->out_bytes ? all->taken + bytes_before(coll, rank, false) : NULL;
    return p;
}

/* In the order of the ranks, and of the experts of each. */
static void pack(const weft_i_coll *coll, const weft_i_vdev *ex, char *to)
{
    const int64_t *splits = splits_of(coll, coll->lane->me);
    int entries = entries_of(coll, ex);
    size_t at = 0; /* in an input by ranks, which is in that order already */
    for (int rank = 0; rank < coll->lane->size; rank++)
        for (int expert = 0; expert < ex->experts; expert++) {
            int entry = entry_at(coll, ex, ex->by_expert, rank, expert);
            size_t from = ex->by_expert ? (size_t)splits[entries + entry] : at;
            size_t bytes = (size_t)splits[entry] * coll->ask.row;
            if (bytes)
                weft_i_coll_put(to, coll->ask.in + from * coll->ask.row, bytes);
            to += bytes;
            at += (size_t)splits[entry];
        }
}

static void unpack(const weft_i_coll *coll, const weft_i_vdev *ex, const char *from)
{
    int entries = entries_of(coll, ex);
    for (int source = 0; source < coll->lane->size; source++)
        for (int expert = 0; expert < ex->experts; expert++) {
            int sent = entry_at(coll, ex, ex->by_expert, coll->lane->me, expert);
            int taken = entry_at(coll, ex, !ex->by_expert, source, expert);
            size_t bytes = (size_t)splits_of(coll, source)[sent] * coll->ask.row;
            if (bytes)
                weft_i_coll_put(coll->ask.out + (size_t)ex->table[entries + taken] * coll->ask.row,
                                from, bytes);
            from += bytes;
        }
}

/* What there is no memory for in the middle ends the group: the others wait for it. */
static weft_status make_packed(const weft_i_coll *coll, tables *all)
{
    size_t given = bytes_before(coll, coll->lane->size, true);
    size_t taken = bytes_before(coll, coll->lane->size, false);
    all->given = WEFT_OS->alloc(given + taken + 1);
    if (all->given) {
        all->taken = all->given + given;
        return WEFT_OK;
    }
    weft_i_group_spoil(coll->group, WEFT_ERR_NO_MEMORY);
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s in group \"%s\": no memory for %zu bytes",
                       coll->ask.op, coll->group->name, given + taken);
}

static weft_status show_tables(weft_i_coll *coll, const weft_i_vdev *ex)
{
    const tables *all = coll->plan;
    rows mine = {ex->in_rows, ex->out_rows};
    size_t bytes = all->length * sizeof *all->splits;
    memcpy(all->splits + (size_t)coll->lane->me * all->length,
           weft_i_reach_of(&coll->reach[1], coll->lane->me, 0), bytes);
    WEFT_TRY(weft_i_hosts_enter(coll, &mine, sizeof mine));
    for (int rank = 0; rank < coll->lane->size; rank++)
        memcpy(&all->rows[rank], weft_i_hosts_shown(coll, rank), sizeof mine);
    return weft_i_hosts_all_gather(coll, (char *)all->splits, bytes, bytes);
}

static weft_status run_vdev_of_hosts(weft_i_coll *coll)
{
    const weft_i_vdev *ex = coll->ask.vdev;
    tables all = *(const tables *)coll->plan;
    WEFT_TRY(show_tables(coll, ex));
    WEFT_TRY(check(coll, ex));
    lay_out(coll, ex, coll->lane->me, ex->table);
    WEFT_TRY(make_packed(coll, &all));
    pack(coll, ex, all.given);
    const void *plan = coll->plan;
    coll->plan = &all;
    weft_status status = weft_i_hosts_exchange(coll, packed_part);
    coll->plan = plan;
    if (status == WEFT_OK)
        unpack(coll, ex, all.taken);
    WEFT_OS->free(all.given);
    return status;
}

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    weft_i_hosts_kind_run(WEFT_I_ALL_TO_ALL_VDEV, run_vdev_of_hosts);
    weft_i_hosts_kind_run(WEFT_I_ALL_TO_ALL_VDEV_2D, run_vdev_of_hosts);
    weft_i_hosts_kind_run(WEFT_I_ALL_TO_ALL_VDEV_2D_OFFSET, run_vdev_of_hosts);
    weft_i_kind_run(WEFT_I_ALL_TO_ALL_VDEV, run_vdev);
    weft_i_kind_run(WEFT_I_ALL_TO_ALL_VDEV_2D, run_vdev);
    weft_i_kind_run(WEFT_I_ALL_TO_ALL_VDEV_2D_OFFSET, run_vdev);
}

/* ---- filling ---- */

static int64_t rows_in(const weft_tensor *x)
{
    return x->ndim ? x->dim[0] : 1;
}

/* A contiguous int64 tensor of `parts` rows (1: flat) with entries for whole ranks. */
static weft_status check_table(const weft_i_coll *coll, const char *which, const weft_tensor *table,
                               int parts, int64_t entries)
{
    WEFT_TRY(weft_i_request_check_anywhere(coll->ask.op, which, table));
    char text[WEFT_I_SHAPE_TEXT], a[16], b[16];
    if (weft_i_tensor_device(table) != coll->ask.device)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the %s is on %s, the input on %s", coll->ask.op,
                           which, weft_device_name(weft_i_tensor_device(table), a),
                           weft_device_name(coll->ask.device, b));
    if (table->dtype != WEFT_I64)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the %s must be i64, not %s", coll->ask.op, which,
                           weft_dtype_name(table->dtype));
    int64_t length = table->ndim ? table->dim[table->ndim - 1] : 0;
    bool shaped = table->ndim == parts && (parts == 1 || table->dim[0] == parts);
    if (!shaped || !length || (entries ? length != entries : length % coll->group->size))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the %s has shape %s, which does not fit %d ranks%s", coll->ask.op,
                           which, weft_i_shape_text(weft_i_tensor_shape(table), text),
                           coll->group->size, entries ? " and the splits of the input" : "");
    return WEFT_OK;
}

/* The operands that are written must lie apart from those that are read, and from each other. */
static weft_status check_apart(const char *op, weft_tensor *const *read, weft_tensor *const *write)
{
    for (int i = 0; i < 5; i++) {
        const weft_tensor *a = i < 4 ? read[i / 2] : write[0], *b = write[i < 4 ? i % 2 : 1];
        if (weft_i_reach_overlap(
                weft_i_tensor_data(a), (size_t)weft_i_tensor_numel(a) * weft_dtype_size(a->dtype),
                weft_i_tensor_data(b), (size_t)weft_i_tensor_numel(b) * weft_dtype_size(b->dtype)))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: two of the operands overlap", op);
    }
    return WEFT_OK;
}

static weft_status fill(weft_i_coll *coll, weft_i_vdev *ex, weft_tensor *out, weft_tensor *table,
                        weft_tensor *in, weft_tensor *splits)
{
    const char *op = coll->ask.op;
    bool plain = coll->ask.kind == WEFT_I_ALL_TO_ALL_VDEV;
    ex->by_expert = coll->ask.kind == WEFT_I_ALL_TO_ALL_VDEV_2D_OFFSET;
    WEFT_TRY(weft_i_request_input(coll, in));
    WEFT_TRY(weft_i_request_output(coll, out));
    WEFT_TRY(weft_i_reach_check(op, "input", in));
    WEFT_TRY(check_table(coll, "table of splits", splits, ex->by_expert ? 2 : 1,
                         plain ? coll->group->size : 0));
    WEFT_TRY(weft_i_reach_check(op, "table of splits", splits));
    int64_t entries = splits->dim[splits->ndim - 1];
    WEFT_TRY(check_table(coll, "table of output splits", table, 2, entries));
    WEFT_TRY(weft_i_request_check_output(op, table));
    WEFT_TRY(weft_i_storage_touch(table->storage, true));
    weft_tensor *read[] = {in, splits}, *write[] = {out, table};
    WEFT_TRY(check_apart(op, read, write));
    ex->experts = (int)(entries / coll->group->size);
    coll->ask.row = weft_i_request_row_bytes(in);
    if (coll->ask.row != weft_i_request_row_bytes(out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: a row of the input has %zu bytes, one of the output %zu", op,
                           coll->ask.row, weft_i_request_row_bytes(out));
    ex->table = (int64_t *)(void *)weft_i_tensor_data(table);
    ex->in_rows = rows_in(in);
    ex->out_rows = rows_in(out);
    WEFT_TRY(weft_i_request_accept(coll, coll->ask.row)); /* rows may differ between ranks */
    coll->digest =
        weft_i_digest(weft_i_digest(coll->digest, (uint64_t)entries), (uint64_t)ex->align);
    return WEFT_OK;
}

/* Opens both reaches: what a device needs of them is noted too. */
static weft_status open_reaches(weft_i_coll *coll, weft_i_vdev *ex, weft_tensor *in,
                                weft_tensor *splits, weft_i_reach *reach)
{
    WEFT_TRY(weft_i_reach_open(coll, in, &reach[0]));
    WEFT_TRY(weft_i_reach_open(coll, splits, &reach[1]));
    const weft_i_registration *registration = reach[1].registration;
    ex->splits = (weft_i_counterparts){registration->memory, registration->joined,
                                       registration->serial, reach[1].offset};
    ex->most_bytes = reach[0].registration->blocks[coll->group->rank]->bytes - reach[0].offset;
    return WEFT_OK;
}

static weft_status run(weft_i_coll_kind kind, weft_tensor *out, weft_tensor *table, weft_tensor *in,
                       weft_tensor *splits, int64_t align, weft_group *group)
{
    weft_i_coll coll;
    weft_i_vdev ex = {.kind = kind, .align = align};
    weft_i_reach reach[2] = {{0}, {0}};
    tables all = {0};
    WEFT_TRY(weft_i_request_begin(&coll, kind, group));
    WEFT_TRY(fill(&coll, &ex, out, table, in, splits));
    WEFT_TRY(make_tables(&coll, &ex, &all));
    weft_status status = open_reaches(&coll, &ex, in, splits, reach);
    if (status == WEFT_OK) {
        coll.reach = reach;
        coll.plan = &all;
        coll.ask.vdev = &ex;
        status = weft_i_work_now(&coll);
    }
    weft_i_reach_close(&reach[0]);
    weft_i_reach_close(&reach[1]);
    WEFT_OS->free(all.splits);
    return status;
}

weft_status weft_symm_all_to_all_vdev(weft_tensor *out, weft_tensor *out_splits_offsets,
                                      weft_tensor *in, weft_tensor *in_splits, weft_group *group)
{
    return run(WEFT_I_ALL_TO_ALL_VDEV, out, out_splits_offsets, in, in_splits, 0, group);
}

weft_status weft_symm_all_to_all_vdev_2d(weft_tensor *out, weft_tensor *out_splits_offsets,
                                         weft_tensor *in, weft_tensor *in_splits,
                                         int64_t major_align, weft_group *group)
{
    if (major_align < 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "all_to_all_vdev_2d: the alignment must be 1 or more, not %lld",
                           (long long)major_align);
    return run(WEFT_I_ALL_TO_ALL_VDEV_2D, out, out_splits_offsets, in, in_splits, major_align,
               group);
}

weft_status weft_symm_all_to_all_vdev_2d_offset(weft_tensor *out, weft_tensor *out_splits_offsets,
                                                weft_tensor *in, weft_tensor *in_splits_offsets,
                                                weft_group *group)
{
    return run(WEFT_I_ALL_TO_ALL_VDEV_2D_OFFSET, out, out_splits_offsets, in, in_splits_offsets, 0,
               group);
}

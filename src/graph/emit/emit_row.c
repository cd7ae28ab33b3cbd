/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions as rows of the interpreter.  Equal texts are one row for the whole process; its name is
 * made of the digest of its text, so all ranks give it the same.
 */
#include "graph/emit/emit.h"

#include "base/os/os.h"
#include "base/share/digest.h"
#include "base/team/berths.h"
#include "base/team/team.h"
#include "graph/emit/emit_row.h"
#include "tensor/object/device.h"

#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static weft_i_emit_row *rows;

weft_i_emit_row *weft_i_emit_rows_lock(void)
{
    pthread_mutex_lock(&lock);
    return rows;
}

void weft_i_emit_rows_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static weft_status row_shape(weft_i_op_call *call)
{
    const weft_i_emit_row *row = (const weft_i_emit_row *)call->op;
    const weft_i_emit_made *result = &row->results[call->which];
    if (call->args[0].count != row->ins)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %zu operands, not %zu", row->name,
                           call->args[0].count, row->ins);
    call->result.dtype = result->dtype;
    call->result.shape = result->shape;
    memcpy(call->result.stride, result->stride, sizeof result->stride);
    return WEFT_OK;
}

/* ---- running one, by the team ---- */

struct turn {
    const weft_i_emit_row *row;
    weft_i_emit_code *code;
    char *const *addresses;
    char *sums;
    weft_i_berths scratch;
    int64_t parts, cuts; /* with sums: parts of the blocks, times cuts of the lanes */
};

enum { LANES = WEFT_I_EMIT_COLUMN_LANES, BLOCK = WEFT_I_EMIT_COLUMN_BLOCK };

/* A part has some blocks of rows, and of these some lanes; without sums, some units. */
static void run_part(void *argument, int64_t part)
{
    struct turn *t = argument;
    const weft_i_emit_row *row = t->row;
    char *scratch = row->scratch ? weft_i_berths_take(&t->scratch) : NULL;
    int64_t grain = row->sums ? BLOCK : 1, blocks = t->parts / t->cuts, lanes = LANES / t->cuts;
    t->code(t->addresses, scratch, t->sums,
            weft_i_team_bound_at(row->units, grain, blocks, part / t->cuts),
            weft_i_team_bound_at(row->units, grain, blocks, part / t->cuts + 1),
            part % t->cuts * lanes, lanes);
    if (scratch)
        weft_i_berths_give(&t->scratch, scratch);
}

/* Lanes are cut where there are too few blocks. */
static void cut(struct turn *t)
{
    int64_t wanted = weft_i_team_parts(t->row->work);
    int64_t most = t->row->sums ? (t->row->units + BLOCK - 1) / BLOCK : t->row->units;
    t->parts = wanted < most ? wanted : most > 0 ? most : 1;
    t->cuts = 1;
    while (t->row->sums && t->parts * t->cuts < wanted && t->cuts < LANES)
        t->cuts *= 2;
    t->parts *= t->cuts;
}

static void run_parts(struct turn *t)
{
    if (t->parts > 1)
        weft_i_team_run(t->parts, run_part, t);
    else
        run_part(t, 0);
    if (t->row->sums)
        t->row->end(t->addresses, t->sums);
}

static weft_status run_code(const weft_i_emit_row *row, char *const *addresses)
{
    struct turn t = {.row = row, .addresses = addresses};
    if (!(t.code = atomic_load_explicit(&row->code, memory_order_acquire)))
        return weft_i_fail(WEFT_ERR_STATE, "%s: was not compiled", row->name);
    cut(&t);
    if (row->scratch && !weft_i_berths_open(&t.scratch, row->scratch, t.parts > 1))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for rows of %zu bytes", row->name,
                           row->scratch);
    bool fits = !row->sums || (t.sums = WEFT_OS->alloc_aligned(64, (row->sums + 63) / 64 * 64));
    if (fits)
        run_parts(&t);
    WEFT_OS->free(t.sums);
    if (row->scratch)
        weft_i_berths_close(&t.scratch);
    return fits ? WEFT_OK
                : weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for sums of %zu bytes", row->name,
                              row->sums);
}

static weft_status run_kernel(const weft_i_emit_row *row, weft_tensor *const *outs,
                              char *const *addresses)
{
    const weft_i_code *code = weft_i_device_find(row->device)->code;
    if (!weft_i_emit_row_has_code(row))
        return weft_i_fail(WEFT_ERR_STATE, "%s: was not compiled, or its device was closed",
                           row->name);
    for (size_t i = 0; i < row->outs; i++)
        WEFT_TRY(weft_i_storage_ready(outs[i]->storage, true));
    return code->launch(row->device, &row->kernel, row->launch.tasks, addresses);
}

weft_status weft_i_emit_row_run(const weft_i_op *op, weft_tensor *const *ins, size_t count,
                                weft_tensor *const *outs)
{
    const weft_i_emit_row *row = (const weft_i_emit_row *)op;
    char *addresses[2 * WEFT_I_EMIT_OPERANDS];
    if (count != row->ins)
        return weft_i_fail(WEFT_ERR_STATE, "%s: wrong number of operands", row->name);
    for (size_t i = 0; i < row->ins; i++)
        addresses[i] = weft_i_tensor_data(ins[i]);
    for (size_t i = 0; i < row->outs; i++)
        addresses[row->ins + i] = weft_i_tensor_data(outs[i]);
    return row->device == WEFT_CPU ? run_code(row, addresses) : run_kernel(row, outs, addresses);
}

static weft_status row_run(weft_i_op_call *call)
{
    return weft_i_emit_row_run(call->op, call->args[0].tensors, call->args[0].count,
                               call->outs ? call->outs : &call->out);
}

bool weft_i_emit_row_is(const weft_i_op *op)
{
    return op->shape == row_shape;
}

weft_device weft_i_emit_row_device(const weft_i_op *op)
{
    return ((const weft_i_emit_row *)op)->device;
}

/* Acquire, pairs with the release of whoever compiled it. */
bool weft_i_emit_row_has_code(const weft_i_emit_row *row)
{
    if (row->device == WEFT_CPU)
        return atomic_load_explicit(&row->code, memory_order_acquire);
    return atomic_load_explicit(&row->loaded, memory_order_acquire) &&
           weft_i_device_find(row->device)->code->is_loaded(row->device, &row->kernel);
}

int weft_i_emit_row_members(const weft_i_op *op)
{
    return ((const weft_i_emit_row *)op)->members;
}

const char *weft_i_emit_row_text(const weft_i_op *op)
{
    return ((const weft_i_emit_row *)op)->text;
}

bool weft_i_emit_row_in_place(const weft_i_op *op)
{
    return ((const weft_i_emit_row *)op)->in_place;
}

/* ---- making one ---- */

static void put_layout(weft_i_text *s, const weft_i_graph_value *value)
{
    weft_i_text_put(s, " %s[", weft_dtype_name(value->dtype));
    for (int d = 0; d < value->shape.ndim; d++)
        weft_i_text_put(s, "%s%lld", d ? ", " : "", (long long)value->shape.dim[d]);
    weft_i_text_put(s, "]:");
    for (int d = 0; d < value->shape.ndim; d++)
        weft_i_text_put(s, "%s%lld", d ? "," : "", (long long)value->stride[d]);
}

/* What it stands for and how its operands lie, as a comment, and the function. */
static void put_text(weft_i_text *s, const weft_i_emit_outline *o)
{
    weft_i_text_put(s, "/*");
    for (int i = 0; i < o->count; i++)
        weft_i_text_put(s, " %s", o->graph->nodes[o->members[i].node].op->name);
    weft_i_text_put(s, "\n * from");
    for (int i = 0; i < o->ins; i++)
        put_layout(s, &o->graph->values[o->in[i]]);
    weft_i_text_put(s, "\n * to");
    for (int i = 0; i < o->outs; i++)
        put_layout(s, &o->graph->values[o->out[i]]);
    weft_i_text_put(s, " */\n");
    if (weft_i_emit_device(o) == WEFT_CPU)
        weft_i_emit_function(s, o, "FUSED");
    else
        weft_i_emit_kernel(s, o);
}

static char *text_of(const weft_i_emit_outline *o)
{
    weft_i_text s = {NULL, 0, 0};
    put_text(&s, o);
    s.room = s.used + 1;
    s.used = 0;
    if ((s.out = WEFT_OS->alloc(s.room)))
        put_text(&s, o);
    return s.out;
}

/* The names of its nodes, as many as there is room for. */
static void name_nodes(weft_i_emit_row *row, const weft_i_emit_outline *o)
{
    weft_i_text s = {.out = row->about, .room = sizeof row->about};
    for (int i = 0; i < o->count && s.used + 40 < s.room; i++)
        weft_i_text_put(&s, "%s%s", i ? " " : "", o->graph->nodes[o->members[i].node].op->name);
    row->op.about = row->about;
    row->members = o->count;
}

static void fill_row(weft_i_emit_row *row, const weft_i_emit_outline *o)
{
    uint8_t digest[WEFT_I_DIGEST_BYTES];
    char hex[WEFT_I_DIGEST_TEXT];
    weft_i_digest d;
    weft_i_digest_begin(&d);
    weft_i_digest_add(&d, row->text, strlen(row->text));
    weft_i_digest_end(&d, digest);
    weft_i_digest_text(digest, hex);
    snprintf(row->name, sizeof row->name, "fused_%.12s", hex);
    row->ins = (size_t)o->ins;
    row->outs = (size_t)o->outs;
    row->device = weft_i_emit_device(o);
    row->scratch = row->device == WEFT_CPU ? weft_i_emit_scratch(o) : 0;
    row->sums = row->device == WEFT_CPU ? weft_i_emit_sums(o) : 0;
    row->units = weft_i_emit_units(o);
    row->work = weft_i_emit_work(o);
    if (row->device != WEFT_CPU) /* rows of the CPU may be longer than a block of threads sums */
        row->launch = weft_i_emit_kernel_launch(o);
    row->in_place = o->group->inner == 0 && (!o->angles || row->device != WEFT_CPU);
    weft_i_emit_uses(o, row->used);
    row->results = (weft_i_emit_made *)(row + 1);
    for (int i = 0; i < o->outs; i++) {
        const weft_i_graph_value *value = &o->graph->values[o->out[i]];
        row->results[i] = (weft_i_emit_made){value->dtype, value->shape, {0}};
        memcpy(row->results[i].stride, value->stride, sizeof value->stride);
    }
    row->op = (weft_i_op){.name = row->name,
                          .params = "from:l",
                          .flags = WEFT_I_OP_STRIDED,
                          .shape = row_shape,
                          .results = o->outs > 1 ? o->outs : 0,
                          .arity = 1,
                          .kinds = "l",
                          .takes = {1 << WEFT_I_ARG_TENSORS}};
    row->op.run[weft_i_device_kind(row->device)] = row_run;
    name_nodes(row, o);
}

static weft_i_emit_row *find_row(const char *text, weft_device device)
{
    for (weft_i_emit_row *row = rows; row; row = row->next)
        if (row->device == device && !strcmp(row->text, text))
            return row;
    return NULL;
}

/* A row whose device was closed meanwhile needs its code again. */
static void revive(weft_i_emit_row *row)
{
    if (row->device != WEFT_CPU && !weft_i_emit_row_has_code(row))
        atomic_store_explicit(&row->loaded, false, memory_order_release);
}

const weft_i_op *weft_i_emit_row_make(const weft_i_emit_outline *outline)
{
    char *text = text_of(outline);
    weft_i_emit_row *row = NULL;
    pthread_mutex_lock(&lock);
    if (text && !(row = find_row(text, weft_i_emit_device(outline)))) {
        row = WEFT_OS->alloc(sizeof *row + (size_t)outline->outs * sizeof(weft_i_emit_made));
        if (row) {
            row->text = text;
            text = NULL;
            fill_row(row, outline);
            row->next = rows;
            rows = row;
        }
    }
    if (row)
        revive(row);
    pthread_mutex_unlock(&lock);
    WEFT_OS->free(text);
    if (!row)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a function of %d nodes",
                           outline->count);
    return &row->op;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One group as a C function.  Names in it: v3 is what member 3 of the group makes, r3 its array, a3
 * the array it reads as a whole row; p5 is where operand 5 lies for this row, x5 its element.
 */
#include "graph/emit/emit_value.h"

#include "base/share/dtype.h"
#include "kernels/vector/normalize.h"
#include "kernels/vector/pointwise.h"
#include "tensor/op/ops.h"

#include <stdio.h>

#define put weft_i_text_put

typedef weft_i_emit_writing writing;

/* ---- elements ---- */

static void put_element(writing *w, const weft_i_emit_member *m, const char *indent)
{
    put(w->s, "%sconst %s v%d = ", indent, weft_i_emit_variable(m->dtype),
        weft_i_emit_number(w, m));
    weft_i_emit_put_expression(w, m);
    put(w->s, ";\n");
}

/* Notes that an argument is too large for the fast sine. */
static void put_far(writing *w, const weft_i_emit_member *m, const char *indent)
{
    bool narrow = m->compute == WEFT_F32;
    put(w->s, "%sfar |= __builtin_fabs%s(", indent, narrow ? "f" : "");
    weft_i_emit_put_term(w, m, 0, m->compute);
    put(w->s, ") >= WEFT_I_SIN_REACH_%s;\n", narrow ? "F32" : "F64");
}

static void put_store(writing *w, const weft_i_emit_member *m, const char *index)
{
    int k = weft_i_emit_operand_of(w->o, m->value, m->wide, true);
    const weft_i_emit_operand *operand = &w->o->operands[k];
    if (w->o->far)
        put(w->s, "f%d[i - start] = ", k);
    else if (w->o->far_rows && m->wide)
        put(w->s, "q%d[%s] = ", k, index);
    else if (m->wide && operand->inner != 1)
        put(w->s, "p%d[%s * %lld] = ", k, index, (long long)operand->inner);
    else
        put(w->s, "p%d[%s] = ", k, m->wide ? index : "0");
    weft_i_emit_put_stored(w, m);
}

/* ---- what a loop reads ---- */

/* The array of a row that softmax, layer_norm or a gradient reads as operand `at`, if it exists
 * already: its name, into `out`. */
static bool array_of(const writing *w, const weft_i_emit_member *m, int at, char out[24])
{
    int value = weft_i_emit_node(w, m)->terms[at].value;
    const weft_i_emit_member *from = weft_i_emit_member_of(w->o, value);
    int k = weft_i_emit_operand_of(w->o, value, true, false);
    bool exists =
        weft_i_emit_dtype(w, value) == m->compute && (from || w->o->operands[k].inner == 1);
    if (exists)
        snprintf(out, 24, from ? "r%d" : "p%d", from ? weft_i_emit_number(w, from) : k);
    return exists;
}

static bool is_rows(const weft_i_emit_member *m)
{
    return weft_i_emit_is_rows(m->kind);
}

/* Whether an array that the member reads is yet to be filled. */
static bool needs_array(const writing *w, const weft_i_emit_member *m)
{
    char name[24];
    for (int at = 0; at < weft_i_emit_arrays(m->kind); at++)
        if (!array_of(w, m, at, name))
            return true;
    return false;
}

/* Whether the loop of this phase works for the member: computes it, feeds its sum or fills its
 * array, or stores what was made as an array. */
static bool is_looped(const writing *w, const weft_i_emit_member *m)
{
    if (is_rows(m))
        return (m->phase == w->phase && needs_array(w, m)) ||
               (m->ready == w->phase && m->out >= 0 && !m->listed);
    return m->phase == w->phase &&
           (m->wide || m->kind == WEFT_I_EMIT_REDUCE || m->kind == WEFT_I_EMIT_COLUMNS);
}

static bool reads(const writing *w, const weft_i_emit_member *m, int value)
{
    int read, seen = 0;
    for (size_t at = 0; weft_i_graph_node_next(weft_i_emit_node(w, m), &at, &read); seen++)
        if (read == value && !(m->kind == WEFT_I_EMIT_LAYER && seen > 0))
            return true;
    return false;
}

/* Whether somebody in the loop of this phase reads the value. */
static bool is_read(const writing *w, int value)
{
    for (int i = 0; i < w->o->count; i++) {
        const weft_i_emit_member *m = &w->o->members[i];
        if (m->phase == w->phase && is_looped(w, m) && reads(w, m, value))
            return true;
    }
    return false;
}

/* Loads that are the same for the whole row (`once`), or for each element. */
static void put_loads(writing *w, bool once, const char *indent)
{
    for (int k = 0; k < w->o->operand_count; k++) {
        const weft_i_emit_operand *operand = &w->o->operands[k];
        if (!operand->written && operand->wide && (operand->inner == 0) == once &&
            is_read(w, operand->value))
            weft_i_emit_put_load(w, k, indent);
    }
}

/* Elements of arrays from earlier phases. */
static void put_arrays(writing *w, const char *indent)
{
    for (int i = 0; i < w->o->count; i++) {
        const weft_i_emit_member *m = &w->o->members[i];
        bool stored = is_rows(m) && m->ready == w->phase && m->out >= 0 && !m->listed;
        bool earlier = m->wide && (is_rows(m) ? m->ready <= w->phase : m->phase < w->phase);
        if (!earlier || !(stored || is_read(w, m->value)))
            continue;
        put(w->s, "%sconst %s v%d = ", indent, weft_i_emit_variable(m->dtype), i);
        if (is_rows(m))
            weft_i_emit_open_round(w, m->dtype);
        put(w->s, "r%d[i]", i);
        if (is_rows(m))
            weft_i_emit_close_round(w, m->dtype);
        put(w->s, ";\n");
        if (stored) {
            put(w->s, "%s", indent);
            put_store(w, m, "i");
        }
    }
}

/* ---- one phase ---- */

/* The element goes into the array that a row is read from. */
static void put_fill(writing *w, const weft_i_emit_member *m, int at, bool blocks,
                     const char *indent)
{
    bool rows = is_rows(m);
    put(w->s, "%s%c%d[i%s] = ", indent, rows ? "ac"[at] : 'b', weft_i_emit_number(w, m),
        blocks && !rows ? " - start" : "");
    weft_i_emit_put_as(w, weft_i_emit_node(w, m)->terms[at].value, true, m->compute);
    put(w->s, ";\n");
}

/* The element joins those above it, in the lane of this row. */
static void put_column(writing *w, const weft_i_emit_member *m, const char *indent)
{
    int i = weft_i_emit_number(w, m);
    put(w->s, "%ss%d[i] = one_sum_%s(s%d[i], ", indent, i, weft_i_emit_stored(m->compute), i);
    weft_i_emit_put_as(w, weft_i_emit_node(w, m)->terms[0].value, true, m->compute);
    put(w->s, ");\n");
}

static void put_body(writing *w, bool blocks, const char *indent)
{
    put_loads(w, false, indent);
    put_arrays(w, indent);
    for (int i = 0; i < w->o->count; i++) {
        const weft_i_emit_member *m = &w->o->members[i];
        char name[24];
        if (m->phase != w->phase || !is_looped(w, m))
            continue;
        if (weft_i_emit_is_angle(w, m) && !w->any)
            put_far(w, m, indent);
        if (m->kind < WEFT_I_EMIT_REDUCE) {
            put_element(w, m, indent);
            if (m->kept && !m->listed)
                put(w->s, "%sr%d[i] = v%d;\n", indent, i, i);
            if (m->out >= 0) {
                put(w->s, "%s", indent);
                put_store(w, m, "i");
            }
            continue;
        }
        if (m->kind == WEFT_I_EMIT_COLUMNS) {
            put_column(w, m, indent);
            continue;
        }
        for (int at = 0; at < (is_rows(m) ? weft_i_emit_arrays(m->kind) : 1); at++)
            if (!is_rows(m) || !array_of(w, m, at, name))
                put_fill(w, m, at, blocks, indent);
    }
}

static void put_loop(writing *w, bool blocks, const char *from, const char *to, const char *indent)
{
    bool angles = false;
    for (int i = 0; i < w->o->count; i++)
        angles |= w->o->members[i].phase == w->phase &&
                  weft_i_emit_is_angle(w, &w->o->members[i]) && w->o->members[i].wide;
    for (int any = 0; any <= angles; any++) {
        w->any = any;
        if (any)
            put(w->s, "%sif (far)\n", indent);
        else if (angles)
            put(w->s, "%sint far = 0;\n", indent);
        if (!any)
            put(w->s, "%sWEFT_I_VECTOR_LOOP\n", indent);
        put(w->s, "%sfor (int64_t i = %s; i < %s; i++) {\n", indent, from, to);
        put_body(w, blocks, blocks ? "                " : "            ");
        put(w->s, "%s}\n", indent);
    }
    w->any = false;
}

/* ---- past the caches ---- */

/* One chunk: asks for what is read `ahead` elements later, computes, and stores the results. */
static void put_far_chunk(writing *w, const char *end, long long ahead)
{
    const weft_i_emit_outline *o = w->o;
    put(w->s, "            const int64_t end = %s;\n", end);
    for (int k = 0; k < o->operand_count; k++)
        if (!o->operands[k].written && o->operands[k].inner == 1)
            put(w->s, "            weft_i_far_ask(p%d + start + %lld, %d * sizeof *p%d);\n", k,
                ahead, WEFT_I_EMIT_FAR_CHUNK, k);
    put_loop(w, true, "start", "end", "            ");
    for (int k = 0; k < o->operand_count; k++)
        if (o->operands[k].written)
            put(w->s,
                "            weft_i_far_store(p%d + start, f%d, (end - start) * sizeof *p%d);\n", k,
                k, k);
    put(w->s, "        }\n");
}

/*
 * The processor asks memory by itself for what follows in a page, but not for the next page.  So
 * four pages are walked at once, a chunk of each in turn.  What is left is walked as it lies.
 */
static void put_far_loops(writing *w)
{
    const weft_i_emit_outline *o = w->o;
    long long chunk = WEFT_I_EMIT_FAR_CHUNK, page = weft_i_emit_far_page(o), n = (long long)o->n;
    bool rest = n % (4 * page); /* pieces of a row are multiples of that */
    char end[80];
    for (int k = 0; k < o->operand_count; k++)
        if (o->operands[k].written)
            put(w->s, "        %s f%d[%lld] __attribute__((aligned(64)));\n",
                weft_i_emit_stored(weft_i_emit_dtype(w, o->operands[k].value)), k, chunk);
    put(w->s, "        const int64_t whole = begin + (stop - begin) / %lld * %lld;\n", 4 * page,
        4 * page);
    if (n >= 4 * page) {
        put(w->s,
            "        for (int64_t at = begin; at < whole; at += %lld)\n"
            "        for (int64_t from = at; from < at + %lld; from += %lld)\n"
            "        for (int64_t start = from; start < at + %lld; start += %lld) {\n",
            4 * page, page, chunk, 4 * page, page);
        snprintf(end, sizeof end, "start + %lld", chunk);
        put_far_chunk(w, end, 4 * page);
    }
    if (!rest)
        return;
    put(w->s, "        for (int64_t start = whole; start < stop; start += %lld) {\n", chunk);
    snprintf(end, sizeof end, "start + %lld < stop ? start + %lld : stop", chunk, chunk);
    put_far_chunk(w, end, page);
}

/* ---- sums ---- */

static const char *combiner_of(const writing *w, const weft_i_emit_member *m)
{
    static const char *const names[] = {"sum", "prod", "max", "min"};
    _Static_assert(sizeof names / sizeof *names == WEFT_I_REDUCE_COUNT,
                   "a name for each reduction");
    return names[weft_i_emit_node(w, m)->op->kernel & 0xff];
}

static bool is_summed(const writing *w, const weft_i_emit_member *m)
{
    return m->kind == WEFT_I_EMIT_REDUCE && m->phase == w->phase;
}

/* The sums of one block join those before, in the order of reduce.h. */
static void put_push(writing *w, const weft_i_emit_member *m)
{
    int i = weft_i_emit_number(w, m);
    const char *op = combiner_of(w, m), *type = weft_i_emit_stored(m->compute);
    put(w->s, "            l%d[d%d++] = sum_block_%s_%s((size_t)(end - start), b%d);\n", i, i, op,
        type, i);
    put(w->s,
        "            for (uint64_t bits = blocks; !(bits & 1); bits >>= 1, d%d--)\n"
        "                l%d[d%d - 2] = one_%s_%s(l%d[d%d - 2], l%d[d%d - 1]);\n",
        i, i, i, op, type, i, i, i, i);
}

static void put_finish(writing *w, const weft_i_emit_member *m)
{
    int i = weft_i_emit_number(w, m);
    const char *op = combiner_of(w, m), *type = weft_i_emit_stored(m->compute);
    bool mean = weft_i_emit_node(w, m)->op->kernel & WEFT_I_REDUCE_MEAN;
    put(w->s,
        "        for (; d%d > 1; d%d--)\n"
        "            l%d[d%d - 2] = one_%s_%s(l%d[d%d - 2], l%d[d%d - 1]);\n",
        i, i, i, i, op, type, i, i, i, i);
    put(w->s, "        v%d = ", i);
    weft_i_emit_open_round(w, m->dtype);
    put(w->s, mean ? "l%d[0] / (%s)%lld" : "l%d[0]", i, type, (long long)w->o->n);
    weft_i_emit_close_round(w, m->dtype);
    put(w->s, ";\n");
}

static void put_sums(writing *w)
{
    for (int i = 0; i < w->o->count; i++)
        if (is_summed(w, &w->o->members[i]))
            put(w->s, "        %s v%d;\n", weft_i_emit_variable(w->o->members[i].dtype), i);
    put(w->s, "        {\n");
    put_loads(w, true, "        ");
    for (int i = 0; i < w->o->count; i++)
        if (is_summed(w, &w->o->members[i]))
            put(w->s, "        %s l%d[WEFT_I_REDUCE_LEVELS], b%d[BLOCK];\n        int d%d = 0;\n",
                weft_i_emit_stored(w->o->members[i].compute), i, i, i);
    put(w->s,
        "        uint64_t blocks = 0;\n"
        "        for (int64_t start = 0; start < %lld; start += BLOCK) {\n"
        "            const int64_t end = start + BLOCK < %lld ? start + BLOCK : %lld;\n",
        (long long)w->o->n, (long long)w->o->n, (long long)w->o->n);
    put_loop(w, true, "start", "end", "            ");
    put(w->s, "            blocks++;\n");
    for (int i = 0; i < w->o->count; i++)
        if (is_summed(w, &w->o->members[i]))
            put_push(w, &w->o->members[i]);
    put(w->s, "        }\n");
    for (int i = 0; i < w->o->count; i++)
        if (is_summed(w, &w->o->members[i]))
            put_finish(w, &w->o->members[i]);
    put(w->s, "        }\n");
}

/* A call of eager's own loop over the row. */
static void put_rows(writing *w, const weft_i_emit_member *m)
{
    const weft_i_graph_node *node = weft_i_emit_node(w, m);
    int i = weft_i_emit_number(w, m);
    char name[24], second[24];
    if (!array_of(w, m, 0, name))
        snprintf(name, sizeof name, "a%d", i);
    const char *type = weft_i_emit_stored(m->compute);
    const char *log = node->op->kernel == WEFT_I_NORMALIZE_LOG_SOFTMAX ? "log_" : "";
    if (m->kind == WEFT_I_EMIT_SOFTMAX_GRAD) {
        if (!array_of(w, m, 1, second))
            snprintf(second, sizeof second, "c%d", i);
        put(w->s, "        %ssoftmax_grad_%s(r%d, %s, %s, %lld);\n", log, type, i, name, second,
            (long long)w->o->n);
        return;
    }
    if (m->kind == WEFT_I_EMIT_SOFTMAX) {
        put(w->s, "        %ssoftmax_%s(r%d, %s, %lld);\n", log, type, i, name, (long long)w->o->n);
        return;
    }
    put(w->s, "        layer_%s(r%d, %s, %lld", type, i, name, (long long)w->o->n);
    for (int k = 2; k <= 3; k++) {
        bool there = node->terms[k].kind == WEFT_I_ARG_TENSOR;
        int at = 0;
        while (there && w->o->in[at] != node->terms[k].value)
            at++;
        if (there)
            put(w->s, ", addresses[%d]", at);
        else
            put(w->s, ", NULL");
    }
    put(w->s, ", %a);\n", node->terms[4].number);
}

/* What has the width of rows: its operands from outside are loaded where it is computed. */
static void put_row_elements(writing *w)
{
    for (int k = 0; k < w->o->operand_count && w->phase == 0; k++)
        if (!w->o->operands[k].wide && !w->o->operands[k].written)
            weft_i_emit_put_load(w, k, "        ");
    for (int i = 0; i < w->o->count; i++) {
        const weft_i_emit_member *m = &w->o->members[i];
        if (m->wide || m->phase != w->phase || m->kind >= WEFT_I_EMIT_REDUCE)
            continue;
        w->any = true;
        put_element(w, m, "        ");
        w->any = false;
    }
}

/*
 * Asks for a part of a later row while this one is computed, since memory would be idle: for each
 * operand whose rows lie one behind the other.  In small parts, two for each phase: the first cache
 * can wait for few lines at a time, and what comes behind them stands still.  If results go past the
 * caches it is the row after the next, for the second cache; otherwise the next.
 */
static void put_ask(writing *w, int half)
{
    enum { LINE = 64, MOST = 32 << 10 };
    const weft_i_emit_outline *o = w->o;
    int parts = 2 * (o->phases - 1), part = 2 * w->phase + half;
    for (int k = 0; k < o->operand_count && part < parts && o->outer; k++) {
        const weft_i_emit_operand *operand = &o->operands[k];
        long long lines = (long long)o->n *
                          (long long)weft_dtype_size(weft_i_emit_dtype(w, operand->value)) / LINE;
        long long from = lines * part / parts, to = lines * (part + 1) / parts;
        if (operand->written || !operand->wide || operand->inner != 1 ||
            operand->outer[o->outer - 1] != o->n || lines * LINE > MOST || from == to)
            continue;
        put(w->s, "        weft_i_far_ask%s((const char *)(p%d + %lld) + %lld, %lld);\n",
            o->far_rows ? "_early" : "", k, (o->far_rows ? 2 : 1) * (long long)o->n, from * LINE,
            (to - from) * LINE);
    }
}

static void put_phase(writing *w)
{
    bool summed = false, looped = false;
    put_row_elements(w);
    put_ask(w, 0);
    for (int i = 0; i < w->o->count; i++) {
        summed |= is_summed(w, &w->o->members[i]);
        looped |= is_looped(w, &w->o->members[i]);
    }
    if (summed || looped) {
        if (summed) {
            put_sums(w);
        } else { /* the names of its loads are its own */
            put(w->s, "        {\n");
            put_loads(w, true, "        ");
            if (w->o->far)
                put_far_loops(w);
            else
                put_loop(w, false, "begin", "stop", "        ");
            put(w->s, "        }\n");
        }
    }
    put_ask(w, 1);
    for (int i = 0; i < w->o->count; i++)
        if (is_rows(&w->o->members[i]) && w->o->members[i].phase == w->phase)
            put_rows(w, &w->o->members[i]);
}

/* ---- the function ---- */

static void put_pointers(writing *w)
{
    const weft_i_emit_outline *o = w->o;
    for (int k = 0; k < o->operand_count; k++) {
        const weft_i_emit_operand *operand = &o->operands[k];
        const char *type = weft_i_emit_stored(weft_i_emit_dtype(w, operand->value));
        put(w->s, "        %s%s *p%d = (%s%s *)addresses[%d]", operand->written ? "" : "const ",
            type, k, operand->written ? "" : "const ", type,
            operand->at + (operand->written ? o->ins : 0));
        for (int d = 0; d < o->outer; d++)
            if (operand->outer[d])
                put(w->s, " + i%d * %lld", d, (long long)operand->outer[d]);
        put(w->s, ";\n");
    }
}

static void put_array_pointers(writing *w)
{
    const weft_i_emit_outline *o = w->o;
    int slot = 0;
    char name[24];
    for (int i = 0; i < o->count; i++)
        if (o->members[i].kind != WEFT_I_EMIT_COLUMNS)
            slot = o->members[i].slot >= slot ? o->members[i].slot + 1 : slot;
    for (int i = 0; i < o->count; i++) {
        const weft_i_emit_member *m = &o->members[i];
        const char *type =
            is_rows(m) ? weft_i_emit_stored(m->compute) : weft_i_emit_variable(m->dtype);
        long long bytes = (long long)o->n * 8 + 64;
        int k = weft_i_emit_operand_of(o, m->value, true, true);
        if (o->far_rows && k >= 0)
            put(w->s, "        %s *q%d = (%s *)(scratch + %lld);\n", type, k, type,
                m->slot * bytes);
        if (m->kept && m->listed)
            put(w->s, "        %s *r%d = %c%d;\n", type, i, o->far_rows ? 'q' : 'p', k);
        else if (m->kept)
            put(w->s, "        %s *r%d = (%s *)(scratch + %lld);\n", type, i, type,
                m->slot * bytes);
        for (int at = 0; at < weft_i_emit_arrays(m->kind); at++)
            if (!array_of(w, m, at, name))
                put(w->s, "        %s *%c%d = (%s *)(scratch + %lld);\n", type, "ac"[at], i, type,
                    slot++ * bytes);
    }
}

/* Rows that are done go past the caches. */
static void put_far_rows(writing *w)
{
    const weft_i_emit_outline *o = w->o;
    for (int k = 0; k < o->operand_count && o->far_rows; k++)
        if (o->operands[k].written && o->operands[k].wide)
            put(w->s, "        weft_i_far_store(p%d, q%d, %lld * sizeof *p%d);\n", k, k,
                (long long)o->n, k);
}

/* Which row it is, and which of its elements; its place in each of the loops around rows. */
static void put_place(writing *w, bool columns)
{
    const weft_i_emit_outline *o = w->o;
    long long n = (long long)o->n, piece = (long long)o->piece, pieces = (n + piece - 1) / piece;
    if (pieces > 1)
        put(w->s,
            "    for (int64_t unit = first; unit < last; unit++) {\n"
            "        const int64_t row = unit / %lld, begin = unit %% %lld * %lld;\n"
            "        const int64_t stop = begin + %lld < %lld ? begin + %lld : %lld;\n",
            pieces, pieces, piece, piece, n, piece, n);
    else
        put(w->s,
            "    for (int64_t row = %s; row < %s; row++) {\n"
            "        const int64_t begin = 0, stop = %lld;\n",
            columns ? "from" : "first", columns ? "to" : "last", n);
    put(w->s, "        (void)begin, (void)stop, (void)row;\n");
    long long behind = 1;
    for (int d = o->outer - 1; d >= 0; d--) {
        put(w->s, "        const int64_t i%d = row / %lld %% %lld;\n        (void)i%d;\n", d,
            behind, (long long)o->dim[d], d);
        behind *= (long long)o->dim[d];
    }
}

/* The same of a group with sums of columns: the rows of some lanes, from block to block. */
static void put_lanes(writing *w)
{
    put(w->s, "    for (int64_t base = first; base < last; base += LANES) {\n");
    weft_i_emit_put_columns(w, WEFT_I_EMIT_BEFORE);
    put(w->s,
        "    const int64_t from = base + lane, to = from + lanes < last ? from + lanes : last;\n");
}

static bool has_columns(const weft_i_emit_outline *o)
{
    bool columns = false;
    for (int i = 0; i < o->count; i++)
        columns |= o->members[i].kind == WEFT_I_EMIT_COLUMNS;
    return columns;
}

static void put_end(writing *w, const char *name)
{
    put(w->s, "void %s_END(char *const *addresses, char *sums)\n{\n", name);
    weft_i_emit_put_columns(w, WEFT_I_EMIT_AFTER);
    put(w->s, "}\n");
}

void weft_i_emit_function(weft_i_text *s, const weft_i_emit_outline *outline, const char *name)
{
    writing w = {.s = s, .o = outline, .width = 1};
    bool columns = has_columns(outline);
    put(s,
        "void %s(char *const *addresses, char *scratch, char *sums, int64_t first, int64_t last,\n"
        "    int64_t lane, int64_t lanes)\n{\n    (void)scratch, (void)sums, (void)lane, "
        "(void)lanes;\n",
        name);
    if (columns)
        put_lanes(&w);
    put_place(&w, columns);
    put_pointers(&w);
    put_array_pointers(&w);
    weft_i_emit_put_columns(&w, WEFT_I_EMIT_ROW_BEGINS);
    for (; w.phase < outline->phases; w.phase++)
        put_phase(&w);
    for (int i = 0; i < outline->count; i++)
        if (!outline->members[i].wide && outline->members[i].out >= 0 &&
            outline->members[i].kind != WEFT_I_EMIT_COLUMNS) {
            put(s, "        ");
            put_store(&w, &outline->members[i], "0");
        }
    put_far_rows(&w);
    put(s, "    }\n%s%s}\n", columns ? "    }\n" : "",
        outline->far || outline->far_rows ? "    weft_i_far_end();\n" : "");
    if (columns)
        put_end(&w, name);
}

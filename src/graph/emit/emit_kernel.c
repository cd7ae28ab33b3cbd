/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One group as a kernel; see emit_kernel.h.  Without rows a thread takes an element, or four
 * neighbours, at a time.  With rows a block of threads takes 32 / span rows at a time, as the
 * library's own kernels do (kernels/order.h): a row is `span` units of 512 elements, of which 16
 * threads take a lane each.  Sums are known to the whole block when the next walk begins.
 */
#include "graph/emit/emit_kernel.h"

#include "base/share/dtype.h"
#include "kernels/vector/normalize.h"
#include "kernels/vector/pointwise.h"
#include "tensor/op/ops.h"

#include <stdio.h>

#define put weft_i_text_put

enum { UNITS = 32, BLOCK = 512, SUMS = 40, THREADS = 256, ROW_THREADS = 512 };

static const char prelude[] =
    "#if !defined(__CUDACC__)\n"
    "#include <math.h>\n"
    "#endif\n"
    "#include \"order.h\"\n"
    "#define NEGATIVE(a_) ((a_) < (T)1 && (a_) != (T)0)\n"
    "#define EXPRESSION WEFT_K\n"
    "#define FOUR(type_, bytes_) \\\n"
    "    typedef struct __attribute__((aligned(bytes_))) four_##type_ { type_ at[4]; } "
    "four_##type_;\n"
    "FOUR(double, 16) FOUR(float, 16) FOUR(int64_t, 16) FOUR(uint64_t, 16) FOUR(int32_t, 16)\n"
    "FOUR(uint32_t, 16) FOUR(int16_t, 8) FOUR(uint16_t, 8) FOUR(int8_t, 4) FOUR(uint8_t, 4)\n"
    /* The words of emit_value.h. */
    "#define SMALL(name_, dtype_, bf16_) \\\n"
    "    WEFT_K float widen_##name_(uint16_t x) { return weft_k_half(bf16_, x); } \\\n"
    "    WEFT_K uint16_t narrow_##name_(float x) \\\n"
    "    { \\\n"
    "        return (uint16_t)weft_k_narrow(dtype_, x); \\\n"
    "    } \\\n"
    "    WEFT_K float round_##name_(float x) { return widen_##name_(narrow_##name_(x)); }\n"
    "SMALL(f16, WEFT_K_F16, 0)\n"
    "SMALL(bf16, WEFT_K_BF16, 1)\n"
    "#define float_bits weft_k_float\n"
    "#define double_bits weft_k_double\n"
    /* Powers are the library's for any exponent, as in the eager kernels: a constant one must not
     * be seen. */
    "#if defined(__CUDACC__)\n"
    "#define HIDE(kind_, x_) asm volatile(\"\" : \"+\" kind_(x_))\n"
    "#else\n"
    "#define HIDE(kind_, x_) (void)(x_)\n"
    "#endif\n"
    "WEFT_K_OUT float any_powf(float a, float b)\n"
    "{\n"
    "    HIDE(\"f\", b);\n"
    "    return powf(a, b);\n"
    "}\n"
    "WEFT_K_OUT double any_pow(double a, double b)\n"
    "{\n"
    "    HIDE(\"d\", b);\n"
    "    return pow(a, b);\n"
    "}\n"
    "#define powf any_powf\n"
    "#define pow any_pow\n"
    "#define combine_float weft_k_combine_f32\n"
    "#define combine_double weft_k_combine_f64\n"
    "#define combine_int64_t(which_, a_, b_) \\\n"
    "    (int64_t)weft_k_combine_i64(which_, 0, (uint64_t)(a_), (uint64_t)(b_))\n"
    "#define combine_uint64_t(which_, a_, b_) weft_k_combine_i64(which_, 1, a_, b_)\n"
    "#define JOIN(type_) \\\n"
    "    WEFT_K void join_##type_(int which, unsigned span, unsigned blocks, type_ *lane) \\\n"
    "    { \\\n"
    "        WEFT_K_NO_UNROLL \\\n"
    "        for (unsigned half = WEFT_K_LANES / 2; half; half /= 2) { \\\n"
    "            weft_k_sync(); \\\n"
    "            for (unsigned t = weft_k_thread(); t < half * WEFT_K_UNITS; \\\n"
    "                 t += weft_k_threads()) { \\\n"
    "                unsigned at = t / WEFT_K_UNITS * WEFT_K_PITCH + t % WEFT_K_UNITS; \\\n"
    "                lane[at] = combine_##type_(which, lane[at], lane[at + half * WEFT_K_PITCH]); "
    "\\\n"
    "            } \\\n"
    "        } \\\n"
    "        WEFT_K_NO_UNROLL \\\n"
    "        for (unsigned width = 1; width < span; width *= 2) { \\\n"
    "            weft_k_sync(); \\\n"
    "            for (unsigned t = weft_k_thread(); t < WEFT_K_UNITS; t += weft_k_threads()) \\\n"
    "                if (t % span % (2 * width) == 0 && t % span + width < blocks) \\\n"
    "                    lane[t] = combine_##type_(which, lane[t], lane[t + width]); \\\n"
    "        } \\\n"
    "        weft_k_sync(); \\\n"
    "    }\n"
    "JOIN(float)\n"
    "JOIN(double)\n"
    "JOIN(int64_t)\n"
    "JOIN(uint64_t)\n";

void weft_i_emit_kernel_prelude(weft_i_text *s)
{
    put(s, "%s", prelude);
}

/* ---- how it is cut ---- */

static int64_t rows_of(const weft_i_emit_outline *o)
{
    int64_t rows = 1;
    for (int d = 0; d < o->outer; d++)
        rows *= o->dim[d];
    return rows;
}

static int blocks_of(const weft_i_emit_outline *o)
{
    return (int)((o->n + BLOCK - 1) / BLOCK);
}

static int span_of(const weft_i_emit_outline *o)
{
    int span = 1;
    while (span < blocks_of(o))
        span *= 2;
    return span;
}

static int known_sums(const weft_i_emit_member *m)
{
    return m->kind == WEFT_I_EMIT_REDUCE    ? 1
           : m->kind == WEFT_I_EMIT_SOFTMAX ? 2
           : m->kind == WEFT_I_EMIT_LAYER   ? 5
                                            : 0;
}

bool weft_i_emit_kernel_fits(const weft_i_emit_outline *o, const char **why)
{
    int sums = 0;
    for (int i = 0; i < o->count; i++)
        sums += known_sums(&o->members[i]);
    *why = sums > SUMS ? "it has too many sums for one kernel"
           : o->group->inner && o->n > (int64_t)UNITS * BLOCK ? "its rows are too long for a kernel"
                                                              : NULL;
    return !*why;
}

/* Whether all operands can be read and written four at a time, if their addresses are aligned. */
static bool goes_by_four(const weft_i_emit_outline *o)
{
    if (o->n % 4)
        return false;
    for (int k = 0; k < o->operand_count; k++) {
        const weft_i_emit_operand *operand = &o->operands[k];
        if (operand->inner != 1 && (operand->inner != 0 || operand->written))
            return false;
        for (int d = 0; d < o->outer && operand->inner; d++)
            if (operand->outer[d] % 4)
                return false;
    }
    return true;
}

weft_i_emit_launch weft_i_emit_kernel_launch(const weft_i_emit_outline *o)
{
    int64_t rows = rows_of(o), per = UNITS / (o->group->inner ? span_of(o) : 1);
    if (o->group->inner)
        return (weft_i_emit_launch){(uint64_t)((rows + per - 1) / per), ROW_THREADS, false};
    return (weft_i_emit_launch){(uint64_t)(rows * o->n) / (goes_by_four(o) ? 4 : 1), THREADS, true};
}

/* ---- pointers ---- */

static const char *type_of_operand(const weft_i_emit_writing *w, int k)
{
    return weft_i_emit_stored(w->o->graph->values[w->o->operands[k].value].dtype);
}

static bool is_written(const weft_i_emit_writing *w, int k, bool wide)
{
    const weft_i_emit_operand *operand = &w->o->operands[k];
    return operand->written && operand->wide == wide;
}

/* The numbers of the outer loops, from `from`, which they use up. */
static void put_indices(weft_i_emit_writing *w, const char *from, const char *indent)
{
    for (int d = w->o->outer - 1; d >= 0; d--) {
        if (d == 0) {
            put(w->s, "%sconst int64_t i0 = (int64_t)%s;\n", indent, from);
            continue;
        }
        put(w->s, "%sconst int64_t i%d = (int64_t)(%s %% %lld);\n%s%s /= %lld;\n", indent, d, from,
            (long long)w->o->dim[d], indent, from, (long long)w->o->dim[d]);
    }
}

/* Where the operands that are needed, and with `wide` those that are written, lie for the row. */
static void put_pointers(weft_i_emit_writing *w, bool stores, bool wide, const char *indent)
{
    for (int k = 0; k < w->o->operand_count; k++) {
        const weft_i_emit_operand *operand = &w->o->operands[k];
        bool stored = stores && is_written(w, k, wide);
        if (!w->operands[k] && !stored)
            continue;
        const char *type = type_of_operand(w, k), *constant = operand->written ? "" : "const ";
        put(w->s, "%s%s%s *p%d = (%s%s *)(%svoid *)c.at[%d]", indent, constant, type, k, constant,
            type, constant, operand->at + (operand->written ? w->o->ins : 0));
        for (int d = 0; d < w->o->outer; d++)
            if (operand->outer[d])
                put(w->s, " + i%d * %lld", d, (long long)operand->outer[d]);
        put(w->s, ";\n");
    }
}

static void put_store(weft_i_emit_writing *w, const weft_i_emit_member *m, const char *indent)
{
    int k = weft_i_emit_operand_of(w->o, m->value, m->wide, true);
    char to[64];
    if (!m->wide)
        snprintf(to, sizeof to, "p%d[0]", k);
    else if (w->width > 1)
        snprintf(to, sizeof to, "made%d.at[j]", k);
    else if (w->o->operands[k].inner == 1)
        snprintf(to, sizeof to, "p%d[i]", k);
    else
        snprintf(to, sizeof to, "p%d[i * %lld]", k, (long long)w->o->operands[k].inner);
    put(w->s, "%s", indent);
    weft_i_emit_put_result(w, m, to);
}

static void put_stores(weft_i_emit_writing *w, bool wide, const char *indent)
{
    for (int i = 0; i < w->o->count; i++)
        if (w->o->members[i].out >= 0 && w->o->members[i].wide == wide)
            put_store(w, &w->o->members[i], indent);
}

/* Notes what the outputs of this width need; false if there are none. */
static bool need_outputs(weft_i_emit_writing *w, bool wide)
{
    bool any = false;
    weft_i_emit_need_nothing(w);
    for (int i = 0; i < w->o->count; i++)
        if (w->o->members[i].out >= 0 && w->o->members[i].wide == wide) {
            weft_i_emit_need_member(w, &w->o->members[i]);
            any = true;
        }
    return any;
}

/* ---- without rows ---- */

static void put_fours(weft_i_emit_writing *w, bool before)
{
    for (int k = 0; k < w->o->operand_count; k++) {
        const char *type = type_of_operand(w, k);
        if (!w->o->operands[k].written && w->operands[k] && w->o->operands[k].inner && before)
            put(w->s,
                "            const four_%s four%d = *(const four_%s *)(const void *)(p%d + i);\n",
                type, k, type, k);
        else if (w->o->operands[k].written && before)
            put(w->s, "            four_%s made%d;\n", type, k);
        else if (w->o->operands[k].written)
            put(w->s, "            *(four_%s *)(void *)(p%d + i) = made%d;\n", type, k, k);
    }
}

static void put_flat_loop(weft_i_emit_writing *w, int width)
{
    int64_t inner = w->o->n / width, tasks = rows_of(w->o) * inner;
    const char *type = tasks < INT32_MAX / 2 ? "uint32_t" : "uint64_t";
    w->width = width;
    put(w->s,
        "        for (%s t = (%s)weft_k_grid_first(); t < %lldu; t += (%s)weft_k_grid_step()) {\n",
        type, type, (long long)tasks, type);
    put(w->s, "            const int64_t i = (int64_t)(t %% %lldu) * %d;\n", (long long)inner,
        width);
    if (w->o->outer)
        put(w->s, "            %s rest = t / %lldu;\n", type, (long long)inner);
    put_indices(w, "rest", "            ");
    put_pointers(w, true, true, "            ");
    if (width > 1) {
        put_fours(w, true);
        put(w->s, "            WEFT_K_UNROLL\n            for (int j = 0; j < 4; j++) {\n");
    }
    weft_i_emit_put_elements(w, "            ");
    put_stores(w, true, "            ");
    if (width > 1) {
        put(w->s, "            }\n");
        put_fours(w, false);
    }
    put(w->s, "        }\n");
    w->width = 1;
}

static void put_flat(weft_i_emit_writing *w)
{
    need_outputs(w, true);
    if (goes_by_four(w->o)) {
        put(w->s, "    if (((0");
        for (int i = 0; i < w->o->ins + w->o->outs; i++)
            put(w->s, " | (uintptr_t)c.at[%d]", i);
        put(w->s, ") & 15) == 0) {\n");
        put_flat_loop(w, 4);
        put(w->s, "    } else {\n");
    } else {
        put(w->s, "    {\n");
    }
    put_flat_loop(w, 1);
    put(w->s, "    }\n");
}

/* ---- rows ---- */

/* From here on threads walk the rows of the task, each its lane; `first` stands before the row is
 * looked at, `body` is for element i. */
static void open_walk(weft_i_emit_writing *w, bool stores, const char *first)
{
    const weft_i_emit_outline *o = w->o;
    int span = span_of(o);
    put(w->s,
        "        for (unsigned t = weft_k_thread(); t < WEFT_K_UNITS * WEFT_K_LANES; t += "
        "weft_k_threads()) {\n"
        "            const unsigned unit = t / WEFT_K_LANES, lane = t %% WEFT_K_LANES;\n"
        "            uint64_t row = group * %d + unit / %d;\n"
        "            const KNOWN *known = &s->row[unit / %d];\n%s"
        "            (void)known;\n"
        "            if (row < %lldu) {\n",
        UNITS / span, span, span, first, (long long)rows_of(o));
    put_indices(w, "row", "            ");
    put_pointers(w, stores, true, "            ");
    weft_i_emit_put_row_values(w, "            ");
    put(w->s,
        "            const int64_t start = (int64_t)(unit %% %d) * WEFT_K_BLOCK;\n"
        "            const int64_t end = start + WEFT_K_BLOCK < %lld ? start + WEFT_K_BLOCK : "
        "%lld;\n"
        "            WEFT_K_UNROLL_TWO\n"
        "            for (int64_t i = start + lane; i < end; i += WEFT_K_LANES) {\n",
        span, (long long)o->n, (long long)o->n);
    weft_i_emit_put_elements(w, "                ");
}

static const char *identity_of(int which, weft_dtype compute)
{
    bool largest = which == WEFT_I_REDUCE_MAX;
    if (which <= WEFT_I_REDUCE_PROD)
        return which == WEFT_I_REDUCE_SUM ? "0" : "1";
    if (compute == WEFT_F32)
        return largest ? "weft_k_float(0xff800000u)" : "weft_k_float(0x7f800000u)";
    if (compute == WEFT_F64)
        return largest ? "weft_k_double(0xfff0000000000000u)"
                       : "weft_k_double(0x7ff0000000000000u)";
    if (compute == WEFT_U64)
        return largest ? "0" : "~(uint64_t)0";
    return largest ? "(int64_t)0x8000000000000000ull" : "0x7fffffffffffffffll";
}

/* One sum of all rows: its terms, of `a` and, where it is of a product, `b`, which are what the
 * member reads; and what it tells, of `sum` and the row's length n. */
typedef struct sum {
    const weft_i_emit_member *m;
    int which;
    bool product;
    char term[160], finish[400];
} sum;

static void put_walk_sum(weft_i_emit_writing *w, const sum *one, const char *type)
{
    const weft_i_graph_term *terms = weft_i_emit_node(w, one->m)->terms;
    char first[160];
    weft_i_emit_need_nothing(w);
    for (int k = 0; k <= one->product; k++)
        weft_i_emit_need(w, terms[k].value, true);
    snprintf(first, sizeof first, "            %s sum = %s;\n", type,
             identity_of(one->which, one->m->compute));
    open_walk(w, false, first);
    for (int k = 0; k <= one->product; k++) {
        put(w->s, "                const %s %c = ", type, "ab"[k]);
        weft_i_emit_put_as(w, terms[k].value, true, one->m->compute);
        put(w->s, ";\n");
    }
    put(w->s,
        "                sum = combine_%s(%d, sum, %s);\n            }\n            }\n"
        "            lanes[lane * WEFT_K_PITCH + unit] = sum;\n        }\n",
        type, one->which, one->term);
}

static void put_sum(weft_i_emit_writing *w, const sum *one)
{
    const char *type = weft_i_emit_stored(one->m->compute);
    int span = span_of(w->o);
    put(w->s, "        {\n        %s *lanes = (%s *)(void *)s->lane;\n", type, type);
    put_walk_sum(w, one, type);
    put(w->s,
        "        join_%s(%d, %d, %d, lanes);\n"
        "        for (unsigned k = weft_k_thread(); k < %d; k += weft_k_threads()) {\n"
        "            KNOWN *known = &s->row[k];\n"
        "            const %s sum = lanes[k * %d], n = (%s)%lld;\n"
        "            (void)n;\n"
        "            %s\n        }\n        weft_k_sync();\n        }\n",
        type, one->which, span, blocks_of(w->o), UNITS / span, type, span, type, (long long)w->o->n,
        one->finish);
}

static void put_reduction(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    int kernel = weft_i_emit_node(w, m)->op->kernel;
    bool mean = kernel & WEFT_I_REDUCE_MEAN, small = weft_i_dtype_is_small_float(m->dtype);
    sum s = {.m = m, .which = kernel & 0xff, .term = "a"};
    snprintf(s.finish, sizeof s.finish, "known->v%d = (%s)%s%s(sum%s);", weft_i_emit_number(w, m),
             weft_i_emit_variable(m->dtype), small ? "round_" : "",
             small ? weft_dtype_name(m->dtype) : "", mean ? " / n" : "");
    put_sum(w, &s);
}

static void put_softmax_sums(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    const char *type = weft_dtype_name(m->compute);
    int k = weft_i_emit_number(w, m);
    sum largest = {.m = m, .which = WEFT_I_REDUCE_MAX, .term = "a"};
    sum all = {.m = m, .which = WEFT_I_REDUCE_SUM};
    snprintf(largest.finish, sizeof largest.finish, "known->largest%d = sum;", k);
    snprintf(all.term, sizeof all.term, "weft_i_exp_%s(a - known->largest%d)", type, k);
    if (weft_i_emit_node(w, m)->op->kernel == WEFT_I_NORMALIZE_LOG_SOFTMAX)
        snprintf(all.finish, sizeof all.finish, "known->sum%d = weft_i_log_%s(sum);", k, type);
    else
        snprintf(all.finish, sizeof all.finish, "known->sum%d = 1 / sum;", k);
    put_sum(w, &largest);
    put_sum(w, &all);
}

/* Of the gradient times the result, or of the gradient alone. */
static void put_softmax_grad_sum(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    bool logarithm = weft_i_emit_node(w, m)->op->kernel == WEFT_I_NORMALIZE_LOG_SOFTMAX;
    sum s = {.m = m, .which = WEFT_I_REDUCE_SUM, .product = !logarithm};
    snprintf(s.term, sizeof s.term, logarithm ? "a" : "a * b");
    snprintf(s.finish, sizeof s.finish, "known->sum%d = sum;", weft_i_emit_number(w, m));
    put_sum(w, &s);
}

static void put_layer_sums(weft_i_emit_writing *w, const weft_i_emit_member *m)
{
    int k = weft_i_emit_number(w, m);
    sum mean = {.m = m, .which = WEFT_I_REDUCE_SUM, .term = "a"};
    sum rest = {.m = m, .which = WEFT_I_REDUCE_SUM}, square = rest;
    snprintf(mean.finish, sizeof mean.finish, "known->mean%d = sum / n;", k);
    snprintf(rest.term, sizeof rest.term, "a - known->mean%d", k);
    snprintf(rest.finish, sizeof rest.finish, "known->sum%d = sum;", k);
    snprintf(square.term, sizeof square.term, "(a - known->mean%d) * (a - known->mean%d)", k, k);
    snprintf(square.finish, sizeof square.finish,
             "known->rest%d = known->sum%d / n;\n"
             "            const double variance = ((double)sum - (double)known->sum%d * "
             "(double)known->rest%d) / (double)%lld;\n"
             "            known->factor%d = (%s)(1 / sqrt(variance + %a));",
             k, k, k, k, (long long)w->o->n, k, weft_i_emit_stored(m->compute),
             weft_i_emit_node(w, m)->terms[4].number);
    put_sum(w, &mean);
    put_sum(w, &rest);
    put_sum(w, &square);
}

/* What the block knows about its rows. */
static void put_shared(weft_i_emit_writing *w)
{
    put(w->s, "typedef struct KNOWN {\n    char none;\n");
    for (int i = 0; i < w->o->count; i++) {
        const weft_i_emit_member *m = &w->o->members[i];
        const char *type = weft_i_emit_stored(m->compute);
        if (m->kind == WEFT_I_EMIT_REDUCE)
            put(w->s, "    %s v%d;\n", weft_i_emit_variable(m->dtype), i);
        else if (m->kind == WEFT_I_EMIT_SOFTMAX)
            put(w->s, "    %s largest%d, sum%d;\n", type, i, i);
        else if (m->kind == WEFT_I_EMIT_SOFTMAX_GRAD)
            put(w->s, "    %s sum%d;\n", type, i);
        else if (m->kind == WEFT_I_EMIT_LAYER)
            put(w->s, "    %s mean%d, sum%d, rest%d, factor%d;\n", type, i, i, i, i);
    }
    put(w->s,
        "} KNOWN;\n"
        "typedef struct SHARED {\n"
        "    uint64_t lane[WEFT_K_LANES * WEFT_K_PITCH];\n"
        "    KNOWN row[%d];\n} SHARED;\n",
        UNITS / span_of(w->o));
}

static void put_row_results(weft_i_emit_writing *w)
{
    int per = UNITS / span_of(w->o);
    if (!need_outputs(w, false))
        return;
    put(w->s,
        "        for (unsigned k = weft_k_thread(); k < %d; k += weft_k_threads()) {\n"
        "            uint64_t row = group * %d + k;\n"
        "            const KNOWN *known = &s->row[k];\n"
        "            (void)known;\n"
        "            if (row < %lldu) {\n",
        per, per, (long long)rows_of(w->o));
    put_indices(w, "row", "            ");
    put_pointers(w, true, false, "            ");
    weft_i_emit_put_row_values(w, "            ");
    put_stores(w, false, "            ");
    put(w->s, "            }\n        }\n");
}

static void put_rows(weft_i_emit_writing *w)
{
    int per = UNITS / span_of(w->o);
    put(w->s,
        "    WEFT_K_SHARED(SHARED, s);\n"
        "    for (uint64_t group = weft_k_block(); group < %lldu; group += weft_k_blocks()) {\n",
        (long long)((rows_of(w->o) + per - 1) / per));
    for (int i = 0; i < w->o->count; i++) {
        const weft_i_emit_member *m = &w->o->members[i];
        if (m->kind == WEFT_I_EMIT_REDUCE)
            put_reduction(w, m);
        else if (m->kind == WEFT_I_EMIT_SOFTMAX)
            put_softmax_sums(w, m);
        else if (m->kind == WEFT_I_EMIT_SOFTMAX_GRAD)
            put_softmax_grad_sum(w, m);
        else if (m->kind == WEFT_I_EMIT_LAYER)
            put_layer_sums(w, m);
    }
    put_row_results(w);
    if (need_outputs(w, true)) {
        open_walk(w, true, "");
        put_stores(w, true, "                ");
        put(w->s, "            }\n            }\n        }\n");
    }
    put(w->s, "        weft_k_sync();\n    }\n");
}

void weft_i_emit_kernel(weft_i_text *s, const weft_i_emit_outline *outline)
{
    weft_i_emit_writing w = {.s = s, .o = outline, .any = true, .width = 1};
    bool rows = outline->group->inner;
    put(s, "typedef struct FUSED_ADDRESSES { char *at[%d]; } FUSED_ADDRESSES;\n",
        outline->ins + outline->outs);
    if (rows)
        put_shared(&w);
    put(s, "WEFT_KERNEL(%d, FUSED, FUSED_ADDRESSES, c)\n{\n", rows ? ROW_THREADS : THREADS);
    (rows ? put_rows : put_flat)(&w);
    put(s, "}\n");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of columns in a C function: partial sums of each lane of each block, which the end puts together. */
#include "graph/emit/emit_value.h"

#include "base/share/dtype.h"
#include "kernels/vector/reduce.h"
#include "tensor/op/ops.h"

#define put weft_i_text_put

typedef weft_i_emit_writing writing;

static void put_clear(writing *w, const weft_i_emit_member *m, size_t at, long long n)
{
    const char *type = weft_i_emit_stored(m->compute);
    put(w->s,
        "    if (base %% BLOCK == 0)\n"
        "        columns_clear_%s((%s *)(sums + %zu) + (base / BLOCK * LANES + lane) * %lld, %lld, "
        "lanes);\n",
        type, type, at, n, n);
}

static void put_lane(writing *w, const weft_i_emit_member *m, size_t at, long long n)
{
    const char *type = weft_i_emit_stored(m->compute);
    put(w->s,
        "        %s *s%d = (%s *)(sums + %zu) + (row / BLOCK * LANES + row %% LANES) * %lld;\n",
        type, weft_i_emit_number(w, m), type, at, n);
}

static void put_total(writing *w, const weft_i_emit_member *m, size_t at, long long n)
{
    const char *type = weft_i_emit_stored(m->compute), *out = weft_i_emit_stored(m->dtype);
    bool mean = weft_i_emit_node(w, m)->op->kernel & WEFT_I_REDUCE_MEAN,
         small = weft_i_dtype_is_small_float(m->dtype);
    int k = weft_i_emit_operand_of(w->o, m->value, false, true);
    if (k < 0)
        return;
    long long rows = (long long)weft_i_emit_row_count(w->o);
    put(w->s,
        "    {\n        const %s *total = columns_end_%s(sums + %zu, %lld, %lld);\n"
        "        %s *out = (%s *)addresses[%d];\n"
        "        for (int64_t i = 0; i < %lld; i++)\n            out[i] = ",
        type, type, at, n, rows, out, out, w->o->operands[k].at + w->o->ins, n);
    if (small)
        put(w->s, "narrow_%s(", weft_dtype_name(m->dtype));
    if (mean)
        put(w->s, "total[i] / (%s)%lld", type, rows);
    else
        put(w->s, "total[i]");
    put(w->s, small ? ");\n    }\n" : ";\n    }\n");
}

void weft_i_emit_put_columns(weft_i_emit_writing *w, weft_i_emit_stage stage)
{
    static void (*const texts[])(writing *, const weft_i_emit_member *, size_t,
                                 long long) = {[WEFT_I_EMIT_BEFORE] = put_clear,
                                               [WEFT_I_EMIT_ROW_BEGINS] = put_lane,
                                               [WEFT_I_EMIT_AFTER] = put_total};
    const weft_i_emit_outline *o = w->o;
    for (int i = 0; i < o->count; i++)
        if (o->members[i].kind == WEFT_I_EMIT_COLUMNS)
            texts[stage](w, &o->members[i], (size_t)o->members[i].slot * weft_i_emit_partials(o),
                         (long long)o->n);
}

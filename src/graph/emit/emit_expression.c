/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eager's own text: the expressions of kernels/vector/pointwise.def as functions of one element, and the
 * headers that they and the sums of rows are made of.
 */
#include "graph/emit/emit_value.h"

#include "base/share/dtype.h"
#include "kernels/vector/pointwise.h"
#include "tensor/op/ops.h"

#include <stdio.h>
#include <string.h>

typedef struct expression {
    const char *name, *floats, *integers, *any; /* NULL: there is none */
    int operands;
    bool truth; /* gives 0 or 1 */
} expression;

#define UNARY(name_, float_, integer_)   {#name_, #float_, #integer_, NULL, 1, false},
#define UNARY_F(name_, float_)           {#name_, #float_, NULL, NULL, 1, false},
#define UNARY_ANGLE(name_, float_, any_) {#name_, #float_, NULL, #any_, 1, false},
#define BINARY(name_, float_, integer_)  {#name_, #float_, #integer_, NULL, 2, false},
#define BINARY_F(name_, float_)          {#name_, #float_, NULL, NULL, 2, false},
#define COMPARE(name_, any_)             {#name_, #any_, #any_, NULL, 2, true},
#define LOGICAL1(name_, bool_)           {#name_, NULL, #bool_, NULL, 1, true},
#define LOGICAL2(name_, bool_)           {#name_, NULL, #bool_, NULL, 2, true},
static const expression expressions[] = {
#include "kernels/vector/pointwise.def"
};

/* Puts a header of kernels/ into the read-only data, with a 0 behind it. */
#define EMBED(label_, file_)                    \
    __asm__(".pushsection .rodata\n"            \
            ".global weft_i_emit_" #label_ "\n" \
            ".hidden weft_i_emit_" #label_ "\n" \
            "weft_i_emit_" #label_ ":\n"        \
            ".incbin \"" file_ "\"\n"           \
            ".byte 0\n"                         \
            ".popsection\n");                   \
    extern const char weft_i_emit_##label_[]
EMBED(small, WEFT_EMIT_KERNELS "/number/small.h");
EMBED(convert, WEFT_EMIT_KERNELS "/number/convert.h");
EMBED(math, WEFT_EMIT_KERNELS "/number/math.h");
EMBED(math_f32, WEFT_EMIT_KERNELS "/number/math_f32.h");
EMBED(math_f64, WEFT_EMIT_KERNELS "/number/math_f64.h");
EMBED(math_angle, WEFT_EMIT_KERNELS "/number/math_angle.h");
EMBED(reduce, WEFT_EMIT_KERNELS "/vector/reduce.h");
EMBED(reduce_loops, WEFT_EMIT_KERNELS "/vector/reduce_loops.h");
EMBED(vector_step, WEFT_EMIT_KERNELS "/vector/vector_step.h");
EMBED(normalize_table, WEFT_EMIT_KERNELS "/vector/normalize_table.h");
EMBED(normalize_loops, WEFT_EMIT_KERNELS "/vector/normalize_loops.h");
EMBED(far, WEFT_EMIT_KERNELS "/walk/far.h");

static const struct {
    const char *name, *text;
} headers[] = {{"kernels/number/small.h", weft_i_emit_small},
               {"kernels/number/convert.h", weft_i_emit_convert},
               {"kernels/number/math.h", weft_i_emit_math},
               {"kernels/number/math_f32.h", weft_i_emit_math_f32},
               {"kernels/number/math_f64.h", weft_i_emit_math_f64},
               {"kernels/number/math_angle.h", weft_i_emit_math_angle},
               {"kernels/vector/reduce.h", weft_i_emit_reduce},
               {"kernels/vector/reduce_loops.h", weft_i_emit_reduce_loops},
               {"kernels/vector/vector_step.h", weft_i_emit_vector_step},
               {"kernels/vector/normalize_table.h", weft_i_emit_normalize_table},
               {"kernels/vector/normalize_loops.h", weft_i_emit_normalize_loops},
               {"kernels/walk/far.h", weft_i_emit_far}};

static void put_header(weft_i_text *s, const char *text, unsigned *seen);

/* A line that includes a header of ours becomes its text; others of ours are not needed. */
static bool put_include(weft_i_text *s, const char *line, size_t length, unsigned *seen)
{
    static const char start[] = "#include \"";
    if (length < sizeof start || strncmp(line, start, sizeof start - 1))
        return false;
    const char *name = line + sizeof start - 1;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        size_t size = strlen(headers[i].name);
        if (size + sizeof start > length || strncmp(headers[i].name, name, size) || *seen & 1u << i)
            continue;
        *seen |= 1u << i;
        put_header(s, headers[i].text, seen);
    }
    return true;
}

static void put_header(weft_i_text *s, const char *text, unsigned *seen)
{
    while (*text) {
        const char *end = strchr(text, '\n');
        size_t length = end ? (size_t)(end - text) + 1 : strlen(text);
        if (!put_include(s, text, length, seen))
            weft_i_text_put(s, "%.*s", (int)length, text);
        text += length;
    }
}

static void include(weft_i_text *s, const char *line, unsigned *seen)
{
    put_include(s, line, strlen(line), seen);
}

/* Sums of columns in the order of reduce.c: LANES rows of n partial sums for each block, and behind them
 * a row for each level of the tree of blocks. */
static const char columns[] =
    "#define COLUMNS(type_) \\\n"
    "static void columns_clear_##type_(type_ *lanes, size_t n, size_t count) \\\n"
    "{ \\\n"
    "    for (size_t i = 0; i < count * n; i++) \\\n"
    "        lanes[i] = identity_sum_##type_; \\\n"
    "} \\\n"
    "static void columns_push_##type_(type_ *lanes, type_ *level, size_t n, uint64_t blocks) \\\n"
    "{ \\\n"
    "    int depth = __builtin_popcountll(blocks); \\\n"
    "    for (size_t half = LANES / 2; half; half /= 2) \\\n"
    "        fold_sum_##type_(half * n, lanes, lanes + half * n); \\\n"
    "    memcpy(level + depth * n, lanes, n * sizeof *lanes); \\\n"
    "    for (uint64_t bits = blocks + 1; !(bits & 1); bits >>= 1, depth--) \\\n"
    "        fold_sum_##type_(n, level + (depth - 1) * n, level + depth * n); \\\n"
    "} \\\n"
    "static const type_ *columns_end_##type_(void *lanes_, size_t n, uint64_t rows) \\\n"
    "{ \\\n"
    "    uint64_t blocks = (rows + BLOCK - 1) / BLOCK; \\\n"
    "    type_ *lanes = lanes_, *level = lanes + blocks * LANES * n; \\\n"
    "    for (uint64_t block = 0; block < blocks; block++) \\\n"
    "        columns_push_##type_(lanes + block * LANES * n, level, n, block); \\\n"
    "    for (int depth = __builtin_popcountll(blocks) - 1; depth > 0; depth--) \\\n"
    "        fold_sum_##type_(n, level + (depth - 1) * n, level + depth * n); \\\n"
    "    return level; \\\n"
    "}\n";

/* The words of emit_value.h. */
static const char words[] =
    "#define SMALL(name_) \\\n"
    "static inline float widen_##name_(uint16_t x) { return weft_i_##name_##_to_f32(x); } \\\n"
    "static inline uint16_t narrow_##name_(float x) { return weft_i_f32_to_##name_(x); } \\\n"
    "static inline float round_##name_(float x) { return widen_##name_(narrow_##name_(x)); }\n"
    "SMALL(f16)\nSMALL(bf16)\n"
    "static inline float float_bits(uint32_t bits)\n"
    "{\n"
    "    float x;\n"
    "    memcpy(&x, &bits, sizeof x);\n"
    "    return x;\n"
    "}\n"
    "static inline double double_bits(uint64_t bits)\n"
    "{\n"
    "    double x;\n"
    "    memcpy(&x, &bits, sizeof x);\n"
    "    return x;\n"
    "}\n";

void weft_i_emit_prelude(weft_i_text *s)
{
    enum { MATH_ANGLE = 5 };          /* its place among the headers */
    unsigned seen = 1u << MATH_ANGLE; /* a bit each; math.h has it for GPUs only */
    weft_i_text_put(s, "#include <math.h>\n#include <stdbool.h>\n#include <stddef.h>\n"
                       "#include <stdint.h>\n#include <string.h>\n"
                       "typedef int weft_dtype;\nenum {\n");
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
        char name[16] = {0};
        snprintf(name, sizeof name, "%s", weft_dtype_name((weft_dtype)i));
        for (char *c = name; *c; c++)
            *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
        weft_i_text_put(s, "    WEFT_%s,\n", name);
    }
    weft_i_text_put(s, "    WEFT_DTYPE_COUNT\n};\n"
                       "#if defined(__AVX512F__)\n#define VECTOR_BYTES 64\n"
                       "#elif defined(__AVX__)\n#define VECTOR_BYTES 32\n"
                       "#else\n#define VECTOR_BYTES 16\n#endif\n"
                       "#define EXPRESSION static inline\n"
                       "#define WEFT_I_ASK_MOST 0\n"
                       "#define NEGATIVE(a_) ((a_) < (T)1 && (a_) != (T)0)\n");
    include(s, "#include \"kernels/number/math.h\"\n", &seen);
    seen &= ~(1u << MATH_ANGLE);
    include(s, "#include \"kernels/number/math_angle.h\"\n", &seen);
    include(s, "#include \"kernels/vector/reduce_loops.h\"\n", &seen);
    include(s, "#include \"kernels/vector/normalize_loops.h\"\n", &seen);
    include(s, "#include \"kernels/walk/far.h\"\n", &seen);
    weft_i_text_put(s, "%sCOLUMNS(float)\nCOLUMNS(double)\n%s", columns, words);
}

void weft_i_emit_uses(const weft_i_emit_outline *outline, bool *used)
{
    for (int i = 0; i < outline->count; i++) {
        const weft_i_emit_member *m = &outline->members[i];
        int kernel = outline->graph->nodes[m->node].op->kernel;
        if (m->kind == WEFT_I_EMIT_POINTWISE && kernel < WEFT_I_POINTWISE_where)
            used[kernel * WEFT_DTYPE_COUNT + (int)m->compute] = true;
    }
}

static void put_function(weft_i_text *s, const expression *e, weft_dtype compute, bool any)
{
    const char *type = weft_i_emit_variable(compute);
    bool floats = weft_i_dtype_is_float(compute);
    weft_i_text_put(s, "#define T %s\n#define U uint%d_t\n#define F(f_) f_%s\n", type,
                    weft_i_dtype_size(compute) == 8 ? 64 : 32, compute == WEFT_F32 ? "##f" : "");
    weft_i_text_put(s, "#define M(f_) weft_i_##f_##_%s\n", compute == WEFT_F32 ? "f32" : "f64");
    weft_i_text_put(s, "EXPRESSION %s %s%s_%s(T a%s)\n{\n    return (%s)(%s);\n}\n",
                    e->truth ? "uint8_t" : type, e->name, any ? "_any" : "",
                    weft_dtype_name(compute), e->operands == 2 ? ", T b" : "",
                    e->truth ? "uint8_t" : type,
                    any      ? e->any
                    : floats ? e->floats
                             : e->integers);
    weft_i_text_put(s, "#undef T\n#undef U\n#undef F\n#undef M\n");
}

void weft_i_emit_expressions(weft_i_text *s, const bool *used)
{
    for (int kernel = 0; kernel < WEFT_I_POINTWISE_where; kernel++)
        for (int compute = 0; compute < WEFT_DTYPE_COUNT; compute++) {
            if (!used[kernel * WEFT_DTYPE_COUNT + compute])
                continue;
            put_function(s, &expressions[kernel], (weft_dtype)compute, false);
            if (expressions[kernel].any)
                put_function(s, &expressions[kernel], (weft_dtype)compute, true);
        }
}

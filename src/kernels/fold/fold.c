/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives the loops of fold_loops.h: chooses the table for this processor, cuts what no single pass
 * can do into blocks that stay in the first cache, and brings results to several outputs.
 */
#include "kernels/fold/fold.h"

#include "base/os/assert.h"
#include "base/os/place.h"
#include "base/share/dtype.h"
#include "kernels/fold/fold_table.h"
#include "kernels/number/isa.h"
#include "kernels/walk/far.h"

#include <stdatomic.h>
#include <string.h>

enum {
    BLOCK = 4096,      /* bytes of a result that is made in several passes or copied */
    SMALL_BLOCK = 512, /* elements of a block of small floats: 8 of them are 16 KiB as f32 */
};

/* The best first. */
static const struct {
    const weft_i_fold_table *table;
    bool (*usable)(void);
} variants[] = {
#if defined(__x86_64__)
    {&weft_i_fold_avx512, weft_i_isa_avx512},
    {&weft_i_fold_avx2, weft_i_isa_avx2},
#endif
    {&weft_i_fold_baseline, weft_i_isa_always},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* NULL until somebody asks.  Relaxed, without a partner: it leads to constants only, and threads
 * that choose at the same time choose the same. */
static _Atomic(const weft_i_fold_table *) chosen;

static const weft_i_fold_table *choose(void)
{
    int i = 0;
    while (!variants[i].usable())
        i++;
    atomic_store_explicit(&chosen, variants[i].table, memory_order_relaxed);
    return variants[i].table;
}

const char *weft_i_fold_variant(int i)
{
    return i >= 0 && i < VARIANTS ? variants[i].table->name : NULL;
}

bool weft_i_fold_use(const char *variant)
{
    choose();
    for (int i = 0; variant && i < VARIANTS; i++)
        if (!strcmp(variants[i].table->name, variant) && variants[i].usable()) {
            atomic_store_explicit(&chosen, variants[i].table, memory_order_relaxed);
            return true;
        }
    return !variant;
}

/* What a call is about. */
struct fold {
    const weft_i_fold_table *table;
    const weft_i_fold_passes *passes;
    weft_dtype dtype;
    weft_i_fold_op op;
    char *const *out;
    const char *const *in;
    int outputs, inputs;
    const double *factors;
};

static const int arity[WEFT_I_FOLD_ARITIES] = {1, 2, 3, 4, 8};

/* The pass that takes exactly so many inputs; -1 if none does. */
static const signed char exact_pass[WEFT_I_FOLD_WIDEST + 1] = {
    -1, WEFT_I_FOLD_OF_1, WEFT_I_FOLD_OF_2, WEFT_I_FOLD_OF_3, WEFT_I_FOLD_OF_4, -1, -1,
    -1, WEFT_I_FOLD_OF_8};

static int widest_pass(const weft_i_fold_passes *passes, int inputs)
{
    int k = WEFT_I_FOLD_ARITIES - 1;
    while (arity[k] > inputs || !passes->once[k])
        k--;
    return k;
}

/*
 * Folds n elements, those `at` bytes into the inputs, to `to`, in as many passes as it takes; what
 * lies between two passes is in `sum`, which may be the first input.
 */
static void fold_passes(const weft_i_fold_passes *passes, void *sum, void *to,
                        const char *const *in, size_t at, int inputs, size_t n,
                        const double *factors)
{
    for (int taken = 0; taken < inputs;) {
        const void *x[WEFT_I_FOLD_WIDEST] = {sum};
        double weights[WEFT_I_FOLD_WIDEST] = {1};
        int again = taken > 0, which = widest_pass(passes, again + inputs - taken);
        for (int k = again; k < arity[which]; k++, taken++) {
            x[k] = in[taken] + at;
            weights[k] = factors ? factors[taken] : 1;
        }
        passes->once[which](taken == inputs ? to : sum, NULL, x, n, weights);
    }
}

/* Brings n bytes at `from`, which may be in the first output itself, to all outputs. */
static void spread(const struct fold *fold, const char *from, size_t at, size_t n)
{
    for (int i = 0; i < fold->outputs; i++)
        if (fold->out[i] + at != from)
            memcpy(fold->out[i] + at, from, n);
}

/* The same past the caches. */
static void spread_far(const struct fold *fold, const char *from, size_t at, size_t n)
{
    for (int i = 0; i < fold->outputs; i++)
        fold->table->stream(fold->out[i] + at, from, n);
}

/*
 * Whether results should go past the caches: if they are many and their lines are in no cache, so
 * that they need not be read first.  On Sapphire Rapids that is 1.2 to 1.5 times as fast, reading
 * the results afterwards included; with a single output it is not.
 */
static bool goes_far(const struct fold *fold, size_t bytes)
{
    if (!fold->table->stream || fold->outputs < 2 ||
        bytes * (size_t)fold->outputs < WEFT_I_FAR_LEAST)
        return false;
    for (int i = 0; i < fold->outputs; i++)
        for (int k = 0; k < fold->inputs; k++)
            if (fold->out[i] == fold->in[k])
                return false;
    return true;
}

static void fold_blocks(const struct fold *fold, size_t bytes, bool divided, bool far)
{
    _Alignas(64) char sum[BLOCK];
    size_t size = weft_i_dtype_size(fold->dtype);
    for (size_t at = 0; at < bytes; at += BLOCK) {
        size_t part = bytes - at < BLOCK ? bytes - at : BLOCK, n = part / size;
        char *to = far ? sum : fold->out[0] + at;
        fold_passes(fold->passes, sum, to, fold->in, at, fold->inputs, n, fold->factors);
        if (divided)
            fold->table->divide[fold->dtype](to, n, fold->inputs);
        (far ? spread_far : spread)(fold, to, at, part);
    }
    if (far)
        fold->table->drain();
}

/* The block of small floats at `at`, folded as f32 to wide[0]. */
static void fold_wide(const struct fold *fold, float wide[][SMALL_BLOCK], size_t at, size_t n)
{
    const weft_i_fold_passes *passes = &fold->table->passes[fold->op][WEFT_F32];
    const char *x[WEFT_I_FOLD_WIDEST];
    for (int taken = 0; taken < fold->inputs;) {
        double weights[WEFT_I_FOLD_WIDEST] = {1};
        int k = taken > 0;
        x[0] = (const char *)wide[0];
        for (; k < WEFT_I_FOLD_WIDEST && taken < fold->inputs; k++, taken++) {
            fold->table->widen[fold->dtype](wide[k], fold->in[taken] + at, n);
            x[k] = (const char *)wide[k];
            weights[k] = fold->op == WEFT_I_FOLD_PREMUL_SUM ? fold->factors[taken] : 1;
        }
        fold_passes(passes, wide[0], wide[0], x, 0, k, n, weights);
    }
}

static void fold_small(const struct fold *fold, size_t count)
{
    _Alignas(64) float wide[WEFT_I_FOLD_WIDEST][SMALL_BLOCK];
    size_t size = weft_i_dtype_size(fold->dtype);
    for (size_t done = 0; done < count; done += SMALL_BLOCK) {
        size_t n = count - done < SMALL_BLOCK ? count - done : SMALL_BLOCK;
        fold_wide(fold, wide, done * size, n);
        if (fold->op == WEFT_I_FOLD_AVG)
            fold->table->divide[WEFT_F32](wide[0], n, fold->inputs);
        char *to = fold->out[0] + done * size;
        fold->table->round[fold->dtype](to, wide[0], n);
        spread(fold, to, done * size, n * size);
    }
}

static void copy(void *const *out, int outputs, const void *in, size_t bytes)
{
    for (int i = 0; i < outputs && bytes; i++)
        if (out[i] != in)
            memcpy(out[i], in, bytes);
}

/* For small floats: one pass is the whole fold, or none is; and a power of two divides by a factor.
 */
static bool sums_at_once(const struct fold *fold, int exact)
{
    bool scales = fold->op != WEFT_I_FOLD_AVG || !(fold->inputs & (fold->inputs - 1));
    return scales && exact >= 0 && fold->passes->once[exact];
}

static const weft_i_fold_table *table_now(void)
{
    const weft_i_fold_table *t = atomic_load_explicit(&chosen, memory_order_relaxed);
    return t ? t : choose();
}

/* Not inlined: it would be repeated in every fold below. */
__attribute__((noinline)) static void fold_all(weft_dtype dtype, weft_i_fold_op op,
                                               void *const *out, int outputs, const void *const *in,
                                               int inputs, size_t count, const double *factors)
{
    size_t bytes = count * weft_i_dtype_size(dtype);
    if (inputs == 1 && op != WEFT_I_FOLD_PREMUL_SUM) {
        copy(out, outputs, in[0], bytes);
        return;
    }
    const weft_i_fold_table *t = table_now();
    bool small = weft_i_dtype_is_small_float(dtype);
    const double scale[WEFT_I_FOLD_WIDEST] = {op == WEFT_I_FOLD_AVG ? 1.0 / inputs : 1};
    struct fold fold = {.table = t,
                        .passes = &t->passes[op][dtype],
                        .dtype = dtype,
                        .op = op,
                        .out = (char *const *)out,
                        .in = (const char *const *)in,
                        .outputs = outputs,
                        .inputs = inputs,
                        .factors = op == WEFT_I_FOLD_PREMUL_SUM ? factors
                                   : small                      ? scale
                                                                : NULL};
    int exact = inputs <= WEFT_I_FOLD_WIDEST ? exact_pass[inputs] : -1;
    bool divided = !small && op == WEFT_I_FOLD_AVG && t->divide[dtype];
    if (small && !sums_at_once(&fold, exact))
        fold_small(&fold, count);
    else if (goes_far(&fold, bytes))
        fold_blocks(&fold, bytes, divided, true);
    else if (exact >= 0 && !divided && outputs == 1 && fold.passes->once[exact])
        fold.passes->once[exact](out[0], NULL, in, count, fold.factors);
    else if (exact >= 0 && !divided && outputs == 2 && fold.passes->twice[exact] &&
             bytes <= t->twice_most)
        fold.passes->twice[exact](out[0], out[1], in, count, NULL);
    else
        fold_blocks(&fold, bytes, divided, false);
}

#define OPS(X_, dtype_) \
    X_(SUM, dtype_)     \
    X_(AVG, dtype_)     \
    X_(PRODUCT, dtype_) \
    X_(MIN, dtype_)     \
    X_(MAX, dtype_)     \
    X_(BAND, dtype_)    \
    X_(BOR, dtype_)     \
    X_(BXOR, dtype_)    \
    X_(PREMUL_SUM, dtype_)

#define FOLD(op_, dtype_)                                                                     \
    static void fold_##op_##_##dtype_(void *const *out, int outputs, const void *const *in,   \
                                      int inputs, size_t count, const double *factors)        \
    {                                                                                         \
        fold_all(WEFT_##dtype_, WEFT_I_FOLD_##op_, out, outputs, in, inputs, count, factors); \
    }
#define DTYPE(name_, text_, type_, kind_) OPS(FOLD, name_)
#include "weft/dtype.def"
#undef DTYPE

#define ENTRY(op_, dtype_)                [WEFT_I_FOLD_##op_] = fold_##op_##_##dtype_,
#define DTYPE(name_, text_, type_, kind_) {OPS(ENTRY, name_)},
static const weft_i_fold folds[WEFT_DTYPE_COUNT][WEFT_I_FOLD_OPS] = {
#include "weft/dtype.def"
};
#undef DTYPE

/* By a rule rather than by the passes that there are: those would be two tables more to look into. */
static bool has_meaning(weft_dtype dtype, weft_i_fold_op op)
{
    switch (op) {
    case WEFT_I_FOLD_BAND:
    case WEFT_I_FOLD_BOR:
    case WEFT_I_FOLD_BXOR:
        return !weft_i_dtype_is_float(dtype);
    case WEFT_I_FOLD_PREMUL_SUM:
        return weft_i_dtype_is_float(dtype);
    default:
        return true;
    }
}

WEFT_I_HOT weft_i_fold weft_i_fold_find(weft_dtype dtype, weft_i_fold_op op)
{
    bool known = (unsigned)dtype < WEFT_DTYPE_COUNT && (unsigned)op < WEFT_I_FOLD_OPS;
    if (!known || !has_meaning(dtype, op))
        return NULL;
    WEFT_ASSERT(
        weft_i_fold_baseline.passes[op][weft_i_dtype_is_small_float(dtype) ? WEFT_F32 : dtype]
            .once[WEFT_I_FOLD_OF_2]);
    return folds[dtype][op];
}

/* ---- partials ---- */

static void put_at(void *const *out, int outputs, size_t at, const void *from, size_t bytes)
{
    for (int i = 0; i < outputs; i++)
        memcpy((char *)out[i] + at, from, bytes);
}

/* Small floats to their sums as f32. */
__attribute__((noinline)) static void fold_to_wide(weft_dtype dtype, weft_i_fold_op op,
                                                   void *const *out, int outputs,
                                                   const void *const *in, int inputs, size_t count,
                                                   const double *factors)
{
    _Alignas(64) float wide[WEFT_I_FOLD_WIDEST][SMALL_BLOCK];
    size_t size = weft_i_dtype_size(dtype);
    struct fold fold = {.table = table_now(),
                        .dtype = dtype,
                        .op = op,
                        .in = (const char *const *)in,
                        .inputs = inputs,
                        .factors = factors};
    for (size_t done = 0; done < count; done += SMALL_BLOCK) {
        size_t n = count - done < SMALL_BLOCK ? count - done : SMALL_BLOCK;
        if (inputs == 1 && op != WEFT_I_FOLD_PREMUL_SUM)
            fold.table->widen[dtype](wide[0], fold.in[0] + done * size, n);
        else
            fold_wide(&fold, wide, done * size, n);
        put_at(out, outputs, done * sizeof(float), wide[0], n * sizeof(float));
    }
}

#define WIDE_OPS(X_, dtype_) \
    X_(SUM, dtype_)          \
    X_(PRODUCT, dtype_)      \
    X_(MIN, dtype_)          \
    X_(MAX, dtype_)          \
    X_(PREMUL_SUM, dtype_)
#define WIDE(op_, dtype_)                                                                         \
    static void wide_##op_##_##dtype_(void *const *out, int outputs, const void *const *in,       \
                                      int inputs, size_t count, const double *factors)            \
    {                                                                                             \
        fold_to_wide(WEFT_##dtype_, WEFT_I_FOLD_##op_, out, outputs, in, inputs, count, factors); \
    }
WIDE_OPS(WIDE, F16)
WIDE_OPS(WIDE, BF16)
WIDE_OPS(WIDE, F8E4M3)
WIDE_OPS(WIDE, F8E5M2)

#define WIDE_ENTRY(op_, dtype_) [WEFT_I_FOLD_##op_] = wide_##op_##_##dtype_,
static const weft_i_fold wide_folds[WEFT_DTYPE_COUNT][WEFT_I_FOLD_OPS] = {
    [WEFT_F16] = {WIDE_OPS(WIDE_ENTRY, F16)},
    [WEFT_BF16] = {WIDE_OPS(WIDE_ENTRY, BF16)},
    [WEFT_F8E4M3] = {WIDE_OPS(WIDE_ENTRY, F8E4M3)},
    [WEFT_F8E5M2] = {WIDE_OPS(WIDE_ENTRY, F8E5M2)},
};

/* What is divided at the end is summed before; the average of bools is no quotient. */
static weft_i_fold_op undivided(weft_dtype dtype, weft_i_fold_op op)
{
    return op == WEFT_I_FOLD_AVG && dtype != WEFT_BOOL ? WEFT_I_FOLD_SUM : op;
}

weft_dtype weft_i_fold_partial_dtype(weft_dtype dtype)
{
    return weft_i_dtype_is_small_float(dtype) ? WEFT_F32 : dtype;
}

weft_i_fold weft_i_fold_partial_find(weft_dtype dtype, weft_i_fold_op op)
{
    if (!weft_i_fold_find(dtype, op))
        return NULL;
    op = undivided(dtype, op);
    return weft_i_dtype_is_small_float(dtype) ? wide_folds[dtype][op] : folds[dtype][op];
}

weft_i_fold weft_i_fold_join_find(weft_dtype dtype, weft_i_fold_op op)
{
    if (!weft_i_fold_find(dtype, op))
        return NULL;
    op = op == WEFT_I_FOLD_PREMUL_SUM ? WEFT_I_FOLD_SUM : undivided(dtype, op);
    return folds[weft_i_fold_partial_dtype(dtype)][op];
}

/* Rounds partials of small floats, in blocks. */
static void finish_small(const weft_i_fold_table *t, weft_dtype dtype, weft_i_fold_op op, char *out,
                         const char *partial, size_t count, int inputs)
{
    _Alignas(64) float wide[SMALL_BLOCK];
    size_t size = weft_i_dtype_size(dtype);
    for (size_t done = 0; done < count; done += SMALL_BLOCK) {
        size_t n = count - done < SMALL_BLOCK ? count - done : SMALL_BLOCK;
        memcpy(wide, partial + done * sizeof(float), n * sizeof(float));
        if (op == WEFT_I_FOLD_AVG)
            t->divide[WEFT_F32](wide, n, inputs);
        t->round[dtype](out + done * size, wide, n);
    }
}

void weft_i_fold_finish(weft_dtype dtype, weft_i_fold_op op, void *out, const void *partial,
                        size_t count, int inputs)
{
    const weft_i_fold_table *t = table_now();
    if (weft_i_dtype_is_small_float(dtype)) {
        finish_small(t, dtype, op, out, partial, count, inputs);
        return;
    }
    if (out != partial && count)
        memcpy(out, partial, count * weft_i_dtype_size(dtype));
    if (op == WEFT_I_FOLD_AVG && t->divide[dtype])
        t->divide[dtype](out, count, inputs);
}

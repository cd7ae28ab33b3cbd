/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of rows.h for one compute type; included once per type by it, with T, NAME, EXP,
 * LOG and COMPUTE defined. */

/* What is known about a row. */
typedef struct NAME(weft_k_known) {
    T largest, sum;             /* softmax; its gradient has the sum alone */
    T mean, rest, factor;       /* layer_norm */
    T grad_mean, slope, square; /* its gradient; square: before the factor is known */
} NAME(weft_k_known);

typedef struct NAME(weft_k_row_room) {
    T lane[WEFT_K_LANES * WEFT_K_PITCH];
    T level[WEFT_K_LEVELS]; /* of a row that takes several turns */
    NAME(weft_k_known) row[WEFT_K_UNITS];
} NAME(weft_k_row_room);

WEFT_K T NAME(weft_k_row_load)(int dtype, const char *p)
{
    return dtype == COMPUTE ? *(const T *)(const void *)p
                            : (T)weft_k_widen(dtype, weft_k_get(p, weft_k_size_of(dtype)));
}

WEFT_K void NAME(weft_k_row_save)(int dtype, char *p, T x)
{
    if (dtype == COMPUTE)
        *(T *)(void *)p = x;
    else
        weft_k_put(p, weft_k_size_of(dtype), weft_k_narrow(dtype, (float)x));
}

WEFT_K T NAME(weft_k_normal)(const NAME(weft_k_known) * known, T x)
{
    return ((x - known->mean) - known->rest) * known->factor;
}

/* The gradient of element i of a row, after the weight. */
WEFT_K T NAME(weft_k_grad)(const weft_k_rows *c, const char *grad, uint64_t i)
{
    T g = NAME(weft_k_row_load)(c->dtype, grad + (int64_t)i * c->in_step);
    return c->weight ? g * ((const T *)(const void *)c->weight)[i] : g;
}

WEFT_K T NAME(weft_k_term)(const weft_k_rows *c, int what, const NAME(weft_k_known) * known,
                           int64_t at, uint64_t i)
{
    T x = 0, g = 0;
    if (what != WEFT_K_SUM_GRAD)
        x = NAME(weft_k_row_load)(c->dtype, c->from + at + (int64_t)i * c->in_step);
    if (what >= WEFT_K_SUM_GRAD)
        g = NAME(weft_k_grad)(c, c->grad + at, i);
    switch (what) {
    case WEFT_K_SUM_EXP:
        return EXP(x - known->largest);
    case WEFT_K_SUM_DIFFERENCE:
        return x - known->mean;
    case WEFT_K_SUM_SQUARE:
        return (x - known->mean) * (x - known->mean);
    case WEFT_K_SUM_GRAD:
        return g;
    case WEFT_K_SUM_SLOPE:
        return g * NAME(weft_k_normal)(known, x);
    case WEFT_K_SUM_PRODUCT:
        return g * x;
    default:
        return x;
    }
}

WEFT_K T NAME(weft_k_row_take)(int what, T a, T b)
{
    return what == WEFT_K_MAX_X ? (a != a || a > b ? a : b) : a + b;
}

/* The lanes of the blocks from `first_block` on, of all rows of the task. */
WEFT_K void NAME(weft_k_take_rows)(const weft_k_rows *c, int what, uint64_t group,
                                   uint64_t first_block, NAME(weft_k_row_room) * s)
{
    WEFT_K_NO_UNROLL
    for (unsigned t = weft_k_thread(); t < WEFT_K_UNITS * WEFT_K_LANES; t += weft_k_threads()) {
        unsigned unit, lane;
        weft_k_lane_of(c->columns, t, &unit, &lane);
        uint64_t row = group * (WEFT_K_UNITS / c->span) + unit / c->span;
        uint64_t start = (first_block + unit % c->span) * WEFT_K_BLOCK;
        uint64_t end = start + WEFT_K_BLOCK < c->length ? start + WEFT_K_BLOCK : c->length;
        T sum = what == WEFT_K_MAX_X ? -(T)WEFT_I_INF_F32 : 0;
        if (row < c->rows) {
            int64_t at = weft_k_row_offset(c, c->kept_in, row);
            WEFT_K_UNROLL_TWO
            for (uint64_t i = start + lane; i < end; i += WEFT_K_LANES)
                sum = NAME(weft_k_row_take)(
                    what, sum, NAME(weft_k_term)(c, what, &s->row[unit / c->span], at, i));
        }
        s->lane[lane * WEFT_K_PITCH + unit] = sum;
    }
}

WEFT_K void NAME(weft_k_join_rows)(const weft_k_rows *c, int what, uint64_t blocks_left,
                                   NAME(weft_k_row_room) * s)
{
    WEFT_K_NO_UNROLL
    for (unsigned half = WEFT_K_LANES / 2; half; half /= 2) {
        weft_k_sync();
        for (unsigned t = weft_k_thread(); t < half * WEFT_K_UNITS; t += weft_k_threads()) {
            unsigned into = t / WEFT_K_UNITS * WEFT_K_PITCH + t % WEFT_K_UNITS;
            s->lane[into] =
                NAME(weft_k_row_take)(what, s->lane[into], s->lane[into + half * WEFT_K_PITCH]);
        }
    }
    WEFT_K_NO_UNROLL
    for (unsigned width = 1; width < c->span; width *= 2) {
        weft_k_sync();
        for (unsigned t = weft_k_thread(); t < WEFT_K_UNITS; t += weft_k_threads())
            if (t % c->span % (2 * width) == 0 && t % c->span + width < blocks_left)
                s->lane[t] = NAME(weft_k_row_take)(what, s->lane[t], s->lane[t + width]);
    }
    weft_k_sync();
}

/* Sums of all rows of the task, at lane[k * span] for row k.  All threads call it together. */
WEFT_K_OUT void NAME(weft_k_sum_rows)(const weft_k_rows *c, int what, uint64_t group,
                                      NAME(weft_k_row_room) * s)
{
    uint64_t blocks = (c->length + WEFT_K_BLOCK - 1) / WEFT_K_BLOCK, nodes = 0;
    int depth = 0;
    if (blocks <= c->span) {
        NAME(weft_k_take_rows)(c, what, group, 0, s);
        NAME(weft_k_join_rows)(c, what, blocks, s);
        return;
    }
    WEFT_K_NO_UNROLL
    for (uint64_t first = 0; first < blocks; first += c->span) {
        NAME(weft_k_take_rows)(c, what, group, first, s);
        NAME(weft_k_join_rows)(c, what, blocks - first, s);
        if (weft_k_thread() == 0)
            s->level[depth] = s->lane[0];
        depth++;
        for (uint64_t bits = ++nodes; !(bits & 1); bits >>= 1, depth--)
            if (weft_k_thread() == 0)
                s->level[depth - 2] =
                    NAME(weft_k_row_take)(what, s->level[depth - 2], s->level[depth - 1]);
        weft_k_sync();
    }
    for (; depth > 1; depth--)
        if (weft_k_thread() == 0)
            s->level[depth - 2] =
                NAME(weft_k_row_take)(what, s->level[depth - 2], s->level[depth - 1]);
    if (weft_k_thread() == 0)
        s->lane[0] = s->level[0];
    weft_k_sync();
}

/* Row k of the task learns the sum that was just made. */
#define WEFT_K_LEARN(what_, known_, expression_)                              \
    NAME(weft_k_sum_rows)(c, what_, group, s);                                \
    for (unsigned k = weft_k_thread(); k < per_task; k += weft_k_threads()) { \
        T sum = s->lane[k * c->span];                                         \
        s->row[k].known_ = (expression_);                                     \
    }                                                                         \
    weft_k_sync();

WEFT_K void NAME(weft_k_measure)(const weft_k_rows *c, uint64_t group, unsigned per_task,
                                 NAME(weft_k_row_room) * s)
{
    T n = (T)(int64_t)c->length;
    WEFT_K_LEARN(WEFT_K_SUM_X, mean, sum / n)
    WEFT_K_LEARN(WEFT_K_SUM_DIFFERENCE, sum, sum)
    WEFT_K_LEARN(WEFT_K_SUM_SQUARE, square, sum)
    for (unsigned k = weft_k_thread(); k < per_task; k += weft_k_threads()) {
        NAME(weft_k_known) *known = &s->row[k];
        known->rest = known->sum / n;
        double variance = ((double)known->square - (double)known->sum * (double)known->rest) /
                          (double)(int64_t)c->length;
        known->factor = (T)(1 / sqrt(variance + c->epsilon));
    }
    weft_k_sync();
}

/* Element i of the result of a row. */
WEFT_K T NAME(weft_k_result)(const weft_k_rows *c, const NAME(weft_k_known) * known, int64_t at,
                             uint64_t i)
{
    T x = NAME(weft_k_row_load)(c->dtype, c->from + at + (int64_t)i * c->in_step), y;
    switch (c->which) {
    case WEFT_K_SOFTMAX:
        return EXP(x - known->largest) * known->sum;
    case WEFT_K_LOG_SOFTMAX:
        return (x - known->largest) - known->sum;
    case WEFT_K_SOFTMAX_GRAD:
        return (NAME(weft_k_grad)(c, c->grad + at, i) - known->sum) * x;
    case WEFT_K_LOG_SOFTMAX_GRAD:
        return NAME(weft_k_grad)(c, c->grad + at, i) - EXP(x) * known->sum;
    case WEFT_K_LAYER:
        y = NAME(weft_k_normal)(known, x);
        if (c->weight)
            y *= ((const T *)(const void *)c->weight)[i];
        return c->bias ? y + ((const T *)(const void *)c->bias)[i] : y;
    default:
        y = NAME(weft_k_normal)(known, x);
        return known->factor *
               ((NAME(weft_k_grad)(c, c->grad + at, i) - known->grad_mean) - y * known->slope);
    }
}

WEFT_K void NAME(weft_k_leave_rows)(const weft_k_rows *c, uint64_t group, unsigned per_task,
                                    const NAME(weft_k_row_room) * s)
{
    WEFT_K_NO_UNROLL
    for (uint64_t t = weft_k_thread(); t < per_task * c->length; t += weft_k_threads()) {
        uint64_t k = c->columns ? t % per_task : t / c->length;
        uint64_t i = c->columns ? t / per_task : t - k * c->length, row = group * per_task + k;
        if (row >= c->rows)
            continue;
        int64_t at = weft_k_row_offset(c, c->kept_in, row);
        int64_t to = weft_k_row_offset(c, c->kept_out, row) + (int64_t)i * c->out_step;
        NAME(weft_k_row_save)(c->dtype, c->to + to, NAME(weft_k_result)(c, &s->row[k], at, i));
    }
}

WEFT_K void NAME(weft_k_leave_moments)(const weft_k_rows *c, uint64_t group, unsigned per_task,
                                       const NAME(weft_k_row_room) * s)
{
    for (unsigned k = weft_k_thread(); k < per_task; k += weft_k_threads()) {
        uint64_t row = group * per_task + k;
        T *to = (T *)(void *)c->moments + 3 * row;
        if (row >= c->rows || !c->moments)
            continue;
        to[0] = s->row[k].mean;
        to[1] = s->row[k].rest;
        to[2] = s->row[k].factor;
    }
}

WEFT_K void NAME(weft_k_run_rows)(const weft_k_rows *c)
{
    WEFT_K_SHARED(NAME(weft_k_row_room), s);
    unsigned per_task = WEFT_K_UNITS / c->span;
    uint64_t tasks = (c->rows + per_task - 1) / per_task;
    T n = (T)(int64_t)c->length;
    WEFT_K_NO_UNROLL
    for (uint64_t group = weft_k_block(); group < tasks; group += weft_k_blocks()) {
        if (c->which <= WEFT_K_LOG_SOFTMAX) {
            WEFT_K_LEARN(WEFT_K_MAX_X, largest, sum)
            WEFT_K_LEARN(WEFT_K_SUM_EXP, sum, c->which == WEFT_K_SOFTMAX ? 1 / sum : LOG(sum))
        } else if (c->which <= WEFT_K_LOG_SOFTMAX_GRAD) {
            int what = c->which == WEFT_K_SOFTMAX_GRAD ? WEFT_K_SUM_PRODUCT : WEFT_K_SUM_GRAD;
            WEFT_K_LEARN(what, sum, sum)
        } else {
            NAME(weft_k_measure)(c, group, per_task, s);
        }
        if (c->which == WEFT_K_LAYER_GRAD) {
            WEFT_K_LEARN(WEFT_K_SUM_GRAD, grad_mean, sum / n)
            WEFT_K_LEARN(WEFT_K_SUM_SLOPE, slope, sum / n)
            NAME(weft_k_leave_moments)(c, group, per_task, s);
        }
        NAME(weft_k_leave_rows)(c, group, per_task, s);
        weft_k_sync();
    }
}
#undef WEFT_K_LEARN

/* A block of rows of one column. */
WEFT_K void NAME(weft_k_layer_column)(const weft_k_columns *c, uint64_t block, uint64_t column)
{
    uint64_t row = block * WEFT_K_BLOCK_ROWS, end = row + WEFT_K_BLOCK_ROWS;
    uint32_t size = weft_k_size_of(c->dtype);
    T weight = 0, bias = 0;
    end = end < c->rows ? end : c->rows;
    WEFT_K_NO_UNROLL
    for (; row < end; row++) {
        uint64_t at = (row * c->length + column) * size;
        const T *m = (const T *)(const void *)c->moments + 3 * row;
        T g = NAME(weft_k_row_load)(c->dtype, c->grad + at);
        T x = NAME(weft_k_row_load)(c->dtype, c->from + at);
        weight += g * (((x - m[0]) - m[1]) * m[2]);
        bias += g;
    }
    if (c->weight_parts)
        ((T *)(void *)c->weight_parts)[block * c->length + column] = weight;
    if (c->bias_parts)
        ((T *)(void *)c->bias_parts)[block * c->length + column] = bias;
}

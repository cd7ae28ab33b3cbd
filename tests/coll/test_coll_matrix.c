/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/host/move.c, coll/host/reduce.c, coll/lane/choose.c, backends/shm/shm.c,
 * backends/threads/threads.c */
/*
 * The operations matrix: operation x dtype x reduction x count x place of the operands (ordinary or
 * symmetric memory, any mix between ranks and operands, odd offsets, in place or not) x values x
 * algorithm x ranks x backend, bit by bit against the reference.
 *
 * A run takes a sample that follows from HARNESS_SEED; WEFT_TEST_ALL=1 takes every combination of
 * operation, dtype, reduction, count and place.  HARNESS_CASES sets the size of the sample;
 * HARNESS_CASE=n runs case n of it alone.
 *
 * Each case also checks that nothing outside the output is written, that inputs stay as they are,
 * that peers are done with an input the moment the call returns (it is overwritten then), and with
 * an output too (it is overwritten after it was read, and looked at again after a barrier).
 */
#include "coll_values.h"
#include "harness_ranks.h"

enum {
    GUARD = 64,         /* bytes before and after every operand */
    POOL = 26 << 20,    /* bytes of a pool of symmetric memory */
    LARGEST = 12 << 20, /* bytes of an operand */
    SAMPLE = VALUES_SANITIZED ? 15 : 60,
    LONG = VALUES_SANITIZED ? 1 << 17
                            : 1 << 20, /* elements: in any case several pieces of a bounce buffer */
    ROUNDS = VALUES_SANITIZED ? 250 : 2000
};

typedef enum operation {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    UNEVEN,
    SEND_RECV,
    OPS
} operation;

static const char *const op_names[OPS] = {
    "all_reduce", "reduce",         "broadcast",  "all_gather",        "gather",
    "scatter",    "reduce_scatter", "all_to_all", "all_to_all uneven", "send_recv"};

static const int64_t counts[] = {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 1023, 4097, LONG + 1};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Where an operand of a rank lies.  UNMET: symmetric memory that has not met in this group. */
typedef enum region { ORDINARY, POOL_A, POOL_B, UNMET, MEMORIES } region;

/* How the ranks choose.  MIXED: each rank and operand by itself; ODD_ONE: all in A but one rank. */
typedef enum place {
    ALL_ORDINARY,
    BOTH_A,
    IN_A_OUT_B,
    IN_A,
    OUT_A,
    MIXED,
    ODD_ONE,
    NEVER_MET,
    PLACES
} place;

typedef struct one_case {
    uint64_t seed;
    operation op;
    weft_dtype dtype;
    weft_reduction reduction;
    int64_t count; /* of one part */
    place place;
    int root, shift, way; /* way: how sends and receives are mixed */
    int in_place;         /* 0 nobody, 1 everybody who can, 2 each rank by itself */
    int tune;             /* 0 usual, 1 staged as far as possible, 2 copies by CMA, 3 pieces */
    bool posted, poison_first, hasty; /* hasty: no barrier after it */
    values_kind values;
} one_case;

typedef struct bench {
    weft_group *world;
    weft_symm_pool *pools[MEMORIES];
    int rank, size;
    double factors[VALUES_RANKS];
    char text[320]; /* the case, for messages */
} bench;

typedef struct operand {
    weft_tensor *tensor; /* NULL: this rank has none */
    char *data;
    size_t bytes;
    char *memory; /* with its guards */
    size_t before, after;
} operand;

static uint64_t dice(const one_case *c, int rank, int what)
{
    return values_random(c->seed, (uint64_t)(what * 64 + rank + 1)) >> 8;
}

static bool is_fold(operation op)
{
    return op == ALL_REDUCE || op == REDUCE || op == REDUCE_SCATTER;
}

#define FAIL_CASE(bench_, ...)                                         \
    do {                                                               \
        char why_[200];                                                \
        snprintf(why_, sizeof why_, __VA_ARGS__);                      \
        FAIL("%s: rank %d: %s", (bench_)->text, (bench_)->rank, why_); \
    } while (0)

/* ---- operands ---- */

static region region_of(const bench *b, const one_case *c, bool output)
{
    int odd = (int)(dice(c, 0, 9) % (unsigned)b->size);
    switch (c->place) {
    case BOTH_A:
        return POOL_A;
    case IN_A_OUT_B:
        return output ? POOL_B : POOL_A;
    case IN_A:
        return output ? ORDINARY : POOL_A;
    case OUT_A:
        return output ? POOL_A : ORDINARY;
    case MIXED:
        return (region)(dice(c, b->rank, output ? 2 : 3) % MEMORIES);
    case ODD_ONE:
        return b->rank == odd ? (region)(dice(c, b->rank, output ? 2 : 3) % MEMORIES) : POOL_A;
    case NEVER_MET:
        return UNMET;
    default:
        return ORDINARY;
    }
}

static void free_memory(void *memory)
{
    free(memory);
}

/* Ordinary memory. */
static void make_ordinary(operand *o, weft_dtype dtype, int64_t count, size_t offset)
{
    o->before = GUARD + offset * weft_dtype_size(dtype); /* any byte for types of one byte */
    o->memory = malloc(o->before + o->bytes + GUARD);
    CHECK(o->memory);
    o->data = o->memory + o->before;
    o->tensor =
        weft_tensor_wrap(dtype, WEFT_CPU, WEFT_SHAPE(count), o->data, free_memory, o->memory);
    if (o->tensor && !count && offset % 2) /* has no address at all */
        o->tensor = weft_empty(dtype, WEFT_CPU, WEFT_SHAPE(0));
}

/* A view of a larger tensor in a pool. */
static void make_symmetric(operand *o, weft_symm_pool *pool, weft_dtype dtype, int64_t count,
                           size_t offset)
{
    size_t item = weft_dtype_size(dtype);
    int64_t before = (int64_t)(GUARD / item + offset), after = (int64_t)(GUARD / item);
    weft_tensor *whole = weft_symm_pool_empty(pool, dtype, WEFT_SHAPE(before + count + after));
    CHECK(whole);
    o->before = (size_t)before * item;
    o->memory = weft_tensor_data(whole);
    o->data = o->memory + o->before;
    o->tensor = weft_narrow(whole, 0, before, count);
}

static operand make_operand(const bench *b, const one_case *c, int64_t count, bool output)
{
    operand o = {.bytes = (size_t)count * weft_dtype_size(c->dtype), .after = GUARD};
    size_t offset = dice(c, b->rank, output ? 4 : 5) % 16;
    region where = region_of(b, c, output);
    if (where == ORDINARY)
        make_ordinary(&o, c->dtype, count, offset);
    else
        make_symmetric(&o, b->pools[where], c->dtype, count, offset);
    if (!o.tensor)
        FAIL_CASE(b, "no operand: %.150s", weft_last_error());
    memset(o.memory, 0xa5, o.before);
    memset(o.data, 0xee, o.bytes);
    memset(o.data + o.bytes, 0xa5, o.after);
    return o;
}

/* Elements [first, first + count) of an operand, as one that shares its memory. */
static operand part_of(const operand *whole, const one_case *c, int64_t first, int64_t count)
{
    size_t item = weft_dtype_size(c->dtype);
    operand o = *whole;
    o.tensor = weft_narrow(whole->tensor, 0, first, count);
    CHECK(o.tensor);
    o.data += (size_t)first * item;
    o.bytes = (size_t)count * item;
    return o;
}

static void check_guards(const bench *b, const operand *o, const char *which)
{
    if (!o->tensor)
        return;
    if (values_check_byte(o->memory, o->before, 0xa5) >= 0)
        FAIL_CASE(b, "bytes before the %s were written", which);
    if (values_check_byte(o->data + o->bytes, o->after, 0xa5) >= 0)
        FAIL_CASE(b, "bytes after the %s were written", which);
}

/* ---- the shape of a case at a rank ---- */

typedef struct shape {
    int64_t in, out; /* elements; -1: no such operand here */
    int64_t in_splits[VALUES_RANKS], out_splits[VALUES_RANKS];
} shape;

/* Rows that `from` sends `to` in an uneven all_to_all: also none. */
static int64_t rows(const one_case *c, int from, int to)
{
    uint64_t random = dice(c, from * VALUES_RANKS + to, 7);
    return random % 4 == 0 ? 0 : (int64_t)(random % (uint64_t)(2 * c->count + 1));
}

static shape shape_of(const bench *b, const one_case *c)
{
    int64_t part = c->count, all = part * b->size;
    bool root = b->rank == c->root;
    shape s = {part, part, {0}, {0}};
    switch (c->op) {
    case REDUCE: /* an output elsewhere is allowed and left alone */
        s.out = root || dice(c, b->rank, 8) % 2 ? part : -1;
        break;
    case ALL_GATHER:
        s.out = all;
        break;
    case GATHER:
        s.out = root ? all : -1;
        break;
    case SCATTER:
        s.in = root ? all : -1;
        break;
    case REDUCE_SCATTER:
        s.in = all;
        break;
    case ALL_TO_ALL:
        s.in = s.out = all;
        break;
    case UNEVEN:
        s.in = s.out = 0;
        for (int peer = 0; peer < b->size; peer++) {
            s.in += s.in_splits[peer] = rows(c, b->rank, peer);
            s.out += s.out_splits[peer] = rows(c, peer, b->rank);
        }
        break;
    default:
        break;
    }
    return s;
}

static bool works_in_place(const bench *b, const one_case *c)
{
    if (c->op == ALL_TO_ALL || c->op == UNEVEN || c->op == SEND_RECV)
        return false;
    if (c->op == BROADCAST)
        return true;
    if ((c->op == REDUCE || c->op == GATHER || c->op == SCATTER) && b->rank != c->root)
        return false;
    return c->in_place == 1 || (c->in_place == 2 && dice(c, b->rank, 6) % 2);
}

static void make_operands(const bench *b, const one_case *c, const shape *s, bool in_place,
                          operand *in, operand *out)
{
    *in = *out = (operand){0};
    if (in_place && s->in > s->out) {
        *in = make_operand(b, c, s->in, false);
        *out = part_of(in, c, b->rank * c->count, c->count);
    } else if (in_place) {
        *out = make_operand(b, c, s->out, true);
        *in = s->out > s->in ? part_of(out, c, b->rank * c->count, c->count) : *out;
    } else {
        if (s->in >= 0)
            *in = make_operand(b, c, s->in, false);
        if (s->out >= 0)
            *out = make_operand(b, c, s->out, true);
    }
    if (in->tensor)
        values_put(c->dtype, c->values, c->seed, b->rank, 0, (size_t)s->in, in->data);
}

/* ---- the call ---- */

static weft_status finish(weft_work *work)
{
    return work ? weft_work_wait(work, WEFT_DEFAULT) : weft_last_status();
}

#define EITHER(name_, ...) \
    (c->posted ? finish(weft_##name_##_start(__VA_ARGS__)) : weft_##name_##_into(__VA_ARGS__))

/* Round a ring of stride `shift`; the ways differ in who blocks. */
static weft_status send_and_receive(const bench *b, const one_case *c, weft_tensor *out,
                                    weft_tensor *in)
{
    int to = (b->rank + c->shift) % b->size, from = (b->rank + b->size - c->shift) % b->size;
    weft_work *sending = c->way != 1 ? weft_send_start(in, to, b->world) : NULL;
    weft_work *receiving = c->way != 0 ? weft_recv_start(out, from, b->world) : NULL;
    weft_status sent = c->way != 1 ? WEFT_OK : weft_send(in, to, b->world);
    weft_status received = c->way != 0 ? WEFT_OK : weft_recv(out, from, b->world);
    if (c->way != 1)
        sent = finish(sending);
    if (c->way != 0)
        received = finish(receiving);
    return sent < 0 ? sent : received;
}

static weft_status call(const bench *b, const one_case *c, const shape *s, weft_tensor *out,
                        weft_tensor *in)
{
    weft_group *world = b->world;
    weft_set_premul(b->factors[b->rank]);
    switch (c->op) {
    case ALL_REDUCE:
        return EITHER(all_reduce, out, in, c->reduction, world);
    case REDUCE:
        return EITHER(reduce, out, in, c->reduction, c->root, world);
    case BROADCAST:
        return c->posted ? finish(weft_broadcast_start(out, c->root, world))
                         : weft_broadcast_in_place(out, c->root, world);
    case ALL_GATHER:
        return EITHER(all_gather, out, in, world);
    case GATHER:
        return EITHER(gather, out, in, c->root, world);
    case SCATTER:
        return EITHER(scatter, out, in, c->root, world);
    case REDUCE_SCATTER:
        return EITHER(reduce_scatter, out, in, c->reduction, world);
    case ALL_TO_ALL:
        return EITHER(all_to_all, out, in, NULL, NULL, world);
    case UNEVEN:
        return EITHER(all_to_all, out, in, s->out_splits, s->in_splits, world);
    default:
        return send_and_receive(b, c, out, in);
    }
}

/* ---- what it should have done ---- */

/* Does part `from` of the output hold what `rank` brought from element `first` on? */
static void check_part(const bench *b, const one_case *c, const operand *out, size_t at, int rank,
                       size_t first, size_t count)
{
    int64_t wrong = values_check(c->dtype, c->values, c->seed, rank, first, count,
                                 out->data + at * weft_dtype_size(c->dtype));
    if (wrong >= 0)
        FAIL_CASE(b, "element %lld of the output is not element %lld of rank %d",
                  (long long)at + wrong, (long long)first + wrong, rank);
}

static void check_fold(const bench *b, const one_case *c, const operand *out, size_t first)
{
    int64_t wrong = values_check_fold(c->dtype, c->reduction, c->values, c->seed, b->size, first,
                                      (size_t)c->count, b->factors, out->data);
    if (wrong >= 0)
        FAIL_CASE(b, "element %lld of %lld is not the %s of all inputs", (long long)wrong,
                  (long long)c->count, weft_reduction_name(c->reduction));
}

/* Parts of all ranks one after the other: part `rank` starts at element first[rank] of its input.
 */
static void check_uneven(const bench *b, const one_case *c, const operand *out)
{
    size_t at = 0;
    for (int from = 0; from < b->size; from++) {
        int64_t first = 0;
        for (int to = 0; to < b->rank; to++)
            first += rows(c, from, to);
        check_part(b, c, out, at, from, (size_t)first, (size_t)rows(c, from, b->rank));
        at += (size_t)rows(c, from, b->rank);
    }
}

static void check_output(const bench *b, const one_case *c, const operand *out)
{
    size_t part = (size_t)c->count, mine = (size_t)b->rank * part;
    bool wanted = b->rank == c->root || (c->op != REDUCE && c->op != GATHER);
    if (out->tensor && !wanted && values_check_byte(out->data, out->bytes, 0xee) >= 0)
        FAIL_CASE(b, "the output of a rank that is not the root was written");
    if (!wanted)
        return;
    switch (c->op) {
    case ALL_REDUCE:
    case REDUCE:
        check_fold(b, c, out, 0);
        break;
    case REDUCE_SCATTER:
        check_fold(b, c, out, mine);
        break;
    case BROADCAST:
        check_part(b, c, out, 0, c->root, 0, part);
        break;
    case SCATTER:
        check_part(b, c, out, 0, c->root, mine, part);
        break;
    case UNEVEN:
        check_uneven(b, c, out);
        break;
    case SEND_RECV:
        check_part(b, c, out, 0, (b->rank + b->size - c->shift) % b->size, 0, part);
        break;
    default:
        for (int rank = 0; rank < b->size; rank++)
            check_part(b, c, out, (size_t)rank * part, rank, c->op == ALL_TO_ALL ? mine : 0, part);
    }
}

/* In place with a larger input: only this rank's part may have changed. */
static void check_rest_of_input(const bench *b, const one_case *c, const shape *s,
                                const operand *in)
{
    size_t part = (size_t)c->count, item = weft_dtype_size(c->dtype);
    for (size_t first = 0; first < (size_t)s->in; first += part ? part : 1)
        if (first != (size_t)b->rank * part &&
            values_check(c->dtype, c->values, c->seed, b->rank, first, part,
                         in->data + first * item) >= 0)
            FAIL_CASE(b, "the input outside this rank's part was written");
}

static void check_input(const bench *b, const one_case *c, const shape *s, const operand *in)
{
    if (values_check(c->dtype, c->values, c->seed, b->rank, 0, (size_t)s->in, in->data) >= 0)
        FAIL_CASE(b, "the input was written");
}

static void describe(bench *b, const one_case *c, int number)
{
    snprintf(b->text, sizeof b->text,
             "seed %llu case %d: %s of %lld %s, %s, root %d, shift %d, place %d, in place %d, "
             "tune %d, values %d%s",
             (unsigned long long)values_seed(), number, op_names[c->op], (long long)c->count,
             weft_dtype_name(c->dtype), weft_reduction_name(c->reduction), c->root, c->shift,
             (int)c->place, c->in_place, c->tune, (int)c->values, c->posted ? ", posted" : "");
}

static void set_threshold(const bench *b, const one_case *c)
{
    size_t bytes = c->tune == 1 ? 64 << 10 : 0;
    if (c->op >= UNEVEN)
        return;
    if (!c->tune)
        bytes = c->op == BROADCAST ? 32 << 10 : 2 << 10;
    CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, op_names[c->op], b->size, bytes));
    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, op_names[c->op], b->size,
                           c->tune == 2   ? 1
                           : c->tune == 3 ? SIZE_MAX
                                          : 16 << 10));
}

static void poison(const operand *o, unsigned char byte)
{
    if (o->tensor)
        memset(o->data, byte, o->bytes);
}

static void run_case(bench *b, const one_case *c, int number)
{
    describe(b, c, number);
    weft_scope_open();
    set_threshold(b, c);
    shape s = shape_of(b, c);
    bool in_place = works_in_place(b, c);
    operand in, out;
    make_operands(b, c, &s, in_place, &in, &out);
    weft_status status = call(b, c, &s, out.tensor, in.tensor);
    if (status != WEFT_OK)
        FAIL_CASE(b, "%d: %.150s", (int)status, weft_last_error());
    if (!in_place && in.tensor && !c->poison_first)
        check_input(b, c, &s, &in);
    if (!in_place)
        poison(&in, 0x3c);
    check_output(b, c, &out);
    if (in_place && s.in > s.out)
        check_rest_of_input(b, c, &s, &in);
    const operand *whole = in_place && s.in > s.out ? &in : &out;
    poison(whole, 0xc3);
    if (!c->hasty)
        CHECK_OK(weft_group_barrier(b->world, WEFT_DEFAULT));
    if (whole->tensor && values_check_byte(whole->data, whole->bytes, 0xc3) >= 0)
        FAIL_CASE(b, "the output was written after the call");
    if (!in_place && in.tensor && values_check_byte(in.data, in.bytes, 0x3c) >= 0)
        FAIL_CASE(b, "the input was written after the call");
    check_guards(b, whole, "output");
    if (!in_place)
        check_guards(b, &in, "input");
    weft_scope_close();
}

/* ---- choosing cases ---- */

static int64_t fit(const bench *b, operation op, weft_dtype dtype, int64_t count)
{
    int64_t parts = op == ALL_REDUCE || op == REDUCE || op == BROADCAST || op == SEND_RECV ? 1
                    : op == UNEVEN ? 2 * b->size
                                   : b->size;
    int64_t room = LARGEST / (int64_t)weft_dtype_size(dtype) / parts;
    return count <= room ? count : room - 1;
}

/* Fills in what follows from the seed alone. */
static void finish_case(const bench *b, one_case *c, int64_t count)
{
    c->count = fit(b, c->op, c->dtype, count);
    c->root = (int)(dice(c, 0, 10) % (unsigned)b->size);
    c->shift = b->size > 1 ? 1 + (int)(dice(c, 0, 11) % (unsigned)(b->size - 1)) : 0;
    c->way = (int)(dice(c, 0, 12) % 3);
    c->in_place = (int)(dice(c, 0, 13) % 3);
    c->tune = (int)(dice(c, 0, 14) % 4);
    c->posted = dice(c, 0, 15) % 4 == 0;
    c->poison_first = dice(c, 0, 16) % 2;
    c->values = (values_kind)(dice(c, 0, 17) % VALUES_KINDS);
}

static one_case sample_case(const bench *b, uint64_t seed)
{
    one_case c = {.seed = seed};
    c.op = (operation)(dice(&c, 0, 20) % OPS);
    if (c.op == SEND_RECV && b->size == 1)
        c.op = ALL_REDUCE;
    c.dtype = (weft_dtype)(dice(&c, 0, 21) % (WEFT_BOOL + 1));
    c.reduction = (weft_reduction)(dice(&c, 0, 22) % WEFT_REDUCTIONS);
    while (!values_has_meaning(c.dtype, c.reduction))
        c.reduction = (weft_reduction)((c.reduction + 1) % WEFT_REDUCTIONS);
    if (!is_fold(c.op))
        c.reduction = WEFT_SUM;
    c.place = (place)(dice(&c, 0, 23) % PLACES);
    uint64_t which = dice(&c, 0, 24) % (3 * COUNTS);
    finish_case(b, &c, counts[which == 0 ? COUNTS - 1 : which % (COUNTS - 1)]);
    return c;
}

static void run_sample(bench *b)
{
    const char *only = getenv("HARNESS_CASE"), *many = getenv("HARNESS_CASES");
    for (int number = 0; number < (many ? atoi(many) : SAMPLE); number++) {
        one_case c = sample_case(b, values_random(values_seed() + (unsigned)b->size, number));
        if (!only || atoi(only) == number)
            run_case(b, &c, number);
    }
}

static void run_all(bench *b)
{
    int number = 0;
    for (int op_ = 0; op_ < (b->size > 1 ? OPS : OPS - 1); op_++)
        for (int dtype = 0; dtype <= WEFT_BOOL; dtype++)
            for (int reduction = 0; reduction < WEFT_REDUCTIONS; reduction++) {
                if (is_fold((operation)op_) ? !values_has_meaning(dtype, reduction) : reduction > 0)
                    continue;
                /* The largest count takes one place of the eight, a different one each time. */
                for (int n = 0; n < (COUNTS - 1) * PLACES + 1; n++, number++) {
                    one_case c = {.seed = values_random(values_seed() + (unsigned)b->size, number),
                                  .op = (operation)op_,
                                  .dtype = (weft_dtype)dtype,
                                  .reduction = (weft_reduction)reduction,
                                  .place = (place)((n + number / 97) % PLACES)};
                    finish_case(b, &c, counts[n / PLACES]);
                    run_case(b, &c, number);
                }
            }
}

/* Short delays of some ranks now and then, so that all orders of arrival and leaving occur. */
static void dawdle(const one_case *c, int rank)
{
    uint64_t random = dice(c, rank, 30);
    struct timespec pause = {0, (long)(random >> 8) % 100000};
    if (random % 16 == 0)
        nanosleep(&pause, NULL);
}

/* One call after the other without any barrier: every operand is overwritten, freed and cut anew as
 * soon as its call has returned. */
static void run_rounds(bench *b)
{
    for (int number = 0; number < ROUNDS; number++) {
        one_case c = sample_case(b, values_random(values_seed() + 77, (uint64_t)number));
        if (c.count > 4097)
            c.count = 97;
        c.tune = 0; /* ranks as threads share the thresholds */
        c.hasty = true;
        dawdle(&c, b->rank);
        run_case(b, &c, number);
    }
}

static void run(int rank, int size, void (*body)(bench *b))
{
    bench b = {.rank = rank, .size = size, .world = weft_init(NULL)};
    CHECK(b.world);
    for (int peer = 0; peer < size; peer++)
        b.factors[peer] = peer % 2 ? 0.1 * peer : 1e-3 + peer;
    for (int where = POOL_A; where < MEMORIES; where++) {
        CHECK(b.pools[where] = weft_symm_pool_new(WEFT_CPU, POOL));
        weft_tensor *first = weft_symm_pool_empty(b.pools[where], WEFT_U8, WEFT_SHAPE(1 + rank));
        CHECK(first);
        weft_tensor *same = weft_symm_pool_empty(b.pools[where], WEFT_U8, WEFT_SHAPE(1));
        (void)same;
        if (where != UNMET)
            CHECK(weft_symm_rendezvous(first, b.world));
    }
    body(&b);
    CHECK(!weft_finish(b.world));
}

static void run_matrix(bench *b)
{
    if (getenv("WEFT_TEST_ALL"))
        run_all(b);
    else
        run_sample(b);
}

RANKS_TEST(test_backend_ops_1, 1)
{
    run(rank, size, run_matrix);
}

RANKS_TEST(test_backend_ops_2, 2)
{
    run(rank, size, run_matrix);
}

RANKS_TEST(test_backend_ops_3, 3)
{
    run(rank, size, run_matrix);
}

RANKS_TEST(test_backend_ops_4, 4)
{
    run(rank, size, run_matrix);
}

RANKS_TEST(test_backend_ops_7, 7)
{
    run(rank, size, run_matrix);
}

RANKS_TEST(test_backend_ops_8, 8)
{
    run(rank, size, run_matrix);
}

RANKS_TEST(test_backend_ops_rounds_2, 2)
{
    run(rank, size, run_rounds);
}

RANKS_TEST(test_backend_ops_rounds_5, 5)
{
    run(rank, size, run_rounds);
}

/* One rank in place, the others not, all inputs symmetric: nobody's result may overwrite an input
 * that a peer still reads. */
static void run_mixed(bench *b)
{
    enum { COUNT = LONG, MIXED_ROUNDS = 10 };
    weft_tensor *in = weft_symm_pool_empty(b->pools[POOL_A], WEFT_F32, WEFT_SHAPE(COUNT));
    weft_tensor *out = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT));
    CHECK(in && out);
    for (int round = 0; round < MIXED_ROUNDS; round++) {
        weft_tensor *target = b->rank == round % b->size ? in : out;
        values_put(WEFT_F32, VALUES_WHOLE, (uint64_t)round, b->rank, 0, COUNT,
                   weft_tensor_data(in));
        CHECK_OK(weft_all_reduce_into(target, in, WEFT_SUM, b->world));
        CHECK_INT(values_check_fold(WEFT_F32, WEFT_SUM, VALUES_WHOLE, (uint64_t)round, b->size, 0,
                                    COUNT, NULL, weft_tensor_data(target)),
                  -1);
    }
}

RANKS_TEST(test_backend_ops_mixed_2, 2)
{
    run(rank, size, run_mixed);
}

RANKS_TEST(test_backend_ops_mixed_3, 3)
{
    run(rank, size, run_mixed);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    if (getenv("WEFT_TEST_ALL"))
        setenv("HARNESS_TIMEOUT", "7200", 0);
    return harness_main(argc, argv);
}

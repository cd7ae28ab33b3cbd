/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/host/move.c, coll/host/reduce.c, coll/lane/choose.c, coll/p2p/p2p.c */
/*
 * Collectives and messages on memory that the library did not make: from malloc, at addresses that
 * only the element's size divides, with bytes around each operand that nobody may touch.  Random
 * kinds, dtypes, roots and sizes around every border, in place where that is allowed, plain and
 * posted; every result is checked.  How ranks wait and whether the kernel copies follows from the
 * seed, too.
 */
#include "coll_acts.h"
#include "jobs.h"

enum { ROUNDS = VALUES_SANITIZED ? 15 : 60, GUARD = 192, MARK = 0xa5 };

/* Memory of one operand: GUARD bytes or a few more, the operand, GUARD bytes. */
typedef struct room {
    char *all, *data;
    size_t bytes, total;
} room;

static room room_new(size_t bytes, size_t item, uint64_t random)
{
    room r = {.bytes = bytes, .total = bytes + 2 * GUARD + 128};
    CHECK((r.all = malloc(r.total)));
    memset(r.all, MARK, r.total);
    r.data = r.all + GUARD + random % (128 / item) * item;
    return r;
}

static void room_check(const room *r, const char *what)
{
    for (const char *at = r->all; at < r->all + r->total; at++)
        if (*at != (char)MARK && (at < r->data || at >= r->data + r->bytes))
            FAIL("%s: byte %td of %zu is written", what, at - r->data, r->bytes);
}

static void room_free(room *r)
{
    free(r->all);
    *r = (room){0};
}

/* Elements: around the borders of ways and buffers, or any. */
static int64_t pick_count(uint64_t seed, size_t item)
{
    static const int64_t borders[] = {0,     1,     3,     56,     112,    632,    4096,   8192,
                                      16384, 32768, 65536, 131072, 262144, 524288, 1 << 20};
    uint64_t pick = values_random(seed, 1), any = values_random(seed, 2);
    int64_t border = borders[pick % 15] / (int64_t)item;
    if (pick >> 8 & 1)
        border += (int64_t)(any % 9) - 4;
    if ((pick >> 9) % 4 == 0)
        border = (int64_t)(any % 70000);
    return border < 0 ? 0 : border;
}

typedef struct scene {
    act a;
    act_operands o;
    room in, out;
    bool in_place;
} scene;

/* May the output be the input, or the input lie in the output, or the other way round? */
static bool may_be_in_place(const act *a, int rank)
{
    return a->kind == ACT_ALL_REDUCE || a->kind == ACT_ALL_GATHER ||
           a->kind == ACT_REDUCE_SCATTER ||
           (act_has_root(a->kind) && a->kind != ACT_BROADCAST && rank == a->root);
}

static weft_tensor *wrap(const act *a, int64_t count, void *data)
{
    weft_tensor *x = weft_tensor_wrap(a->dtype, WEFT_CPU, WEFT_SHAPE(count), data, NULL, NULL);
    if (!x)
        FAIL("weft_tensor_wrap: %s", weft_last_error());
    return x;
}

/* The operands of act_prepare, in rooms instead. */
static void prepare(scene *s, int rank, int size)
{
    const act *a = &s->a;
    size_t item = weft_dtype_size(a->dtype), part = (size_t)a->count * item;
    uint64_t random = values_random(a->seed, 50 + (uint64_t)rank);
    s->o = act_prepare(a, rank, size);
    s->in_place = may_be_in_place(a, rank) && random % 3 == 0;
    bool parts_in = a->kind == ACT_REDUCE_SCATTER || a->kind == ACT_SCATTER;
    if (s->o.out && !(s->in_place && parts_in)) {
        s->out = room_new((size_t)s->o.out_count * item, item, random >> 8);
        s->o.out = wrap(a, s->o.out_count, s->out.data);
    }
    if (!s->o.in)
        return;
    bool within = a->kind == ACT_ALL_GATHER || a->kind == ACT_GATHER;
    if (a->kind == ACT_BROADCAST) {
        s->o.in = s->o.out;
    } else if (s->in_place && !parts_in) {
        s->o.in = wrap(a, s->o.in_count, s->out.data + (within ? (size_t)rank * part : 0));
    } else {
        s->in = room_new((size_t)s->o.in_count * item, item, random >> 16);
        s->o.in = wrap(a, s->o.in_count, s->in.data);
    }
    values_put(a->dtype, VALUES_WHOLE, a->seed, rank, 0, (size_t)s->o.in_count,
               weft_tensor_data(s->o.in));
    if (s->in_place && parts_in)
        s->o.out = wrap(a, s->o.out_count, s->in.data + (size_t)rank * part);
}

static void judge(scene *s, int rank, int size)
{
    char text[128];
    act_text(&s->a, text, sizeof text);
    int64_t wrong = act_check(&s->a, &s->o, rank, size);
    if (wrong >= 0)
        FAIL("%s%s: element %lld is wrong", text, s->in_place ? " in place" : "", (long long)wrong);
    if (s->a.kind != ACT_BROADCAST && !s->in_place && !act_input_is_intact(&s->a, &s->o, rank))
        FAIL("%s: the input was written", text);
    if (s->in.all)
        room_check(&s->in, text);
    if (s->out.all)
        room_check(&s->out, text);
    room_free(&s->in);
    room_free(&s->out);
}

static void choose(scene *s, uint64_t seed, int size)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_U8,  WEFT_F64, WEFT_BF16,
                                        WEFT_I32, WEFT_F16, WEFT_I64};
    act *a = &s->a;
    *s = (scene){.a = {.kind = (act_kind)(values_random(seed, 3) % ACT_BARRIER),
                       .dtype = dtypes[values_random(seed, 4) % 7],
                       .reduction = values_random(seed, 5) % 2 ? WEFT_SUM : WEFT_MAX,
                       .root = (int)(values_random(seed, 6) % (unsigned)size),
                       .posted = values_random(seed, 7) % 4 == 0,
                       .seed = seed}};
    a->count = pick_count(seed, weft_dtype_size(a->dtype));
}

/* A message to the next rank, from the last one, between odd places. */
static void exchange(uint64_t seed, int rank, int size, weft_group *world)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    size_t count = (size_t)pick_count(seed, 1);
    room out = room_new(count, 1, values_random(seed, 60 + (uint64_t)rank));
    room in = room_new(count, 1, values_random(seed, 90 + (uint64_t)rank));
    values_put(WEFT_U8, VALUES_WHOLE, seed, rank, 0, count, in.data);
    act a = {.dtype = WEFT_U8};
    weft_tensor *from = wrap(&a, (int64_t)count, in.data), *to = wrap(&a, (int64_t)count, out.data);
    weft_work *work = weft_recv_start(to, last, world);
    CHECK(work);
    CHECK_OK(weft_send(from, next, world));
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    CHECK_INT(values_check(WEFT_U8, VALUES_WHOLE, seed, last, 0, count, out.data), -1);
    CHECK_INT(values_check(WEFT_U8, VALUES_WHOLE, seed, rank, 0, count, in.data), -1);
    room_check(&in, "send");
    room_check(&out, "recv");
    room_free(&in);
    room_free(&out);
}

static void run_rounds(int rank, int size)
{
    weft_group *world = join(40000);
    for (int number = 0; number < ROUNDS; number++) {
        scene s[2];
        weft_work *work[2];
        uint64_t seed = values_random(values_seed(), (uint64_t)number * 16 + (unsigned)size);
        weft_scope_open();
        for (int i = 0; i < 2; i++) {
            choose(&s[i], values_random(seed, 30 + (uint64_t)i), size);
            prepare(&s[i], rank, size);
            CHECK_OK(act_begin(&s[i].a, &s[i].o, world, &work[i]));
        }
        if (size > 1 && number % 3 == 0) /* while posted ones are under way */
            exchange(seed, rank, size, world);
        for (int i = 0; i < 2; i++) {
            CHECK(!work[i] || weft_work_wait(work[i], WEFT_DEFAULT) == WEFT_OK);
            judge(&s[i], rank, size);
        }
        if (number % 8 == 7)
            CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        weft_scope_close();
    }
    finish(world);
}

RANKS_TEST(test_anywhere_1, 1)
{
    run_rounds(rank, size);
}

RANKS_TEST(test_anywhere_2, 2)
{
    run_rounds(rank, size);
}

RANKS_TEST(test_anywhere_3, 3)
{
    run_rounds(rank, size);
}

RANKS_TEST(test_anywhere_5, 5)
{
    run_rounds(rank, size);
}

int main(int argc, char **argv)
{
    static const char *const waits[] = {"auto", "spin", "yield", "sleep"};
    values_choose_seed();
    setenv("WEFT_WAIT", waits[values_random(values_seed(), 1) % 4], 0);
    setenv("WEFT_CMA", values_random(values_seed(), 2) % 3 ? "auto" : "off", 0);
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/quarrel.c, coll/lane/enter.c, coll/lane/signature.c */
/*
 * Calls that differ between ranks, made up by the hundred: one rank calls another operation, count,
 * dtype, reduction, root, list, split or form than the others, in another order, in another group,
 * once more or once less.  Every rank must get an error that names both calls, there or (operations
 * that do not wait for all) later, and the group's fate must be the same for all.
 * HARNESS_SEED repeats a run.
 */
#include "coll/lane/lane.h"
#include "coll_acts.h"
#include "fabric/group/quarrel.h"
#include "jobs.h"

enum { TENSORS = 4 };

static weft_group *new_group(weft_group *world, int size)
{
    int ranks[VALUES_RANKS];
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    weft_group *group = weft_group_new(world, ranks, size, NULL);
    if (!group)
        FAIL("weft_group_new: %s", weft_last_error());
    return group;
}

/* ---- any call as a value: an act, or one of the forms with lists or strings ---- */

typedef enum form {
    PLAIN, /* its act */
    LIST_ALL_REDUCE,
    LIST_ALL_GATHER,
    LIST_REDUCE_SCATTER,
    LIST_ALL_TO_ALL,
    PARTS_ALL_GATHER,
    PARTS_GATHER,
    PARTS_SCATTER,
    PARTS_REDUCE_SCATTER,
    OBJECT_ALL_GATHER,
    OBJECT_GATHER,
    OBJECT_BROADCAST,
    OBJECT_SCATTER,
    FORMS
} form;

typedef struct call {
    form form;
    act a;       /* dtype, count, reduction and root of the other forms too */
    int tensors; /* of a list */
    int64_t odd; /* added to the count of one tensor */
} call;

static bool is_parts(form f)
{
    return f >= PARTS_ALL_GATHER && f <= PARTS_REDUCE_SCATTER;
}

static bool is_list(form f)
{
    return f >= LIST_ALL_REDUCE && f <= LIST_REDUCE_SCATTER;
}

static bool is_object(form f)
{
    return f >= OBJECT_ALL_GATHER;
}

static bool folds(const call *c)
{
    return c->form == PLAIN ? act_folds(c->a.kind)
                            : c->form == LIST_ALL_REDUCE || c->form == LIST_REDUCE_SCATTER ||
                                  c->form == PARTS_REDUCE_SCATTER;
}

static bool has_root(const call *c)
{
    return c->form == PLAIN ? act_has_root(c->a.kind)
                            : c->form == PARTS_GATHER || c->form == PARTS_SCATTER ||
                                  (is_object(c->form) && c->form != OBJECT_ALL_GATHER);
}

/* May a rank be done with it before all have come? */
static bool goes_one_way(const call *c)
{
    return c->form == PLAIN && act_has_root(c->a.kind);
}

/* As the library's messages tell it. */
static const char *text_of(const call *c, char *out, size_t bytes)
{
    static const char *const names[FORMS] = {
        "",
        "all_reduce_list",
        "all_gather_list",
        "reduce_scatter_list",
        "all_to_all_list",
        "all_gather_parts",
        "gather_parts",
        "scatter_parts",
        "reduce_scatter_parts",
        "all_gather_object",
        "gather_object",
        "broadcast_object",
        "scatter_object",
    };
    if (c->form == PLAIN)
        return act_text(&c->a, out, bytes);
    int n = snprintf(out, bytes, "%s", names[c->form]);
    if (is_list(c->form))
        n += snprintf(out + n, bytes - (size_t)n, " of %d tensors", c->tensors);
    if (is_parts(c->form))
        n += snprintf(out + n, bytes - (size_t)n, " of %s", weft_dtype_name(c->a.dtype));
    if (folds(c) && !is_list(c->form))
        n += snprintf(out + n, bytes - (size_t)n, ", %s", weft_reduction_name(c->a.reduction));
    if (has_root(c))
        snprintf(out + n, bytes - (size_t)n, ", root %d", c->a.root);
    return out;
}

static weft_tensor *blank(const call *c, int64_t count)
{
    weft_tensor *x = weft_zeros(c->a.dtype, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x);
    return x;
}

static weft_status wait_for(weft_work *work)
{
    return work ? weft_work_wait(work, WEFT_DEFAULT) : weft_last_status();
}

static weft_status run_list(const call *c, int size, weft_group *group)
{
    weft_tensor *in[TENSORS], *out[TENSORS];
    for (int k = 0; k < c->tensors; k++) {
        int64_t count = c->a.count + k + (k == c->tensors - 1 ? c->odd : 0);
        in[k] = blank(c, c->form == LIST_REDUCE_SCATTER ? count * size : count);
        out[k] = blank(c, c->form == LIST_ALL_GATHER ? count * size : count);
    }
    if (c->form == LIST_ALL_GATHER)
        return c->a.posted ? wait_for(weft_all_gather_list_start(out, in, c->tensors, group))
                           : weft_all_gather_list_into(out, in, c->tensors, group);
    if (c->form == LIST_ALL_REDUCE)
        return c->a.posted ? wait_for(weft_all_reduce_list_start(out, in, c->tensors,
                                                                 c->a.reduction, group))
                           : weft_all_reduce_list_into(out, in, c->tensors, c->a.reduction, group);
    return c->a.posted ? wait_for(weft_reduce_scatter_list_start(out, in, c->tensors,
                                                                 c->a.reduction, group))
                       : weft_reduce_scatter_list_into(out, in, c->tensors, c->a.reduction, group);
}

/* Part r has count + r elements; `odd` is added to all that this rank brings. */
static weft_status run_parts(const call *c, int rank, int size, weft_group *group)
{
    weft_tensor *list[VALUES_RANKS], *others[VALUES_RANKS], *one;
    bool root = rank == c->a.root;
    for (int r = 0; r < size; r++) {
        list[r] = blank(c, c->a.count + r + c->odd);
        others[r] = blank(c, c->a.count + rank);
    }
    one = blank(c, c->a.count + rank + c->odd);
    switch (c->form) {
    case LIST_ALL_TO_ALL:
        return c->a.posted ? wait_for(weft_all_to_all_list_start(others, list, group))
                           : weft_all_to_all_list_into(others, list, group);
    case PARTS_ALL_GATHER:
        return c->a.posted ? wait_for(weft_all_gather_parts_start(list, one, group))
                           : weft_all_gather_parts_into(list, one, group);
    case PARTS_GATHER:
        return weft_gather_parts_into(root ? list : NULL, one, c->a.root, group);
    case PARTS_SCATTER:
        return weft_scatter_parts_into(one, root ? list : NULL, c->a.root, group);
    default:
        return c->a.posted
                   ? wait_for(weft_reduce_scatter_parts_start(one, list, c->a.reduction, group))
                   : weft_reduce_scatter_parts_into(one, list, c->a.reduction, group);
    }
}

static weft_status run_object(const call *c, int rank, int size, weft_group *group)
{
    weft_bytes word = {"word", (size_t)(rank % 4)}, list[VALUES_RANKS];
    bool root = rank == c->a.root;
    for (int r = 0; r < size; r++)
        list[r] = word;
    weft_clear_error();
    const weft_blobs *got =
        c->form == OBJECT_ALL_GATHER ? weft_all_gather_object(word, group)
        : c->form == OBJECT_GATHER   ? weft_gather_object(word, c->a.root, group)
        : c->form == OBJECT_SCATTER
            ? weft_scatter_object(root ? list : NULL, c->a.root, group)
            : weft_broadcast_object(root ? list : NULL, root ? size : 0, c->a.root, group);
    return got ? WEFT_OK : weft_last_status();
}

static weft_status run_call(const call *c, int rank, int size, weft_group *group)
{
    if (is_object(c->form))
        return run_object(c, rank, size, group);
    if (is_list(c->form))
        return run_list(c, size, group);
    if (c->form != PLAIN)
        return run_parts(c, rank, size, group);
    act_operands o = act_prepare(&c->a, rank, size);
    weft_status status = act_run(&c->a, &o, group);
    CHECK(status == WEFT_OK || act_input_is_intact(&c->a, &o, rank));
    return status;
}

static void check_both(const char *one, const char *other, int number)
{
    const char *error = weft_last_error();
    if (!strstr(error, one) || !strstr(error, other))
        FAIL("pair %d: \"%s\" and \"%s\" are not in \"%s\"", number, one, other, error);
}

/* ---- making pairs ---- */

enum {
    BY_OP,
    BY_COUNT,
    BY_DTYPE,
    BY_REDUCTION,
    BY_ROOT,
    BY_ORDER,
    BY_EXTRA,
    BY_MISSING,
    BY_LENGTH, /* of a list */
    BY_TENSOR, /* of a list */
    BY_SPLITS,
    BY_PARTS,
    BY_FORM,
    WAYS,
    BY_GROUP = WAYS
};

/* What one rank calls, and what the others call; they differ first at number `at`. */
typedef struct pair {
    call usual[3], odd[3];
    int at;
} pair;

static call make_call(uint64_t seed, int size)
{
    static const int64_t counts[] = {0, 1, 5, 100, 900, 40000};
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_I64, WEFT_U8, WEFT_BF16};
    static const weft_reduction reductions[] = {WEFT_SUM, WEFT_MIN, WEFT_MAX, WEFT_PRODUCT};
    unsigned pick = (unsigned)(values_random(seed, 1) % (ACT_KINDS + FORMS - 1));
    call c = {.form = pick < ACT_KINDS ? PLAIN : (form)(pick - ACT_KINDS + 1),
              .a = {.kind = pick < ACT_KINDS ? (act_kind)pick : ACT_ALL_REDUCE,
                    .dtype = dtypes[values_random(seed, 2) % 4],
                    .reduction = reductions[values_random(seed, 3) % 4],
                    .root = (int)(values_random(seed, 4) % (unsigned)size),
                    .count = counts[values_random(seed, 5) % 6],
                    .posted = values_random(seed, 6) % 3 == 0,
                    .seed = seed},
              .tensors = 1 + (int)(values_random(seed, 7) % TENSORS)};
    return c;
}

/* A call that suits the way to differ. */
static call make_usual(int way, uint64_t seed, int size)
{
    static const act_kind rooted[] = {ACT_REDUCE, ACT_BROADCAST, ACT_GATHER, ACT_SCATTER};
    static const act_kind folding[] = {ACT_ALL_REDUCE, ACT_REDUCE, ACT_REDUCE_SCATTER};
    static const act_kind counted[] = {ACT_ALL_REDUCE, ACT_REDUCE,         ACT_BROADCAST,
                                       ACT_ALL_GATHER, ACT_GATHER,         ACT_SCATTER,
                                       ACT_ALL_TO_ALL, ACT_REDUCE_SCATTER, ACT_REDUCE};
    call c = make_call(seed, size);
    unsigned pick = (unsigned)(values_random(seed, 8) % 64);
    if (way == BY_COUNT || way == BY_DTYPE || way == BY_REDUCTION || way == BY_ROOT)
        c.form = PLAIN;
    if (way == BY_COUNT || way == BY_DTYPE)
        c.a.kind = counted[pick % 9];
    if (way == BY_REDUCTION) {
        c.form = (form[]){PLAIN, PLAIN, PARTS_REDUCE_SCATTER}[pick % 3];
        c.a.kind = folding[pick / 3 % 3];
    }
    if (way == BY_ROOT) {
        c.form = (form[]){PLAIN, PLAIN, PARTS_GATHER, OBJECT_BROADCAST}[pick % 4];
        c.a.kind = rooted[pick / 4 % 4];
    }
    if (way == BY_LENGTH || way == BY_TENSOR)
        c.form = (form)(LIST_ALL_REDUCE + pick % 3);
    if (way == BY_SPLITS) {
        c.form = pick % 2 ? PLAIN : LIST_ALL_TO_ALL;
        c.a.kind = ACT_UNEVEN;
    }
    if (way == BY_PARTS)
        c.form = (form)(PARTS_ALL_GATHER + pick % 4);
    if (way == BY_FORM) {
        c.form = PLAIN;
        c.a.kind = (act_kind[]){ACT_ALL_REDUCE, ACT_ALL_GATHER, ACT_REDUCE_SCATTER}[pick % 3];
    }
    return c;
}

static call make_odd(int way, const call *usual, int size)
{
    call c = *usual;
    if (way == BY_COUNT)
        c.a.count = usual->a.count ? usual->a.count - 1 : 7;
    if (way == BY_DTYPE)
        c.a.dtype = usual->a.dtype == WEFT_F32 ? WEFT_I64 : WEFT_F32;
    if (way == BY_REDUCTION)
        c.a.reduction = usual->a.reduction == WEFT_SUM ? WEFT_MAX : WEFT_SUM;
    if (way == BY_ROOT)
        c.a.root = (usual->a.root + 1) % size;
    if (way == BY_LENGTH)
        c.tensors = usual->tensors % TENSORS + 1;
    if (way == BY_TENSOR || way == BY_PARTS)
        c.odd = 3;
    if (way == BY_SPLITS)
        c.odd = c.a.odd = 1;
    if (way == BY_FORM) {
        c.form = usual->a.kind == ACT_ALL_REDUCE   ? LIST_ALL_REDUCE
                 : usual->a.kind == ACT_ALL_GATHER ? LIST_ALL_GATHER
                                                   : PARTS_REDUCE_SCATTER;
        c.tensors = 1;
    }
    return c;
}

/* Another call than `c`, as its text tells. */
static call make_other(const call *c, uint64_t seed, int size)
{
    char mine[160], theirs[160];
    for (uint64_t n = 0;; n++) {
        call other = make_call(values_random(seed, 100 + n), size);
        if (strcmp(text_of(c, mine, sizeof mine), text_of(&other, theirs, sizeof theirs)) != 0)
            return other;
    }
}

static pair make_pair(int way, uint64_t seed, int size)
{
    call first = make_usual(way, seed, size), second = make_other(&first, seed, size);
    pair p = {.usual = {first}, .odd = {make_odd(way, &first, size)}};
    if (way == BY_OP)
        p.odd[0] = second;
    if (way == BY_ORDER)
        p = (pair){{first, second}, {second, first}, 0};
    if (way == BY_EXTRA)
        p = (pair){{first, second}, {first, first}, 1};
    if (way == BY_MISSING)
        p = (pair){{first, second}, {second}, 0};
    return p;
}

/* ---- running them ---- */

static void check_told(const pair *p, int way, int number)
{
    char text[160];
    const char *error = weft_last_error();
    if (way == BY_SPLITS || way == BY_PARTS) { /* told by who gives and who takes how much */
        CHECK_CONTAINS(error, way == BY_SPLITS ? "sends rank" : "calls it with");
        CHECK_CONTAINS(error, way == BY_SPLITS ? "expects" : "but rank");
        return;
    }
    text_of(&p->usual[p->at], text, sizeof text);
    if (!strstr(error, text))
        FAIL("pair %d (way %d): \"%s\" is not in \"%s\"", number, way, text, error);
    text_of(&p->odd[p->at], text, sizeof text);
    if (!strstr(error, text))
        FAIL("pair %d (way %d): \"%s\" is not in \"%s\"", number, way, text, error);
}

/* The same fate for all, told at once. */
static void check_fate(weft_group *group, int rank, int size)
{
    long long begin = harness_now();
    act a = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = 10};
    act_operands o = act_prepare(&a, rank, size);
    CHECK_STATUS(act_run(&a, &o, group), WEFT_ERR_MISMATCH);
    CHECK((harness_now() - begin) / 1000000 < 10000);
}

static void run_pair(weft_group *world, int rank, int size, int number)
{
    int way = number % WAYS;
    uint64_t seed = values_random(values_seed(), (uint64_t)number);
    bool odd = rank == (int)(values_random(seed, 9) % (unsigned)size);
    pair p = make_pair(way, seed, size);
    const call *mine = odd ? p.odd : p.usual;
    struct timespec pause = {0, (long)(values_random(seed, 20 + (unsigned)rank) % 3 * 200000)};
    weft_scope_open();
    weft_group *group = new_group(world, size);
    for (int i = 0; i < p.at; i++)
        CHECK_OK(run_call(&mine[i], rank, size, group));
    /* Who is ahead of calls that go one way would end the group under those who are not. */
    CHECK_OK(weft_group_barrier(world, 20000));
    nanosleep(&pause, NULL);
    weft_status status = run_call(&mine[p.at], rank, size, group);
    if (status == WEFT_OK &&
        goes_one_way(&mine[p.at])) { /* past who differs: the next call tells */
        call next = {.a = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = 3}};
        status = run_call(&next, rank, size, group);
    }
    if (status != WEFT_ERR_MISMATCH)
        FAIL("pair %d (way %d) gives %d: %.300s", number, way, (int)status, weft_last_error());
    check_told(&p, way, number);
    check_fate(group, rank, size);
    weft_scope_close();
    weft_clear_error();
}

/* In another group, of the same ranks: each waits for the others, who are named; nothing is lost.
 */
static void run_group_pair(weft_group *world, int rank, int size, int number)
{
    uint64_t seed = values_random(values_seed() + 1, (uint64_t)number);
    int odd = (int)(values_random(seed, 9) % (unsigned)size);
    call c = make_call(seed, size);
    for (uint64_t n = 30; goes_one_way(&c); n++)
        c = make_call(values_random(seed, n), size);
    char name[32];
    weft_scope_open();
    weft_group *groups[2] = {new_group(world, size), new_group(world, size)};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(wait_for(weft_barrier_start(groups[i]))); /* else it is the first call's meeting */
        CHECK_OK(weft_group_set_timeout(groups[i], 60));
    }
    weft_status status = run_call(&c, rank, size, groups[rank == odd]);
    if (status != WEFT_ERR_TIMEOUT)
        FAIL("group pair %d gives %d: %.300s", number, (int)status, weft_last_error());
    snprintf(name, sizeof name, "rank %d (", rank == odd ? (odd + 1) % size : odd);
    CHECK_CONTAINS(weft_last_error(), name);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_group_set_timeout(groups[0], 20000));
    CHECK_OK(run_call(&c, rank, size, groups[0]));
    weft_scope_close();
}

static void run_pairs(int rank, int size)
{
    enum { PAIRS = VALUES_SANITIZED ? 52 : 221, GROUP_PAIRS = VALUES_SANITIZED ? 2 : 6 };
    weft_group *world = join(20000);
    for (int number = 0; number < PAIRS; number++)
        run_pair(world, rank, size, number);
    for (int number = 0; number < GROUP_PAIRS; number++)
        run_group_pair(world, rank, size, number);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

HOSTS_TOO_TEST(test_mismatch_pairs_2, 2)
{
    run_pairs(rank, size);
}

HOSTS_TOO_TEST(test_mismatch_pairs_3, 3)
{
    run_pairs(rank, size);
}

/* Both posted, waited for later, and from the wrong end. */
HOSTS_TOO_TEST(test_mismatch_posted_order, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4)),
                *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5));
    weft_work *first =
        rank ? weft_broadcast_start(y, 0, world) : weft_all_reduce_start(x, x, WEFT_SUM, world);
    weft_work *second =
        rank ? weft_all_reduce_start(x, x, WEFT_SUM, world) : weft_broadcast_start(y, 0, world);
    CHECK_STATUS(weft_work_wait(second, WEFT_DEFAULT), WEFT_ERR_MISMATCH);
    CHECK_STATUS(weft_work_wait(first, WEFT_DEFAULT), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "all_reduce of 12 f32, sum, shape [3, 4]");
    CHECK_CONTAINS(weft_last_error(), "broadcast of 5 f32, root 0, shape [5]");
    (void)size;
    finish(world);
}

/* A call more than the others make: they do something else meanwhile, or have left. */
HOSTS_TOO_TEST(test_mismatch_extra_at_the_end, 3)
{
    weft_group *world = join(20000), *group = new_group(world, size);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    if (rank == 0) {
        CHECK_OK(weft_group_set_timeout(group, 200));
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, group), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 1 (");
        CHECK_CONTAINS(weft_last_error(), "rank 2 (");
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0) {
        CHECK_OK(weft_group_set_timeout(group, 20000));
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, group), WEFT_ERR_PEER_LEFT);
    }
    finish(world);
}

/* The arrival word of this rank at the next entry is gone, as it is while the rank gives up; the
 * word it had. */
static uint64_t take_back(const weft_group *group)
{
    const weft_i_lane *lane = group->lane;
    _Atomic uint64_t *word = weft_i_point_turn(&lane->entry, lane->me, lane->epoch + 1);
    return atomic_exchange_explicit(word, 0, memory_order_acq_rel);
}

static void put_back(const weft_group *group, uint64_t word)
{
    const weft_i_lane *lane = group->lane;
    atomic_store_explicit(weft_i_point_turn(&lane->entry, lane->me, lane->epoch + 1), word,
                          memory_order_release);
}

/*
 * Rank 0 waits for all in its call, rank 1 for rank 0 alone, and finds the mismatch.  That ends the
 * group.  Rank 0 takes its arrival back for a moment, until it sees why.  Rank 2 comes in that
 * moment, with the call of rank 1: what rank 0 called cannot be seen at the entry, but is told all
 * the same.
 */
RANKS_TEST(test_mismatch_late_receiver, 3)
{
    static const act_kind waits[] = {ACT_GATHER, ACT_ALL_REDUCE, ACT_REDUCE},
                          takes[] = {ACT_BROADCAST, ACT_SCATTER};
    weft_group *world = join(20000);
    for (int number = 0; number < 6; number++) {
        call warm = {.a = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = 3}};
        call giver = {.a = {.kind = waits[number % 3], .dtype = WEFT_F32, .count = 5}};
        call taker = {.a = {.kind = takes[number / 3], .dtype = WEFT_F32, .count = 5}};
        char one[160], other[160];
        weft_scope_open();
        weft_group *group = new_group(world, size);
        CHECK_OK(run_call(&warm, rank, size, group));
        if (rank == 2)
            CHECK(harness_await(0, number + 1) && harness_await(1, number + 1));
        CHECK_STATUS(run_call(rank ? &taker : &giver, rank, size, group), WEFT_ERR_MISMATCH);
        check_both(text_of(&giver, one, sizeof one), text_of(&taker, other, sizeof other), number);
        uint64_t word = rank ? 0 : take_back(group);
        harness_mark();
        if (rank == 0) {
            CHECK(harness_await(2, number + 1));
            put_back(group, word);
        }
        check_fate(group, rank, size);
        weft_scope_close();
        weft_clear_error();
    }
    finish(world);
}

/* ---- operations that meet on the board against collectives, and against each other ---- */

enum { BARRIER, MONITORED, SPLIT, SPLIT_LISTS, RENDEZVOUS, NEW, BOARD_OPS };

static const char *const board_names[BOARD_OPS] = {
    "group_barrier", "monitored_barrier", "group_split", "split_lists", "rendezvous", "group_new"};

static weft_status run_on_board(int op, int size, weft_group *group)
{
    int all[VALUES_RANKS];
    for (int i = 0; i < size; i++)
        all[i] = i;
    weft_rank_list list = {all, size};
    weft_clear_error();
    switch (op) {
    case BARRIER:
        return weft_group_barrier(group, WEFT_DEFAULT);
    case MONITORED:
        return weft_monitored_barrier(group, WEFT_DEFAULT, true);
    case SPLIT:
        return weft_group_split(group, 0, 0) ? WEFT_OK : weft_last_status();
    case SPLIT_LISTS:
        return weft_group_split_lists(group, &list, 1, NULL) ? WEFT_OK : weft_last_status();
    case NEW:
        return weft_group_new(group, all, size, NULL) ? WEFT_OK : weft_last_status();
    default: {
        weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5));
        return weft_symm_rendezvous(x, group) ? WEFT_OK : weft_last_status();
    }
    }
}

/* Every form that a collective has. */
static call collective(int pick)
{
    call c = {.form = pick < ACT_KINDS ? PLAIN : (form)(pick - ACT_KINDS + 1),
              .a = {.kind = pick < ACT_KINDS ? (act_kind)pick : ACT_ALL_REDUCE,
                    .dtype = WEFT_F32,
                    .count = pick % 3 ? 5 : 900,
                    .posted = pick % 4 == 3},
              .tensors = 2};
    return c;
}

/* One rank goes to the board, or all but one; the others call a collective. */
static void run_board_pair(weft_group *world, int rank, int size, int op, int pick)
{
    int number = op * (ACT_KINDS + FORMS) + pick, odd = number % size;
    call c = collective(pick),
         next = {.a = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = 3}};
    bool on_board = (rank == odd) == (number / size % 2 == 0);
    char text[160];
    weft_scope_open();
    weft_group *group = new_group(world, size);
    if (number / 2 % 2) /* the bounce buffer is there already */
        CHECK_OK(run_call(&next, rank, size, group));
    weft_status status = on_board ? run_on_board(op, size, group) : run_call(&c, rank, size, group);
    bool past = status == WEFT_OK && goes_one_way(&c);
    if (past) /* who only gave, or was given to, is told at the next call */
        status = run_call(&next, rank, size, group);
    if (status != WEFT_ERR_MISMATCH)
        FAIL("pair %d gives %d: %.300s", number, (int)status, weft_last_error());
    check_both(board_names[op], goes_one_way(&c) ? "" : text_of(&c, text, sizeof text), number);
    check_fate(group, rank, size);
    if (op != NEW) /* that needs only the parent's members */
        CHECK_STATUS(run_on_board(op, size, group), WEFT_ERR_MISMATCH);
    weft_scope_close();
    weft_clear_error();
}

static void run_board_pairs(int rank, int size)
{
    weft_group *world = join(20000);
    for (int op = 0; op < BOARD_OPS; op++)
        for (int pick = op % (VALUES_SANITIZED ? 3 : 1); pick < ACT_KINDS + FORMS - 1;
             pick += VALUES_SANITIZED ? 3 : 1)
            run_board_pair(world, rank, size, op, pick);
    for (int op = 0; op < BOARD_OPS; op++)
        for (int other = 0; other < BOARD_OPS; other++) {
            weft_group *group = op == other ? NULL : new_group(world, size);
            bool odd = rank == (op + other) % size;
            if (!group)
                continue;
            CHECK_STATUS(run_on_board(odd ? other : op, size, group), WEFT_ERR_MISMATCH);
            check_both(board_names[op], board_names[other], op * BOARD_OPS + other);
            check_fate(group, rank, size);
        }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

HOSTS_TOO_TEST(test_mismatch_board_2, 2)
{
    run_board_pairs(rank, size);
}

HOSTS_TOO_TEST(test_mismatch_board_3, 3)
{
    run_board_pairs(rank, size);
}

/*
 * The first call of the group is a collective of one rank, which waits for all to make the lane.
 * The others make a group, in which that rank is missed first, and help from there.  They come at
 * different times: the second one when the first has helped for longer than its patience once was,
 * and had gone back to wait for twice as long.
 */
RANKS_TEST(test_mismatch_board_late_helper, 3)
{
    enum { LATE_US = 75000 };
    weft_group *world = join(20000);
    call c = {.form = LIST_ALL_REDUCE, .a = {.dtype = WEFT_F32, .count = 5}, .tensors = 2};
    for (int number = 0; number < 3; number++) {
        int early = number, odd = (number + 1) % 3, late = (number + 2) % 3;
        weft_group *group = new_group(world, size);
        _Atomic uint64_t *helps = &group->board->row[early].lane_arrival;
        char text[160];
        weft_clear_error();
        if (rank == late) { /* relaxed: only whether it has begun */
            for (int ms = 0; ms < 10000 && !atomic_load_explicit(helps, memory_order_relaxed); ms++)
                rest_us(1000);
            rest_us(LATE_US);
        }
        weft_status status = rank == odd ? run_call(&c, rank, size, group)
                             : weft_group_new(group, (int[]){early, odd, late}, 3, NULL)
                                 ? WEFT_OK
                                 : weft_last_status();
        CHECK_STATUS(status, WEFT_ERR_MISMATCH);
        check_both("group_new", text_of(&c, text, sizeof text), number);
        check_fate(group, rank, size);
        weft_clear_error();
    }
    finish(world);
}

/* Posted work is no quarrel with a barrier, however long it is under way. */
RANKS_TEST(test_mismatch_not_posted, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20000));
    weft_work *work = rank ? NULL : weft_all_reduce_start(x, x, WEFT_SUM, world);
    if (rank)
        rest_us(20000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank)
        work = weft_all_reduce_start(x, x, WEFT_SUM, world);
    CHECK_OK(wait_for(work));
    CHECK(weft_item(x, 0) == 2);
    finish(world);
}

/* Nor with making a group, whether or not the posted call is the first of its group, whose stage
 * all must make. */
RANKS_TEST(test_mismatch_not_posted_new, 2)
{
    weft_group *world = join(20000);
    for (int number = 0; number < 4; number++) {
        int all[] = {number / 2, 1 - number / 2}; /* the first one makes the board */
        weft_scope_open();
        weft_group *group = new_group(world, size), *child = NULL;
        weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20000));
        if (number % 2)
            CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, group));
        weft_work *work = rank ? NULL : weft_all_reduce_start(x, x, WEFT_SUM, group);
        if (rank)
            rest_us(5000); /* else it may come before the posted call is under way */
        child = weft_group_new(group, all, 2, NULL);
        if (!child)
            FAIL("%d: %s", number, weft_last_error());
        if (rank)
            work = weft_all_reduce_start(x, x, WEFT_SUM, group);
        CHECK_OK(wait_for(work));
        CHECK(weft_item(x, 0) == 2);
        CHECK_OK(weft_group_barrier(child, WEFT_DEFAULT));
        weft_scope_close();
    }
    finish(world);
}

/* ---- a rank that looks at what was true a moment ago ---- */

static weft_i_os slow_table;
static const weft_group *slow_group;

/* Is this the look at the clock with which a rank begins to look for a quarrel?  By then it has
 * seen who is missing. */
static bool is_in_look(const void *caller)
{
    enum { CODE_BYTES = 1024 };
    uintptr_t at = (uintptr_t)caller, begin = (uintptr_t)weft_i_vigil_look;
    return at > begin && at < begin + CODE_BYTES;
}

/* Rank 0 has seen that rank 1 is missing, and stands still until rank 1 has come, gone on to a
 * collective and waits for it there. */
static int64_t slow_clock(void)
{
    const weft_i_stuck *theirs = &slow_group->board->row[1].stuck;
    static int looks; /* the first one only notes when the wait began */
    if (!is_in_look(__builtin_return_address(0)) || looks++ != 1)
        return weft_i_os_linux.clock_ns();
    harness_mark();
    /* Relaxed: only whether it waits. */
    for (int ms = 0; ms < 10000 && !atomic_load_explicit(&theirs->where, memory_order_relaxed);
         ms++)
        rest_us(1000);
    return weft_i_os_linux.clock_ns() + 10000000; /* it has waited long enough to look */
}

/* A barrier that all have come to is no quarrel with what follows it, however slow a rank is. */
RANKS_TEST(test_mismatch_not_slow, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8));
    if (harness_in_threads)
        SKIP("ranks that are threads share one clock");
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    slow_group = world;
    if (rank == 0) {
        slow_table = weft_i_os_linux;
        slow_table.clock_ns = slow_clock;
        weft_i_os_now = &slow_table;
    } else {
        CHECK(harness_await(0, 1));
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_i_os_now = &weft_i_os_linux;
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    (void)size;
    finish(world);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}

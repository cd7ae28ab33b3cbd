/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/lane.c, coll/lane/enter.c, coll/calls/run.c, fabric/group/quarrel.c */
/*
 * Faults inside collectives: calls that differ between ranks, ranks that do not come, die or stop
 * at any moment, and calls to the system that fail.  What must hold: every rank gets an error that
 * names the cause, soon; inputs are as they were; after a time limit at the entry the group goes
 * on; after anything else the survivors make a new group and go on there.
 */
#include "coll_acts.h"
#include "fault.h"
#include "jobs.h"

#include "coll/lane/lane.h"

#include <sys/time.h>

static const int64_t counts[] = {0, 1, 5, 100, 900, 40000};
static const weft_dtype dtypes[] = {WEFT_F32, WEFT_I64, WEFT_U8, WEFT_BF16};
static const weft_reduction reductions[] = {WEFT_SUM, WEFT_MIN, WEFT_MAX, WEFT_PRODUCT};

static weft_group *group_of_first(weft_group *world, int count)
{
    int ranks[VALUES_RANKS];
    for (int i = 0; i < count; i++)
        ranks[i] = i;
    weft_group *group = weft_group_new(world, ranks, count, NULL);
    if (!group)
        FAIL("weft_group_new: %s", weft_last_error());
    return group;
}

static act make_act(uint64_t seed, int size)
{
    act a = {.kind = (act_kind)(values_random(seed, 1) % ACT_KINDS),
             .dtype = dtypes[values_random(seed, 2) % 4],
             .reduction = reductions[values_random(seed, 3) % 4],
             .root = (int)(values_random(seed, 4) % (unsigned)size),
             .count = counts[values_random(seed, 5) % 6],
             .posted = values_random(seed, 6) % 4 == 0,
             .seed = seed};
    return a;
}

/* ---- calls that differ ---- */

enum { BY_KIND, BY_COUNT, BY_DTYPE, BY_REDUCTION, BY_ROOT, BY_SPLITS, BY_FORM, BY_ORDER, WAYS };

/* Makes `base` fit the way to differ, and `other` differ from it so. */
static void make_differ(int way, uint64_t seed, int size, act *base, act *other)
{
    act another = make_act(values_mix(seed), size);
    if (way == BY_REDUCTION)
        base->kind = seed % 2 ? ACT_ALL_REDUCE : ACT_REDUCE_SCATTER;
    if (way == BY_ROOT)
        base->kind = (act_kind[]){ACT_REDUCE, ACT_BROADCAST, ACT_GATHER, ACT_SCATTER}[seed % 4];
    if (way == BY_SPLITS || way == BY_FORM)
        base->kind = ACT_UNEVEN;
    if ((way == BY_COUNT || way == BY_DTYPE) &&
        (base->kind == ACT_BARRIER || (way == BY_COUNT && base->kind == ACT_UNEVEN)))
        base->kind = ACT_ALL_GATHER;
    *other = *base;
    if (way == BY_KIND || way == BY_ORDER)
        other->kind = (act_kind)((base->kind + 1 + seed % (ACT_KINDS - 1)) % ACT_KINDS);
    if (way == BY_COUNT)
        other->count = base->count ? base->count - 1 : 1 + another.count;
    if (way == BY_DTYPE)
        other->dtype = base->dtype == WEFT_F32 ? WEFT_I64 : WEFT_F32;
    if (way == BY_REDUCTION)
        other->reduction = base->reduction == WEFT_SUM ? WEFT_MAX : WEFT_SUM;
    if (way == BY_ROOT)
        other->root = (base->root + 1) % size;
    if (way == BY_SPLITS)
        other->odd = 1;
    if (way == BY_FORM)
        other->kind = ACT_ALL_TO_ALL;
}

/* Both calls are told to everybody. */
static void check_told(int way, const act *base, const act *other)
{
    char text[160];
    const char *error = weft_last_error();
    if (way == BY_SPLITS) {
        CHECK_CONTAINS(error, "sends rank 0");
        CHECK_CONTAINS(error, "expects");
        return;
    }
    CHECK_CONTAINS(error, act_text(base, text, sizeof text));
    CHECK_CONTAINS(error, act_text(other, text, sizeof text));
}

static void check_later_call(weft_group *group, int rank, int size)
{
    long long begin = harness_now();
    act a = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = 10};
    act_operands o = act_prepare(&a, rank, size);
    weft_status status = act_run(&a, &o, group);
    if (status != WEFT_ERR_MISMATCH && status != WEFT_ERR_REVOKED && status != WEFT_ERR_PEER_DEAD &&
        status != WEFT_ERR_PEER_LEFT)
        FAIL("a call after the group was lost gives %d", (int)status);
    CHECK(act_input_is_intact(&a, &o, rank));
    CHECK((harness_now() - begin) / 1000000 < 10000); /* the limit is 20 s */
}

static void run_mismatch(weft_group *world, int rank, int size, int number)
{
    uint64_t seed = values_random(values_seed(), (uint64_t)number);
    int way = number % WAYS, odd = (int)(values_random(seed, 9) % (unsigned)size);
    act base = make_act(seed, size), other;
    make_differ(way, seed, size, &base, &other);
    weft_scope_open();
    weft_group *group = group_of_first(world, size);
    const act *mine = rank == odd ? &other : &base;
    act_operands o = act_prepare(mine, rank, size);
    rest_us((long)(values_random(seed, 20 + (unsigned)rank) % 3 * 400));
    weft_status status = act_run(mine, &o, group);
    bool passed = status == WEFT_OK && act_has_root(mine->kind);
    if (passed) {
        /* Went one way, past the rank that called something else: the next call tells. */
        act next = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = 3};
        act_operands p = act_prepare(&next, rank, size);
        status = act_run(&next, &p, group);
    }
    if (status != WEFT_ERR_MISMATCH)
        FAIL("pair %d (way %d) gives %d: %.300s", number, way, (int)status, weft_last_error());
    check_told(way, &base, &other);
    CHECK(passed || act_input_is_intact(mine, &o, rank));
    check_later_call(group, rank, size);
    weft_scope_close();
    weft_clear_error();
}

static void run_mismatches(int rank, int size)
{
    enum { PAIRS = VALUES_SANITIZED ? 40 : 208 };
    weft_group *world = join(20000);
    for (int number = 0; number < PAIRS; number++)
        run_mismatch(world, rank, size, number);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_coll_fault_mismatch_2, 2)
{
    run_mismatches(rank, size);
}

RANKS_TEST(test_coll_fault_mismatch_3, 3)
{
    run_mismatches(rank, size);
}

/* One rank makes a call more than the others: it differs at the next one, or the others have left.
 */
RANKS_TEST(test_coll_fault_extra_call, 3)
{
    weft_group *world = join(20000);
    act first = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = 100},
        second = {.kind = ACT_BROADCAST, .dtype = WEFT_F32, .count = 100};
    weft_group *group = group_of_first(world, size);
    act_operands o = act_prepare(&first, rank, size), p = act_prepare(&second, rank, size);
    CHECK_OK(act_run(&first, &o, group));
    if (rank != 1)
        CHECK_OK(act_run(&second, &p, group)); /* one way, from rank 0: only the next call tells */
    CHECK_STATUS(act_run(&first, &o, group), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "broadcast of 100");
    CHECK_CONTAINS(weft_last_error(), "all_reduce of 100");
    if (rank == 2) {
        weft_status status = act_run(&first, &o, world);
        if (status != WEFT_ERR_PEER_LEFT && status != WEFT_ERR_PEER_DEAD)
            FAIL("a call after the others have left gives %d", (int)status);
    }
    finish(world);
}

/* Thresholds that differ are a mismatch too. */
RANKS_TEST(test_coll_fault_tune, 2)
{
    if (harness_in_threads)
        SKIP("ranks that are threads share their thresholds");
    weft_group *world = join(20000);
    act a = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = WEFT_TUNE_INLINE};
    if (rank)
        CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, "all_reduce", size, 0));
    act_operands o = act_prepare(&a, rank, size);
    CHECK_STATUS(act_run(&a, &o, world), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "algorithm");
    finish(world);
}

/* Sends and receives that do not fit: the receiver learns it, and the sender if it still sends. */
static void run_pair_mismatch(int rank, int64_t sent, int64_t expected, weft_dtype dtype)
{
    weft_group *world = join(20000);
    weft_tensor *x =
        weft_zeros(rank ? dtype : WEFT_F32, WEFT_CPU, WEFT_SHAPE(rank ? expected : sent));
    bool whole = sent * 4 <= 16 << 10; /* fits the box: the sender is done before */
    weft_status status = rank ? weft_recv(x, 0, world) : weft_send(x, 1, world);
    if (rank == 0 && whole)
        CHECK_STATUS(status, WEFT_OK);
    else
        CHECK_STATUS(status, WEFT_ERR_MISMATCH);
    if (rank || !whole) {
        char text[64];
        snprintf(text, sizeof text, "rank 0 sends %lld bytes", (long long)sent * 4);
        CHECK_CONTAINS(weft_last_error(), text);
        CHECK_CONTAINS(weft_last_error(), "rank 1 expects");
    }
    if (!whole || rank) {
        status = rank ? weft_recv(x, 0, world) : weft_send(x, 1, world);
        CHECK_STATUS(status, WEFT_ERR_MISMATCH);
    }
    finish(world);
}

RANKS_TEST(test_coll_fault_pair_short, 2)
{
    run_pair_mismatch(rank, 10, 11, WEFT_F32);
}

RANKS_TEST(test_coll_fault_pair_long, 2)
{
    run_pair_mismatch(rank, 100000, 99999, WEFT_F32);
}

RANKS_TEST(test_coll_fault_pair_dtype, 2)
{
    run_pair_mismatch(rank, 10, 10, WEFT_I32);
}

/* ---- ranks that do not come in time ---- */

/* Who needs the late one gives it a moment; the others have all the time they want, and get through.
 * They go first: a root takes from one after the other, and names the one whom it waits for.  `marks`
 * is how often each rank has done so. */
static bool come_without(int late, weft_group *group, const act *a, act_operands *o, int rank,
                         bool first, int *marks)
{
    int size = weft_size(group);
    bool needs = first || act_needs(a, size, rank, late);
    for (int other = 0; other < size; other++) {
        marks[other] += other != late && !first && !act_needs(a, size, other, late);
        if (rank != late && needs)
            CHECK(harness_await(other, marks[other]));
    }
    if (rank == late)
        return false;
    CHECK_OK(weft_group_set_timeout(group, needs ? 30 : 20000));
    weft_status status = act_run(a, o, group);
    if (status != (needs ? WEFT_ERR_TIMEOUT : WEFT_OK))
        FAIL("kind %d of %lld gives %d without rank %d: %.300s", (int)a->kind, (long long)a->count,
             (int)status, late, weft_last_error());
    if (!needs)
        harness_mark();
    return !needs;
}

static void run_late(weft_group *world, weft_group *group, int rank, int size, act a, bool first,
                     int *marks)
{
    weft_scope_open();
    act_operands o = act_prepare(&a, rank, size);
    int late = (int)(a.seed % (unsigned)size);
    bool done = come_without(late, group, &a, &o, rank, first, marks);
    if (rank != late) {
        char name[32];
        snprintf(name, sizeof name, "rank %d (", late);
        if (!done)
            CHECK_CONTAINS(weft_last_error(), name);
        CHECK(done || act_input_is_intact(&a, &o, rank));
        weft_clear_error();
    }
    CHECK_OK(weft_group_barrier(world, 20000));
    CHECK_OK(weft_group_set_timeout(group, 20000));
    if (!done)
        CHECK_OK(act_run(&a, &o, group));
    CHECK_INT(act_check(&a, &o, rank, size), -1);
    weft_scope_close();
}

/* The first call of a group makes its lane, so that one is late in a different place. */
RANKS_TEST(test_coll_fault_late, 3)
{
    static const int64_t sizes[] = {3, 300, 50000};
    weft_group *world = join(20000), *steady = group_of_first(world, size);
    int marks[VALUES_RANKS] = {0};
    for (int number = 0; number < 3 * ACT_KINDS; number++) {
        act a = make_act(values_random(values_seed(), (uint64_t)number), size);
        a.kind = (act_kind)(number / 3);
        a.count = sizes[number % 3];
        weft_group *group = number % 3 == 0 ? group_of_first(world, size) : steady;
        run_late(world, group, rank, size, a, group != steady || number == 1, marks);
        if (group != steady)
            weft_release(group);
    }
    finish(world);
}

/* ---- early copies that are taken back ---- */

static weft_i_os early_table;
static int early_awaited;    /* marks of rank 1 that let rank 0's time go on */
static int64_t early_frozen; /* until then it stands still here */
static bool early_marked;

/* Rank 0's time stands still until rank 1 has copied from it, for 10 s at most. */
static int64_t early_clock(void)
{
    int64_t now = weft_i_os_linux.clock_ns();
    bool waits = harness_marks_of(1) < early_awaited && now - early_frozen < 10000000000;
    return waits && now > early_frozen ? early_frozen : now;
}

/* Rank 1 tells its first copy from another rank. */
static ssize_t early_read(pid_t process, void *to, uint64_t from, size_t bytes)
{
    ssize_t n = weft_i_os_linux.read_process(process, to, from, bytes);
    if (n > 0 && !early_marked)
        harness_mark();
    early_marked |= n > 0;
    return n;
}

/* Rank 0 comes with other data, and its time passes: between processes not before rank 1 has
 * copied them.  Then it brings the right ones in the same memory. */
static void come_and_go(const act *a, act_operands *o, weft_group *group, int number)
{
    values_put(a->dtype, VALUES_WHOLE, a->seed + 100, 0, 0, (size_t)o->in_count,
               weft_tensor_data(o->in));
    CHECK_OK(weft_group_set_timeout(group, 60));
    if (!harness_in_threads) {
        early_awaited = number + 1;
        early_frozen = weft_i_os_linux.clock_ns() + 30000000;
        early_table = weft_i_os_linux;
        early_table.clock_ns = early_clock;
        weft_i_os_now = &early_table;
    }
    weft_status status = act_run(a, o, group);
    if (!harness_in_threads)
        weft_i_os_now = &weft_i_os_linux;
    if (!harness_in_threads && harness_marks_of(1) < early_awaited)
        FAIL("kind %d of %lld: nothing was copied before all had come", (int)a->kind,
             (long long)a->count);
    CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
    weft_clear_error();
    CHECK_OK(weft_group_set_timeout(group, 20000));
    values_put(a->dtype, VALUES_WHOLE, a->seed, 0, 0, (size_t)o->in_count, weft_tensor_data(o->in));
    harness_mark();
}

static bool is_there(const weft_i_lane *lane, int rank)
{
    uint32_t next = lane->epoch + 1;
    /* Relaxed: says only that it has come. */
    uint64_t word =
        atomic_load_explicit(weft_i_point_turn(&lane->entry, rank, next), memory_order_relaxed);
    return weft_i_arrival_epoch(word) == next;
}

/* Rank 1 comes when rank 0 is there. */
static void come_second(weft_group *group)
{
    bool there = is_there(group->lane, 0); /* it may be gone when one looks again */
    for (int ms = 0; ms < 20000 && !there; ms++) {
        rest_us(1000);
        there = is_there(group->lane, 0);
    }
    CHECK(there);
    if (harness_in_threads) /* which do not copy early */
        return;
    early_marked = false;
    early_table = weft_i_os_linux;
    early_table.read_process = early_read;
    weft_i_os_now = &early_table;
}

/*
 * Ranks that are there copy from each other before all have come (src/coll/lane/prefetch.h).  Then the time
 * of one passes, who tries again with other data in the same memory while the second still waits:
 * that is what must arrive.  The last one comes when it has heard of that.
 */
RANKS_TEST(test_coll_fault_late_other_data, 3)
{
    static const act_kind pulled[] = {ACT_ALL_TO_ALL, ACT_ALL_GATHER, ACT_GATHER, ACT_SCATTER};
    static const char *const names[] = {"all_to_all", "all_gather", "gather", "scatter"};
    static const int64_t counts_of_parts[] = {20000, 100000}; /* large: nobody goes one way */
    weft_group *world = join(20000), *group = group_of_first(world, size);
    for (int i = 0; i < 4 && (rank == 0 || !harness_in_threads); i++)
        CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, names[i], size, 4096));
    CHECK_OK(weft_group_barrier(world, 20000));
    act warm = {.kind = ACT_ALL_GATHER, .dtype = WEFT_F32, .count = 20000};
    act_perform(&warm, rank, size, group);
    if (!harness_in_threads && ((weft_i_lane *)group->lane)->cma != WEFT_I_CMA_KERNEL)
        SKIP("this system does not let ranks read each other's memory");
    for (int number = 0; number < 8; number++) {
        act a = {.kind = pulled[number % 4], .dtype = WEFT_F32, .seed = (uint64_t)number};
        a.count = counts_of_parts[number / 4];
        a.root = a.kind == ACT_GATHER; /* rank 1 is who takes from rank 0 */
        weft_scope_open();
        act_operands o = act_prepare(&a, rank, size);
        CHECK_OK(weft_group_barrier(world, 20000));
        if (rank == 0)
            come_and_go(&a, &o, group, number);
        else if (rank == 1)
            come_second(group);
        else
            CHECK(harness_await(0, number + 1));
        weft_status status = act_run(&a, &o, group);
        if (!harness_in_threads)
            weft_i_os_now = &weft_i_os_linux;
        CHECK_OK(status);
        CHECK_INT(act_check(&a, &o, rank, size), -1);
        weft_scope_close();
    }
    finish(world);
}

/* A receive that nobody serves may be tried again; a long send that nobody takes has begun, and
 * ends the group. */
RANKS_TEST(test_coll_fault_late_pair, 2)
{
    weft_group *world = join(20000);
    weft_group *group = group_of_first(world, size);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100000), 1 + rank);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, group));
    if (rank) {
        CHECK_OK(weft_group_set_timeout(group, 30));
        CHECK_STATUS(weft_recv(x, 0, group), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 0 (");
        CHECK_OK(weft_group_set_timeout(group, 20000));
    } else {
        weft_fill(x, 5);
    }
    CHECK_OK(weft_group_barrier(group, 20000));
    CHECK_OK(rank ? weft_recv(x, 0, group) : weft_send(x, 1, group));
    CHECK(weft_item(x, 99999) == 5);
    if (!rank) {
        CHECK_OK(weft_group_set_timeout(group, 30));
        CHECK_STATUS(weft_send(x, 1, group), WEFT_ERR_TIMEOUT);
    }
    CHECK_OK(weft_group_barrier(world, 20000));
    CHECK_STATUS(rank ? weft_recv(x, 0, group) : weft_send(x, 1, group), WEFT_ERR_REVOKED);
    finish(world);
}

/* ---- ranks that die ---- */

static weft_i_os dying_table;
static atomic_int dying_left; /* relaxed: a count */

static void die_soon(void)
{
    if (atomic_fetch_sub_explicit(&dying_left, 1, memory_order_relaxed) == 1)
        kill(getpid(), SIGKILL);
}

static int64_t dying_clock(void)
{
    die_soon();
    return weft_i_os_linux.clock_ns();
}

static void dying_yield(void)
{
    die_soon();
    weft_i_os_linux.yield();
}

static void dying_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t duration)
{
    die_soon();
    weft_i_os_linux.futex_wait(word, expected, duration);
}

/* This rank dies at the n-th look at the clock, yield or sleep of its waits; or (n <= 0) after some
 * time, wherever it is then. */
static void arrange_death(int n, long us)
{
    struct itimerval alarm_in = {.it_value = {us / 1000000, us % 1000000 + 1}};
    harness_rank_dies();
    signal(SIGALRM, SIG_DFL);
    if (n <= 0) {
        setitimer(ITIMER_REAL, &alarm_in, NULL);
        return;
    }
    dying_table = weft_i_os_linux;
    dying_table.clock_ns = dying_clock;
    dying_table.yield = dying_yield;
    dying_table.futex_wait = dying_futex_wait;
    atomic_store_explicit(&dying_left, n, memory_order_relaxed);
    weft_i_os_now = &dying_table;
    alarm_in.it_value.tv_usec += 200000; /* if it never waits that often */
    setitimer(ITIMER_REAL, &alarm_in, NULL);
}

/* Repeats an act until something fails. */
static weft_status repeat(const act *a, int rank, int size, weft_group *group)
{
    for (;;) {
        weft_scope_open();
        act_operands o = act_prepare(a, rank, size);
        weft_status status = act_run(a, &o, group);
        if (status == WEFT_OK)
            CHECK_INT(act_check(a, &o, rank, size), -1);
        else if (a->kind != ACT_BROADCAST)
            CHECK(act_input_is_intact(a, &o, rank));
        weft_scope_close();
        if (status < 0)
            return status;
    }
}

/* The last rank of the group dies; the others go on without it, until two are left. */
static void run_deaths(int rank, int size, act_kind kind)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(20000);
    for (int left = size; left > 2; left--) {
        uint64_t seed = values_random(values_seed(), (uint64_t)(kind * 100 + left));
        act a = make_act(seed, left);
        a.kind = kind;
        a.count = (int64_t[]){10, 400, 60000}[(left + (int)kind) % 3];
        weft_scope_open();
        weft_group *group = group_of_first(world, left);
        if (rank == left - 1) {
            int n = seed % 2 ? 1 + (int)(values_random(seed, 30) % 60) : 0;
            arrange_death(n, (long)(values_random(seed, 31) % 20000));
            repeat(&a, rank, left, group);
            FAIL("it outlived its death");
        }
        weft_status status = repeat(&a, rank, left, group);
        char name[32];
        snprintf(name, sizeof name, "rank %d (", left - 1);
        CHECK_STATUS(status, WEFT_ERR_PEER_DEAD);
        CHECK_CONTAINS(weft_last_error(), name);
        check_later_call(group, rank, left);
        weft_scope_close();
        weft_clear_error();
    }
    weft_group *last = group_of_first(world, 2);
    act a = {.kind = kind, .dtype = WEFT_F32, .count = 100};
    act_operands o = act_prepare(&a, rank, 2);
    CHECK_OK(act_run(&a, &o, last));
    CHECK_INT(act_check(&a, &o, rank, 2), -1);
    finish(world);
}

#define DEATH_TEST(name_, kind_)                 \
    RANKS_TEST(test_coll_fault_death_##name_, 6) \
    {                                            \
        run_deaths(rank, size, kind_);           \
    }

DEATH_TEST(all_reduce, ACT_ALL_REDUCE)
DEATH_TEST(reduce, ACT_REDUCE)
DEATH_TEST(broadcast, ACT_BROADCAST)
DEATH_TEST(all_gather, ACT_ALL_GATHER)
DEATH_TEST(gather, ACT_GATHER)
DEATH_TEST(scatter, ACT_SCATTER)
DEATH_TEST(reduce_scatter, ACT_REDUCE_SCATTER)
DEATH_TEST(all_to_all, ACT_ALL_TO_ALL)
DEATH_TEST(uneven, ACT_UNEVEN)
DEATH_TEST(barrier, ACT_BARRIER)

/* A rank that dies while it sends or receives, in the middle of a long message as a rule. */
static void run_pair_death(int rank, bool sender_dies)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1 << 20));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, world));
    if (rank == 2) { /* sees nothing of it */
        finish(world);
        return;
    }
    weft_status status = WEFT_OK;
    if ((rank == 0) == sender_dies)
        arrange_death(0, (long)(values_random(values_seed(), 3) % 5000));
    while (status == WEFT_OK)
        status = rank ? weft_recv(x, 0, world) : weft_send(x, 1, world);
    CHECK_STATUS(status, WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), sender_dies ? "rank 0 (" : "rank 1 (");
    finish(world);
}

RANKS_TEST(test_coll_fault_death_sender, 3)
{
    run_pair_death(rank, true);
}

RANKS_TEST(test_coll_fault_death_receiver, 3)
{
    run_pair_death(rank, false);
}

/* ---- ranks that stop ---- */

/* A short stop is nobody's death: everything goes on. */
RANKS_TEST(test_coll_fault_stop_short, 3)
{
    if (harness_in_threads)
        SKIP("a thread cannot stop alone");
    enum { STOPS = VALUES_SANITIZED ? 4 : 20 };
    weft_group *world = join(20000);
    for (int number = 0; number < STOPS; number++) {
        act a = make_act(values_random(values_seed() + 5, (uint64_t)number), size);
        a.count = a.count < 900 ? 60000 : a.count;
        pid_t child = rank == number % size ? arrange_stop(number * 150L, 20000, 0) : 0;
        for (int again = 0; again < 10; again++) {
            act_perform(&a, rank, size, world);
        }
        if (child > 0)
            waitpid(child, NULL, 0);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    }
    finish(world);
}

/* A long one, until the others' time has passed, at the entry or in the middle.  All of them get
 * out, and go on with it in a new group. */
static void stop_long(weft_group *world, int rank, int size, int number)
{
    act a = make_act(values_random(values_seed() + 6, (uint64_t)number), size);
    int victim = number % size;
    a.count = a.count < 900 ? 60000 : a.count;
    weft_scope_open();
    weft_group *group = group_of_first(world, size);
    act warm = {.kind = ACT_BARRIER, .dtype = WEFT_F32};
    act_operands none = act_prepare(&warm, rank, size);
    CHECK_OK(act_run(&warm, &none, group));
    if (rank != victim)
        CHECK_OK(weft_group_set_timeout(group, 100));
    int marks = (number + 1) * (size - 1);
    pid_t child = rank == victim ? arrange_stop(500 + number * 100L, 0, marks) : 0;
    long long begin = harness_now();
    weft_status status = repeat(&a, rank, size, group);
    if (rank != victim) {
        if (status != WEFT_ERR_TIMEOUT && status != WEFT_ERR_REVOKED)
            FAIL("kind %d gives %d: %.300s", (int)a.kind, (int)status, weft_last_error());
        if (status == WEFT_ERR_TIMEOUT && !a.posted) {
            char name[32];
            snprintf(name, sizeof name, "rank %d (", victim);
            CHECK_CONTAINS(weft_last_error(), name);
        }
        CHECK(harness_now() - begin < 15000 * 1000000LL);
        harness_mark();
        CHECK_OK(weft_group_revoke(group)); /* those who were at the entry could go on */
    } else {
        if (status != WEFT_ERR_REVOKED)
            FAIL("the stopped rank gets %d: %.300s", (int)status, weft_last_error());
        waitpid(child, NULL, 0);
    }
    weft_scope_close();
    weft_clear_error();
}

RANKS_TEST(test_coll_fault_stop_long, 3)
{
    if (harness_in_threads)
        SKIP("a thread cannot stop alone");
    enum { STOPS = VALUES_SANITIZED ? 2 : 8 };
    weft_group *world = join(20000);
    for (int number = 0; number < STOPS; number++)
        stop_long(world, rank, size, number);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* ---- calls to the system that fail ---- */

/* How a call went on all ranks. */
typedef struct outcome {
    bool fired; /* something was refused */
    int failed; /* ranks */
} outcome;

static outcome tell_all(weft_group *world, bool mine, weft_status status)
{
    weft_tensor *told = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), 0);
    ((float *)weft_tensor_data(told))[0] = mine;
    ((float *)weft_tensor_data(told))[1] = status < 0;
    CHECK_OK(weft_all_reduce_into(told, told, WEFT_SUM, world));
    return (outcome){weft_item(told, 0) > 0, (int)weft_item(told, 1)};
}

/* One call, in which rank 1 is refused the n-th thing; then all have the right result. */
static outcome run_short(weft_group *world, int rank, int size, int n, bool posted)
{
    act a = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = 100, .posted = posted};
    weft_group *group = group_of_first(world, size);
    act_operands o = act_prepare(&a, rank, size);
    weft_work *work = NULL;
    if (rank == 1)
        fault_arm(n);
    weft_status status = act_begin(&a, &o, group, &work);
    bool mine = rank == 1 && fault_disarm();
    if (posted && status < 0) { /* alone, and the others' call stands; or as all others */
        CHECK(act_input_is_intact(&a, &o, rank));
        harness_mark();
        weft_clear_error();
        status = act_begin(&a, &o, group, &work);
    }
    if (work)
        status = weft_work_wait(work, WEFT_DEFAULT);
    weft_clear_error();
    outcome all = tell_all(world, mine, status);
    if (all.failed != 0 && all.failed != size)
        FAIL("with failure %d, %d of %d ranks failed", n, all.failed, size);
    if (all.failed) {
        CHECK(act_input_is_intact(&a, &o, rank));
        CHECK_OK(act_run(&a, &o, group));
    }
    CHECK_INT(act_check(&a, &o, rank, size), -1);
    return all;
}

/* The n-th thing the system gives to one rank is refused, at the first call of a group: nobody has
 * a result, nobody waits for long, and the next try succeeds. */
static void run_shortage(int rank, int size, bool posted)
{
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    weft_group *world = join(20000);
    outcome all = {true, 0};
    int n = 1, failures = 0;
    for (; all.fired; n++) {
        CHECK(n < 200);
        weft_scope_open();
        all = run_short(world, rank, size, n, posted);
        failures += all.failed > 0;
        weft_scope_close();
    }
    CHECK(n > 3);
    CHECK(posted || failures > 0);
    CHECK(!posted || harness_marks_of(1) > harness_marks_of(0)); /* some failed alone */
    finish(world);
}

RANKS_TEST(test_coll_fault_shortage, 3)
{
    run_shortage(rank, size, false);
}

RANKS_TEST(test_coll_fault_shortage_posted, 3)
{
    run_shortage(rank, size, true);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    setenv("WEFT_KILL_GRACE", "30000", 1); /* what is left of a job goes on after deaths */
    return harness_main(argc, argv);
}

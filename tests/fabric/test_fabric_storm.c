/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/exchange.c, base/share/signal.c, fabric/world/world.c */
/*
 * Ranks under weather: barriers with tiny random limits, a storm of signals, forks in the middle,
 * many more ranks than cores.  What must hold: a barrier succeeds for all ranks or for none, and
 * everybody gets on.
 */
#include "jobs.h"

#include <weft/weft.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>

static unsigned next_random(unsigned *seed)
{
    return *seed = *seed * 1664525u + 1013904223u, *seed >> 8;
}

static void rest(unsigned us)
{
    struct timespec duration = {0, (long)us * 1000};
    nanosleep(&duration, NULL);
}

/* ---- limits ---- */

/* In rank 0's block: how many barriers each rank has passed, and when to stop. */
typedef struct tally {
    _Atomic int64_t target;
    _Atomic int64_t passed[64];
} tally;

typedef struct storm {
    weft_group *world;
    weft_symm *mem; /* NULL: the group's own barrier */
    tally *all;
    int rank, size;
    int64_t timeouts;
} storm;

static weft_status try_once(const storm *s, int64_t limit)
{
    return s->mem ? weft_symm_barrier(s->mem, 3, limit) : weft_group_barrier(s->world, limit);
}

/* After a timeout nobody may have passed the barrier that we have not. */
static void check_nobody_passed(const storm *s, int64_t mine)
{
    for (int peer = 0; peer < s->size; peer++)
        if (atomic_load(&s->all->passed[peer]) > mine)
            FAIL("rank %d passed barrier %lld though rank %d gave it up", peer, (long long)mine + 1,
                 s->rank);
}

static void weather(storm *s, long long until)
{
    unsigned seed = (unsigned)s->rank * 77 + 1;
    for (int64_t mine = 0; mine < atomic_load(&s->all->target);) {
        unsigned dice = next_random(&seed) % 16;
        if (next_random(&seed) % 64 == 0)
            rest(3000); /* longer than most limits, so that the others do give up, however idle the
                           machine is */
        weft_status status = try_once(s, dice < 10 ? 0 : dice < 14 ? 1 : 5);
        if (status == WEFT_OK) {
            atomic_store(&s->all->passed[s->rank], ++mine);
        } else {
            CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
            s->timeouts++;
            if (next_random(&seed) % 4 == 0)
                rest(next_random(&seed) % 60);
            check_nobody_passed(s, mine);
        }
        if (s->rank == 0 && harness_now() > until && atomic_load(&s->all->target) == INT64_MAX)
            atomic_store(&s->all->target, mine + 2);
    }
}

static void run_limits(int rank, int size, bool on_pads)
{
    weft_group *world = join(0);
    weft_tensor *x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(sizeof(tally)));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    storm s = {world, on_pads ? mem : NULL, weft_symm_buffer_ptr(mem, 0), rank, size, 0};
    if (rank == 0)
        atomic_store(&s.all->target, INT64_MAX);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    weather(&s, harness_now() + 700 * 1000000LL);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    int64_t target = atomic_load(&s.all->target);
    for (int peer = 0; peer < size; peer++)
        CHECK_INT(atomic_load(&s.all->passed[peer]), target);
    CHECK(target > 2); /* some barriers did succeed in the storm */
    CHECK(s.timeouts > 0);
    finish(world);
}

RANKS_TEST(test_storm_limits_2, 2)
{
    run_limits(rank, size, true);
}

RANKS_TEST(test_storm_limits_3, 3)
{
    run_limits(rank, size, true);
}

RANKS_TEST(test_storm_limits_4, 4)
{
    run_limits(rank, size, true);
}

RANKS_TEST(test_storm_group_limits_3, 3)
{
    run_limits(rank, size, false);
}

/* Signals between ranks with tiny limits: each is taken exactly once. */
RANKS_TEST(test_storm_semaphores, 4)
{
    enum { SIGNALS = 3000 };
    weft_group *world = join(0);
    weft_tensor *x = weft_symm_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(size));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int64_t put = 0, taken = 0;
    _Atomic int64_t *sent = (_Atomic int64_t *)weft_symm_buffer_ptr(mem, rank);
    _Atomic int64_t *theirs = (_Atomic int64_t *)weft_symm_buffer_ptr(mem, from);
    unsigned seed = (unsigned)rank;
    while (put < SIGNALS || taken < SIGNALS) {
        bool takes = put == SIGNALS || (taken < SIGNALS && next_random(&seed) % 2);
        int64_t limit = (int64_t)(next_random(&seed) % 3);
        if (!takes)
            atomic_store(sent, put + 1); /* what the signal says */
        weft_status status = takes ? weft_symm_wait_signal(mem, from, 1, limit)
                                   : weft_symm_put_signal(mem, to, 1, limit);
        if (status < 0)
            CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
        put += !takes && status == WEFT_OK;
        taken += takes && status == WEFT_OK;
        if (takes && status == WEFT_OK)
            CHECK(atomic_load(theirs) >= taken); /* no signal that was never put */
    }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    CHECK_STATUS(weft_symm_wait_signal(mem, from, 1, 0), WEFT_ERR_TIMEOUT); /* none is left over */
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

/* ---- signals of the system ---- */

static atomic_int rung;

static void ring(int signal)
{
    (void)signal;
    atomic_fetch_add(&rung, 1);
}

static void set_timer(long us)
{
    struct sigaction action = {.sa_handler = ring}; /* no SA_RESTART: every call may end in EINTR */
    struct itimerval every = {{0, us}, {0, us}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
}

RANKS_TEST(test_storm_signals, 3)
{
    if (rank == 0 || !weft_i_spawn_seat())
        set_timer(1000);
    weft_group *world = join(0);
    for (int round = 0; round < 60; round++) {
        weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
        weft_symm *mem = weft_symm_rendezvous(x, world);
        if (!mem)
            FAIL("round %d: %s", round, weft_last_error());
        for (int i = 0; i < 20; i++)
            CHECK_OK(weft_symm_barrier(mem, i, WEFT_DEFAULT));
        rest(3000);
        weft_group *half = weft_group_split(world, rank % 2, 0);
        CHECK(half);
        CHECK_OK(weft_group_barrier(half, WEFT_DEFAULT));
        weft_release(half);
        weft_release(mem);
        weft_release(x);
    }
    CHECK(atomic_load(&rung) > 20);
    finish(world);
    if (rank == 0 || !weft_i_spawn_seat())
        set_timer(0);
}

/* ---- forks ---- */

static int child_of_rank(weft_group *world, weft_symm *mem, weft_tensor *x)
{
    if (weft_group_barrier(world, 100) != WEFT_ERR_STATE)
        return 1;
    if (weft_symm_barrier(mem, 0, 100) != WEFT_ERR_STATE)
        return 2;
    int self[] = {weft_rank(world)};
    if (weft_group_new(world, self, 1, NULL) || weft_last_status() != WEFT_ERR_STATE)
        return 3;
    if (weft_symm_rendezvous(x, world) || weft_last_status() != WEFT_ERR_STATE)
        return 4;
    if (weft_group_split(world, 0, 0) || weft_last_status() != WEFT_ERR_STATE)
        return 5;
    if (weft_group_revoke(world) != WEFT_ERR_STATE)
        return 6;
    if (!strstr(weft_last_error(), "forked"))
        return 7;
    weft_finish(world); /* must not take the parent out of the job */
    weft_release(mem);
    weft_release(x);
    weft_release(world);
    return 0;
}

RANKS_TEST(test_storm_forks, 2)
{
    if (weft_i_spawn_seat())
        SKIP("a thread rank is not a process to fork");
    weft_group *world = join(0);
    weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        if (child == 0) {
            int code = child_of_rank(world, mem, x);
            /* The other way out runs what the program registered; not under LeakSanitizer, which
             * would take for leaks what the parent's other thread held when it forked. */
            if (round % 2 || __lsan_do_recoverable_leak_check)
                _exit(code);
            exit(code);
        }
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        weft_symm *more =
            weft_symm_rendezvous(weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4)), world);
        CHECK(more);
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_INT(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
        CHECK_OK(weft_symm_barrier(more, 0, WEFT_DEFAULT));
    }
    finish(world);
}

/* ---- pads that somebody writes over ---- */

typedef struct scribbler {
    weft_symm *mem;
    int size;
    atomic_bool over; /* relaxed: when to stop */
} scribbler;

/* Random words in every rank's pad.  A pad is the users' memory, and they may have gone mad. */
static void *scribble(void *arg)
{
    scribbler *s = arg;
    unsigned seed = 5;
    size_t words = weft_symm_signal_pad_size() / sizeof(uint32_t);
    while (!atomic_load_explicit(&s->over, memory_order_relaxed)) {
        for (int i = 0; i < 2000; i++) {
            uint32_t *pad = weft_symm_signal_pad_ptr(s->mem, (int)next_random(&seed) % s->size);
            uint32_t word = next_random(&seed) << (next_random(&seed) % 32);
            __atomic_store_n(&pad[next_random(&seed) % words], word, __ATOMIC_RELAXED);
        }
        rest(20);
    }
    return NULL;
}

/* Calls may succeed, or fail, but all of them end; and other memory is not touched by it. */
RANKS_TEST(test_storm_scribbled_pads, 3)
{
    enum { CALLS = 40, LIMIT_MS = 10 };
    weft_group *world = join(20000);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), world);
    weft_symm *sane =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), world);
    scribbler s = {mem, size, false};
    pthread_t thread;
    long long worst = 0;
    CHECK(mem && sane && (rank || !pthread_create(&thread, NULL, scribble, &s)));
    for (int i = 0; i < CALLS; i++) {
        int peer = (rank + 1) % size, from = (rank + size - 1) % size, channel = i % 3;
        long long begin = harness_now();
        if (i % 3 == 0)
            weft_symm_barrier(mem, channel, LIMIT_MS);
        else if (i % 3 == 1)
            weft_symm_put_signal(mem, peer, channel, LIMIT_MS);
        else
            weft_symm_wait_signal(mem, from, channel, LIMIT_MS);
        worst = harness_now() - begin > worst ? harness_now() - begin : worst;
        weft_clear_error();
    }
    atomic_store_explicit(&s.over, true, memory_order_relaxed);
    CHECK(rank || !pthread_join(thread, NULL));
    if (worst > 15000 * 1000000LL) /* of a loaded machine, but no hang */
        FAIL("a call with a limit of %d ms took %lld ms", (int)LIMIT_MS, worst / 1000000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_symm_barrier(sane, 0, WEFT_DEFAULT));
    finish(world);
}

/* ---- more ranks than cores ---- */

/* Of this thread. */
static double processor_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e3 + (double)used.tv_nsec * 1e-6;
}

static void run_crowd(int rank, int size)
{
    weft_group *world = join(0);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), world);
    CHECK(mem);
    double start = processor_ms();
    for (int i = 0; i < 300; i++)
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    double each_ms = (processor_ms() - start) / 300;
    if (each_ms > 1) /* spinning through time slices would take all of them */
        FAIL("a barrier of %d ranks takes %.1f ms of a core of each", size, each_ms);
    CHECK_OK(weft_symm_put_signal(mem, (rank + 1) % size, 0, WEFT_DEFAULT));
    CHECK_OK(weft_symm_wait_signal(mem, (rank + size - 1) % size, 0, WEFT_DEFAULT));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_storm_crowd_8, 8)
{
    run_crowd(rank, size);
}

RANKS_TEST(test_storm_crowd_16, 16)
{
    run_crowd(rank, size);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

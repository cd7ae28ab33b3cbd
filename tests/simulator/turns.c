/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns and virtual time.  Who has the turn owns everything in `sim`; it is handed over through the
 * word of the next thread, which sleeps until it is set.  Memory is in memory.c.
 */
#include "simulator/turns.h"

#include "base/machine/room.h"
#include "base/os/os.h"
#include "simulator/memory.h"
#include "tensor/object/scope.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    THREADS = WEFT_I_SIM_THREADS,
    START_NS = 1000 * 1000 * 1000,
    CLOCK_NS = 2000,          /* at most, for a look at the clock */
    YIELD_NS = 100 * 1000,    /* at most, for a yield */
    JUMP_NS = 300 * 1000,     /* at most, beyond the moment that all wait for */
    WORD_NS = 5 * 1000 * 1000 /* at most, from a death until it can be seen */
};

typedef enum doing { READY, SLEEPING, LOCKING, JOINING, WAITING, OVER } doing;

typedef struct thread {
    int rank; /* -1: the first thread */
    doing state;
    const void *object; /* a futex word, a mutex or a thread that it waits for; NULL: only time */
    int64_t deadline;   /* or WEFT_I_NEVER */
    bool (*ready)(void *arg); /* of WAITING */
    void *arg;
    bool doomed;           /* runs nothing any more, but ends */
    _Atomic uint32_t turn; /* 1: it may go on; release by the giver, acquire by the owner */
    void *(*body)(void *);
    void *argument;
    pthread_t real;
    jmp_buf out;
} thread;

typedef struct fate {
    uint64_t steps, allocations;
    int64_t frozen_until;
    bool dead, marked, gone;
    int64_t mark_at, gone_at; /* when its death can be seen; when all of it has ended */
} fate;

static struct {
    weft_i_sim_plan plan;
    weft_i_sim_result result;
    weft_i_os table, memory;
    thread threads[THREADS];
    int count, ranks;
    fate fates[WEFT_I_SIM_RANKS];
    uint64_t random, order;
    int64_t now;
    uint32_t left; /* points until the next turn */
    bool ending;   /* nothing is simulated any more: threads only end */
} sim;

static _Thread_local thread *self; /* NULL: not simulated */

/* ---- random numbers ---- */

void weft_i_sim_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!sim.result.complaint[0] && !sim.ending)
        vsnprintf(sim.result.complaint, sizeof sim.result.complaint, format, args);
    va_end(args);
}

static uint64_t next_random(void)
{
    sim.random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = sim.random;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t below(uint64_t bound)
{
    return bound ? next_random() % bound : 0;
}

static void note(uint64_t event)
{
    sim.result.hash = (sim.result.hash ^ event) * UINT64_C(0x100000001b3);
    sim.result.hash ^= sim.result.hash >> 29;
}

/* ---- who can go on ---- */

static fate *fate_of(const thread *of)
{
    return of->rank < 0 ? NULL : &sim.fates[of->rank];
}

/* Do they see the same objects at one address? */
static bool share_memory(const thread *a, const thread *b)
{
    return !sim.plan.system || a->rank == b->rank;
}

static bool can_run(const thread *of)
{
    const fate *its = fate_of(of);
    if (of->state != READY || (its && its->dead))
        return of->state != OVER && of->doomed && sim.ending;
    return !its || sim.now >= its->frozen_until;
}

/* What others can see of a death. */
static void show_death(int rank)
{
    fate *its = &sim.fates[rank];
    if (its->dead && !its->marked && its->mark_at <= sim.now) {
        its->marked = true;
        if (sim.plan.died)
            sim.plan.died(rank);
        for (int i = 0; i < sim.count && sim.plan.system; i++)
            if (sim.threads[i].rank == rank)
                sim.plan.system->over(i);
    }
    if (its->marked && !its->gone && its->gone_at <= sim.now) {
        its->gone = true;
        if (sim.plan.system)
            sim.plan.system->gone(rank);
    }
}

static bool is_due(const thread *one)
{
    const fate *its = fate_of(one);
    if (one->state == SLEEPING)
        return one->deadline <= sim.now;
    return one->state == WAITING && !(its && its->dead) &&
           (one->deadline <= sim.now || one->ready(one->arg));
}

static void wake_sleepers(void)
{
    for (int rank = 0; rank < sim.ranks; rank++)
        show_death(rank);
    if (sim.plan.system)
        sim.plan.system->pass();
    for (int i = 0; i < sim.count; i++)
        if (is_due(&sim.threads[i]))
            sim.threads[i].state = READY;
}

/* The next moment at which something happens by itself. */
static int64_t next_moment(void)
{
    int64_t next = sim.plan.system ? sim.plan.system->next() : WEFT_I_NEVER;
    for (int i = 0; i < sim.count; i++) {
        const thread *one = &sim.threads[i];
        const fate *its = fate_of(one);
        int64_t when = WEFT_I_NEVER;
        if ((one->state == SLEEPING || one->state == WAITING) && !(its && its->dead))
            when = one->deadline;
        else if (one->state == READY && its && !its->dead)
            when = its->frozen_until;
        next = when < next ? when : next;
    }
    for (int rank = 0; rank < sim.ranks; rank++) {
        const fate *its = &sim.fates[rank];
        int64_t when = !its->dead || its->gone ? WEFT_I_NEVER
                       : its->marked           ? its->gone_at
                                               : its->mark_at;
        next = when < next ? when : next;
    }
    return next;
}

static int runnable(int *out)
{
    int count = 0;
    for (int i = 0; i < sim.count; i++)
        if (can_run(&sim.threads[i]))
            out[count++] = i;
    return count;
}

/* ---- hanging ---- */

static void describe(void)
{
    static const char *const words[] = {
        "ready", "sleeps", "waits for a lock", "waits for a thread to end", "waits for the system",
        "over"};
    char *out = sim.result.state;
    size_t used = 0, bytes = sizeof sim.result.state;
    for (int i = 0; i < sim.count && used + 160 < bytes; i++) {
        const thread *one = &sim.threads[i];
        const fate *its = fate_of(one);
        if (one->state == OVER || (its && its->gone))
            continue;
        used += (size_t)snprintf(out + used, bytes - used, "%sthread %d of rank %d: %s%s%s",
                                 used ? "; " : "", i, one->rank, words[one->state],
                                 its && its->dead                     ? ", dead"
                                 : its && its->frozen_until > sim.now ? ", delayed"
                                                                      : "",
                                 one == self ? " (its turn)" : "");
        if (its)
            used += (size_t)snprintf(out + used, bytes - used, ", %llu points",
                                     (unsigned long long)its->steps);
    }
}

/* From here on all threads but the first one only end. */
static void give_up(void)
{
    if (!sim.result.hangs)
        describe();
    sim.result.hangs = true;
    sim.ending = true;
    for (int i = 1; i < sim.count; i++)
        sim.threads[i].doomed = true;
    sim.threads[0].state = READY;
}

static bool is_too_long(void)
{
    return sim.now > sim.plan.horizon_ns + START_NS || sim.result.points > sim.plan.points;
}

/* ---- turns ---- */

static thread *pick(void)
{
    int candidates[THREADS];
    for (;;) {
        wake_sleepers();
        int count = runnable(candidates);
        if (count)
            return &sim.threads[candidates[below((uint64_t)count)]];
        int64_t next = next_moment();
        if (next == WEFT_I_NEVER || is_too_long())
            give_up();
        else if (next > sim.now) /* a little later, so that what is due at about the same time is
                                    due at once */
            sim.now = next + (int64_t)below(JUMP_NS);
    }
}

static void wait_for_turn(thread *me)
{
    /* Pairs with the release in hand_over. */
    while (!atomic_load_explicit(&me->turn, memory_order_acquire))
        weft_i_os_linux.futex_wait(&me->turn, 0, START_NS);
    atomic_store_explicit(&me->turn, 0, memory_order_relaxed); /* our own until we give it away */
    self = me;
    if (sim.plan.system)
        sim.plan.system->enter(me->rank);
}

static void hand_over(thread *to)
{
    sim.result.turns++;
    note((uint64_t)(to - sim.threads) << 48 ^ (uint64_t)sim.now ^ sim.result.points << 20);
    /* Pairs with the acquire in wait_for_turn: the next one sees all that was done before. */
    atomic_store_explicit(&to->turn, 1, memory_order_release);
    weft_i_os_linux.futex_wake(&to->turn, 1);
}

static void leave_if_doomed(thread *me)
{
    if (me->doomed)
        longjmp(me->out, 1);
}

/* Somebody else's turn, perhaps ours again. */
static void turn(void)
{
    thread *me = self, *next = pick();
    sim.left = (uint32_t)below(2 * (uint64_t)sim.plan.every);
    if (next != me) {
        hand_over(next);
        wait_for_turn(me);
    }
    leave_if_doomed(me);
}

/* Waits until somebody makes us READY, or the deadline. */
static void block(doing state, const void *object, int64_t deadline)
{
    self->state = state;
    self->object = object;
    self->deadline = deadline;
    turn();
}

static void release(doing state, const void *object, int count)
{
    for (int i = 0; i < sim.count && count > 0; i++)
        if (sim.threads[i].state == state && sim.threads[i].object == object &&
            (state != LOCKING || share_memory(self, &sim.threads[i]))) {
            sim.threads[i].state = READY;
            count--;
        }
}

/* ---- faults ---- */

static void die(int rank)
{
    fate *its = &sim.fates[rank];
    if (its->dead)
        return;
    its->dead = true;
    its->mark_at = sim.now + (int64_t)below(WORD_NS);
    its->gone_at = its->mark_at + (int64_t)below(sim.plan.system ? WORD_NS : 1);
    sim.result.deaths |= UINT32_C(1) << rank;
    note(UINT64_C(0xdead) + (uint64_t)rank);
    for (int i = 0; i < sim.count; i++)
        if (sim.threads[i].rank == rank) {
            sim.threads[i].doomed = true;
            release(JOINING, &sim.threads[i], THREADS);
        }
}

static void suffer(fate *its, int rank)
{
    const weft_i_sim_fault *fault = &sim.plan.fault[rank];
    if (its->steps == fault->delay_at) {
        its->frozen_until = sim.now + fault->delay_ns;
        sim.left = 0;
    }
    if (its->steps == fault->death_at) {
        die(rank);
        leave_if_doomed(self);
    }
}

void weft_i_sim_point(void)
{
    thread *me = self;
    if (!me)
        return;
    if (sim.ending) {
        leave_if_doomed(me);
        return;
    }
    sim.result.points++;
    fate *its = fate_of(me);
    if (its) {
        its->steps++;
        if (its->steps == sim.plan.fault[me->rank].delay_at ||
            its->steps == sim.plan.fault[me->rank].death_at)
            suffer(its, me->rank);
    }
    if (is_too_long()) {
        give_up();
        leave_if_doomed(me);
    } else if (sim.left == 0) {
        turn();
    } else {
        sim.left--;
    }
}

/* ---- the table ---- */

static int64_t sim_clock_ns(void)
{
    if (self)
        sim.now += 1 + (int64_t)below(CLOCK_NS);
    return sim.now;
}

static void sim_sleep_ns(int64_t duration)
{
    weft_i_sim_point();
    if (self && !sim.ending)
        block(SLEEPING, NULL, sim.now + duration);
}

static void sim_yield(void)
{
    sim.now += 1 + (int64_t)below(YIELD_NS);
    sim.left = 0;
    weft_i_sim_point();
}

static void sim_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t duration)
{
    weft_i_sim_point();
    /* As the kernel does: looks and goes to sleep in one step. */
    if (!sim.ending && atomic_load_explicit(word, memory_order_seq_cst) == expected)
        block(SLEEPING, word,
              duration > WEFT_I_NEVER - sim.now ? WEFT_I_NEVER : sim.now + duration);
}

static void sim_futex_wake(_Atomic uint32_t *word, int count)
{
    release(SLEEPING, word, count);
    weft_i_sim_point();
}

static bool runs_short(void)
{
    fate *its = self ? fate_of(self) : NULL;
    return its && ++its->allocations == sim.plan.fault[self->rank].shortage_at;
}

static void *sim_alloc(size_t bytes)
{
    return runs_short() ? NULL : sim.memory.alloc(bytes);
}

static void *sim_resize(void *old, size_t bytes)
{
    return runs_short() ? NULL : sim.memory.resize(old, bytes);
}

static int sim_random_bytes(void *bytes, size_t count)
{
    for (char *at = bytes; count;) {
        uint64_t random = next_random();
        size_t some = count < sizeof random ? count : sizeof random;
        memcpy(at, &random, some);
        at += some;
        count -= some;
    }
    return 0;
}

/* ---- threads ---- */

static void *body_of(void *argument)
{
    thread *me = argument;
    wait_for_turn(me);
    if (!setjmp(me->out)) {
        leave_if_doomed(me);
        me->body(me->argument);
        weft_i_scope_abandon(true);
    }
    me->doomed = true;
    weft_i_scope_abandon(false);
    me->state = OVER;
    release(JOINING, me, THREADS);
    if (sim.plan.system && !sim.fates[me->rank].dead)
        sim.plan.system->over((int)(me - sim.threads));
    hand_over(pick());
    self = NULL;
    return NULL;
}

/* A thread of a process; errno value. */
static int make_thread(int rank, void *(*body)(void *), void *argument, pthread_t *out)
{
    if (sim.count == THREADS || rank >= WEFT_I_SIM_RANKS)
        return EAGAIN;
    thread *made = &sim.threads[sim.count];
    *made = (thread){.rank = rank, .body = body, .argument = argument, .deadline = WEFT_I_NEVER};
    int error = weft_i_os_linux.thread_create(&made->real, body_of, made);
    if (error)
        return error;
    sim.count++;
    *out = made->real;
    return 0;
}

static int sim_thread_create(pthread_t *out, void *(*body)(void *), void *argument)
{
    int error = make_thread(self->rank < 0 ? sim.ranks : self->rank, body, argument, out);
    if (error)
        return error;
    sim.ranks += self->rank < 0;
    weft_i_sim_point();
    return 0;
}

int weft_i_sim_start(void *(*body)(void *), void *argument)
{
    pthread_t real;
    return make_thread(sim.ranks, body, argument, &real) ? -1 : sim.ranks++;
}

static void sim_thread_join(pthread_t wanted)
{
    weft_i_sim_point();
    for (int i = 0; i < sim.count && !sim.ending; i++) {
        const thread *one = &sim.threads[i];
        const fate *its = fate_of(one);
        if (i && pthread_equal(one->real, wanted))
            while (one->state != OVER && !(its && its->dead) && !sim.ending)
                block(JOINING, one, WEFT_I_NEVER);
    }
}

static void sim_thread_detach(void)
{
}

int weft_i_sim_lock(pthread_mutex_t *mutex, int (*real)(pthread_mutex_t *))
{
    weft_i_sim_point();
    if (!self)
        return real(mutex);
    while (pthread_mutex_trylock(mutex) && !sim.ending)
        block(LOCKING, mutex, WEFT_I_NEVER);
    return 0;
}

int weft_i_sim_unlock(pthread_mutex_t *mutex, int (*real)(pthread_mutex_t *))
{
    int error = real(mutex);
    if (self) {
        release(LOCKING, mutex, THREADS);
        weft_i_sim_point();
    }
    return error;
}

/* ---- for a simulated system ---- */

int weft_i_sim_rank(void)
{
    return self ? self->rank : -1;
}

int weft_i_sim_thread(void)
{
    return self ? (int)(self - sim.threads) : -1;
}

int weft_i_sim_rank_of(int number)
{
    return sim.threads[number].rank;
}

uint64_t weft_i_sim_below(uint64_t bound)
{
    return below(bound);
}

void weft_i_sim_note(uint64_t event)
{
    note(event);
}

void weft_i_sim_spend(int64_t most_ns)
{
    sim.now += 1 + (int64_t)below((uint64_t)most_ns);
}

bool weft_i_sim_wait(bool (*ready)(void *arg), void *arg, int64_t deadline)
{
    while (!ready(arg)) {
        if (sim.ending || sim.now >= deadline)
            return false;
        self->ready = ready;
        self->arg = arg;
        block(WAITING, NULL, deadline);
    }
    return true;
}

void weft_i_sim_kill(int rank)
{
    if (!sim.ending)
        die(rank);
    leave_if_doomed(self);
}

void weft_i_sim_hold(int rank, int64_t until)
{
    sim.fates[rank].frozen_until = until;
    sim.left = 0;
}

bool weft_i_sim_is_dead(int rank)
{
    return sim.fates[rank].dead;
}

bool weft_i_sim_is_held(int rank)
{
    return sim.fates[rank].frozen_until > sim.now;
}

bool weft_i_sim_is_ending(void)
{
    return sim.ending;
}

/* ---- a run ---- */

uint64_t weft_i_sim_steps(void)
{
    return self && self->rank >= 0 ? sim.fates[self->rank].steps : 0;
}

int64_t weft_i_sim_now(void)
{
    return sim.now;
}

uint64_t weft_i_sim_order(void)
{
    return ++sim.order;
}

void weft_i_sim_begin(const weft_i_sim_plan *plan)
{
    memset(&sim, 0, sizeof sim);
    weft_i_room_forget();
    sim.plan = *plan;
    sim.random = plan->seed;
    sim.now = START_NS;
    sim.result.hash = UINT64_C(0xcbf29ce484222325);
    sim.count = 1;
    sim.threads[0].rank = -1;
    self = &sim.threads[0];
    sim.table = weft_i_os_linux;
    sim.table.clock_ns = sim_clock_ns;
    sim.table.sleep_ns = sim_sleep_ns;
    sim.table.yield = sim_yield;
    sim.table.futex_wait = sim_futex_wait;
    sim.table.futex_wake = sim_futex_wake;
    sim.table.random_bytes = sim_random_bytes;
    sim.table.thread_create = sim_thread_create;
    sim.table.thread_join = sim_thread_join;
    sim.table.thread_detach = sim_thread_detach;
    weft_i_sim_memory_watch(&sim.table);
    if (plan->system)
        plan->system->fill(&sim.table);
    sim.memory = sim.table;
    sim.table.alloc = sim_alloc;
    sim.table.resize = sim_resize;
    weft_i_os_now = &sim.table;
}

static bool all_over(void)
{
    for (int i = 1; i < sim.count; i++)
        if (sim.threads[i].state != OVER && !sim.threads[i].doomed)
            return false;
    return true;
}

void weft_i_sim_end(weft_i_sim_result *out)
{
    while (!all_over() && !sim.ending) /* threads that nobody joins have some time to end */
        sim_sleep_ns(1000000);
    sim.ending = true;
    for (int i = 1; i < sim.count; i++) /* the dead: one after the other */
        while (sim.threads[i].state != OVER) {
            hand_over(&sim.threads[i]);
            wait_for_turn(&sim.threads[0]);
        }
    for (int i = 1; i < sim.count; i++)
        weft_i_os_linux.thread_join(sim.threads[i].real);
    self = NULL;
    weft_i_os_now = &weft_i_os_linux;
    sim.result.now_ns = sim.now - START_NS;
    size_t left = weft_i_sim_memory_reclaim();
    sim.result.left_bytes = sim.result.deaths || sim.result.hangs ? 0 : left;
    *out = sim.result;
}

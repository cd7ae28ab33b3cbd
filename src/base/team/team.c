/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teams: see team.h.
 *
 * A turn is one call of weft_i_team_run.  Its parts lie in lots, one for each thread; a word of a lot
 * says of which turn it is, which part is next and where it ends, so that a part is taken by one
 * exchange, and a thread that comes late, perhaps a turn or two, sees that there is nothing for it.  What
 * the parts are is read after one was taken: until that part is counted as done, the turn lasts.
 */
#include "base/team/team.h"

#include "base/machine/threads.h"
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/os/place.h"
#include "base/share/latch.h"
#include "base/share/wait.h"

#include <stdatomic.h>
#include <string.h>

enum {
    MOST = WEFT_I_THREADS_MOST,
    SPIN_NS = 40 * 1000, /* of an idle thread: longer than what lies between two operations */
    LOOKS = 64,          /* between looks at the clock */
    WAKE = 2             /* so many are woken by one; they wake others in turn */
};

/* turn << 32 | end << 16 | next */
typedef struct lot {
    _Alignas(64) _Atomic uint64_t word;
} lot;

typedef struct team team;

typedef struct member {
    team *team;
    int index, lots; /* its own of so many; that of the caller is 0 */
    pthread_t thread;
} member;

struct team {
    weft_i_latch busy; /* whoever has it uses the rest */
    int threads;       /* that there are, the caller's included; 0 before they were started */
    int sharers, local;
    bool spins; /* there are cores for all of its threads */
    /* Relaxed, like `chosen`: numbers that lead nowhere. */
    _Atomic int wanted; /* as decided; 0: not yet */
    _Atomic int chosen; /* by weft_i_team_use; 0: by weft_i_threads_decide */
    /* what the turn is about: written before its lots, read by who has taken one of its parts */
    weft_i_team_part *function;
    void *argument;
    uint32_t parts;
    lot lot[MOST];
    _Alignas(64) _Atomic uint32_t turn; /* its threads sleep here */
    _Atomic uint32_t sleepers;
    _Atomic bool over;                  /* they are to end */
    _Alignas(64) _Atomic uint32_t done; /* parts */
    _Atomic uint32_t bell;              /* of the caller, who waits for them */
    member member[MOST];
};

_Atomic int64_t weft_i_team_least = WEFT_I_TEAM_LEAST;
_Atomic int64_t weft_i_team_part_bytes = WEFT_I_TEAM_PART;

static team of_process;
static _Thread_local team *own;
static _Thread_local bool alone; /* inside of a part, or a thread that has no team */

static team *mine(void)
{
    return own ? own : &of_process;
}

/* ---- taking parts ---- */

static uint64_t word_of(uint32_t turn, uint32_t next, uint32_t end)
{
    return (uint64_t)turn << 32 | end << 16 | next;
}

/* A part of the lot, or -1; `*over` if the turn is.  */
static int take(lot *from, uint32_t turn, bool *over)
{
    /* Pairs with the release in set_lots. */
    uint64_t word = atomic_load_explicit(&from->word, memory_order_acquire);
    for (;;) {
        uint32_t next = (uint16_t)word, end = (uint16_t)(word >> 16);
        *over = word >> 32 != turn;
        if (*over || next == end)
            return -1;
        /* Acquire: pairs with the same, if the word was changed between; then the turn is another's. */
        if (atomic_compare_exchange_weak_explicit(&from->word, &word, word + 1,
                                                  memory_order_acquire, memory_order_acquire))
            return (int)next;
    }
}

/* Takes parts, its own first, until none is left, and counts them. */
static void work(team *t, int index, uint32_t turn, int lots)
{
    WEFT_ASSERT(index >= 0 && index < lots && lots <= MOST);
    uint32_t count = 0;
    bool over = false;
    for (int k = 0; k < lots && !over; k++) {
        lot *from = &t->lot[(index + k) % lots];
        for (int part; (part = take(from, turn, &over)) >= 0; count++)
            t->function(t->argument, part);
    }
    if (!count)
        return;
    uint32_t parts = t->parts;
    /* Pairs with the acquire in all_done. */
    if (atomic_fetch_add_explicit(&t->done, count, memory_order_release) + count != parts)
        return;
    atomic_thread_fence(memory_order_seq_cst); /* as weft_i_wait_ring wants it */
    weft_i_wait_ring(&t->bell);
}

/* ---- the life of a thread ---- */

/* Until the turn is another than `seen`; what it is now. */
static uint32_t await_turn(team *t, uint32_t seen, bool *slept)
{
    uint32_t turn = seen;
    int64_t until = t->spins ? WEFT_OS->clock_ns() + SPIN_NS : 0;
    *slept = false;
    do
        for (int i = 0; i < LOOKS; i++) {
            /* Pairs with the release in publish. */
            turn = atomic_load_explicit(&t->turn, memory_order_acquire);
            if (turn != seen)
                return turn;
            weft_i_os_pause();
        }
    while (until && WEFT_OS->clock_ns() < until);
    *slept = true;
    while (turn == seen) {
        /* Pairs with the fence in publish: our note and the system's look at the turn, the caller's turn and
         * look at the note, cannot both miss. */
        atomic_fetch_add_explicit(&t->sleepers, 1, memory_order_seq_cst);
        WEFT_OS->futex_wait(&t->turn, seen, INT64_MAX);
        atomic_fetch_sub_explicit(&t->sleepers, 1, memory_order_relaxed);
        turn = atomic_load_explicit(&t->turn, memory_order_acquire);
    }
    return turn;
}

/* How many parts nobody has taken. */
static int left_of(team *t, uint32_t turn, int lots)
{
    int left = 0;
    for (int i = 0; i < lots; i++) {
        /* Relaxed: a guess. */
        uint64_t word = atomic_load_explicit(&t->lot[i].word, memory_order_relaxed);
        left += word >> 32 == turn ? (uint16_t)(word >> 16) - (uint16_t)word : 0;
    }
    return left;
}

static void wake(team *t, int parts)
{
    /* Relaxed: the fence in publish orders it for the caller; others wake for speed only. */
    if (parts > 0 && atomic_load_explicit(&t->sleepers, memory_order_relaxed))
        WEFT_OS->futex_wake(&t->turn, parts < WAKE ? parts : WAKE);
}

static void *body(void *argument)
{
    member *m = argument;
    team *t = m->team;
    uint32_t turn = 0;
    bool slept;
    alone = true;
    for (;;) {
        turn = await_turn(t, turn, &slept);
        /* Relaxed: it was set before the turn. */
        if (atomic_load_explicit(&t->over, memory_order_relaxed))
            return NULL;
        if (slept)
            wake(t, left_of(t, turn, m->lots) - 1);
        work(t, m->index, turn, m->lots);
    }
}

static void publish(team *t, uint32_t turn)
{
    atomic_store_explicit(&t->turn, turn, memory_order_release);
    /* Pairs with the note of who goes to sleep in await_turn. */
    atomic_thread_fence(memory_order_seq_cst);
}

/* The threads end.  With the latch. */
static void end_threads(team *t)
{
    int threads = t->threads;
    t->threads = 0;
    if (threads < 2)
        return;
    atomic_store_explicit(&t->over, true, memory_order_relaxed);
    publish(t, atomic_load_explicit(&t->turn, memory_order_relaxed) + 1);
    WEFT_OS->futex_wake(&t->turn, INT32_MAX);
    for (int i = 1; i < threads; i++)
        WEFT_OS->thread_join(t->member[i].thread);
    atomic_store_explicit(&t->over, false, memory_order_relaxed);
}

static void end_of_process(void)
{
    if (weft_i_latch_try(&of_process.busy)) {
        end_threads(&of_process);
        weft_i_latch_give(&of_process.busy);
    }
}

/* In a forked child: its threads are not here, nor is whoever was at work with it.  A child of several
 * threads may not make any before it runs a program, says POSIX: it works alone. */
static void forget(team *t)
{
    if (t->threads > 1)
        atomic_store_explicit(&t->chosen, 1, memory_order_relaxed);
    t->threads = 0;
    atomic_store_explicit(&t->busy, WEFT_I_LATCH_FREE, memory_order_relaxed);
    atomic_store_explicit(&t->bell, 0, memory_order_relaxed);
    atomic_store_explicit(&t->wanted, 0, memory_order_relaxed);
}

static void forget_all(void)
{
    forget(&of_process);
    if (own)
        forget(own);
}

static pthread_once_t ends_once = PTHREAD_ONCE_INIT;
static bool has_ends; /* written once, before `ends_once` lets anybody pass */

static void note_ends(void)
{
    has_ends = pthread_atfork(NULL, NULL, forget_all) == 0 && weft_i_os_at_exit(end_of_process);
}

/* Starts the threads; all, or none. */
static WEFT_I_COLD void start_threads(team *t, int wanted)
{
    WEFT_ASSERT(wanted > 0 && wanted <= MOST);
    int started = 1;
    end_threads(t);
    pthread_once(&ends_once, note_ends);
    t->spins = wanted * (t->sharers > 1 ? t->sharers : 1) <= weft_i_os_cores();
    atomic_store_explicit(&t->turn, 0, memory_order_relaxed);
    atomic_store_explicit(&t->sleepers, 0, memory_order_relaxed);
    for (; started < wanted && has_ends; started++) {
        member *m = &t->member[started];
        *m = (member){.team = t, .index = started, .lots = wanted};
        if (WEFT_OS->thread_create(&m->thread, body, m))
            break;
    }
    t->threads = started;
    if (started == wanted)
        return;
    end_threads(t);
    t->threads = 1;
    atomic_store_explicit(&t->chosen, 1, memory_order_relaxed); /* there is no room: not again */
}

/* ---- how many ---- */

/*
 * A table of system calls that is not the system's own belongs to a test that counts calls or lets
 * them fail, or to the simulator: there are no threads then, unless a number of them was chosen.
 */
static int wanted_of(team *t)
{
    int chosen = atomic_load_explicit(&t->chosen, memory_order_relaxed);
    if (chosen)
        return chosen;
    if (WEFT_OS != &weft_i_os_linux)
        return 1;
    int wanted = atomic_load_explicit(&t->wanted, memory_order_relaxed);
    if (!wanted) {
        wanted = weft_i_threads_decide(t->sharers, t->local, NULL, 0);
        atomic_store_explicit(&t->wanted, wanted, memory_order_relaxed);
    }
    return wanted;
}

int weft_i_team_threads(void)
{
    return alone ? 1 : wanted_of(mine());
}

void weft_i_team_share(int sharers, int local)
{
    team *t = mine();
    weft_i_latch_take(&t->busy);
    t->sharers = sharers;
    t->local = local;
    atomic_store_explicit(&t->wanted, 0, memory_order_relaxed);
    weft_i_latch_give(&t->busy);
}

void weft_i_team_use(int threads)
{
    team *t = mine();
    atomic_store_explicit(&t->chosen, threads > MOST ? MOST : threads, memory_order_relaxed);
}

void weft_i_team_rest(void)
{
    team *t = mine();
    if (!alone && weft_i_latch_try(&t->busy)) {
        end_threads(t);
        weft_i_latch_give(&t->busy);
    }
}

void weft_i_team_own(void)
{
    own = WEFT_OS->alloc_aligned(64, sizeof *own);
    if (own)
        memset(own, 0, sizeof *own);
    alone = !own;
}

void weft_i_team_leave(void)
{
    if (own) {
        end_threads(own);
        WEFT_OS->free(own);
    }
    own = NULL;
    alone = false;
}

void weft_i_team_alone(void)
{
    alone = true;
}

/* ---- a turn ---- */

static void set_lots(team *t, uint32_t turn, int64_t parts)
{
    for (int i = 0; i < t->threads; i++) {
        uint32_t from = (uint32_t)weft_i_team_bound(parts, t->threads, i),
                 to = (uint32_t)weft_i_team_bound(parts, t->threads, i + 1);
        /* Pairs with the acquire in take. */
        atomic_store_explicit(&t->lot[i].word, word_of(turn, from, to), memory_order_release);
    }
}

struct awaited {
    team *team;
    uint32_t parts;
};

static bool all_done(void *argument)
{
    const struct awaited *a = argument;
    /* Pairs with the release in work. */
    return atomic_load_explicit(&a->team->done, memory_order_acquire) == a->parts;
}

/* With the latch, and threads. */
static void run_turn(team *t, int64_t parts, weft_i_team_part *function, void *argument)
{
    struct awaited awaited = {t, (uint32_t)parts};
    weft_i_wait wait = {.ready = all_done,
                        .arg = &awaited,
                        .bell = &t->bell,
                        .deadline = WEFT_I_NEVER,
                        .mode = t->spins ? WEFT_I_WAIT_SPIN : WEFT_I_WAIT_YIELD};
    uint32_t turn = atomic_load_explicit(&t->turn, memory_order_relaxed) + 1;
    t->function = function;
    t->argument = argument;
    t->parts = (uint32_t)parts;
    atomic_store_explicit(&t->done, 0, memory_order_relaxed); /* set_lots publishes it */
    set_lots(t, turn, parts);
    publish(t, turn);
    wake(t, (int)parts - 1);
    alone = true;
    work(t, 0, turn, t->threads);
    alone = false;
    weft_i_wait_for(&wait);
}

static void run_alone(int64_t parts, weft_i_team_part *function, void *argument)
{
    for (int64_t part = 0; part < parts; part++)
        function(argument, part);
}

void weft_i_team_run(int64_t parts, weft_i_team_part *function, void *argument)
{
    WEFT_ASSERT(parts <= INT16_MAX);
    team *t = mine();
    int wanted = alone || parts < 2 ? 1 : wanted_of(t);
    if (wanted < 2 || !weft_i_latch_try(&t->busy)) {
        run_alone(parts, function, argument);
        return;
    }
    if (t->threads != wanted)
        start_threads(t, wanted);
    if (t->threads > 1)
        run_turn(t, parts, function, argument);
    else
        run_alone(parts, function, argument);
    weft_i_latch_give(&t->busy);
}

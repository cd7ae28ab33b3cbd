/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/meet.c, fabric/group/exchange.c, fabric/group/group_new.c,
 * fabric/world/watch.c, base/share/fdpass.c */
/*
 * A rank is stopped at its n-th call to the system, for every n of its life: init, rendezvous, new
 * groups, collectives, finish.  Whatever its peers are in then ends by its limit and 50 ms.  A run
 * takes a sample that follows from HARNESS_SEED; WEFT_TEST_ALL=1 takes every step, and says what it
 * saw.  Time in which the machine ran others does not count: a thread that only sleeps measures it.
 */
#include "crew.h"
#include "doom.h"

#include "base/os/os.h"
#include "base/report/os_look.h"

#include <pthread.h>

enum {
    MEET_MS = 500,
    LIMIT_MS = 150,
    OVER_MS = 50, /* the promise */
    TRIES = 3, /* a late end counts if it comes again: the machine may be busy, the code is not */
    STEPS_MAX = 5000
};

typedef struct plot {
    int size, victim, step;
    bool by_store; /* the ranks meet through a store, not the launcher's page */
} plot;

/* What one rank saw of a stop. */
typedef struct seen {
    int worst_over_ms; /* beyond the limit of the call, 0 if none */
    bool failed, names_victim;
    char call[24], message[600];
} seen;

static seen *all_seen; /* shared, one per rank */

typedef struct act {
    int rank;
    const plot *p;
    weft_group *world;
    long long began, stolen;
} act;

/* ---- how long the machine itself keeps this process waiting ---- */

static _Atomic long long stolen_ns; /* relaxed: a sum of the witness, and nothing else */
static atomic_bool is_over;         /* relaxed: the join that follows orders all */

/* Sleeps for a millisecond at a time.  What is more than two is not the library's. */
static void *witness(void *unused)
{
    enum { NAP_NS = 1000000 };
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        long long before = harness_now();
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
        long long more = harness_now() - before - 2 * NAP_NS;
        if (more > 0)
            atomic_fetch_add_explicit(&stolen_ns, more, memory_order_relaxed);
    }
    return unused;
}

static void begin(act *a)
{
    a->stolen = atomic_load_explicit(&stolen_ns, memory_order_relaxed);
    a->began = harness_now();
}

/* After a call: notes how late it was and how it failed; true if it went well. */
static bool end(act *a, const char *call, int limit_ms, bool good)
{
    seen *mine = &all_seen[a->rank];
    char name[32];
    long long stolen = atomic_load_explicit(&stolen_ns, memory_order_relaxed) - a->stolen;
    int over = (int)((harness_now() - a->began - stolen) / 1000000) - limit_ms;
    if (over > mine->worst_over_ms) {
        mine->worst_over_ms = over;
        snprintf(mine->call, sizeof mine->call, "%s", call);
    }
    if (good)
        return true;
    mine->failed = true;
    if (over <= OVER_MS)
        snprintf(mine->call, sizeof mine->call, "%s", call);
    snprintf(mine->message, sizeof mine->message, "%s: %s", weft_status_name(weft_last_status()),
             weft_last_error());
    snprintf(name, sizeof name, "rank %d", a->p->victim);
    mine->names_victim = strstr(mine->message, name) || weft_last_status() == WEFT_ERR_MISSING;
    return false;
}

static bool act_init(act *a)
{
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = LIMIT_MS;
    opts.meet_timeout_ms = MEET_MS;
    begin(a);
    a->world = weft_init(&opts);
    return end(a, "init", MEET_MS, a->world != NULL);
}

static bool act_rendezvous(act *a)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1000));
    begin(a);
    bool good = weft_symm_rendezvous(x, a->world) != NULL;
    return end(a, "rendezvous", LIMIT_MS, good);
}

static bool act_group(act *a)
{
    int backwards[CREW_MAX];
    for (int i = 0; i < a->p->size; i++)
        backwards[i] = a->p->size - 1 - i;
    begin(a);
    weft_group *group = weft_group_new(a->world, backwards, a->p->size, NULL);
    if (!end(a, "group_new", LIMIT_MS, group != NULL))
        return false;
    begin(a);
    bool good = weft_group_barrier(group, WEFT_DEFAULT) == WEFT_OK;
    return end(a, "barrier", LIMIT_MS, good);
}

static bool act_collective(act *a)
{
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100));
    weft_tensor *large = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100000));
    begin(a);
    bool good = weft_all_reduce_into(x, x, WEFT_SUM, a->world) == WEFT_OK;
    if (!end(a, "first all_reduce", LIMIT_MS, good))
        return false;
    begin(a);
    good = weft_all_reduce_into(large, large, WEFT_SUM, a->world) == WEFT_OK;
    return end(a, "all_reduce", LIMIT_MS, good);
}

/* Survivors leave together: a rank that has left is another failure than one that is stopped. */
static void wait_for_survivors(const plot *p)
{
    atomic_fetch_add(&crew->given_up, 1);
    while (atomic_load(&crew->given_up) < p->size - 1)
        crew_rest(1);
}

/* The last survivor to leave ends the victim, if it is stopped; otherwise its own limits do. */
static void end_victim(const plot *p)
{
    for (; !crew->rank[p->victim].done; crew_rest(1))
        if (weft_i_os_process_state(crew->pid[p->victim]) == 'T') {
            kill(crew->pid[p->victim], SIGKILL);
            return;
        }
}

static int stoppable_crew(int rank, void *arg)
{
    const plot *p = arg;
    act a = {.rank = rank, .p = p};
    pthread_t watching;
    crew->pid[rank] = getpid();
    CREW(rank == p->victim || !pthread_create(&watching, NULL, witness, NULL), "no thread");
    if (p->by_store)
        unsetenv("WEFT_JOB_FD");
    if (rank == p->victim)
        doom_arm_with(p->step, SIGSTOP);
    if (act_init(&a)) {
        weft_scope_open();
        (void)(act_rendezvous(&a) && act_group(&a) && act_collective(&a));
    }
    if (rank != p->victim)
        wait_for_survivors(p);
    if (a.world)
        weft_scope_close();
    weft_clear_error();
    begin(&a);
    weft_finish(a.world);
    end(&a, "finish", 0, true);
    crew->rank[rank].steps = atomic_load(&doom_steps);
    crew->rank[rank].done = 1;
    if (rank == p->victim)
        return 0;
    atomic_store_explicit(&is_over, true, memory_order_relaxed);
    CREW(!pthread_join(watching, NULL), "a thread is lost");
    if (atomic_fetch_add(&crew->go, 1) == p->size - 2)
        end_victim(p);
    return 0;
}

/* Runs one stop; the worst lateness of a survivor's call, and whose. */
static int stop_once(const plot *p, int *whose)
{
    char what[64];
    snprintf(what, sizeof what, "rank %d of %d stopped at call %d%s", p->victim, p->size, p->step,
             p->by_store ? ", store" : "");
    memset(all_seen, 0, CREW_MAX * sizeof *all_seen);
    crew_run(what, p->size, stoppable_crew, (void *)(uintptr_t)p, p->victim);
    int worst = 0;
    for (int rank = 0; rank < p->size; rank++)
        if (rank != p->victim && all_seen[rank].worst_over_ms >= worst) {
            worst = all_seen[rank].worst_over_ms;
            *whose = rank;
        }
    return worst;
}

typedef struct tally {
    int stops, late, failed, unnamed, worst_ms;
    long long over_sum;
} tally;

static void count(tally *t, const plot *p, int worst)
{
    t->stops++;
    t->over_sum += worst;
    t->worst_ms = worst > t->worst_ms ? worst : t->worst_ms;
    for (int rank = 0; rank < p->size; rank++) {
        const seen *s = &all_seen[rank];
        if (rank == p->victim || !s->failed)
            continue;
        t->failed++;
        t->unnamed += !s->names_victim;
        if (!s->names_victim && getenv("WEFT_TEST_ALL"))
            fprintf(stderr, "rank %d of %d stopped at call %d%s: rank %d, %s: %s\n", p->victim,
                    p->size, p->step, p->by_store ? ", store" : "", rank, s->call, s->message);
    }
}

/* Stops the victim at every `stride`-th step from `first` on, until it outlives them. */
static void stop_at_steps(plot p, int first, int stride)
{
    tally t = {0};
    bool outlived = false;
    if (!all_seen)
        all_seen = mmap(NULL, CREW_MAX * sizeof *all_seen, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(all_seen != MAP_FAILED);
    for (p.step = first; !outlived && (stride || !t.stops); p.step += stride) {
        int whose = 0, worst = stop_once(&p, &whose);
        for (int tries = 1; worst > OVER_MS && tries < TRIES; tries++, t.late++)
            worst = stop_once(&p, &whose);
        if (worst > OVER_MS)
            FAIL("rank %d of %d stopped at call %d: rank %d, %s: %d ms after the limit: %s",
                 p.victim, p.size, p.step, whose, all_seen[whose].call, worst,
                 all_seen[whose].message);
        count(&t, &p, worst);
        outlived = crew->rank[p.victim].done;
        CHECK(p.step < STEPS_MAX);
    }
    CHECK(t.failed > 0 || !stride); /* or nobody was stopped in anybody's way */
    if (getenv("WEFT_TEST_ALL"))
        fprintf(stderr,
                "rank %d of %d, %s: %d stops, %d failed calls, of which %d do not name the rank; "
                "after the limit at most %d ms, %.1f on average; %d runs repeated\n",
                p.victim, p.size, p.by_store ? "store" : "page", t.stops, t.failed, t.unnamed,
                t.worst_ms, (double)t.over_sum / t.stops, t.late);
}

static void stop_everywhere(int size, bool by_store)
{
    const char *seed = getenv("HARNESS_SEED"), *only = getenv("STOP_AT");
    if (only) { /* "victim step", to look at one case */
        char *step = NULL;
        plot p = {.size = size, .victim = (int)strtol(only, &step, 10), .by_store = by_store};
        stop_at_steps(p, atoi(step), 0);
        return;
    }
    int stride = getenv("WEFT_TEST_ALL") ? 1 : 23;
    for (int victim = 0; victim < size; victim++) {
        plot p = {.size = size, .victim = victim, .by_store = by_store};
        stop_at_steps(p, 1 + ((seed ? atoi(seed) : 0) + 7 * victim) % stride, stride);
    }
}

TEST(test_stop_page_3)
{
    stop_everywhere(3, false);
}

TEST(test_stop_store_2)
{
    stop_everywhere(2, true);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* survivors complain, as they should */
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/coll.c, coll/calls/work.c, coll/p2p/p2p.c, fabric/group/group_new.c */
/*
 * The soak: random collectives, sends and receives on random overlapping groups that come and go,
 * plain and posted, in ordinary and symmetric memory, every result checked; memory, mappings and
 * descriptors must not grow.  SOAK_SECONDS sets how long (3); `make soak SECONDS=600`.
 *
 * All ranks draw the same steps from HARNESS_SEED and take part in those of their groups, so that
 * nobody has to be told what comes next.
 */
#include "coll_acts.h"
#include "harness_ranks.h"
#include "tensor/object/cache.h"

#include <malloc.h>

enum {
    RANKS = 8,
    GROUPS = 24,
    PENDING = 6,  /* posted works a rank has under way at most */
    CHAPTER = 256 /* steps between looks at the clock, which rank 0 keeps for all */
};

typedef struct pending {
    weft_work *work;
    act a;
    act_operands operands;
    int rank, size; /* in its group */
} pending;

typedef struct soak {
    weft_group *world;
    weft_group *groups[GROUPS];
    int members[GROUPS][RANKS], sizes[GROUPS];
    pending posted[PENDING];
    int rank;
    uint64_t seed, step, done;
} soak;

/* What must not grow. */
typedef struct footprint {
    long pages, mappings, descriptors;
} footprint;

static footprint measure(void)
{
    footprint now = {0};
    unsigned char open[1024];
    char line[512];
    FILE *statm = fopen("/proc/self/statm", "r"), *maps = fopen("/proc/self/maps", "r");
    if (!statm || fscanf(statm, "%*s %ld", &now.pages) != 1)
        now.pages = -1;
    while (maps && fgets(line, sizeof line, maps))
        now.mappings += strchr(line, '\n') != NULL;
    if (statm)
        fclose(statm);
    if (maps)
        fclose(maps);
    harness_descriptors(open, NULL);
    for (int fd = 0; fd < 1024; fd++)
        now.descriptors += open[fd];
    return now;
}

static uint64_t draw(const soak *s, int what)
{
    return values_random(s->seed + s->step, (uint64_t)what);
}

/* Makes group `g`, of ranks that follow from the step. */
static void make_group(soak *s, int g)
{
    int order[RANKS];
    s->sizes[g] = 2 + (int)(draw(s, 100) % (RANKS - 1));
    for (int i = 0; i < RANKS; i++) {
        int j = (int)(draw(s, 101 + i) % (unsigned)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    memcpy(s->members[g], order, sizeof order);
    s->groups[g] = NULL;
    for (int i = 0; i < s->sizes[g]; i++)
        if (order[i] == s->rank) {
            s->groups[g] = weft_keep(weft_group_new(s->world, order, s->sizes[g], NULL));
            if (!s->groups[g])
                FAIL("step %llu: weft_group_new: %s", (unsigned long long)s->step,
                     weft_last_error());
        }
}

static void settle(const soak *s, pending *p)
{
    if (!p->work)
        return;
    weft_status status = weft_work_wait(p->work, WEFT_DEFAULT);
    if (status < 0)
        FAIL("step %llu, seed %llu: posted kind %d: %s", (unsigned long long)s->step,
             (unsigned long long)s->seed, (int)p->a.kind, weft_last_error());
    if (act_check(&p->a, &p->operands, p->rank, p->size) >= 0)
        FAIL("step %llu, seed %llu: posted kind %d of %lld gave a wrong result",
             (unsigned long long)s->step, (unsigned long long)s->seed, (int)p->a.kind,
             (long long)p->a.count);
    weft_release(p->work);
    weft_release(p->operands.in == p->operands.out ? NULL : p->operands.in);
    weft_release(p->operands.out);
    p->work = NULL;
}

static void settle_all(soak *s)
{
    for (int i = 0; i < PENDING; i++)
        settle(s, &s->posted[i]);
}

static act draw_act(const soak *s, int size)
{
    static const int64_t counts[] = {0, 1, 7, 60, 300, 1000, 5000, 40000};
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F32, WEFT_BF16, WEFT_I64, WEFT_U8};
    act a = {.kind = (act_kind)(draw(s, 1) % ACT_KINDS),
             .dtype = dtypes[draw(s, 2) % 5],
             .reduction = (weft_reduction)(draw(s, 3) % (WEFT_MAX + 1)),
             .root = (int)(draw(s, 4) % (unsigned)size),
             .count = counts[draw(s, 5) % 8 * (draw(s, 6) % 3 > 0)],
             .posted = draw(s, 7) % 4 == 0,
             .seed = draw(s, 8)};
    if (!values_has_meaning(a.dtype, a.reduction))
        a.reduction = WEFT_SUM;
    return a;
}

static void take_act(soak *s, int g, int rank)
{
    pending p = {.a = draw_act(s, s->sizes[g]), .rank = rank, .size = s->sizes[g]};
    pending *slot = &s->posted[s->step % PENDING];
    settle(s, slot);
    p.operands = act_prepare(&p.a, rank, p.size);
    weft_status status = act_begin(&p.a, &p.operands, s->groups[g], &p.work);
    if (status < 0)
        FAIL("step %llu, seed %llu: kind %d: %s", (unsigned long long)s->step,
             (unsigned long long)s->seed, (int)p.a.kind, weft_last_error());
    if (p.work) {
        weft_keep(p.work);
        weft_keep(p.operands.out);
        if (p.operands.in != p.operands.out)
            weft_keep(p.operands.in);
        *slot = p;
    } else if (act_check(&p.a, &p.operands, rank, p.size) >= 0) {
        FAIL("step %llu, seed %llu: kind %d of %lld gave a wrong result",
             (unsigned long long)s->step, (unsigned long long)s->seed, (int)p.a.kind,
             (long long)p.a.count);
    }
}

/* Messages round the group, the last of each ring in the other order. */
static void take_ring(soak *s, int g, int rank)
{
    int size = s->sizes[g], next = (rank + 1) % size, last = (rank + size - 1) % size;
    int64_t count = (int64_t)(draw(s, 20) % 30000);
    weft_tensor *x = weft_empty(WEFT_U16, WEFT_CPU, WEFT_SHAPE(count)),
                *y = weft_empty(WEFT_U16, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x && y);
    values_put(WEFT_U16, VALUES_ANY, draw(s, 21), rank, 0, (size_t)count, weft_tensor_data(x));
    weft_work *sending = weft_send_start(x, next, s->groups[g]);
    CHECK(sending);
    CHECK_OK(weft_recv(y, last, s->groups[g]));
    CHECK_OK(weft_work_wait(sending, WEFT_DEFAULT));
    CHECK_INT(values_check(WEFT_U16, VALUES_ANY, draw(s, 21), last, 0, (size_t)count,
                           weft_tensor_data(y)),
              -1);
}

/* A sum in symmetric memory that comes and goes. */
static void take_symmetric(soak *s, int g, int rank)
{
    int64_t count = 1 + (int64_t)(draw(s, 30) % 20000);
    weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x && weft_symm_rendezvous(x, s->groups[g]));
    for (int again = 0; again < 3; again++) {
        values_put(WEFT_I32, VALUES_ANY, draw(s, 31 + again), rank, 0, (size_t)count,
                   weft_tensor_data(x));
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, s->groups[g]));
        CHECK_INT(values_check_fold(WEFT_I32, WEFT_SUM, VALUES_ANY, draw(s, 31 + again),
                                    s->sizes[g], 0, (size_t)count, NULL, weft_tensor_data(x)),
                  -1);
    }
}

static void take_step(soak *s)
{
    int g = (int)(draw(s, 0) % GROUPS), rank = weft_rank(s->groups[g]);
    unsigned what = (unsigned)(draw(s, 9) % 64);
    s->step++;
    if (!s->groups[g] && what != 0)
        return;
    weft_scope_open();
    if (what == 0) { /* the group goes, another one comes */
        settle_all(s);
        weft_release(s->groups[g]);
        make_group(s, g);
    } else if (what < 6) {
        take_ring(s, g, rank);
    } else if (what < 8) {
        take_symmetric(s, g, rank);
    } else {
        take_act(s, g, rank);
    }
    weft_scope_close();
    s->done++;
}

/* Rank 0's clock, for all. */
static long long elapsed(const soak *s, long long begin)
{
    int64_t now = harness_now() - begin;
    weft_tensor *clock = weft_tensor_from(WEFT_I64, WEFT_SHAPE(1), &now);
    CHECK_OK(weft_broadcast_in_place(clock, 0, s->world));
    return (long long)weft_item_int(clock, 0);
}

/* Arenas of the allocator come and go. */
static long pages_allowed(const footprint *early)
{
    return early->pages + early->pages / 20 + (harness_in_threads ? 8192 : 512);
}

/* Gives free memory back to the system, as the C library's allocator does it.  Sanitizers have one
 * of their own, beside which that one is never set up, and must not be touched by several threads.
 */
static void trim(void)
{
    if (!VALUES_SANITIZED)
        malloc_trim(0);
    weft_i_cache_clear();
}

/* What a rank has when all its groups and works are gone; compared with `early`, if there is one,
 * when helper threads that still drop something have had time to. */
static footprint measure_bare(soak *s, const footprint *early)
{
    settle_all(s);
    for (int g = 0; g < GROUPS; g++) {
        weft_release(s->groups[g]);
        s->groups[g] = NULL;
    }
    CHECK_OK(weft_group_barrier(s->world, WEFT_DEFAULT)); /* peers have let go too */
    trim();
    footprint now = measure();
    for (int i = 0; early && i < 200 && now.pages > pages_allowed(early); i++) {
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        trim();
        now = measure();
    }
    CHECK_OK(weft_group_barrier(s->world, WEFT_DEFAULT));
    return now;
}

static void make_groups(soak *s)
{
    for (int g = 0; g < GROUPS; g++, s->step++)
        make_group(s, g);
}

static void check_flat(const soak *s, const footprint *early, const footprint *late,
                       long long elapsed_ns)
{
    fprintf(stderr,
            "soak: rank %d: %.0f operations a second, %llu in all; %ld -> %ld KiB, %ld -> %ld "
            "mappings, %ld -> %ld descriptors\n",
            s->rank, (double)s->done * 1e9 / (double)elapsed_ns, (unsigned long long)s->done,
            early->pages * 4, late->pages * 4, early->mappings, late->mappings, early->descriptors,
            late->descriptors);
    /* Ranks that are threads measure while others still open files to measure. */
    if (late->descriptors > early->descriptors + (harness_in_threads ? 2 * RANKS : 0))
        FAIL("descriptors grow: %ld, then %ld", early->descriptors, late->descriptors);
    if (VALUES_SANITIZED) /* its allocator keeps freed memory; leaks are found by other means */
        return;
    /* Arenas of the allocator come and go. */
    if (late->mappings > early->mappings + (harness_in_threads ? 8 * RANKS : 8))
        FAIL("mappings grow: %ld, then %ld", early->mappings, late->mappings);
    if (late->pages > pages_allowed(early))
        FAIL("memory grows: %ld pages, then %ld", early->pages, late->pages);
}

RANKS_TEST(test_soak, RANKS)
{
    const char *text = getenv("SOAK_SECONDS");
    long long limit = (text ? atoi(text) : 3) * 1000000000LL, begin = harness_now(), now = 0;
    soak s = {.rank = rank, .seed = values_seed()};
    footprint early = {0};
    CHECK(size == RANKS && (s.world = weft_init(NULL)));
    make_groups(&s);
    while (now < limit) {
        for (int i = 0; i < CHAPTER; i++)
            take_step(&s);
        settle_all(&s);
        weft_scope_open();
        now = elapsed(&s, begin);
        weft_scope_close();
        if (!early.pages && now >= limit / 4) {
            early = measure_bare(&s, NULL);
            make_groups(&s);
        }
    }
    footprint late = measure_bare(&s, &early);
    check_flat(&s, &early, &late, now);
    CHECK(!weft_finish(s.world));
}

int main(int argc, char **argv)
{
    char seconds[32];
    const char *text = getenv("SOAK_SECONDS");
    values_choose_seed();
    snprintf(seconds, sizeof seconds, "%d", (text ? atoi(text) : 3) + 60);
    setenv("HARNESS_TIMEOUT", seconds, 0);
    return harness_main(argc, argv);
}

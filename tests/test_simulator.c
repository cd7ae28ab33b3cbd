/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs on simulated ranks (backends/fake/simulator.h): each seed is 2 to 4 ranks, a few
 * operations of a random kind, size and group, a random way of waiting, and at most one fault: a
 * delay, a rank that comes too late, dies, leaves, or calls something else.  Afterwards is checked
 * that every rank came to its end, that results are right, that an operation succeeded for all of
 * its ranks or for none, that errors are those the fault explains and name who it was, and that
 * nothing was left behind.
 *
 *     WEFT_SIM_SEED=n test_simulator     one seed again, with its story
 *     WEFT_SIM_SEEDS=n test_simulator    so many, from WEFT_SIM_FIRST or 1 on
 */
#define VALUES_LOCAL /* who has the turn has it alone */

#include "backends/fake/simulator.h"
#include "base/wait.h"
#include "coll_acts.h"
#include "fabric/spawn.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what the link puts in the simulator's hands ---- */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
weft_status simulator_wait_for(const weft_i_wait *wait);
extern bool points_exchange_blindly;

bool points_exchange_blindly;
static bool skip_waits; /* the other planted bug */

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    return weft_i_sim_lock(mutex, __real_pthread_mutex_lock);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    return weft_i_sim_unlock(mutex, __real_pthread_mutex_unlock);
}

weft_status weft_i_wait_for(const weft_i_wait *wait)
{
    bool skipped = skip_waits && wait->lost && weft_i_sim_steps() % 16 == 0;
    return skipped ? WEFT_OK : simulator_wait_for(wait);
}

/* ---- a case ---- */

enum { RANKS = 4, STEPS = 8, LIMIT_MS = 24, MEET_MS = 400, TRIES = 6 };

/* STORM: several of the others at once. */
typedef enum trouble { NONE, DELAY, LATE, DEATH, LEAVE, MISMATCH, STORM } trouble;

typedef enum flavour { PLAIN, POSTED, BARRIER, RING, GROUP, SYMM, MANY, LIST, FLAVOURS } flavour;

typedef struct step {
    flavour flavour;
    int group; /* whose: 0 is the world */
    act what;
} step;

typedef struct outcome {
    bool tried, ended;
    unsigned timeouts;
    weft_status status;
    int64_t longest_ns;    /* try */
    uint64_t order;        /* when it ended, among all */
    uint64_t failed_order; /* when a try failed last */
    char message[400];
} outcome;

typedef struct scene {
    uint64_t seed;
    int ranks, steps;
    trouble trouble;
    int culprit, culprit_step;
    int members[2][RANKS], sizes[2]; /* group 1 is made by the step GROUP */
    step step[STEPS];
    weft_i_sim_plan plan;
    const weft_i_place *place;
    outcome init[RANKS], done[RANKS][STEPS], after[RANKS]; /* after: a group of the survivors */
    weft_i_sim_result result;
    char failure[1200];
} scene;

static scene now;
static uint64_t dice;
static bool verbose;

static uint64_t roll(uint64_t bound)
{
    dice = values_mix(dice);
    return dice % bound;
}

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...)
{
    if (now.failure[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(now.failure, sizeof now.failure, format, args);
    va_end(args);
}

static act random_act(int size)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_I32, WEFT_U8};
    static const weft_reduction reductions[] = {WEFT_SUM, WEFT_MAX, WEFT_MIN};
    act one = {.kind = (act_kind)roll(ACT_BARRIER),
               .dtype = dtypes[roll(sizeof dtypes / sizeof *dtypes)],
               .reduction = reductions[roll(3)],
               .root = (int)roll((uint64_t)size),
               .seed = roll(UINT64_MAX)};
    switch (roll(8)) {
    case 0:
        one.count = 0;
        break;
    case 1:
        one.count = 200 + (int64_t)roll(400);
        break;
    case 2: /* in some cases more than a slot */
        one.count = roll(16) ? 3000 : (int64_t)(150000 / weft_dtype_size(one.dtype));
        break;
    default:
        one.count = 1 + (int64_t)roll(24);
    }
    return one;
}

static void make_members(void)
{
    for (int i = 0; i < now.ranks; i++)
        now.members[0][i] = now.members[1][i] = i;
    for (int i = now.ranks - 1; i > 0; i--) {
        int other = (int)roll((uint64_t)i + 1), kept = now.members[1][i];
        now.members[1][i] = now.members[1][other];
        now.members[1][other] = kept;
    }
    now.sizes[0] = now.ranks;
    now.sizes[1] = 2 + (int)roll((uint64_t)now.ranks - 1);
}

static void make_steps(void)
{
    now.steps = 1 + (int)roll(6);
    int made = roll(3) ? STEPS : (int)roll((uint64_t)now.steps); /* when group 1 is made */
    for (int i = 0; i < now.steps; i++) {
        step *one = &now.step[i];
        one->flavour = i == made ? GROUP : (flavour)roll(FLAVOURS);
        if (one->flavour == GROUP && i != made)
            one->flavour = PLAIN;
        one->group = i == made || (i > made && roll(2));
        one->what = random_act(now.sizes[one->group]);
        one->what.posted = one->flavour == POSTED;
    }
}

static void make_trouble(void)
{
    static const trouble often[] = {NONE,  DELAY, LATE,  LATE,  LATE,     STORM,
                                    DEATH, DEATH, DEATH, DEATH, MISMATCH, LEAVE};
    now.trouble = often[roll(sizeof often / sizeof *often)];
    now.culprit = (int)roll((uint64_t)now.ranks);
    now.culprit_step = (int)roll((uint64_t)now.steps);
    weft_i_sim_fault *fault = &now.plan.fault[now.culprit];
    uint64_t when = 1 + roll(roll(2) ? 100 : 1500);
    if (now.trouble == DELAY || now.trouble == LATE) {
        fault->delay_at = when;
        fault->delay_ns = (int64_t)roll(8000000);
        if (now.trouble == LATE) /* in most cases it comes as the others are about to give up */
            fault->delay_ns = roll(4) ? (int64_t)(1 + roll(3)) * LIMIT_MS * 1000000 - 200000 +
                                            (int64_t)roll(400000)
                                      : (int64_t)(LIMIT_MS + roll(60)) * 1000000;
    }
    if (now.trouble == DEATH)
        fault->death_at = when;
    for (int rank = 0; rank < now.ranks && now.trouble == STORM; rank++) {
        now.plan.fault[rank].delay_at = 1 + roll(400);
        now.plan.fault[rank].delay_ns = (int64_t)roll((LIMIT_MS + 6) * 1000000);
        now.plan.fault[rank].death_at = roll(3) ? 0 : 1 + roll(800);
    }
    if (now.trouble == MISMATCH && now.step[now.culprit_step].flavour > POSTED)
        now.trouble = NONE;
}

/* The life word as the kernel leaves it. */
static void mark_dead(int rank)
{
    weft_i_slot *slot = weft_i_job_slot(weft_i_job_of(now.place->job), rank);
    atomic_fetch_or_explicit(&slot->life.word, FUTEX_OWNER_DIED, memory_order_release);
}

static void make_scene(uint64_t seed)
{
    static const char *const modes[] = {"sleep", "yield", "yield", "sleep", "spin"};
    static const uint32_t every[] = {2, 6, 20, 60};
    memset(&now, 0, sizeof now);
    now.seed = seed;
    dice = seed * 2 + 1;
    now.ranks = 2 + (int)roll(RANKS - 1);
    make_members();
    make_steps();
    make_trouble();
    size_t mode = roll(sizeof modes / sizeof *modes);
    setenv("WEFT_WAIT", modes[mode], 1);
    now.plan.seed = values_mix(seed);
    now.plan.every = mode == 4 ? 100 : every[roll(4)];
    now.plan.horizon_ns = INT64_C(4000000000);
    now.plan.points = 20 * 1000 * 1000;
    now.plan.died = mark_dead;
}

/* ---- what a rank does ---- */

static const int *members_of(int group)
{
    return now.members[group];
}

static int place_in(int group, int rank)
{
    for (int i = 0; i < now.sizes[group]; i++)
        if (members_of(group)[i] == rank)
            return i;
    return -1;
}

static void tell(outcome *of, weft_status status)
{
    of->status = status;
    of->order = weft_i_sim_order();
    of->timeouts += status == WEFT_ERR_TIMEOUT;
    if (status < 0) {
        of->failed_order = of->order;
        snprintf(of->message, sizeof of->message, "%s", weft_last_error());
    }
}

static weft_status run_act(const step *one, const act *what, weft_group *group, int me, int size)
{
    weft_scope_open();
    act_operands o = act_prepare(what, me, size);
    weft_work *work = NULL;
    weft_status status = act_begin(what, &o, group, &work);
    for (status = work ? WEFT_IN_PROGRESS : status; status == WEFT_IN_PROGRESS;) {
        status = weft_work_wait(work, WEFT_DEFAULT);
        if (status == WEFT_ERR_TIMEOUT) /* of the work, or of the wait? */
            status = weft_work_test(work);
    }
    if (status == WEFT_OK && act_check(what, &o, me, size) >= 0)
        complain("rank %d: the result of step %d (%d of %lld) is wrong",
                 now.members[one->group][me], (int)(one - now.step), (int)what->kind,
                 (long long)what->count);
    if (status < 0 && what->kind != ACT_BROADCAST && !act_input_is_intact(what, &o, me))
        complain("rank %d: the input of step %d has changed", now.members[one->group][me],
                 (int)(one - now.step));
    weft_scope_close();
    return status;
}

/* Everybody sends to the next one and receives from the one before. */
static weft_status run_ring(const step *one, weft_group *group, int me, int size)
{
    act sent = {.dtype = WEFT_U8,
                .seed = one->what.seed,
                .count = one->what.count * (one->what.count < 9999 ? 6 : 1)};
    int from = (me + size - 1) % size;
    weft_scope_open();
    weft_tensor *out = weft_empty(sent.dtype, WEFT_CPU, WEFT_SHAPE(sent.count));
    weft_tensor *in = weft_empty(sent.dtype, WEFT_CPU, WEFT_SHAPE(sent.count));
    values_put(sent.dtype, VALUES_ANY, sent.seed, me, 0, (size_t)sent.count, weft_tensor_data(out));
    weft_work *works[2] = {weft_send_start(out, (me + 1) % size, group), NULL};
    works[1] = works[0] ? weft_recv_start(in, from, group) : NULL;
    weft_status status = works[1] ? WEFT_OK : weft_last_status();
    for (int i = 0, tries = 0; i < 2 && status == WEFT_OK; i++) {
        do
            status = weft_work_wait(works[i], WEFT_DEFAULT);
        while (status == WEFT_ERR_TIMEOUT && ++tries < TRIES);
    }
    if (status == WEFT_OK && values_check(sent.dtype, VALUES_ANY, sent.seed, from, 0,
                                          (size_t)sent.count, weft_tensor_data(in)) >= 0)
        complain("rank %d: what came round in step %d is wrong", now.members[one->group][me],
                 (int)(one - now.step));
    weft_scope_close();
    return status;
}

/* Each rank reads its neighbour's memory between two barriers. */
static weft_status run_symm(const step *one, weft_group *group, int me, int size)
{
    weft_scope_open();
    weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4));
    weft_symm *mem = weft_symm_rendezvous(x, group);
    weft_status status = mem ? WEFT_OK : weft_last_status();
    int next = (me + 1) % size;
    if (mem) {
        weft_fill(x, me + 1);
        status = weft_symm_barrier(mem, 0, WEFT_DEFAULT);
    }
    if (mem && status == WEFT_OK) {
        if (weft_item(weft_symm_tensor(mem, next), 3) != next + 1)
            complain("rank %d: its neighbour's memory in step %d is wrong",
                     now.members[one->group][me], (int)(one - now.step));
        status = weft_symm_barrier(mem, 0, WEFT_DEFAULT);
    }
    weft_scope_close();
    return status;
}

/* Several are under way at once, and awaited from the last one on. */
static weft_status run_many(const step *one, weft_group *group, int me, int size)
{
    enum { WORKS = 3 };
    act what[WORKS];
    act_operands o[WORKS];
    weft_work *works[WORKS] = {NULL};
    weft_status status = WEFT_OK;
    weft_scope_open();
    for (int i = 0; i < WORKS && status == WEFT_OK; i++) {
        what[i] = one->what;
        what[i].posted = true;
        what[i].seed += (uint64_t)i;
        what[i].count = (what[i].count + i) % 200;
        o[i] = act_prepare(&what[i], me, size);
        status = act_begin(&what[i], &o[i], group, &works[i]);
    }
    for (int i = WORKS - 1; i >= 0; i--) {
        weft_status ended = works[i] ? weft_work_wait(works[i], WEFT_DEFAULT) : status;
        status = ended < 0 ? ended : status;
        if (works[i] && ended == WEFT_OK && act_check(&what[i], &o[i], me, size) >= 0)
            complain("rank %d: result %d of step %d is wrong", now.members[one->group][me], i,
                     (int)(one - now.step));
    }
    weft_scope_close();
    return status;
}

static weft_status run_list(const step *one, weft_group *group, int me, int size)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_I32, WEFT_BF16};
    weft_tensor *x[3];
    weft_scope_open();
    for (int i = 0; i < 3; i++) {
        x[i] = weft_empty(dtypes[i], WEFT_CPU, WEFT_SHAPE(one->what.count % 999 + i));
        values_put(dtypes[i], VALUES_WHOLE, one->what.seed, me, 0, (size_t)weft_tensor_numel(x[i]),
                   weft_tensor_data(x[i]));
    }
    weft_status status = weft_all_reduce_list_into(x, x, 3, WEFT_SUM, group);
    for (int i = 0; i < 3 && status == WEFT_OK; i++)
        if (values_check_fold(dtypes[i], WEFT_SUM, VALUES_WHOLE, one->what.seed, size, 0,
                              (size_t)weft_tensor_numel(x[i]), NULL, weft_tensor_data(x[i])) >= 0)
            complain("rank %d: tensor %d of step %d is wrong", now.members[one->group][me], i,
                     (int)(one - now.step));
    weft_scope_close();
    return status;
}

static weft_status run_step(const step *one, weft_group **groups, int rank)
{
    int me = place_in(one->group, rank), size = now.sizes[one->group];
    weft_group *group = groups[one->group];
    act what = one->what;
    if (now.trouble == MISMATCH && rank == now.culprit && one == &now.step[now.culprit_step]) {
        what.count++;
        what.dtype = what.dtype == WEFT_F32 ? WEFT_F64 : WEFT_F32; /* not all calls count */
    }
    switch (one->flavour) {
    case BARRIER:
        return weft_group_barrier(group, WEFT_DEFAULT);
    case RING:
        return run_ring(one, group, me, size);
    case SYMM:
        return run_symm(one, group, me, size);
    case MANY:
        return run_many(one, group, me, size);
    case LIST:
        return run_list(one, group, me, size);
    case GROUP:
        weft_clear_error();
        groups[1] = weft_group_new(groups[0], members_of(1), size, NULL);
        return groups[1] ? WEFT_OK : weft_last_status();
    default:
        return run_act(one, &what, group, me, size);
    }
}

/* May the call simply be made again? */
static bool is_repeatable(const step *one, weft_status status)
{
    return status == WEFT_ERR_TIMEOUT && one->flavour != RING && one->flavour != SYMM &&
           one->flavour != MANY;
}

/* Those who know of the death make a group of the rest, and use it. */
static weft_status go_on(weft_group *world)
{
    int rest[RANKS], count = 0;
    for (int i = 0; i < now.ranks; i++)
        if (i != now.culprit)
            rest[count++] = i;
    /* Not the list of the other group, which a rank may be about to make. */
    if (count == now.sizes[1] && !memcmp(rest, now.members[1], (size_t)count * sizeof *rest)) {
        rest[0] = now.members[1][count - 1];
        rest[count - 1] = now.members[1][0];
    }
    weft_clear_error();
    weft_group *group = weft_group_new(world, rest, count, NULL);
    if (!group)
        return weft_last_status();
    step last = {.what = {.kind = ACT_ALL_REDUCE, .dtype = WEFT_F32, .count = 5, .seed = 4}};
    weft_status status = WEFT_ERR_TIMEOUT;
    for (int tries = 0; tries < TRIES && status == WEFT_ERR_TIMEOUT; tries++)
        status = run_act(&last, &last.what, group, weft_rank(group), count);
    return status;
}

static void run_program(int rank)
{
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = LIMIT_MS;
    opts.meet_timeout_ms = MEET_MS;
    weft_group *groups[2] = {weft_init(&opts), NULL};
    now.init[rank].tried = now.init[rank].ended = true;
    tell(&now.init[rank], groups[0] ? WEFT_OK : weft_last_status());
    bool good = groups[0] != NULL;
    for (int i = 0; i < now.steps && good; i++) {
        step *one = &now.step[i];
        outcome *its = &now.done[rank][i];
        if (place_in(one->group, rank) < 0)
            continue;
        if (now.trouble == LEAVE && rank == now.culprit && i == now.culprit_step)
            break;
        its->tried = true;
        for (int tries = 0; tries < TRIES; tries++) {
            int64_t begin = weft_i_sim_now();
            tell(its, run_step(one, groups, rank));
            int64_t took = weft_i_sim_now() - begin;
            its->longest_ns = took > its->longest_ns ? took : its->longest_ns;
            if (!is_repeatable(one, its->status))
                break;
        }
        its->ended = true;
        good = its->status == WEFT_OK;
        if (now.trouble == DEATH && its->status == WEFT_ERR_PEER_DEAD) {
            outcome *after = &now.after[rank];
            after->tried = true;
            for (int tries = 0; tries < 4 * TRIES; tries++) { /* some learn of it late */
                tell(after, go_on(groups[0]));
                if (after->status != WEFT_ERR_TIMEOUT)
                    break;
            }
            after->ended = true;
        }
    }
    weft_finish(groups[0]);
}

static int rank_body(void *unused)
{
    (void)unused;
    now.place = weft_i_spawn_place();
    weft_scope_open();
    if (!setjmp(harness_out))
        run_program(now.place->rank);
    else
        complain("%s", harness_reason);
    weft_scope_close();
    return 0;
}

/* ---- what must hold ---- */

static bool has_died(int rank)
{
    return now.result.deaths >> rank & 1;
}

static const char *const trouble_names[] = {"no trouble", "a delay",    "a late rank", "a death",
                                            "a leave",    "a mismatch", "a storm"};

/* Which errors the trouble explains. */
static bool is_explained(weft_status status, int group, flavour how)
{
    bool inside = place_in(group, now.culprit) >= 0;
    /* Work posted behind one that ran out of time is run all the same, and the ranks are out of
     * step. */
    if (how == MANY && (now.trouble == LATE || now.trouble == STORM) && status == WEFT_ERR_MISMATCH)
        return true;
    switch (now.trouble) {
    case LATE:
        return status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_REVOKED ||
               status == WEFT_ERR_PEER_LEFT || status == WEFT_ERR_MISSING;
    case DEATH: /* one may wait for a rank that lives, and is busy making a group without the dead
                 */
        if (how == RING && status == WEFT_ERR_TIMEOUT)
            return true;
        if (!inside && status == WEFT_ERR_TIMEOUT)
            return true;
        return status == (inside ? WEFT_ERR_PEER_DEAD : WEFT_ERR_PEER_LEFT);
    case LEAVE:
        return status == WEFT_ERR_PEER_LEFT;
    case STORM:
        return status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_REVOKED ||
               status == WEFT_ERR_PEER_LEFT || status == WEFT_ERR_PEER_DEAD ||
               status == WEFT_ERR_MISSING;
    case MISMATCH:
        return status == WEFT_ERR_MISMATCH || status == WEFT_ERR_PEER_LEFT;
    default:
        return false;
    }
}

/* No call takes much longer than its limit: one for each meeting that may be waited for in turn
 * (the stage at first use, the entry, a sync), and what the ranks were delayed. */
static int64_t longest_of(const step *one)
{
    int64_t delays = 0;
    int calls = one->flavour == MANY ? 3 : one->flavour == RING ? TRIES : 2;
    for (int rank = 0; rank < now.ranks; rank++)
        delays += now.plan.fault[rank].delay_ns;
    return delays + (int64_t)calls * (3 * LIMIT_MS + 50) * 1000000;
}

static void check_outcome(int rank, int i, const outcome *its, int group)
{
    char name[24];
    if (has_died(rank) || !its->tried)
        return;
    if (!its->ended)
        complain("rank %d did not come back from step %d", rank, i);
    if (i >= 0 && its->longest_ns > longest_of(&now.step[i]))
        complain("rank %d, step %d: a call took %.1f ms", rank, i, (double)its->longest_ns * 1e-6);
    if (its->status >= 0)
        return;
    if (!is_explained(its->status, group, i < 0 ? PLAIN : now.step[i].flavour))
        complain("rank %d, step %d: %s does not explain %s (%s)", rank, i,
                 trouble_names[now.trouble], weft_status_name(its->status), its->message);
    snprintf(name, sizeof name, "rank %d", now.culprit);
    if (now.trouble == DEATH && its->status == WEFT_ERR_PEER_DEAD && !strstr(its->message, name))
        complain("rank %d, step %d: the message does not name %s: %s", rank, i, name, its->message);
}

/* A meeting succeeds for all or for none: once a rank has succeeded, no other one fails. */
static void check_all_or_none(int i)
{
    const step *one = &now.step[i];
    uint64_t first = UINT64_MAX;
    int winner = -1;
    for (int rank = 0; rank < now.ranks; rank++)
        if (now.done[rank][i].ended && now.done[rank][i].status == WEFT_OK &&
            now.done[rank][i].order < first)
            first = now.done[winner = rank][i].order;
    for (int rank = 0;
         rank < now.ranks && winner >= 0 && one->flavour != RING && one->flavour != MANY; rank++) {
        const outcome *its = &now.done[rank][i];
        if (!has_died(rank) && its->failed_order > first)
            complain("step %d succeeded for rank %d and then failed for rank %d: %s", i, winner,
                     rank, its->message);
    }
}

/* A mismatch is one for everybody who came. */
static void check_mismatch(void)
{
    const step *one = &now.step[now.culprit_step];
    for (int rank = 0; rank < now.ranks; rank++) {
        const outcome *its = &now.done[rank][now.culprit_step];
        if (its->tried && its->status != WEFT_ERR_MISMATCH)
            complain("rank %d does not see the mismatch of step %d: %s %s", rank, now.culprit_step,
                     weft_status_name(its->status), its->message);
    }
    (void)one;
}

/* Who went on without the dead rank succeeded, unless another one had left before it learned of the
 * death; and then all did. */
static void check_survivors(void)
{
    bool all = true, any = false;
    for (int rank = 0; rank < now.ranks; rank++) {
        const outcome *its = &now.after[rank];
        all &= its->tried || has_died(rank);
        any |= its->ended && its->status == WEFT_OK;
    }
    for (int rank = 0; rank < now.ranks; rank++) {
        const outcome *its = &now.after[rank];
        if (its->tried && !(its->ended && (its->status == WEFT_OK ||
                                           (!all && its->status == WEFT_ERR_PEER_LEFT))))
            complain("rank %d cannot go on with the survivors: %s %s", rank,
                     weft_status_name(its->status), its->message);
        if (its->tried && any && its->status != WEFT_OK)
            complain("rank %d does not go on with the survivors, others do: %s", rank,
                     its->message);
    }
}

static void check_scene(void)
{
    if (now.result.hangs)
        complain("hangs: %s", now.result.state);
    for (int rank = 0; rank < now.ranks; rank++) {
        check_outcome(rank, -1, &now.init[rank], 0);
        for (int i = 0; i < now.steps; i++)
            check_outcome(rank, i, &now.done[rank][i], now.step[i].group);
    }
    for (int i = 0; i < now.steps; i++)
        check_all_or_none(i);
    check_survivors();
    if (now.trouble == MISMATCH && place_in(now.step[now.culprit_step].group, now.culprit) >= 0)
        check_mismatch();
    if (now.result.left_bytes)
        complain("%zu bytes are left", now.result.left_bytes);
}

static void show_scene(FILE *out)
{
    static const char *const flavours[] = {"plain", "posted", "barrier", "ring",
                                           "group", "symm",   "many",    "list"};
    fprintf(out,
            "seed %llu: %d ranks, WEFT_WAIT=%s, a turn every %u points, %s (rank %d, step %d)\n",
            (unsigned long long)now.seed, now.ranks, getenv("WEFT_WAIT"), now.plan.every,
            trouble_names[now.trouble], now.culprit, now.culprit_step);
    for (int i = 0; i < now.steps; i++) {
        char text[96];
        fprintf(out, "  step %d in group %d: %s, %s;", i, now.step[i].group,
                flavours[now.step[i].flavour], act_text(&now.step[i].what, text, sizeof text));
        for (int rank = 0; rank < now.ranks; rank++)
            fprintf(out, " %s%s", weft_status_name(now.done[rank][i].status),
                    now.done[rank][i].ended   ? ""
                    : now.done[rank][i].tried ? " (in it)"
                                              : " (-)");
        fputc('\n', out);
    }
    fprintf(out, "  %llu points, %llu turns, %.3f ms, hash %016llx\n",
            (unsigned long long)now.result.points, (unsigned long long)now.result.turns,
            (double)now.result.now_ns * 1e-6, (unsigned long long)now.result.hash);
}

/* Runs one seed; true if all held. */
static bool run_seed(uint64_t seed)
{
    make_scene(seed);
    weft_i_sim_begin(&now.plan);
    int result = weft_spawn(now.ranks, rank_body, NULL);
    weft_i_sim_end(&now.result);
    if (result)
        complain("weft_spawn gives %d", result);
    check_scene();
    if (verbose || now.failure[0])
        show_scene(stderr);
    if (now.failure[0])
        fprintf(stderr, "  %s\nWEFT_SIM_SEED=%llu repeats it\n", now.failure,
                (unsigned long long)seed);
    return !now.failure[0];
}

/* ---- tests ---- */

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static uint64_t seeds_to_run(void)
{
    return number_of("WEFT_SIM_SEEDS", VALUES_SANITIZED          ? 300
                                       : getenv("WEFT_TEST_ALL") ? 300000
                                                                 : 10000);
}

/* What happened, so that a test in which nothing does cannot pass; shared by both halves. */
typedef struct tally {
    unsigned long long ok, timeouts, dead, left, mismatched, revoked, deaths, turns, points;
    unsigned long long seed; /* under way: should the process crash, it is the one */
    char failure[1400];
} tally;

static void count_seen(tally *seen)
{
    seen->turns += now.result.turns;
    seen->points += now.result.points;
    for (int rank = 0; rank < now.ranks; rank++) {
        seen->deaths += has_died(rank);
        for (int i = 0; i < now.steps; i++) {
            const outcome *its = &now.done[rank][i];
            seen->ok += its->ended && its->status == WEFT_OK;
            seen->timeouts += its->timeouts;
            seen->dead += its->status == WEFT_ERR_PEER_DEAD;
            seen->left += its->status == WEFT_ERR_PEER_LEFT;
            seen->mismatched += its->status == WEFT_ERR_MISMATCH;
            seen->revoked += its->status == WEFT_ERR_REVOKED;
        }
    }
}

/* Every second seed of a range, until one fails. */
static void run_half(uint64_t first, uint64_t end, uint64_t stride, tally *seen)
{
    for (uint64_t seed = first; seed < end && !seen->failure[0]; seed += stride) {
        seen->seed = seed;
        if (!run_seed(seed))
            snprintf(seen->failure, sizeof seen->failure, "seed %llu: %s", (unsigned long long)seed,
                     now.failure);
        count_seen(seen);
    }
}

/* Hand-overs are cheapest on one core: the n-th, counted round, of ours. */
static void stay_on_core(int n)
{
    cpu_set_t mine, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof mine, &mine))
        return;
    n %= CPU_COUNT(&mine);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &mine) && n-- == 0)
            CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void run_both_halves(uint64_t first, uint64_t end, tally halves[2])
{
    pid_t other = fork();
    if (other == 0) {
        stay_on_core(1);
        run_half(first + 1, end, 2, &halves[1]);
        _exit(0);
    }
    CHECK(other > 0);
    cpu_set_t before;
    sched_getaffinity(0, sizeof before, &before);
    stay_on_core(0);
    run_half(first, end, 2, &halves[0]);
    sched_setaffinity(0, sizeof before, &before);
    int status = -1;
    waitpid(other, &status, 0);
    if (status)
        snprintf(halves[1].failure, sizeof halves[1].failure,
                 "seed %llu: its process ended with wait status %d", halves[1].seed, status);
}

TEST(test_simulator_seeds)
{
    uint64_t first = number_of("WEFT_SIM_FIRST", 1), count = seeds_to_run();
    tally *half =
        mmap(NULL, 2 * sizeof *half, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(half != MAP_FAILED);
    if (getenv("WEFT_SIM_SEED")) {
        verbose = true;
        count = 1;
        first = number_of("WEFT_SIM_SEED", 1);
        run_half(first, first + 1, 1, half);
    } else {
        run_both_halves(first, first + count, half);
    }
    tally sum = half[0], other = half[1];
    munmap(half, 2 * sizeof *half);
    if (sum.failure[0] || other.failure[0])
        FAIL("%s", sum.failure[0] ? sum.failure : other.failure);
    fprintf(stderr,
            "%llu seeds: %llu turns, %llu points, %llu deaths; operations by rank: %llu ok, %llu "
            "timeouts, %llu dead, %llu left, %llu mismatched, %llu revoked\n",
            (unsigned long long)count, sum.turns + other.turns, sum.points + other.points,
            sum.deaths + other.deaths, sum.ok + other.ok, sum.timeouts + other.timeouts,
            sum.dead + other.dead, sum.left + other.left, sum.mismatched + other.mismatched,
            sum.revoked + other.revoked);
    if (count >= 300) {
        CHECK(sum.ok && sum.timeouts && sum.dead && sum.left && sum.mismatched);
        CHECK(sum.deaths + other.deaths > count / 20);
    }
}

TEST(test_simulator_repeats)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        run_seed(seed);
        weft_i_sim_result once = now.result;
        run_seed(seed);
        CHECK(once.hash == now.result.hash);
        CHECK(once.turns == now.result.turns && once.points == now.result.points);
        CHECK(once.now_ns == now.result.now_ns);
    }
}

/* Seeds until the planted bug shows, 0 if it does not. */
static uint64_t seeds_until_found(uint64_t most)
{
    FILE *silent = stderr;
    stderr = fopen("/dev/null", "w");
    uint64_t seed = 1;
    while (seed <= most && run_seed(seed))
        seed++;
    fclose(stderr);
    stderr = silent;
    return seed <= most ? seed : 0;
}

TEST(test_simulator_finds_skipped_waits)
{
    skip_waits = true;
    uint64_t found = seeds_until_found(200);
    skip_waits = false;
    CHECK(found);
    fprintf(stderr, "a skipped wait is found by seed %llu: %s\n", (unsigned long long)found,
            now.failure);
}

/* A rank that passes by a store does not see that somebody has given up. */
TEST(test_simulator_finds_blind_exchanges)
{
    points_exchange_blindly = true;
    uint64_t found = seeds_until_found(2000);
    points_exchange_blindly = false;
    CHECK(found);
    fprintf(stderr, "an exchange that does not compare is found by seed %llu: %s\n",
            (unsigned long long)found, now.failure);
}

static int warm_up(void *unused)
{
    (void)unused;
    weft_scope_open();
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8));
    weft_status status = weft_all_reduce_into(x, x, WEFT_SUM, world);
    weft_scope_close();
    return status < 0;
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    if (weft_spawn(2, warm_up, NULL)) /* what is made once in a process is made now */
        return 1;
    return harness_main(argc, argv);
}

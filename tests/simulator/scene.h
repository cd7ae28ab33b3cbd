/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenes of the simulator's test: what a seed stands for (ranks, groups, steps, trouble), and what
 * a rank does in it.  Everything is in `now`, which belongs to whoever has the turn.
 */
#ifndef WEFT_TESTS_SIMULATOR_SCENE_H
#define WEFT_TESTS_SIMULATOR_SCENE_H

#define VALUES_LOCAL /* who has the turn has it alone */

#include "coll_acts.h"
#include "fabric/world/spawn.h"
#include "simulator/turns.h"

#include <linux/futex.h>

enum { RANKS = 4, STEPS = 8, LIMIT_MS = 24, MEET_MS = 400, TRIES = 6 };

/* STORM: several of the others at once. */
typedef enum trouble { NONE, DELAY, LATE, DEATH, LEAVE, MISMATCH, STORM, REVOKE, SHORTAGE } trouble;

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
    const weft_i_seat *place;
    outcome init[RANKS], done[RANKS][STEPS], after[RANKS]; /* after: a group of the survivors */
    weft_i_sim_result result;
    char failure[1200];
} scene;

static scene now;
static uint64_t dice;

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
    static const trouble often[] = {NONE,  DELAY, LATE,  LATE,     LATE,  STORM,  DEATH,
                                    DEATH, DEATH, DEATH, MISMATCH, LEAVE, REVOKE, SHORTAGE};
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
    if (now.trouble == SHORTAGE)
        fault->shortage_at = 1 + roll(60);
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
    weft_i_rank_record *slot = weft_i_job_rank(weft_i_job_of(now.place->job), rank);
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
    CHECK_OK(weft_scope_open());
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
    CHECK_OK(weft_scope_open());
    weft_tensor *out = weft_empty(sent.dtype, WEFT_CPU, WEFT_SHAPE(sent.count));
    weft_tensor *in = weft_empty(sent.dtype, WEFT_CPU, WEFT_SHAPE(sent.count));
    CHECK(in && out);
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
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4));
    weft_symm *mem = weft_symm_rendezvous(x, group);
    weft_status status = mem ? WEFT_OK : weft_last_status();
    int next = (me + 1) % size;
    if (mem)
        status = weft_fill(x, me + 1);
    if (mem && status == WEFT_OK)
        status = weft_symm_barrier(mem, 0, WEFT_DEFAULT);
    weft_tensor *theirs = mem && status == WEFT_OK ? weft_symm_tensor(mem, next) : NULL;
    if (mem && status == WEFT_OK && !theirs)
        status = weft_last_status();
    if (theirs) {
        if (weft_item(theirs, 3) != next + 1 && weft_last_status() == WEFT_OK)
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
    CHECK_OK(weft_scope_open());
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
    CHECK_OK(weft_scope_open());
    for (int i = 0; i < 3; i++) {
        CHECK(x[i] = weft_empty(dtypes[i], WEFT_CPU, WEFT_SHAPE(one->what.count % 999 + i)));
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
        if (now.trouble == REVOKE && rank == now.culprit && i == now.culprit_step) {
            weft_group_revoke(groups[one->flavour == GROUP ? 0 : one->group]);
            break;
        }
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
    if (weft_finish(groups[0]) && (now.trouble == NONE || now.trouble == DELAY))
        complain("rank %d finishes with an error though all went well: %s", rank,
                 weft_last_error());
}

static int rank_body(void *unused)
{
    (void)unused;
    now.place = weft_i_spawn_seat();
    if (weft_scope_open() < 0)
        return 0;
    if (!setjmp(harness_out))
        run_program(now.place->rank);
    else if (now.trouble != SHORTAGE) /* else there was no memory for an operand */
        complain("%s", harness_reason);
    weft_scope_close();
    return 0;
}

#endif

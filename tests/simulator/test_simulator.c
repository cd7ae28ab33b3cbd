/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/share/signal.c, base/share/wait.c, coll/lane/lane.c, coll/lane/enter.c,
 * coll/lane/fifo.c, coll/lane/list.c, coll/host/move.c, coll/host/reduce.c, coll/p2p/p2p.c,
 * fabric/group/exchange.c, fabric/group/group.c, fabric/world/watch.c, symm/signals.c,
 * symm/registration.c */
/*
 * Random programs on simulated ranks (simulator/turns.h): each seed is 2 to 4 ranks, a few
 * operations of a random kind, size and group, a random way of waiting, and a trouble: a delay, a
 * rank that comes too late, dies, leaves, revokes, runs out of memory or calls something else.
 * Afterwards is checked that every rank came to its end, that results are right, that an operation
 * succeeded for all of its ranks or for none, that errors are those the fault explains and name who
 * it was, and that nothing was left behind.
 *
 *     WEFT_SIM_SEED=n test_simulator     one seed again, with its story
 *     WEFT_SIM_SEEDS=n test_simulator    so many, from WEFT_SIM_FIRST or 1 on
 */
#include "fabric/world/world.h"
#include "simulator/scene.h"

#include "base/share/wait.h"

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
static bool verbose, quiet;

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
    bool skipped = skip_waits && wait->lost && wait->bell && weft_i_sim_steps() % 16 == 0;
    return skipped ? WEFT_OK : simulator_wait_for(wait);
}

/* ---- what must hold ---- */

static bool has_died(int rank)
{
    return now.result.deaths >> rank & 1;
}

static const char *const trouble_names[] = {"no trouble", "a delay",      "a late rank",
                                            "a death",    "a leave",      "a mismatch",
                                            "a storm",    "a revocation", "a shortage"};

/* Work posted behind one that ran out of time is run all the same, and the ranks are out of step.
 */
static bool has_many(void)
{
    for (int i = 0; i < now.steps; i++)
        if (now.step[i].flavour == MANY)
            return true;
    return false;
}

/* Small operations with a root go one way: who gives does not wait, and others may fail when it has
 * succeeded. */
static bool goes_one_way(const step *one)
{
    return (one->flavour == PLAIN || one->flavour == POSTED || one->flavour == MANY) &&
           act_has_root(one->what.kind);
}

/* Which errors the trouble explains. */
static bool is_explained(weft_status status, int group, bool one_sided)
{
    bool inside = place_in(group, now.culprit) >= 0;
    if ((now.trouble == LATE || now.trouble == STORM) && status == WEFT_ERR_MISMATCH)
        return has_many();
    switch (now.trouble) {
    case LATE:
        return status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_REVOKED ||
               status == WEFT_ERR_PEER_LEFT || status == WEFT_ERR_MISSING;
    case DEATH: /* one may wait for a rank that lives, and is busy making a group without the dead
                 */
        if (one_sided && status == WEFT_ERR_TIMEOUT)
            return true;
        if (!inside && status == WEFT_ERR_TIMEOUT)
            return true;
        return status == (inside ? WEFT_ERR_PEER_DEAD : WEFT_ERR_PEER_LEFT);
    case LEAVE:
        return status == WEFT_ERR_PEER_LEFT;
    case REVOKE:
        return status == WEFT_ERR_PEER_LEFT || status == WEFT_ERR_REVOKED;
    case SHORTAGE:
        return status == WEFT_ERR_PEER_LEFT || status == WEFT_ERR_NO_MEMORY ||
               status == WEFT_ERR_MISSING;
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
 * (the bounce buffer at first use, the entry, a sync), and what the ranks were delayed. */
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
    if (!its->ended && !(now.trouble == SHORTAGE && rank == now.culprit)) /* no operands */
        complain("rank %d did not come back from step %d", rank, i);
    if (i >= 0 && its->longest_ns > longest_of(&now.step[i]))
        complain("rank %d, step %d: a call took %.1f ms", rank, i, (double)its->longest_ns * 1e-6);
    if (its->status >= 0)
        return;
    if (!is_explained(its->status, group,
                      i >= 0 && (now.step[i].flavour == RING || goes_one_way(&now.step[i]))))
        complain("rank %d, step %d: %s does not explain %s (%s)", rank, i,
                 trouble_names[now.trouble], weft_status_name(its->status), its->message);
    snprintf(name, sizeof name, "rank %d", now.culprit);
    if (now.trouble == DEATH && its->status == WEFT_ERR_PEER_DEAD && !strstr(its->message, name))
        complain("rank %d, step %d: the message does not name %s: %s", rank, i, name, its->message);
}

static bool is_one_meeting(const step *one)
{
    return one->flavour != RING && one->flavour != MANY && !goes_one_way(one);
}

/* A meeting succeeds for all or for none: once a rank has succeeded, no other one fails. */
static void check_all_or_none(int i)
{
    uint64_t first = UINT64_MAX;
    int winner = -1;
    for (int rank = 0; rank < now.ranks; rank++)
        if (now.done[rank][i].ended && now.done[rank][i].status == WEFT_OK &&
            now.done[rank][i].order < first)
            first = now.done[winner = rank][i].order;
    for (int rank = 0; rank < now.ranks && winner >= 0 && is_one_meeting(&now.step[i]); rank++) {
        const outcome *its = &now.done[rank][i];
        if (!has_died(rank) && its->failed_order > first)
            complain("step %d succeeded for rank %d and then failed for rank %d: %s", i, winner,
                     rank, its->message);
    }
}

/* A mismatch is one for everybody who came, or, one way, for some. */
static void check_mismatch(void)
{
    const step *one = &now.step[now.culprit_step];
    bool some = false;
    for (int rank = 0; rank < now.ranks; rank++) {
        const outcome *its = &now.done[rank][now.culprit_step];
        for (int i = now.culprit_step; i < now.steps; i++)
            some |= now.done[rank][i].status == WEFT_ERR_MISMATCH;
        bool spared =
            goes_one_way(one) && (its->status == WEFT_OK || its->status == WEFT_ERR_PEER_LEFT);
        if (its->tried && its->status != WEFT_ERR_MISMATCH && !spared)
            complain("rank %d does not see the mismatch of step %d: %s %s", rank, now.culprit_step,
                     weft_status_name(its->status), its->message);
    }
    if (!some && !goes_one_way(one))
        complain("nobody sees the mismatch of step %d", now.culprit_step);
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
    weft_i_world_forget_all();
    if (result)
        complain("weft_spawn gives %d", result);
    check_scene();
    if (verbose || (now.failure[0] && !quiet))
        show_scene(stderr);
    if (now.failure[0] && !quiet)
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
    return number_of("WEFT_SIM_SEEDS", VALUES_SANITIZED          ? 600
                                       : getenv("WEFT_TEST_ALL") ? 300000
                                                                 : 5000);
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

static tally *shared_tally(void)
{
    tally *half =
        mmap(NULL, 2 * sizeof *half, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(half != MAP_FAILED);
    return half;
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

static void look_for_bug(uint64_t most, tally *seen)
{
    quiet = true;
    for (uint64_t seed = 1; seed <= most && !seen->failure[0]; seed++) {
        make_scene(seed);
        seen->seed = seed;
        if ((now.trouble == LATE || now.trouble == STORM) && !run_seed(seed))
            memcpy(seen->failure, now.failure, sizeof now.failure);
    }
}

/* Does a seed with late ranks show the planted bug?  In a process of its own, which may crash of
 * it. */
static bool is_found(const char *bug, uint64_t most)
{
    tally *seen = shared_tally();
    pid_t finder = fork();
    if (finder == 0) {
        look_for_bug(most, seen);
        _exit(0);
    }
    int status = -1;
    bool crashed = finder > 0 && waitpid(finder, &status, 0) == finder && status;
    bool found = crashed || seen->failure[0];
    fprintf(stderr, "%s: seed %llu: %s\n", bug, seen->seed,
            crashed ? "crashes"
            : found ? seen->failure
                    : "not found");
    munmap(seen, 2 * sizeof *seen);
    return found;
}

TEST(test_simulator_finds_skipped_waits)
{
    skip_waits = true;
    bool found = is_found("a skipped wait", 500);
    skip_waits = false;
    CHECK(found);
}

/* A rank that passes by a store does not see that somebody has given up. */
TEST(test_simulator_finds_blind_exchanges)
{
    points_exchange_blindly = true;
    bool found = is_found("an exchange that does not compare", 60000);
    points_exchange_blindly = false;
    CHECK(found);
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
    setenv("WEFT_TENSOR_CACHE", "0", 1); /* what a seed leaves behind is counted */
    if (weft_spawn(2, warm_up, NULL))    /* what is made once in a process is made now */
        return 1;
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/meet.c, fabric/meet/meet_store.c, fabric/meet/leave.c, fabric/world/watch.c */
/*
 * Meetings of simulated processes: two to five ranks on one to three hosts, started as torchrun
 * does, meet, pass some barriers, perhaps share memory, and leave, by exit or in order.  Troubles:
 * ranks that never come, come late, die or are stopped, strangers at the store's port.  Checked are
 * limits, errors that the trouble explains, the names of those who are missing, that a right
 * program succeeds on all ranks, and that nothing is left.
 */
#include "simulator/seeds.h"

#include "base/os/os.h"
#include "tensor/object/scope.h"
#include "weft/weft.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>

enum { RANKS = 5, HOSTS = 3, MEET_MS = 4000, LIMIT_MS = 1500, SLACK_MS = 120, TEXT = 40 };

typedef enum trouble { NONE, MISSING, LATE, DEATH, STOP, STRANGERS, TROUBLES } trouble;
static const char *const trouble_names[] = {"no trouble", "missing ranks", "a late rank",
                                            "a death",    "a stop",        "strangers"};

static struct {
    sim_os_plan plan;
    trouble trouble;
    int ranks, hosts, culprit, barriers;
    int host[RANKS];
    bool comes[RANKS], hasty, shares;
    int64_t late_ns, stop_for;
    int port, done;
    char text[RANKS][6][TEXT];
    unsigned long long ok, missing, dead, met;
} now;

/* ---- a rank ---- */

static bool is_explained(weft_status status)
{
    switch (now.trouble) {
    case MISSING:
        return status == WEFT_ERR_MISSING || status == WEFT_ERR_PEER_LEFT;
    case LATE:
    case STOP:
        return status == WEFT_ERR_MISSING || status == WEFT_ERR_PEER_LEFT ||
               status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_UNREACHABLE ||
               status == WEFT_ERR_PEER_DEAD || status == WEFT_ERR_REVOKED;
    case DEATH: /* on one host it is told, between hosts somebody may wait in vain */
        if (status == WEFT_ERR_TIMEOUT)
            return now.hosts > 1;
        return status == WEFT_ERR_PEER_DEAD || status == WEFT_ERR_MISSING ||
               status == WEFT_ERR_PEER_LEFT || status == WEFT_ERR_UNREACHABLE;
    default:
        return false;
    }
}

static weft_status judge(int rank, const char *what, int64_t began, int64_t limit_ms,
                         weft_status status)
{
    int64_t took = weft_i_sim_now() - began;
    if (took > (limit_ms + SLACK_MS) * 1000000 + now.stop_for)
        weft_i_sim_complain("rank %d: %s took %.1f ms, its limit is %lld", rank, what,
                            (double)took * 1e-6, (long long)limit_ms);
    if (status < 0 && !is_explained(status))
        weft_i_sim_complain("rank %d: %s: %s does not explain %s (%s)", rank, what,
                            trouble_names[now.trouble], weft_status_name(status),
                            weft_last_error());
    char name[16];
    snprintf(name, sizeof name, "rank %d", now.culprit);
    if (now.trouble == DEATH && status == WEFT_ERR_PEER_DEAD && !strstr(weft_last_error(), name))
        weft_i_sim_complain("rank %d: %s: %s died, but the message says: %s", rank, what, name,
                            weft_last_error());
    now.ok += status == WEFT_OK;
    now.missing += status == WEFT_ERR_MISSING;
    now.dead += status == WEFT_ERR_PEER_DEAD;
    return status;
}

/* Who came is not named, and who did not is, unless the store went before all were asked for. */
static void check_names(int rank)
{
    const char *text = weft_last_error(), *list = strstr(text, "these never came:");
    if (weft_last_status() != WEFT_ERR_MISSING || !list)
        return;
    const char *more = strstr(list, " (perhaps more");
    char names[256];
    snprintf(names, sizeof names, "%.*s,", more ? (int)(more - list) : 200, list);
    for (int other = 0; other < now.ranks; other++) {
        char name[8];
        snprintf(name, sizeof name, " %d,", other);
        bool named = strstr(names, name);
        if (named ? now.comes[other] : !now.comes[other] && !more)
            weft_i_sim_complain("rank %d: rank %d %s, but the message says: %s", rank, other,
                                now.comes[other] ? "came" : "never came", text);
    }
}

static weft_status share(weft_group *world, int rank)
{
    weft_status status = WEFT_OK;
    if (weft_scope_open() < 0)
        return weft_last_status();
    weft_tensor *mine = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(16));
    int64_t began = weft_i_sim_now();
    weft_symm *symm = mine ? weft_symm_rendezvous(mine, world) : NULL;
    if (!symm)
        status = judge(rank, "rendezvous", began, LIMIT_MS, weft_last_status());
    weft_scope_close();
    return status;
}

static int rank_main(void *arg)
{
    int rank = (int)(intptr_t)arg;
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = LIMIT_MS;
    opts.meet_timeout_ms = MEET_MS;
    if (now.trouble == LATE && rank == now.culprit)
        WEFT_OS->sleep_ns(now.late_ns);
    int64_t began = weft_i_sim_now();
    weft_group *world = weft_init(&opts);
    weft_status status =
        judge(rank, "weft_init", began, MEET_MS, world ? WEFT_OK : weft_last_status());
    if (status < 0 && now.trouble == MISSING)
        check_names(rank);
    now.met += world != NULL;
    for (int i = 0; i < now.barriers && status == WEFT_OK; i++) {
        began = weft_i_sim_now();
        status = judge(rank, "barrier", began, LIMIT_MS, weft_group_barrier(world, WEFT_DEFAULT));
    }
    if (status == WEFT_OK && now.shares)
        status = share(world, rank);
    began = weft_i_sim_now();
    int code = weft_finish(world);
    judge(rank, "weft_finish", began, LIMIT_MS, WEFT_OK);
    if (code && status == WEFT_OK)
        weft_i_sim_complain("rank %d finishes with %d though all went well: %s", rank, code,
                            weft_last_error());
    now.done++;
    if (now.hasty)
        return code;
    weft_release(world);
    weft_i_scope_abandon(true);
    sim_os_holding held = sim_os_holding_of(sim_os_self());
    if (held.descriptors || held.bytes)
        weft_i_sim_complain("rank %d leaves %d descriptors (%s) and %zu bytes", rank,
                            held.descriptors, held.example, held.bytes);
    return code;
}

/* Connects to the store's port now and then, and says nothing, or something. */
static int stranger_main(void *arg)
{
    (void)arg;
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)now.port)};
    inet_pton(AF_INET, "10.0.0.1", &where.sin_addr);
    for (int i = 0; i < 30 && now.done < now.ranks; i++) {
        int fd = WEFT_OS->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        WEFT_OS->connect(fd, (struct sockaddr *)&where, sizeof where);
        WEFT_OS->sleep_ns((int64_t)seeds_roll(3000000));
        struct iovec piece = {(char[]){"WEFT?"}, 5};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        if (seeds_roll(2))
            WEFT_OS->sendmsg(fd, &message, 0);
        WEFT_OS->close(fd);
    }
    return 0;
}

/* ---- a run ---- */

static void make_faults(void)
{
    uint64_t when = 1 + seeds_roll(seeds_roll(2) ? 400 : 4000);
    weft_i_sim_fault *fault = &now.plan.turns.fault[now.culprit];
    for (int i = 0; i < now.ranks; i++)
        now.comes[i] = now.trouble != MISSING || seeds_roll(2);
    if (now.trouble == MISSING) {
        now.comes[now.culprit] = false;
        now.comes[(now.culprit + 1) % now.ranks] = true;
    }
    if (now.trouble == LATE)
        now.late_ns = (int64_t)seeds_roll(2 * MEET_MS) * 1000000;
    if (now.trouble == DEATH)
        fault->death_at = when;
    if (now.trouble == STOP) {
        fault->delay_at = when;
        now.stop_for = fault->delay_ns = (int64_t)seeds_roll(3 * LIMIT_MS) * 1000000;
    }
}

static void make_scene(uint64_t seed)
{
    static const uint32_t every[] = {10, 40, 150, 400};
    memset(&now, 0, sizeof now);
    seeds_dice = seed * 2 + 1;
    now.ranks = 2 + (int)seeds_roll(RANKS - 1);
    now.hosts = 1 + (int)seeds_roll(HOSTS);
    now.trouble = (trouble)seeds_roll(TROUBLES);
    now.culprit = (int)seeds_roll((uint64_t)now.ranks);
    now.barriers = (int)seeds_roll(3);
    now.hasty = seeds_roll(2);
    now.shares = now.hosts == 1 && seeds_roll(2);
    now.port = 29000 + (int)seeds_roll(1000);
    for (int i = 0; i < now.ranks; i++)
        now.host[i] = i % now.hosts;
    now.plan.turns = (weft_i_sim_plan){.seed = seed * UINT64_C(0x9e3779b97f4a7c15),
                                       .every = every[seeds_roll(4)],
                                       .horizon_ns = INT64_C(60000000000),
                                       .points = 20000000};
    now.plan.tears = seeds_roll(2);
    now.plan.somaxconn = seeds_roll(2) ? 8 : 0;
    now.plan.latency_ns = (int64_t)(50000 << seeds_roll(6));
    make_faults();
}

static int on_host(int host)
{
    int count = 0;
    for (int i = 0; i < now.ranks; i++)
        count += now.host[i] == host;
    return count;
}

static void start_rank(int rank)
{
    sim_program program = {
        .main = rank_main, .arg = (void *)(intptr_t)rank, .host = now.host[rank]};
    static const char *const same[] = {
        "MASTER_ADDR=10.0.0.1",
        "WEFT_TOKEN=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        "WEFT_WAIT=sleep"};
    char(*text)[TEXT] = now.text[rank];
    int place = 0;
    for (int i = 0; i < rank; i++)
        place += now.host[i] == now.host[rank];
    snprintf(text[0], TEXT, "RANK=%d", rank);
    snprintf(text[1], TEXT, "WORLD_SIZE=%d", now.ranks);
    snprintf(text[2], TEXT, "LOCAL_RANK=%d", place);
    snprintf(text[3], TEXT, "LOCAL_WORLD_SIZE=%d", on_host(now.host[rank]));
    snprintf(text[4], TEXT, "MASTER_PORT=%d", now.port);
    for (int i = 0; i < 5; i++)
        program.env[i] = text[i];
    for (int i = 0; i < 3; i++)
        program.env[5 + i] = same[i];
    sim_os_start(&program);
}

static int nobody_main(void *arg)
{
    (void)arg;
    return 0;
}

static void run_scene(uint64_t seed, seeds_half *out)
{
    weft_i_sim_result result;
    make_scene(seed);
    sim_os_begin(&now.plan);
    for (int i = 0; i < now.ranks; i++)
        if (now.comes[i])
            start_rank(i);
        else
            sim_os_start(&(sim_program){.main = nobody_main});
    if (now.trouble == STRANGERS)
        sim_os_start(&(sim_program){.main = stranger_main, .host = 7, .user = 9});
    sim_os_join();
    sim_os_end(&result);
    seeds_close(&result, out);
    out->tally[0] += now.ok;
    out->tally[1] += now.missing;
    out->tally[2] += now.dead;
    out->tally[3] += now.met;
    if (seeds_verbose)
        fprintf(stderr,
                "seed %llu: %d ranks on %d hosts, %d barriers, %s%s, %s (rank %d): %llu points, "
                "%llu turns, %.3f ms\n",
                (unsigned long long)seed, now.ranks, now.hosts, now.barriers,
                now.hasty ? "hasty" : "orderly", now.shares ? ", shared memory" : "",
                trouble_names[now.trouble], now.culprit, (unsigned long long)result.points,
                (unsigned long long)result.turns, (double)result.now_ns * 1e-6);
}

static const seeds_scene scene = {.name = "meet",
                                  .run = run_scene,
                                  .count = 450,
                                  .tallies = {"calls", "missing", "dead", "entries"}};

TEST(test_simulator_meet_seeds)
{
    seeds_hold(&scene);
}

TEST(test_simulator_meet_repeats)
{
    for (uint64_t seed = 1; seed <= 10; seed++)
        seeds_repeat(&scene, seed);
}

TEST(test_simulator_meet_finds_threads_at_exit)
{
    seeds_find(&scene, 2, 1000, "after libcrypto's exit handlers have run");
}

TEST(test_simulator_meet_finds_a_store_that_goes_early)
{
    seeds_find(&scene, 3, 1000, "rank 0");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

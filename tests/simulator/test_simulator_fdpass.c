/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/share/fdpass.c */
/*
 * Post offices of simulated processes: an owner offers segments, some of them late or never, and
 * one to four others fetch them, while the owner may be stopped or die and strangers may knock. The
 * backlog may be short.  Checked are limits, the bytes that arrive, that an office of another user
 * gives nothing, and that nothing is left.
 */
#include "simulator/seeds.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/fdpass.h"
#include "tensor/object/scope.h"

#include <signal.h>
#include <sys/un.h>

enum { FETCHERS = 4, SEGMENTS = 3, LIMIT_MS = 80, SLACK_MS = 40, BYTES = 4096, MANY = 12 };

typedef enum trouble { NONE, STOP, DEATH, STRANGERS, NEVER, SHORT, TROUBLES } trouble;
static const char *const trouble_names[] = {"no trouble", "a stopped owner",    "a dead owner",
                                            "strangers",  "nothing is offered", "few descriptors"};

static struct {
    sim_os_plan plan;
    trouble trouble;
    int fetchers, segments, done;
    int64_t stop_for, offer_at[SEGMENTS];
    char name[64];
    unsigned long long ok, timeouts, dead, limits;
} now;

static weft_i_key key_of(int segment)
{
    return weft_i_key_of((weft_i_key){{7, 9}}, &segment, sizeof segment);
}

static void check_clean(const char *who)
{
    weft_i_scope_abandon(true);
    sim_os_holding held = sim_os_holding_of(sim_os_self());
    if (held.descriptors || held.bytes)
        weft_i_sim_complain("%s leaves %d descriptors (%s) and %zu bytes", who, held.descriptors,
                            held.example, held.bytes);
}

/* ---- the owner ---- */

static void offer_due(weft_i_fdpass *post, int *offered, int64_t began)
{
    while (*offered < now.segments && now.trouble != NEVER &&
           weft_i_sim_now() - began >= now.offer_at[*offered]) {
        weft_i_segment *segment = NULL;
        if (weft_i_segment_new(BYTES, WEFT_I_BETWEEN_PROCESSES, "test", &segment) < 0) {
            weft_i_sim_complain("the owner has no memory: %s", weft_last_error());
            return;
        }
        memset(segment->base, 'a' + *offered, BYTES);
        if (weft_i_fdpass_publish(post, key_of(*offered), segment, WEFT_OK) < 0)
            weft_i_sim_complain("the owner cannot offer: %s", weft_last_error());
        weft_i_segment_drop(segment);
        (*offered)++;
    }
}

static int owner_main(void *arg)
{
    (void)arg;
    weft_i_fdpass *post = NULL;
    int offered = 0, stop = WEFT_OS->eventfd(0);
    if (weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &post) < 0) {
        weft_i_sim_complain("the office does not open: %s", weft_last_error());
        return 1;
    }
    snprintf(now.name, sizeof now.name, "%s", weft_i_fdpass_name(post));
    int64_t began = weft_i_sim_now();
    while (now.done < now.fetchers) {
        offer_due(post, &offered, began);
        weft_i_fdpass_serve(post, stop, 20);
    }
    weft_i_fdpass_drop(post);
    WEFT_OS->close(stop);
    check_clean("the owner");
    return 0;
}

/* ---- those who fetch ---- */

static weft_status is_lost(void *arg)
{
    (void)arg;
    return WEFT_OK;
}

static bool is_explained(weft_status status)
{
    switch (now.trouble) {
    case STOP:
    case NEVER:
        return status == WEFT_ERR_TIMEOUT;
    case DEATH:
        return status == WEFT_ERR_PEER_DEAD || status == WEFT_ERR_TIMEOUT;
    case SHORT:
        return status == WEFT_ERR_LIMIT || status == WEFT_ERR_TIMEOUT;
    default:
        return false;
    }
}

static void fetch(weft_i_fdpass *own, int fetcher, int segment)
{
    weft_i_segment *got = NULL;
    int64_t began = weft_i_sim_now();
    weft_i_fdpass_order order = {.own = own,
                                 .peer = now.name,
                                 .key = key_of(segment),
                                 .bytes = BYTES,
                                 .keep = segment % 2,
                                 .deadline = began + LIMIT_MS * INT64_C(1000000),
                                 .lost = is_lost};
    weft_status status = weft_i_fdpass_fetch(&order, &got);
    int64_t took = weft_i_sim_now() - began;
    if (took > (LIMIT_MS + SLACK_MS) * INT64_C(1000000))
        weft_i_sim_complain("fetcher %d: a fetch took %.1f ms, its limit is %d", fetcher,
                            (double)took * 1e-6, LIMIT_MS);
    if (status < 0 && !is_explained(status))
        weft_i_sim_complain("fetcher %d: %s does not explain %s (%s)", fetcher,
                            trouble_names[now.trouble], weft_status_name(status),
                            weft_last_error());
    now.ok += status == WEFT_OK;
    now.timeouts += status == WEFT_ERR_TIMEOUT;
    now.dead += status == WEFT_ERR_PEER_DEAD;
    now.limits += status == WEFT_ERR_LIMIT;
    for (int i = 0; status == WEFT_OK && i < BYTES; i++)
        if (((const char *)got->base)[i] != 'a' + segment) {
            weft_i_sim_complain("fetcher %d: byte %d of segment %d is wrong", fetcher, i, segment);
            break;
        }
    if (status == WEFT_OK)
        weft_i_segment_drop(got);
}

static int fetcher_main(void *arg)
{
    int fetcher = (int)(intptr_t)arg;
    weft_i_fdpass *own = NULL;
    while (!now.name[0] && sim_os_status(0) < 0)
        WEFT_OS->sleep_ns(1000000);
    if (now.name[0] && weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &own) == WEFT_OK) {
        for (int i = 0; i < now.segments; i++)
            fetch(own, fetcher, (i + fetcher) % now.segments);
        weft_i_fdpass_drop(own);
    }
    now.done++;
    check_clean("a fetcher");
    return 0;
}

/* ---- strangers ---- */

/* Another user, or ours with nonsense: gets no memory. */
static int stranger_main(void *arg)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    while (!now.name[0] && sim_os_status(0) < 0)
        WEFT_OS->sleep_ns(100000);
    snprintf(where.sun_path + 1, sizeof where.sun_path - 1, "%s", now.name);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(now.name));
    int fds[MANY];
    for (int round = 0; round < 12 && now.done < now.fetchers; round++) {
        for (int i = 0; i < MANY; i++) {
            fds[i] = WEFT_OS->socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
            if (fds[i] >= 0 && WEFT_OS->connect(fds[i], (struct sockaddr *)&where, length) == 0) {
                struct iovec piece = {(char[]){"nonsense"}, 8};
                struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
                if (arg && seeds_roll(2))
                    WEFT_OS->sendmsg(fds[i], &message, 0);
            }
        }
        WEFT_OS->sleep_ns((int64_t)seeds_roll(3000000));
        for (int i = 0; i < MANY; i++) {
            char bytes[64];
            struct iovec piece = {bytes, sizeof bytes};
            struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
            if (fds[i] >= 0 && WEFT_OS->recvmsg(fds[i], &message, MSG_DONTWAIT) > 0)
                weft_i_sim_complain("a stranger gets an answer");
            if (fds[i] >= 0)
                WEFT_OS->close(fds[i]);
        }
    }
    return 0;
}

/* ---- a run ---- */

static void make_scene(uint64_t seed)
{
    static const uint32_t every[] = {20, 60, 200, 500};
    static const int backlogs[] = {2, 8, 64, 4096};
    memset(&now, 0, sizeof now);
    seeds_dice = seed * 2 + 1;
    now.fetchers = 1 + (int)seeds_roll(FETCHERS);
    now.segments = 1 + (int)seeds_roll(SEGMENTS);
    now.trouble = (trouble)seeds_roll(TROUBLES);
    for (int i = 0; i < now.segments; i++)
        now.offer_at[i] = (i ? now.offer_at[i - 1] : 0) + (int64_t)seeds_roll(12000000);
    now.plan.turns = (weft_i_sim_plan){.seed = seed * UINT64_C(0x9e3779b97f4a7c15),
                                       .every = every[seeds_roll(4)],
                                       .horizon_ns = INT64_C(60000000000),
                                       .points = 3000000};
    now.plan.somaxconn = backlogs[seeds_roll(4)];
    weft_i_sim_fault *fault = &now.plan.turns.fault[0];
    if (now.trouble == STOP) {
        fault->delay_at = 1 + seeds_roll(300);
        now.stop_for = fault->delay_ns = (int64_t)seeds_roll(600) * 1000000;
    }
    if (now.trouble == DEATH)
        fault->death_at = 1 + seeds_roll(600);
}

static void run_scene(uint64_t seed, seeds_half *out)
{
    weft_i_sim_result result;
    make_scene(seed);
    sim_os_begin(&now.plan);
    sim_os_start(&(sim_program){.main = owner_main});
    for (int i = 0; i < now.fetchers; i++)
        sim_os_start(
            &(sim_program){.main = fetcher_main,
                           .arg = (void *)(intptr_t)i,
                           .descriptors = now.trouble == SHORT ? 2 + (int)seeds_roll(4) : 0});
    for (int i = 0; i < 2 && now.trouble == STRANGERS; i++)
        sim_os_start(&(sim_program){.main = stranger_main, .arg = i ? &now : NULL, .user = i});
    sim_os_join();
    sim_os_end(&result);
    seeds_close(&result, out);
    out->tally[0] += now.ok;
    out->tally[1] += now.timeouts;
    out->tally[2] += now.dead;
    out->tally[3] += now.limits;
    if (seeds_verbose)
        fprintf(stderr,
                "seed %llu: %d fetch %d segments, backlog %d, %s: %llu points, %llu turns, %.3f "
                "ms\n",
                (unsigned long long)seed, now.fetchers, now.segments, now.plan.somaxconn,
                trouble_names[now.trouble], (unsigned long long)result.points,
                (unsigned long long)result.turns, (double)result.now_ns * 1e-6);
}

static const seeds_scene scene = {.name = "post",
                                  .run = run_scene,
                                  .count = 250,
                                  .tallies = {"fetched", "timeouts", "dead", "limits"}};

TEST(test_simulator_fdpass_seeds)
{
    seeds_hold(&scene);
}

TEST(test_simulator_fdpass_repeats)
{
    for (uint64_t seed = 1; seed <= 10; seed++)
        seeds_repeat(&scene, seed);
}

TEST(test_simulator_fdpass_finds_waiting_connects)
{
    seeds_find(&scene, 1, 1000, "its limit is");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

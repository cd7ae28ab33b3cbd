/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/client.c, store/server.c, store/peer.c, store/local.c */
/*
 * Stores over simulated sockets: a server, one to four clients on one or several hosts, and a
 * trouble.  Checked are results, that every call ends by its limit, what errors the trouble
 * explains, that nothing is left in a process that released all, and the exit of the server.
 */
#include "simulator/seeds.h"

#include "base/os/os.h"
#include "store/message.h"
#include "tensor/object/scope.h"
#include "weft/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>

enum {
    CLIENTS = 4,
    STEPS = 6,
    LIMIT_MS = 2000,
    CONNECT_MS = 5000,
    SLACK_MS = 60,
    JOIN_MS = 80, /* at most, for a client to join while strangers come */
    STORM_MS = 120,
    SERVER_MS = 60000
};

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define WRONG "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define WHERE "10.0.0.1"

typedef enum trouble {
    NONE,
    CLIENT_DIES,
    CLIENT_STOPS,
    SERVER_DIES,
    SERVER_STOPS,
    RESETS,
    STRANGERS,
    STORM,
    SERVER_LEAVES,
    TROUBLES
} trouble;
static const char *const trouble_names[] = {
    "no trouble", "a client dies", "a client stops", "a server dies",       "a server stops",
    "resets",     "strangers",     "a storm",        "a server that leaves"};

static struct {
    sim_os_plan plan;
    trouble trouble;
    bool tcp, hasty; /* exits without releasing anything */
    int clients, server, culprit;
    int port;
    int steps[CLIENTS];
    bool done[CLIENTS];
    int64_t stop_at, stop_for;
    int64_t total[CLIENTS]; /* what a client added to "sum" for sure */
    int64_t maybe;          /* ... and what may have been added by calls that failed */
    int64_t seen_sum;
    bool over; /* strangers go home */
    int joined;
    unsigned long long ok, timeouts, unreachable;
} now;

static bool is_stopped_trouble(void)
{
    return now.trouble == CLIENT_STOPS || now.trouble == SERVER_STOPS;
}

/* ---- calls ---- */

/* Which errors the trouble explains. */
static bool is_explained(weft_status status)
{
    switch (now.trouble) {
    case SERVER_DIES:
    case SERVER_LEAVES:
    case RESETS:
        return status == WEFT_ERR_UNREACHABLE || status == WEFT_ERR_TIMEOUT;
    case SERVER_STOPS:
    case CLIENT_STOPS:
    case CLIENT_DIES:
        return status == WEFT_ERR_TIMEOUT;
    default:
        return false;
    }
}

static weft_status judge(int client, const char *what, int64_t began, int64_t limit_ms,
                         weft_status status)
{
    int64_t took = weft_i_sim_now() - began, allowed = (limit_ms + SLACK_MS) * 1000000;
    if (is_stopped_trouble())
        allowed += now.stop_for;
    if (took > allowed)
        weft_i_sim_complain("client %d: %s took %.1f ms, its limit is %lld", client, what,
                            (double)took * 1e-6, (long long)limit_ms);
    if (status < 0 && !is_explained(status))
        weft_i_sim_complain("client %d: %s: %s does not explain %s (%s)", client, what,
                            trouble_names[now.trouble], weft_status_name(status),
                            weft_last_error());
    now.ok += status == WEFT_OK;
    now.timeouts += status == WEFT_ERR_TIMEOUT;
    now.unreachable += status == WEFT_ERR_UNREACHABLE;
    return status;
}

static size_t size_of(int client, int step)
{
    uint64_t mixed = (uint64_t)(client * 977 + step * 131 + now.port);
    return mixed % 23 == 0 ? 90000 + mixed % 5000 : mixed % 700;
}

static unsigned char byte_of(int client, int step, size_t i)
{
    return (unsigned char)((size_t)(client * 31 + step * 7) + i * 13);
}

static weft_status put(weft_store *store, int client, int step)
{
    char key[32];
    size_t bytes = size_of(client, step);
    unsigned char *value = malloc(bytes + 1);
    snprintf(key, sizeof key, "v/%d/%d", client, step);
    for (size_t i = 0; value && i < bytes; i++)
        value[i] = byte_of(client, step, i);
    int64_t began = weft_i_sim_now();
    weft_status status =
        judge(client, "set", began, LIMIT_MS, weft_store_set(store, key, value, bytes));
    free(value);
    return status;
}

static weft_status look(weft_store *store, int client, int of, int step)
{
    char key[32];
    weft_store_value value = {0};
    snprintf(key, sizeof key, "v/%d/%d", of, step);
    int64_t began = weft_i_sim_now(), limit = is_explained(WEFT_ERR_TIMEOUT) ? LIMIT_MS : 20000;
    weft_status status =
        judge(client, "get", began, limit, weft_store_get(store, key, limit, &value));
    if (status != WEFT_OK)
        return status;
    bool right = value.bytes == size_of(of, step);
    for (size_t i = 0; right && i < value.bytes; i++)
        right = ((const unsigned char *)value.data)[i] == byte_of(of, step, i);
    if (!right)
        weft_i_sim_complain("client %d: %s has a wrong value", client, key);
    weft_store_value_clear(&value);
    return WEFT_OK;
}

static weft_status look_many(weft_store *store, int client)
{
    const char *keys[3] = {"m/0", "m/1", "m/2"};
    const void *data[3] = {"one", "two", "three"};
    size_t bytes[3] = {3, 3, 5};
    weft_store_value values[3] = {{0}};
    int64_t began = weft_i_sim_now();
    weft_status status = judge(client, "multi_set", began, LIMIT_MS,
                               weft_store_multi_set(store, 3, keys, data, bytes));
    if (status != WEFT_OK)
        return status;
    began = weft_i_sim_now();
    status = judge(client, "multi_get", began, LIMIT_MS,
                   weft_store_multi_get(store, 3, keys, LIMIT_MS, values));
    for (int i = 0; i < 3 && status == WEFT_OK; i++)
        if (values[i].bytes != bytes[i] || memcmp(values[i].data, data[i], bytes[i]) != 0)
            weft_i_sim_complain("client %d: multi_get: value %d is wrong", client, i);
    for (int i = 0; i < 3; i++)
        weft_store_value_clear(&values[i]);
    return status;
}

static weft_status add(weft_store *store, int client)
{
    int64_t total = 0, began = weft_i_sim_now();
    now.maybe++;
    weft_status status =
        judge(client, "add", began, LIMIT_MS, weft_store_add(store, "sum", 1, &total));
    if (status != WEFT_OK)
        return status;
    now.maybe--;
    now.total[client]++;
    return WEFT_OK;
}

static weft_status queue(weft_store *store, int client)
{
    weft_store_value value = {0};
    int64_t began = weft_i_sim_now();
    weft_status status =
        judge(client, "push", began, LIMIT_MS, weft_store_queue_push(store, "q", "element", 7));
    if (status != WEFT_OK)
        return status;
    began = weft_i_sim_now();
    status =
        judge(client, "pop", began, LIMIT_MS, weft_store_queue_pop(store, "q", LIMIT_MS, &value));
    if (status == WEFT_OK && (value.bytes != 7 || memcmp(value.data, "element", 7) != 0))
        weft_i_sim_complain("client %d: a wrong element", client);
    weft_store_value_clear(&value);
    return status;
}

static weft_status step_of(weft_store *store, int client, int step)
{
    switch ((client * 5 + step * 3 + now.port) % 7) {
    case 0:
    case 1:
        return add(store, client);
    case 2:
        return queue(store, client);
    case 3:
        return look_many(store, client);
    default: {
        int of = (client + step) % now.clients;
        bool comes = of != client && step > 0 && step <= now.steps[of];
        return comes ? look(store, client, of, step - 1) : WEFT_OK;
    }
    }
}

/* ---- programs ---- */

static void check_clean(const char *who)
{
    weft_i_scope_abandon(true);
    sim_os_holding held = sim_os_holding_of(sim_os_self());
    if (held.descriptors || held.bytes)
        weft_i_sim_complain("%s leaves %d descriptors (%s) and %zu bytes", who, held.descriptors,
                            held.example, held.bytes);
}

static weft_store *join(int client)
{
    int64_t began = weft_i_sim_now();
    weft_store *store = now.tcp ? weft_store_tcp_connect(WHERE, now.port, TOKEN, CONNECT_MS)
                                : weft_store_unix_connect("the store", CONNECT_MS);
    int64_t took = weft_i_sim_now() - began;
    if (took >
        (CONNECT_MS + SLACK_MS) * INT64_C(1000000) + (is_stopped_trouble() ? now.stop_for : 0))
        weft_i_sim_complain("client %d: connect took %.1f ms", client, (double)took * 1e-6);
    if (!store && !is_explained(weft_last_status()) &&
        !(now.trouble == SERVER_STOPS && weft_last_status() == WEFT_ERR_UNREACHABLE))
        weft_i_sim_complain("client %d cannot join: %s does not explain %s", client,
                            trouble_names[now.trouble], weft_last_error());
    now.joined++;
    if ((now.trouble == STRANGERS || now.trouble == STORM) && took > JOIN_MS * INT64_C(1000000))
        weft_i_sim_complain("strangers keep client %d out for %.1f ms", client,
                            (double)took * 1e-6);
    return store;
}

static int client_main(void *arg)
{
    int client = (int)(intptr_t)arg;
    weft_store *store = join(client);
    bool good = store && weft_store_set_timeout(store, LIMIT_MS) == WEFT_OK;
    for (int step = 0; step < now.steps[client] && good; step++)
        good = put(store, client, step) == WEFT_OK && step_of(store, client, step) == WEFT_OK;
    if (good) {
        int64_t total = 0, began = weft_i_sim_now();
        judge(client, "the last add", began, LIMIT_MS, weft_store_add(store, "bye", 1, &total));
    }
    now.done[client] = true;
    if (now.hasty)
        return 0;
    weft_release(store);
    check_clean("a client");
    return 0;
}

/* Those who can say so have said good-bye, or will not come. */
static bool all_have_gone(weft_store *store)
{
    int64_t gone = 0, alive = 0;
    if (weft_store_add(store, "bye", 0, &gone) != WEFT_OK)
        return true;
    for (int i = 0; i < now.clients; i++)
        alive += !now.done[i] || sim_os_status(now.server + 1 + i) < 0;
    return gone >= now.clients || alive == 0;
}

static int server_main(void *arg)
{
    (void)arg;
    weft_store *store =
        now.tcp ? weft_store_tcp_serve(WHERE, now.port, TOKEN) : weft_store_unix_serve("the store");
    if (!store) {
        weft_i_sim_complain("the server does not start: %s", weft_last_error());
        return 1;
    }
    int64_t end = weft_i_sim_now() + SERVER_MS * INT64_C(1000000);
    if (now.trouble == SERVER_LEAVES)
        end = weft_i_sim_now() + now.stop_at;
    while (weft_i_sim_now() < end && !all_have_gone(store))
        WEFT_OS->sleep_ns(now.trouble == SERVER_LEAVES ? 300000 : 3000000);
    weft_store_add(store, "sum", 0, &now.seen_sum);
    now.over = true;
    if (now.hasty)
        return 0;
    weft_release(store);
    check_clean("the server");
    return 0;
}

/* ---- strangers ---- */

static int dial(void)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)now.port)};
    inet_pton(AF_INET, WHERE, &where.sin_addr);
    int fd = WEFT_OS->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        WEFT_OS->connect(fd, (struct sockaddr *)&where, sizeof where);
    return fd;
}

static void say(int fd, const void *bytes, size_t count)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    struct iovec piece = {(void *)(uintptr_t)bytes, count};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    WEFT_OS->poll(&ready, 1, 20);
    WEFT_OS->sendmsg(fd, &message, 0);
}

/* Knocks, says something or nothing, and stays for a while. */
static int stranger_main(void *arg)
{
    int kind = (int)(intptr_t)arg;
    weft_i_store_greeting hello = {.kind = WEFT_I_STORE_HELLO, .version = WEFT_I_STORE_VERSION};
    uint8_t bytes[WEFT_I_STORE_GREETING_BYTES];
    weft_i_store_greeting_encode(&hello, bytes);
    if (kind == 3) {
        weft_store *store = weft_store_tcp_connect(WHERE, now.port, WRONG, 300);
        if (store || weft_last_status() == WEFT_OK)
            weft_i_sim_complain("a stranger with a wrong token is let in");
        return 0;
    }
    for (int i = 0; i < 6 && !now.over; i++) {
        int fd = dial();
        if (fd < 0)
            return 0;
        if (kind == 1)
            say(fd, "GET / HTTP/1.1\r\n\r\n", 18);
        else if (kind == 2)
            say(fd, bytes, sizeof bytes);
        WEFT_OS->sleep_ns((int64_t)seeds_roll(40000000));
        WEFT_OS->close(fd);
    }
    return 0;
}

/* Knocks without a pause. */
static int storm_main(void *arg)
{
    int burst = (int)(intptr_t)arg, fds[100];
    int64_t end = weft_i_sim_now() + STORM_MS * INT64_C(1000000);
    while (now.joined < now.clients && weft_i_sim_now() < end) {
        for (int i = 0; i < burst; i++)
            fds[i] = dial();
        WEFT_OS->sleep_ns((int64_t)seeds_roll(400000));
        for (int i = 0; i < burst; i++)
            if (fds[i] >= 0)
                WEFT_OS->close(fds[i]);
    }
    return 0;
}

/* ---- a run ---- */

static void make_scene(uint64_t seed)
{
    static const uint32_t every[] = {3, 10, 40, 120};
    memset(&now, 0, sizeof now);
    seeds_dice = seed * 2 + 1;
    now.clients = 1 + (int)seeds_roll(CLIENTS);
    now.trouble = (trouble)seeds_roll(TROUBLES);
    now.tcp = now.trouble >= RESETS || seeds_roll(3);
    now.hasty = seeds_roll(2);
    now.port = 29000 + (int)seeds_roll(1000);
    now.culprit = (int)seeds_roll((uint64_t)now.clients);
    for (int i = 0; i < now.clients; i++)
        now.steps[i] = 1 + (int)seeds_roll(STEPS);
    now.stop_at = (int64_t)seeds_roll(40000000);
    now.stop_for = (int64_t)seeds_roll(3) * LIMIT_MS * 700000;
    now.plan.turns = (weft_i_sim_plan){.seed = seed * UINT64_C(0x9e3779b97f4a7c15),
                                       .every = every[seeds_roll(4)],
                                       .horizon_ns = INT64_C(200000000000),
                                       .points = 3000000};
    now.plan.tears = seeds_roll(2);
    now.plan.resets = now.trouble == RESETS;
    now.plan.buffer = seeds_roll(2) ? 0 : 300 + seeds_roll(9000);
    now.plan.latency_ns = (int64_t)(100000 << seeds_roll(6));
    if (now.trouble == STORM)
        now.plan.latency_ns = 100000;
    uint64_t when = 1 + seeds_roll(seeds_roll(2) ? 150 : 3000);
    if (now.trouble == SERVER_DIES)
        now.plan.turns.fault[0].death_at = when;
    if (now.trouble == CLIENT_DIES)
        now.plan.turns.fault[1 + now.culprit].death_at = when;
    if (is_stopped_trouble()) {
        weft_i_sim_fault *fault =
            &now.plan.turns.fault[now.trouble == SERVER_STOPS ? 0 : 1 + now.culprit];
        fault->delay_at = when;
        fault->delay_ns = now.stop_for;
    }
}

static void start_all(void)
{
    now.server = sim_os_start(&(sim_program){.main = server_main});
    for (int i = 0; i < now.clients; i++)
        sim_os_start(&(sim_program){.main = client_main,
                                    .arg = (void *)(intptr_t)i,
                                    .host = now.tcp ? (int)seeds_roll(3) : 0});
    for (int i = 0; i < 3 && now.trouble == STRANGERS; i++)
        sim_os_start(&(sim_program){
            .main = stranger_main, .arg = (void *)(intptr_t)seeds_roll(4), .host = 7, .user = 9});
    for (int i = 0; i < 2 && now.trouble == STORM; i++)
        sim_os_start(&(sim_program){
            .main = storm_main, .arg = (void *)(intptr_t)(20 + seeds_roll(80)), .host = 7});
}

/* Every add that was confirmed counts once, and no other one. */
static void check_sum(seeds_half *out)
{
    int64_t sum = 0;
    for (int i = 0; i < now.clients; i++)
        sum += now.total[i];
    if (now.trouble != SERVER_DIES && now.trouble != SERVER_LEAVES &&
        (now.seen_sum < sum || now.seen_sum > sum + now.maybe))
        seeds_fail(out, "the sum is %lld, %lld (perhaps %lld more) were added",
                   (long long)now.seen_sum, (long long)sum, (long long)now.maybe);
}

static void run_scene(uint64_t seed, seeds_half *out)
{
    weft_i_sim_result result;
    make_scene(seed);
    sim_os_begin(&now.plan);
    start_all();
    sim_os_join();
    sim_os_end(&result);
    seeds_close(&result, out);
    check_sum(out);
    out->tally[0] += now.ok;
    out->tally[1] += now.timeouts;
    out->tally[2] += now.unreachable;
    out->tally[3] += now.hasty;
    if (seeds_verbose)
        fprintf(stderr, "seed %llu: %d clients, %s, %s, %s: %llu points, %llu turns, %.3f ms\n",
                (unsigned long long)seed, now.clients, now.tcp ? "TCP" : "Unix",
                now.hasty ? "hasty" : "orderly", trouble_names[now.trouble],
                (unsigned long long)result.points, (unsigned long long)result.turns,
                (double)result.now_ns * 1e-6);
}

static const seeds_scene scene = {.name = "store",
                                  .run = run_scene,
                                  .count = 150,
                                  .tallies = {"calls", "timeouts", "unreachable", "hasty exits"}};

TEST(test_simulator_store_seeds)
{
    seeds_hold(&scene);
}

TEST(test_simulator_store_repeats)
{
    for (uint64_t seed = 1; seed <= 20; seed++)
        seeds_repeat(&scene, seed);
}

TEST(test_simulator_store_finds_crowded_out_ranks)
{
    seeds_find(&scene, 9, 200, "strangers keep client");
}

TEST(test_simulator_store_finds_threads_at_exit)
{
    seeds_find(&scene, 2, 2000, "after libcrypto's exit handlers have run");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/client.c, store/link.c */
/*
 * A client of a simulated server that lies: its answers have too many or too few values, other
 * statuses, wrong ids, bytes cut off or changed, or it closes.  Checked are that a call ends by its
 * limit, writes nothing beyond what was asked for, and gives values only if they are those that
 * were sent for it.
 */
#include "simulator/seeds.h"

#include "base/machine/nofork.h"
#include "base/os/os.h"
#include "store/link.h"
#include "tensor/object/scope.h"
#include "weft/store.h"
#include "weft/version.h"

#include <sys/un.h>

enum { CALLS = 6, KEYS = 3, ROOM = 64, LIMIT_MS = 300, SLACK_MS = 40 };

typedef enum lie { HONEST, MORE, FEWER, STATUS, OTHER_ID, CUT, CHANGED, CLOSES, SILENT, LIES } lie;

static struct {
    sim_os_plan plan;
    lie lies[CALLS];
    int asked, answered;
    unsigned long long ok, refused, timeouts;
} now;

/* ---- the liar ---- */

static int open_door(void)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    memcpy(where.sun_path + 1, "liar", 4);
    int fd = WEFT_OS->socket(AF_UNIX, SOCK_STREAM, 0);
    WEFT_OS->bind(fd, (struct sockaddr *)&where,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 5));
    WEFT_OS->listen(fd, 4);
    return fd;
}

/* Waits until all is sent, or the client has gone. */
static bool send_all(weft_i_store_link *line)
{
    while (weft_i_store_link_unsent(line)) {
        struct pollfd ready = {.fd = line->fd, .events = POLLOUT};
        WEFT_OS->poll(&ready, 1, -1);
        if (weft_i_store_link_flush(line) < 0)
            return false;
    }
    return true;
}

static bool hear_more(weft_i_store_link *line)
{
    struct pollfd ready = {.fd = line->fd, .events = POLLIN};
    WEFT_OS->poll(&ready, 1, -1);
    return weft_i_store_link_fill(line, 1 << 20) == WEFT_OK;
}

static bool greet(weft_i_store_link *line)
{
    weft_i_store_greeting hello,
        welcome = {.kind = WEFT_I_STORE_WELCOME, .version = WEFT_I_STORE_VERSION};
    snprintf(welcome.release, sizeof welcome.release, "%s", WEFT_VERSION);
    while (weft_i_store_link_greeting(line, &hello) == 0)
        if (!hear_more(line))
            return false;
    return weft_i_store_link_greet(line, &welcome) == WEFT_OK && send_all(line);
}

static size_t count_for(lie what)
{
    return what == MORE    ? KEYS + 1 + (size_t)seeds_roll(ROOM - KEYS - 1)
           : what == FEWER ? (size_t)seeds_roll(KEYS)
                           : KEYS;
}

/* One answer, as true as `what` allows.  False: the connection is over. */
static bool answer(weft_i_store_link *line, uint64_t id, lie what)
{
    weft_i_view views[ROOM];
    weft_i_store_answer back = {.values = count_for(what), .value = views};
    for (size_t i = 0; i < ROOM; i++)
        views[i] = (weft_i_view){"value", 5};
    if (what == STATUS)
        back.status = seeds_roll(2) ? WEFT_ERR_NOT_FOUND : WEFT_ERR_NO_MEMORY;
    size_t bytes = weft_i_store_answer_bytes(&back);
    uint8_t *payload = weft_i_store_link_begin(line, what == OTHER_ID ? id + 7 : id, bytes);
    if (!payload || what == CLOSES)
        return false;
    weft_i_store_answer_encode(&back, payload, bytes);
    if (what == CHANGED)
        payload[seeds_roll(bytes)] ^= (uint8_t)(1 + seeds_roll(255));
    if (weft_i_store_link_commit(line, bytes) < 0)
        return false;
    if (what == CUT)
        line->out.end -= 1 + seeds_roll(bytes);
    return send_all(line) && what != CUT;
}

static int liar_main(void *arg)
{
    (void)arg;
    int door = open_door(), fd = WEFT_OS->accept(door, false);
    weft_i_store_link line;
    weft_i_store_frame frame;
    weft_i_nofork_add(fd);
    weft_i_store_link_open(&line, fd);
    bool good = greet(&line);
    while (good && now.answered < CALLS) {
        int got = weft_i_store_link_next(&line, &frame);
        if (got == 1 && frame.id) { /* 0: one-way words */
            lie what = now.lies[now.answered++];
            good = what == SILENT || answer(&line, frame.id, what);
        } else if (got == 0) {
            good = hear_more(&line);
        } else {
            good = got >= 0;
        }
    }
    weft_i_store_link_close(&line, false);
    WEFT_OS->close(door);
    return 0;
}

/* ---- the client ---- */

static void check_values(const weft_store_value *values, weft_status status)
{
    for (int i = KEYS; i < ROOM; i++)
        if (values[i].data || values[i].bytes)
            weft_i_sim_complain("%d keys were asked for, and value %d is written", KEYS, i);
    for (int i = 0; i < KEYS; i++) {
        bool given = values[i].data && values[i].bytes;
        if (status != WEFT_OK && given)
            weft_i_sim_complain("a call that fails gives a value");
    }
}

static weft_status ask(weft_store *store, lie what)
{
    static const char *const keys[KEYS] = {"a", "b", "c"};
    weft_store_value values[ROOM] = {{0}};
    int64_t began = weft_i_sim_now();
    weft_status status = weft_store_multi_get(store, KEYS, keys, LIMIT_MS, values);
    int64_t took = weft_i_sim_now() - began;
    if (took > (LIMIT_MS + SLACK_MS) * INT64_C(1000000))
        weft_i_sim_complain("a call took %.1f ms, its limit is %d", (double)took * 1e-6, LIMIT_MS);
    check_values(values, status);
    if (status == WEFT_OK && what != HONEST && what != CHANGED)
        weft_i_sim_complain("a lie (%d) is believed", (int)what);
    if (status != WEFT_OK && what == HONEST)
        weft_i_sim_complain("a right answer is refused: %s", weft_last_error());
    now.ok += status == WEFT_OK;
    now.refused += status == WEFT_ERR_PROTOCOL || status == WEFT_ERR_UNREACHABLE;
    now.timeouts += status == WEFT_ERR_TIMEOUT;
    for (int i = 0; i < KEYS; i++)
        weft_store_value_clear(&values[i]);
    return status;
}

static int client_main(void *arg)
{
    (void)arg;
    weft_store *store = weft_store_unix_connect("liar", 2000);
    if (!store)
        weft_i_sim_complain("the client cannot connect: %s", weft_last_error());
    weft_status status = store ? WEFT_OK : WEFT_ERR_UNREACHABLE;
    for (int i = 0; i < CALLS && status != WEFT_ERR_PROTOCOL && status != WEFT_ERR_UNREACHABLE; i++)
        status = ask(store, now.lies[i]);
    weft_release(store);
    weft_i_scope_abandon(true);
    sim_os_holding held = sim_os_holding_of(sim_os_self());
    if (held.descriptors || held.bytes)
        weft_i_sim_complain("the client leaves %d descriptors (%s) and %zu bytes", held.descriptors,
                            held.example, held.bytes);
    return 0;
}

/* ---- a run ---- */

static void run_scene(uint64_t seed, seeds_half *out)
{
    static const uint32_t every[] = {1, 5, 20, 80};
    weft_i_sim_result result;
    memset(&now, 0, sizeof now);
    seeds_dice = seed * 2 + 1;
    for (int i = 0; i < CALLS; i++)
        now.lies[i] = seeds_roll(2) ? HONEST : (lie)seeds_roll(LIES);
    now.plan.turns = (weft_i_sim_plan){.seed = seed * UINT64_C(0x9e3779b97f4a7c15),
                                       .every = every[seeds_roll(4)],
                                       .horizon_ns = INT64_C(30000000000),
                                       .points = 1000000};
    now.plan.tears = seeds_roll(2);
    sim_os_begin(&now.plan);
    sim_os_start(&(sim_program){.main = liar_main});
    sim_os_start(&(sim_program){.main = client_main});
    sim_os_join();
    sim_os_end(&result);
    seeds_close(&result, out);
    out->tally[0] += now.ok;
    out->tally[1] += now.refused;
    out->tally[2] += now.timeouts;
    if (seeds_verbose)
        fprintf(stderr, "seed %llu: lies %d %d %d %d %d %d, %llu turns\n", (unsigned long long)seed,
                (int)now.lies[0], (int)now.lies[1], (int)now.lies[2], (int)now.lies[3],
                (int)now.lies[4], (int)now.lies[5], (unsigned long long)result.turns);
}

static const seeds_scene scene = {.name = "liar",
                                  .run = run_scene,
                                  .count = 4000,
                                  .tallies = {"believed", "refused", "timeouts"}};

TEST(test_simulator_liar_seeds)
{
    seeds_hold(&scene);
}

TEST(test_simulator_liar_finds_trusted_counts)
{
    seeds_find(&scene, 5, 100, "value 3 is written");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

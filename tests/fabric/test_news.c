/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/news.c, fabric/world/watch.c */
/*
 * Ranks on several hosts, simulated by WEFT_HOST_ID: what they learn of each other's end, and how
 * they go on when the rank that serves the store is gone.
 */
#include "crew.h"
#include "hosts.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "fabric/group/group.h"
#include "store/client.h"

enum { LIMIT_MS = 60000, SOON_MS = 30000 };

typedef struct scene {
    int port, size, per_host;
    unsigned dying;  /* a bit for each rank that dies */
    int way;         /* how */
    const char *log; /* NULL: nothing is logged */
} scene;

enum { BY_SIGNAL, BY_EXIT, WHILE_OTHERS_SLEEP, WAYS };

static weft_group *join(int rank, const scene *s)
{
    setenv("WEFT_DEBUG", s->log ? "INFO" : "NONE", 1);
    weft_group *world = hosts_join(rank, s->size, s->per_host, s->port);
    weft_group_set_timeout(world, LIMIT_MS);
    return world;
}

/* ---- a right program ---- */

static int right_crew(int rank, void *arg)
{
    weft_group *world = join(rank, arg);
    CREW(world, "%s", weft_last_error());
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    CREW(weft_finish(world) == 0, "%s", weft_last_error());
    crew->rank[rank].done = 1;
    exit(0); /* as a return from main: with all exit functions */
}

TEST(test_news_init_barrier_finish)
{
    scene s = {.size = 4, .per_host = 1};
    for (int round = 0; round < 25; round++) {
        s.port = free_port();
        if (!s.port)
            SKIP("no port is free here");
        s.per_host = 1 + round % 2;
        crew_run("init, barrier, finish", 4, right_crew, &s, -1);
    }
}

/* The rank that serves the store waits in weft_finish for a slow one, but not for one that died. */
static int slow_crew(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    crew->go++;
    if (rank == 2) {
        while (crew->go < 3)
            crew_rest(1);
        crew_rest(50); /* the others are in weft_finish, or through */
        weft_store *store = world->world->store;
        for (int i = 0; i < 50; i++)
            CREW(weft_store_add(store, "count", 1, NULL) == WEFT_OK, "%s", weft_last_error());
    }
    if (s->dying >> rank & 1)
        raise(SIGKILL);
    int64_t begin = WEFT_OS->clock_ns();
    CREW(weft_finish(world) == 0, "%s", weft_last_error());
    crew->rank[rank].slowest_ms = (WEFT_OS->clock_ns() - begin) / 1000000;
    CREW(crew->rank[rank].slowest_ms < LIMIT_MS / 2, "finish took %lld ms",
         crew->rank[rank].slowest_ms);
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_news_finish_waits_for_the_slow)
{
    scene s = {.size = 3, .per_host = 1, .port = free_port()};
    if (!s.port)
        SKIP("no port is free here");
    crew_run("slow", 3, slow_crew, &s, -1);
    s.port = free_port();
    s.dying = 1u << 1;
    crew_run("slow, and one dies", 3, slow_crew, &s, 1);
}

/* ---- deaths ---- */

/* Names of those who live in a message are names of innocents. */
static bool blames(const char *message, int rank)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d (", rank);
    return strstr(message, name) != NULL;
}

static void end_as(int way)
{
    if (way == BY_EXIT)
        exit(0); /* without weft_finish */
    raise(SIGKILL);
}

static int dying_crew(int rank, void *arg)
{
    const scene *s = arg;
    int living[CREW_MAX], count = 0, first_dead = __builtin_ctz(s->dying);
    for (int i = 0; i < s->size; i++)
        if (!(s->dying >> i & 1))
            living[count++] = i;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    for (int i = 0; i < 3; i++)
        CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    weft_group *pair = weft_group_new(world, living + count - 2, 2, NULL); /* without rank 0 */
    weft_clear_error();
    crew->given_up++;
    while (crew->given_up < s->size) /* so far all is well for all */
        crew_rest(1);
    if (s->dying >> rank & 1) {
        crew->go++;
        end_as(s->way);
    }
    if (s->way == WHILE_OTHERS_SLEEP) {
        while (crew->go < __builtin_popcount(s->dying))
            crew_rest(1);
        crew_rest(30);
    }
    int64_t begin = WEFT_OS->clock_ns();
    weft_status status = weft_group_barrier(world, WEFT_DEFAULT);
    int64_t told = (WEFT_OS->clock_ns() - begin) / 1000000;
    CREW(status == WEFT_ERR_PEER_DEAD, "%d: %s", status, weft_last_error());
    CREW(told < SOON_MS, "told after %lld ms: %s", (long long)told, weft_last_error());
    bool named = false;
    for (int i = 0; i < s->size; i++) {
        bool dead = s->dying >> i & 1;
        named |= dead && blames(weft_last_error(), i);
        CREW(dead || !blames(weft_last_error(), i), "rank %d is blamed: %s", i, weft_last_error());
    }
    CREW(named, "none of the dead, from rank %d on, is named: %s", first_dead, weft_last_error());
    crew->rank[rank].slowest_ms = told;
    weft_group *rest = weft_group_shrink(world); /* without a revoke */
    int64_t whole = (WEFT_OS->clock_ns() - begin) / 1000000;
    CREW(rest, "%s", weft_last_error());
    char gone[256] = "";
    for (int i = 0; i < s->size; i++) {
        size_t used = strlen(gone);
        snprintf(gone + used, sizeof gone - used, " %d: %d", i, world->world->peers[i].gone);
    }
    CREW(weft_size(rest) == count, "%d survivors, not %d;%s", weft_size(rest), count, gone);
    CREW(whole < SOON_MS, "shrunk after %lld ms", (long long)whole);
    for (int i = 0; i < 3; i++)
        CREW(weft_group_barrier(rest, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    weft_group *split = weft_group_split(rest, 0, 0);
    CREW(split && weft_size(split) == count, "%s", weft_last_error());
    CREW(!pair || weft_group_barrier(pair, WEFT_DEFAULT) == WEFT_OK, "the pair: %s",
         weft_last_error());
    weft_clear_error();
    weft_finish(world);
    crew->rank[rank].done = 1;
    return 0;
}

static void run_deaths(const char *what, int size, int per_host, unsigned dying)
{
    for (int way = 0; way < WAYS; way++)
        for (int round = 0; round < 4; round++) {
            scene s = {.size = size, .per_host = per_host, .dying = dying, .way = way};
            s.port = free_port();
            if (!s.port)
                SKIP("no port is free here");
            crew_run_without(what, size, dying_crew, &s, dying);
            long long slowest = 0;
            for (int rank = 0; rank < size; rank++)
                if (crew->rank[rank].slowest_ms > slowest)
                    slowest = crew->rank[rank].slowest_ms;
            if (!round)
                printf("# %s, way %d: told after at most %lld ms\n", what, way, slowest);
        }
}

TEST(test_news_of_a_death)
{
    run_deaths("a death", 4, 2, 1u << 3);
}

TEST(test_news_of_the_death_of_the_server)
{
    run_deaths("the server's death", 4, 2, 1u << 0);
}

/* Who serves the store from now on is in the log, once on each host that goes on. */
TEST(test_news_log_of_a_new_server)
{
    char pattern[] = "/tmp/weft-test-news-XXXXXX", path[64], text[4096];
    if (!weft_i_log_wants(WEFT_LOG_INFO)) { /* the level is read once: begin anew */
        ssize_t length = readlink("/proc/self/exe", text, 1024);
        CHECK(length > 0);
        snprintf(text + length, sizeof text - (size_t)length,
                 " test_news_log_of_a_new_server >/dev/null");
        setenv("WEFT_DEBUG", "INFO", 1);
        CHECK(!system(text));
        setenv("WEFT_DEBUG", "NONE", 1);
        return;
    }
    CHECK(mkdtemp(pattern));
    snprintf(path, sizeof path, "%s/%%r", pattern);
    setenv("WEFT_DEBUG_FILE", path, 1);
    scene s = {.size = 3, .per_host = 1, .dying = 1u << 0, .log = path};
    s.port = free_port();
    if (!s.port)
        SKIP("no port is free here");
    crew_run_without("a logged death", 3, dying_crew, &s, s.dying);
    for (int rank = 1; rank < 3; rank++) {
        snprintf(path, sizeof path, "%s/%d", pattern, rank);
        FILE *file = fopen(path, "r");
        CHECK(file);
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        remove(path);
        CHECK_CONTAINS(text, "rank 0, which served the store, is gone; rank 1 serves it now");
    }
    snprintf(path, sizeof path, "rm -r %s", pattern);
    CHECK(!system(path));
}

TEST(test_news_of_the_death_of_a_host)
{
    run_deaths("a host's death", 6, 2, 3u << 0);
    run_deaths("another host's death", 4, 2, 3u << 2);
}

/* ---- versions ---- */

/* How a card of any version begins. */
typedef struct other_card {
    uint32_t magic, layout;
    uint64_t nonce[2];
    char version[20];
    char rest[80];
} other_card;

/* Rank 1 is of a weft to come; whoever hears of it first must not leave the other in the dark. */
static int versions_crew(int rank, void *arg)
{
    const scene *s = arg;
    if (rank == 1) {
        other_card card = {.magic = 0x64726163, .layout = 77, .version = "9.9.9"};
        weft_store *store = weft_store_tcp_connect("127.0.0.1", s->port, hosts_token, LIMIT_MS);
        CREW(store, "%s", weft_last_error());
        const char *others[] = {"meet/0", "meet/2"}; /* both wait for rank 1 */
        CREW(weft_store_wait(store, 2, others, LIMIT_MS) == WEFT_OK, "%s", weft_last_error());
        CREW(weft_store_set(store, "meet/1", &card, sizeof card) == WEFT_OK, "%s",
             weft_last_error());
        weft_release(store);
    } else {
        weft_group *world = join(rank, s);
        CREW(!world, "met a rank of another version");
        CREW(weft_last_status() == WEFT_ERR_VERSION, "%s", weft_last_error());
        CREW(strstr(weft_last_error(), "9.9.9") && strstr(weft_last_error(), "0.1"), "%s",
             weft_last_error());
    }
    weft_clear_error();
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_news_of_another_version)
{
    for (int round = 0; round < 10; round++) {
        scene s = {.size = 3, .per_host = 1, .port = free_port()};
        if (!s.port)
            SKIP("no port is free here");
        crew_run("versions", 3, versions_crew, &s, -1);
    }
}

/* AddressSanitizer looks for leaks at each of the many exits here, which takes a second; what the
 * programs hold when they exit is their business. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

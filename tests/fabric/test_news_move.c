/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/news.c, fabric/meet/leave.c */
/*
 * One rank of several hosts, by hand: it learns who is gone, tells it, changes over to the store of
 * another rank when the server is gone, and leaves.  The servers of its peers are in this process.
 */
#include "memory_count.h"
#include "store_script.h"

#include "base/share/keyed.h"
#include "fabric/group/exchange_store.h"
#include "fabric/world/news.h"
#include "fabric/world/watch.h"
#include "store/client.h"
#include "store/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

enum { SIZE = 4, ME = 1 };

typedef struct note {
    int32_t rank, fate;
} note;

typedef struct traveller {
    weft_store *old; /* as others see it */
    weft_i_world *world;
    weft_i_store_server *servers[SIZE]; /* in reserve; of rank 0 it is the old one */
} traveller;

static int64_t soon(void)
{
    return weft_i_os_linux.clock_ns() + INT64_C(20000000000);
}

static traveller traveller_open(void)
{
    traveller t = {0};
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    CHECK_OK(weft_scope_open());
    t.old = weft_store_tcp_serve(NULL, 0, TOKEN);
    CHECK(t.old);
    weft_store *mine = weft_store_tcp_connect(NULL, weft_store_port(t.old), TOKEN, 20000);
    CHECK(mine);
    CHECK_OK(weft_i_world_new(ME, SIZE, &t.world));
    t.world->store = weft_i_object_hold(mine);
    t.world->own_store = true;
    weft_release(mine);
    snprintf(t.world->peers[0].store, sizeof t.world->peers[0].store, "127.0.0.1:%d",
             weft_store_port(t.old));
    for (int rank = 1; rank < SIZE; rank++) {
        char address[WEFT_I_STORE_ADDRESS_TEXT];
        CHECK_OK(weft_i_store_client_stand_by(t.world->store, &t.servers[rank], address));
        snprintf(t.world->peers[rank].store, sizeof t.world->peers[rank].store, "%.63s", address);
    }
    CHECK_OK(weft_i_news_open(t.world));
    CHECK(t.world->told && t.world->wills);
    return t;
}

static void end_server(traveller *t, int rank)
{
    if (rank == 0)
        weft_release(t->old);
    weft_i_store_server_drop(t->servers[rank], false);
    t->servers[rank] = NULL;
}

/* The server is gone, and the rank has noticed. */
static void lose_server(traveller *t)
{
    end_server(t, 0);
    CHECK_STATUS(weft_store_set(t->world->store, "k", "v", 1), WEFT_ERR_UNREACHABLE);
    CHECK(weft_i_store_client_is_broken(t->world->store));
    weft_clear_error();
}

static void traveller_close(traveller *t)
{
    weft_i_world_drop(t->world);
    for (int rank = 1; rank < SIZE; rank++)
        if (t->servers[rank])
            end_server(t, rank);
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

/* What the store says of who is gone is exactly this. */
static void has_notes(weft_store *store, const note *notes, size_t count)
{
    weft_store_value value = {0};
    CHECK_OK(weft_store_get(store, "meet/gone", WEFT_STORE_NOW, &value));
    if (value.bytes != count * sizeof *notes || memcmp(value.data, notes, value.bytes) != 0)
        FAIL("%zu notes, or others", value.bytes / sizeof *notes);
    weft_store_value_clear(&value);
}

static int fate_of(traveller *t, int rank)
{
    return atomic_load(&t->world->peers[rank].gone);
}

static void fates_are(traveller *t, int zero, int two, int three)
{
    CHECK_INT(fate_of(t, 0), zero);
    CHECK_INT(fate_of(t, ME), WEFT_I_ALIVE);
    CHECK_INT(fate_of(t, 2), two);
    CHECK_INT(fate_of(t, 3), three);
}

/* ---- another server ---- */

/* The first rank that lives serves from now on; it is told who is gone, and those who died with the
 * old one are asked for. */
TEST(test_news_move_to_the_first)
{
    traveller t = traveller_open();
    CHECK_OK(weft_i_news_move(t.world, soon())); /* nothing is broken: nothing happens */
    CHECK(t.world->moves == 0 && t.world->server == 0);
    fates_are(&t, WEFT_I_ALIVE, WEFT_I_ALIVE, WEFT_I_ALIVE);
    lose_server(&t);
    end_server(&t, 3);
    CHECK_OK(weft_i_news_move(t.world, soon()));
    CHECK_INT(weft_last_status(), WEFT_OK); /* the tries are nobody's errors */
    CHECK(t.world->moves == 1 && t.world->server == ME);
    fates_are(&t, WEFT_I_DEAD, WEFT_I_ALIVE, WEFT_I_DEAD);
    static const note notes[] = {{0, WEFT_I_DEAD}, {3, WEFT_I_DEAD}};
    has_notes(t.world->store, notes, 2);
    CHECK_OK(weft_i_news_move(t.world, soon())); /* once is enough */
    CHECK_INT(t.world->moves, 1);
    has_notes(t.world->store, notes, 2);
    traveller_close(&t);
}

/* Who is known to be gone is not asked, who has no server is passed over and stays as it is. */
TEST(test_news_move_passes_over)
{
    traveller t = traveller_open();
    memcpy(t.world->peers[0].store, "\0x", 3); /* empty, whatever stands behind */
    memcpy(t.world->peers[3].store, "\0x", 3);
    atomic_store(&t.world->peers[2].gone, WEFT_I_LEFT);
    lose_server(&t);
    CHECK_OK(weft_i_news_move(t.world, soon()));
    CHECK_INT(t.world->server, ME);
    fates_are(&t, WEFT_I_ALIVE, WEFT_I_LEFT, WEFT_I_ALIVE);
    static const note notes[] = {{2, WEFT_I_LEFT}};
    has_notes(t.world->store, notes, 1);
    traveller_close(&t);
}

/* The server of a rank before us lives: it is the next one. */
TEST(test_news_move_to_another)
{
    traveller t = traveller_open();
    weft_i_world *world = t.world;
    lose_server(&t);
    memcpy(world->peers[0].store, world->peers[2].store, sizeof world->peers[0].store);
    CHECK_OK(weft_i_news_move(world, soon()));
    CHECK(world->moves == 0 && world->server == 0); /* the same rank serves it: no move */
    fates_are(&t, WEFT_I_ALIVE, WEFT_I_ALIVE, WEFT_I_ALIVE);
    has_notes(world->store, NULL, 0);
    traveller_close(&t);
}

/* One that takes connections and does not answer is there, only busy: nobody goes past it. */
TEST(test_news_move_waits_for_the_busy)
{
    traveller t = traveller_open();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!bind(door, (struct sockaddr *)&at, length) && !listen(door, 4));
    CHECK(!getsockname(door, (struct sockaddr *)&at, &length));
    lose_server(&t);
    snprintf(t.world->peers[0].store, sizeof t.world->peers[0].store, "127.0.0.1:%d",
             ntohs(at.sin_port));
    CHECK_STATUS(weft_i_news_move(t.world, weft_i_os_linux.clock_ns() + 30000000),
                 WEFT_ERR_UNREACHABLE);
    fates_are(&t, WEFT_I_ALIVE, WEFT_I_ALIVE, WEFT_I_ALIVE);
    CHECK(t.world->moves == 0 && weft_i_store_client_is_broken(t.world->store));
    close(door);
    CHECK_OK(weft_i_news_move(t.world, soon()));
    CHECK_INT(t.world->server, ME);
    fates_are(&t, WEFT_I_DEAD, WEFT_I_ALIVE, WEFT_I_ALIVE);
    traveller_close(&t);
}

static int no_socket(int domain, int type, int protocol)
{
    (void)domain, (void)type, (void)protocol;
    return errno = EMFILE, -1;
}

/* What this rank lacks is no death of another. */
TEST(test_news_move_without_means)
{
    traveller t = traveller_open();
    weft_i_os table = weft_i_os_linux;
    lose_server(&t);
    table.socket = no_socket;
    weft_i_os_now = &table;
    weft_status status = weft_i_news_move(t.world, soon());
    CHECK_INT(weft_last_status(), WEFT_OK);
    CHECK_INT(weft_i_fail(WEFT_ERR_IO, "the caller's own"), WEFT_ERR_IO);
    CHECK_INT(weft_i_news_move(t.world, soon()), status);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(status, WEFT_ERR_LIMIT);
    CHECK(weft_last_status() == WEFT_ERR_IO && !strcmp(weft_last_error(), "the caller's own"));
    weft_clear_error();
    fates_are(&t, WEFT_I_ALIVE, WEFT_I_ALIVE, WEFT_I_ALIVE);
    CHECK_OK(weft_i_news_move(t.world, soon()));
    traveller_close(&t);
}

/* Without a server of its own, a store that weft_init found, or news, there is nowhere to go. */
TEST(test_news_move_nowhere)
{
    traveller t = traveller_open();
    lose_server(&t);
    t.world->told = false;
    CHECK_STATUS(weft_i_news_move(t.world, soon()), WEFT_ERR_UNREACHABLE);
    t.world->told = true;
    t.world->own_store = false;
    CHECK_STATUS(weft_i_news_move(t.world, soon()), WEFT_ERR_UNREACHABLE);
    t.world->own_store = true;
    char first = t.world->peers[ME].store[0];
    t.world->peers[ME].store[0] = 0;
    CHECK_STATUS(weft_i_news_move(t.world, soon()), WEFT_ERR_UNREACHABLE);
    t.world->peers[ME].store[0] = first;
    for (int rank = 1; rank < SIZE; rank++)
        end_server(&t, rank);
    CHECK_STATUS(weft_i_news_move(t.world, weft_i_os_linux.clock_ns() + 30000000),
                 WEFT_ERR_UNREACHABLE); /* all have gone */
    fates_are(&t, WEFT_I_DEAD, WEFT_I_DEAD, WEFT_I_DEAD);
    traveller_close(&t);
}

/* The address is told if there is room for all of it. */
TEST(test_news_move_stand_by)
{
    char text[64];
    traveller t = traveller_open();
    size_t length = strlen(t.world->peers[0].store);
    CHECK_OK(weft_i_news_stand_by(t.world, text, sizeof text));
    CHECK(t.world->standby && !strncmp(text, "127.0.0.1:", 10));
    weft_i_store_server_drop(t.world->standby, false);
    t.world->standby = NULL;
    weft_i_world server = *t.world; /* who serves names its own server: the length is known */
    server.store = t.old;
    memset(text, 'x', sizeof text);
    CHECK_OK(weft_i_news_stand_by(&server, text, length));
    CHECK(!*text);
    CHECK_OK(weft_i_news_stand_by(&server, text, length + 1));
    CHECK(!strcmp(text, t.world->peers[0].store) && !server.standby);
    server.own_store = false;
    CHECK_OK(weft_i_news_stand_by(&server, text, sizeof text));
    CHECK(!*text);
    traveller_close(&t);
}

/* ---- leaving ---- */

/* Who has left in order has left no will: the store does not call it dead afterwards. */
TEST(test_news_move_leave)
{
    traveller t = traveller_open();
    static const note left[] = {{ME, WEFT_I_LEFT}}, died[] = {{ME, WEFT_I_DEAD}};
    weft_i_news_leave(t.world);
    has_notes(t.old, left, 1);
    weft_i_object_drop(t.world->store);
    t.world->store = NULL;
    weft_i_store_client_await_alone(t.old, soon());
    has_notes(t.old, left, 1);
    traveller_close(&t);
    t = traveller_open(); /* and who has not, has one */
    weft_i_object_drop(t.world->store);
    t.world->store = NULL;
    weft_i_store_client_await_alone(t.old, soon());
    has_notes(t.old, died, 1);
    traveller_close(&t);
}

/* Who leaves the world says so there, before its connection ends: others are not to take it for
 * dead. */
TEST(test_news_move_leave_the_world)
{
    static weft_i_rank_record record;
    traveller t = traveller_open();
    record.life.state = WEFT_I_RANK_HERE;
    t.world->mine = &record;
    weft_i_world_leave(t.world);
    CHECK_INT(record.life.state, WEFT_I_RANK_LEFT);
    has_notes(t.old, (note[]){{ME, WEFT_I_LEFT}}, 1);
    weft_i_world_leave(t.world); /* once */
    has_notes(t.old, (note[]){{ME, WEFT_I_LEFT}}, 1);
    t.world->mine = NULL;
    traveller_close(&t);
}

/* The server is gone when it leaves: the next one is told, if there is one. */
TEST(test_news_move_leave_later)
{
    traveller t = traveller_open();
    static const note notes[] = {{0, WEFT_I_DEAD}, {ME, WEFT_I_LEFT}};
    end_server(&t, 0);
    weft_i_news_leave(t.world);
    CHECK_INT(weft_last_status(), WEFT_OK);
    CHECK_INT(t.world->server, ME);
    has_notes(t.world->store, notes, 2);
    traveller_close(&t);
}

/* One request for the note and, where the store keeps wills, one more that takes it back; none of
 * them is an error of the caller's. */
TEST(test_news_move_leave_requests)
{
    lonely l = lonely_open(ME, SIZE);
    weft_i_news_leave(l.world);
    CHECK_INT(l.script->requests, 0); /* nobody was told that it is there */
    CHECK_OK(weft_i_news_open(l.world));
    CHECK(!l.world->wills);
    for (int wills = 0; wills < 2; wills++)
        for (int fails = 0; fails < 2; fails++) {
            l.world->wills = wills;
            l.script->requests = 0;
            l.script->fails_at = fails;
            l.script->fails_with = WEFT_ERR_NO_MEMORY;
            weft_i_news_leave(l.world);
            CHECK_INT(l.script->requests, wills && !fails ? 2 : 1);
            CHECK_INT(weft_last_status(), WEFT_OK);
        }
    l.script->fails_at = 0;
    lonely_close(&l);
}

static int64_t now;
static int sleeps;

static int64_t test_clock(void)
{
    return now;
}

static void test_sleep(int64_t ns)
{
    CHECK_INT(ns, 2000000);
    sleeps++;
    now += ns;
}

static weft_group *group_of_all(traveller *t)
{
    weft_group *group = weft_i_group_allocate(t->world, SIZE);
    CHECK(group);
    for (int rank = 0; rank < SIZE; rank++)
        group->members[rank] = rank;
    group->rank = ME;
    group->key = (weft_i_key){{1, 2}};
    group->timeout_ms = 20000;
    snprintf(group->name, sizeof group->name, "g");
    return group;
}

/* The store goes with its server while members meet there: the round is over for all. */
TEST(test_news_move_ends_a_round)
{
    traveller t = traveller_open();
    const char *key = "x/00000000000000010000000000000002/0/so";
    static const char wanted[] = "rank 1 of 4 in group \"g\", test: rank 0 (on host ";
    char all[4 * SIZE];
    bool there = false;
    weft_group *group = group_of_all(&t);
    weft_i_label label = {group, "test", -1};
    lose_server(&t);
    CHECK_STATUS(weft_i_exchange_store(&label, group, 77, "mine", 4, all, 20000),
                 WEFT_ERR_PEER_DEAD);
    if (strncmp(weft_last_error(), wanted, strlen(wanted)) != 0)
        FAIL("it says \"%s\"", weft_last_error());
    CHECK(group->rest.round == 1 && t.world->server == ME);
    CHECK_OK(weft_store_check(t.world->store, 1, &key, &there));
    CHECK(there); /* who comes later is told, too */
    weft_release(group);
    traveller_close(&t);
}

/* A group is revoked in the store that there is now. */
TEST(test_news_move_and_revoke)
{
    traveller t = traveller_open();
    const char *key = "x/00000000000000010000000000000002/end";
    bool there = false;
    weft_group *group = group_of_all(&t);
    lose_server(&t);
    CHECK_OK(weft_group_revoke(group));
    CHECK(t.world->moves == 1 && t.world->server == ME);
    CHECK_OK(weft_store_check(t.world->store, 1, &key, &there));
    CHECK(there);
    CHECK_OK(weft_group_revoke(group)); /* it is there: nobody moves */
    CHECK_INT(t.world->moves, 1);
    weft_release(group);
    traveller_close(&t);
}

/* What was told is read and given back. */
TEST(test_news_move_hears_and_forgets)
{
    lonely l = lonely_open(ME, SIZE);
    note notes[] = {{2, WEFT_I_DEAD}, {3, WEFT_I_LEFT}, {SIZE, WEFT_I_DEAD}, {-1, WEFT_I_DEAD}};
    put(&l, "meet/gone", notes, sizeof notes);
    l.world->told = l.world->wills = true;
    count_begin();
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_i_news_hear(l.world));
    CHECK_INT(count_end(), 0);
    CHECK(l.world->peers[2].gone == WEFT_I_DEAD && l.world->peers[3].gone == WEFT_I_LEFT);
    CHECK(l.world->peers[0].gone == WEFT_I_ALIVE);
    l.world->told = false; /* nobody is left to hear that it goes */
    lonely_close(&l);
}

static int lookouts;

static void no_sleep(int64_t ns)
{
    (void)ns;
    lookouts++;
    now += 1000000;
}

/* Somebody listens in the place of all servers, and never answers. */
static int keep_busy(traveller *t)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&at, bytes) && !listen(fd, 2 * SIZE));
    CHECK(!getsockname(fd, (struct sockaddr *)&at, &bytes));
    for (int rank = 1; rank < SIZE; rank++)
        snprintf(t->world->peers[rank].store, sizeof t->world->peers[rank].store, "127.0.0.1:%d",
                 ntohs(at.sin_port));
    return fd;
}

/* At the deadline itself it is over: nobody sleeps past it. */
TEST(test_news_move_at_the_deadline)
{
    for (int busy = 0; busy < 2;
         busy++) { /* nobody is there; or somebody without the time for us */
        traveller t = traveller_open();
        lose_server(&t);
        int silent = busy ? keep_busy(&t) : -1;
        for (int rank = 1; rank < SIZE && !busy; rank++)
            end_server(&t, rank);
        weft_i_os table = weft_i_os_linux;
        table.clock_ns = test_clock;
        table.sleep_ns = no_sleep;
        now = weft_i_os_linux.clock_ns();
        lookouts = 0;
        weft_i_os_now = &table;
        weft_status status = weft_i_news_move(t.world, now);
        weft_i_os_now = &weft_i_os_linux;
        CHECK_INT(status, WEFT_ERR_UNREACHABLE);
        CHECK_INT(lookouts, 0);
        traveller_close(&t);
        if (busy)
            close(silent);
    }
}

/* Who serves the store waits for the others, up to the limit; who does not, does not even ask. */
TEST(test_news_move_see_off)
{
    lonely l = lonely_open(ME, SIZE);
    weft_i_os table = weft_i_os_linux;
    table.clock_ns = test_clock;
    table.sleep_ns = test_sleep;
    now = 1000000000;
    CHECK_OK(weft_i_news_open(l.world));
    l.world->timeout_ms = 20;
    weft_i_os_now = &table;
    l.script->requests = 0;
    weft_i_news_see_off(l.world);
    CHECK_INT(l.script->requests, 0);
    l.world->standby = (struct weft_i_store_server *)&l; /* only whether there is one */
    weft_i_news_see_off(l.world);
    CHECK_INT(l.script->requests, 0); /* another rank's is in use */
    atomic_store(&l.world->server, ME);
    weft_i_news_see_off(l.world);
    CHECK_INT(sleeps, 10);
    CHECK_INT(l.script->requests, 11);
    l.script->requests = sleeps = 0;
    l.world->told = false;
    weft_i_news_see_off(l.world);
    CHECK_INT(l.script->requests, 0);
    l.world->told = true;
    static const note two[] = {{0, WEFT_I_LEFT}, {2, WEFT_I_DEAD}}, last[] = {{3, WEFT_I_LEFT}};
    put(&l, "meet/gone", two, sizeof two);
    weft_i_news_see_off(l.world);
    CHECK_INT(sleeps, 10); /* one is still there */
    CHECK_OK(weft_store_append(l.data, "meet/gone", last, sizeof last));
    l.script->requests = sleeps = 0;
    weft_i_news_see_off(l.world);
    CHECK_INT(sleeps, 0);
    CHECK_INT(l.script->requests, 1);
    atomic_store(&l.world->peers[3].gone, WEFT_I_ALIVE);
    l.script->requests = 0;
    l.script->fails_at = 1;
    l.script->fails_with = WEFT_ERR_UNREACHABLE;
    weft_i_news_see_off(l.world); /* without the store there is nothing to wait for */
    CHECK_INT(sleeps, 0);
    CHECK_INT(l.script->requests, 1);
    CHECK_INT(weft_last_status(), WEFT_OK);
    weft_i_os_now = &weft_i_os_linux;
    l.world->standby = NULL;
    lonely_close(&l);
}

/* ---- deaths on this host ---- */

/* Where the store keeps no wills, a neighbour tells a death, once; one that left in order is none. */
TEST(test_news_move_local_deaths)
{
    lonely l = lonely_open(ME, SIZE);
    weft_i_segment *page = NULL;
    static const note notes[] = {{2, WEFT_I_DEAD}};
    CHECK_OK(weft_i_job_new(SIZE, WEFT_I_BETWEEN_THREADS, &page));
    weft_i_rank_record *record[SIZE];
    for (int rank = 0; rank < SIZE; rank++) {
        record[rank] = weft_i_job_rank(weft_i_job_of(page), rank);
        l.world->peers[rank].rank_record = rank ? record[rank] : NULL; /* 0 is elsewhere */
    }
    CHECK_OK(weft_i_news_open(l.world));
    CHECK_OK(weft_i_news_hear(l.world));
    holds(&l, "meet/gone", "", 0);
    atomic_store(&record[0]->life.word, FUTEX_OWNER_DIED);
    atomic_store(&record[2]->life.word, FUTEX_OWNER_DIED);
    atomic_store(&record[3]->life.state, WEFT_I_RANK_LEFT);
    l.world->wills = true; /* the store will tell it */
    CHECK_OK(weft_i_news_hear(l.world));
    holds(&l, "meet/gone", "", 0);
    l.world->wills = false;
    l.script->fails_at = l.script->requests + 1;
    l.script->fails_with = WEFT_ERR_NO_MEMORY;
    CHECK_STATUS(weft_i_news_hear(l.world), WEFT_ERR_NO_MEMORY);
    CHECK_INT(atomic_load(&l.world->peers[2].gone), WEFT_I_ALIVE); /* it was not told */
    for (int times = 0; times < 2; times++) {
        CHECK_OK(weft_i_news_hear(l.world));
        holds(&l, "meet/gone", notes, sizeof notes);
        CHECK_INT(atomic_load(&l.world->peers[2].gone), WEFT_I_DEAD);
        CHECK_INT(atomic_load(&l.world->peers[3].gone), WEFT_I_ALIVE);
    }
    for (int rank = 0; rank < SIZE; rank++)
        l.world->peers[rank].rank_record = NULL;
    weft_i_segment_drop(page);
    lonely_close(&l);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/meet_store.c, fabric/world/news.c */
/*
 * Meeting through a store, one rank at a time: addresses of every kind, ranks that do not come or
 * tell that they cannot, and a store that fails at any request.  And the news of who is gone.
 */
#include "fault.h"
#include "store_script.h"

#include "base/report/os_look.h"
#include "fabric/meet/meet.h"
#include "fabric/world/news.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

enum { SIZE = 3, ME = 1, ADDRESS_MAGIC = 0x64726163 };

/* As it travels; other builds read its beginning, up to the host. */
typedef struct wire_address {
    uint32_t magic, layout;
    uint64_t nonce[2];
    char version[20], host[65], fdpass[64], reserved[3];
    uint64_t page[2];
    int32_t place, places;
    char store[64];
} wire_address;

typedef struct wire_pair {
    int32_t rank, what;
} wire_pair;

typedef struct guest {
    weft_store *data;
    script *script;
    weft_i_world *world;
} guest;

static wire_address address_of(int rank)
{
    wire_address a = {.magic = ADDRESS_MAGIC,
                      .layout = WEFT_I_JOB_LAYOUT,
                      .nonce = {0x100 + (uint64_t)rank, 7},
                      .version = WEFT_VERSION};
    snprintf(a.host, sizeof a.host, "h%d", rank);
    snprintf(a.fdpass, sizeof a.fdpass, "office-of-%d", rank);
    snprintf(a.store, sizeof a.store, "127.0.0.1:%d", 100 + rank);
    return a;
}

static void put_address(guest *g, int rank, const wire_address *a, size_t bytes)
{
    char key[32];
    snprintf(key, sizeof key, "meet/%d", rank);
    CHECK_OK(weft_store_set(g->data, key, a, bytes));
}

/* A rank that has not met yet; the others' addresses are there. */
static guest guest_open(int rank)
{
    guest g;
    CHECK_OK(weft_scope_open());
    g.data = weft_store_local();
    g.script = script_new(g.data);
    CHECK(g.data);
    CHECK_OK(weft_i_world_new(rank, SIZE, &g.world));
    g.world->store = weft_i_object_hold(&g.script->store);
    g.world->sharing = WEFT_I_BETWEEN_PROCESSES;
    for (int other = 0; other < SIZE; other++) {
        wire_address a = address_of(other);
        if (other != rank)
            put_address(&g, other, &a, sizeof a);
    }
    return g;
}

static void guest_close(guest *g)
{
    weft_i_world_drop(g->world);
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

static weft_status meet(guest *g, int64_t timeout_ms)
{
    weft_i_start start = {.rank = g->world->rank, .size = SIZE};
    return weft_i_meet_by_store(&start, g->world, &g->script->store,
                                weft_i_os_deadline(timeout_ms));
}

TEST(test_meet_store_alone_on_its_host)
{
    for (int rank = 0; rank < SIZE; rank++) {
        guest g = guest_open(rank);
        char key[32], host[65];
        CHECK_OK(meet(&g, 5000));
        snprintf(key, sizeof key, "meet/%d", rank);
        weft_store_value value = {0};
        CHECK_OK(weft_store_get(g.data, key, WEFT_STORE_NOW, &value));
        CHECK_INT(value.bytes, sizeof(wire_address));
        const wire_address *mine = value.data;
        weft_i_os_host_id(host);
        CHECK(mine->magic == ADDRESS_MAGIC && mine->layout == WEFT_I_JOB_LAYOUT);
        CHECK(!strcmp(mine->version, WEFT_VERSION) && !strcmp(mine->host, host));
        CHECK(!strcmp(mine->fdpass, weft_i_fdpass_name(g.world->fdpass)) && mine->fdpass[0]);
        CHECK(!mine->store[0] && (mine->nonce[0] || mine->nonce[1]));
        CHECK_INT(g.world->key.word[0], rank == 0 ? mine->nonce[0] : 0x100);
        CHECK(g.world->mine && g.world->local_size == 1 && g.world->local_rank == 0);
        CHECK_INT(g.world->job->references, 2); /* the world's, and that of who hands it out */
        for (int other = 0; other < SIZE; other++) {
            const weft_i_peer *peer = &g.world->peers[other];
            wire_address a = other == rank ? *mine : address_of(other);
            CHECK(!strcmp(peer->host, a.host) && !strcmp(peer->fdpass, a.fdpass) &&
                  !strcmp(peer->store, a.store));
            CHECK_INT(peer->rank_record != NULL, other == rank);
        }
        CHECK_OK(weft_i_meet_check(g.world));
        weft_store_value_clear(&value);
        guest_close(&g);
    }
}

TEST(test_meet_store_addresses)
{
    enum { MAGIC, SHORT, LONG, STUB, LAYOUT, VERSION, CASES };
    for (int how = 0; how < CASES; how++) {
        guest g = guest_open(ME);
        wire_address a = address_of(2);
        char wanted[200];
        size_t bytes = sizeof a - (how == SHORT) + (how == LONG);
        bytes = how == STUB ? offsetof(wire_address, host) - 1 : bytes;
        a.magic += how == MAGIC;
        a.layout += how == LAYOUT || how == STUB;
        if (how == VERSION)
            snprintf(a.version, sizeof a.version, "9.8.7");
        struct {
            wire_address a;
            char more;
        } padded = {a, 0};
        put_address(&g, 2, &padded.a, bytes);
        weft_status status = meet(&g, 5000);
        if (how == LAYOUT || how == VERSION) {
            snprintf(wanted, sizeof wanted,
                     "weft_init: rank 2 runs weft %s (layout %u), rank 1 runs weft %s (layout %d)",
                     a.version, a.layout, WEFT_VERSION, WEFT_I_JOB_LAYOUT);
            said(status, WEFT_ERR_VERSION, wanted);
        } else {
            snprintf(wanted, sizeof wanted,
                     "weft_init: the address of rank 2 is not one of weft's (%zu bytes)", bytes);
            said(status, WEFT_ERR_PROTOCOL, wanted);
        }
        CHECK(!g.world->mine);
        guest_close(&g);
    }
    /* A version that we know the beginning of is told, however long its addresses are. */
    guest g = guest_open(ME);
    wire_address a = address_of(2);
    a.layout++;
    put_address(&g, 2, &a, offsetof(wire_address, host));
    CHECK_STATUS(meet(&g, 5000), WEFT_ERR_VERSION);
    guest_close(&g);
}

TEST(test_meet_store_twice)
{
    guest g = guest_open(ME);
    wire_address a = address_of(ME);
    put_address(&g, ME, &a, sizeof a);
    said(meet(&g, 5000), WEFT_ERR_STATE,
         "rank 1 has met already: two processes have this number, or an earlier job with the same "
         "name still runs");
    guest_close(&g);
}

TEST(test_meet_store_missing)
{
    guest g = guest_open(2);
    CHECK_OK(weft_store_delete_key(g.data, "meet/0", NULL));
    said(meet(&g, 20), WEFT_ERR_MISSING, "weft_init: of 3 ranks these never came: 0");
    guest_close(&g);
    g = guest_open(2);
    CHECK_OK(weft_store_delete_key(g.data, "meet/0", NULL));
    CHECK_OK(weft_store_delete_key(g.data, "meet/1", NULL));
    said(meet(&g, 20), WEFT_ERR_MISSING, "weft_init: of 3 ranks these never came: 0, 1");
    guest_close(&g);
}

static void lose_store(script *s, int request)
{
    s->fails_at = request >= 6 ? request : 0; /* after the first look for rank 0 */
}

TEST(test_meet_store_missing_with_the_store)
{
    guest g = guest_open(2);
    CHECK_OK(weft_store_delete_key(g.data, "meet/0", NULL));
    g.script->before = lose_store;
    g.script->fails_with = WEFT_ERR_NO_MEMORY;
    said(meet(&g, 1), WEFT_ERR_MISSING,
         "weft_init: of 3 ranks these never came: 0 (perhaps more: the store of rank 0 "
         "did not answer)");
    guest_close(&g);
}

/* One that cannot enter says so, and ends the wait of the others. */
TEST(test_meet_store_failure_is_told)
{
    guest g = guest_open(ME);
    wire_pair no = {2, WEFT_ERR_LIMIT};
    char wanted[200];
    CHECK_OK(weft_store_delete_key(g.data, "meet/2", NULL));
    CHECK_OK(weft_store_set(g.data, "meet/failed", &no, sizeof no));
    snprintf(wanted, sizeof wanted,
             "weft_init: rank 2 could not enter the job: its weft_init failed (%s)",
             weft_strerror(WEFT_ERR_LIMIT));
    said(meet(&g, 60000), WEFT_ERR_PEER_LEFT, wanted);
    guest_close(&g);
    /* What another version says is read as far as it is known, and no further. */
    wire_pair more[20] = {no};
    for (size_t bytes = sizeof no.rank; bytes <= sizeof more;
         bytes += sizeof more - sizeof no.rank) {
        g = guest_open(ME);
        CHECK_OK(weft_store_delete_key(g.data, "meet/2", NULL));
        CHECK_OK(weft_store_set(g.data, "meet/failed", more, bytes));
        CHECK_INT(meet(&g, 60000), WEFT_ERR_PEER_LEFT);
        CHECK_CONTAINS(weft_last_error(), "weft_init: rank 2 could not enter the job");
        weft_clear_error();
        guest_close(&g);
    }
}

/* The first rank of our host does not answer: it is named at the limit, and nobody is told that we
 * failed, for it was not our fault. */
TEST(test_meet_store_no_page)
{
    guest g = guest_open(ME);
    wire_address a = address_of(0);
    weft_i_os_host_id(a.host);
    put_address(&g, 0, &a, sizeof a);
    weft_status status = meet(&g, 60);
    CHECK(status == WEFT_ERR_MISSING || status == WEFT_ERR_PEER_LEFT ||
          status == WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "weft_init");
    CHECK_CONTAINS(weft_last_error(), "rank 0");
    guest_close(&g);
}

/* ---- the page of a host ---- */

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

typedef struct serving {
    weft_i_fdpass *office;
    int stop[2];
} serving;

/* A round may end with a caller that is inside and has not asked yet. */
static void *serve(void *arg)
{
    serving *s = arg;
    struct pollfd stop = {.fd = s->stop[0], .events = POLLIN};
    while (poll(&stop, 1, 0) == 0)
        weft_i_fdpass_serve(s->office, s->stop[0], 20000);
    return NULL;
}

/* Rank 0 is on our host, and hands out this page; without one it says that it has none yet. */
static weft_status meet_with(guest *g, weft_i_segment *page)
{
    serving s = {.office = NULL};
    pthread_t thread;
    wire_address a = address_of(0);
    weft_i_key key = {{a.nonce[0], a.nonce[1]}};
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &s.office));
    weft_i_os_host_id(a.host);
    snprintf(a.fdpass, sizeof a.fdpass, "%s", weft_i_fdpass_name(s.office));
    put_address(g, 0, &a, sizeof a);
    if (page)
        CHECK_OK(weft_i_fdpass_publish(s.office, key, page, WEFT_OK));
    CHECK(!pipe(s.stop) && !pthread_create(&thread, NULL, serve, &s));
    weft_status status = meet(g, page ? 20000 : 100);
    CHECK(write(s.stop[1], "", 1) == 1 && !pthread_join(thread, NULL));
    close(s.stop[0]);
    close(s.stop[1]);
    weft_i_fdpass_drop(s.office);
    return status;
}

static weft_i_segment *page_of_two(void)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &page));
    return page;
}

/* Nobody enters a page that is damaged, or of another job; and the others are told. */
TEST(test_meet_store_page)
{
    enum { GOOD, MAGIC, LAYOUT, OTHER, CASES };
    static const weft_status wanted[CASES] = {WEFT_OK, WEFT_ERR_PROTOCOL, WEFT_ERR_VERSION,
                                              WEFT_ERR_PROTOCOL};
    int before = open_descriptors();
    for (int how = 0; how < CASES; how++) {
        guest g = guest_open(ME);
        weft_i_segment *page = page_of_two(), *other = NULL;
        weft_i_job *job = weft_i_job_of(page);
        CHECK_OK(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, &other));
        if (how == OTHER) /* its head is that of a page for one rank */
            memcpy(job, weft_i_job_of(other), sizeof *job);
        job->magic += how == MAGIC;
        job->layout += how == LAYOUT;
        weft_status status = meet_with(&g, page);
        CHECK_STATUS(status, wanted[how]);
        CHECK_INT(g.world->mine != NULL, how == GOOD);
        CHECK_INT(g.world->peers[0].rank_record != NULL, how == GOOD);
        if (how == GOOD) {
            CHECK(g.world->local_rank == 1 && g.world->local_size == 2);
        } else {
            wire_pair told = {ME, status};
            weft_store_value value = {0};
            CHECK_OK(weft_store_get(g.data, "meet/failed", WEFT_STORE_NOW, &value));
            CHECK(value.bytes == sizeof told && !memcmp(value.data, &told, sizeof told));
            weft_store_value_clear(&value);
        }
        if (how == OTHER)
            CHECK_CONTAINS(weft_last_error(),
                           "weft_init: the job page of rank 0 has 1 ranks, not 2");
        weft_i_segment_drop(page);
        weft_i_segment_drop(other);
        guest_close(&g);
        CHECK_INT(open_descriptors(), before);
    }
}

/* It is not our fault then, and nobody is told that we failed. */
TEST(test_meet_store_page_is_not_handed_out)
{
    guest g = guest_open(ME);
    weft_store_value value = {0};
    said(meet_with(&g, NULL), WEFT_ERR_MISSING,
         "weft_init: rank 0 did not hand out the job page of this host in time");
    CHECK(!g.world->mine);
    CHECK(weft_store_get(g.data, "meet/failed", WEFT_STORE_NOW, &value) < 0);
    guest_close(&g);
}

TEST(test_meet_store_went)
{
    guest g = guest_open(ME);
    CHECK_OK(meet(&g, 5000));
    CHECK_OK(weft_i_meet_check(g.world));
    for (int rank = 0; rank < SIZE; rank++) /* as if on this host; nobody serves their names */
        g.world->peers[rank].rank_record = g.world->mine;
    said(weft_i_meet_check(g.world), WEFT_ERR_PEER_DEAD,
         "weft_init: rank 0, rank 2 came to the meeting and went before it was over");
    snprintf(g.world->peers[0].fdpass, sizeof g.world->peers[0].fdpass, "%s",
             g.world->peers[ME].fdpass);
    said(weft_i_meet_check(g.world), WEFT_ERR_PEER_DEAD,
         "weft_init: rank 2 came to the meeting and went before it was over");
    wire_pair no = {0, WEFT_ERR_NO_MEMORY};
    CHECK_OK(weft_store_set(g.data, "meet/failed", &no, sizeof no));
    CHECK_STATUS(weft_i_meet_check(g.world), WEFT_ERR_PEER_LEFT);
    for (int rank = 0; rank < SIZE; rank++)
        g.world->peers[rank].rank_record = rank == ME ? g.world->mine : NULL;
    guest_close(&g);
}

/* At every request: the status is the store's, and nothing is kept. */
TEST(test_meet_store_fails_anywhere)
{
    static const weft_status how[] = {WEFT_ERR_NO_MEMORY, WEFT_ERR_UNREACHABLE, WEFT_ERR_TIMEOUT};
    for (int h = 0; h < 3; h++) {
        int n = 1, unread = 0;
        for (bool fails = true; fails; n++) {
            guest g = guest_open(ME);
            g.script->fails_at = n;
            g.script->fails_with = how[h];
            weft_status status = meet(&g, 5000);
            fails = g.script->requests >= n;
            if (!fails) {
                CHECK_OK(status);
            } else if (how[h] == WEFT_ERR_TIMEOUT && status < 0) {
                CHECK_STATUS(status, WEFT_ERR_MISSING);
                CHECK_CONTAINS(weft_last_error(),
                               "weft_init: rank 0, which serves the store of the meeting, has "
                               "stopped answering; is it stopped, or its machine gone?");
                CHECK_CONTAINS(weft_last_error(), "the script wants request");
            } else if (status < 0) {
                CHECK(status == how[h] ||
                      (h == 1 && status == WEFT_ERR_MISSING &&
                       strstr(weft_last_error(), "had not come when the store of the meeting")));
                CHECK_CONTAINS(weft_last_error(), "the script wants request");
                unread += status != how[h];
            } else {
                CHECK(how[h] == WEFT_ERR_TIMEOUT); /* one more look, and all were found */
                for (int rank = 0; rank < SIZE; rank++)
                    CHECK(g.world->peers[rank].host[0] && g.world->mine);
            }
            guest_close(&g);
        }
        CHECK(n >= 6);
        CHECK_INT(unread, h == 1 ? SIZE : 0); /* each address that was to be read */
    }
}

/* Whatever the system denies: the meeting fails with a reason or is whole, and nothing stays open. */
TEST(test_meet_store_without_means)
{
    int n = 1, failed = 0, before = open_descriptors();
    for (bool fired = true; fired; n++) {
        guest g = guest_open(ME);
        fault_arm(n);
        weft_status status = meet(&g, 5000);
        fired = fault_disarm();
        if (status < 0)
            CHECK(weft_last_status() == status && weft_last_error()[0] && fired);
        else
            CHECK(g.world->mine && g.world->local_size == 1);
        failed += status < 0;
        guest_close(&g);
        CHECK_INT(open_descriptors(), before);
    }
    CHECK(failed > 10 && n < 200);
}

static size_t denied;

static void *deny(size_t bytes)
{
    return bytes == denied ? NULL : weft_i_os_linux.alloc(bytes);
}

/* A rank that has no memory for the others' addresses says so to all of them. */
TEST(test_meet_store_without_memory)
{
    static const size_t sizes[] = {SIZE * sizeof(wire_address), SIZE * sizeof(int)};
    for (int i = 0; i < 2; i++) {
        guest g = guest_open(ME);
        wire_pair told = {ME, WEFT_ERR_NO_MEMORY};
        weft_store_value value = {0};
        weft_i_os table = weft_i_os_linux;
        table.alloc = deny;
        denied = sizes[i];
        weft_i_os_now = &table;
        weft_status status = meet(&g, 5000);
        weft_i_os_now = &weft_i_os_linux;
        said(status, WEFT_ERR_NO_MEMORY, "weft_init: no memory for 3 addresses");
        CHECK_OK(weft_store_get(g.data, "meet/failed", WEFT_STORE_NOW, &value));
        CHECK(value.bytes == sizeof told && !memcmp(value.data, &told, sizeof told));
        weft_store_value_clear(&value);
        guest_close(&g);
    }
}

/* Between two looks for a rank the store is asked whether one has failed; when it cannot say, that
 * is told.  Once all are here nobody asks. */
TEST(test_meet_store_failure_cannot_be_read)
{
    wire_pair no = {2, WEFT_ERR_LIMIT};
    for (int there = 0; there < 2; there++) {
        guest g = guest_open(ME);
        CHECK_OK(weft_store_delete_key(g.data, "meet/2", NULL));
        if (there)
            CHECK_OK(weft_store_set(g.data, "meet/failed", &no, sizeof no));
        g.script->fails_at = 7 + there; /* will, list, own address, three others; then these */
        g.script->fails_with = WEFT_ERR_NO_MEMORY;
        CHECK_STATUS(meet(&g, 20000), WEFT_ERR_NO_MEMORY);
        CHECK_INT(g.script->requests, 7 + there);
        guest_close(&g);
    }
    guest g = guest_open(ME);
    CHECK_OK(weft_store_set(g.data, "meet/failed", &no, sizeof no));
    CHECK_OK(meet(&g, 5000));
    guest_close(&g);
}

/* Fields without an end are cut where they end. */
TEST(test_meet_store_full_fields)
{
    guest g = guest_open(ME);
    wire_address a = address_of(2);
    memset(a.host, 'h', sizeof a.host);
    memset(a.fdpass, 'f', sizeof a.fdpass);
    memset(a.store, 's', sizeof a.store);
    put_address(&g, 2, &a, sizeof a);
    CHECK_OK(meet(&g, 5000));
    const weft_i_peer *peer = &g.world->peers[2];
    CHECK_INT(strspn(peer->host, "h"), 64);
    CHECK_INT(strlen(peer->host), 64);
    CHECK_INT(strspn(peer->fdpass, "f"), 63);
    CHECK_INT(strlen(peer->fdpass), 63);
    CHECK_INT(strspn(peer->store, "s"), 63);
    CHECK_INT(strlen(peer->store), 63);
    guest_close(&g);
}

/* ---- news ---- */

TEST(test_meet_store_news)
{
    lonely l = lonely_open(1, 5);
    static const wire_pair told[] = {{2, WEFT_I_DEAD},  {3, WEFT_I_LEFT},  {1, WEFT_I_DEAD},
                                     {3, WEFT_I_DEAD},  {-1, WEFT_I_DEAD}, {5, WEFT_I_DEAD},
                                     {4, WEFT_I_ALIVE}, {4, 99},           {0, WEFT_I_LEFT}};
    CHECK_OK(weft_i_news_hear(l.world)); /* nothing was opened yet */
    CHECK_INT(l.script->requests, 0);
    CHECK_OK(weft_i_news_open(l.world));
    CHECK(l.world->told && !l.world->wills && weft_last_status() == WEFT_OK);
    holds(&l, "meet/gone", "", 0);
    CHECK_OK(weft_i_news_hear(l.world));
    CHECK_OK(weft_store_append(l.data, "meet/gone", told, sizeof told - 1));
    CHECK_OK(weft_i_news_hear(l.world));
    static const weft_i_fate fates[] = {WEFT_I_ALIVE, WEFT_I_ALIVE, WEFT_I_DEAD, WEFT_I_LEFT,
                                        WEFT_I_ALIVE};
    for (int rank = 0; rank < 5; rank++)
        CHECK_INT(atomic_load(&l.world->peers[rank].gone), fates[rank]);
    CHECK_OK(weft_store_append(l.data, "meet/gone", (const char *)told + sizeof told - 1, 1));
    CHECK_OK(weft_i_news_hear(l.world)); /* the last one is whole now */
    CHECK_INT(atomic_load(&l.world->peers[0].gone), WEFT_I_LEFT);
    for (int n = 1; n <= 2; n++) {
        l.script->requests = 0;
        l.script->fails_at = n;
        l.script->fails_with = WEFT_ERR_NO_MEMORY;
        CHECK_STATUS(weft_i_news_open(l.world), WEFT_ERR_NO_MEMORY);
    }
    l.script->fails_at = l.script->requests + 1;
    CHECK_STATUS(weft_i_news_hear(l.world), WEFT_ERR_NO_MEMORY);
    CHECK_STATUS(weft_i_news_move(l.world, 0), WEFT_ERR_UNREACHABLE); /* no other server */
    lonely_close(&l);
}

/* Who leaves because its weft_init has failed takes no longer for that than weft_init may; who leaves
 * otherwise has the limit of its operations. */
TEST(test_meet_store_leaves_in_time)
{
    guest g = guest_open(ME);
    CHECK_OK(weft_i_news_open(g.world));
    g.world->timeout_ms = 5000;
    int64_t now = WEFT_OS->clock_ns(), soon = now + 3000000, before = weft_i_store_until(soon);
    int requests = g.script->requests;
    CHECK(g.world->told);
    weft_i_news_leave(g.world);
    CHECK_INT(weft_i_store_until(before), soon); /* as it was */
    CHECK(g.script->requests > requests);
    CHECK_INT(g.script->deadline, soon);
    weft_i_news_leave(g.world);
    CHECK_INT(weft_i_store_until(before), before);
    CHECK(g.script->deadline > now + 1000000000 && g.script->deadline < now + 60000000000);
    guest_close(&g);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

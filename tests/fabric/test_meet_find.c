/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/meet_store.c */
/*
 * Where a rank of somebody else's launcher looks for the store of its job: on this host or on
 * another, under which name and port, how long, and what it says when there is none.  The clock and
 * the sockets are the test's, so nobody waits.
 */
#include "harness.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "base/share/keyed.h"
#include "fabric/meet/meet.h"
#include "store/address.h"

#include <weft/weft.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static weft_i_os table;
static int64_t now;
static int sleeps, binds;
static int taken;          /* names that cannot be had */
static int owner, unheard; /* who holds those; whether it does not listen */

static int64_t test_clock(void)
{
    return now;
}

/* Between two looks for a name.  Other pauses are those of a connection that is made. */
static void test_sleep(int64_t ns)
{
    now += ns;
    if (ns == 5000000)
        sleeps++;
    else
        weft_i_os_linux.sleep_ns(ns);
}

static int test_bind(int fd, const struct sockaddr *to, socklen_t length)
{
    if (binds++ < taken)
        return errno = EADDRINUSE, -1;
    return weft_i_os_linux.bind(fd, to, length);
}

/* Is the name that was asked for last one of those that cannot be had? */
static bool is_held(void)
{
    return owner >= 0 && binds <= taken;
}

static int test_connect(int fd, const struct sockaddr *to, socklen_t length)
{
    if (to->sa_family != AF_UNIX || !is_held())
        return weft_i_os_linux.connect(fd, to, length);
    return unheard ? (errno = ECONNREFUSED, -1) : 0;
}

static int test_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
    if (name != SO_PEERCRED || !is_held())
        return weft_i_os_linux.getsockopt(fd, level, name, value, length);
    *(struct ucred *)value = (struct ucred){.uid = (uid_t)owner};
    return 0;
}

static weft_i_start start_of(int rank, int size, int local_size)
{
    static int count;
    weft_i_start start = {.launcher = "test",
                          .rank = rank,
                          .size = size,
                          .local_rank = rank,
                          .local_size = local_size,
                          .job_fd = -1};
    snprintf(start.job, sizeof start.job, "meet-find-%d-%d", getpid(), rank ? count : ++count);
    return start;
}

static void begin(void)
{
    static const char *const names[] = {"MASTER_ADDR", "MASTER_PORT", "SLURM_NNODES",
                                        "WEFT_STORE_ADDR", "WEFT_TOKEN"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    table = weft_i_os_linux;
    table.clock_ns = test_clock;
    table.sleep_ns = test_sleep;
    table.bind = test_bind;
    table.connect = test_connect;
    table.getsockopt = test_getsockopt;
    now = 1000000000;
    sleeps = binds = taken = unheard = 0;
    owner = -1;
    weft_clear_error();
    CHECK_OK(weft_scope_open());
}

static void end(void)
{
    weft_i_os_now = &weft_i_os_linux;
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

static weft_status find(const weft_i_start *start, int64_t timeout_ms, weft_store **out)
{
    weft_i_os_now = &table;
    weft_status status = weft_i_meet_find_store(start, now + timeout_ms * 1000000, out);
    weft_i_os_now = &weft_i_os_linux;
    return status;
}

static void says(weft_status status, const char *wanted)
{
    CHECK_INT(weft_last_status(), status);
    if (strcmp(weft_last_error(), wanted) != 0)
        FAIL("it says \"%s\", not \"%s\"", weft_last_error(), wanted);
    weft_clear_error();
}

/* ---- this host, or several ---- */

static const char no_address[] =
    "weft_init (test, rank 0 of 2): weft_init: ranks on several hosts need "
    "WEFT_STORE_ADDR=host:port (or MASTER_ADDR and MASTER_PORT) of rank 0's host";
static const char no_token[] =
    "weft_init (test, rank 0 of 2): weft_init: ranks on several hosts need the job's secret: set "
    "WEFT_TOKEN to the same 64 hex digits on all of them; `weft token` prints some, so type export "
    "WEFT_TOKEN=$(weft token) on one host and what it gave on the others";

TEST(test_meet_find_hosts)
{
    static const struct {
        int local_size;
        const char *master, *nodes, *address;
        const char *said; /* NULL: it is this host, and there is a store */
    } cases[] = {
        {-1, NULL, NULL, NULL, NULL},
        {-1, "127.0.0.1", NULL, NULL, NULL},
        {-1, "127.5.6.7", NULL, NULL, NULL},
        {-1, "localhost", NULL, NULL, NULL},
        {-1, "::1", NULL, NULL, NULL},
        {-1, "127", NULL, NULL, no_token},
        {-1, "10.0.0.1", NULL, NULL, no_token},
        {-1, "localhost.example", NULL, NULL, no_token},
        {-1, NULL, NULL, "127.0.0.1:99", no_token},
        {-1, NULL, "1", "127.0.0.1:99", no_token},
        {2, "10.0.0.1", NULL, NULL, NULL},
        {2, NULL, NULL, "10.0.0.1:99", NULL},
        {1, "127.0.0.1", NULL, NULL, no_token},
        {1, "127.0.0.1", "1", NULL, NULL},
        {1, "127.0.0.1", "2", NULL, no_token},
        {1, "127.0.0.1", "11", NULL, no_token},
        {0, NULL, NULL, NULL, no_address},
        {0, NULL, NULL, "no-port", no_address},
        {1, "10.0.0.1", NULL, "no-port", no_address},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_store *store = NULL;
        begin();
        if (cases[i].master) {
            setenv("MASTER_ADDR", cases[i].master, 1);
            setenv("MASTER_PORT", "29500", 1);
        }
        if (cases[i].nodes)
            setenv("SLURM_NNODES", cases[i].nodes, 1);
        if (cases[i].address)
            setenv("WEFT_STORE_ADDR", cases[i].address, 1);
        weft_i_start start = start_of(0, 2, cases[i].local_size);
        weft_status status = find(&start, 20000, &store);
        if ((status == WEFT_OK) != !cases[i].said || (store != NULL) != !cases[i].said)
            FAIL("case %zu: %d: %s", i, status, weft_last_error());
        if (cases[i].said)
            says(cases[i].said == no_token ? WEFT_ERR_AUTH : WEFT_ERR_INVALID_ARG, cases[i].said);
        CHECK_INT(sleeps, 0);
        end();
    }
}

/* A name of a host that is too long for any is cut, and nobody is found there. */
TEST(test_meet_find_long_host)
{
    char address[400];
    weft_store *store = NULL;
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    begin();
    memset(address, 'h', 300);
    snprintf(address + 300, sizeof address - 300, ":29500");
    setenv("WEFT_STORE_ADDR", address, 1);
    setenv("WEFT_TOKEN", TOKEN, 1);
    weft_i_start start = start_of(1, 2, 1);
    CHECK(find(&start, 10, &store) < 0 && !store);
    end();
}

/* A port is a number from 1 to 65535, on one host as well. */
TEST(test_meet_find_ports)
{
    static const struct {
        const char *text;
        bool good;
    } ports[] = {{"1", true},    {"65535", true}, {"0", false}, {"65536", false}, {"-1", false},
                 {"12x", false}, {"x", false},    {"", false},  {"29500", true}};
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
        char wanted[300];
        weft_store *store = NULL;
        begin();
        setenv("MASTER_ADDR", "localhost", 1);
        setenv("MASTER_PORT", ports[i].text, 1);
        weft_i_start start = start_of(0, 2, 2);
        CHECK_INT(find(&start, 20000, &store) == WEFT_OK, ports[i].good);
        CHECK_INT(store != NULL, ports[i].good);
        snprintf(wanted, sizeof wanted,
                 "weft_init (test, rank 0 of 2): weft_init: \"%s\" in MASTER_PORT is not a port, a "
                 "number from 1 to 65535",
                 ports[i].text);
        if (!ports[i].good)
            says(WEFT_ERR_INVALID_ARG, wanted);
        unsetenv("MASTER_ADDR"); /* without it the port is nobody's */
        start = start_of(0, 2, 2);
        CHECK_OK(find(&start, 20000, &store));
        setenv("MASTER_ADDR", "10.0.0.1", 1); /* and on several hosts it is asked for first */
        start = start_of(0, 2, 1);
        CHECK_INT(find(&start, 20000, &store),
                  ports[i].good ? WEFT_ERR_AUTH : WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), ports[i].good ? "WEFT_TOKEN" : "MASTER_PORT");
        weft_clear_error();
        snprintf(wanted, sizeof wanted, "somewhere:%s", ports[i].text);
        setenv("WEFT_STORE_ADDR", wanted, 1);
        CHECK_INT(find(&start, 20000, &store),
                  ports[i].good ? WEFT_ERR_AUTH : WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), ports[i].good ? "WEFT_TOKEN" : "in WEFT_STORE_ADDR is");
        end();
    }
}

static void both_work(weft_store *a, weft_store *b)
{
    weft_store_value got = {0};
    CHECK(a && b && a != b);
    CHECK_OK(weft_store_set(a, "k", "value", 5));
    CHECK_OK(weft_store_get(b, "k", 20000, &got));
    CHECK(got.bytes == 5 && !memcmp(got.data, "value", 5));
    weft_store_value_clear(&got);
}

/* Rank 0 serves, the others connect, and they are at the same store. */
TEST(test_meet_find_each_other)
{
    weft_store *zero = NULL, *one = NULL;
    begin();
    weft_i_start start = start_of(0, 2, 2);
    CHECK_OK(weft_i_meet_find_store(&start, weft_i_os_deadline(20000), &zero));
    start = start_of(1, 2, 2);
    CHECK_OK(weft_i_meet_find_store(&start, weft_i_os_deadline(20000), &one));
    both_work(zero, one);
    end();
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    begin();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    char text[32];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* a port that is free */
    CHECK(!bind(fd, (struct sockaddr *)&at, sizeof at));
    CHECK(!getsockname(fd, (struct sockaddr *)&at, &length));
    close(fd);
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(at.sin_port));
    setenv("WEFT_STORE_ADDR", text, 1);
    setenv("WEFT_TOKEN", TOKEN, 1);
    start = start_of(0, 2, 1);
    CHECK_OK(weft_i_meet_find_store(&start, weft_i_os_deadline(20000), &zero));
    CHECK_INT(weft_store_port(zero), ntohs(at.sin_port));
    start = start_of(1, 2, 1);
    CHECK_OK(weft_i_meet_find_store(&start, weft_i_os_deadline(20000), &one));
    both_work(zero, one);
    unsetenv("WEFT_STORE_ADDR"); /* in torchrun's words */
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", strchr(text, ':') + 1, 1);
    weft_store_value value = {0};
    CHECK_OK(weft_i_meet_find_store(&start, weft_i_os_deadline(20000), &one));
    CHECK_OK(weft_store_get(one, "k", WEFT_STORE_NOW, &value)); /* it is the same one */
    weft_store_value_clear(&value);
    end();
}

/* ---- names ---- */

/* A name is made of the user, the job, the token and a number; each of them changes it. */
TEST(test_meet_find_names)
{
    char first[WEFT_I_MEET_NAME], other[WEFT_I_MEET_NAME];
    begin();
    weft_i_start start = start_of(0, 2, 2);
    weft_i_meet_local_name(&start, 0, first);
    CHECK_INT(strlen(first), strlen("weft-meet-") + 32);
    CHECK(!strncmp(first, "weft-meet-", 10));
    CHECK(strncmp(first + 10, first + 26, 16) != 0);
    for (int how = 0; how < 3; how++) {
        weft_i_start changed = start;
        if (how == 1)
            changed.job[0] ^= 1;
        if (how == 2)
            setenv("WEFT_TOKEN", TOKEN, 1);
        weft_i_meet_local_name(&changed, how == 0, other);
        CHECK(strcmp(first, other) != 0);
    }
    unsetenv("WEFT_TOKEN");
    weft_i_meet_local_name(&start, 0, other);
    CHECK(!strcmp(first, other));
    end();
}

/* The first name is held by an earlier job of ours: it is waited for, to the deadline. */
TEST(test_meet_find_name_of_ours)
{
    weft_store *store = NULL;
    begin();
    weft_i_start start = start_of(0, 2, 2);
    taken = 3;
    owner = weft_i_os_user();
    CHECK_OK(find(&start, 20000, &store));
    CHECK(store && sleeps == 3 && binds == 4);
    taken = binds = 1 << 20;
    taken *= 2;
    sleeps = 0;
    start = start_of(0, 2, 2);
    CHECK_INT(find(&start, 20, &store), WEFT_ERR_ADDR_IN_USE);
    CHECK(!store);
    CHECK_INT(sleeps, 4);
    CHECK_CONTAINS(weft_last_error(), "weft_init (test, rank 0 of 2): ");
    CHECK(!strstr(weft_last_error(), "another user"));
    end();
}

/* Names that another user holds are passed over at once; those of somebody who does not listen after
 * a while; and when all are held, that is said. */
TEST(test_meet_find_name_of_others)
{
    char wanted[500];
    weft_store *store = NULL;
    begin();
    weft_i_start start = start_of(0, 2, 2);
    owner = weft_i_os_user() + 7;
    taken = 5;
    CHECK_OK(find(&start, 20000, &store));
    CHECK(store && sleeps == 0 && binds == 6);
    start = start_of(0, 2, 2);
    binds = 0;
    taken = WEFT_I_MEET_NAMES;
    CHECK_INT(find(&start, 20000, &store), WEFT_ERR_ADDR_IN_USE);
    CHECK(!store && sleeps == 0 && binds == WEFT_I_MEET_NAMES);
    snprintf(
        wanted, sizeof wanted,
        "weft_init (test, rank 0 of 2): weft_init: another user (the last one is %d) holds all "
        "64 names by which the ranks of this host would find each other; set WEFT_TOKEN to the "
        "same 64 hex digits on all ranks, then nobody can guess them",
        owner);
    says(WEFT_ERR_ADDR_IN_USE, wanted);
    start = start_of(0, 2, 2);
    binds = 0;
    taken = unheard = 1;
    CHECK_OK(find(&start, 20000, &store));
    CHECK(store);
    CHECK_INT(sleeps, 10);
    CHECK_INT(binds, 2);
    end();
}

/* Anything but a taken name ends the search. */
static int no_listen(int fd, int backlog)
{
    (void)fd, (void)backlog;
    return errno = ENOBUFS, -1;
}

TEST(test_meet_find_cannot_serve)
{
    weft_store *store = NULL;
    begin();
    weft_i_start start = start_of(0, 2, 2);
    table.listen = no_listen;
    CHECK(find(&start, 20000, &store) < 0);
    CHECK(!store && binds == 1 && sleeps == 0);
    CHECK(weft_last_status() != WEFT_ERR_ADDR_IN_USE);
    CHECK_CONTAINS(weft_last_error(), "weft_init (test, rank 0 of 2): ");
    end();
}

/* ---- nobody serves ---- */

TEST(test_meet_find_nobody)
{
    static const char hint[] =
        "; ranks that are started by hand in several shells find each other if all have "
        "MASTER_ADDR=127.0.0.1 (and the same MASTER_PORT, if there are several such jobs)";
    for (int by_parent = 0; by_parent < 2; by_parent++) {
        char wanted[600], name[WEFT_I_MEET_NAME];
        weft_store *store = NULL;
        begin();
        weft_i_start start = start_of(1, 2, 2);
        snprintf(start.job, sizeof start.job, "nobody-%d", getpid());
        start.by_parent = by_parent;
        CHECK_INT(find(&start, 30, &store), WEFT_ERR_MISSING);
        CHECK(!store);
        CHECK_INT(sleeps, 6);
        weft_i_meet_local_name(&start, WEFT_I_MEET_NAMES - 1, name);
        snprintf(wanted, sizeof wanted,
                 "weft_init (test, rank 1 of 2): rank 0 never came to the meeting: nobody of user "
                 "%d listens at @%s or its like%s",
                 weft_i_os_user(), name, by_parent ? hint : "");
        says(WEFT_ERR_MISSING, wanted);
        end();
    }
}

/* A rank that was started by hand is told after two seconds how others find it, once. */
TEST(test_meet_find_hint)
{
    static const int waits[] = {1990, 2010, 2300};
    for (int i = 0; i < 3; i++) {
        weft_store *store = NULL;
        char said[2000] = "";
        int output = memfd_create("output", MFD_CLOEXEC), before = dup(2);
        begin();
        weft_i_start start = start_of(1, 2, 2);
        snprintf(start.job, sizeof start.job, "hint-%d", getpid());
        start.by_parent = i != 1;
        int level = weft_i_log_level;
        weft_i_log_level = 1 + WEFT_LOG_WARN;
        dup2(output, 2);
        weft_status status = find(&start, waits[i], &store);
        dup2(before, 2);
        weft_i_log_level = level;
        CHECK(status == WEFT_ERR_MISSING && pread(output, said, sizeof said - 1, 0) >= 0);
        close(before);
        close(output);
        const char *hint = strstr(said, "weft_init: rank 1 of 2 waits for rank 0;");
        CHECK_INT(hint != NULL, i == 2);
        CHECK(!hint || !strstr(hint + 1, "weft_init: rank 1 of 2"));
        end();
    }
}

/* The store is there, and the time is up: it is asked all the same.  It may be too slow to answer at
 * once, on a busy machine, but not always. */
TEST(test_meet_find_at_the_last_moment)
{
    weft_store *zero = NULL, *one = NULL;
    begin();
    weft_i_start start = start_of(0, 2, 2);
    CHECK_OK(find(&start, 20000, &zero));
    start = start_of(1, 2, 2);
    for (int i = 0; i < 2000 && !one; i++)
        if (find(&start, 0, &one) < 0)
            weft_i_os_linux.sleep_ns(1000000);
    CHECK(one);
    weft_clear_error();
    both_work(zero, one);
    end();
}

/* One that listens, and never answers. */
TEST(test_meet_find_mute)
{
    weft_store *store = NULL;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char name[WEFT_I_MEET_NAME];
    begin();
    weft_i_start start = start_of(1, 2, 2);
    snprintf(start.job, sizeof start.job, "mute-%d", getpid());
    weft_i_meet_local_name(&start, 0, name);
    int length = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "%s", name);
    int mute = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(mute >= 0 && !bind(mute, (struct sockaddr *)&at,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)));
    CHECK(!listen(mute, 8));
    CHECK(weft_i_meet_find_store(&start, weft_i_os_deadline(30), &store) < 0);
    CHECK(!store && weft_last_error()[0]);
    close(mute);
    end();
}

/* A rank that another user's server waits for does not go there. */
TEST(test_meet_find_impostor)
{
    weft_store *store = NULL;
    begin();
    weft_i_start start = start_of(0, 2, 2);
    CHECK_OK(find(&start, 20000, &store));
    owner = weft_i_os_user() + 1;
    taken = binds;
    start = start_of(1, 2, 2);
    CHECK_INT(find(&start, 10, &store), WEFT_ERR_MISSING);
    CHECK(!store && sleeps == 2);
    end();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

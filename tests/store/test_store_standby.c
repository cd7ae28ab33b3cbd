/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/server.c, store/client.c */
/* A store's server in reserve: where it listens, how a client changes over to it, what is left when
 * one of the steps fails, and that no memory that is given back holds the token. */
#include "store_kinds.h"

#include "base/report/os_look.h"
#include "base/share/keyed.h"
#include "store/client.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <stdatomic.h>

static weft_i_os table;

static int64_t soon(void)
{
    return weft_i_os_linux.clock_ns() + INT64_C(20000000000);
}

static int descriptors(void)
{
    int open = 0;
    for (int fd = 0; fd < 256; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    return open;
}

/* A server and a client of it. */
static pair connect_both(void)
{
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    return make(TCP);
}

/* Who serves names its own server; a client on a Unix socket has nothing to name. */
TEST(test_store_standby_addresses)
{
    char address[WEFT_I_STORE_ADDRESS_TEXT], wanted[64];
    weft_i_store_server *standby = NULL;
    OPEN();
    pair p = connect_both(), local = make(UNIX);
    memset(address, 'x', sizeof address);
    CHECK_OK(weft_i_store_client_stand_by(local.b, &standby, address));
    CHECK(!*address && !standby);
    CHECK_OK(weft_i_store_client_stand_by(local.a, &standby, address));
    CHECK(!*address && !standby);
    CHECK_OK(weft_i_store_client_stand_by(p.a, &standby, address));
    snprintf(wanted, sizeof wanted, "127.0.0.1:%d", weft_store_port(p.a));
    CHECK(!strcmp(address, wanted) && !standby);
    CHECK_OK(weft_i_store_client_stand_by(p.b, &standby, address));
    CHECK(standby && !strncmp(address, "127.0.0.1:", 10) && strcmp(address, wanted) != 0);
    CHECK(weft_i_store_client_serves(p.a) && !weft_i_store_client_serves(p.b));
    weft_i_store_server_drop(standby, false);
    CLOSE();
}

/* A client changes over: what it sets is at the new server alone, and the old one does not count it
 * any more. */
TEST(test_store_standby_change_over)
{
    char address[WEFT_I_STORE_ADDRESS_TEXT];
    weft_i_store_server *standby = NULL;
    bool there = true;
    const char *key = "k";
    OPEN();
    pair p = connect_both();
    weft_store *other = weft_store_clone(p.a);
    CHECK_OK(weft_i_store_client_stand_by(p.b, &standby, address));
    CHECK_OK(weft_i_store_client_redial(p.b, address, soon()));
    CHECK_OK(set(p.b, "k", "new"));
    CHECK_OK(weft_store_check(p.a, 1, &key, &there));
    CHECK(!there);
    CHECK_OK(weft_i_store_client_redial(other, address, soon()));
    expect(other, "k", "new");
    weft_store *copy = weft_store_clone(p.b); /* goes where its original is now */
    expect(copy, "k", "new");
    CHECK_STATUS(set(copy, "", "x"), WEFT_ERR_INVALID_ARG);
    weft_i_store_client_await_alone(p.a, soon()); /* both have left it */
    weft_i_store_server_drop(standby, false);
    CLOSE();
    weft_clear_error();
}

/* An address that is none, and one where nobody listens: the client stays where it is. */
TEST(test_store_standby_refused)
{
    char address[WEFT_I_STORE_ADDRESS_TEXT], wanted[200];
    weft_i_store_server *standby = NULL;
    OPEN();
    pair p = connect_both();
    CHECK_OK(weft_i_store_client_stand_by(p.b, &standby, address));
    weft_i_store_server_drop(standby, false);
    int before = descriptors();
    CHECK_STATUS(weft_i_store_client_redial(p.b, "nowhere", soon()), WEFT_ERR_INVALID_ARG);
    CHECK(!strcmp(weft_last_error(), "store: \"nowhere\" is no address"));
    weft_clear_error();
    CHECK_STATUS(weft_i_store_client_redial(p.b, address, soon()), WEFT_ERR_UNREACHABLE);
    snprintf(wanted, sizeof wanted, "store at %s: nobody listens", address);
    CHECK(!strcmp(weft_last_error(), wanted));
    weft_clear_error();
    CHECK_INT(descriptors(), before);
    CHECK(!weft_i_store_client_is_broken(p.b));
    CHECK_OK(set(p.b, "k", "v"));
    expect(p.a, "k", "v");
    CLOSE();
}

/* A name with two addresses, of which only the second is served. */
static int two_addresses(const char *host, const char *service, const struct addrinfo *hints,
                         struct addrinfo **out)
{
    (void)host;
    int error = weft_i_os_linux.getaddrinfo("127.0.0.2", service, hints, out);
    if (!error)
        error = weft_i_os_linux.getaddrinfo("127.0.0.1", service, hints, &(*out)->ai_next);
    return error;
}

/* Who has changed over knows one address: when the new server is gone, a clone does not come out at
 * the old one, whose name had two. */
TEST(test_store_standby_one_address)
{
    char address[WEFT_I_STORE_ADDRESS_TEXT];
    weft_i_store_server *standby = NULL;
    OPEN();
    table = weft_i_os_linux; /* before there are threads that may read it */
    table.getaddrinfo = two_addresses;
    pair p = connect_both();
    weft_i_os_now = &table;
    weft_store *named = weft_store_tcp_connect("two", weft_store_port(p.a), TOKEN, 20000);
    weft_i_os_now = &weft_i_os_linux;
    CHECK(named);
    CHECK_OK(weft_i_store_client_stand_by(p.b, &standby, address));
    CHECK_OK(weft_i_store_client_redial(named, address, soon()));
    CHECK(weft_store_clone(named));
    weft_i_store_server_drop(standby, false);
    CHECK_OK(weft_store_set_timeout(named, 50));
    CHECK(!weft_store_clone(named));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), address);
    weft_clear_error();
    CLOSE();
}

/* ---- the change-over and other threads ---- */

static weft_store *changing;
static pthread_t asker;
static atomic_int asker_number; /* relaxed, as all here: only looked at until it is there */
static atomic_bool answered;
static bool answered_meanwhile;
static _Thread_local bool changes; /* this thread, and has not closed anything yet */

static void *ask(void *unused)
{
    atomic_store_explicit(&asker_number, weft_i_os_thread(), memory_order_relaxed);
    weft_i_store_client_is_broken(changing);
    atomic_store_explicit(&answered, true, memory_order_relaxed);
    return unused;
}

static bool is_answered(void)
{
    return atomic_load_explicit(&answered, memory_order_relaxed);
}

static bool asker_sleeps(void)
{
    int number = atomic_load_explicit(&asker_number, memory_order_relaxed);
    return number && weft_i_os_process_state(number) == 'S';
}

/* The old connection is closed: now another thread asks, until it has its answer or sleeps. */
static int close_and_ask(int fd)
{
    if (changes) {
        changes = false;
        CHECK(!pthread_create(&asker, NULL, ask, NULL));
        while (!is_answered() && !asker_sleeps())
            sched_yield();
        answered_meanwhile = is_answered();
    }
    return weft_i_os_linux.close(fd);
}

/* Nobody uses the connection while it is replaced. */
TEST(test_store_standby_changes_alone)
{
    char address[WEFT_I_STORE_ADDRESS_TEXT];
    weft_i_store_server *standby = NULL;
    OPEN();
    table = weft_i_os_linux; /* before there are threads that may read it */
    table.close = close_and_ask;
    pair p = connect_both();
    CHECK_OK(weft_i_store_client_stand_by(p.b, &standby, address));
    changing = p.b;
    weft_i_os_now = &table;
    changes = true;
    weft_status status = weft_i_store_client_redial(p.b, address, soon());
    weft_i_os_now = &weft_i_os_linux;
    CHECK_OK(status);
    CHECK(!changes && !answered_meanwhile);
    CHECK(!pthread_join(asker, NULL) && is_answered());
    weft_i_store_server_drop(standby, false);
    CLOSE();
}

/* ---- steps that fail ---- */

static int failing; /* which step */

static int bad_getsockname(int fd, struct sockaddr *where, socklen_t *length)
{
    return failing == 0 ? (errno = ENOBUFS, -1) : weft_i_os_linux.getsockname(fd, where, length);
}

static int bad_listen(int fd, int backlog)
{
    return failing == 1 ? (errno = EADDRINUSE, -1) : weft_i_os_linux.listen(fd, backlog);
}

static int bad_epoll(void)
{
    return failing == 2 ? (errno = EMFILE, -1) : weft_i_os_linux.epoll_create();
}

static int bad_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    return failing == 3 ? EAGAIN : weft_i_os_linux.thread_create(thread, body, argument);
}

TEST(test_store_standby_without_means)
{
    static const char *const said[] = {"cannot read our own address", "127.0.0.1",
                                       "store: cannot set up a server",
                                       "store: cannot start the server's thread"};
    char address[WEFT_I_STORE_ADDRESS_TEXT];
    OPEN();
    table = weft_i_os_linux; /* before there are threads that may read it */
    table.getsockname = bad_getsockname;
    table.listen = bad_listen;
    table.epoll_create = bad_epoll;
    table.thread_create = bad_thread;
    pair p = connect_both();
    for (failing = 0; failing < 4; failing++) {
        weft_i_store_server *standby = NULL;
        int before = descriptors();
        weft_i_os_now = &table;
        weft_status status = weft_i_store_client_stand_by(p.b, &standby, address);
        weft_i_os_now = &weft_i_os_linux;
        CHECK(status < 0 && status == weft_last_status());
        CHECK_CONTAINS(weft_last_error(), said[failing]);
        CHECK(!standby && !*address);
        CHECK_INT(descriptors(), before);
        weft_clear_error();
    }
    weft_i_store_server *standby = NULL;
    weft_i_os_now = &table;
    CHECK_OK(weft_i_store_client_stand_by(p.b, &standby, address));
    weft_i_os_now = &weft_i_os_linux;
    CHECK(standby && *address);
    weft_i_store_server_drop(standby, false);
    CLOSE();
}

/* ---- the token ---- */

static uint8_t token[WEFT_I_KEYED_BYTES];
static atomic_int frees, held; /* relaxed: they count */

static void search_and_free(void *memory)
{
    if (memory) {
        atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed);
        if (memmem(memory, malloc_usable_size(memory), token, sizeof token))
            atomic_fetch_add_explicit(&held, 1, memory_order_relaxed);
    }
    weft_i_os_linux.free(memory);
}

/* Memory that is given back does not hold it: not the server's, not the client's, not a copy's. */
TEST(test_store_standby_token_is_forgotten)
{
    char address[WEFT_I_STORE_ADDRESS_TEXT];
    weft_i_store_server *standby = NULL;
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    CHECK(weft_i_keyed_parse(TOKEN, token));
    table = weft_i_os_linux;
    table.free = search_and_free;
    weft_i_os_now = &table;
    OPEN();
    pair p = make(TCP);
    weft_store *copy = weft_store_clone(p.b);
    CHECK_OK(set(copy, "k", "v"));
    CHECK_OK(weft_i_store_client_stand_by(p.b, &standby, address));
    CHECK_OK(weft_i_store_client_redial(copy, address, soon()));
    CLOSE();
    weft_i_store_server_drop(standby, false);
    weft_i_os_now = &weft_i_os_linux;
    CHECK(frees > 10);
    CHECK_INT(held, 0);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

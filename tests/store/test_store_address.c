/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/address.c, store/dial.c, store/socket.c, base/machine/nofork.c */
/* Addresses of stores: texts and back, names, wildcards, sockets and their options; and how one is
 * dialled: who is tried how long, how often, and what each answer means. */
#include "store_raw.h"

#include "base/machine/nofork.h"
#include "store/dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>

static weft_i_os table;

/* ---- texts ---- */

TEST(test_store_address_read)
{
    static const struct {
        const char *text;
        int port; /* 0: none */
    } cases[] = {{"127.0.0.1:29500", 29500},
                 {"1.2.3.4:1", 1},
                 {"1.2.3.4:65535", 65535},
                 {"[::1]:8", 8},
                 {"[fe80::1]:65535", 65535},
                 {"1.2.3.4:0", 0},
                 {"1.2.3.4:65536", 0},
                 {"1.2.3.4:-1", 0},
                 {"1.2.3.4", 0},
                 {":80", 0},
                 {"", 0},
                 {"localhost:80", 0},
                 {"::1:80", 0},
                 {"[::1:80", 0},
                 {"[]:80", 0},
                 {"[1.2.3.4]:80", 0},
                 {"[1234:1234:1234:1234:1234:1234:1234:1234]:80", 80},
                 {"[1234:1234:1234:1234:1234:1234:1234:1234567890123456]:80", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_i_store_address address;
        char text[WEFT_I_STORE_ADDRESS_TEXT];
        bool read = weft_i_store_address_read(cases[i].text, &address);
        if (read != (cases[i].port > 0))
            FAIL("\"%s\": %d", cases[i].text, read);
        if (!read)
            continue;
        CHECK_INT(weft_i_store_address_port(&address), cases[i].port);
        CHECK(!strcmp(weft_i_store_address_text(&address, text), cases[i].text));
        CHECK_INT(address.length, cases[i].text[0] == '[' ? sizeof(struct sockaddr_in6)
                                                          : sizeof(struct sockaddr_in));
        weft_i_store_address_any_port(&address);
        CHECK_INT(weft_i_store_address_port(&address), 0);
        CHECK_INT(address.where.ss_family, cases[i].text[0] == '[' ? AF_INET6 : AF_INET);
    }
}

TEST(test_store_address_unix)
{
    weft_i_store_addresses found;
    char name[200], text[WEFT_I_STORE_ADDRESS_TEXT];
    memset(name, 'n', sizeof name);
    for (size_t length = 0; length < 112; length++) {
        name[length] = 0;
        weft_status status = weft_i_store_address_unix(name, &found);
        CHECK_INT(status, length && length < 108 ? WEFT_OK : WEFT_ERR_INVALID_ARG);
        if (status == WEFT_OK) {
            CHECK_INT(found.count, 1);
            CHECK_INT(weft_i_store_address_port(&found.list[0]), 0);
            weft_i_store_address_text(&found.list[0], text);
            CHECK(text[0] == '@' && !strcmp(text + 1, name));
            weft_i_store_address_any_port(&found.list[0]);
            CHECK(!strcmp(weft_i_store_address_text(&found.list[0], text) + 1, name));
        }
        name[length] = 'n';
    }
    CHECK_STATUS(weft_i_store_address_unix(NULL, &found), WEFT_ERR_INVALID_ARG);
}

/* ---- names ---- */

static int lookup_error;
static char looked_up[300], service_of[16];
static struct addrinfo answers[WEFT_I_STORE_ADDRESSES + 4];
static int answer_count, freed;

static int test_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                            struct addrinfo **out)
{
    snprintf(looked_up, sizeof looked_up, "%s", host);
    snprintf(service_of, sizeof service_of, "%s", service);
    CHECK(hints->ai_socktype == SOCK_STREAM);
    for (int i = 0; i < answer_count; i++)
        answers[i].ai_next = i + 1 < answer_count ? &answers[i + 1] : NULL;
    *out = answer_count ? &answers[0] : NULL;
    return lookup_error;
}

static void test_freeaddrinfo(struct addrinfo *found)
{
    (void)found;
    freed++;
}

static struct addrinfo answer(void *address)
{
    struct sockaddr *where = address;
    socklen_t bytes = where->sa_family == AF_INET6 ? (socklen_t)sizeof(struct sockaddr_in6)
                                                   : (socklen_t)sizeof(struct sockaddr_in);
    return (struct addrinfo){.ai_family = where->sa_family, .ai_addrlen = bytes, .ai_addr = where};
}

static void answer_from_here(void)
{
    table = weft_i_os_linux;
    table.getaddrinfo = test_getaddrinfo;
    table.freeaddrinfo = test_freeaddrinfo;
    weft_i_os_now = &table;
    lookup_error = freed = 0;
}

TEST(test_store_address_names)
{
    static struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = 0x0100007f};
    static struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    weft_i_store_addresses found;
    answer_from_here();
    for (int i = 0; i < WEFT_I_STORE_ADDRESSES + 4; i++)
        answers[i] = answer(&four);
    answer_count = WEFT_I_STORE_ADDRESSES + 4;
    CHECK_OK(weft_i_store_address_tcp("somewhere", 65535, &found));
    CHECK_INT(found.count, WEFT_I_STORE_ADDRESSES); /* as many as there is room for */
    CHECK(!strcmp(looked_up, "somewhere") && !strcmp(service_of, "65535"));
    CHECK_INT(freed, 1);
    answer_count = 3;
    answers[1].ai_family = AF_UNIX; /* neither of ours */
    answers[2] = answer(&six);
    CHECK_OK(weft_i_store_address_tcp("[::1]", 0, &found));
    CHECK(!strcmp(looked_up, "::1"));
    CHECK_INT(found.count, 2);
    CHECK(found.list[0].where.ss_family == AF_INET && found.list[1].where.ss_family == AF_INET6);
    static const char *const halves[] = {"[::1", "::1]"}; /* one bracket is part of the name */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_i_store_address_tcp(halves[i], 0, &found));
        CHECK(!strcmp(looked_up, halves[i]));
    }
    CHECK_OK(weft_i_store_address_tcp(NULL, 0, &found));
    CHECK(!strcmp(looked_up, "127.0.0.1"));
    CHECK_OK(weft_i_store_address_tcp("", 0, &found));
    CHECK(!strcmp(looked_up, "127.0.0.1"));
    weft_i_os_now = &weft_i_os_linux;
}

TEST(test_store_address_refused)
{
    static struct sockaddr_in any = {.sin_family = AF_INET};
    static struct sockaddr_in6 none = {.sin6_family = AF_INET6};
    static struct sockaddr_in6 mapped = {.sin6_family = AF_INET6,
                                         .sin6_addr.s6_addr = {[10] = 0xff, [11] = 0xff}};
    void *const wild[] = {&any, &none, &mapped};
    weft_i_store_addresses found;
    answer_from_here();
    answer_count = 1;
    for (int i = 0; i < 3; i++) {
        answers[0] = answer(wild[i]);
        CHECK_STATUS(weft_i_store_address_tcp("all", 1, &found), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "wildcard");
    }
    answers[0].ai_family = AF_UNIX;
    CHECK_STATUS(weft_i_store_address_tcp("odd", 1, &found), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), "no IPv4 or IPv6 address");
    lookup_error = EAI_NONAME;
    CHECK_STATUS(weft_i_store_address_tcp("nowhere", 1, &found), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), "cannot be resolved");
    lookup_error = EAI_MEMORY;
    CHECK_STATUS(weft_i_store_address_tcp("nowhere", 1, &found), WEFT_ERR_NO_MEMORY);
    CHECK_STATUS(weft_i_store_address_tcp("nowhere", 65536, &found), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_i_store_address_tcp("nowhere", -1, &found), WEFT_ERR_INVALID_ARG);
    weft_i_os_now = &weft_i_os_linux;
    weft_clear_error();
}

/* ---- sockets ---- */

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(!getsockopt(fd, level, name, &value, &length));
    return value;
}

TEST(test_store_address_sockets)
{
    weft_i_store_addresses found;
    weft_i_store_address bound, other;
    CHECK_OK(weft_i_store_address_tcp("127.0.0.1", 0, &found));
    int fd = weft_i_store_address_listen(&found, &bound);
    CHECK(fd >= 0 && weft_i_store_address_port(&bound) > 0);
    CHECK_INT(option(fd, SOL_SOCKET, SO_REUSEADDR), 1);
    CHECK_INT(option(fd, SOL_SOCKET, SO_ACCEPTCONN), 1);
    CHECK(option(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT) > 0);
    found.list[0] = bound; /* taken: the next address of the name is tried */
    CHECK_INT(weft_i_store_address_listen(&found, &other), -1);
    CHECK_CONTAINS(weft_last_error(), "cannot listen on 127.0.0.1:");
    found.list[1] = bound;
    weft_i_store_address_any_port(&found.list[1]);
    found.count = 2;
    int second = weft_i_store_address_listen(&found, &other);
    CHECK(second >= 0 && weft_i_store_address_port(&other) != weft_i_store_address_port(&bound));
    weft_i_nofork_close(second);
    int client = raw_connect(weft_i_store_address_port(&bound));
    CHECK(client >= 0);
    static const char *const patience[] = {"0", "999", "5000"};
    static const int pace[] = {1, 1, 5};
    for (int i = 0; i < 3; i++) {
        setenv("WEFT_STORE_PATIENCE", patience[i], 1);
        weft_i_store_address_tune(client);
        CHECK_INT(option(client, IPPROTO_TCP, TCP_NODELAY) > 0, 1);
        CHECK_INT(option(client, SOL_SOCKET, SO_KEEPALIVE) > 0, 1);
        CHECK_INT(option(client, IPPROTO_TCP, TCP_KEEPIDLE), pace[i]);
        CHECK_INT(option(client, IPPROTO_TCP, TCP_KEEPINTVL), pace[i]);
        CHECK_INT(option(client, IPPROTO_TCP, TCP_KEEPCNT), 3);
    }
    unsetenv("WEFT_STORE_PATIENCE");
    close(client);
    weft_i_nofork_close(fd);
    weft_clear_error();
}

/* ---- dialling, on a clock of the test's own ---- */

static int64_t now;
static int64_t slept[64], polled[64];
static int sleeps, polls, connects, connect_error, so_error;

static int64_t test_clock(void)
{
    return now;
}

static void test_sleep(int64_t ns)
{
    if (sleeps < 64)
        slept[sleeps++] = ns;
    now += ns;
}

static int test_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    (void)fds, (void)count;
    if (polls < 64)
        polled[polls++] = timeout_ms;
    if (so_error)
        return 1;
    now += (int64_t)timeout_ms * 1000000;
    return 0;
}

static int test_connect(int fd, const struct sockaddr *to, socklen_t length)
{
    (void)fd, (void)to, (void)length;
    connects++;
    errno = connect_error;
    return connect_error ? -1 : 0;
}

static int user_error, user_is; /* what is told of the server's user: an error, or a number */

static int test_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
    if (name == SO_PEERCRED) {
        errno = user_error;
        if (!user_error)
            *(struct ucred *)value = (struct ucred){.uid = (uid_t)user_is};
        return user_error ? -1 : 0;
    }
    if (name == SO_ERROR) {
        *(int *)value = so_error;
        return 0;
    }
    return weft_i_os_linux.getsockopt(fd, level, name, value, length);
}

static weft_i_store_dial dial_to(const char *text)
{
    weft_i_store_dial dial = {.addresses = {.count = 1}, .name = "tcp there"};
    CHECK(weft_i_store_address_read(text, &dial.addresses.list[0]));
    return dial;
}

static void use_table(void)
{
    table = weft_i_os_linux;
    table.clock_ns = test_clock;
    table.sleep_ns = test_sleep;
    table.poll = test_poll;
    table.connect = test_connect;
    table.getsockopt = test_getsockopt;
    weft_i_os_now = &table;
    now = 1000000000;
    sleeps = polls = connects = so_error = 0;
    connect_error = ECONNREFUSED;
    weft_clear_error();
}

TEST(test_store_address_dial_pauses)
{
    weft_i_store_link line;
    weft_i_store_dial dial = dial_to("127.0.0.1:9");
    use_table();
    CHECK_STATUS(weft_i_store_dial_connect(&dial, now + 1000000000, &line), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), "cannot be reached before the deadline: connect: ");
    CHECK_INT(now, 2000000000); /* not past it */
    int64_t pause = 1000000;
    for (int i = 0; i + 1 < sleeps; i++) {
        CHECK(slept[i] >= pause && slept[i] < 2 * pause);
        pause = 2 * pause < 100000000 ? 2 * pause : 100000000;
    }
    CHECK(sleeps >= 10 && connects == sleeps + 1);
    use_table();
    CHECK_STATUS(weft_i_store_dial_connect(&dial, now, &line), WEFT_ERR_UNREACHABLE);
    CHECK_INT(connects, 1);
    CHECK_INT(sleeps, 0);
    static const int fatal[] = {ENOMEM, ENFILE, EMFILE};
    for (int i = 0; i < 3; i++) {
        use_table();
        connect_error = fatal[i];
        CHECK(weft_i_store_dial_connect(&dial, now + 1000000000, &line) < 0);
        CHECK_INT(connects, 1);
    }
    weft_i_os_now = &weft_i_os_linux;
}

/* Without a token the server is known by its user: another's, or one that is not told, gets no
 * word. */
TEST(test_store_address_dial_user)
{
    weft_i_store_link line;
    weft_i_store_dial dial = dial_to("127.0.0.1:9");
    use_table();
    connect_error = 0;
    user_error = ENOBUFS;
    CHECK(weft_i_store_dial_connect(&dial, now + 1000000000, &line) < 0);
    CHECK_CONTAINS(weft_last_error(), "store tcp there: cannot read the server's user");
    CHECK_CONTAINS(weft_last_error(), strerror(ENOBUFS));
    CHECK(connects == 1 && sleeps == 0);
    use_table();
    connect_error = user_error = 0;
    user_is = (int)getuid() + 1;
    CHECK_STATUS(weft_i_store_dial_connect(&dial, now + 1000000000, &line), WEFT_ERR_AUTH);
    CHECK_CONTAINS(weft_last_error(), "the socket belongs to user ");
    CHECK(connects == 1 && sleeps == 0);
    weft_i_os_now = &weft_i_os_linux;
    weft_clear_error();
}

/* An attempt that hears nothing has a tenth of a second, the next twice that, up to the patience.
 */
TEST(test_store_address_dial_spans)
{
    static const int64_t spans[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000};
    weft_i_store_link line;
    weft_i_store_dial dial = dial_to("127.0.0.1:9");
    use_table();
    connect_error = EINPROGRESS;
    CHECK_STATUS(weft_i_store_dial_connect(&dial, now + 17000000000, &line), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), strerror(ETIMEDOUT));
    CHECK(polls >= 8);
    for (int i = 0; i < 8; i++)
        CHECK_INT(polled[i], spans[i]);
    CHECK(now >= 18000000000 && now < 18001000000);
    use_table();
    connect_error = EINPROGRESS;
    CHECK_INT(weft_i_store_dial_once(&dial, now + 300000001, &line), WEFT_IN_PROGRESS);
    CHECK_INT(polls, 1);
    CHECK_INT(polled[0], 301); /* rounded up */
    use_table();
    connect_error = EINPROGRESS;
    CHECK_INT(weft_i_store_dial_once(&dial, now + 30000000000, &line), WEFT_IN_PROGRESS);
    CHECK_INT(polled[0], 5000);
    use_table();
    connect_error = EINPROGRESS;
    CHECK_INT(weft_i_store_dial_once(&dial, now - 5, &line), WEFT_IN_PROGRESS);
    CHECK_INT(polled[0], 0);
    weft_i_os_now = &weft_i_os_linux;
    weft_clear_error();
}

TEST(test_store_address_dial_refused)
{
    weft_i_store_link line;
    weft_i_store_dial dial = dial_to("127.0.0.1:9");
    use_table();
    CHECK_STATUS(weft_i_store_dial_once(&dial, now + 1000000000, &line), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), "nobody listens");
    CHECK_INT(connects, 1);
    CHECK(weft_i_store_dial_is_refused("127.0.0.1:9", now + 1000));
    use_table();
    connect_error = EHOSTUNREACH;
    CHECK_INT(weft_i_store_dial_once(&dial, now + 1000000000, &line), WEFT_IN_PROGRESS);
    CHECK(!weft_i_store_dial_is_refused("127.0.0.1:9", now + 1000));
    CHECK(!weft_i_store_dial_is_refused("nonsense", now + 1000));
    use_table();
    connect_error = EINPROGRESS;
    so_error = ECONNREFUSED;
    CHECK_STATUS(weft_i_store_dial_once(&dial, now + 1000000000, &line), WEFT_ERR_UNREACHABLE);
    CHECK(weft_i_store_dial_is_refused("127.0.0.1:9", now + 1000));
    CHECK(strstr(weft_last_error(), "nobody listens")); /* asking leaves the errors as they were */
    weft_i_os_now = &weft_i_os_linux;
    weft_clear_error();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/client.c, store/server.c, store/file.c, store/socket.c */
/* Stores when things go wrong: forks, dead servers and clients, too little memory, too few
 * descriptors. */
#include "store_kinds.h"

#include "base/report/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

/* First of all tests, while the library is not loaded yet. */
static void *never(const char *name)
{
    (void)name;
    return NULL;
}

TEST(test_store_without_libcrypto)
{
    pid_t child = fork();
    if (!child) {
        weft_i_os none = weft_i_os_linux;
        none.dlopen = never;
        weft_i_os_now = &none;
        weft_store *s = weft_store_tcp_serve(NULL, 0, TOKEN);
        _exit(s || weft_last_status() != WEFT_ERR_UNSUPPORTED ||
              !strstr(weft_last_error(), "libcrypto") || !weft_store_unix_serve(fresh_name()));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
}

/* ---- processes ---- */

TEST(test_store_forked_child_is_told)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        CHECK_OK(set(p.a, "k", "v"));
        pid_t child = fork();
        if (!child) {
            weft_store_value got = {0};
            int wrong = set(p.a, "k", "child") != WEFT_ERR_STATE;
            wrong |= weft_store_get(p.b, "k", 10, &got) != WEFT_ERR_STATE;
            wrong |= weft_store_clone(p.b) != NULL || weft_store_prefix("x", p.a) != NULL;
            weft_scope_close(); /* releasing in the child must not disturb the parent */
            _exit(wrong);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        expect(p.a, "k", "v");
        expect(p.b, "k", "v");
        CLOSE();
    }
}

/* What a child opens gets the numbers that the parent's stores have.  Releasing those in the child
 * closes nothing that is the child's. */
TEST(test_store_forked_child_keeps_its_own)
{
    enum { FDS = 64 };
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        CHECK_OK(set(p.a, "k", "v"));
        pid_t child = fork();
        if (!child) {
            int fd, last = 0, closed = 0;
            while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && fd < FDS)
                last = fd;
            weft_scope_close();
            for (fd = 3; fd <= last; fd++)
                closed += fcntl(fd, F_GETFD) < 0;
            _exit(last < 10 || closed);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        expect(p.a, "k", "v");
        expect(p.b, "k", "v");
        CLOSE();
    }
}

TEST(test_store_death_of_the_server)
{
    for (int kind = UNIX; kind <= TCP; kind++) {
        OPEN();
        char name[64];
        int port;
        snprintf(name, sizeof name, "%s", fresh_name());
        pid_t server = serve_elsewhere(kind, name, &port);
        weft_store *s = kind == TCP ? weft_store_tcp_connect(NULL, port, TOKEN, 5000)
                                    : weft_store_unix_connect(name, 5000);
        CHECK(s);
        waiter w[4];
        for (int i = 0; i < 4; i++) {
            w[i] = (waiter){.store = s, .key = "never", .what = i, .timeout_ms = 60000};
            start(&w[i]);
        }
        usleep(20000);
        int64_t killed = WEFT_OS->clock_ns();
        kill(server, SIGKILL);
        for (int i = 0; i < 4; i++) {
            pthread_join(w[i].thread, NULL);
            CHECK_STATUS(w[i].status, WEFT_ERR_UNREACHABLE);
            CHECK_CONTAINS(w[i].error, kind == TCP ? "tcp 127.0.0.1:" : name);
            if (w[i].ended - killed > INT64_C(20000000000)) /* far below their limit of 60 s */
                FAIL("a blocked call ended %lld ms after the server",
                     (long long)((w[i].ended - killed) / 1000000));
        }
        waitpid(server, NULL, 0);
        CHECK_STATUS(set(s, "k", "v"), WEFT_ERR_UNREACHABLE);
        CHECK_OK(weft_store_set_timeout(s, 50));
        CHECK(!weft_store_clone(s));
        CHECK_STATUS(weft_last_status(), WEFT_ERR_UNREACHABLE);
        CLOSE();
    }
}

/* The server process forked a child that lives on: its copies of the sockets must not hide the
 * death. */
TEST(test_store_death_is_not_hidden_by_a_fork)
{
    OPEN();
    char name[64];
    snprintf(name, sizeof name, "%s", fresh_name());
    int pipes[2];
    CHECK(!pipe(pipes));
    pid_t server = fork();
    if (!server) {
        weft_store *store = weft_store_unix_serve(name);
        weft_store_value go = {0};
        weft_store_get(store, "go", 5000, &go); /* the client is connected */
        pid_t child = fork();
        if (!child) {
            for (;;)
                pause();
        }
        (void)!write(pipes[1], &child, sizeof child);
        for (;;)
            pause();
    }
    weft_store *s = weft_store_unix_connect(name, 5000);
    CHECK(s);
    CHECK_OK(set(s, "go", ""));
    pid_t child = 0;
    CHECK(read(pipes[0], &child, sizeof child) == sizeof child);
    waiter w = {.store = s, .key = "never", .timeout_ms = 20000};
    start(&w);
    kill(server, SIGKILL);
    int64_t begin = now_ms();
    pthread_join(w.thread, NULL);
    kill(child, SIGKILL);
    waitpid(server, NULL, 0);
    CHECK_STATUS(w.status, WEFT_ERR_UNREACHABLE);
    CHECK(now_ms() - begin < 15000);
    close(pipes[0]);
    close(pipes[1]);
    CLOSE();
}

TEST(test_store_death_of_a_client)
{
    OPEN();
    char name[64];
    snprintf(name, sizeof name, "%s", fresh_name());
    weft_store *s = weft_store_unix_serve(name);
    CHECK(s);
    pid_t child = fork();
    if (!child) {
        weft_store_value got = {0};
        weft_store *mine = weft_store_unix_connect(name, 5000);
        set(mine, "ready", "");
        weft_store_queue_pop(mine, "q", 60000, &got);
        _exit(0);
    }
    const char *ready = "ready";
    CHECK_OK(weft_store_wait(s, 1, &ready, 5000));
    usleep(5000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    /* pushed right after the death: the dead popper must not swallow it */
    CHECK_OK(weft_store_queue_push(s, "q", "precious", 8));
    weft_store_value got = {0};
    CHECK_OK(weft_store_queue_pop(s, "q", 5000, &got));
    CHECK(!strcmp(got.data, "precious"));
    weft_store_value_clear(&got);
    CLOSE();
}

TEST(test_store_connects_before_the_server_listens)
{
    OPEN();
    char name[64];
    snprintf(name, sizeof name, "%s", fresh_name());
    pid_t child = fork();
    if (!child) {
        weft_store *s = weft_store_unix_connect(name, 10000);
        _exit(!s || set(s, "came", "yes") != WEFT_OK);
    }
    usleep(30000);
    weft_store *s = weft_store_unix_serve(name);
    CHECK(s);
    expect(s, "came", "yes");
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    int64_t begin = now_ms();
    CHECK(!weft_store_unix_connect("weft-nobody-is-here", 60));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), "weft-nobody-is-here");
    CHECK(now_ms() - begin < 15000);
    CHECK(!weft_store_unix_serve(name));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_ADDR_IN_USE);
    weft_store *tcp = weft_store_tcp_serve(NULL, 0, TOKEN);
    CHECK(tcp && !weft_store_tcp_serve(NULL, weft_store_port(tcp), TOKEN));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_ADDR_IN_USE);
    CLOSE();
}

/* ---- limits and shortage ---- */

TEST(test_store_memory_is_bounded)
{
    setenv("WEFT_STORE_MEMORY", "1M", 1);
    char *block = calloc(1, 300000);
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        for (int i = 0; i < 3; i++) {
            char key[8] = {'k', (char)('0' + i), 0};
            CHECK_OK(weft_store_set(p.a, key, block, 300000));
        }
        CHECK_STATUS(weft_store_set(p.a, "over", block, 300000), WEFT_ERR_LIMIT);
        CHECK_CONTAINS(weft_last_error(), "WEFT_STORE_MEMORY");
        CHECK_STATUS(weft_store_queue_push(p.b, "over", block, 300000), WEFT_ERR_LIMIT);
        CHECK_STATUS(weft_store_append(p.b, "k0", block, 300000), WEFT_ERR_LIMIT);
        CHECK_OK(weft_store_set(p.b, "k1", block, 300000)); /* the same size again fits */
        CHECK_OK(weft_store_delete_key(p.b, "k2", NULL));
        CHECK_OK(weft_store_set(p.a, "over", block, 300000));
        CLOSE();
    }
    free(block);
    unsetenv("WEFT_STORE_MEMORY");
}

/* More large values under way at once than the server holds: some peers have to rest, none may be
 * forgotten. */
enum { CROWD = 10 };
typedef struct visitor {
    weft_store *store;
    const char *big;
    int me;
    bool ok;
    pthread_t thread;
} visitor;

static void *visit(void *argument)
{
    visitor *v = argument;
    char key[16];
    weft_store_value got = {0};
    snprintf(key, sizeof key, "mine-%d", v->me);
    v->ok = weft_store_get(v->store, "big", 30000, &got) == WEFT_OK &&
            got.bytes == WEFT_STORE_VALUE_BYTES && !memcmp(got.data, v->big, got.bytes);
    weft_store_value_clear(&got);
    v->ok = v->ok && weft_store_set(v->store, key, v->big, WEFT_STORE_VALUE_BYTES) == WEFT_OK;
    v->ok = v->ok && weft_store_get(v->store, key, 0, &got) == WEFT_OK &&
            !memcmp(got.data, v->big, WEFT_STORE_VALUE_BYTES);
    weft_store_value_clear(&got);
    return NULL;
}

TEST(test_store_crowd_with_large_values)
{
    char *big = malloc(WEFT_STORE_VALUE_BYTES);
    CHECK(big);
    for (size_t i = 0; i < WEFT_STORE_VALUE_BYTES; i++)
        big[i] = (char)(i * 13 + (i >> 11));
    for (int kind = UNIX; kind <= TCP; kind++) {
        OPEN();
        pair p = make(kind);
        visitor v[CROWD];
        for (int i = 0; i < CROWD; i++) {
            v[i] = (visitor){.store = weft_store_clone(p.a), .big = big, .me = i};
            CHECK(v[i].store && !pthread_create(&v[i].thread, NULL, visit, &v[i]));
        }
        usleep(20000);
        CHECK_OK(weft_store_set(p.b, "big", big, WEFT_STORE_VALUE_BYTES));
        for (int i = 0; i < CROWD; i++) {
            pthread_join(v[i].thread, NULL);
            if (!v[i].ok)
                FAIL("%s: visitor %d went without", kind_names[kind], i);
        }
        CLOSE();
    }
    free(big);
}

/* A table whose n-th call fails, and that counts what is allocated. */
static weft_i_os faulty;
static _Atomic int countdown;
static _Atomic long living;

static bool fails(void)
{
    return atomic_fetch_sub(&countdown, 1) == 1;
}

static void *f_alloc(size_t bytes)
{
    if (fails())
        return errno = ENOMEM, NULL;
    living++;
    return weft_i_os_linux.alloc(bytes);
}

static void *f_resize(void *old, size_t bytes)
{
    if (fails())
        return errno = ENOMEM, NULL;
    living += !old;
    return weft_i_os_linux.resize(old, bytes);
}

static void f_free(void *memory)
{
    living -= memory != NULL;
    weft_i_os_linux.free(memory);
}

#define FAULTY(name_, error_, parameters_, arguments_) \
    static int f_##name_ parameters_                   \
    {                                                  \
        if (fails())                                   \
            return errno = (error_), -1;               \
        return (int)weft_i_os_linux.name_ arguments_;  \
    }
FAULTY(socket, EMFILE, (int a, int b, int c), (a, b, c))
FAULTY(bind, EACCES, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))
FAULTY(listen, EADDRINUSE, (int a, int b), (a, b))
FAULTY(accept, EMFILE, (int a, bool b), (a, b))
FAULTY(connect, ENOMEM, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))
FAULTY(getsockname, ENOBUFS, (int a, struct sockaddr *b, socklen_t *c), (a, b, c))
FAULTY(getsockopt, ENOBUFS, (int a, int b, int c, void *d, socklen_t *e), (a, b, c, d, e))
FAULTY(setsockopt, ENOMEM, (int a, int b, int c, const void *d, socklen_t e), (a, b, c, d, e))
FAULTY(epoll_create, EMFILE, (void), ())
FAULTY(epoll_ctl, ENOMEM, (int a, int b, int c, struct epoll_event *d), (a, b, c, d))
FAULTY(epoll_wait, EINTR, (int a, struct epoll_event *b, int c, int d), (a, b, c, d))
FAULTY(eventfd, EMFILE, (unsigned a), (a))
FAULTY(poll, ENOMEM, (struct pollfd * a, nfds_t b, int c), (a, b, c))
FAULTY(random_bytes, EAGAIN, (void *a, size_t b), (a, b))
FAULTY(open, EMFILE, (const char *a, int b, mode_t c), (a, b, c))
FAULTY(lock_byte, ENOLCK, (int a, short b, off_t c), (a, b, c))
FAULTY(fstat, EIO, (int a, struct stat *b), (a, b))
FAULTY(ftruncate, EIO, (int a, off_t b), (a, b))
FAULTY(unlink, EACCES, (const char *a), (a))

static ssize_t f_sendmsg(int fd, const struct msghdr *message, int flags)
{
    return fails() ? (errno = ECONNRESET, -1) : weft_i_os_linux.sendmsg(fd, message, flags);
}

static ssize_t f_recvmsg(int fd, struct msghdr *message, int flags)
{
    return fails() ? (errno = ECONNRESET, -1) : weft_i_os_linux.recvmsg(fd, message, flags);
}

static ssize_t f_read(int fd, void *bytes, size_t count)
{
    return fails() ? (errno = EIO, -1) : weft_i_os_linux.read(fd, bytes, count);
}

static ssize_t f_write(int fd, const void *bytes, size_t count)
{
    return fails() ? (errno = ENOSPC, -1) : weft_i_os_linux.write(fd, bytes, count);
}

static off_t f_lseek(int fd, off_t offset, int whence)
{
    return fails() ? (errno = EIO, -1) : weft_i_os_linux.lseek(fd, offset, whence);
}

static int f_thread_create(pthread_t *thread, void *(*body)(void *), void *argument)
{
    return fails() ? EAGAIN : weft_i_os_linux.thread_create(thread, body, argument);
}

static int f_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                         struct addrinfo **out)
{
    return fails() ? EAI_MEMORY : weft_i_os_linux.getaddrinfo(host, service, hints, out);
}

static void install_faults(void)
{
    faulty = weft_i_os_linux;
    faulty.alloc = f_alloc;
    faulty.resize = f_resize;
    faulty.free = f_free;
    faulty.socket = f_socket;
    faulty.bind = f_bind;
    faulty.listen = f_listen;
    faulty.accept = f_accept;
    faulty.connect = f_connect;
    faulty.getsockname = f_getsockname;
    faulty.getsockopt = f_getsockopt;
    faulty.setsockopt = f_setsockopt;
    faulty.epoll_create = f_epoll_create;
    faulty.epoll_ctl = f_epoll_ctl;
    faulty.epoll_wait = f_epoll_wait;
    faulty.eventfd = f_eventfd;
    faulty.poll = f_poll;
    faulty.random_bytes = f_random_bytes;
    faulty.open = f_open;
    faulty.lock_byte = f_lock_byte;
    faulty.fstat = f_fstat;
    faulty.ftruncate = f_ftruncate;
    faulty.unlink = f_unlink;
    faulty.sendmsg = f_sendmsg;
    faulty.recvmsg = f_recvmsg;
    faulty.read = f_read;
    faulty.write = f_write;
    faulty.lseek = f_lseek;
    faulty.thread_create = f_thread_create;
    faulty.getaddrinfo = f_getaddrinfo;
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* A bit of everything; the number of the first call that failed, or 0. */
static int whole_life(int kind, const char *path)
{
    weft_store *s = NULL;
    if (kind == LOCAL)
        s = weft_store_local();
    else if (kind == PREFIX)
        s = weft_store_prefix("p", weft_store_local());
    else if (kind == FILES)
        s = weft_store_file(path, 1);
    else if (kind == UNIX)
        s = weft_store_unix_serve(fresh_name());
    else
        s = weft_store_tcp_serve(NULL, 0, TOKEN);
    if (!s)
        return 1;
    weft_store *b = weft_store_clone(s);
    if (!b)
        return 2;
    weft_store_value got = {0}, two[2] = {{0}};
    const char *keys[] = {"a", "b"};
    const void *data[] = {"1", "2"};
    size_t bytes[] = {1, 1};
    if (set(s, "k", "v") || weft_store_get(b, "k", 1000, &got))
        return 3;
    weft_store_value_clear(&got);
    if (weft_store_add(b, "n", 2, NULL) || weft_store_multi_set(s, 2, keys, data, bytes))
        return 4;
    if (weft_store_multi_get(b, 2, keys, 1000, two))
        return 5;
    weft_store_value_clear(&two[0]);
    weft_store_value_clear(&two[1]);
    if (weft_store_queue_push(s, "q", "x", 1) || weft_store_queue_pop(b, "q", 1000, &got))
        return 6;
    weft_store_value_clear(&got);
    return weft_store_get(b, "never", 1, &got) == WEFT_ERR_TIMEOUT ? 0 : 7;
}

TEST(test_store_every_call_may_fail)
{
    install_faults();
    setenv("WEFT_STORE_TIMEOUT", "2000", 1);
    char path[128];
    snprintf(path, sizeof path, "%s", fresh_path());
    CHECK_OK(weft_scope_open()); /* the root scope exists before anything is counted */
    CHECK_OK(weft_scope_close());
    for (int kind = LOCAL; kind < NESTED; kind++) {
        int succeeded = 0;
        for (int n = 1; n < 400 && succeeded < 3; n++) {
            CHECK_OK(weft_scope_open());
            int before = open_descriptors();
            weft_i_os_now = &faulty;
            living = 0;
            countdown = n;
            weft_clear_error();
            int step = whole_life(kind, path);
            char error[256];
            snprintf(error, sizeof error, "%s", weft_last_error());
            bool hit = countdown <= 0;
            countdown = 0;
            weft_scope_close();
            weft_i_os_now = &weft_i_os_linux;
            unlink(path);
            if (step && !*error)
                FAIL("%s, call %d: step %d failed without a message", kind_names[kind], n, step);
            /* the scope itself was allocated outside and freed inside the count */
            if (living != -1)
                FAIL("%s, call %d: %ld blocks leaked", kind_names[kind], n, living + 1);
            if (open_descriptors() != before)
                FAIL("%s, call %d: %d descriptors leaked", kind_names[kind], n,
                     open_descriptors() - before);
            succeeded = hit ? 0 : succeeded + 1;
        }
        if (!succeeded && kind < UNIX)
            FAIL("%s: never got through", kind_names[kind]);
    }
    unsetenv("WEFT_STORE_TIMEOUT");
}

static void *never_longer(void *old, size_t bytes)
{
    (void)old;
    (void)bytes;
    return NULL;
}

/*
 * The list of descriptors that a forked child closes grows in steps, so only a dial at the end of a
 * step needs memory for it: dial until several have, and see that each gave its socket back.
 */
TEST(test_store_dial_without_memory_for_the_list)
{
    enum { CLIENTS = 70 };
    OPEN();
    char name[64];
    int port, refused = 0;
    snprintf(name, sizeof name, "%s", fresh_name());
    pid_t server = serve_elsewhere(UNIX, name, &port);
    weft_i_os short_of_memory = weft_i_os_linux;
    short_of_memory.resize = never_longer;
    for (int i = 0; i < CLIENTS; i++) {
        int before = open_descriptors();
        weft_i_os_now = &short_of_memory;
        weft_store *s = weft_store_unix_connect(name, 20000);
        weft_status status = weft_last_status();
        weft_i_os_now = &weft_i_os_linux;
        if (!s) {
            refused++;
            CHECK_STATUS(status, WEFT_ERR_NO_MEMORY);
            CHECK_INT(open_descriptors(), before);
            s = weft_store_unix_connect(name, 20000); /* and with memory it works */
        }
        CHECK(s);
        CHECK_INT(open_descriptors(), before + 1);
        weft_clear_error();
    }
    CHECK(refused >= 2);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    CLOSE();
}

/* Too few descriptors to accept: the client waits, and gets in when there are some again. */
static _Atomic int starving;

static int starving_accept(int fd, bool blocking)
{
    return starving ? (errno = EMFILE, -1) : weft_i_os_linux.accept(fd, blocking);
}

static void *feed(void *unused)
{
    usleep(60000);
    starving = 0;
    return unused;
}

TEST(test_store_server_survives_without_descriptors)
{
    OPEN();
    weft_store *s = weft_store_unix_serve(fresh_name());
    CHECK(s);
    static weft_i_os hungry; /* the server's thread may look into it a moment longer */
    hungry = weft_i_os_linux;
    hungry.accept = starving_accept;
    starving = 1;
    weft_store *b = NULL;
    pthread_t feeder;
    weft_i_os_now = &hungry;
    CHECK(!pthread_create(&feeder, NULL, feed, NULL));
    b = weft_store_clone(s);
    weft_i_os_now = &weft_i_os_linux;
    pthread_join(feeder, NULL);
    if (!b)
        FAIL("%s", weft_last_error());
    CHECK_OK(set(b, "k", "v"));
    expect(s, "k", "v");
    CLOSE();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

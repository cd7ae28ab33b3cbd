/* SPDX-License-Identifier: Apache-2.0 */
/* Stores of every kind for the tests, two handles on the same data each, and threads that wait in a
 * store. */
#ifndef WEFT_TESTS_STORE_KINDS_H
#define WEFT_TESTS_STORE_KINDS_H

#include "harness.h"

#include "base/os/os.h"
#include "weft/scope.h"
#include "weft/store.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

enum { LOCAL, PREFIX, FILES, UNIX, TCP, NESTED, KINDS };
__attribute__((unused)) static const char *const kind_names[KINDS] = {"local", "prefix", "file",
                                                                      "unix",  "tcp",    "nested"};

static inline const char *fresh_name(void)
{
    static char name[64];
    static int count;
    snprintf(name, sizeof name, "weft-test-%d-%d", getpid(), ++count);
    return name;
}

static inline const char *fresh_path(void)
{
    static char path[128];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "/tmp", fresh_name());
    unlink(path);
    return path;
}

/* Two handles on the same data, as two ranks would have them. */
typedef struct pair {
    weft_store *a, *b;
} pair;

static inline pair make(int kind)
{
    pair p = {0};
    char text[128];
    switch (kind) {
    case LOCAL:
        p.a = weft_store_local();
        p.b = weft_store_clone(p.a);
        break;
    case PREFIX:
        p.a = weft_store_prefix("part", weft_store_local());
        p.b = weft_store_clone(p.a);
        break;
    case FILES:
        snprintf(text, sizeof text, "%s", fresh_path());
        p.a = weft_store_file(text, 2);
        p.b = weft_store_file(text, 2);
        break;
    case UNIX:
        snprintf(text, sizeof text, "%s", fresh_name());
        p.a = weft_store_unix_serve(text);
        p.b = weft_store_unix_connect(text, 5000);
        break;
    case TCP:
        p.a = weft_store_tcp_serve(NULL, 0, TOKEN);
        p.b = weft_store_tcp_connect("127.0.0.1", weft_store_port(p.a), TOKEN, 5000);
        break;
    case NESTED:
        p.a = weft_store_tcp_serve("localhost", 0, TOKEN);
        p.b = weft_store_prefix("in", weft_store_prefix("out", weft_store_clone(p.a)));
        p.a = weft_store_prefix("in", weft_store_prefix("out", p.a));
        break;
    }
    if (!p.a || !p.b)
        FAIL("cannot make a %s store: %s", kind_names[kind], weft_last_error());
    return p;
}

#define FOR_ALL(kind_) for (int kind_ = 0; kind_ < KINDS; kind_++)
#define OPEN()         CHECK_OK(weft_scope_open())
#define CLOSE()        CHECK_OK(weft_scope_close())

static inline void expect(weft_store *store, const char *key, const char *value)
{
    weft_store_value got = {0};
    CHECK_OK(weft_store_get(store, key, 5000, &got));
    if (got.bytes != strlen(value) || memcmp(got.data, value, got.bytes))
        FAIL("%s holds \"%s\", not \"%s\"", key, (char *)got.data, value);
    weft_store_value_clear(&got);
}

static inline weft_status set(weft_store *store, const char *key, const char *value)
{
    return weft_store_set(store, key, value, strlen(value));
}

static inline int64_t now_ms(void)
{
    return WEFT_OS->clock_ns() / 1000000;
}

typedef struct waiter {
    weft_store *store;
    const char *key;
    int what; /* 0 get, 1 wait, 2 pop, 3 multi_get */
    int64_t timeout_ms;
    weft_status status;
    char text[64], error[256];
    _Atomic int started, done;
    int64_t ended;
    pthread_t thread;
} waiter;

static inline void *wait_body(void *argument)
{
    waiter *w = argument;
    weft_store_value got = {0};
    w->started = 1;
    if (w->what == 0)
        w->status = weft_store_get(w->store, w->key, w->timeout_ms, &got);
    else if (w->what == 1)
        w->status = weft_store_wait(w->store, 1, &w->key, w->timeout_ms);
    else if (w->what == 2)
        w->status = weft_store_queue_pop(w->store, w->key, w->timeout_ms, &got);
    else
        w->status = weft_store_multi_get(w->store, 1, &w->key, w->timeout_ms, &got);
    w->ended = WEFT_OS->clock_ns();
    snprintf(w->text, sizeof w->text, "%s", got.data ? (char *)got.data : "");
    snprintf(w->error, sizeof w->error, "%s", w->status < 0 ? weft_last_error() : "");
    weft_store_value_clear(&got);
    w->done = 1;
    return NULL;
}

static inline void start(waiter *w)
{
    CHECK(!pthread_create(&w->thread, NULL, wait_body, w));
    while (!w->started)
        usleep(100);
}

/* A process that serves and never ends by itself; its port comes through a pipe. */
static inline pid_t serve_elsewhere(int kind, const char *name, int *port)
{
    int pipes[2];
    CHECK(!pipe(pipes));
    pid_t server = fork();
    if (!server) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed check must not leave it behind */
        weft_store *store =
            kind == TCP ? weft_store_tcp_serve(NULL, 0, TOKEN) : weft_store_unix_serve(name);
        int number = store ? weft_store_port(store) : -1;
        (void)!write(pipes[1], &number, sizeof number);
        for (;;)
            pause();
    }
    CHECK(read(pipes[0], port, sizeof *port) == sizeof *port && *port >= 0);
    close(pipes[0]);
    close(pipes[1]);
    return server;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/server.c, store/client.c */
/*
 * A process that serves a store ends: by releasing it, by returning from main, by exit.  It ends in
 * order, whatever its clients are doing, and whoever was answered has the answer.
 */
#include "store_kinds.h"
#include "values_seed.h"

#include "base/share/keyed.h"
#include "store/link.h"

#include <dlfcn.h>
#include <sys/wait.h>

enum { RELEASES, EXITS, EXITS_AFTER_OPENSSL, WAYS };

/* Serves until somebody sets "go", then ends in the way asked for. */
static void serve_and_end(int way, int to)
{
    if (way == EXITS_AFTER_OPENSSL) { /* the program has started libcrypto before, as it likes it */
        void *library = dlopen("libcrypto.so.3", RTLD_NOW);
        int (*init)(uint64_t, const void *) = NULL;
        void *entry = library ? dlsym(library, "OPENSSL_init_crypto") : NULL;
        memcpy(&init, &entry, sizeof entry);
        if (!init || init(0, NULL) != 1)
            _exit(3);
    }
    weft_store *store = weft_keep(weft_store_tcp_serve(NULL, 0, TOKEN));
    int port = weft_store_port(store);
    const char *go = "go";
    if (!store || write(to, &port, sizeof port) != sizeof port ||
        weft_store_wait(store, 1, &go, 20000) < 0)
        _exit(4);
    if (way == RELEASES)
        weft_release(store);
    exit(0);
}

static pid_t start_server(int way, int *port)
{
    int pipes[2];
    CHECK(!pipe(pipes));
    fflush(stdout);
    pid_t server = fork();
    if (!server) { /* a fresh program, in which nothing is loaded yet */
        char how[16], to[16];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(how, sizeof how, "%d", way);
        snprintf(to, sizeof to, "%d", pipes[1]);
        execl("/proc/self/exe", "test_store_exit", "--serve", how, to, NULL);
        _exit(2);
    }
    close(pipes[1]);
    bool told = read(pipes[0], port, sizeof *port) == sizeof *port;
    close(pipes[0]);
    CHECK(told);
    return server;
}

typedef struct asker {
    weft_store *store;
    weft_status status;
    _Atomic int asked;
    pthread_t thread;
} asker;

static void *ask_on_and_on(void *argument)
{
    asker *a = argument;
    while ((a->status = weft_store_add(a->store, "count", 1, NULL)) == WEFT_OK)
        a->asked++;
    return NULL;
}

/* Frames are signed by the server's thread at the very moment when the process goes. */
TEST(test_store_exit_while_clients_ask)
{
    enum { ROUNDS = VALUES_SANITIZED ? 10 : 40, ASKERS = 3 };
    for (int round = 0; round < ROUNDS * WAYS; round++) {
        OPEN();
        int port, status = -1;
        pid_t server = start_server(round % WAYS, &port);
        asker askers[ASKERS] = {0};
        for (int i = 0; i < ASKERS; i++) {
            askers[i].store = weft_store_tcp_connect(NULL, port, TOKEN, 20000);
            CHECK(askers[i].store);
            CHECK(!pthread_create(&askers[i].thread, NULL, ask_on_and_on, &askers[i]));
        }
        weft_store *s = weft_store_tcp_connect(NULL, port, TOKEN, 20000);
        CHECK(s);
        while (!askers[0].asked)
            usleep(100);
        weft_status told = set(s, "go", "now"); /* answered before the server can know of it */
        CHECK(waitpid(server, &status, 0) == server);
        for (int i = 0; i < ASKERS; i++)
            pthread_join(askers[i].thread, NULL);
        if (status)
            FAIL("round %d: the server ended with wait status %#x", round, (unsigned)status);
        CHECK_OK(told);
        for (int i = 0; i < ASKERS; i++)
            CHECK_STATUS(askers[i].status, WEFT_ERR_UNREACHABLE);
        CLOSE();
    }
}

/* Those who wait for a key when the process that serves it is woken by the same key and goes. */
TEST(test_store_exit_last_answers_arrive)
{
    enum { ROUNDS = VALUES_SANITIZED ? 6 : 20, WAITERS = 4 };
    for (int round = 0; round < ROUNDS * WAYS; round++) {
        OPEN();
        int port, status = -1;
        pid_t server = start_server(round % WAYS, &port);
        waiter waiters[WAITERS] = {0};
        for (int i = 0; i < WAITERS; i++) {
            waiters[i] = (waiter){.key = "go", .timeout_ms = 20000, .what = i};
            if (i == 2)
                waiters[i].what = 0; /* nothing is popped here */
            waiters[i].store = weft_store_tcp_connect(NULL, port, TOKEN, 20000);
            CHECK(waiters[i].store);
            start(&waiters[i]);
        }
        weft_store *s = weft_store_tcp_connect(NULL, port, TOKEN, 20000);
        usleep(2000); /* so that most of them wait; the others ask too late, and are told so */
        CHECK_OK(set(s, "go", "now"));
        CHECK(waitpid(server, &status, 0) == server);
        CHECK_INT(status, 0);
        int answered = 0;
        for (int i = 0; i < WAITERS; i++) {
            pthread_join(waiters[i].thread, NULL);
            CHECK(waiters[i].status == WEFT_OK || waiters[i].status == WEFT_ERR_UNREACHABLE);
            answered += waiters[i].status == WEFT_OK;
        }
        if (answered < WAITERS - 1)
            FAIL("round %d: %d of %d got their answer", round, answered, WAITERS);
        CLOSE();
    }
}

/* A child of fork that exits leaves its parent's server alone; one that serves itself ends its own.
 */
TEST(test_store_exit_of_a_forked_child)
{
    for (int round = 0; round < 20; round++) {
        OPEN();
        weft_store *s = weft_store_tcp_serve(NULL, 0, TOKEN);
        CHECK(s);
        CHECK_OK(set(s, "k", "v"));
        fflush(stdout);
        pid_t child = fork();
        if (!child)
            exit(round % 2 && !weft_keep(weft_store_tcp_serve(NULL, 0, TOKEN)));
        int status = -1;
        while (waitpid(child, &status, WNOHANG) == 0)
            CHECK_OK(set(s, "k", "v"));
        CHECK_INT(status, 0);
        expect(s, "k", "v");
        CLOSE();
    }
}

/* After the exit functions nothing calls libcrypto: signing is an error, not a crash. */
static void sign_late(void)
{
    uint8_t secret[WEFT_I_KEYED_BYTES] = {1}, tag[WEFT_I_KEYED_BYTES];
    weft_i_store_transcript said = {0};
    if (weft_i_keyed_sign(secret, "x", 1, tag) != WEFT_ERR_STATE ||
        weft_i_store_link_derive(secret, WEFT_I_STORE_SERVER_PROOF, &said, tag) != WEFT_ERR_STATE)
        _exit(5);
}

TEST(test_store_exit_closes_the_hash)
{
    fflush(stdout);
    CHECK_OK(weft_i_keyed_load());
    pid_t child = fork();
    if (!child) {
        uint8_t secret[WEFT_I_KEYED_BYTES] = {1}, tag[WEFT_I_KEYED_BYTES];
        if (weft_i_keyed_sign(secret, "x", 1, tag) < 0)
            _exit(6);
        exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
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
    atexit(sign_late);               /* called after those of the library, which come later */
    if (argc == 4 && !strcmp(argv[1], "--serve"))
        serve_and_end(atoi(argv[2]), atoi(argv[3]));
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/client.c */
/* A client of a store whose server is the test: what goes over the line, what happens to answers
 * that come late, twice, in another order or wrong, and the words of every error. */
#include "fault.h"
#include "store_kinds.h"

#include "store/client.h"
#include "store/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

static weft_i_store_link line; /* the server's end */
static weft_store *store;

static void begin(void)
{
    int fds[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    OPEN();
    store = weft_i_store_client_adopt(fds[0]);
    CHECK(store);
    weft_i_store_link_open(&line, fds[1]);
}

static void end(void)
{
    if (line.fd >= 0)
        close(line.fd);
    line.fd = -1;
    weft_i_store_link_close(&line, true);
    CLOSE();
    weft_clear_error();
}

typedef struct heard {
    uint64_t id;
    weft_i_store_op op;
    int64_t number;
    bool may_block;
    char key[32];
} heard;

/* The next request, waited for up to two seconds; op 0: none. */
static heard hear(int wait_ms)
{
    weft_i_store_frame frame;
    heard h = {0};
    int got;
    for (int waited = 0; !(got = weft_i_store_link_next(&line, &frame)); waited++) {
        if (waited >= wait_ms)
            return h;
        CHECK_OK(weft_i_store_link_fill(&line, 1 << 20));
        usleep(1000);
    }
    CHECK_INT(got, 1);
    weft_i_store_request request;
    void *space;
    CHECK_OK(weft_i_store_request_decode(frame.payload, frame.bytes, &request, &space));
    h = (heard){
        .id = frame.id, .op = request.op, .number = request.number, .may_block = request.may_block};
    if (request.keys)
        snprintf(h.key, sizeof h.key, "%.*s", (int)request.key[0].bytes,
                 (const char *)request.key[0].data);
    WEFT_OS->free(space);
    return h;
}

static void say(uint64_t id, weft_status status, const char *value, int64_t number)
{
    weft_i_store_answer answer = {.status = status, .number = number};
    weft_i_view view = {value, value ? strlen(value) : 0};
    if (value) {
        answer.values = 1;
        answer.value = &view;
    }
    size_t bytes = weft_i_store_answer_bytes(&answer);
    weft_i_store_answer_encode(&answer, weft_i_store_link_begin(&line, id, bytes), bytes);
    CHECK_OK(weft_i_store_link_commit(&line, bytes));
    CHECK_OK(weft_i_store_link_flush(&line));
}

static void wait_for(waiter *w)
{
    pthread_join(w->thread, NULL);
}

/* Two calls of two threads, answered the other way round; and a third that nobody asked for. */
TEST(test_store_client_order)
{
    begin();
    waiter a = {.store = store, .key = "a", .timeout_ms = 10000},
           b = {.store = store, .key = "b", .timeout_ms = 10000};
    start(&a);
    heard first = hear(2000);
    start(&b);
    heard second = hear(2000);
    CHECK(first.op == WEFT_I_STORE_GET && first.may_block && !strcmp(first.key, "a"));
    CHECK(second.op == WEFT_I_STORE_GET && !strcmp(second.key, "b") && second.id != first.id);
    say(99, WEFT_OK, "nobody's", 0);
    say(second.id, WEFT_OK, "two", 0);
    wait_for(&b);
    CHECK(b.status == WEFT_OK && !strcmp(b.text, "two") && !a.done);
    say(second.id, WEFT_OK, "twice", 0);
    say(first.id, WEFT_OK, "one", 0);
    wait_for(&a);
    CHECK(a.status == WEFT_OK && !strcmp(a.text, "one"));
    CHECK_INT(hear(20).op, 0); /* nothing more was said */
    end();
}

/* An element that was popped is acknowledged; a call that was given up is called off, and its late
 * answer is for nobody. */
TEST(test_store_client_receipts)
{
    begin();
    waiter w = {.store = store, .key = "q", .what = 2, .timeout_ms = 10000};
    start(&w);
    heard pop = hear(2000);
    CHECK_INT(pop.op, WEFT_I_STORE_POP);
    say(pop.id, WEFT_OK, "element", 0);
    wait_for(&w);
    CHECK(w.status == WEFT_OK && !strcmp(w.text, "element"));
    heard taken = hear(2000);
    CHECK(taken.op == WEFT_I_STORE_TAKEN && taken.number == (int64_t)pop.id);
    w = (waiter){.store = store, .key = "q", .what = 2, .timeout_ms = 10000};
    start(&w);
    pop = hear(2000);
    say(pop.id, WEFT_ERR_TYPE, NULL, 0);
    wait_for(&w);
    CHECK_INT(w.status, WEFT_ERR_TYPE);
    CHECK_CONTAINS(w.error, "queue_pop(\"q\"): the key holds a value, not a queue");
    CHECK_INT(hear(20).op, 0); /* no receipt for nothing */
    w = (waiter){.store = store, .key = "q", .what = 2, .timeout_ms = 30};
    start(&w);
    pop = hear(2000);
    wait_for(&w);
    CHECK_INT(w.status, WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(w.error, "the deadline passed and nothing was pushed");
    heard cancel = hear(2000);
    CHECK(cancel.op == WEFT_I_STORE_CANCEL && cancel.number == (int64_t)pop.id);
    say(pop.id, WEFT_OK, "too late", 0);
    w = (waiter){.store = store, .key = "k", .what = 0, .timeout_ms = 30};
    start(&w);
    heard get = hear(2000);
    say(get.id, WEFT_OK, "value", 0);
    wait_for(&w);
    CHECK(w.status == WEFT_OK && !strcmp(w.text, "value"));
    CHECK_INT(hear(20).op, 0);
    end();
}

/* Answers that the request cannot have, and bytes that are none: the connection is over, and says
 * so to everybody. */
TEST(test_store_client_wrong_answers)
{
    for (int how = 0; how < 6; how++) {
        begin();
        waiter w = {.store = store, .key = "k", .timeout_ms = 10000},
               other = {.store = store, .key = "other", .what = 1, .timeout_ms = 10000};
        start(&w);
        heard get = hear(2000);
        start(&other);
        CHECK(hear(2000).op == WEFT_I_STORE_WAIT);
        if (how == 0)
            say(get.id, WEFT_OK, NULL, 0); /* no value */
        else if (how == 1)
            say(get.id, WEFT_ERR_NOT_FOUND, "value", 0);
        else if (how == 2)
            say(get.id, WEFT_ERR_AUTH, NULL, 0); /* no word of a server's */
        else if (how == 3)
            (void)!write(line.fd, "GET / HTTP/1.1\r\n\r\n________________", 34);
        else if (how == 4) {
            line.sent++; /* a frame is missing */
            say(get.id, WEFT_OK, "value", 0);
        } else {
            close(line.fd);
            line.fd = -1;
        }
        wait_for(&w);
        wait_for(&other);
        weft_status expected = how == 5 ? WEFT_ERR_UNREACHABLE : WEFT_ERR_PROTOCOL;
        CHECK_INT(w.status, expected);
        CHECK_INT(other.status, expected);
        CHECK_CONTAINS(w.error, how == 5 ? "the server is gone" : "bytes that are not ours");
        CHECK_CONTAINS(other.error, "wait(\"other\")");
        CHECK(weft_i_store_client_is_broken(store));
        CHECK_STATUS(set(store, "k", "v"), expected); /* at once */
        end();
    }
}

/* Each word of a server's is told as what it means for the call. */
TEST(test_store_client_words)
{
    static const struct {
        weft_status status;
        const char *text;
    } said[] = {{WEFT_ERR_TYPE, "the key holds a queue, not a value"},
                {WEFT_ERR_LIMIT, "WEFT_STORE_MEMORY"},
                {WEFT_ERR_NO_MEMORY, "the store ran out of memory"},
                {WEFT_ERR_NOT_FOUND, "no such key"},
                {WEFT_ERR_UNSUPPORTED, "append(\"k\")"}};
    begin();
    CHECK(weft_i_store_client_is(store) && !weft_i_store_client_serves(store));
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        say((uint64_t)i + 1, said[i].status, NULL, 0); /* it is there before it is asked for */
        CHECK_STATUS(weft_store_append(store, "k", "v", 1), said[i].status);
        CHECK_CONTAINS(weft_last_error(), said[i].text);
        CHECK_CONTAINS(weft_last_error(), "append(\"k\")");
        CHECK_INT(hear(100).op, WEFT_I_STORE_APPEND);
    }
    uint64_t id = sizeof said / sizeof *said;
    int64_t total = 0;
    say(++id, WEFT_ERR_TYPE, NULL, 0);
    CHECK_STATUS(weft_store_add(store, "n", 1, &total), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "not a number");
    say(++id, WEFT_ERR_INVALID_ARG, NULL, 0);
    CHECK_STATUS(weft_store_add(store, "n", 1, &total), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "64 bits");
    say(++id, WEFT_OK, NULL, -5);
    CHECK_OK(weft_store_add(store, "n", 1, &total));
    CHECK_INT(total, -5);
    CHECK_OK(weft_store_set_timeout(store, 30));
    CHECK_STATUS(set(store, "silent", "v"), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), "no answer before the deadline");
    const char *many[10] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"};
    CHECK_STATUS(weft_store_wait(store, 10, many, 20), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), "\"k0\", \"k1\"");
    CHECK_CONTAINS(weft_last_error(), "\"k7\" and 2 more");
    CHECK(!strstr(weft_last_error(), "k8"));
    CHECK_STATUS(weft_store_wait(store, 8, many, 20), WEFT_ERR_TIMEOUT);
    CHECK(!strstr(weft_last_error(), "more"));
    char key[81];
    memset(key, 'x', 80);
    key[80] = 0;
    const char *one = key;
    CHECK_STATUS(weft_store_wait(store, 1, &one, 20), WEFT_ERR_TIMEOUT);
    key[64] = 0;
    CHECK_CONTAINS(weft_last_error(), key);
    key[64] = 'x', key[65] = 0;
    CHECK(!strstr(weft_last_error(), key));
    end();
}

/* Which timeouts a call takes, and what NOW means to the server. */
TEST(test_store_client_timeouts)
{
    begin();
    weft_store_value got = {0};
    CHECK_STATUS(weft_store_get(store, "k", -4, &got), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "a timeout of -4 ms");
    CHECK_INT(hear(10).op, 0); /* refused before anything is said */
    CHECK_OK(weft_store_set_timeout(store, 40));
    int64_t before = now_ms();
    CHECK_STATUS(weft_store_get(store, "k", WEFT_STORE_NOW, &got), WEFT_ERR_TIMEOUT);
    CHECK(now_ms() - before >= 39); /* it still waits for the answer itself */
    heard get = hear(2000);
    CHECK(get.op == WEFT_I_STORE_GET && !get.may_block);
    CHECK_INT(hear(2000).op, WEFT_I_STORE_CANCEL);
    before = now_ms();
    CHECK_STATUS(weft_store_get(store, "k", WEFT_DEFAULT, &got), WEFT_ERR_TIMEOUT);
    CHECK(now_ms() - before >= 39 && hear(2000).may_block);
    CHECK_STATUS(weft_store_set_timeout(store, -4), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_store_timeout(store), 40);
    CHECK_OK(weft_store_set_timeout(store, WEFT_FOREVER));
    CHECK_INT(weft_store_timeout(store), WEFT_FOREVER);
    end();
}

/* Memory of this process: the call fails, the connection goes on or says that it does not. */
TEST(test_store_client_without_memory)
{
    int failed = 0;
    for (int n = 1; n < 30; n++) {
        begin();
        say(1, WEFT_OK, "value", 0);
        weft_store_value got = {0};
        fault_arm(n);
        fault_table.sendmsg = weft_i_os_linux.sendmsg;
        fault_table.recvmsg = weft_i_os_linux.recvmsg;
        weft_status status = weft_store_get(store, "k", 2000, &got);
        bool fired = fault_disarm();
        fault_fill();
        if (status == WEFT_OK) {
            CHECK(got.bytes == 5 && !strcmp(got.data, "value"));
            weft_store_value_clear(&got);
        } else {
            CHECK_INT(status, WEFT_ERR_NO_MEMORY);
            CHECK_CONTAINS(weft_last_error(), "in this process");
            failed++;
        }
        end();
        if (!fired)
            break;
    }
    CHECK(failed >= 3 && failed < 29);
}

/* Keys in words: none at all, eight, and more than are told. */
TEST(test_store_client_keys_text)
{
    enum { MANY = 10 };
    weft_i_view keys[MANY];
    char text[640];
    for (int i = 0; i < MANY; i++)
        keys[i] = (weft_i_view){&"abcdefghij"[i], 1};
    weft_i_store_request request = {.key = keys};
    memset(text, 'x', sizeof text);
    CHECK(!strcmp(weft_i_store_keys_text(&request, text, sizeof text), ""));
    request.keys = 1;
    CHECK(!strcmp(weft_i_store_keys_text(&request, text, sizeof text), "\"a\""));
    request.keys = 8;
    CHECK(!strcmp(weft_i_store_keys_text(&request, text, sizeof text),
                  "\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\""));
    request.keys = 9;
    CHECK_CONTAINS(weft_i_store_keys_text(&request, text, sizeof text), "\"h\" and 1 more");
}

/* ---- calls that wait for each other ---- */

static weft_i_os table;
static int64_t still; /* what the clock shows, if it stands still */
static int polls, poll_errno, timeouts[8];
static atomic_int looks; /* relaxed: at the clock, by all threads */

static int64_t counted_clock(void)
{
    atomic_fetch_add_explicit(&looks, 1, memory_order_relaxed);
    return weft_i_os_linux.clock_ns();
}

static int single_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    CHECK_INT(count, 1);
    return weft_i_os_linux.poll(fds, count, timeout_ms);
}

/* Reads all that comes until a whole request is there, however large. */
static heard hear_large(void)
{
    heard h = {0};
    for (int i = 0; i < 20000 && !h.op; i++) {
        CHECK_OK(weft_i_store_link_fill(&line, (size_t)2 * WEFT_I_STORE_MESSAGE_BYTES));
        h = hear(0);
        usleep(100);
    }
    return h;
}

typedef struct large_set {
    weft_store *store;
    char *bytes;
    weft_status status;
} large_set;

static void *set_large(void *argument)
{
    large_set *l = argument;
    l->status = weft_store_set(l->store, "large", l->bytes, WEFT_STORE_VALUE_BYTES);
    return NULL;
}

/* One thread waits for an answer and reads for all.  Another has more to say than the line takes at
 * once: it waits for room itself, and is answered while the first one still waits. */
TEST(test_store_client_pushes)
{
    char *big = calloc(1, WEFT_STORE_VALUE_BYTES);
    begin();
    table = weft_i_os_linux;
    table.poll = single_poll;
    weft_i_os_now = &table;
    waiter reads = {.store = store, .key = "a", .timeout_ms = 20000};
    start(&reads);
    heard first = hear(2000);
    CHECK_INT(first.op, WEFT_I_STORE_GET);
    pthread_t thread;
    large_set large = {store, big, WEFT_IN_PROGRESS};
    CHECK(!pthread_create(&thread, NULL, set_large, &large));
    heard second = hear_large();
    CHECK(second.op == WEFT_I_STORE_SET && !strcmp(second.key, "large"));
    say(second.id, WEFT_OK, NULL, 0);
    pthread_join(thread, NULL);
    CHECK_INT(large.status, WEFT_OK);
    CHECK(!reads.done);
    say(first.id, WEFT_OK, "one", 0);
    wait_for(&reads);
    CHECK(reads.status == WEFT_OK && !strcmp(reads.text, "one"));
    weft_i_os_now = &weft_i_os_linux;
    end();
    free(big);
}

/* One that follows ends at its own deadline, asleep until then, not at the leader's; and one without
 * a deadline is answered. */
TEST(test_store_client_follows)
{
    begin();
    waiter leads = {.store = store, .key = "a", .timeout_ms = 20000},
           follows = {.store = store, .key = "b", .timeout_ms = 60},
           patient = {.store = store, .key = "c", .timeout_ms = WEFT_FOREVER};
    start(&leads);
    heard first = hear(2000);
    start(&patient);
    heard third = hear(2000);
    table = weft_i_os_linux;
    table.clock_ns = counted_clock;
    looks = 0;
    weft_i_os_now = &table;
    start(&follows);
    CHECK_INT(hear(2000).op, WEFT_I_STORE_GET);
    wait_for(&follows);
    CHECK(looks < 500);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(follows.status, WEFT_ERR_TIMEOUT);
    CHECK(!leads.done && !patient.done);
    CHECK_INT(hear(2000).op, WEFT_I_STORE_CANCEL);
    say(third.id, WEFT_OK, "three", 0);
    wait_for(&patient);
    CHECK(patient.status == WEFT_OK && !strcmp(patient.text, "three") && !leads.done);
    say(first.id, WEFT_OK, "one", 0);
    wait_for(&leads);
    CHECK_INT(leads.status, WEFT_OK);
    end();
}

/* The lead passes on: when the reader has its answer, another one reads. */
TEST(test_store_client_lead_passes)
{
    enum { MANY = 4 };
    begin();
    waiter w[MANY];
    heard asked[MANY];
    for (int i = 0; i < MANY; i++) {
        w[i] = (waiter){.store = store, .key = &"a\0b\0c\0d"[2 * i], .timeout_ms = 20000};
        start(&w[i]);
        asked[i] = hear(2000);
        CHECK_INT(asked[i].op, WEFT_I_STORE_GET);
    }
    for (int i = 0; i < MANY; i++) { /* the first of them is the leader */
        say(asked[i].id, WEFT_OK, asked[i].key, 0);
        wait_for(&w[i]);
        CHECK(w[i].status == WEFT_OK && !strcmp(w[i].text, w[i].key));
        for (int j = i + 1; j < MANY; j++)
            CHECK(!w[j].done);
    }
    end();
}

/* ---- the system ---- */

static int64_t still_clock(void)
{
    return still;
}

static int noted_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    CHECK(count == 1 && fds->events == POLLIN); /* all has been sent */
    if (polls < 8)
        timeouts[polls++] = timeout_ms;
    if (poll_errno)
        return errno = poll_errno, -1;
    fds->revents = 0;
    still += timeout_ms < 0 ? 0 : (int64_t)timeout_ms * 1000000;
    return 0;
}

/* How long one waits for the socket: what is left, rounded up to milliseconds. */
TEST(test_store_client_poll)
{
    weft_store_value got = {0};
    begin();
    table = weft_i_os_linux;
    table.clock_ns = still_clock;
    table.poll = noted_poll;
    weft_i_os_now = &table;
    still = 5000000000;
    CHECK_STATUS(weft_store_get(store, "k", 30, &got), WEFT_ERR_TIMEOUT);
    CHECK_INT(polls, 1);
    CHECK_INT(timeouts[0], 30);
    polls = 0;
    CHECK_STATUS(weft_store_get(store, "k", INT64_C(3000000000), &got), WEFT_ERR_TIMEOUT);
    CHECK_INT(polls, 2);
    CHECK_INT(timeouts[0], INT32_MAX);
    CHECK_INT(timeouts[1], INT64_C(3000000000) - INT32_MAX);
    polls = 0;
    int64_t before = weft_i_store_until(still + 1); /* rounded up */
    CHECK_STATUS(weft_store_get(store, "k", 30, &got), WEFT_ERR_TIMEOUT);
    weft_i_store_until(before);
    CHECK_INT(timeouts[0], 1);
    polls = 0;
    poll_errno = EBADF;
    CHECK_STATUS(weft_store_get(store, "k", WEFT_FOREVER, &got), WEFT_ERR_IO);
    CHECK_INT(timeouts[0], -1);
    static const struct {
        int error;
        weft_status status;
    } failures[] = {{ENOMEM, WEFT_ERR_NO_MEMORY}, {EBADF, WEFT_ERR_IO}};
    for (int i = 0; i < 2; i++) {
        char wanted[200];
        polls = 0;
        poll_errno = failures[i].error;
        CHECK_STATUS(weft_store_get(store, "k", 30, &got), failures[i].status);
        CHECK_INT(polls, 1);
        snprintf(wanted, sizeof wanted, "store adopted: get(\"k\"): %s in this process",
                 weft_strerror(failures[i].status));
        if (strcmp(weft_last_error(), wanted) != 0)
            FAIL("it says \"%s\"", weft_last_error());
        poll_errno = 0;
    }
    weft_i_os_now = &weft_i_os_linux;
    for (int i = 0; i < 6; i++) { /* each was called off */
        heard get = hear(2000), cancel = hear(2000);
        CHECK(get.op == WEFT_I_STORE_GET && cancel.op == WEFT_I_STORE_CANCEL &&
              cancel.number == (int64_t)get.id);
    }
    CHECK_INT(hear(10).op, 0);
    CHECK(!weft_i_store_client_is_broken(store));
    end();
}

static void *no_memory(size_t bytes)
{
    (void)bytes;
    return errno = ENOMEM, NULL;
}

static int fill_then_fail(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    table.alloc = no_memory;
    return weft_i_os_linux.poll(fds, count, timeout_ms);
}

/* No memory for what arrives: the call says so at once, and does not try until its deadline. */
TEST(test_store_client_cannot_read)
{
    weft_store_value got = {0};
    begin();
    say(1, WEFT_OK, "value", 0);
    table = weft_i_os_linux;
    table.poll = fill_then_fail;
    weft_i_os_now = &table;
    CHECK_STATUS(weft_store_get(store, "k", 20000, &got), WEFT_ERR_NO_MEMORY);
    weft_i_os_now = &weft_i_os_linux;
    CHECK(!got.data);
    CHECK_INT(hear(2000).op, WEFT_I_STORE_GET);
    end();
}

/* No memory for the request: nothing is sent, and nobody waits for an answer to it. */
TEST(test_store_client_cannot_ask)
{
    begin();
    table = weft_i_os_linux;
    table.alloc = no_memory;
    weft_i_os_now = &table;
    CHECK_OK(weft_store_set_timeout(store, 3000));
    CHECK_STATUS(set(store, "k", "v"), WEFT_ERR_NO_MEMORY);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(hear(10).op, 0);
    say(2, WEFT_OK, NULL, 0);
    CHECK_OK(set(store, "k", "v"));
    CHECK_INT(hear(100).id, 2);
    end();
}

/* A socket is taken over also when there is no memory for the store. */
TEST(test_store_client_cannot_adopt)
{
    int n = 1;
    for (bool fired = true; fired; n++) {
        int fds[2];
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
        OPEN();
        fault_arm(n);
        weft_store *adopted = weft_i_store_client_adopt(fds[0]);
        fired = fault_disarm();
        CHECK(adopted || (fired && weft_last_status() == WEFT_ERR_NO_MEMORY));
        CHECK_INT(fcntl(fds[0], F_GETFD) >= 0, adopted != NULL);
        CLOSE();
        CHECK(fcntl(fds[0], F_GETFD) < 0);
        close(fds[1]);
        weft_clear_error();
    }
    CHECK(n > 2 && n < 20);
}

/* One who reads for all and has not said all sends the rest as well. */
TEST(test_store_client_leads_and_sends)
{
    char *big = calloc(1, WEFT_STORE_VALUE_BYTES);
    pthread_t thread;
    begin();
    CHECK_OK(weft_store_set_timeout(store, 20000));
    large_set large = {store, big, WEFT_IN_PROGRESS};
    CHECK(!pthread_create(&thread, NULL, set_large, &large));
    heard first = hear_large();
    CHECK_INT(first.op, WEFT_I_STORE_SET);
    say(first.id, WEFT_OK, NULL, 0);
    pthread_join(thread, NULL);
    CHECK_INT(large.status, WEFT_OK);
    end();
    free(big);
}

/* A server that has answered and ended: the last answer counts, though nothing can be sent. */
TEST(test_store_client_last_answer)
{
    begin();
    say(1, WEFT_OK, NULL, 0);
    close(line.fd);
    line.fd = -1;
    CHECK_OK(set(store, "k", "v"));
    CHECK_STATUS(set(store, "k", "v"), WEFT_ERR_UNREACHABLE);
    CHECK(!strcmp(weft_last_error(),
                  "set(\"k\"): store adopted: the server is gone: it ended, died "
                  "or dropped this client"));
    end();
}

/* A request that a prefix makes too large is refused here; nothing of it is sent. */
TEST(test_store_client_too_large)
{
    enum { MANY = 300, PREFIX_BYTES = 8000, LARGE = 7 << 20 };
    char prefix[PREFIX_BYTES + 1], *big = calloc(1, LARGE);
    const char *keys[MANY];
    const void *data[MANY];
    size_t bytes[MANY] = {LARGE, LARGE};
    memset(prefix, 'p', PREFIX_BYTES);
    prefix[PREFIX_BYTES] = 0;
    for (int i = 0; i < MANY; i++)
        keys[i] = "k", data[i] = big;
    begin();
    weft_store *long_keys = weft_store_prefix(prefix, store);
    CHECK_STATUS(weft_store_multi_set(long_keys, MANY, keys, data, bytes), WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "a message over 16 MiB");
    CHECK_INT(hear(10).op, 0);
    say(1, WEFT_OK, NULL, 0);
    CHECK_OK(set(store, "k", "v"));
    end();
    free(big);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

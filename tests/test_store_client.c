/* SPDX-License-Identifier: Apache-2.0 */
/* A client of a store whose server is the test: what goes over the line, what happens to answers
 * that come late, twice, in another order or wrong, and the words of every error. */
#include "fault.h"
#include "store_kinds.h"

#include "store/client.h"
#include "store/link.h"

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

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/client.c, store/dial.c, store/link.c */
/*
 * Those who stand between a client and its server, or in the server's place: they listen, repeat
 * and change what was said, greet wrongly, and, though they have the token, answer with what was
 * not asked for.
 */
#include "store_raw.h"

#include "base/report/status.h"

/* ---- a proxy that records, and may change one byte ---- */

typedef struct proxy {
    int listener, port, server_port;
    int direction; /* whose bytes: 0 to the server, 1 to the client, -1 nobody's */
    size_t flip_at;
    uint8_t flip_bits;
    uint8_t recorded[2][4096];
    size_t count[2];
    pthread_t thread;
} proxy;

static bool proxy_pass(proxy *p, int from, int to, int direction)
{
    uint8_t bytes[4096];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0)
        return false;
    size_t before = p->count[direction];
    if (p->direction == direction && p->flip_at >= before && p->flip_at < before + (size_t)n)
        bytes[p->flip_at - before] ^= p->flip_bits;
    for (ssize_t i = 0; i < n && before + (size_t)i < sizeof p->recorded[0]; i++)
        p->recorded[direction][before + (size_t)i] = bytes[i];
    p->count[direction] += (size_t)n;
    raw_send(to, bytes, (size_t)n);
    return true;
}

/* One connection, then gone. */
static void *proxy_body(void *argument)
{
    proxy *p = argument;
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC),
        server = raw_connect(p->server_port);
    struct pollfd watched[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    while (poll(watched, 2, 5000) > 0) {
        if (watched[0].revents && !proxy_pass(p, client, server, 0))
            break;
        if (watched[1].revents && !proxy_pass(p, server, client, 1))
            break;
    }
    close(client);
    close(server);
    close(p->listener);
    return NULL;
}

static void proxy_start(proxy *p, int server_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    p->server_port = server_port;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!bind(p->listener, (struct sockaddr *)&at, sizeof at) && !listen(p->listener, 8));
    CHECK(!getsockname(p->listener, (struct sockaddr *)&at, &length));
    p->port = ntohs(at.sin_port);
    CHECK(!pthread_create(&p->thread, NULL, proxy_body, p));
}

TEST(test_impostor_replays_a_recorded_hello)
{
    OPEN();
    weft_store *s = serve();
    static proxy p;
    p = (proxy){.direction = -1};
    proxy_start(&p, weft_store_port(s));
    weft_store *client = weft_keep(weft_store_tcp_connect(NULL, p.port, TOKEN, 5000));
    CHECK(client);
    CHECK_OK(weft_store_add(client, "count", 1, NULL));
    weft_release(client);
    pthread_join(p.thread, NULL);
    CHECK(p.count[0] > 2 * WEFT_I_STORE_GREETING_BYTES);
    /* all at once, and message by message as the client did */
    for (int slowly = 0; slowly < 2; slowly++) {
        int fd = raw_connect(weft_store_port(s));
        size_t first = slowly ? WEFT_I_STORE_GREETING_BYTES : p.count[0];
        raw_send(fd, p.recorded[0], first);
        CHECK_INT(raw_greeting(fd).kind, WEFT_I_STORE_CHALLENGE);
        raw_send(fd, p.recorded[0] + first, p.count[0] - first);
        weft_i_store_greeting refusal = raw_greeting(fd);
        CHECK_INT(refusal.kind, WEFT_I_STORE_REFUSAL); /* the proof was for another challenge */
        CHECK_INT(refusal.status, WEFT_ERR_AUTH);
        CHECK(is_closed(fd));
        close(fd);
    }
    int64_t count = 0;
    CHECK_OK(weft_store_add(s, "count", 0, &count));
    CHECK_INT(count, 1);
    CLOSE();
}

/*
 * Every byte of a conversation, in both directions, changed on the way.  The server must not do
 * what a changed request says, and the client must not believe a changed answer.
 */
TEST(test_impostor_flips_every_byte)
{
    OPEN();
    setenv("WEFT_STORE_PATIENCE", "150",
           1); /* a changed length makes the peer wait for bytes that never come */
    weft_store *s = serve();
    CHECK_OK(set(s, "key", "value"));
    static proxy p;
    int refused = 0;
    for (int direction = 0; direction < 2; direction++) {
        size_t total = 1;
        for (size_t at = 0; at < total; at++) {
            CHECK_OK(weft_scope_open());
            p = (proxy){
                .direction = direction, .flip_at = at, .flip_bits = (uint8_t)(1u << (at % 8))};
            if (total == 1)
                p.direction =
                    -1; /* the first conversation is left alone: it tells how long it is */
            proxy_start(&p, weft_store_port(s));
            weft_store *client =
                weft_keep(weft_store_tcp_connect(NULL, p.port, TOKEN, p.direction < 0 ? 5000 : 40));
            weft_status status = WEFT_ERR_UNREACHABLE;
            weft_store_value old = {0};
            if (client) {
                status = weft_store_set_timeout(client, p.direction < 0 ? 5000 : 40);
                status = weft_store_compare_set(client, "key", "value", 5, "value", 5, NULL, &old);
            }
            weft_release(client);
            if (!client)
                close(raw_connect(p.port)); /* the proxy may still wait for its one connection */
            pthread_join(p.thread, NULL);
            if (p.direction < 0) {
                CHECK_OK(status);
                total = p.count[direction];
                at = (size_t)-1;
            } else if (status == WEFT_OK && (direction == 1 || at < total))
                FAIL("byte %zu of %zu %s the server changed, and nobody noticed", at, total,
                     direction ? "from" : "to");
            else
                refused++;
            weft_store_value_clear(&old);
            CHECK_OK(weft_scope_close());
        }
    }
    CHECK(refused > 400);
    expect(s, "key", "value");
    unsetenv("WEFT_STORE_PATIENCE");
    CLOSE();
}

/* ---- in the server's place ---- */

typedef struct impostor {
    int listener, port;
    const void *says;
    size_t bytes;
    pthread_t thread;
} impostor;

static void *impostor_body(void *argument)
{
    impostor *i = argument;
    int fd = accept4(i->listener, NULL, NULL, SOCK_CLOEXEC);
    raw_send(fd, i->says, i->bytes);
    char sink[256];
    while (recv(fd, sink, sizeof sink, 0) > 0)
        ;
    close(fd);
    close(i->listener);
    return NULL;
}

static void impostor_start(impostor *i, const void *says, size_t bytes)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    *i = (impostor){
        .says = says, .bytes = bytes, .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    CHECK(!bind(i->listener, (struct sockaddr *)&at, sizeof at) && !listen(i->listener, 1));
    CHECK(!getsockname(i->listener, (struct sockaddr *)&at, &length));
    i->port = ntohs(at.sin_port);
    CHECK(!pthread_create(&i->thread, NULL, impostor_body, i));
}

TEST(test_impostor_as_the_server)
{
    OPEN();
    impostor i;
    impostor_start(&i, "SSH-2.0-OpenSSH_9.2\r\n", 21);
    int64_t begin = now_ms();
    CHECK(!weft_store_tcp_connect(NULL, i.port, TOKEN, 20000));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), "foreign service");
    CHECK_CONTAINS(weft_last_error(), "SSH-2.0");
    CHECK(now_ms() - begin < 15000);
    pthread_join(i.thread, NULL);

    weft_i_store_greeting other = {
        .version = 9, .kind = WEFT_I_STORE_REFUSAL, .status = WEFT_ERR_VERSION};
    snprintf(other.release, sizeof other.release, "7.7.7");
    uint8_t bytes[WEFT_I_STORE_GREETING_BYTES];
    weft_i_store_greeting_encode(&other, bytes);
    impostor_start(&i, bytes, sizeof bytes);
    CHECK(!weft_store_tcp_connect(NULL, i.port, TOKEN, 20000));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_VERSION);
    CHECK_CONTAINS(weft_last_error(), "protocol 9 (weft 7.7.7)");
    CHECK_CONTAINS(weft_last_error(), "protocol 2 (weft 0.1");
    pthread_join(i.thread, NULL);

    /* a welcome without proof must not be taken for a store */
    weft_i_store_greeting welcome = {.version = WEFT_I_STORE_VERSION, .kind = WEFT_I_STORE_WELCOME};
    weft_i_store_greeting_encode(&welcome, bytes);
    impostor_start(&i, bytes, sizeof bytes);
    CHECK(!weft_store_tcp_connect(NULL, i.port, TOKEN, 20000));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_AUTH);
    pthread_join(i.thread, NULL);

    /* a challenge with a proof that is none */
    weft_i_store_greeting challenge = {.version = WEFT_I_STORE_VERSION,
                                       .kind = WEFT_I_STORE_CHALLENGE};
    weft_i_store_greeting_encode(&challenge, bytes);
    impostor_start(&i, bytes, sizeof bytes);
    CHECK(!weft_store_tcp_connect(NULL, i.port, TOKEN, 20000));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_AUTH);
    CHECK_CONTAINS(weft_last_error(), "does not have this job's token");
    pthread_join(i.thread, NULL);

    /* one that says nothing at all */
    impostor_start(&i, "", 0);
    CHECK(!weft_store_tcp_connect(NULL, i.port, TOKEN, 100));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_UNREACHABLE);
    pthread_join(i.thread, NULL);
    CLOSE();
}

/* ---- a server that has the token and lies ---- */

typedef struct liar {
    int listener, port;
    uint8_t token[WEFT_I_KEYED_BYTES];
    uint8_t answer[512]; /* payload of the one answer it gives, to whatever it is asked */
    size_t bytes;
    pthread_t thread;
} liar;

static void liar_greet(liar *l, int fd, uint8_t key[WEFT_I_KEYED_BYTES])
{
    weft_i_store_greeting hello = raw_greeting(fd);
    weft_i_store_greeting challenge = hello, welcome = hello;
    weft_i_store_transcript said;
    challenge.kind = WEFT_I_STORE_CHALLENGE;
    weft_i_store_transcript_set(&said, &hello, &challenge);
    weft_i_store_link_derive(l->token, WEFT_I_STORE_SERVER_PROOF, &said, challenge.proof);
    raw_greet(fd, &challenge);
    raw_greeting(fd);
    welcome.kind = WEFT_I_STORE_WELCOME;
    memset(welcome.nonce, 0, sizeof welcome.nonce);
    memset(welcome.proof, 0, sizeof welcome.proof);
    raw_greet(fd, &welcome);
    weft_i_store_link_derive(l->token, WEFT_I_STORE_TO_CLIENT_KEY, &said, key);
}

static void *liar_body(void *argument)
{
    liar *l = argument;
    int fd = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC);
    uint8_t key[WEFT_I_KEYED_BYTES], frame[1024], asked[WEFT_I_STORE_HEAD_BYTES];
    weft_i_store_head head = {0};
    liar_greet(l, fd, key);
    if (raw_receive(fd, asked, sizeof asked) == sizeof asked &&
        weft_i_store_head_decode(asked, &head)) {
        head.payload_bytes = (uint32_t)l->bytes;
        weft_i_store_head_encode(&head, frame);
        memcpy(frame + WEFT_I_STORE_HEAD_BYTES, l->answer, l->bytes);
        size_t bytes = WEFT_I_STORE_HEAD_BYTES + l->bytes;
        weft_i_keyed_sign(key, frame, bytes, frame + bytes);
        raw_send(fd, frame, bytes + WEFT_I_KEYED_BYTES);
    }
    while (recv(fd, frame, sizeof frame, 0) > 0)
        ;
    close(fd);
    close(l->listener);
    return NULL;
}

static weft_store *liar_start(liar *l)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    CHECK(weft_i_keyed_load() == WEFT_OK && weft_i_keyed_parse(TOKEN, l->token));
    l->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!bind(l->listener, (struct sockaddr *)&at, sizeof at) && !listen(l->listener, 1));
    CHECK(!getsockname(l->listener, (struct sockaddr *)&at, &length));
    CHECK(!pthread_create(&l->thread, NULL, liar_body, l));
    weft_store *s = weft_keep(weft_store_tcp_connect(NULL, ntohs(at.sin_port), TOKEN, 20000));
    if (!s)
        FAIL("%s", weft_last_error());
    CHECK_OK(weft_store_set_timeout(s, 20000));
    return s;
}

/* `values` of 4 bytes each. */
static void lie(liar *l, weft_status status, int64_t number, size_t values)
{
    weft_i_view views[16];
    for (size_t i = 0; i < values; i++)
        views[i] = (weft_i_view){"AAAA", 4};
    weft_i_store_answer answer = {
        .status = status, .number = number, .values = values, .value = views};
    l->bytes = weft_i_store_answer_bytes(&answer);
    CHECK(l->bytes <= sizeof l->answer);
    weft_i_store_answer_encode(&answer, l->answer, l->bytes);
}

enum { ASK_GET, ASK_MULTI_GET, ASK_POP, ASK_COMPARE, ASK_SET, ASK_CHECK, ASK_LENGTH, ASKS };

/* The status of one call; what it must not write stays as it was. */
static weft_status ask_liar(weft_store *s, int what, size_t asked)
{
    static const char *const keys[] = {"a", "b", "c"};
    struct {
        weft_store_value value[3];
        unsigned char canary[512];
    } got = {0};
    size_t length = 77;
    bool truth = false;
    weft_status status = WEFT_OK;
    switch (what) {
    case ASK_GET:
        status = weft_store_get(s, "a", 20000, got.value);
        break;
    case ASK_MULTI_GET:
        status = weft_store_multi_get(s, asked, keys, 20000, got.value);
        break;
    case ASK_POP:
        status = weft_store_queue_pop(s, "a", 20000, got.value);
        break;
    case ASK_COMPARE:
        status = weft_store_compare_set(s, "a", "x", 1, "y", 1, &truth, got.value);
        break;
    case ASK_SET:
        status = set(s, "a", "v");
        break;
    case ASK_CHECK:
        status = weft_store_check(s, asked, keys, &truth);
        break;
    default:
        status = weft_store_queue_len(s, "a", &length);
        break;
    }
    for (size_t i = 0; i < sizeof got.canary; i++)
        CHECK_INT(got.canary[i], 0);
    for (size_t i = 0; i < 3; i++) {
        CHECK(status == WEFT_OK || !got.value[i].data);
        weft_store_value_clear(&got.value[i]);
    }
    CHECK(status == WEFT_OK || length == 77);
    return status;
}

/* Every count of values from 0 to 8 as the answer to every kind of question. */
TEST(test_impostor_answers_with_a_wrong_count)
{
    static const size_t right[ASKS] = {
        [ASK_GET] = 1, [ASK_MULTI_GET] = 3, [ASK_POP] = 1, [ASK_COMPARE] = 1};
    for (int what = 0; what < ASKS; what++)
        for (size_t values = 0; values <= 8; values++)
            for (int failed = 0; failed < 2; failed++) {
                OPEN();
                liar l = {0};
                lie(&l, failed ? WEFT_ERR_NOT_FOUND : WEFT_OK, 1, values);
                weft_store *s = liar_start(&l);
                weft_status expected = failed
                                           ? (values ? WEFT_ERR_PROTOCOL : WEFT_ERR_NOT_FOUND)
                                           : (values == right[what] ? WEFT_OK : WEFT_ERR_PROTOCOL);
                weft_status status = ask_liar(s, what, 3);
                if (status != expected)
                    FAIL("call %d answered with %zu values gives %d, not %d", what, values, status,
                         expected);
                if (status == WEFT_ERR_PROTOCOL) /* who lied once is not asked again */
                    CHECK_STATUS(ask_liar(s, what, 3), WEFT_ERR_PROTOCOL);
                weft_release(s);
                pthread_join(l.thread, NULL);
                CLOSE();
            }
}

/* Every four bytes of a right answer replaced by numbers that break things. */
TEST(test_impostor_answers_with_a_wrong_length)
{
    static const uint32_t numbers[] = {1, 5, 0x7fffffff, 0x80000000, 0xffffffff, 65537};
    for (size_t at = 0; at < 16 + 3 * 8; at += 4)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            OPEN();
            liar l = {0};
            lie(&l, WEFT_OK, 0, 3);
            bool content = (at >= 16 && (at - 16) % 8 == 4) || at == 8 || at == 12;
            memcpy(l.answer + at, &numbers[i], 4);
            weft_store *s = liar_start(&l);
            weft_status status = ask_liar(s, ASK_MULTI_GET, 3);
            if (content) /* bytes of a value, and a number that nobody looks at */
                CHECK_OK(status);
            else if (at == 0) /* a status: none of these is one that an answer has */
                CHECK_STATUS(status, WEFT_ERR_PROTOCOL);
            else if (status != WEFT_ERR_PROTOCOL)
                FAIL("%#x at byte %zu of the answer was believed", numbers[i], at);
            weft_release(s);
            pthread_join(l.thread, NULL);
            CLOSE();
        }
}

/* A negative count must not become a huge one. */
TEST(test_impostor_answers_with_a_negative_count)
{
    static const int asks[] = {ASK_CHECK, ASK_LENGTH};
    for (int i = 0; i < 2; i++) {
        OPEN();
        liar l = {0};
        lie(&l, WEFT_OK, -1, 0);
        weft_store *s = liar_start(&l);
        CHECK_STATUS(ask_liar(s, asks[i], 3), WEFT_ERR_PROTOCOL);
        weft_release(s);
        pthread_join(l.thread, NULL);
        CLOSE();
    }
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/peer.c, store/server.c */
/* What the clients of a store cost its server: answers that nobody reads, large requests under way,
 * and memory that runs out. */
#include "store_steps.h"

/* A client that rests can take bytes again, a few: some go out, but it is not read. */
static void rests_unread(client *c)
{
    size_t unsent = server->unsent;
    int64_t heard = server->known.first->heard;
    now += 1000;
    for (int i = 0; i < 5; i++)
        CHECK_OK(weft_i_store_link_fill(&c->line, 64 << 20));
    step();
    CHECK(server->unsent < unsent);
    CHECK_INT(server->paused, 1);
    CHECK_INT(server->known.first->heard, heard);
}

/* A client that does not read its answers is paused at its own limit, is not read any further, and
 * goes when its patience is over; one that reads a little stays. */
TEST(test_store_peer_unread_answers)
{
    client c, d;
    char *big = calloc(1, WEFT_STORE_VALUE_BYTES);
    CHECK(big);
    serve(NULL);
    join(&c);
    join(&d);
    weft_i_view key = {"big", 3}, value = {big, WEFT_STORE_VALUE_BYTES};
    weft_i_store_request request = {
        .op = WEFT_I_STORE_SET, .keys = 1, .key = &key, .values = 1, .value = &value};
    weft_i_store_answer answer;
    weft_i_store_outcome outcome;
    weft_i_store_map_apply(&server->map, &request, NULL, &answer, &outcome);
    CHECK_INT(answer.status, WEFT_OK);
    ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false);
    CHECK(server->unsent > 7 << 20 && server->unsent < 8 << 20); /* a little is in the socket */
    CHECK_INT(server->unsent, server->known.first->unsent);
    CHECK_INT(server->paused, 0);
    now += 2 * server->patience; /* who has one answer to read may take its time */
    step();
    CHECK_INT(server->known.count, 2);
    server->known.first->since = now;
    ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false); /* the second is not even made */
    CHECK(server->unsent < 8 << 20);
    CHECK_INT(server->paused, 1);
    size_t unsent = server->unsent;
    ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false); /* stays where it is */
    CHECK_INT(server->unsent, unsent);
    rests_unread(&c);
    unsent = server->unsent;
    set(&d, "k", "v");           /* others are served */
    CHECK_INT(last_timeout, 10); /* and the server looks often, while somebody rests */
    now += server->patience - 1;
    step();
    CHECK_INT(server->known.count, 2);
    for (int i = 0; i < 200; i++) /* reads a little: its time begins anew */
        CHECK_OK(weft_i_store_link_fill(&c.line, 64 << 20));
    step();
    CHECK(server->unsent < unsent);
    now += server->patience - 1;
    step();
    CHECK_INT(server->known.count, 2);
    now++;
    step();
    CHECK_INT(server->known.count, 1);
    CHECK_INT(server->unsent, 0);
    CHECK_INT(server->paused, 0);
    set(&d, "k", "w");
    detach(&c);
    detach(&d);
    step();
    nothing_left();
    stop();
    free(big);
}

/* Clients that read nothing, together more than the budget of all, hold up nobody who reads, neither
 * at once nor where it waits for a key. */
TEST(test_store_peer_held_up_by_nobody)
{
    enum { SILENT = 12 };
    client silent[SILENT], d;
    char text[64], *big = calloc(1, WEFT_STORE_VALUE_BYTES);
    CHECK(big);
    serve(NULL);
    join(&d);
    weft_i_view key = {"big", 3}, value = {big, WEFT_STORE_VALUE_BYTES};
    weft_i_store_request request = {
        .op = WEFT_I_STORE_SET, .keys = 1, .key = &key, .values = 1, .value = &value};
    weft_i_store_answer answer;
    weft_i_store_outcome outcome;
    weft_i_store_map_apply(&server->map, &request, NULL, &answer, &outcome);
    for (int i = 0; i < SILENT; i++) {
        join(&silent[i]);
        for (int again = 0; again < 3; again++)
            ask(&silent[i], WEFT_I_STORE_GET, "big", NOTHING, 0, false);
    }
    CHECK(server->unsent > WEFT_I_STORE_UNSENT);
    set(&d, "k", "v");
    ask(&d, WEFT_I_STORE_GET, "later", NOTHING, 0, true);
    uint64_t waiting = d.id;
    set(&d, "later", "here");
    CHECK_INT(answer_to(&d, waiting, text), WEFT_OK);
    now += server->patience;
    step();
    CHECK_INT(server->known.count, 1); /* and then they go */
    CHECK_INT(server->unsent, 0);
    for (int i = 0; i < SILENT; i++)
        detach(&silent[i]);
    detach(&d);
    step();
    nothing_left();
    stop();
    free(big);
}

/* The same peer goes on when it has read: the request that rested is answered. */
TEST(test_store_peer_goes_on)
{
    client c;
    char *big = calloc(1, WEFT_STORE_VALUE_BYTES);
    CHECK(big);
    serve(NULL);
    join(&c);
    weft_i_view key = {"big", 3}, value = {big, WEFT_STORE_VALUE_BYTES};
    weft_i_store_request request = {
        .op = WEFT_I_STORE_SET, .keys = 1, .key = &key, .values = 1, .value = &value};
    weft_i_store_answer answer;
    weft_i_store_outcome outcome;
    weft_i_store_map_apply(&server->map, &request, NULL, &answer, &outcome);
    uint64_t first = c.id + 1;
    for (int i = 0; i < 6; i++)
        ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false);
    CHECK_INT(server->paused, 1);
    for (int i = 0; i < 6; i++) {
        char text[64];
        CHECK_INT(answer_to(&c, first + (uint64_t)i, text), WEFT_OK);
    }
    step();
    CHECK_INT(server->paused, 0);
    CHECK_INT(server->unsent, 0);
    set(&c, "k", "v");
    detach(&c);
    step();
    nothing_left();
    stop();
    free(big);
}

/* The budget of all clients together: one byte short of it a request is answered, at it no more. */
TEST(test_store_peer_budget_edge)
{
    client c;
    serve(NULL);
    join(&c);
    server->unsent = WEFT_I_STORE_UNSENT_ALL; /* others have that much to read */
    ask(&c, WEFT_I_STORE_SET, "k", TEXT("v"), 0, false);
    CHECK_INT(server->paused, 1);
    CHECK_INT(answer_to(&c, c.id, NULL), 1);
    server->unsent--;
    step();
    CHECK_INT(server->paused, 0);
    CHECK_INT(answer_to(&c, c.id, NULL), WEFT_OK);
    CHECK_INT(server->unsent, WEFT_I_STORE_UNSENT_ALL - 1);
    server->unsent = 0;
    detach(&c);
    step();
    nothing_left();
    stop();
}

/* Large requests under way at once have a share of memory; one that stops in the middle goes when
 * others wait for it. */
TEST(test_store_peer_large_requests)
{
    enum { MANY = 9 };
    client c[MANY];
    char *big = calloc(1, WEFT_STORE_VALUE_BYTES);
    CHECK(big);
    serve(NULL);
    for (int i = 0; i < MANY; i++)
        join(&c[i]);
    size_t whole = 0;
    for (int i = 0; i < MANY; i++) {
        weft_i_view key = {"big", 3}, value = {big, WEFT_STORE_VALUE_BYTES};
        weft_i_store_request set_big = {
            .op = WEFT_I_STORE_SET, .keys = 1, .key = &key, .values = 1, .value = &value};
        size_t bytes = weft_i_store_request_bytes(&set_big);
        uint8_t *payload = weft_i_store_link_begin(&c[i].line, ++c[i].id, bytes);
        weft_i_store_request_encode(&set_big, payload, bytes);
        CHECK_OK(weft_i_store_link_commit(&c[i].line, bytes));
        CHECK_OK(weft_i_store_link_flush(&c[i].line)); /* what the socket takes */
        step();
        whole = WEFT_I_STORE_HEAD_BYTES + bytes;
        if (i < 7)
            CHECK_INT(server->reserved, whole * (size_t)(i + 1));
    }
    CHECK_INT(server->reserved, whole * 7); /* 64 MiB hold seven of them, with their heads */
    CHECK_INT(server->paused, 2);
    now += server->patience - 1;
    for (int i = 1; i < MANY; i++)
        CHECK_OK(weft_i_store_link_flush(&c[i].line));
    step();
    CHECK_INT(server->known.count, MANY);
    now++; /* the first has said nothing since */
    step();
    CHECK(is_gone(&c[0]) && !is_gone(&c[1]));
    CHECK_INT(server->known.count, MANY - 1); /* and none of those who had to rest meanwhile */
    for (int round = 0; round < 4000 && server->map.keys + server->reserved; round++) {
        size_t left = 0;
        for (int i = 1; i < MANY; i++) {
            CHECK_OK(weft_i_store_link_flush(&c[i].line));
            left += weft_i_store_link_unsent(&c[i].line);
        }
        step();
        if (!left && !server->reserved)
            break;
    }
    CHECK_INT(server->reserved, 0);
    CHECK_INT(server->paused, 0);
    for (int i = 1; i < MANY; i++)
        CHECK_INT(answer_to(&c[i], c[i].id, NULL), WEFT_OK);
    for (int i = 0; i < MANY; i++)
        detach(&c[i]);
    step();
    nothing_left();
    stop();
    free(big);
}

/* ---- memory that runs out ---- */

/* Says it and does not wait: the client's own buffers are there, so what fails is the server's. */
static void put(client *c, const weft_i_store_request *request)
{
    size_t bytes = weft_i_store_request_bytes(request);
    weft_i_store_request_encode(request, weft_i_store_link_begin(&c->line, ++c->id, bytes), bytes);
    CHECK_OK(weft_i_store_link_commit(&c->line, bytes));
    CHECK_OK(weft_i_store_link_flush(&c->line));
}

/* The server goes on while its n-th call for memory fails; false if it did not make so many. */
static bool step_without(int n)
{
    fault_table.clock_ns = test_clock;
    fault_table.epoll_wait = test_epoll_wait;
    fault_table.recvmsg = weft_i_os_linux.recvmsg;
    fault_table.sendmsg = weft_i_os_linux.sendmsg;
    fault_arm(n);
    step();
    bool fired = fault_disarm();
    fault_fill();
    weft_i_os_now = &table;
    step();
    return fired;
}

/* What came of it: the status that the client was told, or 1, and then the client is gone: nobody
 * waits for an answer that will not come. */
static int outcome_of(client *c, char *text)
{
    int status = answer_to(c, c->id, text);
    CHECK(status == WEFT_OK || status == WEFT_ERR_NO_MEMORY || status == 1);
    if (status == 1 && !is_gone(c))
        FAIL("the server neither answers nor closes");
    return status;
}

/* Every allocation of every request may fail: the peer is told or dropped, and nothing is lost or
 * counted twice. */
TEST(test_store_peer_without_memory)
{
    int told = 0, n = 1;
    for (bool fired = true; fired; n++) {
        client c, d;
        serve(NULL);
        join(&c);
        join(&d);
        push(&d, "q", "1");
        size_t bytes = weft_i_store_server_census(server).bytes;
        weft_i_view key = {"q", 1};
        put(&c, &(weft_i_store_request){.op = WEFT_I_STORE_POP, .keys = 1, .key = &key});
        fired = step_without(n);
        char text[64] = "";
        int status = outcome_of(&c, text);
        if (status == WEFT_OK)
            CHECK(!strcmp(text, "1"));
        told += status == WEFT_ERR_NO_MEMORY;
        CHECK_INT(weft_i_store_server_census(server).granted, status == WEFT_OK);
        detach(&c);
        step();
        CHECK_INT(weft_i_store_server_census(server).bytes, bytes); /* the element is back */
        expect(&d, ask(&d, WEFT_I_STORE_POP, "q", NOTHING, 0, false), "1");
        detach(&d);
        step();
        nothing_left();
        stop();
    }
    CHECK(told > 0 && n > 2 && n < 40);
}

/* A value and many keys: the answer is whole, or an error that is told. */
TEST(test_store_peer_values_without_memory)
{
    enum { MANY = 40 };
    static char long_value[600];
    weft_i_view keys[MANY];
    int told[2] = {0};
    memset(long_value, 'v', sizeof long_value - 1);
    for (int i = 0; i < MANY; i++)
        keys[i] = (weft_i_view){"k", 1};
    for (int many = 0; many < 2; many++) {
        int n = 1;
        for (bool fired = true; fired; n++) {
            client c;
            serve(NULL);
            join(&c);
            expect(&c, ask(&c, WEFT_I_STORE_SET, "k", TEXT(long_value), 0, false), "");
            put(&c, &(weft_i_store_request){.op = many ? WEFT_I_STORE_MULTI_GET : WEFT_I_STORE_GET,
                                            .keys = many ? MANY : 1,
                                            .key = keys});
            fired = step_without(n);
            told[many] += outcome_of(&c, NULL) == WEFT_ERR_NO_MEMORY;
            detach(&c);
            step();
            nothing_left();
            stop();
        }
        CHECK(n > 2 && n < 40);
    }
    CHECK(told[0] > 0 && told[1] > 0);
}

/* A will that cannot be kept leaves the one before. */
TEST(test_store_peer_will_without_memory)
{
    int told = 0, n = 1;
    for (bool fired = true; fired; n++) {
        client c, d;
        serve(NULL);
        join(&c);
        join(&d);
        expect(&c, ask(&c, WEFT_I_STORE_WILL, "w", TEXT("old"), 0, false), "");
        weft_i_view key = {"w", 1}, value = {"newer", 5};
        put(&c, &(weft_i_store_request){
                    .op = WEFT_I_STORE_WILL, .keys = 1, .key = &key, .values = 1, .value = &value});
        fired = step_without(n);
        int status = outcome_of(&c, NULL);
        told += status == WEFT_ERR_NO_MEMORY;
        detach(&c);
        step();
        uint64_t id = ask(&d, WEFT_I_STORE_GET, "w", NOTHING, 0, false);
        if (status != 1)
            expect(&d, id, status == WEFT_OK ? "newer" : "old");
        detach(&d);
        step();
        nothing_left();
        stop();
    }
    CHECK(told > 0 && n > 1 && n < 40);
}

/* A request that waits: it hangs, is told that it cannot, or its peer goes; the same once what it
 * waits for has come. */
TEST(test_store_peer_waits_without_memory)
{
    weft_i_view key = {"q", 1}, value = {"1", 1};
    weft_i_store_request pop = {.op = WEFT_I_STORE_POP, .may_block = true, .keys = 1, .key = &key},
                         pushes = {.op = WEFT_I_STORE_PUSH,
                                   .keys = 1,
                                   .key = &key,
                                   .values = 1,
                                   .value = &value};
    int told[2] = {0};
    for (int woken = 0; woken < 2; woken++) {
        int n = 1;
        for (bool fired = true; fired; n++) {
            client c, d;
            serve(NULL);
            join(&c);
            join(&d);
            put(&c, &pop);
            if (woken)
                step();
            else
                fired = step_without(n);
            bool waits = server->waiting == 1;
            put(&d, &pushes);
            if (woken)
                fired = step_without(n);
            else
                step();
            int pushed = outcome_of(&d, NULL);
            if (waits && (pushed == WEFT_OK || weft_i_store_server_census(server).granted)) {
                char text[64] = "";
                int status = outcome_of(&c, text);
                CHECK(status != WEFT_OK || !strcmp(text, "1"));
                CHECK_INT(weft_i_store_server_census(server).granted, status == WEFT_OK);
                CHECK_INT(server->waiting, 0);
                told[woken] += status == WEFT_ERR_NO_MEMORY;
            } else if (!waits) {
                told[woken] += outcome_of(&c, NULL) == WEFT_ERR_NO_MEMORY;
            }
            detach(&c);
            detach(&d);
            step();
            CHECK_INT(weft_i_store_server_census(server).keys, pushed != WEFT_ERR_NO_MEMORY);
            nothing_left();
            stop();
        }
        CHECK(n > 2 && n < 40);
    }
    CHECK(told[0] > 0 && told[1] > 0);
}

/* ---- connections that break ---- */

static int fail_at;

static ssize_t broken_pipe(int fd, const struct msghdr *message, int flags)
{
    if (fd != fail_at)
        return weft_i_os_linux.sendmsg(fd, message, flags);
    errno = EPIPE;
    return -1;
}

/* A client that cannot be answered any more is gone at once, whatever it says later. */
TEST(test_store_peer_broken_line)
{
    client c, d;
    serve(NULL);
    join(&d);
    join(&c);
    weft_i_view key = {"k", 1}, value = {"v", 1};
    put(&c, &(weft_i_store_request){
                .op = WEFT_I_STORE_SET, .keys = 1, .key = &key, .values = 1, .value = &value});
    fail_at = server->known.first->line.fd;
    if (server->known.first->next) /* the newer one is at the end */
        fail_at = server->known.first->next->line.fd;
    table.sendmsg = broken_pipe;
    weft_i_store_server_step(server, 0);
    CHECK_INT(server->known.count, 1);
    table.sendmsg = weft_i_os_linux.sendmsg;
    CHECK(is_gone(&c) && !is_gone(&d));
    expect(&d, ask(&d, WEFT_I_STORE_GET, "k", NOTHING, 0, false), "v"); /* it was done */
    detach(&c);
    detach(&d);
    step();
    nothing_left();
    stop();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* strangers are the point here */
    return harness_main(argc, argv);
}

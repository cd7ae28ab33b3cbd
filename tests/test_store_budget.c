/* SPDX-License-Identifier: Apache-2.0 */
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
    for (int i = 0; i < 4; i++) {
        CHECK_INT(server->paused, 0);
        ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false);
    }
    CHECK(server->unsent > 31 << 20 && server->unsent < 32 << 20); /* a little is in the socket */
    CHECK_INT(server->unsent, server->known.first->unsent);
    CHECK_INT(server->paused, 0);
    ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false);
    CHECK(server->unsent > 39 << 20);
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

/* Every allocation of every request may fail: the peer is told or dropped, and nothing is lost or
 * counted twice. */
TEST(test_store_peer_without_memory)
{
    int failed = 0;
    for (int n = 1; n < 40; n++) {
        client c, d;
        serve(NULL);
        join(&c);
        join(&d);
        push(&d, "q", "1");
        size_t bytes = weft_i_store_server_census(server).bytes;
        /* The client's own buffers are there already: what fails is the server's. */
        weft_i_view key = {"q", 1};
        weft_i_store_request pop = {.op = WEFT_I_STORE_POP, .keys = 1, .key = &key};
        size_t size = weft_i_store_request_bytes(&pop);
        weft_i_store_request_encode(&pop, weft_i_store_link_begin(&c.line, ++c.id, size), size);
        CHECK_OK(weft_i_store_link_commit(&c.line, size));
        CHECK_OK(weft_i_store_link_flush(&c.line));
        fault_arm(n);
        fault_table.clock_ns = test_clock;
        fault_table.epoll_wait = test_epoll_wait;
        fault_table.recvmsg = weft_i_os_linux.recvmsg;
        fault_table.sendmsg = weft_i_os_linux.sendmsg;
        step();
        bool fired = fault_disarm();
        fault_fill();
        weft_i_os_now = &table;
        step();
        char text[64] = "";
        int status = answer_to(&c, c.id, text);
        if (status == WEFT_OK)
            CHECK(!strcmp(text, "1"));
        CHECK(status == WEFT_OK || status == WEFT_ERR_NO_MEMORY || status == 1);
        CHECK_INT(weft_i_store_server_census(server).granted, status == WEFT_OK);
        detach(&c);
        step();
        CHECK_INT(weft_i_store_server_census(server).bytes, bytes); /* the element is back */
        expect(&d, ask(&d, WEFT_I_STORE_POP, "q", NOTHING, 0, false), "1");
        detach(&d);
        step();
        nothing_left();
        stop();
        failed += fired;
        if (!fired)
            break;
    }
    CHECK(failed > 1 && failed < 39);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* strangers are the point here */
    return harness_main(argc, argv);
}

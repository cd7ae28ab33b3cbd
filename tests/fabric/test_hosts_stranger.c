/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/pair.c, fabric/world/remote.c */
/*
 * Whoever reaches a rank's wire and does not know the job's secret: false heads, false cookies, false
 * proofs, numbers that have been there, groups that nobody makes.  All of it is dropped and counted, and
 * the job goes on.
 */
#include "crew.h"
#include "hosts.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/wire.h"
#include "fabric/group/hosts.h"
#include "fabric/world/pair.h"

enum { LIMIT_MS = 60000, TRIES = 300 };

typedef struct scene {
    int port;
} scene;

#define OK(call_) CREW((call_) == WEFT_OK, "%s", weft_last_error())

/* ---- pairs ---- */

static weft_i_pair_facts facts_of(int rank, int other)
{
    weft_i_pair_facts facts = {.job = {{3, 4}}, .rank = rank, .other = other};
    memset(facts.secret, 9, sizeof facts.secret);
    memset(facts.nonce, 10 + rank, sizeof facts.nonce);
    memset(facts.other_nonce, 10 + other, sizeof facts.other_nonce);
    return facts;
}

TEST(test_hosts_stranger_pairs)
{
    weft_i_pair_facts mine = facts_of(1, 2), theirs = facts_of(2, 1);
    weft_i_pair *a = NULL, *b = NULL;
    if (weft_i_keyed_load() < 0)
        SKIP("%s", weft_last_error());
    CHECK_OK(weft_i_pair_new(&mine, &a));
    CHECK_OK(weft_i_pair_new(&theirs, &b));
    CHECK(a->cookie_in == b->cookie_out && a->cookie_out == b->cookie_in);
    CHECK(a->cookie_in != a->cookie_out && a->cookie_in && a->cookie_out);
    CHECK(weft_i_pair_is_hello(a, b->proof_out, sizeof b->proof_out));
    CHECK(weft_i_pair_is_hello(b, a->proof_out, sizeof a->proof_out));
    CHECK(!weft_i_pair_is_hello(a, a->proof_out, sizeof a->proof_out)); /* sent back */
    CHECK(!weft_i_pair_is_hello(a, b->proof_out, sizeof b->proof_out - 1));
    for (size_t i = 0; i < sizeof b->proof_out; i++) {
        b->proof_out[i] ^= 1;
        CHECK(!weft_i_pair_is_hello(a, b->proof_out, sizeof b->proof_out));
        b->proof_out[i] ^= 1;
    }
    /* Anything that differs gives other cookies. */
    for (int what = 0; what < 5; what++) {
        weft_i_pair_facts other = theirs;
        weft_i_pair *c = NULL;
        other.secret[31] ^= what == 0;
        other.job.word[1] ^= what == 1;
        other.nonce[0] ^= what == 2;
        other.other_nonce[15] ^= what == 3;
        other.rank += what == 4;
        CHECK_OK(weft_i_pair_new(&other, &c));
        CHECK(c->cookie_out != b->cookie_out && c->cookie_in != b->cookie_in);
        CHECK(!weft_i_pair_is_hello(a, c->proof_out, sizeof c->proof_out));
        weft_i_pair_free(c);
    }
    weft_i_pair_free(a);
    weft_i_pair_free(b);
}

/* ---- a stranger ---- */

static void hear_nothing(void *arg, const void *head, const void *data, size_t bytes)
{
    (void)arg;
    (void)head;
    (void)data;
    (void)bytes;
}

static void hear_no_fault(void *arg, int peer, weft_status why, const char *text)
{
    (void)arg;
    (void)peer;
    (void)why;
    (void)text;
}

/* The address that a rank has shown in the store. */
static size_t address_of(weft_group *world, int rank, unsigned char *out)
{
    char key[32];
    weft_store_value value = {0};
    snprintf(key, sizeof key, "wire/%d", rank);
    if (weft_store_get(world->world->store, key, 1000, &value) < 0)
        return 0;
    weft_i_wire_reader from = weft_i_wire_read(value.data, value.bytes);
    unsigned char nonce[16];
    weft_i_wire_get_head(&from, 0x43544657);
    weft_i_wire_get_u32(&from);
    weft_i_wire_get_bytes(&from, nonce, sizeof nonce);
    weft_i_view view = weft_i_wire_get_blob(&from, WEFT_I_TRANSPORT_ADDRESS_BYTES);
    size_t bytes = view.bytes;
    memcpy(out, view.data, bytes);
    weft_store_value_clear(&value);
    return bytes;
}

static int over;

static void note_over(weft_i_sent *sent, weft_status status)
{
    (void)sent;
    (void)status;
    over++;
}

/* Messages that claim to be of this rank, whose cookie the stranger does not know. */
static int intrude(int rank, weft_group *world)
{
    static weft_i_sent sent[TRIES];
    unsigned char address[WEFT_I_TRANSPORT_ADDRESS_BYTES], data[600];
    const weft_i_transport *table = weft_i_remote_engine();
    weft_i_transport_opts opts = {
        .rank = 1, .ranks = 2, .on_message = hear_nothing, .on_fault = hear_no_fault};
    void *wire = NULL;
    size_t bytes = address_of(world, 0, address);
    int begun = 0;
    CREW(bytes, "%s", weft_last_error());
    OK(table->open(&opts, &wire));
    OK(table->connect(wire, 0, address, bytes));
    uint64_t dice = 88172645463325252u;
    memset(data, 7, sizeof data);
    for (int i = 0; i < TRIES; i++) {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        weft_i_head head = {.kind = i % 3 == 0
                                        ? WEFT_I_HEAD_HELLO
                                        : (weft_i_head_kind)(1 + dice % (WEFT_I_HEAD_KINDS - 1)),
                            .source = (uint32_t)(i % 5 == 4 ? dice >> 20 : 1),
                            .number = (uint32_t)(dice >> 40) % 4,
                            .cookie = i % 3 == 0 ? 0 : dice,
                            .group = i % 2 ? world->hosts->tag : 0,
                            .word = {0, 1, (uint32_t)dice, 0}};
        size_t length = head.kind == WEFT_I_HEAD_HELLO ? WEFT_I_PAIR_PROOF : dice % sizeof data;
        sent[i].done = note_over;
        begun += table->send(wire, 0, &head, data, length, &sent[i]) == WEFT_IN_PROGRESS;
        table->progress(wire);
    }
    int64_t end = weft_i_os_deadline(20000);
    while (over < begun && WEFT_OS->clock_ns() < end)
        table->progress(wire);
    for (int i = 0; i < 100; i++, crew_rest(1))
        table->progress(wire);
    table->close(wire);
    return 0;
}

static int member(int rank, void *arg)
{
    const scene *s = arg;
    hosts_use_ucx();
    setenv("WEFT_DEBUG", "NONE", 1);
    weft_group *world = hosts_join(rank, 2, 1, s->port);
    CREW(world, "%s", weft_last_error());
    CREW(world->hosts, "%s", world->world->remote_why);
    weft_group_set_timeout(world, LIMIT_MS);
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 1 && intrude(rank, world))
        return 1;
    for (int i = 0; i < 20; i++)
        OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0)
        CREW(weft_i_remote_strays(world->world->remote) >= TRIES * 9 / 10, "%llu strays",
             (unsigned long long)weft_i_remote_strays(world->world->remote));
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_hosts_stranger_is_dropped)
{
    char reason[192];
    scene s = {free_port()};
    hosts_use_ucx();
    if (!s.port)
        SKIP("no port is free here");
    if (weft_i_remote_engine()->probe(reason, sizeof reason) <= 0)
        SKIP("%s", reason);
    crew_run("a stranger", 2, member, &s, -1);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/exchange_store.c */
/*
 * Exchanges through the store, one rank at a time: every decision it may find there, every message,
 * and a store that fails at any request.  What lies in the store is written out here, because ranks
 * of another build must understand it.
 */
#include "store_script.h"

#include "fabric/group/exchange_store.h"

#define KEY "x/00000000000011220000000000003344/"

enum { DIGEST = 77 };

typedef struct wire_entry {
    uint32_t digest, bytes;
    char note[8];
} wire_entry;

typedef struct wire_decision {
    int32_t rank, status;
} wire_decision;

static void put_entry(lonely *l, int round, int rank, uint32_t digest, const char *note)
{
    char key[96];
    wire_entry e = {.digest = digest, .bytes = (uint32_t)strlen(note)};
    memcpy(e.note, note, strlen(note));
    snprintf(key, sizeof key, KEY "%d/%d", round, rank);
    put(l, key, &e, 8 + strlen(note));
}

static void put_decision(lonely *l, const char *last, int rank, weft_status status)
{
    char key[96];
    wire_decision d = {rank, status};
    snprintf(key, sizeof key, KEY "%s", last);
    put(l, key, &d, sizeof d);
}

static void decided(lonely *l, const char *last, int rank, weft_status status)
{
    char key[96];
    wire_decision d = {rank, status};
    snprintf(key, sizeof key, KEY "%s", last);
    holds(l, key, &d, sizeof d);
}

/* Everybody else shows its letter, four times. */
static void put_others(lonely *l, int round)
{
    for (int rank = 0; rank < l->group->size; rank++) {
        char note[5] = {(char)('a' + rank), (char)('a' + rank), (char)('a' + rank),
                        (char)('a' + rank), 0};
        if (rank != l->group->rank)
            put_entry(l, round, rank, DIGEST, note);
    }
}

static weft_status exchange(lonely *l, char *all, int64_t timeout_ms)
{
    weft_i_label label = {l->group, "test", -1};
    return weft_i_exchange_store(&label, l->group, DIGEST, "mine", 4, all, timeout_ms);
}

/* ---- rounds ---- */

TEST(test_exchange_store_rounds)
{
    for (int rank = 0; rank < 3; rank++) {
        lonely l = lonely_open(rank, 3);
        char all[12], wanted[] = "aaaabbbbcccc", key[96];
        wire_entry mine = {DIGEST, 4, "mine"};
        memcpy(wanted + 4 * rank, "mine", 4);
        for (int round = 0; round < 4; round++) {
            put_others(&l, round);
            CHECK_OK(exchange(&l, all, 5000));
            CHECK(!memcmp(all, wanted, sizeof all));
            snprintf(key, sizeof key, KEY "%d/%d", round, rank);
            holds(&l, key, &mine, 12);
            char so[16];
            snprintf(so, sizeof so, "%d/so", round);
            decided(&l, so, rank, WEFT_OK);
            CHECK_INT(l.group->rest.round, round + 1);
            /* Our entry of the round before is gone, and rank 0 also removed what was decided;
             * the others' entries are theirs. */
            CHECK_INT(keys_in(&l), (round + 1) * 2 + 1 + (rank == 0 ? 1 : round + 1));
            CHECK_INT(weft_last_status(), WEFT_OK);
        }
        lonely_close(&l);
    }
}

/* Nothing is read where nothing is wanted, and nothing is shown where there is nothing to show. */
TEST(test_exchange_store_of_nothing)
{
    lonely l = lonely_open(1, 2);
    weft_i_label label = {l.group, "test", -1};
    put_entry(&l, 0, 0, DIGEST, "");
    CHECK_OK(weft_i_exchange_store(&label, l.group, DIGEST, NULL, 0, NULL, 5000));
    wire_entry mine = {DIGEST, 0, ""};
    holds(&l, KEY "0/1", &mine, 8);
    lonely_close(&l);
}

TEST(test_exchange_store_cancelled_round)
{
    lonely l = lonely_open(1, 3);
    char all[12];
    put_decision(&l, "0/so", 2, WEFT_ERR_CANCELLED); /* somebody gave up */
    put_decision(&l, "1/so", 0, WEFT_ERR_CANCELLED);
    put_entry(&l, 1, 0, DIGEST, "aaaa"); /* one came to the next round, too */
    put_others(&l, 2);
    CHECK_OK(exchange(&l, all, 5000));
    CHECK(!memcmp(all, "aaaaminecccc", sizeof all));
    CHECK_INT(l.group->rest.round, 3);
    decided(&l, "2/so", 1, WEFT_OK);
    CHECK(!is_there(&l, KEY "0/1") && !is_there(&l, KEY "1/1") && is_there(&l, KEY "2/1"));
    lonely_close(&l);
}

/* All entries are there, but somebody was quicker to say no, or that they differ. */
TEST(test_exchange_store_decided_by_another)
{
    lonely l = lonely_open(1, 2);
    char all[8];
    put_others(&l, 0);
    put_others(&l, 1);
    put_decision(&l, "0/so", 0, WEFT_ERR_CANCELLED);
    CHECK_OK(exchange(&l, all, 5000));
    CHECK_INT(l.group->rest.round, 2);
    lonely_close(&l);
    l = lonely_open(1, 2);
    put_others(&l, 0);
    put_decision(&l, "0/so", 0, WEFT_ERR_MISMATCH);
    said(exchange(&l, all, 5000), WEFT_ERR_MISMATCH,
         "rank 1 of 2 in group \"0\", test: another rank called something else here: rank 0 (on "
         "host h0)");
    CHECK_INT(l.group->rest.round, 0);
    lonely_close(&l);
    l = lonely_open(1, 2); /* before the entry is there */
    put_decision(&l, "0/so", 0, WEFT_ERR_MISMATCH);
    said(exchange(&l, all, 5000), WEFT_ERR_MISMATCH,
         "rank 1 of 2 in group \"0\", test: another rank called something else here: rank 0 (on "
         "host h0)");
    lonely_close(&l);
}

TEST(test_exchange_store_mismatch)
{
    for (int how = 0; how < 3; how++) {
        lonely l = lonely_open(2, 3);
        char all[12];
        put_entry(&l, 0, 0, DIGEST, "aaaa");
        put_entry(&l, 0, 1, how == 0 ? DIGEST + 1 : DIGEST, how == 1 ? "bbb" : "bbbb");
        if (how == 2) { /* equal, but the round was given up: the next one counts */
            put_decision(&l, "0/so", 1, WEFT_ERR_CANCELLED);
            put_entry(&l, 1, 0, DIGEST + 1, "aaaa");
            said(exchange(&l, all, 5000), WEFT_ERR_MISMATCH,
                 "rank 2 of 3 in group \"0\", test: another rank called something else here: "
                 "rank 0 (on host h0)");
            decided(&l, "1/so", 2, WEFT_ERR_MISMATCH);
        } else {
            said(exchange(&l, all, 5000), WEFT_ERR_MISMATCH,
                 "rank 2 of 3 in group \"0\", test: another rank called something else here: "
                 "rank 1 (on host h1)");
            decided(&l, "0/so", 2, WEFT_ERR_MISMATCH);
        }
        lonely_close(&l);
    }
    lonely l = lonely_open(1, 2); /* different, and given up by the other one */
    char all[8];
    put_entry(&l, 0, 0, DIGEST + 1, "aaaa");
    put_decision(&l, "0/so", 0, WEFT_ERR_CANCELLED);
    put_others(&l, 1);
    CHECK_OK(exchange(&l, all, 5000));
    CHECK_INT(l.group->rest.round, 2);
    lonely_close(&l);
}

/* ---- ends ---- */

TEST(test_exchange_store_ended)
{
    char all[8];
    lonely l = lonely_open(1, 2);
    CHECK_OK(weft_i_exchange_store_end(l.data, l.group->key, 0, WEFT_ERR_REVOKED));
    decided(&l, "end", 0, WEFT_ERR_REVOKED);
    CHECK_OK(weft_i_exchange_store_end(l.data, l.group->key, 1, WEFT_ERR_PEER_LEFT));
    decided(&l, "end", 0, WEFT_ERR_REVOKED); /* the first counts */
    said(exchange(&l, all, 5000), WEFT_ERR_REVOKED,
         "rank 1 of 2 in group \"0\", test: rank 0 of the world revoked the group");
    weft_i_exchange_store_allow(l.data, l.group->key, 1); /* not its own word */
    CHECK(is_there(&l, KEY "end"));
    weft_i_exchange_store_allow(l.data, l.group->key, 0);
    CHECK(!is_there(&l, KEY "end"));
    weft_i_exchange_store_allow(l.data, l.group->key, 0);
    put_others(&l, 0);
    CHECK_OK(exchange(&l, all, 5000));
    CHECK_OK(weft_i_exchange_store_end(l.data, l.group->key, 0, WEFT_ERR_NO_MEMORY));
    put_others(&l, 1); /* who has come is not asked whether it left */
    CHECK_OK(exchange(&l, all, 5000));
    char wanted[200];
    snprintf(wanted, sizeof wanted,
             "rank 1 of 2 in group \"0\", test: rank 0 of the world could not take part (%s)",
             weft_strerror(WEFT_ERR_NO_MEMORY));
    said(exchange(&l, all, 5000), WEFT_ERR_PEER_LEFT, wanted);
    lonely_close(&l);
}

static lonely *left_behind;
static int leaves_at;

static void come_and_leave(script *s, int request)
{
    (void)s;
    if (request != leaves_at)
        return;
    put_others(left_behind, 0);
    put_decision(left_behind, "0/so", 0, WEFT_OK);
    put_decision(left_behind, "end", 0, WEFT_ERR_PEER_LEFT);
}

/* The other rank comes, decides and leaves the group between any two requests of this one: it has
 * taken part. */
TEST(test_exchange_store_left_after_it)
{
    for (leaves_at = 1; leaves_at <= 12; leaves_at++) {
        lonely l = lonely_open(1, 2);
        char all[8];
        left_behind = &l;
        l.script->before = come_and_leave;
        if (exchange(&l, all, 5000) != WEFT_OK)
            FAIL("before request %d: %s", leaves_at, weft_last_error());
        CHECK(!memcmp(all, "aaaamine", sizeof all));
        CHECK_STATUS(weft_last_status(), WEFT_OK);
        said(exchange(&l, all, 5000), WEFT_ERR_PEER_LEFT,
             "rank 1 of 2 in group \"0\", test: rank 0 of the world could not take part (a rank "
             "left "
             "before this call)");
        lonely_close(&l);
    }
}

/* A group that this one was made from was revoked; or it merely ended, which is no matter. */
TEST(test_exchange_store_elders)
{
    static const weft_status why[] = {WEFT_ERR_REVOKED, WEFT_ERR_PEER_LEFT};
    for (int i = 0; i < 2; i++) {
        lonely l = lonely_open(1, 2);
        char all[8];
        weft_i_elder elders[] = {{.key = {{1, 1}}, .name = "old"},
                                 {.key = {{2, 2}}, .name = "new"}};
        weft_i_lineage first = {0};
        CHECK_OK(weft_i_lineage_new(&first, &elders[0], &l.group->lineage));
        first = l.group->lineage;
        CHECK_OK(weft_i_lineage_new(&first, &elders[1], &l.group->lineage));
        weft_i_lineage_free(&first);
        CHECK_OK(weft_i_exchange_store_end(l.data, elders[1].key, 4, why[i]));
        weft_status status = exchange(&l, all, i ? 30 : 5000);
        if (i)
            said(status, WEFT_ERR_TIMEOUT,
                 "rank 1 of 2 in group \"0\", test: the deadline passed while waiting for rank 0 "
                 "(on host h0)");
        else
            said(status, WEFT_ERR_REVOKED,
                 "rank 1 of 2 in group \"0\", test: rank 4 of the world revoked group \"new\", "
                 "from which this one was made");
        lonely_close(&l);
    }
}

/* ---- who does not come ---- */

TEST(test_exchange_store_late)
{
    lonely l = lonely_open(1, 5);
    char all[20];
    put_entry(&l, 0, 0, DIGEST, "aaaa");
    put_entry(&l, 0, 3, DIGEST, "dddd");
    int64_t begin = WEFT_OS->clock_ns();
    said(exchange(&l, all, 60), WEFT_ERR_TIMEOUT,
         "rank 1 of 5 in group \"0\", test: the deadline passed while waiting for rank 2 (on host "
         "h2), rank 4 (on host h4)");
    CHECK(WEFT_OS->clock_ns() - begin >= 60000000);
    decided(&l, "0/so", 1, WEFT_ERR_CANCELLED);
    CHECK_INT(l.group->rest.round, 1);
    CHECK(l.script->requests < 60); /* between its looks it sleeps */
    put_others(&l, 1);              /* the next one succeeds */
    CHECK_OK(exchange(&l, all, 5000));
    CHECK(!memcmp(all, "aaaamineccccddddeeee", sizeof all));
    CHECK_INT(l.group->rest.round, 2);
    lonely_close(&l);
}

TEST(test_exchange_store_monitored)
{
    lonely l = lonely_open(1, 3);
    said(weft_monitored_barrier(l.group, 5, true), WEFT_ERR_TIMEOUT,
         "rank 1 of 3 in group \"0\", monitored_barrier: the deadline passed while waiting for "
         "rank 0 (on host h0), rank 2 (on host h2)");
    lonely_close(&l);
}

/* Everybody else has read all entries, so this rank succeeds too, however late. */
static void bring_last_entry(script *s, int request)
{
    wire_entry e = {DIGEST, 4, "aaaa"};
    if (request == 16)
        CHECK_OK(weft_store_set(s->data, KEY "0/0", &e, 12));
}

TEST(test_exchange_store_late_but_decided)
{
    lonely l = lonely_open(1, 2);
    char all[8];
    put_decision(&l, "0/so", 0, WEFT_OK);
    l.script->before = bring_last_entry;
    CHECK_OK(exchange(&l, all, 1));
    CHECK(!memcmp(all, "aaaamine", sizeof all));
    CHECK(l.script->requests > 16);
    lonely_close(&l);
}

TEST(test_exchange_store_lost)
{
    static const weft_i_fate fates[] = {WEFT_I_DEAD, WEFT_I_LEFT};
    for (int i = 0; i < 2; i++) {
        char all[12];
        weft_status fate = i ? WEFT_ERR_PEER_LEFT : WEFT_ERR_PEER_DEAD;
        const char *message =
            i ? "rank 1 of 3 in group \"0\", test: rank 2 (on host h2: left the job) will not come"
              : "rank 1 of 3 in group \"0\", test: rank 2 (on host h2: died, or exited without "
                "weft_finish) will not come";
        lonely l = lonely_open(1, 3); /* the others are awaited first, but it is in their way */
        lonely_lose(&l, 2, fates[i]);
        said(exchange(&l, all, 60000), fate, message);
        decided(&l, "0/so", 1, WEFT_ERR_CANCELLED);
        CHECK_INT(l.group->rest.round, 1);
        put_others(&l, 1); /* it came to the next round before it went: that one counts */
        CHECK_OK(exchange(&l, all, 5000));
        put_entry(&l, 2, 0, DIGEST, "aaaa");
        said(exchange(&l, all, 60000), fate, message);
        lonely_close(&l);
    }
}

/* ---- what is not ours ---- */

TEST(test_exchange_store_foreign_values)
{
    static const struct {
        const char *key;
        size_t bytes;
        bool others; /* their entries are there */
    } cases[] = {{"0/so", 7, false}, {"0/so", 9, false}, {"0/so", 9, true},   {"end", 7, false},
                 {"end", 9, false},  {"0/0", 7, false},  {"0/0", 4096, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lonely l = lonely_open(1, 2);
        char key[96], all[8], wanted[160];
        static char junk[4096];
        if (cases[i].others)
            put_others(&l, 0);
        snprintf(key, sizeof key, KEY "%s", cases[i].key);
        put(&l, key, junk, cases[i].bytes);
        snprintf(wanted, sizeof wanted,
                 "a value of %zu bytes in the store where ranks meet is not weft's",
                 cases[i].bytes);
        said(exchange(&l, all, 5000), WEFT_ERR_PROTOCOL, wanted);
        lonely_close(&l);
    }
}

/* An entry that is shorter or longer than it says. */
TEST(test_exchange_store_foreign_lengths)
{
    for (int bytes = 8; bytes <= 16; bytes++) {
        lonely l = lonely_open(1, 2);
        wire_entry e = {DIGEST, 4, "aaaabbbb"};
        char all[8], wanted[160];
        put(&l, KEY "0/0", &e, (size_t)bytes);
        snprintf(wanted, sizeof wanted,
                 "a value of %d bytes in the store where ranks meet is not weft's", bytes);
        weft_status status = exchange(&l, all, 5000);
        if (bytes == 12)
            CHECK(status == WEFT_OK && !memcmp(all, "aaaamine", sizeof all));
        else
            said(status, WEFT_ERR_PROTOCOL, wanted);
        lonely_close(&l);
    }
}

/* ---- a store that fails ---- */

/*
 * At every request, in an exchange that succeeds, one that times out and one that finds a mismatch:
 * the failure is what the call says, and the same call succeeds where the store is well again.
 * Only the tidying afterwards may fail unheard.
 */
TEST(test_exchange_store_fails_anywhere)
{
    enum { SUCCEEDS, LATE, DIFFERS, SCENES };
    static const int tidying[SCENES] = {2, 0, 0}; /* of rank 0: its entry, and the decision */
    for (int scene = 0; scene < SCENES; scene++) {
        int n = 1;
        for (bool fails = true; fails; n++) {
            lonely l = lonely_open(0, 2);
            char all[8];
            put_others(&l, 0);
            CHECK_OK(exchange(&l, all, 5000));
            if (scene != LATE)
                put_entry(&l, 1, 1, scene == DIFFERS ? DIGEST + 1 : DIGEST, "bbbb");
            l.script->requests = 0;
            l.script->fails_at = n;
            l.script->fails_with = WEFT_ERR_NO_MEMORY;
            weft_status status = exchange(&l, all, scene == LATE ? 1 : 5000);
            fails = l.script->requests >= n;
            bool told = l.script->requests - n >= tidying[scene] || status < 0;
            if (fails && told) {
                char wanted[80];
                snprintf(wanted, sizeof wanted, "the script wants request %d to fail", n);
                said(status, WEFT_ERR_NO_MEMORY, wanted);
                l.script->fails_at = 0;
                if (scene == SUCCEEDS)
                    CHECK_OK(exchange(&l, all, 5000));
                else if (scene == DIFFERS)
                    CHECK_STATUS(exchange(&l, all, 5000), WEFT_ERR_MISMATCH);
            } else {
                CHECK_STATUS(status, scene == SUCCEEDS  ? WEFT_OK
                                     : scene == DIFFERS ? WEFT_ERR_MISMATCH
                                                        : WEFT_ERR_TIMEOUT);
                CHECK_INT(weft_last_status(), status); /* nothing of the failure is left */
            }
            if (!fails && scene == SUCCEEDS)
                CHECK_INT(keys_in(&l), 4); /* both entries, the other's old one, the decision */
            lonely_close(&l);
        }
        CHECK(n > 6);
    }
}

/* The word that ends a group is the store's to take: what it says is told. */
TEST(test_exchange_store_end)
{
    lonely l = lonely_open(0, 2);
    weft_i_key key = {{0x1122, 0x3344}};
    l.script->fails_at = 1;
    l.script->fails_with = WEFT_ERR_NO_MEMORY;
    said(weft_i_exchange_store_end(&l.script->store, key, 0, WEFT_ERR_IO), WEFT_ERR_NO_MEMORY,
         "the script wants request 1 to fail");
    CHECK(!is_there(&l, KEY "end"));
    CHECK_OK(weft_i_exchange_store_end(&l.script->store, key, 0, WEFT_ERR_IO));
    decided(&l, "end", 0, WEFT_ERR_IO);
    CHECK_OK(weft_i_exchange_store_end(&l.script->store, key, 1, WEFT_ERR_LIMIT));
    decided(&l, "end", 0, WEFT_ERR_IO); /* the first one stands */
    weft_i_exchange_store_allow(&l.script->store, key, 1);
    CHECK(is_there(&l, KEY "end")); /* not its own */
    weft_i_exchange_store_allow(&l.script->store, key, 0);
    CHECK(!is_there(&l, KEY "end"));
    weft_i_exchange_store_allow(&l.script->store, key, 0);
    CHECK_INT(weft_last_status(), WEFT_OK); /* a miss is no error */
    lonely_close(&l);
}

/* What the store says of a revocation is told; it counts when the store has it. */
TEST(test_exchange_store_revoked_here)
{
    lonely l = lonely_open(1, 2);
    l.script->fails_at = 1;
    l.script->fails_with = WEFT_ERR_NO_MEMORY;
    said(weft_group_revoke(l.group), WEFT_ERR_NO_MEMORY, "the script wants request 1 to fail");
    CHECK(!is_there(&l, KEY "end"));
    CHECK_OK(weft_group_revoke(l.group));
    decided(&l, "end", 1, WEFT_ERR_REVOKED);
    lonely_close(&l);
}

/* A group that this one was made from: its end is asked for, and a store that cannot say is an
 * error. */
TEST(test_exchange_store_elders_fail)
{
    for (int how = 0; how < 3; how++) {
        lonely l = lonely_open(0, 2);
        weft_i_elder elder = {NULL, NULL, {{0xabc, 0xdef}}, "above"};
        wire_decision d = {1, how == 1 ? WEFT_ERR_REVOKED : WEFT_ERR_IO};
        char all[8];
        CHECK_OK(weft_i_lineage_new(&l.group->lineage, &elder, &l.group->lineage));
        CHECK_INT(l.group->lineage.count, 1);
        if (how)
            put(&l, "x/0000000000000abc0000000000000def/end", &d, sizeof d);
        weft_status status = exchange(&l, all, 1);
        int requests = l.script->requests;
        if (how == 1)
            said(status, WEFT_ERR_REVOKED,
                 "rank 0 of 2 in group \"0\", test: rank 1 of the world revoked group \"above\", "
                 "from which this one was made");
        else
            CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
        weft_clear_error();
        for (int n = 1; how == 0 && n <= requests; n++) { /* the failure of any request is told */
            l.script->requests = 0;
            l.script->fails_at = n;
            l.script->fails_with = WEFT_ERR_NO_MEMORY;
            if (exchange(&l, all, 1) != WEFT_ERR_NO_MEMORY && l.script->requests >= n)
                FAIL("request %d of %d: %s", n, requests, weft_last_error());
            weft_clear_error();
        }
        lonely_close(&l);
    }
}

/* The store falls silent once this rank has given up. */
static void fall_silent(script *s, int request)
{
    const char *key = KEY "0/so";
    bool decided = false;
    CHECK_OK(weft_store_check(s->data, 1, &key, &decided));
    if (decided && !s->fails_at)
        s->fails_at = request;
}

/* Then the missing ones cannot be listed any more.  The message names the call and the server all
 * the same, not only a key of the store. */
TEST(test_exchange_store_silent_while_late)
{
    lonely l = lonely_open(0, 3);
    char all[12];
    atomic_store_explicit(&l.world->server, 2, memory_order_relaxed);
    l.script->before = fall_silent;
    l.script->fails_with = WEFT_ERR_TIMEOUT;
    CHECK_STATUS(exchange(&l, all, 1), WEFT_ERR_TIMEOUT);
    CHECK(l.script->fails_at > 0);
    CHECK_CONTAINS(
        weft_last_error(),
        "rank 0 of 3 in group \"0\", test: rank 2, which serves the store, does not answer");
    weft_clear_error();
    lonely_close(&l);
}

/* Whose server it is, is said where the store does not answer; where it is gone, and there is no
 * other, the others cannot be reached. */
TEST(test_exchange_store_silent_server)
{
    lonely l = lonely_open(0, 2);
    char all[8];
    atomic_store_explicit(&l.world->server, 1, memory_order_relaxed);
    l.script->fails_at = 1;
    l.script->fails_with = WEFT_ERR_TIMEOUT;
    weft_status status = exchange(&l, all, 5000);
    CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(
        weft_last_error(),
        "rank 0 of 2 in group \"0\", test: rank 1, which serves the store, does not answer");
    CHECK_CONTAINS(weft_last_error(), "the script wants request 1 to fail");
    weft_clear_error();
    l.script->fails_at = l.script->requests + 2;
    l.script->fails_with = WEFT_ERR_UNREACHABLE;
    CHECK_STATUS(exchange(&l, all, 5000), WEFT_ERR_UNREACHABLE);
    weft_clear_error();
    l.script->fails_at = 0; /* it is there again: the same round goes on */
    put_others(&l, 0);
    CHECK_OK(exchange(&l, all, 5000));
    lonely_close(&l);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

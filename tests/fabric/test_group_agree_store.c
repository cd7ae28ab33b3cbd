/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_agree.c, fabric/group/group_shrink.c */
/*
 * Agreement and shrinking between hosts, one rank at a time: what it shows in the store, whom it
 * follows, whom it waits for, and a store that fails at any request.
 */
#include "fence.h"
#include "store_script.h"

#define AGREE  "agree/00000000000011220000000000003344/"
#define SHRINK "shrink/00000000000011220000000000003344/"

enum { SIZE = 4 };

typedef struct wire_ballot {
    uint64_t flags;
    int64_t status;
    unsigned char lost[SIZE];
} wire_ballot;

enum { BALLOT = 16 + SIZE };

static void put_ballot(lonely *l, int round, const char *last, uint64_t flags, weft_status status,
                       const char *lost)
{
    char key[96];
    wire_ballot b = {.flags = flags, .status = status};
    for (int i = 0; i < SIZE; i++)
        b.lost[i] = lost[i] == 'x';
    snprintf(key, sizeof key, AGREE "%d/%s", round, last);
    put(l, key, &b, BALLOT);
}

static void shows(lonely *l, int round, const char *last, uint64_t flags, weft_status status,
                  const char *lost)
{
    char key[96];
    wire_ballot b = {.flags = flags, .status = status};
    for (int i = 0; i < SIZE; i++)
        b.lost[i] = lost[i] == 'x';
    snprintf(key, sizeof key, AGREE "%d/%s", round, last);
    holds(l, key, &b, BALLOT);
}

static void put_all(lonely *l, int round, uint64_t flags)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != l->group->rank)
            put_ballot(l, round, names[rank], flags, WEFT_OK, "....");
}

TEST(test_agree_store_rounds)
{
    for (int rank = 0; rank < SIZE; rank++) {
        lonely l = lonely_open(rank, SIZE);
        char mine[2] = {(char)('0' + rank), 0};
        for (int round = 1; round <= 3; round++) {
            uint64_t flags = 0xf0f;
            put_all(&l, round, 0xff);
            put_ballot(&l, round, rank == 2 ? "1" : "2", 0x0e, WEFT_OK, "....");
            CHECK_OK(weft_group_agree(l.group, &flags, 5000));
            CHECK_INT(flags, 0x0e);
            shows(&l, round, mine, 0xf0f, WEFT_OK, "....");
            shows(&l, round, "so", 0x0e, WEFT_OK, "....");
            CHECK_INT(l.group->rest.agreements, round);
            /* The last round but one is over for all: our words go, and rank 0 takes the
             * outcome away. */
            CHECK_INT(keys_in(&l), round * 3 + 1 + (rank == 0 ? 1 : round));
        }
        lonely_close(&l);
    }
}

/* The outcome is there before we come: that one counts, whatever we think. */
TEST(test_agree_store_follows)
{
    lonely l = lonely_open(1, SIZE);
    uint64_t flags = 0xff;
    put_ballot(&l, 1, "so", 0x30, WEFT_OK, "....");
    CHECK_OK(weft_group_agree(l.group, &flags, 5000));
    CHECK_INT(flags, 0x30);
    put_ballot(&l, 2, "so", 0x10, WEFT_ERR_PEER_LEFT, "x..x");
    said(weft_group_agree(l.group, &flags, 5000), WEFT_ERR_PEER_LEFT,
         "group_agree in \"0\": agreed without rank 0, 3 of the group: rank 0 (on host h0), rank 3 "
         "(on host h3)");
    CHECK_INT(flags, 0x10);
    CHECK_INT(l.group->rest.agreements, 2);
    /* Rank 0 is lost, so it is for us to take the old outcome away. */
    CHECK(!is_there(&l, AGREE "1/so") && !is_there(&l, AGREE "1/1"));
    CHECK(is_there(&l, AGREE "2/so") && is_there(&l, AGREE "2/1"));
    lonely_close(&l);
}

/* What lies on the stack is no text. */
__attribute__((noinline)) static void soil_the_stack(void)
{
    volatile char rubbish[16384];
    for (size_t i = 0; i < sizeof rubbish; i++)
        rubbish[i] = 'r';
}

/* An outcome that names nobody. */
TEST(test_agree_store_without_whom)
{
    lonely l = lonely_open(1, SIZE);
    uint64_t flags = 0xff;
    put_ballot(&l, 1, "so", 0x30, WEFT_ERR_PEER_LEFT, "....");
    soil_the_stack();
    said(weft_group_agree(l.group, &flags, 5000), WEFT_ERR_PEER_LEFT,
         "group_agree in \"0\": agreed without rank  of the group: ");
    lonely_close(&l);
}

/* Who is lost need not speak; what it said before counts; what others know counts too. */
TEST(test_agree_store_without_the_lost)
{
    lonely l = lonely_open(1, SIZE);
    uint64_t flags = 0xff;
    put_ballot(&l, 1, "0", 0x7f, WEFT_OK, "...x"); /* it knows of 3 */
    put_ballot(&l, 1, "2", 0x3f, WEFT_OK, "....");
    lonely_lose(&l, 2, WEFT_I_LEFT);
    said(weft_group_agree(l.group, &flags, 5000), WEFT_ERR_PEER_DEAD,
         "group_agree in \"0\": agreed without rank 2, 3 of the group: rank 2 (on host h2: left "
         "the job), rank 3 (on host h3)");
    CHECK_INT(flags, 0x3f);
    shows(&l, 1, "so", 0x3f, WEFT_ERR_PEER_DEAD, "..xx");
    shows(&l, 1, "1", 0xff, WEFT_OK, "..x.");
    lonely_close(&l);
    l = lonely_open(1, SIZE); /* the gravest fate is told, in whatever order */
    put_ballot(&l, 1, "0", 0x7f, WEFT_OK, "....");
    lonely_lose(&l, 2, WEFT_I_LEFT);
    lonely_lose(&l, 3, WEFT_I_LEFT);
    CHECK_STATUS(weft_group_agree(l.group, &flags, 5000), WEFT_ERR_PEER_LEFT);
    put_ballot(&l, 2, "0", 0x7f, WEFT_OK, "....");
    lonely_lose(&l, 2, WEFT_I_DEAD);
    CHECK_STATUS(weft_group_agree(l.group, &flags, 5000), WEFT_ERR_PEER_DEAD);
    lonely_close(&l);
}

/* Flags that were shown stay, whatever the next try brings. */
TEST(test_agree_store_late)
{
    lonely l = lonely_open(1, SIZE);
    uint64_t flags = 0x0f;
    put_ballot(&l, 1, "2", 0xff, WEFT_OK, "....");
    said(weft_group_agree(l.group, &flags, 20), WEFT_ERR_TIMEOUT,
         "group_agree in \"0\": waited 20 ms for rank 0 (on host h0), rank 3 (on host h3)");
    CHECK(flags == 0x0f && !l.group->rest.agreements);
    put_all(&l, 1, 0xff);
    flags = 0xf0;
    CHECK_OK(weft_group_agree(l.group, &flags, 5000));
    CHECK_INT(flags, 0x0f);
    shows(&l, 1, "1", 0x0f, WEFT_OK, "....");
    lonely_close(&l);
}

/* A ballot has a byte for each of many members. */
TEST(test_agree_store_of_many)
{
    enum { MANY = 80 };
    lonely l = lonely_open(1, MANY);
    unsigned char theirs[16 + MANY] = {0xfe, 0x7f}; /* the flags, without a loss */
    uint64_t flags = 0xffff;
    for (int rank = 0; rank < MANY; rank++) {
        char key[96];
        snprintf(key, sizeof key, AGREE "1/%d", rank);
        if (rank != 1)
            put(&l, key, theirs, sizeof theirs);
    }
    CHECK_OK(weft_group_agree(l.group, &flags, 5000));
    CHECK_INT(flags, 0x7ffe);
    holds(&l, AGREE "1/so", theirs, sizeof theirs);
    lonely_close(&l);
}

static int strange_at;
static bool strange_first; /* nobody had decided before */

static void agree_strangely(script *s, int request)
{
    static const char *const key = AGREE "1/so";
    bool there = false;
    if (request != strange_at)
        return;
    CHECK_OK(weft_store_check(s->data, 1, &key, &there));
    strange_first = !there;
    CHECK_OK(weft_store_set(s->data, key, "0123456789012345678901234567", BALLOT + 1));
}

/* Another decides, and not as weft does, before any request of this rank. */
TEST(test_agree_store_foreign_decision)
{
    int first = 0;
    for (strange_at = 1; strange_at < 20; strange_at++) {
        lonely l = lonely_open(1, SIZE);
        uint64_t flags = 1;
        put_all(&l, 1, 0xff);
        strange_first = false;
        l.script->before = agree_strangely;
        weft_status status = weft_group_agree(l.group, &flags, 5000);
        CHECK_STATUS(status, strange_first ? WEFT_ERR_PROTOCOL : WEFT_OK);
        CHECK_INT(l.group->rest.agreements, !strange_first);
        first += strange_first;
        lonely_close(&l);
    }
    CHECK(first > 5);
}

TEST(test_agree_store_fenced)
{
    fence_on();
    lonely l = lonely_open(1, SIZE);
    uint64_t flags = 0xf0f;
    put_all(&l, 1, 0xff);
    lonely_lose(&l, 3, WEFT_I_LEFT);
    CHECK_STATUS(weft_group_agree(l.group, &flags, 5000), WEFT_ERR_PEER_LEFT);
    fence_off();
    CHECK_INT(flags, 0x0f);
    shows(&l, 1, "so", 0x0f, WEFT_ERR_PEER_LEFT, "...x");
    lonely_close(&l);
}

TEST(test_agree_store_arguments)
{
    lonely l = lonely_open(1, SIZE);
    uint64_t flags = 1;
    said(weft_group_agree(l.group, NULL, 5), WEFT_ERR_INVALID_ARG, "weft_group_agree: no flags");
    said(weft_group_agree(NULL, &flags, 5), WEFT_ERR_INVALID_ARG, "the group is NULL");
    said(weft_group_agree(l.group, &flags, -3), WEFT_ERR_INVALID_ARG,
         "weft_group_agree: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not -3");
    CHECK_INT(l.script->requests, 0);
    lonely_close(&l);
}

TEST(test_agree_store_foreign_values)
{
    static const char *const keys[] = {AGREE "1/so", AGREE "1/0", AGREE "1/1"};
    for (int i = 0; i < 6; i++) {
        lonely l = lonely_open(1, SIZE);
        uint64_t flags = 1;
        put(&l, keys[i % 3], "0123456789012345678901234567", i < 3 ? BALLOT + 1 : BALLOT - 1);
        said(weft_group_agree(l.group, &flags, 5000), WEFT_ERR_PROTOCOL,
             "group_agree: a value in the store is not weft's");
        CHECK(flags == 1 && !l.group->rest.agreements);
        lonely_close(&l);
    }
}

/* A death that is seen while it waits is shown to the others. */
static lonely *watched;

static void die_in_between(script *s, int request)
{
    (void)s;
    if (request == 9)
        lonely_lose(watched, 3, WEFT_I_DEAD);
}

TEST(test_agree_store_death_meanwhile)
{
    lonely l = lonely_open(1, SIZE);
    uint64_t flags = 0xff;
    watched = &l;
    l.script->before = die_in_between;
    put_ballot(&l, 1, "0", 0x7f, WEFT_OK, "....");
    put_ballot(&l, 1, "2", 0x7f, WEFT_OK, "....");
    CHECK_STATUS(weft_group_agree(l.group, &flags, 5000), WEFT_ERR_PEER_DEAD);
    shows(&l, 1, "1", 0xff, WEFT_OK, "...x");
    shows(&l, 1, "so", 0x7f, WEFT_ERR_PEER_DEAD, "...x");
    lonely_close(&l);
}

TEST(test_agree_store_fails_anywhere)
{
    int n = 1;
    for (bool fails = true; fails; n++) {
        lonely l = lonely_open(0, SIZE);
        uint64_t flags = 0xff;
        put_all(&l, 1, 0xff);
        put_all(&l, 2, 0x0f);
        CHECK_OK(weft_group_agree(l.group, &flags, 5000));
        l.script->requests = 0;
        l.script->fails_at = n;
        l.script->fails_with = WEFT_ERR_NO_MEMORY;
        weft_status status = weft_group_agree(l.group, &flags, 5000);
        fails = l.script->requests >= n;
        if (status < 0) {
            char wanted[80];
            snprintf(wanted, sizeof wanted, "the script wants request %d to fail", n);
            said(status, WEFT_ERR_NO_MEMORY, wanted);
            CHECK(flags == 0xff && l.group->rest.agreements == 1);
            l.script->fails_at = 0;
            CHECK_OK(weft_group_agree(l.group, &flags, 5000));
        } else
            CHECK(!fails || l.script->requests - n < 2); /* only tidying fails unheard */
        CHECK(flags == 0x0f && l.group->rest.agreements == 2);
        lonely_close(&l);
    }
    CHECK(n > 10);
}

/* ---- shrinking ---- */

static void put_list(lonely *l, const char *last, const char *dead)
{
    char key[96], list[SIZE];
    for (int i = 0; i < SIZE; i++)
        list[i] = dead[i] == 'x';
    snprintf(key, sizeof key, SHRINK "0/%s", last);
    put(l, key, list, SIZE);
}

static void lists(lonely *l, const char *last, const char *dead)
{
    char key[96], list[SIZE];
    for (int i = 0; i < SIZE; i++)
        list[i] = dead[i] == 'x';
    snprintf(key, sizeof key, SHRINK "0/%s", last);
    holds(l, key, list, SIZE);
}

TEST(test_shrink_store_late)
{
    lonely l = lonely_open(1, SIZE);
    put_list(&l, "0", "..x.");
    CHECK_OK(weft_group_set_timeout(l.group, 30));
    CHECK(!weft_group_shrink(l.group));
    said(weft_last_status(), WEFT_ERR_TIMEOUT,
         "weft_group_shrink of \"0\": waited 30 ms for rank 3 (on host h3) to say who lives");
    lists(&l, "1", "....");
    CHECK(!is_there(&l, SHRINK "0/so"));
    CHECK_INT(l.group->rest.shrinks, 0);
    lonely_close(&l);
}

/* The first one that is silent is named, whoever it is. */
TEST(test_shrink_store_all_late)
{
    lonely l = lonely_open(1, SIZE);
    CHECK_OK(weft_group_set_timeout(l.group, 5));
    CHECK(!weft_group_shrink(l.group));
    said(weft_last_status(), WEFT_ERR_TIMEOUT,
         "weft_group_shrink of \"0\": waited 5 ms for rank 0 (on host h0) to say who lives");
    lonely_close(&l);
}

static int pauses_before;

static void note_pause(int64_t ns)
{
    weft_i_os_now = &weft_i_os_linux;
    pauses_before += !is_there(watched, SHRINK "0/so");
    weft_i_os_linux.sleep_ns(ns);
}

/* A later member knows that the first one is dead: it is asked no more, and nobody waits for it. */
TEST(test_shrink_store_hears_again)
{
    lonely l = lonely_open(1, SIZE);
    weft_i_os table = weft_i_os_linux;
    watched = &l;
    put_list(&l, "2", "x...");
    put_list(&l, "3", "....");
    CHECK_OK(weft_group_set_timeout(l.group, 20)); /* nobody makes the group */
    table.sleep_ns = note_pause;
    weft_i_os_now = &table;
    CHECK(!weft_group_shrink(l.group));
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
    CHECK_INT(pauses_before, 0);
    lists(&l, "so", "x...");
    lonely_close(&l);
}

/* Another has decided just before this rank does: its list counts. */
static void decide_otherwise(script *s, int request)
{
    if (request == 11)
        CHECK_OK(weft_store_set(s->data, SHRINK "0/so", (char[SIZE]){1}, SIZE));
}

TEST(test_shrink_store_follows)
{
    for (int fenced = 0; fenced < 2; fenced++) {
        if (fenced)
            fence_on();
        lonely l = lonely_open(1, SIZE);
        put_list(&l, "0", "....");
        put_list(&l, "2", "....");
        put_list(&l, "3", "....");
        l.script->before = decide_otherwise;
        CHECK_OK(weft_group_set_timeout(l.group, 50)); /* nobody makes the group */
        CHECK(!weft_group_shrink(l.group));
        fence_off();
        CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 2 (on host h2), rank 3 (on host h3)");
        CHECK(!strstr(weft_last_error(), "rank 0 (on host h0)"));
        lists(&l, "so", "x...");
        lists(&l, "1", "....");
        lonely_close(&l);
    }
}

TEST(test_shrink_store_foreign_values)
{
    static const char *const keys[] = {SHRINK "0/so", SHRINK "0/0", SHRINK "0/3"};
    for (int i = 0; i < 6; i++) {
        lonely l = lonely_open(1, SIZE);
        put_list(&l, "0", "....");
        put_list(&l, "2", "....");
        put(&l, keys[i % 3], "0123456789", i < 3 ? SIZE + 1 : SIZE - 1);
        CHECK(!weft_group_shrink(l.group));
        said(weft_last_status(), WEFT_ERR_PROTOCOL,
             "weft_group_shrink: a value in the store is not weft's");
        lonely_close(&l);
    }
}

/* Another has decided just before this rank does, and not as weft does. */
static void decide_strangely(script *s, int request)
{
    static const char key[] = SHRINK "0/so";
    if (request == 11)
        CHECK_OK(weft_store_set(s->data, key, "0123456789", SIZE - 1));
}

TEST(test_shrink_store_foreign_decision)
{
    lonely l = lonely_open(1, SIZE);
    put_list(&l, "0", "....");
    put_list(&l, "2", "....");
    put_list(&l, "3", "....");
    l.script->before = decide_strangely;
    CHECK_OK(weft_group_set_timeout(l.group, 200)); /* nobody makes the group */
    CHECK(!weft_group_shrink(l.group));
    said(weft_last_status(), WEFT_ERR_PROTOCOL,
         "weft_group_shrink: a value in the store is not weft's");
    CHECK_INT(l.script->requests, 11);
    lonely_close(&l);
}

/* The news cannot be heard, at first or while it waits: it says so, and waits no longer. */
TEST(test_shrink_store_without_news)
{
    static const int lost_at[] = {1, 4};
    for (int i = 0; i < 2; i++) {
        char wanted[80];
        lonely l = lonely_open(1, SIZE);
        put(&l, "meet/gone", "", 0);
        l.world->told = l.world->wills = true;
        CHECK_OK(weft_group_set_timeout(l.group, 200)); /* nobody else comes */
        l.script->fails_at = lost_at[i];
        l.script->fails_with = WEFT_ERR_NO_MEMORY;
        CHECK(!weft_group_shrink(l.group));
        snprintf(wanted, sizeof wanted, "the script wants request %d to fail", lost_at[i]);
        said(weft_last_status(), WEFT_ERR_NO_MEMORY, wanted);
        CHECK_INT(l.script->requests, lost_at[i]);
        CHECK_INT(l.group->rest.shrinks, 0);
        l.world->told = false; /* nobody is left to hear that it goes */
        lonely_close(&l);
    }
}

/* Who proposes is followed, whatever we saw ourselves; the group that is made then waits for just
 * those, which is told when its time is up. */
TEST(test_shrink_store_decides)
{
    for (int first = 0; first < 2; first++) {
        lonely l = lonely_open(1, SIZE);
        put_list(&l, "0", first ? "..xx" : "...x");
        put_list(&l, "2", "....");
        put_list(&l, "3", "....");
        if (first)
            put_list(&l, "so", "..x.");
        else
            lonely_lose(&l, 2, WEFT_I_DEAD);
        CHECK_OK(weft_group_set_timeout(l.group, 50));
        CHECK(!weft_group_shrink(l.group));
        CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 0 (on host h0)");
        CHECK_INT(strstr(weft_last_error(), "rank 3 (on host h3)") != NULL, first);
        CHECK(!strstr(weft_last_error(), "rank 2"));
        lists(&l, "so", first ? "..x." : "..xx");
        lists(&l, "1", first ? "...." : "..x.");
        lonely_close(&l);
    }
}

/* The last one goes on alone, and leaves nothing of the decision in the store. */
TEST(test_shrink_store_leaves_nothing)
{
    lonely l = lonely_open(1, SIZE);
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != 1)
            lonely_lose(&l, rank, WEFT_I_DEAD);
    weft_group *alone = weft_group_shrink(l.group);
    if (!alone)
        FAIL("%s", weft_last_error());
    CHECK(weft_size(alone) == 1 && weft_group_world_rank(alone, 0) == 1);
    CHECK(l.script->requests > 3);
    CHECK(!is_there(&l, SHRINK "0/1") && !is_there(&l, SHRINK "0/so"));
    lonely_close(&l);
}

TEST(test_shrink_store_fails_anywhere)
{
    int n = 1, told = 0;
    for (bool fails = true; fails; n++) {
        lonely l = lonely_open(1, SIZE);
        put_list(&l, "0", "....");
        put_list(&l, "2", "....");
        CHECK_OK(weft_group_set_timeout(l.group, 1));
        l.script->fails_at = n;
        l.script->fails_with = WEFT_ERR_NO_MEMORY;
        CHECK(!weft_group_shrink(l.group));
        fails = l.script->requests >= n && n < 100;
        told += weft_last_status() == WEFT_ERR_NO_MEMORY;
        if (fails) {
            char wanted[80];
            snprintf(wanted, sizeof wanted, "the script wants request %d to fail", n);
            said(weft_last_status(), WEFT_ERR_NO_MEMORY, wanted);
        } else
            CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
        lonely_close(&l);
    }
    CHECK(told >= 7);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: launch/chorus.c */
/* Equal messages of several ranks: which are, in which order they leave, and what they say then. */
#include "fault.h"
#include "harness.h"

#include "launch/chorus.h"

static weft_i_chorus chorus;

static void begin(int ranks)
{
    weft_i_chorus_close(&chorus);
    chorus = (weft_i_chorus){.ranks = ranks};
}

static bool take(int rank, const char *text)
{
    char line[WEFT_I_CHORUS_LINE + 16];
    snprintf(line, sizeof line, "%s\n", text);
    return weft_i_chorus_take(&chorus, rank, line, strlen(line), 1000);
}

/* The oldest message is `expected`, with its prefix, and `first` said it first. */
static void expect(int first, const char *expected)
{
    char prefix[WEFT_I_CHORUS_PREFIX], text[WEFT_I_CHORUS_TEXT], all[sizeof prefix + sizeof text];
    CHECK(chorus.used > 0);
    int rank = weft_i_chorus_leave(&chorus, prefix, text);
    snprintf(all, sizeof all, "%s%s", prefix, text);
    if (strncmp(all, expected, strlen(expected)) || strcmp(all + strlen(expected), "\n"))
        FAIL("it is \"%s\", not \"%s\"", all, expected);
    CHECK_INT(rank, first);
}

TEST(test_chorus_equal)
{
    begin(4);
    CHECK(take(2, "weft WARN [rank 2]: no room"));
    CHECK(take(0, "weft WARN [rank 0]: no room"));
    CHECK(take(1, "weft WARN [rank 1]: no rooms"));
    CHECK(take(3, "weft INFO [rank 3]: no room"));
    CHECK_INT(chorus.used, 3);
    expect(2, "[0,2] weft WARN: no room");
    expect(1, "weft WARN [rank 1]: no rooms");
    expect(3, "weft INFO [rank 3]: no room");
    CHECK_INT(chorus.used, 0);
    for (int rank = 0; rank < 4; rank++) /* a rank that has no number yet */
        CHECK(take(rank, "weft WARN: early"));
    expect(0, "[0-3] weft WARN: early");
    /* What the library does not write is not held. */
    CHECK(!take(0, "hello"));
    CHECK(!take(0, "weft"));
    CHECK(!take(0, "weft WARN"));
    CHECK(!take(0, "weft WARNING: of somebody else"));
    CHECK(!take(0, "weft WARN with no colon"));
    CHECK(!take(0, "weft TRACE [rank 0]: call 1"));
    CHECK(!weft_i_chorus_take(&chorus, 0, "weft WARN: cut", 14, 0));
    CHECK(!weft_i_chorus_take(&chorus, 0, "weft WARN: a\0b\n", 15, 0));
    CHECK_INT(chorus.used, 0);
    begin(0);
}

/* Each names itself: one message.  Names of others are compared as they stand. */
TEST(test_chorus_own_rank)
{
    begin(12);
    CHECK(take(1, "weft WARN [rank 1]: rank 1 of 12: rank 10 died, about 2.1 ms ago (rank 1)"));
    CHECK(take(11, "weft WARN [rank 11]: rank 11 of 12: rank 10 died, about 13 us ago (rank 11)"));
    CHECK(take(0, "weft WARN [rank 0]: rank 0 of 12: rank 10 died, about 1.5 s ago (rank 0)"));
    CHECK(take(2, "weft WARN [rank 2]: rank 2 of 12: rank 9 died, about 1.5 s ago (rank 2)"));
    CHECK(take(3, "weft WARN [rank 3]: rank 3 of 12: rank 10 died, about ten s ago (rank 3)"));
    CHECK(take(4, "weft WARN [rank 4]: rank 3 of 12: rank 10 died, about 1.5 s ago (rank 4)"));
    CHECK_INT(chorus.used, 4);
    expect(1, "[0,1,11] weft WARN: this rank of 12: rank 10 died, about 2.1 ms ago (this rank)");
    expect(2, "weft WARN [rank 2]: rank 2 of 12: rank 9 died, about 1.5 s ago (rank 2)");
    begin(12);
    /* With a trace times are exact: "about" is not there. */
    CHECK(take(1, "weft WARN [rank 1]: rank 1: rank 10 died; begun 472.6 us ago, took 2.0 us"));
    CHECK(take(2, "weft WARN [rank 2]: rank 2: rank 10 died; begun 1.1 ms ago, took 2.0 us"));
    CHECK(take(3, "weft WARN [rank 3]: rank 3: rank 10 died; begun 1.1 ms ago, took 2.1 us"));
    CHECK_INT(chorus.used, 2);
    expect(1, "[1,2] weft WARN: this rank: rank 10 died; begun 472.6 us ago, took 2.0 us");
    begin(12);
    /* Word by word: "rank 2" is not "this rank", though rank 2 says it too. */
    CHECK(take(2, "weft WARN [rank 2]: rank 2 is late"));
    CHECK(take(5, "weft WARN [rank 5]: rank 2 is late"));
    CHECK(take(7, "weft WARN [rank 7]: rank 7 is late"));
    CHECK_INT(chorus.used, 2);
    expect(2, "[2,5] weft WARN: rank 2 is late");
    expect(7, "weft WARN [rank 7]: rank 7 is late");
    /* And the other way: where each means itself, nobody joins who means another. */
    CHECK(take(2, "weft WARN [rank 2]: rank 2 is late"));
    CHECK(take(7, "weft WARN [rank 7]: rank 7 is late"));
    CHECK(take(5, "weft WARN [rank 5]: rank 2 is late"));
    CHECK_INT(chorus.used, 2);
    expect(2, "[2,7] weft WARN: this rank is late");
    expect(5, "weft WARN [rank 5]: rank 2 is late");
    /* Two that name each other do not say the same. */
    CHECK(take(1, "weft WARN [rank 1]: rank 1 waits for rank 2"));
    CHECK(take(2, "weft WARN [rank 2]: rank 2 waits for rank 1"));
    CHECK_INT(chorus.used, 2);
    begin(0);
}

/* The messages of each rank leave in its order, and once each. */
TEST(test_chorus_order)
{
    begin(3);
    CHECK(take(0, "weft WARN [rank 0]: a"));
    CHECK(take(0, "weft WARN [rank 0]: b"));
    CHECK(take(1, "weft WARN [rank 1]: b"));
    CHECK(take(1, "weft WARN [rank 1]: a")); /* not the first a: that comes before b */
    CHECK(take(0, "weft WARN [rank 0]: a")); /* said twice */
    CHECK(take(2, "weft WARN [rank 2]: a"));
    CHECK_INT(chorus.used, 3);
    CHECK_INT(weft_i_chorus_before(&chorus, 0), 3);
    CHECK_INT(weft_i_chorus_before(&chorus, 1), 3);
    CHECK_INT(weft_i_chorus_before(&chorus, 2), 1);
    expect(0, "[0,2] weft WARN: a");
    expect(0, "[0,1] weft WARN: b");
    CHECK_INT(weft_i_chorus_before(&chorus, 2), 0);
    expect(1, "[0,1] weft WARN: a");
    begin(0);
}

TEST(test_chorus_when)
{
    const int64_t due = 1000 + WEFT_I_CHORUS_MS * INT64_C(1000000);
    begin(2);
    CHECK(weft_i_chorus_due(&chorus) == WEFT_I_NEVER);
    CHECK_INT(weft_i_chorus_ripe(&chorus, INT64_MAX), 0);
    CHECK(take(0, "weft WARN [rank 0]: a"));
    CHECK(take(0, "weft WARN [rank 0]: b"));
    CHECK(take(1, "weft WARN [rank 1]: b"));
    CHECK(weft_i_chorus_due(&chorus) == due);
    CHECK_INT(weft_i_chorus_ripe(&chorus, due - 1), 0); /* b is complete, but not before a */
    CHECK_INT(weft_i_chorus_ripe(&chorus, due), 2);
    expect(0, "weft WARN [rank 0]: a");
    CHECK_INT(weft_i_chorus_ripe(&chorus, 0), 1);
    expect(0, "[0,1] weft WARN: b");
    begin(0);
}

/* Full, too long, no memory: the caller writes it. */
TEST(test_chorus_room)
{
    char text[WEFT_I_CHORUS_LINE + 8], prefix[WEFT_I_CHORUS_PREFIX], out[WEFT_I_CHORUS_TEXT];
    begin(2);
    for (int i = 0; i < WEFT_I_CHORUS_HELD; i++) {
        snprintf(text, sizeof text, "weft WARN [rank 0]: %d", i);
        CHECK(take(0, text));
    }
    CHECK(!take(0, "weft WARN [rank 0]: one more"));
    CHECK(take(1, "weft WARN [rank 1]: 31"));
    CHECK_INT(weft_i_chorus_before(&chorus, 1), WEFT_I_CHORUS_HELD);
    begin(2);
    fault_arm(1);
    CHECK(!take(0, "weft WARN [rank 0]: no memory"));
    CHECK(fault_disarm());
    CHECK_INT(chorus.used, 0);
    /* As many ranks as a line has room for, every one named. */
    size_t used = (size_t)snprintf(text, sizeof text, "weft WARN [rank 0]: ");
    while (used + 8 < WEFT_I_CHORUS_LINE)
        used += (size_t)snprintf(text + used, sizeof text - used, "rank 0,");
    CHECK(take(0, text));
    for (char *at = strstr(text, "0"); at; at = strstr(at, "0"))
        *at = '1';
    CHECK(take(1, text));
    CHECK_INT(chorus.used, 1);
    weft_i_chorus_leave(&chorus, prefix, out);
    CHECK(!strcmp(prefix, "[0,1] ") && !strncmp(out, "weft WARN: this rank,this rank,", 31));
    CHECK(!strcmp(out + strlen(out) - 11, "this rank,\n"));
    memset(text + used, 'x', sizeof text - used);
    text[WEFT_I_CHORUS_LINE - 1] = 0;
    CHECK(take(1, text));
    text[WEFT_I_CHORUS_LINE - 1] = 'x';
    text[WEFT_I_CHORUS_LINE] = 0;
    CHECK(!take(1, text));
    begin(0);
}

TEST(test_chorus_lists)
{
    enum { RANKS = 1000 };
    char prefix[WEFT_I_CHORUS_PREFIX], text[WEFT_I_CHORUS_TEXT];
    static const int some[] = {0, 1, 2, 5, 7, 8, 10, 11, 12, 13};
    begin(14);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        CHECK(take(some[i], "weft WARN: x"));
    expect(0, "[0-2,5,7,8,10-13] weft WARN: x");
    begin(RANKS);
    for (int rank = 0; rank < RANKS; rank += 2)
        CHECK(take(rank, "weft WARN: x"));
    weft_i_chorus_leave(&chorus, prefix, text);
    CHECK(!strncmp(prefix, "[0,2,4,6,8,10,", 14));
    CHECK(!strcmp(prefix + strlen(prefix) - 6, ",...] "));
    begin(0);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}

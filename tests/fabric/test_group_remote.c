/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_new.c, fabric/group/registry.c */
/*
 * Making a group whose members are on several hosts, by one of them: what it shows in the store,
 * every plan that the others may have shown, what it takes back, and which options are refused.
 * The others are words that the test writes.
 */
#include "fault.h"
#include "store_script.h"

#include "fabric/group/registry.h"

enum { SIZE = 3, ME = 1 };

/* As they travel. */
typedef struct wire_plan {
    uint32_t digest, bytes;
    uint64_t name, tag;
    int64_t failure;
} wire_plan;

typedef struct wire_decision {
    int32_t rank, status;
} wire_decision;

static wire_plan others[SIZE]; /* what differs from ours */
static lonely l;
static char group_text[80];        /* "x/<key of the group>" */
static const char *named, *tagged; /* what it is called, if it is */

/* The key under which the n-th group of this list of world ranks meets. */
static void name_group(const int *ranks, int count, uint32_t times)
{
    weft_i_key key = l.group->key;
    for (int i = 0; i < count; i++)
        key = weft_i_key_of(key, &ranks[i], sizeof ranks[i]);
    key = weft_i_key_of(key, &times, sizeof times);
    snprintf(group_text, sizeof group_text, "x/%016llx%016llx", (unsigned long long)key.word[0],
             (unsigned long long)key.word[1]);
}

static const char *key_of(const char *last)
{
    static char key[128];
    snprintf(key, sizeof key, "%s/%s", group_text, last);
    return key;
}

/* As soon as our plan is there, so are the others'. */
static void put_plans(void)
{
    weft_store_value value = {0};
    wire_plan mine;
    const char *key = key_of("0/1");
    bool there = false;
    CHECK_OK(weft_store_check(l.data, 1, &key, &there));
    if (!there)
        return;
    CHECK_OK(weft_store_get(l.data, key, WEFT_STORE_NOW, &value));
    CHECK_INT(value.bytes, sizeof mine);
    memcpy(&mine, value.data, sizeof mine);
    weft_store_value_clear(&value);
    CHECK_INT(mine.bytes, sizeof mine - 8);
    CHECK(mine.name == (named ? weft_i_registry_hash(named) : 0));
    CHECK(mine.tag == weft_i_registry_hash(tagged ? tagged : ""));
    for (int rank = 0; rank < SIZE; rank++) {
        wire_plan theirs = mine;
        char last[16];
        theirs.name += others[rank].name;
        theirs.tag += others[rank].tag;
        theirs.failure = others[rank].failure;
        snprintf(last, sizeof last, "0/%d", rank);
        if (rank != ME)
            put(&l, key_of(last), &theirs, sizeof theirs);
    }
}

/* What fails is not the others'. */
static void follow(script *s, int request)
{
    const weft_i_os *before = weft_i_os_now;
    (void)s, (void)request;
    weft_i_os_now = &weft_i_os_linux;
    put_plans();
    weft_i_os_now = before;
}

static const int all_ranks[SIZE] = {0, 1, 2};

static void begin(void)
{
    l = lonely_open(ME, SIZE);
    snprintf(l.group->name, sizeof l.group->name, "0");
    memset(others, 0, sizeof others);
    named = tagged = NULL;
    name_group(all_ranks, SIZE, 0);
    l.script->before = follow;
    l.script->requests = 0;
}

static weft_group *make(const weft_group_opts *opts)
{
    return weft_group_new_with(l.group, all_ranks, SIZE, opts);
}

static void refused(weft_group *group, weft_status status, const char *message)
{
    CHECK(!group);
    said(weft_last_status(), status, message);
}

/* ---- made ---- */

TEST(test_group_remote_made)
{
    begin();
    for (uint32_t times = 0; times < 3; times++) {
        char name[16] = "0/0-2";
        if (times)
            snprintf(name, sizeof name, "0/0-2#%u", times);
        name_group(all_ranks, SIZE, times);
        weft_group *group = make(NULL);
        if (!group)
            FAIL("%s", weft_last_error());
        CHECK(weft_size(group) == SIZE && weft_rank(group) == ME);
        if (strcmp(weft_group_name(group), name) != 0)
            FAIL("it is called %s, not %s", weft_group_name(group), name);
        CHECK(is_there(&l, key_of("0/1")) && !is_there(&l, key_of("end")));
        CHECK_INT(weft_last_status(), WEFT_OK);
    }
    lonely_close(&l);
}

/* A list in another order is another group; sorted it is the same. */
TEST(test_group_remote_orders)
{
    static const int turned[SIZE] = {2, 1, 0};
    begin();
    name_group(turned, SIZE, 0);
    weft_group *group = weft_group_new_with(l.group, turned, SIZE, NULL);
    CHECK(group && weft_group_world_rank(group, 0) == 2);
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.sorted = true;
    name_group(all_ranks, SIZE, 0);
    group = weft_group_new_with(l.group, turned, SIZE, &opts);
    CHECK(group && weft_group_world_rank(group, 0) == 0 && weft_group_world_rank(group, 2) == 2);
    lonely_close(&l);
}

/* ---- not made ---- */

TEST(test_group_remote_plans)
{
    static const struct {
        int rank;
        uint64_t name, tag;
        int64_t failure;
        weft_status status;
        const char *said;
    } cases[] = {
        {0, 1, 0, 0, WEFT_ERR_MISMATCH,
         "group_new \"0/0-2\": ranks 0 and 1 of the world gave it different names"},
        {2, 1, 0, 0, WEFT_ERR_MISMATCH,
         "group_new \"0/0-2\": ranks 0 and 2 of the world gave it different names"},
        {2, 0, 1, 0, WEFT_ERR_MISMATCH,
         "group_new \"0/0-2\": ranks 0 and 2 of the world gave it different tags"},
        {2, 1, 1, 0, WEFT_ERR_MISMATCH,
         "group_new \"0/0-2\": ranks 0 and 2 of the world gave it different names"},
        {0, 0, 0, WEFT_ERR_EXISTS, WEFT_ERR_EXISTS,
         "group_new \"0/0-2\": rank 0 of the world could not take part"},
        {2, 1, 1, WEFT_ERR_NO_MEMORY, WEFT_ERR_NO_MEMORY,
         "group_new \"0/0-2\": rank 2 of the world could not take part"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[200];
        begin();
        others[cases[i].rank] =
            (wire_plan){.name = cases[i].name, .tag = cases[i].tag, .failure = cases[i].failure};
        snprintf(wanted, sizeof wanted, "%s", cases[i].said);
        if (cases[i].failure)
            snprintf(wanted, sizeof wanted, "%s (%s)", cases[i].said,
                     weft_strerror(cases[i].status));
        refused(make(NULL), cases[i].status, wanted);
        CHECK(!is_there(&l, key_of("end"))); /* all have seen it: nobody has to be told */
        memset(others, 0, sizeof others);
        name_group(all_ranks, SIZE, 1); /* they have met, so the next one is another */
        weft_group *next = make(NULL);
        CHECK(next && !strcmp(weft_group_name(next), "0/0-2#1"));
        lonely_close(&l);
    }
}

/* This rank has no place for it: it meets the others all the same, and keeps its own reason. */
TEST(test_group_remote_own_failure)
{
    begin();
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.name = named = "mine";
    CHECK(make(&opts));
    name_group(all_ranks, SIZE, 1);
    CHECK(!make(&opts));
    CHECK_INT(weft_last_status(), WEFT_ERR_EXISTS);
    CHECK(!strstr(weft_last_error(), "could not take part"));
    CHECK(is_there(&l, key_of("0/1")));
    lonely_close(&l);
}

/* A failure is told to the others, with our rank, unless it was only late; and taken back when the
 * rank comes again. */
TEST(test_group_remote_refusal)
{
    wire_decision no = {ME, WEFT_ERR_NO_MEMORY}, theirs = {2, WEFT_ERR_NO_MEMORY};
    begin();
    l.script->before = NULL;
    l.group->timeout_ms = 1;
    CHECK(!make(NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
    weft_clear_error();
    CHECK(!is_there(&l, key_of("end")));
    lonely_close(&l);
    begin();
    l.script->before = NULL;
    l.script->fails_at = 3;
    l.script->fails_with = WEFT_ERR_NO_MEMORY;
    CHECK(!make(NULL));
    said(weft_last_status(), WEFT_ERR_NO_MEMORY, "the script wants request 3 to fail");
    holds(&l, key_of("end"), &no, sizeof no);
    l.script->fails_at = 0;
    l.script->before = follow;
    l.group->timeout_ms = 5000;
    weft_group *group = make(NULL);
    CHECK(group && !strcmp(weft_group_name(group), "0/0-2"));
    CHECK(!is_there(&l, key_of("end")));
    name_group(all_ranks, SIZE, 1); /* another's refusal stands */
    put(&l, key_of("end"), &theirs, sizeof theirs);
    l.script->before = NULL;
    refused(
        make(NULL), WEFT_ERR_PEER_LEFT,
        "rank 1 of 3 in group \"0/0-2\", group_new: rank 2 of the world could not take part (out "
        "of memory)");
    holds(&l, key_of("end"), &theirs, sizeof theirs);
    lonely_close(&l);
}

static void fail_from_the_third(script *s, int request)
{
    s->fails_at = request >= 3 ? request : 0;
}

/* The others cannot be told either: the reason is still the first failure. */
TEST(test_group_remote_refusal_is_not_heard)
{
    begin();
    l.script->before = fail_from_the_third;
    l.script->fails_with = WEFT_ERR_NO_MEMORY;
    refused(make(NULL), WEFT_ERR_NO_MEMORY, "the script wants request 3 to fail");
    CHECK(l.script->requests > 3 && !is_there(&l, key_of("end")));
    lonely_close(&l);
}

static void fail_always(script *s, int request)
{
    s->fails_at = request;
}

/* That the others do not hear of its end is no error of who destroys it. */
TEST(test_group_remote_end_is_not_heard)
{
    begin();
    weft_group *group = make(NULL);
    CHECK(group);
    weft_clear_error();
    int before = l.script->requests;
    l.script->before = fail_always;
    l.script->fails_with = WEFT_ERR_UNREACHABLE;
    CHECK_OK(weft_group_destroy(group));
    CHECK(l.script->requests > before);
    CHECK(weft_last_status() == WEFT_OK && !weft_last_error()[0]);
    lonely_close(&l);
}

/* Whatever allocation fails here: the group is there, or an error, and then it can be made. */
TEST(test_group_remote_without_memory)
{
    int failed = 0, n = 1;
    for (bool fired = true; fired; n++) {
        begin();
        l.group->timeout_ms = 5000;
        fault_arm(n);
        weft_group *group = make(NULL);
        fired = fault_disarm();
        CHECK(group || (fired && weft_last_status() < 0));
        CHECK(!group || is_there(&l, key_of("0/1"))); /* nobody has one without meeting */
        if (!group && !is_there(&l, key_of("0/1")) && !is_there(&l, key_of("end")))
            FAIL("allocation %d: the others wait for a rank that has given up", n);
        failed += !group;
        weft_clear_error();
        lonely_close(&l);
    }
    CHECK(failed > 3 && n < 300);
}

/* ---- options ---- */

TEST(test_group_remote_options)
{
    char longest[WEFT_I_GROUP_NAME + 1], wanted[200], stored[WEFT_I_GROUP_TAG];
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
#define OPTION(field_, value_, status_, message_)               \
    do {                                                        \
        weft_group_opts opts = WEFT_GROUP_OPTS_INIT;            \
        begin();                                                \
        opts.field_ = (value_);                                 \
        named = opts.name;                                      \
        if (opts.tag && !(status_)) {                           \
            CHECK_OK(weft_i_group_store_tag(opts.tag, stored)); \
            tagged = stored;                                    \
        }                                                       \
        l.script->before = follow;                              \
        if (status_) {                                          \
            refused(make(&opts), (status_), (message_));        \
            CHECK_INT(l.script->requests, 0);                   \
        } else if (!make(&opts)) {                              \
            FAIL("%s", weft_last_error());                      \
        }                                                       \
        lonely_close(&l);                                       \
    } while (0)
    snprintf(wanted, sizeof wanted, "a group's name has at most %d characters",
             WEFT_I_GROUP_NAME - 1);
    OPTION(name, longest, WEFT_ERR_INVALID_ARG, wanted);
    OPTION(name, longest + 1, WEFT_OK, "");
    snprintf(wanted, sizeof wanted, "a group's description has at most %d characters",
             WEFT_I_GROUP_NAME - 1);
    OPTION(description, longest, WEFT_ERR_INVALID_ARG, wanted);
    OPTION(description, longest + 1, WEFT_OK, "");
    OPTION(name, "0", WEFT_ERR_INVALID_ARG,
           "\"0\" cannot be a group's name: \"0\" is the world's, and names with '/' are derived");
    OPTION(name, "a/b", WEFT_ERR_INVALID_ARG,
           "\"a/b\" cannot be a group's name: \"0\" is the world's, and names with '/' are "
           "derived");
    OPTION(name, "00", WEFT_OK, "");
    OPTION(tag, "ptd:x", WEFT_ERR_INVALID_ARG,
           "\"ptd:x\" cannot be a group's tag: \"ptd:\" marks groups without one");
    OPTION(tag, "ptdx", WEFT_OK, "");
    OPTION(tag, "x", WEFT_OK, "");
    OPTION(timeout_ms, WEFT_FOREVER, WEFT_OK, "");
    OPTION(timeout_ms, 5000, WEFT_OK, "");
    snprintf(wanted, sizeof wanted,
             "a group's limit is a positive number of ms, WEFT_FOREVER, or 0 for its parent's, not "
             "%lld",
             (long long)WEFT_FOREVER - 1);
    OPTION(timeout_ms, WEFT_FOREVER - 1, WEFT_ERR_INVALID_ARG, wanted);
}

/* ---- ranks, names and tags ---- */

TEST(test_group_remote_ranks)
{
    static const int outside[] = {0, 1, 3}, negative[] = {-1, 1}, twice[] = {1, 2, 1},
                     without[] = {0, 2}, alone[] = {1};
    begin();
    refused(weft_group_new_with(l.group, outside, 3, NULL), WEFT_ERR_INVALID_ARG,
            "rank 3 is outside group \"0\" of 3 ranks");
    refused(weft_group_new_with(l.group, negative, 2, NULL), WEFT_ERR_INVALID_ARG,
            "rank -1 is outside group \"0\" of 3 ranks");
    refused(weft_group_new_with(l.group, twice, 3, NULL), WEFT_ERR_INVALID_ARG,
            "rank 1 is named twice");
    refused(weft_group_new_with(l.group, all_ranks, 0, NULL), WEFT_ERR_INVALID_ARG,
            "a group of \"0\" has 1 to 3 ranks, not 0");
    refused(weft_group_new_with(l.group, all_ranks, 4, NULL), WEFT_ERR_INVALID_ARG,
            "a group of \"0\" has 1 to 3 ranks, not 4");
    refused(weft_group_new(l.group, NULL, 3, "x"), WEFT_ERR_INVALID_ARG,
            "a group of \"0\" has 1 to 3 ranks, not 3");
    CHECK(!weft_group_new_with(l.group, without, 2, NULL)); /* not a member: no error */
    CHECK_INT(weft_last_status(), WEFT_OK);
    CHECK_INT(l.script->requests, 0);
    name_group(all_ranks, SIZE, 0);
    weft_group *all = weft_group_new_with(l.group, NULL, 0, NULL); /* all of them */
    CHECK(all && weft_size(all) == SIZE);
    name_group(alone, 1, 0);
    weft_group *one = weft_group_new_with(l.group, alone, 1, NULL);
    CHECK(one && weft_size(one) == 1 && weft_rank(one) == 0);
    lonely_close(&l);
}

/* A name that would leave no room for a number is shortened, and then tells lists apart by a hash. */
TEST(test_group_remote_names)
{
    for (int more = 0; more < 2; more++) {
        begin();
        char wanted[WEFT_I_GROUP_NAME];
        int length = WEFT_I_GROUP_NAME - 16 - (int)strlen("/0-2") + more;
        memset(l.group->name, 'p', sizeof l.group->name);
        l.group->name[length] = 0;
        weft_group *group = make(NULL);
        CHECK(group);
        snprintf(wanted, sizeof wanted, "%.*s/0-2", length, l.group->name);
        CHECK_INT(!strcmp(weft_group_name(group), wanted), !more);
        if (more) {
            CHECK_INT(strlen(weft_group_name(group)), 24 + 1 + 16);
            CHECK_INT(strspn(weft_group_name(group), "p"), 24);
            CHECK_INT(weft_group_name(group)[24], '~');
        }
        name_group(all_ranks, SIZE, 1);
        char first[WEFT_I_GROUP_NAME];
        snprintf(first, sizeof first, "%s", weft_group_name(group));
        weft_group *next = make(NULL);
        CHECK(next && !strncmp(weft_group_name(next), first, strlen(first)) &&
              !strcmp(weft_group_name(next) + strlen(first), "#1"));
        lonely_close(&l);
    }
}

/* A tag and a list name a group: the same ones give it again, and nobody is asked. */
TEST(test_group_remote_tags)
{
    begin();
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.tag = "t";
    l.script->before = NULL;
    l.group->timeout_ms = 1;
    CHECK(!make(&opts)); /* nobody came, so there is none */
    weft_clear_error();
    lonely_close(&l);
    begin();
    char stored[WEFT_I_GROUP_TAG];
    CHECK_OK(weft_i_group_store_tag("t", stored));
    tagged = stored;
    weft_group *group = make(&opts);
    CHECK(group);
    int requests = l.script->requests;
    CHECK(make(&opts) == group);
    CHECK_INT(l.script->requests, requests);
    lonely_close(&l);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

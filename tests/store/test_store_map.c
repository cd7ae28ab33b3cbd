/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/map.c */
/* The data of a store: random requests against a plain model, every limit to the byte, who waits in
 * which order, and nothing changed by a request that fails. */
#include "fault.h"
#include "harness.h"

#include "store/map.h"

static weft_i_store_map map;
static weft_i_store_answer answer;
static weft_i_store_outcome outcome;
static size_t entry_overhead; /* bytes of an entry beside its key, as the map counts them */

static weft_i_view view(const char *text)
{
    return (weft_i_view){text, strlen(text)};
}

static void open_map(size_t limit)
{
    CHECK_OK(weft_i_store_map_open(&map, limit));
}

static void close_map(void)
{
    weft_i_store_map_close(&map);
    CHECK(!map.buckets && !map.bytes);
}

/* Carries out a request of one key and one value. */
static weft_status ask(weft_i_store_op op, weft_i_view key, weft_i_view value, int64_t number,
                       weft_i_store_waiter *waiter)
{
    weft_i_store_request request = {.op = op,
                                    .may_block = waiter != NULL,
                                    .keys = 1,
                                    .key = &key,
                                    .values = 1,
                                    .value = &value,
                                    .number = number};
    weft_i_store_map_apply(&map, &request, waiter, &answer, &outcome);
    return answer.status;
}

static weft_status set(const char *key, const char *value)
{
    return ask(WEFT_I_STORE_SET, view(key), view(value), 0, NULL);
}

static weft_status add(const char *key, int64_t number)
{
    return ask(WEFT_I_STORE_ADD, view(key), view(""), number, NULL);
}

static weft_status push(const char *key, const char *value)
{
    return ask(WEFT_I_STORE_PUSH, view(key), view(value), 0, NULL);
}

static weft_status pop(const char *key)
{
    return ask(WEFT_I_STORE_POP, view(key), view(""), 0, NULL);
}

static int64_t count(weft_i_store_op op, const char *key)
{
    CHECK_STATUS(ask(op, view(key), view(""), 0, NULL), WEFT_OK);
    CHECK(!outcome.changed && !outcome.blocked && !outcome.taken);
    return answer.number;
}

static void expect(const char *key, const char *value)
{
    CHECK_STATUS(ask(WEFT_I_STORE_GET, view(key), view(""), 0, NULL), WEFT_OK);
    CHECK_INT(answer.values, 1);
    if (answer.one.bytes != strlen(value) || memcmp(answer.one.data, value, answer.one.bytes))
        FAIL("%s holds \"%.*s\", not \"%s\"", key, (int)answer.one.bytes,
             (const char *)answer.one.data, value);
    CHECK(!outcome.changed);
}

static void measure_overhead(void)
{
    open_map(SIZE_MAX / 2);
    CHECK_OK(set("k", ""));
    entry_overhead = map.bytes - 1;
    close_map();
}

/* ---- against a model ---- */

enum { KEYS = 12, DEEP = 6, LONG = 24 };
typedef struct slot {
    char kind; /* 0: nothing, 'v': a value, 'q': a queue */
    size_t length, item[DEEP];
    char text[DEEP][LONG];
} slot;
static slot model[KEYS];
static const char *const names[KEYS] = {"a",    "b",   "ab",   "abc",    "a/b", "b/a",
                                        "a/b/", "a/c", "long", "longer", "z",   "zz"};

static size_t model_bytes(void)
{
    size_t bytes = 0;
    for (int k = 0; k < KEYS; k++) {
        if (model[k].kind)
            bytes += entry_overhead + strlen(names[k]);
        if (model[k].kind == 'v')
            bytes += model[k].item[0];
        for (size_t i = 0; model[k].kind == 'q' && i < model[k].length; i++)
            bytes += sizeof(weft_i_store_item) + model[k].item[i];
    }
    return bytes;
}

static int64_t model_keys(const char *prefix)
{
    int64_t keys = 0;
    for (int k = 0; k < KEYS; k++)
        keys += model[k].kind && !strncmp(names[k], prefix, strlen(prefix));
    return keys;
}

static void model_set(slot *s, const char *text)
{
    *s = (slot){.kind = 'v', .length = 1, .item = {strlen(text)}};
    snprintf(s->text[0], LONG, "%s", text);
}

static void play_value(slot *s, const char *key, unsigned dice)
{
    char text[LONG];
    snprintf(text, sizeof text, "%u", dice % 100000);
    if (dice & 1) {
        CHECK_STATUS(set(key, text), WEFT_OK);
        CHECK(outcome.changed);
        model_set(s, text);
    } else if (s->kind == 'q') {
        CHECK_STATUS(ask(WEFT_I_STORE_APPEND, view(key), view("1"), 0, NULL), WEFT_ERR_TYPE);
        CHECK_STATUS(add(key, 1), WEFT_ERR_TYPE);
        CHECK(!outcome.changed);
    } else if (dice & 2) {
        bool fits = s->kind && strlen(s->text[0]) < 8;
        CHECK_STATUS(ask(WEFT_I_STORE_APPEND, view(key), view(fits ? "7" : ""), 0, NULL), WEFT_OK);
        CHECK_INT(outcome.changed, fits || !s->kind);
        char longer[LONG];
        snprintf(longer, sizeof longer, "%.20s%s", s->kind ? s->text[0] : "", fits ? "7" : "");
        model_set(s, longer);
    } else {
        int64_t before = s->kind ? atoll(s->text[0]) : 0, more = (int64_t)(dice % 7) - 3;
        if (s->kind && !s->item[0]) {
            CHECK_STATUS(add(key, more), WEFT_ERR_TYPE); /* "" is no number */
            return;
        }
        CHECK_STATUS(add(key, more), WEFT_OK);
        CHECK_INT(answer.number, before + more);
        CHECK_INT(outcome.changed, !s->kind || more != 0);
        snprintf(text, sizeof text, "%lld", (long long)(before + more));
        if (!s->kind || more)
            model_set(s, text);
    }
}

static void play_queue(slot *s, const char *key, unsigned dice)
{
    char text[LONG];
    snprintf(text, sizeof text, "%.*s", (int)(dice % 9), "elements");
    if (s->kind == 'v') {
        CHECK_STATUS(push(key, text), WEFT_ERR_TYPE);
        CHECK_STATUS(pop(key), WEFT_ERR_TYPE);
        CHECK_STATUS(ask(WEFT_I_STORE_LENGTH, view(key), view(""), 0, NULL), WEFT_ERR_TYPE);
    } else if ((dice & 16) && s->length < DEEP) {
        CHECK_STATUS(push(key, text), WEFT_OK);
        CHECK(outcome.changed);
        s->kind = 'q';
        s->item[s->length] = strlen(text);
        snprintf(s->text[s->length++], LONG, "%s", text);
        CHECK_INT(answer.number, s->length);
    } else if (!s->length) {
        CHECK_STATUS(pop(key), WEFT_ERR_EMPTY);
        CHECK(!outcome.changed && !outcome.taken);
    } else {
        CHECK_STATUS(pop(key), WEFT_OK);
        weft_i_store_item *item = outcome.taken;
        CHECK(outcome.changed && item && item->bytes == s->item[0]);
        CHECK(answer.one.data == item->data && !memcmp(item->data, s->text[0], item->bytes));
        if (dice & 32) {
            weft_i_store_map_put_back(&map, view(key), item);
            return;
        }
        weft_i_store_map_drop(item);
        s->length--;
        memmove(s->item, s->item + 1, sizeof s->item - sizeof s->item[0]);
        memmove(s->text, s->text + 1, sizeof s->text - sizeof s->text[0]);
        if (!s->length)
            *s = (slot){0};
    }
}

static void play_delete(slot *s, const char *key)
{
    CHECK_STATUS(ask(WEFT_I_STORE_DELETE, view(key), view(""), 0, NULL), WEFT_OK);
    CHECK_INT(answer.number, s->kind != 0);
    CHECK_INT(outcome.changed, s->kind != 0);
    *s = (slot){0};
}

static void compare_with_model(void)
{
    static const char *const prefixes[] = {"", "a", "a/", "a/b", "long", "longest", "zz", "y"};
    CHECK_INT(map.bytes, model_bytes());
    CHECK_INT(map.keys, model_keys(""));
    CHECK_INT(map.entries, model_keys(""));
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        CHECK_INT(count(WEFT_I_STORE_NUM_KEYS, prefixes[i]), model_keys(prefixes[i]));
    for (int k = 0; k < KEYS; k++) {
        CHECK_INT(count(WEFT_I_STORE_CHECK, names[k]), model[k].kind != 0);
        if (model[k].kind == 'v')
            expect(names[k], model[k].text[0]);
        else
            CHECK_STATUS(ask(WEFT_I_STORE_GET, view(names[k]), view(""), 0, NULL),
                         model[k].kind ? WEFT_ERR_TYPE : WEFT_ERR_NOT_FOUND);
        if (model[k].kind != 'v')
            CHECK_INT(count(WEFT_I_STORE_LENGTH, names[k]), model[k].length);
    }
}

TEST(test_store_map_model)
{
    measure_overhead();
    memset(model, 0, sizeof model);
    open_map(SIZE_MAX / 2);
    uint64_t state = 1;
    for (int step = 0; step < 4000; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned dice = (unsigned)(state >> 33), k = (unsigned)(state >> 50) % KEYS;
        if (dice % 5 == 0)
            play_delete(&model[k], names[k]);
        else if (dice % 5 < 3)
            play_queue(&model[k], names[k], dice >> 3);
        else
            play_value(&model[k], names[k], dice >> 3);
        compare_with_model();
    }
    close_map();
}

TEST(test_store_map_compare_set)
{
    open_map(SIZE_MAX / 2);
    static const struct {
        const char *now, *expected;
        bool stored;
    } cases[] = {{"abc", "abc", true}, {"abc", "abd", false}, {"abc", "ab", false},
                 {"abc", "", false},   {"", "", true},        {"", "a", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(set("k", cases[i].now));
        weft_i_view key = view("k"), values[2] = {view(cases[i].expected), view("new")};
        weft_i_store_request request = {
            .op = WEFT_I_STORE_COMPARE_SET, .keys = 1, .key = &key, .values = 2, .value = values};
        weft_i_store_map_apply(&map, &request, NULL, &answer, &outcome);
        CHECK_INT(answer.status, WEFT_OK);
        CHECK_INT(answer.number, cases[i].stored);
        CHECK_INT(outcome.changed, cases[i].stored);
        const char *left = cases[i].stored ? "new" : cases[i].now;
        CHECK(answer.values == 1 && answer.one.bytes == strlen(left) &&
              !memcmp(answer.one.data, left, strlen(left)));
        expect("k", left);
    }
    CHECK_OK(push("q", "x"));
    weft_i_view key = view("q"), values[2] = {view(""), view("new")};
    weft_i_store_request request = {
        .op = WEFT_I_STORE_COMPARE_SET, .keys = 1, .key = &key, .values = 2, .value = values};
    weft_i_store_map_apply(&map, &request, NULL, &answer, &outcome);
    CHECK_INT(answer.status, WEFT_ERR_TYPE);
    CHECK_INT(count(WEFT_I_STORE_LENGTH, "q"), 1);
    close_map();
}

/* What counts as a number, and what is one too many of it. */
TEST(test_store_map_numbers)
{
    static const char *const bad[] = {"",
                                      " 1",
                                      "+1",
                                      "1 ",
                                      "-",
                                      "--1",
                                      "1x",
                                      "0x10",
                                      "/1",
                                      ":1",
                                      "1.0",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "00000000000000000000001",
                                      "000000000000000000000001",
                                      "99999999999999999999999"};
    open_map(SIZE_MAX / 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bool zeros = !strncmp(bad[i], "000", 3) && strlen(bad[i]) < 24;
        CHECK_OK(set("n", bad[i]));
        if (add("n", 1) != (zeros ? WEFT_OK : WEFT_ERR_TYPE))
            FAIL("adding to \"%s\" gives %d", bad[i], answer.status);
        expect("n", zeros ? "2" : bad[i]);
    }
    CHECK_OK(set("n", "-9223372036854775808"));
    CHECK_STATUS(add("n", -1), WEFT_ERR_INVALID_ARG);
    expect("n", "-9223372036854775808");
    CHECK_OK(add("n", 0));
    CHECK(answer.number == INT64_MIN && !outcome.changed);
    CHECK_OK(add("n", INT64_MAX));
    expect("n", "-1");
    CHECK_OK(set("n", "9"));
    CHECK_OK(add("n", -9));
    expect("n", "0");
    close_map();
}

/* ---- limits, to the byte ---- */

TEST(test_store_map_limits)
{
    measure_overhead();
    size_t item = sizeof(weft_i_store_item);
    open_map(entry_overhead + 1 + 10);
    CHECK_OK(set("k", "0123456789"));
    CHECK_STATUS(set("k", "0123456789a"), WEFT_ERR_LIMIT);
    expect("k", "0123456789");
    CHECK_OK(set("k", "9876543210")); /* what it replaces makes room */
    CHECK_STATUS(ask(WEFT_I_STORE_APPEND, view("k"), view("x"), 0, NULL), WEFT_ERR_LIMIT);
    CHECK_OK(set("k", "987654321"));
    CHECK_OK(ask(WEFT_I_STORE_APPEND, view("k"), view("x"), 0, NULL));
    expect("k", "987654321x");
    CHECK_STATUS(set("l", ""), WEFT_ERR_LIMIT);
    CHECK(!outcome.changed);
    CHECK_INT(map.keys, 1);
    close_map();
    open_map(entry_overhead + 1 + 2 * item + 3);
    CHECK_OK(push("q", "ab"));
    CHECK_STATUS(push("q", "cd"), WEFT_ERR_LIMIT);
    CHECK_OK(push("q", "c"));
    CHECK_STATUS(push("q", ""), WEFT_ERR_LIMIT);
    CHECK_INT(count(WEFT_I_STORE_LENGTH, "q"), 2);
    close_map();
    open_map(entry_overhead + 1 + item);
    CHECK_OK(push("q", ""));
    close_map();
    open_map(entry_overhead + item);
    CHECK_STATUS(push("q", ""), WEFT_ERR_LIMIT);
    CHECK_INT(map.entries, 0);
    close_map();
}

static weft_status multi(weft_i_store_op op, size_t keys, const weft_i_view *key,
                         const weft_i_view *value, weft_i_store_waiter *waiter)
{
    weft_i_store_request request = {.op = op,
                                    .may_block = waiter != NULL,
                                    .keys = keys,
                                    .key = key,
                                    .values = value ? keys : 0,
                                    .value = value};
    weft_i_store_map_apply(&map, &request, waiter, &answer, &outcome);
    return answer.status;
}

TEST(test_store_map_multi)
{
    measure_overhead();
    weft_i_view keys[] = {view("a"), view("bb")}, values[] = {view("1"), view("")};
    open_map(2 * entry_overhead + 3 + 1);
    CHECK_STATUS(multi(WEFT_I_STORE_MULTI_SET, 2, keys, values, NULL), WEFT_OK);
    CHECK(outcome.changed);
    expect("a", "1");
    expect("bb", "");
    CHECK_STATUS(multi(WEFT_I_STORE_MULTI_SET, 0, keys, values, NULL), WEFT_OK);
    CHECK(!outcome.changed);
    CHECK_STATUS(multi(WEFT_I_STORE_CHECK, 2, keys, NULL, NULL), WEFT_OK);
    CHECK_INT(answer.number, 1);
    CHECK_OK(ask(WEFT_I_STORE_DELETE, view("bb"), view(""), 0, NULL));
    CHECK_STATUS(multi(WEFT_I_STORE_CHECK, 2, keys, NULL, NULL), WEFT_OK);
    CHECK_INT(answer.number, 0);
    CHECK_STATUS(multi(WEFT_I_STORE_MULTI_GET, 2, keys, NULL, NULL), WEFT_ERR_NOT_FOUND);
    CHECK_STATUS(multi(WEFT_I_STORE_WAIT, 2, keys, NULL, NULL), WEFT_ERR_NOT_FOUND);
    CHECK_STATUS(multi(WEFT_I_STORE_WAIT, 1, keys, NULL, NULL), WEFT_OK);
    close_map();
    open_map(2 * entry_overhead + 3);
    CHECK_STATUS(multi(WEFT_I_STORE_MULTI_SET, 2, keys, values, NULL), WEFT_ERR_LIMIT);
    CHECK(!map.entries && !map.bytes && !outcome.changed);
    CHECK_OK(push("a", ""));
    CHECK_STATUS(multi(WEFT_I_STORE_MULTI_GET, 1, keys, NULL, NULL), WEFT_ERR_TYPE);
    close_map();
}

/* An answer may be as large as a message, its head included, and not a byte larger. */
TEST(test_store_map_largest_answer)
{
    size_t most = WEFT_I_STORE_MESSAGE_BYTES - 64 - 2 * weft_i_wire_blob_bytes(0);
    char *big = calloc(1, WEFT_STORE_VALUE_BYTES + 1);
    CHECK(big);
    weft_i_view keys[] = {view("a"), view("b")};
    open_map(SIZE_MAX / 2);
    weft_i_view rest = {big, most - WEFT_STORE_VALUE_BYTES};
    CHECK_OK(ask(WEFT_I_STORE_SET, keys[0], (weft_i_view){big, WEFT_STORE_VALUE_BYTES}, 0, NULL));
    CHECK_OK(ask(WEFT_I_STORE_SET, keys[1], rest, 0, NULL));
    CHECK_STATUS(multi(WEFT_I_STORE_MULTI_GET, 2, keys, NULL, NULL), WEFT_OK);
    CHECK(answer.values == 2 && answer.value[0].bytes == WEFT_STORE_VALUE_BYTES &&
          answer.value[1].bytes == rest.bytes);
    weft_i_store_answer_clear(&answer);
    CHECK_OK(ask(WEFT_I_STORE_APPEND, keys[1], view("x"), 0, NULL));
    CHECK_STATUS(multi(WEFT_I_STORE_MULTI_GET, 2, keys, NULL, NULL), WEFT_ERR_LIMIT);
    CHECK_INT(answer.values, 0);
    CHECK_STATUS(ask(WEFT_I_STORE_APPEND, keys[0], view("x"), 0, NULL), WEFT_ERR_LIMIT);
    CHECK_OK(
        ask(WEFT_I_STORE_SET, keys[0], (weft_i_view){big, WEFT_STORE_VALUE_BYTES - 1}, 0, NULL));
    CHECK_OK(ask(WEFT_I_STORE_APPEND, keys[0], view("x"), 0, NULL));
    close_map();
    free(big);
}

/* Many keys: the buckets double as soon as there are more keys than buckets. */
TEST(test_store_map_widens)
{
    open_map(SIZE_MAX / 2);
    char key[16];
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "key%d", i);
        CHECK_OK(add(key, i + 1));
        CHECK(map.bucket_count >= map.entries && map.bucket_count < 4 * map.entries + 64);
        CHECK_INT(map.bucket_count & (map.bucket_count - 1), 0);
        CHECK_INT(count(WEFT_I_STORE_NUM_KEYS, "key"), i + 1);
    }
    int used = 0; /* and they are spread over them */
    for (size_t bucket = 0; bucket < map.bucket_count; bucket++)
        used += map.buckets[bucket] != NULL;
    CHECK(used > 150);
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "key%d", i);
        CHECK_OK(add(key, 0));
        CHECK_INT(answer.number, i + 1);
        CHECK_OK(ask(WEFT_I_STORE_DELETE, view(key), view(""), 0, NULL));
        CHECK_INT(map.entries, 299 - i);
    }
    CHECK_INT(map.bytes, 0);
    close_map();
}

/* ---- waiters ---- */

static void hang(const char *key, weft_i_store_waiter *waiter)
{
    CHECK_STATUS(ask(WEFT_I_STORE_GET, view(key), view(""), 0, waiter), WEFT_OK);
    CHECK(outcome.blocked && waiter->link && !answer.values);
}

TEST(test_store_map_waiters_in_order)
{
    weft_i_store_waiter w[7] = {{0}};
    open_map(SIZE_MAX / 2);
    for (int i = 0; i < 4; i++)
        hang("a", &w[i]);
    hang("b", &w[4]);
    hang("b", &w[5]);
    CHECK_INT(map.entries, 2);
    CHECK_INT(map.keys, 0);
    CHECK_INT(count(WEFT_I_STORE_CHECK, "a"), 0);
    CHECK_INT(count(WEFT_I_STORE_LENGTH, "a"), 0);
    weft_i_store_map_unhang(&map, &w[1]); /* in the middle */
    weft_i_store_map_unhang(&map, &w[3]); /* the last */
    hang("a", &w[6]);
    CHECK(!weft_i_store_map_ready(&map));
    CHECK_OK(set("b", "1"));
    CHECK_OK(set("a", "1"));
    CHECK(!w[4].entry && !w[0].entry);
    weft_i_store_map_unhang(&map, &w[5]); /* from the list of those to try again */
    CHECK(weft_i_store_map_ready(&map) == &w[4] && !w[4].link);
    CHECK(weft_i_store_map_ready(&map) == &w[0]);
    weft_i_store_map_unhang(&map, &w[6]); /* the last of that list */
    CHECK(weft_i_store_map_ready(&map) == &w[2]);
    CHECK(!weft_i_store_map_ready(&map));
    weft_i_store_map_unhang(&map, &w[2]); /* hangs nowhere: nothing happens */
    hang("c", &w[0]);
    CHECK_OK(push("c", "x"));
    hang("d", &w[1]);
    CHECK_OK(push("d", "x"));
    CHECK(weft_i_store_map_ready(&map) == &w[0] && weft_i_store_map_ready(&map) == &w[1]);
    CHECK(!weft_i_store_map_ready(&map));
    close_map();
}

/* A key that only waiters know is there as long as they wait, and costs until then. */
TEST(test_store_map_waiters_leave_nothing)
{
    weft_i_store_waiter w[3] = {{0}};
    open_map(SIZE_MAX / 2);
    hang("a", &w[0]);
    hang("a", &w[1]);
    CHECK_INT(map.entries, 1);
    weft_i_store_map_unhang(&map, &w[0]);
    CHECK_INT(map.entries, 1);
    weft_i_store_map_unhang(&map, &w[1]);
    CHECK_INT(map.entries, 0);
    CHECK_INT(map.bytes, 0);
    hang("a", &w[0]);
    CHECK_OK(ask(WEFT_I_STORE_DELETE, view("a"), view(""), 0, NULL));
    CHECK_INT(answer.number, 0);
    CHECK(w[0].link && !outcome.changed);
    CHECK_OK(set("a", "1"));
    CHECK(weft_i_store_map_ready(&map) == &w[0]);
    CHECK_OK(ask(WEFT_I_STORE_DELETE, view("a"), view(""), 0, NULL));
    CHECK_INT(map.entries, 0);
    /* of several keys it hangs on the first that is missing */
    weft_i_view keys[] = {view("x"), view("y"), view("z")};
    CHECK_OK(set("x", "1"));
    CHECK_STATUS(multi(WEFT_I_STORE_WAIT, 3, keys, NULL, &w[0]), WEFT_OK);
    CHECK(outcome.blocked);
    CHECK_OK(set("z", "1"));
    CHECK(!weft_i_store_map_ready(&map));
    CHECK_OK(set("y", "1"));
    CHECK(weft_i_store_map_ready(&map) == &w[0]);
    CHECK_STATUS(multi(WEFT_I_STORE_WAIT, 3, keys, NULL, &w[0]), WEFT_OK);
    CHECK(!outcome.blocked && !w[0].link);
    /* who may not block is told at once, and who has nothing to hang up as well */
    CHECK_STATUS(ask(WEFT_I_STORE_GET, view("q"), view(""), 0, NULL), WEFT_ERR_NOT_FOUND);
    CHECK_STATUS(pop("q"), WEFT_ERR_EMPTY);
    weft_i_view q = view("q");
    weft_i_store_request now = {.op = WEFT_I_STORE_POP, .keys = 1, .key = &q};
    weft_i_store_map_apply(&map, &now, &w[2], &answer, &outcome);
    CHECK_INT(answer.status, WEFT_ERR_EMPTY);
    CHECK(!outcome.blocked && !w[2].link);
    CHECK_INT(map.entries, 3);
    close_map();
}

/* An element that nobody received goes to the front, wakes, or is lost where a value took the
 * name. */
TEST(test_store_map_put_back)
{
    weft_i_store_waiter w = {0};
    open_map(SIZE_MAX / 2);
    CHECK_OK(push("q", "1"));
    CHECK_OK(push("q", "2"));
    size_t bytes = map.bytes;
    CHECK_OK(pop("q"));
    weft_i_store_map_put_back(&map, view("q"), outcome.taken);
    CHECK_INT(map.bytes, bytes);
    CHECK_INT(map.keys, 1);
    CHECK_INT(count(WEFT_I_STORE_LENGTH, "q"), 2);
    CHECK_OK(pop("q"));
    weft_i_store_item *first = outcome.taken;
    CHECK(first->bytes == 1 && first->data[0] == '1');
    CHECK_OK(pop("q"));
    CHECK(outcome.taken->data[0] == '2');
    weft_i_store_map_drop(outcome.taken);
    CHECK(!map.keys && !map.entries && !map.bytes);
    CHECK_STATUS(ask(WEFT_I_STORE_POP, view("q"), view(""), 0, &w), WEFT_OK);
    CHECK(outcome.blocked);
    weft_i_store_map_put_back(&map, view("q"), first);
    CHECK(weft_i_store_map_ready(&map) == &w);
    CHECK_OK(push("q", "3")); /* behind it */
    CHECK_INT(answer.number, 2);
    CHECK_OK(pop("q"));
    first = outcome.taken;
    CHECK(first->data[0] == '1');
    CHECK_OK(pop("q"));
    CHECK(outcome.taken->data[0] == '3');
    weft_i_store_map_drop(outcome.taken);
    CHECK_OK(set("q", "value"));
    weft_i_store_map_put_back(&map, view("q"), first);
    expect("q", "value");
    CHECK_INT(map.keys, 1);
    close_map();
}

/* ---- without memory ---- */

static void fail_each(weft_status (*body)(void))
{
    for (int n = 1; n < 100; n++) {
        size_t bytes = map.bytes, keys = map.keys, entries = map.entries;
        fault_arm(n);
        weft_status status = body();
        bool fired = fault_disarm();
        weft_i_store_answer_clear(&answer);
        if (!fired) {
            CHECK_OK(status);
            return;
        }
        CHECK_INT(status, WEFT_ERR_NO_MEMORY);
        CHECK(!outcome.changed && !outcome.blocked && !outcome.taken);
        CHECK(map.bytes == bytes && map.keys == keys && map.entries == entries);
    }
    FAIL("it never succeeds");
}

static weft_status set_new(void)
{
    return set("new", "value");
}

static weft_status push_new(void)
{
    return push("queue", "element");
}

static weft_status append_more(void)
{
    return ask(WEFT_I_STORE_APPEND, view("new"), view("more"), 0, NULL);
}

static weft_status set_two(void)
{
    weft_i_view keys[] = {view("m1"), view("m2")}, values[] = {view("1"), view("2")};
    return multi(WEFT_I_STORE_MULTI_SET, 2, keys, values, NULL);
}

static weft_status get_two(void)
{
    weft_i_view keys[] = {view("m1"), view("m2")};
    return multi(WEFT_I_STORE_MULTI_GET, 2, keys, NULL, NULL);
}

static weft_i_store_waiter hopeful;
static weft_status wait_for_one(void)
{
    return ask(WEFT_I_STORE_GET, view("awaited"), view(""), 0, &hopeful);
}

TEST(test_store_map_without_memory)
{
    open_map(SIZE_MAX / 2);
    fail_each(set_new);
    expect("new", "value");
    fail_each(append_more);
    expect("new", "valuemore");
    fail_each(push_new);
    CHECK_INT(count(WEFT_I_STORE_LENGTH, "queue"), 1);
    fail_each(set_two);
    expect("m1", "1");
    expect("m2", "2");
    fail_each(get_two);
    hopeful = (weft_i_store_waiter){0};
    fail_each(wait_for_one);
    CHECK(hopeful.link);
    CHECK_OK(pop("queue"));
    fault_arm(1);
    weft_i_store_map_put_back(&map, view("queue"), outcome.taken); /* lost, with a warning */
    CHECK(fault_disarm());
    CHECK_INT(count(WEFT_I_STORE_LENGTH, "queue"), 0);
    close_map();
    fault_arm(1);
    weft_status status = weft_i_store_map_open(&map, 100);
    fault_disarm();
    CHECK_INT(status, WEFT_ERR_NO_MEMORY);
    close_map();
}

TEST(test_store_map_wills_are_for_servers)
{
    open_map(SIZE_MAX / 2);
    CHECK_STATUS(ask(WEFT_I_STORE_WILL, view("w"), view("v"), 0, NULL), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(ask(WEFT_I_STORE_OPS, view("w"), view("v"), 0, NULL), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(ask((weft_i_store_op)0, view("w"), view("v"), 0, NULL), WEFT_ERR_UNSUPPORTED);
    CHECK(!outcome.changed && !map.entries);
    close_map();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* lost elements are the point here */
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/store.c, store/prefix.c */
/*
 * The public calls of a store, above all kinds: what each asks of the kind, what it makes of every
 * answer, what it refuses before anything is asked, and until when it may wait.  The kind is the
 * test's: it writes the request down and answers as it was told.
 */
#include "fault.h"
#include "harness.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "store/store.h"

#include <weft/weft.h>

typedef struct recorder {
    weft_store store;
    int calls;
    weft_i_store_op op;
    bool may_block;
    size_t keys, values;
    char key[16], value[3][16]; /* the first ones */
    int64_t number, deadline;
    /* What it answers; the values are "0", "1" ... */
    weft_status fails, status;
    int64_t answers;
    size_t with;
} recorder;

static void copy(char out[16], weft_i_view view)
{
    snprintf(out, 16, "%.*s", (int)view.bytes, (const char *)view.data);
}

static weft_status record(weft_store *store, const weft_i_store_request *request, int64_t deadline,
                          weft_i_store_answer *answer)
{
    recorder *r = (recorder *)store;
    r->calls++;
    r->op = request->op;
    r->may_block = request->may_block;
    r->keys = request->keys;
    r->values = request->values;
    r->number = request->number;
    r->deadline = deadline;
    copy(r->key, request->keys ? request->key[0] : (weft_i_view){"", 0});
    for (size_t i = 0; i < 3 && i < request->values; i++)
        copy(r->value[i], request->value[i]);
    if (r->fails)
        return weft_i_fail(r->fails, "the kind fails");
    *answer = (weft_i_store_answer){.status = r->status, .number = r->answers};
    if (r->with) {
        const weft_i_os *before = weft_i_os_now; /* what fails is not the kind's */
        weft_i_os_now = &weft_i_os_linux;
        answer->memory = WEFT_OS->alloc(r->with + 1);
        CHECK(weft_i_store_answer_reserve(answer, r->with));
        weft_i_os_now = before;
        for (size_t i = 0; i < r->with; i++) {
            ((char *)answer->memory)[i] = (char)('0' + i);
            answer->value[i] = (weft_i_view){(char *)answer->memory + i, 1};
        }
    }
    return WEFT_OK;
}

static void ends(weft_store *store, bool forked)
{
    (void)store, (void)forked;
}

static const weft_i_store_kind kind = {.perform = record, .close = ends};

static recorder *fresh(void)
{
    weft_clear_error();
    CHECK_OK(weft_scope_open());
    recorder *r = weft_i_store_new(&kind, sizeof *r, "test");
    CHECK(r);
    return r;
}

static void done(void)
{
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

static void asked(recorder *r, weft_i_store_op op, size_t keys, size_t values, int64_t number)
{
    CHECK_INT(r->calls, 1);
    CHECK_INT(r->op, op);
    CHECK_INT(r->keys, keys);
    CHECK_INT(r->values, values);
    CHECK_INT(r->number, number);
    if (keys)
        CHECK(!strcmp(r->key, op == WEFT_I_STORE_NUM_KEYS ? "" : "key"));
    r->calls = 0;
}

static void says(weft_status got, weft_status wanted, const char *message)
{
    CHECK_INT(got, wanted);
    CHECK_INT(weft_last_status(), wanted);
    if (strcmp(weft_last_error(), message) != 0)
        FAIL("it says \"%s\", not \"%s\"", weft_last_error(), message);
    weft_clear_error();
}

static const char *const keys[] = {"key", "other", "third"};

/* ---- what is asked ---- */

TEST(test_store_calls_ask)
{
    recorder *r = fresh();
    weft_store *s = &r->store;
    int64_t total = 0;
    CHECK_OK(weft_store_set(s, "key", "v", 1));
    asked(r, WEFT_I_STORE_SET, 1, 1, 0);
    CHECK(r->may_block && !strcmp(r->value[0], "v"));
    CHECK_OK(weft_store_append(s, "key", "w", 1));
    asked(r, WEFT_I_STORE_APPEND, 1, 1, 0);
    CHECK_OK(weft_i_store_will(s, "key", "w", 1));
    asked(r, WEFT_I_STORE_WILL, 1, 1, 0);
    CHECK_OK(weft_store_queue_push(s, "key", "x", 1));
    asked(r, WEFT_I_STORE_PUSH, 1, 1, 0);
    r->answers = -9;
    CHECK_OK(weft_store_add(s, "key", -3, &total));
    asked(r, WEFT_I_STORE_ADD, 1, 0, -3);
    CHECK_INT(total, -9);
    CHECK_OK(weft_store_add(s, "key", 4, NULL));
    asked(r, WEFT_I_STORE_ADD, 1, 0, 4);
    const void *data[] = {"a", "b", "c"};
    const size_t bytes[] = {1, 1, 1};
    CHECK_OK(weft_store_multi_set(s, 3, keys, data, bytes));
    asked(r, WEFT_I_STORE_MULTI_SET, 3, 3, 0);
    CHECK(!strcmp(r->value[0], "a") && !strcmp(r->value[1], "b") && !strcmp(r->value[2], "c"));
    done();
}

/* Truths and counts. */
TEST(test_store_calls_ask_how_many)
{
    recorder *r = fresh();
    weft_store *s = &r->store;
    size_t count = 0;
    bool flag = false;
    r->answers = -9;
    CHECK_OK(weft_store_delete_key(s, "key", &flag));
    asked(r, WEFT_I_STORE_DELETE, 1, 0, 0);
    CHECK(flag);
    CHECK_OK(weft_store_delete_key(s, "key", NULL));
    asked(r, WEFT_I_STORE_DELETE, 1, 0, 0);
    CHECK_OK(weft_store_check(s, 3, keys, &flag));
    asked(r, WEFT_I_STORE_CHECK, 3, 0, 0);
    CHECK(flag);
    r->answers = 7;
    CHECK_OK(weft_store_num_keys(s, &count));
    asked(r, WEFT_I_STORE_NUM_KEYS, 1, 0, 0);
    CHECK_INT(count, 7);
    CHECK_OK(weft_store_queue_len(s, "key", &count));
    asked(r, WEFT_I_STORE_LENGTH, 1, 0, 0);
    CHECK_INT(count, 7);
    r->answers = 0;
    CHECK_OK(weft_store_check(s, 1, keys, &flag));
    asked(r, WEFT_I_STORE_CHECK, 1, 0, 0);
    CHECK(!flag);
    flag = true;
    CHECK_OK(weft_store_delete_key(s, "key", &flag));
    asked(r, WEFT_I_STORE_DELETE, 1, 0, 0);
    CHECK(!flag);
    CHECK_OK(weft_store_wait(s, 2, keys, 5));
    asked(r, WEFT_I_STORE_WAIT, 2, 0, 0);
    CHECK_OK(weft_store_wait(s, 0, NULL, 5));
    asked(r, WEFT_I_STORE_WAIT, 0, 0, 0);
    done();
}

TEST(test_store_calls_ask_for_values)
{
    recorder *r = fresh();
    weft_store *s = &r->store;
    weft_store_value value = {0}, three[3] = {{0}};
    bool flag = false;
    r->with = 1;
    CHECK_OK(weft_store_get(s, "key", 5, &value));
    asked(r, WEFT_I_STORE_GET, 1, 0, 0);
    CHECK(value.bytes == 1 && !strcmp(value.data, "0"));
    weft_store_value_clear(&value);
    CHECK_OK(weft_store_queue_pop(s, "key", 5, &value));
    asked(r, WEFT_I_STORE_POP, 1, 0, 0);
    CHECK(value.bytes == 1 && !strcmp(value.data, "0"));
    weft_store_value_clear(&value);
    CHECK(!value.data && !value.bytes);
    r->answers = 1;
    CHECK_OK(weft_store_compare_set(s, "key", "old", 3, "new", 3, &flag, &value));
    asked(r, WEFT_I_STORE_COMPARE_SET, 1, 2, 0);
    CHECK(flag && value.bytes == 1 && !strcmp(value.data, "0"));
    CHECK(!strcmp(r->value[0], "old") && !strcmp(r->value[1], "new"));
    weft_store_value_clear(&value);
    CHECK_OK(weft_store_compare_set(s, "key", "old", 3, "new", 3, NULL, NULL));
    asked(r, WEFT_I_STORE_COMPARE_SET, 1, 2, 0);
    r->with = 3;
    CHECK_OK(weft_store_multi_get(s, 3, keys, 5, three));
    asked(r, WEFT_I_STORE_MULTI_GET, 3, 0, 0);
    for (int i = 0; i < 3; i++) {
        CHECK(three[i].bytes == 1 && *(char *)three[i].data == '0' + i);
        CHECK(!((char *)three[i].data)[1]);
        weft_store_value_clear(&three[i]);
    }
    done();
}

/* ---- until when ---- */

static weft_i_os table;

static int64_t test_clock(void)
{
    return 1000000000;
}

TEST(test_store_calls_deadlines)
{
    const int64_t ms = 1000000, now = 1000000000;
    recorder *r = fresh();
    weft_store *s = &r->store;
    weft_store_value value = {0};
    table = weft_i_os_linux;
    table.clock_ns = test_clock;
    weft_i_os_now = &table;
    r->fails = WEFT_ERR_TIMEOUT;
#define UNTIL(timeout_, deadline_, blocks_)                                      \
    do {                                                                         \
        CHECK(weft_store_get(s, "key", (timeout_), &value) == WEFT_ERR_TIMEOUT); \
        CHECK_INT(r->deadline, (deadline_));                                     \
        CHECK_INT(r->may_block, (blocks_));                                      \
    } while (0)
    CHECK_OK(weft_store_set_timeout(s, 50));
    UNTIL(5, now + 5 * ms, true);
    UNTIL(WEFT_DEFAULT, now + 50 * ms, true);
    UNTIL(WEFT_STORE_NOW, now + 50 * ms, false); /* for the answer itself */
    UNTIL(WEFT_FOREVER, WEFT_I_NEVER, true);
    CHECK_OK(weft_store_set_timeout(s, 0)); /* as for ever */
    UNTIL(WEFT_DEFAULT, WEFT_I_NEVER, true);
    UNTIL(WEFT_STORE_NOW, WEFT_I_NEVER, false);
    /* An operation's limit counts, if it is sooner. */
    CHECK_INT(weft_i_store_until(now + 20 * ms), WEFT_I_NEVER);
    UNTIL(WEFT_DEFAULT, now + 20 * ms, true);
    UNTIL(WEFT_FOREVER, now + 20 * ms, true);
    UNTIL(21, now + 20 * ms, true);
    UNTIL(20, now + 20 * ms, true);
    UNTIL(19, now + 19 * ms, true);
    CHECK_INT(weft_i_store_until(WEFT_I_NEVER), now + 20 * ms);
    CHECK_INT(weft_i_store_late(now), now + 30 * ms);
    CHECK_INT(weft_i_store_late(WEFT_I_NEVER), WEFT_I_NEVER);
    CHECK_INT(weft_i_store_late(WEFT_I_NEVER - 30 * ms), WEFT_I_NEVER);
    CHECK_INT(weft_i_store_late(WEFT_I_NEVER - 30 * ms - 1), WEFT_I_NEVER - 1);
    int calls = r->calls;
    says(weft_store_get(s, "key", -4, &value), WEFT_ERR_INVALID_ARG,
         "weft_store_get: a timeout of -4 ms");
    says(weft_store_set_timeout(s, -4), WEFT_ERR_INVALID_ARG,
         "weft_store_set_timeout: -4 ms is negative");
    CHECK_INT(weft_store_timeout(s), 0);
    CHECK_INT(r->calls, calls);
    weft_i_os_now = &weft_i_os_linux;
    done();
}

/* ---- what is refused ---- */

/* Refused before anything is asked. */
#define REFUSED(call_, status_, message_)     \
    do {                                      \
        says((call_), (status_), (message_)); \
        CHECK_INT(r->calls, 0);               \
    } while (0)

TEST(test_store_calls_refuse)
{
    recorder *r = fresh();
    weft_store *s = &r->store;
    weft_store_value value = {0};
    static char long_key[WEFT_STORE_KEY_BYTES + 2];
    const char *holes[] = {"key", NULL, "third"};
    const void *data[] = {"a", NULL, "c"};
    const size_t bytes[] = {1, 1, 1};
    memset(long_key, 'k', WEFT_STORE_KEY_BYTES + 1);
    REFUSED(weft_store_set(s, NULL, "v", 1), WEFT_ERR_INVALID_ARG, "weft_store_set: key is NULL");
    REFUSED(weft_store_set(s, "", "v", 1), WEFT_ERR_INVALID_ARG,
            "weft_store_set: a key has 1 to 8192 bytes, not none");
    REFUSED(weft_store_set(s, long_key, "v", 1), WEFT_ERR_LIMIT,
            "weft_store_set: a key has 1 to 8192 bytes, not more");
    CHECK_OK(weft_store_set(s, long_key + 1, "v", 1));
    r->calls = 0;
    REFUSED(weft_store_set(s, "key", NULL, 1), WEFT_ERR_INVALID_ARG,
            "weft_store_set: data is NULL but has 1 bytes");
    CHECK_OK(weft_store_set(s, "key", NULL, 0));
    r->calls = 0;
    REFUSED(weft_store_get(s, "key", 5, NULL), WEFT_ERR_INVALID_ARG, "weft_store_get: out is NULL");
    REFUSED(weft_store_queue_pop(s, "key", 5, NULL), WEFT_ERR_INVALID_ARG,
            "weft_store_queue_pop: out is NULL");
    REFUSED(weft_store_queue_len(s, "key", NULL), WEFT_ERR_INVALID_ARG,
            "weft_store_queue_len: out is NULL");
    REFUSED(weft_store_num_keys(s, NULL), WEFT_ERR_INVALID_ARG, "weft_store_num_keys: out is NULL");
    REFUSED(weft_store_check(s, 3, keys, NULL), WEFT_ERR_INVALID_ARG,
            "weft_store_check: out is NULL");
    REFUSED(weft_store_multi_get(s, 3, keys, 5, NULL), WEFT_ERR_INVALID_ARG,
            "weft_store_multi_get: out is NULL");
    REFUSED(weft_store_wait(s, 1, NULL, 5), WEFT_ERR_INVALID_ARG, "weft_store_wait: keys is NULL");
    REFUSED(weft_store_wait(s, 3, holes, 5), WEFT_ERR_INVALID_ARG, "weft_store_wait: key is NULL");
    REFUSED(weft_store_wait(s, WEFT_I_STORE_KEYS + 1, keys, 5), WEFT_ERR_LIMIT,
            "weft_store_wait: 65537 keys in one call; the limit is 65536");
    REFUSED(weft_store_multi_set(s, 3, keys, NULL, bytes), WEFT_ERR_INVALID_ARG,
            "weft_store_multi_set: data is NULL");
    REFUSED(weft_store_multi_set(s, 3, keys, data, NULL), WEFT_ERR_INVALID_ARG,
            "weft_store_multi_set: bytes is NULL");
    REFUSED(weft_store_multi_set(s, 3, keys, data, bytes), WEFT_ERR_INVALID_ARG,
            "weft_store_multi_set: data is NULL but has 1 bytes");
    REFUSED(weft_store_compare_set(s, "key", NULL, 2, "v", 1, NULL, NULL), WEFT_ERR_INVALID_ARG,
            "weft_store_compare_set: data is NULL but has 2 bytes");
    REFUSED(weft_store_wait(NULL, 1, keys, 5), WEFT_ERR_INVALID_ARG,
            "weft_store_wait: store is NULL");
    REFUSED(weft_store_multi_set(NULL, 0, keys, data, bytes), WEFT_ERR_INVALID_ARG,
            "weft_store_multi_set: store is NULL");
    CHECK_OK(weft_store_multi_get(s, 0, NULL, 5, NULL));
    CHECK_OK(weft_store_multi_set(s, 0, NULL, NULL, NULL));
    CHECK(!value.data);
    done();
}

/* To the byte: a value has a limit, and so has all that a call says. */
TEST(test_store_calls_sizes)
{
    enum { VALUE = WEFT_STORE_VALUE_BYTES };
    const size_t most = WEFT_I_STORE_MESSAGE_BYTES - 8 * WEFT_I_STORE_KEYS - 64;
    recorder *r = fresh();
    weft_store *s = &r->store;
    char wanted[200], *big = calloc(1, VALUE + 1);
    const void *data[] = {big, big};
    size_t bytes[] = {VALUE, most - VALUE - strlen("keyother")};
    CHECK(big);
    CHECK_OK(weft_store_set(s, "key", big, VALUE));
    r->calls = 0;
    REFUSED(weft_store_set(s, "key", big, VALUE + 1), WEFT_ERR_LIMIT,
            "weft_store_set: a value of 8388609 bytes; the limit is 8388608");
    CHECK_OK(weft_store_multi_set(s, 2, keys, data, bytes));
    r->calls = 0;
    bytes[1]++;
    snprintf(wanted, sizeof wanted,
             "weft_store_multi_set: %zu bytes in one call; set fewer keys at once", most + 1);
    REFUSED(weft_store_multi_set(s, 2, keys, data, bytes), WEFT_ERR_LIMIT, wanted);
    free(big);
    done();
}

/* ---- what is told ---- */

TEST(test_store_calls_words)
{
    static const struct {
        weft_status status;
        const char *set, *add, *push, *get;
    } words[] = {
        {WEFT_ERR_TIMEOUT, "the deadline passed before the store was free",
         "the deadline passed before the store was free",
         "the deadline passed before the store was free",
         "the deadline passed and not all of the keys were set"},
        {WEFT_ERR_NOT_FOUND, "no such key", "no such key", "no such key", "no such key"},
        {WEFT_ERR_EMPTY, "nothing queued", "nothing queued", "nothing queued", "nothing queued"},
        {WEFT_ERR_TYPE, "the key holds a queue, not a value",
         "the key holds something that is not a number", "the key holds a value, not a queue",
         "the key holds a queue, not a value"},
        {WEFT_ERR_LIMIT,
         "a value over 8 MiB, a message over 16 MiB, or more than WEFT_STORE_MEMORY in the store",
         "a value over 8 MiB, a message over 16 MiB, or more than WEFT_STORE_MEMORY in the store",
         "a value over 8 MiB, a message over 16 MiB, or more than WEFT_STORE_MEMORY in the store",
         "a value over 8 MiB, a message over 16 MiB, or more than WEFT_STORE_MEMORY in the store"},
        {WEFT_ERR_NO_MEMORY, "the store ran out of memory", "the store ran out of memory",
         "the store ran out of memory", "the store ran out of memory"},
        {WEFT_ERR_INVALID_ARG, "the sum leaves the range of 64 bits",
         "the sum leaves the range of 64 bits", "the sum leaves the range of 64 bits",
         "the sum leaves the range of 64 bits"},
    };
    recorder *r = fresh();
    weft_store *s = &r->store;
    weft_store_value value = {0};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char wanted[300];
        r->status = words[i].status;
        snprintf(wanted, sizeof wanted, "store test: set(\"key\"): %s", words[i].set);
        says(weft_store_set(s, "key", "v", 1), r->status, wanted);
        snprintf(wanted, sizeof wanted, "store test: add(\"key\"): %s", words[i].add);
        says(weft_store_add(s, "key", 1, NULL), r->status, wanted);
        snprintf(wanted, sizeof wanted, "store test: queue_push(\"key\"): %s", words[i].push);
        says(weft_store_queue_push(s, "key", "v", 1), r->status, wanted);
        snprintf(wanted, sizeof wanted, "store test: get(\"key\"): %s", words[i].get);
        says(weft_store_get(s, "key", 5, &value), r->status, wanted);
    }
    r->status = WEFT_ERR_TIMEOUT;
    says(weft_store_queue_pop(s, "key", 5, &value), WEFT_ERR_TIMEOUT,
         "store test: queue_pop(\"key\"): the deadline passed and nothing was pushed");
    r->status = WEFT_OK;
    r->fails = WEFT_ERR_UNREACHABLE; /* the kind has said it itself */
    says(weft_store_set(s, "key", "v", 1), WEFT_ERR_UNREACHABLE, "the kind fails");
    says(weft_store_multi_set(s, 0, NULL, NULL, NULL), WEFT_ERR_UNREACHABLE, "the kind fails");
    says(weft_store_wait(s, 2, keys, 5), WEFT_ERR_UNREACHABLE, "the kind fails");
    says(weft_i_store_will(s, "key", "v", 1), WEFT_ERR_UNREACHABLE, "the kind fails");
    CHECK(!value.data);
    done();
}

/* A try that finds nothing is no failure of the rank; one that goes wrong is, and so is a wait. */
TEST(test_store_calls_tries)
{
    static const weft_status statuses[] = {WEFT_ERR_NOT_FOUND, WEFT_ERR_EMPTY, WEFT_ERR_TYPE,
                                           WEFT_ERR_LIMIT, WEFT_ERR_NO_MEMORY};
    recorder *r = fresh();
    weft_store_value value = {0};
    const char *first;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        for (int waits = 0; waits < 2; waits++) {
            weft_clear_error();
            r->status = statuses[i];
            CHECK_STATUS(weft_store_get(&r->store, "key", waits ? 5 : WEFT_STORE_NOW, &value),
                         statuses[i]);
            CHECK_INT(weft_i_first_error(&first), i < 2 && !waits ? WEFT_OK : statuses[i]);
        }
    weft_clear_error();
    done();
}

/* Long keys are cut in a message, at 64 bytes; a view need not end with a zero. */
TEST(test_store_calls_long_keys)
{
    char text[200], all[80];
    memset(all, 'x', sizeof all);
    for (size_t bytes = 62; bytes < 68; bytes++) {
        weft_i_view key = {all, bytes};
        weft_i_store_request request = {.keys = 1, .key = &key};
        weft_i_store_keys_text(&request, text, sizeof text);
        CHECK_INT(strlen(text), (bytes < 64 ? bytes : 64) + 2);
        CHECK_INT(strspn(text + 1, "x"), strlen(text) - 2);
    }
    CHECK(!strcmp(weft_i_store_op_name((weft_i_store_op)0), "?"));
    CHECK(!strcmp(weft_i_store_op_name(WEFT_I_STORE_OPS), "?"));
    CHECK(!strcmp(weft_i_store_op_name(WEFT_I_STORE_CANCEL), "?"));
    CHECK(!strcmp(weft_i_store_op_name(WEFT_I_STORE_WILL), "will"));
}

/* No memory for a part of the values: none is given. */
TEST(test_store_calls_without_memory)
{
    recorder *r = fresh();
    int failed = 0;
    r->with = 3;
    for (int n = 1;; n++) {
        weft_store_value three[3] = {{0}};
        fault_arm(n);
        weft_status status = weft_store_multi_get(&r->store, 3, keys, 5, three);
        bool fired = fault_disarm();
        for (int i = 0; i < 3; i++) {
            CHECK_INT(three[i].data != NULL, status == WEFT_OK);
            weft_store_value_clear(&three[i]);
        }
        if (!fired)
            break;
        says(status, WEFT_ERR_NO_MEMORY,
             n == 1 ? "weft_store_multi_get: no memory for 3 keys"
                    : "weft_store_multi_get: no memory for 3 values");
        failed++;
    }
    CHECK_INT(failed, 4);
    done();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

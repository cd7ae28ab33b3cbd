/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/store.c, store/file.c, store/local.c, store/client.c, store/prefix.c */
/* One conformance suite for all kinds of store: what the operations mean, who wakes, who is never
 * kept waiting. */
#include "store_kinds.h"

#include "base/report/status.h"

#include <fcntl.h>
#include <malloc.h>

TEST(test_store_set_get)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        CHECK_OK(set(p.a, "k", "one"));
        expect(p.b, "k", "one");
        CHECK_OK(set(p.b, "k", "two"));
        expect(p.a, "k", "two");
        CHECK_OK(weft_store_set(p.a, "empty", NULL, 0));
        expect(p.b, "empty", "");
        char binary[300];
        for (int i = 0; i < 300; i++)
            binary[i] = (char)i;
        CHECK_OK(weft_store_set(p.a, "binary", binary, sizeof binary));
        weft_store_value got = {0};
        CHECK_OK(weft_store_get(p.b, "binary", WEFT_DEFAULT, &got));
        CHECK(got.bytes == 300 && !memcmp(got.data, binary, 300));
        weft_store_value_clear(&got);
        CHECK(!got.data);
        CHECK_STATUS(weft_store_get(p.a, "none", WEFT_STORE_NOW, &got), WEFT_ERR_NOT_FOUND);
        CLOSE();
    }
}

TEST(test_store_timeout)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        weft_store_value got = {0};
        int64_t start = now_ms();
        CHECK_STATUS(weft_store_get(p.a, "never", 60, &got), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "\"never\"");
        int64_t took = now_ms() - start;
        if (took < 59 || took > 15000)
            FAIL("%s: a deadline of 60 ms took %lld ms", kind_names[kind], (long long)took);
        const char *keys[] = {"here", "there"};
        CHECK_OK(set(p.a, "here", ""));
        CHECK_STATUS(weft_store_wait(p.b, 2, keys, 30), WEFT_ERR_TIMEOUT);
        CHECK_STATUS(weft_store_wait(p.b, 2, keys, WEFT_STORE_NOW), WEFT_ERR_NOT_FOUND);
        CHECK_STATUS(weft_store_queue_pop(p.b, "q", 30, &got), WEFT_ERR_TIMEOUT);
        CHECK_INT(weft_store_timeout(p.a), 300000);
        CHECK_OK(weft_store_set_timeout(p.a, 40));
        CHECK_INT(weft_store_timeout(p.a), 40);
        CHECK_STATUS(weft_store_get(p.a, "never", WEFT_DEFAULT, &got), WEFT_ERR_TIMEOUT);
        CHECK_OK(weft_store_set_timeout(p.a, 40000)); /* which is the clone's to connect in */
        weft_store *copy = weft_store_clone(p.a);
        CHECK(copy);
        CHECK_INT(weft_store_timeout(copy), 40000);
        CHECK_STATUS(weft_store_set_timeout(p.a, -7), WEFT_ERR_INVALID_ARG);
        CHECK_OK(set(p.a, "after", "works"));
        expect(p.b, "after", "works");
        CLOSE();
    }
}

TEST(test_store_add)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        int64_t total = -1;
        bool there = false;
        const char *key = "n";
        CHECK_OK(weft_store_add(p.a, "n", 0, &total));
        CHECK_INT(total, 0);
        CHECK_OK(weft_store_check(p.b, 1, &key, &there));
        CHECK(there); /* reading a counter creates it */
        CHECK_OK(weft_store_add(p.b, "n", 5, &total));
        CHECK_OK(weft_store_add(p.a, "n", -12, &total));
        CHECK_INT(total, -7);
        expect(p.b, "n", "-7");
        CHECK_OK(set(p.a, "n", "41"));
        CHECK_OK(weft_store_add(p.b, "n", 1, NULL));
        expect(p.a, "n", "42");
        CHECK_OK(set(p.a, "n", "many"));
        CHECK_STATUS(weft_store_add(p.b, "n", 1, &total), WEFT_ERR_TYPE);
        CHECK_OK(set(p.a, "n", "9223372036854775807"));
        CHECK_STATUS(weft_store_add(p.b, "n", 1, &total), WEFT_ERR_INVALID_ARG);
        expect(p.a, "n", "9223372036854775807");
        CLOSE();
    }
}

TEST(test_store_compare_set)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        bool stored = true, there = true;
        weft_store_value now = {0};
        const char *key = "c";
        CHECK_STATUS(weft_store_compare_set(p.a, "c", "x", 1, "y", 1, &stored, &now),
                     WEFT_ERR_NOT_FOUND);
        CHECK_OK(weft_store_check(p.b, 1, &key, &there));
        CHECK(!there);
        CHECK_OK(weft_store_compare_set(p.a, "c", NULL, 0, "one", 3, &stored, &now));
        CHECK(stored && !strcmp(now.data, "one"));
        weft_store_value_clear(&now);
        CHECK_OK(weft_store_compare_set(p.b, "c", "two", 3, "three", 5, &stored, &now));
        CHECK(!stored && !strcmp(now.data, "one"));
        weft_store_value_clear(&now);
        CHECK_OK(weft_store_compare_set(p.b, "c", "", 0, "three", 5, &stored, NULL));
        CHECK(!stored);
        CHECK_OK(weft_store_compare_set(p.b, "c", "one", 3, "", 0, &stored, &now));
        CHECK(stored && now.bytes == 0);
        weft_store_value_clear(&now);
        expect(p.a, "c", "");
        CHECK_OK(weft_store_compare_set(p.a, "c", "", 0, "end", 3, NULL, NULL));
        expect(p.b, "c", "end");
        CLOSE();
    }
}

TEST(test_store_keys)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        const char *keys[] = {"a", "b", "c"};
        bool all = true, removed = true;
        size_t count = 99;
        CHECK_OK(weft_store_num_keys(p.a, &count));
        CHECK_INT(count, 0);
        CHECK_OK(set(p.a, "a", "1"));
        CHECK_OK(set(p.a, "b", "2"));
        CHECK_OK(weft_store_check(p.b, 3, keys, &all));
        CHECK(!all);
        CHECK_OK(weft_store_check(p.b, 2, keys, &all));
        CHECK(all);
        CHECK_OK(weft_store_check(p.b, 0, NULL, &all));
        CHECK(all);
        CHECK_OK(weft_store_num_keys(p.b, &count));
        CHECK_INT(count, 2);
        CHECK_OK(weft_store_delete_key(p.b, "a", &removed));
        CHECK(removed);
        CHECK_OK(weft_store_delete_key(p.a, "a", &removed));
        CHECK(!removed);
        CHECK_OK(weft_store_check(p.a, 1, keys, &all));
        CHECK(!all);
        CHECK_OK(weft_store_num_keys(p.a, &count));
        CHECK_INT(count, 1);
        CLOSE();
    }
}

TEST(test_store_extended)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        CHECK_OK(weft_store_append(p.a, "s", "ab", 2));
        CHECK_OK(weft_store_append(p.b, "s", "cd", 2));
        CHECK_OK(weft_store_append(p.b, "s", NULL, 0));
        expect(p.a, "s", "abcd");
        const char *keys[] = {"x", "y", "s"};
        const void *data[] = {"1", "22", "333"};
        size_t bytes[] = {1, 2, 3};
        CHECK_OK(weft_store_multi_set(p.a, 3, keys, data, bytes));
        weft_store_value out[3] = {{0}};
        CHECK_OK(weft_store_multi_get(p.b, 3, keys, 5000, out));
        for (int i = 0; i < 3; i++) {
            CHECK(out[i].bytes == bytes[i] && !memcmp(out[i].data, data[i], bytes[i]));
            weft_store_value_clear(&out[i]);
        }
        keys[1] = "missing";
        CHECK_STATUS(weft_store_multi_get(p.b, 3, keys, 20, out), WEFT_ERR_TIMEOUT);
        CHECK(!out[0].data);
        CHECK_OK(weft_store_multi_set(p.a, 0, NULL, NULL, NULL));
        CHECK_OK(weft_store_multi_get(p.a, 0, NULL, 0, NULL));
        CLOSE();
    }
}

TEST(test_store_queue)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        weft_store_value got = {0};
        size_t length = 9;
        bool there = false, removed = false;
        const char *key = "q";
        CHECK_STATUS(weft_store_queue_pop(p.a, "q", WEFT_STORE_NOW, &got), WEFT_ERR_EMPTY);
        CHECK_OK(weft_store_queue_len(p.a, "q", &length));
        CHECK_INT(length, 0);
        for (int i = 0; i < 5; i++) {
            char text[2] = {(char)('a' + i), 0};
            CHECK_OK(weft_store_queue_push(i % 2 ? p.a : p.b, "q", text, 1));
        }
        CHECK_OK(weft_store_queue_len(p.b, "q", &length));
        CHECK_INT(length, 5);
        CHECK_OK(weft_store_check(p.b, 1, &key, &there));
        CHECK(there);
        CHECK_STATUS(weft_store_get(p.a, "q", 0, &got), WEFT_ERR_TYPE);
        CHECK_STATUS(weft_store_append(p.a, "q", "x", 1), WEFT_ERR_TYPE);
        for (int i = 0; i < 4; i++) {
            CHECK_OK(weft_store_queue_pop(i % 2 ? p.b : p.a, "q", 5000, &got));
            CHECK(got.bytes == 1 && *(char *)got.data == 'a' + i);
            weft_store_value_clear(&got);
        }
        CHECK_OK(weft_store_delete_key(p.b, "q", &removed));
        CHECK(removed);
        CHECK_STATUS(weft_store_queue_pop(p.a, "q", WEFT_STORE_NOW, &got), WEFT_ERR_EMPTY);
        CHECK_OK(set(p.a, "q", "value"));
        CHECK_STATUS(weft_store_queue_push(p.b, "q", "x", 1), WEFT_ERR_TYPE);
        CHECK_STATUS(weft_store_queue_pop(p.b, "q", 0, &got), WEFT_ERR_TYPE);
        CLOSE();
    }
}

static size_t largest;

static void *note_alloc(size_t bytes)
{
    largest = bytes > largest ? bytes : largest;
    return weft_i_os_linux.alloc(bytes);
}

static void spoil_and_free(void *memory)
{
    if (memory)
        memset(memory, 0xdd, malloc_usable_size(memory));
    weft_i_os_linux.free(memory);
}

/* What a local store gives is the caller's: in memory that is large enough, and not in that of an
 * item which is gone by then. */
TEST(test_store_local_gives_copies)
{
    static weft_i_os table;
    char item[1000];
    OPEN();
    weft_store *s = weft_store_local();
    memset(item, 'i', sizeof item);
    CHECK_OK(weft_store_queue_push(s, "q", item, sizeof item));
    weft_store_value got = {0};
    table = weft_i_os_linux;
    table.alloc = note_alloc;
    table.free = spoil_and_free;
    weft_i_os_now = &table;
    weft_status status = weft_store_queue_pop(s, "q", 0, &got);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_OK(status);
    CHECK_INT(got.bytes, sizeof item);
    CHECK(largest > sizeof item && !memcmp(got.data, item, sizeof item));
    weft_store_value_clear(&got);
    CLOSE();
}

TEST(test_store_large_values)
{
    char *big = malloc(WEFT_STORE_VALUE_BYTES + 1);
    CHECK(big);
    for (size_t i = 0; i < WEFT_STORE_VALUE_BYTES + 1; i++)
        big[i] = (char)(i * 7 + (i >> 9));
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        CHECK_OK(weft_store_set(p.a, "big", big, WEFT_STORE_VALUE_BYTES));
        weft_store_value got = {0};
        CHECK_OK(weft_store_get(p.b, "big", 20000, &got));
        CHECK(got.bytes == WEFT_STORE_VALUE_BYTES && !memcmp(got.data, big, got.bytes));
        weft_store_value_clear(&got);
        CHECK_STATUS(weft_store_set(p.a, "big", big, WEFT_STORE_VALUE_BYTES + 1), WEFT_ERR_LIMIT);
        CHECK_STATUS(weft_store_append(p.a, "big", "x", 1), WEFT_ERR_LIMIT);
        const char *keys[] = {"big", "big", "big"};
        weft_store_value out[3] = {{0}};
        CHECK_STATUS(weft_store_multi_get(p.a, 3, keys, 20000, out), WEFT_ERR_LIMIT);
        CHECK_OK(set(p.b, "small", "fine"));
        expect(p.a, "small", "fine");
        CLOSE();
    }
    free(big);
}

TEST(test_store_arguments)
{
    char *key = malloc(WEFT_STORE_KEY_BYTES + 2);
    memset(key, 'k', WEFT_STORE_KEY_BYTES + 1);
    key[WEFT_STORE_KEY_BYTES + 1] = 0;
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        weft_store_value got = {0};
        CHECK_STATUS(set(p.a, key, "x"), WEFT_ERR_LIMIT);
        if (kind != PREFIX && kind != NESTED) {
            CHECK_OK(set(p.a, key + 1, "x"));
            expect(p.b, key + 1, "x");
        } else
            CHECK_STATUS(set(p.a, key + 1, "x"), WEFT_ERR_LIMIT);
        CHECK_STATUS(set(p.a, "", "x"), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_store_set(p.a, NULL, "x", 1), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_store_set(p.a, "k", NULL, 1), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_store_get(p.a, "k", -5, &got), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_store_get(p.a, "k", 5, NULL), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_store_wait(p.a, 1, NULL, 5), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_store_wait(p.a, 100000, (const char *const *)&key, 5), WEFT_ERR_LIMIT);
        CLOSE();
    }
    free(key);
    weft_clear_error();
    CHECK_STATUS(set(NULL, "k", "x"), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_store_file("", 1) && !weft_store_file(NULL, 1) && !weft_store_unix_serve(""));
    CHECK(!weft_store_tcp_serve("0.0.0.0", 0, TOKEN));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_store_tcp_serve("::", 0, TOKEN) &&
          !weft_store_tcp_serve("::ffff:0.0.0.0", 0, TOKEN));
    CHECK_CONTAINS(weft_last_error(), "wildcard");
    CHECK(!weft_store_tcp_serve(NULL, 0, "short"));
    CHECK_CONTAINS(weft_last_error(), "WEFT_TOKEN");
    CHECK(!weft_store_tcp_serve(NULL, 70000, TOKEN));
    /* NULL passes through and keeps the first error */
    weft_clear_error();
    weft_i_fail(WEFT_ERR_NO_SPACE, "earlier");
    CHECK(!weft_store_prefix("p", NULL) && !weft_store_clone(NULL));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_NO_SPACE);
    weft_clear_error();
}

/* A descriptor that a file store takes is given back with the store. */
static int next_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    close(fd);
    return fd;
}

TEST(test_store_prefix_clone_goes_whole)
{
    OPEN();
    weft_store *store = weft_store_prefix("part", weft_store_file(fresh_path(), 0));
    CHECK(store);
    int before = next_descriptor();
    for (int i = 0; i < 2; i++) {
        weft_store *copy = weft_store_clone(store);
        CHECK(copy);
        CHECK(next_descriptor() > before);
        weft_release(copy); /* and what it lies upon, with the scope still open */
        CHECK_INT(next_descriptor(), before);
    }
    CLOSE();
}

TEST(test_store_prefix_counts_its_own)
{
    OPEN();
    weft_store *root = weft_store_local(), *p = weft_store_prefix("p", root),
               *pp = weft_store_prefix("q", p);
    CHECK_OK(set(root, "a", "1"));
    CHECK_OK(set(p, "a", "2"));
    CHECK_OK(set(p, "b", "3"));
    CHECK_OK(set(pp, "a", "4"));
    CHECK_OK(set(root, "pq", "5"));
    size_t count[3];
    CHECK_OK(weft_store_num_keys(root, &count[0]));
    CHECK_OK(weft_store_num_keys(p, &count[1]));
    CHECK_OK(weft_store_num_keys(pp, &count[2]));
    CHECK_INT(count[0], 5);
    CHECK_INT(count[1], 3);
    CHECK_INT(count[2], 1);
    expect(root, "p/q/a", "4");
    CHECK_OK(weft_store_set_timeout(pp, 77));
    CHECK_INT(weft_store_timeout(root), 77);
    weft_store *tcp = weft_store_tcp_serve(NULL, 0, TOKEN), *on = weft_store_prefix("x", tcp);
    CHECK(weft_store_port(tcp) > 0);
    CHECK_INT(weft_store_port(on), weft_store_port(tcp));
    CHECK_INT(weft_store_port(root), 0);
    CLOSE();
}

/* ---- waiting and waking ---- */

TEST(test_store_every_change_wakes)
{
    FOR_ALL(kind)
    for (int how = 0; how < 6; how++) {
        OPEN();
        pair p = make(kind);
        waiter w[3] = {{.store = p.b, .key = "k", .what = how == 4 ? 2 : 0, .timeout_ms = 10000},
                       {.store = p.a, .key = "k", .what = 1, .timeout_ms = 10000},
                       {.store = p.b, .key = "k", .what = how == 4 ? 1 : 3, .timeout_ms = 10000}};
        for (int i = 0; i < 3; i++)
            start(&w[i]);
        usleep(kind == FILES ? 3000 : 1500);
        CHECK(!w[0].done && !w[1].done && !w[2].done);
        const char *key = "k";
        const void *data = "7";
        size_t bytes = 1;
        switch (how) {
        case 0:
            CHECK_OK(set(p.a, "k", "7"));
            break;
        case 1:
            CHECK_OK(weft_store_add(p.a, "k", 7, NULL));
            break;
        case 2:
            CHECK_OK(weft_store_compare_set(p.a, "k", NULL, 0, "7", 1, NULL, NULL));
            break;
        case 3:
            CHECK_OK(weft_store_append(p.b, "k", "7", 1));
            break;
        case 4: /* one for the popper, one that stays for those who wait */
            CHECK_OK(weft_store_queue_push(p.a, "k", "7", 1));
            CHECK_OK(weft_store_queue_push(p.a, "k", "8", 1));
            break;
        default:
            CHECK_OK(weft_store_multi_set(p.b, 1, &key, &data, &bytes));
        }
        for (int i = 0; i < 3; i++) {
            pthread_join(w[i].thread, NULL);
            if (w[i].status < 0)
                FAIL("%s, change %d, waiter %d: %s", kind_names[kind], how, i, w[i].error);
        }
        CHECK(!strcmp(w[0].text, "7"));
        CLOSE();
    }
}

TEST(test_store_blocked_call_blocks_nobody)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        waiter w[4];
        for (int i = 0; i < 4; i++) {
            w[i] = (waiter){
                .store = p.b, .key = i % 2 ? "odd" : "even", .what = i / 2, .timeout_ms = 60000};
            start(&w[i]);
        }
        int64_t begin = now_ms();
        for (int i = 0; i < 100; i++) {
            CHECK_OK(weft_store_add(p.b, "count", 1, NULL));
            CHECK(!w[0].done);
        }
        if (now_ms() - begin > 30000)
            FAIL("%s: 100 calls beside blocked ones took %lld ms", kind_names[kind],
                 (long long)(now_ms() - begin));
        CHECK_OK(set(p.b, "odd", "1"));
        CHECK_OK(set(p.b, "even", "1"));
        for (int i = 0; i < 4; i++) {
            pthread_join(w[i].thread, NULL);
            CHECK_OK(w[i].status);
        }
        CLOSE();
    }
}

/* Elements pushed by some threads come out of others exactly once, with deadlines passing all the
 * time. */
enum { HAMMERS = 4, BLOWS = 150 };
typedef struct hammer {
    weft_store *store;
    int me;
    _Atomic int64_t *popped, *sum;
    int failed;
    char error[256];
    pthread_t thread;
} hammer;

static weft_status blow(hammer *h, int i)
{
    char key[32];
    int64_t number = h->me * BLOWS + i + 1, total = 0;
    bool all;
    const char *one = key;
    WEFT_TRY(weft_store_add(h->store, "total", 1, &total));
    snprintf(key, sizeof key, "mine-%d-%d", h->me, i % 5);
    WEFT_TRY(weft_store_set(h->store, key, &number, sizeof number));
    WEFT_TRY(weft_store_check(h->store, 1, &one, &all));
    weft_store_value got = {0};
    WEFT_TRY(weft_store_get(h->store, key, 10000, &got));
    if (got.bytes != sizeof number || memcmp(got.data, &number, sizeof number))
        h->failed++;
    weft_store_value_clear(&got);
    WEFT_TRY(weft_store_queue_push(h->store, "queue", &number, sizeof number));
    /* a millisecond is often too short: then the element must stay */
    weft_status status = weft_store_queue_pop(h->store, "queue", i % 3 ? 1 : 50, &got);
    if (status == WEFT_ERR_TIMEOUT)
        return WEFT_OK;
    WEFT_TRY(status);
    memcpy(&number, got.data, sizeof number);
    *h->sum += number;
    (*h->popped)++;
    weft_store_value_clear(&got);
    return WEFT_OK;
}

static void *hammer_body(void *argument)
{
    hammer *h = argument;
    for (int i = 0; i < BLOWS && !h->failed; i++)
        if (blow(h, i) < 0) {
            h->failed++;
            snprintf(h->error, sizeof h->error, "%s", weft_last_error());
        }
    return NULL;
}

TEST(test_store_hammered_by_threads)
{
    FOR_ALL(kind)
    {
        OPEN();
        pair p = make(kind);
        hammer h[HAMMERS] = {{0}};
        _Atomic int64_t popped = 0, sum = 0;
        for (int i = 0; i < HAMMERS; i++) {
            h[i] = (hammer){.store = i < 3 ? p.b : p.a, .me = i, .popped = &popped, .sum = &sum};
            CHECK(!pthread_create(&h[i].thread, NULL, hammer_body, &h[i]));
        }
        for (int i = 0; i < HAMMERS; i++)
            pthread_join(h[i].thread, NULL);
        for (int i = 0; i < HAMMERS; i++)
            if (h[i].failed)
                FAIL("%s: thread %d: %s", kind_names[kind], i, h[i].error);
        int64_t total = 0, number, all = HAMMERS * BLOWS;
        CHECK_OK(weft_store_add(p.a, "total", 0, &total));
        CHECK_INT(total, all);
        weft_store_value got = {0};
        while (weft_store_queue_pop(p.a, "queue", WEFT_STORE_NOW, &got) == WEFT_OK) {
            memcpy(&number, got.data, sizeof number);
            sum += number;
            popped++;
            weft_store_value_clear(&got);
        }
        CHECK_INT(popped, all);
        CHECK_INT(sum, all * (all + 1) / 2);
        CLOSE();
    }
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

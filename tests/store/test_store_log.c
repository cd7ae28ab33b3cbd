/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/file.c */
/* The log of a file store, byte by byte: what is no record, what another weft has written, files
 * that give and take in pieces, locks that are taken, and how long a store waits for them. */
#include "fault.h"
#include "store_kinds.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { HEAD = 24, RECORD = 16 };

static char path[128];

static size_t read_file(uint8_t *bytes, size_t most)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    ssize_t n = read(fd, bytes, most);
    close(fd);
    CHECK(n >= 0);
    return (size_t)n;
}

static void write_file(const uint8_t *bytes, size_t count)
{
    int fd = open(path, O_RDWR | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
    close(fd);
}

static weft_store *fresh(int workers)
{
    snprintf(path, sizeof path, "%s", fresh_path());
    weft_store *s = weft_store_file(path, workers);
    if (!s)
        FAIL("%s", weft_last_error());
    return s;
}

static bool has(weft_store *s, const char *key)
{
    bool there = false;
    CHECK_OK(weft_store_check(s, 1, &key, &there));
    return there;
}

/* The last error of the store, word by word. */
static void says(weft_status status, const char *what)
{
    char wanted[300];
    snprintf(wanted, sizeof wanted, "store file %s: %s", path, what);
    CHECK_INT(weft_last_status(), status);
    if (strcmp(weft_last_error(), wanted) != 0)
        FAIL("it says \"%s\", not \"%s\"", weft_last_error(), wanted);
    weft_clear_error();
}

/* ---- records ---- */

/* A bit changed anywhere: the head is refused, a record and all behind it are as if they were not
 * there, and nothing is ever misread. */
TEST(test_store_log_changed_bits)
{
    uint8_t bytes[512], changed[512];
    OPEN();
    weft_store *s = fresh(0);
    CHECK_OK(set(s, "first", "1"));
    size_t first = read_file(bytes, sizeof bytes);
    CHECK_OK(set(s, "second", "2"));
    size_t all = read_file(bytes, sizeof bytes);
    weft_release(weft_keep(s));
    CHECK(all > first && first > HEAD + RECORD);
    for (size_t at = 0; at < all; at++) {
        CHECK_OK(weft_scope_open());
        memcpy(changed, bytes, all);
        changed[at] ^= 0x10;
        write_file(changed, all);
        weft_clear_error();
        weft_store *t = weft_store_file(path, 0);
        bool in_first = at >= HEAD && at < first;
        size_t in = at - (in_first ? (size_t)HEAD : first);
        if (at < HEAD) {
            CHECK(!t);
            weft_status status = weft_last_status();
            bool version = at == 4 || at == 5, workers = at >= 8 && at < 12;
            CHECK_INT(status, version   ? WEFT_ERR_VERSION
                              : workers ? WEFT_ERR_INVALID_ARG
                                        : WEFT_ERR_IO);
        } else if (in >= 4 && in < 8) { /* its kind, which another weft may have more of */
            CHECK(!t);
            CHECK_INT(weft_last_status(), WEFT_ERR_VERSION);
        } else {
            CHECK(t);
            CHECK_INT(has(t, "first"), !in_first);
            CHECK(!has(t, "second"));
            CHECK_OK(set(t, "third", "3")); /* takes the place of what cannot be read */
            weft_store *u = weft_store_file(path, 0);
            expect(u, "third", "3");
            CHECK(!has(u, "second"));
        }
        CHECK_OK(weft_scope_close());
    }
    CLOSE();
    unlink(path);
}

/* A record whose check is right and whose request is none: an error, not a guess. */
TEST(test_store_log_malformed_request)
{
    uint8_t bytes[512];
    OPEN();
    weft_store *s = fresh(0);
    CHECK_OK(set(s, "k", "v"));
    size_t all = read_file(bytes, sizeof bytes);
    bytes[HEAD + RECORD] = 99; /* no such operation */
    uint32_t hash = 0x811c9dc5u;
    for (size_t i = HEAD + RECORD; i < all; i++)
        hash = (hash ^ bytes[i]) * 0x01000193u;
    for (int i = 0; i < 4; i++)
        bytes[HEAD + 12 + i] = (uint8_t)(hash >> 8 * i);
    write_file(bytes, all);
    CHECK(!weft_store_file(path, 0));
    CHECK_INT(weft_last_status(), WEFT_ERR_IO);
    CHECK_CONTAINS(weft_last_error(), "malformed record at byte 24");
    CLOSE();
    unlink(path);
}

TEST(test_store_log_became_shorter)
{
    OPEN();
    weft_store *s = fresh(0);
    CHECK_OK(set(s, "k", "v"));
    CHECK(!truncate(path, HEAD));
    weft_store_value got = {0};
    CHECK_STATUS(weft_store_get(s, "k", 0, &got), WEFT_ERR_IO);
    CHECK_CONTAINS(weft_last_error(), "became shorter");
    CLOSE();
    unlink(path);
}

/* ---- workers ---- */

/* Who has joined and left decides whether the file is what a killed job left behind. */
TEST(test_store_log_workers)
{
    OPEN();
    weft_store *a = weft_keep(fresh(3));
    CHECK_OK(set(a, "k", "v"));
    weft_store *b = weft_keep(weft_store_file(path, 3));
    weft_release(a);
    weft_release(b); /* two of three came and left: the third finds it */
    weft_store *c = weft_keep(weft_store_file(path, 3));
    expect(c, "k", "v");
    weft_release(c);
    CHECK(access(path, F_OK)); /* all three: it goes with the last */
    a = weft_keep(weft_store_file(path, 2));
    CHECK(a && !has(a, "k"));
    CHECK(!weft_store_file(path, 3));
    CHECK_CONTAINS(weft_last_error(), "made for 2 workers, not 3");
    CHECK(!weft_store_file(path, 0));
    b = weft_keep(weft_store_file(path, 2));
    weft_store *copy = weft_keep(weft_store_clone(b));
    CHECK(copy);
    weft_release(a);
    weft_release(b);
    CHECK(!access(path, F_OK)); /* the clone still lives */
    CHECK_OK(set(copy, "of", "the clone"));
    weft_release(copy);
    CHECK(!weft_store_file(path, -1));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CLOSE();
    unlink(path);
}

/* ---- a system that gives and takes in pieces, and has locks of its own mind ---- */

static weft_i_os table;
static size_t most;
static int taken, lock_error, unlock_failures, unlocks;
static int64_t now, slept[64];
static int sleeps;

static ssize_t some_read(int fd, void *bytes, size_t count)
{
    return weft_i_os_linux.read(fd, bytes, count < most ? count : most);
}

static ssize_t some_write(int fd, const void *bytes, size_t count)
{
    return weft_i_os_linux.write(fd, bytes, count < most ? count : most);
}

static ssize_t no_write(int fd, const void *bytes, size_t count)
{
    (void)fd, (void)bytes, (void)count;
    return 0;
}

static int test_lock(int fd, short kind, off_t byte)
{
    if (kind == F_UNLCK) {
        unlocks++;
        if (unlock_failures && unlock_failures--)
            return errno = ENOLCK, -1;
    } else if (taken) {
        taken -= taken > 0;
        return errno = lock_error, -1;
    }
    return weft_i_os_linux.lock_byte(fd, kind, byte);
}

static int64_t test_clock(void)
{
    return now;
}

static void test_sleep(int64_t ns)
{
    if (sleeps < 64)
        slept[sleeps++] = ns;
    now += ns;
}

static void use_table(void)
{
    table = weft_i_os_linux;
    table.read = some_read;
    table.write = some_write;
    table.lock_byte = test_lock;
    table.clock_ns = test_clock;
    table.sleep_ns = test_sleep;
    most = SIZE_MAX;
    taken = unlock_failures = unlocks = sleeps = 0;
    lock_error = EAGAIN;
    now = 1000000000;
    weft_i_os_now = &table;
}

TEST(test_store_log_in_pieces)
{
    OPEN();
    use_table();
    for (most = 1; most < 40; most += 6) {
        weft_store *s = fresh(0);
        CHECK_OK(set(s, "k", "a value of some length"));
        weft_store *t = weft_store_file(path, 0);
        expect(t, "k", "a value of some length");
        CHECK_OK(weft_store_append(t, "k", "!", 1));
        expect(s, "k", "a value of some length!");
        unlink(path);
    }
    weft_i_os_now = &weft_i_os_linux;
    CLOSE();
}

/* A disk that takes nothing: the value is not there, and what was there is whole. */
TEST(test_store_log_full_disk)
{
    uint8_t before[512], after[512];
    OPEN();
    use_table();
    weft_store *s = fresh(0);
    CHECK_OK(set(s, "k", "v"));
    size_t bytes = read_file(before, sizeof before);
    table.write = no_write;
    CHECK_STATUS(set(s, "l", "w"), WEFT_ERR_NO_SPACE);
    table.write = some_write;
    CHECK_INT(read_file(after, sizeof after), bytes);
    CHECK(!memcmp(before, after, bytes));
    CHECK(!has(s, "l"));
    expect(s, "k", "v");
    CHECK_OK(set(s, "l", "w"));
    expect(s, "l", "w");
    weft_i_os_now = &weft_i_os_linux;
    CLOSE();
    unlink(path);
}

static void *no_alloc(size_t bytes)
{
    (void)bytes;
    return NULL;
}

/* That a key is not there can be told without memory: there is nothing new to read, nor to copy. */
TEST(test_store_log_tells_without_memory)
{
    weft_store_value got = {0};
    OPEN();
    use_table();
    weft_store *s = fresh(0);
    CHECK_OK(set(s, "k", "v"));
    table.alloc = no_alloc;
    weft_status none = weft_store_get(s, "none", WEFT_STORE_NOW, &got);
    weft_status type = weft_store_queue_pop(s, "k", WEFT_STORE_NOW, &got);
    weft_status there = weft_store_get(s, "k", WEFT_STORE_NOW, &got);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(none, WEFT_ERR_NOT_FOUND);
    CHECK_INT(type, WEFT_ERR_TYPE);
    CHECK_INT(there, WEFT_ERR_NO_MEMORY);
    weft_clear_error();
    weft_store *other = weft_store_file(path, 0); /* what it has written cannot be read then */
    CHECK_OK(set(other, "k", "two"));
    weft_i_os_now = &table;
    weft_status unread = weft_store_get(s, "none", WEFT_STORE_NOW, &got);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(unread, WEFT_ERR_NO_MEMORY);
    CHECK_CONTAINS(weft_last_error(), ": no memory to read ");
    expect(s, "k", "two");
    weft_clear_error();
    CLOSE();
    unlink(path);
}

/* Whatever allocation fails, what is said to be written is there for others, and only that. */
TEST(test_store_log_writes_without_memory)
{
    OPEN();
    weft_store *s = fresh(0), *other = weft_store_file(path, 0);
    int n = 1, failed = 0;
    for (bool fired = true; fired; n++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", n);
        weft_clear_error();
        fault_arm(n);
        weft_status status = set(s, key, "v");
        fired = fault_disarm();
        CHECK(status == WEFT_OK || (fired && weft_last_error()[0]));
        CHECK_INT(has(other, key), status == WEFT_OK);
        CHECK_INT(has(s, key), status == WEFT_OK);
        failed += status < 0;
    }
    CHECK(failed >= 1 && n < 100);
    CLOSE();
    unlink(path);
}

/* Who waits for the lock or for a key looks again after half a millisecond, then twice that, up to
 * ten, and never sleeps past its deadline. */
TEST(test_store_log_pauses)
{
    static const int64_t pauses[] = {500000,  1000000,  2000000, 4000000,
                                     8000000, 10000000, 10000000};
    weft_store_value got = {0};
    OPEN();
    use_table();
    weft_store *s = fresh(0);
    CHECK_STATUS(weft_store_get(s, "none", 30, &got), WEFT_ERR_TIMEOUT);
    CHECK_INT(now, 1000000000 + 30000000);
    CHECK_INT(sleeps, 7);
    for (int i = 0; i < 6; i++)
        CHECK_INT(slept[i], pauses[i]);
    CHECK_INT(slept[6], 30000000 - 25500000);
    sleeps = 0;
    CHECK_STATUS(weft_store_get(s, "none", WEFT_STORE_NOW, &got), WEFT_ERR_NOT_FOUND);
    CHECK_INT(sleeps, 0);
    taken = 3; /* by another process */
    CHECK_OK(set(s, "k", "v"));
    CHECK_INT(sleeps, 3);
    taken = 2;
    lock_error = EACCES;
    expect(s, "k", "v");
    sleeps = 0;
    taken = -1; /* for good */
    CHECK_OK(weft_store_set_timeout(s, 20));
    CHECK(set(s, "k", "w") < 0);
    CHECK(sleeps >= 4);
    taken = 1;
    lock_error = ENOLCK;
    CHECK(set(s, "k", "w") < 0);
    CHECK_CONTAINS(weft_last_error(), "lock");
    taken = 0;
    expect(s, "k", "v");
    /* unlocking is tried three times, and not more often than needed */
    unlocks = 0;
    CHECK_OK(set(s, "k", "x"));
    CHECK_INT(unlocks, 1);
    unlocks = 0;
    unlock_failures = 2;
    CHECK_OK(set(s, "k", "y"));
    CHECK_INT(unlocks, 3);
    weft_store *t = weft_store_file(path, 0);
    CHECK(t);
    expect(t, "k", "y");
    unlocks = 0;
    unlock_failures = 100;
    CHECK_OK(set(s, "k", "z"));
    CHECK_INT(unlocks, 3);
    unlock_failures = 0;
    expect(s, "k", "z"); /* and now it is free for others */
    expect(t, "k", "z");
    weft_i_os_now = &weft_i_os_linux;
    CLOSE();
    unlink(path);
}

/* Opening waits for the lock as long as a call may take, and no longer. */
TEST(test_store_log_opening)
{
    OPEN();
    use_table();
    weft_store *s = fresh(0);
    CHECK_OK(set(s, "k", "v"));
    taken = 5;
    weft_store *t = weft_store_file(path, 0);
    CHECK(t);
    CHECK_INT(sleeps, 5);
    for (int i = 0; i < 5; i++)
        CHECK_INT(slept[i], 500000);
    taken = -1;
    int64_t begin = now;
    CHECK(!weft_store_file(path, 0));
    CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), "holds its lock");
    CHECK_INT(now - begin, (int64_t)300000 * 1000000);
    taken = 1;
    lock_error = EINVAL;
    CHECK(!weft_store_file(path, 0));
    CHECK(weft_last_status() < 0 && weft_last_status() != WEFT_ERR_TIMEOUT);
    taken = 0;
    weft_i_os_now = &weft_i_os_linux;
    CLOSE();
    unlink(path);
}

/* Another process holds the lock until this one has yielded: the last store waits for it as it
 * leaves, yields no more often than that, and removes the file. */
static int yields;

static void yield_and_free(void)
{
    yields++;
    taken = 0;
}

TEST(test_store_log_leaves_through_a_lock)
{
    OPEN();
    use_table();
    table.yield = yield_and_free;
    for (int held = 0; held < 2; held++) {
        weft_store *s = weft_keep(fresh(1));
        CHECK_OK(set(s, "k", "v"));
        taken = held ? -1 : 0;
        yields = 0;
        weft_release(s);
        CHECK_INT(yields, held);
        CHECK(access(path, F_OK));
    }
    weft_i_os_now = &weft_i_os_linux;
    CLOSE();
}

/* Whoever comes next must not take a store that leaves for alive: its mark goes before the lock. */
static char freed[8];
static int note_freed(int fd, short kind, off_t byte)
{
    size_t used = strlen(freed);
    if (kind == F_UNLCK && used + 1 < sizeof freed)
        freed[used] = (char)('0' + byte);
    return weft_i_os_linux.lock_byte(fd, kind, byte);
}

TEST(test_store_log_leaves_in_order)
{
    OPEN();
    use_table();
    weft_store *s = weft_keep(fresh(2)), *other = weft_keep(weft_store_file(path, 2));
    CHECK(other);
    table.lock_byte = note_freed;
    memset(freed, 0, sizeof freed);
    weft_release(s);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(strlen(freed), 2);
    CHECK(freed[0] == '2' && freed[1] == '0'); /* ALIVE, then OPERATE */
    weft_release(other);
    CHECK(access(path, F_OK));
    CLOSE();
}

/* Readers share the file; a writer has it alone. */
static short kinds[16];
static int locks;
static int note_lock(int fd, short kind, off_t byte)
{
    if (kind != F_UNLCK && locks < 16)
        kinds[locks++] = kind;
    return weft_i_os_linux.lock_byte(fd, kind, byte);
}

TEST(test_store_log_locks)
{
    OPEN();
    use_table();
    weft_store *s = fresh(0);
    table.lock_byte = note_lock;
    weft_store_value got = {0};
    const char *key = "k";
    const void *data = "v";
    size_t bytes = 1, count = 0;
    bool flag = false;
#define LOCKED(kind_, call_)          \
    do {                              \
        locks = 0;                    \
        CHECK_OK(call_);              \
        CHECK_INT(locks, 1);          \
        CHECK_INT(kinds[0], (kind_)); \
    } while (0)
    LOCKED(F_WRLCK, set(s, "k", "v"));
    LOCKED(F_WRLCK, weft_store_add(s, "n", 1, NULL));
    LOCKED(F_WRLCK, weft_store_compare_set(s, "k", "v", 1, "w", 1, NULL, NULL));
    LOCKED(F_WRLCK, weft_store_append(s, "k", "v", 1));
    LOCKED(F_WRLCK, weft_store_multi_set(s, 1, &key, &data, &bytes));
    LOCKED(F_WRLCK, weft_store_queue_push(s, "q", "v", 1));
    LOCKED(F_RDLCK, weft_store_queue_len(s, "q", &count));
    LOCKED(F_WRLCK, weft_store_queue_pop(s, "q", 0, &got));
    weft_store_value_clear(&got);
    LOCKED(F_RDLCK, weft_store_get(s, "k", 0, &got));
    weft_store_value_clear(&got);
    LOCKED(F_RDLCK, weft_store_check(s, 1, &key, &flag));
    LOCKED(F_RDLCK, weft_store_wait(s, 1, &key, 0));
    LOCKED(F_RDLCK, weft_store_num_keys(s, &count));
    LOCKED(F_RDLCK, weft_store_multi_get(s, 1, &key, 0, &got));
    weft_store_value_clear(&got);
    LOCKED(F_WRLCK, weft_store_delete_key(s, "k", NULL));
    weft_i_os_now = &weft_i_os_linux;
    CLOSE();
    unlink(path);
}

/* Whether somebody lives is a lock that can be had at any time by those who read.  If it cannot, the
 * store is not opened. */
static int refuse_the_living(int fd, short kind, off_t byte)
{
    if (kind == F_RDLCK && byte == 2)
        return errno = lock_error, -1;
    return weft_i_os_linux.lock_byte(fd, kind, byte);
}

TEST(test_store_log_lock_of_the_living)
{
    OPEN();
    use_table();
    weft_store *s = fresh(0);
    table.lock_byte = refuse_the_living;
    CHECK(!weft_store_file(path, 0));
    says(WEFT_ERR_IO, "lock of the living is taken");
    lock_error = ENOLCK;
    CHECK(!weft_store_file(path, 0));
    CHECK_CONTAINS(weft_last_error(), ": lock: ");
    table.lock_byte = test_lock;
    weft_clear_error();
    CHECK_OK(set(s, "k", "v"));
    weft_store *t = weft_store_file(path, 0);
    expect(t, "k", "v");
    weft_i_os_now = &weft_i_os_linux;
    CLOSE();
    unlink(path);
}

/* A call that is small enough, of keys with a prefix that makes it too large for a record: nothing
 * of it is there, and the next one is. */
TEST(test_store_log_largest_record)
{
    enum { LARGE = 7 << 20, MANY = 300, PREFIX_BYTES = 8000 };
    char prefix[PREFIX_BYTES + 1], names[MANY][4], *big = calloc(1, LARGE);
    const char *keys[MANY];
    const void *data[MANY];
    size_t bytes[MANY] = {LARGE, LARGE}, size;
    uint8_t before[64], after[64];
    memset(prefix, 'p', PREFIX_BYTES);
    prefix[PREFIX_BYTES] = 0;
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        keys[i] = names[i], data[i] = big;
    }
    OPEN();
    weft_store *s = fresh(0), *long_keys = weft_store_prefix(prefix, s);
    size = read_file(before, sizeof before);
    CHECK_STATUS(weft_store_multi_set(long_keys, MANY, keys, data, bytes), WEFT_ERR_LIMIT);
    says(WEFT_ERR_LIMIT, "a record over 16 MiB");
    CHECK_INT(read_file(after, sizeof after), size);
    CHECK(!has(long_keys, "0") && !has(long_keys, "299"));
    CHECK_OK(weft_store_multi_set(long_keys, 2, keys, data, bytes));
    CHECK(has(long_keys, "1") && !has(long_keys, "2"));
    CLOSE();
    unlink(path);
    free(big);
}

/* ---- calls that fail: the store says so, and the next call works ---- */

static int reads_left, seeks_left, stats_left, lock_left;

static ssize_t bad_read(int fd, void *bytes, size_t count)
{
    return reads_left-- == 0 ? (errno = EIO, -1) : weft_i_os_linux.read(fd, bytes, count);
}

static off_t bad_seek(int fd, off_t offset, int whence)
{
    return seeks_left-- == 0 ? (errno = EIO, -1) : weft_i_os_linux.lseek(fd, offset, whence);
}

static int bad_stat(int fd, struct stat *out)
{
    return stats_left-- == 0 ? (errno = EIO, -1) : weft_i_os_linux.fstat(fd, out);
}

static int bad_lock(int fd, short kind, off_t byte)
{
    return lock_left-- == 0 ? (errno = ENOLCK, -1) : weft_i_os_linux.lock_byte(fd, kind, byte);
}

static void fail_never(void)
{
    use_table();
    table.lock_byte = bad_lock;
    table.read = bad_read;
    table.lseek = bad_seek;
    table.fstat = bad_stat;
    reads_left = seeks_left = stats_left = lock_left = 1 << 30;
}

/* Opens and reads with the n-th call of each kind failing. */
TEST(test_store_log_failing_calls)
{
    int *const counters[] = {&reads_left, &seeks_left, &stats_left, &lock_left};
    static const int least[] = {2, 2, 2, 3};
    static const char *const said[] = {": read: ", ": seek: ", ": stat: ", ": lock: "};
    OPEN();
    weft_store *s = fresh(0);
    CHECK_OK(set(s, "k", "v"));
    for (int which = 0; which < 4; which++)
        for (int n = 0;; n++) {
            CHECK_OK(weft_scope_open());
            fail_never();
            weft_clear_error();
            *counters[which] = n;
            weft_store *t = weft_store_file(path, 0);
            bool fired = *counters[which] < 0;
            weft_status status = t ? WEFT_OK : weft_last_status();
            if (!t)
                CHECK_CONTAINS(weft_last_error(), said[which]);
            fail_never();
            if (t)
                expect(t, "k", "v");
            weft_i_os_now = &weft_i_os_linux;
            CHECK_OK(weft_scope_close());
            if (!fired) {
                CHECK(status == WEFT_OK && n >= least[which]);
                break;
            }
            if (which != 3) /* an unlocking is tried again */
                CHECK_INT(status, WEFT_ERR_IO);
            else
                CHECK(n > 2 || status < 0);
            CHECK(n < 20);
        }
    CLOSE();
    unlink(path);
}

/* The same of a store that is open: what another has written meanwhile has to be read. */
TEST(test_store_log_failing_reads)
{
    int *const counters[] = {&reads_left, &seeks_left, &stats_left, &lock_left};
    OPEN();
    weft_store *s = fresh(0), *other = weft_store_file(path, 0);
    for (int which = 0; which < 4; which++) {
        CHECK_OK(set(other, "k", which % 2 ? "v" : "w"));
        fail_never();
        *counters[which] = 0;
        weft_store_value got = {0};
        weft_clear_error();
        weft_status status = weft_store_get(s, "k", WEFT_STORE_NOW, &got);
        fail_never();
        CHECK(status < 0 && weft_last_status() == status);
        expect(s, "k", which % 2 ? "v" : "w");
        weft_i_os_now = &weft_i_os_linux;
    }
    uint8_t bytes[2][1024]; /* where a record would go cannot be reached: nothing is written */
    size_t size = read_file(bytes[0], sizeof *bytes);
    fail_never();
    seeks_left = 0;
    CHECK_STATUS(set(s, "k", "lost"), WEFT_ERR_IO);
    CHECK_CONTAINS(weft_last_error(), ": seek: ");
    fail_never();
    CHECK_INT(read_file(bytes[1], sizeof *bytes), size);
    CHECK(!memcmp(bytes[0], bytes[1], size));
    expect(s, "k", "v");
    weft_i_os_now = &weft_i_os_linux;
    weft_clear_error();
    CLOSE();
    unlink(path);
}

/* Memory for any part of a file that is read: the store is whole or not there. */
TEST(test_store_log_without_memory)
{
    enum { MANY = 40 };
    const char *keys[MANY];
    const void *data[MANY];
    size_t bytes[MANY];
    char names[MANY][4];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        keys[i] = names[i], data[i] = "v", bytes[i] = 1;
    }
    OPEN();
    weft_store *s = fresh(0);
    CHECK_OK(weft_store_multi_set(s, MANY, keys, data, bytes));
    CHECK_OK(set(s, "last", "v"));
    int n = 1;
    for (bool fired = true; fired; n++) {
        CHECK_OK(weft_scope_open());
        weft_clear_error();
        fault_arm(n);
        weft_store *t = weft_store_file(path, 0);
        fired = fault_disarm();
        if (t) {
            size_t count = 0;
            CHECK_OK(weft_store_num_keys(t, &count));
            CHECK_INT(count, MANY + 1);
            expect(t, "39", "v");
            expect(t, "last", "v");
        } else if (weft_last_status() != WEFT_ERR_NO_MEMORY && !strcmp(fault_name, "alloc")) {
            FAIL("call %d: %d: %s", n, weft_last_status(), weft_last_error());
        }
        CHECK(t || weft_last_error()[0]);
        CHECK_OK(weft_scope_close());
    }
    CHECK(n > MANY && n < 400);
    CLOSE();
    unlink(path);
}

TEST(test_store_log_paths)
{
    OPEN();
    char *longest = malloc(4200);
    memset(longest, 'p', 4200);
    longest[0] = '/';
    longest[4096] = 0;
    CHECK(!weft_store_file(longest, 1));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "too long");
    longest[4095] = 0;
    CHECK(!weft_store_file(longest, 1)); /* the system's own limit */
    CHECK(weft_last_status() != WEFT_ERR_INVALID_ARG);
    CHECK(!weft_store_file("", 1));
    CHECK_CONTAINS(weft_last_error(), "empty");
    CHECK(!weft_store_file("/dev/null", 1));
    CHECK_CONTAINS(weft_last_error(), "not a regular file");
    free(longest);
    CLOSE();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}

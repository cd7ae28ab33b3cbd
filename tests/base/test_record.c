/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/report/record.c */
#include "harness.h"

#include "base/os/os.h"
#include "base/report/record.h"
#include "sanitized.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static weft_i_record record; /* 64 KiB: too large for a stack */

static _Thread_local int locks; /* that this thread has taken, the library's among them */

#if defined __GLIBC__ && !SANITIZED_THREAD /* which has a function of its own in this place */
__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*original)(pthread_mutex_t *);
    int (*real)(pthread_mutex_t *) = __atomic_load_n(&original, __ATOMIC_RELAXED);
    if (!real) { /* every thread that looks it up finds the same */
        *(void **)(void *)&real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        __atomic_store_n(&original, real, __ATOMIC_RELAXED);
    }
    locks++;
    return real(mutex);
}
#endif

TEST(test_record_empty)
{
    weft_i_record_entry entry;
    weft_i_record_init(&record);
    CHECK(!weft_i_record_last(&record, &entry));
    CHECK(!weft_i_record_last_finished(&record, &entry));
    CHECK_INT(weft_i_record_newest(&record, &entry, 1), 0);
    CHECK_INT(weft_i_record_begin(NULL, "x", 0, 0, -1, -1), 0);
    weft_i_record_end(NULL, 1, 0);
    weft_i_record_end(&record, 0, 0);
}

TEST(test_record_begin_and_end)
{
    weft_i_record_entry entry;
    weft_i_record_init(&record);
    CHECK_INT(weft_i_record_begin(&record, "all_reduce", 7, 4096, -1, 3), 1);
    CHECK(weft_i_record_last(&record, &entry));
    CHECK(!entry.finished);
    CHECK_INT(entry.number, 1);
    CHECK_INT(entry.group, 7);
    CHECK_INT(entry.bytes, 4096);
    CHECK_INT(entry.peer, -1);
    CHECK_INT(entry.channel, 3);
    CHECK(!strcmp(entry.name, "all_reduce"));
    weft_i_record_end(&record, 1, WEFT_ERR_PEER_DEAD);
    CHECK(weft_i_record_last(&record, &entry));
    CHECK(entry.finished && entry.end >= entry.begin);
    CHECK_INT(entry.status, WEFT_ERR_PEER_DEAD);
    CHECK_INT(entry.channel, 3);
    uint64_t second =
        weft_i_record_begin(&record, "a_name_that_is_far_too_long", 0xffffffffu, SIZE_MAX, 12, -1);
    CHECK(weft_i_record_last(&record, &entry));
    CHECK_INT(entry.number, second);
    CHECK_INT(entry.group, 0xffffffffu);
    CHECK(entry.bytes == (UINT64_C(1) << 48) - 1);
    CHECK_INT(entry.peer, 12);
    CHECK_INT(entry.channel, -1);
    CHECK(!strcmp(entry.name, "a_name_that_is_"));
    CHECK(weft_i_record_last_finished(&record, &entry));
    CHECK_INT(entry.number, 1);
}

TEST(test_record_wraps)
{
    static weft_i_record_entry entries[WEFT_I_RECORD_ENTRIES + 1];
    weft_i_record_init(&record);
    uint64_t first = weft_i_record_begin(&record, "slow", 0, 1, -1, -1);
    for (int i = 0; i < 5000; i++)
        weft_i_record_end(&record, weft_i_record_begin(&record, "fast", 0, 2, -1, -1), 0);
    weft_i_record_end(&record, first, WEFT_ERR_TIMEOUT); /* its slot belongs to another by now */
    size_t count = weft_i_record_newest(&record, entries, WEFT_I_RECORD_ENTRIES + 1);
    CHECK_INT(count, WEFT_I_RECORD_ENTRIES);
    for (size_t i = 0; i < count; i++) {
        CHECK_INT(entries[i].number, 5001 - i);
        CHECK(entries[i].finished && entries[i].status == 0 && !strcmp(entries[i].name, "fast"));
    }
    CHECK_INT(weft_i_record_newest(&record, entries, 3), 3);
}

TEST(test_record_text)
{
    char text[256], tiny[12];
    weft_i_record_entry entry;
    weft_i_record_init(&record);
    WEFT_OS->sleep_ns(2000000);
    uint64_t number = weft_i_record_begin(&record, "barrier", 0, 4096, -1, 3);
    WEFT_OS->sleep_ns(2000000);
    CHECK(weft_i_record_last(&record, &entry));
    weft_i_record_text(&record, &entry, text, sizeof text);
    CHECK_CONTAINS(text, "barrier #1 on group 0 channel 3, 4096 bytes, begun ");
    CHECK_CONTAINS(text, "s ago, not finished");
    weft_i_record_end(&record, number, WEFT_ERR_TIMEOUT);
    CHECK(weft_i_record_last(&record, &entry));
    CHECK_CONTAINS(weft_i_record_text(&record, &entry, text, sizeof text), ", WEFT_ERR_TIMEOUT");
    double took = 0;
    char unit[3] = "";
    const char *took_text = strstr(text, "took ");
    CHECK(took_text && sscanf(took_text, "took %lf %2[ms]", &took, unit) == 2);
    took *= strcmp(unit, "ms") ? 1000 : 1; /* on a very busy machine */
    CHECK(took >= 1.9 && took < 30000);
    CHECK(!strcmp(weft_i_record_text(&record, &entry, tiny, sizeof tiny), "barrier #1 "));
    CHECK(!strcmp(weft_i_record_text(&record, &entry, tiny, 0), "barrier #1 "));
}

/* With the heartbeat's clock the text claims no more than is known. */
TEST(test_record_text_of_heartbeats)
{
    char text[256];
    weft_i_record_entry entry;
    weft_i_record_init(&record);
    weft_i_record_tick(&record);
    uint64_t number = weft_i_record_begin(&record, "barrier", 0, 0, -1, -1);
    CHECK(weft_i_record_last(&record, &entry));
    CHECK_CONTAINS(weft_i_record_text(&record, &entry, text, sizeof text), " bytes, begun about ");
    CHECK_CONTAINS(text, " ago, not finished");
    weft_i_record_end(&record, number, 0);
    CHECK(weft_i_record_last(&record, &entry));
    CHECK_CONTAINS(weft_i_record_text(&record, &entry, text, sizeof text), " ago, finished");
    CHECK(!strstr(text, "took"));
}

/* A rank is killed in mid-operation; the survivor reads what it was doing. */
TEST(test_record_survives_death)
{
    weft_i_record *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    weft_i_record_init(shared);
    pid_t child = fork();
    if (child == 0) {
        weft_i_record_end(shared, weft_i_record_begin(shared, "barrier", 0, 0, -1, 1), 0);
        weft_i_record_begin(shared, "wait_signal", 2, 8, 3, 5);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    weft_i_record_entry entry;
    bool found = weft_i_record_last(shared, &entry);
    munmap(shared, sizeof *shared);
    CHECK(found && !entry.finished);
    CHECK(!strcmp(entry.name, "wait_signal"));
    CHECK_INT(entry.peer, 3);
}

/* A writer that comes to itself a whole round later writes over an entry that is whole: one word at
 * a time, and the entry must not be shown any more after each. */
TEST(test_record_late_writer)
{
    for (int word = 0; word < 5; word++) {
        weft_i_record_init(&record);
        weft_i_record_end(&record, weft_i_record_begin(&record, "all_reduce", 7, 64, 2, 1), 0);
        weft_i_record_entry entry;
        CHECK(weft_i_record_last(&record, &entry) && !strcmp(entry.name, "all_reduce"));
        weft_i_record_slot *slot = &record.slots[0];
        _Atomic uint64_t *words[] = {&slot->begin, &slot->bytes, &slot->name[0], &slot->name[1],
                                     &slot->where};
        atomic_fetch_add_explicit(words[word], 1, memory_order_relaxed); /* no other thread */
        CHECK(!weft_i_record_last(&record, &entry));
    }
}

enum { WRITERS = 3, ROUNDS = 20000 };
static atomic_int stop_reading;

/* Each word of an entry says the same thing, so that a torn copy shows. */
static void *write_many(void *argument)
{
    int writer = (int)(intptr_t)argument;
    static const char *const names[WRITERS] = {"alpha", "beta", "a_long_name_xyz"};
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t number = weft_i_record_begin(&record, names[writer], (uint32_t)writer,
                                              (size_t)writer * 1000, writer, writer);
        weft_i_record_end(&record, number, -writer);
    }
    return NULL;
}

static bool is_whole(const weft_i_record_entry *entry)
{
    static const char *const names[WRITERS] = {"alpha", "beta", "a_long_name_xyz"};
    unsigned writer = entry->group;
    return writer < WRITERS && !strcmp(entry->name, names[writer]) &&
           entry->bytes == writer * 1000 && entry->peer == (int)writer &&
           entry->channel == (int)writer &&
           (!entry->finished || (entry->status == -(int)writer && entry->end >= entry->begin));
}

static void *read_many(void *argument)
{
    (void)argument;
    static weft_i_record_entry entries[64];
    intptr_t torn = 0;
    do {
        size_t count = weft_i_record_newest(&record, entries, 64);
        for (size_t i = 0; i < count; i++)
            torn += !is_whole(&entries[i]);
    } while (!atomic_load_explicit(&stop_reading,
                                   memory_order_relaxed)); /* a plain flag, publishes nothing */
    return (void *)torn;
}

TEST(test_record_threads)
{
    pthread_t writers[WRITERS], reader;
    void *torn = NULL;
    weft_i_record_init(&record);
    atomic_store_explicit(&stop_reading, 0, memory_order_relaxed);
    CHECK(!pthread_create(&reader, NULL, read_many, NULL));
    for (int i = 0; i < WRITERS; i++)
        CHECK(!pthread_create(&writers[i], NULL, write_many, (void *)(intptr_t)i));
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    atomic_store_explicit(&stop_reading, 1, memory_order_relaxed);
    pthread_join(reader, &torn);
    CHECK_INT((intptr_t)torn, 0);
    weft_i_record_entry entry;
    CHECK(weft_i_record_last(&record, &entry));
    CHECK_INT(entry.number, WRITERS * ROUNDS);
}

static size_t slurp(const char *path, char *out, size_t bytes)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, out, bytes - 1);
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

static bool python_accepts(const char *path)
{
    char command[512];
    snprintf(command, sizeof command, "python3 -m json.tool '%s' >/dev/null", path);
    return system(command) == 0;
}

TEST(test_record_trace)
{
    static char text[512 * 1024];
    char pattern[] = "/tmp/weft-test-XXXXXX", path[128], given[128];
    CHECK(mkdtemp(pattern));
    weft_i_record_init(&record);
    for (int i = 0; i < 1100; i++) {
        uint64_t number =
            weft_i_record_begin(&record, i % 2 ? "barrier" : "odd \"name\"\n\xff", 1, 64, -1, 0);
        uint64_t inner = weft_i_record_begin(&record, "inner", 1, 64, 1, -1);
        weft_i_record_end(&record, inner, 0);
        if (i != 1099)
            weft_i_record_end(&record, number, i % 3 ? 0 : WEFT_ERR_TIMEOUT);
    }
    snprintf(given, sizeof given, "%s/trace.json", pattern);
    snprintf(path, sizeof path, "%s/trace.3.json", pattern);
    weft_status status = weft_i_record_write_trace(&record, 3, given);
    size_t length = slurp(path, text, sizeof text);
    bool valid = python_accepts(path);
    unlink(path);
    rmdir(pattern);
    CHECK_OK(status);
    CHECK(length > 1000 && valid);
    CHECK_CONTAINS(text, "\"name\":\"rank 3\"");
    CHECK_CONTAINS(text, "\"odd \\\"name\\\"??\"");
    CHECK_CONTAINS(text, "\"ph\":\"X\",\"pid\":3,\"tid\":0,\"ts\":");
    CHECK_CONTAINS(text, "\"name\":\"inner\",\"cat\":\"weft\",\"ph\":\"X\",\"pid\":3,\"tid\":1");
    CHECK_CONTAINS(text, "\"status\":\"not finished\"");
    CHECK_CONTAINS(text, "\"status\":\"WEFT_ERR_TIMEOUT\"");
    size_t events = 0;
    for (const char *at = text; (at = strstr(at, "\"ph\":\"X\"")); at++)
        events++;
    CHECK_INT(events, WEFT_I_RECORD_ENTRIES);
}

TEST(test_record_trace_fails_clearly)
{
    weft_i_record_init(&record);
    CHECK(weft_i_record_write_trace(&record, 0, "/nonexistent/trace.json") < 0);
    CHECK_CONTAINS(weft_last_error(), "opening /nonexistent/trace.0.json");
    CHECK_STATUS(weft_i_record_write_trace(&record, 0, "/dev/full%r%%/x"), WEFT_ERR_IO);
    weft_i_record_begin(&record, "barrier", 0, 0, -1, -1);
}

static weft_i_os no_system; /* a call to the system through this is a crash */

/* Pairs of begin and end in a row: ns for each. */
static double cost_of_pairs(int pairs)
{
    int64_t start = WEFT_OS->clock_ns();
    weft_i_os_now = &no_system;
    for (int i = 0; i < pairs; i++)
        weft_i_record_end(&record, weft_i_record_begin(&record, "all_reduce", 0, 64, -1, 0), 0);
    weft_i_os_now = &weft_i_os_linux;
    return (double)(WEFT_OS->clock_ns() - start) / pairs;
}

/* Entries are made without a call to the system and without a lock.  What they cost is shown: some
 * machines take microseconds to tell the time. */
TEST(test_record_cost)
{
    enum { TRIES = 10, COUNT = 20000 };
    double exact = INFINITY, coarse = INFINITY;
    locks = 0;
    weft_i_record_init(&record);
    for (int i = 0; i < TRIES; i++)
        exact = fmin(exact, cost_of_pairs(COUNT));
    weft_i_record_tick(&record);
    for (int i = 0; i < TRIES; i++)
        coarse = fmin(coarse, cost_of_pairs(COUNT));
    printf("# record begin+end %.1f ns, %.1f ns with the heartbeat's clock\n", exact, coarse);
    CHECK_INT(locks, 0);
}

/* An entry whose turn is set anew keeps all else; one that was overwritten stays as it is. */
TEST(test_record_set_turn)
{
    weft_i_record_entry before, after;
    weft_i_record_init(&record);
    uint64_t number =
        weft_i_record_begin(&record, "all_reduce", 7, 4096, weft_i_record_turn(9), WEFT_I_WAY_HOST);
    CHECK(weft_i_record_last(&record, &before) && before.turn == 9 && !before.on_device);
    weft_i_record_set_turn(&record, number, weft_i_record_device_turn(3));
    CHECK(weft_i_record_last(&record, &after) && after.turn == 3 && after.on_device);
    CHECK(after.number == before.number && after.begin == before.begin && after.peer == -1);
    CHECK(after.bytes == 4096 && after.group == 7 && after.channel == WEFT_I_WAY_HOST);
    CHECK(!strcmp(after.name, "all_reduce") && !after.finished);
    weft_i_record_set_turn(&record, number, weft_i_record_turn(10));
    CHECK(weft_i_record_last(&record, &after) && after.turn == 10 && !after.on_device);
    weft_i_record_end(&record, number, WEFT_OK);
    weft_i_record_begin(&record, "send", 7, 8, 2, -1);
    CHECK(weft_i_record_last(&record, &after) && after.peer == 2 && !after.turn &&
          !after.on_device);
    for (int i = 0; i < WEFT_I_RECORD_ENTRIES; i++)
        weft_i_record_begin(&record, "later", 7, 0, weft_i_record_turn(1), -1);
    weft_i_record_set_turn(&record, number, weft_i_record_turn(77));
    weft_i_record_set_turn(&record, 0, weft_i_record_turn(77));
    weft_i_record_set_turn(NULL, 1, weft_i_record_turn(77));
    static weft_i_record_entry all[WEFT_I_RECORD_ENTRIES];
    CHECK_INT(weft_i_record_newest(&record, all, WEFT_I_RECORD_ENTRIES), WEFT_I_RECORD_ENTRIES);
    for (int i = 0; i < WEFT_I_RECORD_ENTRIES; i++)
        CHECK_INT(all[i].turn, 1);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

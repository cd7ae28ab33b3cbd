/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parts/object.c */
/*
 * Object collectives: strings of every length around the borders of a piece, none at all, lists
 * that do not fit one piece; nonsense lengths, too much of it, and memory that runs out.
 */
#include "coll_values.h"
#include "fault.h"
#include "jobs.h"

enum { SLOT = 128 << 10 }; /* what travels with the entry */

/* The string of `who` is a stretch of this, from a place of its own. */
static unsigned char pattern[4 * SLOT];

static weft_bytes make(int who, size_t length)
{
    return (weft_bytes){length ? pattern + who * 17 : NULL, length};
}

static void check(const weft_blobs *blobs, int index, int who, size_t length)
{
    weft_bytes got = weft_blobs_get(blobs, index);
    CHECK_INT(got.length, length);
    CHECK(got.data); /* also of an empty one */
    CHECK(!memcmp(got.data, pattern + who * 17, length));
}

/* Lengths by (round, rank). */
static size_t length_of(int round, int rank)
{
    static const size_t lengths[] = {0,    1,        7,        4096,         SLOT - 1,
                                     SLOT, SLOT + 1, 2 * SLOT, 3 * SLOT + 7, 0};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    return round < LENGTHS ? lengths[round] : lengths[(round * 7 + rank * 3) % LENGTHS];
}

enum { ROUNDS = 20 };

static void run_all_gather(int rank, int size)
{
    weft_group *world = join(20000);
    for (int round = 0; round < ROUNDS; round++) {
        weft_scope_open();
        weft_bytes mine = make(rank, length_of(round, rank));
        weft_blobs *all = weft_all_gather_object(mine, world);
        CHECK(all);
        CHECK_INT(weft_blobs_count(all), size);
        for (int from = 0; from < size; from++)
            check(all, from, from, length_of(round, from));
        CHECK(!weft_blobs_get(all, size).data && !weft_blobs_get(all, -1).data);
        weft_scope_close();
    }
    finish(world);
}

static void run_rooted(int rank, int size)
{
    weft_group *world = join(20000);
    for (int round = 0; round < ROUNDS; round++) {
        int root = round % size;
        weft_bytes mine = make(rank, length_of(round, rank)), list[8];
        weft_scope_open();
        weft_blobs *all = weft_gather_object(mine, root, world);
        CHECK(all);
        CHECK_INT(weft_blobs_count(all), rank == root ? size : 0);
        for (int from = 0; from < weft_blobs_count(all); from++)
            check(all, from, from, length_of(round, from));
        for (int to = 0; to < size; to++)
            list[to] = rank == root ? make(to + 10, length_of(round, to)) : (weft_bytes){NULL, 0};
        weft_blobs *part = weft_scatter_object(rank == root ? list : NULL, root, world);
        weft_blobs *copy = weft_broadcast_object(rank == root ? list : NULL, size, root, world);
        CHECK(part && copy);
        CHECK_INT(weft_blobs_count(part), 1);
        check(part, 0, rank + 10, length_of(round, rank));
        CHECK_INT(weft_blobs_count(copy), size);
        for (int to = 0; to < size; to++)
            check(copy, to, to + 10, length_of(round, to));
        weft_scope_close();
    }
    finish(world);
}

#define WITH(ranks_)                                    \
    RANKS_TEST(test_object_all_gather_##ranks_, ranks_) \
    {                                                   \
        run_all_gather(rank, size);                     \
    }                                                   \
    RANKS_TEST(test_object_rooted_##ranks_, ranks_)     \
    {                                                   \
        run_rooted(rank, size);                         \
    }

WITH(1)
WITH(2)
WITH(5)

/* Lists of no string, and of so many that their lengths alone fill pieces. */
RANKS_TEST(test_object_broadcast_lists, 3)
{
    enum { MANY = 40000 };
    weft_group *world = join(20000);
    weft_bytes *list = calloc(MANY, sizeof *list);
    static const char text[] = "abcdefghijklmnopqrstuvwxyz";
    CHECK(list);
    for (int i = 0; i < MANY; i++)
        list[i] = (weft_bytes){text + i % 7, (size_t)(i % 20)};
    static const int counts[] = {0, 1, MANY};
    for (int n = 0; n < 3; n++) {
        weft_blobs *copy =
            weft_broadcast_object(rank == 1 ? list : NULL, rank == 1 ? counts[n] : 0, 1, world);
        CHECK(copy);
        CHECK_INT(weft_blobs_count(copy), counts[n]);
        for (int i = 0; i < counts[n]; i++) {
            weft_bytes got = weft_blobs_get(copy, i);
            CHECK_INT(got.length, list[i].length);
            CHECK(!memcmp(got.data, list[i].data, got.length));
        }
    }
    free(list);
    finish(world);
}

/* They keep their order with posted work, and results outlive the scope if kept. */
RANKS_TEST(test_object_after_posted, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100000));
    weft_work *work = weft_all_reduce_start(x, x, WEFT_SUM, world);
    weft_scope_open();
    int me = rank + 1;
    weft_blobs *all = weft_keep(weft_all_gather_object((weft_bytes){&me, sizeof me}, world));
    weft_scope_close();
    CHECK(all);
    CHECK_INT(weft_work_test(work), WEFT_OK);
    for (int from = 0; from < size; from++)
        CHECK_INT(*(const int *)weft_blobs_get(all, from).data, from + 1);
    weft_release(all);
    finish(world);
}

RANKS_TEST(test_object_refused, 2)
{
    weft_group *world = join(20000);
    weft_bytes word = {"word", 4}, hollow = {NULL, 4}, list[2] = {word, word};
    weft_bytes absurd = {"word", SIZE_MAX - 3};
#define REFUSED(call_, text_)                                   \
    do {                                                        \
        weft_clear_error();                                     \
        CHECK(!(call_));                                        \
        CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG); \
        CHECK_CONTAINS(weft_last_error(), text_);               \
    } while (0)
    REFUSED(weft_all_gather_object(hollow, world), "at NULL");
    REFUSED(weft_all_gather_object(absurd, world), "more than there is memory");
    REFUSED(weft_all_gather_object(word, NULL), "group is NULL");
    REFUSED(weft_gather_object(word, 2, world), "must be in [0, 2)");
    REFUSED(weft_scatter_object(list, 1 - rank, world), "only the root");
    REFUSED(weft_scatter_object(NULL, rank, world), "a list of 2 strings");
    REFUSED(weft_broadcast_object(list, 2, 1 - rank, world), "only the root");
    REFUSED(weft_broadcast_object(list, -1, rank, world), "a list of -1");
    CHECK_INT(weft_blobs_count(NULL), 0);
    weft_clear_error();
    weft_blobs *all = weft_all_gather_object(word, world);
    CHECK_INT(weft_blobs_count(all), 2);
    finish(world);
}

/* The least limit counts for all; a length that is nonsense is refused before anybody reads it. */
RANKS_TEST(test_object_limit, 3)
{
    if (harness_in_threads)
        SKIP("ranks that are threads share their environment");
    weft_group *world = join(20000);
    char some[1001] = {0};
    if (rank == 2)
        setenv("WEFT_OBJECT_LIMIT", "1000", 1);
    CHECK(weft_all_gather_object((weft_bytes){some, 300}, world));
    weft_clear_error();
    CHECK(!weft_all_gather_object((weft_bytes){some, rank == 1 ? 600 : 300}, world));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "600 bytes, comes from rank 1");
    weft_bytes list[3] = {{some, 1}, {some, (size_t)1 << 40}, {some, 600}};
    CHECK(!weft_scatter_object(rank == 0 ? list : NULL, 0, world));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "is for rank 1");
    CHECK(!weft_all_gather_object((weft_bytes){some, rank ? 3 : (size_t)1 << 50}, world));
    CHECK_CONTAINS(weft_last_error(), "comes from rank 0");
    CHECK(!weft_broadcast_object(rank ? NULL : list, rank ? 0 : 2, 0, world));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_LIMIT);
    list[1].length = 600;
    weft_clear_error();
    CHECK(weft_scatter_object(rank == 0 ? list : NULL, 0, world)); /* each may have that much */
    for (int i = 0; i < 3; i++)
        list[i].length = 1000;
    CHECK(weft_scatter_object(rank == 0 ? list : NULL, 0, world)); /* all of them the most */
    list[2].length = 1001;
    CHECK(!weft_scatter_object(rank == 0 ? list : NULL, 0, world));
    CHECK_CONTAINS(weft_last_error(), "1001 bytes, is for rank 2");
    finish(world);
}

static weft_i_os meddling;
static weft_bytes *victim; /* whose lengths change at the next allocation */
static size_t new_lengths[2];

/* Between the sum of the lengths and the first that is shown there is an allocation. */
static void *meddle(size_t bytes)
{
    if (victim) {
        victim[0].length = new_lengths[0];
        victim[1].length = new_lengths[1];
        victim = NULL;
    }
    return weft_i_os_linux.alloc(bytes);
}

/* Lists whose lengths are not those that were announced: all ranks refuse them, and are in step
 * afterwards. */
RANKS_TEST(test_object_changed_under_way, 2)
{
    static const size_t lengths[][2] = {
        {8, 12}, /* the first alone is all there is */
        {2, 2},  /* bytes are left over */
        {4, 5},  /* the last is too long */
        {0, 0},  {9, 0},
    };
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    weft_group *world = join(20000);
    meddling = weft_i_os_linux;
    meddling.alloc = meddle;
    for (size_t i = 0; i <= sizeof lengths / sizeof *lengths; i++) {
        bool good = i == sizeof lengths / sizeof *lengths; /* the last is left as it is */
        weft_bytes list[2] = {make(0, 4), make(1, 4)};
        weft_clear_error();
        if (rank == 0 && !good) {
            memcpy(new_lengths, lengths[i], sizeof new_lengths);
            victim = list;
            weft_i_os_now = &meddling;
        }
        weft_blobs *got = weft_broadcast_object(rank ? NULL : list, rank ? 0 : 2, 0, world);
        weft_i_os_now = &weft_i_os_linux;
        CHECK(!victim);
        if (good != (got != NULL))
            FAIL("lengths %zu: %s", i, got ? "accepted" : weft_last_error());
        if (good) {
            check(got, 0, 0, 4);
            check(got, 1, 1, 4);
            continue;
        }
        CHECK_STATUS(weft_last_status(), WEFT_ERR_PROTOCOL);
        CHECK_CONTAINS(weft_last_error(), "the list of rank 0 does not add up");
    }
    (void)size;
    finish(world);
}

/* Nobody but the rank without memory notices, and all are in step afterwards. */
RANKS_TEST(test_object_shortage, 3)
{
    if (harness_hosts)
        SKIP("between hosts a lack of memory in the middle of a call ends the group");
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    weft_group *world = join(20000);
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    bool fired = true;
    for (int n = 1; fired; n++) {
        for (int op = 0; op < 3; op++) {
            weft_bytes mine = make(rank, 2 * SLOT), list[3] = {mine, mine, mine};
            weft_blobs *got = NULL;
            weft_status status = WEFT_ERR_NO_MEMORY;
            weft_scope_open();
            if (rank == 1)
                fault_arm(n);
            while (status == WEFT_ERR_NO_MEMORY) { /* nothing has happened: again */
                weft_clear_error();
                got = op == 0   ? weft_all_gather_object(mine, world)
                      : op == 1 ? weft_broadcast_object(rank ? NULL : list, rank ? 0 : 3, 0, world)
                                : weft_scatter_object(rank ? NULL : list, 0, world);
                status = weft_last_status();
            }
            fired = rank == 1 && fault_disarm();
            if (rank != 1 || !fired)
                CHECK_STATUS(status, WEFT_OK);
            if (got)
                check(got, 0, 0, 2 * SLOT);
            else
                CHECK_STATUS(status, WEFT_ERR_CANCELLED);
            weft_scope_close();
        }
        weft_clear_error();
        int mine = fired;
        weft_blobs *all = weft_all_gather_object((weft_bytes){&mine, sizeof mine}, world);
        CHECK(all);
        fired = *(const int *)weft_blobs_get(all, 1).data != 0;
        CHECK(n < 50);
    }
    finish(world);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (unsigned char)(i * 31 + i / 251 + 1);
    return harness_main(argc, argv);
}

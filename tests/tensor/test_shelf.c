/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/shelf.c */
/* Small blocks that a thread keeps: which come back, how many stay, and who sees them go. */
#include "harness.h"

#include "base/os/os.h"
#include "tensor/object/shelf.h"

#include <weft/weft.h>

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void need_shelf(void)
{
    if (!WEFT_I_HAS_SHELF)
        SKIP("AddressSanitizer watches what it has allocated itself");
    weft_i_shelf_clear();
}

static bool is_zero(const char *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (block[i])
            return false;
    return true;
}

static weft_i_os counting;
static int allocated, freed; /* by one thread at a time */

static void *counting_alloc(size_t bytes)
{
    allocated++;
    return weft_i_os_linux.alloc(bytes);
}

static void counting_free(void *memory)
{
    freed++;
    weft_i_os_linux.free(memory);
}

static void watch(void)
{
    counting = weft_i_os_linux;
    counting.alloc = counting_alloc;
    counting.free = counting_free;
    allocated = freed = 0;
    weft_i_os_now = &counting;
}

static int use_without_keys(void)
{
    pthread_key_t others;
    unsigned units;
    while (pthread_key_create(&others, NULL) == 0)
        pthread_setspecific(others, NULL);
    void *block = weft_i_shelf_take(100, 0, &units);
    watch();
    weft_i_shelf_give(block, units);
    return freed == 1 ? 0 : 1;
}

/* A thread whose end nobody would tell of keeps nothing.  The first of the tests: a key that is
 * made stays. */
TEST(test_shelf_without_keys)
{
    if (!WEFT_I_HAS_SHELF)
        SKIP("AddressSanitizer watches what it has allocated itself");
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child)
        _exit(use_without_keys());
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
}

/* One of about the same size gets it again, cleared as far as it asks, but not before those that were
 * given back later are as many as are to lie there: the oldest is the next. */
TEST(test_shelf_again)
{
    unsigned units, other;
    char *blocks[200];
    need_shelf();
    unsigned rest = weft_i_shelf_rest(5);
    CHECK(rest >= 24 && rest < 200);
    for (unsigned i = 0; i <= rest; i++) {
        CHECK((blocks[i] = weft_i_shelf_take(300, 300, &units)) && is_zero(blocks[i], 300));
        CHECK_INT(units, 5);
    }
    for (unsigned i = 0; i <= rest; i++) {
        CHECK((blocks[rest + 1] = weft_i_shelf_take(300, 0, &other))); /* not one of those */
        for (unsigned k = 0; k <= rest; k++)
            CHECK(blocks[rest + 1] != blocks[k]);
        weft_i_os_linux.free(blocks[rest + 1]);
        memset(blocks[i], 1, 300);
        weft_i_shelf_give(blocks[i], units);
    }
    char *larger = weft_i_shelf_take(321, 0, &other);
    char *same = weft_i_shelf_take(257, 100, &units);
    CHECK(same == blocks[0] && is_zero(same, 100) && same[100] == 1);
    for (unsigned i = 0; i < 3 * rest; i++) { /* round and round */
        weft_i_shelf_give(same, units);
        same = weft_i_shelf_take(257, 0, &units);
        CHECK(same == blocks[(i + 1) % (rest + 1)]);
    }
    weft_i_shelf_give(same, units);
    weft_i_shelf_give(larger, other);
    CHECK_INT(weft_i_shelf_clear(), rest + 2);
    CHECK_INT(weft_i_shelf_clear(), 0);
}

/* 64 KiB of each size stay; blocks above 1 KiB are none for the shelf. */
TEST(test_shelf_keeps_few)
{
    unsigned units = 0;
    void *blocks[100];
    need_shelf();
    for (int i = 0; i < 100; i++)
        CHECK((blocks[i] = weft_i_shelf_take(1024, 0, &units)));
    for (int i = 0; i < 100; i++)
        weft_i_shelf_give(blocks[i], units);
    CHECK_INT(weft_i_shelf_clear(), 64);
    void *large = weft_i_shelf_take(1025, 1025, &units);
    CHECK(large && is_zero(large, 1025));
    CHECK_INT(units, 0);
    weft_i_shelf_give(large, units);
    CHECK_INT(weft_i_shelf_clear(), 0);
}

/* As many bytes of every size. */
TEST(test_shelf_keeps_few_of_each_size)
{
    enum { MOST = (64 << 10) / WEFT_I_SHELF_UNIT };
    static void *blocks[MOST + 1];
    need_shelf();
    for (unsigned size = 1; size <= WEFT_I_SHELF_UNITS; size++) {
        unsigned units = 0, most = MOST / size;
        for (unsigned i = 0; i <= most; i++)
            CHECK((blocks[i] = weft_i_shelf_take(size * WEFT_I_SHELF_UNIT, 0, &units)));
        CHECK_INT(units, size);
        for (unsigned i = 0; i <= most; i++)
            weft_i_shelf_give(blocks[i], units);
        CHECK_INT(weft_i_shelf_clear(), most);
    }
}

/* A table of calls that a test has put in sees every tensor come and go. */
TEST(test_shelf_is_watched)
{
    need_shelf();
    CHECK_OK(weft_scope_open());
    weft_tensor *before = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_release(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))); /* lies on the shelf */
    watch();
    for (int i = 0; i < 10; i++)
        weft_release(weft_add(before, before));
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(allocated, 10);
    CHECK_INT(freed, 10);
    watch();
    weft_release(before); /* came from the shelf, and goes back where it came from */
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(freed, 1);
    CHECK_OK(weft_scope_close());
}

static void *leave_blocks(void *argument)
{
    unsigned units[3];
    void *blocks[3];
    (void)argument;
    for (int i = 0; i < 3; i++)
        blocks[i] = weft_i_shelf_take(100 * (size_t)(i + 1), 0, &units[i]);
    for (int i = 0; i < 3; i++)
        weft_i_shelf_give(blocks[i], units[i]);
    watch();
    return NULL;
}

/* What a thread keeps goes when it ends; what its root scope owns goes too, in either order. */
TEST(test_shelf_ends_with_its_thread)
{
    pthread_t thread;
    need_shelf();
    CHECK_INT(pthread_create(&thread, NULL, leave_blocks, NULL), 0);
    pthread_join(thread, NULL);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(allocated, 0);
    CHECK_INT(freed, 3);
}

static void *leave_tensors(void *argument)
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    for (int i = 0; i < 20; i++)
        x = weft_add(x, x);
    *(weft_tensor **)argument = weft_keep(x);
    return NULL;
}

/* A tensor of a thread that is over is whole, and its block becomes this thread's. */
TEST(test_shelf_takes_over)
{
    pthread_t thread;
    weft_tensor *x = NULL;
    CHECK_INT(pthread_create(&thread, NULL, leave_tensors, &x), 0);
    pthread_join(thread, NULL);
    CHECK(x && weft_item(x, 3) == 0);
    weft_i_shelf_clear();
    weft_release(x);
    CHECK_INT(weft_i_shelf_clear(), WEFT_I_HAS_SHELF);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

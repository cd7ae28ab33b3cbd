/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/share/latch.c */
#include "harness.h"

#include "base/os/os.h"
#include "base/share/latch.h"

#include <pthread.h>

static weft_i_latch latch;

TEST(test_latch_alone)
{
    latch = WEFT_I_LATCH_FREE;
    CHECK(weft_i_latch_try(&latch));
    CHECK(!weft_i_latch_try(&latch));
    CHECK_INT(latch, WEFT_I_LATCH_HELD);
    weft_i_latch_give(&latch);
    CHECK_INT(latch, WEFT_I_LATCH_FREE);
    weft_i_latch_take(&latch);
    CHECK_INT(latch, WEFT_I_LATCH_HELD); /* nobody has to be woken */
    weft_i_latch_give(&latch);
}

enum { THREADS = 4, ROUNDS = 2000 };

static int count; /* plain: the latch guards it */

static void *count_up(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 || !weft_i_latch_try(&latch))
            weft_i_latch_take(&latch);
        int seen = count;
        if (i % 8 == 0)
            WEFT_OS->yield(); /* others come meanwhile, and sleep */
        count = seen + 1;
        weft_i_latch_give(&latch);
    }
    return unused;
}

TEST(test_latch_excludes)
{
    pthread_t threads[THREADS];
    latch = WEFT_I_LATCH_FREE;
    count = 0;
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, count_up, NULL));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(count, THREADS * ROUNDS);
    CHECK_INT(latch, WEFT_I_LATCH_FREE);
}

static atomic_int woken;

static void count_wake(_Atomic uint32_t *word, int waiters)
{
    atomic_fetch_add_explicit(&woken, 1, memory_order_relaxed);
    weft_i_os_linux.futex_wake(word, waiters);
}

static void *take_and_give(void *unused)
{
    weft_i_latch_take(&latch);
    weft_i_latch_give(&latch);
    return unused;
}

/* Whoever gives back a latch that somebody awaits wakes it, and only then. */
TEST(test_latch_wakes)
{
    weft_i_os os = weft_i_os_linux;
    pthread_t thread;
    os.futex_wake = count_wake;
    atomic_store_explicit(&weft_i_os_now, &os, memory_order_relaxed);
    latch = WEFT_I_LATCH_FREE;
    take_and_give(NULL);
    CHECK_INT(atomic_load_explicit(&woken, memory_order_relaxed), 0);
    weft_i_latch_take(&latch);
    CHECK(!pthread_create(&thread, NULL, take_and_give, NULL));
    while (atomic_load_explicit(&latch, memory_order_relaxed) != WEFT_I_LATCH_AWAITED)
        WEFT_OS->yield();
    weft_i_latch_give(&latch);
    CHECK(atomic_load_explicit(&woken, memory_order_relaxed) >= 1);
    pthread_join(thread, NULL);
    CHECK_INT(latch, WEFT_I_LATCH_FREE);
    atomic_store_explicit(&weft_i_os_now, &weft_i_os_linux, memory_order_relaxed);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

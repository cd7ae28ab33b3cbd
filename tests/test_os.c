/* SPDX-License-Identifier: Apache-2.0 */
/* The table of system calls: a test may replace it while threads of the library use it. */
#include "fault.h"
#include "harness.h"

#include <pthread.h>

static atomic_bool over;
static atomic_int rounds; /* relaxed: counts, orders nothing */

static void *use(void *nothing)
{
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        void *memory = WEFT_OS->alloc(16);
        WEFT_OS->free(memory);
        CHECK(WEFT_OS->clock_ns() > 0);
        atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
    }
    return nothing;
}

/* ThreadSanitizer would see a race on the pointer, or on what it points to. */
TEST(test_os_replaced_under_threads)
{
    pthread_t thread;
    int seen = 0;
    CHECK(!pthread_create(&thread, NULL, use, NULL));
    for (int i = 0; i < 200; i++) {
        fault_arm(1 << 30);
        int before = atomic_load_explicit(&rounds, memory_order_relaxed);
        while (atomic_load_explicit(&rounds, memory_order_relaxed) < before + 2)
            WEFT_OS->yield();
        seen += atomic_load_explicit(&fault_left, memory_order_relaxed) < 1 << 30;
        CHECK(!fault_disarm());
    }
    atomic_store_explicit(&over, true, memory_order_relaxed);
    CHECK(!pthread_join(thread, NULL));
    CHECK_INT(seen, 200); /* the thread did use the replaced table */
}

/* The one call that fails, fails for one thread alone, and is told by its name. */
TEST(test_os_one_call_fails)
{
    fault_arm(2);
    void *first = WEFT_OS->alloc(8), *second = WEFT_OS->alloc(8), *third = WEFT_OS->alloc(8);
    CHECK(fault_disarm());
    CHECK(first && !second && third);
    CHECK(!strcmp(fault_name, "alloc"));
    WEFT_OS->free(first);
    WEFT_OS->free(third);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/os/os.c */
/* The table of system calls: a test may replace it while threads of the library use it. */
#include "fault.h"
#include "harness.h"

#include <pthread.h>

static atomic_bool over;

static void *use(void *nothing)
{
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        void *memory = WEFT_OS->alloc(16);
        WEFT_OS->free(memory);
        CHECK(WEFT_OS->clock_ns() > 0);
    }
    return nothing;
}

/* ThreadSanitizer would see a race on the pointer, or on what it points to. */
TEST(test_os_replaced_under_threads)
{
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, use, NULL));
    for (int i = 0; i < 200; i++) {
        fault_arm(1 << 30);
        while (atomic_load_explicit(&fault_left, memory_order_relaxed) == 1 << 30)
            WEFT_OS->yield(); /* until the thread has used the replaced table */
        CHECK(!fault_disarm());
    }
    atomic_store_explicit(&over, true, memory_order_relaxed);
    CHECK(!pthread_join(thread, NULL));
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

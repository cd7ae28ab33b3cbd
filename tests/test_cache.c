/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of large tensors: where it begins, what is kept of it, and several threads at once. */
#include "harness.h"

#include "base/os.h"
#include "tensor/cache.h"

#include <weft/weft.h>

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static void need_cache(void)
{
    if (!WEFT_I_HAS_SHELF)
        SKIP("AddressSanitizer watches what it has allocated itself");
    weft_i_cache_clear();
}

static bool is_mapped(const void *memory)
{
    unsigned char there;
    return mincore((void *)(uintptr_t)memory, 4096, &there) == 0;
}

TEST(test_cache_sizes)
{
    need_cache();
    CHECK(!weft_i_cache_has(2 * MIB - 1) && weft_i_cache_has(2 * MIB));
    for (size_t bytes = 2 * MIB; bytes < 9 * MIB; bytes += 700001) {
        unsigned char *memory = weft_i_cache_take(bytes);
        CHECK(memory && (uintptr_t)memory % WEFT_I_HUGE_PAGE == 0);
        memory[0] = memory[bytes - 1] = 1;
        weft_i_cache_give(memory, bytes);
    }
    CHECK(!weft_i_cache_take(SIZE_MAX) && !weft_i_cache_take(PTRDIFF_MAX));
}

/* The next of about the same size gets it again; of another size, and one that is taken, do not. */
TEST(test_cache_again)
{
    need_cache();
    void *first = weft_i_cache_take(3 * MIB), *second = weft_i_cache_take(3 * MIB);
    CHECK(first && second && first != second);
    weft_i_cache_give(first, 3 * MIB);
    void *other = weft_i_cache_take(7 * MIB), *same = weft_i_cache_take(4 * MIB - 5);
    CHECK(other != first && same == first);
    weft_i_cache_give(other, 7 * MIB);
    weft_i_cache_give(same, 4 * MIB - 5);
    weft_i_cache_give(second, 3 * MIB);
    CHECK_INT(weft_i_cache_clear(), 16 * MIB);
    CHECK_INT(weft_i_cache_clear(), 0);
    CHECK(!is_mapped(first) && !is_mapped(second) && !is_mapped(other));
}

/* Neither much nor many are kept: the oldest go first, very large ones at once. */
TEST(test_cache_limits)
{
    need_cache();
    void *small[20], *large[3];
    for (int i = 0; i < 20; i++)
        CHECK((small[i] = weft_i_cache_take(2 * MIB)));
    for (int i = 0; i < 3; i++)
        CHECK((large[i] = weft_i_cache_take(30 * MIB)));
    for (int i = 0; i < 20; i++)
        weft_i_cache_give(small[i], 2 * MIB);
    CHECK(!is_mapped(small[3]) && is_mapped(small[4]) && is_mapped(small[19]));
    for (int i = 0; i < 3; i++)
        weft_i_cache_give(large[i], 30 * MIB);
    CHECK(!is_mapped(large[0]) && is_mapped(large[1]) && is_mapped(large[2]));
    CHECK(!is_mapped(small[19]));
    CHECK_INT(weft_i_cache_clear(), 60 * MIB);
    void *huge = weft_i_cache_take(33 * MIB);
    CHECK(huge);
    weft_i_cache_give(huge, 33 * MIB);
    CHECK_INT(weft_i_cache_clear(), 0);
}

/* Tensors lie there, from 2 MiB on, and new ones are what they say, whoever had the memory. */
TEST(test_cache_tensors)
{
    need_cache();
    weft_scope_open();
    weft_tensor *x = weft_full(WEFT_U8, WEFT_CPU, WEFT_SHAPE(2 * MIB + 3), 7);
    void *memory = weft_tensor_data(x);
    CHECK((uintptr_t)memory % WEFT_I_HUGE_PAGE == 0);
    CHECK(weft_item(x, 2 * MIB + 2) == 7);
    weft_scope_close();
    CHECK(is_mapped(memory));
    weft_scope_open();
    weft_tensor *zeros = weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(2 * MIB + 9));
    CHECK(weft_tensor_data(zeros) == memory);
    CHECK(weft_item(zeros, 0) == 0 && weft_item(zeros, 2 * MIB + 2) == 0);
    weft_scope_close();
    CHECK_INT(weft_i_cache_clear(), 4 * MIB);
}

static void *take_and_give(void *arg)
{
    unsigned char mark = (unsigned char)(uintptr_t)arg;
    for (int i = 0; i < 200; i++) {
        size_t bytes = (size_t)(2 + (i + mark) % 3 * 2) * MIB;
        unsigned char *memory = weft_i_cache_take(bytes);
        if (!memory)
            return arg;
        memory[0] = memory[bytes - 1] = mark;
        sched_yield();
        if (memory[0] != mark || memory[bytes - 1] != mark)
            return arg;
        weft_i_cache_give(memory, bytes);
    }
    return NULL;
}

TEST(test_cache_threads)
{
    need_cache();
    pthread_t threads[4];
    void *wrong = NULL;
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)));
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong = wrong ? wrong : result;
    }
    CHECK(!wrong);
    weft_i_cache_clear();
}

/* A child has the memory as any other. */
TEST(test_cache_fork)
{
    need_cache();
    unsigned char *memory = weft_i_cache_take(2 * MIB);
    CHECK(memory);
    memory[5] = 3;
    weft_i_cache_give(memory, 2 * MIB);
    pid_t child = fork();
    if (child == 0) {
        unsigned char *again = weft_i_cache_take(2 * MIB);
        int good = again && (again != memory || again[5] == 3);
        weft_i_cache_give(again, 2 * MIB);
        _exit(!good);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    weft_i_cache_clear();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/cache.c */
/* Memory of large tensors: where it begins, what is kept of it, and several threads at once. */
#include "harness.h"

#include "base/os/os.h"
#include "tensor/object/cache.h"

#include <weft/weft.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

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
    CHECK(!weft_i_cache_has(128 * KIB - 1) && weft_i_cache_has(128 * KIB));
    for (size_t bytes = 128 * KIB; bytes < 2 * MIB; bytes += 70001) {
        unsigned char *memory = weft_i_cache_take(bytes);
        CHECK(memory && (uintptr_t)memory % 4096 == 0);
        memory[0] = memory[bytes - 1] = 1;
        weft_i_cache_give(memory, bytes);
    }
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

/* Neither much nor many are kept: the oldest go first. */
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
}

/* Those below a huge page: of 16 KiB more or less, in a rack of their own, up to a limit. */
TEST(test_cache_small)
{
    need_cache();
    enum { COUNT = 300 };
    static void *many[COUNT];
    void *first = weft_i_cache_take(250 * KIB), *large = weft_i_cache_take(2 * MIB);
    weft_i_cache_give(first, 250 * KIB);
    weft_i_cache_give(large, 2 * MIB);
    CHECK(weft_i_cache_take(2 * MIB) == large && weft_i_cache_take(256 * KIB) == first);
    weft_i_cache_give(large, 2 * MIB);
    for (int i = 0; i < COUNT; i++)
        CHECK((many[i] = weft_i_cache_take(128 * KIB)));
    for (int i = 0; i < COUNT; i++)
        weft_i_cache_give(many[i], 128 * KIB);
    CHECK(!is_mapped(many[COUNT - 257]) && is_mapped(many[COUNT - 256]) && is_mapped(large));
    void *wide[80];
    for (int i = 0; i < 80; i++)
        CHECK((wide[i] = weft_i_cache_take(MIB)));
    for (int i = 0; i < 80; i++)
        weft_i_cache_give(wide[i], MIB);
    CHECK(!is_mapped(many[COUNT - 1]) && !is_mapped(wide[15]) && is_mapped(wide[16]));
    CHECK_INT(weft_i_cache_clear(), 66 * MIB);
    CHECK(!is_mapped(wide[79]) && !is_mapped(large));
    weft_i_cache_give(first, 250 * KIB);
    CHECK_INT(weft_i_cache_clear(), 256 * KIB);
}

static int advised; /* how often pages were offered to the kernel */
static int refused; /* so many mappings are refused */

static int count_advice(void *memory, size_t bytes, int advice)
{
    advised += advice == MADV_FREE;
    return weft_i_os_linux.madvise(memory, bytes, advice);
}

static void *refuse_mapping(void *at, size_t bytes, int protection, int flags, int file,
                            off_t offset)
{
    if (refused && refused--) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return weft_i_os_linux.mmap(at, bytes, protection, flags, file, offset);
}

/* Large ones are kept up to the setting, beside the others, and offered to the kernel. */
TEST(test_cache_large)
{
    need_cache();
    setenv("WEFT_TENSOR_CACHE", "100M", 1);
    weft_i_cache_clear();
    weft_i_os table = weft_i_os_linux;
    table.madvise = count_advice;
    const weft_i_os *own = WEFT_OS;
    weft_i_os_now = &table;
    advised = 0;
    unsigned char *large[3], *small = weft_i_cache_take(20 * MIB), *most;
    for (int i = 0; i < 3; i++)
        CHECK((large[i] = weft_i_cache_take(48 * MIB)));
    CHECK((most = weft_i_cache_take(102 * MIB)));
    weft_i_cache_give(small, 20 * MIB);
    CHECK_INT(advised, 0);
    for (int i = 0; i < 3; i++)
        weft_i_cache_give(large[i], 48 * MIB);
    CHECK_INT(advised, 3);
    weft_i_cache_give(most, 102 * MIB);
    CHECK_INT(advised, 3); /* more than is kept: gone at once */
    weft_i_os_now = own;
    CHECK(!is_mapped(large[0]) && is_mapped(large[1]) && is_mapped(large[2]) && is_mapped(small));
    CHECK(weft_i_cache_take(48 * MIB) == large[2]);
    large[2][0] = large[2][48 * MIB - 1] = 1; /* it is memory as any other */
    weft_i_cache_give(large[2], 48 * MIB);
    CHECK_INT(weft_i_cache_clear(), 116 * MIB);
    unsetenv("WEFT_TENSOR_CACHE");
    weft_i_cache_clear();
}

static int mapped; /* how many mappings were made */

static void *count_mapping(void *at, size_t bytes, int protection, int flags, int file,
                           off_t offset)
{
    mapped++;
    return weft_i_os_linux.mmap(at, bytes, protection, flags, file, offset);
}

/* One step: all are there at once, then all go; returns how many mappings that took. */
static int take_a_step(size_t bytes, int count)
{
    void *boards[64];
    int before = mapped;
    for (int i = 0; i < count; i++)
        CHECK((boards[i] = weft_i_cache_take(bytes)));
    for (int i = 0; i < count; i++)
        weft_i_cache_give(boards[i], bytes);
    return mapped - before;
}

/* What each step needs is kept after some, though it is more than at first; 512 MiB at the most, or the setting. */
TEST(test_cache_learns_a_step)
{
    need_cache();
    weft_i_os table = weft_i_os_linux;
    table.mmap = count_mapping;
    const weft_i_os *own = WEFT_OS;
    weft_i_os_now = &table;
    CHECK(take_a_step(4 * MIB, 40) >= 40);
    CHECK(take_a_step(4 * MIB, 40) > 0); /* only 16 places, and 64 MiB */
    for (int i = 0; i < 8; i++)
        take_a_step(4 * MIB, 40);
    CHECK_INT(take_a_step(4 * MIB, 40), 0);
    CHECK_INT(weft_i_cache_clear(), 160 * MIB);
    setenv("WEFT_TENSOR_CACHE", "100M", 1);
    weft_i_cache_clear();
    for (int i = 0; i < 10; i++)
        CHECK(take_a_step(4 * MIB, 40) >= 15);
    CHECK_INT(weft_i_cache_clear(), 100 * MIB);
    unsetenv("WEFT_TENSOR_CACHE");
    weft_i_cache_clear();
    weft_i_os_now = own;
}

/* The same of those that the system may take back, which are bounded by the setting if there is one. */
TEST(test_cache_learns_a_large_step)
{
    enum { EACH = 48 * MIB, COUNT = 14 }; /* 672 MiB, mapped but never touched */
    need_cache();
    weft_i_os table = weft_i_os_linux;
    table.mmap = count_mapping;
    const weft_i_os *own = WEFT_OS;
    weft_i_os_now = &table;
    for (int i = 0; i < 6; i++)
        take_a_step(EACH, COUNT);
    CHECK_INT(take_a_step(EACH, COUNT), 0);
    CHECK_INT(weft_i_cache_clear(), (size_t)EACH * COUNT);
    setenv("WEFT_TENSOR_CACHE", "512M", 1);
    weft_i_cache_clear();
    for (int i = 0; i < 6; i++)
        CHECK(take_a_step(EACH, COUNT) >= 4);
    CHECK_INT(weft_i_cache_clear(), (size_t)EACH * 10);
    unsetenv("WEFT_TENSOR_CACHE");
    weft_i_cache_clear();
    weft_i_os_now = own;
}

TEST(test_cache_off)
{
    need_cache();
    setenv("WEFT_TENSOR_CACHE", "0", 1);
    weft_i_cache_clear();
    weft_i_cache_give(weft_i_cache_take(2 * MIB), 2 * MIB);
    weft_i_cache_give(weft_i_cache_take(48 * MIB), 48 * MIB);
    CHECK_INT(weft_i_cache_clear(), 0);
    unsetenv("WEFT_TENSOR_CACHE");
    weft_i_cache_clear();
}

/* What is kept goes before a tensor is refused. */
TEST(test_cache_scarce)
{
    need_cache();
    void *kept[2] = {weft_i_cache_take(48 * MIB), weft_i_cache_take(4 * MIB)};
    weft_i_cache_give(kept[0], 48 * MIB);
    weft_i_cache_give(kept[1], 4 * MIB);
    weft_i_os table = weft_i_os_linux;
    table.mmap = refuse_mapping;
    const weft_i_os *own = WEFT_OS;
    weft_i_os_now = &table;
    refused = 1;
    void *got = weft_i_cache_take(6 * MIB);
    refused = 1;
    void *none = weft_i_cache_take(8 * MIB); /* nothing is left to give */
    refused = 0;
    weft_i_os_now = own;
    CHECK(got && !none);
    weft_i_cache_give(got, 6 * MIB);
    CHECK_INT(weft_i_cache_clear(), 6 * MIB);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/registration.c, symm/circle.c, backends/shm/shm.c */
/*
 * Rendezvous of memory that differs between ranks, and of ranks that cannot take part: an error on
 * all that says what differs or who failed, and nothing that troubles the next rendezvous.
 */
#include "fault.h"
#include "jobs.h"
#include "memory_count.h"

#include "fabric/group/group.h"
#include "symm/registration.h"

enum { COUNT = 8 };

static weft_tensor *memory(void)
{
    return weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT));
}

/* Works only if all ranks know the memory by the same number. */
static void check_works(weft_group *group, int rank, int size)
{
    weft_tensor *x = memory();
    if (!weft_symm_rendezvous(x, group))
        FAIL("weft_symm_rendezvous: %s", weft_last_error());
    weft_fill(x, rank + 1);
    weft_tensor *sum = weft_symm_one_shot_all_reduce(x, WEFT_SUM, group);
    if (!sum)
        FAIL("weft_symm_one_shot_all_reduce: %s", weft_last_error());
    CHECK(weft_item(sum, COUNT - 1) == size * (size + 1) / 2);
}

/* Waits until it is this rank's turn: settings of the library are shared by ranks that are threads.
 */
static void take_turn(int rank, int begun)
{
    harness_await_marks(begun + rank);
}

RANKS_TEST(test_rendezvous_pad_sizes, 3)
{
    weft_group *world = join(20000);
    size_t usual = weft_symm_signal_pad_size();
    take_turn(rank, 0);
    CHECK_OK(weft_symm_set_signal_pad_size(rank == 1 ? 2 * usual : usual));
    weft_tensor *x = memory();
    CHECK_OK(weft_symm_set_signal_pad_size(usual));
    harness_mark();
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    char text[64];
    snprintf(text, sizeof text, "pad of %zu", usual);
    CHECK_CONTAINS(weft_last_error(), text);
    snprintf(text, sizeof text, "pad of %zu", 2 * usual);
    CHECK_CONTAINS(weft_last_error(), text);
    weft_clear_error();
    check_works(world, rank, size);
    finish(world);
}

/* One rank has counted a rendezvous that the others never saw, whichever rank it is: all go on from
 * the highest number, so that none of them is given twice. */
RANKS_TEST(test_rendezvous_counts_of_all, 3)
{
    weft_group *world = join(20000);
    check_works(world, rank, size);
    for (int ahead = 0; ahead < size; ahead++) {
        uint32_t before = world->rest.registrations;
        world->rest.registrations += rank == ahead ? 7 : 0;
        weft_tensor *x = memory();
        if (!weft_symm_rendezvous(x, world))
            FAIL("weft_symm_rendezvous: %s", weft_last_error());
        CHECK_INT(world->rest.registrations, before + 8);
    }
    check_works(world, rank, size);
    finish(world);
}

/* Memory that processes share is not for threads, and the other way round. */
RANKS_TEST(test_rendezvous_of_another_backend, 2)
{
    weft_group *world = join(20000);
    const char *other = harness_in_threads ? "shm" : "threads";
    CHECK_OK(weft_symm_set_backend(WEFT_CPU, other));
    CHECK(!weft_symm_rendezvous(memory(), world));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    char text[96];
    snprintf(text, sizeof text, "memory of backend %s cannot be shared between %s", other,
             harness_in_threads ? "threads of weft_spawn" : "processes");
    CHECK_CONTAINS(weft_last_error(), text);
    (void)rank, (void)size;
    finish(world);
}

RANKS_TEST(test_rendezvous_offsets, 3)
{
    weft_group *world = join(20000);
    weft_symm_pool *pool = weft_symm_pool_new(WEFT_CPU, 4096);
    CHECK(pool);
    weft_tensor *first = weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(COUNT));
    weft_tensor *second = weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(COUNT));
    CHECK(first && second);
    CHECK(!weft_symm_rendezvous(rank == 2 ? second : first, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "at offset 0");
    CHECK_CONTAINS(weft_last_error(), "rank 2: 4096 bytes at offset");
    weft_clear_error();
    CHECK(weft_symm_rendezvous(second, world));
    check_works(world, rank, size);
    finish(world);
}

/*
 * Rank 1 fails at its n-th call to the system.  The others are told that it was rank 1; those that
 * got further have counted a rendezvous that it has not, and agree on a number next time.
 */
RANKS_TEST(test_rendezvous_failed, 3)
{
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    weft_group *world = join(20000);
    int named = 0, declined = 0;
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_scope_open();
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        weft_tensor *x = memory();
        if (rank == 1)
            fault_arm(n);
        weft_symm *mem = weft_symm_rendezvous(x, world);
        uint64_t flags = rank == 1 ? fault_disarm() : 1;
        CHECK_OK(weft_group_agree(world, &flags, WEFT_DEFAULT)); /* did it fire? */
        fired = flags & 1;
        if (!mem && rank != 1) {
            const char *error = weft_last_error();
            if (strstr(error, " failed ("))
                CHECK_CONTAINS(error, "rank 1 failed (");
            named += strstr(error, "rank 1 failed (") != NULL;
            declined += strstr(error, "a rank cannot take part") != NULL;
        }
        weft_clear_error();
        check_works(world, rank, size);
        weft_scope_close();
    }
    CHECK(rank == 1 || (named > 0 && declined > 0));
    finish(world);
}

/* A call that is refused keeps nothing, though the caller's scope stays open. */
RANKS_TEST(test_rendezvous_refused_keeps_nothing, 1)
{
    (void)rank, (void)size;
    weft_group *world = join(20000);
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    for (int i = 0; i < 11; i++) {
        if (i == 1) /* what is made once is made */
            count_begin();
        CHECK(!weft_symm_rendezvous(x, world));
        CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
        weft_clear_error();
    }
    CHECK_INT(count_end(), 0);
    finish(world);
}

static void *no_resize(void *old, size_t bytes)
{
    (void)old, (void)bytes;
    return NULL;
}

/* Alone it makes the pads itself: nothing of them stays offered, and whatever cannot be had is an
 * error. */
RANKS_TEST(test_rendezvous_alone, 1)
{
    (void)rank, (void)size;
    weft_group *world = join(20000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100));
    int n = 1;
    for (bool fired = !harness_in_threads; fired; n++) {
        fault_arm(n);
        weft_symm *mem = weft_symm_rendezvous(x, world);
        fired = fault_disarm();
        CHECK_INT(mem == NULL, fired);
        CHECK(!mem == (weft_last_status() < 0));
        weft_clear_error();
    }
    CHECK(harness_in_threads || n > 6);
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    CHECK_INT(mem->registration->pads.segment->references, 1);
    finish(world);
}

/* What cannot be offered to the others is an error, the block as well as the pads: the table of
 * offers is full. */
RANKS_TEST(test_rendezvous_without_offers, 1)
{
    (void)rank, (void)size;
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    weft_group *world = join(20000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100));
    weft_i_fdpass *offers = world->world->fdpass;
    weft_i_key key = {{77, 0}};
    CHECK_OK(weft_i_fdpass_publish(offers, key, NULL, WEFT_ERR_IO)); /* there is a table */
    weft_i_os table = weft_i_os_linux;
    table.resize = no_resize;
    weft_i_os_now = &table;
    while (weft_i_fdpass_publish(offers, key, NULL, WEFT_ERR_IO) == WEFT_OK && key.word[1] < 1000)
        key.word[1]++;
    CHECK(key.word[1] < 1000);
    weft_clear_error();
    int failed = 0;
    while (!weft_symm_rendezvous(x, world) && key.word[1]--) {
        CHECK_INT(weft_last_status(), WEFT_ERR_NO_MEMORY);
        CHECK_CONTAINS(weft_last_error(), "no memory to publish");
        weft_clear_error();
        weft_i_fdpass_withdraw(offers, key);
        failed++;
    }
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(failed, 2);
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

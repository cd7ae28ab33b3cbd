/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/fake/fake.c, store/fake.c, symm/fake.c */
/* Fake groups: what each operation does to its operands, sub-groups, checks, and the fake store. */
#include "harness.h"

#include "fault.h"

#include "base/machine/room.h"
#include "fabric/group/group.h"

#include <weft/weft.h>

#include <pthread.h>

static weft_group *fake(int rank, int size)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(rank, size);
    weft_group *world = weft_fake_init(&opts);
    if (!world)
        FAIL("weft_fake_init: %s", weft_last_error());
    return world;
}

static weft_tensor *filled(int64_t count, double value)
{
    return weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count), value);
}

/* 0, 1, 2 ... */
static weft_tensor *numbers(int64_t count)
{
    return weft_arange(WEFT_F32, WEFT_CPU, 0, (double)count, 1);
}

static float at(const weft_tensor *x, int64_t index)
{
    return ((const float *)weft_tensor_data((weft_tensor *)(uintptr_t)x))[index];
}

/* Elements [first, first + count) are value, value + step ... */
static void check_run(const weft_tensor *x, int64_t first, int64_t count, double value, double step)
{
    for (int64_t i = 0; i < count; i++)
        CHECK_NEAR(at(x, first + i), value + step * (double)i, 0);
}

TEST(test_fake_world)
{
    weft_scope_open();
    weft_group *world = fake(3, 8);
    CHECK_INT(weft_rank(world), 3);
    CHECK_INT(weft_size(world), 8);
    CHECK(weft_fake_is(world));
    CHECK(!strcmp(weft_group_name(world), "0"));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_STATUS(weft_group_barrier(world, -7), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_INT(weft_finish(world), 0);
    CHECK_STATUS(weft_group_barrier(world, WEFT_DEFAULT), WEFT_ERR_STATE);
    weft_clear_error();
    weft_scope_close();
}

TEST(test_fake_refuses)
{
    weft_scope_open();
    static const int wrong[][2] = {{0, 0}, {-1, 2}, {2, 2}, {0, -1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_fake_opts opts = WEFT_FAKE_OPTS(wrong[i][0], wrong[i][1]);
        CHECK(!weft_fake_init(&opts));
        CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    }
    CHECK_INT(weft_size(weft_fake_init(NULL)), 1);
    weft_scope_close();
}

TEST(test_fake_reductions)
{
    weft_scope_open();
    weft_group *world = fake(1, 4);
    weft_tensor *x = numbers(8), *out = filled(8, -1), *part = filled(2, -1);
    CHECK_OK(weft_all_reduce_into(out, x, WEFT_SUM, world));
    check_run(out, 0, 8, 0, 1);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_AVG, world)); /* in place: as it was */
    check_run(x, 0, 8, 0, 1);
    CHECK_OK(weft_reduce_scatter_into(part, x, WEFT_SUM, world));
    check_run(part, 0, 2, 2, 1); /* part 1 of the own input */
    weft_fill(out, -1);
    CHECK_OK(weft_reduce_into(out, x, WEFT_MAX, 1, world)); /* we are the root */
    check_run(out, 0, 8, 0, 1);
    weft_fill(out, -1);
    CHECK_OK(weft_reduce_into(out, x, WEFT_MAX, 0, world));
    check_run(out, 0, 8, -1, 0);
    weft_scope_close();
}

TEST(test_fake_gathers)
{
    weft_scope_open();
    weft_group *world = fake(2, 3);
    weft_tensor *x = numbers(2), *all = filled(6, -1);
    CHECK_OK(weft_all_gather_into(all, x, world));
    for (int rank = 0; rank < 3; rank++)
        check_run(all, 2 * rank, 2, 0, 1);
    weft_fill(all, -1);
    CHECK_OK(weft_gather_into(NULL, x, 0, world));
    CHECK_OK(weft_gather_into(all, x, 2, world));
    for (int rank = 0; rank < 3; rank++)
        check_run(all, 2 * rank, 2, 0, 1);
    weft_tensor *own = weft_narrow(all, 0, 4, 2); /* the input in its place */
    weft_fill(all, 7);
    weft_fill(own, 5);
    CHECK_OK(weft_all_gather_into(all, own, world));
    check_run(all, 0, 6, 5, 0);
    weft_scope_close();
}

TEST(test_fake_moves)
{
    weft_scope_open();
    weft_group *world = fake(1, 3);
    weft_tensor *x = numbers(6), *part = filled(2, -1);
    CHECK_OK(weft_scatter_into(part, NULL, 0, world)); /* another rank would give it */
    check_run(part, 0, 2, -1, 0);
    CHECK_OK(weft_scatter_into(part, x, 1, world));
    check_run(part, 0, 2, 2, 1);
    CHECK_OK(weft_broadcast_in_place(x, 0, world));
    check_run(x, 0, 6, 0, 1);
    CHECK_OK(weft_send(x, 0, world));
    CHECK_OK(weft_recv(x, 2, world));
    check_run(x, 0, 6, 0, 1);
    weft_tensor *out = filled(6, -1);
    CHECK_OK(weft_all_to_all_into(out, x, NULL, NULL, world));
    check_run(out, 0, 6, 0, 1);
    weft_scope_close();
}

/* Part by part; what is expected beyond what is sent is zero. */
TEST(test_fake_all_to_all_keeps_to_splits)
{
    weft_scope_open();
    weft_group *world = fake(0, 3);
    weft_tensor *x = numbers(6), *out = filled(7, -1);
    const int64_t in_splits[] = {1, 3, 2}, out_splits[] = {2, 1, 4};
    CHECK_OK(weft_all_to_all_into(out, x, out_splits, in_splits, world));
    const float expected[] = {0, 0, 1, 4, 5, 0, 0};
    for (int i = 0; i < 7; i++)
        CHECK_NEAR(at(out, i), expected[i], 0);
    const int64_t nothing[] = {0, 0, 0};
    weft_tensor *none = filled(0, 0);
    CHECK_OK(weft_all_to_all_into(out, none, out_splits, nothing, world));
    check_run(out, 0, 7, 0, 0);
    CHECK_OK(weft_all_to_all_into(none, x, nothing, in_splits, world));
    weft_scope_close();
}

TEST(test_fake_lists)
{
    weft_scope_open();
    weft_group *world = fake(1, 2);
    weft_tensor *in[] = {numbers(4), numbers(2)};
    weft_tensor *same[] = {filled(4, -1), filled(2, -1)};
    weft_tensor *twice[] = {filled(8, -1), filled(4, -1)};
    weft_tensor *half[] = {filled(2, -1), filled(1, -1)};
    CHECK_OK(weft_all_reduce_list_into(same, in, 2, WEFT_SUM, world));
    check_run(same[0], 0, 4, 0, 1);
    check_run(same[1], 0, 2, 0, 1);
    CHECK_OK(weft_all_gather_list_into(twice, in, 2, world));
    check_run(twice[0], 4, 4, 0, 1);
    check_run(twice[1], 2, 2, 0, 1);
    CHECK_OK(weft_reduce_scatter_list_into(half, in, 2, WEFT_SUM, world));
    check_run(half[0], 0, 2, 2, 1);
    check_run(half[1], 0, 1, 1, 1);
    weft_tensor *uneven[] = {filled(6, -1), filled(1, -1)};
    CHECK_OK(weft_all_to_all_list_into(uneven, in, world));
    check_run(uneven[0], 0, 4, 0, 1);
    check_run(uneven[0], 4, 2, 0, 0);
    check_run(uneven[1], 0, 1, 0, 0);
    CHECK_OK(weft_all_reduce_list_into(NULL, NULL, 0, WEFT_SUM, world));
    weft_scope_close();
}

TEST(test_fake_work_is_done_at_once)
{
    weft_scope_open();
    weft_group *world = fake(0, 5);
    weft_tensor *x = numbers(4), *all = filled(20, -1);
    weft_work *works[] = {weft_all_gather_start(all, x, world), weft_barrier_start(world),
                          weft_send_start(x, 3, world), weft_recv_start(x, 4, world),
                          weft_all_reduce_start(x, x, WEFT_SUM, world)};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        CHECK(works[i]);
        CHECK_STATUS(weft_work_test(works[i]), WEFT_OK);
        CHECK_OK(weft_work_wait(works[i], WEFT_DEFAULT));
    }
    check_run(all, 16, 4, 0, 1);
    weft_scope_close();
}

TEST(test_fake_subgroups)
{
    weft_scope_open();
    weft_group *world = fake(5, 8);
    const int odd[] = {7, 5, 3, 1}, even[] = {0, 2, 4, 6}, twice[] = {5, 5};
    weft_group *mine = weft_group_new(world, odd, 4, NULL);
    CHECK(mine && weft_fake_is(mine));
    CHECK_INT(weft_rank(mine), 1);
    CHECK_INT(weft_size(mine), 4);
    CHECK_INT(weft_group_world_rank(mine, 3), 1);
    CHECK(!weft_group_new(world, even, 4, NULL) && weft_last_status() == WEFT_OK);
    CHECK(!weft_group_new(world, twice, 2, NULL));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_tensor *x = numbers(8), *part = filled(2, -1);
    CHECK_OK(weft_reduce_scatter_into(part, x, WEFT_SUM, mine));
    check_run(part, 0, 2, 2, 1);
    weft_group *again = weft_group_new(mine, (const int[]){1, 0}, 2, "pair");
    CHECK_INT(weft_rank(again), 0);
    CHECK(!strcmp(weft_group_name(again), "pair"));
    weft_group *split = weft_group_split(world, 2, 0); /* all do as we do */
    CHECK_INT(weft_size(split), 8);
    CHECK_INT(weft_rank(split), 5);
    CHECK(!weft_group_split(world, -1, 0) && weft_last_status() == WEFT_OK);
    weft_scope_close();
}

TEST(test_fake_revoke)
{
    weft_scope_open();
    weft_group *world = fake(0, 4);
    weft_group *pair = weft_group_new(world, (const int[]){0, 1}, 2, NULL);
    weft_tensor *x = numbers(4);
    CHECK_OK(weft_group_revoke(pair));
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, pair), WEFT_ERR_REVOKED);
    CHECK_STATUS(weft_group_barrier(pair, WEFT_DEFAULT), WEFT_ERR_REVOKED);
    weft_clear_error();
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    weft_scope_close();
}

TEST(test_fake_world_of_thousands)
{
    weft_scope_open();
    enum { RANKS = 1000 };
    weft_group *world = fake(999, RANKS);
    weft_tensor *x = numbers(3), *all = filled(3 * RANKS, -1);
    CHECK_OK(weft_all_gather_into(all, x, world));
    for (int rank = 0; rank < RANKS; rank++)
        check_run(all, 3 * rank, 3, 0, 1);
    int every_tenth[RANKS / 10];
    for (int i = 0; i < RANKS / 10; i++)
        every_tenth[i] = 10 * i + 9;
    weft_group *some = weft_group_new(world, every_tenth, RANKS / 10, NULL);
    CHECK_INT(weft_rank(some), 99);
    weft_tensor *part = filled(1, -1), *wide = numbers(100);
    CHECK_OK(weft_reduce_scatter_into(part, wide, WEFT_SUM, some));
    CHECK_NEAR(at(part, 0), 99, 0);
    weft_group *huge = fake(1 << 20, (1 << 20) + 1);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, huge));
    weft_scope_close();
}

TEST(test_fake_error_on_collective)
{
    weft_scope_open();
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    opts.error_on_collective = true;
    weft_group *world = weft_fake_init(&opts);
    weft_tensor *x = numbers(2), *all = filled(4, -1);
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "all_reduce");
    CHECK_STATUS(weft_all_gather_into(all, x, world), WEFT_ERR_STATE);
    check_run(all, 0, 4, -1, 0);
    CHECK_STATUS(weft_all_reduce_list_into(&x, &x, 1, WEFT_SUM, world), WEFT_ERR_STATE);
    CHECK_STATUS(weft_group_barrier(world, WEFT_DEFAULT), WEFT_ERR_STATE);
    weft_work *work = weft_barrier_start(world);
    CHECK(work);
    CHECK_STATUS(weft_work_wait(work, WEFT_DEFAULT), WEFT_ERR_STATE);
    CHECK_STATUS(weft_all_reduce_into(x, all, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_OK(weft_send(x, 1, world));
    CHECK_OK(weft_recv(x, 1, world));
    CHECK(weft_group_new(world, (const int[]){0}, 1, NULL));
    weft_scope_close();
}

/* ---- the same checks as in a real group, and the same words ---- */

typedef struct mistakes {
    weft_status status[16];
    char message[16][200];
    int count;
} mistakes;

static void note(mistakes *made, weft_status status)
{
    made->status[made->count] = status;
    snprintf(made->message[made->count++], sizeof made->message[0], "%s", weft_last_error());
    weft_clear_error();
}

static void make_mistakes(weft_group *group, mistakes *made)
{
    weft_tensor *x = numbers(4), *y = numbers(3),
                *ints = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *square = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3));
    const int64_t splits[] = {1, 2}, right[] = {2, 2};
    note(made, weft_all_reduce_into(x, y, WEFT_SUM, group));
    note(made, weft_all_reduce_into(x, ints, WEFT_SUM, group));
    note(made, weft_all_reduce_into(x, x, WEFT_BAND, group));
    note(made, weft_all_reduce_into(x, x, (weft_reduction)99, group));
    note(made, weft_all_reduce_into(NULL, x, WEFT_SUM, group));
    note(made, weft_broadcast_in_place(x, 2, group));
    note(made, weft_all_gather_into(x, y, group));
    note(made, weft_reduce_scatter_into(y, x, WEFT_SUM, group));
    note(made, weft_all_to_all_into(x, y, splits, NULL, group));
    note(made, weft_all_to_all_into(numbers(4), x, right, splits, group));
    note(made, weft_all_to_all_into(x, x, NULL, NULL, group));
    note(made, weft_send(x, weft_rank(group), group));
    note(made, weft_recv(x, -3, group)); /* -1 is WEFT_ANY, -2 WEFT_NOBODY */
    note(made, weft_all_reduce_into(square, weft_transpose(square, 0, 1), WEFT_SUM, group));
    note(made, weft_scatter_into(x, y, weft_rank(group), group));
}

static mistakes of_thread;

static int real_rank(void *unused)
{
    (void)unused;
    weft_group *world = weft_init(NULL);
    static mistakes unwanted;
    if (world)
        make_mistakes(world, weft_rank(world) ? &unwanted : &of_thread);
    return world ? 0 : 1;
}

TEST(test_fake_checks_as_a_real_group)
{
    mistakes pretended = {.count = 0};
    of_thread.count = 0;
    CHECK_INT(weft_spawn(2, real_rank, NULL), 0);
    weft_scope_open();
    make_mistakes(fake(0, 2), &pretended);
    weft_scope_close();
    CHECK_INT(pretended.count, of_thread.count);
    for (int i = 0; i < pretended.count; i++) {
        if (pretended.status[i] >= 0 || pretended.status[i] != of_thread.status[i])
            FAIL("mistake %d gives %d here, %d there", i, (int)pretended.status[i],
                 (int)of_thread.status[i]);
        if (strcmp(pretended.message[i], of_thread.message[i]))
            FAIL("mistake %d: \"%s\" here, \"%s\" there", i, pretended.message[i],
                 of_thread.message[i]);
    }
}

/* ---- symmetric memory, stores, threads ---- */

TEST(test_fake_symmetric_memory)
{
    weft_scope_open();
    weft_group *world = fake(2, 4);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    if (!mem)
        FAIL("rendezvous: %s", weft_last_error());
    weft_fill(x, 3);
    for (int rank = 0; rank < 4; rank++) /* everybody's memory is ours */
        CHECK_NEAR(at(weft_symm_tensor(mem, rank), 5), 3, 0);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_symm_put_signal(mem, 1, 0, WEFT_DEFAULT));
        CHECK_OK(weft_symm_wait_signal(mem, 3, 0, WEFT_DEFAULT));
    }
    CHECK_STATUS(weft_symm_put_signal(mem, 4, 0, WEFT_DEFAULT), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_STATUS(weft_symm_two_shot_all_reduce(x, WEFT_SUM, world), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_symm_set_backend(WEFT_CPU, "fake"), WEFT_ERR_NOT_FOUND);
    weft_clear_error();
    weft_scope_close();
}

TEST(test_fake_store)
{
    weft_scope_open();
    weft_store *store = weft_store_fake();
    weft_store_value value = {0}, both[2] = {{0}, {0}};
    int64_t total = 0;
    CHECK_OK(weft_store_set(store, "key", "abc", 3));
    CHECK_OK(weft_store_get(store, "key", WEFT_DEFAULT, &value));
    CHECK_INT(value.bytes, 0);
    weft_store_value_clear(&value);
    CHECK_OK(weft_store_add(store, "count", 4, &total));
    CHECK_INT(total, 4);
    const char *const keys[] = {"a", "b"};
    CHECK_OK(weft_store_wait(store, 2, keys, WEFT_FOREVER));
    CHECK_OK(weft_store_multi_get(store, 2, keys, WEFT_FOREVER, both));
    weft_store_value_clear(&both[0]);
    weft_store_value_clear(&both[1]);
    size_t count = 7;
    CHECK_OK(weft_store_num_keys(store, &count)); /* it keeps nothing */
    CHECK_INT(count, 0);
    count = 7;
    CHECK_OK(weft_store_queue_len(store, "queue", &count));
    CHECK_INT(count, 0);
    weft_store *part = weft_store_prefix("part", weft_store_clone(store));
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.store = part;
    opts.world_size = 1;
    CHECK(!weft_init(&opts));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "weft_fake_init");
    weft_fake_opts with = WEFT_FAKE_OPTS(1, 2);
    with.store = part;
    weft_tensor *x = numbers(2);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, weft_fake_init(&with)));
    weft_scope_close();
}

static void *thread_of(void *argument)
{
    int rank = *(int *)argument;
    weft_scope_open();
    weft_fake_opts opts = WEFT_FAKE_OPTS(rank, 4);
    weft_group *world = weft_fake_init(&opts);
    weft_tensor *x = numbers(4), *part = filled(1, -1);
    bool right =
        weft_reduce_scatter_into(part, x, WEFT_SUM, world) == WEFT_OK && at(part, 0) == (float)rank;
    weft_scope_close();
    return right ? argument : NULL;
}

TEST(test_fake_threads)
{
    pthread_t threads[4];
    int ranks[4];
    for (int i = 0; i < 4; i++) {
        ranks[i] = i;
        CHECK(!pthread_create(&threads[i], NULL, thread_of, &ranks[i]));
    }
    for (int i = 0; i < 4; i++) {
        void *right = NULL;
        pthread_join(threads[i], &right);
        CHECK(right);
    }
}

/* `weft info --job` shows its one rank alive. */
TEST(test_fake_is_seen)
{
    weft_scope_open();
    weft_fake_opts opts = WEFT_FAKE_OPTS(2, 5);
    weft_group *world = weft_fake_init(&opts);
    weft_job *job = weft_job_open(getpid());
    weft_job_info info;
    weft_job_rank rank;
    CHECK(world && job);
    CHECK_OK(weft_job_describe(job, &info));
    CHECK_OK(weft_job_describe_rank(job, 0, &rank));
    CHECK(info.ranks == 1 && info.threads);
    CHECK_INT(rank.state, WEFT_JOB_ALIVE);
    CHECK_INT(rank.process, getpid());
    CHECK(!weft_finish(world));
    weft_scope_close();
}

/* Messages say of the others that they are nowhere. */
TEST(test_fake_others_are_nowhere)
{
    char who[512];
    weft_scope_open();
    weft_group *world = fake(1, 4);
    for (int rank = 0; rank < 4; rank++) {
        weft_i_world_describe(world->world, rank, who, sizeof who);
        CHECK_INT(!!strstr(who, "(on host none: fake)"), rank != 1);
    }
    /* Without a board there are no turns to tell. */
    weft_i_record_entry entries[16];
    CHECK(weft_group_split(world, 0, 0));
    size_t count = weft_i_record_newest(weft_i_group_record(world), entries, 16);
    CHECK(count > 0);
    for (size_t i = 0; i < count; i++)
        CHECK(entries[i].turn == 0 && entries[i].finished);
    weft_scope_close();
}

TEST(test_fake_backend_is_listed)
{
    weft_backend_info info = {0};
    for (int i = 0; i < weft_backend_count() && strcmp(info.name ? info.name : "", "fake"); i++)
        CHECK_OK(weft_backend_describe(i, &info));
    CHECK(!strcmp(info.name, "fake") && info.usable);
    CHECK_CONTAINS(info.reason, "weft_fake_init");
}

/* Whatever runs out, the caller is told and nothing is lost.  The first time all goes well: what is
 * looked up once, such as the machine's caches, may be missing without harm. */
TEST(test_fake_shortage)
{
    bool fired = true;
    int n = 0;
    for (; fired && n < 200; n++) {
        weft_scope_open();
        weft_clear_error();
        weft_i_room_forget(); /* it looks each time, whatever time has passed */
        fault_arm(n ? n : 10000);
        weft_fake_opts opts = WEFT_FAKE_OPTS(1, 4);
        weft_group *world = weft_fake_init(&opts);
        weft_group *pair = weft_group_new(world, (const int[]){0, 1}, 2, NULL);
        weft_tensor *x = numbers(2), *all = filled(4, -1);
        weft_status status = weft_all_gather_list_into(&all, &x, 1, pair);
        weft_work *work = weft_all_reduce_start(x, x, WEFT_SUM, pair);
        if (status == WEFT_OK)
            status = weft_work_wait(work, WEFT_DEFAULT);
        fired = fault_disarm();
        if ((status == WEFT_OK) == fired || (!n && fired))
            FAIL("call %d (%s) failed, and the result is %d", n, fault_name, (int)status);
        weft_clear_error();
        weft_scope_close();
        fired |= !n;
    }
    CHECK(n > 10 && n < 200);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/ranks/p2p.c, coll/p2p/p2p_device.c */
/* Sends and receives of CUDA tensors, ranks as processes and as threads. */
#include "cuda/ranks_scene.h"

/* `bytes` bytes of what rank `from` sends as its message `number`, on the CPU. */
static weft_tensor *letter(int from, int number, int64_t bytes)
{
    weft_tensor *x = weft_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(bytes));
    unsigned char *at = weft_tensor_data(x);
    for (int64_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(i * 7 + i / 251 + from * 31 + number * 5 + 1);
    return x;
}

static weft_tensor *letter_there(int from, int number, int64_t bytes)
{
    return weft_to(letter(from, number, bytes), WEFT_U8, GPU);
}

/* Sizes from nothing to several times the slots, both ways, also from odd places. */
RANKS_TEST(test_cuda_send, 2)
{
    static const int64_t sizes[] = {0, 1, 15, 4096, 100001, 2500000};
    weft_group *world = join(30000);
    for (int k = 0; k < 6; k++)
        for (int from = 0; from < 2; from++) {
            weft_scope_open();
            weft_tensor *want = letter(from, k, sizes[k]);
            weft_tensor *whole = weft_full(WEFT_U8, GPU, WEFT_SHAPE(sizes[k] + 2), 99);
            weft_tensor *x = weft_slice(whole, 0, k % 2, sizes[k] + k % 2, 1);
            if (rank == from) {
                CHECK_OK(weft_copy(x, want));
                CHECK_OK(weft_send(x, 1 - from, world));
                if (k || from) /* the first opens the group's site */
                    check_way(world, "device");
                CHECK_OK(weft_fill(x, 0)); /* behind the send */
            } else {
                CHECK_OK(weft_recv(x, from, world));
                check_same("a message", x, want);
                CHECK(weft_item(whole, sizes[k] + 1) == 99);
            }
            weft_scope_close();
        }
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    finish(world);
}

/* All send to the next before they receive; all at once; and small ones without waiting. */
RANKS_TEST(test_cuda_send_ring, 3)
{
    static const int64_t sizes[] = {10, 1500000};
    weft_group *world = join(30000);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int k = 0; k < 2; k++) {
        weft_tensor *x = letter_there(rank, k, sizes[k]), *y = weft_empty_like(x);
        CHECK_OK(weft_send_recv(y, last, x, next, world));
        check_same("from the last", y, letter(last, k, sizes[k]));
        CHECK_OK(weft_send_recv(y, WEFT_NOBODY, x, WEFT_NOBODY, world));
    }
    weft_tensor *x = letter_there(rank, 7, 30000), *y = weft_empty_like(x);
    CHECK_OK(weft_send_tag(x, next, 4, world));
    CHECK_OK(weft_recv_tag(y, last, 4, world));
    check_same("a small one", y, letter(last, 7, 30000));
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_MAX, world)); /* collectives go on beside */
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    finish(world);
}

/* Posted ones, and batches: several to one rank, of other sizes, to all ranks and to oneself. */
RANKS_TEST(test_cuda_send_posted, 3)
{
    enum { EACH = 3 };
    static const int64_t sizes[EACH] = {700001, 0, 13};
    weft_group *world = join(30000);
    weft_p2p_op ops[2 * 3 * EACH];
    weft_tensor *in[3][EACH];
    int count = 0;
    for (int k = 0; k < EACH; k++)
        for (int peer = 0; peer < size; peer++) {
            in[peer][k] = weft_full(WEFT_U8, GPU, WEFT_SHAPE(sizes[k]), 0);
            ops[count++] = (weft_p2p_op){WEFT_P2P_SEND, letter_there(rank, k + peer, sizes[k]),
                                         peer, k, world};
            ops[count++] = (weft_p2p_op){WEFT_P2P_RECV, in[peer][k], peer, k, world};
        }
    weft_work *work = weft_batch_start(ops, count);
    CHECK(work);
    CHECK_OK(weft_work_order(work, NULL));
    for (int k = 0; k < EACH; k++)
        for (int peer = 0; peer < size; peer++)
            check_same("of a batch", in[peer][k], letter(peer, k + rank, sizes[k]));
    CHECK_OK(weft_work_wait(work, 30000));
    CHECK_INT(weft_work_status(work), WEFT_OK);
    CHECK_OK(weft_work_test(work));
    CHECK_INT(weft_batch_source(work, 1), 0);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    weft_tensor *x = letter_there(rank, 2, 5000), *y = weft_empty_like(x);
    weft_work *sending = weft_send_start(x, next, world);
    weft_work *receiving = weft_recv_start(y, last, world);
    CHECK(sending && receiving);
    char text[256];
    CHECK_CONTAINS(weft_work_describe(sending, text, sizeof text), "to rank");
    CHECK_OK(weft_work_wait(receiving, 30000));
    CHECK_OK(weft_work_wait(sending, 30000));
    CHECK_INT(weft_work_source(receiving), last);
    check_same("posted", y, letter(last, 2, 5000));
    finish(world);
}

/* One that has nothing more to do leaves; who waits for a third is not told that it will not come. */
RANKS_TEST(test_cuda_send_third_leaves, 3)
{
    weft_group *world = join(30000);
    weft_tensor *x = letter_there(rank, 0, 5000), *y = weft_empty_like(x);
    CHECK_OK(weft_send_recv(y, (rank + 2) % 3, x, (rank + 1) % 3, world)); /* opens the site */
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    if (rank == 1) {
        finish(world);
        harness_mark();
        return;
    }
    if (rank == 2)
        CHECK(harness_await(1, 1));
    if (rank == 2)
        rest_us(300000); /* three times as long as one that has left is waited for */
    CHECK_OK(rank ? weft_send(x, 0, world) : weft_recv(y, 2, world));
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    if (rank == 0)
        check_same("from the late one", y, letter(2, 0, 5000));
    if (rank == 0) { /* whom it waits for now has left */
        CHECK_OK(weft_recv(y, 1, world));
        sync_fails(WEFT_ERR_PEER_LEFT);
        CHECK_CONTAINS(weft_last_error(), "rank 1");
    }
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

/* Who sends and leaves stays until its kernel has done its part: its process ends next. */
RANKS_TEST(test_cuda_send_and_leave, 2)
{
    if (harness_in_threads)
        SKIP("a thread's kernels do not end with it");
    weft_group *world = join(30000);
    weft_tensor *x = letter_there(1, 0, 4000000), *y = weft_empty_like(x);
    CHECK_OK(weft_send_recv(y, 1 - rank, x, 1 - rank, world)); /* opens the site */
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    if (rank == 1) {
        CHECK_OK(weft_send(x, 0, world)); /* more than the slots hold */
        harness_mark();
        finish(world);
        harness_ranks[rank].outcome = HARNESS_PASS;
        _exit(0);
    } else {
        CHECK(harness_await(1, 1));
        rest_us(300000); /* three times as long as one that has left is waited for */
        CHECK_OK(weft_fill(y, 0));
        CHECK_OK(weft_recv(y, 1, world));
        CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
        check_same("of who has left", y, letter(1, 0, 4000000));
    }
    finish(world);
}

/* Ends that differ in count, dtype or tag: both learn it, with both calls. */
RANKS_TEST(test_cuda_send_mismatch, 2)
{
    static const struct {
        weft_dtype dtype;
        int64_t count;
        int tag;
        const char *text;
    } theirs[] = {{WEFT_F32, 5, 0, "recv of 5 f32 from rank 0, tag 0"},
                  {WEFT_I32, 4, 0, "recv of 4 i32 from rank 0, tag 0"},
                  {WEFT_F32, 4, 3, "recv of 4 f32 from rank 0, tag 3"}};
    weft_group *world = join(30000);
    for (int k = 0; k < 3; k++) {
        weft_scope_open();
        char name[8];
        snprintf(name, sizeof name, "g%d", k);
        weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, name);
        weft_tensor *x = weft_ones(rank ? theirs[k].dtype : WEFT_F32, GPU,
                                   WEFT_SHAPE(rank ? theirs[k].count : 4));
        if (rank == 0) {
            CHECK_OK(weft_send(x, 1, group));
            CHECK_OK(weft_recv(x, 1, group)); /* never comes */
        } else {
            CHECK_OK(weft_recv_tag(x, 0, theirs[k].tag, group));
        }
        sync_fails(WEFT_ERR_MISMATCH);
        CHECK_CONTAINS(weft_last_error(), rank ? "send of 4 f32 to rank 1, tag 0" : "rank 1");
        if (rank)
            CHECK_CONTAINS(weft_last_error(), theirs[k].text);
        weft_clear_error();
        CHECK_STATUS(weft_send(x, 1 - rank, group), WEFT_ERR_MISMATCH);
        weft_clear_error();
        CHECK(weft_item(x, 0) == 1); /* nothing was written */
        weft_clear_error();
        weft_scope_close();
    }
    finish(world);
}

/* A receive that nobody serves ends at its limit and says what it was. */
RANKS_TEST(test_cuda_send_late, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(6));
    CHECK_OK(weft_send_recv(weft_clone(x), 1 - rank, x, 1 - rank, world));
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    CHECK_OK(weft_group_set_timeout(world, 400)); /* opening the site may take longer */
    if (rank == 0) {
        CHECK_OK(weft_recv_tag(x, 1, 2, world));
        sync_fails(WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "recv of 6 f32 from rank 1, tag 2");
        harness_mark();
    } else {
        CHECK(harness_await(0, 1));
        CHECK_STATUS(weft_send_tag(x, 0, 2, world), WEFT_OK);
        sync_fails(WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 0 gave up");
    }
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

/* The receiver dies in the middle of a message. */
RANKS_TEST(test_cuda_send_kill, 3)
{
    if (harness_in_threads)
        return; /* a thread cannot die alone */
    weft_group *world = join(30000);
    weft_tensor *x = letter_there(rank, 0, 4000000), *y = weft_empty_like(x);
    weft_group *rest = weft_group_new(world, (int[]){0, 1}, 2, "rest");
    CHECK_OK(weft_send_recv(y, (rank + 2) % 3, x, (rank + 1) % 3, world));
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    if (rank == 2) {
        harness_rank_dies();
        CHECK_OK(weft_recv(weft_slice(y, 0, 0, 100, 1), 1, world)); /* one before */
        CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
        CHECK(harness_await(0, 1) && harness_await(1, 1));
        kill(getpid(), SIGKILL);
    }
    if (rank == 1)
        CHECK_OK(weft_send(weft_slice(x, 0, 0, 100, 1), 2, world));
    CHECK_OK(rank ? weft_send(x, 2, world) : weft_recv(y, 2, world));
    harness_mark();
    sync_fails(WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    weft_clear_error();
    CHECK_OK(weft_send_recv(y, 1 - rank, x, 1 - rank, rest));
    check_same("among the rest", y, letter(1 - rank, 0, 4000000));
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

/* Pieces are counted on the device: a captured exchange can be replayed. */
RANKS_TEST(test_cuda_send_capture, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = letter_there(rank, 0, 300000), *y = weft_empty_like(x);
    weft_stream *stream = weft_stream_current(GPU);
    CHECK_OK(weft_send_recv(y, 1 - rank, x, 1 - rank, world));
    CHECK_OK(weft_stream_sync(stream, 30000));
    CHECK_OK(weft_capture_begin(stream));
    CHECK_OK(weft_send_recv(y, 1 - rank, x, 1 - rank, world));
    CHECK_OK(weft_copy(x, y));
    weft_replay *replay = weft_capture_end(stream);
    CHECK(replay);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_replay_run(replay));
        check_same("replayed", x, letter(i % 2 ? rank : 1 - rank, 0, 300000));
    }
    finish(world);
}

RANKS_TEST(test_cuda_send_refuses, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(4)),
                *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    int source;
    CHECK_STATUS(weft_recv_any(x, 0, world, &source), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "must name its source");
    CHECK(!weft_recv_start(x, WEFT_ANY, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_send_recv(x, 1 - rank, y, 1 - rank, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "tensors on cpu and on cuda:0");
    weft_p2p_op ops[73];
    for (int i = 0; i < 73; i++)
        ops[i] = (weft_p2p_op){rank ? WEFT_P2P_RECV : WEFT_P2P_SEND, x, 1 - rank, 0, world};
    CHECK(!weft_batch_start(ops, 73));
    CHECK_INT(weft_last_status(), WEFT_ERR_LIMIT);
    weft_work *work = weft_batch_start(ops, 72);
    CHECK(work && weft_work_wait(work, 30000) == WEFT_OK);
    CHECK(!weft_send_start(x, rank, world)); /* no receive beside it */
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "in the same batch");
    CHECK_STATUS(weft_send(weft_to(x, WEFT_F32, WEFT_META), 1 - rank, world), WEFT_ERR_UNSUPPORTED);
    finish(world);
}

int main(int argc, char **argv)
{
    return scene_main(argc, argv);
}

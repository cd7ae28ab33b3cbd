/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/handle.c, symm/put.c, symm/signals.c, symm/connectivity.c, symm/circle.c,
 * backends/shm/shm.c, backends/threads/threads.c */
/*
 * Symmetric memory.  The tests that bear the names of the reference do what it says of them; where
 * the reference dies after a timeout, these go on: the call returns a status and a barrier of all
 * ranks follows.
 */
#include "jobs.h"
#include "symm_scene.h"

#define LIMIT \
    ((int64_t)200) /* ms: long enough on a loaded machine to be no race, short enough for a test \
                    */

RANKS_TEST(test_large_alloc, 1)
{
    int64_t bytes = (int64_t)2 * 1024 * 1024 * 1024;
    weft_tensor *x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(bytes));
    if (!x && weft_last_status() == WEFT_ERR_NO_MEMORY)
        SKIP("this machine has not 2 GiB to spare");
    CHECK(x);
    CHECK_INT(weft_tensor_numel(x) * (int64_t)weft_dtype_size(weft_tensor_dtype(x)), bytes);
    unsigned char *data = weft_tensor_data(x);
    CHECK(!data[0] && !data[bytes - 1]);
    data[bytes - 1] = 7;
    CHECK_INT(weft_item(x, bytes - 1), 7);
    weft_release(x);
}

RANKS_TEST(test_get_signal_pad, 4)
{
    weft_group *world = join(0);
    scene_signal_pad(world, WEFT_CPU, rank, size);
    finish(world);
}

RANKS_TEST(test_get_backend, 2)
{
    const char *name = weft_symm_backend(WEFT_CPU);
    CHECK(name);
    CHECK(!strcmp(name, weft_i_spawn_seat() ? "threads" : "shm"));
    CHECK(!weft_symm_backend(WEFT_META));
    CHECK_OK(weft_symm_set_backend(WEFT_CPU, name));
    CHECK_STATUS(weft_symm_set_backend(WEFT_CPU, "no such"), WEFT_ERR_NOT_FOUND);
    CHECK(weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(1)));
    CHECK_OK(weft_symm_set_backend(WEFT_CPU, name));
    CHECK_STATUS(weft_symm_set_backend(WEFT_CPU, strcmp(name, "shm") ? "shm" : "threads"),
                 WEFT_ERR_STATE);
}

RANKS_TEST(test_has_multicast_support, 1)
{
    CHECK(!weft_symm_has_multicast(WEFT_CPU));
    CHECK(weft_last_status() == WEFT_OK);
    weft_group *world = weft_init(NULL);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), world);
    CHECK(mem && symm_info(mem).emulates_multicast);
    CHECK(!weft_finish(world));
}

/* The number of the host that the harness has given a rank. */
static int host_of(int rank)
{
    int host = 0;
    for (int first = 0; harness_hosts && rank >= first + harness_host_sizes[host]; host++)
        first += harness_host_sizes[host];
    return host;
}

RANKS_TEST(test_cuda_nvlink_connectivity_detection, 4)
{
    weft_group *world = join(0);
    weft_connectivity found;
    CHECK_OK(weft_symm_detect_connectivity(world, WEFT_CPU, "shm", &found));
    CHECK_INT(found.device, WEFT_CPU);
    CHECK(!strcmp(found.connection, "shm"));
    CHECK_INT(found.size, size);
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            CHECK_INT(found.links[from * size + to], from != to && host_of(from) == host_of(to));
    weft_symm_free_connectivity(&found);
    CHECK_STATUS(weft_symm_detect_connectivity(world, WEFT_CPU, "string and tins", &found),
                 WEFT_ERR_NOT_FOUND);
    weft_status status = weft_symm_detect_connectivity(world, WEFT_CUDA(0), "nvlink", &found);
    if (status == WEFT_OK) { /* there are GPUs: no device has a link to itself */
        CHECK(!strcmp(found.connection, "nvlink") && found.size >= 1);
        for (int i = 0; i < found.size; i++)
            CHECK_INT(found.links[i * found.size + i], 0);
        weft_symm_free_connectivity(&found);
    } else if (status != WEFT_ERR_DEVICE && status != WEFT_ERR_NO_MEMORY) { /* of the driver */
        CHECK_STATUS(status, WEFT_ERR_UNSUPPORTED);
    }
    finish(world);
}

/* The buffers of all ranks, each at an address of its own and with what its rank wrote. */
static void check_buffers(weft_symm *mem, weft_tensor *x, int rank, int size)
{
    CHECK_INT(symm_info(mem).rank, rank);
    CHECK_INT(symm_info(mem).size, size);
    CHECK_OK(weft_fill(x, rank + 1));
    scene_barrier(mem);
    for (int peer = 0; peer < size; peer++) {
        weft_tensor *theirs = scene_peer(mem, peer, 64);
        CHECK(theirs);
        CHECK_INT(weft_tensor_device(theirs), weft_tensor_device(x));
        CHECK((weft_tensor_data(theirs) == weft_tensor_data(x)) == (peer == rank));
        CHECK((weft_symm_buffer_ptr(mem, peer) == weft_tensor_data(x)) == (peer == rank));
        for (int other = 0; other < peer; other++)
            CHECK(host_of(peer) != host_of(rank) ||
                  weft_symm_buffer_ptr(mem, other) != weft_symm_buffer_ptr(mem, peer));
        weft_clear_error();
        CHECK(all_equal(theirs, peer + 1));
    }
    scene_barrier(mem);
}

/* All ranks are on one CPU: they may share it, whether the flag allows them to share GPUs or not. */
RANKS_TEST(test_allow_overlapping_devices, 4)
{
    weft_group *world = join(0);
    for (int allowed = 0; allowed < 2; allowed++) {
        weft_symm_allow_overlap(allowed);
        CHECK(weft_symm_allows_overlap() == allowed);
        weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64));
        weft_symm *mem = weft_symm_rendezvous(x, world);
        if (!mem)
            FAIL("%s", weft_last_error());
        check_buffers(mem, x, rank, size);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    }
    finish(world);
}

RANKS_TEST(test_subgroup, 4)
{
    weft_group *world = join(0);
    int lower[] = {0, 1}, upper[] = {2, 3};
    weft_group *half = weft_group_new(world, rank < 2 ? lower : upper, 2, NULL);
    CHECK(half);
    CHECK(!weft_group_new(world, rank < 2 ? upper : lower, 2,
                          NULL)); /* not a member: no group, no error */
    CHECK_INT(weft_last_status(), WEFT_OK);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64));
    weft_symm *wide = weft_symm_rendezvous(x, world), *narrow = weft_symm_rendezvous(x, half);
    CHECK(wide && narrow);
    CHECK_INT(symm_info(wide).size, 4);
    CHECK_INT(symm_info(wide).rank, rank);
    CHECK_INT(symm_info(narrow).size, 2);
    CHECK_INT(symm_info(narrow).rank, rank % 2);
    weft_fill(x, rank);
    CHECK_OK(weft_symm_barrier(wide, 0, WEFT_DEFAULT));
    int next = (rank + 1) % 4, beside = (rank % 2 + 1) % 2;
    CHECK(all_equal(scene_peer(wide, next, 64), next));
    CHECK(all_equal(scene_peer(narrow, beside, 64), beside + (rank < 2 ? 0 : 2)));
    /* A signal in one group does not end a wait in another, though block and channel are the same.
     */
    CHECK_OK(weft_symm_put_signal(wide, rank ^ 1, 0, WEFT_DEFAULT));
    CHECK_STATUS(weft_symm_wait_signal(narrow, beside, 0, 20), WEFT_ERR_TIMEOUT);
    CHECK_OK(weft_symm_wait_signal(wide, rank ^ 1, 0, WEFT_DEFAULT));
    CHECK_OK(weft_symm_barrier(narrow, 0, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_empty_strided_p2p, 2)
{
    weft_group *world = join(0);
    scene_strided(world, WEFT_CPU, rank, size);
    finish(world);
}

/* Every order of dimensions, and sizes of 1 with any stride, is dense; gaps and overlaps are not. */
RANKS_TEST(test_empty_strided_p2p_layouts, 1)
{
    static const struct {
        int64_t dim[3], stride[3];
        bool dense;
    } rows[] = {
        {{2, 3, 4}, {12, 4, 1}, true},  {{2, 3, 4}, {1, 2, 6}, true},
        {{2, 3, 4}, {4, 8, 1}, true},   {{2, 3, 4}, {3, 1, 6}, true},
        {{1, 3, 4}, {99, 4, 1}, true},  {{3, 1, 4}, {4, 7, 1}, true},
        {{3, 4, 1}, {4, 1, 5}, true},   {{1, 1, 4}, {0, 9, 1}, true},
        {{1, 2, 2}, {1, 1, 2}, true},   {{2, 1, 2}, {1, 1, 2}, true},
        {{2, 2, 1}, {2, 1, 1}, true},   {{1, 1, 1}, {5, 0, 3}, true},
        {{2, 2, 2}, {1, 1, 2}, false},  {{2, 2, 2}, {2, 1, 1}, false},
        {{2, 3, 4}, {12, 4, 2}, false}, {{2, 3, 4}, {13, 4, 1}, false},
        {{2, 3, 4}, {12, 3, 1}, false}, {{1, 3, 4}, {12, 5, 1}, false},
        {{2, 1, 2}, {1, 2, 1}, false},  {{2, 2, 1}, {0, 1, 2}, false},
        {{1, 2, 2}, {1, 2, 2}, false},  {{1, 1, 2}, {1, 1, 2}, false},
    };
    weft_group *world = join(0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_shape shape = WEFT_SHAPE(rows[i].dim[0], rows[i].dim[1], rows[i].dim[2]);
        weft_clear_error();
        weft_tensor *x =
            weft_symm_empty_strided_p2p(shape, rows[i].stride, WEFT_F32, WEFT_CPU, world, 0);
        if (rows[i].dense != (x != NULL))
            FAIL("row %zu is %s: %s", i, x ? "dense" : "not dense", weft_last_error());
        if (x)
            CHECK_INT(weft_tensor_stride(x, 1), rows[i].stride[1]);
        else
            CHECK_CONTAINS(weft_last_error(), "leave gaps or overlap");
    }
    (void)rank, (void)size;
    finish(world);
}

/* Signals lie in the pad of whom they are for: a row of words for each channel, one for each rank
 * that signals.  All of them at once, and nothing else of the pad is touched. */
RANKS_TEST(test_signals_in_the_pad, 3)
{
    enum { CHANNELS = 3 };
    weft_group *world = join(0);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1)), world);
    CHECK(mem);
    size_t words = symm_info(mem).pad_bytes / sizeof(uint32_t);
    int last = symm_info(mem).channels - 1;
    const int channels[CHANNELS] = {0, 1, last};
    const uint32_t *pad = weft_symm_signal_pad_ptr(mem, rank);
    CHECK((size_t)(last + 1) * (size_t)size <= words);
    for (int to = 0; to < size; to++) /* also to itself, and not the same to everybody */
        for (int c = 0; c < CHANNELS; c++)
            if ((rank + to + c) % 3)
                CHECK_OK(weft_symm_put_signal(mem, to, channels[c], WEFT_DEFAULT));
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    for (size_t i = 0; i < words; i++) {
        int channel = (int)(i / (size_t)size), from = (int)(i % (size_t)size), c = 0;
        while (c < CHANNELS && channels[c] != channel)
            c++;
        if (pad[i] != (c < CHANNELS && (from + rank + c) % 3 ? 1u : 0u))
            FAIL("word %zu, of channel %d from rank %d, is %u", i, channel, from, pad[i]);
    }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT)); /* all have looked */
    for (int from = 0; from < size; from++)
        for (int c = 0; c < CHANNELS; c++)
            if ((from + rank + c) % 3)
                CHECK_OK(weft_symm_wait_signal(mem, from, channels[c], WEFT_DEFAULT));
            else
                CHECK_STATUS(weft_symm_wait_signal(mem, from, channels[c], 1), WEFT_ERR_TIMEOUT);
    for (size_t i = 0; i < words; i++)
        CHECK_INT(pad[i], 0);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT)); /* who waits in vain waits for the living */
    finish(world);
}

/* A block is to be had as long as a rendezvous of it is under way, however many there are. */
RANKS_TEST(test_block_published, 1)
{
    weft_group *world = join(0);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    weft_i_block *block = weft_i_block_lease_of(x)->block;
    weft_i_fdpass *fdpass = world->world->fdpass;
    weft_i_segment *segment = NULL;
    weft_i_fdpass_order order = {.own = fdpass,
                                 .peer = world->world->peers[rank].fdpass,
                                 .key = block->segment->key,
                                 .bytes = block->segment->bytes};
    static const bool publishes[] = {true, true, false, true, false, false, true, false};
    int times = 0;
    for (size_t i = 0; i < sizeof publishes; i++) {
        if (publishes[i])
            CHECK_OK(weft_i_block_publish(block, fdpass));
        else
            weft_i_block_withdraw(block, fdpass);
        times += publishes[i] ? 1 : -1;
        order.deadline = weft_i_os_deadline(times ? 20000 : 20);
        CHECK_INT(weft_i_fdpass_fetch(&order, &segment), times ? WEFT_OK : WEFT_ERR_TIMEOUT);
        if (times)
            weft_i_segment_drop(segment);
    }
    CHECK(weft_symm_rendezvous(x, world)); /* which publishes it and takes it back */
    order.deadline = weft_i_os_deadline(20);
    CHECK_INT(weft_i_fdpass_fetch(&order, &segment), WEFT_ERR_TIMEOUT);
    (void)size;
    finish(world);
}

RANKS_TEST(test_empty_strided_p2p_persistent, 2)
{
    weft_group *world = join(0);
    scene_persistent(world, WEFT_CPU, rank, size);
    finish(world);
}

RANKS_TEST(test_barrier_timeout, 2)
{
    weft_group *world = join(0);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1)), world);
    CHECK(mem);
    if (rank == 0) {
        CHECK_STATUS(weft_symm_barrier(mem, 0, LIMIT), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 1");
        CHECK_CONTAINS(weft_last_error(), "barrier on channel 0");
        CHECK_CONTAINS(weft_last_error(), "200 ms");
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    for (int i = 0; i < 10; i++)
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_put_signal_timeout, 2)
{
    weft_group *world = join(0);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1)), world);
    CHECK(mem);
    if (rank == 0) {
        CHECK_OK(weft_symm_put_signal(mem, 1, 0, LIMIT));
        CHECK_STATUS(weft_symm_put_signal(mem, 1, 0, LIMIT), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 1");
    }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    if (rank == 1) { /* exactly one signal is there */
        CHECK_OK(weft_symm_wait_signal(mem, 0, 0, LIMIT));
        CHECK_STATUS(weft_symm_wait_signal(mem, 0, 0, 20), WEFT_ERR_TIMEOUT);
    }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_wait_signal_timeout, 2)
{
    weft_group *world = join(0);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1)), world);
    CHECK(mem);
    if (rank == 0) {
        CHECK_STATUS(weft_symm_wait_signal(mem, 1, 0, LIMIT), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "wait_signal on channel 0");
        CHECK_CONTAINS(weft_last_error(), "rank 1");
    }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    if (rank == 0)
        CHECK_OK(weft_symm_wait_signal(mem, 1, 0, WEFT_DEFAULT));
    else
        CHECK_OK(weft_symm_put_signal(mem, 0, 0, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_memset32, 1)
{
    scene_memset32(WEFT_CPU);
}

RANKS_TEST(test_stream_write_value32, 1)
{
    scene_write_value32(WEFT_CPU);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/ranks/symm.c, backends/cuda/ranks/pads.c, symm/registration.c */
/*
 * Symmetric memory and signals on CUDA devices, ranks as processes and as threads that share one:
 * on the software driver, or on a GPU with WEFT_TEST_CUDA=real.  The tests that bear the names of
 * the reference do what it says of them; where the reference dies after a timeout, these reset the
 * memory and go on.
 */
#define HARNESS_LABEL cuda_label
static const char *cuda_label(const char *backend);
#include "jobs.h"
#include "symm_scene.h"

#include "backends/cuda/device/device.h"
#include "backends/cuda/device/nvlink.h"
#include "cuda/model.h"

/* Other programs run the same tests on other backends of this memory: see test_nccl_symm.c and
 * test_nvshmem_symm.c.  SYMM_ALONE is how many ranks a test of one rank has there, SYMM_REAL the
 * variable that asks for a GPU and the library. */
#ifndef SYMM_ALONE
#define SYMM_ALONE 1
#endif
#ifndef SYMM_REAL
#define SYMM_REAL "WEFT_TEST_CUDA"
#endif
#ifndef SYMM_BACKEND
#define SYMM_BACKEND "cuda"
static const char *const labels[] = {"cuda", "cuda-threads", "softcuda", "softcuda-threads"};
static weft_device gpu(void)
{
    if (!getenv("WEFT_TEST_PEERS"))
        return WEFT_CUDA(0);
    int count = 0; /* a GPU for each rank: scripts/gpu-check peers */
    if (weft_i_cuda_count(&count) < 0 || count < harness_current->ranks)
        SKIP("there is no GPU for each rank");
    return WEFT_CUDA(harness_this_rank);
}
static void install_standin(void)
{
}
#else
static const char *const labels[] = {SYMM_BACKEND, SYMM_BACKEND "-threads", "soft" SYMM_BACKEND,
                                     "soft" SYMM_BACKEND "-threads"};
static weft_device gpu(void);      /* of this rank; chooses the backend */
static void install_standin(void); /* of its library */
#endif

static bool is_backend(const char *name)
{
    return !strcmp(SYMM_BACKEND, name);
}

#define GPU   gpu()
#define LIMIT ((int64_t)200) /* ms: no race on a loaded machine, short enough for a test */

static bool is_real(void)
{
    const char *wanted = getenv(SYMM_REAL);
    return wanted && !strcmp(wanted, "real");
}

/* Results on the software driver are told from those on a GPU. */
static const char *cuda_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    return labels[(is_real() ? 0 : 2) + threads];
}

static weft_status sync_stream(void)
{
    return weft_stream_sync(weft_stream_current(GPU), 20000);
}

/* The signals are given to a stream: their end is what counts here. */
#define BARRIER(mem_, channel_)                                        \
    do {                                                               \
        CHECK_OK(weft_symm_barrier((mem_), (channel_), WEFT_DEFAULT)); \
        CHECK_OK(sync_stream());                                       \
    } while (0)

static weft_symm *make(weft_group *world, int64_t count)
{
    weft_symm *mem = weft_symm_rendezvous(weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(count)), world);
    if (!mem)
        FAIL("rendezvous: %s", weft_last_error());
    return mem;
}

/* A test of one rank needs no world, unless its memory does. */
static weft_group *begin_alone(void)
{
    return SYMM_ALONE > 1 ? join(0) : NULL;
}

static void end_alone(weft_group *world)
{
    if (world)
        finish(world);
}

RANKS_TEST(test_large_alloc, 1)
{
    if (is_backend("nvshmem"))
        SKIP("its world has two ranks, and its stand-in no room for 2 GiB of each");
    int64_t bytes = (int64_t)2 * 1024 * 1024 * 1024;
    weft_tensor *x = weft_symm_empty(WEFT_U8, GPU, WEFT_SHAPE(bytes));
    if (!x)
        FAIL("%s", weft_last_error());
    CHECK_INT(weft_tensor_numel(x) * (int64_t)weft_dtype_size(weft_tensor_dtype(x)), bytes);
    CHECK(weft_item(x, 0) == 0 && weft_item(x, bytes - 1) == 0);
    CHECK_OK(weft_fill(weft_slice(x, 0, bytes - 1, bytes, 1), 7));
    CHECK_INT(weft_item(x, bytes - 1), 7);
    weft_release(x);
}

RANKS_TEST(test_get_signal_pad, 4)
{
    weft_group *world = join(0);
    scene_signal_pad(world, GPU, rank, size);
    finish(world);
}

RANKS_TEST(test_get_backend, 2)
{
    weft_group *world = join(0);
    const char *name = weft_symm_backend(GPU);
    CHECK(name && !strcmp(name, SYMM_BACKEND));
    CHECK_OK(weft_symm_set_backend(GPU, SYMM_BACKEND));
    CHECK_STATUS(weft_symm_set_backend(GPU, "shm"), WEFT_ERR_NOT_FOUND);
    CHECK_STATUS(weft_symm_set_backend(WEFT_CPU, SYMM_BACKEND), WEFT_ERR_NOT_FOUND);
    CHECK_STATUS(weft_symm_set_backend(GPU, "no such"), WEFT_ERR_NOT_FOUND);
    CHECK(weft_symm_empty(WEFT_U8, GPU, WEFT_SHAPE(1)));
    CHECK_OK(weft_symm_set_backend(GPU, SYMM_BACKEND));
    CHECK_STATUS(weft_symm_set_backend(GPU, is_backend("cuda") ? "nccl" : "cuda"), WEFT_ERR_STATE);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_has_multicast_support, SYMM_ALONE)
{
    weft_group *world = begin_alone();
    CHECK(!weft_symm_has_multicast(WEFT_CPU));
    bool has = weft_symm_has_multicast(GPU);
    CHECK(weft_last_status() == WEFT_OK);
    CHECK(is_real() || !has);
    end_alone(world);
}

/* A row and a column for each device that the driver shows, however many ranks there are.  No device
 * has a link to itself, and one that is alone has none at all. */
static void check_matrix(const weft_connectivity *found)
{
    int count = 0;
    CHECK_OK(weft_i_cuda_count(&count));
    CHECK_INT(found->size, count);
    for (int from = 0; from < count; from++)
        for (int to = 0; to < count; to++) {
            int links = found->links[from * count + to];
            CHECK(from == to ? links == 0 : links >= 0 && links <= WEFT_I_NVML_LINKS);
        }
}

/* Links to the next device, a broken one, and those to switches: of two the smaller number. */
RANKS_TEST(test_cuda_nvlink_connectivity_detection, 2)
{
    weft_group *world = join(0);
    weft_connectivity found;
    int devices = model.devices ? model.devices : 2;
    if (!is_real() && !harness_in_threads) {
        model.nvlinks = 2;
        model.switch_links = 3;
    }
    CHECK_OK(weft_symm_detect_connectivity(world, GPU, "nvlink", &found));
    CHECK(found.device == GPU && !strcmp(found.connection, "nvlink"));
    check_matrix(&found);
    if (model.nvlinks) {
        CHECK_INT(found.size, devices);
        /* 2 to the next device, around the ring, and 3 through switches. */
        CHECK_INT(found.links[1], 5);
        CHECK_INT(found.links[devices], devices == 2 ? 5 : 3);
        weft_symm_free_connectivity(&found);
        model.lacks = "nvmlDeviceGetNvLinkState"; /* a warning, and what is known */
        CHECK_OK(weft_symm_detect_connectivity(world, GPU, "nvlink", &found));
        check_matrix(&found);
        CHECK_INT(found.links[1], 0);
        model.lacks = NULL;
    }
    weft_symm_free_connectivity(&found);
    CHECK_STATUS(weft_symm_detect_connectivity(world, GPU, "shm", &found), WEFT_ERR_NOT_FOUND);
    finish(world);
}

RANKS_TEST(test_allow_overlapping_devices, 2)
{
    if (!is_backend("cuda"))
        SKIP("whose ranks may share a device is the library's choice");
    weft_group *world = join(0);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    if (!mem)
        FAIL("%s", weft_last_error());
    CHECK_INT(symm_info(mem).rank, rank);
    CHECK_INT(symm_info(mem).size, size);
    for (int peer = 0; peer < size; peer++) {
        weft_tensor *theirs = weft_symm_buffer(mem, peer, WEFT_SHAPE(64), WEFT_F32, 0);
        CHECK(theirs);
        CHECK_INT(weft_tensor_device(theirs), weft_tensor_device(x));
        CHECK((weft_tensor_data(theirs) == weft_tensor_data(x)) == (peer == rank));
        CHECK((weft_symm_buffer_ptr(mem, peer) == weft_tensor_data(x)) == (peer == rank));
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* Whoever does not allow it is refused with all others, who are told why and what to do. */
RANKS_TEST(test_cuda_overlap_refused, 2)
{
    if (!is_backend("cuda"))
        SKIP("whose ranks may share a device is the library's choice");
    weft_group *world = join(0);
    bool allows = !harness_in_threads && rank == 0;
    weft_symm_allow_overlap(allows);
    CHECK(weft_symm_allows_overlap() == allows);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    CHECK(x && !weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "ranks 0 and 1 are on one GPU");
    CHECK_CONTAINS(weft_last_error(), "WEFT_ALLOW_OVERLAP=1");
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_symm_allow_overlap(true);
    CHECK(weft_symm_allows_overlap());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(weft_symm_rendezvous(x, world)); /* the same memory, now that all do */
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* A GPU each needs no permission. */
RANKS_TEST(test_cuda_two_devices, 2)
{
    if (is_real())
        SKIP("needs two GPUs");
    if (is_backend("nvshmem"))
        SKIP("it was started on one device");
    weft_group *world = join(0);
    weft_symm_allow_overlap(false);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CUDA(rank), WEFT_SHAPE(64));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    if (!mem)
        FAIL("%s", weft_last_error());
    CHECK_OK(weft_fill(x, rank + 5));
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    CHECK_OK(weft_stream_sync(weft_stream_current(WEFT_CUDA(rank)), 20000));
    weft_tensor *theirs = weft_symm_tensor(mem, 1 - rank);
    CHECK(all_equal(theirs, 1 - rank + 5));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_symm_allow_overlap(true);
    finish(world);
}

RANKS_TEST(test_subgroup, 4)
{
    weft_group *world = join(0);
    int lower[] = {0, 1}, upper[] = {2, 3};
    weft_group *half = weft_group_new(world, rank < 2 ? lower : upper, 2, NULL);
    CHECK(half);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    weft_symm *wide = weft_symm_rendezvous(x, world), *narrow = weft_symm_rendezvous(x, half);
    if (!wide || !narrow)
        FAIL("%s", weft_last_error());
    CHECK_INT(symm_info(wide).size, 4);
    CHECK_INT(symm_info(wide).rank, rank);
    CHECK_INT(symm_info(narrow).size, 2);
    CHECK_INT(symm_info(narrow).rank, rank % 2);
    CHECK_OK(weft_fill(x, rank));
    BARRIER(wide, 0);
    int next = (rank + 1) % 4, beside = (rank % 2 + 1) % 2;
    CHECK(all_equal(weft_symm_buffer(wide, next, WEFT_SHAPE(64), WEFT_F32, 0), next));
    CHECK(all_equal(weft_symm_buffer(narrow, beside, WEFT_SHAPE(64), WEFT_F32, 0),
                    beside + (rank < 2 ? 0 : 2)));
    /* A signal in one group does not end a wait in another, though block and channel are the same.
     */
    CHECK_OK(weft_symm_put_signal(wide, rank ^ 1, 0, WEFT_DEFAULT));
    CHECK_OK(weft_symm_wait_signal(narrow, beside, 0, 50));
    CHECK_STATUS(sync_stream(), WEFT_ERR_TIMEOUT);
    CHECK_OK(weft_symm_wait_signal(wide, rank ^ 1, 0, WEFT_DEFAULT));
    CHECK_OK(sync_stream());
    CHECK_OK(weft_symm_reset(narrow, WEFT_DEFAULT));
    BARRIER(narrow, 0);
    BARRIER(wide, 1);
    finish(world);
}

RANKS_TEST(test_empty_strided_p2p, 2)
{
    weft_group *world = join(0);
    scene_strided(world, GPU, rank, size);
    finish(world);
}

RANKS_TEST(test_empty_strided_p2p_persistent, 2)
{
    weft_group *world = join(0);
    scene_persistent(world, GPU, rank, size);
    finish(world);
}

/* After a failure everything is refused until all ranks have reset; then all of it works. */
static void reset_and_go_on(weft_symm *mem, int rank)
{
    CHECK_OK(weft_symm_reset(mem, WEFT_DEFAULT));
    for (int i = 0; i < 10; i++)
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    CHECK_OK(weft_symm_put_signal(mem, 1 - rank, 1, WEFT_DEFAULT));
    CHECK_OK(weft_symm_wait_signal(mem, 1 - rank, 1, WEFT_DEFAULT));
    BARRIER(mem, 0);
    CHECK_INT(weft_last_status(), WEFT_OK);
}

RANKS_TEST(test_barrier_timeout, 2)
{
    weft_group *world = join(0);
    weft_symm *mem = make(world, 1);
    BARRIER(mem, 0);
    if (rank == 0) {
        CHECK_OK(weft_symm_barrier(mem, 0, LIMIT));
        CHECK_STATUS(sync_stream(), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 0 of 2");
        CHECK_CONTAINS(weft_last_error(), "barrier on channel 0");
        CHECK_CONTAINS(weft_last_error(), "rank 1");
        const char *waited = strstr(weft_last_error(), "waited ");
        long ms = waited ? strtol(waited + strlen("waited "), NULL, 10) : -1;
        CHECK(ms >= LIMIT && ms < 10 * LIMIT); /* its own limit, not the group's */
        CHECK_STATUS(weft_symm_put_signal(mem, 1, 0, LIMIT), WEFT_ERR_TIMEOUT); /* still */
        CHECK_OK(sync_stream()); /* told once, and the context lives */
        weft_clear_error();
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 1) { /* its own kernel finds the poison, whoever failed */
        CHECK_OK(weft_symm_barrier(mem, 3, WEFT_DEFAULT));
        CHECK_STATUS(sync_stream(), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 0 gave up waiting");
        CHECK_CONTAINS(weft_last_error(), "weft_symm_reset");
        weft_clear_error();
    }
    reset_and_go_on(mem, rank);
    finish(world);
}

RANKS_TEST(test_put_signal_timeout, 2)
{
    weft_group *world = join(0);
    weft_symm *mem = make(world, 1);
    if (rank == 0) {
        CHECK_OK(weft_symm_put_signal(mem, 1, 0, LIMIT));
        CHECK_OK(sync_stream());
        CHECK_OK(weft_symm_put_signal(mem, 1, 0, LIMIT));
        CHECK_STATUS(sync_stream(), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "put_signal on channel 0");
        CHECK_CONTAINS(weft_last_error(), "rank 1");
        weft_clear_error();
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    reset_and_go_on(mem, rank); /* the signal that nobody took is gone: channel 0 is empty */
    CHECK(all_equal(weft_symm_signal_pad(mem, rank, WEFT_SCALAR, WEFT_U32, 0), 0));
    BARRIER(mem, 0);
    finish(world);
}

RANKS_TEST(test_wait_signal_timeout, 2)
{
    weft_group *world = join(0);
    weft_symm *mem = make(world, 1);
    weft_tensor *own = weft_symm_tensor(mem, rank);
    if (rank == 0) {
        CHECK_OK(weft_symm_wait_signal(mem, 1, 0, LIMIT));
        CHECK(isnan(weft_item(own, 0)) || weft_last_status() < 0); /* reading waits, and tells */
        CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "wait_signal on channel 0");
        CHECK_CONTAINS(weft_last_error(), "rank 1");
        weft_clear_error();
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    reset_and_go_on(mem, rank);
    CHECK(weft_item(own, 0) == 0);
    finish(world);
}

/* A rank that dies while kernels of others wait for it: they end, name it, and the device goes on. */
RANKS_TEST(test_cuda_kill, 3)
{
    if (harness_in_threads)
        return; /* a thread cannot die alone */
    if (is_backend("nvshmem"))
        SKIP("after a death nobody allocates: see test_nvshmem_kill");
    weft_group *world = join(30000);
    weft_symm *mem = make(world, 16), *other = make(world, 16);
    weft_group *rest = weft_group_new(world, (int[]){0, 1}, 2, "rest");
    BARRIER(mem, 0);
    if (rank == 2) {
        harness_rank_dies();
        CHECK(harness_await(0, 1) && harness_await(1, 1));
        rest_us(20000); /* their kernels wait by now; if not, they will */
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(weft_symm_barrier(mem, 0, 30000));
    CHECK_OK(weft_symm_barrier(other, 0, 30000));
    harness_mark();
    long long began = harness_now();
    CHECK_STATUS(sync_stream(), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    CHECK(harness_now() - began < 10 * 1000000000LL); /* not the deadline's 30 s */
    CHECK_OK(sync_stream());                          /* told once, of all memory of the group */
    CHECK_STATUS(weft_symm_barrier(mem, 0, WEFT_DEFAULT), WEFT_ERR_PEER_DEAD);
    CHECK_STATUS(weft_symm_barrier(other, 0, WEFT_DEFAULT), WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    /* The context lives, and what is left of the group too. */
    weft_symm *less = make(rest, 16);
    CHECK_OK(weft_fill(weft_symm_tensor(less, rank), rank + 1));
    BARRIER(less, 0);
    CHECK(all_equal(weft_symm_tensor(less, 1 - rank), 2 - rank));
    BARRIER(less, 0);
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

/* One that leaves in order, while a kernel waits for it. */
RANKS_TEST(test_cuda_left, 2)
{
    weft_group *world = join(30000);
    weft_symm *mem = make(world, 16), *other = make(world, 16);
    BARRIER(mem, 0);
    if (rank == 0) {
        CHECK_OK(weft_symm_barrier(mem, 0, 30000));
        CHECK_OK(weft_symm_barrier(other, 0, 30000));
        CHECK_STATUS(sync_stream(), WEFT_ERR_PEER_LEFT);
        CHECK_CONTAINS(weft_last_error(), "rank 1");
        CHECK_OK(sync_stream()); /* told once, of both */
    }
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

RANKS_TEST(test_cuda_mismatch_of_memory, 2)
{
    if (is_backend("nvshmem"))
        SKIP("all ranks allocate together: see test_nvshmem_mismatch");
    weft_group *world = join(0);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64 + 64 * rank));
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    x = weft_symm_empty(WEFT_F32, rank ? GPU : WEFT_CPU, WEFT_SHAPE(64));
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "backend " SYMM_BACKEND);
    weft_clear_error();
    BARRIER(make(world, 64), 0);
    finish(world);
}

/* One member's driver fails in the middle: nobody has the memory, and the next try works. */
RANKS_TEST(test_cuda_rendezvous_fault, 2)
{
    if (!is_backend("cuda"))
        SKIP("other calls are made there");
    static const char *const calls[] = {
        "cuMemCreate",    "cuMemAddressReserve",          "cuMemMap",
        "cuMemSetAccess", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"};
    if (is_real() || harness_in_threads)
        return; /* the fault would hit any of the threads */
    weft_group *world = join(5000);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
        CHECK(x);
        if (rank == 1) {
            model.fail = calls[i];
            model.fail_with = 2;
            model.fail_at = 1;
        }
        long long began = harness_now();
        CHECK(!weft_symm_rendezvous(x, world));
        CHECK(weft_last_status() != WEFT_ERR_TIMEOUT);
        CHECK(harness_now() - began < 15 * 1000000000LL);
        weft_clear_error();
        CHECK(rank == 0 || model.fail_at == 0);
        weft_symm *mem = weft_symm_rendezvous(x, world);
        if (!mem)
            FAIL("after %s: %s", calls[i], weft_last_error());
        BARRIER(mem, 0);
    }
    finish(world);
}

RANKS_TEST(test_cuda_pool_and_workspace, 2)
{
    weft_group *world = join(0);
    weft_symm_pool *pool = weft_symm_pool_new(GPU, 1 << 16);
    CHECK(pool);
    weft_tensor *a = weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(100));
    weft_tensor *b = weft_symm_pool_empty(pool, WEFT_I32, WEFT_SHAPE(50));
    CHECK(a && b);
    weft_symm *mem = weft_symm_rendezvous(b, world);
    if (!mem)
        FAIL("%s", weft_last_error());
    CHECK_OK(weft_fill(b, rank + 1));
    CHECK_OK(weft_fill(a, 9));
    BARRIER(mem, 0);
    CHECK(all_equal(weft_symm_tensor(mem, 1 - rank), 2 - rank));
    BARRIER(mem, 0);
    weft_release(b);
    b = weft_symm_pool_empty(pool, WEFT_I32, WEFT_SHAPE(50));
    CHECK(all_equal(b, 0) && all_equal(a, 9));
    weft_symm *scratch = weft_symm_workspace(world, GPU, 1000);
    weft_symm *host = weft_symm_workspace(world, WEFT_CPU, 1000);
    CHECK(scratch && host && symm_info(scratch).bytes >= 1000);
    CHECK_INT(weft_tensor_device(weft_symm_tensor(scratch, rank)), GPU);
    CHECK_INT(weft_tensor_device(weft_symm_tensor(host, rank)), WEFT_CPU);
    weft_symm *more = weft_symm_workspace(world, GPU, 100000);
    CHECK(more && symm_info(more).bytes >= 100000);
    BARRIER(more, 0);
    finish(world);
}

/* Memory that kernels under way still use goes when they are done. */
RANKS_TEST(test_cuda_release_early, 2)
{
    weft_group *world = join(0);
    for (int i = 0; i < 4; i++) {
        weft_scope_open();
        weft_symm *mem = make(world, 4096);
        CHECK_OK(weft_fill(weft_symm_tensor(mem, rank), i));
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        weft_tensor *out = weft_keep(weft_clone(weft_symm_tensor(mem, 1 - rank)));
        CHECK_OK(weft_symm_barrier(mem, 1, WEFT_DEFAULT));
        weft_scope_close(); /* nobody has waited for anything */
        CHECK(all_equal(out, i));
        weft_release(out);
    }
    CHECK_OK(sync_stream());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* A local operand on another device than the buffer it is to be copied to. */
RANKS_TEST(test_cuda_operands_on_two_devices, 2)
{
    weft_group *world = join(0);
    weft_tensor *buffer = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    CHECK(weft_symm_rendezvous(buffer, world));
    weft_tensor *here = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64));
    CHECK(!weft_symm_one_shot_all_reduce_copy(buffer, here, WEFT_SUM, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "buffer and local input are on two devices");
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_memset32, SYMM_ALONE)
{
    weft_group *world = begin_alone();
    scene_memset32(GPU);
    end_alone(world);
}

RANKS_TEST(test_stream_write_value32, SYMM_ALONE)
{
    weft_group *world = begin_alone();
    scene_write_value32(GPU);
    end_alone(world);
}

int main(int argc, char **argv)
{
    if (!is_real()) {
        model_install();
        install_standin();
    }
    weft_symm_allow_overlap(true);
    return harness_main(argc, argv);
}

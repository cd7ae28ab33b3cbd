/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/device/carrier.c, coll/device/through.c, symm/backend.c */
/*
 * Carriers: a backend of this test shows that one is asked for collectives of its own kind of device
 * alone, that all members have it or none, and that what it does not carry goes through the host.
 */
#include "harness_ranks.h"
#include "jobs.h"

#include "backends/cuda/tensor/table.h"
#include "base/report/status.h"
#include "cuda/model.h"
#include "fabric/group/group.h"
#include "symm/backend.h"
#include "symm/reach.h"
#include "tensor/object/device.h"
#include "weft/weft.h"

#include <pthread.h>

#define GPU WEFT_CUDA(0)

static atomic_int opened, closed, carried;

typedef struct state {
    int rank, size, seen[8];
} state;

static weft_status mock_open(const weft_i_circle *circle, void **out)
{
    if (strstr(circle->name, "without") && circle->rank == !strstr(circle->name, "without0"))
        return weft_i_fail(WEFT_ERR_LIMIT, "rank %d cannot", circle->rank);
    state *made = calloc(1, sizeof *made);
    made->rank = circle->rank;
    made->size = circle->size;
    *out = made;
    opened++;
    if (strstr(circle->name, "without"))
        return WEFT_OK; /* the other one will not come to an exchange */
    return circle->exchange(circle, &made->rank, sizeof made->rank, made->seen);
}

static void mock_close(void *carrier)
{
    closed++;
    free(carrier);
}

/* Carries broadcasts of I8 alone, which it fills with the ranks it has seen. */
static weft_status mock_collective(void *carrier, const weft_i_request *request)
{
    const state *mine = carrier;
    if (request->kind != WEFT_I_BROADCAST || request->dtype != WEFT_I8)
        return WEFT_ERR_UNSUPPORTED;
    if (weft_i_device_kind(request->device) != WEFT_I_KIND_CUDA)
        return weft_i_fail(WEFT_ERR_INTERNAL, "not my device");
    int value = 0;
    for (int r = 0; r < mine->size; r++)
        value = value * 10 + mine->seen[r];
    carried++;
    return weft_i_device_cuda.fill(request->device, request->stream, request->out,
                                   (unsigned char)value, request->out_bytes);
}

static int mock_probe(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "of this test");
    return 5;
}

static const weft_i_carry mock_carry = {
    .collective = mock_collective,
    .open = mock_open,
    .close = mock_close,
};

static const weft_i_backend mock = {
    .name = "mock",
    .device_kind = WEFT_I_KIND_CUDA,
    .sharing = WEFT_I_SERVES_PROCESSES | WEFT_I_SERVES_THREADS,
    .probe = mock_probe,
    .carry = &mock_carry,
};

RANKS_TEST(test_carrier_asked, 2)
{
    weft_group *world = join(30000);
    int before = carried;
    weft_tensor *x = weft_ones(WEFT_I8, GPU, WEFT_SHAPE(4)),
                *y = weft_ones(WEFT_I8, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_OK(weft_broadcast_in_place(y, 0, world)); /* the CPU's are the lane's */
    CHECK(weft_item(y, 0) == 1 && carried == before);
    CHECK_OK(weft_broadcast_in_place(x, 0, world));
    CHECK(weft_item(x, 3) == 1 && carried > before);       /* ranks 0 and 1: 01 */
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world)); /* it does not: through the host */
    CHECK(weft_item(x, 3) == 2);
    static const char *const names[] = {"without1", "without0"};
    for (int i = 0; i < 2; i++) {
        weft_group *part = weft_group_new(world, (int[]){0, 1}, 2, names[i]);
        CHECK(part);
        before = carried;
        CHECK_OK(weft_broadcast_in_place(x, 1, part)); /* one cannot open it: nobody has it */
        CHECK(weft_item(x, 3) == 2 && carried == before);
        weft_clear_error();
        weft_release(part);
    }
    finish(world);
}

/* Works that are carried are counted from 1, beside those of the lane; what the carrier passes on has
 * the lane's number. */
RANKS_TEST(test_carrier_numbers_works, 2)
{
    weft_group *world = join(30000), *own = fresh_group(world); /* a call has been on its lane */
    weft_tensor *x = weft_ones(WEFT_I8, GPU, WEFT_SHAPE(4));
    CHECK_OK(weft_work_wait(weft_barrier_start(own), WEFT_DEFAULT));
    for (int i = 1; i <= 3; i++) {
        weft_work *work = weft_broadcast_start(x, 0, own);
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        CHECK_INT(weft_work_sequence(work), i);
        weft_work *reduced = weft_all_reduce_start(x, x, WEFT_MAX, own);
        CHECK_OK(weft_work_wait(reduced, WEFT_DEFAULT));
        CHECK_INT(weft_work_sequence(reduced), 2 + i);
    }
    CHECK_OK(weft_broadcast_in_place(x, 0, own)); /* counts too, as all that it carries */
    weft_work *last = weft_broadcast_start(x, 0, own);
    CHECK_OK(weft_work_wait(last, WEFT_DEFAULT));
    CHECK_INT(weft_work_sequence(last), 5);
    finish(world);
}

/* What was opened is closed with its group. */
RANKS_TEST(test_carrier_closes, 1)
{
    weft_group *world = join(30000);
    int before = opened, gone = closed;
    weft_tensor *x = weft_ones(WEFT_I8, GPU, WEFT_SHAPE(4));
    weft_group *own = weft_keep(weft_group_new(world, (int[]){0}, 1, "own"));
    CHECK_OK(weft_broadcast_in_place(x, 0, own));
    CHECK_OK(weft_broadcast_in_place(x, 0, own));
    CHECK_INT(opened, before + 1);
    CHECK_INT(closed, gone);
    weft_release(own);
    CHECK_INT(closed, gone + 1);
    finish(world);
}

/* ---- which backend makes memory ---- */

static int asked_one, asked_other, other_score;

static int probe_one(char *reason, size_t bytes)
{
    asked_one++;
    return mock_probe(reason, bytes);
}

static int probe_other(char *reason, size_t bytes)
{
    (void)reason;
    (void)bytes;
    asked_other++;
    return other_score;
}

static weft_status make_nothing(weft_device device, size_t bytes, weft_i_segment **out)
{
    (void)device;
    (void)bytes;
    *out = NULL;
    return WEFT_ERR_UNSUPPORTED;
}

/* A usable one is asked once, since calls ask each time; one that is not may become so. */
TEST(test_backend_probed_once)
{
    const uint32_t both = WEFT_I_SERVES_PROCESSES | WEFT_I_SERVES_THREADS;
    const weft_i_memory nothing = {.allocate = make_nothing};
    const weft_i_backend one = {.name = "one",
                                .device_kind = WEFT_I_KIND_CUDA,
                                .sharing = both,
                                .probe = probe_one,
                                .memory = &nothing};
    weft_i_backend other = one;
    other.probe = probe_other;
    const weft_i_backend *nccl = weft_i_backend_replace("nccl", &one);
    const weft_i_backend *nvshmem = weft_i_backend_replace("nvshmem", &other);
    for (int i = 0; i < 3; i++)
        CHECK(weft_i_backend_for(GPU) == &one);
    CHECK_INT(asked_one, 1);
    CHECK_INT(asked_other, 3);
    other_score = 6; /* one more than the other's, which is known by now */
    for (int i = 0; i < 3; i++)
        CHECK(weft_i_backend_for(GPU) == &other);
    CHECK_INT(asked_one, 1);
    CHECK_INT(asked_other, 4);
    weft_i_backend_replace("nccl", nccl);
    CHECK(weft_i_backend_replace("nvshmem", nvshmem) == &other);
}

/* Three backends of a device, as the test wants them. */
static int scores[3], probes[3];

static int probe_0(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "says 0");
    probes[0]++;
    return scores[0];
}

static int probe_1(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "says 1");
    probes[1]++;
    return scores[1];
}

static int probe_2(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "says 2");
    probes[2]++;
    return scores[2];
}

static weft_status carry_nothing(void *carrier, const weft_i_request *request)
{
    (void)carrier, (void)request;
    return WEFT_ERR_UNSUPPORTED;
}

static weft_status start_nothing(const weft_i_circle *circle)
{
    (void)circle;
    return WEFT_OK;
}

static const char *const rigged_names[3] = {"cuda", "nccl", "nvshmem"};
static weft_i_backend rigged[3];
static weft_i_memory rigged_memory[3];
static weft_i_carry rigged_carry[3];
static const weft_i_backend *rows_before[3];

static void rig(int a, int b, int c)
{
    static int (*const asks[3])(char *, size_t) = {probe_0, probe_1, probe_2};
    int wanted[] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        rigged[i] = (weft_i_backend){.name = rigged_names[i],
                                     .device_kind = WEFT_I_KIND_CUDA,
                                     .sharing = WEFT_I_SERVES_PROCESSES | WEFT_I_SERVES_THREADS,
                                     .probe = asks[i],
                                     .memory = &rigged_memory[i],
                                     .carry = &rigged_carry[i]};
        rigged_memory[i] = (weft_i_memory){.allocate = make_nothing};
        rigged_carry[i] = (weft_i_carry){.collective = carry_nothing};
        scores[i] = wanted[i];
        probes[i] = 0;
        rows_before[i] = weft_i_backend_replace(rigged_names[i], &rigged[i]);
    }
}

static void unrig(void)
{
    for (int i = 0; i < 3; i++)
        CHECK(weft_i_backend_replace(rigged_names[i], rows_before[i]) == &rigged[i]);
}

static const weft_i_backend *carrier(void)
{
    return weft_i_backend_carrier(GPU, WEFT_I_BETWEEN_PROCESSES, false);
}

/* The highest score, the first of equal ones; none without one; and who is alone is not asked. */
TEST(test_backend_of_the_highest_score)
{
    rig(3, 5, 5);
    CHECK(carrier() == &rigged[1] && weft_i_backend_for(GPU) == &rigged[1]);
    unrig();
    rig(7, 5, 6);
    CHECK(carrier() == &rigged[0]);
    rigged[0].sharing = WEFT_I_SERVES_THREADS; /* not among processes */
    CHECK(carrier() == &rigged[2]);
    CHECK(weft_i_backend_carrier(GPU, WEFT_I_BETWEEN_THREADS, false) == &rigged[0]);
    rigged_carry[1].wraps = "nvshmem"; /* stands before the one it wraps, and is none by itself */
    CHECK(carrier() == &rigged[1]);
    rigged_carry[1].wraps = "cuda";
    CHECK(carrier() == &rigged[2]);
    CHECK(weft_i_backend_carrier(GPU, WEFT_I_BETWEEN_THREADS, false) == &rigged[1]);
    rigged[2].device_kind = weft_i_device_kind(WEFT_CPU);
    CHECK(!carrier());
    unrig();
    rig(0, 0, 0);
    CHECK(!carrier() && probes[0] && probes[1] && probes[2]);
    rigged[0].carry = rigged[2].carry = NULL;
    probes[1] = 0;
    CHECK(carrier() == &rigged[1] && !probes[1]);
    rigged[0].start = start_nothing; /* is never chosen by itself to make memory */
    rigged[1].memory = NULL;
    CHECK(weft_i_backend_for(GPU) == &rigged[2]);
    rigged[2].start = start_nothing;
    CHECK(!weft_i_backend_for(GPU) && weft_last_status() == WEFT_ERR_UNSUPPORTED);
    CHECK(!strcmp(weft_last_error(), "no backend of this build makes symmetric memory on cuda:0"));
    weft_clear_error();
    CHECK(!weft_symm_backend(GPU) && weft_last_status() == WEFT_OK);
    unrig();
}

TEST(test_backend_described)
{
    weft_backend_info info;
    int found = 0;
    rig(1, 0, 5);
    for (int i = 0; i < weft_backend_count(); i++) {
        CHECK_OK(weft_backend_describe(i, &info));
        for (int r = 0; r < 3; r++)
            if (!strcmp(info.name, rigged_names[r])) {
                CHECK(info.score == scores[r] && info.usable == (scores[r] > 0));
                CHECK(!strcmp(info.device, "cuda") && info.reason[5] == '0' + r);
                found++;
            }
        if (!strcmp(info.name, "ucx")) { /* here or not, it says so */
            CHECK(info.usable == (info.score > 0) && !strcmp(info.device, "cpu"));
            CHECK_CONTAINS(info.reason, "UCX");
            found++;
        }
    }
    CHECK_INT(found, 4);
    CHECK_STATUS(weft_backend_describe(-1, &info), WEFT_ERR_INVALID_ARG);
    CHECK(!strcmp(weft_last_error(), "there are backends 0 to 6, not -1"));
    CHECK_STATUS(weft_backend_describe(weft_backend_count(), &info), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_backend_describe(0, NULL), WEFT_ERR_INVALID_ARG);
    CHECK(weft_i_backend_named("NCCL") == &rigged[1] && !weft_i_backend_named("nothing"));
    const weft_i_backend *shm = weft_i_backend_named("shm"); /* the first row */
    CHECK(shm && !strcmp(shm->name, "shm") && weft_i_backend_replace("shm", shm) == shm);
    const weft_i_backend *ucx = weft_i_backend_named("ucx"); /* neither memory nor collectives */
    CHECK(ucx && ucx->transport && !ucx->memory && !ucx->carry);
    CHECK(!weft_i_backend_replace("nothing", &mock));
    weft_clear_error();
    unrig();
}

/* What the environment says, until the program says something. */
TEST(test_backend_overlap)
{
    setenv("WEFT_ALLOW_OVERLAP", "1", 1);
    CHECK(weft_symm_allows_overlap());
    setenv("WEFT_ALLOW_OVERLAP", "0", 1);
    CHECK(!weft_symm_allows_overlap());
    weft_symm_allow_overlap(true);
    CHECK(weft_symm_allows_overlap());
    setenv("WEFT_ALLOW_OVERLAP", "1", 1);
    weft_symm_allow_overlap(false);
    CHECK(!weft_symm_allows_overlap());
    unsetenv("WEFT_ALLOW_OVERLAP");
}

static void *choose(void *arg)
{
    (void)arg;
    static const struct {
        weft_device device;
        const char *name, *text;
    } bad[] = {
        {WEFT_CPU, NULL, "\"(null)\" is not a backend of this build that makes memory on cpu"},
        {WEFT_CPU, "ucx", "\"ucx\" is not a backend of this build that makes memory on cpu"},
        {WEFT_CPU, "cuda", "\"cuda\" is not a backend of this build that makes memory on cpu"},
        {GPU, "shm", "\"shm\" is not a backend of this build that makes memory on cuda:0"},
        {GPU, "nccl", "\"nccl\" is not a backend of this build that makes memory on cuda:0"}};
    bool right = true;
    rigged[1].memory = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        right &= weft_symm_set_backend(bad[i].device, bad[i].name) == WEFT_ERR_NOT_FOUND &&
                 !strcmp(weft_last_error(), bad[i].text);
    right &= !strcmp(weft_symm_backend(GPU), "nvshmem"); /* by its score */
    right &= weft_symm_set_backend(GPU, "CUDA") == WEFT_OK;
    right &= !strcmp(weft_symm_backend(GPU), "cuda");
    weft_i_backend_used(GPU);
    right &= weft_symm_set_backend(GPU, "cuda") == WEFT_OK; /* the same again */
    right &= weft_symm_set_backend(GPU, "nvshmem") == WEFT_ERR_STATE &&
             !strcmp(weft_last_error(),
                     "this thread has already allocated symmetric memory with backend cuda");
    right &= !strcmp(weft_symm_backend(GPU), "cuda");
    weft_clear_error();
    return right ? choose : NULL;
}

/* A thread chooses for itself, until it has used one; WEFT_SYMM_BACKEND for all. */
TEST(test_backend_chosen)
{
    pthread_t thread;
    void *right = NULL;
    rig(3, 4, 5);
    CHECK(!pthread_create(&thread, NULL, choose, NULL) && !pthread_join(thread, &right) && right);
    CHECK(!strcmp(weft_symm_backend(GPU), "nvshmem")); /* no other thread's choice */
    setenv("WEFT_SYMM_BACKEND", "Cuda", 1);
    CHECK(!strcmp(weft_symm_backend(GPU), "cuda") && !strcmp(weft_symm_backend(WEFT_CPU), "shm"));
    setenv("WEFT_SYMM_BACKEND", "nccl", 1); /* which makes none */
    CHECK(!weft_i_backend_for(GPU) && weft_last_status() == WEFT_ERR_NOT_FOUND);
    CHECK(!strcmp(weft_last_error(),
                  "WEFT_SYMM_BACKEND=\"nccl\" is not a backend of this build that makes memory"));
    setenv("WEFT_SYMM_BACKEND", "nothing", 1);
    CHECK(!weft_symm_backend(WEFT_CPU) && weft_last_status() == WEFT_ERR_NOT_FOUND);
    unsetenv("WEFT_SYMM_BACKEND");
    weft_clear_error();
    unrig();
}

static int started;

static weft_status start_and_count(const weft_i_circle *circle)
{
    (void)circle;
    started++;
    return WEFT_OK;
}

/* In a thread that is a rank: one rank in a process is what the backend has. */
static int starts_in_a_thread(void *arg)
{
    (void)arg;
    weft_group *world = weft_init(NULL);
    bool refused = weft_symm_set_backend(GPU, "nvshmem") == WEFT_ERR_UNSUPPORTED &&
                   !strcmp(weft_last_error(), "backend nvshmem has one rank in a process; these "
                                              "ranks are threads of one");
    weft_clear_error();
    return weft_finish(world) || !refused;
}

TEST(test_backend_starts_among_processes)
{
    rig(1, 1, 1);
    rigged[2].sharing = WEFT_I_SERVES_PROCESSES;
    rigged[2].start = start_and_count;
    CHECK_INT(weft_spawn(1, starts_in_a_thread, NULL), 0);
    CHECK_INT(started, 0);
    unrig();
}

/* A carrier that is the world's own carries all or says what it cannot; its own reason stays. */
static weft_status sulk(void *carrier, const weft_i_request *request)
{
    (void)carrier;
    return request->dtype == WEFT_I8 ? WEFT_ERR_UNSUPPORTED
                                     : weft_i_fail(WEFT_ERR_LIMIT, "too much");
}

static weft_status open_nothing(const weft_i_circle *circle, void **out)
{
    (void)circle;
    *out = &started;
    return WEFT_OK;
}

TEST(test_carrier_of_a_world)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    CHECK_OK(weft_scope_open());
    weft_group *world = weft_fake_init(&opts);
    CHECK(world);
    weft_i_backend sulks = *(const weft_i_backend *)world->world->carrier;
    const weft_i_carry sulking = {.open = open_nothing, .collective = sulk};
    sulks.name = "sulks";
    sulks.carry = &sulking;
    world->world->carrier = &sulks;
    weft_tensor *x = weft_ones(WEFT_I8, WEFT_CPU, WEFT_SHAPE(4)),
                *y = weft_ones(WEFT_I16, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_STATUS(weft_broadcast_in_place(x, 0, world), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "broadcast: backend sulks does not carry it");
    CHECK_STATUS(weft_broadcast_in_place(y, 0, world), WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "too much");
    CHECK(!strstr(weft_last_error(), "does not carry"));
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

static weft_status carry_far(void *carrier, const weft_i_request *request)
{
    (void)carrier;
    if (request->kind != WEFT_I_BROADCAST)
        return WEFT_ERR_UNSUPPORTED;
    memset(request->out, 7, request->out_bytes);
    return WEFT_OK;
}

/* What reaches a group that spans hosts is what the backends say; operands of the CPU go by a carrier
 * then.  Nobody makes a lane there, or shares memory. */
TEST(test_carrier_between_hosts)
{
    static const weft_i_carry carry = {.reaches_hosts = true, .collective = carry_far};
    static const weft_i_backend far = {
        .name = "ucx", .sharing = WEFT_I_SERVES_PROCESSES, .probe = mock_probe, .carry = &carry};
    setenv("WEFT_NCCL", "off", 1); /* it carries calls of devices there, where it is usable */
    weft_group *world = weft_init(NULL);
    CHECK(world && weft_i_reach_of_group(world, WEFT_I_ANY_DEVICE) == WEFT_I_REACH_LANE);
    weft_tensor *x = weft_ones(WEFT_I8, WEFT_CPU, WEFT_SHAPE(4));
    world->local = false;
    CHECK(weft_i_reach_of_group(world, WEFT_I_ANY_DEVICE) == WEFT_I_REACH_NONE);
    CHECK_STATUS(weft_broadcast_in_place(x, 0, world), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(),
                   "broadcast: group \"0\" spans hosts, and no backend carries it "
                   "between them (nccl: WEFT_NCCL is off; ucx: ");
    CHECK_CONTAINS(weft_last_error(), "UCX");
    CHECK(!weft_symm_rendezvous(weft_symm_empty(WEFT_I8, WEFT_CPU, WEFT_SHAPE(4)), world));
    CHECK_CONTAINS(weft_last_error(), "spans hosts, and no backend shares memory between them");
    const weft_i_backend *ucx = weft_i_backend_replace("ucx", &far);
    CHECK(weft_i_reach_of_group(world, WEFT_I_ANY_DEVICE) == WEFT_I_REACH_CARRIER);
    CHECK(weft_i_reach_of_group(world, WEFT_I_KIND_CUDA) == WEFT_I_REACH_NONE);
    CHECK_OK(weft_broadcast_in_place(x, 0, world));
    CHECK(weft_item(x, 3) == 7);
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "all_reduce: backend ucx does not carry it");
    CHECK(!world->lane);
    weft_i_backend_replace("ucx", ucx);
    world->local = true;
    weft_clear_error();
    CHECK_OK(weft_finish(world));
}

static int sits_among(void *wanted)
{
    return weft_i_backend_among_threads() != *(bool *)wanted;
}

/* One thread by itself is no rank beside others. */
TEST(test_backend_among_threads)
{
    bool others = false;
    CHECK(!weft_i_backend_among_threads());
    CHECK_INT(weft_spawn(1, sits_among, &others), 0);
    others = true;
    CHECK_INT(weft_spawn(2, sits_among, &others), 0);
}

int main(int argc, char **argv)
{
    model_install();
    weft_i_backend_replace("cuda", &mock);
    return harness_main(argc, argv);
}

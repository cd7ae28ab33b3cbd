/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carriers: a backend of this test shows that one is asked for collectives of its own kind of device
 * alone, that all members have it or none, and that what it does not carry goes through the host.
 */
#include "harness_ranks.h"
#include "jobs.h"

#include "backends/cuda/table.h"
#include "base/status.h"
#include "cuda/model.h"
#include "symm/backend.h"
#include "tensor/device.h"
#include "weft/weft.h"

#define GPU WEFT_CUDA(0)

static atomic_int opened, closed, carried;

typedef struct state {
    int rank, size, seen[8];
} state;

static weft_status mock_open(const weft_i_circle *circle, void **out)
{
    if (strstr(circle->name, "without") && circle->rank == 1)
        return weft_i_fail(WEFT_ERR_LIMIT, "rank 1 cannot");
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

static const weft_i_backend mock = {
    .name = "mock",
    .device_kind = WEFT_I_KIND_CUDA,
    .sharing = WEFT_I_SERVES_PROCESSES | WEFT_I_SERVES_THREADS,
    .probe = mock_probe,
    .collective = mock_collective,
    .open = mock_open,
    .close = mock_close,
};

RANKS_TEST(test_carrier_asked, 2)
{
    weft_group *world = join(30000);
    int before = carried;
    weft_tensor *x = weft_ones(WEFT_I8, GPU, WEFT_SHAPE(4)),
                *y = weft_ones(WEFT_I8, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_OK(weft_broadcast_into(y, 0, world)); /* the CPU's are the lane's */
    CHECK(weft_item(y, 0) == 1 && carried == before);
    CHECK_OK(weft_broadcast_into(x, 0, world));
    CHECK(weft_item(x, 3) == 1 && carried > before);       /* ranks 0 and 1: 01 */
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world)); /* it does not: through the host */
    CHECK(weft_item(x, 3) == 2);
    weft_group *part = weft_group_new(world, (int[]){0, 1}, 2, "without");
    CHECK(part);
    before = carried;
    CHECK_OK(weft_broadcast_into(x, 1, part)); /* one cannot open it: nobody has it */
    CHECK(weft_item(x, 3) == 2 && carried == before);
    weft_clear_error();
    weft_release(part);
    finish(world);
}

/* What was opened is closed with its group. */
RANKS_TEST(test_carrier_closes, 1)
{
    weft_group *world = join(30000);
    int before = opened, gone = closed;
    weft_tensor *x = weft_ones(WEFT_I8, GPU, WEFT_SHAPE(4));
    weft_group *own = weft_keep(weft_group_new(world, (int[]){0}, 1, "own"));
    CHECK_OK(weft_broadcast_into(x, 0, own));
    CHECK_OK(weft_broadcast_into(x, 0, own));
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
    const weft_i_backend one = {.name = "one",
                                .device_kind = WEFT_I_KIND_CUDA,
                                .sharing = both,
                                .probe = probe_one,
                                .allocate = make_nothing};
    weft_i_backend other = one;
    other.probe = probe_other;
    const weft_i_backend *nccl = weft_i_backend_replace("nccl", &one);
    const weft_i_backend *nvshmem = weft_i_backend_replace("nvshmem", &other);
    for (int i = 0; i < 3; i++)
        CHECK(weft_i_backend_for(GPU) == &one);
    CHECK_INT(asked_one, 1);
    CHECK_INT(asked_other, 3);
    other_score = 9;
    for (int i = 0; i < 3; i++)
        CHECK(weft_i_backend_for(GPU) == &other);
    CHECK_INT(asked_one, 1);
    CHECK_INT(asked_other, 4);
    weft_i_backend_replace("nccl", nccl);
    CHECK(weft_i_backend_replace("nvshmem", nvshmem) == &other);
}

int main(int argc, char **argv)
{
    model_install();
    weft_i_backend_replace("cuda", &mock);
    return harness_main(argc, argv);
}

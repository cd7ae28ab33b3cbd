/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/p2p/p2p_device.c */
/*
 * Sends and receives of tensors on a device, with a carrier of this test: what it is asked to carry,
 * what becomes of the requests, and which of them go through host memory instead.  One rank, which
 * sends to itself.
 */
#include "fault.h"
#include "harness_ranks.h"
#include "jobs.h"
#include "way_of.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/device/carrier.h"
#include "coll/p2p/p2p.h"
#include "cuda/model.h"

#include <weft/weft.h>

#define GPU WEFT_CUDA(0)

enum { MANY = 9 };

static weft_i_message seen[MANY];
static weft_i_request asked;
static int runs;
static bool takes;
static weft_status answer;

static int probe(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "of this test");
    return 5;
}

static bool takes_it(const weft_i_request *request)
{
    (void)request;
    return takes;
}

static weft_status carry(void *carrier, const weft_i_request *request)
{
    (void)carrier;
    runs++;
    asked = *request;
    for (size_t i = 0; i < request->messages_count && i < MANY; i++)
        seen[i] = request->messages[i];
    return answer < 0 && answer != WEFT_ERR_UNSUPPORTED ? weft_i_fail(answer, "it did not")
                                                        : answer;
}

static const weft_i_carry mock_carry = {.takes = takes_it, .collective = carry};

static const weft_i_backend mock = {
    .name = "mock",
    .device_kind = WEFT_I_KIND_CUDA,
    .sharing = WEFT_I_SERVES_PROCESSES | WEFT_I_SERVES_THREADS,
    .probe = probe,
    .carry = &mock_carry,
};

static weft_i_p2p_request requests[MANY];

/* Requests of which every third receives, with fields that tell them apart. */
static weft_i_bundle bundle_of(weft_group *group, int count)
{
    static char room[MANY * 64];
    for (int i = 0; i < MANY; i++)
        requests[i] = (weft_i_p2p_request){.group = group,
                                           .kind = i % 3 == 2 ? WEFT_I_RECV : WEFT_I_SEND,
                                           .dtype = i % 2 ? WEFT_I32 : WEFT_F32,
                                           .device = GPU,
                                           .peer = 0,
                                           .source = -1,
                                           .tag = 10 + i,
                                           .digest = 100 + (uint32_t)i,
                                           .data = room + i * 64,
                                           .bytes = (size_t)(4 + 4 * i),
                                           .status = WEFT_IN_PROGRESS,
                                           .limit_ms = 20000};
    memset(seen, 0, sizeof seen);
    runs = 0;
    return (weft_i_bundle){.count = count, .requests = requests};
}

static void check_carried(int count)
{
    CHECK_INT(runs, 1);
    CHECK_INT(asked.messages_count, (size_t)count);
    CHECK_INT(asked.kind, count > 1 ? WEFT_I_SEND_RECV : WEFT_I_SEND);
    CHECK(!strcmp(asked.op, count > 1 ? "send_recv" : "send"));
    CHECK(!asked.in && !asked.out && asked.device == GPU && asked.items_count == 0);
    for (int i = 0; i < MANY; i++) {
        const weft_i_p2p_request *r = &requests[i];
        if (i < count) {
            CHECK(seen[i].sends == (r->kind == WEFT_I_SEND) && seen[i].peer == r->peer);
            CHECK(seen[i].tag == r->tag && seen[i].dtype == r->dtype && seen[i].data == r->data);
            CHECK(seen[i].bytes == r->bytes && seen[i].digest == r->digest);
            CHECK_INT(r->source, r->kind == WEFT_I_RECV ? 0 : -1);
        }
        CHECK_INT(r->status, i < count && answer == WEFT_OK ? WEFT_OK : WEFT_IN_PROGRESS);
    }
}

RANKS_TEST(test_p2p_device_carried, 1)
{
    static const int counts[] = {1, 2, 3, 8, 9};
    weft_group *world = join(30000);
    takes = true;
    answer = WEFT_OK;
    for (int i = 0; i < 10; i++) {
        int count = counts[i / 2];
        weft_i_bundle bundle = bundle_of(world, count);
        weft_i_coll coll;
        CHECK_OK(i % 2 ? weft_i_p2p_run_on_device(&bundle, 0)
                       : weft_i_p2p_post_on_device(&bundle, &coll));
        check_carried(count);
        CHECK(i % 2 || (!coll.ask.messages && !coll.ask.messages_count));
        CHECK_INT(world->on_lane, 0);
    }
    (void)rank, (void)size;
    finish(world);
}

/* What the carrier says is told, and nothing goes through the host then. */
RANKS_TEST(test_p2p_device_refused, 1)
{
    weft_group *world = join(30000);
    takes = true;
    answer = WEFT_ERR_IO;
    weft_i_bundle bundle = bundle_of(world, 2);
    weft_i_coll coll;
    CHECK_INT(weft_i_p2p_run_on_device(&bundle, 0), WEFT_ERR_IO);
    CHECK(runs == 1 && requests[0].status == WEFT_IN_PROGRESS && requests[2].source == -1);
    CHECK_INT(weft_i_p2p_post_on_device(&bundle, &coll), WEFT_ERR_IO);
    CHECK(!strcmp(weft_last_error(), "it did not") && runs == 2);
    for (int i = 0; i < 2; i++) { /* nobody carries it: it does not take it, or says so late */
        takes = i;
        answer = WEFT_ERR_UNSUPPORTED;
        bundle = bundle_of(world, 2);
        CHECK_INT(weft_i_p2p_post_on_device(&bundle, &coll), WEFT_ERR_UNSUPPORTED);
        CHECK(!strcmp(weft_last_error(),
                      "send_recv: nobody carries posted sends and receives on cuda:0 for group "
                      "\"0\", as the log says; the forms that block go through host memory"));
        CHECK_INT(runs, i);
        bundle = bundle_of(world, 1);
        CHECK_INT(weft_i_p2p_post_on_device(&bundle, &coll), WEFT_ERR_UNSUPPORTED);
        CHECK(!strncmp(weft_last_error(), "send: nobody", 12));
    }
    weft_clear_error();
    (void)rank, (void)size;
    finish(world);
}

/* Another thread of the rank is in a call on the group. */
RANKS_TEST(test_p2p_device_two_threads, 1)
{
    weft_group *world = join(30000);
    takes = true;
    answer = WEFT_OK;
    weft_i_bundle bundle = bundle_of(world, 2);
    world->on_lane = 1;
    CHECK_INT(weft_i_p2p_run_on_device(&bundle, 0), WEFT_ERR_STATE);
    CHECK(runs == 0 && world->on_lane == 1);
    CHECK(!strncmp(weft_last_error(), "send_recv in group \"0\": another thread of rank 0", 48));
    weft_clear_error();
    world->on_lane = 0;
    CHECK_OK(weft_i_p2p_run_on_device(&bundle, 0));
    (void)rank, (void)size;
    finish(world);
}

static weft_i_os short_of_memory;

static void *no_memory(size_t bytes)
{
    (void)bytes;
    return NULL;
}

/* Up to eight need none. */
RANKS_TEST(test_p2p_device_shortage, 1)
{
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    weft_group *world = join(30000);
    takes = true;
    answer = WEFT_OK;
    weft_i_bundle bundle = bundle_of(world, 1);
    CHECK_OK(weft_i_p2p_run_on_device(&bundle, 0)); /* the carrier is open */
    for (int count = 8; count <= 9; count++) {
        bundle = bundle_of(world, count);
        short_of_memory = weft_i_os_linux;
        short_of_memory.alloc = no_memory;
        weft_i_os_now = &short_of_memory;
        weft_status status = weft_i_p2p_run_on_device(&bundle, 0);
        weft_i_os_now = &weft_i_os_linux;
        CHECK_INT(status, count == 8 ? WEFT_OK : WEFT_ERR_NO_MEMORY);
        CHECK_INT(runs, count == 8);
    }
    CHECK(!strcmp(weft_last_error(), "no memory for 9 messages"));
    weft_clear_error();
    (void)rank, (void)size;
    finish(world);
}

/* Through host memory: what was sent comes back into the tensor on the device. */
RANKS_TEST(test_p2p_device_through_the_host, 1)
{
    weft_group *world = join(30000);
    weft_tensor *in = weft_full(WEFT_F32, GPU, WEFT_SHAPE(5), 7),
                *out = weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(5));
    takes = false;
    for (int first = 0; first < 2; first++) { /* whichever comes first */
        CHECK_OK(weft_fill(out, 0));
        weft_i_bundle bundle = bundle_of(world, 2);
        weft_i_p2p_request *sends = &requests[first], *receives = &requests[1 - first];
        for (int i = 0; i < 2; i++) {
            requests[i].kind = i == first ? WEFT_I_SEND : WEFT_I_RECV;
            requests[i].tensor = i == first ? in : out;
            requests[i].dtype = WEFT_F32;
            requests[i].bytes = 20;
            requests[i].tag = 3;
            requests[i].digest = 1;
        }
        CHECK_OK(weft_i_p2p_run_on_device(&bundle, 0));
        CHECK(weft_item(out, 0) == 7 && weft_item(out, 4) == 7 && weft_item(in, 4) == 7);
        CHECK(sends->tensor == in && receives->tensor == out && receives->source == 0);
        CHECK_INT(runs, 0);
    }
    weft_i_bundle lonely = bundle_of(world, 1); /* nobody sends: nothing is taken back */
    requests[0].kind = WEFT_I_RECV;
    requests[0].tensor = out;
    requests[0].limit_ms = 1;
    CHECK_INT(weft_i_p2p_run_on_device(&lonely, 0), WEFT_ERR_TIMEOUT);
    CHECK(weft_item(out, 0) == 7 && requests[0].tensor == out);
    weft_clear_error();
    CHECK_OK(weft_send_recv(out, WEFT_NOBODY, in, WEFT_NOBODY, world));
    CHECK_OK(weft_fill(out, 1));
    CHECK_OK(weft_send_recv(out, 0, in, 0, world));
    CHECK(weft_item(out, 2) == 7);
    CHECK_INT(way_of(world, "send_recv"), WEFT_I_WAY_HOST);
    takes = true;
    answer = WEFT_OK;
    CHECK_OK(weft_send_recv(out, 0, in, 0, world));
    CHECK_INT(way_of(world, "send_recv"), WEFT_I_WAY_DEVICE);
    CHECK_INT(runs, 1);
    (void)rank, (void)size;
    finish(world);
}

/* Whatever is missing on the way through the host, the requests have their own tensors again. */
RANKS_TEST(test_p2p_device_shortage_on_the_way, 1)
{
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    weft_group *world = join(30000);
    weft_tensor *in = weft_full(WEFT_F32, GPU, WEFT_SHAPE(5), 7),
                *out = weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(5));
    int failed = 0;
    bool fired = true;
    takes = false;
    CHECK_OK(weft_send_recv(out, 0, in, 0, world)); /* lane and carrier are there */
    for (int n = 1; fired; n++) {
        weft_i_bundle bundle = bundle_of(world, 2);
        CHECK_OK(weft_fill(out, 0));
        for (int i = 0; i < 2; i++) {
            requests[i].kind = i ? WEFT_I_RECV : WEFT_I_SEND;
            requests[i].tensor = i ? out : in;
            requests[i].dtype = WEFT_F32;
            requests[i].bytes = 20;
            requests[i].tag = 3;
            requests[i].digest = 1;
            requests[i].limit_ms = 1000;
        }
        fault_arm(n);
        weft_status status = weft_i_p2p_run_on_device(&bundle, 0);
        fired = fault_disarm();
        CHECK(requests[0].tensor == in && requests[1].tensor == out);
        CHECK(n < 60 && weft_item(out, 4) == (status < 0 ? 0 : 7));
        failed += status < 0;
        weft_clear_error();
    }
    CHECK(failed >= 2); /* one copy, and the other */
    (void)rank, (void)size;
    finish(world);
}

/* One device for all, and a source where only the device would see who came first. */
RANKS_TEST(test_p2p_device_of_all, 1)
{
    weft_group *world = join(30000);
    weft_i_bundle bundle = bundle_of(world, 3);
    CHECK_OK(weft_i_p2p_check_devices("op", requests, 3));
    requests[2].device = WEFT_CPU;
    CHECK_OK(weft_i_p2p_check_devices("op", requests, 2));
    CHECK_INT(weft_i_p2p_check_devices("op", requests, 3), WEFT_ERR_TYPE);
    CHECK(!strcmp(weft_last_error(), "op: tensors on cuda:0 and on cpu at once"));
    requests[2].device = GPU;
    requests[2].peer = WEFT_ANY;
    CHECK_OK(weft_i_p2p_check_devices("op", requests, 2));
    CHECK_INT(weft_i_p2p_check_devices("op", requests, 3), WEFT_ERR_UNSUPPORTED);
    CHECK(!strcmp(weft_last_error(),
                  "op: a receive on cuda:0 must name its source: only the device "
                  "sees who sends first"));
    CHECK_INT(weft_i_p2p_check_devices("op", &requests[2], 1), WEFT_ERR_UNSUPPORTED);
    requests[2].device = WEFT_CPU; /* on the host it need not */
    CHECK_OK(weft_i_p2p_check_devices("op", &requests[2], 1));
    CHECK_OK(weft_i_p2p_check_devices("op", requests, 0));
    weft_clear_error();
    (void)bundle, (void)rank, (void)size;
    finish(world);
}

int main(int argc, char **argv)
{
    model_install();
    weft_i_backend_replace("cuda", &mock);
    return harness_main(argc, argv);
}

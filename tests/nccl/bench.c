/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weft adds to a call of NCCL: all_reduce through weft_all_reduce_into and by ncclAllReduce on
 * the same communicator, by turns in one run: nccl_bench.  On a GPU with WEFT_TEST_CUDA=real, 1 rank
 * and then 2 over sockets; on the stand-in only to see that it runs.
 *
 *     host   time of a call on the host, until NCCL has enqueued it
 *     whole  with the wait for the stream
 *
 * Figures are medians of rank 0, in microseconds.
 */
#include "backends/cuda/stream.h"
#include "backends/nccl/carrier.h"
#include "base/os.h"
#include "coll/carrier.h"
#include "cuda/model.h"
#include "standin.h"
#include "tensor/stream.h"

#include <weft/launch.h>
#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 15, CALLS = 20 };

static bool is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    return wanted && !strcmp(wanted, "real");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *list)
{
    qsort(list, REPEATS, sizeof *list, compare);
    return list[REPEATS / 2];
}

static void need(bool fine, const char *what)
{
    if (fine)
        return;
    fprintf(stderr, "nccl_bench: %s: %s\n", what, weft_last_error());
    exit(1);
}

/* What is compared, and what it works on. */
typedef struct scene {
    weft_group *world;
    weft_tensor *x;
    weft_i_nccl_comm *comm;
    weft_i_nccl_raw raw;
    weft_stream *stream;
    void *data;
} scene;

static void call_direct(const scene *s, size_t count)
{
    const weft_i_nccl *nccl = weft_i_nccl_library();
    const weft_i_cuda_stream *own = s->stream->own;
    if (!is_real()) /* the stand-in lets one thread at a time ask */
        pthread_mutex_lock(&s->comm->lock);
    weft_i_nccl_result result = nccl->ncclAllReduce(s->data, s->data, count, WEFT_I_ncclFloat32,
                                                    WEFT_I_ncclSum, s->raw, own->raw);
    while (result == WEFT_I_ncclInProgress)
        nccl->ncclCommGetAsyncError(s->raw, &result);
    if (!is_real())
        pthread_mutex_unlock(&s->comm->lock);
    need(result == WEFT_I_ncclSuccess, "ncclAllReduce");
}

static void call_weft(const scene *s, size_t count)
{
    (void)count;
    need(weft_all_reduce_into(s->x, s->x, WEFT_SUM, s->world) == WEFT_OK, "weft_all_reduce_into");
}

/* CALLS calls and a sync: microseconds a call on the host, and in all. */
static void run(const scene *s, size_t count, void (*call)(const scene *s, size_t count),
                double *host, double *whole)
{
    int64_t began = WEFT_OS->clock_ns();
    for (int i = 0; i < CALLS; i++)
        call(s, count);
    int64_t given = WEFT_OS->clock_ns();
    need(weft_stream_sync(s->stream, 60000) == WEFT_OK, "sync");
    *host = (double)(given - began) / 1000 / CALLS;
    *whole = (double)(WEFT_OS->clock_ns() - began) / 1000 / CALLS;
}

/* A communicator of this rank alone whose calls block: what NCCL costs without a thread a call. */
static weft_i_nccl_raw make_blocking(void)
{
    weft_i_nccl_config config = {.size = sizeof config,
                                 .magic = WEFT_I_NCCL_MAGIC,
                                 .version = WEFT_I_NCCL_OLDEST,
                                 .blocking = 1,
                                 .cluster_size = INT_MIN,
                                 .least_blocks = INT_MIN,
                                 .most_blocks = INT_MIN,
                                 .split_share = INT_MIN,
                                 .traffic_class = INT_MIN,
                                 .collnet = INT_MIN,
                                 .policy = INT_MIN,
                                 .shrink_share = INT_MIN,
                                 .nvls_blocks = INT_MIN,
                                 .channels_per_peer = INT_MIN,
                                 .nvlink_centric = INT_MIN};
    weft_i_nccl_id id;
    weft_i_nccl_raw raw = NULL;
    const weft_i_nccl *nccl = weft_i_nccl_library();
    if (nccl->ncclGetUniqueId(&id) || nccl->ncclCommInitRankConfig(&raw, 1, id, 0, &config))
        return NULL;
    return raw;
}

static void measure(const scene *s, size_t count, int rank, int ranks)
{
    double direct[REPEATS], weft[REPEATS], blocks[REPEATS], took[3][REPEATS];
    scene blocking = *s;
    blocking.raw = ranks == 1 && is_real() ? make_blocking() : NULL;
    for (int k = -2; k < REPEATS; k++) {
        int at = k < 0 ? 0 : k;
        run(s, count, call_direct, &direct[at], &took[0][at]);
        run(s, count, call_weft, &weft[at], &took[1][at]);
        if (blocking.raw)
            run(&blocking, count, call_direct, &blocks[at], &took[2][at]);
    }
    if (blocking.raw)
        weft_i_nccl_library()->ncclCommDestroy(blocking.raw);
    double ours = median(weft), theirs = median(direct);
    if (rank != 0)
        return;
    printf("  nccl all_reduce, %d rank%s, %8zu bytes: host NCCL %8.2f weft %8.2f (%+.2f)", ranks,
           ranks == 1 ? "" : "s", count * 4, theirs, ours, ours - theirs);
    printf(", whole NCCL %9.2f weft %9.2f", median(took[0]), median(took[1]));
    if (blocking.raw)
        printf(", a blocking communicator: host %.2f", median(blocks));
    printf(" us\n");
}

static int body(int rank, void *arg)
{
    int ranks = *(int *)arg;
    static const size_t counts[] = {256, 4096, 65536, 1 << 18, 1 << 20, 1 << 22};
    char id[16];
    snprintf(id, sizeof id, "rank-%d", rank);
    setenv("NCCL_HOSTID", id, 1);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = 60000;
    weft_group *world = weft_init(&opts);
    need(world, "weft_init");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        weft_device device = WEFT_CUDA(is_real() ? 0 : rank);
        weft_tensor *x = weft_zeros(WEFT_F32, device, WEFT_SHAPE((int64_t)counts[i]));
        need(x && weft_all_reduce_into(x, x, WEFT_SUM, world) == WEFT_OK, "the first all_reduce");
        weft_i_carrier *carrier = world->carriers[WEFT_I_KIND_CUDA];
        weft_i_nccl_comm *comm =
            carrier && carrier->state ? weft_i_nccl_carrier_comm(carrier->state) : NULL;
        need(comm, "NCCL does not serve the world");
        scene s = {world, x, comm, comm->raw, weft_stream_current(device), weft_tensor_data(x)};
        measure(&s, counts[i], rank, ranks);
        if (!is_real() && i == 1)
            break;
    }
    return weft_finish(world);
}

int main(void)
{
    if (!is_real()) {
        model_install();
        standin_install();
        model.devices = 4;
    } else {
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    }
    setenv("WEFT_NCCL", "always", 1);
    for (int ranks = 1; ranks <= 2; ranks++) {
        weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
        opts.ranks = ranks;
        opts.body = body;
        opts.arg = &ranks;
        opts.timeout_ms = 100000;
        int result = weft_launch(&opts);
        if (result)
            return 1;
    }
    return 0;
}

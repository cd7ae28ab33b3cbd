/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weft adds to a call of NCCL: all_reduce through weft_all_reduce_into and by ncclAllReduce on
 * the same communicator and stream, in one run: nccl_bench.  On a GPU with WEFT_TEST_CUDA=real, 1
 * rank and then 2 over sockets; on the stand-in only to see that it runs.
 *
 *     host   time of a call on the host, until NCCL has enqueued it
 *     whole  with the wait for the stream
 *
 * With 2 ranks on one GPU a call takes some 100 us, which differ by more than what is looked for.
 * So four calls are one comparison: direct, weft, weft, direct, each on a stream that is idle; what
 * drifts, and what comes first, cancels out.  Told is the median of the differences and the interval
 * in which it lies with 95 % certainty, by the order of the differences.  The bar is met where the
 * whole interval is below it.  Figures are rank 0's, in microseconds.
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

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 4000,    /* comparisons of a size */
    LEAST = 40,     /* of them, for an interval that says something */
    SIZE_MS = 2500, /* what the comparisons of a size may take */
    BAR_US = 2      /* that weft may add */
};

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

static double median(double *list, int count)
{
    qsort(list, (size_t)count, sizeof *list, compare);
    return list[count / 2];
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

typedef void (*call_fn)(const scene *s, size_t count);

/* One call on an idle stream, and the wait for its end. */
static void run(const scene *s, size_t count, call_fn call, double *host, double *whole)
{
    int64_t began = WEFT_OS->clock_ns();
    call(s, count);
    int64_t given = WEFT_OS->clock_ns();
    need(weft_stream_sync(s->stream, 60000) == WEFT_OK, "sync");
    *host += (double)(given - began) / 1000;
    *whole += (double)(WEFT_OS->clock_ns() - began) / 1000;
}

/* Of each comparison: both hosts' and both wholes' means, and the difference. */
typedef struct figures {
    double direct[MOST], weft[MOST], more[MOST], whole_direct[MOST], whole_weft[MOST];
    int count;
} figures;

static void compare_once(const scene *s, size_t count, figures *f)
{
    static const call_fn order[4] = {call_direct, call_weft, call_weft, call_direct};
    double host[2] = {0}, whole[2] = {0};
    for (int i = 0; i < 4; i++)
        run(s, count, order[i], &host[order[i] == call_weft], &whole[order[i] == call_weft]);
    int at = f->count < MOST ? f->count++ : MOST - 1;
    f->direct[at] = host[0] / 2;
    f->weft[at] = host[1] / 2;
    f->more[at] = (host[1] - host[0]) / 2;
    f->whole_direct[at] = whole[0] / 2;
    f->whole_weft[at] = whole[1] / 2;
}

/* As many comparisons as fit the time: rank 0 says how many. */
static int plan(const scene *s, size_t count, figures *f)
{
    weft_tensor *x = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1));
    for (int i = 0; i < 4; i++) /* the first ones of a size are slow */
        compare_once(s, count, f);
    int64_t began = WEFT_OS->clock_ns();
    for (int i = 0; i < 4; i++)
        compare_once(s, count, f);
    double each_ms = (double)(WEFT_OS->clock_ns() - began) / 4e6;
    double fits = is_real() ? SIZE_MS / (each_ms + 1e-4) : 5;
    need(x && weft_fill(x, fits > MOST                 ? MOST
                           : fits < LEAST && is_real() ? LEAST
                                                       : fits) == WEFT_OK,
         "weft_fill");
    need(weft_broadcast_into(x, 0, s->world) == WEFT_OK, "weft_broadcast_into");
    f->count = 0;
    return (int)weft_item(x, 0);
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

/* Calls of a blocking communicator; 0: there is none. */
static double measure_blocking(const scene *s, size_t count, figures *f)
{
    scene blocking = *s;
    blocking.raw = make_blocking();
    if (!blocking.raw)
        return 0;
    for (int i = 0; i < 200; i++) {
        double whole = 0;
        f->direct[i] = 0;
        run(&blocking, count, call_direct, &f->direct[i], &whole);
    }
    weft_i_nccl_library()->ncclCommDestroy(blocking.raw);
    return median(f->direct, 200);
}

/* Where the median of what weft adds lies: 1: below the bar; 0: it cannot be told; -1: above. */
static int tell(figures *f, size_t bytes, int ranks)
{
    int count = f->count, half = (int)(0.98 * sqrt(count)) + 1;
    double more = median(f->more, count);
    double low = f->more[count / 2 > half ? count / 2 - half : 0];
    double high = f->more[count / 2 + half < count ? count / 2 + half : count - 1];
    printf("  nccl all_reduce, %d rank%s, %8zu bytes: host NCCL %8.2f weft %8.2f, %+.2f (%+.2f to "
           "%+.2f) of %d; whole NCCL %9.2f weft %9.2f us\n",
           ranks, ranks == 1 ? "" : "s", bytes, median(f->direct, count), median(f->weft, count),
           more, low, high, count, median(f->whole_direct, count), median(f->whole_weft, count));
    return high <= BAR_US ? 1 : low > BAR_US ? -1 : 0;
}

static int measure(const scene *s, size_t count, int rank, int ranks)
{
    static figures f;
    for (int left = plan(s, count, &f); left > 0; left--)
        compare_once(s, count, &f);
    int met = rank == 0 ? tell(&f, count * 4, ranks) : 1;
    if (ranks == 1 && is_real() && count == 256)
        printf("  a blocking communicator: host %.2f us\n", measure_blocking(s, count, &f));
    return met;
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
    int worst = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        weft_device device = WEFT_CUDA(is_real() ? 0 : rank);
        weft_tensor *x = weft_zeros(WEFT_F32, device, WEFT_SHAPE((int64_t)counts[i]));
        need(x && weft_all_reduce_into(x, x, WEFT_SUM, world) == WEFT_OK, "the first all_reduce");
        weft_i_carrier *carrier = world->carriers[WEFT_I_KIND_CUDA];
        weft_i_nccl_comm *comm =
            carrier && carrier->state ? weft_i_nccl_carrier_comm(carrier->state) : NULL;
        need(comm, "NCCL does not serve the world");
        scene s = {world, x, comm, comm->raw, weft_stream_current(device), weft_tensor_data(x)};
        int met = measure(&s, counts[i], rank, ranks);
        worst = met < worst ? met : worst;
        if (!is_real() && i == 1)
            break;
    }
    if (rank == 0 && is_real())
        printf("nccl all_reduce, %d rank%s: at most %d us above NCCL: %s\n", ranks,
               ranks == 1 ? "" : "s", BAR_US,
               worst > 0    ? "ok"
               : worst == 0 ? "not shown, the interval is too wide"
                            : "missed");
    int left = weft_finish(world);
    return left ? left : worst < 0 && is_real();
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

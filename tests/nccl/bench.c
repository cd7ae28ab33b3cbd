/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weft adds to a call of NCCL: all_reduce through weft_all_reduce_into and by ncclAllReduce on
 * the same communicator and stream, in one run: nccl_bench.  On a GPU with WEFT_TEST_CUDA=real, 1
 * rank and then 2 over sockets; on the stand-in only to see that it runs.
 *
 *     host   time of a call on the host, until NCCL has enqueued it
 *     own    the part of a call through weft that is not NCCL's: what comes before ncclAllReduce, and
 *            what comes after NCCL was last seen busy
 *     whole  with the wait for the stream
 *
 * With 2 ranks on one GPU a call takes some 100 us, which differ by more than what is looked for.
 * So direct calls and calls through weft alternate in one loop, in turns direct, weft, weft, direct
 * and the other way round, each on an idle stream and begun by both ranks together: what drifts, and
 * what comes first, cancels out.  Each turn gives two differences of neighbours.  Told is the median
 * of all differences and the interval in which it lies with 95 % certainty, by resampling the turns.
 *
 * The bar is met where the whole interval is below it.  Where a call takes milliseconds, too few of
 * them fit the run for that.  The own part shows it there: it has none of NCCL's noise in it, and
 * counts against weft all the time in which it might have noticed earlier that NCCL was done.
 * Figures are rank 0's, in microseconds.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 8000,      /* turns of a size */
    LEAST = 40,       /* of them, for an interval that says something */
    RESAMPLES = 1000, /* for an interval */
    PAIRS = 2,        /* differences that a turn gives */
    BAR_US = 2        /* that weft may add */
};

/* What is measured, and for how long: large calls are slow, and need as many turns as small ones.
 * 2 ranks take 80 s in all, 1 rank takes 4.  Of the two largest no more than the least fit. */
static const struct {
    size_t count;
    int ms;
} plans[] = {{256, 1500},      {4096, 1500},     {65536, 1500},   {1 << 18, 6000},
             {1 << 20, 12000}, {1 << 22, 34000}, {1 << 24, 6000}, {1 << 26, 17000}};

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

/* ---- NCCL's part of a call ---- */

/* Of the call that this thread makes, in nanoseconds; the sentry's polls are another thread's. */
static _Thread_local struct {
    int64_t entered; /* ncclAllReduce was called */
    int64_t busy;    /* NCCL was last seen at work, or had just returned */
} probe;

static weft_i_nccl untimed; /* the library's functions */

static weft_i_nccl_result timed_all_reduce(const void *in, void *out, size_t count, int dtype,
                                           int op, weft_i_nccl_raw comm, weft_i_cu_stream stream)
{
    probe.entered = WEFT_OS->clock_ns();
    weft_i_nccl_result result = untimed.ncclAllReduce(in, out, count, dtype, op, comm, stream);
    probe.busy = WEFT_OS->clock_ns();
    return result;
}

static weft_i_nccl_result timed_poll(weft_i_nccl_raw comm, weft_i_nccl_result *out)
{
    weft_i_nccl_result result = untimed.ncclCommGetAsyncError(comm, out);
    if (*out == WEFT_I_ncclInProgress)
        probe.busy = WEFT_OS->clock_ns();
    return result;
}

/* Direct calls go through the same functions: both pay for the clock. */
static void time_library(void)
{
    weft_i_nccl *library = (weft_i_nccl *)(uintptr_t)weft_i_nccl_library();
    if (library->ncclAllReduce == timed_all_reduce)
        return;
    untimed = *library;
    library->ncclAllReduce = timed_all_reduce;
    library->ncclCommGetAsyncError = timed_poll;
}

/* ---- calls ---- */

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

/* Times of one call. */
typedef struct times {
    double host, own, whole;
} times;

/* One call on an idle stream, which the ranks begin together, and the wait for its end. */
static times run(const scene *s, size_t count, call_fn call)
{
    if (weft_size(s->world) > 1)
        need(weft_group_barrier(s->world, 60000) == WEFT_OK, "barrier");
    int64_t began = WEFT_OS->clock_ns();
    call(s, count);
    int64_t given = WEFT_OS->clock_ns();
    need(weft_stream_sync(s->stream, 60000) == WEFT_OK, "sync");
    return (times){.host = (double)(given - began) / 1000,
                   .own = (double)(given - began - (probe.busy - probe.entered)) / 1000,
                   .whole = (double)(WEFT_OS->clock_ns() - began) / 1000};
}

/* Two calls of each kind a turn, and their differences. */
typedef struct figures {
    double direct[PAIRS * MOST], weft[PAIRS * MOST], own[PAIRS * MOST];
    double whole_direct[PAIRS * MOST], whole_weft[PAIRS * MOST];
    double more[MOST][PAIRS];
    int turns;
} figures;

static void take_turn(const scene *s, size_t count, figures *f)
{
    static const call_fn order[2][2 * PAIRS] = {{call_direct, call_weft, call_weft, call_direct},
                                                {call_weft, call_direct, call_direct, call_weft}};
    int turn = f->turns < MOST ? f->turns++ : MOST - 1;
    for (int pair = 0; pair < PAIRS; pair++) {
        times of[2]; /* direct, through weft */
        for (int i = 0; i < 2; i++) {
            call_fn call = order[turn % 2][2 * pair + i];
            of[call == call_weft] = run(s, count, call);
        }
        int at = turn * PAIRS + pair;
        f->direct[at] = of[0].host;
        f->weft[at] = of[1].host;
        f->own[at] = of[1].own;
        f->whole_direct[at] = of[0].whole;
        f->whole_weft[at] = of[1].whole;
        f->more[turn][pair] = of[1].host - of[0].host;
    }
}

/* As many turns as fit the time: rank 0 says how many. */
static int plan(const scene *s, size_t count, double ms, figures *f)
{
    weft_tensor *x = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1));
    for (int i = 0; i < 4; i++) /* the first ones of a size are slow */
        take_turn(s, count, f);
    int64_t began = WEFT_OS->clock_ns();
    for (int i = 0; i < 4; i++)
        take_turn(s, count, f);
    double each_ms = (double)(WEFT_OS->clock_ns() - began) / 4e6;
    double fits = is_real() ? ms / (each_ms + 1e-4) : 6;
    need(x && weft_fill(x, fits > MOST                 ? MOST
                           : fits < LEAST && is_real() ? LEAST
                                                       : fits) == WEFT_OK,
         "weft_fill");
    need(weft_broadcast_into(x, 0, s->world) == WEFT_OK, "weft_broadcast_into");
    f->turns = 0;
    return (int)weft_item(x, 0);
}

/* ---- the interval ---- */

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* The least of those above `rank` others; the list is put in part into order. */
static double pick(double *list, int count, int rank)
{
    for (int first = 0, last = count - 1; first < last;) {
        double pivot = list[(first + last) / 2];
        int i = first, j = last;
        while (i <= j) {
            while (list[i] < pivot)
                i++;
            while (list[j] > pivot)
                j--;
            if (i <= j) {
                double kept = list[i];
                list[i++] = list[j];
                list[j--] = kept;
            }
        }
        if (rank <= j)
            last = j;
        else if (rank >= i)
            first = i;
        else
            break;
    }
    return list[rank];
}

typedef struct interval {
    double median, low, high;
} interval;

/* The median of all differences, and between which it lies if turns are drawn anew. */
static interval resample(const figures *f)
{
    static double drawn[PAIRS * MOST], medians[RESAMPLES];
    uint64_t seed = 0x9e3779b97f4a7c15u;
    int count = PAIRS * f->turns;
    for (int i = 0; i < RESAMPLES; i++) {
        for (int k = 0; k < f->turns; k++)
            memcpy(&drawn[PAIRS * k], f->more[draw(&seed) % (uint64_t)f->turns], sizeof *f->more);
        medians[i] = pick(drawn, count, count / 2);
    }
    memcpy(drawn, f->more, (size_t)count * sizeof *drawn);
    median(medians, RESAMPLES);
    return (interval){pick(drawn, count, count / 2), medians[RESAMPLES / 40],
                      medians[RESAMPLES - 1 - RESAMPLES / 40]};
}

/* ---- what is told ---- */

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
    for (int i = 0; i < 200; i++)
        f->direct[i] = run(&blocking, count, call_direct).host;
    weft_i_nccl_library()->ncclCommDestroy(blocking.raw);
    return median(f->direct, 200);
}

/* How sure it is that weft adds no more than the bar; the worst of all sizes counts. */
typedef enum verdict {
    MISSED,  /* the interval is above */
    UNKNOWN, /* neither shows it */
    BY_OWN,  /* the interval is too wide; weft's own part is below */
    BY_BOTH  /* the interval is below, and so is weft's own part */
} verdict;

static verdict tell(figures *f, size_t bytes, int ranks)
{
    int count = PAIRS * f->turns;
    interval more = resample(f);
    double own = median(f->own, count), most = f->own[count - 1 - count / 20];
    printf("  nccl all_reduce, %d rank%s, %9zu bytes: host NCCL %8.2f weft %8.2f, %+.2f (%+.2f to "
           "%+.2f) of %d; own %.2f, 95 %% below %.2f; whole NCCL %9.2f weft %9.2f us\n",
           ranks, ranks == 1 ? "" : "s", bytes, median(f->direct, count), median(f->weft, count),
           more.median, more.low, more.high, count, own, most, median(f->whole_direct, count),
           median(f->whole_weft, count));
    fflush(stdout);
    if (more.low > BAR_US)
        return MISSED;
    return own > BAR_US ? UNKNOWN : more.high > BAR_US ? BY_OWN : BY_BOTH;
}

static verdict measure(const scene *s, size_t count, double ms)
{
    static figures f;
    int ranks = weft_size(s->world), rank = weft_rank(s->world);
    for (int left = plan(s, count, ms, &f); left > 0; left--)
        take_turn(s, count, &f);
    verdict found = rank == 0 ? tell(&f, count * 4, ranks) : BY_BOTH;
    if (ranks == 1 && is_real() && count == plans[0].count)
        printf("  a blocking communicator: host %.2f us\n", measure_blocking(s, count, &f));
    return found;
}

/* A tensor of so many elements, and NCCL's communicator of the world behind it. */
static scene scene_of(weft_group *world, size_t count)
{
    weft_device device = WEFT_CUDA(is_real() ? 0 : weft_rank(world));
    weft_tensor *x = weft_zeros(WEFT_F32, device, WEFT_SHAPE((int64_t)count));
    need(x && weft_all_reduce_into(x, x, WEFT_SUM, world) == WEFT_OK, "the first all_reduce");
    weft_i_carrier *carrier = world->carriers[WEFT_I_KIND_CUDA];
    weft_i_nccl_comm *comm =
        carrier && carrier->state ? weft_i_nccl_carrier_comm(carrier->state) : NULL;
    need(comm, "NCCL does not serve the world");
    return (scene){world, x, comm, comm->raw, weft_stream_current(device), weft_tensor_data(x)};
}

static void tell_all(verdict worst, int ranks)
{
    static const char *const words[] = {
        [MISSED] = "missed",
        [UNKNOWN] = "not shown: the interval is too wide, and weft's own part too large",
        [BY_OWN] = "ok, where the interval is too wide by weft's own part",
        [BY_BOTH] = "ok"};
    printf("nccl all_reduce, %d rank%s: at most %d us above NCCL: %s\n", ranks,
           ranks == 1 ? "" : "s", BAR_US, words[worst]);
}

static int body(int rank, void *arg)
{
    int ranks = *(int *)arg;
    char id[16];
    snprintf(id, sizeof id, "rank-%d", rank);
    setenv("NCCL_HOSTID", id, 1);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = 60000;
    weft_group *world = weft_init(&opts);
    need(world, "weft_init");
    verdict worst = BY_BOTH;
    for (size_t i = 0; i < (is_real() ? sizeof plans / sizeof *plans : 2); i++) {
        scene s = scene_of(world, plans[i].count);
        time_library();
        verdict found = measure(&s, plans[i].count, ranks == 1 ? 500 : plans[i].ms);
        worst = found < worst ? found : worst;
    }
    if (rank == 0 && is_real())
        tell_all(worst, ranks);
    int left = weft_finish(world);
    return left ? left : worst == MISSED && is_real();
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
        opts.timeout_ms = 115000;
        int result = weft_launch(&opts);
        if (result)
            return 1;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weft adds to a call of NCCL: all_reduce through weft_all_reduce_into and by ncclAllReduce on
 * the same communicator and stream, in one run: nccl_bench [PERCENT of the time].  On a GPU with
 * WEFT_TEST_CUDA=real, 1 rank and then 2 over sockets; on the stand-in only to see that it runs.
 *
 *     host   time of a call on the host, until NCCL has enqueued it
 *     own    the part of it that is not NCCL's: `before` ncclAllReduce, `late` (between the last look
 *            at which NCCL was busy and the next one), and `after` NCCL was done
 *     whole  with the wait for the stream
 *
 * With 2 ranks on one GPU a call takes some 100 us, which differ by more than what is looked for.
 * So direct calls and calls through weft alternate in one loop, in turns direct, weft, weft, direct,
 * each on an idle stream and begun by both ranks together: what drifts, and what comes first, cancels
 * out.  So does what the call before leaves behind: after one through weft the sentry asks NCCL and the
 * driver every millisecond, which keeps these in the caches for the next call.  Of a turn's two pairs
 * both calls of the first follow a direct one, and both of the second one through weft.  Ranks meet
 * in a page of the bench's own.
 *
 * Large calls take milliseconds, and what the calling thread does meanwhile matters.  There are three
 * manners, the same for both kinds of call:
 *
 *     by weft  it waits by weft_stream_sync, as a program of weft's does
 *     awake    it waits by cuStreamSynchronize, which spins: nothing of weft's runs between calls
 *     asleep   it sleeps and asks the driver again, and may wake on a core whose caches know neither
 *              weft nor NCCL: nothing of weft's runs there either
 *
 * Each turn gives two differences of neighbours.  Told is the median of all differences and the
 * interval in which it lies with 95 % certainty, by resampling the turns.
 *
 * The bar is met where the whole interval of the host's time is below it.  Where a call takes
 * milliseconds, too few of them fit the run for that.  The own part shows it there, if its interval
 * is below: it has none of NCCL's noise in it, but cannot show what weft might do to NCCL's part.
 * The last line names every size at which it is missed, or not shown, and the manner; with any of
 * them the program fails.  Figures are rank 0's, in microseconds.
 */
#include "backends/cuda/device/driver.h"
#include "backends/cuda/device/stream.h"
#include "backends/nccl/carrier.h"
#include "base/os/os.h"
#include "coll/device/carrier.h"
#include "cuda/model.h"
#include "standin.h"
#include "tensor/object/stream.h"

#include <weft/launch.h>
#include <weft/weft.h>

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    MOST = 4000,      /* turns of a size */
    LEAST = 10,       /* of them, for an interval at all */
    RESAMPLES = 1000, /* for an interval */
    PAIRS = 2,        /* differences that a turn gives */
    BAR_US = 2        /* that weft may add */
};

/* What is measured, and for how long: large calls are slow, and need as many turns as small ones.
 * 2 ranks take 95 s in all, 1 rank takes 8. */
static const struct {
    size_t count;
    int ms;
} plans[] = {{256, 2000},      {4096, 2000},     {65536, 2000},    {1 << 18, 5000},
             {1 << 20, 14000}, {1 << 22, 24000}, {1 << 24, 22000}, {1 << 26, 24000}};

static bool real;  /* a GPU and NCCL; asked for once: to search the environment takes time */
static bool peers; /* a GPU for each rank: WEFT_TEST_PEERS, scripts/gpu-check peers */

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

/* How the calling thread waits for the stream, and each one's share of the time. */
typedef enum manner { BY_WEFT, AWAKE, ASLEEP, MANNERS } manner;
static const char *const manners[] = {
    [BY_WEFT] = "by weft", [AWAKE] = "awake", [ASLEEP] = "asleep"};
static const double shares[] = {[BY_WEFT] = 0.4, [AWAKE] = 0.35, [ASLEEP] = 0.25};

/* What is compared, and what it works on. */
typedef struct scene {
    weft_group *world;
    weft_tensor *x;
    weft_i_nccl_comm *comm;
    weft_i_nccl_raw raw;
    weft_stream *stream;
    void *data;
    manner waits;
} scene;

/* ---- where ranks meet ---- */

/* A page of all ranks, and of who launches them. */
static struct page {
    atomic_uint
        came; /* acq_rel by who comes, acquire by who waits: what was written before is seen */
    atomic_bool on; /* relaxed, written by rank 0 before it comes */
    /* Rank 0's, read after the launch: */
    char text[2048]; /* ", 2 ranks awake 16777216 bytes" for each size that is not ok */
} * page;

/* All come, and go on together. */
static void meet(const scene *s)
{
    static _Thread_local unsigned round;
    unsigned all = ++round * (unsigned)weft_size(s->world);
    int64_t deadline = weft_i_os_deadline(60000);
    atomic_fetch_add_explicit(&page->came, 1, memory_order_acq_rel);
    for (int looks = 1; atomic_load_explicit(&page->came, memory_order_acquire) < all; looks++) {
        weft_i_os_pause();
        if (looks % 10000)
            continue;
        WEFT_OS->yield(); /* a machine of few cores; and the other rank may have gone */
        need(WEFT_OS->clock_ns() < deadline, "the other rank does not come");
    }
}

/* What rank 0 says. */
static bool agree(const scene *s, bool on)
{
    if (weft_rank(s->world) == 0)
        atomic_store_explicit(&page->on, on, memory_order_relaxed);
    meet(s);
    return atomic_load_explicit(&page->on, memory_order_relaxed);
}

/* ---- NCCL's part of a call ---- */

/* Of the call that this thread makes, in nanoseconds; the sentry's polls are another thread's. */
static _Thread_local struct {
    int64_t entered, returned; /* ncclAllReduce */
    int64_t busy;              /* NCCL was last seen at work, or had just returned */
    int64_t asked, done;       /* the poll that saw the end: it may have waited for NCCL's thread */
} probe;

static weft_i_nccl untimed; /* the library's functions */

static weft_i_nccl_result timed_all_reduce(const void *in, void *out, size_t count, int dtype,
                                           int op, weft_i_nccl_raw comm, weft_i_cu_stream stream)
{
    probe.entered = WEFT_OS->clock_ns();
    weft_i_nccl_result result = untimed.ncclAllReduce(in, out, count, dtype, op, comm, stream);
    probe.returned = probe.busy = probe.asked = probe.done = WEFT_OS->clock_ns();
    return result;
}

static weft_i_nccl_result timed_poll(weft_i_nccl_raw comm, weft_i_nccl_result *out)
{
    probe.asked = WEFT_OS->clock_ns();
    weft_i_nccl_result result = untimed.ncclCommGetAsyncError(comm, out);
    probe.done = WEFT_OS->clock_ns();
    if (*out == WEFT_I_ncclInProgress)
        probe.busy = probe.done;
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
    weft_i_nccl_result result = nccl->ncclAllReduce(s->data, s->data, count, WEFT_I_ncclFloat32,
                                                    WEFT_I_ncclSum, s->raw, own->raw);
    while (result == WEFT_I_ncclInProgress)
        nccl->ncclCommGetAsyncError(s->raw, &result);
    need(result == WEFT_I_ncclSuccess, "ncclAllReduce");
}

static void call_weft(const scene *s, size_t count)
{
    (void)count;
    need(weft_all_reduce_into(s->x, s->x, WEFT_SUM, s->world) == WEFT_OK, "weft_all_reduce_into");
}

typedef void (*call_fn)(const scene *s, size_t count);

/* Where a call's time goes; the first three are not NCCL's. */
enum { BEFORE, LATE, AFTER, CALL, BUSY, LAST_POLL, PHASES };

/* What is compared. */
enum { HOST, OWN, WHOLE, FIGURES };

/* Times of one call. */
typedef struct times {
    double figure[FIGURES], phase[PHASES];
} times;

static double us(int64_t from, int64_t to)
{
    return (double)(to - from) / 1000;
}

/* As weft_stream_sync does where there is a limit, the thread sleeps when it takes long. */
static weft_i_cu_result doze(const weft_i_cuda *cu, weft_i_cu_stream stream)
{
    int64_t began = WEFT_OS->clock_ns(), pause = 1000;
    weft_i_cu_result result;
    while ((result = cu->cuStreamQuery(stream)) == WEFT_I_CUDA_ERROR_NOT_READY) {
        if (WEFT_OS->clock_ns() - began < 100 * 1000)
            continue;
        WEFT_OS->sleep_ns(pause);
        pause = pause < 100000 ? 2 * pause : pause;
    }
    return result;
}

/* By weft, or by the driver alone. */
static void await_stream(const scene *s)
{
    enum { LIMIT_MS = 60000 };
    const weft_i_cuda *cu = weft_i_cuda_driver();
    const weft_i_cuda_stream *own = s->stream->own;
    if (s->waits == BY_WEFT) {
        need(weft_stream_sync(s->stream, LIMIT_MS) == WEFT_OK, "weft_stream_sync");
        return;
    }
    weft_i_cu_result result =
        s->waits == ASLEEP ? doze(cu, own->raw) : cu->cuStreamSynchronize(own->raw);
    need(result == WEFT_I_CUDA_SUCCESS, "the wait for the stream");
}

/* One call on an idle stream, which the ranks begin together, and the wait for its end.  NCCL lets one
 * thread at a time ask about a communicator, and would join its thread twice: a direct call keeps the
 * sentry out, by a lock that is taken before its time begins. */
static times run(const scene *s, size_t count, call_fn call)
{
    bool alone = call == call_direct && s->raw == s->comm->raw;
    if (alone)
        weft_i_latch_take(&s->comm->lock);
    meet(s);
    int64_t began = WEFT_OS->clock_ns();
    call(s, count);
    int64_t given = WEFT_OS->clock_ns();
    if (alone)
        weft_i_latch_give(&s->comm->lock);
    times t = {.phase = {[BEFORE] = us(began, probe.entered),
                         [LATE] = us(probe.busy, probe.asked),
                         [AFTER] = us(probe.done, given),
                         [CALL] = us(probe.entered, probe.returned),
                         [BUSY] = us(probe.returned, probe.busy),
                         [LAST_POLL] = us(probe.asked, probe.done)}};
    await_stream(s);
    t.figure[HOST] = us(began, given);
    t.figure[OWN] = t.phase[BEFORE] + t.phase[LATE] + t.phase[AFTER];
    t.figure[WHOLE] = us(began, WEFT_OS->clock_ns());
    return t;
}

/* Two calls of each kind a turn, and their differences. */
typedef struct figures {
    times direct[PAIRS * MOST], weft[PAIRS * MOST];
    double more[FIGURES][MOST][PAIRS];
    int turns;
} figures;

static void take_turn(const scene *s, size_t count, figures *f)
{
    static const call_fn order[2 * PAIRS] = {call_direct, call_weft, call_weft, call_direct};
    int turn = f->turns++;
    for (int pair = 0; pair < PAIRS; pair++) {
        times of[2]; /* direct, through weft */
        for (int i = 0; i < 2; i++) {
            call_fn call = order[2 * pair + i];
            of[call == call_weft] = run(s, count, call);
        }
        int at = turn * PAIRS + pair;
        f->direct[at] = of[0];
        f->weft[at] = of[1];
        for (int which = 0; which < FIGURES; which++)
            f->more[which][turn][pair] = of[1].figure[which] - of[0].figure[which];
    }
}

/* As many turns as fit the time: rank 0 says when it is over. */
static void take_turns(const scene *s, size_t count, double ms, figures *f)
{
    f->turns = 0;
    for (int i = 0; i < 4; i++) /* the first ones of a size are slow */
        take_turn(s, count, f);
    f->turns = 0;
    int64_t until = WEFT_OS->clock_ns() + (int64_t)(ms * 1e6);
    while (agree(s, f->turns < LEAST || (real && f->turns < MOST && WEFT_OS->clock_ns() < until)))
        take_turn(s, count, f);
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
static interval resample(const figures *f, int which)
{
    static double drawn[PAIRS * MOST], medians[RESAMPLES];
    uint64_t seed = 0x9e3779b97f4a7c15u;
    int count = PAIRS * f->turns;
    for (int i = 0; i < RESAMPLES; i++) {
        for (int k = 0; k < f->turns; k++)
            memcpy(&drawn[PAIRS * k], f->more[which][draw(&seed) % (uint64_t)f->turns],
                   sizeof *f->more[which]);
        medians[i] = pick(drawn, count, count / 2);
    }
    memcpy(drawn, f->more[which], (size_t)count * sizeof *drawn);
    median(medians, RESAMPLES);
    return (interval){pick(drawn, count, count / 2), medians[RESAMPLES / 40],
                      medians[RESAMPLES - 1 - RESAMPLES / 40]};
}

/* ---- what is told ---- */

/* Medians of calls. */
static double figure_of(const times *calls, int count, int which)
{
    static double list[PAIRS * MOST];
    for (int i = 0; i < count; i++)
        list[i] = calls[i].figure[which];
    return median(list, count);
}

static double phase_of(const times *calls, int count, int which)
{
    static double list[PAIRS * MOST];
    for (int i = 0; i < count; i++)
        list[i] = calls[i].phase[which];
    return median(list, count);
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
    for (int i = 0; i < 200; i++)
        f->direct[i] = run(&blocking, count, call_direct);
    weft_i_nccl_library()->ncclCommDestroy(blocking.raw);
    return figure_of(f->direct, 200, HOST);
}

/* How sure it is that weft adds no more than the bar. */
typedef enum verdict {
    MISSED,  /* the host's interval is above, or that of weft's own part */
    UNKNOWN, /* neither shows it */
    BY_OWN,  /* the host's interval is too wide; that of weft's own part is below */
    BY_HOST  /* the host's interval is below */
} verdict;

static const char *const verdicts[] = {[MISSED] = "missed",
                                       [UNKNOWN] = "not shown: the intervals are too wide",
                                       [BY_OWN] =
                                           "ok by weft's own part; the host's interval is too wide",
                                       [BY_HOST] = "ok"};

static verdict judge(interval host, interval own)
{
    if (host.low > BAR_US || own.low > BAR_US)
        return MISSED;
    return host.high <= BAR_US ? BY_HOST : own.high <= BAR_US ? BY_OWN : UNKNOWN;
}

/* Where the time goes, direct and through weft. */
static void tell_phases(const figures *f, int count)
{
    static const char *const names[] = {
        [BEFORE] = "before",      [LATE] = "late",       [AFTER] = "after",
        [CALL] = "ncclAllReduce", [BUSY] = "it is busy", [LAST_POLL] = "its last poll"};
    printf("     ");
    for (int phase = 0; phase < PHASES; phase++)
        printf(" %s %.2f %.2f%s", names[phase], phase_of(f->direct, count, phase),
               phase_of(f->weft, count, phase), phase < PHASES - 1 ? "," : " us\n");
}

static verdict tell(const figures *f, size_t bytes, int ranks, manner waits)
{
    static const char *const names[] = {[HOST] = "host", [OWN] = "own", [WHOLE] = "whole"};
    int count = PAIRS * f->turns;
    interval more[FIGURES];
    printf("  nccl all_reduce, %d rank%s, %s, %9zu bytes, %d comparisons:", ranks,
           ranks == 1 ? "" : "s", manners[waits], bytes, count);
    for (int which = 0; which < FIGURES; which++) {
        more[which] = resample(f, which);
        printf(" %s NCCL %.2f weft %.2f, %+.2f (%+.2f to %+.2f);", names[which],
               figure_of(f->direct, count, which), figure_of(f->weft, count, which),
               more[which].median, more[which].low, more[which].high);
    }
    verdict found = judge(more[HOST], more[OWN]);
    printf(" %s\n", verdicts[found]);
    tell_phases(f, count);
    fflush(stdout);
    return found;
}

/* For the last line. */
static void note(verdict found, size_t bytes, int ranks, manner waits)
{
    size_t used = strlen(page->text);
    if (found >= BY_OWN)
        return;
    snprintf(page->text + used, sizeof page->text - used, "%s%d rank%s %s %zu bytes%s",
             used ? ", " : "", ranks, ranks == 1 ? "" : "s", manners[waits], bytes,
             found == UNKNOWN ? " (not shown)" : "");
}

static void measure(const scene *s, size_t count, double ms)
{
    static figures f;
    int ranks = weft_size(s->world), rank = weft_rank(s->world);
    take_turns(s, count, ms, &f);
    if (rank == 0)
        note(tell(&f, count * 4, ranks, s->waits), count * 4, ranks, s->waits);
    if (ranks == 1 && real && count == plans[0].count && s->waits == AWAKE)
        printf("  a blocking communicator: host %.2f us\n", measure_blocking(s, count, &f));
}

/* A tensor of so many elements, and NCCL's communicator of the world behind it. */
static scene scene_of(weft_group *world, size_t count, manner waits)
{
    weft_device device = WEFT_CUDA(real && !peers ? 0 : weft_rank(world));
    weft_tensor *x = weft_zeros(WEFT_F32, device, WEFT_SHAPE((int64_t)count));
    need(x && weft_all_reduce_into(x, x, WEFT_SUM, world) == WEFT_OK, "the first all_reduce");
    weft_i_carrier *carrier = weft_i_carrier_opened(world, WEFT_I_KIND_CUDA);
    weft_i_nccl_comm *comm =
        carrier && carrier->state ? weft_i_nccl_carrier_comm(carrier->state) : NULL;
    need(comm, "NCCL does not serve the world");
    return (scene){world, x, comm, comm->raw, weft_stream_current(device), weft_tensor_data(x),
                   waits};
}

/* What is measured in one launch. */
typedef struct job {
    int ranks;
    double share; /* of the planned time */
} job;

static void measure_all(weft_group *world, const job *what, manner waits)
{
    for (size_t i = 0; i < (real ? sizeof plans / sizeof *plans : 2); i++) {
        scene s = scene_of(world, plans[i].count, waits);
        time_library();
        double ms = what->ranks == 1 ? 500 : plans[i].ms * shares[waits];
        measure(&s, plans[i].count, what->share * ms);
        weft_release(s.x);
    }
}

static int body(int rank, void *arg)
{
    const job *what = arg;
    char id[16];
    snprintf(id, sizeof id, "rank-%d", rank);
    if (!peers)
        setenv("NCCL_HOSTID", id, 1);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = 60000;
    weft_group *world = weft_init(&opts);
    need(world, "weft_init");
    for (manner waits = 0; waits < MANNERS; waits++)
        if (what->ranks > 1 || waits != ASLEEP) /* one rank's call is over before it could */
            measure_all(world, what, waits);
    return weft_finish(world);
}

/* The stand-in's times mean nothing. */
static int tell_all(void)
{
    if (!real)
        return 0;
    bool shown = !*page->text;
    printf("nccl all_reduce: at most %d us above NCCL: %s%s\n", BAR_US,
           shown ? "ok at every size" : "missed at ", page->text);
    return !shown;
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    real = wanted && !strcmp(wanted, "real");
    peers = real && getenv("WEFT_TEST_PEERS");
    if (!real) {
        model_install();
        standin_install();
        model.devices = 4;
    } else {
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    }
    setenv("WEFT_NCCL", "always", 1);
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(page != MAP_FAILED, "a page for all ranks");
    for (int ranks = 1; ranks <= 2; ranks++) {
        weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
        job what = {ranks, argc > 1 ? atof(argv[1]) / 100 : 1};
        atomic_store_explicit(&page->came, 0, memory_order_relaxed); /* nobody is there */
        opts.ranks = ranks;
        opts.body = body;
        opts.arg = &what;
        opts.timeout_ms = 125000;
        int result = weft_launch(&opts);
        if (result)
            return 1;
    }
    return tell_all();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUDA kernels cost, ranks as threads on one device: cuda_bench [--quick].  On a GPU with
 * WEFT_TEST_CUDA=real; on the software driver only to see that it runs.
 *
 *     device  a captured graph of many calls, replayed: time per call between two events
 *     eager   a loop of calls and one sync: time per call on the host
 *
 * Every figure is the slowest rank's median.  bf16, sums; buffers are reused, so up to some 16 MiB
 * the second-level cache is measured.
 */
#include "team_scene.h"

#include "base/share/signal.h"
#include "kernels/fold/fold.h"
#include "variants.h"

#include <inttypes.h>

enum { REPEATS = 11, MOST_CALLS = 100 };

typedef struct work {
    enum { BARRIER, SUM, SCATTER, GATHER, TO_ALL, NOTHING } kind;
    const variant *variant; /* not NULL: this kernel instead of the library's */
    size_t bytes;           /* of the operand */
    weft_i_cuda_way way;
    int blocks, threads, calls;
    double device[SCENE_MOST], eager[SCENE_MOST], host[SCENE_MOST];
} work;

static bool quick;
static size_t operand_most;

static double now_us(void)
{
    return (double)WEFT_OS->clock_ns() / 1000;
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

static weft_status call_once(int rank, const work *w)
{
    scene_rank *me = &scene.rank[rank];
    size_t part = w->bytes / (size_t)scene.ranks;
    weft_i_cuda_sum sum = {.dtype = WEFT_BF16,
                           .count = w->bytes / 2,
                           .way = w->way,
                           .blocks = w->blocks,
                           .threads = w->threads,
                           .limit_ms = 10000};
    weft_i_cuda_move move = {.bytes = part, .blocks = w->blocks, .limit_ms = 10000};
    if (w->variant)
        return variant_launch(w->variant, &me->team, me->stream, w->bytes, scene_reach(0),
                              scene_reach(operand_most));
    switch (w->kind) {
    case BARRIER:
        return weft_i_cuda_barrier(&me->team, me->stream, 0, 10000);
    case SUM:
        sum.out = me->data + operand_most;
        if (w->way == WEFT_I_CUDA_PACKETS)
            sum.in = me->data;
        else
            sum.from = scene_reach(0);
        sum.to = scene_reach(w->way == WEFT_I_CUDA_TWO_SHOT ? 0 : operand_most);
        return weft_i_cuda_all_reduce(&me->team, me->stream, &sum);
    case SCATTER:
        sum.count = part / 2;
        sum.from = scene_reach(0);
        sum.out = me->data + operand_most;
        return weft_i_cuda_reduce_scatter(&me->team, me->stream, &sum);
    case GATHER:
        move.in = me->data;
        move.to = scene_reach(operand_most);
        return weft_i_cuda_all_gather(&me->team, me->stream, &move);
    case TO_ALL:
        move.in = me->data;
        move.to = scene_reach(operand_most);
        return weft_i_cuda_all_to_all(&me->team, me->stream, &move);
    default:
        return WEFT_OK;
    }
}

static void measure_device(int rank, work *w)
{
    scene_rank *me = &scene.rank[rank];
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_stream raw = weft_i_cuda_stream_raw(me->stream);
    weft_i_cu_graph graph;
    weft_i_cu_graph_exec replay;
    weft_i_cu_event start, end;
    double took[REPEATS];
    RANK(cu->cuEventCreate(&start, 0) == 0 && cu->cuEventCreate(&end, 0) == 0, "events");
    RANK(cu->cuStreamBeginCapture(raw, WEFT_I_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0, "capture");
    for (int i = 0; i < w->calls; i++)
        RANK_OK(call_once(rank, w));
    RANK(cu->cuStreamEndCapture(raw, &graph) == 0, "end of capture");
    RANK(cu->cuGraphInstantiateWithFlags(&replay, graph, 0) == 0, "graph");
    scene_meet(); /* no rank's kernel waits while another still makes its graph */
    for (int k = -2; k < REPEATS; k++) {
        float ms = 0;
        RANK_OK(weft_i_cuda_barrier(&me->team, me->stream, 1, 10000));
        RANK(cu->cuEventRecord(start, raw) == 0, "event");
        RANK(cu->cuGraphLaunch(replay, raw) == 0, "replay");
        RANK(cu->cuEventRecord(end, raw) == 0, "event");
        RANK_OK(weft_i_cuda_stream_sync(me->stream, WEFT_FOREVER));
        RANK(cu->cuEventElapsedTime(&ms, start, end) == 0, "elapsed");
        took[k < 0 ? 0 : k] = 1000 * (double)ms / w->calls;
    }
    RANK_OK(weft_i_cuda_team_check(&me->team));
    w->device[rank] = median(took, REPEATS);
    cu->cuGraphExecDestroy(replay);
    cu->cuGraphDestroy(graph);
    cu->cuEventDestroy(start);
    cu->cuEventDestroy(end);
}

static void measure_eager(int rank, work *w)
{
    scene_rank *me = &scene.rank[rank];
    double took[REPEATS], host[REPEATS];
    for (int k = -2; k < REPEATS; k++) {
        scene_meet();
        double start = now_us();
        for (int i = 0; i < w->calls; i++)
            RANK_OK(call_once(rank, w));
        double posted = now_us();
        RANK_OK(weft_i_cuda_stream_sync(me->stream, WEFT_FOREVER));
        took[k < 0 ? 0 : k] = (now_us() - start) / w->calls;
        host[k < 0 ? 0 : k] = (posted - start) / w->calls;
    }
    RANK_OK(weft_i_cuda_team_check(&me->team));
    w->eager[rank] = median(took, REPEATS);
    w->host[rank] = median(host, REPEATS);
}

static void work_body(int rank, void *arg)
{
    work *w = arg;
    RANK_OK(weft_i_cuda_use(scene.device));
    RANK_OK(call_once(rank, w));
    RANK_OK(weft_i_cuda_stream_sync(scene.rank[rank].stream, WEFT_FOREVER));
    RANK_OK(weft_i_cuda_team_check(&scene.rank[rank].team));
    scene_meet();
    measure_eager(rank, w);
    scene_meet();
    if (!scene.rank[rank].complaint[0])
        measure_device(rank, w);
}

static double worst(const double *list)
{
    double most = 0;
    for (int r = 0; r < scene.ranks; r++)
        most = list[r] > most ? list[r] : most;
    return most;
}

/* Runs it; a complaint is printed, not fatal: the other figures are still wanted. */
static bool run_work(work *w)
{
    size_t bytes = w->bytes;
    w->calls = quick ? 2 : bytes <= 1 << 20 ? MOST_CALLS : bytes <= 16 << 20 ? 40 : 8;
    const char *complaint = scene_try(work_body, w);
    if (!complaint)
        return true;
    printf("  (%s)\n", complaint);
    for (int q = 0; q < scene.ranks; q++)
        weft_i_cuda_stream_sync(scene.rank[q].stream, 15000);
    for (int q = 0; q < scene.ranks; q++)
        weft_i_cuda_team_reset(&scene.rank[q].team, scene.rank[q].stream);
    return false;
}

static const char *size_text(size_t bytes, char out[24])
{
    if (bytes >= 1 << 20)
        snprintf(out, 24, "%u MiB", (unsigned)(bytes >> 20));
    else
        snprintf(out, 24, "%u KiB", (unsigned)(bytes >> 10));
    return out;
}

/* TB/s of a copy on the device, read and written, the limit of everything; with `fill`, of memory
 * that is only written. */
static double copy_rate(bool fill)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cuda_stream *stream = scene.rank[0].stream;
    weft_i_cu_event start, end;
    double took[REPEATS];
    if (weft_i_cuda_use(scene.device) != WEFT_OK || cu->cuEventCreate(&start, 0) ||
        cu->cuEventCreate(&end, 0))
        return 0;
    for (int k = -1; k < REPEATS; k++) {
        float ms = 0;
        cu->cuEventRecord(start, weft_i_cuda_stream_raw(stream));
        if (fill)
            cu->cuMemsetD32Async((weft_i_cu_ptr)(uintptr_t)scene.rank[0].data, 0x40404040,
                                 operand_most / 2, weft_i_cuda_stream_raw(stream));
        else
            weft_i_cuda_copy(stream, scene.rank[0].data + operand_most, scene.rank[0].data,
                             operand_most);
        cu->cuEventRecord(end, weft_i_cuda_stream_raw(stream));
        weft_i_cuda_stream_sync(stream, WEFT_FOREVER);
        cu->cuEventElapsedTime(&ms, start, end);
        took[k < 0 ? 0 : k] = (double)ms;
    }
    cu->cuEventDestroy(start);
    cu->cuEventDestroy(end);
    return 2 * (double)operand_most / (median(took, REPEATS) * 1e-3) / 1e12;
}

/* The host's share: a launch that does nothing much, and memory from a stream's own list. */
static void host_costs(void)
{
    scene_rank *me = &scene.rank[0];
    int calls = quick ? 4 : 500;
    weft_k_make nothing = {.count = 0};
    for (int early = 0; early < 2; early++) {
        double took[REPEATS];
        for (int k = -2; k < REPEATS; k++) {
            double start = now_us();
            for (int i = 0; i < calls; i++)
                weft_i_cuda_launch(me->stream, WEFT_I_CUDA_make, 1, 8, &nothing, early);
            took[k < 0 ? 0 : k] = (now_us() - start) / calls;
            weft_i_cuda_stream_sync(me->stream, WEFT_FOREVER);
        }
        printf("  launch%-32s %8.2f us\n", early ? ", programmatic dependent" : "",
               median(took, REPEATS));
    }
    double start = now_us();
    for (int i = 0; i < calls; i++) {
        weft_i_cu_ptr memory = 0;
        weft_i_cuda_alloc(me->stream, 1 << 20, &memory);
        weft_i_cuda_free(me->stream, memory, 1 << 20, NULL);
    }
    printf("  %-38s %8.3f us\n", "alloc and free, 1 MiB", (now_us() - start) / calls);
}

static void print_sums(const size_t *sizes, int count)
{
    static const weft_i_cuda_way ways[] = {WEFT_I_CUDA_PACKETS, WEFT_I_CUDA_ONE_SHOT,
                                           WEFT_I_CUDA_TWO_SHOT};
    printf("\nall_reduce, bf16, %d ranks (us: device / eager / host's call)\n  %-9s %-27s %-27s "
           "%-27s\n",
           scene.ranks, "bytes", "packets", "one-shot", "two-shot");
    for (int i = 0; i < count; i++) {
        char text[24];
        printf("  %-9s", size_text(sizes[i], text));
        for (int k = 0; k < 3; k++) {
            work w = {.kind = SUM, .bytes = sizes[i], .way = ways[k]};
            if ((ways[k] == WEFT_I_CUDA_PACKETS && sizes[i] > 256 << 10) ||
                (ways[k] == WEFT_I_CUDA_ONE_SHOT && sizes[i] > 64 << 20))
                printf(" %-27s", "-");
            else if (run_work(&w))
                printf(" %8.2f /%7.2f /%6.2f  ", worst(w.device), worst(w.eager), worst(w.host));
        }
        printf("\n");
        fflush(stdout);
    }
}

/* What moves at least, for each byte of the operand, by everybody together. */
static double least_bytes(int kind, size_t bytes)
{
    double n = scene.ranks, s = (double)bytes;
    switch (kind) {
    case SUM:
        return 2 * n * s; /* every operand is read and every result written once */
    case SCATTER:
        return n * s + s;
    case GATHER:
        return s + n * s;
    default:
        return 2 * n * s;
    }
}

static void print_others(const size_t *sizes, int count, double rate)
{
    static const struct {
        const char *name;
        int kind;
    } ops[] = {{"all_reduce two-shot", SUM},
               {"reduce_scatter", SCATTER},
               {"all_gather push", GATHER},
               {"all_to_all push", TO_ALL}};
    printf("\n%d ranks (us per call on the device; share of the copy rate for the bytes that must "
           "move)\n  %-22s",
           scene.ranks, "");
    for (int i = 0; i < count; i++) {
        char text[24];
        printf(" %18s", size_text(sizes[i], text));
    }
    printf("\n");
    for (int k = 0; k < 4; k++) {
        printf("  %-22s", ops[k].name);
        for (int i = 0; i < count; i++) {
            work w = {.bytes = sizes[i], .way = WEFT_I_CUDA_TWO_SHOT};
            w.kind = ops[k].kind;
            if (run_work(&w))
                printf(" %10.2f (%3.0f %%)", worst(w.device),
                       100 * least_bytes(w.kind, sizes[i]) / (worst(w.device) * 1e-6) /
                           (rate * 1e12));
        }
        printf("\n");
        fflush(stdout);
    }
}

/* Other shapes of the loops than the library's, at 64 and 256 MiB. */
static void print_variants(double rate)
{
    static const size_t sizes[] = {64 << 20, 256 << 20};
    if (variants_load() < 0) {
        printf("\nno variants: %s\n", weft_last_error());
        return;
    }
    printf("\nvariants, %d ranks (share of the copy rate at 64 and 256 MiB)\n", scene.ranks);
    for (int i = 0; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        if (v->ranks && v->ranks != scene.ranks)
            continue;
        printf("  %-14s %-42s", v->is_sum ? "all_reduce" : "all_gather", v->what);
        for (int k = 0; k < 2 && sizes[k] <= operand_most; k++) {
            work w = {.bytes = sizes[k], .variant = v};
            w.kind = v->is_sum ? SUM : GATHER;
            if (run_work(&w))
                printf(" %9.2f us %3.0f %%", worst(w.device),
                       100 * least_bytes(w.kind, sizes[k]) / (worst(w.device) * 1e-6) /
                           (rate * 1e12));
        }
        printf("\n");
        fflush(stdout);
    }
}

/* Other numbers of blocks and threads than those chosen. */
static void print_shapes(void)
{
    static const struct {
        weft_i_cuda_way way;
        size_t bytes;
        int blocks[4], threads[4];
    } rows[] = {
        {WEFT_I_CUDA_PACKETS, 4 << 10, {0, 0, 0, 0}, {64, 128, 256, 512}},
        {WEFT_I_CUDA_PACKETS, 64 << 10, {0, 0, 0, 0}, {64, 128, 256, 512}},
        {WEFT_I_CUDA_PACKETS, 256 << 10, {0, 0, 0, 0}, {64, 128, 256, 512}},
        {WEFT_I_CUDA_ONE_SHOT, 1 << 20, {8, 16, 32, 64}, {512, 512, 512, 512}},
        {WEFT_I_CUDA_ONE_SHOT, 1 << 20, {8, 16, 32, 64}, {256, 256, 256, 256}},
        {WEFT_I_CUDA_TWO_SHOT, 16 << 20, {8, 16, 32, 64}, {512, 512, 512, 512}},
        {WEFT_I_CUDA_TWO_SHOT, 256 << 20, {8, 16, 32, 64}, {512, 512, 512, 512}},
        {WEFT_I_CUDA_TWO_SHOT, 256 << 20, {8, 16, 32, 64}, {256, 256, 256, 256}},
    };
    static const char *const names[] = {"auto", "packets", "one-shot", "two-shot"};
    printf("\nshapes, %d ranks (blocks x threads: us on the device)\n", scene.ranks);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[24];
        if (rows[i].bytes > operand_most)
            continue;
        printf("  %-9s %-9s", names[rows[i].way], size_text(rows[i].bytes, text));
        for (int k = 0; k < 4; k++) {
            work w = {.kind = SUM,
                      .bytes = rows[i].bytes,
                      .way = rows[i].way,
                      .blocks = rows[i].blocks[k],
                      .threads = rows[i].threads[k]};
            if (run_work(&w))
                printf("  %3dx%-4d%8.2f", w.blocks, w.threads, worst(w.device));
        }
        printf("\n");
        fflush(stdout);
    }
}

static void bench(void)
{
    static const size_t all[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20,
                                 4 << 20, 16 << 20, 64 << 20, 256 << 20};
    static const size_t large[] = {1 << 20, 16 << 20, 256 << 20};
    int count = quick ? 2 : 9;
    operand_most = quick ? 64 << 10 : 256 << 20;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        scene_open(ranks, 2 * operand_most, NULL);
        double rate = copy_rate(false);
        if (ranks == 2) {
            printf("%s, compute capability %d.%d, driver of CUDA %d.%d\n", scene.device->name,
                   scene.device->major, scene.device->minor, weft_i_cuda_driver()->version / 1000,
                   weft_i_cuda_driver()->version % 1000 / 10);
            printf("  %-38s %8.2f TB/s\n", "device copy, read and written", rate);
            printf("  %-38s %8.2f TB/s\n", "device fill, written", copy_rate(true));
            host_costs();
        }
        work barrier = {.kind = BARRIER};
        if (run_work(&barrier))
            printf("  barrier, %d ranks%22s %8.2f us on the device, %.2f eager\n", ranks, "",
                   worst(barrier.device), worst(barrier.eager));
        print_sums(all, count);
        if (!quick)
            print_others(large, 3, rate);
        if (!quick)
            print_variants(rate);
        if (!quick)
            print_shapes();
        scene_close();
    }
}

TEST(test_cuda_bench)
{
    bench();
}

int main(int argc, char **argv)
{
    quick = argc > 1 && !strcmp(argv[1], "--quick");
    setvbuf(stdout, NULL, _IOLBF, 0);
    return harness_main(1, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a put with a signal costs through weft, beside the same call of NVSHMEM made directly: host
 * time to enqueue one, and time on the stream.  For 2 ranks on a GPU (scripts/gpu-check starts it by
 * `weft run -n 2`); the last line says by how much weft is slower on the host, at most.
 */
#include "backends/cuda/device/device.h"
#include "backends/nvshmem/library.h"
#include "base/os/os.h"
#include "tensor/object/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

#define GPU WEFT_CUDA(0)

enum { CALLS = 200, ROUNDS = 15 };

typedef struct scene {
    weft_symm *mem;
    weft_tensor *from;
    size_t bytes;
    void *raw;
} scene;

static void need(bool fine, const char *what)
{
    if (fine)
        return;
    fprintf(stderr, "%s: %s\n", what, weft_last_error());
    exit(1);
}

static double us_since(int64_t begin)
{
    return (double)(weft_i_os_linux.clock_ns() - begin) / 1000;
}

static void call_weft(const scene *s)
{
    need(weft_symm_put_with_signal(s->mem, 1, s->from, 0, 0, WEFT_DEFAULT) == WEFT_OK, "put");
}

/* The same arguments: the semaphore of channel 0 from rank 0 is the first word of the pad. */
static void call_directly(const scene *s)
{
    weft_i_nvshmem_functions()->nvshmemx_putmem_signal_on_stream(
        weft_symm_buffer_ptr(s->mem, 0), weft_tensor_data(s->from), s->bytes,
        weft_symm_signal_pad_ptr(s->mem, 0), 1, WEFT_I_NVSHMEM_SIGNAL_ADD, 1, s->raw);
}

typedef struct cost {
    double host, whole;
} cost;

static cost measure(const scene *s, void (*call)(const scene *s))
{
    cost c;
    int64_t begin = weft_i_os_linux.clock_ns();
    for (int i = 0; i < CALLS; i++)
        call(s);
    c.host = us_since(begin) / CALLS;
    need(weft_stream_sync(weft_stream_current(GPU), 30000) == WEFT_OK, "sync");
    c.whole = us_since(begin) / CALLS;
    return c;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *all)
{
    qsort(all, ROUNDS, sizeof *all, compare);
    return all[ROUNDS / 2];
}

/* By turns, so that both see the same machine; returns what weft takes more on the host. */
static double compare_ways(const scene *s)
{
    double host[2][ROUNDS], whole[2][ROUNDS];
    measure(s, call_weft);
    measure(s, call_directly);
    for (int i = 0; i < ROUNDS; i++)
        for (int way = 0; way < 2; way++) {
            cost c = measure(s, way ? call_weft : call_directly);
            host[way][i] = c.host;
            whole[way][i] = c.whole;
        }
    double direct = median(host[0]), weft = median(host[1]);
    printf("  put with signal, %8zu bytes: direct %6.2f us, weft %6.2f us, more %5.2f us; with the "
           "stream %6.2f and %6.2f us\n",
           s->bytes, direct, weft, weft - direct, median(whole[0]), median(whole[1]));
    return weft - direct;
}

static double run(weft_group *world, int rank)
{
    static const int64_t bytes[] = {8, 4096, 65536, 1 << 20};
    double most = -1e9;
    weft_tensor *x = weft_symm_empty(WEFT_U8, GPU, WEFT_SHAPE(1 << 20));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    need(mem, "rendezvous");
    for (int k = 0; k < 4; k++) {
        scene s = {.mem = mem,
                   .from = weft_zeros(WEFT_U8, GPU, WEFT_SHAPE(bytes[k])),
                   .bytes = (size_t)bytes[k],
                   .raw = weft_i_cuda_stream_raw(weft_i_stream_current(GPU)->own)};
        need(s.from, "operand");
        if (rank == 0) {
            double more = compare_ways(&s);
            most = more > most ? more : most;
        }
        need(weft_symm_reset(mem, WEFT_DEFAULT) == WEFT_OK, "reset"); /* takes the signals away */
    }
    return most;
}

int main(void)
{
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = 60000;
    weft_group *world = weft_init(&opts);
    need(world, "weft_init");
    weft_symm_allow_overlap(true);
    need(weft_symm_set_backend(GPU, "nvshmem") == WEFT_OK, "weft_symm_set_backend");
    int rank = weft_rank(world);
    double most = run(world, rank);
    if (rank == 0)
        printf("  through weft at most %.2f us more than the direct call (bar: 1 us): %s\n", most,
               most <= 1 ? "ok" : "TOO MUCH");
    weft_clear_error();
    int failed = weft_finish(world);
    return failed ? failed : most > 1 ? 2 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a posted all_reduce takes beside a running matrix product: from the call to its end, as
 * the host sees it.  Ranks as processes: `weft run -n 2 cuda_beside_bench`, with MPS if they share a
 * GPU.  The product is on a stream of its own, long enough to run all the while; that it still ran
 * when an all_reduce was over is checked, and those beside which it did not are left out.  The ranks
 * begin together, once the products of all of them run: what one waits for another is no part of it.
 * The smallest size shows what the host, a launch and one hop take.
 *
 * Several are posted beside each product, one after the other.  The first comes when the host has
 * slept for milliseconds: it finds nothing of its code and data in the processor's caches.
 */
#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 40, ROW = 6, SIDE = 8192, PRODUCTS = 4, PATIENCE_MS = 30000 };

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct scene {
    weft_group *world;
    weft_device device;
    weft_stream *mine, *other;
    weft_tensor *a, *b, *product;
} scene;

static int multiply(const scene *s)
{
    if (weft_stream_use(s->other) < 0)
        return 1;
    for (int i = 0; i < PRODUCTS; i++)
        if (weft_mm_into(s->product, s->a, s->b) < 0)
            return 1;
    nanosleep(&(struct timespec){0, 300000}, NULL); /* until it runs */
    return weft_stream_use(s->mine) < 0;
}

typedef struct times {
    double call[ROUNDS * ROW], whole[ROUNDS * ROW]; /* until the host had posted it, and its end */
    int count;
} times;

/* One call; it counts if the product still runs afterwards. */
static weft_status call_once(const scene *s, weft_tensor *out, weft_tensor *x, int beside,
                             times *to)
{
    weft_status status = weft_group_barrier(s->world, PATIENCE_MS);
    if (status < 0)
        return status;
    weft_scope_open();
    double start = now_us();
    weft_work *work = weft_all_reduce_start(out, x, WEFT_SUM, s->world);
    double called = now_us();
    status = work ? weft_work_wait(work, PATIENCE_MS) : weft_last_status();
    double over = now_us();
    weft_scope_close();
    if (status < 0 || !to || (beside && weft_stream_test(s->other) != WEFT_IN_PROGRESS))
        return status;
    to->call[to->count] = called - start;
    to->whole[to->count++] = over - start;
    return status;
}

/* A row of calls: the first, and the others. */
static weft_status call_row(const scene *s, weft_tensor *out, weft_tensor *x, int beside,
                            times *first, times *others)
{
    if (weft_stream_sync(s->mine, PATIENCE_MS) < 0 || weft_stream_sync(s->other, PATIENCE_MS) < 0 ||
        weft_group_barrier(s->world, PATIENCE_MS) < 0 || (beside && multiply(s)))
        return weft_last_status();
    weft_status status = WEFT_OK;
    for (int i = 0; i < ROW && status >= 0; i++)
        status = call_once(s, out, x, beside, i ? others : first);
    return status;
}

static void print_times(const char *which, times *t)
{
    if (t->count == 0) {
        printf("    %s: the product was always over before it\n", which);
        return;
    }
    qsort(t->whole, (size_t)t->count, sizeof *t->whole, by_size);
    qsort(t->call, (size_t)t->count, sizeof *t->call, by_size);
    printf("    %-11s %8.1f us (median of %d; quarters %.1f and %.1f; the host's call %.1f)\n",
           which, t->whole[t->count / 2], t->count, t->whole[t->count / 4],
           t->whole[t->count * 3 / 4], t->call[t->count / 2]);
}

static int measure(const scene *s, int64_t bytes, int beside)
{
    static times first, others;
    first.count = others.count = 0;
    weft_tensor *x = weft_full(WEFT_BF16, s->device, WEFT_SHAPE(bytes / 2), 1);
    weft_tensor *out = x ? weft_empty_like(x) : NULL;
    if (!out)
        return 1;
    for (int i = -5; i < ROUNDS; i++)
        if (call_row(s, out, x, beside, i < 0 ? NULL : &first, i < 0 ? NULL : &others) < 0)
            return 1;
    if (weft_rank(s->world) != 0)
        return 0;
    printf("  all_reduce of %lld bytes %s\n", (long long)bytes,
           beside ? "beside a product" : "alone");
    print_times("the first", &first);
    print_times("the others", &others);
    return 0;
}

int main(void)
{
    scene s = {.world = weft_init(NULL), .device = WEFT_CUDA(0)};
    weft_symm_allow_overlap(true); /* where there are fewer GPUs than ranks */
    s.mine = s.world ? weft_keep(weft_stream_current(s.device)) : NULL;
    s.other = s.mine ? weft_stream_new(s.device, false) : NULL;
    s.a = s.other ? weft_to_dtype(weft_rand(WEFT_F32, s.device, WEFT_SHAPE(SIDE, SIDE)), WEFT_BF16)
                  : NULL;
    s.b = s.a ? weft_clone(s.a) : NULL;
    s.product = s.b ? weft_empty_like(s.a) : NULL;
    int failed = !s.product;
    for (int64_t bytes = 64; !failed && bytes <= 256 << 10; bytes *= bytes == 64 ? 64 : 8)
        for (int beside = 0; !failed && beside < 2; beside++)
            failed = measure(&s, bytes, beside);
    if (failed)
        fprintf(stderr, "beside_bench: %s\n", weft_last_error());
    weft_release(s.mine);
    int finished = weft_finish(s.world);
    return failed || finished;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `make demo` runs: ranks allocate, rendezvous and signal each other, then measure
 * barriers, all_reduces, and how fast a rank reads the memory of its neighbour.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <weft/weft.h>

enum { BARRIERS = 20000, READS = 20, MIB = 1 << 20, BUFFER = 16 * MIB };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A word of greeting goes round: each rank waits for its predecessor, then signals its successor.
 */
static void pass_round(weft_symm *mem, int me, int n)
{
    if (me > 0)
        weft_symm_wait_signal(mem, me - 1, 0, WEFT_DEFAULT);
    printf("rank %d of %d: my memory is at %p, my neighbour's at %p\n", me, n,
           weft_symm_buffer_ptr(mem, me), weft_symm_buffer_ptr(mem, (me + 1) % n));
    fflush(stdout);
    if (me + 1 < n)
        weft_symm_put_signal(mem, me + 1, 0, WEFT_DEFAULT);
}

static double barrier_us(weft_symm *mem)
{
    for (int i = 0; i < BARRIERS / 10; i++)
        weft_symm_barrier(mem, 0, WEFT_DEFAULT);
    double start = seconds();
    for (int i = 0; i < BARRIERS; i++)
        weft_symm_barrier(mem, 0, WEFT_DEFAULT);
    return (seconds() - start) / BARRIERS * 1e6;
}

static double all_reduce_us(weft_group *world, int64_t bytes)
{
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(bytes / 4));
    int rounds = bytes < MIB ? BARRIERS / 10 : READS * 2;
    for (int i = 0; i < rounds / 10; i++)
        weft_all_reduce_into(x, x, WEFT_MAX, world);
    double start = seconds();
    for (int i = 0; i < rounds; i++)
        weft_all_reduce_into(x, x, WEFT_MAX, world);
    return (seconds() - start) / rounds * 1e6;
}

static double read_gbs(weft_symm *mem, void *to, int from)
{
    const void *theirs = weft_symm_buffer_ptr(mem, from);
    memcpy(to, theirs, BUFFER); /* maps the pages */
    double start = seconds();
    for (int i = 0; i < READS; i++)
        memcpy(to, theirs, BUFFER);
    return (double)READS * BUFFER / (seconds() - start) * 1e-9;
}

int main(void)
{
    weft_group *world = weft_init(NULL);
    int me = weft_rank(world), n = weft_size(world);
    weft_tensor *x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(BUFFER));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    weft_tensor *copy = weft_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(BUFFER));
    if (!mem || !copy)
        return weft_finish(world);

    pass_round(mem, me, n);
    weft_fill(x, me + 1);
    double barrier = barrier_us(mem), small = all_reduce_us(world, 1 << 10),
           large = all_reduce_us(world, MIB);
    int next = (me + 1) % n;
    double gbs = read_gbs(mem, weft_tensor_data(copy), next);
    int right = weft_item(copy, BUFFER - 1) == next + 1;
    weft_symm_barrier(mem, 0, WEFT_DEFAULT);
    if (me == 0)
        printf("\n  %-44s %10.2f us\n  %-44s %10.2f us\n  %-44s %10.2f us\n  %-44s %10.2f GB/s\n",
               "a barrier of all ranks", barrier, "all_reduce of 1 KiB", small,
               "all_reduce of 1 MiB", large,
               right ? "reading a neighbour's memory" : "CONTENT WRONG", gbs);
    return right ? weft_finish(world) : 1;
}

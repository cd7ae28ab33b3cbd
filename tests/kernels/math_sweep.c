/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries the f32 functions of kernels/number/math.h on every f32, or on every n-th, and prints how far off
 * the worst result is.  By hand: all of them take an hour on two cores.
 *
 *     math_sweep [-s stride] [-j jobs] [function ...]
 *
 * The stride should be odd, so that it meets all low bits.  Status 1 if a function is further off
 * than it may be.
 */
#include "math_functions.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNKS = 256, JOBS = 64 };

/* Shared by the jobs of one function.  The counter is relaxed: a chunk is taken once, and results
 * are read after the jobs have ended. */
typedef struct board {
    atomic_int next;
    struct {
        double off;
        uint32_t at;
        uint64_t count;
    } worst[CHUNKS];
} board;

static void try_chunk(const struct function *f, board *b, int chunk, uint64_t stride)
{
    uint64_t first = ((uint64_t)chunk << 32) / CHUNKS, end = ((uint64_t)(chunk + 1) << 32) / CHUNKS;
    for (uint64_t u = (first + stride - 1) / stride * stride; u < end; u += stride) {
        float x = weft_i_f32_from_bits((uint32_t)u);
        double off = distance_f32(f->f32(x), f->of_f32(x));
        b->worst[chunk].count++;
        if (off > b->worst[chunk].off) {
            b->worst[chunk].off = off;
            b->worst[chunk].at = (uint32_t)u;
        }
    }
}

static void run_jobs(const struct function *f, board *b, int jobs, uint64_t stride)
{
    for (int j = 0; j < jobs; j++)
        if (fork() == 0) {
            int chunk;
            while ((chunk = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed)) < CHUNKS)
                try_chunk(f, b, chunk, stride);
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
}

static int sweep(const struct function *f, int jobs, uint64_t stride)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) {
        perror("math_sweep");
        return 1;
    }
    run_jobs(f, b, jobs, stride);
    int worst = 0;
    uint64_t count = 0, expected = (((uint64_t)1 << 32) + stride - 1) / stride;
    for (int c = 0; c < CHUNKS; c++) {
        count += b->worst[c].count;
        worst = b->worst[c].off > b->worst[worst].off ? c : worst;
    }
    float at = weft_i_f32_from_bits(b->worst[worst].at);
    double off = b->worst[worst].off;
    bool failed = off > f->ulp || count != expected;
    printf("%-6s off by %.3f of %g at %a (%llu of 2^32)%s\n", f->name, off, f->ulp, (double)at,
           (unsigned long long)count,
           !failed             ? ""
           : count != expected ? ": A JOB DIED"
                               : ": FAILED");
    fflush(stdout);
    munmap(b, sizeof *b);
    return failed;
}

static bool is_chosen(const char *name, int count, char **names)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return true;
    return count == 0;
}

int main(int argc, char **argv)
{
    long stride = 1, jobs = sysconf(_SC_NPROCESSORS_ONLN);
    int option, failed = 0, tried = 0;
    while ((option = getopt(argc, argv, "s:j:")) != -1)
        if (option == '?')
            return 2;
        else
            *(option == 's' ? &stride : &jobs) = strtol(optarg, NULL, 10);
    if (stride < 1 || jobs < 1 || jobs > JOBS) {
        fprintf(stderr, "math_sweep [-s stride] [-j jobs, at most %d] [function ...]\n", JOBS);
        return 2;
    }
    for (int k = 0; k < FUNCTIONS; k++)
        if (is_chosen(functions[k].name, argc - optind, argv + optind)) {
            tried++;
            failed |= sweep(&functions[k], (int)jobs, (uint64_t)stride);
        }
    if (!tried)
        fprintf(stderr, "math_sweep: no such function\n");
    return tried ? failed : 2;
}

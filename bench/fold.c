/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the folds are on one core, beside memcpy of as many bytes in the same run.
 *
 *     bench_fold [dtype [op]]       default: f32 sum; op by number as in kernels/fold/fold.h
 *
 * GB/s counts every byte of every input read and of every output written; memcpy counts its source
 * and its destination, and moves as many bytes in all.  Medians of 15 measurements of processor
 * time.
 */
#include "kernels/fold/fold.h"
#include "base/share/dtype.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 8, TIMES = 15 };
static const size_t largest = 16u << 20, sizes[] = {8, 1 << 10, 16 << 10, 256 << 10, 16u << 20};

/* Processor time: on a busy machine, waiting for a core is no part of a fold. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct work {
    weft_i_fold fold; /* NULL: memcpy */
    void *out[MOST];
    const void *in[MOST];
    int outputs, inputs;
    size_t count, bytes; /* bytes: of one array, or what memcpy moves */
};

static void once(const struct work *work)
{
    static const double factors[MOST] = {1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5};
    if (work->fold)
        work->fold(work->out, work->outputs, work->in, work->inputs, work->count, factors);
    else
        memcpy(work->out[0], work->in[0], work->bytes);
}

static double time_of(const struct work *work, size_t repeats)
{
    double start = now();
    for (size_t k = 0; k < repeats; k++)
        once(work);
    return (now() - start) / (double)repeats;
}

/* Median seconds of a call of each; they take turns, so that both meet the same disturbances. */
static void measure(const struct work *fold, const struct work *copy, size_t moved,
                    double *fold_time, double *copy_time)
{
    double folds[TIMES], copies[TIMES];
    size_t repeats = 1 + ((size_t)16 << 20) / moved;
    repeats = repeats < 20000 ? repeats : 20000;
    for (int i = 0; i < TIMES; i++) {
        folds[i] = time_of(fold, repeats);
        copies[i] = time_of(copy, repeats);
    }
    qsort(folds, TIMES, sizeof *folds, order);
    qsort(copies, TIMES, sizeof *copies, order);
    *fold_time = folds[TIMES / 2];
    *copy_time = copies[TIMES / 2];
}

static void measure_one(weft_i_fold fold, char *memory, size_t bytes, size_t count, int inputs,
                        int outputs)
{
    struct work work = {.fold = fold, .inputs = inputs, .outputs = outputs, .count = count};
    for (int k = 0; k < MOST; k++) {
        work.in[k] = memory + (size_t)k * (bytes + 256);
        work.out[k] = memory + (size_t)(MOST + k) * (bytes + 256);
    }
    size_t moved = bytes * (size_t)(inputs + outputs);
    struct work copy = {.out = {memory + MOST * (bytes + 256)}, .in = {memory}, .bytes = moved / 2};
    double seconds, copy_seconds;
    measure(&work, &copy, moved, &seconds, &copy_seconds);
    printf("%9zu %3d %3d %12.3f %9.1f %9.1f %6.2f\n", bytes, inputs, outputs, seconds * 1e6,
           (double)moved / seconds * 1e-9, (double)moved / copy_seconds * 1e-9,
           copy_seconds / seconds);
}

static void measure_size(weft_dtype dtype, weft_i_fold_op op, char *memory, size_t bytes)
{
    static const int inputs[] = {2, 4, 5, 8}, outputs[] = {1, 2, 8};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++)
            measure_one(weft_i_fold_find(dtype, op), memory, bytes, bytes / weft_dtype_size(dtype),
                        inputs[i], outputs[o]);
}

int main(int argc, char **argv)
{
    weft_dtype dtype = WEFT_F32;
    weft_i_fold_op op = argc > 2 ? (weft_i_fold_op)atoi(argv[2]) : WEFT_I_FOLD_SUM;
    for (int i = 0; argc > 1 && i < WEFT_DTYPE_COUNT; i++)
        if (!strcmp(argv[1], weft_dtype_name((weft_dtype)i)))
            dtype = (weft_dtype)i;
    char *memory = aligned_alloc(4096, 2 * MOST * (largest + 4096));
    if (!memory || !weft_i_fold_find(dtype, op))
        return 1;
    memset(memory, 1, 2 * MOST * (largest + 4096));
    const char *variant;
    for (int v = 0; (variant = weft_i_fold_variant(v)); v++) {
        if (!weft_i_fold_use(variant))
            continue;
        printf("# %s, op %d, %s\n#   bytes  in out           us      GB/s    memcpy  ratio\n",
               weft_dtype_name(dtype), (int)op, variant);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            measure_size(dtype, op, memory, sizes[i]);
    }
    free(memory);
    return 0;
}

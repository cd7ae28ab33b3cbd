/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's part of a collective on a device, for one operation and size:
 *
 *     weft run -n 2 cuda_call_bench all_reduce|all_gather|reduce_scatter BYTES [symm]
 *
 * With WEFT_TEST_CUDA=real, microseconds of a call and of a bare launch as large, by turns.  Otherwise
 * launches of the software driver do nothing, and there is only something to count, for each rank
 * (docs/gpu.md): valgrind --tool=callgrind --toggle-collect=make_calls.
 */
#include "model.h"

#include "backends/cuda/device/device.h"
#include "weft/weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 64, ROUNDS = 120, WARMUP = 10 };
#define GPU WEFT_CUDA(0)

#define CHECK(condition_)                                                                   \
    do {                                                                                    \
        if (!(condition_)) {                                                                \
            fprintf(stderr, "line %d, %s: %s\n", __LINE__, #condition_, weft_last_error()); \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, OPS };
static const char *const names[OPS] = {"all_reduce", "all_gather", "reduce_scatter"};

typedef struct operands {
    int op;
    weft_tensor *in, *out;
    weft_group *world;
} operands;

static weft_status call(const operands *x)
{
    if (x->op == ALL_GATHER)
        return weft_all_gather_into(x->out, x->in, x->world);
    if (x->op == REDUCE_SCATTER)
        return weft_reduce_scatter_into(x->out, x->in, WEFT_SUM, x->world);
    return weft_all_reduce_into(x->out, x->in, WEFT_SUM, x->world);
}

/* Of this name, and not in line: see above. */
__attribute__((noinline)) static void make_calls(const operands *x)
{
    for (int i = 0; i < CALLS; i++)
        CHECK(call(x) >= 0);
}

static weft_tensor *make(int64_t elements, bool symm, weft_group *world)
{
    weft_shape shape = WEFT_SHAPE(elements);
    weft_tensor *x =
        symm ? weft_symm_empty(WEFT_BF16, GPU, shape) : weft_zeros(WEFT_BF16, GPU, shape);
    CHECK(x && (!symm || weft_symm_rendezvous(x, world)));
    return x;
}

static void settle(const operands *x)
{
    CHECK(weft_stream_sync(weft_stream_current(GPU), 60000) >= 0);
    CHECK(weft_group_barrier(x->world, WEFT_DEFAULT) >= 0);
}

/* ---- the software driver ---- */

static weft_i_cu_result launch_nothing(const weft_i_cu_launch *config, weft_i_cu_function function,
                                       void **parameters, void **extra)
{
    (void)config, (void)function, (void)parameters, (void)extra;
    return WEFT_I_CUDA_SUCCESS;
}

/* The first calls are real: the members meet there. */
static void count(const operands *x)
{
    weft_i_cuda *driver = (weft_i_cuda *)(uintptr_t)weft_i_cuda_driver();
    CHECK(call(x) >= 0 && call(x) >= 0);
    settle(x);
    driver->cuLaunchKernelEx = launch_nothing;
    CHECK(call(x) >= 0);
    make_calls(x);
    printf("%d calls of rank %d\n", CALLS, weft_rank(x->world));
}

/* ---- a device ---- */

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static weft_i_cu_function empty_kernel(void)
{
    static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                               ".visible .entry nothing(.param .align 8 .b8 p[400]) { ret; }\n";
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_module module = NULL;
    weft_i_cu_function function = NULL;
    CHECK(!cu->cuModuleLoadData(&module, text));
    CHECK(!cu->cuModuleGetFunction(&function, module, "nothing"));
    return function;
}

/* As weft launches: a dependent of what is before it, with parameters of that size. */
static void launch_bare(weft_i_cu_function function, void *stream)
{
    static char parameter[400];
    weft_i_cu_attribute attribute = {
        .id = WEFT_I_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value.programmaticStreamSerializationAllowed = 1};
    weft_i_cu_launch config = {.gridDimX = 64,
                               .gridDimY = 1,
                               .gridDimZ = 1,
                               .blockDimX = 256,
                               .blockDimY = 1,
                               .blockDimZ = 1,
                               .hStream = stream,
                               .attrs = &attribute,
                               .numAttrs = 1};
    CHECK(!weft_i_cuda_driver()->cuLaunchKernelEx(&config, function, (void *[]){parameter}, NULL));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

static void measure(const operands *x, size_t bytes, bool symm)
{
    static double bare[ROUNDS], calls[ROUNDS];
    weft_i_cu_function function = empty_kernel();
    void *stream = weft_stream_native(weft_stream_current(GPU));
    for (int round = -WARMUP; round < ROUNDS; round++) {
        int at = round < 0 ? 0 : round;
        settle(x);
        double start = now_us();
        for (int i = 0; i < CALLS; i++)
            launch_bare(function, stream);
        bare[at] = (now_us() - start) / CALLS;
        settle(x);
        start = now_us();
        make_calls(x);
        calls[at] = (now_us() - start) / CALLS;
    }
    settle(x);
    if (weft_rank(x->world) == 0)
        printf("%-14s %7zu bytes, %s: a bare launch %.2f us, a call %.2f\n", names[x->op], bytes,
               symm ? "symmetric" : "ordinary", median(bare), median(calls));
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    bool real = wanted && !strcmp(wanted, "real"), symm = argc > 3 && !strcmp(argv[3], "symm");
    int op = 0;
    while (argc > 2 && op < OPS && strcmp(argv[1], names[op]))
        op++;
    if (argc < 3 || op == OPS) {
        fprintf(stderr,
                "usage: cuda_call_bench all_reduce|all_gather|reduce_scatter BYTES [symm]\n");
        return 2;
    }
    if (!real) {
        model_install();
        model.multiprocessors = 24; /* room for the blocks of both ranks */
    }
    weft_symm_allow_overlap(true); /* the ranks share the device */
    operands x = {.op = op, .world = weft_init(NULL)};
    CHECK(x.world);
    size_t bytes = strtoull(argv[2], NULL, 10);
    int64_t part = (int64_t)(bytes / 2), all = part * weft_size(x.world);
    x.in = make(op == REDUCE_SCATTER ? all : part, symm, x.world);
    x.out = make(op == ALL_GATHER ? all : part, symm, x.world);
    if (real)
        measure(&x, bytes, symm);
    else
        count(&x);
    return weft_finish(x.world);
}

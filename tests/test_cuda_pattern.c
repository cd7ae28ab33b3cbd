/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of the reference's DistributedPatternTests on a CUDA device: memory that a compiled
 * function frees, or gives to an input that had none.  On the software driver, or on a GPU.
 */
#include "device.h"
#include "jobs.h"

#include "base/status.h"

enum { NUMBERS = 10, BYTES = 40 };
static const char *const backends[] = {"eager", "aot_eager", "c"};

static weft_compiled *compile(weft_graph_function function, const char *backend)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    weft_compiled *compiled = weft_compile(function, NULL, &opts);
    if (!compiled)
        FAIL("%s", weft_last_error());
    return compiled;
}

static int frames_of(const weft_compiled *compiled)
{
    weft_compiled_info info;
    CHECK_OK(weft_compiled_describe(compiled, &info));
    return info.plain ? -1 : info.frames;
}

static weft_tensor *here(weft_tensor *x)
{
    return weft_to(x, WEFT_F32, WEFT_CPU);
}

static weft_tensor *numbers(void)
{
    return weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(NUMBERS));
}

static weft_status free_input(weft_tensor *const *in, __attribute__((unused)) int ins,
                              weft_tensor **out, __attribute__((unused)) int outs,
                              __attribute__((unused)) void *user)
{
    weft_tensor *y = weft_sin(in[0]);
    WEFT_TRY(weft_storage_resize(weft_tensor_storage(in[0]), 0));
    out[0] = weft_cos(y);
    return WEFT_OK;
}

/* What is computed from the memory comes before it is freed, also by a stream that runs later. */
RANKS_TEST(test_storage_resize_zero_gpu, 1)
{
    for (size_t k = 0; k < sizeof backends / sizeof *backends; k++) {
        weft_compiled *compiled = compile(free_input, backends[k]);
        for (int i = 0; i < 3; i++) {
            weft_tensor *x = numbers(), *y = NULL, *expected = weft_cos(weft_sin(x));
            CHECK_OK(weft_compiled_call(compiled, &x, 1, &y, 1));
            CHECK_INT(weft_storage_bytes(weft_tensor_storage(x)), 0);
            CHECK(weft_tensor_device(y) == DEVICE);
            CHECK(weft_allclose(here(y), here(expected), 1e-6, 1e-6, false));
            CHECK_INT(weft_tensor_version(x), 0);
        }
        CHECK_INT(frames_of(compiled), 1);
        weft_release(compiled);
    }
}

static weft_status fill_freed(weft_tensor *const *in, __attribute__((unused)) int ins,
                              weft_tensor **out, __attribute__((unused)) int outs,
                              __attribute__((unused)) void *user)
{
    weft_tensor *x = in[0], *result = in[1], *y = weft_sin(x);
    if (weft_storage_bytes(weft_tensor_storage(result)) != 0)
        return WEFT_ERR_STATE;
    WEFT_TRY(weft_storage_resize(weft_tensor_storage(result),
                                 weft_storage_bytes(weft_tensor_storage(x))));
    WEFT_TRY(weft_copy(result, weft_cos(y)));
    out[0] = result;
    return WEFT_OK;
}

RANKS_TEST(test_storage_resize_nonzero_gpu, 1)
{
    for (size_t k = 0; k < sizeof backends / sizeof *backends; k++) {
        weft_compiled *compiled = compile(fill_freed, backends[k]);
        for (int i = 0; i < 3; i++) {
            weft_tensor *x = numbers(), *y = NULL;
            weft_tensor *result = weft_empty(WEFT_F32, DEVICE, WEFT_SHAPE(NUMBERS));
            CHECK_OK(weft_resize_storage(result, 0));
            CHECK_OK(weft_compiled_call(compiled, (weft_tensor *[]){x, result}, 2, &y, 1));
            CHECK(y == result);
            CHECK_INT(weft_storage_bytes(weft_tensor_storage(result)), BYTES);
            CHECK(weft_allclose(here(result), here(weft_cos(weft_sin(x))), 1e-6, 1e-6, false));
        }
        CHECK_INT(frames_of(compiled), 1);
        /* A size that was read is guarded: a target that is not empty is another matter. */
        weft_tensor *x = numbers(), *full = numbers(), *y = NULL;
        CHECK(weft_compiled_call(compiled, (weft_tensor *[]){x, full}, 2, &y, 1) < 0);
        weft_clear_error();
        weft_release(compiled);
    }
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}

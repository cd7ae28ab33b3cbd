/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of variants.cu for the benchmark: loads them from the file that the build has made, and
 * launches one on a team as the library does with its own. */
#ifndef WEFT_TESTS_CUDA_VARIANTS_H
#define WEFT_TESTS_CUDA_VARIANTS_H

#include "backends/cuda/ranks/team.h"
#include "base/os/os.h"
#include "base/share/signal.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct variant {
    const char *name, *what;
    int ranks, blocks;
    bool is_sum;
    weft_i_cu_function function;
} variant;

#define VARIANT_IS_SUM    true
#define VARIANT_IS_GATHER false
#define VARIANT_IS_FREE   false
#define VARIANT_IS_TURNED false
#define VARIANT_IS_SPLIT  false
static variant variants[] = {
#define VARIANT(name_, kind_, ranks_, width_, tiled_, streamed_, blocks_, what_) \
    {"weft_variant_" #name_, what_, ranks_, blocks_, VARIANT_IS_##kind_, NULL},
#include "variants.def"
#undef VARIANT
};
enum { VARIANTS = sizeof variants / sizeof *variants };

#ifdef WEFT_CUDA_VARIANTS
static char *variants_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *image = NULL;
    if (file && fseek(file, 0, SEEK_END) == 0) {
        long bytes = ftell(file);
        rewind(file);
        image = bytes > 0 ? malloc((size_t)bytes) : NULL;
        if (image && fread(image, 1, (size_t)bytes, file) != (size_t)bytes) {
            free(image);
            image = NULL;
        }
    }
    if (file)
        fclose(file);
    return image;
}

/* Once; they stay until the process ends. */
static weft_status variants_load(void)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_module module;
    if (variants[0].function)
        return WEFT_OK;
    char *image = variants_read(WEFT_CUDA_VARIANTS);
    if (!image)
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "there is no %s", WEFT_CUDA_VARIANTS);
    weft_i_cu_result result = cu->cuModuleLoadData(&module, image);
    free(image);
    WEFT_CUDA_TRY(result, "loading %s", WEFT_CUDA_VARIANTS);
    for (int i = 0; i < VARIANTS; i++)
        WEFT_CUDA_TRY(cu->cuModuleGetFunction(&variants[i].function, module, variants[i].name),
                      "kernel %s", variants[i].name);
    return WEFT_OK;
}
#else
static weft_status variants_load(void)
{
    return weft_i_fail(WEFT_ERR_UNSUPPORTED, "built without nvcc");
}
#endif

/* all_reduce in place at `data`, or all_gather from there to `result`; `bytes` is the whole. */
static weft_status variant_launch(const variant *v, weft_i_cuda_team *team,
                                  weft_i_cuda_stream *stream, size_t bytes, weft_i_cuda_reach data,
                                  weft_i_cuda_reach result)
{
    size_t part = bytes / (size_t)team->group.size, own = (size_t)team->group.rank;
    weft_i_cuda_kernel like = v->is_sum ? WEFT_I_CUDA_two_shot_bf16_4 : WEFT_I_CUDA_move;
    int blocks = team->resident[like] / (2 * team->sharing);
    blocks = blocks < (int)team->group.lines ? blocks : (int)team->group.lines;
    blocks = v->blocks && v->blocks < blocks ? v->blocks : blocks;
    weft_k_call call = {.group = team->group,
                        .limit_ns = (uint64_t)10000 * 1000000,
                        .digest = weft_i_digest(0x700, bytes),
                        .dtype = WEFT_BF16,
                        .count = v->is_sum ? bytes / 2 : part,
                        .from = v->is_sum ? data.base : data.base + own * data.step,
                        .from_step = v->is_sum ? data.step : 0,
                        .to = v->is_sum ? data.base : result.base + own * part,
                        .to_step = v->is_sum ? data.step : result.step,
                        .first = team->group.rank,
                        .peers = team->group.size};
    weft_i_cu_attribute attribute = {
        .id = WEFT_I_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value.programmaticStreamSerializationAllowed = 1};
    weft_i_cu_launch config = {.gridDimX = (unsigned)blocks,
                               .gridDimY = 1,
                               .gridDimZ = 1,
                               .blockDimX = (unsigned)team->device->kernel_threads[like],
                               .blockDimY = 1,
                               .blockDimZ = 1,
                               .hStream = weft_i_cuda_stream_raw(stream),
                               .attrs = &attribute,
                               .numAttrs = 1};
    void *parameters[] = {&call};
    WEFT_TRY(weft_i_cuda_team_check(team));
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuLaunchKernelEx(&config, v->function, parameters, NULL),
                  "%s", v->name);
    return WEFT_OK;
}

#endif

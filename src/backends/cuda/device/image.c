/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels as they travel inside the library: a fat binary that nvcc made when weft was built,
 * and their text, which NVRTC compiles on the spot where there was no nvcc.
 */
#include "device.h"

#include "nvrtc.h"

#include "base/os/os.h"
#include "base/report/log.h"

/* Puts a file into the read-only data, between two labels, with a 0 behind it. */
#define EMBED(label_, file_)                    \
    __asm__(".pushsection .rodata\n"            \
            ".balign 16\n"                      \
            ".global weft_i_cuda_" #label_ "\n" \
            ".hidden weft_i_cuda_" #label_ "\n" \
            "weft_i_cuda_" #label_ ":\n"        \
            ".incbin \"" file_ "\"\n"           \
            ".byte 0\n"                         \
            ".popsection\n");                   \
    extern const char weft_i_cuda_##label_[]

#ifdef WEFT_CUDA_FATBIN
EMBED(fatbin_kernels, WEFT_CUDA_FATBIN "/kernels.fatbin");
EMBED(fatbin_tensor, WEFT_CUDA_FATBIN "/tensor.fatbin");
#else
#define WEFT_CUDA_OLDEST 0
#endif
EMBED(text_kernels, WEFT_CUDA_TEXT "/kernels.cu");
EMBED(text_tensor, WEFT_CUDA_TEXT "/tensor.cu");
#define OWN                          WEFT_CUDA_TEXT
#define SHARED                       WEFT_CUDA_SHARED
#define TEXT(label_, folder_, name_) EMBED(text_##label_, folder_ "/" name_);
#include "backends/cuda/device/texts.def"
#undef TEXT

/* NVRTC has no standard headers. */
static const char text_stdint[] =
    "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long "
    "int64_t;\n"
    "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int "
    "uint32_t;\n"
    "typedef unsigned long uint64_t; typedef unsigned long uintptr_t;\n";

static const char *const names[] = {
#define TEXT(label_, folder_, name_) name_,
#include "backends/cuda/device/texts.def"
#undef TEXT
    "stdint.h"};
static const char *const texts[] = {
#define TEXT(label_, folder_, name_) weft_i_cuda_text_##label_,
#include "backends/cuda/device/texts.def"
#undef TEXT
    text_stdint};
enum { TEXTS = sizeof texts / sizeof *texts };

const char *weft_i_cuda_compile_option;

int weft_i_cuda_headers(const char *const **out_texts, const char *const **out_names)
{
    *out_texts = texts;
    *out_names = names;
    return TEXTS;
}

weft_status weft_i_cuda_compile(int image, int major, int minor, void **out)
{
    static const char *const sources[] = {weft_i_cuda_text_kernels, weft_i_cuda_text_tensor};
    static const char *const titles[] = {"kernels.cu", "tensor.cu"};
    size_t bytes;
    weft_i_nvrtc_job job = {.source = sources[image],
                            .title = titles[image],
                            .what = "weft's kernels",
                            .major = major,
                            .minor = minor,
                            .deadline = WEFT_I_NEVER};
    return weft_i_nvrtc_compile(&job, out, &bytes);
}

const void *weft_i_cuda_embedded(int image)
{
#ifdef WEFT_CUDA_FATBIN
    return image == WEFT_I_CUDA_IMAGE_TENSOR ? weft_i_cuda_fatbin_tensor
                                             : weft_i_cuda_fatbin_kernels;
#else
    (void)image;
    return NULL;
#endif
}

weft_status weft_i_cuda_image(const weft_i_cuda_device *device, int image, const void **out,
                              void **release)
{
    *release = NULL;
    *out =
        device->major * 10 + device->minor < WEFT_CUDA_OLDEST ? NULL : weft_i_cuda_embedded(image);
    if (*out)
        return WEFT_OK;
    weft_i_log(WEFT_LOG_INFO, "no compiled kernels for %s in this library: NVRTC makes them",
               device->name);
    WEFT_TRY(weft_i_cuda_compile(image, device->major, device->minor, release));
    *out = *release;
    return WEFT_OK;
}

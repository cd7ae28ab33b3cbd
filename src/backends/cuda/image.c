/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels as they travel inside the library: a fat binary that nvcc made when weft was built,
 * and their text, which NVRTC compiles on the spot where there was no nvcc.
 */
#include "device.h"

#include "nvrtc.h"

#include "base/log.h"
#include "base/os.h"

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
EMBED(text_def, WEFT_CUDA_TEXT "/kernels.def");
EMBED(text_tensor_def, WEFT_CUDA_TEXT "/tensor.def");
EMBED(text_device, WEFT_CUDA_TEXT "/device.h");
EMBED(text_column_sums, WEFT_CUDA_TEXT "/column_sums.h");
EMBED(text_held, WEFT_CUDA_TEXT "/held.h");
EMBED(text_index, WEFT_CUDA_TEXT "/index.h");
EMBED(text_layout, WEFT_CUDA_TEXT "/layout.h");
EMBED(text_p2p, WEFT_CUDA_TEXT "/p2p.h");
EMBED(text_make, WEFT_CUDA_TEXT "/make.h");
EMBED(text_meet, WEFT_CUDA_TEXT "/meet.h");
EMBED(text_narrow, WEFT_CUDA_TEXT "/narrow.h");
EMBED(text_move, WEFT_CUDA_TEXT "/move.h");
EMBED(text_multimem, WEFT_CUDA_TEXT "/multimem.h");
EMBED(text_rows, WEFT_CUDA_TEXT "/rows.h");
EMBED(text_rows_type, WEFT_CUDA_TEXT "/rows_type.h");
EMBED(text_number, WEFT_CUDA_TEXT "/number.h");
EMBED(text_optim, WEFT_CUDA_TEXT "/optim.h");
EMBED(text_order, WEFT_CUDA_TEXT "/order.h");
EMBED(text_packed, WEFT_CUDA_TEXT "/packed.h");
EMBED(text_packet, WEFT_CUDA_TEXT "/packet.h");
EMBED(text_expression_groups, WEFT_CUDA_TEXT "/expressions.h");
EMBED(text_expressions_type, WEFT_CUDA_TEXT "/expressions_type.h");
EMBED(text_reduce, WEFT_CUDA_TEXT "/reduce.h");
EMBED(text_signal, WEFT_CUDA_TEXT "/signal.h");
EMBED(text_staged, WEFT_CUDA_TEXT "/staged.h");
EMBED(text_sums, WEFT_CUDA_TEXT "/sums.h");
EMBED(text_tensor_layout, WEFT_CUDA_TEXT "/tensor_layout.h");
EMBED(text_tile, WEFT_CUDA_TEXT "/tile.h");
EMBED(text_turn, WEFT_CUDA_TEXT "/turn.h");
EMBED(text_vdev, WEFT_CUDA_TEXT "/vdev.h");
EMBED(text_draw, WEFT_CUDA_SHARED "/draw.h");
EMBED(text_math, WEFT_CUDA_SHARED "/math.h");
EMBED(text_math_angle, WEFT_CUDA_SHARED "/math_angle.h");
EMBED(text_math_f32, WEFT_CUDA_SHARED "/math_f32.h");
EMBED(text_math_f64, WEFT_CUDA_SHARED "/math_f64.h");
EMBED(text_expressions, WEFT_CUDA_SHARED "/pointwise.def");
EMBED(text_small, WEFT_CUDA_SHARED "/small.h");
EMBED(text_update_step, WEFT_CUDA_SHARED "/update_step.h");

/* NVRTC has no standard headers. */
static const char text_stdint[] =
    "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long "
    "int64_t;\n"
    "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int "
    "uint32_t;\n"
    "typedef unsigned long uint64_t; typedef unsigned long uintptr_t;\n";

static const char *const names[] = {"kernels.def",
                                    "tensor.def",
                                    "device.h",
                                    "column_sums.h",
                                    "held.h",
                                    "index.h",
                                    "layout.h",
                                    "p2p.h",
                                    "make.h",
                                    "meet.h",
                                    "move.h",
                                    "multimem.h",
                                    "narrow.h",
                                    "rows.h",
                                    "rows_type.h",
                                    "number.h",
                                    "optim.h",
                                    "order.h",
                                    "packed.h",
                                    "packet.h",
                                    "expressions.h",
                                    "expressions_type.h",
                                    "reduce.h",
                                    "signal.h",
                                    "staged.h",
                                    "sums.h",
                                    "tile.h",
                                    "turn.h",
                                    "vdev.h",
                                    "tensor_layout.h",
                                    "kernels/draw.h",
                                    "kernels/math.h",
                                    "kernels/math_angle.h",
                                    "kernels/math_f32.h",
                                    "kernels/math_f64.h",
                                    "kernels/pointwise.def",
                                    "kernels/small.h",
                                    "kernels/update_step.h",
                                    "stdint.h"};
static const char *const texts[] = {weft_i_cuda_text_def,
                                    weft_i_cuda_text_tensor_def,
                                    weft_i_cuda_text_device,
                                    weft_i_cuda_text_column_sums,
                                    weft_i_cuda_text_held,
                                    weft_i_cuda_text_index,
                                    weft_i_cuda_text_layout,
                                    weft_i_cuda_text_p2p,
                                    weft_i_cuda_text_make,
                                    weft_i_cuda_text_meet,
                                    weft_i_cuda_text_move,
                                    weft_i_cuda_text_multimem,
                                    weft_i_cuda_text_narrow,
                                    weft_i_cuda_text_rows,
                                    weft_i_cuda_text_rows_type,
                                    weft_i_cuda_text_number,
                                    weft_i_cuda_text_optim,
                                    weft_i_cuda_text_order,
                                    weft_i_cuda_text_packed,
                                    weft_i_cuda_text_packet,
                                    weft_i_cuda_text_expression_groups,
                                    weft_i_cuda_text_expressions_type,
                                    weft_i_cuda_text_reduce,
                                    weft_i_cuda_text_signal,
                                    weft_i_cuda_text_staged,
                                    weft_i_cuda_text_sums,
                                    weft_i_cuda_text_tile,
                                    weft_i_cuda_text_turn,
                                    weft_i_cuda_text_vdev,
                                    weft_i_cuda_text_tensor_layout,
                                    weft_i_cuda_text_draw,
                                    weft_i_cuda_text_math,
                                    weft_i_cuda_text_math_angle,
                                    weft_i_cuda_text_math_f32,
                                    weft_i_cuda_text_math_f64,
                                    weft_i_cuda_text_expressions,
                                    weft_i_cuda_text_small,
                                    weft_i_cuda_text_update_step,
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

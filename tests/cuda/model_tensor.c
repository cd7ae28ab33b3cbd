/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of tensor operations for the C compiler. */
#include "model.h"

#include <math.h>

#include "tensor.cu"

#define KERNEL(name_, threads_, type_, body_)           \
    static void run_##name_(const void *parameter)      \
    {                                                   \
        weft_kernel_##name_(*(const type_ *)parameter); \
    }
#include "tensor.def"
#undef KERNEL

const model_kernel model_tensor_kernels[] = {
#define KERNEL(name_, threads_, type_, body_) \
    {"weft_kernel_" #name_, sizeof(type_), threads_, run_##name_, NULL, NULL},
#include "tensor.def"
#undef KERNEL
    {NULL, 0, 0, NULL, NULL, NULL},
};

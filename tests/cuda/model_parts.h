/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the software driver share. */
#ifndef WEFT_TESTS_CUDA_MODEL_PARTS_H
#define WEFT_TESTS_CUDA_MODEL_PARTS_H

#include "model.h"

#include "backends/cuda/device/driver.h"
#include "base/os/os.h"

/* What a function needs: nothing, cuInit, or a current context as well. */
enum { MODEL_FREE, MODEL_STARTED, MODEL_CURRENT };
weft_i_cu_result model_enter(const char *name, int level);
int model_ordinal(void); /* of the current context's device */
void model_born(void);
void model_gone(void);
void model_mapped_born(void); /* the same, of what model_mapped counts */
void model_mapped_gone(void);

/* Runs `run(parameter)` in the order of the stream; the parameter, of malloc, becomes the stream's.
 */
int model_call(weft_i_cu_stream stream, void (*run)(void *parameter), void *parameter,
               size_t bytes);

/* Memory that is mapped, or a multicast object, which has a page instead. */
enum { MODEL_GRANULARITY = 1 << 16 };
typedef struct model_block {
    int fd;
    size_t bytes;
    int device; /* 0: imported */
    struct model_page *page;
} model_block;

/* Of multicast: an imported block becomes an object if it is one, and a released one ends; an object
 * is mapped; an address is no longer mapped; whether it is one of multicast; and where a block was
 * mapped. */
weft_i_cu_result model_multicast_import(model_block *block);
void model_multicast_release(model_block *block);
weft_i_cu_result model_multicast_map(const model_block *block, uintptr_t at, size_t bytes);
void model_multicast_unmap(uintptr_t at);
bool model_multicast_is(uintptr_t at);
void model_multicast_note(const model_block *block, void *at);

/* A function of the stand-in for libcublasLt.so; NULL if it has none of that name. */
void *model_blas_symbol(const char *name);
/* The same of libnvrtc.so; and the modules that it makes.  NULL: not one of its images. */
void *model_nvrtc_symbol(const char *name);
typedef struct model_module model_module;
model_module *model_module_load(const void *image);
const model_kernel *model_module_find(model_module *module, const char *name);
void model_module_free(model_module *module);
/* The same of libnvidia-ml.so.1. */
void *model_nvml_symbol(const char *name);

/* Every function of the driver. */
#define FN(name_, version_, parameters_)       weft_i_cu_result model_##name_ parameters_;
#define OPTIONAL(name_, version_, parameters_) weft_i_cu_result model_##name_ parameters_;
#include "backends/cuda/device/driver.def"
#undef FN
#undef OPTIONAL

/* The first line of each: faults that are wished for, and what it needs. */
#define MODEL_ENTER(name_, level_)                               \
    do {                                                         \
        weft_i_cu_result entered_ = model_enter(#name_, level_); \
        if (entered_)                                            \
            return entered_;                                     \
    } while (0)

#endif

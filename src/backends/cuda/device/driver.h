/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver as weft sees it: its types, structs and constants declared here, its functions
 * loaded at run time.  So weft builds without a CUDA toolkit and runs without a driver.
 * tests/cuda/test_cuda_abi.c holds every declaration against cuda.h where there is one.
 *
 * Nothing here is called before the first device is opened: a process that has initialised CUDA and
 * then forks has children in which no CUDA call works.
 */
#ifndef WEFT_CUDA_DRIVER_H
#define WEFT_CUDA_DRIVER_H

#include "base/report/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int weft_i_cu_result, weft_i_cu_device;
typedef uint64_t weft_i_cu_ptr, weft_i_cu_handle;
typedef struct weft_i_cu_ctx_st *weft_i_cu_ctx;
typedef struct weft_i_cu_stream_st *weft_i_cu_stream;
typedef struct weft_i_cu_event_st *weft_i_cu_event;
typedef struct weft_i_cu_pool_st *weft_i_cu_pool;
typedef struct weft_i_cu_module_st *weft_i_cu_module;
typedef struct weft_i_cu_function_st *weft_i_cu_function;
typedef struct weft_i_cu_graph_st *weft_i_cu_graph;
typedef uint64_t weft_i_cu_capture_id;
typedef struct weft_i_cu_graph_exec_st *weft_i_cu_graph_exec;

typedef struct weft_i_cu_uuid {
    char bytes[16];
} weft_i_cu_uuid;

/* The names of the members are those of cuda.h: the test compares them one by one. */
typedef struct weft_i_cu_location {
    int type, id;
} weft_i_cu_location;

typedef struct weft_i_cu_memory {
    int type, requestedHandleTypes;
    weft_i_cu_location location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} weft_i_cu_memory;

typedef struct weft_i_cu_access {
    weft_i_cu_location location;
    int flags;
} weft_i_cu_access;

typedef struct weft_i_cu_multicast {
    unsigned numDevices;
    size_t size;
    unsigned long long handleTypes, flags;
} weft_i_cu_multicast;

typedef struct weft_i_cu_attribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        int programmaticStreamSerializationAllowed, priority;
    } value;
} weft_i_cu_attribute;

typedef struct weft_i_cu_launch {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    weft_i_cu_stream hStream;
    weft_i_cu_attribute *attrs;
    unsigned numAttrs;
} weft_i_cu_launch;

typedef struct weft_i_cu_copy_2d {
    size_t srcXInBytes, srcY;
    int srcMemoryType;
    const void *srcHost;
    weft_i_cu_ptr srcDevice;
    void *srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    int dstMemoryType;
    void *dstHost;
    weft_i_cu_ptr dstDevice;
    void *dstArray;
    size_t dstPitch, WidthInBytes, Height;
} weft_i_cu_copy_2d;

typedef union weft_i_cu_mem_op {
    int operation;
    struct {
        int operation;
        weft_i_cu_ptr address;
        uint64_t value64;
        unsigned flags;
        weft_i_cu_ptr alias;
    } writeValue, waitValue;
    uint64_t pad[6];
} weft_i_cu_mem_op;

/* Constants of cuda.h, by their own names behind WEFT_I_: value, compared by the test. */
#define WEFT_I_CU_CONSTANTS(X_)                                      \
    X_(CUDA_SUCCESS, 0)                                              \
    X_(CUDA_ERROR_INVALID_VALUE, 1)                                  \
    X_(CUDA_ERROR_OUT_OF_MEMORY, 2)                                  \
    X_(CUDA_ERROR_NOT_INITIALIZED, 3)                                \
    X_(CUDA_ERROR_DEINITIALIZED, 4)                                  \
    X_(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                            \
    X_(CUDA_ERROR_NO_DEVICE, 100)                                    \
    X_(CUDA_ERROR_INVALID_DEVICE, 101)                               \
    X_(CUDA_ERROR_INVALID_IMAGE, 200)                                \
    X_(CUDA_ERROR_INVALID_CONTEXT, 201)                              \
    X_(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                            \
    X_(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                            \
    X_(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)                      \
    X_(CUDA_ERROR_INVALID_PTX, 218)                                  \
    X_(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                         \
    X_(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                      \
    X_(CUDA_ERROR_CONTAINED, 226)                                    \
    X_(CUDA_ERROR_OPERATING_SYSTEM, 304)                             \
    X_(CUDA_ERROR_INVALID_HANDLE, 400)                               \
    X_(CUDA_ERROR_NOT_FOUND, 500)                                    \
    X_(CUDA_ERROR_NOT_READY, 600)                                    \
    X_(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                              \
    X_(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                      \
    X_(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                               \
    X_(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                  \
    X_(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                         \
    X_(CUDA_ERROR_ASSERT, 710)                                       \
    X_(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                         \
    X_(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                          \
    X_(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                           \
    X_(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                        \
    X_(CUDA_ERROR_INVALID_PC, 718)                                   \
    X_(CUDA_ERROR_LAUNCH_FAILED, 719)                                \
    X_(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721)                           \
    X_(CUDA_ERROR_NOT_SUPPORTED, 801)                                \
    X_(CUDA_ERROR_SYSTEM_NOT_READY, 802)                             \
    X_(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                       \
    X_(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810)                        \
    X_(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                   \
    X_(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                   \
    X_(CUDA_ERROR_EXTERNAL_DEVICE, 911)                              \
    X_(CUDA_ERROR_UNKNOWN, 999)                                      \
    X_(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                 \
    X_(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                 \
    X_(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                   \
    X_(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)             \
    X_(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)             \
    X_(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102) \
    X_(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)              \
    X_(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 132)                 \
    X_(CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 133)                         \
    X_(CU_STREAM_NON_BLOCKING, 1)                                    \
    X_(CU_STREAM_CAPTURE_STATUS_NONE, 0)                             \
    X_(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                           \
    X_(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                       \
    X_(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                            \
    X_(CU_STREAM_WAIT_VALUE_GEQ, 0)                                  \
    X_(CU_STREAM_MEM_OP_WAIT_VALUE_64, 4)                            \
    X_(CU_STREAM_MEM_OP_WRITE_VALUE_64, 5)                           \
    X_(CU_EVENT_DEFAULT, 0)                                          \
    X_(CU_EVENT_DISABLE_TIMING, 2)                                   \
    X_(CU_MEMHOSTALLOC_PORTABLE, 1)                                  \
    X_(CU_MEMHOSTALLOC_DEVICEMAP, 2)                                 \
    X_(CU_MEMORYTYPE_HOST, 1)                                        \
    X_(CU_MEMORYTYPE_DEVICE, 2)                                      \
    X_(CU_MEMORYTYPE_UNIFIED, 4)                                     \
    X_(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                          \
    X_(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                       \
    X_(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 3)         \
    X_(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4)                         \
    X_(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3)                        \
    X_(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)                                \
    X_(CU_LAUNCH_ATTRIBUTE_PRIORITY, 8)                              \
    X_(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6)     \
    X_(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                             \
    X_(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                  \
    X_(CU_MEM_LOCATION_TYPE_DEVICE, 1)                               \
    X_(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                        \
    X_(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                          \
    X_(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                      \
    X_(CU_MODULE_EAGER_LOADING, 1)                                   \
    X_(CU_MODULE_LAZY_LOADING, 2)                                    \
    X_(CU_MULTICAST_GRANULARITY_MINIMUM, 0)                          \
    X_(CU_GET_PROC_ADDRESS_DEFAULT, 0)

enum {
#define CONSTANT(name_, value_) WEFT_I_##name_ = value_,
    WEFT_I_CU_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* Events without a clock cost less; all events of ours are such, except those that measure. */
typedef struct weft_i_cuda {
#define FN(name_, version_, parameters_)       weft_i_cu_result(*name_) parameters_;
#define OPTIONAL(name_, version_, parameters_) weft_i_cu_result(*name_) parameters_;
#include "driver.def"
#undef FN
#undef OPTIONAL
    int version; /* of the driver: 13000 for CUDA 13.0 */
} weft_i_cuda;

enum { WEFT_I_CUDA_OLDEST = 12000 }; /* CUDA 12.0: the first with all that is not optional */

/*
 * Loads libcuda.so.1 and finds every function; does not initialise it, so a fork may still follow.
 * WEFT_ERR_UNSUPPORTED with the reason: no library, a driver that is too old, a missing function.
 */
weft_status weft_i_cuda_load(const weft_i_cuda **out);

/*
 * The same, and cuInit.  WEFT_ERR_UNSUPPORTED if there is no device or the driver refuses;
 * WEFT_ERR_STATE in a child of the process that did it before the fork.
 */
weft_status weft_i_cuda_start(const weft_i_cuda **out);

/* The functions, after weft_i_cuda_start has succeeded once: a load. */
const weft_i_cuda *weft_i_cuda_driver(void);

/* Is this the process that started the driver?  WEFT_ERR_STATE in its children. */
weft_status weft_i_cuda_check_process(void);

/*
 * Turns a result of the driver into a status with a message: what was tried, the driver's name and
 * sentence for the result.  CUDA_SUCCESS is WEFT_OK.  Out of memory and unsupported have their own
 * status; errors after which the device's state in this process is lost give WEFT_ERR_DEVICE, and
 * so does every later call on it.
 */
weft_status weft_i_cuda_fail(weft_i_cu_result result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define WEFT_CUDA_TRY(call_, ...)                                    \
    do {                                                             \
        weft_i_cu_result try_result_ = (call_);                      \
        if (__builtin_expect(try_result_ != WEFT_I_CUDA_SUCCESS, 0)) \
            return weft_i_cuda_fail(try_result_, __VA_ARGS__);       \
    } while (0)

/* Is code loaded at its first use, which may wait until no kernel of the process runs? */
bool weft_i_cuda_loads_late(void);

/* Does the driver keep giving this result until the process ends? */
bool weft_i_cuda_is_sticky(weft_i_cu_result result);

#endif

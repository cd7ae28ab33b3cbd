/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UCX as weft sees it: what we declare of its interface, and how the library is loaded.  Nothing of it
 * is needed to build.  tests/transport/test_ucx_abi.c compares all of this with ucp.h where there is
 * one.  Every structure begins with a mask of the fields that are meant, so a later library reads and
 * writes no others.
 */
#ifndef WEFT_UCX_LIBRARY_H
#define WEFT_UCX_LIBRARY_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int8_t weft_i_ucs_status; /* ucs_status_t is a packed enum */
typedef struct weft_i_ucp_config_ *weft_i_ucp_config;
typedef struct weft_i_ucp_library_ *weft_i_ucp_library; /* ucp_context_h */
typedef struct weft_i_ucp_worker_ *weft_i_ucp_worker;
typedef struct weft_i_ucp_ep_ *weft_i_ucp_ep;
typedef struct weft_i_ucp_mem_ *weft_i_ucp_mem;
typedef struct weft_i_ucp_rkey_ *weft_i_ucp_rkey;

/* ucp_params_t */
typedef struct weft_i_ucp_params {
    uint64_t mask, features;
    size_t request_bytes;
    void (*request_init)(void *), (*request_cleanup)(void *);
    uint64_t tag_sender_mask;
    int workers_shared;
    size_t endpoints, per_node;
    const char *name;
} weft_i_ucp_params;

/* The beginning of ucp_context_attr_t. */
typedef struct weft_i_ucp_library_attr {
    uint64_t mask;
    size_t request_bytes;
    int thread_mode;
    uint64_t memory_types;
    char name[32];
} weft_i_ucp_library_attr;

/* ucp_worker_params_t */
typedef struct weft_i_ucp_worker_params {
    uint64_t mask;
    int thread_mode;
    uint64_t cores[16];
    unsigned events;
    void *user;
    int event_fd;
    uint64_t flags;
    const char *name;
    size_t alignment;
    uint64_t client;
} weft_i_ucp_worker_params;

/* ucp_worker_attr_t */
typedef struct weft_i_ucp_worker_attr {
    uint64_t mask;
    int thread_mode;
    uint32_t address_flags;
    void *address;
    size_t address_bytes, am_head_bytes;
    char name[32];
    size_t debug_bytes;
} weft_i_ucp_worker_attr;

typedef struct weft_i_ucp_am_received {
    uint64_t attr;
    weft_i_ucp_ep reply;
} weft_i_ucp_am_received;

/* ucp_am_handler_param_t */
typedef struct weft_i_ucp_am_target {
    uint64_t mask;
    unsigned id;
    uint32_t flags;
    weft_i_ucs_status (*call)(void *arg, const void *head, size_t head_bytes, void *data,
                              size_t bytes, const weft_i_ucp_am_received *how);
    void *arg;
} weft_i_ucp_am_target;

/* ucp_ep_params_t */
typedef struct weft_i_ucp_ep_params {
    uint64_t mask;
    const void *address;
    int error_mode;
    void (*on_error)(void *arg, weft_i_ucp_ep ep, weft_i_ucs_status status);
    void *on_error_arg;
    void *user;
    unsigned flags;
    struct {
        const void *address;
        uint32_t bytes;
    } socket;
    void *request;
    const char *name;
    struct {
        const void *address;
        uint32_t bytes;
    } local;
} weft_i_ucp_ep_params;

/* ucp_request_param_t */
typedef struct weft_i_ucp_request_params {
    uint32_t mask, flags;
    void *request;
    void (*call)(void *request, weft_i_ucs_status status, void *user);
    uint64_t datatype;
    void *user;
    void *reply;
    int memory_type;
    void *info;
    weft_i_ucp_mem mem;
} weft_i_ucp_request_params;

/* ucp_mem_map_params_t */
typedef struct weft_i_ucp_map_params {
    uint64_t mask;
    void *address;
    size_t bytes;
    unsigned flags, protection;
    int memory_type;
} weft_i_ucp_map_params;

// clang-format off
#define WEFT_I_UCX_CONSTANTS(X_)                       \
    X_(UCS_OK, 0)                                      \
    X_(UCS_INPROGRESS, 1)                              \
    X_(UCS_ERR_NO_MEMORY, -4)                          \
    X_(UCS_ERR_UNREACHABLE, -6)                        \
    X_(UCS_ERR_BUSY, -15)                              \
    X_(UCS_ERR_CANCELED, -16)                          \
    X_(UCS_ERR_TIMED_OUT, -20)                         \
    X_(UCS_ERR_REJECTED, -23)                          \
    X_(UCS_ERR_NOT_CONNECTED, -24)                     \
    X_(UCS_ERR_CONNECTION_RESET, -25)                  \
    X_(UCS_ERR_ENDPOINT_TIMEOUT, -80)                  \
    X_(UCS_ERR_LAST, -100)                             \
    X_(UCP_PARAM_FIELD_FEATURES, 1)                    \
    X_(UCP_PARAM_FIELD_ESTIMATED_NUM_EPS, 64)          \
    X_(UCP_FEATURE_RMA, 2)                             \
    X_(UCP_FEATURE_WAKEUP, 16)                         \
    X_(UCP_FEATURE_AM, 64)                             \
    X_(UCP_ATTR_FIELD_MEMORY_TYPES, 4)                 \
    X_(UCP_WORKER_PARAM_FIELD_THREAD_MODE, 1)          \
    X_(UCP_WORKER_PARAM_FIELD_FLAGS, 32)               \
    X_(UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK, 1)         \
    X_(UCS_THREAD_MODE_SERIALIZED, 1)                  \
    X_(UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER, 8)         \
    X_(UCP_AM_HANDLER_PARAM_FIELD_ID, 1)               \
    X_(UCP_AM_HANDLER_PARAM_FIELD_CB, 4)               \
    X_(UCP_AM_HANDLER_PARAM_FIELD_ARG, 8)              \
    X_(UCP_AM_RECV_ATTR_FLAG_RNDV, 131072)             \
    X_(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, 1)           \
    X_(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE, 2)        \
    X_(UCP_EP_PARAM_FIELD_ERR_HANDLER, 4)              \
    X_(UCP_ERR_HANDLING_MODE_PEER, 1)                  \
    X_(UCP_EP_CLOSE_FLAG_FORCE, 1)                     \
    X_(UCP_AM_SEND_FLAG_EAGER, 2)                      \
    X_(UCP_OP_ATTR_FIELD_CALLBACK, 2)                  \
    X_(UCP_OP_ATTR_FIELD_USER_DATA, 4)                 \
    X_(UCP_OP_ATTR_FIELD_FLAGS, 16)                    \
    X_(UCP_MEM_MAP_PARAM_FIELD_ADDRESS, 1)             \
    X_(UCP_MEM_MAP_PARAM_FIELD_LENGTH, 2)              \
    X_(UCS_MEMORY_TYPE_CUDA, 1)
// clang-format on

enum {
#define CONSTANT(name_, value_) WEFT_I_##name_ = (value_),
    WEFT_I_UCX_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* The interface that weft asks for; the first with all functions of library.def.  Nothing is known of
 * what begins with a 2. */
enum { WEFT_I_UCX_MAJOR = 1, WEFT_I_UCX_MINOR = 13 };

typedef struct weft_i_ucx {
#define FN(result_, name_, parameters_)       result_(*name_) parameters_;
#define OPTIONAL(result_, name_, parameters_) result_(*name_) parameters_;
#include "library.def"
#undef FN
#undef OPTIONAL
    unsigned major, minor, release;
} weft_i_ucx;

/*
 * Loads the library that WEFT_UCX_LIBRARY names and finds every function; opens nothing.  The signal
 * handlers and the mappings of the program stay as they are, unless the user's own UCX_ERROR_SIGNALS or
 * UCX_MEM_EVENTS ask for it.  WEFT_ERR_UNSUPPORTED with the reason: WEFT_UCX is off, no library, a
 * version that will not do, a missing function.
 */
weft_status weft_i_ucx_load(const weft_i_ucx **out);

/* After weft_i_ucx_load has succeeded once. */
const weft_i_ucx *weft_i_ucx_library(void);

weft_status weft_i_ucx_status_of(weft_i_ucs_status status);
/* As a status with a message: what was tried, and UCX's sentence. */
weft_status weft_i_ucx_fail(weft_i_ucs_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What calls that may go on return: NULL, a request, or an error in the clothes of a pointer. */
static inline bool weft_i_ucx_is_error(const void *result)
{
    return (uintptr_t)result >= (uintptr_t)(intptr_t)WEFT_I_UCS_ERR_LAST;
}

static inline weft_i_ucs_status weft_i_ucx_error_of(const void *result)
{
    return (weft_i_ucs_status)(intptr_t)result;
}

/* Forgets the library, so that the next load looks again.  For tests. */
void weft_i_ucx_forget(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/ucx/library.h */
/*
 * What src/backends/ucx/library.h declares, beside ucp.h, where there is one: sizes, offsets, constants,
 * and the type of every function.  And that a library which is installed has them all.
 */
#include "harness.h"

#include "backends/ucx/library.h"
#include "base/report/status.h"

#if defined(__has_include)
#if __has_include(<ucp/api/ucp.h>)
#include <ucp/api/ucp.h>
#define HAS_UCP_H
#endif
#endif

#ifdef HAS_UCP_H
#define SAME_SIZE(ours_, theirs_) \
    _Static_assert(sizeof(ours_) == sizeof(theirs_), #theirs_ " has another size")
#define SAME(ours_, member_, theirs_, their_member_)                             \
    _Static_assert(offsetof(ours_, member_) == offsetof(theirs_, their_member_), \
                   #theirs_ "." #their_member_ " lies elsewhere");               \
    SAME_SIZE(((ours_ *)0)->member_, ((theirs_ *)0)->their_member_)

SAME_SIZE(weft_i_ucs_status, ucs_status_t);
_Static_assert((ucs_status_t)-1 < 0, "a status has a sign");
SAME_SIZE(int, ucs_thread_mode_t);
SAME_SIZE(int, ucs_memory_type_t);
SAME_SIZE(int, ucp_err_handling_mode_t);
SAME_SIZE(uint64_t, ucp_datatype_t);

SAME(weft_i_ucp_params, mask, ucp_params_t, field_mask);
SAME(weft_i_ucp_params, features, ucp_params_t, features);
SAME(weft_i_ucp_params, endpoints, ucp_params_t, estimated_num_eps);
SAME(weft_i_ucp_params, name, ucp_params_t, name);
SAME(weft_i_ucp_library_attr, mask, ucp_context_attr_t, field_mask);
SAME(weft_i_ucp_library_attr, memory_types, ucp_context_attr_t, memory_types);
SAME(weft_i_ucp_worker_params, mask, ucp_worker_params_t, field_mask);
SAME(weft_i_ucp_worker_params, thread_mode, ucp_worker_params_t, thread_mode);
SAME(weft_i_ucp_worker_params, cores, ucp_worker_params_t, cpu_mask);
SAME(weft_i_ucp_worker_params, events, ucp_worker_params_t, events);
SAME(weft_i_ucp_worker_params, flags, ucp_worker_params_t, flags);
SAME(weft_i_ucp_worker_params, client, ucp_worker_params_t, client_id);
SAME(weft_i_ucp_worker_attr, mask, ucp_worker_attr_t, field_mask);
SAME(weft_i_ucp_worker_attr, address, ucp_worker_attr_t, address);
SAME(weft_i_ucp_worker_attr, am_head_bytes, ucp_worker_attr_t, max_am_header);
SAME(weft_i_ucp_am_received, attr, ucp_am_recv_param_t, recv_attr);
SAME(weft_i_ucp_am_received, reply, ucp_am_recv_param_t, reply_ep);
SAME(weft_i_ucp_am_target, mask, ucp_am_handler_param_t, field_mask);
SAME(weft_i_ucp_am_target, id, ucp_am_handler_param_t, id);
SAME(weft_i_ucp_am_target, flags, ucp_am_handler_param_t, flags);
SAME(weft_i_ucp_am_target, call, ucp_am_handler_param_t, cb);
SAME(weft_i_ucp_am_target, arg, ucp_am_handler_param_t, arg);
SAME(weft_i_ucp_ep_params, mask, ucp_ep_params_t, field_mask);
SAME(weft_i_ucp_ep_params, address, ucp_ep_params_t, address);
SAME(weft_i_ucp_ep_params, error_mode, ucp_ep_params_t, err_mode);
SAME(weft_i_ucp_ep_params, on_error, ucp_ep_params_t, err_handler.cb);
SAME(weft_i_ucp_ep_params, on_error_arg, ucp_ep_params_t, err_handler.arg);
SAME(weft_i_ucp_ep_params, user, ucp_ep_params_t, user_data);
SAME(weft_i_ucp_ep_params, flags, ucp_ep_params_t, flags);
SAME(weft_i_ucp_ep_params, socket, ucp_ep_params_t, sockaddr);
SAME(weft_i_ucp_ep_params, local, ucp_ep_params_t, local_sockaddr);
SAME(weft_i_ucp_request_params, mask, ucp_request_param_t, op_attr_mask);
SAME(weft_i_ucp_request_params, flags, ucp_request_param_t, flags);
SAME(weft_i_ucp_request_params, request, ucp_request_param_t, request);
SAME(weft_i_ucp_request_params, call, ucp_request_param_t, cb);
SAME(weft_i_ucp_request_params, datatype, ucp_request_param_t, datatype);
SAME(weft_i_ucp_request_params, user, ucp_request_param_t, user_data);
SAME(weft_i_ucp_request_params, memory_type, ucp_request_param_t, memory_type);
SAME(weft_i_ucp_map_params, mask, ucp_mem_map_params_t, field_mask);
SAME(weft_i_ucp_map_params, address, ucp_mem_map_params_t, address);
SAME(weft_i_ucp_map_params, bytes, ucp_mem_map_params_t, length);

#define CONSTANT(name_, value_) \
    _Static_assert((long long)(name_) == (value_), #name_ " has another value");
WEFT_I_UCX_CONSTANTS(CONSTANT)
#undef CONSTANT

/* Each is declared there; its use as a size takes no symbol. */
#define FN(result_, name_, parameters_) \
    _Static_assert(sizeof(&(name_)) == sizeof(void (*)(void)), #name_ " is declared");
#define OPTIONAL(result_, name_, parameters_)
#include "backends/ucx/library.def"
#undef FN
#undef OPTIONAL
#endif

TEST(test_ucx_abi_header)
{
#ifndef HAS_UCP_H
    SKIP("no ucp/api/ucp.h (Debian: libucx-dev)");
#endif
}

TEST(test_ucx_abi_library)
{
    const weft_i_ucx *ucx;
    if (weft_i_ucx_load(&ucx) < 0) {
        char why[200];
        snprintf(why, sizeof why, "%s", weft_last_error());
        weft_clear_error();
        SKIP("%s", why);
    }
    CHECK(ucx->major == 1 && ucx->minor >= 13 && ucx->ucp_am_send_nbx);
    CHECK(!strcmp(ucx->ucs_status_string(0), "Success"));
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of fuzz_api.c that gen-api cannot write, as custom_<function>: what they take must
 * outlive the call, be balanced, or stay in bounds.
 */
#ifndef WEFT_FUZZ_API_BY_HAND_H
#define WEFT_FUZZ_API_BY_HAND_H

#include "api_picks.h"
#include "api_picks_train.h"

/* A rank is in its job already; only options that are refused. */
static void custom_weft_init(void)
{
    weft_init_opts opts = WEFT_INIT_OPTS;
    if (one_in(2))
        opts.size = (size_t)pick_choice(8);
    else
        opts.timeout_ms = -9 - pick_choice(9);
    add_group(weft_init(&opts));
}

/* The rank's own world is finished at the end of its round. */
static void custom_weft_finish(void)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 1 + pick_choice(4));
    weft_group *group = weft_fake_init(&opts);
    add_group(group);
    (void)weft_finish(one_in(9) ? NULL : group);
    (void)weft_finish(weft_group_stand_in("finished", 2));
}

static void custom_weft_fake_init(void)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(pick_int(), one_in(3) ? pick_count() : pick_choice(9));
    opts.error_on_collective = one_in(6);
    opts.store = pick_store();
    if (one_in(8))
        opts.size = (size_t)pick_choice((int)sizeof opts + 1);
    add_group(weft_fake_init(one_in(9) ? NULL : &opts));
}

/* Whatever is refused before a process is started. */
static void custom_weft_launch(void)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = one_in(2) ? -pick_choice(5) : INT_MAX - pick_choice(5);
    opts.size = one_in(4) ? pick_size() : opts.size;
    (void)weft_launch(one_in(9) ? NULL : &opts);
}

/* Memory that is as large as they say; sends and receives without a peer. */
static char plain_in[4096] __attribute__((aligned(16)));
static char plain_out[4096] __attribute__((aligned(16)));

static void *pick_plain(char *memory)
{
    return one_in(9) ? NULL : memory + (one_in(9) ? 1 : 0);
}

static size_t pick_plain_count(void)
{
    return one_in(9) ? pick_size() | SIZE_MAX >> 1 : (size_t)pick_choice(8);
}

static void custom_weft_all_reduce_ptr(void)
{
    (void)weft_all_reduce_ptr(pick_plain(plain_out), pick_plain(plain_in), pick_plain_count(),
                              pick_dtype(), (weft_reduction)pick_int(), pick_group());
}

static void custom_weft_broadcast_ptr(void)
{
    (void)weft_broadcast_ptr(pick_plain(plain_out), pick_plain_count(), pick_dtype(), pick_int(),
                             pick_group());
}

static void custom_weft_all_gather_ptr(void)
{
    (void)weft_all_gather_ptr(pick_plain(plain_out), pick_plain(plain_in), pick_plain_count(),
                              pick_dtype(), pick_group());
}

static void custom_weft_reduce_scatter_ptr(void)
{
    (void)weft_reduce_scatter_ptr(pick_plain(plain_out), pick_plain(plain_in), pick_plain_count(),
                                  pick_dtype(), (weft_reduction)pick_int(), pick_group());
}

static void custom_weft_send_ptr(void)
{
    (void)weft_send_ptr(pick_plain(plain_in), pick_plain_count(), pick_dtype(),
                        one_in(2) ? WEFT_NOBODY : pick_int(), pick_group());
}

static void custom_weft_recv_ptr(void)
{
    (void)weft_recv_ptr(pick_plain(plain_out), pick_plain_count(), pick_dtype(),
                        one_in(2) ? WEFT_NOBODY : pick_int(), pick_group());
}

/* Handles are given back only by who got them. */
static void custom_weft_release(void)
{
    weft_release(weft_clone(pick_tensor()));
    weft_release(weft_group_stand_in(pick_text(), pick_int()));
    weft_release(NULL);
}

static void custom_weft_keep(void)
{
    weft_release(weft_keep(weft_clone(pick_tensor())));
    weft_release(weft_keep(weft_group_stand_in(pick_text(), pick_int())));
    (void)weft_keep(NULL);
}

static void custom_weft_scope_open(void)
{
    if (weft_scope_open() < 0)
        return;
    (void)weft_clone(pick_tensor());
    weft_tensor *kept = weft_keep(weft_clone(pick_tensor()));
    (void)weft_scope_close();
    weft_release(kept);
}

static weft_status run_own(weft_tensor *out, const weft_value *in, void *user)
{
    (void)user;
    return weft_copy(out, in[0].tensor);
}

static weft_status gradient_of_own(weft_tensor **grads, weft_tensor *g, weft_tensor *out,
                                   const weft_value *in, void *user)
{
    (void)out, (void)in, (void)user;
    grads[0] = g;
    return WEFT_OK;
}

/* Operations stay for ever: few names. */
static weft_custom *pick_custom(void)
{
    static const char *const names[] = {"fuzz_a", "fuzz_b", "sin", "no name", NULL};
    static const char *const params[] = {"x:t", "x:t y:o n:n i:i", "x:n", "", "x", NULL};
    weft_custom_opts opts = {.size = sizeof opts, .run = run_own, .gradient = gradient_of_own};
    opts.name = PICK(names);
    opts.params = PICK(params);
    opts.save = (unsigned)pick_int();
    if (one_in(2))
        (void)weft_custom_new(one_in(8) ? NULL : &opts);
    return weft_custom_find(opts.name);
}

static void custom_weft_custom_new(void)
{
    (void)pick_custom();
}

static void custom_weft_custom_find(void)
{
    (void)weft_custom_find(pick_text());
}

static void custom_weft_custom_call(void)
{
    weft_value in[4] = {{pick_tensor(), 0, 0},
                        {pick_tensor(), 0, 0},
                        {NULL, pick_double(), 0},
                        {NULL, 0, pick_long()}};
    (void)add_tensor(weft_custom_call(pick_custom(), one_in(8) ? NULL : in));
}

/* Gradients of leaves that hold their graph hold the leaf too, until they are dropped by hand. */
static void custom_weft_backward_all(void)
{
    weft_tensor *const *outputs = pick_tensors();
    const weft_backward_opts *picked = pick_backward_opts();
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    if (picked)
        opts = *picked;
    opts.create_graph = false;
    (void)weft_backward_all(outputs, (size_t)pick_choice(65), picked ? &opts : NULL);
}

static void custom_weft_grad(void)
{
    weft_tensor *grad = weft_grad(pick_tensor()); /* its leaf's */
    (void)(grad && weft_tensor_numel(grad));
}

static void custom_weft_grad_block_enter(void)
{
    weft_grad_block block = weft_grad_block_enter((weft_grad_mode)pick_choice(4));
    (void)weft_clone(pick_tensor());
    (void)weft_backward(pick_tensor());
    weft_grad_block_leave(&block);
}

static void custom_weft_grad_block_leave(void)
{
    weft_grad_block_leave(NULL);
    custom_weft_grad_block_enter();
}

static void custom_weft_autocast_block_enter(void)
{
    weft_autocast_block block = weft_autocast_block_enter(pick_dtype());
    weft_tensor *a = pick_tensor();
    (void)weft_matmul(a, pick_tensor());
    (void)weft_softmax(a, -1);
    weft_autocast_block_leave(&block);
}

static void custom_weft_autocast_block_leave(void)
{
    weft_autocast_block_leave(NULL);
    custom_weft_autocast_block_enter();
}

/* Sizes of layers: memory for millions of parameters is not the point. */
static int64_t pick_width(void)
{
    static const int64_t odd[] = {0, -1, INT64_MIN, INT64_MAX, 1LL << 61};
    return one_in(6) ? PICK(odd) : pick_choice(8) + 1;
}

static void custom_weft_nn_linear(void)
{
    add_module(weft_nn_linear(pick_width(), pick_width()));
}

static void custom_weft_nn_linear_plain(void)
{
    add_module(weft_nn_linear_plain(pick_width(), pick_width()));
}

static void custom_weft_nn_embedding(void)
{
    add_module(weft_nn_embedding(pick_width(), pick_width()));
}

static void custom_weft_nn_layer_norm(void)
{
    add_module(weft_nn_layer_norm(pick_width()));
}

static void custom_weft_nn_attention(void)
{
    add_module(weft_nn_attention(pick_width(), pick_choice(5), pick_double()));
}

static void custom_weft_nn_rms_norm(void)
{
    add_module(weft_nn_rms_norm(pick_width(), pick_double()));
}

static void custom_weft_nn_swiglu(void)
{
    add_module(weft_nn_swiglu(pick_width(), pick_width()));
}

static void custom_weft_nn_grouped_attention(void)
{
    weft_nn_attention_opts opts = WEFT_NN_ATTENTION_OPTS;
    if (one_in(2))
        opts.rotary = pick_double();
    if (one_in(4))
        opts.head_width = pick_width();
    if (one_in(4))
        opts.dropout = pick_double();
    opts.bias = one_in(2);
    add_module(weft_nn_grouped_attention(pick_width(), pick_choice(5), pick_choice(5),
                                         one_in(3) ? NULL : &opts));
}

static void custom_weft_nn_op(void)
{
    add_module(weft_nn_op(one_in(8) ? NULL : one_in(2) ? weft_relu : weft_contiguous));
}

/* A module in two places of another, and that one in two of a third ... are more calls than there
 * is time for. */
static weft_module *pick_small_module(void)
{
    weft_module *module = pick_module();
    return module && weft_module_generation(module) < 20 ? module : weft_nn_op(weft_neg);
}

static void custom_weft_module_add(void)
{
    weft_module *to = pick_module();
    if (!to || weft_module_generation(to) < 20)
        (void)weft_module_add(to, pick_text(), one_in(8) ? NULL : pick_small_module());
}

static void custom_weft_nn_sequential_of(void)
{
    weft_module *list[] = {weft_nn_op(weft_relu), pick_small_module(), pick_module()};
    if (list[2] && weft_module_generation(list[2]) >= 20)
        list[2] = NULL;
    add_module(weft_nn_sequential_of(one_in(8) ? NULL : list, pick_choice(4)));
}

static void let_go(void *user)
{
    (void)user;
}

static void custom_weft_module_own_user(void)
{
    (void)weft_module_own_user(pick_module(), one_in(4) ? NULL : let_go);
}

/* What these return is borrowed from the module. */
static void custom_weft_pipeline_module(void)
{
    (void)weft_module_generation(weft_pipeline_module(pick_pipeline()));
}

/* What it is given must live as long as the checkpoint. */
static void custom_weft_checkpoint_add_value(void)
{
    static _Thread_local int64_t values[8];
    size_t bytes = pick_bytes_count();
    (void)weft_checkpoint_add_value(pick_checkpoint(), pick_text(), one_in(9) ? NULL : values,
                                    bytes < sizeof values || bytes > 1 << 20 ? bytes : 8);
}

static void custom_weft_module_param(void)
{
    (void)weft_clone(weft_module_param(pick_module(), one_in(2) ? "weight" : pick_text()));
}

static void custom_weft_module_buffer(void)
{
    (void)weft_clone(weft_module_buffer(pick_module(), pick_text()));
}

static void custom_weft_module_child(void)
{
    (void)weft_module_generation(weft_module_child(pick_module(), one_in(2) ? "0" : pick_text()));
}

static void custom_weft_scope_close(void)
{
    custom_weft_scope_open();
}

static void custom_weft_limit_open(void)
{
    if (me->limits_open < 9 && weft_limit_open(one_in(2) ? 1 + pick_choice(LIMIT_MS) : -9) >= 0)
        me->limits_open++;
}

static void custom_weft_limit_close(void)
{
    if (me->limits_open && weft_limit_close() >= 0)
        me->limits_open--;
}

static void custom_weft_group_set_timeout(void)
{
    (void)weft_group_set_timeout(pick_group(), one_in(3) ? -9 : 1 + pick_choice(LIMIT_MS));
}

static void custom_weft_store_set_timeout(void)
{
    (void)weft_store_set_timeout(pick_store(), one_in(3) ? -9 : 1 + pick_choice(3));
}

static void custom_weft_coalesce_open(void)
{
    weft_group *group = pick_group();
    if (me->collections < 64 && weft_coalesce_open(group) >= 0)
        me->collecting[me->collections++] = group;
}

static void custom_weft_mesh_enter(void)
{
    if (me->meshes_entered < 5 && weft_mesh_enter(pick_mesh()) >= 0)
        me->meshes_entered++;
}

static void custom_weft_mesh_leave(void)
{
    if (weft_mesh_leave() >= 0)
        me->meshes_entered--;
}

/* Shapes whose ranks are all there. */
static weft_shape pick_mesh_shape(void)
{
    weft_shape shape = pick_shape();
    int64_t count = 1;
    for (int i = 0; i < shape.ndim && i < WEFT_MAX_DIMS; i++)
        count = shape.dim[i] > 0 && shape.dim[i] <= ARRAY && count <= ARRAY ? count * shape.dim[i]
                                                                            : count;
    return count > ARRAY ? WEFT_SHAPE(2, 2) : shape;
}

static void custom_weft_mesh_new(void)
{
    add_mesh(
        weft_mesh_new(pick_group(), pick_device(), pick_mesh_shape(), pick_ints(), pick_text()));
}

static void custom_weft_mesh_from_groups(void)
{
    add_mesh(weft_mesh_from_groups(pick_groups(), pick_count(), pick_device(), pick_mesh_shape(),
                                   pick_ints(), pick_text()));
}

static void nothing(void *argument)
{
    (void)argument;
}

/* A shape that the ground holds, or none that anything could. */
static weft_shape pick_ground_shape(weft_dtype dtype)
{
    weft_shape shape = pick_shape();
    size_t count = weft_dtype_size(dtype);
    for (int i = 0; i < shape.ndim && i < WEFT_MAX_DIMS; i++)
        if (shape.dim[i] > 64)
            shape.dim[i] = INT64_MAX;
        else if (shape.dim[i] > 0)
            count *= (size_t)shape.dim[i];
    return count > sizeof ground ? WEFT_SHAPE(3) : shape;
}

static void custom_weft_tensor_wrap(void)
{
    weft_dtype dtype = pick_dtype();
    add_tensor(weft_tensor_wrap(dtype, pick_device(), pick_ground_shape(dtype),
                                one_in(9) ? NULL : ground + (one_in(9) ? 1 : 0),
                                one_in(2) ? nothing : NULL, NULL));
}

static void custom_weft_tensor_from(void)
{
    weft_dtype dtype = pick_dtype();
    add_tensor(weft_tensor_from(dtype, pick_ground_shape(dtype), one_in(9) ? NULL : ground));
}

/* What is captured and compiled: a few calls, of which some cannot be captured. */
static weft_status fuzz_step(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                             void *user)
{
    (void)user; /* gone when the function is called again */
    for (int i = 0; i < outs; i++) {
        weft_tensor *x = ins ? in[i % ins] : pick_tensor();
        unsigned how = (unsigned)pick_choice(48);
        if (how == 1)
            (void)weft_item(x, 0);
        if (how % 16 == 2)
            (void)weft_fill(x, 2);
        out[i] = how % 3 == 0 ? weft_sin(x) : how % 3 == 1 ? x : weft_reshape(x, WEFT_SHAPE(-1));
    }
    return WEFT_OK;
}

static const weft_compile_opts *pick_compile_opts(void)
{
    static const char *const backends[] = {NULL, "eager", "aot_eager", "none", ""};
    static _Thread_local weft_compile_opts opts;
    opts = (weft_compile_opts)WEFT_COMPILE_OPTS;
    opts.backend = PICK(backends);
    opts.fullgraph = pick_bool();
    opts.size += one_in(9);
    return one_in(5) ? NULL : &opts;
}

static const weft_profile_opts *pick_profile_opts(void)
{
    static _Thread_local weft_profile_opts opts;
    opts = (weft_profile_opts)WEFT_PROFILE_OPTS;
    opts.events = (size_t)pick_choice(9);
    opts.overlapped = pick_bool();
    opts.size += one_in(9);
    return one_in(5) ? NULL : &opts;
}

static const weft_scaled *pick_scaled(void)
{
    static _Thread_local weft_scaled right[64]; /* as many as pick_tensors gives at most */
    for (int i = 0; i < 64; i++)
        right[i] = (weft_scaled){.b = pick_tensor(),
                                 .scale = pick_tensor(),
                                 .bias = one_in(2) ? pick_tensor() : NULL,
                                 .result_scale = one_in(4) ? pick_tensor() : NULL,
                                 .dtype = one_in(3) ? -1 : pick_choice(20)};
    return one_in(9) ? NULL : right;
}

static weft_status fill_one(void *x)
{
    return weft_fill(x, 1);
}

static void custom_weft_tensor_preserve_version(void)
{
    (void)weft_tensor_preserve_version(pick_tensors(), (size_t)pick_choice(ARRAY + 1),
                                       one_in(9) ? NULL : fill_one, pick_tensor());
}

/* Not of operands that posted work may still use: these and the next change the memory of a tensor.
 */
static void custom_weft_set(void)
{
    weft_tensor *x = weft_clone(pick_tensor());
    (void)weft_set(x, pick_tensor());
    add_tensor(x);
}

static void custom_weft_resize_storage(void)
{
    weft_tensor *x = weft_clone(pick_tensor());
    (void)weft_resize_storage(x, pick_long());
    add_tensor(x);
}

static void custom_weft_storage_resize(void)
{
    weft_tensor *x = weft_clone(pick_tensor());
    (void)weft_storage_resize(weft_tensor_storage(x), pick_size());
    add_tensor(x);
}

/* Files only where none can be made. */
static void custom_weft_store_file(void)
{
    static const char *const paths[] = {"", "/nowhere/at/all", "/proc/self/nothing", "/"};
    add_store(weft_store_file(one_in(9) ? NULL : PICK(paths), pick_int()));
}

static void custom_weft_store_tcp_serve(void)
{
    static const char *const places[] = {"0.0.0.0", "", "::", "no.such.host.invalid."};
    add_store(weft_store_tcp_serve(one_in(2) ? PICK(places) : "127.0.0.1", one_in(2) ? -1 : 65536,
                                   pick_text()));
}

static void custom_weft_store_tcp_connect(void)
{
    add_store(
        weft_store_tcp_connect("127.0.0.1", one_in(2) ? pick_int() | 1 << 20 : -1, pick_text(), 1));
}

static void custom_weft_store_unix_serve(void)
{
    if (one_in(20))
        add_store(weft_store_unix_serve(NULL));
    else if (one_in(20))
        add_store(weft_store_unix_serve(pick_text()));
}

static void custom_weft_store_unix_connect(void)
{
    add_store(weft_store_unix_connect(pick_text(), 1));
}

/* Values that a call gave are given back. */
static void custom_weft_store_get(void)
{
    weft_store_value value = {0};
    (void)weft_store_get(pick_store(), pick_text(), pick_timeout(), one_in(12) ? NULL : &value);
    weft_store_value_clear(&value);
}

static void custom_weft_store_queue_pop(void)
{
    weft_store_value value = {0};
    (void)weft_store_queue_pop(pick_store(), pick_text(), pick_timeout(),
                               one_in(12) ? NULL : &value);
    weft_store_value_clear(&value);
}

static void custom_weft_store_compare_set(void)
{
    weft_store_value value = {0};
    bool stored = false;
    (void)weft_store_compare_set(pick_store(), pick_text(), pick_bytes(), pick_bytes_count(),
                                 pick_bytes(), pick_bytes_count(), one_in(6) ? NULL : &stored,
                                 one_in(6) ? NULL : &value);
    weft_store_value_clear(&value);
}

static void custom_weft_store_multi_get(void)
{
    weft_store_value *values = room(ARRAY * sizeof *values);
    (void)weft_store_multi_get(pick_store(), (size_t)pick_choice(ARRAY + 1), pick_texts(),
                               pick_timeout(), one_in(12) ? NULL : values);
    for (int i = 0; i < ARRAY; i++)
        weft_store_value_clear(&values[i]);
}

static void custom_weft_store_value_clear(void)
{
    weft_store_value_clear(NULL);
}

static void custom_weft_ranks_expand(void)
{
    weft_expansion expansion = {{0}, NULL, 0, 0};
    (void)weft_ranks_expand(pick_group(), pick_ranks(), pick_text(),
                            one_in(12) ? NULL : &expansion);
    weft_expansion_clear(&expansion);
}

static void custom_weft_expansion_clear(void)
{
    weft_expansion_clear(NULL);
}

static void custom_weft_symm_detect_connectivity(void)
{
    weft_connectivity found = {0};
    if (weft_symm_detect_connectivity(pick_group(), pick_device(), pick_text(),
                                      one_in(12) ? NULL : &found) >= 0)
        weft_symm_free_connectivity(&found);
}

static void custom_weft_symm_free_connectivity(void)
{
    weft_symm_free_connectivity(NULL);
}

/* For all of the process: set, and set back. */
static void custom_weft_symm_set_signal_pad_size(void)
{
    size_t before = weft_symm_signal_pad_size();
    if (weft_symm_set_signal_pad_size(pick_size()) < 0)
        return;
    (void)weft_symm_empty(pick_dtype(), pick_device(), WEFT_SHAPE(3));
    (void)weft_symm_set_signal_pad_size(before);
}

static void custom_weft_job_list(void)
{
    if (!one_in(20))
        return; /* reads all of /proc */
    weft_job *jobs[4];
    (void)weft_job_list(jobs, 4);
    (void)weft_job_list(NULL, pick_choice(2) - 1);
}

static void custom_weft_job_open(void)
{
    static const int odd[] = {-1, 0, INT_MAX, INT_MIN, 1};
    add_job(weft_job_open(one_in(2) ? (int)getpid() : PICK(odd)));
}

static void custom_weft_dlpack_export(void)
{
    weft_dlpack *made = weft_dlpack_export(pick_tensor());
    if (made && one_in(2))
        add_tensor(weft_dlpack_import(made));
    else if (made)
        made->deleter(made);
}

static void custom_weft_dlpack_export_versioned(void)
{
    weft_dlpack_versioned *made = weft_dlpack_export_versioned(pick_tensor());
    if (made && one_in(2))
        add_tensor(weft_dlpack_import_versioned(made));
    else if (made)
        made->deleter(made);
}

/* Descriptions by somebody else; what they name lies on the ground, if it is not impossible. */
static weft_dlpack_tensor pick_description(void)
{
    weft_dlpack_tensor tensor = {.data = one_in(9) ? NULL : ground,
                                 .device_type = one_in(5) ? pick_int() : 1,
                                 .device_id = one_in(5) ? pick_int() : 0,
                                 .ndim = one_in(5) ? pick_int() : pick_choice(3),
                                 .code = (uint8_t)(one_in(3) ? pick_int() : pick_choice(7)),
                                 .bits = (uint8_t)(one_in(3) ? pick_int() : 8 << pick_choice(4)),
                                 .lanes = (uint16_t)(one_in(5) ? pick_int() : 1),
                                 .byte_offset = one_in(5) ? (uint64_t)pick_long() : 0};
    int64_t *shape = room(ARRAY * sizeof *shape), *strides = room(ARRAY * sizeof *strides);
    for (int i = 0; i < ARRAY; i++) {
        shape[i] = one_in(5) ? pick_long() : pick_choice(4);
        strides[i] = one_in(5) ? pick_long() : 1;
    }
    tensor.shape = one_in(12) ? NULL : shape;
    tensor.strides = one_in(2) ? NULL : strides;
    return tensor;
}

/* They may name memory that is not there, so nothing is done with the result but to let it go. */
static void custom_weft_dlpack_import(void)
{
    weft_dlpack *description = room(sizeof *description);
    description->tensor = pick_description();
    weft_release(weft_dlpack_import(one_in(12) ? NULL : description));
}

static void custom_weft_dlpack_import_versioned(void)
{
    weft_dlpack_versioned *description = room(sizeof *description);
    description->tensor = pick_description();
    description->major = one_in(4) ? (uint32_t)pick_int() : 1;
    description->flags = one_in(4) ? (uint64_t)pick_long() : 0;
    weft_release(weft_dlpack_import_versioned(one_in(12) ? NULL : description));
}

#endif

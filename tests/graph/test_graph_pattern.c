/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/run/frame.c, graph/run/route.c, graph/capture/joint.c */
/*
 * Training patterns under compilation, by the names of the reference's DistributedPatternTests: a
 * parameter that is gathered, used and freed in forward and again in backward, backward hooks of
 * modules, hooks that close over tensors, hidden writes, parameters made inside.  Every test
 * compares with eager execution and with the closed form.
 */
#include "device.h"

#include "graph_pattern.h"
#include "harness_cache.h"

#include "tensor/object/tensor.h"

#include <math.h>

/* On a GPU, those that need modules of the CPU are left out; the others bear its name. */
#ifdef WEFT_TEST_ON_CUDA
#include "harness_ranks.h"
#undef TEST
#define TEST(name_)        __attribute__((unused)) static void name_(void)
#define DEVICE_TEST(name_) RANKS_TEST(name_, 1)
#else
#define DEVICE_TEST(name_) TEST(name_)
#endif

static weft_compiled *compile_backward(const char *backend)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    weft_compiled *compiled = weft_compile_backward(&opts);
    if (!compiled)
        FAIL("%s", weft_last_error());
    return compiled;
}

static weft_status go_back(weft_compiled *compiled, weft_tensor *loss)
{
    return compiled ? weft_compiled_backward(compiled, &loss, 1, NULL) : weft_backward(loss);
}

static int64_t bytes_of(weft_tensor *x)
{
    return (int64_t)weft_storage_bytes(weft_tensor_storage(x));
}

/* ---- hooks that close over tensors ---- */

static int entered;

static weft_status add_held(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    entered++;
    *grad = weft_add(weft_add(*grad, held[0]), held[1]);
    return WEFT_OK;
}

FUNCTION(with_closure)
{
    weft_tensor *y = weft_sin(in[0]), *more = weft_add_scalar(y, 1);
    if (weft_tensor_hook(y, add_held, NULL, WEFT_HOLD(in[1], more)) < 0)
        return weft_last_status();
    out[0] = weft_sin(y);
    return WEFT_OK;
}

/* The same function for both objects; with or without a compiled forward. */
static void check_closure(weft_graph_function function, const char *forward, const char *backward)
{
    static const double value[] = {88, 99, 88}, expected[] = {48.901593, 54.844919, 48.901593};
    weft_compiled *fast = forward ? compile(function, NULL, forward) : NULL;
    weft_compiled *back = backward ? compile_backward(backward) : NULL;
    entered = 0;
    for (int i = 0; i < 3; i++) {
        weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), *y = NULL;
        weft_tensor *object = weft_full(WEFT_I64, WEFT_CPU, WEFT_SCALAR, value[i]);
        CHECK_OK(weft_require_grad(x, true));
        CHECK_OK(fast ? weft_compiled_call(fast, ARGS(x, object), 2, &y, 1)
                      : function(ARGS(x, object), 2, &y, 1, NULL));
        CHECK_OK(go_back(back, sum_of(y)));
        for (int k = 0; k < 4; k++)
            CHECK_NEAR(weft_item(weft_grad(x), k), expected[i], 2e-5);
    }
    CHECK_INT(entered, fast || back ? 1 : 3);
    CHECK(!fast || info_of(fast).frames == 1);
    CHECK(!back || (info_of(back).frames == 1 && info_of(back).plain == 0));
    weft_release(fast);
    weft_release(back);
}

TEST(test_intermediate_hook_with_closure)
{
    check_closure(with_closure, NULL, NULL);
    check_closure(with_closure, "eager", NULL);
    check_closure(with_closure, "aot_eager", NULL);
    check_closure(with_closure, NULL, "eager");
    check_closure(with_closure, "eager", "eager");
    check_closure(with_closure, "aot_eager", "aot_eager");
    check_closure(with_closure, "c", NULL);
    check_closure(with_closure, "c", "c");
}

/* The same inside a function of its own. */
static weft_tensor *run_inner(weft_tensor *x, weft_tensor *object)
{
    weft_tensor *y = NULL;
    return with_closure(ARGS(x, object), 2, &y, 1, NULL) < 0 ? NULL : y;
}

FUNCTION(with_nested_closure)
{
    out[0] = run_inner(in[0], in[1]);
    return WEFT_OK;
}

TEST(test_intermediate_hook_with_nested_closure)
{
    check_closure(with_nested_closure, "eager", "eager");
    check_closure(with_nested_closure, "aot_eager", "aot_eager");
    check_closure(with_nested_closure, "c", "c");
}

/* ---- hidden writes ---- */

FUNCTION(set_version)
{
    out[0] = weft_sin(in[1]);
    WEFT_NO_GRAD
    {
        weft_tensor *version = weft_tensor_read_version(in[1]);
        WEFT_TRY(weft_copy(in[1], in[0]));
        WEFT_TRY(weft_tensor_write_version(in[1], version));
    }
    return WEFT_OK;
}

static weft_status copy_pair(void *argument)
{
    weft_tensor **pair = argument;
    WEFT_NO_GRAD
    {
        return weft_copy(pair[1], pair[0]);
    }
    return WEFT_OK;
}

FUNCTION(preserve_version)
{
    weft_tensor *pair[2] = {in[0], in[1]};
    out[0] = weft_sin(in[1]);
    return weft_tensor_preserve_version(&pair[1], 1, copy_pair, pair);
}

/* Backward reads what was written behind its back. */
static void check_hidden(weft_graph_function function, const char *backend)
{
    weft_compiled *fast = backend ? compile(function, NULL, backend) : NULL;
    for (int i = 0; i < 2; i++) {
        weft_tensor *x = vector(1, 2 + i), *w = vector(1, 5), *r = NULL;
        double old = weft_item(w, 0);
        CHECK_OK(weft_require_grad(w, true));
        CHECK_OK(fast ? weft_compiled_call(fast, ARGS(x, w), 2, &r, 1)
                      : function(ARGS(x, w), 2, &r, 1, NULL));
        CHECK_INT(weft_tensor_version(w), 0);
        CHECK_NEAR(weft_item(r, 0), sin(old), 1e-6);
        CHECK_NEAR(weft_item(w, 0), 2 + i, 0);
        CHECK_OK(weft_backward(sum_of(r)));
        CHECK_NEAR(weft_item(weft_grad(w), 0), cos(2 + i), 1e-6);
    }
    CHECK(!fast || (info_of(fast).frames == 1 && info_of(fast).plain == 0));
    weft_release(fast);
}

TEST(test_unsafe_set_version_counter2)
{
    check_hidden(set_version, NULL);
    check_hidden(set_version, "eager");
    check_hidden(set_version, "aot_eager");
    check_hidden(set_version, "c");
}

TEST(test_unsafe_preserve_version_counter2)
{
    check_hidden(preserve_version, NULL);
    check_hidden(preserve_version, "eager");
    check_hidden(preserve_version, "aot_eager");
    check_hidden(preserve_version, "c");
}

/* ---- parameters made inside ---- */

FUNCTION(param_return1)
{
    out[0] = weft_parameter(in[0], true);
    out[1] = weft_sin(out[0]);
    return WEFT_OK;
}

FUNCTION(param_return2)
{
    out[0] = weft_parameter(in[0], false);
    out[1] = weft_add_scalar(in[0], 1);
    return WEFT_OK;
}

FUNCTION(param_return3)
{
    out[0] = weft_parameter(weft_add_scalar(in[0], 123), true);
    out[1] = weft_sin(out[0]);
    return WEFT_OK;
}

FUNCTION(param_return4)
{
    out[0] = weft_parameter(weft_add_scalar(in[0], 123), false);
    out[1] = weft_add_scalar(in[0], 1);
    return WEFT_OK;
}

static void check_param(weft_graph_function function, bool required, bool alias)
{
    static const char *const backends[] = {"eager", "aot_eager", "c"};
    for (int k = 0; k < 3; k++) {
        weft_compiled *fast = compile(function, NULL, backends[k]);
        for (int i = 0; i < 2; i++) {
            weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), *out[2][2];
            CHECK_OK(function(ARGS(x), 1, out[0], 2, NULL));
            CHECK_OK(weft_compiled_call(fast, ARGS(x), 1, out[1], 2));
            CHECK(weft_is_parameter(out[1][0]) && weft_is_leaf(out[1][0]));
            CHECK_INT(weft_requires_grad(out[1][1]), required);
            CHECK_INT(weft_tensor_storage(out[1][0]) == weft_tensor_storage(x), alias);
            for (int n = 0; required && n < 2; n++)
                CHECK_OK(weft_backward(sum_of(out[n][1])));
            check_same_grad(out[0][0], out[1][0]);
            check_same_grad(out[0][1], out[1][1]);
            CHECK(!required || weft_equal(weft_grad(out[1][0]), weft_cos(out[1][0])));
        }
        CHECK_INT(info_of(fast).frames, 1);
        weft_release(fast);
    }
}

TEST(test_nn_param_return1)
{
    check_param(param_return1, true, true);
}

TEST(test_nn_param_return2)
{
    check_param(param_return2, false, true);
}

TEST(test_nn_param_return3)
{
    check_param(param_return3, true, false);
}

TEST(test_nn_param_return4)
{
    check_param(param_return4, false, false);
}

/* ---- backward hooks of modules ---- */

typedef struct hooked {
    weft_module *linear;
    weft_tensor *count_pre, *count_post; /* 0-d integers */
    bool allow_eager;
    int entered;
} hooked;

static weft_status enter(hooked *h, weft_tensor *count)
{
    weft_tensor *weight = weft_module_param(h->linear, "weight");
    h->entered++;
    if (!h->allow_eager && !weft_tracing())
        return weft_i_fail(WEFT_ERR_STATE, "the hook runs eagerly");
    if (!weight || weft_tensor_size(weight, 0) != 10 || weft_tensor_size(weight, 1) != 10)
        return weft_i_fail(WEFT_ERR_STATE, "the weight has another shape");
    return weft_add_scalar_into(count, count, 1);
}

static weft_status bw_pre_hook(weft_hook_event *event)
{
    hooked *h = event->user;
    WEFT_TRY(enter(h, h->count_pre));
    event->out[0] = weft_sin(weft_add_scalar(event->out[0], 1.2));
    return WEFT_OK;
}

static weft_status bw_post_hook(weft_hook_event *event)
{
    hooked *h = event->user;
    WEFT_TRY(enter(h, h->count_post));
    event->in[0] = weft_sin(weft_add_scalar(event->in[0], 3.4));
    return WEFT_OK;
}

static void init_module_bw_hooks(hooked *h, bool allow_eager)
{
    weft_seed(1234);
    *h = (hooked){.linear = weft_nn_linear(10, 10), .allow_eager = allow_eager};
    h->count_pre = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SCALAR);
    h->count_post = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SCALAR);
    CHECK(weft_module_hook_add(h->linear, WEFT_HOOK_BACKWARD_PRE, 0, bw_pre_hook, h,
                               WEFT_HOLD(h->count_pre)) > 0);
    CHECK(weft_module_hook_add(h->linear, WEFT_HOOK_BACKWARD, 0, bw_post_hook, h,
                               WEFT_HOLD(h->count_post)) > 0);
}

static weft_tensor *new_input(int64_t rows, int64_t columns)
{
    weft_seed(77);
    weft_tensor *x = weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(rows, columns));
    CHECK_OK(weft_require_grad(x, true));
    return x;
}

FUNCTION(call_module)
{
    out[0] = weft_module_call(user, in[0]);
    return WEFT_OK;
}

/* Four times forward, sum, backward; the last output. */
static weft_tensor *steps(weft_module *module, weft_tensor *x, weft_compiled *fast,
                          weft_compiled *back)
{
    weft_tensor *y = NULL;
    for (int i = 0; i < 4; i++) {
        CHECK_OK(fast ? weft_compiled_call(fast, ARGS(x), 1, &y, 1)
                      : call_module(ARGS(x), 1, &y, 1, module));
        if (!y)
            FAIL("%s", weft_last_error());
        CHECK_OK(go_back(back, sum_of(y)));
    }
    return y;
}

/* The closed form of one layer after four steps. */
static void check_module_form(hooked *h, weft_tensor *x)
{
    double q = sin(2.2);
    weft_tensor *weight = weft_module_param(h->linear, "weight");
    CHECK_INT(weft_item_int(h->count_pre, 0), 4);
    CHECK_INT(weft_item_int(h->count_post, 0), 4);
    CHECK_NEAR(weft_item(weft_grad(weft_module_param(h->linear, "bias")), 3), 8 * q, 1e-5);
    for (int k = 0; k < 10; k++) {
        double column = weft_item(x, k) + weft_item(x, 10 + k), sum = 0;
        for (int i = 0; i < 10; i++)
            sum += weft_item(weight, 10 * i + k);
        CHECK_NEAR(weft_item(weft_grad(weight), 20 + k), 4 * q * column, 1e-4);
        CHECK_NEAR(weft_item(weft_grad(x), 10 + k), 4 * sin(q * sum + 3.4), 1e-4);
    }
}

/* How many nodes all captures of each have. */
typedef struct nodes {
    int forward, backward;
} nodes;

static nodes check_module_hooks(const char *forward, const char *backward, bool allow_eager,
                                int entries)
{
    hooked eager, h;
    init_module_bw_hooks(&eager, true);
    init_module_bw_hooks(&h, allow_eager);
    weft_compiled *fast = forward ? compile(call_module, h.linear, forward) : NULL;
    weft_compiled *back = backward ? compile_backward(backward) : NULL;
    weft_tensor *x[2] = {new_input(2, 10), new_input(2, 10)};
    weft_tensor *y = steps(eager.linear, x[0], NULL, NULL), *z = steps(h.linear, x[1], fast, back);
    check_same_grad(y, z);
    check_same_grad(x[0], x[1]);
    check_same_grad(weft_module_param(eager.linear, "weight"),
                    weft_module_param(h.linear, "weight"));
    check_same_grad(weft_module_param(eager.linear, "bias"), weft_module_param(h.linear, "bias"));
    check_module_form(&eager, x[0]);
    check_module_form(&h, x[1]);
    CHECK_INT(h.entered, entries);
    CHECK(!fast || (info_of(fast).frames == 1 && info_of(fast).plain == 0));
    CHECK(!back || (info_of(back).frames == 2 && info_of(back).plain == 0));
    nodes all = {fast ? info_of(fast).ops : 0, back ? info_of(back).ops : 0};
    weft_release(fast);
    weft_release(back);
    return all;
}

/* Two backward captures: without gradients and with them.  Hooks run while tracing only: once in
 * a compiled forward, else once in each capture of backward.  Nothing is captured that nobody needs:
 * three nodes forward and 18 of its own backward; where PyTorch has 5 and 48, of its operations. */
TEST(test_module_backward_hooks_eager)
{
    nodes all = check_module_hooks("eager", "eager", false, 2);
    CHECK_INT(all.forward, 3 + 18);
    CHECK_INT(all.backward, 2 * 22);
    all = check_module_hooks(NULL, "eager", false, 4);
    CHECK_INT(all.backward, 2 * 17);
}

TEST(test_module_backward_hooks_aot)
{
    check_module_hooks("aot_eager", NULL, true, 2);
    check_module_hooks("aot_eager", "eager", false, 2);
    check_module_hooks("aot_eager", "aot_eager", false, 2);
}

TEST(test_module_backward_hooks_inductor)
{
    check_module_hooks("c", "c", false, 2);
}

/* Two layers with the same seed in one function. */
static void check_two_layers(const char *backend)
{
    hooked layer[2][2];
    weft_module *net[2];
    weft_tensor *x[2] = {new_input(2, 10), new_input(2, 10)}, *y[2];
    weft_compiled *fast = NULL, *back = NULL;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++)
            init_module_bw_hooks(&layer[k][i], k == 0);
        net[k] = weft_nn_sequential(layer[k][0].linear, layer[k][1].linear);
    }
    fast = compile(call_module, net[1], backend);
    back = compile_backward(backend);
    y[0] = steps(net[0], x[0], NULL, NULL);
    y[1] = steps(net[1], x[1], fast, back);
    check_same_grad(y[0], y[1]);
    check_same_grad(x[0], x[1]);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(weft_item_int(layer[1][i].count_pre, 0), 4);
        CHECK_INT(weft_item_int(layer[1][i].count_post, 0), 4);
        check_same_grad(weft_module_param(layer[0][i].linear, "weight"),
                        weft_module_param(layer[1][i].linear, "weight"));
        check_same_grad(weft_module_param(layer[0][i].linear, "bias"),
                        weft_module_param(layer[1][i].linear, "bias"));
    }
    CHECK_INT(info_of(back).frames, 2);
    weft_release(fast);
    weft_release(back);
}

TEST(test_module_backward_hooks_multi_layers)
{
    check_two_layers("aot_eager");
    check_two_layers("c");
}

/* ---- a sharded parameter, with stand-ins for the collectives ---- */

enum { WORLD_SIZE = 2 };

static weft_tensor *all_gather(weft_tensor *x)
{
    WEFT_NO_GRAD
    {
        return weft_cat(ARGS(x, x), WORLD_SIZE, 0);
    }
    return NULL;
}

static weft_tensor *reduce_scatter(weft_tensor *x)
{
    WEFT_NO_GRAD
    {
        return weft_clone(weft_narrow(x, 0, 0, weft_tensor_size(x, 0) / WORLD_SIZE));
    }
    return NULL;
}

typedef struct sharded {
    weft_module *linear;
    weft_tensor *shard, *full;
    bool by_set; /* the storage is taken over, not copied to */
} sharded;

static weft_status fill_full(void *argument)
{
    sharded *s = argument;
    WEFT_NO_GRAD
    {
        return s->by_set ? weft_set(s->full, all_gather(s->shard))
                         : weft_copy(s->full, all_gather(s->shard));
    }
    return WEFT_OK;
}

static weft_status unshard(sharded *s)
{
    if (!s->by_set)
        WEFT_TRY(weft_storage_resize(weft_tensor_storage(s->full),
                                     (size_t)weft_tensor_numel(s->full) * 4));
    WEFT_TRY(weft_tensor_preserve_version(&s->full, 1, fill_full, s));
    return weft_module_bind(s->linear, "weight", s->full);
}

static weft_status fw_pre_hook(weft_hook_event *event)
{
    return unshard(event->user);
}

static weft_status fw_post_hook(weft_hook_event *event)
{
    sharded *s = event->user;
    WEFT_TRY(weft_module_bind(s->linear, "weight", s->shard));
    return weft_storage_resize(weft_tensor_storage(s->full), 0);
}

static weft_status fsdp_pre_hook(weft_hook_event *event)
{
    return unshard(event->user);
}

static weft_status fsdp_post_hook(weft_hook_event *event)
{
    sharded *s = event->user;
    weft_tensor *grad = weft_grad(weft_module_param(s->linear, "weight"));
    if (!grad)
        return weft_i_fail(WEFT_ERR_STATE, "the gradient of the whole is not there yet");
    weft_tensor *part = reduce_scatter(grad);
    WEFT_TRY(weft_module_bind(s->linear, "weight", s->shard));
    WEFT_TRY(weft_set_grad(s->shard, part));
    return weft_storage_resize(weft_tensor_storage(s->full), 0);
}

static void init_fake_distributed(sharded *s, bool by_set)
{
    weft_seed(1234);
    s->linear = weft_nn_linear_plain(20, 10);
    s->by_set = by_set;
    weft_tensor *part = reduce_scatter(weft_module_param(s->linear, "weight"));
    s->shard = weft_parameter(DEVICE == WEFT_CPU ? part : weft_to(part, WEFT_F32, DEVICE), true);
    s->full = weft_parameter(all_gather(s->shard), true);
    CHECK_OK(weft_resize_storage(s->full, 0));
    weft_module *m = s->linear;
    CHECK(weft_module_hook_add(m, WEFT_HOOK_BACKWARD_PRE, 0, fsdp_pre_hook, s, WEFT_HOLD()) > 0);
    CHECK(weft_module_hook_add(m, WEFT_HOOK_BACKWARD, 0, fsdp_post_hook, s, WEFT_HOLD()) > 0);
    CHECK(weft_module_hook_add(m, WEFT_HOOK_FORWARD_PRE, 0, fw_pre_hook, s, WEFT_HOLD()) > 0);
    CHECK(weft_module_hook_add(m, WEFT_HOOK_FORWARD, 0, fw_post_hook, s, WEFT_HOLD()) > 0);
}

static void check_sharded_form(sharded *s, weft_tensor *x, weft_tensor *y)
{
    CHECK(weft_module_param(s->linear, "weight") == s->shard);
    CHECK_INT(bytes_of(s->full), 0);
    CHECK_INT(weft_tensor_version(s->full), 0);
    for (int k = 0; k < 20; k++) {
        double column = weft_item(x, k) + weft_item(x, 20 + k), sum = 0;
        for (int i = 0; i < 5; i++)
            sum += weft_item(s->shard, 20 * i + k);
        CHECK_NEAR(weft_item(weft_grad(s->shard), 40 + k), 4 * column, 1e-4);
        CHECK_NEAR(weft_item(weft_grad(x), 20 + k), 8 * sum, 1e-4);
    }
    /* Columns of a product by equal columns: a BLAS may add those at its edge in another order. */
    for (int k = 0; k < 5; k++)
        CHECK_NEAR(weft_item(y, k), weft_item(y, 5 + k), 1e-5);
}

static void check_fake_distributed(const char *forward, const char *backward, bool by_set)
{
    sharded eager, s;
    init_fake_distributed(&eager, false);
    init_fake_distributed(&s, by_set);
    weft_compiled *fast = forward ? compile(call_module, s.linear, forward) : NULL;
    weft_compiled *back = backward ? compile_backward(backward) : NULL;
    weft_tensor *x[2] = {new_input(2, 20), new_input(2, 20)};
    weft_tensor *y = steps(eager.linear, x[0], NULL, NULL), *z = steps(s.linear, x[1], fast, back);
    check_sharded_form(&eager, x[0], y);
    check_sharded_form(&s, x[1], z);
    check_same_grad(weft_module_param(eager.linear, "weight"),
                    weft_module_param(s.linear, "weight"));
    check_same_grad(x[0], x[1]);
    check_same_grad(y, z);
    CHECK(!fast || (info_of(fast).frames == 1 && info_of(fast).plain == 0));
    CHECK(!back || (info_of(back).frames == 2 && info_of(back).plain == 0));
    weft_release(fast);
    weft_release(back);
}

TEST(test_fake_distributed_aot_eager)
{
    check_fake_distributed(NULL, NULL, false);
    check_fake_distributed("aot_eager", NULL, false);
    check_fake_distributed(NULL, "eager", false);
    check_fake_distributed("aot_eager", "eager", false);
    check_fake_distributed("eager", "eager", false);
    check_fake_distributed("aot_eager", "aot_eager", false);
}

DEVICE_TEST(test_fake_distributed_inductor)
{
    check_fake_distributed("c", NULL, false);
    check_fake_distributed("c", "c", false);
}

/* The storage of what was gathered is taken over, and freed. */
TEST(test_fake_distributed_by_set)
{
    check_fake_distributed(NULL, NULL, true);
    check_fake_distributed(NULL, "eager", true);
    check_fake_distributed("aot_eager", "eager", true);
}

#ifdef WEFT_TEST_ON_CUDA

/* ---- storages of a GPU ---- */

FUNCTION(free_input)
{
    weft_tensor *y = weft_sin(in[0]);
    WEFT_TRY(weft_storage_resize(weft_tensor_storage(in[0]), 0));
    out[0] = weft_cos(y);
    return WEFT_OK;
}

DEVICE_TEST(test_storage_resize_zero_gpu)
{
    static const char *const backends[] = {"eager", "aot_eager", "c"};
    for (int k = 0; k < 3; k++) {
        weft_compiled *compiled = compile(free_input, NULL, backends[k]);
        for (int i = 0; i < 2; i++) {
            weft_tensor *x = weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(10)), *y = NULL;
            weft_tensor *expected = weft_cos(weft_sin(x));
            CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
            CHECK(weft_equal(y, expected));
            CHECK_INT(weft_storage_bytes(weft_tensor_storage(x)), 0);
        }
        CHECK_INT(info_of(compiled).frames, 1);
        weft_release(compiled);
    }
}

FUNCTION(fill_freed)
{
    weft_tensor *x = in[0], *result = in[1], *y = weft_sin(x);
    WEFT_TRY(weft_storage_resize(weft_tensor_storage(result),
                                 weft_storage_bytes(weft_tensor_storage(x))));
    WEFT_TRY(weft_copy(result, weft_cos(y)));
    out[0] = result;
    return WEFT_OK;
}

DEVICE_TEST(test_storage_resize_nonzero_gpu)
{
    static const char *const backends[] = {"eager", "aot_eager", "c"};
    for (int k = 0; k < 3; k++) {
        weft_compiled *compiled = compile(fill_freed, NULL, backends[k]);
        for (int i = 0; i < 2; i++) {
            weft_tensor *x = weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(10)), *y = NULL;
            weft_tensor *result = weft_empty(WEFT_F32, DEVICE, WEFT_SHAPE(10));
            CHECK_OK(weft_resize_storage(result, 0));
            CHECK_OK(weft_compiled_call(compiled, ARGS(x, result), 2, &y, 1));
            CHECK(y == result);
            CHECK_INT(weft_storage_bytes(weft_tensor_storage(result)), 40);
            CHECK(weft_equal(result, weft_cos(weft_sin(x))));
        }
        weft_release(compiled);
    }
}

#endif

int main(int argc, char **argv)
{
    harness_cache_share();
    device_install();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}

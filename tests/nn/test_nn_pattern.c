/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/parameter.c, nn/hook.c, nn/call.c, grad/hook.c */
/*
 * Patterns of distributed training, eagerly: a module whose weight exists in full only while it is
 * needed, with pretended collectives in one rank and with real ones in several; hooks that close
 * over tensors; writes that gradients do not see.
 */
#include "functional_jobs.h"

#include "tensor/op/op.h"

enum { WIDTH = 20, OUT = 10, ROWS = 2, STEPS = 4 };

/* -- what happened, in words -- */

static _Thread_local char story[4096];

static void tell(const char *word)
{
    size_t used = strlen(story);
    snprintf(story + used, sizeof story - used, "%s%s", used ? " " : "", word);
}

/* Tells of the products of matrices; what is copied and reshaped around them does not matter. */
static weft_tensor *tell_products(weft_i_mode *mode, const weft_i_op_call *call)
{
    (void)mode;
    if (!strcmp(call->op->name, "linear") || !strcmp(call->op->name, "mm"))
        tell(call->op->name);
    return weft_i_op_pass_on(call);
}

static weft_status tell_accumulated(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held;
    tell(user);
    return WEFT_OK;
}

/* -- a sharded weight -- */

/* `group` NULL: this process plays rank 0 of two, and pretends. */
typedef struct sharded {
    weft_module *module;
    weft_tensor *shard, *whole;
    weft_group *group;
    bool by_set;        /* the whole takes over the gathered memory, instead of a copy */
    size_t whole_bytes; /* most that the whole had between steps: to be 0 */
    int hooks;
} sharded;

static weft_tensor *all_gather(const sharded *s, weft_tensor *x)
{
    weft_tensor *twice[] = {x, x};
    return s->group ? weft_all_gather_tensor(x, 0, s->group) : weft_cat(twice, 2, 0);
}

static weft_tensor *reduce_scatter(const sharded *s, weft_tensor *x)
{
    return s->group ? weft_reduce_scatter_tensor(x, WEFT_SUM, 0, s->group)
                    : weft_clone(weft_narrow(x, 0, 0, weft_tensor_size(x, 0) / 2));
}

static weft_status write_whole(void *argument)
{
    sharded *s = argument;
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        weft_tensor *gathered = all_gather(s, s->shard);
        status = s->by_set ? weft_set(s->whole, gathered) : weft_copy(s->whole, gathered);
    }
    return status;
}

static weft_status unshard(weft_hook_event *event, const char *word)
{
    sharded *s = event->user;
    tell(word);
    s->hooks++;
    size_t bytes = (size_t)weft_tensor_numel(s->whole) * 4;
    if (!s->by_set && weft_resize_storage(s->whole, (int64_t)bytes) < 0)
        return weft_last_status();
    if (weft_tensor_preserve_version(&s->whole, 1, write_whole, s) < 0)
        return weft_last_status();
    return weft_module_bind(event->module, "weight", s->whole);
}

static weft_status fw_pre_hook(weft_hook_event *event)
{
    return unshard(event, "fw_pre");
}

static weft_status bw_pre_hook(weft_hook_event *event)
{
    return unshard(event, "bw_pre");
}

static weft_status reshard(sharded *s)
{
    weft_status status = weft_module_bind(s->module, "weight", s->shard);
    return status < 0 ? status : weft_resize_storage(s->whole, 0);
}

static weft_status fw_post_hook(weft_hook_event *event)
{
    tell("fw_post");
    return reshard(event->user);
}

static weft_status bw_post_hook(weft_hook_event *event)
{
    sharded *s = event->user;
    weft_tensor *whole = weft_module_param(event->module, "weight");
    tell("bw_post");
    if (whole != s->whole || !weft_grad(whole))
        return WEFT_ERR_INTERNAL; /* the weight's gradient is to be there by now */
    weft_tensor *mine = reduce_scatter(s, weft_grad(whole));
    if (!mine || weft_set_grad(s->shard, mine) < 0)
        return weft_last_status();
    if (s->group && weft_set_grad(s->whole, NULL) < 0) /* what was sent is not sent again */
        return weft_last_status();
    return reshard(s);
}

static void shard(sharded *s)
{
    weft_tensor *weight = weft_module_param(s->module, "weight");
    CHECK(weight && weft_is_parameter(weight) && weft_requires_grad(weight));
    WEFT_NO_GRAD
    {
        s->whole = weft_parameter(weft_clone(weight), true);
        int64_t rows = weft_tensor_size(weight, 0) / (s->group ? weft_size(s->group) : 2);
        int64_t first = s->group ? rows * weft_rank(s->group) : 0;
        s->shard = weft_parameter(weft_clone(weft_narrow(weight, 0, first, rows)), true);
    }
    CHECK_OK(weft_resize_storage(s->whole, 0));
    CHECK(weft_module_hook_add(s->module, WEFT_HOOK_BACKWARD_PRE, 0, bw_pre_hook, s,
                               WEFT_HOLD(s->shard, s->whole)) > 0);
    CHECK(weft_module_hook_add(s->module, WEFT_HOOK_BACKWARD, 0, bw_post_hook, s, WEFT_HOLD()) > 0);
    CHECK(weft_module_hook_add(s->module, WEFT_HOOK_FORWARD_PRE, 0, fw_pre_hook, s, WEFT_HOLD()) >
          0);
    CHECK(weft_module_hook_add(s->module, WEFT_HOOK_FORWARD, 0, fw_post_hook, s, WEFT_HOLD()) > 0);
    CHECK_OK(weft_module_bind(s->module, "weight", s->shard));
}

static size_t bytes_of(const weft_tensor *x)
{
    return weft_storage_bytes(weft_tensor_storage(x));
}

/* -- the pretended job -- */

static weft_tensor *init_fake_distributed(sharded *s)
{
    weft_seed(1234);
    s->module = weft_nn_linear_plain(WIDTH, OUT);
    shard(s);
    CHECK_INT(weft_tensor_size(s->shard, 0), OUT / 2);
    CHECK_INT(weft_tensor_size(s->whole, 0), OUT);
    CHECK(bytes_of(s->shard) == 400 && bytes_of(s->whole) == 0);
    weft_tensor *inp = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, WIDTH));
    CHECK_OK(weft_require_grad(inp, true));
    return inp;
}

static double column(weft_tensor *x, int j)
{
    double sum = 0;
    for (int64_t i = 0; i < weft_tensor_size(x, 0); i++)
        sum += weft_item(x, i * WIDTH + j);
    return sum;
}

/* After `k` steps: section by section what the closed form says. */
static void check_step(const sharded *s, weft_tensor *inp, weft_tensor *out, int k)
{
    for (int i = 0; i < ROWS; i++)
        for (int o = 0; o < OUT; o++) {
            double sum = 0;
            for (int j = 0; j < WIDTH; j++)
                sum += weft_item(inp, i * WIDTH + j) * weft_item(s->shard, o % 5 * WIDTH + j);
            /* Equal columns give equal products but for the order of additions, which a BLAS may
             * choose for each column. */
            CHECK_NEAR(weft_item(out, i * OUT + o), sum, 1e-5);
            CHECK_NEAR(weft_item(out, i * OUT + o), weft_item(out, i * OUT + o % 5), 1e-5);
        }
    weft_tensor *whole = weft_grad(s->whole), *mine = weft_grad(s->shard), *in = weft_grad(inp);
    CHECK(whole && mine && in);
    CHECK(bytes_of(whole) == 800 && weft_tensor_size(mine, 0) == 5);
    for (int j = 0; j < WIDTH; j++) {
        double s_j = column(inp, j), c_j = column(s->shard, j);
        for (int row = 0; row < OUT; row++)
            CHECK_NEAR(weft_item(whole, row * WIDTH + j), k * s_j, 1e-4);
        for (int row = 0; row < OUT / 2; row++)
            CHECK_NEAR(weft_item(mine, row * WIDTH + j), k * s_j, 1e-4);
        for (int row = 0; row < ROWS; row++)
            CHECK_NEAR(weft_item(in, row * WIDTH + j), k * 2 * c_j, 1e-4);
    }
}

static void check_between(const sharded *s, int64_t version, weft_tensor *shard_before)
{
    CHECK(weft_module_param(s->module, "weight") == s->shard);
    CHECK_INT(bytes_of(s->whole), 0);
    CHECK_INT(weft_tensor_size(s->whole, 0), OUT);
    CHECK_INT(weft_tensor_stride(s->whole, 0), WIDTH);
    CHECK_INT(weft_tensor_version(s->whole), version);
    CHECK(weft_equal(s->shard, shard_before));
}

static const char one_step[] = "fw_pre linear fw_post bw_pre mm mm U.grad bw_post inp.grad";

static void run_fake_distributed(bool by_set)
{
    sharded s = {.by_set = by_set};
    weft_i_mode mode = {tell_products, NULL};
    weft_scope_open();
    weft_tensor *inp = init_fake_distributed(&s);
    weft_tensor *before = weft_clone(weft_detach(s.shard));
    int64_t version = weft_tensor_version(s.whole), generation = weft_module_generation(s.module);
    CHECK(weft_accumulated_hook(s.whole, tell_accumulated, "U.grad", WEFT_HOLD()) >= 0);
    CHECK(weft_accumulated_hook(inp, tell_accumulated, "inp.grad", WEFT_HOLD()) >= 0);
    for (int k = 1; k <= STEPS; k++) {
        weft_scope_open();
        story[0] = 0;
        weft_i_mode_push(&mode);
        weft_tensor *out = weft_module_call(s.module, inp);
        weft_tensor *loss = weft_sum(out, NULL, 0, false);
        weft_status status = out ? weft_backward(loss) : weft_last_status();
        weft_i_mode_pop(&mode);
        CHECK_OK(status);
        if (strcmp(story, one_step))
            FAIL("step %d went \"%s\"", k, story);
        check_step(&s, inp, out, k);
        check_between(&s, version, before);
        CHECK(weft_requires_grad(out));
        weft_scope_close();
    }
    CHECK_INT(weft_module_generation(s.module), generation); /* binding is no structural change */
    CHECK_INT(s.hooks, 2 * STEPS);
    weft_scope_close();
}

TEST(test_fake_distributed_copy_eager)
{
    run_fake_distributed(false);
}

TEST(test_fake_distributed_set_eager)
{
    run_fake_distributed(true);
}

/* Without the hook that brings the weight back, backward finds no memory, and says what. */
TEST(test_pattern_freed_weight_is_refused)
{
    sharded s = {0};
    weft_scope_open();
    weft_tensor *inp = init_fake_distributed(&s);
    CHECK_OK(weft_module_hook_remove(s.module, 1));
    weft_tensor *out = weft_module_call(s.module, inp);
    CHECK(out);
    CHECK_STATUS(weft_backward(weft_sum(out, NULL, 0, false)), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "800");
    CHECK(!weft_grad(inp));
    weft_clear_error();
    weft_scope_close();
}

/* -- hooks that close over tensors -- */

static weft_status add_held(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    *grad = weft_add(weft_add(*grad, held[0]), held[1]);
    return WEFT_OK;
}

static weft_tensor *hooked(weft_tensor *x, weft_tensor *val)
{
    weft_tensor *y = weft_sin(x), *closure = weft_add_scalar(y, 1);
    CHECK(weft_tensor_hook(y, add_held, NULL, WEFT_HOLD(val, closure)) >= 0);
    return weft_sin(y);
}

/* y = sin x, its gradient gets val + y + 1, loss = sum sin y. */
TEST(test_intermediate_hook_with_closure_eager)
{
    static const double values[] = {88, 99}, expected[] = {48.901593, 54.844919};
    for (int i = 0; i < 2; i++) {
        weft_scope_open();
        weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
        CHECK_OK(weft_require_grad(x, true));
        weft_scope_open();
        weft_tensor *loss = weft_keep(weft_sum(
            hooked(x, weft_full(WEFT_I64, WEFT_CPU, WEFT_SCALAR, values[i])), NULL, 0, false));
        weft_scope_close(); /* the graph holds what the hook closes over */
        CHECK_OK(weft_backward(loss));
        weft_release(loss);
        for (int k = 0; k < 4; k++)
            CHECK_NEAR(weft_item(weft_grad(x), k), expected[i], 2e-5);
        weft_scope_close();
    }
}

/* -- writes that gradients do not see -- */

typedef struct hidden {
    weft_tensor *w, *x;
} hidden;

static weft_status write_hidden(void *argument)
{
    hidden *h = argument;
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        status = weft_copy(h->w, h->x);
    }
    return status;
}

static void run_hidden(bool preserve)
{
    weft_scope_open();
    hidden h = {weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 0.25),
                weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 0.75)};
    CHECK_OK(weft_require_grad(h.w, true));
    weft_tensor *r = weft_sin(h.w);
    int64_t version = weft_tensor_version(h.w);
    if (preserve) {
        CHECK_OK(weft_tensor_preserve_version(&h.w, 1, write_hidden, &h));
    } else {
        CHECK_OK(write_hidden(&h));
        CHECK_OK(weft_tensor_set_version(&h.w, &version, 1));
    }
    CHECK_INT(weft_tensor_version(h.w), version);
    CHECK_OK(weft_backward(r));
    CHECK_NEAR(weft_item(r, 0), sin(0.25), 1e-6);
    CHECK_NEAR(weft_item(h.w, 0), 0.75, 0);
    CHECK_NEAR(weft_item(weft_grad(h.w), 0), cos(0.75), 1e-6);
    weft_scope_close();
}

TEST(test_unsafe_set_version_counter2_eager)
{
    run_hidden(false);
}

TEST(test_unsafe_preserve_version_counter2_eager)
{
    run_hidden(true);
}

/* The same write in the open is found. */
TEST(test_pattern_open_write_is_found)
{
    weft_scope_open();
    hidden h = {weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 0.25),
                weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 0.75)};
    CHECK_OK(weft_require_grad(h.w, true));
    weft_tensor *r = weft_sin(h.w);
    CHECK_OK(write_hidden(&h));
    CHECK_STATUS(weft_backward(r), WEFT_ERR_STATE);
    CHECK(!weft_grad(h.w));
    weft_clear_error();
    weft_scope_close();
}

/* -- parameters made on the way -- */

/* test_nn_param_return1 to 4: of x or of x + 123, that require gradients or not. */
static void run_param_return(double shift, bool required)
{
    weft_scope_open();
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    weft_tensor *base = shift != 0 ? weft_add_scalar(x, shift) : x;
    weft_tensor *p = weft_parameter(base, required);
    weft_tensor *r = required ? weft_sin(p) : weft_add_scalar(x, 1);
    CHECK(p && r && p != base && weft_is_parameter(p) && !weft_is_parameter(base));
    CHECK(weft_is_leaf(p) && weft_requires_grad(p) == required &&
          weft_requires_grad(r) == required);
    CHECK(weft_tensor_storage(p) == weft_tensor_storage(base)); /* an alias, not a copy */
    CHECK(weft_equal(p, base));
    if (required)
        CHECK_OK(weft_backward(weft_sum(r, NULL, 0, false)));
    else
        CHECK(weft_backward(weft_sum(r, NULL, 0, false)) < 0);
    CHECK(!weft_grad(p) == !required && !weft_grad(x));
    for (int i = 0; i < 16 && required; i++)
        CHECK_NEAR(weft_item(weft_grad(p), i), cos(weft_item(x, i) + shift), 1e-5);
    weft_clear_error();
    weft_scope_close();
}

TEST(test_nn_param_return_eager)
{
    run_param_return(0, true);
    run_param_return(0, false);
    run_param_return(123, true);
    run_param_return(123, false);
}

/* -- the same module between real ranks -- */

enum { REAL_WIDTH = 24, REAL_OUT = 8, BATCH = 6, REAL_STEPS = 5 };

/* Rank `rank`'s part of the data: the same in both trainings. */
static weft_tensor *data_of(int rank)
{
    weft_seed(100 + (uint64_t)rank);
    return weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(BATCH, REAL_WIDTH));
}

static weft_tensor *loss_of(weft_module *module, weft_tensor *x)
{
    weft_tensor *y = weft_module_call(module, x);
    return weft_mean(weft_mul(y, y), NULL, 0, false);
}

/* The whole weight in one place, trained on everybody's data. */
static weft_tensor *train_unsharded(int size)
{
    weft_seed(7);
    weft_module *module = weft_nn_linear_plain(REAL_WIDTH, REAL_OUT);
    weft_optim *sgd = weft_optim_sgd(module, 0.5, NULL);
    for (int k = 0; k < REAL_STEPS; k++) {
        for (int r = 0; r < size; r++)
            CHECK_OK(weft_backward(loss_of(module, data_of(r))));
        CHECK_OK(weft_optim_step(sgd));
    }
    return weft_module_param(module, "weight");
}

static void check_part(weft_tensor *whole, weft_tensor *part, int rank)
{
    int64_t n = weft_tensor_numel(part);
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(weft_item(part, i), weft_item(whole, rank * n + i), 1e-6);
}

SIZES_TEST(test_pattern_sharded_module_trains_as_unsharded)
{
    weft_group *world = join(0);
    weft_tensor *whole = train_unsharded(size);
    weft_seed(7);
    sharded s = {.group = world, .module = weft_nn_linear_plain(REAL_WIDTH, REAL_OUT)};
    s.by_set = rank % 2; /* ranks need not agree on how they write */
    shard(&s);
    weft_optim *sgd = weft_optim_sgd(s.module, 0.5, NULL); /* of the shard: it is bound now */
    for (int k = 0; k < REAL_STEPS; k++) {
        weft_scope_open();
        weft_tensor *x = data_of(rank);
        CHECK_OK(weft_require_grad(x, true));
        CHECK_OK(weft_backward(loss_of(s.module, x)));
        CHECK_INT(bytes_of(s.whole), 0);
        CHECK(!weft_grad(s.whole));
        CHECK_OK(weft_optim_step(sgd));
        CHECK(!weft_grad(s.shard));
        weft_scope_close();
        CHECK_INT(bytes_of(s.whole), 0);
    }
    check_part(whole, s.shard, rank);
    leave(world);
}

/* Gradients of a replicated module are averaged behind backward: a hook replaces each by the
 * collective that is under way, and nobody waits before the step. */
static weft_status average(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held;
    *grad = weft_all_reduce(*grad, WEFT_AVG, user);
    return WEFT_OK;
}

SIZES_TEST(test_pattern_data_parallel_trains_as_one)
{
    weft_group *world = join(0);
    weft_seed(7);
    weft_module *alone = weft_nn_sequential(weft_nn_linear(REAL_WIDTH, 16), weft_nn_op(weft_tanh),
                                            weft_nn_linear(16, REAL_OUT));
    weft_seed(7);
    weft_module *net = weft_nn_sequential(weft_nn_linear(REAL_WIDTH, 16), weft_nn_op(weft_tanh),
                                          weft_nn_linear(16, REAL_OUT));
    weft_optim *one = weft_optim_adamw(alone, 1e-2, NULL),
               *many = weft_optim_adamw(net, 1e-2, NULL);
    weft_named param[4], other[4];
    CHECK_INT(weft_module_params(net, param, 4), 4);
    CHECK_INT(weft_module_params(alone, other, 4), 4);
    for (int i = 0; i < 4; i++)
        CHECK(weft_tensor_hook(param[i].tensor, average, world, WEFT_HOLD()) >= 0);
    for (int k = 0; k < REAL_STEPS; k++) {
        weft_scope_open();
        CHECK_OK(weft_backward(loss_of(net, data_of(rank))));
        CHECK_OK(weft_optim_step(many));
        for (int r = 0; r < size; r++)
            CHECK_OK(weft_backward(weft_div_scalar(loss_of(alone, data_of(r)), size)));
        CHECK_OK(weft_optim_step(one));
        weft_scope_close();
    }
    for (int i = 0; i < 4; i++)
        CHECK(weft_allclose(param[i].tensor, other[i].tensor, 1e-4, 1e-5, false));
    CHECK_INT(weft_unwaited(world), 0);
    leave(world);
}

/* A rank dies in the middle of backward: it ends on all others, and they know who. */
static weft_status die_if_told(weft_hook_event *event)
{
    if (*(const bool *)event->user)
        raise(SIGKILL);
    return WEFT_OK;
}

RANKS_TEST(test_pattern_rank_dies_in_backward, 3)
{
    if (harness_in_threads)
        SKIP("ranks that are threads of one process die together");
    weft_group *world = join(0);
    bool told = rank == 1;
    weft_seed(7);
    sharded s = {.group = world, .module = weft_nn_linear_plain(REAL_WIDTH, 3 * REAL_OUT)};
    CHECK(weft_module_hook_add(s.module, WEFT_HOOK_BACKWARD_PRE, 0, die_if_told, &told,
                               WEFT_HOLD()) > 0);
    shard(&s);
    weft_tensor *x = data_of(rank);
    CHECK_OK(weft_require_grad(x, true));
    weft_tensor *loss = loss_of(s.module, x);
    CHECK(loss);
    if (told)
        harness_rank_dies();
    CHECK_STATUS(weft_backward(loss), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 1");
    CHECK_CONTAINS(weft_last_error(), "backward_pre hook");
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

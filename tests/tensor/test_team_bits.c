/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/team/berths.c kernels/product/cut.c kernels/walk/loop.c */
/* A number of threads does not show in any bit: of every row of the registry, of large operands of awkward
 * layouts, and of a training run, eager and compiled.  ThreadSanitizer, which looks for races and not at bits, sees
 * three threads beside one, and of large operands a sample that follows from HARNESS_SEED. */
#include "harness.h"

#include "op_samples.h"
#include "values_seed.h"

#include "base/os/os.h"
#include "base/team/team.h"
#include "kernels/product/cut.h"

#include <weft/weft.h>

static const int threads_of[] = {1, 3, 2, 16};
enum { TEAMS = VALUES_SANITIZED ? 2 : 4, ONE_OF = VALUES_SANITIZED ? 3 : 1 };

static void put_back(void)
{
    weft_i_team_least = WEFT_I_TEAM_LEAST;
    weft_i_team_part_bytes = WEFT_I_TEAM_PART;
    weft_i_team_use(0);
    weft_i_team_rest();
}

/* Elements in order, whatever the layout. */
static char *bytes_of(weft_tensor *x, size_t *bytes)
{
    weft_tensor *packed = weft_contiguous(x);
    *bytes = packed ? (size_t)weft_tensor_numel(packed) * weft_dtype_size(packed->dtype) : 0;
    char *copy = malloc(*bytes + 1);
    CHECK(packed && copy);
    if (*bytes)
        memcpy(copy, weft_tensor_data(packed), *bytes);
    return copy;
}

static void compare(const char *what, int threads, weft_tensor *x, char **first, size_t *bytes)
{
    size_t size;
    char *now = bytes_of(x, &size);
    if (!*first) {
        *first = now;
        *bytes = size;
        return;
    }
    if (size != *bytes || memcmp(now, *first, size))
        FAIL("%s: other bits with %d threads", what, threads);
    free(now);
}

/* ---- every row, cut as small as can be ---- */

static bool is_defined(const char *op)
{
    return strcmp(op, "empty") != 0 && strcmp(op, "empty_strided") != 0 &&
           strcmp(op, "version") != 0;
}

TEST(test_team_bits_of_every_row)
{
    for (int k = 0; k < SAMPLES; k++) {
        char *first = NULL;
        size_t bytes = 0;
        for (int i = -1; i < TEAMS && is_defined(samples[k].op); i++) {
            int threads = i < 0 ? 1 : threads_of[i];
            CHECK_OK(weft_scope_open());
            weft_seed(5);
            inputs in = make_inputs(&samples[k], WEFT_CPU);
            weft_i_team_use(threads);
            weft_i_team_least = i < 0 ? INT64_MAX : 1; /* first uncut */
            weft_i_team_part_bytes = 8;
            weft_tensor *x = call_sample(&samples[k], &in, WEFT_CPU);
            weft_i_team_least = WEFT_I_TEAM_LEAST;
            if (!x)
                FAIL("%s: %s", samples[k].op, weft_last_error());
            compare(samples[k].op, threads, x, &first, &bytes);
            CHECK_OK(weft_scope_close());
        }
        free(first);
    }
    put_back();
}

/* ---- large operands ---- */

static weft_tensor *random_of(weft_dtype dtype, weft_shape shape)
{
    return weft_to_dtype(weft_randn(WEFT_F32, WEFT_CPU, shape), dtype);
}

static weft_tensor *turned(weft_dtype dtype, int64_t rows, int64_t columns)
{
    return weft_transpose(random_of(dtype, WEFT_SHAPE(columns, rows)), 0, 1);
}

static weft_tensor *indices(int64_t below, weft_shape shape)
{
    return weft_randint(WEFT_I64, WEFT_CPU, shape, 0, below);
}

typedef struct scene {
    const char *name;
    weft_dtype dtype;
    weft_tensor *(*run)(weft_dtype dtype);
} scene;

#define SCENE(name_, ...)                                                 \
    static weft_tensor *run_##name_(__attribute__((unused)) weft_dtype t) \
    {                                                                     \
        return __VA_ARGS__;                                               \
    }
SCENE(add, weft_add(turned(t, 501, 700), random_of(t, WEFT_SHAPE(700))))
SCENE(add_packed, weft_add(random_of(t, WEFT_SHAPE(350001)), random_of(t, WEFT_SHAPE(350001))))
SCENE(few_long, weft_exp(weft_narrow(random_of(t, WEFT_SHAPE(3, 200003)), 1, 1, 200001)))
SCENE(gelu, weft_gelu(random_of(t, WEFT_SHAPE(3, 130, 701))))
SCENE(sine, weft_sin(weft_mul_scalar(random_of(t, WEFT_SHAPE(300000)), 40000)))
SCENE(where, weft_where(weft_gt_scalar(turned(t, 600, 499), 0), random_of(t, WEFT_SHAPE(600, 499)),
                        weft_full(t, WEFT_CPU, WEFT_SCALAR, -1)))
SCENE(convert, weft_to_dtype(turned(t, 700, 500), WEFT_F16))
SCENE(full, weft_full(t, WEFT_CPU, WEFT_SHAPE(5000, 123), 3))
SCENE(cat,
      weft_cat((weft_tensor *[]){turned(t, 400, 300), random_of(t, WEFT_SHAPE(400, 501))}, 2, 1))
SCENE(sum_all, weft_sum(random_of(t, WEFT_SHAPE(1000003)), NULL, 0, false))
SCENE(sum_turned, weft_sum(turned(t, 1003, 700), NULL, 0, false))
SCENE(sum_rows, weft_sum(random_of(t, WEFT_SHAPE(900, 701)), (int[]){1}, 1, false))
SCENE(sum_columns, weft_sum(random_of(t, WEFT_SHAPE(3001, 300)), (int[]){0}, 1, true))
SCENE(sum_wide, weft_sum(random_of(t, WEFT_SHAPE(300, 3001)), (int[]){0}, 1, true))
SCENE(sum_middle, weft_sum(random_of(t, WEFT_SHAPE(7, 2100, 40)), (int[]){1}, 1, false))
SCENE(sum_outer, weft_sum(random_of(t, WEFT_SHAPE(40, 70, 200)), (int[]){0, 1}, 2, false))
SCENE(mean_ends, weft_mean(random_of(t, WEFT_SHAPE(90, 50, 130)), (int[]){0, 2}, 2, false))
SCENE(max_few, weft_max(turned(t, 100003, 7), (int[]){0}, 1, false))
SCENE(argmin, weft_argmin(random_of(t, WEFT_SHAPE(300, 2000)), 0, false))
SCENE(softmax, weft_softmax(random_of(t, WEFT_SHAPE(301, 1000)), -1))
SCENE(softmax_first, weft_log_softmax(random_of(t, WEFT_SHAPE(301, 1000)), 0))
SCENE(softmax_grad,
      weft_softmax_grad(random_of(t, WEFT_SHAPE(401, 600)), random_of(t, WEFT_SHAPE(401, 600)), -1))
SCENE(layer_norm,
      weft_layer_norm(random_of(t, WEFT_SHAPE(1001, 300)), 1, random_of(t, WEFT_SHAPE(300)),
                      random_of(t, WEFT_SHAPE(300)), 1e-5))
SCENE(embedding, weft_embedding(turned(t, 1000, 321), indices(1000, WEFT_SHAPE(30, 71))))
SCENE(embedding_grad,
      weft_embedding_grad(random_of(t, WEFT_SHAPE(2003, 321)), indices(50, WEFT_SHAPE(2003)), 1001))
SCENE(take_along,
      weft_take_along(random_of(t, WEFT_SHAPE(300, 500)), 1, indices(500, WEFT_SHAPE(300, 400))))
SCENE(scatter_add,
      weft_scatter_add(random_of(t, WEFT_SHAPE(400, 60)), 1, indices(60, WEFT_SHAPE(400, 501)),
                       random_of(t, WEFT_SHAPE(400, 501))))
SCENE(scatter_first,
      weft_scatter_add(random_of(t, WEFT_SHAPE(40, 600)), 0, indices(40, WEFT_SHAPE(401, 600)),
                       random_of(t, WEFT_SHAPE(401, 600))))
SCENE(mm, weft_mm(random_of(t, WEFT_SHAPE(403, 310)), random_of(t, WEFT_SHAPE(310, 501))))
SCENE(mm_turned, weft_mm(turned(t, 210, 500), turned(t, 500, 933)))
SCENE(mm_tall, weft_mm(random_of(t, WEFT_SHAPE(3000, 97)), turned(t, 97, 130)))
SCENE(mm_deep, weft_mm(turned(t, 65, 6001), random_of(t, WEFT_SHAPE(6001, 66))))
SCENE(bmm, weft_bmm(random_of(t, WEFT_SHAPE(21, 65, 64)),
                    weft_transpose(random_of(t, WEFT_SHAPE(21, 70, 64)), 1, 2)))
SCENE(bmm_few,
      weft_bmm(random_of(t, WEFT_SHAPE(3, 300, 200)), random_of(t, WEFT_SHAPE(3, 200, 250))))
SCENE(one_row, weft_mm(random_of(t, WEFT_SHAPE(1, 700)), random_of(t, WEFT_SHAPE(700, 999))))
SCENE(few_rows,
      weft_linear(random_of(t, WEFT_SHAPE(3, 700)), random_of(t, WEFT_SHAPE(999, 700)), NULL))
SCENE(linear, weft_linear(random_of(t, WEFT_SHAPE(6, 50, 300)), random_of(t, WEFT_SHAPE(700, 300)),
                          random_of(t, WEFT_SHAPE(700))))

static weft_tensor *run_layer_norm_grad(weft_dtype t)
{
    weft_tensor *out[3];
    weft_tensor *grad = random_of(t, WEFT_SHAPE(5003, 60)), *x = random_of(t, WEFT_SHAPE(5003, 60));
    if (weft_layer_norm_grad(grad, x, 1, random_of(t, WEFT_SHAPE(60)), 1e-5, true, out) < 0)
        return NULL;
    return weft_cat((weft_tensor *[]){weft_view(out[0], WEFT_SHAPE(5003 * 60)), out[1], out[2]}, 3,
                    0);
}

static weft_tensor *run_adamw(weft_dtype t)
{
    weft_tensor *x[3] = {random_of(t, WEFT_SHAPE(100003)),
                         weft_zeros(t, WEFT_CPU, WEFT_SHAPE(100003)),
                         weft_zeros(t, WEFT_CPU, WEFT_SHAPE(100003))};
    weft_tensor *grad = random_of(WEFT_F32, WEFT_SHAPE(100003));
    for (int step = 1; step < 3; step++) {
        weft_tensor *outs[3];
        weft_i_arg args[] = {WEFT_I_TENSORS_ARG(x, 3),
                             WEFT_I_TENSOR_ARG(grad),
                             N(1e-2),
                             N(0.9),
                             N(0.99),
                             N(1e-8),
                             N(0.1),
                             I(step)};
        if (weft_i_op_apply_list(&weft_i_op_adamw_, outs, args) < 0)
            return NULL;
    }
    return weft_cat(x, 3, 0);
}

#define ROW(name_)                     \
    {#name_, WEFT_F32, run_##name_},   \
    {                                  \
#name_, WEFT_BF16, run_##name_ \
    }
#define ROW_WIDE(name_)               \
    {                                 \
#name_, WEFT_F64, run_##name_ \
    }
static const scene scenes[] = {ROW(add),
                               ROW(add_packed),
                               ROW(few_long),
                               ROW(gelu),
                               ROW(sine),
                               ROW(where),
                               ROW(convert),
                               ROW(full),
                               ROW(cat),
                               ROW(sum_all),
                               ROW(sum_turned),
                               ROW(sum_rows),
                               ROW(sum_columns),
                               ROW(sum_wide),
                               ROW(sum_middle),
                               ROW(sum_outer),
                               ROW(mean_ends),
                               ROW(max_few),
                               ROW(argmin),
                               ROW(softmax),
                               ROW(softmax_first),
                               ROW(softmax_grad),
                               ROW(layer_norm),
                               ROW(embedding),
                               ROW(embedding_grad),
                               ROW(take_along),
                               ROW(scatter_add),
                               ROW(scatter_first),
                               ROW(mm),
                               ROW(mm_turned),
                               ROW(mm_tall),
                               ROW(mm_deep),
                               ROW(bmm),
                               ROW(bmm_few),
                               ROW(one_row),
                               ROW(few_rows),
                               ROW(linear),
                               ROW(layer_norm_grad),
                               ROW(adamw),
                               ROW_WIDE(mm),
                               ROW_WIDE(mm_deep),
                               ROW_WIDE(sum_all),
                               ROW_WIDE(sum_columns),
                               {"mm", WEFT_I32, run_mm},
                               {"mm", WEFT_F16, run_mm}};

TEST(test_team_bits_of_large_operands)
{
    for (size_t k = 0; k < sizeof scenes / sizeof *scenes; k++) {
        char *first = NULL;
        size_t bytes = 0;
        for (int i = 0; i < TEAMS && values_takes(k, ONE_OF); i++) {
            CHECK_OK(weft_scope_open());
            weft_seed(7);
            weft_i_team_use(threads_of[i]);
            weft_tensor *x = scenes[k].run(scenes[k].dtype);
            if (!x)
                FAIL("%s: %s", scenes[k].name, weft_last_error());
            char what[64];
            snprintf(what, sizeof what, "%s of %s", scenes[k].name,
                     weft_dtype_name(scenes[k].dtype));
            compare(what, threads_of[i], x, &first, &bytes);
            CHECK_OK(weft_scope_close());
        }
        free(first);
    }
    put_back();
}

/* ---- training ---- */

enum { WIDTH = 96, TIME = 48, BATCH = 6, SYMBOLS = 700, STEPS = 3 };

static weft_tensor *block(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    x = weft_add(x, weft_module_call(weft_module_child(self, "attention"), x));
    return weft_add(x, weft_module_call(weft_module_child(self, "mlp"), x));
}

static weft_module *new_block(void)
{
    weft_module *module = weft_module_new(block, NULL);
    CHECK_OK(weft_module_add(
        module, "attention",
        weft_nn_sequential(weft_nn_layer_norm(WIDTH), weft_nn_attention(WIDTH, 4, 0))));
    CHECK_OK(weft_module_add(
        module, "mlp",
        weft_nn_sequential(weft_nn_layer_norm(WIDTH), weft_nn_linear(WIDTH, 4 * WIDTH),
                           weft_nn_op(weft_gelu), weft_nn_linear(4 * WIDTH, WIDTH))));
    return module;
}

static weft_status loss_of(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *net)
{
    (void)ins, (void)outs;
    out[0] = weft_cross_entropy(weft_module_call(net, in[0]), in[1]);
    return WEFT_OK;
}

/* All parameters after some steps, as one tensor. */
static weft_tensor *train(bool compiled)
{
    enum { ROOM = 64 };
    weft_seed(3);
    weft_module *net =
        weft_nn_sequential(weft_nn_embedding(SYMBOLS, WIDTH), new_block(),
                           weft_nn_layer_norm(WIDTH), weft_nn_linear(WIDTH, SYMBOLS));
    weft_optim *adam = weft_optim_adamw(net, 1e-2, NULL);
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    weft_compiled *fast = compiled ? weft_compile(loss_of, net, &opts) : NULL;
    weft_tensor *in[2] = {indices(SYMBOLS, WEFT_SHAPE(BATCH, TIME)),
                          indices(SYMBOLS, WEFT_SHAPE(BATCH, TIME))};
    for (int step = 0; step < STEPS; step++) {
        weft_tensor *loss = NULL;
        CHECK_OK(fast ? weft_compiled_call(fast, in, 2, &loss, 1) : loss_of(in, 2, &loss, 1, net));
        CHECK_OK(weft_backward(loss));
        CHECK_OK(weft_optim_step(adam));
    }
    weft_named named[ROOM];
    weft_tensor *flat[ROOM];
    int count = weft_module_params(net, named, ROOM);
    CHECK(count > 10 && count <= ROOM);
    for (int i = 0; i < count; i++)
        flat[i] =
            weft_detach(weft_view(named[i].tensor, WEFT_SHAPE(weft_tensor_numel(named[i].tensor))));
    return weft_cat(flat, (size_t)count, 0);
}

/* Once with the usual cuts, and once with small work cut as well. */
static void train_by_all(bool compiled, int64_t least)
{
    char *first = NULL;
    size_t bytes = 0;
    for (int i = 0; i < TEAMS; i++) {
        CHECK_OK(weft_scope_open());
        weft_i_team_use(threads_of[i]);
        weft_i_team_least = least;
        weft_i_team_part_bytes = least / 4;
        compare(compiled ? "compiled training" : "training", threads_of[i], train(compiled), &first,
                &bytes);
        CHECK_OK(weft_scope_close());
    }
    free(first);
    put_back();
}

TEST(test_team_bits_of_training)
{
    if (!VALUES_SANITIZED)
        train_by_all(false, WEFT_I_TEAM_LEAST);
    train_by_all(false, 4096);
}

TEST(test_team_bits_of_compiled_training)
{
    if (!VALUES_SANITIZED)
        train_by_all(true, WEFT_I_TEAM_LEAST);
    train_by_all(true, 4096);
}

/* ---- no memory ---- */

static weft_i_os table;
static atomic_int left; /* parts ask at the same time */

static void *aligned_until(size_t alignment, size_t bytes)
{
    return atomic_fetch_sub(&left, 1) > 0 ? weft_i_os_linux.alloc_aligned(alignment, bytes) : NULL;
}

/* What no part could have is told by the thread that called. */
TEST(test_team_without_memory_for_parts)
{
    table = weft_i_os_linux; /* before there are threads, which read it */
    table.alloc_aligned = aligned_until;
    weft_tensor *a = weft_transpose(random_of(WEFT_BF16, WEFT_SHAPE(12, 70, 64)), 1, 2),
                *b = random_of(WEFT_BF16, WEFT_SHAPE(12, 70, 65));
    weft_tensor *out = weft_zeros(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(12, 64, 65));
    weft_tensor *x = random_of(WEFT_BF16, WEFT_SHAPE(300, 1000));
    CHECK(a && b && out && x);
    CHECK_OK(weft_bmm_into(out, a, b)); /* libraries are there, ways are chosen */
    for (int had = 0; had < 2; had++) {
        weft_i_team_use(3);
        left = had * 3;
        weft_i_os_now = &table;
        weft_status product = weft_bmm_into(out, a, b);
        weft_tensor *rows = weft_softmax(x, -1);
        weft_i_os_now = &weft_i_os_linux;
        CHECK_INT(product, WEFT_ERR_NO_MEMORY);
        CHECK(!rows);
        CHECK_INT(weft_last_status(), WEFT_ERR_NO_MEMORY);
        weft_clear_error();
    }
    CHECK_OK(weft_bmm_into(out, a, b));
    put_back();
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}

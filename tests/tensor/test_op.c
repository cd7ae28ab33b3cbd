/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/op.c, tensor/op/ops.c, tensor/op/promote.c, tensor/object/fake.c */
/*
 * The registry and the dispatch path.  Every row has a sample call here; a row without one fails
 * the test, so that no operation escapes the checks that hold for all: meta gives what the CPU
 * gives, NULL passes through, a freed storage and a wrong device are refused, and every allocation
 * may fail.
 */
#include "op_samples.h"

#include "base/os/os.h"

TEST(test_op_every_row_has_a_sample)
{
    size_t rows = 0;
    for (weft_i_op_table *table = weft_i_op_tables(); table; table = table->next)
        for (size_t i = 0; i < table->count; i++, rows++) {
            int found = 0;
            for (int k = 0; k < SAMPLES; k++)
                found |= !strcmp(samples[k].op, table->rows[i]->name);
            /* Collectives, which need a group, have theirs in test_functional.c. */
            if (strchr(table->rows[i]->kinds, 'g') || table->rows[i]->flags & WEFT_I_OP_EFFECT)
                continue;
            /* Of floors above, where the whole library is loaded: test_module.c, test_grad_hooks.c. */
            if (!strcmp(table->rows[i]->name, "parameter") || !strcmp(table->rows[i]->name, "pass"))
                continue;
            if (!found && weft_i_op_find(table->rows[i]->name) == table->rows[i])
                FAIL("no sample for %s", table->rows[i]->name);
        }
    CHECK(rows > 50);
}

/* Shape, strides, offset, dtype and storage size agree between meta and CPU, for every row. */
TEST(test_op_meta_agrees_with_cpu)
{
    for (int k = 0; k < SAMPLES; k++) {
        CHECK_OK(weft_scope_open());
        inputs cpu = make_inputs(&samples[k], WEFT_CPU), meta = make_inputs(&samples[k], WEFT_META);
        weft_tensor *a = call_sample(&samples[k], &cpu, WEFT_CPU),
                    *b = call_sample(&samples[k], &meta, WEFT_META);
        if (!a || !b)
            FAIL("%s on %s: %s", samples[k].op, a ? "meta" : "cpu", weft_last_error());
        if (weft_tensor_device(b) != WEFT_META && strcmp(samples[k].op, "to") &&
            strcmp(samples[k].op, "version"))
            FAIL("%s of meta is not meta", samples[k].op);
        if (a->dtype != b->dtype ||
            !weft_i_shape_equal(weft_i_tensor_shape(a), weft_i_tensor_shape(b)) ||
            memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof *a->stride) ||
            a->offset != b->offset ||
            weft_storage_bytes(a->storage) != weft_storage_bytes(b->storage) ||
            weft_tensor_version(a) != weft_tensor_version(b))
            FAIL("%s: meta and cpu differ", samples[k].op);
        if (weft_storage_data(b->storage) && weft_tensor_device(b) == WEFT_META)
            FAIL("%s of meta has data", samples[k].op);
        CHECK_OK(weft_scope_close());
    }
}

TEST(test_op_null_passes_through_every_row)
{
    for (int k = 0; k < SAMPLES; k++) {
        CHECK_OK(weft_scope_open());
        inputs in = make_inputs(&samples[k], WEFT_CPU);
        weft_clear_error();
        if (in.list[1])
            in.list[1] = NULL;
        else if (in.count)
            in.at[in.count - 1] = NULL;
        if (in.count || in.list[0]) {
            CHECK(!call_sample(&samples[k], &in, WEFT_CPU));
            CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
            weft_i_fail(WEFT_ERR_TIMEOUT, "an earlier failure");
            CHECK(!call_sample(&samples[k], &in, WEFT_CPU));
            CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT); /* the earlier error stays */
        }
        CHECK_OK(weft_scope_close());
    }
    weft_clear_error();
}

TEST(test_op_devices_do_not_mix)
{
    for (int k = 0; k < SAMPLES; k++) {
        CHECK_OK(weft_scope_open());
        inputs in = make_inputs(&samples[k], WEFT_CPU);
        if (in.count > 1) {
            in.at[1] = on(in.at[1], WEFT_META);
            CHECK(!call_sample(&samples[k], &in, WEFT_CPU));
            CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
            CHECK_CONTAINS(weft_last_error(), samples[k].op);
        }
        CHECK_OK(weft_scope_close());
    }
    weft_clear_error();
}

TEST(test_op_freed_operands_are_refused_by_every_row)
{
    for (int k = 0; k < SAMPLES; k++) {
        const weft_i_op *op = weft_i_op_find(samples[k].op);
        CHECK_OK(weft_scope_open());
        inputs in = make_inputs(&samples[k], WEFT_CPU);
        for (int i = 0; i < in.count; i++) {
            if (op->flags & (WEFT_I_OP_VIEW | WEFT_I_OP_LAYOUT))
                continue;
            inputs again = make_inputs(&samples[k], WEFT_CPU);
            CHECK_OK(weft_resize_storage(again.at[i], 0));
            CHECK(!call_sample(&samples[k], &again, WEFT_CPU));
            CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
        }
        CHECK_OK(weft_scope_close());
    }
    weft_clear_error();
}

/* -- memory that runs out
 * ------------------------------------------------------------------------------------------ */

static weft_i_os counting;
static long live, allocations,
    fail_at; /* fail_at: which allocation fails, counted from 1; 0: none */

static void *account(void *memory)
{
    live += memory != NULL;
    return memory;
}

static void *failing_alloc(size_t bytes)
{
    return ++allocations == fail_at ? NULL : account(weft_i_os_linux.alloc(bytes));
}

static void *failing_alloc_aligned(size_t alignment, size_t bytes)
{
    return ++allocations == fail_at ? NULL
                                    : account(weft_i_os_linux.alloc_aligned(alignment, bytes));
}

static void counting_free(void *memory)
{
    live -= memory != NULL;
    weft_i_os_linux.free(memory);
}

static void count_allocations(long failing)
{
    counting = weft_i_os_linux;
    counting.alloc = failing_alloc;
    counting.alloc_aligned = failing_alloc_aligned;
    counting.free = counting_free;
    allocations = live = 0;
    fail_at = failing;
    weft_i_os_now = &counting;
}

static int run_out(int (*body)(void *), void *argument, const char *what)
{
    CHECK(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1))); /* the root scope exists before */
    CHECK(weft_mm(make_input('f'), make_input('m')));     /* and so does the BLAS */
    for (long n = 1;; n++) {
        weft_clear_error();
        count_allocations(n);
        int opened = weft_scope_open() >= 0, done = opened && body(argument);
        weft_status status = weft_last_status();
        int failed_in_time = allocations >= n;
        if (opened)
            weft_scope_close();
        weft_i_os_now = &weft_i_os_linux;
        weft_clear_error();
        if (live)
            FAIL("%s: %ld allocations leak when number %ld fails", what, live, n);
        if (!failed_in_time)
            return done;
        if (!done && status != WEFT_ERR_NO_MEMORY)
            FAIL("%s: status %s when allocation %ld fails", what, weft_status_name(status), n);
    }
}

static int body_of_sample(void *argument)
{
    const sample *s = argument;
    inputs in = make_inputs(s, WEFT_CPU);
    for (int i = 0; i < in.count; i++)
        if (!in.at[i])
            return 0;
    if (*s->inputs == 'L' && !(in.list[0] && in.list[1]))
        return 0;
    return call_sample(s, &in, WEFT_CPU) != NULL;
}

TEST(test_op_every_allocation_may_fail)
{
    for (int k = 0; k < SAMPLES; k++)
        if (!run_out(body_of_sample, (void *)&samples[k], samples[k].op))
            FAIL("%s never succeeds", samples[k].op);
}

/* A chain with in-place writes, composed functions and scopes of its own. */
static int chain(void *unused)
{
    (void)unused;
    if (weft_scope_open() < 0)
        return 0;
    weft_tensor *x = weft_rand(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(4, 6));
    weft_tensor *weight = weft_randn(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(5, 6)),
                *bias = weft_zeros(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(5));
    weft_tensor *y = weft_gelu(weft_linear(x, weight, bias));
    weft_tensor *pieces[] = {y, weft_softmax(y, -1), weft_layer_norm(y, 1, bias, NULL, 1e-5)};
    weft_tensor *all = weft_stack(pieces, 3, 1);
    weft_status status =
        weft_add_into(all, all, weft_reshape(weft_transpose(all, 1, 2), WEFT_SHAPE(4, 3, 5)));
    weft_tensor *parts[4];
    size_t count = 4;
    status = status < 0 ? status : weft_chunk(all, 3, 1, parts, &count);
    status = status < 0 ? status : weft_copy(parts[0], parts[1]);
    weft_tensor *sum = weft_matmul(weft_sum(all, (int[]){1}, 1, false), weight);
    weft_tensor *result = weft_keep(weft_mean(all, NULL, 0, false));
    int done = status >= 0 && sum && result &&
               weft_equal(weft_matmul(all, weight), weft_matmul(weft_clone(all), weight));
    weft_scope_close();
    weft_release(result);
    return done;
}

TEST(test_op_chain_survives_every_failed_allocation)
{
    CHECK(run_out(chain, NULL, "chain"));
}

/* -- writing into targets
 * ------------------------------------------------------------------------------------------ */

TEST(test_op_into_writes_strided_targets)
{
    weft_tensor *big = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 8));
    weft_tensor *target = weft_transpose(weft_slice(big, 1, 1, 6, 2), 0, 1); /* [3, 3] */
    weft_tensor *a = weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 9, 1), WEFT_SHAPE(3, 3));
    CHECK_OK(weft_mul_scalar_into(target, a, 10));
    for (int i = 0; i < 9; i++) {
        CHECK(weft_item(target, i) == 10 * i);
        CHECK(weft_item(big, i % 3 * 8 + 1 + i / 3 * 2) == 10 * i);
    }
    CHECK(weft_item(big, 0) == 0 && weft_item(big, 2) == 0);
    CHECK_OK(weft_mm_into(target, a, a));
    CHECK(weft_item(target, 0) == 15 && weft_item(target, 8) == 2 * 6 + 5 * 7 + 8 * 8);
    CHECK_INT(weft_tensor_version(big), 2);
}

TEST(test_op_into_reads_before_it_writes)
{
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 1000, 1);
    weft_tensor *head = weft_narrow(x, 0, 0, 999), *tail = weft_narrow(x, 0, 1, 999);
    CHECK_OK(weft_add_into(tail, head, tail)); /* 2i - 1 from the old values */
    for (int i = 1; i < 1000; i++)
        CHECK(weft_item(x, i) == 2 * i - 1);
    weft_tensor *m = weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 4, 1), WEFT_SHAPE(2, 2));
    CHECK_OK(weft_mm_into(m, m, m));
    CHECK(weft_item(m, 0) == 2 && weft_item(m, 1) == 3 && weft_item(m, 2) == 6 &&
          weft_item(m, 3) == 11);
    CHECK_OK(weft_add_into(m, m, weft_transpose(m, 0, 1)));
    CHECK(weft_item(m, 1) == 9 && weft_item(m, 2) == 9 && weft_item(m, 3) == 22);
}

TEST(test_op_into_converts_upwards_only)
{
    weft_tensor *h = weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(4), 1),
                *f = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 0x1p-9);
    weft_tensor *i = weft_ones(WEFT_I64, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_OK(weft_add_into(h, h, f)); /* f32 sum 1 + 2^-9, rounded to bf16: 1 */
    CHECK(weft_item(h, 0) == 1);
    CHECK_OK(weft_add_scalar_into(i, i, 1));
    CHECK_INT(weft_item_int(i, 3), 2);
    CHECK_STATUS(weft_add_into(i, i, f), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_add_scalar_into(i, i, 0.5), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_add_into(f, f, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4))),
                 WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_add_into(NULL, f, f), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_item_int(i, 0), 2);
    CHECK_INT(weft_tensor_version(i), 1);
    weft_clear_error();
}

/* -- promotion
 * ----------------------------------------------------------------------------------------------------
 */

TEST(test_op_numbers_and_zero_d_tensors_are_weak)
{
    weft_tensor *h = weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(2)),
                *i = weft_ones(WEFT_I32, WEFT_CPU, WEFT_SHAPE(2));
    weft_tensor *z64 = weft_ones(WEFT_F64, WEFT_CPU, WEFT_SCALAR),
                *zi = weft_ones(WEFT_I64, WEFT_CPU, WEFT_SCALAR);
    weft_tensor *u = weft_ones(WEFT_U64, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_INT(weft_tensor_dtype(weft_add_scalar(h, 0.1)), WEFT_BF16);
    CHECK_INT(weft_tensor_dtype(weft_add(h, z64)), WEFT_BF16);
    CHECK_INT(weft_tensor_dtype(weft_add_scalar(i, 2)), WEFT_I32);
    CHECK_INT(weft_tensor_dtype(weft_add_scalar(i, 2.5)), WEFT_F32);
    CHECK_INT(weft_tensor_dtype(weft_add(i, zi)), WEFT_I32);
    CHECK_INT(weft_tensor_dtype(weft_add(i, z64)), WEFT_F64);
    CHECK_INT(weft_tensor_dtype(weft_add(zi, z64)), WEFT_F64);
    CHECK_INT(weft_tensor_dtype(weft_add(h, i)), WEFT_BF16);
    CHECK_INT(weft_tensor_dtype(weft_div(i, i)), WEFT_F32);
    CHECK_INT(weft_tensor_dtype(weft_sin(i)), WEFT_F32);
    CHECK_INT(weft_tensor_dtype(weft_add_scalar(u, 3)), WEFT_U64);
    CHECK_INT(weft_tensor_dtype(weft_add_scalar(weft_gt_scalar(i, 0), 3)), WEFT_I64);
    CHECK(!weft_add(u, i));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "add: no dtype holds both");
    CHECK(!weft_add_scalar(weft_ones(WEFT_U8, WEFT_CPU, WEFT_SHAPE(2)), 256));
    CHECK_CONTAINS(weft_last_error(), "does not fit u8");
    CHECK(!weft_neg(weft_gt_scalar(i, 0)));
    weft_clear_error();
}

TEST(test_op_results_keep_the_layout_of_operands)
{
    weft_tensor *t = weft_transpose(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 5)), 0, 1);
    CHECK_INT(weft_tensor_stride(weft_add(t, t), 0), 1);
    CHECK_INT(weft_tensor_stride(weft_sin(t), 0), 1);
    CHECK_INT(weft_tensor_stride(weft_add(t, weft_contiguous(t)), 0), 4);
    CHECK_INT(weft_tensor_stride(weft_add(t, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))), 0), 1);
    CHECK_INT(
        weft_tensor_stride(weft_sin(weft_expand(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 4)),
                                                WEFT_SHAPE(5, 4))),
                           0),
        4);
}

TEST(test_op_messages_name_the_operation)
{
    weft_tensor *a = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3)),
                *b = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4));
    CHECK(!weft_mul(a, b));
    CHECK_CONTAINS(weft_last_error(), "mul: shapes [2, 3] and [2, 4]");
    CHECK(!weft_mm(a, b));
    CHECK_CONTAINS(weft_last_error(), "mm: shapes [2, 3] and [2, 4]");
    CHECK(!weft_where(a, a, a));
    CHECK_CONTAINS(weft_last_error(), "condition");
    CHECK(!weft_mean(weft_ones(WEFT_I32, WEFT_CPU, WEFT_SHAPE(2)), NULL, 0, false));
    CHECK(!weft_max(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 0)), (int[]){1}, 1, false));
    CHECK(!weft_sum(a, (int[]){0, 0}, 2, false) && !weft_sum(a, (int[]){2}, 1, false));
    if (!weft_to(a, WEFT_F32, WEFT_CUDA(0))) { /* without a GPU, or what its driver needs */
        weft_status status = weft_last_status();
        CHECK(status == WEFT_ERR_UNSUPPORTED || status == WEFT_ERR_DEVICE ||
              status == WEFT_ERR_NO_MEMORY);
    }
    weft_clear_error();
}

/* -- modes
 * ----------------------------------------------------------------------------------------------------------
 */

typedef struct logging {
    weft_i_mode mode;
    char text[256];
} logging;

static weft_tensor *log_and_pass_on(weft_i_mode *mode, const weft_i_op_call *call)
{
    logging *log = (logging *)mode;
    size_t used = strlen(log->text);
    snprintf(log->text + used, sizeof log->text - used, "%s%s ", call->op->name,
             call->into ? "!" : "");
    return weft_i_op_pass_on(call);
}

static weft_tensor *replace_sin_by_cos(weft_i_mode *mode, const weft_i_op_call *call)
{
    (void)mode;
    return weft_i_op_apply(call->op == &weft_i_op_sin ? &weft_i_op_cos : call->op, call->into,
                           call->args);
}

TEST(test_op_modes_interpose)
{
    logging outer = {{log_and_pass_on, NULL}, ""}, inner = {{log_and_pass_on, NULL}, ""};
    weft_i_mode swap = {replace_sin_by_cos, NULL};
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2));
    weft_i_mode_push(&outer.mode);
    weft_i_mode_push(&swap);
    weft_i_mode_push(&inner.mode);
    weft_tensor *y = weft_sin(x);
    weft_status status = weft_add_scalar_into(x, x, 1);
    weft_tensor *z = weft_mm(x, weft_transpose(x, 0, 1));
    weft_i_mode_pop(&inner.mode);
    weft_i_mode_pop(&swap);
    weft_i_mode_pop(&outer.mode);
    CHECK_OK(status);
    CHECK(z && weft_item(y, 0) == 1);
    CHECK(!strcmp(inner.text, "sin add! permute mm "));
    CHECK(!strcmp(outer.text, "cos add! permute mm "));
    CHECK(weft_item(weft_sin(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SCALAR)), 0) == 0);
    CHECK(strlen(outer.text) == 20);
}

static int handled;

static weft_tensor *count_calls(weft_i_mode *mode, const weft_i_op_call *call)
{
    (void)mode;
    handled++;
    return weft_i_op_pass_on(call);
}

/* Arguments that are absent or of the wrong kind never reach a mode. */
TEST(test_op_modes_see_checked_calls)
{
    weft_i_mode mode = {count_calls, NULL};
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    handled = 0;
    weft_i_mode_push(&mode);
    weft_tensor *results[] = {
        weft_neg(NULL), WEFT_I_APPLY(neg, WEFT_I_NUMBER_ARG(1)),
        WEFT_I_APPLY(neg, WEFT_I_TENSOR_ARG((weft_tensor *)(void *)weft_tensor_storage(x))),
        weft_cat((weft_tensor *[]){x, NULL}, 2, 0)};
    int seen = handled;
    weft_tensor *good = weft_neg(x);
    weft_i_mode_pop(&mode);
    CHECK(!results[0] && !results[1] && !results[2] && !results[3] && seen == 0);
    CHECK(good && handled == 1);
    weft_clear_error();
}

/* -- rows of the test's own
 * ------------------------------------------------------------------------------------------ */

/* Smallest and largest of a list of optional tensors; the second result only if it is wanted. */
static weft_status ends_shape(weft_i_op_call *call)
{
    call->result.dtype = WEFT_F32;
    call->result.shape.ndim = 0;
    call->result.absent = call->which == 1 && !call->args[1].integer;
    return WEFT_OK;
}

static weft_status ends_run(weft_i_op_call *call)
{
    float ends[2] = {INFINITY, -INFINITY};
    for (size_t i = 0; i < call->args[0].count; i++) {
        const weft_tensor *x = call->args[0].tensors[i];
        float value = x ? *(const float *)(const void *)weft_i_tensor_data(x) : 0;
        ends[0] = x && value < ends[0] ? value : ends[0];
        ends[1] = x && value > ends[1] ? value : ends[1];
    }
    for (int k = 0; k < 2; k++)
        if (call->outs[k])
            memcpy(weft_i_tensor_data(call->outs[k]), &ends[k], sizeof ends[k]);
    return WEFT_OK;
}

/* Writes 1, 2, ... to adjacent elements, on any device. */
static weft_status count_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    call->result.dtype = x->dtype;
    call->result.shape = weft_i_tensor_shape(x);
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

static weft_status count_run(weft_i_op_call *call)
{
    for (int64_t i = 0; i < call->out->numel; i++)
        ((float *)(void *)weft_i_tensor_data(call->out))[i] = (float)(i + 1);
    return WEFT_OK;
}

static weft_i_op ends_row = {.name = "test_ends",
                             .params = "x:L both:b",
                             .flags = WEFT_I_OP_EFFECT, /* no sample above */
                             .shape = ends_shape,
                             .run = {ends_run},
                             .results = 2};
static weft_i_op count_row = {.name = "test_count",
                              .params = "x:t",
                              .flags = WEFT_I_OP_EFFECT,
                              .shape = count_shape,
                              .run = {count_run, NULL, count_run}};
static weft_i_op *const own_rows[] = {&ends_row, &count_row};
static weft_i_op_table own_table = {own_rows, 2, NULL};

static void add_own_rows(void)
{
    if (!ends_row.arity)
        weft_i_op_add_table(&own_table);
}

TEST(test_op_several_results)
{
    add_own_rows();
    weft_tensor *a = weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, 5), *outs[2] = {NULL, a};
    weft_tensor *b = weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, -2), *list[] = {a, NULL, b};
    CHECK_OK(
        weft_i_op_apply_list(&ends_row, outs, (weft_i_arg[]){WEFT_I_TENSORS_ARG(list, 3), I(1)}));
    CHECK(weft_item(outs[0], 0) == -2 && weft_item(outs[1], 0) == 5);
    CHECK_OK(
        weft_i_op_apply_list(&ends_row, outs, (weft_i_arg[]){WEFT_I_TENSORS_ARG(list, 3), I(0)}));
    CHECK(weft_item(outs[0], 0) == -2 && !outs[1]);
    CHECK_STATUS(weft_i_op_into(&ends_row, a, (weft_i_arg[]){WEFT_I_TENSORS_ARG(list, 3), I(1)}),
                 WEFT_ERR_INVALID_ARG);
    for (long failing = 1; failing < 8; failing++) { /* all of them or none */
        weft_clear_error();
        count_allocations(failing);
        weft_status status = weft_i_op_apply_list(
            &ends_row, outs, (weft_i_arg[]){WEFT_I_TENSORS_ARG(list, 3), I(1)});
        weft_i_os_now = &weft_i_os_linux;
        if (status < 0)
            CHECK(live == 0 && !outs[0] && !outs[1]);
    }
    weft_clear_error();
}

static weft_status host_alloc(weft_device device, void *stream, size_t bytes, void **out)
{
    (void)device, (void)stream;
    *out = WEFT_OS->alloc(bytes);
    return *out ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

static void host_free(weft_device device, void *stream, void *memory, size_t bytes)
{
    (void)device, (void)stream, (void)bytes;
    WEFT_OS->free(memory);
}

/* A result that cannot be written in place is copied by the device's own copy, or it is an error:
 * it must not stay where it is. */
TEST(test_op_into_copies_on_every_device)
{
    static const weft_i_device host = {
        .name = "host", .count = 1, .alloc = host_alloc, .free = host_free};
    const weft_i_device *before = weft_i_device_find(WEFT_CUDA(0));
    weft_status (*copy)(weft_i_op_call *) = weft_i_op_copy.run[2];
    add_own_rows();
    weft_i_op_copy.run[2] = NULL;
    weft_i_device_add(WEFT_I_KIND_CUDA, &host);
    weft_tensor *x = weft_i_tensor_new(WEFT_F32, WEFT_CUDA(0), WEFT_SHAPE(2, 3), NULL);
    weft_tensor *base = weft_i_tensor_new(WEFT_F32, WEFT_CUDA(0), WEFT_SHAPE(3, 2), NULL);
    weft_tensor *out = weft_transpose(base, 0, 1);
    float *data = (float *)(void *)weft_i_tensor_data(base);
    weft_status without = weft_i_op_into(&count_row, out, (weft_i_arg[]){WEFT_I_TENSOR_ARG(x)});
    int64_t version = weft_tensor_version(base);
    weft_i_op_copy.run[2] = weft_i_op_copy.run[0];
    weft_status with = weft_i_op_into(&count_row, out, (weft_i_arg[]){WEFT_I_TENSOR_ARG(x)});
    weft_i_op_copy.run[2] = copy;
    weft_i_device_add(WEFT_I_KIND_CUDA, before);
    CHECK_INT(without, WEFT_ERR_UNSUPPORTED);
    CHECK_INT(version, 0);
    CHECK_OK(with);
    CHECK_INT(weft_tensor_version(base), 1);
    CHECK(data[0] == 1 && data[1] == 4 && data[4] == 3 && data[5] == 6);
    weft_clear_error();
}

TEST(test_op_rows_describe_their_parameters)
{
    const char *name;
    int length;
    weft_i_op *slice = weft_i_op_find("slice");
    CHECK(slice == &weft_i_op_slice && !weft_i_op_find("nothing"));
    CHECK_INT(weft_i_op_param_count(slice), 5);
    CHECK(!strcmp(slice->kinds, "tiiii"));
    name = weft_i_op_param_name(slice, 3, &length);
    CHECK(length == 3 && !strncmp(name, "end", 3));
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK(!WEFT_I_APPLY(neg, WEFT_I_NUMBER_ARG(1)));
    CHECK_CONTAINS(weft_last_error(), "argument x has the wrong kind");
    CHECK(!WEFT_I_APPLY(neg, WEFT_I_TENSOR_ARG((weft_tensor *)(void *)weft_tensor_storage(x))));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

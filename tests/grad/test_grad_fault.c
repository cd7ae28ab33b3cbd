/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/engine.c, grad/node.c, grad/recorder.c */
/*
 * Every allocation of a training step may fail.  Then the step fails with the reason, nothing
 * leaks (memory of ours counts its tensors; the sanitizer's build sees the rest), and the next step
 * is as good as the first.
 */
#include "harness.h"

#include "fault.h"
#include "weft/custom.h"
#include "weft/grad.h"
#include "weft/op.h"
#include "weft/view.h"

static int live;

static void count_down(void *argument)
{
    (void)argument;
    live--;
}

static weft_tensor *wrapped(float *memory, weft_shape shape)
{
    weft_tensor *x = weft_tensor_wrap(WEFT_F32, WEFT_CPU, shape, memory, count_down, NULL);
    live += x != NULL;
    return x;
}

static weft_status doubled(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    *grad = weft_add(*grad, held[0]);
    return WEFT_OK;
}

static weft_status add_up(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held;
    if (grad)
        return weft_backward_then(add_up, user, WEFT_HOLD(*grad));
    *(double *)user += weft_item(held[0], 0);
    return WEFT_OK;
}

/* One of everything: leaves of two layouts, views, writes, hooks, retained and second gradients. */
static weft_status step(weft_tensor *w, weft_tensor *x, double *seen)
{
    weft_tensor *y = weft_mul(x, w), *out[2];
    weft_tensor *buffer = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3));
    weft_tensor *flat = weft_view(buffer, WEFT_SHAPE(6));
    if (!y || !flat ||
        weft_copy(flat, weft_view(weft_sin(weft_add_scalar(y, 0)), WEFT_SHAPE(6))) < 0 ||
        weft_mul_into(y, y, buffer) < 0)
        return weft_last_status();
    weft_tensor *inputs[] = {y, w}, *loss = weft_sum(weft_mul(buffer, y), NULL, 0, false);
    if (!loss || weft_tensor_hook(y, doubled, NULL, WEFT_HOLD(weft_exp(y))) < 0 ||
        weft_accumulated_hook(w, add_up, seen, WEFT_HOLD()) < 0 || weft_retain_grad(y) < 0)
        return weft_last_status();
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.create_graph = true;
    weft_status status = weft_gradients(out, inputs, 2, &loss, 1, &opts);
    weft_tensor *second = status < 0 ? NULL : weft_sum(weft_mul(out[1], out[1]), NULL, 0, false);
    return second ? weft_backward(second) : weft_last_status();
}

static weft_status whole_step(float *memory, double *seen)
{
    weft_status status = weft_scope_open();
    if (status < 0)
        return status;
    weft_tensor *w = wrapped(memory, WEFT_SHAPE(3)), *x = wrapped(memory, WEFT_SHAPE(2, 3));
    status = w && x ? weft_require_grad(w, true) : weft_last_status();
    if (status >= 0)
        status = step(w, x, seen);
    if (w)
        weft_set_grad(w, NULL);
    weft_scope_close();
    return status;
}

TEST(test_every_allocation_may_fail)
{
    float memory[12];
    double good = 0;
    for (int i = 0; i < 12; i++)
        memory[i] = 0.1f * (float)(i + 1);
    CHECK_OK(whole_step(memory, &good));
    CHECK(good != 0);
    for (int n = 1;; n++) {
        double seen = 0;
        fault_arm(n);
        weft_status status = whole_step(memory, &seen);
        bool fired = fault_disarm();
        CHECK_INT(live, 0);
        CHECK(weft_grad_mode_now() == WEFT_GRAD_RECORDING);
        if (!fired) {
            CHECK_OK(status);
            CHECK(n > 100); /* it did allocate */
            break;
        }
        if (status != WEFT_ERR_NO_MEMORY)
            FAIL("call %d (%s) failed: status %d", n, fault_name, status);
        seen = 0;
        CHECK_OK(whole_step(memory, &seen));
        CHECK_NEAR(seen, good, 0);
    }
}

static weft_status run(weft_tensor *out, const weft_value *in, void *user)
{
    (void)user;
    return weft_copy(out, in[0].tensor);
}

TEST(test_every_allocation_of_a_declaration_may_fail)
{
    weft_custom_opts opts = {.size = sizeof opts, .name = "faulty", .params = "x:t", .run = run};
    fault_arm(1);
    CHECK(weft_custom_new(&opts) == NULL);
    CHECK(fault_disarm());
    CHECK(weft_custom_new(&opts) != NULL);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The ways into the engine: what it starts from, and what it is to find. */
#include "base/os/os.h"
#include "base/report/opts.h"
#include "grad/engine.h"
#include "tensor/object/eye.h"

/* What one call needs beside the run. */
struct start {
    const char *what;
    weft_tensor *const *outputs;
    size_t count;
    weft_backward_opts opts;
    weft_i_edge *roots;  /* borrowed targets */
    weft_tensor **seeds; /* in the scope of the call */
    weft_i_engine *engine;
    void *user;
};

static weft_status check_tensors(const char *what, weft_tensor *const *tensors, size_t count)
{
    if (!count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: no tensors are given", what);
    for (size_t i = 0; i < count; i++)
        if (!tensors || !tensors[i])
            return weft_i_missing("%s: tensor %zu is NULL", what, i);
    return WEFT_OK;
}

/* Gradient 1 for one element; more need a seed. */
static weft_tensor *find_seed(const struct start *s, size_t i)
{
    weft_tensor *output = s->outputs[i], *seed = s->opts.seeds ? s->opts.seeds[i] : NULL;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    weft_shape shape = weft_i_tensor_shape(output);
    if (!seed && output->numel != 1)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "%s: output %zu has shape %s; only a tensor with one element has a "
                           "gradient by itself, give a seed for others",
                           s->what, i, weft_i_shape_text(shape, a));
    if (!seed)
        return weft_ones(output->dtype, weft_i_tensor_device(output), shape);
    if (!weft_i_shape_equal(weft_i_tensor_shape(seed), shape))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "%s: the seed of output %zu has shape %s, not %s",
                           s->what, i, weft_i_shape_text(weft_i_tensor_shape(seed), a),
                           weft_i_shape_text(shape, b));
    return seed;
}

static weft_status find_root(struct start *s, size_t i)
{
    WEFT_TRY(weft_i_history_edge(s->outputs[i], &s->roots[i]));
    if (!s->roots[i].to)
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: output %zu requires no gradients: it depends on no leaf that does "
                           "(weft_require_grad), or was computed while nothing was recorded",
                           s->what, i);
    return (s->seeds[i] = find_seed(s, i)) ? WEFT_OK : weft_last_status();
}

static weft_status run_from(struct start *s, weft_i_backward_pass *run)
{
    run->create = s->opts.create_graph;
    run->retain = s->opts.retain_graph || s->opts.create_graph;
    for (size_t i = 0; i < s->count; i++)
        WEFT_TRY(find_root(s, i));
    return s->engine ? s->engine(s->user, run, s->roots, s->seeds, s->count)
                     : weft_i_engine_run(run, s->roots, s->seeds, s->count);
}

static weft_status check_start(struct start *s, const weft_backward_opts *opts)
{
    WEFT_TRY(weft_i_opts_copy(&s->opts, sizeof s->opts, opts, s->what));
    if (weft_i_grad_mode == WEFT_GRAD_INFERENCE)
        return weft_i_fail(WEFT_ERR_STATE, "%s: not inside WEFT_INFERENCE", s->what);
    return check_tensors(s->what, s->outputs, s->count);
}

/* In a scope of its own: seeds and what they lead to die with it. */
static weft_status run_start(struct start *s, weft_i_backward_pass *run)
{
    weft_i_edge one;
    weft_tensor *seed = NULL;
    s->roots = s->count == 1 ? &one : WEFT_OS->alloc(s->count * sizeof *s->roots);
    s->seeds = s->count == 1 ? &seed : WEFT_OS->alloc(s->count * sizeof *s->seeds);
    weft_status status =
        s->roots && s->seeds
            ? weft_scope_open()
            : weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu outputs", s->what, s->count);
    if (status >= 0) {
        status = run_from(s, run);
        weft_scope_close();
    }
    if (s->roots != &one)
        WEFT_OS->free(s->roots);
    if (s->seeds != &seed)
        WEFT_OS->free(s->seeds);
    return status;
}

weft_status weft_backward_all(weft_tensor *const *outputs, size_t count,
                              const weft_backward_opts *opts)
{
    return weft_i_backward_by(outputs, count, opts, NULL, NULL);
}

weft_status weft_i_backward_by(weft_tensor *const *outputs, size_t count,
                               const weft_backward_opts *opts, weft_i_engine *engine, void *user)
{
    WEFT_TRY(weft_i_not_captured("weft_backward_all"));
    struct start s = {.what = "weft_backward",
                      .outputs = outputs,
                      .count = count,
                      .engine = engine,
                      .user = user};
    weft_i_backward_pass run = {0};
    WEFT_TRY(check_start(&s, opts));
    return run_start(&s, &run);
}

weft_status weft_backward(weft_tensor *loss)
{
    return weft_backward_all(&loss, 1, NULL);
}

/* ---- chosen inputs ---- */

static weft_status find_inputs(const struct start *s, weft_i_backward_pass *run,
                               weft_tensor *const *inputs)
{
    for (size_t i = 0; i < run->input_count; i++) {
        WEFT_TRY(weft_i_history_edge(inputs[i], &run->inputs[i]));
        if (!run->inputs[i].to && !s->opts.allow_unused)
            return weft_i_fail(WEFT_ERR_STATE, "%s: input %zu requires no gradients", s->what, i);
    }
    return WEFT_OK;
}

static weft_status check_unused(const struct start *s, const weft_i_backward_pass *run)
{
    for (size_t i = 0; i < run->input_count && !s->opts.allow_unused; i++)
        if (!run->captured[i])
            return weft_i_fail(WEFT_ERR_STATE,
                               "%s: no output depends on input %zu; set allow_unused to get NULL "
                               "for such inputs",
                               s->what, i);
    return WEFT_OK;
}

/* A gradient that others hold too (a leaf's, a hook's) is handed out as an alias, so that every
 * result is a handle of its own. */
static weft_status hand_out(weft_tensor **out, const weft_i_backward_pass *run)
{
    for (size_t i = 0; i < run->input_count; i++) {
        weft_tensor *g = run->captured[i];
        out[i] = g ? weft_view(g, weft_i_tensor_shape(g)) : NULL;
        if (g && !out[i]) {
            while (i-- > 0)
                weft_release(out[i]);
            return weft_last_status();
        }
    }
    return WEFT_OK;
}

static weft_status find_gradients(struct start *s, weft_i_backward_pass *run,
                                  weft_tensor *const *inputs, weft_tensor **out)
{
    WEFT_TRY(find_inputs(s, run, inputs));
    WEFT_TRY(run_start(s, run));
    WEFT_TRY(check_unused(s, run));
    weft_grad_mode mode = weft_i_grad_mode;
    if (!run->create)
        weft_i_grad_mode = WEFT_GRAD_OFF;
    weft_status status = hand_out(out, run);
    weft_i_grad_mode = mode;
    return status;
}

weft_status weft_gradients(weft_tensor **out, weft_tensor *const *inputs, size_t input_count,
                           weft_tensor *const *outputs, size_t count,
                           const weft_backward_opts *opts)
{
    WEFT_TRY(weft_i_not_captured("weft_gradients"));
    struct start s = {.what = __func__, .outputs = outputs, .count = count};
    WEFT_TRY(check_start(&s, opts));
    WEFT_TRY(check_tensors(__func__, inputs, input_count));
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the place for results is NULL", __func__);
    weft_i_backward_pass run = {.chosen = true, .input_count = input_count};
    run.inputs = WEFT_OS->alloc(input_count * sizeof *run.inputs);
    run.captured = WEFT_OS->alloc(input_count * sizeof *run.captured);
    weft_status status = run.inputs && run.captured
                             ? find_gradients(&s, &run, inputs, out)
                             : weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu inputs",
                                           __func__, input_count);
    for (size_t i = 0; run.captured && i < input_count; i++)
        weft_i_object_drop(run.captured[i]);
    WEFT_OS->free(run.captured);
    WEFT_OS->free(run.inputs);
    return status;
}

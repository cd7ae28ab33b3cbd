/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens one after the other, with a cache. */
#include "weft/generate.h"
#include "base/report/opts.h"
#include "base/report/status.h"
#include "kernels/number/random.h"
#include "nn/module.h"
#include "tensor/object/eye.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#define WHAT "weft_generate"

typedef struct run {
    weft_module *model;
    weft_tensor *cache, *out; /* all tokens so far, [batch, count] */
    weft_tensor *running;     /* bool [batch, 1]: rows that go on; NULL: no token stops */
    const weft_generate_opts *opts;
    weft_i_generator generator;
    int64_t count, made;
} run;

static weft_status check(weft_module *model, const weft_tensor *cache, const weft_tensor *prompt,
                         int64_t count)
{
    WEFT_TRY(weft_i_module_check(WHAT, model));
    WEFT_TRY(weft_i_not_captured(WHAT));
    if (!cache || !prompt)
        return weft_i_missing(WHAT ": the %s is NULL", cache ? "prompt" : "cache");
    WEFT_TRY(weft_i_tensor_check_live(WHAT, cache));
    WEFT_TRY(weft_i_tensor_check_live(WHAT, prompt));
    if (prompt->ndim != 2 || weft_i_dtype_class(prompt->dtype) != 1 ||
        !weft_i_tensor_numel(prompt) || count < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           WHAT ": %lld tokens after a prompt that is %s of %d dimensions; it is "
                                "integers [batch, time], at least one",
                           (long long)count, weft_dtype_name(prompt->dtype), prompt->ndim);
    int64_t places = cache->ndim > 1 ? cache->dim[cache->ndim - 2] : 0,
            needed = prompt->dim[1] + (count > 1 ? count - 1 : 0);
    if (needed <= places)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       WHAT ": a prompt of %lld tokens and %lld more need %lld places; the last "
                            "dimension but one of the cache has %lld",
                       (long long)prompt->dim[1], (long long)count, (long long)needed,
                       (long long)places);
}

/* The logits after the last of `tokens`, which begin at `position`. */
static weft_tensor *call_model(run *r, weft_tensor *tokens, int64_t position)
{
    weft_tensor *at = weft_to(weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1), (double)position),
                              WEFT_I64, weft_tensor_device(tokens));
    weft_tensor *in[] = {tokens, r->cache, at}, *logits = NULL;
    if (!at || weft_module_call_list(r->model, &logits, 1, in, 3) < 0)
        return NULL;
    if (weft_tensor_ndim(logits) == 3 &&
        weft_tensor_size(logits, 0) == weft_tensor_size(tokens, 0) &&
        weft_tensor_size(logits, 1) > 0)
        return weft_select(logits, 1, -1);
    return weft_i_null(WEFT_ERR_INVALID_ARG,
                       WHAT ": the model gave logits of %d dimensions; they are [batch, time, "
                            "classes]",
                       weft_tensor_ndim(logits));
}

/* Rows that have ended repeat the token that ended them.  False: all have. */
static weft_tensor *stop_rows(run *r, weft_tensor *drawn, bool *on)
{
    if (!r->running)
        return drawn;
    weft_tensor *stop =
        weft_full(WEFT_I64, WEFT_CPU, weft_tensor_shape(drawn), (double)r->opts->stop);
    drawn = weft_where(r->running, drawn, stop);
    weft_tensor *more = weft_logical_and(r->running, weft_ne_scalar(drawn, (double)r->opts->stop));
    if (!more || weft_copy(r->running, more) < 0)
        return NULL;
    *on = weft_item(weft_any(more, NULL, 0, false), 0) != 0;
    return drawn;
}

/* One column of tokens, kept by the result; false in `on`: it was the last. */
static weft_status draw_column(run *r, weft_tensor *logits, bool *on)
{
    weft_i_generator before = weft_i_random_swap(r->generator);
    weft_tensor *drawn = weft_to(weft_sample(logits, &r->opts->sample), WEFT_I64, WEFT_CPU);
    r->generator = weft_i_random_swap(before);
    drawn = drawn ? stop_rows(r, drawn, on) : NULL;
    weft_tensor *place = weft_narrow(r->out, 1, r->made, 1);
    if (!drawn || !place)
        return weft_last_status();
    WEFT_TRY(weft_copy(place, drawn));
    r->made++;
    return r->opts->each ? r->opts->each(place, r->opts->user) : WEFT_OK;
}

static weft_status step(run *r, weft_tensor *prompt, bool *on)
{
    weft_device device = weft_tensor_device(prompt);
    int64_t past = weft_tensor_size(prompt, 1);
    weft_tensor *tokens = prompt;
    if (r->made)
        tokens = weft_to(weft_narrow(r->out, 1, r->made - 1, 1), WEFT_I64, device);
    weft_tensor *logits = tokens ? call_model(r, tokens, r->made ? past + r->made - 1 : 0) : NULL;
    return logits ? draw_column(r, logits, on) : weft_last_status();
}

static weft_status generate(run *r, weft_tensor *prompt)
{
    weft_status status = WEFT_OK;
    bool on = true;
    while (on && r->made < r->count && status >= 0) {
        WEFT_TRY(weft_scope_open());
        status = step(r, prompt, &on);
        weft_scope_close();
    }
    return status;
}

weft_tensor *weft_generate(weft_module *model, weft_tensor *cache, weft_tensor *prompt,
                           int64_t count, const weft_generate_opts *given)
{
    weft_generate_opts opts = WEFT_GENERATE_OPTS;
    weft_status status = check(model, cache, prompt, count);
    if (status < 0 || weft_i_opts_copy(&opts, sizeof opts, given, WHAT) < 0)
        return NULL;
    run r = {.model = model, .cache = cache, .opts = &opts, .count = count};
    r.generator = (weft_i_generator){opts.seed, 0};
    int64_t rows = weft_tensor_size(prompt, 0);
    r.out = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(rows, count));
    if (opts.stop >= 0)
        r.running = weft_ones(WEFT_BOOL, WEFT_CPU, WEFT_SHAPE(rows, 1));
    if (!r.out || (opts.stop >= 0 && !r.running))
        return NULL;
    bool training = weft_module_is_training(model);
    WEFT_NO_GRAD
    {
        status = training ? weft_module_train(model, false) : WEFT_OK;
        if (status >= 0)
            status = generate(&r, prompt);
        if (training)
            weft_module_train(model, true);
    }
    weft_release(r.running);
    return status < 0 ? NULL : r.made < count ? weft_narrow(r.out, 1, 0, r.made) : r.out;
}

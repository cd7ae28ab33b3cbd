/* SPDX-License-Identifier: Apache-2.0 */
/* Picks of options for models: attention, losses, optimizers, generation. */
#ifndef WEFT_TESTS_API_PICKS_MODEL_H
#define WEFT_TESTS_API_PICKS_MODEL_H

#include "api_picks.h"

static const weft_sample_opts *pick_sample_opts(void)
{
    weft_sample_opts *opts = room(sizeof *opts);
    *opts = (weft_sample_opts){one_in(9) ? pick_size() : sizeof *opts, pick_double(), pick_long()};
    return one_in(3) ? NULL : opts;
}

static const weft_adamw_opts *pick_adamw_opts(void)
{
    weft_adamw_opts *opts = room(sizeof *opts);
    *opts = (weft_adamw_opts)WEFT_ADAMW_OPTS_INIT;
    if (one_in(4))
        opts->beta1 = pick_double();
    if (one_in(4))
        opts->decay = pick_double();
    opts->finite = one_in(2);
    opts->master = one_in(2);
    return one_in(3) ? NULL : opts;
}

static const weft_sgd_opts *pick_sgd_opts(void)
{
    weft_sgd_opts *opts = room(sizeof *opts);
    *opts = (weft_sgd_opts){one_in(8) ? 3 : sizeof *opts, pick_double(), pick_double(), one_in(2)};
    return one_in(3) ? NULL : opts;
}

static const weft_linear_cross_entropy_opts *pick_loss_opts(void)
{
    weft_linear_cross_entropy_opts *opts = room(sizeof *opts);
    *opts = (weft_linear_cross_entropy_opts)WEFT_LINEAR_CROSS_ENTROPY_OPTS;
    if (one_in(3))
        opts->ignore = pick_int();
    if (one_in(3))
        opts->smoothing = pick_double();
    if (one_in(3))
        opts->z_loss = pick_double();
    return one_in(3) ? NULL : opts;
}

static const weft_attention_opts *pick_attention_opts(void)
{
    weft_attention_opts *opts = room(sizeof *opts);
    *opts = (weft_attention_opts)WEFT_ATTENTION_OPTS;
    opts->causal = one_in(2);
    if (one_in(4))
        opts->mask = pick_tensor();
    if (one_in(4))
        opts->position = pick_tensor();
    if (one_in(4))
        opts->offset = pick_long();
    if (one_in(4))
        opts->dropout = pick_double();
    if (one_in(4))
        opts->scale = pick_double();
    return one_in(3) ? NULL : opts;
}

static const weft_generate_opts *pick_generate_opts(void)
{
    weft_generate_opts *opts = room(sizeof *opts);
    *opts = (weft_generate_opts)WEFT_GENERATE_OPTS;
    if (one_in(3))
        opts->sample.temperature = pick_double();
    if (one_in(3))
        opts->sample.top_k = pick_long();
    if (one_in(3))
        opts->stop = pick_long();
    return one_in(3) ? NULL : opts;
}

#endif

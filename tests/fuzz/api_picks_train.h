/* SPDX-License-Identifier: Apache-2.0 */
/* What the calls of a training run take: files, checkpoints. */
#ifndef WEFT_TESTS_API_PICKS_TRAIN_H
#define WEFT_TESTS_API_PICKS_TRAIN_H

#include "api_picks.h"

POOL_OF(safetensors, files, weft_safetensors)
POOL_OF(checkpoint, checkpoints, weft_checkpoint)
POOL_OF(tokens, token_files, weft_tokens)
POOL_OF(progress, progresses, weft_progress)

static void add_tokens(weft_tokens *tokens)
{
    add_to(&me->token_files, tokens);
}

static void add_progress(weft_progress *progress)
{
    add_to(&me->progresses, progress);
}

static void add_safetensors(weft_safetensors *file)
{
    add_to(&me->files, file);
}

static void add_checkpoint(weft_checkpoint *checkpoint)
{
    add_to(&me->checkpoints, checkpoint);
}

/* Files only where none can be made. */
static const char *pick_path(void)
{
    static const char *const paths[] = {"",  "/nowhere/at/all", "/proc/self/nothing",
                                        "/", "/dev/null",       "/proc/self/cmdline"};
    return one_in(9) ? NULL : PICK(paths);
}

static const weft_safetensors_note *pick_notes(void)
{
    weft_safetensors_note *list = room(64 * sizeof *list);
    for (int i = 0; i < 64; i++)
        list[i] = (weft_safetensors_note){pick_text(), pick_text()};
    return one_in(8) ? NULL : list;
}

static const weft_tokens_opts *pick_tokens_opts(void)
{
    weft_tokens_opts *opts = room(sizeof *opts);
    *opts = (weft_tokens_opts)WEFT_TOKENS_OPTS_INIT;
    opts->dtype = one_in(3) ? pick_dtype() : WEFT_U16;
    opts->batch = one_in(3) ? pick_long() : 2;
    opts->length = one_in(3) ? pick_long() : 2;
    return one_in(3) ? NULL : opts;
}

static const weft_progress_opts *pick_progress_opts(void)
{
    weft_progress_opts *opts = room(sizeof *opts);
    *opts = (weft_progress_opts)WEFT_PROGRESS_OPTS_INIT;
    opts->tokens = pick_double();
    opts->flops = pick_double();
    opts->peak = pick_double();
    opts->interval_ms = one_in(3) ? pick_long() : 0;
    opts->csv = one_in(2) ? pick_path() : NULL;
    return one_in(3) ? NULL : opts;
}

static const weft_checkpoint_opts *pick_checkpoint_opts(void)
{
    weft_checkpoint_opts *opts = room(sizeof *opts);
    *opts = (weft_checkpoint_opts)WEFT_CHECKPOINT_OPTS_INIT;
    if (one_in(8))
        opts->size = 3;
    if (one_in(4))
        opts->keep = pick_int();
    opts->wait = one_in(2);
    return one_in(3) ? NULL : opts;
}

#endif

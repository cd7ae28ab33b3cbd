/* SPDX-License-Identifier: Apache-2.0 */
/* Token files, and the batches that are made of them. */
#include "weft/tokens.h"

#include "base/report/opts.h"
#include "base/report/status.h"
#include "tensor/object/eye.h"
#include "train/file_map.h"
#include "train/shuffle.h"

#include <string.h>

struct weft_tokens {
    weft_i_object head;
    weft_tokens_opts opts;
    weft_i_file_map *map; /* held */
    int64_t count, sequences;
};

static void destroy(weft_i_object *object)
{
    weft_i_object_drop(((weft_tokens *)object)->map);
    weft_i_object_free(object);
}

/* ---- opening ---- */

static weft_status check_opts(const weft_tokens_opts *opts)
{
    if (opts->dtype != WEFT_U16 && opts->dtype != WEFT_U32)
        return weft_i_fail(WEFT_ERR_TYPE, "tokens of %s; they are u16 or u32",
                           weft_dtype_name(opts->dtype));
    if (opts->batch < 1 || opts->length < 1 || opts->symbols < 0 || opts->batch > 1 << 30 ||
        opts->length > 1 << 30)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG, "a batch of %lld sequences of %lld tokens of %lld symbols",
            (long long)opts->batch, (long long)opts->length, (long long)opts->symbols);
    return WEFT_OK;
}

/* The last sequence has a token behind it, its last label. */
static weft_status measure(weft_tokens *t, const char *path)
{
    size_t size = weft_dtype_size(t->opts.dtype), bytes = t->map->count;
    if (t->opts.skip > bytes || (bytes - t->opts.skip) % size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s has %zu bytes: behind the first %zu no whole number of %s", path,
                           bytes, t->opts.skip, weft_dtype_name(t->opts.dtype));
    t->count = (int64_t)((bytes - t->opts.skip) / size);
    t->sequences = t->count ? (t->count - 1) / t->opts.length : 0;
    if (t->sequences >= t->opts.batch)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s has %lld tokens, %lld sequences of %lld; a batch takes %lld", path,
                       (long long)t->count, (long long)t->sequences, (long long)t->opts.length,
                       (long long)t->opts.batch);
}

static weft_status open_file(weft_tokens *t, const char *path, const weft_tokens_opts *given)
{
    weft_tokens_opts opts = WEFT_TOKENS_OPTS_INIT;
    WEFT_TRY(weft_i_opts_copy(&opts, sizeof opts, given, "the options"));
    WEFT_TRY(check_opts(&opts));
    t->opts = opts;
    if (!(t->map = weft_i_file_map_open(path)))
        return weft_last_status();
    return measure(t, path);
}

weft_tokens *weft_tokens_open(const char *path, const weft_tokens_opts *opts)
{
    if (!path || !*path)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_tokens_open: no path");
    weft_tokens *t = weft_i_object_new(WEFT_I_TOKENS, sizeof *t, destroy);
    if (!t)
        return NULL;
    weft_status status = open_file(t, path, opts);
    if (status >= 0)
        return t;
    weft_i_explain(status, "weft_tokens_open");
    weft_release(t);
    return NULL;
}

/* ---- asking ---- */

static weft_status check(const char *what, const weft_tokens *t)
{
    if (!t)
        return weft_i_missing("%s: the tokens are NULL", what);
    return t->head.kind == WEFT_I_TOKENS
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_TYPE, "%s: this is no token file, or one that was released",
                             what);
}

int64_t weft_tokens_count(const weft_tokens *tokens)
{
    return tokens && check("weft_tokens_count", tokens) >= 0 ? tokens->count : 0;
}

int64_t weft_tokens_batches(const weft_tokens *tokens)
{
    return tokens && check("weft_tokens_batches", tokens) >= 0
               ? tokens->sequences / tokens->opts.batch
               : 0;
}

/* ---- batches ---- */

static int64_t token_at(const weft_tokens *t, int64_t at)
{
    uint16_t narrow;
    uint32_t wide;
    const char *first = t->map->bytes + t->opts.skip;
    if (t->opts.dtype == WEFT_U16)
        return memcpy(&narrow, first + 2 * at, 2), narrow;
    return memcpy(&wide, first + 4 * at, 4), wide;
}

/* Which sequence is row `row` of a batch. */
static int64_t sequence_of(const weft_tokens *t, int64_t number, int64_t row)
{
    int64_t batches = t->sequences / t->opts.batch;
    uint64_t at = (uint64_t)((number % batches) * t->opts.batch + row);
    return t->opts.shuffle ? (int64_t)weft_i_shuffle(at, (uint64_t)t->sequences, t->opts.seed,
                                                     (uint64_t)(number / batches))
                           : (int64_t)at;
}

/* A sequence and what follows each of its tokens. */
static weft_status fill_row(const weft_tokens *t, int64_t sequence, int64_t *x, int64_t *labels)
{
    int64_t first = sequence * t->opts.length;
    for (int64_t i = 0; i <= t->opts.length; i++) {
        int64_t token = token_at(t, first + i);
        if (t->opts.symbols && token >= t->opts.symbols)
            return weft_i_fail(
                WEFT_ERR_INVALID_ARG,
                "weft_tokens_batch: token %lld of %s is %lld; there are %lld symbols",
                (long long)(first + i), t->map->path, (long long)token, (long long)t->opts.symbols);
        if (i < t->opts.length)
            x[i] = token;
        if (i && labels)
            labels[i - 1] = token;
    }
    return WEFT_OK;
}

static weft_status fill(const weft_tokens *t, int64_t number, int part, int64_t rows,
                        weft_tensor *x, weft_tensor *labels)
{
    int64_t *to = weft_tensor_data(x), *behind = labels ? weft_tensor_data(labels) : NULL;
    if (!to || (labels && !behind))
        return weft_last_status();
    for (int64_t i = 0; i < rows; i++)
        WEFT_TRY(fill_row(t, sequence_of(t, number, part * rows + i), to + i * t->opts.length,
                          behind ? behind + i * t->opts.length : NULL));
    return WEFT_OK;
}

weft_status weft_tokens_batch(const weft_tokens *tokens, int64_t number, int part, int parts,
                              weft_tensor **x, weft_tensor **labels)
{
    WEFT_TRY(check("weft_tokens_batch", tokens));
    WEFT_TRY(weft_i_not_captured("weft_tokens_batch"));
    if (!x || number < 0 || part < 0 || part >= parts || tokens->opts.batch % parts)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG,
            "weft_tokens_batch: part %d of %d of batch %lld; a batch has %lld sequences%s", part,
            parts, (long long)number, (long long)tokens->opts.batch,
            x ? "" : ", and there is no room for it");
    int64_t rows = tokens->opts.batch / parts;
    weft_shape shape = WEFT_SHAPE(rows, tokens->opts.length);
    weft_tensor *in = weft_empty(WEFT_I64, WEFT_CPU, shape),
                *out = in && labels ? weft_empty(WEFT_I64, WEFT_CPU, shape) : NULL;
    weft_status status =
        in && (out || !labels) ? fill(tokens, number, part, rows, in, out) : weft_last_status();
    if (status < 0) {
        weft_release(in);
        weft_release(out);
        return status;
    }
    *x = in;
    if (labels)
        *labels = out;
    return WEFT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2 in plain loops over plain arrays, one token at a time with a cache: what weft's tokens, and the
 * time that it takes for one, are compared with.  All matrices are [out, in]; those of attention have the
 * rows of all queries, then of all keys, then of all values.
 */
#ifndef WEFT_TESTS_PLAIN_GPT_H
#define WEFT_TESTS_PLAIN_GPT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN_LAYERS_MAX = 64 };

typedef struct plain_layer {
    const float *norm1_w, *norm1_b, *attn_w, *attn_b, *out_w, *out_b, *norm2_w, *norm2_b, *up_w,
        *up_b, *down_w, *down_b;
} plain_layer;

typedef struct plain_gpt {
    int layers, heads, width, time, symbols;
    const float *symbol, *place, *norm_w, *norm_b; /* wte, wpe, ln_f */
    plain_layer layer[PLAIN_LAYERS_MAX];
    float *keys, *values; /* [layers, time, width] */
} plain_gpt;

static float *plain_room(size_t n)
{
    float *x = calloc(n, sizeof *x);
    if (!x)
        abort();
    return x;
}

static void plain_norm(float *out, const float *x, const float *weight, const float *bias, int n)
{
    double mean = 0, square = 0;
    for (int i = 0; i < n; i++)
        mean += x[i];
    mean /= n;
    for (int i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean);
    float by = (float)(1 / sqrt(square / n + 1e-5));
    for (int i = 0; i < n; i++)
        out[i] = (x[i] - (float)mean) * by * weight[i] + bias[i];
}

/* out = weight x + bias, by eight sums at a time, which a compiler makes vectors of. */
static void plain_linear(float *out, const float *x, const float *weight, const float *bias, int to,
                         int from)
{
    for (int i = 0; i < to; i++) {
        const float *row = weight + (size_t)i * (size_t)from;
        float sum[16] = {0}, all = 0;
        int k = 0;
        for (; k + 16 <= from; k += 16)
            for (int l = 0; l < 16; l++)
                sum[l] += row[k + l] * x[k + l];
        for (; k < from; k++)
            sum[0] += row[k] * x[k];
        for (int l = 0; l < 16; l++)
            all += sum[l];
        out[i] = all + (bias ? bias[i] : 0);
    }
}

static void plain_head(const plain_gpt *g, float *out, const float *query, const float *keys,
                       const float *values, int count)
{
    int size = g->width / g->heads;
    float *weight = plain_room((size_t)count), most = -INFINITY, sum = 0;
    for (int t = 0; t < count; t++) {
        float score = 0;
        for (int i = 0; i < size; i++)
            score += query[i] * keys[t * g->width + i];
        weight[t] = score / sqrtf((float)size);
        most = fmaxf(most, weight[t]);
    }
    for (int t = 0; t < count; t++)
        sum += weight[t] = expf(weight[t] - most);
    memset(out, 0, (size_t)size * sizeof *out);
    for (int t = 0; t < count; t++)
        for (int i = 0; i < size; i++)
            out[i] += weight[t] / sum * values[t * g->width + i];
    free(weight);
}

static void plain_block(plain_gpt *g, int l, float *x, float *room, int position)
{
    const plain_layer *p = &g->layer[l];
    int w = g->width, size = w / g->heads;
    size_t past = (size_t)l * (size_t)g->time * (size_t)w;
    float *normed = room, *wide = room + w, *seen = wide + 4 * w;
    plain_norm(normed, x, p->norm1_w, p->norm1_b, w);
    plain_linear(wide, normed, p->attn_w, p->attn_b, 3 * w, w);
    memcpy(g->keys + past + (size_t)(position * w), wide + w, (size_t)w * sizeof *x);
    memcpy(g->values + past + (size_t)(position * w), wide + 2 * w, (size_t)w * sizeof *x);
    for (int h = 0; h < g->heads; h++)
        plain_head(g, seen + h * size, wide + h * size, g->keys + past + h * size,
                   g->values + past + h * size, position + 1);
    plain_linear(normed, seen, p->out_w, p->out_b, w, w);
    for (int i = 0; i < w; i++)
        x[i] += normed[i];
    plain_norm(normed, x, p->norm2_w, p->norm2_b, w);
    plain_linear(wide, normed, p->up_w, p->up_b, 4 * w, w);
    for (int i = 0; i < 4 * w; i++) {
        float u = wide[i];
        wide[i] = 0.5f * u * (1 + tanhf(0.7978845608f * (u + 0.044715f * u * u * u)));
    }
    plain_linear(normed, wide, p->down_w, p->down_b, w, 4 * w);
    for (int i = 0; i < w; i++)
        x[i] += normed[i];
}

/* The logits after `token` at a position, and the likeliest next token. */
static int plain_next(plain_gpt *g, int token, int position, float *logits)
{
    int w = g->width, best = 0;
    float *x = plain_room((size_t)w), *room = plain_room((size_t)w * 8);
    if (!g->keys) {
        g->keys = plain_room((size_t)g->layers * (size_t)g->time * (size_t)w);
        g->values = plain_room((size_t)g->layers * (size_t)g->time * (size_t)w);
    }
    for (int i = 0; i < w; i++)
        x[i] = g->symbol[token * w + i] + g->place[position * w + i];
    for (int l = 0; l < g->layers; l++)
        plain_block(g, l, x, room, position);
    plain_norm(room, x, g->norm_w, g->norm_b, w);
    plain_linear(logits, room, g->symbol, NULL, g->symbols, w);
    for (int i = 1; i < g->symbols; i++)
        best = logits[i] > logits[best] ? i : best;
    free(x);
    free(room);
    return best;
}

/* Goes on from `given` tokens with the likeliest ones, up to `count` in all. */
__attribute__((unused)) static void plain_generate(plain_gpt *g, int *tokens, int given, int count)
{
    float *logits = plain_room((size_t)g->symbols);
    for (int i = 0; i + 1 < count; i++) {
        int next = plain_next(g, tokens[i], i, logits);
        if (i + 1 >= given)
            tokens[i + 1] = next;
    }
    free(logits);
}

#endif

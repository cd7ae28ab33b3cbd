/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes with a GPT-2 from a safetensors file by plain loops: plain_gpt2 FILE COUNT PROMPT.  The tokens,
 * the likeliest ones, are what examples/gpt2 must write; milliseconds a token go to standard error.
 */
#include "plain_gpt.h"

#include <stdio.h>
#include <time.h>

static char *head; /* the file's description of its tensors */
static char *data; /* behind it */

static int read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    long bytes = file && !fseek(file, 0, SEEK_END) ? ftell(file) : 0;
    char *all = calloc((size_t)bytes + 1, 1);
    unsigned long long length = 0;
    if (!file || fseek(file, 0, SEEK_SET) || fread(all, 1, (size_t)bytes, file) != (size_t)bytes)
        return 0;
    fclose(file);
    memcpy(&length, all, sizeof length);
    data = all + 8 + length;
    head = calloc(length + 1, 1);
    memcpy(head, all + 8, length);
    return 1;
}

/* Where a tensor begins, with its sizes. */
static const float *find(const char *name, int layer, int size[2])
{
    char key[64], full[80];
    unsigned long long from = 0;
    snprintf(key, sizeof key, name, layer);
    snprintf(full, sizeof full, "\"%s\":", key);
    const char *at = strstr(head, full), *shape = at ? strstr(at, "\"shape\":[") : NULL,
               *offsets = at ? strstr(at, "\"data_offsets\":[") : NULL;
    size[0] = size[1] = 1;
    if (!shape || !offsets || sscanf(shape + 9, "%d,%d", &size[0], &size[1]) < 1 ||
        sscanf(offsets + 16, "%llu", &from) != 1)
        return NULL;
    return (const float *)(const void *)(data + from);
}

static const float *plain(const char *name, int layer)
{
    int size[2];
    return find(name, layer, size);
}

/* A matrix [in, out] as [out, in]. */
static const float *turned(const char *name, int layer)
{
    int size[2];
    const float *x = find(name, layer, size);
    float *out = x ? plain_room((size_t)size[0] * (size_t)size[1]) : NULL;
    for (int i = 0; x && i < size[0]; i++)
        for (int j = 0; j < size[1]; j++)
            out[j * size[0] + i] = x[i * size[1] + j];
    return out;
}

static int read_model(plain_gpt *g)
{
    int size[2];
    const char *heads = strstr(head, "\"heads\":\"");
    g->place = find("wpe.weight", 0, size);
    g->time = size[0];
    g->symbol = find("wte.weight", 0, size);
    g->symbols = size[0], g->width = size[1];
    g->heads = heads ? atoi(heads + 9) : g->width / 64;
    g->norm_w = plain("ln_f.weight", 0), g->norm_b = plain("ln_f.bias", 0);
    for (int i = 0; i < PLAIN_LAYERS_MAX && plain("h.%d.ln_1.weight", i); i++, g->layers++) {
        plain_layer *l = &g->layer[i];
        l->norm1_w = plain("h.%d.ln_1.weight", i), l->norm1_b = plain("h.%d.ln_1.bias", i);
        l->norm2_w = plain("h.%d.ln_2.weight", i), l->norm2_b = plain("h.%d.ln_2.bias", i);
        l->attn_w = turned("h.%d.attn.c_attn.weight", i);
        l->attn_b = plain("h.%d.attn.c_attn.bias", i);
        l->out_w = turned("h.%d.attn.c_proj.weight", i);
        l->out_b = plain("h.%d.attn.c_proj.bias", i);
        l->up_w = turned("h.%d.mlp.c_fc.weight", i), l->up_b = plain("h.%d.mlp.c_fc.bias", i);
        l->down_w = turned("h.%d.mlp.c_proj.weight", i);
        l->down_b = plain("h.%d.mlp.c_proj.bias", i);
    }
    return g->place && g->symbol && g->norm_w && g->layers;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    plain_gpt g = {0};
    if (argc != 4 || !read_file(argv[1]) || !read_model(&g))
        return fprintf(stderr, "plain_gpt2 FILE COUNT PROMPT: not such a model\n"), 2;
    int given = (int)strlen(argv[3]), most = given + atoi(argv[2]);
    int total = most < g.time ? most : g.time, token = 0;
    float *logits = plain_room((size_t)g.symbols);
    double start = 0;
    for (int i = 0; i < total; i++) {
        token = i < given ? (unsigned char)argv[3][i] : token;
        putchar(token);
        if (i == given - 1)
            start = seconds();
        if (i + 1 < total)
            token = plain_next(&g, token, i, logits);
    }
    putchar('\n');
    fprintf(stderr, "%.4f ms a token\n",
            (seconds() - start) * 1e3 / (total > given ? total - given : 1));
    return 0;
}

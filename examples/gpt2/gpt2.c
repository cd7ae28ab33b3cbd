/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains GPT-2 on the bytes of a file and writes with it, on one rank or many; see docs/gpt2.md.
 *
 *     weft run -n 4 gpt2 --data text.txt --mesh 2x2 --plan shard,tensor --run folder --steps 500
 *     gpt2 --load model.safetensors --prompt "A rank that" --count 200 --bits 8
 */
#include "model.h"

#include <signal.h>
#include <time.h>

static const char usage[] =
    "gpt2 [--option value]...\n"
    "  a model    --load model.safetensors, or --layers 4 --heads 4 --width 128 --time 128\n"
    "  to learn   --data file --steps 0 --batch 12 (rows, over all ranks) --rate 0.001 --seed 1\n"
    "             --bf16 0 (1: products of 16 bits) --compile 0 (1: compiled)\n"
    "             --profile file (a trace of the last step)\n"
    "  to go on   --run folder --every 50 (steps) --kill -1 (the last rank kills itself then)\n"
    "  ranks      --mesh 2x2 --plan shard,tensor (replicate; what each dimension is for)\n"
    "  to end     --save model.safetensors (of 16 bits with --bf16)\n"
    "  to write   --prompt text --count 200 --temperature 0.8 --top-k 40 --bits 0 (8, 4)\n";
static char **words; /* of the command line */

/* The value of an option, or NULL. */
static const char *text(const char *name)
{
    for (char **at = words; at[0] && at[1]; at += 2)
        if (!strcmp(at[0], name))
            return at[1];
    return NULL;
}

static double number(const char *name, double fallback)
{
    return text(name) ? atof(text(name)) : fallback;
}

static bool are_options(char **at)
{
    char word[64];
    for (words = at; at[0] && at[1]; at += 2) {
        snprintf(word, sizeof word, "%s ", at[0]);
        if (strncmp(word, "--", 2) != 0 || !strstr(usage, word))
            break;
    }
    return !*at || (fputs(usage, stderr), false);
}

typedef struct run {
    gpt2 g;
    weft_module *net;
    weft_group *group;
    weft_mesh *mesh;
    int64_t parts, part, cuts; /* of a batch, which of them is this rank's; of the layers */
    int64_t batch, steps;
    weft_optim *adam;
    weft_compiled *ahead, *back; /* NULL: as they are */
    double began;                /* ms: a step, or the text */
    uint64_t seed;
    bool bf16;
} run;

static weft_status fail(const char *why)
{
    fprintf(stderr, "gpt2: %s\n", why);
    return WEFT_ERR_INVALID_ARG;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* ---- over ranks ---- */

/* The first dimension has as many ranks as there are; if the others do not divide them, it is alone. */
static weft_mesh *new_mesh(weft_group *group)
{
    weft_shape shape = {1, {0}};
    int64_t rest = 1;
    char names[64];
    snprintf(names, sizeof names, "%s", text("--plan") ? text("--plan") : "replicate");
    for (const char *c = text("--mesh"); c && (c = strchr(c, 'x')) && shape.ndim < 3;
         rest *= atol(c))
        shape.dim[shape.ndim++] = atol(++c);
    if (rest < 1 || weft_size(group) % rest)
        names[strcspn(names, ",")] = 0, shape.ndim = 1, rest = 1;
    shape.dim[0] = weft_size(group) / rest;
    return weft_mesh_init(group, WEFT_CPU, shape, names);
}

static weft_status spread(run *r)
{
    static const weft_plan cut[] = {{"h.*.attn.c_attn", WEFT_PLAN_COLUMN, 0, 0},
                                    {"h.*.attn.c_proj", WEFT_PLAN_ROW, 0, 0},
                                    {"h.*.mlp.c_fc", WEFT_PLAN_COLUMN, 0, 0},
                                    {"h.*.mlp.c_proj", WEFT_PLAN_ROW, 0, 0}};
    weft_status status = (r->mesh = new_mesh(r->group)) ? WEFT_OK : weft_last_status();
    char name[16], over[32] = "";
    bool shards = false;
    for (int i = 0; i < weft_mesh_ndim(r->mesh) && status >= 0; i++) {
        const char *word = weft_mesh_dim_name(r->mesh, i);
        int n = weft_mesh_size(r->mesh, i);
        if (!strcmp(word, "tensor")) {
            r->cuts = n;
            status = weft_parallelize(r->net, weft_mesh_slice(r->mesh, word), cut, 4, NULL);
            continue;
        }
        r->part = r->part * n + weft_mesh_local_rank(r->mesh, i);
        r->parts *= n;
        shards |= !strcmp(word, "shard");
        snprintf(over + strlen(over), sizeof over - strlen(over), "%s%s", *over ? "," : "", word);
    }
    weft_mesh *rest = *over && r->steps && status >= 0 ? weft_mesh_slice(r->mesh, over) : NULL;
    for (int i = 0; i < r->g.layers && rest && shards && status >= 0; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        status = weft_shard(weft_module_child(r->net, name), rest, NULL);
    }
    if (status < 0 || !rest)
        return status;
    return shards ? weft_shard(r->net, rest, NULL)
                  : weft_replicate(r->net, weft_mesh_group(rest, WEFT_MESH_ONLY), NULL);
}

/* ---- training ---- */

static weft_tensor *read_data(void)
{
    FILE *file = text("--data") ? fopen(text("--data"), "rb") : NULL;
    long bytes = file && !fseek(file, 0, SEEK_END) ? ftell(file) : 0;
    weft_tensor *x = weft_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(bytes > 0 ? bytes : 0));
    bool good = file && x && !fseek(file, 0, SEEK_SET) &&
                fread(weft_tensor_data(x), 1, (size_t)bytes, file) == (size_t)bytes;
    if (file)
        fclose(file);
    return good ? x : NULL;
}

/* This rank's rows of a step's batch, each with the byte behind it. */
static weft_tensor *draw_batch(const run *r, weft_tensor *all, int64_t step)
{
    weft_tensor *row[1024];
    int64_t mine = r->batch / r->parts, last = weft_tensor_numel(all) - r->g.time;
    weft_seed(r->seed * 1000000 + (uint64_t)step);
    weft_tensor *from = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(r->batch), 0, last);
    for (int64_t i = 0; i < mine; i++)
        row[i] = weft_narrow(all, 0, weft_item_int(from, r->part * mine + i), r->g.time + 1);
    return weft_to_dtype(weft_stack(row, (size_t)mine, 0), WEFT_I64);
}

static weft_status find_loss(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                             void *user)
{
    const run *r = user;
    weft_status status = WEFT_OK;
    WEFT_AUTOCAST(r->bf16 ? WEFT_BF16 : WEFT_F32)
    {
        status = weft_module_call_list(r->net, out, outs, in, ins);
    }
    return status;
}

static weft_status train_step(run *r, weft_tensor *rows, weft_tensor **loss)
{
    weft_tensor *in[] = {weft_contiguous(weft_narrow(rows, 1, 0, r->g.time)),
                         weft_contiguous(weft_narrow(rows, 1, 1, r->g.time))};
    weft_status status =
        r->ahead ? weft_compiled_call(r->ahead, in, 2, loss, 1) : find_loss(in, 2, loss, 1, r);
    if (status >= 0)
        status = r->back ? weft_compiled_backward(r->back, loss, 1, NULL) : weft_backward(*loss);
    if (status >= 0)
        status = weft_clip_grads(r->net, 1, r->mesh, NULL);
    return status < 0 ? status : weft_optim_step(r->adam);
}

/* From the newest checkpoint, or the beginning, to the end. */
static weft_status train(run *r, bool first)
{
    double rate = number("--rate", 1e-3);
    weft_checkpoint *kept =
        text("--run") ? weft_checkpoint_new(text("--run"), r->group, NULL) : NULL;
    weft_profile_opts about = WEFT_PROFILE_OPTS;
    weft_tensor *all = read_data(), *loss;
    weft_status status = WEFT_OK;
    int64_t step = 0, every = (int64_t)number("--every", 50),
            death = first ? (int64_t)number("--kill", -1) : -1;
    int me = weft_rank(r->group), last = weft_size(r->group) - 1;
    if (!all || weft_tensor_numel(all) <= r->g.time || r->batch % r->parts || r->batch > 1024)
        return fail(
            "--data has more bytes than --time, --batch at most 1024 rows, which the ranks divide");
    about.trace = text("--profile");
    if (kept) {
        weft_checkpoint_add_module(kept, "model", r->net);
        weft_checkpoint_add_optim(kept, "adam", r->adam);
        status = weft_checkpoint_load(kept, &step);
        if (status >= 0 && me == 0)
            printf("goes on from step %lld, on %d ranks\n", (long long)step, last + 1);
        status = status == WEFT_ERR_NOT_FOUND ? WEFT_OK : status;
    }
    for (; step < r->steps && status >= 0; step++) {
        if (kept && step % every == 0)
            status = weft_checkpoint_save(kept, step);
        if (step == death && me == last)
            raise(SIGKILL);
        weft_scope_open();
        r->began = now_ms();
        weft_optim_set_rate(r->adam,
                            weft_rate_cosine(step, r->steps / 20, r->steps, rate, rate / 10));
        weft_profile *profile =
            about.trace && step + 1 == r->steps ? weft_profile_open(&about) : NULL;
        if (status >= 0)
            status = train_step(r, draw_batch(r, all, step), &loss);
        if (profile)
            weft_profile_close(profile);
        if (status >= 0 && (step % 10 == 0 || step + 1 == r->steps)) {
            double mean = weft_item(weft_all_reduce(weft_detach(loss), WEFT_AVG, r->group), 0);
            if (me == 0)
                printf("step %lld: loss %.7f, %.1f ms\n", (long long)step, mean,
                       now_ms() - r->began);
            fflush(stdout);
        }
        weft_scope_close();
    }
    if (status == WEFT_ERR_PEER_DEAD || status == WEFT_ERR_REVOKED)
        fprintf(stderr, "%.0f ms into step %lld: %s\n", now_ms() - r->began, (long long)step - 1,
                weft_last_error());
    return status < 0 || !kept ? status : weft_checkpoint_save(kept, step);
}

/* ---- writing ---- */

static weft_status write_on(run *r, const char *prompt)
{
    gpt2 *g = &r->g;
    int64_t given = (int64_t)strlen(prompt), count = (int64_t)number("--count", 200);
    int bits = (int)number("--bits", 0);
    weft_generate_opts opts = WEFT_GENERATE_OPTS;
    opts.sample.temperature = number("--temperature", 0.8);
    opts.sample.top_k = (int64_t)number("--top-k", 40);
    opts.seed = r->seed;
    weft_shape room = WEFT_SHAPE(g->layers, 2, 1, g->heads / r->cuts, g->time, g->width / g->heads);
    weft_tensor *cache = weft_zeros(WEFT_F32, WEFT_CPU, room), *made = NULL,
                *start = weft_tensor_from(WEFT_U8, WEFT_SHAPE(1, given), prompt);
    if (bits && weft_quantize_module(r->net, bits, 32) < 0)
        return weft_last_status();
    r->began = now_ms();
    WEFT_AUTOCAST(r->bf16 ? WEFT_BF16 : WEFT_F32)
    {
        count = count < g->time - given ? count : g->time - given;
        made = weft_generate(r->net, cache, weft_to_dtype(start, WEFT_I64), count, &opts);
    }
    if (made && weft_rank(r->group) == 0) {
        fputs(prompt, stdout);
        for (int64_t i = 0; i < weft_tensor_numel(made); i++)
            putchar((int)weft_item_int(made, i));
        putchar('\n');
        fprintf(stderr, "%.3f ms a token\n", (now_ms() - r->began) / (double)count);
    }
    return made ? WEFT_OK : weft_last_status();
}

/* Everything, on the ranks of a group. */
static weft_status work(weft_group *group, bool first)
{
    gpt2 g = {(long)number("--layers", 4), (long)number("--heads", 4), (long)number("--width", 128),
              (long)number("--time", 128), 256};
    run r = {.g = g, .group = group, .parts = 1, .cuts = 1, .bf16 = number("--bf16", 0) > 0};
    r.batch = (int64_t)number("--batch", 12), r.steps = (int64_t)number("--steps", 0);
    r.seed = (uint64_t)number("--seed", 1);
    weft_safetensors *file = text("--load") ? weft_safetensors_open(text("--load")) : NULL;
    weft_status status = text("--load") ? read_sizes(&r.g, file) : WEFT_OK;
    if (status < 0 || r.g.heads < 1 || r.g.width % r.g.heads)
        return status < 0 ? status : fail("the heads divide the width");
    if (!(r.net = new_gpt2(&r.g)) || (file && read_values(&r.g, r.net, file) < 0) || spread(&r) < 0)
        return weft_last_status();
    if (r.steps) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        opts.backend = "c";
        r.adam = weft_optim_adamw(r.net, 1, NULL);
        r.ahead = number("--compile", 0) > 0 ? weft_compile(find_loss, &r, &opts) : NULL;
        r.back = r.ahead ? weft_compile_backward(&opts) : NULL;
        status = r.adam ? train(&r, first) : weft_last_status();
    }
    if (status >= 0 && text("--save") && weft_rank(group) == 0)
        status = write_values(&r.g, r.net, text("--save"), r.bf16 ? WEFT_BF16 : WEFT_F32);
    return status < 0 || !text("--prompt") ? status : write_on(&r, text("--prompt"));
}

int main(int argc, char **argv)
{
    weft_group *world, *group;
    weft_status status = WEFT_OK;
    if (!are_options(argv + (argc > 0)) || !(world = group = weft_init(NULL)))
        return 2;
    for (bool first = true; group; first = false) {
        weft_scope_open();
        status = work(group, first);
        weft_scope_close();
        if (status != WEFT_ERR_PEER_DEAD && status != WEFT_ERR_REVOKED)
            break;
        weft_group_revoke(group); /* so that all of the living learn of it, and go on together */
        weft_clear_error();
        group = weft_group_shrink(group);
    }
    if (status < 0)
        fprintf(stderr, "gpt2: %s\n", weft_last_error());
    weft_finish(world);
    return status < 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training run that is stopped and goes on, on any number of ranks: tokens from a file, a sharded
 * model, checkpoints, a line of progress.  If ranks die, the others go on without them, from the last
 * checkpoint; if all are ended, the next run goes on, with as many ranks or with others.
 * Run: weft run -n 4 18_train, or 18_train FOLDER for a run that is kept there (with its train.bin)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/weft.h>

enum { STEPS = 200, SAVE = 50, BATCH = 24, LENGTH = 32, SYMBOLS = 128, WIDTH = 32 };

typedef char path[4096];

/* A text that can be learned, as numbers of 16 bits, unless there is one. */
static void write_text(const char *name)
{
    static const char text[] = "the quick brown fox jumps over the lazy dog. ";
    FILE *file = fopen(name, "rbe");
    if (!file && (file = fopen(name, "wbe")))
        for (int i = 0; i < 400 * (int)sizeof text; i++) {
            uint16_t token = (uint16_t)text[i % (int)(sizeof text - 1)];
            fwrite(&token, sizeof token, 1, file);
        }
    if (file)
        fclose(file);
}

static weft_module *new_model(void)
{
    weft_seed(1); /* all ranks begin alike, however many they are */
    return weft_nn_sequential(weft_nn_embedding(SYMBOLS, WIDTH), weft_nn_layer_norm(WIDTH),
                              weft_nn_linear(WIDTH, 4 * WIDTH), weft_nn_op(weft_gelu),
                              weft_nn_linear(4 * WIDTH, SYMBOLS));
}

/* What a step leaves: the loss of all. */
static double take_step(weft_group *group, weft_mesh *mesh, weft_module *net, weft_optim *adam,
                        const weft_tokens *tokens, int64_t step)
{
    weft_tensor *x = NULL, *labels = NULL;
    weft_scope_open();
    weft_tokens_batch(tokens, step, weft_rank(group), weft_size(group), &x, &labels);
    weft_tensor *loss = weft_cross_entropy(weft_module_call(net, x), labels);
    weft_backward(loss);
    weft_clip_grads(net, 1, mesh, NULL);
    weft_optim_set_rate(adam, weft_rate_cosine(step, 20, STEPS, 3e-3, 3e-4));
    weft_status status = weft_optim_step(adam);
    weft_tensor *all = weft_all_reduce(weft_detach(loss), WEFT_AVG, group);
    double mean = status < 0 || !all ? NAN : weft_item(all, 0);
    weft_scope_close();
    return mean;
}

/* From the last checkpoint to the end, or to the death of a rank. */
static weft_status train(weft_group *group, const char *folder)
{
    path text, run, table;
    snprintf(text, sizeof text, "%s/train.bin", folder);
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(table, sizeof table, "%s/steps.csv", folder);
    weft_tokens_opts opts = WEFT_TOKENS_OPTS_INIT;
    opts.batch = BATCH, opts.length = LENGTH, opts.symbols = SYMBOLS;
    weft_progress_opts show = WEFT_PROGRESS_OPTS_INIT;
    show.tokens = BATCH * LENGTH;
    show.interval_ms = 500;
    show.csv = weft_rank(group) == 0 ? table : NULL;

    weft_tokens *tokens = weft_tokens_open(text, &opts);
    weft_mesh *mesh = weft_mesh_init(group, WEFT_CPU, WEFT_SHAPE(weft_size(group)), "data");
    weft_module *net = new_model();
    weft_shard(net, mesh, NULL);
    weft_optim *adam = weft_optim_adamw(net, 3e-3, NULL);
    weft_checkpoint *checkpoint = weft_checkpoint_new(run, group, NULL);
    weft_checkpoint_add_module(checkpoint, "model", net);
    weft_checkpoint_add_optim(checkpoint, "adam", adam);
    if (!tokens || !checkpoint)
        return weft_last_status();

    int64_t step = 0;
    double loss = NAN;
    weft_status status = weft_checkpoint_load(checkpoint, &step);
    if (status < 0 && status != WEFT_ERR_NOT_FOUND)
        return status;
    bool first = weft_rank(group) == 0;
    if (first)
        printf("%d ranks begin at step %lld\n", weft_size(group), (long long)step);
    weft_clear_error();
    weft_progress *progress = weft_progress_new(first ? stdout : NULL, STEPS, &show);
    for (; step < STEPS && weft_last_status() >= 0; step++) {
        if (step % SAVE == 0)
            weft_checkpoint_save(checkpoint, step);
        loss = take_step(group, mesh, net, adam, tokens, step);
        weft_progress_step(progress, step, loss);
    }
    weft_progress_end(progress);
    if (weft_last_status() < 0)
        return weft_last_status();
    weft_checkpoint_save(checkpoint, STEPS);
    return weft_checkpoint_wait(checkpoint);
}

int main(int argc, char **argv)
{
    path folder = "";
    weft_group *group = weft_init(NULL), *world = group;
    if (weft_rank(world) == 0) {
        if (argc > 1)
            snprintf(folder, sizeof folder, "%s", argv[1]);
        else
            snprintf(folder, sizeof folder, "/tmp/weft-18-train-%ld", (long)getpid());
        mkdir(folder, 0755);
        path text;
        snprintf(text, sizeof text, "%.4000s/train.bin", folder);
        write_text(text);
    }
    weft_bytes sent = {folder, sizeof folder};
    bool first = weft_rank(world) == 0;
    weft_blobs *blobs = weft_broadcast_object(first ? &sent : NULL, first, 0, world);
    if (blobs)
        memcpy(folder, weft_blobs_get(blobs, 0).data, sizeof folder);

    weft_status status = weft_last_status();
    while (group && status >= 0) {
        weft_scope_open();
        status = train(group, folder);
        weft_scope_close();
        if (weft_status_scope(status) != WEFT_SCOPE_GROUP)
            break; /* done, or what fewer ranks would not mend */
        printf("rank %d goes on without some: %s\n", weft_rank(world), weft_last_error());
        weft_group_revoke(group); /* whoever waits for a rank that is gone learns of it */
        group = weft_group_shrink(group);
        weft_clear_error();
        status = WEFT_OK;
    }
    if (argc < 2 && status >= 0 && group && weft_rank(group) == 0)
        printf("the run is in %s\n", folder);
    return weft_finish(world);
}

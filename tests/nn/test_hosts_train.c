/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/hosts/hosts_list.c */
/*
 * The GPT of examples/06_gpt.c, trained by ranks on several hosts, each with its own part of a batch.
 * Every rank also trains a second model, all by itself: it makes the gradients of all ranks one after
 * the other and sums them in the order by definition.  Losses and parameters have the same bits.
 */
#include "fold_reference.h"
#include "harness_ranks.h"
#include "values_seed.h"

int example_main(int argc, char **argv);
#define main example_main
#include "../../examples/06_gpt.c"
#undef main

enum { TRAIN_STEPS = VALUES_SANITIZED ? 2 : 6, RANKS = 4 };

typedef struct learner {
    weft_module *net;
    weft_named params[PARAMS];
    int count;
    weft_optim *adam;
} learner;

static learner new_learner(void)
{
    learner l = {0};
    weft_seed(42);
    CHECK(l.net = new_gpt());
    l.count = weft_module_params(l.net, l.params, PARAMS);
    CHECK(l.count > 20);
    CHECK(l.adam = new_optim(l.params, l.count));
    return l;
}

/* Of the part that belongs to `rank` at this step; leaves its gradients. */
static float forward_and_back(learner *l, int step, int rank)
{
    weft_seed((uint64_t)(step * RANKS + rank));
    weft_tensor *batch = draw_batch();
    weft_tensor *logits = weft_module_call(l->net, weft_narrow(batch, 1, 0, TIME));
    weft_tensor *loss = weft_cross_entropy(logits, weft_narrow(batch, 1, 1, TIME));
    CHECK_OK(weft_backward(loss));
    return (float)weft_item(loss, 0);
}

static void take_step(learner *l, int step)
{
    CHECK_OK(weft_clip_grad_norm(l->params, l->count, 1, NULL, NULL));
    CHECK_OK(weft_optim_set_rate(l->adam, weft_rate_cosine(step, 10, STEPS, 6e-3, 6e-4)));
    CHECK_OK(weft_optim_step(l->adam));
}

/* What the ranks do together. */
static float train_together(learner *l, int step, int rank, weft_group *world)
{
    weft_tensor *grads[PARAMS], *loss = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    float mine = forward_and_back(l, step, rank);
    for (int i = 0; i < l->count; i++)
        CHECK(grads[i] = weft_grad(l->params[i].tensor));
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_all_reduce_list_into(grads, grads, l->count, WEFT_AVG, world));
        weft_fill(loss, (double)mine);
        CHECK_OK(weft_all_reduce_into(loss, loss, WEFT_AVG, world));
    }
    take_step(l, step);
    return (float)weft_item(loss, 0);
}

static void average(void *out, const void *const *in, size_t count)
{
    fold_reference_hosts(WEFT_F32, WEFT_I_FOLD_AVG, out, in, harness_host_sizes, harness_hosts,
                         count, NULL);
}

/* The same by one rank. */
static float train_alone(learner *l, int step)
{
    static float *grads[RANKS][PARAMS];
    float losses[RANKS], loss;
    const void *in[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        losses[rank] = forward_and_back(l, step, rank);
        for (int i = 0; i < l->count; i++) {
            weft_tensor *grad = weft_grad(l->params[i].tensor);
            CHECK(grads[rank][i] = malloc(weft_tensor_bytes(grad)));
            memcpy(grads[rank][i], weft_tensor_data(grad), weft_tensor_bytes(grad));
            if (rank < RANKS - 1)
                CHECK_OK(weft_set_grad(l->params[i].tensor, NULL));
        }
    }
    for (int i = 0; i < l->count; i++) {
        weft_tensor *grad = weft_grad(l->params[i].tensor);
        for (int rank = 0; rank < RANKS; rank++)
            in[rank] = grads[rank][i];
        average(weft_tensor_data(grad), in, (size_t)weft_tensor_numel(grad));
        for (int rank = 0; rank < RANKS; rank++)
            free(grads[rank][i]);
    }
    take_step(l, step);
    for (int rank = 0; rank < RANKS; rank++)
        in[rank] = &losses[rank];
    average(&loss, in, 1);
    return loss;
}

static void clear_grads(learner *l)
{
    for (int i = 0; i < l->count; i++)
        CHECK_OK(weft_set_grad(l->params[i].tensor, NULL));
}

static void train(int rank, int size)
{
    CHECK_INT(size, RANKS);
    weft_group *world = weft_init(NULL);
    CHECK(world);
    learner together = new_learner(), alone = new_learner();
    float first = 0, last = 0;
    for (int step = 0; step < TRAIN_STEPS; step++) {
        CHECK_OK(weft_scope_open());
        float model = train_alone(&alone, step);
        last = train_together(&together, step, rank, world);
        if (memcmp(&model, &last, sizeof model))
            FAIL("step %d: the loss is %.9g, by the model of the order %.9g", step, (double)last,
                 (double)model);
        first = step ? first : last;
        clear_grads(&together);
        clear_grads(&alone);
        weft_scope_close();
    }
    CHECK(last < first || TRAIN_STEPS < 6);
    for (int i = 0; i < together.count; i++)
        CHECK(!memcmp(weft_tensor_data(together.params[i].tensor),
                      weft_tensor_data(alone.params[i].tensor),
                      weft_tensor_bytes(alone.params[i].tensor)));
    CHECK_OK(weft_finish(world));
}

HOSTS_TEST(test_hosts_train, 4, "2+2")
{
    train(rank, size);
}

HOSTS_TEST(test_hosts_train_uneven, 4, "3+1")
{
    train(rank, size);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

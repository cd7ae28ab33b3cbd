/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Training over several ranks.  Three calls change a module in place: it is called, trained and saved
 * as before, and its ranks together compute what one rank would.
 *
 *     weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 4), "data,model");
 *     weft_parallelize(net, weft_mesh_slice(mesh, "model"), plan, entries, NULL);
 *     weft_shard(net, weft_mesh_slice(mesh, "data"), NULL);
 *     weft_optim *adam = weft_optim_adamw(net, 1e-3, NULL);        // behind them: it holds the parts
 *
 * Ranks that have different parts of a batch take the mean of their own part as the loss, and the
 * library takes the mean over the ranks.  Ranks that work on one part of it together compute the same
 * loss.  Programs neither divide by a number of ranks nor add up gradients.
 *
 * All functions with a group or mesh are collective: all its ranks make the same calls in the same
 * order.  What one rank finds wrong is an error on all of them.
 */
// clang-format on
#ifndef WEFT_PARALLEL_H
#define WEFT_PARALLEL_H

#include "weft/group.h"
#include "weft/mesh.h"
#include "weft/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the values of parameters and buffers come from. */
typedef enum weft_start {
    WEFT_START_COPY, /* from rank 0 of the group */
    WEFT_START_CHECK /* every rank has them; if they differ, WEFT_ERR_MISMATCH names the first */
} weft_start;

/* ---- copies of a module on every rank ---- */

typedef struct weft_replicate_opts {
    size_t size;         /* of this struct */
    size_t bucket_bytes; /* gradients that are sent together; 0: 4 MiB */
    weft_start start;
    /* A parameter that got no gradient on some rank counts as zeros there.  If false, it is an error
     * that names it and the ranks. */
    bool unused;
} weft_replicate_opts;
#define WEFT_REPLICATE_OPTS_INIT                               \
    {                                                          \
        sizeof(weft_replicate_opts), 0, WEFT_START_COPY, false \
    }

/*
 * Gives all ranks of the group the same gradients: after weft_backward each parameter has the mean
 * of the gradients of all ranks.  Gradients are sent in buckets while backward goes on; after the
 * first backward the buckets follow the order in which the parameters of rank 0 got theirs.
 *
 * WEFT_ERR_EXISTS if the module, or one below it, is replicated or sharded already.  WEFT_ERR_MISMATCH
 * on all ranks, with the first difference, if their parameters differ in name, dtype or shape.
 */
WEFT_API weft_status weft_replicate(weft_module *module, weft_group *group,
                                    const weft_replicate_opts *opts);

/* ---- parts of a module on every rank ---- */

typedef struct weft_shard_opts {
    size_t size; /* of this struct */
    weft_start start;
    bool keep;    /* in full from forward to backward: less to send, more memory */
    int prefetch; /* units that are gathered ahead; 0: one unit at a time, the least memory */
    bool unused;  /* as in weft_replicate_opts */
} weft_shard_opts;
#define WEFT_SHARD_OPTS_INIT                                                \
    {                                                                       \
        sizeof(weft_shard_opts), WEFT_START_COPY, false, 1 /*units*/, false \
    }

/*
 * Makes the module a unit: each rank of the mesh keeps its rows of every parameter, and the whole
 * ones exist while the unit computes.  The module's parameters are the parts from now on; after
 * weft_backward they have their part of the mean gradient over all ranks, and an optimizer made
 * then has the state of the parts alone.  The last ranks have fewer rows where the sizes do not
 * divide.
 *
 * Call it for each layer that is to be gathered by itself, and at the end for the module around them,
 * which takes what is left and lets each unit be gathered while the one before it computes:
 *
 *     for (int i = 0; i < layers; i++) weft_shard(layer[i], mesh, NULL);
 *     weft_shard(net, mesh, NULL);
 *
 * Of a mesh with two dimensions the second has the parts, and the first has copies of them.
 *
 * WEFT_ERR_EXISTS if the module is a unit, or is replicated.  WEFT_ERR_UNSUPPORTED for parameters
 * without dimensions, or tied to one of another unit.
 */
WEFT_API weft_status weft_shard(weft_module *module, weft_mesh *mesh, const weft_shard_opts *opts);

/* ---- layers cut over ranks ---- */

typedef enum weft_plan_style {
    WEFT_PLAN_COLUMN, /* a linear layer: each rank has some of its results */
    WEFT_PLAN_ROW,    /* a linear layer: each rank has some of its inputs; results are added up */
    WEFT_PLAN_VOCABULARY, /* an embedding: each rank has some of its rows */
    WEFT_PLAN_ATTENTION,  /* weft_nn_attention: each rank has some of its heads */
    WEFT_PLAN_SEQUENCE, /* any layer, whole on every rank: computes on this rank's part of a sequence */
    WEFT_PLAN_ENTER /* any module: what goes in is made whole once for the column layers in it */
} weft_plan_style;

/* What a rank has of a value that goes in or comes out. */
typedef enum weft_flow {
    WEFT_FLOW_USUAL,    /* what its style says below */
    WEFT_FLOW_WHOLE,    /* all of it; all ranks have the same */
    WEFT_FLOW_SEQUENCE, /* its part of the sequence, dimension 1 */
    WEFT_FLOW_FEATURES, /* its part of the last dimension */
    WEFT_FLOW_ENTERED   /* all of it, and the module around the layer is WEFT_PLAN_ENTER */
} weft_flow;

/*
 * One line of a plan.  `layer` is a name such as "body.0.mlp.1"; a * stands for all names between two
 * dots; "" is the module itself.
 *
 *     style        in: usual; or             out: usual; or
 *     COLUMN       WHOLE; SEQUENCE, ENTERED  FEATURES; WHOLE
 *     ROW          FEATURES; WHOLE           WHOLE; SEQUENCE
 *     VOCABULARY   WHOLE                     WHOLE; SEQUENCE
 *     ATTENTION    WHOLE; SEQUENCE           WHOLE; SEQUENCE
 *     SEQUENCE     SEQUENCE; WHOLE           SEQUENCE; WHOLE
 *     ENTER        WHOLE; SEQUENCE           what it computes
 */
typedef struct weft_plan {
    const char *layer;
    weft_plan_style style;
    weft_flow in, out;
} weft_plan;

typedef struct weft_parallelize_opts {
    size_t size; /* of this struct */
    weft_start start;
    int sequence; /* the dimension of values that is cut with WEFT_FLOW_SEQUENCE */
} weft_parallelize_opts;
#define WEFT_PARALLELIZE_OPTS_INIT                                \
    {                                                             \
        sizeof(weft_parallelize_opts), WEFT_START_COPY, 1 /*dim*/ \
    }

/*
 * Cuts layers over the ranks of a mesh with one dimension, by a plan of `count` lines.  All ranks
 * have the same input and compute the same loss:
 *
 *     weft_plan plan[] = {{"symbol", WEFT_PLAN_VOCABULARY},
 *                         {"body.*.attention.1", WEFT_PLAN_ATTENTION},
 *                         {"body.*.mlp.1", WEFT_PLAN_COLUMN},
 *                         {"body.*.mlp.3", WEFT_PLAN_ROW}};
 *     weft_parallelize(net, mesh, plan, 4, NULL);
 *
 * Gathers of a sequence in front of a COLUMN, and scatters behind a ROW, are fused with its product
 * (weft/fused.h).  Gradients of parameters that all ranks have, and that saw only parts of a sequence,
 * are added up.  Call it before weft_shard, weft_replicate and the making of an optimizer.
 *
 * All ranks get the same error, which names the layer: WEFT_ERR_NOT_FOUND for a line that fits no
 * layer, WEFT_ERR_TYPE for a style that is not for it, WEFT_ERR_INVALID_ARG for sizes or heads that
 * the ranks do not divide and for flows that the style has not, WEFT_ERR_EXISTS for a layer that two
 * lines fit or that is cut already.  Nothing has changed then.
 */
WEFT_API weft_status weft_parallelize(weft_module *module, weft_mesh *mesh, const weft_plan *plan,
                                      int count, const weft_parallelize_opts *opts);

/* weft_cross_entropy of logits whose last dimension is cut over the group, as a COLUMN gives them.
 * `labels` count all classes.  Neither the logits nor their softmax are ever whole. */
WEFT_API weft_tensor *weft_parallel_cross_entropy(weft_tensor *logits, weft_tensor *labels,
                                                  weft_group *group);

/* ---- stages of a model on several ranks ---- */

typedef struct weft_pipeline weft_pipeline;

typedef struct weft_pipeline_opts {
    size_t size; /* of this struct */
    int parts;   /* into which a batch is cut along its first dimension; at best many */
} weft_pipeline_opts;
#define WEFT_PIPELINE_OPTS_INIT                 \
    {                                           \
        sizeof(weft_pipeline_opts), 4 /*parts*/ \
    }

/*
 * Makes a pipeline, a handle in the current scope.  Rank r of n gives the stages r, r + n, r + 2n ...
 * of the model, `count` of them, as many on every rank; the model's input goes into stage 0, and the
 * result of each stage, one tensor, into the next.  More than one stage a rank makes the ranks wait
 * less; `parts` is then a multiple of n.  Stages may be cut, sharded or replicated over other
 * dimensions of a mesh: the gradients of the parts are exchanged once, with the last of them.
 */
WEFT_API weft_pipeline *weft_pipeline_new(weft_module *const *stages, int count, weft_group *group,
                                          const weft_pipeline_opts *opts);

/* The loss of a part of the batch, from what the last stage gave: a tensor of one element. */
typedef weft_tensor *(*weft_pipeline_loss)(weft_tensor *y, weft_tensor *labels, void *user);

/*
 * Forward and backward of a batch: one forward and one backward by turns, as soon as a rank can.  `x`
 * is read on rank 0; `labels`, which may be NULL, and `loss` on the last rank.  Adds the gradients of
 * the mean loss of the parts to the parameters, and stores that loss in `mean` on all ranks, unless it
 * is NULL.  If a rank fails, the group is revoked, so that no rank waits for it.
 */
WEFT_API weft_status weft_pipeline_step(weft_pipeline *pipeline, weft_tensor *x,
                                        weft_tensor *labels, weft_pipeline_loss loss, void *user,
                                        double *mean);

/* This rank's stages as a module, named by their numbers: for an optimizer, weft_clip_grads and
 * checkpoints.  Borrowed. */
WEFT_API weft_module *weft_pipeline_module(weft_pipeline *pipeline);

/* ---- all of them ---- */

/*
 * weft_clip_grad_norm for a module whose parameters are cut in any of these ways over the dimensions
 * of a mesh: what several ranks have copies of counts once.  Every rank of the mesh gets the same
 * norm.
 */
WEFT_API weft_status weft_clip_grads(weft_module *module, double limit, weft_mesh *mesh,
                                     double *norm);

/*
 * Whether the backwards from now on exchange gradients, for the module and all below it.  Switch it
 * off for all parts of a batch but the last, whose backward then exchanges the sum:
 *
 *     weft_gradient_sync(net, false);
 *     for (int i = 0; i < parts - 1; i++) weft_backward(loss(net, part[i]));
 *     weft_gradient_sync(net, true);
 *     weft_backward(loss(net, part[parts - 1]));
 */
WEFT_API weft_status weft_gradient_sync(weft_module *module, bool on);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages of a model on several ranks.  Rank r has the stages r, r + ranks, r + 2 ranks ...; a batch goes
 * through them in parts.  After a few forwards at the start every rank does one forward and one
 * backward by turns, so that no more parts are under way than there are stages behind it.  What is
 * sent is posted, and what is received has a tag of its own, so no order of the two can block.
 */
#include "base/os/os.h"
#include "base/report/opts.h"
#include "parallel/accord.h"
#include "parallel/cut.h"
#include "tensor/object/eye.h"
#include "tensor/object/tensor.h"
#include "weft/coll.h"
#include "weft/grad.h"
#include "weft/op.h"
#include "weft/p2p.h"
#include "weft/parallel.h"
#include "weft/view.h"

#include <stdio.h>
#include <string.h>

#define WHAT "weft_pipeline"

enum { PARTS_MOST = 1 << 16, STAGES_MOST = 64, HEAD = 2 + WEFT_MAX_DIMS, WORKS = 32 };

/* A part of the batch in one stage, from its forward to its backward. */
typedef struct passing {
    weft_tensor *x, *y; /* kept; `y` is the loss in the last stage */
} passing;

struct weft_pipeline {
    weft_i_object head;
    weft_group *group;   /* held */
    weft_module *module; /* held: a container with the stages, by their numbers */
    int count, ranks, rank, parts;
    /* Of the step under way: */
    weft_module **stage;
    passing *under_way; /* [stage of this rank][part] */
    weft_tensor **here; /* what this rank sent to itself: [stage][part][direction], kept */
    weft_work *work[WORKS];
    int works;
};

/* What a step is given. */
typedef struct step {
    weft_tensor *x, *labels;
    weft_pipeline_loss loss;
    void *user;
    double sum;
} step;

static void destroy(weft_i_object *object)
{
    weft_pipeline *p = (weft_pipeline *)object;
    WEFT_OS->free(p->under_way);
    WEFT_OS->free(p->here);
    WEFT_OS->free(p->stage);
    weft_i_object_drop(p->module);
    weft_i_object_drop(p->group);
    weft_i_object_free(object);
}

/* ---- who does what when ---- */

static int stages_of(const weft_pipeline *p)
{
    return p->count * p->ranks;
}

/* The k-th forward, or backward, of a rank: which of its stages, and which part. */
static void pick(const weft_pipeline *p, int k, bool forward, int *stage, int *part)
{
    int turn = k / p->ranks, chunk = p->count == 1 ? 0 : turn % p->count;
    *stage = forward ? chunk : p->count - 1 - chunk;
    *part = p->count == 1 ? k : turn / p->count * p->ranks + k % p->ranks;
}

/* Forwards before the first backward. */
static int warm_up(const weft_pipeline *p)
{
    int behind = p->ranks - p->rank - 1, all = p->count * p->parts;
    int first = p->count == 1 ? behind : 2 * behind + (p->count - 1) * p->ranks;
    return first < all ? first : all;
}

static passing *passing_of(const weft_pipeline *p, int stage, int part)
{
    return &p->under_way[stage * p->parts + part];
}

/* ---- messages: what it is, and then the elements ---- */

/* To a stage; `back` from the one behind it. */
static int tag_of(const weft_pipeline *p, int to, int part, bool back)
{
    return ((to * p->parts + part) * 2 + back) * 2;
}

static weft_tensor **place_here(const weft_pipeline *p, int to, int part, bool back)
{
    return &p->here[(to * p->parts + part) * 2 + back];
}

static weft_status await_works(weft_pipeline *p)
{
    weft_status first = WEFT_OK;
    for (int i = 0; i < p->works; i++) {
        weft_status status = first < 0 ? first : weft_work_wait(p->work[i], WEFT_DEFAULT);
        first = first < 0 ? first : status;
        weft_release(p->work[i]);
    }
    p->works = 0;
    return first;
}

/* Sends that are over make room; if none is, the oldest is waited for. */
static weft_status make_room(weft_pipeline *p)
{
    int left = 0;
    weft_status first = WEFT_OK;
    for (int i = 0; i < p->works; i++) {
        weft_status status = weft_work_test(p->work[i]);
        if (status == WEFT_IN_PROGRESS) {
            p->work[left++] = p->work[i];
            continue;
        }
        weft_release(p->work[i]);
        first = first < 0 ? first : status;
    }
    p->works = left;
    return first < 0 || left < WORKS - 1 ? first : await_works(p);
}

static weft_status post(weft_pipeline *p, weft_tensor *x, int to, int tag)
{
    weft_work *work = x ? weft_send_tag_start(x, to, tag, p->group) : NULL;
    if (!work)
        return weft_last_status();
    p->work[p->works++] = weft_keep(work);
    return WEFT_OK;
}

static weft_status send_to(weft_pipeline *p, weft_tensor *x, int to, int part, bool back)
{
    int64_t head[HEAD] = {0};
    int rank = to % p->ranks, tag = tag_of(p, to, part, back);
    x = weft_contiguous(weft_detach(x));
    if (!x)
        return weft_last_status();
    if (rank == p->rank) {
        *place_here(p, to, part, back) = weft_keep(x);
        return WEFT_OK;
    }
    head[0] = weft_tensor_dtype(x);
    head[1] = weft_tensor_ndim(x);
    for (int i = 0; i < weft_tensor_ndim(x); i++)
        head[2 + i] = weft_tensor_size(x, i);
    WEFT_TRY(make_room(p));
    WEFT_TRY(post(p, weft_tensor_from(WEFT_I64, WEFT_SHAPE(HEAD), head), rank, tag));
    return post(p, x, rank, tag + 1);
}

static weft_status read_head(weft_tensor *head, weft_dtype *dtype, weft_shape *shape)
{
    *dtype = (weft_dtype)weft_item_int(head, 0);
    shape->ndim = (int)weft_item_int(head, 1);
    if (shape->ndim < 0 || shape->ndim > WEFT_MAX_DIMS || !weft_dtype_name(*dtype))
        return weft_i_fail(WEFT_ERR_PROTOCOL, WHAT ": a message that no stage sends");
    for (int i = 0; i < shape->ndim; i++)
        shape->dim[i] = weft_item_int(head, 2 + i);
    return WEFT_OK;
}

/* In the current scope. */
static weft_tensor *receive(weft_pipeline *p, int from, int to, int part, bool back)
{
    int rank = from % p->ranks, tag = tag_of(p, to, part, back);
    weft_dtype dtype;
    weft_shape shape;
    if (rank == p->rank) {
        weft_tensor **place = place_here(p, to, part, back), *x = *place;
        *place = NULL;
        weft_tensor *alias = weft_detach(x);
        weft_release(x);
        return alias;
    }
    weft_named first;
    weft_module *stage = p->stage[to / p->ranks];
    bool trains = weft_module_params(stage, &first, 1) > 0;
    weft_tensor *head = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(HEAD));
    if (!head || weft_recv_tag(head, rank, tag, p->group) < 0 ||
        read_head(head, &dtype, &shape) < 0)
        return NULL;
    weft_tensor *x = weft_empty(dtype, trains ? weft_tensor_device(first.tensor) : WEFT_CPU, shape);
    return x && weft_recv_tag(x, rank, tag + 1, p->group) >= 0 ? x : NULL;
}

/* ---- one forward, one backward ---- */

static weft_tensor *part_of(const weft_pipeline *p, weft_tensor *x, int part)
{
    int64_t rows = x ? weft_tensor_size(x, 0) / p->parts : 0;
    return weft_narrow(x, 0, rows * part, rows);
}

static weft_tensor *enter(weft_pipeline *p, const step *s, int stage, int part)
{
    int number = stage * p->ranks + p->rank;
    if (number == 0)
        return part_of(p, s->x, part);
    weft_tensor *x = receive(p, number - 1, number, part, false);
    if (x && weft_i_dtype_is_float(weft_tensor_dtype(x)) && weft_require_grad(x, true) < 0)
        return NULL;
    return x;
}

static weft_tensor *loss_of(const weft_pipeline *p, step *s, weft_tensor *y, int part)
{
    weft_tensor *labels = s->labels ? part_of(p, s->labels, part) : NULL;
    weft_tensor *loss = y ? s->loss(y, labels, s->user) : NULL;
    loss = loss ? weft_div_scalar(loss, p->parts) : NULL;
    if (loss)
        s->sum += weft_item(loss, 0);
    return loss;
}

static weft_status forward(weft_pipeline *p, step *s, int k)
{
    int stage, part;
    pick(p, k, true, &stage, &part);
    int number = stage * p->ranks + p->rank;
    bool last = number == stages_of(p) - 1;
    weft_tensor *x = enter(p, s, stage, part);
    weft_tensor *y = x ? weft_module_call(p->stage[stage], x) : NULL;
    if (last)
        y = loss_of(p, s, y, part);
    if (!y)
        return weft_i_explain(weft_last_status(), WHAT ": stage %d, part %d", number, part);
    if (!last)
        WEFT_TRY(send_to(p, y, number + 1, part, false));
    passing *at = passing_of(p, stage, part);
    at->x = weft_i_object_hold(x);
    at->y = weft_i_object_hold(y);
    return WEFT_OK;
}

static weft_status run_back(weft_pipeline *p, const passing *at, int number, int part)
{
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    if (number == stages_of(p) - 1)
        return weft_backward(at->y);
    weft_tensor *g = receive(p, number + 1, number, part, true);
    opts.seeds = &g;
    return g ? weft_backward_all(&at->y, 1, &opts) : weft_last_status();
}

static weft_status backward(weft_pipeline *p, int k)
{
    int stage, part;
    pick(p, k, false, &stage, &part);
    int number = stage * p->ranks + p->rank;
    passing *at = passing_of(p, stage, part);
    WEFT_TRY(weft_gradient_sync(p->stage[stage], part == p->parts - 1));
    weft_status status = run_back(p, at, number, part);
    if (status >= 0 && number > 0) {
        weft_tensor *g = weft_grad(at->x);
        g = g ? g : weft_zeros_like(at->x);
        status = g ? send_to(p, g, number - 1, part, true) : weft_last_status();
    }
    weft_i_object_drop(at->y);
    weft_i_object_drop(at->x);
    *at = (passing){NULL, NULL};
    return status < 0 ? weft_i_explain(status, WHAT ": backward of stage %d, part %d", number, part)
                      : WEFT_OK;
}

/* ---- a step ---- */

static weft_status in_scope(weft_pipeline *p, step *s, int k, bool ahead)
{
    WEFT_TRY(weft_scope_open());
    weft_status status = ahead ? forward(p, s, k) : backward(p, k);
    weft_scope_close();
    return status;
}

static weft_status run_all(weft_pipeline *p, step *s)
{
    int all = p->count * p->parts, warm = warm_up(p);
    for (int k = 0; k < warm; k++)
        WEFT_TRY(in_scope(p, s, k, true));
    for (int k = warm; k < all; k++) {
        WEFT_TRY(in_scope(p, s, k, true));
        WEFT_TRY(in_scope(p, s, k - warm, false));
    }
    for (int k = all - warm; k < all; k++)
        WEFT_TRY(in_scope(p, s, k, false));
    return await_works(p);
}

/* After a failure: nothing of the step stays. */
static void forget(weft_pipeline *p)
{
    for (int i = 0; i < p->works; i++)
        weft_release(p->work[i]);
    p->works = 0;
    for (int i = 0; i < p->count; i++)
        weft_gradient_sync(p->stage[i], true);
    for (int i = 0; i < p->count * p->parts; i++) {
        weft_i_object_drop(p->under_way[i].y);
        weft_i_object_drop(p->under_way[i].x);
        p->under_way[i] = (passing){NULL, NULL};
    }
    for (int i = 0; i < stages_of(p) * p->parts * 2; i++) {
        weft_i_object_drop(p->here[i]);
        p->here[i] = NULL;
    }
}

static weft_status check_batch(const weft_pipeline *p, const char *which, weft_tensor *x)
{
    if (!x)
        return weft_i_missing(WHAT "_step: the %s NULL", which);
    int64_t rows = weft_tensor_ndim(x) ? weft_tensor_size(x, 0) : 0;
    if (rows < 1 || rows % p->parts)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           WHAT "_step: the %s %lld rows, which %d parts do not divide", which,
                           (long long)rows, p->parts);
    return WEFT_OK;
}

static weft_status check_step(const weft_pipeline *p, const step *s)
{
    if (p->rank == 0)
        WEFT_TRY(check_batch(p, "input has", s->x));
    if (p->rank != p->ranks - 1)
        return WEFT_OK;
    if (!s->loss)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, WHAT "_step: no loss on the last rank");
    return s->labels ? check_batch(p, "labels have", s->labels) : WEFT_OK;
}

/* The mean loss of the last stage, on all ranks. */
static weft_status tell_loss(const weft_pipeline *p, double *loss)
{
    weft_tensor *x = weft_tensor_from(WEFT_F64, WEFT_SHAPE(1), loss);
    WEFT_TRY(x ? weft_broadcast_in_place(x, p->ranks - 1, p->group) : weft_last_status());
    *loss = weft_item(x, 0);
    return WEFT_OK;
}

static weft_status check_handle(const weft_pipeline *p)
{
    if (p && p->head.kind == WEFT_I_PIPELINE)
        return WEFT_OK;
    return p ? weft_i_fail(WEFT_ERR_TYPE, WHAT ": that is no pipeline")
             : weft_i_missing(WHAT ": it is NULL");
}

weft_status weft_pipeline_step(weft_pipeline *p, weft_tensor *x, weft_tensor *labels,
                               weft_pipeline_loss loss, void *user, double *out)
{
    step s = {.x = x, .labels = labels, .loss = loss, .user = user};
    WEFT_TRY(check_handle(p));
    WEFT_TRY(weft_i_not_captured(WHAT "_step"));
    WEFT_TRY(weft_i_accord(p->group, WHAT "_step", check_step(p, &s), NULL));
    WEFT_TRY(weft_scope_open());
    weft_status status = run_all(p, &s);
    if (status >= 0)
        status = tell_loss(p, &s.sum);
    if (status < 0) { /* the others wait for what will not come */
        weft_i_errors saved;
        weft_i_errors_save(&saved);
        forget(p);
        weft_group_revoke(p->group);
        weft_i_errors_restore(&saved);
    }
    weft_scope_close();
    if (status >= 0 && out)
        *out = s.sum;
    return status;
}

/* ---- making ---- */

weft_module *weft_pipeline_module(weft_pipeline *p)
{
    return check_handle(p) < 0 ? NULL : p->module;
}

static weft_status check_new(weft_module *const *stages, int count, int ranks,
                             const weft_pipeline_opts *opts)
{
    if (count < 1 || count > STAGES_MOST || !stages)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%d stages; 1 to %d on each rank",
                           stages ? count : 0, STAGES_MOST);
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_i_module_check(WHAT, stages[i]));
    if (opts->parts < 1 || opts->parts > PARTS_MOST)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a batch of %d parts; 1 to %d", opts->parts,
                           PARTS_MOST);
    if (count > 1 && opts->parts % ranks)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%d parts with %d stages on each of %d ranks; the ranks divide the "
                           "parts if a rank has several stages",
                           opts->parts, count, ranks);
    return WEFT_OK;
}

/* The container: stages by their numbers in the model, of which the other ranks have the others. */
static weft_status fill_module(weft_pipeline *p, weft_module *const *stages)
{
    p->module = weft_i_object_hold(weft_module_new(NULL, NULL));
    if (!p->module)
        return weft_last_status();
    for (int i = 0; i < p->count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i * p->ranks + p->rank);
        WEFT_TRY(weft_module_add(p->module, name, stages[i]));
        p->stage[i] = stages[i];
    }
    weft_i_cut_layer *cut = weft_i_cut_new(p->group, WHAT);
    if (!cut)
        return weft_last_status();
    cut->stages = true;
    p->module->part[WEFT_I_PART_CUT] = (weft_i_object *)cut;
    return WEFT_OK;
}

static weft_status make(weft_pipeline *p, weft_module *const *stages)
{
    size_t slots = (size_t)p->count * (size_t)p->parts;
    p->stage = WEFT_OS->alloc((size_t)p->count * sizeof(weft_module *));
    p->under_way = WEFT_OS->alloc(slots * sizeof *p->under_way);
    size_t messages = slots * (size_t)p->ranks * 2;
    p->here = WEFT_OS->alloc(messages * sizeof(weft_tensor *));
    if (!p->stage || !p->under_way || !p->here)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, WHAT ": no memory for %zu parts", slots);
    memset(p->under_way, 0, slots * sizeof *p->under_way);
    memset(p->here, 0, messages * sizeof(weft_tensor *));
    return fill_module(p, stages);
}

weft_pipeline *weft_pipeline_new(weft_module *const *stages, int count, weft_group *group,
                                 const weft_pipeline_opts *given)
{
    weft_pipeline_opts opts = WEFT_PIPELINE_OPTS_INIT;
    weft_i_deed deed = {0};
    if (!group && weft_i_missing(WHAT ": the group is NULL") < 0)
        return NULL;
    weft_status status = weft_i_opts_copy(&opts, sizeof opts, given, WHAT);
    if (status >= 0)
        status = check_new(stages, count, weft_size(group), &opts);
    if (status >= 0)
        status = weft_i_deed_add(&deed, "%d stages, %d parts", count, opts.parts);
    status = weft_i_accord(group, WHAT, status, &deed);
    weft_i_deed_clear(&deed);
    if (status < 0)
        return NULL;
    weft_pipeline *p = weft_i_object_new(WEFT_I_PIPELINE, sizeof *p, destroy);
    if (!p)
        return NULL;
    p->group = weft_i_object_hold(group);
    p->count = count;
    p->parts = opts.parts;
    p->ranks = weft_size(group);
    p->rank = weft_rank(group);
    if (make(p, stages) >= 0)
        return p;
    weft_release(p);
    return NULL;
}

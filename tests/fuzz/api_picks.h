/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuzz_api.c gives as arguments: numbers, texts, shapes, arrays and options, drawn by chance,
 * and the objects that earlier calls have made, in one pool for each kind.  gen-api knows the
 * pickers by the types of parameters.
 */
#ifndef WEFT_FUZZ_API_PICKS_H
#define WEFT_FUZZ_API_PICKS_H

#include <weft/weft.h>

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    CALLS_A_ROUND = 300,
    POOL = 24,          /* objects of a kind */
    ARRAY = 64,         /* elements of every array */
    ROOM = 4096,        /* bytes of every buffer */
    WALKABLE = 1 << 20, /* elements of a tensor that stays */
    LIMIT_MS = 3,       /* of whatever waits */
    STUCK_S = 90
};

typedef struct fuzz_row {
    const char *name;
    void (*call)(void);
} fuzz_row;

/* What a rank knows of: one pool for each kind of handle. */
typedef struct pool {
    void *item[POOL];
    unsigned used;
} pool;

typedef struct rank_state {
    uint64_t random;
    pool tensors, groups, stores, meshes, symms, works, blobs, jobs, pools, modules, optims, graphs,
        compileds, profiles, streams, events, replays, pipelines, files, checkpoints, token_files,
        progresses;
    void *loan[64]; /* buffers of the call under way */
    unsigned loans;
    const char *at; /* what it is calling */
    int meshes_entered, limits_open;
    weft_group *collecting[64]; /* groups that were told to, and must be told to end */
    unsigned collections;
} rank_state;

static _Thread_local rank_state *me;
static rank_state states[4];
static uint64_t seed = 1, calls = 100000;
static unsigned long long round_number, calls_made;
static FILE *nowhere;
static unsigned char ground[1 << 16]; /* what wrapped tensors lie on */

/* ---- chance ---- */

static uint64_t draw(void)
{
    uint64_t x = me->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int pick_choice(int of)
{
    return (int)(draw() % (unsigned)of);
}

static bool one_in(int of)
{
    return pick_choice(of) == 0;
}

static _Bool pick_bool(void)
{
    return one_in(2);
}

#define PICK(array_) ((array_)[pick_choice((int)(sizeof(array_) / sizeof *(array_)))])

static int pick_int(void)
{
    static const int odd[] = {INT_MIN, INT_MAX, -1, -2, -100, 100, 8, 9, 1 << 16, -(1 << 16), 65};
    return one_in(4) ? PICK(odd) : pick_choice(5);
}

static int64_t pick_long(void)
{
    static const int64_t odd[] = {INT64_MIN,       INT64_MAX,    -1,        -2,
                                  1LL << 62,       -(1LL << 62), 1LL << 40, INT_MAX,
                                  (1LL << 32) + 1, 4095,         1LL << 31, 17};
    return one_in(4) ? PICK(odd) : pick_choice(7);
}

static int pick_count(void)
{
    static const int odd[] = {-1, INT_MIN, ARRAY, ARRAY - 1, 9};
    return one_in(4) ? PICK(odd) : pick_choice(5);
}

static size_t pick_size(void)
{
    return (size_t)pick_long();
}

static size_t pick_bytes_count(void)
{
    return one_in(6) ? ROOM : (size_t)pick_choice(70);
}

static int64_t pick_timeout(void)
{
    static const int64_t limits[] = {WEFT_DEFAULT, WEFT_DEFAULT, 1, 3, -7, INT64_MIN};
    return PICK(limits);
}

static double pick_double(void)
{
    const double odd[] = {NAN, INFINITY, -INFINITY, 1e308, -1e308, 1e-320, -0.0, 1e18, 9.3e18, 0.5};
    return one_in(3) ? PICK(odd) : pick_choice(9) - 2;
}

/* ---- memory of one call ---- */

static void *room(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory || me->loans == sizeof me->loan / sizeof *me->loan)
        abort();
    return me->loan[me->loans++] = memory;
}

static void give_back(void)
{
    while (me->loans)
        free(me->loan[--me->loans]);
}

static void *pick_room(void)
{
    return one_in(6) ? NULL : room(ROOM);
}

static const void *pick_bytes(void)
{
    unsigned char *bytes = pick_room();
    for (int i = 0; bytes && i < 64; i++)
        bytes[i] = (unsigned char)draw();
    return bytes;
}

static const char *pick_text(void)
{
    static const char *const texts[] = {
        "",     "0",          "a",   "dp",      "tp",         "dp,tp",         "dp,,tp",
        ",",    "all_reduce", "shm", "threads", "fake",       "key",           "a/b",
        "%s%n", "\xff\xfe",   "sum", "x",       "all_gather", "no such thing", "0/0-2"};
    if (one_in(12))
        return NULL;
    if (!one_in(10))
        return PICK(texts);
    char *text = room(ROOM);
    memset(text, 'n', (size_t)(one_in(2) ? ROOM - 1 : 60 + pick_choice(10)));
    return text;
}

static const char *const *pick_texts(void)
{
    if (one_in(10))
        return NULL;
    const char **texts = room(ARRAY * sizeof *texts);
    for (int i = 0; i < ARRAY; i++)
        texts[i] = i < 6 ? pick_text() : "key";
    return texts;
}

static const void *const *pick_byte_lists(void)
{
    const void **lists = room(ARRAY * sizeof *lists);
    for (int i = 0; i < ARRAY; i++)
        lists[i] = one_in(9) ? NULL : ground;
    return one_in(10) ? NULL : lists;
}

static const size_t *pick_sizes(void)
{
    size_t *sizes = room(ARRAY * sizeof *sizes);
    for (int i = 0; i < ARRAY; i++)
        sizes[i] = pick_bytes_count();
    return one_in(10) ? NULL : sizes;
}

static const int *pick_ints(void)
{
    int *ints = room(ARRAY * sizeof *ints);
    bool tame = one_in(2);
    for (int i = 0; i < ARRAY; i++)
        ints[i] = tame ? i : pick_int();
    return one_in(10) ? NULL : ints;
}

static const int64_t *pick_longs(void)
{
    int64_t *longs = room(ARRAY * sizeof *longs);
    bool tame = one_in(2);
    int64_t each = pick_choice(4);
    for (int i = 0; i < ARRAY; i++)
        longs[i] = tame ? each : pick_long();
    return one_in(5) ? NULL : longs;
}

/* In and out: how many there is room for. */
static size_t *pick_count_room(void)
{
    size_t *count = room(sizeof *count);
    *count = (size_t)pick_choice(ARRAY + 1);
    return one_in(8) ? NULL : count;
}

static FILE *pick_file(void)
{
    return one_in(8) ? NULL : nowhere;
}

/* ---- kinds ---- */

static weft_dtype pick_dtype(void)
{
    return one_in(15) ? (weft_dtype)pick_int() : one_in(2) ? WEFT_F32 : (weft_dtype)pick_choice(16);
}

static weft_device pick_device(void)
{
    static const weft_device odd[] = {WEFT_META, WEFT_META, WEFT_CUDA(0), WEFT_CUDA(7),
                                      1,         -1,        INT_MIN,      INT_MAX,
                                      3 << 16,   65535,     WEFT_META + 1};
    return one_in(3) ? PICK(odd) : WEFT_CPU;
}

/* Small, or so large that it cannot be. */
static weft_shape pick_shape(void)
{
    static const int64_t odd[] = {-1, 1LL << 40, 1LL << 62, INT64_MAX, INT64_MIN, 0, 1LL << 61, -2};
    static const int dims[] = {0, 1, 1, 1, 2, 2, 3, 4, 8};
    static const int odd_dims[] = {9, -1, INT_MAX, INT_MIN, 64};
    weft_shape shape = {one_in(20) ? PICK(odd_dims) : PICK(dims), {0}};
    bool tame = !one_in(5);
    for (int i = 0; i < WEFT_MAX_DIMS; i++)
        shape.dim[i] = tame || !one_in(3) ? pick_choice(4) + !one_in(6) : PICK(odd);
    return shape;
}

static const weft_shape *pick_shapes(void)
{
    weft_shape *shapes = room(ARRAY * sizeof *shapes);
    for (int i = 0; i < ARRAY; i++)
        shapes[i] = pick_shape();
    return one_in(3) ? NULL : shapes;
}

/* ---- pools ---- */

static void *pick_from(const pool *from)
{
    return one_in(24) || !from->used ? NULL : from->item[pick_choice((int)from->used)];
}

static void *add_to(pool *to, void *item)
{
    if (!item)
        return NULL;
    unsigned place = to->used < POOL ? to->used++ : (unsigned)pick_choice(POOL);
    return to->item[place] = item;
}

/* Those over memory may be repeated views of a few bytes: what takes hours to walk over goes. */
static void *add_tensor(weft_tensor *x)
{
    bool data = weft_tensor_device(x) != WEFT_META;
    if (data && weft_tensor_numel(x) > WALKABLE)
        return NULL; /* the scope lets it go */
    return add_to(&me->tensors, x);
}

#define POOL_OF(kind_, field_, type_)  \
    static type_ *pick_##kind_(void)   \
    {                                  \
        return pick_from(&me->field_); \
    }

POOL_OF(tensor, tensors, weft_tensor)
POOL_OF(group, groups, weft_group)
POOL_OF(store, stores, weft_store)
POOL_OF(mesh, meshes, weft_mesh)
POOL_OF(symm, symms, weft_symm)
POOL_OF(work, works, weft_work)
POOL_OF(blobs, blobs, weft_blobs)
POOL_OF(job, jobs, weft_job)
POOL_OF(pool, pools, weft_symm_pool)
POOL_OF(module, modules, weft_module)
POOL_OF(optim, optims, weft_optim)
POOL_OF(graph, graphs, weft_graph)
POOL_OF(compiled, compileds, weft_compiled)
POOL_OF(profile, profiles, weft_profile)
POOL_OF(stream, streams, weft_stream)
POOL_OF(event, events, weft_event)
POOL_OF(replay, replays, weft_replay)
POOL_OF(pipeline, pipelines, weft_pipeline)

/* A tensor's storage may change: it is asked for each time. */
static weft_storage *pick_storage(void)
{
    return weft_tensor_storage(pick_tensor());
}

/* Arrays have one element for each rank, or more. */
static void add_group(weft_group *group)
{
    if (weft_size(group) <= ARRAY)
        add_to(&me->groups, group);
}

static void add_store(weft_store *store)
{
    if (store)
        weft_store_set_timeout(store, 2);
    add_to(&me->stores, store);
}

static void add_mesh(weft_mesh *mesh)
{
    add_to(&me->meshes, mesh);
}

static void add_symm(weft_symm *symm)
{
    add_to(&me->symms, symm);
}

static void add_work(weft_work *work)
{
    add_to(&me->works, work);
}

static void add_storage(weft_storage *storage)
{
    (void)weft_storage_bytes(storage);
}

static void add_blobs(weft_blobs *blobs)
{
    add_to(&me->blobs, blobs);
}

static void add_stream(weft_stream *stream)
{
    add_to(&me->streams, stream);
}

static void add_event(weft_event *event)
{
    add_to(&me->events, event);
}

static void add_replay(weft_replay *replay)
{
    add_to(&me->replays, replay);
}

static void add_pipeline(weft_pipeline *pipeline)
{
    add_to(&me->pipelines, pipeline);
}

static void add_job(weft_job *job)
{
    add_to(&me->jobs, job);
}

static void add_module(weft_module *module)
{
    add_to(&me->modules, module);
}

static void add_optim(weft_optim *optim)
{
    add_to(&me->optims, optim);
}

static void add_graph(weft_graph *graph)
{
    add_to(&me->graphs, graph);
}

static void add_profile(weft_profile *profile)
{
    add_to(&me->profiles, profile);
}

static void add_compiled(weft_compiled *compiled)
{
    add_to(&me->compileds, compiled);
}

static void add_symm_pool(weft_symm_pool *made)
{
    add_to(&me->pools, made);
}

static weft_tensor *const *pick_tensors(void)
{
    weft_tensor **tensors = room(ARRAY * sizeof *tensors);
    weft_tensor *same = pick_tensor();
    bool alike = one_in(2);
    for (int i = 0; i < ARRAY; i++)
        tensors[i] = alike ? same : pick_tensor();
    return one_in(12) ? NULL : tensors;
}

static weft_group *const *pick_groups(void)
{
    weft_group **groups = room(ARRAY * sizeof *groups);
    for (int i = 0; i < ARRAY; i++)
        groups[i] = pick_group();
    return one_in(12) ? NULL : groups;
}

static weft_module *const *pick_modules(void)
{
    weft_module **modules = room(ARRAY * sizeof *modules);
    for (int i = 0; i < ARRAY; i++)
        modules[i] = pick_module();
    return one_in(12) ? NULL : modules;
}

static weft_mesh *const *pick_meshes(void)
{
    weft_mesh **meshes = room(ARRAY * sizeof *meshes);
    for (int i = 0; i < ARRAY; i++)
        meshes[i] = pick_mesh();
    return one_in(12) ? NULL : meshes;
}

/* ---- structs ---- */

static weft_bytes pick_string(void)
{
    static const size_t lengths[] = {0, 1, 5, 4096, sizeof ground, SIZE_MAX, SIZE_MAX / 2};
    weft_bytes bytes = {one_in(9) ? NULL : ground, PICK(lengths)};
    return bytes;
}

/* Lengths are true, or so large that they are refused before anything is read. */
static const weft_bytes *pick_strings(void)
{
    weft_bytes *list = room(ARRAY * sizeof *list);
    for (int i = 0; i < ARRAY; i++)
        list[i] = one_in(9) ? pick_string() : (weft_bytes){ground, (size_t)pick_choice(40)};
    return one_in(2) ? NULL : list;
}

static const weft_rank_list *pick_rank_lists(void)
{
    weft_rank_list *lists = room(ARRAY * sizeof *lists);
    int *ints = room(ARRAY * sizeof *ints);
    for (int i = 0; i < ARRAY; i++) {
        ints[i] = one_in(9) ? pick_int() : i;
        lists[i] = (weft_rank_list){one_in(20) ? NULL : ints, one_in(3) ? pick_count() : 1};
    }
    return one_in(12) ? NULL : lists;
}

static weft_ranks pick_ranks(void)
{
    switch (pick_choice(8)) {
    case 0:
        return weft_ranks_list(pick_ints(), pick_count());
    case 1:
        return weft_ranks_rows(pick_rank_lists(), pick_count());
    case 2:
        return weft_ranks_mesh(pick_mesh());
    case 3:
        return weft_ranks_mesh_dim(pick_mesh(), pick_int());
    case 4:
        return weft_ranks_name(pick_text());
    case 5:
        return (weft_ranks){.kind = (weft_ranks_kind)pick_int()};
    default:
        return weft_ranks_group(pick_group());
    }
}

static const weft_group_opts *pick_group_opts(void)
{
    weft_group_opts *opts = room(sizeof *opts);
    *opts = (weft_group_opts)WEFT_GROUP_OPTS_INIT;
    opts->name = one_in(3) ? pick_text() : NULL;
    opts->timeout_ms = one_in(3) ? LIMIT_MS : one_in(3) ? -9 : opts->timeout_ms;
    if (one_in(8)) /* of an older header, or never set */
        opts->size = (size_t)pick_choice((int)sizeof *opts + 1);
    return one_in(3) ? NULL : opts;
}

/* Hooks meet any gradient: they leave it, double it, put something else there, or fail. */
static weft_status leave_gradient(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held, (void)user;
    return WEFT_OK;
}

static weft_status double_gradient(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    if (grad)
        *grad = weft_add(*grad, *grad);
    return WEFT_OK;
}

static weft_status spoil_gradient(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    if (grad)
        *grad = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(7, 1));
    return grad ? WEFT_OK : WEFT_ERR_STATE;
}

static weft_hook pick_hook(void)
{
    static const weft_hook hooks[] = {leave_gradient, double_gradient, spoil_gradient, NULL};
    return PICK(hooks);
}

static bool go_on(void *argument)
{
    (void)argument;
    return false;
}

static weft_interrupt pick_interrupt(void)
{
    return pick_choice(2) ? go_on : NULL;
}

static void hear_of_end(void *argument, weft_status status)
{
    (void)argument;
    (void)status;
}

static weft_work_done pick_work_done(void)
{
    return pick_choice(4) ? hear_of_end : NULL;
}

static weft_held pick_held(void)
{
    weft_held held = {pick_tensors(), (size_t)pick_choice(4)};
    return held;
}

/* Modules hand on what they get, work on it, or fail. */
static weft_tensor *hand_on(weft_module *self, weft_tensor *x, void *user)
{
    (void)self, (void)user;
    return x;
}

static weft_tensor *scale(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    return weft_mul(x, weft_module_param(self, "key"));
}

static weft_tensor *give_none(weft_module *self, weft_tensor *x, void *user)
{
    (void)self, (void)x, (void)user;
    return NULL;
}

static weft_forward pick_forward(void)
{
    static const weft_forward forwards[] = {hand_on, scale, give_none, NULL};
    return PICK(forwards);
}

static weft_status turn_list(weft_module *self, weft_tensor *const *in, int ins, weft_tensor **out,
                             int outs, void *user)
{
    (void)self, (void)user;
    for (int i = 0; i < outs; i++)
        out[i] = ins ? weft_neg(in[i % ins]) : NULL;
    return ins == 3 ? WEFT_ERR_STATE : WEFT_OK;
}

static weft_forward_list pick_forward_list(void)
{
    return one_in(8) ? NULL : turn_list;
}

static weft_status leave_event(weft_hook_event *event)
{
    (void)event;
    return WEFT_OK;
}

static weft_status change_event(weft_hook_event *event)
{
    if (event->ins && one_in(2))
        event->in[0] = one_in(4) ? NULL : weft_neg(event->in[0]);
    if (event->outs && one_in(2))
        event->out[0] = one_in(4) ? pick_tensor() : weft_neg(event->out[0]);
    return one_in(5) ? WEFT_ERR_CANCELLED : WEFT_OK;
}

static weft_status clear_hooks(weft_hook_event *event)
{
    for (int64_t i = 1; i < 9; i++)
        (void)weft_module_hook_remove(event->module, i);
    return WEFT_OK;
}

static weft_module_hook pick_module_hook(void)
{
    static const weft_module_hook hooks[] = {leave_event, change_event, change_event, clear_hooks,
                                             NULL};
    return PICK(hooks);
}

static const weft_named *pick_named(void)
{
    static const char *const names[] = {"weight", "bias", "0.weight", "0.bias", "key"};
    weft_named *list = room(64 * sizeof *list);
    for (int i = 0; i < 64; i++) {
        snprintf(list[i].name, sizeof list[i].name, "%s", PICK(names));
        list[i].tensor = pick_tensor();
    }
    return one_in(8) ? NULL : list;
}

/* Room for a place, or one that fits now and then. */
static weft_shard_place *pick_place(void)
{
    weft_shard_place *place = room(sizeof *place);
    place->size = one_in(9) ? pick_size() : sizeof *place;
    place->full = pick_shape();
    for (int i = 0; i < WEFT_MAX_DIMS; i++)
        place->offset[i] = one_in(4) ? pick_long() : 0;
    place->stripe_dim = pick_int();
    place->stripes = pick_int();
    place->mesh = pick_mesh();
    return one_in(9) ? NULL : place;
}

static const weft_replicate_opts *pick_replicate_opts(void)
{
    weft_replicate_opts *opts = room(sizeof *opts);
    *opts = (weft_replicate_opts){one_in(8) ? 3 : sizeof *opts, pick_size(),
                                  (weft_start)pick_choice(3), one_in(2)};
    return one_in(3) ? NULL : opts;
}

static const weft_shard_opts *pick_shard_opts(void)
{
    weft_shard_opts *opts = room(sizeof *opts);
    *opts = (weft_shard_opts){one_in(8) ? 3 : sizeof *opts, (weft_start)pick_choice(3), one_in(2),
                              one_in(4) ? pick_int() : 1, one_in(2)};
    return one_in(3) ? NULL : opts;
}

static const weft_parallelize_opts *pick_parallelize_opts(void)
{
    weft_parallelize_opts *opts = room(sizeof *opts);
    *opts = (weft_parallelize_opts){one_in(8) ? 3 : sizeof *opts, (weft_start)pick_choice(3),
                                    one_in(4) ? pick_int() : 1};
    return one_in(3) ? NULL : opts;
}

static const weft_pipeline_opts *pick_pipeline_opts(void)
{
    weft_pipeline_opts *opts = room(sizeof *opts);
    *opts = (weft_pipeline_opts){one_in(8) ? 3 : sizeof *opts, one_in(3) ? pick_int() : 2};
    return one_in(3) ? NULL : opts;
}

static weft_tensor *mean_of(weft_tensor *y, weft_tensor *labels, void *user)
{
    (void)labels, (void)user;
    return one_in(9) ? y : weft_mean(y, NULL, 0, false);
}

static weft_pipeline_loss pick_loss(void)
{
    return one_in(9) ? NULL : mean_of;
}

static const weft_plan *pick_plan(void)
{
    static const char *const layers[] = {"", "0", "1", "*", "*.*", "nobody", NULL};
    weft_plan *plan = room(64 * sizeof *plan);
    for (int i = 0; i < 64; i++)
        plan[i] = (weft_plan){PICK(layers), (weft_plan_style)pick_choice(8),
                              one_in(2) ? WEFT_FLOW_USUAL : (weft_flow)pick_choice(7),
                              one_in(2) ? WEFT_FLOW_USUAL : (weft_flow)pick_choice(7)};
    return one_in(8) ? NULL : plan;
}

static weft_loss_scale *pick_loss_scale(void)
{
    weft_loss_scale *scale = room(sizeof *scale);
    *scale = (weft_loss_scale)WEFT_LOSS_SCALE;
    if (one_in(3))
        scale->scale = pick_double();
    if (one_in(3))
        scale->growth = pick_double();
    return one_in(5) ? NULL : scale;
}

static const weft_backward_opts *pick_backward_opts(void)
{
    weft_backward_opts *opts = room(sizeof *opts);
    *opts = (weft_backward_opts)WEFT_BACKWARD_OPTS;
    opts->seeds = one_in(3) ? pick_tensors() : NULL;
    opts->retain_graph = pick_bool();
    opts->create_graph = one_in(4);
    opts->allow_unused = pick_bool();
    if (one_in(8))
        opts->size = (size_t)pick_choice((int)sizeof *opts + 1);
    return one_in(3) ? NULL : opts;
}

static const weft_p2p_op *pick_pair_ops(void)
{
    weft_p2p_op *ops = room(ARRAY * sizeof *ops);
    weft_group *group = pick_group();
    for (int i = 0; i < ARRAY; i++)
        ops[i] =
            (weft_p2p_op){(weft_p2p_kind)(one_in(20) ? pick_int() : pick_choice(2)), pick_tensor(),
                          pick_int(), pick_int(), one_in(30) ? pick_group() : group};
    return one_in(12) ? NULL : ops;
}

#endif

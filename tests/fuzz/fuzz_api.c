/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls every public function with arguments that no sane program would give: NULL, negative,
 * enormous, of the wrong dtype or device, of groups that are fake, stand-ins, revoked, destroyed or
 * finished, objects that an earlier call made.  Nothing is checked but that the library survives
 * it: run it with AddressSanitizer and UndefinedBehaviorSanitizer.
 *
 *     test_fuzz_api [--seed N] [--calls N]
 *
 * The calls come from gen-api.  A round makes some objects in a scope and CALLS_A_ROUND calls; most
 * rounds are those of one rank, some of three, which draw the same numbers and so make the same
 * calls.  What a caller must keep to is kept: arrays are as long as their counts say, waits have
 * limits, tensors that are too large to walk over are let go.
 */
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
        compileds, streams, events, replays;
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
POOL_OF(stream, streams, weft_stream)
POOL_OF(event, events, weft_event)
POOL_OF(replay, replays, weft_replay)

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

static const weft_sgd_opts *pick_sgd_opts(void)
{
    weft_sgd_opts *opts = room(sizeof *opts);
    *opts = (weft_sgd_opts){one_in(8) ? 3 : sizeof *opts, pick_double(), pick_double()};
    return one_in(3) ? NULL : opts;
}

static const weft_adamw_opts *pick_adamw_opts(void)
{
    weft_adamw_opts *opts = room(sizeof *opts);
    *opts = (weft_adamw_opts)WEFT_ADAMW_OPTS_INIT;
    if (one_in(4))
        opts->beta1 = pick_double();
    if (one_in(4))
        opts->decay = pick_double();
    return one_in(3) ? NULL : opts;
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

/* ---- calls by hand ---- */

/* A rank is in its job already; only options that are refused. */
static void custom_weft_init(void)
{
    weft_init_opts opts = WEFT_INIT_OPTS;
    if (one_in(2))
        opts.size = (size_t)pick_choice(8);
    else
        opts.timeout_ms = -9 - pick_choice(9);
    add_group(weft_init(&opts));
}

/* The rank's own world is finished at the end of its round. */
static void custom_weft_finish(void)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 1 + pick_choice(4));
    weft_group *group = weft_fake_init(&opts);
    add_group(group);
    (void)weft_finish(one_in(9) ? NULL : group);
    (void)weft_finish(weft_group_stand_in("finished", 2));
}

static void custom_weft_fake_init(void)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(pick_int(), one_in(3) ? pick_count() : pick_choice(9));
    opts.error_on_collective = one_in(6);
    opts.store = pick_store();
    if (one_in(8))
        opts.size = (size_t)pick_choice((int)sizeof opts + 1);
    add_group(weft_fake_init(one_in(9) ? NULL : &opts));
}

/* Whatever is refused before a process is started. */
static void custom_weft_launch(void)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = one_in(2) ? -pick_choice(5) : INT_MAX - pick_choice(5);
    opts.size = one_in(4) ? pick_size() : opts.size;
    (void)weft_launch(one_in(9) ? NULL : &opts);
}

/* Handles are given back only by who got them. */
static void custom_weft_release(void)
{
    weft_release(weft_clone(pick_tensor()));
    weft_release(weft_group_stand_in(pick_text(), pick_int()));
    weft_release(NULL);
}

static void custom_weft_keep(void)
{
    weft_release(weft_keep(weft_clone(pick_tensor())));
    weft_release(weft_keep(weft_group_stand_in(pick_text(), pick_int())));
    (void)weft_keep(NULL);
}

static void custom_weft_scope_open(void)
{
    if (weft_scope_open() < 0)
        return;
    (void)weft_clone(pick_tensor());
    weft_tensor *kept = weft_keep(weft_clone(pick_tensor()));
    (void)weft_scope_close();
    weft_release(kept);
}

static weft_status run_own(weft_tensor *out, const weft_value *in, void *user)
{
    (void)user;
    return weft_copy(out, in[0].tensor);
}

static weft_status gradient_of_own(weft_tensor **grads, weft_tensor *g, weft_tensor *out,
                                   const weft_value *in, void *user)
{
    (void)out, (void)in, (void)user;
    grads[0] = g;
    return WEFT_OK;
}

/* Operations stay for ever: few names. */
static weft_custom *pick_custom(void)
{
    static const char *const names[] = {"fuzz_a", "fuzz_b", "sin", "no name", NULL};
    static const char *const params[] = {"x:t", "x:t y:o n:n i:i", "x:n", "", "x", NULL};
    weft_custom_opts opts = {.size = sizeof opts, .run = run_own, .gradient = gradient_of_own};
    opts.name = PICK(names);
    opts.params = PICK(params);
    opts.save = (unsigned)pick_int();
    if (one_in(2))
        (void)weft_custom_new(one_in(8) ? NULL : &opts);
    return weft_custom_find(opts.name);
}

static void custom_weft_custom_new(void)
{
    (void)pick_custom();
}

static void custom_weft_custom_find(void)
{
    (void)weft_custom_find(pick_text());
}

static void custom_weft_custom_call(void)
{
    weft_value in[4] = {{pick_tensor(), 0, 0},
                        {pick_tensor(), 0, 0},
                        {NULL, pick_double(), 0},
                        {NULL, 0, pick_long()}};
    (void)add_tensor(weft_custom_call(pick_custom(), one_in(8) ? NULL : in));
}

/* Gradients of leaves that hold their graph hold the leaf too, until they are dropped by hand. */
static void custom_weft_backward_all(void)
{
    weft_tensor *const *outputs = pick_tensors();
    const weft_backward_opts *picked = pick_backward_opts();
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    if (picked)
        opts = *picked;
    opts.create_graph = false;
    (void)weft_backward_all(outputs, (size_t)pick_choice(65), picked ? &opts : NULL);
}

static void custom_weft_grad(void)
{
    weft_tensor *grad = weft_grad(pick_tensor()); /* its leaf's */
    (void)(grad && weft_tensor_numel(grad));
}

static void custom_weft_grad_block_enter(void)
{
    weft_grad_block block = weft_grad_block_enter((weft_grad_mode)pick_choice(4));
    (void)weft_clone(pick_tensor());
    (void)weft_backward(pick_tensor());
    weft_grad_block_leave(&block);
}

static void custom_weft_grad_block_leave(void)
{
    weft_grad_block_leave(NULL);
    custom_weft_grad_block_enter();
}

/* Sizes of layers: memory for millions of parameters is not the point. */
static int64_t pick_width(void)
{
    static const int64_t odd[] = {0, -1, INT64_MIN, INT64_MAX, 1LL << 61};
    return one_in(6) ? PICK(odd) : pick_choice(8) + 1;
}

static void custom_weft_nn_linear(void)
{
    add_module(weft_nn_linear(pick_width(), pick_width()));
}

static void custom_weft_nn_linear_plain(void)
{
    add_module(weft_nn_linear_plain(pick_width(), pick_width()));
}

static void custom_weft_nn_embedding(void)
{
    add_module(weft_nn_embedding(pick_width(), pick_width()));
}

static void custom_weft_nn_layer_norm(void)
{
    add_module(weft_nn_layer_norm(pick_width()));
}

static void custom_weft_nn_attention(void)
{
    add_module(weft_nn_attention(pick_width(), pick_choice(5), pick_double()));
}

static void custom_weft_nn_op(void)
{
    add_module(weft_nn_op(one_in(8) ? NULL : one_in(2) ? weft_relu : weft_contiguous));
}

/* A module in two places of another, and that one in two of a third ... are more calls than there
 * is time for. */
static weft_module *pick_small_module(void)
{
    weft_module *module = pick_module();
    return module && weft_module_generation(module) < 20 ? module : weft_nn_op(weft_neg);
}

static void custom_weft_module_add(void)
{
    weft_module *to = pick_module();
    if (!to || weft_module_generation(to) < 20)
        (void)weft_module_add(to, pick_text(), one_in(8) ? NULL : pick_small_module());
}

static void custom_weft_nn_sequential_of(void)
{
    weft_module *list[] = {weft_nn_op(weft_relu), pick_small_module(), pick_module()};
    if (list[2] && weft_module_generation(list[2]) >= 20)
        list[2] = NULL;
    add_module(weft_nn_sequential_of(one_in(8) ? NULL : list, pick_choice(4)));
}

static void let_go(void *user)
{
    (void)user;
}

static void custom_weft_module_own_user(void)
{
    (void)weft_module_own_user(pick_module(), one_in(4) ? NULL : let_go);
}

/* What these return is borrowed from the module. */
static void custom_weft_module_param(void)
{
    (void)weft_clone(weft_module_param(pick_module(), one_in(2) ? "weight" : pick_text()));
}

static void custom_weft_module_buffer(void)
{
    (void)weft_clone(weft_module_buffer(pick_module(), pick_text()));
}

static void custom_weft_module_child(void)
{
    (void)weft_module_generation(weft_module_child(pick_module(), one_in(2) ? "0" : pick_text()));
}

static void custom_weft_scope_close(void)
{
    custom_weft_scope_open();
}

static void custom_weft_limit_open(void)
{
    if (me->limits_open < 9 && weft_limit_open(one_in(2) ? 1 + pick_choice(LIMIT_MS) : -9) >= 0)
        me->limits_open++;
}

static void custom_weft_limit_close(void)
{
    if (me->limits_open && weft_limit_close() >= 0)
        me->limits_open--;
}

static void custom_weft_group_set_timeout(void)
{
    (void)weft_group_set_timeout(pick_group(), one_in(3) ? -9 : 1 + pick_choice(LIMIT_MS));
}

static void custom_weft_store_set_timeout(void)
{
    (void)weft_store_set_timeout(pick_store(), one_in(3) ? -9 : 1 + pick_choice(3));
}

static void custom_weft_coalesce_open(void)
{
    weft_group *group = pick_group();
    if (me->collections < 64 && weft_coalesce_open(group) >= 0)
        me->collecting[me->collections++] = group;
}

static void custom_weft_mesh_enter(void)
{
    if (me->meshes_entered < 5 && weft_mesh_enter(pick_mesh()) >= 0)
        me->meshes_entered++;
}

static void custom_weft_mesh_leave(void)
{
    if (weft_mesh_leave() >= 0)
        me->meshes_entered--;
}

/* Shapes whose ranks are all there. */
static weft_shape pick_mesh_shape(void)
{
    weft_shape shape = pick_shape();
    int64_t count = 1;
    for (int i = 0; i < shape.ndim && i < WEFT_MAX_DIMS; i++)
        count = shape.dim[i] > 0 && shape.dim[i] <= ARRAY && count <= ARRAY ? count * shape.dim[i]
                                                                            : count;
    return count > ARRAY ? WEFT_SHAPE(2, 2) : shape;
}

static void custom_weft_mesh_new(void)
{
    add_mesh(
        weft_mesh_new(pick_group(), pick_device(), pick_mesh_shape(), pick_ints(), pick_text()));
}

static void custom_weft_mesh_from_groups(void)
{
    add_mesh(weft_mesh_from_groups(pick_groups(), pick_count(), pick_device(), pick_mesh_shape(),
                                   pick_ints(), pick_text()));
}

static void nothing(void *argument)
{
    (void)argument;
}

/* A shape that the ground holds, or none that anything could. */
static weft_shape pick_ground_shape(weft_dtype dtype)
{
    weft_shape shape = pick_shape();
    size_t count = weft_dtype_size(dtype);
    for (int i = 0; i < shape.ndim && i < WEFT_MAX_DIMS; i++)
        if (shape.dim[i] > 64)
            shape.dim[i] = INT64_MAX;
        else if (shape.dim[i] > 0)
            count *= (size_t)shape.dim[i];
    return count > sizeof ground ? WEFT_SHAPE(3) : shape;
}

static void custom_weft_tensor_wrap(void)
{
    weft_dtype dtype = pick_dtype();
    add_tensor(weft_tensor_wrap(dtype, pick_device(), pick_ground_shape(dtype),
                                one_in(9) ? NULL : ground + (one_in(9) ? 1 : 0),
                                one_in(2) ? nothing : NULL, NULL));
}

static void custom_weft_tensor_from(void)
{
    weft_dtype dtype = pick_dtype();
    add_tensor(weft_tensor_from(dtype, pick_ground_shape(dtype), one_in(9) ? NULL : ground));
}

/* What is captured and compiled: a few calls, of which some cannot be captured. */
static weft_status fuzz_step(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                             void *user)
{
    (void)user; /* gone when the function is called again */
    for (int i = 0; i < outs; i++) {
        weft_tensor *x = ins ? in[i % ins] : pick_tensor();
        unsigned how = (unsigned)pick_choice(48);
        if (how == 1)
            (void)weft_item(x, 0);
        if (how % 16 == 2)
            (void)weft_fill(x, 2);
        out[i] = how % 3 == 0 ? weft_sin(x) : how % 3 == 1 ? x : weft_reshape(x, WEFT_SHAPE(-1));
    }
    return WEFT_OK;
}

static const weft_compile_opts *pick_compile_opts(void)
{
    static const char *const backends[] = {NULL, "eager", "aot_eager", "none", ""};
    static _Thread_local weft_compile_opts opts;
    opts = (weft_compile_opts)WEFT_COMPILE_OPTS;
    opts.backend = PICK(backends);
    opts.fullgraph = pick_bool();
    opts.size += one_in(9);
    return one_in(5) ? NULL : &opts;
}

static weft_status fill_one(void *x)
{
    return weft_fill(x, 1);
}

static void custom_weft_tensor_preserve_version(void)
{
    (void)weft_tensor_preserve_version(pick_tensors(), (size_t)pick_choice(ARRAY + 1),
                                       one_in(9) ? NULL : fill_one, pick_tensor());
}

/* Not of operands that posted work may still use: these and the next change the memory of a tensor.
 */
static void custom_weft_set(void)
{
    weft_tensor *x = weft_clone(pick_tensor());
    (void)weft_set(x, pick_tensor());
    add_tensor(x);
}

static void custom_weft_resize_storage(void)
{
    weft_tensor *x = weft_clone(pick_tensor());
    (void)weft_resize_storage(x, pick_long());
    add_tensor(x);
}

static void custom_weft_storage_resize(void)
{
    weft_tensor *x = weft_clone(pick_tensor());
    (void)weft_storage_resize(weft_tensor_storage(x), pick_size());
    add_tensor(x);
}

/* Files only where none can be made. */
static void custom_weft_store_file(void)
{
    static const char *const paths[] = {"", "/nowhere/at/all", "/proc/self/nothing", "/"};
    add_store(weft_store_file(one_in(9) ? NULL : PICK(paths), pick_int()));
}

static void custom_weft_store_tcp_serve(void)
{
    static const char *const places[] = {"0.0.0.0", "", "::", "no.such.host.invalid."};
    add_store(weft_store_tcp_serve(one_in(2) ? PICK(places) : "127.0.0.1", one_in(2) ? -1 : 65536,
                                   pick_text()));
}

static void custom_weft_store_tcp_connect(void)
{
    add_store(
        weft_store_tcp_connect("127.0.0.1", one_in(2) ? pick_int() | 1 << 20 : -1, pick_text(), 1));
}

static void custom_weft_store_unix_serve(void)
{
    if (one_in(20))
        add_store(weft_store_unix_serve(NULL));
    else if (one_in(20))
        add_store(weft_store_unix_serve(pick_text()));
}

static void custom_weft_store_unix_connect(void)
{
    add_store(weft_store_unix_connect(pick_text(), 1));
}

/* Values that a call gave are given back. */
static void custom_weft_store_get(void)
{
    weft_store_value value = {0};
    (void)weft_store_get(pick_store(), pick_text(), pick_timeout(), one_in(12) ? NULL : &value);
    weft_store_value_clear(&value);
}

static void custom_weft_store_queue_pop(void)
{
    weft_store_value value = {0};
    (void)weft_store_queue_pop(pick_store(), pick_text(), pick_timeout(),
                               one_in(12) ? NULL : &value);
    weft_store_value_clear(&value);
}

static void custom_weft_store_compare_set(void)
{
    weft_store_value value = {0};
    bool stored = false;
    (void)weft_store_compare_set(pick_store(), pick_text(), pick_bytes(), pick_bytes_count(),
                                 pick_bytes(), pick_bytes_count(), one_in(6) ? NULL : &stored,
                                 one_in(6) ? NULL : &value);
    weft_store_value_clear(&value);
}

static void custom_weft_store_multi_get(void)
{
    weft_store_value *values = room(ARRAY * sizeof *values);
    (void)weft_store_multi_get(pick_store(), (size_t)pick_choice(ARRAY + 1), pick_texts(),
                               pick_timeout(), one_in(12) ? NULL : values);
    for (int i = 0; i < ARRAY; i++)
        weft_store_value_clear(&values[i]);
}

static void custom_weft_store_value_clear(void)
{
    weft_store_value_clear(NULL);
}

static void custom_weft_ranks_expand(void)
{
    weft_expansion expansion = {{0}, NULL, 0, 0};
    (void)weft_ranks_expand(pick_group(), pick_ranks(), pick_text(),
                            one_in(12) ? NULL : &expansion);
    weft_expansion_clear(&expansion);
}

static void custom_weft_expansion_clear(void)
{
    weft_expansion_clear(NULL);
}

static void custom_weft_symm_detect_connectivity(void)
{
    weft_connectivity found = {0};
    if (weft_symm_detect_connectivity(pick_group(), pick_device(), pick_text(),
                                      one_in(12) ? NULL : &found) >= 0)
        weft_symm_free_connectivity(&found);
}

static void custom_weft_symm_free_connectivity(void)
{
    weft_symm_free_connectivity(NULL);
}

/* For all of the process: set, and set back. */
static void custom_weft_symm_set_signal_pad_size(void)
{
    size_t before = weft_symm_signal_pad_size();
    if (weft_symm_set_signal_pad_size(pick_size()) < 0)
        return;
    (void)weft_symm_empty(pick_dtype(), pick_device(), WEFT_SHAPE(3));
    (void)weft_symm_set_signal_pad_size(before);
}

static void custom_weft_job_list(void)
{
    if (!one_in(20))
        return; /* reads all of /proc */
    weft_job *jobs[4];
    (void)weft_job_list(jobs, 4);
    (void)weft_job_list(NULL, pick_choice(2) - 1);
}

static void custom_weft_job_open(void)
{
    static const int odd[] = {-1, 0, INT_MAX, INT_MIN, 1};
    add_job(weft_job_open(one_in(2) ? (int)getpid() : PICK(odd)));
}

static void custom_weft_dlpack_export(void)
{
    weft_dlpack *made = weft_dlpack_export(pick_tensor());
    if (made && one_in(2))
        add_tensor(weft_dlpack_import(made));
    else if (made)
        made->deleter(made);
}

static void custom_weft_dlpack_export_versioned(void)
{
    weft_dlpack_versioned *made = weft_dlpack_export_versioned(pick_tensor());
    if (made && one_in(2))
        add_tensor(weft_dlpack_import_versioned(made));
    else if (made)
        made->deleter(made);
}

/* Descriptions by somebody else; what they name lies on the ground, if it is not impossible. */
static weft_dlpack_tensor pick_description(void)
{
    weft_dlpack_tensor tensor = {.data = one_in(9) ? NULL : ground,
                                 .device_type = one_in(5) ? pick_int() : 1,
                                 .device_id = one_in(5) ? pick_int() : 0,
                                 .ndim = one_in(5) ? pick_int() : pick_choice(3),
                                 .code = (uint8_t)(one_in(3) ? pick_int() : pick_choice(7)),
                                 .bits = (uint8_t)(one_in(3) ? pick_int() : 8 << pick_choice(4)),
                                 .lanes = (uint16_t)(one_in(5) ? pick_int() : 1),
                                 .byte_offset = one_in(5) ? (uint64_t)pick_long() : 0};
    int64_t *shape = room(ARRAY * sizeof *shape), *strides = room(ARRAY * sizeof *strides);
    for (int i = 0; i < ARRAY; i++) {
        shape[i] = one_in(5) ? pick_long() : pick_choice(4);
        strides[i] = one_in(5) ? pick_long() : 1;
    }
    tensor.shape = one_in(12) ? NULL : shape;
    tensor.strides = one_in(2) ? NULL : strides;
    return tensor;
}

/* They may name memory that is not there, so nothing is done with the result but to let it go. */
static void custom_weft_dlpack_import(void)
{
    weft_dlpack *description = room(sizeof *description);
    description->tensor = pick_description();
    weft_release(weft_dlpack_import(one_in(12) ? NULL : description));
}

static void custom_weft_dlpack_import_versioned(void)
{
    weft_dlpack_versioned *description = room(sizeof *description);
    description->tensor = pick_description();
    description->major = one_in(4) ? (uint32_t)pick_int() : 1;
    description->flags = one_in(4) ? (uint64_t)pick_long() : 0;
    weft_release(weft_dlpack_import_versioned(one_in(12) ? NULL : description));
}

#include "api_calls.inc"

enum { ROWS = sizeof fuzz_rows / sizeof *fuzz_rows };

/* ---- rounds ---- */

static void make_tensors(void)
{
    for (int i = 0; i < 6; i++)
        add_tensor(
            weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1 + pick_choice(4), pick_choice(4)), i));
    add_tensor(weft_ones((weft_dtype)pick_choice(14), WEFT_CPU, WEFT_SHAPE(6)));
    add_tensor(weft_ones(WEFT_U32, WEFT_CPU, WEFT_SHAPE(5)));
    add_tensor(weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(4, 3)));
    add_tensor(weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE(1LL << 62)));
    add_tensor(weft_transpose(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4)), 0, 1));
    add_tensor(
        weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20000))); /* longer than is copied at once */
    add_tensor(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(12)));
    add_tensor(weft_symm_empty(WEFT_U32, WEFT_CPU, WEFT_SHAPE(8)));
    add_storage(weft_tensor_storage(pick_tensor()));
}

static void make_groups(weft_group *world)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(1, 2 + pick_choice(3)), mute = opts;
    weft_group *fake = weft_fake_init(&opts);
    mute.error_on_collective = true;
    for (int i = 0; i < 3; i++)
        add_group(world);
    for (int i = 0; i < 3; i++)
        add_group(fake);
    add_group(weft_fake_init(&mute));
    add_group(weft_group_stand_in("0", 1 + pick_choice(4)));
    weft_group *doomed = weft_group_new(fake, (const int[]){0, 1}, 2, NULL);
    weft_group_revoke(doomed);
    add_group(doomed);
    weft_group *gone = weft_group_new(fake, (const int[]){1, 0}, 2, "gone");
    weft_group_destroy(gone);
    add_group(gone);
    add_mesh(weft_mesh_init(fake, WEFT_CPU, WEFT_SHAPE(weft_size(fake)), "dp"));
    add_symm(weft_symm_rendezvous(me->tensors.item[me->tensors.used - 1], fake));
    add_symm(weft_symm_rendezvous(me->tensors.item[me->tensors.used - 2], world));
}

static void make_others(void)
{
    add_store(weft_store_local());
    add_store(weft_store_fake());
    add_symm_pool(weft_symm_pool_new(WEFT_CPU, 4096));
    add_blobs(weft_all_gather_object((weft_bytes){"ab", 2}, me->groups.item[3]));
    add_work(weft_barrier_start(me->groups.item[3]));
    add_module(weft_nn_sequential(weft_nn_linear(3, 3), weft_nn_dropout(0.5)));
    add_module(weft_nn_linear_plain(2, 3));
    add_optim(weft_optim_adamw(me->modules.item[0], 1e-3));
}

static void put_all_back(void)
{
    while (me->meshes_entered > 0 && weft_mesh_leave() >= 0)
        me->meshes_entered--;
    while (me->limits_open > 0 && weft_limit_close() >= 0)
        me->limits_open--;
    while (me->collections)
        (void)weft_coalesce_close(me->collecting[--me->collections]);
    weft_set_premul(1);
}

static int rank_of_round(void *unused)
{
    (void)unused;
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = LIMIT_MS;
    weft_group *world = weft_init(&opts);
    if (!world)
        return 1;
    me = &states[weft_rank(world)];
    *me = (rank_state){.random = seed * 1000003 + round_number};
    weft_scope_open();
    weft_limit_open(LIMIT_MS);
    make_tensors();
    make_groups(world);
    make_others();
    for (int i = 0; i < CALLS_A_ROUND; i++) {
        const fuzz_row *row = &fuzz_rows[draw() % ROWS];
        me->at = row->name;
        weft_clear_error();
        row->call();
        give_back();
    }
    me->at = "the end of a round";
    put_all_back();
    weft_limit_close();
    weft_scope_close();
    weft_clear_error();
    (void)weft_finish(world);
    return 0;
}

static void tell_where(void)
{
    char text[400];
    int used = snprintf(text, sizeof text, "test_fuzz_api --seed %llu: round %llu",
                        (unsigned long long)seed, round_number);
    for (int i = 0; i < 4 && used < (int)sizeof text; i++)
        if (states[i].at)
            used += snprintf(text + used, sizeof text - (size_t)used, ", rank %d in %s", i,
                             states[i].at);
    used += snprintf(text + used, sizeof text - (size_t)used, "\n");
    if (write(2, text, (size_t)used) < 0)
        return;
}

static void on_signal(int number)
{
    tell_where();
    signal(number, SIG_DFL);
    raise(number == SIGALRM ? SIGABRT : number);
}

/* With AddressSanitizer: large requests fail instead of ending the program. */
__attribute__((used, visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=512:detect_leaks=1";
}

__attribute__((used, visibility("default"))) const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    return "print_stacktrace=1:abort_on_error=1";
}

__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void prepare(void)
{
    static const int deadly[] = {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(tell_where);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        signal(deadly[i], on_signal);
    if (!__sanitizer_set_death_callback) { /* its shadow needs more */
        struct rlimit limit = {4LL << 30, 4LL << 30};
        setrlimit(RLIMIT_AS, &limit);
    }
    setenv("WEFT_DEBUG", "NONE", 1);
    nowhere = fopen("/dev/null", "w");
    for (size_t i = 0; i < sizeof ground; i++)
        ground[i] = (unsigned char)(i % 3);
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--calls"))
            calls = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--round"))
            round_number = strtoull(argv[i + 1], NULL, 0);
    prepare();
    int failed = 0;
    for (; !failed && calls_made < calls; round_number++) {
        int ranks = round_number % 8 == 7 ? 3 : 1;
        alarm(STUCK_S);
        memset(states, 0, sizeof states);
        failed = weft_spawn(ranks, rank_of_round, NULL);
        calls_made += (unsigned)(ranks * CALLS_A_ROUND);
    }
    fclose(nowhere);
    printf("test_fuzz_api - 1 %s: %llu calls of %d functions, seed %llu\n",
           failed ? "fail" : "pass", calls_made, (int)ROWS, (unsigned long long)seed);
    return failed;
}

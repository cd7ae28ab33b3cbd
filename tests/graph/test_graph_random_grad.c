/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/capture/joint.c, graph/pass/cut.c, graph/run/backward.c, graph/run/frame_back.c */
/*
 * Random functions with gradients, in f32 and f64: modules that share weights, views, writes in
 * place, hidden writes, freed storages, random draws, collectives, hooks, entered and opaque ones.
 * By itself, in frames and with a compiled backward, by all backends, each gives the same bits of
 * results, gradients and inputs, the same versions and sizes, adds to its leaves in the same order,
 * and shows its opaque hooks the same gradients.  A function that fails is cut down and printed;
 * `--seed N` runs it alone.  And: every allocation fails once.
 */
#include "draw.h"
#include "fault.h"
#include "graph_pattern.h"
#include "harness_cache.h"
#include "sanitized.h"

#include "graph/emit/emit.h"
#include "tensor/object/tensor.h"

enum { LINES = 10, LEAVES = 3, REGISTERS = 40, LOG = 64 };

typedef enum deed {
    SIN,
    EXP,
    MUL,
    ADD,
    MATMUL,
    TRANSPOSE,
    ROWS,
    RELU,
    SOFTMAX,
    SUM,
    CLONE,
    SCALE_INTO,
    HOOK,
    QUIET,
    HIDE,
    REFILL,
    GELU,
    NORM,
    DRAW,
    ALL_REDUCE,
    GATHER,
    MODULE,
    OPAQUE,
    DEEDS
} deed;
static const char *const names[] = {
    "sin",     "exp",  "mul",   "add",        "matmul", "transpose", "rows",  "relu",
    "softmax", "sum",  "clone", "scale_into", "hook",   "quiet",     "hide",  "refill",
    "gelu",    "norm", "draw",  "all_reduce", "gather", "module",    "opaque"};

typedef struct line {
    deed what;
    unsigned a, b;
} line;

typedef struct program {
    line lines[LINES];
    int count;
    weft_dtype dtype;
    weft_group *world;
    weft_tensor *buffer; /* found elsewhere: filled and freed */
    weft_module *net;    /* has one layer twice */
    bool opaque;         /* hooks of leaves are called at every run */
} program;

static weft_status triple(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    *grad = weft_add(weft_mul_scalar(*grad, 3), held[0]);
    return WEFT_OK;
}

static void note_number(int number);

/* Looks at the gradient: what it does depends on that.  It is called with real ones only. */
static weft_status judge(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    CHECK(!weft_tracing());
    weft_tensor *all = weft_sum(*grad, NULL, 0, false);
    if (!all)
        return weft_last_status();
    double sum = weft_item(all, 0);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    note_number((int)(bits >> 32 ^ bits) | 1 << 20);
    if (sum > 2)
        *grad = weft_mul(*grad, weft_tanh(held[0]));
    else if (sum > 0)
        *grad = weft_to(weft_neg(*grad), WEFT_F64, WEFT_CPU); /* comes back to its dtype */
    else if (sum < -2)
        *grad = weft_clone(held[0]);
    return WEFT_OK;
}

typedef struct filling {
    weft_tensor *to, *from;
} filling;

static weft_status fill_hidden(void *argument)
{
    filling *f = argument;
    WEFT_NO_GRAD
    {
        return weft_copy(f->to, weft_mul_scalar(f->from, 0.5));
    }
    return WEFT_OK;
}

/* The storage comes and goes, as that of a gathered parameter does. */
static weft_tensor *refill(weft_tensor *x, weft_tensor *buffer)
{
    filling f = {buffer, x};
    weft_tensor *y = NULL;
    if (!weft_i_shape_equal(weft_tensor_shape(x), weft_tensor_shape(buffer)) ||
        weft_resize_storage(buffer, 16 * weft_dtype_size(weft_tensor_dtype(buffer))) < 0)
        return NULL;
    if (weft_tensor_preserve_version(&buffer, 1, fill_hidden, &f) >= 0)
        y = weft_add(weft_clone(buffer), x);
    return weft_resize_storage(buffer, 0) < 0 ? NULL : y;
}

static weft_tensor *hooked(weft_tensor *x, bool opaque)
{
    int64_t number = weft_tensor_hook(x, opaque ? judge : triple, NULL, WEFT_HOLD(x));
    if (opaque)
        number = weft_hook_opaque(x, number);
    return number < 0 ? NULL : weft_sin(x);
}

static weft_tensor *act(const program *p, const line *l, weft_tensor *a, weft_tensor *b)
{
    filling f = {a, b};
    switch (l->what) {
    case SIN:
        return weft_sin(a);
    case EXP:
        return weft_exp(weft_mul_scalar(a, 0.1));
    case MUL:
        return weft_mul(a, b);
    case ADD:
        return weft_add(a, b);
    case MATMUL:
        return weft_matmul(a, b);
    case TRANSPOSE:
        return weft_transpose(a, 0, -1);
    case ROWS:
        return weft_narrow(a, 0, 1, 2);
    case RELU:
        return weft_relu(a);
    case SOFTMAX:
        return weft_softmax(a, -1);
    case SUM:
        return weft_sum(a, (int[]){0}, 1, true);
    case CLONE:
        return weft_clone(a);
    case SCALE_INTO:
        return weft_mul_scalar_into(a, a, 1.5) < 0 ? NULL : weft_sin(a);
    case HOOK:
    case OPAQUE:
        return hooked(a, l->what == OPAQUE);
    case QUIET:
        WEFT_NO_GRAD
        {
            return weft_cos(a);
        }
        return NULL;
    case HIDE:
        return weft_is_leaf(a) || !weft_i_shape_equal(weft_tensor_shape(a), weft_tensor_shape(b)) ||
                       weft_tensor_preserve_version(&a, 1, fill_hidden, &f) < 0
                   ? NULL
                   : weft_sin(a);
    case GELU:
        return weft_gelu(a);
    case NORM:
        return weft_layer_norm(a, 1, NULL, NULL, 1e-5);
    case DRAW:
        return weft_mul(a, weft_rand(p->dtype, WEFT_CPU, weft_tensor_shape(a)));
    case ALL_REDUCE:
        return weft_mul_scalar(weft_all_reduce(a, WEFT_SUM, p->world), 0.5);
    case GATHER:
        return weft_tensor_ndim(a) ? weft_narrow(weft_all_gather_tensor(a, 0, p->world), 0, 0,
                                                 weft_tensor_size(a, 0))
                                   : NULL;
    case MODULE:
        return weft_module_call(p->net, a);
    default:
        return refill(a, p->buffer);
    }
}

static weft_status run(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    const program *p = user;
    weft_tensor *at[REGISTERS];
    int count = ins;
    (void)outs;
    memcpy(at, in, (size_t)ins * sizeof *in);
    for (int i = 0; i < p->count; i++) {
        const line *l = &p->lines[i];
        /* Hooks are for what the function makes. */
        bool hooks = l->what == HOOK || l->what == OPAQUE;
        unsigned own = hooks && count > ins ? (unsigned)ins : 0;
        weft_tensor *a = at[own + l->a % ((unsigned)count - own)], *b = at[l->b % (unsigned)count];
        weft_tensor *made = hooks && !own ? NULL : act(p, l, a, b);
        if (weft_last_status() == WEFT_ERR_NO_MEMORY)
            return WEFT_ERR_NO_MEMORY;
        weft_clear_error(); /* what fails, fails in all ways of running it */
        if (made)
            at[count++] = made;
    }
    out[0] = at[count - 1];
    out[1] = at[count > ins + 1 ? count - 2 : 0];
    return WEFT_OK;
}

/* ---- one way of running it ---- */

typedef struct outcome {
    weft_tensor *leaf[LEAVES], *input, *out[2], *buffer, *param[2];
    weft_status status;
    int order[LOG], count; /* leaves, as they were added to, and what opaque hooks saw */
} outcome;

static outcome *logging;

static void note_number(int number)
{
    if (logging->count < LOG)
        logging->order[logging->count++] = number;
}

static weft_status note(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held;
    note_number((int)(intptr_t)user);
    return WEFT_OK;
}

static void prepare_net(outcome *o, program *p)
{
    weft_module *layer = weft_nn_linear(4, 4);
    p->net = weft_nn_sequential(layer, weft_nn_op(weft_sin), layer);
    o->param[0] = weft_module_param(layer, "weight");
    o->param[1] = weft_module_param(layer, "bias");
    CHECK(p->net && o->param[0] && o->param[1]);
}

static void prepare(outcome *o, program *p)
{
    *o = (outcome){.status = WEFT_OK};
    weft_seed(5);
    prepare_net(o, p);
    for (int i = 0; i < LEAVES; i++) {
        o->leaf[i] = weft_rand(p->dtype, WEFT_CPU, WEFT_SHAPE(4, 4));
        CHECK_OK(weft_require_grad(o->leaf[i], true));
        int64_t hook = weft_accumulated_hook(o->leaf[i], note, (void *)(intptr_t)i, WEFT_HOLD());
        CHECK(hook > 0 && (!p->opaque || weft_hook_opaque(o->leaf[i], hook) == hook));
    }
    o->input = weft_mul_scalar(o->leaf[0], 2); /* has a history */
    p->buffer = o->buffer = weft_zeros(p->dtype, WEFT_CPU, WEFT_SHAPE(4, 4));
    CHECK_OK(weft_resize_storage(o->buffer, 0));
}

static void step_once(outcome *o, program *p, weft_compiled *fast, weft_compiled *back)
{
    weft_tensor *input = weft_clone(o->input);
    weft_tensor *in[] = {o->leaf[0], o->leaf[1], o->leaf[2], input}, *loss;
    weft_seed(9);
    o->status = fast ? weft_compiled_call(fast, in, 4, o->out, 2) : run(in, 4, o->out, 2, p);
    if (o->status < 0)
        return;
    loss = weft_add(sum_of(weft_mul(o->out[0], o->out[0])), sum_of(o->out[1]));
    loss = weft_add(loss, sum_of(weft_mul(input, o->leaf[1]))); /* a second path */
    o->status = back ? weft_compiled_backward(back, &loss, 1, NULL) : weft_backward(loss);
}

/* Two steps: without gradients and with them. */
static void go(outcome *o, program *p, weft_compiled *fast, weft_compiled *back)
{
    logging = o;
    for (int step = 0; step < 2 && o->status >= 0; step++)
        step_once(o, p, fast, back);
}

/* How often a gradient was added to in place is nobody's business. */
static bool grads_differ(weft_tensor *a, weft_tensor *b)
{
    weft_tensor *x = weft_grad(a), *y = weft_grad(b);
    return x && y ? memcmp(weft_tensor_data(weft_contiguous(x)),
                           weft_tensor_data(weft_contiguous(y)), weft_tensor_bytes(x)) != 0
                  : x != y;
}

static bool differ(weft_tensor *a, weft_tensor *b)
{
    if (weft_tensor_version(a) != weft_tensor_version(b) || a->storage->bytes != b->storage->bytes)
        return true;
    return a->storage->bytes &&
           (!weft_i_shape_equal(weft_tensor_shape(a), weft_tensor_shape(b)) ||
            memcmp(weft_tensor_data(weft_contiguous(weft_detach(a))),
                   weft_tensor_data(weft_contiguous(weft_detach(b))), weft_tensor_bytes(a)) != 0);
}

static const char *compare(const outcome *a, const outcome *b, bool order)
{
    if ((a->status < 0) != (b->status < 0))
        return b->status < 0 ? weft_last_error() : "fails by itself only";
    if (a->status < 0)
        return NULL;
    for (int i = 0; i < LEAVES; i++)
        if (differ(a->leaf[i], b->leaf[i]))
            return "a leaf";
        else if (grads_differ(a->leaf[i], b->leaf[i]))
            return "the gradient of a leaf";
    for (int i = 0; i < 2; i++)
        if (differ(a->out[i], b->out[i]))
            return "a result";
        else if (grads_differ(a->param[i], b->param[i]))
            return "the gradient of a shared weight";
    if (differ(a->buffer, b->buffer))
        return "the buffer";
    if (order &&
        (a->count != b->count || memcmp(a->order, b->order, (size_t)a->count * sizeof *a->order)))
        return "the order of leaves, or what hooks saw";
    return NULL;
}

static bool with_c; /* which ways are checked */
static int fused;   /* functions of which something was compiled */

static void note_fused(const weft_compiled *compiled)
{
    static char text[1 << 18];
    if (weft_compiled_details(compiled, text, sizeof text) > 0)
        fused += strstr(text, " = fused_") != NULL;
}

/* A backend for the forward, one for the backward; NULL: as it is. */
typedef const char *way[2];
static const way ways[] = {{"eager", NULL},        {"aot_eager", NULL}, {NULL, "eager"},
                           {"aot_eager", "eager"}, {NULL, "aot_eager"}, {"aot_eager", "aot_eager"}};
static const way fast_ways[] = {{"c", NULL}, {NULL, "c"}, {"c", "c"}};

static const char *check_way(program *p, const way how, const outcome *plain, char *text)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    outcome here;
    prepare(&here, p);
    opts.backend = how[0];
    weft_compiled *fast = how[0] ? weft_compile(run, p, &opts) : NULL;
    opts.backend = how[1];
    weft_compiled *back = how[1] ? weft_compile_backward(&opts) : NULL;
    go(&here, p, fast, back);
    /* A compiled backward enters hooks of leaves once a capture, not each time, unless they are
     * opaque. */
    const char *what = compare(plain, &here, !back || p->opaque);
    if (with_c)
        note_fused(fast ? fast : back);
    if (what)
        sprintf(text, "%s forward, %s backward: %.300s", how[0] ? how[0] : "plain",
                how[1] ? how[1] : "plain", what);
    weft_clear_error();
    weft_release(fast);
    weft_release(back);
    return what ? text : NULL;
}

static const char *check(program *p, char *text)
{
    const char *what = NULL;
    outcome plain;
    prepare(&plain, p);
    go(&plain, p, NULL, NULL);
    weft_clear_error();
    for (size_t k = 0; k < (with_c ? sizeof fast_ways : sizeof ways) / sizeof *ways && !what; k++)
        what = check_way(p, with_c ? fast_ways[k] : ways[k], &plain, text);
    return what;
}

static const char *check_in_scope(program *p, char *text)
{
    weft_scope_open();
    const char *what = check(p, text);
    weft_scope_close();
    return what;
}

static void report(uint64_t seed, program p, char *what)
{
    char other[1024], text[1024] = "";
    for (int i = p.count - 1; i >= 0; i--) {
        program less = p;
        memmove(less.lines + i, less.lines + i + 1, (size_t)(p.count - i - 1) * sizeof(line));
        less.count--;
        if (check_in_scope(&less, other)) {
            p = less;
            strcpy(what, other);
            i = p.count;
        }
    }
    for (int i = 0; i < p.count; i++)
        sprintf(text + strlen(text), " %s(%u, %u);", names[p.lines[i].what], p.lines[i].a,
                p.lines[i].b);
    FAIL("seed %llu: %s:%s", (unsigned long long)seed, what, text);
}

static uint64_t only_seed;

static program make(uint64_t seed, weft_group *world)
{
    state = seed * 104729 + 3;
    program p = {
        .count = 1 + (int)draw(LINES), .world = world, .dtype = seed % 4 ? WEFT_F32 : WEFT_F64};
    p.opaque = draw(2);
    for (int i = 0; i < p.count; i++)
        p.lines[i] = (line){(deed)draw(DEEDS), draw(1000), draw(1000)};
    return p;
}

/* Of each seed up to `last`, or of the one that was asked for. */
static void check_seeds(uint64_t last, weft_group *world)
{
    for (uint64_t seed = only_seed ? only_seed : 1; seed <= (only_seed ? only_seed : last);
         seed++) {
        char what[1024];
        program p = make(seed, world);
        if (check_in_scope(&p, what))
            report(seed, p, what);
    }
}

FAKE_TEST(test_graph_random_gradients, 2)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    check_seeds(SANITIZED_ADDRESS ? 150 : 1000, world);
    weft_finish(world);
}

/* ---- backend c: all functions share two compilations ---- */

/* Captures what the check will, so that its functions are known; they cannot run yet.  A compiled
 * backward is captured for leaves without gradients, and for leaves with them; behind a compiled
 * forward if that can run (`again`). */
static void make_known(program *p, bool again)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    outcome o;
    opts.backend = "c";
    weft_compiled *fast = weft_compile(run, p, &opts), *back = weft_compile_backward(&opts);
    prepare(&o, p);
    if (!again)
        go(&o, p, fast, NULL);
    for (int step = 0; step < 2; step++) {
        prepare(&o, p);
        logging = &o;
        for (int k = 0; k <= step; k++)
            step_once(&o, p, again ? fast : NULL, k == step ? back : NULL);
    }
    weft_clear_error();
    weft_release(fast);
    weft_release(back);
}

FAKE_TEST(test_graph_random_gradients_compiled, 2)
{
    /* The C compiler takes longest.  Others of the same kind: `make test-all`. */
    const uint64_t programs = getenv("WEFT_TEST_ALL") ? 200 : 60;
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    harness_cache_share();
    for (int again = 0; again < 2; again++) {
        weft_i_emit_hold(true);
        for (uint64_t seed = 1; seed <= programs && !only_seed; seed++) {
            program p = make(seed, world);
            weft_scope_open();
            make_known(&p, again);
            weft_scope_close();
        }
        weft_i_emit_hold(false);
        CHECK(weft_i_emit_build());
    }
    with_c = true;
    check_seeds(programs, world);
    with_c = false;
    CHECK(only_seed || fused > (int)programs / 2);
    harness_cache_close();
    weft_finish(world);
}

/* ---- the n-th allocation fails ---- */

static void shortage(program *p, bool compiled_back, int n, bool *fired)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.fullgraph = true;
    opts.backend = "aot_eager";
    opts.check =
        WEFT_CHECK_NEVER; /* the tensor that the hook closes over is another one each time */
    outcome o, after, plain;
    weft_compiled *fast = weft_compile(run, p, &opts);
    weft_compiled *back = compiled_back ? weft_compile_backward(&opts) : NULL;
    prepare(&o, p);
    fault_arm(n);
    go(&o, p, fast, back);
    *fired = fault_disarm();
    CHECK(o.status >= 0 || o.status == WEFT_ERR_NO_MEMORY);
    CHECK_INT(weft_tensor_version(o.leaf[0]), 0);
    weft_clear_error();
    prepare(&plain, p);
    go(&plain, p, NULL, NULL);
    prepare(&after, p); /* the same functions serve other tensors */
    go(&after, p, fast, back);
    const char *what = compare(&plain, &after, false);
    if (what)
        FAIL("after allocation %d failed: %s", n, what);
    weft_release(fast);
    weft_release(back);
}

TEST(test_graph_shortage_of_gradients)
{
    program p = {.count = 6,
                 .dtype = WEFT_F32,
                 .opaque = true,
                 .lines = {{SIN, 0, 0},
                           {HOOK, 0, 0},
                           {REFILL, 4, 0},
                           {MATMUL, 6, 1},
                           {OPAQUE, 3, 0},
                           {RELU, 8, 0}}};
    for (int k = 0; k < 2; k++) {
        bool fired = true;
        for (int n = 1; fired; n += 1 + n / 40) {
            weft_scope_open();
            shortage(&p, k, n, &fired);
            weft_scope_close();
            CHECK(n < 20000);
        }
    }
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    setenv("WEFT_CC_TIMEOUT", "300000", 0); /* of hundreds of functions, on a busy machine */
    if (argc > 2 && !strcmp(argv[1], "--seed")) {
        only_seed = strtoull(argv[2], NULL, 10);
        argv[2] = argv[0];
        argv += 2;
        argc -= 2;
    }
    return harness_main(argc, argv);
}

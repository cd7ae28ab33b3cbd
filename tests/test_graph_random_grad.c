/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random functions with gradients: shared weights, views, writes in place, hidden writes, freed
 * storages, hooks.  By itself, in frames and with a compiled backward each gives the same bits of
 * results, gradients and inputs, the same versions and sizes, and adds to its leaves in the same
 * order.  A function that fails is cut down and printed; `--seed N` runs it alone.  And: every
 * allocation fails once.
 */
#include "fault.h"
#include "graph_pattern.h"

#include "tensor/tensor.h"

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
    DEEDS
} deed;
static const char *const names[] = {"sin",  "exp",   "mul",     "add",   "matmul", "transpose",
                                    "rows", "relu",  "softmax", "sum",   "clone",  "scale_into",
                                    "hook", "quiet", "hide",    "refill"};

typedef struct line {
    deed what;
    unsigned a, b;
} line;

typedef struct program {
    line lines[LINES];
    int count;
    weft_tensor *buffer; /* found elsewhere: filled and freed */
} program;

static uint64_t state;

static unsigned draw(unsigned of)
{
    uint64_t x = state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ x >> 31) % of);
}

static weft_status triple(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    *grad = weft_add(weft_mul_scalar(*grad, 3), held[0]);
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
        weft_resize_storage(buffer, 64) < 0)
        return NULL;
    if (weft_tensor_preserve_version(&buffer, 1, fill_hidden, &f) >= 0)
        y = weft_add(weft_clone(buffer), x);
    return weft_resize_storage(buffer, 0) < 0 ? NULL : y;
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
        return weft_tensor_hook(a, triple, NULL, WEFT_HOLD(a)) < 0 ? NULL : weft_sin(a);
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
        unsigned own = l->what == HOOK && count > ins ? (unsigned)ins : 0;
        weft_tensor *a = at[own + l->a % ((unsigned)count - own)], *b = at[l->b % (unsigned)count];
        weft_tensor *made = l->what == HOOK && !own ? NULL : act(p, l, a, b);
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
    weft_tensor *leaf[LEAVES], *input, *out[2], *buffer;
    weft_status status;
    int order[LOG], count; /* leaves, as they were added to */
} outcome;

static outcome *logging;

static weft_status note(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held;
    if (logging->count < LOG)
        logging->order[logging->count++] = (int)(intptr_t)user;
    return WEFT_OK;
}

static void prepare(outcome *o, program *p)
{
    *o = (outcome){.status = WEFT_OK};
    weft_seed(5);
    for (int i = 0; i < LEAVES; i++) {
        o->leaf[i] = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4));
        CHECK_OK(weft_require_grad(o->leaf[i], true));
        CHECK(weft_accumulated_hook(o->leaf[i], note, (void *)(intptr_t)i, WEFT_HOLD()) > 0);
    }
    o->input = weft_mul_scalar(o->leaf[0], 2); /* has a history */
    p->buffer = o->buffer = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4));
    CHECK_OK(weft_resize_storage(o->buffer, 0));
}

/* Two steps: without gradients and with them. */
static void go(outcome *o, program *p, weft_compiled *fast, weft_compiled *back)
{
    logging = o;
    for (int step = 0; step < 2 && o->status >= 0; step++) {
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
    if (differ(a->buffer, b->buffer))
        return "the buffer";
    if (order &&
        (a->count != b->count || memcmp(a->order, b->order, (size_t)a->count * sizeof *a->order)))
        return "the order of leaves";
    return NULL;
}

static const char *check(program *p, char *text)
{
    static const char *const ways[][2] = {{"eager", NULL},     {"aot_eager", NULL},
                                          {NULL, "eager"},     {"aot_eager", "eager"},
                                          {NULL, "aot_eager"}, {"aot_eager", "aot_eager"}};
    outcome plain, here;
    prepare(&plain, p);
    go(&plain, p, NULL, NULL);
    weft_clear_error();
    for (int k = 0; k < 6; k++) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        prepare(&here, p);
        opts.backend = ways[k][0];
        weft_compiled *fast = ways[k][0] ? weft_compile(run, p, &opts) : NULL;
        opts.backend = ways[k][1];
        weft_compiled *back = ways[k][1] ? weft_compile_backward(&opts) : NULL;
        go(&here, p, fast, back);
        /* Hooks of leaves are entered once a capture by a compiled backward: not each time. */
        const char *what = compare(&plain, &here, !back);
        if (what)
            sprintf(text, "%s forward, %s backward: %.300s", ways[k][0] ? ways[k][0] : "plain",
                    ways[k][1] ? ways[k][1] : "plain", what);
        weft_clear_error();
        weft_release(fast);
        weft_release(back);
        if (what)
            return text;
    }
    return NULL;
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

TEST(test_graph_random_gradients)
{
    for (uint64_t seed = only_seed ? only_seed : 1; seed <= (only_seed ? only_seed : 600); seed++) {
        char what[1024];
        state = seed * 104729 + 3;
        program p = {.count = 1 + (int)draw(LINES)};
        for (int i = 0; i < p.count; i++)
            p.lines[i] = (line){(deed)draw(DEEDS), draw(1000), draw(1000)};
        if (check_in_scope(&p, what))
            report(seed, p, what);
    }
}

/* ---- the n-th allocation fails ---- */

static void shortage(program *p, bool compiled_back, int n, bool *fired)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.fullgraph = true;
    opts.backend = "aot_eager";
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
    program p = {
        .count = 5,
        .lines = {{SIN, 0, 0}, {HOOK, 0, 0}, {REFILL, 4, 0}, {MATMUL, 6, 1}, {RELU, 7, 0}}};
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
    if (argc > 2 && !strcmp(argv[1], "--seed")) {
        only_seed = strtoull(argv[2], NULL, 10);
        argv[2] = argv[0];
        argv += 2;
        argc -= 2;
    }
    return harness_main(argc, argv);
}

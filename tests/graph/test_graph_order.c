/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/run/route.c, grad/accumulate.c, nn/hook.c */
/*
 * The order in which hooks run and leaves are added to, in random trees of modules: the same by
 * itself, in frames, with a compiled backward, and with both, also where gradients reach a leaf over
 * several paths.  Hooks that are entered once a capture cannot write a list, so they write a number:
 * each multiplies a tensor that it holds and adds its own, which shows every order but one.
 */
#include "graph_pattern.h"

enum { LEAVES = 4, MODULES = 24, DEPTH = 3 };

typedef enum shape { LEAF, SERIES, SUM, TWICE, AROUND, SHAPES } shape;

typedef struct tree tree;

typedef struct branch {
    tree *tree;
    shape shape;
    int leaf, number;
    weft_module *children[3];
    int count;
} branch;

struct tree {
    branch branches[MODULES];
    int count;
    weft_tensor *leaves[LEAVES];
    weft_tensor *inside, *outside; /* what hooks of modules did; what those of leaves did */
    weft_module *root;
};

static uint64_t state;

static int draw(int of)
{
    uint64_t x = state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (int)((x ^ x >> 31) % (uint64_t)of);
}

/* ---- hooks ---- */

static weft_status tell(weft_tensor *log, int number)
{
    WEFT_NO_GRAD
    {
        return weft_copy(log, weft_add_scalar(weft_mul_scalar(log, 1.25), number));
    }
    return WEFT_OK;
}

static weft_status tell_module(weft_hook_event *event)
{
    return tell(event->held[0], (int)(intptr_t)event->user);
}

static weft_status tell_leaf(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad;
    return tell(held[0], (int)(intptr_t)user);
}

static void add_hooks(weft_module *module, tree *t, int number)
{
    static const weft_hook_point points[] = {WEFT_HOOK_FORWARD_PRE, WEFT_HOOK_FORWARD,
                                             WEFT_HOOK_BACKWARD_PRE, WEFT_HOOK_BACKWARD};
    for (int i = 0; i < 4; i++)
        if (draw(3))
            CHECK(weft_module_hook_add(module, points[i], 0, tell_module,
                                       (void *)(intptr_t)(4 * number + i + 1),
                                       WEFT_HOLD(t->inside)) > 0);
}

/* ---- trees ---- */

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    const branch *b = user;
    (void)self;
    weft_tensor *y = x;
    switch (b->shape) {
    case LEAF:
        return weft_sin(weft_matmul(x, b->tree->leaves[b->leaf]));
    case SERIES:
        for (int i = 0; i < b->count; i++)
            y = weft_module_call(b->children[i], y);
        return y;
    case SUM:
        y = weft_module_call(b->children[0], x);
        for (int i = 1; i < b->count; i++)
            y = weft_add(y, weft_module_call(b->children[i], x));
        return y;
    case TWICE:
        return weft_module_call(b->children[0], weft_module_call(b->children[0], x));
    default:
        return weft_add(weft_module_call(b->children[0], x),
                        weft_matmul(x, b->tree->leaves[b->leaf]));
    }
}

static weft_module *grow(tree *t, int depth)
{
    branch *b = &t->branches[t->count];
    *b = (branch){.tree = t, .number = t->count, .leaf = draw(LEAVES)};
    b->shape = depth >= DEPTH || t->count > MODULES - 8 ? LEAF : (shape)draw(SHAPES);
    t->count++;
    weft_module *module = weft_module_new(forward, b);
    CHECK(module != NULL);
    b->count = b->shape == LEAF ? 0 : b->shape == SERIES || b->shape == SUM ? 2 + draw(2) : 1;
    for (int i = 0; i < b->count; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        b->children[i] = grow(t, depth + 1);
        CHECK_OK(weft_module_add(module, name, b->children[i]));
    }
    add_hooks(module, t, b->number);
    return module;
}

static void plant(tree *t, uint64_t seed)
{
    *t = (tree){.count = 0};
    state = seed * 7919 + 1;
    weft_seed(3);
    t->inside = weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(1));
    t->outside = weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(1));
    for (int i = 0; i < LEAVES; i++) {
        t->leaves[i] = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 3));
        CHECK_OK(weft_require_grad(t->leaves[i], true));
        CHECK(weft_tensor_hook(t->leaves[i], tell_leaf, (void *)(intptr_t)(2 * i + 1),
                               WEFT_HOLD(t->outside)) > 0);
        CHECK(weft_accumulated_hook(t->leaves[i], tell_leaf, (void *)(intptr_t)(2 * i + 2),
                                    WEFT_HOLD(t->outside)) > 0);
    }
    t->root = grow(t, 0);
}

/* ---- ways of running one ---- */

static weft_status call(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    tree *t = user;
    (void)ins, (void)outs;
    out[0] = weft_module_call(t->root, in[0]);
    return WEFT_OK;
}

/* Two steps: leaves without gradients, and with them. */
static weft_status go(tree *t, const char *frames, const char *backward)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.fullgraph = true;
    opts.backend = frames;
    weft_compiled *fast = frames ? weft_compile(call, t, &opts) : NULL;
    opts.backend = backward;
    weft_compiled *back = backward ? weft_compile_backward(&opts) : NULL;
    weft_status status = WEFT_OK;
    for (int step = 0; step < 3 && status >= 0; step++) {
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3), 0.1 * step + 0.1), *y,
                    *loss;
        status = fast ? weft_compiled_call(fast, &x, 1, &y, 1) : call(&x, 1, &y, 1, t);
        if (status < 0)
            break;
        /* Another path to a leaf, outside of the frame. */
        loss = weft_add(sum_of(weft_mul(y, y)), sum_of(weft_mul(t->leaves[0], t->leaves[1])));
        status = back ? weft_compiled_backward(back, &loss, 1, NULL) : weft_backward(loss);
    }
    weft_release(fast);
    weft_release(back);
    return status;
}

static const char *compare(const tree *a, const tree *b)
{
    if (!weft_equal(a->inside, b->inside))
        return "hooks of modules";
    if (!weft_equal(a->outside, b->outside))
        return "hooks of leaves";
    for (int i = 0; i < LEAVES; i++) {
        weft_tensor *x = weft_grad(a->leaves[i]), *y = weft_grad(b->leaves[i]);
        if (!x != !y || (x && !weft_equal(x, y)))
            return "gradients";
    }
    return NULL;
}

static void check_tree(uint64_t seed)
{
    static const char *const ways[][2] = {{"eager", NULL},        {"aot_eager", NULL}, {"c", NULL},
                                          {NULL, "eager"},        {NULL, "aot_eager"}, {NULL, "c"},
                                          {"aot_eager", "eager"}, {"c", "c"}};
    static tree plain, here;
    plant(&plain, seed);
    CHECK_OK(go(&plain, NULL, NULL));
    CHECK(weft_item(plain.inside, 0) != 0 || plain.count < 3);
    CHECK(weft_item(plain.outside, 0) > 20); /* of two leaves at least, three times */
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        CHECK_OK(weft_scope_open());
        plant(&here, seed);
        weft_status status = go(&here, ways[k][0], ways[k][1]);
        const char *what = status < 0 ? weft_last_error() : compare(&plain, &here);
        if (what)
            FAIL("seed %llu, %s forward, %s backward: %s", (unsigned long long)seed,
                 ways[k][0] ? ways[k][0] : "plain", ways[k][1] ? ways[k][1] : "plain", what);
        CHECK_OK(weft_scope_close());
    }
}

static uint64_t only_seed;

TEST(test_order_of_module_trees)
{
    for (uint64_t seed = only_seed ? only_seed : 1; seed <= (only_seed ? only_seed : 60); seed++) {
        CHECK_OK(weft_scope_open());
        check_tree(seed);
        CHECK_OK(weft_scope_close());
    }
}

int main(int argc, char **argv)
{
    setenv("WEFT_CC", "/nowhere", 1); /* orders and plans do without */
    setenv("WEFT_DEBUG", "NONE", 1);
    if (argc > 2 && !strcmp(argv[1], "--seed")) {
        only_seed = strtoull(argv[2], NULL, 10);
        argc = 1;
    }
    return harness_main(argc, argv);
}

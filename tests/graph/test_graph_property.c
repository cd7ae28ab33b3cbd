/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/capture/capture.c, graph/ir/text.c, graph/ir/parse.c, graph/ir/rebuild.c,
 * graph/ir/pointers.c, graph/pass/pure.c, graph/emit/plan.c */
/*
 * Random programs: what a function does by itself, captured and interpreted, and made pure, is the
 * same: bits, layouts, versions and sizes of its results and of its arguments.  The text of every
 * graph reads as itself.  A program that fails is cut down until every line of it matters, and
 * printed with its seed; run it alone by `--seed N`.
 */
#include "device.h"

#include "draw.h"
#include "harness.h"
#include "harness_cache.h"
#include "sanitized.h"

#include "graph/capture/capture.h"
#include "graph/emit/emit.h"
#include "graph/pass/passes.h"
#include "tensor/object/tensor.h"

#include <weft/weft.h>

enum { LINES = 14, REGISTERS = 40, INPUTS = 4, OUTPUTS = 3, TEXT = 1 << 16 };

/* What a line does; its numbers choose registers and amounts. */
/* clang-format off */
#define DEEDS(X) \
    X(sin) X(neg) X(relu) X(abs) X(add) X(mul) \
    X(sub) X(scale) X(sum) X(mean_all) X(matmul) X(slice) \
    X(transpose) X(reshape) X(select) X(expand) X(detach) X(strided) \
    X(clone) X(contiguous) X(to_f64) X(cat) X(from) X(full) \
    X(fill) X(copy) X(add_into) X(scale_into) X(sum_into) X(draw) \
    X(rand) X(free_and_fill) X(free) X(set) X(version) X(hide) \
    X(preserve) X(all_reduce) X(all_reduce_) X(gather) X(scatter) X(plain_reduce) \
    X(plain_list) X(collected) X(parts) X(plain_broadcast) \
    X(softmax) X(coalesced) X(exp) X(gelu) X(choose) X(largest) X(layer_norm) X(log_softmax) \
    X(softmax_grad) X(log_softmax_grad) X(sum_last) X(div) X(mean_last) X(square)
/* clang-format on */
#define NAME(name_) DEED_##name_,
typedef enum deed { DEEDS(NAME) DEED_COUNT } deed;
#undef NAME
#define NAME(name_) #name_,
static const char *const deed_names[] = {DEEDS(NAME)};
#undef NAME

typedef struct line {
    deed what;
    unsigned a, b, n;
} line;

typedef struct program {
    line lines[LINES];
    int count;
    unsigned layout; /* how the inputs lie */
    weft_group *world;
} program;

static program make(uint64_t seed, weft_group *world)
{
    state = seed * 7919 + 1;
    program p = {.count = 1 + (int)draw(LINES), .layout = draw(8), .world = world};
    for (int i = 0; i < p.count; i++)
        p.lines[i] = (line){(deed)draw(DEED_COUNT), draw(1000), draw(1000), draw(1000)};
    return p;
}

static void print_program(const program *p, char *out, size_t bytes)
{
    size_t used = (size_t)snprintf(out, bytes, "layout %u;", p->layout);
    for (int i = 0; i < p->count && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, " %s(%u, %u, %u);",
                                 deed_names[p->lines[i].what], p->lines[i].a, p->lines[i].b,
                                 p->lines[i].n);
}

/* ---- what a program does ---- */

static bool same_shape(weft_tensor *a, weft_tensor *b)
{
    return weft_i_shape_equal(weft_tensor_shape(a), weft_tensor_shape(b));
}

static bool is_usable(weft_tensor *x)
{
    return weft_tensor_numel(x) <= 4096;
}

typedef struct filling {
    weft_tensor *to, *from;
    weft_reduction op;
    weft_group *world;
} filling;

static weft_status fill_hidden(void *argument)
{
    filling *f = argument;
    return weft_copy(f->to, f->from);
}

/* A plain collective does not count as a write; what stands for it in a graph does. */
static weft_status reduce_hidden(void *argument)
{
    filling *f = argument;
    return weft_all_reduce_into(f->to, f->from, f->op, f->world);
}

/* Two tensors as one operation, by a list or by a group that collects calls. */
static weft_status list_hidden(void *argument)
{
    filling *f = argument;
    weft_tensor *list[] = {f->to, f->from};
    return weft_all_reduce_list_into(list, list, 2, f->op, f->world);
}

static weft_status collect_hidden(void *argument)
{
    filling *f = argument;
    WEFT_TRY(weft_coalesce_open(f->world));
    weft_all_reduce_into(f->to, f->to, f->op, f->world); /* if one fails, the close does */
    weft_all_reduce_into(f->from, f->from, f->op, f->world);
    weft_work *work = weft_coalesce_close(f->world);
    return work ? weft_work_wait(work, WEFT_DEFAULT) : weft_last_status();
}

static weft_status broadcast_hidden(void *argument)
{
    filling *f = argument;
    return weft_broadcast_in_place(f->to, 0, f->world);
}

static weft_tensor *plain(weft_status (*how)(void *), filling *f)
{
    weft_tensor *list[] = {f->to, f->from};
    return weft_tensor_is_contiguous(f->to) && weft_tensor_is_contiguous(f->from) &&
                   weft_tensor_storage(f->to) != weft_tensor_storage(f->from) &&
                   weft_tensor_preserve_version(list, 2, how, f) >= 0
               ? weft_neg(f->to)
               : NULL;
}

/* From every rank, and back as sums. */
static weft_tensor *exchange_parts(weft_tensor *x, const filling *f)
{
    weft_tensor *to[2], *sum;
    for (int i = 0; i < 2; i++)
        if (!(to[i] = weft_full(weft_tensor_dtype(x), DEVICE, weft_tensor_shape(x), i)))
            return NULL;
    sum = weft_full(weft_tensor_dtype(x), DEVICE, WEFT_SHAPE(weft_tensor_numel(x)), 3);
    if (weft_all_gather_parts_into(to, x, f->world) < 0 ||
        weft_reduce_scatter_parts_into(sum, to, f->op, f->world) < 0)
        return NULL;
    return weft_add(weft_view(sum, weft_tensor_shape(x)), to[1]);
}

static weft_tensor *strided(weft_tensor *x, unsigned n)
{
    int64_t numel = weft_tensor_numel(x), offset = weft_tensor_offset(x);
    bool freed = weft_storage_bytes(weft_tensor_storage(x)) == 0; /* what fits is not checked */
    if (!weft_tensor_is_contiguous(x) || numel < 4 || freed)
        return weft_detach(x);
    return weft_as_strided(x, WEFT_SHAPE(2, 2), (int64_t[]){1 + n % 2, 1}, offset + n % 2);
}

/* Frees the storage, gives it back and fills the tensor: nothing undefined is left where anybody
 * looks, if the tensor is all of it. */
static weft_tensor *free_and_fill(weft_tensor *x, unsigned n)
{
    size_t bytes = weft_storage_bytes(weft_tensor_storage(x));
    if (weft_tensor_bytes(x) != bytes || bytes == 0 || !weft_tensor_is_contiguous(x))
        return NULL;
    if (weft_resize_storage(x, 0) < 0 || weft_resize_storage(x, (int64_t)bytes) < 0 ||
        weft_fill(x, n % 7) < 0)
        return NULL;
    return weft_neg(x);
}

static weft_tensor *hide(weft_tensor *x, unsigned n)
{
    weft_tensor *was = weft_tensor_read_version(x);
    if (weft_fill(x, n % 5) < 0)
        return NULL;
    weft_tensor_write_version(x, was);
    return weft_to_dtype(was, WEFT_F32);
}

static weft_tensor *shaped(weft_tensor *x, unsigned n)
{
    int64_t numel = weft_tensor_numel(x);
    return n % 2 || numel % 2 ? weft_reshape(x, WEFT_SHAPE(-1))
                              : weft_reshape(x, WEFT_SHAPE(2, -1));
}

static weft_tensor *on_device(weft_tensor *x)
{
    return DEVICE == WEFT_CPU ? x : weft_to(x, weft_tensor_dtype(x), DEVICE);
}

static weft_tensor *compute(const line *l, weft_tensor *a, weft_tensor *b)
{
    switch (l->what) {
    case DEED_sin:
        return weft_sin(a);
    case DEED_neg:
        return weft_neg(a);
    case DEED_relu:
        return weft_relu(a);
    case DEED_abs:
        return weft_abs(a);
    case DEED_add:
        return weft_add(a, b);
    case DEED_mul:
        return weft_mul(a, b);
    case DEED_sub:
        return weft_sub(a, b);
    case DEED_scale:
        return weft_mul_scalar(a, 0.5 + l->n % 3);
    case DEED_exp:
        return weft_exp(a);
    case DEED_gelu:
        return weft_gelu(a);
    case DEED_choose:
        return weft_where(weft_lt(a, b), weft_tanh(a), b);
    case DEED_div:
        return weft_div(a, weft_add_scalar(weft_abs(b), 0.5));
    case DEED_square:
        return weft_pow_scalar(a, 2);
    case DEED_cat:
        return weft_cat((weft_tensor *[]){a, b}, 2, 0);
    case DEED_clone:
        return weft_clone(a);
    case DEED_contiguous:
        return weft_contiguous(a);
    case DEED_to_f64:
        return weft_to_dtype(a, l->n % 2 ? WEFT_F64 : WEFT_F32);
    case DEED_full:
        return weft_full(WEFT_F32, DEVICE, weft_tensor_shape(a), l->n % 9);
    case DEED_from:
        return on_device(
            weft_tensor_from(WEFT_F32, WEFT_SHAPE(4), (float[]){1, (float)l->n, -3, 0.25f}));
    case DEED_rand:
        return weft_rand(WEFT_F32, DEVICE, weft_tensor_shape(a));
    default:
        return NULL;
    }
}

/* What brings several elements together. */
static weft_tensor *fold(const line *l, weft_tensor *a, weft_tensor *b)
{
    int dim = (int)(l->n % 2);
    switch (l->what) {
    case DEED_sum:
        return weft_sum(a, &dim, 1, l->n % 3 == 0);
    case DEED_mean_all:
        return weft_mean(a, NULL, 0, false);
    case DEED_matmul:
        return weft_matmul(a, b);
    case DEED_softmax:
        return weft_softmax(a, -1);
    case DEED_largest:
        return weft_max(a, (int[]){-1}, 1, true);
    case DEED_layer_norm:
        return weft_layer_norm(a, 1, NULL, NULL, 1e-5);
    case DEED_log_softmax:
        return weft_log_softmax(a, -1);
    case DEED_softmax_grad:
        return weft_softmax_grad(a, b, -1);
    case DEED_log_softmax_grad:
        return weft_log_softmax_grad(a, b, -1);
    case DEED_sum_last:
        return weft_sum(a, (int[]){-1}, 1, l->n % 2);
    case DEED_mean_last:
        return weft_mean(a, (int[]){-1}, 1, l->n % 2);
    default:
        return NULL;
    }
}

static weft_tensor *look_at(const line *l, weft_tensor *a)
{
    int64_t rows = weft_tensor_ndim(a) ? weft_tensor_size(a, 0) : 0;
    switch (l->what) {
    case DEED_slice:
        return weft_slice(a, (int)(l->n % 2), l->n % 3, 4, 1 + l->n % 2);
    case DEED_transpose:
        return weft_transpose(a, 0, -1);
    case DEED_reshape:
        return shaped(a, l->n);
    case DEED_select:
        return rows ? weft_select(a, 0, l->n % rows) : NULL;
    case DEED_expand:
        return rows ? weft_expand(weft_unsqueeze(a, 0), WEFT_SHAPE(2, -1, -1)) : NULL;
    case DEED_detach:
        return weft_detach(a);
    case DEED_strided:
        return strided(a, l->n);
    case DEED_version:
        return weft_to_dtype(weft_tensor_read_version(a), WEFT_F32);
    default:
        return NULL;
    }
}

static weft_tensor *change(const line *l, weft_tensor *a, weft_tensor *b)
{
    filling f = {.to = a, .from = b};
    int dim = 0;
    switch (l->what) {
    case DEED_fill:
        return weft_fill(a, l->n % 10) < 0 ? NULL : weft_sin(a);
    case DEED_copy:
        return weft_copy(a, b) < 0 ? NULL : weft_detach(a);
    case DEED_add_into:
        return weft_add_into(a, a, b) < 0 ? NULL : weft_neg(a);
    case DEED_scale_into:
        return weft_mul_scalar_into(a, b, 1.5) < 0 ? NULL : weft_detach(a);
    case DEED_sum_into:
        return weft_copy(a, weft_sum(b, &dim, 1, false)) < 0 ? NULL : weft_neg(a);
    case DEED_draw:
        return weft_uniform(a, -1, 1) < 0 ? NULL : weft_clone(a);
    case DEED_free_and_fill:
        return free_and_fill(a, l->n);
    case DEED_free:
        return l->n % 4 ? NULL : weft_resize_storage(a, 0) < 0 ? NULL : weft_clone(b);
    case DEED_set:
        return weft_set(a, b) < 0 ? NULL : weft_neg(a);
    case DEED_hide:
        return hide(a, l->n);
    case DEED_preserve:
        return weft_tensor_preserve_version(&a, 1, fill_hidden, &f) < 0 ? NULL : weft_neg(a);
    default:
        return NULL;
    }
}

static weft_tensor *communicate(const line *l, weft_tensor *a, weft_tensor *b, weft_group *world)
{
    weft_tensor *out[2], *list[2] = {a, b};
    weft_reduction op = l->n % 2 ? WEFT_SUM : WEFT_MAX;
    filling f = {a, b, op, world};
    switch (l->what) {
    case DEED_all_reduce:
        return weft_all_reduce(a, op, world);
    case DEED_all_reduce_:
        return weft_all_reduce_(a, op, world) ? weft_neg(a) : NULL;
    case DEED_gather:
        return weft_all_gather_tensor(a, 0, world);
    case DEED_scatter:
        return weft_reduce_scatter_tensor(a, op, 0, world);
    case DEED_plain_reduce:
        return same_shape(a, b) && weft_tensor_is_contiguous(a) && weft_tensor_is_contiguous(b) &&
                       weft_tensor_storage(a) != weft_tensor_storage(b) &&
                       weft_tensor_preserve_version(&a, 1, reduce_hidden, &f) >= 0
                   ? weft_neg(a)
                   : NULL;
    case DEED_plain_list:
        return plain(list_hidden, &f);
    case DEED_collected:
        return plain(collect_hidden, &f);
    case DEED_plain_broadcast:
        return plain(broadcast_hidden, &f);
    case DEED_parts:
        return exchange_parts(a, &f);
    case DEED_coalesced:
        return weft_all_reduce_coalesced(out, list, 2, op, world) < 0 ? NULL : out[l->n % 2];
    default:
        return NULL;
    }
}

static weft_tensor *pick(weft_tensor **registers, int count, unsigned which)
{
    for (int i = 0; i < count; i++)
        if (registers[(which + (unsigned)i) % (unsigned)count])
            return registers[(which + (unsigned)i) % (unsigned)count];
    return registers[0];
}

static weft_status run(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    const program *p = user;
    weft_tensor *registers[REGISTERS] = {NULL};
    int count = ins;
    memcpy(registers, in, (size_t)ins * sizeof *in);
    for (int i = 0; i < p->count; i++) {
        const line *l = &p->lines[i];
        weft_tensor *a = pick(registers, count, l->a), *b = pick(registers, count, l->b);
        weft_tensor *made = compute(l, a, b);
        made = made ? made : fold(l, a, b);
        made = made ? made : look_at(l, a);
        made = made ? made : change(l, a, b);
        made = made ? made : communicate(l, a, b, p->world);
        weft_clear_error(); /* what fails, fails in all ways of running it */
        registers[count++] = made && is_usable(made) ? made : NULL;
    }
    for (int i = 0; i < outs; i++)
        out[i] = pick(registers, count, (unsigned)(count - 1 - 2 * i));
    return WEFT_OK;
}

/* ---- two ways of running it ---- */

typedef struct outcome {
    weft_tensor *in[INPUTS], *out[OUTPUTS];
} outcome;

static void make_inputs(const program *p, weft_tensor **in)
{
    weft_seed(17);
    in[0] = weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(4, 4));
    in[1] = weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(4, 4));
    in[2] = p->layout & 1   ? weft_slice(in[0], 0, 1, 3, 1)
            : p->layout & 2 ? weft_transpose(in[1], 0, 1)
                            : weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(4));
    in[3] = p->layout & 4 ? weft_narrow(weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(8, 4)), 0, 2, 4)
                          : weft_rand(WEFT_F64, DEVICE, WEFT_SHAPE(4, 4));
}

/* The first difference of two tensors, or NULL. */
static const char *difference(weft_tensor *a, weft_tensor *b)
{
    if (a->dtype != b->dtype || !weft_i_shape_equal(weft_i_tensor_shape(a), weft_i_tensor_shape(b)))
        return "dtype or shape";
    for (int i = 0; i < a->ndim; i++)
        if (a->stride[i] != b->stride[i] && a->dim[i] != 1 && a->numel)
            return "strides";
    if (weft_tensor_version(a) != weft_tensor_version(b))
        return "version";
    if (a->storage->bytes != b->storage->bytes)
        return "size of the storage";
    if (a->end > a->storage->bytes)
        return NULL; /* freed, both */
    weft_tensor *x = weft_to(weft_clone(weft_contiguous(a)), a->dtype, WEFT_CPU);
    weft_tensor *y = weft_to(weft_clone(weft_contiguous(b)), b->dtype, WEFT_CPU);
    return x->numel && memcmp(weft_tensor_data(weft_contiguous(x)),
                              weft_tensor_data(weft_contiguous(y)), weft_tensor_bytes(x))
               ? "bits"
               : NULL;
}

static const char *compare(const outcome *a, const outcome *b, const char *how, char *out)
{
    for (int i = 0; i < INPUTS + OUTPUTS; i++) {
        weft_tensor *x = i < INPUTS ? a->in[i] : a->out[i - INPUTS];
        weft_tensor *y = i < INPUTS ? b->in[i] : b->out[i - INPUTS];
        const char *what = difference(x, y);
        if (what) {
            sprintf(out, "%s: %s of %s %d", how, what, i < INPUTS ? "input" : "output",
                    i < INPUTS ? i : i - INPUTS);
            return out;
        }
    }
    for (int i = 0; i < OUTPUTS; i++)
        for (int k = 0; k < INPUTS; k++)
            if ((a->out[i] == a->in[k]) != (b->out[i] == b->in[k])) {
                sprintf(out, "%s: output %d is input %d in one of them only", how, i, k);
                return out;
            }
    return NULL;
}

static const char *check_text(const weft_graph *graph, char *out)
{
    static char text[TEXT], again_text[TEXT];
    int length = weft_graph_text(graph, text, sizeof text);
    weft_graph *again = length < TEXT ? weft_graph_parse(text) : NULL;
    if (!again) {
        snprintf(out, 1000, "text: %s", weft_last_error());
        return out;
    }
    weft_graph_text(again, again_text, sizeof again_text);
    weft_release(again);
    return strcmp(text, again_text) ? "the text reads as another graph" : NULL;
}

static const char *check_backend(program *p, const outcome *plain, const char *backend, char *out)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    weft_compiled *compiled = weft_compile(run, p, &opts);
    for (int round = 0; round < 2; round++) {
        outcome here;
        make_inputs(p, here.in);
        weft_seed(99);
        weft_status status = weft_compiled_call(compiled, here.in, INPUTS, here.out, OUTPUTS);
        if (status == WEFT_ERR_UNSUPPORTED && strstr(weft_last_error(), "only the reverse"))
            return NULL;
        if (status < 0) {
            snprintf(out, 1000, "%s: %s", backend, weft_last_error());
            return out;
        }
        const char *what = compare(plain, &here, backend, out);
        if (what)
            return what;
    }
    weft_compiled_info info;
    weft_compiled_describe(compiled, &info);
    return info.frames == 1 ? NULL : "captured twice";
}

/* NULL if all ways agree. */
static const char *check(program *p, char *out)
{
    outcome plain;
    make_inputs(p, plain.in);
    weft_seed(99);
    if (run(plain.in, INPUTS, plain.out, OUTPUTS, p) < 0)
        return "it fails by itself";
    weft_tensor *in[INPUTS];
    make_inputs(p, in);
    weft_graph *graph = weft_graph_capture("random", run, p, in, INPUTS, OUTPUTS);
    if (!graph) {
        snprintf(out, 1000, "capture: %s", weft_last_error());
        return out;
    }
    const char *what = check_text(graph, out);
    weft_graph *pure = what ? NULL : weft_i_graph_pass_make_pure(graph);
    what = what ? what : pure ? check_text(pure, out) : NULL;
    what = what ? what : check_backend(p, &plain, "eager", out);
    return what ? what : check_backend(p, &plain, "aot_eager", out);
}

static const char *check_in_scope(program *p, char *out)
{
    weft_scope_open();
    const char *what = check(p, out);
    if (what && what != out)
        what = strcpy(out, what);
    weft_clear_error();
    weft_scope_close();
    return what;
}

/* Leaves lines out as long as it still fails. */
static program smallest(program p, char *what)
{
    char other[1024];
    for (int i = p.count - 1; i >= 0; i--) {
        program less = p;
        memmove(less.lines + i, less.lines + i + 1, (size_t)(p.count - i - 1) * sizeof(line));
        less.count--;
        if (less.count && check_in_scope(&less, other)) {
            p = less;
            strcpy(what, other);
            i = p.count;
        }
    }
    return p;
}

/* The graphs of a program that fails, for who looks for the reason. */
static void print_graphs(program *p)
{
    static char text[TEXT];
    weft_tensor *in[INPUTS];
    make_inputs(p, in);
    weft_graph *graph = weft_graph_capture("random", run, p, in, INPUTS, OUTPUTS);
    weft_graph *pure =
        graph ? weft_i_graph_pass_run(graph, WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE) : NULL;
    for (int i = 0; i < 2; i++)
        if (weft_graph_text(i ? pure : graph, text, sizeof text) > 0)
            fputs(text, stderr);
}

static uint64_t only_seed;
static int wanted; /* --programs; 0: as many as the device has time for */

static int how_many(int on_cpu, int on_device)
{
    return only_seed ? 1 : wanted ? wanted : DEVICE == WEFT_CPU ? on_cpu : on_device;
}

FAKE_TEST(test_graph_random_programs, 2)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    uint64_t programs = (uint64_t)how_many(SANITIZED_ADDRESS ? 600 : 2000, 40);
    for (uint64_t seed = only_seed ? only_seed : 1, i = 0; i < programs; i++, seed++) {
        char what[1024], text[2048];
        program p = make(seed, world);
        if (!check_in_scope(&p, what))
            continue;
        p = smallest(p, what);
        print_program(&p, text, sizeof text);
        print_graphs(&p);
        FAIL("seed %llu: %s: %s", (unsigned long long)seed, what, text);
    }
    weft_finish(world);
}

/* ---- compiled ---- */

enum {
    COMPILED = WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE | WEFT_I_STAGE_REWRITE |
               WEFT_I_STAGE_SCHEDULE | WEFT_I_STAGE_LOWER
};

/* The graph that backend `c` runs, kept; NULL if the program cannot be made pure. */
static weft_graph *lower(program *p)
{
    weft_tensor *in[INPUTS];
    make_inputs(p, in);
    weft_graph *graph = weft_graph_capture("random", run, p, in, INPUTS, OUTPUTS);
    weft_graph *low = graph ? weft_i_graph_pass_run(graph, COMPILED) : NULL;
    weft_clear_error();
    return weft_keep(low);
}

static const char *check_lowered(program *p, weft_graph *graph, char *out)
{
    outcome plain, here;
    make_inputs(p, plain.in);
    weft_seed(99);
    if (run(plain.in, INPUTS, plain.out, OUTPUTS, p) < 0)
        return strcpy(out, "it fails by itself");
    make_inputs(p, here.in);
    weft_seed(99);
    if (weft_graph_run(graph, here.in, INPUTS, here.out, OUTPUTS) < 0) {
        snprintf(out, 1000, "c: %s", weft_last_error());
        return out;
    }
    return compare(&plain, &here, "c", out);
}

/* Leaves lines out as long as it still fails, each time compiled by itself. */
static program smallest_compiled(program p, char *what)
{
    for (int i = p.count - 1; i >= 0; i--) {
        program less = p;
        char other[1024];
        memmove(less.lines + i, less.lines + i + 1, (size_t)(p.count - i - 1) * sizeof(line));
        less.count--;
        weft_graph *graph = less.count ? lower(&less) : NULL;
        if (graph && check_lowered(&less, graph, other)) {
            p = less;
            strcpy(what, other);
            i = p.count;
        }
        weft_release(graph);
    }
    return p;
}

static void report(uint64_t seed, program p, char *what)
{
    static char text[TEXT];
    char line_text[2048];
    p = smallest_compiled(p, what);
    print_program(&p, line_text, sizeof line_text);
    weft_graph *graph = lower(&p);
    if (graph && weft_graph_text(graph, text, sizeof text) > 0)
        fprintf(stderr, "%s%s", text, graph->notes ? graph->notes : "");
    FAIL("seed %llu: %s: %s", (unsigned long long)seed, what, line_text);
}

/* All of them share one compilation. */
FAKE_TEST(test_graph_random_programs_compiled, 2)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    int count = how_many(400, 60);
    uint64_t first = only_seed ? only_seed : 1;
    program *p = calloc((size_t)count, sizeof *p);
    weft_graph **graphs = calloc((size_t)count, sizeof(weft_graph *));
    int fused = 0;
    char what[1024];
    weft_i_emit_hold(true);
    for (int i = 0; i < count; i++) {
        p[i] = make(first + (uint64_t)i, world);
        weft_scope_open();
        graphs[i] = lower(&p[i]);
        weft_scope_close();
        for (int k = 0; graphs[i] && k < graphs[i]->node_count; k++)
            fused += weft_i_emit_row_is(graphs[i]->nodes[k].op);
    }
    weft_i_emit_hold(false);
    CHECK(weft_i_emit_build());
    CHECK(only_seed || fused > count / 4);
    for (int i = 0; i < count; i++) {
        weft_scope_open();
        if (graphs[i] && check_lowered(&p[i], graphs[i], what))
            report(first + (uint64_t)i, p[i], what);
        weft_clear_error();
        weft_scope_close();
        weft_release(graphs[i]);
    }
    free(graphs);
    free(p);
    weft_finish(world);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* results that nobody waits for are part of it */
    setenv("WEFT_CC_TIMEOUT", "300000", 0);
    harness_cache_share();
    device_install();
    device_shrink();
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--seed") || !strcmp(argv[i], "--programs")) {
            *(argv[i][2] == 's' ? &only_seed : &(uint64_t){0}) = strtoull(argv[i + 1], NULL, 10);
            if (argv[i][2] == 'p')
                wanted = atoi(argv[i + 1]);
            memmove(argv + i, argv + i + 2, (size_t)(argc - i - 1) * sizeof *argv);
            argc -= 2;
            i--;
        }
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}

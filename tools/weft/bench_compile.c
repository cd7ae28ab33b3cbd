/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled graphs in one thread: a chain of 8 element-wise operations over 64 MiB and a block of
 * softmax and layer norm, compiled and eagerly, beside a copy into new memory, which reads and
 * writes as much, in time of the thread; a small network, beside its matrix products; what a call, a capture and a
 * compilation cost; and the steps of bench_step.c.  Where Python has PyTorch, the same in PyTorch, eagerly and by
 * torch.compile, by bench/peers/torch_compile.py.
 */
#include "bench.h"
#include "bench_step.h"
#include "bench_tree.h"

#include <weft/weft.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 64 << 20, WIDTH = 1024, BATCH = 256, TURNS = 7, CALLS = 1000, ARGUMENTS = 20 };
static const double UNDISTURBED = 0.1; /* the lowest tenth of the turns counts */

typedef weft_status function(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                             void *user);

static weft_status chain(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs, (void)user;
    weft_tensor *x = weft_relu(weft_add_scalar(weft_mul_scalar(in[0], 1.5), 0.25));
    x = weft_sub_scalar(weft_mul(x, x), 1);
    out[0] = weft_maximum_scalar(weft_abs(weft_neg(x)), 0.5);
    return WEFT_OK;
}

static weft_status chain_exp(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                             void *user)
{
    (void)ins, (void)outs, (void)user;
    weft_tensor *x = weft_tanh(weft_add_scalar(weft_mul_scalar(in[0], 1.5), 0.25));
    x = weft_sub_scalar(weft_mul(x, x), 1);
    out[0] = weft_maximum_scalar(weft_abs(weft_neg(x)), 0.5);
    return WEFT_OK;
}

static weft_status block(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs, (void)user;
    weft_tensor *n = weft_layer_norm(weft_mul_scalar(in[0], 0.5), 1, in[1], in[2], 1e-5);
    out[0] = weft_softmax(weft_add(n, in[0]), -1);
    return WEFT_OK;
}

static weft_status network(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs, (void)user;
    weft_tensor *h = weft_gelu(weft_add(weft_matmul(in[0], in[1]), in[2]));
    out[0] = weft_softmax(weft_add(weft_matmul(h, in[1]), in[2]), -1);
    return WEFT_OK;
}

static weft_status products(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                            void *user)
{
    (void)ins, (void)outs, (void)user;
    out[0] = weft_matmul(weft_matmul(in[0], in[1]), in[1]);
    return WEFT_OK;
}

/* As much is read and written, into new memory, as a result is: clearing it is the kernel's work, which
 * no loop can save. */
static weft_status copy(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs, (void)user;
    out[0] = weft_clone(in[0]);
    return out[0] ? WEFT_OK : weft_last_status();
}

/* Inputs of which it needs two: what remains are the guards. */
static weft_status few(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs, (void)user;
    out[0] = weft_add(in[0], in[ARGUMENTS - 1]);
    return WEFT_OK;
}

static weft_compiled *compile(function *what, const char *backend)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    return weft_compile(what, NULL, &opts);
}

/* Nanoseconds of a call; `compiled` NULL: plainly.  -1 if it fails. */
static double measure(function *what, weft_compiled *compiled, weft_tensor *const *in, int ins,
                      int calls)
{
    double turns[TURNS];
    for (int turn = -1; turn < TURNS; turn++) { /* the first compiles */
        int64_t start = bench_ns();
        for (int i = 0; i < calls; i++) {
            weft_tensor *out;
            if (weft_scope_open() < 0)
                return -1;
            weft_status status = compiled ? weft_compiled_call(compiled, in, ins, &out, 1)
                                          : what(in, ins, &out, 1, NULL);
            weft_scope_close();
            if (status < 0)
                return -1;
        }
        if (turn >= 0)
            turns[turn] = (double)(bench_ns() - start) / calls;
    }
    return bench_quantile(turns, TURNS, UNDISTURBED);
}

/* The first call of a new compiled function, less the second: capture, passes, code.  -1 if it
 * fails. */
static double first_call(function *what, const char *backend, weft_tensor *const *in, int ins)
{
    weft_tensor *out;
    if (weft_scope_open() < 0)
        return -1;
    weft_compiled *compiled = compile(what, backend);
    int64_t start = bench_ns(), middle;
    weft_status status =
        compiled ? weft_compiled_call(compiled, in, ins, &out, 1) : weft_last_status();
    middle = bench_ns();
    if (status >= 0)
        status = weft_compiled_call(compiled, in, ins, &out, 1);
    double extra = (double)(2 * middle - start - bench_ns());
    weft_scope_close();
    return status < 0 ? -1 : extra > 0 ? extra : 0;
}

/* The same of many functions one after the other: the first pays for code and memory that no capture
 * has touched before, several times what it costs later. */
static double many_first_calls(function *what, const char *backend, weft_tensor *const *in, int ins)
{
    enum { FUNCTIONS = 20 };
    double turns[FUNCTIONS];
    for (int i = 0; i < FUNCTIONS; i++)
        if ((turns[i] = first_call(what, backend, in, ins)) < 0)
            return -1;
    return bench_quantile(turns, FUNCTIONS, UNDISTURBED);
}

enum { PEERS = 8 };

/* Pairs of eager and compiled nanoseconds; 0 where PyTorch said nothing. */
static void ask_torch(double *ns)
{
    char line[64];
    int row = 0;
    FILE *from = bench_tree_python("torch_compile.py", 60);
    while (from && row < PEERS && fgets(line, sizeof line, from))
        ns[row++] = strtod(line, NULL);
    if (from)
        pclose(from);
}

/* What is measured beside its floor. */
typedef struct contest {
    const char *name;
    function *what, *floor;
    weft_tensor *const *in;
    int ins;
} contest;
enum { FLOOR, FAST, PLAIN, WAYS, CONTEST_TURNS = 15 };

/* Nanoseconds of one call; -1 if it fails. */
static double once(const contest *c, function *what, weft_compiled *compiled)
{
    weft_tensor *out;
    if (weft_scope_open() < 0)
        return -1;
    int64_t start = bench_own_ns();
    weft_status status = compiled ? weft_compiled_call(compiled, c->in, c->ins, &out, 1)
                                  : what(c->in, c->ins, &out, 1, NULL);
    double ns = (double)(bench_own_ns() - start);
    weft_scope_close();
    return status < 0 ? -1 : ns;
}

/* All take turns: whatever slows the machine slows them all. */
static int hold(const contest *c, int count, double ns[WAYS])
{
    double turns[WAYS][CONTEST_TURNS];
    weft_compiled *fast = compile(c->what, "c");
    if (!fast)
        return -1;
    for (int turn = -1; turn < count; turn++) /* the first compiles */
        for (int way = 0; way < WAYS; way++) {
            double took = once(c, way == FLOOR ? c->floor : c->what, way == FAST ? fast : NULL);
            if (took < 0)
                return -1;
            if (turn >= 0)
                turns[way][turn] = took;
        }
    for (int way = 0; way < WAYS; way++)
        ns[way] = bench_quantile(turns[way], count, UNDISTURBED);
    return 0;
}

static int print_contest(bench_style *style, contest c, const double *torch)
{
    char line[80];
    double ns[WAYS];
    if (hold(&c, bench_turns(style, CONTEST_TURNS), ns) < 0)
        return 1;
    double floor = ns[FLOOR] / 1e3;
    snprintf(line, sizeof line, "%s, c", c.name);
    bench_row(style, line, 1, "us", ns[FAST] / 1e3, floor);
    bench_row(style, "  eager", 1, "us", ns[PLAIN] / 1e3, floor);
    if (torch[0] > 0)
        bench_row(style, "  PyTorch eager", 1, "us", torch[0] / 1e3, floor);
    if (torch[1] > 0)
        bench_row(style, "  torch.compile", 1, "us", torch[1] / 1e3, floor);
    return 0;
}

/* What is around the work: guards, capture, compilation with an empty cache and with a full one. */
static int print_costs(bench_style *style, weft_tensor *const *net)
{
    weft_tensor *in[ARGUMENTS];
    for (int i = 0; i < ARGUMENTS; i++)
        in[i] = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    double call = measure(few, compile(few, "c"), in, ARGUMENTS, CALLS);
    double plain = measure(few, NULL, in, ARGUMENTS, CALLS);
    bench_row(style, "call, 20 inputs", 1, "ns", call - plain, 0);
    double once = first_call(network, "aot_eager", net, 3);
    bench_row(style, "capture of 6 operations, first", 1, "us", once / 1e3, 0);
    double capture = many_first_calls(network, "aot_eager", net, 3);
    bench_row(style, "  later ones", 1, "us", capture / 1e3, 0);
    double warm = many_first_calls(network, "c", net, 3);
    bench_row(style, "compile, warm", 1, "us", warm / 1e3, 0);
    return call < 0 || plain < 0 || once < 0 || capture < 0 || warm < 0;
}

static char folder[64]; /* of the empty cache */

/* As the signal would have ended us, but without the folder.  Everything here may be called in a
 * handler. */
static void leave(int number)
{
    pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(127);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
    signal(number, SIG_DFL);
    raise(number);
}

static void leave_by(void (*handler)(int))
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        signal(ends[i], handler);
}

/* With an empty cache, which goes again. */
static int print_cold(bench_style *style, weft_tensor *const *net)
{
    char command[80];
    const char *before = getenv("WEFT_CACHE_DIR");
    char *kept = before ? strdup(before) : NULL;
    snprintf(folder, sizeof folder, "/tmp/weft-bench-%d", (int)getpid());
    if (mkdir(folder, 0700))
        return 1;
    leave_by(leave);
    setenv("WEFT_CACHE_DIR", folder, 1);
    double cold = first_call(network, "c", net, 3);
    if (kept)
        setenv("WEFT_CACHE_DIR", kept, 1);
    else
        unsetenv("WEFT_CACHE_DIR");
    free(kept);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    bench_row(style, "compile, cold", 1, "us", cold / 1e3, 0);
    int left = system(command);
    leave_by(SIG_DFL);
    return cold < 0 || left != 0;
}

static int run(bench_style *style)
{
    int64_t rows = BYTES / 4 / WIDTH;
    double torch[PEERS] = {0};
    weft_seed(1);
    weft_tensor *in[3] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rows, WIDTH)),
                          weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(WIDTH)),
                          weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(WIDTH))};
    /* Weights as layers begin with: from larger ones gelu makes numbers so small that an x86-64
     * processor multiplies them by microcode. */
    weft_tensor *weight = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(WIDTH, WIDTH));
    weft_tensor *net[3] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(BATCH, WIDTH)),
                           weft_mul_scalar(weight, 1.0 / 32), in[1]};
    weft_tensor *small[3] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 64)),
                             weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64, 64)),
                             weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64))};
    if (!in[0] || !in[2] || !net[1] || !small[2])
        return 1;
    int failed = print_cold(style, small);
    failed |= print_costs(style, small);
    ask_torch(torch);
    failed |= print_contest(style, (contest){"8 operations, 64 MiB", chain, copy, in, 1}, torch);
    failed |=
        print_contest(style, (contest){"with tanh, 64 MiB", chain_exp, copy, in, 1}, torch + 2);
    failed |=
        print_contest(style, (contest){"norm, softmax, 64 MiB", block, copy, in, 3}, torch + 4);
    failed |= print_contest(style, (contest){"network of 2 products", network, products, net, 3},
                            torch + 6);
    return failed || bench_step_gpt(style);
}

int bench_compile(bench_style *style)
{
    if (weft_scope_open() < 0)
        return 1;
    int failed = run(style);
    if (failed)
        fprintf(stderr, "weft bench compile: %s\n", weft_last_error());
    weft_scope_close();
    return failed || bench_step_parallel(style);
}

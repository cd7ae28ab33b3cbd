/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: what a function of tensors does, captured without running it, printed, and run again;
 * and compiled functions, which do that behind the caller's back.
 *
 * A function is captured by calling it on stand-ins.  It may use all of the tensor API; its plain C
 * (loops, branches on shapes, numbers) is taken as it is now.  Tensors that it finds outside its
 * arguments become inputs too.  What it writes, resizes or frees is written down, and the real
 * tensors stay as they were.  A function that asks for a value (weft_item, weft_tensor_data,
 * printing, comparing) cannot be captured: nobody knows it yet.
 *
 *     static weft_status step(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
 *                             void *user)
 *     {
 *         (void)ins, (void)outs;
 *         out[0] = weft_add(weft_all_reduce(in[0], WEFT_SUM, user), in[1]);
 *         return WEFT_OK;                     // a NULL result is the error it stands for
 *     }
 *     ...
 *     weft_compiled *fast = weft_compile(step, world, NULL);
 *     weft_compiled_call(fast, (weft_tensor *[]){x, y}, 2, &z, 1);
 */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include "weft/grad.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_graph weft_graph;
typedef struct weft_compiled weft_compiled;

/* Takes `ins` tensors, puts `outs` results into `out`.  An argument may be a result. */
typedef weft_status (*weft_graph_function)(weft_tensor *const *in, int ins, weft_tensor **out,
                                           int outs, void *user);

/* Whether this thread is capturing: tensors are stand-ins, nothing runs. */
WEFT_API bool weft_tracing(void);

/*
 * Called while capturing: what was captured depends on these bytes, which are neither tensors nor
 * arguments.  A compiled function compares them before it runs what it has, and captures anew if
 * they differ.  The memory must stay readable as long as the compiled function lives.  At other
 * times it does nothing.
 */
WEFT_API weft_status weft_watch(const void *memory, size_t bytes);

/* Captures one call.  The graph belongs to the current scope. */
WEFT_API weft_graph *weft_graph_capture(const char *name, weft_graph_function function, void *user,
                                        weft_tensor *const *in, int ins, int outs);
/* Runs it: `in` are the arguments, in their order.  Tensors that the function found elsewhere are
 * taken from where they were found. */
WEFT_API weft_status weft_graph_run(weft_graph *graph, weft_tensor *const *in, int ins,
                                    weft_tensor **out, int outs);

/* The graph as text into `out`, as snprintf does: returns the length of the whole text, or a
 * negative status.  weft_graph_parse reads it; its errors name the line. */
WEFT_API int weft_graph_text(const weft_graph *graph, char *out, size_t bytes);
WEFT_API weft_graph *weft_graph_parse(const char *text);

/* How to compile.  Start from WEFT_COMPILE_OPTS. */
typedef struct weft_compile_opts {
    size_t size;         /* of this struct */
    const char *name;    /* of the graphs; NULL: "function" */
    const char *backend; /* NULL: "eager", operations one by one; "aot_eager": without writes in
                            place, these at the end, and gradients by a backward of their own;
                            "c": that, compiled by the C compiler */
    bool fullgraph;      /* what cannot be captured is an error; otherwise it runs as it is */
    bool agree;          /* ranks compare the collectives of a capture before its first run; they
                            must capture together, or wait for each other until the time is up */
    bool as_captured; /* collectives stay as they were captured.  Otherwise backend "c" puts small
                            ones together, and all_reduces on symmetric memory, which all ranks of a
                            group must do alike: for functions that have the same collectives on all
                            ranks but compute something else between them (WEFT_ERR_MISMATCH) */
} weft_compile_opts;

/* weft_compile_opts opts = WEFT_COMPILE_OPTS; */
#define WEFT_COMPILE_OPTS                                    \
    {                                                        \
        sizeof(weft_compile_opts), 0, 0, false, false, false \
    }

/*
 * A function that is captured when it is called for the first time, and again when what was
 * captured does not fit the arguments: their dtypes, shapes, strides, devices, which of them share
 * memory or are the same, which are freed; or watched memory.  It keeps at most 8 captures and runs
 * the function itself beyond that.  Calls take one thread at a time.
 */
WEFT_API weft_compiled *weft_compile(weft_graph_function function, void *user,
                                     const weft_compile_opts *opts);
WEFT_API weft_status weft_compiled_call(weft_compiled *compiled, weft_tensor *const *in, int ins,
                                        weft_tensor **out, int outs);

/*
 * A backward that is captured when it runs for the first time, and again when the graph of
 * gradients is another one: other operations, shapes, hooks, or a leaf that had no gradient and has
 * one now.  Everything on the way becomes part of it: compiled functions, adding to leaves, and
 * hooks, which are called while capturing only; what they do is done each time.  So a hook must not
 * ask for values, and must know by weft_tracing() that nothing is being computed.  A hook whose
 * `user` is another pointer is another hook.  weft_retain_grad and create_graph run as they are.
 */
WEFT_API weft_compiled *weft_compile_backward(const weft_compile_opts *opts);
/* As weft_backward_all. */
WEFT_API weft_status weft_compiled_backward(weft_compiled *compiled, weft_tensor *const *outputs,
                                            size_t count, const weft_backward_opts *opts);

typedef struct weft_compiled_info {
    int frames;     /* captures made so far */
    int ops;        /* nodes in all of them */
    int entries;    /* captures that are kept */
    uint64_t calls; /* of the compiled function */
    uint64_t plain; /* calls that ran the function itself */
    char miss[256]; /* the guard that failed last; "" if none did */
} weft_compiled_info;
WEFT_API weft_status weft_compiled_describe(const weft_compiled *compiled, weft_compiled_info *out);

/* The C compiler that backend "c" uses, and the folder of what was compiled; `reason` says why there
 * is none, and graphs are interpreted. */
typedef struct weft_compiler_info {
    char program[1024]; /* "": none */
    char folder[1200];  /* "": none that may be used */
    char reason[1200];
    char cuda[1200]; /* the compiler for functions on GPUs, or "none: " and why */
} weft_compiler_info;
WEFT_API weft_status weft_compiler_describe(weft_compiler_info *out);

/* Everything that is known about it, as text for people: as weft_graph_text. */
WEFT_API int weft_compiled_explain(const weft_compiled *compiled, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: what a function of tensors does, captured without running it, to be printed and run
 * again; and compiled functions, which capture and run graphs automatically.
 *
 * A function is captured by calling it on stand-ins.  It may use the whole tensor API.  Its plain C
 * code (loops, branches on shapes, numbers) is fixed as it ran during the capture.  Tensors that it
 * uses beside its arguments become inputs too.  Writes, resizes and frees are recorded, and the
 * real tensors stay as they were.  A function that asks for a value (weft_item, weft_tensor_data,
 * printing, comparing) cannot be captured, because the value is not known yet.
 *
 *     static weft_status step(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
 *                             void *user)
 *     {
 *         (void)ins, (void)outs;
 *         out[0] = weft_add(weft_all_reduce(in[0], WEFT_SUM, user), in[1]);
 *         return WEFT_OK;                     // a NULL result makes the call fail
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

/* Takes `ins` tensors and stores `outs` results in `out`.  A result may be one of the arguments. */
typedef weft_status (*weft_graph_function)(weft_tensor *const *in, int ins, weft_tensor **out,
                                           int outs, void *user);

/* Whether this thread is capturing: tensors are stand-ins, and nothing runs. */
WEFT_API bool weft_tracing(void);

/*
 * Declares, during a capture, that the captured function depends on these bytes, which are neither
 * tensors nor arguments.  A compiled function compares them before it runs a capture, and captures
 * again if they differ.  The memory must stay readable as long as the compiled function exists.
 * Outside a capture this does nothing.
 */
WEFT_API weft_status weft_watch(const void *memory, size_t bytes);

/* Captures one call.  The graph belongs to the current scope. */
WEFT_API weft_graph *weft_graph_capture(const char *name, weft_graph_function function, void *user,
                                        weft_tensor *const *in, int ins, int outs);
/* Runs the graph.  `in` holds the arguments, in order.  Tensors that the function used beside its
 * arguments are taken from where they were found. */
WEFT_API weft_status weft_graph_run(weft_graph *graph, weft_tensor *const *in, int ins,
                                    weft_tensor **out, int outs);

/* Writes the graph as text to `out`, as snprintf does.  Returns the length of the whole text, or a
 * negative status.  weft_graph_parse reads the text; its errors name the line. */
WEFT_API int weft_graph_text(const weft_graph *graph, char *out, size_t bytes);
WEFT_API weft_graph *weft_graph_parse(const char *text);

/* When the function is called again, on stand-ins, to see whether it still calls what was captured, with the same
 * numbers: a plain C value that it depends on may have changed without being watched. */
typedef enum weft_check {
    WEFT_CHECK_SOMETIMES, /* at the second call, then after 1, 2, 4 ... 512 runs */
    WEFT_CHECK_ALWAYS,    /* at every call; costs a capture, about a microsecond an operation */
    WEFT_CHECK_NEVER      /* plain values are constants, or watched */
} weft_check;

/* How to compile.  Start from WEFT_COMPILE_OPTS. */
typedef struct weft_compile_opts {
    size_t size;      /* of this struct */
    const char *name; /* of the graphs; NULL: "function" */
    /* NULL or "eager": operations run one by one.  "aot_eager": in-place writes are moved to the
     * end, and gradients have a captured backward.  "c": the same, compiled by the C compiler. */
    const char *backend;
    /* It is an error if the function cannot be captured.  Otherwise it then runs uncompiled. */
    bool fullgraph;
    /* Ranks compare the collectives of a capture before its first run.  They must capture together;
     * otherwise they wait for each other until the time limit. */
    bool agree;
    /* Keeps collectives as captured.  Otherwise backend "c" combines small ones and moves
     * all_reduces to symmetric memory, and all ranks of a group must do the same.  Set this if the
     * ranks have the same collectives but compute different things between them: that would be
     * WEFT_ERR_MISMATCH. */
    bool as_captured;
    /* On a GPU, backends "aot_eager" and "c" run a function as one device graph from its second call
     * on, where that can be; weft_compiled_explain says where not.  Results then lie in memory that
     * is used again once they are released. */
    bool device_graph;
    weft_check check;
} weft_compile_opts;

/* weft_compile_opts opts = WEFT_COMPILE_OPTS; */
#define WEFT_COMPILE_OPTS                                                                 \
    {                                                                                     \
        sizeof(weft_compile_opts), 0, 0, false, false, false, false, WEFT_CHECK_SOMETIMES \
    }

/*
 * Makes a function that is captured when it is first called, and again when no capture fits the
 * arguments: their dtypes, shapes, strides and devices, which of them share memory or are the same,
 * which are freed, or the content of watched memory.  It keeps at most 8 captures; beyond that it
 * runs the function itself.  Only one thread at a time may call it.
 */
WEFT_API weft_compiled *weft_compile(weft_graph_function function, void *user,
                                     const weft_compile_opts *opts);
WEFT_API weft_status weft_compiled_call(weft_compiled *compiled, weft_tensor *const *in, int ins,
                                        weft_tensor **out, int outs);

/*
 * Makes a backward that is captured when it first runs, and again when the graph of gradients
 * differs: other operations, shapes or hooks, or a leaf that had no gradient and has one now.
 * Everything on the way becomes part of it: compiled functions, accumulation into leaves, and
 * hooks.  A hook is called only during the capture, and what it did then is repeated each time.  So
 * a hook must not ask for values; it can check weft_tracing() to see that nothing is being
 * computed.  A hook with a different `user` pointer is a different hook.  With weft_retain_grad or
 * create_graph, backward runs uncompiled.
 */
WEFT_API weft_compiled *weft_compile_backward(const weft_compile_opts *opts);
/* Like weft_backward_all. */
WEFT_API weft_status weft_compiled_backward(weft_compiled *compiled, weft_tensor *const *outputs,
                                            size_t count, const weft_backward_opts *opts);

typedef struct weft_compiled_info {
    int frames;     /* captures made so far */
    int ops;        /* nodes in all of them */
    int entries;    /* captures that are kept */
    uint64_t calls; /* of the compiled function */
    uint64_t plain; /* calls that ran the function itself */
    char miss[256]; /* the last guard that failed; "" if none has */
} weft_compiled_info;
WEFT_API weft_status weft_compiled_describe(const weft_compiled *compiled, weft_compiled_info *out);

/* The C compiler that backend "c" uses, and the folder for compiled code.  If there is no compiler,
 * `reason` says why, and graphs are interpreted. */
typedef struct weft_compiler_info {
    char program[1024]; /* "" if there is none */
    char folder[1200];  /* or "" if none is usable */
    char reason[1200];
    char cuda[1200]; /* the compiler for GPU functions, or "none: " and the reason */
} weft_compiler_info;
WEFT_API weft_status weft_compiler_describe(weft_compiler_info *out);

/*
 * Writes what became of the function as text for people, as weft_graph_text does: where its time goes, by
 * operation and by node, how much of it is in compiled groups and why the rest is not.  At most 150
 * lines: of a large function without its graphs, which weft_compiled_details has, with the plans of memory and
 * the generated code.  Nodes have the numbers of the graph that is printed.
 */
WEFT_API int weft_compiled_explain(const weft_compiled *compiled, char *out, size_t bytes);
WEFT_API int weft_compiled_details(const weft_compiled *compiled, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a graph pure: no writes in place but at the end, where every input that was changed gets
 * its last content, size, storage and version.  The nodes are called again, on new fakes
 * (trace.h).  A write becomes a new value for what the storage holds; a node that reads a tensor on that
 * storage afterwards reads a view of the new value, with the same strides.
 *
 * What a storage holds is either as it was made, or one tensor that covers it (`whole`), or its
 * elements in one row (`flat`), in which a write to a part is a view_scatter.  A storage that is
 * seen as several dtypes, that is resized though it is no input's, or that a row writes which has
 * no pure form, is left alone: its nodes stay as they are, in their order.
 */
#ifndef WEFT_GRAPH_PURE_H
#define WEFT_GRAPH_PURE_H

#include "graph/ir/trace.h"

/* One storage of the old graph. */
typedef struct weft_i_content {
    int first;          /* the first value on it; -1: none */
    int input;          /* the first input on it; -1: none */
    bool alone;         /* left as it is */
    bool undefined;     /* it was freed: what it holds is unknown */
    int64_t begin, end; /* elements that any value reaches */
    int epoch;          /* counts writes; a fake from an older one is out of date */
    weft_tensor *flat, *whole;
    int layout;                /* the old value that has the layout of `whole`; -1: it is a row */
    size_t bytes, first_bytes; /* now, and at the entry */
    bool shrunk_before_set;    /* resized, while an input was on it */
    int *written;              /* values whose elements were written, of which no two have the same
                                  layout */
    int written_count;
} weft_i_content;

/* One counter: `base` plus `more`. */
typedef struct weft_i_count {
    enum { WEFT_I_COUNT_ENTRY, WEFT_I_COUNT_NUMBER, WEFT_I_COUNT_VALUE } base;
    int input;             /* whose it is; -1: no input's */
    int64_t more;          /* writes since, or the number itself */
    weft_tensor *value;    /* the base, if it is a value */
    weft_tensor *at_entry; /* of an input: what it was, as a value */
    bool hidden;           /* it was set */
} weft_i_count;

typedef struct weft_i_pure {
    const weft_graph *old;
    weft_i_trace trace;
    weft_tensor **fakes;  /* of each old value: one that has its elements */
    weft_tensor **inputs; /* of each input: the one that stands for it, whatever it holds */
    int *epochs;          /* of which epoch of its content */
    int *roots;           /* of each old value: the first that is the same tensor */
    int *latest;          /* of each root: the last */
    weft_i_content *contents;
    weft_i_count *counts;
    bool *loud; /* of each input: changed where gradients are recorded */
} weft_i_pure;

/* A call in the new graph; NULL and an error. */
weft_tensor *weft_i_pure_call(weft_i_pure *p, const weft_i_op *op, const weft_i_arg *args);
#define WEFT_I_PURE(p_, op_, ...) \
    weft_i_pure_call(p_, &weft_i_op_##op_, (weft_i_arg[]){__VA_ARGS__})

weft_i_content *weft_i_pure_content(weft_i_pure *p, int value);
/* A fake with the elements of an old value as they are now; NULL and an error. */
weft_tensor *weft_i_pure_read(weft_i_pure *p, int value);
/* `content`, a new tensor of the shape and dtype of the old value `value`, is written to it;
 * `result` is the value that it is afterwards. */
weft_status weft_i_pure_write(weft_i_pure *p, int value, int result, weft_tensor *content);
/* The storage of the value has `bytes` now. */
weft_status weft_i_pure_resize(weft_i_pure *p, int value, size_t bytes);
/* A view with the layout of an old value, of a fake on the storage that `from`, an old value on the
 * same storage, has. */
weft_tensor *weft_i_pure_view(weft_i_pure *p, weft_tensor *x, int64_t begin, int value);
bool weft_i_pure_same_layout(const weft_i_graph_value *a, const weft_i_graph_value *b);

/* What the counter is now, as a value; NULL and an error. */
weft_tensor *weft_i_pure_count(weft_i_pure *p, const weft_i_count *count);

/* Gives the inputs what they have in the end; the values of the outputs. */
weft_status weft_i_pure_finish(weft_i_pure *p, int *outputs);

#endif

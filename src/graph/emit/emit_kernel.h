/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of nodes as kernels of a GPU, in the dialect and with the functions of
 * src/backends/cuda/kernels, whose bits they have.
 */
#ifndef WEFT_GRAPH_EMIT_KERNEL_H
#define WEFT_GRAPH_EMIT_KERNEL_H

#include "graph/emit/emit_value.h"

/* How a kernel is launched. */
typedef struct weft_i_emit_launch {
    uint64_t tasks;
    int threads;
    bool by_threads; /* a task is a thread's; else a block's */
} weft_i_emit_launch;

/* False if the group is too much for one kernel; `*why` says why. */
bool weft_i_emit_kernel_fits(const weft_i_emit_outline *outline, const char **why);

/* The group as a kernel FUSED with one parameter of type FUSED_ADDRESSES: addresses of the inputs,
 * then of the outputs. */
void weft_i_emit_kernel(weft_i_text *s, const weft_i_emit_outline *outline);
weft_i_emit_launch weft_i_emit_kernel_launch(const weft_i_emit_outline *outline);

/* What stands before all kernels. */
void weft_i_emit_kernel_prelude(weft_i_text *s);

/* ---- its two files ---- */

/* Forgets what is needed; notes that a value is, and all it is made of. */
void weft_i_emit_need_nothing(weft_i_emit_writing *w);
void weft_i_emit_need(weft_i_emit_writing *w, int value, bool wide);
void weft_i_emit_need_member(weft_i_emit_writing *w, const weft_i_emit_member *m);
/* What is needed: of each row, once; and of an element `i`. */
void weft_i_emit_put_row_values(weft_i_emit_writing *w, const char *indent);
void weft_i_emit_put_elements(weft_i_emit_writing *w, const char *indent);
/* A member's element into its result. */
void weft_i_emit_put_result(weft_i_emit_writing *w, const weft_i_emit_member *m, const char *to);

#endif

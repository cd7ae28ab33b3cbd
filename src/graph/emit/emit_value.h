/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expression of one element, in words that C functions (emit_text.c) and kernels
 * (emit_element.c) share.  Each of their preludes defines, for both small floats, widen_f16,
 * narrow_f16 and round_f16, and for numbers without a literal float_bits and double_bits.  Names: v3
 * is what member 3 of the group makes, x5 an element of operand 5, which lies at p5.
 */
#ifndef WEFT_GRAPH_EMIT_VALUE_H
#define WEFT_GRAPH_EMIT_VALUE_H

#include "graph/emit/emit.h"

typedef struct weft_i_emit_writing {
    weft_i_text *s;
    const weft_i_emit_outline *o;
    bool any;  /* angles of any size */
    int width; /* elements that a thread takes at a time */
    /* of a C function */
    int phase;
    /* of a kernel: what is needed */
    bool members[WEFT_I_EMIT_MEMBERS];
    bool operands[3 * WEFT_I_EMIT_OPERANDS];
} weft_i_emit_writing;

/* Types in memory, and of variables. */
const char *weft_i_emit_stored(weft_dtype dtype);
const char *weft_i_emit_variable(weft_dtype dtype);
/* The number of a member; its node; the dtype of a value. */
int weft_i_emit_number(const weft_i_emit_writing *w, const weft_i_emit_member *m);
const weft_i_graph_node *weft_i_emit_node(const weft_i_emit_writing *w,
                                          const weft_i_emit_member *m);
weft_dtype weft_i_emit_dtype(const weft_i_emit_writing *w, int value);
bool weft_i_emit_is_angle(const weft_i_emit_writing *w, const weft_i_emit_member *m);

/* Around what is rounded to the dtype, which only small floats are. */
void weft_i_emit_open_round(weft_i_emit_writing *w, weft_dtype dtype);
void weft_i_emit_close_round(weft_i_emit_writing *w, weft_dtype dtype);
/* The value as `to`; the same of argument `i` of a member. */
void weft_i_emit_put_as(weft_i_emit_writing *w, int value, bool wide, weft_dtype to);
void weft_i_emit_put_term(weft_i_emit_writing *w, const weft_i_emit_member *m, int i,
                          weft_dtype to);
/* What a member of one element is made of: an operation, a constant or another value. */
void weft_i_emit_put_expression(weft_i_emit_writing *w, const weft_i_emit_member *m);
/* A line: x5 is the element of operand 5, which lies at p5. */
void weft_i_emit_put_load(weft_i_emit_writing *w, int k, const char *indent);
/* Sums of columns: the text before the rows of each LANES rows, before each, and behind all. */
typedef enum weft_i_emit_stage {
    WEFT_I_EMIT_BEFORE,
    WEFT_I_EMIT_ROW_BEGINS,
    WEFT_I_EMIT_AFTER
} weft_i_emit_stage;
void weft_i_emit_put_columns(weft_i_emit_writing *w, weft_i_emit_stage stage);
/* The end of `p5[i] = `: what member `m` made. */
void weft_i_emit_put_stored(weft_i_emit_writing *w, const weft_i_emit_member *m);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as the two files see them that make and that compile them. */
#ifndef WEFT_GRAPH_EMIT_ROW_H
#define WEFT_GRAPH_EMIT_ROW_H

#include "graph/emit/emit_kernel.h"
#include "tensor/object/code.h"

#include <stdatomic.h>

typedef struct weft_i_emit_made {
    weft_dtype dtype;
    weft_shape shape;
    int64_t stride[WEFT_MAX_DIMS];
} weft_i_emit_made;

struct weft_i_emit_row {
    weft_i_op op; /* first: dispatch knows only this */
    char name[40];
    char about[160]; /* the names of its nodes */
    int members;
    char *text;
    bool used[WEFT_I_EMIT_EXPRESSIONS];
    size_t ins, outs, scratch;
    size_t sums;           /* bytes of partial sums of columns; 0: it has none */
    int64_t units, work;   /* of weft_i_emit_units and weft_i_emit_work */
    bool in_place, broken; /* broken: cannot be compiled */
    weft_device device;
    weft_i_emit_launch launch; /* of devices */
    weft_i_emit_made *results;
    /* Release, pairs with the acquire of whoever runs it: the library's code is there. */
    _Atomic(weft_i_emit_code *) code;
    weft_i_emit_end *end; /* of a row with sums; written before `code` */
    /* Of devices; the same for `kernel`, which is written before. */
    atomic_bool loaded;
    weft_i_code_kernel kernel;
    weft_i_emit_row *next;
};

/* The first of all rows; the list, and what is not atomic in it, is the caller's until `unlock`. */
weft_i_emit_row *weft_i_emit_rows_lock(void);
void weft_i_emit_rows_unlock(void);

bool weft_i_emit_row_has_code(const weft_i_emit_row *row);

#endif

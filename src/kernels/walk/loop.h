/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over strided operands that every element-wise kernel uses: up to 4 operands of one
 * shape, each a pointer and strides in bytes (0 where an operand is repeated).  Operand 0 is the
 * one written.
 */
#ifndef WEFT_KERNELS_LOOP_H
#define WEFT_KERNELS_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_LOOP_DIMS = 8, WEFT_I_LOOP_OPERANDS = 4 };

typedef struct weft_i_loop {
    int ndim, operands;
    int64_t dim[WEFT_I_LOOP_DIMS];
    char *data[WEFT_I_LOOP_OPERANDS];
    int64_t stride[WEFT_I_LOOP_OPERANDS][WEFT_I_LOOP_DIMS];
} weft_i_loop;

/* One run along the innermost dimension: `n` elements of each operand, `stride` bytes apart. */
typedef void weft_i_loop_run(void *state, size_t n, char *const *data, const int64_t *stride);

/*
 * Walks all elements.  The order of dimensions is chosen for speed (operand 0's memory order) and
 * neighbouring dimensions are joined where all operands allow it, so a contiguous case is one run.
 * The shape may be empty.
 */
void weft_i_loop_each(weft_i_loop loop, weft_i_loop_run *run, void *state);

/*
 * The same by the team (base/team/team.h), where an element is `bytes` to read and write, or as much work
 * as so many: runs are cut at multiples of 64 elements, and several are under way at once.  `run` may not
 * write where another run reads or writes.
 */
void weft_i_loop_share(weft_i_loop loop, int64_t bytes, weft_i_loop_run *run, void *state);

/* The order and the joining by themselves; dimensions of size 1 are dropped. */
void weft_i_loop_join(weft_i_loop *loop);

/* Copies `n` elements of `size` bytes; strides in bytes. */
void weft_i_copy_elements(size_t size, size_t n, char *to, int64_t to_stride, const char *from,
                          int64_t from_stride);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of the kernels of tensor operations.  Strides are in bytes, dimensions outermost
 * first; a stride of 0 repeats an element.
 */
#ifndef WEFT_CUDA_KERNELS_TENSOR_LAYOUT_H
#define WEFT_CUDA_KERNELS_TENSOR_LAYOUT_H

#include "kernels/vector/update_step.h"
#include "layout.h"

enum {
    WEFT_K_INPUTS = 3,
    WEFT_K_GROUP_F32 = 8, /* elements along the last dimension that a thread takes at a time ... */
    WEFT_K_GROUP = 4,     /* ... of f32 and of wider types */
    WEFT_K_TOGETHER = 16, /* ... of packed operands of f32, bf16 or f16 */
    WEFT_K_UNITS = 32,    /* blocks of 512 elements that a block of threads reduces at a time */
    WEFT_K_LANES = 16,
    WEFT_K_ACROSS = 16, /* threads side by side that sum columns, 16 bytes each */
    WEFT_K_BLOCK = 512,
    WEFT_K_LEVELS = 56,
    WEFT_K_TURN_SIDE = 64, /* of a tile of elements of up to 4 bytes */
    WEFT_K_COPY = 1000,    /* beside the operations of kernels/vector/pointwise.def */
    WEFT_K_SCAN = 512      /* entries of an index that are compared with each other */
};

/*
 * An index that is out of range.  The kernel goes on without that element and notes the first one
 * of its launch in host memory, `op` last, with release; the host's acquire load is the partner.
 * Launches are told apart by their tickets.
 */
enum { WEFT_K_AT_GATHER = 1, WEFT_K_AT_SCATTER, WEFT_K_AT_EMBEDDING, WEFT_K_AT_EMBEDDING_GRAD };
typedef struct weft_k_fault {
    uint64_t op, index, at, size;
} weft_k_fault;

typedef struct weft_k_pointwise {
    uint64_t tasks;  /* groups of elements along the last dimension, of all rows */
    uint64_t groups; /* of a row */
    int32_t op, ndim, inputs, constants; /* constants: a bit for each input that is a number */
    int32_t made, out;                   /* dtypes: of the expression, of operand 0 */
    int32_t taken[WEFT_K_INPUTS], in[WEFT_K_INPUTS]; /* of the expression's inputs, the operands' */
    uint64_t number[WEFT_K_INPUTS];
    uint64_t dim[WEFT_K_DIMS];
    char *data[WEFT_K_INPUTS + 1];
    int64_t stride[WEFT_K_INPUTS + 1][WEFT_K_DIMS];
} weft_k_pointwise;

/* The same of operands that all lie packed, in one dtype, at multiples of 16 bytes: see packed.h.
 * Numbers of a choice fill 32 bits; its truth lies at a multiple of as many bytes as it has for a
 * vector. */
typedef struct weft_k_packed {
    uint64_t bytes; /* of the result */
    char *to;
    const char *from[WEFT_K_INPUTS];
    uint64_t number[WEFT_K_INPUTS];
    int32_t op, inputs, constants, pad;
} weft_k_packed;

/* A step of an optimizer.  Operands of the loop: the parameter, its gradient, then its velocity or
 * its two moments; all but the gradient have the dtype `out`. */
enum { WEFT_K_SGD, WEFT_K_MOMENTUM, WEFT_K_ADAMW };
typedef struct weft_k_update {
    weft_k_pointwise loop;
    weft_i_sgd sgd;
    weft_i_adamw adamw;
} weft_k_update;

/* A copy that turns: neighbours of the source are rows of the result, at one step; see turn.h. */
typedef struct weft_k_turn {
    char *to;
    const char *from;
    uint64_t tasks;             /* tiles */
    uint64_t rows, columns;     /* of the result, whose columns are adjacent */
    int64_t to_step, from_step; /* from row to row, and from column to column */
    int32_t size, ndim;         /* of an element; dimensions outside */
    uint64_t dim[WEFT_K_DIMS];
    int64_t to_stride[WEFT_K_DIMS], from_stride[WEFT_K_DIMS];
} weft_k_turn;

/* A reduction, or rows that are normalised: every row is a result, its elements are reduced. */
typedef struct weft_k_reduce {
    const char *from;
    char *to;
    uint64_t *nodes, *places;     /* by result and node, if there is more than one */
    uint64_t results, count;      /* count: elements of one result */
    uint64_t node_count;          /* of one result: nodes are `span` blocks of elements */
    uint32_t span;                /* a power of 2, at most WEFT_K_UNITS */
    int32_t columns;              /* neighbouring results are neighbours in memory */
    int32_t which, mean, in, out; /* which: as WEFT_I_REDUCE_SUM and so on */
    int32_t compute, truth, biggest_unsigned; /* compute: f32, f64 or i64 */
    int32_t kept, reduced;
    uint64_t kept_dim[WEFT_K_DIMS], reduced_dim[WEFT_K_DIMS];
    int64_t kept_in[WEFT_K_DIMS], kept_out[WEFT_K_DIMS], reduced_in[WEFT_K_DIMS];
} weft_k_reduce;

/* Rows that are normalised.  Rows of layer_norm are packed, one after the other. */
enum {
    WEFT_K_SOFTMAX,
    WEFT_K_LOG_SOFTMAX,
    WEFT_K_SOFTMAX_GRAD, /* `from` is the result, and `grad` has its strides */
    WEFT_K_LOG_SOFTMAX_GRAD,
    WEFT_K_LAYER,
    WEFT_K_LAYER_GRAD
};
typedef struct weft_k_rows {
    const char *from, *grad;
    char *to;
    const char *weight, *bias; /* packed, of the compute type; NULL: none */
    char *moments;             /* of LAYER_GRAD: mean, rest and factor of every row */
    uint64_t rows, length;
    int64_t in_step, out_step; /* from one element of a row to the next */
    uint32_t span;
    int32_t columns, which, dtype, kept;
    double epsilon;
    uint64_t kept_dim[WEFT_K_DIMS];
    int64_t kept_in[WEFT_K_DIMS], kept_out[WEFT_K_DIMS];
} weft_k_rows;

/* The gradients of layer_norm's weight and bias: sums over rows, in blocks of 64. */
typedef struct weft_k_columns {
    const char *from, *grad, *moments;
    char *weight_parts,
        *bias_parts; /* of the compute type, by block and column; NULL: not wanted */
    char *weight, *bias;
    uint64_t rows, length, blocks;
    int32_t dtype, compute;
} weft_k_columns;

/* take_along, embedding: element by element of the index. */
typedef struct weft_k_gather {
    char *to;
    const char *from, *index;
    weft_k_fault *fault;
    uint64_t ticket, count, limit;
    int64_t by_index; /* the step in `from` that an index makes */
    int32_t ndim, size, index_dtype, op;
    uint64_t dim[WEFT_K_DIMS];
    int64_t to_stride[WEFT_K_DIMS], from_stride[WEFT_K_DIMS], index_stride[WEFT_K_DIMS];
} weft_k_gather;

/* scatter_add: lines along the dimension that the index decides.  `to` is packed, of the compute
 * type; entries of one line are added in their order. */
typedef struct weft_k_scatter {
    char *to;
    const char *from, *index;
    weft_k_fault *fault;
    uint64_t ticket, lines, length, limit;
    int64_t by_index, from_step, index_step;
    int32_t ndim, dtype, compute, index_dtype, op, wide; /* wide: a block of threads a line */
    uint64_t dim[WEFT_K_DIMS];
    int64_t to_stride[WEFT_K_DIMS], from_stride[WEFT_K_DIMS], index_stride[WEFT_K_DIMS];
} weft_k_scatter;

/* embedding_grad: row i of `from` is added to row index[i] of `to`; all packed. */
typedef struct weft_k_spread {
    char *to;
    const char *from;
    const int64_t *index;
    weft_k_fault *fault;
    uint64_t ticket, count, width, limit;
    int32_t dtype, compute, op, pad;
} weft_k_spread;

/* Numbers out of nothing. */
enum { WEFT_K_UNIFORM, WEFT_K_NORMAL, WEFT_K_INTEGERS, WEFT_K_ARANGE };
typedef struct weft_k_make {
    char *to;
    uint64_t count, seed, counter;
    double a, b; /* low and high; mean and deviation; start and step */
    int64_t low, high;
    int32_t kind, dtype, bits, ndim;
    uint64_t dim[WEFT_K_DIMS];
    int64_t stride[WEFT_K_DIMS];
} weft_k_make;

/* A product of matrices. */
typedef struct weft_k_multiply {
    char *out;
    const char *a, *b;
    uint64_t batches, rows, columns, inner;
    int64_t out_stride[3], a_stride[3], b_stride[3]; /* batch, row, column */
    int32_t dtype, pad;
} weft_k_multiply;

#endif

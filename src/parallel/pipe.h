/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipe: what the pipelines of fused operations run on.  Chunks lie in the group's workspace, which
 * is symmetric memory; its signal pads say which chunks are ready and which have been read; copies
 * go on a stream beside that of the products.  On the CPU, where work is over when its call returns,
 * both streams are the calling thread and the signals are waited for where they stand.
 *
 * A pipe begins with an entry: the ranks meet on the host and compare what each is about to do, so
 * that a mismatch is an error on all of them before anything moves.  A rank that fails after that revokes
 * the group, since the others are in the middle of it.
 */
#ifndef WEFT_PARALLEL_PIPE_H
#define WEFT_PARALLEL_PIPE_H

#include "parallel/fused.h"
#include "symm/kind.h"
#include "symm/workspace.h"
#include "tensor/object/stream.h"
#include "weft/symm.h"

/* Signals from rank to rank; each has a channel of its own. */
typedef enum weft_i_word {
    WEFT_I_WORD_READY, /* a chunk is there */
    WEFT_I_WORD_READ,  /* it has been read */
    WEFT_I_WORD_HELD,  /* the sender has written to a slot, until it is read; taken by the reader */
    WEFT_I_WORD_HELD_NEXT, /* the same of the other slot */
    WEFT_I_WORDS
} weft_i_word;

/* What the ranks must agree on. */
typedef struct weft_i_pipe_entry {
    const char *op;
    weft_i_coll_kind kind;
    weft_group *group;
    const weft_tensor *operand;
    weft_reduction reduction;
    int dim;
    int way;               /* WEFT_I_WAY_... */
    int scaling;           /* a weft_i_scaling */
    weft_i_scratch memory; /* which memory of the group */
    size_t bytes;          /* of it */
    uint64_t place[2];     /* of an operand that is used in place: serial and offset; else 0 */
} weft_i_pipe_entry;

typedef struct weft_i_pipe {
    weft_group *group;
    int me, size;
    weft_device device;
    bool apart;               /* the ranks agree on the call, and share no memory of the device */
    bool near;                /* everybody's memory is on one device */
    weft_symm *mem;           /* the workspace or the slots; held */
    weft_stream *main, *side; /* held; NULL on the CPU */
    uint64_t number;          /* in the flight record */
} weft_i_pipe;

/* Can the group's ranks share memory of such devices?  Not asked of the others. */
bool weft_i_pipe_can(const weft_group *group, weft_device device);

/* `pipe->apart` on all ranks: of these devices they cannot; nothing has begun, and nothing is to be
 * closed. */
weft_status weft_i_pipe_open(weft_i_pipe *pipe, const weft_i_pipe_entry *entry);
/* Returns how it all ended, `status` if that is a failure. */
weft_status weft_i_pipe_close(weft_i_pipe *pipe, weft_status status);

/* A line of its own in the flight record for an operation that goes without a pipe. */
uint64_t weft_i_pipe_note(const weft_group *group, weft_i_coll_kind kind, size_t bytes, int way);

/* What is given to the device from now on goes beside the products, or with them. */
weft_status weft_i_pipe_aside(weft_i_pipe *pipe);
weft_status weft_i_pipe_back(weft_i_pipe *pipe);
/* Products from now on wait for what was given aside so far; and the other way round. */
weft_status weft_i_pipe_join(weft_i_pipe *pipe);
weft_status weft_i_pipe_fork(weft_i_pipe *pipe);

weft_status weft_i_pipe_tell(weft_i_pipe *pipe, int rank, weft_i_word word);
weft_status weft_i_pipe_hear(weft_i_pipe *pipe, int rank, weft_i_word word);
/* To, or from, all other ranks, in cyclic order. */
weft_status weft_i_pipe_tell_all(weft_i_pipe *pipe, weft_i_word word);
weft_status weft_i_pipe_hear_all(weft_i_pipe *pipe, weft_i_word word);

/* Where the half of the second turn begins, on all ranks alike: the memory may be larger than this
 * operation needs. */
size_t weft_i_pipe_half(const weft_i_pipe *pipe);
/* `rows` x `columns` at byte `at` of a rank's workspace, in the current scope. */
weft_tensor *weft_i_pipe_slot(weft_i_pipe *pipe, int rank, size_t at, int64_t rows, int64_t columns,
                              weft_dtype dtype);

/* Given to the current stream as they are: who orders them is the pipeline. */
weft_status weft_i_pipe_copy(weft_tensor *to, weft_tensor *from);
/* The same with a line in the flight record: of a chunk of `rank`. */
weft_status weft_i_pipe_move(weft_i_pipe *pipe, int rank, weft_tensor *to, weft_tensor *from);
/* out = a b; scales->b NULL: a plain product.  Operands are matrices and ready; a NULL one is what an
 * earlier call could not make. */
weft_status weft_i_pipe_multiply(weft_tensor *out, weft_tensor *a, weft_tensor *b,
                                 weft_tensor *scale, const weft_i_scales *scales);
/* The same with a line in the flight record; `rank`: whose chunk it is. */
weft_status weft_i_pipe_product(weft_i_pipe *pipe, int rank, weft_tensor *out, weft_tensor *a,
                                weft_tensor *b, weft_tensor *scale, const weft_i_scales *scales);
/* The same for a product to which `added` comes: out = factor (a b + added), rounded once.
 * WEFT_ERR_UNSUPPORTED without a message: nothing was done, and these operands take two steps. */
weft_status weft_i_pipe_product_add(weft_i_pipe *pipe, int rank, weft_tensor *out, weft_tensor *a,
                                    weft_tensor *b, weft_tensor *scale, const weft_i_scales *scales,
                                    const weft_tensor *added, double factor);
/* Entry by entry over dimension 0 of `stack`, in its order and in f32 for small floats. */
weft_status weft_i_pipe_reduce(weft_tensor *out, weft_tensor *stack, weft_reduction op);

/*
 * In how many pieces a rank's chunk of `rows` rows is copied and multiplied.  On a device a product
 * in about WEFT_FUSED_CHUNKS parts in all takes as long as a whole one; fewer have less to hide
 * copies behind, more are too small.  On the CPU a chunk is one piece.
 */
int weft_i_pipe_pieces(const weft_i_pipe *pipe, int64_t rows);
/* The rows of piece i; x itself if there is one. */
weft_tensor *weft_i_pipe_piece(weft_tensor *x, int pieces, int i);

/* The next place for a chunk of so many bytes. */
static inline size_t weft_i_pipe_round(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Room for so many bytes by turns. */
static inline size_t weft_i_pipe_twice(size_t bytes)
{
    return 2 * ((bytes + 255) / 256 * 256);
}

static inline size_t weft_i_pipe_bytes(const weft_tensor *x)
{
    return (size_t)weft_i_tensor_numel(x) * weft_dtype_size(x->dtype);
}

/* The shape of all dimensions but the last as one. */
static inline weft_shape weft_i_pipe_matrix(const weft_tensor *x)
{
    int64_t rows = 1;
    for (int i = 0; i < x->ndim - 1; i++)
        rows *= x->dim[i];
    return WEFT_SHAPE(rows, x->dim[x->ndim - 1]);
}

/* All dimensions but the last as one: x itself, a view, or a copy if it lies badly. */
static inline weft_tensor *weft_i_pipe_flat(weft_tensor *x)
{
    return x && x->ndim != 2 ? weft_reshape(x, weft_i_pipe_matrix(x)) : x;
}

#endif

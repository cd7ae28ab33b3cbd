/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside a tensor, and what the other floors ask about it. */
#ifndef WEFT_TENSOR_TENSOR_H
#define WEFT_TENSOR_TENSOR_H

#include "base/os/assert.h"
#include "base/report/status.h"
#include "base/share/dtype.h"
#include "tensor/object/scope.h"
#include "tensor/object/storage.h"
#include "weft/tensor.h"

#include <stdatomic.h>

struct weft_tensor {
    weft_i_object head;
    /* What an operation looks at first, side by side: */
    weft_storage *storage;
    weft_dtype dtype;
    int ndim;
    int64_t offset; /* elements */
    /* What follows from those and the dimensions, by weft_i_tensor_measure. */
    int64_t numel;
    size_t end;  /* byte of the storage behind the last element; 0 if there are none */
    bool packed; /* row-major without gaps */
    /* The rest: */
    bool parameter; /* weft_parameter made it: a tag that views do not inherit */
    bool passed; /* what a module's backward hooks lie behind, or a view of it: see grad/pass.c */
    bool lifted; /* a fake that stands for a real tensor */
    weft_i_version *version;
    weft_i_object *grad;  /* what the floor that owns gradients knows about it; NULL: nothing */
    weft_i_object *place; /* of a part: where it lies in the whole (shard.c); NULL: it is whole */
    weft_tensor *base; /* of a view that gradients pass: what it is a view of; held.  Else NULL */
    int64_t seen;      /* the version at which it became a view, or its history was made */
    atomic_int saved;  /* how often a graph holds it; relaxed: a hint for its own thread */
    atomic_int pinned; /* posted operations on it: weft_i_tensor_pin */
    int64_t node;      /* of a fake: the value that it is now in its capture */
    int64_t dim[WEFT_MAX_DIMS];
    int64_t stride[WEFT_MAX_DIMS]; /* elements, never negative */
};

/* The number of writes, whoever asks: no capture hears of it. */
static inline int64_t weft_i_tensor_version(const weft_tensor *x)
{
    return atomic_load_explicit(&x->version->count, memory_order_relaxed);
}

/*
 * A posted operation knows where the bytes of its operands lie, and nothing tells it of a move.  So
 * it pins them until it is over, and whoever would give a tensor other memory, or resize its
 * storage, is refused (weft_i_storage_check_pinned).  NULL is no operand.
 */
static inline void weft_i_tensor_pin(weft_tensor *x)
{
    if (!x)
        return;
    /* Relaxed: the poster's own later calls see it. */
    atomic_fetch_add_explicit(&x->pinned, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&x->storage->pinned, 1, memory_order_relaxed);
}

static inline void weft_i_tensor_unpin(weft_tensor *x)
{
    if (!x)
        return;
    WEFT_ASSERT(atomic_load_explicit(&x->pinned, memory_order_relaxed) > 0);
    /* Pairs with the acquire in weft_i_storage_check_pinned: the operation is over. */
    atomic_fetch_sub_explicit(&x->storage->pinned, 1, memory_order_release);
    atomic_fetch_sub_explicit(&x->pinned, 1, memory_order_release);
}

/* Gives the tensor another storage; its counter stays. */
void weft_i_tensor_set_storage(weft_tensor *x, weft_storage *storage);
/* Gives it storage, shape, strides and offset of another of its dtype, perhaps on another device. */
void weft_i_tensor_take_over(weft_tensor *x, const weft_tensor *source);

/* `view` is a view of x, or of what x is a view of, from now on. */
static inline void weft_i_tensor_link(weft_tensor *view, weft_tensor *x)
{
    view->base = weft_i_object_hold(x->base ? x->base : x);
    view->seen = atomic_load_explicit(&view->version->count, memory_order_relaxed);
    view->passed = x->passed;
}

/* Whether the floor that owns gradients is to be asked about calls with x. */
static inline bool weft_i_tensor_is_known(const weft_tensor *x)
{
    return x->grad || (x->base && x->base->grad);
}

/* Refuses what is no tensor, or one that was released and whose block serves no other yet. */
weft_status weft_i_tensor_refuse_dead(const char *what, const weft_tensor *x);
static inline weft_status weft_i_tensor_check_live(const char *what, const weft_tensor *x)
{
    return x->head.kind == WEFT_I_TENSOR ? WEFT_OK : weft_i_tensor_refuse_dead(what, x);
}

/* To be called after shape, strides or offset were changed. */
void weft_i_tensor_measure(weft_tensor *x);

/*
 * A tensor in the current scope over `storage`, of which it takes its own reference.  `strides`
 * NULL means row-major. `version` NULL means a fresh counter.  Checks the shape, not that it fits
 * the storage: a storage may be empty now and grow before its use.
 */
weft_tensor *weft_i_tensor_new_view(weft_storage *storage, weft_i_version *version,
                                    weft_dtype dtype, weft_shape shape, const int64_t *strides,
                                    int64_t offset);
weft_tensor *weft_i_tensor_new_strided(weft_storage *storage, weft_dtype dtype, weft_shape shape,
                                       const int64_t *strides, int64_t offset);

/* A view of the same dtype of a subset of `base`'s elements, each at most once: nothing is left to
 * be checked. */
weft_tensor *weft_i_tensor_new_within(weft_tensor *base, bool fresh_version,
                                      const weft_shape *shape, const int64_t *strides,
                                      int64_t offset);

/* A view of all of a packed tensor with other sizes, of as many elements; linked (see above). */
weft_tensor *weft_i_tensor_new_folded(weft_tensor *base, int ndim, const int64_t *sizes);

/* A tensor with a new storage that just fits it; content undefined. */
weft_tensor *weft_i_tensor_new(weft_dtype dtype, weft_device device, weft_shape shape,
                               const int64_t *strides);

/* The same of the sizes of `x`, row-major.  x has elements, and so few that they can be counted as
 * bytes of `dtype`. */
weft_tensor *weft_i_tensor_new_like(const weft_tensor *x, weft_dtype dtype);

/* Checks ndim, sizes and strides (none negative) and that counts and bytes fit; `what` names the
 * caller. */
weft_status weft_i_shape_check(const char *what, weft_dtype dtype, weft_shape shape,
                               const int64_t *strides);
/* Row-major. */
static inline void weft_i_shape_strides(weft_shape shape, int64_t *strides)
{
    uint64_t step = 1; /* may wrap round if the shape is still to be checked */
    for (int i = shape.ndim - 1; i >= 0; i--) {
        strides[i] = (int64_t)step;
        step *= shape.dim[i] > 1 ? (uint64_t)shape.dim[i] : 1;
    }
}
int64_t weft_i_shape_numel(weft_shape shape);
bool weft_i_shape_equal(weft_shape a, weft_shape b);
/* "[2, 3]"; `out` holds any shape. */
enum { WEFT_I_SHAPE_TEXT = 192 };
const char *weft_i_shape_text(weft_shape shape, char out[WEFT_I_SHAPE_TEXT]);

static inline weft_shape weft_i_tensor_shape(const weft_tensor *x)
{
    weft_shape shape;
    shape.ndim = x->ndim;
    for (int i = 0; i < WEFT_MAX_DIMS; i++) /* a tensor's memory starts as zeros */
        shape.dim[i] = x->dim[i];
    return shape;
}

static inline weft_device weft_i_tensor_device(const weft_tensor *x)
{
    return x->storage->device;
}

/* Bytes from an element to the next along a dimension.  Of one element or none, whose stride may be
 * anything: as if they were adjacent. */
static inline int64_t weft_i_tensor_step(const weft_tensor *x, int dim)
{
    int64_t size = (int64_t)weft_dtype_size(x->dtype);
    return x->dim[dim] > 1 ? x->stride[dim] * size : size;
}

static inline int64_t weft_i_tensor_numel(const weft_tensor *x)
{
    int64_t numel = 1;
    for (int i = 0; i < x->ndim; i++)
        numel *= x->dim[i];
    return numel;
}

/* The first element; only valid after weft_i_tensor_check_fits.  NULL if the storage is empty. */
static inline char *weft_i_tensor_data(const weft_tensor *x)
{
    char *data = x->storage->data;
    return data ? data + (size_t)x->offset * weft_i_dtype_size(x->dtype) : NULL;
}

static inline bool weft_i_tensor_is_contiguous(const weft_tensor *x)
{
    int64_t step = 1;
    bool packed = true;
    for (int i = x->ndim - 1; i >= 0; i--) {
        packed &= x->dim[i] == 1 || x->stride[i] == step;
        step *= x->dim[i];
    }
    return packed || step == 0; /* no elements: no gaps, whatever the strides say */
}

/* No two indices share an element and no gap lies between elements: some order of the dimensions is
 * contiguous. */
bool weft_i_tensor_is_dense(const weft_tensor *x);
/* Two indices may share an element: writing in place has no meaning. */
bool weft_i_tensor_overlaps_itself(const weft_tensor *x);
/* The elements' bytes [*begin, *end) within the storage; empty if there are none. */
void weft_i_tensor_range(const weft_tensor *x, size_t *begin, size_t *end);
/* Same storage, and a byte of the one's range lies in the other's. */
bool weft_i_tensor_ranges_meet(const weft_tensor *a, const weft_tensor *b);
/* Same storage, offset, shape and strides. */
bool weft_i_tensor_same_view(const weft_tensor *a, const weft_tensor *b);

/* WEFT_ERR_STATE unless every element lies inside the storage; `what` names the caller. */
weft_status weft_i_tensor_refuse(const char *what, const weft_tensor *x);

static inline weft_status weft_i_tensor_fits(const char *what, const weft_tensor *x)
{
    return __builtin_expect(x->end <= x->storage->bytes, 1) ? WEFT_OK
                                                            : weft_i_tensor_refuse(what, x);
}

/*
 * Call it before reading data (and weft_i_storage_ready as well before writing it): waits for what
 * is under way on the memory, then as weft_i_tensor_fits.
 */
static inline weft_status weft_i_tensor_check_fits(const char *what, const weft_tensor *x)
{
    weft_status status = weft_i_storage_ready(x->storage, false);
    return status < 0 ? status : weft_i_tensor_fits(what, x);
}

/* Turns -1 into the last dimension; -1 and an error if there is no such dimension among `ndim`. */
int weft_i_dim_wrap(const char *what, int64_t dim, int ndim);

static inline void weft_i_tensor_bump(weft_tensor *x)
{
    atomic_fetch_add_explicit(&x->version->count, 1, memory_order_relaxed);
}

#endif

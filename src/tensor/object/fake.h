/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fakes: tensors with a device, a layout, a version and a storage that has a size, but no memory.
 * Captures work on them.  A claim that never settles lies on the storage, so that code that wants the
 * memory is refused by weft_i_storage_ready as everywhere, with the name of the value in the error.
 * Rows take fakes only if the call says so (weft_i_op_call.fake).
 */
#ifndef WEFT_TENSOR_FAKE_H
#define WEFT_TENSOR_FAKE_H

#include "tensor/object/tensor.h"

typedef struct weft_i_fake {
    weft_i_object head;
    weft_i_claim claim;
    uint64_t capture; /* whose it is: a number that no other capture has */
    int storage;      /* the number of the storage there; -1: none yet */
    bool unpacked;    /* a gradient rule needed what it had saved of it */
    int64_t read;     /* this is a version that was read: which; -1: it is not, or not known */
    /* What the error says: the value that was made last on this storage. */
    int value;
    const char *op;
    weft_dtype dtype;
    weft_shape shape;
} weft_i_fake;

/* Of a layout that passed weft_i_shape_check; in the current scope, counter 0.  The storage has as
 * many bytes as the elements need. */
weft_tensor *weft_i_fake_new(uint64_t capture, weft_dtype dtype, weft_device device,
                             weft_shape shape, const int64_t *strides);
/* For `what`, which gives its caller NULL in place of data: the error that a read of the value is,
 * with a warning, because callers tend not to look. */
weft_status weft_i_fake_no_data(const weft_i_fake *fake, const char *what);

/* A fake storage, owned by nobody's scope. */
weft_storage *weft_i_fake_storage(uint64_t capture, weft_device device, size_t bytes);

#endif

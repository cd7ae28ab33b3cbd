/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signature: what a call is, in so few bytes that a rank can show it with every entry.  Others
 * read it only to tell two calls apart that should be one.
 */
#ifndef WEFT_COLL_SIGNATURE_H
#define WEFT_COLL_SIGNATURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_SIGNATURE_DIMS = 4, WEFT_I_SIGNATURE_TEXT = 240 };

typedef struct weft_i_signature {
    /* The entry it belongs to, once all else is there: a rank arrives first and fills its signature
     * while the arrival is on its way.  Release, pairs with the acquire in lane.c, is_shown. */
    _Atomic uint32_t shown;
    uint32_t kind, dtype, reduction, root;
    uint64_t count;
    uint64_t offset; /* of the operand in its block; of a list, its digest */
    uint32_t
        block; /* serial of the operand's registration; 0: ordinary memory, or it does not matter */
    uint32_t dims; /* dimensions of the operand; of a list, how many tensors it has */
    /* The first extents, cut to 32 bits; of a list, its first tensors (weft_i_signature_tensor). */
    uint32_t dim[WEFT_I_SIGNATURE_DIMS];
} weft_i_signature;

/* A tensor of a list in 32 bits: dtype and count, both cut to what fits. */
static inline uint32_t weft_i_signature_tensor(uint32_t dtype, uint64_t count)
{
    return dtype << 26 | (count < 0x3ffffff ? (uint32_t)count : 0x3ffffff);
}

/* Would these two be one call?  Shapes may differ if counts do not. */
bool weft_i_signature_same(const weft_i_signature *a, const weft_i_signature *b);

/* "all_reduce of 100 f32, sum, shape [10, 10]".  Always terminated; returns `out`. */
const char *weft_i_signature_text(const weft_i_signature *signature, char *out, size_t bytes);

/* The same of what is given to a device: `what` is weft_i_carrier_what (coll/device/carrier.h). */
void weft_i_signature_tell_given(uint64_t what, uint64_t count, char *out, size_t bytes);

#endif

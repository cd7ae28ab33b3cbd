/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures in words; see signature.h.  A signature is another rank's memory: nothing in it is
 * trusted. */
#include "coll/lane/signature.h"

#include "base/report/text.h"
#include "symm/kind.h"
#include "weft/coll.h"

#include <stdio.h>

bool weft_i_signature_same(const weft_i_signature *a, const weft_i_signature *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->reduction == b->reduction &&
           a->root == b->root && a->count == b->count && a->offset == b->offset &&
           a->block == b->block;
}

static uint32_t shown_dims(const weft_i_signature *signature)
{
    return signature->dims < WEFT_I_SIGNATURE_DIMS ? signature->dims : WEFT_I_SIGNATURE_DIMS;
}

static void add_list(weft_i_text *t, const weft_i_signature *signature)
{
    weft_i_text_put(t, " of %u tensors", signature->dims);
    for (uint32_t i = 0; i < shown_dims(signature); i++)
        weft_i_text_put(t, "%s%u %s", i ? ", " : " (", signature->dim[i] & 0x3ffffff,
                        weft_dtype_name((weft_dtype)(signature->dim[i] >> 26)));
    if (signature->dims)
        weft_i_text_put(t, "%s)", signature->dims > WEFT_I_SIGNATURE_DIMS ? ", ..." : "");
}

static void add_shape(weft_i_text *t, const weft_i_signature *signature)
{
    weft_i_text_put(t, ", shape [");
    for (uint32_t i = 0; i < shown_dims(signature); i++)
        weft_i_text_put(t, "%s%u", i ? ", " : "", signature->dim[i]);
    weft_i_text_put(t, "%s]", signature->dims > WEFT_I_SIGNATURE_DIMS ? ", ..." : "");
}

const char *weft_i_signature_text(const weft_i_signature *signature, char *out, size_t bytes)
{
    weft_i_text t = {.out = out, .room = bytes};
    weft_i_coll_kind kind = (weft_i_coll_kind)signature->kind;
    bool first = kind == WEFT_I_FIRST_USE && signature->root < WEFT_I_COLL_KINDS;
    if (signature->kind >= WEFT_I_COLL_KINDS) {
        weft_i_text_put(&t, "something unknown");
        return out;
    }
    const char *dtype = weft_dtype_name((weft_dtype)signature->dtype);
    weft_i_text_put(&t, "%s", weft_i_coll_name(first ? (weft_i_coll_kind)signature->root : kind));
    bool list = weft_i_kind_is(kind, WEFT_I_IS_LIST);
    bool parts = weft_i_kind_is(kind, WEFT_I_PER_RANK);
    if (list)
        add_list(&t, signature);
    else if (parts) /* counts may differ between ranks; the operation compares them */
        weft_i_text_put(&t, " of %s", dtype);
    else if (kind == WEFT_I_ALL_TO_ALL && signature->root)
        weft_i_text_put(&t, " of %s by splits", dtype);
    else if (kind != WEFT_I_BARRIER && !weft_i_kind_is(kind, WEFT_I_IS_OBJECT))
        weft_i_text_put(&t, " of %llu %s", (unsigned long long)signature->count, dtype);
    if (first)
        weft_i_text_put(&t, ", with symmetric memory not used before");
    else if (weft_i_kind_is(kind, WEFT_I_REDUCES))
        weft_i_text_put(&t, ", %s", weft_reduction_name((weft_reduction)signature->reduction));
    if (weft_i_kind_is(kind, WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT))
        weft_i_text_put(&t, ", root %u", signature->root);
    if (signature->dims && !list && !parts)
        add_shape(&t, signature);
    if (signature->block)
        weft_i_text_put(&t, ", at byte %llu of symmetric block %u",
                        (unsigned long long)signature->offset, signature->block);
    return out;
}

void weft_i_signature_tell_given(uint64_t what, uint64_t count, char *out, size_t bytes)
{
    weft_i_signature signature = {.kind = what & 0xff,
                                  .dtype = what >> 8 & 0xff,
                                  .reduction = what >> 16 & 0xff,
                                  .root = (uint32_t)(what >> 32),
                                  .count = count};
    char text[WEFT_I_SIGNATURE_TEXT];
    bool list = signature.kind < WEFT_I_COLL_KINDS &&
                weft_i_kind_is((weft_i_coll_kind)signature.kind, WEFT_I_IS_LIST);
    snprintf(out, bytes, "%s, on its device",
             list ? weft_i_coll_name((weft_i_coll_kind)signature.kind)
                  : weft_i_signature_text(&signature, text, sizeof text));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The copy of what a rank saves, in the order in which its file will have it. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "tensor/object/tensor.h"
#include "tensor/op/ops.h"
#include "train/checkpoint.h"
#include "weft/grad.h"
#include "weft/op.h"

#include <stdio.h>
#include <string.h>

void weft_i_copied_clear(weft_i_copied *copied)
{
    weft_i_file_layout_clear(&copied->layout);
    WEFT_OS->free(copied->name);
    WEFT_OS->free(copied->place);
    WEFT_OS->free(copied->bytes);
    *copied = (weft_i_copied){0};
}

/* Names and places of what this rank writes. */
static weft_status list(weft_i_copied *to, const weft_i_items *items, const bool *mine)
{
    size_t count = 1;
    for (int i = 0; i < items->count; i++)
        count += mine[i];
    WEFT_OS->free(to->name);
    WEFT_OS->free(to->place);
    weft_i_file_layout_clear(&to->layout);
    to->name = WEFT_OS->alloc(count * sizeof *to->name);
    to->place = WEFT_OS->alloc(count * sizeof *to->place);
    if (!to->name || !to->place)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu names", count);
    for (int i = 0, k = 0; i < items->count; i++) {
        const weft_i_item *item = &items->item[i];
        if (!mine[i])
            continue;
        memcpy(to->name[k], item->name, sizeof to->name[k]);
        weft_i_portion p = weft_i_portion_of(item->name, item->tensor, 0, 0);
        weft_i_portion_write(&p, to->place[k]);
        WEFT_TRY(weft_i_file_layout_add(&to->layout, to->name[k++], item->tensor));
    }
    to->used = (size_t)weft_i_file_layout_settle(&to->layout);
    return WEFT_OK;
}

/* The memory stays from one save to the next: its pages are there then. */
static weft_status make_room(weft_i_copied *to)
{
    if (to->used <= to->room)
        return WEFT_OK;
    WEFT_OS->free(to->bytes);
    to->room = 0;
    to->bytes = WEFT_OS->alloc_aligned(WEFT_I_HEADER_ALIGN, to->used);
    if (!to->bytes)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a copy of %zu bytes", to->used);
    to->room = to->used;
    return WEFT_OK;
}

static weft_status copy_one(weft_i_copied *to, const weft_i_header_tensor *t, weft_tensor *x)
{
    WEFT_TRY(weft_scope_open());
    weft_status status = WEFT_OK;
    if (t->begin < t->end) {
        weft_tensor *copy =
            weft_tensor_wrap(t->dtype, WEFT_CPU, t->shape, to->bytes + t->begin, NULL, NULL);
        status = copy ? weft_copy(copy, x) : weft_last_status();
    }
    weft_scope_close();
    return status;
}

/* In any order: each has its place. */
static weft_status copy_all(weft_i_copied *to, const weft_i_items *items, const bool *mine,
                            const weft_i_header_tensor **place)
{
    for (int t = 0; t < to->layout.count; t++)
        place[to->layout.tensor[t].source] = &to->layout.tensor[t];
    for (int i = 0, k = 0; i < items->count; i++) {
        weft_status status = mine[i] ? copy_one(to, place[k++], items->item[i].tensor) : WEFT_OK;
        if (status < 0)
            return weft_i_explain(status, "\"%s\"", items->item[i].name);
    }
    return WEFT_OK;
}

weft_status weft_i_checkpoint_copy(weft_checkpoint *c, const weft_i_items *items, const bool *mine)
{
    weft_i_copied *to = &c->copied;
    weft_status status = list(to, items, mine);
    if (status >= 0)
        status = make_room(to);
    WEFT_TRY(status);
    const weft_i_header_tensor **place =
        WEFT_OS->alloc(((size_t)to->layout.count + 1) * sizeof *place);
    if (!place)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d places", to->layout.count);
    to->generator = weft_i_random_take(0);
    WEFT_NO_GRAD
    {
        status = copy_all(to, items, mine, place);
    }
    WEFT_OS->free(place);
    return status;
}

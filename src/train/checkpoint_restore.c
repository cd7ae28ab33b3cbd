/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint has goes to where it is used. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "tensor/object/tensor.h"
#include "tensor/op/ops.h"
#include "train/checkpoint_load.h"
#include "weft/grad.h"

#include <stdio.h>
#include <string.h>

/* A tensor's part, from all stored parts that have something of it. */
static weft_status fill(weft_tensor *x, const weft_i_item *item, const weft_i_stored *stored)
{
    const weft_i_portion *part;
    weft_i_portion own = weft_i_portion_of(item->name, item->tensor, 0, 0);
    int count = weft_i_stored_find(stored, item->name, &part);
    weft_status status = weft_scope_open();
    bool opened = status >= 0;
    for (int i = 0; i < count && status >= 0; i++) {
        weft_tensor *from = weft_i_stored_get(stored, &part[i]);
        status = from ? weft_i_portion_copy(x, &own, from, &part[i]) : weft_last_status();
    }
    if (opened)
        weft_scope_close();
    return status < 0 ? weft_i_explain(status, "\"%s\"", item->name) : WEFT_OK;
}

/* The states of an optimizer are filled where they are; the numbers of steps only it can take. */
static weft_status fill_optim(const weft_i_items *items, const weft_i_stored *stored, int from,
                              int count, weft_optim *optim)
{
    weft_named *list = WEFT_OS->alloc(((size_t)count + 1) * sizeof *list);
    weft_status status =
        list ? WEFT_OK : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d names", count);
    for (int i = 0; i < count && status >= 0; i++) {
        const weft_i_item *item = &items->item[from + i];
        snprintf(list[i].name, sizeof list[i].name, "%s", item->name + item->own);
        list[i].tensor = item->steps ? weft_empty(WEFT_I64, WEFT_CPU, WEFT_SCALAR) : item->tensor;
        status = list[i].tensor ? fill(list[i].tensor, item, stored) : weft_last_status();
    }
    if (status >= 0)
        status = weft_optim_load(optim, list, count);
    WEFT_OS->free(list);
    return status;
}

static weft_status fill_saved(const weft_checkpoint *c, const weft_i_items *items,
                              const weft_i_stored *stored, int saved)
{
    int from = 0, count = 0;
    while (from < items->count && items->item[from].saved != saved)
        from++;
    while (from + count < items->count && items->item[from + count].saved == saved)
        count++;
    if (c->saved[saved].kind == WEFT_I_ADDED_OPTIM)
        return count ? fill_optim(items, stored, from, count, c->saved[saved].object) : WEFT_OK;
    for (int i = from; i < from + count; i++)
        WEFT_TRY(fill(items->item[i].tensor, &items->item[i], stored));
    return WEFT_OK;
}

/* The random numbers of the rank with this one's number; with more ranks than there were, numbers that
 * no other rank has. */
static void restore_generator(const weft_checkpoint *c, const weft_i_stored *stored)
{
    int rank = weft_rank(c->group), file = rank % stored->files;
    const char *text = weft_i_header_note_of(&stored->file[file].header, "weft.generator");
    unsigned long long seed, counter;
    if (!text || sscanf(text, "%llu %llu", &seed, &counter) != 2)
        return;
    seed += (unsigned long long)(rank / stored->files) * 0x9E3779B97F4A7C15u;
    weft_i_random_swap((weft_i_generator){seed, counter});
}

weft_status weft_i_checkpoint_restore(weft_checkpoint *c, const weft_i_items *items,
                                      const weft_i_stored *stored)
{
    weft_status status = weft_scope_open();
    bool opened = status >= 0;
    WEFT_NO_GRAD
    {
        for (int i = 0; i < c->count && status >= 0; i++)
            if (c->saved[i].kind != WEFT_I_ADDED_VALUE)
                status = fill_saved(c, items, stored, i);
    }
    if (opened)
        weft_scope_close();
    WEFT_TRY(status);
    for (int i = 0; i < c->count; i++)
        if (c->saved[i].kind == WEFT_I_ADDED_VALUE)
            memcpy(c->saved[i].object, weft_i_stored_value(stored, c->saved[i].name)->data,
                   c->saved[i].bytes);
    if (c->opts.generator)
        restore_generator(c, stored);
    return WEFT_OK;
}

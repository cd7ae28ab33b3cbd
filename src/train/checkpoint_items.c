/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of what was added to a checkpoint, by their names. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "tensor/object/tensor.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <string.h>

void weft_i_items_clear(weft_i_items *items)
{
    WEFT_OS->free(items->item);
    *items = (weft_i_items){0};
}

/* What a module or optimizer lists, to be freed; NULL and an error. */
static weft_named *list_of(const weft_i_added *saved, int *count)
{
    bool module = saved->kind == WEFT_I_ADDED_MODULE;
    *count = module ? weft_module_state(saved->object, NULL, 0)
                    : weft_optim_state(saved->object, NULL, 0);
    if (*count < 0)
        return NULL;
    weft_named *list = WEFT_OS->alloc(((size_t)*count + 1) * sizeof *list);
    if (!list)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for %d names", *count);
    *count = module ? weft_module_state(saved->object, list, *count)
                    : weft_optim_state(saved->object, list, *count);
    if (*count >= 0)
        return list;
    WEFT_OS->free(list);
    return NULL;
}

static weft_status add(weft_i_items *items, const weft_i_added *saved, int number, const char *name,
                       weft_tensor *x)
{
    weft_i_item *item = &items->item[items->count];
    int n = *name ? snprintf(item->name, sizeof item->name, "%s.%s", saved->name, name)
                  : snprintf(item->name, sizeof item->name, "%s", saved->name);
    if (n < 0 || n >= (int)sizeof item->name)
        return weft_i_fail(WEFT_ERR_LIMIT, "the name %s.%s is too long", saved->name, name);
    WEFT_TRY(weft_i_tensor_check_live(item->name, x));
    if (weft_i_tensor_device(x) == WEFT_META)
        return weft_i_fail(WEFT_ERR_TYPE, "\"%s\" is on meta: it has no elements", item->name);
    WEFT_TRY(weft_i_tensor_check_fits(item->name, x));
    item->tensor = x;
    item->saved = number;
    item->own = (int)strlen(saved->name) + 1;
    item->steps = saved->kind == WEFT_I_ADDED_OPTIM && x->dtype == WEFT_I64;
    items->count++;
    return WEFT_OK;
}

static bool is_listed(const weft_i_items *items, int from, const weft_tensor *x)
{
    for (int i = from; i < items->count; i++)
        if (items->item[i].tensor == x)
            return true;
    return false;
}

static weft_status make_room(weft_i_items *items, int more)
{
    size_t count = (size_t)items->count + (size_t)more + 1;
    weft_i_item *bigger = WEFT_OS->resize(items->item, count * sizeof *bigger);
    if (!bigger)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu names", count);
    items->item = bigger;
    return WEFT_OK;
}

/* A tensor by its second name is not listed again. */
static weft_status add_list(weft_i_items *items, const weft_i_added *saved, int number)
{
    int count = 0, from = items->count;
    weft_named *list = list_of(saved, &count);
    if (!list)
        return weft_last_status();
    weft_status status = make_room(items, count);
    for (int i = 0; i < count && status >= 0; i++)
        if (!is_listed(items, from, list[i].tensor))
            status = add(items, saved, number, list[i].name, list[i].tensor);
    WEFT_OS->free(list);
    return status;
}

weft_status weft_i_items_list(const weft_checkpoint *c, weft_i_items *out)
{
    weft_status status = WEFT_OK;
    *out = (weft_i_items){0};
    for (int i = 0; i < c->count && status >= 0; i++) {
        const weft_i_added *saved = &c->saved[i];
        if (saved->kind == WEFT_I_ADDED_TENSOR) {
            status = make_room(out, 1);
            if (status >= 0)
                status = add(out, saved, i, "", saved->object);
        } else if (saved->kind != WEFT_I_ADDED_VALUE) {
            status = add_list(out, saved, i);
        }
        if (status < 0)
            weft_i_explain(status, "\"%s\"", saved->name);
    }
    return status;
}

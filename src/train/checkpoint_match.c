/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a checkpoint is of what it is to be loaded into; nothing changes here. */
#include "base/os/os.h"
#include "base/report/text.h"
#include "nn/module.h"
#include "tensor/object/tensor.h"
#include "train/checkpoint_load.h"

#include <stdlib.h>
#include <string.h>

enum { NAMED = 4 /* names in a message */ };

/* Names for a message: the first few, and how many there are. */
typedef struct some {
    char text[NAMED * 110];
    int count;
} some;

static void add_name(some *s, const char *name)
{
    size_t used = strlen(s->text);
    if (s->count++ < NAMED)
        snprintf(s->text + used, sizeof s->text - used, "%s\"%.100s\"", used ? ", " : "", name);
}

static const char *and_more(const some *s, char out[32])
{
    out[0] = 0;
    if (s->count > NAMED)
        snprintf(out, 32, " and %d more", s->count - NAMED);
    return out;
}

/* ---- names ---- */

/* Which of what was added a name is of; -1: of nothing. */
static int saved_of(const weft_checkpoint *c, const char *name)
{
    for (int i = 0; i < c->count; i++) {
        size_t n = strlen(c->saved[i].name);
        if (c->saved[i].kind != WEFT_I_ADDED_VALUE && !strncmp(name, c->saved[i].name, n) &&
            (!name[n] || name[n] == '.'))
            return i;
    }
    return -1;
}

/* The names that only the checkpoint has.  What other ranks load this one has not: it looks in the list
 * of all. */
static void find_foreign(const weft_checkpoint *c, const weft_i_stored *stored,
                         const weft_i_names *all, some *foreign)
{
    for (int at = 0; at < stored->parts;) {
        const char *name = stored->part[at].name;
        if (saved_of(c, name) >= 0 && !weft_i_names_have(all, name))
            add_name(foreign, name);
        at += weft_i_portion_group(stored->part + at, stored->parts - at);
    }
}

static weft_status check_names(const weft_checkpoint *c, const weft_i_items *items,
                               const weft_i_stored *stored, const weft_i_names *all)
{
    some missing = {{0}, 0}, foreign = {{0}, 0};
    char a[32], b[32];
    const weft_i_portion *first;
    for (int i = 0; i < items->count; i++)
        if (!weft_i_stored_find(stored, items->item[i].name, &first))
            add_name(&missing, items->item[i].name);
    find_foreign(c, stored, all, &foreign);
    if (!missing.count && !foreign.count)
        return WEFT_OK;
    return weft_i_fail(
        WEFT_ERR_INVALID_ARG, "the checkpoint of step %lld is of something else: %s%s%s%s%s%s%s",
        (long long)stored->index.step, missing.count ? "it has no " : "", missing.text,
        and_more(&missing, a), missing.count && foreign.count ? "; " : "",
        foreign.count ? "nothing here has its " : "", foreign.text, and_more(&foreign, b));
}

/* ---- tensors ---- */

static weft_status check_form(const weft_i_item *item, const weft_i_portion *part)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    weft_i_portion own = weft_i_portion_of(item->name, item->tensor, 0, 0);
    if (own.dtype != part->dtype || !weft_i_shape_equal(own.full, part->full))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "\"%s\" is %s %s in the checkpoint, and %s %s here", item->name,
                           weft_dtype_name(part->dtype), weft_i_shape_text(part->full, b),
                           weft_dtype_name(own.dtype), weft_i_shape_text(own.full, a));
    weft_status status =
        item->steps ? WEFT_OK
                    : weft_i_state_check_elements("what is there", item->tensor, item->tensor);
    return status < 0 ? weft_i_explain(status, "\"%s\"", item->name) : WEFT_OK;
}

static weft_status check_steps(const weft_i_item *item, const weft_i_stored *stored,
                               const weft_i_portion *part)
{
    WEFT_TRY(weft_scope_open());
    weft_tensor *x = weft_i_stored_get(stored, part);
    int64_t steps = x ? weft_item_int(x, 0) : -1;
    weft_scope_close();
    if (steps >= 0 && steps <= (int64_t)1 << 53)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "\"%s\" is %lld in the checkpoint; it counts steps",
                       item->name, (long long)steps);
}

static weft_status check_tensors(const weft_i_items *items, const weft_i_stored *stored)
{
    for (int i = 0; i < items->count; i++) {
        const weft_i_portion *part;
        weft_i_stored_find(stored, items->item[i].name, &part);
        WEFT_TRY(check_form(&items->item[i], part));
        if (items->item[i].steps)
            WEFT_TRY(check_steps(&items->item[i], stored, part));
    }
    return WEFT_OK;
}

/* ---- values ---- */

const weft_i_index_value *weft_i_stored_value(const weft_i_stored *stored, const char *name)
{
    for (int i = 0; i < stored->index.values; i++)
        if (!strcmp(stored->index.value[i].name, name))
            return &stored->index.value[i];
    return NULL;
}

static weft_status check_values(const weft_checkpoint *c, const weft_i_stored *stored)
{
    for (int i = 0; i < c->count; i++) {
        const weft_i_added *saved = &c->saved[i];
        if (saved->kind != WEFT_I_ADDED_VALUE)
            continue;
        const weft_i_index_value *value = weft_i_stored_value(stored, saved->name);
        if (!value)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "the checkpoint has no value \"%s\"",
                               saved->name);
        if (value->bytes != saved->bytes)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "the value \"%s\" has %zu bytes in the checkpoint, and %zu here",
                               saved->name, value->bytes, saved->bytes);
    }
    return WEFT_OK;
}

weft_status weft_i_checkpoint_match(const weft_checkpoint *c, const weft_i_items *items,
                                    const weft_i_stored *stored, const weft_i_names *all)
{
    WEFT_TRY(check_names(c, items, stored, all));
    WEFT_TRY(check_tensors(items, stored));
    return check_values(c, stored);
}

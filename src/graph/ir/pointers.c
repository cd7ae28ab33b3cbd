/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing; see pointers.h. */
#include "graph/ir/pointers.h"

#include "base/os/os.h"
#include "base/report/status.h"

static size_t place(const weft_i_pointers *table, const void *key)
{
    size_t at = (size_t)((uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u >> 20);
    for (;; at++) {
        const struct weft_i_pointer_pair *pair = &table->at[at & (table->room - 1)];
        if (!pair->key || pair->key == key)
            return at & (table->room - 1);
    }
}

void *weft_i_pointers_find(const weft_i_pointers *table, const void *key)
{
    return table->room ? table->at[place(table, key)].value : NULL;
}

weft_status weft_i_pointers_reserve(weft_i_pointers *table, size_t more)
{
    size_t room = table->room ? table->room : 16;
    while (room < 2 * (table->count + more))
        room *= 2;
    if (room == table->room)
        return WEFT_OK;
    weft_i_pointers bigger = {.room = room};
    if (!(bigger.at = WEFT_OS->alloc(room * sizeof *bigger.at)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a table of %zu pointers", room);
    for (size_t i = 0; i < table->room; i++)
        if (table->at[i].key)
            weft_i_pointers_add(&bigger, table->at[i].key, table->at[i].value);
    WEFT_OS->free(table->at);
    *table = bigger;
    return WEFT_OK;
}

void weft_i_pointers_add(weft_i_pointers *table, const void *key, void *value)
{
    struct weft_i_pointer_pair *pair = &table->at[place(table, key)];
    table->count += !pair->key;
    pair->key = key;
    pair->value = value;
}

void weft_i_pointers_clear(weft_i_pointers *table)
{
    WEFT_OS->free(table->at);
    *table = (weft_i_pointers){0};
}

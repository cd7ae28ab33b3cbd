/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a pair, in their order; see order.h. */
#include "order.h"

#include "base/os/assert.h"
#include "base/os/os.h"

#include <string.h>

static weft_i_order_kept *keep(const weft_i_head *head, const void *data, size_t bytes)
{
    weft_i_order_kept *kept = WEFT_OS->alloc(sizeof *kept + bytes);
    if (!kept)
        return NULL;
    kept->head = *head;
    kept->bytes = bytes;
    if (bytes)
        memcpy(kept->data, data, bytes);
    return kept;
}

weft_i_order_turn weft_i_order_take(weft_i_order *order, const weft_i_head *head, const void *data,
                                    size_t bytes)
{
    uint32_t ahead = head->number - order->next; /* the numbers wrap, and so does this */
    if (!ahead) {
        order->next++;
        return WEFT_I_ORDER_NOW;
    }
    if (ahead > UINT32_MAX / 2)
        return WEFT_I_ORDER_AGAIN;
    if (ahead > WEFT_I_ORDER_KEPT)
        return WEFT_I_ORDER_FAR;
    weft_i_order_kept **place = &order->kept[head->number % WEFT_I_ORDER_KEPT];
    if (*place) /* within the window, only the same number has that place */
        return WEFT_I_ORDER_AGAIN;
    *place = keep(head, data, bytes);
    order->count += *place != NULL;
    return *place ? WEFT_I_ORDER_EARLY : WEFT_I_ORDER_NO_MEMORY;
}

weft_i_order_kept *weft_i_order_next(weft_i_order *order)
{
    weft_i_order_kept **place = &order->kept[order->next % WEFT_I_ORDER_KEPT];
    weft_i_order_kept *found = *place;
    if (!found || found->head.number != order->next)
        return NULL;
    *place = NULL;
    WEFT_ASSERT(order->count > 0);
    order->count--;
    order->next++;
    return found;
}

void weft_i_order_clear(weft_i_order *order)
{
    for (int i = 0; i < WEFT_I_ORDER_KEPT; i++) {
        WEFT_OS->free(order->kept[i]);
        order->kept[i] = NULL;
    }
    order->count = 0;
}

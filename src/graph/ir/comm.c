/* SPDX-License-Identifier: Apache-2.0 */
/* Communication buffers as persistent allocations; see comm.h. */
#include "graph/ir/comm.h"

#include "symm/persistent.h"

#include <stdatomic.h>

void weft_i_comm_number(weft_i_comm_buffer *buffers, int count)
{
    static atomic_uint_least64_t drawn; /* relaxed: only the number counts */
    for (int i = 0; i < count; i++)
        buffers[i].id = WEFT_I_PERSISTENT_OWN |
                        (1 + atomic_fetch_add_explicit(&drawn, 1, memory_order_relaxed));
}

weft_tensor *weft_i_comm_open(const weft_i_comm_buffer *buffer)
{
    weft_i_block *block = NULL;
    bool made = false;
    if (weft_i_persistent_block(buffer->id, buffer->device, buffer->bytes, buffer->group, &block,
                                &made) < 0)
        return NULL;
    weft_i_lease whole = {.block = block, .bytes = buffer->bytes};
    weft_tensor *bytes =
        weft_keep(weft_i_block_tensor(&whole, WEFT_U8, WEFT_SHAPE((int64_t)buffer->bytes), NULL));
    weft_i_block_drop(block);
    if (!bytes && made)
        weft_i_persistent_forget(buffer->id);
    return bytes;
}

void weft_i_comm_forget(const weft_i_comm_buffer *buffers, int count)
{
    for (int i = 0; i < count; i++)
        if (buffers[i].id)
            weft_i_persistent_forget(buffers[i].id);
}

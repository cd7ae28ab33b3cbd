/* SPDX-License-Identifier: Apache-2.0 */
/* The order of tensors in a file; see layout.h. */
#include "train/layout.h"

#include "base/os/os.h"
#include "base/report/status.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_i_file_layout_add(weft_i_file_layout *layout, const char *name,
                                   const weft_tensor *x)
{
    if (layout->count == layout->room) {
        int room = layout->room ? 2 * layout->room : 64;
        weft_i_header_tensor *more = WEFT_OS->resize(layout->tensor, (size_t)room * sizeof *more);
        if (!more)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a list of %d tensors", room);
        layout->tensor = more;
        layout->room = room;
    }
    layout->tensor[layout->count] = (weft_i_header_tensor){.name = name,
                                                           .dtype = weft_tensor_dtype(x),
                                                           .shape = weft_tensor_shape(x),
                                                           .end = weft_tensor_bytes(x),
                                                           .source = layout->count};
    layout->count++;
    return WEFT_OK;
}

static int widest_first(const void *a, const void *b)
{
    const weft_i_header_tensor *x = a, *y = b;
    size_t n = weft_dtype_size(x->dtype), m = weft_dtype_size(y->dtype);
    return n != m ? n > m ? -1 : 1 : x->source - y->source;
}

uint64_t weft_i_file_layout_settle(weft_i_file_layout *layout)
{
    uint64_t at = 0;
    if (layout->count)
        qsort(layout->tensor, (size_t)layout->count, sizeof *layout->tensor, widest_first);
    for (int i = 0; i < layout->count; i++) {
        uint64_t bytes = layout->tensor[i].end - layout->tensor[i].begin;
        layout->tensor[i].begin = at;
        layout->tensor[i].end = at += bytes;
    }
    return at;
}

void weft_i_file_layout_clear(weft_i_file_layout *layout)
{
    WEFT_OS->free(layout->tensor);
    *layout = (weft_i_file_layout){0};
}

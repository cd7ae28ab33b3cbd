/* SPDX-License-Identifier: Apache-2.0 */
/* Copying and dropping a lineage; see lineage.h. */
#include "fabric/world/lineage.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

weft_status weft_i_lineage_new(const weft_i_lineage *old, const weft_i_elder *last,
                               weft_i_lineage *out)
{
    WEFT_ASSERT(old->count >= 0 && !old->count == !old->elders);
    int count = old->count + (last != NULL);
    *out = (weft_i_lineage){NULL, 0};
    if (!count)
        return WEFT_OK;
    weft_i_elder *elders = WEFT_OS->alloc((size_t)count * sizeof *elders);
    if (!elders)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for what a group was made from");
    for (int i = 0; i < count; i++) {
        elders[i] = i < old->count ? old->elders[i] : *last;
        if (elders[i].segment)
            weft_i_segment_hold(elders[i].segment);
    }
    *out = (weft_i_lineage){elders, count};
    return WEFT_OK;
}

void weft_i_lineage_free(weft_i_lineage *lineage)
{
    for (int i = 0; i < lineage->count; i++)
        weft_i_segment_drop(lineage->elders[i].segment);
    WEFT_OS->free(lineage->elders);
    *lineage = (weft_i_lineage){NULL, 0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The one double-buffered loop; see pipeline.h. */
#include "coll/lane/pipeline.h"

#include "base/os/assert.h"

weft_status weft_i_pipeline_run(weft_i_coll *coll, const weft_i_pipeline *line)
{
    WEFT_ASSERT(line->piece && (line->put || line->take || line->direct));
    weft_i_span next = {0, weft_i_coll_min(line->piece, line->total)};
    if (line->put && next.count)
        line->put(coll, line->arg, 0, next);
    if (!line->direct)
        WEFT_TRY(weft_i_coll_sync(coll));
    for (uint64_t turn = 0; next.count; turn++) {
        weft_i_span piece = next;
        next.first += piece.count;
        next.count = weft_i_coll_min(line->piece, line->total - next.first);
        if (line->take)
            line->take(coll, line->arg, turn, piece);
        if (line->put && next.count)
            line->put(coll, line->arg, turn + 1, next);
        if (next.count || !line->in_results || line->collect)
            WEFT_TRY(weft_i_coll_sync(coll));
        if (line->collect)
            line->collect(coll, line->arg, turn, piece);
    }
    return WEFT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The one double-buffered loop; see pipeline.h. */
#include "coll/pipeline.h"

#include "base/assert.h"

static void step(weft_i_coll *coll, const weft_i_pipeline *line, weft_i_pipeline_step *what,
                 size_t k)
{
    if (what && k < line->pieces)
        what(coll, line->arg, k);
}

weft_status weft_i_pipeline_run(weft_i_coll *coll, const weft_i_pipeline *line)
{
    WEFT_ASSERT(line->put || line->take || line->direct);
    step(coll, line, line->put, 0);
    if (!line->direct)
        WEFT_TRY(weft_i_coll_sync(coll));
    for (size_t k = 0; k < line->pieces; k++) {
        bool last = k + 1 == line->pieces;
        step(coll, line, line->take, k);
        step(coll, line, line->put, k + 1);
        if (!last || !line->in_results || line->collect)
            WEFT_TRY(weft_i_coll_sync(coll));
        step(coll, line, line->collect, k);
    }
    return WEFT_OK;
}

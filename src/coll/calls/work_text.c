/* SPDX-License-Identifier: Apache-2.0 */
/* Posted work in words. */
#include "base/report/status.h"
#include "coll/calls/work.h"
#include "coll/lane/signature.h"

#include <stdio.h>

char *weft_work_describe(const weft_work *work, char *out, size_t bytes)
{
    if (!out)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_work_describe: the text is NULL");
    if (!work) {
        snprintf(out, bytes, "no work");
        return out;
    }
    if (!work->bundle.count && !work->coll.ask.op) {
        snprintf(out, bytes, "no sends or receives: done");
        return out;
    }
    char what[WEFT_I_SIGNATURE_TEXT], peer[32] = "";
    weft_i_coll coll = work->bundle.count ? weft_i_p2p_as_coll(work->requests) : work->coll;
    coll.reach = NULL; /* the caller's, and perhaps gone */
    weft_i_signature signature;
    weft_i_coll_put_signature(&signature, &coll);
    weft_status status = weft_work_status(work);
    if (work->bundle.count && coll.ask.root == WEFT_ANY)
        snprintf(peer, sizeof peer, " from any rank");
    else if (work->bundle.count)
        snprintf(peer, sizeof peer, " %s rank %d", coll.ask.kind == WEFT_I_SEND ? "to" : "from",
                 coll.ask.root);
    snprintf(out, bytes, "%s%s in group \"%s\": %s%s%s",
             weft_i_signature_text(&signature, what, sizeof what), peer, work->coll.group->name,
             status == WEFT_IN_PROGRESS ? "under way"
             : status == WEFT_OK        ? "done"
                                        : weft_status_name(status),
             status < 0 ? ", " : "", status < 0 ? weft_work_error(work) : "");
    return out;
}

uint64_t weft_work_sequence(const weft_work *work)
{
    bool known = work && !work->bundle.count && weft_work_status(work) != WEFT_IN_PROGRESS;
    return known ? work->sequence : 0;
}

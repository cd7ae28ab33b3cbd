/* SPDX-License-Identifier: Apache-2.0 */
/* What users are told of the choice; see choose.h. */
#include "coll/lane/choose.h"

#include "base/report/status.h"
#include "coll/lane/lane.h"

_Static_assert((int)WEFT_I_EAGER == 64 << 10,
               "what EAGER and ZERO_COPY can be set to in tune.def, and FIFO_UP_TO on aarch64");

const char *weft_tune_choice(const char *op, int ranks, size_t bytes)
{
    static const char *const algorithms[WEFT_I_ALGORITHMS] = {"inline", "eager", "rendezvous"};
    int kind = weft_i_kind_named(op);
    weft_i_tune_load();
    if (kind < 0)
        return (void)weft_i_fail(WEFT_ERR_NOT_FOUND, "\"%s\" is not a collective",
                                 op ? op : "(null)"),
               NULL;
    if (ranks < 1)
        return (void)weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: thresholds are for 1 rank and more",
                                 op),
               NULL;
    return algorithms[weft_i_choose((weft_i_coll_kind)kind, ranks, weft_i_tune_ground_here(ranks),
                                    bytes)];
}

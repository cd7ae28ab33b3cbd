/* SPDX-License-Identifier: Apache-2.0 */
/* The list of passes; see pass.h. */
#include "graph/ir/pass.h"

static weft_i_graph_pass *passes;

void weft_i_graph_pass_add(weft_i_graph_pass *pass)
{
    weft_i_graph_pass **at = &passes;
    while (*at && (*at)->stage <= pass->stage)
        at = &(*at)->next;
    pass->next = *at;
    *at = pass;
}

const weft_i_graph_pass *weft_i_graph_pass_first(void)
{
    return passes;
}

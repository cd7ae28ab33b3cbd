/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameter got no gradient, and on which ranks; see unused.h. */
#include "parallel/unused.h"

#include "base/report/status.h"
#include "base/report/text.h"
#include "weft/object.h"
#include "weft/scope.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 256, SHOWN = 8 };

/* Whether rank r said that it has no gradient for parameter i. */
static bool lacks(weft_blobs *blobs, int r, int i)
{
    weft_bytes said = weft_blobs_get(blobs, r);
    return (size_t)i < said.length && !((const char *)said.data)[i];
}

/* "1, 3 and 5 others"; returns how many there are. */
static int list_ranks(weft_blobs *blobs, int i, weft_i_text *out)
{
    int found = 0;
    for (int r = 0; r < weft_blobs_count(blobs); r++)
        if (lacks(blobs, r, i) && found++ < SHOWN)
            weft_i_text_put(out, "%s%d", found > 1 ? ", " : "", r);
    if (found > SHOWN)
        weft_i_text_put(out, " and %d others", found - SHOWN);
    return found;
}

weft_status weft_i_refuse_unused(const char *what, weft_group *group, int count, const bool *has,
                                 weft_i_name_of *name_of, const void *list, const char *where)
{
    char ranks[TEXT] = "", first[TEXT] = "";
    int parameters = 0;
    WEFT_TRY(weft_scope_open());
    weft_blobs *blobs = weft_all_gather_object((weft_bytes){has, (size_t)count}, group);
    weft_status status = blobs ? WEFT_OK : weft_last_status();
    for (int i = 0; i < count && blobs; i++) {
        char those[TEXT] = "";
        weft_i_text text = {.out = those, .room = TEXT};
        if (!list_ranks(blobs, i, &text) || parameters++)
            continue;
        memcpy(ranks, those, sizeof ranks);
        snprintf(first, sizeof first, "%s", name_of(list, i));
    }
    weft_scope_close();
    WEFT_TRY(status);
    if (!parameters)
        return weft_i_fail(
            WEFT_ERR_STATE,
            "%s: a parameter%s got no gradient on a rank of another copy, whose error "
            "names it",
            what, where);
    return weft_i_fail(
        WEFT_ERR_STATE,
        "%s: parameter \"%s\" got no gradient on rank %s%s; %d parameter%s so.  Zeros "
        "stood in for what was missing.  If that is meant, set the option `unused`; "
        "else look for a branch of forward that some ranks or steps leave out",
        what, first, ranks, where, parameters, parameters == 1 ? " is" : "s are");
}

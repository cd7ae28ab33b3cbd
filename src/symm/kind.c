/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kinds; see kind.h. */
#include "symm/facts.h"

#include <string.h>

const weft_i_kind_row weft_i_kinds[WEFT_I_COLL_KINDS] = {
#define COLL(name_, text_, record_, as_, facts_) \
    [WEFT_I_##name_] = {text_, {record_}, WEFT_I_##as_, facts_},
#include "symm/kinds.def"
#undef COLL
};

int weft_i_kind_named(const char *name)
{
    for (int kind = 0; name && kind < WEFT_I_COLL_KINDS; kind++)
        if (!strcmp(weft_i_kinds[kind].name, name))
            return kind;
    return -1;
}

int weft_i_kind_list_of(weft_i_coll_kind kind)
{
    if (kind == WEFT_I_ALL_TO_ALL) /* a list there is one call, with a tensor for each rank */
        return -1;
    for (int list = 0; list < WEFT_I_COLL_KINDS; list++)
        if (weft_i_kind_is((weft_i_coll_kind)list, WEFT_I_IS_LIST) && weft_i_kinds[list].as == kind)
            return list;
    return -1;
}

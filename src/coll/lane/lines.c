/* SPDX-License-Identifier: Apache-2.0 */
/* Clearing the lists of lines, and asking for all that they name; see lines.h. */
#include "coll/lane/lines.h"

#include "base/os/place.h"

void weft_i_lines_clear(weft_i_lines lines)
{
    for (int i = 0; i < WEFT_I_LINES; i++)
        atomic_store_explicit(&lines[i], NULL, memory_order_relaxed);
}

WEFT_I_HOT void weft_i_lines_fetch_all(const weft_i_call_lines *of)
{
    if (!weft_i_lines_are_cold(of))
        return;
    weft_i_lines_own(of->written);
    weft_i_lines_fetch(of->read);
    weft_i_lines_own(of->back);
    WEFT_I_FETCH(weft_hot);
    WEFT_I_FETCH(weft_fast); /* both ways end in the same calls of the library */
    WEFT_I_FETCH(weft_back);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of ranks as text; see rank_list.h. */
#include "fabric/group/rank_list.h"

#include "base/report/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void weft_i_rank_list_text(const int *ranks, int count, char *out, size_t bytes)
{
    weft_i_text text = {out, bytes, 0};
    *out = 0;
    for (int i = 0, last; i < count; i = last + 1) {
        char piece[32];
        for (last = i; last + 1 < count && ranks[last + 1] - 1LL == ranks[last];)
            last++;
        if (last > i)
            snprintf(piece, sizeof piece, "%s%d-%d", i ? "," : "", ranks[i], ranks[last]);
        else
            snprintf(piece, sizeof piece, "%s%d", i ? "," : "", ranks[i]);
        bool fits = text.used + strlen(piece) + 4 < bytes;
        weft_i_text_put(&text, "%s", fits ? piece : "...");
        if (!fits)
            return;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Text piece by piece; see text.h. */
#include "base/report/text.h"

#include "base/os/assert.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void weft_i_text_put(weft_i_text *text, const char *format, ...)
{
    WEFT_ASSERT(text->out || !text->room);
    size_t left = text->used < text->room ? text->room - text->used : 0;
    va_list list;
    va_start(list, format);
    int length = vsnprintf(left ? text->out + text->used : NULL, left, format, list);
    va_end(list);
    text->used += length > 0 ? (size_t)length : 0;
}

int weft_i_text_distance(const char *a, size_t length, const char *b)
{
    int row[WEFT_I_TEXT_NAME + 1];
    size_t other = strlen(b);
    if (length > WEFT_I_TEXT_NAME || other > WEFT_I_TEXT_NAME)
        return WEFT_I_TEXT_NAME;
    for (size_t j = 0; j <= other; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= length; i++) { /* each row follows from the one above */
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= other; j++) {
            int change = corner + (a[i - 1] != b[j - 1]);
            int fewest = row[j] < row[j - 1] ? row[j] : row[j - 1];
            corner = row[j];
            row[j] = change < fewest + 1 ? change : fewest + 1;
        }
    }
    return row[other];
}

/* The length of the character of UTF-8 that begins here and is no control; 0 if there is none.  The
 * text is ended by 0, which is no byte that goes on. */
static size_t printable(const unsigned char *at)
{
    static const uint32_t least[] = {0, 0, 0xa0, 0x800, 0x10000}; /* in so many bytes */
    size_t length = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    uint32_t code = at[0] & (0x7fu >> length);
    if (length == 1)
        return at[0] >= ' ' && at[0] < 0x7f;
    if (!length || at[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    bool surrogate = code >= 0xd800 && code < 0xe000;
    return code >= least[length] && code <= 0x10ffff && !surrogate ? length : 0;
}

/* How many bytes the control that begins here takes: two for one of C1 in UTF-8. */
static size_t control_length(const unsigned char *at)
{
    return at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0 ? 2 : 1;
}

void weft_i_text_tame(char *text, bool lines)
{
    const unsigned char *from = (const unsigned char *)text;
    char *to = text;
    while (*from) {
        size_t length = *from == '\t' || (lines && *from == '\n') ? 1 : printable(from);
        if (!length) {
            from += control_length(from);
            *to++ = '?';
        }
        while (length--)
            *to++ = (char)*from++;
    }
    *to = 0;
}

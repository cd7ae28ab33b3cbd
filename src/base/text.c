/* SPDX-License-Identifier: Apache-2.0 */
/* Text piece by piece; see text.h. */
#include "base/text.h"

#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>

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

/* SPDX-License-Identifier: Apache-2.0 */
/* Text that is put together piece by piece into room of a fixed size. */
#ifndef WEFT_BASE_TEXT_H
#define WEFT_BASE_TEXT_H

#include <stddef.h>

typedef struct weft_i_text {
    char *out;         /* always terminated, unless there is no room at all */
    size_t room, used; /* `used` counts on past the end, as snprintf does */
} weft_i_text;

__attribute__((format(printf, 2, 3))) void weft_i_text_put(weft_i_text *text, const char *format,
                                                           ...);

#endif

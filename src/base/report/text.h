/* SPDX-License-Identifier: Apache-2.0 */
/* Text that is put together piece by piece into room of a fixed size. */
#ifndef WEFT_BASE_TEXT_H
#define WEFT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct weft_i_text {
    char *out;         /* always terminated, unless there is no room at all */
    size_t room, used; /* `used` counts on past the end, as snprintf does */
} weft_i_text;

__attribute__((format(printf, 2, 3))) void weft_i_text_put(weft_i_text *text, const char *format,
                                                           ...);

/* How many letters must change, come or go to make one name the other; WEFT_I_TEXT_NAME for names
 * that are longer than that.  `length` is a's. */
enum { WEFT_I_TEXT_NAME = 64 };
int weft_i_text_distance(const char *a, size_t length, const char *b);

/*
 * Makes a text of somebody else fit for a terminal, in its place: control characters, those of C0
 * but for tabs and, if it has `lines`, their ends, and U+007F to U+009F in whatever way they are
 * written, become '?'.  So does every byte that is not UTF-8: a terminal that reads bytes takes those
 * from 0x80 on for the same controls.  Other characters stay as they are.
 */
void weft_i_text_tame(char *text, bool lines);

#endif

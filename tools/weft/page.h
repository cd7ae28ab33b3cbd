/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that need nothing but themselves: HTML with style and script, and in the middle the data as
 * JSON.  A browser shows them without a network.
 */
#ifndef WEFT_TOOLS_PAGE_H
#define WEFT_TOOLS_PAGE_H

#include <stddef.h>
#include <stdio.h>

/* Where the data goes in a page. */
#define PAGE_MARK "/*DATA*/"

/* Begins a file with what comes before the mark; NULL after a message of `command`. */
FILE *page_open(const char *command, const char *path, const unsigned char *page, size_t bytes);
/* A text of JSON; it cannot end the script that it stands in. */
void page_text(FILE *out, const char *text);
/* What comes behind the mark; 0, or 1 after a message. */
int page_close(const char *command, const char *path, FILE *out, const unsigned char *page,
               size_t bytes);

#endif

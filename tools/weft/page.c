/* SPDX-License-Identifier: Apache-2.0 */
/* Writes pages that need nothing but themselves; see page.h. */
#include "page.h"

#include <errno.h>
#include <string.h>

/* Where the mark begins. */
static size_t mark_of(const unsigned char *page, size_t bytes)
{
    size_t length = sizeof PAGE_MARK - 1;
    for (size_t i = 0; i + length <= bytes; i++)
        if (!memcmp(page + i, PAGE_MARK, length))
            return i;
    return bytes;
}

static int complain(const char *command, const char *path)
{
    fprintf(stderr, "weft %s: writing %s: %s\n", command, path, strerror(errno));
    return 1;
}

FILE *page_open(const char *command, const char *path, const unsigned char *page, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    if (!out) {
        complain(command, path);
        return NULL;
    }
    fwrite(page, 1, mark_of(page, bytes), out);
    return out;
}

void page_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&')
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

int page_close(const char *command, const char *path, FILE *out, const unsigned char *page,
               size_t bytes)
{
    size_t from = mark_of(page, bytes);
    from += from < bytes ? sizeof PAGE_MARK - 1 : 0;
    fwrite(page + from, 1, bytes - from, out);
    int failed = ferror(out);
    failed |= fclose(out) != 0;
    return failed ? complain(command, path) : 0;
}

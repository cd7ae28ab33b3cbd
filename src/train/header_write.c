/* SPDX-License-Identifier: Apache-2.0 */
/* How headers of safetensors files are written; see header.h. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "train/header.h"
#include "train/json_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text that grows. */
typedef struct page {
    char *text;
    size_t used, room;
    bool failed; /* no memory */
} page;

static void put(page *p, const char *bytes, size_t count)
{
    if (p->failed)
        return;
    if (p->room - p->used < count) {
        size_t room = 2 * p->room + count + 4096;
        char *more = WEFT_OS->resize(p->text, room);
        if (!more) {
            p->failed = true;
            return;
        }
        p->text = more;
        p->room = room;
    }
    memcpy(p->text + p->used, bytes, count);
    p->used += count;
}

static void put_plain(page *p, const char *text)
{
    put(p, text, strlen(text));
}

static void put_number(page *p, uint64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    put_plain(p, digits);
}

static void put_string(page *p, const char *text)
{
    put(p, "\"", 1);
    for (; *text; text++) {
        char escape[8];
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (c < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else
            snprintf(escape, sizeof escape, "%c", c);
        put_plain(p, escape);
    }
    put(p, "\"", 1);
}

weft_status weft_i_header_check_text(const char *what, const char *text)
{
    page p = {0};
    put_string(&p, text);
    weft_i_json_reader r = weft_i_json_reader_of(p.text, p.failed ? 0 : p.used);
    weft_i_read_text(&r, NULL, 0, NULL);
    bool failed = p.failed;
    WEFT_OS->free(p.text);
    if (failed)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a name");
    return r.error ? weft_i_fail(WEFT_ERR_INVALID_ARG, "%s \"%.100s\" is not UTF-8", what, text)
                   : WEFT_OK;
}

static void put_tensor(page *p, const weft_i_header_tensor *t)
{
    put_string(p, t->name);
    put_plain(p, ":{\"dtype\":\"");
    put_plain(p, weft_i_header_dtype_name(t->dtype));
    put_plain(p, "\",\"shape\":[");
    for (int i = 0; i < t->shape.ndim; i++) {
        put_plain(p, i ? "," : "");
        put_number(p, (uint64_t)t->shape.dim[i]);
    }
    put_plain(p, "],\"data_offsets\":[");
    put_number(p, t->begin);
    put_plain(p, ",");
    put_number(p, t->end);
    put_plain(p, "]}");
}

static void put_notes(page *p, const weft_safetensors_note *notes, int count)
{
    put_plain(p, "\"__metadata__\":{");
    for (int i = 0; i < count; i++) {
        put_plain(p, i ? "," : "");
        put_string(p, notes[i].key);
        put_plain(p, ":");
        put_string(p, notes[i].value);
    }
    put_plain(p, "}");
}

/* Names that a reader would refuse: the header is read as one would. */
static weft_status check(const page *p, const weft_i_header_tensor *last)
{
    weft_i_header header;
    weft_status status =
        weft_i_header_read(&header, p->text, p->used, p->used + (last ? last->end : 0));
    weft_i_header_clear(&header);
    return status;
}

char *weft_i_header_write(const weft_i_header_tensor *tensors, int count,
                          const weft_safetensors_note *notes, int note_count, size_t *bytes)
{
    page p = {0};
    uint64_t length = 0;
    put(&p, (const char *)&length, sizeof length);
    put_plain(&p, "{");
    if (note_count)
        put_notes(&p, notes, note_count);
    for (int i = 0; i < count; i++) {
        put_plain(&p, i || note_count ? "," : "");
        put_tensor(&p, &tensors[i]);
    }
    put_plain(&p, "}");
    while (!p.failed && p.used % WEFT_I_HEADER_ALIGN)
        put(&p, " ", 1);
    if (p.failed) {
        WEFT_OS->free(p.text);
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a header of %d tensors", count);
    }
    length = p.used - sizeof length;
    memcpy(p.text, &length, sizeof length);
    if (check(&p, count ? &tensors[count - 1] : NULL) < 0) {
        WEFT_OS->free(p.text);
        return NULL;
    }
    *bytes = p.used;
    return p.text;
}

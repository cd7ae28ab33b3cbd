/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON writer; see json.h.  It only writes: nothing in weft parses JSON. */
#include "json.h"

#include <assert.h>
#include <inttypes.h>

/* Text as a JSON string.  Bytes from 128 on pass through: what we print is UTF-8 or comes from the
 * system as it is. */
static void put_string(FILE *out, const char *text)
{
    putc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 0x20)
            fprintf(out, "\\u%04x", *p);
        else
            putc(*p, out);
    }
    putc('"', out);
}

static void begin_member(json_writer *j, const char *key)
{
    if (j->depth > 0) {
        fputs(j->members[j->depth - 1]++ ? ",\n" : "\n", j->out);
        fprintf(j->out, "%*s", 2 * j->depth, "");
    }
    if (key) {
        put_string(j->out, key);
        fputs(": ", j->out);
    }
}

void json_open(json_writer *j, const char *key, char bracket)
{
    assert(j->depth < JSON_DEPTH);
    begin_member(j, key);
    putc(bracket, j->out);
    j->close[j->depth] = bracket == '{' ? '}' : ']';
    j->members[j->depth++] = 0;
}

void json_close(json_writer *j)
{
    assert(j->depth > 0);
    j->depth--;
    if (j->members[j->depth])
        fprintf(j->out, "\n%*s", 2 * j->depth, "");
    putc(j->close[j->depth], j->out);
    if (j->depth == 0)
        putc('\n', j->out);
}

void json_text(json_writer *j, const char *key, const char *text)
{
    begin_member(j, key);
    if (text)
        put_string(j->out, text);
    else
        fputs("null", j->out);
}

void json_number(json_writer *j, const char *key, int64_t number)
{
    begin_member(j, key);
    fprintf(j->out, "%" PRId64, number);
}

void json_bool(json_writer *j, const char *key, int truth)
{
    begin_member(j, key);
    fputs(truth ? "true" : "false", j->out);
}

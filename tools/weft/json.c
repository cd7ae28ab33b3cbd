/* SPDX-License-Identifier: Apache-2.0 */
/* See json.h. */
#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

int json_finish(weft_i_json *json)
{
    int error = weft_i_json_end(json);
    if (error && error != EPIPE)
        fprintf(stderr, "weft: writing JSON: %s\n", strerror(error));
    return error != 0;
}

char *json_read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    size_t room = 1 << 16, used = 0;
    char *text = file ? malloc(room) : NULL;
    for (size_t n; text && (n = fread(text + used, 1, room - used - 1, file)) > 0;) {
        used += n;
        if (used + 1 < room)
            continue;
        char *grown = realloc(text, room *= 2);
        if (!grown)
            free(text);
        text = grown;
    }
    if (text && ferror(file)) {
        free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    if (text)
        text[used] = 0;
    *bytes = used;
    return text;
}

static void skip_space(json_cursor *c)
{
    while (c->at < c->end && *c->at && strchr(" \t\r\n", *c->at))
        c->at++;
}

static int take(json_cursor *c, char wanted)
{
    skip_space(c);
    if (c->at >= c->end || *c->at != wanted)
        return 0;
    c->at++;
    return 1;
}

static int skip_string(json_cursor *c)
{
    if (!take(c, '"'))
        return 0;
    for (; c->at < c->end && *c->at != '"'; c->at++)
        if (*c->at == '\\' && ++c->at >= c->end)
            return 0;
    return take(c, '"');
}

static int skip_value(json_cursor *c, int depth);

/* The members of an object or array, its opening bracket already taken. */
static int skip_members(json_cursor *c, char close, int depth)
{
    if (take(c, close))
        return 1;
    do {
        if (close == '}' && (!skip_string(c) || !take(c, ':')))
            return 0;
        if (!skip_value(c, depth + 1))
            return 0;
    } while (take(c, ','));
    return take(c, close);
}

static int skip_value(json_cursor *c, int depth)
{
    skip_space(c);
    if (depth > DEPTH_MAX || c->at >= c->end)
        return 0;
    if (*c->at == '"')
        return skip_string(c);
    if (take(c, '{'))
        return skip_members(c, '}', depth);
    if (take(c, '['))
        return skip_members(c, ']', depth);
    const char *start = c->at;
    while (c->at < c->end && *c->at && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *c->at))
        c->at++;
    return c->at > start;
}

int json_value(json_cursor whole, json_cursor *value)
{
    skip_space(&whole);
    value->at = whole.at;
    if (!skip_value(&whole, 0))
        return 0;
    value->end = whole.at;
    skip_space(&whole);
    return whole.at == whole.end;
}

int json_enter(json_cursor *container, char bracket)
{
    return take(container, bracket);
}

int json_next(json_cursor *members, json_cursor *key, json_cursor *value)
{
    json_cursor c = *members;
    take(&c, ',');
    skip_space(&c);
    if (c.at >= c.end || *c.at == '}' || *c.at == ']')
        return 0;
    value->at = c.at;
    if (!skip_value(&c, 0))
        return 0;
    value->end = c.at;
    key->at = key->end = value->at;
    if (take(&c, ':')) { /* so what was read is the key */
        *key = (json_cursor){value->at + 1, value->end - 1};
        skip_space(&c);
        value->at = c.at;
        if (!skip_value(&c, 0))
            return 0;
        value->end = c.at;
    }
    members->at = c.at;
    return 1;
}

int json_member(json_cursor object, const char *wanted, json_cursor *value)
{
    json_cursor key;
    if (!json_enter(&object, '{'))
        return -1;
    while (json_next(&object, &key, value))
        if (json_is(key, wanted))
            return 1;
    return take(&object, '}') ? 0 : -1;
}

int json_is(json_cursor text, const char *other)
{
    size_t length = strlen(other);
    return (size_t)(text.end - text.at) == length && !memcmp(text.at, other, length);
}

void json_copy(json_cursor value, char *out, size_t room)
{
    size_t length = 0;
    int quoted = value.at < value.end && *value.at == '"';
    for (const char *p = value.at + quoted; p < value.end - quoted && length + 1 < room; p++) {
        p += *p == '\\' && p + 1 < value.end - quoted;
        out[length++] = *p;
    }
    out[length] = 0;
}

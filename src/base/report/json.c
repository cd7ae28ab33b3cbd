/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: a buffer in front of write(2).  See json.h. */
#include "base/report/json.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void flush(weft_i_json *json)
{
    size_t done = 0;
    while (done < json->used && !json->error) {
        ssize_t n = WEFT_OS->write(json->fd, json->buffer + done, json->used - done);
        if (n <= 0)
            json->error = n < 0 ? errno : EIO;
        else
            done += (size_t)n;
    }
    json->used = 0;
}

static void put(weft_i_json *json, const char *bytes, size_t count)
{
    WEFT_ASSERT(count <= sizeof json->buffer);
    if (json->used + count > sizeof json->buffer)
        flush(json);
    memcpy(json->buffer + json->used, bytes, count); /* pieces are far smaller than the buffer */
    json->used += count;
}

void weft_i_json_begin(weft_i_json *json, int fd, int lines)
{
    json->fd = fd;
    json->lines = lines;
    json->error = json->depth = 0;
    json->comma = false;
    json->used = 0;
}

/* Length of the valid UTF-8 sequence at `s`, or 0: no overlong forms, no surrogates, nothing above
 * U+10FFFF. */
static size_t sequence(const unsigned char *s)
{
    static const struct {
        unsigned char lead_low, lead_high, second_low, second_high, length;
    } forms[] = {
        {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
        {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
        {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    if (*s < 0x80)
        return 1;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (*s < forms[i].lead_low || *s > forms[i].lead_high)
            continue;
        if (s[1] < forms[i].second_low || s[1] > forms[i].second_high)
            return 0;
        for (size_t k = 2; k < forms[i].length; k++)
            if ((s[k] & 0xc0) != 0x80)
                return 0;
        return forms[i].length;
    }
    return 0;
}

static void put_string(weft_i_json *json, const char *text)
{
    put(json, "\"", 1);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t length = sequence(s);
        if (*s == '"' || *s == '\\') {
            put(json, "\\", 1);
            put(json, (const char *)s, 1);
        } else if (*s < 0x20 || *s == 0x7f) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", *s);
            put(json, escape, 6);
        } else if (length) {
            put(json, (const char *)s, length);
        } else {
            put(json, "\\ufffd", 6);
        }
        s += length ? length : 1;
    }
    put(json, "\"", 1);
}

static bool has_lines(const weft_i_json *json)
{
    return json->depth > 0 && json->depth <= json->lines;
}

static void break_line(weft_i_json *json)
{
    put(json, "\n", 1);
    for (int i = 0; i < json->depth; i++)
        put(json, "  ", 2);
}

static void lead_in(weft_i_json *json, const char *key)
{
    if (json->comma)
        put(json, ",", 1);
    json->comma = true;
    if (has_lines(json))
        break_line(json);
    if (key) {
        put_string(json, key);
        put(json, ": ", has_lines(json) ? 2 : 1);
    }
}

void weft_i_json_open(weft_i_json *json, const char *key, char bracket)
{
    WEFT_ASSERT(json->depth < WEFT_I_JSON_DEPTH);
    lead_in(json, key);
    put(json, &bracket, 1);
    json->close[json->depth++] = bracket == '{' ? '}' : ']';
    json->comma = false;
}

void weft_i_json_close(weft_i_json *json)
{
    WEFT_ASSERT(json->depth > 0);
    bool on_a_line = has_lines(json) && json->comma; /* empty ones are closed where they opened */
    json->depth--;
    if (on_a_line)
        break_line(json);
    put(json, &json->close[json->depth], 1);
    json->comma = true;
}

void weft_i_json_text(weft_i_json *json, const char *key, const char *value)
{
    lead_in(json, key);
    if (value)
        put_string(json, value);
    else
        put(json, "null", 4);
}

void weft_i_json_integer(weft_i_json *json, const char *key, int64_t value)
{
    char digits[24];
    lead_in(json, key);
    put(json, digits, (size_t)snprintf(digits, sizeof digits, "%" PRId64, value));
}

void weft_i_json_unsigned(weft_i_json *json, const char *key, uint64_t value)
{
    char digits[24];
    lead_in(json, key);
    put(json, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, value));
}

void weft_i_json_bool(weft_i_json *json, const char *key, bool value)
{
    lead_in(json, key);
    put(json, value ? "true" : "false", value ? 4 : 5);
}

void weft_i_json_real(weft_i_json *json, const char *key, double value, int digits)
{
    char text[40];
    lead_in(json, key);
    if (isfinite(value))
        put(json, text, (size_t)snprintf(text, sizeof text, "%.*g", digits, value));
    else
        put(json, "null", 4);
}

void weft_i_json_micros(weft_i_json *json, const char *key, int64_t ns)
{
    char digits[32];
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    lead_in(json, key);
    put(json, digits,
        (size_t)snprintf(digits, sizeof digits, "%s%" PRIu64 ".%03u", ns < 0 ? "-" : "",
                         size / 1000, (unsigned)(size % 1000)));
}

int weft_i_json_end(weft_i_json *json)
{
    WEFT_ASSERT(json->depth == 0);
    put(json, "\n", 1);
    flush(json);
    return json->error;
}

weft_status weft_i_json_finish(weft_i_json *json)
{
    int error = weft_i_json_end(json);
    return error ? weft_i_fail_errno(error, "writing JSON") : WEFT_OK;
}

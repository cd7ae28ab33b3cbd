/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of strangers; see json_reader.h. */
#include "train/json_reader.h"

#include <string.h>

weft_i_json_reader weft_i_json_reader_of(const char *text, size_t length)
{
    return (weft_i_json_reader){.text = text, .length = length, .first = true};
}

void weft_i_read_refuse(weft_i_json_reader *r, const char *why)
{
    if (!r->error)
        r->error = why;
}

/* ---- bytes ---- */

/* The next byte; 0 at the end, which no JSON has inside. */
static unsigned char here(const weft_i_json_reader *r)
{
    return r->at < r->length ? (unsigned char)r->text[r->at] : 0;
}

static void skip_blanks(weft_i_json_reader *r)
{
    while (here(r) == ' ' || here(r) == '\n' || here(r) == '\r' || here(r) == '\t')
        r->at++;
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool take(weft_i_json_reader *r, char c, const char *why)
{
    skip_blanks(r);
    if (!r->error && here(r) == (unsigned char)c) {
        r->at++;
        return true;
    }
    weft_i_read_refuse(r, why);
    return false;
}

char weft_i_read_peek(weft_i_json_reader *r)
{
    skip_blanks(r);
    if (r->error || r->at >= r->length)
        return 0;
    return is_digit(here(r)) || here(r) == '-' ? '0' : (char)here(r);
}

/* ---- brackets ---- */

void weft_i_read_open(weft_i_json_reader *r, char bracket)
{
    if (r->depth == WEFT_I_JSON_LEVELS)
        weft_i_read_refuse(r, "nested too deep");
    if (!take(r, bracket, bracket == '{' ? "an object was expected" : "an array was expected"))
        return;
    r->close[r->depth++] = bracket == '{' ? '}' : ']';
    r->first = true;
}

bool weft_i_read_next(weft_i_json_reader *r)
{
    skip_blanks(r);
    if (r->error || !r->depth)
        return false;
    if (here(r) == (unsigned char)r->close[r->depth - 1]) {
        r->at++;
        r->depth--;
        r->first = false;
        return false;
    }
    if (!r->first && r->at < r->length)
        take(r, ',', "a comma or the end of an object or array was expected");
    skip_blanks(r);
    if (r->at >= r->length)
        weft_i_read_refuse(r, "it ends inside an object or array");
    r->first = false;
    return !r->error;
}

/* ---- strings ---- */

/* The length of the UTF-8 character at `at`; 0 if it is none. */
static size_t character(const unsigned char *at, size_t left)
{
    unsigned char c = at[0];
    size_t n = c < 0x80                ? 1
               : c >= 0xc2 && c < 0xe0 ? 2
               : (c & 0xf0) == 0xe0    ? 3
               : c >= 0xf0 && c < 0xf5 ? 4
                                       : 0;
    if (!n || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (c == 0xe0 && at[1] < 0xa0) || (c == 0xf0 && at[1] < 0x90);
    bool beyond = (c == 0xed && at[1] > 0x9f) || (c == 0xf4 && at[1] > 0x8f);
    return overlong || beyond ? 0 : n;
}

/* Four hexadecimal digits; -1 if they are none. */
static int32_t four_digits(weft_i_json_reader *r)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        unsigned char c = here(r), low = c | 0x20;
        if (!is_digit(c) && !(low >= 'a' && low <= 'f'))
            return -1;
        value = value * 16 + (is_digit(c) ? c - '0' : low - 'a' + 10);
    }
    return value;
}

/* What follows "\u": a character of one or two of them. */
static int32_t escaped_number(weft_i_json_reader *r)
{
    int32_t high = four_digits(r), low;
    if (high < 0xd800 || high > 0xdfff)
        return high;
    if (high > 0xdbff || here(r) != '\\' || (r->at++, here(r) != 'u'))
        return -1;
    r->at++;
    low = four_digits(r);
    return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((high - 0xd800) << 10) + low - 0xdc00;
}

static size_t put_character(int32_t c, char out[4])
{
    if (c < 0x80)
        return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

/* The character behind a backslash; its bytes, 0 if it is none. */
static size_t read_escape(weft_i_json_reader *r, char out[4])
{
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    unsigned char c = here(r);
    const char *found = c ? strchr(letters, c) : NULL;
    r->at++;
    if (found)
        return out[0] = means[found - letters], 1;
    int32_t number = c == 'u' ? escaped_number(r) : -1;
    return number > 0 ? put_character(number, out) : 0;
}

/* One character of a string: its bytes, 0 after an error. */
static size_t read_character(weft_i_json_reader *r, char out[4])
{
    size_t n = 0;
    if (r->at >= r->length) {
        weft_i_read_refuse(r, "it ends inside a string");
    } else if (here(r) == '\\') {
        r->at++;
        if (!(n = read_escape(r, out)))
            weft_i_read_refuse(r, "a string has an escape that is none");
    } else if (here(r) < 0x20) {
        weft_i_read_refuse(r, "a string has a control character");
    } else if (!(n = character((const unsigned char *)r->text + r->at, r->length - r->at))) {
        weft_i_read_refuse(r, "a string is not UTF-8");
    } else {
        memcpy(out, r->text + r->at, n);
        r->at += n;
    }
    return n;
}

void weft_i_read_text(weft_i_json_reader *r, char *out, size_t room, size_t *length)
{
    size_t used = 0;
    take(r, '"', "a string was expected");
    while (!r->error && here(r) != '"') {
        char bytes[4];
        size_t n = read_character(r, bytes);
        if (out && used + n + 1 > room)
            weft_i_read_refuse(r, "a string is too long");
        if (out && !r->error)
            memcpy(out + used, bytes, n);
        used += n;
    }
    r->at += !r->error;
    if (out && room)
        out[r->error ? 0 : used] = 0;
    if (length)
        *length = r->error ? 0 : used;
}

void weft_i_read_key(weft_i_json_reader *r, char *out, size_t room, size_t *length)
{
    weft_i_read_text(r, out, room, length);
    take(r, ':', "a colon was expected");
}

/* ---- the rest ---- */

void weft_i_read_whole(weft_i_json_reader *r, uint64_t *out)
{
    uint64_t value = 0;
    *out = 0;
    skip_blanks(r);
    if (!is_digit(here(r)))
        weft_i_read_refuse(r, "a whole number was expected");
    if (here(r) == '0' && r->at + 1 < r->length && is_digit((unsigned char)r->text[r->at + 1]))
        weft_i_read_refuse(r, "a number begins with 0");
    for (; !r->error && is_digit(here(r)); r->at++) {
        unsigned digit = here(r) - (unsigned)'0';
        if (value > ((uint64_t)INT64_MAX - digit) / 10)
            weft_i_read_refuse(r, "a number is too large");
        else
            value = value * 10 + digit;
    }
    if (here(r) == '.' || here(r) == 'e' || here(r) == 'E')
        weft_i_read_refuse(r, "a whole number was expected");
    if (!r->error)
        *out = value;
}

static size_t skip_digits(weft_i_json_reader *r)
{
    size_t from = r->at;
    while (is_digit(here(r)))
        r->at++;
    return r->at - from;
}

static void skip_number(weft_i_json_reader *r)
{
    r->at += here(r) == '-';
    bool zero = here(r) == '0';
    size_t digits = skip_digits(r);
    bool fine = digits && !(zero && digits > 1);
    if (here(r) == '.')
        r->at++, fine &= skip_digits(r) > 0;
    if (here(r) == 'e' || here(r) == 'E') {
        r->at++;
        r->at += here(r) == '+' || here(r) == '-';
        fine &= skip_digits(r) > 0;
    }
    if (!fine)
        weft_i_read_refuse(r, "a number was expected");
}

static void skip_word(weft_i_json_reader *r)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (r->length - r->at >= n && !memcmp(r->text + r->at, words[i], n)) {
            r->at += n;
            return;
        }
    }
    weft_i_read_refuse(r, "a value was expected");
}

/* A value without others in it, or the beginning of one. */
static void skip_one(weft_i_json_reader *r)
{
    switch (weft_i_read_peek(r)) {
    case '{':
    case '[':
        weft_i_read_open(r, (char)here(r));
        break;
    case '"':
        weft_i_read_text(r, NULL, 0, NULL);
        break;
    case '0':
        skip_number(r);
        break;
    default:
        skip_word(r);
    }
}

void weft_i_read_skip(weft_i_json_reader *r)
{
    int outside = r->depth;
    skip_one(r);
    while (!r->error && r->depth > outside) {
        bool object = r->close[r->depth - 1] == '}';
        if (!weft_i_read_next(r))
            continue;
        if (object)
            weft_i_read_key(r, NULL, 0, NULL);
        skip_one(r);
    }
}

bool weft_i_read_end(weft_i_json_reader *r)
{
    skip_blanks(r);
    if (r->at < r->length || r->depth)
        weft_i_read_refuse(r, "something follows its end");
    return !r->error;
}

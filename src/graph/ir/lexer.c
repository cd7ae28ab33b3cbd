/* SPDX-License-Identifier: Apache-2.0 */
/* Reading words; see lexer.h. */
#include "graph/ir/lexer.h"

#include "base/os/os.h"
#include "base/report/status.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weft_status weft_i_lexer_fail(weft_i_lexer *lexer, const char *format, ...)
{
    char text[512];
    va_list list;
    if (lexer->status < 0)
        return lexer->status;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return lexer->status =
               weft_i_fail(WEFT_ERR_INVALID_ARG, "graph text, line %d: %s", lexer->line, text);
}

void weft_i_lexer_skip(weft_i_lexer *lexer)
{
    while (*lexer->at == ' ' || *lexer->at == '\t' || *lexer->at == '\r')
        lexer->at++;
    if (*lexer->at == '#')
        lexer->at += strcspn(lexer->at, "\n");
}

bool weft_i_lexer_take(weft_i_lexer *lexer, const char *text)
{
    size_t length = strlen(text);
    weft_i_lexer_skip(lexer);
    if (lexer->status < 0 || strncmp(lexer->at, text, length) != 0)
        return false;
    /* A word is not the beginning of a longer one. */
    if (isalnum((unsigned char)text[length - 1]) &&
        (isalnum((unsigned char)lexer->at[length]) || lexer->at[length] == '_'))
        return false;
    lexer->at += length;
    return true;
}

/* What stands at this place, for messages. */
static const char *found(const weft_i_lexer *lexer, char out[24])
{
    size_t length = strcspn(lexer->at, " \t\r\n");
    if (!*lexer->at)
        return "the end";
    if (*lexer->at == '\n')
        return "the end of the line";
    snprintf(out, 24, "\"%.*s\"", (int)(length < 20 ? length : 20), lexer->at);
    return out;
}

void weft_i_lexer_expect(weft_i_lexer *lexer, const char *text)
{
    char here[24];
    if (!weft_i_lexer_take(lexer, text))
        weft_i_lexer_fail(lexer, "expected \"%s\", found %s", text, found(lexer, here));
}

void weft_i_lexer_end_line(weft_i_lexer *lexer)
{
    char here[24];
    weft_i_lexer_skip(lexer);
    if (lexer->status >= 0 && *lexer->at != '\n' && *lexer->at)
        weft_i_lexer_fail(lexer, "expected the end of the line, found %s", found(lexer, here));
    while (lexer->status >= 0 && *lexer->at == '\n') {
        lexer->at++;
        lexer->line++;
        weft_i_lexer_skip(lexer);
    }
}

bool weft_i_lexer_is_end(weft_i_lexer *lexer)
{
    weft_i_lexer_skip(lexer);
    return lexer->status < 0 || !*lexer->at || *lexer->at == '\n';
}

void weft_i_lexer_word(weft_i_lexer *lexer, char out[WEFT_I_WORD])
{
    size_t length = 0;
    char here[24];
    weft_i_lexer_skip(lexer);
    out[0] = 0;
    while (lexer->status >= 0 && (isalnum((unsigned char)lexer->at[length]) ||
                                  (lexer->at[length] && strchr("_.:-", lexer->at[length]))))
        length++;
    if (length == 0 || length >= WEFT_I_WORD) {
        weft_i_lexer_fail(lexer, length ? "a word is too long: %s" : "expected a word, found %s",
                          found(lexer, here));
        return;
    }
    memcpy(out, lexer->at, length);
    out[length] = 0;
    lexer->at += length;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void weft_i_lexer_string(weft_i_lexer *lexer, char out[WEFT_I_WORD])
{
    size_t length = 0;
    out[0] = 0;
    weft_i_lexer_expect(lexer, "\"");
    while (lexer->status >= 0 && *lexer->at != '"') {
        int c = (unsigned char)*lexer->at++;
        if (c == '\\') {
            int high = lexer->at[0] == 'x' ? hex_digit(lexer->at[1]) : -1;
            int low = high >= 0 ? hex_digit(lexer->at[2]) : -1;
            c = low < 0 ? 0 : high * 16 + low;
            lexer->at += low < 0 ? 0 : 3;
        }
        if (c == 0 || c == '\n' || length + 1 >= WEFT_I_WORD) {
            weft_i_lexer_fail(lexer, "a string does not end, is too long or has a bad escape");
            return;
        }
        out[length++] = (char)c;
    }
    out[length] = 0;
    weft_i_lexer_expect(lexer, "\"");
}

int64_t weft_i_lexer_integer(weft_i_lexer *lexer)
{
    char *end, here[24];
    weft_i_lexer_skip(lexer);
    if (lexer->status < 0)
        return 0;
    errno = 0;
    const char *digit = lexer->at + (*lexer->at == '-');
    long long number = isdigit((unsigned char)*digit) ? strtoll(lexer->at, &end, 10) : 0;
    if (!isdigit((unsigned char)*digit) || errno) {
        weft_i_lexer_fail(lexer, "expected a whole number of 64 bits, found %s",
                          found(lexer, here));
        return 0;
    }
    lexer->at = end;
    return number;
}

double weft_i_lexer_number(weft_i_lexer *lexer)
{
    char *end, here[24];
    weft_i_lexer_skip(lexer);
    if (lexer->status < 0)
        return 0;
    double number = *lexer->at == '\n' ? 0 : strtod(lexer->at, &end);
    if (*lexer->at == '\n' || end == lexer->at) {
        weft_i_lexer_fail(lexer, "expected a number, found %s", found(lexer, here));
        return 0;
    }
    lexer->at = end;
    return number;
}

size_t weft_i_lexer_integers(weft_i_lexer *lexer, int64_t **out)
{
    size_t count = 0, room = 0;
    weft_i_lexer_expect(lexer, "[");
    while (lexer->status >= 0 && !weft_i_lexer_take(lexer, "]")) {
        if (count)
            weft_i_lexer_expect(lexer, ",");
        if (count == room) {
            room = room ? 2 * room : 8;
            int64_t *more = WEFT_OS->resize(*out, room * sizeof *more);
            if (!more) {
                lexer->status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu numbers", room);
                return 0;
            }
            *out = more;
        }
        (*out)[count++] = weft_i_lexer_integer(lexer);
    }
    return lexer->status < 0 ? 0 : count;
}

int weft_i_lexer_value(weft_i_lexer *lexer)
{
    if (weft_i_lexer_take(lexer, "none"))
        return -1;
    weft_i_lexer_expect(lexer, "%");
    if (lexer->status >= 0 && !isdigit((unsigned char)*lexer->at))
        weft_i_lexer_fail(lexer, "expected the number of a value behind %%");
    int64_t number = weft_i_lexer_integer(lexer);
    if (number > INT_MAX)
        weft_i_lexer_fail(lexer, "there is no value %%%lld", (long long)number);
    return lexer->status < 0 ? -1 : (int)number;
}

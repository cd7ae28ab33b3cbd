/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the command of a remote shell.  ssh hands its words, with blanks between them, to a shell on
 * the host: so the one word there that a user chooses, the path of weft, is quoted. */
#include "launch/rsh.h"

#include "base/os/os.h"
#include "base/report/status.h"

#include <string.h>

/* Where the words and their text go; counts alone if there is no room yet. */
typedef struct sink {
    char **words, *text;
    size_t count, used;
} sink;

static void put(sink *to, char c)
{
    if (to->text)
        to->text[to->used] = c;
    to->used++;
}

static void put_all(sink *to, const char *text)
{
    while (*text)
        put(to, *text++);
}

static void begin(sink *to)
{
    if (to->words)
        to->words[to->count] = to->text + to->used;
    to->count++;
}

/* One word of the template; returns what follows it. */
static const char *put_word(sink *to, const char *at, const char *host)
{
    char quote = 0;
    begin(to);
    for (; *at && (quote || (*at != ' ' && *at != '\t')); at++) {
        if (quote ? *at == quote : *at == '\'' || *at == '"')
            quote = quote ? 0 : *at;
        else if (*at == '%' && at[1] == 'h')
            put_all(to, host), at++;
        else if (*at == '%' && at[1] == '%')
            put(to, *at++);
        else
            put(to, *at);
    }
    put(to, 0);
    return at;
}

static void put_quoted(sink *to, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_-+@%:,=";
    begin(to);
    bool quote = text[strspn(text, plain)];
    if (quote)
        put(to, '\'');
    for (; *text; text++)
        if (*text == '\'')
            put_all(to, "'\\''");
        else
            put(to, *text);
    if (quote)
        put(to, '\'');
    put(to, 0);
}

static void put_command(sink *to, const char *template, const char *host, const char *weft)
{
    const char *at = template + strspn(template, " \t");
    while (*at) {
        at = put_word(to, at, host);
        at += strspn(at, " \t");
    }
    put_quoted(to, weft);
    put_quoted(to, "run");
    put_quoted(to, "--join");
}

weft_status weft_i_rsh_check(const char *template)
{
    char quote = 0;
    bool host = false;
    for (const char *at = template; *at; at++) {
        if (quote ? *at == quote : *at == '\'' || *at == '"')
            quote = quote ? 0 : *at;
        host |= at[0] == '%' && at[1] == 'h';
        at += at[0] == '%' && at[1] == '%';
    }
    if (quote || !host)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: the remote shell \"%s\" %s", template,
                           quote ? "has an open quote" : "has no %h, where the host would stand");
    return WEFT_OK;
}

char **weft_i_rsh_words(const char *template, const char *host, const char *weft)
{
    sink count = {.words = NULL};
    put_command(&count, template, host, weft);
    size_t table = (count.count + 1) * sizeof(char *);
    char **words = WEFT_OS->alloc(table + count.used);
    if (!words)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "launch: no memory for a command");
    sink to = {.words = words, .text = (char *)words + table};
    put_command(&to, template, host, weft);
    return words;
}

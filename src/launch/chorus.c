/* SPDX-License-Identifier: Apache-2.0 */
/* Equal messages of several ranks, which become one. */
#include "launch/chorus.h"

#include "base/os/assert.h"
#include "base/report/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The length of "weft WARN", or 0: only warnings and what bug reports need.  A trace names its
 * calls one by one. */
static size_t head_length(const char *line, size_t length)
{
    static const char *const heads[] = {"weft WARN", "weft INFO"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (length > strlen(heads[i]) && !memcmp(line, heads[i], strlen(heads[i])))
            return strlen(heads[i]);
    return 0;
}

bool weft_i_chorus_knows(const char *line, size_t length)
{
    size_t head = head_length(line, length);
    return head && (line[head] == ':' || line[head] == ' ');
}

/* Where the message begins behind "weft WARN [rank 2]: ", or NULL.  The line is ended by 0. */
static const char *body_of(const char *line)
{
    const char *at = line + head_length(line, strlen(line));
    if (!strncmp(at, " [rank ", 7)) {
        at += 7;
        while (isdigit((unsigned char)*at))
            at++;
        at += *at == ']';
    }
    return !strncmp(at, ": ", 2) ? at + 2 : NULL;
}

/* The length of "rank <own>" at `at`, or 0. */
static size_t own_length(const char *at, const char *begin, int own)
{
    char name[24];
    int n = snprintf(name, sizeof name, "rank %d", own);
    if (strncmp(at, name, (size_t)n) || isdigit((unsigned char)at[n]))
        return 0;
    return at > begin && isalnum((unsigned char)at[-1]) ? 0 : (size_t)n;
}

/* The length of "about 2.1 ms ago" or "begun 2.1 ms ago" at `at`, or 0. */
static size_t ago_length(const char *at)
{
    int end = 0;
    char unit[4];
    if (strncmp(at, "about ", 6) && strncmp(at, "begun ", 6))
        return 0;
    return sscanf(at + 6, "%*15[0-9.e+-] %3s ago%n", unit, &end) == 1 && end > 0 ? 6 + (size_t)end
                                                                                 : 0;
}

/* Are the messages equal, if `by_own` but for the own rank of each? */
static bool are_equal(const char *a, int rank_a, const char *b, int rank_b, bool by_own)
{
    const char *begin_a = a, *begin_b = b;
    while (*a && *b) {
        size_t skip_a = ago_length(a), skip_b = ago_length(b);
        if (by_own && !skip_a && !skip_b) {
            skip_a = own_length(a, begin_a, rank_a);
            skip_b = own_length(b, begin_b, rank_b);
        }
        if (!skip_a != !skip_b || (!skip_a && *a != *b))
            return false;
        a += skip_a ? skip_a : 1;
        b += skip_b ? skip_b : 1;
    }
    return !*a && !*b;
}

static char *marks(const weft_i_verse *verse)
{
    return verse->text + verse->length + 1;
}

/* May the rank join?  Sets `by_own` when it is the second. */
static bool joins(weft_i_verse *verse, int rank, const char *line)
{
    const char *ours = body_of(verse->text), *theirs = body_of(line);
    if (marks(verse)[rank] || verse->text[5] != line[5]) /* "WARN" or "INFO" */
        return false;
    for (int by_own = 0; by_own < 2; by_own++) {
        if (verse->count > 1 && verse->by_own != by_own)
            continue;
        if (!are_equal(ours, verse->first, theirs, rank, by_own))
            continue;
        verse->by_own = by_own;
        marks(verse)[rank] = 1;
        verse->count++;
        return true;
    }
    return false;
}

int weft_i_chorus_before(const weft_i_chorus *chorus, int rank)
{
    int before = chorus->used;
    while (before && !marks(&chorus->verses[before - 1])[rank])
        before--;
    return before;
}

static bool begin_verse(weft_i_chorus *chorus, int rank, const char *line, size_t length,
                        int64_t now)
{
    if (chorus->used == WEFT_I_CHORUS_HELD)
        return false;
    weft_i_verse *verse = &chorus->verses[chorus->used];
    char *text = WEFT_OS->alloc(length + 1 + (size_t)chorus->ranks);
    if (!text)
        return false;
    memcpy(text, line, length + 1);
    memset(text + length + 1, 0, (size_t)chorus->ranks);
    *verse = (weft_i_verse){.text = text,
                            .length = length,
                            .first = rank,
                            .count = 1,
                            .due = now + WEFT_I_CHORUS_MS * INT64_C(1000000)};
    marks(verse)[rank] = 1;
    chorus->used++;
    return true;
}

bool weft_i_chorus_take(weft_i_chorus *chorus, int rank, const char *line, size_t length,
                        int64_t now)
{
    char copy[WEFT_I_CHORUS_LINE + 1];
    if (!weft_i_chorus_knows(line, length) || length > WEFT_I_CHORUS_LINE ||
        line[length - 1] != '\n' || memchr(line, 0, length))
        return false;
    memcpy(copy, line, length);
    copy[length] = 0;
    if (!body_of(copy))
        return false;
    for (int i = weft_i_chorus_before(chorus, rank); i < chorus->used; i++)
        if (joins(&chorus->verses[i], rank, copy))
            return true;
    return begin_verse(chorus, rank, copy, length, now);
}

int weft_i_chorus_ripe(const weft_i_chorus *chorus, int64_t now)
{
    int ripe = 0;
    while (ripe < chorus->used &&
           (chorus->verses[ripe].due <= now || chorus->verses[ripe].count == chorus->ranks))
        ripe++;
    return ripe;
}

int64_t weft_i_chorus_due(const weft_i_chorus *chorus)
{
    return chorus->used ? chorus->verses[0].due : WEFT_I_NEVER;
}

/* "[0-2,5] " */
static void put_ranks(const weft_i_verse *verse, int ranks, char *out)
{
    weft_i_text text = {out, WEFT_I_CHORUS_PREFIX, 0};
    const char *mark = marks(verse);
    weft_i_text_put(&text, "[");
    for (int from = 0, to; from < ranks; from = to + 1) {
        for (to = from; to < ranks && mark[to]; to++)
            continue;
        if (to == from)
            continue;
        const char *comma = text.used > 1 ? "," : "";
        if (text.used > WEFT_I_CHORUS_PREFIX - 40) {
            weft_i_text_put(&text, "%s...", comma);
            break;
        }
        if (to - from == 1)
            weft_i_text_put(&text, "%s%d", comma, from);
        else
            weft_i_text_put(&text, "%s%d%s%d", comma, from, to - from > 2 ? "-" : ",", to - 1);
    }
    weft_i_text_put(&text, "] ");
}

/* "weft WARN: ", then the message; the prefix says who speaks. */
static void put_text(const weft_i_verse *verse, char *out)
{
    weft_i_text text = {out, WEFT_I_CHORUS_TEXT, 0};
    const char *begin = body_of(verse->text), *from = begin, *at = begin;
    weft_i_text_put(&text, "%.9s: ", verse->text);
    for (size_t skip; verse->by_own && *at; at += skip ? skip : 1) {
        skip = own_length(at, begin, verse->first);
        if (!skip)
            continue;
        weft_i_text_put(&text, "%.*sthis rank", (int)(at - from), from);
        from = at + skip;
    }
    weft_i_text_put(&text, "%s", from);
    WEFT_ASSERT(text.used < WEFT_I_CHORUS_TEXT); /* "this rank" for "rank 0": half as much again */
}

int weft_i_chorus_leave(weft_i_chorus *chorus, char *prefix, char *text)
{
    WEFT_ASSERT(chorus->used);
    weft_i_verse verse = chorus->verses[0];
    prefix[0] = 0;
    if (verse.count > 1) {
        put_ranks(&verse, chorus->ranks, prefix);
        put_text(&verse, text);
    } else {
        memcpy(text, verse.text, verse.length + 1);
    }
    WEFT_OS->free(verse.text);
    chorus->used--;
    memmove(chorus->verses, chorus->verses + 1, (size_t)chorus->used * sizeof verse);
    return verse.first;
}

void weft_i_chorus_close(weft_i_chorus *chorus)
{
    for (int i = 0; i < chorus->used; i++)
        WEFT_OS->free(chorus->verses[i].text);
    chorus->used = 0;
}

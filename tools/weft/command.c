/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the words of a call with getopt_long, by the table; see command.h. */
#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* What getopt_long returns for a long option: its place in the table behind this. */
enum { LONG = 1000, HELP = 999, OPTIONS_MAX = 64, WORD_MAX = 64 };

const subcommand *const weft_commands[] = {&weft_command_bench,
                                           &weft_command_completion,
                                           &weft_command_doctor,
                                           &weft_command_help,
                                           &weft_command_info,
                                           &weft_command_plot,
                                           &weft_command_run,
                                           &weft_command_token,
                                           &weft_command_top,
                                           &weft_command_trace,
                                           NULL};

const subcommand *command_find(const char *name)
{
    for (int i = 0; weft_commands[i]; i++)
        if (!strcmp(name, weft_commands[i]->name))
            return weft_commands[i];
    return NULL;
}

int command_wrong(const subcommand *command, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "weft %s: ", command->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nTry `weft %s --help`.\n", command->name);
    return COMMAND_WRONG_USE;
}

int command_is_plain(const char *word)
{
    for (; *word; word++)
        if (!isalnum((unsigned char)*word) && !strchr("._-/:@%+", *word))
            return 0;
    return 1;
}

/* ---- what was meant ---- */

static int least(int a, int b, int c)
{
    int two = a < b ? a : b;
    return two < c ? two : c;
}

/* How many letters must be added, dropped, changed or swapped with their neighbour. */
static int distance(const char *a, const char *b)
{
    int rows[3][WORD_MAX + 1];
    int m = (int)strlen(a), n = (int)strlen(b);
    if (m > WORD_MAX || n > WORD_MAX)
        return WORD_MAX;
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *now = rows[i % 3], *last = rows[(i + 2) % 3], *older = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= n; j++) {
            now[j] = least(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                older[j - 2] + 1 < now[j])
                now[j] = older[j - 2] + 1;
        }
    }
    return rows[m % 3][n];
}

const char *command_nearest(const char *word, const char *(*next)(const void *list, int index),
                            const void *list)
{
    const char *best = NULL, *other;
    int length = (int)strlen(word), nearest = 1 + length / 3;
    for (int i = 0; (other = next(list, i)); i++) {
        int changes = distance(word, other);
        if (length > 1 && (changes < nearest || (changes == nearest && !best))) {
            best = other;
            nearest = changes;
        }
    }
    return best;
}

static const char *long_name(const void *list, int index)
{
    const command_option *options = list;
    for (; options->letter || options->name; options++)
        if (options->name && index-- == 0)
            return options->name;
    return index == 0 ? "help" : NULL;
}

/* A long option that is none, or the beginning of several. */
static int unknown_long(const subcommand *command, const char *word)
{
    char name[WORD_MAX], list[512];
    size_t length = strcspn(word + 2, "="), used = 0;
    int several = 0;
    const char *other;
    snprintf(name, sizeof name, "%.*s", (int)length, word + 2);
    for (int i = 0; length && (other = long_name(command->options, i)); i++)
        if (!strncmp(other, word + 2, length) && used < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s--%s",
                                     several ? " or " : "", other);
            several++;
        }
    if (several > 1)
        return command_wrong(command, "--%s may be %s", name, list);
    other = command_nearest(name, long_name, command->options);
    if (other)
        return command_wrong(command, "--%s is not an option.  Did you mean --%s?", name, other);
    return command_wrong(command, "--%s is not an option", name);
}

/* ---- values ---- */

/* "core, none or all" of "core|none|all". */
static void spell_choices(const char *takes, char *out, size_t room)
{
    size_t used = 0;
    const char *last = strrchr(takes, '|');
    for (const char *at = takes; *at && used + 8 < room; at++) {
        const char *text = *at != '|' ? NULL : at == last ? " or " : ", ";
        used += (size_t)snprintf(out + used, room - used, text ? "%s" : "%.1s", text ? text : at);
    }
}

static int refused(const subcommand *command, const command_option *option, const char *spelled,
                   const char *value)
{
    char takes[256] = "";
    if (option->high > option->low)
        snprintf(takes, sizeof takes, "a whole number from %ld to %ld", option->low, option->high);
    else if (option->takes)
        spell_choices(option->takes, takes, sizeof takes);
    return command_wrong(command, "%s cannot take \"%s\": it takes %s", spelled, value,
                         *takes ? takes : "something else");
}

/* -n 4 and --ranks 4: how the option was written, for messages. */
static const char *spell(const command_option *option, int by_letter, char out[WORD_MAX])
{
    if (by_letter || !option->name)
        snprintf(out, WORD_MAX, "-%c", option->letter);
    else
        snprintf(out, WORD_MAX, "--%s", option->name);
    return out;
}

static int read_number(const command_option *option, const char *text, long *out)
{
    char *end;
    errno = 0;
    *out = strtol(text, &end, 10);
    return !errno && end != text && !*end && *out >= option->low && *out <= option->high;
}

static int take(const subcommand *command, const command_option *option, int by_letter,
                const char *value, void *into)
{
    char spelled[WORD_MAX];
    long number = 0;
    spell(option, by_letter, spelled);
    /* Users of mpirun write -np 4; getopt reads -n with the value "p". */
    if (by_letter && option->letter == 'n' && value && !strcmp(value, "p"))
        return command_wrong(command, "-np is how mpirun spells -n: weft %s -n 4 ...",
                             command->name);
    if (option->high > option->low && !read_number(option, value, &number))
        return refused(command, option, spelled, value);
    return option->set(into, value, number) ? COMMAND_GOES_ON
                                            : refused(command, option, spelled, value ? value : "");
}

/* ---- getopt_long ---- */

typedef struct reading {
    const subcommand *command;
    const char *letters;
    const struct option *longs;
    char **argv;
    void *into;
    unsigned marks;
} reading;

/* The table as getopt_long wants it.  "-": words that are no options come in their order, as code 1;
 * "+": the first of them ends the options. */
static void translate(const subcommand *command, char *letters, struct option *longs)
{
    *letters++ = command->ends_at_program ? '+' : '-';
    *letters++ = ':';
    for (int i = 0; i < OPTIONS_MAX && (command->options[i].letter || command->options[i].name);
         i++) {
        const command_option *option = &command->options[i];
        if (option->letter)
            *letters++ = option->letter;
        if (option->letter && option->value)
            *letters++ = ':';
        if (option->name)
            *longs++ = (struct option){option->name, option->value != NULL, NULL, LONG + i};
    }
    *letters++ = 'h';
    *letters = 0;
    *longs++ = (struct option){"help", 0, NULL, HELP};
    *longs = (struct option){0};
}

static const command_option *option_of(const subcommand *command, int code)
{
    if (code >= LONG)
        return &command->options[code - LONG];
    for (const command_option *o = command->options; o->letter || o->name; o++)
        if (o->letter && o->letter == code)
            return o;
    return NULL;
}

/* getopt_long says '?' or ':'. */
static int complain(const reading *r, int code)
{
    char spelled[WORD_MAX];
    const char *word = r->argv[optind - 1];
    const command_option *option = optopt ? option_of(r->command, optopt) : NULL;
    if (option) {
        spell(option, optopt < LONG, spelled);
        return command_wrong(r->command, code == ':' ? "%s needs a value" : "%s takes no value",
                             spelled);
    }
    if (optopt == HELP)
        return command_wrong(r->command, "--help takes no value");
    if (!optopt)
        return unknown_long(r->command, word);
    return command_wrong(r->command, "-%c is not an option", optopt);
}

/* Takes the next option or word; COMMAND_GOES_ON, or the exit status. */
static int step(reading *r, int code, char ***operands)
{
    if (code == 1) {
        *(*operands)++ = optarg;
        return COMMAND_GOES_ON;
    }
    if (code == HELP || code == 'h')
        return command_help(r->command, stdout);
    if (code == '?' || code == ':')
        return complain(r, code);
    const command_option *option = option_of(r->command, code);
    r->marks |= option->mark;
    return take(r->command, option, code < LONG, optarg, r->into);
}

int command_read(const subcommand *command, int argc, char **argv, void *into, char **operands,
                 unsigned *marks)
{
    char letters[4 + 2 * OPTIONS_MAX];
    struct option longs[OPTIONS_MAX + 2];
    reading r = {command, letters, longs, argv, into, 0};
    int status = COMMAND_GOES_ON, code;
    translate(command, letters, longs);
    opterr = 0;
    optind = 0; /* begin anew, also for GNU's own state */
    while (status == COMMAND_GOES_ON &&
           (code = getopt_long(argc, argv, letters, longs, NULL)) != -1)
        status = step(&r, code, &operands);
    for (; status == COMMAND_GOES_ON && optind < argc; optind++)
        *operands++ = argv[optind];
    *operands = NULL;
    if (marks)
        *marks = r.marks;
    return status;
}

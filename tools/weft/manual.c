/* SPDX-License-Identifier: Apache-2.0 */
/* --help and manual pages, made of the table of commands; see command.h. */
#include "command.h"

#include <weft/weft.h>

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 100, HANG = 25 };

static int written(FILE *out)
{
    return fflush(out) != 0 || ferror(out);
}

/* ---- text for terminals ---- */

/* One paragraph, broken at blanks; `at` is the column it begins in, `hang` that of its other
 * lines. */
static void print_wrapped(FILE *out, const char *text, size_t bytes, int at, int hang)
{
    const char *end = text + bytes;
    int first = 1;
    while (text < end) {
        size_t word = strcspn(text, " \n");
        word = word > (size_t)(end - text) ? (size_t)(end - text) : word;
        if (!first && at + 1 + (int)word > WIDTH) {
            fprintf(out, "\n%*s", hang, "");
            at = hang;
            first = 1;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", (int)word, text);
        at += (int)word + !first;
        first = 0;
        for (text += word; text < end && (*text == ' ' || *text == '\n'); text++)
            ;
    }
    fputc('\n', out);
}

/* Paragraphs end with a line; those that begin with a blank stay as they are. */
static void print_paragraphs(FILE *out, const char *text)
{
    while (text && *text) {
        size_t bytes = strcspn(text, "\n");
        if (*text == ' ' || !bytes)
            fprintf(out, "%.*s\n", (int)bytes, text);
        else
            print_wrapped(out, text, bytes, 0, 0);
        text += bytes + (text[bytes] == '\n');
    }
}

/* "weft run [options] ..." for every form, with `first` before the first line and `other` before the
 * others. */
static void print_forms(FILE *out, const subcommand *command, const char *first, const char *other)
{
    const char *text = command->usage;
    for (const char *lead = first;; lead = other) {
        size_t bytes = strcspn(text, "\n");
        fprintf(out, "%sweft %s%s%.*s\n", lead, command->name, bytes ? " " : "", (int)bytes, text);
        if (!text[bytes])
            return;
        text += bytes + 1;
    }
}

int command_usage(const subcommand *command, FILE *out)
{
    print_forms(out, command, "usage: ", "       ");
    return written(out);
}

/* "-n, --ranks N" */
static void spell_head(const command_option *option, char *head, size_t room)
{
    char letter[4] = "";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c", option->letter);
    snprintf(head, room, "%s%s%s%s%s%s", letter, option->letter && option->name ? ", " : "",
             option->name ? "--" : "", option->name ? option->name : "", option->value ? " " : "",
             option->value ? option->value : "");
}

static void print_entry(FILE *out, const char *head, const char *text)
{
    int length = (int)strlen(head) + 2;
    fprintf(out, "  %s", head);
    if (length + 1 > HANG)
        fprintf(out, "\n%*s", HANG, "");
    else
        fprintf(out, "%*s", HANG - length, "");
    print_wrapped(out, text, strlen(text), HANG, HANG);
}

static const command_option help_option = {'h', "help", NULL, 0, 0, NULL, "this text", 0, NULL};

static void print_options(FILE *out, const subcommand *command)
{
    char head[64];
    fputs("\nOptions:\n", out);
    for (const command_option *o = command->options; o->letter || o->name; o++) {
        spell_head(o, head, sizeof head);
        print_entry(out, head, o->text);
    }
    spell_head(&help_option, head, sizeof head);
    print_entry(out, head, help_option.text);
}

int command_help(const subcommand *command, FILE *out)
{
    const char *word, *text;
    command_usage(command, out);
    fputc('\n', out);
    print_paragraphs(out, command->about);
    if (command->word) {
        fprintf(out, "\n%s:\n", command->words);
        for (int i = 0; (word = command->word(i, &text)); i++)
            print_entry(out, word, text);
    }
    print_options(out, command);
    if (command->after) {
        fputc('\n', out);
        print_paragraphs(out, command->after);
    }
    if (command->exits) {
        fputs("\nExit status:\n", out);
        print_paragraphs(out, command->exits);
    }
    return written(out);
}

/* ---- manual pages ---- */

/* roff gives a meaning to backslashes, hyphens, and dots and quotes that begin a line. */
static void print_roff(FILE *out, const char *text, size_t bytes)
{
    if (bytes && (*text == '.' || *text == '\''))
        fputs("\\&", out);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else
            fputc(text[i], out);
}

static void print_roff_line(FILE *out, const char *text)
{
    print_roff(out, text, strlen(text));
    fputc('\n', out);
}

static void print_roff_paragraphs(FILE *out, const char *text)
{
    int verbatim = 0;
    for (; text && *text; text += *text == '\n') {
        size_t bytes = strcspn(text, "\n");
        if (verbatim != (*text == ' '))
            fputs((verbatim = *text == ' ') ? ".nf\n" : ".fi\n", out);
        if (bytes) {
            print_roff(out, text, bytes);
            fputc('\n', out);
        } else {
            fputs(".PP\n", out);
        }
        text += bytes;
    }
    if (verbatim)
        fputs(".fi\n", out);
}

static void print_title(FILE *out, const char *name, const char *text)
{
    fprintf(out, ".\\\" SPDX-License-Identifier: Apache-2.0\n");
    fprintf(out, ".\\\" Written by `weft help --man`; do not edit.\n");
    fprintf(out, ".TH \"%s\" 1 \"\" \"weft %s\" \"User Commands\"\n.SH NAME\n", name,
            weft_version());
    print_roff_line(out, name);
    fputs("\\- ", out);
    print_roff_line(out, text);
    fputs(".SH SYNOPSIS\n.nf\n", out);
}

static void print_roff_entry(FILE *out, const char *head, const char *text)
{
    fputs(".TP\n.B ", out);
    print_roff_line(out, head);
    print_roff_line(out, text);
}

static void print_roff_options(FILE *out, const subcommand *command)
{
    char head[64];
    fputs(".SH OPTIONS\n", out);
    for (const command_option *o = command->options; o->letter || o->name; o++) {
        spell_head(o, head, sizeof head);
        print_roff_entry(out, head, o->text);
    }
    spell_head(&help_option, head, sizeof head);
    print_roff_entry(out, head, help_option.text);
}

static void print_roff_section(FILE *out, const char *title, const char *text)
{
    if (!text)
        return;
    fprintf(out, ".SH %s\n", title);
    print_roff_paragraphs(out, text);
}

int command_manual(const subcommand *command, FILE *out)
{
    char name[64];
    const char *word, *text;
    snprintf(name, sizeof name, "weft-%s", command->name);
    print_title(out, name, command->text);
    print_forms(out, command, "", "");
    fputs(".fi\n", out);
    print_roff_section(out, "DESCRIPTION", command->about);
    for (int i = 0; command->word && (word = command->word(i, &text)); i++)
        print_roff_entry(out, word, text);
    print_roff_options(out, command);
    print_roff_section(out, "NOTES", command->after);
    print_roff_section(out, "EXIT STATUS", command->exits);
    fputs(".SH SEE ALSO\n.BR weft (1)\n", out);
    return written(out);
}

static void print_roff_variables(FILE *out)
{
    weft_env_info env;
    fputs(".SH ENVIRONMENT\n", out);
    for (int i = 0; i < weft_env_count() && weft_env_describe(i, &env) == WEFT_OK; i++) {
        char head[96];
        snprintf(head, sizeof head, *env.fallback ? "%s (%s)" : "%s", env.name, env.fallback);
        print_roff_entry(out, head, env.meaning);
    }
}

int command_manual_of_all(FILE *out)
{
    print_title(out, "weft", "symmetric memory and collectives for the ranks of a parallel job");
    fputs("weft COMMAND [options]\n.fi\n.SH DESCRIPTION\n", out);
    for (int i = 0; weft_commands[i]; i++) {
        char head[64];
        snprintf(head, sizeof head, "weft %s", weft_commands[i]->name);
        print_roff_entry(out, head, weft_commands[i]->text);
    }
    print_roff_variables(out);
    fputs(".SH SEE ALSO\n", out);
    for (int i = 0; weft_commands[i]; i++)
        fprintf(out, ".BR weft\\-%s (1)%s\n", weft_commands[i]->name,
                weft_commands[i + 1] ? "," : "");
    return written(out);
}

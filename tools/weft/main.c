/* SPDX-License-Identifier: Apache-2.0 */
/* The `weft` command: finds the subcommand in one table and hands the arguments over. */
#include "command.h"

#include <weft/weft.h>

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *text;
} commands[] = {
    {"bench", weft_cmd_bench, "what things cost on this machine, beside their floors [--json]"},
    {"info", weft_cmd_info, "what this build and this machine offer, and every setting [--json]"},
    {"run", weft_cmd_run, "starts the ranks of a program: weft run -n 4 ./program"},
    {"token", weft_cmd_token, "prints a new secret for ranks on several hosts (WEFT_TOKEN)"},
    {"trace", weft_cmd_trace,
     "merges the traces of ranks into one, or sums them up: weft trace summary a.json b.json"},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static int print_help(FILE *out)
{
    fprintf(out, "weft %s: symmetric memory and collectives for the ranks of a parallel job\n\n",
            weft_version());
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  weft %-8s %s\n", commands[i].name, commands[i].text);
    fprintf(out, "  weft %-8s this list\n", "help");
    fprintf(out, "\n`weft <command> --help` tells more about one of them.\n");
    return out == stdout ? 0 : 2;
}

static int is_one_of(const char *word, const char *first, const char *second, const char *third)
{
    return !strcmp(word, first) || !strcmp(word, second) || !strcmp(word, third);
}

/* The command that shares the longest beginning with a mistyped one; NULL if none shares two
 * letters. */
static const char *nearest(const char *word)
{
    const char *best = NULL;
    size_t best_length = 1;
    for (int i = 0; i < COMMANDS; i++) {
        size_t length = 0;
        while (word[length] && word[length] == commands[i].name[length])
            length++;
        if (length > best_length) {
            best = commands[i].name;
            best_length = length;
        }
    }
    return best;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return print_help(stderr);
    if (is_one_of(argv[1], "help", "--help", "-h"))
        return print_help(stdout);
    if (is_one_of(argv[1], "version", "--version", "-V"))
        return printf("weft %s\n", weft_version()) < 0;
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    const char *guess = nearest(argv[1]);
    fprintf(stderr, "weft: there is no command \"%s\".", argv[1]);
    if (guess)
        fprintf(stderr, "  Did you mean \"%s\"?", guess);
    fprintf(stderr, "  `weft help` lists them.\n");
    return 2;
}

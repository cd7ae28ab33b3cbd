/* SPDX-License-Identifier: Apache-2.0 */
/* The `weft` command: finds the subcommand in the table and hands the arguments over. */
#include "command.h"

#include <weft/weft.h>

#include <stdlib.h>
#include <string.h>

static int print_list(FILE *out)
{
    fprintf(out, "weft %s: symmetric memory and collectives for the ranks of a parallel job\n\n",
            weft_version());
    for (int i = 0; weft_commands[i]; i++)
        fprintf(out, "  weft %-11s %s\n", weft_commands[i]->name, weft_commands[i]->text);
    fprintf(out, "\n`weft help <command>` tells more about one of them.\n");
    return out == stdout ? fflush(out) != 0 || ferror(out) : COMMAND_WRONG_USE;
}

static const char *name_of(const void *list, int index)
{
    const subcommand *const *commands = list;
    return commands[index] ? commands[index]->name : NULL;
}

static int unknown(const char *word)
{
    const char *guess = command_nearest(word, name_of, weft_commands);
    fprintf(stderr, "weft: there is no command \"%s\".", word);
    if (guess)
        fprintf(stderr, "  Did you mean \"%s\"?", guess);
    fprintf(stderr, "  `weft help` lists them.\n");
    return COMMAND_WRONG_USE;
}

/* ---- weft help ---- */

static int set_manual(void *into, const char *text, long number)
{
    (void)text, (void)number;
    return *(int *)into = 1;
}

static const char *command_word(int index, const char **text)
{
    const subcommand *command = weft_commands[index];
    *text = command ? command->text : NULL;
    return command ? command->name : NULL;
}

static int help(int argc, char **argv)
{
    int manual = 0;
    char **words = calloc((size_t)argc + 1, sizeof *words);
    int status = words ? command_read(&weft_command_help, argc, argv, &manual, words, NULL) : 1;
    if (status == COMMAND_GOES_ON) {
        const subcommand *command = words[0] ? command_find(words[0]) : NULL;
        if (words[0] && words[1])
            status = command_wrong(&weft_command_help, "one command at a time");
        else if (words[0] && !command)
            status = unknown(words[0]);
        else if (!command)
            status = manual ? command_manual_of_all(stdout) : print_list(stdout);
        else
            status = manual ? command_manual(command, stdout) : command_help(command, stdout);
    }
    free(words);
    return status;
}

static const command_option help_options[] = {
    {0, "man", NULL, 0, 0, NULL, "as a manual page, for man -l -", 0, set_manual},
    {0},
};

const subcommand weft_command_help = {
    .name = "help",
    .text = "lists the commands, or tells more about one",
    .usage = "[--man] [COMMAND]",
    .about = "Without a name, the list of commands; with one, what `weft COMMAND --help` prints.",
    .options = help_options,
    .word = command_word,
    .words = "Commands",
    .run = help,
};

int main(int argc, char **argv)
{
    if (argc < 2)
        return print_list(stderr);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return print_list(stdout);
    if (!strcmp(argv[1], "version") || !strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
        return printf("weft %s\n", weft_version()) < 0;
    const subcommand *command = command_find(argv[1]);
    return command ? command->run(argc - 1, argv + 1) : unknown(argv[1]);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `weft help`: the list of commands, and what each of them tells about itself. */
#include "command.h"

#include <weft/weft.h>

#include <stdlib.h>

int command_list(FILE *out)
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

int command_unknown(const char *word)
{
    const char *guess = command_nearest(word, name_of, weft_commands);
    fprintf(stderr, "weft: there is no command \"%s\".", word);
    if (guess)
        fprintf(stderr, "  Did you mean \"%s\"?", guess);
    fprintf(stderr, "  `weft help` lists them.\n");
    return COMMAND_WRONG_USE;
}

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
            status = command_unknown(words[0]);
        else if (!command)
            status = manual ? command_manual_of_all(stdout) : command_list(stdout);
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

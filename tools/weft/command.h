/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands of `weft` and their options: one table.  Reading the words of a call, --help, the
 * manual pages and the completion of shells are all walks over it, so that none of them can lack an
 * option that another has.
 */
#ifndef WEFT_TOOLS_COMMAND_H
#define WEFT_TOOLS_COMMAND_H

#include <stdio.h>

typedef struct command_option {
    char letter;       /* 'n' for -n; 0: none */
    const char *name;  /* "ranks" for --ranks; NULL: none */
    const char *value; /* what it takes, as help names it: "N"; NULL: nothing */
    long low, high;    /* a whole number from low to high, if high is larger */
    const char *takes; /* what it takes, for a value that is refused: words with "|" between them
                          ("core|none"), which shells complete too, or any other text */
    const char *text;
    unsigned mark; /* for the command: command_read ors the marks of all that were given */
    /* Takes the value; 0 refuses it.  `number` is there for options with low and high. */
    int (*set)(void *into, const char *text, long number);
} command_option;

typedef struct subcommand {
    const char *name, *text;
    const char *usage;             /* what may follow the name; several forms are lines */
    const char *about;             /* paragraphs; lines that begin with a blank stay as they are */
    const command_option *options; /* the last one has neither letter nor name */
    /* The words that may stand where no option does, the first one at 0, NULL behind the last; what
     * they are called.  Both may be NULL. */
    const char *(*word)(int index, const char **text);
    const char *words;
    const char *after;   /* paragraphs behind the options */
    const char *exits;   /* paragraphs about the exit status */
    int ends_at_program; /* the first word that is no option is a program: the rest is its own */
    int (*run)(int argc, char **argv); /* argv[0] is the name */
} subcommand;

extern const subcommand weft_command_bench, weft_command_completion, weft_command_doctor,
    weft_command_help, weft_command_info, weft_command_plot, weft_command_run, weft_command_token,
    weft_command_top, weft_command_trace;

/* What `weft help` prints; 0, or what the command ends with. */
int command_list(FILE *out);
/* There is no such command: says so, and which one may be meant. */
int command_unknown(const char *word);

/* All of them, by name; NULL behind the last. */
extern const subcommand *const weft_commands[];
const subcommand *command_find(const char *name);

/* Goes on with the command: nothing was wrong and no help was asked for. */
enum { COMMAND_GOES_ON = -1, COMMAND_WRONG_USE = 2 };

/*
 * Reads the words of a call.  Options go to their set functions, with `into`; the others to
 * `operands`, which has room for argc + 1 and ends with NULL.  COMMAND_GOES_ON, or the exit status
 * after --help or a message.  `marks` may be NULL.
 */
int command_read(const subcommand *command, int argc, char **argv, void *into, char **operands,
                 unsigned *marks);

/* "weft run: --tee needs --log-dir", and how to get help.  Returns COMMAND_WRONG_USE. */
int command_wrong(const subcommand *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The word of a list that is most like a mistyped one, NULL if none is like it.  `next` gives the
 * words, NULL behind the last. */
const char *command_nearest(const char *word, const char *(*next)(const void *list, int index),
                            const void *list);

/* Only what a shell takes as it is: a word that becomes part of a command. */
int command_is_plain(const char *word);

/* Pages made of the table.  0, or 1 if they cannot be written. */
int command_help(const subcommand *command, FILE *out);
int command_usage(const subcommand *command, FILE *out);
int command_manual(const subcommand *command, FILE *out);
int command_manual_of_all(FILE *out);
int command_complete_bash(FILE *out);
int command_complete_zsh(FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* `weft completion`: how bash and zsh complete the words of `weft`, made of the table of commands. */
#include "command.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int written(FILE *out)
{
    return fflush(out) != 0 || ferror(out);
}

/* What the value of an option is completed from. */
typedef enum source { SOURCE_NONE, SOURCE_WORDS, SOURCE_FILES, SOURCE_FOLDERS } source;

static source source_of(const command_option *option)
{
    if (option->takes && strchr(option->takes, '|'))
        return SOURCE_WORDS;
    if (!strcmp(option->value, "DIR"))
        return SOURCE_FOLDERS;
    /* FILE, FILE.json, OLD.json, OUT.svg; but not a list, "MxNxK,..." */
    const char *dot = strchr(option->value, '.');
    return !strncmp(option->value, "FILE", 4) || (dot && isalpha((unsigned char)dot[1]))
               ? SOURCE_FILES
               : SOURCE_NONE;
}

/* "core|none" as "core none". */
static void print_choices(FILE *out, const char *takes)
{
    for (; *takes; takes++)
        fputc(*takes == '|' ? ' ' : *takes, out);
}

static void print_names(FILE *out, const command_option *option, const char *between)
{
    if (option->letter)
        fprintf(out, "-%c", option->letter);
    if (option->letter && option->name)
        fputs(between, out);
    if (option->name)
        fprintf(out, "--%s", option->name);
}

/* ---- bash ---- */

/* The options that take a value, so that the value is not taken for the program of `weft run`. */
static void bash_values(FILE *out, const subcommand *command)
{
    for (const command_option *o = command->options; o->letter || o->name; o++) {
        if (!o->value)
            continue;
        char between[48];
        snprintf(between, sizeof between, "' | '%s ", command->name);
        fprintf(out, "        '%s ", command->name);
        print_names(out, o, between);
        fputs("') ", out);
        source from = source_of(o);
        if (from == SOURCE_WORDS) {
            fputs("COMPREPLY=($(compgen -W '", out);
            print_choices(out, o->takes);
            fputs("' -- \"$cur\"))", out);
        } else if (from == SOURCE_FOLDERS) {
            fputs("COMPREPLY=($(compgen -d -- \"$cur\"))", out);
        } else if (from == SOURCE_FILES) {
            fputs("COMPREPLY=($(compgen -f -- \"$cur\"))", out);
        }
        fputs(from == SOURCE_NONE ? "return ;;\n" : "; return ;;\n", out);
    }
}

static void bash_lists(FILE *out, const subcommand *command)
{
    const char *word, *text;
    fprintf(out, "        %s)\n            options='", command->name);
    for (const command_option *o = command->options; o->letter || o->name; o++) {
        print_names(out, o, " ");
        fputc(' ', out);
    }
    fputs("--help' valued='", out);
    for (const command_option *o = command->options; o->letter || o->name; o++)
        if (o->value) {
            fputc(' ', out);
            print_names(out, o, " ");
        }
    fputs(" ' words='", out);
    for (int i = 0; command->word && (word = command->word(i, &text)); i++)
        fprintf(out, "%s%s", i ? " " : "", word);
    fputs("'", out);
    if (command->ends_at_program)
        fputs("\n            program=1", out);
    fputs(" ;;\n", out);
}

static const char bash_head[] =
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# bash completion of weft; written by `weft completion bash`.\n"
    "# shellcheck shell=bash disable=SC2207\n"
    "_weft() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local command=${COMP_WORDS[1]} options='' valued='' words='' program='' i\n"
    "    COMPREPLY=()\n"
    "    # --bind=co comes as three words.\n"
    "    if [[ $cur == = ]]; then cur=''\n"
    "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n";

static const char bash_tail[] =
    "    # What follows the program of `weft run` is the program's own.\n"
    "    if [[ $program ]]; then\n"
    "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "            [[ ${COMP_WORDS[i]} == -- ]] && return\n"
    "            [[ $valued == *\" ${COMP_WORDS[i]} \"* ]] && { ((i++)); continue; }\n"
    "            [[ ${COMP_WORDS[i]} == -* || ${COMP_WORDS[i]} == = ||\n"
    "                ${COMP_WORDS[i-1]} == = ]] || return\n"
    "        done\n"
    "    fi\n"
    "    case \"$command $prev\" in\n";

int command_complete_bash(FILE *out)
{
    fputs(bash_head, out);
    fputs("    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '", out);
    for (int i = 0; weft_commands[i]; i++)
        fprintf(out, "%s ", weft_commands[i]->name);
    fputs("--help --version' -- \"$cur\"))\n        return\n    fi\n    case $command in\n", out);
    for (int i = 0; weft_commands[i]; i++)
        bash_lists(out, weft_commands[i]);
    fputs("        *) return ;;\n    esac\n", out);
    fputs(bash_tail, out);
    for (int i = 0; weft_commands[i]; i++)
        bash_values(out, weft_commands[i]);
    fputs("    esac\n"
          "    [[ $cur == -* ]] && words=$options\n"
          "    [[ $program && $cur != -* ]] && { COMPREPLY=($(compgen -c -- \"$cur\")); return; }\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "}\n"
          "complete -o bashdefault -o default -F _weft weft\n",
          out);
    return written(out);
}

/* ---- zsh ---- */

/* Inside '...' of zsh, and inside [...] of _arguments, where brackets and colons have a meaning. */
static void print_zsh(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:\\", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
}

static void zsh_value(FILE *out, const command_option *option)
{
    if (!option->value)
        return;
    fputc(':', out);
    print_zsh(out, option->value);
    fputc(':', out);
    switch (source_of(option)) {
    case SOURCE_WORDS:
        fputc('(', out);
        print_choices(out, option->takes);
        fputc(')', out);
        break;
    case SOURCE_FILES:
        fputs("_files", out);
        break;
    case SOURCE_FOLDERS:
        fputs("_files -/", out);
        break;
    case SOURCE_NONE:
        break;
    }
}

/* One spec for each name: '-n+[text]:N:' and '--ranks=[text]:N:'. */
static void zsh_option(FILE *out, const command_option *option)
{
    for (int letter = 0; letter < 2; letter++) {
        if (letter ? !option->letter : !option->name)
            continue;
        fputs("                '", out);
        if (letter)
            fprintf(out, "-%c%s[", option->letter, option->value ? "+" : "");
        else
            fprintf(out, "--%s%s[", option->name, option->value ? "=" : "");
        print_zsh(out, option->text);
        fputc(']', out);
        zsh_value(out, option);
        fputs("' \\\n", out);
    }
}

static void zsh_command(FILE *out, const subcommand *command)
{
    const char *word, *text;
    fprintf(out, "        %s)\n            _arguments -s \\\n", command->name);
    for (const command_option *o = command->options; o->letter || o->name; o++)
        zsh_option(out, o);
    fputs("                '(- *)'{-h,--help}'[this text]' \\\n", out);
    if (command->ends_at_program) {
        fputs("                '*:: :_normal' ;;\n", out);
        return;
    }
    if (!command->word) {
        fputs("                '*: :_files' ;;\n", out);
        return;
    }
    fputs("                '*: :((", out);
    for (int i = 0; (word = command->word(i, &text)); i++) {
        fprintf(out, "%s%s\\:\"", i ? " " : "", word);
        print_zsh(out, text);
        fputc('"', out);
    }
    fputs("))' ;;\n", out);
}

int command_complete_zsh(FILE *out)
{
    fputs("#compdef weft\n"
          "# SPDX-License-Identifier: Apache-2.0\n"
          "# zsh completion of weft; written by `weft completion zsh`.\n"
          "_weft() {\n"
          "    if (( CURRENT == 2 )); then\n"
          "        local -a commands\n"
          "        commands=(\n",
          out);
    for (int i = 0; weft_commands[i]; i++) {
        fprintf(out, "            '%s:", weft_commands[i]->name);
        print_zsh(out, weft_commands[i]->text);
        fputs("'\n", out);
    }
    fputs("        )\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    case $command in\n",
          out);
    for (int i = 0; weft_commands[i]; i++)
        zsh_command(out, weft_commands[i]);
    fputs("    esac\n}\n_weft \"$@\"\n", out);
    return written(out);
}

/* ---- the command ---- */

static const char *shell_word(int index, const char **text)
{
    static const char *const shells[] = {"bash", "zsh"};
    *text = index == 0 ? "for ~/.bashrc or share/bash-completion/completions/weft"
                       : "for a file _weft in a folder of $fpath";
    return index < 2 ? shells[index] : NULL;
}

static int run(int argc, char **argv)
{
    char **words = calloc((size_t)argc + 1, sizeof *words);
    int status = words ? command_read(&weft_command_completion, argc, argv, NULL, words, NULL) : 1;
    if (status == COMMAND_GOES_ON) {
        if (words[0] && !words[1] && !strcmp(words[0], "bash"))
            status = command_complete_bash(stdout);
        else if (words[0] && !words[1] && !strcmp(words[0], "zsh"))
            status = command_complete_zsh(stdout);
        else
            status = command_wrong(&weft_command_completion, "for which shell: bash or zsh?");
    }
    free(words);
    return status;
}

static const command_option options[] = {{0}};

const subcommand weft_command_completion = {
    .name = "completion",
    .text = "prints what makes a shell complete the words of weft",
    .usage = "bash | zsh",
    .about = "`make install` installs both files where the shells look for them.  Without it:\n"
             "\n"
             "    source <(weft completion bash)                      # in ~/.bashrc\n"
             "    weft completion zsh >~/.zfunc/_weft                 # ~/.zfunc is in $fpath",
    .options = options,
    .word = shell_word,
    .words = "Shells",
    .run = run,
};

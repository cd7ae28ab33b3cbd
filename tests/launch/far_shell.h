/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that are pretended: a script in the place of ssh, which runs the command on this machine
 * under another identity, or in a network namespace of its own.  Not in the process of the script,
 * as ssh: what happens there does not end with it.
 */
#ifndef WEFT_TESTS_FAR_SHELL_H
#define WEFT_TESTS_FAR_SHELL_H

#include "launch_shell.h"

#include <sys/stat.h>

/* Writes an executable script into the folder. */
static void write_script(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file);
    fprintf(file, "#!/bin/sh\n%s", text);
    fclose(file);
    CHECK(!chmod(path, 0755));
}

/* The shell of pretended hosts, after `before`; $host is its first word, $* the command. */
static void write_far_shell(const char *before)
{
    char text[4096];
    /* A command in the background would read /dev/null. */
    snprintf(text, sizeof text,
             "host=$1; shift\n%s\n"
             "exec 3<&0\n"
             "WEFT_HOST_ID=pretended-$host sh -c \"$*\" <&3 3<&- & command=$!\n"
             "exec 3<&-\n"
             "wait $command\n",
             before);
    write_script("rsh", text);
}

/* As a part of a format, and as plain text. */
#define FAR       "$W run --rsh \"$D/rsh %%h\" "
#define FAR_PLAIN "$W run --rsh \"$D/rsh %h\" "

#endif

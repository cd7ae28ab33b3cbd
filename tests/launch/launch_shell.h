/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of `weft run`: shell commands around it, and what they wrote.  The test program itself
 * acts as a rank when its first argument is "rank"; what the rank does is the next argument.
 */
#ifndef WEFT_TESTS_LAUNCH_SHELL_H
#define WEFT_TESTS_LAUNCH_SHELL_H

#include "harness.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static char self[512], folder[] = "/tmp/weft-launch-XXXXXX";
static char out[8 << 20], err[1 << 16];

static size_t slurp(const char *name, char *into, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY);
    size_t used = 0;
    for (ssize_t n;
         fd >= 0 && used < bytes - 1 && (n = read(fd, into + used, bytes - 1 - used)) > 0;)
        used += (size_t)n;
    if (fd >= 0)
        close(fd);
    into[used] = 0;
    return used;
}

/* Runs a shell command with W the weft command, S this program and D the folder; fills `out` and
 * `err`. */
static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...)
{
    char text[4096], command[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(command, sizeof command, "W='%s'; S='%s rank'; D='%s'; { %s\n} >$D/out 2>$D/err",
             WEFT_COMMAND, self, folder, text);
    int status = system(command);
    slurp("out", out, sizeof out);
    slurp("err", err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int count(const char *text, const char *part)
{
    int found = 0;
    for (; (text = strstr(text, part)); text++)
        found++;
    return found;
}

/* The main function of such a program. */
static int launch_main(int argc, char **argv, int (*rank_main)(const char *what))
{
    if (argc > 2 && !strcmp(argv[1], "rank"))
        return rank_main(argv[2]);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || !mkdtemp(folder))
        return 2;
    int result = harness_main(argc, argv);
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0 || result;
}

#endif

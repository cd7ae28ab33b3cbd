/* SPDX-License-Identifier: Apache-2.0 */
/* What a child says on standard error. */
#ifndef SAID_H
#define SAID_H

#include "harness.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs `does` in a child, which ends itself, and returns its status. */
static int hear(void (*does)(void), char *text, size_t bytes)
{
    int ends[2], status = -1;
    size_t length = 0;
    CHECK(!pipe(ends));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        setvbuf(stderr, NULL, _IONBF, 0);
        does();
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + length, bytes - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = 0;
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

#endif

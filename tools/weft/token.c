/* SPDX-License-Identifier: Apache-2.0 */
/* `weft token`: a new secret for a job on several hosts. */
#include "command.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const char help[] =
    "usage: weft token\n"
    "\n"
    "Prints a new secret of 64 hex digits.  Ranks on several hosts meet only if all have the "
    "same:\n"
    "\n"
    "    export WEFT_TOKEN=$(weft token)      on one host; the value on all others\n";

int weft_cmd_token(int argc, char **argv)
{
    unsigned char secret[32];
    if (argc > 1) {
        int asked = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h");
        fputs(help, asked ? stdout : stderr);
        return asked ? 0 : 2;
    }
    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret) {
        fprintf(stderr, "weft token: no random numbers: %s\n", strerror(errno));
        return 1;
    }
    for (size_t i = 0; i < sizeof secret; i++)
        printf("%02x", secret[i]);
    return putchar('\n') == EOF || fflush(stdout) != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `weft token`: a new secret for a job on several hosts. */
#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int run(int argc, char **argv)
{
    unsigned char secret[32];
    char **words = calloc((size_t)argc + 1, sizeof *words);
    int status = words ? command_read(&weft_command_token, argc, argv, NULL, words, NULL) : 1;
    if (status == COMMAND_GOES_ON && words[0])
        status = command_wrong(&weft_command_token, "it takes no words, not \"%s\"", words[0]);
    free(words);
    if (status != COMMAND_GOES_ON)
        return status;
    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret) {
        fprintf(stderr, "weft token: no random numbers: %s\n", strerror(errno));
        return 1;
    }
    for (size_t i = 0; i < sizeof secret; i++)
        printf("%02x", secret[i]);
    return putchar('\n') == EOF || fflush(stdout) != 0;
}

static const command_option options[] = {{0}};

const subcommand weft_command_token = {
    .name = "token",
    .text = "prints a new secret for ranks on several hosts (WEFT_TOKEN)",
    .usage = "",
    .about = "Prints a new secret of 64 hex digits.  Ranks on several hosts meet only if all have "
             "the same:\n"
             "\n"
             "    export WEFT_TOKEN=$(weft token)      # on one host; the value on all others",
    .options = options,
    .run = run,
};

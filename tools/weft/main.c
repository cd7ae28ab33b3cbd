/* SPDX-License-Identifier: Apache-2.0 */
/* The `weft` command: finds the subcommand in the table and hands the arguments over. */
#include "command.h"

#include <weft/weft.h>

#include <string.h>

int main(int argc, char **argv)
{
    if (argc < 2)
        return command_list(stderr);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return command_list(stdout);
    if (!strcmp(argv[1], "version") || !strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
        return printf("weft %s\n", weft_version()) < 0;
    const subcommand *command = command_find(argv[1]);
    return command ? command->run(argc - 1, argv + 1) : command_unknown(argv[1]);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands of `weft`.  Each takes the arguments from its own name on (argv[0] is "run",
 * "info", ...) and returns the exit status: 0 success, 1 failure, 2 wrong use.
 */
#ifndef WEFT_TOOLS_COMMAND_H
#define WEFT_TOOLS_COMMAND_H

int weft_cmd_bench(int argc, char **argv);
int weft_cmd_info(int argc, char **argv);
int weft_cmd_run(int argc, char **argv);
int weft_cmd_token(int argc, char **argv);
int weft_cmd_trace(int argc, char **argv);

#endif

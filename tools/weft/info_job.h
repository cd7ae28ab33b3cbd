/* SPDX-License-Identifier: Apache-2.0 */
/* `weft info --job [PROCESS | PROGRAM] [--json]`: see info_job.c. */
#ifndef WEFT_TOOLS_INFO_JOB_H
#define WEFT_TOOLS_INFO_JOB_H

/* Takes the arguments of `weft info`; returns the exit status. */
int weft_info_job(int argc, char **argv);

#endif

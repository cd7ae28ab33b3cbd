/* SPDX-License-Identifier: Apache-2.0 */
/* `weft info --job [PROCESS | PROGRAM] [--json]`: see info_job.c. */
#ifndef WEFT_TOOLS_INFO_JOB_H
#define WEFT_TOOLS_INFO_JOB_H

/* The job of a process or program, or NULL for all of this user; returns the exit status. */
int weft_info_job(const char *which, int json);

#endif

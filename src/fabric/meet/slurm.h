/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm says of a step in its own notation: lists of hosts, and how many tasks each has. */
#ifndef WEFT_FABRIC_SLURM_H
#define WEFT_FABRIC_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* The first host of "node[003-005,9],login": node003.  False if the list is none, or the name does not
 * fit. */
bool weft_i_slurm_first_host(const char *list, char *out, size_t bytes);

/* How many tasks the node of that number has by "4(x2),3": 4, 4 and 3; -1 if that is not said. */
int weft_i_slurm_tasks(const char *text, int node);

/* A port that all ranks of a step work out alike, below those that kernels give by themselves. */
int weft_i_slurm_port(const char *job, const char *step);

#endif

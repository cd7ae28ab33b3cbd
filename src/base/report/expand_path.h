/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files that tell ranks apart. */
#ifndef WEFT_BASE_EXPAND_PATH_H
#define WEFT_BASE_EXPAND_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces %h (host), %p (process; 0: this one), %r (rank) and %%; false if the result does not fit. */
bool weft_i_os_expand_path(const char *pattern, int rank, int process, char *out, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The cache folder: what weft keeps from one job to the next, and can do without. */
#ifndef WEFT_BASE_CACHE_FOLDER_H
#define WEFT_BASE_CACHE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/*
 * WEFT_CACHE_DIR, or weft in XDG_CACHE_HOME or ~/.cache: made if it is not there, and checked: the
 * user's own, no link, closed to others.  False, and why in words, if it cannot be used.
 */
bool weft_i_cache_folder(char *out, size_t bytes, char *why, size_t why_bytes);

#endif

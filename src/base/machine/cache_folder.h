/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache folder: what weft keeps from one job to the next, and can do without.  Code is run from
 * it, so nobody else may put theirs there: not in the folder, and not in its place either, by a
 * rename in one of its parents.  It is looked at once, from the root down, and used by the
 * descriptor of what was looked at.
 */
#ifndef WEFT_BASE_CACHE_FOLDER_H
#define WEFT_BASE_CACHE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum { WEFT_I_CACHE_PATH = 1100, WEFT_I_CACHE_FILE = 256, WEFT_I_CACHE_WHY = 3000 };

typedef struct weft_i_cache_folder {
    char path[WEFT_I_CACHE_PATH]; /* for people */
    int fd;                       /* O_PATH */
    bool lent;                    /* goes when it is closed */
} weft_i_cache_folder;

/*
 * WEFT_CACHE_DIR, or weft in XDG_CACHE_HOME or ~/.cache: made if it is not there, and checked: the
 * user's own, no link, closed to others; and all its parents are the user's or root's, and closed to
 * others or sticky.  False, and why in words, if it cannot be used.  A folder that is refused is
 * logged too, once in a process.
 */
bool weft_i_cache_folder_open(weft_i_cache_folder *out, char *why, size_t bytes);

/* An empty one in TMPDIR or /tmp, for one use, where there is none to keep anything in. */
bool weft_i_cache_folder_lend(weft_i_cache_folder *out, char *why, size_t bytes);

void weft_i_cache_folder_close(weft_i_cache_folder *folder);

/* The way to a file in it, which stays the way whatever is renamed; and the same for people. */
void weft_i_cache_folder_way(const weft_i_cache_folder *folder, const char *name,
                             char out[WEFT_I_CACHE_FILE]);
void weft_i_cache_folder_name(const weft_i_cache_folder *folder, const char *name, char *out,
                              size_t bytes);

/* Only its path, after the same checks. */
bool weft_i_cache_folder_path(char *out, size_t bytes, char *why, size_t why_bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of compiled graphs for one test program, gone with it; or, for a program that asks
 * nothing of the cache, the one that tests/run has for all builds (WEFT_TEST_CACHE): what the C
 * compiler makes of a graph is the same in each of them.
 */
#ifndef WEFT_TESTS_HARNESS_CACHE_H
#define WEFT_TESTS_HARNESS_CACHE_H

#include "harness.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char harness_cache[64];

static inline void harness_cache_open(void)
{
    strcpy(harness_cache, "/tmp/weft-test-cache-XXXXXX");
    if (mkdtemp(harness_cache))
        setenv("WEFT_CACHE_DIR", harness_cache, 1);
}

static inline void harness_cache_share(void)
{
    const char *shared = getenv("WEFT_TEST_CACHE");
    if (shared && *shared)
        setenv("WEFT_CACHE_DIR", shared, 1);
    else
        harness_cache_open();
}

/* Calls `each` with the path of every file in it; returns how many there are. */
static inline int harness_cache_each(void (*each)(const char *path))
{
    DIR *folder = opendir(harness_cache);
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[400];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", harness_cache, entry->d_name);
        count++;
        if (each)
            each(path);
    }
    if (folder)
        closedir(folder);
    return count;
}

static inline void harness_cache_remove(const char *path)
{
    unlink(path);
}

static inline void harness_cache_close(void)
{
    if (!*harness_cache)
        return;
    harness_cache_each(harness_cache_remove);
    rmdir(harness_cache);
}

/* harness_main with a folder that nobody else uses. */
static inline int harness_cache_main(int argc, char **argv)
{
    harness_cache_open();
    int failures = harness_main(argc, argv);
    harness_cache_close();
    return failures;
}

#endif

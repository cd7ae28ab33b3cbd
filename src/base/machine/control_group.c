/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups: see control_group.h.  All files are read through WEFT_OS, so that a test can put
 * others in their place. */
#include "base/machine/control_group.h"

#include "base/os/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 16384, PATH_BYTES = WEFT_I_CONTROL_GROUP_PATH };

static bool read_file(const char *folder, const char *file, char text[FILE_BYTES])
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return weft_i_file_read(path, text, FILE_BYTES);
}

int64_t weft_i_control_group_number(const char *folder, const char *file, int64_t fallback)
{
    char text[FILE_BYTES], *end = text;
    if (!read_file(folder, file, text))
        return fallback;
    long long value = strtoll(text, &end, 10);
    return end == text ? fallback : (int64_t)value;
}

/* Whether the list of `length` bytes has the word: "cpu,cpuacct". */
static bool lists(const char *list, size_t length, const char *word)
{
    size_t wanted = strlen(word);
    for (const char *end = list + length; list < end;) {
        size_t size = strcspn(list, ",:");
        if (size == wanted && !memcmp(list, word, size))
            return true;
        list += size + 1;
    }
    return false;
}

/* The path of our group from the lines of /proc/self/cgroup: "0::/path", "4:memory:/path". */
static bool path_of_group(const char *text, const char *controller, bool v2, char *out,
                          size_t bytes)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            return false;
        size_t length = (size_t)(path - names - 1);
        if (v2 ? length != 0 : !lists(names + 1, length, controller))
            continue;
        snprintf(out, bytes, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
        return true;
    }
    return false;
}

void weft_i_control_group_each(const char *controller,
                               void (*look)(void *state, const char *folder, bool v2), void *state)
{
    char text[FILE_BYTES], path[PATH_BYTES - 64], folder[PATH_BYTES];
    if (!weft_i_file_read("/proc/self/cgroup", text, FILE_BYTES))
        return;
    for (int v2 = 0; v2 < 2; v2++) {
        if (!path_of_group(text, controller, v2, path, sizeof path))
            continue;
        for (;;) {
            char *slash = strrchr(path, '/');
            if (slash && !slash[1])
                *slash = 0; /* the root: "/" */
            snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s%s", v2 ? "" : "/",
                     v2 ? "" : controller, path);
            look(state, folder, v2);
            if (!*path || !slash)
                break;
            if (*slash)
                *slash = 0;
        }
    }
}

/* "150000 100000", or "max 100000": so many microseconds of each so many. */
static void look_at_quota(void *state, const char *folder, bool v2)
{
    int64_t *least = state, quota, period = 0;
    char text[FILE_BYTES], *end = text;
    if (v2) {
        if (!read_file(folder, "cpu.max", text))
            return;
        quota = strtoll(text, &end, 10);
        period = end == text ? 0 : strtoll(end, NULL, 10);
    } else {
        quota = weft_i_control_group_number(folder, "cpu.cfs_quota_us", -1);
        period = weft_i_control_group_number(folder, "cpu.cfs_period_us", 0);
    }
    if (quota <= 0 || period <= 0 || quota > INT64_MAX / 1000)
        return;
    int64_t cores = quota * 1000 / period;
    if (!*least || cores < *least)
        *least = cores > 0 ? cores : 1;
}

int64_t weft_i_control_group_cores(void)
{
    int64_t least = 0;
    weft_i_control_group_each("cpu", look_at_quota, &least);
    return least;
}

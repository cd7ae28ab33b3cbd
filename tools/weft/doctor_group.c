/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft doctor`: the control groups that this process is in.  A container sets limits there, and a limit
 * of any group above counts as well; files of version 1 are looked at where there is no version 2.
 */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

enum { PATH = 1024, WORDS = 128 };

/* The path of this process's group below /sys/fs/cgroup, with a '/' in front unless it is the root. */
static void find_group(char out[PATH])
{
    char line[PATH];
    FILE *file = fopen("/proc/self/cgroup", "re");
    *out = 0;
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "0::/", 4)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(out, PATH, "%s", line[4] ? line + 3 : "");
        }
    if (file)
        fclose(file);
}

/* Calls `see` with the first line of this file in the group and in each one above it. */
static void walk_up(const char *name, void (*see)(const char *line, double *least), double *least)
{
    char group[PATH], path[PATH + 64], line[WORDS];
    find_group(group);
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group, name);
        if (doctor_line_of(path, line, sizeof line))
            see(line, least);
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

/* cpu.max: "150000 100000", microseconds of each period, or "max 100000". */
static void see_quota(const char *line, double *least)
{
    double quota, period;
    if (sscanf(line, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0 &&
        (*least <= 0 || quota / period < *least))
        *least = quota / period;
}

/* memory.max: bytes, or "max"; what version 1 has for none is larger than any memory. */
static void see_bytes(const char *line, double *least)
{
    double bytes = strtod(line, NULL);
    if (bytes > 0 && bytes < 0x1p60 && (*least <= 0 || bytes < *least))
        *least = bytes;
}

void doctor_look_at_quota(finding *out)
{
    double cores = 0;
    char quota[WORDS], period[WORDS], both[2 * WORDS + 2];
    weft_machine_fact usable;
    walk_up("cpu.max", see_quota, &cores);
    if (doctor_line_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota) &&
        doctor_line_of("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period)) {
        snprintf(both, sizeof both, "%s %s", quota, period);
        see_quota(both, &cores);
    }
    int count = doctor_fact("cores usable", &usable) ? (int)usable.number : 1;
    if (cores <= 0) {
        doctor_say(out, FINE, "none: all of the cores' time");
    } else if (cores + 0.01 >= count) {
        doctor_say(out, FINE, "the time of %.4g cores, and %d may be used", cores, count);
    } else {
        doctor_say(out, SLOW, "the time of %.4g cores, though ranks may run on %d", cores, count);
        doctor_advise(out,
                      "Ranks that wait spin, and use the quota up; then all of them stand "
                      "still until the next period. Start at most %d rank%s, or give the "
                      "container whole cores (docker run --cpuset-cpus, Kubernetes: limits "
                      "as requests, in whole cpus).",
                      cores < 1 ? 1 : (int)cores, cores < 2 ? "" : "s");
    }
}

void doctor_look_at_limit(finding *out)
{
    double bytes = 0;
    char line[WORDS], used[WORDS];
    walk_up("memory.max", see_bytes, &bytes);
    if (doctor_line_of("/sys/fs/cgroup/memory/memory.limit_in_bytes", line, sizeof line))
        see_bytes(line, &bytes);
    if (bytes <= 0) {
        doctor_say(out, FINE, "none");
        return;
    }
    char group[PATH], path[PATH + 64];
    find_group(group);
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", group);
    double taken = doctor_line_of(path, used, sizeof used) ? strtod(used, NULL) : 0;
    doctor_say(out,
               bytes < (256 << 20) ? BROKEN
               : bytes < (1 << 30) ? NOTE
                                   : FINE,
               "%.4g MiB, of which %.0f are taken", bytes / (1 << 20), taken / (1 << 20));
    if (out->verdict)
        doctor_advise(out, "The kernel kills a rank when the container has used it up; symmetric "
                           "memory counts where it is first touched, and each rank of a training "
                           "job takes some 100 MiB. docker run --memory, Kubernetes: "
                           "limits.memory.");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `weft doctor`: what the kernel and its files say of this machine. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

int doctor_fact(const char *name, weft_machine_fact *out)
{
    for (int i = 0; i < weft_machine_count() && weft_machine_describe(i, out) == WEFT_OK; i++)
        if (!strcmp(out->name, name))
            return *out->text != 0;
    return 0;
}

int doctor_line_of(const char *path, char *out, int bytes)
{
    FILE *file = fopen(path, "re");
    int there = file && fgets(out, bytes, file);
    if (file)
        fclose(file);
    if (there)
        out[strcspn(out, "\n")] = 0;
    return there;
}

void doctor_look_at_cores(finding *out)
{
    weft_machine_fact usable, online;
    if (!doctor_fact("cores usable", &usable) || !doctor_fact("cores online", &online)) {
        doctor_say(out, NOTE, "the system does not say how many cores there are");
    } else if (usable.number < online.number) {
        doctor_say(out, NOTE, "%s of %s cores may be used", usable.text, online.text);
        doctor_advise(
            out, "The affinity or a container keeps the others away (taskset -p $$, docker run "
                 "--cpuset-cpus). More ranks than cores take turns.");
    } else {
        doctor_say(out, FINE, "%s", usable.text);
    }
}

void doctor_look_at_clock(finding *out)
{
    char clock[64];
    if (!doctor_line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource", clock,
                        sizeof clock)) {
        doctor_say(out, FINE, "the system does not name its source");
        return;
    }
    struct timespec from, to;
    enum { LOOKS = 20000 };
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < LOOKS; i++)
        clock_gettime(CLOCK_MONOTONIC, &to);
    double ns =
        ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / LOOKS;
    doctor_say(out, ns > 300 ? SLOW : FINE, "%s, %.0f ns to read", clock, ns);
    if (ns > 300)
        doctor_advise(
            out, "Each read enters the kernel. If the processor's counter is steady, boot with "
                 "clocksource=tsc; small calls of weft take longer otherwise.");
}

void doctor_look_at_memory(finding *out)
{
    weft_machine_fact available;
    if (!doctor_fact("available", &available)) {
        doctor_say(out, NOTE, "the system does not say how much is free");
        return;
    }
    doctor_say(out, available.number < (int64_t)256 << 20 ? BROKEN : FINE, "%.1f GiB free",
               (double)available.number / (1 << 30));
    if (out->verdict)
        doctor_advise(out, "Ranks need room for the symmetric memory that they ask for, which "
                           "counts once for each rank.");
}

/* weft takes its memory elsewhere; what stands beside it in a job does not. */
void doctor_look_at_shm(finding *out)
{
    struct statvfs all;
    char size[32];
    if (statvfs("/dev/shm", &all) || !all.f_blocks) {
        doctor_say(out, NOTE, "missing, or of no size");
    } else {
        double bytes = (double)all.f_blocks * (double)all.f_frsize;
        snprintf(size, sizeof size, bytes < (1 << 30) ? "%.0f MiB" : "%.1f GiB",
                 bytes / (bytes < (1 << 30) ? 1 << 20 : 1 << 30));
        doctor_say(out, bytes <= (64 << 20) ? NOTE : FINE, "%s; weft itself needs none of it",
                   size);
    }
    if (out->verdict)
        doctor_advise(out, "weft needs none, but PyTorch's data loaders, NCCL and checkpoints kept "
                           "in memory do: docker run --shm-size 8g; in Kubernetes an emptyDir with "
                           "medium Memory, mounted there.");
}

void doctor_look_at_huge_pages(finding *out)
{
    weft_machine_fact pages;
    if (!doctor_fact("shared huge pages", &pages)) {
        doctor_say(out, FINE, "the kernel has none for shared memory");
    } else if (!strcmp(pages.text, "never") || !strcmp(pages.text, "deny")) {
        doctor_say(out, NOTE, "off for shared memory (\"%s\")", pages.text);
        doctor_advise(out,
                      "Large symmetric blocks take pages of 4 KiB, which costs their first use. As "
                      "root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
    } else {
        doctor_say(out, FINE, "\"%s\" for shared memory", pages.text);
    }
}

void doctor_look_at_copies(finding *out)
{
    char scope[16] = "0";
    doctor_line_of("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope);
    if (atoi(scope) < 2) {
        doctor_say(out, FINE, "the kernel may copy between ranks (ptrace scope %s)", scope);
        return;
    }
    doctor_say(out, SLOW, "the kernel copies nothing between processes (ptrace scope %s)", scope);
    doctor_advise(out,
                  "Large operands of ordinary memory are copied twice instead of once; symmetric "
                  "memory is not concerned. As root: sysctl kernel.yama.ptrace_scope=1");
}

void doctor_look_at_descriptors(finding *out)
{
    weft_machine_fact files;
    if (!doctor_fact("open files", &files)) {
        doctor_say(out, FINE, "the system does not tell the limit");
        return;
    }
    doctor_say(out,
               files.number < 64    ? BROKEN
               : files.number < 256 ? NOTE
                                    : FINE,
               "%s a process", files.number == INT64_MAX ? "unlimited" : files.text);
    if (out->verdict)
        doctor_advise(
            out, "A rank has a descriptor for each symmetric block of each peer: ulimit -n 4096");
}

void doctor_look_at_locked_memory(finding *out)
{
    weft_machine_fact locked;
    int network = access("/sys/class/infiniband", F_OK) == 0;
    if (!doctor_fact("locked memory", &locked)) {
        doctor_say(out, FINE, "the system does not tell the limit");
        return;
    }
    int scarce = network && locked.number < (int64_t)1 << 30;
    if (locked.number == INT64_MAX)
        doctor_say(out, FINE, "unlimited");
    else
        doctor_say(out, scarce ? NOTE : FINE, "%.1f MiB%s", (double)locked.number / (1 << 20),
                   network ? "" : "; no network with RDMA is here");
    if (scarce)
        doctor_advise(out, "Networks with RDMA register memory: set memlock to unlimited in "
                           "/etc/security/limits.d, and LimitMEMLOCK=infinity for services.");
}

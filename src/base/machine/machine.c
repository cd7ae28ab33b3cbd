/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine offers: one row per fact, each with a function that looks it up.  Everything the
 * kernel tells is read from its files (/proc, /sys) through WEFT_OS, so that a test can put other
 * files in their place; only the processor's features come from the C library and the compiler.
 */
#include "weft/machine.h"

#include "base/machine/threads.h"
#include "base/os/file.h"
#include "base/os/os.h"
#include "base/report/os_look.h"
#include "base/report/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

enum { FILE_BYTES = 16384 };

/* The rest of the line that starts with `key`, without the blanks and colon before it; false if
 * there is none. */
static bool find_line(const char *text, const char *key, char *out, size_t bytes)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length))
            continue;
        line += length;
        line += strspn(line, " \t:");
        snprintf(out, bytes, "%.*s", (int)strcspn(line, "\n"), line);
        return true;
    }
    return false;
}

static void set_number(weft_machine_fact *fact, int64_t number)
{
    fact->is_number = 1;
    fact->number = number;
    if (number == INT64_MAX)
        snprintf(fact->text, sizeof fact->text, "unlimited");
    else
        snprintf(fact->text, sizeof fact->text, "%" PRId64, number);
}

/* The first line of a file. */
static void set_first_line(weft_machine_fact *fact, const char *path)
{
    char text[FILE_BYTES];
    weft_i_file_read(path, text, FILE_BYTES);
    snprintf(fact->text, sizeof fact->text, "%.*s", (int)strcspn(text, "\n"), text);
}

static void set_number_of_file(weft_machine_fact *fact, const char *path)
{
    char text[FILE_BYTES], *end = text;
    if (!weft_i_file_read(path, text, FILE_BYTES))
        return;
    long long number = strtoll(text, &end, 10);
    if (end != text)
        set_number(fact, number);
    else if (!strncmp(text, "max", 3)) /* how control groups say it */
        set_number(fact, INT64_MAX);
}

/* A line "key: 123 kB" of /proc/meminfo, in bytes or, without the unit, as a count. */
static void set_meminfo(weft_machine_fact *fact, const char *key)
{
    char text[FILE_BYTES], value[64];
    weft_i_file_read("/proc/meminfo", text, FILE_BYTES);
    if (find_line(text, key, value, sizeof value))
        set_number(fact, strtoll(value, NULL, 10) * (strstr(value, "kB") ? 1024 : 1));
}

/* The soft limit of a line "Max open files   1024   4096   files". */
static void set_limit(weft_machine_fact *fact, const char *key)
{
    char text[FILE_BYTES], value[128];
    weft_i_file_read("/proc/self/limits", text, FILE_BYTES);
    if (find_line(text, key, value, sizeof value))
        set_number(fact, value[0] == 'u' ? INT64_MAX : strtoll(value, NULL, 10));
}

/* The word in brackets of "always within_size [advise] never". */
static void set_chosen_word(weft_machine_fact *fact, const char *path)
{
    set_first_line(fact, path);
    char *open = strchr(fact->text, '['), *close = open ? strchr(open, ']') : NULL;
    if (!close)
        return;
    *close = 0;
    memmove(fact->text, open + 1, strlen(open + 1) + 1);
}

/* How many numbers the list "0-3,8" holds. */
static int64_t count_list(const char *list)
{
    int64_t count = 0;
    for (const char *p = list; *p >= '0' && *p <= '9';) {
        char *end = NULL;
        long first = strtol(p, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        count += last - first + 1;
        p = *end == ',' ? end + 1 : end;
    }
    return count;
}

#define ADD_FEATURE(has_, name_)                                                              \
    do {                                                                                      \
        size_t used_ = strlen(fact->text);                                                    \
        if (has_)                                                                             \
            snprintf(fact->text + used_, sizeof fact->text - used_, "%s%s", used_ ? " " : "", \
                     name_);                                                                  \
    } while (0)

static void look_features(weft_machine_fact *fact)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
#define ADD_X86(name_) ADD_FEATURE(__builtin_cpu_supports(name_), name_)
    ADD_X86("sse4.2");
    ADD_X86("avx");
    ADD_X86("avx2");
    ADD_X86("fma");
    ADD_X86("bmi2");
    ADD_X86("avx512f");
    ADD_X86("avx512bw");
    ADD_X86("avx512vl");
    ADD_X86("avx512vnni");
    ADD_X86("avx512bf16");
#undef ADD_X86
#elif defined(__aarch64__)
    /* Bits of the kernel's interface, fixed for ever: Documentation/arm64/elf_hwcaps. */
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    static const struct {
        int word, bit;
        const char *name;
    } bits[] = {{1, 1, "asimd"},  {1, 8, "atomics"},  {1, 9, "fphp"}, {1, 10, "asimdhp"},
                {1, 15, "lrcpc"}, {1, 20, "asimddp"}, {1, 22, "sve"}, {2, 1, "sve2"},
                {2, 13, "i8mm"},  {2, 14, "bf16"}};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        ADD_FEATURE((bits[i].word == 1 ? first : second) >> bits[i].bit & 1, bits[i].name);
#endif
}

static void look_architecture(weft_machine_fact *fact)
{
#if defined(__x86_64__)
    snprintf(fact->text, sizeof fact->text, "x86_64");
#elif defined(__aarch64__)
    snprintf(fact->text, sizeof fact->text, "aarch64");
#endif
}

static void look_model(weft_machine_fact *fact)
{
    char text[FILE_BYTES], part[64] = "";
    weft_i_file_read("/proc/cpuinfo", text, FILE_BYTES);
    if (find_line(text, "model name", fact->text, sizeof fact->text))
        return;
    if (find_line(text, "CPU part", part,
                  sizeof part)) /* Arm: the kernel knows numbers, not names */
        snprintf(fact->text, sizeof fact->text, "part %s", part);
}

static void look_cores_online(weft_machine_fact *fact)
{
    char text[FILE_BYTES];
    if (weft_i_file_read("/sys/devices/system/cpu/online", text, FILE_BYTES))
        set_number(fact, count_list(text));
}

static void look_cores_usable(weft_machine_fact *fact)
{
    set_number(fact, weft_i_os_cores());
}

/* Of a rank that has its cores for itself. */
static void look_threads(weft_machine_fact *fact)
{
    char why[128];
    fact->is_number = 1;
    fact->number = weft_i_threads_decide(1, 1, why, sizeof why);
    snprintf(fact->text, sizeof fact->text, "%" PRId64 " (%s)", fact->number, why);
}

static void look_affinity(weft_machine_fact *fact)
{
    char text[FILE_BYTES];
    weft_i_file_read("/proc/self/status", text, FILE_BYTES);
    find_line(text, "Cpus_allowed_list", fact->text, sizeof fact->text);
}

static void look_nodes(weft_machine_fact *fact)
{
    char text[FILE_BYTES];
    set_number(fact, weft_i_file_read("/sys/devices/system/node/online", text, FILE_BYTES)
                         ? count_list(text)
                         : 1);
}

/* "0: 0-3 1: 4-7" */
static void look_node_cores(weft_machine_fact *fact)
{
    for (int node = 0; node < 64; node++) {
        char path[80], text[FILE_BYTES];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        if (!weft_i_file_read(path, text, FILE_BYTES))
            continue;
        text[strcspn(text, "\n")] = 0;
        size_t used = strlen(fact->text);
        snprintf(fact->text + used, sizeof fact->text - used, "%s%d: %s", used ? "  " : "", node,
                 text);
    }
}

static void look_memory(weft_machine_fact *fact)
{
    set_meminfo(fact, "MemTotal");
}

static void look_memory_available(weft_machine_fact *fact)
{
    set_meminfo(fact, "MemAvailable");
}

/* The control group's limit: the file lies below the group's path, which is the root inside a
 * container. */
static void look_memory_limit(weft_machine_fact *fact)
{
    char text[FILE_BYTES], group[256] = "", path[320];
    weft_i_file_read("/proc/self/cgroup", text, FILE_BYTES);
    find_line(text, "0::", group, sizeof group);
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", strcmp(group, "/") ? group : "");
    set_number_of_file(fact, path);
}

static void look_overcommit(weft_machine_fact *fact)
{
    set_number_of_file(fact, "/proc/sys/vm/overcommit_memory");
}

static void look_huge_size(weft_machine_fact *fact)
{
    set_meminfo(fact, "Hugepagesize");
}

static void look_huge_free(weft_machine_fact *fact)
{
    set_meminfo(fact, "HugePages_Free");
}

static void look_huge_transparent(weft_machine_fact *fact)
{
    set_chosen_word(fact, "/sys/kernel/mm/transparent_hugepage/enabled");
}

static void look_huge_shared(weft_machine_fact *fact)
{
    set_chosen_word(fact, "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

static void look_memlock(weft_machine_fact *fact)
{
    set_limit(fact, "Max locked memory");
}

static void look_descriptors(weft_machine_fact *fact)
{
    set_limit(fact, "Max open files");
}

static void look_processes(weft_machine_fact *fact)
{
    set_limit(fact, "Max processes");
}

static void look_address_space(weft_machine_fact *fact)
{
    set_limit(fact, "Max address space");
}

static void look_file_size(weft_machine_fact *fact)
{
    set_limit(fact, "Max file size");
}

static void look_kernel(weft_machine_fact *fact)
{
    set_first_line(fact, "/proc/sys/kernel/osrelease");
}

static void look_host(weft_machine_fact *fact)
{
    set_first_line(fact, "/proc/sys/kernel/hostname");
}

static void look_identity(weft_machine_fact *fact)
{
    char identity[65];
    weft_i_os_host_id(identity);
    snprintf(fact->text, sizeof fact->text, "%s", identity);
}

static const struct {
    const char *part, *name, *meaning;
    void (*look)(weft_machine_fact *fact);
} rows[] = {
    {"system", "host", "name of this machine", look_host},
    {"system", "identity", "ranks with the same identity share memory; WEFT_HOST_ID overrides it",
     look_identity},
    {"system", "kernel", "release of Linux; 5.10 or newer is needed", look_kernel},
    {"processor", "architecture", "instruction set", look_architecture},
    {"processor", "model", "what the processor calls itself", look_model},
    {"processor", "features", "instructions weft's loops may use", look_features},
    {"processor", "cores online", "cores of the machine", look_cores_online},
    {"processor", "cores usable",
     "cores this process may run on; more ranks than this wait by yielding", look_cores_usable},
    {"processor", "threads",
     "on which a rank computes that is alone; ranks that share cores divide them", look_threads},
    {"processor", "affinity", "which cores these are", look_affinity},
    {"processor", "NUMA nodes", "groups of cores with memory of their own", look_nodes},
    {"processor", "cores of nodes", "which cores are near which memory", look_node_cores},
    {"memory", "total", "bytes of memory", look_memory},
    {"memory", "available", "bytes free without swapping", look_memory_available},
    {"memory", "control group limit", "bytes this job's control group may use", look_memory_limit},
    {"memory", "overcommit", "0 heuristic, 1 always, 2 never promise more than there is",
     look_overcommit},
    {"memory", "huge page size", "bytes of a reserved huge page", look_huge_size},
    {"memory", "huge pages free", "reserved huge pages not in use", look_huge_free},
    {"memory", "transparent huge pages", "for private memory", look_huge_transparent},
    {"memory", "shared huge pages", "transparent huge pages for shared memory: symmetric blocks",
     look_huge_shared},
    {"limits", "locked memory", "bytes a process may lock", look_memlock},
    {"limits", "open files", "descriptors a process may have; a block costs one per local rank",
     look_descriptors},
    {"limits", "processes", "processes and threads of this user", look_processes},
    {"limits", "address space", "bytes a process may map", look_address_space},
    {"limits", "file size", "bytes a block may have", look_file_size},
};

int weft_machine_count(void)
{
    return (int)(sizeof rows / sizeof *rows);
}

weft_status weft_machine_describe(int index, weft_machine_fact *out)
{
    if (!out || index < 0 || index >= weft_machine_count())
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_machine_describe: index %d of %d facts, out %s", index,
                           weft_machine_count(), out ? "given" : "NULL");
    memset(out, 0, sizeof *out);
    out->part = rows[index].part;
    out->name = rows[index].name;
    out->meaning = rows[index].meaning;
    rows[index].look(out);
    return WEFT_OK;
}

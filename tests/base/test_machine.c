/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/machine/machine.c, base/report/os_look.c, base/report/version.c */
/* Facts about the machine, looked up in the real kernel's files and in made-up ones. */
#include "harness.h"

#include "base/os/os.h"
#include <weft/weft.h>

#include <errno.h>
#include <inttypes.h>

static weft_machine_fact find(const char *part, const char *name)
{
    weft_machine_fact fact;
    for (int i = 0; i < weft_machine_count(); i++) {
        CHECK_OK(weft_machine_describe(i, &fact));
        if (!strcmp(fact.part, part) && !strcmp(fact.name, name))
            return fact;
    }
    FAIL("no fact %s %s", part, name);
}

/* A small file system: the descriptor is the index of the file, plus 1000. */
static const struct {
    const char *path, *text;
} files[] = {
    {"/proc/meminfo", "MemTotal:       1024 kB\nMemAvailable:    512 kB\nHugePages_Free:       7\n"
                      "Hugepagesize:       2048 kB\n"},
    {"/proc/self/limits",
     "Limit                     Soft Limit           Hard Limit           Units\n"
     "Max locked memory         65536                65536                bytes\n"
     "Max open files            unlimited            unlimited            files\n"},
    {"/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-2,5\n"},
    {"/proc/self/cgroup", "0::/job/7\n"},
    {"/sys/fs/cgroup/job/7/memory.max", "max\n"},
    {"/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"},
    {"/sys/devices/system/cpu/online", "0-3,8,10-11\n"},
    {"/sys/devices/system/node/online", "0-1\n"},
    {"/sys/devices/system/node/node0/cpulist", "0-3\n"},
    {"/sys/devices/system/node/node1/cpulist", "4-7\n"},
    {"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
     "always within_size [advise] never deny\n"},
};
enum { FILES = sizeof files / sizeof *files };
static size_t position[FILES];
static int open_files;

static int fake_open(const char *path, int flags, mode_t mode)
{
    (void)flags, (void)mode;
    for (int i = 0; i < FILES; i++) {
        if (strcmp(files[i].path, path))
            continue;
        position[i] = 0;
        open_files++;
        return 1000 + i;
    }
    errno = ENOENT;
    return -1;
}

/* Three bytes at a time, as a kernel may do. */
static ssize_t fake_read(int fd, void *bytes, size_t count)
{
    size_t *at = &position[fd - 1000], left = strlen(files[fd - 1000].text) - *at;
    size_t n = left < 3 ? left : 3;
    n = n < count ? n : count;
    memcpy(bytes, files[fd - 1000].text + *at, n);
    *at += n;
    return (ssize_t)n;
}

static int fake_close(int fd)
{
    (void)fd;
    open_files--;
    return 0;
}

static weft_i_os fake;

static void use_made_up_files(void)
{
    fake = weft_i_os_linux;
    fake.open = fake_open;
    fake.read = fake_read;
    fake.close = fake_close;
    weft_i_os_now = &fake;
}

static void check_number(const char *part, const char *name, int64_t wanted)
{
    weft_machine_fact fact = find(part, name);
    if (!fact.is_number || fact.number != wanted)
        FAIL("%s %s is \"%s\" (%" PRId64 "), not %" PRId64, part, name, fact.text, fact.number,
             wanted);
}

static void check_text(const char *part, const char *name, const char *wanted)
{
    weft_machine_fact fact = find(part, name);
    if (strcmp(fact.text, wanted))
        FAIL("%s %s is \"%s\", not \"%s\"", part, name, fact.text, wanted);
}

TEST(test_machine_here)
{
    CHECK(find("processor", "cores usable").number >= 1);
    CHECK(find("processor", "cores usable").number <= find("processor", "cores online").number);
    CHECK(find("memory", "total").number >= find("memory", "available").number);
    CHECK(find("memory", "available").number > 0);
    CHECK(*find("system", "kernel").text);
    CHECK(*find("processor", "architecture").text);
    CHECK(*find("processor", "features").text);
    CHECK(find("limits", "open files").number > 0);
}

TEST(test_machine_reads_files)
{
    use_made_up_files();
    check_number("memory", "total", 1024 * 1024);
    check_number("memory", "available", 512 * 1024);
    check_number("memory", "huge pages free", 7);
    check_number("memory", "huge page size", 2 << 20);
    check_number("memory", "control group limit", INT64_MAX);
    check_text("memory", "shared huge pages", "advise");
    check_number("limits", "locked memory", 65536);
    check_number("limits", "open files", INT64_MAX);
    check_text("limits", "open files", "unlimited");
    check_number("processor", "cores online", 7);
    check_text("processor", "affinity", "0-2,5");
    check_number("processor", "NUMA nodes", 2);
    check_text("processor", "cores of nodes", "0: 0-3  1: 4-7");
    check_text("processor", "model", "part 0xd40");
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(open_files, 0);
}

TEST(test_machine_untold_facts)
{
    use_made_up_files();
    check_text("memory", "overcommit", "");
    check_text("limits", "processes", "");
    check_text("system", "kernel", "");
    CHECK(!find("memory", "overcommit").is_number);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(open_files, 0);
}

TEST(test_machine_refuses_bad_arguments)
{
    weft_machine_fact fact;
    CHECK_STATUS(weft_machine_describe(-1, &fact), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_machine_describe(weft_machine_count(), &fact), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_machine_describe(0, NULL), WEFT_ERR_INVALID_ARG);
}

TEST(test_machine_version)
{
    weft_version_info build;
    CHECK_OK(weft_version_describe(&build));
    char numbers[32];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
             WEFT_VERSION_PATCH);
    CHECK(!strcmp(build.version, numbers));
    CHECK(!strcmp(weft_version(), numbers));
    CHECK(*build.compiler && *build.flags && *build.target);
    CHECK_STATUS(weft_version_describe(NULL), WEFT_ERR_INVALID_ARG);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

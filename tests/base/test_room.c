/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/machine/room.c */
/* Room in memory, by made-up files of the kernel: nothing here takes more than a few megabytes. */
#include "base/machine/room.h"

#include "base/os/os.h"
#include "base/share/segment.h"
#include "harness.h"

#include <weft/weft.h>

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A small file system: the descriptor is the index of the file, plus 1000. */
enum { FILES = 12, MIB = 1 << 20 };
static struct {
    const char *path, *text;
} files[FILES];
static size_t position[FILES];
static int open_files, reads;
static int64_t later_ns;
static weft_i_os table;

static int fake_open(const char *path, int flags, mode_t mode)
{
    (void)flags;
    (void)mode;
    for (int i = 0; i < FILES; i++) {
        if (!files[i].path || strcmp(files[i].path, path))
            continue;
        position[i] = 0;
        open_files++;
        return 1000 + i;
    }
    errno = ENOENT;
    return -1;
}

static ssize_t fake_read(int fd, void *bytes, size_t count)
{
    if (fd < 1000)
        return read(fd, bytes, count);
    const char *text = files[fd - 1000].text + position[fd - 1000];
    size_t length = strlen(text);
    length = length < count ? length : count;
    memcpy(bytes, text, length);
    position[fd - 1000] += length;
    reads++;
    return (ssize_t)length;
}

static int fake_close(int fd)
{
    if (fd < 1000)
        return close(fd);
    open_files--;
    return 0;
}

static int64_t fake_clock(void)
{
    return weft_i_os_linux.clock_ns() + later_ns;
}

static int forbidden_madvise(void *memory, size_t bytes, int advice)
{
    (void)memory;
    (void)bytes;
    return advice == 23 ? FAIL("memory was touched"), -1 : 0;
}

static int forbidden_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    (void)fd;
    (void)mode;
    (void)offset;
    (void)bytes;
    FAIL("memory was taken");
}

static void put(int at, const char *path, const char *text)
{
    files[at].path = path;
    files[at].text = text;
}

/* An hour later than before, so that no earlier look counts. */
static void pretend(void)
{
    table = weft_i_os_linux;
    table.open = fake_open;
    table.read = fake_read;
    table.close = fake_close;
    table.clock_ns = fake_clock;
    later_ns += INT64_C(3600000000000);
    weft_i_os_now = &table;
    memset(files, 0, sizeof files);
    put(0, "/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:  102400 kB\nSwapFree: 0 kB\n");
}

static void stop_pretending(void)
{
    weft_i_os_now = &weft_i_os_linux;
    later_ns += INT64_C(3600000000000);
    int left = open_files;
    open_files = 0;
    CHECK_INT(left, 0);
}

/* How many MiB at most are said to fit. */
static int room_mib(void)
{
    int low = 0, high = 1 << 20;
    while (low + 1 < high) {
        int middle = (low + high) / 2;
        later_ns += INT64_C(3600000000000);
        if (weft_i_room_check((size_t)middle * MIB, "a test") == WEFT_OK)
            low = middle;
        else
            high = middle;
    }
    weft_clear_error();
    return low;
}

TEST(test_room_machine)
{
    pretend();
    int free = room_mib();
    weft_status status = weft_i_room_check((size_t)5000 * MIB, "a test");
    char text[1024];
    snprintf(text, sizeof text, "%s", weft_last_error());
    put(0, "/proc/meminfo", "MemAvailable:  102400 kB\nSwapFree:  102400 kB\n");
    int with_swap = room_mib();
    int64_t all = weft_i_room_bytes();
    put(0, "/proc/meminfo", "Nothing: 3\n");
    int64_t unknown = weft_i_room_bytes();
    weft_status blind = weft_i_room_check((size_t)1 << 60, "a test");
    stop_pretending();
    CHECK(free >= 97 && free <= 99); /* 100 MiB, less a margin */
    CHECK_INT(status, WEFT_ERR_NO_SPACE);
    CHECK_CONTAINS(text, "a test: 5242880000 bytes do not fit into memory: 104857600 bytes");
    CHECK(with_swap >= 195 && with_swap <= 198);
    CHECK_INT(blind, WEFT_OK);
    CHECK_INT(all, 200 * MIB);
    CHECK_INT(unknown, 0);
}

TEST(test_room_group_v2)
{
    pretend();
    put(1, "/proc/self/cgroup", "0::/job/7\n");
    put(2, "/sys/fs/cgroup/job/7/memory.max", "max\n");
    put(3, "/sys/fs/cgroup/job/memory.max", "52428800\n");
    put(4, "/sys/fs/cgroup/job/memory.current", "31457280\n");
    int above = room_mib(); /* 50 - 30 */
    weft_i_room_check((size_t)40 * MIB, "a test");
    char text[1024];
    snprintf(text, sizeof text, "%s", weft_last_error());
    put(5, "/sys/fs/cgroup/job/memory.stat", "anon 3\ninactive_file 10485760\nactive_file 0\n");
    int with_files = room_mib(); /* + 10 that the kernel gives up */
    put(2, "/sys/fs/cgroup/job/7/memory.max", "10485760\n");
    put(6, "/sys/fs/cgroup/job/7/memory.current", "11000000\n");
    int over = room_mib();
    stop_pretending();
    CHECK_INT(above, 19);
    CHECK_CONTAINS(text, "the control group /sys/fs/cgroup/job uses 31457280 of its limit of "
                         "52428800");
    CHECK_INT(with_files, 29);
    CHECK_INT(over, 0);
}

TEST(test_room_group_v1)
{
    pretend();
    put(1, "/proc/self/cgroup",
        "9:name=systemd:/\n4:cpu,memory:/x\n4:memory:/host/path/of/container\n0::/\n");
    put(2, "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "52428800\n"); /* as a container sees it */
    put(3, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "41943040\n");
    put(4, "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 5242880\ninactive_file 1\n");
    int limited = room_mib();
    put(2, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    int unlimited = room_mib();
    stop_pretending();
    CHECK_INT(limited, 14);
    CHECK(unlimited >= 97);
}

/* Small pieces do not read the kernel's files each time; large ones and later ones do. */
TEST(test_room_looks)
{
    pretend();
    weft_status status = weft_i_room_check(4096, "a test");
    int first = reads;
    for (int i = 0; i < 1000 && status == WEFT_OK; i++)
        status = weft_i_room_check(4096, "a test");
    int small = reads;
    status = status == WEFT_OK ? weft_i_room_check((size_t)50 * MIB, "a test") : status;
    int large = reads;
    later_ns += 200000000;
    put(0, "/proc/meminfo", "MemAvailable:  1 kB\n");
    weft_status late = weft_i_room_check(4096, "a test");
    stop_pretending();
    CHECK_INT(status, WEFT_OK);
    CHECK_INT(small, first);
    CHECK(large > small);
    CHECK_INT(late, WEFT_ERR_NO_SPACE);
}

/* Symmetric memory that does not fit is refused before a page of it is taken. */
TEST(test_room_symm_empty)
{
    pretend();
    table.madvise = forbidden_madvise;
    table.fallocate = forbidden_fallocate;
    weft_tensor *x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE((int64_t)1 << 30));
    weft_status status = weft_last_status();
    char text[1024];
    snprintf(text, sizeof text, "%s", weft_last_error());
    weft_i_os_now = &weft_i_os_linux;
    later_ns += INT64_C(3600000000000);
    CHECK(!x);
    CHECK_INT(status, WEFT_ERR_NO_SPACE);
    CHECK_CONTAINS(text, "1073741824 bytes do not fit into memory: 104857600 bytes are free");
    weft_clear_error();
    x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(3 * MIB));
    CHECK(x);
    ((char *)weft_tensor_data(x))[3 * MIB - 1] = 1;
    weft_release(x);
}

static int taken_mib; /* the machine's free memory falls by twice as much */
static char meminfo[64];

static int shrinking_madvise(void *memory, size_t bytes, int advice)
{
    (void)memory;
    if (advice != 23)
        return 0;
    taken_mib += (int)(bytes / MIB);
    snprintf(meminfo, sizeof meminfo, "MemAvailable: %d kB\n", (200 - 2 * taken_mib) * 1024);
    return 0;
}

/* Another rank takes memory at the same time: this one stops half way. */
TEST(test_room_race)
{
    pretend();
    snprintf(meminfo, sizeof meminfo, "MemAvailable: %d kB\n", 200 * 1024);
    put(0, "/proc/meminfo", meminfo);
    table.madvise = shrinking_madvise;
    taken_mib = 0;
    setenv("WEFT_HUGE_PAGES", "on", 1);
    weft_tensor *x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE((int64_t)160 * MIB));
    weft_status status = weft_last_status();
    unsetenv("WEFT_HUGE_PAGES");
    stop_pretending();
    weft_clear_error();
    CHECK(!x);
    CHECK_INT(status, WEFT_ERR_NO_SPACE);
    CHECK(taken_mib > 0 && taken_mib < 100);
}

TEST(test_room_kills)
{
    pretend();
    put(1, "/proc/vmstat", "nr_free 3\noom_kill 4\noom_kill_x 9\n");
    put(2, "/proc/self/cgroup", "4:memory:/a\n0::/b\n");
    int64_t before = weft_i_room_kills();
    put(3, "/sys/fs/cgroup/b/memory.events", "oom 5\noom_kill 1\n");
    int64_t v2 = weft_i_room_kills();
    put(4, "/sys/fs/cgroup/memory/a/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n");
    int64_t v1 = weft_i_room_kills();
    stop_pretending();
    CHECK_INT(before, 4);
    CHECK_INT(v2, 5);
    CHECK_INT(v1, 7);
}

/* ---- RLIMIT_FSIZE ---- */

/* Exit code of a child that makes memory under a limit on the size of files. */
static int make_under_limit(void)
{
    struct rlimit limit = {1 * MIB, 1 * MIB};
    if (setrlimit(RLIMIT_FSIZE, &limit))
        return 3;
    weft_tensor *x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(8 * MIB));
    if (x || weft_last_status() >= 0)
        return 4;
    if (!strstr(weft_last_error(), "RLIMIT_FSIZE"))
        return 6;
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGXFSZ) ? 5 : 0;
}

TEST(test_room_file_size_limit)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(make_under_limit());
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        FAIL("signal %d", WTERMSIG(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

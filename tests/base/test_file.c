/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/os/file.c, base/report/expand_path.c, base/report/file_open.c, base/report/log.c, base/report/record_trace.c */
/* Files written for the user: links and FIFOs in their place, full disks, readers that do not read.
 */
#include "base/os/file.h"
#include "base/report/file_open.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "harness_ranks.h"

#include <weft/weft.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char folder[] = "/tmp/weft-file-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[4][300];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void read_text(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, text, bytes - 1);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0)
        close(fd);
}

TEST(test_file_kinds)
{
    char text[64];
    int fd = -1;
    write_text(in_folder("plain"), "older and longer");
    CHECK_OK(weft_i_file_open(in_folder("plain"), false, 0600, &fd));
    CHECK(write(fd, "new", 3) == 3);
    close(fd);
    CHECK_OK(weft_i_file_open(in_folder("plain"), true, 0600, &fd));
    CHECK(write(fd, "er", 2) == 2);
    close(fd);
    read_text(in_folder("plain"), text, sizeof text);
    CHECK(!strcmp(text, "newer"));
    CHECK_OK(weft_i_file_open("/dev/null", false, 0600, &fd));
    close(fd);
    CHECK(!mkfifo(in_folder("fifo"), 0600) && !symlink(in_folder("plain"), in_folder("link")));
    static const char *const wrong[] = {"fifo", "link", ".", "no/such"};
    static const char *const why[] = {"FIFO", "symbolic links are not followed", "s a directory",
                                      "No such file"};
    for (int i = 0; i < 4; i++) {
        fd = -7;
        CHECK(weft_i_file_open(in_folder(wrong[i]), false, 0600, &fd) < 0);
        CHECK_INT(fd, -7);
        CHECK_CONTAINS(weft_last_error(), why[i]);
    }
    /* A FIFO with a reader is still none of ours; neither are devices. */
    int reader = open(in_folder("fifo"), O_RDONLY | O_NONBLOCK);
    CHECK(weft_i_file_open(in_folder("fifo"), false, 0600, &fd) < 0);
    CHECK_CONTAINS(weft_last_error(), "it is a FIFO, not a regular file");
    CHECK(weft_i_file_open("/dev/full", false, 0600, &fd) < 0);
    CHECK_CONTAINS(weft_last_error(), "it is a device, not a regular file");
    close(reader);
    read_text(in_folder("plain"), text, sizeof text);
    CHECK(!strcmp(text, "newer"));
}

/* A world of one with these settings, in a process whose standard error goes to a file; its exit
 * code, 0 for weft_finish without a complaint, and how long it took. */
static rlim_t file_limit = RLIM_INFINITY; /* from weft_init on */

static int live_with(const char *variable, const char *value, int *took_ms, char *err, size_t bytes)
{
    long long began = harness_now();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int to = open(in_folder("err"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(to, 2);
        setenv(variable, value, 1);
        alarm(60); /* or it hangs */
        weft_group *world = weft_init(NULL);
        weft_group_barrier(world, WEFT_DEFAULT);
        struct rlimit limit = {file_limit, RLIM_INFINITY};
        setrlimit(RLIMIT_FSIZE, &limit);
        weft_i_log(WEFT_LOG_WARN, "a word of warning");
        _exit(world ? weft_finish(world) : 77);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    *took_ms = (int)((harness_now() - began) / 1000000);
    read_text(in_folder("err"), err, bytes);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* A trace that cannot be written is a warning; the job is right. */
TEST(test_file_trace)
{
    int took;
    char err[4096], text[64], pattern[300];
    CHECK(!mkfifo(in_folder("pipe.0"), 0600) && !symlink(in_folder("plain"), in_folder("link.0")));
    write_text(in_folder("plain"), "precious");
    static const char *const wrong[] = {"pipe.%r", "link.%r", "no/such/%r"};
    for (int i = 0; i < 3; i++) {
        snprintf(pattern, sizeof pattern, "%s/%s", folder, wrong[i]);
        CHECK_INT(live_with("WEFT_TRACE", pattern, &took, err, sizeof err), 0);
        CHECK(took < 30000); /* not for ever */
        CHECK_CONTAINS(err, "weft WARN [rank 0]: trace");
    }
    read_text(in_folder("plain"), text, sizeof text);
    CHECK(!strcmp(text, "precious"));
    snprintf(pattern, sizeof pattern, "%s/good.%%r", folder);
    CHECK_INT(live_with("WEFT_TRACE", pattern, &took, err, sizeof err), 0);
    CHECK(!strstr(err, "trace"));
    CHECK(!access(in_folder("good.0"), R_OK));
}

/* Beyond RLIMIT_FSIZE, as on a full disk: neither SIGXFSZ nor a failure. */
TEST(test_file_trace_without_room)
{
    int took;
    char err[4096], pattern[300];
    snprintf(pattern, sizeof pattern, "%s/full.%%r", folder);
    file_limit = 100;
    int code = live_with("WEFT_TRACE", pattern, &took, err, sizeof err);
    file_limit = RLIM_INFINITY;
    CHECK_INT(code, 0);
    struct stat status;
    CHECK(!stat(in_folder("full.0"), &status) && status.st_size <= 100);
}

TEST(test_file_debug)
{
    int took;
    char err[4096], text[4096];
    unlink(in_folder("log"));
    CHECK(!mkfifo(in_folder("log"), 0600));
    CHECK_INT(live_with("WEFT_DEBUG_FILE", in_folder("log"), &took, err, sizeof err), 0);
    CHECK(took < 30000); /* not for ever */
    CHECK_CONTAINS(err, "weft WARN: WEFT_DEBUG_FILE: /");
    CHECK_CONTAINS(err, "FIFO");
    CHECK_CONTAINS(err, "; logging to standard error\n");
    CHECK_CONTAINS(err, "a word of warning");
    unlink(in_folder("log"));
    CHECK_INT(live_with("WEFT_DEBUG_FILE", in_folder("log"), &took, err, sizeof err), 0);
    CHECK(!*err);
    read_text(in_folder("log"), text, sizeof text);
    CHECK_CONTAINS(text, "a word of warning");
}

static int log_to_full_pipe(int ends[2])
{
    char junk[4096] = {0};
    int flags = fcntl(ends[1], F_GETFL);
    fcntl(ends[1], F_SETFL, flags | O_NONBLOCK);
    while (write(ends[1], junk, sizeof junk) > 0)
        ;
    fcntl(ends[1], F_SETFL, flags); /* from now on writes wait */
    dup2(ends[1], 2);
    alarm(60);
    long long began = harness_now();
    for (int i = 0; i < 5; i++)
        weft_i_log(WEFT_LOG_WARN, "nobody reads this");
    long long took = (harness_now() - began) / 1000000;
    for (ssize_t n = 1; n > 0;) { /* room again */
        struct pollfd look = {.fd = ends[0], .events = POLLIN};
        n = poll(&look, 1, 0) > 0 ? read(ends[0], junk, sizeof junk) : 0;
    }
    weft_i_log(WEFT_LOG_WARN, "now somebody does");
    memset(junk, 0, sizeof junk);
    if (read(ends[0], junk, sizeof junk - 1) <= 0 || !strstr(junk, "now somebody does") ||
        !strstr(junk, "5 lines of the log were dropped"))
        return 2;
    return took > 30000; /* not until somebody reads */
}

/* A line of the log that nobody takes is dropped, and counted; a reader that has gone is no signal.
 */
TEST(test_file_log_waits_for_nobody)
{
    int ends[2], status = 0;
    CHECK(!pipe(ends));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(log_to_full_pipe(ends));
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    child = fork();
    if (child == 0) {
        close(ends[0]);
        dup2(ends[1], 2);
        weft_i_log(WEFT_LOG_WARN, "to a reader that has gone");
        _exit(0);
    }
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    close(ends[1]);
}

int main(int argc, char **argv)
{
    char command[64];
    signal(SIGPIPE, SIG_DFL);
    if (!mkdtemp(folder))
        return 1;
    int result = harness_main(argc, argv);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) || result;
}

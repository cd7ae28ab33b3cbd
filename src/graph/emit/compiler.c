/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and running the C compiler; see compiler.h. */
#include "graph/emit/compiler.h"

#include "base/os/os.h"
#include "base/report/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* No fused multiply-add, as in eager's kernels; pow is always the library's, which eager calls too. */
static const char *const flags[] = {"-x",
                                    "c",
                                    "-std=gnu11",
                                    "-O3",
#ifdef __aarch64__
                                    "-mcpu=native", /* clang before 15 has no -march=native here */
#else
                                    "-march=native",
#endif
#ifdef __x86_64__
                                    "-mprefer-vector-width=512", /* gcc takes 256 otherwise */
#endif
                                    "-ffp-contract=off",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-fno-strict-aliasing",
                                    "-fno-builtin-pow",
                                    "-fno-builtin-powf",
                                    "-w",
                                    "-fPIC",
                                    "-shared",
                                    "-Wl,-z,defs"};
enum { FLAGS = sizeof flags / sizeof *flags };

static bool look_at(const char *path, struct stat *out)
{
    int fd = WEFT_OS->open(path, O_PATH, 0);
    bool found = fd >= 0 && !WEFT_OS->fstat(fd, out) && S_ISREG(out->st_mode) &&
                 out->st_mode & (S_IXUSR | S_IXGRP | S_IXOTH);
    if (fd >= 0)
        WEFT_OS->close(fd);
    return found;
}

/* A name is looked for in PATH; what contains a slash is a path. */
static bool find_program(const char *name, char *out, size_t bytes, struct stat *about)
{
    if (strchr(name, '/'))
        return snprintf(out, bytes, "%s", name) < (int)bytes && look_at(out, about);
    const char *at = getenv("PATH");
    for (at = at ? at : "/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        if (length && snprintf(out, bytes, "%.*s/%s", (int)length, at, name) < (int)bytes &&
            look_at(out, about))
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* The lines of /proc/cpuinfo that say what the first processor can do. */
static void describe_processor(char *out, size_t bytes)
{
    static const char *const names[] = {"flags",           "Features", "model name",
                                        "CPU implementer", "CPU part", "isa"};
    char text[8192];
    int fd = WEFT_OS->open("/proc/cpuinfo", O_RDONLY, 0);
    ssize_t got = fd >= 0 ? WEFT_OS->read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        WEFT_OS->close(fd);
    text[got > 0 ? got : 0] = 0;
    uint64_t hash = 1469598103934665603u; /* FNV: the flags alone may be a page */
    char *end = strstr(text, "\n\n");
    if (end)
        *end = 0;
    for (char *line = strtok_r(text, "\n", &end); line; line = strtok_r(NULL, "\n", &end))
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            for (const char *c = line; !strncmp(line, names[i], strlen(names[i])) && *c; c++)
                hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    snprintf(out, bytes, "%016llx", (unsigned long long)hash);
}

bool weft_i_compiler_find(weft_i_compiler *out, char *why, size_t bytes)
{
    static const char *const usual[] = {"cc", "gcc", "clang"};
    const char *asked = weft_i_env_text(WEFT_I_ENV_CC);
    struct stat about;
    bool found = false;
    char processor[24];
    if (!strcmp(asked, "none")) {
        snprintf(why, bytes, "WEFT_CC is none");
        return false;
    }
    if (asked[0])
        found = find_program(asked, out->path, sizeof out->path, &about);
    for (size_t i = 0; !asked[0] && !found && i < sizeof usual / sizeof *usual; i++)
        found = find_program(usual[i], out->path, sizeof out->path, &about);
    if (!found) {
        snprintf(why, bytes,
                 asked[0] ? "WEFT_CC names no program: %s" : "no cc, gcc or clang in PATH%s",
                 asked);
        return false;
    }
    describe_processor(processor, sizeof processor);
    int used = snprintf(out->identity, sizeof out->identity, "%s %lld %lld.%09ld %s", out->path,
                        (long long)about.st_size, (long long)about.st_mtim.tv_sec,
                        about.st_mtim.tv_nsec, processor);
    for (size_t i = 0; i < FLAGS && used < (int)sizeof out->identity; i++)
        used +=
            snprintf(out->identity + used, sizeof out->identity - (size_t)used, " %s", flags[i]);
    return true;
}

/* Takes what there is to read; keeps the beginning of it, as one line. */
static bool take_words(int fd, char *why, size_t bytes, size_t *used)
{
    char text[512];
    ssize_t got = WEFT_OS->read(fd, text, sizeof text);
    for (ssize_t i = 0; i < got && *used + 1 < bytes; i++) {
        char c = text[i] == '\n' ? ' ' : text[i];
        why[(*used)++] = c;
        why[*used] = 0;
    }
    return got > 0;
}

/* Waits for its end.  False after the deadline. */
static bool wait_end(int pidfd, int words, int64_t deadline, char *why, size_t bytes)
{
    size_t used = 0;
    struct pollfd fds[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = words, .events = POLLIN}};
    for (;;) {
        int64_t left = weft_i_os_ms_until(deadline);
        if (left == 0 || WEFT_OS->poll(fds, 2, left < 0 || left > 60000 ? 60000 : (int)left) < 0)
            return false;
        if (fds[1].revents && !take_words(words, why, bytes, &used))
            fds[1].fd = -1;
        if (fds[0].revents && !(fds[1].revents & POLLIN))
            return true;
    }
}

/* Whether it ended, and well. */
static bool await(pid_t process, int words, int64_t deadline, char *why, size_t bytes)
{
    int status = 0, pidfd = WEFT_OS->pidfd_open(process);
    bool ended = pidfd >= 0 && wait_end(pidfd, words, deadline, why, bytes);
    if (!ended) {
        WEFT_OS->kill(-process, SIGKILL);
        WEFT_OS->kill(process, SIGKILL);
    }
    if (pidfd >= 0)
        WEFT_OS->close(pidfd);
    WEFT_OS->waitpid(process, &status, 0);
    if (!ended)
        snprintf(why, bytes, "it did not end in time (WEFT_CC_TIMEOUT)");
    return ended && status == 0;
}

bool weft_i_compiler_run(const weft_i_compiler *compiler, int keep, const char *source,
                         const char *object, int64_t deadline, char *why, size_t bytes)
{
    const char *argv[FLAGS + 8] = {compiler->path};
    int n = 1, words[2];
    sigset_t none;
    for (size_t i = 0; i < FLAGS; i++)
        argv[n++] = flags[i];
    argv[n++] = "-o";
    argv[n++] = object;
    argv[n++] = source;
    argv[n++] = "-lm";
    sigemptyset(&none);
    snprintf(why, bytes, "it failed");
    if (WEFT_OS->pipe(words)) {
        snprintf(why, bytes, "no pipe: %s", strerror(errno));
        return false;
    }
    int null = WEFT_OS->open("/dev/null", O_RDWR, 0);
    weft_i_os_child child = {.argv = (char *const *)argv,
                             .env = environ,
                             .in = null,
                             .out = null,
                             .err = words[1],
                             .keep = keep,
                             .core = -1,
                             .parent = weft_i_os_process(),
                             .mask = &none};
    pid_t process = null < 0 ? -1 : WEFT_OS->spawn(&child);
    if (process < 0)
        snprintf(why, bytes, "it cannot be started: %s", strerror(errno));
    WEFT_OS->close(words[1]);
    bool done = process > 0 && await(process, words[0], deadline, why, bytes);
    WEFT_OS->close(words[0]);
    if (null >= 0)
        WEFT_OS->close(null);
    return done;
}

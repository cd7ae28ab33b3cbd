/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: whole lines, written with one system call, to standard error or WEFT_DEBUG_FILE.  The
 * level is read from the environment once per process; the file is opened at the first line that
 * needs it.
 */
#include "base/report/log.h"

#include "base/os/file.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/expand_path.h"
#include "base/report/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { PATIENCE_MS = 10 }; /* with whoever reads the log */

atomic_int weft_i_log_level;
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static int file = -1;

static const char *const level_names[] = {"NONE", "WARN", "INFO", "TRACE"};
_Static_assert(sizeof level_names / sizeof *level_names == WEFT_LOG_TRACE + 1, "a name for each");

/* What other libraries call their levels: a job must not stop for a word that they understand.
 * Errors are told at level WARN here, so whoever asks for errors gets that. */
static const struct {
    const char *name;
    weft_log_level level;
} levels_elsewhere[] = {
    {"OFF", WEFT_LOG_NONE},     {"VERSION", WEFT_LOG_WARN},  {"ABORT", WEFT_LOG_WARN},
    {"FATAL", WEFT_LOG_WARN},   {"CRITICAL", WEFT_LOG_WARN}, {"ERROR", WEFT_LOG_WARN},
    {"WARNING", WEFT_LOG_WARN}, {"DEBUG", WEFT_LOG_TRACE},   {"DETAIL", WEFT_LOG_TRACE},
};

static int level_of_number(const char *digits)
{
    if (strspn(digits, "0123456789") != strlen(digits) || !*digits)
        return -1;
    digits += strspn(digits, "0");
    return strlen(digits) > 1 || *digits > '0' + WEFT_LOG_TRACE ? (int)WEFT_LOG_TRACE
           : *digits                                            ? *digits - '0'
                                                                : (int)WEFT_LOG_NONE;
}

int weft_i_log_level_of(const char *text)
{
    for (int level = 0; level <= WEFT_LOG_TRACE; level++)
        if (!strcasecmp(text, level_names[level]))
            return level;
    for (size_t i = 0; i < sizeof levels_elsewhere / sizeof *levels_elsewhere; i++)
        if (!strcasecmp(text, levels_elsewhere[i].name))
            return (int)levels_elsewhere[i].level;
    return level_of_number(text);
}

int weft_i_log_read_level(void)
{
    int read = weft_i_log_level_of(weft_i_env_text(WEFT_I_ENV_DEBUG));
    int level = (read < 0 ? (int)WEFT_LOG_WARN : read) + 1;
    atomic_store_explicit(&weft_i_log_level, level, memory_order_relaxed);
    return level;
}

/*
 * A line to a descriptor that may be a pipe nobody reads: calls with limits log, so a line that
 * finds no room is dropped after a moment, and the next that finds some says how many were.  A pipe
 * that poll calls writable takes a line of at most PIPE_BUF bytes whole.
 */
static void put_line(int fd, const char *line, size_t length)
{
    static atomic_int dropped; /* relaxed: a count */
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    char note[64];
    if (WEFT_OS->poll(&room, 1, PATIENCE_MS) <= 0 || !(room.revents & POLLOUT)) {
        atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
        return;
    }
    int missing = atomic_exchange_explicit(&dropped, 0, memory_order_relaxed);
    ssize_t ignored = WEFT_OS->write(fd, line, length);
    if (missing && WEFT_OS->poll(&room, 1, 0) > 0) {
        int n =
            snprintf(note, sizeof note, "weft WARN: %d lines of the log were dropped\n", missing);
        ignored = WEFT_OS->write(fd, note, (size_t)n);
    }
    (void)ignored;
}

/* The file of WEFT_DEBUG_FILE; standard error, with a word why, if it cannot be opened. */
static int open_file(const char *pattern)
{
    char path[1024], why[1200], line[1400];
    int fd = -1;
    snprintf(why, sizeof why, "%s: the name is too long", pattern);
    errno = ENAMETOOLONG;
    if (weft_i_os_expand_path(pattern, weft_i_status_rank(), 0, path, sizeof path))
        fd = weft_i_file_try(path, true, 0600, why, sizeof why);
    if (fd >= 0)
        return fd;
    int n = snprintf(line, sizeof line,
                     "weft WARN: WEFT_DEBUG_FILE: %s: %s; logging to standard error\n", why,
                     strerror(errno));
    if (weft_i_log_wants(WEFT_LOG_WARN))
        put_line(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    return STDERR_FILENO;
}

/* Opens WEFT_DEBUG_FILE once; standard error if it is unset or cannot be opened. */
static int destination(void)
{
    pthread_mutex_lock(&file_lock);
    if (file < 0) {
        const char *pattern = weft_i_env_text(WEFT_I_ENV_DEBUG_FILE);
        file = *pattern ? open_file(pattern) : STDERR_FILENO;
    }
    int result = file;
    pthread_mutex_unlock(&file_lock);
    return result;
}

void weft_i_log(weft_log_level level, const char *format, ...)
{
    if (!weft_i_log_wants(level))
        return;
    char line[4096];
    int rank = weft_i_status_rank();
    int n = rank < 0 ? snprintf(line, sizeof line, "weft %s: ", level_names[level])
                     : snprintf(line, sizeof line, "weft %s [rank %d]: ", level_names[level], rank);
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    size_t length = strlen(line);
    if (m < 0)
        return;
    line[length] = '\n';
    put_line(destination(), line, length + 1);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: whole lines, written with one system call, to standard error or WEFT_DEBUG_FILE.  The
 * level is read from the environment once per process; the file is opened at the first line that
 * needs it.
 */
#include "base/log.h"

#include "base/env.h"
#include "base/os.h"
#include "base/status.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static atomic_int
    level_plus_one; /* 0: not read yet.  Relaxed: a plain setting, publishes nothing else. */
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static int file = -1;

static const char *const level_names[] = {"NONE", "WARN", "INFO", "TRACE"};

static int read_level(void)
{
    const char *text = weft_i_env_text(WEFT_I_ENV_DEBUG);
    for (int level = 0; level < 4; level++)
        if (!strcasecmp(text, level_names[level]))
            return level;
    return WEFT_LOG_WARN;
}

bool weft_i_log_wants(weft_log_level level)
{
    int known = atomic_load_explicit(&level_plus_one, memory_order_relaxed);
    if (!known) {
        known = read_level() + 1;
        atomic_store_explicit(&level_plus_one, known, memory_order_relaxed);
    }
    return (int)level < known;
}

/* Opens WEFT_DEBUG_FILE once; standard error if it is unset or cannot be opened. */
static int destination(void)
{
    pthread_mutex_lock(&file_lock);
    if (file < 0) {
        const char *pattern = weft_i_env_text(WEFT_I_ENV_DEBUG_FILE);
        char path[1024];
        file = STDERR_FILENO;
        if (*pattern && weft_i_os_expand_path(pattern, weft_i_status_rank(), path, sizeof path)) {
            int opened = WEFT_OS->open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
            if (opened >= 0)
                file = opened;
        }
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
    ssize_t ignored = WEFT_OS->write(destination(), line, length + 1);
    (void)ignored;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Files of decisions: WEFT_TUNE and weft_tune_load.  All lines are checked before the first counts. */
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "fabric/meet/meet.h"
#include "tune/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 64 << 10, WORD = 32, LINE = 256 };

/* ---- lines ---- */

static int decision_named(const char *text)
{
    for (int which = 0; which < WEFT_I_DECISIONS; which++)
        if (!strcmp(weft_i_decisions[which].text, text))
            return which;
    return -1;
}

/* Digits and nothing else. */
static bool parse(const char *text, unsigned long long most, unsigned long long *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *out <= most;
}

static bool parse_value(const char *text, weft_tune_sense sense, unsigned long long *out)
{
    bool never = !strcmp(text, "never"), always = !strcmp(text, "always");
    if (!never && !always)
        return parse(text, SIZE_MAX, out);
    *out = (sense == WEFT_TUNE_UP_TO) == always ? SIZE_MAX : 0;
    return true;
}

/* "<op> <ranks> <decision> <value>"; false: it is no such line. */
static bool read_decision(const char *line, weft_tune_source by, weft_status *status)
{
    char op[WORD], many[WORD], name[WORD], text[WORD];
    unsigned long long ranks = 1, value;
    int end = 0;
    if (sscanf(line, "%31s %31s %31s %31s %n", op, many, name, text, &end) != 4 || line[end])
        return false;
    int which = decision_named(name);
    if (which < 0)
        return false;
    const weft_i_decision_row *row = &weft_i_decisions[which];
    if (!(row->same && !strcmp(many, "*")) && !parse(many, INT_MAX, &ranks))
        return false;
    if (!parse_value(text, (weft_tune_sense)row->sense, &value))
        return false;
    *status = weft_i_tune_set((weft_i_decision)which, op, (int)ranks, (size_t)value, by);
    return true;
}

/* "<op> <ranks> <eager> [<zero_copy> [<cma>]]"; false: it is no such line. */
static bool read_three(const char *line, weft_tune_source by, weft_status *status)
{
    char op[WORD], many[WORD], text[3][WORD];
    unsigned long long ranks, value;
    int end = 0;
    int fields = sscanf(line, "%31s %31s %31s %n%31s %n%31s %n", op, many, text[0], &end, text[1],
                        &end, text[2], &end);
    if (fields < 3 || line[end] || !parse(many, INT_MAX, &ranks))
        return false;
    *status = WEFT_OK;
    for (int i = 0; i < fields - 2; i++)
        if (!parse(text[i], SIZE_MAX, &value))
            return false;
    for (int i = 0; i < fields - 2 && *status == WEFT_OK; i++) {
        parse(text[i], SIZE_MAX, &value);
        *status = weft_i_tune_set((weft_i_decision)i, op, (int)ranks, (size_t)value, by);
    }
    return true;
}

static weft_status read_line(const char *path, int number, const char *line, weft_tune_source by)
{
    weft_status status;
    char why[LINE];
    if (!read_decision(line, by, &status) && !read_three(line, by, &status))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s:%d: wants \"<op> <ranks> <decision> <bytes>\" or \"<op> <ranks> "
                           "<bytes> [<bytes> [<bytes>]]\", not \"%s\"",
                           path, number, line);
    if (status == WEFT_OK)
        return status;
    snprintf(why, sizeof why, "%s", weft_last_error());
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s:%d: \"%s\": %s", path, number, line, why);
}

/* Reads the lines of `text`; `by` WEFT_TUNE_COMPILED: only checks. */
static weft_status read_lines(const char *path, char *text, weft_tune_source by)
{
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        size_t length = next ? (size_t)(next - line) : strlen(line);
        char copy[LINE];
        number++;
        next = next ? next + 1 : NULL;
        if (length >= sizeof copy)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s:%d: the line is too long", path, number);
        memcpy(copy, line, length);
        copy[length] = 0;
        copy[strcspn(copy, "#")] = 0;
        if (copy[strspn(copy, " \t\r")])
            WEFT_TRY(read_line(path, number, copy, by));
    }
    return WEFT_OK;
}

/* ---- files ---- */

/* A file that goes on would be cut, perhaps in the middle of a number; so would one at a zero. */
static weft_status check_whole(const char *path, const char *text, size_t length)
{
    if (length > FILE_BYTES)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s has more than %d bytes of thresholds", path,
                           FILE_BYTES);
    if (strlen(text) < length)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s is no text: byte %zu is zero", path,
                           strlen(text));
    return WEFT_OK;
}

weft_status weft_tune_load(const char *path)
{
    int fd = path ? WEFT_OS->open(path, O_RDONLY | O_NONBLOCK, 0) : -1;
    if (fd < 0)
        return weft_i_fail_errno(path ? errno : EINVAL, "cannot open the thresholds in %s",
                                 path ? path : "(null)");
    if (!weft_i_os_is_file(fd)) {
        WEFT_OS->close(fd);
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "cannot read the thresholds in %s: it is not a regular file", path);
    }
    char *text = WEFT_OS->alloc(FILE_BYTES + 2);
    ssize_t length = text ? WEFT_OS->read(fd, text, FILE_BYTES + 1) : -1;
    int error = errno;
    WEFT_OS->close(fd);
    weft_status status = WEFT_OK;
    if (!text)
        status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to read %s", path);
    else if (length < 0)
        status = weft_i_fail_errno(error, "cannot read %s", path);
    else
        status = check_whole(path, text, (size_t)length);
    if (status == WEFT_OK)
        status = read_lines(path, text, WEFT_TUNE_COMPILED);
    if (status == WEFT_OK)
        status = read_lines(path, text, WEFT_TUNE_FILE);
    WEFT_OS->free(text);
    return status;
}

static void load_from_environment(void)
{
    const char *path = weft_i_env_text(WEFT_I_ENV_TUNE);
    weft_i_errors before;
    weft_i_errors_save(&before);
    if (*path && weft_tune_load(path) < 0)
        weft_i_log(WEFT_LOG_WARN, "WEFT_TUNE: %s; using the thresholds compiled in",
                   weft_last_error());
    weft_i_errors_restore(&before); /* no failure of the job, which has thresholds */
}

void weft_i_tune_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_from_environment);
}

/* A file that cannot be read is told by weft_init, also where no collective follows. */
__attribute__((constructor)) static void load_with_init(void)
{
    weft_i_meet_then(weft_i_tune_load);
}

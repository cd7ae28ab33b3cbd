/* SPDX-License-Identifier: Apache-2.0 */
/* The table of thresholds, and how users look at it and change it; see choose.h. */
#include "coll/choose.h"

#include "base/env.h"
#include "base/log.h"
#include "base/os.h"
#include "base/place.h"
#include "base/status.h"
#include "base/wait.h"
#include "coll/lane.h"
#include "fabric/meet.h"
#include "weft/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__aarch64__)
#define THRESHOLDS "coll/thresholds_aarch64.def"
#else
#define THRESHOLDS "coll/thresholds_x86_64.def"
#endif

enum { K = 1 << 10, M = 1 << 20, FILE_BYTES = 64 * K /* of thresholds */ };
#define NEVER SIZE_MAX
#define IN_BRACES(...) \
    {                  \
        __VA_ARGS__    \
    }
/* In the order of weft_i_threshold. */
#define ROW(eager_, zero_copy_, cma_)                                       \
    {                                                                       \
        .bytes = { IN_BRACES eager_, IN_BRACES zero_copy_, IN_BRACES cma_ } \
    }

weft_i_thresholds weft_i_thresholds_of[2][WEFT_I_COLL_KINDS] = {
#define ROOMY(op_, eager_, zero_copy_, cma_)   [0][WEFT_I_##op_] = ROW(eager_, zero_copy_, cma_),
#define CROWDED(op_, eager_, zero_copy_, cma_) [1][WEFT_I_##op_] = ROW(eager_, zero_copy_, cma_),
#include THRESHOLDS
#undef ROOMY
#undef CROWDED
#define LIBRARY(crowded_, kind_, ...) \
    [crowded_][WEFT_I_##kind_].bytes[WEFT_I_LIBRARY_FROM] = {__VA_ARGS__}
#define FROM(kind_, ...) LIBRARY(0, kind_, __VA_ARGS__), LIBRARY(1, kind_, __VA_ARGS__),
#include "coll/thresholds_nccl.def"
#undef FROM
};

/* Of devices, by number of ranks. */
static struct {
    atomic_size_t packets[2][WEFT_I_CHOOSE_COLUMNS]; /* through the stage, symmetric */
    atomic_size_t one_shot[2][WEFT_I_CHOOSE_COLUMNS];
} on_device = {
#define PACKETS(...)            .packets[0] = {__VA_ARGS__},
#define SYMMETRIC_PACKETS(...)  .packets[1] = {__VA_ARGS__},
#define ONE_SHOT(...)           .one_shot[0] = {__VA_ARGS__},
#define SYMMETRIC_ONE_SHOT(...) .one_shot[1] = {__VA_ARGS__},
#include "coll/thresholds_cuda.def"
#undef PACKETS
#undef SYMMETRIC_PACKETS
#undef ONE_SHOT
#undef SYMMETRIC_ONE_SHOT
};

static pthread_once_t load_once = PTHREAD_ONCE_INIT;

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

void weft_i_choose_load(void)
{
    pthread_once(&load_once, load_from_environment);
}

/* A file that cannot be read is told by weft_init, also where no collective follows. */
__attribute__((constructor)) static void load_with_init(void)
{
    weft_i_meet_then(weft_i_choose_load);
}

WEFT_I_HOT void weft_i_choose_on_device(int ranks, bool symmetric, size_t *packets,
                                        size_t *one_shot)
{
    int column = weft_i_choose_column(ranks);
    *packets = atomic_load_explicit(&on_device.packets[symmetric][column], memory_order_relaxed);
    *one_shot = atomic_load_explicit(&on_device.one_shot[symmetric][column], memory_order_relaxed);
}

uint32_t weft_i_choose_library_digest(int ranks)
{
    uint32_t digest = 0;
    weft_i_choose_load();
    for (int kind = 0; kind < WEFT_I_COLL_KINDS; kind++)
        digest = weft_i_digest(
            digest, weft_i_threshold_of(WEFT_I_LIBRARY_FROM, (weft_i_coll_kind)kind, ranks, false));
    return digest;
}

/* ---- public ---- */

/* Would a world of that many ranks on this machine have more ranks than cores? */
static bool is_crowded(int ranks)
{
    return weft_i_wait_mode_for(ranks, weft_i_os_cores()) != WEFT_I_WAIT_SPIN;
}

static weft_status check(const char *op, int ranks, size_t bytes, int *kind)
{
    *kind = weft_i_kind_named(op);
    if (*kind < 0)
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "\"%s\" is not a collective", op ? op : "(null)");
    if (ranks < 1 || bytes > WEFT_I_EAGER)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: thresholds are for 1 rank and more, and up to %d bytes", op,
                           (int)WEFT_I_EAGER);
    return WEFT_OK;
}

const char *weft_tune_choice(const char *op, int ranks, size_t bytes)
{
    static const char *const algorithms[WEFT_I_ALGORITHMS] = {"inline", "eager", "rendezvous"};
    int kind;
    weft_i_choose_load();
    if (check(op, ranks, 0, &kind) < 0)
        return NULL;
    return algorithms[weft_i_choose((weft_i_coll_kind)kind, ranks, is_crowded(ranks), bytes)];
}

_Static_assert((int)WEFT_TUNE_EAGER == WEFT_I_EAGER_UP_TO &&
                   (int)WEFT_TUNE_ZERO_COPY == WEFT_I_ZERO_COPY_BEYOND &&
                   (int)WEFT_TUNE_CMA == WEFT_I_CMA_FROM &&
                   (int)WEFT_TUNE_NCCL == WEFT_I_LIBRARY_FROM,
               "thresholds are the same, in the same order");

static weft_status check_threshold(weft_threshold which)
{
    return (unsigned)which <= WEFT_TUNE_NCCL
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_tune: %d is no threshold", (int)which);
}

size_t weft_tune_get(weft_threshold which, const char *op, int ranks)
{
    int kind;
    weft_i_choose_load();
    if (check_threshold(which) < 0 || check(op, ranks, 0, &kind) < 0)
        return 0;
    return weft_i_threshold_of((weft_i_threshold)which, (weft_i_coll_kind)kind, ranks,
                               is_crowded(ranks));
}

static void set(weft_i_threshold which, int kind, int ranks, size_t bytes)
{
    for (int crowded = 0; crowded < 2; crowded++)
        atomic_store_explicit(
            &weft_i_thresholds_of[crowded][kind].bytes[which][weft_i_choose_column(ranks)], bytes,
            memory_order_relaxed);
}

weft_status weft_tune_set(weft_threshold which, const char *op, int ranks, size_t bytes)
{
    int kind;
    WEFT_TRY(check_threshold(which));
    WEFT_TRY(check(op, ranks, which >= WEFT_TUNE_CMA ? 0 : bytes, &kind));
    set((weft_i_threshold)which, kind, ranks, bytes);
    if (which == WEFT_TUNE_EAGER)
        set(WEFT_I_ZERO_COPY_BEYOND, kind, ranks, bytes);
    if (which == WEFT_TUNE_CMA)
        set(WEFT_I_CMA_SET, kind, ranks, 1);
    return WEFT_OK;
}

/* One line without its comment; with `apply` sets what it says, otherwise only checks. */
static weft_status read_line(const char *line, bool apply)
{
    char op[32];
    int ranks, kind, end = 0;
    unsigned long long bytes[3] = {0};
    if (sscanf(line, "%31s %d nccl %llu %n", op, &ranks, bytes, &end) == 3 && !line[end])
        return apply ? weft_tune_set(WEFT_TUNE_NCCL, op, ranks, (size_t)bytes[0])
                     : check(op, ranks, 0, &kind);
    int fields = sscanf(line, "%31s %d %llu %n%llu %n%llu %n", op, &ranks, bytes, &end, bytes + 1,
                        &end, bytes + 2, &end);
    if (fields < 3 || line[end])
        return WEFT_ERR_INVALID_ARG;
    for (int i = WEFT_TUNE_EAGER; i < WEFT_TUNE_CMA; i++)
        WEFT_TRY(check(op, ranks, (size_t)bytes[i], &kind));
    for (int i = WEFT_TUNE_EAGER; apply && i < fields - 2; i++)
        weft_tune_set((weft_threshold)i, op, ranks, (size_t)bytes[i]);
    return WEFT_OK;
}

/* Reads the lines of `text`; with `apply` sets them, otherwise only checks. */
static weft_status read_lines(const char *path, char *text, bool apply)
{
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        size_t length = next ? (size_t)(next - line) : strlen(line);
        char copy[256];
        number++;
        next = next ? next + 1 : NULL;
        if (length >= sizeof copy)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s:%d: the line is too long", path, number);
        memcpy(copy, line, length);
        copy[length] = 0;
        copy[strcspn(copy, "#")] = 0;
        if (!copy[strspn(copy, " \t\r")])
            continue;
        if (read_line(copy, apply) < 0)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s:%d: wants \"<op> <ranks> <bytes> [<bytes> [<bytes>]]\" or "
                               "\"<op> <ranks> nccl <bytes>\", not \"%s\"",
                               path, number, copy);
    }
    return WEFT_OK;
}

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
        status = read_lines(path, text, false);
    if (status == WEFT_OK)
        status = read_lines(path, text, true);
    WEFT_OS->free(text);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The table of thresholds: up to how many bytes an operand travels whole through one stage slot
 * instead of directly. */
#include "coll/choose.h"

#include "base/env.h"
#include "base/log.h"
#include "base/os.h"
#include "base/status.h"
#include "base/wait.h"
#include "coll/lane.h"
#include "weft/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 4 }; /* 2, 3-4, 5-8 and more ranks */

static const char *const names[WEFT_I_COLL_KINDS] = {
#define COLL(name_, text_, record_) [WEFT_I_##name_] = text_,
#include "coll/kinds.def"
#undef COLL
};

static const weft_i_record_name record_names[WEFT_I_COLL_KINDS] = {
#define COLL(name_, text_, record_) [WEFT_I_##name_] = {record_},
#include "coll/kinds.def"
#undef COLL
};

/* Relaxed throughout: settings that publish nothing else; ranks that disagree are caught by the
 * digest. */
static atomic_size_t staged_up_to[2][WEFT_I_COLL_KINDS][COLUMNS] = {
    {
        /* Measured by `weft bench --tune` on 16 cores of a Xeon (Sapphire Rapids). */
        [WEFT_I_ALL_REDUCE] = {8 << 10, 2 << 10, 2 << 10, 1 << 10},
        [WEFT_I_REDUCE] = {16 << 10, 8 << 10, 2 << 10, 1 << 10},
        [WEFT_I_BROADCAST] = {8 << 10, 4 << 10, 8 << 10, 16 << 10},
        [WEFT_I_ALL_GATHER] = {4 << 10, 2 << 10, 2 << 10, 1 << 10},
        [WEFT_I_GATHER] = {16 << 10, 8 << 10, 8 << 10, 4 << 10},
        [WEFT_I_SCATTER] = {64 << 10, 64 << 10, 64 << 10, 64 << 10},
        [WEFT_I_REDUCE_SCATTER] = {8 << 10, 8 << 10, 16 << 10, 16 << 10},
        [WEFT_I_ALL_TO_ALL] = {8 << 10, 8 << 10, 8 << 10, 8 << 10},
    },
    {
        /* More ranks than cores, where a second sync costs more than a copy: 4 and 8 on 2 cores. */
        [WEFT_I_ALL_REDUCE] = {8 << 10, 8 << 10, 4 << 10, 2 << 10},
        [WEFT_I_REDUCE] = {16 << 10, 16 << 10, 8 << 10, 4 << 10},
        [WEFT_I_BROADCAST] = {64 << 10, 64 << 10, 64 << 10, 64 << 10},
        [WEFT_I_ALL_GATHER] = {32 << 10, 32 << 10, 16 << 10, 8 << 10},
        [WEFT_I_GATHER] = {32 << 10, 32 << 10, 32 << 10, 16 << 10},
        [WEFT_I_SCATTER] = {64 << 10, 64 << 10, 64 << 10, 64 << 10},
        [WEFT_I_REDUCE_SCATTER] = {32 << 10, 32 << 10, 32 << 10, 32 << 10},
        [WEFT_I_ALL_TO_ALL] = {64 << 10, 64 << 10, 64 << 10, 64 << 10},
    },
};

#define NEVER SIZE_MAX

/* The same for single copies: bytes from one rank to another from which on they pay; first with a
 * core for each rank (2 and 16 cores of such Xeons), then without (4 ranks on 2 cores). */
static atomic_size_t single_from[2][WEFT_I_COLL_KINDS][COLUMNS] = {
    {
        [WEFT_I_ALL_REDUCE] = {1 << 20, 2 << 20, 128 << 10, 1 << 20},
        [WEFT_I_BROADCAST] = {NEVER, NEVER, NEVER, NEVER},
        [WEFT_I_ALL_GATHER] = {16 << 10, NEVER, 128 << 10, 512 << 10},
        [WEFT_I_GATHER] = {64 << 10, 512 << 10, 256 << 10, 64 << 10},
        [WEFT_I_SCATTER] = {32 << 10, 512 << 10, 256 << 10, 256 << 10},
        [WEFT_I_REDUCE_SCATTER] = {4 << 20, 1 << 20, 128 << 10, 64 << 10},
        [WEFT_I_ALL_TO_ALL] = {16 << 10, 64 << 10, 32 << 10, 16 << 10},
        [WEFT_I_LOW_CONTENTION_ALL_GATHER] = {16 << 10, NEVER, 128 << 10, 512 << 10},
        [WEFT_I_LOW_CONTENTION_REDUCE_SCATTER] = {4 << 20, 1 << 20, 128 << 10, 64 << 10},
    },
    {
        [WEFT_I_ALL_REDUCE] = {NEVER, NEVER, NEVER, NEVER},
        [WEFT_I_BROADCAST] = {NEVER, NEVER, NEVER, NEVER},
        [WEFT_I_ALL_GATHER] = {2 << 20, 2 << 20, 2 << 20, 2 << 20},
        [WEFT_I_GATHER] = {4 << 10, 4 << 10, 4 << 10, 4 << 10},
        [WEFT_I_SCATTER] = {4 << 10, 4 << 10, 4 << 10, 4 << 10},
        [WEFT_I_REDUCE_SCATTER] = {NEVER, NEVER, NEVER, NEVER},
        [WEFT_I_ALL_TO_ALL] = {64 << 10, 64 << 10, 64 << 10, 64 << 10},
        [WEFT_I_LOW_CONTENTION_ALL_GATHER] = {2 << 20, 2 << 20, 2 << 20, 2 << 20},
        [WEFT_I_LOW_CONTENTION_REDUCE_SCATTER] = {NEVER, NEVER, NEVER, NEVER},
    },
};

static pthread_once_t load_once = PTHREAD_ONCE_INIT;

const char *weft_i_coll_name(weft_i_coll_kind kind)
{
    return names[kind];
}

const weft_i_record_name *weft_i_coll_record_name(weft_i_coll_kind kind)
{
    return &record_names[kind];
}

const char *weft_i_algorithm_name(weft_i_algorithm algorithm)
{
    static const char *const algorithms[WEFT_I_ALGORITHMS] = {"tiny", "staged", "large"};
    return algorithms[algorithm];
}

static int column_of(int ranks)
{
    return ranks <= 2 ? 0 : ranks <= 4 ? 1 : ranks <= 8 ? 2 : 3;
}

static int kind_named(const char *op)
{
    for (int kind = 0; op && kind < WEFT_I_COLL_KINDS; kind++)
        if (!strcmp(names[kind], op))
            return kind;
    return -1;
}

static void load_from_environment(void)
{
    const char *path = weft_i_env_text(WEFT_I_ENV_TUNE);
    if (*path && weft_tune_load(path) < 0)
        weft_i_log(WEFT_LOG_WARN, "WEFT_TUNE: %s; using the thresholds compiled in",
                   weft_last_error());
}

weft_i_algorithm weft_i_choose(weft_i_coll_kind kind, int ranks, bool crowded, size_t bytes)
{
    pthread_once(&load_once, load_from_environment);
    if (bytes <= WEFT_I_TINY)
        return WEFT_I_ALGO_TINY;
    size_t staged =
        atomic_load_explicit(&staged_up_to[crowded][kind][column_of(ranks)], memory_order_relaxed);
    return bytes <= staged ? WEFT_I_ALGO_STAGED : WEFT_I_ALGO_LARGE;
}

size_t weft_i_choose_single(weft_i_coll_kind kind, int ranks, bool crowded)
{
    return atomic_load_explicit(&single_from[crowded][kind][column_of(ranks)],
                                memory_order_relaxed);
}

/* ---- public ---- */

/* Would a world of that many ranks on this machine have more ranks than cores? */
static bool is_crowded(int ranks)
{
    return weft_i_wait_mode_for(ranks, weft_i_os_cores()) != WEFT_I_WAIT_SPIN;
}

static weft_status check(const char *op, int ranks, size_t bytes, int *kind)
{
    *kind = kind_named(op);
    if (*kind < 0)
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "\"%s\" is not a collective", op ? op : "(null)");
    if (ranks < 1 || bytes > WEFT_I_SHOW)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: thresholds are for 1 rank and more, and up to %d bytes", op,
                           (int)WEFT_I_SHOW);
    return WEFT_OK;
}

const char *weft_tune_choice(const char *op, int ranks, size_t bytes)
{
    int kind;
    if (check(op, ranks, 0, &kind) < 0)
        return NULL;
    return weft_i_algorithm_name(
        weft_i_choose((weft_i_coll_kind)kind, ranks, is_crowded(ranks), bytes));
}

size_t weft_tune_staged(const char *op, int ranks)
{
    int kind;
    pthread_once(&load_once, load_from_environment);
    if (check(op, ranks, 0, &kind) < 0)
        return 0;
    return atomic_load_explicit(&staged_up_to[is_crowded(ranks)][kind][column_of(ranks)],
                                memory_order_relaxed);
}

weft_status weft_tune_set(const char *op, int ranks, size_t bytes)
{
    int kind;
    WEFT_TRY(check(op, ranks, bytes, &kind));
    for (int crowded = 0; crowded < 2; crowded++)
        atomic_store_explicit(&staged_up_to[crowded][kind][column_of(ranks)], bytes,
                              memory_order_relaxed);
    return WEFT_OK;
}

size_t weft_tune_single(const char *op, int ranks)
{
    int kind;
    pthread_once(&load_once, load_from_environment);
    return check(op, ranks, 0, &kind) < 0
               ? 0
               : weft_i_choose_single((weft_i_coll_kind)kind, ranks, is_crowded(ranks));
}

weft_status weft_tune_set_single(const char *op, int ranks, size_t from)
{
    int kind;
    WEFT_TRY(check(op, ranks, 0, &kind));
    for (int crowded = 0; crowded < 2; crowded++)
        atomic_store_explicit(&single_from[crowded][kind][column_of(ranks)], from,
                              memory_order_relaxed);
    return WEFT_OK;
}

/* Reads the lines of `text`; with `apply` sets them, otherwise only checks. */
static weft_status read_lines(const char *path, char *text, bool apply)
{
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        size_t length = next ? (size_t)(next - line) : strlen(line);
        char copy[256], op[32];
        int ranks, kind, end = 0;
        unsigned long long bytes, single = 0;
        number++;
        next = next ? next + 1 : NULL;
        if (length >= sizeof copy)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s:%d: the line is too long", path, number);
        memcpy(copy, line, length);
        copy[length] = 0;
        copy[strcspn(copy, "#")] = 0;
        if (!copy[strspn(copy, " \t\r")])
            continue;
        int fields =
            sscanf(copy, "%31s %d %llu %n%llu %n", op, &ranks, &bytes, &end, &single, &end);
        if (fields < 3 || copy[end] || check(op, ranks, (size_t)bytes, &kind) < 0)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s:%d: wants \"<op> <ranks> <bytes> [<bytes>]\", not \"%s\"", path,
                               number, copy);
        if (apply)
            weft_tune_set(op, ranks, (size_t)bytes);
        if (apply && fields == 4)
            weft_tune_set_single(op, ranks, (size_t)single);
    }
    return WEFT_OK;
}

weft_status weft_tune_load(const char *path)
{
    enum { FILE_BYTES = 64 << 10 };
    int fd = path ? WEFT_OS->open(path, O_RDONLY, 0) : -1;
    if (fd < 0)
        return weft_i_fail_errno(path ? errno : EINVAL, "cannot open the thresholds in %s",
                                 path ? path : "(null)");
    char *text = WEFT_OS->alloc(FILE_BYTES + 1);
    ssize_t length = text ? WEFT_OS->read(fd, text, FILE_BYTES) : -1;
    int error = errno;
    WEFT_OS->close(fd);
    weft_status status = WEFT_OK;
    if (!text)
        status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to read %s", path);
    else if (length < 0)
        status = weft_i_fail_errno(error, "cannot read %s", path);
    if (status == WEFT_OK)
        status = read_lines(path, text, false);
    if (status == WEFT_OK)
        status = read_lines(path, text, true);
    WEFT_OS->free(text);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of thresholds: up to how many bytes an operand travels whole through one eager buffer,
 * symmetric and ordinary, and from where on the kernel copies. */
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

/* Bytes; first where each rank has a core (ROOMY), then where they share cores (CROWDED). */
typedef atomic_size_t thresholds[2][WEFT_I_COLL_KINDS][COLUMNS];

#if defined(__aarch64__)
#define THRESHOLDS "coll/thresholds_aarch64.def"
#else
#define THRESHOLDS "coll/thresholds_x86_64.def"
#endif

enum { K = 1 << 10, M = 1 << 20 };
#define NEVER SIZE_MAX
#define IN_BRACES(...) \
    {                  \
        __VA_ARGS__    \
    }

/* Relaxed throughout: settings that publish nothing else; ranks that disagree are caught by the
 * digest. */
static thresholds eager_up_to = {
#define ROOMY(op_, staged_, direct_, single_)   [0][WEFT_I_##op_] = IN_BRACES staged_,
#define CROWDED(op_, staged_, direct_, single_) [1][WEFT_I_##op_] = IN_BRACES staged_,
#include THRESHOLDS
#undef ROOMY
#undef CROWDED
};

/* The same for symmetric operands, which others can use where they are, at the price of one more
 * sync. */
static thresholds direct_beyond = {
#define ROOMY(op_, staged_, direct_, single_)   [0][WEFT_I_##op_] = IN_BRACES direct_,
#define CROWDED(op_, staged_, direct_, single_) [1][WEFT_I_##op_] = IN_BRACES direct_,
#include THRESHOLDS
#undef ROOMY
#undef CROWDED
};

/* The same for copies by CMA: bytes from one rank to another from which on they pay. */
static thresholds cma_from = {
#define ROOMY(op_, staged_, direct_, single_)   [0][WEFT_I_##op_] = IN_BRACES single_,
#define CROWDED(op_, staged_, direct_, single_) [1][WEFT_I_##op_] = IN_BRACES single_,
#include THRESHOLDS
#undef ROOMY
#undef CROWDED
};

static pthread_once_t load_once = PTHREAD_ONCE_INIT;

const char *weft_i_algorithm_name(weft_i_algorithm algorithm)
{
    static const char *const algorithms[WEFT_I_ALGORITHMS] = {"inline", "eager", "rendezvous"};
    return algorithms[algorithm];
}

static int column_of(int ranks)
{
    return ranks <= 2 ? 0 : ranks <= 4 ? 1 : ranks <= 8 ? 2 : 3;
}

static void load_from_environment(void)
{
    const char *path = weft_i_env_text(WEFT_I_ENV_TUNE);
    if (*path && weft_tune_load(path) < 0)
        weft_i_log(WEFT_LOG_WARN, "WEFT_TUNE: %s; using the thresholds compiled in",
                   weft_last_error());
}

void weft_i_choose_load(void)
{
    pthread_once(&load_once, load_from_environment);
}

static size_t look_up(const thresholds *table, int kind, int ranks, bool crowded)
{
    return atomic_load_explicit(&(*table)[crowded][kind][column_of(ranks)], memory_order_relaxed);
}

weft_i_algorithm weft_i_choose(weft_i_coll_kind kind, int ranks, bool crowded, size_t bytes)
{
    if (bytes <= WEFT_I_INLINE)
        return WEFT_I_ALGO_INLINE;
    size_t least = look_up(&direct_beyond, (int)kind, ranks, crowded);
    return bytes <= least ? WEFT_I_ALGO_EAGER : WEFT_I_ALGO_RENDEZVOUS;
}

size_t weft_i_choose_eager(weft_i_coll_kind kind, int ranks, bool crowded)
{
    return look_up(&eager_up_to, (int)kind, ranks, crowded);
}

size_t weft_i_choose_cma(weft_i_coll_kind kind, int ranks, bool crowded)
{
    return look_up(&cma_from, (int)weft_i_kinds[kind].as, ranks, crowded);
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
    int kind;
    weft_i_choose_load();
    if (check(op, ranks, 0, &kind) < 0)
        return NULL;
    return weft_i_algorithm_name(
        weft_i_choose((weft_i_coll_kind)kind, ranks, is_crowded(ranks), bytes));
}

static size_t tell(const thresholds *table, const char *op, int ranks)
{
    int kind;
    weft_i_choose_load();
    return check(op, ranks, 0, &kind) < 0 ? 0 : look_up(table, kind, ranks, is_crowded(ranks));
}

/* `limited`: to the size of a chunk. */
static weft_status set(thresholds *table, const char *op, int ranks, size_t bytes, bool limited)
{
    int kind;
    WEFT_TRY(check(op, ranks, limited ? bytes : 0, &kind));
    for (int crowded = 0; crowded < 2; crowded++)
        atomic_store_explicit(&(*table)[crowded][kind][column_of(ranks)], bytes,
                              memory_order_relaxed);
    return WEFT_OK;
}

size_t weft_tune_eager(const char *op, int ranks)
{
    return tell(&eager_up_to, op, ranks);
}

size_t weft_tune_zero_copy(const char *op, int ranks)
{
    return tell(&direct_beyond, op, ranks);
}

size_t weft_tune_cma(const char *op, int ranks)
{
    return tell(&cma_from, op, ranks);
}

weft_status weft_tune_set(const char *op, int ranks, size_t bytes)
{
    WEFT_TRY(set(&eager_up_to, op, ranks, bytes, true));
    return weft_tune_set_zero_copy(op, ranks, bytes);
}

weft_status weft_tune_set_zero_copy(const char *op, int ranks, size_t beyond)
{
    return set(&direct_beyond, op, ranks, beyond, true);
}

weft_status weft_tune_set_cma(const char *op, int ranks, size_t from)
{
    return set(&cma_from, op, ranks, from, false);
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
        unsigned long long bytes, single = 0, direct = 0;
        number++;
        next = next ? next + 1 : NULL;
        if (length >= sizeof copy)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s:%d: the line is too long", path, number);
        memcpy(copy, line, length);
        copy[length] = 0;
        copy[strcspn(copy, "#")] = 0;
        if (!copy[strspn(copy, " \t\r")])
            continue;
        int fields = sscanf(copy, "%31s %d %llu %n%llu %n%llu %n", op, &ranks, &bytes, &end,
                            &direct, &end, &single, &end);
        if (fields < 3 || copy[end] || check(op, ranks, (size_t)bytes, &kind) < 0 ||
            check(op, ranks, (size_t)direct, &kind) < 0)
            return weft_i_fail(
                WEFT_ERR_INVALID_ARG,
                "%s:%d: wants \"<op> <ranks> <bytes> [<bytes> [<bytes>]]\", not \"%s\"", path,
                number, copy);
        if (apply)
            weft_tune_set(op, ranks, (size_t)bytes);
        if (apply && fields >= 4)
            weft_tune_set_zero_copy(op, ranks, (size_t)direct);
        if (apply && fields == 5)
            weft_tune_set_cma(op, ranks, (size_t)single);
    }
    return WEFT_OK;
}

weft_status weft_tune_load(const char *path)
{
    enum { FILE_BYTES = 64 << 10 };
    int fd = path ? WEFT_OS->open(path, O_RDONLY | O_NONBLOCK, 0) : -1;
    if (fd < 0)
        return weft_i_fail_errno(path ? errno : EINVAL, "cannot open the thresholds in %s",
                                 path ? path : "(null)");
    if (!weft_i_os_is_file(fd)) {
        WEFT_OS->close(fd);
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "cannot read the thresholds in %s: it is not a regular file", path);
    }
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status names and the thread's last error.  One thread-local record holds the first and the last
 * message; no allocation happens on the error path, so that running out of memory can still be
 * reported.
 */
#include "base/report/status.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/loss.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = WEFT_I_MESSAGE_BYTES };

static _Thread_local int rank_plus_one; /* 0: no rank yet, so that zeroed thread storage is right */
static _Thread_local weft_i_errors error_record;
static _Thread_local struct {
    uint64_t thread; /* its number in books of losses; 0: it has none yet */
    uint64_t book;   /* that the next error belongs into; 0: none */
    uint32_t group;
    bool serves;
} concern;
static atomic_int process_rank_plus_one; /* relaxed: a number for messages */

static const struct {
    weft_status code;
    weft_scope_of_error scope;
    const char *name, *text;
} table[] = {
#define STATUS(name_, scope_, text_) {WEFT_##name_, WEFT_SCOPE_##scope_, "WEFT_" #name_, text_},
#include "base/report/status.def"
#undef STATUS
};

/* A status without a row is a warning here, which is an error in development builds. */
static inline bool has_row(weft_status status)
{
    switch (status) {
#define STATUS(name_, scope_, text_) case WEFT_##name_:
#include "base/report/status.def"
#undef STATUS
        return true;
    }
    return false;
}

static int row_of(weft_status status)
{
    for (int row = 0; row < (int)(sizeof table / sizeof *table); row++)
        if (table[row].code == status)
            return row;
    WEFT_ASSERT(!has_row(status));
    return -1;
}

bool weft_i_status_known(weft_status status)
{
    return row_of(status) >= 0;
}

const char *weft_status_name(weft_status status)
{
    int row = row_of(status);
    return row < 0 ? "unknown status" : table[row].name;
}

const char *weft_strerror(weft_status status)
{
    int row = row_of(status);
    return row < 0 ? "unknown status" : table[row].text;
}

weft_scope_of_error weft_status_scope(weft_status status)
{
    int row = row_of(status);
    return row < 0 ? WEFT_SCOPE_BUG : table[row].scope;
}

const char *weft_last_error(void)
{
    return error_record.last_text;
}

weft_status weft_last_status(void)
{
    return error_record.last;
}

void weft_clear_error(void)
{
    if (error_record.noted)
        weft_i_loss_forget(concern.thread);
    error_record.noted = false;
    error_record.last = error_record.first = WEFT_OK;
    error_record.last_text[0] = error_record.first_text[0] = 0;
}

void weft_i_status_set_rank(int rank)
{
    rank_plus_one = rank + 1;
}

void weft_i_status_set_process_rank(int rank)
{
    weft_i_status_set_rank(rank);
    atomic_store_explicit(&process_rank_plus_one, rank + 1, memory_order_relaxed);
}

int weft_i_status_rank(void)
{
    int plus_one = rank_plus_one;
    if (!plus_one)
        plus_one = atomic_load_explicit(&process_rank_plus_one, memory_order_relaxed);
    return plus_one - 1;
}

void weft_i_status_concern(int rank, uint64_t book, uint32_t group)
{
    static _Atomic uint64_t threads; /* relaxed: a count */
    if (!concern.thread)
        concern.thread = 1 + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed);
    if (!rank_plus_one)
        weft_i_status_set_rank(rank);
    concern.book = book;
    concern.group = group;
}

void weft_i_status_serve(int rank)
{
    weft_i_status_set_rank(rank);
    concern.serves = true;
}

void weft_i_errors_save(weft_i_errors *out)
{
    *out = error_record;
}

void weft_i_errors_restore(const weft_i_errors *saved)
{
    if (error_record.noted && !saved->noted)
        weft_i_loss_forget(concern.thread);
    error_record = *saved;
}

char *weft_i_error_copy(void)
{
    size_t bytes = strlen(error_record.last_text) + 1;
    char *copy = WEFT_OS->alloc(bytes);
    return copy ? memcpy(copy, error_record.last_text, bytes) : NULL;
}

weft_status weft_i_first_error(const char **message)
{
    *message = error_record.first_text;
    return error_record.first;
}

/* A group that is lost concerns everybody; a refused argument only its caller, who has the code in
 * hand. */
static weft_log_level level_of(weft_status status)
{
    return weft_status_scope(status) >= WEFT_SCOPE_GROUP ? WEFT_LOG_WARN : WEFT_LOG_INFO;
}

static void keep_first(void)
{
    if (error_record.first != WEFT_OK)
        return;
    error_record.first = error_record.last;
    memcpy(error_record.first_text, error_record.last_text, MESSAGE_BYTES);
}

static void put_message(weft_status status, const char *suffix, const char *format, va_list args)
{
    int n = vsnprintf(error_record.last_text, MESSAGE_BYTES, format, args);
    if (suffix && n >= 0 && n < MESSAGE_BYTES)
        snprintf(error_record.last_text + n, MESSAGE_BYTES - (size_t)n, ": %s", suffix);
    error_record.last = status;
}

static bool is_power_of_ten(uint64_t count)
{
    while (count >= 10 && count % 10 == 0)
        count /= 10;
    return count == 1;
}

/* A lost group is told once; of what follows from it every tenfold. */
static void tell_loss(weft_status status, uint64_t book)
{
    uint64_t count = weft_i_loss_count(book, concern.group, status);
    if (!concern.serves)
        error_record.noted |=
            weft_i_loss_note(book, concern.thread, status, error_record.last_text);
    if (count == 1 || weft_i_log_wants(WEFT_LOG_TRACE))
        weft_i_log(level_of(status), "%s (%s)", error_record.last_text, weft_status_name(status));
    else if (is_power_of_ten(count))
        weft_i_log(level_of(status), "%s (%s); so far %llu errors of this kind in this group",
                   error_record.last_text, weft_status_name(status), (unsigned long long)count);
}

static void decide(weft_status status, const char *suffix, const char *format, va_list args)
{
    uint64_t book = concern.book;
    concern.book = 0;
    put_message(status, suffix, format, args);
    keep_first();
    if (book && weft_status_scope(status) >= WEFT_SCOPE_GROUP)
        tell_loss(status, book);
    else
        weft_i_log(level_of(status), "%s (%s)", error_record.last_text, weft_status_name(status));
}

weft_status weft_i_miss(weft_status status, const char *format, ...)
{
    va_list args;
    concern.book = 0;
    va_start(args, format);
    put_message(status, NULL, format, args);
    va_end(args);
    weft_i_log(WEFT_LOG_TRACE, "%s (%s)", error_record.last_text, weft_status_name(status));
    return status;
}

weft_status weft_i_fail(weft_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    decide(status, NULL, format, args);
    va_end(args);
    return status;
}

weft_status weft_i_fail_at(weft_log_level level, weft_status status, const char *format, ...)
{
    va_list args;
    concern.book = 0;
    va_start(args, format);
    put_message(status, NULL, format, args);
    va_end(args);
    keep_first();
    weft_i_log(level, "%s (%s)", error_record.last_text, weft_status_name(status));
    return status;
}

weft_status weft_i_missing(const char *format, ...)
{
    if (error_record.last >= 0) {
        va_list args;
        va_start(args, format);
        decide(WEFT_ERR_INVALID_ARG, NULL, format, args);
        va_end(args);
    }
    return error_record.last;
}

void *weft_i_null(weft_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    decide(status, NULL, format, args);
    va_end(args);
    return NULL;
}

static weft_status status_of_errno(int error)
{
    switch (error) {
    case ENOMEM:
        return WEFT_ERR_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return WEFT_ERR_NO_SPACE;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case ENOBUFS:
        return WEFT_ERR_LIMIT;
    case EADDRINUSE:
        return WEFT_ERR_ADDR_IN_USE;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EPIPE:
    case ETIMEDOUT:
        return WEFT_ERR_UNREACHABLE;
    case EINVAL:
        return WEFT_ERR_INVALID_ARG;
    default:
        return WEFT_ERR_IO;
    }
}

weft_status weft_i_fail_errno(int error, const char *format, ...)
{
    char reason[128];
    /* The GNU strerror_r may return a static text instead of filling the buffer. */
    const char *text = strerror_r(error, reason, sizeof reason);
    va_list args;
    va_start(args, format);
    decide(status_of_errno(error), text, format, args);
    va_end(args);
    return status_of_errno(error);
}

weft_status weft_i_explain(weft_status status, const char *format, ...)
{
    char old[MESSAGE_BYTES];
    bool was_first = error_record.first == status &&
                     strcmp(error_record.first_text, error_record.last_text) == 0;
    memcpy(old, error_record.last_text, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(error_record.last_text, MESSAGE_BYTES, format, args);
    va_end(args);
    if (n >= 0 && n < MESSAGE_BYTES)
        snprintf(error_record.last_text + n, MESSAGE_BYTES - (size_t)n, ": %s", old);
    if (was_first)
        memcpy(error_record.first_text, error_record.last_text, MESSAGE_BYTES);
    error_record.last = status;
    return status;
}

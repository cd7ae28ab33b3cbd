/* SPDX-License-Identifier: Apache-2.0 */
/* How the library itself reports errors: decide once, say it once, pass the code on. */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#include "base/os/place.h"
#include "base/report/log.h"
#include "base/report/loss.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Decides an error: stores the message for weft_last_error(), logs it, returns `status`.  Call it
 * exactly where the error is decided; callers pass the code on with WEFT_TRY.
 */
WEFT_I_COLD weft_status weft_i_fail(weft_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, logged at `level`: for what concerns more than the caller, although it ends no group. */
WEFT_I_COLD weft_status weft_i_fail_at(weft_log_level level, weft_status status, const char *format,
                                       ...) __attribute__((format(printf, 3, 4)));

/* As weft_i_fail, for functions that return pointers: `return weft_i_null(WEFT_ERR_TYPE, "...")`.
 */
WEFT_I_COLD void *weft_i_null(weft_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * For an argument that is NULL where an object is needed.  If the thread's last call failed, that
 * is where the NULL comes from, and its error is passed on.  Otherwise it is decided here, as
 * WEFT_ERR_INVALID_ARG.
 */
WEFT_I_COLD weft_status weft_i_missing(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Turns errno of a failed system call into a status (ENOMEM, ENOSPC, EMFILE ... have their own)
 * with a message. */
WEFT_I_COLD weft_status weft_i_fail_errno(int error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts context in front of the last message: "rendezvous of block 3: <old message>". */
WEFT_I_COLD weft_status weft_i_explain(weft_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * A try that found nothing: as weft_i_fail, but no error of the rank.  weft_finish does not report
 * it, and the log shows it only with WEFT_DEBUG=TRACE.
 */
WEFT_I_COLD weft_status weft_i_miss(weft_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The rank shown in messages of this thread, else of this process; -1 while there is none. */
void weft_i_status_set_rank(int rank);
void weft_i_status_set_process_rank(int rank);
int weft_i_status_rank(void);

/* The next error of this thread is about group `group` of a rank with this book (base/report/loss.h). */
void weft_i_status_concern(int rank, uint64_t book, uint32_t group);

/* This thread works for others, who will be told: its errors are not noted in the rank's book. */
void weft_i_status_serve(int rank);

/* The first error of this thread since it was last cleared: what weft_finish reports. */
weft_status weft_i_first_error(const char **message);

/* Is it one of weft's own? */
bool weft_i_status_known(weft_status status);

/* Does a rank that ends with this report what became of another, or of the group? */
static inline bool weft_i_status_follows(weft_status status)
{
    return status == WEFT_ERR_PEER_DEAD || status == WEFT_ERR_PEER_LEFT ||
           status == WEFT_ERR_REVOKED;
}

#define WEFT_TRY(call_)                    \
    do {                                   \
        weft_status try_status_ = (call_); \
        if (try_status_ < 0)               \
            return try_status_;            \
    } while (0)

/*
 * The thread's first and last error.  Saved and put back around calls whose failure is no error of
 * the operation they serve: a wait that is cut into slices, news that could not be told.
 */
typedef struct weft_i_errors {
    weft_status last, first;
    bool noted; /* in the book of the rank */
    char last_text[WEFT_I_MESSAGE_BYTES], first_text[WEFT_I_MESSAGE_BYTES];
} weft_i_errors;

void weft_i_errors_save(weft_i_errors *out);
void weft_i_errors_restore(const weft_i_errors *saved);

/* A copy of the thread's last message, for WEFT_OS->free; NULL if there is no memory for it. */
char *weft_i_error_copy(void);

#endif

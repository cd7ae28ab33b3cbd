/* SPDX-License-Identifier: Apache-2.0 */
/* One line per event to standard error or a file: WEFT_DEBUG=WARN|INFO|TRACE, WEFT_DEBUG_FILE with
 * %h %p %r. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

typedef enum weft_log_level {
    WEFT_LOG_NONE,
    WEFT_LOG_WARN,
    WEFT_LOG_INFO,
    WEFT_LOG_TRACE
} weft_log_level;

/* The level plus one; 0: not read yet.  Relaxed: a plain setting, publishes nothing else. */
extern atomic_int weft_i_log_level;
int weft_i_log_read_level(void);
/* The level that a value of WEFT_DEBUG means, by our name, another library's or a number; -1: none. */
int weft_i_log_level_of(const char *text);

/* Cheap enough for the hot path: one relaxed load. */
static inline bool weft_i_log_wants(weft_log_level level)
{
    int known = atomic_load_explicit(&weft_i_log_level, memory_order_relaxed);
    return (int)level < (known ? known : weft_i_log_read_level());
}

/* The same where even a call that is never made would cost: also true while the level is not known.
 * weft_i_log itself looks closer. */
static inline bool weft_i_log_may_want(weft_log_level level)
{
    int known = atomic_load_explicit(&weft_i_log_level, memory_order_relaxed);
    return !known || (int)level < known;
}

void weft_i_log(weft_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif

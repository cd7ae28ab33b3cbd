/* SPDX-License-Identifier: Apache-2.0 */
/* One line per event to standard error or a file: WEFT_DEBUG=WARN|INFO|TRACE, WEFT_DEBUG_FILE with
 * %h %p %r. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include <stdbool.h>

typedef enum weft_log_level {
    WEFT_LOG_NONE,
    WEFT_LOG_WARN,
    WEFT_LOG_INFO,
    WEFT_LOG_TRACE
} weft_log_level;

/* Cheap enough for the hot path: one relaxed load. */
bool weft_i_log_wants(weft_log_level level);

void weft_i_log(weft_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif

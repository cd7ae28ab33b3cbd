/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's time on a processor: what a busy machine does not stretch. */
#ifndef WEFT_BASE_OS_BUSY_H
#define WEFT_BASE_OS_BUSY_H

#include <stdint.h>

int64_t weft_i_os_busy_ns(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Work that a disk may begin with early. */
#ifndef WEFT_BASE_OS_FLUSH_H
#define WEFT_BASE_OS_FLUSH_H

#include <sys/types.h>

/* What was written there goes to the disk from now on, while the caller goes on; fsync waits for it, and
 * does it all where the kernel does not want to. */
void weft_i_os_start_flush(int fd, off_t from, off_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The control groups of this process, version 1 or 2, by the kernel's files. */
#ifndef WEFT_BASE_CONTROL_GROUP_H
#define WEFT_BASE_CONTROL_GROUP_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_I_CONTROL_GROUP_PATH = 1024 };

/*
 * Calls `look` with the folder of our group and of all above it, whose limits count as well.  In a
 * container the path may be that of the host: what is not there says nothing, and the mount itself
 * is looked at last.  `controller` is its name in version 1, "memory" or "cpu".
 */
void weft_i_control_group_each(const char *controller,
                               void (*look)(void *state, const char *folder, bool v2), void *state);

/* The first number in a file of a folder; `fallback` for "max" and for what cannot be read. */
int64_t weft_i_control_group_number(const char *folder, const char *file, int64_t fallback);

/*
 * How much processor time the groups leave us, in thousandths of a core; 0: as much as there is.
 */
int64_t weft_i_control_group_cores(void);

#endif

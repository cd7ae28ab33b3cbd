/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a file, with a status.  Apart from file.c, which the log needs and status stands on. */
#include "base/report/file_open.h"
#include "base/os/file.h"
#include "base/report/status.h"

#include <errno.h>

weft_status weft_i_file_open(const char *path, bool append, mode_t mode, int *out)
{
    char why[1200];
    int fd = weft_i_file_try(path, append, mode, why, sizeof why);
    if (fd < 0)
        return weft_i_fail_errno(errno, "%s", why);
    *out = fd;
    return WEFT_OK;
}

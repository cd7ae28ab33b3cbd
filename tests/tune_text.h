/* SPDX-License-Identifier: Apache-2.0 */
/* A file of decisions by size (weft/tune.h) out of a text. */
#ifndef TUNE_TEXT_H
#define TUNE_TEXT_H

#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/tune.h>

static weft_status tune_load_text(const char *text)
{
    char path[] = "/tmp/weft-tune-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    weft_status status = weft_tune_load(path);
    unlink(path);
    return status;
}

#endif

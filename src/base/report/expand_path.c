/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files that tell ranks apart; see expand_path.h. */
#include "base/report/expand_path.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static bool append(char **at, const char *end, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(end - *at) <= length)
        return false;
    memcpy(*at, text, length + 1);
    *at += length;
    return true;
}

bool weft_i_os_expand_path(const char *pattern, int rank, int process, char *out, size_t bytes)
{
    struct utsname host;
    if (uname(&host))
        host.nodename[0] = 0;
    char *at = out;
    const char *end = out + bytes;
    if (bytes)
        *out = 0;
    for (const char *p = pattern; *p; p++) {
        char piece[72] = {*p, 0};
        if (*p == '%' && p[1]) {
            p++;
            if (*p == 'h')
                snprintf(piece, sizeof piece, "%.64s", host.nodename);
            else if (*p == 'p')
                snprintf(piece, sizeof piece, "%d", process ? process : getpid());
            else if (*p == 'r')
                snprintf(piece, sizeof piece, "%d", rank);
            else if (*p != '%')
                snprintf(piece, sizeof piece, "%%%c", *p);
        }
        if (!append(&at, end, piece))
            return false;
    }
    return true;
}

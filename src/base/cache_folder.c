/* SPDX-License-Identifier: Apache-2.0 */
/* The cache folder; see cache_folder.h. */
#include "base/cache_folder.h"

#include "base/env.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 1200 };

static bool make_folder(const char *path)
{
    char part[PATH];
    for (const char *at = path + 1;; at++) {
        if (*at && *at != '/')
            continue;
        snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
        if (WEFT_OS->mkdir(part, 0700) && errno != EEXIST && !*at)
            return false;
        if (!*at)
            return true;
    }
}

static bool check_folder(const char *path, char *why, size_t bytes)
{
    struct stat about;
    int fd = WEFT_OS->open(path, O_PATH | O_NOFOLLOW | O_DIRECTORY, 0);
    bool seen = fd >= 0 && !WEFT_OS->fstat(fd, &about);
    int error = errno;
    if (fd >= 0)
        WEFT_OS->close(fd);
    if (!seen)
        snprintf(why, bytes, "cache folder %s: %s", path,
                 error == ENOTDIR || error == ELOOP ? "is a link or no folder" : strerror(error));
    else if ((int)about.st_uid != weft_i_os_user() || about.st_mode & 077)
        snprintf(why, bytes,
                 "cache folder %s: must be the user's own with mode 0700, is of user %u with %04o",
                 path, (unsigned)about.st_uid, (unsigned)about.st_mode & 07777);
    return seen && (int)about.st_uid == weft_i_os_user() && !(about.st_mode & 077);
}

bool weft_i_cache_folder(char *out, size_t bytes, char *why, size_t why_bytes)
{
    const char *own = weft_i_env_text(WEFT_I_ENV_CACHE_DIR), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int length = own[0]                     ? snprintf(out, bytes, "%s", own)
                 : cache && cache[0] == '/' ? snprintf(out, bytes, "%s/weft", cache)
                 : home && home[0] == '/'   ? snprintf(out, bytes, "%s/.cache/weft", home)
                                            : -1;
    if (length < 0 || (size_t)length >= bytes || out[0] != '/') {
        snprintf(why, why_bytes,
                 length < 0 ? "no HOME for a cache folder"
                            : "the cache folder's path is too long or not absolute");
        return false;
    }
    if (!make_folder(out)) {
        snprintf(why, why_bytes, "cache folder %s: %s", out, strerror(errno));
        return false;
    }
    return check_folder(out, why, why_bytes);
}

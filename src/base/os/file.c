/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files for the user; see file.h. */
#include "base/os/file.h"

#include "base/os/assert.h"
#include "base/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static const char *kind_of(mode_t mode)
{
    return S_ISFIFO(mode)   ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISDIR(mode)  ? "a folder"
                            : "a device";
}

/* A regular file, or the one device that takes everything and never waits. */
static bool is_fit(const struct stat *status)
{
    return S_ISREG(status->st_mode) ||
           (S_ISCHR(status->st_mode) && status->st_rdev == makedev(1, 3));
}

/* Says what is wrong, if it is more than that it cannot be opened, and closes; -1 and errno. */
static int refuse(int fd, int error, char *why, size_t bytes, const char *path, const char *wrong)
{
    if (wrong)
        snprintf(why, bytes, "%s: %s", path, wrong);
    else
        snprintf(why, bytes, "opening %s", path);
    if (fd >= 0)
        WEFT_OS->close(fd);
    errno = error;
    return -1;
}

int weft_i_file_try(const char *path, bool append, mode_t mode, char *why, size_t bytes)
{
    struct stat status;
    int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | (append ? O_APPEND : 0);
    int fd = WEFT_OS->open(path, flags, mode);
    if (fd < 0)
        return refuse(fd, errno, why, bytes, path,
                      errno == ELOOP   ? "symbolic links are not followed"
                      : errno == ENXIO ? "it is a FIFO or a socket, not a regular file"
                                       : NULL);
    if (WEFT_OS->fstat(fd, &status))
        return refuse(fd, errno, why, bytes, path, "looking at it");
    if (!is_fit(&status)) {
        char wrong[64];
        snprintf(wrong, sizeof wrong, "it is %s, not a regular file", kind_of(status.st_mode));
        return refuse(fd, EINVAL, why, bytes, path, wrong);
    }
    /* Emptied only now that it is known to be a file. */
    if (!append && S_ISREG(status.st_mode) && status.st_size && WEFT_OS->ftruncate(fd, 0))
        return refuse(fd, errno, why, bytes, path, "emptying it");
    return fd;
}

/* Reads to the end, or until the text is full; closes. */
static size_t read_text(int fd, char *text, size_t bytes)
{
    WEFT_ASSERT(bytes > 0);
    size_t length = 0;
    while (fd >= 0 && length < bytes - 1) {
        ssize_t n = WEFT_OS->read(fd, text + length, bytes - 1 - length);
        if (n <= 0)
            break;
        length += (size_t)n;
    }
    if (fd >= 0)
        WEFT_OS->close(fd);
    text[length] = 0;
    return length;
}

bool weft_i_file_read(const char *path, char *text, size_t bytes)
{
    return read_text(WEFT_OS->open(path, O_RDONLY | O_NONBLOCK, 0), text, bytes) > 0;
}

size_t weft_i_file_read_own(const char *path, char *text, size_t bytes)
{
    struct stat about;
    int fd = WEFT_OS->open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    bool own = fd >= 0 && !WEFT_OS->fstat(fd, &about) && S_ISREG(about.st_mode) &&
               (int)about.st_uid == weft_i_os_user() && !(about.st_mode & 022) &&
               about.st_size < (off_t)bytes;
    return read_text(fd, text, own ? bytes : 1);
}

bool weft_i_file_write_all(int fd, const char *bytes, size_t count)
{
    while (count) {
        ssize_t done = WEFT_OS->write(fd, bytes, count);
        if (done <= 0)
            return false;
        bytes += done;
        count -= (size_t)done;
    }
    return true;
}

bool weft_i_file_make_own(const char *path, const char *bytes, size_t count)
{
    WEFT_OS->unlink(path); /* what a killed rank left, or a link */
    int fd = WEFT_OS->open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    bool written = fd >= 0 && weft_i_file_write_all(fd, bytes, count);
    if (fd >= 0 && WEFT_OS->close(fd))
        written = false;
    return written;
}

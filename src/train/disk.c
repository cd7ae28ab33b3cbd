/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are whole before they have their names; see disk.h. */
#include "train/disk.h"

#include "base/os/os.h"
#include "base/os/os_flush.h"
#include "base/report/os_look.h"
#include "base/report/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MODE = 0644, FOLDER_MODE = 0755 }; /* less what the user's umask takes */

weft_status weft_i_disk_path(char out[WEFT_I_DISK_PATH], const char *folder, const char *name)
{
    int n = snprintf(out, WEFT_I_DISK_PATH, "%s/%s", folder, name);
    return n > 0 && n < WEFT_I_DISK_PATH
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_LIMIT, "the path %.100s... has more than %d characters",
                             folder, WEFT_I_DISK_PATH - 1);
}

weft_status weft_i_disk_create(const char *path, int *fd)
{
    WEFT_OS->unlink(path);
    *fd = WEFT_OS->open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, FILE_MODE);
    return *fd < 0 ? weft_i_fail_errno(errno, "making %s", path) : WEFT_OK;
}

weft_status weft_i_disk_write(int fd, const char *path, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count) {
        ssize_t n = WEFT_OS->write(fd, at, count);
        if (n < 0)
            return weft_i_fail_errno(errno, "writing %s", path);
        if (!n)
            return weft_i_fail(WEFT_ERR_IO, "writing %s: nothing more was taken", path);
        at += n;
        count -= (size_t)n;
    }
    return WEFT_OK;
}

weft_status weft_i_disk_write_at(int fd, const char *path, const void *bytes, size_t count,
                                 off_t offset)
{
    const char *at = bytes;
    while (count) {
        ssize_t n = WEFT_OS->pwrite(fd, at, count, offset);
        if (n <= 0)
            return n < 0 ? weft_i_fail_errno(errno, "writing %s", path)
                         : weft_i_fail(WEFT_ERR_IO, "writing %s: nothing more was taken", path);
        at += n;
        offset += n;
        count -= (size_t)n;
    }
    return WEFT_OK;
}

void weft_i_disk_start(int fd, off_t from, size_t count)
{
    weft_i_os_start_flush(fd, from, (off_t)count);
}

weft_status weft_i_disk_close(int fd, const char *path, weft_status status)
{
    if (fd < 0)
        return status;
    if (status >= 0 && WEFT_OS->fsync(fd))
        status = weft_i_fail_errno(errno, "flushing %s", path);
    if (WEFT_OS->close(fd) && status >= 0)
        status = weft_i_fail_errno(errno, "closing %s", path);
    return status;
}

weft_status weft_i_disk_flush_names(const char *folder)
{
    int fd = WEFT_OS->open(folder, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return weft_i_fail_errno(errno, "opening the folder %s", folder);
    weft_status status = WEFT_OK;
    /* Some file systems have nothing to flush there, and say so. */
    if (WEFT_OS->fsync(fd) && errno != EINVAL && errno != ENOTSUP)
        status = weft_i_fail_errno(errno, "flushing the folder %s", folder);
    WEFT_OS->close(fd);
    return status;
}

weft_status weft_i_disk_flush_name(const char *path)
{
    char folder[WEFT_I_DISK_PATH];
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length >= sizeof folder)
        return weft_i_fail(WEFT_ERR_LIMIT, "the path %.100s... is too long", path);
    memcpy(folder, path, length);
    folder[length] = 0;
    return weft_i_disk_flush_names(!slash ? "." : length ? folder : "/");
}

weft_status weft_i_disk_check_place(const char *path)
{
    struct stat about;
    int fd = WEFT_OS->open(path, O_PATH | O_NOFOLLOW, 0);
    if (fd < 0)
        return WEFT_OK; /* nothing is there, or making the file will say what is wrong */
    bool file = !WEFT_OS->fstat(fd, &about) && (S_ISREG(about.st_mode) || S_ISLNK(about.st_mode));
    WEFT_OS->close(fd);
    return file ? WEFT_OK
                : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s is there, and is no regular file", path);
}

weft_status weft_i_disk_rename(const char *from, const char *to)
{
    if (WEFT_OS->rename(from, to))
        return weft_i_fail_errno(errno, "renaming %s to %s", from, to);
    return weft_i_disk_flush_name(to);
}

weft_status weft_i_disk_make_folder(const char *path)
{
    struct stat about;
    if (!WEFT_OS->mkdir(path, FOLDER_MODE))
        return WEFT_OK;
    int error = errno, fd = error == EEXIST ? WEFT_OS->open(path, O_RDONLY | O_DIRECTORY, 0) : -1;
    bool there = fd >= 0 && !WEFT_OS->fstat(fd, &about);
    if (fd >= 0)
        WEFT_OS->close(fd);
    return there ? WEFT_OK : weft_i_fail_errno(error, "making the folder %s", path);
}

static bool remove_file(void *folder, const char *name)
{
    char path[WEFT_I_DISK_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", (const char *)folder, name);
    if (n > 0 && n < (int)sizeof path)
        WEFT_OS->unlink(path);
    return true;
}

void weft_i_disk_remove_folder(const char *path)
{
    weft_i_os_each_name(path, remove_file, (void *)(uintptr_t)path);
    WEFT_OS->rmdir(path);
}

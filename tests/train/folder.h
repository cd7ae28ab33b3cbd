/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for the files of a test, and what is done to them. */
#ifndef WEFT_TESTS_FOLDER_H
#define WEFT_TESTS_FOLDER_H

#include "harness.h"

#include <weft/weft.h>

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

typedef char path_text[512];

__attribute__((unused)) static int remove_entry(const char *path, const struct stat *about,
                                                int kind, struct FTW *at)
{
    (void)about, (void)kind, (void)at;
    return remove(path);
}

__attribute__((unused)) static void remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

__attribute__((unused)) static void make_tree(path_text out)
{
    const char *where = getenv("TMPDIR");
    snprintf(out, sizeof(path_text), "%s/weft-train-XXXXXX", where && *where ? where : "/tmp");
    CHECK(mkdtemp(out));
}

/* One for all ranks: that of the first. */
__attribute__((unused)) static void make_common_tree(path_text out, weft_group *group)
{
    memset(out, 0, sizeof(path_text));
    if (weft_rank(group) == 0)
        make_tree(out);
    weft_bytes sent = {out, sizeof(path_text)};
    bool first = weft_rank(group) == 0;
    weft_blobs *blobs = weft_broadcast_object(first ? &sent : NULL, first, 0, group);
    if (!blobs)
        FAIL("%s", weft_last_error());
    memcpy(out, weft_blobs_get(blobs, 0).data, sizeof(path_text));
}

__attribute__((unused)) static void join_path(path_text out, const char *folder, const char *name)
{
    CHECK(snprintf(out, sizeof(path_text), "%s/%s", folder, name) < (int)sizeof(path_text));
}

__attribute__((unused)) static void write_bytes(const char *path, const void *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, bytes, count) == (ssize_t)count && !close(fd));
}

__attribute__((unused)) static size_t read_bytes(const char *path, void *bytes, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, bytes, room);
    CHECK(n >= 0 && !close(fd));
    return (size_t)n;
}

/* Changes a bit of a file. */
__attribute__((unused)) static void flip_bit(const char *path, off_t at)
{
    unsigned char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, at) == 1 && !close(fd));
}

__attribute__((unused)) static off_t size_of_file(const char *path)
{
    struct stat about;
    return stat(path, &about) ? -1 : about.st_size;
}

__attribute__((unused)) static bool is_there(const char *folder, const char *name)
{
    path_text path;
    join_path(path, folder, name);
    return access(path, F_OK) == 0;
}

#endif

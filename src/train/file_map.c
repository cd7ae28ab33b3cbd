/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are mapped; see file_map.h. */
#include "train/file_map.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "train/sum.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

enum { PIECE = 1 << 20 };

static void destroy(weft_i_object *object)
{
    weft_i_file_map *map = (weft_i_file_map *)object;
    if (map->bytes)
        WEFT_OS->munmap((void *)(uintptr_t)map->bytes, map->count);
    weft_i_object_free(object);
}

/* A regular file; a FIFO makes nobody wait. */
static weft_status open_file(const char *path, int *fd, size_t *bytes)
{
    struct stat about;
    *fd = WEFT_OS->open(path, O_RDONLY | O_NONBLOCK, 0);
    if (*fd < 0)
        return errno == ENOENT ? weft_i_fail(WEFT_ERR_NOT_FOUND, "there is no file %s", path)
                               : weft_i_fail_errno(errno, "opening %s", path);
    if (WEFT_OS->fstat(*fd, &about))
        return weft_i_fail_errno(errno, "looking at %s", path);
    if (!S_ISREG(about.st_mode))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s is no regular file", path);
    *bytes = (size_t)about.st_size;
    return WEFT_OK;
}

static weft_status map_file(weft_i_file_map *map)
{
    int fd = -1;
    size_t bytes = 0;
    weft_status status = open_file(map->path, &fd, &bytes);
    void *at = NULL;
    if (status >= 0 && bytes) {
        at = WEFT_OS->mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            status = weft_i_fail_errno(errno, "mapping %s", map->path);
    }
    if (fd >= 0)
        WEFT_OS->close(fd);
    WEFT_TRY(status);
    map->bytes = at;
    map->count = bytes;
    return WEFT_OK;
}

weft_i_file_map *weft_i_file_map_open(const char *path)
{
    size_t length = strlen(path) + 1;
    weft_i_file_map *map =
        weft_i_object_new_unscoped(WEFT_I_FILE_MAP, sizeof *map + length, destroy);
    if (!map)
        return NULL;
    memcpy(map->path, path, length);
    if (map_file(map) >= 0)
        return map;
    weft_i_object_drop(map);
    return NULL;
}

static weft_status sum_file(int fd, const weft_i_file_map *map, size_t from, size_t count,
                            char *piece, weft_i_sum *sum)
{
    while (count) {
        size_t want = count < PIECE ? count : PIECE;
        ssize_t n = WEFT_OS->pread(fd, piece, want, (off_t)from);
        if (n < 0)
            return weft_i_fail_errno(errno, "reading %s", map->path);
        if (!n)
            return weft_i_fail(WEFT_ERR_IO, "%s became shorter while it was read", map->path);
        weft_i_sum_add(sum, piece, (size_t)n);
        from += (size_t)n;
        count -= (size_t)n;
    }
    return WEFT_OK;
}

weft_status weft_i_file_map_sum(const weft_i_file_map *map, size_t from, size_t count,
                                uint64_t *out)
{
    weft_i_sum sum;
    size_t bytes = 0;
    int fd = -1;
    weft_i_sum_begin(&sum);
    char *piece = WEFT_OS->alloc(PIECE);
    if (!piece)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to read %s", map->path);
    weft_status status = open_file(map->path, &fd, &bytes);
    if (status >= 0 && (from > bytes || count > bytes - from))
        status = weft_i_fail(WEFT_ERR_IO, "%s became shorter while it was read", map->path);
    if (status >= 0)
        status = sum_file(fd, map, from, count, piece, &sum);
    if (fd >= 0)
        WEFT_OS->close(fd);
    WEFT_OS->free(piece);
    *out = weft_i_sum_end(&sum);
    return status;
}

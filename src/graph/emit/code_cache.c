/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of compiled graphs; see code_cache.h.  A file is the code and behind it, where the
 * loader does not look, a mark and the digest of all before.  It gets its name by a rename when it
 * is complete, so there is never half of one.  A rank that compiles holds a lock, which goes with its
 * process; what it leaves behind has a name that the next one overwrites.
 */
#include "graph/emit/code_cache.h"

#include "base/machine/cache_folder.h"
#include "base/os/file.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "tensor/object/device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

enum {
    PATH = WEFT_I_CACHE_PATH + WEFT_I_CACHE_FILE,
    WAY = WEFT_I_CACHE_FILE,
    MARK = 8,
    TRAILER = MARK + WEFT_I_DIGEST_BYTES
};
static const char mark[MARK + 1] = "weft so\n";

/* Files are reached by the descriptor of their folder: another in its place changes nothing. */
typedef struct entry {
    weft_i_cache_folder folder;
    char name[PATH]; /* of the object, for people and the digest */
    char object[WAY], part[WAY], text[WAY], lock[WAY];
    const weft_i_code_maker *maker;
    char *why;
    size_t bytes;
} entry;

static bool fail(const entry *e, const char *what, const char *way)
{
    snprintf(e->why, e->bytes, "%s %s%s: %s", what, e->folder.path, strrchr(way, '/'),
             strerror(errno));
    return false;
}

/* ---- files ---- */

static bool add_file(weft_i_digest *digest, int fd, int64_t count)
{
    char block[16384];
    int64_t at = 0;
    while (at < count) {
        size_t want = count - at < (int64_t)sizeof block ? (size_t)(count - at) : sizeof block;
        ssize_t got = WEFT_OS->pread(fd, block, want, (off_t)at);
        if (got <= 0)
            return false;
        weft_i_digest_add(digest, block, (size_t)got);
        at += got;
    }
    return true;
}

/* The digest of the first `count` bytes of the file, and of its name. */
static bool digest_of(const entry *e, int fd, int64_t count, uint8_t out[WEFT_I_DIGEST_BYTES])
{
    weft_i_digest digest;
    weft_i_digest_begin(&digest);
    weft_i_digest_add(&digest, e->name, strlen(e->name));
    bool read = add_file(&digest, fd, count);
    weft_i_digest_end(&digest, out);
    return read;
}

/* The bytes of code in the open file, if it is one that was written here, whole; else -1. */
static int64_t whole_bytes(const entry *e, int fd)
{
    struct stat about;
    char trailer[TRAILER];
    uint8_t digest[WEFT_I_DIGEST_BYTES];
    if (WEFT_OS->fstat(fd, &about) || !S_ISREG(about.st_mode) ||
        (int)about.st_uid != weft_i_os_user() || about.st_mode & 022 || about.st_size < TRAILER)
        return -1;
    int64_t count = about.st_size - TRAILER;
    bool whole = WEFT_OS->pread(fd, trailer, TRAILER, (off_t)count) == TRAILER &&
                 !memcmp(trailer, mark, MARK) && digest_of(e, fd, count, digest) &&
                 !memcmp(trailer + MARK, digest, sizeof digest);
    return whole ? count : -1;
}

/* Into the device; a module that it does not take is compiled anew. */
static void *load_module(const entry *e, int fd, int64_t count)
{
    weft_device device = e->maker->device;
    weft_i_errors before;
    void *module = NULL;
    char *image = WEFT_OS->alloc((size_t)count + 1);
    int64_t at = 0;
    for (ssize_t got = 1; image && at < count && got > 0; at += got > 0 ? got : 0)
        got = WEFT_OS->pread(fd, image + at, (size_t)(count - at), (off_t)at);
    weft_i_errors_save(&before);
    if (image && at == count && weft_i_device_find(device)->code->load(device, image, &module) < 0)
        snprintf(e->why, e->bytes, "%s", weft_last_error());
    weft_i_errors_restore(&before);
    WEFT_OS->free(image);
    return module;
}

/* A shared object by its name in the folder that was opened, where nobody but the user can give it to another file.  Not
 * by its own descriptor: the loader takes two files for one library if the numbers of their descriptors are the same. */
static void *load(const entry *e)
{
    int fd = WEFT_OS->open(e->object, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return NULL;
    int64_t count = whole_bytes(e, fd);
    void *library = count < 0            ? NULL
                    : e->maker->compiler ? WEFT_OS->dlopen(e->object)
                                         : load_module(e, fd, count);
    WEFT_OS->close(fd);
    return library;
}

static bool write_text(const entry *e, const char *path, const char *bytes, size_t count)
{
    return weft_i_file_make_own(path, bytes, count) ? true : fail(e, "cannot write", path);
}

static bool seal_object(const entry *e)
{
    struct stat about;
    char trailer[TRAILER];
    int fd = WEFT_OS->open(e->part, O_RDWR | O_NOFOLLOW, 0);
    bool sealed = fd >= 0 && !WEFT_OS->fstat(fd, &about) &&
                  digest_of(e, fd, about.st_size, (uint8_t *)trailer + MARK);
    memcpy(trailer, mark, MARK);
    sealed = sealed && WEFT_OS->lseek(fd, 0, SEEK_END) >= 0 &&
             weft_i_file_write_all(fd, trailer, TRAILER);
    if (fd >= 0 && WEFT_OS->close(fd))
        sealed = false;
    return sealed ? true : fail(e, "cannot write", e->part);
}

static bool build_object(const entry *e, const char *source, int64_t deadline)
{
    char words[400];
    bool built = write_text(e, e->text, source, strlen(source));
    if (built && !weft_i_compiler_run(e->maker->compiler, e->folder.fd, e->text, e->part, deadline,
                                      words, sizeof words)) {
        snprintf(e->why, e->bytes, "%s: %s", e->maker->compiler->path, words);
        built = false;
    }
    WEFT_OS->unlink(e->text);
    return built;
}

static bool build_module(const entry *e, const char *source, int64_t deadline)
{
    weft_i_errors before;
    void *image = NULL;
    size_t bytes = 0;
    weft_device device = e->maker->device;
    weft_i_errors_save(&before);
    bool built =
        weft_i_device_find(device)->code->compile(device, source, deadline, &image, &bytes) >= 0;
    if (!built)
        snprintf(e->why, e->bytes, "%s", weft_last_error());
    weft_i_errors_restore(&before);
    built = built && write_text(e, e->part, image, bytes);
    WEFT_OS->free(image);
    return built;
}

static bool build(const entry *e, const char *source, int64_t deadline)
{
    WEFT_OS->unlink(e->part);
    bool built =
        e->maker->compiler ? build_object(e, source, deadline) : build_module(e, source, deadline);
    built = built && seal_object(e);
    if (built && WEFT_OS->rename(e->part, e->object))
        built = fail(e, "cannot rename to", e->object);
    if (!built)
        WEFT_OS->unlink(e->part);
    return built;
}

/* ---- one at a time ---- */

/* The lock of this entry; -1 if nobody gives it up in time, or there can be none. */
static int take_lock(const entry *e, int64_t deadline)
{
    int fd = WEFT_OS->open(e->lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
    while (fd >= 0 && WEFT_OS->flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK || weft_i_os_ms_until(deadline) == 0) {
            WEFT_OS->close(fd);
            return -1;
        }
        WEFT_OS->sleep_ns(2000000);
    }
    return fd;
}

/* The way to a file of this entry. */
static void name_file(const entry *e, const char *key, const char *own, const char *suffix,
                      char out[WAY])
{
    char name[WAY - 64];
    snprintf(name, sizeof name, "%s%s%s", key, own, suffix);
    weft_i_cache_folder_way(&e->folder, name, out);
}

/* Names of what is being made: with the lock one for all, so that nothing piles up. */
static void name_parts(entry *e, bool locked, const char *key)
{
    char own[32] = "";
    if (!locked)
        snprintf(own, sizeof own, ".%d.%d", weft_i_os_process(), weft_i_os_thread());
    name_file(e, key, own, ".part", e->part);
    name_file(e, key, own, ".c", e->text);
}

static void key_of(const weft_i_code_maker *maker, const char *source, char out[WEFT_I_DIGEST_TEXT])
{
    weft_i_digest digest;
    uint8_t bytes[WEFT_I_DIGEST_BYTES];
    weft_i_digest_begin(&digest);
    weft_i_digest_add(&digest, maker->identity, strlen(maker->identity) + 1);
    weft_i_digest_add(&digest, source, strlen(source));
    weft_i_digest_end(&digest, bytes);
    weft_i_digest_text(bytes, out);
}

static weft_i_code_cache_end find_or_build(entry *e, const char *key, const char *source,
                                           void **library)
{
    int64_t limit = weft_i_env_number_or_default(WEFT_I_ENV_CC_TIMEOUT);
    if ((*library = load(e)))
        return WEFT_I_CODE_CACHE_FOUND;
    int lock = take_lock(e, weft_i_os_deadline(limit));
    if (lock >= 0 && (*library = load(e))) { /* somebody else was faster */
        WEFT_OS->close(lock);
        return WEFT_I_CODE_CACHE_FOUND;
    }
    name_parts(e, lock >= 0, key);
    if (build(e, source, weft_i_os_deadline(limit)) && !(*library = load(e)))
        snprintf(e->why + strlen(e->why), e->bytes - strlen(e->why),
                 "%s%s was compiled but cannot be loaded", e->why[0] ? "; " : "", e->name);
    if (lock >= 0) {
        WEFT_OS->unlink(e->lock); /* who waits for it, finds the object, or compiles too */
        WEFT_OS->close(lock);
    }
    return *library ? WEFT_I_CODE_CACHE_BUILT : WEFT_I_CODE_CACHE_FAILED;
}

weft_i_code_cache_end weft_i_code_cache_open(const weft_i_code_maker *maker, const char *source,
                                             void **library, char *why, size_t bytes)
{
    entry e = {.maker = maker, .why = why, .bytes = bytes};
    char key[WEFT_I_DIGEST_TEXT], name[WAY - 64];
    *library = NULL;
    why[0] = 0;
    if (!weft_i_cache_folder_open(&e.folder, why, bytes)) {
        weft_i_log(WEFT_LOG_INFO, "what is compiled is not kept: %s", why);
        if (!weft_i_cache_folder_lend(&e.folder, why, bytes))
            return WEFT_I_CODE_CACHE_FAILED;
    }
    why[0] = 0;
    key_of(maker, source, key);
    snprintf(name, sizeof name, "%s%s", key, maker->suffix);
    weft_i_cache_folder_name(&e.folder, name, e.name, sizeof e.name);
    name_file(&e, key, "", maker->suffix, e.object);
    name_file(&e, key, "", ".lock", e.lock);
    weft_i_code_cache_end end = find_or_build(&e, key, source, library);
    if (e.folder.lent)
        WEFT_OS->unlink(e.object);
    weft_i_cache_folder_close(&e.folder);
    return end;
}

/* ---- makers ---- */

void weft_i_code_maker_c(const weft_i_compiler *compiler, weft_i_code_maker *out)
{
    *out = (weft_i_code_maker){.suffix = ".so", .compiler = compiler, .device = WEFT_CPU};
    snprintf(out->title, sizeof out->title, "%s", compiler->path);
    snprintf(out->identity, sizeof out->identity, "%s", compiler->identity);
}

bool weft_i_code_maker_of(weft_device device, weft_i_code_maker *out, char *why, size_t bytes)
{
    weft_i_errors before;
    *out = (weft_i_code_maker){.suffix = ".cubin", .device = device};
    weft_i_errors_save(&before);
    const weft_i_code *code = weft_i_device_find(device)->code;
    bool there = code->identity(device, out->identity, sizeof out->identity) >= 0;
    if (!there)
        snprintf(why, bytes, "%s", weft_last_error());
    weft_i_errors_restore(&before);
    snprintf(out->title, sizeof out->title, "%.1000s", out->identity);
    return there;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store in a file: a log of the requests that changed something.  Every process replays the log
 * into a map of its own, so a value is what the log says, whichever process asks: deletions, queues and
 * counters included.
 *
 * Two bytes of the file are locked, never written for it.  OPERATE: shared to read, exclusive to
 * append.  ALIVE: shared for as long as a store is open, so that a process that finds it free knows
 * that nobody is there.  These are locks of the open file (they go with kill -9); flock() has only
 * one per file.  A record that a killed writer left half written fails its check and is cut off by
 * the next writer.  Waiting is polling: the file may be on another host.
 */
#include "store/map.h"

#include "store/message.h"

#include "base/machine/nofork.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Not neighbours, so that the kernel never joins the two locks and unlocking never has to split
 * one. */
enum { OPERATE = 0, ALIVE = 2, HEAD_BYTES = 24, RECORD_BYTES = 16, LEAVE_TRIES = 64 };
enum { FILE_MAGIC = 0x4c464657, RECORD_MAGIC = 0x43525746 }; /* "WFFL", "FWRC" */
enum { FILE_VERSION = 1 };
enum { REQUEST = 1, JOIN = 2, LEAVE = 3 };

static const int64_t first_pause = 500000,
                     longest_pause = 10000000; /* ns between looks at the file */

typedef struct file_store {
    weft_store store;
    pthread_mutex_t lock; /* everything below, and the right to use the file's locks */
    int fd;
    bool counted; /* wrote JOIN */
    uint32_t workers;
    off_t replayed; /* the log up to here is in the map; 0: not even its head was read */
    uint64_t joined, left;
    weft_i_store_map map;
    char path[4096];
} file_store;

/* ---- bytes ---- */

static weft_status read_at(file_store *f, off_t at, void *out, size_t bytes, size_t *got)
{
    *got = 0;
    if (WEFT_OS->lseek(f->fd, at, SEEK_SET) != at)
        return weft_i_fail_errno(errno, "store %s: seek", f->store.name);
    while (*got < bytes) {
        ssize_t n = WEFT_OS->read(f->fd, (char *)out + *got, bytes - *got);
        if (n < 0)
            return weft_i_fail_errno(errno, "store %s: read", f->store.name);
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return WEFT_OK;
}

/* All or nothing, as far as the file system lets us: a failed write is cut off again. */
static weft_status write_at(file_store *f, off_t at, const void *bytes, size_t count)
{
    size_t done = 0;
    if (WEFT_OS->lseek(f->fd, at, SEEK_SET) != at)
        return weft_i_fail_errno(errno, "store %s: seek", f->store.name);
    while (done < count) {
        ssize_t n = WEFT_OS->write(f->fd, (const char *)bytes + done, count - done);
        if (n <= 0) {
            int error = n < 0 ? errno : ENOSPC;
            WEFT_OS->ftruncate(f->fd, at);
            return weft_i_fail_errno(error, "store %s: write of %zu bytes", f->store.name, count);
        }
        done += (size_t)n;
    }
    return WEFT_OK;
}

static uint32_t checksum(const uint8_t *bytes, size_t count)
{
    uint32_t hash = 0x811c9dc5u; /* FNV-1a: against torn writes, not against an enemy, who could
                                    recompute any */
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * 0x01000193u;
    return hash;
}

/* ---- the log ---- */

/* The map is wrong or unknown: the next operation replays the file from its start. */
static void forget_replay(file_store *f)
{
    weft_i_store_map_close(&f->map);
    f->replayed = 0;
    f->joined = f->left = 0;
}

static weft_status ensure_map(file_store *f)
{
    if (f->map.buckets)
        return WEFT_OK;
    size_t limit = (size_t)weft_i_env_number_or_default(WEFT_I_ENV_STORE_MEMORY);
    if (weft_i_store_map_open(&f->map, limit) == WEFT_OK)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "store %s: no memory", f->store.name);
}

static weft_status replay_request(file_store *f, const uint8_t *payload, size_t bytes)
{
    weft_i_store_request request;
    void *space;
    weft_status status = weft_i_store_request_decode(payload, bytes, &request, &space);
    if (status == WEFT_ERR_NO_MEMORY)
        return weft_i_fail(status, "store %s: no memory to read the file", f->store.name);
    if (status < 0)
        return weft_i_fail(WEFT_ERR_IO, "store %s: a malformed record at byte %lld", f->store.name,
                           (long long)f->replayed);
    weft_i_store_answer answer;
    weft_i_store_outcome outcome;
    weft_i_store_map_apply(&f->map, &request, NULL, &answer, &outcome);
    weft_i_store_map_drop(outcome.taken);
    status = answer.status;
    weft_i_store_answer_clear(&answer);
    WEFT_OS->free(space);
    if (status <
        0) /* it succeeded when it was written: only memory and its limit can differ here */
        return weft_i_fail(status, "store %s: %s while reading the file", f->store.name,
                           weft_strerror(status));
    return WEFT_OK;
}

/* Reads the record at `replayed` from `bytes`: 1 and its size, 0 if it is not whole, or an error.
 */
static int replay_record(file_store *f, const uint8_t *bytes, size_t count, size_t *size)
{
    weft_i_wire_reader from = weft_i_wire_read(bytes, count);
    uint32_t magic = weft_i_wire_get_u32(&from), kind = weft_i_wire_get_u32(&from);
    uint32_t payload = weft_i_wire_get_u32(&from), check = weft_i_wire_get_u32(&from);
    if (from.bad || magic != RECORD_MAGIC || payload > WEFT_I_STORE_MESSAGE_BYTES ||
        payload > weft_i_wire_left(&from) || checksum(bytes + RECORD_BYTES, payload) != check)
        return 0;
    *size = RECORD_BYTES + payload;
    if (kind == REQUEST)
        WEFT_TRY(replay_request(f, bytes + RECORD_BYTES, payload));
    else if (kind == JOIN)
        f->joined++;
    else if (kind == LEAVE)
        f->left++;
    else
        return weft_i_fail(WEFT_ERR_VERSION,
                           "store %s: a record of kind %u, written by another weft", f->store.name,
                           kind);
    return 1;
}

static weft_status read_head(file_store *f)
{
    uint8_t bytes[HEAD_BYTES];
    size_t got;
    WEFT_TRY(read_at(f, 0, bytes, sizeof bytes, &got));
    weft_i_wire_reader from = weft_i_wire_read(bytes, got);
    uint16_t version = weft_i_wire_get_head(&from, FILE_MAGIC);
    weft_i_wire_get_zero(&from, 2);
    uint32_t workers = weft_i_wire_get_u32(&from);
    weft_i_wire_get_zero(&from, 12);
    if (from.bad)
        return weft_i_fail(WEFT_ERR_IO, "store %s: the file is not a weft store", f->store.name);
    if (version != FILE_VERSION)
        return weft_i_fail(WEFT_ERR_VERSION,
                           "store %s: the file has version %u, this process writes %d",
                           f->store.name, version, FILE_VERSION);
    if (workers != f->workers)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "store %s: the file was made for %u workers, not %u", f->store.name,
                           workers, f->workers);
    f->replayed = HEAD_BYTES;
    return WEFT_OK;
}

static weft_status replay_bytes(file_store *f, const uint8_t *bytes, size_t count)
{
    for (size_t at = 0, size; at < count; at += size) {
        int got = replay_record(f, bytes + at, count - at, &size);
        if (got <= 0)
            return got;
        f->replayed += (off_t)size;
    }
    return WEFT_OK;
}

/* Brings the map up to date.  A torn end is left where it is. */
static weft_status replay(file_store *f)
{
    WEFT_TRY(ensure_map(f));
    if (!f->replayed)
        WEFT_TRY(read_head(f));
    struct stat state;
    if (WEFT_OS->fstat(f->fd, &state) != 0)
        return weft_i_fail_errno(errno, "store %s: stat", f->store.name);
    if (state.st_size < f->replayed)
        return weft_i_fail(WEFT_ERR_IO,
                           "store %s: the file became shorter: another program changed it",
                           f->store.name);
    size_t count = (size_t)(state.st_size - f->replayed), got;
    if (!count)
        return WEFT_OK;
    uint8_t *bytes = WEFT_OS->alloc(count);
    if (!bytes)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "store %s: no memory to read %zu bytes",
                           f->store.name, count);
    weft_status status = read_at(f, f->replayed, bytes, count, &got);
    if (status == WEFT_OK)
        status = replay_bytes(f, bytes, got);
    WEFT_OS->free(bytes);
    if (status < 0)
        forget_replay(f);
    return status;
}

/* Appends a record behind the last whole one; what a killed writer left there goes. */
static weft_status append(file_store *f, uint32_t kind, const weft_i_store_request *request)
{
    size_t payload = request ? weft_i_store_request_bytes(request) : 0;
    if (payload == SIZE_MAX)
        return weft_i_fail(WEFT_ERR_LIMIT, "store %s: a record over 16 MiB", f->store.name);
    uint8_t *bytes = WEFT_OS->alloc(RECORD_BYTES + payload);
    if (!bytes)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "store %s: no memory for a record", f->store.name);
    if (request)
        weft_i_store_request_encode(request, bytes + RECORD_BYTES, payload);
    weft_i_wire_writer to = weft_i_wire_write(bytes, RECORD_BYTES);
    weft_i_wire_put_u32(&to, RECORD_MAGIC);
    weft_i_wire_put_u32(&to, kind);
    weft_i_wire_put_u32(&to, (uint32_t)payload);
    weft_i_wire_put_u32(&to, checksum(bytes + RECORD_BYTES, payload));
    weft_status status = WEFT_OK;
    if (WEFT_OS->ftruncate(f->fd, f->replayed) != 0)
        status = weft_i_fail_errno(errno, "store %s: truncate", f->store.name);
    if (status == WEFT_OK)
        status = write_at(f, f->replayed, bytes, RECORD_BYTES + payload);
    if (status == WEFT_OK)
        f->replayed += (off_t)(RECORD_BYTES + payload);
    WEFT_OS->free(bytes);
    return status;
}

/* ---- one attempt of a request, under both locks ---- */

static bool changes(weft_i_store_op op)
{
    return op == WEFT_I_STORE_SET || op == WEFT_I_STORE_ADD || op == WEFT_I_STORE_COMPARE_SET ||
           op == WEFT_I_STORE_APPEND || op == WEFT_I_STORE_DELETE || op == WEFT_I_STORE_MULTI_SET ||
           op == WEFT_I_STORE_PUSH || op == WEFT_I_STORE_POP;
}

static weft_status copy_out(file_store *f, weft_i_store_answer *answer)
{
    size_t total = 1;
    for (size_t i = 0; i < answer->values; i++)
        total += answer->value[i].bytes;
    char *at = answer->memory = WEFT_OS->alloc(total);
    if (!at)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "store %s: no memory for the answer", f->store.name);
    for (size_t i = 0; i < answer->values; i++) {
        memcpy(at, answer->value[i].data, answer->value[i].bytes);
        answer->value[i].data = at;
        at += answer->value[i].bytes;
    }
    return WEFT_OK;
}

/* The copy is made before the record is written: a pop that cannot be handed out never happened. */
static weft_status attempt(file_store *f, const weft_i_store_request *request,
                           weft_i_store_answer *answer)
{
    WEFT_TRY(replay(f));
    weft_i_store_outcome outcome;
    weft_i_store_map_apply(&f->map, request, NULL, answer, &outcome);
    if (answer->status < 0)
        return WEFT_OK;
    weft_status status = copy_out(f, answer);
    weft_i_store_map_drop(outcome.taken);
    if (status == WEFT_OK && outcome.changed)
        status = append(f, REQUEST, request);
    if (status < 0 && outcome.changed)
        forget_replay(f); /* the map is ahead of the file */
    return status;
}

/* Whether the lock was free; an error other than "taken" is one. */
static int try_lock(file_store *f, short kind, off_t byte)
{
    if (WEFT_OS->lock_byte(f->fd, kind, byte) == 0)
        return 1;
    if (errno == EAGAIN || errno == EACCES)
        return 0;
    return weft_i_fail_errno(errno, "store %s: lock", f->store.name);
}

static void unlock(file_store *f, off_t byte)
{
    for (int tries = 0; tries < 3 && WEFT_OS->lock_byte(f->fd, F_UNLCK, byte) != 0; tries++)
        ;
}

static bool unanswered(const weft_i_store_request *request, const weft_i_store_answer *answer)
{
    return weft_i_store_waits(request) &&
           (answer->status == WEFT_ERR_NOT_FOUND || answer->status == WEFT_ERR_EMPTY);
}

/* IN_PROGRESS: the file is locked by another, or the keys are not there yet. */
static weft_status attempt_locked(file_store *f, const weft_i_store_request *request,
                                  weft_i_store_answer *answer)
{
    pthread_mutex_lock(&f->lock);
    int locked = try_lock(f, changes(request->op) ? F_WRLCK : F_RDLCK, OPERATE);
    weft_status status = locked < 0 ? (weft_status)locked : WEFT_IN_PROGRESS;
    if (locked == 1) {
        status = attempt(f, request, answer);
        unlock(f, OPERATE);
        if (status == WEFT_OK && unanswered(request, answer)) {
            weft_i_store_answer_clear(answer);
            status = WEFT_IN_PROGRESS;
        }
    }
    pthread_mutex_unlock(&f->lock);
    if (status < 0)
        weft_i_store_answer_clear(answer);
    return status;
}

static weft_status perform(weft_store *store, const weft_i_store_request *request, int64_t deadline,
                           weft_i_store_answer *answer)
{
    for (int64_t pause = first_pause;;
         pause = pause * 2 < longest_pause ? pause * 2 : longest_pause) {
        weft_status status = attempt_locked((file_store *)store, request, answer);
        if (status != WEFT_IN_PROGRESS)
            return status;
        int64_t left = deadline - WEFT_OS->clock_ns();
        if (left <= 0) {
            answer->status = WEFT_ERR_TIMEOUT;
            return WEFT_OK;
        }
        WEFT_OS->sleep_ns(pause < left ? pause : left);
    }
}

/* ---- opening and closing ---- */

static weft_status start_log(file_store *f)
{
    uint8_t head[HEAD_BYTES];
    weft_i_wire_writer to = weft_i_wire_write(head, sizeof head);
    weft_i_wire_put_head(&to, FILE_MAGIC, FILE_VERSION);
    weft_i_wire_put_zero(&to, 2);
    weft_i_wire_put_u32(&to, f->workers);
    weft_i_wire_put_zero(&to, 12);
    if (WEFT_OS->ftruncate(f->fd, 0) != 0)
        return weft_i_fail_errno(errno, "store %s: truncate", f->store.name);
    WEFT_TRY(write_at(f, 0, head, sizeof head));
    forget_replay(f);
    return WEFT_OK;
}

/*
 * A file that nobody has open, although not everybody who joined left or all who were to join did,
 * is what a killed job left behind.  Its keys would mislead this one.
 */
static weft_status start_over_if_stale(file_store *f, bool alone)
{
    struct stat state;
    if (WEFT_OS->fstat(f->fd, &state) != 0)
        return weft_i_fail_errno(errno, "store %s: stat", f->store.name);
    if (state.st_size < HEAD_BYTES && alone) /* new, or its maker died in the first write */
        return start_log(f);
    WEFT_TRY(replay(f));
    if (!alone || !f->workers || (f->joined == f->left && f->joined < f->workers))
        return WEFT_OK;
    weft_i_log(WEFT_LOG_INFO, "store %s: left behind by an earlier job; starting over",
               f->store.name);
    return start_log(f);
}

/* With the OPERATE lock: is anybody there, is the log usable, and we are in. */
static weft_status join(file_store *f, bool counted)
{
    int alone = try_lock(f, F_WRLCK, ALIVE);
    if (alone < 0)
        return (weft_status)alone;
    int alive = try_lock(f, F_RDLCK, ALIVE);
    if (alive <= 0)
        return alive < 0 ? (weft_status)alive
                         : weft_i_fail(WEFT_ERR_IO, "store %s: lock of the living is taken",
                                       f->store.name);
    WEFT_TRY(start_over_if_stale(f, alone == 1));
    WEFT_TRY(replay(f));
    if (!counted)
        return WEFT_OK;
    WEFT_TRY(append(f, JOIN, NULL));
    f->joined++;
    f->counted = true;
    return WEFT_OK;
}

/* Opens the path; EXISTS means: it was removed between open and lock, try again. */
static weft_status open_once(file_store *f, bool counted, int64_t deadline)
{
    f->fd = WEFT_OS->open(f->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (f->fd < 0)
        return weft_i_fail_errno(errno, "store %s: open", f->store.name);
    weft_status status = weft_i_os_is_file(f->fd)
                             ? weft_i_nofork_add(f->fd)
                             : weft_i_fail(WEFT_ERR_INVALID_ARG,
                                           "store %s: it is not a regular file", f->store.name);
    if (status < 0) {
        WEFT_OS->close(f->fd);
        f->fd = -1;
        return status;
    }
    int locked;
    while ((locked = try_lock(f, F_WRLCK, OPERATE)) == 0) {
        if (WEFT_OS->clock_ns() >= deadline)
            return weft_i_fail(WEFT_ERR_TIMEOUT, "store %s: another process holds its lock",
                               f->store.name);
        WEFT_OS->sleep_ns(first_pause);
    }
    if (locked < 0)
        return (weft_status)locked;
    struct stat state;
    if (WEFT_OS->fstat(f->fd, &state) != 0)
        status = weft_i_fail_errno(errno, "store %s: stat", f->store.name);
    else
        status = state.st_nlink ? join(f, counted) : WEFT_ERR_EXISTS;
    unlock(f, OPERATE);
    return status;
}

/* The last of the workers removes the file.  Never waits: if the lock stays taken, the next job
 * finds it stale. */
static void leave(file_store *f)
{
    int locked = 0;
    for (int tries = 0; tries < LEAVE_TRIES && locked == 0; tries++) {
        locked = try_lock(f, F_WRLCK, OPERATE);
        if (locked == 0)
            WEFT_OS->yield();
    }
    if (locked != 1)
        return;
    if (replay(f) == WEFT_OK) {
        if (f->joined >= f->workers && try_lock(f, F_WRLCK, ALIVE) == 1)
            WEFT_OS->unlink(f->path);
        else
            append(f, LEAVE, NULL);
    }
    unlock(f, ALIVE); /* before OPERATE: whoever comes next must not take us for alive */
    unlock(f, OPERATE);
}

static void close_file(weft_store *store, bool forked)
{
    file_store *f = (file_store *)store;
    if (f->fd >= 0 && !forked) {
        if (f->counted)
            leave(f);
        weft_i_nofork_close(f->fd);
    }
    if (forked)
        return; /* another thread may have been changing the map when fork copied it */
    weft_i_store_map_close(&f->map);
    pthread_mutex_destroy(&f->lock);
}

static weft_store *copy_of(weft_store *store);

static const weft_i_store_kind kind = {.perform = perform, .clone = copy_of, .close = close_file};

static weft_store *open_file(const char *path, uint32_t workers, bool counted)
{
    file_store *f = weft_i_store_new(&kind, sizeof *f, "file %.150s", path);
    if (!f)
        return NULL;
    f->fd = -1;
    f->workers = workers;
    pthread_mutex_init(&f->lock, NULL);
    memcpy(f->path, path, strlen(path) + 1);
    int64_t deadline = weft_i_store_deadline(&f->store, WEFT_DEFAULT);
    weft_status status;
    while ((status = open_once(f, counted, deadline)) == WEFT_ERR_EXISTS) {
        weft_i_nofork_close(f->fd);
        f->fd = -1;
    }
    if (status == WEFT_OK)
        return &f->store;
    weft_release(f);
    return NULL;
}

/* A clone is the same worker: it keeps the file alive but does not count again. */
static weft_store *copy_of(weft_store *store)
{
    file_store *f = (file_store *)store;
    return open_file(f->path, f->workers, false);
}

weft_store *weft_store_file(const char *path, int workers)
{
    if (!path || !*path || strlen(path) >= sizeof((file_store *)0)->path)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_store_file: path is %s",
                           path && *path ? "too long" : "empty");
    if (workers < 0)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_store_file: %d workers", workers);
    return open_file(path, (uint32_t)workers, workers > 0);
}

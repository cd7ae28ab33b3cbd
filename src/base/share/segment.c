/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: see segment.h.  Every resource is taken in one function and given back in reverse order
 * on failure. */
#include "base/share/segment.h"

#include "base/machine/pages.h"
#include "base/machine/room.h"
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

weft_status weft_i_key_new(weft_i_key *out)
{
    if (WEFT_OS->random_bytes(out, sizeof *out))
        return weft_i_fail_errno(errno, "cannot read random bytes");
    return WEFT_OK;
}

/* FNV-1a twice with different starts: keys need to differ, not to resist anybody (peers trust each
 * other). */
weft_i_key weft_i_key_of(weft_i_key seed, const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    weft_i_key key = {{seed.word[0] ^ 0xcbf29ce484222325u, seed.word[1] ^ 0x9e3779b97f4a7c15u}};
    for (size_t i = 0; i < count; i++) {
        key.word[0] = (key.word[0] ^ byte[i]) * 0x100000001b3u;
        key.word[1] = (key.word[1] ^ byte[i]) * 0x00000100000001b3u + (key.word[0] >> 29);
    }
    return key;
}

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/*
 * Takes every page now, as the owner, so that no later touch can fail (SIGBUS) and pages lie on the
 * owner's NUMA node. Populating after the advice lets the kernel use huge pages; kernels without it
 * reserve through the file.
 */
static int reserve_piece(weft_i_segment *segment, size_t from, size_t bytes, bool populate)
{
    WEFT_ASSERT(from % 4096 == 0);
    if (populate) {
        if (WEFT_OS->madvise(segment->base + from, bytes, MADV_POPULATE_WRITE) == 0)
            return 0;
        if (errno != EINVAL)
            return -1;
    }
    return segment->fd >= 0 ? WEFT_OS->fallocate(segment->fd, 0, (off_t)from, (off_t)bytes) : 0;
}

/* Piece by piece, with a look at the room before each: several ranks may be taking memory at once,
 * and the kernel kills the one that takes the last. */
static weft_status reserve(weft_i_segment *segment, size_t mapped, const char *what, int *error)
{
    const size_t piece = (size_t)32 << 20;
    bool populate = weft_i_pages_want_huge(mapped);
    if (populate)
        segment->huge = weft_i_pages_make_huge(segment->base, mapped);
    for (size_t from = 0; from < mapped; from += piece) {
        WEFT_TRY(weft_i_room_check(mapped - from, what));
        size_t bytes = mapped - from < piece ? mapped - from : piece;
        if (reserve_piece(segment, from, bytes, populate)) {
            *error = errno;
            return WEFT_ERR_NO_SPACE;
        }
    }
    return WEFT_OK;
}

/* A memory file of `mapped` bytes that nobody can resize any more; -1 and errno on failure. */
static int sealed_file(size_t mapped)
{
    int fd = WEFT_OS->memfd_create("weft", MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (WEFT_OS->ftruncate(fd, (off_t)mapped) == 0 && WEFT_OS->seal(fd, SEALS) == 0)
        return fd;
    int error = errno;
    WEFT_OS->close(fd);
    errno = error;
    return -1;
}

/* Whole pages, and at least one: a segment without bytes still has an address. */
static size_t mapped_bytes(size_t bytes)
{
    return round_up(bytes ? bytes : 1, 4096);
}

/* What this process has mapped from its peers. */
static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;
static weft_i_segment *first_mapped;

static void enlist(weft_i_segment *segment)
{
    WEFT_ASSERT(!segment->of_peer);
    pthread_mutex_lock(&mapped_lock);
    segment->of_peer = true;
    segment->next = first_mapped;
    first_mapped = segment;
    pthread_mutex_unlock(&mapped_lock);
}

static void strike_off(const weft_i_segment *segment)
{
    pthread_mutex_lock(&mapped_lock);
    weft_i_segment **at = &first_mapped;
    while (*at != segment) {
        WEFT_ASSERT(*at); /* whatever is of a peer was enlisted */
        at = &(*at)->next;
    }
    *at = segment->next;
    pthread_mutex_unlock(&mapped_lock);
}

/* Unless its last reference is gone, and it is about to go. */
static bool hold_if_alive(weft_i_segment *segment)
{
    int references = atomic_load_explicit(&segment->references, memory_order_relaxed);
    while (references > 0)
        /* Relaxed, as every hold: the lock orders it with the end of the segment. */
        if (atomic_compare_exchange_weak_explicit(&segment->references, &references, references + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    return false;
}

weft_i_segment *weft_i_segment_find(weft_i_key key)
{
    pthread_mutex_lock(&mapped_lock);
    weft_i_segment *segment = first_mapped;
    while (segment && !(weft_i_key_equal(segment->key, key) && hold_if_alive(segment)))
        segment = segment->next;
    pthread_mutex_unlock(&mapped_lock);
    return segment;
}

static void destroy(weft_i_segment *segment)
{
    WEFT_ASSERT(atomic_load_explicit(&segment->references, memory_order_relaxed) <= 1);
    if (segment->of_peer)
        strike_off(segment);
    if (segment->release)
        segment->release(segment);
    else if (segment->base)
        WEFT_OS->munmap(segment->base, mapped_bytes(segment->bytes));
    if (segment->fd >= 0)
        WEFT_OS->close(segment->fd);
    WEFT_OS->free(segment);
}

static weft_status refuse(weft_i_segment *segment, int error, const char *what, size_t bytes)
{
    destroy(segment);
    return weft_i_fail_errno(
        error == EFAULT ? ENOMEM : error,
        "cannot make shared memory of %zu bytes for %s (limits: free memory, cgroup, RLIMIT_AS, "
        "RLIMIT_NOFILE, RLIMIT_FSIZE)",
        bytes, what);
}

weft_status weft_i_segment_new(size_t bytes, weft_i_sharing sharing, const char *what,
                               weft_i_segment **out)
{
    if (bytes > (size_t)INT64_MAX - 2 * WEFT_I_HUGE_PAGE)
        return weft_i_fail(WEFT_ERR_NO_SPACE, "%s: %zu bytes do not fit into an address space",
                           what, bytes);
    weft_i_segment *segment = WEFT_OS->alloc(sizeof *segment);
    if (!segment)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the record of a segment (%s)", what);
    atomic_init(&segment->references, 1);
    segment->bytes = bytes;
    segment->fd = -1;
    size_t mapped = mapped_bytes(bytes);
    weft_status status = weft_i_key_new(&segment->key);
    if (status < 0) {
        destroy(segment);
        return status;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (sharing == WEFT_I_BETWEEN_PROCESSES) {
        flags = MAP_SHARED;
        if ((segment->fd = sealed_file(mapped)) < 0)
            return refuse(segment, errno, what, bytes);
    }
    char *base = weft_i_pages_map(mapped, flags, segment->fd);
    if (base == MAP_FAILED)
        return refuse(segment, errno, what, bytes);
    segment->base = base;
    int error = 0;
    status = reserve(segment, mapped, what, &error);
    if (error)
        return refuse(segment, error, what, bytes);
    if (status < 0)
        destroy(segment);
    else
        *out = segment;
    return status;
}

weft_status weft_i_segment_wrap(char *base, size_t bytes, int fd,
                                void (*release)(weft_i_segment *segment), void *owner,
                                weft_i_segment **out)
{
    weft_i_key key;
    WEFT_TRY(weft_i_key_new(&key));
    weft_i_segment *segment = WEFT_OS->alloc(sizeof *segment);
    if (!segment)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the record of a segment");
    atomic_init(&segment->references, 1);
    segment->base = base;
    segment->bytes = bytes;
    segment->fd = fd;
    segment->key = key;
    segment->release = release;
    segment->owner = owner;
    *out = segment;
    return WEFT_OK;
}

static weft_status check_received(int fd, size_t bytes)
{
    int64_t sealed = weft_i_os_sealed_bytes(fd);
    if (sealed < 0 || (uint64_t)sealed < bytes)
        return weft_i_fail(
            WEFT_ERR_PROTOCOL,
            "a peer sent %s of %lld bytes where a sealed memory file of at least %zu was expected",
            sealed < 0 ? "an unsealed descriptor" : "a memory file", (long long)sealed, bytes);
    return WEFT_OK;
}

static weft_status map_received(int fd, size_t bytes, weft_i_key key, bool enter_pages,
                                weft_i_segment **out)
{
    WEFT_TRY(check_received(fd, bytes));
    weft_i_segment *segment = WEFT_OS->alloc(sizeof *segment);
    if (!segment)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the record of a segment");
    atomic_init(&segment->references, 1);
    segment->bytes = bytes;
    segment->key = key;
    segment->fd = -1; /* the mapping keeps the memory; the number is worth more to the program */
    size_t mapped = mapped_bytes(bytes);
    char *base = weft_i_pages_map(mapped, MAP_SHARED, fd);
    if (base == MAP_FAILED)
        return refuse(segment, errno, "a peer's memory", bytes);
    segment->base = base;
    if (weft_i_pages_want_huge(mapped))
        segment->huge = weft_i_pages_make_huge(base, mapped);
    /* The pages exist; entering them into our table now keeps a page fault per 4 KiB out of the
     * first operation. */
    if (enter_pages)
        WEFT_OS->madvise(base, mapped, MADV_POPULATE_WRITE);
    enlist(segment);
    *out = segment;
    return WEFT_OK;
}

weft_status weft_i_segment_map(int fd, size_t bytes, weft_i_key key, weft_i_segment **out)
{
    return map_received(fd, bytes, key, true, out);
}

weft_status weft_i_segment_map_sparsely(int fd, size_t bytes, weft_i_key key, weft_i_segment **out)
{
    return map_received(fd, bytes, key, false, out);
}

weft_i_segment *weft_i_segment_hold(weft_i_segment *segment)
{
    WEFT_ASSERT(atomic_load_explicit(&segment->references, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&segment->references, 1, memory_order_relaxed);
    return segment;
}

void weft_i_segment_drop(weft_i_segment *segment)
{
    if (segment && atomic_fetch_sub_explicit(&segment->references, 1, memory_order_acq_rel) == 1)
        destroy(segment);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Room in memory: see room.h.  All files of the kernel are read through WEFT_OS, so that a test can
 * put others in their place. */
#include "base/machine/room.h"

#include "base/machine/control_group.h"
#include "base/os/file.h"
#include "base/os/os.h"
#include "base/report/status.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILE_BYTES = 16384,
    PATH_BYTES = 1024,
    CREDIT_PART = 16, /* of the room seen may be taken before the next look ... */
    CREDIT_MS = 100,  /* ... and not for longer */
    MARGIN_PART = 64, /* page tables, and what the rest of the program needs meanwhile ... */
    MARGIN_BYTES = 512 * 1024,
    SMALL_BYTES = 64 * 1024 /* ... which includes pieces of this size */
};

/* The least room found so far, and who sets it. */
typedef struct room {
    int64_t bytes, limit, used; /* limit and used of that control group, 0 for the machine */
    int64_t swap;               /* free on the machine */
    char where[PATH_BYTES];
} room;

/* The number behind `key` at the start of a line; `fallback` if there is none. */
static int64_t number_of(const char *text, const char *key, int64_t fallback)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, key, length) && strchr(" :\t", line[length]))
            return strtoll(line + length + strspn(line + length, " :\t"), NULL, 10);
    }
    return fallback;
}

static bool look_at_machine(room *found)
{
    char text[FILE_BYTES];
    if (!weft_i_file_read("/proc/meminfo", text, FILE_BYTES))
        return false;
    int64_t available = number_of(text, "MemAvailable", -1);
    if (available < 0)
        return false;
    found->swap = number_of(text, "SwapFree", 0) * 1024;
    found->bytes = available * 1024 + found->swap;
    return true;
}

/* Pages of files that the kernel gives up before it kills. */
static int64_t reclaimable(const char *folder, bool v2)
{
    char path[PATH_BYTES + 32], text[FILE_BYTES];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (!weft_i_file_read(path, text, FILE_BYTES))
        return 0;
    if (v2)
        return number_of(text, "inactive_file", 0) + number_of(text, "active_file", 0) +
               number_of(text, "slab_reclaimable", 0);
    return number_of(text, "total_inactive_file", 0) + number_of(text, "total_active_file", 0);
}

/* What the group may move to the swap space. */
static int64_t swap_left(const char *folder, bool v2, int64_t memory_limit, int64_t machine)
{
    int64_t limit, used;
    if (v2) {
        limit = weft_i_control_group_number(folder, "memory.swap.max", INT64_MAX);
        used = weft_i_control_group_number(folder, "memory.swap.current", 0);
    } else {
        limit = weft_i_control_group_number(folder, "memory.memsw.limit_in_bytes", INT64_MAX);
        limit = limit == INT64_MAX ? limit : limit - memory_limit;
        used = weft_i_control_group_number(folder, "memory.memsw.usage_in_bytes", 0) -
               weft_i_control_group_number(folder, "memory.usage_in_bytes", 0);
    }
    if (limit == INT64_MAX)
        return machine;
    int64_t left = limit - (used > 0 ? used : 0);
    return left < 0 ? 0 : left < machine ? left : machine;
}

static void look_at_group(void *state, const char *folder, bool v2)
{
    room *found = state;
    int64_t limit =
        weft_i_control_group_number(folder, v2 ? "memory.max" : "memory.limit_in_bytes", INT64_MAX);
    int64_t used =
        weft_i_control_group_number(folder, v2 ? "memory.current" : "memory.usage_in_bytes", -1);
    if (limit >= INT64_MAX / 2 || limit < 0 || used < 0)
        return;
    int64_t left = limit - used + reclaimable(folder, v2);
    left = left > limit ? limit : left < 0 ? 0 : left;
    left += swap_left(folder, v2, limit, found->swap);
    if (left >= found->bytes)
        return;
    found->bytes = left;
    found->limit = limit;
    found->used = used;
    snprintf(found->where, sizeof found->where, "%s", folder);
}

/* Without /proc there is nothing to go by. */
static bool look(room *found)
{
    if (!look_at_machine(found))
        return false;
    weft_i_control_group_each("memory", look_at_group, found);
    return true;
}

int64_t weft_i_room_bytes(void)
{
    room found = {0};
    return look(&found) && found.bytes > 0 ? found.bytes : 0;
}

/* ---- checks ---- */

/* Room seen at the last look that may still be taken, and until when.  Relaxed: a guess that
 * publishes nothing else. */
static _Atomic int64_t credit, credit_until;

static bool take_credit(int64_t bytes)
{
    if (WEFT_OS->clock_ns() >= atomic_load_explicit(&credit_until, memory_order_relaxed))
        return false;
    return atomic_fetch_sub_explicit(&credit, bytes, memory_order_relaxed) >= bytes;
}

void weft_i_room_forget(void)
{
    atomic_store_explicit(&credit_until, 0, memory_order_relaxed);
}

static weft_status refuse(const room *found, size_t bytes, const char *what)
{
    char group[PATH_BYTES + 160] = "";
    if (*found->where)
        snprintf(group, sizeof group,
                 " (the control group %s uses %" PRId64 " of its limit of %" PRId64 ")",
                 found->where, found->used, found->limit);
    return weft_i_fail(WEFT_ERR_NO_SPACE,
                       "%s: %zu bytes do not fit into memory: %" PRId64 " bytes are free%s; the "
                       "kernel would kill the process while it takes them",
                       what, bytes, found->bytes, group);
}

weft_status weft_i_room_check(size_t bytes, const char *what)
{
    room found = {0};
    int64_t wanted = bytes < (size_t)INT64_MAX / 2 ? (int64_t)bytes : INT64_MAX / 2;
    wanted += wanted / MARGIN_PART + (bytes > SMALL_BYTES ? MARGIN_BYTES : 0);
    if (take_credit(wanted))
        return WEFT_OK;
    if (!look(&found))
        return WEFT_OK;
    if (wanted > found.bytes)
        return refuse(&found, bytes, what);
    atomic_store_explicit(&credit, (found.bytes - wanted) / CREDIT_PART, memory_order_relaxed);
    atomic_store_explicit(&credit_until, WEFT_OS->clock_ns() + CREDIT_MS * INT64_C(1000000),
                          memory_order_relaxed);
    return WEFT_OK;
}

static void add_kills(void *state, const char *folder, bool v2)
{
    room *found = state;
    char path[PATH_BYTES + 32], text[FILE_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, v2 ? "memory.events" : "memory.oom_control");
    if (weft_i_file_read(path, text, FILE_BYTES))
        found->bytes += number_of(text, "oom_kill", 0);
}

int64_t weft_i_room_kills(void)
{
    room found = {0};
    char text[FILE_BYTES];
    if (weft_i_file_read("/proc/vmstat", text, FILE_BYTES))
        found.bytes = number_of(text, "oom_kill", 0);
    weft_i_control_group_each("memory", add_kills, &found);
    return found.bytes;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of backends and this thread's choice among them. */
#include "symm/backend.h"

#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "fabric/meet/meet.h"
#include "fabric/world/remote.h"
#include "fabric/world/spawn.h"
#include "tensor/object/storage.h"
#include "weft/symm.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define BACKEND(name_) extern const weft_i_backend weft_i_backend_##name_;
#include "symm/backends.def"
#undef BACKEND

static struct row {
    const weft_i_backend *table; /* NULL: taken out by a test */
    const char *name;
    atomic_int score; /* once it is positive.  Relaxed: it publishes nothing else */
} rows[] = {
#define BACKEND(name_) {&weft_i_backend_##name_, #name_, 0},
#include "symm/backends.def"
#undef BACKEND
};

enum { ROWS = sizeof rows / sizeof *rows };

/* By kind of device. */
static _Thread_local struct {
    const weft_i_backend *chosen;
    bool used;
} mine[WEFT_I_DEVICE_KINDS];

/* 0: what WEFT_ALLOW_OVERLAP says, 1: no, 2: yes.  Relaxed: a setting that publishes nothing else. */
static atomic_int overlap_setting;

void weft_symm_allow_overlap(bool allow)
{
    atomic_store_explicit(&overlap_setting, allow ? 2 : 1, memory_order_relaxed);
}

bool weft_symm_allows_overlap(void)
{
    int setting = atomic_load_explicit(&overlap_setting, memory_order_relaxed);
    return setting ? setting == 2 : weft_i_env_number_or_default(WEFT_I_ENV_ALLOW_OVERLAP) != 0;
}

int weft_backend_count(void)
{
    return ROWS;
}

weft_status weft_backend_describe(int index, weft_backend_info *out)
{
    if (index < 0 || index >= ROWS || !out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "there are backends 0 to %d, not %d", ROWS - 1,
                           index);
    *out = (weft_backend_info){.name = rows[index].name, .device = "cpu"};
    if (rows[index].table) {
        out->device = weft_device_name(rows[index].table->device_kind << 16, NULL);
        out->score = rows[index].table->probe(out->reason, sizeof out->reason);
    }
    out->usable = out->score > 0;
    return WEFT_OK;
}

const weft_i_backend *weft_i_backend_named(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].table && !strcasecmp(rows[i].name, name))
            return rows[i].table;
    return NULL;
}

const weft_i_backend *weft_i_backend_replace(const char *name, const weft_i_backend *table)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcasecmp(rows[i].name, name)) {
            const weft_i_backend *old = rows[i].table;
            rows[i].table = table;
            atomic_store_explicit(&rows[i].score, 0, memory_order_relaxed);
            return old;
        }
    return NULL;
}

static bool serves(const weft_i_backend *table, int kind, weft_i_sharing sharing)
{
    return table && table->device_kind == kind && table->sharing >> sharing & 1;
}

/* Without being started first. */
static bool makes_memory(const weft_i_backend *table)
{
    return table->memory && !table->start;
}

static bool carries(const weft_i_backend *table)
{
    return table->carry && !table->carry->wraps;
}

/* One that wraps another there stands for itself: that other may not reach them. */
static bool carries_between_hosts(const weft_i_backend *table)
{
    return table->carry && table->carry->reaches_hosts;
}

/* A probe opens files, which calls that ask for a backend each time must not pay.  What is usable
 * stays so; what is not may become so. */
static int score_of(struct row *row)
{
    char reason[192];
    int score = atomic_load_explicit(&row->score, memory_order_relaxed);
    if (score > 0)
        return score;
    score = row->table->probe(reason, sizeof reason);
    atomic_store_explicit(&row->score, score, memory_order_relaxed);
    return score;
}

/* The one of the highest score.  Who is alone is not asked for one: its own refusal says more. */
static const weft_i_backend *best(int kind, weft_i_sharing sharing,
                                  bool (*fits)(const weft_i_backend *table))
{
    struct row *fitting[ROWS];
    const weft_i_backend *found = NULL;
    int count = 0, highest = 0;
    for (int i = 0; i < ROWS; i++)
        if (serves(rows[i].table, kind, sharing) && fits(rows[i].table))
            fitting[count++] = &rows[i];
    for (int i = 0; count > 1 && i < count; i++) {
        int score = score_of(fitting[i]);
        found = score > highest ? fitting[i]->table : found;
        highest = score > highest ? score : highest;
    }
    return count == 1 ? fitting[0]->table : found;
}

static bool wraps(const weft_i_backend *table, const weft_i_backend *other)
{
    return table && table->carry && table->carry->wraps &&
           !strcmp(table->carry->wraps, other->name);
}

const weft_i_backend *weft_i_backend_carrier(weft_device device, weft_i_sharing sharing, bool hosts)
{
    int kind = weft_i_device_kind(device);
    if (hosts)
        return best(kind, sharing, carries_between_hosts);
    const weft_i_backend *found = best(kind, sharing, carries);
    for (int i = 0; found && i < ROWS; i++)
        if (wraps(rows[i].table, found))
            return rows[i].table;
    return found;
}

bool weft_i_backend_reaches_hosts(int device_kind, weft_i_sharing sharing)
{
    for (int i = 0; i < ROWS; i++) {
        const weft_i_backend *table = rows[i].table;
        int kind = device_kind < 0 && table ? table->device_kind : device_kind;
        if (serves(table, kind, sharing) && carries_between_hosts(table) && score_of(&rows[i]) > 0)
            return true;
    }
    return false;
}

void weft_i_backend_tell_hosts(char *out, size_t bytes)
{
    weft_i_text text = {out, bytes, 0};
    out[0] = 0;
    for (int i = 0; i < ROWS; i++) {
        const weft_i_backend *table = rows[i].table;
        char reason[192] = "";
        if (!table || (!carries_between_hosts(table) && !table->transport))
            continue;
        table->probe(reason, sizeof reason);
        weft_i_text_put(&text, "%s%s: %s", text.used ? "; " : "", rows[i].name, reason);
    }
}

/* What the environment names, for kinds that it concerns: `*out` stays NULL for others. */
static weft_status find_named(int kind, const weft_i_backend **out)
{
    const char *wanted = weft_i_env_text(WEFT_I_ENV_SYMM_BACKEND);
    if (!strcasecmp(wanted, "auto"))
        return WEFT_OK;
    const weft_i_backend *named = weft_i_backend_named(wanted);
    if (!named || !named->memory)
        return weft_i_fail(WEFT_ERR_NOT_FOUND,
                           "WEFT_SYMM_BACKEND=\"%s\" is not a backend of this build that makes "
                           "memory",
                           wanted);
    *out = named->device_kind == kind ? named : NULL;
    return WEFT_OK;
}

/* A backend that the environment names, and that cannot work here, is told by weft_init. */
static void tell_if_unusable(void)
{
    char reason[192] = "";
    const weft_i_backend *named = weft_i_backend_named(weft_i_env_text(WEFT_I_ENV_SYMM_BACKEND));
    if (named && named->probe(reason, sizeof reason) <= 0)
        weft_i_log(WEFT_LOG_WARN, "WEFT_SYMM_BACKEND=%s cannot be had here: %s", named->name,
                   reason);
}

/* What carries messages between hosts. */
static const weft_i_transport *find_transport(void)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].table && rows[i].table->transport)
            return rows[i].table->transport;
    return NULL;
}

__attribute__((constructor)) static void tell_with_init(void)
{
    weft_i_meet_then(tell_if_unusable);
    weft_i_remote_engine = find_transport;
}

/* Threads of weft_spawn share an address space, so their memory should have one address; processes
 * need files. */
static weft_i_sharing sharing_of_thread(void)
{
    return weft_i_spawn_seat() ? WEFT_I_BETWEEN_THREADS : WEFT_I_BETWEEN_PROCESSES;
}

/* `*out` is NULL where no backend makes memory. */
static weft_status find(weft_device device, weft_i_sharing sharing, const weft_i_backend **out)
{
    int kind = weft_i_device_kind(device);
    *out = NULL;
    if (!weft_i_device_find(device))
        return WEFT_OK;
    *out = mine[kind].chosen;
    if (!*out)
        WEFT_TRY(find_named(kind, out));
    if (!*out)
        *out = best(kind, sharing, makes_memory);
    return WEFT_OK;
}

bool weft_i_backend_among_threads(void)
{
    const weft_i_seat *seat = weft_i_spawn_seat();
    return seat && seat->size > 1;
}

const weft_i_backend *weft_i_backend_for(weft_device device)
{
    return weft_i_backend_between(device, sharing_of_thread());
}

const weft_i_backend *weft_i_backend_between(weft_device device, weft_i_sharing sharing)
{
    const weft_i_backend *backend;
    char name[16];
    if (find(device, sharing, &backend) < 0 || backend)
        return backend;
    return weft_i_null(WEFT_ERR_UNSUPPORTED,
                       "no backend of this build makes symmetric memory on %s",
                       weft_device_name(device, name));
}

void weft_i_backend_used(weft_device device)
{
    mine[weft_i_device_kind(device)].used = true;
}

const char *weft_symm_backend(weft_device device)
{
    const weft_i_backend *backend;
    return find(device, sharing_of_thread(), &backend) >= 0 && backend ? backend->name : NULL;
}

/* All ranks of the world start it together. */
static weft_status start(const weft_i_backend *backend, weft_device device)
{
    weft_i_circle world;
    WEFT_TRY(weft_i_circle_of_world(device, "starting a backend", &world));
    if (!weft_i_circle_is_served(&world, backend->sharing))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "backend %s has one rank in a process; these ranks are threads of one",
                           backend->name);
    return backend->start(&world);
}

weft_status weft_symm_set_backend(weft_device device, const char *name)
{
    const weft_i_backend *wanted = name ? weft_i_backend_named(name) : NULL;
    int kind = weft_i_device_kind(device);
    if (!wanted || !wanted->memory || !weft_i_device_find(device) || wanted->device_kind != kind) {
        char text[16];
        return weft_i_fail(WEFT_ERR_NOT_FOUND,
                           "\"%s\" is not a backend of this build that makes memory on %s",
                           name ? name : "(null)", weft_device_name(device, text));
    }
    const char *now = weft_symm_backend(device);
    if (mine[kind].used && (!now || strcmp(now, wanted->name)))
        return weft_i_fail(WEFT_ERR_STATE,
                           "this thread has already allocated symmetric memory with backend %s",
                           now);
    if (wanted->start)
        WEFT_TRY(start(wanted, device));
    mine[kind].chosen = wanted;
    return WEFT_OK;
}

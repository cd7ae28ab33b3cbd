/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of backends and this thread's choice among them. */
#include "symm/backend.h"

#include "base/env.h"
#include "base/status.h"
#include "fabric/spawn.h"
#include "tensor/storage.h"
#include "weft/symm.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define BACKEND(name_) extern const weft_i_backend weft_i_backend_##name_;
#define PLANNED(name_, device_, text_)
#include "symm/backends.def"
#undef BACKEND
#undef PLANNED

static const struct row {
    const weft_i_backend *table; /* NULL: planned */
    const char *name, *device, *text;
} rows[] = {
#define BACKEND(name_)                 {&weft_i_backend_##name_, #name_, NULL, ""},
#define PLANNED(name_, device_, text_) {NULL, #name_, device_, text_},
#include "symm/backends.def"
#undef BACKEND
#undef PLANNED
};

enum { ROWS = sizeof rows / sizeof *rows };

static _Thread_local struct {
    const weft_i_backend *chosen;
    bool used;
} mine;

int weft_backend_count(void)
{
    return ROWS;
}

weft_status weft_backend_describe(int index, weft_backend_info *out)
{
    if (index < 0 || index >= ROWS || !out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "there are backends 0 to %d, not %d", ROWS - 1,
                           index);
    static const char *const kinds[] = {"cpu", "meta", "cuda"};
    *out = (weft_backend_info){.name = rows[index].name, .device = rows[index].device};
    if (rows[index].table)
        out->device = kinds[rows[index].table->device_kind];
    snprintf(out->reason, sizeof out->reason, "%s", rows[index].text);
    if (rows[index].table)
        out->score = rows[index].table->probe(out->reason, sizeof out->reason);
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

/* Threads of weft_spawn share an address space, so their memory should have one address; processes
 * need files. */
static const weft_i_backend *by_circumstance(void)
{
    const char *wanted = weft_i_env_text(WEFT_I_ENV_SYMM_BACKEND);
    if (strcasecmp(wanted, "auto")) {
        const weft_i_backend *named = weft_i_backend_named(wanted);
        return named && named->allocate ? named
                                        : weft_i_null(WEFT_ERR_NOT_FOUND,
                                                      "WEFT_SYMM_BACKEND=\"%s\" is not a backend "
                                                      "of this build that makes memory",
                                                      wanted);
    }
    return weft_i_backend_named(weft_i_spawn_seat() ? "threads" : "shm");
}

const weft_i_backend *weft_i_backend_for(weft_device device)
{
    if (device != WEFT_CPU) {
        char name[16];
        return weft_i_null(WEFT_ERR_UNSUPPORTED,
                           "no backend of this build makes symmetric memory on %s",
                           weft_device_name(device, name));
    }
    return mine.chosen ? mine.chosen : by_circumstance();
}

void weft_i_backend_used(void)
{
    mine.used = true;
}

const char *weft_symm_backend(weft_device device)
{
    if (device != WEFT_CPU)
        return NULL;
    const weft_i_backend *backend = mine.chosen ? mine.chosen : by_circumstance();
    return backend ? backend->name : NULL;
}

weft_status weft_symm_set_backend(weft_device device, const char *name)
{
    const weft_i_backend *wanted = name ? weft_i_backend_named(name) : NULL;
    if (!wanted || !wanted->allocate || device != WEFT_CPU) {
        char text[16];
        return weft_i_fail(WEFT_ERR_NOT_FOUND,
                           "\"%s\" is not a backend of this build that makes memory on %s",
                           name ? name : "(null)", weft_device_name(device, text));
    }
    const char *now = weft_symm_backend(device);
    if (mine.used && (!now || strcmp(now, wanted->name)))
        return weft_i_fail(WEFT_ERR_STATE,
                           "this thread has already allocated symmetric memory with backend %s",
                           now);
    mine.chosen = wanted;
    return WEFT_OK;
}

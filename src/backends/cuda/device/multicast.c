/* SPDX-License-Identifier: Apache-2.0 */
/* Multicast in agreed stages; see multicast.h.  Untested on hardware: scripts/gpu-check peers. */
#include "multicast.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "retire.h"

#include <stdio.h>
#include <string.h>

struct weft_i_cuda_multicast {
    weft_i_cuda_device *device;
    weft_i_segment *object; /* what holds its handle; thread ranks share it */
    weft_i_cu_ptr base;
    size_t bytes;
    bool bound, mapped;
};

/* ---- may it be? ---- */

bool weft_i_cuda_multicast_usable(const weft_i_cuda_device *device, char *reason, size_t bytes)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    if (!weft_i_env_number_or_default(WEFT_I_ENV_CUDA_MULTICAST))
        snprintf(reason, bytes, "WEFT_CUDA_MULTICAST is off");
    else if (!device->multicast)
        snprintf(reason, bytes, "%s has no multicast", device->name);
    else if (!cu->cuMulticastCreate || !cu->cuMulticastAddDevice || !cu->cuMulticastBindMem ||
             !cu->cuMulticastUnbind || !cu->cuMulticastGetGranularity)
        snprintf(reason, bytes, "the driver, of CUDA %d.%d, has no multicast", cu->version / 1000,
                 cu->version % 1000 / 10);
    else if (device->major < 9)
        snprintf(reason, bytes, "%s has compute capability %d.%d; multicast needs 9.0",
                 device->name, device->major, device->minor);
    else
        return true;
    return false;
}

/* From what all have shown, so all say the same. */
static bool is_possible(const weft_i_circle *circle, const weft_i_card *cards, char *why)
{
    size_t room = WEFT_I_CUDA_WHY_BYTES;
    if (weft_i_circle_is_fake(circle)) {
        snprintf(why, room, "the other ranks of a fake group are nowhere");
        return false;
    }
    if (circle->size < 2) {
        snprintf(why, room, "the group has one rank");
        return false;
    }
    for (int rank = 0; rank < circle->size; rank++)
        if (!(cards[rank].facts & WEFT_I_CARD_MULTICAST)) {
            snprintf(why, room, "the device of rank %d (cuda:%d there) has no multicast", rank,
                     cards[rank].ordinal);
            return false;
        }
    for (int b = 1; b < circle->size; b++)
        for (int a = 0; a < b; a++)
            if (!memcmp(cards[a].uuid, cards[b].uuid, sizeof cards[a].uuid)) {
                snprintf(why, room,
                         "ranks %d and %d share a GPU, and multicast takes each GPU once", a, b);
                return false;
            }
    return true;
}

/* ---- the stages ---- */

/* Under way: this rank's part, its block, and where the object is published. */
typedef struct opening {
    const weft_i_circle *circle;
    weft_i_cuda_multicast *made;
    weft_i_cu_handle memory;
    weft_i_key key;
    bool published;
} opening;

static weft_i_cu_handle *handle_of(const weft_i_segment *object)
{
    return object->owner;
}

/* All who had it mapped have ended before: nothing is waited for. */
static void release_object(weft_i_segment *object)
{
    weft_i_cuda_block_release(*handle_of(object));
    WEFT_OS->free(object->owner);
}

static weft_status wrap(weft_i_cu_handle handle, int fd, size_t bytes, weft_i_segment **out)
{
    weft_i_cu_handle *owner = WEFT_OS->alloc(sizeof *owner);
    weft_status status = WEFT_ERR_NO_MEMORY;
    if (owner) {
        *owner = handle;
        status = weft_i_segment_wrap(NULL, bytes, fd, release_object, owner, out);
    }
    if (status < 0) {
        WEFT_OS->free(owner);
        weft_i_cuda_block_release(handle);
        if (fd >= 0)
            WEFT_OS->close(fd);
    }
    return status;
}

/* The first member makes the object and lets the others fetch it. */
static weft_status create(opening *o)
{
    weft_i_fdpass *server = weft_i_circle_server(o->circle);
    weft_i_cu_handle handle = 0;
    int fd = -1;
    if (o->circle->rank != 0)
        return WEFT_OK;
    weft_i_cu_multicast prop = {.numDevices = (unsigned)o->circle->size,
                                .size = o->made->bytes,
                                .handleTypes = WEFT_I_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    WEFT_TRY(weft_i_cuda_use(o->made->device));
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMulticastCreate(&handle, &prop),
                  "making a multicast object of %zu bytes", o->made->bytes);
    if (!weft_i_cuda_is_among_threads(server)) {
        weft_status exported = weft_i_cuda_block_export(handle, &fd);
        if (exported < 0) {
            weft_i_cuda_block_release(handle);
            return exported;
        }
    }
    WEFT_TRY(wrap(handle, fd, o->made->bytes, &o->made->object));
    weft_status status = weft_i_fdpass_publish(server, o->key, o->made->object, WEFT_OK);
    o->published = status == WEFT_OK;
    return status;
}

static weft_status fetch(opening *o)
{
    weft_i_fdpass_order order = weft_i_circle_order(o->circle, 0, o->key, o->made->bytes);
    weft_i_cu_handle handle = 0;
    int fd = -1;
    if (weft_i_cuda_is_among_threads(order.own))
        return weft_i_circle_fetched(o->circle, 0, weft_i_fdpass_fetch(&order, &o->made->object));
    WEFT_TRY(weft_i_circle_fetched(o->circle, 0, weft_i_fdpass_fetch_fd(&order, &fd)));
    weft_status status = weft_i_cuda_block_import(o->made->device, fd, &handle);
    WEFT_OS->close(fd);
    return status < 0 ? status : wrap(handle, -1, o->made->bytes, &o->made->object);
}

static weft_status add_device(opening *o)
{
    const weft_i_cuda_device *device = o->made->device;
    if (o->circle->rank != 0)
        WEFT_TRY(fetch(o));
    WEFT_TRY(weft_i_cuda_use(device));
    WEFT_CUDA_TRY(
        weft_i_cuda_driver()->cuMulticastAddDevice(*handle_of(o->made->object), device->handle),
        "adding cuda:%d to a multicast object", device->ordinal);
    return WEFT_OK;
}

/* The driver waits here until all devices were added: they were. */
static weft_status bind_block(opening *o)
{
    WEFT_TRY(weft_i_cuda_use(o->made->device));
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMulticastBindMem(*handle_of(o->made->object), 0,
                                                           o->memory, 0, o->made->bytes, 0),
                  "binding a block of cuda:%d to a multicast object", o->made->device->ordinal);
    o->made->bound = true;
    return WEFT_OK;
}

static weft_status map(opening *o)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cuda_multicast *m = o->made;
    WEFT_TRY(weft_i_cuda_use(m->device));
    WEFT_CUDA_TRY(cu->cuMemAddressReserve(&m->base, m->bytes, m->device->granularity, 0, 0),
                  "no addresses for multicast on cuda:%d", m->device->ordinal);
    WEFT_CUDA_TRY(cu->cuMemMap(m->base, m->bytes, 0, *handle_of(m->object), 0),
                  "mapping a multicast object on cuda:%d", m->device->ordinal);
    m->mapped = true;
    weft_i_cu_access access = {{WEFT_I_CU_MEM_LOCATION_TYPE_DEVICE, m->device->handle},
                               WEFT_I_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    WEFT_CUDA_TRY(cu->cuMemSetAccess(m->base, m->bytes, &access, 1),
                  "access of cuda:%d to a multicast object", m->device->ordinal);
    return WEFT_OK;
}

/* ---- the end ---- */

static void end(void *what)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cuda_multicast *m = what;
    if (weft_i_cuda_use(m->device) == WEFT_OK) {
        if (m->mapped)
            cu->cuMemUnmap(m->base, m->bytes);
        if (m->base)
            cu->cuMemAddressFree(m->base, m->bytes);
        if (m->bound) /* before its block goes */
            cu->cuMulticastUnbind(*handle_of(m->object), m->device->handle, 0, m->bytes);
    }
    weft_i_segment_drop(m->object);
    WEFT_OS->free(m);
}

void weft_i_cuda_multicast_close(weft_i_cuda_multicast *multicast)
{
    if (multicast)
        weft_i_cuda_retire(end, multicast);
}

char *weft_i_cuda_multicast_base(const weft_i_cuda_multicast *multicast)
{
    return (char *)(uintptr_t)multicast->base;
}

/* ---- agreement ---- */

typedef struct note {
    int32_t status;
    char why[WEFT_I_CUDA_WHY_BYTES - 20]; /* room for the rank before it */
} note;

static note note_of(weft_status status)
{
    note mine = {.status = status};
    if (status < 0)
        snprintf(mine.why, sizeof mine.why, "%s",
                 weft_last_error()[0] ? weft_last_error() : weft_strerror(status));
    return mine;
}

/* The first member that failed, or -1 in *who.  A member without memory for what the others say
 * fails too. */
static weft_status agree(const weft_i_circle *circle, weft_status status, int *who, char *why)
{
    note mine = note_of(status), *all = WEFT_OS->alloc((size_t)circle->size * sizeof *all);
    *who = -1;
    if (!all) {
        mine = (note){.status = WEFT_ERR_NO_MEMORY};
        snprintf(why, WEFT_I_CUDA_WHY_BYTES, "rank %d: no memory for %d ranks", circle->rank,
                 circle->size);
        weft_i_circle_decline(circle, &mine, sizeof mine);
        *who = circle->rank;
        return WEFT_OK;
    }
    weft_status met = weft_i_circle_exchange_later(circle, &mine, sizeof mine, all);
    for (int rank = 0; met == WEFT_OK && rank < circle->size && *who < 0; rank++)
        if (all[rank].status < 0) {
            all[rank].why[sizeof all[rank].why - 1] = 0;
            snprintf(why, WEFT_I_CUDA_WHY_BYTES, "rank %d: %s", rank, all[rank].why);
            *who = rank;
        }
    WEFT_OS->free(all);
    return met;
}

/* Each stage on all members, or on none; *who is the first member that failed, -1: none did. */
static weft_status run_stages(opening *o, weft_status before, int *who, char *why)
{
    weft_status (*const stages[])(opening *) = {create, add_device, bind_block, map};
    weft_i_circle circle = *o->circle;
    circle.what = "multicast";
    for (int i = 0; i < 4; i++) {
        weft_status status = before;
        if (status == WEFT_OK && !o->made)
            status = WEFT_ERR_NO_MEMORY;
        if (status == WEFT_OK)
            status = stages[i](o);
        WEFT_TRY(agree(&circle, status, who, why));
        if (*who >= 0)
            return WEFT_OK;
    }
    return WEFT_OK;
}

/* All have fetched it: its descriptor is not needed any more. */
static void withdraw(opening *o)
{
    if (!o->published)
        return;
    weft_i_fdpass_withdraw(weft_i_circle_server(o->circle), o->key);
    if (o->made->object->fd >= 0)
        WEFT_OS->close(o->made->object->fd);
    o->made->object->fd = -1;
}

weft_status weft_i_cuda_multicast_open(const weft_i_circle *circle, weft_i_segment *block,
                                       const weft_i_card *cards, weft_i_key key, weft_status before,
                                       weft_i_cuda_multicast **out, char why[WEFT_I_CUDA_WHY_BYTES])
{
    const weft_i_cuda_memory *memory = weft_i_cuda_memory_of(block);
    weft_i_errors errors;
    int who = -1;
    *out = NULL;
    if (!is_possible(circle, cards, why))
        return WEFT_OK;
    weft_i_errors_save(&errors);
    opening o = {.circle = circle,
                 .made = WEFT_OS->alloc(sizeof *o.made),
                 .memory = memory->handle,
                 .key = weft_i_key_of(key, "multicast", 9)};
    if (o.made)
        *o.made = (weft_i_cuda_multicast){.device = memory->device, .bytes = memory->span.stride};
    weft_status status = run_stages(&o, before, &who, why);
    if (o.made)
        withdraw(&o);
    if (status == WEFT_OK && who < 0) {
        *out = o.made;
        why[0] = 0;
        return WEFT_OK;
    }
    if (o.made)
        end(o.made);         /* nothing was enqueued that uses it */
    if (status == WEFT_OK) { /* no multicast is no error */
        weft_i_errors_restore(&errors);
        if (before == WEFT_OK && who == circle->rank)
            weft_i_log(WEFT_LOG_WARN, "group \"%s\": no multicast, %s", circle->name, why);
    }
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: rendezvous with its cache, and tensors over the memory of the members. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "symm/reach.h"
#include "symm/remote_moves.h"

#include <string.h>

static void destroy(weft_i_object *object)
{
    weft_symm *mem = (weft_symm *)object;
    weft_i_registration_drop(mem->registration);
    weft_i_block_drop(mem->block);
    weft_i_object_drop(mem->group);
    weft_i_object_free(object);
}

/* ---- rendezvous ---- */

static void cache(weft_i_block *block, weft_i_registration *registration)
{
    pthread_mutex_lock(&block->lock);
    registration->next =
        atomic_load_explicit(&block->registrations, memory_order_relaxed); /* our lock */
    atomic_store_explicit(&block->registrations, weft_i_registration_hold(registration),
                          memory_order_release);
    pthread_mutex_unlock(&block->lock);
}

/* May this tensor meet in this group?  What is wrong is told to the other members too. */
static weft_status can_meet(const weft_i_lease *lease, const weft_group *group)
{
    if (!lease)
        return weft_i_fail(WEFT_ERR_TYPE,
                           "rendezvous: the tensor is not symmetric memory; make it with "
                           "weft_symm_empty");
    if (!(lease->block->backend->sharing >> group->world->sharing & 1))
        return weft_i_fail(WEFT_ERR_TYPE,
                           "rendezvous: memory of backend %s cannot be shared between %s",
                           lease->block->backend->name,
                           group->world->sharing == WEFT_I_BETWEEN_THREADS ? "threads of weft_spawn"
                                                                           : "processes");
    const weft_i_backend *backend = lease->block->backend;
    weft_i_group_reach reach = weft_i_reach_of_group(group, backend->device_kind);
    /* What the host reaches messages can be written to. */
    return reach == WEFT_I_REACH_LANE || (reach == WEFT_I_REACH_HOSTS && !backend->device_memory)
               ? WEFT_OK
               : weft_i_reach_refuse("rendezvous", group, "shares memory");
}

static void fill_handle(weft_symm *mem, const weft_tensor *tensor, const weft_i_lease *lease,
                        weft_group *group, weft_i_registration *registration)
{
    mem->registration = registration;
    mem->block = weft_i_block_hold(lease->block);
    mem->group = weft_i_object_hold(group);
    mem->offset = lease->offset + (size_t)tensor->offset * weft_dtype_size(tensor->dtype);
    mem->dtype = tensor->dtype;
    mem->shape = weft_i_tensor_shape(tensor);
    memcpy(mem->strides, tensor->stride, sizeof mem->strides);
}

/* The tensor could not be made: the others, who have theirs, are told.  Keeps the reason. */
static weft_symm *decline(weft_group *group)
{
    weft_i_errors reason;
    weft_i_registration *none = NULL;
    weft_i_errors_save(&reason);
    if (group && weft_i_group_usable(group) == WEFT_OK)
        weft_i_registration_new(NULL, 0, group, reason.last, &none);
    weft_i_errors_restore(&reason);
    return NULL;
}

/* The cached registration, or a new one; `can` is whether this rank can take part. */
static weft_i_registration *pair(const weft_i_lease *lease, weft_group *group, weft_status can)
{
    weft_i_registration *registration = NULL;
    if (weft_i_registration_new(lease ? lease->block : NULL, lease ? lease->offset : 0, group, can,
                                &registration) < 0)
        return NULL;
    cache(lease->block, registration);
    return registration;
}

weft_symm *weft_symm_rendezvous(weft_tensor *tensor, weft_group *group)
{
    if (!tensor)
        return weft_last_status() < 0
                   ? decline(group)
                   : weft_i_null(WEFT_ERR_INVALID_ARG, "rendezvous: the tensor is NULL");
    const weft_i_lease *lease = weft_i_block_lease_of(tensor);
    if (!group && lease)
        group = lease->block->group;
    if (!group)
        return weft_i_null(lease ? WEFT_ERR_INVALID_ARG : WEFT_ERR_TYPE, "rendezvous: %s",
                           lease ? "no group was given and the memory has no default group"
                                 : "the tensor is not symmetric memory");
    if (weft_i_group_usable(group) < 0)
        return NULL;
    /* Made first: a rank that has no memory for its handle must not leave the others with theirs.
     */
    weft_symm *mem = weft_i_object_new(WEFT_I_SYMM, sizeof *mem, destroy);
    weft_i_registration *registration = lease ? weft_i_registration_of(lease->block, group) : NULL;
    if (!registration)
        registration = pair(lease, group, mem ? can_meet(lease, group) : weft_last_status());
    if (mem && registration) {
        fill_handle(mem, tensor, lease, group, registration);
        return mem;
    }
    weft_i_registration_drop(registration);
    weft_release(mem);
    return NULL;
}

/* ---- asking ---- */

/* CPUs emulate multicast, which is no address. */
static void *multicast_of(const weft_symm *mem, const char **why_not)
{
    const weft_i_registration *r = mem->registration;
    *why_not = r->memory ? "its backend has none" : "the CPU emulates it";
    char *base =
        r->memory && r->memory->multicast ? r->memory->multicast(r->joined, why_not) : NULL;
    return base ? base + mem->offset : NULL;
}

weft_status weft_symm_describe(const weft_symm *mem, weft_symm_info *out)
{
    if (!mem)
        return weft_i_missing("weft_symm_describe: the handle is NULL");
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_symm_describe: the result is NULL");
    *out = (weft_symm_info){.group = mem->group,
                            .rank = mem->group->rank,
                            .size = mem->group->size,
                            .bytes = mem->block->bytes,
                            .offset = mem->offset,
                            .pad_bytes = mem->registration->pads.pad_bytes,
                            .channels = mem->registration->pads.channels,
                            .emulates_multicast = !mem->registration->memory};
    out->multicast_ptr = multicast_of(mem, &out->why_no_multicast);
    return WEFT_OK;
}

bool weft_symm_has_multicast(weft_device device)
{
    char reason[192];
    weft_i_errors before;
    weft_i_errors_save(&before);
    const weft_i_backend *backend = weft_i_backend_for(device);
    bool has = backend && backend->device_memory &&
               backend->device_memory->has_multicast(device, reason, sizeof reason);
    weft_i_errors_restore(&before); /* a device without it is no error */
    return has;
}

static weft_status check_rank(const weft_symm *mem, const char *what, int rank)
{
    if (!mem)
        return weft_i_missing("%s: the handle is NULL", what);
    if (rank < 0 || rank >= mem->group->size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: invalid peer: rank %d must be in [0, %d)",
                           what, rank, mem->group->size);
    return WEFT_OK;
}

/* The same for what must have an address here. */
static weft_status check_near(const weft_symm *mem, const char *what, int rank)
{
    WEFT_TRY(check_rank(mem, what, rank));
    return weft_i_far_is(mem, rank) ? weft_i_far_refuse(mem, rank, what) : WEFT_OK;
}

void *weft_symm_buffer_ptr(const weft_symm *mem, int rank)
{
    return check_near(mem, "weft_symm_buffer_ptr", rank) < 0
               ? NULL
               : mem->registration->blocks[rank]->base;
}

void *weft_symm_signal_pad_ptr(const weft_symm *mem, int rank)
{
    return check_near(mem, "weft_symm_signal_pad_ptr", rank) < 0
               ? NULL
               : weft_i_registration_pad(mem->registration, rank);
}

/* ---- tensors ---- */

static void drop_handle(void *mem)
{
    weft_i_object_drop(mem);
}

/* Is that the block of this rank, at the addresses under which it was allocated? */
static bool is_own(const weft_symm *mem, int rank, const char *base)
{
    return rank == mem->group->rank && base == mem->block->segment->base;
}

/* A tensor over `bytes` bytes from `at` on of `base`, memory of the registration that is `rank`'s.
 * Of a peer's it holds the handle; of the own block it is as symmetric as the one that was made
 * first. */
static weft_tensor *over(weft_symm *mem, int rank, char *base, size_t at, size_t bytes,
                         weft_dtype dtype, weft_shape shape, const int64_t *strides)
{
    if (!base)
        return weft_i_null(WEFT_ERR_UNSUPPORTED,
                           "memory of rank %d in group \"%s\" has no address on this rank; "
                           "weft_symm_put and weft_symm_get reach it",
                           rank, mem->group->name);
    if (is_own(mem, rank, base)) {
        weft_i_lease part = {.block = mem->block, .offset = at, .bytes = bytes, .lent = true};
        return weft_i_block_tensor(&part, dtype, shape, strides);
    }
    weft_storage *storage = weft_i_storage_wrap(base + at, bytes, mem->block->device, drop_handle,
                                                weft_i_object_hold(mem));
    if (!storage) {
        weft_i_object_drop(mem);
        return NULL;
    }
    weft_tensor *tensor = weft_i_tensor_new_strided(storage, dtype, shape, strides, 0);
    weft_i_object_drop(storage);
    return tensor;
}

/* Checks that `shape` at `offset` elements lies in `limit` bytes; gives its place in bytes. */
static weft_status place(const char *what, weft_shape shape, weft_dtype dtype, int64_t offset,
                         size_t limit, size_t *at, size_t *bytes)
{
    WEFT_TRY(weft_i_shape_check(what, dtype, shape, NULL));
    char text[WEFT_I_SHAPE_TEXT];
    size_t item = weft_dtype_size(dtype), count = (size_t)weft_i_shape_numel(shape);
    if (offset < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the offset %lld must be non-negative", what,
                           (long long)offset);
    if ((size_t)offset > limit / item || count > limit / item - (size_t)offset)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: shape %s at offset %lld (%zu bytes each) exceeds the %zu bytes "
                           "there are",
                           what, weft_i_shape_text(shape, text), (long long)offset, item, limit);
    *at = (size_t)offset * item;
    *bytes = count * item;
    return WEFT_OK;
}

weft_tensor *weft_symm_buffer(weft_symm *mem, int rank, weft_shape shape, weft_dtype dtype,
                              int64_t offset)
{
    size_t at = 0, bytes = 0;
    if (check_near(mem, "weft_symm_buffer", rank) < 0 ||
        place("weft_symm_buffer", shape, dtype, offset, mem->block->bytes, &at, &bytes) < 0)
        return NULL;
    return over(mem, rank, mem->registration->blocks[rank]->base, at, bytes, dtype, shape, NULL);
}

weft_tensor *weft_symm_remote_tensor(weft_symm *mem, int rank, weft_shape shape, weft_dtype dtype)
{
    size_t at = 0, bytes = 0;
    if (check_near(mem, "weft_symm_remote_tensor", rank) < 0 ||
        place("weft_symm_remote_tensor", shape, dtype, 0, mem->block->bytes - mem->offset, &at,
              &bytes) < 0)
        return NULL;
    if (mem->offset % weft_dtype_size(dtype))
        return weft_i_null(
            WEFT_ERR_INVALID_ARG,
            "weft_symm_remote_tensor: byte %zu, where the tensor begins, is no place "
            "for elements of %s",
            mem->offset, weft_dtype_name(dtype));
    return over(mem, rank, mem->registration->blocks[rank]->base, mem->offset, bytes, dtype, shape,
                NULL);
}

weft_tensor *weft_symm_tensor(weft_symm *mem, int rank)
{
    if (check_near(mem, "weft_symm_tensor", rank) < 0)
        return NULL;
    return over(mem, rank, mem->registration->blocks[rank]->base, mem->offset,
                mem->block->bytes - mem->offset, mem->dtype, mem->shape, mem->strides);
}

weft_tensor *weft_symm_signal_pad(weft_symm *mem, int rank, weft_shape shape, weft_dtype dtype,
                                  int64_t offset)
{
    size_t at = 0, bytes = 0;
    if (check_near(mem, "weft_symm_signal_pad", rank) < 0)
        return NULL;
    size_t limit = mem->registration->pads.pad_bytes;
    size_t item = weft_dtype_size(dtype);
    if (shape.ndim == 0 && item && offset >= 0 && (size_t)offset <= limit / item)
        shape = WEFT_SHAPE(limit / item - (size_t)offset);
    if (place("weft_symm_signal_pad", shape, dtype, offset, limit, &at, &bytes) < 0)
        return NULL;
    return over(mem, rank, weft_i_registration_pad(mem->registration, rank), at, bytes, dtype,
                shape, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks and leases; allocation of symmetric tensors.  Persistent allocations are in persistent.c.
 */
#include "symm/block.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"
#include "symm/persistent.h"
#include "symm/registration.h"
#include "weft/symm.h"

/* 0: what WEFT_SIGNAL_PAD says.  Relaxed: a setting that publishes nothing else. */
static atomic_size_t pad_setting;

size_t weft_symm_signal_pad_size(void)
{
    size_t bytes = atomic_load_explicit(&pad_setting, memory_order_relaxed);
    return bytes ? bytes : (size_t)weft_i_env_number_or_default(WEFT_I_ENV_SIGNAL_PAD);
}

weft_status weft_symm_set_signal_pad_size(size_t bytes)
{
    if (bytes < 64 || bytes % 8 || bytes > (size_t)1 << 30)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "a signal pad has 64 bytes to 1 GiB, a multiple of 8, not %zu", bytes);
    atomic_store_explicit(&pad_setting, bytes, memory_order_relaxed);
    return WEFT_OK;
}

weft_status weft_i_block_new(weft_device device, size_t bytes, weft_group *group,
                             weft_i_block **out)
{
    return weft_i_block_new_by(weft_i_backend_for(device), device, bytes, group, out);
}

weft_status weft_i_block_new_by(const weft_i_backend *backend, weft_device device, size_t bytes,
                                weft_group *group, weft_i_block **out)
{
    if (!backend)
        return weft_last_status();
    weft_i_segment *segment;
    WEFT_TRY(backend->memory->allocate(device, bytes,
                                       &segment)); /* first: it may be a call of all ranks */
    weft_i_block *block = WEFT_OS->alloc(sizeof *block);
    if (!block) {
        weft_i_segment_drop(segment);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the record of a symmetric block");
    }
    block->segment = segment;
    atomic_init(&block->references, 1);
    pthread_mutex_init(&block->lock, NULL);
    block->backend = backend;
    block->device = device;
    block->bytes = bytes;
    block->pad_bytes = weft_symm_signal_pad_size();
    block->group = weft_i_object_hold(group);
    weft_i_backend_used(device);
    *out = block;
    return WEFT_OK;
}

weft_i_block *weft_i_block_hold(weft_i_block *block)
{
    WEFT_ASSERT(atomic_load_explicit(&block->references, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&block->references, 1, memory_order_relaxed);
    return block;
}

void weft_i_block_drop(weft_i_block *block)
{
    if (!block || atomic_fetch_sub_explicit(&block->references, 1, memory_order_acq_rel) != 1)
        return;
    weft_i_registration_drop_all(atomic_load_explicit(&block->registrations, memory_order_acquire));
    weft_i_segment_drop(block->segment);
    weft_i_object_drop(block->group);
    pthread_mutex_destroy(&block->lock);
    WEFT_OS->free(block);
}

void weft_i_block_end_lease(void *argument)
{
    weft_i_lease *lease = argument;
    WEFT_ASSERT(lease->lent ||
                atomic_load_explicit(&lease->block->leases, memory_order_relaxed) > 0);
    atomic_fetch_sub_explicit(&lease->block->leases, !lease->lent,
                              memory_order_acq_rel); /* pairs with persistent.c */
    if (lease->ended)
        lease->ended(lease);
    weft_i_block_drop(lease->block);
    WEFT_OS->free(lease);
}

/* What a lease says becomes true. */
static void begin_lease(weft_i_lease *lease)
{
    WEFT_ASSERT(lease->offset <= lease->block->bytes &&
                lease->bytes <= lease->block->bytes - lease->offset);
    weft_i_block_hold(lease->block);
    atomic_fetch_add_explicit(&lease->block->leases, !lease->lent, memory_order_relaxed);
}

void weft_i_block_lend(weft_i_lease *lease, weft_storage *storage)
{
    begin_lease(lease);
    lease->storage = storage;
    storage->data = lease->block->segment->base + lease->offset;
    storage->release = weft_i_block_end_lease;
    storage->release_argument = lease;
}

bool weft_symm_is(const weft_tensor *tensor)
{
    return weft_i_block_lease_of(tensor) != NULL;
}

weft_tensor *weft_i_block_tensor(const weft_i_lease *from, weft_dtype dtype, weft_shape shape,
                                 const int64_t *strides)
{
    weft_i_lease *lease = WEFT_OS->alloc(sizeof *lease);
    if (!lease) {
        weft_i_lease copy = *from;
        if (from->ended)
            from->ended(&copy);
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a symmetric tensor");
    }
    *lease = *from;
    begin_lease(lease);
    char *data = lease->block->segment->base + lease->offset;
    weft_storage *storage = weft_i_storage_wrap(data, lease->bytes, lease->block->device,
                                                weft_i_block_end_lease, lease);
    if (!storage) {
        weft_i_block_end_lease(lease);
        return NULL;
    }
    lease->storage = storage;
    weft_tensor *tensor = weft_i_tensor_new_strided(storage, dtype, shape, strides, 0);
    weft_i_object_drop(
        storage); /* the tensor holds it; if there is none, it goes and ends the lease */
    return tensor;
}

weft_status weft_i_block_publish(weft_i_block *block, weft_i_fdpass *fdpass)
{
    pthread_mutex_lock(&block->lock);
    weft_status status =
        block->published ? WEFT_OK : block->backend->memory->publish(fdpass, block->segment);
    block->published += status == WEFT_OK;
    pthread_mutex_unlock(&block->lock);
    return status;
}

void weft_i_block_withdraw(weft_i_block *block, weft_i_fdpass *fdpass)
{
    WEFT_ASSERT(block->published > 0);
    pthread_mutex_lock(&block->lock);
    if (--block->published == 0) /* under the lock: another thread may be about to publish again */
        weft_i_fdpass_withdraw(fdpass, block->segment->key);
    pthread_mutex_unlock(&block->lock);
}

/* ---- allocation ---- */

static bool is_dense(weft_shape shape, const int64_t *strides)
{
    /* Dense: sorted by stride, each stride is the product of the sizes before it.  It does not
     * matter which is taken where several would do: sizes of 1 fit anywhere, and of two others with
     * the same stride the second never fits. */
    int64_t expected = 1;
    bool taken[WEFT_MAX_DIMS] = {false};
    for (int n = 0; n < shape.ndim; n++) {
        int next = -1;
        for (int d = 0; d < shape.ndim; d++)
            if (!taken[d] && (shape.dim[d] == 1 || strides[d] == expected))
                next = d;
        if (next < 0)
            return false;
        taken[next] = true;
        expected *= shape.dim[next];
    }
    return true;
}

weft_tensor *weft_symm_empty_strided_p2p(weft_shape shape, const int64_t *strides, weft_dtype dtype,
                                         weft_device device, weft_group *group, uint64_t alloc_id)
{
    if (weft_i_shape_check("weft_symm_empty", dtype, shape, strides) < 0)
        return NULL;
    char text[WEFT_I_SHAPE_TEXT];
    int64_t numel = weft_i_shape_numel(shape);
    if (strides && numel > 0 && !is_dense(shape, strides))
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "weft_symm_empty: the strides of shape %s leave gaps or overlap; "
                           "symmetric memory wants a dense layout",
                           weft_i_shape_text(shape, text));
    if (alloc_id & WEFT_I_PERSISTENT_OWN)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "weft_symm_empty: id %llu: those from 2^63 on are the library's own",
                           (unsigned long long)alloc_id);
    size_t bytes = (size_t)numel * weft_dtype_size(dtype);
    weft_i_block *block = NULL;
    bool made = false;
    weft_status status =
        alloc_id ? weft_i_persistent_block(alloc_id, device, bytes, group, &block, &made)
                 : weft_i_block_new(device, bytes, group, &block);
    if (status < 0)
        return NULL;
    weft_i_lease whole = {.block = block, .bytes = bytes};
    weft_tensor *tensor = weft_i_block_tensor(&whole, dtype, shape, strides);
    weft_i_block_drop(block);
    if (!tensor && made) /* a failed call leaves no id behind */
        weft_symm_forget(alloc_id);
    return tensor;
}

weft_tensor *weft_symm_empty(weft_dtype dtype, weft_device device, weft_shape shape)
{
    return weft_symm_empty_strided_p2p(shape, NULL, dtype, device, NULL, 0);
}

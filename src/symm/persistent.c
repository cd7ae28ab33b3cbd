/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of persistent blocks.  Process ranks have one for the process; each thread rank has
 * entries of its own, marked by its place, which go when the place ends.
 */
#include "symm/persistent.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/world/spawn.h"
#include "weft/symm.h"

typedef struct persistent {
    const void *owner; /* the thread rank's place; NULL for process ranks */
    uint64_t id;
    weft_i_block *block; /* held */
    struct persistent *next;
} persistent;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static persistent *first;

static persistent **find(const void *owner, uint64_t id)
{
    persistent **at = &first;
    while (*at && ((*at)->owner != owner || (*at)->id != id))
        at = &(*at)->next;
    return at;
}

static void discard(persistent *gone)
{
    weft_i_block_drop(gone->block);
    WEFT_OS->free(gone);
}

/* A thread rank ended: nobody can ask for its ids again. */
static void forget_owner(const void *owner)
{
    persistent *gone = NULL;
    pthread_mutex_lock(&lock);
    for (persistent **at = &first; *at;) {
        persistent *here = *at;
        if (here->owner == owner) {
            *at = here->next;
            here->next = gone;
            gone = here;
        } else {
            at = &here->next;
        }
    }
    pthread_mutex_unlock(&lock);
    while (gone) {
        persistent *next = gone->next;
        discard(gone);
        gone = next;
    }
}

static weft_status reuse(const persistent *known, size_t bytes, weft_i_block **out)
{
    if (known->block->bytes != bytes)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "persistent allocation %llu has %zu bytes; asked for %zu",
                           (unsigned long long)known->id, known->block->bytes, bytes);
    /* Pairs with the release of the last lease: what its user wrote is ours to overwrite. */
    if (atomic_load_explicit(&known->block->leases, memory_order_acquire))
        return weft_i_fail(WEFT_ERR_STATE,
                           "persistent allocation %llu is still in use: release its tensors first",
                           (unsigned long long)known->id);
    *out = weft_i_block_hold(known->block);
    return WEFT_OK;
}

static weft_status make(const void *owner, uint64_t id, weft_device device, size_t bytes,
                        weft_group *group, weft_i_block **out)
{
    persistent *fresh = WEFT_OS->alloc(sizeof *fresh);
    if (!fresh)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a persistent allocation");
    weft_status status = weft_i_block_new(device, bytes, group, &fresh->block);
    if (status == WEFT_OK && owner)
        weft_i_spawn_at_end(forget_owner);
    if (status < 0) {
        weft_i_block_drop(fresh->block);
        WEFT_OS->free(fresh);
        return status;
    }
    fresh->owner = owner;
    fresh->id = id;
    fresh->next = first;
    first = fresh;
    *out = weft_i_block_hold(fresh->block);
    return WEFT_OK;
}

weft_status weft_i_persistent_block(uint64_t id, weft_device device, size_t bytes,
                                    weft_group *group, weft_i_block **out, bool *made)
{
    const void *owner = weft_i_spawn_seat();
    pthread_mutex_lock(&lock);
    persistent *known = *find(owner, id);
    weft_status status =
        known ? reuse(known, bytes, out) : make(owner, id, device, bytes, group, out);
    *made = !known && status == WEFT_OK;
    pthread_mutex_unlock(&lock);
    return status;
}

bool weft_i_persistent_forget(uint64_t id)
{
    pthread_mutex_lock(&lock);
    persistent **at = find(weft_i_spawn_seat(), id), *gone = *at;
    if (gone)
        *at = gone->next;
    pthread_mutex_unlock(&lock);
    if (gone)
        discard(gone);
    return gone != NULL;
}

weft_status weft_symm_forget(uint64_t alloc_id)
{
    if (alloc_id & WEFT_I_PERSISTENT_OWN || !weft_i_persistent_forget(alloc_id))
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "there is no persistent allocation %llu",
                           (unsigned long long)alloc_id);
    return WEFT_OK;
}

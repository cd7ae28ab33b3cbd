/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims on storages; see claim.h.  The list of a storage is changed under its lock; no lock is
 * held while anybody waits.
 */
#include "tensor/object/claim.h"

#include "base/os/assert.h"
#include "tensor/object/storage.h"

static weft_i_claim *first_of(weft_storage *storage)
{
    /* Under the lock; the release in set_first is for those who look without it. */
    return atomic_load_explicit(&storage->claims, memory_order_relaxed);
}

/* Pairs with the acquire in weft_i_storage_ready: whoever sees no claim sees what was written. */
static void set_first(weft_storage *storage, weft_i_claim *claim)
{
    atomic_store_explicit(&storage->claims, claim, memory_order_release);
}

void weft_i_claim_put(weft_i_claim *claim, weft_storage *storage)
{
    WEFT_ASSERT(claim->claimant && claim->owner);
    weft_i_object_hold(claim->owner);
    pthread_mutex_lock(&storage->claims_lock);
    claim->next = first_of(storage);
    set_first(storage, claim);
    pthread_mutex_unlock(&storage->claims_lock);
}

/* Takes the claim out of the list; false if somebody else did.  Under the lock. */
static bool take_off(weft_storage *storage, weft_i_claim *claim)
{
    weft_i_claim *at = first_of(storage);
    if (at == claim) {
        set_first(storage, claim->next);
        return true;
    }
    while (at && at->next != claim)
        at = at->next;
    if (at)
        at->next = claim->next;
    return at != NULL;
}

static void end(weft_i_claim *claim, bool waited)
{
    weft_i_object *owner = claim->owner;
    claim->claimant->ended(claim, waited);
    weft_i_object_drop(owner);
}

/* The first claim in the way, its owner held; or one that only waits to be taken off. */
static weft_i_claim *find(weft_storage *storage, bool write)
{
    pthread_mutex_lock(&storage->claims_lock);
    weft_i_claim *claim = first_of(storage);
    while (claim && !claim->writes && !write && !claim->claimant->done(claim))
        claim = claim->next;
    if (claim)
        weft_i_object_hold(claim->owner);
    pthread_mutex_unlock(&storage->claims_lock);
    return claim;
}

static void finish(weft_storage *storage, weft_i_claim *claim)
{
    pthread_mutex_lock(&storage->claims_lock);
    bool mine = take_off(storage, claim);
    pthread_mutex_unlock(&storage->claims_lock);
    if (mine)
        end(claim, true);
}

/* One claim: waits, and takes it off unless it is to stay. */
static weft_status settle(weft_storage *storage, weft_i_claim *claim, bool accept)
{
    weft_status status = claim->claimant->wait(claim);
    bool stays = status < 0 && (!claim->claimant->done(claim) || (claim->writes && !accept));
    if (!stays)
        finish(storage, claim);
    return status;
}

weft_status weft_i_claim_settle(weft_storage *storage, bool write, bool accept)
{
    for (weft_i_claim *claim; (claim = find(storage, write));) {
        weft_i_object *owner = claim->owner;
        weft_status status = settle(storage, claim, accept);
        weft_i_object_drop(owner);
        if (status < 0)
            return status;
    }
    return WEFT_OK;
}

int weft_i_claim_holders(weft_storage *storage)
{
    int holders = 0;
    pthread_mutex_lock(&storage->claims_lock);
    for (weft_i_claim *claim = first_of(storage); claim; claim = claim->next)
        holders += claim->writes && claim->claimant->holds ? claim->claimant->holds(claim) : 0;
    pthread_mutex_unlock(&storage->claims_lock);
    return holders;
}

weft_status weft_i_claim_order(weft_storage *storage, bool *write, weft_stream *stream)
{
    for (weft_i_claim *claim; (claim = find(storage, *write));) {
        weft_i_object *owner = claim->owner;
        const weft_i_claimant *claimant = claim->claimant;
        weft_status status =
            claimant->order ? claimant->order(claim, stream) : claimant->wait(claim);
        *write |= claim->writes;
        if (status >= 0)
            finish(storage, claim);
        weft_i_object_drop(owner);
        if (status < 0)
            return status;
    }
    return WEFT_OK;
}

void weft_i_claim_end_all(weft_storage *storage)
{
    for (weft_i_claim *claim; (claim = first_of(storage));) {
        set_first(storage, claim->next);
        end(claim, false);
    }
}

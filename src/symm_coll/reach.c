/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the counterparts of a symmetric operand, and meeting for them at the first use. */
#include "symm_coll/reach.h"
#include "base/os/assert.h"
#include "coll/calls/run.h"
#include "coll/hosts/hosts.h"

#include "base/report/status.h"
#include "coll/calls/work.h"
#include "coll/lane/request.h"

weft_status weft_i_reach_check(const char *op, const char *which, const weft_tensor *x)
{
    if (weft_i_block_lease_of(x))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_TYPE,
                       "%s: the %s is not symmetric memory; make it with weft_symm_empty", op,
                       which);
}

weft_status weft_i_reach_agree(const weft_tensor *x, weft_i_coll_kind kind, uint32_t digest,
                               weft_group *group)
{
    weft_i_coll first;
    WEFT_TRY(weft_i_request_begin(&first, WEFT_I_FIRST_USE, group));
    first.ask.dtype = x->dtype;
    first.ask.root = (int)kind;
    WEFT_TRY(
        weft_i_request_accept(&first, (size_t)weft_i_tensor_numel(x) * weft_dtype_size(x->dtype)));
    first.digest = weft_i_digest(first.digest, digest);
    return weft_i_work_now(&first);
}

static weft_status meet(const weft_i_coll *coll, weft_tensor *x)
{
    WEFT_TRY(weft_i_reach_agree(x, coll->ask.kind, coll->digest, coll->group));
    weft_symm *mem = weft_symm_rendezvous(x, coll->group);
    if (!mem)
        return weft_last_status();
    weft_release(mem);
    return WEFT_OK;
}

weft_status weft_i_reach_open(weft_i_coll *coll, weft_tensor *x, weft_i_reach *out)
{
    const weft_i_lease *lease = weft_i_block_lease_of(x);
    WEFT_ASSERT(lease);                               /* weft_i_reach_check */
    WEFT_TRY(weft_i_storage_ready(x->storage, true)); /* others may write it */
    out->registration = weft_i_registration_of(lease->block, coll->group);
    if (!out->registration) {
        WEFT_TRY(meet(coll, x));
        out->registration = weft_i_registration_of(lease->block, coll->group);
    }
    out->offset = (size_t)(weft_i_tensor_data(x) - lease->block->segment->base);
    coll->digest = weft_i_digest(coll->digest, out->registration->serial);
    coll->digest = weft_i_digest(coll->digest, out->offset);
    return WEFT_OK;
}

void weft_i_reach_close(weft_i_reach *reach)
{
    weft_i_registration_drop(reach->registration);
    reach->registration = NULL;
}

weft_status weft_i_reach_run(weft_i_coll *coll, weft_tensor *x)
{
    weft_i_reach reach = {0};
    WEFT_TRY(weft_i_reach_open(coll, x, &reach));
    coll->reach = &reach;
    weft_status status = weft_i_work_now(coll);
    weft_i_reach_close(&reach);
    return status;
}

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    weft_i_kind_run(WEFT_I_FIRST_USE, weft_i_coll_barrier);
    weft_i_hosts_kind_run(WEFT_I_FIRST_USE, weft_i_hosts_barrier);
}

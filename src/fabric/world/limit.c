/* SPDX-License-Identifier: Apache-2.0 */
/* The thread's open limits: a stack of fixed depth, so that opening one cannot fail for want of
 * memory and a thread that ends leaves nothing. */
#include "fabric/world/limit.h"

#include "base/os/assert.h"
#include "base/report/status.h"
#include "base/share/wait.h"

_Thread_local int64_t weft_i_limit = WEFT_DEFAULT;

static _Thread_local int64_t outer[WEFT_MAX_LIMITS]; /* what held before each open limit */
static _Thread_local int depth;

weft_status weft_limit_open(int64_t timeout_ms)
{
    if (timeout_ms == 0 || timeout_ms < WEFT_FOREVER)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_limit_open: a limit is a positive number of ms or WEFT_FOREVER, "
                           "not %lld",
                           (long long)timeout_ms);
    if (depth == WEFT_MAX_LIMITS)
        return weft_i_fail(WEFT_ERR_LIMIT, "weft_limit_open: %d limits are open in this thread",
                           depth);
    outer[depth++] = weft_i_limit;
    WEFT_ASSERT(depth > 0 && depth <= WEFT_MAX_LIMITS);
    weft_i_limit = timeout_ms;
    return WEFT_OK;
}

weft_status weft_limit_close(void)
{
    if (depth == 0)
        return weft_i_fail(WEFT_ERR_STATE, "weft_limit_close: no limit is open in this thread");
    weft_i_limit = outer[--depth];
    return WEFT_OK;
}

int64_t weft_limit_now(void)
{
    return weft_i_limit;
}

void weft_limit_interrupt(weft_interrupt asked, void *argument)
{
    weft_i_wait_interrupt = (weft_i_interrupt){asked, argument};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Copying between ranks without a bounce buffer; see cma.h. */
#include "coll/lane/cma.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "fabric/group/exchange.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static bool can_read(const weft_i_sample *theirs)
{
    uint64_t value = 0;
    return WEFT_OS->read_process(theirs->process, &value, theirs->address, sizeof value) ==
               (ssize_t)sizeof value &&
           value == theirs->value;
}

static weft_status show(weft_group *group, const char *what, const weft_i_sample *mine,
                        weft_i_sample *all)
{
    return weft_i_group_exchange_later(group, what, mine, sizeof *mine, all, WEFT_DEFAULT);
}

weft_status weft_i_cma_agree(weft_i_lane *lane, weft_group *group)
{
    if (group->world->sharing == WEFT_I_BETWEEN_THREADS || group->size == 1) {
        lane->cma = WEFT_I_CMA_THREADS;
        return WEFT_OK;
    }
    uint64_t value = (uint64_t)WEFT_OS->clock_ns();
    weft_i_sample mine = {.address = (uintptr_t)&value,
                          .value = value,
                          .process = weft_i_os_process(),
                          .mode = (int)lane->mode,
                          .can = !strcasecmp(weft_i_env_text(WEFT_I_ENV_CMA), "auto")};
    WEFT_TRY(show(group, "cma", &mine, lane->samples));
    for (int rank = 0; rank < lane->size && mine.can; rank++)
        mine.can = rank == lane->me || can_read(&lane->samples[rank]);
    WEFT_TRY(show(group, "cma", &mine, lane->samples));
    lane->cma = WEFT_I_CMA_KERNEL;
    for (int rank = 0; rank < lane->size; rank++) {
        if (!lane->samples[rank].can)
            lane->cma = WEFT_I_CMA_NONE;
        /* One that shares its core makes all give way. */
        if (lane->samples[rank].mode > (int)lane->mode)
            lane->mode = (weft_i_wait_mode)lane->samples[rank].mode;
    }
    if (lane->me == 0)
        weft_i_log(WEFT_LOG_INFO, "group \"%s\": large copies of ordinary memory %s",
                   weft_group_name(group),
                   lane->cma == WEFT_I_CMA_KERNEL
                       ? "by the kernel (cma) or through bounce buffers, as measured"
                       : "through bounce buffers: ranks may not read each other's memory");
    return WEFT_OK;
}

typedef struct missed {
    const weft_i_label *label;
    int rank;
} missed;

static bool is_known(void *arg)
{
    const missed *it = arg;
    return weft_i_group_fate(it->label->group, it->rank) < 0;
}

/* A process may be gone some time before its death shows in the job's page; then the others, whom
 * this error ends the operation for, could not tell whose. */
static weft_status failed(const weft_i_lane *lane, const weft_i_label *label, int rank,
                          size_t bytes, int error)
{
    enum { MOMENT_MS = 100 };
    missed it = {label, rank};
    weft_i_wait_until(is_known, &it, weft_i_os_deadline(MOMENT_MS));
    WEFT_TRY(weft_i_group_lost(label, rank));
    if (error == ESRCH)
        return weft_i_fail(WEFT_ERR_PEER_DEAD, "%s: rank %d (process %d) is gone", label->op,
                           label->group->members[rank], lane->samples[rank].process);
    return weft_i_fail_errno(error, "%s: %zu bytes between this rank's memory and that of rank %d",
                             label->op, bytes, rank);
}

weft_status weft_i_cma(const weft_i_lane *lane, const weft_i_label *label, int rank, void *to,
                       uint64_t from, size_t bytes)
{
    if (lane->cma == WEFT_I_CMA_THREADS || rank == lane->me) {
        memcpy(to, (const void *)(uintptr_t)from, bytes);
        return WEFT_OK;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t n = WEFT_OS->read_process(lane->samples[rank].process, (char *)to + done,
                                          from + done, bytes - done);
        if (n <= 0)
            return failed(lane, label, rank, bytes, n < 0 ? errno : EFAULT);
        done += (size_t)n;
    }
    return WEFT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of signals: the barrier of a channel, putting a signal and waiting for one.  One block.
 */
#ifndef WEFT_CUDA_KERNELS_SIGNAL_H
#define WEFT_CUDA_KERNELS_SIGNAL_H

#include "meet.h"

/* What the stream wrote before is seen by all after.  A kernel boundary has made it visible on
 * the device; the release makes it visible to peers on other devices as well. */
WEFT_K void weft_k_run_barrier(const weft_k_call *c)
{
    weft_k_begin();
    weft_k_meeting m = {c,         c->group.channels_at, c->channel, 0,
                        c->digest, WEFT_K_BARRIER,       c->channel, 0};
    m.epoch = weft_k_epoch(c, m.at, m.line) + 1;
    if (!weft_k_sync_all(!weft_k_is_poisoned(&m)))
        return;
    if (weft_k_meet(&m, 1))
        weft_k_set_epoch(&m);
}

WEFT_K uint32_t *weft_k_semaphore(const weft_k_group *g, int owner, uint32_t channel, int source)
{
    return (uint32_t *)(void *)(weft_k_pad(g, owner) + g->semaphores_at) +
           (uint64_t)channel * (uint32_t)g->size + (uint32_t)source;
}

/* Waits while the last signal is not taken. */
WEFT_K void weft_k_run_put(const weft_k_call *c)
{
    weft_k_begin();
    weft_k_meeting m = {c, 0, 0, 0, c->digest, WEFT_K_PUT, c->channel, 0};
    weft_k_patience p = {0, 0, 0, 0, 0, 0, 0};
    if (weft_k_thread() != 0 || weft_k_is_poisoned(&m))
        return;
    uint32_t *word = weft_k_semaphore(&c->group, c->peer, c->channel, c->group.rank);
    /* Both ways, with weft_k_run_wait: what came before the signal is seen behind the wait, and what
     * came before the last wait is over for whoever signals again (pipe.h, WEFT_I_WORD_HELD). */
    while (!weft_k_swap32(word, 0, 1))
        if (weft_k_must_stop(&m, &p, c->peer))
            break;
    weft_k_waited(&m, &p);
    if (p.why)
        weft_k_give_up(&m, &p);
}

WEFT_K void weft_k_run_wait(const weft_k_call *c)
{
    weft_k_begin();
    weft_k_meeting m = {c, 0, 0, 0, c->digest, WEFT_K_WAIT, c->channel, 0};
    weft_k_patience p = {0, 0, 0, 0, 0, 0, 0};
    if (weft_k_thread() != 0 || weft_k_is_poisoned(&m))
        return;
    uint32_t *word = weft_k_semaphore(&c->group, c->group.rank, c->channel, c->peer);
    /* Pairs with weft_k_run_put, both ways.  There may be more than one, of those that come with
     * data from a library (backends/nvshmem). */
    uint32_t count = 1;
    while (!weft_k_swap32(word, count, count - 1)) {
        uint32_t seen = weft_k_load32(word);
        count = seen ? seen : 1;
        if (weft_k_must_stop(&m, &p, c->peer))
            break;
    }
    weft_k_waited(&m, &p);
    if (p.why)
        weft_k_give_up(&m, &p);
}

#endif

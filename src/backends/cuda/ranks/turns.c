/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a group's order on a device; see turns.h. */
#include "turns.h"

#include "base/os/os.h"

typedef struct turns {
    weft_i_key group;
    int rank; /* a thread's world has other ranks in this process */
    const weft_i_cuda_device *device;
    weft_i_cuda_queue *queue;
    int opened;
    struct turns *next;
} turns;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static turns *first;

static weft_status find_or_make(weft_i_key group, int rank, const weft_i_cuda_device *device,
                                turns **out)
{
    turns *found = first;
    while (found && !(found->rank == rank && found->device == device &&
                      weft_i_key_equal(found->group, group)))
        found = found->next;
    *out = found;
    if (found)
        return WEFT_OK;
    if (!(found = WEFT_OS->alloc(sizeof *found)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a group's order among streams");
    *found = (turns){.group = group, .rank = rank, .device = device, .next = first};
    weft_status status = weft_i_cuda_queue_new(&found->queue);
    if (status < 0) {
        WEFT_OS->free(found);
        return status;
    }
    *out = first = found;
    return WEFT_OK;
}

weft_status weft_i_cuda_turns_open(const weft_i_circle *circle, const weft_i_cuda_device *device,
                                   weft_i_cuda_queue **out)
{
    turns *found = NULL;
    pthread_mutex_lock(&lock);
    weft_status status = find_or_make(weft_i_circle_key(circle), circle->rank, device, &found);
    if (found)
        found->opened++;
    *out = found ? found->queue : NULL;
    pthread_mutex_unlock(&lock);
    return status;
}

void weft_i_cuda_turns_close(weft_i_cuda_queue *queue)
{
    if (!queue)
        return;
    pthread_mutex_lock(&lock);
    turns **at = &first;
    while ((*at)->queue != queue)
        at = &(*at)->next;
    turns *found = *at;
    bool last = --found->opened == 0;
    if (last)
        *at = found->next;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    weft_i_cuda_queue_drop(queue);
    WEFT_OS->free(found);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The list of all queues; see posted.h. */
#include "coll/posted.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* taken before a queue's */
static weft_i_posted *first;

static bool is_posted(const weft_storage *storage, const weft_tensor *tensor)
{
    bool uses = false;
    pthread_mutex_lock(&lock);
    for (const weft_i_posted *at = first; at && !uses; at = at->after)
        uses = weft_i_queue_uses(at->queue, storage, tensor);
    pthread_mutex_unlock(&lock);
    return uses;
}

void weft_i_posted_add(weft_i_posted *posted, const weft_i_queue *queue)
{
    pthread_mutex_lock(&lock);
    *posted = (weft_i_posted){queue, NULL, first};
    if (first)
        first->before = posted;
    first = posted;
    weft_i_storage_watch_posted(is_posted);
    pthread_mutex_unlock(&lock);
}

void weft_i_posted_remove(weft_i_posted *posted)
{
    pthread_mutex_lock(&lock);
    if (posted->before)
        posted->before->after = posted->after;
    else
        first = posted->after;
    if (posted->after)
        posted->after->before = posted->before;
    pthread_mutex_unlock(&lock);
}

void weft_i_posted_forget(void)
{
    pthread_mutex_lock(&lock);
    first = NULL;
    pthread_mutex_unlock(&lock);
}

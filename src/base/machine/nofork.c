/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One list of descriptors per process, closed by the child's side of fork.  The list is
 * process-wide because descriptors are; it holds numbers only and is never more than a few entries
 * long besides a server's clients.
 */
#include "base/machine/nofork.h"

#include "base/os/os.h"
#include "base/report/status.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int *list;
static size_t count, capacity;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (size_t i = 0; i < count; i++)
        WEFT_OS->close(list[i]);
    count = 0;
    pthread_mutex_unlock(&lock);
}

static void listen_for_forks(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

static int *grown(void)
{
    size_t wanted = capacity ? 2 * capacity : 16;
    int *longer = WEFT_OS->resize(list, wanted * sizeof *list);
    if (longer) {
        list = longer;
        capacity = wanted;
    }
    return longer;
}

weft_status weft_i_nofork_add(int fd)
{
    pthread_once(&once, listen_for_forks);
    pthread_mutex_lock(&lock);
    int fits = count < capacity || grown();
    if (fits)
        list[count++] = fd;
    pthread_mutex_unlock(&lock);
    return fits ? WEFT_OK : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to note descriptor %d", fd);
}

void weft_i_nofork_close(int fd)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (list[i] == fd) {
            list[i] = list[--count];
            break;
        }
    if (!count) { /* so that a program that closed everything leaves nothing behind */
        WEFT_OS->free(list);
        list = NULL;
        capacity = 0;
    }
    WEFT_OS->close(fd); /* under the lock: a fork between the two would close a number that is no
                           longer ours */
    pthread_mutex_unlock(&lock);
}

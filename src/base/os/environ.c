/* SPDX-License-Identifier: Apache-2.0 */
/* Variables for a while; see environ.h. */
#include "base/os/environ.h"

#include "base/os/assert.h"
#include "base/os/os.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A list that was the environment once.  It is never freed: a getenv may still walk along it. */
typedef struct lent {
    struct lent *older;
    char **before; /* what the environment was */
    const char *const *settings;
    size_t count;  /* of settings */
    char **hidden; /* what stood there for each; the list itself is not ours, and may move */
    char *entries[];
} lent;
static lent *last;
static pthread_mutex_t lending = PTHREAD_MUTEX_INITIALIZER;

static size_t length_of(char *const *list)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

/* The entry of a list that is about the same variable as a setting; NULL: none. */
static char *entry_in(char *const *list, const char *setting)
{
    size_t length = strcspn(setting, "=") + 1;
    for (; list && *list; list++)
        if (!strncmp(*list, setting, length))
            return *list;
    return NULL;
}

bool weft_i_environ_lend(const char *const settings[])
{
    pthread_mutex_lock(&lending);
    char **before = environ;
    size_t count = length_of(before), more = length_of((char *const *)settings);
    lent *list = WEFT_OS->alloc(sizeof *list + (count + 2 * more + 1) * sizeof(char *));
    if (!list) {
        pthread_mutex_unlock(&lending);
        return false;
    }
    *list = (lent){.older = last,
                   .before = before,
                   .settings = settings,
                   .count = more,
                   .hidden = list->entries + count + more + 1};
    for (size_t i = 0; i < more; i++)
        list->hidden[i] = entry_in(before, settings[i]);
    memcpy(list->entries, settings, more * sizeof *settings);
    if (count)
        memcpy(list->entries + more, before, count * sizeof *before);
    last = list;
    /* Release: who reads along the new list finds its entries. */
    __atomic_store_n(&environ, list->entries, __ATOMIC_RELEASE);
    return true;
}

/* Another thread has set something meanwhile, in a list of its own: only what was lent goes, and what
 * it hid comes back. */
static void take_out(const char *setting, const char *hidden)
{
    char name[64];
    size_t length = strcspn(setting, "=");
    if (length >= sizeof name)
        return;
    memcpy(name, setting, length);
    name[length] = 0;
    if (getenv(name) != setting + length + 1)
        return;
    unsetenv(name);
    if (hidden)
        setenv(name, hidden + length + 1, 1);
}

void weft_i_environ_restore(void)
{
    WEFT_ASSERT(last);
    if (environ == last->entries)
        __atomic_store_n(&environ, last->before, __ATOMIC_RELEASE);
    else
        for (size_t i = 0; i < last->count; i++)
            take_out(last->settings[i], last->hidden[i]);
    pthread_mutex_unlock(&lending);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Books of losses, and how often each was told; see loss.h.  Only error paths come here, so one
 * lock serves all books. */
#include "base/report/loss.h"

#include "base/os/assert.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

enum { KINDS = 64 }; /* of errors counted at a time; the oldest makes room */

typedef struct tally {
    uint64_t book, count;
    uint32_t group;
    weft_status status;
} tally;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weft_i_losses *books;
static uint64_t last_id;
static tally tallies[KINDS];
static unsigned next_tally;

void weft_i_losses_open(weft_i_losses *losses)
{
    *losses = (weft_i_losses){.first = WEFT_OK};
    pthread_mutex_lock(&lock);
    losses->id = ++last_id;
    losses->next = books;
    books = losses;
    pthread_mutex_unlock(&lock);
}

void weft_i_losses_close(weft_i_losses *losses)
{
    pthread_mutex_lock(&lock);
    weft_i_losses **at = &books;
    while (*at && *at != losses)
        at = &(*at)->next;
    if (*at)
        *at = losses->next;
    pthread_mutex_unlock(&lock);
}

void weft_i_losses_forget(void)
{
    pthread_mutex_lock(&lock);
    books = NULL;
    pthread_mutex_unlock(&lock);
}

weft_status weft_i_losses_first(const weft_i_losses *losses, char text[WEFT_I_MESSAGE_BYTES])
{
    pthread_mutex_lock(&lock);
    bool owed = losses->first == WEFT_OK && losses->untold > 0;
    weft_status first = owed ? losses->untold_first : losses->first;
    memcpy(text, owed ? losses->untold_text : losses->text, WEFT_I_MESSAGE_BYTES);
    pthread_mutex_unlock(&lock);
    return first;
}

void weft_i_losses_owe(weft_i_losses *losses, weft_status status, const char *text)
{
    WEFT_ASSERT(status < 0);
    pthread_mutex_lock(&lock);
    if (losses->untold++ == 0) {
        losses->untold_first = status;
        strncpy(losses->untold_text, text, sizeof losses->untold_text - 1);
    }
    pthread_mutex_unlock(&lock);
}

void weft_i_losses_tell(weft_i_losses *losses)
{
    pthread_mutex_lock(&lock);
    WEFT_ASSERT(losses->untold > 0);
    losses->untold--;
    pthread_mutex_unlock(&lock);
}

bool weft_i_loss_note(uint64_t id, uint64_t thread, weft_status status, const char *text)
{
    WEFT_ASSERT(status < 0);
    bool noted = false;
    pthread_mutex_lock(&lock);
    for (weft_i_losses *book = books; book; book = book->next) {
        if (book->id != id || book->first != WEFT_OK)
            continue;
        book->first = status;
        book->thread = thread;
        strncpy(book->text, text, sizeof book->text - 1);
        noted = true;
    }
    pthread_mutex_unlock(&lock);
    return noted;
}

void weft_i_loss_forget(uint64_t thread)
{
    pthread_mutex_lock(&lock);
    for (weft_i_losses *book = books; book; book = book->next) {
        if (book->first == WEFT_OK || book->thread != thread)
            continue;
        book->first = WEFT_OK;
        memset(book->text, 0, sizeof book->text);
    }
    pthread_mutex_unlock(&lock);
}

uint64_t weft_i_loss_count(uint64_t id, uint32_t group, weft_status status)
{
    pthread_mutex_lock(&lock);
    tally *mine = NULL;
    for (int i = 0; i < KINDS && !mine; i++)
        if (tallies[i].book == id && tallies[i].group == group && tallies[i].status == status)
            mine = &tallies[i];
    if (!mine) {
        mine = &tallies[next_tally++ % KINDS];
        *mine = (tally){.book = id, .group = group, .status = status};
    }
    uint64_t count = ++mine->count;
    pthread_mutex_unlock(&lock);
    return count;
}

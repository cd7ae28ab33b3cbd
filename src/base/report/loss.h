/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank has lost.  An error that ends a group concerns the whole rank, whichever of its
 * threads meets it: the rank keeps the first one in a book, for weft_finish.  Such errors repeat
 * with every further call on the group, so the log shows the first of each group and kind, and then
 * only how many there are.
 */
#ifndef WEFT_BASE_LOSS_H
#define WEFT_BASE_LOSS_H

#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_I_MESSAGE_BYTES = 2048 };

/* The book of one rank; its owner closes it before the memory goes. */
typedef struct weft_i_losses {
    struct weft_i_losses *next; /* in the list of open books; it and the rest: under one lock */
    uint64_t id;                /* never 0, never used again */
    weft_status first;
    uint64_t thread; /* that met it: its weft_clear_error strikes it out */
    char text[WEFT_I_MESSAGE_BYTES];
    /* Posted operations that failed, and whose error nobody has taken yet; why the first did. */
    int untold;
    weft_status untold_first;
    char untold_text[WEFT_I_MESSAGE_BYTES];
} weft_i_losses;

void weft_i_losses_open(weft_i_losses *losses);
void weft_i_losses_close(weft_i_losses *losses);

/* Forgets all books: those of ranks that died in a simulator, where their memory is gone. */
void weft_i_losses_forget(void);

/* A posted operation failed; and: its error was taken by somebody, or dropped with the operation. */
void weft_i_losses_owe(weft_i_losses *losses, weft_status status, const char *text);
void weft_i_losses_tell(weft_i_losses *losses);

/* The first loss that nobody has cleared, else the first failure that nobody was told; WEFT_OK and
 * "" if there is none.  Copies the message. */
weft_status weft_i_losses_first(const weft_i_losses *losses, char text[WEFT_I_MESSAGE_BYTES]);

/* ---- for status.c ---- */

/* Notes a loss in the book `id`, unless there is one already.  True if this was the first. */
bool weft_i_loss_note(uint64_t id, uint64_t thread, weft_status status, const char *text);

/* Strikes out what `thread` has noted, in all books. */
void weft_i_loss_forget(uint64_t thread);

/* Counts an error of this group and kind; how many there are now. */
uint64_t weft_i_loss_count(uint64_t id, uint32_t group, weft_status status);

#endif

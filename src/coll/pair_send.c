/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: letters go into the box of their peer, in order; see box.h for how. */
#include "coll/pair.h"

#include "base/os.h"
#include "coll/peek.h"

/* Looks how far the receiver is. */
static void look(weft_i_pair *pair)
{
    uint32_t gone = weft_i_box_taken(pair->outbox);
    if (gone != pair->gone)
        pair->freed = pair->ends[(gone - 1) % WEFT_I_BOX_SHEETS];
    pair->gone = gone;
}

static weft_i_sheet *next_sheet(weft_i_pair *pair)
{
    if (pair->sent - pair->gone == WEFT_I_BOX_SHEETS)
        look(pair);
    return pair->sent - pair->gone == WEFT_I_BOX_SHEETS
               ? NULL
               : weft_i_box_sheet(pair->outbox, pair->sent);
}

static void show(weft_i_pair *pair, weft_i_sheet *sheet, const weft_i_letter *letter,
                 weft_i_sheet_kind kind)
{
    sheet->tag = letter->tag;
    sheet->kind = (uint16_t)kind;
    pair->ends[pair->sent % WEFT_I_BOX_SHEETS] = pair->used;
    weft_i_box_show(pair->outbox, pair->sent++, letter->digest);
}

static size_t in_lines(size_t bytes)
{
    return (bytes + WEFT_I_LINE - 1) / WEFT_I_LINE * WEFT_I_LINE;
}

/* How much of `left` bytes goes into the room as one piece now; 0: it is full.  Pieces of a quarter
 * let sender and receiver copy at the same time; one that would go beyond the end is cut there. */
static size_t fit(weft_i_pair *pair, size_t room, size_t left)
{
    size_t length =
        weft_i_coll_min(weft_i_coll_min(left, room / 4), room - (size_t)(pair->used % room));
    if (pair->used + in_lines(length) - pair->freed > room)
        look(pair);
    return pair->used + in_lines(length) - pair->freed > room ? 0 : length;
}

static bool put_short(weft_i_pair *pair, weft_i_letter *letter)
{
    weft_i_sheet *sheet = next_sheet(pair);
    if (!sheet)
        return false;
    if (letter->bytes)
        memcpy(sheet->text, letter->data, letter->bytes);
    sheet->length = (uint16_t)letter->bytes;
    letter->done = letter->bytes;
    show(pair, sheet, letter, WEFT_I_SHEET_SHORT);
    return true;
}

static bool put_piece(weft_i_pair *pair, size_t room, weft_i_letter *letter)
{
    weft_i_sheet *sheet = next_sheet(pair);
    size_t length = sheet ? fit(pair, room, letter->bytes - letter->done) : 0;
    if (!length)
        return false;
    size_t at = (size_t)(pair->used % room);
    memcpy(pair->outbox->room + at, letter->data + letter->done, length);
    sheet->piece = (weft_i_sheet_piece){
        .bytes = letter->bytes, .at = (uint32_t)at, .length = (uint32_t)length};
    pair->used += in_lines(length);
    show(pair, sheet, letter, letter->done ? WEFT_I_SHEET_NEXT : WEFT_I_SHEET_FIRST);
    letter->done += length;
    letter->begun = true;
    return true;
}

static int free_offer(const weft_i_pair *pair)
{
    for (int i = 0; i < WEFT_I_BOX_OFFERS; i++)
        if (!pair->offers[i])
            return i;
    return -1;
}

static const weft_i_lease *lease_of(const weft_i_letter *letter)
{
    return letter->tensor ? weft_i_block_lease_of(letter->tensor) : NULL;
}

/* Where the message lies, for those who have mapped that memory too. */
static void tell_segment(weft_i_sheet_piece *piece, const weft_i_letter *letter)
{
    const weft_i_lease *lease = lease_of(letter);
    if (!lease)
        return;
    piece->segment = lease->block->segment->key;
    piece->offset = (uint64_t)(letter->data - lease->block->segment->base);
}

/* Shows the receiver where the message lies; false if that cannot be: then it goes in pieces. */
static bool put_offer(weft_i_pair *pair, weft_i_letter *letter)
{
    int offer = free_offer(pair);
    weft_i_sheet *sheet = offer >= 0 ? next_sheet(pair) : NULL;
    if (!sheet)
        return false;
    weft_i_box_offer(pair->outbox, (uint32_t)offer);
    sheet->piece = (weft_i_sheet_piece){.bytes = letter->bytes,
                                        .address = (uint64_t)(uintptr_t)letter->data,
                                        .offer = (uint32_t)offer};
    tell_segment(&sheet->piece, letter);
    letter->offer = (uint32_t)offer;
    letter->offered = letter->begun = true;
    pair->offers[offer] = letter;
    pair->offer_count++;
    show(pair, sheet, letter, WEFT_I_SHEET_OFFER);
    return true;
}

static bool may_offer(const weft_i_lane *lane, const weft_i_pair *pair, const weft_i_letter *letter)
{
    if (letter->bytes <= WEFT_I_BOX_ROOM || letter->done ||
        (lane->peek == WEFT_I_PEEK_NONE && pair->rank != lane->me))
        return false;
    /* Half a room is copied twice as quickly as once by the kernel, and waits for nobody. */
    return letter->bytes > lane->mail->room / 2 || lease_of(letter);
}

/* Moves a send on.  True: it has left; it is over, or its offer stands. */
static bool move(const weft_i_lane *lane, weft_i_pair *pair, weft_i_letter *letter, bool *moved)
{
    if (letter->bytes <= WEFT_I_BOX_SHORT)
        return put_short(pair, letter) ? (*moved = true) : false;
    if (may_offer(lane, pair, letter) && put_offer(pair, letter))
        return *moved = true;
    while (letter->done < letter->bytes && put_piece(pair, lane->mail->room, letter))
        *moved = true;
    return letter->done == letter->bytes;
}

static void end_offers(weft_i_pair *pair)
{
    for (uint32_t i = 0; pair->offer_count && i < WEFT_I_BOX_OFFERS; i++) {
        weft_i_letter *letter = pair->offers[i];
        if (letter && weft_i_box_is_done(pair->outbox, i)) {
            pair->offers[i] = NULL;
            pair->offer_count--;
            weft_i_letter_end(letter, WEFT_OK);
        }
    }
}

void weft_i_pair_send(weft_i_lane *lane, weft_i_pair *pair)
{
    bool moved = false;
    if (pair->offer_count)
        end_offers(pair);
    for (weft_i_letter *letter; (letter = pair->sends) && move(lane, pair, letter, &moved);) {
        weft_i_letter_remove(&pair->sends, &pair->last_send, letter);
        if (!letter->offered)
            weft_i_letter_end(letter, WEFT_OK);
    }
    if (moved)
        weft_i_letter_ring(lane, pair->rank);
}

bool weft_i_pair_withdraw(const weft_i_lane *lane, weft_i_pair *pair, const weft_i_letter *letter)
{
    /* A thread that copies ends soon; a process may have been stopped. */
    bool force = lane->peek != WEFT_I_PEEK_THREADS;
    while (!weft_i_box_withdraw(pair->outbox, letter->offer, force))
        WEFT_OS->yield();
    pair->offers[letter->offer] = NULL;
    pair->offer_count--;
    return !weft_i_box_is_done(pair->outbox, letter->offer);
}

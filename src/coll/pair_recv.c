/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving: the messages in the box of a peer are read in order, and each goes to the receive that
 * was posted first of those it matches.  One that matches none stays in the box as long as nobody
 * waits for what may lie behind it; then it is kept aside.
 */
#include "coll/pair.h"

#include "base/os.h"
#include "base/status.h"
#include "coll/peek.h"

#include <stdio.h>

enum { GRACE_NS = 100 * 1000 * 1000 }; /* within which a death shows, with much to spare */

static weft_i_call call_of(const weft_i_letter *letter)
{
    return (weft_i_call){letter->group, weft_i_coll_name(letter->kind), -1};
}

/* ---- the end of a message ---- */

/* The segment in which an offered message lies, held, if this process has mapped it; or NULL. */
static weft_i_segment *find_segment(const weft_i_sheet_piece *piece)
{
    weft_i_segment *segment = piece->segment.word[0] ? weft_i_segment_find(piece->segment) : NULL;
    if (segment &&
        (piece->offset > segment->bytes || piece->bytes > segment->bytes - piece->offset)) {
        weft_i_segment_drop(segment);
        return NULL;
    }
    return segment;
}

/* Copies offered memory of a peer: from `near` if that is not NULL.  WEFT_IN_PROGRESS: the offer
 * was withdrawn. */
static weft_status copy_offer(weft_i_lane *lane, const weft_i_pair *pair, weft_i_letter *letter,
                              uint64_t address, const char *near)
{
    enum { PART = 16 << 20 }; /* between looks at whether the offer still stands */
    weft_i_call call = call_of(letter);
    weft_status status = WEFT_OK;
    while (letter->done < letter->bytes) {
        size_t part = weft_i_coll_min(letter->bytes - letter->done, PART);
        if (!weft_i_box_claim(pair->inbox, letter->offer))
            return WEFT_IN_PROGRESS;
        if (near)
            memcpy(letter->data + letter->done, near + letter->done, part);
        else
            status = weft_i_peek(lane, &call, pair->rank, letter->data + letter->done,
                                 address + letter->done, part);
        letter->done += status == WEFT_OK ? part : 0;
        if (!weft_i_box_give_back(pair->inbox, letter->offer, letter->done == letter->bytes))
            return WEFT_IN_PROGRESS;
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

/* A peer that cannot be read may be dead, which shows a moment later: that is the news then. */
static weft_status find_cause(const weft_i_pair *pair, const weft_i_letter *letter,
                              weft_status status)
{
    weft_i_call call = call_of(letter);
    int64_t end = WEFT_OS->clock_ns() + GRACE_NS;
    while (weft_i_group_fate(letter->group, pair->rank) == WEFT_OK && WEFT_OS->clock_ns() < end)
        WEFT_OS->yield();
    WEFT_TRY(weft_i_group_lost(&call, pair->rank));
    return status;
}

static void take_offer(weft_i_lane *lane, weft_i_pair *pair, weft_i_letter *letter,
                       const weft_i_sheet_piece *piece)
{
    letter->offer = piece->offer;
    letter->begun = true;
    weft_i_segment *segment = find_segment(piece);
    weft_status status = copy_offer(lane, pair, letter, piece->address,
                                    segment ? segment->base + piece->offset : NULL);
    weft_i_segment_drop(segment);
    if (status == WEFT_OK) {
        weft_i_letter_end(letter, WEFT_OK);
        weft_i_letter_ring(lane, pair->rank);
        return;
    }
    pair->broken = true;
    if (status < 0 && find_cause(pair, letter, status) < 0)
        weft_i_letter_end_failed(letter);
    else
        pair->taking = letter; /* withdrawn: the group is lost, which whoever waits will find */
}

/* ---- which receive ---- */

static weft_i_letter *first_with(weft_i_letter *letter, int tag)
{
    while (letter && letter->tag != tag)
        letter = letter->next;
    return letter;
}

/* The receive that gets a message with this tag: the first that was posted.  NULL: none. */
static weft_i_letter *find_receive(const weft_i_lane *lane, const weft_i_pair *pair, int tag)
{
    weft_i_letter *own = first_with(pair->receives, tag);
    weft_i_letter *any = first_with(lane->mail->any, tag);
    return !any || (own && own->order < any->order) ? own : any;
}

/* The letter has met its message. */
static void take_out(weft_i_lane *lane, weft_i_pair *pair, weft_i_letter *letter)
{
    if (letter->peer == WEFT_ANY)
        weft_i_letter_remove(&lane->mail->any, &lane->mail->last_any, letter);
    else
        weft_i_letter_remove(&pair->receives, &pair->last_receive, letter);
    letter->source = pair->rank;
}

static void refuse(weft_i_pair *pair, weft_i_letter *letter, uint64_t bytes)
{
    weft_i_fail(WEFT_ERR_MISMATCH,
                "recv in group \"%s\": rank %d sends %llu bytes, rank %d expects %zu bytes of %s%s",
                letter->group->name, pair->rank, (unsigned long long)bytes, letter->group->rank,
                letter->bytes, weft_dtype_name(letter->dtype),
                bytes == letter->bytes ? "; the dtypes differ" : "");
    letter->begun = pair->broken = true; /* the message stays where it is: nothing can follow it */
    /* Pairs with the acquire in `sender_lost`. */
    atomic_store_explicit(&pair->inbox->refused, letter->bytes + 1, memory_order_release);
    weft_i_letter_end_failed(letter);
}

/* ---- messages kept aside ---- */

static void forget(weft_i_pair *pair, weft_i_kept *kept)
{
    weft_i_kept **at = &pair->kept;
    while (*at != kept)
        at = &(*at)->next;
    *at = kept->next;
    if (!*at)
        pair->last_kept = at;
    WEFT_OS->free(kept);
}

/* Hands a kept message to its receive, which is in no list. */
static void deliver(weft_i_lane *lane, weft_i_pair *pair, weft_i_kept *kept, weft_i_letter *letter)
{
    letter->source = pair->rank;
    if (kept->bytes != letter->bytes || kept->digest != letter->digest) {
        refuse(pair, letter, kept->bytes);
    } else if (kept->offered) {
        take_offer(lane, pair, letter, &kept->offer);
    } else {
        weft_i_coll_put(letter->data, kept->data, letter->bytes);
        weft_i_letter_end(letter, WEFT_OK);
    }
    forget(pair, kept);
}

bool weft_i_pair_take_kept(weft_i_lane *lane, weft_i_pair *pair, weft_i_letter *letter)
{
    weft_i_kept *kept = pair->kept;
    while (kept && (kept->tag != letter->tag || kept == pair->keeping))
        kept = kept->next;
    if (!kept || pair->broken)
        return false;
    deliver(lane, pair, kept, letter);
    return true;
}

static void keep_piece(weft_i_lane *lane, weft_i_pair *pair, const weft_i_sheet *sheet)
{
    weft_i_kept *kept = pair->keeping;
    memcpy(kept->data + kept->done, pair->inbox->room + sheet->piece.at, sheet->piece.length);
    kept->done += sheet->piece.length;
    if (kept->done < kept->bytes)
        return;
    pair->keeping = NULL;
    weft_i_letter *letter = find_receive(lane, pair, kept->tag); /* posted meanwhile */
    if (letter) {
        take_out(lane, pair, letter);
        deliver(lane, pair, kept, letter);
    }
}

static uint64_t bytes_of(const weft_i_sheet *sheet)
{
    return sheet->kind == WEFT_I_SHEET_SHORT ? sheet->length : sheet->piece.bytes;
}

/* Without memory for it a receive that waits for something behind it fails. */
static void fail_keep(weft_i_lane *lane, weft_i_pair *pair, uint64_t bytes, int tag)
{
    weft_i_letter *letter = pair->receives ? pair->receives : lane->mail->any;
    weft_i_fail(WEFT_ERR_NO_MEMORY,
                "recv in group \"%s\": no memory to put aside a message of %llu bytes with tag %d "
                "of rank %d, which came before the one waited for",
                letter->group->name, (unsigned long long)bytes, tag, pair->rank);
    take_out(lane, pair, letter);
    weft_i_letter_end_failed(letter);
}

static bool keep(weft_i_lane *lane, weft_i_pair *pair, const weft_i_sheet *sheet, uint32_t digest)
{
    uint64_t bytes = bytes_of(sheet);
    bool offered = sheet->kind == WEFT_I_SHEET_OFFER;
    weft_i_kept *kept = WEFT_OS->alloc(sizeof *kept + (offered ? 0 : (size_t)bytes));
    if (!kept) {
        fail_keep(lane, pair, bytes, sheet->tag);
        return false;
    }
    kept->bytes = bytes;
    kept->tag = sheet->tag;
    kept->digest = digest;
    kept->offered = offered;
    *pair->last_kept = kept;
    pair->last_kept = &kept->next;
    if (offered) {
        kept->offer = sheet->piece;
    } else if (sheet->kind == WEFT_I_SHEET_SHORT) {
        memcpy(kept->data, sheet->text, bytes);
    } else {
        pair->keeping = kept;
        keep_piece(lane, pair, sheet);
    }
    return true;
}

/* ---- sheets ---- */

static void take_piece(weft_i_pair *pair, weft_i_letter *letter, const weft_i_sheet *sheet)
{
    memcpy(letter->data + letter->done, pair->inbox->room + sheet->piece.at, sheet->piece.length);
    letter->done += sheet->piece.length;
    letter->begun = true;
    pair->taking = letter->done < letter->bytes ? letter : NULL;
}

static void count_sheet(weft_i_pair *pair)
{
    uint32_t taken = weft_i_pair_taken(pair) + 1;
    /* Relaxed: under the lock. */
    atomic_store_explicit(&pair->taken, taken, memory_order_relaxed);
    weft_i_box_take(pair->inbox, taken);
}

/* A message begins, and a receive waits for it. */
static bool open_for(weft_i_lane *lane, weft_i_pair *pair, weft_i_letter *letter,
                     const weft_i_sheet *sheet, uint32_t digest)
{
    take_out(lane, pair, letter);
    if (bytes_of(sheet) != letter->bytes || digest != letter->digest) {
        refuse(pair, letter, bytes_of(sheet));
        return false;
    }
    if (sheet->kind == WEFT_I_SHEET_OFFER) {
        weft_i_sheet_piece piece = sheet->piece;
        count_sheet(pair);
        take_offer(lane, pair, letter, &piece);
        return true;
    }
    if (sheet->kind == WEFT_I_SHEET_SHORT)
        weft_i_coll_put(letter->data, (const char *)sheet->text, letter->bytes);
    else
        take_piece(pair, letter, sheet);
    count_sheet(pair);
    if (!pair->taking)
        weft_i_letter_end(letter, WEFT_OK);
    return true;
}

/* Reads a sheet; false if it stays where it is. */
static bool read_sheet(weft_i_lane *lane, weft_i_pair *pair, const weft_i_sheet *sheet,
                       uint32_t digest)
{
    weft_i_letter *letter = pair->taking;
    if (letter) {
        take_piece(pair, letter, sheet);
        count_sheet(pair);
        if (!pair->taking)
            weft_i_letter_end(letter, WEFT_OK);
        return true;
    }
    if (pair->keeping) {
        keep_piece(lane, pair, sheet);
    } else {
        letter = find_receive(lane, pair, sheet->tag);
        if (letter)
            return open_for(lane, pair, letter, sheet, digest);
        if ((!pair->receives && !lane->mail->any) || !keep(lane, pair, sheet, digest))
            return false;
    }
    count_sheet(pair);
    return true;
}

void weft_i_pair_receive(weft_i_lane *lane, weft_i_pair *pair)
{
    bool moved = false;
    uint32_t digest;
    const weft_i_sheet *sheet;
    while (!pair->broken && (pair->taking || pair->keeping || pair->receives || lane->mail->any) &&
           (sheet = weft_i_box_look(pair->inbox, weft_i_pair_taken(pair), &digest)) &&
           read_sheet(lane, pair, sheet, digest))
        moved = true;
    if (moved)
        weft_i_letter_ring(lane, pair->rank);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: transport/head.c, transport/order.c, transport/piece.c */
/* What comes from other hosts: heads, their order in a pair, and pieces of streams.  No crash, nothing that
 * is written beyond the memory that waits, and what is accepted is written as it came. */
#include "fuzz.h"

#include "base/os/os.h"
#include "transport/order.h"
#include "transport/piece.h"

#include <string.h>

enum { RANK = 1, RANKS = 4, SEGMENT = 60 << 10 };

static const weft_i_head_reader reader = {RANK, RANKS, SEGMENT};

/* A head and its data. */
static void one_head(const uint8_t *bytes, size_t count)
{
    weft_i_head head;
    uint8_t again[WEFT_I_HEAD_BYTES];
    if (count < sizeof again)
        return;
    weft_i_head_fault fault = weft_i_head_read(bytes, count - sizeof again, &reader, &head);
    PROMISE(*weft_i_head_fault_text(fault) != '?');
    if (fault != WEFT_I_HEAD_GOOD)
        return;
    PROMISE(head.source < RANKS && head.source != RANK);
    PROMISE(head.kind > WEFT_I_HEAD_NONE && head.kind < WEFT_I_HEAD_KINDS);
    PROMISE((head.kind == WEFT_I_HEAD_HELLO) == !head.cookie);
    weft_i_head_write(&head, again);
    PROMISE(!memcmp(bytes, again, sizeof again));
}

/* Heads of one peer, without data, one after the other: each number is handled once, in turn. */
static void many_heads(const uint8_t *bytes, size_t count)
{
    weft_i_order order = {.next = 0};
    uint32_t handled = 0;
    weft_i_head head;
    for (; count >= WEFT_I_HEAD_BYTES; bytes += WEFT_I_HEAD_BYTES, count -= WEFT_I_HEAD_BYTES) {
        if (weft_i_head_read(bytes, 0, &reader, &head) != WEFT_I_HEAD_GOOD)
            continue;
        head.number &= 127; /* so that some come in turn */
        weft_i_order_turn turn = weft_i_order_take(&order, &head, NULL, 0);
        PROMISE(order.count <= WEFT_I_ORDER_KEPT);
        if (turn != WEFT_I_ORDER_NOW)
            continue;
        PROMISE(head.number == handled++);
        for (weft_i_order_kept *kept; (kept = weft_i_order_next(&order));) {
            PROMISE(kept->head.number == handled++);
            WEFT_OS->free(kept);
        }
    }
    weft_i_order_clear(&order);
}

static void one_piece(const uint8_t *bytes, size_t count)
{
    weft_i_stream_piece piece;
    uint8_t again[WEFT_I_PIECE_HEAD_BYTES];
    if (count < sizeof again ||
        !weft_i_piece_read(bytes, count - sizeof again, RANK, RANKS, &piece))
        return;
    PROMISE(piece.source < RANKS && piece.source != RANK);
    PROMISE(piece.bytes <= WEFT_I_PIECE_BYTES && piece.at <= piece.total);
    PROMISE(piece.bytes <= piece.total - piece.at);
    weft_i_piece_write(&piece, again);
    PROMISE(!memcmp(bytes, again, sizeof again));
}

/* Pieces for memory of so many bytes that expects tag 7 of rank 2: lengths of two bytes, heads, nothing behind
 * them but what a piece says that it has. */
static void stream(const uint8_t *bytes, size_t count)
{
    static const uint8_t data[WEFT_I_PIECE_BYTES];
    size_t room = count ? (size_t)bytes[0] * 1000 : 0;
    void *to = malloc(room ? room : 1);
    weft_i_sent in = {0}, *over = NULL;
    weft_i_expected expected = {NULL};
    weft_i_stream_piece piece;
    PROMISE(to && weft_i_expected_add(&expected, 2, 7, to, room, &in) == WEFT_OK);
    for (size_t at = 1; at + WEFT_I_PIECE_HEAD_BYTES + 2 <= count && expected.first;
         at += WEFT_I_PIECE_HEAD_BYTES + 2) {
        size_t length = (size_t)bytes[at] << 8 | bytes[at + 1];
        if (!weft_i_piece_read(bytes + at + 2, length, RANK, RANKS, &piece))
            continue;
        PROMISE(piece.bytes == length && length <= sizeof data);
        if (weft_i_expected_take(&expected, &piece, data, &over) == WEFT_I_PIECE_LAST)
            PROMISE(over == &in && !expected.first);
    }
    if (expected.first)
        PROMISE(weft_i_expected_remove(&expected, 2) == &in);
    free(to);
}

/* The first byte chooses. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static void (*const ways[])(const uint8_t *, size_t) = {one_head, many_heads, one_piece,
                                                            stream};
    if (count)
        ways[bytes[0] % 4](bytes + 1, count - 1);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: transport/head.c, transport/order.c, transport/piece.c */
/* Heads, the order of a pair, and pieces, as they should be and as an enemy would write them. */
#include "fault.h"
#include "harness.h"

#include "base/report/status.h"
#include "transport/order.h"
#include "transport/piece.h"

static const weft_i_head_reader reader = {1, 4, 1000};

static weft_i_head some(uint32_t number)
{
    return (weft_i_head){.kind = WEFT_I_HEAD_PUT,
                         .source = 2,
                         .number = number,
                         .cookie = 0x1122334455667788,
                         .group = 0x99aabbccddeeff01,
                         .word = {1, 2, 3, 0xfffffffe}};
}

TEST(test_transport_head_bytes)
{
    static const unsigned char expected[WEFT_I_HEAD_BYTES] = {
        'W',  'F',  'T',  'H',  1,    0,    WEFT_I_HEAD_PUT,
        0,    2,    0,    0,    0,    5,    0,
        0,    0,    0x88, 0x77, 0x66, 0x55, 0x44,
        0x33, 0x22, 0x11, 1,    0xff, 0xee, 0xdd,
        0xcc, 0xbb, 0xaa, 0x99, 1,    0,    0,
        0,    2,    0,    0,    0,    3,    0,
        0,    0,    0xfe, 0xff, 0xff, 0xff};
    unsigned char bytes[WEFT_I_HEAD_BYTES];
    weft_i_head head = some(5), back;
    weft_i_head_write(&head, bytes);
    CHECK(!memcmp(bytes, expected, sizeof bytes));
    CHECK_INT(weft_i_head_read(bytes, 1000, &reader, &back), WEFT_I_HEAD_GOOD);
    CHECK(back.kind == head.kind && back.source == 2 && back.number == 5 &&
          back.cookie == head.cookie && back.group == head.group && back.word[3] == head.word[3]);
    CHECK(weft_i_head_is_from(&back, head.cookie) && !weft_i_head_is_from(&back, head.cookie + 1));
    CHECK(!weft_i_head_is_from(&(weft_i_head){.cookie = 0}, 0));
    CHECK(!strcmp(weft_i_head_kind_name(WEFT_I_HEAD_PUT), "PUT") &&
          !strcmp(weft_i_head_kind_name(9999), "?"));
}

static weft_i_head_fault read_changed(size_t at, unsigned char value, size_t data)
{
    unsigned char bytes[WEFT_I_HEAD_BYTES];
    weft_i_head head = some(0), out;
    weft_i_head_write(&head, bytes);
    bytes[at] = value;
    return weft_i_head_read(bytes, data, &reader, &out);
}

TEST(test_transport_head_faults)
{
    static const struct {
        size_t at;
        unsigned char value;
        size_t data;
        weft_i_head_fault fault;
    } rows[] = {{0, 'w', 0, WEFT_I_HEAD_NOT_OURS},
                {4, 2, 0, WEFT_I_HEAD_OTHER_LAYOUT},
                {6, 0, 0, WEFT_I_HEAD_BAD_KIND},
                {6, WEFT_I_HEAD_KINDS, 0, WEFT_I_HEAD_BAD_KIND},
                {7, 1, 0, WEFT_I_HEAD_BAD_KIND},
                {8, 4, 0, WEFT_I_HEAD_BAD_SOURCE},
                {8, 1, 0, WEFT_I_HEAD_BAD_SOURCE},
                {11, 0x80, 0, WEFT_I_HEAD_BAD_SOURCE},
                {6, WEFT_I_HEAD_HELLO, 0, WEFT_I_HEAD_BAD_COOKIE},
                {6, WEFT_I_HEAD_TAKEN, 1, WEFT_I_HEAD_BAD_DATA},
                {6, WEFT_I_HEAD_TAKEN, 0, WEFT_I_HEAD_GOOD},
                {8, 3, 1001, WEFT_I_HEAD_BAD_DATA}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_INT(read_changed(rows[i].at, rows[i].value, rows[i].data), rows[i].fault);
        CHECK(*weft_i_head_fault_text(rows[i].fault));
    }
    unsigned char bytes[WEFT_I_HEAD_BYTES];
    weft_i_head head = some(0), out;
    head.cookie = 0; /* only a HELLO has none */
    weft_i_head_write(&head, bytes);
    CHECK_INT(weft_i_head_read(bytes, 0, &reader, &out), WEFT_I_HEAD_BAD_COOKIE);
    CHECK(!strcmp(weft_i_head_fault_text((weft_i_head_fault)77), "?"));
}

/* The numbers wrap, whatever order they come in. */
TEST(test_transport_order)
{
    for (unsigned seed = 0; seed < 50; seed++) {
        weft_i_order order = {.next = UINT32_MAX - 40};
        uint32_t first = order.next, handled = 0, waiting[64];
        unsigned dice = seed * 977 + 1;
        for (uint32_t round = 0; round < 5; round++) {
            for (uint32_t i = 0; i < 64; i++)
                waiting[i] = first + round * 64 + i;
            for (uint32_t left = 64; left; left--) {
                dice = dice * 1664525 + 1013904223;
                uint32_t pick = (dice >> 8) % left;
                weft_i_head head = some(waiting[pick]);
                waiting[pick] = waiting[left - 1];
                weft_i_order_turn turn = weft_i_order_take(&order, &head, &head.number, 4);
                CHECK(turn == WEFT_I_ORDER_NOW || turn == WEFT_I_ORDER_EARLY);
                CHECK_INT(weft_i_order_take(&order, &head, &head.number, 4), WEFT_I_ORDER_AGAIN);
                if (turn != WEFT_I_ORDER_NOW)
                    continue;
                CHECK(head.number == first + handled++);
                for (weft_i_order_kept *kept; (kept = weft_i_order_next(&order));) {
                    CHECK(kept->head.number == first + handled++ && kept->bytes == 4);
                    CHECK(!memcmp(kept->data, &kept->head.number, 4));
                    WEFT_OS->free(kept);
                }
            }
            CHECK(!order.count && handled == (round + 1) * 64);
        }
    }
}

/* No more than 64 are kept, and a rank without memory is told. */
TEST(test_transport_order_bounds)
{
    weft_i_order order = {.next = 10};
    for (uint32_t i = 1; i <= WEFT_I_ORDER_KEPT; i++) {
        weft_i_head head = some(10 + i);
        CHECK_INT(weft_i_order_take(&order, &head, NULL, 0), WEFT_I_ORDER_EARLY);
    }
    weft_i_head far = some(11 + WEFT_I_ORDER_KEPT), old = some(9), beyond = some(10 + (1u << 30));
    CHECK_INT(weft_i_order_take(&order, &far, NULL, 0), WEFT_I_ORDER_FAR);
    CHECK_INT(weft_i_order_take(&order, &beyond, NULL, 0), WEFT_I_ORDER_FAR);
    CHECK_INT(weft_i_order_take(&order, &old, NULL, 0), WEFT_I_ORDER_AGAIN);
    CHECK_INT(order.count, WEFT_I_ORDER_KEPT);
    weft_i_order_clear(&order);
    CHECK(!order.count && !weft_i_order_next(&order));
    weft_i_head early = some(11);
    fault_arm(1);
    weft_i_order_turn turn = weft_i_order_take(&order, &early, NULL, 0);
    CHECK(fault_disarm());
    CHECK_INT(turn, WEFT_I_ORDER_NO_MEMORY);
}

/* Every size is cut so that it fits, and comes together from any order. */
TEST(test_transport_pieces)
{
    static const size_t sizes[] = {0, 1, WEFT_I_PIECE_BYTES, WEFT_I_PIECE_BYTES + 1,
                                   70 * WEFT_I_PIECE_BYTES + 9};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        unsigned char *from = malloc(sizes[s] + 1), *to = calloc(1, sizes[s] + 1);
        weft_i_stream_piece pieces[80];
        weft_i_sent out = {.tag = 77, .bytes = sizes[s]}, in = {0}, *over = NULL;
        weft_i_expected expected = {NULL};
        int count = 0;
        for (size_t i = 0; i < sizes[s]; i++)
            from[i] = (unsigned char)(i * 7 + i / 1000);
        CHECK_OK(weft_i_expected_add(&expected, 2, 77, to, sizes[s], &in));
        do
            pieces[count++] = weft_i_piece_cut(&out, 2);
        while (out.at < out.bytes);
        for (int i = count - 1; i >= 0; i--) {
            unsigned char head[WEFT_I_PIECE_HEAD_BYTES];
            weft_i_stream_piece back;
            weft_i_piece_write(&pieces[i], head);
            CHECK(weft_i_piece_read(head, pieces[i].bytes, 1, 4, &back));
            CHECK_INT(weft_i_expected_take(&expected, &back, from + back.at, &over),
                      i ? WEFT_I_PIECE_PLACED : WEFT_I_PIECE_LAST);
            if (i) /* again: a piece is taken once */
                CHECK_INT(weft_i_expected_take(&expected, &back, from + back.at, &over),
                          WEFT_I_PIECE_STRAY);
        }
        CHECK(over == &in && in.status == WEFT_OK && !expected.first);
        CHECK(!memcmp(from, to, sizes[s]) && !to[sizes[s]]);
        free(from);
        free(to);
    }
}

TEST(test_transport_pieces_without_memory)
{
    weft_i_sent in = {0};
    weft_i_expected expected = {NULL};
    fault_arm(1);
    weft_status status = weft_i_expected_add(&expected, 2, 7, NULL, (size_t)1 << 40, &in);
    CHECK(fault_disarm());
    CHECK_STATUS(status, WEFT_ERR_NO_MEMORY);
    CHECK(!expected.first && !weft_i_expected_remove(&expected, -1));
    weft_clear_error();
}

/* A dice for the hostile: xorshift. */
static uint64_t roll(uint64_t *dice)
{
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    return *dice ^= *dice << 17;
}

/* A good head or piece with up to four bytes changed; now and then nothing but noise. */
static void spoil(unsigned char *bytes, size_t count, uint64_t *dice)
{
    if (roll(dice) % 8 == 0)
        for (size_t i = 0; i < count; i++)
            bytes[i] = (unsigned char)roll(dice);
    for (uint64_t n = roll(dice) % 5; n; n--)
        bytes[roll(dice) % count] = (unsigned char)roll(dice);
}

/* Whatever is taken is within bounds, and is written again as it was. */
TEST(test_transport_hostile_heads)
{
    uint64_t dice = 88172645463325252u, good = 0;
    weft_i_order order = {0};
    for (int i = 0; i < 300000; i++) {
        unsigned char bytes[WEFT_I_HEAD_BYTES], again[WEFT_I_HEAD_BYTES];
        weft_i_head head = some((uint32_t)(order.next + roll(&dice) % 70)), out;
        head.kind = (weft_i_head_kind)(2 + roll(&dice) % (WEFT_I_HEAD_KINDS - 2));
        weft_i_head_write(&head, bytes);
        spoil(bytes, sizeof bytes, &dice);
        size_t data = roll(&dice) % 4 ? 0 : roll(&dice) % 1100;
        static const unsigned char nothing[1100];
        if (weft_i_head_read(bytes, data, &reader, &out) != WEFT_I_HEAD_GOOD)
            continue;
        good++;
        CHECK(out.kind > WEFT_I_HEAD_NONE && out.kind < WEFT_I_HEAD_KINDS && data <= 1000);
        CHECK(out.source < 4 && out.source != 1);
        weft_i_head_write(&out, again);
        CHECK(!memcmp(bytes, again, sizeof bytes));
        if (weft_i_order_take(&order, &out, nothing, data) == WEFT_I_ORDER_NOW)
            for (weft_i_order_kept *kept; (kept = weft_i_order_next(&order));)
                WEFT_OS->free(kept);
        CHECK(order.count <= WEFT_I_ORDER_KEPT);
    }
    weft_i_order_clear(&order);
    CHECK(good > 10000);
}

/* No piece is written outside of the memory that expects it. */
TEST(test_transport_hostile_pieces)
{
    enum { BYTES = 2 * WEFT_I_PIECE_BYTES + 100, EDGE = 64 };
    static unsigned char memory[EDGE + BYTES + EDGE], data[WEFT_I_PIECE_BYTES];
    uint64_t dice = 362436069, placed = 0;
    weft_i_expected expected = {NULL};
    weft_i_sent in = {0}, *over;
    memset(data, 1, sizeof data);
    for (int i = 0; i < 300000; i++) {
        unsigned char bytes[WEFT_I_PIECE_HEAD_BYTES], again[WEFT_I_PIECE_HEAD_BYTES];
        weft_i_sent out = {.tag = 9, .bytes = BYTES, .at = roll(&dice) % 3 * WEFT_I_PIECE_BYTES};
        weft_i_stream_piece piece = weft_i_piece_cut(&out, 2), found;
        if (!expected.first)
            CHECK_OK(weft_i_expected_add(&expected, 2, 9, memory + EDGE, BYTES, &in));
        weft_i_piece_write(&piece, bytes);
        if (roll(&dice) % 4)
            spoil(bytes, sizeof bytes, &dice);
        if (!weft_i_piece_read(bytes, piece.bytes, 1, 4, &found))
            continue;
        weft_i_piece_write(&found, again);
        CHECK(!memcmp(bytes, again, sizeof bytes) && found.bytes <= sizeof data);
        if (i % 50) /* few are copied: they are large */
            continue;
        placed += weft_i_expected_take(&expected, &found, data, &over) != WEFT_I_PIECE_STRAY;
    }
    for (int i = 0; i < EDGE; i++)
        CHECK(!memory[i] && !memory[EDGE + BYTES + i]);
    while (weft_i_expected_remove(&expected, 2))
        ;
    CHECK(placed > 500);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

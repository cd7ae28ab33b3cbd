/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/share/wire.c, base/share/keyed.c */
/* The wire cursor: values, limits, sticky errors; and the keyed hash against published vectors. */
#include "harness.h"

#include "base/report/status.h"
#include "base/share/keyed.h"
#include "base/share/wire.h"

#include <stdint.h>

TEST(test_wire_numbers)
{
    uint8_t bytes[64];
    weft_i_wire_writer to = weft_i_wire_write(bytes, sizeof bytes);
    weft_i_wire_put_head(&to, 0x01020304, 7);
    weft_i_wire_put_u8(&to, 0xfe);
    weft_i_wire_put_u16(&to, 0x1234);
    weft_i_wire_put_u64(&to, 0x8877665544332211u);
    weft_i_wire_put_zero(&to, 3);
    weft_i_wire_put_text(&to, "hello", 8);
    weft_i_wire_put_blob(&to, (weft_i_view){"abc", 3});
    CHECK(!to.bad);
    CHECK_INT(bytes[0], 4);
    CHECK_INT(bytes[9 + 7], 0x88);
    weft_i_wire_reader from = weft_i_wire_read(bytes, to.at);
    CHECK_INT(weft_i_wire_get_head(&from, 0x01020304), 7);
    CHECK_INT(weft_i_wire_get_u8(&from), 0xfe);
    CHECK_INT(weft_i_wire_get_u16(&from), 0x1234);
    CHECK(weft_i_wire_get_u64(&from) == 0x8877665544332211u);
    weft_i_wire_get_zero(&from, 3);
    char text[8];
    weft_i_wire_get_text(&from, text, sizeof text);
    CHECK(!strcmp(text, "hello"));
    CHECK(!weft_i_wire_done(&from));
    weft_i_view blob = weft_i_wire_get_blob(&from, 3);
    CHECK(blob.bytes == 3 && !memcmp(blob.data, "abc", 3));
    CHECK(weft_i_wire_done(&from));
}

TEST(test_wire_error_is_sticky)
{
    uint8_t bytes[4] = {1, 2, 3, 4};
    weft_i_wire_reader from = weft_i_wire_read(bytes, 3);
    CHECK_INT(weft_i_wire_get_u32(&from), 0);
    CHECK(from.bad);
    CHECK_INT(weft_i_wire_get_u8(&from), 0);
    CHECK_INT(weft_i_wire_left(&from), 0);
    weft_i_wire_writer to = weft_i_wire_write(bytes, 3);
    weft_i_wire_put_u32(&to, 9);
    CHECK(to.bad && bytes[0] == 1);
    weft_i_wire_put_u8(&to, 9);
    CHECK(to.bad && bytes[0] == 1);
}

TEST(test_wire_lengths_are_checked_first)
{
    uint8_t huge[8] = {0xff, 0xff, 0xff, 0xff, 'a', 'b', 'c', 'd'};
    weft_i_wire_reader from = weft_i_wire_read(huge, sizeof huge);
    CHECK_INT(weft_i_wire_get_blob(&from, SIZE_MAX).bytes, 0);
    CHECK(from.bad);
    uint8_t over[8] = {4, 0, 0, 0, 'a', 'b', 'c', 'd'};
    from = weft_i_wire_read(over, sizeof over);
    CHECK_INT(weft_i_wire_get_blob(&from, 3).bytes, 0);
    CHECK(from.bad);
    from = weft_i_wire_read(over, sizeof over);
    CHECK_INT(weft_i_wire_get_blob(&from, 4).bytes, 4);
    CHECK(weft_i_wire_done(&from));
}

TEST(test_wire_reserved_bytes_are_zero)
{
    uint8_t bytes[8] = {0, 0, 1};
    weft_i_wire_reader from = weft_i_wire_read(bytes, 8);
    weft_i_wire_get_zero(&from, 2);
    CHECK(!from.bad);
    weft_i_wire_get_zero(&from, 1);
    CHECK(from.bad);
    uint8_t text[8] = {'a', 0, 'b'}, full[4] = {'a', 'b', 'c', 'd'};
    char out[8];
    from = weft_i_wire_read(text, 8);
    weft_i_wire_get_text(&from, out, 8);
    CHECK(from.bad);
    from = weft_i_wire_read(full, 4);
    weft_i_wire_get_text(&from, out, 4);
    CHECK(from.bad && !strcmp(out, "abc"));
    from = weft_i_wire_read(bytes, 8);
    weft_i_wire_get_head(&from, 5);
    CHECK(from.bad);
}

TEST(test_keyed_sign)
{
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    /* RFC 4231, case 2: the key "Jefe" is padded with zeros by HMAC itself, so a 32-byte key with
     * zeros is the same */
    uint8_t secret[32] = "Jefe", tag[32], expected[32];
    CHECK(weft_i_keyed_parse("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
                             expected));
    CHECK_OK(weft_i_keyed_sign(secret, "what do ya want for nothing?", 28, tag));
    CHECK(weft_i_keyed_equal(tag, expected));
    tag[31] ^= 1;
    CHECK(!weft_i_keyed_equal(tag, expected));
}

TEST(test_keyed_parse)
{
    uint8_t secret[32];
    CHECK(!weft_i_keyed_parse("", secret));
    CHECK(!weft_i_keyed_parse("12", secret));
    char text[66];
    memset(text, 'A', 64);
    text[64] = 0;
    CHECK(weft_i_keyed_parse(text, secret) && secret[0] == 0xaa && secret[31] == 0xaa);
    text[10] = 'g';
    CHECK(!weft_i_keyed_parse(text, secret));
    text[10] = 'a';
    text[64] = 'a';
    text[65] = 0;
    CHECK(!weft_i_keyed_parse(text, secret));
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

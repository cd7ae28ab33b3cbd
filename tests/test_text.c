/* SPDX-License-Identifier: Apache-2.0 */
/* Text piece by piece: what fits, what is cut, and what it would have taken. */
#include "base/text.h"
#include "harness.h"

TEST(test_text_grows)
{
    char room[16];
    weft_i_text text = {.out = room, .room = sizeof room};
    weft_i_text_put(&text, "%d,", 1);
    weft_i_text_put(&text, "%s", "two");
    CHECK(!strcmp(room, "1,two"));
    CHECK_INT(text.used, 5);
}

TEST(test_text_is_cut)
{
    char room[8] = "#######";
    weft_i_text text = {.out = room, .room = 5}; /* the bytes behind are somebody else's */
    weft_i_text_put(&text, "abc");
    weft_i_text_put(&text, "defg");
    CHECK(!strcmp(room, "abcd") && room[5] == '#' && room[6] == '#');
    CHECK_INT(text.used, 7);
    weft_i_text_put(&text, "h");
    CHECK(!strcmp(room, "abcd"));
    CHECK_INT(text.used, 8);
}

TEST(test_text_without_room)
{
    weft_i_text text = {.out = NULL, .room = 0};
    weft_i_text_put(&text, "%s", "counted all the same");
    CHECK_INT(text.used, 20);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/report/text.c */
/* Text piece by piece: what fits, what is cut, and what it would have taken. */
#include "base/report/text.h"
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

/* What is in files and on pages of others must not move a terminal's cursor or change its title. */
TEST(test_text_tamed)
{
    static const struct {
        const char *from, *to;
    } texts[] = {
        {"plain", "plain"},
        {"a\033[31mb", "a?[31mb"},
        {"a\r\tb\n\177", "a?\tb??"},
        {"\302\233"
         "31m, \302\200 and \302\237",
         "?31m, ? and ?"},
        {"\233"
         "31m",
         "?31m"}, /* as one byte */
        {"\302\240\303\274ber \342\202\254 \360\237\230\200",
         "\302\240\303\274ber \342\202\254 \360\237\230\200"},
        {"\300\233 \301\277", "?? ??"},      /* longer than needed */
        {"\340\202\233", "???"},             /* the same */
        {"\355\240\200", "???"},             /* half of a pair */
        {"\364\220\200\200 \377", "???? ?"}, /* beyond the last */
        {"cut \342\202", "cut ??"},          /* and nothing behind the end is read */
        {"", ""},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", texts[i].from);
        weft_i_text_tame(text, false);
        if (strcmp(text, texts[i].to) != 0)
            FAIL("text %zu became \"%s\"", i, text);
    }
    char two[] = "one\ntwo\033";
    weft_i_text_tame(two, true);
    CHECK(!strcmp(two, "one\ntwo?"));
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

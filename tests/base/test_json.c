/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/report/json.c */
/* The JSON writer: what it writes, byte for byte, and what it says when it cannot. */
#include "harness.h"

#include "base/report/json.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Writes with `fill` into a file and reads it back. */
static const char *written(void (*fill)(weft_i_json *json), int lines)
{
    static char text[32 * 1024];
    char path[] = "/tmp/weft-test-XXXXXX";
    weft_i_json json;
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    unlink(path);
    weft_i_json_begin(&json, fd, lines);
    fill(&json);
    weft_status status = weft_i_json_finish(&json);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    CHECK_OK(status);
    CHECK(n > 0);
    text[n] = 0;
    return text;
}

#define CHECK_TEXT(actual_, expected_)                   \
    do {                                                 \
        const char *a_ = (actual_), *e_ = (expected_);   \
        if (strcmp(a_, e_))                              \
            FAIL("it wrote \"%s\", not \"%s\"", a_, e_); \
    } while (0)

static void fill_some(weft_i_json *json)
{
    weft_i_json_open(json, NULL, '{');
    weft_i_json_bool(json, "yes", true);
    weft_i_json_open(json, "none", '[');
    weft_i_json_close(json);
    weft_i_json_open(json, "list", '[');
    weft_i_json_integer(json, NULL, INT64_MIN);
    weft_i_json_open(json, NULL, '{');
    weft_i_json_text(json, "a", NULL);
    weft_i_json_bool(json, "b", false);
    weft_i_json_close(json);
    weft_i_json_close(json);
    weft_i_json_unsigned(json, "last", UINT64_MAX);
    weft_i_json_close(json);
}

TEST(test_json_lines)
{
    CHECK_TEXT(written(fill_some, 0),
               "{\"yes\":true,\"none\":[],\"list\":[-9223372036854775808,{\"a\":null,\"b\":false}],"
               "\"last\":18446744073709551615}\n");
    CHECK_TEXT(written(fill_some, 2),
               "{\n  \"yes\": true,\n  \"none\": [],\n  \"list\": [\n    -9223372036854775808,\n"
               "    {\"a\":null,\"b\":false}\n  ],\n  \"last\": 18446744073709551615\n}\n");
}

static void fill_numbers(weft_i_json *json)
{
    const double reals[] = {0, -0.5, 1e300, 123456.789, NAN, INFINITY};
    const int64_t ns[] = {0, 1, -1, 1234567, -1500, INT64_MIN};
    weft_i_json_open(json, NULL, '[');
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        weft_i_json_real(json, NULL, reals[i], 4);
    for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
        weft_i_json_micros(json, NULL, ns[i]);
    weft_i_json_close(json);
}

TEST(test_json_numbers)
{
    CHECK_TEXT(written(fill_numbers, 0),
               "[0,-0.5,1e+300,1.235e+05,null,null,0.000,0.001,-0.001,1234.567,-1.500,"
               "-9223372036854775.808]\n");
}

static void fill_odd_text(weft_i_json *json)
{
    weft_i_json_open(json, NULL, '[');
    weft_i_json_text(json, NULL, "odd \"name\"\n\xff\\\x7f");
    weft_i_json_text(json, NULL, "\xc3\xa4 \xe2\x82\xac \xf0\x9f\xa7\xb6"); /* well-formed */
    weft_i_json_text(json, NULL, "\xc0\xaf \xed\xa0\x80 \xe2\x82");         /* none of it is */
    weft_i_json_close(json);
}

TEST(test_json_escapes)
{
    CHECK_TEXT(written(fill_odd_text, 0),
               "[\"odd \\\"name\\\"\\u000a\\ufffd\\\\\\u007f\","
               "\"\xc3\xa4 \xe2\x82\xac \xf0\x9f\xa7\xb6\","
               "\"\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\"]\n");
}

static void fill_much(weft_i_json *json)
{
    weft_i_json_open(json, NULL, '[');
    for (int i = 0; i < 2000; i++)
        weft_i_json_integer(json, NULL, 1000 + i);
    weft_i_json_close(json);
}

/* More than the writer's buffer: nothing is lost or doubled where one ends. */
TEST(test_json_long)
{
    const char *text = written(fill_much, 0);
    CHECK_INT(strlen(text), 2000 * 5 + 2);
    for (int i = 0; i < 2000; i++)
        CHECK_INT(atoi(text + 1 + 5 * i), 1000 + i);
}

TEST(test_json_cannot_be_written)
{
    weft_i_json json;
    int fd = open("/dev/full", O_WRONLY);
    CHECK(fd >= 0);
    weft_i_json_begin(&json, fd, 0);
    fill_much(&json);
    CHECK_STATUS(weft_i_json_finish(&json), WEFT_ERR_NO_SPACE);
    CHECK_CONTAINS(weft_last_error(), "writing JSON");
    CHECK_INT(json.error, ENOSPC);
    close(fd);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

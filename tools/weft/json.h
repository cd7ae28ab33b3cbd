/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON to a stream, member by member; commas, indentation and escapes come by themselves.
 *
 *     json_writer j = {.out = stdout};
 *     json_open(&j, NULL, '{');
 *     json_text(&j, "name", "weft");
 *     json_close(&j);
 *
 * `key` is NULL for members of arrays and for the outermost value.
 */
#ifndef WEFT_TOOLS_JSON_H
#define WEFT_TOOLS_JSON_H

#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH = 16 };

typedef struct json_writer {
    FILE *out;
    int depth;
    char close[JSON_DEPTH]; /* what ends each open object or array */
    int members[JSON_DEPTH];
} json_writer;

void json_open(json_writer *j, const char *key, char bracket); /* '{' or '[' */
void json_close(json_writer *j);
void json_text(json_writer *j, const char *key, const char *text); /* NULL becomes null */
void json_number(json_writer *j, const char *key, int64_t number);
void json_bool(json_writer *j, const char *key, int truth);

#endif

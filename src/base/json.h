/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON to a descriptor, member after member, without building a tree.  Commas, escapes and
 * invalid UTF-8 are taken care of; errors stick and come out of weft_i_json_finish.  In objects
 * every value has a key, in arrays none (NULL); the caller closes what it opened.
 */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct weft_i_json {
    int fd;
    int error;  /* errno of the first write that failed */
    bool comma; /* a value stands before the next one */
    size_t used;
    char buffer[4096];
} weft_i_json;

void weft_i_json_begin(weft_i_json *json, int fd);
void weft_i_json_open(weft_i_json *json, const char *key, char bracket); /* '{' or '[' */
void weft_i_json_close(weft_i_json *json, char bracket);                 /* '}' or ']' */
void weft_i_json_line(weft_i_json *json); /* a line break before the next value */
void weft_i_json_text(weft_i_json *json, const char *key, const char *value);
void weft_i_json_integer(weft_i_json *json, const char *key, int64_t value);
void weft_i_json_micros(weft_i_json *json, const char *key,
                        int64_t ns); /* ns as microseconds, three decimals */

/* Writes what is left; the first error of all, if there was one. */
weft_status weft_i_json_finish(weft_i_json *json);

#endif

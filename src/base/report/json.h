/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON to a descriptor, value after value, without building a tree.
 *
 *     weft_i_json json;
 *     weft_i_json_begin(&json, fd, 1);
 *     weft_i_json_open(&json, NULL, '{');
 *     weft_i_json_text(&json, "name", "weft");
 *     weft_i_json_close(&json);
 *     weft_status status = weft_i_json_finish(&json);
 *
 * Commas, indentation, escapes and invalid UTF-8 are taken care of.  Errors stick and come out of
 * weft_i_json_finish.  In objects every value has a key; in arrays, and outermost, it is NULL.
 */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_JSON_DEPTH = 16 };

typedef struct weft_i_json {
    int fd;
    int error; /* errno of the first write that failed */
    int lines; /* values up to this depth have a line each, deeper ones share it */
    int depth;
    char close[WEFT_I_JSON_DEPTH]; /* what ends each open object or array */
    bool comma;                    /* a value stands before the next one */
    size_t used;
    char buffer[4096];
} weft_i_json;

void weft_i_json_begin(weft_i_json *json, int fd, int lines);
void weft_i_json_open(weft_i_json *json, const char *key, char bracket); /* '{' or '[' */
void weft_i_json_close(weft_i_json *json);
void weft_i_json_text(weft_i_json *json, const char *key, const char *value); /* NULL: null */
void weft_i_json_integer(weft_i_json *json, const char *key, int64_t value);
void weft_i_json_unsigned(weft_i_json *json, const char *key, uint64_t value);
void weft_i_json_bool(weft_i_json *json, const char *key, bool value);
/* At most `digits` digits count; null unless it is finite, which JSON has no words for. */
void weft_i_json_real(weft_i_json *json, const char *key, double value, int digits);
/* Nanoseconds as microseconds, with three decimals. */
void weft_i_json_micros(weft_i_json *json, const char *key, int64_t ns);

/* Writes what is left; the first error of all, if there was one: as errno, or decided. */
int weft_i_json_end(weft_i_json *json);
weft_status weft_i_json_finish(weft_i_json *json);

#endif

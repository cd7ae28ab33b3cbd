/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON of strangers, value after value, without recursion and without a tree.
 *
 *     weft_i_json_reader r = weft_i_json_reader_of(text, length);
 *     weft_i_read_open(&r, '{');
 *     while (weft_i_read_next(&r)) {
 *         weft_i_read_key(&r, key, sizeof key, NULL);
 *         weft_i_read_whole(&r, &number);
 *     }
 *     bool fine = weft_i_read_end(&r);
 *
 * An error sticks, and everything after it does nothing: `error` says what, `at` where.
 */
#ifndef WEFT_TRAIN_JSON_READER_H
#define WEFT_TRAIN_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_JSON_LEVELS = 32 };

typedef struct weft_i_json_reader {
    const char *text;
    size_t length, at;
    int depth;
    char close[WEFT_I_JSON_LEVELS]; /* what ends each open object or array */
    bool first;                     /* nothing was read yet in the innermost */
    const char *error;              /* NULL: none */
} weft_i_json_reader;

weft_i_json_reader weft_i_json_reader_of(const char *text, size_t length);

/* What comes next: one of { [ " 0 t f n, for a number '0'; 0 after an error or at the end. */
char weft_i_read_peek(weft_i_json_reader *r);
void weft_i_read_open(weft_i_json_reader *r, char bracket);
/* True if another value (in an object: key) follows; false, and the bracket is closed, if none does. */
bool weft_i_read_next(weft_i_json_reader *r);
/* A string, terminated, without zeros, in UTF-8; an error if it does not fit.  `length` may be NULL.
 * Decoded it never is longer than it was. */
void weft_i_read_text(weft_i_json_reader *r, char *out, size_t room, size_t *length);
void weft_i_read_key(weft_i_json_reader *r, char *out, size_t room, size_t *length);
/* A whole number from 0 to 2^63 - 1, without fraction or exponent. */
void weft_i_read_whole(weft_i_json_reader *r, uint64_t *out);
void weft_i_read_skip(weft_i_json_reader *r);
/* True if all went well, and nothing but blanks is left. */
bool weft_i_read_end(weft_i_json_reader *r);
void weft_i_read_refuse(weft_i_json_reader *r, const char *why);

#endif

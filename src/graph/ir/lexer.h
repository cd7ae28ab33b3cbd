/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a graph's text, for the parser.  Every function leaves an error, with the line, if
 * what it wants is not there; once one has failed, the text is not looked at any more. */
#ifndef WEFT_GRAPH_LEXER_H
#define WEFT_GRAPH_LEXER_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct weft_i_lexer {
    const char *at;
    int line;
    weft_status status;
} weft_i_lexer;

enum { WEFT_I_WORD = 256 }; /* the longest word, string or name, with its end */

weft_status weft_i_lexer_fail(weft_i_lexer *lexer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Skips blanks and comments, not ends of lines. */
void weft_i_lexer_skip(weft_i_lexer *lexer);
/* Takes `text` if it is next. */
bool weft_i_lexer_take(weft_i_lexer *lexer, const char *text);
void weft_i_lexer_expect(weft_i_lexer *lexer, const char *text);
/* The end of a line, and empty lines behind it. */
void weft_i_lexer_end_line(weft_i_lexer *lexer);
bool weft_i_lexer_is_end(weft_i_lexer *lexer);

/* Letters, digits and _ . : - */
void weft_i_lexer_word(weft_i_lexer *lexer, char out[WEFT_I_WORD]);
void weft_i_lexer_string(weft_i_lexer *lexer, char out[WEFT_I_WORD]);
int64_t weft_i_lexer_integer(weft_i_lexer *lexer);
double weft_i_lexer_number(weft_i_lexer *lexer);
/* "[1, 2]": grows `*out`, which the caller frees. */
size_t weft_i_lexer_integers(weft_i_lexer *lexer, int64_t **out);
/* "%7"; -1 for "none". */
int weft_i_lexer_value(weft_i_lexer *lexer);

#endif

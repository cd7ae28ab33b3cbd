/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of the command.  base/report/json.h writes it.  Here it is read where it lies, without building a
 * tree: a cursor is a stretch of text.
 */
#ifndef WEFT_TOOLS_JSON_H
#define WEFT_TOOLS_JSON_H

#include "base/report/json.h"

#include <stddef.h>

/* Ends what was written.  1 if it is lost, after a message; silent if only its reader went away. */
int json_finish(weft_i_json *json);

typedef struct json_cursor {
    const char *at, *end;
} json_cursor;

/* A file's content, with a 0 behind it, for free(); NULL and errno if it cannot be read. */
char *json_read_file(const char *path, size_t *bytes);

/* The value that `whole` consists of, blanks cut off at both ends; 0 if it is no JSON. */
int json_value(json_cursor whole, json_cursor *value);

/* The value of a member of an object.  1 found, 0 not, -1 no object. */
int json_member(json_cursor object, const char *key, json_cursor *value);

/*
 * The members of an object ('{') or array ('['), one after the other:
 *
 *     json_cursor key, value;
 *     if (json_enter(&cursor, '{'))
 *         while (json_next(&cursor, &key, &value))
 *             ...
 *
 * Keys are without their quotes; in arrays they are empty.  Begin with a cursor that json_value or
 * these functions gave, so that it is known to be whole.
 */
int json_enter(json_cursor *container, char bracket);
int json_next(json_cursor *members, json_cursor *key, json_cursor *value);

int json_is(json_cursor text, const char *other);
/* A string without its quotes and escapes, or the text of any other value; cut to `room`. */
void json_copy(json_cursor value, char *out, size_t room);

#endif

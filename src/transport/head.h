/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a message between hosts begins with: 48 bytes, little-endian, whatever the machine.  Offsets and
 * serials travel, never addresses.  A reader believes nothing: weft_i_head_read looks at every
 * field, in release builds too.
 *
 *      0  magic        4 bytes
 *      4  layout       2
 *      6  kind         2
 *      8  source       4   the sender's rank in the world
 *     12  number       4   in the pair, by one more each (order.h)
 *     16  cookie       8   of the pair; 0 in a HELLO
 *     24  group        8   the tag of the group's key; 0: the world's own business
 *     32  words        4 x 4, by kind
 */
#ifndef WEFT_TRANSPORT_HEAD_H
#define WEFT_TRANSPORT_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_I_HEAD_BYTES = 48,
    WEFT_I_HEAD_MAGIC = 0x48544657, /* "WFTH" */
    WEFT_I_HEAD_LAYOUT = 1,
    WEFT_I_HEAD_WORDS = 4
};

typedef enum weft_i_head_kind {
    WEFT_I_HEAD_NONE, /* no message has it */
#define KIND(name_, data_, text_) WEFT_I_HEAD_##name_,
#include "transport/kinds.def"
#undef KIND
    WEFT_I_HEAD_KINDS
} weft_i_head_kind;

typedef struct weft_i_head {
    weft_i_head_kind kind;
    uint32_t source, number;
    uint64_t cookie, group;
    uint32_t word[WEFT_I_HEAD_WORDS];
} weft_i_head;

/* Why a head was not taken. */
typedef enum weft_i_head_fault {
    WEFT_I_HEAD_GOOD,
    WEFT_I_HEAD_NOT_OURS, /* another magic number */
    WEFT_I_HEAD_OTHER_LAYOUT,
    WEFT_I_HEAD_BAD_KIND,
    WEFT_I_HEAD_BAD_SOURCE, /* no rank of the world, or this one */
    WEFT_I_HEAD_BAD_COOKIE, /* a HELLO with one, or another kind without */
    WEFT_I_HEAD_BAD_DATA    /* more than a segment, or of a kind that has none */
} weft_i_head_fault;

/* For whom it is read. */
typedef struct weft_i_head_reader {
    int rank, ranks;
    size_t segment;
} weft_i_head_reader;

void weft_i_head_write(const weft_i_head *head, unsigned char out[WEFT_I_HEAD_BYTES]);

/* `bytes`: of the data that follows.  `out` is written only if the head is good. */
weft_i_head_fault weft_i_head_read(const void *head, size_t bytes, const weft_i_head_reader *reader,
                                   weft_i_head *out);

/* "another layout" */
const char *weft_i_head_fault_text(weft_i_head_fault fault);

/* "ARRIVE"; "?" for what is no kind. */
const char *weft_i_head_kind_name(unsigned kind);

/* Is it the pair's cookie?  Takes as long whatever the bytes are. */
bool weft_i_head_is_from(const weft_i_head *head, uint64_t cookie);

#endif

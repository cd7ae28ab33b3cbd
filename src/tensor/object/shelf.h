/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shelf: small blocks that a thread keeps for its next handles.  A tensor lives for one call
 * more often than not, and the C library takes longer to free and find its block than a small
 * operation takes to run.  A thread keeps a few of each size and gives them back when it ends.  The
 * one that has lain longest is the next.
 */
#ifndef WEFT_TENSOR_SHELF_H
#define WEFT_TENSOR_SHELF_H

#include <stddef.h>

/* AddressSanitizer watches what it has allocated itself. */
#if defined(__SANITIZE_ADDRESS__)
#define WEFT_I_HAS_SHELF 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_I_HAS_SHELF 0
#endif
#endif
#ifndef WEFT_I_HAS_SHELF
#define WEFT_I_HAS_SHELF 1
#endif

/* A handle inside a block is over though the block lives on: AddressSanitizer is told. */
#if WEFT_I_HAS_SHELF
#define WEFT_I_SHELF_OVER(at_, bytes_) ((void)(at_))
#else
#include <sanitizer/asan_interface.h>
#define WEFT_I_SHELF_OVER(at_, bytes_) ASAN_POISON_MEMORY_REGION(at_, bytes_)
#endif

/* Blocks are counted in units, so that those of about the same size can follow each other. */
enum { WEFT_I_SHELF_UNIT = 64, WEFT_I_SHELF_UNITS = 16 };

/*
 * Bytes of each size that lie there before the oldest of them is taken again, so that a handle which
 * was released is refused while so many others are made: 24 of the largest blocks, 29 small tensors
 * with their data, 76 views.  More would cost more time: the blocks that a loop goes round in are to
 * fit into the first cache with its data.
 */
enum { WEFT_I_SHELF_REST = 24 << 10 };
unsigned weft_i_shelf_rest(unsigned units); /* the same in blocks */

/*
 * A block of at least `bytes` bytes, of which the first `cleared` are zero.  `*units` is for who
 * gives it back: its size on the shelf, or 0 if it is none for the shelf.  NULL if there is no
 * memory.
 */
void *weft_i_shelf_take(size_t bytes, size_t cleared, unsigned *units);
void weft_i_shelf_give(void *block, unsigned units);

/* What the calling thread keeps goes back to the system; how many blocks that were. */
size_t weft_i_shelf_clear(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Huge pages, which save faults, misses of the table of pages, and half the work of the kernel when
 * it copies between processes.  WEFT_HUGE_PAGES says whether. */
#ifndef WEFT_BASE_PAGES_H
#define WEFT_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

enum { WEFT_I_PAGE = 4 << 10, WEFT_I_HUGE_PAGE = 2 << 20 };

/* Does memory of so many bytes want them?  Then it should begin at a multiple of their size. */
bool weft_i_pages_want_huge(size_t bytes);

/* Asks for them before the memory is touched; false if there are none. */
bool weft_i_pages_make_huge(void *base, size_t bytes);

/* As mmap, for reading and writing; what has room for huge pages begins at one. */
char *weft_i_pages_map(size_t bytes, int flags, int fd);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: see pages.h. */
#include "base/machine/pages.h"

#include "base/os/os.h"
#include "base/report/env.h"

#include <errno.h>
#include <stdint.h>
#include <strings.h>
#include <sys/mman.h>

bool weft_i_pages_want_huge(size_t bytes)
{
    return bytes >= WEFT_I_HUGE_PAGE &&
           strcasecmp(weft_i_env_text(WEFT_I_ENV_HUGE_PAGES), "off") != 0;
}

bool weft_i_pages_make_huge(void *base, size_t bytes)
{
    return WEFT_OS->madvise(base, bytes, MADV_HUGEPAGE) == 0;
}

/*
 * Maps at a multiple of the huge page size, because the kernel uses huge pages only for aligned
 * ranges.  What is unmapped must begin at a page, so the rest begins where the last page ends.
 */
static char *map_aligned(size_t bytes, int flags, int fd)
{
    size_t page = WEFT_OS->page_bytes(), whole = (bytes + page - 1) / page * page;
    char *wide = WEFT_OS->mmap(NULL, whole + WEFT_I_HUGE_PAGE, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (wide == MAP_FAILED)
        return MAP_FAILED;
    char *start = wide + (WEFT_I_HUGE_PAGE - (uintptr_t)wide % WEFT_I_HUGE_PAGE) % WEFT_I_HUGE_PAGE;
    char *base = WEFT_OS->mmap(start, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        int error = errno;
        WEFT_OS->munmap(wide, whole + WEFT_I_HUGE_PAGE);
        errno = error;
        return MAP_FAILED;
    }
    if (start > wide)
        WEFT_OS->munmap(wide, (size_t)(start - wide));
    WEFT_OS->munmap(start + whole, (size_t)(wide + WEFT_I_HUGE_PAGE - start));
    return base;
}

char *weft_i_pages_map(size_t bytes, int flags, int fd)
{
    if (bytes >= WEFT_I_HUGE_PAGE)
        return map_aligned(bytes, flags, fd);
    return WEFT_OS->mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
}

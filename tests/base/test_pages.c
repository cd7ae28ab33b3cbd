/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/machine/pages.c, base/share/segment.c */
/*
 * Mappings on kernels with pages of 4, 16 and 64 KiB, as those for Arm64 have.  The table of system
 * calls does what such a kernel does: lengths are rounded up to pages, and what does not begin at a
 * page is not unmapped.
 */
#include "harness.h"

#include "base/machine/pages.h"
#include "base/os/os.h"
#include "base/share/segment.h"

#include <errno.h>
#include <sys/mman.h>

static size_t page;
static int64_t held; /* bytes that are mapped */
static int refused;  /* calls to unmap what does not begin at a page */

static size_t whole(size_t bytes)
{
    return (bytes + page - 1) / page * page;
}

static size_t tell_page(void)
{
    return page;
}

static void *map_pages(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (flags & MAP_FIXED)
        return weft_i_os_linux.mmap(at, bytes, protection, flags, fd, offset);
    char *wide = weft_i_os_linux.mmap(NULL, whole(bytes) + page, PROT_NONE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(wide != MAP_FAILED);
    size_t before = (page - (uintptr_t)wide % page) % page;
    if (before)
        CHECK(!weft_i_os_linux.munmap(wide, before));
    CHECK(!weft_i_os_linux.munmap(wide + before + whole(bytes), page - before));
    held += (int64_t)whole(bytes);
    return weft_i_os_linux.mmap(wide + before, bytes, protection, flags | MAP_FIXED, fd, offset);
}

static int unmap_pages(void *memory, size_t bytes)
{
    if ((uintptr_t)memory % page) {
        refused++;
        errno = EINVAL;
        return -1;
    }
    held -= (int64_t)whole(bytes);
    return weft_i_os_linux.munmap(memory, whole(bytes));
}

static void check_none_left(size_t bytes)
{
    if (refused || held)
        FAIL("pages of %zu, %zu bytes: %d not unmapped, %lld bytes left", page, bytes, refused,
             (long long)held);
}

static void map_and_unmap(size_t bytes)
{
    weft_i_segment *segment;
    char *base = weft_i_pages_map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    CHECK(base != MAP_FAILED && held > 0);
    CHECK(bytes < WEFT_I_HUGE_PAGE || (uintptr_t)base % WEFT_I_HUGE_PAGE == 0);
    base[0] = base[bytes - 1] = 1;
    CHECK(!WEFT_OS->munmap(base, bytes));
    check_none_left(bytes);
    CHECK_OK(weft_i_segment_new(bytes, WEFT_I_BETWEEN_PROCESSES, "a test", &segment));
    CHECK(held > 0);
    weft_i_segment_drop(segment);
    check_none_left(bytes);
}

TEST(test_pages_of_any_size)
{
    const size_t huge = WEFT_I_HUGE_PAGE, pages[] = {4096, 16384, 65536};
    const size_t bytes[] = {1, 4096, huge - 4096, huge, huge + 1, huge + 4096, 3 * huge + 20480};
    weft_i_os table = weft_i_os_linux;
    table.mmap = map_pages;
    table.munmap = unmap_pages;
    table.page_bytes = tell_page;
    CHECK(weft_i_os_linux.page_bytes() == (size_t)sysconf(_SC_PAGESIZE));
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        page = pages[i];
        if (page < weft_i_os_linux.page_bytes())
            continue; /* this kernel cannot play it */
        weft_i_os_now = &table;
        for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++)
            map_and_unmap(bytes[k]);
        weft_i_os_now = &weft_i_os_linux;
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}

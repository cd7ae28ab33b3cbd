/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: see pages.h. */
#include "base/pages.h"

#include "base/env.h"
#include "base/os.h"

#include <strings.h>
#include <sys/mman.h>

bool weft_i_pages_want_huge(size_t bytes)
{
    return bytes >= WEFT_I_HUGE_PAGE &&
           strcasecmp(weft_i_env_text(WEFT_I_ENV_HUGE_PAGES), "off") != 0;
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

void weft_i_pages_gather(void *base, size_t bytes)
{
    WEFT_OS->madvise(base, bytes, MADV_COLLAPSE);
}

bool weft_i_pages_make_huge(void *base, size_t bytes)
{
    return WEFT_OS->madvise(base, bytes, MADV_HUGEPAGE) == 0;
}

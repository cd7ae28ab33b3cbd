/* SPDX-License-Identifier: Apache-2.0 */
/* What a handle is about, for checks in one line: symm_info(mem).channels */
#ifndef TESTS_SYMM_INFO_H
#define TESTS_SYMM_INFO_H

#include "harness.h"
#include "weft/symm.h"

static inline weft_symm_info symm_info(const weft_symm *mem)
{
    weft_symm_info info = {0};
    CHECK_OK(weft_symm_describe(mem, &info));
    return info;
}

#endif

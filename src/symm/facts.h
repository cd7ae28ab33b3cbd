/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts by the short names that kinds.def has for them, and the facts of each kind as a constant:
 * FACTS_ALL_REDUCE.  For the files that make the table of kinds, or functions of one kind.
 */
#ifndef WEFT_SYMM_FACTS_H
#define WEFT_SYMM_FACTS_H

#include "symm/kind.h"

enum {
    REDUCES = WEFT_I_REDUCES,
    FROM_ROOT = WEFT_I_FROM_ROOT,
    TO_ROOT = WEFT_I_TO_ROOT,
    HAS_PARTS = WEFT_I_HAS_PARTS,
    PLACES_PARTS = WEFT_I_PLACES_PARTS,
    PULLS = WEFT_I_PULLS,
    LIST = WEFT_I_IS_LIST,
    PER_RANK = WEFT_I_PER_RANK,
    OBJECT = WEFT_I_IS_OBJECT,
    SYMMETRIC = WEFT_I_SYMMETRIC,
    STAGED = WEFT_I_STAGED,
    ITEMS_STAGED = WEFT_I_ITEMS_STAGED,
    LIBRARY = WEFT_I_LIBRARY
};

enum {
#define COLL(name_, text_, record_, as_, facts_) FACTS_##name_ = facts_,
#include "symm/kinds.def"
#undef COLL
};

#endif

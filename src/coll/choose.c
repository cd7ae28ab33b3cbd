/* SPDX-License-Identifier: Apache-2.0 */
/* The table of thresholds: up to how many bytes an operand travels through one stage slot instead
 * of directly. */
#include "coll/choose.h"

#include "coll/lane.h"

const char *weft_i_coll_name(weft_i_coll_kind kind)
{
    static const char *const names[WEFT_I_COLL_KINDS] = {
        "barrier", "all_reduce",     "reduce",     "broadcast", "all_gather", "gather",
        "scatter", "reduce_scatter", "all_to_all", "send",      "recv"};
    return names[kind];
}

const char *weft_i_algorithm_name(weft_i_algorithm algorithm)
{
    static const char *const names[WEFT_I_ALGORITHMS] = {"tiny", "staged", "large"};
    return names[algorithm];
}

/* Largest operand that is staged whole, by kind, for 2, 3-4 and more ranks. */
static const size_t staged_up_to[WEFT_I_COLL_KINDS][3] = {
    [WEFT_I_ALL_REDUCE] = {2 << 10, 2 << 10, 2 << 10},
    [WEFT_I_REDUCE] = {2 << 10, 2 << 10, 2 << 10},
    [WEFT_I_BROADCAST] = {32 << 10, 32 << 10, 32 << 10},
    [WEFT_I_ALL_GATHER] = {2 << 10, 2 << 10, 2 << 10},
    [WEFT_I_GATHER] = {4 << 10, 4 << 10, 4 << 10},
    [WEFT_I_SCATTER] = {4 << 10, 4 << 10, 4 << 10},
    [WEFT_I_REDUCE_SCATTER] = {2 << 10, 2 << 10, 2 << 10},
    [WEFT_I_ALL_TO_ALL] = {2 << 10, 2 << 10, 2 << 10},
};

weft_i_algorithm weft_i_choose(weft_i_coll_kind kind, int ranks, size_t bytes)
{
    if (bytes <= WEFT_I_TINY)
        return WEFT_I_ALGO_TINY;
    int column = ranks <= 2 ? 0 : ranks <= 4 ? 1 : 2;
    return bytes <= staged_up_to[kind][column] ? WEFT_I_ALGO_STAGED : WEFT_I_ALGO_LARGE;
}

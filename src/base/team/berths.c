/* SPDX-License-Identifier: Apache-2.0 */
/* Room for parts: see berths.h. */
#include "base/team/berths.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/team/team.h"

bool weft_i_berths_open(weft_i_berths *berths, size_t bytes, bool shared)
{
    size_t all = 0;
    berths->memory = NULL;
    berths->places = shared ? weft_i_team_threads() : 1;
    berths->each = bytes / 64 * 64 + 64;
    for (int i = 0; i < berths->places; i++)
        atomic_flag_clear_explicit(&berths->taken[i], memory_order_relaxed);
    if (berths->each > bytes && !__builtin_mul_overflow(berths->each, (size_t)berths->places, &all))
        berths->memory = WEFT_OS->alloc_aligned(64, all);
    return berths->memory != NULL;
}

void weft_i_berths_close(weft_i_berths *berths)
{
    WEFT_OS->free(berths->memory);
}

void *weft_i_berths_take(weft_i_berths *berths)
{
    int place = 0;
    /* Pairs with the release in weft_i_berths_give. */
    while (atomic_flag_test_and_set_explicit(&berths->taken[place], memory_order_acquire))
        place = (place + 1) % berths->places;
    return berths->memory + (size_t)place * berths->each;
}

void weft_i_berths_give(weft_i_berths *berths, void *place)
{
    size_t index = (size_t)((char *)place - berths->memory) / berths->each;
    WEFT_ASSERT(index < (size_t)berths->places);
    /* Pairs with the acquire in weft_i_berths_take. */
    atomic_flag_clear_explicit(&berths->taken[index], memory_order_release);
}

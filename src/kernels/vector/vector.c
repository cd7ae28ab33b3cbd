/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the vector loops for this processor. */
#include "kernels/vector/vector.h"

#include "kernels/number/isa.h"

#include <stdatomic.h>
#include <string.h>

/* The best first. */
static const struct {
    const weft_i_vector_table *table;
    bool (*usable)(void);
} variants[] = {
#if defined(__x86_64__)
    {&weft_i_vector_avx512, weft_i_isa_avx512},
    {&weft_i_vector_avx2, weft_i_isa_avx2},
#endif
    {&weft_i_vector_baseline, weft_i_isa_always},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

_Atomic(const weft_i_vector_table *) weft_i_vector_chosen;

const weft_i_vector_table *weft_i_vector_choose(void)
{
    int i = 0;
    while (!variants[i].usable())
        i++;
    atomic_store_explicit(&weft_i_vector_chosen, variants[i].table, memory_order_relaxed);
    return variants[i].table;
}

const char *weft_i_vector_variant(int i)
{
    return i >= 0 && i < VARIANTS ? variants[i].table->name : NULL;
}

bool weft_i_vector_use(const char *variant)
{
    weft_i_vector_choose();
    for (int i = 0; variant && i < VARIANTS; i++)
        if (!strcmp(variants[i].table->name, variant) && variants[i].usable()) {
            atomic_store_explicit(&weft_i_vector_chosen, variants[i].table, memory_order_relaxed);
            return true;
        }
    return !variant;
}

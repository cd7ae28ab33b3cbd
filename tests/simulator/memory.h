/* SPDX-License-Identifier: Apache-2.0 */
/* What simulated threads take from the system, so that the memory of the dead can be given back. */
#ifndef WEFT_TESTS_SIMULATOR_MEMORY_H
#define WEFT_TESTS_SIMULATOR_MEMORY_H

#include "base/os/os.h"

/* Puts entries into the table that note everything taken and given back from now on. */
void weft_i_sim_memory_watch(weft_i_os *table);

/* Bytes that a rank has taken and not given back. */
size_t weft_i_sim_memory_held(int rank);

/* Gives back what is left; returns how many bytes that was. */
size_t weft_i_sim_memory_reclaim(void);

#endif

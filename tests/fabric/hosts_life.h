/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of several hosts do while others die or stop: a bit of everything. */
#ifndef WEFT_TESTS_HOSTS_LIFE_H
#define WEFT_TESTS_HOSTS_LIFE_H

#include "crew.h"

#include "base/report/status.h"

#include <math.h>

enum { LIFE_COUNT = 20000 };

/* Everybody adds 1: the sum is how many there are. */
static weft_status life_add_up(weft_group *group, double *out)
{
    weft_status status = weft_scope_open();
    if (status < 0)
        return status;
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(LIFE_COUNT));
    weft_tensor *sum = weft_all_reduce(x, WEFT_SUM, group);
    *out = sum ? weft_item(sum, LIFE_COUNT - 1) : NAN;
    status = isnan(*out) ? weft_last_status() : WEFT_OK;
    weft_scope_close();
    return status;
}

static weft_status life_pass_round(weft_group *world, int rank, int size)
{
    weft_tensor *out = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(5000), rank);
    weft_tensor *in = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(5000));
    return weft_send_recv(in, (rank + size - 1) % size, out, (rank + 1) % size, world);
}

/* A rendezvous, a put to the next rank, and what has come from the one before. */
static weft_status life_symm(weft_group *world, int rank, int size)
{
    weft_tensor *block = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(3000));
    weft_symm *mem = block ? weft_symm_rendezvous(block, world) : NULL;
    if (!mem)
        return weft_last_status();
    weft_tensor *mine = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(3000), rank);
    WEFT_TRY(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    WEFT_TRY(weft_symm_put(mem, (rank + 1) % size, mine, 0));
    WEFT_TRY(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    return weft_item(block, 2999) == (rank + size - 1) % size
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_STATE, "%g was put", weft_item(block, 2999));
}

static weft_status life_live(weft_group *world, int rank, int size)
{
    double sum;
    WEFT_TRY(weft_group_barrier(world, WEFT_DEFAULT));
    WEFT_TRY(life_add_up(world, &sum));
    weft_group *half = weft_group_split(world, rank % 2, 0);
    if (!half)
        return weft_last_status();
    WEFT_TRY(weft_group_barrier(half, WEFT_DEFAULT));
    WEFT_TRY(life_pass_round(world, rank, size));
    WEFT_TRY(life_symm(world, rank, size));
    int backwards[CREW_MAX];
    for (int i = 0; i < size; i++)
        backwards[i] = size - 1 - i;
    weft_group *again = weft_group_new(world, backwards, size, NULL);
    if (!again)
        return weft_last_status();
    WEFT_TRY(life_add_up(again, &sum));
    return weft_group_barrier(again, WEFT_DEFAULT);
}

#endif

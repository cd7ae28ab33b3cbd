/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communication buffers: symmetric memory in which a program puts operands of collectives.  The
 * plan (plan.h) says which values lie in which; a buffer is used again by values of the same group
 * and device that do not live at once.  It is a persistent allocation under an id of the library's
 * own, fixed when the program is made: every run has it at the same address, so that ranks meet
 * for it once.  Nobody outside the program ever sees it.
 */
#ifndef WEFT_GRAPH_COMM_H
#define WEFT_GRAPH_COMM_H

#include "tensor/object/tensor.h"

typedef struct weft_i_comm_buffer {
    void *group;      /* who meets for it; NULL: that is the row's own affair */
    const char *name; /* of the group; "" */
    weft_device device;
    size_t bytes;
    uint64_t id; /* 0: none yet */
    int until;   /* while planning: the last node that needs what lies in it */
    int values;  /* how many lie in it, one after the other */
} weft_i_comm_buffer;

/* Gives each buffer an id that no other has in this process.  Nothing random: a program that seeds
 * its generator again changes nothing. */
void weft_i_comm_number(weft_i_comm_buffer *buffers, int count);

/* The buffer as a tensor of bytes, with a reference of the caller; NULL and an error.  Only one at
 * a time: WEFT_ERR_STATE while the last one lives. */
weft_tensor *weft_i_comm_open(const weft_i_comm_buffer *buffer);

/* The ids are gone, and so is the memory. */
void weft_i_comm_forget(const weft_i_comm_buffer *buffers, int count);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that change a module together say first what each of them found: all go on, or all fail with
 * the same message.
 */
#ifndef WEFT_PARALLEL_ACCORD_H
#define WEFT_PARALLEL_ACCORD_H

#include "weft/group.h"
#include "weft/module.h"
#include "weft/parallel.h"

#include <stddef.h>

/* What a rank is about to do, a line for each piece of it.  Zeroed: nothing yet. */
typedef struct weft_i_deed {
    char *text; /* terminated; NULL: nothing */
    size_t used, room;
} weft_i_deed;

__attribute__((format(printf, 2, 3))) weft_status weft_i_deed_add(weft_i_deed *deed,
                                                                  const char *format, ...);
/* A line for a tensor: name, dtype, shape, and with `values` a digest of its elements. */
weft_status weft_i_deed_add_tensor(weft_i_deed *deed, const char *name, weft_tensor *x,
                                   bool values);
void weft_i_deed_clear(weft_i_deed *deed);

/*
 * All ranks of the group come with what they found and what they would do.  If one of them failed,
 * all return its status, with its message.  If their deeds differ, all get WEFT_ERR_MISMATCH with the
 * first line that does.  `what` begins the messages.
 */
weft_status weft_i_accord(weft_group *group, const char *what, weft_status found,
                          const weft_i_deed *deed);

/* A line for each tensor of a list. */
weft_status weft_i_deed_add_list(weft_i_deed *deed, const weft_named *list, int count, bool values);
/* Gives all ranks the values of rank 0. */
weft_status weft_i_start_list(const weft_named *list, int count, weft_group *group);

/* All parameters (or parameters and buffers) of a module, to be freed with WEFT_OS->free; NULL and an
 * error. */
weft_named *weft_i_list_params(const char *what, const weft_module *module, bool state, int *count);

#endif

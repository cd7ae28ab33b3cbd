/* SPDX-License-Identifier: Apache-2.0 */
/* Backend ucx: the table of src/transport over UCX, and what this machine has of it. */
#ifndef WEFT_UCX_UCX_H
#define WEFT_UCX_UCX_H

#include <stddef.h>

/* Loads UCX and opens nothing: whoever asks may fork afterwards. */
int weft_i_ucx_probe(char *reason, size_t bytes);

#endif

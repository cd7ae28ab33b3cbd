/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled functions: what backends bring to them.  Backends are added when the library is loaded.
 */
#ifndef WEFT_GRAPH_FRAME_H
#define WEFT_GRAPH_FRAME_H

#include "graph/pass/passes.h"

typedef struct weft_i_frame_backend {
    const char *name;
    unsigned stages; /* of passes (pass.h) between the capture and the interpreter */
    struct weft_i_frame_backend *next; /* set when added */
} weft_i_frame_backend;

void weft_i_frame_add_backend(weft_i_frame_backend *backend);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The backends this library knows: which can be used on this machine, and why the others cannot. */
#ifndef WEFT_BACKEND_H
#define WEFT_BACKEND_H

#include "weft/status.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_backend_info {
    const char *name;
    const char *device; /* kind of device whose memory it shares: "cpu", "cuda" */
    bool usable;
    int score;        /* the highest usable one is taken */
    char reason[192]; /* why it cannot be used, or what it offers */
} weft_backend_info;

WEFT_API int weft_backend_count(void);

/* Fills `out` for backend `index`; probes the machine.  WEFT_ERR_INVALID_ARG outside 0 to count
 * less one. */
WEFT_API weft_status weft_backend_describe(int index, weft_backend_info *out);

#ifdef __cplusplus
}
#endif

#endif

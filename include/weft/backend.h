/* SPDX-License-Identifier: Apache-2.0 */
/* The backends this library has: which ones this machine can use, and why it cannot use the
 * others. */
#ifndef WEFT_BACKEND_H
#define WEFT_BACKEND_H

#include "weft/status.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_backend_info {
    const char *name;
    const char *device; /* the kind of device whose memory it shares: "cpu", "cuda" */
    bool usable;
    int score;        /* the usable backend with the highest score is chosen */
    char reason[192]; /* why it cannot be used, or what it offers */
} weft_backend_info;

WEFT_API int weft_backend_count(void);

/* Describes backend `index`, from 0 to weft_backend_count() - 1.  Probes the machine.
 * WEFT_ERR_INVALID_ARG if the index is out of range. */
WEFT_API weft_status weft_backend_describe(int index, weft_backend_info *out);

#ifdef __cplusplus
}
#endif

#endif

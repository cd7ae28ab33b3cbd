/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine offers to the ranks on it: processor, memory, limits; one fact a row. */
#ifndef WEFT_MACHINE_H
#define WEFT_MACHINE_H

#include "weft/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_machine_fact {
    const char *part;    /* "processor", "memory", "limits" or "system" */
    const char *name;    /* "cores usable" */
    const char *meaning; /* one sentence */
    int is_number;       /* 1: `number` holds the value, of which `text` is the decimal form */
    int64_t number;      /* INT64_MAX: unlimited */
    char text[256];      /* empty if the system does not tell */
} weft_machine_fact;

/* How many facts there are; the same on every machine.  Local. */
WEFT_API int weft_machine_count(void);

/*
 * Looks up fact `index` of weft_machine_count() now.  Local; reads files of the kernel.
 * WEFT_ERR_INVALID_ARG if the index is out of range or `out` is NULL; a fact the system does not
 * tell is no error but an empty text.
 */
WEFT_API weft_status weft_machine_describe(int index, weft_machine_fact *out);

#ifdef __cplusplus
}
#endif

#endif

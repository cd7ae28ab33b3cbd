/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about the machine that the ranks run on: processor, memory, limits.  Each fact is one
 * row. */
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
    int is_number;       /* 1: the value is `number`, and `text` is its decimal form */
    int64_t number;      /* INT64_MAX: unlimited */
    char text[256];      /* empty if the system does not provide it */
} weft_machine_fact;

/* Returns the number of facts, which is the same on every machine.  Local. */
WEFT_API int weft_machine_count(void);

/*
 * Looks up fact `index`, from 0 to weft_machine_count() - 1.  Local; reads files of the kernel.
 * WEFT_ERR_INVALID_ARG if the index is out of range or `out` is NULL.  If the system does not
 * provide a fact, its text is empty; that is not an error.
 */
WEFT_API weft_status weft_machine_describe(int index, weft_machine_fact *out);

#ifdef __cplusplus
}
#endif

#endif

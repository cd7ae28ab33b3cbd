/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables that weft reads, as `weft info` and docs/env.md list them. */
#ifndef WEFT_ENV_H
#define WEFT_ENV_H

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_env_info {
    const char *name;     /* "WEFT_DEBUG" */
    const char *kind;     /* "string", "secret", "int", "bool", "ms", "bytes" or "choice" */
    const char *fallback; /* the default value; may be empty */
    const char *value;    /* NULL if unset or empty; "(hidden)" if it is a secret */
    const char *meaning;  /* one sentence */
    int valid;            /* 0 if the value cannot be read as its kind */
} weft_env_info;

/* Returns the number of variables.  Local. */
WEFT_API int weft_env_count(void);

/*
 * Describes variable `index`, from 0 to weft_env_count() - 1.  Local.  `value` is valid until the
 * environment changes; the other strings live as long as the library.  WEFT_ERR_INVALID_ARG if the
 * index is out of range or `out` is NULL.
 */
WEFT_API weft_status weft_env_describe(int index, weft_env_info *out);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables weft reads: what `weft info` and docs/env.md show. */
#ifndef WEFT_ENV_H
#define WEFT_ENV_H

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_env_info {
    const char *name;     /* "WEFT_DEBUG" */
    const char *kind;     /* "string", "secret", "int", "bool", "ms", "bytes" or "choice" */
    const char *fallback; /* the value when it is not set; may be empty */
    const char
        *value; /* the text it is set to, NULL if unset or empty; a secret reads "(hidden)" */
    const char *meaning; /* one sentence */
    int valid;           /* 0 if the text it is set to cannot be read as its kind */
} weft_env_info;

/* How many variables there are.  Local. */
WEFT_API int weft_env_count(void);

/*
 * Describes variable `index` of weft_env_count().  Local.  `value` is valid until the environment
 * changes, the other texts as long as the library.  WEFT_ERR_INVALID_ARG if the index is out of
 * range or `out` is NULL.
 */
WEFT_API weft_status weft_env_describe(int index, weft_env_info *out);

#ifdef __cplusplus
}
#endif

#endif

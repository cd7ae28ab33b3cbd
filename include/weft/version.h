/* SPDX-License-Identifier: Apache-2.0 */
/* The version of weft.  The build reads it from this file, so it is written down only once. */
#ifndef WEFT_VERSION_H
#define WEFT_VERSION_H

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
#define WEFT_VERSION       "0.1.0"

/* How the library in use was built.  The strings live as long as the library. */
typedef struct weft_version_info {
    const char *version;  /* "0.1.0"; the caller may have been compiled with another WEFT_VERSION */
    const char *compiler; /* "gcc 12.2.0" */
    const char *flags;    /* optimisation and debug flags */
    const char *sanitizers; /* "address,undefined", or empty */
    const char *target;     /* "x86_64-linux" */
    int assertions;         /* 1 if internal assertions are compiled in */
} weft_version_info;

/* Returns the version of the library in use, such as "0.1.0".  Local; never fails. */
WEFT_API const char *weft_version(void);

/* Describes how the library in use was built.  Local.  WEFT_ERR_INVALID_ARG if `out` is NULL. */
WEFT_API weft_status weft_version_describe(weft_version_info *out);

#ifdef __cplusplus
}
#endif

#endif
